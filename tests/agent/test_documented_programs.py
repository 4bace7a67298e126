"""Programs in the shape of Pydantic AI's examples: agents, message history, settings, limits and errors.

The cases are those of its pages on agents and message history, in words of our own. Those on tools, toolsets, output
and testing are in `test_toolsets`, `test_deferred`, `test_outputs` and `test_testing`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from typing import Any

import pytest
from pydantic import BaseModel

import pellucid
from pellucid import (
    Agent,
    CallToolsNode,
    DeferredToolRequests,
    DeferredToolResults,
    End,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ImageUrl,
    ModelMessagesTypeAdapter,
    ModelRequestNode,
    ModelRetry,
    ModelSettings,
    PartDeltaEvent,
    RequestError,
    RequestUsage,
    RunContext,
    Tool,
    ToolOutput,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UsageLimits,
    UserPromptNode,
    capture_run_messages,
)
from pellucid.exceptions import UsageLimitExceeded as UsageLimitExceededOfExceptions
from pellucid.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.models.function import AgentInfo, DeltaToolCall, FunctionModel, StreamItem
from pellucid.models.test import TestModel
from pellucid.usage import UsageLimits as UsageLimitsOfUsage

pytestmark = pytest.mark.anyio

Turn = str | list[ToolCallPart]


def plays(*turns: Turn) -> tuple[FunctionModel, list[tuple[list[ModelMessage], AgentInfo]]]:
    """Return a model that answers with these turns, in pieces; and what it reads in each."""
    left, reads = list(turns), list[tuple[list[ModelMessage], AgentInfo]]()

    async def write(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        reads.append((messages, info))
        turn = left.pop(0)
        if isinstance(turn, str):
            for word in turn.split(" "):
                yield f"{word} "
        else:
            for index, call in enumerate(turn):
                yield {index: DeltaToolCall(call.tool_name, "", call.tool_call_id or None)}
                text = call.args_as_json()
                for start in range(0, len(text), 8):
                    yield {index: DeltaToolCall(json_args=text[start : start + 8])}

    return FunctionModel(stream_function=write), reads


def parts_of(messages: list[ModelMessage]) -> list[list[str]]:
    return [[part.part_kind for part in message.parts] for message in messages]


# --- names ---------------------------------------------------------------------------------------------------------


def test_modules_have_the_names_of_the_package_itself() -> None:
    assert (ModelRequest, ModelRetry) == (pellucid.ModelRequest, pellucid.exceptions.ModelRetry)
    assert (UsageLimitExceededOfExceptions, UsageLimitsOfUsage) == (UsageLimitExceeded, UsageLimits)
    assert RequestUsage(input_tokens=1) == pellucid.Usage(input_tokens=1)
    assert {"ModelMessagesTypeAdapter", "RequestUsage", "UserPromptNode"} <= set(dir(pellucid))


@pytest.mark.parametrize("name", ["my tool", "größe", "a.b", "x" * 65])
def test_a_function_of_an_agent_has_a_name_that_providers_accept(name: str) -> None:
    with pytest.raises(RequestError, match="1 to 64 letters"):
        Agent("test", tools=[Tool(lambda_free, name=name)])


def test_a_lambda_needs_a_name() -> None:
    with pytest.raises(RequestError, match=r"'<lambda>'.*for example 'lambda'"):
        Agent("test", tools=[lambda: 1])
    Agent("test", tools=[Tool(lambda: 1, name="one")])


def test_a_conversation_survives_each_form_of_the_adapter() -> None:
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart([ImageUrl(url="https://example.com/a.png")])], timestamp=datetime.now(UTC)),
        ModelResponse([ThinkingPart("So.", signature="c2ln"), ToolCallPart("f", {"a": [1, None]}, "1")]),
        ModelRequest([ToolReturnPart("f", {"b": 2}, "1"), RetryPromptPart("No.")], metadata={"tenant": "x"}),
    ]
    adapter = ModelMessagesTypeAdapter
    assert adapter.validate_json(adapter.dump_json(messages)) == messages
    assert adapter.validate_python(adapter.dump_python(messages)) == messages
    assert adapter.validate_python(adapter.dump_python(messages, mode="json")) == messages
    assert adapter.dump_python(messages)[0]["timestamp"] == messages[0].timestamp
    with pytest.raises(ValueError, match="kind"):
        adapter.validate_python([{"parts": []}])


# --- events and nodes ----------------------------------------------------------------------------------------------


def forecaster(*turns: Turn) -> Agent[None, str]:
    agent: Agent[None, str] = Agent(plays(*turns)[0])

    @agent.tool
    async def forecast(ctx: RunContext[None], place: str, day: date) -> str:
        return f"rain in {place} on {day:%A}"

    return agent


ASKS = [ToolCallPart("forecast", {"place": "Bergen", "day": "2030-01-01"}, "1")]


async def test_events_of_a_call_have_its_id_and_its_result() -> None:
    seen: list[Any] = []
    async with forecaster(ASKS, "Rain.").run_stream_events("And on Tuesday?") as events:
        async for event in events:
            if isinstance(event, FunctionToolCallEvent):
                seen.append((event.tool_call_id, event.part.args_as_dict()))
            elif isinstance(event, FunctionToolResultEvent):
                seen.append((event.tool_call_id, event.part.content))
    assert seen == [("1", ASKS[0].args), ("1", "rain in Bergen on Tuesday")]


async def test_a_run_is_driven_node_by_node() -> None:
    async with forecaster(ASKS, "Rain.").iter("And on Tuesday?") as run:
        node = run.next_node
        assert isinstance(node, UserPromptNode)
        assert node.user_prompt == "And on Tuesday?"
        kinds: list[type[Any]] = []
        while not isinstance(node, End):
            kinds.append(type(node))
            node = await run.next(node)
        assert kinds == [UserPromptNode, *[ModelRequestNode, CallToolsNode] * 2]
        assert node.data.output == run.result.output == "Rain. "


async def test_a_node_is_run_once_and_in_its_turn() -> None:
    async with forecaster(ASKS, "Rain.").iter("And on Tuesday?") as run:
        first = run.next_node
        assert not isinstance(first, End)
        second = await run.next(first)
        with pytest.raises(RuntimeError, match="next_node"):
            await run.next(first)
        # The iteration goes on where the program left the run.
        kinds = []
        async for node in run:
            kinds.append(type(node))
            if isinstance(node, CallToolsNode) and len(kinds) == 2:
                await run.next(node)
        assert (type(second), kinds) == (ModelRequestNode, [*[ModelRequestNode, CallToolsNode] * 2, End])


async def test_a_node_yields_events_and_then_the_answer_as_text() -> None:
    deltas, texts = [], []
    async with forecaster(ASKS, "Rain on Tuesday.").iter("And on Tuesday?") as run:
        async for node in run:
            if not Agent.is_model_request_node(node):
                continue
            async with node.stream(run.ctx) as stream:
                async for event in stream:
                    if isinstance(event, FinalResultEvent):
                        break
                    if isinstance(event, PartDeltaEvent):
                        deltas.append(event.delta)
                else:
                    continue
                texts += [text async for text in stream.stream_text()]
    assert not any(isinstance(delta, TextPartDelta) for delta in deltas)
    assert len(deltas) > 1  # of the call
    assert texts == ["Rain ", "Rain on ", "Rain on Tuesday. "]


class Client(BaseModel):
    id: int
    name: str


async def test_a_node_yields_the_output_as_it_grows_and_the_run_checks_it() -> None:
    model, _ = plays([ToolCallPart("final_result", {"response": ["none yet", {"id": 1, "name": "Jane"}]})])
    partial: list[bool] = []
    outputs = []
    agent = Agent(model, output_type=list[str | Client])

    @agent.output_validator
    def check(ctx: RunContext[None], output: list[str | Client]) -> list[str | Client]:
        partial.append(ctx.partial_output)
        return output

    async with agent.iter("Find Jane") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    outputs = [output async for output in stream.stream_output()]
    assert outputs[-1] == run.result.output == ["none yet", Client(id=1, name="Jane")]
    assert ["none yet"] in outputs  # the client is not complete yet
    assert partial == [True] * (len(partial) - 1) + [False]


@pytest.mark.parametrize("how", ["stream", "node", "run"])
async def test_a_cancelled_run_has_its_messages_and_no_end(how: str) -> None:
    agent = Agent(plays("Once upon a time there was a cat.", "Again.")[0])
    messages: list[ModelMessage] = []
    if how == "stream":
        async with agent.run_stream("Tell me") as result:
            async for _ in result.stream_text(delta=True):
                break
            states = [result.cancelled]
            await result.cancel()
            assert [*states, result.cancelled] == [False, True]
            assert [text async for text in result.stream_output()] == []
            messages = result.all_messages()
            assert result.response == messages[-1]
    else:
        async with agent.iter("Tell me") as run:
            async for node in run:
                assert not isinstance(node, End)
                if Agent.is_model_request_node(node):
                    async with node.stream() as stream:
                        async for event in stream:
                            if isinstance(event, PartDeltaEvent):
                                if how == "node":
                                    await stream.cancel()
                                else:
                                    run.cancel()
                                break
            with pytest.raises(RuntimeError, match="cancelled"):
                await run.next(run.next_node)  # type: ignore[arg-type]
            messages = run.all_messages()
    [text] = messages[-1].parts
    assert isinstance(text, TextPart)
    assert (text.content, text.complete) == ("Once ", False)
    assert (await agent.run("Go on", message_history=messages)).output == "Again. "


# --- settings and limits -------------------------------------------------------------------------------------------


async def test_functions_return_settings_for_each_request() -> None:
    model, reads = plays(ASKS, "Rain.")
    model.settings = ModelSettings(max_tokens=500, temperature=0.9)
    before: list[ModelSettings | None] = []

    def cold_at_first(ctx: RunContext[str]) -> ModelSettings:
        before.append(ctx.model_settings)
        return ModelSettings(temperature=0.0 if ctx.run_step == 1 else 0.7)

    async def of_deps(ctx: RunContext[str]) -> ModelSettings:
        before.append(ctx.model_settings)
        return ModelSettings(user=ctx.deps)

    agent = Agent(model, model_settings=cold_at_first)

    @agent.tool_plain
    def forecast(place: str, day: date) -> str:
        return "rain"

    await agent.run("And on Tuesday?", deps="Ada", model_settings=of_deps)
    assert [info.model_settings for _, info in reads] == [
        {"max_tokens": 500, "temperature": temperature, "user": "Ada"} for temperature in (0.0, 0.7)
    ]
    own = {"max_tokens": 500, "temperature": 0.9}
    assert before == [own, own | {"temperature": 0.0}, own, own | {"temperature": 0.7}]


async def test_settings_of_functions_are_checked_and_warned_about() -> None:
    class Strict(TestModel):
        def warnings(self, call: Any) -> list[str]:
            return [f"{name}: no" for name in call.settings]

    agent = Agent(Strict(), model_settings=lambda ctx: ModelSettings(seed=1))
    agent.tool_plain(lambda_free)
    with pytest.warns(UserWarning, match="seed: no"):
        result = await agent.run("?")
    assert result.warnings == ["seed: no"]  # once, although there were two requests
    wrong: Any = {"temperature": "hot"}
    with pytest.raises(RequestError, match="temperature"):
        await Agent(TestModel(), model_settings=lambda ctx: wrong).run("?")


def lambda_free() -> str:
    return "free"


async def test_the_input_of_each_request_is_limited() -> None:
    async def write(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        parts: list[Any] = [ToolCallPart("lambda_free")] if len(messages) == 1 else [TextPart("Done.")]
        return ModelResponse(parts, RequestUsage(input_tokens=60 * len(messages)))

    agent = Agent(FunctionModel(write), tools=[lambda_free])
    await agent.run("?", usage_limits=UsageLimits(per_request_input_tokens_limit=180))  # 60, then 180
    with pytest.raises(UsageLimitExceeded, match="per_request_input_tokens_limit of 179"):
        await agent.run("?", usage_limits=UsageLimits(per_request_input_tokens_limit=179))


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True], ids=["alone", "with another call"])
async def test_the_cause_of_too_many_retries_is_the_last_one(together: bool) -> None:
    calls = [ToolCallPart("volume", {"size": 6}), *([ToolCallPart("lambda_free")] if together else [])]
    agent = Agent(plays(calls, calls)[0], tools=[lambda_free])

    @agent.tool_plain
    def volume(size: int) -> int:
        raise ModelRetry(f"{size} is not an edge.")

    with pytest.raises(UnexpectedModelBehavior, match="volume") as caught:
        await agent.run("Of a box with edges of 6?")
    cause = caught.value.__cause__
    assert isinstance(cause, ModelRetry)
    assert cause.message == "6 is not an edge."


async def test_arguments_that_never_fit_are_the_cause() -> None:
    call = [ToolCallPart("forecast", {"place": "Bergen", "day": "Tuesday"})]
    with pytest.raises(UnexpectedModelBehavior, match="forecast") as caught:
        await forecaster(call, call).run("And on Tuesday?")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("sequential", [True, False])
async def test_what_returned_before_another_function_raised_is_in_the_messages(sequential: bool) -> None:
    agent = Agent(plays([ToolCallPart("volume", {"size": 6}, "v"), ToolCallPart("mass", {}, "m")], "216.")[0])
    returned = asyncio.Event()

    @agent.tool_plain(sequential=sequential)
    async def volume(size: int) -> int:
        returned.set()
        return size**3

    @agent.tool_plain(sequential=sequential)
    async def mass() -> int:
        await returned.wait()
        await asyncio.sleep(0)
        raise RuntimeError("the density is not known")

    with capture_run_messages() as messages, pytest.raises(RuntimeError, match="density"):
        await agent.run("Volume and mass?")
    returns = {part.tool_call_id: part for part in messages[-1].parts if isinstance(part, ToolReturnPart)}
    assert (returns["v"].content, returns["v"].outcome) == (216, "success")
    assert returns["m"].outcome == "failed"
    assert (await agent.run("And now?", message_history=messages)).output == "216. "


async def test_what_returned_before_the_run_was_cancelled_is_in_the_messages() -> None:
    agent = Agent(plays([ToolCallPart("volume", {"size": 6}, "v"), ToolCallPart("mass", {}, "m")], "216.")[0])
    is_waiting = asyncio.Event()

    @agent.tool_plain(sequential=True)
    def volume(size: int) -> int:
        return size**3

    @agent.tool_plain(sequential=True)
    async def mass() -> int:
        is_waiting.set()
        return await asyncio.Future()

    with capture_run_messages() as messages:
        task = asyncio.create_task(agent.run("Volume and mass?"))
        await is_waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    outcomes = [(part.tool_call_id, part.outcome) for part in messages[-1].parts if isinstance(part, ToolReturnPart)]
    assert outcomes == [("v", "success"), ("m", "failed")]
    assert (await agent.run("And now?", message_history=messages)).output == "216. "


# --- messages ------------------------------------------------------------------------------------------------------


async def test_the_result_of_the_output_s_call_can_be_replaced() -> None:
    model, _ = plays([ToolCallPart("done", {"response": "yes"}, "1"), ToolCallPart("lambda_free", {}, "2")], "Sent.")
    agent: Agent[None, str] = Agent(model, output_type=ToolOutput(str, name="done"), tools=[lambda_free])
    result = await agent.run("Send it?")
    replaced = result.all_messages(output_tool_return_content="The mail was sent.")
    contents = [part.content for part in replaced[-1].parts if isinstance(part, ToolReturnPart)]
    assert contents == ["The mail was sent.", "free"]
    assert replaced == result.new_messages(output_tool_return_content="The mail was sent.")
    assert result.all_messages() != replaced
    json = result.new_messages_json(output_tool_return_content="The mail was sent.")
    assert ModelMessagesTypeAdapter.validate_json(json) == replaced
    text = await Agent(model).run("?", message_history=replaced)
    with pytest.raises(ValueError, match="output tool"):
        text.all_messages(output_tool_return_content="x")


async def test_results_that_came_later_stand_behind_their_calls_in_every_later_run() -> None:
    calls = [ToolCallPart("delete", {}, "d"), ToolCallPart("lambda_free", {}, "f")]
    model, reads = plays(calls, "Deleted.", "Yes.")
    agent = Agent(model, output_type=[str, DeferredToolRequests], tools=[lambda_free])

    @agent.tool_plain(requires_approval=True)
    def delete() -> str:
        return "deleted"

    first = await agent.run("Delete it.")
    approvals = DeferredToolResults()
    approvals.approvals["d"] = True
    second = await agent.run("And tell me.", message_history=first.all_messages(), deferred_tool_results=approvals)
    await agent.run("Sure?", message_history=second.all_messages())
    results = ["tool-return", "tool-return", "user-prompt"]
    assert parts_of(reads[1][0]) == [["user-prompt"], ["tool-call"] * 2, results]
    assert parts_of(reads[2][0]) == [["user-prompt"], ["tool-call"] * 2, results, ["text"], ["user-prompt"]]
