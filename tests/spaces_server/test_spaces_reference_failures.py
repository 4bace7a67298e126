"""Errors of MEW's reference gateway, by their numbers: this gateway is right in each case."""

from __future__ import annotations

import json

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import PATIENCE_SECONDS, get, joined, mew, post, token


@pytest.mark.parametrize("claimed", ["human", "system:gateway", "nobody"])
def test_1_a_claimed_sender_is_refused(gateway: Served, room: str, claimed: str) -> None:
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human:
        error = agent.refused(kind="chat", sender=claimed, payload={"text": "Trust me."})
        assert error["code"] == "sender_mismatch"
        assert [one for one in human.sync() if one["kind"] == "chat"] == []


def test_1_a_claimed_sender_is_refused_over_http(gateway: Served, room: str) -> None:
    body = {"kind": "chat", "from": "human", "payload": {"text": "Trust me."}}
    assert post(gateway, f"/spaces/{room}/envelopes", body, token(room, "agent")).status == 403
    assert post(gateway, f"/participants/human/messages?space={room}", body, token(room, "agent")).status == 403


@pytest.mark.parametrize("bad", ["", "nonsense", "pst_" + "x" * 43])
def test_2_an_unknown_token_is_refused(gateway: Served, room: str, bad: str) -> None:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None) as connection:
        connection.send(json.dumps({"type": "join", "space": room, "token": bad, "participantId": "watcher"}))
        error = json.loads(connection.recv(PATIENCE_SECONDS))
        assert error["kind"] == "system/error"
        assert error["payload"]["error"] == "unauthorized"
        with pytest.raises(Exception, match="4401"):
            connection.recv(PATIENCE_SECONDS)


def test_3_a_wrong_token_with_a_name_disconnects_no_participant(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None) as connection:
            connection.send(json.dumps({"type": "join", "space": room, "token": "wrong", "participantId": "human"}))
            assert json.loads(connection.recv(PATIENCE_SECONDS))["kind"] == "system/error"
        human.chat("I am still here.")


def test_3_the_token_decides_the_participant(gateway: Served, room: str) -> None:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws?space={room}", proxy=None) as connection:
        join = {"type": "join", "space": room, "token": token(room, "watcher"), "participantId": "human"}
        connection.send(json.dumps(join | {"capabilities": [{"kind": "*"}]}))
        you = json.loads(connection.recv(PATIENCE_SECONDS))["payload"]["you"]
    assert you["id"] == "watcher"
    assert {one if isinstance(one, str) else one["kind"] for one in you["capabilities"]} == {"chat", "mcp/response"}


@pytest.mark.parametrize("kind", ["system/presence", "system/error", "system/welcome", "system.presence", "system/x"])
def test_4_system_kinds_are_reserved_for_the_gateway(gateway: Served, room: str, kind: str) -> None:
    with joined(gateway, room, "human") as human:
        error = human.refused(kind=kind, payload={"event": "leave", "participant": {"id": "agent"}})
        assert error["error"] == "capability_violation"


def test_5_a_kicked_participant_cannot_return(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human, joined(gateway, room, "agent") as agent:
        human.say(kind="space/kick", payload={"participant_id": "agent", "reason": "enough"})
        assert agent.closed() == 4403
        left = human.until("system/presence")
        assert (left["payload"]["event"], left["payload"]["participant"]["id"]) == ("leave", "agent")
    with pytest.raises(InvalidStatus) as refused, joined(gateway, room, "agent"):
        pass
    assert refused.value.response.status_code == 403
    assert post(gateway, f"/spaces/{room}/envelopes", {"kind": "chat"}, token(room, "agent")).status == 403


def test_6_a_cancelled_context_accepts_only_its_conclusion(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human:
        agent.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        human.say(kind="reasoning/cancel", context="r-1", payload={"reason": "never mind"})
        agent.until("reasoning/cancel")
        late = agent.refused(kind="reasoning/thought", context="r-1", payload={"message": "But"})
        assert late["code"] == "context_ended"
        # MEW's agents send one conclusion after a cancel.
        ended = agent.say(kind="reasoning/conclusion", context="r-1", payload={"cancelled": True})
        assert ended["kind"] == "reasoning/conclusion"
        again = agent.refused(kind="reasoning/conclusion", context="r-1", payload={"message": "So"})
        assert again["code"] == "context_ended"


def test_7_missing_fields_are_filled_in(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent", query="?dialect=mew/v0.4") as agent:
        agent.send(kind="chat", correlation_id="m-0", payload={"text": "Hi"})
        received = agent.until("chat")
    assert received["protocol"] == "mew/v0.4"
    assert received["from"] == "agent"
    assert received["correlation_id"] == ["m-0"]
    assert received["id"]
    assert received["ts"].endswith("Z")
    assert received["seq"] > 0


def test_8_a_grant_beyond_the_own_capabilities_is_refused(gateway: Served, room: str) -> None:
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


def test_9_a_late_participant_gets_the_history(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        sent = [human.chat(f"{n}")["seq"] for n in range(5)]
        with joined(gateway, room, "watcher", query="?history=3") as watcher:
            received = [watcher.until("chat") for _ in range(2)]
            assert all(one["replayed"] for one in received)
            assert [one["seq"] for one in received] == sent[-2:]  # the third envelope is the own join
        page = get(gateway, f"/spaces/{room}/envelopes?kind=chat", token(room, "watcher")).json
        assert [one["seq"] for one in page["envelopes"]] == sent


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
def test_10_a_refusal_is_a_complete_envelope(gateway: Served, room: str, wrong: dict[str, object]) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.raw(json.dumps(wrong))
        error = agent.until("system/error")
    assert {"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "payload"} <= error.keys()
    assert error["from"] == "system:gateway"
    assert error["to"] == ["agent"]
    assert error["correlation_id"] == ["x-1"]
    assert error["payload"]["message"]
    assert "seq" not in error


def test_11_an_addressed_envelope_reaches_its_targets_only(gateway: Served, room: str) -> None:
    with (
        joined(gateway, room, "human") as human,
        joined(gateway, room, "agent") as agent,
        joined(gateway, room, "watcher") as watcher,
    ):
        human.chat("for you", to=["agent"])
        assert agent.until("chat")["payload"] == {"text": "for you"}
        assert [one for one in watcher.sync() if one["kind"] == "chat"] == []


def test_11_with_advisory_addresses_everyone_reads_it(gateway: Served) -> None:
    with joined(gateway, "open", "human") as human, joined(gateway, "open", "watcher") as watcher:
        human.chat("for you", to=["agent"])
        assert watcher.until("chat")["to"] == ["agent"]


def test_12_the_mew_client_works(gateway: Served, room: str) -> None:
    with mew(gateway, room, "agent") as one, mew(gateway, room, "human", f"/ws?space={room}") as other:
        one.mew("chat", {"text": "Hello", "format": "plain"})
        assert other.until("chat")["payload"] == {"text": "Hello", "format": "plain"}
