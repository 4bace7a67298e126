"""Encoder of Chat Completions requests.

The messages are OpenAI's. The profile's strategies define how a request asks for reasoning, and how earlier reasoning
is sent back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...parts import (
    Audio,
    File,
    Image,
    ModelResponsePart,
    RefusalPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserContent,
    UserPromptPart,
)
from ...settings import ModelCall
from .. import history
from ..chat_request import AssistantMessage, ChatMessages, ChatRequest, tool_call, user_message
from ..effort import (
    accepts_sampling,
    effort_paths,
    is_thinking_off,
    requested_effort,
    switches_thinking_off,
)
from ..media import data_url, input_audio, unsupported_content, url_of
from ..profile import Profile
from ..setting_fields import Body, SettingFields
from ..tool_schema import function_tool, offered_tools, response_format
from .details import details_from_parts

# Settings that every server knows, and their fields.
_COMMON = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
    "parallel_tool_calls": "parallel_tool_calls",
    "stop_sequences": "stop",
}

# Settings that are sent if the profile lists them in `knows`.
_OPTIONAL = {
    "top_k": "top_k",
    "verbosity": "verbosity",
    "service_tier": "service_tier",
    "user": "user",
    "metadata": "metadata",
    "cache_key": "prompt_cache_key",
}

# OpenAI's own settings. A profile of a provider with other settings lists those.
_PROVIDER_SETTINGS = {
    "openai_reasoning_effort": "reasoning_effort",
    "openai_logprobs": "logprobs",
    "openai_top_logprobs": "top_logprobs",
    "openai_store": "store",
    "openai_user": "user",
    "openai_moderation": "moderation",
    "openai_text_verbosity": "verbosity",
    "openai_service_tier": "service_tier",
    "openai_prediction": "prediction",
    "openai_prompt_cache_key": "prompt_cache_key",
    "openai_prompt_cache_retention": "prompt_cache_retention",
    "openai_prompt_cache_options": "prompt_cache_options",
}

_REASONING_SETTINGS = ("thinking", "thinking_budget", "snowflake_reasoning")
"""The settings that write the object `reasoning`."""


def _settings(profile: Profile) -> Body:
    optional = {setting: _OPTIONAL[setting] for setting in profile.knows if setting in _OPTIONAL}
    return {"max_tokens": profile.max_tokens} | _COMMON | optional


def _finish(fields: SettingFields, profile: Profile) -> None:
    """Apply what a model does not take together with thinking, and what it requires then."""
    _withdraw_sampling(fields, profile)
    reasoning = fields.value_at("reasoning")
    if reasoning and reasoning.get("enabled") is not False:
        fields.withdraw(profile.thinking_fields, by=[one for one in _REASONING_SETTINGS if one in fields.settings])
        fields.body |= profile.thinking_fields


def _withdraw_sampling(fields: SettingFields, profile: Profile) -> None:
    """Remove the sampling settings if the model does not take them while it thinks."""
    path = profile.effort_field if profile.thinking == "effort" else "reasoning_effort"
    fields.settle_sampling(profile, path, is_accepted=accepts_sampling(profile, fields.value_at(path)))


def _stream(stream: bool, profile: Profile) -> Body:
    if not stream:
        return {}
    return {"stream": True} | ({"stream_options": {"include_usage": True}} if profile.stream_usage else {})


# --- how a request asks for reasoning ----------------------------------------------------------------------------


def _put_effort(fields: SettingFields, profile: Profile, path: str = "reasoning_effort") -> None:
    effort = requested_effort(fields.settings, profile)
    if effort is not None:
        fields.put("thinking", path, effort)


def _put_budget(fields: SettingFields, profile: Profile) -> None:
    if profile.budget_field:
        fields.put_all({"thinking_budget": profile.budget_field})


def _request_effort(fields: SettingFields, profile: Profile) -> None:
    fields.set_thinking_paths(*effort_paths(profile, profile.effort_field))
    _put_effort(fields, profile, profile.effort_field)


def _request_thinking_type(fields: SettingFields, profile: Profile) -> None:
    fields.set_thinking_paths("thinking.type", *effort_paths(profile, "reasoning_effort"))
    if switches_thinking_off(fields.settings, profile):
        fields.put("thinking", "thinking.type", "disabled")
    elif "thinking" in fields.settings:
        fields.put("thinking", "thinking.type", profile.thinking_on)
        _put_effort(fields, profile)


def _request_enable_thinking(fields: SettingFields, profile: Profile) -> None:
    """Write the switch, and a budget or a level: DashScope rejects both together."""
    settings = fields.settings
    fields.set_thinking_paths("enable_thinking", *effort_paths(profile, "reasoning_effort"))
    if "thinking" in settings:
        fields.put("thinking", "enable_thinking", not switches_thinking_off(settings, profile))
    _put_budget(fields, profile)
    effort = None if is_thinking_off(settings) else requested_effort(settings, profile)
    if effort is not None and "thinking_budget" in settings:
        fields.withhold("thinking", "reasoning_effort", by=["thinking_budget"])
    elif effort is not None:
        fields.put("thinking", "reasoning_effort", effort)


def _request_reasoning_switch(fields: SettingFields, profile: Profile) -> None:
    fields.set_thinking_paths("reasoning.enabled", *effort_paths(profile, "reasoning_effort"))
    is_off = switches_thinking_off(fields.settings, profile)
    if "thinking" in fields.settings:
        fields.put("thinking", "reasoning.enabled", not is_off)
    if not is_off:
        _put_effort(fields, profile)


def _request_reasoning_object(fields: SettingFields, profile: Profile) -> None:
    """Write a budget, a level or a switch; a summary only together with one of them."""
    settings, effort = fields.settings, requested_effort(fields.settings, profile)
    thinking_field: tuple[str, Any] | None = None
    if effort is not None:
        thinking_field = "reasoning.effort", effort
    elif settings.get("thinking") is True or is_thinking_off(settings):
        thinking_field = "reasoning.enabled", not is_thinking_off(settings)
    if "thinking_budget" in settings:
        fields.put("thinking_budget", "reasoning.max_tokens", settings["thinking_budget"])
        if thinking_field is not None:
            fields.withhold("thinking", thinking_field[0], by=["thinking_budget"])
    else:
        summary = ("reasoning.summary",) if "thinking_summary" in settings else ()
        fields.set_thinking_paths(*effort_paths(profile, "reasoning.effort"), "reasoning.enabled", *summary)
        if thinking_field is not None:
            fields.put("thinking", *thinking_field)
    if thinking_field is not None or "thinking_budget" in settings:
        fields.put_all({"thinking_summary": "reasoning.summary"})
        fields.dependent.add("thinking_summary")
        if thinking_field is not None and "thinking_summary" in settings and "thinking_budget" not in settings:
            fields.claim("thinking", "reasoning.summary")


def _request_template(fields: SettingFields, profile: Profile) -> None:
    _put_budget(fields, profile)
    fields.set_thinking_paths("chat_template_kwargs", *effort_paths(profile, "reasoning_effort"))
    if "thinking" in fields.settings:
        switches = dict.fromkeys(profile.template_switches, not is_thinking_off(fields.settings))
        fields.put("thinking", "chat_template_kwargs", switches)
    if not is_thinking_off(fields.settings):
        _put_effort(fields, profile)


_THINKING: dict[str, Callable[[SettingFields, Profile], None]] = {
    "effort": _request_effort,
    "thinking_type": _request_thinking_type,
    "enable_thinking": _request_enable_thinking,
    "reasoning_object": _request_reasoning_object,
    "reasoning_switch": _request_reasoning_switch,
    "template": _request_template,
    "none": lambda fields, profile: None,
}


# --- tools -------------------------------------------------------------------------------------------------------


def _tools(call: ModelCall) -> Body:
    """Write the tools and the tool choice.

    Only OpenAI's own API can limit a choice to some tools. For other servers, fewer tools are sent.
    """
    tools, choice = call.tools, call.tool_choice
    if not tools:
        return {}
    chosen = offered_tools(call)
    one = chosen[0] if choice.names and choice.mode == "required" and len(chosen) == 1 else None
    sent = chosen if one is None else tools
    body: Body = {"tools": [function_tool(tool, "parameters", "description", "strict") for tool in sent]}
    if one is not None:
        return body | {"tool_choice": {"type": "function", "function": {"name": one.name}}}
    return body if choice.mode == "auto" else body | {"tool_choice": choice.mode}


# --- messages ----------------------------------------------------------------------------------------------------


def _user(part: UserPromptPart) -> Body:
    return _user_without_name(part) | ({"name": part.name} if part.name else {})


def _content(content: UserContent) -> Body:
    match content:
        case Text():
            return {"type": "text", "text": content.text}
        case Image() if content.url or content.data:
            image: Body = {"url": url_of(content)}
            return {"type": "image_url", "image_url": image | ({"detail": content.detail} if content.detail else {})}
        case Audio() if content.data:
            return input_audio(content)
        case File() if content.file_id or content.data or content.url:
            file: Body = {}
            if content.filename:
                file["filename"] = content.filename
            if content.file_id:
                file["file_id"] = content.file_id
            elif content.data:
                file["file_data"] = data_url(content)
            else:
                file["file_data"] = content.url
            return {"type": "file", "file": file}
        case _:
            raise unsupported_content(content, "over Chat Completions")


_user_without_name = user_message(_content)


def _answer(answer: AssistantMessage) -> Body:
    text, calls, profile = answer.text, answer.calls, answer.profile
    reasoning = _REPLAY[profile.replay](answer.parts, profile)
    if not (calls or text or reasoning):
        return {}
    body: Body = {"content": text or ("" if not calls else None)}
    if calls:
        body["tool_calls"] = calls
    if not reasoning:
        reasoning = _reasoning_field(
            history.placeholder_reasoning(profile, calls=bool(calls), thinking_off=answer.thinking_off), profile
        )
    return body | reasoning


def _tool_call(part: ToolCallPart) -> Body:
    is_signed = part.signature is not None
    return tool_call(part) | ({"extra_content": {"google": {"thought_signature": part.signature}}} if is_signed else {})


# --- how earlier reasoning is sent back --------------------------------------------------------------------------


def _reasoning_field(text: str | None, profile: Profile) -> Body:
    return {} if text is None else dict.fromkeys((profile.replay_field, *profile.replay_also), text)


def _replay_field(parts: list[ModelResponsePart], profile: Profile) -> Body:
    body = _reasoning_field(history.reasoning_text(parts), profile)
    if profile.replay_signature:
        signatures = [part.signature for part in parts if isinstance(part, ThinkingPart) and part.signature]
        body |= {profile.replay_signature: signatures[-1]} if signatures else {}
    return body


def _replay_details(parts: list[ModelResponsePart], profile: Profile) -> Body:
    details = details_from_parts(parts)
    return {"reasoning_details": details} if details else _replay_field(parts, profile)


def _replay_carrier(parts: list[ModelResponsePart], profile: Profile) -> Body:
    details = details_from_parts(parts)
    if details:
        return {"reasoning_details": details}
    pieces: list[str] = []
    for part in parts:
        if isinstance(part, ThinkingPart) and part.content:
            markers = part.provider_details or {}
            pieces += (markers.get("open", "<think>\n"), part.content, markers.get("close", "\n</think>\n\n"))
        elif isinstance(part, TextPart | RefusalPart):
            pieces.append(part.content)
    return {"content": "".join(pieces)} if pieces else {}


_REPLAY: dict[str, Callable[[list[ModelResponsePart], Profile], Body]] = {
    "none": lambda parts, profile: {},
    "field": _replay_field,
    "details": _replay_details,
    "carrier": _replay_carrier,
}

_MESSAGES = ChatMessages(user=_user, answer=_answer, tool_call=_tool_call)
_REQUEST = ChatRequest(
    settings=_settings,
    provider_settings=_PROVIDER_SETTINGS,
    thinking=lambda fields, profile: _THINKING[profile.thinking](fields, profile),
    finish=_finish,
    messages=_MESSAGES.write,
    tools=_tools,
    output=lambda output: response_format(output, "strict", "description"),
    stream=_stream,
)
encode, setting_fields = _REQUEST.encode, _REQUEST.setting_fields
