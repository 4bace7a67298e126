"""What is wrong with a body, whatever the protocol: said with its place, and not at any length."""

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
def test_what_was_sent_is_told_so_that_it_is_known_again(sent: Any, message: str, param: str | None) -> None:
    with pytest.raises(RequestError) as caught:
        convert(sent, Outer)
    assert (caught.value.info.message, caught.value.info.param) == (message, param)


ASKED = {"model": "m", "input": "Hi"}
SAID = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
RUN: dict[str, Any] = {"threadId": "t", "runId": "r", "messages": [], "tools": [], "context": [], "state": {}}


def called(body: bytes) -> None:
    request = openresponses.parse_request(body)
    request.call(request.messages())


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (openresponses.parse_request, {**ASKED, "input": [{"type": LONG}]}),
        (openresponses.parse_request, {**ASKED, "tools": [{"type": LONG}]}),
        (called, {**ASKED, "tool_choice": {"type": "function", "name": LONG}}),
        (chat_completions.parse_request, {**SAID, "tools": [{"type": LONG}]}),
        (chat_completions.parse_request, {**SAID, "messages": [{"role": LONG, "content": "Hi"}]}),
        (chat_completions.parse_request, {**SAID, "messages": [{"role": "function", "name": LONG, "content": "Hi"}]}),
        (agui.parse_input, {**RUN, "forwardedProps": {"pellucid": {LONG: 1}}}),
        (agui.parse_input, {**RUN, "forwardedProps": {"pellucid": {"dialect": LONG}}}),
        (agui.parse_input, {**RUN, "forwardedProps": {}, "messages": [{"id": "1", "role": LONG, "content": ""}]}),
        (ai_sdk.parse_request, {"messages": [{"id": "1", "role": LONG, "parts": []}]}),
        (ai_sdk.parse_request, {"messages": [{"id": "1", "role": "user", "parts": [{"type": LONG}]}]}),
    ],
)
def test_no_protocol_sends_back_whole_what_it_was_sent(read: Any, body: Any) -> None:
    with pytest.raises(RequestError) as caught:
        read(msgspec.json.encode(body))
    assert len(caught.value.info.message) < 400
    assert len(caught.value.info.param or "") < 120
