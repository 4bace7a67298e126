"""Internal errors: the client gets its protocol's error, the log has the location, and neither has the content."""

from __future__ import annotations

import asyncio
import itertools
import logging
from importlib import import_module
from typing import Any

import pytest

from pellucid.events import Event, RunEndEvent
from pellucid.fold import Fold
from pellucid.protocols.openresponses import Encoder
from pellucid.protocols.openresponses.verify import verify
from pellucid.providers.frame_template import Template
from pellucid.providers.stream_decoder import StreamDecoder
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS

SECRET = "xyzzy"


def failing_at_call(nth: int, whole: Any) -> Any:
    """Wrap a function so that its nth call raises an error that contains the content."""
    calls = 0

    def broken(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise RuntimeError(f"cannot handle {SECRET}")
        return whole(*args, **named)

    return broken


async def thinks_until_closed(call: Call) -> None:
    await call.head()
    for n in itertools.count():  # until the gateway disconnects: a read may hold several
        await call.event(delta(reasoning_content=f"{SECRET} {n}"))
        await asyncio.sleep(0.01)


def assert_logged_without_content(caplog: pytest.LogCaptureFixture, where: str) -> None:
    messages = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.ERROR and record.name == "pellucid"
    ]
    assert len(messages) == 1
    assert "RuntimeError at " in messages[0]
    assert where in messages[0]
    for record in caplog.records:
        assert SECRET not in record.getMessage()
        assert record.exc_info is None, record.getMessage()


@pytest.mark.parametrize(
    ("where", "name", "place"),
    [
        (StreamDecoder, "feed_until_text", "models.model"),
        (Fold, "feed_delta", "runs.live_run"),
        (Encoder, "feed", "asgi.streaming"),
        (Template, "text_of", "models.model"),
        (StreamDecoder, "add_text", "models.model"),
        (Fold, "add_text", "runs.live_run"),
        (Encoder, "_encode_text", "models.model"),
    ],
)
def test_a_fault_in_mid_stream_ends_the_stream_as_failed(
    gateway: Served,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: type,
    name: str,
    place: str,
) -> None:
    # The fourth word takes the text path.
    monkeypatch.setattr(where, name, failing_at_call(3 if where is Template else 2, getattr(where, name)))
    model = upstream.plays(thinks_until_closed)
    reply = gateway.ask(model, stream=True)
    assert reply.status == 200
    # If the encoder fails, its delta is lost, but the final text contains it. If the fold fails, the final text lacks
    # the delta that was sent.
    is_whole = where is not Encoder and name != "add_text"
    assert [rule for rule in verify(reply.body) if is_whole or not rule.startswith("text: ")] == []
    *_, error, last = reply.events
    assert error["error"]["type"] == "server_error"
    assert error["error"]["message"] == "the gateway failed; the operator's log says where"
    assert last["type"] == "response.failed"
    assert SECRET not in last["response"]["error"]["message"]
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)
    gateway.idle()
    assert_logged_without_content(caplog, f"pellucid.{place}:")


@pytest.mark.parametrize(
    ("where", "name", "place"),
    [
        (StreamDecoder, "feed_until_text", "models.model"),
        (Fold, "feed_delta", "runs.live_run"),
        (Encoder, "feed", "asgi.streaming"),
        (import_module("pellucid.server.openresponses.routes"), "request_from", "server.openresponses"),
    ],
)
def test_a_fault_before_the_first_byte_is_a_500(
    gateway: Served,
    upstream: Upstream,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: Any,
    name: str,
    place: str,
) -> None:
    monkeypatch.setattr(where, name, failing_at_call(1, getattr(where, name)))
    model = upstream.plays(thinks_until_closed)
    reply = gateway.ask(model)
    assert reply.status == 500
    assert reply.error["type"] == "server_error"
    assert all(call.connection.closed.wait(LIMIT_SECONDS) for call in upstream.calls(model))
    gateway.idle()
    assert_logged_without_content(caplog, f"pellucid.{place}")


def test_a_stream_ends_as_failed_even_if_open_items_cannot_be_closed(
    gateway: Served, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last resort: the stream still ends as failed."""

    def never(*_: Any, **__: Any) -> Any:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(StreamDecoder, "feed_until_text", never)
    monkeypatch.setattr(StreamDecoder, "end", never)
    reply = gateway.ask(upstream.plays(say()), stream=True)
    assert [x["type"] for x in reply.events][-2:] == ["error", "response.failed"]
    assert reply.body.endswith(b"data: [DONE]\n\n")
    gateway.idle()


def test_a_fault_in_encoding_the_end_gives_a_failed_response(
    gateway: Served, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is complete, but its end was not sent: the client must not take the partial output for the whole."""
    whole = Encoder.feed

    def broken(encoder: Encoder, events: list[Event], now: int) -> bytes:
        if any(isinstance(event, RunEndEvent) and event.status == "completed" for event in events):
            raise RuntimeError(SECRET)
        return whole(encoder, events, now)

    monkeypatch.setattr(Encoder, "feed", broken)
    reply = gateway.ask(upstream.plays(say()), stream=True)
    assert [x["type"] for x in reply.events][-2:] == ["error", "response.failed"]
    assert reply.body.endswith(b"data: [DONE]\n\n")
