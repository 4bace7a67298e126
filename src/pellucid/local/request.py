"""Adapts an OpenAI-dialect request body to the embedded engine, and explains the engine's errors.

* Reasoning is on unless the request sets `reasoning_effort: "none"` (or `chat_template_kwargs.enable_thinking: false`),
  or ends with the beginning of a reply. The efforts `minimal` to `max` set the number of lines.
* A grammar enforces the form of the reasoning: it ends with a sentence, the block is closed, and an answer follows.
  llama.cpp accepts no grammar together with tools, and generates its own for a `response_format`. Then only the
  examples in the template enforce the form, and the efforts are a switch.
* Every request is streamed, because llama.cpp notices a disconnect only when it writes. Measured: a streamed generation
  ends within 0.1 s after a disconnect; one that is not streamed runs to its end and occupies the slot.
* A feature that the engine does not support is refused here with the name of the field. It is not ignored.

The functions are pure: they do not change their input, and read nothing but the packaged grammar.
"""

from __future__ import annotations

from string import Template
from typing import Any

from ..errors import ErrorInfo, ErrorKind, RequestError
from .model_index import read_data

_DEFAULT_EFFORT = "medium"
_LINES_OF_EFFORT = {"minimal": 1, "low": 4, "medium": 8, "high": 12, "xhigh": 16, "max": 24}
"""The lines of reasoning that each effort permits, at most."""
_MAX_WIDTH, _MAX_LAST_WIDTH = 240, 480
"""Characters of a line of reasoning, and of the last one."""
_TOKENS_PER_LINE = 20
"""Typical number of tokens in a line of reasoning (measured: 10 to 30)."""
_REPETITION_SAMPLING = {"dry_multiplier": 0.8, "dry_allowed_length": 12, "dry_penalty_last_n": 96}
"""Makes it unlikely that the last tokens, 12 or more, are repeated at once: small models write zeros without end.
What is further back may be repeated, so that code and quotations can be copied."""
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")


def wants_thinking(body: dict[str, Any]) -> bool:
    """Return whether the request has reasoning on."""
    kwargs = body.get("chat_template_kwargs")
    if isinstance(kwargs, dict) and kwargs.get("enable_thinking") is not None:
        return bool(kwargs["enable_thinking"])
    if body.get("reasoning_effort") == "none":
        return False
    # The model continues a reply that the client has begun. Its reasoning would have come before it.
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return not (isinstance(last, dict) and last.get("role") == "assistant" and not last.get("tool_calls"))


def adapt_body(body: dict[str, Any], *, grammar: str | None = "think.gbnf", max_tokens: int = 2048) -> dict[str, Any]:
    """Return the body to send. The response to it is always a stream with usage, whatever the request has set.

    Args:
        body: The request body. It is not changed.
        grammar: `Model.grammar`. None: the model needs no grammar.
        max_tokens: `Model.max_tokens`. Without a limit, a small model that begins to repeat itself could generate
            until its context is full. That takes minutes, while other requests wait.

    Raises:
        RequestError: The request uses a feature that the engine does not support.
    """
    _reject_unsupported(body)
    out = dict(body)
    out["stream"] = True
    options = out.get("stream_options")
    out["stream_options"] = (options if isinstance(options, dict) else {}) | {"include_usage": True}
    if out.get("max_completion_tokens") is not None:
        out["max_tokens"] = out.pop("max_completion_tokens")
    _adapt_tools(out)
    kwargs = out.get("chat_template_kwargs")
    switches = (kwargs if isinstance(kwargs, dict) else {}) | {"enable_thinking": wants_thinking(out)}
    has_effort = enforces_effort(out, grammar)
    effort = out.pop("reasoning_effort", None)
    for name, value in _REPETITION_SAMPLING.items():
        out.setdefault(name, value)
    if grammar and has_effort:
        out["grammar"] = fit_grammar(read_data(grammar), effort, out.get("max_tokens"))
    out["chat_template_kwargs"] = switches
    if out.get("max_tokens") is None:
        out["max_tokens"] = max_tokens
    return out


def enforces_effort(body: dict[str, Any], grammar: str | None) -> bool:
    """Return whether the effort of this request is enforced, because the grammar for reasoning can be sent with it."""
    response_format = body.get("response_format")
    has_format = isinstance(response_format, dict) and response_format.get("type", "text") != "text"
    has_other = has_format or any(body.get(name) for name in ("tools", "grammar", "json_schema"))
    return bool(grammar) and wants_thinking(body) and not has_other


def fit_grammar(grammar: str, effort: object, max_tokens: object) -> str:
    """Return the grammar with its three limits: of the lines of reasoning, and of the length of a line and of the last.

    Reasoning that is cut off before the answer is useless. So lines of typical length may fill 60 % of the token limit,
    and lines of maximum length (at 3 characters a token) all of it. The last line may be longer than the others: if it
    is cut, the reasoning ends within a sentence.
    """
    known = effort if isinstance(effort, str) and effort in _LINES_OF_EFFORT else _DEFAULT_EFFORT
    max_lines, width, last_width = _LINES_OF_EFFORT[known], _MAX_WIDTH, _MAX_LAST_WIDTH
    if isinstance(max_tokens, int) and max_tokens > 0:
        max_lines = min(max_lines, max(1, int(max_tokens * 0.6 / _TOKENS_PER_LINE)))
        fitting = max(8, int(max_tokens * 3 / max_lines))
        width, last_width = min(width, fitting), min(last_width, fitting)
    limits = {"MAX_LINES": max_lines - 1, "MAX_WIDTH": width, "MAX_LAST_WIDTH": last_width}
    return Template(grammar).substitute(limits)


def _adapt_tools(out: dict[str, Any]) -> None:
    """Reduce `tool_choice` to the two values that the engine supports (`auto`, `required`), and remove other tools."""
    choice = out.get("tool_choice")
    if choice == "none":
        out.pop("tools", None)
        out.pop("tool_choice")
    elif isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        tools = [tool for tool in out.get("tools") or () if _tool_name(tool) == name]
        if not tools:
            raise RequestError(
                f"tool_choice names the function {name!r}, which is not among tools", param="tool_choice"
            )
        out["tools"], out["tool_choice"] = tools, "required"
    if not out.get("tools"):
        out.pop("tools", None)
        out.pop("tool_choice", None)


def _tool_name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def _reject_unsupported(body: dict[str, Any]) -> None:
    count = body.get("n")
    if count is not None and count != 1:
        raise _unsupported_error("one answer a request, so n must be 1", "n")
    modalities = body.get("modalities")
    if isinstance(modalities, list) and any(one != "text" for one in modalities):
        raise _unsupported_error("text only, so modalities must be ['text']", "modalities")
    if body.get("audio") is not None:
        raise _unsupported_error("text only, so audio must be left out", "audio")
    messages = body.get("messages")
    for number, message in enumerate(messages if isinstance(messages, list) else ()):
        content = message.get("content") if isinstance(message, dict) else None
        for index, part in enumerate(content if isinstance(content, list) else ()):
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(kind, str) and kind not in _TEXT_PARTS:
                raise _unsupported_error(
                    f"text only, so a part of the type {kind!r} cannot be read; use a model that takes it, "
                    "or describe its content in words",
                    f"messages[{number}].content[{index}].type",
                )


def _unsupported_error(what: str, param: str) -> RequestError:
    return RequestError(
        f"the embedded model does {what}", kind="unsupported", code="unsupported_by_embedded_model", param=param
    )


def explain_error(status: int, body: object) -> ErrorInfo:
    """Convert an error response of the engine to an `ErrorInfo`.

    Args:
        status: The HTTP status.
        body: The decoded JSON body, or its text.
    """
    error = body.get("error") if isinstance(body, dict) else None
    error = error if isinstance(error, dict) else {}
    engine_message = error.get("message")
    upstream_message = engine_message if isinstance(engine_message, str) and engine_message else None
    if error.get("type") == "exceed_context_size_error":
        return ErrorInfo(
            kind="too_large",
            message=_too_long_message(error),
            code="context_length_exceeded",
            param="messages",
            status=status,
            native=body,
            upstream_message=upstream_message,
        )
    if status == 503:
        message = "the embedded model is still loading; try again in some seconds"
        return ErrorInfo("unavailable", message, status=status, upstream_message=upstream_message)
    is_refusal = 400 <= status < 500
    kind: ErrorKind = "invalid_request" if is_refusal else "model_error"
    message = f"the embedded engine {'refused the request' if is_refusal else 'failed'} (status {status})"
    return ErrorInfo(kind, message, status=status, native=body, upstream_message=upstream_message)


def _too_long_message(error: dict[str, Any]) -> str:
    needs, has = error.get("n_prompt_tokens"), error.get("n_ctx")
    counts = f": {needs} tokens, and its context has {has}" if type(needs) is type(has) is int else ""
    return (
        f"the conversation is too long for the embedded model{counts}. "
        "Shorten it, or open the engine with a longer context"
    )
