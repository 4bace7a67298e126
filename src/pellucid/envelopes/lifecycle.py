"""The life of a context of reasoning: what may be said in it, and what becomes of it by that.

    life = Lifecycle(LifecycleSettings())
    verdict = life.feed(envelope)             # of every envelope of the space, in order
    life.due(now)                             # the contexts that fell silent: the gateway cancels them

The rules:

1. A start opens one context. In an open context it nests: in `msg-301`, the start `msg-302` opens `msg-301/msg-302`.
   Anywhere else the context that it names is the label that it opens (`context: "reason-123"`), and a start in the main
   conversation opens the context of its own id. Whatever it opened, its id means that context too.
2. Whatever else stands in a context that nobody started makes it an implicit one, which ends by silence. A start with
   its name makes it a started one.
3. A context is open until it is concluded, cancelled or abandoned, which it then stays. A cancel by the gateway itself
   (a time-out, a disconnect) abandons; anybody else's cancels, and so does a conclusion that says `cancelled`.
4. What ends a context ends those inside it: a cancel cancels them, a conclusion leaves them abandoned.
5. After the end nobody thinks on. One conclusion is still heard after a cancel: it says how it ended. Anything that is
   not reasoning is heard as before: a response to what was asked in time, a word about it. So is the gateway's own
   account of what was thought (a thought that compresses others): it does not think.
6. Names are unique: no start has the id of another message, or opens what was opened before.
7. Anybody may contribute to a context, unless it is `owner_only`: then steps, conclusions and nested starts are its
   starter's alone. Anybody may cancel.
8. A chat or response outside of the context is its answer if its owner sent it and it correlates to the start, the
   label or what triggered the start. A proposal or request that does so is linked. The final answer is the first one
   after the end, or else the last one before it.
9. A participant has at most `max_open` contexts open.
10. A context that was started with a template takes its steps (`payload.step`) in the template's order.

What `MOVES` calls wrong, and what breaks rules 6 and 10, is refused (`strict`), flagged (`flag`) or not looked at
(`off`). Rules 7 and 9 and the limits of paths refuse always. What is refused changes nothing. What was accepted changes
the state alike in every mode, so that `replay` of the envelopes gives the state again.

Everything that moves a context is in this file; `judging` says what is wrong, `reasoning` keeps the tables.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from . import context, kinds
from .envelope import GATEWAY, Envelope, EnvelopeError, Flag
from .ids import is_id
from .judging import Case, LifecycleSettings, Move, Standing, forbidden, references, remarks, wrong
from .reasoning import Contexts, Reasoning, State, Status
from .verdict import Ended, Names, Place, Verdict

MOVES: dict[Standing, dict[kinds.Act, Move]] = {
    "unseen": {"start": "open", "step": "imply", "conclusion": "wrong", "cancel": "wrong", "word": "imply"},
    "implicit": {"start": "open", "step": "stay", "conclusion": "conclude", "cancel": "cancel", "word": "stay"},
    "open": {"start": "nest", "step": "stay", "conclusion": "conclude", "cancel": "cancel", "word": "stay"},
    "stopped": {"start": "wrong", "step": "wrong", "conclusion": "close", "cancel": "wrong", "word": "late"},
    "closed": {"start": "wrong", "step": "wrong", "conclusion": "wrong", "cancel": "wrong", "word": "late"},
}
"""What becomes of a context that stands so (left) by what is said in it. `stopped`: a conclusion may still come."""

MAX_TRIGGERS = 16
"""How many of the ids that a start correlates to are remembered as what triggered it."""


class Lifecycle:
    """The contexts of one space. `state` can be kept and handed in again."""

    def __init__(self, settings: LifecycleSettings | None = None, state: State | None = None) -> None:
        self.settings = mine = settings or LifecycleSettings()
        self.state = state if state is not None else State()
        self.contexts = Contexts(
            self.state, max_implicit=mine.max_implicit, max_ended=mine.max_ended, max_ids=mine.max_ids
        )

    def feed(
        self, envelope: Envelope, *, at: int | None = None, known: Container[str] = (), closed: Container[str] = ()
    ) -> Verdict:
        """What becomes of the next envelope.

        `at`: when the gateway took it, in milliseconds (else its own time, which is its sender's).
        `known`, `closed`: which of the names that `unknown` gave are ids of older envelopes, and contexts that ended.
        """
        try:
            case = self._case(envelope)
        except EnvelopeError as failure:
            return Verdict(error=failure.info)
        if (error := forbidden(envelope, case, self.settings, self.contexts)) is not None:
            return Verdict(error=error)
        flags: list[Flag] = []
        if self.settings.mode != "off":
            judged = case
            if (
                case.path
                and case.found is None
                and any(path in closed for path in (case.path, context.root(case.path)))
            ):
                judged = case._replace(standing="closed", move=MOVES["closed"][case.act])
            if (error := wrong(envelope, judged, self.settings, self.contexts, known)) is not None:
                if self.settings.mode == "strict":
                    return Verdict(error=error)
                flags.append(Flag(error.code or "lifecycle", error.message))
            flags += remarks(envelope, judged, self.settings, self.contexts, known)
        return self._apply(envelope, case, envelope.ts if at is None else at, tuple(flags))

    def replay(self, envelope: Envelope, *, at: int | None = None) -> Verdict:
        """What an envelope that was accepted did: nothing is refused or flagged."""
        try:
            case = self._case(envelope)
        except EnvelopeError:
            return Verdict()
        return self._apply(envelope, case, envelope.ts if at is None else at, ())

    def unknown(self, envelope: Envelope) -> Names:
        """The names that only the history can tell about, for `feed`'s `known` and `closed`."""
        ids = {name for name in references(envelope) if not self.contexts.knows(name)}
        if envelope.kind == kinds.START and not self.contexts.knows(envelope.id):
            ids.add(envelope.id)
        paths: set[str] = set()
        if envelope.context is not None:
            path = self.contexts.resolve(envelope.context)
            if self.contexts.get(path) is None and next(self.contexts.above(path), None) is None:
                paths = {path, context.root(path)}
        return Names(frozenset(ids), frozenset(paths))

    def due(self, now: int) -> tuple[Reasoning, ...]:
        """Those that fell silent. What abandons them is a cancel in each, by the gateway, fed like any envelope.

        None has another of them around it: that one's end is its end too.
        """
        idle = self.settings.idle
        if idle is None:
            return ()
        return _outermost(found for found in self.state.open.values() if now - found.active >= idle)

    def left(self, participant: str) -> tuple[Reasoning, ...]:
        """Those that a participant who is gone left open: to be abandoned like those that are due."""
        return _outermost(self.state.open[path] for path in self.contexts.open_of(participant))

    def open_of(self, participant: str) -> int:
        """How many contexts it has open."""
        return self.contexts.count_open_of(participant)

    # What an envelope means.

    def _case(self, envelope: Envelope) -> Case:
        act = kinds.kind_of(envelope.kind).act
        if act == "step" and envelope.sender == GATEWAY:
            act = "word"
        if envelope.context is None:
            if act != "start":
                stays = act == "word" or envelope.context_operation is not None
                return Case(act, None, "unseen", None, None, "stay" if stays else "wrong", None)
            opens = context.child(None, envelope.id, "id") if context.is_segment(envelope.id) else None
            return Case(act, None, "unseen", None, None, "open" if opens else "wrong", opens)
        path = self.contexts.resolve(envelope.context)
        found = self.contexts.get(path)
        if found is None:
            context.parse(path)
        standing, found = self._standing(path, found)
        started = next((one for one in (found, *self.contexts.above(path)) if one and not one.implicit), None)
        opens = None
        if act == "start":
            opens = path if standing in ("unseen", "implicit") else context.child(path, envelope.id)
        return Case(act, path, standing, found, started, MOVES[standing][act], opens)

    def _standing(self, path: str, own: Reasoning | None) -> tuple[Standing, Reasoning | None]:
        if own is not None:
            if own.status != "open":
                return ("stopped" if own.awaits_conclusion else "closed"), own
            return ("implicit" if own.implicit else "open"), own
        above = next(self.contexts.above(path), None)
        return ("closed" if above is not None and above.status != "open" else "unseen"), above

    # What it does.

    def _apply(self, envelope: Envelope, case: Case, at: int, flags: tuple[Flag, ...]) -> Verdict:
        ended: tuple[Ended, ...] = ()
        links = self._link(envelope, case)
        owned = case.started or case.found
        place = Place(case.path, "step", owned.owner if owned else envelope.sender) if case.path else Place()
        if case.opens is not None:
            self._open(envelope, case.opens, at)
            place = Place(case.opens, "opens", envelope.sender)
        elif case.move == "imply" and case.path is not None:
            self.contexts.add(Reasoning(path=case.path, owner=envelope.sender, opened=at, active=at))
            place = Place(case.path, "opens", place.owner)
        elif case.move in ("conclude", "cancel") and case.found is not None:
            ended = self._end(envelope, case.found, case.move)
            place = Place(case.path, "ends", place.owner)
        elif case.move == "close" and case.found is not None:
            case.found.awaits_conclusion = False
        elif case.found is not None and case.found.template is not None:
            case.found.step = self.settings.step_of(case.found.template, envelope.payload.get("step"), case.found.step)
        if case.path is not None:
            self.contexts.touch(case.path, at)
        self.contexts.remember(envelope)
        return Verdict(place=place, flags=flags, ended=ended, links=links)

    def _open(self, envelope: Envelope, path: str, at: int) -> None:
        named, template = envelope.payload.get("triggered_by"), envelope.payload.get("template")
        triggers = envelope.correlation_id[:MAX_TRIGGERS]
        if not triggers and isinstance(named, str) and is_id(named):
            triggers = (named,)
        self.contexts.add(
            Reasoning(
                path=path,
                owner=envelope.sender,
                start=envelope.id,
                triggers=triggers,
                template=template if isinstance(template, str) and template in self.settings.templates else None,
                opened=at,
                active=at,
            )
        )

    def _end(self, envelope: Envelope, found: Reasoning, move: Move) -> tuple[Ended, ...]:
        own: Status = "concluded"
        if envelope.sender == GATEWAY:
            own = "abandoned"
        elif move == "cancel" or envelope.payload.get("cancelled") is True:
            own = "cancelled"
        inner: Status = "cancelled" if own == "cancelled" else "abandoned"
        ended = [Ended(found.path, own)]
        for other in self.contexts.under(found.path):
            self.contexts.end(other, inner, envelope.id, awaits_conclusion=True)
            ended.append(Ended(other.path, inner))
        self.contexts.end(found, own, envelope.id, awaits_conclusion=move == "cancel")
        return tuple(ended)

    def _link(self, envelope: Envelope, case: Case) -> tuple[str, ...]:
        """Rule 8."""
        link = kinds.kind_of(envelope.kind).link
        if link is None:
            return ()
        links: list[str] = []
        for name in envelope.correlation_id:
            for found in (self.contexts.named(name), self.contexts.triggered(envelope.sender, name)):
                if found is None or found.owner != envelope.sender or found.path in links:
                    continue
                if context.is_within(case.path, found.path):
                    continue
                links.append(found.path)
                if link == "answer" and not found.answered_after_end:
                    found.answer = envelope.id
                    found.answered_after_end = found.status != "open"
                break
        return tuple(links)


def _outermost(several: Iterable[Reasoning]) -> tuple[Reasoning, ...]:
    """Without those that stand in another of them."""
    chosen = {found.path: found for found in several}
    return tuple(
        found for path, found in chosen.items() if not any(above in chosen for above in context.ancestors(path))
    )
