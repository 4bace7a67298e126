"""A set of texts, as a tree: what regular expressions and globs are both read into.

    Seq((Chars(…), Many(Chars(…)), Either((…, …))))

Characters are code points. `START` and `END` stand where `^` and `$` did; `found_in` takes them out again, and so makes
of "somewhere in the text" what every tree here means in the end: the whole text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

Ranges: TypeAlias = tuple[tuple[int, int], ...]
"""Code points, from and to (both included), in order, neither touching nor overlapping."""

LAST = 0x10FFFF


class Chars(msgspec.Struct, frozen=True):
    """One character out of these."""

    ranges: Ranges


class Seq(msgspec.Struct, frozen=True):
    items: tuple[Tree, ...]


class Either(msgspec.Struct, frozen=True):
    """Any of them; of none: no text at all."""

    options: tuple[Tree, ...]


class Many(msgspec.Struct, frozen=True):
    """As often as one likes, or not at all."""

    item: Tree


class Times(msgspec.Struct, frozen=True):
    item: Tree
    low: int
    high: int


class Mark(msgspec.Struct, frozen=True):
    """A place in the text."""

    sign: str


Tree: TypeAlias = Chars | Seq | Either | Many | Times | Mark

EMPTY = Seq(())
NOTHING = Either(())
START = Mark("^")
END = Mark("$")


def ranges(*pairs: tuple[int, int]) -> Ranges:
    """The same code points, tidied."""
    tidy: list[tuple[int, int]] = []
    for low, high in sorted(pairs):
        if tidy and low <= tidy[-1][1] + 1:
            tidy[-1] = (tidy[-1][0], max(high, tidy[-1][1]))
        else:
            tidy.append((low, high))
    return tuple(tidy)


def without(taken: Ranges) -> Ranges:
    """Every other code point."""
    left: list[tuple[int, int]] = []
    begin = 0
    for low, high in taken:
        if begin < low:
            left.append((begin, low - 1))
        begin = high + 1
    if begin <= LAST:
        left.append((begin, LAST))
    return tuple(left)


def one_of(text: str) -> Ranges:
    return ranges(*((ord(char), ord(char)) for char in text))


ANY = Chars(((0, LAST),))
EVERY = Many(ANY)


def literal(text: str) -> Tree:
    return Seq(tuple(Chars(one_of(char)) for char in text))


def optional(tree: Tree) -> Tree:
    return Either((EMPTY, tree))


class Misplaced(ValueError):
    """A `^` or `$` where it could hold only by chance; the argument is which."""


def found_in(tree: Tree) -> Tree:
    """The texts that hold one of the tree's. Raises `Misplaced`."""
    placed = set(marks(tree))
    options = [
        Seq((EMPTY if first else EVERY, _placed(tree, first, last), EMPTY if last else EVERY))
        for first in ((True, False) if START in placed else (False,))
        for last in ((True, False) if END in placed else (False,))
    ]
    return Either(tuple(option for option in options if NOTHING not in option.items))


def marks(tree: Tree) -> Iterator[Mark]:
    """Those in it."""
    match tree:
        case Mark():
            yield tree
        case Seq(trees) | Either(trees):
            for inner in trees:
                yield from marks(inner)
        case Many(item) | Times(item):
            yield from marks(item)


def _placed(tree: Tree, first: bool | None, last: bool | None) -> Tree:
    """The tree without marks, where it stands first in the text, and last (None: that depends)."""
    match tree:
        case Mark(sign):
            holds = first if tree == START else last
            if holds is None:
                raise Misplaced(sign)
            return EMPTY if holds else NOTHING
        case Either(options):
            placed = (_placed(option, first, last) for option in options)
            return Either(tuple(option for option in placed if option != NOTHING))
        case Seq(items):
            begin = next((n for n, item in enumerate(items) if not _is_place(item)), len(items))
            end = next((n for n in range(len(items) - 1, -1, -1) if not _is_place(items[n])), -1)
            parts = tuple(
                _placed(item, first if n <= begin else None, last if n >= end else None) for n, item in enumerate(items)
            )
            return NOTHING if NOTHING in parts else Seq(parts)
        case Many(item) | Times(item):
            _placed(item, None, None)
    return tree


def _is_place(tree: Tree) -> bool:
    match tree:
        case Mark():
            return True
        case Seq(trees) | Either(trees):
            return all(map(_is_place, trees))
    return False
