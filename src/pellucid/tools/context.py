"""The context of a run that functions get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..events import SideEvent
from ..parts import COSTS, TOKEN_COUNTS, ModelMessage, Usage, UserContent
from ..settings import ModelSettings

Deps = TypeVar("Deps")


@runtime_checkable
class HasSideEvent(Protocol):
    """An event of a client protocol that a run can carry."""

    def as_side_event(self) -> SideEvent:
        """Return the event as a side event of the run."""
        ...


class RunUsage(Usage, frozen=False):  # type: ignore[misc]  # mypy takes structs for dataclasses
    """Tokens of all turns of a run, and the number of requests and calls.

    A run counts into its object while it goes on. Runs that are given the same object (`usage=ctx.usage`) share the
    counts, and the limits that are checked against them.
    """

    requests: int = 0
    """Number of requests to the model."""
    tool_calls: int = 0
    """Number of functions called."""

    def replace_turns(self, counted: Usage, current: Usage) -> None:
        """Count `current` in place of `counted`, which are the tokens of one run at two times."""
        for name in (*TOKEN_COUNTS, *COSTS):
            if (count := getattr(current, name)) is not None:
                setattr(self, name, (getattr(self, name) or 0) + count - (getattr(counted, name) or 0))
        for name, count in current.details.items():
            self.details[name] = self.details.get(name, 0) + count - counted.details.get(name, 0)


@dataclass(frozen=True)
class RunContext(Generic[Deps]):
    """The context of a run.

    It is passed to every function of an agent that takes it: annotated, or as one parameter more than the function
    otherwise has. (For a tool in `tools=[…]`, whose parameters are the model's, the annotation alone decides.)
    """

    deps: Deps
    """The dependencies with which the run was started."""
    model: Any
    """The model of the run."""
    usage: RunUsage = field(default_factory=RunUsage)
    """Tokens, requests and calls so far. Pass it to another agent's run to count and limit both together."""
    prompt: str | list[str | UserContent] | None = None
    messages: list[ModelMessage] = field(default_factory=list)
    """The conversation so far."""
    run_step: int = 0
    """Number of requests to the model so far."""
    model_settings: ModelSettings | None = None
    """For a function that returns settings: the settings so far, of the model and of earlier layers."""
    tool_name: str | None = None
    tool_call_id: str | None = None
    retry: int = 0
    """Number of failures in a row before this call."""
    max_retries: int = 0
    tool_call_approved: bool = False
    """Whether this call was approved (see `ApprovalRequired`)."""
    partial_output: bool = False
    """Whether an output function or validator gets a part of the output, which is still being streamed."""
    on_side_event: Callable[[SideEvent], None] | None = field(default=None, repr=False, compare=False)
    """Receives the events of `emit`."""

    @property
    def last_attempt(self) -> bool:
        """Whether the run fails if this call fails."""
        return self.retry == self.max_retries

    def emit(self, event: Any) -> None:
        """Send a side event to the readers of the run, while the function is still running.

        A client protocol that has no such event leaves it out. May be called from any thread.

        Args:
            event: An event of `pellucid.protocols.agui` (state, activity, a step, …), or a `SideEvent`.

        Raises:
            TypeError: It is not such an event.
        """
        if not isinstance(event, SideEvent):
            if not isinstance(event, HasSideEvent):
                raise TypeError(
                    f"{type(event).__name__} is not an event that can be emitted: give a SideEvent, or an event of "
                    "pellucid.protocols.agui"
                )
            event = event.as_side_event()
        if self.on_side_event is not None:
            self.on_side_event(event)
