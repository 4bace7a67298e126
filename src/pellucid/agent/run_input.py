"""The input of a run that is served: to `asgi` and `server`, agents of Pellucid and of other libraries look the same.

A `ServableAgent` takes a `RunInput` and returns a `DrivenRun`. `StateDeps` are dependencies that hold a state which a
client's page and the agent share. The name is Pydantic AI's, whose own class is accepted too.

`resume_history` continues a conversation that ended with deferred calls: it adds their results, and returns the calls
that are to be made now.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..errors import RequestError
from ..models import ChatModel
from ..parts import ModelMessage, ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..runs import DrivenRun, Stage
from ..settings import ModelSettings, ToolDefinition
from ..telemetry import error_location, log
from ..tools import DeferredToolResults, ModelRetry, ToolFailed, type_adapter


def resume_history(
    history: Sequence[ModelMessage], results: DeferredToolResults
) -> tuple[list[ModelMessage], tuple[ToolCallPart, ...]]:
    """Add results from outside to a history.

    Returns:
        The history with the results, and the calls that were approved or denied.

    Raises:
        RequestError: A result belongs to no unanswered call.
    """
    if not results.calls and not results.approvals:
        return list(history), ()
    open_calls = unanswered_calls(history)
    for id in (*results.calls, *results.approvals):
        if id not in open_calls:
            raise RequestError(f"no call with the id {id!r} waits at the end of the conversation", code="no_such_call")
    tool_returns = [_result(open_calls[id], value) for id, value in results.calls.items()]
    pending = tuple(call for id, call in open_calls.items() if id in results.approvals)
    return [*history, *([ModelRequest([*tool_returns])] if tool_returns else [])], pending


def _result(call: ToolCallPart, value: Any) -> ToolReturnPart | RetryPromptPart:
    if isinstance(value, ModelRetry):
        return RetryPromptPart(value.message, call.tool_name, call.tool_call_id)
    if isinstance(value, ToolFailed):
        return ToolReturnPart(call.tool_name, value.content, call.tool_call_id, "failed")
    return ToolReturnPart(call.tool_name, value, call.tool_call_id)


def unanswered_calls(history: Sequence[ModelMessage]) -> dict[str, ToolCallPart]:
    """Return the calls of the last turn that have no result yet."""
    open_calls: dict[str, ToolCallPart] = {}
    for message in history:
        if isinstance(message, ModelResponse):
            open_calls = {call.tool_call_id: call for call in message.tool_calls}
        else:
            for part in message.parts:
                if isinstance(part, ToolReturnPart | RetryPromptPart):
                    open_calls.pop(part.tool_call_id, None)
    return open_calls


State = TypeVar("State")


@dataclass
class StateDeps(Generic[State]):
    """Dependencies of a run that are its state. Each run has a copy of its own.

    The state of a client is converted to the type of the value in `state`. Any dataclass with a field `state` is
    accepted in place of this class.
    """

    state: State


def _unchanged(model: ChatModel) -> ChatModel:
    return model


@dataclass(frozen=True, kw_only=True)
class RunInput:
    """The input of one run."""

    messages: list[ModelMessage]
    """The conversation with its latest message. Nothing in it is sealed."""
    tools: Sequence[ToolDefinition] = ()
    """Functions that the client runs: a call of one ends the run, and its result comes with the next run."""
    results: DeferredToolResults = field(default_factory=DeferredToolResults)
    """Results and approvals of the calls that the previous run deferred."""
    deps: Any = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    stages: Sequence[Stage] = ()
    """The stages that every batch passes before it is read (see `runs.stages`)."""
    max_tool_calls: int | None = None
    """Maximum number of calls of the agent's functions."""
    wrap_model: Callable[[ChatModel], ChatModel] = _unchanged
    """Returns what is called in place of the agent's model: the same model, observed."""


@runtime_checkable
class ServableAgent(Protocol):
    """An agent that can be served."""

    async def start(self, run_input: RunInput) -> DrivenRun:
        """Return a run that is not opened yet. Its failures are events, and are logged.

        Raises:
            RequestError: The agent cannot be run with this input.
        """
        ...


@asynccontextmanager
async def keep_connected(agent: ServableAgent) -> AsyncIterator[None]:
    """Enter an agent for the life of an application, so that its connections to MCP servers are kept between runs.

    Each run enters the agent's toolsets, too. So an agent that cannot be entered now can be served nevertheless: its
    runs connect on their own, and fail on their own.
    """
    enter, leave = getattr(agent, "__aenter__", None), getattr(agent, "__aexit__", None)
    if enter is None or leave is None:
        yield
        return
    try:
        await enter()
    except Exception as error:
        log.warning("the toolsets of an agent cannot be entered; its runs will try: %s", error_location(error))
        yield
        return
    try:
        yield
    finally:
        try:
            await leave(None, None, None)
        except Exception as error:
            log.warning("the toolsets of an agent could not be left: %s", error_location(error))


def with_state(deps: Any, state: Any) -> Any:
    """Return `deps` for one run, with the client's state.

    Only a dataclass with a field `state` takes a state, which is converted to the type of the value in that field. An
    empty state ({} or None) leaves a copy of the value in place.

    Raises:
        RequestError: The state does not fit the type.
    """
    if not _has_state(deps):
        return deps
    default_state = deps.state
    if state in (None, {}):
        return dataclasses.replace(deps, state=copy.deepcopy(default_state))
    if default_state is None or isinstance(default_state, dict | list):
        return dataclasses.replace(deps, state=state)
    try:
        # Errors of pydantic are ValueErrors, too, and their text names the field and the problem.
        return dataclasses.replace(deps, state=type_adapter(type(default_state)).validate(state))
    except ValueError as error:
        raise RequestError(f"state: {error}", code="invalid_value", param="state") from None


def name_conflict(index: int, name: str, error: type[RequestError] = RequestError) -> RequestError:
    """Return the error for a tool of the client that has the name of a tool of the agent."""
    at = f"tools[{index}].name"
    message = f"{at}: this agent has a tool {name!r} of its own: give yours another name"
    return error(message, code="invalid_value", param=at)


def _has_state(deps: Any) -> bool:
    if not dataclasses.is_dataclass(deps) or isinstance(deps, type):
        return False
    return any(field_.name == "state" for field_ in dataclasses.fields(deps))
