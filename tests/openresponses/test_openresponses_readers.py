"""Whatever a model says, to whatever reader, sealed or not, in any dialect and framing, from any cursor on.

What a request can be answered with is a product of all of these; here each example is a point of it.
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
from pellucid.parts import VIEWS, ThinkingPart
from pellucid.protocols.openresponses import Dialect, Encoder, Framing
from pellucid.protocols.openresponses.encode import DONE
from pellucid.protocols.openresponses.verify import verify
from pellucid.runs import Batch
from pellucid.runs.stages import SealStage
from pellucid.sealing import Keys, Sealer
from pellucid.view import Redactor, Viewer
from tests.batching import batch_sizes, in_batches
from tests.openresponses.openresponses_kit import ALIASES, NOW, check_events, request, schemas
from tests.openresponses.test_openresponses_encoder import run_of, turns

sealer = Sealer(Keys.generate())


class EncodingCase(NamedTuple):
    """How a run is told."""

    reader: Viewer
    seals: bool
    dialect: Dialect
    framing: Framing
    obfuscate: bool
    summaries: bool
    """Whether somebody writes summaries of it."""


ways = st.builds(
    EncodingCase,
    st.builds(Viewer, st.sampled_from(VIEWS), counts=st.booleans(), summaries=st.booleans()),
    *[st.booleans(), st.sampled_from(["openresponses", "openai"]), st.sampled_from(["events", "lines"])],
    *[st.booleans(), st.booleans()],
)


def enriched(batches: list[list[Event]], way: EncodingCase) -> list[list[Event]]:
    """As the gateway enriches a run before anybody reads it."""
    seals = SealStage(lambda sealed: sealer.seal(sealed, tenant="t")) if way.seals else None
    out: list[list[Event]] = []
    thinks: int | None = None
    for batch in batches:
        now: list[Event] = []
        for event in batch:
            if isinstance(event, ItemStartEvent):
                thinks = event.index if event.kind == "reasoning" else None
            if way.summaries and thinks is not None and isinstance(event, PartEndEvent | ItemEndEvent):
                now.append(SummaryEvent(thinks, "In short. \udc00"))
            now.append(event)
        out.append(seals.process(Batch(NOW, now)).events if seals is not None else now)
    fold([event for batch in out for event in batch])
    return out


def encode_case(batches: Sequence[list[Event]], way: EncodingCase, after: int = -1) -> list[bytes]:
    """What each batch is on the wire, from a reader of its own."""
    encoder = Encoder(
        request().response("resp_1", "m", NOW),
        way.dialect,
        obfuscate=way.obfuscate,
        seals=way.seals or way.reader.view == "sealed",
        after=after,
        framing=way.framing,
    )
    redact = Redactor(way.reader).feed
    return [encoder.start(), *(encoder.feed(redact(list(batch)), NOW + 1) for batch in batches)]


def frames(stream: bytes, framing: Framing) -> list[bytes]:
    """Each event as it was written."""
    if framing == "lines":
        return stream.splitlines(keepends=True)
    return [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]


def events_of(stream: bytes, framing: Framing) -> list[dict[str, Any]]:
    if framing == "lines":
        return [json.loads(line) for line in stream.splitlines()]
    decoded = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    return [json.loads(frame.data) for frame in decoded if frame.data != b"[DONE]"]


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), ways)
def test_what_leaves_is_legal_gapless_balanced_and_fits_the_schemas(
    script: list[Any], cause: Cause, way: EncodingCase
) -> None:
    stream = b"".join(encode_case(enriched(run_of(script, cause)[0], way), way))
    assert verify(stream, way.dialect, way.framing) == []
    events = events_of(stream, way.framing)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    named = [{**event, "type": ALIASES.get(event["type"], event["type"])} for event in events]
    # OpenAI's own form of an error is not the specification's.
    check_events([event for event in named if event["type"] != "error" or "error" in event])
    for schema, name in zip(schemas(), ("Response", "ResponseResource"), strict=False):
        assert schema.errors(name, events[-1]["response"]) == []
    assert (DONE in stream) == (way.framing == "events")


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), ways, st.data())
def test_from_any_cursor_on_comes_the_rest_and_nothing_else(
    script: list[Any], cause: Cause, way: EncodingCase, data: st.DataObject
) -> None:
    batches = enriched(run_of(script, cause)[0], way)
    written = frames(b"".join(encode_case(batches, way)), way.framing)
    cursor = data.draw(st.integers(-1, len(written)))
    rest = b"".join(encode_case(batches, way, after=cursor))
    if way.framing == "lines":
        assert rest == b"".join(written[cursor + 1 :])
    else:
        assert rest == (b"".join(written[cursor + 1 : -1]) + DONE)


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), ways)
def test_a_socket_tells_what_a_stream_tells(script: list[Any], cause: Cause, way: EncodingCase) -> None:
    batches = enriched(run_of(script, cause)[0], way)
    streams = [
        events_of(b"".join(encode_case(batches, way._replace(framing=framing))), framing) for framing in _FRAMINGS
    ]
    for over_http, over_socket in zip(*streams, strict=True):
        if over_http["type"] == "error":
            assert isinstance(over_socket["status"], int)
            for schema in schemas()[1:]:
                assert schema.errors("WebSocketErrorEvent", over_socket) == []
        else:
            assert over_http == over_socket


_FRAMINGS: tuple[Framing, ...] = ("events", "lines")


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), ways)
def test_who_may_see_less_reads_no_thought(script: list[Any], cause: Cause, way: EncodingCase) -> None:
    batches = enriched(run_of(_marked(script), cause)[0], way)
    stream = b"".join(encode_case(batches, way)).decode()
    thoughts = [
        event.part.form
        for batch in batches
        for event in batch
        if isinstance(event, PartEndEvent) and isinstance(event.part, ThinkingPart) and MARK in event.part.content
    ]
    may_read = {"raw": ("raw", "redacted", "summary"), "summary": ("summary",)}.get(way.reader.view, ())
    if MARK in stream:
        assert any(form in may_read for form in thoughts)
    if way.reader.view == "hidden":
        assert '"type":"reasoning"' not in stream
    if not way.seals and way.reader.view != "sealed":
        assert '"encrypted_content"' not in stream
    if not way.reader.counts:
        assert '"usage":{' not in stream


MARK = "CANARY"


def _marked(script: list[Any]) -> list[Any]:
    """The same, in which every thought holds a mark."""
    return [
        ([(what, key, MARK if what in ("thinking", "summary") else text) for what, key, text in said], reason, usage)
        for said, reason, usage in script
    ]


@given(turns, ways, batch_sizes)
def test_how_events_come_in_batches_changes_no_byte(script: list[Any], way: EncodingCase, sizes: list[int]) -> None:
    whole = enriched(run_of(script, "eof")[0], way)
    events = [event for batch in whole for event in batch]
    assert b"".join(encode_case(in_batches(events, sizes), way)) == b"".join(encode_case(whole, way))
