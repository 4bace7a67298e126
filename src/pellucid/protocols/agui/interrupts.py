"""Interrupts: what a run of an agent waits for, and the answers with which the next run begins.

A call whose result comes from elsewhere is an interrupt of the call's own id, and the answer is its result. One that
needs approval has an id of its own, and is answered with `approved`, with `editedArgs` for other arguments, or with the
`reason` why not: the pattern that the protocol's documentation recommends.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import RequestError
from .messages import Interrupt, ResumeEntry

_APPROVAL_PREFIX = "int-"
"""What stands before the call's id where the interrupt asks for approval. (Pydantic AI has the same.)"""

APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "editedArgs": {"type": "object"},
        "reason": {"type": "string"},
    },
    "required": ["approved"],
}
"""The JSON Schema of the answer to a request for approval."""


class DeferredCall(msgspec.Struct, frozen=True):
    """The value of the side event `run`, `deferred`: a call that a run waits for."""

    tool_call_id: str
    tool_name: str
    approval: bool
    message: str | None = None
    metadata: dict[str, Any] | None = None
    response_schema: dict[str, Any] | None = None


class Approval(msgspec.Struct, rename="camel", frozen=True):
    """The answer to a request for approval."""

    approved: bool
    edited_args: dict[str, Any] | None = None
    reason: str | None = None


CANCELLED_APPROVAL = Approval(False, reason="The user cancelled this.")


def interrupt_of(value: Any) -> Interrupt:
    """A call that a run waits for, as an interrupt. Raises `msgspec.ValidationError`."""
    call = msgspec.convert(value, DeferredCall)
    if not call.approval:
        return Interrupt(
            id=call.tool_call_id,
            reason="input_required",
            message=call.message,
            tool_call_id=call.tool_call_id,
            response_schema=call.response_schema,
            metadata=call.metadata,
        )
    return Interrupt(
        id=f"{_APPROVAL_PREFIX}{call.tool_call_id}",
        reason="tool_call",
        message=call.message or f"May {call.tool_name} be called?",
        tool_call_id=call.tool_call_id,
        response_schema=APPROVAL_SCHEMA,
        metadata=call.metadata,
    )


def approval_call_id(interrupt_id: str) -> str | None:
    """The id of the call for which an interrupt of this id asks approval; None: it is no such interrupt."""
    return interrupt_id.removeprefix(_APPROVAL_PREFIX) if interrupt_id.startswith(_APPROVAL_PREFIX) else None


def approval_of(entry: ResumeEntry, path: str) -> Approval:
    """The answer to a request for approval. Raises `RequestError` naming the place `at`."""
    if entry.status == "cancelled":
        return CANCELLED_APPROVAL
    try:
        return msgspec.convert(entry.payload, Approval)
    except msgspec.ValidationError as error:
        message = f'{path}: {error}; it is an object such as {{"approved": true}}, with editedArgs or reason if need be'
        raise RequestError(message, code="invalid_value", param=path) from None
