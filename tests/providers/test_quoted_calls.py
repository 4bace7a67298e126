"""Groq's `tool_use_failed`: the calls that the error quotes are calls of the turn, if they are whole."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid.fold import Fold, fold
from pellucid.parts import ToolCallPart
from pellucid.providers.wires import WIRES
from tests.providers.wire_kit import ROWS, chunk, kinds_and_texts, origin

OFFERED = ("look", "get.more")


def failed(quoted: Any, **more: Any) -> dict[str, Any]:
    """Return Groq's error for this generation."""
    error = {"message": "Tool call validation failed: parameters for tool look did not match schema",
             "type": "invalid_request_error", "code": "tool_use_failed"}  # fmt: skip
    return {"error": error | ({} if quoted is None else {"failed_generation": quoted}) | more}


def decoded(data: bytes, *, offered: tuple[str, ...] = OFFERED) -> Fold:
    reader = WIRES["openai_chat"].decoder(ROWS["groq"], origin("groq"))
    reader.set_offered_tools(offered)
    return fold([*reader.feed(data), *reader.end()])


def calls_of(result: Fold) -> list[tuple[str, Any]]:
    assert result.response is not None
    return [(part.tool_name, part.args) for part in result.response.parts if isinstance(part, ToolCallPart)]


WHOLE = [
    ('{"name": "look", "arguments": {\n  "foo": "bar"\n}}', [("look", {"foo": "bar"})]),
    ('{"name": "look", "arguments": "{\\"foo\\": 1}"}', [("look", {"foo": 1})]),
    ('[{"name": "look", "parameters": {}}, {"name": "get.more", "arguments": {"a": []}}]',
     [("look", {}), ("get.more", {"a": []})]),
    ('{"type": "function", "function": {"name": "look", "arguments": {"a": "b"}}}', [("look", {"a": "b"})]),
    ('<function=look>{"a": "</function>"}</function>', [("look", {"a": "</function>"})]),
    ('<function=look{"a": {"b": 1}}</function>\n<function=get.more>{}', [("look", {"a": {"b": 1}}), ("get.more", {})]),
]  # fmt: skip


@pytest.mark.parametrize(("quoted", "expected"), WHOLE)
def test_a_whole_call_is_a_call_of_the_turn(quoted: str, expected: list[tuple[str, Any]]) -> None:
    body = json.dumps(failed(quoted)).encode()
    frames = [json.dumps(chunk(reasoning="I look.", content="")).encode()]
    streamed = b"".join(b"data: " + frame + b"\n\n" for frame in frames) + b"event: error\ndata: " + body + b"\n\n"
    for data in (body, streamed):
        result = decoded(data)
        assert result.error is None
        assert result.response is not None
        assert calls_of(result) == expected
        assert (result.response.finish_reason, result.response.native_finish_reason) == ("tool_call", "tool_use_failed")
        assert all(part.complete for part in result.response.parts if isinstance(part, ToolCallPart))
    response = decoded(streamed).response
    assert response is not None
    assert kinds_and_texts(response)[0] == ("thinking", "I look.")


NOT_WHOLE = [
    None,
    "",
    "maybe",
    '{"name": "look", "arguments": {"foo": ',
    '{"name": "look", "arguments": ["a list"]}',
    '{"name": "look", "arguments": "text"}',
    '{"name": "look"}',
    '{"name": "unknown", "arguments": {}}',
    '[{"name": "look", "arguments": {}}, {"name": "unknown", "arguments": {}}]',
    "[]",
    "[1]",
    7,
    'Look: {"name": "look", "arguments": {}}',
    '<function=look>{"a": 1',
    '<function=look>{"a": 1}</function> and more',
    '<function=>{"a": 1}</function>',
    "<think>\nI look.",
]


@pytest.mark.parametrize("quoted", NOT_WHOLE)
def test_anything_else_stays_the_error_that_it_is(quoted: Any) -> None:
    result = decoded(json.dumps(failed(quoted)).encode())
    assert calls_of(result) == []
    assert result.error is not None
    assert result.error.code == "tool_use_failed"
    assert "did not match schema" in (result.error.upstream_message or "")


def test_only_this_error_quotes_calls_and_only_of_functions_that_were_offered() -> None:
    quoted = WHOLE[0][0]
    for data, offered in ((failed(quoted, code="other"), OFFERED), (failed(quoted), ())):
        result = decoded(json.dumps(data).encode(), offered=offered)
        assert result.error is not None
        assert calls_of(result) == []
