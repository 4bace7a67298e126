"""Regular expressions as capabilities write them, read into trees.

What JavaScript's mean without flags, of that part of them that a finite automaton can decide: characters, classes,
groups, alternatives, repetitions (lazy or not is all one), `^` at the beginning, `$` at the end. Back references,
looking ahead or behind, and word boundaries are refused, and the error says so.
"""

from __future__ import annotations

from .syntax import (
    END,
    START,
    Chars,
    Either,
    Many,
    Misplaced,
    Ranges,
    Seq,
    Times,
    Tree,
    found_in,
    marks,
    one_of,
    optional,
    ranges,
    without,
)

MAX_DEPTH = 30
MAX_TIMES = 1000

_DIGITS = ranges((48, 57))
_WORD = ranges((48, 57), (65, 90), (97, 122), (95, 95))
_SPACE = ranges((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029))
_SPACE = ranges(*_SPACE, (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF))
_NOT_BREAKS = without(one_of("\n\r\u2028\u2029"))

_CLASSES: dict[str, Ranges] = {
    "d": _DIGITS,
    "D": without(_DIGITS),
    "w": _WORD,
    "W": without(_WORD),
    "s": _SPACE,
    "S": without(_SPACE),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
_HEX = {"x": 2, "u": 4}
_UNKNOWN = {
    "b": "a word boundary",
    "B": "a word boundary",
    "k": "a back reference",
    "p": "a Unicode property",
    "P": "a Unicode property",
    "c": "a control letter",
}


class NotRegular(ValueError):
    """What is written there, and what is not possible about it."""


def parse(source: str) -> Tree:
    """The texts in which the expression is found. Raises `NotRegular`."""
    reader = _Reader(source)
    tree = reader.either(0)
    if reader.at < len(source):
        raise NotRegular(f"the `)` at character {reader.at + 1} closes nothing")
    try:
        return found_in(tree)
    except Misplaced as error:
        where = "begin" if error.args[0] == "^" else "end"
        raise NotRegular(
            f"a `{error.args[0]}` can stand only where the whole expression {where}s, not inside a repetition or "
            "after what may be text"
        ) from None


def parse_part(source: str) -> Tree:
    """The texts that the expression itself stands for, to be looked for in others. Raises `NotRegular`."""
    reader = _Reader(source)
    tree = reader.either(0)
    if reader.at < len(source):
        raise NotRegular(f"the `)` at character {reader.at + 1} closes nothing")
    if next(marks(tree), None) is not None:
        raise NotRegular("it is looked for anywhere, so there is no beginning `^` and no end `$`")
    return tree


class _Reader:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0

    def take(self, text: str) -> bool:
        if self.source.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def next(self, what: str) -> str:
        if self.at >= len(self.source):
            raise NotRegular(f"it ends in the middle of {what}")
        self.at += 1
        return self.source[self.at - 1]

    def either(self, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise NotRegular(f"groups stand in each other at most {MAX_DEPTH} deep")
        options = [self.sequence(depth)]
        while self.take("|"):
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else Either(tuple(options))

    def sequence(self, depth: int) -> Tree:
        items: list[Tree] = []
        while self.at < len(self.source) and self.source[self.at] not in "|)":
            items.append(self.repeated(self.atom(depth)))
        return Seq(tuple(items))

    def repeated(self, atom: Tree) -> Tree:
        before = self.at
        if self.take("*"):
            tree: Tree = Many(atom)
        elif self.take("+"):
            tree = Seq((atom, Many(atom)))
        elif self.take("?"):
            tree = optional(atom)
        else:
            tree = self.counted(atom)
        if self.at > before:
            self.take("?")
            if self.at < len(self.source) and (self.source[self.at] in "*+?" or self.counts()):
                raise NotRegular(f"the `{self.source[self.at]}` at character {self.at + 1} repeats nothing")
        return tree

    def counted(self, atom: Tree) -> Tree:
        found = self.counts()
        if found is None:
            return atom
        low, high, self.at = found
        if max(low, high or 0) > MAX_TIMES or (high is not None and high < low):
            raise NotRegular(f"`{{n,m}}` counts from a lesser to a greater number, and to {MAX_TIMES} at most")
        if high is None:
            return Seq((Times(atom, low, low), Many(atom)))
        return Times(atom, low, high)

    def counts(self) -> tuple[int, int | None, int] | None:
        """The `{n}`, `{n,}` or `{n,m}` that stands here: from, to, and where it ends. Any other `{` is a brace."""
        end = self.source.find("}", self.at)
        if end < 0 or not self.source.startswith("{", self.at):
            return None
        low, comma, high = self.source[self.at + 1 : end].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        least = _number(low)
        return least, (_number(high) if high else None if comma else least), end + 1

    def atom(self, depth: int) -> Tree:
        char = self.next("an expression")
        match char:
            case "^":
                return START
            case "$":
                return END
            case ".":
                return Chars(_NOT_BREAKS)
            case "[":
                return Chars(self.bracket())
            case "(":
                return self.group(depth)
            case "\\":
                return Chars(self.escape())
            case "*" | "+" | "?":
                raise NotRegular(f"the `{char}` at character {self.at} repeats nothing")
        return Chars(one_of(char))

    def group(self, depth: int) -> Tree:
        if self.take("?") and not self.take(":"):
            if not self.take("<") or self.source[self.at : self.at + 1] in ("=", "!"):
                raise NotRegular("looking ahead or behind is not possible; say what must not be with `!` or a list")
            self.at = self.source.find(">", self.at) + 1
            if not self.at:
                raise NotRegular("the name of a group has no end")
        inner = self.either(depth + 1)
        if not self.take(")"):
            raise NotRegular("a `(` is never closed")
        return inner

    def escape(self) -> Ranges:
        char = self.next("an escape")
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return one_of(_CONTROLS[char])
        if char in _HEX:
            digits = self.source[self.at : self.at + _HEX[char]]
            if len(digits) < _HEX[char] or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise NotRegular(f"`\\{char}` wants {_HEX[char]} hexadecimal digits")
            self.at += len(digits)
            return one_of(chr(int(digits, 16)))
        if char.isascii() and char.isalnum():
            raise NotRegular(f"`\\{char}` ({_UNKNOWN.get(char, 'a back reference' if char.isdigit() else 'unknown')})")
        return one_of(char)

    def bracket(self) -> Ranges:
        negated = self.take("^")
        found: list[tuple[int, int]] = []
        while not self.take("]"):
            low = self.member()
            if _single(low) and self.source.startswith("-", self.at) and self.source[self.at + 1 : self.at + 2] != "]":
                self.at += 1
                high = self.member()
                if not _single(high) or high < low:
                    raise NotRegular("a class has ranges from one character to a later one")
                found.append((low[0][0], high[0][0]))
            else:
                found.extend(low)
        tidy = ranges(*found)
        return without(tidy) if negated else tidy

    def member(self) -> Ranges:
        char = self.next("a class")
        if char != "\\":
            return one_of(char)
        return one_of("\b") if self.take("b") else self.escape()


def _single(members: Ranges) -> bool:
    return len(members) == 1 and members[0][0] == members[0][1]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _number(text: str) -> int:
    return int(text) if len(text) < 6 else MAX_TIMES + 1
