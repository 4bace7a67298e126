"""What a run of an agent begins with when it is served: to `asgi`, agents of ours and of others look the same.

`Start` says what was asked, whoever is `Startable` gives the `RunSource`. `StateDeps` are dependencies that hold what a
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
from ..tools import DeferredToolResults, shape_of


def went_on(
    history: Sequence[ModelMessage], results: DeferredToolResults
) -> tuple[list[ModelMessage], tuple[ToolCallPart, ...]]:
    """The history with the results that came from elsewhere, and the calls of which was said whether they may be made.

    Raises `RequestError` for a call that does not wait.
    """
    if not results.calls and not results.approvals:
        return list(history), ()
    waiting = unanswered(history)
    for id in (*results.calls, *results.approvals):
        if id not in waiting:
            raise RequestError(f"no call with the id {id!r} waits at the end of the conversation", code="no_such_call")
    given = [ToolReturnPart(waiting[id].tool_name, value, id) for id, value in results.calls.items()]
    pending = tuple(call for id, call in waiting.items() if id in results.approvals)
    return [*history, *([ModelRequest([*given])] if given else [])], pending


def unanswered(history: Sequence[ModelMessage]) -> dict[str, ToolCallPart]:
    """The calls of the last turn that have no result yet."""
    waiting: dict[str, ToolCallPart] = {}
    for message in history:
        if isinstance(message, ModelResponse):
            waiting = {call.tool_call_id: call for call in message.tool_calls}
        else:
            for part in message.parts:
                if isinstance(part, ToolReturnPart | RetryPromptPart):
                    waiting.pop(part.tool_call_id, None)
    return waiting


State = TypeVar("State")


@dataclass
class StateDeps(Generic[State]):
    """Dependencies of a run that are its state, typed as it is here. Each run has a copy of its own.

    Any dataclass with a field `state` will do in its place.
    """

    state: State


@dataclass(frozen=True, kw_only=True)
class Start:
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
class Startable(Protocol):
    """An agent, as whoever serves it sees it."""

    async def start(self, start: Start) -> RunSource:
        """A run, not yet opened, in which faults are events and are logged. Raises `RequestError` for what this agent
        cannot be asked."""
        ...


def with_state(deps: Any, state: Any) -> Any:
    """`deps` for one run: those with a field `state` have this one in it, as the type of what they hold. One that says
    nothing ({} or None) leaves theirs, but a copy of it. Raises `RequestError`."""
    if not _holds_state(deps):
        return deps
    known = deps.state
    if state in (None, {}):
        return dataclasses.replace(deps, state=copy.deepcopy(known))
    if known is None or isinstance(known, dict | list):
        return dataclasses.replace(deps, state=state)
    try:
        # Of pydantic's errors, the words say what was wrong with what, and are ValueErrors as well.
        return dataclasses.replace(deps, state=shape_of(type(known)).read(state))
    except ValueError as error:
        raise RequestError(f"state: {error}", code="invalid_value", param="state") from None


class NameTaken(TypedDict):
    message: str
    code: str
    param: str


def name_taken(index: int, name: str) -> NameTaken:
    """What is wrong with a tool of whoever asked, which has the name of one of the agent's."""
    at = f"tools[{index}].name"
    what = f"{at}: this agent has a tool {name!r} of its own: give yours another name"
    return {"message": what, "code": "invalid_value", "param": at}


def _holds_state(deps: Any) -> bool:
    if not dataclasses.is_dataclass(deps) or isinstance(deps, type):
        return False
    return any(held.name == "state" for held in dataclasses.fields(deps))
