"""Regressions on real sockets: confusable field names, memory of unauthenticated connections, reused ids."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.cases import Cases
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Client, get, joined, served, slashed_kind, token


def test_system_kinds_are_reserved_in_every_spelling(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human, Cases() as case:
        for kind in ("system:x", "system:gateway/x", "System:presence", "system:a.b"):
            with case(kind):
                assert human.refused(kind=kind, payload={})["code"] == "capability_violation"


CONFUSABLE_FIELDS = [
    "FROM",
    "From",
    "Seq",
    "REPLAYED",
    "Kind",
    "To",
    "Payload",
    "ſeq",
    "\u212aind",
    "Token",
    "correlation_ID",
]


def test_fields_that_other_parsers_confuse_are_refused(gateway: Served, room: str) -> None:
    """Go's JSON decoder reads `FROM` as `from`."""
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human, Cases() as case:
        for name in CONFUSABLE_FIELDS:
            with case(name):
                refused = agent.refused(kind="chat", payload={"text": "Hi"}, **{name: "human"})
                assert (refused["code"], refused["param"]) == ("invalid_value", name)
                stored = agent.say(kind="chat", payload={"text": "Hi", name: "human"}, sender_name="x", fromage="brie")
                assert stored["fromage"] == "brie"
                received = human.until("chat")
                assert received["id"] == stored["id"]
                assert {key.casefold() for key in received} == set(received)


def test_an_invitation_with_an_invalid_name_is_refused(gateway: Served, room: str) -> None:
    def members() -> set[str]:
        return {one["id"] for one in get(gateway, f"/spaces/{room}", token(room, "human")).json["participants"]}

    with joined(gateway, room, "human") as human, Cases() as case:
        for name in ("SYSTEM:x", "agent\u200b", "\u202etnega", "a\nb", "x" * 256, " \t", ""):
            with case(repr(name)):
                before = members()
                human.refused(kind="space/invite", payload={"participant_id": name, "initial_capabilities": ["chat"]})
                assert members() == before


def test_a_kicked_participant_cannot_list_the_space(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        mine = token(room, "watcher")
        assert [row["name"] for row in get(gateway, "/spaces", mine).json["spaces"]] == [room]
        human.say(kind="space/kick", payload={"participant_id": "watcher"})
        refused = get(gateway, "/spaces", mine)
        assert refused.status == 403
        assert room not in refused.body.decode()
        human.say(kind="space/invite", payload={"participant_id": "watcher"})
        assert [row["name"] for row in get(gateway, "/spaces", mine).json["spaces"]] == [room]


@pytest.mark.parametrize("frame", ["#stream-1#some words", "#stream-1#", b"#s#\xff\x00", "#"])
def test_stream_data_is_refused_with_its_own_code(gateway: Served, room: str, frame: str | bytes) -> None:
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human:
        agent.raw(frame)
        error = agent.until("system/error")["payload"]
        assert (error["error"], error["code"]) == ("stream_not_found", "stream_not_found")
        agent.chat("and on it goes")
        assert [slashed_kind(one) for one in human.sync() if one["from"] == "agent"] == ["chat"]


def test_a_rate_limited_envelope_is_named_in_the_error(tmp_path: Path) -> None:
    few = {"per_second": 0.1, "burst": 2}
    with (
        served(tmp_path, {"few": {"participants": ["a"], "limits": {"chat": few}}}) as gateway,
        joined(gateway, "few", "a") as a,
    ):
        for n in range(2):
            a.chat(str(n))
        reply = a.say(kind="chat", id="too-much", payload={"text": "Hi"})
        assert reply["correlation_id"] == ["too-much"]
        assert reply["payload"]["code"] == "rate_limited"
        assert reply["payload"]["attempted_kind"] == "chat"
        assert reply["payload"]["retry_after"] > 0


def test_frames_before_authentication_are_small(gateway: Served, room: str) -> None:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None) as connection:
        with suppress(ConnectionClosed):
            connection.send("x" * 3_000_000)
        stranger = Client(connection)
        assert stranger.closed() == 1009
        assert not stranger.seen
    # An authenticated client may send as much as the space accepts, also after a join frame.
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None, max_size=None) as connection:
        client = Client(connection)
        client.send(type="join", space=room, token=token(room, "agent"))
        client.until("system/welcome")
        assert client.chat("x" * 900_000)["seq"]
    with joined(gateway, room, "agent", max_size=None) as agent:
        assert agent.chat("x" * 900_000)["seq"]


def test_an_id_reused_after_a_restart_is_a_new_envelope(gateway: Served, room: str) -> None:
    """MEW's agents reuse the id of `tools/list` after each start: other participants must receive the request."""
    request = {"kind": "mcp/request", "id": "agent-1", "payload": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}
    with joined(gateway, room, "human") as human:
        for start in range(2):
            with joined(gateway, room, "agent") as agent:
                ts = f"2026-03-01T12:00:0{start}.000Z"
                first, again = agent.say(**request, ts=ts), agent.say(**request, ts=ts)
                assert first["seq"] == again["seq"]
                assert human.until("mcp/request")["seq"] == first["seq"]
