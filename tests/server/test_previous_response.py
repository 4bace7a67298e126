"""`previous_response_id`: the model receives the whole conversation, as its profile requires."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.scripted import Upstream, say
from tests.scripted.gateway import Served
from tests.server.state_kit import (
    CLIENT_FUNCTION,
    Caller,
    breaks,
    brief,
    call_ids,
    calls,
    hangs,
    message,
    output,
    serving,
    types,
    upstream_saw,
)

THINKS = say("Let me see.", "It is 42.")


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    tools = {"functions": ["tests.server.state_kit:look_up", "tests.server.state_kit:fail"]}
    with serving(upstream, tools=tools, storage={"store": True}) as running:
        yield running


@pytest.fixture
def me(gateway: Served) -> Caller:
    return Caller(gateway)


def test_the_model_receives_the_whole_conversation(me: Caller, upstream: Upstream) -> None:
    model = upstream.plays(THINKS)
    previous: dict[str, Any] = {}
    for turn in range(4):
        response = me.create_response(model, f"Question {turn}", **previous)
        assert response["previous_response_id"] == previous.get("previous_response_id")
        previous = {"previous_response_id": response["id"]}
    seen = brief(upstream_saw(upstream, model))
    answer = ("assistant", ("Let me see. ", "It is 42. "))
    assert [entry for entry in seen if entry[0] == "user"] == [("user", f"Question {turn}") for turn in range(4)]
    assert [entry for entry in seen if entry[0] != "user"] == [answer] * 3
    assert [role for role, _ in seen] == ["user", "assistant"] * 3 + ["user"]


def test_a_chain_may_branch_and_name_another_model(me: Caller, upstream: Upstream) -> None:
    first, second = upstream.plays(THINKS), upstream.plays(say("", "Blue."))
    root = me.create_response(first, "One")["id"]
    left = me.create_response(second, "Two", previous_response_id=root)["id"]
    right = me.create_response(second, "Three", previous_response_id=root)["id"]
    me.create_response(first, "Four", previous_response_id=left)
    assert [text for role, text in brief(upstream_saw(upstream, first)) if role == "user"] == ["One", "Two", "Four"]
    me.create_response(first, "Five", previous_response_id=right)
    assert [text for role, text in brief(upstream_saw(upstream, first)) if role == "user"] == ["One", "Three", "Five"]


@pytest.mark.parametrize("provider", ["vllm", "deepseek"])
def test_a_client_call_is_answered_in_the_next_response(me: Caller, upstream: Upstream, provider: str) -> None:
    name = upstream.plays(calls("ask_user", reasoning="Whom?"), THINKS)
    model = f"{provider}:{name}"
    first = me.create_response(model, tools=[CLIENT_FUNCTION])
    assert types(first) == ["reasoning", "function_call"]
    assert first["status"] == "completed"
    [call] = call_ids(first)
    second = me.create_response(model, [output(call, "Ada")], previous_response_id=first["id"], tools=[CLIENT_FUNCTION])
    assert second["status"] == "completed"
    seen = brief(upstream_saw(upstream, name))
    assert [role for role, _ in seen] == ["user", "assistant", "tool"]
    thought, _, called = seen[1][1]
    assert called == "ask_user"
    assert thought == "Whom?", "a model that reasons between its calls receives its reasoning again"
    assert seen[2] == ("tool", (call, "Ada"))


def test_server_calls_are_part_of_the_chain(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("look_up", reasoning="A word."), THINKS)
    first = me.create_response(name)
    assert types(first) == ["reasoning", "function_call", "function_call_output", "reasoning", "message"]
    me.create_response(name, "And then?", previous_response_id=first["id"])
    seen = brief(upstream_saw(upstream, name))
    assert [role for role, _ in seen] == ["user", "assistant", "tool", "assistant", "user"]
    assert seen[1][1][0] == "A word."
    assert seen[2][1] == (call_ids(first)[0], "moss is a word")


@pytest.mark.parametrize(
    "names", [("look_up", "ask_user"), ("ask_user", "look_up"), ("look_up", "ask_user", "look_up")]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_calls_server_and_client_functions(
    me: Caller, upstream: Upstream, names: tuple[str, ...], stream: bool
) -> None:
    """The server's functions run, the run ends with the client's call pending, and the client's result is then sorted
    among the others in the order of the calls."""
    name = upstream.plays(calls(*names), THINKS)
    reply = me.say(name, tools=[CLIENT_FUNCTION], stream=stream)
    first = reply.events[-1]["response"] if stream else reply.json
    assert first["status"] == "completed"
    ours = names.count("look_up")
    assert sorted(types(first)) == sorted(
        ["reasoning", *["function_call"] * len(names), *["function_call_output"] * ours]
    )
    assert len(upstream.calls(name)) == 1
    made_ids = call_ids(first)
    [pending] = [id for id, called in zip(made_ids, names, strict=True) if called == "ask_user"]
    answered_ids = [item["call_id"] for item in first["output"] if item["type"] == "function_call_output"]
    assert set(answered_ids) == set(made_ids) - {pending}
    me.create_response(
        name, [output(pending, "Ada"), message("Go on.")], previous_response_id=first["id"], tools=[CLIENT_FUNCTION]
    )
    seen = brief(upstream_saw(upstream, name))
    results = {pending: "Ada", **dict.fromkeys(answered_ids, "moss is a word")}
    assert seen[1][1][2:] == names
    assert seen[2:] == [*(("tool", (id, results[id])) for id in made_ids), ("user", "Go on.")]


def test_a_failed_function_is_part_of_the_chain(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("fail", arguments='{"word":"secret-of-ours"}'), THINKS)
    first = me.create_response(name)
    me.create_response(name, "And?", previous_response_id=first["id"])
    seen = brief(upstream_saw(upstream, name))
    assert seen[2][0] == "tool"
    assert seen[2][1][0] == call_ids(first)[0]


def test_an_unanswered_call_does_not_stop_the_conversation(me: Caller, upstream: Upstream) -> None:
    """No provider accepts a call without its result."""
    name = upstream.plays(calls("ask_user"), THINKS)
    first = me.create_response(name, tools=[CLIENT_FUNCTION])
    me.create_response(name, "Never mind.", previous_response_id=first["id"], tools=[CLIENT_FUNCTION])
    assert not any(entry.get("tool_calls") for entry in upstream_saw(upstream, name))


def test_a_call_cannot_be_answered_twice(me: Caller, upstream: Upstream) -> None:
    """A client may repeat neither its own result nor that of a server function."""
    name = upstream.plays(calls("ask_user", "look_up"), THINKS)
    first = me.create_response(name, tools=[CLIENT_FUNCTION])
    pending, servers = call_ids(first)
    second = me.create_response(name, [output(pending, "Ada")], previous_response_id=first["id"])
    branch = me.create_response(name, [output(pending, "Eve")], previous_response_id=first["id"])
    assert branch["status"] == "completed"
    for call, after in ((pending, second), (servers, first)):
        reply = me.say(name, [message("So:"), output(call, "Bob")], previous_response_id=after["id"])
        assert (reply.status, reply.error["param"]) == (400, "input[1].call_id")
        assert "has its output already" in reply.error["message"]
    assert len(upstream.calls(name)) == 3


def test_instructions_are_not_carried_over(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, "One", instructions="Speak like a pirate.")
    second = me.create_response(name, "Two", previous_response_id=first["id"])
    assert second["instructions"] is None
    assert [role for role, _ in brief(upstream_saw(upstream, name))] == ["user", "assistant", "user"]
    me.create_response(name, "Three", previous_response_id=second["id"], instructions="Be brief.")
    seen = brief(upstream_saw(upstream, name))
    assert [text for role, text in seen if role == "system"] == ["Be brief."]
    assert me.get_response(first["id"])["instructions"] == "Speak like a pirate."


def test_the_input_of_a_continuation_may_be_empty(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, "One")
    second = me.create_response(name, None, previous_response_id=first["id"])
    assert me.do("GET", f"/v1/responses/{second['id']}/input_items").json["data"] == []


def test_a_failed_response_can_be_continued(me: Caller, upstream: Upstream) -> None:
    """Its text up to the failure is sent; its incomplete reasoning is not."""
    name = upstream.plays(breaks, THINKS)
    first = me.create_response(name, "One")
    assert first["status"] == "failed"
    assert me.get_response(first["id"])["status"] == "failed"
    me.create_response(name, "Two", previous_response_id=first["id"])
    seen = brief(upstream_saw(upstream, name))
    assert [text for role, text in seen if role == "user"] == ["One", "Two"]


def test_a_running_response_cannot_be_continued(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(hangs, THINKS)
    first = me.create_response(name, "One", background=True)
    upstream.calls(name, 1)
    reply = me.say(name, "Two", previous_response_id=first["id"])
    assert reply.status == 400
    assert reply.error["code"] == "previous_response_not_finished"
    assert reply.error["param"] == "previous_response_id"
    assert "still in progress" in reply.error["message"]
    cancelled = me.do("POST", f"/v1/responses/{first['id']}/cancel")
    assert cancelled.json["status"] == "cancelled"
    assert me.create_response(name, "Two", previous_response_id=first["id"])["status"] == "completed"
    assert [text for role, text in brief(upstream_saw(upstream, name)) if role == "user"] == ["One", "Two"]


def test_a_deleted_response_cannot_be_continued(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, "One")["id"]
    second = me.create_response(name, "Two", previous_response_id=first)["id"]
    third = me.create_response(name, "Three", previous_response_id=second)["id"]
    assert me.do("DELETE", f"/v1/responses/{second}").status == 200
    for id in (second, third):
        reply = me.say(name, "Four", previous_response_id=id)
        assert reply.status == 400, "the same error for a deleted last response and a deleted earlier one"
        assert reply.error["code"] == "previous_response_not_found"
        assert reply.error["param"] == "previous_response_id"
        assert second in reply.error["message"]
    assert me.get_response(third)["previous_response_id"] == second
    assert me.create_response(name, "Four", previous_response_id=first)["status"] == "completed"
    assert len(upstream.calls(name)) == 4


def test_an_unstored_response_cannot_be_continued(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, store=False)
    assert first["store"] is False
    reply = me.say(name, previous_response_id=first["id"])
    assert (reply.status, reply.error["code"]) == (400, "previous_response_not_found")
    stored_id = me.create_response(name)["id"]
    unstored_id = me.create_response(name, previous_response_id=stored_id, store=False)["id"]
    assert me.do("GET", f"/v1/responses/{unstored_id}").status == 404


def test_with_the_official_client(gateway: Served, upstream: Upstream) -> None:
    name = upstream.plays(calls("ask_user"), THINKS)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        first = client.responses.create(model=f"vllm:{name}", input="Who?", tools=[CLIENT_FUNCTION])  # type: ignore[list-item]
        call = next(item for item in first.output if item.type == "function_call")
        answer = [{"type": "function_call_output", "call_id": call.call_id, "output": "Ada"}]
        with client.responses.stream(model=f"vllm:{name}", input=answer, previous_response_id=first.id) as stream:  # type: ignore[arg-type]
            second = stream.get_final_response()
        assert second.output_text == "It is 42. "
        assert second.previous_response_id == first.id
        assert client.responses.retrieve(second.id).output_text == "It is 42. "
        assert brief(upstream_saw(upstream, name))[-1] == ("tool", (call.call_id, "Ada"))
