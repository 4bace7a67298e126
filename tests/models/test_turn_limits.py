"""A turn that reaches one of its limits ends there as incomplete; its content is kept, and the connection is closed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from pellucid.events import ModelEvent, ResponseEndEvent
from pellucid.fold import Fold, fold
from pellucid.models import ModelRead
from pellucid.models.model import CHECK_BYTES, MAX_PENDING_TEXTS
from pellucid.parts import TextPart, ThinkingPart, ToolCallPart
from pellucid.upstream.errors import turn_too_long_error
from tests.models.stream_kit import PushedResponse, stream_of
from tests.models.test_model_streams import Receiver
from tests.small_wires import lines, sse
from tests.wire_frames import EVERY, ROWS, event

MAX_READS = 10_000


class Turn(Receiver):
    """A turn that is read until the connection is closed. With `takes_texts`, texts may replace events."""

    def __init__(self, row: str, reads: Iterator[bytes], *, takes_texts: bool = False, **limits: int) -> None:
        super().__init__()
        self.response = PushedResponse(**limits)
        stream = stream_of(ROWS[row], self.response)
        stream.start(self, self if takes_texts else None)
        self.read_count = 0
        while not self.response.is_closed:
            assert self.read_count < MAX_READS, "the turn did not end"
            self.response.read(next(reads))
            self.read_count += 1
        self.cancel_events = stream.cancel()

    @property
    def end(self) -> ResponseEndEvent:
        end = self.events[-1]
        assert isinstance(end, ResponseEndEvent)
        return end

    @property
    def folded(self) -> Fold:
        """The messages of the turn, whose events must be legal."""
        return fold(list(self.events))


def frames_of(name: str, text: str, *, thought: bool = False) -> Iterator[bytes]:
    wire = EVERY[name]
    yield from wire.begin
    for number in count():
        yield wire.frame(thought, f"{text} {number}", number)


def in_reads_of(frames: Iterator[bytes], size: int) -> Iterator[bytes]:
    """Join frames to reads of at least `size` bytes."""
    while True:
        read = b""
        while len(read) < size:
            read += next(frames)
        yield read


@pytest.mark.parametrize("size", [1, 20_000], ids=["single frames", "large reads"])
@pytest.mark.parametrize("thought", [True, False], ids=["thought", "text"])
@pytest.mark.parametrize("name", EVERY)
def test_endless_text_ends_on_every_wire(name: str, thought: bool, size: int) -> None:
    reads = in_reads_of(frames_of(name, "x" * 500, thought=thought), size)
    turn = Turn(EVERY[name].row, reads, turn_characters=100_000)
    assert (turn.end.finish_reason, turn.end.native_finish_reason) == ("length", "turn_characters")
    response = turn.folded.response
    assert response is not None
    *_, part = response.parts
    assert isinstance(part, ThinkingPart | TextPart)
    assert not part.complete
    # What was received between two checks is kept.
    assert 100_000 <= len(part.content) <= 100_000 + CHECK_BYTES + max(size, 1000)
    assert turn.cancel_events == []


@pytest.mark.parametrize("size", [1, 20_000], ids=["single frames", "large reads"])
@pytest.mark.parametrize("name", EVERY)
def test_endless_text_ends_on_the_text_path(name: str, size: int) -> None:
    reads = in_reads_of(frames_of(name, "x" * 500, thought=True), size)
    turn = Turn(EVERY[name].row, reads, takes_texts=True, turn_characters=100_000)
    assert turn.texts, "the text path was not used"
    assert turn.added == turn.texts
    assert turn.end.native_finish_reason == "turn_characters"
    read_characters = turn.read_count * max(size, 500)
    assert read_characters <= 100_000 + (CHECK_BYTES if size > 1 else MAX_PENDING_TEXTS * 1000) + 2 * size


@pytest.mark.parametrize("takes_texts", [True, False])
@pytest.mark.parametrize("name", EVERY)
def test_the_bytes_of_a_turn_are_limited(name: str, takes_texts: bool) -> None:
    turn = Turn(EVERY[name].row, frames_of(name, "x", thought=True), takes_texts=takes_texts, turn_bytes=200_000)
    assert (turn.end.finish_reason, turn.end.native_finish_reason) == ("length", "turn_bytes")
    assert turn.response.body_bytes < 200_000 + 2 * CHECK_BYTES


def chat_items() -> Iterator[bytes]:
    for number in count():
        call = {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{}"}}
        yield sse({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})


def anthropic_items() -> Iterator[bytes]:
    yield event({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}})
    for number in count():
        block = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}
        yield event({"type": "content_block_start", "index": number, "content_block": block})
        yield event({"type": "content_block_stop", "index": number})


def anthropic_redacted() -> Iterator[bytes]:
    yield event({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}})
    for number in count():
        block = {"type": "redacted_thinking", "data": "x"}
        yield event({"type": "content_block_start", "index": number, "content_block": block})
        yield event({"type": "content_block_stop", "index": number})


def responses_items() -> Iterator[bytes]:
    yield event({"type": "response.created", "response": {"id": "resp_1", "model": "m"}})
    for number in count():
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": "x"}
        yield event({"type": "response.output_item.added", "output_index": number, "item": item})
        yield event({"type": "response.output_item.done", "output_index": number, "item": item})


def google_items() -> Iterator[bytes]:
    for number in count():
        part = {"functionCall": {"name": "f", "args": {"number": number}}}
        yield sse({"candidates": [{"content": {"role": "model", "parts": [part]}}]})


def ollama_items() -> Iterator[bytes]:
    for number in count():
        call = {"function": {"name": "f", "arguments": {"number": number}}}
        yield lines(
            {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False}
        )


ITEMS: dict[str, tuple[str, Callable[[], Iterator[bytes]]]] = {
    "chat": ("vllm", chat_items),
    "anthropic": ("anthropic", anthropic_items),
    "anthropic's redacted thinking": ("anthropic", anthropic_redacted),
    "responses": ("openai-responses", responses_items),
    "google": ("google", google_items),
    "ollama": (EVERY["ollama"].row, ollama_items),
}


@pytest.mark.parametrize("size", [1, 50_000], ids=["single frames", "large reads"])
@pytest.mark.parametrize("name", ITEMS)
def test_the_items_of_a_turn_are_limited(name: str, size: int) -> None:
    row, frames = ITEMS[name]
    turn = Turn(row, in_reads_of(frames(), size), turn_items=50)
    assert (turn.end.finish_reason, turn.end.native_finish_reason) == ("length", "turn_items")
    response = turn.folded.response
    assert response is not None
    assert len(response.parts) == 50


def test_the_items_of_a_whole_body_are_limited() -> None:
    content = [{"type": "text", "text": f"{number}"} for number in range(1000)]
    body = json.dumps({"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}).encode()
    response, receiver = PushedResponse(turn_items=50), Receiver()
    stream_of(ROWS["anthropic"], response).start(receiver)
    response.read(body)
    response.end()
    message = fold(list(receiver.events)).response
    assert message is not None
    assert (len(message.parts), message.finish_reason) == (50, "length")


def test_the_text_of_a_whole_body_is_cut_at_the_limit() -> None:
    content = [{"type": "text", "text": "x" * 300_000}, {"type": "text", "text": "y"}]
    body = json.dumps({"type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}).encode()
    response, receiver = PushedResponse(turn_characters=100_000), Receiver()
    stream_of(ROWS["anthropic"], response).start(receiver)
    response.read(body)
    response.end()
    message = fold(list(receiver.events)).response
    assert message is not None
    [part] = message.parts
    assert part == TextPart("x" * 100_000, complete=False)
    assert message.native_finish_reason == "turn_characters"


def test_the_arguments_of_a_call_are_limited() -> None:
    def frames() -> Iterator[bytes]:
        function: dict[str, Any] = {"name": "write", "arguments": '{"text": "'}
        yield sse({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": function}]}}]})
        while True:
            more = [{"index": 0, "function": {"arguments": "x" * 1000}}]
            yield sse({"choices": [{"index": 0, "delta": {"tool_calls": more}}]})

    turn = Turn("vllm", frames(), tool_argument_characters=100_000)
    assert (turn.end.finish_reason, turn.end.native_finish_reason) == ("length", "tool_argument_characters")
    response = turn.folded.response
    assert response is not None
    [call] = response.parts
    assert isinstance(call, ToolCallPart)
    assert not call.complete
    assert len(call.args_as_text()) <= 100_000 + 2 * CHECK_BYTES


def test_deltas_that_are_held_back_are_limited() -> None:
    """The arguments of a second call wait for the end of the first."""

    def frames() -> Iterator[bytes]:
        for number in (0, 1):
            call: dict[str, Any] = {"index": number, "id": f"c{number}", "function": {"name": "f", "arguments": "{"}}
            yield sse({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
        while True:
            more = [{"index": 1, "function": {"arguments": " "}}]
            yield sse({"choices": [{"index": 0, "delta": {"tool_calls": more}}]})

    turn = Turn("vllm", frames(), turn_items=10)
    assert turn.end.native_finish_reason == "turn_items"
    assert turn.read_count < 10 * 32 + CHECK_BYTES // 50


def test_white_space_that_is_held_back_is_limited() -> None:
    def frames() -> Iterator[bytes]:
        while True:
            yield sse({"choices": [{"index": 0, "delta": {"reasoning_content": " " * 1000}}]})

    turn = Turn("vllm", frames(), turn_characters=100_000)
    assert turn.end.native_finish_reason == "turn_characters"


def test_a_frame_with_too_many_objects_is_not_decoded() -> None:
    body = b'{"type": "message", "role": "assistant", "content": [%b]}' % b",".join([b"{}"] * 400_000)
    response, receiver = PushedResponse(), Receiver()
    stream_of(ROWS["anthropic"], response).start(receiver)
    response.read(body)
    response.end()
    error = fold(list(receiver.events)).error
    assert error is not None
    assert error.code == "frame_too_large"
    assert "200000 objects" in error.message


def test_a_turn_without_an_end_in_time_is_incomplete() -> None:
    response, receiver = PushedResponse(), Receiver()
    stream_of(ROWS["vllm"], response).start(receiver)
    response.read(EVERY["openai_chat"].frame(False, "so far", 0))
    response.end(turn_too_long_error(5.0))
    message = fold(list(receiver.events)).response
    assert message is not None
    assert message.parts == [TextPart("so far", complete=False)]
    assert (message.finish_reason, message.native_finish_reason) == ("length", "turn_seconds")


def test_no_limit_is_checked_for_single_deltas() -> None:
    """The hot path counts bytes; the limits are compared once for many deltas."""
    response, receiver = PushedResponse(), Receiver()
    stream: Any = stream_of(ROWS["vllm"], response)
    checks: list[ModelRead] = []
    stream._decoder.exceeded_limit = lambda: checks.append(None)
    stream.start(receiver, receiver)
    for number in range(4 * MAX_PENDING_TEXTS):
        response.read(EVERY["openai_chat"].frame(True, f" {number}", number))
    assert len(checks) <= 4


def test_the_events_of_a_cut_turn_end_once() -> None:
    turn = Turn("vllm", frames_of("openai_chat", "x" * 500), turn_characters=10_000)
    ends: list[ModelEvent] = [event for event in turn.events if isinstance(event, ResponseEndEvent)]
    assert len(ends) == 1
