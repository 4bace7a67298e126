"""A store that fails: what cannot be kept does not look as if it were, and all is well again without a restart."""

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


class Failing(NamedTuple):
    """A store that fails between `stop` and `start`."""

    url: str
    stop: Callable[[], object]
    start: Callable[[], object]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def failing(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Failing:
    """PostgreSQL, whose server crashes; SQLite, which does not answer."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("server")
        return Failing(server.database(), server.stop, server.start)
    is_away = threading.Event()

    def unless_away(whole: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def answers(*args: Any) -> Any:
            if is_away.is_set():
                raise StoreUnavailable
            return await whole(*args)

        return answers

    monkeypatch.setattr(SqliteDatabase, "read", unless_away(SqliteDatabase.read))
    monkeypatch.setattr(SqliteDatabase, "write", unless_away(SqliteDatabase.write))
    monkeypatch.setattr(stored_run, "RETRY_SECONDS", 0.02)
    monkeypatch.setattr(stored_run, "STORE_WAIT_SECONDS", 0.2)
    return Failing(url_of(tmp_path / "store.sqlite"), is_away.set, is_away.clear)


def stops(failing: Failing) -> Script:
    """A script in whose middle the database goes."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Let me see."))
        await call.event(delta(content="It is 42."))
        failing.stop()
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def test_a_store_that_fails_at_the_end(upstream: Upstream, failing: Failing) -> None:
    with serving(upstream, failing.url) as running:
        me = Caller(running)
        conversation = me.conversation(message("Hello."))
        for how in ("stream", "whole", "conversation"):
            name = upstream.plays(stops(failing))
            more = {"conversation": conversation} if how == "conversation" else {}
            # Nobody goes on from what is not kept, so it may not look whole; what came is told all the same.
            try:
                reply = me.say(name, stream=how == "stream", **more)
            finally:
                failing.start()
            assert reply.status == 200
            said = reply.events[-1]["response"] if how == "stream" else reply.json
            assert said["status"] == "failed"
            assert "could not be kept" in said["error"]["message"]
            assert said["error"]["code"] == "not_kept"
            assert [item["status"] for item in said["output"]] == ["completed", "completed"]
            if how == "stream":
                names = [event["type"] for event in reply.events]
                assert names[-2:] == ["error", "response.failed"]
                assert names.count("response.completed") == 0
                assert [event["sequence_number"] for event in reply.events] == list(range(len(names)))
            me.wait_for_store(said["id"])
        # And without a restart:
        name = upstream.plays(THINKS)
        first = me.create_response(name)
        assert me.create_response(name, previous_response_id=first["id"])["status"] == "completed"
        assert [who for who, _ in brief(upstream_saw(upstream, name))] == ["user", "assistant", "user"]


def test_a_store_that_is_away_from_the_beginning(upstream: Upstream, failing: Failing) -> None:
    """What needs it is refused before a model is asked; what does not is answered."""
    with serving(upstream, failing.url, access={"keys": False}) as running:
        me, name = Caller(running), upstream.plays(THINKS)
        kept = me.create_response(name)["id"]
        asked = len(upstream.calls(name))
        failing.stop()
        try:
            for method, path, body in (
                ("GET", f"/v1/responses/{kept}", None),
                ("DELETE", f"/v1/responses/{kept}", None),
                ("GET", f"/v1/responses/{kept}/input_items", None),
                ("POST", f"/v1/responses/{kept}/cancel", None),
                ("POST", "/v1/conversations", {}),
                ("GET", "/v1/conversations/conv_1/items", None),
            ):
                reply = me.do(method, path, body)
                assert (reply.status, reply.error["code"]) == (503, "storage_unavailable"), (method, path)
            for more in ({"previous_response_id": kept}, {"conversation": "conv_1"}, {"background": True}):
                reply = me.say(name, **more)
                assert (reply.status, reply.error["code"]) == (503, "storage_unavailable"), more
            assert len(upstream.calls(name)) == asked
            assert me.create_response(name, store=False)["status"] == "completed"
            assert me.do("GET", "/ready").status == 503
        finally:
            failing.start()
        me.wait_for_store(kept)
        assert me.get_response(kept)["status"] == "completed"


async def turned_away(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "too many"}}')


def test_what_a_model_refuses_leaves_nothing(upstream: Upstream) -> None:
    """Whoever asks again is not heard twice."""
    with serving(upstream) as running:
        me = Caller(running)
        conversation = me.conversation(message("Hello."))
        refused, name = upstream.plays(turned_away), upstream.plays(THINKS)
        for stream in (True, False):
            reply = me.say(refused, "Why?", conversation=conversation, stream=stream)
            assert reply.status == 429, reply.body
        said = me.create_response(name, "Why?", conversation=conversation)
        assert [item["type"] for item in me.items(conversation)["data"]] == [
            "message",
            "message",
            *(item["type"] for item in said["output"]),
        ]
