"""What a run of an agent begins with when it is served: to `asgi`, agents of ours and of others look the same.

`Start` says what was asked, whoever is `ServableAgent` gives the `RunSource`. `StateDeps` are dependencies that hold what a
client's page and the agent both work on; the name is Pydantic AI's, whose own will do as well.

A conversation that goes on where calls were left: what came of them, and which of them are to be made now.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypedDict, TypeVar, runtime_checkable

from ..errors import RequestError
from ..parts import ModelMessage, ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..runs import RunSource, Stage
from ..settings import ModelSettings, ToolDefinition
from ..tools import DeferredToolResults, type_adapter


def resume_history(
    history: Sequence[ModelMessage], results: DeferredToolResults
) -> tuple[list[ModelMessage], tuple[ToolCallPart, ...]]:
    """The history with the results that came from elsewhere, and the calls of which was said whether they may be made.

    Raises `RequestError` for a call that does not wait.
    """
    if not results.calls and not results.approvals:
        return list(history), ()
    open_calls = unanswered_calls(history)
    for id in (*results.calls, *results.approvals):
        if id not in open_calls:
            raise RequestError(f"no call with the id {id!r} waits at the end of the conversation", code="no_such_call")
    tool_returns = [ToolReturnPart(open_calls[id].tool_name, value, id) for id, value in results.calls.items()]
    pending = tuple(call for id, call in open_calls.items() if id in results.approvals)
    return [*history, *([ModelRequest([*tool_returns])] if tool_returns else [])], pending


def unanswered_calls(history: Sequence[ModelMessage]) -> dict[str, ToolCallPart]:
    """The calls of the last turn that have no result yet."""
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
    """Dependencies of a run that are its state, typed as it is here. Each run has a copy of its own.

    Any dataclass with a field `state` will do in its place.
    """

    state: State


@dataclass(frozen=True, kw_only=True)
class RunInput:
    """One run."""

    messages: list[ModelMessage]
    """The conversation, the latest word included; nothing in it is sealed."""
    tools: Sequence[ToolDefinition] = ()
    """Functions of whoever asked: a call of one ends the run, and its result comes with the next."""
    results: DeferredToolResults = field(default_factory=DeferredToolResults)
    """What came of the calls that the run before left."""
    deps: Any = None
    settings: ModelSettings = field(default_factory=ModelSettings)
    stages: Sequence[Stage] = ()
    """What every batch passes before it is read (see `runs.stages`)."""


@runtime_checkable
class ServableAgent(Protocol):
    """An agent, as whoever serves it sees it."""

    async def start(self, run_input: RunInput) -> RunSource:
        """A run, not yet opened, in which faults are events and are logged. Raises `RequestError` for what this agent
        cannot be asked."""
        ...


def with_state(deps: Any, state: Any) -> Any:
    """`deps` for one run: those with a field `state` have this one in it, as the type of what they hold. One that says
    nothing ({} or None) leaves theirs, but a copy of it. Raises `RequestError`."""
    if not _has_state(deps):
        return deps
    default_state = deps.state
    if state in (None, {}):
        return dataclasses.replace(deps, state=copy.deepcopy(default_state))
    if default_state is None or isinstance(default_state, dict | list):
        return dataclasses.replace(deps, state=state)
    try:
        # Of pydantic's errors, the words say what was wrong with what, and are ValueErrors as well.
        return dataclasses.replace(deps, state=type_adapter(type(default_state)).validate(state))
    except ValueError as error:
        raise RequestError(f"state: {error}", code="invalid_value", param="state") from None


class NameConflict(TypedDict):
    message: str
    code: str
    param: str


def name_conflict(index: int, name: str) -> NameConflict:
    """What is wrong with a tool of whoever asked, which has the name of one of the agent's."""
    at = f"tools[{index}].name"
    message = f"{at}: this agent has a tool {name!r} of its own: give yours another name"
    return {"message": message, "code": "invalid_value", "param": at}


def _has_state(deps: Any) -> bool:
    if not dataclasses.is_dataclass(deps) or isinstance(deps, type):
        return False
    return any(field_.name == "state" for field_ in dataclasses.fields(deps))
