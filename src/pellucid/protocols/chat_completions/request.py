"""A request's bytes, checked and turned into a `ModelCall`.

Everything that is wrong is said with its path. What this protocol knows and this server cannot do (`n` above 1, audio
output, custom tools, …) is refused by name; fields that nobody here knows are ignored, as every server of this protocol
ignores them. What asks for nothing that could be missed (`store`, `metadata`) is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...errors import RequestError
from ...parts import ModelMessage, SealedPart, View
from ...settings import ModelCall, ModelSettings, OutputFormat, ToolChoice, ToolDefinition
from ...unicode import truncate
from ..decoding import check_depth, decode, requested_settings
from ..tool_choice import choose_from_all, merge_tools, reject_choice, require_tool, restrict_tools
from . import types as t
from .encode import Encoder
from .messages import messages_of


class Request(NamedTuple):
    """A request as it was understood."""

    body: t.CreateChatCompletion
    messages: list[ModelMessage]
    """The conversation."""
    functions: tuple[ToolDefinition, ...]
    """The caller's own."""

    @property
    def model(self) -> str | None:
        """The model's public name; None for the server's default."""
        return self.body.model

    @property
    def stream(self) -> bool:
        return bool(self.body.stream)

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.body.stream_options is not None and bool(self.body.stream_options.include_usage)

    @property
    def obfuscate(self) -> bool:
        return self.body.stream_options is not None and bool(self.body.stream_options.include_obfuscation)

    @property
    def reasoning_fields(self) -> t.ReasoningFields | None:
        """Which field carries readable reasoning; None for the default."""
        return self.body.reasoning_fields

    @property
    def view(self) -> View | None:
        """`hidden`, where the caller wants no reasoning in the answer; None for what the key allows."""
        exclude = self.body.reasoning.exclude if self.body.reasoning is not None else None
        return "hidden" if exclude or (exclude is None and self.body.include_reasoning is False) else None

    @property
    def wants_summaries(self) -> bool:
        """Where summaries are all that may be seen, there are some; beside the raw text they have no place here."""
        return False

    @property
    def max_tool_calls(self) -> int | None:
        return None

    @property
    def client_tools(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.functions)

    def encoder(self, id: str, model: str, created: int, server_tools: set[str]) -> Encoder:
        """The encoder of the answer. `created` is in seconds since 1970."""
        return Encoder(
            id,
            model,
            created,
            self.reasoning_fields or "both",
            include_usage=self.include_usage,
            obfuscate=self.obfuscate,
            server_tools=server_tools,
        )

    def token_path(self, part: SealedPart) -> str:
        """Where in the request this token stands."""
        for index, message in enumerate(self.body.messages):
            for number, detail in enumerate(getattr(message, "reasoning_details", None) or []):
                if detail.data == part.token:
                    return f"messages[{index}].reasoning_details[{number}].data"
        return "messages"

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """What to ask the model, whose name is still the public one: by default, the conversation as it came.

        `server_tools` are offered beside the caller's own. Raises `RequestError`.
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
    """Raises `RequestError` naming the field and what would be right. What concerns tools, `Request.call` says."""
    body = decode(data, t.CreateChatCompletion)
    _reject_unsupported(body)
    _settings(body, True)
    _output_format(body)
    return Request(body, messages_of(body.messages), _functions(body))


def _reject_unsupported(body: t.CreateChatCompletion) -> None:
    modalities = [one for one in body.modalities or [] if one != "text"]
    for name, is_requested, advice in (
        ("n", (body.n or 1) > 1, "one answer is given; ask again for another"),
        ("modalities", bool(modalities), "the answer is text; leave it out, or send ['text']"),
        ("audio", body.audio is not None, "the answer is text; leave it out"),
        ("functions", bool(body.functions), "send the functions as tools: [{type: function, function: {…}}]"),
        ("function_call", body.function_call not in (None, "none", "auto"), "send tool_choice instead"),
        ("web_search_options", body.web_search_options is not None, "no search is offered here; leave it out"),
        ("moderation", body.moderation is not None, "no moderation is offered here; leave it out"),
    ):
        if is_requested:
            raise RequestError(f"{name}: {advice}", kind="unsupported", code="unsupported_parameter", param=name)
    if not body.messages:
        raise RequestError("messages: at least one is required", code="missing", param="messages")


# --- settings ----------------------------------------------------------------------------------------------------


def _settings(body: t.CreateChatCompletion, has_tools: bool) -> ModelSettings:
    """`tools`: whether there are any."""
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
    """How much to think: OpenAI's field and OpenRouter's object, which may say the same thing but not two things."""
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
    return RequestError(
        f"{path}: it says {value!r}, but {other} says {other_value!r}; say one", code="invalid_value", param=path
    )


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
            raise RequestError(
                f"tools[{index}].type: {truncate(tool.type)!r} is not offered here; only 'function' tools are",
                kind="unsupported",
                code="unsupported_tool",
                param=f"tools[{index}].type",
            )
        path, function = f"tools[{index}].function", tool.function
        if function is None:
            raise RequestError(
                f"{path}: what the function is: {{name, description, parameters}}", code="missing", param=path
            )
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
