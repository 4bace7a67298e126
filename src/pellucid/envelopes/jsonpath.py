"""The subset of JSONPath that capabilities need: `$.params[*].name`, `$..uri`, `$['odd key'][0]`.

Supported are names, indexes (also from the end), `*` for every entry, and `..` for every depth. Filters, slices and
scripts are refused: capabilities have their own conditions, and the work must be bounded by the size of the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from .regex import StepBudget

MAX_STEPS = 20

_STEP = re.compile(
    r"""(?P<deep>\.\.)?(?:
        (?(deep)|\.)(?P<name>[^.\[\]*'"()?@\s]+)
      | (?(deep)|\.)(?P<star>\*)
      | \[\s*(?:(?P<every>\*)|(?P<index>-?[0-9]{1,9})|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\]
    )""",
    re.VERBOSE,
)


class PathStep(NamedTuple):
    """One step down. With `deep`, it starts from the value and from everything in it."""

    key: str | int | None
    """A name, an index, or None for every entry."""
    deep: bool


Path: TypeAlias = tuple[PathStep, ...]


class PathSyntaxError(ValueError):
    """A path that cannot be parsed, with the reason."""


def parse(source: str) -> Path:
    """Parse a path.

    Raises:
        PathSyntaxError: If the path is not supported.
    """
    if not source.startswith("$"):
        raise PathSyntaxError("it does not begin with `$`")
    index, steps = 1, []
    while index < len(source):
        match = _STEP.match(source, index)
        if match is None:
            raise PathSyntaxError(
                f"`{source[index : index + 20]}` is not a step; steps are `.name`, `['name']`, `[0]`, `[*]` and `.*`, "
                "all with another `.` before them for any depth"
            )
        steps.append(PathStep(_key(match), match["deep"] is not None))
        index = match.end()
    if len(steps) > MAX_STEPS:
        raise PathSyntaxError(f"it has {len(steps)} steps, at most {MAX_STEPS} are allowed")
    return tuple(steps)


def _key(match: re.Match[str]) -> str | int | None:
    if match["star"] or match["every"]:
        return None
    if match["index"] is not None:
        return int(match["index"])
    return next(match[group] for group in ("name", "single", "double") if match[group] is not None)


def select(path: Path, value: Any, steps: StepBudget) -> list[Any]:
    """Return the values at the path, in order. A value that is reached in two ways is returned twice.

    Raises:
        StepBudgetExceeded: If the budget is not enough.
    """
    values = [value]
    for step in path:
        starts = [inner for one in values for inner in walk(one, steps)] if step.deep else values
        values = []
        for one in starts:
            for entry in _entries(one, step.key):
                steps.spend()
                values.append(entry)
            steps.spend()
    return values


def walk(value: Any, steps: StepBudget) -> Iterator[Any]:
    """Yield the value and everything in it, at any depth."""
    stack = [value]
    while stack:
        steps.spend()
        one = stack.pop()
        yield one
        stack.extend(reversed(_entries(one, None)))


def _entries(value: Any, key: str | int | None) -> list[Any]:
    if isinstance(value, dict):
        if key is None:
            return list(value.values())
        return [value[key]] if isinstance(key, str) and key in value else []
    if isinstance(value, list | tuple):
        if key is None:
            return list(value)
        return [value[key]] if isinstance(key, int) and -len(value) <= key < len(value) else []
    return []
