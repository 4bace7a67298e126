"""A call as the body of a Messages request, and what goes with it in the headers and the URL.

A setting of this provider's (`anthropic_…`) is sent as it is, and wins over the unified one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import quote

from ...errors import RequestError
from ...parts import File, Image, ModelResponse, Origin, UserPromptPart, same_origin
from ...settings import ModelCall, OutputFormat, ToolChoice, ToolDefinition
from ..profiles import Profile
from .messages import lost_reasoning, messages_of, system_of
from .thinking import Asked, ask

Body = dict[str, Any]
Settings = Mapping[str, Any]

_OWN = {
    "anthropic_metadata": "metadata",
    "anthropic_service_tier": "service_tier",
    "anthropic_context_management": "context_management",
    "anthropic_mcp_servers": "mcp_servers",
    "anthropic_speed": "speed",
}
"""This provider's settings that are fields of the body."""

_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
"""The unified service tiers that mean something here."""


def encode(call: ModelCall, row: Profile, target: Origin) -> Body:
    """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
    settings = _settings(call)
    asked = ask(settings, row, lost=False)
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
    if asked.config is not None:
        body["thinking"] = asked.config
    body |= _sampling(settings, row, asked)
    body |= _tools(call, row, asked)
    body |= _output_config(call.output, settings, asked)
    body |= _optional(settings, row)
    body |= {there: settings[name] for name, there in _OWN.items() if name in settings}
    body |= _mark(settings.get("anthropic_cache"))
    body |= _container(call, target)
    if row.model_in == "path":
        del body["model"]
        body["anthropic_version"] = row.api_version
        wanted = betas(row, call)
        body |= {"anthropic_beta": wanted} if wanted else {}
    body |= settings.get("extra_body", {})
    return body


# --- the headers and the URL -------------------------------------------------------------------------------------


def headers(row: Profile, api_key: str | None, call: ModelCall | None = None) -> dict[str, str]:
    """The headers of a request; with `call`, also the betas that its settings need."""
    found: dict[str, str] = {}
    if api_key is not None and row.auth != "none":
        found = {row.auth: api_key} if row.auth.endswith("-key") else {"authorization": f"Bearer {api_key}"}
    if row.model_in == "body":
        if row.api_version:
            found["anthropic-version"] = row.api_version
        wanted = betas(row, call)
        if wanted:
            found["anthropic-beta"] = ",".join(wanted)
    return found


def path(call: ModelCall, row: Profile) -> str:
    """The URL's path below the base URL."""
    pattern = row.path if call.stream or not row.path_whole else row.path_whole
    return pattern.replace("{model}", quote(call.model, safe="@"))


def betas(row: Profile, call: ModelCall | None = None) -> list[str]:
    """The features to ask for by name: the row's, the caller's, and those that the settings need."""
    wanted = list(row.betas)
    if call is not None:
        wanted += _settings(call).get("anthropic_betas") or []
        wanted += [beta for beta, needed in _BETAS if needed(call)]
    return list(dict.fromkeys(wanted))


def _thinking(call: ModelCall) -> Body:
    own = _settings(call).get("anthropic_thinking")
    return own if isinstance(own, dict) else {}


def _has_file(call: ModelCall) -> bool:
    return any(
        isinstance(content, Image | File) and content.file_id
        for message in call.messages
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, list)
        for content in part.content
    )


def _edits(call: ModelCall) -> list[str]:
    managed = _settings(call).get("anthropic_context_management")
    edits = managed.get("edits") if isinstance(managed, dict) else None
    return [str(edit.get("type")) for edit in edits if isinstance(edit, dict)] if isinstance(edits, list) else []


_BETAS: tuple[tuple[str, Callable[[ModelCall], Any]], ...] = (
    ("context-management-2025-06-27", lambda call: any(not edit.startswith("compact") for edit in _edits(call))),
    ("compact-2026-01-12", lambda call: any(edit.startswith("compact") for edit in _edits(call))),
    ("task-budgets-2026-03-13", lambda call: "anthropic_task_budget" in _settings(call)),
    ("mcp-client-2025-04-04", lambda call: "anthropic_mcp_servers" in _settings(call)),
    ("fast-mode-2026-02-01", lambda call: _settings(call).get("anthropic_speed") == "fast"),
    ("files-api-2025-04-14", _has_file),
    ("thinking-display-updates-2026-08-18", lambda call: _thinking(call).get("display") == "updates"),
    ("thinking-binding-controls-2026-08-01", lambda call: "block_binding" in _thinking(call)),
)
"""Features, and when a call needs them."""


# --- settings ----------------------------------------------------------------------------------------------------


def _settings(call: ModelCall) -> Settings:
    """The settings, with this provider's own among them."""
    return cast("dict[str, Any]", call.settings)


def _sampling(settings: Settings, row: Profile, asked: Asked) -> Body:
    body: Body = {}
    if row.sampling == "free" or (row.sampling == "without_thinking" and not asked.on):
        names = ("temperature", "top_p", *(("top_k",) if "top_k" in row.knows else ()))
        body = {name: settings[name] for name in names if name in settings}
    if settings.get("stop_sequences"):
        body["stop_sequences"] = settings["stop_sequences"]
    return body


def _optional(settings: Settings, row: Profile) -> Body:
    body: Body = {}
    if "user" in row.knows and "user" in settings:
        body["metadata"] = {"user_id": settings["user"]}
    tier = _TIERS.get(settings.get("service_tier", ""))
    if "service_tier" in row.knows and tier is not None:
        body["service_tier"] = tier
    return body


def _output_config(output: OutputFormat, settings: Settings, asked: Asked) -> Body:
    config: Body = {}
    if asked.effort is not None:
        config["effort"] = asked.effort
    if output.kind == "json_object":
        raise RequestError(
            "Anthropic Messages has no JSON mode without a schema; use an output format with a JSON schema",
            kind="unsupported",
            code="unsupported_output",
        )
    if output.kind == "json_schema":
        config["format"] = {"type": "json_schema", "schema": output.schema or {"type": "object"}}
    if "anthropic_task_budget" in settings:
        config["task_budget"] = settings["anthropic_task_budget"]
    return {"output_config": config} if config else {}


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
    own = _settings(call).get("anthropic_container")
    if own is not None:
        return {"container": own} if own else {}
    native = [*_server_tools(_settings(call)), *_settings(call).get("extra_body", {}).get("tools", ())]
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
    choice, tools, native = call.tool_choice, call.tools, _server_tools(_settings(call))
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
    if choice.mode != "none" and _settings(call).get("parallel_tool_calls") is False:
        chosen["disable_parallel_tool_use"] = True
    listed = [_tool(tool) for tool in tools]
    if _settings(call).get("anthropic_eager_input_streaming"):
        listed = [tool | {"eager_input_streaming": True} for tool in listed]
    listed += native
    listed[-1:] = [tool | _mark(_settings(call).get("anthropic_cache_tool_definitions")) for tool in listed[-1:]]
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
