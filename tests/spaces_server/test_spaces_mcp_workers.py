"""An MCP session of a space on two workers: its requests come to any of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.replicas.replicas_kit import Replica, config_of, replicas
from tests.replicas.test_workers import Worker, workers_of
from tests.scripted import Upstream
from tests.service_redis import redis_service
from tests.spaces_server.space_wire_kit import joined, spaces_of
from tests.spaces_server.test_spaces_mcp import headers_of, initialize, is_present, rpc
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("long", "redis")

PATH = "/spaces/room/mcp"


@pytest.fixture(scope="module")
def cluster(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("workers")
    with redis_service() as redis:
        lines = [config_of(upstream, f"sqlite:///{folder}/store.sqlite", redis.url, workers=2)]
        for name, space in spaces_of(folder, {"room": {"participants": ["agent", "watcher"]}}).items():
            for id, row in space["participants"].items():
                lines.append(f"[spaces.{name}.participants.{id}]\ntoken_file = {json.dumps(row['token_file'])}")
        with replicas("\n".join(lines).replace("lease_seconds = 1.0", "lease_seconds = 3")) as [replica]:
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
