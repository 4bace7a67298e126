"""`kill -9` under load: echoed envelopes are stored, sequence numbers have no gap, and the record is valid. The
gateways are separate processes: one on SQLite, two over PostgreSQL and Redis."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from pellucid.storage import StoredEnvelope, open_store
from tests.replicas.replicas_kit import Replica
from tests.scripted.commands import PELLUCID
from tests.service_postgres import postgres
from tests.service_redis import redis_service
from tests.spaces_server.space_wire_kit import Client, joined, spaces_of
from tests.waiting import HOUR_SECONDS, wait_until

pytestmark = pytest.mark.needs("long")

ECHOES_BEFORE_KILL = 150
"""Echoes for each participant before the gateways are killed."""

MAX_UNANSWERED = 100
"""Envelopes of each participant without an echo at one time."""

NO_LIMIT = "{ per_second = 100_000, burst = 100_000 }"


def config_of(folder: Path, store: str, relay: str = "") -> str:
    who = {"a": ["*"], "b": ["*"], "c": ["*"]}
    space = spaces_of(folder, {"room": {"participants": who}})["room"]
    lines = [
        "[server]\nshutdown_seconds = 5",
        f'[storage]\nurl = "{store}"',
        # Leases do not expire before the kill, even if this machine is busy.
        f"[relay]\nlease_seconds = {HOUR_SECONDS:.0f}" + (f'\nurl = "{relay}"' if relay else ""),
        f'[record]\nkey_file = "{folder / "record.pem"}"\nseconds = 1\nentries = 100',
        "[local]\nenabled = false",
        "[spaces.room.limits]",
        *(f"{family} = {NO_LIMIT}" for family in ("reasoning", "chat", "mcp", "other")),
    ]
    for id, row in space["participants"].items():
        may = json.dumps(row["capabilities"])
        lines.append(f'[spaces.room.participants.{id}]\ntoken_file = "{row["token_file"]}"\ncapabilities = {may}')
    return "\n".join(lines)


def started_gateways(*configs: str) -> list[Replica]:
    several = [Replica(config) for config in configs]
    return [one.started() for one in several]


class TalkingParticipant:
    """Participant that chats and reasons and records its echoes, from `start` until its gateway is dead."""

    def __init__(self, gateway: Replica, participant: str) -> None:
        self.echoed: dict[str, tuple[int, str]] = {}
        self.closed: Exception | None = None
        self.refused: list[str] = []
        self._name = participant
        self._opened = ExitStack()
        self._client: Client = self._opened.enter_context(joined(gateway, "room", participant, close_timeout=0.1))
        self._threads = [threading.Thread(target=work) for work in (self._talk, self._listen)]
        self._unanswered = threading.Semaphore(MAX_UNANSWERED)

    def start(self) -> None:
        for one in self._threads:
            one.start()

    def _talk(self) -> None:
        root = f"{self._name}-r"
        try:
            self._client.send(kind="reasoning/start", id=root, payload={"message": "ж" * 40})
            for n in range(100_000):
                self._unanswered.acquire()
                fields = {"kind": "chat"} if n % 2 else {"kind": "reasoning/thought", "context": root}
                self._client.send(**fields, id=f"{self._name}-{n}", payload={"text": f"{self._name} {n} " + "é" * 50})
        except (ConnectionClosed, OSError):
            pass

    def _listen(self) -> None:
        try:
            while True:
                one = json.loads(self._client.connection.recv())
                if one.get("from") == self._name and one["id"].startswith(f"{self._name}-"):
                    self.echoed[one["id"]] = (one["seq"], json.dumps(one["payload"], sort_keys=True))
                    self._unanswered.release()
                elif one["kind"] == "system/error":
                    self.refused.append(json.dumps(one["payload"]))
        except (ConnectionClosed, OSError) as closed:
            self.closed = closed
        finally:
            self._unanswered.release(MAX_UNANSWERED)

    def join(self) -> None:
        for one in self._threads:
            one.join(20)
        self._opened.close()


def log_of(store: str) -> list[StoredEnvelope]:
    """Read the whole log from the store."""

    async def read() -> list[StoredEnvelope]:
        opened = await open_store(store)
        try:
            space = await opened.spaces.get("room")
            assert space is not None
            rows: list[StoredEnvelope] = []
            while page := await opened.spaces.page(space.owner, "room", after=len(rows), limit=1000):
                rows += page
            assert space.head == len(rows)
            return rows
        finally:
            await opened.aclose()

    return asyncio.run(read())


def verify_record(folder: Path, config: str) -> None:
    file = folder / "killed.toml"
    file.write_text(config)
    done = subprocess.run(
        [*PELLUCID, "record", "verify", "--config", str(file), "--json"], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def traffic_until_killed(gateways: list[Replica]) -> dict[str, tuple[int, str]]:
    """Return the echoes that all participants received before every gateway was killed."""
    echoed: dict[str, tuple[int, str]] = {}
    try:
        talking = [
            TalkingParticipant(gateways[number % len(gateways)], name) for number, name in enumerate(("a", "b", "c"))
        ]
        for one in talking:
            one.start()

        def is_enough() -> bool:
            assert all(gateway.process.poll() is None for gateway in gateways)
            assert not any(one.closed or one.refused for one in talking), [
                (len(one.echoed), one.closed, one.refused) for one in talking
            ]
            return all(len(one.echoed) >= ECHOES_BEFORE_KILL for one in talking)

        wait_until(is_enough, f"{ECHOES_BEFORE_KILL} echoes for each", within=100)
        for gateway in gateways:
            gateway.kill()
        for one in talking:
            one.join()
            echoed |= one.echoed
    finally:
        for gateway in gateways:
            gateway.close()
    return echoed


@contextmanager
def on_sqlite(folder: Path) -> Iterator[tuple[str, list[str]]]:
    store = f"sqlite:///{folder / 'killed.sqlite'}"
    yield store, [config_of(folder, store)]


@contextmanager
def on_postgres(folder: Path) -> Iterator[tuple[str, list[str]]]:
    with postgres() as database, redis_service() as redis:
        store = database.database()
        config = config_of(folder, store, redis.url)
        yield store, [config, config]


@pytest.mark.parametrize(
    "where", [on_sqlite, pytest.param(on_postgres, marks=pytest.mark.needs("postgresql", "redis"))]
)
def test_echoed_envelopes_survive_a_kill(
    tmp_path: Path, where: Callable[[Path], AbstractContextManager[tuple[str, list[str]]]]
) -> None:
    with where(tmp_path) as (store, configs):
        echoed = traffic_until_killed(started_gateways(*configs))

        # The log is read as the killed processes left it.
        rows = log_of(store)
        assert [one.envelope.seq for one in rows] == list(range(1, len(rows) + 1))
        stored = {one.envelope.id: one.envelope for one in rows}
        assert len(stored) == len(rows)
        for id, (seq, payload) in echoed.items():
            assert stored[id].seq == seq
            assert json.dumps(stored[id].payload, sort_keys=True) == payload
        verify_record(tmp_path, configs[0])
        if len(configs) > 1:
            return

        # A participant resumes there and goes on.
        (gateway,) = started_gateways(configs[0])
        try:
            with joined(gateway, "room", "a", query="?after_seq=0") as a:
                last = a.chat("still here")
                seen = {one["id"]: one["seq"] for one in a.seen if "seq" in one}
                assert all(seen[id] == seq for id, (seq, _) in echoed.items())
                assert last["seq"] == max(seen.values())
        finally:
            gateway.close()


def test_an_acknowledged_revocation_survives_a_kill(tmp_path: Path) -> None:
    """The gateway is killed as soon as the sender has its echo."""
    with on_sqlite(tmp_path) as (_, configs):
        (gateway,) = started_gateways(*configs)
        try:
            with joined(gateway, "room", "a", close_timeout=0.1) as a:
                payload = {"recipient": "b", "capabilities": ["chat", "capability/*"]}
                assert a.say(kind="capability/revoke", payload=payload)["seq"]
                gateway.kill()
        finally:
            gateway.close()
        (gateway,) = started_gateways(*configs)
        try:
            with joined(gateway, "room", "b") as b:
                assert b.refused(kind="chat", payload={"text": "x"})["code"] == "capability_violation"
                wanted = {"recipient": "b", "capabilities": ["chat"]}
                assert b.refused(kind="capability/grant", payload=wanted)["code"] == "capability_violation"
                assert b.say(kind="mcp/request", payload={"method": "tools/list"})["seq"]
        finally:
            gateway.close()


@pytest.mark.parametrize(
    "where", [on_sqlite, pytest.param(on_postgres, marks=pytest.mark.needs("postgresql", "redis"))]
)
def test_open_streams_end_with_a_killed_gateway(
    tmp_path: Path, where: Callable[[Path], AbstractContextManager[tuple[str, list[str]]]]
) -> None:
    """A participant who comes back learns why, or still has the stream. The log is whole, without the data."""
    data = "data-that-is-never-stored"
    with where(tmp_path) as (store, configs), ExitStack() as stack:
        configs = [one.replace(f"lease_seconds = {HOUR_SECONDS:.0f}", "lease_seconds = 2") for one in configs]
        gateways = started_gateways(*configs)
        for gateway in gateways:
            stack.callback(gateway.close)
        a, b, c = (stack.enter_context(joined(gateways[0], "room", name, close_timeout=0.1)) for name in "abc")
        opened: list[str] = []
        for owner, to in ((a, ["b"]), (c, ["a", "b"])):
            owner.send(kind="stream/request", id=f"open-{len(opened)}", to=to, payload={"description": "data"})
            opened.append(b.until("stream/open")["payload"]["stream_id"])
        a.send(kind="stream/grant-write", payload={"stream_id": opened[0], "participant_id": "c"})
        for one in (b, c):
            one.until("stream/write-granted")
        for client, stream in ((a, opened[0]), (c, opened[0]), (c, opened[1])):
            for number in range(20):
                client.raw(f"#{stream}#{number} {data}")
        frames = [str(b.connection.recv(30)) for _ in range(60)]
        assert sorted(frames) == sorted(f"#{opened[n]}#{number} {data}" for n in (0, 0, 1) for number in range(20))
        last = max(one["seq"] for one in b.seen if "seq" in one)
        gateways[0].kill()
        if len(gateways) == 1:
            gateways += started_gateways(configs[0])
            stack.callback(gateways[1].close)
        # c comes back before it is missed, and keeps its stream. a does not come back.
        c = stack.enter_context(joined(gateways[1], "room", "c"))
        b = stack.enter_context(joined(gateways[1], "room", "b", query=f"?after_seq={last}"))
        closed = b.until("stream/close")
        assert closed["payload"] == {"stream_id": opened[0], "reason": "disconnected"}
        (active,) = [one for one in c.welcome["active_streams"] if one["owner"] == "c"]
        assert active["stream_id"] == opened[1]
        c.until("stream/close")
        for stream in opened:
            c.raw(f"#{stream}#again")
        assert c.until("system/error")["payload"]["code"] == "stream_not_found"
        assert b.connection.recv(30) == f"#{opened[1]}#again"
        log = log_of(store)
        assert [one.envelope.seq for one in log] == list(range(1, len(log) + 1))
        assert not any(data in json.dumps(one.envelope.payload) for one in log)
        verify_record(tmp_path, configs[0])
