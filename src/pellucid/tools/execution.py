"""Tools, called as the model asks: together, each with its time and its tries.

* A call that names no tool, has arguments that do not fit, or whose tool asks for it (`ModelRetry`), goes back to the
  model with what was wrong. Under an agent, more than `max_retries` in a row for one tool end the run.
* What a tool breaks on ends the run of an agent, which is code and can be mended; behind a server (`faults="tell"`)
  no tool ends anybody's run: the model is told that it failed, and of what type the fault was, but never its words.
* Results come in the order of the calls. A sequential tool runs alone.
* A call that somebody else has to agree to, or to answer (see `deferred`), is left in the `Deferrals`, and has no result;
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
from ..telemetry import error_location, log
from .context import RunContext
from .deferred import ApprovalRequired, CallDeferred, Deferrals
from .function_tool import ModelRetry, Tool
from .protocol import AnyTool, ToolFailed

Result = ToolReturnPart | RetryPromptPart

CallObserver = Callable[[ToolCallPart], AbstractContextManager[Callable[[Result], None]]]

_CONTENT_TYPES = (Text, Image, Audio, Video, File)


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """What holds for tools that do not say otherwise."""

    max_retries: int = 1
    timeout: float | None = None
    """Seconds for each call."""
    parallel: bool = True
    """Whether calls of one turn run together."""
    observer: CallObserver | None = None
    """What is entered around each call, and told its result."""
    on_error: Literal["raise", "tell"] = "raise"
    """What is done about what a tool breaks on, a time-out, and calls that are wrong too often."""


class Toolset:
    """The tools there are. One for any number of runs."""

    def __init__(self, tools: Sequence[AnyTool | Callable[..., Any]], options: ExecutionOptions) -> None:
        self.options = options
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

    def max_retries_of(self, tool: AnyTool) -> int:
        return self.options.max_retries if tool.max_retries is None else tool.max_retries

    def timeout_of(self, tool: AnyTool) -> float | None:
        return self.options.timeout if tool.timeout is None else tool.timeout


class FailureCounter:
    """How often in a row each tool, or the answer, was tried in vain. `fault(message, code, said)` is raised when it
    was too often, with the words of the last try apart, which may quote anything; without one there is no limit."""

    def __init__(self, make_error: Callable[[str, str, str], Exception] | None = None) -> None:
        self._make_error = make_error
        self._failures: dict[str, int] = {}

    def count(self, name: str) -> int:
        return self._failures.get(name, 0)

    def reset(self, name: str) -> None:
        self._failures.pop(name, None)

    def record_failure(self, name: str, max_failures: int, subject: str, reason: str) -> None:
        """Count it. Raises the fault if it was one too many."""
        self._failures[name] = self.count(name) + 1
        if self._make_error is not None and self._failures[name] > max_failures:
            raise self._make_error(f"{subject} failed more than {max_failures} times in a row", "retries", reason)


async def call_tools(
    toolset: Toolset,
    calls: Sequence[ToolCallPart],
    context: RunContext[Any],
    failures: FailureCounter,
    deferrals: Deferrals | None = None,
) -> list[Result]:
    """Call the tools; results in the order of the calls, without those that the gate holds."""
    results: dict[int, Result] = {}
    parallel_indices: list[int] = []
    for index, call in enumerate(calls):
        tool = toolset.get(call.tool_name)
        if not toolset.options.parallel or (tool is not None and tool.sequential):
            await _call_group(toolset, calls, parallel_indices, context, failures, deferrals, results)
            parallel_indices = []
            await _call_group(toolset, calls, [index], context, failures, deferrals, results)
        else:
            parallel_indices.append(index)
    await _call_group(toolset, calls, parallel_indices, context, failures, deferrals, results)
    return [results[index] for index in range(len(calls)) if index in results]


async def _call_group(
    toolset: Toolset,
    calls: Sequence[ToolCallPart],
    indices: list[int],
    context: RunContext[Any],
    failures: FailureCounter,
    deferrals: Deferrals | None,
    results: dict[int, Result],
) -> None:
    group_results: dict[int, Result | None] = {}
    if len(indices) == 1:
        group_results = {indices[0]: await _call_observed(toolset, calls[indices[0]], context, failures, deferrals)}
    elif indices:
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {
                    index: group.create_task(_call_observed(toolset, calls[index], context, failures, deferrals))
                    for index in indices
                }
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None  # one tool's fault ends the run; the others were cancelled
        group_results = {index: task.result() for index, task in tasks.items()}
    results |= {index: result for index, result in group_results.items() if result is not None}


async def _call_observed(
    toolset: Toolset,
    call: ToolCallPart,
    context: RunContext[Any],
    failures: FailureCounter,
    deferrals: Deferrals | None,
) -> Result | None:
    if toolset.options.observer is None:
        return await _call_tool(toolset, call, context, failures, deferrals)
    with toolset.options.observer(call) as report_result:
        result = await _call_tool(toolset, call, context, failures, deferrals)
        if result is not None:
            report_result(result)
        return result


async def _call_tool(
    toolset: Toolset,
    call: ToolCallPart,
    context: RunContext[Any],
    failures: FailureCounter,
    deferrals: Deferrals | None,
) -> Result | None:
    name = call.tool_name
    tool = toolset.get(name)
    if tool is None:
        reason = f"There is no tool {name!r}. The tools are: {', '.join(toolset.names) or 'none'}."
        failures.record_failure(name, toolset.options.max_retries, f"the tool {name!r}", reason)
        return RetryPromptPart(reason, name, call.tool_call_id)
    max_retries, timeout = toolset.max_retries_of(tool), toolset.timeout_of(tool)
    call_context = replace(
        context,
        tool_name=name,
        tool_call_id=call.tool_call_id,
        retry=failures.count(name),
        max_retries=max_retries,
        tool_call_approved=deferrals is not None and call.tool_call_id in deferrals.approved_ids,
    )
    try:
        arguments = tool.validate(decoded_arguments(call))
    except ValueError as error:
        return _retry_prompt(call, failures, max_retries, f"The arguments do not fit: {error}")
    try:
        if getattr(tool, "requires_approval", False) and not call_context.tool_call_approved:
            raise ApprovalRequired
        async with asyncio.timeout(timeout) as limit:
            value = await tool.call(call_context, arguments)
        content = to_json_value(value, name)
    except (ApprovalRequired, CallDeferred) as error:
        if deferrals is None:
            return ToolReturnPart(name, f"Not called: {error}, for which nobody is here.", call.tool_call_id, "failed")
        deferrals.by_call_id[call.tool_call_id] = error
        return None
    except ModelRetry as error:
        if toolset.options.on_error == "tell":
            return ToolReturnPart(name, str(error), call.tool_call_id, "failed")
        return _retry_prompt(call, failures, max_retries, str(error))
    except ToolFailed as error:
        return ToolReturnPart(name, to_json_value(error.content, name), call.tool_call_id, "failed")
    except TimeoutError as error:
        if timeout is None or not limit.expired():
            return _error_result(toolset, call, error)
        reason = f"It did not return within {timeout:g} s."
        if toolset.options.on_error == "tell":
            return ToolReturnPart(name, reason, call.tool_call_id, "failed")
        return _retry_prompt(call, failures, max_retries, reason)
    except (Exception, SystemExit) as error:
        return _error_result(toolset, call, error)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return _error_result(toolset, call, error)  # something inside it was cancelled, not the run
    failures.reset(name)
    return ToolReturnPart(name, content, call.tool_call_id)


def _error_result(toolset: Toolset, call: ToolCallPart, error: BaseException) -> ToolReturnPart:
    """Raises `error`, or gives the result that says that there was one."""
    if toolset.options.on_error == "raise":
        raise error
    log.warning("the tool %s failed: %s", call.tool_name, error_location(error))
    reason = f"The tool failed ({type(error).__name__})."
    return ToolReturnPart(call.tool_name, reason, call.tool_call_id, "failed")


def _retry_prompt(call: ToolCallPart, failures: FailureCounter, max_retries: int, reason: str) -> RetryPromptPart:
    failures.record_failure(call.tool_name, max_retries, f"the tool {call.tool_name!r}", reason)
    return RetryPromptPart(f"{reason}\n\nFix the errors and try again.", call.tool_name, call.tool_call_id)


def decoded_arguments(call: ToolCallPart) -> dict[str, Any]:
    """Raises `ValueError` for what is not a JSON object."""
    try:
        return call.args_as_dict()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"they are not a JSON object ({error})") from error


def to_json_value(value: Any, name: str) -> Any:
    """What a tool returned, as JSON holds it; pictures, sounds and files in a list stay what they are, for models that
    can see them. Raises `TypeError` for what JSON cannot hold."""
    if isinstance(value, _CONTENT_TYPES):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(entry, _CONTENT_TYPES) for entry in value):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    try:
        json_value = msgspec.to_builtins(value, enc_hook=_encode_pydantic)
        msgspec.json.encode(json_value)  # here, where it can be said which tool it was
        return json_value
    except (TypeError, NotImplementedError, RecursionError, UnicodeEncodeError) as error:
        raise TypeError(f"the tool {name!r} returned what JSON cannot hold: {error}") from error


def _encode_pydantic(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")
