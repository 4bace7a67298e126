"""Store outages: a response that cannot be stored fails, and the gateway recovers without a restart."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pellucid.runs import stored_run
from pellucid.storage.errors import StoreUnavailable
from pellucid.storage.sqlite import SqliteDatabase
from tests.scripted import Call, Script, Upstream, delta, say
from tests.server.state_kit import Caller, brief, message, serving, upstream_saw, url_of
from tests.service_postgres import PostgresServer, postgres

THINKS = say("Let me see.", "It is 42.")


class FailingStore(NamedTuple):
    """A store that fails between `stop` and `start`."""

    url: str
    stop: Callable[[], object]
    start: Callable[[], object]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def failing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    """PostgreSQL with a server that crashes, or SQLite that does not respond."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("server")
        return FailingStore(server.database(), server.stop, server.start)
    is_unavailable = threading.Event()

    def unless_away(operation: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def guarded(*args: Any) -> Any:
            if is_unavailable.is_set():
                raise StoreUnavailable
            return await operation(*args)

        return guarded

    monkeypatch.setattr(SqliteDatabase, "read", unless_away(SqliteDatabase.read))
    monkeypatch.setattr(SqliteDatabase, "write", unless_away(SqliteDatabase.write))
    monkeypatch.setattr(stored_run, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(stored_run, "STORE_WAIT_SECONDS", 0.2)
    return FailingStore(url_of(tmp_path / "store.sqlite"), is_unavailable.set, is_unavailable.clear)


def stops_the_store(failing: FailingStore) -> Script:
    """Script a turn during which the store fails."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Let me see."))
        await call.event(delta(content="It is 42."))
        failing.stop()
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def test_a_response_that_cannot_be_stored_fails(upstream: Upstream, failing: FailingStore) -> None:
    with serving(upstream, failing.url) as running:
        me = Caller(running)
        conversation = me.conversation(message("Hello."))
        for how in ("stream", "whole", "conversation"):
            name = upstream.plays(stops_the_store(failing))
            more = {"conversation": conversation} if how == "conversation" else {}
            # A response that is not stored cannot be continued, so it must not look complete; its output is still sent.
            try:
                reply = me.say(name, stream=how == "stream", **more)
            finally:
                failing.start()
            assert reply.status == 200
            response = reply.events[-1]["response"] if how == "stream" else reply.json
            assert response["status"] == "failed"
            assert "could not be stored" in response["error"]["message"]
            assert response["error"]["code"] == "not_kept"
            assert [item["status"] for item in response["output"]] == ["completed", "completed"]
            if how == "stream":
                names = [event["type"] for event in reply.events]
                assert names[-2:] == ["error", "response.failed"]
                assert names.count("response.completed") == 0
                assert [event["sequence_number"] for event in reply.events] == list(range(len(names)))
            me.wait_for_store(response["id"])
        # It recovers without a restart:
        name = upstream.plays(THINKS)
        first = me.create_response(name)
        assert me.create_response(name, previous_response_id=first["id"])["status"] == "completed"
        assert [role for role, _ in brief(upstream_saw(upstream, name))] == ["user", "assistant", "user"]


def test_requests_that_need_an_unavailable_store_are_refused(upstream: Upstream, failing: FailingStore) -> None:
    """They are refused before the model is called; other requests are served."""
    with serving(upstream, failing.url, access={"keys": False}) as running:
        me, name = Caller(running), upstream.plays(THINKS)
        response_id = me.create_response(name)["id"]
        call_count = len(upstream.calls(name))
        failing.stop()
        try:
            for method, path, body in (
                ("GET", f"/v1/responses/{response_id}", None),
                ("DELETE", f"/v1/responses/{response_id}", None),
                ("GET", f"/v1/responses/{response_id}/input_items", None),
                ("POST", f"/v1/responses/{response_id}/cancel", None),
                ("POST", "/v1/conversations", {}),
                ("GET", "/v1/conversations/conv_1/items", None),
            ):
                reply = me.do(method, path, body)
                assert (reply.status, reply.error["code"]) == (503, "storage_unavailable"), (method, path)
            for more in ({"previous_response_id": response_id}, {"conversation": "conv_1"}, {"background": True}):
                reply = me.say(name, **more)
                assert (reply.status, reply.error["code"]) == (503, "storage_unavailable"), more
            assert len(upstream.calls(name)) == call_count
            assert me.create_response(name, store=False)["status"] == "completed"
            assert me.do("GET", "/ready").status == 503
        finally:
            failing.start()
        me.wait_for_store(response_id)
        assert me.get_response(response_id)["status"] == "completed"


async def refuses_with_429(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "too many"}}')


def test_a_refused_request_adds_nothing_to_the_conversation(upstream: Upstream) -> None:
    """A client that repeats the request does not add its input twice."""
    with serving(upstream) as running:
        me = Caller(running)
        conversation = me.conversation(message("Hello."))
        refused, name = upstream.plays(refuses_with_429), upstream.plays(THINKS)
        for stream in (True, False):
            reply = me.say(refused, "Why?", conversation=conversation, stream=stream)
            assert reply.status == 429, reply.body
        response = me.create_response(name, "Why?", conversation=conversation)
        assert [item["type"] for item in me.items(conversation)["data"]] == [
            "message",
            "message",
            *(item["type"] for item in response["output"]),
        ]
