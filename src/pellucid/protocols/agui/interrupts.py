"""Interrupts: what a run of an agent waits for, and the answers that the next run begins with.

A call whose result comes from outside is an interrupt with the id of the call; the answer is its result. A call that
needs approval is an interrupt with an id of its own. Its answer has `approved`, and `editedArgs` for other arguments or
the `reason` of a refusal, as the documentation of AG-UI recommends.

Clients send the whole conversation, and of an interrupt nothing but its id comes back. So the id of an interrupt that
asks for approval also holds a token (`seal_call`), by which the server recognises the call: `int-CALL~TOKEN`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...errors import RequestError
from .messages import Interrupt, ResumeEntry

_APPROVAL_PREFIX = "int-"
"""Prefix of the call's id in the id of an interrupt that asks for approval. (Pydantic AI has the same.)"""

_SEAL_SEPARATOR = "~"
"""Comes before the token; no token contains it."""

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
    """Value of the side event `deferred` of the namespace `run`: a call that a run waits for."""

    tool_call_id: str
    tool_name: str
    approval: bool
    seal: str | None = None
    """The token that binds an approval to the call."""
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
    """Return the interrupt for a call that a run waits for.

    Args:
        value: A `DeferredCall` as JSON values.

    Raises:
        msgspec.ValidationError: The value is not a `DeferredCall`.
    """
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
    seal = "" if call.seal is None else f"{_SEAL_SEPARATOR}{call.seal}"
    return Interrupt(
        id=f"{_APPROVAL_PREFIX}{call.tool_call_id}{seal}",
        reason="tool_call",
        message=call.message or f"May {call.tool_name} be called?",
        tool_call_id=call.tool_call_id,
        response_schema=APPROVAL_SCHEMA,
        metadata=call.metadata,
    )


def parse_approval_id(interrupt_id: str) -> tuple[str, str] | None:
    """Return the id of the call that an interrupt asks approval for, and the token; None if it is of another kind.

    The token is empty if there is none.
    """
    if not interrupt_id.startswith(_APPROVAL_PREFIX):
        return None
    call_id, separator, token = interrupt_id.removeprefix(_APPROVAL_PREFIX).rpartition(_SEAL_SEPARATOR)
    return (call_id, token) if separator else (token, "")


def approval_of(entry: ResumeEntry, path: str) -> Approval:
    """Return the answer to a request for approval.

    Raises:
        RequestError: The payload, at `path` in the input, is not such an answer.
    """
    if entry.status == "cancelled":
        return CANCELLED_APPROVAL
    try:
        return msgspec.convert(entry.payload, Approval)
    except msgspec.ValidationError as error:
        message = f'{path}: {error}; it must be an object such as {{"approved": true}}, also with editedArgs or reason'
        raise RequestError(message, code="invalid_value", param=path) from None
