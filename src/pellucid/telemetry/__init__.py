"""Telemetry of the gateway: log lines, metrics and spans. Nothing here does I/O, except that the log is written.

    lines     log lines, one for each event, as text or as JSON
    metrics   metrics for Prometheus
    names     names of spans, attributes and providers in OpenTelemetry
    spans     spans for OpenTelemetry

No reasoning, prompt, answer, argument, result, key or text of an upstream appears in any of it. Lines, labels and
attributes consist of names that the operator chose, numbers, the gateway's own ids, and words from closed sets. A value
that a client or an upstream chooses (a request's id, a call's id) appears only if it looks like an id
(`names.safe_id`).
"""

from __future__ import annotations

import logging
from traceback import walk_tb

log = logging.getLogger("pellucid")
"""The log for the operator. It never holds message content, reasoning or keys."""


def error_location(error: BaseException) -> str:
    """Return the type of an error and where it was raised, innermost frame first.

    The error's message is left out, because it may quote content.
    """
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} at {' < '.join(frames[:-9:-1])}"


__all__ = ["error_location", "log"]
