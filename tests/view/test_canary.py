"""The canary: a marker in every reasoning carrier of every wire, and in no byte of a lesser view.

The whole path: the provider's bytes, decoder, run, redactor, and the encoder of OpenResponses. The events are looked
at too, because other protocols show more of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from pellucid.events import Event, ItemEndEvent, PartEndEvent, RunEndEvent
from pellucid.fold import fold
from pellucid.parts import ModelResponse, Origin, ThinkingPart, ToolCallPart
from pellucid.protocols.openresponses import Encoder, error_body, parse_request
from pellucid.protocols.openresponses.verify import verify
from pellucid.providers.errors import error_from_response
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from pellucid.view import View, Viewer, redact_error, redact_messages
from tests.cases import Cases
from tests.recordings import Recording, recordings
from tests.view.canary_wires import ANSWER, ARGS, CANARIES, ERROR, Canary
from tests.view.view_kit import LESSER, SEAL, SECRET, SUMMARY, leaks, redacted

ROWS = builtin_profiles()


def run_of(row_name: str, body: bytes, model: str = "m") -> list[Event]:
    """Decode the bytes to a run, with a seal on every item."""
    row = ROWS[row_name].for_model(model)
    decoder = WIRES[row.wire].decoder(row, Origin(row_name, row.wire, model))
    run = Run(ModelCall(model, []), Minter(b"seed"))
    run.start()
    events = run.feed(decoder.feed(body))[0] + run.feed(decoder.end())[0] + run.end()
    return [replace(one, seal=SEAL) if isinstance(one, ItemEndEvent) else one for one in events]


def encoded(events: list[Event]) -> bytes:
    encoder = Encoder(parse_request(b'{"input":"Hi"}').response("resp_1", "m", 0))
    stream = encoder.start() + encoder.feed(events, 1)
    assert verify(stream) == []
    return stream + msgspec.json.encode(encoder.response)


def test_there_is_a_canary_for_every_wire() -> None:
    assert {ROWS[canary.row].wire for canary in CANARIES} == set(WIRES)


@pytest.mark.parametrize("canary", CANARIES, ids=lambda canary: f"{canary.row} {canary.name}")
def test_the_canary_is_in_the_raw_view_only(canary: Canary) -> None:
    events = run_of(canary.row, canary.body, canary.model)
    assert leaks(events), "the unredacted run has the canary"
    response = fold(events).messages[0]
    assert isinstance(response, ModelResponse)
    assert response.text == (ANSWER if canary.answers else None)
    for reader in LESSER:
        visible = redacted(events, reader)
        stream = encoded(visible)
        assert not leaks(visible)
        assert SECRET.encode() not in stream
        assert not leaks(redact_messages(fold(events).messages, reader))
        if reader.view != "summary":
            assert not leaks(visible, SUMMARY)
            assert SUMMARY.encode() not in stream
        if reader.view == "hidden":
            assert not leaks(visible, SEAL)
        # The answer and its calls are complete.
        left = fold(visible).messages[0]
        assert isinstance(left, ModelResponse)
        assert left.text == response.text
        assert [call.args_as_dict() for call in left.tool_calls] == [json.loads(ARGS)] * len(response.tool_calls)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 529])
def test_an_upstream_error_is_not_quoted(status: int) -> None:
    for body in (json.dumps({"error": ERROR}), json.dumps({"message": SECRET, "__type": SECRET}), f"<h1>{SECRET}</h1>"):
        error = replace(error_from_response(status, body.encode()), retry_after=2)
        assert leaks(error)
        for reader in LESSER:
            visible = redact_error(error, reader)
            assert not leaks(visible)
            assert SECRET not in json.dumps(error_body(visible))
            assert (visible.kind, visible.retry_after) == (error.kind, 2)


# --- recorded models -------------------------------------------------------------------------------------------------

LESSER_VIEWS: tuple[View, ...] = ("summary", "sealed", "hidden")
LONG = 24
"""So many characters in a row are no coincidence."""


def stretches(text: str) -> Iterator[str]:
    return (text[at : at + LONG] for at in range(0, max(len(text) - LONG, 0) + 1, LONG // 2) if text[at : at + LONG])


def carried(events: list[Event]) -> tuple[set[str], set[str]]:
    """Return the stretches of thoughts and opaque data, and the stretches of summaries."""
    secret: set[str] = set()
    summaries: set[str] = set()
    for event in events:
        if isinstance(event, ItemEndEvent):
            secret |= set(stretches(event.signature or ""))
            secret |= set(stretches(_text(event.native)))
        elif isinstance(event, PartEndEvent):
            part: Any = event.part
            if isinstance(part, ThinkingPart):
                (summaries if part.form == "summary" else secret).update(stretches(part.content))
            secret |= set(stretches(getattr(part, "signature", None) or ""))
            if isinstance(part, ThinkingPart | ToolCallPart):
                secret |= set(stretches(_text(part.provider_details)))
    return secret, summaries


def _text(native: Any) -> str:
    return json.dumps(native) if native else ""


def test_reasoning_of_recorded_models_is_in_no_lesser_view() -> None:
    with Cases() as case:
        for recording in recordings():
            with case(recording.name):
                assert_no_lesser_view_has_thought(recording)


def assert_no_lesser_view_has_thought(recording: Recording) -> None:
    run = run_of(recording.provider, recording.body, recording.model)
    events = [replace(one, seal=None) if isinstance(one, ItemEndEvent) else one for one in run]
    secret, summaries = carried(events)
    for view in LESSER_VIEWS:
        reader = Viewer(view)
        visible = redacted(events, reader)
        assert fold(visible).messages == redact_messages(fold(events).messages, reader)
        answer = _answer(events, view)
        shown = encoded(visible).decode() + msgspec.json.encode(visible).decode()
        for stretch in secret | (summaries if view != "summary" else set()):
            written = json.dumps(stretch, ensure_ascii=False)[1:-1]
            # Text that the model repeats in its answer is visible.
            assert stretch in answer or written not in shown, stretch
        assert isinstance(visible[-1], RunEndEvent)


def _answer(events: list[Event], view: str) -> str:
    """Return the visible text: the answer, calls and their results, and summaries if the view has them."""
    parts: list[Any] = [event.part for event in events if isinstance(event, PartEndEvent)]
    readable = [part for part in parts if not isinstance(part, ThinkingPart) or (view, part.form) == ("summary",) * 2]
    return "\n".join(
        text for part in readable for name in ("content", "args") for text in _strings(getattr(part, name, None))
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)
