"""Convert what a Pydantic AI agent and an AG-UI client exchange besides the model's output.

These are the application's events, calls that wait for an answer, and the answers. Events are of `ag_ui.core` or of
`pellucid.protocols.agui`. They are emitted (`ctx.emit`) or are the metadata of a tool's result, as in Pydantic AI's own
adapter. Any other emitted value becomes a custom event of its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pydantic_ai import messages as theirs
from pydantic_ai.tools import DeferredToolRequests, ToolApproved, ToolDenied
from pydantic_ai.tools import DeferredToolResults as TheirResults

from ...events import SideEvent
from ...protocols.agui import AGUIEvent, CustomEvent, Interrupt
from ...protocols.agui.messages import NAMESPACE
from ...tools import ApprovalRequired, CallDeferred, DeferredToolResults, deferred_event
from ...tools import ToolDenied as Denied
from . import from_pydantic_ai


def side_event_of(event: Any) -> SideEvent | None:
    """Return the side event for an event that the application emitted; None for Pydantic AI's own events."""
    if not isinstance(event, theirs.CustomEvent):
        return None
    payload = event.to_payload()
    return (
        _as_side_event(payload)
        or CustomEvent(name=event.name, value=from_pydantic_ai.jsonable(payload)).as_side_event()
    )


def side_events_of(result: Any) -> list[SideEvent]:
    """Return the side events in the metadata of a tool's result."""
    metadata = getattr(result, "metadata", None)
    # An event of `ag_ui` is iterable as well, over its fields.
    if (single_event := _as_side_event(metadata)) is not None:
        return [single_event]
    values = metadata if isinstance(metadata, Iterable) and not isinstance(metadata, str | bytes | dict) else ()
    return [side_event for value in values if (side_event := _as_side_event(value)) is not None]


def interrupts_of(output: Any, client_tools: Collection[str]) -> list[SideEvent]:
    """Return the side events for the calls that a run waits for, without calls of the client's tools.

    Args:
        output: The output of the run.
        client_tools: The names of the client's tools.
    """
    if not isinstance(output, DeferredToolRequests):
        return []
    metadata = output.metadata
    calls = [
        (call, CallDeferred(metadata.get(call.tool_call_id)))
        for call in output.calls
        if call.tool_name not in client_tools
    ]
    approvals = [(call, ApprovalRequired(metadata.get(call.tool_call_id))) for call in output.approvals]
    return [deferred_event(from_pydantic_ai.response_part(call), reason) for call, reason in (*approvals, *calls)]  # type: ignore[arg-type]


def results_to(results: DeferredToolResults) -> TheirResults:
    """Convert the results of deferred calls to Pydantic AI's."""
    approvals: dict[str, Any] = {}
    for id in results.approvals:
        approval = results.approval(id)
        if isinstance(approval, Denied):
            approvals[id] = ToolDenied(message=approval.message)
        elif approval is not None:
            approvals[id] = ToolApproved(override_args=approval.override_args)
    return TheirResults(calls=dict(results.calls), approvals=approvals)


def _as_side_event(value: Any) -> SideEvent | None:
    if isinstance(value, (AGUIEvent, Interrupt)):
        return value.as_side_event()
    if not (type(value).__module__.startswith("ag_ui.") and hasattr(value, "type") and hasattr(value, "model_dump")):
        return None
    fields = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    return SideEvent(NAMESPACE, fields.pop("type"), fields)
