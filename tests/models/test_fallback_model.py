"""`FallbackModel`: which model answers, and for which errors of the first one the others are tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from pellucid import Agent
from pellucid.errors import ConfigError, ErrorInfo, ErrorKind, ModelError, RequestError
from pellucid.models.fallback import FallbackModel, FallbackOn
from pellucid.models.function import AgentInfo, DeltaThinkingPart, FunctionModel, StreamItem
from pellucid.models.test import TestModel
from pellucid.parts import ModelMessage, ModelResponse, TextPart

pytestmark = pytest.mark.anyio


def failing(kind: ErrorKind = "unavailable", code: str | None = None) -> FunctionModel:
    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ModelError(ErrorInfo(kind, f"{kind}: no", code=code))

    return FunctionModel(fail, model_name=f"failing-{kind}")


def answering(text: str = "Yes.") -> FunctionModel:
    return FunctionModel(lambda messages, info: ModelResponse([TextPart(text)]), model_name="answering")


async def answer_of(*models: Any, fallback_on: FallbackOn | None = None) -> str:
    return (await Agent(FallbackModel(*models, fallback_on=fallback_on)).run("Why?")).output


async def test_the_first_model_that_answers() -> None:
    assert await answer_of(answering("One."), answering("Two.")) == "One."
    assert await answer_of(failing(), failing("timeout"), answering("Three.")) == "Three."
    assert await answer_of(failing("too_large", "context_length_exceeded"), answering()) == "Yes."
    assert await answer_of(failing("invalid_request", "content_filter"), answering()) == "Yes."
    assert await answer_of("test", failing()) == "success (no tool calls)"


async def test_the_result_names_the_model_that_answered() -> None:
    model = FallbackModel(failing(), answering())
    result = await Agent(model).run("Why?")
    assert result.response.origin is not None
    assert result.response.origin.model == "answering"
    assert (model.name, len(model.models)) == ("fallback:failing-unavailable,answering", 2)


async def test_without_an_answer_the_first_error_is_raised() -> None:
    with pytest.raises(ModelError, match="unavailable: no"):
        await answer_of(failing(), failing("timeout"))
    with pytest.raises(ModelError, match="invalid_request: no"):
        await answer_of(failing("invalid_request"), answering())
    with pytest.raises(RequestError, match="there is no tool"):
        await answer_of(TestModel(call_tools=["x"]), answering())


async def test_fallback_on_decides_about_the_errors() -> None:
    wrong = failing("invalid_request")
    assert await answer_of(wrong, answering(), fallback_on=ModelError) == "Yes."
    assert await answer_of(wrong, answering(), fallback_on=(KeyError, ModelError)) == "Yes."
    assert await answer_of(wrong, answering(), fallback_on=lambda error: "no" in str(error)) == "Yes."
    with pytest.raises(ModelError):
        await answer_of(failing(), answering(), fallback_on=[lambda error: False, RequestError])

    def rejects(response: ModelResponse) -> bool:
        return True

    with pytest.raises(ConfigError, match="every turn is a stream"):
        FallbackModel("test", fallback_on=rejects)  # type: ignore[arg-type]


async def test_a_stream_that_fails_before_its_first_content_is_replaced_and_a_later_failure_is_not() -> None:
    async def late(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[StreamItem]:
        yield {0: DeltaThinkingPart(content="")}
        yield {0: DeltaThinkingPart(content=began)}
        raise ModelError(ErrorInfo("unavailable", "down"))

    began = ""
    assert await answer_of(FunctionModel(stream_function=late), answering()) == "Yes."
    began = "I think"
    with pytest.raises(ModelError, match="down"):
        await answer_of(FunctionModel(stream_function=late), answering())


async def test_a_model_that_failed_is_not_tried_first_again() -> None:
    tries: list[str] = []

    def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        tries.append("tried")
        raise ModelError(ErrorInfo("unavailable", "down"))

    agent = Agent(FallbackModel(FunctionModel(fail), answering()))
    assert [(await agent.run("Why?")).output for _ in range(2)] == ["Yes.", "Yes."]
    assert tries == ["tried"]


async def test_fallback_models_nest() -> None:
    inner = FallbackModel(failing("timeout"), answering("Inner."))
    assert await answer_of(failing(), inner) == "Inner."
    assert await answer_of(inner, answering()) == "Inner."
