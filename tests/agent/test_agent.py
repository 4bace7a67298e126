"""Runs of an agent: results, requests, functions, output, limits, streams, and cancellation."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from pellucid import (
    AgentRunResultEvent,
    CallToolsNode,
    End,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelError,
    ModelRequest,
    ModelRequestNode,
    ModelResponse,
    ModelRetry,
    NativeOutput,
    PartDeltaEvent,
    PartStartEvent,
    PromptedOutput,
    RequestError,
    RetryPromptPart,
    RunContext,
    RunEndEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    Tool,
    ToolCallPart,
    ToolReturnPart,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
    UserPromptNode,
    messages_from_json,
)
from pellucid.events import Event
from pellucid.fold import fold
from pellucid.models.groq import GroqModelSettings
from tests.agent.agent_kit import MakeAgent, calls, results_in
from tests.scripted import Call, Script, Upstream, delta, say
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

pytestmark = pytest.mark.anyio


def weather(city: str, days: int = 1) -> str:
    """What the weather will be.

    Args:
        city: Where.
        days: How far ahead.
    """
    return f"rain in {city} for {days}"


# --- results -----------------------------------------------------------------------------------------------------


async def test_a_result_has_the_output_the_thinking_and_the_messages(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say("Let me see.", "It is 391."), instructions="Be brief.")
    result = await agent.run("17 * 23?")
    assert result.output == "It is 391. "
    assert result.thinking == "Let me see. "
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (1, 7, 9)
    request, response = result.all_messages()
    assert isinstance(request, ModelRequest)
    assert isinstance(response, ModelResponse)
    assert [type(part) for part in response.parts] == [ThinkingPart, TextPart]
    assert result.all_messages() == result.new_messages() == messages_from_json(result.all_messages_json())


def test_run_sync_is_refused_in_a_running_event_loop(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say())
    assert agent.run_sync("Why?").output == "42. "

    async def inside() -> None:
        agent.run_sync("Why?")

    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        asyncio.run(inside())


async def test_functions_are_called_and_each_turn_has_its_reasoning(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(
        calls(("weather", {"city": "Lyon", "days": 2})), say("So it rains.", "Take a coat."), tools=[weather]
    )
    result = await agent.run("What to wear?")
    assert result.output == "Take a coat. "
    assert result.thinking == "I must look.\n\nSo it rains. "
    _, first, answered, last = result.all_messages()
    assert isinstance(answered, ModelRequest)
    [returned] = answered.parts
    assert isinstance(returned, ToolReturnPart)
    assert returned.content == "rain in Lyon for 2"
    thoughts = [p for m in (first, last) for p in m.parts if isinstance(p, ThinkingPart)]
    assert len({thought.item_id for thought in thoughts}) == 2
    again = get_calls()[1].body["messages"]
    assert [message["role"] for message in again] == ["user", "assistant", "tool"]
    assert (result.usage.requests, result.usage.tool_calls, result.usage.input_tokens) == (2, 1, 17)


async def test_a_function_is_described_to_the_model(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say(), tools=[weather])
    await agent.run("Why?")
    [tool] = get_calls()[0].body["tools"]
    assert tool["function"] == {
        "name": "weather",
        "description": "What the weather will be.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "days": {"type": "integer", "default": 1, "description": "How far ahead."},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }


async def test_a_conversation_continues_with_its_history(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say("Hm.", "Ada."), instructions="Be kind.", system_prompt="You know history.")
    first = await agent.run("Who wrote the first program?")
    second = await agent.run("When?", message_history=messages_from_json(first.all_messages_json()))
    assert len(second.all_messages()) == 4
    assert len(second.new_messages()) == 2
    sent = get_calls()[1].body["messages"]
    assert [message["content"] for message in sent if message["role"] == "system"] == ["Be kind.", "You know history."]
    assert [message["content"] for message in sent if message["role"] == "user"] == [
        "Who wrote the first program?",
        "When?",
    ]


async def test_settings_are_merged_shallowly_and_the_later_layer_wins(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say(), model_settings={"temperature": 0.1, "extra_body": {"a": 1, "b": 1}})
    await agent.run("Why?", model_settings={"extra_body": {"b": 2}, "max_tokens": 50})
    body = get_calls()[0].body
    assert (body["temperature"], body["max_tokens"], body.get("a"), body["b"]) == (0.1, 50, None, 2)


# --- functions ---------------------------------------------------------------------------------------------------


async def test_functions_of_one_turn_run_together_and_answer_in_the_order_of_the_calls(make_agent: MakeAgent) -> None:
    together = asyncio.Barrier(3)
    returned: list[int] = []

    async def slow(n: int) -> int:
        async with asyncio.timeout(LIMIT_SECONDS):
            await together.wait()
        await eventually(lambda: len(returned) == 3 - n)
        returned.append(n)
        return n

    agent, _ = make_agent(calls(*(("slow", {"n": n}) for n in (1, 2, 3))), say(), tools=[slow])
    result = await agent.run("Count.")
    assert returned == [3, 2, 1]
    answered = result.all_messages()[2]
    assert [part.content for part in answered.parts if isinstance(part, ToolReturnPart)] == [1, 2, 3]


async def test_a_sequential_function_runs_alone(make_agent: MakeAgent) -> None:
    running: list[str] = []
    seen: list[list[str]] = []

    async def either(name: str) -> str:
        running.append(name)
        await loop_turns(20)
        seen.append(list(running))
        running.remove(name)
        return name

    async def alone() -> None:
        await either("alone")

    agent, _ = make_agent(
        calls(("either", {"name": "a"}), ("alone", {}), ("either", {"name": "b"})),
        say(),
        tools=[either, Tool(alone, sequential=True)],
    )
    await agent.run("Go.")
    assert ["alone"] in seen
    assert not any("alone" in names and len(names) > 1 for names in seen)


async def test_a_plain_function_runs_in_a_thread_and_gets_its_context(make_agent: MakeAgent) -> None:
    where: list[threading.Thread] = []

    def whoami(ctx: RunContext[str], loud: bool) -> str:
        where.append(threading.current_thread())
        assert (ctx.tool_name, ctx.run_step, ctx.retry, ctx.prompt) == ("whoami", 1, 0, "Who?")
        return ctx.deps.upper() if loud else ctx.deps

    agent, _ = make_agent(calls(("whoami", {"loud": True})), say(), tools=[whoami], deps_type=str)
    result = await agent.run("Who?", deps="ada")
    assert results_in(result.all_messages()[2])[0].content == "ADA"
    assert where[0] is not threading.main_thread()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"city": 3}, "city"),
        ({}, "city"),
        ({"city": "Lyon", "days": "two"}, "days"),
        ({"city": "Lyon", "country": "FR"}, "country"),
        ('{"city": "Ly', "not a JSON object"),
        ("[1]", "not a JSON object"),
    ],
)
async def test_arguments_that_do_not_fit_go_back_to_the_model(make_agent: MakeAgent, arguments: Any, says: str) -> None:
    agent, get_calls = make_agent(
        calls(("weather", arguments)), calls(("weather", {"city": "Lyon"})), say(), tools=[weather]
    )
    result = await agent.run("Why?")
    [again] = result.all_messages()[2].parts
    assert isinstance(again, RetryPromptPart)
    assert says in str(again.content)
    assert get_calls()[1].body["messages"][-1]["role"] == "tool"
    assert result.output == "42. "


async def test_a_call_of_an_unknown_function_is_reported_to_the_model(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(calls(("wether", {})), say(), tools=[weather])
    result = await agent.run("Why?")
    [again] = results_in(result.all_messages()[2])
    assert "The tools are: weather" in str(again.content)


async def test_a_function_may_request_a_limited_number_of_retries(make_agent: MakeAgent) -> None:
    tries: list[int] = []

    def guess(ctx: RunContext[None], n: int) -> str:
        tries.append(ctx.retry)
        raise ModelRetry(f"{n} is too low")

    agent, _ = make_agent(calls(("guess", {"n": 1})), tools=[guess], retries=2)
    with pytest.raises(UnexpectedModelBehavior, match=r"guess.*2 times in a row.*1 is too low"):
        await agent.run("Guess.")
    assert tries == [0, 1, 2]


async def test_a_timeout_of_a_function_is_reported_to_the_model(make_agent: MakeAgent) -> None:
    stopped: list[bool] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    agent, _ = make_agent(calls(("slow", {})), say(), tools=[slow], tool_timeout=0.05)
    result = await agent.run("Go.")
    assert "within 0.05 s" in str(results_in(result.all_messages()[2])[0].content)
    assert stopped == [True]


async def test_an_exception_of_a_function_is_raised_and_stops_the_others(make_agent: MakeAgent) -> None:
    stopped: list[bool] = []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    def broken() -> None:
        raise KeyError("oops")

    agent, get_calls = make_agent(calls(("slow", {}), ("broken", {})), say(), tools=[slow, broken])
    async with agent.iter("Go.") as run:
        with pytest.raises(KeyError, match="oops"):
            await run.finish()
    assert stopped == [True]
    assert len(get_calls()) == 1
    # The history can be sent again: every call has a result.
    outcomes = [part.outcome for part in results_in(run.all_messages()[-1]) if isinstance(part, ToolReturnPart)]
    assert outcomes == ["failed", "failed"]


# --- output ------------------------------------------------------------------------------------------------------


@dataclass
class Verdict:
    """What was decided."""

    guilty: bool
    years: int | None = None


class Person(BaseModel):
    name: str
    born: int
    friends: list[Person] = []


@pytest.mark.parametrize(
    ("type_", "arguments", "value"),
    [
        (Verdict, {"guilty": True, "years": "3"}, Verdict(True, 3)),
        (Person, {"name": "Ada", "born": 1815}, Person(name="Ada", born=1815)),
        (int, {"response": 42}, 42),
        (list[str], {"response": ["a"]}, ["a"]),
        (Literal["yes", "no"], {"response": "yes"}, "yes"),
    ],
)
async def test_output_of_a_type(make_agent: MakeAgent, type_: Any, arguments: dict[str, Any], value: Any) -> None:
    agent, get_calls = make_agent(calls(("final_result", arguments)), output_type=type_)
    result = await agent.run("Decide.")
    assert result.output == value
    assert get_calls()[0].body["tool_choice"] == "required"
    [taken] = result.all_messages()[-1].parts
    assert isinstance(taken, ToolReturnPart)


async def test_an_invalid_output_is_requested_again_and_then_the_run_fails(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(
        calls(("final_result", {"guilty": "maybe"})), calls(("final_result", {"guilty": False})), output_type=Verdict
    )
    assert (await agent.run("Decide.")).output == Verdict(False)
    agent, get_calls = make_agent(say("Hm.", "Guilty!"), output_type=Verdict, output_retries=2)
    with pytest.raises(UnexpectedModelBehavior, match="final_result"):
        await agent.run("Decide.")
    assert len(get_calls()) == 3
    assert "final_result" in get_calls()[1].body["messages"][-1]["content"]


async def test_output_is_text_or_of_a_type(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say("Hm.", "I cannot say."), output_type=[str, Verdict])
    assert (await agent.run("Decide.")).output == "I cannot say. "
    agent, _ = make_agent(calls(("final_result", {"guilty": True})), output_type=str | Verdict)
    assert (await agent.run("Decide.")).output == Verdict(True)


async def test_output_of_one_of_several_types(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(
        calls(("final_result_Person", {"name": "Ada", "born": 1})), output_type=[Verdict, Person]
    )
    assert isinstance((await agent.run("Who?")).output, Person)
    names = [tool["function"]["name"] for tool in get_calls()[0].body["tools"]]
    assert names == ["final_result_Verdict", "final_result_Person"]


async def test_a_native_and_a_prompted_output(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say("Hm.", '{"guilty":true}'), output_type=NativeOutput(Verdict))
    assert (await agent.run("Decide.")).output == Verdict(True)
    assert get_calls()[0].body["response_format"]["json_schema"]["schema"]["required"] == ["guilty"]
    agent, get_calls = make_agent(
        say("Hm.", "not JSON"), say("Hm.", '```json\n{"guilty":false}\n```'), output_type=PromptedOutput(Verdict)
    )
    assert (await agent.run("Decide.")).output == Verdict(False)
    assert "JSON Schema" in get_calls()[0].body["messages"][0]["content"]
    assert "not JSON" in get_calls()[1].body["messages"][-1]["content"]


async def test_an_output_validator_changes_the_output_or_requests_a_retry(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say("Hm.", "no"), say("Hm.", "yes"))

    @agent.output_validator
    def polite(ctx: RunContext[None], output: str) -> str:
        if output.strip() == "no":
            raise ModelRetry("Say yes.")
        return output.strip().upper()

    assert (await agent.run("May I?")).output == "YES"


async def test_other_calls_with_a_valid_output_are_skipped(make_agent: MakeAgent) -> None:
    called: list[str] = []
    agent, _ = make_agent(
        calls(("weather", {"city": "Lyon"}), ("final_result", {"guilty": True})),
        tools=[Tool(lambda city: called.append(city), name="weather")],
        output_type=Verdict,
        end_strategy="early",
    )
    result = await agent.run("Decide.")
    assert result.output == Verdict(True)
    assert called == []
    assert len(result.all_messages()[-1].parts) == 2


async def test_an_empty_answer_is_requested_again(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say("Only thought.", ""), say("Well.", "Yes."))
    assert (await agent.run("Why?")).output == "Yes. "
    assert len(get_calls()) == 2


async def cut(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Long thought"))
    await call.event(delta(content="The answer is"))
    await call.event(delta("length"))
    await call.event(b"[DONE]")
    await call.end()


async def test_an_answer_that_was_cut_off_is_an_error_only_if_output_has_a_type(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(cut)
    with pytest.warns(UserWarning, match="cut off"):
        result = await agent.run("Why?")
    assert result.output == "The answer is"
    assert result.response.finish_reason == "length"
    assert any("max_output_tokens" in warning for warning in result.warnings)
    agent, _ = make_agent(cut, output_type=Verdict)
    with pytest.raises(UnexpectedModelBehavior, match="max_tokens"):
        await agent.run("Why?")


# --- limits and errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "says", "requests"),
    [
        (UsageLimits(request_limit=2), "request_limit of 2", 2),
        (UsageLimits(tool_calls_limit=2), "tool_calls_limit of 2", 3),
        (UsageLimits(total_tokens_limit=20), "30 total tokens", 2),
        (UsageLimits(output_tokens_limit=4), "5 output tokens", 1),
    ],
)
async def test_usage_limits(make_agent: MakeAgent, limits: UsageLimits, says: str, requests: int) -> None:
    agent, get_calls = make_agent(calls(("weather", {"city": "Lyon"})), tools=[weather])
    with pytest.raises(UsageLimitExceeded, match=says):
        await agent.run("Why?", usage_limits=limits)
    assert len(get_calls()) == requests


async def test_a_model_that_fails(make_agent: MakeAgent) -> None:
    async def refuses(call: Call) -> None:
        await call.answer(401, b'{"error": {"message": "no such key"}}')

    async def breaks(call: Call) -> None:
        await call.head()
        await call.event(delta(content="half"))
        call.reset()

    for script in (refuses, breaks):
        agent, _ = make_agent(script)
        with pytest.raises(ModelError):
            await agent.run("Why?")


async def test_a_run_needs_a_prompt_and_a_model() -> None:
    from pellucid import Agent

    with pytest.raises(RequestError, match="no model"):
        await Agent().run("Why?")
    with pytest.raises(RequestError, match="two tools"):
        Agent(tools=[weather, weather])
    with pytest.raises(RequestError, match="by its name"):
        Agent(tools=[lambda *args: 1])


# --- streaming ---------------------------------------------------------------------------------------------------


async def test_every_event_in_order_and_the_result_last(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(calls(("weather", {"city": "Lyon"})), say("So.", "Rain."), tools=[weather])
    seen = [event async for event in agent.run_stream_events("Why?")]
    *events, last = seen
    assert isinstance(last, AgentRunResultEvent)
    assert last.result.output == "Rain. "
    of_the_run = [event for event in events if not isinstance(event, AgentRunResultEvent)]
    assert fold(of_the_run).messages == last.result.new_messages()[1:]
    kinds = [type(event) for event in events]
    assert kinds.index(FunctionToolCallEvent) < kinds.index(FunctionToolResultEvent) < kinds.index(FinalResultEvent)
    assert kinds[-1] is RunEndEvent
    async with agent.run_stream_events("Why?") as stream:
        again = [type(event) async for event in stream]
    assert again[-1] is AgentRunResultEvent


async def test_a_stream_yields_the_answer_as_it_arrives(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(calls(("weather", {"city": "Lyon"})), say("So.", "It will rain."), tools=[weather])
    event_types: list[str] = []

    async def handler(ctx: RunContext[None], events: Any) -> None:
        assert isinstance(ctx, RunContext)
        event_types.extend([type(event).__name__ async for event in events])

    async with agent.run_stream("Why?", event_stream_handler=handler) as stream:
        assert event_types[-1] == "FinalResultEvent"
        complete = [stream.is_complete]
        assert [text async for text in stream.stream_text()] == ["It ", "It will ", "It will rain. "]
        complete.append(stream.is_complete)
        assert complete == [False, True]
        assert await stream.get_output() == "It will rain. "
        assert len(stream.all_messages()) == 4
    async with agent.run_stream("Why?") as stream:
        assert [text async for text in stream.stream_text(delta=True)] == ["It ", "will ", "rain. "]
    async with agent.run_stream("Why?") as stream:
        assert [text async for text in stream.stream_output()][-1] == "It will rain. "
        assert stream.result.output == "It will rain. "
        assert len(stream.new_messages()) == 2
        assert stream.usage.requests == 1
        assert stream.warnings == []


async def test_an_output_of_another_type_is_streamed_once(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(calls(("final_result", {"guilty": True})), output_type=Verdict)
    async with agent.run_stream("Who was it?") as stream:
        assert [output async for output in stream.stream_output()] == [Verdict(True)]


async def test_a_handler_of_one_event(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say("Let me see.", "Yes."))
    thoughts: list[str | None] = []
    words: list[str] = []

    async def handler(event: Any) -> None:
        if isinstance(event, PartDeltaEvent):
            if isinstance(event.delta, ThinkingPartDelta):
                thoughts.append(event.delta.content_delta)
            if isinstance(event.delta, TextPartDelta):
                words.append(event.delta.content_delta)

    await agent.run("Why?", event_stream_handler=handler)
    assert "".join(filter(None, thoughts)) == "Let me see. "
    assert words == ["Yes. "]


async def test_text_before_a_call_is_continued_after_it(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(
        calls(("weather", {"city": "Lyon"}), text="I will look. "), say("So.", "Rain."), tools=[weather]
    )
    async with agent.run_stream("Why?") as stream:
        assert "".join([text async for text in stream.stream_text(delta=True)]) == "I will look. Rain. "
        assert stream.result.output == "Rain. "


async def test_step_by_step(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(calls(("weather", {"city": "Lyon"})), say("So.", "Rain."), tools=[weather])
    steps: list[str] = []
    async with agent.iter("Why?") as run:
        async for node in run:
            steps.append(type(node).__name__)
            if isinstance(node, ModelRequestNode):
                async with node.stream(run.ctx) as events:
                    steps += [thought async for event in events if (thought := thought_in(event)) is not None]
            elif isinstance(node, CallToolsNode):
                async with node.stream() as events:
                    steps += [type(event).__name__ async for event in events]
            elif isinstance(node, End):
                steps.append(node.data.output)
    assert steps == [
        "UserPromptNode",
        *("ModelRequestNode", "I must look."),
        *("CallToolsNode", "FunctionToolCallEvent", "FunctionToolResultEvent"),
        *("ModelRequestNode", "So. "),
        *("CallToolsNode", "RunEndEvent"),
        *("End", "Rain. "),
    ]
    agent, _ = make_agent(calls(("weather", {"city": "Lyon"})), say("So.", "Rain."), tools=[weather])
    async with agent.iter("Why?") as run:
        unread = [type(node) async for node in run]
    assert unread == [UserPromptNode, ModelRequestNode, CallToolsNode, ModelRequestNode, CallToolsNode, End]


def thought_in(event: Event) -> str | None:
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta):
        return event.delta.content_delta
    return None


async def test_history_processors_change_the_request_and_not_the_messages(make_agent: MakeAgent) -> None:
    async def only_the_last(ctx: RunContext[None], messages: list[Any]) -> list[Any]:
        return messages[-1:]

    agent, get_calls = make_agent(say("Hm.", "Yes."), history_processors=[only_the_last])
    first = await agent.run("One?")
    second = await agent.run("Two?", message_history=first.all_messages())
    assert [message["content"] for message in get_calls()[1].body["messages"]] == ["Two?"]
    assert len(second.all_messages()) == 4


# --- cancellation ------------------------------------------------------------------------------------------------


async def hangs(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Let me"))
    await call.wait_for_disconnect()


async def hangs_in_a_call(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Let me"))
    function = {"name": "weather", "arguments": '{"ci'}
    await call.event(delta(tool_calls=[{"index": 0, "id": "c1", "function": function}]))
    await call.wait_for_disconnect()


@pytest.mark.parametrize(("script", "last"), [(hangs, ThinkingPart), (hangs_in_a_call, ToolCallPart)])
async def test_a_run_that_is_cancelled_leaves_a_history_that_can_be_sent(
    make_agent: MakeAgent, script: Script, last: type[ThinkingPart | ToolCallPart]
) -> None:
    agent, get_calls = make_agent(script, say("Hm.", "Yes."), tools=[weather])
    async with agent.iter("Why?") as run:
        begun = False
        while not begun:
            events = await run.read() or []
            begun = any(isinstance(event, PartStartEvent) and isinstance(event.part, last) for event in events)
        task = asyncio.create_task(run.finish())
        await loop_turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await asyncio.to_thread(get_calls()[0].connection.closed.wait, LIMIT_SECONDS)
    history = run.all_messages()
    unfinished = history[-1].parts[-1]
    assert isinstance(unfinished, last)
    assert not unfinished.complete
    result = await agent.run("Well?", message_history=history)
    assert result.output == "Yes. "
    sent = get_calls()[1].body["messages"]
    assert [message["content"] for message in sent if message["role"] == "user"] == ["Why?", "Well?"]
    assert not any("tool_calls" in message for message in sent), "incomplete parts are not sent"


async def test_a_run_that_is_cancelled_in_a_function(make_agent: MakeAgent) -> None:
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        await asyncio.Event().wait()

    agent, get_calls = make_agent(calls(("slow", {})), say(), tools=[slow])
    async with agent.iter("Go.") as run:
        task = asyncio.create_task(run.finish())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    call, answer = run.all_messages()[-2:]
    assert isinstance(call.parts[-1], ToolCallPart)
    assert results_in(answer)[0].tool_call_id == call.parts[-1].tool_call_id
    assert len(get_calls()) == 1
    assert (await agent.run("Again.", message_history=run.all_messages())).output == "42. "


async def test_leaving_a_stream_closes_the_upstream_at_once(make_agent: MakeAgent) -> None:
    async def talks(call: Call) -> None:
        await call.head()
        await call.event(delta(content="Well"))
        await call.wait_for_disconnect()

    agent, get_calls = make_agent(talks)
    async with agent.run_stream("Why?"):
        pass
    assert await asyncio.to_thread(get_calls()[0].connection.closed.wait, LIMIT_SECONDS)
    async with agent.run_stream_events("Why?") as events:
        async for _ in events:
            break
    assert await asyncio.to_thread(get_calls()[1].connection.closed.wait, LIMIT_SECONDS)


async def test_an_unsupported_setting_is_a_warning_and_is_not_sent(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(say())
    with pytest.warns(UserWarning, match="groq_reasoning_format"):
        result = await agent.run("Why?", model_settings=GroqModelSettings(groq_reasoning_format="parsed"))
    assert any("groq_reasoning_format" in warning for warning in result.warnings)
    assert "reasoning_format" not in get_calls()[0].body


async def test_a_paused_turn_is_continued(make_agent: MakeAgent) -> None:
    """A provider that executes tools may pause a long turn, and needs the whole turn back."""
    from pellucid import Agent
    from pellucid.models.anthropic import AnthropicModel
    from pellucid.upstream import Limits

    def turn(stop: str, text: str) -> list[dict[str, Any]]:
        return [
            {"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "claude", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]

    def plays(events: list[dict[str, Any]]) -> Any:
        async def script(call: Call) -> None:
            await call.head()
            for event in events:
                await call.event(event)
            await call.end()

        return script

    with Upstream() as upstream:
        name = upstream.plays(plays(turn("pause_turn", "Searching. ")), plays(turn("end_turn", "Found.")))
        model = AnthropicModel(name, base_url=upstream.url, api_key="k", limits=Limits(retries=0))
        result = await Agent(model).run("Look it up.")
        again = upstream.calls(name)[1].body["messages"]
    assert result.output == "Found."
    assert [message["role"] for message in again] == ["user", "assistant"]
    assert result.usage.requests == 2


async def test_a_failed_run_emits_its_end_before_it_raises(make_agent: MakeAgent) -> None:
    def broken() -> None:
        raise KeyError("secret")

    async def refuses(call: Call) -> None:
        await call.answer(401, b'{"error": {"message": "no such key"}}')

    for script, raises in ((calls(("broken", {})), KeyError), (refuses, ModelError)):
        agent, _ = make_agent(script, tools=[broken])
        seen: list[Any] = []
        with pytest.raises(raises):
            await collect(agent.run_stream_events("Go."), seen)
        end = seen[-1]
        assert isinstance(end, RunEndEvent)
        assert end.status == "failed"
        assert end.error is not None
        assert "secret" not in end.error.message
        assert fold(seen).run_end is end


async def collect(events: Any, into: list[Any]) -> None:
    async for event in events:
        into.append(event)  # noqa: PERF401 (what came before it raised is wanted)


async def test_a_warning_has_the_location_of_the_caller(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say())
    with pytest.warns(UserWarning, match="groq") as warned:
        await agent.run("Why?", model_settings=GroqModelSettings(groq_reasoning_format="parsed"))
    assert warned[0].filename == __file__


async def test_misspelt_and_invalid_options_are_refused_at_once(make_agent: MakeAgent) -> None:
    from pellucid import Agent

    with pytest.raises(TypeError, match="did you mean 'instructions'"):
        Agent("openai:gpt-5", instruction="Be brief.")  # type: ignore[call-overload]
    with pytest.raises(RequestError, match="names no type"):
        Agent("openai:gpt-5", output_type=[])
    agent, get_calls = make_agent(say())
    with pytest.raises(RequestError, match="thinking cannot be 'lots'"):
        await agent.run("Why?", model_settings={"thinking": "lots"})  # type: ignore[arg-type]
    assert get_calls() == []


def returned(value: Any, /) -> Any:
    return value


async def test_unusual_functions(make_agent: MakeAgent) -> None:
    from functools import partial, wraps

    def stops() -> int:
        return next(iter([]))

    agent, _ = make_agent(calls(("stops", {})), tools=[stops])
    with pytest.raises(RuntimeError, match="StopIteration"):
        await agent.run("Go.")

    async def later(n: int) -> int:
        return n

    @wraps(later)
    def wrapped(n: int) -> Any:
        return later(n)

    def late() -> None:
        raise TimeoutError("the database said no")

    agent, _ = make_agent(calls(("later", {"n": 3})), say(), tools=[wrapped])
    assert results_in((await agent.run("Go.")).all_messages()[2])[0].content == 3
    agent, _ = make_agent(calls(("later", {})), say(), tools=[partial(later, n=4)])
    assert results_in((await agent.run("Go.")).all_messages()[2])[0].content == 4
    agent, _ = make_agent(calls(("late", {})), tools=[late], tool_timeout=LIMIT_SECONDS)
    with pytest.raises(TimeoutError, match="the database said no"):
        await agent.run("Go.")
    for value in ("\ud83d", {(1, 2): 3}):
        agent, _ = make_agent(calls(("odd", {})), tools=[Tool(partial(returned, value), name="odd")])
        with pytest.raises(TypeError, match="'odd' returned"):
            await agent.run("Go.")


async def test_names_of_functions_and_outputs_are_unique(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(
        calls(("final_result_list_2", {"response": ["a"]})), output_type=[list[int], list[str]]
    )
    assert (await agent.run("Go.")).output == ["a"]
    assert len({tool["function"]["name"] for tool in get_calls()[0].body["tools"]}) == 2
    agent, _ = make_agent(say(), output_type=Verdict, tools=[Tool(weather, name="final_result")])
    with pytest.raises(RequestError, match="the name of the output"):
        await agent.run("Go.")
    with pytest.raises(RequestError, match="one form only"):
        make_agent(say(), output_type=[NativeOutput(Verdict), NativeOutput(Person)])


async def test_a_stream_that_is_read_in_parts_loses_nothing(make_agent: MakeAgent) -> None:
    agent, _ = make_agent(say("Hm.", "One two three."))
    async with agent.run_stream("Count.") as stream:
        first = await anext(stream.stream_text(delta=True))
        assert first + "".join([text async for text in stream.stream_text(delta=True)]) == "One two three. "


def test_breaking_out_of_events_ends_the_run_silently(make_agent: MakeAgent) -> None:
    agent, get_calls = make_agent(hangs)

    async def main() -> None:
        async for _ in agent.run_stream_events("Why?"):
            break
        assert await asyncio.to_thread(get_calls()[0].connection.closed.wait, LIMIT_SECONDS)

    asyncio.run(main())


async def test_a_call_that_an_error_response_quotes_is_made(make_agent: MakeAgent) -> None:
    """Groq refuses arguments that do not match the schema. The function's own check tells the model."""
    quoted = {"name": "look", "arguments": {"wrong": 1}}
    error = {
        "message": "Tool call validation failed",
        "code": "tool_use_failed",
        "failed_generation": json.dumps(quoted),
    }

    async def refuse(call: Call) -> None:
        await call.answer(400, json.dumps({"error": error}).encode())

    def look(at: str) -> str:
        return f"seen {at}"

    agent, get_calls = make_agent(refuse, calls(("look", {"at": "it"})), say("So."), tools=[look])
    result = await agent.run("Look.")
    assert result.output == "42. "
    made, retried = get_calls()[1].body["messages"][-2:]
    assert [call["function"] for call in made["tool_calls"]] == [{"name": "look", "arguments": '{"wrong":1}'}]
    assert retried["tool_call_id"] == made["tool_calls"][0]["id"] != ""
    assert "wrong" in retried["content"] or "at" in retried["content"]


async def test_an_error_response_that_quotes_no_whole_call_stays_an_error(make_agent: MakeAgent) -> None:
    error = {"message": "Failed to call a function.", "code": "tool_use_failed", "failed_generation": "maybe"}

    async def refuse(call: Call) -> None:
        await call.answer(400, json.dumps({"error": error}).encode())

    def look(at: str) -> str:
        return f"seen {at}"

    agent, _ = make_agent(refuse, tools=[look])
    with pytest.raises(ModelError, match="Failed to call a function") as caught:
        await agent.run("Look.")
    assert (caught.value.info.code, caught.value.info.status) == ("tool_use_failed", 400)
