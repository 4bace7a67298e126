"""`store: false` writes nothing: all content has markers, and every stored byte is searched for them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from pellucid.telemetry import log
from tests.scripted import Upstream
from tests.scripted.gateway import Served
from tests.server.state_kit import CLIENT_FUNCTION, Caller, breaks, calls, hangs, message, output, serving
from tests.service_postgres import PostgresServer, postgres_server
from tests.service_redis import RedisService
from tests.service_redis import redis as redis_server

__all__ = ["postgres_server", "redis_server"]

MARK = "marked-Qz7"
MARKS = {what: f"{MARK}-{what}" for what in ("prompt", "thought", "arguments", "answer", "instructions", "metadata")}


async def calls_then_answers(call: Any) -> None:
    """Script a turn that calls functions of server and client, then one that answers; all content is marked."""
    results = sum(entry["role"] == "tool" for entry in call.body["messages"])
    if not results:
        arguments = '{"word":"' + MARKS["arguments"] + '"}'
        await calls("look_up", "ask_user", reasoning=MARKS["thought"], arguments=arguments)(call)
    else:
        await calls(reasoning=MARKS["thought"], text=MARKS["answer"])(call)


def send_all_requests(gateway: Served, upstream: Upstream, *, store: bool) -> list[str]:
    """Send every kind of request that can be unstored, and return the ids of the responses."""
    me, name, ids = Caller(gateway), upstream.plays(calls_then_answers), []
    fields: dict[str, Any] = {
        "store": store,
        "tools": [CLIENT_FUNCTION],
        "instructions": MARKS["instructions"],
        "metadata": {"a": MARKS["metadata"]},
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    for stream in (False, True):
        reply = me.say(name, MARKS["prompt"], stream=stream, **fields)
        first = reply.events[-1]["response"] if stream else reply.json
        assert [item["type"] for item in first["output"]].count("function_call") == 2
        assert MARKS["thought"] in reply.body.decode()
        pending = first["output"][2]["call_id"]
        again = [message(MARKS["prompt"]), *first["output"], output(pending, MARKS["answer"])]
        second = me.say(name, again, stream=stream, **fields)
        assert MARKS["answer"] in second.body.decode()
        ids += [first["id"]]
    broken = me.create_response(upstream.plays(breaks), MARKS["prompt"], **fields)
    assert broken["status"] == "failed"
    with gateway.open(f"vllm:{upstream.plays(hangs)}", store=store, instructions=MARKS["instructions"]) as left:
        left.until("Hm.")
    gateway.idle()
    chat = {"model": f"vllm:{name}", "messages": [{"role": "user", "content": MARKS["prompt"]}]}
    assert me.do("POST", "/v1/chat/completions", chat).status == 200
    return ids


def every_byte(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def all_of_redis(url: str) -> bytes:
    out = []
    with Redis.from_url(url) as redis:
        for key in redis.scan_iter(count=1000):
            out += [key, redis.dump(key) or b""]
            kind = redis.type(key)
            if kind == b"stream":
                out.append(repr(redis.xrange(key)).encode())
            elif kind == b"hash":
                out.append(repr(redis.hgetall(key)).encode())
            elif kind == b"string":
                out.append(redis.get(key) or b"")
    return b"\n".join(out)


def dumped(url: str) -> bytes:
    installed = shutil.which("pg_dump")
    program = installed or str(max(Path("/usr/lib/postgresql").glob("*/bin/pg_dump")))
    plain = subprocess.run([program, "--inserts", url], capture_output=True, check=True, timeout=100).stdout
    # The dump has bytes as hexadecimal digits.
    return plain + b"".join(bytes.fromhex(part.decode()) for part in hexes(plain))


def hexes(plain: bytes) -> list[bytes]:
    return [part.partition(b"'")[0] for part in plain.split(b"'\\x")[1:]]


@pytest.fixture
def everything_logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger=log.name)
    return caplog


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.needs("redis"))])
def relay(request: pytest.FixtureRequest) -> dict[str, str]:
    """The configuration of a relay: in memory, or an empty Redis."""
    if request.param == "memory":
        return {}
    server: RedisService = request.getfixturevalue("redis_server")
    with Redis.from_url(server.url) as client:
        client.flushall()
    return {"url": server.url}


@pytest.mark.parametrize("store", [False, True])
def test_store_false_leaves_nothing_in_files_or_redis(
    upstream: Upstream, tmp_path: Path, relay: dict[str, str], everything_logged: Any, store: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    functions = {"functions": ["tests.server.state_kit:look_up"]}
    with serving(upstream, url, relay=relay, tools=functions) as running:
        ids = send_all_requests(running, upstream, store=store)
        if store:  # shows that the search would find the markers
            background = Caller(running).create_response(
                upstream.plays(calls_then_answers), MARKS["prompt"], background=True
            )["id"]
            Caller(running).until(background, "completed")
            assert not relay or MARK.encode() in all_of_redis(relay["url"])
        else:
            redis_bytes = all_of_redis(relay["url"]) if relay else b""
            assert MARK.encode() not in redis_bytes
            assert not any(id.encode() in redis_bytes for id in ids)
            files = {path.name for path in tmp_path.iterdir()}
            assert "store.sqlite-wal" in files, "the write-ahead log is searched, too"
        stored_bytes = every_byte(tmp_path)
    stored_bytes += every_byte(tmp_path)
    for what in MARKS.values():
        # Event logs are compressed, but the messages contain the same text and reasoning.
        assert (what.encode() in stored_bytes) is store, what
    assert any(id.encode() in stored_bytes for id in ids) is store
    assert MARK not in everything_logged.text


@pytest.mark.parametrize("store", [False, True])
def test_store_false_leaves_nothing_in_postgresql(
    upstream: Upstream, postgres_server: PostgresServer, everything_logged: Any, store: bool
) -> None:
    url = postgres_server.database()
    functions = {"functions": ["tests.server.state_kit:look_up"]}
    with serving(upstream, url, tools=functions) as running:
        ids = send_all_requests(running, upstream, store=store)
    dump = dumped(url)
    for what in MARKS.values():
        assert (what.encode() in dump) is store, what
    assert any(id.encode() in dump for id in ids) is store
    assert b"CREATE TABLE" in dump
    assert MARK not in everything_logged.text


def test_deleted_data_is_removed_everywhere(upstream: Upstream, tmp_path: Path, relay: dict[str, str]) -> None:
    """It is removed from the live log, and from the file when the gateway has closed it."""
    url, functions = f"sqlite:///{tmp_path / 'store.sqlite'}", {"functions": ["tests.server.state_kit:look_up"]}
    with serving(upstream, url, relay=relay, tools=functions) as running:
        me, name = Caller(running), upstream.plays(calls_then_answers)
        conversation = me.conversation(message(MARKS["prompt"]))
        ids = [me.create_response(name, MARKS["prompt"])["id"]]
        ids.append(me.create_response(name, MARKS["prompt"], background=True)["id"])
        me.until(ids[-1], "completed")
        waiting = upstream.plays(hangs)
        ids.append(me.create_response(waiting, MARKS["prompt"], background=True)["id"])
        upstream.calls(waiting, 1)
        assert not relay or MARK.encode() in all_of_redis(relay["url"])
        assert MARK.encode() in every_byte(tmp_path)
        for id in ids:
            assert me.do("DELETE", f"/v1/responses/{id}").status == 200
        assert me.do("DELETE", f"/v1/conversations/{conversation}").status == 200
        assert not relay or MARK.encode() not in all_of_redis(relay["url"])
    assert MARK.encode() not in every_byte(tmp_path)


def test_store_false_only_reads_the_conversation(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream, f"sqlite:///{tmp_path / 'store.sqlite'}") as running:
        me, name = Caller(running), upstream.plays(calls_then_answers)
        conversation = me.conversation(message("Hello."))
        stored_id = me.create_response(name, "An ordinary one")["id"]
        before = me.items(conversation), me.get_response(stored_id)
        for more in ({"conversation": conversation}, {"previous_response_id": stored_id}):
            response = me.create_response(name, "unkept-Wx3", store=False, tools=[CLIENT_FUNCTION], **more)
            assert response["store"] is False
            assert "Hello." in str(upstream.calls(name)[-1].body) or "previous_response_id" in more
        assert (me.items(conversation), me.get_response(stored_id)) == before
        assert b"unkept-Wx3" not in every_byte(tmp_path)
        assert os.listdir(tmp_path)
