"""Helpers for the tests of stored spaces."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from pellucid.envelopes import Envelope
from pellucid.envelopes.reasoning import ContextPlace, Role
from pellucid.storage import Append, Store, StoredEnvelope, StoredParticipant, StoredSpace, open_store

OWNER, ROOM = "ann", "room"


def stored_space(name: str = ROOM, owner: str = OWNER, **fields: Any) -> StoredSpace:
    return StoredSpace(**{"created_at": 1.0, "settings": b"{}", **fields}, owner=owner, name=name)


def stored_participant(id: str, **fields: Any) -> StoredParticipant:
    return StoredParticipant(**{"created_at": 1.0, "token_hash": id.encode(), **fields}, id=id)


def stored_envelope(
    seq: int,
    text: str = "words",
    *,
    kind: str = "chat",
    sender: str = "ann",
    path: str | None = None,
    role: Role = "main",
    at: int | None = None,
    **fields: Any,
) -> StoredEnvelope:
    envelope_fields = {"id": f"msg-{seq}", "ts": 1, "payload": {"text": text}, "context": path, **fields}
    envelope = Envelope(**envelope_fields, kind=kind, sender=sender, seq=seq)
    owner = sender if path else None
    return StoredEnvelope(envelope, seq if at is None else at, ContextPlace(path, role, owner), b'{"n":1}')


def append(envelopes: Sequence[StoredEnvelope], expected: int, version: int = 1, **fields: Any) -> Append:
    return Append(
        **{"owner": OWNER, "space": ROOM, **fields}, expected_head=expected, version=version, envelopes=envelopes
    )


@contextlib.asynccontextmanager
async def space_in_store(url: str, **options: Any) -> AsyncIterator[Store]:
    """Open a store that has one empty space."""
    store = await open_store(url, **options)
    try:
        await store.spaces.put(stored_space(), [stored_participant("ann")])
        yield store
    finally:
        await store.aclose()
