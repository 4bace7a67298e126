"""Conversations: one order for whoever adds, and every item told as its reader may see it."""

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
    CALLERS,
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
        made = client.conversations.create(metadata={"a": "b"}, items=[message("Hello.")])  # type: ignore[list-item]
        assert made.object == "conversation"
        assert made.metadata == {"a": "b"}
        assert client.conversations.retrieve(made.id) == made
        assert client.conversations.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"}
        added = client.conversations.items.create(made.id, items=[message("One"), message("Two")])  # type: ignore[list-item]
        assert len(added.data) == 2
        name = upstream.plays(THINKS)
        said = client.responses.create(model=f"vllm:{name}", input="Three", conversation=made.id)
        assert said.conversation is not None
        assert said.conversation.id == made.id
        items = list(client.conversations.items.list(made.id, order="asc", limit=2))
        assert [item.type for item in items] == ["message"] * 4 + ["reasoning", "message"]
        assert [item.id for item in client.conversations.items.list(made.id, limit=1)] == [i.id for i in items][::-1]
        one = client.conversations.items.retrieve(items[1].id or "", conversation_id=made.id)
        assert one == items[1]
        assert client.conversations.items.delete(items[1].id or "", conversation_id=made.id).id == made.id
        with pytest.raises(openai.NotFoundError):
            client.conversations.items.retrieve(items[1].id or "", conversation_id=made.id)
        client.responses.create(model=f"vllm:{name}", input="Four", conversation={"id": made.id})
        texts = [text for who, text in brief(upstream_saw(upstream, name)) if who == "user"]
        assert texts == ["Hello.", "Two", "Three", "Four"]
        assert client.conversations.delete(made.id).deleted is True
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(made.id)


@pytest.mark.parametrize("form", [str, lambda id: {"id": id}], ids=["id", "object"])
@pytest.mark.parametrize("how", ["whole", "stream", "background"])
def test_responses_add_what_they_said(me: Caller, upstream: Upstream, form: Any, how: str) -> None:
    name = upstream.plays(calls("look_up", reasoning="A word."), THINKS)
    conversation = me.conversation(message("Hello.", "developer"))
    asked = {"conversation": form(conversation)}
    if how == "background":
        said = me.until(me.create_response(name, background=True, **asked)["id"], "completed")
    elif how == "stream":
        said = me.say(name, stream=True, **asked).events[-1]["response"]
    else:
        said = me.create_response(name, **asked)
    assert said["conversation"] == {"id": conversation}
    listed = me.items(conversation)["data"]
    assert [item["type"] for item in listed] == ["message", "message", *types(said)]
    assert listed[2:] == said["output"], "as they were told, under the same ids"
    assert me.do("GET", f"/v1/conversations/{conversation}/items/{said['output'][0]['id']}").json == said["output"][0]
    me.create_response(name, "And then?", **asked)
    seen = brief(upstream_saw(upstream, name))
    made = call_ids(said)[0]
    assert seen[1:] == [
        ("user", "Why?"),
        ("assistant", ("A word.", None, "look_up")),
        ("tool", (made, "moss is a word")),
        ("assistant", ("Let me see. ", "It is 42. ")),
        ("user", "And then?"),
    ]


def test_a_call_of_the_callers_is_answered_in_the_conversation(me: Caller, upstream: Upstream) -> None:
    """Also where a turn called functions of both."""
    name = upstream.plays(calls("ask_user", "look_up"), THINKS)
    conversation = me.conversation()
    first = me.create_response(name, conversation=conversation, tools=[CALLERS])
    theirs, ours = call_ids(first)
    me.create_response(name, [output(theirs, "Ada")], conversation=conversation, tools=[CALLERS])
    seen = brief(upstream_saw(upstream, name))
    assert seen[2:] == [("tool", (theirs, "Ada")), ("tool", (ours, "moss is a word"))]
    # A call that is taken away takes its result along.
    call = next(item["id"] for item in first["output"] if item.get("call_id") == theirs)
    assert me.do("DELETE", f"/v1/conversations/{conversation}/items/{call}").status == 200
    me.create_response(name, "Go on.", conversation=conversation)
    seen = brief(upstream_saw(upstream, name))
    assert [entry for entry in seen if entry[0] == "tool"] == [("tool", (ours, "moss is a word"))]


def test_what_is_not_stored_is_not_added(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    conversation = me.conversation(message("Hello."))
    said = me.create_response(name, "A secret", conversation=conversation, store=False)
    assert "conversation" not in said
    assert [who for who, _ in brief(upstream_saw(upstream, name))] == ["user"] * len(upstream_saw(upstream, name))
    assert len(me.items(conversation)["data"]) == 1


def test_what_failed_is_added_as_far_as_it_came(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(breaks, THINKS)
    conversation = me.conversation()
    said = me.create_response(name, conversation=conversation)
    assert said["status"] == "failed"
    assert me.items(conversation)["data"][1:] == said["output"]
    assert me.create_response(name, "Again", conversation=conversation)["status"] == "completed"


def test_whoever_adds_at_once_comes_one_after_the_other(me: Caller, upstream: Upstream) -> None:
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
    texts = [item["content"] for item in listed if item.get("role") == "user"]
    assert len(texts) == 24 * 4
    for place in range(0, len(texts), 4):
        n = texts[place].partition("-")[0]
        assert texts[place : place + 4] == [f"{n}-{k}" for k in range(4)], "what one added stands together, in order"
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
def test_items_that_a_reader_may_not_see_leave_no_hole(upstream: Upstream, tmp_path: Path, order: str) -> None:
    url = url_of(tmp_path / "store.sqlite")
    views = {"ann": Policy(), "ann/summary": Policy(view="summary"), "ann/sealed": Policy(view="sealed")}
    keys = make_keys(url, {**views, "ann/hidden": Policy(view="hidden")})
    with serving(upstream, url, access={"keys": True}) as running:
        ann, name = Caller(running, keys["ann"]), upstream.plays(THINKS)
        mine = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "MARK mine"}]}
        conversation = ann.conversation(*[{**mine, "id": f"rs_{n}"} for n in range(5)], message("Hello."))
        for _ in range(2):
            said = ann.create_response(name, [mine, message("Why?")], conversation=conversation)
        whole = [item for page in pages(ann, conversation, 2, order) for item in page]
        assert len(whole) == 6 + 2 * 4
        for view in ("summary", "sealed", "hidden"):
            less = Caller(running, keys[f"ann/{view}"])
            found = list(pages(less, conversation, 2, order))
            assert all(len(page) == 2 for page in found[:-1])
            told = [item for page in found for item in page]
            assert "MARK" not in str(told)
            assert "Let me see" not in str(told)
            wanted = [item["id"] for item in whole if view != "hidden" or item["type"] != "reasoning"]
            assert [item["id"] for item in told] == wanted
            given = less.do("GET", f"/v1/responses/{said['id']}/input_items")
            assert "MARK" not in given.body.decode()
            for id in ("rs_1", said["output"][0]["id"]):
                one = less.do("GET", f"/v1/conversations/{conversation}/items/{id}")
                assert one.status == (404 if view == "hidden" else 200)
                assert "MARK" not in one.body.decode()
            asked = ann.do("GET", f"/v1/conversations/{conversation}/items/rs_1", **{"Pellucid-View": view})
            assert "MARK" not in asked.body.decode(), "whoever may see more can ask for less"


SEALABLE = {"include": ["reasoning.encrypted_content"]}


def test_sealed_items_are_opened_whenever_the_conversation_goes_on(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("ask_user", reasoning="Sealed thought."), THINKS)
    first = me.create_response(name, store=False, tools=[CALLERS], **SEALABLE)
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
def test_what_cannot_be_added_is_refused_before_anybody_is_asked(
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
    ([{"type": "nothing"}], "items"),
    ([{"type": "item_reference", "id": "msg_1"}], "items[0].type"),
    ([message("x"), {"role": "user", "content": [{"type": "input_image"}]}], "items[1].content[0].image_url"),
    ([{"role": "assistant", "content": [{"type": "input_image", "image_url": "https://x.example/"}]}], "items[0]"),
    ([message("x"), {"type": "reasoning", "encrypted_content": "not.ours"}], "items[1].encrypted_content"),
    ([{"type": "compaction", "encrypted_content": "not.ours"}], "items[0].encrypted_content"),
    ([{**message("x"), "id": "msg_a"}, {**message("y"), "id": "msg_a"}], "items[1].id"),
]


@pytest.mark.parametrize(("items", "param"), WRONG)
def test_what_no_model_could_be_told_is_not_added(me: Caller, items: Any, param: str) -> None:
    conversation = me.conversation(message("Hello."))
    reply = me.do("POST", f"/v1/conversations/{conversation}/items", {"items": items})
    assert reply.status == 400, reply.body
    assert (reply.error["param"] or "items").startswith(param), reply.body
    assert len(me.items(conversation)["data"]) == 1
    if items:
        assert me.do("POST", "/v1/conversations", {"items": items}).status == 400


def test_what_is_wrong_with_a_conversation_is_named(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    for given, status, code in (
        ("conv_nobodys", 404, "conversation_not_found"),
        ({"id": "conv_nobodys"}, 404, "conversation_not_found"),
        ({}, 400, "invalid_value"),
        (7, 400, "invalid_value"),
        ([], 400, "invalid_value"),
    ):
        reply = me.say(name, conversation=given)
        assert (reply.status, reply.error["code"], reply.error["param"]) == (status, code, "conversation"), given
    kept = me.create_response(name)["id"]
    reply = me.say(name, conversation=me.conversation(), previous_response_id=kept)
    assert (reply.status, reply.error["code"]) == (400, "mutually_exclusive")


@pytest.mark.parametrize(
    "metadata", [{"a": 1}, {"a" * 65: "x"}, {"a": "x" * 513}, {str(n): "" for n in range(17)}, "x", [], 0, False]
)
def test_metadata_has_limits(me: Caller, metadata: Any) -> None:
    conversation = me.conversation(metadata={"a": "b"})
    for path in ("/v1/conversations", f"/v1/conversations/{conversation}"):
        reply = me.do("POST", path, {"metadata": metadata})
        assert (reply.status, reply.error["param"]) == (400, "metadata")
    reply = me.do("POST", f"/v1/conversations/{conversation}", {})
    assert (reply.status, reply.error["param"]) == (400, "metadata"), "what is left out is not emptied"
    assert me.do("GET", f"/v1/conversations/{conversation}").json["metadata"] == {"a": "b"}


def test_a_deleted_response_leaves_its_conversation_as_it_is(me: Caller, upstream: Upstream) -> None:
    conversation, name = me.conversation(), upstream.plays(THINKS)
    said = me.create_response(name, conversation=conversation)
    before = me.items(conversation)
    assert me.do("DELETE", f"/v1/responses/{said['id']}").status == 200
    assert me.items(conversation) == before
    assert me.do("DELETE", f"/v1/conversations/{conversation}").json == {
        "id": conversation,
        "object": "conversation.deleted",
        "deleted": True,
    }
    reply = me.say(name, conversation=conversation)
    assert (reply.status, reply.error["code"]) == (404, "conversation_not_found")
