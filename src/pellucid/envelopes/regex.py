"""Regular expressions that others wrote, decided in linear time: those of RE2.

    Regex("^read_[a-z]+$").matches("read_file", steps)

The syntax is RE2's: no back references, and no looking ahead or behind. What a search may cost is known before it
begins, from the length of the text and the size of the expression; it is taken from `StepBudget`, which several questions
share.
"""

from __future__ import annotations

from typing import Any

MAX_SIZE = 1_000
"""Instructions of a compiled expression."""

MAX_MEMORY = 4 << 20
"""Bytes that RE2 may use for one expression."""

_WORK_PER_STEP = 256
"""Instructions times characters for one step: RE2's slowest way takes a nanosecond for each of them."""


class StepBudgetExceeded(Exception):
    """The question is not answered, and will not be."""


class StepBudget:
    """A number of steps, for as many questions as share it."""

    __slots__ = ("remaining",)

    def __init__(self, limit: int) -> None:
        self.remaining = limit

    def spend(self, number: int = 1) -> None:
        """Raises `StepBudgetExceeded`."""
        self.remaining -= number
        if self.remaining < 0:
            raise StepBudgetExceeded


class RegexError(ValueError):
    """Why an expression cannot be compiled."""


class Regex:
    """A compiled expression. Two are equal if they were compiled from the same source.

    Args:
        source: RE2's syntax.
        longest: Whether a match is the longest at its place, or the one that the order of alternatives prefers.
        max_size: Instructions of the compiled expression.

    Raises:
        NotRegular: It is no expression of RE2, or too large.
    """

    def __init__(self, source: str, *, longest: bool = False, max_size: int = MAX_SIZE) -> None:
        import re2  # when it is needed: most gateways have no such pattern

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
            raise RegexError(f"it is too large: {self.size} instructions, and may have {max_size}")
        self.source = source

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Regex) and self.source == other.source

    def __hash__(self) -> int:
        return hash(self.source)

    def matches(self, text: str, steps: StepBudget) -> bool:
        """Whether it is found in the text. Raises `StepBudgetExceeded`, also for a text that is no Unicode."""
        steps.spend(1 + len(text) * self.size // _WORK_PER_STEP)
        try:
            return self.compiled.search(text) is not None
        except UnicodeEncodeError:
            raise StepBudgetExceeded from None
