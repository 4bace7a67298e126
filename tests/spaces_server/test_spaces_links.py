"""Links that invite to a space, and the spaces of an owner: what they give, and what they refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted.gateway import Reply, Served
from tests.spaces_server.space_wire_kit import Body, joined, served, token

WHO = {
    "host": ["*"],
    "talker": ["chat"],
    "recruiter": ["chat", "chat/*", "space/invite"],
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rooms: dict[str, Body] = {name: {"participants": WHO} for name in ("one", "other", "guarded")}
    rooms["guarded"]["read_reasoning"] = "capability"
    with served(tmp_path_factory.mktemp("links"), rooms) as running:
        yield running


@pytest.fixture(autouse=True)
def many_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 1e6})


def send(gateway: Served, path: str, body: Body, bearer: str | None = None) -> Reply:
    headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
    headers["Content-Type"] = "application/json"
    return gateway.request("POST", path, json.dumps(body).encode(), headers)


def make_link(gateway: Served, who: str, participant: str, space: str = "one", **more: Any) -> Reply:
    return send(gateway, f"/spaces/{space}/links", {"participant": participant, **more}, token(space, who))


def use(gateway: Served, link: str, space: str = "one") -> Reply:
    """Read a link, and join with it: what refuses the one refuses the other, with the same words."""
    read = send(gateway, f"/spaces/{space}/invitation", {"link": link})
    reply = send(gateway, f"/spaces/{space}/join", {"link": link})
    assert read.status == reply.status
    if reply.status == 200:
        assert read.json["participant"] == reply.json["participant"]
    else:
        assert read.error == reply.error
    return reply


def code(reply: Reply) -> str:
    return str(reply.error["code"])


def test_a_link_admits_its_participant_once_with_its_rights(gateway: Served) -> None:
    made = make_link(gateway, "host", "guest", rights=["read", "talk", "propose"])
    assert made.status == 200, made.body
    assert made.json["capabilities"] == ["chat", "chat/*", "mcp/proposal", "mcp/withdraw"]
    members = gateway.request("GET", "/spaces/one", headers={"Authorization": f"Bearer {token('one', 'host')}"})
    assert "guest" not in {one["id"] for one in members.json["participants"]}, "a link alone changes nothing"
    assert send(gateway, "/spaces/one/invitation", {"link": made.json["link"]}).json == {
        "participant": "guest",
        "invited_by": "host",
        "rights": ["read", "talk", "propose"],
        "expires_at": made.json["expires_at"],
    }

    reply = use(gateway, made.json["link"])
    assert reply.status == 200, reply.body
    assert reply.json["participant"] == "guest"
    assert reply.headers["cache-control"] == "no-store"
    with joined(gateway, "one", "guest", with_token=reply.json["token"]) as guest:
        guest.chat("Hello")
        assert guest.refused(kind="mcp/request", payload={"method": "tools/list"})["code"] == "capability_violation"

    again = use(gateway, made.json["link"])
    assert (again.status, code(again)) == (403, "link_used")
    assert "token" not in again.json


def test_a_link_that_was_used_does_not_readmit_who_was_kicked(gateway: Served) -> None:
    link = make_link(gateway, "host", "visitor").json["link"]
    assert use(gateway, link).status == 200
    with joined(gateway, "one", "host") as host:
        assert host.say(kind="space/kick", payload={"participant_id": "visitor"})["kind"] == "space/kick"
    assert code(use(gateway, link)) == "link_used"


@pytest.mark.parametrize(
    ("who", "rights", "refusal"),
    [("talker", ["read"], "capability_violation"), ("recruiter", ["talk", "approve"], "escalation")],
)
def test_no_link_gives_more_than_its_maker_has(gateway: Served, who: str, rights: list[str], refusal: str) -> None:
    refused = make_link(gateway, who, "climber", rights=rights)
    assert (refused.status, code(refused)) == (403, refusal)
    assert make_link(gateway, "recruiter", "allowed", rights=["read", "talk"]).status == 200


def test_a_link_gives_nothing_that_its_maker_has_lost(gateway: Served) -> None:
    with joined(gateway, "one", "host") as host:
        granted = {"recipient": "talker", "capabilities": ["space/invite"]}
        grant = host.say(kind="capability/grant", id="lend", payload=granted)
        assert grant["kind"] == "capability/grant", grant
        link = make_link(gateway, "talker", "late", rights=["read"]).json["link"]
        revoked = {"recipient": "talker", "grant_id": "lend"}
        assert host.say(kind="capability/revoke", payload=revoked)["kind"] == "capability/revoke"
    reply = use(gateway, link)
    assert (reply.status, code(reply)) == (403, "link_revoked")


def test_a_participant_of_the_configuration_is_not_readmitted_by_a_link(gateway: Served) -> None:
    with joined(gateway, "other", "host") as host:
        assert host.say(kind="space/kick", payload={"participant_id": "talker"})["kind"] == "space/kick"
    refused = make_link(gateway, "host", "talker", "other")
    assert (refused.status, code(refused)) == (409, "name_taken")


def test_a_link_that_was_used_says_so_also_without_its_maker(gateway: Served) -> None:
    with joined(gateway, "other", "host") as host:
        invite = {"participant_id": "helper", "initial_capabilities": ["space/invite", "chat", "chat/*"]}
        helper = host.say(kind="space/invite", payload=invite)
        assert helper["kind"] == "space/invite", helper
        ack = host.until("space/invite-ack")
        link = send(gateway, "/spaces/other/links", {"participant": "heir"}, ack["payload"]["token"])
        assert link.status == 200, link.body
        assert use(gateway, link.json["link"], "other").status == 200
        host.say(kind="space/kick", payload={"participant_id": "helper"})
    assert code(use(gateway, link.json["link"], "other")) == "link_used"


def test_attempts_with_links_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 10.0})
    with served(tmp_path, {"one": {"participants": WHO}}) as gateway:
        link = make_link(gateway, "host", "guest").json["link"]
        for _ in range(20):
            assert send(gateway, "/spaces/one/invitation", {"link": link}).status == 200
        codes = [code(send(gateway, "/spaces/one/invitation", {"link": "x"})) for _ in range(20)]
        assert codes[0] == "invalid_link"
        assert codes[-1] == "too_many_attempts"


def test_a_link_opens_only_its_own_space(gateway: Served) -> None:
    link = make_link(gateway, "host", "stray").json["link"]
    for space, secret in (("other", link), ("none", link), ("one", link[:-2]), ("one", "x"), ("one", "")):
        reply = use(gateway, secret, space)
        assert (reply.status, code(reply)) == (403, "invalid_link"), (space, secret[:10])
    assert use(gateway, link).status == 200, "it was not used by these"


def test_a_link_expires(gateway: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_link(gateway, "host", "slow", expires_in_seconds=60)
    now = time.time()
    monkeypatch.setattr("pellucid.server.spaces.links.time.time", lambda: now + 61)
    reply = use(gateway, made.json["link"])
    assert (reply.status, code(reply)) == (403, "link_expired")


def test_a_name_is_used_once(gateway: Served) -> None:
    refused = make_link(gateway, "host", "talker")
    assert (refused.status, code(refused)) == (409, "name_taken")
    one, two = (make_link(gateway, "host", "twin").json["link"] for _ in range(2))
    assert use(gateway, one).status == 200
    second = use(gateway, two)
    assert (second.status, code(second)) == (409, "name_taken")


@pytest.mark.parametrize("body", [{}, {"participant": "a", "rights": ["rule"]}, {"participant": "a b"}])
def test_a_link_that_cannot_be_is_refused(gateway: Served, body: Body) -> None:
    reply = send(gateway, "/spaces/one/links", body, token("one", "host"))
    assert reply.status == 400, reply.body


def test_a_link_grants_reading_of_reasoning_where_it_takes_a_capability(gateway: Served) -> None:
    made = make_link(gateway, "host", "reader", "guarded", rights=["read"])
    assert made.json["capabilities"] == ["reasoning/read"]
    refused = make_link(gateway, "recruiter", "reader", "guarded", rights=["read"])
    assert (refused.status, code(refused)) == (403, "escalation")


# --- the spaces of an owner ------------------------------------------------------------------------------------------


def test_a_space_is_created_listed_and_entered(gateway: Served) -> None:
    made = send(gateway, "/api/spaces", {"name": "fresh", "participant": "lena", "topic": "Tides"})
    assert made.status == 200, made.body
    with joined(gateway, "fresh", "lena", with_token=made.json["token"]) as lena:
        lena.chat("Hello")
    listed = {one["name"]: one for one in gateway.request("GET", "/api/spaces").json["spaces"]}
    assert listed["fresh"]["topic"] == "Tides"
    assert [name for name, one in listed.items() if one.get("configured")] == ["guarded", "one", "other"]
    assert "one" in listed

    taken = send(gateway, "/api/spaces", {"name": "fresh", "participant": "mara"})
    assert (taken.status, code(taken)) == (409, "space_exists")
    entered = send(gateway, "/api/spaces/fresh/participants", {"participant": "mara"})
    with joined(gateway, "fresh", "mara", with_token=entered.json["token"]) as mara:
        mara.chat("Hello too")
    again = send(gateway, "/api/spaces/fresh/participants", {"participant": "lena"})
    assert (again.status, code(again)) == (409, "name_taken")
    absent = send(gateway, "/api/spaces/none/participants", {"participant": "lena"})
    assert (absent.status, code(absent)) == (404, "space_not_found")


def delete(gateway: Served, name: str, **headers: str) -> Reply:
    return gateway.request("DELETE", f"/api/spaces/{name}", headers=headers)


def test_a_space_is_deleted_with_all_that_is_in_it(gateway: Served) -> None:
    made = send(gateway, "/api/spaces", {"name": "short", "participant": "lena"})
    with joined(gateway, "short", "lena", with_token=made.json["token"]) as lena:
        lena.chat("Hello")
        assert delete(gateway, "short", Origin="https://evil.example").status == 403
        assert delete(gateway, "short").json == {"name": "short", "deleted": True}
        assert lena.closed() == 4404
    assert "short" not in {one["name"] for one in gateway.request("GET", "/api/spaces").json["spaces"]}
    read = gateway.request("GET", "/spaces/short/envelopes", headers={"Authorization": f"Bearer {made.json['token']}"})
    assert read.status in (401, 403, 404)
    assert delete(gateway, "short").status == 404
    # Another one of this name begins empty, and the old token does not open it.
    again = send(gateway, "/api/spaces", {"name": "short", "participant": "lena"}).json["token"]
    headers = {"Authorization": f"Bearer {again}"}
    assert "Hello" not in gateway.request("GET", "/spaces/short/envelopes", headers=headers).body.decode()


def test_a_space_of_the_configuration_is_deleted_there(gateway: Served) -> None:
    refused = delete(gateway, "other")
    assert (refused.status, code(refused)) == (409, "space_configured")
    assert (
        gateway.request("GET", "/spaces/other", headers={"Authorization": f"Bearer {token('other', 'host')}"}).status
        == 200
    )


def test_where_keys_are_required_owners_see_their_own_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = {"one": {"participants": WHO, "owner": "mine"}, "theirs": {"participants": WHO, "owner": "theirs"}}
    monkeypatch.setenv("OPERATOR", key := "o" * 40)
    access = {"key_env": "OPERATOR", "key_owner": "mine"}
    with served(tmp_path, rooms, environ={"OPERATOR": key}, access=access) as gateway:
        body = {"name": "fresh", "participant": "lena"}
        assert send(gateway, "/api/spaces", body).status == 401
        assert send(gateway, "/api/spaces", body, token("one", "host")).status == 401
        listed = gateway.request("GET", "/api/spaces", headers={"Authorization": f"Bearer {key}"})
        assert [one["name"] for one in listed.json["spaces"]] == ["one"]
        foreign = send(gateway, "/api/spaces/theirs/participants", {"participant": "lena"}, key)
        assert (foreign.status, code(foreign)) == (404, "space_not_found")
        foreign = delete(gateway, "theirs", Authorization=f"Bearer {key}")
        assert (foreign.status, code(foreign)) == (404, "space_not_found")
        assert send(gateway, "/api/spaces", body, key).status == 200
        # A participant's token, also of one who may do everything in the space, deletes nothing.
        made = send(gateway, "/api/spaces/fresh/participants", {"participant": "mara"}, key).json["token"]
        for headers in ({}, {"Authorization": f"Bearer {made}"}):
            assert delete(gateway, "fresh", **headers).status == 401
        assert delete(gateway, "fresh", Authorization=f"Bearer {key}").status == 200


def test_a_key_that_is_no_operators_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN", key := "p" * 40)
    access = {"key_env": "PLAIN", "key_owner": "mine", "key_policy": "plain", "policies": {"plain": {}}}
    with served(
        tmp_path, {"one": {"participants": WHO, "owner": "mine"}}, environ={"PLAIN": key}, access=access
    ) as gateway:
        for path in ("/api/spaces", "/api/spaces/one/participants"):
            refused = send(gateway, path, {"name": "fresh", "participant": "lena"}, key)
            assert (refused.status, code(refused)) == (403, "operator_only")
        refused = delete(gateway, "one", Authorization=f"Bearer {key}")
        assert (refused.status, code(refused)) == (403, "operator_only")
