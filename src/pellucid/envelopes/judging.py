"""What is wrong with an envelope by the rules of `lifecycle`: the code, the sentence, and what would be right.

Nothing here changes a context.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ..errors import ErrorInfo, ErrorKind
from ..text import meant
from . import kinds
from .envelope import Envelope, Flag
from .reasoning import Contexts, Reasoning

Mode: TypeAlias = Literal["strict", "flag", "off"]
Standing: TypeAlias = Literal["unseen", "implicit", "open", "stopped", "closed"]
Move: TypeAlias = Literal["open", "nest", "imply", "stay", "conclude", "cancel", "close", "wrong", "late"]

TOLD = 8
"""How many names a sentence lists."""


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True):
    mode: Mode = "strict"
    owner_only: bool = False
    templates: Mapping[str, tuple[str, ...]] = {}
    """The names of each template's steps, in order."""
    max_open: int = 64
    """Contexts that one participant may have open."""
    idle: int | None = 30 * 60 * 1000
    """Milliseconds of silence after which a context is due to be abandoned. None: never."""
    max_implicit: int = 1_000
    max_ended: int = 10_000
    max_ids: int = 20_000
    """How many implicit contexts, ended contexts and ids are remembered, for the whole space."""

    def step_of(self, template: str, named: Any, before: int) -> int:
        """How many of the template's steps are behind whoever says that it is at `named`."""
        steps = self.templates.get(template, ())
        return max(before, steps.index(named) + 1) if isinstance(named, str) and named in steps else before


class Case(NamedTuple):
    """An envelope, held against the state."""

    act: kinds.Act
    path: str | None
    """Where it stands. None: in the main conversation."""
    standing: Standing
    found: Reasoning | None
    """That path's context, or the nearest above it."""
    started: Reasoning | None
    """The nearest that somebody started: whose reasoning it is."""
    move: Move
    opens: str | None
    """The path that it opens."""


def forbidden(envelope: Envelope, case: Case, settings: LifecycleSettings, contexts: Contexts) -> ErrorInfo | None:
    """What no mode lets pass."""
    started, sender = case.started, envelope.sender
    if settings.owner_only and started is not None and started.owner != sender and case.act not in ("word", "cancel"):
        return _refusal(
            "owner_only",
            f"context {started.path!r} is {started.owner!r}'s, and only its starter reasons in it here; "
            "reason in a context of your own, or say it as a chat",
            kind="forbidden",
        )
    if case.opens and contexts.count_open_of(sender) >= settings.max_open:
        return _refusal(
            "too_many_contexts",
            f"{sender!r} has {settings.max_open} contexts open, which is the most: conclude or cancel one first",
            kind="too_many_requests",
        )
    return None


def wrong(
    envelope: Envelope, case: Case, settings: LifecycleSettings, contexts: Contexts, known: Container[str]
) -> ErrorInfo | None:
    """What breaks the table of moves, or the rules of names and templates."""
    if case.move == "wrong":
        return _misplaced(envelope, case)
    if case.opens is not None:
        return _taken(envelope, case.opens, contexts, known) or _no_template(envelope, settings)
    return _out_of_order(envelope, case, settings) if case.act == "step" else None


def remarks(
    envelope: Envelope, case: Case, settings: LifecycleSettings, contexts: Contexts, known: Container[str]
) -> list[Flag]:
    """What is no mistake, and worth seeing. Whoever may read the envelope is told: nothing of others stands in it."""
    flags: list[Flag] = []
    if strangers := [name for name in references(envelope) if not (contexts.knows(name) or name in known)]:
        flags.append(Flag("unknown_reference", f"nothing in this space is called {_listed(strangers)}"))
    if case.move == "imply" and case.act == "step" and case.started is None:
        flags.append(Flag("not_started", f"no start opened context {case.path!r}: it is an implicit one"))
    if case.move == "late":
        flags.append(Flag("after_end", f"context {case.path!r} has ended"))
    found = case.found
    if case.move in ("conclude", "close") and found is not None and not found.implicit:
        if found.owner != envelope.sender:
            flags.append(Flag("not_owner", f"context {found.path!r} is concluded by another than its owner"))
        if case.move == "conclude" and (left := len(contexts.under(found.path))):
            inside = "a context inside it is" if left == 1 else f"{left} contexts inside it are"
            flags.append(Flag("left_open", f"{inside} not concluded before it"))
        steps = settings.templates.get(found.template or "", ())
        if missing := steps[found.step :]:
            flags.append(Flag("steps_missing", f"of the template {found.template!r}, not taken: {_listed(missing)}"))
    return flags


def references(envelope: Envelope) -> tuple[str, ...]:
    """The ids of this space that reasoning builds on or stands for (`references`, `metadata.compresses`)."""
    if envelope.family != "reasoning":
        return ()
    metadata = envelope.payload.get("metadata")
    compresses = metadata.get("compresses") if isinstance(metadata, dict) else None
    named: list[Any] = []
    for value in (envelope.payload.get("references"), compresses):
        named += value if isinstance(value, list | tuple) else [value]
    return tuple(name for name in named if isinstance(name, str) and not name.startswith("space:"))


def _misplaced(envelope: Envelope, case: Case) -> ErrorInfo:
    if case.path is None and case.act == "start":
        return _refusal(
            "invalid_context",
            f"id {envelope.id!r} cannot name the context that this start opens; use letters, digits, '-' and '_', "
            "or name a context in `context`",
            param="id",
        )
    if case.path is None:
        return _refusal(
            "context_required", f"a {envelope.kind} stands in a context: set `context` to the id of its start"
        )
    if case.standing == "unseen":
        return _refusal(
            "context_unknown",
            f"nothing is open at {case.path!r}: a {envelope.kind} ends what a {kinds.START} opened",
            kind="not_found",
        )
    found = case.found
    what = f"{found.path!r} was {found.status}" if found is not None else f"{case.path!r} has ended"
    but = ", and one conclusion may still say how" if case.standing == "stopped" else ""
    return _refusal("context_ended", f"context {what}{but}: a new {kinds.START} outside of it opens another")


def _taken(envelope: Envelope, opens: str, contexts: Contexts, known: Container[str]) -> ErrorInfo | None:
    for name in (opens, envelope.id):
        if contexts.named(name) is not None:
            return _refusal(
                "id_conflict",
                f"{name!r} already means another context: "
                "a start needs an id and a label that nobody used in this space",
                param="id" if name == envelope.id else "context",
            )
    if envelope.id in contexts.state.recent or envelope.id in known:
        return _refusal(
            "id_conflict",
            f"id {envelope.id!r} is another message's, and a start's id is a name: use one that is new in this space",
            param="id",
        )
    return None


def _no_template(envelope: Envelope, settings: LifecycleSettings) -> ErrorInfo | None:
    name = envelope.payload.get("template")
    if not isinstance(name, str) or name in settings.templates:
        return None
    return _refusal(
        "unknown_template",
        f"this space has no template {name!r}; {meant(name, settings.templates)}",
        param="payload.template",
    )


def _out_of_order(envelope: Envelope, case: Case, settings: LifecycleSettings) -> ErrorInfo | None:
    found, named = case.found, envelope.payload.get("step")
    steps = settings.templates.get(found.template or "", ()) if found is not None else ()
    if found is None or not steps or not isinstance(named, str):
        return None
    if named not in steps:
        return _refusal(
            "unknown_step",
            f"{named!r} is no step of the template {found.template!r}, whose steps are {', '.join(steps)}",
            param="payload.step",
        )
    # The last step may be taken again: a step may be more than one thought.
    if steps.index(named) + 1 not in (found.step, found.step + 1):
        due = " or ".join(repr(step) for step in steps[max(found.step - 1, 0) : found.step + 1])
        return _refusal(
            "step_out_of_order",
            f"{named!r} is not the next step of the template {found.template!r}: {due} is",
            param="payload.step",
        )
    return None


def _refusal(code: str, message: str, *, kind: ErrorKind = "invalid_request", param: str = "context") -> ErrorInfo:
    return ErrorInfo(kind=kind, code=code, message=message, param=param)


def _listed(names: list[str] | tuple[str, ...]) -> str:
    more = f" and {len(names) - TOLD} more" if len(names) > TOLD else ""
    return ", ".join(repr(name) for name in names[:TOLD]) + more
