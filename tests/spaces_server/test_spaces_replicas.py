"""One space on two gateway processes over PostgreSQL and Redis: one order, one presence, nothing lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.replicas.replicas_kit import Replica, config_of, replicas
from tests.scripted import Upstream
from tests.service_postgres import postgres
from tests.service_redis import redis_service
from tests.spaces_server.space_wire_kit import (
    TALK_CAPABILITIES,
    Client,
    get,
    joined,
    post,
    seqs,
    slashed_kind,
    spaces_of,
    token,
)

pytestmark = pytest.mark.needs("long", "postgresql", "redis")

ROOMS = ("order", "doors", "death")


def toml(upstream: Upstream, database: str, relay: str, folder: Path) -> str:
    who = {"a": ["*"], "b": TALK_CAPABILITIES, "c": ["chat"]}
    rooms = spaces_of(folder, {name: {"participants": who, "grace_seconds": 0.2} for name in ROOMS})
    lines = [config_of(upstream, database, relay)]
    for name, space in rooms.items():
        lines.append(f"[spaces.{name}]\ngrace_seconds = {space['grace_seconds']}")
        for id, row in space["participants"].items():
            file, may = json.dumps(row["token_file"]), json.dumps(row["capabilities"])
            lines.append(f"[spaces.{name}.participants.{id}]\ntoken_file = {file}\ncapabilities = {may}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def two_gateways(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    with postgres() as database, redis_service() as redis:
        config = toml(upstream, database.database(), redis.url, tmp_path_factory.mktemp("tokens"))
        with replicas(config, config) as running:
            yield running


def test_concurrent_chats_at_two_gateways_have_one_order(two_gateways: list[Replica]) -> None:
    count = 40
    with joined(two_gateways[0], "order", "a") as a, joined(two_gateways[1], "order", "b") as b:

        def talk(client: Client, name: str) -> None:
            for n in range(count):
                client.send(kind="chat", id=f"{name}-{n}", payload={"text": f"{name} {n}"})

        talkers = [threading.Thread(target=talk, args=one) for one in ((a, "a"), (b, "b"))]
        for talker in talkers:
            talker.start()
        received = {}
        for name, client in (("a", a), ("b", b)):
            chats: list[int] = []
            ids = set()
            while len(chats) < 2 * count:
                one = client.until("chat")
                chats.append(one["seq"])
                ids.add(one["id"])
            received[name] = chats
            assert len(ids) == 2 * count
        for talker in talkers:
            talker.join()
    assert received["a"] == received["b"] == sorted(received["a"])
    page = get(two_gateways[1], "/spaces/order/envelopes?kind=chat&limit=500", token("order", "a")).json
    assert seqs(page["envelopes"]) == received["a"]


def test_presence_and_decisions_are_shared_between_gateways(two_gateways: list[Replica]) -> None:
    one, other = two_gateways
    with joined(one, "doors", "a") as a, joined(other, "doors", "b") as b, joined(one, "doors", "c") as c:
        b.until("system/presence")
        members = get(other, "/spaces/doors", token("doors", "c")).json["participants"]
        assert {member["id"]: member["present"] for member in members} == {"a": True, "b": True, "c": True}
        a.chat("for b alone", to=["b"])
        assert b.until("chat")["payload"]["text"] == "for b alone"
        assert not [x for x in c.sync() if slashed_kind(x) == "chat"]

        a.say(kind="capability/grant", payload={"recipient": "b", "capabilities": ["space/*"]})
        b.until("system/welcome")
        b.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        a.until("reasoning/start")
        a.say(kind="reasoning/cancel", context="r-1", payload={"reason": "no"})
        b.until("reasoning/cancel")
        assert b.refused(kind="reasoning/thought", context="r-1", payload={})["code"] == "context_ended"

        b.say(kind="space/kick", payload={"participant_id": "c"})
        assert c.closed() == 4403
        assert post(one, "/spaces/doors/envelopes", {"kind": "chat"}, token("doors", "c")).status == 403

        # A participant resumes at the other gateway.
        head = get(other, "/spaces/doors", token("doors", "a")).json["head"]
        a.chat("one more")
        with joined(other, "doors", "a", query=f"?after_seq={head}") as again:
            assert again.until("chat")["payload"]["text"] == "one more"


def test_a_killed_gateway_loses_no_echoed_envelope(two_gateways: list[Replica]) -> None:
    one, other = two_gateways
    echoed: list[str] = []
    with joined(other, "death", "b") as b, joined(one, "death", "a", close_timeout=0.2) as a:
        a.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        for n in range(60):
            a.send(kind="chat", id=f"d-{n}", payload={"text": str(n)})
        while len(echoed) < 25:
            echoed.append(a.until("chat")["id"])
        one.kill()
        left = b.until("system/presence")
        while left["payload"]["event"] != "leave":
            left = b.until("system/presence")
        assert left["payload"]["participant"]["id"] == "a"
        cancelled = b.until("reasoning/cancel")
        assert (cancelled["from"], cancelled["context"]) == ("system:gateway", "r-1")
    page = get(other, "/spaces/death/envelopes?kind=chat&limit=500", token("death", "b")).json["envelopes"]
    stored = [x["id"] for x in page]
    assert stored[: len(echoed)] == echoed
    assert len(stored) == len(set(stored))
