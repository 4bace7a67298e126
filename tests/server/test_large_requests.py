"""Requests with very many items: bounded before anything is made of them, and processed in a thread."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.protocols import decoding
from pellucid.protocols.decoding import check_size, read_json
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served, serve
from tests.waiting import LIMIT_SECONDS

COUNT = 2_500
"""Items of a large request, each of which costs several calls of functions."""

MAX_CALLS = 5 * COUNT
"""Calls of functions between two turns of the event loop. A processor makes more than a million in 100 ms."""


class CallCounter:
    """Middleware that counts the calls of functions between two turns of the event loop."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._calls = 0
        self.most = 0
        self.has_ended = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or scope["path"] == "/health":
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        self._calls = self.most = 0
        self.has_ended.clear()
        turn = loop.call_soon(self._end_turn, loop)
        sys.setprofile(self._count)
        try:
            await self._app(scope, receive, send)
        finally:
            sys.setprofile(None)
            self.most = max(self.most, self._calls)
            turn.cancel()
            self.has_ended.set()

    def _count(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1

    def _end_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self.most, self._calls = max(self.most, self._calls), 0
        if sys.getprofile() is not None:
            loop.call_soon(self._end_turn, loop)


def message(index: int) -> dict[str, Any]:
    return {"role": ("user", "assistant")[index % 2], "content": f"line {index}"}


def function(index: int) -> dict[str, Any]:
    return {"name": f"f{index}", "description": "x", "parameters": {"type": "object", "properties": {}}}


def calls(count: int) -> list[dict[str, Any]]:
    return [
        item
        for index in range(count // 2)
        for item in (
            {"type": "function_call", "call_id": f"c{index}", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{index}", "output": "ok"},
        )
    ]


def ui_message(index: int) -> dict[str, Any]:
    return {"id": f"m{index}", "role": ("user", "assistant")[index % 2], "parts": [{"type": "text", "text": "a"}]}


JSON = {"Content-Type": "application/json"}
AGUI = {"threadId": "t", "runId": "r", "state": {}, "context": [], "forwardedProps": {}, "tools": []}

LARGE: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "messages": ("/v1/responses", lambda: {"input": [message(i) for i in range(COUNT)], "store": False}),
    "stored": ("/v1/responses", lambda: {"input": [message(i) for i in range(COUNT)], "store": True}),
    "calls": ("/v1/responses", lambda: {"input": calls(COUNT), "store": False}),
    "tools": (
        "/v1/responses",
        lambda: {"input": "a", "tools": [{"type": "function", **function(i)} for i in range(1_000)], "store": False},
    ),
    "parts": (
        "/v1/responses",
        lambda: {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * COUNT}]},
    ),
    "input_tokens": ("/v1/responses/input_tokens", lambda: {"input": [message(i) for i in range(COUNT)]}),
    "chat completions": ("/v1/chat/completions", lambda: {"messages": [message(i) for i in range(COUNT)]}),
    "Messages": ("/v1/messages", lambda: {"max_tokens": 9, "messages": [message(i) for i in range(COUNT)]}),
    "AG-UI": (
        "/ag-ui",
        lambda: {**AGUI, "messages": [{"id": f"m{i}", **message(i)} for i in range(COUNT)]},
    ),
    "AI SDK": ("/api/chat", lambda: {"id": "c", "messages": [ui_message(i) for i in range(COUNT - 1)]}),
}


@contextmanager
def counted(upstream: Upstream) -> Iterator[tuple[Served, CallCounter]]:
    counters: list[CallCounter] = []

    def wrap(app: Any) -> CallCounter:
        counters.append(CallCounter(app))
        return counters[0]

    with serve({"providers": {"vllm": {"base_url": upstream.url}}}, wrap=wrap) as gateway:
        yield gateway, counters[0]


def with_model(path: str, body: dict[str, Any], model: str) -> dict[str, Any]:
    return {**body, "forwardedProps": {"pellucid": {"model": model}}} if path == "/ag-ui" else {**body, "model": model}


@pytest.mark.parametrize("name", LARGE)
def test_no_large_request_occupies_the_event_loop(name: str, upstream: Upstream) -> None:
    path, make = LARGE[name]
    model = upstream.plays(say())
    with counted(upstream) as (gateway, counter):
        gateway.ask(upstream.plays(say()))  # what is imported or compiled once does not count
        reply = gateway.request("POST", path, json.dumps(with_model(path, make(), model)).encode(), JSON)
        assert reply.status == 200, reply.body[:300]
        assert counter.has_ended.wait(LIMIT_SECONDS)
        assert 0 < counter.most < MAX_CALLS


def test_too_many_items_are_refused_before_they_are_parsed(upstream: Upstream) -> None:
    model = upstream.plays(say())
    config = {"server": {"max_items": 10, "max_tools": 3}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway:
        for body, path, code in (
            ({"input": [message(i) for i in range(11)]}, "input", "too_many_items"),
            ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 10}]}, "input", None),
            (
                {"input": "a", "tools": [{"type": "function", **function(i)} for i in range(4)]},
                "tools",
                "too_many_tools",
            ),
            # Nonsense is counted, too.
            ({"input": [None] * 11}, "input", "too_many_items"),
        ):
            reply = gateway.post({**body, "model": model})
            assert (reply.status, reply.error["param"]) == (413, path)
            assert reply.error["code"] == code or code is None
            assert "limit of this server" in reply.error["message"]
        assert gateway.post({"input": [message(i) for i in range(10)], "model": model}).status == 200


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('",\\[]x', max_size=4), inner, max_size=4),
    max_leaves=30,
)


def commas(value: Any) -> int:
    """The number of commas between the values of a JSON document."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return max(0, len(inner) - 1) + sum(map(commas, inner))


def texts(value: Any) -> int:
    """The number of texts and names of a JSON document."""
    if isinstance(value, dict):
        return len(value) + sum(map(texts, value.values()))
    return sum(map(texts, value)) if isinstance(value, list) else isinstance(value, str)


@given(st.dictionaries(st.text('",\\[]x', max_size=4), values, max_size=4), st.integers(0, 12))
@example({"": {",": ""}}, 0)
@example({",": [",", ["\\", '"']]}, 2)
def test_values_are_counted_and_texts_are_not(body: dict[str, Any], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "MAX_COMMAS", limit)
        for data in (json.dumps(body).encode(), json.dumps(body, ensure_ascii=False)):
            if len(data) <= limit or (commas(body) <= limit and texts(body) <= 2 * limit + 2):
                assert read_json(data) == body
            elif commas(body) > limit:
                with pytest.raises(RequestError) as raised:
                    read_json(data)
                assert raised.value.info.code == "too_many_values"


@given(st.lists(st.lists(st.integers(), max_size=5).map(lambda part: {"content": part, "x": 1}), max_size=8))
def test_items_are_counted_with_their_parts(items: list[dict[str, Any]]) -> None:
    total = len(items) + sum(len(item["content"]) for item in items)
    assert check_size({"input": items, "model": "m"}, total, 0) == total
    if total:
        with pytest.raises(RequestError):
            check_size({"input": items}, total - 1, 0)
