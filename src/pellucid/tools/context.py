"""The context of a run that functions get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..events import SideEvent
from ..parts import ModelMessage, Usage, UserContent

Deps = TypeVar("Deps")


@runtime_checkable
class HasSideEvent(Protocol):
    """An event of a client protocol that a run can carry."""

    def as_side_event(self) -> SideEvent:
        """Return the event as a side event of the run."""
        ...


@dataclass(frozen=True)
class RunContext(Generic[Deps]):
    """The context of a run.

    It is passed to functions, instructions, processors and handlers whose first parameter is annotated with it.
    """

    deps: Deps
    """The dependencies with which the run was started."""
    model: Any
    """The model of the run."""
    usage: Usage = field(default_factory=Usage)
    """Tokens so far."""
    prompt: str | list[str | UserContent] | None = None
    messages: list[ModelMessage] = field(default_factory=list)
    """The conversation so far."""
    run_step: int = 0
    """Number of requests to the model so far."""
    tool_name: str | None = None
    tool_call_id: str | None = None
    retry: int = 0
    """Number of failures in a row before this call."""
    max_retries: int = 0
    tool_call_approved: bool = False
    """Whether this call was approved (see `ApprovalRequired`)."""
    on_side_event: Callable[[SideEvent], None] | None = field(default=None, repr=False, compare=False)
    """Receives the events of `emit`."""

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
