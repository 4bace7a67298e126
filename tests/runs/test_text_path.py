"""The text path of a stream changes nothing: bytes, stored data, seals and usage are the same without it.

Each case is played twice, once with a receiver that does not support the text path.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import cycle
from typing import Any, NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.asgi.http import ClientGone
from pellucid.asgi.streaming import EncodedStream
from pellucid.events import Event, PartDeltaEvent, RunEndEvent, SideEvent
from pellucid.models import TextWriter
from pellucid.protocols import agui, ai_sdk, chat_completions, openresponses
from pellucid.providers.profile import Profile
from pellucid.run import Minter
from pellucid.runs import Batch, LiveRun, Stage
from pellucid.runs.seal_stage import SealStage
from pellucid.runs.stored_run import StoreStage
from pellucid.settings import ModelCall
from pellucid.view import Redactor, Viewer
from tests.cases import Cases
from tests.models.stream_kit import PushedResponse, SingleResponseModel
from tests.recordings import larger_set, recordings
from tests.replicas.runs_kit import row_of
from tests.waiting import loop_turns
from tests.wire_frames import EVERY, NEXT, ROWS, encoded_frames

ENCODERS: dict[str, Callable[[], Any]] = {
    "openresponses": lambda: openresponses.Encoder(openresponses.types.Response(id="resp_1", created_at=1, model="m")),
    "chat_completions": lambda: chat_completions.Encoder("chatcmpl-1", "m", 1),
    "agui": lambda: agui.Encoder("thread", "run"),
    "ai_sdk": lambda: ai_sdk.Encoder("msg_1", "m"),
}

_TIME = re.compile(rb'"completed_at":[0-9]+')

Step = bytes | str
"""A read of the upstream, or the name of something that happens between two reads."""
OTHERS = ["emit", "wait", "push", "break", "stop", "cancel"]


class Writer:
    """Writer that stores what is written, until it is set to fail."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_broken = False
        self.then: Callable[[], object] | None = None
        """Called within the next write."""

    def start(self, source: Any) -> None: ...

    def write(self, data: bytes) -> None:
        if self.is_broken:
            raise ClientGone
        self.written.append(data)
        then, self.then = self.then, None
        if then is not None:
            then()


class EventsOnly(EncodedStream):
    def open_text(self, like: PartDeltaEvent) -> TextWriter | None:
        return None


class Stored:
    """Store of the run's row and of the batches of its log."""

    def __init__(self) -> None:
        self.responses = self
        self.row: Any = None

    async def put(self, row: Any, *rest: Any) -> None:
        self.row = row


class CountingStage(Stage):
    """Stage that needs some deltas, and pushes its own events on request."""

    def __init__(self) -> None:
        self.seen: list[Event] = []

    def process(self, batch: Batch) -> Batch:
        self.seen += [event for event in batch.events if not isinstance(event, PartDeltaEvent)]
        self.wants_deltas = isinstance(batch.events[-1], RunEndEvent) if batch.events else False
        return batch


class Outcome(NamedTuple):
    written: bytes
    stored: list[Event]
    row: Any
    seen: list[Event]
    usage: Any
    messages: Any
    ended: Any
    raised: str


async def play(row: Profile, steps: Sequence[Step], encoder: str, *, with_texts: bool) -> tuple[Outcome, int]:
    response, store, counting, writer = PushedResponse(), Stored(), CountingStage(), Writer()
    store_stage = StoreStage(row_of(1), cast("Any", store))
    run = LiveRun(
        SingleResponseModel(row, response),
        ModelCall("m", []),
        Minter(b"seed"),
        stages=[counting, SealStage(lambda sealed: f"seal of {len(repr(sealed.parts))}"), store_stage],
    )
    kind = EncodedStream if with_texts else EventsOnly
    stream = kind(run, Redactor(Viewer(view="raw")), ENCODERS[encoder](), cast("Any", writer))
    await run.open()
    delivery = asyncio.create_task(stream.deliver())
    await loop_turns(3)
    for step in steps:
        if isinstance(step, bytes):
            response.read(step)
        elif step == "emit":
            run.emit(SideEvent("x", "y", 1))
        elif step == "wait":
            await loop_turns(2)
        elif step == "cancel":
            writer.then = run.cancel
        elif step == "push":
            counting.push(Batch(7, [SideEvent("x", "z", 2)]))
        elif step == "break":
            writer.is_broken = True
        elif step == "stop":
            with suppress(ClientGone):
                await run.stop()
        elif step == "end":
            response.end()
    raised = ""
    if run.ended is None:
        writer.is_broken = False
        await run.stop()
    try:
        async with asyncio.timeout(10):
            await delivery
    except BaseException as error:
        raised = type(error).__name__
    stored = [event for batch in store_stage._batches for event in batch.events]
    row_messages = store.row.messages if store.row is not None else None
    body = _TIME.sub(b'"completed_at":0', b"".join(writer.written) + stream.end_data)
    live = run.run
    return (
        Outcome(body, stored, row_messages, counting.seen, live.usage, live.messages, run.ended, raised),
        response.text_reads,
    )


def compare(row: Profile, steps: Sequence[Step], encoder: str) -> int:
    """Assert that both outcomes are equal; return the number of reads that used or tried the text path."""

    async def main() -> int:
        without, none = await play(row, steps, encoder, with_texts=False)
        outcome, reads = await play(row, steps, encoder, with_texts=True)
        assert none == 0
        assert outcome == without
        return reads

    return asyncio.run(main())


@pytest.mark.parametrize("name", EVERY)
@given(
    st.lists(NEXT, max_size=6),
    st.booleans(),
    st.integers(1, 3) | st.just(99),
    st.sampled_from(sorted(ENCODERS)),
    st.lists(
        st.tuples(st.integers(0, 40), st.sampled_from(["emit", "wait", "push", "break", "stop", "cancel"])), max_size=2
    ),
    st.lists(st.integers(1, 600), max_size=4),
)
def test_the_text_path_changes_nothing(
    name: str,
    script: list[list[tuple[bool, str]] | int],
    ends: bool,
    together: int,
    encoder: str,
    others: list[tuple[int, str]],
    sizes: list[int],
) -> None:
    """Each read has `together` frames or, with `sizes`, these numbers of bytes in turn."""
    wire = EVERY[name]
    frames = encoded_frames(wire, script, ends=ends)
    steps: list[Step] = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    if sizes:
        steps = list(pieces(b"".join(frames), sizes))
    for at, other in others:
        steps.insert(at % (len(steps) + 1), other)
    compare(ROWS[wire.row], [*steps, "end"], encoder)


def pieces(data: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    at = 0
    for size in cycle(sizes):
        if at >= len(data):
            return
        yield data[at : at + size]
        at += size


@pytest.mark.parametrize("sizes", [[5000], [700, 90, 1], [37], [9000, 40, 3]])
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("name", EVERY)
def test_reads_that_are_cut_within_frames_take_the_text_path(name: str, encoder: str, sizes: list[int]) -> None:
    wire = EVERY[name]
    more = [wire.frame(True, f" tok{number}", number) for number in range(200)]
    frames = [*wire.begin, *more, *wire.end]
    reads: list[Step] = list(pieces(b"".join(frames), sizes))
    taken = compare(ROWS[wire.row], [*reads, "end"], encoder)
    if name != "google_array":  # only brackets mark the end of an element
        assert taken > len(reads) * 0.3


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("name", EVERY)
def test_text_deltas_take_the_text_path(name: str, encoder: str) -> None:
    wire = EVERY[name]
    for thought in (True, False):
        begin = [*wire.begin, *(() if thought else wire.thought_over)]
        more: list[Step] = [wire.frame(thought, f" tok{number}", number) for number in range(100)]
        assert compare(ROWS[wire.row], [*begin, *more, *wire.end, "end"], encoder) >= 95


def test_text_that_may_be_a_tag_is_decoded_in_full() -> None:
    row = ROWS["openai-compat"].for_model("m")
    frame = EVERY["openai_chat"].frame
    texts = [
        "<think>",
        " a",
        " b",
        " c",
        "d <",
        "/think",
        ">",
        "\n\n",
        " e",
        " f",
        " g",
        " `x",
        " <b>",
        " h",
        " i",
        "\n",
    ]
    steps: list[Step] = [frame(False, text, number) for number, text in enumerate(texts)]
    assert compare(row, [*steps, b"data: [DONE]\n\n", "end"], "openresponses") > 4


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_text_path_changes_nothing_for_recordings(encoder: str) -> None:
    taken = 0
    with Cases() as case:
        for recording in recordings():
            row, body = recording.row, recording.body
            end = b"\n" if row.wire == "ollama" else b"\n\n"
            frames: list[Step] = [frame + end for frame in body.split(end) if frame]
            if len(frames) < 3 or row.wire == "bedrock":
                continue
            with case(recording.name):
                taken += compare(row, [*frames, "end"], encoder)
    assert taken > 1000 or not larger_set()  # the own recordings are too short for it


def test_a_reader_that_leaves_on_the_text_path_ends_the_run() -> None:
    wire = EVERY["openai_chat"]
    steps: list[Step] = [wire.frame(True, f" tok{number}", number) for number in range(20)]
    assert compare(ROWS[wire.row], [*steps[:10], "break", *steps[10:], "end"], "openresponses") >= 5


@pytest.mark.parametrize("at", [7, 66, 69])
def test_a_stage_that_raises_on_the_text_path_ends_the_delivery(at: int) -> None:
    """Both when its texts are added at the end and when there are many."""

    class RaisingStage(Stage):
        takes_texts = True

        def process(self, batch: Batch) -> Batch:
            if f" tok{at} " in repr(batch.events):
                raise ZeroDivisionError
            return batch

        def add_texts(self, like: PartDeltaEvent, texts: list[tuple[str, int]]) -> None:
            if any(text == f" tok{at} " for text, _ in texts):
                raise ZeroDivisionError

    async def main(end: bool) -> None:
        response = PushedResponse()
        run = LiveRun(
            SingleResponseModel(ROWS["vllm"], response), ModelCall("m", []), Minter(b"seed"), stages=[RaisingStage()]
        )
        stream = EncodedStream(run, Redactor(Viewer(view="raw")), ENCODERS["openresponses"](), cast("Any", Writer()))
        await run.open()
        delivery = asyncio.create_task(stream.deliver())
        await loop_turns(3)
        for number in range(80):
            response.read(EVERY["openai_chat"].frame(True, f" tok{number} ", number))
        if end:
            response.end()
        else:
            run.emit(SideEvent("x", "y", 1))
            await loop_turns(2)
        with pytest.raises(ZeroDivisionError):
            async with asyncio.timeout(10):
                await delivery
        await run.stop()
        assert run.ended is not None
        assert run.ended.status == "failed"

    for end in (True, False):
        asyncio.run(main(end))


def test_the_text_path_holds_few_texts_at_a_time() -> None:
    """Held texts are added regularly, also while no other events come."""

    async def main() -> None:
        response = PushedResponse()
        row = ROWS["vllm"]
        run = LiveRun(SingleResponseModel(row, response), ModelCall("m", []), Minter(b"seed"))
        stream = EncodedStream(run, Redactor(Viewer(view="raw")), ENCODERS["openresponses"](), cast("Any", Writer()))
        await run.open()
        delivery = asyncio.create_task(stream.deliver())
        await loop_turns(3)
        for number in range(1000):
            response.read(EVERY["openai_chat"].frame(True, " tok", number))
        assert len(cast("Any", run)._stream._pending_texts) < 100
        await run.stop()
        await delivery
        [message] = run.run.messages
        assert cast("Any", message).parts[0].content == " tok" * 1000

    asyncio.run(main())
