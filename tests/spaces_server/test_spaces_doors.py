"""Who comes in, by which door, with what; and what those who do not are told."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from pellucid.server.config import check_config
from pellucid.server.spaces import socket as door
from tests.cases import Cases
from tests.scripted import serve
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import (
    PATIENCE_SECONDS,
    Body,
    Client,
    get,
    joined,
    mew,
    post,
    served,
    spaces_of,
    token,
)


def dial(gateway: Served, path: str, bearer: str | None = None, **more: Any) -> ClientConnection:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    connection: ClientConnection = connect(
        f"ws://127.0.0.1:{gateway.port}{path}", additional_headers=headers, proxy=None, **more
    )
    return connection


def status_of(gateway: Served, path: str, bearer: str | None = None) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as refused:
        dial(gateway, path, bearer)
    body = refused.value.response.body or b"{}"
    return refused.value.response.status_code, json.loads(body)


# --- the upgrade -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/spaces/{room}/ws", "/ws?space={room}"])
def test_a_token_in_the_upgrade_opens_its_space(gateway: Served, room: str, path: str) -> None:
    with dial(gateway, path.format(room=room), token(room, "agent")) as connection:
        client = Client(connection)
        welcome = client.until("system/welcome")["payload"]
        assert welcome["you"]["id"] == "agent"
        assert {"participants", "head"} <= welcome.keys()
        client.chat("in")


def test_what_is_no_token_here_is_told_in_the_same_words(gateway: Served, room: str) -> None:
    told = [
        status_of(gateway, f"/spaces/{room}/ws", "nonsense"),
        status_of(gateway, f"/spaces/{room}/ws", token("room-0", "agent") + "x"),
        status_of(gateway, "/spaces/there-is-no-such-space/ws", token(room, "agent")),
        status_of(gateway, "/spaces/%2e%2e/ws", token(room, "agent")),
        status_of(gateway, "/ws?space=open", token(room, "agent")),
    ]
    assert [status for status, _ in told] == [401, 401, 403, 403, 403]
    assert told[0] == told[1], "a token that nobody has"
    assert told[2] == told[3] == told[4], "a token of another space, whether there is this one or not"
    assert get(gateway, f"/spaces/{room}", "nonsense").json == told[0][1]
    assert get(gateway, "/spaces/there-is-no-such-space/envelopes", token(room, "agent")).json == told[2][1]


WRONG_QUERIES = [
    "view=everything",
    "dialect=klingon",
    "after_seq=-1",
    "after_seq=x",
    "history=99999999",
    "replay=fast",
    "replay=original&speed=0",
    "replay=original&speed=nan",
    "replay=instant&since=yesterday",
]


def test_what_is_asked_wrongly_is_refused_before_it_is_taken(gateway: Served, room: str) -> None:
    with Cases() as case:
        for query in WRONG_QUERIES:
            with case(query):
                status, body = status_of(gateway, f"/spaces/{room}/ws?{query}", token(room, "agent"))
                assert status == 400
                assert body["error"]["message"]


@pytest.mark.parametrize(
    ("offered", "chosen", "protocol"),
    [
        (["mew.v0.4"], "mew.v0.4", "mew/v0.4"),
        (["meup.v0.2"], "meup.v0.2", "meup/v0.2"),
        (["meup-draft"], "meup-draft", "meup/draft"),
        (["graphql-ws", "meup-draft", "mew.v0.4"], "meup-draft", "meup/draft"),
    ],
)
def test_the_subprotocol_is_the_dialect(
    gateway: Served, room: str, offered: list[str], chosen: str, protocol: str
) -> None:
    with dial(gateway, f"/spaces/{room}/ws", token(room, "agent"), subprotocols=offered) as connection:
        assert connection.subprotocol == chosen
        assert json.loads(connection.recv(PATIENCE_SECONDS))["protocol"] == protocol


@pytest.mark.parametrize("name", ["meup-draft", "meup/v0.2", "mew/v0.4"])
def test_so_is_that_of_the_query(gateway: Served, room: str, name: str) -> None:
    with joined(gateway, room, "agent", query=f"?dialect={name}") as client:
        dots = name == "meup-draft"
        assert client.seen[0]["kind"] == ("system.welcome" if dots else "system/welcome")
        said = client.say(kind="chat", correlation_id=["m-0"], payload={"text": "Hi"})
        assert said["payload"] == ({"message": "Hi"} if dots else {"text": "Hi"})
        assert said["correlationId" if dots else "correlation_id"] == ("m-0" if dots else ["m-0"])


# --- the join frame --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/ws", "/ws?space={room}", "/spaces/{room}/ws"])
def test_mews_client_joins_wherever_it_is_pointed(gateway: Served, room: str, path: str) -> None:
    with mew(gateway, room, "agent", path.format(room=room)) as client:
        assert client.mew("chat", {"text": "Hi"})["from"] == "agent"


def test_a_join_may_say_from_where_on_and_how(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        first = agent.chat("one")["seq"]
        agent.say(kind="reasoning/start", id="r", payload={"message": "Hm"})
        agent.say(kind="reasoning/thought", context="r", payload={"message": "Well"})
        agent.chat("two")
    with dial(gateway, "/ws") as connection:
        client = Client(connection)
        client.send(
            type="join", space=room, token=token(room, "human"), after_seq=first, view="main", dialect="meup-draft"
        )
        client.until("system/welcome")
        told = client.until("chat")
        assert told["payload"] == {"message": "two"}
        assert "replayed" not in told
        assert not [one for one in client.seen if one["kind"].startswith("reasoning.thought")]


WRONG_JOINS = [
    ('{"kind": "chat", "payload": {"text": "Hi"}}', 4401),
    ('{"type": "join"}', 4400),
    ('{"type": "join", "space": "SPACE"}', 4401),
    ('{"type": "join", "space": "SPACE", "token": 5}', 4400),
    ('{"type": "join", "space": "SPACE", "token": "no"}', 4401),
    ('{"type": "join", "space": "open", "token": "TOKEN"}', 4403),
    ('{"type": "join", "space": "SPACE", "token": "TOKEN", "view": "all"}', 4400),
    ('{"type": "join", "space": "SPACE", "token": "TOKEN", "after_seq": -1}', 4400),
    ('{"type": "join", "space": "SPACE", "token": "TOKEN", "dialect": "klingon"}', 4400),
    ("no json", 4400),
    ("[]", 4400),
    ("[" * 50_000, 4400),
    ('{"type": "join", "token": "' + "x" * 70_000 + '"}', 4400),
]


def test_what_is_no_good_join_is_told_and_closed(gateway: Served, room: str) -> None:
    with Cases() as case:
        for frame, code in WRONG_JOINS:
            with case(frame[:80]), dial(gateway, "/ws") as connection:
                client = Client(connection)
                client.raw(frame.replace("SPACE", room).replace("TOKEN", token(room, "agent")))
                assert client.closed() == code
                [told] = client.seen
                assert told["kind"] == "system/error"
                assert token(room, "agent") not in json.dumps(told)


def test_a_join_for_another_space_than_the_address_is_refused(gateway: Served, room: str) -> None:
    with dial(gateway, f"/spaces/{room}/ws") as connection:
        client = Client(connection)
        client.send(type="join", space="open", token=token("open", "agent"))
        assert client.closed() == 4403


def test_who_does_not_join_is_let_go(gateway: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(door, "JOIN_SECONDS", 0.05)
    monkeypatch.setattr(door.SpaceSocket.__init__, "__defaults__", (0.05,))
    with served(tmp_path, {"r": {"participants": ["a"]}}) as own, dial(own, "/ws?space=r") as connection:
        client = Client(connection)
        client.send(kind="system/heartbeat")
        assert client.closed() == 4408


def test_joining_again_changes_nothing_and_joining_as_another_ends_it(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.send(type="join", space=room, token=token(room, "agent"), participantId="agent", capabilities=[])
        agent.send(kind="system/heartbeat", payload={})
        assert {one["kind"] for one in agent.sync()} <= {"system/presence"}
        agent.send(type="join", space=room, token=token(room, "human"))
        assert agent.closed() == 4403


# --- HTTP, keys and pages --------------------------------------------------------------------------------------------


def test_a_space_is_shown_to_its_participants(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent"):
        told = get(gateway, f"/spaces/{room}", token(room, "watcher")).json
    assert told["name"] == room
    assert told["you"]["id"] == "watcher"
    present = {one["id"]: one["present"] for one in told["participants"]}
    assert present == {"agent": True, "human": False, "watcher": False, "granter": False}
    assert "redact" not in told["settings"]
    assert told["settings"]["reasoning"] == "strict"


WITH_A_TOKEN = [
    ("GET", "/spaces/{room}"),
    ("GET", "/spaces/{room}/envelopes"),
    ("POST", "/spaces/{room}/envelopes"),
    ("GET", "/spaces/{room}/history"),
    ("GET", "/spaces/{room}/envelopes/1"),
    ("GET", "/spaces/{room}/envelopes/1/references"),
    ("GET", "/spaces/{room}/search?q=x"),
    ("GET", "/spaces/{room}/contexts"),
    ("GET", "/spaces/{room}/contexts/r"),
    ("GET", "/spaces/{room}/patterns"),
    ("GET", "/spaces/{room}/export"),
    ("GET", "/spaces/{room}/replay"),
    ("GET", "/participants?space={room}"),
    ("POST", "/participants/agent/messages?space={room}"),
]


def test_nothing_of_a_space_is_told_without_its_token(gateway: Served, room: str) -> None:
    bearers = ((None, {401}), ("nonsense", {401}), (token("open", "agent"), {401, 403}))
    with Cases() as case:
        for (method, path), (bearer, status) in itertools.product(WITH_A_TOKEN, bearers):
            with case(f"{method} {path} with {bearer}"):
                headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
                reply = gateway.request(method, path.format(room=room), b"{}" if method == "POST" else None, headers)
                assert reply.status in status
                assert reply.headers["www-authenticate" if reply.status == 401 else "x-request-id"]
                error = reply.json["error"]
                if path.startswith("/participants"):
                    assert isinstance(error, str)
                    assert reply.json["message"]
                else:
                    assert error["message"]


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway that asks for keys, with one of its own in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOOR_KEY", "k" * 40)
        rooms: dict[str, Body] = {
            "ours": {"participants": ["a"]},
            "also-ours": {"participants": ["b"]},
            "theirs": {"participants": ["a"], "owner": "acme"},
        }
        table = {
            "providers": {"vllm": {"base_url": "http://127.0.0.1:9/v1"}},
            "access": {"key_env": "DOOR_KEY", "cors": {"origins": ["https://good.example"]}},
            "spaces": spaces_of(tmp_path_factory.mktemp("tokens"), rooms),
        }
        with serve(check_config(table, {"DOOR_KEY": "k" * 40})) as running:
            yield running


def test_a_spaces_token_opens_its_space_where_the_gateway_asks_for_keys(locked: Served) -> None:
    with joined(locked, "ours", "a") as client:
        client.chat("in")
    assert get(locked, "/spaces/ours", token("ours", "a")).status == 200
    assert get(locked, "/v1/models", token("ours", "a")).status == 401


def test_a_key_opens_no_space_and_lists_its_owners(locked: Served) -> None:
    key = "k" * 40
    assert get(locked, "/spaces/ours", key).status == 401
    assert status_of(locked, "/spaces/ours/ws", key)[0] == 401
    assert [one["name"] for one in get(locked, "/spaces", key).json["spaces"]] == ["also-ours", "ours"]
    assert get(locked, "/spaces").status == 401
    mine = get(locked, "/spaces", token("theirs", "a")).json["spaces"]
    assert [(one["name"], one["participant"]) for one in mine] == [("theirs", "a")]
    assert get(locked, "/spaces", "pst_" + "x" * 43).status == 401


def test_an_open_gateway_lists_its_owners_to_its_own_machine(gateway: Served) -> None:
    names = [one["name"] for one in get(gateway, "/spaces").json["spaces"]]
    assert "open" in names
    assert get(gateway, "/spaces", "pst_" + "x" * 43).status == 401


def test_pages_of_other_origins_are_turned_away_unless_they_are_named(locked: Served) -> None:
    bearer = token("ours", "a")
    good, bad = "https://good.example", "https://bad.example"
    reply = get(locked, "/spaces/ours", bearer, Origin=good)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, good)
    assert get(locked, "/spaces/ours", bearer, Origin=bad).status == 403
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = locked.request("OPTIONS", "/spaces/ours/envelopes", headers={"Origin": good, **asks})
    assert (preflight.status, preflight.headers["access-control-allow-headers"]) == (204, "authorization")
    with dial(locked, "/spaces/ours/ws", bearer, origin=good) as connection:
        assert json.loads(connection.recv(PATIENCE_SECONDS))["kind"] == "system/welcome"
    with pytest.raises(InvalidStatus):
        dial(locked, "/spaces/ours/ws", bearer, origin=bad)
    with pytest.raises(InvalidStatus):
        dial(locked, "/ws?space=ours", origin=bad)


def test_metrics_have_the_route_and_no_name_no_token_and_no_text(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.chat("a secret of mine")
    get(gateway, f"/spaces/{room}/search?q=secret", token(room, "agent"))
    text = get(gateway, "/metrics").body.decode()
    assert re.search(r'route="/spaces/{name}/ws"', text)
    assert re.search(r'route="/spaces/{name}/search"', text)
    for leak in (room, "token-of", "secret"):
        assert leak not in text


def test_a_server_that_stops_says_so(tmp_path: Path) -> None:
    with served(tmp_path, {"r": {"participants": ["a"]}}) as own, joined(own, "r", "a") as client:
        own.server.should_exit = True
        assert client.closed() == 1012


def test_who_leaves_frees_everything(gateway: Served, room: str) -> None:
    for _ in range(3):
        with joined(gateway, room, "agent") as agent:
            agent.chat("x")
    gateway.idle()
    told = get(gateway, f"/spaces/{room}", token(room, "human")).json
    assert not any(one["present"] for one in told["participants"])


def test_posting_is_answered_when_it_is_stored(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        reply = post(
            gateway, f"/spaces/{room}/envelopes", {"kind": "chat", "payload": {"message": "Hi"}}, token(room, "agent")
        )
        assert reply.status == 200
        told = reply.json
        assert told["status"] == "accepted"
        assert told["timestamp"].endswith("Z")
        heard = human.until("chat")
        assert (heard["id"], heard["seq"], heard["from"]) == (told["id"], told["seq"], "agent")
    mews = post(
        gateway,
        f"/participants/agent/messages?space={room}",
        {"kind": "chat", "payload": {"text": "2"}},
        token(room, "agent"),
    )
    assert (mews.status, mews.json["status"]) == (200, "accepted")


def test_what_is_refused_over_http_has_its_status(gateway: Served, room: str) -> None:
    def status(body: Any, who: str = "watcher") -> tuple[int, str]:
        reply = post(gateway, f"/spaces/{room}/envelopes", body, token(room, who))
        return reply.status, reply.json["error"]["code"]

    assert status({"kind": "mcp/request", "payload": {}}) == (403, "capability_violation")
    assert status({"kind": "system/presence"}, "human") == (403, "capability_violation")
    assert status(b"no json") == (400, "invalid_json")
    assert status([]) == (400, "invalid_type")
    assert status({}) == (400, "missing")
    assert status({"kind": "chat", "payload": {"text": "x" * 1_100_000}})[0] == 413
    mews = post(
        gateway, f"/participants/watcher/messages?space={room}", {"kind": "mcp/request"}, token(room, "watcher")
    )
    assert (mews.status, mews.json["error"]) == (403, "capability_violation")


def test_a_socket_that_is_closed_says_nothing_more(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.connection.close()
        with pytest.raises(ConnectionClosed):
            agent.next()
