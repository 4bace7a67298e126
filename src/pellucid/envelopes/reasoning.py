"""What is remembered of the contexts of a space: one `Reasoning` each, and the names under which it is found; and what
a `Lifecycle` says of an envelope by it (`Verdict`).

`State` is plain data: it compares, and goes through JSON and back unchanged. What can be worked out from it (names,
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


class Reasoning(msgspec.Struct, kw_only=True, omit_defaults=True):
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


class State(msgspec.Struct, kw_only=True, omit_defaults=True):
    """All that a `Lifecycle` knows. The order of each table is the order of time, the oldest first."""

    open: dict[str, Reasoning] = {}
    implicit: dict[str, Reasoning] = {}
    ended: dict[str, Reasoning] = {}
    recent: dict[str, int] = {}
    """The ids of what was accepted last, with their sequence numbers."""


class Contexts:
    """The tables of a `State`, and what is found through them."""

    def __init__(self, state: State, *, max_implicit: int, max_ended: int, max_ids: int) -> None:
        self.state = state
        self.max_implicit = max_implicit
        self.max_ended = max_ended
        self.max_ids = max_ids
        self._names: dict[str, str] = {}
        self._triggers: dict[tuple[str, str], str] = {}
        self._open_of: dict[str, set[str]] = {}
        known = (*state.ended.values(), *state.open.values())
        for found in sorted(known, key=lambda one: (one.opened, context.depth(one.path))):
            self._index(found)

    def get(self, path: str) -> Reasoning | None:
        state = self.state
        return state.open.get(path) or state.implicit.get(path) or state.ended.get(path)

    def named(self, name: str) -> Reasoning | None:
        """The one with that path, label, or id of a start. Not an implicit one: it has only its path."""
        path = self._names.get(name, name)
        return self.state.open.get(path) or self.state.ended.get(path)

    def triggered(self, owner: str, trigger: str) -> Reasoning | None:
        path = self._triggers.get((owner, trigger))
        return None if path is None else self.get(path)

    def open_of(self, participant: str) -> tuple[str, ...]:
        """The paths of the contexts that it has open, the oldest first."""
        mine = self._open_of.get(participant, ())
        return tuple(path for path in self.state.open if path in mine) if mine else ()

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

    def above(self, path: str) -> Iterator[Reasoning]:
        """Those that it stands in, the nearest first."""
        for ancestor in context.ancestors(path):
            if (found := self.get(ancestor)) is not None:
                yield found

    def under(self, path: str) -> list[Reasoning]:
        """The open ones inside it, without itself, the outermost first."""
        inside = path + "/"
        return [found for key, found in self.state.open.items() if key.startswith(inside)]

    # What changes.

    def add(self, new: Reasoning) -> None:
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
            if (found := self.state.open.get(key)) is not None:
                found.active = max(found.active, at)
            elif (found := self.state.implicit.pop(key, None)) is not None:
                found.active = max(found.active, at)
                self.state.implicit[key] = found

    def end(self, found: Reasoning, status: Status, by: str, *, awaits_conclusion: bool) -> None:
        self.state.open.pop(found.path, None)
        self.state.implicit.pop(found.path, None)
        self._not_open(found)
        found.status, found.ended_by, found.awaits_conclusion = status, by, awaits_conclusion
        self.state.ended[found.path] = found
        for key in [key for key in self.state.implicit if context.is_within(key, found.path)]:
            del self.state.implicit[key]
        if len(self.state.ended) > self.max_ended:
            self._drop(next(iter(self.state.ended)))

    def remember(self, envelope: Envelope) -> None:
        recent = self.state.recent
        recent.pop(envelope.id, None)
        recent[envelope.id] = envelope.seq
        if len(recent) > self.max_ids:
            del recent[next(iter(recent))]

    def _index(self, found: Reasoning) -> None:
        for name in _names_of(found):
            self._names[name] = found.path
        for trigger in found.triggers:
            first = self.triggered(found.owner, trigger)
            # A reasoning inside the one that was triggered is part of it.
            if first is None or not context.is_within(found.path, first.path):
                self._triggers[found.owner, trigger] = found.path
        if found.status == "open" and not found.implicit:
            self._open_of.setdefault(found.owner, set()).add(found.path)

    def _drop(self, path: str) -> None:
        state = self.state
        found = state.open.pop(path, None) or state.implicit.pop(path, None) or state.ended.pop(path, None)
        if found is None:
            return
        for name in _names_of(found):
            if self._names.get(name) == path:
                del self._names[name]
        for trigger in found.triggers:
            if self._triggers.get((found.owner, trigger)) == path:
                del self._triggers[found.owner, trigger]
        self._not_open(found)

    def _not_open(self, found: Reasoning) -> None:
        if mine := self._open_of.get(found.owner):
            mine.discard(found.path)
            if not mine:
                del self._open_of[found.owner]


def _names_of(found: Reasoning) -> tuple[str, ...]:
    """What else than its path means it: its start's id, alone and after a label (`reason-123/msg-7`)."""
    if found.start is None or context.leaf(found.path) == found.start:
        return () if found.start in (None, found.path) else (found.start,)
    return (found.start, f"{found.path}/{found.start}")


# --- what is said of an envelope


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
    """What becomes of an envelope, and of the contexts by it: where it belongs, what it ended and answers, and what is
    wrong with it."""

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
