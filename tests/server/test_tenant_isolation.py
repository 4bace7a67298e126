"""Tenants are isolated: an id of another tenant gets the same response as one that does not exist, byte for byte."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from pellucid.server.access.policy import Policy
from pellucid.server.openresponses.routes import CONVERSATIONS, RESPONSES
from tests.scripted import Upstream, say
from tests.scripted.gateway import Reply
from tests.server.state_kit import Caller, hangs, make_keys, message, serving, url_of

THINKS = say("Let me see.", "It is 42.")


class OwnedIds(NamedTuple):
    """Ids of one owner's objects."""

    response: str
    running: str
    item: str
    conversation: str
    entry: str


class Party(NamedTuple):
    ann: Caller
    colleague: Caller
    """Another key of the same owner."""
    bob: Caller
    mine: OwnedIds
    """Ids of Ann's objects."""
    model: str


@pytest.fixture(scope="module")
def party(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Party]:
    url = url_of(tmp_path_factory.mktemp("owners") / "store.sqlite")
    keys = make_keys(url, {"ann": None, "ann/2": Policy(view="summary"), "bob": None})
    with serving(upstream, url, access={"keys": True}, server={"shutdown_seconds": 0.1}) as running:
        ann, bob = Caller(running, keys["ann"]), Caller(running, keys["bob"])
        model = upstream.plays(THINKS)
        conversation = ann.conversation(message("Hello."))
        response = ann.create_response(model, conversation=conversation)
        waiting = upstream.plays(hangs)
        under_way = ann.create_response(waiting, background=True)["id"]
        upstream.calls(waiting, 1)
        entry = ann.items(conversation)["data"][0]["id"]
        mine = OwnedIds(response["id"], under_way, response["output"][1]["id"], conversation, entry)
        yield Party(ann, Caller(running, keys["ann/2"]), bob, mine, model)


Ask = Callable[[Caller, OwnedIds, str], Reply]


def _asks(model: str, **more: Any) -> dict[str, Any]:
    return {"model": f"vllm:{model}", "input": "Why?", **more}


ENDPOINTS: dict[str, Ask] = {
    "GET response": lambda c, t, m: c.do("GET", f"/v1/responses/{t.response}"),
    "GET running": lambda c, t, m: c.do("GET", f"/v1/responses/{t.running}"),
    "stream": lambda c, t, m: c.do("GET", f"/v1/responses/{t.response}?stream=true"),
    "stream after": lambda c, t, m: c.do("GET", f"/v1/responses/{t.response}?stream=true&starting_after=3"),
    "stream running": lambda c, t, m: c.do("GET", f"/v1/responses/{t.running}?stream=true&starting_after=1"),
    "input_items": lambda c, t, m: c.do("GET", f"/v1/responses/{t.response}/input_items"),
    "cancel": lambda c, t, m: c.do("POST", f"/v1/responses/{t.response}/cancel"),
    "cancel running": lambda c, t, m: c.do("POST", f"/v1/responses/{t.running}/cancel"),
    "DELETE response": lambda c, t, m: c.do("DELETE", f"/v1/responses/{t.response}"),
    "DELETE running": lambda c, t, m: c.do("DELETE", f"/v1/responses/{t.running}"),
    "previous": lambda c, t, m: c.do("POST", "/v1/responses", _asks(m, previous_response_id=t.response)),
    "previous, running": lambda c, t, m: c.do("POST", "/v1/responses", _asks(m, previous_response_id=t.running)),
    "previous, stream": lambda c, t, m: c.do(
        "POST", "/v1/responses", _asks(m, previous_response_id=t.response, stream=True)
    ),
    "previous, background": lambda c, t, m: c.do(
        "POST", "/v1/responses", _asks(m, previous_response_id=t.response, background=True)
    ),
    "previous, compact": lambda c, t, m: c.do(
        "POST", "/v1/responses/compact", _asks(m, previous_response_id=t.response)
    ),
    "previous, input_tokens": lambda c, t, m: c.do(
        "POST", "/v1/responses/input_tokens", _asks(m, previous_response_id=t.response)
    ),
    "reference": lambda c, t, m: c.do(
        "POST", "/v1/responses", {**_asks(m), "input": [{"type": "item_reference", "id": t.item}]}
    ),
    "conversation": lambda c, t, m: c.do("POST", "/v1/responses", _asks(m, conversation=t.conversation)),
    "conversation, not stored": lambda c, t, m: c.do(
        "POST", "/v1/responses", _asks(m, conversation={"id": t.conversation}, store=False)
    ),
    "GET conversation": lambda c, t, m: c.do("GET", f"/v1/conversations/{t.conversation}"),
    "POST conversation": lambda c, t, m: c.do("POST", f"/v1/conversations/{t.conversation}", {"metadata": {"x": "y"}}),
    "DELETE conversation": lambda c, t, m: c.do("DELETE", f"/v1/conversations/{t.conversation}"),
    "GET items": lambda c, t, m: c.do("GET", f"/v1/conversations/{t.conversation}/items"),
    "GET items after": lambda c, t, m: c.do("GET", f"/v1/conversations/{t.conversation}/items?after={t.entry}"),
    "POST items": lambda c, t, m: c.do("POST", f"/v1/conversations/{t.conversation}/items", {"items": [message("x")]}),
    "GET item": lambda c, t, m: c.do("GET", f"/v1/conversations/{t.conversation}/items/{t.entry}"),
    "DELETE item": lambda c, t, m: c.do("DELETE", f"/v1/conversations/{t.conversation}/items/{t.entry}"),
}


def nonexistent_ids(mine: OwnedIds) -> OwnedIds:
    """Return ids of the same form that do not exist."""
    return OwnedIds(*(id.partition("_")[0] + "_" + secrets.token_hex(16) for id in mine))


def normalized(reply: Reply, ids: OwnedIds) -> tuple[int, dict[str, str], str]:
    body = reply.body.decode()
    for name, id in zip(OwnedIds._fields, ids, strict=True):
        body = body.replace(id, f"<{name}>")
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "x-request-id")}
    return reply.status, headers, body


def state(party: Party) -> list[bytes]:
    """Return everything that Ann can read of her objects."""
    mine = party.mine
    paths = [f"/v1/responses/{mine.response}", f"/v1/responses/{mine.running}"]
    paths += [f"/v1/conversations/{mine.conversation}", f"/v1/conversations/{mine.conversation}/items?limit=100"]
    return [party.ann.do("GET", path).body for path in paths]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_foreign_id_is_answered_as_one_that_does_not_exist(party: Party, upstream: Upstream, endpoint: str) -> None:
    ask, before, call_count = ENDPOINTS[endpoint], state(party), len(upstream.calls(party.model))
    nonexistent = nonexistent_ids(party.mine)
    foreign, missing = (
        normalized(ask(party.bob, party.mine, party.model), party.mine),
        normalized(ask(party.bob, nonexistent, party.model), nonexistent),
    )
    assert foreign == missing
    assert foreign[0] in (400, 404)
    assert normalized(ask(party.ann, nonexistent, party.model), nonexistent) == missing, (
        "the owner of an id is not revealed"
    )
    assert state(party) == before
    assert len(upstream.calls(party.model)) == call_count


def test_every_endpoint_with_an_id_is_in_the_table(party: Party) -> None:
    """Another key of the same owner can read what the first key created."""
    served = [*RESPONSES.operations, *CONVERSATIONS.operations]
    paths_with_id = {row.path for row in served if "{id}" in row.path}
    paths = {"/v1/responses/{id}", "/v1/responses/{id}/cancel", "/v1/responses/{id}/input_items"}
    of = "/v1/conversations/{id}"
    assert paths_with_id == {*paths, of, f"{of}/items", f"{of}/items/{{item_id}}"}
    for name in ("GET response", "GET running", "stream", "input_items", "previous", "reference", "GET conversation"):
        assert ENDPOINTS[name](party.colleague, party.mine, party.model).status == 200, name
    assert "Let me see" not in ENDPOINTS["GET response"](party.colleague, party.mine, party.model).body.decode()


def test_two_owners_may_use_the_same_id(party: Party) -> None:
    """Ids that clients choose are scoped to their owner."""
    item = {**message("Ann's secret"), "id": "msg_chosen"}
    party.ann.create_response(party.model, [item])
    reply = party.bob.say(party.model, [{"id": "msg_chosen"}])
    assert (reply.status, reply.error["code"]) == (404, "item_not_found")
    party.bob.create_response(party.model, [{**item, "content": "Bob's"}])
    response = party.bob.create_response(party.model, [{"id": "msg_chosen"}])
    assert response["status"] == "completed"


def test_unusual_ids_are_handled(party: Party) -> None:
    for id in ("%00", "resp_%00x", "%ED%A0%80", "%F0%9F%8C%BF", "x" * 5000, "'; DROP TABLE responses; --", "%2e%2e"):
        for path in (f"/v1/responses/{id}", f"/v1/conversations/{id}", f"/v1/conversations/{id}/items"):
            assert party.ann.do("GET", path.replace(" ", "%20")).status == 404, path
    for id in ("\0", "\ud800", "🌿", "x" * 5000):
        for more in ({"previous_response_id": id}, {"conversation": id}, {"input": [{"id": id}]}):
            reply = party.ann.say(party.model, **more)
            assert reply.status in (400, 404), (id, more, reply.body)
            assert reply.error
        reply = party.ann.say(party.model, [{**message("x"), "id": id}])
        storable = id not in ("\0", "\ud800")
        assert reply.status == (200 if storable else 400), (id, reply.body)
        assert not storable or reply.json["status"] == "completed"
