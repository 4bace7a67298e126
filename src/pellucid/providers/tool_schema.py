"""Encode functions for wires that describe each by a name, a description and a JSON Schema."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import RequestError
from ..parts import json_text
from ..settings import ModelCall, ToolDefinition


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


def function_tool(tool: ToolDefinition, **more: Any) -> dict[str, Any]:
    """Encode a function as `{"type": "function", "function": {…}}`.

    Args:
        tool: The function.
        **more: Other members of the inner object; None is left out.
    """
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        **more,
    }
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


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
