"""Streams of any run, for any viewer, sealed or not, in any dialect and framing, from any cursor.

A response is a combination of all of these; each example here is one combination.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import Cause, Event, ItemEndEvent, ItemStartEvent, PartEndEvent, SummaryEvent
from pellucid.fold import fold
from pellucid.framing import SSEDecoder
from pellucid.parts import ThinkingPart
from pellucid.protocols.encoding import DONE
from pellucid.protocols.openresponses import Dialect, Encoder, Framing
from pellucid.protocols.openresponses.verify import verify
from pellucid.runs import Batch
from pellucid.runs.seal_stage import SealStage
from pellucid.sealing import Keys, Sealer
from pellucid.view import VIEWS, Redactor, Viewer
from tests.batching import batch_sizes, in_batches
from tests.openresponses.openresponses_kit import ALIASES, NOW, check_events, request, schemas
from tests.openresponses.test_openresponses_encoder import run_of, turns

sealer = Sealer(Keys.generate())


class EncodingCase(NamedTuple):
    """How a run is encoded."""

    viewer: Viewer
    seals: bool
    dialect: Dialect
    framing: Framing
    obfuscate: bool
    summaries: bool
    """Whether the run has generated summaries."""


cases = st.builds(
    EncodingCase,
    st.builds(Viewer, st.sampled_from(VIEWS), counts=st.booleans(), summaries=st.booleans()),
    *[st.booleans(), st.sampled_from(["openresponses", "openai", "summary"]), st.sampled_from(["events", "lines"])],
    *[st.booleans(), st.booleans()],
)


def add_seals_and_summaries(batches: list[list[Event]], case: EncodingCase) -> list[list[Event]]:
    """The batches with seals and summaries, as the gateway adds them to a run."""
    seals = SealStage(lambda sealed: sealer.seal(sealed, tenant="t")) if case.seals else None
    out: list[list[Event]] = []
    reasoning_index: int | None = None
    for batch in batches:
        enriched_batch: list[Event] = []
        for event in batch:
            if isinstance(event, ItemStartEvent):
                reasoning_index = event.index if event.kind == "reasoning" else None
            if case.summaries and reasoning_index is not None and isinstance(event, PartEndEvent | ItemEndEvent):
                enriched_batch.append(SummaryEvent(reasoning_index, "In short. \udc00"))
            enriched_batch.append(event)
        out.append(seals.process(Batch(NOW, enriched_batch)).events if seals is not None else enriched_batch)
    fold([event for batch in out for event in batch])
    return out


def encode_case(batches: Sequence[list[Event]], case: EncodingCase, after: int = -1) -> list[bytes]:
    """The bytes of each batch, for a viewer of its own."""
    encoder = Encoder(
        request().response("resp_1", "m", NOW),
        case.dialect,
        obfuscate=case.obfuscate,
        seals=case.seals or case.viewer.view == "sealed",
        after=after,
        framing=case.framing,
    )
    redact = Redactor(case.viewer).feed
    return [encoder.start(), *(encoder.feed(redact(list(batch)), NOW + 1) for batch in batches)]


def split_frames(stream: bytes, framing: Framing) -> list[bytes]:
    """The bytes of each event."""
    if framing == "lines":
        return stream.splitlines(keepends=True)
    return [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]


def events_of(stream: bytes, framing: Framing) -> list[dict[str, Any]]:
    if framing == "lines":
        return [json.loads(line) for line in stream.splitlines()]
    decoded = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    return [json.loads(frame.data) for frame in decoded if frame.data != b"[DONE]"]


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), cases)
def test_every_stream_is_legal_gapless_and_fits_the_schemas(
    script: list[Any], cause: Cause, case: EncodingCase
) -> None:
    stream = b"".join(encode_case(add_seals_and_summaries(run_of(script, cause)[0], case), case))
    assert verify(stream, case.dialect, case.framing) == []
    events = events_of(stream, case.framing)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    named = [{**event, "type": ALIASES.get(event["type"], event["type"])} for event in events]
    # OpenAI's form of an error is not the specification's.
    check_events([event for event in named if event["type"] != "error" or "error" in event])
    for schema, name in zip(schemas(), ("Response", "ResponseResource"), strict=False):
        assert schema.errors(name, events[-1]["response"]) == []
    assert (DONE in stream) == (case.framing == "events")


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), cases, st.data())
def test_every_cursor_gives_exactly_the_remaining_events(
    script: list[Any], cause: Cause, case: EncodingCase, data: st.DataObject
) -> None:
    batches = add_seals_and_summaries(run_of(script, cause)[0], case)
    written = split_frames(b"".join(encode_case(batches, case)), case.framing)
    cursor = data.draw(st.integers(-1, len(written)))
    rest = b"".join(encode_case(batches, case, after=cursor))
    if case.framing == "lines":
        assert rest == b"".join(written[cursor + 1 :])
    else:
        assert rest == (b"".join(written[cursor + 1 : -1]) + DONE)


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), cases)
def test_websocket_and_sse_carry_the_same_events(script: list[Any], cause: Cause, case: EncodingCase) -> None:
    batches = add_seals_and_summaries(run_of(script, cause)[0], case)
    streams = [
        events_of(b"".join(encode_case(batches, case._replace(framing=framing))), framing) for framing in _FRAMINGS
    ]
    for sse_event, socket_event in zip(*streams, strict=True):
        if sse_event["type"] == "error":
            assert isinstance(socket_event["status"], int)
            for schema in schemas()[1:]:
                assert schema.errors("WebSocketErrorEvent", socket_event) == []
        else:
            assert sse_event == socket_event


_FRAMINGS: tuple[Framing, ...] = ("events", "lines")


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), cases)
def test_a_restricted_viewer_receives_no_thought(script: list[Any], cause: Cause, case: EncodingCase) -> None:
    batches = add_seals_and_summaries(run_of(_with_marks(script), cause)[0], case)
    stream = b"".join(encode_case(batches, case)).decode()
    thoughts = [
        event.part.form
        for batch in batches
        for event in batch
        if isinstance(event, PartEndEvent) and isinstance(event.part, ThinkingPart) and MARK in event.part.content
    ]
    may_read = {"raw": ("raw", "redacted", "summary"), "summary": ("summary",)}.get(case.viewer.view, ())
    if MARK in stream:
        assert any(form in may_read for form in thoughts)
    if case.viewer.view == "hidden":
        assert '"type":"reasoning"' not in stream
    if not case.seals and case.viewer.view != "sealed":
        assert '"encrypted_content"' not in stream
    if not case.viewer.counts:
        assert '"usage":{' not in stream


MARK = "CANARY"


def _with_marks(script: list[Any]) -> list[Any]:
    """The same script, with a mark in every thought."""
    return [
        ([(what, key, MARK if what in ("thinking", "summary") else text) for what, key, text in steps], reason, usage)
        for steps, reason, usage in script
    ]


@given(turns, cases, batch_sizes)
def test_batch_boundaries_change_no_byte(script: list[Any], case: EncodingCase, sizes: list[int]) -> None:
    whole = add_seals_and_summaries(run_of(script, "eof")[0], case)
    events = [event for batch in whole for event in batch]
    assert b"".join(encode_case(in_batches(events, sizes), case)) == b"".join(encode_case(whole, case))
