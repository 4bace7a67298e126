"""Decoding of Mistral's chat: streams and bodies, split anywhere, truncated or invalid."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import ItemEndEvent, ItemStartEvent
from pellucid.parts import OpaquePart, TextPart, ThinkingPart, ToolCallPart, Usage
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

OLD = "magistral-medium-2506"
DONE = "data: [DONE]"


def chunk(content: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    delta = {"content": content, **more} if content is not None else more
    return {"id": "r1", "model": "mm", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def thinking(*inner: Any, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [text(x) if isinstance(x, str) else x for x in inner], **more}


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def reference(*ids: int) -> dict[str, Any]:
    return {"type": "reference", "reference_ids": list(ids)}


def body(content: Any, finish: str = "stop", **message: Any) -> bytes:
    message = {"role": "assistant", "content": content, **message}
    return json.dumps({"id": "r1", "model": "mm", "choices": [{"message": message, "finish_reason": finish}]}).encode()


def call(name: str | None, args: Any, **fields: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": args}, **fields}


PAGE = {"type": "tool_reference", "tool": "web_search", "title": "T", "url": "https://e.x"}

STREAMS: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "lists, then texts": (
        [chunk(""), chunk([thinking("Okay")]), chunk([thinking(", so")]), chunk("2"), chunk("+2"), chunk("", "stop")],
        [("thinking", "Okay, so"), ("text", "2+2")],
    ),
    "lists only": (
        [chunk([thinking("a")]), chunk([text("b")]), chunk([text("c")], "stop")],
        [("thinking", "a"), ("text", "bc")],
    ),
    "both in one list": (
        [chunk([thinking("a"), text("b")]), chunk([text("c"), thinking("d")]), chunk("e", "stop")],
        [("thinking", "a"), ("text", "bc"), ("thinking", "d"), ("text", "e")],
    ),
    "thought that comes back stays where it was": (
        [chunk([thinking("a")]), chunk("b"), chunk([thinking("c")]), chunk("d", "stop")],
        [("thinking", "a"), ("text", "b"), ("thinking", "c"), ("text", "d")],
    ),
    "a block that says that it is closed": (
        [chunk([thinking("a", closed=True)]), chunk([thinking("b", closed=False)]), chunk([thinking("c")], "stop")],
        [("thinking", "a"), ("thinking", "bc")],
    ),
    "nothing in between": (
        [chunk([thinking("a")]), chunk([]), chunk(None), chunk([text("")]), chunk([thinking("b")]), chunk("c", "stop")],
        [("thinking", "ab"), ("text", "c")],
    ),
    "thought as a plain text": (
        [chunk([{"type": "thinking", "thinking": "a"}]), chunk([{"type": "thinking", "thinking": ["b"]}], "stop")],
        [("thinking", "ab")],
    ),
    "an unknown chunk": (
        [chunk("a"), chunk([{"type": "new", "x": 1}]), chunk("b", "stop")],
        [("text", "a"), ("opaque", {"type": "new", "x": 1}), ("text", "b")],
    ),
    "empty choices": ([chunk("a"), {"choices": [], "usage": None}, chunk("b", "stop")], [("text", "ab")]),
    "a call in fragments, with an empty name": (
        [
            chunk("", tool_calls=[call("f", "", id="c1", index=0)]),
            chunk("", tool_calls=[call("", '{"q": ', index=0)]),
            chunk("", tool_calls=[call("", "1}", index=0)]),
            chunk("", "tool_calls"),
        ],
        [("tool-call", '{"q": 1}')],
    ),
    "whole calls that are all number 0": (
        [chunk(tool_calls=[call("f", "{}", id="c1"), call("g", "{}", id="c2")]), chunk("", "tool_calls")],
        [("tool-call", "{}"), ("tool-call", "{}")],
    ),
    "whole calls without ids": (
        [chunk(tool_calls=[call("f", "{}", id="null")]), chunk(tool_calls=[call("g", "{}", id="null")], finish="stop")],
        [("tool-call", "{}"), ("tool-call", "{}")],
    ),
    "arguments as an object": (
        [chunk([thinking("a")]), chunk(tool_calls=[call("f", {"q": 1}, id="c1")], finish="tool_calls")],
        [("thinking", "a"), ("tool-call", {"q": 1})],
    ),
    "a name that comes late": (
        [chunk(tool_calls=[call(None, '{"q"', id="c1")]), chunk(tool_calls=[call("f", ":1}")], finish="tool_calls")],
        [("tool-call", '{"q":1}')],
    ),
    "no name at all": ([chunk(tool_calls=[call(None, "{}", id="c1")], finish="tool_calls")], [("tool-call", "{}")]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_decoded(name: str) -> None:
    frames, expected = STREAMS[name]
    data = sse(*frames, DONE)
    assert kinds_and_texts(response_of("mistral", data)) == expected
    check_cuts("mistral", data)


@pytest.mark.parametrize("tail", [[], [DONE]])
def test_the_last_event_may_lack_its_blank_line(tail: list[str]) -> None:
    data = sse(chunk("a"), chunk("b", "stop"), *tail).rstrip(b"\n")
    assert kinds_and_texts(response_of("mistral", data)) == [("text", "ab")]


def test_done_ends_the_stream_at_once() -> None:
    reader = WIRES["mistral"].decoder(ROWS["mistral"], origin("mistral"))
    reader.feed(sse(chunk("a", "stop")))
    assert not reader.done
    reader.feed(sse(DONE))
    assert reader.done


def test_the_response_has_its_id_and_model() -> None:
    response = response_of("mistral", sse(chunk("a", "stop")))
    assert (response.provider_response_id, response.model_name, response.finish_reason) == ("r1", "mm", "stop")


def test_thought_and_text_are_separate_items() -> None:
    frames, _ = STREAMS["thought that comes back stays where it was"]
    events = events_of("mistral", sse(*frames, DONE))
    assert [e.kind for e in events if isinstance(e, ItemStartEvent)] == ["reasoning", "message"] * 2
    assert [e.status for e in events if isinstance(e, ItemEndEvent)] == ["completed"] * 4


@pytest.mark.parametrize(
    ("finish", "reason"),
    [("stop", "stop"), ("length", "length"), ("model_length", "length"), ("tool_calls", "tool_call"), ("new", None)],
)
def test_finish_reasons(finish: str, reason: str | None) -> None:
    response = response_of("mistral", sse(chunk("a"), chunk("", finish)))
    assert (response.finish_reason, response.native_finish_reason) == (reason, finish)


# --- signatures, references --------------------------------------------------------------------------------------


def thought(data: bytes, **how: Any) -> list[ThinkingPart]:
    return [part for part in response_of("mistral", data, **how).parts if isinstance(part, ThinkingPart)]


def test_a_signature_belongs_to_its_thought() -> None:
    data = sse(chunk([thinking("a")]), chunk([thinking(signature="S", closed=True)]), chunk("b", "stop"))
    assert thought(data) == [
        ThinkingPart("a", signature="S", provider_name="mistral", provider_details={"closed": True})
    ]


def test_a_signature_without_text_is_a_thought() -> None:
    assert [(part.content, part.signature) for part in thought(body([thinking(signature="S"), text("b")]))] == [
        ("", "S")
    ]


def test_two_signed_blocks_are_two_parts() -> None:
    data = sse(
        chunk([thinking("a")]), chunk([thinking("b", signature="S")]), chunk([thinking("c")]),
        chunk([thinking(signature="T")]), chunk("d", "stop"),
    )  # fmt: skip
    assert [(part.content, part.signature) for part in thought(data)] == [("ab", "S"), ("c", "T")]


def test_a_signature_repeated_in_every_chunk_is_one_part() -> None:
    data = sse(chunk([thinking("a", signature="S")]), chunk([thinking("b", signature="S")], "stop"))
    assert [(part.content, part.signature) for part in thought(data)] == [("ab", "S")]


def test_every_thinking_chunk_of_a_body_is_a_part() -> None:
    data = body([thinking("a", "b", closed=True), thinking("c"), text("d"), text("e")])
    assert kinds_and_texts(response_of("mistral", data)) == [("thinking", "ab"), ("thinking", "c"), ("text", "de")]
    check_cuts("mistral", data)


def test_references_do_not_split_the_text() -> None:
    data = sse(chunk("ab"), chunk([reference(1, 2)]), chunk([text("cd"), PAGE]), chunk("e", "stop"))
    (part,) = response_of("mistral", data).parts
    assert isinstance(part, TextPart)
    assert part.content == "abcde"
    assert part.provider_details == {"inserted": [{"at": 2, "chunk": reference(1, 2)}, {"at": 4, "chunk": PAGE}]}
    assert part.annotations == [
        {"type": "url_citation", "url": "https://e.x", "title": "T", "start_index": 4, "end_index": 4}
    ]
    check_cuts("mistral", data)


def test_references_do_not_split_a_thought() -> None:
    (part,) = thought(body([thinking("ab", reference(1), "cd", PAGE), text("x")]))
    assert part.content == "abcd"
    assert part.provider_details == {"inserted": [{"at": 2, "chunk": reference(1)}, {"at": 4, "chunk": PAGE}]}


def test_a_reference_before_any_text_is_preserved() -> None:
    (part,) = response_of("mistral", sse(chunk([reference(1)]), chunk("a", "stop"))).parts
    assert isinstance(part, TextPart)
    assert (part.content, part.provider_details) == ("a", {"inserted": [{"at": 0, "chunk": reference(1)}]})


def test_empty_chunks_do_not_move_a_reference() -> None:
    data = sse(chunk("ab"), chunk([thinking("")]), chunk(tool_calls=[{}]), chunk([text("c"), reference(1)], "stop"))
    (part,) = response_of("mistral", data).parts
    assert isinstance(part, TextPart)
    assert part.provider_details == {"inserted": [{"at": 3, "chunk": reference(1)}]}


# --- calls, builtin tools ----------------------------------------------------------------------------------------


def test_calls_have_their_names_and_ids() -> None:
    data = body("", "tool_calls", tool_calls=[call("f", "{}", id="aaaaaaaaa"), call("g", '{"a": 1}', id="bbbbbbbbb")])
    assert response_of("mistral", data).parts == [
        ToolCallPart("f", "{}", "aaaaaaaaa"),
        ToolCallPart("g", '{"a": 1}', "bbbbbbbbb"),
    ]


def test_calls_of_one_chunk_are_separate() -> None:
    pieces = [
        [call("f", "{", id="a", index=0), call("g", "{", id="b", index=1)],
        [call("", '"x":1}', index=0), call("", '"y":2}', index=1)],
    ]
    response = response_of("mistral", sse(*(chunk(tool_calls=piece) for piece in pieces), chunk("", "tool_calls")))
    assert [(part.tool_name, part.args) for part in response.tool_calls] == [("f", '{"x":1}'), ("g", '{"y":2}')]


def test_output_of_a_builtin_tool_is_not_text() -> None:
    messages = [
        {"role": "assistant", "content": [thinking("a")]},
        {"role": "tool", "tool_call_id": "c", "content": "[]"},
        {"role": "assistant", "content": "b"},
    ]
    data = json.dumps({"choices": [{"messages": messages, "finish_reason": "stop"}]}).encode()
    response = response_of("mistral", data)
    assert [part.part_kind for part in response.parts] == ["thinking", "opaque", "text"]
    assert response.text == "b"


# --- usage -------------------------------------------------------------------------------------------------------


def test_reasoning_tokens_are_none_unless_reported() -> None:
    usage = {"prompt_tokens": 10, "total_tokens": 56, "completion_tokens": 46}
    frames = [chunk("a"), chunk("", "stop") | {"usage": usage}]
    assert response_of("mistral", sse(*frames)).usage == Usage(input_tokens=10, output_tokens=46)


def test_usage_in_detail() -> None:
    usage = {
        "prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29, "prompt_audio_seconds": 1, "request_count": 1,
        "service_tier": "standard", "num_cached_tokens": 5, "prompt_tokens_details": {"audio_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }  # fmt: skip
    assert response_of("mistral", sse(chunk("a", "stop") | {"usage": usage})).usage == Usage(
        input_tokens=20,
        output_tokens=9,
        output_reasoning_tokens=7,
        cache_read_tokens=5,
        input_audio_tokens=1,
        details={"prompt_audio_seconds": 1, "request_count": 1},
    )


def test_usage_that_is_not_reported_is_none() -> None:
    assert response_of("mistral", sse(chunk("a", "stop"))).usage == Usage()


def test_logprobs_belong_to_their_text() -> None:
    entry = {"token": "a", "logprob": -0.5, "top_logprobs": []}
    frame = chunk("a", "stop")
    frame["choices"][0]["logprobs"] = {"content": [entry]}
    (part,) = response_of("mistral", sse(chunk([thinking("x")]), frame)).parts[1:]
    assert isinstance(part, TextPart)
    assert part.logprobs == [entry]


# --- missing and invalid ends ------------------------------------------------------------------------------------


def test_truncated_thought_is_incomplete() -> None:
    response = response_of("mistral", sse(chunk([thinking("a")]), chunk([thinking("b")], "length"), DONE))
    assert response.parts == [ThinkingPart("ab", provider_name="mistral", complete=False)]
    assert response.finish_reason == "length"


def test_a_truncated_stream_is_an_error() -> None:
    data = sse(chunk([thinking("a")]), chunk("b"))
    for broken_off in (data, data + b'data: {"choices": [{"ind'):
        error, response = error_of("mistral", broken_off)
        assert error.code == "stream_truncated"
        assert kinds_and_texts(response) == [("thinking", "a"), ("text", "b")]
        assert isinstance(response.parts[-1], TextPart)
        assert response.parts[-1].complete is False


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_stream"),
        (b": ping\n\n", "empty_stream"),
        (b"<html><title>Bad gateway</title></html>", "not_mistral"),
        (b'{"a": 1}', "not_mistral"),
        (b"data: nothing\n\n", "not_mistral"),
        (b'{"choices": [{"mess', "not_mistral"),
    ],
)
def test_a_body_of_another_format_is_an_error(data: bytes, code: str) -> None:
    error, response = error_of("mistral", data)
    assert error.code == code
    assert response.parts == []


ERRORS = {
    "an object": ({"error": {"message": "Overloaded", "type": "overloaded_error"}}, "Overloaded", "unavailable"),
    "standing alone": (
        {"object": "error", "message": "Service tier capacity exceeded", "type": "x", "code": "3505"},
        "Service tier capacity exceeded",
        "model_error",
    ),
    "of validation": ({"detail": [{"msg": "Field required", "loc": ["body"]}]}, "Field required", "model_error"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_in_the_stream(name: str) -> None:
    frame, message, kind = ERRORS[name]
    error, response = error_of("mistral", sse(chunk([thinking("a")]), frame, chunk("never"), DONE))
    assert (error.upstream_message, error.kind) == (message, kind)
    assert response.parts == [ThinkingPart("a", provider_name="mistral", complete=False)]


def test_an_error_event() -> None:
    error, _ = error_of("mistral", b'event: error\ndata: {"message": "no"}\n\n')
    assert error.upstream_message == "no"
    error, _ = error_of("mistral", b"event: error\ndata: no more\n\n")
    assert error.upstream_message == "no more"


def test_an_error_without_a_message() -> None:
    error, response = error_of("mistral", sse(chunk("a"), chunk("", "error"), DONE))
    assert error.code == "error"
    assert response.native_finish_reason == "error"


def test_cancelling_closes_the_turn() -> None:
    result = folded("mistral", sse(chunk([thinking("a")])), cause="cancelled")
    assert result.error is None
    assert result.response is not None
    assert result.response.parts == [ThinkingPart("a", provider_name="mistral", complete=False)]


# --- tags of older models ----------------------------------------------------------------------------------------


def test_tags_of_the_oldest_models() -> None:
    data = sse(chunk("<thi"), chunk("nk>\na"), chunk("b\n</think>\n\nso"), chunk("", "stop"))
    response = response_of("mistral", data, model=OLD)
    assert kinds_and_texts(response) == [("thinking", "ab"), ("text", "so")]
    assert isinstance(response.parts[0], ThinkingPart)
    assert response.parts[0].provider_details == {"open": "<think>\n", "close": "\n</think>\n\n"}
    check_cuts("mistral", data, model=OLD)


def test_tags_are_text_for_models_with_thinking_chunks() -> None:
    assert kinds_and_texts(response_of("mistral", body("<think>a</think>b"))) == [("text", "<think>a</think>b")]


def test_text_withheld_as_a_possible_tag_precedes_later_text() -> None:
    data = sse(chunk("a <"), chunk(tool_calls=[call("f", "{}", id="c")], finish="tool_calls"))
    assert kinds_and_texts(response_of("mistral", data, model=OLD)) == [("text", "a <"), ("tool-call", "{}")]


# --- any input ---------------------------------------------------------------------------------------------------

EVERYTHING = [
    chunk(""), chunk([thinking("a", reference(1), signature="S")]), chunk([thinking("b", closed=True), text("c")]),
    chunk("d <thi"), chunk([reference(1), PAGE, {"type": "new"}]), chunk(tool_calls=[call("f", "{", id="c1", index=0)]),
    chunk(tool_calls=[call("", "}", index=0), call("g", {"a": 1}, id="c2", index=1)]),
    chunk("", "tool_calls") | {"usage": {"prompt_tokens": 1, "completion_tokens": 2}},
]  # fmt: skip
places = st.lists(st.integers(0, 3000), max_size=6)
models = st.sampled_from(["m", OLD])


@given(broken(EVERYTHING), places, models)
def test_odd_values_give_a_valid_turn(frames: list[Any], cuts: list[int], model: str) -> None:
    check_total(
        "mistral",
        sse(*(frame if isinstance(frame, dict) else f"data: {json.dumps(frame)}" for frame in frames)),
        cuts,
        model=model,
    )


@given(garbled(sse(*EVERYTHING, DONE)), places, models)
def test_odd_bytes_give_a_valid_turn(data: bytes, cuts: list[int], model: str) -> None:
    check_total("mistral", data, cuts, model=model)


BODY = {"id": "r", "model": "m", "choices": [{"index": 0, "finish_reason": "stop", "message": {
    "role": "assistant", "content": [thinking("a", reference(2), closed=True), text("b"), PAGE, {"type": "new"}],
    "tool_calls": [call("f", "{}", id="c1")]}}], "usage": {"prompt_tokens": 1}}  # fmt: skip


@given(broken([BODY]), places)
def test_odd_bodies_give_a_valid_turn(values: list[Any], cuts: list[int]) -> None:
    check_total("mistral", b"".join(json.dumps(value).encode() for value in values), cuts)


def test_unknown_chunks_are_opaque_parts() -> None:
    (part,) = response_of("mistral", body([{"type": "image_url", "image_url": "https://e.x"}])).parts
    assert part == OpaquePart("image_url", {"type": "image_url", "image_url": "https://e.x"}, provider_name="mistral")
