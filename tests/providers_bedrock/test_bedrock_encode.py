"""Converse: the body of a request, validated against Amazon's description of the service."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any, cast

import botocore.session
import pytest
from botocore.validate import ParamValidator
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    File,
    FilePart,
    Image,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    OpaquePart,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    Video,
)
from pellucid.providers.bedrock.encode import encode, path
from pellucid.providers.bedrock.thinking import _FORMS
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from tests.providers_bedrock.bedrock_kit import CLAUDE, NOVA, ROW, b64, origin, row_of

HELLO = ModelRequest([UserPromptPart("Hello")])
FIRST, SECOND = ToolDefinition("first", {"type": "object"}, "Does it."), ToolDefinition("second")


@cache
def shape() -> Any:
    return (
        botocore.session.get_session()
        .get_service_model("bedrock-runtime")
        .operation_model("ConverseStream")
        .input_shape
    )


def body_of(
    *messages: ModelMessage,
    model: str = CLAUDE,
    row: Profile | None = None,
    settings: Mapping[str, Any] | None = None,
    **call: Any,
) -> dict[str, Any]:
    body = encode(
        ModelCall(
            model=model, messages=list(messages or [HELLO]), settings=cast("ModelSettings", settings or {}), **call
        ),
        row or row_of(model),
        origin(model),
    )
    errors = ParamValidator().validate({"modelId": model, **body}, shape()).generate_report()
    assert not errors, errors
    return body


def messages_of(*messages: ModelMessage, **more: Any) -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = body_of(*messages, **more)["messages"]
    return encoded


def answer(*parts: Any, model: str = CLAUDE) -> ModelResponse:
    return ModelResponse(list(parts), origin=origin(model))


def user(*content: Any) -> list[dict[str, Any]]:
    (message,) = messages_of(ModelRequest([UserPromptPart(list(content))]))
    assert message["role"] == "user"
    blocks: list[dict[str, Any]] = message["content"]
    return blocks


# --- the request ---------------------------------------------------------------------------------------------------


def test_a_minimal_request() -> None:
    assert body_of() == {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]}


@pytest.mark.parametrize(
    ("model", "quoted"),
    [
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", "us.anthropic.claude-3-7-sonnet-20250219-v1%3A0"),
        (
            "arn:aws:bedrock:us-east-1:1:application-inference-profile/a1",
            "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Aapplication-inference-profile%2Fa1",
        ),
    ],
)
def test_the_model_is_quoted_in_the_path(model: str, quoted: str) -> None:
    assert path(ModelCall(model, [HELLO]), ROW) == f"/model/{quoted}/converse-stream"
    assert path(ModelCall(model, [HELLO], stream=False), ROW) == f"/model/{quoted}/converse"


def test_an_inference_profile_replaces_the_model_in_the_path() -> None:
    call = ModelCall("m", [HELLO], settings={"bedrock_inference_profile": "arn:p/1"})  # type: ignore[typeddict-unknown-key]
    assert path(call, ROW) == "/model/arn%3Ap%2F1/converse-stream"


def test_system_prompts_and_instructions_are_in_the_system_field() -> None:
    message = ModelRequest([SystemPromptPart("a"), SystemPromptPart(" "), UserPromptPart("x")], instructions="b")
    assert body_of(message)["system"] == [{"text": "b"}, {"text": "a"}]
    assert len(messages_of(message)) == 1


# --- turns ---------------------------------------------------------------------------------------------------------


def test_adjacent_messages_of_one_role_are_merged() -> None:
    encoded = messages_of(HELLO, HELLO, answer(TextPart("a")), answer(TextPart("b")), HELLO)
    assert [(message["role"], len(message["content"])) for message in encoded] == [
        ("user", 2),
        ("assistant", 2),
        ("user", 1),
    ]


def test_blank_text_is_left_out() -> None:
    encoded = messages_of(ModelRequest([UserPromptPart(" "), UserPromptPart("x")]), answer(TextPart("\n")), HELLO)
    assert encoded == [{"role": "user", "content": [{"text": "x"}, {"text": "Hello"}]}]


def test_a_call_and_its_result() -> None:
    call = ToolCallPart("first", '{"a":1}', "tooluse_1")
    returned = ModelRequest([UserPromptPart("And?"), ToolReturnPart("first", "done", "tooluse_1")])
    _, assistant_message, user_message = messages_of(HELLO, answer(TextPart("Let me."), call), returned, tools=(FIRST,))
    assert assistant_message["content"][1] == {
        "toolUse": {"toolUseId": "tooluse_1", "name": "first", "input": {"a": 1}}
    }
    result = {"toolResult": {"toolUseId": "tooluse_1", "content": [{"text": "done"}], "status": "success"}}
    assert user_message["content"] == [result, {"text": "And?"}], "results come first"


def result_of(part: Any) -> dict[str, Any]:
    encoded = messages_of(HELLO, answer(ToolCallPart("first", "{}", "t")), ModelRequest([part]), tools=(FIRST,))
    result: dict[str, Any] = encoded[2]["content"][0]["toolResult"]
    return result


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("text", [{"text": "text"}]),
        ("", [{"text": ""}]),
        (None, [{"text": ""}]),
        ({"a": 1}, [{"json": {"a": 1}}]),
        ([1, 2], [{"text": "[1,2]"}]),
        ([], [{"text": "[]"}]),
        ([Text("a"), Image(data="QUJD", media_type="image/png")], [
            {"text": "a"}, {"image": {"format": "png", "source": {"bytes": "QUJD"}}},
        ]),
    ],
)  # fmt: skip
def test_results_of_any_kind(content: Any, blocks: list[dict[str, Any]]) -> None:
    result = result_of(ToolReturnPart("first", content, "t"))
    assert (result["content"], result["status"]) == (blocks, "success")


def test_a_failed_result_always_has_a_text() -> None:
    assert result_of(ToolReturnPart("first", "", "t", outcome="denied"))["content"] == [{"text": "denied"}]
    assert result_of(ToolReturnPart("first", "no", "t", outcome="failed"))["status"] == "error"
    retry = result_of(RetryPromptPart("Again.", "first", "t"))
    assert (retry["content"], retry["status"]) == ([{"text": "Again."}], "error")
    assert messages_of(ModelRequest([RetryPromptPart("Again.")]))[0]["content"] == [{"text": "Again."}]


@pytest.mark.parametrize(
    ("args", "input_"),
    [({"a": 1}, {"a": 1}), ("", {}), (None, {}), ('{"a":', {"arguments": '{"a":'}), ("[1]", {"arguments": "[1]"})],
)
def test_arguments_are_an_object(args: Any, input_: dict[str, Any]) -> None:
    assistant_message = messages_of(HELLO, answer(ToolCallPart("first", args, "t")), tools=(FIRST,))[1]
    assert assistant_message["content"][0]["toolUse"]["input"] == input_


@pytest.mark.parametrize("id", ["call|fc_1", "x" * 65, "", "ümlaut"])
def test_ids_of_other_providers_are_rewritten_in_calls_and_results(id: str) -> None:
    foreign = ModelResponse([ToolCallPart("first", "{}", id)])
    _, assistant_message, user_message = messages_of(
        HELLO, foreign, ModelRequest([ToolReturnPart("first", "x", id)]), tools=(FIRST,)
    )
    sent = assistant_message["content"][0]["toolUse"]["toolUseId"]
    assert sent == user_message["content"][0]["toolResult"]["toolUseId"]
    assert len(sent) == 37


def test_own_parts_are_replayed_in_order() -> None:
    own = "bedrock"
    citations = [{"title": "T", "location": {"web": {"url": "https://x.example/"}}}]
    hologram = {"guardContent": {"text": {"text": "g"}}}
    parts = [
        ThinkingPart("a", signature="s", provider_name=own),
        TextPart("b", provider_details={"citations": citations}),
        BuiltinToolCallPart("w", '{"q":1}', "s1", provider_name=own),
        BuiltinToolReturnPart("w", [{"json": {}}], "s1", provider_name=own, provider_details={"status": "success"}),
        BuiltinToolReturnPart("w", "text", "s2", provider_name=own),
        RefusalPart("no"),
        CompactionPart("earlier"),
        FilePart("QUJD", "image/png", provider_name=own),
        OpaquePart("guardContent", hologram, provider_name=own),
        OpaquePart("x", {"contentBlockStart": {"x": {}}, "contentBlockDelta": []}, provider_name=own),
    ]
    assert messages_of(HELLO, answer(*parts))[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "a", "signature": "s"}}},
        {"citationsContent": {"content": [{"text": "b"}], "citations": citations}},
        {"toolUse": {"toolUseId": "s1", "name": "w", "input": {"q": 1}, "type": "server_tool_use"}},
        {"toolResult": {"toolUseId": "s1", "content": [{"json": {}}], "status": "success"}},
        {"toolResult": {"toolUseId": "s2", "content": [{"text": "text"}]}},
        {"text": "no"},
        {"text": "earlier"},
        {"image": {"format": "png", "source": {"bytes": "QUJD"}}},
        hologram,
    ]


# --- files ---------------------------------------------------------------------------------------------------------


def test_files_of_every_kind() -> None:
    pdf = File(data="QUJD", media_type="application/pdf", filename="Re: my_report (v2).pdf")
    assert user(
        Text("Look."),
        Image(data="QUJD", media_type="image/jpeg"),
        Image(url="data:image/webp;base64,QUJD"),
        Image(url="s3://bucket/key.gif"),
        Audio(data="QUJD", media_type="audio/mpeg"),
        Video(data="QUJD", media_type="video/3gpp"),
        File(data="QUJD", media_type="image/png", filename="a.png"),
        pdf,
        pdf,
        File(data="QUJD", filename="notes.txt"),
        File(url="data:text/csv;base64,QUJD"),
    ) == [
        {"text": "Look."},
        {"image": {"format": "jpeg", "source": {"bytes": "QUJD"}}},
        {"image": {"format": "webp", "source": {"bytes": "QUJD"}}},
        {"image": {"format": "gif", "source": {"s3Location": {"uri": "s3://bucket/key.gif"}}}},
        {"audio": {"format": "mp3", "source": {"bytes": "QUJD"}}},
        {"video": {"format": "three_gp", "source": {"bytes": "QUJD"}}},
        {"image": {"format": "png", "source": {"bytes": "QUJD"}}},
        {"document": {"name": "Re my report (v2)", "format": "pdf", "source": {"bytes": "QUJD"}}},
        {"document": {"name": "Re my report (v2) (2)", "format": "pdf", "source": {"bytes": "QUJD"}}},
        {"document": {"name": "notes", "format": "txt", "source": {"bytes": "QUJD"}}},
        {"document": {"name": "Document", "format": "csv", "source": {"bytes": "QUJD"}}},
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            Image(url="https://x.example/a.png"),
            "Bedrock does not take an image by URL; it takes bytes, or ",
        ),
        (Image(file_id="f"), "Bedrock does not take an image without bytes; "),
        (Image(data="QUJD", media_type="image/tiff"), "an image of type 'image/tiff'; it takes image/png, "),
        (File(data="QUJD"), "a document of type 'unknown'; it takes application/pdf, "),
    ],
)
def test_content_that_cannot_be_sent_is_named_in_the_error(content: Any, message: str) -> None:
    with pytest.raises(RequestError) as raised:
        user(content)
    assert message in raised.value.info.message
    assert raised.value.info.kind == "unsupported"


# --- settings ------------------------------------------------------------------------------------------------------


def test_common_settings() -> None:
    settings = {"max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "stop_sequences": ["."], "metadata": {"a": "b"}}
    body = body_of(settings={**settings, "service_tier": "flex", "seed": 3})
    assert body["inferenceConfig"] == {"maxTokens": 5, "temperature": 0.5, "topP": 0.9, "stopSequences": ["."]}
    assert (body["requestMetadata"], body["serviceTier"]) == ({"a": "b"}, {"type": "flex"})
    assert "serviceTier" not in body_of(settings={"service_tier": "auto"})


def test_top_k_is_sent_to_models_that_support_it() -> None:
    assert body_of(settings={"top_k": 3})["additionalModelRequestFields"] == {"top_k": 3}
    assert body_of(settings={"top_k": 3}, model=NOVA) == body_of()


def test_the_providers_own_settings_take_precedence() -> None:
    body = body_of(
        settings={
            "metadata": {"a": "1"},
            "bedrock_request_metadata": {"b": "2"},
            "service_tier": "flex",
            "bedrock_service_tier": {"type": "priority"},
            "bedrock_guardrail_config": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            "bedrock_performance_configuration": {"latency": "optimized"},
            "bedrock_additional_model_response_fields_paths": ["/stop_sequence"],
            "bedrock_prompt_variables": {"x": {"text": "y"}},
            "extra_body": {"additionalModelRequestFields": {"z": 1}},
        }
    )
    del body["messages"]
    assert body == {
        "requestMetadata": {"b": "2"},
        "serviceTier": {"type": "priority"},
        "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
        "performanceConfig": {"latency": "optimized"},
        "additionalModelResponseFieldPaths": ["/stop_sequence"],
        "promptVariables": {"x": {"text": "y"}},
        "additionalModelRequestFields": {"z": 1},
    }


def test_cache_points() -> None:
    body = body_of(
        ModelRequest([SystemPromptPart("s"), UserPromptPart("u")]),
        tools=(FIRST,),
        settings={
            "bedrock_cache_instructions": True,
            "bedrock_cache_messages": "1h",
            "bedrock_cache_tool_definitions": "5m",
        },
    )
    assert body["system"][1] == {"cachePoint": {"type": "default"}}
    assert body["messages"][-1]["content"][-1] == {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert body["toolConfig"]["tools"][-1] == {"cachePoint": {"type": "default", "ttl": "5m"}}


# --- thinking ------------------------------------------------------------------------------------------------------

LEVELS = (True, "minimal", "low", "medium", "high", "xhigh", "max", False, "none")


def budgets(*tokens: int) -> list[Any]:
    return [{"thinking": {"type": "enabled", "budget_tokens": count}, **INTERLEAVED} for count in tokens]


def shown(*efforts: str | None, display: bool = True) -> list[Any]:
    config = {"type": "adaptive"} | ({"display": "summarized"} if display else {})
    return [{"thinking": config} | ({"output_config": {"effort": effort}} if effort else {}) for effort in efforts]


INTERLEAVED = {"anthropic_beta": ["interleaved-thinking-2025-05-14"]}
OFF = {"thinking": {"type": "disabled"}}
NO: dict[str, Any] = {}


def effort(name: str, *levels: str | None) -> list[Any]:
    return [{name: level} if level else NO for level in levels]


OF_THREE = (None, "low", "low", "medium", "high", "high", "high", None, None)
OF_FIVE = (None, "low", "low", "medium", "high", "xhigh", "max")
BUDGETS = (10000, 1024, 2048, 10000, 16384, 32768, 32768)

THINKING_FIELDS: dict[str, list[Any]] = {
    # In the order of LEVELS.
    "us.anthropic.claude-3-7-sonnet-20250219-v1:0": [
        *({"thinking": {"type": "enabled", "budget_tokens": count}} for count in BUDGETS), OFF, OFF,
    ],
    "us.anthropic.claude-sonnet-4-20250514-v1:0": [*budgets(*BUDGETS), OFF, OFF],
    "us.anthropic.claude-sonnet-4-6": [
        *shown(None, "low", "low", "medium", "high", "high", "max", display=False), OFF, OFF,
    ],
    "us.anthropic.claude-opus-4-7": [*shown(*OF_FIVE), OFF, OFF],
    "global.anthropic.claude-sonnet-5": [*shown(*OF_FIVE), OFF, OFF],
    "global.anthropic.claude-opus-5-5": [*shown(*OF_FIVE), *shown("low", "low", display=False)],
    "global.anthropic.claude-sonnet-5-5": [*shown(*OF_FIVE), *[{"thinking": {"type": "between_tools"}}] * 2],
    "anthropic.claude-3-5-haiku-20241022-v1:0": [NO] * 9,
    "openai.gpt-oss-120b-1:0": effort("reasoning_effort", *OF_THREE[:-2], "low", "low"),
    "zai.glm-4.7": effort("reasoning_effort", *["high"] * 7, "none", "none"),
    "zai.glm-5.3": effort("reasoning_effort", *OF_FIVE, "low", "low"),
    "deepseek.v3-v1:0": effort("reasoning_effort", *["high"] * 7, "none", "none"),
    "us.deepseek.r1-v1:0": [NO] * 9,
    "qwen.qwen3-32b-v1:0": effort("reasoning_config", "high", "low", "low", *["high"] * 4, "none", "none"),
    "qwen.qwen3-coder-30b-a3b-v1:0": [NO] * 9,
    "openai.gpt-6-luna": [
        {"reasoning": {"effort": level}} if level else NO for level in (*OF_FIVE, "none", "none")
    ],
    "openai.gpt-6-astra": [{"reasoning": {"effort": level}} if level else NO for level in (*OF_FIVE, "low", "low")],
    "xai.grok-4.7": [
        {"reasoning": {"effort": level}} if level else NO
        for level in (None, "low", "low", "medium", "high", "xhigh", "xhigh", "low", "low")
    ],
    "global.amazon.nova-2-lite-v1:0": [
        *({"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
          for level in ("medium", "low", "low", "medium", "high", "high", "high")),
        *[{"reasoningConfig": {"type": "disabled"}}] * 2,
    ],
    "us.amazon.nova-pro-v1:0": [NO] * 9,
    "meta.llama4-maverick-17b-instruct-v1:0": [NO] * 9,
}  # fmt: skip


@pytest.mark.parametrize("model", THINKING_FIELDS)
def test_thinking_levels_of_each_family(model: str) -> None:
    fields = [
        body_of(model=model, settings={"thinking": level}).get("additionalModelRequestFields", {}) for level in LEVELS
    ]
    assert fields == THINKING_FIELDS[model]
    assert body_of(model=model) == body_of(), "without the setting, nothing is sent"


def fields_of(settings: dict[str, Any], model: str = CLAUDE, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = body_of(model=model, settings=settings, **more).get("additionalModelRequestFields", {})
    return fields


def test_every_profile_has_a_supported_thinking_style() -> None:
    for row in builtin_profiles().values():
        if row.wire == "bedrock":
            styles = {row.for_model(entry["match"]).thinking for entry in row.models} | {row.thinking}
            assert styles <= set(_FORMS)


def test_a_thinking_budget_fits_into_max_tokens() -> None:
    assert fields_of({"thinking_budget": 5000})["thinking"]["budget_tokens"] == 5000
    assert fields_of({"thinking_budget": 50})["thinking"]["budget_tokens"] == 1024
    assert fields_of({"thinking": "max", "max_tokens": 4096})["thinking"]["budget_tokens"] == 3072
    assert fields_of({"thinking": "max", "max_tokens": 1500})["thinking"]["budget_tokens"] == 1024
    with pytest.raises(RequestError, match="max_tokens is 1024, and thinking takes at least 1024 of them"):
        fields_of({"thinking": True, "max_tokens": 1024})


def test_the_callers_fields_replace_the_thinking_settings() -> None:
    own = {"thinking": {"type": "adaptive"}}
    settings = {"thinking": "high", "bedrock_additional_model_requests_fields": own}
    assert fields_of(settings) == own
    assert fields_of({**settings, "bedrock_additional_model_requests_fields": {"x": 1}})["x"] == 1
    assert "thinking" in fields_of({**settings, "bedrock_additional_model_requests_fields": {"x": 1}})


def test_sampling_settings_are_not_sent_while_the_model_thinks() -> None:
    settings = {"temperature": 0.5, "top_p": 0.9, "top_k": 4, "max_tokens": 9000}
    thinking = body_of(settings={**settings, "thinking": True})
    assert thinking["inferenceConfig"] == {"maxTokens": 9000}
    assert "top_k" not in thinking["additionalModelRequestFields"]
    assert body_of(settings={**settings, "thinking": False})["inferenceConfig"]["temperature"] == 0.5
    assert body_of(settings=settings, model="anthropic.claude-opus-5")["inferenceConfig"] == {"maxTokens": 9000}


def test_max_tokens_is_not_sent_with_novas_highest_effort() -> None:
    settings = {"temperature": 0.5, "max_tokens": 9000, "stop_sequences": ["."]}
    nova = "global.amazon.nova-2-lite-v1:0"
    high = body_of(model=nova, settings={**settings, "thinking": "high"})
    assert high["inferenceConfig"] == {"stopSequences": ["."]}
    medium = body_of(model=nova, settings={**settings, "thinking": "medium"})
    assert medium["inferenceConfig"]["maxTokens"] == 9000


def test_thinking_summary_sets_display() -> None:
    fields = fields_of({"thinking": "high", "thinking_summary": "auto"}, "us.anthropic.claude-sonnet-4-6")
    assert fields["thinking"]["display"] == "summarized"


# --- tools and output ----------------------------------------------------------------------------------------------


def tool_config(*messages: ModelMessage, **more: Any) -> dict[str, Any]:
    config: dict[str, Any] = body_of(*messages, **more).get("toolConfig", {})
    return config


SPECS = [
    {"toolSpec": {"name": "first", "inputSchema": {"json": {"type": "object"}}, "description": "Does it."}},
    {"toolSpec": {"name": "second", "inputSchema": {"json": {"type": "object", "properties": {}}}}},
]


@pytest.mark.parametrize(
    ("choice", "config"),
    [
        (ToolChoice(), {"tools": SPECS}),
        (ToolChoice("required"), {"tools": SPECS, "toolChoice": {"any": {}}}),
        (ToolChoice("required", ("second",)), {"tools": SPECS[1:], "toolChoice": {"tool": {"name": "second"}}}),
        (ToolChoice("auto", ("first",)), {"tools": SPECS[:1]}),
        (ToolChoice("none"), {}),
    ],
)
def test_tools_and_whether_to_call_one(choice: ToolChoice, config: dict[str, Any]) -> None:
    assert tool_config(tools=(FIRST, SECOND), tool_choice=choice) == config


def test_a_strict_tool() -> None:
    (spec,) = tool_config(tools=(dataclasses.replace(FIRST, strict=True),))["tools"]
    assert spec["toolSpec"]["strict"] is True


def test_a_choice_of_an_unknown_tool_is_refused() -> None:
    with pytest.raises(RequestError, match="tool_choice names third; the tools are: first, second"):
        tool_config(tools=(FIRST, SECOND), tool_choice=ToolChoice("required", ("third",)))


def test_a_forced_call_is_not_sent_while_the_model_thinks() -> None:
    forced = {"tools": (FIRST,), "tool_choice": ToolChoice("required")}
    preferred = {"tools": (FIRST,), "tool_choice": ToolChoice("required", is_preference=True)}
    assert "toolChoice" not in tool_config(settings={"thinking": True}, **preferred)
    with pytest.raises(RequestError, match="while it thinks"):
        tool_config(settings={"thinking": True}, **forced)
    assert "toolChoice" in tool_config(settings={"thinking": False}, **forced)


@pytest.mark.parametrize("choice", [ToolChoice(), ToolChoice("none")])
def test_a_history_with_calls_needs_tool_config(choice: ToolChoice) -> None:
    """Without `toolConfig`, a history with calls or results is refused."""
    history = (HELLO, answer(ToolCallPart("gone", "{}", "t")), ModelRequest([ToolReturnPart("gone", "x", "t")]))
    (spec,) = tool_config(*history, tool_choice=choice)["tools"]
    assert spec["toolSpec"]["name"] == "gone"
    assert tool_config(*history, tools=(FIRST,), tool_choice=choice)["tools"] == SPECS[:1]


def test_output_by_schema() -> None:
    output = OutputFormat("json_schema", "city", {"type": "object"}, "A city.")
    assert body_of(output=output)["outputConfig"]["textFormat"] == {
        "type": "json_schema",
        "structure": {"jsonSchema": {"schema": '{"type":"object"}', "name": "city", "description": "A city."}},
    }


def test_a_json_mode_without_a_schema_is_refused() -> None:
    with pytest.raises(RequestError, match="ask for json_schema"):
        body_of(output=OutputFormat("json_object"))


def test_redacted_blobs_are_replayed_unchanged() -> None:
    part = ThinkingPart("", signature="Etk", form="redacted", provider_name="bedrock")
    (block,) = messages_of(HELLO, answer(part))[1]["content"]
    assert block == {"reasoningContent": {"redactedContent": b64(b"Etk")}}
    base64_part = replace(part, signature=b64(b"\xff"), provider_details={"redacted_content": "base64"})
    (block,) = messages_of(HELLO, answer(base64_part))[1]["content"]
    assert block == {"reasoningContent": {"redactedContent": b64(b"\xff")}}
