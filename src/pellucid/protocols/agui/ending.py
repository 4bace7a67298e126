"""How a run ended, as RUN_FINISHED tells it; and what an encoder may know of an item before it begins."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo
from ...events import Event, ItemEndEvent, ItemStartEvent, RunEndEvent
from ...parts import Usage
from . import events as e
from .dialects import Dialect
from .marks import mark
from .messages import Interrupt, TokenUsage

_MOST = 2**53 - 1
"""What JavaScript can hold."""


def outcome_of(
    event: RunEndEvent, dialect: Dialect, pending: list[str], interrupts: list[Interrupt]
) -> tuple[e.RunFinishedOutcome | None, dict[str, Any] | None]:
    """The outcome, and the metadata that says what the dialect has no outcome for.

    `pending` are the calls that have no result, `interrupts` what the run waits for.
    """
    known = dialect.outcomes
    if event.status == "cancelled":
        return (e.RunFinishedCancelledOutcome(), None) if "cancelled" in known else (None, mark(status="cancelled"))
    if event.status == "incomplete":
        why = {} if event.incomplete_reason is None else {"reason": event.incomplete_reason}
        return None, mark(status="incomplete", **why)
    if interrupts and "interrupt" in known:
        return e.RunFinishedInterruptOutcome(interrupts), None
    if pending and "success" in known:
        return e.RunFinishedSuccessOutcome(pending), None
    return None, None


def usage_of(usage: Usage, model: str | None) -> list[TokenUsage] | None:
    """None if nothing is known that the protocol can say."""
    numbers = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "reasoning_tokens": usage.output_reasoning_tokens,
        "cached_input_tokens": usage.cache_read_tokens,
        "cache_write_input_tokens": usage.cache_write_tokens,
    }
    known: dict[str, Any] = {
        name: number for name, number in numbers.items() if number is not None and 0 <= number <= _MOST
    }
    return [TokenUsage(model=model, **known)] if known else None


def seals_ahead(events: list[Event]) -> dict[int, str]:
    """The seals of the items that begin and end in this batch, by the place where they begin."""
    found: dict[int, str] = {}
    began: int | None = None
    for place, event in enumerate(events):
        if isinstance(event, ItemStartEvent):
            began = place
        elif isinstance(event, ItemEndEvent):
            if began is not None and event.seal is not None:
                found[began] = event.seal
            began = None
    return found


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """The body of a refusal before a run began: RUN_ERROR, which clients show as it is.

    `metadata.pellucid.param` says where in the input the mistake stands.
    """
    body: dict[str, Any] = {"type": "RUN_ERROR", "message": error.full_message, "code": error.code or error.kind}
    return body if error.param is None else {**body, "metadata": {"pellucid": {"param": error.param}}}
