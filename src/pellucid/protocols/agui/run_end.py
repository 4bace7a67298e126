"""How a run ended, as RUN_FINISHED tells it; and what an encoder may know of an item before it begins."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo
from ...events import Event, ItemEndEvent, ItemStartEvent, RunEndEvent
from ...parts import Usage
from . import events as e
from .dialects import Dialect
from .messages import Interrupt, TokenUsage
from .metadata import make_metadata

_MAX_SAFE_INTEGER = 2**53 - 1
"""What JavaScript can hold."""


def outcome_of(
    event: RunEndEvent, dialect: Dialect, pending: list[str], interrupts: list[Interrupt]
) -> tuple[e.RunFinishedOutcome | None, dict[str, Any] | None]:
    """The outcome, and the metadata that says what the dialect has no outcome for.

    `pending` are the calls that have no result, `interrupts` what the run waits for.
    """
    supported = dialect.outcomes
    if event.status == "cancelled":
        return (
            (e.RunFinishedCancelledOutcome(), None)
            if "cancelled" in supported
            else (None, make_metadata(status="cancelled"))
        )
    if event.status == "incomplete":
        reason = {} if event.incomplete_reason is None else {"reason": event.incomplete_reason}
        return None, make_metadata(status="incomplete", **reason)
    if interrupts and "interrupt" in supported:
        return e.RunFinishedInterruptOutcome(interrupts), None
    if pending and "success" in supported:
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
    counts: dict[str, Any] = {
        name: number for name, number in numbers.items() if number is not None and 0 <= number <= _MAX_SAFE_INTEGER
    }
    return [TokenUsage(model=model, **counts)] if counts else None


def seals_ahead(events: list[Event]) -> dict[int, str]:
    """The seals of the items that begin and end in this batch, by the place where they begin."""
    seals: dict[int, str] = {}
    start_index: int | None = None
    for index, event in enumerate(events):
        if isinstance(event, ItemStartEvent):
            start_index = index
        elif isinstance(event, ItemEndEvent):
            if start_index is not None and event.seal is not None:
                seals[start_index] = event.seal
            start_index = None
    return seals


def error_body(error: ErrorInfo) -> dict[str, Any]:
    """The body of a refusal before a run began: RUN_ERROR, which clients show as it is.

    `metadata.pellucid.param` says where in the input the mistake stands.
    """
    body: dict[str, Any] = {"type": "RUN_ERROR", "message": error.full_message, "code": error.code or error.kind}
    return body if error.param is None else {**body, "metadata": {"pellucid": {"param": error.param}}}
