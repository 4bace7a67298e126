"""A model that says nothing for long: the head of the stream is sent, then pings; and nothing is lost."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from pellucid.asgi import streaming
from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.gateway import Served, Stream, events_of
from tests.waiting import LIMIT_SECONDS

HEADERS = {"Content-Type": "application/json", "anthropic-version": "2023-06-01"}
QUESTION = [{"role": "user", "content": "Why?"}]
RUN = {"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
PARTS = [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Why?"}]}]

PROTOCOLS: dict[str, tuple[str, dict[str, Any], bytes]] = {
    "openresponses": ("/v1/responses", {"input": "Why?", "stream": True}, b": ping\n\n"),
    "chat_completions": ("/v1/chat/completions", {"messages": QUESTION, "stream": True}, b": ping\n\n"),
    "messages": (
        "/v1/messages",
        {"messages": QUESTION, "max_tokens": 100, "stream": True},
        b'event: ping\ndata: {"type":"ping"}\n\n',
    ),
    "ai_sdk": ("/api/chat", {"messages": PARTS}, b": ping\n\n"),
    "agui": ("/ag-ui", {**RUN, "messages": [{"id": "1", "role": "user", "content": "Why?"}]}, b": ping\n\n"),
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HEAD_SECONDS", 0.05)
    monkeypatch.setattr(streaming, "PING_SECONDS", 0.06)


@contextmanager
def stream_of(gateway: Served, protocol: str, model: str) -> Iterator[Stream]:
    """Ask this model over this protocol."""
    path, body, _ = PROTOCOLS[protocol]
    named = {"forwardedProps": {"pellucid": {"model": model}}} if protocol == "agui" else {"model": model}
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT_SECONDS)
    try:
        connection.request("POST", path, json.dumps({**body, **named}).encode(), HEADERS)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield Stream(connection.sock, response)
    finally:
        connection.close()


class Silent:
    """A model that waits, before its head or within its answer, until the client has received pings."""

    def __init__(self, *, before_head: bool, refusal: bool = False) -> None:
        self._before_head = before_head
        self._refusal = refusal
        self._gate = asyncio.Event()
        self._called: Future[asyncio.AbstractEventLoop] = Future()

    def release(self) -> None:
        """Let the model go on. The first ping may have come before the gateway called it."""
        self._called.result(LIMIT_SECONDS).call_soon_threadsafe(self._gate.set)

    @property
    def script(self) -> Script:
        async def script(call: Call) -> None:
            self._called.set_result(asyncio.get_running_loop())
            if self._before_head:
                await self._gate.wait()
            if self._refusal:
                await call.answer(400, b'{"error": {"message": "no such parameter"}}', "application/json")
                return
            await call.head()
            await call.event(delta(reasoning_content="Because"))
            if not self._before_head:
                await self._gate.wait()
            await call.event(delta(reasoning_content=" so."))
            await call.event(delta(content="So."))
            await call.event(delta("stop"))
            await call.event(b"[DONE]")
            await call.end()

        return script


@pytest.mark.parametrize("before_head", [True, False], ids=["before the head", "in the answer"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_silent_stream_gets_pings_and_then_all_of_the_answer(
    gateway: Served, upstream: Upstream, protocol: str, before_head: bool
) -> None:
    ping = PROTOCOLS[protocol][2]
    model = Silent(before_head=before_head)
    with stream_of(gateway, protocol, upstream.plays(model.script)) as stream:
        stream.until(ping + ping if before_head else ping)
        model.release()
        seen = stream.rest()
    *before, last = seen.split(ping)
    assert all(not piece or piece.endswith(b"\n\n") for piece in before), "a ping stands between two events"
    answer = b"".join((*before, last))
    assert 0 < answer.index(b"Because") < answer.index(b" so.") < answer.index(b"So.")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_refusal_after_the_head_is_the_end_of_the_stream(gateway: Served, upstream: Upstream, protocol: str) -> None:
    ping = PROTOCOLS[protocol][2]
    model = Silent(before_head=True, refusal=True)
    with stream_of(gateway, protocol, upstream.plays(model.script)) as stream:
        stream.until(ping)
        model.release()
        seen = stream.rest()
    assert b"no such parameter" in seen
    if protocol == "openresponses":
        assert [event["type"] for event in events_of(seen.replace(ping, b""))][-2:] == ["error", "response.failed"]


def test_a_client_that_leaves_in_the_silence_ends_the_request(gateway: Served, upstream: Upstream) -> None:
    model = Silent(before_head=True)
    with stream_of(gateway, "openresponses", upstream.plays(model.script)) as stream:
        stream.until(b": ping\n\n")
    gateway.idle()
