"""What a function may know of the run that calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ..events import SideEvent
from ..parts import ModelMessage, Usage, UserContent

Deps = TypeVar("Deps")


@runtime_checkable
class HasSideEvent(Protocol):
    """An event of a protocol that a run can carry."""

    def as_side_event(self) -> SideEvent: ...


@dataclass(frozen=True)
class RunContext(Generic[Deps]):
    """Handed to functions, instructions, processors and handlers whose first parameter is annotated with it."""

    deps: Deps
    """Whatever the run was started with."""
    model: Any
    """The model that is asked."""
    usage: Usage = field(default_factory=Usage)
    """Tokens so far."""
    prompt: str | list[str | UserContent] | None = None
    messages: list[ModelMessage] = field(default_factory=list)
    """The conversation so far."""
    run_step: int = 0
    """How often the model was asked so far."""
    tool_name: str | None = None
    tool_call_id: str | None = None
    retry: int = 0
    """How often this was tried before, and failed."""
    max_retries: int = 0
    tool_call_approved: bool = False
    """Whether somebody agreed to this call (see `ApprovalRequired`)."""
    on_side_event: Callable[[SideEvent], None] | None = field(default=None, repr=False, compare=False)
    """Who is told what `emit` says."""

    def emit(self, event: Any) -> None:
        """Say something beside the model, now: an event of `pellucid.protocols.agui` (state, activity, a step, …), or a
        `SideEvent`. Whoever reads the run gets it while the function still works; a protocol that has no such thing
        leaves it out.

        May be called from any thread. Raises `TypeError` for anything else.
        """
        if not isinstance(event, SideEvent):
            if not isinstance(event, HasSideEvent):
                raise TypeError(
                    f"{type(event).__name__} is no event that can be emitted: give a SideEvent, or an event of "
                    "pellucid.protocols.agui"
                )
            event = event.as_side_event()
        if self.on_side_event is not None:
            self.on_side_event(event)
