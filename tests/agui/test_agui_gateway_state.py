"""Stored runs are replayed by any replica, to keys of their tenant, and deleted; runs not stored leave no trace."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pellucid.server.access.policy import Policy
from pellucid.telemetry import log
from pellucid.view import VIEWS
from tests.agui.agui_gateway_kit import (
    ON,
    USER,
    WEATHER,
    begin,
    error_of,
    post,
    run,
    run_input,
    streamed,
    texts,
    without_ids,
)
from tests.agui.agui_kit import DIALECTS
from tests.scripted import Call, Reply, Upstream, delta, say
from tests.scripted.gateway import Served, serve
from tests.server.state_kit import Caller, breaks, calls, config_of, hangs, make_keys, serving
from tests.service_postgres import PostgresServer, postgres_server
from tests.service_redis import RedisService
from tests.service_redis import redis as redis_server
from tests.waiting import LIMIT_SECONDS

__all__ = ["postgres_server", "redis_server"]

MARK = "marked-Qz7"


def stored_run(
    gateway: Any, run: str, method: str = "GET", thread: str = "t", path: str = "/ag-ui", **headers: str
) -> Reply:
    reply: Reply = gateway.request(method, f"{path}?threadId={thread}&runId={run}", None, headers)
    return reply


# --- runs that are not stored ----------------------------------------------------------------------------------------


def every_byte(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def all_of_redis(url: str) -> bytes:
    with Redis.from_url(url) as redis:
        return b"\n".join(b"%b %b" % (key, redis.dump(key) or b"") for key in redis.scan_iter(count=1000))


async def everything(call: Call) -> None:
    """A turn that calls a function of this server, then one that calls the client's, then an answer; all marked."""
    results = sum(message["role"] == "tool" for message in call.body["messages"])
    names = [["look_up"], ["weather"], []][min(results, 2)]
    arguments = json.dumps({"word": f"{MARK}-arguments"})
    await calls(*names, reasoning=f"{MARK}-thought", arguments=arguments, text=f"{MARK}-answer")(call)


def run_everything(gateway: Served, upstream: Upstream, **query: Any) -> None:
    """Run the model in every dialect: to its end, with an upstream that breaks off, and abandoned by the client."""
    model = f"vllm:{upstream.plays(everything)}"
    user = {**USER, "content": f"{MARK}-prompt"}
    more: dict[str, Any] = {"tools": [WEATHER], "state": {"x": MARK}, "context": [{"description": MARK, "value": MARK}]}
    for dialect in DIALECTS:
        props = {"pellucid": {"dialect": dialect, "snapshot": True}, "theirs": MARK}
        body = run_input(user, run=f"{MARK}-{dialect}", thread=f"{MARK}-thread", **more, forwardedProps=props)
        events = streamed(post(gateway, model, body, **query), dialect)
        messages = events[-2]["messages"]
        [call] = [tool_call["id"] for message in messages for tool_call in message.get("toolCalls") or []][-1:]
        on = [*messages, {"id": "result", "role": "tool", "toolCallId": call, "content": f"{MARK}-result"}, ON]
        body = {**body, "messages": on, "runId": f"{MARK}-{dialect}-2"}
        assert post(gateway, model, body, **query).status == 200
    broken = run_input(user, run="broken", thread=f"{MARK}-thread")
    assert b"RUN_ERROR" in post(gateway, f"vllm:{upstream.plays(breaks)}", broken, **query).body
    name = upstream.plays(hangs)
    with begin(gateway, f"vllm:{name}", run_input(user, run="left", thread=f"{MARK}-thread"), **query) as left:
        left.until("Hm.")
    if query.get("store") == "true":
        assert stored_run(gateway, "left", "POST", f"{MARK}-thread", "/ag-ui/cancel").json["status"] == "cancelled"
    gateway.idle()


@pytest.mark.parametrize("relay", ["memory", pytest.param("redis", marks=pytest.mark.needs("redis"))])
@pytest.mark.parametrize("query", [{}, {"store": "false"}, {"store": "true"}], ids=["unasked", "false", "true"])
def test_a_run_that_is_not_stored_leaves_no_trace(
    upstream: Upstream,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    relay: str,
    query: dict[str, str],
) -> None:
    """Its content is neither in the database's file, nor in Redis, nor in the log. A stored run is the control."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger=log.name)
    more: dict[str, Any] = {"tools": {"functions": ["tests.server.state_kit:look_up"]}}
    redis_url: str | None = None
    if relay == "redis":
        redis_url = request.getfixturevalue("redis_server").url
        more["relay"] = {"url": redis_url}
        with Redis.from_url(redis_url) as connection:
            connection.flushall()
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    with serving(upstream, url, **more) as running:
        run_everything(running, upstream, **query)
        relayed = all_of_redis(redis_url) if redis_url else b""
        stored_bytes = every_byte(tmp_path)
        assert (tmp_path / "store.sqlite-wal").exists()
    stored_bytes += every_byte(tmp_path)
    stored = query.get("store") == "true"
    for what in ("thread", "prompt", "result"):
        assert (f"{MARK}-{what}".encode() in stored_bytes) is stored, what
    assert stored or MARK.encode() not in stored_bytes + relayed
    assert MARK not in caplog.text


# --- stored runs -----------------------------------------------------------------------------------------------------


class Halves:
    """A script that thinks, and answers when it is released."""

    def __init__(self) -> None:
        self.may = threading.Event()

    async def __call__(self, call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Let me see."))
        await asyncio.to_thread(self.may.wait, LIMIT_SECONDS)
        await call.event(delta(content="It is 42."))
        await call.event(delta("stop"))
        await call.event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}})
        await call.event(b"[DONE]")
        await call.end()


@pytest.fixture(scope="module", params=["one", pytest.param("two", marks=pytest.mark.needs("postgresql", "redis"))])
def replicas(
    upstream: Upstream, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Served, Served]]:
    """One gateway, twice; or two gateways on one PostgreSQL, one Redis and one file of keys."""
    if request.param == "one":
        with serve(config_of(upstream)) as only:
            yield only, only
        return
    postgres_server: PostgresServer = request.getfixturevalue("postgres_server")
    redis_server: RedisService = request.getfixturevalue("redis_server")
    shared = {
        "storage": {"url": postgres_server.database()},
        "relay": {"url": f"{redis_server.url}?prefix=agui:"},
        "sealing": {"keys_file": str(tmp_path_factory.mktemp("keys") / "keys.json")},
    }
    with serve(config_of(upstream, **shared)) as one, serve(config_of(upstream, **shared)) as two:
        yield one, two


@pytest.mark.parametrize("dialect", ["1.0", "0.x", "thinking", "proposal"])
def test_a_run_is_replayed_by_any_replica_live_and_finished(
    replicas: tuple[Served, Served], upstream: Upstream, dialect: Any
) -> None:
    one, two = replicas
    script, id = Halves(), f"halves-{dialect}"
    body = run_input(run=id)
    word = "THINKING_TEXT_MESSAGE_CONTENT" if dialect == "thinking" else "REASONING_MESSAGE_CONTENT"
    model = f"vllm:{upstream.plays(script)}"
    live: list[bytes] = []

    def follow() -> None:
        live.append(stored_run(two, id).body)

    with begin(one, model, body, store="true", dialect=dialect) as stream:
        stream.until(word)
        follower = threading.Thread(target=follow)
        follower.start()
        script.may.set()
        first = stream.rest()
        follower.join(LIMIT_SECONDS)
    assert live == [first]
    for replica in replicas:
        again = stored_run(replica, id)
        assert again.body == first
        streamed(again, dialect)
    assert b"It is 42." in first


def test_a_client_can_reconnect(replicas: tuple[Served, Served], upstream: Upstream) -> None:
    one, two = replicas
    script = Halves()
    name = upstream.plays(script)
    with begin(one, f"vllm:{name}", run_input(run="left"), store="true") as stream:
        stream.until("REASONING_MESSAGE_CONTENT")
        seen = stream.seen
    script.may.set()
    whole = stored_run(two, "left").body
    assert whole.startswith(seen)
    assert texts(streamed(stored_run(one, "left")), "TEXT_MESSAGE") == "It is 42."


def test_a_run_is_cancelled_from_another_replica(replicas: tuple[Served, Served], upstream: Upstream) -> None:
    one, two = replicas
    name = upstream.plays(hangs)
    with begin(one, f"vllm:{name}", run_input(run="stop", protocolVersion="1.0"), store="true") as stream:
        stream.until("REASONING_MESSAGE_CONTENT")
        assert stored_run(two, "stop", "POST", path="/ag-ui/cancel").json["status"] == "cancelled"
        rest = stream.rest()
    [call] = upstream.calls(name)
    assert call.connection.closed.wait(LIMIT_SECONDS)
    events = streamed(stored_run(two, "stop"), "1.0")
    assert events[-1]["outcome"] == {"type": "cancelled"}
    assert stored_run(two, "stop").body == rest
    # Dialects without this outcome have it in `metadata`.
    old = upstream.plays(hangs)
    with begin(one, f"vllm:{old}", run_input(run="old"), store="true") as stream:
        stream.until("REASONING_MESSAGE_CONTENT")
        stored_run(two, "old", "POST", path="/ag-ui/cancel")
    assert streamed(stored_run(one, "old"))[-1]["metadata"] == {"pellucid": {"status": "cancelled"}}


def test_a_deleted_run_is_gone_and_its_id_is_not_reused(replicas: tuple[Served, Served], upstream: Upstream) -> None:
    one, two = replicas
    model = f"vllm:{upstream.plays(say())}"
    body = run_input(run="gone")
    assert post(one, model, body, store="true").status == 200
    for again in (one, two):
        assert error_of(post(again, model, body, store="true"), 409)[:2] == ("already_exists", "runId")
    assert stored_run(two, "gone", "DELETE").json == {"threadId": "t", "runId": "gone", "deleted": True}
    for method, path in (("GET", "/ag-ui"), ("DELETE", "/ag-ui"), ("POST", "/ag-ui/cancel")):
        assert error_of(stored_run(one, "gone", method, path=path), 404)[0] == "run_not_found"
    # Writers and readers of the old run could not be distinguished from those of the new one.
    for again in (one, two):
        assert error_of(post(again, model, body, store="true"), 409)[:2] == ("already_exists", "runId")


def test_one_of_many_concurrent_requests_begins_the_run(replicas: tuple[Served, Served], upstream: Upstream) -> None:
    script = Halves()
    model = f"vllm:{upstream.plays(script)}"
    replies: list[Reply] = []

    def ask(gateway: Served) -> None:
        replies.append(post(gateway, model, run_input(run="same"), store="true"))

    threads = [threading.Thread(target=ask, args=(gateway,)) for gateway in replicas * 3]
    for thread in threads:
        thread.start()
    script.may.set()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    first, *others = sorted(replies, key=lambda reply: reply.status)
    assert texts(streamed(first), "TEXT_MESSAGE") == "It is 42."
    assert [error_of(other, 409)[:2] for other in others] == [("already_exists", "runId")] * 5


def test_the_next_turn_needs_no_stored_run(replicas: tuple[Served, Served], upstream: Upstream) -> None:
    """A value sealed by one replica is opened by another, also after the run was deleted."""
    one, two = replicas
    name = upstream.plays(say("Let me see.", "42."))
    messages = run(one, f"vllm:{name}", run_input(run="first"), store="true", snapshot="true")[-2]["messages"]
    assert stored_run(two, "first", "DELETE").status == 200
    later = run(two, f"vllm:{name}", run_input(*messages, ON, run="second"), snapshot="true", view="sealed")
    history = upstream.calls(name)[1].body["messages"]
    assert (history[1]["reasoning_content"], history[1]["content"]) == ("Let me see. ", "42. ")
    assert ("reasoning", "") in without_ids(later[-2]["messages"])


# --- whose it is -------------------------------------------------------------------------------------------------


def test_a_run_belongs_to_its_tenant_and_each_key_has_its_view(upstream: Upstream, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    views = {f"acme/{view}": Policy(view=view) for view in VIEWS if view != "summary"}
    keys = make_keys(url, {**views, "acme/forgetful": Policy(store=False), "other": None})
    with serving(upstream, url, access={"keys": True}) as gateway:
        callers = {name: Caller(gateway, key) for name, key in keys.items()}
        before = [
            USER,
            {"id": "r", "role": "reasoning", "content": "An earlier thought."},
            {"id": "a", "role": "assistant", "content": "Earlier."},
            ON,
        ]
        body = run_input(*before, run="mine", forwardedProps={"pellucid": {"store": True, "snapshot": True}})
        model = f"vllm:{upstream.plays(say('Let me see.', '42.'))}"
        path = f"/ag-ui?model={model}"
        assert callers["acme/raw"].do("POST", path, body).status == 200
        code, param, words = error_of(callers["acme/forgetful"].do("POST", path, body), 403)
        assert (code, param) == ("store_not_allowed", "store")
        assert "store: false" in words

        mine = "/ag-ui?threadId=t&runId=mine"
        for method, where in (("GET", mine), ("DELETE", mine), ("POST", mine.replace("?", "/cancel?"))):
            assert error_of(callers["other"].do(method, where), 404)[0] == "run_not_found"
        assert callers["other"].do("POST", path, body).status == 200, "ids of another tenant must not conflict"

        replies = {view: callers[f"acme/{view}"].do("GET", mine) for view in ("raw", "sealed", "hidden")}
        replies["asked"] = callers["acme/raw"].do("GET", f"{mine}&view=sealed")
        streams = {view: json.dumps(streamed(reply)) for view, reply in replies.items()}
        assert all(word in streams["raw"] for word in ("Let ", "An earlier thought.", "encryptedValue"))
        for view in ("sealed", "hidden", "asked"):
            assert "Let " not in streams[view]
            assert "An earlier thought." not in streams[view], "reasoning of earlier turns is redacted, too"
            assert ("encryptedValue" in streams[view]) is (view != "hidden")
            assert "42." in streams[view]
        code, _, words = error_of(callers["acme/sealed"].do("GET", f"{mine}&view=raw"), 403)
        assert code == "view_not_allowed"
        assert "ask for 'sealed' or 'hidden'" in words
        # It is no response of another protocol.
        assert callers["acme/raw"].do("GET", "/v1/responses/mine").status == 404
