"""Decoding of Cohere's chat (version 2): streams and bodies, split anywhere, truncated or invalid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import ItemEndEvent, ItemStartEvent
from pellucid.parts import TextPart, ThinkingPart, ToolCallPart, Usage
from pellucid.providers.wires import WIRES
from tests.small_wires import (
    ROWS,
    broken,
    check_cuts,
    check_total,
    error_of,
    events_of,
    folded,
    garbled,
    kinds_and_texts,
    origin,
    response_of,
    sse,
)

START = {"id": "r1", "type": "message-start", "delta": {"message": {"role": "assistant", "content": []}}}


def event(kind: str, index: int | None = None, **message: Any) -> dict[str, Any]:
    value: dict[str, Any] = {"type": kind}
    if index is not None:
        value["index"] = index
    return value | ({"delta": {"message": message}} if message else {})


def block(index: int, kind: str, *pieces: str, end: bool = True) -> list[dict[str, Any]]:
    """Return the events of a block: its start, its deltas, its end."""
    start = event("content-start", index, content={"type": kind, kind: ""})
    deltas = [event("content-delta", index, content={kind: piece}) for piece in pieces]
    return [start, *deltas, *([event("content-end", index)] if end else [])]


def call(index: int, name: str, *args: str, end: bool = True) -> list[dict[str, Any]]:
    first = {"id": f"{name}_1", "type": "function", "function": {"name": name, "arguments": ""}}
    deltas = [event("tool-call-delta", index, tool_calls={"function": {"arguments": piece}}) for piece in args]
    return [
        event("tool-call-start", index, tool_calls=first),
        *deltas,
        *([event("tool-call-end", index)] if end else []),
    ]


def plan(*pieces: str) -> list[dict[str, Any]]:
    return [event("tool-plan-delta", tool_plan=piece) for piece in pieces]


def end(reason: str | None = "COMPLETE", **more: Any) -> dict[str, Any]:
    return {"type": "message-end", "delta": {"finish_reason": reason, **more}}


def citation(start: int, stop: int, text: str, **more: Any) -> dict[str, Any]:
    return {"start": start, "end": stop, "text": text, "sources": [DOCUMENT], "type": "TEXT_CONTENT", **more}


DOCUMENT = {"type": "document", "id": "doc:0", "document": {"id": "doc:0", "title": "T", "text": "…"}}

STREAMS: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "thought, then text": (
        [*block(0, "thinking", "The", " user"), *block(1, "text", "4")],
        [("thinking", "The user"), ("text", "4")],
    ),
    "thought that comes back": (
        [*block(0, "thinking", "a"), *block(1, "text", "b"), *block(2, "thinking", "c"), *block(3, "text", "d")],
        [("thinking", "a"), ("text", "b"), ("thinking", "c"), ("text", "d")],
    ),
    "two blocks of thought": (
        [*block(0, "thinking", "a"), *block(1, "thinking", "b")],
        [("thinking", "a"), ("thinking", "b")],
    ),
    "blocks that run side by side": (
        [
            *block(0, "thinking", "a", end=False), *block(1, "text", "x", end=False),
            event("content-delta", 0, content={"thinking": "b"}), event("content-delta", 1, content={"text": "y"}),
            event("content-end", 0), event("content-end", 1),
        ],
        [("thinking", "ab"), ("text", "xy")],
    ),
    "a start that holds text": (
        [event("content-start", 0, content={"type": "thinking", "thinking": "a"}), event("content-end", 0)],
        [("thinking", "a")],
    ),
    "no starts, no indexes": (
        [event("content-delta", content={"thinking": "a"}), event("content-end"),
         event("content-delta", content={"text": "b"})],
        [("thinking", "a"), ("text", "b")],
    ),
    "an empty block": ([*block(0, "thinking"), *block(1, "text", "a")], [("text", "a")]),
    "a plan and two calls": (
        [*plan("I", " will"), *call(0, "f", '{"', 'a": 1}'), *call(1, "g", "{}"), end("TOOL_CALL")],
        [("thinking", "I will"), ("tool-call", '{"a": 1}'), ("tool-call", "{}")],
    ),
    "calls without arguments": (
        [*call(0, "f"), *call(1, "g", "null"), *call(2, "h", "{}")],
        [("tool-call", "{}"), ("tool-call", "{}"), ("tool-call", "{}")],
    ),
    "calls that are all number 0": (
        [*call(0, "f", "{}"), *call(0, "g", "{}")],
        [("tool-call", "{}"), ("tool-call", "{}")],
    ),
    "a block of a new type": (
        [
            event("content-start", 0, content={"type": "drawing", "svg": "<"}),
            event("content-delta", 0, content={"svg": "/>"}),
            event("content-end", 0),
            *block(1, "text", "a"),
        ],
        [("opaque", {"type": "drawing", "svg": "</>"}), ("text", "a")],
    ),
    "an event of a new type": (
        [{"type": "new-start", "x": 1}, {"type": "debug", "prompt": "…"}, *block(0, "text", "a")],
        [("opaque", {"event": {"type": "new-start", "x": 1}}), ("text", "a")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_decoded(name: str) -> None:
    frames, expected = STREAMS[name]
    data = sse(START, *frames, *([] if frames[-1]["type"] == "message-end" else [end()]))
    assert kinds_and_texts(response_of("cohere", data)) == expected
    check_cuts("cohere", data)


def test_the_type_may_be_in_the_event_field_alone() -> None:
    frames = [START, *block(0, "thinking", "a"), end()]
    data = "".join(f"event: {f['type']}\ndata: {json.dumps(f | {'type': None})}\n\n" for f in frames).encode()
    assert kinds_and_texts(response_of("cohere", data)) == [("thinking", "a")]


def test_deltas_of_a_block_are_emitted_at_once() -> None:
    reader = WIRES["cohere"].decoder(ROWS["cohere"], origin("cohere"))
    seen = [len(reader.feed(sse(frame))) for frame in [START, *block(0, "thinking", "a", "b"), *block(1, "text", "c")]]
    assert seen == [1, 0, 3, 1, 0, 0, 5, 0]
    assert not reader.done
    reader.feed(sse(end()))
    assert reader.done


def test_thought_and_text_are_separate_items() -> None:
    frames, _ = STREAMS["thought that comes back"]
    events = events_of("cohere", sse(START, *frames, end()))
    assert [e.kind for e in events if isinstance(e, ItemStartEvent)] == ["reasoning", "message"] * 2
    assert {e.status for e in events if isinstance(e, ItemEndEvent)} == {"completed"}


def test_the_tool_plan_is_reasoning_with_its_own_subtype() -> None:
    frames = [START, *plan("I", " will"), *call(0, "f", "{}"), end("TOOL_CALL")]
    assert response_of("cohere", sse(*frames)).parts == [
        ThinkingPart("I will", provider_name="cohere", provider_details={"subtype": "tool_plan"}),
        ToolCallPart("f", "{}", "f_1"),
    ]


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("COMPLETE", "stop"),
        ("STOP_SEQUENCE", "stop"),
        ("MAX_TOKENS", "length"),
        ("TOOL_CALL", "tool_call"),
        ("X", None),
    ],
)
def test_finish_reasons(native: str, reason: str | None) -> None:
    response = response_of("cohere", sse(START, *block(0, "text", "a"), end(native)))
    assert (response.finish_reason, response.native_finish_reason) == (reason, native)
    assert response.provider_response_id == "r1"


# --- bodies ------------------------------------------------------------------------------------------------------


def body(reason: str = "COMPLETE", *, usage: dict[str, Any] | None = None, **message: Any) -> bytes:
    value = {"id": "r1", "finish_reason": reason, "message": {"role": "assistant", **message}}
    return json.dumps(value | ({"usage": usage} if usage else {})).encode()


WHOLE = body(
    "TOOL_CALL",
    tool_plan="I will",
    content=[
        {"type": "thinking", "thinking": "a"},
        {"type": "text", "text": "b"},
        {"type": "new", "x": 1},
        {"type": "text", "text": "c"},
    ],
    tool_calls=[
        {"id": "f_1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
        {"id": "g_1", "type": "function", "function": {"name": "g", "arguments": "null"}},
    ],
)


def test_a_body_is_decoded() -> None:
    assert kinds_and_texts(response_of("cohere", WHOLE)) == [
        ("thinking", "I will"),
        ("thinking", "a"),
        ("text", "b"),
        ("opaque", {"type": "new", "x": 1}),
        ("text", "c"),
        ("tool-call", '{"a":1}'),
        ("tool-call", "{}"),
    ]
    check_cuts("cohere", WHOLE)


def test_a_body_gives_the_same_parts_as_the_stream() -> None:
    frames = [
        START, *plan("I will"), *block(0, "thinking", "a"), *block(1, "text", "b"),
        event("content-start", 2, content={"type": "new", "x": 1}), event("content-end", 2), *block(3, "text", "c"),
        *call(0, "f", '{"a":1}'), *call(1, "g", "null"), end("TOOL_CALL"),
    ]  # fmt: skip
    assert response_of("cohere", sse(*frames)) == response_of("cohere", WHOLE)


def test_content_may_be_a_string() -> None:
    assert kinds_and_texts(response_of("cohere", body(content="a"))) == [("text", "a")]


# --- citations ---------------------------------------------------------------------------------------------------


def texts(data: bytes) -> list[TextPart]:
    return [part for part in response_of("cohere", data).parts if isinstance(part, TextPart)]


def test_a_citation_belongs_to_its_text() -> None:
    cited = citation(0, 4, "text")
    frames = [*block(0, "thinking", "a"), *block(1, "text", "text")]
    cases = [
        sse(START, *frames, event("citation-start", 0, citations=cited), event("citation-end", 0), end()),
        sse(START, *frames[:-1], event("citation-start", 0, citations=cited), frames[-1], end()),
        body(content=[{"type": "thinking", "thinking": "a"}, {"type": "text", "text": "text"}], citations=[cited]),
    ]
    for data in cases:
        (part,) = texts(data)
        annotation = {"type": "citation", "start_index": 0, "end_index": 4, "text": "text", "sources": [DOCUMENT]}
        assert part.annotations == [annotation]
        assert part.provider_details == {"citations": [cited]}
        check_cuts("cohere", data)


def test_a_citation_of_a_page_has_its_url() -> None:
    page = {"type": "document", "id": "d", "document": {"url": "https://e.x", "title": "T"}}
    (part,) = texts(
        body(content=[{"type": "text", "text": "text"}], citations=[citation(0, 4, "text", sources=[page])])
    )
    assert part.annotations == [
        {
            "type": "url_citation",
            "start_index": 0,
            "end_index": 4,
            "text": "text",
            "url": "https://e.x",
            "title": "T",
        }
    ]


def test_citations_belong_to_the_text_that_they_cite() -> None:
    one, two, three = citation(0, 1, "b"), citation(0, 1, "c", content_index=1), citation(0, 1, "b")
    content = [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]
    parts = texts(body(content=content, citations=[one, two, three]))
    assert [part.provider_details for part in parts] == [{"citations": [one, three]}, {"citations": [two]}]


def test_other_citations_belong_to_the_response() -> None:
    of_thought, of_nothing = citation(0, 1, "a", type="THINKING_CONTENT"), citation(0, 1, "x", content_index=7)
    frames = [*block(0, "thinking", "a"), *block(1, "text", "b")]
    cited = [event("citation-start", 0, citations=citation) for citation in (of_thought, of_nothing)]
    response = response_of("cohere", sse(START, *frames, *cited, end()))
    assert response.provider_details == {"citations": [of_thought, of_nothing]}
    assert response.parts[1] == TextPart("b")


# --- usage -------------------------------------------------------------------------------------------------------


def test_usage_is_tokens_not_billed_units() -> None:
    usage = {
        "billed_units": {"input_tokens": 31.0, "output_tokens": 18.0},
        "tokens": {"input_tokens": 1394, "output_tokens": 54},
        "cached_tokens": 1360,
    }
    expected = Usage(
        input_tokens=1394,
        output_tokens=54,
        cache_read_tokens=1360,
        details={"billed_input_tokens": 31, "billed_output_tokens": 18},
    )
    assert response_of("cohere", sse(START, *block(0, "text", "a"), end(usage=usage))).usage == expected
    assert response_of("cohere", body(content="a", usage=usage)).usage == expected
    assert expected.output_reasoning_tokens is None


def test_usage_that_is_not_reported_is_none() -> None:
    assert response_of("cohere", body(content="a", usage={"tokens": {"input_tokens": "?"}})).usage == Usage()
    billed = response_of("cohere", body(content="a", usage={"billed_units": {"output_tokens": 1}})).usage
    assert billed == Usage(details={"billed_output_tokens": 1})


def test_logprobs_belong_to_their_text() -> None:
    delta = event("content-delta", 0, content={"text": "ab"}) | {
        "logprobs": {"text": "ab", "token_ids": [1, 2], "logprobs": [-0.5, -0.25]}
    }
    (part,) = texts(sse(START, delta, end()))
    assert part.logprobs == [{"token": "ab", "logprob": -0.75, "top_logprobs": []}]


# --- missing and invalid ends ------------------------------------------------------------------------------------


def test_truncated_thought_is_incomplete_even_if_its_block_ended() -> None:
    response = response_of("cohere", sse(START, *block(0, "thinking", "a"), end("MAX_TOKENS")))
    assert response.parts == [ThinkingPart("a", provider_name="cohere", complete=False)]
    assert response.finish_reason == "length"


@pytest.mark.parametrize("frames", [block(0, "thinking", "a", end=False), block(0, "thinking", "a")])
def test_a_truncated_stream_is_an_error(frames: list[Any]) -> None:
    for rest in (b"", b'data: {"type": "content-del'):
        error, response = error_of("cohere", sse(START, *frames) + rest)
        assert error.code == "stream_truncated"
        assert response.parts == [ThinkingPart("a", provider_name="cohere", complete=False)]


@pytest.mark.parametrize(
    ("last", "kind", "message"),
    [
        (
            end("ERROR", error="the model fell over"),
            "model_error",
            "the provider reported an error: the model fell over",
        ),
        (end("ERROR"), "model_error", "the provider's model ended its turn with an error: ERROR"),
        (end("TIMEOUT"), "timeout", "the provider's model ran out of time"),
        ({"message": "internal server error"}, "model_error", "the provider reported an error: internal server error"),
        ({"id": "x", "message": "too many", "error": {"type": "rate_limit_error"}}, "too_many_requests", None),
    ],
)
def test_errors_are_decoded(last: dict[str, Any], kind: str, message: str | None) -> None:
    error, response = error_of("cohere", sse(START, *block(0, "thinking", "a"), last))
    assert error.kind == kind
    assert message is None or error.full_message == message
    assert response.parts == [ThinkingPart("a", provider_name="cohere", complete=False)]


def test_a_failed_response_has_usage() -> None:
    usage = {"tokens": {"input_tokens": 1, "output_tokens": 2}}
    _, response = error_of("cohere", sse(START, end("ERROR", error="no", usage=usage)))
    assert (response.usage.input_tokens, response.native_finish_reason) == (1, "ERROR")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_stream"),
        (b"<html></html>", "not_cohere"),
        (b'{"a": 1}', "not_cohere"),
        (b"data: x\n\n", "not_cohere"),
    ],
)
def test_a_body_of_another_format_is_an_error(data: bytes, code: str) -> None:
    error, response = error_of("cohere", data)
    assert error.code == code
    assert response.parts == []


def test_cancelling_closes_the_turn() -> None:
    result = folded("cohere", sse(START, *block(0, "text", "a", end=False)), cause="cancelled")
    assert result.error is None


# --- any input ---------------------------------------------------------------------------------------------------

EVERYTHING = [
    START, *plan("I", " will"), *block(0, "thinking", "a", "b"), *block(1, "text", "c", "d"),
    event("citation-start", 0, citations=citation(0, 1, "c")), event("citation-end", 0),
    event("content-start", 2, content={"type": "new", "x": "1"}), event("content-end", 2),
    *call(0, "f", "{", "}"), *call(1, "g"), end("TOOL_CALL", usage={"tokens": {"input_tokens": 1}}),
]  # fmt: skip
places = st.lists(st.integers(0, 3000), max_size=6)


@given(broken(EVERYTHING), places)
def test_odd_values_give_a_valid_turn(frames: list[Any], cuts: list[int]) -> None:
    check_total("cohere", "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames).encode(), cuts)


@given(garbled(sse(*EVERYTHING)), places)
def test_odd_bytes_give_a_valid_turn(data: bytes, cuts: list[int]) -> None:
    check_total("cohere", data, cuts)


@given(broken([json.loads(WHOLE)]), places)
def test_odd_bodies_give_a_valid_turn(values: list[Any], cuts: list[int]) -> None:
    check_total("cohere", b"".join(json.dumps(value).encode() for value in values), cuts)
