"""Decoding of Ollama's native endpoint: streams and bodies, split anywhere, truncated or invalid."""

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
    lines,
    origin,
    response_of,
)

ROW = "ollama-native"


def line(content: str = "", **message: Any) -> dict[str, Any]:
    return {
        "model": "qwen3",
        "created_at": "2026-11-21T00:00:00Z",
        "message": {"role": "assistant", "content": content, **message},
        "done": False,
    }


def last(reason: str | None = "stop", content: str = "", **more: Any) -> dict[str, Any]:
    return line(content) | {"done": True} | ({"done_reason": reason} if reason else {}) | more


def call(name: str, args: Any, **fields: Any) -> dict[str, Any]:
    return {**fields, "function": {"name": name, "arguments": args}}


STREAMS: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "thought, then text": (
        [line(thinking="Ok"), line(thinking="ay"), line("Hi"), line("!")],
        [("thinking", "Okay"), ("text", "Hi!")],
    ),
    "both in one line": ([line("b", thinking="a"), line("c")], [("thinking", "a"), ("text", "bc")]),
    "thought that comes back": (
        [line(thinking="a"), line("b"), line(thinking="c"), line("d")],
        [("thinking", "a"), ("text", "b"), ("thinking", "c"), ("text", "d")],
    ),
    "thought, a call, thought": (
        [line(thinking="a"), line(tool_calls=[call("f", {"q": 1})]), line(thinking="b"), line("c")],
        [("thinking", "a"), ("tool-call", {"q": 1}), ("thinking", "b"), ("text", "c")],
    ),
    "several calls": (
        [line(tool_calls=[call("f", {}), call("g", {"a": [1]})]), line(tool_calls=[call("f", {})])],
        [("tool-call", {}), ("tool-call", {"a": [1]}), ("tool-call", {})],
    ),
    "arguments that are no object": (
        [line(tool_calls=[call("f", '{"a": 1}'), call("g", None)])],
        [("tool-call", '{"a": 1}'), ("tool-call", {})],
    ),
    "tags, because thinking was not asked for": (
        [line("<thi"), line("nk>\nwhy"), line("\n</think>\n\nso")],
        [("thinking", "why"), ("text", "so")],
    ),
    "a picture": ([line("see"), line(images=["iVBORw0KGgo="])], [("text", "see"), ("file", "iVBORw0KGgo=")]),
    "nothing": ([line()], []),
}


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_decoded(name: str) -> None:
    values, expected = STREAMS[name]
    data = lines(*values, last())
    assert kinds_and_texts(response_of(ROW, data)) == expected
    check_cuts(ROW, data)
    assert events_of(ROW, data.rstrip()) == events_of(ROW, data), "the last line may lack its newline"
    assert events_of(ROW, data.replace(b"\n", b"\r\n\r\n")) == events_of(ROW, data)


def test_deltas_of_a_line_are_emitted_at_once() -> None:
    reader = WIRES["ollama"].decoder(ROWS[ROW], origin(ROW))
    seen = [len(reader.feed(lines(value))) for value in (line(thinking="a"), line(thinking="b"), line("c"))]
    assert seen == [4, 1, 5]
    assert not reader.done
    reader.feed(lines(last()))
    assert reader.done


def test_a_body_is_decoded() -> None:
    whole = last("stop", "so") | {"message": {"content": "so", "thinking": "why", "tool_calls": [call("f", {"q": 1})]}}
    expected = [("thinking", "why"), ("text", "so"), ("tool-call", {"q": 1})]
    for data in (json.dumps(whole).encode(), lines(whole), b"\n" + json.dumps(whole, indent=2).encode() + b"\n"):
        assert kinds_and_texts(response_of(ROW, data)) == expected
        check_cuts(ROW, data)


def test_responses_of_the_generate_endpoint_are_decoded() -> None:
    """`/api/generate` has the two texts next to `done`, without a message."""
    values = [{"thinking": "a", "response": "", "done": False}, {"response": "b", "done": True}]
    assert kinds_and_texts(response_of(ROW, lines(*values))) == [("thinking", "a"), ("text", "b")]


def test_thought_and_text_are_separate_items() -> None:
    values, _ = STREAMS["thought that comes back"]
    events = events_of(ROW, lines(*values, last()))
    assert [e.kind for e in events if isinstance(e, ItemStartEvent)] == ["reasoning", "message"] * 2
    assert {e.status for e in events if isinstance(e, ItemEndEvent)} == {"completed"}


def test_calls_have_their_names_and_ids() -> None:
    values = [line(tool_calls=[call("f", {"a": 1}, id="call_1"), call("g", {})]), last()]
    response = response_of(ROW, lines(*values))
    assert response.parts == [ToolCallPart("f", {"a": 1}, "call_1"), ToolCallPart("g", {}, "")]
    assert (response.finish_reason, response.native_finish_reason) == ("tool_call", "stop")


@pytest.mark.parametrize(("native", "reason"), [("stop", "stop"), ("length", "length"), (None, "stop"), ("x", None)])
def test_finish_reasons(native: str | None, reason: str | None) -> None:
    response = response_of(ROW, lines(line("a"), last(native)))
    assert (response.finish_reason, response.native_finish_reason) == (reason, native)
    assert response.model_name == "qwen3"


def test_done_reason_load_does_not_end_the_response() -> None:
    assert kinds_and_texts(response_of(ROW, lines(last("load")))) == []
    reader = WIRES["ollama"].decoder(ROWS[ROW], origin(ROW))
    reader.feed(lines(last("load")))
    assert not reader.done
    assert kinds_and_texts(response_of(ROW, lines(last("load"), line("a"), last()))) == [("text", "a")]


def test_reasoning_tokens_are_none() -> None:
    response = response_of(ROW, lines(line("a"), last(eval_count=290, prompt_eval_count=12, total_duration=5)))
    assert response.usage == Usage(input_tokens=12, output_tokens=290)
    assert response.provider_details == {"total_duration": 5}


def test_input_tokens_of_a_cached_prompt_are_none() -> None:
    assert response_of(ROW, lines(last(eval_count=3))).usage == Usage(output_tokens=3)


def test_logprobs_belong_to_their_text() -> None:
    entry = {"token": "a", "logprob": -0.5, "top_logprobs": []}
    (part,) = response_of(ROW, lines(line("a") | {"logprobs": [entry]}, last())).parts
    assert isinstance(part, TextPart)
    assert part.logprobs == [entry]


# --- missing and invalid ends ------------------------------------------------------------------------------------


def test_truncated_thought_is_incomplete() -> None:
    response = response_of(ROW, lines(line(thinking="a"), last("length")))
    assert response.parts == [ThinkingPart("a", provider_name=ROW, complete=False)]


@pytest.mark.parametrize("rest", [b"", b'{"model": "qwen3", "mess', b"\n\n"])
def test_a_response_without_its_last_line_is_truncated(rest: bytes) -> None:
    error, response = error_of(ROW, lines(line(thinking="a"), line("b")) + rest)
    assert error.code == "stream_truncated"
    assert kinds_and_texts(response) == [("thinking", "a"), ("text", "b")]
    assert response.parts[-1] == TextPart("b", complete=False)


def test_a_single_line_without_done_is_truncated() -> None:
    error, response = error_of(ROW, json.dumps(line("a")).encode())
    assert error.code == "stream_truncated"
    assert response.text == "a"


def test_an_error_line_in_the_stream() -> None:
    error, response = error_of(ROW, lines(line(thinking="a"), {"error": "the model runner has stopped"}, line("never")))
    assert (error.kind, error.upstream_message) == ("model_error", "the model runner has stopped")
    assert error.message == "the provider reported an error"
    assert response.parts == [ThinkingPart("a", provider_name=ROW, complete=False)]


def test_an_error_body() -> None:
    for data in (lines({"error": '"m" does not support thinking'}), b'{"error": "\\"m\\" does not support thinking"}'):
        error, response = error_of(ROW, data)
        assert error.upstream_message == '"m" does not support thinking'
        assert response.parts == []


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_stream"),
        (b"  \n", "empty_stream"),
        (b"<html>\n<title>Bad gateway</title>\n</html>", "not_ollama"),
        (b"404 page not found", "not_ollama"),
        (b'{"a": 1}', "not_ollama"),
        (lines({"a": 1}), "empty_stream"),
    ],
)
def test_a_body_of_another_format_is_an_error(data: bytes, code: str) -> None:
    error, response = error_of(ROW, data)
    assert error.code == code
    assert response.parts == []


def test_a_line_that_is_not_json_is_an_error() -> None:
    error, response = error_of(ROW, lines(line("a")) + b"oh no\n" + lines(last()))
    assert error.code == "not_ollama"
    assert response.text == "a"


def test_cancelling_closes_the_turn() -> None:
    result = folded(ROW, lines(line(thinking="a")), cause="cancelled")
    assert result.error is None


# --- any input ---------------------------------------------------------------------------------------------------

EVERYTHING = [
    line(thinking="a"), line("<thi"), line("b", thinking="c", images=["/9j/"]),
    line(tool_calls=[call("f", {"a": 1}, id="c"), call("g", "{}")]), line("d <"), last(eval_count=1),
]  # fmt: skip
places = st.lists(st.integers(0, 1500), max_size=6)


@given(broken(EVERYTHING), places)
def test_odd_values_give_a_valid_turn(values: list[Any], cuts: list[int]) -> None:
    check_total(ROW, lines(*values), cuts)


@given(garbled(lines(*EVERYTHING)), places)
def test_odd_bytes_give_a_valid_turn(data: bytes, cuts: list[int]) -> None:
    check_total(ROW, data, cuts)
