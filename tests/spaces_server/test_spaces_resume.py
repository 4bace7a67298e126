"""Resuming from the last received sequence number, without gap or repeat, while others send."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Body, get, joined, mew, served, slashed_kind, token


def test_repeated_resumes_miss_nothing(gateway: Served, room: str) -> None:
    done = threading.Event()

    def talk() -> None:
        with joined(gateway, room, "human") as human:
            for n in range(90):
                human.chat(f"{n}")
        done.set()

    received_seqs: list[int] = []
    talker = threading.Thread(target=talk)
    with joined(gateway, room, "watcher") as first:
        after = first.welcome["head"]
    talker.start()
    try:
        while not (done.is_set() and len(received_seqs) >= 90):
            with joined(gateway, room, "watcher", query=f"?after_seq={after}") as watcher:
                try:
                    for _ in range(17):
                        one = watcher.next(0.5)
                        after = one.get("seq", after)
                        if slashed_kind(one) == "chat":
                            assert "replayed" not in one
                            received_seqs.append(one["seq"])
                except TimeoutError:
                    pass
    finally:
        talker.join()
    chats = get(gateway, f"/spaces/{room}/envelopes?kind=chat&limit=500", token(room, "human")).json["envelopes"]
    assert received_seqs == [one["seq"] for one in chats]
    assert len(received_seqs) == 90


def test_a_reused_id_with_the_same_payload_is_the_same_envelope(gateway: Served, room: str) -> None:
    """The same id and payload is the same envelope; with another payload it is a new one."""
    for text, expected_count in (("one", 1), ("two", 2), ("two", 2)):
        with mew(gateway, room, "agent") as client:
            reply = client.mew("chat", {"text": text}, ts="2026-03-01T12:00:00.000Z")
            assert reply["kind"] == "chat"
        page = get(gateway, f"/spaces/{room}/envelopes?kind=chat", token(room, "agent")).json
        assert len(page["envelopes"]) == expected_count


def test_a_space_survives_a_restart(tmp_path: Path) -> None:
    rooms = {"r": {"participants": {"a": ["*"], "b": ["chat"]}}}
    store = {"storage": {"url": f"sqlite:///{tmp_path / 'kept.sqlite'}"}}
    with served(tmp_path, rooms, **store) as own, joined(own, "r", "a") as a:
        a.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        a.say(kind="capability/grant", payload={"recipient": "b", "capabilities": ["mcp/request"]})
        a.say(kind="space/invite", payload={"participant_id": "c", "initial_capabilities": ["chat"]})
        invited = a.until("space/invite-ack")["payload"]["token"]
        head = get(own, "/spaces/r", token("r", "a")).json["head"]
    with served(tmp_path, rooms, **store) as own:
        with joined(own, "r", "b", query=f"?after_seq={head}") as b:
            assert b.say(kind="mcp/request", payload={"method": "tools/list"})["kind"] == "mcp/request"
        with joined(own, "r", "c", with_token=invited) as c:
            c.chat("I was invited")
        with joined(own, "r", "a") as a:
            assert a.say(kind="reasoning/start", id="r-1")["payload"]["code"] == "id_conflict"


def test_a_changed_configuration_applies_after_a_restart(tmp_path: Path) -> None:
    """A removed and an added participant, other capabilities, another token: after a restart."""
    store = {"storage": {"url": f"sqlite:///{tmp_path / 'kept.sqlite'}"}}
    before = {"r": {"participants": {"a": ["*"], "b": ["chat"]}}}
    with served(tmp_path, before, **store) as own, joined(own, "r", "a") as a:
        a.chat("before")
    rooms: dict[str, Body] = {"r": {"participants": {"a": ["chat"], "c": ["*"]}, "reasoning": "flag"}}
    with served(tmp_path, rooms, **store) as own:
        with joined(own, "r", "a") as a, joined(own, "r", "c") as c:
            assert a.refused(kind="mcp/request", payload={})["code"] == "capability_violation"
            assert c.say(kind="reasoning/conclusion", context="never", payload={})["kind"] == "reasoning/conclusion"
        assert get(own, "/spaces/r", token("r", "b")).status == 401
        page = get(own, "/spaces/r/envelopes?kind=chat", token("r", "c")).json
        assert json.dumps(page["envelopes"]).count("before") == 1


@pytest.mark.parametrize("dialect", ["mew/v0.4", "meup-draft"])
def test_two_sessions_of_a_participant_join_once(gateway: Served, room: str, dialect: str) -> None:
    with joined(gateway, room, "human") as human:
        with joined(gateway, room, "agent") as one, joined(gateway, room, "agent", query=f"?dialect={dialect}") as two:
            one.chat("from one")
            assert two.until("chat")["from"] == "agent"
        events = [
            (x["payload"]["event"], x["payload"]["participant"]["id"])
            for x in (human.until("system/presence") for _ in range(2))
        ]
        assert events == [("join", "agent"), ("leave", "agent")]
