"""The ledger of a space's capabilities: configured, granted, revoked; and who is invited or kicked.

    ledger.configure_participant("alice", capabilities)     capabilities from the configuration
    ledger.feed(envelope)                                   -> Ruling: the decision, and the changes or the refusal

The rules. The first one is the reason for all others:

* A participant cannot give what it does not hold. The capabilities of a grant, or of an invitation, must be covered by
  what the giver holds. When the giver no longer holds them, the grant ends, with all grants that depend on it. A grant
  depends on what its giver held *before* it. So no two grants support each other, and what has ended does not come
  back.
* A participant cannot grant to itself, or to one who is not in the space.
* A revocation takes what it names: from a grant, or, if it names capabilities, from everything that the recipient holds
  now. A capability of which it names a part allows the rest from then on (`except`). What is granted later is held
  again.
* The giver and the recipient of a grant may revoke it, and everyone who holds what is taken (they need
  `capability/revoke` like anyone). Capabilities of the configuration may be revoked by the participant itself, and by
  everyone who holds all its management rights. If the sender may not take everything that it names, nothing is taken.
* Of the configuration and a revocation, the newer one counts: a revocation holds, also across restarts, until the
  configuration of this participant is changed. A changed configuration of everyone (`configure_everyone`) ends none.
* Only a participant who holds all management rights of another one (grant, revoke, invite, kick) may kick it, or let it
  in again. A kicked participant holds nothing, and the grants that depend on it end. An invitation lets it in again.
* Leaving changes nothing: grants belong to the participant, not to a connection.

The ledger is pure. Feeding the same configuration and then the same envelopes in the same order gives the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from ..errors import ErrorInfo, RequestError
from . import payloads as p
from .capability import (
    COVER_STEPS,
    EVERYTHING,
    MAX_EXCEPTIONS,
    Capability,
    Decision,
    HeldCapability,
    decide,
    is_covered,
    read_capabilities,
    subtract,
)
from .envelope import GATEWAY, Envelope, EnvelopeError, check_participant
from .kinds import GRANT, GRANT_ACK, INVITE, KICK, REVOKE, decode_payload
from .patterns import allows
from .regex import StepBudget, StepBudgetExceeded

P = TypeVar("P", bound=p.Payload)


class Grant(msgspec.Struct, frozen=True):
    """Capabilities that one participant gave to another."""

    id: str
    by: str
    recipient: str
    capabilities: tuple[Capability, ...]
    acknowledged: bool = False


class GrantAdded(msgspec.Struct, frozen=True):
    """A participant holds more. It learns that by a new welcome."""

    grant: Grant


class GrantEnded(msgspec.Struct, frozen=True):
    """A participant holds less: a whole grant, or these of its capabilities, ended."""

    grant_id: str
    recipient: str
    capabilities: tuple[Capability, ...]
    why: str
    """`revoked`, `declined`, `kicked`, or `source_ended`: the giver no longer holds the capabilities."""


class ConfiguredRevoked(msgspec.Struct, frozen=True):
    """A participant holds less of what the configuration gives it."""

    recipient: str
    by: str
    capabilities: tuple[Capability, ...]
    """What was revoked."""


class GrantAcknowledged(msgspec.Struct, frozen=True):
    """The recipient of a grant acknowledged it."""

    grant_id: str
    by: str


class ParticipantInvited(msgspec.Struct, frozen=True):
    """A participant may join. The inviter receives the result (`space/invite-ack`)."""

    participant: str
    by: str
    status: str
    """`created`, or `already_exists`: then nothing changed."""


class ParticipantKicked(msgspec.Struct, frozen=True):
    """A participant was removed. Its connections are closed, and its tokens are not accepted."""

    participant: str
    by: str


RightsChange: TypeAlias = (
    GrantAdded | GrantEnded | ConfiguredRevoked | GrantAcknowledged | ParticipantInvited | ParticipantKicked
)


class Ruling(msgspec.Struct, frozen=True):
    """The result for one envelope. After a refusal nothing has changed."""

    decision: Decision
    events: tuple[RightsChange, ...] = ()
    refusal: ErrorInfo | None = None


MANAGEMENT_KINDS = (GRANT, REVOKE, INVITE, KICK)
"""The kinds by which participants change each other's rights."""

MAX_CAPABILITIES = 32
"""Maximum number of capabilities in one grant."""
MAX_GRANTS = 100
"""Maximum number of grants that one participant has given, and that one holds."""
MAX_REVOKED = MAX_EXCEPTIONS
"""Maximum number of patterns that are revoked of one participant's configured capabilities."""
SETTLE_STEPS = 400_000

CONFIGURED_SOURCE = "door"
"""Source of the capabilities that the configuration gives; stored."""


class LedgerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole state of a `Ledger` as plain data, with capabilities as they were written."""

    always: tuple[dict[str, Any], ...] = ()
    configured: dict[str, tuple[dict[str, Any], ...]] = msgspec.field(default={}, name="doors")
    revoked: dict[str, tuple[dict[str, Any], ...]] = {}
    """What was revoked of the configured capabilities of a participant."""
    grants: tuple[tuple[str, str, str, tuple[dict[str, Any], ...], bool], ...] = ()
    """Id, giver, recipient, capabilities, and whether it was acknowledged; in the order in which they were given."""
    kicked: tuple[str, ...] = ()


class Ledger:
    """The capabilities in one space.

    Args:
        always: Capabilities that every participant in the space holds.
    """

    def __init__(self, always: Iterable[Capability] = ()) -> None:
        self._for_everyone = tuple(HeldCapability(one, CONFIGURED_SOURCE) for one in always)
        self._configured: dict[str, tuple[HeldCapability, ...]] = {}
        self._revoked: dict[str, tuple[Capability, ...]] = {}
        self._reduced: dict[str, tuple[HeldCapability, ...]] = {}
        """What the configuration gives to participants, without what was revoked. A cache."""
        self._grants: dict[str, Grant] = {}
        self._kicked: set[str] = set()

    # --- queries

    def held(self, participant: str) -> tuple[HeldCapability, ...]:
        """Return the capabilities of a participant.

        Configured ones come first, then granted ones in the order of the grants.
        """
        if participant == GATEWAY:
            return (HeldCapability(EVERYTHING, "gateway"),)
        if not self.is_member(participant):
            return ()
        granted = (
            HeldCapability(one, grant.id)
            for grant in self._grants.values()
            if grant.recipient == participant
            for one in grant.capabilities
        )
        return (*self._configured_for(participant), *granted)

    def _configured_for(self, participant: str) -> tuple[HeldCapability, ...]:
        """Return what the configuration gives to a participant, without what was revoked."""
        configured = (*self._for_everyone, *self._configured[participant])
        if participant not in self._revoked:
            return configured
        reduced = self._reduced.get(participant)
        if reduced is None:
            removed, steps = self._revoked[participant], StepBudget(COVER_STEPS)
            reduced = self._reduced[participant] = tuple(
                held._replace(capability=rest)
                for held in configured
                if (rest := subtract(held.capability, removed, steps)) is not None
            )
        return reduced

    def is_member(self, participant: str) -> bool:
        """Check whether a participant is configured or invited, and not kicked."""
        return participant in self._configured and participant not in self._kicked

    @property
    def members(self) -> tuple[str, ...]:
        """The ids of all members."""
        return tuple(one for one in self._configured if one not in self._kicked)

    @property
    def grants(self) -> Mapping[str, Grant]:
        """The current grants by id, in the order in which they were given."""
        return self._grants

    def decide(self, envelope: Envelope) -> Decision:
        """Decide whether the sender may send the envelope. The recipient of a grant may always acknowledge it."""
        decision = decide(self.held(envelope.sender), envelope)
        if not decision.allowed and decision.why != "reserved" and self._acknowledged_by(envelope) is not None:
            return replace(decision, allowed=True, by={"kind": GRANT_ACK}, source=CONFIGURED_SOURCE, why=None)
        return decision

    def holds_right(self, participant: str, kind: str) -> bool:
        """Check whether a participant holds a right that is written as a kind but never sent, like `space/observe`."""
        return decide(self.held(participant), Envelope(id="", ts=0, sender=participant, kind=kind)).allowed

    # --- changes

    def configure_participant(self, participant: str, capabilities: Iterable[Capability]) -> tuple[RightsChange, ...]:
        """Set the configured capabilities of a participant, and end what was revoked of the earlier ones.

        Grants that depend on removed ones end.
        """
        self._configured[participant] = tuple(HeldCapability(one, CONFIGURED_SOURCE) for one in capabilities)
        self._revoked.pop(participant, None)
        self._reduced.pop(participant, None)
        return tuple(self._end_unsupported({participant}))

    def remove_configured(self, participant: str) -> tuple[RightsChange, ...]:
        """Remove a participant from the configuration."""
        self._configured.pop(participant, None)
        self._revoked.pop(participant, None)
        self._reduced.pop(participant, None)
        return tuple(self._end_grants_of(participant, "source_ended"))

    def configure_everyone(self, capabilities: Iterable[Capability]) -> tuple[RightsChange, ...]:
        """Set the capabilities that every participant holds."""
        self._for_everyone = tuple(HeldCapability(one, CONFIGURED_SOURCE) for one in capabilities)
        self._reduced.clear()
        return tuple(self._end_unsupported(set(self.members)))

    def replay(self, envelope: Envelope) -> tuple[RightsChange, ...]:
        """Apply an envelope that was accepted before. Its sender's rights are not checked again."""
        handle = _HANDLERS.get(envelope.kind)
        if handle is None:
            return ()
        try:
            if envelope.kind == REVOKE:
                return tuple(self._revoke(envelope, is_replayed=True))
            return tuple(handle(self, envelope))
        except RequestError:
            return ()

    # --- storage

    def dump(self) -> LedgerState:
        """Return the state as plain data."""
        return LedgerState(
            always=tuple(held.capability.written for held in self._for_everyone),
            configured={
                one: tuple(held.capability.written for held in holds) for one, holds in self._configured.items()
            },
            revoked={one: tuple(removed.written for removed in several) for one, several in self._revoked.items()},
            grants=tuple(
                (
                    one.id,
                    one.by,
                    one.recipient,
                    tuple(capability.written for capability in one.capabilities),
                    one.acknowledged,
                )
                for one in self._grants.values()
            ),
            kicked=tuple(sorted(self._kicked)),
        )

    @classmethod
    def load(cls, state: LedgerState) -> Ledger:
        """Restore a ledger from its dump."""
        ledger = cls(read_capabilities(state.always))
        for one, written in state.configured.items():
            ledger._configured[one] = tuple(
                HeldCapability(held, CONFIGURED_SOURCE) for held in read_capabilities(written)
            )
        ledger._revoked = {one: read_capabilities(written) for one, written in state.revoked.items()}
        for id, by, recipient, capabilities, acknowledged in state.grants:
            ledger._grants[id] = Grant(id, by, recipient, read_capabilities(capabilities), acknowledged)
        ledger._kicked = set(state.kicked)
        return ledger

    def feed(self, envelope: Envelope) -> Ruling:
        """Decide about an envelope, and apply its effect on rights."""
        decision = self.decide(envelope)
        return self.apply(envelope, decision) if decision.allowed else Ruling(decision, refusal=denial(decision))

    def apply(self, envelope: Envelope, decision: Decision) -> Ruling:
        """Apply the effect on rights of an envelope that its sender may send.

        Args:
            envelope: The envelope.
            decision: What `decide` said of it.
        """
        handle = _HANDLERS.get(envelope.kind)
        if handle is None:
            return Ruling(decision)
        try:
            return Ruling(decision, tuple(handle(self, envelope)))
        except RequestError as error:
            return Ruling(decision, refusal=error.info)

    def _grant(self, envelope: Envelope) -> list[RightsChange]:
        request = _decode(envelope, p.Grant)
        if request.recipient == envelope.sender:
            raise _refusal("a participant cannot grant to itself", "payload.recipient")
        if not self.is_member(request.recipient):
            raise _refusal(
                f"{request.recipient!r} is not in this space; invite them first", "payload.recipient", "not_found"
            )
        if not request.capabilities:
            raise _refusal("a grant holds at least one capability", "payload.capabilities", "invalid_request")
        return self._give(envelope, request.recipient, request.capabilities, "payload.capabilities")

    def _give(
        self, envelope: Envelope, recipient: str, written: Sequence[p.WrittenCapability], location: str
    ) -> list[RightsChange]:
        capabilities = _read_limited(written, location)
        known = self._grants.get(envelope.id)
        if known is not None:
            if (known.by, known.recipient, known.capabilities) == (envelope.sender, recipient, capabilities):
                return []
            raise _refusal(f"a grant {envelope.id!r} exists already; give this one another id", "id", "id_conflict")
        self._check_grant_count(envelope.sender, recipient, location)
        steps = StepBudget(COVER_STEPS)
        held = [one.capability for one in self.held(envelope.sender)]
        for n, one in enumerate(capabilities):
            if not is_covered(held, one, steps):
                raise _refusal(
                    f"{envelope.sender!r} cannot give what they do not hold", f"{location}[{n}]", "escalation"
                )
        grant = Grant(envelope.id, envelope.sender, recipient, capabilities)
        self._grants[grant.id] = grant
        return [GrantAdded(grant)]

    def _check_grant_count(self, by: str, recipient: str, location: str) -> None:
        for count, subject in (
            (sum(grant.by == by for grant in self._grants.values()), f"{by!r} has given"),
            (sum(grant.recipient == recipient for grant in self._grants.values()), f"{recipient!r} holds"),
        ):
            if count >= MAX_GRANTS and by != GATEWAY:
                raise _refusal(f"{subject} {count} grants, the maximum; revoke some", location, "too_many")

    def _revoke(self, envelope: Envelope, *, is_replayed: bool = False) -> list[RightsChange]:
        request, sender = _decode(envelope, p.Revoke), envelope.sender
        if request.grant_id is None and not request.capabilities:
            raise _refusal("`grant_id` or `capabilities` is required", "payload", "invalid_request")
        if request.grant_id is None and request.recipient is None:
            raise _refusal("it is required where there is no `grant_id`", "payload.recipient", "invalid_request")
        grants = [
            grant
            for grant in self._grants.values()
            if request.grant_id in (None, grant.id) and request.recipient in (None, grant.recipient)
        ]
        if request.grant_id is not None and not grants:
            raise _refusal(
                f"no grant {request.grant_id!r} was given to {request.recipient or 'anyone'!r}", "payload", "not_found"
            )
        removed = _read_removed(request.capabilities or (), "payload.capabilities")
        steps = StepBudget(SETTLE_STEPS)
        reduced = {grant.id: _remaining(grant.capabilities, removed, steps) for grant in grants}
        affected = [grant for grant in grants if reduced[grant.id] != grant.capabilities]
        participant = request.recipient if request.grant_id is None else None
        is_configured = participant is not None and self._is_reducible(participant, removed)
        if not affected and not is_configured:
            raise _refusal(f"{request.recipient!r} holds nothing of these", "payload.capabilities", "not_found")
        if not is_replayed:
            for grant in affected:
                if not self._may_revoke(sender, grant, removed):
                    raise _refusal(f"{sender!r} neither gave grant {grant.id!r} nor could have", "payload")
        if participant is not None and is_configured and not self._may_reduce(sender, participant):
            if not is_replayed:
                raise _refusal(
                    f"{participant!r} has rights to grant, revoke, invite or kick that {sender!r} has not",
                    "payload.recipient",
                )
            is_configured = False
        # First what can be refused, so that a refused revocation takes nothing.
        reduction = [self._reduce(sender, participant, removed)] if participant is not None and is_configured else []
        changes: list[RightsChange] = [self._end_grant(grant, reduced[grant.id], "revoked") for grant in affected]
        changes += reduction
        lost = {grant.recipient for grant in affected} | ({participant} if participant is not None else set())
        return [*changes, *self._end_unsupported(lost)]

    def _is_reducible(self, participant: str, removed: tuple[Capability, ...]) -> bool:
        """Check whether the configuration gives a member something of these capabilities."""
        if not self.is_member(participant):
            return False
        capabilities = tuple(held.capability for held in self._configured_for(participant))
        return _remaining(capabilities, removed, StepBudget(COVER_STEPS)) != capabilities

    def _may_revoke(self, sender: str, grant: Grant, removed: tuple[Capability, ...]) -> bool:
        return sender in (GATEWAY, grant.by, grant.recipient) or self._holds(sender, grant.capabilities, removed)

    def _may_reduce(self, sender: str, participant: str) -> bool:
        return sender in (GATEWAY, participant) or self._outranks(sender, self.held(participant))

    def _holds(self, sender: str, capabilities: Iterable[Capability], removed: tuple[Capability, ...]) -> bool:
        """Check whether the sender holds all that is removed from the capabilities; all of them if it is empty."""
        own, steps = [one.capability for one in self.held(sender)], StepBudget(COVER_STEPS)
        if removed and all(is_covered(own, one, steps) for one in removed):
            return True
        return all(
            is_covered(own, one, steps)
            for one in capabilities
            if not removed or subtract(one, removed, steps) is not one
        )

    def _reduce(self, sender: str, participant: str, removed: tuple[Capability, ...]) -> ConfiguredRevoked:
        earlier = self._revoked.get(participant, ())
        steps = StepBudget(COVER_STEPS)
        several = (*(one for one in earlier if not is_covered(removed, one, steps)), *removed)
        if len(several) > MAX_REVOKED:
            raise _refusal(
                f"{len(earlier)} patterns are revoked of {participant!r}, of at most {MAX_REVOKED}: revoke wider ones",
                "payload.capabilities",
                "too_many",
            )
        self._revoked[participant] = several
        self._reduced.pop(participant, None)
        return ConfiguredRevoked(participant, sender, removed)

    def _acknowledge(self, envelope: Envelope) -> list[RightsChange]:
        grant = self._acknowledged_by(envelope)
        if grant is None:
            raise _refusal("it correlates to no current grant of its sender", "correlation_id", "not_found")
        if envelope.payload.get("status") in ("declined", "rejected"):
            return [self._end_grant(grant, (), "declined"), *self._end_unsupported({grant.recipient})]
        if not grant.acknowledged:
            self._grants[grant.id] = replace(grant, acknowledged=True)
        return [GrantAcknowledged(grant.id, envelope.sender)]

    def _acknowledged_by(self, envelope: Envelope) -> Grant | None:
        if envelope.kind != GRANT_ACK:
            return None
        named = (self._grants.get(name) for name in envelope.correlation_id)
        return next((grant for grant in named if grant is not None and grant.recipient == envelope.sender), None)

    def _invite(self, envelope: Envelope) -> list[RightsChange]:
        request = _decode(envelope, p.Invite)
        name = request.participant_id
        if self.is_member(name):
            return [ParticipantInvited(name, envelope.sender, "already_exists")]
        try:
            check_participant(name)
        except EnvelopeError as error:
            reason = error.info.message.partition(": ")[2]
            message = f"{name!r} cannot be the id of a participant: {reason}"
            raise _refusal(message, "payload.participant_id", "invalid_request") from None
        if name in self._kicked and not self._outranks(envelope.sender, self._configured.get(name, ())):
            raise _refusal(f"{name!r} was kicked by a participant with more rights", "payload.participant_id")
        initial = request.initial_capabilities or ()
        changes = self._give(envelope, name, initial, "payload.initial_capabilities") if initial else []
        self._kicked.discard(name)
        self._configured.setdefault(name, ())
        return [ParticipantInvited(name, envelope.sender, "created"), *changes]

    def _kick(self, envelope: Envelope) -> list[RightsChange]:
        request = _decode(envelope, p.Kick)
        name = request.participant_id
        if name == envelope.sender:
            raise _refusal("a participant cannot kick itself; leave instead", "payload.participant_id")
        if not self.is_member(name):
            raise _refusal(f"{name!r} is not in this space", "payload.participant_id", "not_found")
        if not self._outranks(envelope.sender, self.held(name)):
            raise _refusal(
                f"{name!r} has rights to grant, revoke, invite or kick that {envelope.sender!r} has not",
                "payload.participant_id",
            )
        self._kicked.add(name)
        return [ParticipantKicked(name, envelope.sender), *self._end_grants_of(name, "kicked")]

    def _outranks(self, sender: str, holdings: Iterable[HeldCapability]) -> bool:
        """Check whether the sender holds all management rights that the holdings give."""
        steps = StepBudget(COVER_STEPS)
        own = [one.capability for one in self.held(sender)]
        try:
            return all(
                is_covered(own, one.capability, steps)
                for one in holdings
                if any(allows(one.capability.kind, kind, steps) for kind in MANAGEMENT_KINDS)
            )
        except StepBudgetExceeded:
            return False

    # --- dependent grants

    def _end_grants_of(self, participant: str, why: str) -> list[RightsChange]:
        received = [grant for grant in self._grants.values() if grant.recipient == participant]
        return [
            *(self._end_grant(grant, (), why) for grant in received),
            *self._end_unsupported({participant}),
        ]

    def _end_grant(self, grant: Grant, remaining: tuple[Capability, ...], why: str) -> GrantEnded:
        """Leave these capabilities of a grant; without any, it ends."""
        if remaining:
            self._grants[grant.id] = replace(grant, capabilities=remaining)
        else:
            del self._grants[grant.id]
        ended = tuple(one for one in grant.capabilities if one not in remaining)
        return GrantEnded(grant.id, grant.recipient, ended, why)

    def _end_unsupported(self, lost: set[str]) -> list[RightsChange]:
        """End the grants of participants who lost capabilities and no longer hold what they gave.

        The same then applies to the recipients of these grants. A grant also ends if it cannot be shown within the
        budget that its giver still holds its capabilities.
        """
        ended: list[RightsChange] = []
        steps = StepBudget(SETTLE_STEPS)
        held = {one: [own.capability for own in self._configured_for(one)] for one in self.members}
        for grant in list(self._grants.values()):
            if grant.by in lost:
                before = held.get(grant.by, [])
                supported = tuple(one for one in grant.capabilities if is_covered(before, one, steps))
                if supported != grant.capabilities:
                    ended.append(self._end_grant(grant, supported, "source_ended"))
                    lost = lost | {grant.recipient}
            remaining = self._grants.get(grant.id)
            if remaining is not None and grant.recipient in held:
                held[grant.recipient].extend(remaining.capabilities)
        return ended


_HANDLERS = {
    GRANT: Ledger._grant,
    REVOKE: Ledger._revoke,
    GRANT_ACK: Ledger._acknowledge,
    INVITE: Ledger._invite,
    KICK: Ledger._kick,
}


def changes_rights(kind: str) -> bool:
    """Check whether envelopes of this kind change rights."""
    return kind in _HANDLERS


def _decode(envelope: Envelope, payload_type: type[P]) -> P:
    payload = decode_payload(envelope.kind, envelope.payload)
    assert isinstance(payload, payload_type)
    return payload


def _read_limited(written: Sequence[p.WrittenCapability], location: str) -> tuple[Capability, ...]:
    if len(written) > MAX_CAPABILITIES:
        raise _refusal(f"at most {MAX_CAPABILITIES} capabilities, not {len(written)}", location, "too_large")
    return read_capabilities(written, location)


def _remaining(
    capabilities: tuple[Capability, ...], removed: tuple[Capability, ...], steps: StepBudget
) -> tuple[Capability, ...]:
    """Return what is left of capabilities; nothing if `removed` is empty."""
    if not removed:
        return ()
    rests = [subtract(one, removed, steps) for one in capabilities]
    if any(one is not None and len(one.exceptions) > MAX_EXCEPTIONS for one in rests):
        raise _refusal(
            f"a capability has at most {MAX_EXCEPTIONS} exceptions: revoke wider ones",
            "payload.capabilities",
            "too_many",
        )
    return tuple(one for one in rests if one is not None)


def _read_removed(written: Sequence[p.WrittenCapability], location: str) -> tuple[Capability, ...]:
    removed = _read_limited(written, location)
    for n, one in enumerate(removed):
        if one.exceptions:
            raise _refusal("a revocation has no exceptions", f"{location}[{n}].except", "invalid_request")
    return removed


def _refusal(message: str, param: str, code: str = "forbidden") -> RequestError:
    return RequestError(f"{param}: {message}", kind="forbidden", code=code, param=param)


def denial(decision: Decision) -> ErrorInfo:
    """Return the error for an envelope that its sender may not send."""
    reason = {
        "reserved": "only the gateway sends `system/*`",
        "undecided": "it could not be decided in time whether this is allowed: the sender's patterns cost too much",
    }.get(decision.why or "", f"no capability of {decision.participant!r} allows a {decision.kind!r} with this payload")
    return ErrorInfo(kind="forbidden", code="capability_violation", message=f"kind: {reason}", param="kind")
