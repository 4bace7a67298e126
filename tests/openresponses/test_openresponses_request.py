"""Any body is a request or an error; accepted fields take effect and are echoed in the response."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo, RequestError
from pellucid.parts import (
    Audio,
    File,
    Image,
    ModelMessage,
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
from pellucid.protocols.decoding import MAX_DEPTH
from pellucid.protocols.errors import status_of
from pellucid.protocols.openresponses import KnownCall, ReferenceContext, error_body, parse_request
from pellucid.settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from tests.cases import Cases
from tests.openresponses.openresponses_kit import (
    NOW,
    Answer,
    call_chunks,
    final_chunks,
    reasoning_chunks,
    request,
    schemas,
    text_chunks,
)

F = {"type": "function", "name": "f", "description": "does f", "parameters": {"type": "object"}, "strict": True}
G = {"type": "function", "name": "g"}


def error_info(body: Any) -> ErrorInfo:
    """The error of a refused body, after checking that it is a client error in the protocol's form."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(RequestError) as caught:
        model_call_of(data)
    info = caught.value.info
    assert status_of(info) == (404 if info.kind == "not_found" else 400)
    assert set(error_body(info)["error"]) == {"message", "type", "param", "code"}
    assert error_body(info)["error"]["code"]
    return info


def model_call_of(data: bytes) -> ModelCall:
    parsed = parse_request(data)
    return parsed.call(parsed.messages())


def model_call(**body: Any) -> ModelCall:
    """The model call of a request without history."""
    parsed = request(**body)
    return parsed.call(parsed.messages())


def echo(**body: Any) -> dict[str, Any]:
    """The response resource for this request, after checking it against both documents."""
    whole: dict[str, Any] = json.loads(msgspec.json.encode(request(**body).response("resp_1", "m", NOW)))
    for schema, name in zip(schemas(), ("Response", "ResponseResource"), strict=False):
        assert schema.errors(name, whole) == []
    return whole


# --- fields ----------------------------------------------------------------------------------------------------------

DEFAULTS: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": NOW,
    "completed_at": None,
    "status": "in_progress",
    "incomplete_details": None,
    "model": "m",
    "previous_response_id": None,
    "instructions": None,
    "output": [],
    "error": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": None,
    "usage": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": False,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}


def test_a_minimal_request_is_echoed_with_every_required_key_and_its_default() -> None:
    assert len(DEFAULTS) > 30
    assert echo() == DEFAULTS


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
JSON_SCHEMA = {"type": "json_schema", "name": "n", "description": "d", "schema": SCHEMA, "strict": True}

# field, a value, the echo where it differs from the value, the settings that result
ACCEPTED: list[tuple[str, Any, Any, Any]] = [
    ("instructions", "Be brief.", ..., {}),
    ("temperature", 0.5, ..., {"temperature": 0.5}),
    ("temperature", 2, ..., {"temperature": 2.0}),
    ("top_p", 0.25, ..., {"top_p": 0.25}),
    ("presence_penalty", -2.0, ..., {"presence_penalty": -2.0}),
    ("frequency_penalty", 2.0, ..., {"frequency_penalty": 2.0}),
    ("top_logprobs", 3, ..., {"logprobs": True, "top_logprobs": 3}),
    ("max_output_tokens", 16, ..., {"max_tokens": 16}),
    ("max_tool_calls", 1, ..., {}),
    ("parallel_tool_calls", False, ..., {}),
    ("service_tier", "flex", ..., {"service_tier": "flex"}),
    ("metadata", {"k" * 64: "v" * 512}, ..., {}),
    ("safety_identifier", "u" * 64, ..., {"user": "u" * 64}),
    ("prompt_cache_key", "c", ..., {"cache_key": "c"}),
    ("truncation", "auto", ..., {}),
    ("store", True, False, {}),
    ("background", False, ..., {}),
    ("reasoning", {"effort": "low"}, {"effort": "low", "summary": None}, {"thinking": "low"}),
    ("reasoning", {"effort": "none"}, {"effort": "none", "summary": None}, {"thinking": False}),
    # Accepted, but the specification has no such value for the response.
    ("reasoning", {"effort": "minimal"}, {"effort": "low", "summary": None}, {"thinking": "minimal"}),
    ("reasoning", {"effort": "max"}, {"effort": "xhigh", "summary": None}, {"thinking": "max"}),
    ("reasoning", {"summary": "auto"}, {"effort": None, "summary": "auto"}, {"thinking_summary": "auto"}),
    ("reasoning", {"generate_summary": "concise"}, {"effort": None, "summary": "concise"}, ...),
    ("text", {"verbosity": "low"}, {"format": {"type": "text"}, "verbosity": "low"}, {"verbosity": "low"}),
    ("text", {"format": {"type": "json_object"}}, ..., {}),
    # The published schema allows only null for the schema in a response.
    ("text", {"format": JSON_SCHEMA}, {"format": {**JSON_SCHEMA, "schema": None}}, {}),
    ("tools", [F], ..., {}),
    ("tools", [G], [{**G, "description": None, "parameters": None, "strict": None}], {}),
]


def test_a_field_is_accepted_honoured_and_echoed() -> None:
    with Cases() as case:
        for field, value, echoed, settings in ACCEPTED:
            with case(f"{field}: {value}"):
                body = {field: value}
                assert echo(**body) == DEFAULTS | {field: value if echoed is ... else echoed}
                if settings is not ...:
                    assert model_call(**body).settings == settings
                # null is equal to an absent field.
                assert echo(**{field: None}) == DEFAULTS


def test_fields_without_an_echo_are_accepted() -> None:
    assert request(stream=True).stream
    assert not request(stream=False).stream
    assert request(stream_options={"include_obfuscation": True}).obfuscate
    assert model_call(user="u").settings == {"user": "u"}
    assert request(model="some/model").model == "some/model"
    assert model_call(include=["reasoning.encrypted_content"]).settings == {}
    with_logprobs = model_call(include=["message.output_text.logprobs"]).settings
    assert with_logprobs == {"logprobs": True, "top_logprobs": 0}
    assert model_call(parallel_tool_calls=False, tools=[F]).settings == {"parallel_tool_calls": False}
    assert model_call(field_of_tomorrow={"x": 1}) == model_call()


# field, a value, the path of the error, the accepted values that the message names
WRONG: list[tuple[str, Any, str, str]] = [
    ("model", 5, "model", "str"),
    ("input", 5, "input", "str"),
    ("input", "x" * 10_485_761, "input", "10485760"),
    ("instructions", ["x"], "instructions", "str"),
    ("temperature", "hot", "temperature", "float"),
    ("temperature", True, "temperature", "float"),
    ("temperature", 2.1, "temperature", "<= 2"),
    ("temperature", -0.1, "temperature", ">= 0"),
    ("top_p", 1.5, "top_p", "<= 1"),
    ("top_p", [], "top_p", "float"),
    ("presence_penalty", -2.5, "presence_penalty", ">= -2"),
    ("presence_penalty", "", "presence_penalty", "float"),
    ("frequency_penalty", 3, "frequency_penalty", "<= 2"),
    ("frequency_penalty", {}, "frequency_penalty", "float"),
    ("top_logprobs", 21, "top_logprobs", "<= 20"),
    ("top_logprobs", -1, "top_logprobs", ">= 0"),
    ("top_logprobs", 1.5, "top_logprobs", "int"),
    ("max_output_tokens", 15, "max_output_tokens", ">= 16"),
    ("max_output_tokens", "16", "max_output_tokens", "int"),
    ("max_tool_calls", 0, "max_tool_calls", ">= 1"),
    ("max_tool_calls", "1", "max_tool_calls", "int"),
    ("parallel_tool_calls", "yes", "parallel_tool_calls", "bool"),
    ("stream", 1, "stream", "bool"),
    ("stream_options", True, "stream_options", "object"),
    ("stream_options", {"include_obfuscation": "y"}, "stream_options.include_obfuscation", "bool"),
    ("store", "no", "store", "bool"),
    ("background", "no", "background", "bool"),
    ("service_tier", "gold", "service_tier", "'priority'"),
    ("service_tier", 1, "service_tier", "str"),
    ("truncation", "some", "truncation", "'disabled'"),
    ("truncation", True, "truncation", "str"),
    ("metadata", {"k" * 65: "v"}, "metadata", "<= 64"),
    ("metadata", {"k": "v" * 513}, "metadata[...]", "<= 512"),
    ("metadata", {str(at): "v" for at in range(17)}, "metadata", "<= 16"),
    ("metadata", {"k": 5}, "metadata[...]", "str"),
    ("safety_identifier", "u" * 65, "safety_identifier", "<= 64"),
    ("safety_identifier", 5, "safety_identifier", "str"),
    ("prompt_cache_key", "c" * 65, "prompt_cache_key", "<= 64"),
    ("prompt_cache_key", 5, "prompt_cache_key", "str"),
    ("user", 5, "user", "str"),
    ("reasoning", "high", "reasoning", "object"),
    ("reasoning", {"effort": "some"}, "reasoning.effort", "'minimal'"),
    ("reasoning", {"effort": 3}, "reasoning.effort", "str"),
    ("reasoning", {"summary": "long"}, "reasoning.summary", "'detailed'"),
    ("include", "reasoning.encrypted_content", "include", "array"),
    ("include", ["file_search_call.everything"], "include[0]", "'reasoning.encrypted_content'"),
    ("text", "json", "text", "object"),
    ("text", {"format": {"type": "xml"}}, "text.format.type", "'json_schema'"),
    ("text", {"verbosity": "mid"}, "text.verbosity", "'medium'"),
    ("text", {"format": {"type": "json_schema", "schema": []}}, "text.format.schema", "object"),
    ("tools", {}, "tools", "array"),
    ("tools", [5], "tools[0]", "object"),
    ("tools", [F, {"type": "function"}], "tools[1].name", "required"),
    ("tools", [{**F, "name": "two words"}], "tools[0].name", "a-zA-Z0-9_-"),
    ("tools", [{**F, "name": "n" * 65}], "tools[0].name", "<= 64"),
    ("tools", [{**F, "parameters": "x"}], "tools[0].parameters", "object"),
    ("tool_choice", "any", "tool_choice", "'required'"),
    ("tool_choice", 5, "tool_choice", "'required'"),
]


def test_an_error_names_the_path_and_the_accepted_values() -> None:
    with Cases() as case:
        for field, value, path, expected in WRONG:
            with case(f"{field}: {str(value)[:40]}"):
                info = error_info({"input": "Hi", field: value})
                assert info.param == path
                assert info.message.startswith(f"{path}: ")
                assert expected in info.message


def test_an_input_is_required() -> None:
    bodies: tuple[dict[str, Any], ...] = ({}, {"input": None}, {"input": []})
    for body in bodies:
        assert (error_info(body).param, error_info(body).code) == ("input", "missing"), body


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"previous_response_id": "resp_1", "conversation": "conv_1"}, "previous_response_id"),
        ({"background": True, "store": False}, "background"),
    ],
)
def test_fields_that_exclude_each_other_are_refused(body: dict[str, Any], param: str) -> None:
    info = error_info({"input": "Hi", **body})
    assert (info.kind, info.param) == ("invalid_request", param)
    assert all(name in info.message for name in body)


@pytest.mark.parametrize("body", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_a_continued_conversation_needs_no_input(body: dict[str, Any]) -> None:
    assert request(input=None, **body).messages() == []


# --- tools -----------------------------------------------------------------------------------------------------------

OFFERED = (ToolDefinition("f", {"type": "object"}, "does f", True), ToolDefinition("g"))
ALLOWED = {"type": "allowed_tools", "tools": [{"type": "function", "name": "g"}]}


@pytest.mark.parametrize(
    ("choice", "offered", "expected_choice", "echoed"),
    [
        (None, OFFERED, ToolChoice(), "auto"),
        ("auto", OFFERED, ToolChoice(), "auto"),
        ("none", OFFERED, ToolChoice("none"), "none"),
        ("required", OFFERED, ToolChoice("required"), "required"),
        ({"type": "function", "name": "g"}, OFFERED, ToolChoice("required", ("g",)), ...),
        (ALLOWED, OFFERED[1:], ToolChoice(), {**ALLOWED, "mode": "auto"}),
        ({**ALLOWED, "mode": "required"}, OFFERED[1:], ToolChoice("required"), ...),
        ({**ALLOWED, "mode": None, "more": 1}, OFFERED[1:], ToolChoice(), {**ALLOWED, "mode": "auto"}),
    ],
)
def test_tool_choice_in_all_its_forms(choice: Any, offered: Any, expected_choice: ToolChoice, echoed: Any) -> None:
    call = model_call(tools=[F, G], tool_choice=choice)
    assert (call.tools, call.tool_choice) == (offered, expected_choice)
    whole = echo(tools=[F, G], tool_choice=choice)
    assert whole["tool_choice"] == (choice if echoed is ... else echoed)
    assert [tool["name"] for tool in whole["tools"]] == ["f", "g"]


_NO_NAMES: tuple[Any, ...] = ("h", None, ["f"], {}, 5)
_NO_TOOLS: tuple[Any, ...] = ([], ["f"], [None], {}, None)
_NO_MODES: tuple[Any, ...] = ("some", [], 5)
IMPOSSIBLE: list[Any] = [
    *({"type": "function", "name": name} for name in _NO_NAMES),
    *({"type": "allowed_tools", "tools": [{"type": "function", "name": name}]} for name in ("h", ["f"], None)),
    *({"type": "allowed_tools", "tools": tools} for tools in _NO_TOOLS),
    *({**ALLOWED, "mode": mode} for mode in _NO_MODES),
    *({"type": "function"}, {"type": "file_search"}, {}, [], ["auto"], {"type": "function", "function": F}),
]


def test_an_impossible_tool_choice_is_refused() -> None:
    with Cases() as case:
        for choice in IMPOSSIBLE:
            with case(choice):
                info = error_info({"input": "Hi", "tools": [F, G], "tool_choice": choice})
                assert str(info.param).startswith("tool_choice")


def test_a_required_call_needs_a_tool() -> None:
    assert error_info({"input": "Hi", "tool_choice": "required"}).param == "tool_choice"


@pytest.mark.parametrize("where", ["tools[0].parameters", "text.format.schema"])
def test_the_depth_of_a_schema_is_limited(where: str) -> None:
    def body(depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        for _ in range(depth - 1):
            schema = {"a": schema}
        if where.startswith("tools"):
            return {"tools": [{**F, "parameters": schema}]}
        return {"text": {"format": {**JSON_SCHEMA, "schema": schema}}}

    assert request(**body(MAX_DEPTH))
    assert error_info({"input": "Hi", **body(MAX_DEPTH + 1)}).param == where


# --- input -----------------------------------------------------------------------------------------------------------


def messages(*items: Any, **body: Any) -> list[ModelMessage]:
    return model_call(input=list(items), **body).messages


def test_a_text_is_a_user_message_after_the_instructions() -> None:
    assert model_call(instructions="Be brief.").messages == [
        ModelRequest([SystemPromptPart("Be brief."), UserPromptPart("Hi")])
    ]


@pytest.mark.parametrize("type_", [{}, {"type": "message"}, {"type": None}])
def test_messages_of_every_role_with_and_without_a_type(type_: Any) -> None:
    items = [{**type_, "role": role, "content": role} for role in ("system", "developer", "user", "assistant", "user")]
    assert messages(*items) == [
        ModelRequest(
            [SystemPromptPart("system"), SystemPromptPart("developer", "developer"), UserPromptPart("user")],
        ),
        ModelResponse([TextPart("assistant")]),
        ModelRequest([UserPromptPart("user")]),
    ]


CONTENT: list[tuple[dict[str, Any], Any]] = [
    ({"type": "input_text", "text": "t"}, Text("t")),
    ({"type": "text", "text": "t"}, Text("t")),
    (
        {"type": "input_image", "image_url": "https://e.org/i.png", "detail": "low"},
        Image("https://e.org/i.png", detail="low"),
    ),
    ({"type": "input_image", "file_id": "file_1"}, Image(file_id="file_1")),
    (
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        File(data="aGk=", media_type="application/pdf", filename="a.pdf"),
    ),
    ({"type": "input_file", "file_data": "aGk="}, File(data="aGk=")),
    ({"type": "input_file", "file_url": "https://e.org/a.pdf"}, File(url="https://e.org/a.pdf")),
    ({"type": "input_file", "file_id": "file_1"}, File(file_id="file_1")),
    ({"type": "input_video", "video_url": "https://e.org/v.mp4"}, Video("https://e.org/v.mp4")),
    ({"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}, Audio("aGk=", "audio/wav")),
]


def test_user_content_of_every_type() -> None:
    with Cases() as case:
        for content, part in CONTENT:
            with case(content):
                assert messages({"role": "user", "content": [content]}) == [ModelRequest([UserPromptPart([part])])]


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ({"type": "input_image"}, "image_url"),
        ({"type": "input_file", "filename": "a"}, "file_data"),
        ({"type": "refusal", "refusal": "no"}, "type"),
        ({"type": "reasoning_text", "text": "t"}, "type"),
    ],
)
def test_empty_content_and_content_of_other_roles_is_refused(content: Any, path: str) -> None:
    item = {"role": "user", "content": [{"type": "input_text", "text": "t"}, content]}
    assert error_info({"input": [item]}).param == f"input[0].content[1].{path}"


def test_an_assistant_s_content_is_text_and_refusals() -> None:
    content = [
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "no"},
    ]
    item = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": content}
    assert messages(item) == [ModelResponse([TextPart("a", item_id="msg_1"), RefusalPart("no", item_id="msg_1")])]
    wrong = {"role": "assistant", "content": [content[0], {"type": "input_image", "image_url": "https://e.org"}]}
    assert error_info({"input": [wrong]}).param == "input[0].content[1].type"


@pytest.mark.parametrize("role", ["system", "developer"])
def test_instructions_are_text(role: str) -> None:
    wrong = {"role": role, "content": [{"type": "input_image", "image_url": "https://e.org"}]}
    assert error_info({"input": [wrong]}).param == "input[0].content[0].type"


@pytest.mark.parametrize(
    ("item", "thoughts"),
    [
        ({"content": [{"type": "reasoning_text", "text": "t"}], "summary": []}, [ThinkingPart("t")]),
        (
            {"content": [{"type": "reasoning_text", "text": "t"}], "summary": [{"type": "summary_text", "text": "s"}]},
            [ThinkingPart("t")],
        ),
        ({"summary": [{"type": "summary_text", "text": "s"}]}, [ThinkingPart("s", form="summary")]),
        ({"summary": [], "content": None, "encrypted_content": None}, []),
        ({"summary": [], "encrypted_content": ""}, []),
        (
            {"status": "incomplete", "content": [{"type": "reasoning_text", "text": "t"}], "summary": []},
            [ThinkingPart("t", complete=False)],
        ),
    ],
)
def test_reasoning_is_parsed_from_its_content_or_else_its_summary(item: dict[str, Any], thoughts: Any) -> None:
    parsed_messages = messages({"type": "reasoning", "id": "rs_1", **item}, {"role": "assistant", "content": "a"})
    assert parsed_messages == [ModelResponse([*thoughts, TextPart("a")])]


@pytest.mark.parametrize(
    "item",
    [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
        {"type": "compaction"},
    ],
)
def test_a_sealed_token_takes_the_position_of_its_item_and_replaces_readable_text(item: dict[str, Any]) -> None:
    parsed_messages = messages(
        {**item, "id": "x_1", "encrypted_content": "token"}, {"role": "assistant", "content": "a"}
    )
    visible_texts = ("t",) if item["type"] == "reasoning" else ()
    assert parsed_messages == [ModelResponse([SealedPart("token", "x_1", visible_texts), TextPart("a")])]


def test_a_reference_is_replaced_by_its_item() -> None:
    known = ReferenceContext(
        {"c1": KnownCall("f")}, {"rs_1": [ModelResponse([ThinkingPart("t")])], "fc_2": [ModelResponse([TOOL])]}
    )
    parsed = request(
        input=[{"id": "rs_1"}, {"type": "item_reference", "id": "fc_2"}, RESULT, {**RESULT, "call_id": "c2"}]
    )
    assert parsed.references == ["rs_1", "fc_2"]
    assert parsed.messages(known) == [
        ModelResponse([ThinkingPart("t"), TOOL]),
        ModelRequest([ToolReturnPart("f", "42", "c1"), ToolReturnPart("g", "42", "c2")]),
    ]


TOOL = ToolCallPart("g", "{}", "c2")


CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "42"}
THOUGHT = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]}


def test_each_call_has_one_output() -> None:
    path, expected = "input[{}].call_id", "has its output already"
    for items, known, at in (
        ([CALL, RESULT, RESULT], ReferenceContext(), 2),
        ([RESULT], ReferenceContext({"c1": KnownCall("f", 0)}), 0),
        ([CALL, RESULT, CALL, RESULT, RESULT], ReferenceContext(), 4),
        ([CALL, RESULT, RESULT], ReferenceContext({"c1": KnownCall("f", 0)}), 2),
    ):
        with pytest.raises(RequestError, match=expected) as wrong:
            request(input=items).messages(known)
        assert wrong.value.info.param == path.format(at)
    # Some models give several calls the same id.
    assert len(request(input=[CALL, CALL, RESULT, RESULT, CALL, RESULT]).messages()) == 4
    assert len(request(input=[RESULT, CALL, RESULT]).messages(ReferenceContext({"c1": KnownCall("f")}))) == 3


def test_a_tool_loop_is_grouped_into_turns_with_reasoning_before_its_call() -> None:
    parts = [{"type": "input_text", "text": "4"}, {"type": "input_text", "text": "2"}]
    second = [{**CALL, "call_id": "c2", "name": "g"}, {**RESULT, "call_id": "c2", "output": parts}]
    user = {"role": "user", "content": "go"}
    assert messages(user, THOUGHT, CALL, RESULT, THOUGHT, *second, {"role": "assistant", "content": "a"}, user) == [
        ModelRequest([UserPromptPart("go")]),
        ModelResponse([ThinkingPart("t"), ToolCallPart("f", '{"a":1}', "c1")]),
        ModelRequest([ToolReturnPart("f", "42", "c1")]),
        ModelResponse([ThinkingPart("t"), ToolCallPart("g", '{"a":1}', "c2")]),
        ModelRequest([ToolReturnPart("g", "4\n2", "c2")]),
        ModelResponse([TextPart("a")]),
        ModelRequest([UserPromptPart("go")]),
    ]


def test_parallel_calls_and_their_results_are_one_turn_each() -> None:
    other = {**CALL, "call_id": "c2"}
    assert messages(CALL, other, RESULT, {**RESULT, "call_id": "c2"}) == [
        ModelResponse([ToolCallPart("f", '{"a":1}', "c1"), ToolCallPart("f", '{"a":1}', "c2")]),
        ModelRequest([ToolReturnPart("f", "42", "c1"), ToolReturnPart("f", "42", "c2")]),
    ]
    # A model gets no call that was cut off, so its result is text.
    assert messages(CALL, {**other, "status": "incomplete"}, RESULT, {**RESULT, "call_id": "c2"}) == [
        ModelResponse([ToolCallPart("f", '{"a":1}', "c1"), ToolCallPart("f", '{"a":1}', "c2", complete=False)]),
        ModelRequest([ToolReturnPart("f", "42", "c1"), UserPromptPart("[Result of a call]\n42")]),
    ]


@pytest.mark.parametrize(
    ("item", "path", "code"),
    [
        ({"type": "item_reference", "id": "rs_1"}, "id", "item_not_found"),
        ({"id": "rs_1"}, "id", "item_not_found"),
        ({"role": "tool", "content": "x"}, "role", "invalid_value"),
        ({**CALL, "call_id": ""}, "call_id", "invalid_value"),
        ({**CALL, "arguments": {}}, "arguments", "invalid_value"),
        ({"type": "reasoning", "content": [{"type": "output_text", "text": "t"}]}, "content[0].type", "invalid_value"),
    ],
    ids=str,
)
def test_the_error_of_an_invalid_item_names_its_field(item: Any, path: str, code: str) -> None:
    user = {"role": "user", "content": "go"}
    info = error_info({"input": [user, item]})
    assert (info.param, info.code) == (f"input[1].{path}", code)


@pytest.mark.parametrize("item", [None, 5, "text", [], {}, {"content": "no role"}])
def test_the_error_of_a_value_that_is_no_item_names_it(item: Any) -> None:
    assert error_info({"input": [item]}).param == ("input[0].type" if isinstance(item, dict) else "input[0]")


def test_every_output_item_is_accepted_as_input() -> None:
    """A client that only echoes: the output of one response is the input of the next."""
    answer = Answer(*reasoning_chunks("t"), *text_chunks("a"), *call_chunks("f", "{}"), *final_chunks("tool_calls"))
    result = {"type": "function_call_output", "call_id": answer.output[-1]["call_id"], "output": "42"}
    assert messages({"role": "user", "content": "go"}, *answer.output, result) == [
        ModelRequest([UserPromptPart("go")]),
        ModelResponse(
            [
                ThinkingPart("t"),
                TextPart("a", item_id=answer.output[1]["id"]),
                ToolCallPart("f", "{}", "call_0", item_id=answer.output[2]["id"]),
            ]
        ),
        ModelRequest([ToolReturnPart("f", "42", "call_0")]),
    ]


# --- output format ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (None, OutputFormat()),
        ({"format": None}, OutputFormat()),
        ({"format": {"type": "text"}}, OutputFormat()),
        ({"format": {"type": "json_object"}}, OutputFormat("json_object")),
        ({"format": JSON_SCHEMA}, OutputFormat("json_schema", "n", SCHEMA, "d", True)),
        ({"format": {"type": "json_schema"}}, OutputFormat("json_schema", "output", {})),
    ],
)
def test_text_formats_are_read(text: Any, form: OutputFormat) -> None:
    assert model_call(text=text).output == form
    echo(text=text)


# --- invalid bodies --------------------------------------------------------------------------------------------------


INVALID_BODIES = [
    b"",
    b" ",
    b"null",
    b"[]",
    b'"input"',
    b'{"input":"a"',
    b'{"input":"a"} x',
    b'{"input":"a",}',
    b"{'input':'a'}",
    b'{"input":"\xff"}',
    b'{"input":"\\ud800"}',
    b'{"input":"\x00"}',
    b'{"input":"a","temperature":NaN}',
    b'{"input":"a","temperature":1e999}',
    b'{"input":"a","max_output_tokens":' + b"9" * 5000 + b"}",
    b'{"input":"a","max_output_tokens":1e30}',
    b"[" * 100_000,
    b'{"input":' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"input":"a","tool_choice":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
    b'{"input":"a","metadata":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
    b'{"input":[{"role":"user","content":' + b"[" * 900 + b"]" * 900 + b"}]}",
]


def test_an_invalid_body_is_a_clear_error() -> None:
    with Cases() as case:
        for body in INVALID_BODIES:
            with case(repr(body[:30])):
                assert error_info(body).message


def test_the_last_of_two_equal_keys_applies() -> None:
    assert parse_request(b'{"input":"a","input":"b"}').messages() == [ModelRequest([UserPromptPart("b")])]


def test_a_huge_number_of_tokens_is_accepted() -> None:
    assert echo(max_output_tokens=10**30)["max_output_tokens"] == 10**30


words = st.sampled_from(
    [
        *["message", "user", "assistant", "reasoning", "function", "function_call", "function_call_output", "f", ""],
        *["input_text", "output_text", "allowed_tools", "required", "json_schema", "item_reference", "auto", "\u2028"],
    ]
)
keys = st.sampled_from(
    [
        *["type", "role", "content", "text", "name", "call_id", "arguments", "output", "summary", "tools", "mode"],
        *["format", "schema", "parameters", "id", "effort", "input", "status", "annotations", "encrypted_content"],
    ]
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)
fields = st.sampled_from([*DEFAULTS, "input", "include", "stream", "stream_options", "user", "conversation"])


def request_or_error(body: bytes) -> None:
    error = None
    try:
        parsed = parse_request(body)
        parsed.call(parsed.messages())
    except RequestError as raised:
        error = raised.info
    if error is not None:
        assert error.message
        assert status_of(error) in (400, 404)
    else:
        whole = json.loads(msgspec.json.encode(parsed.response("resp_1", "m", NOW)))
        for schema, name in zip(schemas(), ("Response", "ResponseResource"), strict=False):
            assert schema.errors(name, whole) == []


@given(st.dictionaries(fields, values, max_size=4), values)
def test_any_json_gives_a_request_or_a_request_error(body: dict[str, Any], input: Any) -> None:
    request_or_error(json.dumps({"input": input, **body}).encode())
    request_or_error(json.dumps({**body, "input": "Hi"}).encode())
    request_or_error(json.dumps({"input": [input]}).encode())


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_give_a_request_or_a_request_error(body: bytes) -> None:
    request_or_error(body)
    request_or_error(b'{"input":"a","metadata":{"a":"' + body + b'"}}')


def test_reasoning_tokens_are_estimated_only_if_the_model_does_not_count_them() -> None:
    counted = Answer(*reasoning_chunks("a" * 40), *text_chunks("x"), *final_chunks())
    assert counted.response["usage"]["output_tokens_details"] == {"reasoning_tokens": 12}
    usage = {"prompt_tokens": 9, "completion_tokens": 15}
    for length, tokens in ((40, 10), (41, 11), (4000, 15)):
        answer = Answer(*reasoning_chunks("a" * length), *text_chunks("x"), {"choices": [], "usage": usage})
        assert answer.response["usage"]["output_tokens_details"] == {"reasoning_tokens": tokens}
        assert answer.response["usage"]["reasoning_tokens_estimated"] is True
    silent = Answer(*text_chunks("x"), {"choices": [], "usage": usage})
    assert silent.response["usage"]["output_tokens_details"] == {"reasoning_tokens": 0}


@pytest.mark.parametrize("body", [{"prompt": {"id": "pmpt_1"}}, {"context_management": [{"type": "compaction"}]}])
def test_fields_that_cannot_be_honoured_are_refused(body: dict[str, Any]) -> None:
    info = error_info({"input": "Hi", **body})
    assert (info.param, info.code) == (*body, "unsupported_parameter")


def test_a_long_text_is_not_read_character_by_character() -> None:
    parsed = parse_request(json.dumps({"input": "x" * 10_000_000}).encode())
    began = time.thread_time()
    assert not parsed.is_compaction
    assert parsed.references == []
    assert time.thread_time() - began < 2, "CPU seconds of this thread; character by character it is 9"
