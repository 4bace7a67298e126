"""The end of a run in AG-UI: outcome, usage and errors; and the sealed tokens that are known ahead in a batch."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo
from ...events import AnsweringDeployment, Event, ItemEndEvent, ItemStartEvent, RunEndEvent
from ...parts import Usage
from ..encoding import safe_counts
from . import events as e
from .dialects import Dialect
from .messages import Interrupt, TokenUsage
from .metadata import METADATA_KEY, make_metadata

_USAGE_FIELDS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "total_tokens": "total_tokens",
    "reasoning_tokens": "output_reasoning_tokens",
    "cached_input_tokens": "cache_read_tokens",
    "cache_write_input_tokens": "cache_write_tokens",
}
"""The fields of `TokenUsage`, with those of `Usage`."""


def outcome_of(
    event: RunEndEvent, dialect: Dialect, pending: list[str], interrupts: list[Interrupt]
) -> tuple[e.RunFinishedOutcome | None, dict[str, Any] | None]:
    """Return the outcome of RUN_FINISHED, and its metadata where the dialect has no outcome for the end.

    `pending` are the ids of calls without a result.
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
    """Return the usage of a model; None if no number is known that the protocol defines."""
    counts: dict[str, Any] = safe_counts(usage, _USAGE_FIELDS)
    return [TokenUsage(model=model, **counts)] if counts else None


def with_gateway_fields(
    metadata: dict[str, Any] | None, usage: Usage, deployment: AnsweringDeployment | None
) -> dict[str, Any] | None:
    """Return the metadata of the end of a run, with its cost and the deployment that answered where they are known."""
    fields = {"cost": usage.cost, "deployment": deployment}
    known = {name: value for name, value in fields.items() if value is not None}
    return make_metadata(**(metadata or {}).get(METADATA_KEY, {}), **known) if known else metadata


def seals_ahead(events: list[Event]) -> dict[int, str]:
    """Return the tokens of the items that begin and end in a batch, by the index of their start event."""
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
    """Return the body of an error response before a run began: RUN_ERROR, which clients show as it is.

    `metadata.pellucid.param` is the path in the input that is wrong.
    """
    body: dict[str, Any] = {"type": "RUN_ERROR", "message": error.full_message, "code": error.code or error.kind}
    return body if error.param is None else {**body, "metadata": make_metadata(param=error.param)}
