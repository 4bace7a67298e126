"""Trees as finite automata, in which every question is answered within a number of steps.

A tree's characters are numbered; a state is the set of those that may have just been read, as the bits of an integer.
No text makes it go back: matching takes as many moves as the text has characters, and one set contains another if no
reachable pair of states says otherwise. Both spend `Steps`; who runs out of them is told so, and never made to wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from .syntax import LAST, Chars, Either, Many, Mark, Seq, Times, Tree

MAX_SIZE = 500
"""Characters of a tree, repetitions written out."""

_MAX_VISITS = 4 * MAX_SIZE
_MAX_KNOWN = 500


class OutOfSteps(Exception):
    """The question is not answered, and will not be."""


class TooLarge(ValueError):
    """The tree, with its repetitions written out, has more than `MAX_SIZE` characters."""


class Steps:
    """So many, for as many questions as share it."""

    __slots__ = ("left",)

    def __init__(self, limit: int) -> None:
        self.left = limit

    def spend(self, number: int = 1) -> None:
        self.left -= number
        if self.left < 0:
            raise OutOfSteps


class Automaton:
    """The texts of a tree. Bit 0 of a state is the beginning of the text. Raises `TooLarge`."""

    START = 1

    def __init__(self, tree: Tree) -> None:
        self._visits = 0
        self._chars: list[Chars] = [Chars(())]
        self._next: list[int] = [0]
        nullable, first, last = self._read(tree)
        self._next[0] = first
        self._accepting = last | int(nullable)
        self.bounds = sorted(
            {edge for chars in self._chars for pair in chars.ranges for edge in (pair[0], pair[1] + 1)}
        )
        self._class_masks = self._masks()
        self._endless = self._found_endless()
        self._known: dict[tuple[int, int], int] = {}
        self._sorts: dict[str, int] = {}

    def _read(self, tree: Tree) -> tuple[bool, int, int]:
        """Whether it may be empty, and which of its characters may be the first and the last."""
        self._visits += 1
        if self._visits > _MAX_VISITS or len(self._chars) > MAX_SIZE:
            raise TooLarge
        match tree:
            case Chars():
                self._chars.append(tree)
                self._next.append(0)
                bit = 1 << (len(self._chars) - 1)
                return False, bit, bit
            case Either(options):
                nullable, first, last = False, 0, 0
                for option in options:
                    one = self._read(option)
                    nullable, first, last = nullable or one[0], first | one[1], last | one[2]
                return nullable, first, last
            case Seq(items):
                return self._in_turn(items)
            case Many(item):
                _, first, last = self._read(item)
                self._follow(last, first)
                return True, first, last
            case Times(item, low, high):
                return self._in_turn([item] * low + [Either((Seq(()), item))] * (high - low))
            case Mark():
                raise AssertionError("marks are taken out before")

    def _in_turn(self, items: Sequence[Tree]) -> tuple[bool, int, int]:
        nullable, first, last = True, 0, 0
        for item in items:
            empty, begin, end = self._read(item)
            self._follow(last, begin)
            first |= begin if nullable else 0
            last = end | (last if empty else 0)
            nullable = nullable and empty
        return nullable, first, last

    def _follow(self, positions: int, after: int) -> None:
        for position in _bits(positions):
            self._next[position] |= after

    def _masks(self) -> list[int]:
        """Which characters of the tree may stand for one between these bounds."""
        masks = [0] * (len(self.bounds) + 1)
        for number, chars in enumerate(self._chars):
            for low, high in chars.ranges:
                for sort in range(bisect_right(self.bounds, low), bisect_right(self.bounds, high) + 1):
                    masks[sort] |= 1 << number
        return masks

    def _found_endless(self) -> int:
        """The characters after which everything is accepted: any character that may follow itself and end the text."""
        return sum(
            1 << number
            for number, chars in enumerate(self._chars)
            if chars.ranges == ((0, LAST),) and self._next[number] >> number & 1 and self._accepting >> number & 1
        )

    def move(self, state: int, point: int, steps: Steps) -> int:
        """The state after one more character. It costs the same whether it was asked before or not: what is decided
        must not depend on that."""
        steps.spend(1 + state.bit_count())
        return self.after(state, bisect_right(self.bounds, point))

    def after(self, state: int, sort: int) -> int:
        """The state after one more character of that sort."""
        key = (state, sort)
        known = self._known.get(key)
        if known is None:
            known = 0
            for position in _bits(state):
                known |= self._next[position]
            known &= self._class_masks[sort]
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known

    def accepts(self, state: int) -> bool:
        return bool(state & self._accepting)

    def settled(self, state: int) -> bool | None:
        """Whether all that begins so is accepted, or nothing; None: it depends on what follows."""
        if not state:
            return False
        return True if state & self._endless else None

    def matches(self, text: str, steps: Steps) -> bool:
        """Whether the whole text is one of the tree's. It costs a step a character, and one for everything that a new
        state holds."""
        state, sorts, left = self.START, self._sorts, steps.left
        try:
            for char in text:
                sort = sorts.get(char)
                if sort is None:
                    sort = self._sort(char)
                after = self.after(state, sort)
                left -= 1
                if after != state:
                    state = after
                    if not state:
                        return False
                    if state & self._endless:
                        return True
                    left -= state.bit_count()
                if left < 0:
                    raise OutOfSteps
            return self.accepts(state)
        finally:
            steps.left = left

    def _sort(self, char: str) -> int:
        if len(self._sorts) >= _MAX_KNOWN:
            self._sorts.clear()
        sort = self._sorts[char] = bisect_right(self.bounds, ord(char))
        return sort


def points(automata: Iterable[Automaton]) -> list[int]:
    """One character of every sort that any of them tells from others."""
    return sorted({0, *(edge for automaton in automata for edge in automaton.bounds if edge <= LAST)})


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return found
