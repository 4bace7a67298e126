"""Stored responses: reading, listing of input items, cancelling, deleting, references to items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from pellucid.server.access.policy import Policy
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served
from tests.server.state_kit import (
    CLIENT_FUNCTION,
    Caller,
    breaks,
    brief,
    call_ids,
    calls,
    hangs,
    make_keys,
    message,
    output,
    serving,
    types,
    upstream_saw,
    url_of,
)
from tests.waiting import LIMIT_SECONDS

THINKS = say("Let me see.", "It is 42.")


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(upstream, tools={"functions": ["tests.server.state_kit:look_up"]}) as running:
        yield running


@pytest.fixture
def me(gateway: Served) -> Caller:
    return Caller(gateway)


@pytest.fixture
def client(gateway: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as made:
        yield made


# --- reading -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script", [THINKS, calls("ask_user"), say("", "Hi."), breaks], ids=["thinks", "calls", "says", "breaks"]
)
def test_a_stored_response_is_read_back_unchanged(me: Caller, upstream: Upstream, script: Any) -> None:
    name = upstream.plays(script)
    fields = {"tools": [CLIENT_FUNCTION], "metadata": {"a": "b"}, "instructions": "Be brief.", "temperature": 0.5}
    whole = me.create_response(name, **fields)
    assert whole["store"] is True
    assert me.get_response(whole["id"]) == whole
    streamed = me.say(name, stream=True, **fields).events
    response = streamed[-1]["response"]
    assert me.get_response(response["id"]) == response
    again = me.do("GET", f"/v1/responses/{response['id']}?stream=true").events
    assert again == streamed


def test_a_disconnected_response_is_stored_as_cancelled(gateway: Served, me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(hangs)
    with gateway.open(f"vllm:{name}") as stream:
        stream.until("Hm.")
        id = stream.seen.partition(b'"id":"')[2].partition(b'"')[0].decode()
    response = me.wait_for_response(id)
    assert response["status"] == "cancelled"
    assert response["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("default", [True, False])
def test_storing_follows_the_configured_default(upstream: Upstream, default: bool) -> None:
    with serving(upstream, storage={"store": default}) as running:
        me, name = Caller(running), upstream.plays(THINKS)
        response = me.create_response(name)
        assert response["store"] is default
        assert me.do("GET", f"/v1/responses/{response['id']}").status == (200 if default else 404)
        for store in (True, False):
            response = me.create_response(name, store=store)
            assert me.do("GET", f"/v1/responses/{response['id']}").status == (200 if store else 404)
        reply = me.say(name, background=True)
        if default:
            assert me.until(reply.json["id"], "completed")["store"] is True
        else:
            assert (reply.status, reply.error["code"]) == (400, "store_required")
            assert "store: true" in reply.error["message"]
            assert me.until(me.create_response(name, background=True, store=True)["id"], "completed")


def test_a_background_response_must_be_stored(me: Caller) -> None:
    reply = me.say("m", background=True, store=False)
    assert reply.status == 400
    assert reply.error["param"] == "background"
    assert "stored" in reply.error["message"]


def test_a_policy_without_storage_stores_nothing(upstream: Upstream, tmp_path: Any) -> None:
    url = url_of(tmp_path / "store.sqlite")
    key = make_keys(url, {"ann": Policy(store=False)})["ann"]
    with serving(upstream, url, access={"keys": True}) as running:
        me, name = Caller(running, key), upstream.plays(THINKS)
        response = me.create_response(name)
        assert response["store"] is False, "the policy allows nothing else"
        for more in ({"store": True}, {"background": True}, {"background": True, "store": True}):
            reply = me.say(name, **more)
            assert (reply.status, reply.error["code"]) == (403, "store_not_allowed"), more
        reply = me.do("POST", "/v1/conversations", {"items": []})
        assert (reply.status, reply.error["code"]) == (403, "store_not_allowed")
        reply = me.do("POST", "/v1/conversations/conv_1/items", {"items": [message("Hi.")]})
        assert (reply.status, reply.error["code"]) == (403, "store_not_allowed")
        assert len(upstream.calls(name)) == 1


# --- input items ---------------------------------------------------------------------------------------------------

ITEMS: list[dict[str, Any]] = [
    {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
    {"role": "user", "content": "No type, and an unknown field", "x": {"y": [1, None, "\u2028é"]}},
    {"id": "msg_mine", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "With an id"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes.", "annotations": []}]},
    {"type": "reasoning", "id": "rs_mine", "summary": [], "content": [{"type": "reasoning_text", "text": "Thought."}]},
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{ }"},
    {"type": "function_call_output", "call_id": "c1", "output": "out"},
    {"type": "message", "role": "user", "content": "And now?"},
]


def test_input_items_are_listed_as_they_were_received(me: Caller, client: openai.OpenAI, upstream: Upstream) -> None:
    response = me.create_response(upstream.plays(THINKS), ITEMS)
    listed = me.do("GET", f"/v1/responses/{response['id']}/input_items?order=asc&limit=100").json
    assert listed["object"] == "list"
    assert listed["has_more"] is False
    assert len(listed["data"]) == len(ITEMS)
    for listed_item, sent_item in zip(listed["data"], ITEMS, strict=True):
        if isinstance(sent_item.get("content"), str):
            sent_item = {**sent_item, "content": [{"type": "input_text", "text": sent_item["content"]}]}
        assert listed_item == {"type": "message", "id": listed_item["id"], **sent_item}
        assert listed_item["id"]
    ids = [item["id"] for item in listed["data"]]
    assert len(set(ids)) == len(ids)
    assert (listed["first_id"], listed["last_id"]) == (ids[0], ids[-1])
    for order, expected in (("asc", ids), ("desc", ids[::-1])):
        for limit in (1, 2, 3, 100):
            page = client.responses.input_items.list(response["id"], order=order, limit=limit)  # type: ignore[arg-type]
            assert [item.id for item in page] == expected
    assert [item.id for item in client.responses.input_items.list(response["id"])] == ids[::-1], (
        "newest first, as in OpenAI's API"
    )


def test_a_text_is_one_message(me: Caller, upstream: Upstream) -> None:
    response = me.create_response(upstream.plays(THINKS), "Why?")
    [item] = me.do("GET", f"/v1/responses/{response['id']}/input_items").json["data"]
    assert item.pop("id").startswith("msg_")
    assert item == {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Why?"}]}


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=x", "limit"),
        ("limit=-1", "limit"),
        ("limit=", "limit"),
        ("order=up", "order"),
        ("after=msg_unknown", "after"),
    ],
)
def test_an_invalid_page_query_is_refused(me: Caller, upstream: Upstream, query: str, param: str) -> None:
    response = me.create_response(upstream.plays(THINKS))
    conversation = me.conversation(message("Hi."))
    for path in (f"/v1/responses/{response['id']}/input_items", f"/v1/conversations/{conversation}/items"):
        reply = me.do("GET", f"{path}?{query}")
        assert (reply.status, reply.error["param"]) == (400, param), reply.body


# --- delete and cancel ---------------------------------------------------------------------------------------------


def test_a_response_is_deleted_once(client: openai.OpenAI, me: Caller, upstream: Upstream) -> None:
    id = me.create_response(upstream.plays(THINKS))["id"]
    reply = me.do("DELETE", f"/v1/responses/{id}")
    assert reply.json == {"id": id, "object": "response", "deleted": True}
    for method, path in (
        ("GET", ""),
        ("GET", "?stream=true"),
        ("DELETE", ""),
        ("GET", "/input_items"),
        ("POST", "/cancel"),
    ):
        assert me.do(method, f"/v1/responses/{id}{path}").error["code"] == "response_not_found"
    other = me.create_response(upstream.plays(THINKS))["id"]
    client.responses.delete(other)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(other)


def test_a_running_response_is_stopped_and_deleted(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(hangs)
    id = me.create_response(name, background=True)["id"]
    [call] = upstream.calls(name, 1)
    assert me.do("DELETE", f"/v1/responses/{id}").json["deleted"] is True
    assert call.connection.closed.wait(LIMIT_SECONDS), "the upstream connection is closed"
    assert me.do("GET", f"/v1/responses/{id}").status == 404
    assert me.do("GET", f"/v1/responses/{id}?stream=true").status == 404


def test_a_background_response_is_cancelled(client: openai.OpenAI, me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(hangs)
    id = me.create_response(name, background=True)["id"]
    [call] = upstream.calls(name, 1)
    cancelled = client.responses.cancel(id)
    assert cancelled.status == "cancelled"
    assert call.connection.closed.wait(LIMIT_SECONDS)
    assert me.get_response(id)["status"] == "cancelled"
    again = me.do("POST", f"/v1/responses/{id}/cancel")
    assert (again.status, again.json["status"]) == (200, "cancelled"), "cancelling is idempotent"


def test_cancelling_a_finished_response_changes_nothing(me: Caller, upstream: Upstream) -> None:
    id = me.create_response(upstream.plays(THINKS), background=True)["id"]
    done = me.until(id, "completed")
    assert me.do("POST", f"/v1/responses/{id}/cancel").json == done


def test_only_a_background_response_can_be_cancelled(me: Caller, upstream: Upstream) -> None:
    reply = me.do("POST", f"/v1/responses/{me.create_response(upstream.plays(THINKS))['id']}/cancel")
    assert (reply.status, reply.error["code"]) == (400, "not_cancellable")


# --- item_reference ------------------------------------------------------------------------------------------------


def test_an_item_reference_sends_the_item_again(me: Caller, upstream: Upstream) -> None:
    """Every item of a response can be referenced by its id: server calls and their results, reasoning, text, and the
    client's input; also in a response whose own input consists of references."""
    name = upstream.plays(calls("look_up", reasoning="A word."), THINKS)
    first = me.create_response(name, [{**message("Why?"), "id": "msg_why"}])
    assert types(first) == ["reasoning", "function_call", "function_call_output", "reasoning", "message"]
    ids = ["msg_why", *(item["id"] for item in first["output"])]
    references = [{"type": "item_reference", "id": id} for id in ids]
    second = me.create_response(name, [*references, message("And?")])
    seen = brief(upstream_saw(upstream, name))
    call_id = call_ids(first)[0]
    assert seen == [
        ("user", "Why?"),
        ("assistant", ("A word.", None, "look_up")),
        ("tool", (call_id, "moss is a word")),
        ("assistant", ("Let me see. ", "It is 42. ")),
        ("user", "And?"),
    ]
    listed = me.do("GET", f"/v1/responses/{second['id']}/input_items?order=asc").json["data"]
    assert listed[:-1] == references
    me.create_response(name, [*references, message("And?")])
    assert brief(upstream_saw(upstream, name)) == seen


def test_a_client_result_can_be_referenced(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("ask_user"), THINKS)
    first = me.create_response(name, tools=[CLIENT_FUNCTION])
    [call_id] = call_ids(first)
    me.create_response(name, [{**output(call_id, "Ada"), "id": "fco_mine"}], previous_response_id=first["id"])
    call = next(item["id"] for item in first["output"] if item["type"] == "function_call")
    me.create_response(name, [message("Who?"), {"id": call}, {"id": "fco_mine"}])
    assert brief(upstream_saw(upstream, name))[1:] == [
        ("assistant", (None, None, "ask_user")),
        ("tool", (call_id, "Ada")),
    ]


def test_an_unknown_reference_is_an_error(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    reply = me.say(name, [message("Hi."), {"type": "item_reference", "id": "msg_unknown"}])
    assert (reply.status, reply.error["code"]) == (404, "item_not_found")
    assert reply.error["param"] == "input[1].id"
    response = me.create_response(name)
    me.do("DELETE", f"/v1/responses/{response['id']}")
    reply = me.say(name, [{"type": "item_reference", "id": response["output"][1]["id"]}])
    assert reply.error["code"] == "item_not_found"
    many = [{"type": "item_reference", "id": f"msg_{number}"} for number in range(101)]
    assert me.say(name, many).error["code"] == "too_many_references"
