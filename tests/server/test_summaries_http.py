"""Live summaries by a configured model, for models that produce none."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pellucid.relay.memory import MemoryRelay
from pellucid.server.access.policy import Policy
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Reply, Served, serve
from tests.server.loop_kit import calling, legal_events, turn
from tests.server.seal_kit import CANARIES, name_of
from tests.server.state_kit import Caller, config_of, make_keys, url_of
from tests.server.view_keys import Keys, with_keys
from tests.waiting import LIMIT_SECONDS, wait_until

FIRST = "First I look at the t0psecret. " * 20
SECOND = "Then I decide on the t0psecret. " * 20
WITH_SUMMARIES: dict[str, Any] = {"reasoning": {"summary": "auto"}}


class Author:
    """The model that writes summaries: its behaviour can be set, and its calls are recorded."""

    def __init__(self, upstream: Upstream) -> None:
        self.does = "write"
        self.name = upstream.plays(self._script)
        self._upstream = upstream
        self.left = 0

    async def _script(self, call: Call) -> None:
        if self.does == "fail":
            await call.answer(500, b'{"error":{"message":"t0psecret"}}')
            return
        await call.head()
        if self.does == "hang":
            await call.event(delta(content="I be"))
            await call.wait_for_disconnect()
            self.left += 1
            return
        if self.does == "empty":
            await call.event(delta("stop"))
        elif self.does == "echo":
            await call.event(delta("stop", content=f"It says: {call.body['messages'][-1]['content']}"))
        else:
            await call.event(delta(reasoning_content="(of its own)"))
            await call.event(delta("stop", content=f"Gist {len(self.calls)}."))
            await call.event({"choices": [], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}})
        await call.event(b"[DONE]")
        await call.end()

    @property
    def calls(self) -> list[Call]:
        return self._upstream.calls(self.name)


@pytest.fixture(scope="module")
def author(upstream: Upstream) -> Author:
    return Author(upstream)


PATIENT, HASTY = 60.0, 0.3
"""Seconds that a response waits for its summaries: for tests in which they arrive, and in which they do not."""


def summing(upstream: Upstream, author: Author, seconds: float) -> AbstractContextManager[Served]:
    return serve(
        {
            "limits": {"retries": 0},
            "summaries": {"model": f"vllm:{author.name}", "seconds": seconds},
            "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
        }
    )


@pytest.fixture(scope="module")
def summed(upstream: Upstream, author: Author) -> Iterator[Served]:
    with summing(upstream, author, PATIENT) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(upstream: Upstream, author: Author) -> Iterator[Served]:
    with summing(upstream, author, HASTY) as running:
        yield running


def summing_with_keys(upstream: Upstream, author: Author, home: Path, seconds: float) -> AbstractContextManager[Keys]:
    return with_keys(upstream, home, summaries={"model": f"vllm:{author.name}", "seconds": seconds})


@pytest.fixture(scope="module")
def keyed(upstream: Upstream, author: Author, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with summing_with_keys(upstream, author, tmp_path_factory.mktemp("summaries"), PATIENT) as made:
        yield made


@pytest.fixture(scope="module")
def hasty_keyed(upstream: Upstream, author: Author, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keys]:
    with summing_with_keys(upstream, author, tmp_path_factory.mktemp("summaries"), HASTY) as made:
        yield made


@pytest.fixture(autouse=True)
def _writes(author: Author) -> None:
    author.does = "write"


def thinker(upstream: Upstream) -> str:
    async def script(call: Call) -> None:
        await call.head()
        for paragraph in (FIRST, "\n\n", SECOND):
            for word in paragraph.split(" "):
                await call.event(delta(reasoning_content=word + " "))
        await call.event(delta(content="So be it."))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return upstream.plays(script)


def summaries(response: dict[str, Any]) -> list[str]:
    return [part["text"] for item in response["output"] if item["type"] == "reasoning" for part in item["summary"]]


def names(events: list[dict[str, Any]], start: str) -> list[str]:
    return [event["type"] for event in events if event["type"].startswith(start)]


def test_a_raw_view_gets_summaries_after_the_reasoning_of_the_same_item(
    summed: Served, upstream: Upstream, author: Author
) -> None:
    events = legal_events(summed.ask(thinker(upstream), stream=True, **WITH_SUMMARIES))
    response = events[-1]["response"]
    [reasoning, message] = response["output"]
    assert reasoning["content"][0]["text"].startswith("First")
    assert [part["text"].partition(" ")[0] for part in reasoning["summary"]] == ["Gist", "Gist"]
    assert message["content"][0]["text"] == "So be it."
    part = ["part.added", "text.delta", "text.done", "part.done"]
    assert names(events, "response.reasoning_summary") == [f"response.reasoning_summary_{step}" for step in part * 2]
    kinds = [event["type"] for event in events]
    assert kinds.index("response.reasoning_summary_part.added") > kinds.index("response.reasoning.done")
    messages = author.calls[-2].body["messages"]
    assert "t0psecret" in messages[-1]["content"]
    assert "Why?" not in json.dumps(messages)
    whole = summed.ask(thinker(upstream), **WITH_SUMMARIES).json
    assert len(summaries(whole)) == 2
    stored = summed.request("GET", f"/v1/responses/{response['id']}").json
    assert stored["output"] == response["output"]


def test_summaries_are_not_made_unless_requested(summed: Served, upstream: Upstream, author: Author) -> None:
    before = len(author.calls)
    response = legal_events(summed.ask(thinker(upstream), stream=True))[-1]["response"]
    assert summaries(response) == []
    assert len(author.calls) == before


def assert_no_secret(reply: Reply) -> None:
    assert b"t0psecret" not in reply.body


def test_a_summary_view_gets_summaries_live_and_nothing_raw(keyed: Keys, upstream: Upstream) -> None:
    model = f"vllm:{thinker(upstream)}"
    reply = keyed.ask("summary", model, stream=True)
    events = legal_events(reply)
    assert_no_secret(reply)
    assert len(summaries(events[-1]["response"])) == 2
    id = events[-1]["response"]["id"]
    for path in (f"/v1/responses/{id}", f"/v1/responses/{id}?stream=true"):
        again = keyed.get("summary", path)
        assert_no_secret(again)
        assert b"Gist" in again.body
    assert b"Gist" not in keyed.get("sealed", f"/v1/responses/{id}").body
    chat = keyed.chat("summary", model)
    assert_no_secret(chat)
    assert "Gist" in json.dumps(chat.json)


@pytest.mark.parametrize("view", ["sealed", "hidden"])
def test_stricter_views_request_no_summaries(keyed: Keys, upstream: Upstream, author: Author, view: str) -> None:
    before = len(author.calls)
    reply = keyed.ask(view, f"vllm:{thinker(upstream)}", stream=True, **WITH_SUMMARIES)
    assert_no_secret(reply)
    assert summaries(legal_events(reply)[-1]["response"]) == []
    assert len(author.calls) == before


@pytest.mark.parametrize("does", ["fail", "hang", "empty"])
def test_a_failed_summary_is_left_out(
    hasty: Served, upstream: Upstream, author: Author, does: str, caplog: pytest.LogCaptureFixture
) -> None:
    author.does = does
    with caplog.at_level("DEBUG"):
        reply = hasty.ask(thinker(upstream), stream=True, **WITH_SUMMARIES)
    response = legal_events(reply)[-1]["response"]
    assert response["status"] == "completed"
    assert summaries(response) == []
    assert response["output"][-1]["content"][0]["text"] == "So be it."
    assert not any("t0psecret" in record.getMessage() for record in caplog.records)
    if does == "hang":
        wait_until(lambda: author.left > 0)


@pytest.mark.parametrize("does", ["fail", "hang", "empty", "echo"])
def test_raw_text_never_replaces_a_summary(hasty_keyed: Keys, upstream: Upstream, author: Author, does: str) -> None:
    author.does = does
    reply = hasty_keyed.ask("summary", f"vllm:{thinker(upstream)}", stream=True)
    assert_no_secret(reply)
    assert legal_events(reply)[-1]["response"]["status"] == "completed"


def test_a_disconnect_stops_the_summary_model(summed: Served, upstream: Upstream, author: Author) -> None:
    author.does = "hang"
    before, left = len(author.calls), author.left

    async def endless(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content=FIRST + "\n\n"))
        await call.wait_for_disconnect()

    with summed.open(upstream.plays(endless), store=False, **WITH_SUMMARIES) as stream:
        stream.until("response.reasoning.delta")
        wait_until(lambda: len(author.calls) > before)
    wait_until(lambda: author.left > left)
    summed.idle()


def test_each_turn_of_a_loop_has_its_own_summary(upstream: Upstream, author: Author) -> None:
    config = {
        "tools": {"functions": ["tests.server.loop_tools:add"]},
        "summaries": {"model": f"vllm:{author.name}"},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    model = upstream.plays(turn("Sum. ", "", calling("add", "c1", a=1, b=2)), turn("Three. ", "Three."))
    with serve(config) as running:
        response = legal_events(running.ask(model, stream=True, **WITH_SUMMARIES))[-1]["response"]
    thoughts = [item for item in response["output"] if item["type"] == "reasoning"]
    assert [len(item["summary"]) for item in thoughts] == [1, 1]
    # The gateway's summaries are not sent to the model.
    assert "Gist" not in json.dumps(upstream.calls(model)[1].body)


def test_a_model_with_its_own_summaries_gets_no_others(keyed: Keys, upstream: Upstream, author: Author) -> None:
    before = len(author.calls)
    for canary in CANARIES:
        if (canary.row, canary.name) in [("openai-responses", "stream"), ("anthropic", "stream"), ("google", "stream")]:
            response = legal_events(keyed.ask("summary", name_of(upstream, canary), stream=True))[-1]["response"]
            assert summaries(response) == ["in short"]
    assert len(author.calls) == before


def test_a_summary_is_shown_before_the_thinking_is_over(keyed: Keys, upstream: Upstream) -> None:
    seen = asyncio.Event()
    loop: list[asyncio.AbstractEventLoop] = []

    async def script(call: Call) -> None:
        loop.append(asyncio.get_running_loop())
        await call.head()
        await call.event(delta(reasoning_content=FIRST + "\n\n"))
        await asyncio.wait_for(seen.wait(), LIMIT_SECONDS)
        await call.event(delta(reasoning_content=SECOND))
        await call.event(delta("stop", content="So be it."))
        await call.event(b"[DONE]")
        await call.end()

    body = json.dumps({"model": f"vllm:{upstream.plays(script)}", "input": "Why?", "stream": True}).encode()
    head = {"Content-Type": "application/json", **keyed.headers("summary")}
    connection = http.client.HTTPConnection("127.0.0.1", keyed.gateway.port, timeout=LIMIT_SECONDS)
    connection.request("POST", "/v1/responses", body, head)
    response, came = connection.getresponse(), b""
    while b"response.reasoning_summary_text.done" not in came:
        came += response.read1(65536)
    assert b"Gist" in came
    assert b"output_item.done" not in came
    loop[0].call_soon_threadsafe(seen.set)
    came += response.read()
    connection.close()
    assert b"t0psecret" not in came
    assert b"response.completed" in came


def test_cancelling_a_run_stops_the_summary_model(summed: Served, upstream: Upstream, author: Author) -> None:
    author.does = "hang"
    before, left = len(author.calls), author.left

    async def endless(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content=FIRST + "\n\n"))
        await call.wait_for_disconnect()

    id = summed.ask(upstream.plays(endless), background=True, **WITH_SUMMARIES).json["id"]
    wait_until(lambda: len(author.calls) > before)
    assert summed.request("POST", f"/v1/responses/{id}/cancel").json["status"] == "cancelled"
    wait_until(lambda: author.left > left)


def test_summary_tokens_are_charged_to_the_key_but_not_in_the_usage(
    upstream: Upstream, author: Author, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_time_passes(url: str | None) -> MemoryRelay:
        return MemoryRelay(clock=lambda: 1.0)  # so that the rate limit is not replenished

    monkeypatch.setattr("pellucid.server.services.open_relay", no_time_passes)
    url = url_of(tmp_path / "store.sqlite")
    tokens = make_keys(url, {owner: Policy(tokens_per_minute=100_000) for owner in ("plain", "summed")})
    sections = {"storage": {"url": url}, "access": {"keys": True}, "summaries": {"model": f"vllm:{author.name}"}}
    with serve(config_of(upstream, **sections)) as running:
        left = {}
        for owner, more in (("plain", {}), ("summed", WITH_SUMMARIES)):
            caller = Caller(running, tokens[owner])
            response = caller.create_response(upstream.plays(say("Hm. " * 200, "Yes.")), **more)
            assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (7, 9)
            reply = caller.say(upstream.plays(say("", "Yes.")))
            left[owner] = int(reply.headers["x-ratelimit-remaining-tokens"])
    assert left["plain"] - left["summed"] == 1_100
