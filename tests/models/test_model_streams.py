"""The stream of one turn, pushed or read: its end, exceptions, and its events after cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from pellucid.errors import ErrorInfo, RequestError
from pellucid.events import ErrorEvent, ModelEvent, PartDeltaEvent, PartEndEvent, ResponseEndEvent
from pellucid.models import Model, ModelRead, StreamReader, TextWriter
from pellucid.parts import ModelRequest, ThinkingPartDelta, UserPromptPart
from pellucid.providers.profiles import load_profiles
from pellucid.settings import ModelCall
from tests.models.stream_kit import PushedResponse, stream_of
from tests.waiting import loop_turns
from tests.wire_frames import EVERY, ROWS

FRAME = EVERY["openai_chat"].frame
DONE = b"data: [DONE]\n\n"


class Receiver:
    """Receives events, or texts in place of delta events."""

    pending_events: Sequence[str] = ()

    def __init__(self, *, breaks: bool = False) -> None:
        self.reads: list[ModelRead] = []
        self.texts: list[str] = []
        self.added: list[str] = []
        self.failures: list[BaseException] = []
        self._fails = breaks

    def __call__(self, read: ModelRead) -> None:
        self.reads.append(read)

    @property
    def events(self) -> list[ModelEvent]:
        return [event for read in self.reads if isinstance(read, list) for event in read]

    def open_text(self, like: PartDeltaEvent, close: Callable[[], None]) -> TextWriter:
        assert type(like.delta) is ThinkingPartDelta
        return TextWriter(lambda text, time_ms: text, self._write, self._write_all)

    def _write(self, text: str) -> None:
        if self._fails:
            raise SystemExit
        self.texts.append(text)

    def _write_all(self, texts: list[str]) -> None:
        for text in texts:
            self._write(text)

    def add_texts(self, texts: list[tuple[str, int]]) -> None:
        self.added += [text for text, _ in texts]

    def fail_text(self, error: BaseException) -> None:
        self.failures.append(error)


def start_stream(receiver: Receiver) -> tuple[PushedResponse, Any]:
    """Start a turn and push five words of reasoning."""
    response = PushedResponse()
    stream = stream_of(ROWS["vllm"], response)
    stream.start(receiver, receiver)
    for number in range(5):
        response.read(FRAME(True, f" {number}", number))
    return response, stream


def test_texts_are_passed_on_and_added_before_the_next_event() -> None:
    receiver = Receiver()
    response, stream = start_stream(receiver)
    assert receiver.texts == [" 3", " 4"]
    assert not receiver.added
    response.read(FRAME(False, "answer", 5))
    assert receiver.added == receiver.texts
    response.read(DONE)
    assert response.is_closed
    thought = next(event.part for event in receiver.events if isinstance(event, PartEndEvent))
    assert cast("Any", thought).content == " 0 1 2 3 4"
    assert isinstance(receiver.events[-1], ResponseEndEvent)
    assert stream.cancel() == []


@pytest.mark.parametrize("error", [None, ErrorInfo("timeout", "the server was silent")])
def test_a_truncated_turn_is_closed_with_the_content_received(error: ErrorInfo | None) -> None:
    receiver = Receiver()
    response, _ = start_stream(receiver)
    response.end(error)
    thought = next(event.part for event in receiver.events if isinstance(event, PartEndEvent))
    assert cast("Any", thought).content == " 0 1 2 3 4"
    [reported] = [event.error for event in receiver.events if isinstance(event, ErrorEvent)]
    assert reported.code == "stream_truncated" if error is None else reported == error


def test_a_cancelled_turn_ends_with_the_content_received() -> None:
    receiver = Receiver()
    response, stream = start_stream(receiver)
    closing = stream.cancel()
    assert response.is_closed
    assert receiver.added == [" 3", " 4"]
    assert closing[0].part.content == " 0 1 2 3 4"
    response.read(FRAME(True, " more", 6))
    response.end()
    assert len(receiver.texts) == 2


def test_an_exception_in_the_text_writer_goes_to_the_receiver() -> None:
    receiver = Receiver(breaks=True)
    start_stream(receiver)
    assert [type(failure) for failure in receiver.failures] == [SystemExit] * len(receiver.failures)
    assert receiver.failures
    assert receiver.texts == []
    assert receiver.added[0] == " 3"


def test_a_decoder_exception_ends_the_turn_and_closes_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = Receiver()
    response, stream = start_stream(receiver)

    def broken(*_: Any) -> list[ModelEvent]:
        raise ZeroDivisionError

    monkeypatch.setattr(stream._decoder, "feed", broken)
    monkeypatch.setattr(stream._decoder, "feed_until_text", broken)
    response.read(b"data: {}\n\n")
    assert isinstance(receiver.reads[-1], ZeroDivisionError)
    assert response.is_closed
    stream.pause()
    stream.resume()
    assert response.flow == []

    receiver = Receiver()
    response, stream = start_stream(receiver)
    monkeypatch.setattr(stream._decoder, "end", broken)
    response.end()
    assert isinstance(receiver.reads[-1], ZeroDivisionError)


# --- reads by a program ------------------------------------------------------------------------------------------


async def reading(response: PushedResponse) -> tuple[StreamReader, asyncio.Task[Any]]:
    reader = StreamReader(stream_of(ROWS["vllm"], response))
    first = asyncio.create_task(reader.read())
    await loop_turns(2)
    return reader, first


@pytest.mark.anyio
async def test_a_reader_pauses_the_upstream_between_its_reads() -> None:
    response = PushedResponse()
    reader, first = await reading(response)
    response.read(FRAME(True, "a", 0))
    assert response.flow[-1] == "pause"
    assert (await first)[-1].delta == ThinkingPartDelta("a")
    second = asyncio.create_task(reader.read())
    await loop_turns(2)
    assert response.flow[-1] == "resume"
    response.read(DONE)
    events = await second
    assert events is not None
    assert isinstance(events[-1], ResponseEndEvent)
    assert await reader.read() is None


@pytest.mark.anyio
async def test_a_cancelled_reader_gets_no_more_reads() -> None:
    response = PushedResponse()
    reader, first = await reading(response)
    reader.cancel()
    assert await first is None
    assert response.is_closed


@pytest.mark.anyio
@pytest.mark.parametrize("read", [None, ZeroDivisionError()])
async def test_a_reader_gets_none_at_the_end_and_the_exception(read: ModelRead) -> None:
    reader, first = await reading(PushedResponse())
    reader._receive(read)
    if read is None:
        assert await first is None
    else:
        with pytest.raises(ZeroDivisionError):
            await first


# --- properties of models ----------------------------------------------------------------------------------------


def test_the_address_of_a_model() -> None:
    model = Model("m", ROWS["vllm"], base_url="http://[::1]:8000/v1")
    assert model.address == ("::1", 8000)
    assert Model("m", ROWS["openai"]).address == ("api.openai.com", None)


def test_a_refused_call_has_no_warnings() -> None:
    call = ModelCall("m", [ModelRequest([UserPromptPart("q")])], settings={"top_k": 3})
    row = load_profiles({"mine": {"wire": "openai_chat"}}, ROWS)["mine"]
    model = Model("m", row)
    assert model.warnings(call) == []
    with pytest.raises(RequestError, match="set base_url"):
        model.request(call)
    assert Model("m", row, base_url="http://127.0.0.1:1/v1").warnings(call)
