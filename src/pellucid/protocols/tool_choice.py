"""Which functions a model may call: the caller's own and the server's, and what a request says about the choice.

The caller's own go before a server's of the same name. A list of allowed functions is enforced by offering no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from ..errors import RequestError
from ..settings import ToolChoice, ToolDefinition
from ..unicode import truncate

Mode = Literal["auto", "none", "required"]
MODES: tuple[Mode, ...] = ("auto", "none", "required")


def merge_tools(
    client_tools: Sequence[ToolDefinition], server_tools: Sequence[ToolDefinition]
) -> tuple[ToolDefinition, ...]:
    names = {tool.name for tool in client_tools}
    return (*client_tools, *(tool for tool in server_tools if tool.name not in names))


def choose_from_all(tools: tuple[ToolDefinition, ...], mode: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """All of them, in this mode; None is `auto`. Raises `RequestError`."""
    if mode == "required" and not tools:
        reject_choice("'required', but there are no tools")
    return tools, ToolChoice(_checked_mode(mode, ""))


def require_tool(tools: tuple[ToolDefinition, ...], name: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """This one must be called. Raises `RequestError`."""
    return tools, ToolChoice("required", (_checked_name(tools, name),))


def restrict_tools(
    tools: tuple[ToolDefinition, ...], names: Sequence[Any], mode: Any, field: str = ""
) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """These alone, in this mode, which stands at `tool_choice{field}.mode`. Raises `RequestError`."""
    checked_mode = _checked_mode(mode, f"{field}.mode")
    chosen = {_checked_name(tools, name) for name in names}
    return tuple(tool for tool in tools if tool.name in chosen), ToolChoice(checked_mode)


def reject_choice(problem: str, field: str = "") -> NoReturn:
    raise RequestError(f"tool_choice{field}: {problem}", code="invalid_value", param=f"tool_choice{field}")


def _checked_mode(mode: Any, field: str) -> Mode:
    known = next((known for known in MODES if known == ("auto" if mode is None else mode)), None)
    if known is None:
        reject_choice("must be 'auto', 'none' or 'required'", field)
    return known


def _checked_name(tools: tuple[ToolDefinition, ...], name: Any) -> str:
    names = {tool.name for tool in tools}
    if not isinstance(name, str) or name not in names:
        available = ", ".join(sorted(names)) or "none"
        reject_choice(f"there is no tool named {truncate(name)!r} in tools (there are: {available})")
    return name
