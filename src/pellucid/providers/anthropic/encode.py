"""Encode a call as the body, headers and path of a Messages request.

A setting of this provider (`anthropic_…`) is sent unchanged, and takes precedence over the unified setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from ...errors import ErrorInfo, RequestError
from ...parts import File, Image, ModelResponse, Origin, UserPromptPart, same_origin
from ...settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from ..effort import is_thinking_off
from ..lenient_json import objects_in
from ..profile import Profile
from ..setting_fields import HEADER, Body, SettingFields, Settings
from ..tool_schema import check_tool_choice, offered_tools, with_possible_choice
from .messages import encode_messages, is_reasoning_lost, system_prompt, wire_fields
from .thinking import ThinkingOptions, claim_thinking, settings_that_enable_thinking, thinking_options

_PROVIDER_PATHS = {
    "anthropic_metadata": "metadata",
    "anthropic_service_tier": "service_tier",
    "anthropic_context_management": "context_management",
    "anthropic_mcp_servers": "mcp_servers",
    "anthropic_speed": "speed",
}
"""This provider's settings that are one field of the body each."""

_SHARED_PATHS = {
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "anthropic_tools": "tools.type",
    "anthropic_eager_input_streaming": "tools.eager_input_streaming",
    "anthropic_cache_tool_definitions": "tools.cache_control",
    "anthropic_cache_instructions": "system.cache_control",
    "anthropic_cache_messages": "messages.cache_control",
    "anthropic_cache": "cache_control",
    "anthropic_container": "container",
}
"""Settings that change fields which hold other values, too."""

_SERVICE_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
"""The unified service tiers that this provider supports."""


def encode(call: ModelCall, profile: Profile, target: Origin) -> Body:
    """Encode the JSON body of a request. Raises `RequestError` if this wire cannot carry a part of it."""
    settings: Settings = call.settings
    thinking = thinking_options(settings, profile)
    messages = encode_messages(call.messages, profile, target, thinking_off=thinking.is_off)
    if is_reasoning_lost(messages):
        thinking = thinking_options(settings, profile, reasoning_lost=True)
    body: Body = {"model": call.model, "max_tokens": thinking.max_tokens}
    system = system_prompt(call.messages)
    if system:
        body["system"] = _encode_system(system, settings.get("anthropic_cache_instructions"))
    body["messages"] = messages
    _cache_last_user_message(body["messages"], settings.get("anthropic_cache_messages"))
    if call.stream and profile.stream_in == "body":
        body["stream"] = True
    is_model_in_path = profile.model_in == "path"
    if is_model_in_path:
        del body["model"]
    beta_names = _betas_of_call(profile, call) if is_model_in_path else []
    call_fields = _CallFields(
        _tools(call, profile, thinking), _output_format(call.output), _container(call, target), beta_names
    )
    _write_settings(SettingFields(settings, body), profile, thinking, call_fields)
    return body


def setting_fields(settings: Settings, profile: Profile) -> SettingFields:
    """Return the fields of the body that settings write, for warnings about unsupported settings."""
    fields = SettingFields(settings)
    thinking = thinking_options(settings, profile)
    fields.body["max_tokens"] = thinking.max_tokens
    for name, path in _SHARED_PATHS.items():
        if settings.get(name) or type(settings.get(name)) is bool:
            fields.claim(name, path)
    beta_names = _claim_betas(fields, profile)
    claim_thinking(fields, profile)
    _write_settings(fields, profile, thinking, _CallFields({}, None, {}, beta_names))
    return fields


COUNT_FIELDS = frozenset(
    {
        *("model", "system", "messages", "tools", "tool_choice", "thinking", "output_config", "cache_control"),
        *("context_management", "mcp_servers", "speed"),
    }
)
"""The fields of `POST /v1/messages/count_tokens`. It rejects others."""


class _CallFields(NamedTuple):
    """Fields of the body that depend on more than settings."""

    tools: Body
    format: Body | None
    container: Body
    betas: list[str]


def _write_settings(
    fields: SettingFields, profile: Profile, thinking: ThinkingOptions, call_fields: _CallFields
) -> None:
    settings, body = fields.settings, fields.body
    fields.put_defaults(profile)
    if "max_tokens" in settings:
        fields.claim("max_tokens", "max_tokens")
    if thinking.config is not None:
        body["thinking"] = thinking.config
    _write_sampling(fields, profile, thinking)
    if settings.get("stop_sequences"):
        fields.put_all({"stop_sequences": "stop_sequences"})
    body |= call_fields.tools
    if thinking.effort is not None:
        body["output_config"] = {"effort": thinking.effort}
    if call_fields.format is not None:
        body.setdefault("output_config", {})["format"] = call_fields.format
    fields.put_all({"anthropic_task_budget": "output_config.task_budget"})
    if "user" in profile.knows:
        fields.put_all({"user": "metadata.user_id"})
    tier = _SERVICE_TIERS.get(settings.get("service_tier", ""))
    if "service_tier" in profile.knows and tier is not None:
        fields.put("service_tier", "service_tier", tier)
    fields.put_all(_PROVIDER_PATHS)
    body |= _cache_control(settings.get("anthropic_cache"))
    body |= call_fields.container
    if profile.model_in == "path":
        body["anthropic_version"] = profile.api_version
        if call_fields.betas:
            body["anthropic_beta"] = call_fields.betas
    fields.put_extra_body()


# --- the headers and the URL -------------------------------------------------------------------------------------


def headers(profile: Profile, api_key: str | None, call: ModelCall) -> dict[str, str]:
    """Return the headers of a request.

    Args:
        profile: The profile of the model's server.
        api_key: The key to send; None to send none.
        call: The call whose settings may need beta features.
    """
    request_headers = profile.credentials(api_key)
    if profile.model_in == "body":
        if profile.api_version:
            request_headers["anthropic-version"] = profile.api_version
        beta_names = _betas_of_call(profile, call)
        if beta_names:
            request_headers["anthropic-beta"] = ",".join(beta_names)
    return request_headers


_STALE_BLOCK = "The block is bound to a different conversation"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"


def second_request(error: ErrorInfo) -> Callable[[Body, dict[str, str]], tuple[Body, dict[str, str]] | None] | None:
    """Return how a refused request is changed and sent again; None if it is not.

    The newest models bind a thought to everything before it, and refuse it when instructions, tools or earlier messages
    have changed.
    """
    is_stale = error.status == 400 and _STALE_BLOCK in (error.upstream_message or "")
    return _without_stale_thinking if is_stale else None


def _without_stale_thinking(body: Body, request_headers: dict[str, str]) -> tuple[Body, dict[str, str]] | None:
    """Return a request that lets the server leave out thoughts that are bound to something else.

    It is not sent at first, because a server that accepts such thoughts would leave them out, too. None: the request
    decides this itself, or cannot.
    """
    thinking = body.get("thinking", {"type": "adaptive"})
    if thinking.get("type") != "adaptive" or "block_binding" in thinking:
        return None
    body = {**body, "thinking": {**thinking, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    if "anthropic_version" in body:
        return {**body, "anthropic_beta": [*body.get("anthropic_beta", ()), _BINDING_BETA]}, request_headers
    betas = [beta for beta in (request_headers.get("anthropic-beta"), _BINDING_BETA) if beta]
    return body, {**request_headers, "anthropic-beta": ",".join(betas)}


def path(call: ModelCall, profile: Profile) -> str:
    """Return the path of the request below the base URL."""
    return profile.path_of(quote(call.model, safe="@"), stream=call.stream)


def _betas_of_call(profile: Profile, call: ModelCall) -> list[str]:
    return _betas(profile, call.settings, has_file=_has_file_id(call))


def _betas(profile: Profile, settings: Settings, *, has_file: bool = False) -> list[str]:
    """Return the names of beta features to request: the profile's, the caller's, and those that settings need."""
    beta_names = [*profile.betas, *(settings.get("anthropic_betas") or [])]
    for beta, setting, needs in _BETAS:
        if (setting in settings and needs(settings[setting])) if setting else has_file:
            beta_names.append(beta)
    return list(dict.fromkeys(beta_names))


def _claim_betas(fields: SettingFields, profile: Profile) -> list[str]:
    """Record which settings request beta features that are not requested already.

    Returns all names that are requested, if the caller names any; else an empty list.
    """
    settings = fields.settings
    path = "anthropic_beta" if profile.model_in == "path" else f"{HEADER}anthropic-beta"
    for beta, setting, needs in _BETAS:
        if setting in settings and needs(settings[setting]):
            fields.claim(setting, f"{path}.{beta}")
    caller_betas = set(settings.get("anthropic_betas") or ())
    beta_names = _betas(profile, settings) if caller_betas else []
    if caller_betas:
        other_settings = {name: value for name, value in settings.items() if name != "anthropic_betas"}
        if beta_names != _betas(profile, other_settings) or (caller_betas == set(beta_names) and not profile.betas):
            fields.claim("anthropic_betas", f"{path}.own")
        elif not caller_betas <= set(profile.betas):
            by = [name for name in other_settings if caller_betas <= set(_betas(profile, {name: other_settings[name]}))]
            fields.withhold("anthropic_betas", f"{path}.own", by=by)
    return beta_names


def _has_file_id(call: ModelCall) -> bool:
    return any(
        isinstance(content, Image | File) and content.file_id
        for message in call.messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, list)
        for content in part.content
    )


def _edit_types(context_management: Any) -> list[str]:
    edits = context_management.get("edits") if isinstance(context_management, dict) else None
    return [str(edit.get("type")) for edit in objects_in(edits)]


_BETAS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    (
        "context-management-2025-06-27",
        "anthropic_context_management",
        lambda managed: any(not edit.startswith("compact") for edit in _edit_types(managed)),
    ),
    (
        "compact-2026-01-12",
        "anthropic_context_management",
        lambda managed: any(edit.startswith("compact") for edit in _edit_types(managed)),
    ),
    ("task-budgets-2026-03-13", "anthropic_task_budget", lambda _: True),
    ("mcp-client-2025-04-04", "anthropic_mcp_servers", lambda _: True),
    ("fast-mode-2026-02-01", "anthropic_speed", lambda speed: speed == "fast"),
    ("files-api-2025-04-14", "", lambda _: True),
    (
        "thinking-display-updates-2026-08-18",
        "anthropic_thinking",
        lambda config: isinstance(config, dict) and config.get("display") == "updates",
    ),
    (
        "thinking-binding-controls-2026-08-01",
        "anthropic_thinking",
        lambda config: isinstance(config, dict) and "block_binding" in config,
    ),
)
"""Beta features, the setting that needs each, and a test of its value. The feature without a setting is needed for
files that were uploaded to the provider."""


# --- settings ----------------------------------------------------------------------------------------------------


def _write_sampling(fields: SettingFields, profile: Profile, thinking: ThinkingOptions) -> None:
    paths = {name: name for name in ("temperature", "top_p", *(("top_k",) if "top_k" in profile.knows else ()))}
    if profile.sampling == "free" or (profile.sampling == "without_thinking" and not thinking.is_on):
        fields.put_all(paths)
    elif profile.sampling == "without_thinking":
        names = [name for name in paths if name in fields.settings]
        by = settings_that_enable_thinking(fields.settings, profile) if names else ()
        for name in names:
            fields.withhold(name, name, by=by)


def _output_format(output: OutputFormat) -> Body | None:
    if output.kind == "json_object":
        raise RequestError(
            "Anthropic Messages has no JSON mode without a schema; use an output format with a JSON schema",
            kind="unsupported",
            code="unsupported_output",
        )
    if output.kind == "text":
        return None
    return {"type": "json_schema", "schema": output.schema or {"type": "object"}}


# --- prompt caching and containers -------------------------------------------------------------------------------


def _cache_control(cache: Any) -> Body:
    """Return the `cache_control` field for `True` or a lifetime (`5m`, `1h`)."""
    if not cache:
        return {}
    return {"cache_control": {"type": "ephemeral"} | ({"ttl": cache} if isinstance(cache, str) else {})}


def _encode_system(system: str | list[Body], cache: Any) -> str | list[Body]:
    if not cache:
        return system
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    return [*blocks[:-1], blocks[-1] | _cache_control(cache)]


def _cache_last_user_message(messages: list[Body], cache: Any) -> None:
    """Cache the messages up to the end of the last user message."""
    if cache and messages and messages[-1]["role"] == "user":
        content = messages[-1]["content"]
        content[-1] = content[-1] | _cache_control(cache)


def _container(call: ModelCall, target: Origin) -> Body:
    """Return the container for code execution: the caller's, else that of the last answer if code may run again."""
    settings: Settings = call.settings
    container = settings.get("anthropic_container")
    if container is not None:
        return {"container": container} if container else {}
    tools = [*_server_tools(call), *settings.get("extra_body", {}).get("tools", ())]
    if any(str(tool.get("type")).startswith("code_execution") for tool in tools if isinstance(tool, dict)):
        for message in reversed(call.messages):
            if isinstance(message, ModelResponse) and same_origin(message.origin, target):
                id = (message.provider_details or {}).get("container_id")
                if id:
                    return {"container": id}
    return {}


# --- tools -------------------------------------------------------------------------------------------------------


def _server_tools(call: ModelCall) -> list[Body]:
    """Return the provider's own tools, in the provider's form."""
    settings: Settings = call.settings
    return [*(settings.get("anthropic_tools") or []), *(tool.native for tool in call.native_tools)]


def _tools(call: ModelCall, profile: Profile, thinking: ThinkingOptions) -> Body:
    settings: Settings = call.settings
    is_thinking = profile.forced_calls == "thinking_switched_off" and not is_thinking_off(settings)
    call = with_possible_choice(call, profile, thinks=thinking.has_budget or is_thinking)
    choice, tools, native_tools = call.tool_choice, call.tools, _server_tools(call)
    check_tool_choice(call)
    if not tools and not native_tools:
        return {}
    is_single = choice.mode == "required" and len(choice.names) == 1
    if not is_single:
        tools = offered_tools(call)
    tool_choice = _tool_choice(choice, is_single)
    if choice.mode != "none" and settings.get("parallel_tool_calls") is False:
        tool_choice["disable_parallel_tool_use"] = True
    definitions = [_tool_definition(tool) for tool in tools]
    if settings.get("anthropic_eager_input_streaming"):
        definitions = [tool | {"eager_input_streaming": True} for tool in definitions]
    definitions += native_tools
    definitions[-1:] = [
        tool | _cache_control(settings.get("anthropic_cache_tool_definitions")) for tool in definitions[-1:]
    ]
    body: Body = {"tools": definitions}
    return body | ({} if tool_choice == {"type": "auto"} else {"tool_choice": tool_choice})


def _tool_choice(choice: ToolChoice, is_single: bool) -> Body:
    if is_single:
        return {"type": "tool", "name": choice.names[0]}
    return {"type": {"auto": "auto", "none": "none", "required": "any"}[choice.mode]}


def _tool_definition(tool: ToolDefinition) -> Body:
    body: Body = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    body["input_schema"] = {"type": "object", **tool.parameters_json_schema}
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body | wire_fields(tool)
