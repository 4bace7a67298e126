"""Functions of the server: a request goes on over turns by itself."""

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
from tests.server.loop_kit import calling, function, kinds, legal, output, outputs, turn


@pytest.fixture(scope="module")
def looping(upstream: Upstream) -> Iterator[Served]:
    config = {
        "tools": {"functions": ["tests.server.loop_tools:every"], "timeout_seconds": 5},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    with serve(config) as running:
        yield running


FORBIDDEN = {"type": "allowed_tools", "mode": "none"}


def test_a_request_loops_over_turns_by_itself(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("I need a sum. ", "", calling("add", "c1", a=2, b=3)),
        turn("And the sky. ", "", calling("weather", "c2", city="Lyon")),
        turn("Now I know. ", "Five, and rain."),
    )
    events = legal(looping.ask(model, stream=True))
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
    response = legal(looping.ask(model, stream=True, max_tool_calls=2))[-1]["response"]
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_tool_calls"}
    assert kinds(response["output"]).count("function_call_output") == 2
    assert response["max_tool_calls"] == 2
    # What is not answered does not stand in the way of what follows.
    after = upstream.plays(turn("", "Well."))
    on = looping.ask(after, previous_response_id=response["id"])
    assert kinds(output(on)) == ["message"]
    sent = upstream.calls(after)[0].body["messages"]
    called = [call["id"] for said in sent for call in said.get("tool_calls", [])]
    assert called == [said["tool_call_id"] for said in sent if said["role"] == "tool"]


def test_who_asks_for_no_end_is_given_one(upstream: Upstream) -> None:
    config = {
        "tools": {"functions": ["tests.server.loop_tools:every"], "max_calls": 3},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    with serve(config) as gateway:
        for asked, carried_out in ((None, 3), (2, 2), (9, 3)):
            model = upstream.plays(turn("Again. ", "", calling("add", a=1, b=1)))
            response = legal(gateway.ask(model, stream=True, max_tool_calls=asked))[-1]["response"]
            assert response["incomplete_details"] == {"reason": "max_tool_calls"}
            assert len(upstream.calls(model)) == carried_out + 1
            assert kinds(response["output"]).count("function_call_output") == carried_out


def test_calls_of_one_turn_run_together_unless_told_not_to(
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
    said = outputs(items)
    assert said["c1"] == "The tool failed (RuntimeError)."
    assert said["c2"] == "It did not return within 0.2 s."
    assert said["c3"].startswith("The arguments do not fit: ")
    assert b"hunter2" not in reply.body
    assert kinds(items)[-1] == "message"
    [returned] = [said for said in upstream.calls(model)[1].body["messages"] if said.get("tool_call_id") == "c1"]
    assert "hunter2" not in returned["content"]


# --- choices ---------------------------------------------------------------------------------------------------------


def test_tool_choice_none_offers_nothing_that_can_be_called(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "Done."))
    looping.ask(model, tool_choice="none")
    body = upstream.calls(model)[0].body
    assert body.get("tool_choice", "none") == "none"


@pytest.mark.parametrize("choice", ["none", {**FORBIDDEN, "tools": [{"type": "function", "name": "add"}]}])
def test_a_model_that_calls_all_the_same_is_not_served(looping: Served, upstream: Upstream, choice: Any) -> None:
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
def test_a_forced_call_is_forced_once(looping: Served, upstream: Upstream, choice: Any) -> None:
    model = upstream.plays(turn("", "", calling("add", "c1", a=1, b=1)), turn("", "Two."))
    reply = looping.ask(model, stream=True, tool_choice=choice)
    assert kinds(output(reply)) == ["function_call", "function_call_output", "message"]
    first, second = (call.body for call in upstream.calls(model))
    assert first["tool_choice"] not in ("auto", None)
    assert second.get("tool_choice", "auto") == "auto"
    assert len(second["tools"]) == 6


def test_allowed_tools_narrow_what_is_offered(looping: Served, upstream: Upstream) -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]}
    model = upstream.plays(turn("", "", calling("add", "c1", a=1, b=1)), turn("", "Two."))
    response = legal(looping.ask(model, stream=True, tool_choice=choice))[-1]["response"]
    assert response["tool_choice"] == choice
    for call in upstream.calls(model):
        assert [tool["function"]["name"] for tool in call.body["tools"]] == ["add"]
    wrong = looping.ask(model, tool_choice={**choice, "tools": [{"type": "function", "name": "ad"}]})
    assert (wrong.status, wrong.error["param"]) == (400, "tool_choice")
    assert "'ad'" in wrong.error["message"]


def test_a_tool_that_was_not_offered_is_nobody_s_of_ours(looping: Served, upstream: Upstream) -> None:
    choice = {"type": "allowed_tools", "tools": [{"type": "function", "name": "add"}]}
    model = upstream.plays(turn("", "", calling("weather", "c1", city="Lyon")))
    items = output(looping.ask(model, stream=True, tool_choice=choice))
    assert kinds(items) == ["function_call"]


# --- the caller's own -------------------------------------------------------------------------------------------------


def test_the_caller_s_function_goes_before_ours_of_the_same_name(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("Sum. ", "", calling("add", "c1", a=1, b=1)))
    own = [function("add", x={"type": "integer"})]
    items = output(looping.ask(model, stream=True, tools=own))
    assert kinds(items) == ["reasoning", "function_call"]
    offered = [tool["function"] for tool in upstream.calls(model)[0].body["tools"]]
    [add] = [tool for tool in offered if tool["name"] == "add"]
    assert set(add["parameters"]["properties"]) == {"x"}


def test_the_caller_s_function_goes_before_ours_also_if_they_are_the_same(looping: Served, upstream: Upstream) -> None:
    ours = loop_tools.slow.definition
    same = {
        "type": "function",
        "name": ours.name,
        "description": ours.description,
        "parameters": ours.parameters,
        **({} if ours.strict is None else {"strict": ours.strict}),
    }
    model = upstream.plays(turn("", "", calling("slow", "c1")))
    assert kinds(output(looping.ask(model, tools=[same]))) == ["function_call"]


def test_a_turn_that_calls_ours_and_the_caller_s_waits_for_the_caller(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("Both. ", "", calling("mine", "c1", q=1), calling("add", "c2", a=1, b=2), calling("mine", "c3", q=3)),
        turn("", "All there."),
    )
    own = [function("mine", q={"type": "integer"})]
    first = looping.ask(model, stream=True, tools=own)
    response = legal(first)[-1]["response"]
    assert response["status"] == "completed"
    assert kinds(response["output"]) == ["reasoning", *["function_call"] * 3, "function_call_output"]
    assert outputs(response["output"]) == {"c2": "3"}
    answers = [{"type": "function_call_output", "call_id": id, "output": id} for id in ("c3", "c1")]
    on = looping.ask(model, tools=own, input=answers, previous_response_id=response["id"])
    assert kinds(output(on)) == ["message"]
    stateful = upstream.calls(model)[-1].body["messages"]
    assert [said["tool_call_id"] for said in stateful if said["role"] == "tool"] == ["c1", "c2", "c3"]

    asked = {"type": "message", "role": "user", "content": "Why?"}
    looping.ask(model, tools=own, input=[asked, *response["output"], *answers], store=False)
    stateless = upstream.calls(model)[-1].body["messages"]
    assert stateless == stateful


# --- pictures --------------------------------------------------------------------------------------------------------


def test_a_picture_that_a_function_returned_stays_one(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "", calling("picture", "c1")), turn("", "A pixel."), turn("", "Still."))
    reply = looping.ask(model, stream=True)
    response = legal(reply)[-1]["response"]
    url = f"data:image/png;base64,{loop_tools.PIXEL}"
    assert outputs(response["output"])["c1"] == [
        {"type": "input_text", "text": "see:"},
        {"type": "input_image", "image_url": url, "detail": "auto"},
    ]
    asked = {"type": "message", "role": "user", "content": "Why?"}
    again = {"type": "message", "role": "user", "content": "Sure?"}
    looping.ask(model, input=[again], previous_response_id=response["id"])
    looping.ask(model, input=[asked, *response["output"], again], store=False)
    _, second, stateful, stateless = (call.body["messages"] for call in upstream.calls(model))
    assert stateful[: len(second)] == second
    assert json.dumps(stateful).count(url) == json.dumps(stateless).count(url) == 1
    _, _, returned, shown = second
    assert returned["role"] == "tool"
    assert returned["content"].startswith("see:")
    assert loop_tools.PIXEL not in returned["content"]
    assert shown["role"] == "user"
    assert shown["content"][-1] == {"type": "image_url", "image_url": {"url": url}}
