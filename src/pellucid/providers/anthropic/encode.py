"""A call as the body of a Messages request, and what goes with it in the headers and the URL.

A setting of this provider's (`anthropic_…`) is sent as it is, and wins over the unified one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import quote

from ...errors import RequestError
from ...parts import File, Image, ModelResponse, Origin, UserPromptPart, same_origin
from ...settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from ..profile import Profile
from ..setting_fields import HEADER, Body, SettingFields, Settings
from .messages import lost_reasoning, messages_of, system_of
from .thinking import Asked, ask, claim_thinking, turn_thinking_on

_OWN = {
    "anthropic_metadata": "metadata",
    "anthropic_service_tier": "service_tier",
    "anthropic_context_management": "context_management",
    "anthropic_mcp_servers": "mcp_servers",
    "anthropic_speed": "speed",
}
"""This provider's settings that are fields of the body."""

_ELSEWHERE = {
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
    "anthropic_tools": "tools.type",
    "anthropic_eager_input_streaming": "tools.eager_input_streaming",
    "anthropic_cache_tool_definitions": "tools.cache_control",
    "anthropic_cache_instructions": "system.cache_control",
    "anthropic_cache_messages": "messages.cache_control",
    "anthropic_cache": "cache_control",
    "anthropic_container": "container",
}
"""Settings that act on fields in which other things stand, too."""

_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
"""The unified service tiers that mean something here."""


def encode(call: ModelCall, row: Profile, target: Origin) -> Body:
    """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
    settings: Settings = call.settings
    asked = ask(settings, row)
    messages = messages_of(call.messages, row, target, thinking_off=asked.off)
    if lost_reasoning(messages):
        asked = ask(settings, row, lost=True)
    body: Body = {"model": call.model, "max_tokens": asked.max_tokens}
    system = system_of(call.messages)
    if system:
        body["system"] = _cached_system(system, settings.get("anthropic_cache_instructions"))
    body["messages"] = messages
    _cache_last(body["messages"], settings.get("anthropic_cache_messages"))
    if call.stream and row.stream_in == "body":
        body["stream"] = True
    in_path = row.model_in == "path"
    if in_path:
        del body["model"]
    wanted = betas(row, call) if in_path else []
    beside = _Beside(_tools(call, row, asked), _format(call.output), _container(call, target), wanted)
    _write_settings(SettingFields(settings, body), row, asked, beside)
    return body


def setting_fields(settings: Settings, row: Profile) -> SettingFields:
    """The fields of the body that come from settings."""
    fields = SettingFields(settings)
    asked = ask(settings, row)
    fields.body["max_tokens"] = asked.max_tokens
    for name, path in _ELSEWHERE.items():
        if settings.get(name) or type(settings.get(name)) is bool:
            fields.claim(name, path)
    wanted = _claim_betas(fields, row)
    claim_thinking(fields, row)
    _write_settings(fields, row, asked, _Beside({}, None, {}, wanted))
    return fields


class _Beside(NamedTuple):
    """Fields that do not come from settings alone."""

    tools: Body
    format: Body | None
    container: Body
    betas: list[str]


def _write_settings(fields: SettingFields, row: Profile, asked: Asked, beside: _Beside) -> None:
    settings, body = fields.settings, fields.body
    if "max_tokens" in settings:
        fields.claim("max_tokens", "max_tokens")
    if asked.config is not None:
        body["thinking"] = asked.config
    _write_sampling(fields, row, asked)
    if settings.get("stop_sequences"):
        fields.put_all({"stop_sequences": "stop_sequences"})
    body |= beside.tools
    if asked.effort is not None:
        body["output_config"] = {"effort": asked.effort}
    if beside.format is not None:
        body.setdefault("output_config", {})["format"] = beside.format
    fields.put_all({"anthropic_task_budget": "output_config.task_budget"})
    if "user" in row.knows:
        fields.put_all({"user": "metadata.user_id"})
    tier = _TIERS.get(settings.get("service_tier", ""))
    if "service_tier" in row.knows and tier is not None:
        fields.put("service_tier", "service_tier", tier)
    fields.put_all(_OWN)
    body |= _mark(settings.get("anthropic_cache"))
    body |= beside.container
    if row.model_in == "path":
        body["anthropic_version"] = row.api_version
        if beside.betas:
            body["anthropic_beta"] = beside.betas
    fields.put_extra_body()


# --- the headers and the URL -------------------------------------------------------------------------------------


def headers(row: Profile, api_key: str | None, call: ModelCall | None = None) -> dict[str, str]:
    """The headers of a request; with `call`, also the betas that its settings need."""
    found = row.credentials(api_key)
    if row.model_in == "body":
        if row.api_version:
            found["anthropic-version"] = row.api_version
        wanted = betas(row, call)
        if wanted:
            found["anthropic-beta"] = ",".join(wanted)
    return found


def path(call: ModelCall, row: Profile) -> str:
    """The URL's path below the base URL."""
    return row.path_of(quote(call.model, safe="@"), stream=call.stream)


def betas(row: Profile, call: ModelCall | None = None) -> list[str]:
    """The features to ask for by name: the row's, the caller's, and those that the settings need."""
    if call is None:
        return list(row.betas)
    return _betas(row, call.settings, has_file=_has_file(call))


def _betas(row: Profile, settings: Settings, *, has_file: bool = False) -> list[str]:
    wanted = [*row.betas, *(settings.get("anthropic_betas") or [])]
    for beta, setting, needs in _BETAS:
        if (setting in settings and needs(settings[setting])) if setting else has_file:
            wanted.append(beta)
    return list(dict.fromkeys(wanted))


def _claim_betas(fields: SettingFields, row: Profile) -> list[str]:
    """Record which settings ask for features by name, where these are not asked for already. Returns all that the
    caller's own stand among."""
    settings = fields.settings
    path = "anthropic_beta" if row.model_in == "path" else f"{HEADER}anthropic-beta"
    for beta, setting, needs in _BETAS:
        if setting in settings and needs(settings[setting]):
            fields.claim(setting, f"{path}.{beta}")
    given = set(settings.get("anthropic_betas") or ())
    wanted = _betas(row, settings) if given else []
    if given:
        rest = {name: value for name, value in settings.items() if name != "anthropic_betas"}
        if wanted != _betas(row, rest) or (given == set(wanted) and not row.betas):
            fields.claim("anthropic_betas", f"{path}.own")
        elif not given <= set(row.betas):
            by = [name for name in rest if given <= set(_betas(row, {name: rest[name]}))]
            fields.withhold("anthropic_betas", f"{path}.own", by=by)
    return wanted


def _has_file(call: ModelCall) -> bool:
    return any(
        isinstance(content, Image | File) and content.file_id
        for message in call.messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, list)
        for content in part.content
    )


def _edits(managed: Any) -> list[str]:
    edits = managed.get("edits") if isinstance(managed, dict) else None
    return [str(edit.get("type")) for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []


_BETAS: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    (
        "context-management-2025-06-27",
        "anthropic_context_management",
        lambda managed: any(not edit.startswith("compact") for edit in _edits(managed)),
    ),
    (
        "compact-2026-01-12",
        "anthropic_context_management",
        lambda managed: any(edit.startswith("compact") for edit in _edits(managed)),
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
"""Features, and the values of settings that need them; the one without a setting is for files that the provider has."""


# --- settings ----------------------------------------------------------------------------------------------------


def _write_sampling(fields: SettingFields, row: Profile, asked: Asked) -> None:
    paths = {name: name for name in ("temperature", "top_p", *(("top_k",) if "top_k" in row.knows else ()))}
    if row.sampling == "free" or (row.sampling == "without_thinking" and not asked.on):
        fields.put_all(paths)
    elif row.sampling == "without_thinking":
        names = [name for name in paths if name in fields.settings]
        by = turn_thinking_on(fields.settings, row) if names else ()
        for name in names:
            fields.withhold(name, name, by=by)


def _format(output: OutputFormat) -> Body | None:
    if output.kind == "json_object":
        raise RequestError(
            "Anthropic Messages has no JSON mode without a schema; use an output format with a JSON schema",
            kind="unsupported",
            code="unsupported_output",
        )
    if output.kind == "text":
        return None
    return {"type": "json_schema", "schema": output.schema or {"type": "object"}}


# --- what the provider is to keep for the next request -----------------------------------------------------------


def _mark(wanted: Any) -> Body:
    """`True`, or how long to keep it (`5m`, `1h`)."""
    if not wanted:
        return {}
    return {"cache_control": {"type": "ephemeral"} | ({"ttl": wanted} if isinstance(wanted, str) else {})}


def _cached_system(system: str, wanted: Any) -> str | list[Body]:
    return [{"type": "text", "text": system} | _mark(wanted)] if wanted else system


def _cache_last(messages: list[Body], wanted: Any) -> None:
    """Up to the end of what the user said last."""
    if wanted and messages and messages[-1]["role"] == "user":
        content = messages[-1]["content"]
        content[-1] = content[-1] | _mark(wanted)


def _container(call: ModelCall, target: Origin) -> Body:
    """The container that code runs in: the caller's, else the one of the last answer, where code may run again."""
    settings: Settings = call.settings
    own = settings.get("anthropic_container")
    if own is not None:
        return {"container": own} if own else {}
    native = [*_server_tools(settings), *settings.get("extra_body", {}).get("tools", ())]
    if any(str(tool.get("type")).startswith("code_execution") for tool in native if isinstance(tool, dict)):
        for message in reversed(call.messages):
            if isinstance(message, ModelResponse) and same_origin(message.origin, target):
                id = (message.provider_details or {}).get("container_id")
                if id:
                    return {"container": id}
    return {}


# --- tools -------------------------------------------------------------------------------------------------------


def _server_tools(settings: Settings) -> list[Body]:
    """The provider's own tools, as it writes them."""
    return list(settings.get("anthropic_tools") or [])


def _tools(call: ModelCall, row: Profile, asked: Asked) -> Body:
    settings: Settings = call.settings
    choice, tools, native = call.tool_choice, call.tools, _server_tools(settings)
    unknown = sorted(set(choice.names) - {tool.name for tool in tools})
    if unknown:
        raise RequestError(
            f"tool_choice names {', '.join(unknown)}; the tools are: {', '.join(tool.name for tool in tools)}",
            code="unknown_tool",
            param="tool_choice",
        )
    if not tools and not native:
        return {}
    one = choice.mode == "required" and len(choice.names) == 1
    if choice.names and choice.mode != "none" and not one:
        # A choice among some: others are not told of.
        tools = tuple(tool for tool in tools if tool.name in choice.names)
    chosen = _choice(choice, one)
    if chosen["type"] in ("any", "tool"):
        _may_force(row, asked)
    if choice.mode != "none" and settings.get("parallel_tool_calls") is False:
        chosen["disable_parallel_tool_use"] = True
    listed = [_tool(tool) for tool in tools]
    if settings.get("anthropic_eager_input_streaming"):
        listed = [tool | {"eager_input_streaming": True} for tool in listed]
    listed += native
    listed[-1:] = [tool | _mark(settings.get("anthropic_cache_tool_definitions")) for tool in listed[-1:]]
    body: Body = {"tools": listed}
    return body | ({} if chosen == {"type": "auto"} else {"tool_choice": chosen})


def _choice(choice: ToolChoice, one: bool) -> Body:
    if one:
        return {"type": "tool", "name": choice.names[0]}
    return {"type": {"auto": "auto", "none": "none", "required": "any"}[choice.mode]}


def _may_force(row: Profile, asked: Asked) -> None:
    if row.forced_calls == "never":
        raise RequestError(
            "this model cannot be made to call a tool; tool_choice must be auto or none",
            kind="unsupported",
            code="forced_tool_choice",
            param="tool_choice",
        )
    if row.forced_calls == "without_thinking" and asked.budgeted:
        raise RequestError(
            "this model cannot be made to call a tool while it thinks; tool_choice must be auto or none, "
            "or thinking switched off",
            code="forced_tool_choice",
            param="tool_choice",
        )


def _tool(tool: ToolDefinition) -> Body:
    body: Body = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    body["input_schema"] = {"type": "object", **tool.parameters}
    if tool.strict is not None:
        body["strict"] = tool.strict
    return body
