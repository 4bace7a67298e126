"""A Pydantic AI agent behind our gateway: its whole run is one turn."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, UsageLimits
from pydantic_ai import messages as theirs
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from pellucid import parts as ours
from pellucid.errors import ErrorInfo, ModelError, RequestError
from pellucid.events import ErrorEvent, ModelEvent, ResponseEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.interop.pydantic_ai import PydanticAgent
from pellucid.interop.pydantic_ai.agent import EventTranslator
from pellucid.models import ModelRead, StreamReader
from pellucid.settings import ModelCall, ToolDefinition
from tests.cutting import content_deltas
from tests.interop.histories import THEIR_RESPONSE_PARTS
from tests.scripted.gateway import Served, serve
from tests.scripted_runs import reads_of
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns

SECOND_PROMPT: list[ours.ModelMessage] = [ours.ModelRequest([ours.UserPromptPart("And?")])]


def prompt_of(messages: list[theirs.ModelMessage]) -> str:
    """Return the first prompt of the user."""
    part = messages[0].parts[0]
    assert isinstance(part, theirs.UserPromptPart)
    return str(part.content)


async def read_batches(agent_model: PydanticAgent, call: ModelCall | None = None) -> list[list[ModelEvent]]:
    turn = await agent_model.open(call or ModelCall(agent_model.name, SECOND_PROMPT))
    batches = await reads_of(turn)
    turn.cancel()
    return batches


def full_response(agent_model: PydanticAgent, call: ModelCall | None = None) -> ours.ModelResponse:
    """Run the agent and return its response, after checking that the turn is legal."""

    async def ask() -> list[list[ModelEvent]]:
        batches = await read_batches(agent_model, call)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "the agent still runs"
        return batches

    folded = fold([event for batch in asyncio.run(ask()) for event in batch])
    assert folded.response is not None
    return folded.response


async def thinks_and_looks(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, Any]]:
    """Think, call `weather` twice, think again, answer."""
    if not any(part.part_kind == "tool-return" for message in messages for part in message.parts):
        yield {0: DeltaThinkingPart(content="I should ")}
        yield {0: DeltaThinkingPart(content="look.", signature="sig-1")}
        yield {1: DeltaToolCall(name="weather", json_args='{"city": ', tool_call_id="c1")}
        yield {1: DeltaToolCall(json_args='"Oslo"}')}
        yield {2: DeltaToolCall(name="weather", json_args='{"city": "Rome"}', tool_call_id="c2")}
    else:
        yield {0: DeltaThinkingPart(content="Cold there.")}
        yield "Snow "
        yield "and sun."


def weather_agent(**more: Any) -> Agent[Any, Any]:
    agent = Agent(FunctionModel(stream_function=thinks_and_looks), name="weather", **more)

    @agent.tool_plain
    def weather(city: str) -> str:
        return {"Oslo": "snow", "Rome": "sun"}[city]

    return agent


# --- the turn ----------------------------------------------------------------------------------------------------


def test_a_run_is_one_turn_in_order() -> None:
    response = full_response(PydanticAgent(weather_agent()))
    contents = [
        (part.part_kind, getattr(part, "content", None) or getattr(part, "args", None)) for part in response.parts
    ]
    assert contents[:3] == [
        ("thinking", "I should look."),
        ("builtin-tool-call", '{"city": "Oslo"}'),
        ("builtin-tool-call", '{"city": "Rome"}'),
    ]
    assert sorted(contents[3:5]) == [("builtin-tool-return", "snow"), ("builtin-tool-return", "sun")]
    assert contents[5:] == [("thinking", "Cold there."), ("text", "Snow and sun.")]
    thought = response.parts[0]
    assert isinstance(thought, ours.ThinkingPart)
    assert thought.signature == "sig-1"
    assert response.finish_reason == "stop"
    assert response.usage.input_tokens is not None
    assert response.usage.output_tokens is not None


def test_the_next_run_sees_the_previous_one_unchanged() -> None:
    """Calls and results are restored, each with the signatures of the agent's own model."""
    first = full_response(PydanticAgent(weather_agent()))
    seen: list[theirs.ModelMessage] = []

    async def looks_back(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        seen.extend(messages)
        yield "Yes."

    agent = Agent(FunctionModel(stream_function=looks_back), name="weather", system_prompt="You are the weather.")
    again = ours.ModelRequest([ours.UserPromptPart("Sure?")])
    full_response(PydanticAgent(agent), ModelCall("weather", [*SECOND_PROMPT, first, again]))
    assert [[part.part_kind for part in message.parts] for message in seen] == [
        ["system-prompt", "user-prompt"],
        ["thinking", "tool-call", "tool-call"],
        ["tool-return", "tool-return"],
        ["thinking", "text"],
        ["user-prompt"],
    ]
    thought, call, _ = seen[1].parts
    assert isinstance(thought, theirs.ThinkingPart)
    assert isinstance(call, theirs.ToolCallPart)
    assert (thought.signature, thought.provider_name) == ("sig-1", "function")
    assert (call.tool_call_id, call.args) == ("c1", '{"city": "Oslo"}')


def test_the_callers_tools_are_function_calls() -> None:
    async def calls(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[dict[int, Any]]:
        assert [tool.name for tool in info.function_tools] == ["weather", "open_door"]
        yield {0: DeltaToolCall(name="open_door", json_args='{"n": 1}', tool_call_id="c9")}

    agent = weather_agent()
    agent.model = FunctionModel(stream_function=calls)
    tool = ToolDefinition("open_door", {"type": "object", "properties": {"n": {"type": "integer"}}})
    response = full_response(PydanticAgent(agent), ModelCall("weather", SECOND_PROMPT, tools=(tool,)))
    [call] = response.parts
    assert isinstance(call, ours.ToolCallPart)
    assert (call.tool_name, call.args, call.tool_call_id) == ("open_door", '{"n": 1}', "c9")
    assert response.finish_reason == "tool_call"


def test_an_agent_with_output_validation_warns_that_it_takes_no_tools() -> None:
    agent = weather_agent()
    agent.output_validator(lambda answer: answer)
    assert full_response(PydanticAgent(agent)).text == "Snow and sun."
    with pytest.raises(RequestError, match="cannot be given tools"):
        full_response(PydanticAgent(agent), ModelCall("weather", SECOND_PROMPT, tools=(ToolDefinition("f"),)))


class City(BaseModel):
    city: str


def test_the_call_of_an_output_tool_is_the_answer() -> None:
    response = full_response(
        PydanticAgent(Agent(TestModel(custom_output_args={"city": "Oslo"}), output_type=City), "city")
    )
    assert response.text is not None
    assert json.loads(response.text) == {"city": "Oslo"}
    assert [part.part_kind for part in response.parts] == ["text"]


def test_pydantic_ais_test_model_calls_every_tool() -> None:
    response = full_response(PydanticAgent(weather_agent_of_any_city(), "any"))
    assert [part.part_kind for part in response.parts] == ["builtin-tool-call", "builtin-tool-return", "text"]


def weather_agent_of_any_city() -> Agent[Any, Any]:
    agent = Agent(TestModel())

    @agent.tool_plain
    def weather(city: str) -> dict[str, Any]:
        return {"is": "fine"}

    return agent


# --- live, cancelled, failed -------------------------------------------------------------------------------------


def test_each_delta_is_sent_when_it_arrives() -> None:
    on = asyncio.Event()

    async def waits(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield "One "
        await asyncio.wait_for(on.wait(), LIMIT_SECONDS)
        yield "two."

    async def ask() -> list[str]:
        turn = StreamReader(
            await PydanticAgent(Agent(FunctionModel(stream_function=waits)), "a").open(ModelCall("a", SECOND_PROMPT))
        )
        texts: list[str] = []
        while (batch := await turn.read()) is not None:
            texts += content_deltas(batch)
            if texts == ["One "]:
                on.set()
        return texts

    assert asyncio.run(ask()) == ["One ", "two."]


def test_cancel_stops_the_run_at_once() -> None:
    """Cancel while the model is writing, and while a tool of the agent runs."""
    started: list[str] = []
    stopped: list[str] = []

    async def writes(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if len(messages) == 1 and "tool" in prompt_of(messages):
            yield {0: DeltaToolCall(name="slow", json_args="{}", tool_call_id="c")}
            return
        yield "One "
        try:
            started.append("model")
            await asyncio.Event().wait()
        finally:
            stopped.append("model")

    agent = Agent(FunctionModel(stream_function=writes))

    @agent.tool_plain
    async def slow() -> str:
        try:
            started.append("tool")
            await asyncio.Event().wait()
        finally:
            stopped.append("tool")
        return ""

    async def ask(prompt: str, what: str) -> list[ModelEvent]:
        messages_with_prompt: list[ours.ModelMessage] = [ours.ModelRequest([ours.UserPromptPart(prompt)])]
        turn = await PydanticAgent(agent, "a").open(ModelCall("a", messages_with_prompt))
        events: list[ModelEvent] = []
        turn.start(lambda read: events.extend(read if isinstance(read, list) else []))
        await eventually(lambda: what in started)
        assert events
        events += turn.cancel()
        count = len(events)
        assert turn.cancel() == []
        await eventually(lambda: asyncio.all_tasks() == {asyncio.current_task()}, "the agent ends")
        assert len(events) == count
        return events

    for prompt, what in (("text", "model"), ("tool", "tool")):
        folded = fold(list(asyncio.run(ask(prompt, what))))
        assert folded.response is not None
        assert stopped.pop() == what


def test_the_first_failure_is_raised_and_a_later_one_is_an_event() -> None:
    async def fails(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if "late" in prompt_of(messages):
            yield "One "
        raise RuntimeError("the secret")

    agent_model = PydanticAgent(Agent(FunctionModel(stream_function=fails)), "a")
    with pytest.raises(ModelError) as raised:
        asyncio.run(read_batches(agent_model))
    assert raised.value.info.code == "agent_failed"
    assert "secret" not in str(raised.value.info)

    late = ModelCall("a", [ours.ModelRequest([ours.UserPromptPart("late")])])
    events = [event for batch in asyncio.run(read_batches(agent_model, late)) for event in batch]
    assert fold(list(events)).response is not None
    *_, error, end = events
    assert isinstance(error, ErrorEvent)
    assert isinstance(end, ResponseEndEvent)
    assert "secret" not in str(error)


@pytest.mark.parametrize(
    "wrong",
    [
        ModelHTTPError(400, "m", {"error": {"message": "the secret", "code": "the secret"}}),
        ModelAPIError("m", "the secret"),
    ],
)
def test_our_message_has_no_text_of_the_agent_s_model(wrong: Exception) -> None:
    async def fails(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if messages:
            raise wrong
        yield ""

    with pytest.raises(ModelError, match="the secret") as raised:
        asyncio.run(read_batches(PydanticAgent(Agent(FunctionModel(stream_function=fails)), "a")))
    info = raised.value.info
    assert "secret" not in info.message
    assert info.code is None or "secret" not in info.code


def test_the_usage_limit_of_a_run_is_an_error() -> None:
    agent_model = PydanticAgent(weather_agent(), run={"usage_limits": UsageLimits(request_limit=1)})
    events = [event for batch in asyncio.run(read_batches(agent_model)) for event in batch]
    [error] = [event.error for event in events if isinstance(event, ErrorEvent)]
    assert error.code == "usage_limit"


def test_a_slow_reader_pauses_the_agent() -> None:
    """The run waits for its reader when its buffer is full; no event is lost."""
    yielded = 0

    async def writes(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        nonlocal yielded
        for number in range(2000):
            yielded += 1
            yield f"{number} "

    async def ask() -> tuple[int, str]:
        turn = await PydanticAgent(Agent(FunctionModel(stream_function=writes)), "a").open(
            ModelCall("a", SECOND_PROMPT)
        )
        await eventually(lambda: yielded)
        ahead = 0
        while ahead < yielded:
            ahead = yielded
            await loop_turns(200)
        # Once a reader is there, the run stops when the reader pauses.
        text, paused_at = "", 0

        def receive(read: ModelRead) -> None:
            nonlocal text
            assert isinstance(read, list)
            text += "".join(content_deltas(read))
            if not paused_at:
                turn.pause()

        turn.start(receive)
        await loop_turns(200)
        paused_at = yielded
        assert paused_at <= ahead + 1
        await loop_turns(200)
        assert yielded == paused_at
        turn.resume()
        await eventually(lambda: text.endswith("1999 "))
        return ahead, text

    ahead, text = asyncio.run(ask())
    assert ahead < 400
    assert text == "".join(f"{number} " for number in range(2000))


def test_events_of_pydantic_ai_alone_are_side_events() -> None:
    teller = EventTranslator(ours.Origin("p", "a", "m"), frozenset())
    [side] = teller.translate(theirs.RealtimeSessionErrorEvent("x"))
    assert isinstance(side, SideEvent)
    assert (side.namespace, side.name) == ("pydantic_ai", "realtime_session_error")
    assert isinstance(teller.end()[-1], ResponseEndEvent)


pieces = st.lists(st.text(min_size=1, max_size=3), max_size=3)


def streamed(index: int, part: Any, texts: list[str]) -> list[Any]:
    """Return the events of a part as Pydantic AI streams it: a start with some content, then deltas."""
    known: dict[str, list[Any]] = {
        "text": [theirs.TextPartDelta(text) for text in texts],
        "thinking": [theirs.ThinkingPartDelta(content_delta=text, signature_delta=text) for text in texts],
        "tool-call": [theirs.ToolCallPartDelta(args_delta=text) for text in texts],
        "builtin-tool-call": [theirs.ToolCallPartDelta(args_delta=text) for text in texts],
    }
    deltas = known.get(part.part_kind, [])
    start = [theirs.PartStartEvent(index=index, part=part)]
    answers = part.part_kind == "tool-call" and part.tool_name.startswith("a")
    final = [theirs.FinalResultEvent(tool_name=part.tool_name, tool_call_id=part.tool_call_id)] if answers else []
    delta_events = [theirs.PartDeltaEvent(index=index, delta=delta) for delta in deltas]
    end = [theirs.PartEndEvent(index=index, part=part)] if deltas else []
    return start + final + delta_events + end


@given(st.lists(st.lists(st.tuples(st.one_of(*THEIR_RESPONSE_PARTS.values()), pieces), max_size=4), max_size=3))
def test_every_run_of_an_agent_is_a_legal_turn(requests: list[list[tuple[Any, list[str]]]]) -> None:
    """The turn has all thoughts and all text, in order."""
    translator = EventTranslator(ours.Origin("p", "a", "m"), frozenset("b"))
    events: list[ModelEvent] = []
    texts_by_kind = {"thinking": "", "text": ""}
    for request in requests:
        for index, (part, texts) in enumerate(request):
            for event in streamed(index, part, texts):
                events += translator.translate(event)
            if part.part_kind in texts_by_kind:
                texts_by_kind[part.part_kind] += part.content + "".join(texts)
    events += translator.end()
    response = fold(list(events)).response
    assert response is not None
    thought = "".join(part.content for part in response.parts if isinstance(part, ours.ThinkingPart))
    assert thought == texts_by_kind["thinking"]
    if not any(part.part_kind in ("tool-call", "speech") for request in requests for part, _ in request):
        assert (response.text or "") == texts_by_kind["text"]


# --- behind the gateway ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gone() -> threading.Event:
    return threading.Event()


@pytest.fixture(scope="module")
def gateway(gone: threading.Event) -> Iterator[Served]:
    async def endless(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        try:
            yield "One "
            await asyncio.Event().wait()
        finally:
            gone.set()

    async def broken(messages: list[theirs.ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        if messages:
            raise RuntimeError("the secret")
        yield ""

    models = [
        PydanticAgent(weather_agent()),
        PydanticAgent(Agent(FunctionModel(stream_function=endless)), "endless"),
        PydanticAgent(Agent(FunctionModel(stream_function=broken)), "broken"),
    ]
    with serve({}, more=models) as running:
        yield running


def test_the_openai_sdk_can_use_an_agent(gateway: Served) -> None:
    client = OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)
    assert "weather" in [model.id for model in client.models.list()]
    response = client.responses.create(model="weather", input="And?")
    assert response.output_text == "Snow and sun."
    assert [item.type for item in response.output if item.type == "function_call"] == []
    assert len([item for item in response.output if item.type == "reasoning"]) == 2

    streamed = "".join(
        event.delta
        for event in client.responses.create(model="weather", input="And?", stream=True)
        if event.type == "response.output_text.delta"
    )
    assert streamed == "Snow and sun."


def test_a_disconnect_stops_the_agent(gateway: Served, gone: threading.Event) -> None:
    with gateway.open("endless") as stream:
        stream.until("One ")
    assert gone.wait(LIMIT_SECONDS)
    gateway.idle()


def test_an_agent_that_fails_is_an_error_status(gateway: Served) -> None:
    reply = gateway.ask("broken")
    assert reply.status == 500
    assert reply.error["code"] == "agent_failed"
    assert b"secret" not in reply.body


def test_an_agent_needs_a_name() -> None:
    with pytest.raises(ValueError, match="no name"):
        PydanticAgent(Agent(TestModel()))


def test_cancel_with_an_error_ends_with_an_error_event() -> None:
    turn_error = ErrorInfo("timeout", "too late")

    async def ask() -> list[ModelEvent]:
        turn = await PydanticAgent(weather_agent()).open(ModelCall("weather", SECOND_PROMPT))
        return turn.cancel(turn_error)

    events = asyncio.run(ask())
    assert [event.error for event in events if isinstance(event, ErrorEvent)] == [turn_error]
