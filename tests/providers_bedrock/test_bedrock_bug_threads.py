"""Bugs of other libraries with Bedrock; each test is named after the bug."""

from __future__ import annotations

from typing import Any

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.bedrock.encode import encode, path
from pellucid.settings import ModelCall, ToolDefinition
from tests.providers_bedrock.bedrock_kit import (
    CLAUDE,
    NOVA,
    b64,
    body,
    delta,
    exception,
    failed,
    message_end,
    origin,
    part_contents,
    redacted,
    response_of,
    row_of,
    stop,
    stream,
    text,
    thought,
    tool,
)

ASK = ModelRequest([UserPromptPart("?")])
F = ToolDefinition("f")


def replayed(data: bytes, model: str = CLAUDE, **settings: Any) -> list[dict[str, Any]]:
    """Return the assistant's content when the answer in `data` is replayed with results for its calls."""
    response = response_of(data, model)
    returns = [ToolReturnPart(call.tool_name, "x", call.tool_call_id) for call in response.tool_calls]
    messages = [ASK, response, *([ModelRequest([*returns])] if returns else [])]
    call = ModelCall(model, messages, settings=settings, tools=(F,))  # type: ignore[arg-type]
    content: list[dict[str, Any]] = encode(call, row_of(model), origin(model))["messages"][1]["content"]
    return content


def test_reasoning_was_dropped_in_a_tool_loop_and_every_second_turn_refused() -> None:
    """spring-projects/spring-ai#6413, RooCodeInc/Roo-Code#11238."""
    content = replayed(
        stream(thought(0, "why", signature="s"), tool(1, "f", "{}"), message_end("tool_use")), thinking=True
    )
    assert content[0] == {"reasoningContent": {"reasoningText": {"text": "why", "signature": "s"}}}


def test_interleaved_thoughts_were_regrouped_before_the_calls() -> None:
    """NousResearch/hermes-agent#35975, #36260; BerriAI/litellm#23047."""
    data = stream(
        thought(0, "a", signature="s0"), tool(1, "f", "{}", id="t1"),
        thought(2, "b", signature="s2"), tool(3, "f", "{}", id="t2"), message_end("tool_use"),
    )  # fmt: skip
    assert [next(iter(block)) for block in replayed(data)] == ["reasoningContent", "toolUse"] * 2


def test_the_shape_of_a_piece_was_read_from_a_block_and_all_was_lost() -> None:
    """NousResearch/hermes-agent#36260: `reasoningContent.text` instead of `reasoningContent.reasoningText.text`."""
    block = {"reasoningContent": {"reasoningText": {"text": "why", "signature": "s"}}}
    (part,) = response_of(body(block)).parts
    assert isinstance(part, ThinkingPart)
    assert (part.content, part.signature) == ("why", "s")
    assert replayed(body(block)) == [block]


def test_a_thought_of_nothing_but_a_signature_was_dropped_as_empty() -> None:
    """BerriAI/litellm#38809."""
    data = stream(thought(0, signature="s"), tool(1, "f", "{}"), message_end("tool_use"))
    assert replayed(data)[0] == {"reasoningContent": {"reasoningText": {"text": "", "signature": "s"}}}


def test_pieces_of_a_thought_were_sent_back_as_blocks() -> None:
    """agno-agi/agno#8794."""
    data = stream(thought(0, *"fragments", signature="s"), redacted(1, *(bytes((b,)) for b in b"blob")), message_end())
    assert replayed(data) == [
        {"reasoningContent": {"reasoningText": {"text": "fragments", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": b64(b"blob")}},
    ]


def test_an_empty_signature_was_sent_to_a_model_that_has_none() -> None:
    """strands-agents/harness-sdk#682, maximhq/bifrost#6942: gpt-oss, Nova and MiniMax refuse the field."""
    data = stream(delta(0, reasoningContent={"text": "why"}), stop(0), tool(1, "f", "{}"), message_end("tool_use"))
    for model in ("openai.gpt-oss-120b-1:0", "minimax.minimax-m2", "global.amazon.nova-2-lite-v1:0"):
        assert replayed(data, model)[0] == {"reasoningContent": {"reasoningText": {"text": "why"}}}
    empty = stream(
        delta(0, reasoningContent={"text": "why"}), delta(0, reasoningContent={"signature": ""}), stop(0), message_end()
    )
    assert replayed(empty, "openai.gpt-oss-120b-1:0") == [{"reasoningContent": {"reasoningText": {"text": "why"}}}]


def test_an_unsigned_thought_was_sent_to_claude() -> None:
    """BerriAI/litellm#31654, maximhq/bifrost#6942, vercel/ai#17602."""
    data = stream(delta(0, reasoningContent={"text": "why"}), stop(0), text(1, "a"), message_end())
    assert replayed(data) == [{"text": "a"}]


def test_reasoning_was_replayed_to_deepseek() -> None:
    """langchain-ai/langchain-aws#401: "User messages cannot contain reasoning content"."""
    data = stream(delta(0, reasoningContent={"text": "why"}), stop(0), text(1, "a"), message_end())
    assert replayed(data, "us.deepseek.r1-v1:0") == [{"text": "a"}]


def test_thinking_tags_were_shown_as_the_answer() -> None:
    """onyx-dot-app/onyx#10090, langchain-ai/langchain-aws#783: Nova's `<thinking>`."""
    data = stream(text(0, "<think", "ing> How? </thinking>\n"), tool(1, "f", "{}"), message_end("tool_use"))
    assert part_contents(response_of(data, NOVA)) == [("thinking", "How?"), ("tool-call", "{}")]


def test_reasoning_of_another_model_was_replayed_as_think_text() -> None:
    """UKGovernmentBEIS/inspect_ai#5300, #4979."""
    foreign = ModelResponse([ThinkingPart("why", signature="s"), TextPart("a")], origin=origin("another"))
    body = encode(ModelCall(CLAUDE, [ASK, foreign]), row_of(), origin())
    assert body["messages"][1]["content"] == [{"text": "a"}]


def test_a_slash_in_an_arn_reached_another_operation() -> None:
    """vercel/ai#17523: the status was 200, and there was no answer."""
    call = ModelCall("arn:aws:bedrock:us-east-1::foundation-model/x", [ASK])
    assert path(call, row_of()) == "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A%3Afoundation-model%2Fx/converse-stream"
    refused = b'{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}'
    assert failed(refused)[0].code == "UnknownOperationException"


def test_a_history_of_calls_without_tools_was_refused() -> None:
    """vxcontrol/pentagi#160, patriceckhart/zot#18: toolConfig must be defined."""
    messages: list[ModelMessage] = [
        ASK,
        ModelResponse([ToolCallPart("f", "{}", "t")]),
        ModelRequest([ToolReturnPart("f", "x", "t")]),
    ]
    assert "toolConfig" in encode(ModelCall(CLAUDE, messages), row_of(), origin())
    assert "toolConfig" not in encode(ModelCall(CLAUDE, [ASK]), row_of(), origin())


def test_a_blank_text_before_a_call_was_refused() -> None:
    """run-llama/llama_index#18449."""
    assert [next(iter(b)) for b in replayed(stream(text(0, "\n"), tool(1, "f", "{}"), message_end("tool_use")))] == [
        "toolUse"
    ]


def test_a_failed_tool_without_output_was_refused_for_ever() -> None:
    """aws-samples/sample-multi-agent-orchestration-chat-on-agentcore#15."""
    failed_call = ModelRequest([ToolReturnPart("f", "", "t", outcome="failed")])
    messages: list[ModelMessage] = [ASK, ModelResponse([ToolCallPart("f", "{}", "t")]), failed_call]
    (block,) = encode(ModelCall(CLAUDE, messages), row_of(), origin())["messages"][2]["content"]
    assert block["toolResult"]["content"] == [{"text": "failed"}]


def test_novas_limit_was_dropped_at_every_effort() -> None:
    """UKGovernmentBEIS/inspect_ai#3767: only the highest effort refuses a limit."""
    nova = "global.amazon.nova-2-lite-v1:0"
    for level, has_limit in (("low", True), ("medium", True), ("high", False)):
        call = ModelCall(nova, [ASK], settings={"thinking": level, "max_tokens": 100})  # type: ignore[typeddict-item]
        assert ("inferenceConfig" in encode(call, row_of(nova), origin(nova))) is has_limit


def test_reasoning_was_requested_of_a_nova_without_reasoning() -> None:
    """UKGovernmentBEIS/inspect_ai#5301."""
    call = ModelCall("us.amazon.nova-pro-v1:0", [ASK], settings={"thinking": "low"})
    assert "additionalModelRequestFields" not in encode(call, row_of(call.model), origin(call.model))


def test_a_budget_was_sent_to_claudes_that_refuse_it() -> None:
    """quarkiverse/quarkus-langchain4j#2768, UKGovernmentBEIS/inspect_ai#3765."""
    call = ModelCall("us.anthropic.claude-opus-4-8", [ASK], settings={"thinking": "high", "thinking_budget": 5000})
    fields = encode(call, row_of(call.model), origin(call.model))["additionalModelRequestFields"]
    assert fields == {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "high"}}


def test_closed_gpts_were_sent_the_effort_field_of_open_ones() -> None:
    """stdapi-ai/stdapi.ai#283: they refuse `reasoning_effort` and the value `minimal`."""
    for level, effort in (("minimal", "low"), ("max", "max"), (False, "none")):
        call = ModelCall("openai.gpt-6-luna", [ASK], settings={"thinking": level})  # type: ignore[typeddict-item]
        fields = encode(call, row_of(call.model), origin(call.model))["additionalModelRequestFields"]
        assert fields == {"reasoning": {"effort": effort}}


def test_an_exception_frame_was_taken_for_the_end() -> None:
    error, response = failed(stream(thought(0, "a"), exception("throttlingException", {"message": "Too many tokens"})))
    assert (error.kind, error.upstream_message) == ("too_many_requests", "Too many tokens")
    assert part_contents(response) == [("thinking", "a")]
