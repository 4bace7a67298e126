"""The life cycle of contexts: which envelopes may stand in a context, and how they change it.

    life = Lifecycle(LifecycleSettings())
    checked = life.check(envelope)                        # every envelope of the space, in order
    effect = life.apply(envelope, checked.case, time_ms)  # unless `checked` is an error
    life.due(now)                                         # silent contexts, which the gateway then cancels

The rules:

1. A start opens one context. In an open context it nests: in `msg-301`, the start `msg-302` opens `msg-301/msg-302`.
   Elsewhere the context that it names is the label that it opens (`context: "reason-123"`), and a start in the main
   conversation opens the context of its own id. The id of a start always means the context that it opened, too.
2. Anything else in a context without a start makes it an implicit context, which ends by silence. A start with its name
   turns it into a started one.
3. A context is open until it is concluded, cancelled or abandoned. That status is final. A cancel by the gateway (a
   time-out, a disconnect) abandons the context. A cancel by anyone else cancels it, and so does a conclusion with
   `cancelled`.
4. The end of a context ends those inside it: a cancel cancels them, a conclusion leaves them abandoned.
5. After its end, a context takes no more reasoning. After a cancel it still takes one conclusion, which says how it
   ended. Everything that is not reasoning is taken as before: a response to an earlier request, a chat about it. So is
   a summary by the gateway (a thought that compresses others), because it is not reasoning of the gateway's own.
6. Names are unique: a start must not have the id of another message, or open what was opened before.
7. Everyone may contribute to a context, unless the space is `owner_only`: then only its starter sends steps,
   conclusions and nested starts. Everyone may cancel.
8. A chat or response outside of the context is its answer if its owner sent it and it correlates to the start, the
   label or the trigger of the start. A proposal or request that does so is linked. The final answer is the first one
   after the end, or else the last one before it.
9. A participant has at most `max_open` open contexts.
10. A context that was started with a template takes its steps (`payload.step`) in the template's order.
11. A context whose start names recipients has an audience: its starter and these. So has everything in it: an envelope
    there that names no recipients is for the audience, only the audience contributes, and no other recipient can be
    named. For all others it does not exist. A nested start may name fewer. Its starter adds participants by a
    `reasoning/share`, which the audience, old and new, receives; they see what follows.

Moves that `MOVES` calls wrong, and violations of rules 6 and 10, are refused (`strict`), flagged (`flag`) or ignored
(`off`). Rules 7, 9 and 11 and the limits of paths always refuse. A refused envelope changes nothing. An accepted one
changes the state in the same way in every mode, so `replay` of the envelopes gives the state again.

The tables are in `reasoning`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ..errors import ErrorInfo
from ..unicode import did_you_mean
from . import context, kinds
from .envelope import GATEWAY, Envelope, EnvelopeError, Flag, Sees, is_id, refuse, sees_as
from .reasoning import (
    NO_NAMES,
    OTHER_SPACE_PREFIX,
    ContextPlace,
    ContextStatus,
    ContextTable,
    EndedContext,
    LifecycleEffect,
    LifecycleState,
    NameSet,
    ReasoningContext,
    reasoning_references,
)

Mode: TypeAlias = Literal["strict", "flag", "off"]
Standing: TypeAlias = Literal["unseen", "implicit", "open", "stopped", "closed"]
Move: TypeAlias = Literal["open", "nest", "imply", "stay", "conclude", "cancel", "share", "close", "wrong", "late"]

MAX_LISTED_NAMES = 8
"""Maximum number of names that an error lists."""


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Rules of one space."""

    mode: Mode = "strict"
    owner_only: bool = False
    has_audiences: bool = True
    """Whether rule 11 holds. It does not where addresses are advisory."""
    templates: Mapping[str, tuple[str, ...]] = {}
    """The names of each template's steps, in order."""
    max_open: int = 64
    """Maximum number of open contexts of one participant."""
    idle_ms: int | None = 30 * 60 * 1000
    """Milliseconds of silence after which a context is due to be abandoned. None: never."""
    max_implicit: int = 1_000
    max_ended: int = 10_000
    max_ids: int = 20_000
    """Maximum numbers of implicit contexts, ended contexts and ids that are remembered for the space."""

    def steps_taken(self, template: str, step: Any, already_taken: int) -> int:
        """Return how many of the template's steps are taken after one that names `step`."""
        steps = self.templates.get(template, ())
        return max(already_taken, steps.index(step) + 1) if isinstance(step, str) and step in steps else already_taken


class LifecycleCase(NamedTuple):
    """An envelope, classified against the state."""

    act: kinds.Act
    path: str | None
    """Its context. None: the main conversation."""
    standing: Standing
    nearest: ReasoningContext | None
    """The context at that path, or the nearest around it."""
    nearest_started: ReasoningContext | None
    """The nearest context that has a start: its owner is the owner of the reasoning."""
    private: ReasoningContext | None
    """The nearest context that has an audience."""
    move: Move
    opens: str | None
    """The path that the envelope opens."""


class CheckedEnvelope(NamedTuple):
    """An envelope that may be applied."""

    case: LifecycleCase
    flags: tuple[Flag, ...]
    """Remarks about it."""


_ACTS: tuple[kinds.Act, ...] = ("start", "step", "conclusion", "cancel", "share", "message")
_MOVES: dict[Standing, tuple[Move, ...]] = {
    "unseen": ("open", "imply", "wrong", "wrong", "wrong", "imply"),
    "implicit": ("open", "stay", "conclude", "cancel", "share", "stay"),
    "open": ("nest", "stay", "conclude", "cancel", "share", "stay"),
    "stopped": ("wrong", "wrong", "close", "wrong", "wrong", "late"),
    "closed": ("wrong", "wrong", "wrong", "wrong", "wrong", "late"),
}
MOVES = {standing: dict(zip(_ACTS, moves, strict=True)) for standing, moves in _MOVES.items()}
"""The move for each standing of a context (left) and act of an envelope. `stopped`: one conclusion may still come."""

MAX_TRIGGERS = 16
"""How many of the ids to which a start correlates are remembered as its triggers."""
MAX_AUDIENCE = 1_000
"""Maximum number of participants in the audience of a context."""


class Lifecycle:
    """The contexts of one space. `state` can be stored and passed in again."""

    def __init__(self, settings: LifecycleSettings | None = None, state: LifecycleState | None = None) -> None:
        self.settings = chosen = settings or LifecycleSettings()
        self.state = state if state is not None else LifecycleState()
        self.contexts = ContextTable(
            self.state, max_implicit=chosen.max_implicit, max_ended=chosen.max_ended, max_ids=chosen.max_ids
        )

    def check(
        self, envelope: Envelope, known: NameSet = NO_NAMES, sees: Sees | None = None
    ) -> CheckedEnvelope | ErrorInfo:
        """Classify the next envelope, or return why it is refused. Changes nothing.

        Args:
            envelope: The envelope.
            known: Which of the names from `unknown_names` are those of older envelopes, and of contexts that ended.
                The audience of one that had one is not remembered, so nothing is accepted there.
            sees: What its sender may read. None: what is for it and for everyone.
        """
        try:
            case = self._classify(envelope)
        except EnvelopeError as failure:
            return failure.info
        if (error := self._forbidden_error(envelope, case, sees or sees_as(envelope.sender))) is not None:
            return error
        if case.path and self.settings.has_audiences:
            for path in (case.path, *context.ancestors(case.path)):
                if path in known.private_paths and self.contexts.get(path) is None:
                    return _forgotten_error(path)
        flags: list[Flag] = []
        if self.settings.mode != "off":
            checked = case
            if case.path and case.nearest is None and not known.paths.isdisjoint((case.path, context.root(case.path))):
                checked = case._replace(standing="closed", move=MOVES["closed"][case.act])
            if (error := self._rule_error(envelope, checked, known.ids)) is not None:
                if self.settings.mode == "strict":
                    return error
                flags.append(Flag(error.code or "lifecycle", error.message))
            flags += self._flags(envelope, checked, known.ids)
        return CheckedEnvelope(case, tuple(flags))

    def replay(self, envelope: Envelope, time_ms: int) -> LifecycleEffect:
        """Apply an envelope that was accepted before. Nothing is refused or flagged. Arguments as for `apply`."""
        try:
            case = self._classify(envelope)
        except EnvelopeError:
            return LifecycleEffect()
        return self.apply(envelope, case, time_ms)

    def ends(self, envelope: Envelope) -> bool:
        """Check whether the next envelope ends a context that a start opened, or concludes it after a cancel.

        An implicit context ends by silence.
        """
        if kinds.kind_of(envelope.kind).act not in ("conclusion", "cancel"):
            return False
        try:
            case = self._classify(envelope)
        except EnvelopeError:
            return False
        return case.move in ("conclude", "cancel", "close") and case.nearest is not None and not case.nearest.implicit

    def unknown_names(self, envelope: Envelope) -> NameSet:
        """Return the names that only the history knows, for `check`."""
        ids = {name for name in referenced_ids(envelope) if not self.contexts.knows(name)}
        if envelope.kind == kinds.START and not self.contexts.knows(envelope.id):
            ids.add(envelope.id)
        paths: set[str] = set()
        if envelope.context is not None:
            path = self.contexts.resolve(envelope.context)
            paths = {one for one in (path, *context.ancestors(path)) if self.contexts.get(one) is None}
        return NameSet(frozenset(ids), frozenset(paths))

    def due(self, now: int) -> tuple[ReasoningContext, ...]:
        """Return the contexts that fell silent. The gateway abandons each by a cancel, an envelope like any other.

        None of them stands inside another one, because the end of the outer context ends the inner one.

        Args:
            now: The time, in milliseconds since 1970.
        """
        idle_ms = self.settings.idle_ms
        if idle_ms is None:
            return ()
        return _outermost(record for record in self.state.open.values() if now - record.active >= idle_ms)

    def left_open_by(self, participant: str) -> tuple[ReasoningContext, ...]:
        """Return the contexts that an absent participant left open. They are abandoned like those that are due."""
        return _outermost(self.state.open[path] for path in self.contexts.open_of(participant))

    # Classification.

    def _classify(self, envelope: Envelope) -> LifecycleCase:
        act = kinds.kind_of(envelope.kind).act
        if act == "step" and envelope.sender == GATEWAY:
            act = "message"
        if envelope.context is None:
            if act != "start":
                stays = act == "message" or envelope.context_operation is not None
                return LifecycleCase(act, None, "unseen", None, None, None, "stay" if stays else "wrong", None)
            opens = context.child(None, envelope.id, "id") if context.is_segment(envelope.id) else None
            return LifecycleCase(act, None, "unseen", None, None, None, "open" if opens else "wrong", opens)
        path = self.contexts.resolve(envelope.context)
        nearest = self.contexts.get(path)
        if nearest is None:
            context.parse(path)
        standing, nearest = self._standing(path, nearest)
        started = next((one for one in (nearest, *self.contexts.enclosing(path)) if one and not one.implicit), None)
        opens = None
        if act == "start":
            opens = path if standing in ("unseen", "implicit") else context.child(path, envelope.id)
        private = self.contexts.audience(path)
        return LifecycleCase(act, path, standing, nearest, started, private, MOVES[standing][act], opens)

    def _standing(self, path: str, record: ReasoningContext | None) -> tuple[Standing, ReasoningContext | None]:
        if record is not None:
            if record.status != "open":
                return ("stopped" if record.awaits_conclusion else "closed"), record
            return ("implicit" if record.implicit else "open"), record
        enclosing = next(self.contexts.enclosing(path), None)
        return ("closed" if enclosing is not None and enclosing.status != "open" else "unseen"), enclosing

    # Effects.

    def apply(self, envelope: Envelope, case: LifecycleCase, time_ms: int) -> LifecycleEffect:
        """Apply an envelope that was just checked.

        Args:
            envelope: The envelope.
            case: How `check` classified it.
            time_ms: When the gateway received it, in milliseconds since 1970.
        """
        ended: tuple[EndedContext, ...] = ()
        links = self._link(envelope, case)
        owned = case.nearest_started or case.nearest
        place = (
            ContextPlace(case.path, "step", owned.owner if owned else envelope.sender) if case.path else ContextPlace()
        )
        if case.opens is not None:
            self._open(envelope, case.opens, time_ms)
            place = ContextPlace(case.opens, "opens", envelope.sender)
        elif case.move == "imply" and case.path is not None:
            self.contexts.add(ReasoningContext(path=case.path, owner=envelope.sender, opened=time_ms, active=time_ms))
            place = ContextPlace(case.path, "opens", place.owner)
        elif case.move in ("conclude", "cancel") and case.nearest is not None:
            ended = self._end(envelope, case.nearest, case.move)
            place = ContextPlace(case.path, "ends", place.owner)
        elif case.move == "close" and case.nearest is not None:
            case.nearest.awaits_conclusion = False
        elif case.move == "share" and case.private is not None:
            case.private.audience = tuple(dict.fromkeys((*case.private.audience, *added_participants(envelope))))
        elif case.nearest is not None and case.nearest.template is not None:
            case.nearest.step = self.settings.steps_taken(
                case.nearest.template, envelope.payload.get("step"), case.nearest.step
            )
        if case.path is not None:
            self.contexts.touch(case.path, time_ms)
        self.contexts.remember(envelope)
        audience = case.private.audience if case.private is not None else ()
        return LifecycleEffect(place=place, ended=ended, links=links, audience=audience)

    def _open(self, envelope: Envelope, path: str, time_ms: int) -> None:
        named, template = envelope.payload.get("triggered_by"), envelope.payload.get("template")
        triggers = envelope.correlation_id[:MAX_TRIGGERS]
        if not triggers and isinstance(named, str) and is_id(named):
            triggers = (named,)
        self.contexts.add(
            ReasoningContext(
                path=path,
                owner=envelope.sender,
                start=envelope.id,
                triggers=triggers,
                audience=tuple(dict.fromkeys((envelope.sender, *envelope.to))) if envelope.to else (),
                template=template if isinstance(template, str) and template in self.settings.templates else None,
                opened=time_ms,
                active=time_ms,
            )
        )

    def _end(self, envelope: Envelope, record: ReasoningContext, move: Move) -> tuple[EndedContext, ...]:
        status: ContextStatus = "concluded"
        if envelope.sender == GATEWAY:
            status = "abandoned"
        elif move == "cancel" or envelope.payload.get("cancelled") is True:
            status = "cancelled"
        inner_status: ContextStatus = "cancelled" if status == "cancelled" else "abandoned"
        ended = [EndedContext(record.path, status)]
        for other in self.contexts.open_inside(record.path):
            self.contexts.end(other, inner_status, envelope.id, awaits_conclusion=True)
            ended.append(EndedContext(other.path, inner_status))
        self.contexts.end(record, status, envelope.id, awaits_conclusion=move == "cancel")
        return tuple(ended)

    def _link(self, envelope: Envelope, case: LifecycleCase) -> tuple[str, ...]:
        """Link the envelope to the contexts that it answers or comes out of (rule 8)."""
        link = kinds.kind_of(envelope.kind).link
        if link is None:
            return ()
        links: list[str] = []
        for name in envelope.correlation_id:
            for record in (self.contexts.by_name(name), self.contexts.by_trigger(envelope.sender, name)):
                if record is None or record.owner != envelope.sender or record.path in links:
                    continue
                if context.is_within(case.path, record.path):
                    continue
                links.append(record.path)
                if link == "answer" and not record.answered_after_end:
                    record.answer = envelope.id
                    record.answered_after_end = record.status != "open"
                break
        return tuple(links)

    # Checks. They change nothing.

    def _forbidden_error(self, envelope: Envelope, case: LifecycleCase, sees: Sees) -> ErrorInfo | None:
        """Return the violation of a rule that holds in every mode, or None."""
        started, sender = case.nearest_started, envelope.sender
        if self.settings.has_audiences and (error := self._audience_error(envelope, case, sees)) is not None:
            return error
        if (
            self.settings.owner_only
            and started is not None
            and started.owner != sender
            and case.act not in ("message", "cancel")
        ):
            return refuse(
                "owner_only",
                f"context {started.path!r} is {started.owner!r}'s, and only its starter may reason in it here; "
                "reason in a context of your own, or send a chat",
                kind="forbidden",
                param="context",
            )
        if case.opens and self.contexts.count_open_of(sender) >= self.settings.max_open:
            return refuse(
                "too_many_contexts",
                f"{sender!r} has {self.settings.max_open} contexts open, the maximum: conclude or cancel one first",
                kind="too_many_requests",
                param="context",
            )
        return None

    def _audience_error(self, envelope: Envelope, case: LifecycleCase, sees: Sees) -> ErrorInfo | None:
        """Return the violation of rule 11, or None."""
        private, sender = case.private, envelope.sender
        if private is None:
            if case.move == "share":
                return refuse(
                    "no_audience", f"context {case.path!r} is for everyone, and needs no addition", param="context"
                )
            return None
        if sender != GATEWAY and sender not in private.audience:
            if not sees(private.audience):
                return _unknown_context_error(envelope, envelope.context)
            return refuse(
                "not_in_audience",
                f"context {private.path!r} was opened for others; only {private.owner!r} can add you, with "
                f"{kinds.SHARE}",
                kind="forbidden",
                param="context",
            )
        allowed, named, param = private.audience, envelope.to, "to"
        if case.move == "share":
            if sender != private.owner:
                return refuse(
                    "not_owner",
                    f"context {private.path!r} is {private.owner!r}'s, who alone adds participants to its audience",
                    kind="forbidden",
                    param="context",
                )
            if envelope.to:
                return refuse(
                    "invalid_value", f"to: a {kinds.SHARE} is for the whole audience; leave it out", param="to"
                )
            added = added_participants(envelope)
            if len({*private.audience, *added}) > MAX_AUDIENCE:
                return refuse(
                    "too_many_participants",
                    f"an audience has at most {MAX_AUDIENCE} participants; a context without `to` is for everyone",
                    param="payload.participants",
                )
            outer = self.contexts.audience(parent) if (parent := context.parent(private.path)) is not None else None
            if outer is None:
                return None
            private, allowed, named, param = outer, outer.audience, added, "payload.participants"
        if outside := [one for one in named if one not in allowed and one != GATEWAY]:
            return refuse(
                "not_in_audience",
                f"{param}: {_join_names(outside)} {'is' if len(outside) == 1 else 'are'} not in the audience of "
                f"context {private.path!r}; {private.owner!r} can add participants with {kinds.SHARE}",
                kind="forbidden",
                param=param,
            )
        return None

    def _rule_error(self, envelope: Envelope, case: LifecycleCase, known_ids: Collection[str]) -> ErrorInfo | None:
        """Return the violation of the table of moves, or of the rules of names and templates, or None."""
        if case.move == "wrong":
            return _misplaced_error(envelope, case)
        if case.opens is not None:
            return self._name_taken_error(envelope, case.opens, known_ids) or self._unknown_template_error(envelope)
        return self._step_order_error(envelope, case) if case.act == "step" else None

    def _flags(self, envelope: Envelope, case: LifecycleCase, known_ids: Collection[str]) -> list[Flag]:
        """Return remarks about an envelope that is accepted.

        Everyone who may read the envelope sees them, so they quote nothing from other envelopes.
        """
        flags: list[Flag] = []
        if unknown := [
            name for name in referenced_ids(envelope) if not (self.contexts.knows(name) or name in known_ids)
        ]:
            flags.append(Flag("unknown_reference", f"nothing in this space is called {_join_names(unknown)}"))
        if case.move == "imply" and case.act == "step" and case.nearest_started is None:
            flags.append(Flag("not_started", f"no start opened context {case.path!r}: it is an implicit one"))
        if case.move == "late":
            flags.append(Flag("after_end", f"context {case.path!r} has ended"))
        record = case.nearest
        if case.move in ("conclude", "close") and record is not None and not record.implicit:
            if record.owner != envelope.sender:
                flags.append(
                    Flag("not_owner", f"context {record.path!r} is concluded by a participant who is not its owner")
                )
            audience = self.contexts.audience(record.path)
            # Those with an audience of their own do not exist for others.
            open_inside = [
                one for one in self.contexts.open_inside(record.path) if self.contexts.audience(one.path) is audience
            ]
            if case.move == "conclude" and (left := len(open_inside)):
                inside = "a context inside it is" if left == 1 else f"{left} contexts inside it are"
                flags.append(Flag("left_open", f"{inside} not concluded before it"))
            steps = self.settings.templates.get(record.template or "", ())
            if missing := steps[record.step :]:
                flags.append(
                    Flag(
                        "steps_missing",
                        f"steps of the template {record.template!r} that were not taken: {_join_names(missing)}",
                    )
                )
        return flags

    def _name_taken_error(self, envelope: Envelope, opens: str, known_ids: Collection[str]) -> ErrorInfo | None:
        for name in (opens, envelope.id):
            if self.contexts.by_name(name) is not None:
                return refuse(
                    "id_conflict",
                    f"{name!r} already means another context: a start needs an id and a label that are new in "
                    "this space",
                    param="id" if name == envelope.id else "context",
                )
        if envelope.id in self.contexts.state.recent or envelope.id in known_ids:
            return refuse(
                "id_conflict",
                f"id {envelope.id!r} belongs to another message, and the id of a start names its context: use one that "
                "is new in this space",
                param="id",
            )
        return None

    def _unknown_template_error(self, envelope: Envelope) -> ErrorInfo | None:
        name = envelope.payload.get("template")
        if not isinstance(name, str) or name in self.settings.templates:
            return None
        return refuse(
            "unknown_template",
            f"this space has no template {name!r}; {did_you_mean(name, self.settings.templates)}",
            param="payload.template",
        )

    def _step_order_error(self, envelope: Envelope, case: LifecycleCase) -> ErrorInfo | None:
        record, named = case.nearest, envelope.payload.get("step")
        steps = self.settings.templates.get(record.template or "", ()) if record is not None else ()
        if record is None or not steps or not isinstance(named, str):
            return None
        if named not in steps:
            return refuse(
                "unknown_step",
                f"{named!r} is not a step of the template {record.template!r}, whose steps are {', '.join(steps)}",
                param="payload.step",
            )
        # The last step may be taken again, because a step may have more than one thought.
        if steps.index(named) + 1 not in (record.step, record.step + 1):
            due = " or ".join(repr(step) for step in steps[max(record.step - 1, 0) : record.step + 1])
            return refuse(
                "step_out_of_order",
                f"{named!r} is not the next step of the template {record.template!r}: {due} is",
                param="payload.step",
            )
        return None


def _outermost(records: Iterable[ReasoningContext]) -> tuple[ReasoningContext, ...]:
    """Leave out the contexts that stand inside another one of them."""
    chosen = {record.path: record for record in records}
    return tuple(
        record for path, record in chosen.items() if not any(above in chosen for above in context.ancestors(path))
    )


def added_participants(envelope: Envelope) -> tuple[str, ...]:
    """Return the participants that a `reasoning/share` adds to an audience."""
    added = envelope.payload.get("participants")
    return tuple(one for one in added if is_id(one)) if isinstance(added, list | tuple) else ()


def referenced_ids(envelope: Envelope) -> tuple[str, ...]:
    """Return the ids of this space that reasoning builds on or summarises (`references`, `metadata.compresses`)."""
    return tuple(
        name
        for how, name in reasoning_references(envelope)
        if how != "trigger" and not name.startswith(OTHER_SPACE_PREFIX)
    )


def _misplaced_error(envelope: Envelope, case: LifecycleCase) -> ErrorInfo:
    if case.path is None and case.act == "start":
        return refuse(
            "invalid_context",
            f"id {envelope.id!r} cannot name the context that this start opens; use letters, digits, '-' and '_', "
            "or name a context in `context`",
            param="id",
        )
    if case.path is None:
        return refuse(
            "context_required",
            f"a {envelope.kind} needs a context: set `context` to the id of its start",
            param="context",
        )
    if case.standing == "unseen":
        return _unknown_context_error(envelope, case.path)
    record = case.nearest
    what = f"{record.path!r} was {record.status}" if record is not None else f"{case.path!r} has ended"
    but = ", and only one conclusion may still follow" if case.standing == "stopped" else ""
    return refuse(
        "context_ended", f"context {what}{but}: a new {kinds.START} outside of it opens another", param="context"
    )


def _unknown_context_error(envelope: Envelope, path: str | None) -> ErrorInfo:
    return refuse(
        "context_unknown",
        f"no context is open at {path!r}: a {envelope.kind} needs a context that a {kinds.START} opened",
        kind="not_found",
        param="context",
    )


def _forgotten_error(path: str) -> ErrorInfo:
    return refuse(
        "context_ended",
        f"context {path!r} was for some participants alone, and ended so long ago that they are not remembered: open "
        "another one",
        param="context",
    )


def _join_names(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
    return ", ".join(repr(name) for name in names[:MAX_LISTED_NAMES]) + more
