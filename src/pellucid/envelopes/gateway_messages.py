"""What the gateway says to participants: welcome, presence, error, gap. Envelopes like others, from `system:gateway`.

Each participant gets them in its own dialect (`translate.write`).
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
"""MEW's own."""


def welcome(id: str, ts: int, you: Present, others: Sequence[Present], **more: Any) -> Envelope:
    """To one who has come in. `more`: where the history stands, and what else it should know, beside MEW's fields."""
    payload = {
        "you": _encode_present(you),
        "participants": [_encode_present(other) for other in others],
        "active_streams": [],
        **more,
    }
    return Envelope(id=id, ts=ts, sender=GATEWAY, to=(you.id,), kind=WELCOME, payload=payload)


def presence(id: str, ts: int, event: Literal["join", "leave", "invited"], participant: Present) -> Envelope:
    """To all: somebody came, went, or may come."""
    return Envelope(
        id=id,
        ts=ts,
        sender=GATEWAY,
        kind=PRESENCE,
        payload={"event": event, "participant": _encode_present(participant)},
    )


def error(id: str, ts: int, to: str, failed: PellucidError, about: Envelope | None = None, **more: Any) -> Envelope:
    """To the sender of what was refused, alone. `about`: the envelope, where one could be read.

    `error` is MEW's code where it has one for this, and the kind of the error otherwise; `code` is the finer name.
    """
    info = failed.info
    envelope_id, attempted_kind = (about.id, about.kind) if about is not None else (None, None)
    if about is None and isinstance(failed, EnvelopeError):
        envelope_id, attempted_kind = failed.envelope_id, failed.attempted_kind
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
    """To one who read too slowly: between these two numbers, so many that it may see were left out."""
    payload = {"after_seq": after, "before_seq": before, "missed": missed}
    return Envelope(id=id, ts=ts, sender=GATEWAY, to=(to,), kind=GAP, payload=payload)


def invite_ack(id: str, ts: int, about: Envelope, payload: dict[str, Any]) -> Envelope:
    """To whoever invited somebody, alone: what came of it."""
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
