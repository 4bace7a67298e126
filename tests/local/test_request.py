"""The request body that the engine gets, and its errors."""

from __future__ import annotations

import copy
import re
from string import Template
from typing import Any

import pytest

from pellucid.errors import RequestError
from pellucid.local.model_index import read_data
from pellucid.local.request import adapt_body, enforces_effort, explain_error
from pellucid.settings import EFFORTS

HELLO = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("one", "two")]
JSON = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


def ask(**more: object) -> dict[str, Any]:
    body: dict[str, Any] = {"model": "m", "messages": HELLO} | more
    before = copy.deepcopy(body)
    out = adapt_body(body)
    assert body == before  # pure
    return out


def test_thinking_is_on_with_a_grammar() -> None:
    out = ask()
    assert out["chat_template_kwargs"] == {"enable_thinking": True}
    grammar = Template(read_data("think.gbnf"))
    assert out["grammar"] == grammar.substitute(MAX_LINES=7, MAX_WIDTH=240, MAX_LAST_WIDTH=480)


@pytest.mark.parametrize("off", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}])
def test_thinking_can_be_switched_off(off: dict[str, Any]) -> None:
    out = ask(**off)
    assert out["chat_template_kwargs"] == {"enable_thinking": False}
    assert "grammar" not in out
    assert "reasoning_effort" not in out


def test_the_beginning_of_a_reply_is_continued_without_thinking() -> None:
    out = ask(messages=[*HELLO, {"role": "assistant", "content": "Good"}])
    assert out["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("more", [{"tools": TOOLS}, {"response_format": JSON}])
def test_no_grammar_is_sent_together_with_tools_or_a_format(more: dict[str, Any]) -> None:
    out = ask(**more)
    assert "grammar" not in out
    assert out["chat_template_kwargs"] == {"enable_thinking": True}


def test_a_grammar_in_the_request_is_sent_unchanged() -> None:
    assert ask(grammar="root ::= [a-z]+")["grammar"] == "root ::= [a-z]+"


def test_a_model_that_needs_no_grammar_gets_none() -> None:
    assert "grammar" not in adapt_body({"messages": HELLO}, grammar=None)


def lengths(grammar: str) -> tuple[int, int, int]:
    """Return how many lines the reasoning may have, and how many characters each of them, and the last one, at most."""
    lines = re.search(r"root +::= line\{0,(\d+)\} last", grammar)
    width, last_width = re.findall(r"inline\{\d+,(\d+)\}", grammar)
    assert lines
    return int(lines[1]) + 1, int(width), int(last_width)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, (8, 240, 480)),
        ({"reasoning_effort": "minimal"}, (1, 240, 480)),
        ({"reasoning_effort": "high"}, (12, 240, 480)),
        ({"max_tokens": 4000}, (8, 240, 480)),
        ({"max_tokens": 220}, (6, 110, 110)),
        ({"max_completion_tokens": 30}, (1, 90, 90)),
        ({"max_tokens": 1}, (1, 8, 8)),
    ],
)
def test_effort_and_token_limit_set_the_length_of_reasoning(
    more: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    assert lengths(ask(**more)["grammar"]) == expected


def test_every_effort_permits_more_than_the_one_before_it() -> None:
    efforts = [effort for effort in EFFORTS if effort != "none"]
    lines = [lengths(ask(reasoning_effort=effort)["grammar"])[0] for effort in efforts]
    assert lines == sorted(set(lines))


@pytest.mark.parametrize("more", [{}, {"tools": TOOLS}, {"response_format": JSON}, {"grammar": "root ::= [a-z]+"}])
def test_an_effort_is_enforced_where_there_is_no_other_grammar(more: dict[str, Any]) -> None:
    assert ask(reasoning_effort="low", **more)["chat_template_kwargs"] == {"enable_thinking": True}
    assert enforces_effort(more | {"reasoning_effort": "low"}, "think.gbnf") is not bool(more)
    assert not enforces_effort(more, None)


@pytest.mark.parametrize("more", [{}, {"stream": False}, {"stream": True, "stream_options": {"x": 1}}])
def test_every_request_is_streamed(more: dict[str, Any]) -> None:
    out = ask(**more)
    assert out["stream"] is True
    assert out["stream_options"] == more.get("stream_options", {}) | {"include_usage": True}


def test_the_token_limit_has_one_name() -> None:
    assert ask(max_completion_tokens=9)["max_tokens"] == 9


def test_a_request_without_a_token_limit_gets_one() -> None:
    assert 0 < ask()["max_tokens"] < 8192
    assert adapt_body({"messages": HELLO}, max_tokens=77)["max_tokens"] == 77
    assert ask(max_tokens=None)["max_tokens"] == ask()["max_tokens"]
    assert ask()["grammar"] == ask(max_tokens=100_000)["grammar"]


def test_tool_choice() -> None:
    assert ask(tools=TOOLS, tool_choice="auto")["tool_choice"] == "auto"
    without = ask(tools=TOOLS, tool_choice="none")
    assert "tools" not in without
    assert "tool_choice" not in without
    assert "grammar" in without
    named = ask(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "two"}})
    assert (named["tools"], named["tool_choice"]) == (TOOLS[1:], "required")
    with pytest.raises(RequestError, match="'three', which is not among tools"):
        ask(tools=TOOLS, tool_choice={"type": "function", "function": {"name": "three"}})


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x"}}, "audio"),
        (
            {"messages": [*HELLO, {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}]},
            "messages[1].content[1].type",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "file"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0].type"),
    ],
)
def test_an_unsupported_field_is_rejected_by_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        ask(**more)
    assert caught.value.info.kind == "unsupported"
    assert caught.value.info.param == param


@pytest.mark.parametrize("odd", [{}, {"messages": None}, {"messages": ["x", {"content": [None, 3]}]}, {"tools": None}])
def test_the_engine_rejects_a_malformed_body(odd: dict[str, Any]) -> None:
    adapt_body(odd)


def test_errors_of_the_engine_are_explained() -> None:
    error = {"type": "exceed_context_size_error", "message": "…", "n_prompt_tokens": 9356, "n_ctx": 4096}
    reply: dict[str, Any] = {"error": error}
    info = explain_error(400, reply)
    assert (info.kind, info.code, info.param) == ("too_large", "context_length_exceeded", "messages")
    assert "9356 tokens, and its context has 4096" in info.message
    assert explain_error(503, {"error": {"message": "Loading model"}}).kind == "unavailable"
    assert (
        explain_error(400, {"error": {"message": "bad"}}).full_message
        == "the embedded engine refused the request (status 400): bad"
    )
    assert (
        explain_error(500, {"error": {"message": "bad"}}).full_message == "the embedded engine failed (status 500): bad"
    )
    assert "4096" not in explain_error(400, {"error": error | {"n_prompt_tokens": "many"}}).full_message
    assert explain_error(500, "<html>").kind == "model_error"
