"""Where an expression is found in a text: the leftmost places, and at each the longest.

Two walks over the text: from its end, with the expression turned round, which says where a match begins; and from each
such place forwards, to its end. Both spend steps, of which there are so many for each character: whoever runs out of
them is told so, and never made to wait.
"""

from __future__ import annotations

from bisect import bisect_right

from .automaton import Automaton
from .regex import NotRegular, parse_part
from .syntax import EVERY, Either, Many, Seq, Times, Tree

STEPS = 100_000
STEPS_A_CHARACTER = 32


class Finder:
    """Finds `source`. Raises `NotRegular`, or `automaton.TooLarge`."""

    def __init__(self, source: str) -> None:
        tree = parse_part(source)
        self._forwards = Automaton(tree)
        if self._forwards.accepts(Automaton.START):
            raise NotRegular("it is found in an empty text, so it would be found everywhere")
        self._backwards = Automaton(Seq((EVERY, _turned(tree))))

    def spans(self, text: str) -> list[tuple[int, int]] | None:
        """From and to, in order. None: it was not found out within the steps."""
        left = STEPS + STEPS_A_CHARACTER * len(text)
        backwards = _Walk(self._backwards)
        begins: list[int] = []
        state = Automaton.START
        for at in range(len(text) - 1, -1, -1):
            state = backwards.after(state, text[at])
            if self._backwards.accepts(state):
                begins.append(at)
            if backwards.spent > left:
                return None
        found: list[tuple[int, int]] = []
        if not begins:
            return found
        forwards = _Walk(self._forwards)
        forwards.spent = backwards.spent
        past = 0
        for begin in reversed(begins):
            if begin < past:
                continue
            state, end = Automaton.START, begin
            for at in range(begin, len(text)):
                state = forwards.after(state, text[at])
                if not state:
                    break
                if self._forwards.accepts(state):
                    end = at + 1
                if forwards.spent > left:
                    return None
            found.append((begin, end))
            past = end
        return found


class _Walk:
    """Moves of one automaton, each worked out once in a walk."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._moves: dict[tuple[int, str], int] = {}
        self.spent = 0

    def after(self, state: int, char: str) -> int:
        self.spent += 1
        known = self._moves.get((state, char))
        if known is None:
            self.spent += state.bit_count()
            sort = bisect_right(self._automaton.bounds, ord(char))
            known = self._automaton.after(state, sort)
            if len(self._moves) < MOST_MOVES:
                self._moves[state, char] = known
        return known


MOST_MOVES = 10_000


def _turned(tree: Tree) -> Tree:
    """The texts of the tree, backwards."""
    match tree:
        case Seq(items):
            return Seq(tuple(_turned(item) for item in reversed(items)))
        case Either(options):
            return Either(tuple(_turned(option) for option in options))
        case Many(item):
            return Many(_turned(item))
        case Times(item, low, high):
            return Times(_turned(item), low, high)
    return tree
