"""What broke once, on real sockets: names that are read as others, strangers who fill the memory, clocks put back."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.cases import Cases
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Client, get, joined, served, slashes, token


def test_system_is_the_gateways_in_every_spelling(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human, Cases() as case:
        for kind in ("system:x", "system:gateway/x", "System:presence", "system:a.b"):
            with case(kind):
                assert human.refused(kind=kind, payload={})["code"] == "capability_violation"


ALIKE = ["FROM", "From", "Seq", "REPLAYED", "Kind", "To", "Payload", "ſeq", "\u212aind", "Token", "correlation_ID"]


def test_no_field_is_written_that_others_read_as_another(gateway: Served, room: str) -> None:
    """Go reads `FROM` where it looks for `from`."""
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human, Cases() as case:
        for name in ALIKE:
            with case(name):
                refused = agent.refused(kind="chat", payload={"text": "Hi"}, **{name: "human"})
                assert (refused["code"], refused["param"]) == ("invalid_value", name)
                kept = agent.say(kind="chat", payload={"text": "Hi", name: "human"}, sender_name="x", fromage="brie")
                assert kept["fromage"] == "brie"
                heard = human.until("chat")
                assert heard["id"] == kept["id"]
                assert {key.casefold() for key in heard} == set(heard)


def test_nobody_is_invited_by_a_name_that_is_no_name(gateway: Served, room: str) -> None:
    def members() -> set[str]:
        return {one["id"] for one in get(gateway, f"/spaces/{room}", token(room, "human")).json["participants"]}

    with joined(gateway, room, "human") as human, Cases() as case:
        for name in ("SYSTEM:x", "agent\u200b", "\u202etnega", "a\nb", "x" * 256, " \t", ""):
            with case(repr(name)):
                before = members()
                human.refused(kind="space/invite", payload={"participant_id": name, "initial_capabilities": ["chat"]})
                assert members() == before


def test_who_was_put_out_is_told_nothing_of_the_space(gateway: Served, room: str) -> None:
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
def test_the_data_of_a_stream_is_refused_by_its_name(gateway: Served, room: str, frame: str | bytes) -> None:
    with joined(gateway, room, "agent") as agent, joined(gateway, room, "human") as human:
        agent.raw(frame)
        told = agent.until("system/error")["payload"]
        assert (told["error"], told["code"]) == ("stream_not_found", "stream_not_found")
        agent.chat("and on it goes")
        assert [slashes(one) for one in human.sync() if one["from"] == "agent"] == ["chat"]


def test_whoever_says_too_much_is_told_what_was_not_taken(tmp_path: Path) -> None:
    few = {"per_second": 0.1, "burst": 2}
    with (
        served(tmp_path, {"few": {"participants": ["a"], "limits": {"chat": few}}}) as gateway,
        joined(gateway, "few", "a") as a,
    ):
        for n in range(2):
            a.chat(str(n))
        told = a.say(kind="chat", id="too-much", payload={"text": "Hi"})
        assert told["correlation_id"] == ["too-much"]
        assert told["payload"]["code"] == "rate_limited"
        assert told["payload"]["attempted_kind"] == "chat"
        assert told["payload"]["retry_after"] > 0


def test_strangers_fill_no_memory(gateway: Served, room: str) -> None:
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None) as connection:
        with suppress(ConnectionClosed):
            connection.send("x" * 3_000_000)
        stranger = Client(connection)
        assert stranger.closed() == 1009
        assert not stranger.seen
    # Whoever is known may send as much as the space takes, also after a join.
    with connect(f"ws://127.0.0.1:{gateway.port}/ws", proxy=None, max_size=None) as connection:
        client = Client(connection)
        client.send(type="join", space=room, token=token(room, "agent"))
        client.until("system/welcome")
        assert client.chat("x" * 900_000)["seq"]
    with joined(gateway, room, "agent", max_size=None) as agent:
        assert agent.chat("x" * 900_000)["seq"]


def test_a_client_that_counts_its_ids_anew_is_heard_again_with_the_same_words(gateway: Served, room: str) -> None:
    """MEW's agents ask `tools/list` by the same id after each start: the others are to hear it."""
    asked = {"kind": "mcp/request", "id": "agent-1", "payload": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}
    with joined(gateway, room, "human") as human:
        for start in range(2):
            with joined(gateway, room, "agent") as agent:
                ts = f"2026-03-01T12:00:0{start}.000Z"
                first, again = agent.say(**asked, ts=ts), agent.say(**asked, ts=ts)
                assert first["seq"] == again["seq"]
                assert human.until("mcp/request")["seq"] == first["seq"]
