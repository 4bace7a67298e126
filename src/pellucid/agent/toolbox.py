"""The functions of a run, called as the model asks: together, each with its time and its tries.

* A call that names no function, has arguments that do not fit, or whose function asks for it (`ModelRetry`), goes back
  to the model with what was wrong; after `max_retries` in a row for one function, the run fails.
* If one of the calls is the run's answer, and a valid one, no other is called any more.
* Results come in the order of the calls. A sequential function runs alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ..errors import RequestError
from ..parts import RetryPromptPart, ToolCallPart, ToolReturnPart
from ..settings import ToolDefinition
from ..tools import ModelRetry, RunContext, Tool
from .errors import UnexpectedModelBehavior

Result = ToolReturnPart | RetryPromptPart


class Toolbox:
    """The functions that an agent has. One for all its runs."""

    def __init__(self, tools: Sequence[Tool | Callable[..., Any]], retries: int, timeout: float | None) -> None:
        self._tools: dict[str, Tool] = {}
        self._retries = retries
        self._timeout = timeout
        for tool in tools:
            self.add(tool if isinstance(tool, Tool) else Tool(tool))

    def add(self, tool: Tool) -> None:
        """Raises `RequestError` for a second tool of one name."""
        if tool.name in self._tools:
            raise RequestError(f"there are two tools with the name {tool.name!r}; give one another name")
        self._tools[tool.name] = tool

    @property
    def definitions(self) -> list[ToolDefinition]:
        return [tool.definition for tool in self._tools.values()]

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name)

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    def retries_of(self, tool: Tool) -> int:
        return self._retries if tool.max_retries is None else tool.max_retries

    def timeout_of(self, tool: Tool) -> float | None:
        return self._timeout if tool.timeout is None else tool.timeout


class Attempts:
    """How often in a row each function, or the answer, was tried in vain."""

    def __init__(self) -> None:
        self._failed: dict[str, int] = {}

    def so_far(self, name: str) -> int:
        return self._failed.get(name, 0)

    def succeeded(self, name: str) -> None:
        self._failed.pop(name, None)

    def failed(self, name: str, allowed: int, what: str, why: str) -> None:
        """Count it. Raises `UnexpectedModelBehavior` if it was one too many."""
        self._failed[name] = self.so_far(name) + 1
        if self._failed[name] > allowed:
            raise UnexpectedModelBehavior(f"{what} failed more than {allowed} times in a row; last: {why}", "retries")


async def call_all(
    box: Toolbox, calls: Sequence[ToolCallPart], context: RunContext[Any], attempts: Attempts
) -> list[Result]:
    """Call the functions; results in the order of the calls."""
    results: dict[int, Result] = {}
    together: list[int] = []
    for index, call in enumerate(calls):
        tool = box.get(call.tool_name)
        if tool is not None and tool.sequential:
            await _gather(box, calls, together, context, attempts, results)
            together = []
            await _gather(box, calls, [index], context, attempts, results)
        else:
            together.append(index)
    await _gather(box, calls, together, context, attempts, results)
    return [results[index] for index in range(len(calls))]


async def _gather(
    box: Toolbox,
    calls: Sequence[ToolCallPart],
    which: list[int],
    context: RunContext[Any],
    attempts: Attempts,
    results: dict[int, Result],
) -> None:
    if len(which) == 1:
        results[which[0]] = await _call(box, calls[which[0]], context, attempts)
    elif which:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {index: group.create_task(_call(box, calls[index], context, attempts)) for index in which}
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # one function's fault ends the run; the others were cancelled
        results |= {index: task.result() for index, task in tasks.items()}


async def _call(box: Toolbox, call: ToolCallPart, context: RunContext[Any], attempts: Attempts) -> Result:
    name = call.tool_name
    tool = box.get(name)
    if tool is None:
        why = f"There is no tool {name!r}. The tools are: {', '.join(box.names) or 'none'}."
        attempts.failed(name, box._retries, f"the tool {name!r}", why)
        return RetryPromptPart(why, name, call.tool_call_id)
    retries, timeout = box.retries_of(tool), box.timeout_of(tool)
    about = replace(
        context, tool_name=name, tool_call_id=call.tool_call_id, retry=attempts.so_far(name), max_retries=retries
    )
    try:
        arguments = tool.read(arguments_of(call))
    except ValueError as error:
        return _again(call, attempts, retries, f"The arguments do not fit: {error}")
    try:
        async with asyncio.timeout(timeout) as limit:
            value = await tool.call(about, arguments)
    except ModelRetry as error:
        return _again(call, attempts, retries, str(error))
    except TimeoutError:
        if timeout is None or not limit.expired():
            raise
        return _again(call, attempts, retries, f"It did not return within {timeout:g} s.")
    attempts.succeeded(name)
    return ToolReturnPart(name, _plain(value, name), call.tool_call_id)


def _again(call: ToolCallPart, attempts: Attempts, retries: int, why: str) -> RetryPromptPart:
    attempts.failed(call.tool_name, retries, f"the tool {call.tool_name!r}", why)
    return RetryPromptPart(f"{why}\n\nFix the errors and try again.", call.tool_name, call.tool_call_id)


def arguments_of(call: ToolCallPart) -> dict[str, Any]:
    """Raises `ValueError` for what is not a JSON object."""
    try:
        return call.args_as_dict()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"they are not a JSON object ({error})") from error


def _plain(value: Any, name: str) -> Any:
    """What a function returned, as JSON holds it."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    try:
        plain = msgspec.to_builtins(value, enc_hook=_foreign)
        msgspec.json.encode(plain)  # here, where it can be said which tool it was
        return plain
    except (TypeError, NotImplementedError, RecursionError, UnicodeEncodeError) as error:
        raise TypeError(f"the tool {name!r} returned what JSON cannot hold: {error}") from error


def _foreign(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")
