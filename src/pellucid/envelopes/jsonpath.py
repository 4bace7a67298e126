"""JSONPath, as much of it as a capability needs: `$.params[*].name`, `$..uri`, `$['odd key'][0]`.

Names, numbers (from the end too), `*` for every entry, `..` for every depth. Filters, slices and scripts are refused: a
pattern has other words for conditions, and what is looked at must be bounded by what is there.
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


class Step(NamedTuple):
    """One move down; `deep`: from there, or from anything under it."""

    key: str | int | None
    """A name, a number, or None: every entry."""
    deep: bool


Path: TypeAlias = tuple[Step, ...]


class PathSyntaxError(ValueError):
    """What is written there, and what is not possible about it."""


def parse(source: str) -> Path:
    """Raises `PathSyntaxError`."""
    if not source.startswith("$"):
        raise PathSyntaxError("it does not begin with `$`")
    at, steps = 1, []
    while at < len(source):
        match = _STEP.match(source, at)
        if match is None:
            raise PathSyntaxError(
                f"`{source[at : at + 20]}` is no step; steps are `.name`, `['name']`, `[0]`, `[*]` and `.*`, all with "
                "another `.` before them for any depth"
            )
        steps.append(Step(_key(match), match["deep"] is not None))
        at = match.end()
    if len(steps) > MAX_STEPS:
        raise PathSyntaxError(f"it has {len(steps)} steps, and may have {MAX_STEPS}")
    return tuple(steps)


def _key(match: re.Match[str]) -> str | int | None:
    if match["star"] or match["every"]:
        return None
    if match["index"] is not None:
        return int(match["index"])
    return next(match[group] for group in ("name", "single", "double") if match[group] is not None)


def select(path: Path, value: Any, steps: StepBudget) -> list[Any]:
    """What stands there, in order; what is reached in two ways stands there twice. Raises `StepBudgetExceeded`."""
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
    """The value, and everything in it, however deep."""
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
