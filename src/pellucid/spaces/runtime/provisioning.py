"""Create spaces and their participants in the store.

    tokens = await create_space(store.spaces, owner, "review", settings, {"alice": ["chat", "reasoning/*"]})

Spaces from the configuration (`declare_space`) and others (`create_space`, `add_participants`) exist side by side. A
token is created here and returned once; only its digest is stored. A running gateway finds what is new the next time it
reads the store.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from ...envelopes.capability import read_capabilities
from ...envelopes.envelope import check_participant
from ...envelopes.payloads import WrittenCapability
from ...storage import AlreadyStored, Spaces, StoredParticipant, StoredSpace
from ...storage.space_rows import ParticipantOrigin
from .ids import digest_of, new_token
from .settings import SpaceSettings, check_name, check_settings


async def create_space(
    spaces: Spaces,
    owner: str,
    name: str,
    settings: SpaceSettings,
    participants: Mapping[str, Sequence[WrittenCapability]],
) -> dict[str, str]:
    """Create a space.

    Returns:
        The token of each participant, by id. They cannot be read again.

    Raises:
        RequestError: If the name, the settings or a participant is not valid.
        StoreError: If the store fails, or the space exists already.
    """
    check_name(name)
    check_settings(settings)
    tokens, rows = _with_tokens(participants)
    if await spaces.get(name) is not None:
        raise AlreadyStored(f"a space {name!r} exists already; add participants to it, or choose another name")
    row = StoredSpace(owner=owner, name=name, created_at=time.time(), settings=settings.dump())
    await spaces.put(row, rows)
    return tokens


async def add_participants(
    spaces: Spaces, owner: str, name: str, participants: Mapping[str, Sequence[WrittenCapability]]
) -> dict[str, str]:
    """Add participants to a space.

    Returns:
        The token of each participant, by id. They cannot be read again.

    Raises:
        RequestError: If a participant is not valid.
        StoreError: If the store fails.
    """
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
    """Create a space of the configuration, or change it to what the configuration says.

    Args:
        spaces: The store's spaces.
        owner: The owner of the space.
        name: Its name.
        settings: Its settings.
        participants: Capabilities and token of each participant, by id.

    Raises:
        RequestError: If the name, the settings or a participant is not valid.
        StoreError: If the store fails.
    """
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
