"""Access to chats: views, owners, policies, and the list of models."""

from __future__ import annotations

import logging
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pellucid.local.model_index import Model
from pellucid.local.supervisor import Engine
from pellucid.models.embedded import EmbeddedModel
from pellucid.server.access.policy import Policy
from pellucid.upstream import UpstreamClient
from tests.chat_server.chat_server_kit import (
    ChatClient,
    complete_frames,
    error_of,
    final_event,
    read_event_id,
    segment_texts,
)
from tests.scripted import Reply, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.seal_kit import CANARIES, MORE, SECRET, Canary, name_of
from tests.server.state_kit import config_of, hangs, make_keys, serving, url_of
from tests.server.view_keys import LESSER, Keys, with_keys

ANSWERS = say(
    "Let me see.",
    "It is 42.",
    {"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 5}},
)
LAST = "It is 42. "


# --- views ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keys(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with with_keys(upstream, tmp_path_factory.mktemp("views")) as keys:
        yield keys


@pytest.fixture(autouse=True)
def _check_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Check that no log record contains the marker, at any level."""
    with caplog.at_level(logging.DEBUG):
        yield
    for record in caplog.records:
        assert SECRET not in record.getMessage(), record.name


def client_with_view(keys: Keys, view: str) -> ChatClient:
    one = ChatClient(keys.gateway)
    one.headers = keys.headers(view)
    return one


@pytest.mark.parametrize("canary", [*CANARIES, *MORE], ids=lambda canary: f"{canary.row}-{canary.name}")
def test_a_restricted_view_has_no_byte_of_hidden_reasoning(keys: Keys, upstream: Upstream, canary: Canary) -> None:
    """Checks the live stream, a replay, the conversation, the list and the search, for questions of two viewers."""
    model = name_of(upstream, canary)
    full_reply = client_with_view(keys, "raw").post_question(model)
    event_of_full_view = final_event(full_reply.body)
    for view in LESSER:
        client = client_with_view(keys, view)
        live = client.post_question(model)
        mine = final_event(live.body)
        replies: list[Reply] = [live]
        for event in (event_of_full_view, mine):
            replies.append(client.read(event["id"]))
            replies.append(client.send_request("GET", f"/api/conversations/{event['conversation_id']}"))
        replies += [client.send_request("GET", f"/api/conversations?q={query}") for query in ("", SECRET, "Why")]
        for reply in replies:
            assert reply.status == 200, reply.body
            assert SECRET.encode() not in reply.body
        assert (
            mine["view"],
            [segment for segment in mine["segments"] if view == "hidden" and segment["type"] == "reasoning"],
        ) == (view, [])
        thoughts = [segment for segment in mine["segments"] if segment["type"] == "reasoning"]
        assert not any(segment["parts"] for segment in thoughts if view == "sealed")
        assert not any(part["type"] == "reasoning_text" for segment in thoughts for part in segment["parts"])


def test_each_viewer_gets_the_most_restricted_view_that_applies(keys: Keys, upstream: Upstream) -> None:
    name = f"vllm:{upstream.plays(ANSWERS)}"
    full, sealed, uncounted = (client_with_view(keys, view) for view in ("raw", "sealed", "uncounted"))
    event = full.ask(name)
    chat, id = event["conversation_id"], event["id"]
    assert [kind for kind, _ in segment_texts(event)] == ["reasoning", "text"]
    # A key with a restricted view gets the same in the stream and in the conversation:
    frames = complete_frames(sealed.read(id).body)
    assert {frame.name for frame in frames} == {
        "message_started",
        "reasoning_segment_meta",
        "text_delta",
        "message_final",
    }
    event_seen = sealed.open(chat)["events"][1]
    assert event_seen == frames[-1].data["event"]
    assert segment_texts(event_seen) == [("reasoning", ""), ("text", LAST)]
    assert event_seen["segments"][0]["parts"] == []
    assert frames[1].data["form"] == "sealed"
    # Reasoning tokens are shown or not:
    assert event["usage"]["reasoning_tokens"] == 5
    assert "reasoning_tokens" not in uncounted.read(id).body.decode()
    # The view of the question applies unless the request names another one, which the key must allow:
    hidden = full.ask(name, view="hidden")
    assert segment_texts(hidden) == [("text", LAST)]
    assert segment_texts(full.open(hidden["conversation_id"])["events"][1]) == [("text", LAST)]
    raised = full.read(hidden["id"], "?view=raw")
    assert segment_texts(final_event(raised.body)) == [("reasoning", "Let me see. "), ("text", LAST)]
    assert segment_texts(full.open(hidden["conversation_id"], "?view=raw")["events"][1])[0] == (
        "reasoning",
        "Let me see. ",
    )
    assert error_of(sealed.read(hidden["id"], "?view=raw"), 403)[0] == "view_not_allowed"
    assert error_of(sealed.send_request("GET", f"/api/conversations/{chat}?view=raw"), 403)[0] == "view_not_allowed"
    assert error_of(sealed.post_question(name, view="raw"), 403)[0] == "view_not_allowed"


def test_the_views_at_answer_time_and_at_request_time_both_apply(upstream: Upstream, tmp_path: Path) -> None:
    """A view set now applies to earlier answers; what was hidden when the answer was made stays hidden."""
    name, url = upstream.plays(ANSWERS), url_of(tmp_path / "store.sqlite")

    def config(**views: str) -> dict[str, Any]:
        models = {model: {"provider": "vllm", "model": name, "view": view} for model, view in views.items()}
        return {"models": models}

    with serving(upstream, url, **config(open="raw", shut="hidden")) as running:
        client = ChatClient(running)
        opened, shut = (
            final_event(client.send_request("POST", "/api/chat", {"text": "?", "model": m}).body)
            for m in ("open", "shut")
        )
        assert [len(event["segments"]) for event in (opened, shut)] == [2, 1]
    with serving(upstream, url, **config(open="sealed", shut="raw")) as running:
        client = ChatClient(running)
        for query in ("", "?view=sealed"):
            events = [client.open(event["conversation_id"], query)["events"][1] for event in (opened, shut)]
            assert segment_texts(events[0]) == [("reasoning", ""), ("text", LAST)]
            assert segment_texts(events[1]) == [("text", LAST)]
        assert error_of(client.read(shut["id"], "?view=raw"), 403)[0] == "view_not_allowed"


# --- owners -----------------------------------------------------------------------------------------------------------


def test_an_event_of_another_owner_is_not_found(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    keys_by_name = make_keys(url, {"ann": None, "bob": None, "ann/too": None})
    with serve(config_of(upstream, storage={"url": url}, access={"keys": True})) as running:
        ann, bob, too = (ChatClient(running, keys_by_name[name]) for name in ("ann", "bob", "ann/too"))
        name = upstream.plays(ANSWERS, hangs)
        done = ann.ask(name, "Ann's question")
        chat = done["conversation_id"]
        with ann.begin(name, conversation_id=chat) as stream:
            stream.until("Hm.")
            live = read_event_id(stream)
            for event in (done["id"], live):
                assert error_of(bob.read(event), 404)[0] == "event_not_found"
                assert error_of(bob.cancel(event), 404)[0] == "event_not_found"
                assert error_of(bob.post_question(name, replaces=event), 404)[0] == "event_not_found"
            for method, body in (
                ("GET", None),
                ("PATCH", {"title": "Bob's"}),
                ("PATCH", {"head": live}),
                ("DELETE", None),
            ):
                assert (
                    error_of(bob.send_request(method, f"/api/conversations/{chat}", body), 404)[0]
                    == "conversation_not_found"
                )
            assert error_of(bob.post_question(name, conversation_id=chat), 404)[0] == "conversation_not_found"
            assert bob.list_conversations()["data"] == bob.list_conversations("?q=Ann")["data"] == []
            # Another key of the same owner has the same access.
            assert too.open(chat)["active"] == live
            assert too.cancel(live).json["status"] == "cancelled"
        assert [one["id"] for one in too.list_conversations("?q=Ann")["data"]] == [chat]
        assert error_of(ChatClient(running).post_question(name), 401)


def test_a_chat_turn_is_not_found_as_a_response(gateway: Served, upstream: Upstream) -> None:
    """The other protocol neither returns nor deletes it, nor continues from it."""
    client, name = ChatClient(gateway), upstream.plays(ANSWERS)
    event = client.ask(name)["id"]
    for method in ("GET", "DELETE"):
        assert client.send_request(method, f"/v1/responses/{event}").status == 404
    on = client.send_request(
        "POST", "/v1/responses", {"model": f"vllm:{name}", "input": "On?", "previous_response_id": event}
    )
    assert (on.status, on.error["code"]) == (400, "previous_response_not_found")
    assert len(upstream.calls(name)) == 1


# --- policies ---------------------------------------------------------------------------------------------------------


def test_policies_limit_chats(upstream: Upstream, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    url = url_of(path)
    policies = {
        "none/store": Policy(store=False),
        "one/stream": Policy(streams=1),
        "few/models": Policy(models=["good*"], view="summary"),
        "short/term": Policy(retention_seconds=1000),
        "two/asks": Policy(requests_per_minute=2),
    }
    keys_by_name = make_keys(url, {**policies})
    config = config_of(upstream, storage={"url": url}, access={"keys": True})
    config["providers"]["vllm"]["models"] = ["good-1", "bad-1", "*"]
    with serve(config) as running:
        clients = {name: ChatClient(running, key) for name, key in keys_by_name.items()}
        name = upstream.plays(ANSWERS)
        code, _, message = error_of(clients["none/store"].post_question(name), 403)
        assert code == "store_not_allowed"
        assert "chat" in message
        assert upstream.calls(name) == []
        slow = upstream.plays(hangs)
        with clients["one/stream"].begin(slow) as stream:
            stream.until("Hm.")
            assert error_of(clients["one/stream"].post_question(name), 429)
            # Reading counts as no run, and a refused question is not stored.
            assert clients["one/stream"].list_conversations()["data"][1:] == []
            clients["one/stream"].cancel(read_event_id(stream))
        assert error_of(clients["few/models"].post_question(name), 403)[0] == "model_not_allowed"
        models = clients["few/models"].send_request("GET", "/api/models").json
        assert [(one["id"], one["view"]) for one in models["data"]] == [("good-1", "summary")]
        assert models["views"] == ["summary", "sealed", "hidden"]
        for _ in range(2):
            clients["two/asks"].ask(name)
        assert error_of(clients["two/asks"].post_question(name), 429)
        began = time.time()
        short_lived = clients["short/term"].ask(name)["conversation_id"]
        assert clients["short/term"].open(short_lived)
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as store:  # it expires
            for table in ("responses", "chats"):
                [(expires_at,)] = store.execute(f"SELECT expires_at FROM {table} WHERE owner = 'short'").fetchall()
                assert began + 1000 <= expires_at <= time.time() + 1000
            store.execute("UPDATE responses SET expires_at = 1 WHERE owner = 'short'")
            store.execute("UPDATE chats SET expires_at = 1 WHERE owner = 'short'")
        assert clients["short/term"].send_request("GET", f"/api/conversations/{short_lived}").status == 404
        assert clients["short/term"].list_conversations()["data"] == []


def test_a_chat_expires_with_its_last_turn(upstream: Upstream, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with serving(upstream, url_of(path), storage={"retention_seconds": 1000}) as running:
        client, name = ChatClient(running), upstream.plays(ANSWERS)
        chat = client.ask(name)["conversation_id"]
        client.ask(name, conversation_id=chat)
        with sqlite3.connect(path) as store:
            [(first_expires_at,), (second_expires_at,)] = store.execute(
                "SELECT expires_at FROM responses ORDER BY created_at"
            ).fetchall()
            [(chat_expires_at,)] = store.execute("SELECT expires_at FROM chats").fetchall()
        assert second_expires_at - 1 <= first_expires_at
        assert chat_expires_at >= second_expires_at - 0.001


# --- models -----------------------------------------------------------------------------------------------------------


def test_models_are_listed_with_their_view_and_efforts(upstream: Upstream) -> None:
    config = config_of(upstream, server={"default_model": "best"})
    config["models"] = {
        "best": {"provider": "vllm", "model": "qwen"},
        "quiet": {"provider": "deepseek", "view": "sealed"},
    }
    with serve(config) as running:
        models = ChatClient(running).send_request("GET", "/api/models").json
        assert models["views"] == ["raw", "summary", "sealed", "hidden"]
        best, quiet = models["data"]
        assert (best["id"], best["default"], best["view"]) == ("best", True, "raw")
        assert (quiet["id"], "default" in quiet, quiet["view"]) == ("quiet", False, "sealed")
        assert quiet["efforts"] == ["off", "low", "medium", "high", "max"]
        # vLLM serves any model.
        assert (best.get("efforts_unknown"), quiet.get("efforts_unknown")) == (True, None)


def test_the_embedded_model_is_listed_as_loading_until_it_has_loaded(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(b"GGUF")
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    engine = Engine(Model.from_path(path), path, log=tmp_path / "engine.log", command=command)
    transport = UpstreamClient()
    with serve({}, EmbeddedModel(engine, transport), transport) as running:
        client = ChatClient(running)
        [model] = client.send_request("GET", "/api/models").json["data"]
        assert (model["embedded"], model["loading"]) == (True, True)
        engine.state = "ready"
        [model] = client.send_request("GET", "/api/models").json["data"]
        assert model["embedded"]
        assert "loading" not in model


def test_efforts_reach_the_model(gateway: Any, upstream: Upstream) -> None:
    client = ChatClient(gateway)
    for effort, sent in (("off", {"enable_thinking": False}), ("high", {"enable_thinking": True})):
        name = upstream.plays(ANSWERS)
        event = client.ask(name, effort=effort)
        assert event["effort_level"] == effort
        body = upstream.calls(name)[0].body
        assert {**body["chat_template_kwargs"], **sent} == body["chat_template_kwargs"]
    name = upstream.plays(ANSWERS)
    assert "effort_level" not in client.ask(name)
    assert "chat_template_kwargs" not in upstream.calls(name)[0].body
