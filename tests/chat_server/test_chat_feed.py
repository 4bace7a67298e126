"""The feed of changes (`GET /api/events`): ids of every chat that changes, and no content."""

from __future__ import annotations

from pathlib import Path

import pytest

from pellucid.server.access.policy import Policy
from tests.chat_server.chat_server_kit import ChatClient, error_of, open_feed, parse_feed, read_feed_until
from tests.scripted import Stream, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.state_kit import config_of, make_keys, url_of

ANSWERS = say("A secret thought.", "A secret answer.")


def test_a_feed_without_credentials_ends_when_the_first_key_is_created(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    with (
        serve(config_of(upstream, storage={"url": url}, access={"key_seconds": 0.1})) as running,
        open_feed(ChatClient(running)) as stream,
    ):
        read_feed_until(stream, "feed_started")
        make_keys(url, {"ann": None})
        stream.rest()
        assert error_of(ChatClient(running).send_request("GET", "/api/events"), 401)[0] == "missing_credentials"


def test_every_change_is_announced_by_ids_alone(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    with open_feed(client) as stream:
        first = client.ask(upstream.plays(ANSWERS, ANSWERS, ANSWERS), "A secret question")
        chat, event = first["conversation_id"], first["id"]
        read_feed_until(stream, "turn_ended")
        client.change(chat, title="A secret title")
        read_feed_until(stream, "conversation_changed")
        again = client.ask(replaces=event, model=first["model"])["id"]
        read_feed_until(stream, "turn_ended", 2)
        client.change(chat, head=event)
        read_feed_until(stream, "conversation_changed", 2)
        client.delete(chat)
        seen = [
            one for one in read_feed_until(stream, "conversation_deleted") if one.get("conversation_id", chat) == chat
        ]
        data = stream.seen
    turn = {"conversation_id": chat, "event_id": event}
    other = {"conversation_id": chat, "event_id": again}
    assert seen == [
        {"type": "feed_started"},
        {"type": "turn_started", **turn},
        {"type": "turn_ended", **turn},
        {"type": "conversation_changed", "conversation_id": chat},
        {"type": "turn_started", **other},
        {"type": "turn_ended", **other},
        {"type": "conversation_changed", "conversation_id": chat},
        {"type": "conversation_deleted", "conversation_id": chat},
    ]
    assert b"secret" not in data


def test_a_window_knows_its_own_changes(gateway: Served, upstream: Upstream) -> None:
    client, chats = ChatClient(gateway), []
    with open_feed(client) as stream:
        for name in ("window-1", "no window", "", "x" * 65, 'a"b'):
            windowed = ChatClient(gateway)
            windowed.headers["Pellucid-Window"] = name
            first = windowed.ask(upstream.plays(ANSWERS), "Why?")
            chat, event = first["conversation_id"], first["id"]
            chats.append(chat)
            windowed.send_request("PUT", f"/api/chat/{event}/feedback", {"rating": "up"})
            windowed.change(chat, title="Rain")
            windowed.delete(chat)
        while ("conversation_deleted", chats[-1]) not in [
            (event["type"], event.get("conversation_id")) for _, event in parse_feed(stream.seen)
        ]:
            stream.seen += stream.response.read1(65536)
    seen = [event for _, event in parse_feed(stream.seen) if event.get("conversation_id") in chats]
    changes = [(event["type"], event.get("window")) for event in seen]
    kinds = ["turn_started", "conversation_changed", "conversation_changed", "conversation_deleted"]
    made = [change for change in changes if change[0] != "turn_ended"]
    # Other values are no names of windows.
    assert made == [(kind, "window-1") for kind in kinds] + [(kind, None) for kind in kinds] * 4
    # An answer ends by itself.
    assert {window for kind, window in changes if kind == "turn_ended"} == {None}


def test_a_feed_that_is_opened_again_has_what_happened_meanwhile(gateway: Served, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    name = upstream.plays(ANSWERS, ANSWERS)
    with open_feed(client) as stream:
        first = client.ask(name)["id"]
        read_feed_until(stream, "turn_ended")
        while not any(value.get("event_id") == first for _, value in parse_feed(stream.seen)[-1:]):
            stream.seen += stream.response.read1(65536)
        last = parse_feed(stream.seen)[-1][0]
    second = client.ask(name)["id"]
    with open_feed(client, **{"Last-Event-ID": last}) as stream:
        while not any(value == ("turn_ended", second) for value in _pairs(stream)):
            stream.seen += stream.response.read1(65536)
        assert ("turn_started", second) in _pairs(stream)
        assert last not in [id for id, _ in parse_feed(stream.seen)]
    for hostile in ("", "-", "x", "9" * 300, "-1-2", "0", "null"):
        with open_feed(client, **{"Last-Event-ID": hostile}):
            pass


def _pairs(stream: Stream) -> list[tuple[str, str | None]]:
    return [(value["type"], value.get("event_id")) for _, value in parse_feed(stream.seen)]


def test_feeds_are_for_one_owner_and_end_with_the_gateway(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    keys = make_keys(url, {"ann": None, "bob": None, "ann/hidden": Policy(view="hidden")})
    name = upstream.plays(ANSWERS)
    config = config_of(upstream, storage={"url": url}, access={"keys": True}, server={"shutdown_seconds": 0.1})
    with serve(config) as running:
        ann, bob, hidden = (ChatClient(running, key) for key in keys.values())
        assert error_of(ChatClient(running).send_request("GET", "/api/events"), 401)[0] == "missing_credentials"
        streams = [open_feed(one) for one in (ann, bob, hidden)]
        mine, theirs = ann.ask(name, "Ann's")["id"], bob.ask(upstream.plays(ANSWERS), "Bob's")["id"]
        for stream in streams:
            read_feed_until(stream, "turn_ended")
        running.server.should_exit = True
        ids = [{value.get("event_id") for _, value in parse_feed(stream.rest())} - {None} for stream in streams]
        assert ids == [{mine}, {theirs}, {mine}], "another key of the owner gets the same"
        for stream in streams:
            stream.leave()


def test_too_many_feeds_are_refused(gateway: Served, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.feed.MAX_FEEDS", 2)
    client = ChatClient(gateway)
    gateway.idle()
    with open_feed(client), open_feed(client):
        code, _, _ = error_of(client.send_request("GET", "/api/events"), 429)
        assert code == "too_many_feeds"
    gateway.idle()
    with open_feed(client):
        pass
