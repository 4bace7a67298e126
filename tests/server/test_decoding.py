"""Errors of request bodies in every protocol: each names its location, and has a limited length."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from pellucid.errors import RequestError
from pellucid.protocols import agui, ai_sdk, chat_completions, openresponses
from pellucid.protocols.decoding import convert

LONG = "x" * 1_000_000
CUT = "x" * 80 + "…"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    word: Literal["one", "two"] = "one"


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    inner: Inner | None = None
    numbers: dict[str, int] = {}


@pytest.mark.parametrize(
    ("sent", "message", "param"),
    [
        ({LONG: 1}, f"{CUT}: there is no such field; there are: inner, numbers", CUT),
        ({"x'`\n": 1}, "x'`\n: there is no such field; there are: inner, numbers", "x'`\n"),
        ({"inner": {"x'`\n" * 50: 1}}, "inner: Object contains unknown field `" + "x'`\n" * 20 + "…`", "inner"),
        ({"inner": {LONG: 1}}, f"inner: Object contains unknown field `{CUT}`", "inner"),
        (
            {"inner": {"word": LONG}},
            f"inner.word: Invalid enum value '{CUT}'; it must be one of 'one', 'two'",
            "inner.word",
        ),
        ({"numbers": {LONG: "x"}}, "numbers[...]: Expected `int`, got `str`", "numbers[...]"),
        ({"inenr": 1}, "inenr: there is no such field; did you mean 'inner'?", "inenr"),
    ],
)
def test_an_error_quotes_a_short_part_of_the_input(sent: Any, message: str, param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        convert(sent, Outer)
    assert (caught.value.info.message, caught.value.info.param) == (message, param)


RESPONSES_BODY = {"model": "m", "input": "Hi"}
CHAT_BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
RUN_INPUT: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [], "state": {}}


def parse_and_build_call(body: bytes) -> None:
    request = openresponses.parse_request(body)
    request.call(request.messages())


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (openresponses.parse_request, {**RESPONSES_BODY, "input": [{"role": LONG, "content": "Hi"}]}),
        (
            openresponses.parse_request,
            {**RESPONSES_BODY, "tools": [{"type": "namespace", "name": "n", "tools": [{"type": LONG}]}]},
        ),
        (parse_and_build_call, {**RESPONSES_BODY, "tool_choice": {"type": "function", "name": LONG}}),
        (chat_completions.parse_request, {**CHAT_BODY, "tools": [{"type": LONG}]}),
        (chat_completions.parse_request, {**CHAT_BODY, "messages": [{"role": LONG, "content": "Hi"}]}),
        (
            chat_completions.parse_request,
            {**CHAT_BODY, "messages": [{"role": "function", "name": LONG, "content": "Hi"}]},
        ),
        (agui.parse_input, {**RUN_INPUT, "forwardedProps": {"pellucid": {LONG: 1}}}),
        (agui.parse_input, {**RUN_INPUT, "forwardedProps": {"pellucid": {"dialect": LONG}}}),
        (agui.parse_input, {**RUN_INPUT, "forwardedProps": {}, "messages": [{"id": "1", "role": LONG, "content": ""}]}),
        (ai_sdk.parse_request, {"messages": [{"id": "1", "role": LONG, "parts": []}]}),
        (ai_sdk.parse_request, {"messages": [{"id": "1", "role": "user", "parts": [{"type": LONG}]}]}),
    ],
)
def test_no_protocol_echoes_long_input_in_an_error(read: Any, body: Any) -> None:
    with pytest.raises(RequestError) as caught:
        read(msgspec.json.encode(body))
    assert len(caught.value.info.message) < 400
    assert len(caught.value.info.param or "") < 120
