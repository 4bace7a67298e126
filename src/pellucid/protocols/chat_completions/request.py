"""A request's bytes, checked and turned into a `ModelCall`.

Everything that is wrong is said with its path. What this protocol knows and this server cannot do (`n` above 1, audio
output, custom tools, …) is refused by name; fields that nobody here knows are ignored, as every server of this protocol
ignores them. What asks for nothing that could be missed (`store`, `metadata`) is accepted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from ...errors import RequestError
from ...parts import SealedPart
from ...settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from ..decoding import decode, not_too_deep
from . import types as t
from .messages import messages_of


class Request(NamedTuple):
    """A request as it was understood."""

    model: str | None
    """The model's public name; None for the server's default."""
    call: ModelCall
    """What to ask the model; its `model` is still the public name."""
    stream: bool
    include_usage: bool
    """Whether a stream ends with a chunk of usage."""
    obfuscate: bool
    fields: t.ReasoningFields | None
    """Which field carries readable reasoning; None for the server's default."""
    exclude: bool
    """Whether the caller wants no reasoning in the answer (the view `hidden`)."""
    body: t.CreateChatCompletion

    def place_of(self, part: SealedPart) -> str:
        """Where in the request this token stands."""
        for index, message in enumerate(self.body.messages):
            for number, detail in enumerate(getattr(message, "reasoning_details", None) or []):
                if detail.data == part.token:
                    return f"messages[{index}].reasoning_details[{number}].data"
        return "messages"


def parse_request(data: bytes) -> Request:
    """Raises `RequestError` naming the field and what would be right."""
    body = decode(data, t.CreateChatCompletion)
    _refuse_what_is_not_here(body)
    tools, choice = _tools(body)
    call = ModelCall(
        model=body.model or "",
        messages=messages_of(body.messages),
        settings=_settings(body),
        tools=tools,
        tool_choice=choice,
        output=_output(body),
        stream=True,
    )
    options = body.stream_options or t.ChatStreamOptions()
    exclude = body.reasoning.exclude if body.reasoning is not None else None
    return Request(
        model=body.model,
        call=call,
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
        obfuscate=bool(options.include_obfuscation),
        fields=body.reasoning_fields,
        exclude=body.include_reasoning is False if exclude is None else exclude,
        body=body,
    )


def _refuse_what_is_not_here(body: t.CreateChatCompletion) -> None:
    modalities = [one for one in body.modalities or [] if one != "text"]
    for name, wanted, instead in (
        ("n", (body.n or 1) > 1, "one answer is given; ask again for another"),
        ("modalities", bool(modalities), "the answer is text; leave it out, or send ['text']"),
        ("audio", body.audio is not None, "the answer is text; leave it out"),
        ("functions", bool(body.functions), "send the functions as tools: [{type: function, function: {…}}]"),
        ("function_call", body.function_call not in (None, "none", "auto"), "send tool_choice instead"),
        ("web_search_options", body.web_search_options is not None, "no search is offered here; leave it out"),
        ("moderation", body.moderation is not None, "no moderation is offered here; leave it out"),
    ):
        if wanted:
            raise RequestError(f"{name}: {instead}", kind="unsupported", code="unsupported_parameter", param=name)
    if not body.messages:
        raise RequestError("messages: at least one is required", code="missing", param="messages")


# --- settings ----------------------------------------------------------------------------------------------------


def _settings(body: t.CreateChatCompletion) -> ModelSettings:
    asked: dict[str, Any] = {
        "max_tokens": body.max_completion_tokens or body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "seed": body.seed,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "logit_bias": body.logit_bias or None,
        "stop_sequences": [body.stop] if isinstance(body.stop, str) else body.stop or None,
        "parallel_tool_calls": body.parallel_tool_calls if body.tools else None,
        "service_tier": body.service_tier,
        "user": body.safety_identifier or body.user,
        "cache_key": body.prompt_cache_key,
        "verbosity": body.verbosity,
        **_thinking(body),
    }
    if body.logprobs or (body.logprobs is None and body.top_logprobs):
        asked["logprobs"] = True
        asked["top_logprobs"] = body.top_logprobs or 0
    return msgspec.convert({name: value for name, value in asked.items() if value is not None}, ModelSettings)


def _thinking(body: t.CreateChatCompletion) -> dict[str, Any]:
    """How much to think: OpenAI's field and OpenRouter's object, which may say the same thing but not two things."""
    more = body.reasoning or t.ChatReasoningParam()
    effort = more.effort or body.reasoning_effort
    if body.reasoning_effort is not None and effort != body.reasoning_effort:
        raise _two_things("reasoning.effort", more.effort, "reasoning_effort", body.reasoning_effort)
    if more.enabled is False and (effort not in (None, "none") or more.max_tokens is not None):
        asked = ("effort", effort) if effort is not None else ("max_tokens", more.max_tokens)
        raise _two_things("reasoning.enabled", False, *asked)
    if effort == "none" and (more.enabled or more.max_tokens is not None):
        asked = ("reasoning.enabled", True) if more.enabled else ("reasoning.max_tokens", more.max_tokens)
        raise _two_things(*asked, "effort", "none")
    off = effort == "none" or more.enabled is False
    return {
        "thinking": False if off else effort or (True if more.enabled else None),
        "thinking_budget": more.max_tokens,
        "thinking_summary": more.summary,
    }


def _two_things(path: str, value: Any, other: str, said: Any) -> RequestError:
    return RequestError(
        f"{path}: it says {value!r}, but {other} says {said!r}; say one", code="invalid_value", param=path
    )


def _output(body: t.CreateChatCompletion) -> OutputFormat:
    match body.response_format:
        case t.ChatFormatJsonObject():
            return OutputFormat("json_object")
        case t.ChatFormatJsonSchema(json_schema=form):
            not_too_deep(form.schema, "response_format.json_schema.schema")
            return OutputFormat("json_schema", form.name, form.schema, form.description, form.strict)
        case _:
            return OutputFormat()


# --- tools -------------------------------------------------------------------------------------------------------

_CHOICES = (
    "must be 'none', 'auto', 'required', {type: function, function: {name}} or "
    "{type: allowed_tools, allowed_tools: {mode, tools}} with at least one tool"
)


def _tools(body: t.CreateChatCompletion) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """The functions that may be called. A list of allowed tools is enforced by offering no others."""
    functions: list[t.ChatFunctionDefinition] = []
    for index, tool in enumerate(body.tools or []):
        if tool.type != "function":
            raise RequestError(
                f"tools[{index}].type: {tool.type!r} is not offered here; only 'function' tools are",
                kind="unsupported",
                code="unsupported_tool",
                param=f"tools[{index}].type",
            )
        path = f"tools[{index}].function"
        if tool.function is None:
            raise RequestError(
                f"{path}: what the function is: {{name, description, parameters}}", code="missing", param=path
            )
        not_too_deep(tool.function.parameters, f"{path}.parameters")
        functions.append(tool.function)
    offered = tuple(ToolDefinition(f.name, f.parameters or {}, f.description, f.strict) for f in functions)
    names = {tool.name for tool in offered}
    match body.tool_choice:
        case None | "auto":
            return offered, ToolChoice()
        case "none":
            return offered, ToolChoice("none")
        case "required":
            if not offered:
                raise _no_choice("'required', but there are no tools")
            return offered, ToolChoice("required")
        case {"type": "function", "function": {"name": name}}:
            return offered, ToolChoice("required", (_offered(name, names),))
        case {"type": "allowed_tools", "allowed_tools": {"tools": [_, *_] as allowed, **more}}:
            mode = more.get("mode", "auto")
            if mode not in ("auto", "required"):
                raise _no_choice("must be 'auto' or 'required'", ".allowed_tools.mode")
            chosen = {_offered(_name_of(entry), names) for entry in allowed}
            return tuple(tool for tool in offered if tool.name in chosen), ToolChoice(mode)
        case _:
            raise _no_choice(_CHOICES)


def _name_of(entry: Any) -> Any:
    function = entry.get("function") if isinstance(entry, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _offered(name: Any, names: set[str]) -> str:
    if not isinstance(name, str) or name not in names:
        there = ", ".join(sorted(names)) or "none"
        raise _no_choice(f"there is no function named {name!r} in tools (there are: {there})")
    return name


def _no_choice(what: str, field: str = "") -> RequestError:
    return RequestError(f"tool_choice{field}: {what}", code="invalid_value", param=f"tool_choice{field}")
