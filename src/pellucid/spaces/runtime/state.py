"""The state of a space: capabilities, presence, open contexts and streams, proposals and requests.

    outcome = state.judge(envelope, at, known)      # the next envelope: accepted, or the error
    changes = state.replay(stored)                  # an accepted one

The state is the fold of the log and of nothing else, so every replica has the same one. The configuration reaches it
through the log, too (`kinds.CONFIGURED`). An envelope is judged in this order: whether proposals or requests refuse it;
whether its sender may send it; whether any of its recipients is in the space; its place in a context; its effect on
rights. Only then something changes: a refused envelope changes nothing.

What a participant may not read does not exist for it (`sees`): a proposal, a request, a context or a stream of others
is treated like an unknown one. An answer that names no recipients is for those who may read what it answers
(`_inherited_readers`), also outside of its context.

A `Note` is stored with each envelope: what the gateway found when it accepted it.

What agents may say is limited (`talk`), after their capabilities: a participant without the right to speak learns that
first.

A chat whose recipients are all unknown in the space is refused, with MEW's code for it. Every member counts as known,
present or not, also one who was invited. If only some recipients are unknown, they are flagged, and the others receive
the chat. The same holds for those that a `reasoning/share` adds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from ...envelopes import GATEWAY, Envelope, context, kinds
from ...envelopes.capability import read_capabilities
from ...envelopes.envelope import Flag, Sees
from ...envelopes.grants import Ledger, LedgerState, RightsChange, changes_rights, denial
from ...envelopes.kinds import CHAT
from ...envelopes.lifecycle import MAX_LISTED_NAMES, Lifecycle, LifecycleSettings, added_participants
from ...envelopes.mcp import CANCELLED, is_discovery
from ...envelopes.proposals import Proposal, Proposals
from ...envelopes.reasoning import NO_NAMES, EndedContext, NameSet
from ...envelopes.reasoning import LifecycleState as ContextState
from ...envelopes.requests import Requests, RequestState
from ...envelopes.streams import Membership, PendingRequest, Stream, Streams, structure_of
from ...envelopes.talk import LIMIT_NAMES, OPEN, Talk, TalkLimits, TalkState
from ...envelopes.visibility import SpaceView, SpaceViewer
from ...errors import ErrorInfo, PellucidError
from ...storage import StoredEnvelope
from ...unicode import did_you_mean, truncate
from .ids import new_id
from .settings import SpaceSettings

MAX_SUGGESTIONS = 256
"""Among how many members the most similar name is searched."""


def unknown_targets(envelope: Envelope, ledger: Ledger) -> tuple[str, ...]:
    """Return the recipients of a chat, or new members of an audience, that are not members of the space."""
    if envelope.sender == GATEWAY:
        return ()
    return tuple(one for one in _targets(envelope) if one != GATEWAY and not ledger.is_member(one))


def _targets(envelope: Envelope) -> tuple[str, ...]:
    if envelope.kind == kinds.SHARE:
        return added_participants(envelope)
    return envelope.to if envelope.kind == CHAT else ()


def target_not_found(unknown: Sequence[str], members: Sequence[str], param: str) -> ErrorInfo:
    """Build the error for an envelope whose recipients, or new members of an audience, are all unknown."""
    right = did_you_mean(unknown[0], members[:MAX_SUGGESTIONS])
    return ErrorInfo(
        "not_found",
        f"{param}: {_describe_unknown(unknown)}; {right}",
        code="target_not_found",
        param=param,
    )


def _describe_unknown(unknown: Sequence[str]) -> str:
    more = f" and {len(unknown) - MAX_LISTED_NAMES} more" if len(unknown) > MAX_LISTED_NAMES else ""
    names = " or ".join(repr(truncate(one)) for one in unknown[:MAX_LISTED_NAMES])
    return f"no participant called {names}{more} is in this space"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the gateway stores with an envelope."""

    flags: tuple[Flag, ...] = ()
    """Remarks about it."""
    ended: tuple[EndedContext, ...] = ()
    """The contexts that it ended."""
    links: tuple[str, ...] = ()
    """Paths of the contexts that it came out of."""
    proposals: tuple[str, ...] = ()
    """Ids of the proposals that it made, settled or answered."""
    by: dict[str, Any] | None = None
    """The capability that allowed it, as it was written."""
    source: str | None = None
    """Where that capability comes from: `door` (the configuration), the id of a grant, or `gateway`."""
    redacted: tuple[str, ...] = ()
    """Names of the operator's patterns that matched something in it, which was removed."""

    meaning: dict[str, Any] = {}
    """For envelopes that change rights, and for those of the gateway: the payload without its remarks.

    It is kept when the payload is erased, so that the log still folds to the same state.
    """

    def dump(self) -> bytes:
        return msgspec.json.encode(self)


def read_note(data: bytes) -> Note:
    """Decode a note; an empty one if it cannot be read."""
    try:
        return msgspec.json.decode(data, type=Note)
    except msgspec.DecodeError:
        return Note()


_ANNOTATION_FIELDS = frozenset({"reason", "email"})

_ANSWERS = frozenset({kinds.RESPONSE, kinds.WITHDRAW, kinds.REJECT})
"""The kinds that answer a request or a proposal."""

READ_REASONING = "reasoning/read"
OBSERVE = "space/observe"


class ConfiguredAccess(msgspec.Struct, frozen=True, omit_defaults=True):
    """Capabilities and templates from the configuration; in an envelope, those that changed."""

    always: tuple[str | dict[str, Any], ...] | None = None
    participants: dict[str, tuple[str | dict[str, Any], ...] | None] = msgspec.field(default={}, name="doors")
    """Capabilities by participant. None: the participant is no longer configured."""
    templates: dict[str, tuple[str, ...]] | None = None
    people: tuple[str, ...] | None = None
    """The participants who are people, for the limits of agents' talk."""


class StateDump(msgspec.Struct, omit_defaults=True):
    """A state as plain data."""

    head: int
    at: int
    access: ConfiguredAccess = msgspec.field(name="doors")
    ledger: LedgerState
    contexts: ContextState
    proposals: dict[str, Proposal]
    present: dict[str, int]
    away: dict[str, int]
    requests: RequestState = msgspec.field(default_factory=RequestState)
    talk: TalkState = msgspec.field(default_factory=TalkState)
    streams: dict[str, Stream] = {}
    stream_request: PendingRequest | None = None


class Judgement(msgspec.Struct, frozen=True):
    """The result for an envelope: `stored` if it was accepted, `error` if not."""

    stored: StoredEnvelope | None = None
    changes: tuple[RightsChange, ...] = ()
    error: ErrorInfo | None = None


class SpaceState:
    """The state of one space.

    `settings` decides how new envelopes are judged. An accepted envelope has the same effect under any settings.
    """

    def __init__(self, settings: SpaceSettings) -> None:
        self.settings = settings
        self.head = 0
        self.latest_at_ms = 0
        """When the newest envelope was accepted, in milliseconds since 1970. It never decreases."""
        self.access = ConfiguredAccess(always=(), templates={})
        """The configuration, according to the log."""
        self.ledger = Ledger()
        self.lifecycle = Lifecycle(self._lifecycle_settings())
        self.proposals = Proposals()
        self.requests = Requests()
        self.talk = Talk()
        self.streams = Streams()
        self.present_since: dict[str, int] = {}
        """When each present participant joined, in milliseconds since 1970."""
        self._capability_cache: dict[str, tuple[dict[str, Any], ...]] = {}
        self._matching_access: tuple[ConfiguredAccess | None, ConfiguredAccess | None] = (None, None)
        self.away_since: dict[str, int] = {}
        """When each participant left who has open contexts, in milliseconds since 1970."""

    def configure(self, settings: SpaceSettings) -> None:
        """Judge by other settings from now on."""
        self.settings = settings
        self.lifecycle.settings = self._lifecycle_settings()

    def _lifecycle_settings(self) -> LifecycleSettings:
        return replace(self.settings.lifecycle(), templates=dict(self.access.templates or {}))

    # --- judging

    def judge(
        self, envelope: Envelope, time_ms: int, known: NameSet = NO_NAMES, redacted: tuple[str, ...] = ()
    ) -> Judgement:
        """Judge the next envelope. An accepted one gets the next number.

        Args:
            envelope: The envelope.
            time_ms: The time, in milliseconds since 1970.
            known: Which ids and paths the history knows, of those that `Lifecycle.unknown_names` gave.
            redacted: Names of the patterns that matched something in it.
        """
        time_ms = max(time_ms, self.latest_at_ms)
        envelope = replace(envelope, seq=self.head + 1)
        sees = self.sees(envelope.sender)
        if (error := self.proposals.refusal(envelope, sees)) is not None:
            return Judgement(error=error)
        response_errors = self.requests.check(envelope, sees)
        if response_errors and self.settings.responses == "strict":
            return Judgement(error=response_errors[0])
        decision = self.ledger.decide(envelope)
        if not decision.allowed:
            return Judgement(error=denial(decision))
        unknown = unknown_targets(envelope, self.ledger)
        param = "payload.participants" if envelope.kind == kinds.SHARE else "to"
        if unknown and len(unknown) == len(_targets(envelope)):
            return Judgement(error=target_not_found(unknown, self.ledger.members, param))
        ends = self._ends(envelope)
        if (error := self._talk_refusal(envelope, time_ms, ends)) is not None:
            return Judgement(error=error)
        if (
            envelope.family == "stream"
            and (error := self.streams.check(envelope, self._membership(), sees)) is not None
        ):
            return Judgement(error=error)
        checked = self.lifecycle.check(envelope, known, sees)
        if isinstance(checked, ErrorInfo):
            return Judgement(error=checked)
        ruling = self.ledger.apply(envelope, decision)
        if ruling.refusal is not None:
            return Judgement(error=ruling.refusal)
        effect = self.lifecycle.apply(envelope, checked.case, time_ms)
        if not envelope.to and (audience := effect.audience or self._inherited_readers(envelope, sees)):
            envelope = replace(envelope, audience=audience)
        proposal_flags, changed_proposals = self.proposals.apply(
            envelope, sees, self.requests.refused_answers(envelope)
        )
        self.talk.apply(envelope, effect.place.path, self._named_people, time_ms, ends=ends)
        self.requests.apply(envelope)
        changes = (*ruling.events, *self._fold(envelope, time_ms))
        flags = [*checked.flags, *proposal_flags]
        flags += [Flag(error.code or error.kind, error.message) for error in response_errors]
        if unknown:
            flags.append(Flag("target_not_found", f"{param}: {_describe_unknown(unknown)}"))
        note = Note(
            flags=tuple(flags),
            ended=effect.ended,
            links=effect.links,
            proposals=changed_proposals,
            by=ruling.decision.by,
            source=ruling.decision.source,
            redacted=redacted,
            meaning=_erasure_safe_payload(envelope),
        )
        return Judgement(StoredEnvelope(envelope, time_ms, effect.place, note.dump()), changes)

    def replay(self, stored: StoredEnvelope) -> tuple[RightsChange, ...]:
        """Apply an envelope that was accepted before."""
        envelope = stored.envelope
        if envelope.is_erased and (meaning := read_note(stored.note).meaning):
            envelope = replace(envelope, payload=meaning)
        changes = self.ledger.replay(envelope)
        ends = self._ends(envelope)
        effect = self.lifecycle.replay(envelope, stored.at)
        settles = envelope.correlation_id and kinds.kind_of(envelope.kind).proposal_status
        changed = read_note(stored.note).proposals if settles else ()
        self.proposals.replay(envelope, changed, self.requests.refused_answers(envelope))
        self.talk.apply(envelope, effect.place.path, self._named_people, stored.at, ends=ends)
        self.requests.apply(envelope)
        return (*changes, *self._fold(envelope, stored.at))

    def _fold(self, envelope: Envelope, time_ms: int) -> tuple[RightsChange, ...]:
        """Apply what concerns neither rights nor reasoning: presence and the configuration."""
        self.head, self.latest_at_ms = envelope.seq, time_ms
        self.streams.apply(envelope, time_ms)
        if changes_rights(envelope.kind) or envelope.kind == kinds.CONFIGURED:
            self._capability_cache.clear()
        changes: tuple[RightsChange, ...] = ()
        if envelope.sender == GATEWAY:
            if envelope.kind == kinds.PRESENCE:
                self._apply_presence(envelope.payload, time_ms)
            elif envelope.kind == kinds.CONFIGURED:
                changes = self._apply_configuration(envelope.payload)
        if self.away_since and envelope.family == "reasoning":
            for one in [one for one in self.away_since if not self.lifecycle.contexts.count_open_of(one)]:
                del self.away_since[one]
        return changes

    def _apply_presence(self, payload: Mapping[str, Any], time_ms: int) -> None:
        participant = payload.get("participant")
        name = participant.get("id") if isinstance(participant, dict) else None
        if not isinstance(name, str):
            return
        if payload.get("event") == "join":
            self.present_since[name] = time_ms
            self.away_since.pop(name, None)
        elif payload.get("event") == "leave":
            self.present_since.pop(name, None)
            if self.lifecycle.contexts.count_open_of(name):
                self.away_since[name] = time_ms

    def _apply_configuration(self, payload: Mapping[str, Any]) -> tuple[RightsChange, ...]:
        try:
            new = msgspec.convert(payload, ConfiguredAccess)
            changes: list[RightsChange] = []
            if new.always is not None:
                changes += self.ledger.configure_everyone(read_capabilities(new.always))
            for name, written in new.participants.items():
                if written is None:
                    changes += self.ledger.remove_configured(name)
                else:
                    changes += self.ledger.configure_participant(name, read_capabilities(written))
        except (msgspec.ValidationError, PellucidError):
            # It was erased, or written by a newer version.
            return ()
        configured = {
            name: written
            for name, written in (self.access.participants | new.participants).items()
            if written is not None
        }
        self.access = ConfiguredAccess(
            always=self.access.always if new.always is None else new.always,
            participants=dict(configured),
            templates=self.access.templates if new.templates is None else new.templates,
            people=self.access.people if new.people is None else new.people,
        )
        self.lifecycle.settings = self._lifecycle_settings()
        return tuple(changes)

    def configuration_change(self, wanted: ConfiguredAccess) -> dict[str, Any] | None:
        """Return the payload of the `CONFIGURED` envelope that makes `wanted` the configuration.

        Returns:
            None if it is the configuration already.
        """
        have = self.access
        if self._matching_access[0] is have and self._matching_access[1] is wanted:
            return None
        changed_participants = {
            name: written for name, written in wanted.participants.items() if have.participants.get(name) != written
        }
        changed_participants |= {name: None for name in have.participants if name not in wanted.participants}
        changed = ConfiguredAccess(
            always=None if wanted.always == have.always else wanted.always,
            participants=changed_participants,
            templates=None if wanted.templates == have.templates else wanted.templates,
            people=None if wanted.people == self._named_people else wanted.people,
        )
        payload: dict[str, Any] = msgspec.to_builtins(changed)
        if not payload:
            self._matching_access = (have, wanted)
        return payload or None

    # --- the limits of agents' talk

    @property
    def _named_people(self) -> tuple[str, ...]:
        return self.access.people or ()

    def _talk_limits(self, path: str | None) -> TalkLimits:
        return self.settings.talk if path is None else self.settings.talk.context

    def _ends(self, envelope: Envelope) -> str | None:
        """Return what the next envelope ends, if anything: a request, or a context (see `Talk.refusal`)."""
        requests = self.requests.awaited_requests(envelope)
        methods = {"" if self.talk.is_person(one.by, self._named_people) else one.discovery for one in requests}
        if requests:
            return OPEN if "" in methods else min(methods)
        return OPEN if self.lifecycle.ends(envelope) else None

    def _talk_refusal(self, envelope: Envelope, time_ms: int, ends: str | None) -> ErrorInfo | None:
        talk = self.settings.talk
        if talk.is_unlimited:
            return None
        path = self._path(envelope.context)
        return self.talk.refusal(envelope, path, (talk, talk.context), self._named_people, time_ms, ends=ends)

    def frame_refusal(self, sender: str, stream: Stream, time_ms: int) -> ErrorInfo | None:
        """Return why agents may not write to a stream now (see `talk`), if `sender` is one; None if it may."""
        talk = self.settings.talk
        if talk.is_unlimited:
            return None
        path, time_ms = self._path(stream.context), max(time_ms, self.latest_at_ms)
        return self.talk.frame_refusal(sender, path, (talk, talk.context), self._named_people, time_ms)

    def _path(self, written: str | None) -> str | None:
        return None if written is None else self.lifecycle.contexts.resolve(written)

    def talk_notices(self, stored: StoredEnvelope) -> list[Envelope]:
        """Return the notices that are due after an envelope (see `talk_notice`)."""
        if self.settings.talk.is_unlimited:
            return []
        path = stored.place.path
        notices = [self.talk_notice(one, stored.at) for one in ((None,) if path is None else (None, path))]
        return [one for one in notices if one is not None]

    def talk_notice(self, path: str | None, time_ms: int) -> Envelope | None:
        """Return the notice, to all, that a limit of agents' talk is reached; None if it is not, or was announced.

        Args:
            path: A context. None: the space.
            time_ms: The time, in milliseconds since 1970.
        """
        reached = None if self._has_ended(path) else self.talk.unannounced(path, self._talk_limits(path), time_ms)
        if reached is None:
            return None
        return Envelope(
            id=new_id(), ts=time_ms, sender=GATEWAY, kind=kinds.LIMIT, context=reached.context, payload=reached.payload
        )

    def talk_due(self, now: int) -> list[str | None]:
        """Return the contexts, and None for the space, of which a reached limit was not announced yet."""
        if self.settings.talk.is_unlimited:
            return []
        scopes = (None, *self.talk.state.contexts)
        return [
            path
            for path in scopes
            if not self._has_ended(path) and self.talk.unannounced(path, self._talk_limits(path), now)
        ]

    def _has_ended(self, path: str | None) -> bool:
        """Check whether the outermost context of a path has ended: no participant waits for a notice about it."""
        return path is not None and context.root(path) in self.lifecycle.state.ended

    def talk_counts(self, now: int) -> dict[str, dict[str, float]]:
        """Return what is used of each limit of the space, with what is allowed."""
        limits, count = self._talk_limits(None), self.talk.state.space
        return {
            name: {"used": count.used(name, now), "allowed": allowed}
            for name in LIMIT_NAMES
            if (allowed := getattr(limits, name)) is not None
        }

    def stream_follow_ups(self, envelope: Envelope, changes: Sequence[RightsChange]) -> list[Envelope]:
        """Return what the gateway has to send about streams after an accepted envelope."""
        if not self.streams.state and envelope.family != "stream":
            return []
        rights_changed = bool(changes) or envelope.kind == kinds.CONFIGURED
        return self.streams.follow_ups(envelope, self._membership(), rights_changed=rights_changed)

    def _membership(self) -> Membership:
        return Membership(
            is_member=self.ledger.is_member,
            is_present=self.present_since.__contains__,
            may_send=lambda envelope: self.ledger.decide(envelope).allowed,
            audience_of=self._audience_of,
            max_streams=self.settings.limits.open_streams,
        )

    # --- who reads what

    def sees(self, participant: str) -> Sees:
        """Return what a participant may read. It is the rule of `visibility` for what is for others."""

        def sees(readers: Collection[str]) -> bool:
            return (
                not readers
                or participant in readers
                or participant == GATEWAY
                or self.settings.advisory
                or self.ledger.holds_right(participant, OBSERVE)
            )

        return sees

    def _inherited_readers(self, envelope: Envelope, sees: Sees) -> tuple[str, ...]:
        """Return who reads an answer without recipients: those who may read all that it answers. Empty: everyone.

        A request that fulfils a proposal is not an answer, because its sender chooses whose tool it calls. But it stays
        within the audience of the proposal's context. What is done with a stream is for its participants.
        """
        if self.settings.advisory or envelope.family not in ("mcp", "stream"):
            return ()
        groups: list[tuple[str, ...]] = []
        if envelope.family == "stream":
            stream = self.streams.named(envelope)
            groups = [stream.audience] if stream is not None else []
        else:
            is_answer = envelope.kind in _ANSWERS or envelope.payload.get("method") == CANCELLED
            for id in envelope.correlation_id:
                proposal, request = self.proposals.state.get(id), self.requests.get(id)
                if proposal is not None and is_answer:
                    groups.append(proposal.readers)
                elif proposal is not None and proposal.context is not None and sees(proposal.readers):
                    groups.append(self._audience_of(proposal.context) or ())
                if request is not None and is_answer:
                    groups.append(request.readers)
        groups = [one for one in groups if one and sees(one)]
        if not groups:
            return ()
        return tuple(one for one in groups[0] if all(one in other for other in groups)) or (envelope.sender,)

    def _audience_of(self, written: str) -> tuple[str, ...] | None:
        """Return the audience of a context, empty if it is for everyone; None if it is not remembered."""
        if self.settings.advisory:
            return ()
        contexts = self.lifecycle.contexts
        path = contexts.resolve(written)
        private = contexts.audience(path)
        if private is None:
            return () if contexts.get(path) is not None else None
        return private.audience

    # --- queries

    def knows(self, id: str) -> bool:
        """Check whether one of the latest envelopes has this id."""
        return id in self.lifecycle.state.recent

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]:
        """Return the capabilities of a participant, as they were written."""
        written = self._capability_cache.get(participant)
        if written is None:
            written = tuple(held.capability.written for held in self.ledger.held(participant))
            self._capability_cache[participant] = written
        return written

    def viewer(self, participant: str, view: SpaceView = "full") -> SpaceViewer:
        """Return what a participant may read now."""
        everyone = self.settings.read_reasoning == "everyone"
        return SpaceViewer(
            participant=participant,
            view=view,
            reasoning=everyone or self.ledger.holds_right(participant, READ_REASONING),
            observes=self.ledger.holds_right(participant, OBSERVE),
            advisory=self.settings.advisory,
        )

    def due(self, now: int) -> list[tuple[str, str]]:
        """Return the paths of the contexts to abandon, each with the reason: `timed out` or `disconnected`.

        Args:
            now: The time, in milliseconds since 1970.
        """
        reasons = {one.path: "timed out" for one in self.lifecycle.due(now)}
        grace = self.settings.grace_seconds * 1000
        for name, since in self.away_since.items():
            if now - since >= grace:
                reasons |= {one.path: "disconnected" for one in self.lifecycle.left_open_by(name)}
        return list(reasons.items())

    def is_open(self, path: str) -> bool:
        """Check whether the context at a path is open."""
        return path in self.lifecycle.state.open

    # --- storage

    def dump(self) -> bytes:
        """Return the state as JSON."""
        return msgspec.json.encode(
            StateDump(
                head=self.head,
                at=self.latest_at_ms,
                access=self.access,
                ledger=self.ledger.dump(),
                contexts=self.lifecycle.state,
                proposals=self.proposals.state,
                present=self.present_since,
                away=self.away_since,
                requests=self.requests.state,
                talk=self.talk.state,
                streams=self.streams.state,
                stream_request=self.streams.pending_request,
            )
        )

    @classmethod
    def load(cls, settings: SpaceSettings, data: bytes) -> SpaceState:
        """Restore a state from its dump.

        Raises:
            msgspec.DecodeError: If it is not a dump.
            RequestError: If a capability in it is not valid.
        """
        saved = msgspec.json.decode(data, type=StateDump)
        state = cls(settings)
        state.head, state.latest_at_ms, state.access = saved.head, saved.at, saved.access
        state.ledger = Ledger.load(saved.ledger)
        state.lifecycle = Lifecycle(state._lifecycle_settings(), saved.contexts)
        state.proposals = Proposals(saved.proposals)
        state.requests = Requests(saved.requests)
        state.talk = Talk(saved.talk)
        state.streams = Streams(saved.streams, saved.stream_request)
        state.present_since, state.away_since = saved.present, saved.away
        return state


EnvelopeFactory: TypeAlias = Callable[[SpaceState, int], Envelope | None]
"""Builds an envelope of the gateway when it is judged, from the state and the time (ms) at that moment. None: it is not
needed any more.
"""


def _erasure_safe_payload(envelope: Envelope) -> dict[str, Any]:
    method = envelope.payload.get("method")
    if envelope.kind == kinds.REQUEST and is_discovery(method):
        return {"method": method}
    if envelope.sender != GATEWAY and not changes_rights(envelope.kind):
        return {}
    if envelope.family == "stream":
        return structure_of(envelope.payload)
    return {name: value for name, value in envelope.payload.items() if name not in _ANNOTATION_FIELDS}
