"""Calls that are not answered where they are made: somebody else has to agree first, or has the answer.

A tool says so by raising `ApprovalRequired` or `CallDeferred`. The run ends then, and says what it waits for
(`DeferredToolRequests`); another one, with the same messages and what came of it (`DeferredToolResults`), goes on. The
names are Pydantic AI's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..events import SideEvent
from ..parts import ToolCallPart


class ApprovalRequired(Exception):
    """Raised by a tool: this call may be made only if somebody agrees (`ctx.tool_call_approved` says that they did).

    `message` is for whoever is asked; `metadata` goes with the request.
    """

    def __init__(self, metadata: dict[str, Any] | None = None, *, message: str | None = None) -> None:
        super().__init__(message or "this call needs approval")
        self.metadata = metadata
        self.message = message


class CallDeferred(Exception):
    """Raised by a tool: the result of this call comes from elsewhere, for instance from the user.

    `message` is for whoever has it, `response_schema` the JSON Schema of what they are to give.
    """

    def __init__(
        self,
        metadata: dict[str, Any] | None = None,
        *,
        message: str | None = None,
        response_schema: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message or "the result of this call comes from elsewhere")
        self.metadata = metadata
        self.message = message
        self.response_schema = response_schema


Deferral: TypeAlias = ApprovalRequired | CallDeferred


def deferred_event(call: ToolCallPart, deferral: Deferral) -> SideEvent:
    """What a run says of a call that it waits for: the side event `run`, `deferred`. Each protocol has its form of it.

    Its value has `tool_call_id`, `tool_name`, `approval` (whether it needs approval, or a result), and `message`,
    `metadata` and `response_schema` as the tool gave them.
    """
    value: dict[str, Any] = {
        "tool_call_id": call.tool_call_id,
        "tool_name": call.tool_name,
        "approval": isinstance(deferral, ApprovalRequired),
        "message": deferral.message,
        "metadata": deferral.metadata,
        "response_schema": None if isinstance(deferral, ApprovalRequired) else deferral.response_schema,
    }
    return SideEvent("run", "deferred", value)


@dataclass(frozen=True)
class ToolApproved:
    """The call may be made, with other arguments if there are any here."""

    override_args: dict[str, Any] | None = None


@dataclass(frozen=True)
class ToolDenied:
    """The call may not be made; the model is told this."""

    message: str = "The tool call was denied."


@dataclass(frozen=True)
class DeferredToolRequests:
    """What a run waits for: the output of one that ended so."""

    calls: list[ToolCallPart] = field(default_factory=list)
    """Calls whose results come from elsewhere."""
    approvals: list[ToolCallPart] = field(default_factory=list)
    """Calls that somebody has to agree to."""
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the tools said about them, by the call's id."""


@dataclass(frozen=True)
class DeferredToolResults:
    """What came of it, by the call's id. `approvals`: True and False will do."""

    calls: Mapping[str, Any] = field(default_factory=dict)
    approvals: Mapping[str, bool | ToolApproved | ToolDenied] = field(default_factory=dict)

    def approval(self, call_id: str) -> ToolApproved | ToolDenied | None:
        """What was said about this call; None: nothing."""
        decision = self.approvals.get(call_id)
        if isinstance(decision, bool):
            return ToolApproved() if decision else ToolDenied()
        return decision


@dataclass
class Deferrals:
    """The calls of one turn that need somebody's word: those that have it, and those that were left for it."""

    approved_ids: Collection[str] = ()
    by_call_id: dict[str, Deferral] = field(default_factory=dict)
