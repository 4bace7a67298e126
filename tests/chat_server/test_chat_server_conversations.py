"""Conversations: create, list, search, open, rename, branch and delete them; and the history that a model receives."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

import pytest

from pellucid.server.chat.conversations import AUTO_TITLE_CHARACTERS, title_of
from tests.chat_server.chat_server_kit import (
    ChatClient,
    complete_frames,
    error_of,
    final_event,
    parse_frames,
    read_event_id,
    segment_texts,
    text_of,
    transcript,
)
from tests.scripted import Call, Reply, Upstream, delta, say
from tests.scripted.gateway import Served, serve
from tests.server.seal_kit import MORE, name_of, plays, sent
from tests.server.seal_kit import configured as every_wire
from tests.server.seal_kit import serving as serving_every_wire
from tests.server.state_kit import breaks, brief, calls, config_of, hangs, upstream_saw
from tests.waiting import LIMIT_SECONDS

ANSWERS = say("Let me see.", "It is 42.")
LAST = "It is 42. "


# --- the history that a model receives --------------------------------------------------------------------------------


def test_reasoning_goes_back_in_the_form_that_its_provider_accepts(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    for provider, thought in (("vllm", "Let me see. "), ("deepseek", None)):
        name = upstream.plays(calls("look_up"), ANSWERS)
        chat = client.ask(f"{provider}:{name}")["conversation_id"]
        client.ask(f"{provider}:{name}", "And?", conversation_id=chat)
        history = brief(upstream_saw(upstream, name))
        assert history[0] == ("user", "Why?")
        assert history[1][1][2:] == ("look_up",)
        assert history[2][1][1] == "moss is a word"
        assert history[3][1][1] == LAST
        assert history[-1] == ("user", "And?")
        if provider == "vllm":
            assert history[3][1][0] == thought


def test_signatures_go_back_to_the_provider_that_made_them(upstream: Upstream) -> None:
    """Signed thoughts between searches, and encrypted search results, all in their order."""
    [canary] = MORE
    with serving_every_wire(every_wire(upstream)) as running:
        client, name = ChatClient(running), name_of(upstream, canary, plays(canary))
        event = client.ask(name)
        assert [segment["type"] for segment in event["segments"]] == [
            "reasoning",
            "web_search_call",
            "reasoning",
            "text",
        ]
        client.ask(name, "And?", conversation_id=event["conversation_id"])
        first, second = sent(upstream, name)
        assert len(first["messages"]) == 1
        user, assistant, again = second["messages"]
        assert (user["role"], assistant["role"], again["role"]) == ("user", "assistant", "user")
        kinds = [block["type"] for block in assistant["content"]]
        assert kinds == ["thinking", "server_tool_use", "web_search_tool_result", "thinking", "text"]
        assert [block["signature"] for block in assistant["content"] if block["type"] == "thinking"] == [
            "sig-1",
            "sig-2",
        ]


async def breaks_after_thinking(call: Call) -> None:
    """The connection breaks before the first text."""
    await call.head()
    await call.event(delta(reasoning_content="Hm."))
    call.reset()


async def refuses(call: Call) -> None:
    await call.answer(400, b'{"error": {"message": "no"}}')


@pytest.mark.parametrize(
    "script", [breaks, breaks_after_thinking, refuses, calls("unknown_function")], ids=lambda one: one.__name__
)
def test_a_turn_that_failed_does_not_break_the_next(gateway: Served, upstream: Upstream, script: Any) -> None:
    client = ChatClient(gateway)
    name = upstream.plays(script, ANSWERS)
    chat = client.ask(name)["conversation_id"]
    answer = client.ask(name, "And?", conversation_id=chat)
    assert (answer["status"], text_of(answer)) == ("completed", LAST)
    history = brief(upstream_saw(upstream, name))
    assert history[0][0] == "user"
    assert history[0][1].startswith("Why?")
    assert history[-1][0] == "user"
    assert history[-1][1].endswith("And?")
    # A thought that was cut off is not sent back; a complete one is.
    assert ("Hm." in json.dumps(upstream.calls(name)[-1].body)) is (script is breaks)


def test_a_turn_that_was_stopped_does_not_break_the_next(upstream: Upstream) -> None:
    """On every wire: a thought that was cut, an answer that was cut, an empty answer."""

    async def thinking(call: Call) -> None:
        await call.head(200, "text/event-stream")
        for event in (
            {"type": "message_start", "message": {"id": "m", "model": "m", "content": [], "usage": {}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
        ):
            await call.data(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await call.wait_for_disconnect()

    [canary] = MORE
    with serving_every_wire(every_wire(upstream)) as running:
        client, name = ChatClient(running), name_of(upstream, canary, thinking, plays(canary))
        with client.begin(name) as stream:
            stream.until("Hm.")
            client.cancel(read_event_id(stream))
            event = final_event(stream.rest())
        assert (event["status"], segment_texts(event)) == ("cancelled", [("reasoning", "Hm.")])
        assert client.ask(name, "And?", conversation_id=event["conversation_id"])["status"] == "completed"
        [message] = sent(upstream, name)[-1]["messages"]
        assert [block["text"] for block in message["content"]] == ["Why?", "And?"]


def test_another_model_can_continue_a_conversation(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    chat = client.ask(upstream.plays(ANSWERS))["conversation_id"]
    other = upstream.plays(ANSWERS)
    answer = client.ask(f"deepseek:{other}", "And?", conversation_id=chat)
    assert answer["model"] == f"deepseek:{other}"
    assert [who for who, _ in brief(upstream_saw(upstream, other))] == ["user", "assistant", "user"]
    assert [event["model"] for event in client.open(chat)["events"][1::2]][1] == f"deepseek:{other}"


# --- lists, search and changes ----------------------------------------------------------------------------------------


@pytest.fixture
def client(upstream: Upstream) -> Any:
    with serve(config_of(upstream)) as running:
        yield ChatClient(running)


def test_conversations_are_listed_newest_first_and_in_pages(client: ChatClient, upstream: Upstream) -> None:
    name = upstream.plays(ANSWERS)
    made = [client.ask(name, f"Question {number}")["conversation_id"] for number in range(5)]
    client.ask(name, "More", conversation_id=made[0])
    order = [made[0], *reversed(made[1:])]
    page = client.list_conversations()
    assert [one["id"] for one in page["data"]] == order
    assert page["data"][0]["title"] == "Question 0"
    assert page["data"][0]["created_at"] < page["data"][0]["updated_at"] <= time.time() * 1000
    assert set(page["data"][0]) == {"id", "title", "created_at", "updated_at"}
    ids: list[str] = []
    after = ""
    while True:
        page = client.list_conversations(f"?limit=2{after}")
        ids += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert ids == order


def test_search_finds_titles_questions_and_answers_but_no_thoughts(client: ChatClient, upstream: Upstream) -> None:
    name = upstream.plays(say("A secret thought.", "The ANSWER is 量子, שלום."))
    chat = client.ask(name, "Where is the Straße?")["conversation_id"]
    client.ask(upstream.plays(ANSWERS), "Something else")
    from urllib.parse import quote

    for query in ("straße", "swer is", "量子", "שלום", "Where is"):
        [one] = client.list_conversations(f"?q={quote(query)}")["data"]
        assert one["id"] == chat
        assert "secret" not in one.get("snippet", "")
    assert client.list_conversations("?q=secret")["data"] == []
    assert client.list_conversations(f"?q={quote('%_')}")["data"] == []
    assert client.change(chat, title="Of moss").status == 200
    assert [one["title"] for one in client.list_conversations("?q=moss")["data"]] == ["Of moss"]


def test_a_conversation_can_be_opened_renamed_and_deleted(client: ChatClient, upstream: Upstream) -> None:
    name = upstream.plays(calls("look_up"), ANSWERS)
    first = client.ask(name, "One?")
    second = client.ask(name, "Two?", conversation_id=first["conversation_id"])
    chat = first["conversation_id"]
    opened = client.open(chat)
    assert opened["active"] is None
    assert opened["events"][1::2] == [first, second]
    question = opened["events"][0]
    assert set(question) == {"id", "conversation_id", "role", "created_at", "status", "segments"}
    assert question["id"] == first["id"].replace("evt_", "ask_")
    assert transcript(opened)[0] == ("user", "One?", "completed")
    reply = client.change(chat, title="  A better\n name ")
    assert (reply.status, reply.json["title"]) == (200, "A better name")
    assert client.open(chat)["conversation"]["title"] == "A better name"
    assert (client.delete(chat).status, client.delete(chat).status) == (200, 404)
    for method, path in (
        ("GET", f"/api/conversations/{chat}"),
        ("PATCH", f"/api/conversations/{chat}"),
        ("GET", f"/api/chat/{first['id']}"),
        ("POST", f"/api/chat/{second['id']}/cancel"),
    ):
        assert error_of(client.send_request(method, path, {"title": "x"} if method == "PATCH" else None), 404)
    assert client.list_conversations()["data"] == []
    assert client.post_question(name, conversation_id=chat).status == 404


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, None),
        ({"title": " "}, "title"),
        ({"title": "\u200b"}, "title"),
        ({"title": "\u202e \u00a0\u2066\ufeff\u2800\u3164"}, "title"),
        ({"title": "x" * 201}, "title"),
        ({"name": "x"}, "name"),
        ({"head": "resp_1"}, "head"),
    ],
)
def test_an_invalid_change_names_its_field(
    gateway: Served, upstream: Upstream, fields: dict[str, Any], param: str | None
) -> None:
    client = ChatClient(gateway)
    chat = client.ask(upstream.plays(ANSWERS))["conversation_id"]
    assert error_of(client.change(chat, **fields), 400)[1] == param


def test_a_misspelt_field_is_named_with_a_suggestion(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    chat = client.ask(upstream.plays(ANSWERS))["conversation_id"]
    error = error_of(client.change(chat, titel="x"), 400)
    assert error == ("unknown_field", "titel", "titel: there is no such field; did you mean 'title'?")


def test_deleting_a_conversation_cancels_its_active_answer(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(hangs)
    with client.begin(name) as stream:
        stream.until("Hm.")
        chat = parse_frames(stream.seen)[0].data["conversation_id"]
        assert client.delete(chat).json == {"id": chat, "deleted": True}
        [call] = upstream.calls(name)
        assert call.connection.closed.wait(LIMIT_SECONDS)
        received = complete_frames(stream.rest())
    assert [frame.name for frame in received][-2:] == ["message_cancelled", "message_final"]
    assert client.send_request("GET", f"/api/conversations/{chat}").status == 404
    assert client.read(received[0].data["event_id"]).status == 404


# --- branches ---------------------------------------------------------------------------------------------------------


def test_an_edited_question_makes_a_branch_and_deletes_nothing(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(ANSWERS)
    one = client.ask(name, "One?")
    chat = one["conversation_id"]
    two = client.ask(name, "Two?", conversation_id=chat)
    # An edit names the question that it replaces; the model does not receive that question.
    other = client.ask(name, "Two, please?", conversation_id=chat, replaces=two["id"].replace("evt_", "ask_"))
    assert [text for who, text in brief(upstream_saw(upstream, name)) if who == "user"] == ["One?", "Two, please?"]
    opened = client.open(chat)
    assert [event["id"] for event in opened["events"][1::2]] == [one["id"], other["id"]]
    assert opened["events"][2]["versions"] == [two["id"], other["id"]]
    assert "versions" not in opened["events"][0]
    # The same without the conversation's id, and for the first question.
    again = client.ask(name, "One!", replaces=one["id"])
    assert again["conversation_id"] == chat
    opened = client.open(chat)
    assert [event["id"] for event in opened["events"][1::2]] == [again["id"]]
    assert opened["events"][0]["versions"] == [one["id"], again["id"]]
    # Another branch can be read, and then selected.
    before = client.open(chat, f"?head={two['id']}")
    assert [text_of(event) for event in before["events"][::2]] == ["One?", "Two?"]
    assert before["events"][2]["versions"] == [two["id"], other["id"]]
    assert client.open(chat)["events"][1]["id"] == again["id"]
    assert client.change(chat, head=two["id"]).status == 200
    assert client.open(chat)["events"] == before["events"]
    three = client.ask(name, "Three?", conversation_id=chat)
    assert [text for who, text in brief(upstream_saw(upstream, name)) if who == "user"] == ["One?", "Two?", "Three?"]
    assert client.open(chat)["events"][-1] == three


def test_a_question_that_follows_another_branch_is_refused(gateway: Served, upstream: Upstream) -> None:
    """One tab edits a question; the other tab still shows the old branch, and must not continue in one that it does not
    show."""
    client, name = ChatClient(gateway), upstream.plays(ANSWERS)
    one = client.ask(name, "One?")
    chat = one["conversation_id"]
    edited = client.ask(name, "One, please?", replaces=one["id"])
    before = len(upstream.calls(name))
    for shown_id in (one["id"], one["id"].replace("evt_", "ask_"), "evt_nowhere"):
        code, param, message = error_of(client.post_question(name, "On.", conversation_id=chat, follows=shown_id), 409)
        assert (code, param) == ("conversation_moved", "follows")
        assert "load it again" in message
    assert len(upstream.calls(name)) == before
    on = client.ask(name, "On.", conversation_id=chat, follows=edited["id"].replace("evt_", "ask_"))
    assert [event["id"] for event in client.open(chat)["events"][1::2]] == [edited["id"], on["id"]]
    # The same while the other branch is being answered: the error is still the branch.
    with client.begin(upstream.plays(hangs), conversation_id=chat, replaces=on["id"]) as stream:
        stream.until("Hm.")
        assert (
            error_of(client.post_question(name, conversation_id=chat, follows=on["id"]), 409)[0] == "conversation_moved"
        )
        active_id = read_event_id(stream)
        assert (
            error_of(client.post_question(name, conversation_id=chat, follows=active_id), 409)[0] == "conversation_busy"
        )
        client.cancel(active_id)
        stream.rest()


def test_an_event_of_another_chat_is_no_branch(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(ANSWERS)
    one, two = client.ask(name), client.ask(name)
    assert (
        error_of(client.post_question(name, conversation_id=one["conversation_id"], replaces=two["id"]), 404)[1]
        == "replaces"
    )
    assert client.send_request("GET", f"/api/conversations/{one['conversation_id']}?head={two['id']}").status == 404
    # The error is the usual one, with the id as it was sent.
    for head in (two["id"], two["id"].replace("evt_", "ask_")):
        code, param, message = error_of(client.change(one["conversation_id"], head=head), 404)
        assert (code, param) == ("event_not_found", "head")
        assert message == f"head: there is no event {head!r} in this conversation"


def test_a_stored_response_is_no_event(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(ANSWERS)
    response_id = gateway.ask(f"vllm:{name}", store=True).json["id"]
    assert client.read(response_id).status == 404
    assert client.cancel(response_id).status == 404
    event_id = client.ask(name)["id"]
    assert gateway.request("GET", f"/v1/responses/{event_id}").status == 404
    assert gateway.request("DELETE", f"/v1/responses/{event_id}").status == 404


# --- titles -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Why?", "Why?"),
        ("  a\n\n b ", "a b"),
        ("word " * 15 + "words", "word " * 15 + "words"),
        ("word " * 30, ("word " * 16)[:-1] + "…"),
        ("x" * 100, "x" * 79 + "…"),
        ("量" * 100, "量" * 79 + "…"),
        ("a\x00b\x1b[31m", "ab[31m"),
        ("\x00", "…"),
        ("\u200b\u202e \u2069\ufe0f", "…"),
        ("\u200b" * 100 + "Why?", "…"),
        ("\u200bשלום\u200f", "\u200bשלום\u200f"),
        ("👩\u200d🔬\ufe0f", "👩\u200d🔬\ufe0f"),
    ],
)
def test_titles_are_made_from_the_question(text: str, title: str) -> None:
    assert len(title_of(text)) <= AUTO_TITLE_CHARACTERS
    assert title_of(text) == title


# --- a chat becomes a space -------------------------------------------------------------------------------------------


def space_lines(client: ChatClient, name: str, token: str) -> list[tuple[str, str, str]]:
    """Sender, kind and text of everything that a participant reads, without the gateway's notices."""
    reply = client.send_request("GET", f"/spaces/{name}/envelopes", Authorization=f"Bearer {token}")
    assert reply.status == 200, reply.body
    return [
        (one["from"], one["kind"], one["payload"].get("text", one["payload"].get("message", "")))
        for one in reply.json["envelopes"]
        if not one["from"].startswith("system:")
    ]


def test_a_chat_begins_a_space_as_its_reader_sees_it(gateway: Served, upstream: Upstream) -> None:
    client, name = ChatClient(gateway), upstream.plays(calls("look_up"), ANSWERS, ANSWERS)
    chat = client.ask(f"vllm:{name}", "Which moss?")["conversation_id"]
    client.ask(f"vllm:{name}", "And?", conversation_id=chat)
    model = f"vllm:{name}"
    question, answer = ("lena", "chat", "Which moss?"), (model, "chat", LAST.strip())
    start, end = (model, "reasoning/start", "Which moss?"), (model, "reasoning/conclusion", "")
    tool = (model, "reasoning/observation", "look_up")
    thoughts = [(model, "reasoning/thought", "I need help."), tool, (model, "reasoning/thought", "Let me see. ")]
    for view, expected in {
        "raw": [question, start, *thoughts, end, answer],
        "sealed": [question, start, tool, end, answer],
        "hidden": [question, start, tool, end, answer],
    }.items():
        body = {"name": f"taken-{view}", "participant": "lena", "conversation_id": chat}
        made = client.send_request("POST", f"/api/spaces?view={view}", body)
        assert made.status == 200, made.body
        lines = [
            (who, kind, text.rstrip() if kind == "chat" else text)
            for who, kind, text in space_lines(client, f"taken-{view}", made.json["token"])
        ]
        assert lines[: len(expected)] == expected, view
        assert lines[len(expected)] == ("lena", "chat", "And?")
        reply = client.send_request(
            "GET", f"/spaces/taken-{view}/envelopes", Authorization=f"Bearer {made.json['token']}"
        )
        [first] = [one for one in reply.json["envelopes"] if one["payload"].get("text") == "Which moss?"]
        created_at = client.send_request("GET", f"/api/conversations/{chat}").json["events"][0]["created_at"]
        assert datetime.fromisoformat(first["ts"]).timestamp() * 1000 == pytest.approx(created_at, abs=1)

    missing = client.send_request(
        "POST", "/api/spaces", {"name": "none", "participant": "a", "conversation_id": "chat_no"}
    )
    assert error_code(missing) == (404, "conversation_not_found")
    assert "none" not in client.send_request("GET", "/api/spaces").body.decode()


def error_code(reply: Reply) -> tuple[int, str]:
    return reply.status, reply.json["error"]["code"]
