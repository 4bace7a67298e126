"""What a function may know of the run that calls it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..parts import ModelMessage, Usage, UserContent

Deps = TypeVar("Deps")


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
