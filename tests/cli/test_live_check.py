"""`pellucid config check --live`: a line for each thing that a gateway needs, with an advice where it does not work."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pellucid.storage import open_store
from pellucid.storage.inspection import StoreState, inspect_store
from pellucid.storage.migrate import HEAD_VERSION
from tests.scripted import Call, Upstream, say
from tests.scripted.commands import Run
from tests.scripted.gateway import serve
from tests.service_postgres import PostgresServer, postgres_server

__all__ = ["postgres_server"]


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


async def _refuses_the_key(call: Call) -> None:
    await call.answer(401, b'{"error": {"message": "no such key"}}')


def _check(run: Run, tmp_path: Path, config: str) -> tuple[int, list[list[str]]]:
    """Run the check; return its exit status, and for each line its sign, its subject, its detail and its advice."""
    (tmp_path / "pellucid.toml").write_text(config)
    result = run("config", "check", "--live")
    rows: list[list[str]] = []
    for line in result.stdout.decode().splitlines()[1:]:
        if match := re.fullmatch(r"([✓•✗]) (.{15}) (.*)", line):
            rows.append([match[1], match[2].strip(), match[3], ""])
        else:
            rows[-1][3] = line.partition("→ ")[2]
    return result.returncode, rows


def _details(rows: list[list[str]], subject: str) -> list[list[str]]:
    return [[sign, *more] for sign, name, *more in rows if name == subject]


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def test_a_gateway_that_would_work_has_no_problem(run: Run, tmp_path: Path, upstream: Upstream) -> None:
    name, port = upstream.plays(say("Hm.", "yes")), _free_port()
    store = tmp_path / "store.sqlite"
    config = f"""
        [server]
        port = {port}
        [storage]
        url = "sqlite:///{store}"
        [providers.house]
        profile = "vllm"
        base_url = "{upstream.url}/v1"
        models = ["{name}"]
    """
    status, rows = _check(run, tmp_path, config)
    assert status == 0, rows
    assert {sign for sign, *_ in rows} == {"✓"}
    [[_, detail, _]] = _details(rows, "model")
    assert re.fullmatch(rf"{name} \(house/{name}\) answers, after \d+\.\d s", detail)
    assert _details(rows, "port") == [["✓", f"http://127.0.0.1:{port} is free", ""]]
    assert not store.exists(), "nothing is created"
    [call] = upstream.calls(name, 1)
    assert call.body["max_tokens"] <= 64


def test_each_problem_has_its_advice(run: Run, tmp_path: Path, upstream: Upstream) -> None:
    refused = upstream.plays(_refuses_the_key)
    store = tmp_path / "store.sqlite"
    store.write_bytes(b"this is no database, but it is long enough to be looked at" * 20)
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        config = f"""
            [server]
            port = {port}
            [storage]
            url = "sqlite:///{store}"
            [relay]
            url = "redis://127.0.0.1:{_free_port()}"
            [providers.house]
            profile = "vllm"
            base_url = "{upstream.url}/v1"
            models = ["{refused}"]
            [providers.away]
            profile = "vllm"
            base_url = "http://127.0.0.1:{_free_port()}/v1"
            models = ["far"]
            [tools.mcp.clock]
            command = "false"
        """
        status, rows = _check(run, tmp_path, config)
    assert status == 1
    by_advice = {advice: (subject, detail) for sign, subject, detail, advice in rows if sign == "✗"}
    expected = {
        "check storage.url, and that the database runs": ("store", "cannot be read: file is not a database"),
        "check relay.url, and that Redis runs": ("relay", ""),
        "check that the key is complete and valid, and in the variable that the configuration names": (
            "model",
            refused,
        ),
        "check base_url, and that the server runs": ("model", "far (away/far): "),
        "start its command, or open its address, by hand": ("tools of clock", "'clock'"),
        "end the other program, or set another server.port": ("port", str(port)),
    }
    assert by_advice.keys() == expected.keys(), rows
    for advice, (subject, detail) in expected.items():
        assert by_advice[advice][0] == subject
        assert detail in by_advice[advice][1]


def test_a_running_gateway_is_no_problem(run: Run, tmp_path: Path, upstream: Upstream) -> None:
    with serve({"providers": {"house": {"profile": "vllm", "base_url": f"{upstream.url}/v1"}}}) as gateway:
        port = int(gateway.url.rpartition(":")[2])
        _, rows = _check(run, tmp_path, f'[server]\nport = {port}\n[storage]\nurl = "sqlite://"\n')
    assert _details(rows, "port") == [["✓", f"Pellucid runs at http://127.0.0.1:{port}", ""]]


def test_a_store_is_looked_at_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    url = f"sqlite:///{path}"
    assert asyncio.run(inspect_store(url)) == StoreState(None, is_writable=True)
    assert not path.exists()

    async def create() -> None:
        await (await open_store(url)).aclose()

    asyncio.run(create())
    assert asyncio.run(inspect_store(url)) == StoreState(HEAD_VERSION, is_writable=True)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE alembic_version SET version_num = '0003'")
        file.commit()
    before = path.read_bytes()
    state = asyncio.run(inspect_store(url))
    assert (state.version, state.is_current) == ("0003", False)
    assert path.read_bytes() == before
    if os.geteuid() != 0:
        path.chmod(0o400)
        assert not asyncio.run(inspect_store(url)).is_writable


@pytest.mark.needs("postgresql")
def test_a_database_is_looked_at_and_not_changed(postgres_server: PostgresServer) -> None:
    url = postgres_server.database()
    state = asyncio.run(inspect_store(url))
    assert (state.version, state.is_writable) == (None, True)
    assert asyncio.run(inspect_store(url)).version is None, "no table was created"
    assert state.clock_offset is not None
    assert abs(state.clock_offset) < 5
