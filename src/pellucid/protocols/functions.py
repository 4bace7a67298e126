"""Which functions a model may call: the caller's own and the server's, and what a request says about the choice.

The caller's own go before a server's of the same name. A list of allowed functions is enforced by offering no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from ..errors import RequestError
from ..settings import ToolChoice, ToolDefinition
from ..text import brief

Mode = Literal["auto", "none", "required"]
MODES: tuple[Mode, ...] = ("auto", "none", "required")


def offered(own: Sequence[ToolDefinition], server: Sequence[ToolDefinition]) -> tuple[ToolDefinition, ...]:
    names = {tool.name for tool in own}
    return (*own, *(tool for tool in server if tool.name not in names))


def any_of(tools: tuple[ToolDefinition, ...], mode: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """All of them, in this mode; None is `auto`. Raises `RequestError`."""
    if mode == "required" and not tools:
        wrong_choice("'required', but there are no tools")
    return tools, ToolChoice(_mode(mode, ""))


def just(tools: tuple[ToolDefinition, ...], name: Any) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """This one must be called. Raises `RequestError`."""
    return tools, ToolChoice("required", (_named(tools, name),))


def allowed(
    tools: tuple[ToolDefinition, ...], names: Sequence[Any], mode: Any, field: str = ""
) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    """These alone, in this mode, which stands at `tool_choice{field}.mode`. Raises `RequestError`."""
    how = _mode(mode, f"{field}.mode")
    chosen = {_named(tools, name) for name in names}
    return tuple(tool for tool in tools if tool.name in chosen), ToolChoice(how)


def wrong_choice(what: str, field: str = "") -> NoReturn:
    raise RequestError(f"tool_choice{field}: {what}", code="invalid_value", param=f"tool_choice{field}")


def _mode(mode: Any, field: str) -> Mode:
    known = next((known for known in MODES if known == ("auto" if mode is None else mode)), None)
    if known is None:
        wrong_choice("must be 'auto', 'none' or 'required'", field)
    return known


def _named(tools: tuple[ToolDefinition, ...], name: Any) -> str:
    names = {tool.name for tool in tools}
    if not isinstance(name, str) or name not in names:
        there = ", ".join(sorted(names)) or "none"
        wrong_choice(f"there is no tool named {brief(name)!r} in tools (there are: {there})")
    return name
