"""What is remembered of the contexts of a space: one `ReasoningContext` each, and the names under which it is found; and what
a `Lifecycle` says of an envelope by it (`Verdict`).

`LifecycleState` is plain data: it compares, and goes through JSON and back unchanged. What can be worked out from it (names,
triggers) is kept beside it in `Contexts`. The rules of what may happen to a context are `lifecycle`'s.

Nothing grows without bound: of contexts that ended, of those that nobody started, and of ids, the oldest are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from ..errors import ErrorInfo
from . import context
from .envelope import Envelope, Flag

Status: TypeAlias = Literal["open", "concluded", "cancelled", "abandoned"]


class ReasoningContext(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One context of reasoning."""

    path: str
    owner: str
    """Who started it; of an implicit one, who first spoke in it."""
    start: str | None = None
    """The id of its start. None: it is implicit, nobody started it."""
    status: Status = "open"
    triggers: tuple[str, ...] = ()
    """What it was started for, as its start says."""
    opened: int
    """Milliseconds since 1970, as `active`: when something last happened in it, or under it."""
    active: int
    ended_by: str | None = None
    """The id of what ended it."""
    awaits_conclusion: bool = False
    """It was stopped (cancelled or abandoned), and may still say how it ended, once."""
    template: str | None = None
    step: int = 0
    """How many of the template's steps were taken."""
    answer: str | None = None
    """The id of its final answer. Until it has ended, a later one takes an earlier one's place."""
    answered_after_end: bool = False

    @property
    def implicit(self) -> bool:
        return self.start is None


class LifecycleState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that a `Lifecycle` knows. The order of each table is the order of time, the oldest first."""

    open: dict[str, ReasoningContext] = {}
    implicit: dict[str, ReasoningContext] = {}
    ended: dict[str, ReasoningContext] = {}
    recent: dict[str, int] = {}
    """The ids of what was accepted last, with their sequence numbers."""


class ContextTable:
    """The tables of a `LifecycleState`, and what is found through them."""

    def __init__(self, state: LifecycleState, *, max_implicit: int, max_ended: int, max_ids: int) -> None:
        self.state = state
        self.max_implicit = max_implicit
        self.max_ended = max_ended
        self.max_ids = max_ids
        self._names: dict[str, str] = {}
        self._triggers: dict[tuple[str, str], str] = {}
        self._open_of: dict[str, set[str]] = {}
        known = (*state.ended.values(), *state.open.values())
        for record in sorted(known, key=lambda one: (one.opened, context.depth(one.path))):
            self._index(record)

    def get(self, path: str) -> ReasoningContext | None:
        state = self.state
        return state.open.get(path) or state.implicit.get(path) or state.ended.get(path)

    def by_name(self, name: str) -> ReasoningContext | None:
        """The one with that path, label, or id of a start. Not an implicit one: it has only its path."""
        path = self._names.get(name, name)
        return self.state.open.get(path) or self.state.ended.get(path)

    def by_trigger(self, owner: str, trigger: str) -> ReasoningContext | None:
        path = self._triggers.get((owner, trigger))
        return None if path is None else self.get(path)

    def open_of(self, participant: str) -> tuple[str, ...]:
        """The paths of the contexts that it has open, the oldest first."""
        own_paths = self._open_of.get(participant, ())
        return tuple(path for path in self.state.open if path in own_paths) if own_paths else ()

    def count_open_of(self, participant: str) -> int:
        return len(self._open_of.get(participant, ()))

    def knows(self, name: str) -> bool:
        """Whether something that is remembered has this id or name."""
        return name in self.state.recent or self.get(self.resolve(name)) is not None

    def resolve(self, written: str) -> str:
        """The path that a context means. A start's own id stands for the context that it opened, wherever that is."""
        if self.get(written) is not None:
            return written
        for prefix in (written, *context.ancestors(written)):
            if (path := self._names.get(prefix)) is not None:
                return path + written[len(prefix) :]
            if self.get(prefix) is not None:
                break
        return written

    def enclosing(self, path: str) -> Iterator[ReasoningContext]:
        """Those that it stands in, the nearest first."""
        for ancestor in context.ancestors(path):
            if (record := self.get(ancestor)) is not None:
                yield record

    def open_inside(self, path: str) -> list[ReasoningContext]:
        """The open ones inside it, without itself, the outermost first."""
        inside = path + "/"
        return [record for key, record in self.state.open.items() if key.startswith(inside)]

    # What changes.

    def add(self, new: ReasoningContext) -> None:
        self._drop(new.path)
        if new.implicit:
            self.state.implicit[new.path] = new
            if len(self.state.implicit) > self.max_implicit:
                del self.state.implicit[next(iter(self.state.implicit))]
        else:
            self.state.open[new.path] = new
            self._index(new)

    def touch(self, path: str, at: int) -> None:
        """Something happened in `path`."""
        for key in (path, *context.ancestors(path)):
            if (record := self.state.open.get(key)) is not None:
                record.active = max(record.active, at)
            elif (record := self.state.implicit.pop(key, None)) is not None:
                record.active = max(record.active, at)
                self.state.implicit[key] = record

    def end(self, record: ReasoningContext, status: Status, by: str, *, awaits_conclusion: bool) -> None:
        self.state.open.pop(record.path, None)
        self.state.implicit.pop(record.path, None)
        self._remove_open(record)
        record.status, record.ended_by, record.awaits_conclusion = status, by, awaits_conclusion
        self.state.ended[record.path] = record
        for key in [key for key in self.state.implicit if context.is_within(key, record.path)]:
            del self.state.implicit[key]
        if len(self.state.ended) > self.max_ended:
            self._drop(next(iter(self.state.ended)))

    def remember(self, envelope: Envelope) -> None:
        recent = self.state.recent
        recent.pop(envelope.id, None)
        recent[envelope.id] = envelope.seq
        if len(recent) > self.max_ids:
            del recent[next(iter(recent))]

    def _index(self, record: ReasoningContext) -> None:
        for name in _names_of(record):
            self._names[name] = record.path
        for trigger in record.triggers:
            first = self.by_trigger(record.owner, trigger)
            # A reasoning inside the one that was triggered is part of it.
            if first is None or not context.is_within(record.path, first.path):
                self._triggers[record.owner, trigger] = record.path
        if record.status == "open" and not record.implicit:
            self._open_of.setdefault(record.owner, set()).add(record.path)

    def _drop(self, path: str) -> None:
        state = self.state
        record = state.open.pop(path, None) or state.implicit.pop(path, None) or state.ended.pop(path, None)
        if record is None:
            return
        for name in _names_of(record):
            if self._names.get(name) == path:
                del self._names[name]
        for trigger in record.triggers:
            if self._triggers.get((record.owner, trigger)) == path:
                del self._triggers[record.owner, trigger]
        self._remove_open(record)

    def _remove_open(self, record: ReasoningContext) -> None:
        if own_paths := self._open_of.get(record.owner):
            own_paths.discard(record.path)
            if not own_paths:
                del self._open_of[record.owner]


def _names_of(record: ReasoningContext) -> tuple[str, ...]:
    """What else than its path means it: its start's id, alone and after a label (`reason-123/msg-7`)."""
    if record.start is None or context.leaf(record.path) == record.start:
        return () if record.start in (None, record.path) else (record.start,)
    return (record.start, f"{record.path}/{record.start}")


# --- what is said of an envelope


Role: TypeAlias = Literal["main", "opens", "step", "ends"]


class ContextPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an envelope belongs, and what it is there. Views are made of it: it is kept beside the envelope."""

    path: str | None = None
    """The context; of a start, the one that it opens. None: the main conversation."""
    role: Role = "main"
    owner: str | None = None
    """Whose reasoning it is."""


class EndedContext(msgspec.Struct, frozen=True):
    path: str
    status: Status


class LifecycleVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of an envelope, and of the contexts by it: where it belongs, what it ended and answers, and what is
    wrong with it."""

    place: ContextPlace = ContextPlace()
    error: ErrorInfo | None = None
    """Why it was refused."""
    flags: tuple[Flag, ...] = ()
    ended: tuple[EndedContext, ...] = ()
    """What it ended, the outermost first."""
    links: tuple[str, ...] = ()
    """The contexts that it comes out of: it is their answer, or something that they led to."""

    @property
    def accepted(self) -> bool:
        return self.error is None


class NameSet(msgspec.Struct, frozen=True):
    """Names that are to be looked up: ids of envelopes, and paths of contexts."""

    ids: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
