"""Above the memory mark, new work is refused in each protocol's form; running streams and `/health` go on."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pellucid.errors import PellucidError
from pellucid.server.memory import TRIM_GROWTH_BYTES, MemoryMark, available_bytes, resident_bytes
from tests.scripted import Call, Upstream, delta, serve
from tests.scripted.gateway import Served
from tests.server.sockets_kit import opened
from tests.waiting import LIMIT_SECONDS

MB = 1 << 20
HUGE = 1 << 50
JSON = {"Content-Type": "application/json"}


class Resident:
    """Resident memory that the test sets."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self) -> int:
        return self.bytes


def test_the_mark_has_a_hysteresis(caplog: pytest.LogCaptureFixture) -> None:
    resident = Resident()
    mark = MemoryMark(100 * MB, resident)
    states = []
    for used in (99, 101, 99, 96, 94, 99, 101):
        resident.bytes = used * MB
        mark.update()
        states.append(mark.is_exceeded)
    assert states == [False, True, True, True, False, False, True]
    assert [record.message for record in caplog.records] == [
        "memory: 101 MB are in use: new requests are refused",
        "memory: 94 MB are in use: new requests are accepted again",
        "memory: 101 MB are in use: new requests are refused",
    ]
    with pytest.raises(PellucidError) as caught:
        mark.check()
    assert (caught.value.info.code, caught.value.info.retry_after) == ("overloaded", 5.0)


@pytest.mark.parametrize("mark_bytes", [None, 0])
def test_without_a_mark_nothing_is_refused(mark_bytes: int | None) -> None:
    resident = Resident()
    resident.bytes = HUGE
    mark = MemoryMark(mark_bytes, resident)
    mark.update()
    assert not mark.is_exceeded


def test_on_systems_without_proc_nothing_is_watched() -> None:
    mark = MemoryMark(1, lambda: None)
    mark.update()
    assert not mark.is_exceeded
    asyncio.run(mark.watch())


def test_freed_memory_is_returned_while_the_mark_is_exceeded(monkeypatch: pytest.MonkeyPatch) -> None:
    resident, is_trimmed = Resident(), asyncio.Event()
    monkeypatch.setattr("pellucid.server.memory.CHECK_SECONDS", 0.0)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def trim() -> None:
            loop.call_soon_threadsafe(is_trimmed.set)

        resident.bytes = 2 * MB
        mark = MemoryMark(MB, resident, trim)
        watching = asyncio.create_task(mark.watch())
        await is_trimmed.wait()
        assert mark.is_exceeded
        watching.cancel()

    asyncio.run(main())


def test_freed_memory_is_returned_whenever_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.memory.CHECK_SECONDS", 0.001)
    monkeypatch.setattr("pellucid.server.memory.TRIM_SECONDS", 0.001)
    trimmed_at: list[int] = []
    has_grown = asyncio.Event()

    class Growing(Resident):
        """Grows by 1 MB at each reading."""

        def __call__(self) -> int:
            self.bytes += MB
            if self.bytes > 100 * MB:
                has_grown.set()
            return self.bytes

    resident = Growing()

    async def main() -> None:
        watching = asyncio.create_task(MemoryMark(None, resident, lambda: trimmed_at.append(resident.bytes)).watch())
        await has_grown.wait()
        watching.cancel()

    asyncio.run(main())
    growth = [later - earlier for earlier, later in pairwise([0, *trimmed_at])]
    assert len(growth) > 1
    assert min(growth) > TRIM_GROWTH_BYTES


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/meminfo": "MemTotal:  2048 kB\nMemFree: 1 kB\n"}, 2 * MB),
        ({"proc/meminfo": "MemTotal: 4096 kB\n", "sys/fs/cgroup/memory.max": "max\n"}, 4 * MB),
        ({"proc/meminfo": "MemTotal: 4096 kB\n", "sys/fs/cgroup/memory.max": f"{3 * MB}\n"}, 3 * MB),
        (
            {
                "proc/meminfo": "MemTotal: 4096 kB\n",
                "proc/self/cgroup": "0::/system.slice/pellucid.service\n",
                "sys/fs/cgroup/system.slice/pellucid.service/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{2 * MB}\n",
            },
            2 * MB,
        ),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{MB}\n"}, MB),
        ({}, None),
    ],
)
def test_the_memory_of_the_machine_or_container(tmp_path: Path, files: dict[str, str], expected: int | None) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert available_bytes(tmp_path) == expected


def test_the_resident_memory_of_this_process_is_known() -> None:
    resident, available = resident_bytes(), available_bytes()
    assert resident is not None
    assert available is not None
    assert 10 * MB < resident < available


@pytest.fixture
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serve({"providers": {"vllm": {"base_url": upstream.url}}, "server": {"max_memory_bytes": HUGE}}) as served:
        yield served


REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("/v1/responses", {"input": "Why?"}),
    "background": ("/v1/responses", {"input": "Why?", "background": True}),
    "chat completions": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why?"}]}),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 5}),
    "ag-ui": ("/ag-ui", {"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "Why?"}]}),
    "chat": ("/api/chat", {"message": "Why?"}),
}


def test_new_work_is_refused_and_running_streams_go_on(gateway: Served, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(content="So. "))
        await asyncio.to_thread(goes_on.wait, LIMIT_SECONDS)
        await call.event(delta("stop", content="Done."))
        await call.data(b"data: [DONE]\n\n")
        await call.end()

    goes_on = threading.Event()
    model = upstream.plays(script)
    app: Any = gateway.server.config.app
    mark, resident = app.services.memory, Resident()
    mark._resident = resident
    with gateway.open(model) as stream, opened(gateway, model) as socket:
        stream.until("So. ")
        resident.bytes = 2 * HUGE
        mark.update()
        for name, (path, body) in REQUESTS.items():
            reply = gateway.request("POST", path, json.dumps({"model": model, **body}).encode(), JSON)
            assert reply.status == (529 if name == "messages" else 503), name  # Anthropic's status for it
            assert reply.headers["retry-after"] == "5", name
            assert b"overloaded" in reply.body, name
        socket.send()
        error = socket.message()
        assert (error["type"], error["status"], error["error"]["code"]) == ("error", 503, "overloaded")
        assert gateway.request("GET", "/health").status == 200
        assert gateway.request("GET", "/v1/models").status == 200
        ready = gateway.request("GET", "/ready")
        assert (ready.status, ready.json["detail"]) == (503, "the memory is used up")
        goes_on.set()
        assert b"response.completed" in stream.rest()
    assert len(upstream.calls(model)) == 1
    resident.bytes = 0
    mark.update()
    assert gateway.ask(model).status == 200
