"""What an envelope changes about rights: a grant, and what the space must tell or do when one comes or goes."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from ..errors import ErrorInfo
from .capability import Capability, Decision


class Grant(msgspec.Struct, frozen=True):
    """What somebody gave to somebody."""

    id: str
    by: str
    recipient: str
    capabilities: tuple[Capability, ...]
    acknowledged: bool = False


class Granted(msgspec.Struct, frozen=True):
    """Somebody holds more: they are told by a new welcome."""

    grant: Grant


class GrantEnded(msgspec.Struct, frozen=True):
    """Somebody holds less: all of a grant, or these of its capabilities, are gone."""

    grant_id: str
    recipient: str
    capabilities: tuple[Capability, ...]
    why: str
    """`revoked`, `declined`, `kicked`, or `source_ended`: its giver no longer holds that."""


class Acknowledged(msgspec.Struct, frozen=True):
    grant_id: str
    by: str


class Invited(msgspec.Struct, frozen=True):
    """Somebody may come in; the inviter is told (`space/invite-ack`)."""

    participant: str
    by: str
    status: str
    """`created`, or `already_exists`: then nothing changed."""


class Kicked(msgspec.Struct, frozen=True):
    """Somebody is out: their connections are closed, and no token lets them in."""

    participant: str
    by: str


Change: TypeAlias = Granted | GrantEnded | Acknowledged | Invited | Kicked


class Ruling(msgspec.Struct, frozen=True):
    """What came of an envelope. With a refusal, nothing did."""

    decision: Decision
    events: tuple[Change, ...] = ()
    refusal: ErrorInfo | None = None
