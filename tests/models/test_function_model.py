"""Models whose turns a function or a `TestModel` writes: events, pieces, errors, cancellation; refused requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pellucid import models
from pellucid.errors import ErrorInfo, ModelError, RequestError
from pellucid.events import ErrorEvent, ModelEvent, PartStartEvent, ResponseEndEvent
from pellucid.fold import fold
from pellucid.models import ChatModel, StreamReader
from pellucid.models.function import (
    AgentInfo,
    DeltaThinkingPart,
    DeltaToolCall,
    FunctionModel,
    StreamItem,
)
from pellucid.models.local import LocalModel
from pellucid.models.openai import OpenAIChatModel
from pellucid.models.test import TestModel
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    UserPromptPart,
)
from pellucid.settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from tests.scripted_runs import reads_of
from tests.waiting import loop_turns

pytestmark = pytest.mark.anyio

PROMPT = ModelRequest([UserPromptPart("Why?")])
CALL = ModelCall("m", [PROMPT])


async def events_of(model: ChatModel, call: ModelCall = CALL) -> list[ModelEvent]:
    return [event for read in await reads_of(await model.open(call)) for event in read]


async def response_of(model: ChatModel, call: ModelCall = CALL) -> ModelResponse:
    response = fold(await events_of(model, call)).response
    assert response is not None
    return response


def returning(*parts: ModelResponsePart, **fields: Any) -> FunctionModel:
    return FunctionModel(lambda messages, info: ModelResponse([*parts], **fields))


def yielding(*items: StreamItem | BaseException) -> FunctionModel:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        for item in items:
            if isinstance(item, BaseException):
                raise item
            yield item

    return FunctionModel(stream_function=stream)


# --- whole responses ---------------------------------------------------------------------------------------------


PARTS: list[ModelResponsePart] = [
    ThinkingPart("First this.", signature="c2ln", provider_name="function"),
    ThinkingPart("", form="redacted", signature="YmxvYg==", provider_name="function"),
    TextPart("Well then.  "),
    BuiltinToolCallPart("search", '{"q":"x"}', "b1", provider_name="function"),
    BuiltinToolReturnPart("search", ["found"], "b1"),
    FilePart("aGk=", "image/png"),
    ToolCallPart("f", {"a": 1}, "c1"),
    ToolCallPart("g", '{"b": 2}', "c2"),
]


async def test_a_response_comes_as_it_was_returned() -> None:
    response = await response_of(returning(*PARTS))
    assert response.parts == PARTS
    assert response.finish_reason == "tool_call"
    assert response.origin is not None
    assert response.origin.provider == "function"
    assert (await response_of(returning(RefusalPart("No.")))).parts == [RefusalPart("No.")]


async def test_a_response_arrives_in_words() -> None:
    stream = await returning(ThinkingPart("one two"), TextPart("three four")).open(CALL)
    assert len([read for read in await reads_of(stream) if read]) >= 4


async def test_the_usage_is_the_function_s_or_an_estimate() -> None:
    usage = Usage(input_tokens=3, output_tokens=4)
    assert (await response_of(returning(TextPart("Yes."), usage=usage))).usage == usage
    estimate = (await response_of(returning(ThinkingPart("x" * 40), TextPart("y" * 40)))).usage
    assert (estimate.input_tokens, estimate.output_tokens, estimate.output_reasoning_tokens) == (1, 20, 10)


async def test_a_function_gets_the_messages_the_tools_and_the_settings() -> None:
    seen: list[tuple[list[ModelMessage], AgentInfo]] = []

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((messages, info))
        return ModelResponse([TextPart("Yes.")])

    tools = (ToolDefinition("f", {"type": "object"}), ToolDefinition("final_result", kind="output"))
    request = ModelRequest([UserPromptPart("Why?")], instructions="Be brief.")
    call = ModelCall("m", [request], {"top_k": 2}, tools, ToolChoice("required", is_preference=True))
    await response_of(FunctionModel(answer, settings={"top_k": 1, "seed": 7}), call)
    [(messages, info)] = seen
    assert messages == [request]
    assert [tool.name for tool in info.function_tools] == ["f"]
    assert info.function_tools[0].parameters_json_schema == {"type": "object"}
    assert [tool.name for tool in info.output_tools] == ["final_result"]
    assert (info.allow_text_output, info.instructions) == (False, "Be brief.")
    assert info.model_settings == {"top_k": 2, "seed": 7}
    assert info.model_request_parameters.output_tools == info.output_tools


async def test_a_function_that_blocks_does_not_block_the_loop() -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        asyncio.run_coroutine_threadsafe(ready.wait(), loop).result()
        return ModelResponse([TextPart("Yes.")])

    opening = asyncio.create_task(response_of(FunctionModel(answer)))
    await loop_turns()
    ready.set()
    assert (await opening).text == "Yes."


# --- streams -----------------------------------------------------------------------------------------------------


async def test_text_calls_and_thoughts_are_streamed_in_any_order() -> None:
    response = await response_of(
        yielding(
            {0: DeltaThinkingPart(content="I ")},
            {0: DeltaThinkingPart(content="look.", signature="c2ln")},
            "One moment. ",
            {1: DeltaThinkingPart(content="Again.")},
            {0: DeltaToolCall("f", '{"a":', tool_call_id="c1"), 1: DeltaToolCall("g")},
            {0: DeltaToolCall(json_args="1}")},
            {1: DeltaToolCall(json_args="{}", tool_call_id="c2")},
        )
    )
    assert [(type(part), getattr(part, "content", None)) for part in response.parts] == [
        (ThinkingPart, "I look."),
        (TextPart, "One moment. "),
        (ThinkingPart, "Again."),
        (ToolCallPart, None),
        (ToolCallPart, None),
    ]
    assert [(call.tool_name, call.args) for call in response.tool_calls] == [("f", '{"a":1}'), ("g", "{}")]
    assert response.parts[0] == ThinkingPart("I look.", signature="c2ln", provider_name="function")
    assert response.finish_reason == "tool_call"


async def test_builtin_tools_are_streamed() -> None:
    call, result = BuiltinToolCallPart("search", "{}", "b1"), BuiltinToolReturnPart("search", "found", "b1")
    response = await response_of(yielding({0: call}, {1: result}, "So."))
    assert [type(part) for part in response.parts] == [BuiltinToolCallPart, BuiltinToolReturnPart, TextPart]


async def test_a_stream_is_not_ahead_of_its_reader() -> None:
    made: list[int] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        for number in range(5):
            made.append(number)
            yield f"{number} "

    reader = StreamReader(await FunctionModel(stream_function=stream).open(CALL))
    await loop_turns()
    assert made == [0]
    await reader.read()
    await loop_turns()
    assert made == [0]
    while await reader.read():
        pass
    assert made == [0, 1, 2, 3, 4]


async def test_a_function_that_never_waits_does_not_stop_the_loop() -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        while True:
            yield "and "

    opened = await FunctionModel(stream_function=stream).open(CALL)
    reads: list[Any] = []
    opened.start(reads.append)
    await loop_turns()
    opened.cancel()
    assert reads


async def test_a_stream_that_is_cancelled_closes_its_function() -> None:
    closed: list[bool] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        try:
            yield {0: DeltaThinkingPart(content="Let me")}
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    opened = await FunctionModel(stream_function=stream).open(CALL)
    reads: list[Any] = []
    opened.start(reads.append)
    await loop_turns()
    rest = opened.cancel()
    [part] = fold([*reads[0], *rest]).messages[0].parts
    assert part == ThinkingPart("Let me", provider_name="function", complete=False)
    await loop_turns()
    assert closed == [True]
    assert opened.cancel() == []


@pytest.mark.parametrize("error", [ModelError(ErrorInfo("unavailable", "down")), KeyError("oops")])
async def test_an_exception_before_the_first_piece_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        await yielding(error).open(CALL)

    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise error

    with pytest.raises(type(error)):
        await FunctionModel(fail).open(CALL)


async def test_an_error_after_the_first_piece_is_an_event_and_another_exception_a_fault() -> None:
    events = await events_of(yielding("Well", ModelError(ErrorInfo("unavailable", "down"))))
    assert isinstance(events[-2], ErrorEvent)
    assert isinstance(events[-1], ResponseEndEvent)
    assert fold(events).messages[0].parts == [TextPart("Well", complete=False)]
    with pytest.raises(KeyError, match="oops"):
        await events_of(yielding("Well", KeyError("oops")))
    with pytest.raises(RuntimeError, match="was cancelled"):
        await events_of(yielding("Well", asyncio.CancelledError()))


async def test_what_a_function_may_not_return_is_named() -> None:
    with pytest.raises(TypeError, match=r"must return a ModelResponse, not a str"):
        await FunctionModel(lambda messages, info: "Yes.").open(CALL)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="call 0 has no name"):
        await yielding({0: DeltaToolCall(json_args="{}")}).open(CALL)
    with pytest.raises(TypeError, match="yielded a int"):
        await yielding(3).open(CALL)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="which is no piece"):
        await yielding({0: "text"}).open(CALL)  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="needs a function"):
        FunctionModel()


# --- TestModel ---------------------------------------------------------------------------------------------------


WEATHER = ToolDefinition(
    "weather", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
)


async def test_it_calls_every_tool_and_answers_with_the_results() -> None:
    model = TestModel()
    first = await response_of(model, ModelCall("m", [PROMPT], tools=(WEATHER, ToolDefinition("now"))))
    assert [(call.tool_name, call.args_as_dict()) for call in first.tool_calls] == [
        ("weather", {"city": "a"}),
        ("now", {}),
    ]
    results = ModelRequest([ToolReturnPart("weather", "rain", "c1"), ToolReturnPart("now", 12, "c2")])
    second = await response_of(model, ModelCall("m", [PROMPT, first, results], tools=(WEATHER,)))
    assert second.text == '{"weather":"rain","now":12}'
    assert model.last_model_request_parameters is not None
    assert model.last_model_request_parameters.function_tools == [WEATHER]
    assert (await response_of(model)).text == "success (no tool calls)"


async def test_it_thinks_if_thinking_is_on_or_it_has_a_thought() -> None:
    assert (await response_of(TestModel())).thinking is None
    assert (await response_of(TestModel(settings={"thinking": False}))).thinking is None
    events = await events_of(TestModel(), ModelCall("m", [PROMPT], {"thinking": "high"}))
    assert isinstance(next(e for e in events if isinstance(e, PartStartEvent)).part, ThinkingPart)
    response = await response_of(
        TestModel(custom_thinking_text="Hm, well."), ModelCall("m", [PROMPT], tools=(WEATHER,))
    )
    assert [type(part) for part in response.parts] == [ThinkingPart, ToolCallPart]
    assert response.thinking == "Hm, well."


async def test_it_answers_in_text_of_the_wanted_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
    call = ModelCall("m", [PROMPT], output=OutputFormat("json_schema", "N", schema))
    assert (await response_of(TestModel(), call)).text == '{"n":3}'
    assert (await response_of(TestModel(custom_output_args={"n": 9}), call)).text == '{"n":9}'


async def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(RequestError, match="there is no tool 'whether'; there are: weather"):
        await TestModel(call_tools=["whether"]).open(ModelCall("m", [PROMPT], tools=(WEATHER,)))
    required = ModelCall(
        "m", [PROMPT], tools=(ToolDefinition("done", kind="output"),), tool_choice=ToolChoice("required")
    )
    with pytest.raises(RequestError, match="by a call of done"):
        await TestModel(custom_output_text="Yes.").open(required)
    with pytest.raises(RequestError, match="use custom_output_text"):
        await TestModel(custom_output_args=3).open(CALL)


# --- refused requests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [OpenAIChatModel("gpt-5", api_key="k", base_url="http://127.0.0.1:9"), LocalModel()])
async def test_requests_to_real_models_can_be_refused(monkeypatch: pytest.MonkeyPatch, model: ChatModel) -> None:
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)
    with pytest.raises(RuntimeError, match="ALLOW_MODEL_REQUESTS is False"):
        await model.open(CALL)
    assert (await response_of(TestModel())).text
    assert (await response_of(returning(TextPart("Yes.")))).text
    with models.override_allow_model_requests(True):
        models.check_allow_model_requests()
    with pytest.raises(RuntimeError):
        models.check_allow_model_requests()
