"""Encode functions, their arguments and the format of an answer, for wires that describe them by a JSON Schema."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from ..errors import RequestError
from ..parts import json_text
from ..settings import ModelCall, OutputFormat, ToolDefinition
from .effort import may_think
from .profile import Profile


def with_possible_choice(call: ModelCall, profile: Profile, *, thinks: bool | None = None) -> ModelCall:
    """Return the call with a tool choice that the model takes: some cannot be forced to call a tool.

    Args:
        call: The call.
        profile: Its `forced_calls` says when the model can be forced.
        thinks: Whether the model may think; None: as the common settings say.

    Raises:
        RequestError: It must call a tool, and cannot be forced.
    """
    choice = call.tool_choice
    if choice.mode != "required" or profile.forced_calls == "free" or not (call.tools or call.native_tools):
        return call
    if profile.forced_calls != "never" and not (may_think(call.settings, profile) if thinks is None else thinks):
        return call
    if choice.is_preference:
        return replace(call, tool_choice=replace(choice, mode="auto"))
    is_never = profile.forced_calls == "never"
    condition, remedy = ("", "") if is_never else (" while it thinks", ", or thinking switched off")
    raise RequestError(
        f"this model cannot be made to call a tool{condition}; tool_choice must be auto or none{remedy}",
        kind="unsupported" if is_never else "invalid_request",
        code="forced_tool_choice",
        param="tool_choice",
    )


def offered_tools(call: ModelCall) -> tuple[ToolDefinition, ...]:
    """Return the functions to send. If the tool choice names some functions, only those are sent.

    Raises:
        RequestError: The tool choice names a function that does not exist.
    """
    tools, choice = call.tools, call.tool_choice
    if tools:
        check_tool_choice(call)
    if choice.names and choice.mode != "none":
        return tuple(tool for tool in tools if tool.name in choice.names)
    return tools


def check_tool_choice(call: ModelCall) -> None:
    """Check that the functions that the tool choice names exist.

    Raises:
        RequestError: One does not.
    """
    names = [*(tool.name for tool in call.tools), *(tool.name for tool in call.native_tools)]
    unknown = sorted(set(call.tool_choice.names) - set(names))
    if unknown:
        raise RequestError(
            f"tool_choice names {', '.join(unknown)}; the tools are: {', '.join(names)}",
            code="unknown_tool",
            param="tool_choice",
        )


FormatMember: TypeAlias = Literal["description", "strict"]


def function_tool(tool: ToolDefinition, *members: Literal["description", "parameters", "strict"]) -> dict[str, Any]:
    """Encode a function as `{"type": "function", "function": {…}}`.

    Args:
        tool: The function.
        *members: The members of the inner object after its name, in order.
    """
    values = {
        "description": tool.description,
        "parameters": tool.parameters_json_schema or {"type": "object", "properties": {}},
        "strict": tool.strict,
    }
    known = {name: values[name] for name in members if values[name] is not None}
    return {"type": "function", "function": {"name": tool.name} | known}


def response_format(output: OutputFormat, *members: FormatMember) -> dict[str, Any]:
    """Encode the format of an answer as the field `response_format`; empty for text.

    Args:
        output: The format.
        *members: The optional members of `json_schema`, in order.
    """
    if output.kind == "text":
        return {}
    if output.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {"response_format": {"type": "json_schema", "json_schema": json_schema(output, *members)}}


def json_schema(output: OutputFormat, *members: FormatMember) -> dict[str, Any]:
    """Encode the name and the schema of an answer's format, and its optional members, in order."""
    optional = {name: value for name in members if (value := getattr(output, name)) is not None}
    return {"name": output.name or "output", "schema": output.schema or {}} | optional


def arguments_object(args: str | dict[str, Any] | None, *, invalid: str = "invalid_json") -> dict[str, Any]:
    """Return a call's arguments as an object, for wires that require one.

    Args:
        args: The arguments, as text or object.
        invalid: The member in which text that is no JSON object is sent, so that the model sees it.
    """
    if isinstance(args, dict):
        return args
    if not args:
        return {}
    try:
        return msgspec.json.decode(args, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {invalid: args}


def arguments_text(args: Any) -> str:
    """Return arguments as JSON text, which they usually are already; empty for None."""
    return args if isinstance(args, str) else "" if args is None else json_text(args)
