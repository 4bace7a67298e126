"""How spaces come to be, and who is at their doors: what is in the store before anybody comes in.

    tokens = await make(store.spaces, owner, "review", settings, {"alice": ["chat", "reasoning/*"]})

What the configuration says of a space (`declare`) and what was made otherwise (`make`, `add`) stand side by side. A
token is made here and told once; what is kept of it is a digest. A gateway that runs sees at its next look what is new.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ...envelopes.capability import read_capabilities
from ...envelopes.envelope import check_participant
from ...storage import AlreadyStored, Spaces, StoredParticipant, StoredSpace
from ...storage.space_rows import ParticipantOrigin
from .ids import digest_of, new_token
from .settings import SpaceSettings, check_name, check_settings

WrittenCapability: TypeAlias = str | dict[str, Any]
"""As it is written."""


async def create_space(
    spaces: Spaces,
    owner: str,
    name: str,
    settings: SpaceSettings,
    participants: Mapping[str, Sequence[WrittenCapability]],
) -> dict[str, str]:
    """A new space. Each one's token: they are told here and never again. Raises `RequestError`, `StoreError`."""
    check_name(name)
    check_settings(settings)
    tokens, rows = _with_tokens(participants)
    if await spaces.get(name) is not None:
        raise AlreadyStored(f"there is a space {name!r} already; add participants to it, or choose another name")
    row = StoredSpace(owner=owner, name=name, created_at=time.time(), settings=settings.dump())
    await spaces.put(row, rows)
    return tokens


async def add_participants(
    spaces: Spaces, owner: str, name: str, participants: Mapping[str, Sequence[WrittenCapability]]
) -> dict[str, str]:
    """More participants of a space: each one's token. Raises `RequestError`, `StoreError`."""
    tokens, rows = _with_tokens(participants)
    await spaces.add(owner, name, rows)
    return tokens


async def declare_space(
    spaces: Spaces,
    owner: str,
    name: str,
    settings: SpaceSettings,
    participants: Mapping[str, tuple[Sequence[WrittenCapability], str]],
) -> None:
    """A space of the configuration, with everybody's capabilities and token: it is made, or changed to be so. Raises
    `RequestError`, `StoreError`."""
    check_name(name)
    check_settings(settings)
    rows = [_row(id, written, token, "config") for id, (written, token) in participants.items()]
    row = StoredSpace(owner=owner, name=name, created_at=time.time(), settings=settings.dump(), origin="config")
    await spaces.put(row, rows)


def _with_tokens(
    participants: Mapping[str, Sequence[WrittenCapability]],
) -> tuple[dict[str, str], list[StoredParticipant]]:
    tokens = {id: new_token() for id in participants}
    return tokens, [_row(id, written, tokens[id], "made") for id, written in participants.items()]


def _row(id: str, written: Sequence[WrittenCapability], token: str, origin: ParticipantOrigin) -> StoredParticipant:
    check_participant(id)
    read_capabilities(written, f"participants.{id}.capabilities")
    return StoredParticipant(
        id=id,
        capabilities=msgspec.json.encode(list(written)),
        token_hash=digest_of(token),
        origin=origin,
        created_at=time.time(),
    )
