"""The Interactions API: steps instead of parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.parts import FilePart, TextPart, ThinkingPart, ToolCallPart
from tests.providers_google.google_kit import cut, events_of, folded, merged, part_contents, response_of


def interaction(status: str = "completed", **more: Any) -> dict[str, Any]:
    return {"id": "v1_x", "status": status, "object": "interaction", "model": "gemini-3-flash-preview", **more}


def start(index: int, type: str, **more: Any) -> dict[str, Any]:
    return {"index": index, "step": {"type": type, **more}, "event_type": "step.start"}


def delta(index: int, type: str, **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": {"type": type, **more}, "event_type": "step.delta"}


def stop(index: int) -> dict[str, Any]:
    return {"index": index, "event_type": "step.stop"}


USAGE = {
    "total_tokens": 133, "total_input_tokens": 53, "total_cached_tokens": 0, "total_output_tokens": 15,
    "total_tool_use_tokens": 0, "total_thought_tokens": 65,
}  # fmt: skip


def written(*steps: dict[str, Any], status: str | None = "completed", done: bool = True) -> bytes:
    events = [{"interaction": interaction("in_progress"), "event_type": "interaction.created"}, *steps]
    if status is not None:
        events.append({"interaction": interaction(status, usage=USAGE), "event_type": "interaction.completed"})
    lines = [f"event: {event['event_type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "event: done\ndata: [DONE]\n\n" if done and status else ""]).encode()


TURN = written(
    start(0, "thought", signature="", summary=[{"type": "text", "text": "Let me "}]),
    delta(0, "thought_summary", content={"type": "text", "text": "see."}),
    delta(0, "thought_signature", signature="S"),
    stop(0),
    start(1, "model_output", content=[{"type": "text", "text": "It "}]),
    delta(1, "text", text="is so."),
    delta(1, "text_annotation_delta", annotations=[{"type": "url_citation", "url": "https://a"}]),
    stop(1),
    start(2, "google_search_call", id="g", signature=""),
    delta(2, "google_search_call", arguments={"queries": ["q"]}),
    stop(2),
    start(3, "google_search_result", call_id="g", signature="T"),
    delta(3, "google_search_result", result=[{"r": 1}]),
    stop(3),
)


def test_a_turn() -> None:
    response = response_of(TURN)
    assert part_contents(response) == [
        ("thinking", "Let me see.", "S"),
        ("text", "It is so."),
        ("builtin-tool-call", {"queries": ["q"]}),
        ("builtin-tool-return", [{"r": 1}], "T"),
    ]
    thinking, text, search, result = response.parts
    assert isinstance(thinking, ThinkingPart)
    assert thinking.form == "summary"
    assert isinstance(text, TextPart)
    assert text.annotations == [{"type": "url_citation", "url": "https://a"}]
    assert (search.tool_name, search.tool_call_id) == ("web_search", "g")  # type: ignore[union-attr]
    assert result.tool_call_id == "g"  # type: ignore[union-attr]
    assert (response.finish_reason, response.native_finish_reason) == ("stop", "completed")
    assert (response.model_name, response.provider_response_id) == ("gemini-3-flash-preview", "v1_x")
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.output_reasoning_tokens) == (53, 80, 65)


def test_a_call_after_a_thought_that_is_only_a_signature() -> None:
    response = response_of(
        written(
            start(0, "thought"),
            delta(0, "thought_signature", signature="S"),
            stop(0),
            start(1, "function_call", id="c", signature="", name="f", arguments={}),
            delta(1, "arguments_delta", arguments='{"city": '),
            delta(1, "arguments_delta", arguments='"SF"}'),
            stop(1),
            status="requires_action",
        )
    )
    thinking, call = response.parts
    assert (thinking.content, thinking.signature) == ("", "S")  # type: ignore[union-attr]
    assert isinstance(call, ToolCallPart)
    assert (call.tool_name, call.args, call.tool_call_id, call.complete) == ("f", '{"city": "SF"}', "c", True)
    assert response.finish_reason == "tool_call"


def test_a_body_in_both_forms() -> None:
    thought = {"type": "thought", "signature": "S"}
    call = {"type": "function_call", "id": "c", "name": "f", "arguments": {"a": 1}}
    content = [{"type": "text", "text": "a"}, {"type": "image", "data": "AA==", "mime_type": "image/png"}]
    output = {"type": "model_output", "content": content}
    for name, steps in (("steps", [thought, output, call]), ("outputs", [thought, *content, call])):
        response = response_of(json.dumps(interaction("completed", usage=USAGE, **{name: steps})).encode())
        assert part_contents(response)[:2] == [("thinking", "", "S"), ("text", "a")]
        assert response.parts[2] == FilePart("AA==", "image/png", provider_name="google")
        assert part_contents(response)[3] == ("tool-call", {"a": 1})
        assert response.finish_reason == "tool_call", "calls were asked for, whatever the status says"


def test_unknown_steps_are_kept() -> None:
    response = response_of(written(start(0, "dream", depth=1), delta(0, "dream", depth=2), stop(0)))
    assert part_contents(response) == [("opaque", None)]
    assert response.parts[0].native == {"type": "dream", "depth": 2}  # type: ignore[union-attr]


def test_statuses_and_errors() -> None:
    steps = [start(0, "model_output"), delta(0, "text", text="a")]
    assert response_of(written(*steps, stop(0), status="incomplete")).finish_reason == "length"
    assert folded(written(*steps, stop(0), status="failed")).error is not None
    broken = folded(written(*steps, status=None))
    assert broken.error is not None
    assert broken.error.code == "stream_truncated"
    assert broken.response is not None
    assert broken.response.text == "a"
    failed = folded(
        written(*steps, {"event_type": "error", "error": {"code": "busy", "message": "later"}}, status=None)
    )
    assert failed.error is not None
    assert (failed.error.code, failed.error.upstream_message) == ("busy", "later")


@pytest.mark.parametrize("last", [None, {}, {"total_tokens": 133}, {"total_thought_tokens": None}])
def test_counts_in_the_first_event_are_kept_if_the_last_has_none(last: dict[str, Any] | None) -> None:
    more = {"usage": last} if last is not None else {}
    events = [
        {"interaction": interaction("in_progress", usage=USAGE), "event_type": "interaction.created"},
        start(0, "model_output"),
        delta(0, "text", text="a"),
        stop(0),
        {"interaction": interaction("completed", **more), "event_type": "interaction.completed"},
    ]
    usage = response_of("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()).usage
    assert (usage.input_tokens, usage.output_tokens, usage.output_reasoning_tokens) == (53, 80, 65)


def test_a_call_that_was_cut_off_is_incomplete() -> None:
    steps = [start(0, "function_call", id="c", name="f"), delta(0, "arguments_delta", arguments='{"a')]
    result = folded(written(*steps, status=None))
    assert result.response is not None
    (part,) = result.response.parts
    assert part.complete is False  # type: ignore[union-attr]


@given(st.lists(st.integers(0, len(TURN)), max_size=6))
def test_any_cut_gives_the_same(places: list[int]) -> None:
    assert merged(events_of(cut(TURN, places))) == merged(events_of(TURN))


@given(st.lists(st.tuples(st.integers(0, len(TURN)), st.binary(max_size=3)), min_size=1, max_size=5))
def test_garbled_bytes_give_a_legal_turn(spots: list[tuple[int, bytes]]) -> None:
    data = TURN
    for place, junk in spots:
        data = data[:place] + junk + data[place + len(junk) :]
    folded(data)


FRAMES = TURN.split(b"\n\n")


@given(st.lists(st.sampled_from(FRAMES), max_size=12))
def test_events_in_any_order_give_a_legal_turn(frames: list[bytes]) -> None:
    folded(b"\n\n".join([FRAMES[0], *frames, b""]))
