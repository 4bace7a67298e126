"""Conversations: concurrent additions have one order, and every item is redacted for its viewer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
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
    make_keys,
    message,
    output,
    serving,
    types,
    upstream_saw,
    url_of,
)

THINKS = say("Let me see.", "It is 42.")


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serving(upstream, tools={"functions": ["tests.server.state_kit:look_up"]}) as running:
        yield running


@pytest.fixture
def me(gateway: Served) -> Caller:
    return Caller(gateway)


def test_with_the_official_client(gateway: Served, upstream: Upstream) -> None:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        conversation = client.conversations.create(metadata={"a": "b"}, items=[message("Hello.")])  # type: ignore[list-item]
        assert conversation.object == "conversation"
        assert conversation.metadata == {"a": "b"}
        assert client.conversations.retrieve(conversation.id) == conversation
        assert client.conversations.update(conversation.id, metadata={"c": "d"}).metadata == {"c": "d"}
        added = client.conversations.items.create(conversation.id, items=[message("One"), message("Two")])  # type: ignore[list-item]
        assert len(added.data) == 2
        name = upstream.plays(THINKS)
        response = client.responses.create(model=f"vllm:{name}", input="Three", conversation=conversation.id)
        assert response.conversation is not None
        assert response.conversation.id == conversation.id
        items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
        assert [item.type for item in items] == ["message"] * 4 + ["reasoning", "message"]
        assert [item.id for item in client.conversations.items.list(conversation.id, limit=1)] == [i.id for i in items][
            ::-1
        ]
        one = client.conversations.items.retrieve(items[1].id or "", conversation_id=conversation.id)
        assert one == items[1]
        assert (
            client.conversations.items.delete(items[1].id or "", conversation_id=conversation.id).id == conversation.id
        )
        with pytest.raises(openai.NotFoundError):
            client.conversations.items.retrieve(items[1].id or "", conversation_id=conversation.id)
        client.responses.create(model=f"vllm:{name}", input="Four", conversation={"id": conversation.id})
        texts = [text for role, text in brief(upstream_saw(upstream, name)) if role == "user"]
        assert texts == ["Hello.", "Two", "Three", "Four"]
        assert client.conversations.delete(conversation.id).deleted is True
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(conversation.id)


@pytest.mark.parametrize("form", [str, lambda id: {"id": id}], ids=["id", "object"])
@pytest.mark.parametrize("how", ["whole", "stream", "background"])
def test_responses_add_their_input_and_output(me: Caller, upstream: Upstream, form: Any, how: str) -> None:
    name = upstream.plays(calls("look_up", reasoning="A word."), THINKS)
    conversation = me.conversation(message("Hello.", "developer"))
    more = {"conversation": form(conversation)}
    if how == "background":
        response = me.until(me.create_response(name, background=True, **more)["id"], "completed")
    elif how == "stream":
        response = me.say(name, stream=True, **more).events[-1]["response"]
    else:
        response = me.create_response(name, **more)
    assert response["conversation"] == {"id": conversation}
    listed = me.items(conversation)["data"]
    assert [item["type"] for item in listed] == ["message", "message", *types(response)]
    assert listed[2:] == response["output"], "the items of the response, under the same ids"
    assert (
        me.do("GET", f"/v1/conversations/{conversation}/items/{response['output'][0]['id']}").json
        == response["output"][0]
    )
    me.create_response(name, "And then?", **more)
    seen = brief(upstream_saw(upstream, name))
    call_id = call_ids(response)[0]
    assert seen[1:] == [
        ("user", "Why?"),
        ("assistant", ("A word.", None, "look_up")),
        ("tool", (call_id, "moss is a word")),
        ("assistant", ("Let me see. ", "It is 42. ")),
        ("user", "And then?"),
    ]


def test_a_client_call_is_answered_in_the_conversation(me: Caller, upstream: Upstream) -> None:
    """This includes a turn that called functions of server and client."""
    name = upstream.plays(calls("ask_user", "look_up"), THINKS)
    conversation = me.conversation()
    first = me.create_response(name, conversation=conversation, tools=[CLIENT_FUNCTION])
    theirs, ours = call_ids(first)
    me.create_response(name, [output(theirs, "Ada")], conversation=conversation, tools=[CLIENT_FUNCTION])
    seen = brief(upstream_saw(upstream, name))
    assert seen[2:] == [("tool", (theirs, "Ada")), ("tool", (ours, "moss is a word"))]
    # Deleting a call deletes its result.
    call = next(item["id"] for item in first["output"] if item.get("call_id") == theirs)
    assert me.do("DELETE", f"/v1/conversations/{conversation}/items/{call}").status == 200
    me.create_response(name, "Go on.", conversation=conversation)
    seen = brief(upstream_saw(upstream, name))
    assert [entry for entry in seen if entry[0] == "tool"] == [("tool", (ours, "moss is a word"))]


def test_an_unstored_response_is_not_added(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    conversation = me.conversation(message("Hello."))
    response = me.create_response(name, "A secret", conversation=conversation, store=False)
    assert "conversation" not in response
    assert [role for role, _ in brief(upstream_saw(upstream, name))] == ["user"] * len(upstream_saw(upstream, name))
    assert len(me.items(conversation)["data"]) == 1


def test_a_failed_response_adds_its_partial_output(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(breaks, THINKS)
    conversation = me.conversation()
    response = me.create_response(name, conversation=conversation)
    assert response["status"] == "failed"
    assert me.items(conversation)["data"][1:] == response["output"]
    assert me.create_response(name, "Again", conversation=conversation)["status"] == "completed"


def test_concurrent_additions_are_serialized(me: Caller, upstream: Upstream) -> None:
    conversation = me.conversation()
    name = upstream.plays(THINKS)

    def add(n: int) -> None:
        if n % 3:
            items = [message(f"{n}-{k}") for k in range(4)]
            assert me.do("POST", f"/v1/conversations/{conversation}/items", {"items": items}).status == 200
        else:
            me.create_response(name, [message(f"{n}-{k}") for k in range(4)], conversation=conversation)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))
    listed = [item for page in pages(me, conversation, 7) for item in page]
    texts = [item["content"][0]["text"] for item in listed if item.get("role") == "user"]
    assert len(texts) == 24 * 4
    for place in range(0, len(texts), 4):
        n = texts[place].partition("-")[0]
        assert texts[place : place + 4] == [f"{n}-{k}" for k in range(4)], "items added together are adjacent"
    assert len({item["id"] for item in listed}) == len(listed)


def pages(me: Caller, conversation: str, limit: int, order: str = "asc") -> Iterator[list[dict[str, Any]]]:
    query: dict[str, Any] = {"limit": limit, "order": order}
    while True:
        page = me.items(conversation, **query)
        yield page["data"]
        if not page["has_more"]:
            return
        query["after"] = page["last_id"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_items_hidden_from_a_viewer_leave_no_gap_in_pages(upstream: Upstream, tmp_path: Path, order: str) -> None:
    url = url_of(tmp_path / "store.sqlite")
    views = {"ann": Policy(), "ann/summary": Policy(view="summary"), "ann/sealed": Policy(view="sealed")}
    keys = make_keys(url, {**views, "ann/hidden": Policy(view="hidden")})
    with serving(upstream, url, access={"keys": True}) as running:
        ann, name = Caller(running, keys["ann"]), upstream.plays(THINKS)
        mine = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "MARK mine"}]}
        conversation = ann.conversation(*[{**mine, "id": f"rs_{n}"} for n in range(5)], message("Hello."))
        for _ in range(2):
            response = ann.create_response(name, [mine, message("Why?")], conversation=conversation)
        whole = [item for page in pages(ann, conversation, 2, order) for item in page]
        assert len(whole) == 6 + 2 * 4
        for view in ("summary", "sealed", "hidden"):
            restricted = Caller(running, keys[f"ann/{view}"])
            restricted_pages = list(pages(restricted, conversation, 2, order))
            assert all(len(page) == 2 for page in restricted_pages[:-1])
            items = [item for page in restricted_pages for item in page]
            assert "MARK" not in str(items)
            assert "Let me see" not in str(items)
            expected_ids = [item["id"] for item in whole if view != "hidden" or item["type"] != "reasoning"]
            assert [item["id"] for item in items] == expected_ids
            input_items = restricted.do("GET", f"/v1/responses/{response['id']}/input_items")
            assert "MARK" not in input_items.body.decode()
            for id in ("rs_1", response["output"][0]["id"]):
                one = restricted.do("GET", f"/v1/conversations/{conversation}/items/{id}")
                assert one.status == (404 if view == "hidden" else 200)
                assert "MARK" not in one.body.decode()
            reply = ann.do("GET", f"/v1/conversations/{conversation}/items/rs_1", **{"Pellucid-View": view})
            assert "MARK" not in reply.body.decode(), "a key with a wider view can request a stricter one"


SEALABLE = {"include": ["reasoning.encrypted_content"]}


def test_sealed_items_are_opened_in_every_continuation(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("ask_user", reasoning="Sealed thought."), THINKS)
    first = me.create_response(name, store=False, tools=[CLIENT_FUNCTION], **SEALABLE)
    thought = {name: value for name, value in first["output"][0].items() if name != "content"}
    assert thought["encrypted_content"]
    conversation = me.conversation(message("Why?"), thought, *first["output"][1:])
    for turn in ("One", "Two"):
        me.create_response(
            name, [output(call_ids(first)[0], "Ada")] if turn == "One" else turn, conversation=conversation
        )
        assert brief(upstream_saw(upstream, name))[1] == ("assistant", ("Sealed thought.", None, "ask_user"))


@pytest.mark.parametrize(
    ("items", "code", "param"),
    [
        ([{**message("x"), "id": "msg_there"}], "already_exists", "input[0].id"),
        (
            [message("x"), {**message("y"), "id": "msg_a"}, {**message("z"), "id": "msg_a"}],
            "already_exists",
            "input[2].id",
        ),
        ([{"type": "item_reference", "id": "msg_there"}], "invalid_value", "input[0]"),
    ],
)
def test_invalid_items_are_refused_before_the_model_is_called(
    me: Caller, upstream: Upstream, items: Any, code: str, param: str
) -> None:
    name = upstream.plays(THINKS)
    conversation = me.conversation({**message("Hello."), "id": "msg_there"})
    reply = me.say(name, items, conversation=conversation)
    assert (reply.status, reply.error["code"], reply.error["param"]) == (400, code, param)
    assert upstream.calls(name) == []
    assert len(me.items(conversation)["data"]) == 1


WRONG: list[tuple[Any, str]] = [
    ([], "items"),
    (None, "items"),
    ("x", "items"),
    ([message("x")] * 21, "items"),
    ([{"no": "type"}], "items"),
    ([{"type": "item_reference", "id": "msg_1"}], "items[0].type"),
    ([message("x"), {"role": "user", "content": [{"type": "input_image"}]}], "items[1].content[0].image_url"),
    ([{"role": "assistant", "content": [{"type": "input_image", "image_url": "https://x.example/"}]}], "items[0]"),
    ([message("x"), {"type": "reasoning", "encrypted_content": "not.ours"}], "items[1].encrypted_content"),
    ([{"type": "compaction", "encrypted_content": "not.ours"}], "items[0].encrypted_content"),
    ([{**message("x"), "id": "msg_a"}, {**message("y"), "id": "msg_a"}], "items[1].id"),
]


@pytest.mark.parametrize(("items", "param"), WRONG)
def test_items_that_cannot_be_sent_to_a_model_are_refused(me: Caller, items: Any, param: str) -> None:
    conversation = me.conversation(message("Hello."))
    reply = me.do("POST", f"/v1/conversations/{conversation}/items", {"items": items})
    assert reply.status == 400, reply.body
    assert (reply.error["param"] or "items").startswith(param), reply.body
    assert len(me.items(conversation)["data"]) == 1
    if items:
        assert me.do("POST", "/v1/conversations", {"items": items}).status == 400


def test_an_invalid_conversation_is_refused(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    for conversation, status, code in (
        ("conv_unknown", 404, "conversation_not_found"),
        ({"id": "conv_unknown"}, 404, "conversation_not_found"),
        ({}, 400, "invalid_value"),
        (7, 400, "invalid_value"),
        ([], 400, "invalid_value"),
    ):
        reply = me.say(name, conversation=conversation)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, "conversation"), conversation
    response_id = me.create_response(name)["id"]
    reply = me.say(name, conversation=me.conversation(), previous_response_id=response_id)
    assert (reply.status, reply.error["code"]) == (400, "mutually_exclusive")


@pytest.mark.parametrize(
    "metadata", [{"a": 1}, {"a" * 65: "x"}, {"a": "x" * 513}, {str(n): "" for n in range(17)}, "x", [], 0, False]
)
def test_metadata_is_limited(me: Caller, metadata: Any) -> None:
    conversation = me.conversation(metadata={"a": "b"})
    for path in ("/v1/conversations", f"/v1/conversations/{conversation}"):
        reply = me.do("POST", path, {"metadata": metadata})
        assert (reply.status, reply.error["param"]) == (400, "metadata")
    reply = me.do("POST", f"/v1/conversations/{conversation}", {})
    assert (reply.status, reply.error["param"]) == (400, "metadata"), "a missing field does not clear the metadata"
    assert me.do("GET", f"/v1/conversations/{conversation}").json["metadata"] == {"a": "b"}


def test_deleting_a_response_does_not_change_its_conversation(me: Caller, upstream: Upstream) -> None:
    conversation, name = me.conversation(), upstream.plays(THINKS)
    response = me.create_response(name, conversation=conversation)
    before = me.items(conversation)
    assert me.do("DELETE", f"/v1/responses/{response['id']}").status == 200
    assert me.items(conversation) == before
    assert me.do("DELETE", f"/v1/conversations/{conversation}").json == {
        "id": conversation,
        "object": "conversation.deleted",
        "deleted": True,
    }
    reply = me.say(name, conversation=conversation)
    assert (reply.status, reply.error["code"]) == (404, "conversation_not_found")
