"""The pattern language of capabilities: which JSON values a pattern allows.

    "read_*"  "/^SELECT /"  "!delete_*"  ["a", "b"]  {"params": {"name": "x"}}  {"**": "x"}  {"$.params[*].name": "x"}

A string allows the text itself, or, by its marks, those of a glob (`globs`), of a regular expression between slashes
(`regex`), or all texts but those after `!`. An array allows what one of its entries does; an object allows objects in
which every key it names is there, with an allowed value. A key may be a glob (some key that it matches), `**` (at any
depth) or a JSONPath (`jsonpath`). Numbers, booleans and null allow themselves. The rules:

* What is not there is not allowed, by a negation either; and a text is allowed by nothing but a string.
* No pattern makes anybody wait: `allows` spends `Steps`, and raises `OutOfSteps` when there are none left.
* Which patterns allow no more than another, `covering` decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ..errors import RequestError
from . import globs, jsonpath, regex
from .automaton import MAX_SIZE, Automaton, Steps, TooLarge

MAX_DEPTH = 16
MAX_LENGTH = 2_000
"""Characters of one string."""
MAX_ENTRIES = 200
"""Values of one pattern, all that are in it counted."""


class Same(msgspec.Struct, frozen=True):
    """The number, boolean or null itself."""

    value: Any


class Word(msgspec.Struct, frozen=True):
    """The text itself."""

    text: str


class Texts(msgspec.Struct, frozen=True):
    """The texts of a glob or a regular expression."""

    automaton: Automaton


class Not(msgspec.Struct, frozen=True):
    """Every other text."""

    of: Text


class OneOf(msgspec.Struct, frozen=True):
    options: tuple[Pattern, ...]


class Name(msgspec.Struct, frozen=True):
    key: str


class Names(msgspec.Struct, frozen=True):
    automaton: Automaton


class Anywhere(msgspec.Struct, frozen=True):
    pass


class At(msgspec.Struct, frozen=True):
    path: jsonpath.Path


class Rule(msgspec.Struct, frozen=True):
    """Something that stands `where` is allowed by `pattern`."""

    where: Where
    pattern: Pattern


class Fields(msgspec.Struct, frozen=True):
    """An object that keeps every rule."""

    rules: tuple[Rule, ...]


Text: TypeAlias = Word | Texts | Not
Pattern: TypeAlias = Same | Text | OneOf | Fields
Where: TypeAlias = Name | Names | Anywhere | At


def _wrong(at: str, said: str) -> RequestError:
    return RequestError(f"{at}: {said}", code="invalid_capability", param=at)


# --- reading


def read(written: Any, at: str) -> Pattern:
    """The pattern that is written so; `at` names its place in errors. Raises `RequestError`."""
    return _read(written, at, 0, [MAX_ENTRIES])


def _read(written: Any, at: str, depth: int, left: list[int]) -> Pattern:
    left[0] -= 1
    if left[0] < 0:
        raise _wrong(at, f"a pattern holds at most {MAX_ENTRIES} values")
    if depth > MAX_DEPTH:
        raise _wrong(at, f"values stand in each other at most {MAX_DEPTH} deep")
    if written is None or isinstance(written, bool | int | float):
        return Same(written)
    if isinstance(written, str):
        return read_text(written, at)
    if isinstance(written, list | tuple):
        return OneOf(tuple(_read(entry, f"{at}[{n}]", depth + 1, left) for n, entry in enumerate(written)))
    if isinstance(written, dict):
        return Fields(tuple(_rule(key, entry, at, depth, left) for key, entry in written.items()))
    raise _wrong(at, f"a pattern is a JSON value, not {type(written).__name__}")


def _rule(key: Any, written: Any, at: str, depth: int, left: list[int]) -> Rule:
    if not isinstance(key, str) or len(key) > MAX_LENGTH:
        raise _wrong(at, f"a key is a string of at most {MAX_LENGTH} characters")
    pattern = _read(written, f"{at}.{key}", depth + 1, left)
    if key == "**":
        return Rule(Anywhere(), pattern)
    if key.startswith("$"):
        try:
            path = jsonpath.parse(key)
        except jsonpath.NotPath as error:
            raise _wrong(f"{at}.{key}", f"no JSONPath that can be followed: {error}") from None
        return _along(path, pattern)
    if globs.is_glob(key):
        return Rule(Names(_automaton(key, False, f"{at}.{key}")), pattern)
    return Rule(Name(key), pattern)


def _along(path: jsonpath.Path, pattern: Pattern) -> Rule:
    """A path of plain names says what objects in objects say: then the two can be compared."""
    names = [step.key for step in path if isinstance(step.key, str) and not step.deep]
    if not names or len(names) < len(path):
        return Rule(At(path), pattern)
    rule = Rule(Name(names[-1]), pattern)
    for name in reversed(names[:-1]):
        rule = Rule(Name(name), Fields((rule,)))
    return rule


def read_text(written: str, at: str, *, loose: bool = False) -> Text:
    """The pattern that a string is. Raises `RequestError`."""
    if len(written) > MAX_LENGTH:
        raise _wrong(at, f"a pattern is at most {MAX_LENGTH} characters long, not {len(written)}")
    if written.startswith("!"):
        if written == "!":
            raise _wrong(at, "'!' must be followed by what is not allowed")
        return Not(read_text(written[1:], at, loose=not loose))
    if loose or globs.is_glob(written) or is_regex(written):
        return Texts(_automaton(written, loose, at))
    return Word(written)


def is_regex(written: str) -> bool:
    """`/` and `//` are paths: read as expressions they would allow everything."""
    return len(written) > 2 and written.startswith("/") and written.endswith("/")


def _automaton(written: str, loose: bool, at: str) -> Automaton:
    try:
        return _made(written, loose)
    except regex.NotRegular as error:
        raise _wrong(at, f"{written!r} is no regular expression that can be decided in time: {error}") from None
    except globs.NotGlob as error:
        raise _wrong(at, f"{written!r} is no glob: {error}") from None
    except TooLarge:
        raise _wrong(at, f"{written!r} is too large: at most {MAX_SIZE} characters, repetitions written out") from None


@lru_cache(maxsize=256)
def _made(written: str, loose: bool) -> Automaton:
    return Automaton(regex.parse(written[1:-1]) if is_regex(written) else globs.parse(written, loose))


# --- allowing


def allows(pattern: Pattern, value: Any, steps: Steps) -> bool:
    """Whether the pattern allows the JSON value. Raises `OutOfSteps`."""
    steps.spend()
    match pattern:
        case Word(text):
            return isinstance(value, str) and value == text
        case Texts(automaton):
            return isinstance(value, str) and automaton.matches(value, steps)
        case Not(of):
            return isinstance(value, str) and not allows(of, value, steps)
        case OneOf(options):
            return any(allows(option, value, steps) for option in options)
        case Fields(rules):
            return isinstance(value, dict) and all(
                any(allows(rule.pattern, found, steps) for found in _found(rule.where, value, steps)) for rule in rules
            )
        case Same(own):
            if isinstance(own, bool) or isinstance(value, bool) or own is None:
                return own is value
            return isinstance(value, int | float) and bool(own == value)


def _found(where: Where, value: dict[str, Any], steps: Steps) -> Iterator[Any]:
    match where:
        case Name(key):
            if key in value:
                yield value[key]
        case Names(automaton):
            yield from (entry for key, entry in value.items() if automaton.matches(key, steps))
        case Anywhere():
            yield from jsonpath.inside(value, steps)
        case At(path):
            yield from jsonpath.select(path, value, steps)
