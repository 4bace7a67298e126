"""Functions of the server: a request continues over several turns."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Served, serve
from tests.server import loop_tools
from tests.server.loop_kit import calling, function, kinds, legal_events, output, outputs, turn


@pytest.fixture(scope="module")
def looping(upstream: Upstream) -> Iterator[Served]:
    config = {
        "tools": {"functions": ["tests.server.loop_tools:every"], "timeout_seconds": 5},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    with serve(config) as running:
        yield running


FORBIDDEN = {"type": "allowed_tools", "mode": "none"}


def test_a_request_continues_over_turns_until_the_answer(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("I need a sum. ", "", calling("add", "c1", a=2, b=3)),
        turn("And the sky. ", "", calling("weather", "c2", city="Lyon")),
        turn("Now I know. ", "Five, and rain."),
    )
    events = legal_events(looping.ask(model, stream=True))
    items = events[-1]["response"]["output"]
    step = ["reasoning", "function_call", "function_call_output"]
    assert kinds(items) == [*step, *step, "reasoning", "message"]
    assert outputs(items) == {"c1": "5", "c2": '{"city":"Lyon","sky":"rain"}'}
    assert len({item["id"] for item in items}) == len(items)
    assert events[-1]["response"]["usage"]["total_tokens"] == 45
    assert [call.body["stream"] for call in upstream.calls(model)] == [True] * 3
    whole = looping.ask(upstream.plays(turn("Hm. ", "", calling("add", "c1", a=1, b=1)), turn("", "Two.")))
    assert kinds(output(whole)) == [*step, "message"]


def test_max_tool_calls_ends_the_response_as_incomplete(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("Again. ", "", calling("add", a=1, b=1)))
    response = legal_events(looping.ask(model, stream=True, max_tool_calls=2))[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_tool_calls"}
    assert kinds(response["output"]).count("function_call_output") == 2
    assert response["max_tool_calls"] == 2
    # An unanswered call does not prevent a continuation.
    after = upstream.plays(turn("", "Well."))
    continued = looping.ask(after, previous_response_id=response["id"])
    assert kinds(output(continued)) == ["message"]
    messages = upstream.calls(after)[0].body["messages"]
    called_ids = [call["id"] for message in messages for call in message.get("tool_calls", [])]
    assert called_ids == [message["tool_call_id"] for message in messages if message["role"] == "tool"]


def test_the_configured_limit_of_calls_applies_to_every_request(upstream: Upstream) -> None:
    config = {
        "tools": {"functions": ["tests.server.loop_tools:every"], "max_calls": 3},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    with serve(config) as gateway:
        for requested, executed in ((None, 3), (2, 2), (9, 3)):
            model = upstream.plays(turn("Again. ", "", calling("add", a=1, b=1)))
            response = legal_events(gateway.ask(model, stream=True, max_tool_calls=requested))[-1]["response"]
            assert response["incomplete_details"] == {"reason": "max_tool_calls"}
            assert len(upstream.calls(model)) == executed + 1
            assert kinds(response["output"]).count("function_call_output") == executed


def test_calls_of_one_turn_run_in_parallel_unless_disabled(
    looping: Served, upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parallel in (True, False):
        loop_tools.ran.clear()
        monkeypatch.setattr(loop_tools, "meeting", threading.Barrier(3) if parallel else None)
        model = upstream.plays(
            turn("", "", *(calling("nap", f"c{n}", who=str(n)) for n in range(3))), turn("", "Awake.")
        )
        reply = looping.ask(model, stream=True, parallel_tool_calls=parallel)
        items = output(reply)
        assert list(outputs(items).values()) == ["0", "1", "2"]
        ran = sorted(loop_tools.ran, key=lambda one: one[1])
        overlap = any(after[1] < before[2] for before, after in pairwise(ran))
        assert overlap is parallel
        assert upstream.calls(model)[0].body["parallel_tool_calls"] is parallel


def test_a_function_that_fails_or_takes_too_long_does_not_end_the_run(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("", "", calling("boom", "c1"), calling("slow", "c2"), calling("add", "c3", a="x", b=1)),
        turn("", "Never mind."),
    )
    loop_tools.released.clear()
    reply = looping.ask(model, stream=True)
    loop_tools.released.set()
    items = output(reply)
    results = outputs(items)
    assert results["c1"] == "The tool failed (RuntimeError)."
    assert results["c2"] == "It did not return within 0.2 s."
    assert results["c3"].startswith("The arguments do not fit: ")
    assert b"hunter2" not in reply.body
    assert kinds(items)[-1] == "message"
    [returned] = [
        message for message in upstream.calls(model)[1].body["messages"] if message.get("tool_call_id") == "c1"
    ]
    assert "hunter2" not in returned["content"]


# --- tool_choice -----------------------------------------------------------------------------------------------------


def test_tool_choice_none_disables_calls(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "Done."))
    looping.ask(model, tool_choice="none")
    body = upstream.calls(model)[0].body
    assert body.get("tool_choice", "none") == "none"


@pytest.mark.parametrize("choice", ["none", {**FORBIDDEN, "tools": [{"type": "function", "name": "add"}]}])
def test_a_forbidden_call_is_not_executed(looping: Served, upstream: Upstream, choice: Any) -> None:
    model = upstream.plays(turn("", "", calling("add", "c1", a=1, b=1)), turn("", "Two."))
    assert kinds(output(looping.ask(model, stream=True, tool_choice=choice))) == ["function_call"]
    body = {"model": model, "messages": [{"role": "user", "content": "Why?"}], "tool_choice": "none"}
    chat = looping.request("POST", "/v1/chat/completions", json.dumps(body).encode())
    assert chat.status == 200
    assert len(upstream.calls(model)) == 2


@pytest.mark.parametrize(
    "choice",
    ["required", {"type": "function", "name": "add"}],
)
def test_a_forced_tool_choice_applies_to_the_first_turn_only(looping: Served, upstream: Upstream, choice: Any) -> None:
    model = upstream.plays(turn("", "", calling("add", "c1", a=1, b=1)), turn("", "Two."))
    reply = looping.ask(model, stream=True, tool_choice=choice)
    assert kinds(output(reply)) == ["function_call", "function_call_output", "message"]
    first, second = (call.body for call in upstream.calls(model))
    assert first["tool_choice"] not in ("auto", None)
    assert second.get("tool_choice", "auto") == "auto"
    assert len(second["tools"]) == 6


def test_allowed_tools_restrict_the_tools_sent(looping: Served, upstream: Upstream) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    model = upstream.plays(turn("", "", calling("add", "c1", a=1, b=1)), turn("", "Two."))
    response = legal_events(looping.ask(model, stream=True, tool_choice=choice))[-1]["response"]
    assert response["tool_choice"] == choice
    for call in upstream.calls(model):
        assert [tool["function"]["name"] for tool in call.body["tools"]] == ["add"]
    wrong = looping.ask(model, tool_choice={**choice, "tools": [{"type": "function", "name": "ad"}]})
    assert (wrong.status, wrong.error["param"]) == (400, "tool_choice")
    assert "'ad'" in wrong.error["message"]


def test_a_tool_outside_allowed_tools_is_not_executed(looping: Served, upstream: Upstream) -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "add"}]}
    model = upstream.plays(turn("", "", calling("weather", "c1", city="Lyon")))
    items = output(looping.ask(model, stream=True, tool_choice=choice))
    assert kinds(items) == ["function_call"]


# --- functions of the client ------------------------------------------------------------------------------------------


def test_a_client_function_overrides_a_server_function_of_the_same_name(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("Sum. ", "", calling("add", "c1", a=1, b=1)))
    own = [function("add", x={"type": "integer"})]
    items = output(looping.ask(model, stream=True, tools=own))
    assert kinds(items) == ["reasoning", "function_call"]
    offered = [tool["function"] for tool in upstream.calls(model)[0].body["tools"]]
    [add] = [tool for tool in offered if tool["name"] == "add"]
    assert set(add["parameters"]["properties"]) == {"x"}


def test_a_client_function_overrides_an_identical_server_function(looping: Served, upstream: Upstream) -> None:
    ours = loop_tools.slow.definition
    same = {
        "type": "function",
        "name": ours.name,
        "description": ours.description,
        "parameters": ours.parameters_json_schema,
        **({} if ours.strict is None else {"strict": ours.strict}),
    }
    model = upstream.plays(turn("", "", calling("slow", "c1")))
    assert kinds(output(looping.ask(model, tools=[same]))) == ["function_call"]


def test_a_turn_with_server_and_client_calls_waits_for_the_client(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("Both. ", "", calling("mine", "c1", q=1), calling("add", "c2", a=1, b=2), calling("mine", "c3", q=3)),
        turn("", "All there."),
    )
    own = [function("mine", q={"type": "integer"})]
    first = looping.ask(model, stream=True, tools=own)
    response = legal_events(first)[-1]["response"]
    assert response["status"] == "completed"
    assert kinds(response["output"]) == ["reasoning", *["function_call"] * 3, "function_call_output"]
    assert outputs(response["output"]) == {"c2": "3"}
    answers = [{"type": "function_call_output", "call_id": id, "output": id} for id in ("c3", "c1")]
    continued = looping.ask(model, tools=own, input=answers, previous_response_id=response["id"])
    assert kinds(output(continued)) == ["message"]
    stateful = upstream.calls(model)[-1].body["messages"]
    assert [message["tool_call_id"] for message in stateful if message["role"] == "tool"] == ["c1", "c2", "c3"]

    user_message = {"type": "message", "role": "user", "content": "Why?"}
    looping.ask(model, tools=own, input=[user_message, *response["output"], *answers], store=False)
    stateless = upstream.calls(model)[-1].body["messages"]
    assert stateless == stateful


# --- images ----------------------------------------------------------------------------------------------------------


def test_an_image_returned_by_a_function_stays_an_image(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "", calling("picture", "c1")), turn("", "A pixel."), turn("", "Still."))
    reply = looping.ask(model, stream=True)
    response = legal_events(reply)[-1]["response"]
    url = f"data:image/png;base64,{loop_tools.PIXEL}"
    assert outputs(response["output"])["c1"] == [
        {"type": "input_text", "text": "see:"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    question = {"type": "message", "role": "user", "content": "Why?"}
    follow_up = {"type": "message", "role": "user", "content": "Sure?"}
    looping.ask(model, input=[follow_up], previous_response_id=response["id"])
    looping.ask(model, input=[question, *response["output"], follow_up], store=False)
    _, second, stateful, stateless = (call.body["messages"] for call in upstream.calls(model))
    assert stateful[: len(second)] == second
    assert json.dumps(stateful).count(url) == json.dumps(stateless).count(url) == 1
    _, _, returned, shown = second
    assert returned["role"] == "tool"
    assert returned["content"].startswith("see:")
    assert loop_tools.PIXEL not in returned["content"]
    assert shown["role"] == "user"
    assert shown["content"][-1] == {"type": "image_url", "image_url": {"url": url}}
