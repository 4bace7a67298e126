"""Links that share a chat, export and feedback: who may, what they show, and what ends them."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from pellucid.server.access.policy import Policy
from tests.chat_server.chat_server_kit import (
    ChatClient,
    error_of,
    final_event,
    open_feed,
    read_event_id,
    read_feed_until,
    segment_texts,
    text_of,
)
from tests.scripted import Reply, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, name_of
from tests.server.state_kit import config_of, hangs, make_keys, serving, url_of
from tests.server.view_keys import LESSER, Keys, with_keys
from tests.waiting import wait_until

COUNTS = {"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}}
ANSWERS = say("Let me see.", "It is 42.", COUNTS)


@pytest.fixture(scope="module")
def keys(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with with_keys(upstream, tmp_path_factory.mktemp("shares"), chat={"sharing": True}) as keys:
        yield keys


def client_with_view(keys: Keys, view: str) -> ChatClient:
    one = ChatClient(keys.gateway)
    one.headers = keys.headers(view)
    return one


def share(client: ChatClient, chat: str, **fields: Any) -> str:
    """Make a link; return its path at the API."""
    reply = client.send_request("POST", f"/api/conversations/{chat}/shares", fields)
    assert reply.status == 200, reply.body
    url = reply.json["url"]
    assert url.startswith("/shared/")
    return f"/api{url}"


def read(gateway: Served, path: str) -> Reply:
    """Read a link without any credential."""
    return gateway.request("GET", path)


# --- what a link shows ------------------------------------------------------------------------------------------------


def test_a_link_shows_the_branch_of_its_time_without_the_owner(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    name = upstream.plays(ANSWERS, ANSWERS, hangs)
    first = client.ask(name, "One?")
    chat = first["conversation_id"]
    hidden, raw = share(client, chat), share(client, chat, view="raw")
    client.ask(name, "Two?", conversation_id=chat)
    reply = read(gateway, hidden)
    assert {name: reply.headers[name] for name in ("cache-control", "x-robots-tag", "referrer-policy")} == {
        "cache-control": "no-store",
        "x-robots-tag": "noindex",
        "referrer-policy": "no-referrer",
    }
    assert [text_of(event) for event in reply.json["events"]] == ["One?", "It is 42. "]
    assert [segment_texts(event) for event in read(gateway, raw).json["events"]] == [
        [("text", "One?")],
        [("reasoning", "Let me see. "), ("text", "It is 42. ")],
    ]
    for path in (hidden, raw):
        data = read(gateway, path).body
        assert chat.encode() not in data
        assert b"usage" not in data
        assert b"reasoning_tokens" not in data
        assert b"deployment" not in data
    # An answer in progress is shown when it has ended.
    with client.begin(name, "Three?", conversation_id=chat) as stream:
        stream.until("Hm.")
        live = share(client, chat)
        assert len(read(gateway, live).json["events"]) == 4
        client.cancel(read_event_id(stream))
        assert len(read(gateway, live).json["events"]) == 6
    client.change(chat, title="Renamed")
    assert read(gateway, hidden).json["title"] == "Renamed"
    page = gateway.request("GET", hidden.removeprefix("/api"), None, {"Accept": "text/html"})
    assert page.headers["x-robots-tag"] == "noindex"


@pytest.mark.parametrize("canary", [*CANARIES, *MORE], ids=lambda canary: f"{canary.row}-{canary.name}")
def test_a_link_and_an_export_have_no_byte_of_what_their_view_hides(
    keys: Keys, upstream: Upstream, canary: Canary, caplog: pytest.LogCaptureFixture
) -> None:
    full = client_with_view(keys, "raw")
    event = full.ask(name_of(upstream, canary))
    chat = event["conversation_id"]
    with caplog.at_level(logging.DEBUG):
        for view in LESSER:
            reply = read(keys.gateway, share(full, chat, view=view))
            assert reply.status == 200, reply.body
            assert SECRET.encode() not in reply.body
            for format in ("markdown", "json"):
                for client, query in ((full, f"&view={view}"), (client_with_view(keys, view), "")):
                    path = f"/api/conversations/{chat}/export?format={format}{query}"
                    exported = client.send_request("GET", path)
                    assert exported.status == 200, exported.body
                    assert SECRET.encode() not in exported.body
    assert SECRET not in caplog.text


def test_a_link_shows_at_most_what_its_maker_the_question_and_the_model_allow(
    keys: Keys, upstream: Upstream, tmp_path: Path
) -> None:
    name = f"vllm:{upstream.plays(ANSWERS)}"
    full, sealed = client_with_view(keys, "raw"), client_with_view(keys, "sealed")
    chat = full.ask(name)["conversation_id"]
    for view in ("raw", "summary"):
        refusal = sealed.send_request("POST", f"/api/conversations/{chat}/shares", {"view": view})
        assert error_of(refusal, 403)[0] == "view_not_allowed"
    shown = read(keys.gateway, share(sealed, chat, view="sealed")).json["events"][1]
    assert segment_texts(shown) == [("reasoning", ""), ("text", "It is 42. ")]
    assert (shown["view"], shown["segments"][0]["parts"]) == ("sealed", [])
    # The question asked for less, or the model is restricted later.
    with_hidden_view = full.ask(name, view="hidden")["conversation_id"]
    [_, shown] = read(keys.gateway, share(full, with_hidden_view, view="raw")).json["events"]
    assert segment_texts(shown) == [("text", "It is 42. ")]
    url, upstream_name = url_of(tmp_path / "store.sqlite"), name.partition(":")[2]

    def models(view: str) -> dict[str, Any]:
        return {"models": {"m": {"provider": "vllm", "model": upstream_name, "view": view}}}

    with serving(upstream, url, **models("raw")) as running:
        client = ChatClient(running)
        event = final_event(client.send_request("POST", "/api/chat", {"text": "?", "model": "m"}).body)
        path = share(client, event["conversation_id"], view="raw")
        assert len(read(running, path).json["events"][1]["segments"]) == 2
    with serving(upstream, url, **models("hidden")) as running:
        assert segment_texts(read(running, path).json["events"][1]) == [("text", "It is 42. ")]


def attach(name: str, data: bytes) -> dict[str, str]:
    return {"name": name, "data": base64.b64encode(data).decode()}


def test_a_link_serves_the_attachments_of_the_questions_that_it_shows_until_it_is_deleted(
    gateway: Served, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    client, png = ChatClient(gateway), b"\x89PNG\r\n\x1a\n" + b"picture"
    name = upstream.plays(ANSWERS, ANSWERS, ANSWERS, ANSWERS, hangs)
    first = client.ask(name, "One?", attachments=[attach("cat.png", png), attach("notes.md", b"# Notes")])
    chat = first["conversation_id"]
    path = share(client, chat, view="hidden")
    files = [attach("later.png", png)]
    later = client.ask(name, "Two?", conversation_id=chat, attachments=files)["id"]
    client.ask(name, "Two, again?", replaces=later, attachments=files)
    branch = share(client, chat)
    other = client.ask(name, "Elsewhere?", attachments=files)["id"]

    shown = [one for event in read(gateway, path).json["events"] for one in event.get("attachments", [])]
    assert [one["name"] for one in shown] == ["cat.png", "notes.md"]
    for one in shown:
        own = client.send_request("GET", f"/api/attachments/{one['id']}")
        with caplog.at_level(logging.DEBUG):
            linked = read(gateway, one["url"])
        assert (linked.status, linked.body) == (200, own.body)
        same = ("content-type", "content-disposition", "content-security-policy", "x-content-type-options")
        for header in (*same, "cross-origin-resource-policy", "referrer-policy", "cache-control"):
            assert linked.headers[header] == own.headers[header]
        assert linked.headers["x-robots-tag"] == "noindex"
    gateway.idle()
    assert path.rpartition("/")[2] not in caplog.text

    def at(link: str, event_id: str, index: int = 0) -> Reply:
        return read(gateway, f"{link}/attachments/{event_id.replace('evt_', 'att_')}_{index}")

    assert at(branch, first["id"]).status == 200
    for link, event_id in ((path, later), (branch, later), (branch, other), (path, "evt_none"), (path, chat)):
        assert error_of(at(link, event_id), 404)[0] == "attachment_not_found"
    assert error_of(at(path, first["id"], 2), 404)[0] == "attachment_not_found"
    assert error_of(at("/api/shared/guess", first["id"]), 404)[0] == "share_not_found"
    with client.begin(name, "Three?", conversation_id=chat, attachments=files) as stream:
        stream.until("Hm.")
        event_id, live = read_event_id(stream), share(client, chat)
        assert error_of(at(live, event_id), 404)[0] == "attachment_not_found", "as its question is not shown yet"
        client.cancel(event_id)
        assert at(live, event_id).status == 200
    shares = f"/api/conversations/{chat}/shares"
    client.send_request("DELETE", f"{shares}/{client.send_request('GET', shares).json['data'][0]['id']}")
    assert error_of(at(path, first["id"]), 404)[0] == "share_not_found"
    client.delete(chat)
    assert error_of(at(branch, first["id"]), 404)[0] == "share_not_found"


# --- who may, and what ends a link ------------------------------------------------------------------------------------


def test_links_end_with_their_chat_by_deletion_and_with_time(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    made = make_keys(
        url, {"ann": None, "bob": None, "ann/short": Policy(retention_seconds=1), "ann/no": Policy(share=False)}
    )
    config = config_of(upstream, storage={"url": url}, access={"keys": True}, chat={"sharing": True})
    with serve(config) as running:
        ann, bob, short, no = (ChatClient(running, key) for key in made.values())
        name = upstream.plays(ANSWERS, ANSWERS, ANSWERS)
        chat = ann.ask(name)["conversation_id"]
        path = share(ann, chat)
        brief = share(ann, chat, expires_in_seconds=1)
        shares = ann.send_request("GET", f"/api/conversations/{chat}/shares").json["data"]
        assert ["expires_at" in one for one in shares] == [False, True]
        assert not any("url" in one for one in shares), "a token is known only when it is made"
        # Others: neither the list, nor a new link, nor a deletion.
        one = f"/api/conversations/{chat}/shares"
        assert error_of(bob.send_request("GET", one), 404)[0] == "conversation_not_found"
        assert error_of(bob.send_request("POST", one, {}), 404)[0] == "conversation_not_found"
        assert error_of(bob.send_request("DELETE", f"{one}/{shares[0]['id']}"), 404)[0] == "share_not_found"
        assert error_of(no.send_request("POST", one, {}), 403)[0] == "sharing_not_allowed"
        assert error_of(ChatClient(running).send_request("POST", one, {}), 401)
        assert read(running, path).status == 200
        # Guesses, and tokens of other kinds, look the same as a link that has ended.
        missing = error_of(read(running, "/api/shared/" + "A" * 43), 404)
        for guess in (shares[0]["id"], chat, "x" * 1000, "%00", "%ff", "'"):
            assert error_of(read(running, f"/api/shared/{guess}"), 404) == missing
        wait_until(lambda: read(running, brief).status == 404)
        assert error_of(read(running, brief), 404) == missing
        # One link is deleted, then the chat of another; then one expires with its chat.
        again = share(ann, chat)
        assert ann.send_request("DELETE", f"{one}/{shares[0]['id']}").status == 200
        assert error_of(read(running, path), 404) == missing
        assert read(running, again).status == 200
        ann.delete(chat)
        assert error_of(read(running, again), 404) == missing
        expiring = share(short, short.ask(name)["conversation_id"])
        wait_until(lambda: read(running, expiring).status == 404)
        # A link with bad fields.
        other = f"/api/conversations/{ann.ask(name)['conversation_id']}/shares"
        bodies = [{"view": "all"}, {"head": "evt_none"}, {"head": "x"}, {"expires_in_seconds": -1}, {"x": 1}, [1]]
        for body in bodies:
            assert 400 <= ann.send_request("POST", other, body).status < 500


def test_with_keys_sharing_is_off_until_the_operator_switches_it_on(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    [key] = make_keys(url, {"ann": None}).values()
    with serve(config_of(upstream, storage={"url": url}, access={"keys": True})) as running:
        ann = ChatClient(running, key)
        chat = ann.ask(upstream.plays(ANSWERS))["conversation_id"]
        code, _, message = error_of(ann.send_request("POST", f"/api/conversations/{chat}/shares", {}), 403)
        assert code == "sharing_not_allowed"
        assert "[chat] sharing" in message
        assert ann.send_request("GET", f"/api/conversations/{chat}/shares").json == {"data": [], "allowed": False}


@pytest.mark.parametrize("before", [{"sharing": True}, {}], ids=["switched off", "the first key"])
def test_links_open_only_while_links_are_on(upstream: Upstream, tmp_path: Path, before: dict[str, Any]) -> None:
    url, with_keys = url_of(tmp_path / "store.sqlite"), bool(before)
    files = [attach("notes.md", b"# Notes")]

    def config(chat: dict[str, Any]) -> dict[str, Any]:
        return config_of(upstream, storage={"url": url}, access={"keys": True} if with_keys else {}, chat=chat)

    key = make_keys(url, {"ann": None})["ann"] if with_keys else None
    with serve(config(before)) as running:
        client = ChatClient(running, key)
        chat = client.ask(upstream.plays(ANSWERS), attachments=files)["conversation_id"]
        path = share(client, chat)
        attachment = read(running, path).json["events"][0]["attachments"][0]["url"]
        assert read(running, attachment).status == 200
    if not with_keys:
        make_keys(url, {"ann": None})
    with serve(config({"sharing": False} if with_keys else {})) as running:
        for one in (path, attachment, "/api/shared/guess"):
            assert error_of(read(running, one), 404)[0] == "share_not_found"
    with serve(config({"sharing": True})) as running:
        assert read(running, path).status == 200, "it is the link that ends, not what was shared"


def test_the_token_is_in_no_log_and_attempts_are_limited(
    gateway: Served, upstream: Upstream, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ChatClient(gateway)
    path = share(client, client.ask(upstream.plays(ANSWERS))["conversation_id"])
    with caplog.at_level(logging.DEBUG):
        assert read(gateway, path).status == 200
        assert gateway.request("GET", path.removeprefix("/api"), None, {"Accept": "text/html"}).status in (200, 503)
        token = path.rpartition("/")[2]
        for other in ("{}/", "/api{}/", "/api{}/export", "/{}", "/c{}", "{}//x"):
            assert gateway.request("GET", other.format(f"/shared/{token}")).status == 404
        assert gateway.request("GET", f"/Shared/{token}").status == 404
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            for prefix in ("", "/api"):
                assert gateway.request(method, f"{prefix}/shared/{token}").status == 405
        gateway.idle()
    assert "/shared/{token}" in caplog.text
    assert token not in caplog.text
    monkeypatch.setattr("pellucid.server.access.limits._SIGN_IN_LIMITS", {"attempts": 3.0})
    replies = [read(gateway, "/api/shared/guess") for _ in range(6)]
    assert error_of(replies[-1], 429)[0] == "too_many_attempts"


# --- export -----------------------------------------------------------------------------------------------------------


def test_an_export_has_the_shown_branch_or_all_branches(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    name = upstream.plays(ANSWERS, ANSWERS, ANSWERS, hangs)
    first = client.ask(name, "One?")
    chat = first["conversation_id"]
    old = client.ask(name, "Two?", conversation_id=chat)
    new = client.ask(name, "Two, again?", replaces=old["id"])
    client.send_request("PUT", f"/api/chat/{new['id']}/feedback", {"rating": "up", "comment": "Good."})
    markdown = client.send_request("GET", f"/api/conversations/{chat}/export")
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert markdown.body.decode().startswith("# One?\n\n## Question\n\n> One?\n\n## Answer")
    for part, count in (
        ("Two, again?", 1),
        ("> Two?", 0),
        ("It is 42.", 2),
        ("```\nLet me see. \n```", 2),
        ("> Good.", 1),
    ):
        assert markdown.body.decode().count(part) == count, part
    exported = client.send_request("GET", f"/api/conversations/{chat}/export?format=json").json
    opened = client.open(chat)
    assert exported["conversation"] == opened["conversation"]
    assert exported["head"] == new["id"]
    by_id = {turn["answer"]["id"]: turn for turn in exported["turns"]}
    assert [one["follows"] for one in exported["turns"]] == [None, first["id"], first["id"]]
    # The round trip: each branch that can be opened is in the export, event for event.
    for head in (new["id"], old["id"]):
        branch, at = list[Any](), head
        while at is not None:
            turn = by_id[at]
            branch[:0] = [turn["question"], turn["answer"]]
            at = turn["follows"]
        assert branch == client.open(chat, f"?head={head}")["events"]
    assert error_of(client.send_request("GET", f"/api/conversations/{chat}/export?format=pdf"), 400)[1] == "format"
    with client.begin(name, "Live?", conversation_id=chat) as stream:
        stream.until("Hm.")
        assert "Live?" in client.send_request("GET", f"/api/conversations/{chat}/export").body.decode()
        client.cancel(read_event_id(stream))


@pytest.mark.parametrize(
    ("title", "file"),
    [
        ("Plain title", "Plain title.md"),
        ('../../etc/passwd"; x=y', "etc passwd ; x=y.md"),
        ("Zoë 东京 \u202egnp.exe", "Zoë 东京 gnp.exe.md"),
        ("...", "chat.md"),
        ("a" * 200, "a" * 79 + "….md"),
        ("new\tline %0d%0a", "new line %0d%0a.md"),
    ],
)
def test_a_hostile_title_makes_a_harmless_file_name(gateway: Served, upstream: Upstream, title: str, file: str) -> None:
    client = ChatClient(gateway)
    chat = client.ask(upstream.plays(ANSWERS))["conversation_id"]
    assert client.change(chat, title=title).status == 200
    value = client.send_request("GET", f"/api/conversations/{chat}/export").headers["content-disposition"]
    plain, _, encoded = value.removeprefix("attachment; filename=").partition("; filename*=UTF-8''")
    assert unquote(encoded) == file
    assert plain.count('"') == 2
    assert plain.isascii()


# --- feedback ---------------------------------------------------------------------------------------------------------


def test_feedback_is_stored_read_listed_and_deleted_with_its_answer(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    made = make_keys(url, {"ann": None, "bob": None, "op": Policy(operator=True)})
    with serve(config_of(upstream, storage={"url": url}, access={"keys": True})) as running:
        ann, bob, operator = (ChatClient(running, key) for key in made.values())
        name = upstream.plays(say("A secret thought.", "It is 42."))
        event = ann.ask(name)
        chat, id = event["conversation_id"], event["id"]
        path = f"/api/chat/{id}/feedback"
        with open_feed(ann) as stream:
            reply = ann.send_request("PUT", path, {"rating": "down", "comment": "No."})
            assert reply.json == {"id": id, "rating": "down", "comment": "No."}
            read_feed_until(stream, "conversation_changed")
        assert ann.open(chat)["events"][1]["feedback"] == {"rating": "down", "comment": "No."}
        ann.send_request("PUT", path, {"rating": "up"})
        assert ann.open(chat)["events"][1]["feedback"] == {"rating": "up"}
        assert error_of(bob.send_request("PUT", path, {"rating": "up"}), 404)[0] == "event_not_found"
        for body in ({}, {"rating": "maybe"}, {"rating": "up", "comment": "x" * 5000}, {"rating": "up", "x": 1}):
            assert error_of(ann.send_request("PUT", path, body), 400)
        assert error_of(ann.send_request("GET", "/api/feedback"), 403)[0] == "operator_only"
        lines = operator.send_request("GET", "/api/feedback")
        assert lines.headers["content-type"] == "application/jsonl; charset=utf-8"
        [line] = map(json.loads, lines.body.splitlines())
        updated_at = line.pop("updated_at")
        assert line == {
            "event_id": id,
            "conversation_id": chat,
            "owner": "ann",
            "model": f"vllm:{name}",
            "rating": "up",
            "comment": "",
        }
        assert operator.send_request("GET", f"/api/feedback?since={updated_at + 1000}").body == b""
        # None deletes it; so does the deletion of the chat.
        deleted = ann.send_request("PUT", path, {"rating": None, "comment": "Never mind."})
        assert deleted.json == {"id": id, "rating": None, "comment": ""}
        assert "feedback" not in ann.open(chat)["events"][1]
        assert ann.send_request("PUT", path, {"rating": "up", "comment": "a\x00b \u202e"}).status == 200
        assert ann.open(chat)["events"][1]["feedback"]["comment"] == "a\ufffdb \u202e"
        with ann.begin(upstream.plays(hangs), "Live?", conversation_id=chat) as stream:
            stream.until("Hm.")
            live = f"/api/chat/{read_event_id(stream)}/feedback"
            assert error_of(ann.send_request("PUT", live, {"rating": "up"}), 409)[0] == "answer_in_progress"
        ann.delete(chat)
        assert operator.send_request("GET", "/api/feedback").body == b""
        assert error_of(ann.send_request("PUT", path, {"rating": "up"}), 404)
