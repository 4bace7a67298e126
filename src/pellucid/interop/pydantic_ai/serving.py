"""What a Pydantic AI agent and an AG-UI client say to each other beside the model: the application's events, calls that
wait for somebody, and what came of them.

Events are of `ag_ui.core` or of `pellucid.protocols.agui`: emitted (`ctx.emit`), or a tool's metadata, as Pydantic AI's
own adapter has it. What is emitted of another kind is a custom event of its name.
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
from . import inward


def aside_of(event: Any) -> SideEvent | None:
    """What the application emitted; None for what is Pydantic AI's own."""
    if not isinstance(event, theirs.CustomEvent):
        return None
    said = event.to_payload()
    found = _event(said)
    return found or CustomEvent(name=event.name, value=inward.jsonable(said)).as_side_event()


def asides_of(result: Any) -> list[SideEvent]:
    """The events that a tool returned beside its result."""
    given = getattr(result, "metadata", None)
    several = given if isinstance(given, Iterable) and not isinstance(given, str | bytes | dict) else [given]
    # A model of pydantic's is iterable as well: over its fields.
    one = _event(given)
    return [one] if one is not None else [found for said in several if (found := _event(said)) is not None]


def interrupts_of(output: Any, callers: Collection[str]) -> list[SideEvent]:
    """What the run waits for, but for the calls of those who asked for it."""
    if not isinstance(output, DeferredToolRequests):
        return []
    said = output.metadata
    calls = [
        (call, CallDeferred(said.get(call.tool_call_id))) for call in output.calls if call.tool_name not in callers
    ]
    leave = [(call, ApprovalRequired(said.get(call.tool_call_id))) for call in output.approvals]
    return [deferred_event(inward.response_part(call), why) for call, why in (*leave, *calls)]  # type: ignore[arg-type]


def results_to(results: DeferredToolResults) -> TheirResults:
    """What came of the calls."""
    approvals: dict[str, Any] = {}
    for id in results.approvals:
        said = results.approval(id)
        if isinstance(said, Denied):
            approvals[id] = ToolDenied(message=said.message)
        elif said is not None:
            approvals[id] = ToolApproved(override_args=said.override_args)
    return TheirResults(calls=dict(results.calls), approvals=approvals)


def _event(said: Any) -> SideEvent | None:
    if isinstance(said, (AGUIEvent, Interrupt)):
        return said.as_side_event()
    if not (type(said).__module__.startswith("ag_ui.") and hasattr(said, "type") and hasattr(said, "model_dump")):
        return None
    fields = said.model_dump(mode="json", by_alias=True, exclude_none=True)
    return SideEvent(NAMESPACE, fields.pop("type"), fields)
