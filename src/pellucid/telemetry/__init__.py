"""What the gateway tells about itself: names, and the hooks that fill them. Nothing here does I/O.

    lines     one line for each thing that happened, as text or as JSON
    metrics   what Prometheus collects
    spans     what OpenTelemetry is told
    names     what spans, attributes and providers are called there

No reasoning, prompt, answer, argument, result, key or word of an upstream is in any of it: lines, labels and attributes
are made of names that the operator chose, numbers, our own ids, and words from closed sets. What a client or an
upstream may choose (a request's id, a call's id) is told only where it looks like an id (`names.tame`).
"""

from __future__ import annotations

import logging
from traceback import walk_tb

log = logging.getLogger("pellucid")
"""What an operator reads. Never message content, never reasoning, never keys."""


def error_location(error: BaseException) -> str:
    """The type of `error` and where it was raised, innermost first. Never its message, which may quote content."""
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} at {' < '.join(frames[:-9:-1])}"


__all__ = ["error_location", "log"]
