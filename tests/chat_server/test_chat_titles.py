"""Titles of chats that a model writes: who writes them, what it reads, and when they are left out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.access.policy import Policy
from pellucid.server.catalog import Catalog
from pellucid.server.chat.conversations import AUTO_TITLE_CHARACTERS, is_visible, single_line, title_of
from pellucid.server.chat.titles import INSTRUCTIONS, clean_title
from pellucid.server.config import check_config
from pellucid.server.factories import check_startup, find_title_writer
from pellucid.upstream import UpstreamClient
from tests.chat_server.chat_server_kit import ChatClient, open_feed, read_feed_until
from tests.scripted import Call, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.scripted.upstream import Script
from tests.scripted_runs import ScriptedModel
from tests.server.state_kit import breaks, config_of, make_keys, url_of
from tests.waiting import LIMIT_SECONDS, wait_until

QUESTION = "Which moss grows on the north side of trees, and is that true?"
ANSWER = say("A secret thought. ", "Mosses grow where it is damp.")
TITLE = say("", "Moss", {"prompt_tokens": 3, "completion_tokens": 5})
PROVIDERS = {
    "vllm": {"base_url": "http://127.0.0.1:9/v1"},
    "openai": {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "K"},
}


@pytest.fixture(scope="module")
def titling(upstream: Upstream) -> Iterator[Served]:
    """A gateway as it is by default."""
    with serve(config_of(upstream), writes_titles=True) as running:
        yield running


def titled(client: ChatClient, id: str) -> str:
    title: str = client.open(id)["conversation"]["title"]
    return title


def test_the_answering_model_writes_the_title_and_reads_no_reasoning(titling: Served, upstream: Upstream) -> None:
    client = ChatClient(titling)
    name = upstream.plays(ANSWER, say("", '**Title:** "Moss on trees."'), ANSWER)
    with open_feed(client) as feed:
        chat = client.ask(name, QUESTION)["conversation_id"]
        read_feed_until(feed, "conversation_changed")
    assert titled(client, chat) == "Moss on trees"
    assert [one["id"] for one in client.list_conversations("?q=Moss+on")["data"]] == [chat]
    _, call = upstream.calls(name, 2)
    system, user = call.body["messages"]
    assert system == {"role": "system", "content": INSTRUCTIONS}
    assert user["role"] == "user"
    assert QUESTION in user["content"]
    assert "where it is damp" in user["content"]
    assert "secret" not in str(call.body)
    # Later turns change nothing.
    client.ask(name, "And?", conversation_id=chat)
    client.ask(name, "Or?", conversation_id=chat)
    assert len(upstream.calls(name, 4)) == 4
    assert titled(client, chat) == "Moss on trees"


def test_a_title_that_a_person_sets_meanwhile_stays(upstream: Upstream, tmp_path: Path) -> None:
    config = config_of(upstream, storage={"url": url_of(tmp_path / "store.sqlite")})
    renamed = threading.Event()

    async def is_overtaken(call: Call) -> None:
        [chat] = (await asyncio.to_thread(client.list_conversations))["data"]
        assert (await asyncio.to_thread(client.change, chat["id"], title="My own")).status == 200
        renamed.set()
        await say("", "Late")(call)

    with serve(config, writes_titles=True) as running:
        client = ChatClient(running)
        chat = client.ask(upstream.plays(ANSWER, is_overtaken), QUESTION)["conversation_id"]
        assert renamed.wait(LIMIT_SECONDS)
    # A gateway stops when its titles are written.
    with serve(config) as running:
        assert titled(ChatClient(running), chat) == "My own"


async def refuses(call: Call) -> None:
    await call.answer(400, b'{"error": {"message": "no"}}')


@pytest.mark.parametrize("writes", [say("", '""'), say("Only a thought.", ""), breaks, refuses])
def test_a_title_that_cannot_be_written_leaves_the_beginning_of_the_question(
    upstream: Upstream, tmp_path: Path, writes: Script
) -> None:
    config = config_of(upstream, storage={"url": url_of(tmp_path / "store.sqlite")})
    with serve(config, writes_titles=True) as running:
        chat = ChatClient(running).ask(name := upstream.plays(ANSWER, writes), QUESTION)["conversation_id"]
        upstream.calls(name, 2)
    with serve(config) as running:
        assert titled(ChatClient(running), chat) == title_of(QUESTION)


def test_titles_are_charged_and_only_completed_first_answers_have_one(upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    config = config_of(
        upstream, storage={"url": url}, chat={"title_model": f"vllm:{(titler := upstream.plays(TITLE))}"}
    )
    keys = make_keys(url, {"ann": None, "operator": Policy(operator=True)})
    with serve({**config, "access": {"keys": True}}) as running:
        client = ChatClient(running, keys["ann"])
        answering = upstream.plays(ANSWER)
        client.ask(answering, QUESTION)
        client.post_question(upstream.plays(breaks), QUESTION)
        upstream.calls(titler, 1)
        operator = ChatClient(running, keys["operator"])

        def used() -> list[tuple[int, int]]:
            """What ann used of the model that writes titles."""
            rows = operator.send_request("GET", "/api/usage?group_by=model&owner=ann").json["data"]
            return [(row["requests"], row["output_tokens"]) for row in rows if row["model"] == f"vllm:{titler}"]

        wait_until(lambda: used() == [(1, 5)], "the title is accounted for")
        assert len(upstream.calls(titler)) == 1


@pytest.mark.parametrize(
    ("config", "answering", "writer"),
    [
        ({}, "vllm:m", "vllm:m"),
        ({"chat": {"title_model": "none"}}, "vllm:m", None),
        ({"chat": {"title_model": "vllm:small"}}, "vllm:m", "vllm:small"),
        ({}, "openai:gpt-5.1", "openai:gpt-5.1"),
        ({}, "openai:o3-pro", None),  # it cannot do without thinking
        ({}, "m", None),  # made in code, as agents are
    ],
)
def test_which_model_writes(config: dict[str, Any], answering: str, writer: str | None) -> None:
    checked = check_config({"providers": PROVIDERS, **config}, {"K": "k"})
    catalog = Catalog(checked, UpstreamClient(checked.limits), None, [ScriptedModel()])
    written_by = find_title_writer(checked, catalog, answering)
    assert (written_by and written_by[0]) == writer


def test_a_start_refuses_a_model_that_is_not_there() -> None:
    providers = {"vllm": {**PROVIDERS["vllm"], "models": ["m"]}}
    config = check_config({"providers": providers, "chat": {"title_model": "tiny"}}, {})
    [mistake] = check_startup(config, UpstreamClient(), None)
    assert mistake.startswith("chat.title_model: ")
    assert "'tiny'" in mistake


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Speed of a train: **80 km/h**", "Speed of a train: 80 km/h"),
        ("## The `reverse()` of a [string](https://x.example)", "The reverse() of a string"),
        ("2 * 3, snake_case and C# code", "2 * 3, snake_case and C# code"),
    ],
)
def test_a_title_has_no_markdown(written: str, title: str) -> None:
    assert clean_title(written) == title


@given(st.text(st.sampled_from("aé中 .\n\"'*#:`“\u200b\u202e\x07") | st.characters(), max_size=300))
def test_whatever_a_model_writes_a_title_is_one_short_visible_line(text: str) -> None:
    title = clean_title(text)
    if title is not None:
        assert is_visible(title)
        assert len(title) <= AUTO_TITLE_CHARACTERS
        assert title == single_line(title)
        assert clean_title(f'# Title: "{title}"\nmore') in (title, clean_title(title))
