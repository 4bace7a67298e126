"""`truncation`: a conversation that does not fit is refused, or continued without its oldest turns, as requested."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import Served, serve
from tests.server.loop_kit import calling, legal_events, turn
from tests.server.state_kit import config_of, url_of
from tests.waiting import LIMIT_SECONDS

Refuses = Callable[[Call], Any]
AUTO: dict[str, Any] = {"truncation": "auto"}
WORDS = "This model's maximum context length is 100 tokens. However, your messages resulted in 101 tokens."


async def with_a_status(call: Call) -> None:
    await call.answer(400, json.dumps({"error": {"message": WORDS, "type": "BadRequestError", "code": 400}}).encode())


async def in_the_stream(call: Call) -> None:
    await call.head()
    await call.event(delta(role="assistant"))
    await call.event({"error": {"message": WORDS, "type": "invalid_request_error"}})
    await call.end()


def texts(call: Call) -> list[str]:
    return [str(message.get("content")) for message in call.body["messages"]]


def fits(most: int, then: Script, refuses: Script = with_a_status) -> Script:
    """Script a model with a context of `most` characters."""

    async def script(call: Call) -> None:
        too_long = sum(map(len, texts(call))) > most
        await (refuses if too_long else then)(call)

    return script


def message_item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def long_talk(turns: int, each: int = 100) -> list[dict[str, Any]]:
    """Return items of `turns` turns of `each` characters, and of one more turn that is not answered yet."""
    items = [message_item("system", "Be kind.")]
    for number in range(turns):
        items += [
            message_item("user", f"<q{number}>".ljust(each // 2, ".")),
            message_item("assistant", f"<a{number}>".ljust(each // 2, ".")),
        ]
        if number == 1:
            items.append(message_item("developer", "Be brief."))
    return [*items, message_item("user", "<last>")]


@pytest.fixture(scope="module")
def talking(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    url = url_of(tmp_path_factory.mktemp("talk") / "kept.sqlite")
    sections = {"storage": {"url": url}, "tools": {"functions": ["tests.server.loop_tools:add"]}}
    with serve(config_of(upstream, **sections)) as running:
        yield running


@pytest.mark.parametrize("refuses", [with_a_status, in_the_stream], ids=["status", "stream"])
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_auto_drops_only_the_oldest_turns(talking: Served, upstream: Upstream, refuses: Script, stream: bool) -> None:
    model = upstream.plays(fits(600, say(), refuses))
    reply = talking.ask(f"vllm:{model}", stream, input=long_talk(9), **AUTO)
    response = legal_events(reply)[-1]["response"] if stream else reply.json
    assert (response["status"], response["truncation"]) == ("completed", "auto")
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    calls = upstream.calls(model)
    assert texts(calls[0])[0] == "Be kind."
    seen = "".join(texts(calls[-1]))
    assert "Be kind." in seen
    assert "Be brief." in seen
    assert "<last>" in seen
    left = [number for number in range(9) if f"<q{number}>" in seen]
    assert left == list(range(left[0], 9))
    assert left == [number for number in range(9) if f"<a{number}>" in seen]
    # It drops about as many turns as needed, and does not need one request for each turn.
    assert len(left) >= 3
    assert len(calls) <= 4


def test_disabled_and_the_default_return_the_error(talking: Served, upstream: Upstream) -> None:
    rows: list[dict[str, Any]] = [{}, {"truncation": "disabled"}]
    for more in rows:
        model = upstream.plays(fits(600, say()))
        reply = talking.ask(f"vllm:{model}", input=long_talk(9), **more)
        assert (reply.status, reply.error["code"]) == (400, "context_length_exceeded")
        assert len(upstream.calls(model)) == 1
        model = upstream.plays(fits(600, say(), in_the_stream))
        response = legal_events(talking.ask(f"vllm:{model}", True, input=long_talk(9), **more))[-1]["response"]
        assert (response["status"], response["truncation"]) == ("failed", "disabled")
        assert response["error"]["code"] == "context_length_exceeded"
        hidden = talking.post(
            {"model": f"vllm:{model}", "input": long_talk(9), "stream": True, **more}, {"Pellucid-View": "hidden"}
        )
        assert legal_events(hidden)[-1]["response"]["error"]["code"] == "context_length_exceeded"
        assert WORDS not in hidden.body.decode()


@pytest.mark.parametrize("refuses", [with_a_status, in_the_stream], ids=["status", "stream"])
def test_the_last_turn_and_the_instructions_are_never_dropped(
    talking: Served, upstream: Upstream, refuses: Script
) -> None:
    model = upstream.plays(fits(10, say(), refuses))
    reply = talking.ask(f"vllm:{model}", input=long_talk(60), **AUTO)
    error = reply.error if reply.status != 200 else reply.json["error"]
    assert error["code"] == "context_length_exceeded"
    calls = upstream.calls(model)
    assert 1 < len(calls) <= 8
    assert [text for text in texts(calls[-1]) if text.startswith("<")] == ["<last>"]
    assert "Be kind." in str(texts(calls[-1]))
    assert "Be brief." in str(texts(calls[-1]))


def test_a_disconnect_during_a_retry_closes_the_upstream(talking: Served, upstream: Upstream) -> None:
    left = threading.Event()

    async def hangs(call: Call) -> None:
        await call.head()
        await call.wait_for_disconnect()
        left.set()

    model = upstream.plays(in_the_stream, hangs)
    with talking.open(f"vllm:{model}", input=long_talk(9), **AUTO):
        upstream.calls(model, 2)
    assert left.wait(LIMIT_SECONDS)


def test_other_errors_are_not_retried(talking: Served, upstream: Upstream) -> None:
    async def refuses(call: Call) -> None:
        await call.answer(400, b'{"error": {"message": "no such tool", "type": "invalid_request_error"}}')

    model = upstream.plays(refuses)
    assert talking.ask(f"vllm:{model}", input=long_talk(9), **AUTO).status == 400
    assert len(upstream.calls(model)) == 1

    async def late(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm. "))
        await call.event({"error": {"message": WORDS}})
        await call.end()

    model = upstream.plays(late)
    response = legal_events(talking.ask(f"vllm:{model}", True, input=long_talk(9), **AUTO))[-1]["response"]
    assert response["status"] == "failed"
    assert response["output"][0]["content"][0]["text"] == "Hm. "
    assert len(upstream.calls(model)) == 1


def test_in_a_loop_dropped_turns_stay_dropped_and_calls_keep_their_results(talking: Served, upstream: Upstream) -> None:
    adds = turn("Sum. ", "", calling("add", "c1", a=1, b=2))
    then = [adds, turn("Three. ", "Three.")]

    async def script(call: Call) -> None:
        await then.pop(0)(call)

    model = upstream.plays(fits(500, script))
    response = legal_events(talking.ask(f"vllm:{model}", True, input=long_talk(9), **AUTO))[-1]["response"]
    assert [item["type"] for item in response["output"]].count("function_call_output") == 1
    assert response["status"] == "completed"
    *before, first, last = upstream.calls(model)
    assert before
    assert texts(last)[: len(texts(first))] == texts(first)
    roles = [message["role"] for message in last.body["messages"]]
    assert roles[-2:] == ["assistant", "tool"]


def test_the_stored_conversation_is_not_truncated(talking: Served, upstream: Upstream) -> None:
    small, large = upstream.plays(fits(300, say())), upstream.plays(say())
    first = talking.ask(f"vllm:{small}", input=long_talk(9), **AUTO).json
    assert talking.ask(f"vllm:{large}", previous_response_id=first["id"]).status == 200
    assert all(f"<q{number}>" in "".join(texts(upstream.calls(large)[0])) for number in range(9))
    # In the background, too.
    made = talking.ask(f"vllm:{small}", True, input=long_talk(9), background=True, **AUTO)
    assert legal_events(made)[-1]["response"]["status"] == "completed"


def test_a_known_context_length_is_not_exceeded(upstream: Upstream, tmp_path: Path) -> None:
    model = upstream.plays(say())
    entry = {"provider": "vllm", "model": model, "context": 150}
    with serve(
        config_of(upstream, models={"small": entry}, storage={"url": url_of(tmp_path / "kept.sqlite")})
    ) as running:
        assert running.ask("small", input=long_talk(9), **AUTO).status == 200
        assert running.ask("small", input=long_talk(9)).status == 200
        assert running.ask("small", input=long_talk(9), max_output_tokens=100, **AUTO).status == 200
        assert running.ask("small", input=long_talk(1), **AUTO).status == 200
    cut, whole, shorter, short = (
        [text for text in texts(call) if text.startswith("<")] for call in upstream.calls(model)
    )
    assert len(whole) == 19
    assert sum(map(len, cut)) <= 600 - len("Be kind.Be brief.") < sum(map(len, cut)) + 100
    assert sum(map(len, shorter)) <= 200
    assert len(short) == 3
