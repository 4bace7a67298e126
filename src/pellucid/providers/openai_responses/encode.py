"""A call as the body of a Responses request.

What was said before is in `history_items`; here is how to ask. OpenAI's own settings (`openai_…`) win over the ones
that mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ...parts import ModelMessage, ModelRequest, ModelResponse, Origin, same_origin
from ...settings import ModelCall, ModelSettings, OutputFormat, ToolDefinition
from ..effort import SAMPLING, asked_effort, may_sample
from ..functions import offered
from ..own import with_own
from ..profiles import Profile
from .history_items import history_items

Body = dict[str, Any]
Settings = Mapping[str, Any]

# Settings that every server knows, and their names there.
_COMMON = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "parallel_tool_calls": "parallel_tool_calls",
}

# OpenAI's own, which are sent as they are.
_OWN = {
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

# Settings that ask for more than the answer.
_INCLUDE = {
    "logprobs": "message.output_text.logprobs",
    "openai_logprobs": "message.output_text.logprobs",
    "openai_include_code_execution_outputs": "code_interpreter_call.outputs",
    "openai_include_web_search_sources": "web_search_call.action.sources",
    "openai_include_file_search_results": "file_search_call.results",
}

# Settings that are sent where the row says that they are known.
_OPTIONAL = {
    "service_tier": "service_tier",
    "user": "user",
    "metadata": "metadata",
    "cache_key": "prompt_cache_key",
}

_REASONING = {
    "openai_reasoning_effort": "effort",
    "openai_reasoning_summary": "summary",
    "openai_reasoning_context": "context",
    "openai_reasoning_mode": "mode",
}


def encode(call: ModelCall, row: Profile, target: Origin) -> Body:
    """The request's JSON body. Raises `RequestError` for what this wire cannot carry."""
    # Providers' own settings are no part of the typed dictionary.
    settings = _going_on(call.messages, cast("Settings", call.settings), target)
    store = settings.get("openai_store", row.store)
    messages = _since(call.messages, settings.get("openai_previous_response_id"))
    body: Body = {
        "model": call.model,
        "input": history_items(
            messages,
            row,
            target,
            ids=settings.get("openai_send_reasoning_ids") is not False,
            stored=store is not False,
        ),
    }
    instructions = [m.instructions for m in messages if isinstance(m, ModelRequest) and m.instructions]
    if instructions:
        # The last word on it holds; what an earlier request said would only be repeated.
        body["instructions"] = instructions[-1]
    if call.stream:
        body["stream"] = True
    if store is not None:
        body["store"] = store
    reasoning = _reasoning(settings, row)
    samples = may_sample(row, reasoning.get("reasoning", {}).get("effort"))
    body |= _include(settings, row, samples=samples) | reasoning
    known = _COMMON | {name: _OPTIONAL[name] for name in row.knows if name in _OPTIONAL}
    body |= {there: settings[name] for name, there in known.items() if settings.get(name) is not None}
    body |= _tools(call, [tool for name in _BUILTIN for tool in settings.get(name) or ()])
    body |= _text(call.output, settings, row)
    body = with_own(body, settings, _OWN)
    if not samples:
        body = {name: value for name, value in body.items() if name not in SAMPLING}
    return body | call.settings.get("extra_body", {})


_BUILTIN = ("openai_builtin_tools", "openai_native_tools")


AUTO = "auto"
"""In place of a response's id: the last one that there is."""


def _going_on(messages: list[ModelMessage], settings: Settings, target: Origin) -> Settings:
    """The settings with an id in place of `auto`: of the last response that `target` made and kept, if any.

    To go on from what is kept it must be kept, so that is asked for; where that is ruled out, or a conversation is
    named, which keeps everything itself, all goes as if nothing had been said.
    """
    if settings.get("openai_previous_response_id") != AUTO:
        return settings
    settings = {name: value for name, value in settings.items() if name != "openai_previous_response_id"}
    if settings.get("openai_store") is False or settings.get("openai_conversation_id") is not None:
        return settings
    settings["openai_store"] = True
    # With nothing new to say there is nothing to go on with.
    earlier = messages[:-1] if messages and isinstance(messages[-1], ModelRequest) else []
    for message in reversed(earlier):
        if isinstance(message, ModelResponse) and _is_kept(message, target):
            return settings | {"openai_previous_response_id": message.provider_response_id}
    return settings


def _is_kept(response: ModelResponse, target: Origin) -> bool:
    """Whether the provider has it: one that failed or was broken off is not kept."""
    whole = response.finish_reason not in (None, "error")
    return whole and response.provider_response_id is not None and same_origin(response.origin, target)


def _since(messages: list[ModelMessage], response_id: str | None) -> list[ModelMessage]:
    """What the provider does not have, if it is to go on from a response that it kept."""
    if response_id is not None:
        for place, message in enumerate(messages):
            if isinstance(message, ModelResponse) and message.provider_response_id == response_id:
                return messages[place + 1 :]
    return messages


def _include(settings: Settings, row: Profile, *, samples: bool) -> Body:
    wanted = [there for name, there in _INCLUDE.items() if settings.get(name) and (samples or "logprobs" not in name)]
    include = list(dict.fromkeys((*row.include, *wanted)))
    logprobs = {"top_logprobs": settings["top_logprobs"]} if "top_logprobs" in settings else {}
    return ({"include": include} if include else {}) | logprobs


# --- how to ask for thought --------------------------------------------------------------------------------------


def _reasoning(settings: Settings, row: Profile) -> Body:
    if row.thinking == "none":
        return {}
    asked: Body = {}
    effort = asked_effort(cast("ModelSettings", settings), row)
    if effort is not None:
        asked["effort"] = effort
    if "thinking_summary" in settings:
        asked["summary"] = settings["thinking_summary"]
    asked |= {there: settings[name] for name, there in _REASONING.items() if settings.get(name) is not None}
    return {"reasoning": asked} if asked else {}


# --- tools and output --------------------------------------------------------------------------------------------


def _tool(tool: ToolDefinition) -> Body:
    body: Body = {
        "type": "function",
        "name": tool.name,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        # Unsaid, it would mean strict on this wire.
        "strict": bool(tool.strict),
    }
    return body | ({"description": tool.description} if tool.description is not None else {})


def _tools(call: ModelCall, builtin: list[Body]) -> Body:
    """The tools, and whether to call one. A choice is narrowed by telling of fewer: not all servers know how else."""
    choice, narrowed = call.tool_choice, bool(call.tool_choice.names) and call.tool_choice.mode != "none"
    tools = offered(call)
    if narrowed and len(tools) == 1 and choice.mode == "required":
        one: Body = {"type": "function", "name": tools[0].name}
        return {"tools": [*(_tool(tool) for tool in call.tools), *builtin], "tool_choice": one}
    listed = [_tool(tool) for tool in tools] + ([] if narrowed else builtin)
    if not listed:
        return {}
    return {"tools": listed} | ({} if choice.mode == "auto" else {"tool_choice": choice.mode})


def _text(output: OutputFormat, settings: Settings, row: Profile) -> Body:
    text: Body = {}
    if output.kind == "json_object":
        text["format"] = {"type": "json_object"}
    elif output.kind == "json_schema":
        form: Body = {"type": "json_schema", "name": output.name or "output", "schema": output.schema or {}}
        if output.strict is not None:
            form["strict"] = output.strict
        if output.description is not None:
            form["description"] = output.description
        text["format"] = form
    verbosity = settings.get("openai_text_verbosity") or (
        settings.get("verbosity") if "verbosity" in row.knows else None
    )
    if verbosity is not None:
        text["verbosity"] = verbosity
    return {"text": text} if text else {}
