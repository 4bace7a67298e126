"""Invitations: a token is made when one is accepted, kept as a digest in the same transaction, and told to nobody but
the inviter, once (`space/invite-ack`).

Who is there already, or has a token of the operator's, gets none: nobody takes another's place by inviting them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...envelopes import Envelope, said
from ...envelopes.changes import Change, Invited
from ...storage import StoredEnvelope, StoredParticipant
from .identity import digest_of, new_token
from .ids import new_id
from .state import SpaceState


def invited_by(
    stored: StoredEnvelope, changes: Iterable[Change], state: SpaceState, space: str, address: str = ""
) -> tuple[list[StoredParticipant], tuple[Envelope, ...]]:
    """Who is to be let into `space` by this envelope, and what its sender is told. `address`: under which its sender
    reached the gateway."""
    let_in: list[StoredParticipant] = []
    told: list[Envelope] = []
    for change in changes:
        if not isinstance(change, Invited):
            continue
        payload = {"status": change.status, "participant_id": change.participant}
        if change.status == "created" and change.participant not in state.doors.doors:
            payload |= {"token": (token := new_token()), "connection_url": f"{address}/spaces/{space}/ws"}
            let_in.append(
                StoredParticipant(
                    id=change.participant,
                    token_hash=digest_of(token),
                    origin="invited",
                    created_at=stored.at / 1000,
                )
            )
        told.append(said.invite_ack(new_id(), stored.at, stored.envelope, payload))
    return let_in, tuple(told)
