"""Parses a request and turns it into a `ModelCall`.

Errors name the path of the problem. Features of this protocol that this server does not have (`n` above 1, audio
output, custom tools, …) are refused by name. Unknown fields are ignored, as every server of this protocol ignores them.
Fields whose absence changes no answer (`store`, `metadata`) are accepted.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from ...errors import RequestError
from ...parts import ModelMessage, SealedPart
from ...settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from ...unicode import truncate
from ...view import View
from ..decoding import BodyRequest, check_depth, decode, invalid, requested_settings
from ..tool_choice import choose_from_all, merge_tools, reject_choice, require_tool, restrict_tools
from . import types as t
from .encode import Encoder
from .messages import messages_of


class Request(BodyRequest, frozen=True):
    """A parsed request."""

    body: t.CreateChatCompletion
    messages: list[ModelMessage]
    """The conversation."""
    functions: tuple[ToolDefinition, ...]
    """The client's own functions."""

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.body.stream_options is not None and bool(self.body.stream_options.include_usage)

    @property
    def obfuscate(self) -> bool:
        """Whether the client wants deltas to be padded."""
        return self.body.stream_options is not None and bool(self.body.stream_options.include_obfuscation)

    @property
    def view(self) -> View | None:
        """`hidden`, where the client wants no reasoning in the answer; None for the most that its API key allows."""
        exclude = self.body.reasoning.exclude if self.body.reasoning is not None else None
        return "hidden" if exclude or (exclude is None and self.body.include_reasoning is False) else None

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the client's own functions."""
        return frozenset(tool.name for tool in self.functions)

    def encoder(self, id: str, model: str, created: int, server_tools: Container[str]) -> Encoder:
        """Return the encoder of the answer (see `StatelessRequest`)."""
        return Encoder(
            id,
            model,
            created,
            self.body.reasoning_fields or "both",
            include_usage=self.include_usage,
            obfuscate=self.obfuscate,
            server_tools=server_tools,
        )

    def token_path(self, part: SealedPart) -> str:
        """Return the path of this sealed token in the request."""
        for index, message in enumerate(self.body.messages):
            for number, detail in enumerate(getattr(message, "reasoning_details", None) or []):
                if detail.data == part.token:
                    return f"messages[{index}].reasoning_details[{number}].data"
        return "messages"

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """Return the call of the model (see `ClientRequest`); by default, with the conversation of the request.

        Raises:
            RequestError: `tool_choice` is invalid for these functions.
        """
        body = self.body
        tools, choice = _tools_and_choice(merge_tools(self.functions, server_tools), body.tool_choice)
        return ModelCall(
            model=body.model or "",
            messages=list(self.messages if messages is None else messages),
            settings=_settings(body, bool(tools)),
            tools=tools,
            tool_choice=choice,
            output=_output_format(body),
            stream=True,
        )


def parse_request(data: bytes | dict[str, Any]) -> Request:
    """Parse a body, or the JSON object that was already read from it.

    Errors of `tool_choice` are raised by `Request.call`.

    Raises:
        RequestError: The message names the field and says what would be valid.
    """
    body = decode(data, t.CreateChatCompletion)
    _reject_unsupported(body)
    _settings(body, True)
    _output_format(body)
    return Request(body, messages_of(body.messages), _functions(body))


def _reject_unsupported(body: t.CreateChatCompletion) -> None:
    modalities = [one for one in body.modalities or [] if one != "text"]
    for name, is_requested, advice in (
        ("n", (body.n or 1) > 1, "only one answer is given; send another request for another answer"),
        ("modalities", bool(modalities), "the answer is text; leave it out, or send ['text']"),
        ("audio", body.audio is not None, "the answer is text; leave it out"),
        ("functions", bool(body.functions), "send the functions as tools: [{type: function, function: {…}}]"),
        ("function_call", body.function_call not in (None, "none", "auto"), "send tool_choice instead"),
        ("web_search_options", body.web_search_options is not None, "no search is offered here; leave it out"),
        ("moderation", body.moderation is not None, "no moderation is offered here; leave it out"),
    ):
        if is_requested:
            raise invalid(name, advice, "unsupported_parameter", kind="unsupported")
    if not body.messages:
        raise invalid("messages", "at least one is required", "missing")


# --- settings ----------------------------------------------------------------------------------------------------


def _settings(body: t.CreateChatCompletion, has_tools: bool) -> ModelSettings:
    """Return the model settings. `has_tools`: whether the model gets any functions."""
    logprobs = body.logprobs or (body.logprobs is None and bool(body.top_logprobs))
    overrides = {
        "max_tokens": body.max_completion_tokens or body.max_tokens,
        "logit_bias": body.logit_bias or None,
        "stop_sequences": [body.stop] if isinstance(body.stop, str) else body.stop or None,
        "parallel_tool_calls": body.parallel_tool_calls if has_tools else None,
        "user": body.safety_identifier or body.user,
        "logprobs": logprobs or None,
        "top_logprobs": (body.top_logprobs or 0) if logprobs else None,
        **_thinking(body),
    }
    return requested_settings(body, {"cache_key": "prompt_cache_key"}, overrides)


def _thinking(body: t.CreateChatCompletion) -> dict[str, Any]:
    """Return the reasoning settings.

    OpenAI's field and OpenRouter's object may both be present, but must not contradict each other.
    """
    reasoning = body.reasoning or t.ChatReasoningParam()
    effort = reasoning.effort or body.reasoning_effort
    if body.reasoning_effort is not None and effort != body.reasoning_effort:
        raise _contradiction("reasoning.effort", reasoning.effort, "reasoning_effort", body.reasoning_effort)
    if reasoning.enabled is False and (effort not in (None, "none") or reasoning.max_tokens is not None):
        setting = ("effort", effort) if effort is not None else ("max_tokens", reasoning.max_tokens)
        raise _contradiction("reasoning.enabled", False, *setting)
    if effort == "none" and (reasoning.enabled or reasoning.max_tokens is not None):
        setting = ("reasoning.enabled", True) if reasoning.enabled else ("reasoning.max_tokens", reasoning.max_tokens)
        raise _contradiction(*setting, "effort", "none")
    is_disabled = effort == "none" or reasoning.enabled is False
    return {
        "thinking": False if is_disabled else effort or (True if reasoning.enabled else None),
        "thinking_budget": reasoning.max_tokens,
        "thinking_summary": reasoning.summary,
    }


def _contradiction(path: str, value: Any, other: str, other_value: Any) -> RequestError:
    return invalid(path, f"it is {value!r}, but {other} is {other_value!r}; send one of them")


def _output_format(body: t.CreateChatCompletion) -> OutputFormat:
    match body.response_format:
        case t.ChatFormatJsonObject():
            return OutputFormat("json_object")
        case t.ChatFormatJsonSchema(json_schema=form):
            check_depth(form.schema, "response_format.json_schema.schema")
            return OutputFormat("json_schema", form.name, form.schema, form.description, form.strict)
        case _:
            return OutputFormat()


# --- tools -------------------------------------------------------------------------------------------------------

_TOOL_CHOICE_FORMS = (
    "must be 'none', 'auto', 'required', {type: function, function: {name}} or "
    "{type: allowed_tools, allowed_tools: {mode, tools}} with at least one tool"
)


def _functions(body: t.CreateChatCompletion) -> tuple[ToolDefinition, ...]:
    functions: list[ToolDefinition] = []
    for index, tool in enumerate(body.tools or []):
        if tool.type != "function":
            problem = f"{truncate(tool.type)!r} is not offered here; only 'function' tools are"
            raise invalid(f"tools[{index}].type", problem, "unsupported_tool", kind="unsupported")
        path, function = f"tools[{index}].function", tool.function
        if function is None:
            raise invalid(path, "it is required: {name, description, parameters}", "missing")
        check_depth(function.parameters, f"{path}.parameters")
        functions.append(
            ToolDefinition(function.name, function.parameters or {}, function.description, function.strict)
        )
    return tuple(functions)


def _tools_and_choice(tools: tuple[ToolDefinition, ...], choice: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    match choice:
        case None | "auto" | "none" | "required":
            return choose_from_all(tools, choice)
        case {"type": "function", "function": {"name": name}}:
            return require_tool(tools, name)
        case {"type": "allowed_tools", "allowed_tools": {"tools": [_, *_] as entries, **more}}:
            return restrict_tools(tools, [_tool_name(entry) for entry in entries], more.get("mode"), ".allowed_tools")
        case _:
            reject_choice(_TOOL_CHOICE_FORMS)


def _tool_name(entry: Any) -> Any:
    function = entry.get("function") if isinstance(entry, dict) else None
    return function.get("name") if isinstance(function, dict) else None
