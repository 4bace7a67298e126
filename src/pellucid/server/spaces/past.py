"""The history of a space for one participant, as the doors hand it out."""

from __future__ import annotations

from ...envelopes.shown import SpaceView
from ...errors import PellucidError
from ...spaces.past.history import History
from ..services import Services
from .door import Inside


def history_of(services: Services, inside: Inside, view: SpaceView, token: str | None) -> History:
    """`token`: with which other spaces are looked into, for what is referred to there."""

    async def elsewhere(name: str) -> History | None:
        if token is None:
            return None
        try:
            other = Inside(*await services.spaces.admit(name, token))
        except PellucidError:
            return None
        return history_of(services, other, "full", None)

    space = inside.space
    return History(
        services.store,
        space.owner,
        space.name,
        space.reader(inside.participant, view),
        advisory=space.advisory,
        elsewhere=elsewhere,
    )
