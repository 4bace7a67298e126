"""A chat as the first envelopes of a space, as its reader may see it.

Questions come from the person, answers from a participant with the model's name, and reasoning is a context of its own,
each with the time that it has in the chat. Sealed reasoning is a context without text; hidden reasoning is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ...protocols.chat import Answer, Question
from ...protocols.chat import types as chat
from .conversations import title_of


def model_participants(events: Sequence[Question | Answer], person: str) -> dict[str, str]:
    """Return a participant's id for each model of a chat."""
    names: dict[str, str] = {}
    for event in events:
        if isinstance(event, Answer) and event.model not in names:
            name = re.sub(r"\s+", "-", event.model.strip())[:200] or "model"
            taken = {person, *names.values()}
            while name in taken:
                name = f"{name}-model"
            names[event.model] = name
    return names


def chat_envelopes(
    events: Sequence[Question | Answer], person: str, names: Mapping[str, str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the sender and the envelope of everything that a reader sees of a chat, in order.

    Args:
        events: The chat's events, redacted for the reader.
        person: The participant who asked.
        names: The participants who answered, by model.
    """
    question: Question | None = None
    for event in events:
        if isinstance(event, Question):
            question = event
            text = "\n\n".join(segment.text for segment in event.segments)
            yield person, {"kind": "chat", "id": event.id, "ts": event.created_at, "payload": {"text": text}}
        elif question is not None and event.status != "in_progress":
            yield from ((names[event.model], envelope) for envelope in _answer_envelopes(event, question))


def _answer_envelopes(answer: Answer, question: Question) -> Iterator[dict[str, Any]]:
    about = [question.id]
    steps = [one for one in answer.segments if not isinstance(one, _CONTENT)]
    if steps:
        context = f"{answer.id}-reasoning"
        title = title_of("\n\n".join(segment.text for segment in question.segments))
        spans = {span.segment_id: span for span in answer.timeline or ()}
        times = [span for step in steps if (span := spans.get(step.id)) is not None]
        now = min((span.started_at for span in times), default=answer.created_at)
        end = max((span.ended_at for span in times), default=now)
        yield {
            "kind": "reasoning/start",
            "id": context,
            "correlation_id": about,
            "ts": now,
            "payload": {"message": title},
        }
        for step in sorted(steps, key=lambda one: one.sequence_number):
            for kind, created_at, payload in _step_payloads(step):
                now = max(now, min(created_at, end))
                yield {"kind": f"reasoning/{kind}", "context": context, "ts": now, "payload": payload}
        yield {"kind": "reasoning/conclusion", "context": context, "ts": end, "payload": {}}
        about = [question.id, context]
    texts = [one.text for one in answer.segments if isinstance(one, chat.TextSegment | chat.RefusalSegment)]
    text = "\n\n".join(one for one in texts if one)
    if text:
        ended_at = answer.completed_at or answer.created_at
        yield {
            "kind": "chat",
            "correlation_id": about,
            "ts": ended_at,
            "payload": {"text": text, "format": "markdown"},
        }


_CONTENT = (chat.TextSegment, chat.RefusalSegment, chat.FileSegment)


def _step_payloads(step: Any) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Yield the thoughts of a stretch of reasoning, or what a tool was called with and returned, with their times.

    A call is no request here: a participant that joins must not carry it out.
    """
    if isinstance(step, chat.ReasoningSegment):
        for part in sorted(step.parts, key=lambda one: one.summary_index):
            if part.text:
                yield "thought", part.created_at, {"message": part.text}
        return
    details = {"arguments": step.args}
    if step.result is not msgspec.UNSET:
        details["result"] = step.result
    if step.error is not msgspec.UNSET:
        details["error"] = step.error
    yield "observation", step.created_at, {"message": step.name, "details": details}
