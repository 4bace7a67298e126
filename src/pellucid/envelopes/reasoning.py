"""The stored state of a space's contexts, and the effect of one envelope on them (`LifecycleEffect`).

`LifecycleState` has one `ReasoningContext` for each context. It is plain data: it can be compared, and goes through
JSON unchanged. `ContextTable` adds indexes that can be derived from it, by name and by trigger. The rules of the life
cycle are in `lifecycle`.

All tables are bounded: the oldest ended contexts, implicit contexts and ids are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from . import context
from .envelope import Envelope

ContextStatus: TypeAlias = Literal["open", "concluded", "cancelled", "abandoned"]


class ReasoningContext(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The state of one context: who started it and why, whether it is open, and what ended it."""

    path: str
    owner: str
    """Who started it. For an implicit context, who wrote in it first."""
    start: str | None = None
    """Id of its start. None: it is implicit, no start opened it."""
    status: ContextStatus = "open"
    triggers: tuple[str, ...] = ()
    """Ids of the envelopes for which it was started, from its start."""
    opened: int
    """Milliseconds since 1970, like `active`: the time of the last envelope in it or under it."""
    active: int
    ended_by: str | None = None
    """Id of the envelope that ended it."""
    awaits_conclusion: bool = False
    """Whether it was cancelled or abandoned, and one conclusion may still follow."""
    audience: tuple[str, ...] = ()
    """Its starter, the recipients of its start, and participants who were added. Empty: the audience of the context
    around it, or everyone."""
    template: str | None = None
    step: int = 0
    """Number of the template's steps that were taken."""
    answer: str | None = None
    """Id of its final answer. Until the context has ended, a later answer replaces an earlier one."""
    answered_after_end: bool = False

    @property
    def implicit(self) -> bool:
        """Whether no start opened it."""
        return self.start is None


class LifecycleState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The whole state of a `Lifecycle`. Each table is in the order of time, the oldest first."""

    open: dict[str, ReasoningContext] = {}
    implicit: dict[str, ReasoningContext] = {}
    ended: dict[str, ReasoningContext] = {}
    recent: dict[str, int] = {}
    """Ids of the latest accepted envelopes, with their sequence numbers."""


class ContextTable:
    """The tables of a `LifecycleState`, with indexes."""

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
        """Return the context at a path, with any status."""
        state = self.state
        return state.open.get(path) or state.implicit.get(path) or state.ended.get(path)

    def by_name(self, name: str) -> ReasoningContext | None:
        """Return the context with this path, label, or id of its start.

        Implicit contexts have only their path and are not returned.
        """
        path = self._names.get(name, name)
        return self.state.open.get(path) or self.state.ended.get(path)

    def by_trigger(self, owner: str, trigger: str) -> ReasoningContext | None:
        """Return the context that the owner started for a trigger."""
        path = self._triggers.get((owner, trigger))
        return None if path is None else self.get(path)

    def open_of(self, participant: str) -> tuple[str, ...]:
        """Return the paths of the participant's open contexts, the oldest first."""
        own_paths = self._open_of.get(participant, ())
        return tuple(path for path in self.state.open if path in own_paths) if own_paths else ()

    def count_open_of(self, participant: str) -> int:
        return len(self._open_of.get(participant, ()))

    def knows(self, name: str) -> bool:
        """Check whether a remembered envelope or context has this id or name."""
        return name in self.state.recent or self.get(self.resolve(name)) is not None

    def resolve(self, written: str) -> str:
        """Return the path that a `context` field means.

        The id of a start means the context that it opened, wherever that is.
        """
        if self.get(written) is not None:
            return written
        for prefix in (written, *context.ancestors(written)):
            if (path := self._names.get(prefix)) is not None:
                return path + written[len(prefix) :]
            if self.get(prefix) is not None:
                break
        return written

    def enclosing(self, path: str) -> Iterator[ReasoningContext]:
        """Yield the contexts around the path, the nearest first."""
        for ancestor in context.ancestors(path):
            if (record := self.get(ancestor)) is not None:
                yield record

    def open_inside(self, path: str) -> list[ReasoningContext]:
        """Return the open contexts under the path, without itself, the outermost first."""
        inside = path + "/"
        return [record for key, record in self.state.open.items() if key.startswith(inside)]

    def audience(self, path: str) -> ReasoningContext | None:
        """Return the context whose audience everything at the path has; None if it is for everyone."""
        return next((one for one in (self.get(path), *self.enclosing(path)) if one is not None and one.audience), None)

    # Changes.

    def add(self, new: ReasoningContext) -> None:
        """Add a context. One with the same path is replaced."""
        self._drop(new.path)
        if new.implicit:
            self.state.implicit[new.path] = new
            if len(self.state.implicit) > self.max_implicit:
                del self.state.implicit[next(iter(self.state.implicit))]
        else:
            self.state.open[new.path] = new
            self._index(new)

    def touch(self, path: str, time_ms: int) -> None:
        """Record activity in `path` at the time `at` (milliseconds since 1970)."""
        for key in (path, *context.ancestors(path)):
            if (record := self.state.open.get(key)) is not None:
                record.active = max(record.active, time_ms)
            elif (record := self.state.implicit.pop(key, None)) is not None:
                record.active = max(record.active, time_ms)
                self.state.implicit[key] = record

    def end(self, record: ReasoningContext, status: ContextStatus, by: str, *, awaits_conclusion: bool) -> None:
        """Move a context to the ended ones.

        Args:
            record: The context.
            status: Its final status.
            by: Id of the envelope that ended it.
            awaits_conclusion: Whether one conclusion may still follow.
        """
        self.state.open.pop(record.path, None)
        self.state.implicit.pop(record.path, None)
        self._remove_open(record)
        record.status, record.ended_by, record.awaits_conclusion = status, by, awaits_conclusion
        self.state.ended[record.path] = record
        for key in [key for key in self.state.implicit if context.is_within(key, record.path)]:
            del self.state.implicit[key]
        if len(self.state.ended) > self.max_ended:
            # Those with an audience last: what is said about them later is still for that audience.
            ended = self.state.ended
            public = (path for path, one in ended.items() if not one.audience and one is not record)
            self._drop(next(public, next(iter(ended))))

    def remember(self, envelope: Envelope) -> None:
        """Remember the id of an accepted envelope."""
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
            # A context inside the triggered one belongs to it, and does not replace it.
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
    """Return the names of a context besides its path.

    They are the id of its start, alone and after a label (`reason-123/msg-7`).
    """
    if record.start is None or context.leaf(record.path) == record.start:
        return () if record.start in (None, record.path) else (record.start,)
    return (record.start, f"{record.path}/{record.start}")


# --- the result for one envelope


Role: TypeAlias = Literal["main", "opens", "step", "ends"]


class ContextPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """The context of an envelope and its role there. It is stored with the envelope, and views are derived from it."""

    path: str | None = None
    """The context; for a start, the one that it opens. None: the main conversation."""
    role: Role = "main"
    owner: str | None = None
    """Owner of the context."""


class EndedContext(msgspec.Struct, frozen=True):
    """A context that ended, with its final status."""

    path: str
    status: ContextStatus


class LifecycleEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of an accepted envelope on the contexts: its place, and what it ended and answers."""

    place: ContextPlace = ContextPlace()
    ended: tuple[EndedContext, ...] = ()
    """The contexts that it ended, the outermost first."""
    links: tuple[str, ...] = ()
    """Paths of the contexts that it comes out of: it is their answer, or they led to it."""
    audience: tuple[str, ...] = ()
    """The audience of its context. Empty: everyone."""


class NameSet(msgspec.Struct, frozen=True):
    """Names to look up: ids of envelopes, and paths of contexts."""

    ids: frozenset[str] = frozenset()
    paths: frozenset[str] = frozenset()
    private_paths: frozenset[str] = frozenset()
    """Paths that stand for contexts with an audience."""


NO_NAMES = NameSet()


# --- references


ReferenceType: TypeAlias = Literal["correlation", "trigger", "reference", "compresses"]
"""How an envelope refers to another one: by `correlation_id`, `triggered_by`, `references`, `metadata.compresses`."""

OTHER_SPACE_PREFIX = "space:"
"""Begins the name of an envelope of another space: `space:NAME/ID`."""


def reasoning_references(envelope: Envelope) -> Iterator[tuple[ReferenceType, str]]:
    """Yield the names to which the payload of an envelope of reasoning refers, as they are written."""
    if envelope.family != "reasoning":
        return
    payload, metadata = envelope.payload, envelope.payload.get("metadata")
    listed: tuple[tuple[ReferenceType, Any], ...] = (
        ("trigger", payload.get("triggered_by")),
        ("reference", payload.get("references")),
        ("compresses", metadata.get("compresses") if isinstance(metadata, dict) else None),
    )
    for how, value in listed:
        for name in value if isinstance(value, list | tuple) else [value]:
            if isinstance(name, str):
                yield how, name
