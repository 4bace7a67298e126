"""Requests of Chat Completions: the body for each setting and message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    File,
    Image,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
)
from pellucid.providers.openai_chat.encode import encode
from pellucid.providers.profiles import builtin_profiles
from pellucid.settings import (
    EFFORTS,
    ModelCall,
    ModelSettings,
    OutputFormat,
    ToolChoice,
    ToolDefinition,
    nearest_effort,
)
from tests.providers.wire_kit import ROWS, origin

HELLO = ModelRequest([UserPromptPart("hello")])


def request(row: str = "openai-compat", *, model: str = "m", **fields: Any) -> dict[str, Any]:
    fields.setdefault("messages", [HELLO])
    call = ModelCall(model, **fields)
    return encode(call, ROWS[row].for_model(model), origin(row, model))


def request_fields(row: str, settings: ModelSettings, *, model: str = "m") -> dict[str, Any]:
    """Return the fields that the settings add to the body."""
    plain = request(row, model=model)
    body = request(row, model=model, settings=settings)
    return {name: value for name, value in body.items() if name not in plain or value != plain[name]}


# --- the frame ---------------------------------------------------------------------------------------------------


def test_a_minimal_request() -> None:
    assert request(stream=False) == {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


def test_a_stream_requests_usage_where_the_server_supports_it() -> None:
    assert request()["stream_options"] == {"include_usage": True}
    row = replace(ROWS["openai"], stream_usage=False)
    body = encode(ModelCall("m", [HELLO]), row, origin("openai"))
    assert body["stream"] is True
    assert "stream_options" not in body


def test_extra_body_takes_precedence() -> None:
    extra = {"temperature": 0, "thinking": {"type": "disabled"}, "new": [1]}
    body = request("kimi", settings={"temperature": 1, "thinking": True, "extra_body": extra})
    assert {name: body[name] for name in extra} == extra


def test_every_body_is_json() -> None:
    for row in ROWS:
        msgspec.json.encode(request(row, settings={"thinking": "high", "thinking_budget": 5, "max_tokens": 9}))


# --- settings ----------------------------------------------------------------------------------------------------


def test_settings_are_sent_under_their_wire_names() -> None:
    settings: ModelSettings = {
        "temperature": 0.5, "top_p": 0.9, "seed": 1, "presence_penalty": 0.1, "frequency_penalty": 0.2,
        "logit_bias": {"1": 2}, "logprobs": True, "top_logprobs": 3, "parallel_tool_calls": False,
    }  # fmt: skip
    for row in ROWS:
        assert request_fields(row, settings) == settings
        assert request_fields(row, {"stop_sequences": ["x"]}) == {"stop": ["x"]}


OPTIONAL_SETTINGS: ModelSettings = {
    "top_k": 4, "verbosity": "low", "service_tier": "flex", "user": "u", "metadata": {"a": "b"}, "cache_key": "k"
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_optional_settings_are_sent_only_where_the_profile_lists_them(row: str) -> None:
    there = {"cache_key": "prompt_cache_key"}
    optional: dict[str, Any] = {**OPTIONAL_SETTINGS}
    assert request_fields(row, OPTIONAL_SETTINGS) == {there.get(name, name): optional[name] for name in ROWS[row].knows}


def test_internal_settings_are_not_sent() -> None:
    assert request_fields("openai", {"timeout": 5.0, "extra_headers": {"a": "b"}}) == {}


@pytest.mark.parametrize("row", ROWS)
def test_the_token_limit_is_sent_under_one_name(row: str) -> None:
    reasoning_models = ("openai", "azure", "groq", "cerebras", "copilot")
    name = "max_completion_tokens" if row in reasoning_models else "max_tokens"
    assert request_fields(row, {"max_tokens": 9}) == {name: 9}


# --- requests of thinking ----------------------------------------------------------------------------------------

EFFORT = {True: {}, False: {"reasoning_effort": "none"}, "high": {"reasoning_effort": "high"}}
MEDIUM = {"reasoning_effort": "medium"}
# The fields for: the model's default amount, none, "high" and "max".
THINKING_FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "openai": (MEDIUM, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "xhigh"}),
    "azure": (MEDIUM, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "xhigh"}),
    "openai-compat": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}),
    "huggingface": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}),
    "crusoe": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}),
    "lmstudio": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}),
    "copilot": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}),
    "ollama": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "max"}),
    "groq": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    "cerebras": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    "fireworks": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "xhigh"}),
    "xai": ({}, {"reasoning_effort": "none"}, {"reasoning_effort": "high"}, {"reasoning_effort": "xhigh"}),
    "perplexity": ({}, {}, {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    "bedrock-mantle-chat": ({}, {}, {"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
    "deepseek": (
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
        {"thinking": {"type": "enabled"}, "reasoning_effort": "max"},
    ),
    "zai": (
        {"thinking": {"clear_thinking": False, "type": "enabled"}},
        {"thinking": {"clear_thinking": False, "type": "disabled"}},
        {"thinking": {"clear_thinking": False, "type": "enabled"}, "reasoning_effort": "high"},
        {"thinking": {"clear_thinking": False, "type": "enabled"}, "reasoning_effort": "max"},
    ),
    "kimi": (
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled"}},
        {"thinking": {"type": "enabled"}},
    ),
    "minimax": (
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "adaptive"}},
    ),
    "qwen": (
        {"enable_thinking": True},
        {"enable_thinking": False},
        {"enable_thinking": True},
        {"enable_thinking": True},
    ),
    "openrouter": (
        {"reasoning": {"enabled": True}},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"effort": "high"}},
        {"reasoning": {"effort": "max"}},
    ),
    "snowflake": (
        {"reasoning": {"enabled": True}},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"effort": "high"}},
        {"reasoning": {"effort": "max"}},
    ),
    "together": (
        {"reasoning": {"enabled": True}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"enabled": True}, "reasoning_effort": "high"},
        {"reasoning": {"enabled": True}, "reasoning_effort": "max"},
    ),
    "vllm": (
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}, "reasoning_effort": "high"},
        {"chat_template_kwargs": {"enable_thinking": True, "thinking": True}, "reasoning_effort": "max"},
    ),
    "llama.cpp": (
        {"chat_template_kwargs": {"enable_thinking": True}},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "high"},
        {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "max"},
    ),
}
THINKING_FIELDS["sglang"] = THINKING_FIELDS["vllm"]


def test_the_table_has_every_profile() -> None:
    assert set(THINKING_FIELDS) == set(ROWS)


@pytest.mark.parametrize("row", THINKING_FIELDS)
def test_thinking_is_requested_as_the_profile_defines(row: str) -> None:
    on, off, much, most = THINKING_FIELDS[row]
    assert request_fields(row, {}) == {}, "without the setting, no field is sent"
    assert request_fields(row, {"thinking": True}) == on
    assert request_fields(row, {"thinking": False}) == request_fields(row, {"thinking": "none"}) == off
    assert request_fields(row, {"thinking": "high"}) == much
    assert request_fields(row, {"thinking": "max"}) == most


def test_a_thinking_budget_is_sent_where_the_wire_has_a_field() -> None:
    expected = {
        "qwen": {"thinking_budget": 99},
        "vllm": {"thinking_token_budget": 99},
        "llama.cpp": {"thinking_budget_tokens": 99},
        "openrouter": {"reasoning": {"max_tokens": 99}},
        "snowflake": {"reasoning": {"max_tokens": 99}},
    }
    assert {
        row: request_fields(row, {"thinking_budget": 99})
        for row in ROWS
        if request_fields(row, {"thinking_budget": 99})
    } == expected
    both: ModelSettings = {"thinking": "low", "thinking_budget": 99}
    assert request_fields("openrouter", both) == {"reasoning": {"max_tokens": 99}}, "the budget replaces the level"


def test_thinking_levels_depend_on_the_model() -> None:
    assert request_fields("groq", {"thinking": False}, model="qwen/Qwen3-32B") == {"reasoning_effort": "none"}
    assert request_fields("groq", {"thinking": "high"}, model="qwen/qwen3-32b") == {}
    assert request_fields("groq", {"thinking": "max"}, model="openai/gpt-oss-120b") == {"reasoning_effort": "high"}
    assert request_fields("groq", {"thinking": False}, model="openai/gpt-oss-120b") == {"reasoning_effort": "low"}
    for model in ("gpt-5.6-sol", "gpt-6-luna", "gpt-6.1-terra"):
        assert request_fields("openai", {"thinking": "minimal"}, model=model) == {"reasoning_effort": "low"}
        # Chat Completions rejects `max` of every model; Responses takes it (Pydantic AI 2.68, profiles/openai.py).
        assert request_fields("openai", {"thinking": "max"}, model=model) == {"reasoning_effort": "xhigh"}
        assert "max" in builtin_profiles()["openai-responses"].for_model(model).efforts


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"thinking": "max"}, {"enable_thinking": True, "reasoning_effort": "max"}),
        ({"thinking": "minimal"}, {"enable_thinking": True, "reasoning_effort": "low"}),
        ({"thinking": False}, {"enable_thinking": False}),
        ({"thinking": "max", "thinking_budget": 99}, {"enable_thinking": True, "thinking_budget": 99}),
        ({"thinking_budget": 99}, {"thinking_budget": 99}),
    ],
)
def test_qwen_3_8_gets_a_level_or_a_budget(settings: ModelSettings, expected: dict[str, Any]) -> None:
    """QwenLM/qwen-code#8472: DashScope rejects `reasoning_effort` together with `thinking_budget`."""
    fields = request_fields("qwen", settings, model="qwen3.8-max")
    assert {name: value for name, value in fields.items() if name != "preserve_thinking"} == expected


@given(st.sampled_from(EFFORTS), st.lists(st.sampled_from((*EFFORTS, "default")), unique=True).map(tuple))
def test_a_level_is_rounded_to_the_nearest_but_not_to_none(level: str, known: tuple[str, ...]) -> None:
    nearest = nearest_effort(level, known)
    on = [name for name in known if name in EFFORTS and name != "none"]
    if level in known:
        assert nearest == level
    elif level == "none" or not on:
        assert nearest is None
    else:
        assert nearest in on
        away = abs(EFFORTS.index(nearest or "") - EFFORTS.index(level))
        assert all(away <= abs(EFFORTS.index(name) - EFFORTS.index(level)) for name in on)


# --- tools and output --------------------------------------------------------------------------------------------

F = ToolDefinition("f", {"type": "object", "properties": {"x": {"type": "integer"}}}, "Does f.", strict=True)
G, H = ToolDefinition("g"), ToolDefinition("h")


def test_tools_are_sent_as_functions() -> None:
    f, g = request(tools=(F, G))["tools"]
    assert f == {
        "type": "function",
        "function": {"name": "f", "description": "Does f.", "parameters": F.parameters_json_schema, "strict": True},
    }
    assert g == {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    ("choice", "names", "expected"),
    [
        (ToolChoice(), "fgh", None),
        (ToolChoice("none"), "fgh", "none"),
        (ToolChoice("required"), "fgh", "required"),
        (ToolChoice("required", ("g",)), "fgh", {"type": "function", "function": {"name": "g"}}),
        (ToolChoice("required", ("f", "g")), "fg", "required"),
        (ToolChoice("auto", ("g",)), "g", None),
        (ToolChoice("none", ("g",)), "fgh", "none"),
    ],
)
def test_tool_choice(choice: ToolChoice, names: str, expected: Any) -> None:
    body = request(tools=(F, G, H), tool_choice=choice)
    assert "".join(tool["function"]["name"] for tool in body["tools"]) == names
    assert body.get("tool_choice") == expected


def test_a_choice_of_an_unknown_tool_is_refused() -> None:
    for choice in (ToolChoice("required", ("f", "x")), ToolChoice("auto", ("x",))):
        with pytest.raises(RequestError, match="tool_choice names x; the tools are: f, g"):
            request(tools=(F, G), tool_choice=choice)


def test_a_choice_without_tools_is_not_sent() -> None:
    assert "tool_choice" not in request(tool_choice=ToolChoice("required"))


def test_output_format() -> None:
    schema = {"type": "object"}
    assert "response_format" not in request()
    assert request(output=OutputFormat("json_object"))["response_format"] == {"type": "json_object"}
    assert request(output=OutputFormat("json_schema", schema=schema))["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": schema},
    }
    whole = OutputFormat("json_schema", "city", schema, "A city.", strict=True)
    assert request(output=whole)["response_format"]["json_schema"] == {
        "name": "city", "schema": schema, "description": "A city.", "strict": True,
    }  # fmt: skip


# --- messages ----------------------------------------------------------------------------------------------------


def messages(
    *parts: ModelRequestPart, row: str = "openai-compat", instructions: str | None = None
) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = request(row, messages=[ModelRequest(list(parts), instructions)])["messages"]
    return sent


def test_instructions_come_first_in_the_role_that_the_provider_supports() -> None:
    system, developer = SystemPromptPart("a"), SystemPromptPart("b", role="developer")
    sent = messages(system, developer, UserPromptPart("u"), instructions="i")
    assert [(m["role"], m["content"]) for m in sent] == [
        ("system", "i"),
        ("system", "a"),
        ("system", "b"),
        ("user", "u"),
    ]
    sent = messages(system, developer, row="openai", instructions="i")
    assert [(m["role"], m["content"]) for m in sent] == [("developer", "i"), ("system", "a"), ("developer", "b")]


def test_a_user_message_may_have_a_name() -> None:
    assert messages(UserPromptPart("a", name="ann")) == [{"role": "user", "content": "a", "name": "ann"}]


CONTENT: list[tuple[UserContent, dict[str, Any]]] = [
    (Text("a"), {"type": "text", "text": "a"}),
    (Image("http://i"), {"type": "image_url", "image_url": {"url": "http://i"}}),
    (Image(data="AA==", media_type="image/jpeg", detail="low"),
     {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AA==", "detail": "low"}}),
    (Image(data="AA=="), {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
    (Audio("AA==", "audio/mpeg"), {"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}),
    (Audio("AA==", "audio/x-wav"), {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
    (Audio("AA=="), {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}}),
    (File(data="AA==", media_type="application/pdf", filename="a.pdf"),
     {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}),
    (File(file_id="file-1"), {"type": "file", "file": {"file_id": "file-1"}}),
    (File("http://f"), {"type": "file", "file": {"file_data": "http://f"}}),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), CONTENT)
def test_user_content(content: UserContent, expected: dict[str, Any]) -> None:
    (message,) = messages(UserPromptPart([Text("see"), content]))
    assert message["content"] == [{"type": "text", "text": "see"}, expected]


@pytest.mark.parametrize(
    "content", [Video("http://v"), Audio(url="http://a"), Image(file_id="file-1"), Image(), File()]
)
def test_content_that_the_wire_cannot_carry_is_refused(content: UserContent) -> None:
    with pytest.raises(RequestError) as refused:
        messages(UserPromptPart([content]))
    assert refused.value.info.kind == "unsupported"


def test_tool_results_and_retries() -> None:
    sent = messages(
        ToolReturnPart("f", "text", "c1"),
        ToolReturnPart("f", {"a": [1, None]}, "c2"),
        ToolReturnPart("f", None, "c3"),
        RetryPromptPart("try again", tool_name="f", tool_call_id="c4"),
        RetryPromptPart("try again"),
    )
    assert sent == [
        {"role": "tool", "tool_call_id": "c1", "content": "text"},
        {"role": "tool", "tool_call_id": "c2", "content": '{"a":[1,null]}'},
        {"role": "tool", "tool_call_id": "c3", "content": ""},
        {"role": "tool", "tool_call_id": "c4", "content": "try again"},
        {"role": "user", "content": "try again"},
    ]


def test_a_response_with_calls_and_no_text() -> None:
    calls = [ToolCallPart("f", {"x": 1}, "c1"), ToolCallPart("g", None, "c2"), ToolCallPart("h", "{'bad", "c3")]
    (message,) = request(messages=[ModelResponse([*calls])])["messages"]
    assert message["content"] is None
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == ['{"x":1}', "{}", "{'bad"]


def test_several_text_parts_are_one_content() -> None:
    (message,) = request(messages=[ModelResponse([TextPart("a"), TextPart("b")])])["messages"]
    assert message == {"role": "assistant", "content": "ab"}


def test_messages_keep_their_order() -> None:
    history = [HELLO, ModelResponse([TextPart("a")]), ModelRequest([UserPromptPart("b")])]
    assert [message["role"] for message in request(messages=history)["messages"]] == ["user", "assistant", "user"]
