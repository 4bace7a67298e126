"""Envelopes that the gateway sends to participants: welcome, presence, error, gap. Their sender is `system:gateway`.

Each participant receives them in its own dialect (`translate.write`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from ..errors import PellucidError
from .envelope import GATEWAY, Envelope, EnvelopeError
from .kinds import ERROR, GAP, INVITE_ACK, PRESENCE, WELCOME
from .payloads import Present

_MEW_CODES = frozenset(
    {
        "capability_violation",
        "invalid_operation",
        "invalid_request",
        "participant_not_found",
        "stream_not_found",
        "target_not_found",
        "unauthorized",
        "unauthorized_stream_write",
    }
)
"""The error codes of MEW."""


def welcome(id: str, ts: int, you: Present, others: Sequence[Present], **more: Any) -> Envelope:
    """Build the welcome for a participant who has joined.

    Args:
        id: Id of the envelope.
        ts: Time, in milliseconds since 1970.
        you: The participant itself, with its capabilities.
        others: The other participants who are present.
        more: Further fields of the payload, such as the head of the log.
    """
    payload = {
        "you": _encode_present(you),
        "participants": [_encode_present(other) for other in others],
        "active_streams": [],
        **more,
    }
    return Envelope(id=id, ts=ts, sender=GATEWAY, to=(you.id,), kind=WELCOME, payload=payload)


def presence(id: str, ts: int, event: Literal["join", "leave", "invited"], participant: Present) -> Envelope:
    """Build the notice, to everyone, that a participant joined, left or was invited."""
    payload = {"event": event, "participant": _encode_present(participant)}
    return Envelope(id=id, ts=ts, sender=GATEWAY, kind=PRESENCE, payload=payload)


def error(
    id: str, ts: int, to: str, failed: PellucidError, about: Envelope | EnvelopeError | None = None, **more: Any
) -> Envelope:
    """Build the error for the sender of a refused envelope. Only the sender receives it.

    `error` in the payload is MEW's code if MEW has one for this error, otherwise the kind of the error. `code` is the
    more specific code.

    Args:
        id: Id of the envelope.
        ts: Time, in milliseconds since 1970.
        to: Id of the sender of the refused envelope.
        failed: Why it was refused.
        about: The refused envelope, or the error of reading it. By default `failed`, if it is one.
        more: Further fields of the payload.
    """
    info = failed.info
    if about is None and isinstance(failed, EnvelopeError):
        about = failed
    envelope_id, attempted_kind = None, None
    if isinstance(about, EnvelopeError):
        envelope_id, attempted_kind = about.envelope_id, about.attempted_kind
    elif about is not None:
        envelope_id, attempted_kind = about.id, about.kind
    fields = {
        "error": info.code if info.code in _MEW_CODES else info.kind,
        "message": info.message,
        "code": info.code,
        "param": info.param,
        "retry_after": info.retry_after,
        "attempted_kind": attempted_kind,
        **more,
    }
    return Envelope(
        id=id,
        ts=ts,
        sender=GATEWAY,
        to=(to,),
        kind=ERROR,
        correlation_id=(envelope_id,) if envelope_id else (),
        payload={name: value for name, value in fields.items() if value is not None},
    )


def gap(id: str, ts: int, to: str, *, after: int, before: int, missed: int) -> Envelope:
    """Build the notice to a slow reader that envelopes were left out.

    Args:
        id: Id of the envelope.
        ts: Time, in milliseconds since 1970.
        to: Id of the reader.
        after: Number of the last envelope before the gap.
        before: Number of the first envelope after the gap.
        missed: How many envelopes in between the reader may see.
    """
    payload = {"after_seq": after, "before_seq": before, "missed": missed}
    return Envelope(id=id, ts=ts, sender=GATEWAY, to=(to,), kind=GAP, payload=payload)


def invite_ack(id: str, ts: int, about: Envelope, payload: dict[str, Any]) -> Envelope:
    """Build the result of an invitation. Only the sender of the invitation receives it."""
    return Envelope(
        id=id,
        ts=ts,
        sender=GATEWAY,
        to=(about.sender,),
        kind=INVITE_ACK,
        correlation_id=(about.id,),
        payload=payload,
    )


def _encode_present(participant: Present) -> dict[str, Any]:
    return {"id": participant.id, "capabilities": list(participant.capabilities)}
