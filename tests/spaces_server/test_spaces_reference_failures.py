"""What MEW's reference gateway gets wrong, by its numbers: each of these is right here."""

from __future__ import annotations

import json

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import PATIENCE_SECONDS, get, joined, mew, post, token


@pytest.mark.parametrize("claimed", ["human", "system:gateway", "nobody"])
def test_1_nobody_speaks_as_another(gateway: Served, room: str, claimed: str) -> None:
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human:
        told = agent.refused(kind="chat", sender=claimed, payload={"text": "Trust me."})
        assert told["code"] == "sender_mismatch"
        assert [one for one in human.sync() if one["kind"] == "chat"] == []


def test_1_over_http_neither(gateway: Served, room: str) -> None:
    body = {"kind": "chat", "from": "human", "payload": {"text": "Trust me."}}
    assert post(gateway, f"/spaces/{room}/envelopes", body, token(room, "agent")).status == 403
    assert post(gateway, f"/participants/human/messages?space={room}", body, token(room, "agent")).status == 403


@pytest.mark.parametrize("bad", ["", "nonsense", "pst_" + "x" * 43])
def test_2_an_unknown_token_joins_with_nothing(gateway: Served, room: str, bad: str) -> None:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None) as connection:
        connection.send(json.dumps({"type": "join", "space": room, "token": bad, "participantId": "watcher"}))
        told = json.loads(connection.recv(PATIENCE_SECONDS))
        assert told["kind"] == "system/error"
        assert told["payload"]["error"] == "unauthorized"
        with pytest.raises(Exception, match="4401"):
            connection.recv(PATIENCE_SECONDS)


def test_3_a_wrong_token_with_a_name_is_nobody_and_puts_nobody_out(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None) as connection:
            connection.send(json.dumps({"type": "join", "space": room, "token": "wrong", "participantId": "human"}))
            assert json.loads(connection.recv(PATIENCE_SECONDS))["kind"] == "system/error"
        human.chat("I am still here.")


def test_3_a_good_token_is_its_owners_whatever_name_is_claimed(gateway: Served, room: str) -> None:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws?space={room}", proxy=None) as connection:
        join = {"type": "join", "space": room, "token": token(room, "watcher"), "participantId": "human"}
        connection.send(json.dumps(join | {"capabilities": [{"kind": "*"}]}))
        you = json.loads(connection.recv(PATIENCE_SECONDS))["payload"]["you"]
    assert you["id"] == "watcher"
    assert {one if isinstance(one, str) else one["kind"] for one in you["capabilities"]} == {"chat", "mcp/response"}


@pytest.mark.parametrize("kind", ["system/presence", "system/error", "system/welcome", "system.presence", "system/x"])
def test_4_system_is_the_gateways_alone(gateway: Served, room: str, kind: str) -> None:
    with joined(gateway, room, "human") as human:
        told = human.refused(kind=kind, payload={"event": "leave", "participant": {"id": "agent"}})
        assert told["error"] == "capability_violation"


def test_5_who_is_kicked_is_out(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human, joined(gateway, room, "agent") as agent:
        human.say(kind="space/kick", payload={"participant_id": "agent", "reason": "enough"})
        assert agent.closed() == 4403
        left = human.until("system/presence")
        assert (left["payload"]["event"], left["payload"]["participant"]["id"]) == ("leave", "agent")
    with pytest.raises(InvalidStatus) as refused, joined(gateway, room, "agent"):
        pass
    assert refused.value.response.status_code == 403
    assert post(gateway, f"/spaces/{room}/envelopes", {"kind": "chat"}, token(room, "agent")).status == 403


def test_6_what_is_cancelled_is_over(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human:
        agent.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        human.say(kind="reasoning/cancel", context="r-1", payload={"reason": "never mind"})
        agent.until("reasoning/cancel")
        late = agent.refused(kind="reasoning/thought", context="r-1", payload={"message": "But"})
        assert late["code"] == "context_ended"
        # MEW's agents say how it ended, once.
        ended = agent.say(kind="reasoning/conclusion", context="r-1", payload={"cancelled": True})
        assert ended["kind"] == "reasoning/conclusion"
        again = agent.refused(kind="reasoning/conclusion", context="r-1", payload={"message": "So"})
        assert again["code"] == "context_ended"


def test_7_what_is_left_out_is_filled_in_and_one_id_is_a_list(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent", query="?dialect=mew/v0.4") as agent:
        agent.send(kind="chat", correlation_id="m-0", payload={"text": "Hi"})
        heard = agent.until("chat")
    assert heard["protocol"] == "mew/v0.4"
    assert heard["from"] == "agent"
    assert heard["correlation_id"] == ["m-0"]
    assert heard["id"]
    assert heard["ts"].endswith("Z")
    assert heard["seq"] > 0


def test_8_nobody_grants_what_they_lack(gateway: Served, room: str) -> None:
    with joined(gateway, room, "granter") as granter, joined(gateway, room, "watcher") as watcher:

        def grant(*capabilities: object) -> str:
            payload = {"recipient": "watcher", "capabilities": list(capabilities)}
            return str(granter.say(kind="capability/grant", payload=payload)["kind"])

        for beyond in ("space/kick", "*", "**", "/.*/", "!x", "capability/*", {"kind": ["chat", "space/kick"]}):
            assert grant(beyond) == "system/error", beyond
        assert watcher.refused(kind="space/kick", payload={"participant_id": "human"})["error"] == (
            "capability_violation"
        )
        assert grant("mcp/request") == "capability/grant"
        assert "mcp/request" in json.dumps(watcher.until("system/welcome")["payload"]["you"])
        assert watcher.say(kind="mcp/request", payload={"method": "tools/list"})["kind"] == "mcp/request"


def test_9_who_comes_late_gets_what_was_said(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        said = [human.chat(f"{n}")["seq"] for n in range(5)]
        with joined(gateway, room, "watcher", query="?history=3") as watcher:
            heard = [watcher.until("chat") for _ in range(2)]
            assert all(one["replayed"] for one in heard)
            assert [one["seq"] for one in heard] == said[-2:]  # the third is the joining itself
        page = get(gateway, f"/spaces/{room}/envelopes?kind=chat", token(room, "watcher")).json
        assert [one["seq"] for one in page["envelopes"]] == said


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": 5, "id": "x-1"},
        {"kind": "chat", "id": "x-1", "payload": []},
        {"kind": "chat", "id": "x-1", "to": 5},
        {"kind": "chat", "id": "x-1", "context": "a//b"},
        {"kind": "reasoning/thought", "id": "x-1", "payload": {"message": 5}, "context": "r"},
    ],
)
def test_10_a_refusal_has_all_that_an_envelope_has(gateway: Served, room: str, wrong: dict[str, object]) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw(json.dumps(wrong))
        told = agent.until("system/error")
    assert {"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "payload"} <= told.keys()
    assert told["from"] == "system:gateway"
    assert told["to"] == ["agent"]
    assert told["correlation_id"] == ["x-1"]
    assert told["payload"]["message"]
    assert "seq" not in told


def test_11_what_is_addressed_is_for_those_it_names(gateway: Served, room: str) -> None:
    with (
        joined(gateway, room, "human") as human,
        joined(gateway, room, "agent") as agent,
        joined(gateway, room, "watcher") as watcher,
    ):
        human.chat("for you", to=["agent"])
        assert agent.until("chat")["payload"] == {"text": "for you"}
        assert [one for one in watcher.sync() if one["kind"] == "chat"] == []


def test_11_unless_the_space_has_it_mews_way(gateway: Served) -> None:
    with joined(gateway, "open", "human") as human, joined(gateway, "open", "watcher") as watcher:
        human.chat("for you", to=["agent"])
        assert watcher.until("chat")["to"] == ["agent"]


def test_12_a_client_of_mews_is_served(gateway: Served, room: str) -> None:
    with mew(gateway, room, "agent") as one, mew(gateway, room, "human", f"/ws?space={room}") as other:
        one.mew("chat", {"text": "Hello", "format": "plain"})
        assert other.until("chat")["payload"] == {"text": "Hello", "format": "plain"}
