"""Authentication of spaces: WebSocket upgrades, join frames and HTTP, and the errors of refused requests."""

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


def connect_to(gateway: Served, path: str, bearer: str | None = None, **more: Any) -> ClientConnection:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    connection: ClientConnection = connect(
        f"ws://127.0.0.1:{gateway.port}{path}", additional_headers=headers, proxy=None, **more
    )
    return connection


def status_of(gateway: Served, path: str, bearer: str | None = None) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as refused:
        connect_to(gateway, path, bearer)
    body = refused.value.response.body or b"{}"
    return refused.value.response.status_code, json.loads(body)


# --- the upgrade request ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/spaces/{room}/ws", "/ws?space={room}"])
def test_a_token_in_the_upgrade_request_is_accepted(gateway: Served, room: str, path: str) -> None:
    with connect_to(gateway, path.format(room=room), token(room, "agent")) as connection:
        client = Client(connection)
        welcome = client.until("system/welcome")["payload"]
        assert welcome["you"]["id"] == "agent"
        assert {"participants", "head"} <= welcome.keys()
        client.chat("in")


def test_refusals_do_not_reveal_whether_a_space_exists(gateway: Served, room: str) -> None:
    refusals = [
        status_of(gateway, f"/spaces/{room}/ws", "nonsense"),
        status_of(gateway, f"/spaces/{room}/ws", token("room-0", "agent") + "x"),
        status_of(gateway, "/spaces/there-is-no-such-space/ws", token(room, "agent")),
        status_of(gateway, "/spaces/%2e%2e/ws", token(room, "agent")),
        status_of(gateway, "/ws?space=open", token(room, "agent")),
    ]
    assert [status for status, _ in refusals] == [401, 401, 403, 403, 403]
    assert refusals[0] == refusals[1], "an unknown token"
    assert refusals[2] == refusals[3] == refusals[4], "a token of another space, whether this one exists or not"
    assert get(gateway, f"/spaces/{room}", "nonsense").json == refusals[0][1]
    assert get(gateway, "/spaces/there-is-no-such-space/envelopes", token(room, "agent")).json == refusals[2][1]


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


def test_an_invalid_query_is_refused_before_the_upgrade(gateway: Served, room: str) -> None:
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
def test_the_subprotocol_selects_the_dialect(
    gateway: Served, room: str, offered: list[str], chosen: str, protocol: str
) -> None:
    with connect_to(gateway, f"/spaces/{room}/ws", token(room, "agent"), subprotocols=offered) as connection:
        assert connection.subprotocol == chosen
        assert json.loads(connection.recv(PATIENCE_SECONDS))["protocol"] == protocol


@pytest.mark.parametrize("name", ["meup-draft", "meup/v0.2", "mew/v0.4"])
def test_the_query_selects_the_dialect(gateway: Served, room: str, name: str) -> None:
    with joined(gateway, room, "agent", query=f"?dialect={name}") as client:
        dots = name == "meup-draft"
        assert client.seen[0]["kind"] == ("system.welcome" if dots else "system/welcome")
        echo = client.say(kind="chat", correlation_id=["m-0"], payload={"text": "Hi"})
        assert echo["payload"] == ({"message": "Hi"} if dots else {"text": "Hi"})
        assert echo["correlationId" if dots else "correlation_id"] == ("m-0" if dots else ["m-0"])


# --- the join frame --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/ws", "/ws?space={room}", "/spaces/{room}/ws"])
def test_the_mew_client_can_join_at_every_address(gateway: Served, room: str, path: str) -> None:
    with mew(gateway, room, "agent", path.format(room=room)) as client:
        assert client.mew("chat", {"text": "Hi"})["from"] == "agent"


def test_a_join_frame_can_have_a_cursor_and_a_view(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        first = agent.chat("one")["seq"]
        agent.say(kind="reasoning/start", id="r", payload={"message": "Hm"})
        agent.say(kind="reasoning/thought", context="r", payload={"message": "Well"})
        agent.chat("two")
    with connect_to(gateway, "/ws") as connection:
        client = Client(connection)
        client.send(
            type="join", space=room, token=token(room, "human"), after_seq=first, view="main", dialect="meup-draft"
        )
        client.until("system/welcome")
        chat = client.until("chat")
        assert chat["payload"] == {"message": "two"}
        assert "replayed" not in chat
        assert not [one for one in client.seen if one["kind"].startswith("reasoning.thought")]


WRONG_JOINS: list[tuple[str | bytes, int]] = [
    ('{"kind": "chat", "payload": {"text": "Hi"}}', 4400),
    ('{"kind": "reasoning/start", "token": "TOKEN"}', 4400),
    ("{}", 4400),
    ("", 4400),
    ("#stream-1#data", 4400),
    (b"\xff\xfe\x00", 4400),
    (b'{"kind": "chat"}', 4400),
    (b'{"type": "join", "space": "SPACE", "token": "no"}', 4401),
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


def test_an_invalid_join_gets_an_error_and_a_close_code(gateway: Served, room: str) -> None:
    with Cases() as case:
        for frame, code in WRONG_JOINS:
            with case(repr(frame[:80])), connect_to(gateway, "/ws") as connection:
                client = Client(connection)
                if isinstance(frame, str):
                    frame = frame.replace("SPACE", room).replace("TOKEN", token(room, "agent"))
                client.raw(frame)
                assert client.closed() == code
                [error] = client.seen
                assert error["kind"] == "system/error"
                assert token(room, "agent") not in json.dumps(error)


def test_a_join_for_another_space_than_the_address_is_refused(gateway: Served, room: str) -> None:
    with connect_to(gateway, f"/spaces/{room}/ws") as connection:
        client = Client(connection)
        client.send(type="join", space="open", token=token("open", "agent"))
        assert client.closed() == 4403


def test_a_connection_without_a_join_is_closed(
    gateway: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(door, "JOIN_SECONDS", 0.05)
    monkeypatch.setattr(door.SpaceSocket.__init__, "__defaults__", (0.05,))
    with served(tmp_path, {"r": {"participants": ["a"]}}) as own:
        for frames in ([], [{"kind": "system/heartbeat"}]):
            with connect_to(own, "/ws?space=r") as connection:
                client = Client(connection)
                for frame in frames:
                    client.send(**frame)
                assert client.closed() == 4408


def test_a_second_join_is_ignored_and_one_as_another_participant_closes(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.send(type="join", space=room, token=token(room, "agent"), participantId="agent", capabilities=[])
        agent.send(kind="system/heartbeat", payload={})
        assert {one["kind"] for one in agent.sync()} <= {"system/presence"}
        agent.send(type="join", space=room, token=token(room, "human"))
        assert agent.closed() == 4403


# --- HTTP, keys and pages --------------------------------------------------------------------------------------------


def test_participants_can_read_the_description_of_a_space(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent"):
        description = get(gateway, f"/spaces/{room}", token(room, "watcher")).json
    assert description["name"] == room
    assert description["you"]["id"] == "watcher"
    present = {one["id"]: one["present"] for one in description["participants"]}
    assert present == {"agent": True, "human": False, "watcher": False, "granter": False}
    assert "redact" not in description["settings"]
    assert description["settings"]["reasoning"] == "strict"


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


def test_every_route_of_a_space_needs_its_token(gateway: Served, room: str) -> None:
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
def gateway_with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Gateway that requires keys, with one key in the environment."""
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


def test_a_space_token_is_accepted_where_keys_are_required(gateway_with_keys: Served) -> None:
    with joined(gateway_with_keys, "ours", "a") as client:
        client.chat("in")
    assert get(gateway_with_keys, "/spaces/ours", token("ours", "a")).status == 200
    assert get(gateway_with_keys, "/v1/models", token("ours", "a")).status == 401


def test_a_key_lists_spaces_of_its_owner_and_opens_none(gateway_with_keys: Served) -> None:
    key = "k" * 40
    assert get(gateway_with_keys, "/spaces/ours", key).status == 401
    assert status_of(gateway_with_keys, "/spaces/ours/ws", key)[0] == 401
    assert [one["name"] for one in get(gateway_with_keys, "/spaces", key).json["spaces"]] == ["also-ours", "ours"]
    assert get(gateway_with_keys, "/spaces").status == 401
    mine = get(gateway_with_keys, "/spaces", token("theirs", "a")).json["spaces"]
    assert [(one["name"], one["participant"]) for one in mine] == [("theirs", "a")]
    assert get(gateway_with_keys, "/spaces", "pst_" + "x" * 43).status == 401


def test_an_open_gateway_lists_spaces_to_local_clients(gateway: Served) -> None:
    names = [one["name"] for one in get(gateway, "/spaces").json["spaces"]]
    assert "open" in names
    assert get(gateway, "/spaces", "pst_" + "x" * 43).status == 401


def test_foreign_origins_are_refused_unless_configured(gateway_with_keys: Served) -> None:
    bearer = token("ours", "a")
    good, bad = "https://good.example", "https://bad.example"
    reply = get(gateway_with_keys, "/spaces/ours", bearer, Origin=good)
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, good)
    assert get(gateway_with_keys, "/spaces/ours", bearer, Origin=bad).status == 403
    preflight_headers = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = gateway_with_keys.request(
        "OPTIONS", "/spaces/ours/envelopes", headers={"Origin": good, **preflight_headers}
    )
    assert (preflight.status, preflight.headers["access-control-allow-headers"]) == (204, "authorization")
    with connect_to(gateway_with_keys, "/spaces/ours/ws", bearer, origin=good) as connection:
        assert json.loads(connection.recv(PATIENCE_SECONDS))["kind"] == "system/welcome"
    with pytest.raises(InvalidStatus):
        connect_to(gateway_with_keys, "/spaces/ours/ws", bearer, origin=bad)
    with pytest.raises(InvalidStatus):
        connect_to(gateway_with_keys, "/ws?space=ours", origin=bad)


def test_metrics_contain_routes_and_no_names_or_text(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.chat("a secret of mine")
    get(gateway, f"/spaces/{room}/search?q=secret", token(room, "agent"))
    text = get(gateway, "/metrics").body.decode()
    assert re.search(r'route="/spaces/{name}/ws"', text)
    assert re.search(r'route="/spaces/{name}/search"', text)
    for leak in (room, "token-of", "secret"):
        assert leak not in text


def test_a_stopping_server_closes_with_1012(tmp_path: Path) -> None:
    with served(tmp_path, {"r": {"participants": ["a"]}}) as own, joined(own, "r", "a") as client:
        own.server.should_exit = True
        assert client.closed() == 1012


def test_disconnected_participants_are_not_present(gateway: Served, room: str) -> None:
    for _ in range(3):
        with joined(gateway, room, "agent") as agent:
            agent.chat("x")
    gateway.idle()
    description = get(gateway, f"/spaces/{room}", token(room, "human")).json
    assert not any(one["present"] for one in description["participants"])


def test_a_post_is_answered_after_storage(gateway: Served, room: str) -> None:
    with joined(gateway, room, "human") as human:
        reply = post(
            gateway, f"/spaces/{room}/envelopes", {"kind": "chat", "payload": {"message": "Hi"}}, token(room, "agent")
        )
        assert reply.status == 200
        accepted = reply.json
        assert accepted["status"] == "accepted"
        assert accepted["timestamp"].endswith("Z")
        received = human.until("chat")
        assert (received["id"], received["seq"], received["from"]) == (accepted["id"], accepted["seq"], "agent")
    mews = post(
        gateway,
        f"/participants/agent/messages?space={room}",
        {"kind": "chat", "payload": {"text": "2"}},
        token(room, "agent"),
    )
    assert (mews.status, mews.json["status"]) == (200, "accepted")


def test_refused_posts_have_their_http_status(gateway: Served, room: str) -> None:
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


def test_a_closed_socket_receives_nothing(gateway: Served, room: str) -> None:
    with joined(gateway, room, "agent") as agent:
        agent.connection.close()
        with pytest.raises(ConnectionClosed):
            agent.next()
