"""Bugs of other libraries on this wire."""

from __future__ import annotations

import json
from typing import Any

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.google.encode import encode
from pellucid.settings import ModelCall
from tests.providers_google.google_kit import (
    GEMINI_3,
    ROWS,
    answer,
    call,
    origin,
    part_contents,
    response_of,
    sse,
    stream,
    text,
    thought,
)


def contents(*messages: ModelMessage) -> list[dict[str, Any]]:
    hello = ModelRequest([UserPromptPart("hello")])
    body = encode(ModelCall(GEMINI_3, [hello, *messages]), ROWS["google"].for_model(GEMINI_3), origin())
    return body["contents"][1:]  # type: ignore[no-any-return]


def test_a_tool_loop_keeps_every_signature_on_its_own_part() -> None:
    """microsoft/semantic-kernel#13417: calls were replayed without their signatures, and were refused."""
    messages: list[ModelMessage] = []
    for number in (1, 2):
        messages.append(response_of(stream(thought("t"), call("f", f"S{number}", n=number), call("g"))))
        messages.append(ModelRequest([ToolReturnPart("f", "ok"), ToolReturnPart("g", "ok")]))
    steps = [content["parts"] for content in contents(*messages) if content["role"] == "model"]
    assert [[part.get("thoughtSignature") for part in parts] for parts in steps] == [
        [None, "S1", None], [None, "S2", None],
    ]  # fmt: skip


def test_a_history_that_lost_its_signatures_is_still_accepted() -> None:
    """OpenRouterTeam/openrouter-examples#67: a proxy dropped the signature: MALFORMED_FUNCTION_CALL."""
    response = response_of(stream(call("f", "S")))
    echoed = ModelResponse([type(part)(part.tool_name, part.args, "1") for part in response.tool_calls])
    (content,) = contents(echoed)
    assert content["parts"][0]["thoughtSignature"] == "skip_thought_signature_validator"


def test_thought_is_never_replayed_as_tagged_text() -> None:
    """UKGovernmentBEIS/inspect_ai#4979: thought replayed as <think> text came back in Gemini's answers."""
    for made_by in (origin(), Origin("deepseek", "openai_chat", "r1"), None):
        history = ModelResponse([ThinkingPart("secret plan"), *response_of(stream(text("a"))).parts], origin=made_by)
        for content in contents(history):
            for part in content["parts"]:
                assert "<think" not in json.dumps(part)
                assert "secret plan" not in part["text"] or part["thought"] is True


def test_thought_after_a_call_stays_after_it() -> None:
    """NousResearch/hermes-agent#35975, BerriAI/litellm#23047: thought regrouped before all calls was refused."""
    response = response_of(stream(thought("1"), call("f", "S"), thought("2"), call("g", "T")))
    assert [part[0] for part in part_contents(response)] == ["thinking", "tool-call", "thinking", "tool-call"]
    (content,) = contents(response)
    assert [next(iter(part)) for part in content["parts"]] == ["text", "functionCall", "text", "functionCall"]


def test_a_signature_without_text_is_replayed() -> None:
    """BerriAI/litellm#38809: blocks with only a signature were dropped as empty."""
    response = response_of(stream(call("f", "S"), text("", "T")))
    (content,) = contents(response)
    assert content["parts"][1] == {"text": "", "thoughtSignature": "T"}


def test_fragments_go_back_as_one_part() -> None:
    """agno-agi/agno#8794: the fragments of a stream, replayed one by one, broke their signature."""
    (content,) = contents(response_of(stream(text("a"), text("b"), text("", "S"))))
    assert content["parts"] == [{"text": "ab", "thoughtSignature": "S"}]


def test_thought_and_text_of_one_chunk_both_arrive() -> None:
    """vllm-project/vllm#43933: one of two parts in a chunk was lost."""
    both = answer(thought("t"), text("a"), finish="STOP")
    assert part_contents(response_of(sse(both))) == [("thinking", "t"), ("text", "a")]


def test_only_one_call_gets_the_sentinel() -> None:
    """Parallel calls: only the first carries a signature, a second one would be refused."""
    echoed = ModelResponse(
        [type(p)(p.tool_name, p.args, p.tool_name) for p in response_of(stream(call("f"), call("g"))).tool_calls]
    )
    (content,) = contents(echoed)
    assert ["thoughtSignature" in part for part in content["parts"]] == [True, False]
