"""Values that pass from HTTP and WebSocket to the runtime and the history, and back, unchanged."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from websockets.sync.client import connect

from pellucid.cli.main import main
from pellucid.server.config import check_config
from pellucid.server.space_config import SpaceConfig
from pellucid.spaces.runtime.settings import read_settings
from tests.scripted.gateway import Served, serve
from tests.spaces_server.space_wire_kit import Client, get, joined, post, served, slashed_kind, spaces_of, token

INVITE: dict[str, Any] = {"kind": "space/invite", "payload": {"initial_capabilities": [{"kind": "chat"}]}}


def invite(who: str) -> dict[str, Any]:
    return {**INVITE, "payload": {**INVITE["payload"], "participant_id": who}}


def test_the_connection_url_of_an_invitation_works(gateway: Served, room: str) -> None:
    """It has the host by which the inviter came, also through a proxy; an invalid host is not repeated."""
    with joined(gateway, room, "human") as human:
        human.send(**invite("guest"))
        ack = human.until("space/invite-ack")["payload"]
    assert ack["connection_url"] == f"ws://127.0.0.1:{gateway.port}/spaces/{room}/ws"
    headers = {"Authorization": f"Bearer {ack['token']}"}
    with connect(ack["connection_url"], additional_headers=headers, proxy=None) as connection:
        guest = Client(connection)
        assert guest.until("system/welcome")["payload"]["you"]["id"] == "guest"
    bearer = {"Authorization": f"Bearer {token(room, 'human')}", "Content-Type": "application/json"}
    for number, (more, address) in enumerate(
        (
            ({"X-Forwarded-Proto": "https", "X-Forwarded-Host": "spaces.example"}, "wss://spaces.example"),
            ({"Host": "spaces.example:8443"}, "ws://spaces.example:8443"),
            ({"Host": "[::1]:9"}, "ws://[::1]:9"),
            ({"X-Forwarded-Host": "evil.example/path?x"}, ""),
        )
    ):
        body = json.dumps(invite(f"guest-{number}")).encode()
        reply = gateway.request("POST", f"/spaces/{room}/envelopes", body, {**bearer, **more})
        [answer] = reply.json["answers"]
        assert answer["payload"]["connection_url"] == f"{address}/spaces/{room}/ws"


@pytest.fixture(scope="module")
def flagging(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("flagging")
    with served(folder, {"f": {"participants": ["a", "b"], "reasoning": "flag"}}) as running:
        yield running


def test_flags_are_delivered_over_websocket_and_http(flagging: Served) -> None:
    with joined(flagging, "f", "a") as a, joined(flagging, "f", "b") as b:
        a.say(kind="reasoning/start", id="r", payload={"message": "x"})
        late = a.say(kind="reasoning/thought", context="r", payload={"message": "builds", "references": ["nothing"]})
        assert [flag["code"] for flag in late["flags"]] == ["unknown_reference"]
        assert b.until("reasoning/thought") == late
        mine = b.say(kind="chat", payload={"text": "hi"}, flags=[{"code": "x", "message": "mine"}])
        assert "flags" not in mine
    bearer = token("f", "b")
    assert get(flagging, f"/spaces/f/envelopes/{late['seq']}", bearer).json == late
    assert late in get(flagging, "/spaces/f/envelopes", bearer).json["envelopes"]
    [hit] = get(flagging, "/spaces/f/search?q=builds", bearer).json["hits"]
    assert hit["envelope"] == late
    tree = get(flagging, "/spaces/f/contexts/r", bearer).json["trees"][0]
    assert [step["envelope"] for step in tree["steps"]] == [late]
    assert late in [json.loads(line) for line in get(flagging, "/spaces/f/export", bearer).body.splitlines()]
    envelope = {"kind": "reasoning/thought", "context": "r", "payload": {"references": ["x"]}}
    assert post(flagging, "/spaces/f/envelopes", envelope, bearer).json["flags"][0]["code"] == "unknown_reference"
    assert "flags" not in post(flagging, "/spaces/f/envelopes", {"kind": "chat", "payload": {"text": "x"}}, bearer).json


def test_export_options_are_applied(gateway: Served, room: str) -> None:
    """The last line has the record's head; training data can be limited to complete conversations, without metadata."""
    with joined(gateway, room, "human") as human, joined(gateway, room, "agent") as agent:
        for number in ("answered", "open"):
            human.say(kind="chat", id=number, payload={"text": f"Why {number}?"})
            agent.say(kind="reasoning/start", id=f"r-{number}", correlation_id=[number], payload={"message": "Hm"})
        agent.say(kind="reasoning/conclusion", context="r-answered", payload={"message": "So."})
        agent.say(kind="chat", correlation_id=["answered", "r-answered"], payload={"text": "Because."})
    bearer = token(room, "human")

    def lines(query: str) -> list[dict[str, Any]]:
        body = get(gateway, f"/spaces/{room}/export?{query}", bearer).body
        return [json.loads(line) for line in body.splitlines()]

    export = lines("format=jsonl")[-1]["export"]
    assert export["record"]["scope"] == f"space:{room}"
    assert export["record"]["number"] == export["last_seq"] or export["record"]["number"] > export["count"] - 1
    assert re.fullmatch("[0-9a-f]{64}", export["record"]["hash"])
    assert len(lines("format=chat-jsonl")) == 2
    [complete] = lines("format=chat-jsonl&complete=true&metadata=false&reasoning=think")
    assert "metadata" not in complete
    assert "<think>" in json.dumps(complete)
    for wrong in ("metadata=perhaps", "complete=7", "reasoning=loud"):
        assert get(gateway, f"/spaces/{room}/export?format=chat-jsonl&{wrong}", bearer).status == 400
    where = ["--url", f"ws://127.0.0.1:{gateway.port}/spaces/{room}/ws", "--token", bearer]
    run = ["space", "export", *where, "--format", "chat-jsonl", "--complete", "--no-metadata", "--reasoning", "think"]
    result = CliRunner().invoke(main, run)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [complete]


def test_replay_pauses_can_be_limited(gateway: Served, room: str) -> None:
    """At a thousandth of the pace, with a limit for pauses: over HTTP, a WebSocket and the command."""
    with joined(gateway, room, "human") as human:
        human.chat("one")
        assert human.silent(0.05)
        human.chat("two")
    bearer = token(room, "human")
    query = "speed=0.0001&longest_pause=0.01"
    body = get(gateway, f"/spaces/{room}/replay?{query}", bearer).body
    assert [json.loads(line)["kind"] for line in body.splitlines()][-2:].count("chat") >= 1
    with joined(gateway, room, "human", query=f"?replay=original&{query}") as client:
        assert client.welcome["replay"]["longest_pause"] == 0.01
        assert client.closed() == 1000
        assert [one["payload"]["text"] for one in client.seen if slashed_kind(one) == "chat"] == ["one", "two"]
    where = ["--url", f"ws://127.0.0.1:{gateway.port}/spaces/{room}/ws", "--token", bearer, "--json"]
    result = CliRunner().invoke(main, ["space", "replay", *where, "--speed", "0.0001", "--longest-pause", "0.01"])
    assert [json.loads(line)["kind"] for line in result.stdout.splitlines()].count("chat") == 2
    for wrong in ("0", "-1", "x", "nan", "1e9"):
        assert get(gateway, f"/spaces/{room}/replay?longest_pause={wrong}", bearer).status == 400


def test_search_ignores_json_rpc_metadata(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        call = {"jsonrpc": "2.0", "id": "id-of-the-call", "method": "tools/call", "params": {"name": "git_diff"}}
        human.say(kind="mcp/request", payload=call)
        human.say(kind="chat", payload={"text": "in 2.0", "id": "id-of-the-chat"})
    bearer = token(room, "human")
    kinds = {
        query: [
            hit["envelope"]["kind"] for hit in get(gateway, f"/spaces/{room}/search?q={query}", bearer).json["hits"]
        ]
        for query in ("2.0", "id-of-the-call", "id-of-the-chat", "git_diff")
    }
    assert kinds == {"2.0": ["chat"], "id-of-the-call": [], "id-of-the-chat": ["chat"], "git_diff": ["mcp/request"]}
    [hit] = get(gateway, f"/spaces/{room}/search?q=git_diff", bearer).json["hits"]
    assert "2.0" not in hit["snippet"]


def test_an_infinite_idle_time_can_be_configured(tmp_path: Path) -> None:
    """`idle_seconds = inf`: through the configuration, a worker's copy and the store."""
    space = spaces_of(tmp_path, {"r": {"participants": ["a"], "idle_seconds": float("inf")}})
    config = check_config({"local": {"enabled": False}, "spaces": space}, {})
    assert config.spaces["r"].settings.lifecycle().idle_ms is None
    assert read_settings(config.spaces["r"].settings.dump()).idle_seconds is None
    with serve(config) as gateway:
        assert get(gateway, "/spaces/r", token("r", "a")).json["settings"]["idle_seconds"] is None
    assert SpaceConfig().settings.lifecycle().idle_ms == 1_800_000


def test_the_space_commands_need_only_the_store_of_the_configuration(tmp_path: Path) -> None:
    """Neither the keys of its providers nor the tokens of its participants; what the store needs is required."""
    file = tmp_path / "gateway.toml"
    file.write_text(
        f"""
        [providers.deepseek]
        api_key_env = "NOT_HERE_KEY"
        [storage]
        url = "sqlite:///{tmp_path / "kept.sqlite"}"
        [relay]
        url_env = "NOT_HERE_RELAY"
        [spaces.review.participants.alice]
        token_env = "NOT_HERE_TOKEN"
        """
    )

    def run(*args: str) -> Any:
        result = CliRunner().invoke(main, ["space", *args, "--config", str(file), "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    assert run("create", "made", "--participant", "bob")["tokens"].keys() == {"bob"}
    assert run("add", "made", "--participant", "cyd")["tokens"].keys() == {"cyd"}
    assert [one["name"] for one in run("list")] == ["made"]
    assert run("delete", "made", "--yes")["deleted"]
    file.write_text('[storage]\nurl_env = "NOT_HERE_STORE"\n')
    refused = CliRunner().invoke(main, ["space", "list", "--config", str(file)])
    assert refused.exit_code != 0
    assert "NOT_HERE_STORE" in refused.output
    file.write_text('[storage]\nurl = "mysql://x"\n[spaces.r]\nreasonin = "x"\n')
    refused = CliRunner().invoke(main, ["space", "list", "--config", str(file)])
    assert refused.exit_code != 0
    assert "reasonin" in refused.output
