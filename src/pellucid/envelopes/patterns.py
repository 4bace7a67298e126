"""The pattern language of capabilities: which JSON values a pattern allows, and which patterns allow no more than
another.

    "read_*"  "/^SELECT /"  "!delete_*"  ["a", "b"]  {"params": {"name": "x"}}  {"**": "x"}  {"$.params[*].name": "x"}

A string allows the text itself, or, by its marks, those of a glob, of a regular expression between slashes
(`regex`), or all texts but those after `!`. An array allows what one of its entries does; an object allows objects in
which every key it names is there, with an allowed value. A key may be a glob (some key that it matches), `**` (at any
depth) or a JSONPath (`jsonpath`). Numbers, booleans and null allow themselves. The rules:

* What is not there is not allowed, by a negation either; and a text is allowed by nothing but a string.
* No pattern makes anybody wait: `allows` and `covers` spend `Steps`, and raise `OutOfSteps` when there are none left.
* `covers(wide, narrow)` decides simply, so that nobody grants what they do not have: it never says yes where no is
  true. A text pattern covers itself, single texts that it allows, and, where it ends with its one wildcard, the globs
  under it; a negation covers a negation of more, and globs that begin differently; an object is compared rule by rule.

Globs are as micromatch reads them, for which MEW's capabilities are written: `*` and `?` stand within a segment between
slashes, `**` crosses slashes only where it is a whole segment (`a/**` is also `a`), `*` stands for at least one
character where it is; and what comes after `\\` is meant as it stands. Braces, brackets and parentheses, to which
micromatch gives meanings of their own, are refused where it would: a list or a regular expression says it better. A
wildcard never lets a hidden segment in: it does not begin one that begins with a dot (so `/public/**` is not
`/public/../etc`). Under a negation (`loose`) it never lets one out: there it does, and a slash at the end changes
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ..errors import RequestError
from . import jsonpath
from .regex import NotRegular, Regex, Steps

MAX_DEPTH = 16
MAX_LENGTH = 2_000
"""Characters of one string."""
MAX_ENTRIES = 200
"""Values of one pattern, all that are in it counted."""


class Same(msgspec.Struct, frozen=True):
    """The number, boolean or null itself."""

    value: Any
    type: type
    """Its type: to Python, true is 1."""


class AnyText(msgspec.Struct, frozen=True):
    """Every text."""


class Word(msgspec.Struct, frozen=True):
    """The text itself."""

    text: str


class Texts(msgspec.Struct, frozen=True):
    """The texts of a glob or a regular expression."""

    regex: Regex
    glob: str | None = None
    """As it is written, where it is one that is not negated."""
    prefix: str | None = None
    """What all of them begin with; of a glob only."""


class Not(msgspec.Struct, frozen=True):
    """Every other text."""

    of: Text


class OneOf(msgspec.Struct, frozen=True):
    options: tuple[Pattern, ...]


class Name(msgspec.Struct, frozen=True):
    key: str


class Names(msgspec.Struct, frozen=True):
    """Every key that the glob matches."""

    texts: Texts


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


Text: TypeAlias = AnyText | Word | Texts | Not | OneOf
"""A `OneOf` of texts only."""
Pattern: TypeAlias = Same | Text | Fields
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
        return Same(written, type(written))
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
    if is_glob(key):
        return Rule(Names(_texts(key, False, f"{at}.{key}")), pattern)
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
    if loose or is_glob(written) or is_regex(written):
        return _texts(written, loose, at)
    return Word(written)


def is_regex(written: str) -> bool:
    """`/` and `//` are paths: read as expressions they would allow everything."""
    return len(written) > 2 and written.startswith("/") and written.endswith("/")


def _texts(written: str, loose: bool, at: str) -> Texts:
    try:
        return _compiled(written, loose)
    except NotRegular as error:
        raise _wrong(at, f"{written!r} is no regular expression that can be decided in time: {error}") from None
    except NotGlob as error:
        raise _wrong(at, f"{written!r} is no glob: {error}") from None


@lru_cache(maxsize=256)
def _compiled(written: str, loose: bool) -> Texts:
    if is_regex(written):
        return Texts(Regex(written[1:-1]))
    return Texts(Regex(to_regex(written, loose)), None if loose else written, literal_prefix(written))


# --- allowing


def allows(pattern: Pattern, value: Any, steps: Steps) -> bool:
    """Whether the pattern allows the JSON value. Raises `OutOfSteps`."""
    steps.spend()
    match pattern:
        case Word(text):
            return isinstance(value, str) and value == text
        case AnyText():
            return isinstance(value, str)
        case Texts(regex):
            return isinstance(value, str) and regex.matches(value, steps)
        case Not(of):
            return isinstance(value, str) and not allows(of, value, steps)
        case OneOf(options):
            return any(allows(option, value, steps) for option in options)
        case Fields(rules):
            return isinstance(value, dict) and all(
                any(allows(rule.pattern, found, steps) for found in _found(rule.where, value, steps)) for rule in rules
            )
        case Same(own, _):
            if isinstance(own, bool) or isinstance(value, bool) or own is None:
                return own is value
            return isinstance(value, int | float) and bool(own == value)


def _found(where: Where, value: dict[str, Any], steps: Steps) -> Iterator[Any]:
    match where:
        case Name(key):
            if key in value:
                yield value[key]
        case Names(texts):
            yield from (entry for key, entry in value.items() if texts.regex.matches(key, steps))
        case Anywhere():
            yield from jsonpath.inside(value, steps)
        case At(path):
            yield from jsonpath.select(path, value, steps)


# --- covering


def covers(wide: Pattern, narrow: Pattern, steps: Steps) -> bool:
    """Whether `wide` allows whatever `narrow` does; False also where that is not decided. Raises `OutOfSteps`."""
    steps.spend()
    if wide == narrow:
        return True
    match narrow:
        case OneOf(options):
            return all(covers(wide, option, steps) for option in options)
        case Same(value, _) | Word(value):
            return allows(wide, value, steps)
    match wide:
        case OneOf(options):
            return any(covers(option, narrow, steps) for option in options)
        case AnyText():
            return isinstance(narrow, Texts | Not)
        case Texts(glob=str(glob)):
            return isinstance(narrow, Texts) and narrow.glob is not None and narrows(narrow.glob, glob)
        case Not(of):
            return covers(narrow.of, of, steps) if isinstance(narrow, Not) else _disjoint(of, narrow)
        case Fields(rules):
            return isinstance(narrow, Fields) and all(_implied(rule, narrow, steps) for rule in rules)
    return False


def _disjoint(one: Pattern, other: Pattern) -> bool:
    """Whether no text is one of both: globs of which neither's prefix begins the other's. False also if not decided."""
    if not (isinstance(one, Texts) and isinstance(other, Texts)) or one.prefix is None or other.prefix is None:
        return False
    return not (one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix))


def _implied(rule: Rule, given: Fields, steps: Steps) -> bool:
    """Whether every object that `given` allows keeps the rule."""
    if isinstance(rule.where, Anywhere):
        return _somewhere(rule.pattern, given, steps)
    where, pattern = rule.where, rule.pattern
    return any(_reaches(where, one.where, steps) and covers(pattern, one.pattern, steps) for one in given.rules)


def _reaches(wide: Name | Names | At, narrow: Where, steps: Steps) -> bool:
    """Whether what stands at `narrow` stands at `wide`."""
    match wide, narrow:
        case Names(texts), Name(key):
            return texts.regex.matches(key, steps)
        case Names(texts), Names(inner):
            return covers(texts, inner, steps)
        case (Name(), Name()) | (At(), At()):
            return wide == narrow
    return False


def _somewhere(pattern: Pattern, given: Pattern, steps: Steps) -> bool:
    """Whether whatever `given` allows holds, or is, something that the pattern allows."""
    if covers(pattern, given, steps):
        return True
    match given:
        case OneOf(options):
            return all(_somewhere(pattern, option, steps) for option in options)
        case Fields(rules):
            return any(_somewhere(pattern, rule.pattern, steps) for rule in rules)
    return False


# --- globs, as regular expressions


_INSIDE = "[^/]"
_FIRST = "[^/.]"
_STAR, _ONE = "*", "?"
_SPECIAL = "[{("
_LITERAL = re.compile(r"[^*?\\]*")


class NotGlob(ValueError):
    """What is written there, and what is not possible about it."""


def is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def to_regex(source: str, loose: bool = False) -> str:
    """The regular expression that is found in the texts that the glob matches. Raises `NotGlob`."""
    segments = [_tokens(segment) for segment in _split(source)]
    parts: list[str] = []
    pending = False  # whether a slash comes before the next segment
    for number, tokens in enumerate(segments):
        last = number == len(segments) - 1
        if tokens == [_STAR, _STAR]:
            across = _across(loose)
            if not last:  # `**/`: any number of segments, each with its slash
                parts.append("/" if pending else "")
                parts.append(f"(?:{across}/)?")
                pending = False
            elif pending:  # `a/**`: also `a` itself
                parts.append(f"(?:/{across})?")
            else:
                parts.append(across)
            continue
        if pending:
            parts.append("/")
        parts.append(_segment(tokens, loose))
        pending = True
    return f"^(?:{''.join(parts)}){'/?' if loose else ''}$"


def narrows(narrow: str, wide: str) -> bool:
    """Whether every text of the glob `narrow` is one of `wide`, where `wide` has one wildcard, at its end.

    False also where that is not decided: `wide` has other wildcards, or one of them takes a character as it stands.
    """
    prefix = wide.rstrip(_STAR)
    if is_glob(prefix) or "\\" in wide or "\\" in narrow or not narrow.startswith(prefix):
        return False
    rest = narrow[len(prefix) :]
    begins_segment = not prefix or prefix.endswith("/")
    if begins_segment and wide[len(prefix) :] == _STAR * 2:
        return not any(segment.startswith(".") for segment in rest.split("/"))
    if not rest or "/" in rest:
        return False
    # Within one segment. `**` alone would cross slashes; a wildcard stands for no dot at its beginning.
    return not begins_segment or not (rest.startswith(".") or rest == "**")


def literal_prefix(source: str) -> str:
    """What every text of the glob begins with."""
    prefix = _LITERAL.match(source)
    assert prefix is not None
    return prefix[0].removesuffix("/") if source.startswith(_STAR * 2, prefix.end()) else prefix[0]


def _split(source: str) -> list[list[str]]:
    """The segments, as characters; one that was taken as it is has its backslash before it."""
    segments: list[list[str]] = [[]]
    characters = iter(source)
    for char in characters:
        if char == "/":
            segments.append([])
        elif char == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise NotGlob("it ends with a `\\` that takes nothing as it is")
            segments[-1].append("\\" + escaped)
        elif char in _SPECIAL:
            raise NotGlob(f"`{char}` has no meaning in a glob; write a list, a /regular expression/, or `\\{char}`")
        else:
            segments[-1].append(char)
    return segments


def _tokens(segment: list[str]) -> list[str]:
    """Stars beside other characters are as good as one."""
    if segment == [_STAR, _STAR]:
        return segment
    return [token for n, token in enumerate(segment) if not (token == _STAR and n and segment[n - 1] == _STAR)]


def _across(loose: bool) -> str:
    one = f"{_INSIDE}*" if loose else f"(?:{_FIRST}{_INSIDE}*)?"
    return f"{one}(?:/{one})*"


def _segment(tokens: list[str], loose: bool) -> str:
    plain = [_plain(token) for token in tokens]
    if tokens == [_STAR] and not loose:
        return f"{_FIRST}{_INSIDE}*"
    if loose or not tokens or tokens[0] not in (_STAR, _ONE):
        return "".join(plain)
    rest = "".join(plain[1:])
    if tokens[0] == _ONE:
        return _FIRST + rest
    some = f"{_FIRST}{_INSIDE}*{rest}"
    if tokens[1] in (".", "\\."):
        return some
    none = (_FIRST if tokens[1] == _ONE else plain[1]) + "".join(plain[2:])
    return f"(?:{some}|{none})"


def _plain(token: str) -> str:
    if token == _STAR:
        return f"{_INSIDE}*"
    return _INSIDE if token == _ONE else re.escape(token[-1])
