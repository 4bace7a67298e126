"""Requests of Chat Completions: what each field becomes, and the errors of wrong values."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    File,
    Image,
    ModelRequest,
    ModelResponse,
    RefusalPart,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    Video,
)
from pellucid.protocols.chat_completions import Request, parse_request
from pellucid.protocols.chat_completions.types import CreateChatCompletion
from pellucid.settings import OutputFormat, ToolChoice, ToolDefinition
from tests.cases import Cases

HI = [{"role": "user", "content": "Hi"}]


def request(**body: Any) -> Request:
    return parse_request(json.dumps({"messages": HI, **body}).encode())


def request_error(body: Any) -> RequestError:
    with pytest.raises(RequestError) as wrong:
        parse_request(body if isinstance(body, bytes) else json.dumps({"messages": HI, **body}).encode()).call()
    return wrong.value


def assistant_parts(**fields: Any) -> list[Any]:
    """The parts of one assistant message."""
    messages = request(messages=[*HI, {"role": "assistant", **fields}, *HI]).messages
    return [part for message in messages if isinstance(message, ModelResponse) for part in message.parts]


# --- messages ------------------------------------------------------------------------------------------------------


def test_every_role_has_its_part() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "Hi", "name": "ann"},
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "rain"}]},
        {"role": "assistant", "content": "", "function_call": {"name": "g", "arguments": ""}},
        {"role": "function", "name": "g", "content": "sun"},
        {"role": "assistant", "content": [{"type": "text", "text": "Well,"}, {"type": "refusal", "refusal": "no."}]},
    ]
    id = "messages_5_call"
    assert request(messages=messages).messages == [
        ModelRequest(
            [
                SystemPromptPart("Be kind."),
                SystemPromptPart("Be\nbrief.", "developer"),
                UserPromptPart("Hi", "ann"),
            ]
        ),
        ModelResponse([ThinkingPart("Hm."), ToolCallPart("f", "{}", "c1")]),
        ModelRequest([ToolReturnPart("f", "rain", "c1")]),
        ModelResponse([ToolCallPart("g", "", id)]),
        ModelRequest([ToolReturnPart("g", "sun", id)]),
        ModelResponse([TextPart("Well,"), RefusalPart("no.")]),
    ]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, Text("a")),
        ({"type": "image_url", "image_url": {"url": "https://e.org/i"}}, Image(url="https://e.org/i")),
        (
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "low"}},
            Image(url="data:image/png;base64,aGk=", detail="low"),
        ),
        ({"type": "video_url", "video_url": {"url": "https://e.org/v"}}, Video(url="https://e.org/v")),
        ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, Audio("aGk=", "audio/wav")),
        ({"type": "file", "file": {"file_id": "f1"}}, File(file_id="f1")),
        (
            {"type": "file", "file": {"file_data": "data:application/pdf;base64,aGk=", "filename": "a.pdf"}},
            File(data="aGk=", media_type="application/pdf", filename="a.pdf"),
        ),
        ({"type": "file", "file": {"file_data": "https://e.org/a.pdf"}}, File(url="https://e.org/a.pdf")),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_user_content_of_every_type(content: Any, part: Any) -> None:
    [message] = request(messages=[{"role": "user", "content": [content]}]).messages
    assert message == ModelRequest([UserPromptPart([part])])


# --- returned reasoning --------------------------------------------------------------------------------------------


def text_detail(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning.text", "text": content, **more}


def encrypted_detail(data: str, id: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": "reasoning.encrypted", "data": data, "id": id, "format": "pellucid-v1", **more}


@pytest.mark.parametrize(
    "message",
    [
        {"reasoning_content": "Hm."},
        {"reasoning": "Hm."},
        {"reasoning_content": "Hm.", "reasoning": "Hm."},
        {"reasoning_content": "Hm.", "reasoning": ""},
        {"reasoning_content": None, "reasoning_details": [text_detail("Hm.")]},
        {
            "reasoning_content": "Hm.",
            "reasoning": "Hm.",
            "reasoning_details": [text_detail("Hm.", signature="s", index=0)],
        },
        {
            "reasoning": "Hm.",
            "reasoning_details": [text_detail("H", index=0), text_detail("m", index=0), text_detail(".", index=0)],
        },
    ],
)
def test_reasoning_sent_in_several_fields_is_one_thought(message: Any) -> None:
    assert assistant_parts(content="a", **message) == [ThinkingPart("Hm."), TextPart("a")]


def test_reasoning_text_that_no_detail_has_is_a_thought_of_its_own() -> None:
    details = [{"type": "reasoning.summary", "summary": "In short."}]
    thoughts = [ThinkingPart("In short.", form="summary"), ThinkingPart("At length.")]
    assert assistant_parts(reasoning="In short.\n\nAt length.", reasoning_details=details) == thoughts
    assert assistant_parts(reasoning_content="At length.", reasoning_details=details) == thoughts
    assert assistant_parts(reasoning="In short.", reasoning_details=details) == thoughts[:1]


def test_sealed_tokens_are_sealed_parts_and_replace_the_readable_thought() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    details = [
        encrypted_detail("T1", "rs_1", index=0),
        encrypted_detail("T2", "msg_2", index=1),
        encrypted_detail("T3", "fc_3", index=2),
    ]
    parts = assistant_parts(
        reasoning="Hm.", content="a", tool_calls=[call], reasoning_details=[text_detail("Hm."), *details]
    )
    assert parts == [
        SealedPart("T1", "rs_1", ("Hm.",)),
        SealedPart("T2", "msg_2"),
        TextPart("a", item_id="msg_2"),
        SealedPart("T3", "fc_3"),
        ToolCallPart("f", "{}", "c1"),
    ]


def test_the_sealed_token_of_a_call_does_not_replace_the_thought() -> None:
    parts = assistant_parts(reasoning="Hm.", content="a", reasoning_details=[encrypted_detail("T", "fc_1")])
    assert parts == [ThinkingPart("Hm."), TextPart("a"), SealedPart("T", "fc_1")]


def test_a_token_without_an_id_belongs_to_the_thought() -> None:
    detail = {"type": "reasoning.encrypted", "data": "T"}
    assert assistant_parts(reasoning="Hm.", reasoning_details=[detail]) == [SealedPart("T", visible_texts=("Hm.",))]


def test_foreign_encrypted_data_is_refused_and_unknown_details_are_ignored() -> None:
    foreign = encrypted_detail("blob", "rs_1") | {"format": "openai-responses-v1"}
    error = request_error({"messages": [*HI, {"role": "assistant", "reasoning_details": [foreign]}]})
    assert error.info.param == "messages[1].reasoning_details[0].data"
    assert error.info.code == "invalid_encrypted_content"
    assert "openai-responses-v1" in error.info.message
    assert assistant_parts(content="a", reasoning_details=[{"type": "reasoning.new", "x": 1}]) == [TextPart("a")]


# --- settings ------------------------------------------------------------------------------------------------------


SETTINGS: list[tuple[Any, Any]] = [
    ({"max_tokens": 5}, {"max_tokens": 5}),
    ({"max_tokens": 5, "max_completion_tokens": 6}, {"max_tokens": 6}),
    ({"temperature": 0.5, "top_p": 0.9, "top_k": 3}, {"temperature": 0.5, "top_p": 0.9, "top_k": 3}),
    ({"presence_penalty": 1, "frequency_penalty": -1}, {"presence_penalty": 1.0, "frequency_penalty": -1.0}),
    ({"seed": 7, "logit_bias": {"5": -100}}, {"seed": 7, "logit_bias": {"5": -100}}),
    ({"stop": "x"}, {"stop_sequences": ["x"]}),
    ({"stop": ["x", "y"]}, {"stop_sequences": ["x", "y"]}),
    ({"stop": []}, {}),
    ({"logprobs": True, "top_logprobs": 2}, {"logprobs": True, "top_logprobs": 2}),
    ({"logprobs": False}, {}),
    ({"user": "u", "prompt_cache_key": "k"}, {"user": "u", "cache_key": "k"}),
    ({"user": "u", "safety_identifier": "s"}, {"user": "s"}),
    ({"verbosity": "low", "service_tier": "flex"}, {"verbosity": "low", "service_tier": "flex"}),
    ({"parallel_tool_calls": False}, {}),
    ({"store": True, "metadata": {"a": "b"}, "n": 1, "modalities": ["text"], "who": "knows"}, {}),
    ({"reasoning_effort": "high"}, {"thinking": "high"}),
    ({"reasoning_effort": "none"}, {"thinking": False}),
    ({"reasoning": {"effort": "low", "summary": "auto"}}, {"thinking": "low", "thinking_summary": "auto"}),
    ({"reasoning": {"effort": "low"}, "reasoning_effort": "low"}, {"thinking": "low"}),
    ({"reasoning": {"max_tokens": 2000}}, {"thinking_budget": 2000}),
    ({"reasoning": {"enabled": True}}, {"thinking": True}),
    ({"reasoning": {"enabled": False}}, {"thinking": False}),
    ({"reasoning": {"exclude": True}}, {}),
]


def test_settings_are_read() -> None:
    with Cases() as case:
        for body, settings in SETTINGS:
            with case(f"{body}, {settings}"):
                assert request(**body).call().settings == settings


@pytest.mark.parametrize(
    ("body", "exclude"),
    [
        ({}, False),
        ({"include_reasoning": True}, False),
        ({"include_reasoning": False}, True),
        ({"reasoning": {"exclude": True}}, True),
        ({"reasoning": {"exclude": False}, "include_reasoning": False}, False),
    ],
)
def test_a_request_can_exclude_reasoning(body: Any, exclude: bool) -> None:
    assert request(**body).view == ("hidden" if exclude else None)


def test_stream_options_are_read() -> None:
    plain = request(model="m")
    assert (plain.model, plain.stream, plain.include_usage, plain.obfuscate) == ("m", False, False, False)
    assert plain.body.reasoning_fields is None
    options = {"include_usage": True, "include_obfuscation": True}
    streamed = request(stream=True, stream_options=options, reasoning_fields="reasoning")
    assert (streamed.model, streamed.stream, streamed.include_usage, streamed.obfuscate) == (None, True, True, True)
    assert streamed.body.reasoning_fields == "reasoning"


def test_response_formats_are_read() -> None:
    assert request(response_format={"type": "text"}).call().output == OutputFormat()
    assert request(response_format={"type": "json_object"}).call().output == OutputFormat("json_object")
    form = {"name": "n", "schema": {"type": "object"}, "strict": True, "description": "d"}
    assert request(response_format={"type": "json_schema", "json_schema": form}).call().output == OutputFormat(
        "json_schema", "n", {"type": "object"}, "d", True
    )


# --- tools ---------------------------------------------------------------------------------------------------------


def function_tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


def test_tools_and_every_choice() -> None:
    tools = [function_tool("f", description="d", parameters={"type": "object"}, strict=True), function_tool("g")]
    f, g = ToolDefinition("f", {"type": "object"}, "d", True), ToolDefinition("g")

    def parse_choice(choice: Any) -> Any:
        call = request(tools=tools, tool_choice=choice).call()
        return call.tools, call.tool_choice

    assert parse_choice(None) == parse_choice("auto") == ((f, g), ToolChoice())
    assert parse_choice("none") == ((f, g), ToolChoice("none"))
    assert parse_choice("required") == ((f, g), ToolChoice("required"))
    assert parse_choice(function_tool("g")) == ((f, g), ToolChoice("required", ("g",)))
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [function_tool("g")]}}
    assert parse_choice(allowed) == ((g,), ToolChoice("required"))
    assert request(tools=tools, parallel_tool_calls=False).call().settings == {"parallel_tool_calls": False}


# --- errors --------------------------------------------------------------------------------------------------------

DEEP: Any = {}
for _ in range(200):
    DEEP = {"a": DEEP}


CALLS = {
    "role": "assistant",
    # Some models give several calls the same id.
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}] * 2,
}
RESULT = {"role": "tool", "content": "x", "tool_call_id": "c"}


WRONG: list[tuple[Any, str | None, str]] = [
    (b"{", None, "invalid_json"),
    (b"[]", None, "invalid_type"),
    (b"{}", "messages", "missing"),
    ({"messages": []}, "messages", "missing"),
    ({"messages": [{"content": "x"}]}, "messages[0].role", "missing"),
    ({"messages": [{"role": "boss", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_value"),
    (
        {"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}]},
        "messages[0].content[0].type",
        "invalid_value",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {}}]}]},
        "messages[0].content[0].file.file_data",
        "invalid_value",
    ),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "missing"),
    (
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]},
        "messages[0].tool_call_id",
        "invalid_value",
    ),
    ({"messages": [CALLS, RESULT, RESULT, RESULT]}, "messages[3].tool_call_id", "invalid_value"),
    ({"messages": [{"role": "function", "content": "x", "name": "f"}]}, "messages[0].name", "invalid_value"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {}}]}]},
        "messages[0].tool_calls[0].type",
        "invalid_value",
    ),
    ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio", "invalid_value"),
    ({"messages": [{"role": "assistant", "reasoning": {}}]}, "messages[0].reasoning", "invalid_value"),
    ({"n": 2}, "n", "unsupported_parameter"),
    ({"n": 0}, "n", "invalid_value"),
    ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
    ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
    ({"functions": [{"name": "f"}]}, "functions", "unsupported_parameter"),
    ({"function_call": {"name": "f"}}, "function_call", "unsupported_parameter"),
    ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
    ({"moderation": {"model": "x"}}, "moderation", "unsupported_parameter"),
    ({"temperature": 3}, "temperature", "invalid_value"),
    ({"reasoning_effort": "tiny"}, "reasoning_effort", "invalid_value"),
    ({"reasoning_effort": "low", "reasoning": {"effort": "high"}}, "reasoning.effort", "invalid_value"),
    ({"reasoning": {"enabled": False, "effort": "high"}}, "reasoning.enabled", "invalid_value"),
    ({"reasoning": {"enabled": False, "max_tokens": 5}}, "reasoning.enabled", "invalid_value"),
    ({"reasoning": {"effort": "none", "max_tokens": 5}}, "reasoning.max_tokens", "invalid_value"),
    ({"reasoning_fields": "none"}, "reasoning_fields", "invalid_value"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "invalid_value"),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}},
        "response_format.json_schema.schema",
        "invalid_value",
    ),
    ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type", "unsupported_tool"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "missing"),
    ({"tools": [function_tool("a b")]}, "tools[0].function.name", "invalid_value"),
    ({"tools": [function_tool("f", parameters=DEEP)]}, "tools[0].function.parameters", "invalid_value"),
    ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
    ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    ({"tools": [function_tool("f")], "tool_choice": function_tool("g")}, "tool_choice", "invalid_value"),
    ({"tools": [function_tool("f")], "tool_choice": {"type": "custom", "custom": {}}}, "tool_choice", "invalid_value"),
    (
        {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": [function_tool("f")]}}},
        "tool_choice.allowed_tools.mode",
        "invalid_value",
    ),
]


def test_an_error_names_its_location() -> None:
    with Cases() as case:
        for body, param, code in WRONG:
            with case(f"{body}, {param}, {code}"):
                info = request_error(body).info
                assert (info.param, info.code) == (param, code)
                if param is not None:
                    assert info.message.startswith(f"{param}: ")


def test_an_error_lists_the_accepted_content_types() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "pic"}]
    assert "'text', 'image_url', 'video_url', 'input_audio', 'file'" in str(
        request_error({"messages": [{"role": "user", "content": content}]})
    )
    assert "'text', 'refusal'" in str(request_error({"messages": [{"role": "assistant", "content": content}]}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = sorted(field.encode_name for field in msgspec.structs.fields(CreateChatCompletion))


def error_of(body: Any) -> RequestError | None:
    try:
        parse_request(body if isinstance(body, bytes) else json.dumps(body).encode())
    except RequestError as error:
        return error
    return None


@given(st.binary())
def test_any_bytes_are_a_request_or_an_error(data: bytes) -> None:
    assert error_of(data) is not None


@given(st.dictionaries(st.sampled_from(NAMES), json_values))
def test_any_body_is_a_request_or_an_error(body: Any) -> None:
    error = error_of({"messages": HI, **body})
    assert error is None or error.info.message


@given(st.dictionaries(st.sampled_from(["content", "reasoning", "reasoning_details", "tool_calls"]), json_values))
def test_any_message_is_parsed_or_refused_with_its_path(message: Any) -> None:
    error = error_of({"messages": [*HI, {"role": "assistant", **message}]})
    assert error is None or (error.info.param or "").startswith("messages[1]")
