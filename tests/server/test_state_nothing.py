"""`store: false` writes nothing anywhere: marks in all that is said are looked for in every byte that is kept."""

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
from tests.server.state_kit import CALLERS, Caller, breaks, calls, hangs, message, output, serving
from tests.service_postgres import PostgresServer, postgres_server
from tests.service_redis import RedisService
from tests.service_redis import redis as redis_server

__all__ = ["postgres_server", "redis_server"]

MARK = "marked-Qz7"
MARKS = {what: f"{MARK}-{what}" for what in ("prompt", "thought", "arguments", "answer", "instructions", "metadata")}


async def everything(call: Any) -> None:
    """A turn that calls functions of both, then one that answers; all of it marked."""
    results = sum(said["role"] == "tool" for said in call.body["messages"])
    if not results:
        arguments = '{"word":"' + MARKS["arguments"] + '"}'
        await calls("look_up", "ask_user", reasoning=MARKS["thought"], arguments=arguments)(call)
    else:
        await calls(reasoning=MARKS["thought"], text=MARKS["answer"])(call)


def say_all(gateway: Served, upstream: Upstream, *, store: bool) -> list[str]:
    """Everything that can be asked without its being stored; the ids of the responses."""
    me, name, ids = Caller(gateway), upstream.plays(everything), []
    asked: dict[str, Any] = {
        "store": store,
        "tools": [CALLERS],
        "instructions": MARKS["instructions"],
        "metadata": {"a": MARKS["metadata"]},
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    for stream in (False, True):
        reply = me.say(name, MARKS["prompt"], stream=stream, **asked)
        first = reply.events[-1]["response"] if stream else reply.json
        assert [item["type"] for item in first["output"]].count("function_call") == 2
        assert MARKS["thought"] in reply.body.decode()
        pending = first["output"][2]["call_id"]
        again = [message(MARKS["prompt"]), *first["output"], output(pending, MARKS["answer"])]
        second = me.say(name, again, stream=stream, **asked)
        assert MARKS["answer"] in second.body.decode()
        ids += [first["id"]]
    broken = me.create_response(upstream.plays(breaks), MARKS["prompt"], **asked)
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
    found = shutil.which("pg_dump")
    program = found or str(max(Path("/usr/lib/postgresql").glob("*/bin/pg_dump")))
    plain = subprocess.run([program, "--inserts", url], capture_output=True, check=True, timeout=100).stdout
    # Bytes are written as hexadecimal digits there.
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
    with Redis.from_url(server.url) as door:
        door.flushall()
    return {"url": server.url}


@pytest.mark.parametrize("store", [False, True])
def test_in_a_file_and_in_redis(
    upstream: Upstream, tmp_path: Path, relay: dict[str, str], everything_logged: Any, store: bool
) -> None:
    url = f"sqlite:///{tmp_path / 'store.sqlite'}"
    functions = {"functions": ["tests.server.state_kit:look_up"]}
    with serving(upstream, url, relay=relay, tools=functions) as running:
        ids = say_all(running, upstream, store=store)
        if store:  # so that it is known that what is looked for could be found
            background = Caller(running).create_response(upstream.plays(everything), MARKS["prompt"], background=True)[
                "id"
            ]
            Caller(running).until(background, "completed")
            assert not relay or MARK.encode() in all_of_redis(relay["url"])
        else:
            left = all_of_redis(relay["url"]) if relay else b""
            assert MARK.encode() not in left
            assert not any(id.encode() in left for id in ids)
            files = {path.name for path in tmp_path.iterdir()}
            assert "store.sqlite-wal" in files, "what was not yet moved into the file is searched too"
        kept = every_byte(tmp_path)
    kept += every_byte(tmp_path)
    for what in MARKS.values():
        # What a log holds is compressed: its answers and thoughts are among the messages too.
        assert (what.encode() in kept) is store, what
    assert any(id.encode() in kept for id in ids) is store
    assert MARK not in everything_logged.text


@pytest.mark.parametrize("store", [False, True])
def test_in_postgresql(
    upstream: Upstream, postgres_server: PostgresServer, everything_logged: Any, store: bool
) -> None:
    url = postgres_server.database()
    functions = {"functions": ["tests.server.state_kit:look_up"]}
    with serving(upstream, url, tools=functions) as running:
        ids = say_all(running, upstream, store=store)
    kept = dumped(url)
    for what in MARKS.values():
        assert (what.encode() in kept) is store, what
    assert any(id.encode() in kept for id in ids) is store
    assert b"CREATE TABLE" in kept
    assert MARK not in everything_logged.text


def test_what_is_deleted_is_nowhere(upstream: Upstream, tmp_path: Path, relay: dict[str, str]) -> None:
    """Neither in the live log, nor in the file once the gateway has closed it."""
    url, functions = f"sqlite:///{tmp_path / 'store.sqlite'}", {"functions": ["tests.server.state_kit:look_up"]}
    with serving(upstream, url, relay=relay, tools=functions) as running:
        me, name = Caller(running), upstream.plays(everything)
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


def test_a_conversation_is_only_read(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream, f"sqlite:///{tmp_path / 'store.sqlite'}") as running:
        me, name = Caller(running), upstream.plays(everything)
        conversation = me.conversation(message("Hello."))
        kept = me.create_response(name, "An ordinary one")["id"]
        before = me.items(conversation), me.get_response(kept)
        for more in ({"conversation": conversation}, {"previous_response_id": kept}):
            said = me.create_response(name, "unkept-Wx3", store=False, tools=[CALLERS], **more)
            assert said["store"] is False
            assert "Hello." in str(upstream.calls(name)[-1].body) or "previous_response_id" in more
        assert (me.items(conversation), me.get_response(kept)) == before
        assert b"unkept-Wx3" not in every_byte(tmp_path)
        assert os.listdir(tmp_path)
