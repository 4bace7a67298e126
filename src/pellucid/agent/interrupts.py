"""Calls that wait for somebody, as AG-UI has it: an interrupt ends a run, and the next one brings what came of it.

A call whose result comes from elsewhere is an interrupt of the call's own id, and the answer is its result. One that
somebody has to agree to has an id of its own, and is answered with `approved`, with `editedArgs` for other arguments,
or with the `reason` why not: the pattern that the protocol's documentation recommends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..errors import RequestError
from ..events import SideEvent
from ..parts import ToolCallPart
from ..protocols.agui import Interrupt, ResumeEntry, side
from ..tools import ApprovalRequired, Deferral, ToolApproved, ToolDenied

_APPROVAL = "int-"
"""What stands before the call's id where the interrupt asks for leave. (Pydantic AI has the same.)"""


class _Answer(msgspec.Struct, rename="camel"):
    approved: bool
    edited_args: dict[str, Any] | None = None
    reason: str | None = None


ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
"""The JSON Schema of what answers a request for leave."""


def interrupt_of(call: ToolCallPart, why: Deferral) -> SideEvent:
    """The side event that ends a run so."""
    leave = isinstance(why, ApprovalRequired)
    interrupt = Interrupt(
        id=f"{_APPROVAL}{call.tool_call_id}" if leave else call.tool_call_id,
        reason="tool_call" if leave else "input_required",
        message=why.message or (f"May {call.tool_name} be called?" if leave else None),
        tool_call_id=call.tool_call_id,
        response_schema=ANSWER if isinstance(why, ApprovalRequired) else why.response_schema,
        metadata=why.metadata,
    )
    return side(interrupt)


def call_of(interrupt_id: str) -> str | None:
    """The id of the call for which an interrupt of this id asks leave; None: it is no such interrupt."""
    return interrupt_id.removeprefix(_APPROVAL) if interrupt_id.startswith(_APPROVAL) else None


def approvals_of(resume: Sequence[ResumeEntry]) -> dict[str, bool | ToolApproved | ToolDenied]:
    """What was said to requests for leave, by the call's id; other entries are their agent's to understand. Raises
    `RequestError` naming the place."""
    said: dict[str, bool | ToolApproved | ToolDenied] = {}
    for index, entry in enumerate(resume):
        call = call_of(entry.interrupt_id)
        if call is not None:
            said[call] = _said(entry, f"resume[{index}].payload")
    return said


def _said(entry: ResumeEntry, at: str) -> ToolApproved | ToolDenied:
    if entry.status == "cancelled":
        return ToolDenied("The user cancelled this.")
    try:
        answer = msgspec.convert(entry.payload, _Answer)
    except msgspec.ValidationError as error:
        what = f'{at}: {error}; it is an object such as {{"approved": true}}, with editedArgs or reason if need be'
        raise RequestError(what, code="invalid_value", param=at) from None
    if answer.approved:
        return ToolApproved(answer.edited_args)
    return ToolDenied(answer.reason) if answer.reason else ToolDenied()
