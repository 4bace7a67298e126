"""What a `Lifecycle` says of an envelope: where it belongs, what it ended and answers, and what is wrong with it."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from ..errors import ErrorInfo
from .envelope import Flag
from .reasoning import Status

Role: TypeAlias = Literal["main", "opens", "step", "ends"]


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an envelope belongs, and what it is there. Views are made of it: it is kept beside the envelope."""

    path: str | None = None
    """The context; of a start, the one that it opens. None: the main conversation."""
    role: Role = "main"
    owner: str | None = None
    """Whose reasoning it is."""


class Ended(msgspec.Struct, frozen=True):
    path: str
    status: Status


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of an envelope, and of the contexts by it."""

    place: Place = Place()
    error: ErrorInfo | None = None
    """Why it was refused."""
    flags: tuple[Flag, ...] = ()
    ended: tuple[Ended, ...] = ()
    """What it ended, the outermost first."""
    links: tuple[str, ...] = ()
    """The contexts that it comes out of: it is their answer, or something that they led to."""

    @property
    def accepted(self) -> bool:
        return self.error is None


class Names(msgspec.Struct, frozen=True):
    """Names that are to be looked up: ids of envelopes, and paths of contexts."""

    ids: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
