"""Deferred calls: calls that need an approval first, or whose result comes from outside the run.

A tool defers a call by raising `ApprovalRequired` or `CallDeferred`. The run then ends with `DeferredToolRequests` as
its output. Another run continues with the same messages and the results (`DeferredToolResults`). The names are Pydantic
AI's.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..events import DEFERRED, SideEvent
from ..parts import ToolCallPart


class ApprovalRequired(Exception):
    """Raised by a tool: this call must be approved first. `ctx.tool_call_approved` is true after the approval.

    Args:
        metadata: Sent with the request for approval.
        message: A message to the user who approves or denies the call.
    """

    def __init__(self, metadata: dict[str, Any] | None = None, *, message: str | None = None) -> None:
        super().__init__(message or "this call needs approval")
        self.metadata = metadata
        self.message = message


class CallDeferred(Exception):
    """Raised by a tool: the result of this call comes from elsewhere, for example from the user.

    Args:
        metadata: Sent with the request for the result.
        message: A message to the user or program that has the result.
        response_schema: The JSON Schema of the result.
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
    """Return the side event `run`, `deferred`, by which a run reports a call that it waits for.

    Its value has `tool_call_id`, `tool_name`, `arguments`, `approval` (whether the call needs an approval, or a
    result), and the `message`, `metadata` and `response_schema` of the tool's exception. Each client protocol has its
    own form of it.
    """
    value: dict[str, Any] = {
        "tool_call_id": call.tool_call_id,
        "tool_name": call.tool_name,
        "arguments": call.args,
        "approval": isinstance(deferral, ApprovalRequired),
        "message": deferral.message,
        "metadata": deferral.metadata,
        "response_schema": None if isinstance(deferral, ApprovalRequired) else deferral.response_schema,
    }
    return SideEvent(*DEFERRED, value)


@dataclass(frozen=True)
class ToolApproved:
    """The call is approved, with other arguments if `override_args` is set."""

    override_args: dict[str, Any] | None = None


@dataclass(frozen=True)
class ToolDenied:
    """The call is denied. The model gets the message."""

    message: str = "The tool call was denied."


@dataclass(frozen=True)
class DeferredToolRequests:
    """The output of a run that ended with deferred calls."""

    calls: list[ToolCallPart] = field(default_factory=list)
    """Calls whose results come from elsewhere."""
    approvals: list[ToolCallPart] = field(default_factory=list)
    """Calls that need an approval."""
    metadata: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The metadata of the tools' exceptions, by call id."""


@dataclass(frozen=True)
class DeferredToolResults:
    """Results and approvals of deferred calls, by call id."""

    calls: dict[str, Any] = field(default_factory=dict)
    """Results. A `ModelRetry` or a `ToolFailed` says that the call failed."""
    approvals: dict[str, Any] = field(default_factory=dict)
    """For each call, True or False, a `ToolApproved`, or a `ToolDenied`."""

    def approval(self, call_id: str) -> ToolApproved | ToolDenied | None:
        """Return the approval or denial of this call, or None if there is none."""
        decision: bool | ToolApproved | ToolDenied | None = self.approvals.get(call_id)
        if isinstance(decision, bool):
            return ToolApproved() if decision else ToolDenied()
        return decision


@dataclass
class Deferrals:
    """The approvals and the deferred calls of one turn."""

    approved_ids: Collection[str] = ()
    by_call_id: dict[str, Deferral] = field(default_factory=dict)
