"""Testing agents without a model: `override`, `capture_run_messages`, `TestModel` behind a run and behind servers.

The first tests are those of Pydantic AI's guide to testing, unchanged except for the package's name and the models'.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pellucid import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelRetry,
    NativeOutput,
    PartDeltaEvent,
    PromptedOutput,
    RunContext,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UnexpectedModelBehavior,
    UserPromptPart,
    capture_run_messages,
    models,
)
from pellucid.agent import RunInput
from pellucid.events import Event
from pellucid.fold import fold
from pellucid.models import ChatModel
from pellucid.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel, StreamItem
from pellucid.models.test import TestModel
from tests.agent.agui_app_kit import serving
from tests.scripted.gateway import serve

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)


# --- the guide ---------------------------------------------------------------------------------------------------


class WeatherService:
    def get_historic_weather(self, location: str, forecast_date: date) -> str:
        return "Sunny with a chance of rain"

    def get_forecast(self, location: str, forecast_date: date) -> str:
        return "Rainy with a chance of sun"


weather_agent = Agent(
    "openai:gpt-5",
    deps_type=WeatherService,
    system_prompt="Providing a weather forecast at the locations the user provides.",
)


@weather_agent.tool
def weather_forecast(ctx: RunContext[WeatherService], location: str, forecast_date: date) -> str:
    if forecast_date < date(2026, 1, 1):
        return ctx.deps.get_historic_weather(location, forecast_date)
    return ctx.deps.get_forecast(location, forecast_date)


async def forecast(prompt: str) -> str:
    return (await weather_agent.run(prompt, deps=WeatherService())).output


async def test_the_guide_s_test_with_a_test_model() -> None:
    with capture_run_messages() as messages, weather_agent.override(model=TestModel()):
        output = await forecast("What will the weather be like in London on 2024-11-28?")
    assert output == '{"weather_forecast":"Sunny with a chance of rain"}'
    request, call, result, answer = messages
    assert [part.part_kind for part in request.parts] == ["system-prompt", "user-prompt"]
    [part] = call.parts
    assert isinstance(part, ToolCallPart)
    assert (part.tool_name, part.args_as_dict()) == (
        "weather_forecast",
        {"location": "a", "forecast_date": "2024-01-01"},
    )
    assert [part.content for part in result.parts if isinstance(part, ToolReturnPart)] == [
        "Sunny with a chance of rain"
    ]
    assert isinstance(answer, ModelResponse)
    assert (answer.text, answer.model_name) == (output, "test")


def call_weather_forecast(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) == 1:
        user_prompt = messages[0].parts[-1]
        assert isinstance(user_prompt, UserPromptPart)
        m = re.search(r"\d{4}-\d{2}-\d{2}", str(user_prompt.content))
        assert m is not None
        args = {"location": "London", "forecast_date": m.group()}
        return ModelResponse(parts=[ToolCallPart("weather_forecast", args)])
    msg = messages[-1].parts[0]
    assert isinstance(msg, ToolReturnPart)
    return ModelResponse(parts=[TextPart(f"The forecast is: {msg.content}")])


async def test_the_guide_s_test_with_a_function_model() -> None:
    with weather_agent.override(model=FunctionModel(call_weather_forecast)):
        output = await forecast("What will the weather be like in London on 2032-01-01?")
    assert output == "The forecast is: Rainy with a chance of sun"


@pytest.fixture
def override_weather_agent() -> Iterator[None]:
    with weather_agent.override(model=TestModel()):
        yield


def test_the_guide_s_fixture(override_weather_agent: None) -> None:
    assert "Sunny" in asyncio.run(forecast("What will the weather be like?"))


def test_the_guide_s_example_of_captured_messages() -> None:
    agent = Agent("test")
    with capture_run_messages() as messages:
        result = agent.run_sync("foobar")
    assert messages == result.all_messages()


async def test_a_run_without_an_override_makes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with capture_run_messages() as messages, pytest.raises(RuntimeError, match="ALLOW_MODEL_REQUESTS is False"):
        await forecast("Why?")
    assert len(messages) == 1


# --- override ----------------------------------------------------------------------------------------------------


def seen(ctx: RunContext[Any]) -> Any:
    """Return the dependencies."""
    return ctx.deps


async def test_overrides_take_precedence_until_their_block_ends() -> None:
    agent = Agent(TestModel(custom_output_text="outside"), tools=[seen], instructions="Be brief.")
    inside = TestModel()
    with agent.override(model=inside, deps="mine", instructions=["Be kind.", lambda: "Be calm."]):
        result = await agent.run("Why?", model=TestModel(custom_output_text="run"), deps="yours", instructions="Rush.")
    assert result.output == '{"seen":"mine"}'
    assert (await agent.run("Why?")).output == "outside"
    assert agent.tool_names == ("seen",)
    seen_instructions: list[str | None] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen_instructions.append(info.instructions)
        return ModelResponse([TextPart("Yes.")])

    with agent.override(model=FunctionModel(answer), instructions=["Be kind.", lambda: "Be calm."]):
        await agent.run("Why?", instructions="Rush.")
    with agent.override(model=FunctionModel(answer)):
        await agent.run("Why?", instructions="Rush.")
    assert seen_instructions == ["Be kind.\n\nBe calm.", "Be brief.\n\nRush."]


async def test_overrides_nest_and_the_inner_one_wins() -> None:
    agent, other = Agent("test"), Agent("test")
    with agent.override(model=TestModel(custom_output_text="outer"), tools=[seen]):
        with agent.override(model=TestModel()), other.override(deps="other"):
            assert (await agent.run("Why?", deps="d")).output == '{"seen":"d"}'
            assert (await other.run("Why?")).output == "success (no tool calls)"
        assert (await agent.run("Why?", deps="d")).output == "outer"
        assert list(agent.tool_names) == ["seen"]
    assert not agent.tool_names
    with pytest.raises(TypeError, match="no argument 'modle'; did you mean 'model'"):
        agent.override(modle="test").__enter__()  # type: ignore[call-arg]


async def test_overrides_of_two_tasks_are_separate() -> None:
    agent = Agent()
    both = asyncio.Barrier(2)

    async def run(text: str) -> str:
        with agent.override(model=TestModel(custom_output_text=text)):
            await both.wait()
            output = (await agent.run("Why?")).output
            await both.wait()
        return output

    assert [*await asyncio.gather(run("one"), run("two"))] == ["one", "two"]


# --- captured messages -------------------------------------------------------------------------------------------


async def test_messages_are_captured_after_a_foreign_exception_and_can_be_sent_again() -> None:
    def broken() -> None:
        raise KeyError("oops")

    agent = Agent("test", tools=[broken])
    with capture_run_messages() as messages, pytest.raises(KeyError):
        await agent.run("Why?")
    assert [type(message) for message in messages] == [ModelRequest, ModelResponse, ModelRequest]
    [result] = messages[-1].parts
    assert isinstance(result, ToolReturnPart)
    assert result.outcome == "failed"
    assert "broken" in (await agent.run(message_history=messages)).output


async def test_the_first_run_of_the_innermost_block_is_captured() -> None:
    inner_messages: list[ModelMessage] = []

    async def ask() -> str:
        with capture_run_messages() as captured:
            output = (await Agent("test").run("inner")).output
        inner_messages.extend(captured)
        return output

    agent = Agent("test", tools=[ask])
    with capture_run_messages() as messages:
        await agent.run("outer")
        await agent.run("second")
    assert [part.content for part in messages[0].parts if isinstance(part, UserPromptPart)] == ["outer"]
    assert [part.content for part in inner_messages[0].parts if isinstance(part, UserPromptPart)] == ["inner"]
    with capture_run_messages() as messages:
        pass
    await agent.run("outside")
    assert messages == []


# --- TestModel in a run ------------------------------------------------------------------------------------------


class Verdict(BaseModel):
    guilty: bool
    years: int


@dataclass
class Answer:
    response: int


async def test_it_answers_with_values_of_every_kind_of_output() -> None:
    model = TestModel()
    assert (await Agent(model, output_type=Verdict).run("Why?")).output == Verdict(guilty=False, years=0)
    assert model.last_model_request_parameters is not None
    assert [tool.name for tool in model.last_model_request_parameters.output_tools] == ["final_result"]
    assert (await Agent(model, output_type=NativeOutput(Verdict)).run("Why?")).output == Verdict(guilty=False, years=0)
    assert (await Agent(model, output_type=int).run("Why?")).output == 0
    assert (await Agent(model, output_type=[str, Verdict]).run("Why?")).output == "success (no tool calls)"
    verdict = Verdict(guilty=True, years=3)
    with_value = TestModel(custom_output_args=verdict)
    output_types: list[Any] = [Verdict, NativeOutput(Verdict), PromptedOutput(Verdict), [str, Verdict]]
    for output_type in output_types:
        agent: Agent[Any, Any] = Agent(with_value, output_type=output_type)
        assert (await agent.run("Why?")).output == verdict
    assert (await Agent(TestModel(custom_output_args=42), output_type=int).run("Why?")).output == 42
    assert (await Agent(TestModel(custom_output_args=[1, 2]), output_type=list[int]).run("Why?")).output == [1, 2]
    assert (
        await Agent(TestModel(custom_output_args={"response": 5}), output_type=Answer).run("Why?")
    ).output == Answer(5)
    second = TestModel(seed=1)
    assert isinstance((await Agent(second, output_type=[Answer, Verdict]).run("Why?")).output, Verdict)


async def test_it_repeats_calls_that_want_a_retry() -> None:
    tries: list[int] = []

    def flaky(ctx: RunContext[None], n: int) -> str:
        tries.append(ctx.retry)
        if not ctx.retry:
            raise ModelRetry("again")
        return "done"

    agent = Agent("test", tools=[flaky, seen])
    assert json.loads((await agent.run("Why?")).output) == {"seen": None, "flaky": "done"}
    assert tries == [0, 1]
    output = Agent("test", output_type=Verdict)

    @output.output_validator
    def refuse(value: Verdict) -> Verdict:
        raise ModelRetry("no")

    with pytest.raises(UnexpectedModelBehavior, match="1 times"):
        await output.run("Why?")


async def test_it_defers_calls_and_continues() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        return f"deleted {path}"

    first = await agent.run("Delete.")
    requests: Any = first.output
    assert isinstance(requests, DeferredToolRequests)
    approvals = DeferredToolResults(approvals={call.tool_call_id: True for call in requests.approvals})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=approvals)
    assert second.output == '{"delete":"deleted a"}'


async def test_the_id_of_a_call_is_known_before_and_unique_in_a_conversation() -> None:
    agent = Agent(TestModel())

    @agent.tool_plain(requires_approval=True)
    def delete(path: str) -> str:
        raise ModelRetry("not this one")

    first = await agent.run("Delete.")
    approvals = DeferredToolResults(approvals={"pyd_ai_tool_call_id__delete": True})
    second = await agent.run(message_history=first.all_messages(), deferred_tool_results=approvals)
    assert isinstance(second.output, DeferredToolRequests)
    ids = [call.tool_call_id for run in (first, second) for call in run.response.tool_calls]
    assert ids[0] == "pyd_ai_tool_call_id__delete"
    assert len(set(ids)) == 2


async def reasoning(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
    yield {0: DeltaThinkingPart(content="Let me ")}
    yield {0: DeltaThinkingPart(content="see.", signature="c2ln")}
    if len(messages) == 1 and info.function_tools:
        yield {0: DeltaToolCall(info.function_tools[0].name, "{}")}
    else:
        yield "It "
        yield "is so."


async def test_reasoning_is_streamed_in_a_run() -> None:
    agent = Agent(FunctionModel(stream_function=reasoning), tools=[seen])
    thoughts: list[str | None] = []

    async def handler(event: Any) -> None:
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta):
            thoughts.append(event.delta.content_delta)

    async with agent.run_stream("Why?", event_stream_handler=handler) as stream:
        assert [text async for text in stream.stream_text()] == ["It ", "It is so."]
        assert stream.result.thinking == "Let me see.\n\nLet me see."
        thinking = [p for m in stream.all_messages() for p in m.parts if isinstance(p, ThinkingPart)]
        assert [part.signature for part in thinking] == ["c2ln", "c2ln"]
    assert [thought for thought in thoughts if thought] == ["Let me ", "see."] * 2


# --- behind servers ----------------------------------------------------------------------------------------------


def test_an_application_of_an_agent_can_be_tested() -> None:
    with serving(Agent(TestModel(custom_thinking_text="Hm, well."), tools=[seen])) as app:
        events = app.events()
    kinds = [event["type"] for event in events]
    assert kinds.count("REASONING_MESSAGE_START") == 2
    assert kinds.index("TOOL_CALL_RESULT") < kinds.index("TEXT_MESSAGE_START")
    assert kinds[-1] == "RUN_FINISHED"


async def test_an_override_holds_for_runs_that_are_served() -> None:
    agent = Agent("anthropic:claude-sonnet-4-5", tools=[seen])
    with agent.override(model=TestModel(), deps="mine"):
        run = await agent.start(RunInput(messages=[ModelRequest([UserPromptPart("Why?")])], deps="yours"))
    await run.open()
    events: list[Event] = []
    await run.deliver(lambda batch: events.extend(batch.events))
    response = fold(events).response
    assert response is not None
    assert response.text == '{"seen":"mine"}'


def test_a_gateway_can_serve_models_without_a_provider() -> None:
    served: list[ChatModel] = [
        TestModel(custom_thinking_text="Hm."),
        FunctionModel(stream_function=reasoning, model_name="f"),
    ]
    with serve({}, more=served) as gateway:
        for name, thought, text in (("test", "Hm.", "success (no tool calls)"), ("f", "Let me see.", "It is so.")):
            body = {"model": name, "messages": [{"role": "user", "content": "Why?"}]}
            reply = gateway.request("POST", "/v1/chat/completions", json.dumps(body).encode())
            message = reply.json["choices"][0]["message"]
            assert (message["reasoning_content"], message["content"]) == (thought, text)


def test_the_examples_of_the_documentation_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    section = page.partition("\n## Testing\n")[2].partition("\n## ")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(block, "docs/agents.md", "exec"), names)
    names["test_the_answer_has_the_temperature"]()
    result = Agent(names["model"], tools=[names["temperature"]]).run_sync("How warm is it in Lyon?")
    assert (result.output, result.thinking) == ("It is warm.", "I must look.\n\nI must look.")
