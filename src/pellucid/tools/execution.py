"""Executes the calls of one turn: together, each with its time-out and its count of failures.

* A call of an unknown tool, a call with invalid arguments, and a call whose tool raises `ModelRetry` are answered with
  an error message for the model. In an agent, more than `max_retries` failures in a row of one tool end the run.
* An exception of a tool ends the run of an agent, whose author can fix it. Behind a server (`on_error="report"`), no
  tool ends a run: the model gets the fact of the failure and the type of the exception, but never its text.
* Results are in the order of the calls. A sequential tool runs alone.
* A call that needs an approval or a result from outside (see `deferred`) is added to `Deferrals` and has no result.
  Without `Deferrals`, as behind a server, where nothing can be approved, it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from ..parts import Audio, File, Image, RetryPromptPart, Text, ToolCallPart, ToolReturnPart, Video
from ..telemetry import error_location, log
from .context import RunContext
from .deferred import ApprovalRequired, CallDeferred, Deferrals
from .function_tool import FunctionExit, ModelRetry
from .protocol import AnyTool, ToolFailed

Result = ToolReturnPart | RetryPromptPart

CallObserver = Callable[[ToolCallPart], AbstractContextManager[Callable[[Result], None]]]

MAX_RESULT_BYTES = 4 << 20
"""Maximum size of a result behind a server: a million tokens of text, or an image."""

_CONTENT_TYPES = (Text, Image, Audio, Video, File)


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """Defaults of tools, and how calls are executed."""

    max_retries: int = 1
    timeout: float | None = None
    """Seconds for each call."""
    parallel: bool = True
    """Whether calls of one turn run together."""
    observer: CallObserver | None = None
    """Returns a context manager that is entered around each call, and whose value is called with the result."""
    on_error: Literal["raise", "report"] = "raise"
    """How to treat an exception of a tool, a time-out, and calls that fail too often."""
    max_result_bytes: int | None = None
    """Maximum size of a result as JSON. A larger one is a failure that the model is informed of."""


class FailureCounter:
    """Counts consecutive failures of each tool, and of the output.

    Args:
        make_error: Makes the exception that is raised after too many failures, from a message, a code, and the reason
            of the last failure, which may quote anything. Without it there is no limit.
    """

    def __init__(self, make_error: Callable[[str, str, str], Exception] | None = None) -> None:
        self._make_error = make_error
        self._failures: dict[str, int] = {}

    def count(self, name: str) -> int:
        """Return the number of failures in a row."""
        return self._failures.get(name, 0)

    def reset(self, name: str) -> None:
        """Reset the count after a success."""
        self._failures.pop(name, None)

    def record_failure(
        self, name: str, max_failures: int, subject: str, reason: str, cause: Exception | None = None
    ) -> None:
        """Count a failure. Raises the exception of `make_error` if there were too many, with `cause` as its cause."""
        self._failures[name] = self.count(name) + 1
        if self._make_error is not None and self._failures[name] > max_failures:
            message = f"{subject} failed more than {max_failures} times in a row"
            raise self._make_error(message, "retries", reason) from cause


async def call_tools(
    tools: Mapping[str, AnyTool],
    options: ExecutionOptions,
    calls: Sequence[ToolCallPart],
    context: RunContext[Any],
    failures: FailureCounter,
    deferrals: Deferrals | None = None,
) -> list[Result]:
    """Call the tools.

    Args:
        tools: The tools by name.
        options: Defaults of tools, and how calls are executed.
        calls: The calls of one turn.
        context: The context of the run.
        failures: The count of failures of the run.
        deferrals: Collects calls that cannot be answered here; without it, they fail.

    Returns:
        The results in the order of the calls, without those of deferred calls.
    """
    caller = _Caller(tools, options, context, failures, deferrals)
    results: list[Result | None] = []
    parallel_calls: list[ToolCallPart] = []
    for call in calls:
        tool = tools.get(call.tool_name)
        if not options.parallel or (tool is not None and tool.sequential):
            results += await caller.call_together(parallel_calls)
            results += await caller.call_together([call])
            parallel_calls = []
        else:
            parallel_calls.append(call)
    results += await caller.call_together(parallel_calls)
    return [result for result in results if result is not None]


@dataclass(frozen=True)
class _Caller:
    """Calls the tools of one turn. A deferred call has no result: None."""

    tools: Mapping[str, AnyTool]
    options: ExecutionOptions
    context: RunContext[Any]
    failures: FailureCounter
    deferrals: Deferrals | None

    async def call_together(self, calls: list[ToolCallPart]) -> list[Result | None]:
        if len(calls) == 1:
            return [await self._call_observed(calls[0])]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._call_observed(call)) for call in calls]
        except BaseExceptionGroup as errors:
            # One tool's exception ends the run; the others were cancelled.
            error = errors.exceptions[0]
            raise error from error.__cause__
        return [task.result() for task in tasks]

    async def _call_observed(self, call: ToolCallPart) -> Result | None:
        if self.options.observer is None:
            return await self._call(call)
        with self.options.observer(call) as report_result:
            result = await self._call(call)
            if result is not None:
                report_result(result)
            return result

    async def _call(self, call: ToolCallPart) -> Result | None:
        name, options, deferrals = call.tool_name, self.options, self.deferrals
        tool = self.tools.get(name)
        if tool is None:
            reason = f"There is no tool {name!r}. The tools are: {', '.join(self.tools) or 'none'}."
            self.failures.record_failure(name, options.max_retries, f"the tool {name!r}", reason)
            return RetryPromptPart(reason, name, call.tool_call_id)
        max_retries = options.max_retries if tool.max_retries is None else tool.max_retries
        timeout = options.timeout if tool.timeout is None else tool.timeout
        call_context = replace(
            self.context,
            tool_name=name,
            tool_call_id=call.tool_call_id,
            retry=self.failures.count(name),
            max_retries=max_retries,
            tool_call_approved=deferrals is not None and call.tool_call_id in deferrals.approved_ids,
        )
        try:
            arguments = tool.validate(decoded_arguments(call))
        except ValueError as error:
            return self._retry_prompt(call, max_retries, f"The arguments do not fit: {error}", error)
        try:
            if tool.definition.kind == "unapproved" and not call_context.tool_call_approved:
                raise ApprovalRequired
            async with asyncio.timeout(timeout) as limit:
                value = await tool.call(call_context, arguments)
            content = to_json_value(value, name)
            if options.max_result_bytes is not None:
                require_size(content, options.max_result_bytes)
        except (ApprovalRequired, CallDeferred) as error:
            if deferrals is None:
                reason = f"Not called: {error}. This server cannot get an approval or a result from outside."
                return _failed_result(call, reason)
            deferrals.by_call_id[call.tool_call_id] = error
            return None
        except ModelRetry as error:
            return self._retry_or_failure(call, max_retries, str(error), error)
        except ToolFailed as error:
            return _failed_result(call, to_json_value(error.content, name))
        except TimeoutError as error:
            if timeout is None or not limit.expired():
                return self._error_result(call, error)
            return self._retry_or_failure(call, max_retries, f"It did not return within {timeout:g} s.", error)
        except Exception as error:
            return self._error_result(call, error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._error_result(call, error)  # a task inside the tool was cancelled, not the run
        self.failures.reset(name)
        return ToolReturnPart(name, content, call.tool_call_id)

    def _error_result(self, call: ToolCallPart, error: BaseException) -> ToolReturnPart:
        """Raise `error`, or return a result that reports the failure."""
        if self.options.on_error == "raise":
            raise error
        log.warning("the tool %s failed: %s", call.tool_name, error_location(error))
        cause = error.__cause__ if isinstance(error, FunctionExit) else error
        return _failed_result(call, f"The tool failed ({type(cause).__name__}).")

    def _retry_or_failure(self, call: ToolCallPart, max_retries: int, reason: str, cause: Exception) -> Result:
        if self.options.on_error == "report":
            return _failed_result(call, reason)
        return self._retry_prompt(call, max_retries, reason, cause)

    def _retry_prompt(self, call: ToolCallPart, max_retries: int, reason: str, cause: Exception) -> RetryPromptPart:
        self.failures.record_failure(call.tool_name, max_retries, f"the tool {call.tool_name!r}", reason, cause)
        return RetryPromptPart(f"{reason}\n\nFix the errors and try again.", call.tool_name, call.tool_call_id)


def _failed_result(call: ToolCallPart, content: Any) -> ToolReturnPart:
    return ToolReturnPart(call.tool_name, content, call.tool_call_id, "failed")


def require_size(content: Any, max_bytes: int) -> None:
    """Raise `ToolFailed` for a result that is larger than this as JSON."""
    size = len(content) if isinstance(content, str) else len(msgspec.json.encode(content))
    if size > max_bytes:
        raise ToolFailed(f"The result is too large: {size} bytes exceed the limit of {max_bytes}.")


def decoded_arguments(call: ToolCallPart) -> dict[str, Any]:
    """Return a call's arguments. Raises `ValueError` if they are not a JSON object."""
    try:
        return call.args_as_dict()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"they are not a JSON object ({error})") from error


def to_json_value(value: Any, name: str) -> Any:
    """Convert the return value of a tool to a JSON value.

    A list of images, sounds and files is returned unchanged, for models that accept them.

    Raises:
        TypeError: JSON cannot hold the value.
    """
    if isinstance(value, _CONTENT_TYPES):
        value = [value]
    if isinstance(value, list) and value and all(isinstance(entry, _CONTENT_TYPES) for entry in value):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, type):
        return dump(mode="json")
    try:
        json_value = msgspec.to_builtins(value, enc_hook=_encode_pydantic)
        msgspec.json.encode(json_value)  # encoded here, where the error can name the tool
        return json_value
    except (TypeError, NotImplementedError, RecursionError, UnicodeEncodeError) as error:
        raise TypeError(f"the tool {name!r} returned a value that JSON cannot hold: {error}") from error


def _encode_pydantic(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"{type(value).__name__} has no JSON form")
    return dump(mode="json")
