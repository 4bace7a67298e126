"""What may be written to a terminal of what somebody else said."""

from __future__ import annotations

# A model has no business with the terminal itself: all controls but line break and tab are left out.
CONTROLS = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])


def visible(text: str) -> str:
    return text.translate(CONTROLS)
