"""The ledger of who may do what in a space: given at the door, granted, taken back; invited, kicked.

    ledger.door("alice", capabilities)             what the space's configuration gives
    ledger.feed(envelope)                          -> Ruling: the decision, and what changed or why it was refused

The rules, of which the first is the one that all the others serve:

* Nobody gives what they lack. A grant, or what an invitation brings, is covered by what its giver holds; and it ends,
  with all that was given on the strength of it, when its giver no longer holds that. It stands on what its giver held
  *before*: so no two grants hold each other up, and what has ended does not come back.
* Nobody grants to themselves, or to who is not there.
* Who gave, who received, and who could have given may take back (they need `capability/revoke` like anybody). What was
  given at the door, only the door takes back.
* Nobody is kicked, or let back in, by one who may not do all they may do to others (grant, revoke, invite, kick). Who
  is kicked holds nothing, nor do those they gave to by that; an invitation lets them back in.
* Leaving changes nothing: grants are for the participant, not for a connection.

It is pure, and made again by feeding it the same envelopes in the same order after the same doors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ..errors import ErrorInfo, RequestError
from . import payloads as p
from .capability import COVER_STEPS, EVERYTHING, Capability, Decision, Held, covered, decide, read_capabilities
from .envelope import GATEWAY, Envelope, EnvelopeError, check_participant
from .kinds import GRANT, GRANT_ACK, INVITE, KICK, REVOKE, typed
from .patterns import allows
from .regex import OutOfSteps, Steps


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


MANAGING = (GRANT, REVOKE, INVITE, KICK)
"""What participants do to each other's rights."""

MAX_CAPABILITIES = 32
"""Of one grant."""
MAX_GRANTS = 100
"""That one participant has given, and that one holds."""
SETTLE_STEPS = 400_000

DOOR = "door"


class LedgerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a `Ledger` knows, as plain data: capabilities as they were written."""

    always: tuple[dict[str, Any], ...] = ()
    doors: dict[str, tuple[dict[str, Any], ...]] = {}
    grants: tuple[tuple[str, str, str, tuple[dict[str, Any], ...], bool], ...] = ()
    """Id, giver, recipient, capabilities, whether it was acknowledged; in the order in which they were given."""
    kicked: tuple[str, ...] = ()


class Ledger:
    """One space's. `always`: what everybody holds who is in it."""

    def __init__(self, always: Iterable[Capability] = ()) -> None:
        self._always = tuple(Held(one, DOOR) for one in always)
        self._doors: dict[str, tuple[Held, ...]] = {}
        self._grants: dict[str, Grant] = {}
        self._kicked: set[str] = set()

    # --- what there is

    def held(self, participant: str) -> tuple[Held, ...]:
        """What they hold: at the door first, then in the order in which it was given."""
        if participant == GATEWAY:
            return (Held(EVERYTHING, "gateway"),)
        if not self.is_member(participant):
            return ()
        given = (
            Held(one, grant.id)
            for grant in self._grants.values()
            if grant.recipient == participant
            for one in grant.capabilities
        )
        return (*self._always, *self._doors[participant], *given)

    def is_member(self, participant: str) -> bool:
        return participant in self._doors and participant not in self._kicked

    @property
    def members(self) -> tuple[str, ...]:
        return tuple(one for one in self._doors if one not in self._kicked)

    @property
    def grants(self) -> Mapping[str, Grant]:
        """Those that stand, by id, in the order in which they were given."""
        return self._grants

    def decide(self, envelope: Envelope) -> Decision:
        """Whether its sender may send it. Who was granted something may always say so."""
        decision = decide(self.held(envelope.sender), envelope)
        if not decision.allowed and decision.why != "reserved" and self._acknowledged_by(envelope) is not None:
            return replace(decision, allowed=True, by={"kind": GRANT_ACK}, source=DOOR, why=None)
        return decision

    def may(self, participant: str, kind: str) -> bool:
        """Whether they hold a right that is written as a kind and sent by nobody, like `space/observe`."""
        return decide(self.held(participant), Envelope(id="", ts=0, sender=participant, kind=kind)).allowed

    # --- what changes it

    def door(self, participant: str, capabilities: Iterable[Capability]) -> tuple[Change, ...]:
        """They come in by the configuration, with these. What was given on the strength of less ends."""
        self._doors[participant] = tuple(Held(one, DOOR) for one in capabilities)
        return tuple(self._settle({participant}))

    def shut(self, participant: str) -> tuple[Change, ...]:
        """They are no longer in the configuration."""
        self._doors.pop(participant, None)
        return tuple(self._without(participant, "source_ended"))

    def everybody(self, capabilities: Iterable[Capability]) -> tuple[Change, ...]:
        """What everybody holds from now on."""
        self._always = tuple(Held(one, DOOR) for one in capabilities)
        return tuple(self._settle(set(self.members)))

    def replay(self, envelope: Envelope) -> tuple[Change, ...]:
        """What an envelope that was accepted did about rights. Who may send it was decided then."""
        handle = _HANDLERS.get(envelope.kind)
        if handle is None:
            return ()
        try:
            return tuple(handle(self, envelope))
        except RequestError:
            return ()

    # --- kept

    def dump(self) -> LedgerState:
        return LedgerState(
            always=tuple(held.capability.written for held in self._always),
            doors={one: tuple(held.capability.written for held in holds) for one, holds in self._doors.items()},
            grants=tuple(
                (one.id, one.by, one.recipient, tuple(given.written for given in one.capabilities), one.acknowledged)
                for one in self._grants.values()
            ),
            kicked=tuple(sorted(self._kicked)),
        )

    @classmethod
    def load(cls, state: LedgerState) -> Ledger:
        """The ledger that `dump` told of."""
        ledger = cls(read_capabilities(state.always))
        for one, written in state.doors.items():
            ledger._doors[one] = tuple(Held(held, DOOR) for held in read_capabilities(written))
        for id, by, recipient, given, acknowledged in state.grants:
            ledger._grants[id] = Grant(id, by, recipient, read_capabilities(given), acknowledged)
        ledger._kicked = set(state.kicked)
        return ledger

    def feed(self, envelope: Envelope) -> Ruling:
        """Decide, and do what it says about rights."""
        decision = self.decide(envelope)
        if not decision.allowed:
            return Ruling(decision, refusal=_denied(decision))
        handle = _HANDLERS.get(envelope.kind)
        if handle is None:
            return Ruling(decision)
        try:
            return Ruling(decision, tuple(handle(self, envelope)))
        except RequestError as error:
            return Ruling(decision, refusal=error.info)

    def _grant(self, envelope: Envelope) -> list[Change]:
        asked = typed(GRANT, envelope.payload)
        assert isinstance(asked, p.Grant)
        if asked.recipient == envelope.sender:
            raise _refused("nobody grants to themselves", "payload.recipient")
        if not self.is_member(asked.recipient):
            raise _refused(
                f"{asked.recipient!r} is not in this space; invite them first", "payload.recipient", "not_found"
            )
        if not asked.capabilities:
            raise _refused("a grant holds at least one capability", "payload.capabilities", "invalid_request")
        return self._give(envelope, asked.recipient, asked.capabilities, "payload.capabilities")

    def _give(self, envelope: Envelope, recipient: str, written: Sequence[p.Capability], at: str) -> list[Change]:
        given = _read(written, at)
        known = self._grants.get(envelope.id)
        if known is not None:
            if (known.by, known.recipient, known.capabilities) == (envelope.sender, recipient, given):
                return []
            raise _refused(f"there is a grant {envelope.id!r} already; give this one another id", "id", "id_conflict")
        self._not_too_many(envelope.sender, recipient, at)
        steps = Steps(COVER_STEPS)
        held = [one.capability for one in self.held(envelope.sender)]
        for n, one in enumerate(given):
            if not covered(held, one, steps):
                raise _refused(
                    f"{envelope.sender!r} cannot give what they do not hold themselves", f"{at}[{n}]", "escalation"
                )
        grant = Grant(envelope.id, envelope.sender, recipient, given)
        self._grants[grant.id] = grant
        return [Granted(grant)]

    def _not_too_many(self, by: str, recipient: str, at: str) -> None:
        for count, said in (
            (sum(grant.by == by for grant in self._grants.values()), f"{by!r} has given"),
            (sum(grant.recipient == recipient for grant in self._grants.values()), f"{recipient!r} holds"),
        ):
            if count >= MAX_GRANTS and by != GATEWAY:
                raise _refused(f"{said} {count} grants, which is as many as may be; revoke some", at, "too_many")

    def _revoke(self, envelope: Envelope) -> list[Change]:
        asked = typed(REVOKE, envelope.payload)
        assert isinstance(asked, p.Revoke)
        if asked.grant_id is None and not asked.capabilities:
            raise _refused("say which: `grant_id`, or `capabilities`", "payload", "invalid_request")
        if asked.grant_id is None and asked.recipient is None:
            raise _refused("say of whom", "payload.recipient", "invalid_request")
        grants = [
            grant
            for grant in self._grants.values()
            if asked.grant_id in (None, grant.id) and asked.recipient in (None, grant.recipient)
        ]
        if not grants:
            which = "nothing" if asked.grant_id is None else f"no grant {asked.grant_id!r}"
            raise _refused(f"{which} was granted to {asked.recipient or 'anybody'!r}", "payload", "not_found")
        wide = _read(asked.capabilities or (), "payload.capabilities")
        taken = {grant.id: self._taken(grant, wide) for grant in grants}
        if not any(taken.values()):
            raise _refused(
                f"nothing that {asked.recipient!r} was granted is only this; more than this is revoked by `grant_id`",
                "payload.capabilities",
                "not_found",
            )
        for grant in grants:
            if taken[grant.id] and not self._may_take(envelope.sender, grant):
                raise _refused(f"{envelope.sender!r} neither gave grant {grant.id!r} nor could have", "payload")
        ended = [self._end(grant, taken[grant.id], "revoked") for grant in grants if taken[grant.id]]
        return [*ended, *self._settle({grant.recipient for grant in grants})]

    def _taken(self, grant: Grant, wide: tuple[Capability, ...]) -> tuple[Capability, ...]:
        if not wide:
            return grant.capabilities
        steps = Steps(COVER_STEPS)
        return tuple(one for one in grant.capabilities if covered(wide, one, steps))

    def _may_take(self, sender: str, grant: Grant) -> bool:
        if sender in (GATEWAY, grant.by, grant.recipient):
            return True
        held = [one.capability for one in self.held(sender)]
        steps = Steps(COVER_STEPS)
        return all(covered(held, one, steps) for one in grant.capabilities)

    def _acknowledge(self, envelope: Envelope) -> list[Change]:
        grant = self._acknowledged_by(envelope)
        if grant is None:
            raise _refused("it answers no grant of its sender's that stands", "correlation_id", "not_found")
        if envelope.payload.get("status") in ("declined", "rejected"):
            return [self._end(grant, grant.capabilities, "declined"), *self._settle({grant.recipient})]
        if not grant.acknowledged:
            self._grants[grant.id] = replace(grant, acknowledged=True)
        return [Acknowledged(grant.id, envelope.sender)]

    def _acknowledged_by(self, envelope: Envelope) -> Grant | None:
        if envelope.kind != GRANT_ACK:
            return None
        found = (self._grants.get(name) for name in envelope.correlation_id)
        return next((grant for grant in found if grant is not None and grant.recipient == envelope.sender), None)

    def _invite(self, envelope: Envelope) -> list[Change]:
        asked = typed(INVITE, envelope.payload)
        assert isinstance(asked, p.Invite)
        name = asked.participant_id
        if self.is_member(name):
            return [Invited(name, envelope.sender, "already_exists")]
        try:
            check_participant(name)
        except EnvelopeError as error:
            why = error.info.message.partition(": ")[2]
            said = f"nobody can be called {name!r}: {why}"
            raise _refused(said, "payload.participant_id", "invalid_request") from None
        if name in self._kicked and not self._outranks(envelope.sender, self._doors.get(name, ())):
            raise _refused(f"{name!r} was kicked, by one who may do more", "payload.participant_id")
        initial = asked.initial_capabilities or ()
        given = self._give(envelope, name, initial, "payload.initial_capabilities") if initial else []
        self._kicked.discard(name)
        self._doors.setdefault(name, ())
        return [Invited(name, envelope.sender, "created"), *given]

    def _kick(self, envelope: Envelope) -> list[Change]:
        asked = typed(KICK, envelope.payload)
        assert isinstance(asked, p.Kick)
        name = asked.participant_id
        if name == envelope.sender:
            raise _refused("nobody kicks themselves; leaving is enough", "payload.participant_id")
        if not self.is_member(name):
            raise _refused(f"{name!r} is not in this space", "payload.participant_id", "not_found")
        if not self._outranks(envelope.sender, self.held(name)):
            raise _refused(
                f"{name!r} may grant, revoke, invite or kick as {envelope.sender!r} may not", "payload.participant_id"
            )
        self._kicked.add(name)
        return [Kicked(name, envelope.sender), *self._without(name, "kicked")]

    def _outranks(self, sender: str, holdings: Iterable[Held]) -> bool:
        """Whether the sender may do all to others that these would."""
        steps = Steps(COVER_STEPS)
        own = [one.capability for one in self.held(sender)]
        try:
            return all(
                covered(own, one.capability, steps)
                for one in holdings
                if any(allows(one.capability.kind, kind, steps) for kind in MANAGING)
            )
        except OutOfSteps:
            return False

    # --- what follows

    def _without(self, participant: str, why: str) -> list[Change]:
        mine = [grant for grant in self._grants.values() if grant.recipient == participant]
        return [*(self._end(grant, grant.capabilities, why) for grant in mine), *self._settle({participant})]

    def _end(self, grant: Grant, capabilities: tuple[Capability, ...], why: str) -> GrantEnded:
        left = tuple(one for one in grant.capabilities if one not in capabilities)
        if left:
            self._grants[grant.id] = replace(grant, capabilities=left)
        else:
            del self._grants[grant.id]
        return GrantEnded(grant.id, grant.recipient, capabilities, why)

    def _settle(self, lost: set[str]) -> list[Change]:
        """End what was given by those who lost something and no longer hold it, and so on down. What cannot be shown to
        be held still, in the steps there are, ends too."""
        ended: list[Change] = []
        steps = Steps(SETTLE_STEPS)
        held = {one: [own.capability for own in (*self._always, *self._doors[one])] for one in self.members}
        for grant in list(self._grants.values()):
            if grant.by in lost:
                before = held.get(grant.by, [])
                gone = tuple(one for one in grant.capabilities if not covered(before, one, steps))
                if gone:
                    ended.append(self._end(grant, gone, "source_ended"))
                    lost = lost | {grant.recipient}
            standing = self._grants.get(grant.id)
            if standing is not None and grant.recipient in held:
                held[grant.recipient].extend(standing.capabilities)
        return ended


_HANDLERS = {
    GRANT: Ledger._grant,
    REVOKE: Ledger._revoke,
    GRANT_ACK: Ledger._acknowledge,
    INVITE: Ledger._invite,
    KICK: Ledger._kick,
}


def _read(written: Sequence[p.Capability], at: str) -> tuple[Capability, ...]:
    if len(written) > MAX_CAPABILITIES:
        raise _refused(f"at most {MAX_CAPABILITIES} capabilities, not {len(written)}", at, "too_large")
    return read_capabilities(written, at)


def _refused(message: str, param: str, code: str = "forbidden") -> RequestError:
    return RequestError(f"{param}: {message}", kind="forbidden", code=code, param=param)


def _denied(decision: Decision) -> ErrorInfo:
    said = {
        "reserved": "`system/*` is the gateway's alone",
        "undecided": "whether it is allowed could not be decided in time: its sender's patterns cost too much",
    }.get(decision.why or "", f"no capability of {decision.participant!r} allows a {decision.kind!r} with this payload")
    return ErrorInfo(kind="forbidden", code="capability_violation", message=f"kind: {said}", param="kind")
