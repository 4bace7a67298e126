"""Where Pydantic AI's models store the data of each wire, part by part."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import messages as theirs

from pellucid import parts as ours
from pellucid.interop.pydantic_ai import from_pydantic, to_pydantic
from pellucid.interop.pydantic_ai.conventions import PROVIDERS
from pellucid.providers.history import parts_to_send
from pellucid.providers.profiles import builtin_profiles
from pellucid.server_tool_blocks import call_block, call_part, result_block

PROFILES = builtin_profiles()


def read(part: Any, provider: str, model: str = "m", **fields: Any) -> ours.ModelResponse:
    """Return our form of a response of Pydantic AI with this part."""
    [response] = from_pydantic([theirs.ModelResponse([part], provider_name=provider, model_name=model, **fields)])
    assert isinstance(response, ours.ModelResponse)
    return response


def write(part: Any, profile: str, model: str = "m") -> Any:
    """Return Pydantic AI's form of a part that the provider of this profile made."""
    origin = ours.Origin(profile, PROFILES[profile].wire, model)
    [response] = to_pydantic([ours.ModelResponse([part], origin=origin)])
    assert isinstance(response, theirs.ModelResponse)
    return response.parts[0]


def test_every_row_names_a_profile_of_its_api() -> None:
    for name, row in PROVIDERS.items():
        assert row.profile in PROFILES, name
        assert row.responses is None or PROFILES[row.responses].wire == "openai_responses", name


@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_provider_has_the_same_name_after_both_conversions(provider: str) -> None:
    response = read(theirs.TextPart("hi"), provider)
    assert response.origin is not None
    [back] = to_pydantic([ours.ModelResponse(response.parts, origin=response.origin)])
    assert isinstance(back, theirs.ModelResponse)
    assert back.provider_name == provider


ORIGINS: dict[str, tuple[str, str | None, str | None, tuple[str, str] | None]] = {
    "anthropic": ("anthropic", None, None, ("anthropic", "anthropic")),
    "former_google": ("google-gla", None, None, ("google", "google")),
    "google_by_client": ("google", "google-cloud", None, ("google-vertex", "google")),
    "azure_by_client": ("openai", "azure", "resp_1", ("azure-responses", "openai_responses")),
    "claude_on_bedrock": ("bedrock", "anthropic", None, ("bedrock", "bedrock")),
    "responses": ("openai", None, "resp_1", ("openai-responses", "openai_responses")),
    "chat": ("openai", None, "chatcmpl-1", ("openai", "openai_chat")),
    "router": ("openrouter", None, "gen-1", ("openrouter", "openai_chat")),
    "unknown": ("mine", None, None, None),
}


@pytest.mark.parametrize("name", ORIGINS)
def test_the_origin_of_a_response(name: str) -> None:
    provider, system, id, expected = ORIGINS[name]
    response = read(theirs.TextPart("hi"), provider, canonical_system=system, provider_response_id=id)
    assert response.origin == (None if expected is None else ours.Origin(*expected, ""))


@pytest.mark.parametrize("id", ["redacted_thinking", "redacted_content"])
@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "mine"])
def test_a_redacted_thought_has_its_form(provider: str, id: str) -> None:
    part = theirs.ThinkingPart("", id=id, signature="blob", provider_name=provider)
    [thought] = read(part, provider, "claude-sonnet-4-6").parts
    assert isinstance(thought, ours.ThinkingPart)
    assert (thought.form, thought.signature) == ("redacted", "blob")


@pytest.mark.parametrize(("profile", "id"), [("anthropic", "redacted_thinking"), ("bedrock", "redacted_content")])
def test_a_redacted_thought_gets_the_id_of_its_provider(profile: str, id: str) -> None:
    thought = ours.ThinkingPart("", form="redacted", signature="blob")
    assert write(thought, profile) == theirs.ThinkingPart(
        "", id=id, signature="blob", provider_name=profile, provider_details=write(thought, profile).provider_details
    )


def test_summaries_and_raw_texts_are_distinguished() -> None:
    def form_of(content: str, **fields: Any) -> tuple[str, str]:
        part = theirs.ThinkingPart(content, id="rs_1", provider_name="openai", **fields)
        [thought] = read(part, "openai", "gpt-5").parts
        assert isinstance(thought, ours.ThinkingPart)
        return thought.form, thought.content

    assert form_of("Sum.", signature="blob") == ("summary", "Sum.")
    assert form_of("", provider_details={"raw_content": ["Raw."]}) == ("raw", "Raw.")
    assert form_of("Sum.", provider_details={"raw_content": ["Raw."]}) == ("summary", "Sum.")
    raw = write(ours.ThinkingPart("Raw.", id="rs_1"), "vllm-responses")
    assert (raw.content, raw.provider_details["raw_content"], raw.provider_name) == ("", ["Raw."], "vllm")


def test_the_signature_of_an_item_is_with_its_first_thought() -> None:
    """Pydantic AI reads it there; ours may come last, as the provider sends it."""
    parts: list[ours.ModelResponsePart] = [
        ours.ThinkingPart("One.", id="rs_1", form="summary"),
        ours.ThinkingPart("Two.", id="rs_1", form="summary", signature="blob"),
        ours.ThinkingPart("", id="rs_2", signature="other"),
    ]
    history: list[ours.ModelMessage] = [
        ours.ModelResponse(parts, origin=ours.Origin("openai-responses", "openai_responses", "gpt-5"))
    ]
    [response] = to_pydantic(history)
    assert [getattr(part, "signature", "") for part in response.parts] == ["blob", None, "other"]
    assert from_pydantic([response]) == history


def test_googles_signatures_are_details_of_their_parts() -> None:
    details = {"thought_signature": "c2ln"}
    [call] = read(theirs.ToolCallPart("f", {}, "c", provider_name="google", provider_details=details), "google").parts
    assert getattr(call, "signature", None) == "c2ln"
    written = write(ours.ThinkingPart("Hm.", signature="c2ln"), "google")
    assert (written.signature, written.provider_details["thought_signature"]) == (None, "c2ln")


def test_a_signature_of_an_older_release_belongs_to_the_part_after_the_thought() -> None:
    thought = theirs.ThinkingPart("Hm.", signature="c2ln", provider_name="google-gla")
    call = theirs.ToolCallPart("f", {}, "c")
    [response] = from_pydantic([theirs.ModelResponse([thought, call], provider_name="google-gla", model_name="g")])
    assert [getattr(part, "signature", "") for part in response.parts] == [None, "c2ln"]


def test_a_search_that_a_library_made_of_metadata_is_not_sent_back() -> None:
    [call] = read(theirs.NativeToolCallPart("web_search", {"queries": []}, "pyd_ai_1"), "google").parts
    assert getattr(call, "tool_call_id", "") == "metadata:pyd_ai_1"
    assert write(ours.BuiltinToolCallPart("web_search", None, "metadata:x"), "google").tool_call_id == "pyd_ai_x"


@pytest.mark.parametrize(
    ("block", "their_args", "strategy"),
    [
        (
            {"type": "server_tool_use", "id": "srv_1", "name": "tool_search_tool_regex", "input": {"pattern": "a.*"}},
            {"queries": ["a.*"]},
            "regex",
        ),
        (
            {"type": "server_tool_use", "id": "srv_1", "name": "tool_search_tool_bm25", "input": {"query": "rain"}},
            {"queries": ["rain"]},
            "bm25",
        ),
    ],
)
def test_anthropics_search_for_tools_has_its_own_form_again(
    block: dict[str, Any], their_args: dict[str, Any], strategy: str
) -> None:
    part = theirs.NativeToolCallPart(
        "tool_search", their_args, "srv_1", provider_name="anthropic", provider_details={"strategy": strategy}
    )
    [call] = read(part, "anthropic").parts
    assert isinstance(call, ours.BuiltinToolCallPart)
    assert call_block(call) == block
    written = write(call, "anthropic")
    assert (written.args, written.provider_details) == (their_args, {"strategy": strategy})
    assert write(call_part(block, "anthropic"), "anthropic") == written


@pytest.mark.parametrize(
    ("content", "their_content", "their_details"),
    [
        (
            {
                "type": "tool_search_tool_search_result",
                "tool_references": [{"type": "tool_reference", "tool_name": "weather"}],
            },
            {"discovered_tools": [{"name": "weather"}]},
            None,
        ),
        (
            {"type": "tool_search_tool_result_error", "error_code": "too_many_requests"},
            {"discovered_tools": []},
            {"error_code": "too_many_requests"},
        ),
    ],
)
def test_the_result_of_anthropics_search_has_its_own_form_again(
    content: dict[str, Any], their_content: dict[str, Any], their_details: dict[str, Any] | None
) -> None:
    part = theirs.NativeToolReturnPart(
        "tool_search", their_content, "srv_1", provider_name="anthropic", provider_details=their_details
    )
    [result] = read(part, "anthropic").parts
    assert isinstance(result, ours.BuiltinToolReturnPart)
    assert result_block(result) == {"type": "tool_search_tool_result", "tool_use_id": "srv_1", "content": content}
    written = write(result, "anthropic")
    assert (written.content, written.provider_details) == (their_content, their_details)


def test_the_field_of_a_thought_is_its_id_in_chat_completions() -> None:
    part = theirs.ThinkingPart("Hm.", id="reasoning_content", provider_name="deepseek")
    [thought] = read(part, "deepseek").parts
    assert getattr(thought, "id", "") is None
    written = write(ours.ThinkingPart("Hm."), "deepseek")
    assert (written.id, written.provider_name) == ("reasoning_content", "deepseek")
    assert write(ours.ThinkingPart("Hm."), "minimax").id == "content"


def test_a_call_with_both_ids_in_one_text_has_two() -> None:
    call = theirs.ToolCallPart("f", "{}", "call_1|fc_1", provider_name="openai")
    result = theirs.ModelRequest([theirs.ToolReturnPart("f", "ok", "call_1|fc_1")])
    response, request = from_pydantic(
        [theirs.ModelResponse([call], provider_name="openai", provider_response_id="resp_1"), result]
    )
    [our_call], [our_result] = response.parts, request.parts
    assert isinstance(our_call, ours.ToolCallPart)
    assert isinstance(our_result, ours.ToolReturnPart)
    assert (our_call.tool_call_id, our_call.id, our_result.tool_call_id) == ("call_1", "fc_1", "call_1")


TOOLS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "web_search": (
        "web_search",
        {"type": "search", "query": "q", "queries": None},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}},
    ),
    "code": (
        "code_execution",
        {"container_id": "c", "code": "1"},
        {"type": "code_interpreter_call", "status": "completed", "code": "1", "container_id": "c"},
    ),
    "mcp": (
        "mcp_server:docs",
        {"action": "call_tool", "tool_name": "t", "tool_args": {"a": 1}},
        {
            "type": "mcp_call",
            "server_label": "docs",
            "name": "t",
            "arguments": '{"a":1}',
            "error": None,
            "output": None,
        },
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_openais_own_tools_are_the_items_that_they_were(name: str) -> None:
    tool, args, item = TOOLS[name]
    part = theirs.NativeToolCallPart(tool, args, "x_1", provider_name="openai")
    response = read(part, "openai", provider_response_id="resp_1")
    [call] = response.parts
    assert isinstance(call, ours.BuiltinToolCallPart)
    assert call.id == "x_1"
    assert call.provider_details == {"native": item | {"id": "x_1"}}


def test_reasoning_of_another_model_is_not_sent_to_one_that_does_not_reason() -> None:
    """Pydantic AI records the provider and the model's name in the response, which may be another one."""
    part = theirs.ThinkingPart("Sum.", id="rs_1", signature="blob", provider_name="openai")
    response = read(part, "openai", "gpt-5-2025-08-07", provider_response_id="resp_1")
    for model, is_sent in (("gpt-5", True), ("gpt-5.5", True), ("gpt-4.1", False)):
        profile = PROFILES["openai-responses"].for_model(model)
        target = ours.Origin("openai-responses", "openai_responses", model)
        assert (parts_to_send(response, target, profile) == response.parts) == is_sent, model
