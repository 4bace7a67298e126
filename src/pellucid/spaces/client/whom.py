"""Whom an envelope is for and what it is about, as whoever sends it may write that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ...envelopes.envelope import Envelope

To: TypeAlias = str | Sequence[str]
"""Participants, by id. None: everybody."""

Answers: TypeAlias = str | Envelope | Sequence[str | Envelope]
"""Envelopes, or their ids."""


def recipients(to: To) -> tuple[str, ...]:
    return (to,) if isinstance(to, str) else tuple(to)


def ids_of(answers: Answers) -> tuple[str, ...]:
    """Each once."""
    several = (answers,) if isinstance(answers, str | Envelope) else answers
    return tuple(dict.fromkeys(one.id if isinstance(one, Envelope) else one for one in several))


def among(heard: Envelope, me: str) -> tuple[str, ...]:
    """To whom an answer goes: to those who heard what is answered. Nobody: to everybody."""
    return tuple(one for one in dict.fromkeys((heard.sender, *heard.to)) if one != me) if heard.to else ()
