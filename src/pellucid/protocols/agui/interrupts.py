"""Interrupts: what a run of an agent waits for, and the answers that the next run begins with.

A call whose result comes from outside is an interrupt with the id of the call; the answer is its result. A call that
needs approval is an interrupt with an id of its own. Its answer has `approved`, and `editedArgs` for other arguments or
the `reason` of a refusal, as the documentation of AG-UI recommends.

Clients send the whole conversation, and of an interrupt nothing but its id comes back. So the id of an interrupt that
asks for approval also holds a token (`seal_call`), by which the server recognises the call: `int-CALL~TOKEN`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from ...errors import RequestError
from ...parts import ToolCallPart
from ...unicode import truncate
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


_OWN_INTERRUPTS_HINT = "; for an agent with interrupts of its own, make `deps` a function"


def check_resume(
    resume: Sequence[ResumeEntry],
    client_tools: Collection[str],
    waiting: Mapping[str, ToolCallPart],
    check_approval: Callable[[ToolCallPart, str, str], None],
    *,
    has_own_interrupts: bool,
) -> None:
    """Check that each answer has an interrupt, and each waiting call one answer; and that approvals were requested.

    Each call takes one answer: by the id of the call, or, unless its tool is the client's, by the id of the interrupt
    that asks for approval.

    Args:
        resume: The answers.
        client_tools: The names of the client's tools.
        waiting: The calls that have no result, by their ids.
        check_approval: Checks that the approval of a call was requested. It gets the call, the token in the interrupt's
            id, and the path of the answer, and raises `RequestError` if not.
        has_own_interrupts: Whether the agent handles answers to interrupts of its own, which belong to no call.

    Raises:
        RequestError: An answer or a call does not match; `param` is the path.
    """
    if not resume:
        return
    answered_by: dict[str, int] = {}
    for index, entry in enumerate(resume):
        path, id = f"resume[{index}].interruptId", entry.interrupt_id
        approval = parse_approval_id(id)
        if approval is None and id not in waiting and has_own_interrupts:
            continue
        call_id, token = approval or (id, "")
        if call_id not in waiting or waiting[call_id].tool_name in client_tools:
            call_id, approval = id, None
        if call_id not in waiting:
            hint = "" if has_own_interrupts else _OWN_INTERRUPTS_HINT
            message = f"{path}: no call at the end of the conversation waits for an answer to {truncate(id)!r}{hint}"
            raise RequestError(message, code="no_such_interrupt", param=path)
        if call_id in answered_by:
            message = f"{path}: resume[{answered_by[call_id]}] is an answer to the same call; give one"
            raise RequestError(message, code="invalid_value", param=path)
        if approval is not None:
            check_approval(waiting[call_id], token, path)
        answered_by[call_id] = index
    for id, unanswered in waiting.items():
        if id not in answered_by:
            raise missing_answer(unanswered)


def missing_answer(call: ToolCallPart) -> RequestError:
    """Return the error of a request that answers other calls of a turn, and not this one."""
    name = f"{truncate(call.tool_call_id)!r} of {truncate(call.tool_name)!r}"
    message = (
        f"resume: the call {name} waits, too; answer every interrupt with an entry, and every call of a tool of the "
        "client with a tool message"
    )
    return RequestError(message, code="missing", param="resume")
