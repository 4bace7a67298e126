"""Tools, called as the model asks: together, each with its time and its tries.

* A call that names no tool, has arguments that do not fit, or whose tool asks for it (`ModelRetry`), goes back to the
  model with what was wrong. Under an agent, more than `max_retries` in a row for one tool end the run.
* What a tool breaks on ends the run of an agent, which is code and can be mended; behind a server (`faults="tell"`)
  no tool ends anybody's run: the model is told that it failed, and of what type the fault was, but never its words.
* Results come in the order of the calls. A sequential tool runs alone.
* A call that somebody else has to agree to, or to answer (see `deferred`), is left in the `Gate`, and has no result;
  without one, as behind a server, where nobody could be asked, it failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from ..errors import RequestError
from ..parts import Audio, File, Image, RetryPromptPart, Text, ToolCallPart, ToolReturnPart, Video
from ..settings import ToolDefinition
from ..telemetry import log, place_of
from .context import RunContext
from .deferred import ApprovalRequired, CallDeferred, Gate
from .functions import ModelRetry, Tool
from .protocol import AnyTool, ToolFailed

Result = ToolReturnPart | RetryPromptPart

Watch = Callable[[ToolCallPart], AbstractContextManager[Callable[[Result], None]]]

_CONTENT = (Text, Image, Audio, Video, File)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What holds for tools that do not say otherwise."""

    retries: int = 1
    timeout: float | None = None
    """Seconds for each call."""
    parallel: bool = True
    """Whether calls of one turn run together."""
    watch: Watch | None = None
    """What is entered around each call, and told its result."""
    faults: Literal["raise", "tell"] = "raise"
    """What is done about what a tool breaks on, a time-out, and calls that are wrong too often."""


class Toolbox:
    """The tools there are. One for any number of runs."""

    def __init__(self, tools: Sequence[AnyTool | Callable[..., Any]], rules: Rules) -> None:
        self.rules = rules
        self._tools: dict[str, AnyTool] = {}
        for tool in tools:
            self.add(tool if isinstance(tool, AnyTool) else Tool(tool))

    def add(self, tool: AnyTool) -> None:
        """Raises `RequestError` for a second tool of one name."""
        if tool.name in self._tools:
            raise RequestError(f"there are two tools with the name {tool.name!r}; give one another name")
        self._tools[tool.name] = tool

    @property
    def definitions(self) -> list[ToolDefinition]:
        return [tool.definition for tool in self._tools.values()]

    def get(self, name: str) -> AnyTool | None:
        return self._tools.get(name)

    @property
    def names(self) -> list[str]:
        return list(self._tools)

    def retries_of(self, tool: AnyTool) -> int:
        return self.rules.retries if tool.max_retries is None else tool.max_retries

    def timeout_of(self, tool: AnyTool) -> float | None:
        return self.rules.timeout if tool.timeout is None else tool.timeout


class Attempts:
    """How often in a row each tool, or the answer, was tried in vain. `fault(message, code, said)` is raised when it
    was too often, with the words of the last try apart, which may quote anything; without one there is no limit."""

    def __init__(self, fault: Callable[[str, str, str], Exception] | None = None) -> None:
        self._fault = fault
        self._failed: dict[str, int] = {}

    def so_far(self, name: str) -> int:
        return self._failed.get(name, 0)

    def succeeded(self, name: str) -> None:
        self._failed.pop(name, None)

    def failed(self, name: str, allowed: int, what: str, why: str) -> None:
        """Count it. Raises the fault if it was one too many."""
        self._failed[name] = self.so_far(name) + 1
        if self._fault is not None and self._failed[name] > allowed:
            raise self._fault(f"{what} failed more than {allowed} times in a row", "retries", why)


async def call_all(
    box: Toolbox, calls: Sequence[ToolCallPart], context: RunContext[Any], attempts: Attempts, gate: Gate | None = None
) -> list[Result]:
    """Call the tools; results in the order of the calls, without those that the gate holds."""
    results: dict[int, Result] = {}
    together: list[int] = []
    for index, call in enumerate(calls):
        tool = box.get(call.tool_name)
        if not box.rules.parallel or (tool is not None and tool.sequential):
            await _gather(box, calls, together, context, attempts, gate, results)
            together = []
            await _gather(box, calls, [index], context, attempts, gate, results)
        else:
            together.append(index)
    await _gather(box, calls, together, context, attempts, gate, results)
    return [results[index] for index in range(len(calls)) if index in results]


async def _gather(
    box: Toolbox,
    calls: Sequence[ToolCallPart],
    which: list[int],
    context: RunContext[Any],
    attempts: Attempts,
    gate: Gate | None,
    results: dict[int, Result],
) -> None:
    made: dict[int, Result | None] = {}
    if len(which) == 1:
        made = {which[0]: await _watched(box, calls[which[0]], context, attempts, gate)}
    elif which:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    index: group.create_task(_watched(box, calls[index], context, attempts, gate)) for index in which
                }
        except BaseExceptionGroup as several:
            raise several.exceptions[0] from None  # one tool's fault ends the run; the others were cancelled
        made = {index: task.result() for index, task in tasks.items()}
    results |= {index: result for index, result in made.items() if result is not None}


async def _watched(
    box: Toolbox, call: ToolCallPart, context: RunContext[Any], attempts: Attempts, gate: Gate | None
) -> Result | None:
    if box.rules.watch is None:
        return await _call(box, call, context, attempts, gate)
    with box.rules.watch(call) as told:
        result = await _call(box, call, context, attempts, gate)
        if result is not None:
            told(result)
        return result


async def _call(
    box: Toolbox, call: ToolCallPart, context: RunContext[Any], attempts: Attempts, gate: Gate | None
) -> Result | None:
    name = call.tool_name
    tool = box.get(name)
    if tool is None:
        why = f"There is no tool {name!r}. The tools are: {', '.join(box.names) or 'none'}."
        attempts.failed(name, box.rules.retries, f"the tool {name!r}", why)
        return RetryPromptPart(why, name, call.tool_call_id)
    retries, timeout = box.retries_of(tool), box.timeout_of(tool)
    about = replace(
        context,
        tool_name=name,
        tool_call_id=call.tool_call_id,
        retry=attempts.so_far(name),
        max_retries=retries,
        tool_call_approved=gate is not None and call.tool_call_id in gate.approved,
    )
    try:
        arguments = tool.read(arguments_of(call))
    except ValueError as error:
        return _again(call, attempts, retries, f"The arguments do not fit: {error}")
    try:
        if getattr(tool, "requires_approval", False) and not about.tool_call_approved:
            raise ApprovalRequired
        async with asyncio.timeout(timeout) as limit:
            value = await tool.call(about, arguments)
        content = plain(value, name)
    except (ApprovalRequired, CallDeferred) as error:
        if gate is None:
            return ToolReturnPart(name, f"Not called: {error}, for which nobody is here.", call.tool_call_id, "failed")
        gate.left[call.tool_call_id] = error
        return None
    except ModelRetry as error:
        if box.rules.faults == "tell":
            return ToolReturnPart(name, str(error), call.tool_call_id, "failed")
        return _again(call, attempts, retries, str(error))
    except ToolFailed as error:
        return ToolReturnPart(name, plain(error.content, name), call.tool_call_id, "failed")
    except TimeoutError as error:
        if timeout is None or not limit.expired():
            return _broke(box, call, error)
        why = f"It did not return within {timeout:g} s."
        if box.rules.faults == "tell":
            return ToolReturnPart(name, why, call.tool_call_id, "failed")
        return _again(call, attempts, retries, why)
    except (Exception, SystemExit) as error:
        return _broke(box, call, error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _broke(box, call, error)  # something inside it was cancelled, not the run
    attempts.succeeded(name)
    return ToolReturnPart(name, content, call.tool_call_id)


def _broke(box: Toolbox, call: ToolCallPart, error: BaseException) -> ToolReturnPart:
    """Raises `error`, or gives the result that says that there was one."""
    if box.rules.faults == "raise":
        raise error
    log.warning("the tool %s failed: %s", call.tool_name, place_of(error))
    why = f"The tool failed ({type(error).__name__})."
    return ToolReturnPart(call.tool_name, why, call.tool_call_id, "failed")


def _again(call: ToolCallPart, attempts: Attempts, retries: int, why: str) -> RetryPromptPart:
    attempts.failed(call.tool_name, retries, f"the tool {call.tool_name!r}", why)
    return RetryPromptPart(f"{why}\n\nFix the errors and try again.", call.tool_name, call.tool_call_id)


def arguments_of(call: ToolCallPart) -> dict[str, Any]:
    """Raises `ValueError` for what is not a JSON object."""
    try:
        return call.args_as_dict()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"they are not a JSON object ({error})") from error


def plain(value: Any, name: str) -> Any:
    """What a tool returned, as JSON holds it; pictures, sounds and files in a list stay what they are, for models that
    can see them. Raises `TypeError` for what JSON cannot hold."""
    if isinstance(value, _CONTENT):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(entry, _CONTENT) for entry in value):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    try:
        simple = msgspec.to_builtins(value, enc_hook=_foreign)
        msgspec.json.encode(simple)  # here, where it can be said which tool it was
        return simple
    except (TypeError, NotImplementedError, RecursionError, UnicodeEncodeError) as error:
        raise TypeError(f"the tool {name!r} returned what JSON cannot hold: {error}") from error


def _foreign(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")
