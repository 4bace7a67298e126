"""Regular expressions of users, matched in linear time by RE2.

    Regex("^read_[a-z]+$").matches("read_file", steps)

The syntax is RE2's: no back references, no lookahead and no lookbehind. The cost of a search is known before it begins,
from the length of the text and the size of the expression. It is charged to a `StepBudget`, which several searches
share.
"""

from __future__ import annotations

from typing import Any

MAX_SIZE = 1_000
"""Maximum number of instructions of a compiled expression."""

MAX_MEMORY = 4 << 20
"""Maximum number of bytes that RE2 may use for one expression."""

_WORK_PER_STEP = 256
"""Instructions times characters for one step. RE2's slowest algorithm takes one nanosecond for each of them."""


class StepBudgetExceeded(Exception):
    """The budget is spent before the question was decided."""


class StepBudget:
    """A number of steps that several questions share."""

    __slots__ = ("remaining",)

    def __init__(self, limit: int) -> None:
        self.remaining = limit

    def spend(self, number: int = 1) -> None:
        """Spend steps.

        Raises:
            StepBudgetExceeded: If there are not enough.
        """
        self.remaining -= number
        if self.remaining < 0:
            raise StepBudgetExceeded


class RegexError(ValueError):
    """An expression that cannot be compiled, with the reason."""


class Regex:
    """A compiled expression. Two are equal if they were compiled from the same source.

    Args:
        source: The expression, in RE2's syntax.
        longest: Whether a match is the longest at its place. Otherwise it is the one that the order of alternatives
            prefers.
        max_size: Maximum number of instructions of the compiled expression.

    Raises:
        RegexError: If it is not an RE2 expression, or too large.
    """

    def __init__(self, source: str, *, longest: bool = False, max_size: int = MAX_SIZE) -> None:
        import re2  # imported on first use: most gateways have no such pattern

        options = re2.Options()
        options.max_mem = MAX_MEMORY
        options.longest_match = longest
        options.never_capture = True
        options.log_errors = False
        try:
            self.compiled: Any = re2.compile(source, options)
        except UnicodeEncodeError:
            raise RegexError("it holds half of a surrogate pair") from None
        except re2.error as error:
            message = error.args[0] if error.args else ""
            detail = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
            raise RegexError(f"RE2 refuses it: {detail}") from None
        self.size: int = self.compiled.programsize
        if self.size > max_size:
            raise RegexError(f"it is too large: {self.size} instructions, at most {max_size} are allowed")
        self.source = source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Regex) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)

    def matches(self, text: str, steps: StepBudget) -> bool:
        """Check whether the expression is found in the text.

        Raises:
            StepBudgetExceeded: If the budget is not enough, or the text is not valid Unicode.
        """
        steps.spend(1 + len(text) * self.size // _WORK_PER_STEP)
        try:
            return self.compiled.search(text) is not None
        except UnicodeEncodeError:
            raise StepBudgetExceeded from None
