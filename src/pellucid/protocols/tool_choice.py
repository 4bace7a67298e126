"""The functions that a model may call: the client's own and the server's, restricted by a request's `tool_choice`.

A function of the client replaces a function of the server with the same name. A list of allowed functions is enforced
by offering no others to the model.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, Literal, NoReturn

from ..settings import ToolChoice, ToolDefinition
from ..unicode import truncate
from .decoding import invalid

Mode = Literal["auto", "none", "required"]
MODES: tuple[Mode, ...] = ("auto", "none", "required")


def merge_tools(
    client_tools: Sequence[ToolDefinition], server_tools: Sequence[ToolDefinition]
) -> tuple[ToolDefinition, ...]:
    """Return the client's functions, then the server's functions that have other names."""
    names = {tool.name for tool in client_tools}
    return (*client_tools, *(tool for tool in server_tools if tool.name not in names))


def choose_from_all(tools: tuple[ToolDefinition, ...], mode: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """Offer all functions, in this mode; None means `auto`. Raises `RequestError`."""
    if mode == "required" and not tools:
        reject_choice("'required', but there are no tools")
    return tools, ToolChoice(_checked_mode(mode, ""))


def require_tool(tools: tuple[ToolDefinition, ...], name: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """Require a call of this function. Raises `RequestError`."""
    return tools, ToolChoice("required", (_checked_name({tool.name for tool in tools}, name),))


def restrict_tools(
    tools: tuple[ToolDefinition, ...], names: Sequence[Any], mode: Any, field: str = ""
) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """Offer only the named functions.

    Args:
        tools: All functions.
        names: The names of the allowed functions, as the request has them.
        mode: The mode, which is at `tool_choice{field}.mode` in the request.
        field: The path within `tool_choice`.

    Raises:
        RequestError: A name or the mode is unknown.
    """
    checked_mode = _checked_mode(mode, f"{field}.mode")
    known = {tool.name for tool in tools}
    chosen = {_checked_name(known, name) for name in names}
    return tuple(tool for tool in tools if tool.name in chosen), ToolChoice(checked_mode)


def reject_choice(problem: str, field: str = "") -> NoReturn:
    """Raise `RequestError` for a problem at `tool_choice{field}`."""
    raise invalid(f"tool_choice{field}", problem)


def _checked_mode(mode: Any, field: str) -> Mode:
    known = next((known for known in MODES if known == ("auto" if mode is None else mode)), None)
    if known is None:
        reject_choice("must be 'auto', 'none' or 'required'", field)
    return known


def _checked_name(names: Set[str], name: Any) -> str:
    if not isinstance(name, str) or name not in names:
        available = ", ".join(sorted(names)) or "none"
        reject_choice(f"there is no tool named {truncate(name)!r} in tools (there are: {available})")
    return name
