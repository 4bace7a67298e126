"""Who may ask, who sees what, and whose it is."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pellucid.server.access.policy import Policy
from tests.chat_server.chat_server_kit import Chatter, event_id, final, refused, texts, whole
from tests.scripted import Reply, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, name_of
from tests.server.state_kit import config_of, hangs, make_keys, serving, url_of
from tests.server.view_keys import LESSER, Keys, with_keys

THINKS = say(
    "Let me see.",
    "It is 42.",
    {"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}},
)
LAST = "It is 42. "


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keyed(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with with_keys(upstream, tmp_path_factory.mktemp("views")) as made:
        yield made


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing that is logged has the marker in it, at whatever level."""
    with caplog.at_level(logging.DEBUG):
        yield
    for record in caplog.records:
        assert SECRET not in record.getMessage(), record.name


def chatter(keyed: Keys, view: str) -> Chatter:
    one = Chatter(keyed.gateway)
    one.headers = keyed.headers(view)
    return one


@pytest.mark.parametrize("canary", [*CANARIES, *MORE], ids=lambda canary: f"{canary.row}-{canary.name}")
def test_a_lesser_view_has_no_byte_of_it(keyed: Keys, upstream: Upstream, canary: Canary) -> None:
    """Live, read again, opened, listed, searched; whether it was asked by the reader or by whoever sees all."""
    model = name_of(upstream, canary)
    reply = chatter(keyed, "raw").asks(model)
    asked_by_all = final(reply.body)
    for view in LESSER:
        me = chatter(keyed, view)
        live = me.asks(model)
        mine = final(live.body)
        replies: list[Reply] = [live]
        for event in (asked_by_all, mine):
            replies.append(me.read(event["id"]))
            replies.append(me.do("GET", f"/api/conversations/{event['conversation_id']}"))
        replies += [me.do("GET", f"/api/conversations?q={query}") for query in ("", SECRET, "Why")]
        for told in replies:
            assert told.status == 200, told.body
            assert SECRET.encode() not in told.body
        assert (
            mine["view"],
            [segment for segment in mine["segments"] if view == "hidden" and segment["type"] == "reasoning"],
        ) == (view, [])
        thoughts = [segment for segment in mine["segments"] if segment["type"] == "reasoning"]
        assert not any(segment["parts"] for segment in thoughts if view == "sealed")
        assert not any(part["type"] == "reasoning_text" for segment in thoughts for part in segment["parts"])


def test_each_reader_gets_the_least_of_all_that_counts(keyed: Keys, upstream: Upstream) -> None:
    name = f"vllm:{upstream.plays(THINKS)}"
    everything, sealed, uncounted = (chatter(keyed, view) for view in ("raw", "sealed", "uncounted"))
    event = everything.ask(name)
    chat, id = event["conversation_id"], event["id"]
    assert [kind for kind, _ in texts(event)] == ["reasoning", "text"]
    # A key that may see less, in the stream and in the conversation alike:
    frames = whole(sealed.read(id).body)
    assert {frame.name for frame in frames} == {
        "message_started",
        "reasoning_segment_meta",
        "text_delta",
        "message_final",
    }
    told = sealed.open(chat)["events"][1]
    assert told == frames[-1].data["event"]
    assert texts(told) == [("reasoning", ""), ("text", LAST)]
    assert told["segments"][0]["parts"] == []
    assert frames[1].data["form"] == "sealed"
    # What may be seen is counted or not:
    assert event["usage"]["reasoning_tokens"] == 5
    assert "reasoning_tokens" not in uncounted.read(id).body.decode()
    # What the question was asked with stays, unless more is asked for, and then no more than the key allows:
    quiet = everything.ask(name, view="hidden")
    assert texts(quiet) == [("text", LAST)]
    assert texts(everything.open(quiet["conversation_id"])["events"][1]) == [("text", LAST)]
    more = everything.read(quiet["id"], "?view=raw")
    assert texts(final(more.body)) == [("reasoning", "Let me see. "), ("text", LAST)]
    assert texts(everything.open(quiet["conversation_id"], "?view=raw")["events"][1])[0] == (
        "reasoning",
        "Let me see. ",
    )
    assert refused(sealed.read(quiet["id"], "?view=raw"), 403)[0] == "view_not_allowed"
    assert refused(sealed.do("GET", f"/api/conversations/{chat}?view=raw"), 403)[0] == "view_not_allowed"
    assert refused(sealed.asks(name, view="raw"), 403)[0] == "view_not_allowed"


def test_what_may_be_seen_of_a_model_now_and_then(upstream: Upstream, tmp_path: Path) -> None:
    """An operator's word holds for what was said before, and what was not to be seen then is not to be seen later."""
    name, url = upstream.plays(THINKS), url_of(tmp_path / "store.sqlite")

    def config(**views: str) -> dict[str, Any]:
        models = {model: {"provider": "vllm", "model": name, "view": view} for model, view in views.items()}
        return {"models": models}

    with serving(upstream, url, **config(open="raw", shut="hidden")) as running:
        me = Chatter(running)
        opened, shut = (final(me.do("POST", "/api/chat", {"text": "?", "model": m}).body) for m in ("open", "shut"))
        assert [len(event["segments"]) for event in (opened, shut)] == [2, 1]
    with serving(upstream, url, **config(open="sealed", shut="raw")) as running:
        me = Chatter(running)
        for asked in ("", "?view=sealed"):
            told = [me.open(event["conversation_id"], asked)["events"][1] for event in (opened, shut)]
            assert texts(told[0]) == [("reasoning", ""), ("text", LAST)]
            assert texts(told[1]) == [("text", LAST)]
        assert refused(me.read(shut["id"], "?view=raw"), 403)[0] == "view_not_allowed"


# --- owners -----------------------------------------------------------------------------------------------------------


def test_what_is_anothers_is_not_there(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    made = make_keys(url, {"ann": None, "bob": None, "ann/too": None})
    with serve(config_of(upstream, storage={"url": url}, access={"keys": True})) as running:
        ann, bob, too = (Chatter(running, made[name]) for name in ("ann", "bob", "ann/too"))
        name = upstream.plays(THINKS, hangs)
        done = ann.ask(name, "Ann's question")
        chat = done["conversation_id"]
        with ann.begin(name, conversation_id=chat) as stream:
            stream.until("Hm.")
            live = event_id(stream)
            for event in (done["id"], live):
                assert refused(bob.read(event), 404)[0] == "event_not_found"
                assert refused(bob.cancel(event), 404)[0] == "event_not_found"
                assert refused(bob.asks(name, replaces=event), 404)[0] == "event_not_found"
            for method, body in (
                ("GET", None),
                ("PATCH", {"title": "Bob's"}),
                ("PATCH", {"head": live}),
                ("DELETE", None),
            ):
                assert refused(bob.do(method, f"/api/conversations/{chat}", body), 404)[0] == "conversation_not_found"
            assert refused(bob.asks(name, conversation_id=chat), 404)[0] == "conversation_not_found"
            assert bob.chats()["data"] == bob.chats("?q=Ann")["data"] == []
            # Another key of the same owner is the same person.
            assert too.open(chat)["active"] == live
            assert too.cancel(live).json["status"] == "cancelled"
        assert [one["id"] for one in too.chats("?q=Ann")["data"]] == [chat]
        assert refused(Chatter(running).asks(name), 401)


def test_a_turn_is_no_response(gateway: Served, upstream: Upstream) -> None:
    """By no door of the other protocol, the way on from it included."""
    me, name = Chatter(gateway), upstream.plays(THINKS)
    event = me.ask(name)["id"]
    for method in ("GET", "DELETE"):
        assert me.do(method, f"/v1/responses/{event}").status == 404
    on = me.do("POST", "/v1/responses", {"model": f"vllm:{name}", "input": "On?", "previous_response_id": event})
    assert (on.status, on.error["code"]) == (400, "previous_response_not_found")
    assert len(upstream.calls(name)) == 1


# --- what a key may do ------------------------------------------------------------------------------------------------


def test_policies(upstream: Upstream, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    url = url_of(path)
    policies = {
        "none/store": Policy(store=False),
        "one/stream": Policy(streams=1),
        "few/models": Policy(models=["good*"], view="summary"),
        "short/term": Policy(retention_seconds=1000),
        "two/asks": Policy(requests_per_minute=2),
    }
    made = make_keys(url, {**policies})
    config = config_of(upstream, storage={"url": url}, access={"keys": True})
    config["providers"]["vllm"]["models"] = ["good-1", "bad-1"]
    with serve(config) as running:
        by = {name: Chatter(running, key) for name, key in made.items()}
        name = upstream.plays(THINKS)
        code, _, message = refused(by["none/store"].asks(name), 403)
        assert code == "store_not_allowed"
        assert "chat" in message
        assert upstream.calls(name) == []
        slow = upstream.plays(hangs)
        with by["one/stream"].begin(slow) as stream:
            stream.until("Hm.")
            assert refused(by["one/stream"].asks(name), 429)
            # To read is not to run; and what was not begun is nowhere.
            assert by["one/stream"].chats()["data"][1:] == []
            by["one/stream"].cancel(event_id(stream))
        assert refused(by["few/models"].asks(name), 403)[0] == "model_not_allowed"
        models = by["few/models"].do("GET", "/api/models").json
        assert [(one["id"], one["view"]) for one in models["data"]] == [("good-1", "summary")]
        assert models["views"] == ["summary", "sealed", "hidden"]
        for _ in range(2):
            by["two/asks"].ask(name)
        assert refused(by["two/asks"].asks(name), 429)
        began = time.time()
        brief = by["short/term"].ask(name)["conversation_id"]
        assert by["short/term"].open(brief)
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as store:  # its time passes
            for table in ("responses", "chats"):
                [(until,)] = store.execute(f"SELECT expires_at FROM {table} WHERE owner = 'short'").fetchall()
                assert began + 1000 <= until <= time.time() + 1000
            store.execute("UPDATE responses SET expires_at = 1 WHERE owner = 'short'")
            store.execute("UPDATE chats SET expires_at = 1 WHERE owner = 'short'")
        assert by["short/term"].do("GET", f"/api/conversations/{brief}").status == 404
        assert by["short/term"].chats()["data"] == []


def test_a_chat_lives_as_long_as_its_last_turn(upstream: Upstream, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with serving(upstream, url_of(path), storage={"retention_seconds": 1000}) as running:
        me, name = Chatter(running), upstream.plays(THINKS)
        chat = me.ask(name)["conversation_id"]
        me.ask(name, conversation_id=chat)
        with sqlite3.connect(path) as store:
            [(first,), (second,)] = store.execute("SELECT expires_at FROM responses ORDER BY created_at").fetchall()
            [(whole,)] = store.execute("SELECT expires_at FROM chats").fetchall()
        assert second - 1 <= first
        assert whole >= second - 0.001


# --- what can be picked -----------------------------------------------------------------------------------------------


def test_models_are_listed_with_what_they_hear(upstream: Upstream) -> None:
    config = config_of(upstream, server={"default_model": "best"})
    config["models"] = {
        "best": {"provider": "vllm", "model": "qwen"},
        "quiet": {"provider": "deepseek", "view": "sealed"},
    }
    with serve(config) as running:
        told = Chatter(running).do("GET", "/api/models").json
        assert told["views"] == ["raw", "summary", "sealed", "hidden"]
        best, quiet = told["data"]
        assert (best["id"], best["default"], best["view"]) == ("best", True, "raw")
        assert (quiet["id"], "default" in quiet, quiet["view"]) == ("quiet", False, "sealed")
        assert quiet["efforts"] == ["off", "low", "medium", "high", "max"]


def test_efforts_reach_the_model(gateway: Any, upstream: Upstream) -> None:
    me = Chatter(gateway)
    for effort, sent in (("off", {"enable_thinking": False}), ("high", {"enable_thinking": True})):
        name = upstream.plays(THINKS)
        event = me.ask(name, effort=effort)
        assert event["effort_level"] == effort
        body = upstream.calls(name)[0].body
        assert {**body["chat_template_kwargs"], **sent} == body["chat_template_kwargs"]
    name = upstream.plays(THINKS)
    assert "effort_level" not in me.ask(name)
    assert "chat_template_kwargs" not in upstream.calls(name)[0].body
