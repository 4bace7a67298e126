"""Canonical events without a stream: what was kept of an answer, as one reader gets it; and a question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET

from ...events import Event
from ...text import shown
from . import types as t
from .account import Account
from .frames import started
from .ids import question_id


def answer(
    event_id: str,
    conversation_id: str,
    model: str,
    created_at: int,
    batches: Iterable[tuple[int, Sequence[Event]]],
    *,
    view: t.View = "raw",
    effort_level: str | None = None,
) -> t.Answer:
    """The event that a stream of these batches would bring last. Each has its time before it, and is redacted."""
    account = Account(started(event_id, conversation_id, model, created_at, view, effort_level))
    for now, events in batches:
        account.read(events, now)
    return account.answer


def question(
    event_id: str, conversation_id: str, text: str, created_at: int, versions: Sequence[str] = ()
) -> t.Question:
    """The question whose answer is `event_id`. `versions`: the answers to it and to those asked in its place."""
    id = question_id(event_id)
    return t.Question(
        id=id,
        conversation_id=conversation_id,
        created_at=created_at,
        segments=[t.TextSegment(id=f"{id}_text", text=shown(text))],
        versions=list(versions) if len(versions) > 1 else UNSET,
    )
