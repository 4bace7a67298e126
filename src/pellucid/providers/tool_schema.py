"""The caller's functions, as wires write them that have a name, a description and a JSON Schema for each."""

from __future__ import annotations

from typing import Any

import msgspec

from ..errors import RequestError
from ..parts import ToolCallPart, json_text
from ..settings import ModelCall, ToolDefinition


def offered_tools(call: ModelCall) -> tuple[ToolDefinition, ...]:
    """The functions to offer. A choice narrowed to some names is said by offering only those.

    Raises `RequestError` for a choice of functions that there are not.
    """
    tools, choice = call.tools, call.tool_choice
    unknown = sorted(set(choice.names) - {tool.name for tool in tools})
    if tools and unknown:
        raise RequestError(
            f"tool_choice names {', '.join(unknown)}; the tools are: {', '.join(tool.name for tool in tools)}",
            code="unknown_tool",
            param="tool_choice",
        )
    if choice.names and choice.mode != "none":
        return tuple(tool for tool in tools if tool.name in choice.names)
    return tools


def function_tool(tool: ToolDefinition, **more: Any) -> dict[str, Any]:
    """`{"type": "function", "function": {…}}`, with `more` inside where it is not None."""
    function: dict[str, Any] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {"type": "object", "properties": {}},
        **more,
    }
    return {"type": "function", "function": {name: value for name, value in function.items() if value is not None}}


def arguments_object(call: ToolCallPart) -> dict[str, Any]:
    """The arguments as an object, for wires that take nothing else; what is none is wrapped, for the model to see."""
    try:
        return call.args_as_dict()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {"invalid_json": call.args}


def arguments_text(args: Any) -> str:
    """Arguments as JSON text, which they mostly are already; nothing at all is no text yet."""
    return args if isinstance(args, str) else "" if args is None else json_text(args)
