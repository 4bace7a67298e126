"""Encoder of Responses requests.

`history_items` encodes the conversation; this module encodes the other fields. OpenAI's own settings (`openai_…`) win
over the unified ones.
"""

from __future__ import annotations

from ...parts import ModelMessage, ModelRequest, ModelResponse, Origin, same_origin
from ...settings import ModelCall, OutputFormat, ToolDefinition
from ..effort import SAMPLING, accepts_sampling, effort_paths, requested_effort
from ..profile import Profile
from ..setting_fields import Body, SettingFields, Settings, SettingWrite
from ..tool_schema import check_tool_choice, json_schema, with_possible_choice
from .history_items import WIRE, history_items

# Settings that every server knows, and their fields.
_COMMON = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "parallel_tool_calls": "parallel_tool_calls",
}

# OpenAI's own settings, which are sent as they are.
_PROVIDER_SETTINGS = {
    "openai_previous_response_id": "previous_response_id",
    "openai_conversation_id": "conversation",
    "openai_truncation": "truncation",
    "openai_top_logprobs": "top_logprobs",
    "openai_user": "user",
    "openai_moderation": "moderation",
    "openai_service_tier": "service_tier",
    "openai_prompt_cache_key": "prompt_cache_key",
    "openai_prompt_cache_retention": "prompt_cache_retention",
    "openai_prompt_cache_options": "prompt_cache_options",
    "openai_context_management": "context_management",
    "openai_background": "background",
}

# Settings that request additional output.
_INCLUDE = {
    "logprobs": "message.output_text.logprobs",
    "openai_logprobs": "message.output_text.logprobs",
    "openai_include_code_execution_outputs": "code_interpreter_call.outputs",
    "openai_include_web_search_sources": "web_search_call.action.sources",
    "openai_include_file_search_results": "file_search_call.results",
}

# Settings that are sent if the profile lists them in `knows`.
_OPTIONAL = {
    "service_tier": "service_tier",
    "user": "user",
    "metadata": "metadata",
    "cache_key": "prompt_cache_key",
}

_REASONING = {
    "openai_reasoning_effort": "reasoning.effort",
    "openai_reasoning_summary": "reasoning.summary",
    "openai_reasoning_context": "reasoning.context",
    "openai_reasoning_mode": "reasoning.mode",
}


def encode(call: ModelCall, profile: Profile, target: Origin) -> Body:
    """Encode the JSON body of a request. Raises `RequestError` if this wire cannot carry a part of it."""
    settings: Settings = _resolve_previous_response(call.messages, call.settings, target)
    store = settings.get("openai_store", profile.store)
    call = with_possible_choice(call, profile)
    messages = _messages_after(call.messages, settings.get("openai_previous_response_id"))
    body: Body = {
        "model": call.model,
        "input": history_items(
            messages,
            profile,
            target,
            with_ids=settings.get("openai_send_reasoning_ids") is not False,
            is_stored=store is not False,
            text_tools=frozenset(tool.name for tool in call.tools if _tool(tool, profile)["type"] == "custom"),
        ),
    }
    instructions = [m.instructions for m in messages if isinstance(m, ModelRequest) and m.instructions]
    if instructions:
        # Only the last instructions apply; those of earlier requests would only be repeated.
        body["instructions"] = instructions[-1]
    if call.stream:
        body["stream"] = True
    builtin = [tool for name in _BUILTIN for tool in settings.get(name) or ()]
    _write_settings(SettingFields(settings, body), profile, _tools(call, builtin, profile), _text_format(call.output))
    return body


def setting_fields(settings: Settings, profile: Profile) -> SettingFields:
    """Return the fields of the body that settings write, for warnings about unsupported settings."""
    fields = SettingFields(_without_auto(settings))
    _write_settings(fields, profile, {}, {})
    fields.settings = settings
    if settings.get("openai_previous_response_id") == AUTO:
        _claim_previous_response(fields, profile)
    return fields


def _write_settings(fields: SettingFields, profile: Profile, tools: Body, text_format: Body) -> None:
    """Write the settings. The provider's own settings win over `tools` and `text_format`, which come from elsewhere."""
    settings, body = fields.settings, fields.body
    fields.put_defaults(profile)
    if "openai_store" in settings:
        if settings["openai_store"] is not None:
            fields.put("openai_store", "store", settings["openai_store"])
    elif profile.store is not None:
        body["store"] = profile.store
    has_reasoning = profile.thinking != "none"
    provider_effort = settings.get("openai_reasoning_effort")
    effort = provider_effort if provider_effort is not None else requested_effort(settings, profile)
    sends_sampling = accepts_sampling(profile, effort if has_reasoning else None)
    _write_include(fields, profile, sends_sampling=sends_sampling)
    fields.put_all({"top_logprobs": "top_logprobs"})
    if has_reasoning:
        _write_reasoning(fields, profile)
    fields.put_all(_COMMON, skip_none=True)
    fields.put_all({setting: _OPTIONAL[setting] for setting in profile.knows if setting in _OPTIONAL}, skip_none=True)
    for setting in _BUILTIN:
        if settings.get(setting):
            fields.claim(setting, f"tools.{setting}")
    body |= tools
    if text_format:
        body["text"] = text_format
    _write_verbosity(fields, profile)
    fields.put_all(_PROVIDER_SETTINGS, skip_none=True)
    if "openai_send_reasoning_ids" in settings:
        fields.claim("openai_send_reasoning_ids", "input.id")
    fields.settle_sampling(profile, "reasoning.effort", is_accepted=sends_sampling, paths=_SAMPLING)
    fields.put_extra_body()


_BUILTIN = ("openai_builtin_tools", "openai_native_tools")


AUTO = "auto"
"""A value of `openai_previous_response_id` that stands for the last stored response."""


def _resolve_previous_response(messages: list[ModelMessage], settings: Settings, target: Origin) -> Settings:
    """Replace `auto` by the id of the last response that `target` made and stored, if any.

    A response can be continued only if it is stored, so the request asks for that. If the settings rule it out, or name
    a conversation, which stores everything itself, `auto` is ignored.
    """
    if settings.get("openai_previous_response_id") != AUTO:
        return settings
    settings = _without_auto(settings)
    if settings.get("openai_store") is not True or settings.get("openai_conversation_id") is not None:
        return settings
    # Without a new request there is nothing to continue with.
    earlier = messages[:-1] if messages and isinstance(messages[-1], ModelRequest) else []
    for message in reversed(earlier):
        if isinstance(message, ModelResponse) and _is_stored(message, target):
            return {**settings, "openai_previous_response_id": message.provider_response_id}
    return settings


def _without_auto(settings: Settings) -> Settings:
    """Replace `auto` by the setting to store the response, unless that is ruled out."""
    if settings.get("openai_previous_response_id") != AUTO:
        return settings
    settings = {name: value for name, value in settings.items() if name != "openai_previous_response_id"}
    if settings.get("openai_store") is False or settings.get("openai_conversation_id") is not None:
        return settings
    return settings | {"openai_store": True}


def _is_stored(response: ModelResponse, target: Origin) -> bool:
    """Whether the provider has stored the response. It does not store one that failed or was broken off."""
    is_complete = response.finish_reason not in (None, "error")
    return is_complete and response.provider_response_id is not None and same_origin(response.origin, target)


def _messages_after(messages: list[ModelMessage], response_id: str | None) -> list[ModelMessage]:
    """Return the messages after a response that the provider has stored; all messages without one."""
    if response_id is not None:
        for index, message in enumerate(messages):
            if isinstance(message, ModelResponse) and message.provider_response_id == response_id:
                return messages[index + 1 :]
    return messages


_LOGPROBS = ("logprobs", "openai_logprobs")
_SAMPLING = SAMPLING | {f"include.{name}" for name in _LOGPROBS}


def _claim_previous_response(fields: SettingFields, profile: Profile) -> None:
    """Record the effect that `auto` always has: it stores the response, unless another setting decides that."""
    name, settings = "openai_previous_response_id", fields.settings
    by = [other for other in ("openai_store", "openai_conversation_id") if settings.get(other) is not None]
    if by:
        fields.withhold(name, "store", by=by)
        return
    for index, write in enumerate(fields.writes):
        if write.setting == "openai_store":
            fields.writes[index] = SettingWrite(name, "store", None, "bar" if profile.store is True else "sent")


def _write_include(fields: SettingFields, profile: Profile, *, sends_sampling: bool) -> None:
    """Write `include`. Of two settings that request the same output, each makes the other redundant."""
    settings = fields.settings
    requested = {name: item for name, item in _INCLUDE.items() if settings.get(name)}
    items = [item for name, item in requested.items() if sends_sampling or name not in _LOGPROBS]
    include = list(dict.fromkeys((*profile.include, *items)))
    if include:
        fields.body["include"] = include
    for name, item in _INCLUDE.items():
        if name not in settings or item in profile.include:
            continue
        same = [other for other in requested if other != name and requested[other] == item]
        if not same and (sends_sampling or name in requested or name not in _LOGPROBS):
            fields.claim(name, f"include.{name}")
        elif name in requested:
            fields.withhold(name, f"include.{name}", by=same)


# --- how a request asks for reasoning ----------------------------------------------------------------------------


def _write_reasoning(fields: SettingFields, profile: Profile) -> None:
    fields.set_thinking_paths(*effort_paths(profile, "reasoning.effort"))
    effort = requested_effort(fields.settings, profile)
    if effort is not None:
        fields.put("thinking", "reasoning.effort", effort)
    fields.put_all({"thinking_summary": "reasoning.summary"})
    fields.put_all(_REASONING, skip_none=True)


def _write_verbosity(fields: SettingFields, profile: Profile) -> None:
    settings = fields.settings
    if settings.get("verbosity") is not None and "verbosity" in profile.knows:
        fields.put("verbosity", "text.verbosity", settings["verbosity"])
    if settings.get("openai_text_verbosity"):
        fields.put("openai_text_verbosity", "text.verbosity", settings["openai_text_verbosity"])


# --- tools and output --------------------------------------------------------------------------------------------


def _tool(tool: ToolDefinition, profile: Profile) -> Body:
    if tool.wire_fields is not None and WIRE in tool.wire_fields and profile.native_forms:
        return tool.wire_fields[WIRE]
    body: Body = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters_json_schema or {"type": "object", "properties": {}},
        # Without this field, the wire's default is strict.
        "strict": bool(tool.strict),
    }
    return body | ({"description": tool.description} if tool.description is not None else {})


def _tools(call: ModelCall, builtin: list[Body], profile: Profile) -> Body:
    """Return the tools and the tool choice.

    To limit a choice to some tools, only those are sent, because not all servers have another way.
    """
    choice, narrowed = call.tool_choice, bool(call.tool_choice.names) and call.tool_choice.mode != "none"
    if call.tools or call.native_tools:
        check_tool_choice(call)
    functions = [(tool.name, _tool(tool, profile)) for tool in call.tools]
    native = [(tool.name, tool.native) for tool in call.native_tools]
    tools = [*(body for _, body in functions), *builtin, *(body for _, body in native)]
    chosen = [body for name, body in functions + native if name in choice.names]
    if narrowed and len(chosen) == 1 and choice.mode == "required":
        return {"tools": tools, "tool_choice": {key: chosen[0][key] for key in ("type", "name") if key in chosen[0]}}
    listed = chosen if narrowed else tools
    if not listed:
        return {}
    return {"tools": listed} | ({} if choice.mode == "auto" else {"tool_choice": choice.mode})


def _text_format(output: OutputFormat) -> Body:
    """Return the format of the text."""
    if output.kind == "text":
        return {}
    if output.kind == "json_object":
        return {"format": {"type": "json_object"}}
    return {"format": {"type": "json_schema"} | json_schema(output, "strict", "description")}
