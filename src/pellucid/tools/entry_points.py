"""Tools that an operator registers by name: `package.module:function`, or an entry point of the group `pellucid.tools`.

What is found may be a function, a `Tool`, or a list of these. Nothing is loaded that is not named: that a package is
installed is no reason to run it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..errors import ConfigError, RequestError
from .functions import Tool
from .protocol import AnyTool

GROUP = "pellucid.tools"


def load_tools(entries: Sequence[str], *, key: str = "tools") -> list[AnyTool]:
    """The tools, in the order of `entries`. Raises `ConfigError` that names each mistake, under `key`."""
    mistakes: list[str] = []
    tools: dict[str, AnyTool] = {}
    for index, entry in enumerate(entries):
        try:
            for tool in _tools_of(_found(entry)):
                if tool.name in tools:
                    raise _Mistake(f"there is a tool with the name {tool.name!r} before it; give one another name")
                tools[tool.name] = tool
        except _Mistake as mistake:
            mistakes.append(f"{key}[{index}]: {entry!r}: {mistake}")
    if mistakes:
        raise ConfigError(mistakes)
    return list(tools.values())


class _Mistake(Exception):
    """What is wrong with an entry, and what would be right."""


def _found(entry: str) -> Any:
    module, colon, path = entry.partition(":")
    if not colon:
        installed = {point.name: point for point in entry_points(group=GROUP)}
        if entry not in installed:
            there = ", ".join(sorted(installed)) or "none"
            raise _Mistake(
                f"write `package.module:function`, or the name of an entry point of the group {GROUP} "
                f"(there are: {there})"
            )
        module, _, path = installed[entry].value.partition(":")
    if not all(name.isidentifier() for name in (*module.split("."), *path.split("."))):
        raise _Mistake("write `package.module:function`")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise _Mistake(f"there is no module {error.name!r}; install it, or put it on PYTHONPATH") from error
    except (Exception, SystemExit) as error:
        # Its words may quote anything; its place is in the traceback of the cause.
        raise _Mistake(f"the module {module!r} cannot be imported ({type(error).__name__}: {error})") from error
    for name in path.split("."):
        if not hasattr(found, name):
            near = get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _Mistake(f"{getattr(found, '__name__', module)} has no {name!r}{hint}")
        found = getattr(found, name)
    return found


def _tools_of(found: Any) -> Iterable[AnyTool]:
    for one in found if isinstance(found, (list, tuple)) else [found]:
        if isinstance(one, AnyTool) and not isinstance(one, type):
            yield one
        elif callable(one) and not isinstance(one, type):
            try:
                yield Tool(one)
            except RequestError as error:
                raise _Mistake(error.info.message) from error
        else:
            raise _Mistake(f"it must be a function, a Tool, or a list of these, and is a {type(one).__name__}")
