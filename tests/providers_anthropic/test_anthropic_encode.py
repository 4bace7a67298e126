"""Requests of the Messages API: settings, thinking, tools, content, headers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pellucid.errors import RequestError
from pellucid.parts import (
    Audio,
    File,
    Image,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.anthropic.encode import encode, headers, path
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import load_profiles
from pellucid.settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from tests.providers_anthropic.anthropic_kit import ROWS, origin

HI = ModelRequest([UserPromptPart("hi")])
CALL = ModelCall("m", [HI])
TOOLS = (ToolDefinition("f", {"properties": {"a": {"type": "integer"}}}, "does f"), ToolDefinition("g", strict=True))


def row_of(model: str, row: str = "anthropic") -> Profile:
    return ROWS[row].for_model(model)


def request(
    model: str = "claude-opus-4-8",
    settings: dict[str, Any] | None = None,
    *,
    row: str = "anthropic",
    messages: list[ModelMessage] | None = None,
    **call: Any,
) -> dict[str, Any]:
    model_call = ModelCall(model, messages or [HI], settings=settings or {}, **call)  # type: ignore[arg-type]
    body = encode(model_call, row_of(model, row), origin(row, model))
    msgspec.json.encode(body)
    return body


def request_fields(
    model: str = "claude-opus-4-8", settings: dict[str, Any] | None = None, **call: Any
) -> dict[str, Any]:
    """Return the fields of the request without its messages and its frame."""
    plain = ("model", "messages", "stream", "max_tokens")
    return {name: value for name, value in request(model, settings, **call).items() if name not in plain}


def messages(*history: ModelMessage, model: str = "claude-opus-4-8") -> list[dict[str, Any]]:
    encoded: list[dict[str, Any]] = request(model, messages=list(history))["messages"]
    return encoded


# --- the frame ---------------------------------------------------------------------------------------------------


def test_a_plain_request() -> None:
    assert request(stream=False) == {
        "model": "claude-opus-4-8",
        "max_tokens": 128000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    }
    assert request()["stream"] is True


def test_max_tokens_is_always_sent() -> None:
    assert request("claude-sonnet-4-5")["max_tokens"] == 64000
    assert request("claude-sonnet-4-0")["max_tokens"] == 4096
    assert request("claude-sonnet-4-0", {"max_tokens": 99})["max_tokens"] == 99
    for row in ROWS.values():
        assert row.max_tokens_default > 0


def test_headers() -> None:
    assert headers(ROWS["anthropic"], "k", CALL) == {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    assert headers(row_of("claude-sonnet-4-5"), "k", CALL)["anthropic-beta"] == "interleaved-thinking-2025-05-14"
    assert headers(ROWS["anthropic-compat"], "k", CALL)["Authorization"] == "Bearer k"
    assert "authorization" not in headers(ROWS["anthropic-compat"], None, CALL)


@pytest.mark.parametrize(
    ("settings", "beta"),
    [
        ({"anthropic_betas": ["mine"]}, "mine"),
        ({"anthropic_context_management": {"edits": [{"type": "clear_thinking_20251015"}]}},
         "context-management-2025-06-27"),
        ({"anthropic_context_management": {"edits": [{"type": "compact_20260112"}]}}, "compact-2026-01-12"),
        ({"anthropic_task_budget": {"type": "tokens", "total": 9}}, "task-budgets-2026-03-13"),
        ({"anthropic_mcp_servers": []}, "mcp-client-2025-04-04"),
        ({"anthropic_thinking": {"type": "adaptive", "display": "updates"}}, "thinking-display-updates-2026-08-18"),
        ({"anthropic_thinking": {"type": "adaptive", "block_binding": {}}}, "thinking-binding-controls-2026-08-01"),
    ],
)  # fmt: skip
def test_betas_that_settings_need(settings: Any, beta: str) -> None:
    assert headers(ROWS["anthropic"], "k", ModelCall("m", [HI], settings=settings))["anthropic-beta"] == beta


def test_a_file_id_needs_its_beta_header() -> None:
    call = ModelCall("m", [ModelRequest([UserPromptPart([Image(file_id="file_1")])])])
    assert headers(ROWS["anthropic"], "k", call)["anthropic-beta"] == "files-api-2025-04-14"


def test_a_model_in_the_path_is_not_in_the_body() -> None:
    vertex = ROWS["anthropic-vertex"].for_model("claude-sonnet-4-5")
    call = ModelCall("claude-sonnet-4-5", [HI])
    body = encode(call, vertex, origin("anthropic-vertex"))
    assert "model" not in body
    assert body["anthropic_version"] == "vertex-2023-10-16"
    assert body["anthropic_beta"] == ["interleaved-thinking-2025-05-14"]
    assert path(call, vertex) == "/claude-sonnet-4-5:streamRawPredict"
    assert path(ModelCall("m", [HI], stream=False), vertex) == "/m:rawPredict"
    assert headers(vertex, "k", CALL) == {"Authorization": "Bearer k"}
    assert path(call, ROWS["anthropic"]) == "/messages"


def test_streaming_in_the_path_is_not_in_the_body() -> None:
    """Bedrock's InvokeModel has the version in the body, and the model and streaming in the URL."""
    changes = {"extends": "anthropic", "model_in": "path", "stream_in": "path", "api_version": "bedrock-2023-05-31",
               "path": "/model/{model}/invoke-with-response-stream", "path_whole": "/model/{model}/invoke"}  # fmt: skip
    row = load_profiles({"mine": changes}, ROWS)["mine"]
    call = ModelCall("us.anthropic.claude-opus-4-8", [HI])
    body = encode(call, row, origin("mine"))
    assert set(body) == {"max_tokens", "messages", "anthropic_version"}
    assert path(call, row) == "/model/us.anthropic.claude-opus-4-8/invoke-with-response-stream"


# --- thinking ----------------------------------------------------------------------------------------------------

SHOWN = {"type": "adaptive", "display": "summarized"}

# The fields for thinking on, off, minimal, xhigh and max.
THINKING_FIELDS: dict[str, tuple[dict[str, Any], ...]] = {
    "claude-opus-4-8": (
        {"thinking": SHOWN},
        {"thinking": {"type": "disabled"}},
        {"thinking": SHOWN, "output_config": {"effort": "low"}},
        {"thinking": SHOWN, "output_config": {"effort": "xhigh"}},
        {"thinking": SHOWN, "output_config": {"effort": "max"}},
    ),
    "claude-sonnet-4-6": (
        {"thinking": {"type": "adaptive"}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
    ),
    "claude-sonnet-5-5": (
        {"thinking": SHOWN},
        {"thinking": {"type": "between_tools"}},
        {"thinking": SHOWN, "output_config": {"effort": "low"}},
        {"thinking": SHOWN, "output_config": {"effort": "xhigh"}},
        {"thinking": SHOWN, "output_config": {"effort": "max"}},
    ),
    "claude-opus-5-5": (
        {"thinking": SHOWN},
        {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        {"thinking": SHOWN, "output_config": {"effort": "low"}},
        {"thinking": SHOWN, "output_config": {"effort": "xhigh"}},
        {"thinking": SHOWN, "output_config": {"effort": "max"}},
    ),
    "claude-sonnet-4-5": (
        {"thinking": {"type": "enabled", "budget_tokens": 10000}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "enabled", "budget_tokens": 32768}},
        {"thinking": {"type": "enabled", "budget_tokens": 32768}},
    ),
    "claude-opus-4-1": (
        {"thinking": {"type": "enabled", "budget_tokens": 10000}},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"thinking": {"type": "enabled", "budget_tokens": 24576}},
        {"thinking": {"type": "enabled", "budget_tokens": 24576}},
    ),
    "claude-3-5-haiku": ({}, {}, {}, {}, {}),
}


@pytest.mark.parametrize("model", THINKING_FIELDS)
def test_thinking_levels(model: str) -> None:
    levels = (True, False, "minimal", "xhigh", "max")
    for level, expected in zip(levels, THINKING_FIELDS[model], strict=True):
        assert request_fields(model, {"thinking": level}) == expected, level
    assert request_fields(model, {"thinking": "none"}) == THINKING_FIELDS[model][1]
    assert request_fields(model) == {}, "without the setting, nothing is sent"


def test_a_thinking_budget_fits_into_max_tokens() -> None:
    old, new = "claude-sonnet-4-0", "claude-opus-4-8"
    assert request(old, {"thinking": "high"})["max_tokens"] == 16384 + 4096
    assert request(old, {"thinking": "high", "max_tokens": 5000})["thinking"]["budget_tokens"] == 5000 - 1024
    assert request(old, {"thinking": "high", "max_tokens": 1025})["thinking"]["budget_tokens"] == 1024
    assert request(old, {"thinking_budget": 3000})["thinking"]["budget_tokens"] == 3000
    assert request(new, {"thinking": "high", "max_tokens": 500})["max_tokens"] == 500
    with pytest.raises(RequestError, match="max_tokens is 500"):
        request(old, {"thinking": "high", "max_tokens": 500})


def test_the_providers_own_setting_takes_precedence() -> None:
    """The example of the guide: a budget for a model that accepts one."""
    own = {"type": "enabled", "budget_tokens": 1024}
    body = request("claude-sonnet-4-0", {"anthropic_thinking": own, "thinking": False})
    assert body["thinking"] == own
    assert body["max_tokens"] > 1024
    both = request_fields(settings={"thinking": "low", "anthropic_effort": "max"})
    assert both == {"thinking": SHOWN, "output_config": {"effort": "max"}}


def test_sampling_settings_are_not_sent_while_the_model_thinks() -> None:
    chosen = {"temperature": 0.5, "top_p": 0.9, "top_k": 3}
    assert request_fields("claude-sonnet-4-5", chosen) == chosen
    assert set(request_fields("claude-sonnet-4-5", {**chosen, "thinking": True})) == {"thinking"}
    assert request_fields("claude-opus-5", chosen) == {}


def test_settings_map_to_request_fields() -> None:
    settings = {"stop_sequences": ["x"], "user": "u", "service_tier": "default", "anthropic_task_budget": {"total": 9},
             "seed": 1, "logprobs": True, "timeout": 3.0}  # fmt: skip
    assert request_fields(settings=settings) == {
        "stop_sequences": ["x"],
        "metadata": {"user_id": "u"},
        "service_tier": "standard_only",
        "output_config": {"task_budget": {"total": 9}},
    }
    own = {"anthropic_metadata": {"user_id": "v"}, "anthropic_service_tier": "auto", "anthropic_speed": "fast",
           "anthropic_context_management": {"edits": []}, "anthropic_mcp_servers": [{"type": "url"}]}  # fmt: skip
    assert request_fields(settings={**own, "user": "u", "extra_body": {"x": 1}}) == {
        "metadata": {"user_id": "v"}, "service_tier": "auto", "speed": "fast", "context_management": {"edits": []},
        "mcp_servers": [{"type": "url"}], "x": 1,
    }  # fmt: skip


def test_a_schema_for_the_answer() -> None:
    output = OutputFormat("json_schema", "n", {"type": "object"})
    expected = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    assert request_fields(output=output) == {"output_config": expected}
    assert request_fields(settings={"thinking": "low"}, output=output)["output_config"] == {"effort": "low", **expected}
    with pytest.raises(RequestError, match="schema"):
        request(output=OutputFormat("json_object"))


# --- tools -------------------------------------------------------------------------------------------------------

F = {"name": "f", "description": "does f",
     "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}  # fmt: skip
G = {"name": "g", "input_schema": {"type": "object"}, "strict": True}


@pytest.mark.parametrize(
    ("choice", "settings", "tools", "sent"),
    [
        (ToolChoice(), {}, [F, G], None),
        (ToolChoice("none"), {}, [F, G], {"type": "none"}),
        (ToolChoice("required"), {}, [F, G], {"type": "any"}),
        (ToolChoice("required", ("f",)), {}, [F, G], {"type": "tool", "name": "f"}),
        (ToolChoice("auto", ("g",)), {}, [G], None),
        (ToolChoice("required", ("f", "g")), {}, [F, G], {"type": "any"}),
        (ToolChoice(), {"parallel_tool_calls": False}, [F, G], {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice("none"), {"parallel_tool_calls": False}, [F, G], {"type": "none"}),
    ],
)
def test_tools(choice: ToolChoice, settings: Any, tools: list[Any], sent: Any) -> None:
    body = request_fields(settings=settings, tools=TOOLS, tool_choice=choice)
    assert body["tools"] == tools
    assert body.get("tool_choice") == sent


def test_provider_tools_are_sent_with_functions() -> None:
    search = {"type": "web_search_20260209", "name": "web_search"}
    assert request_fields(settings={"anthropic_tools": [search]}, tools=TOOLS[:1])["tools"] == [F, search]


def test_a_forced_call_is_refused_for_models_that_do_not_allow_it() -> None:
    forced: dict[str, Any] = {"tools": TOOLS, "tool_choice": ToolChoice("required")}
    assert request("claude-sonnet-4-5", **forced)["tool_choice"] == {"type": "any"}
    assert request("claude-opus-4-8", {"thinking": "high"}, **forced)["tool_choice"] == {"type": "any"}
    with pytest.raises(RequestError, match="while it thinks"):
        request("claude-sonnet-4-5", {"thinking": "high"}, **forced)
    with pytest.raises(RequestError, match="cannot be made to call"):
        request("claude-opus-5-5", **forced)


def test_a_choice_of_an_unknown_tool_is_refused() -> None:
    with pytest.raises(RequestError, match="the tools are: f, g"):
        request(tools=TOOLS, tool_choice=ToolChoice("required", ("h",)))


# --- messages ----------------------------------------------------------------------------------------------------


def test_system_prompts_and_instructions_are_joined_in_system() -> None:
    history: list[ModelMessage] = [
        ModelRequest([SystemPromptPart("one"), UserPromptPart("hi")], instructions="old"),
        ModelResponse([TextPart("yes")]),
        ModelRequest([SystemPromptPart("two", "developer"), UserPromptPart("go")], instructions="new"),
    ]
    body = request(messages=history)
    assert body["system"] == "one\n\ntwo\n\nnew"
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "user"]


def test_results_come_first_and_adjacent_messages_are_merged() -> None:
    encoded = messages(
        HI,
        ModelResponse([ToolCallPart("f", "{}", "t1"), ToolCallPart("f", '{"a":1}', "t2")]),
        ModelRequest([UserPromptPart("by the way"), ToolReturnPart("f", "r1", "t1")]),
        ModelRequest([ToolReturnPart("f", {"x": 1}, "t2", "failed")]),
    )
    assert [message["role"] for message in encoded] == ["user", "assistant", "user"]
    assert encoded[1]["content"] == [
        {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
        {"type": "tool_use", "id": "t2", "name": "f", "input": {"a": 1}},
    ]
    assert encoded[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r1"}]},
        {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": '{"x":1}'}],
         "is_error": True},
        {"type": "text", "text": "by the way"},
    ]  # fmt: skip


def test_results_may_have_images_or_no_content() -> None:
    encoded = messages(
        ModelRequest([ToolReturnPart("f", [Text("see"), Image(data="iVBORw0", media_type="image/png")], "t1"),
                      ToolReturnPart("f", None, "t2")])
    )  # fmt: skip
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0"}
    assert encoded[0]["content"][0]["content"] == [{"type": "text", "text": "see"}, {"type": "image", "source": source}]
    assert encoded[0]["content"][1] == {"type": "tool_result", "tool_use_id": "t2"}


def test_retries() -> None:
    (message,) = messages(ModelRequest([RetryPromptPart("again"), RetryPromptPart("wrong", "f", "t1")]))
    assert message["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "wrong"}], "is_error": True},
        {"type": "text", "text": "again"},
    ]


def test_ids_of_other_providers_are_rewritten() -> None:
    encoded = messages(
        HI,
        ModelResponse([ToolCallPart("f", "{}", "functions.f:0")]),
        ModelRequest([ToolReturnPart("f", "r", "functions.f:0")]),
    )
    assert encoded[1]["content"][0]["id"] == encoded[2]["content"][0]["tool_use_id"] == "functions_f_0"


def test_arguments_that_are_no_object_are_shown_to_the_model() -> None:
    encoded = messages(HI, ModelResponse([ToolCallPart("f", '{"a": ', "t1")]))
    assert encoded[1]["content"][0]["input"] == {"invalid_json": '{"a": '}


def test_empty_and_blank_text_is_not_sent() -> None:
    history: list[ModelMessage] = [
        HI,
        ModelResponse([TextPart("\n\n"), TextPart("")]),
        ModelRequest([UserPromptPart("go"), UserPromptPart("")]),
    ]
    assert messages(*history) == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "go"}]}
    ]


CONTENT: list[tuple[Any, dict[str, Any]]] = [
    (Text("a"), {"type": "text", "text": "a"}),
    (Image(url="https://x/i.png"), {"type": "image", "source": {"type": "url", "url": "https://x/i.png"}}),
    (Image(url="data:image/gif;base64,R0lG"),
     {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lG"}}),
    (Image(data="/9j/4AAQ"),
     {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "/9j/4AAQ"}}),
    (Image(file_id="f1"), {"type": "image", "source": {"type": "file", "file_id": "f1"}}),
    (File(data="JVBERi0", media_type="application/pdf", filename="a.pdf"),
     {"type": "document", "title": "a.pdf",
      "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0"}}),
    (File(data="aGk=", media_type="text/markdown"),
     {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}}),
    (File(url="data:text/plain,hi%20you"),
     {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi you"}}),
    (File(url="https://x/a.pdf"), {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}),
    (File(file_id="f1"), {"type": "document", "source": {"type": "file", "file_id": "f1"}}),
    (File(data="iVBO", media_type="image/png"),
     {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}),
]  # fmt: skip


@pytest.mark.parametrize(("content", "expected"), CONTENT)
def test_content(content: Any, expected: dict[str, Any]) -> None:
    assert messages(ModelRequest([UserPromptPart([content])]))[0]["content"] == [expected]


@pytest.mark.parametrize(
    "content", [Audio(data="x"), Image(), File(data="x", media_type="video/mp4"), File(data="?", media_type="text/csv")]
)
def test_content_that_cannot_be_sent(content: Any) -> None:
    with pytest.raises(RequestError):
        messages(ModelRequest([UserPromptPart([content])]))


# --- the container -----------------------------------------------------------------------------------------------


def test_the_container_is_reused_if_code_execution_is_enabled() -> None:
    earlier = ModelResponse(
        [TextPart("a")], origin=origin(model="claude-opus-4-8"), provider_details={"container_id": "c"}
    )
    code = {"anthropic_tools": [{"type": "code_execution_20260120", "name": "code_execution"}]}
    assert request(settings=code, messages=[HI, earlier, HI])["container"] == "c"
    assert "container" not in request(messages=[HI, earlier, HI])
    assert "container" not in request(settings={**code, "anthropic_container": False}, messages=[HI, earlier, HI])
    assert request(settings={"anthropic_container": {"skills": []}})["container"] == {"skills": []}
    foreign = msgspec.structs.replace(earlier, origin=origin("elsewhere"))
    assert "container" not in request(settings=code, messages=[HI, foreign, HI])
