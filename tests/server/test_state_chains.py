"""`previous_response_id`: the model sees the whole conversation, as its profile wants it, whoever called what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.scripted import Upstream, say
from tests.scripted.gateway import Served
from tests.server.state_kit import (
    CALLERS,
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


def test_the_whole_conversation_goes_on(me: Caller, upstream: Upstream) -> None:
    model = upstream.plays(THINKS)
    previous: dict[str, Any] = {}
    for turn in range(4):
        said = me.create_response(model, f"Question {turn}", **previous)
        assert said["previous_response_id"] == previous.get("previous_response_id")
        previous = {"previous_response_id": said["id"]}
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
    assert [said for who, said in brief(upstream_saw(upstream, first)) if who == "user"] == ["One", "Two", "Four"]
    me.create_response(first, "Five", previous_response_id=right)
    assert [said for who, said in brief(upstream_saw(upstream, first)) if who == "user"] == ["One", "Three", "Five"]


@pytest.mark.parametrize("provider", ["vllm", "deepseek"])
def test_a_call_of_the_callers_is_answered_in_the_next_response(me: Caller, upstream: Upstream, provider: str) -> None:
    name = upstream.plays(calls("ask_user", reasoning="Whom?"), THINKS)
    model = f"{provider}:{name}"
    first = me.create_response(model, tools=[CALLERS])
    assert types(first) == ["reasoning", "function_call"]
    assert first["status"] == "completed"
    [call] = call_ids(first)
    second = me.create_response(model, [output(call, "Ada")], previous_response_id=first["id"], tools=[CALLERS])
    assert second["status"] == "completed"
    seen = brief(upstream_saw(upstream, name))
    assert [who for who, _ in seen] == ["user", "assistant", "tool"]
    thought, _, called = seen[1][1]
    assert called == "ask_user"
    assert thought == "Whom?", "a model that thinks between its calls gets its thought back"
    assert seen[2] == ("tool", (call, "Ada"))


def test_calls_of_the_servers_are_in_the_chain(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("look_up", reasoning="A word."), THINKS)
    first = me.create_response(name)
    assert types(first) == ["reasoning", "function_call", "function_call_output", "reasoning", "message"]
    me.create_response(name, "And then?", previous_response_id=first["id"])
    seen = brief(upstream_saw(upstream, name))
    assert [who for who, _ in seen] == ["user", "assistant", "tool", "assistant", "user"]
    assert seen[1][1][0] == "A word."
    assert seen[2][1] == (call_ids(first)[0], "moss is a word")


@pytest.mark.parametrize(
    "names", [("look_up", "ask_user"), ("ask_user", "look_up"), ("look_up", "ask_user", "look_up")]
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_that_calls_both(me: Caller, upstream: Upstream, names: tuple[str, ...], stream: bool) -> None:
    """The server's functions run, the run ends with the caller's call pending, and what the caller then says is put
    among the results in the order of the calls."""
    name = upstream.plays(calls(*names), THINKS)
    reply = me.say(name, tools=[CALLERS], stream=stream)
    first = reply.events[-1]["response"] if stream else reply.json
    assert first["status"] == "completed"
    ours = names.count("look_up")
    assert sorted(types(first)) == sorted(
        ["reasoning", *["function_call"] * len(names), *["function_call_output"] * ours]
    )
    assert len(upstream.calls(name)) == 1
    made = call_ids(first)
    [pending] = [id for id, called in zip(made, names, strict=True) if called == "ask_user"]
    answered = [item["call_id"] for item in first["output"] if item["type"] == "function_call_output"]
    assert set(answered) == set(made) - {pending}
    me.create_response(
        name, [output(pending, "Ada"), message("Go on.")], previous_response_id=first["id"], tools=[CALLERS]
    )
    seen = brief(upstream_saw(upstream, name))
    results = {pending: "Ada", **dict.fromkeys(answered, "moss is a word")}
    assert seen[1][1][2:] == names
    assert seen[2:] == [*(("tool", (id, results[id])) for id in made), ("user", "Go on.")]


def test_a_function_that_fails_is_in_the_chain_too(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(calls("fail", arguments='{"word":"secret-of-ours"}'), THINKS)
    first = me.create_response(name)
    me.create_response(name, "And?", previous_response_id=first["id"])
    seen = brief(upstream_saw(upstream, name))
    assert seen[2][0] == "tool"
    assert seen[2][1][0] == call_ids(first)[0]


def test_a_call_that_nobody_answered_does_not_stop_the_conversation(me: Caller, upstream: Upstream) -> None:
    """No provider takes a call without its result."""
    name = upstream.plays(calls("ask_user"), THINKS)
    first = me.create_response(name, tools=[CALLERS])
    me.create_response(name, "Never mind.", previous_response_id=first["id"], tools=[CALLERS])
    assert not any(entry.get("tool_calls") for entry in upstream_saw(upstream, name))


def test_a_call_that_was_answered_is_not_answered_again(me: Caller, upstream: Upstream) -> None:
    """Not by who forgot that it was, and not in the place of the server's own functions."""
    name = upstream.plays(calls("ask_user", "look_up"), THINKS)
    first = me.create_response(name, tools=[CALLERS])
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
    assert [who for who, _ in brief(upstream_saw(upstream, name))] == ["user", "assistant", "user"]
    me.create_response(name, "Three", previous_response_id=second["id"], instructions="Be brief.")
    seen = brief(upstream_saw(upstream, name))
    assert [said for who, said in seen if who == "system"] == ["Be brief."]
    assert me.get_response(first["id"])["instructions"] == "Speak like a pirate."


def test_nothing_new_may_be_said(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, "One")
    second = me.create_response(name, None, previous_response_id=first["id"])
    assert me.do("GET", f"/v1/responses/{second['id']}/input_items").json["data"] == []


def test_a_response_that_failed_is_gone_on_from(me: Caller, upstream: Upstream) -> None:
    """What it said until then was said; its cut thought goes to nobody."""
    name = upstream.plays(breaks, THINKS)
    first = me.create_response(name, "One")
    assert first["status"] == "failed"
    assert me.get_response(first["id"])["status"] == "failed"
    me.create_response(name, "Two", previous_response_id=first["id"])
    seen = brief(upstream_saw(upstream, name))
    assert [said for who, said in seen if who == "user"] == ["One", "Two"]


def test_a_response_that_is_under_way_is_not(me: Caller, upstream: Upstream) -> None:
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
    assert [said for who, said in brief(upstream_saw(upstream, name)) if who == "user"] == ["One", "Two"]


def test_what_was_deleted_is_gone_on_from_by_nobody(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, "One")["id"]
    second = me.create_response(name, "Two", previous_response_id=first)["id"]
    third = me.create_response(name, "Three", previous_response_id=second)["id"]
    assert me.do("DELETE", f"/v1/responses/{second}").status == 200
    for id in (second, third):
        reply = me.say(name, "Four", previous_response_id=id)
        assert reply.status == 400, "the same, whether it is the last or one in the middle that is gone"
        assert reply.error["code"] == "previous_response_not_found"
        assert reply.error["param"] == "previous_response_id"
        assert second in reply.error["message"]
    assert me.get_response(third)["previous_response_id"] == second
    assert me.create_response(name, "Four", previous_response_id=first)["status"] == "completed"
    assert len(upstream.calls(name)) == 4


def test_one_that_was_not_stored_is_not_there(me: Caller, upstream: Upstream) -> None:
    name = upstream.plays(THINKS)
    first = me.create_response(name, store=False)
    assert first["store"] is False
    reply = me.say(name, previous_response_id=first["id"])
    assert (reply.status, reply.error["code"]) == (400, "previous_response_not_found")
    kept = me.create_response(name)["id"]
    unkept = me.create_response(name, previous_response_id=kept, store=False)["id"]
    assert me.do("GET", f"/v1/responses/{unkept}").status == 404


def test_with_the_official_client(gateway: Served, upstream: Upstream) -> None:
    name = upstream.plays(calls("ask_user"), THINKS)
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0) as client:
        first = client.responses.create(model=f"vllm:{name}", input="Who?", tools=[CALLERS])  # type: ignore[list-item]
        call = next(item for item in first.output if item.type == "function_call")
        answer = [{"type": "function_call_output", "call_id": call.call_id, "output": "Ada"}]
        with client.responses.stream(model=f"vllm:{name}", input=answer, previous_response_id=first.id) as stream:  # type: ignore[arg-type]
            second = stream.get_final_response()
        assert second.output_text == "It is 42. "
        assert second.previous_response_id == first.id
        assert client.responses.retrieve(second.id).output_text == "It is 42. "
        assert brief(upstream_saw(upstream, name))[-1] == ("tool", (call.call_id, "Ada"))
