"""An MCP session of a space on two workers, and on two gateways: its requests come to any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.replicas.replicas_kit import Replica, config_of, replicas
from tests.replicas.test_workers import Worker, workers_of
from tests.scripted import Upstream
from tests.scripted.gateway import Gateway
from tests.service_postgres import postgres
from tests.service_redis import redis_service
from tests.spaces_server.space_wire_kit import joined, spaces_of
from tests.spaces_server.test_spaces_mcp import headers_of, initialize, is_present, rpc
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("long", "redis")

PATH = "/spaces/room/mcp"


def toml(upstream: Upstream, folder: Path, store: str, relay: str, **server: object) -> str:
    lines = [config_of(upstream, store, relay, **server).replace("lease_seconds = 1.0", "lease_seconds = 3")]
    for name, space in spaces_of(folder, {"room": {"participants": ["agent", "watcher"]}}).items():
        for id, row in space["participants"].items():
            lines.append(f"[spaces.{name}.participants.{id}]\ntoken_file = {json.dumps(row['token_file'])}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def cluster(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("workers")
    with redis_service() as redis:
        config = toml(upstream, folder, f"sqlite:///{folder}/store.sqlite", redis.url, workers=2)
        with replicas(config) as [replica]:
            yield replica


def test_any_worker_serves_cancels_and_ends_a_session(cluster: Replica) -> None:
    wait_until(lambda: len(workers_of(cluster)) == 2)
    one, other = (Worker(cluster, pid) for pid in workers_of(cluster))
    with joined(cluster, "room", "watcher") as watcher:
        headers = headers_of("room", "agent", **{"Mcp-Session-Id": initialize(one, "room", "agent")})
        assert watcher.until("system/presence")["payload"]["event"] == "join"
        read = rpc("tools/call", {"name": "read", "arguments": {}})
        assert b"agent" in other.request("POST", PATH, read, headers).body

        wait = rpc("tools/call", {"name": "wait", "arguments": {"after_seq": 0, "timeout_seconds": 300}}, id=7)
        cancel = rpc("notifications/cancelled", {"requestId": 7}).replace(b'"id": 1, ', b"")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(one.request, "POST", PATH, wait, headers)
            # The call may not have begun yet; a cancellation of an unknown call does nothing.
            wait_until(lambda: other.request("POST", PATH, cancel, headers).status == 202 and waiting.done())
        assert b"cancelled" in waiting.result().body

        assert other.request("DELETE", PATH, headers=headers).status == 204
        wait_until(lambda: one.request("POST", PATH, read, headers).status == 404)
        wait_until(lambda: not is_present(cluster, "room", "agent"))
        watcher.chat("…")
        events = [seen["payload"]["event"] for seen in watcher.seen if seen["kind"] == "system/presence"]
        assert events == ["join", "leave"]
    for worker in (one, other):
        worker.close()


class McpSession:
    """A session, each of whose calls may go to another gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.headers = headers_of("room", "agent", **{"Mcp-Session-Id": initialize(gateway, "room", "agent")})

    def call(self, gateway: Gateway, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool, and return its structured result."""
        body = rpc("tools/call", {"name": tool, "arguments": arguments})
        reply = gateway.request("POST", PATH, body, self.headers)
        assert reply.status == 200, reply.body
        (data,) = (line for line in reply.body.splitlines() if line.startswith(b"data: {"))
        result = json.loads(data[6:])["result"]
        assert not result.get("isError"), result
        return dict(result["structuredContent"])


@pytest.mark.needs("postgresql")
def test_a_session_goes_on_at_another_gateway(upstream: Upstream, tmp_path: Path) -> None:
    with postgres() as database, redis_service() as redis:
        config = toml(upstream, tmp_path, database.database(), redis.url)
        with (
            replicas(config, config) as [one, other],
            ThreadPoolExecutor(1) as pool,
            joined(other, "room", "watcher") as watcher,
        ):
            session = McpSession(one)
            position = session.call(one, "read")["next_after_seq"]
            waiting = pool.submit(session.call, one, "wait", after_seq=position)
            question = watcher.chat("@agent, may we?")
            assert [seen["id"] for seen in waiting.result()["envelopes"]] == [question["id"]]

            context = session.call(one, "think", step="start", text="Hm", answers=[question["id"]])["context"]
            session.call(other, "think", step="thought", text="It is safe", context=context)
            session.call(one, "think", step="conclusion", text="Yes", context=context)
            answer = session.call(other, "say", text="You may.", answers=[question["id"]])
            watcher.until("chat", id=answer["id"])
            mine = [(seen["kind"], seen.get("context")) for seen in watcher.seen if seen.get("from") == "agent"]
            assert mine == [
                ("reasoning/start", None),
                ("reasoning/thought", context),
                ("reasoning/conclusion", context),
                ("chat", None),
            ]
            # The position of one gateway is that of the other. Nothing concerns the agent yet when the first dies.
            position = session.call(other, "read")["next_after_seq"]
            assert position == answer["seq"]
            waiting = pool.submit(session.call, one, "wait", after_seq=position)
            one.kill()
            assert waiting.exception() is not None
            thanks = watcher.chat("thank you", to=["agent"])
            after = session.call(other, "wait", after_seq=position)
            assert [seen["id"] for seen in after["envelopes"]] == [thanks["id"]]
            assert other.request("DELETE", PATH, headers=session.headers).status == 204
            wait_until(lambda: not is_present(other, "room", "agent"))
            watcher.chat("…")
            presence = [
                seen["payload"]["event"]
                for seen in watcher.seen
                if seen["kind"] == "system/presence" and seen["payload"]["participant"]["id"] == "agent"
            ]
            assert presence == ["join", "leave"]
