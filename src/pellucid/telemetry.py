"""Names under which the gateway tells about itself. Reasoning text is in none of them."""

from __future__ import annotations

import logging
from traceback import walk_tb

log = logging.getLogger("pellucid")
"""What an operator reads. Never message content, never reasoning, never keys."""


def place_of(error: BaseException) -> str:
    """The type of `error` and where it was raised, innermost first. Never its message, which may quote content."""
    frames = [
        f"{frame.f_globals.get('__name__', '?')}:{line} {frame.f_code.co_name}"
        for frame, line in walk_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} at {' < '.join(frames[:-9:-1])}"
