r"""The pattern language of capabilities.

A pattern allows some JSON values, and may be compared with another one: whether it allows no more.

    "read_*"  "/^SELECT /"  "!delete_*"  ["a", "b"]  {"params": {"name": "x"}}  {"**": "x"}  {"$.params[*].name": "x"}

* A string allows the text itself. By its marks it is a glob, a regular expression between slashes (`regex`), or, after
  `!`, a negation that allows all other texts.
* An array allows what one of its entries allows.
* An object allows objects in which every named key is present with an allowed value. A key may be a glob (some key that
  it matches), `**` (at any depth) or a JSONPath (`jsonpath`).
* Numbers, booleans and null allow themselves.

The rules:

* What is absent is not allowed, not by a negation either. A text is only allowed as a string.
* The work is bounded: `allows`, `covers` and `are_disjoint` spend a `StepBudget` and raise `StepBudgetExceeded` when it
  is used up.
* `covers(wide, narrow)` decides simply and never says yes where no is true, so that no participant grants more than it
  has. A text pattern covers itself, single texts that it allows, and, if its only wildcard is at its end, the globs
  under it. A negation covers a wider negation, and globs that begin differently. Objects are compared rule by rule.

Globs are read like micromatch does, for which MEW's capabilities are written. `*` and `?` match within a segment
between slashes. `**` crosses slashes only if it is a whole segment (`a/**` also matches `a`). `*` matches at least one
character where it is a whole segment. A character after `\` stands for itself. Braces, brackets and parentheses, to
which micromatch gives meanings of their own, are refused where it would do so; a list or a regular expression expresses
the same. A wildcard never matches a hidden segment: it does not match a dot at the beginning of a segment (so
`/public/**` does not match `/public/../etc`). Under a negation (`loose`) it does match one, and a slash at the end
changes nothing, so that no hidden segment escapes a negation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ..errors import RequestError
from . import jsonpath
from .regex import Regex, RegexError, StepBudget

MAX_DEPTH = 16
MAX_LENGTH = 2_000
"""Maximum number of characters of one string."""
MAX_ENTRIES = 200
"""Maximum number of values in one pattern, with all inner values."""


class Scalar(msgspec.Struct, frozen=True):
    """Allows this number, boolean or null."""

    value: Any
    type: type
    """Its type. In Python, True equals 1."""


class AnyText(msgspec.Struct, frozen=True):
    """Allows every text."""


class ExactText(msgspec.Struct, frozen=True):
    """Allows one text."""

    text: str


class RegexText(msgspec.Struct, frozen=True):
    """Allows the texts of a glob or a regular expression."""

    regex: Regex
    glob: str | None = None
    """The glob as it is written; None for a regular expression or a negated glob."""
    prefix: str | None = None
    """The beginning that all its texts share. Only for globs."""


class Not(msgspec.Struct, frozen=True):
    """Allows every text that `of` does not allow."""

    of: TextPattern


class OneOf(msgspec.Struct, frozen=True):
    """Allows what one of the options allows."""

    options: tuple[ValuePattern, ...]


class ExactKey(msgspec.Struct, frozen=True):
    """The value of one key."""

    key: str


class KeyPattern(msgspec.Struct, frozen=True):
    """The value of every key that the glob matches."""

    texts: RegexText


class AnyDepth(msgspec.Struct, frozen=True):
    """The object itself and every value in it, at any depth."""


class AtPath(msgspec.Struct, frozen=True):
    """The values at a JSONPath."""

    path: jsonpath.Path


class FieldRule(msgspec.Struct, frozen=True):
    """Requires that some value at `where` is allowed by `pattern`."""

    where: Location
    pattern: ValuePattern


class ObjectPattern(msgspec.Struct, frozen=True):
    """Allows an object that meets every rule."""

    rules: tuple[FieldRule, ...]


TextPattern: TypeAlias = AnyText | ExactText | RegexText | Not | OneOf
"""A pattern of texts. Its `OneOf` has options of texts only."""
ValuePattern: TypeAlias = Scalar | TextPattern | ObjectPattern
Location: TypeAlias = ExactKey | KeyPattern | AnyDepth | AtPath


def invalid_capability(location: str, message: str) -> RequestError:
    """Build the error for a capability that is not valid."""
    return RequestError(f"{location}: {message}", code="invalid_capability", param=location)


# --- reading


def read_pattern(written: Any, location: str) -> ValuePattern:
    """Read a pattern.

    Args:
        written: The pattern, as a JSON value.
        location: Where it stands, for errors.

    Raises:
        RequestError: If it is not valid.
    """
    return _read_value(written, location, 0, [MAX_ENTRIES])


def _read_value(written: Any, location: str, depth: int, remaining_values: list[int]) -> ValuePattern:
    remaining_values[0] -= 1
    if remaining_values[0] < 0:
        raise invalid_capability(location, f"a pattern holds at most {MAX_ENTRIES} values")
    if depth > MAX_DEPTH:
        raise invalid_capability(location, f"a pattern is nested at most {MAX_DEPTH} deep")
    if written is None or isinstance(written, bool | int | float):
        return Scalar(written, type(written))
    if isinstance(written, str):
        return read_text_pattern(written, location)
    if isinstance(written, list | tuple):
        return OneOf(
            tuple(
                _read_value(entry, f"{location}[{n}]", depth + 1, remaining_values) for n, entry in enumerate(written)
            )
        )
    if isinstance(written, dict):
        return ObjectPattern(
            tuple(_read_rule(key, entry, location, depth, remaining_values) for key, entry in written.items())
        )
    raise invalid_capability(location, f"a pattern is a JSON value, not {type(written).__name__}")


def _read_rule(key: Any, written: Any, location: str, depth: int, remaining_values: list[int]) -> FieldRule:
    if not isinstance(key, str) or len(key) > MAX_LENGTH:
        raise invalid_capability(location, f"a key is a string of at most {MAX_LENGTH} characters")
    pattern = _read_value(written, f"{location}.{key}", depth + 1, remaining_values)
    if key == "**":
        return FieldRule(AnyDepth(), pattern)
    if key.startswith("$"):
        try:
            path = jsonpath.parse(key)
        except jsonpath.PathSyntaxError as error:
            raise invalid_capability(f"{location}.{key}", f"it is not a supported JSONPath: {error}") from None
        return _path_rule(path, pattern)
    if is_glob(key):
        return FieldRule(KeyPattern(_read_regex_text(key, False, f"{location}.{key}")), pattern)
    return FieldRule(ExactKey(key), pattern)


def _path_rule(path: jsonpath.Path, pattern: ValuePattern) -> FieldRule:
    """Return the rule of a JSONPath.

    A path of plain names becomes nested objects, so that it can be compared with them.
    """
    names = [step.key for step in path if isinstance(step.key, str) and not step.deep]
    if not names or len(names) < len(path):
        return FieldRule(AtPath(path), pattern)
    rule = FieldRule(ExactKey(names[-1]), pattern)
    for name in reversed(names[:-1]):
        rule = FieldRule(ExactKey(name), ObjectPattern((rule,)))
    return rule


def read_text_pattern(written: str, location: str, *, loose: bool = False) -> TextPattern:
    """Read a pattern that is a string.

    Raises:
        RequestError: If it is not valid.
    """
    if len(written) > MAX_LENGTH:
        raise invalid_capability(location, f"a pattern is at most {MAX_LENGTH} characters long, not {len(written)}")
    if written.startswith("!"):
        if written == "!":
            raise invalid_capability(location, "'!' must be followed by what is not allowed")
        return Not(read_text_pattern(written[1:], location, loose=not loose))
    if loose or is_glob(written) or is_regex(written):
        return _read_regex_text(written, loose, location)
    return ExactText(written)


def is_regex(written: str) -> bool:
    """Check whether the text is a regular expression.

    `/` and `//` are paths: as expressions they would allow everything.
    """
    return len(written) > 2 and written.startswith("/") and written.endswith("/")


def _read_regex_text(written: str, loose: bool, location: str) -> RegexText:
    try:
        return _compile_text(written, loose)
    except RegexError as error:
        raise invalid_capability(
            location, f"{written!r} is not a regular expression that can be decided in time: {error}"
        ) from None
    except GlobSyntaxError as error:
        raise invalid_capability(location, f"{written!r} is not a valid glob: {error}") from None


@lru_cache(maxsize=256)
def _compile_text(written: str, loose: bool) -> RegexText:
    if is_regex(written):
        return RegexText(Regex(written[1:-1]))
    return RegexText(Regex(glob_to_regex(written, loose)), None if loose else written, literal_prefix(written))


# --- allowing


def allows(pattern: ValuePattern, value: Any, steps: StepBudget) -> bool:
    """Check whether the pattern allows the JSON value.

    Raises:
        StepBudgetExceeded: If the budget is not enough.
    """
    steps.spend()
    match pattern:
        case ExactText(text):
            return isinstance(value, str) and value == text
        case AnyText():
            return isinstance(value, str)
        case RegexText(regex):
            return isinstance(value, str) and regex.matches(value, steps)
        case Not(of):
            return isinstance(value, str) and not allows(of, value, steps)
        case OneOf(options):
            return any(allows(option, value, steps) for option in options)
        case ObjectPattern(rules):
            return isinstance(value, dict) and all(
                any(allows(rule.pattern, candidate, steps) for candidate in _values_at(rule.where, value, steps))
                for rule in rules
            )
        case Scalar(expected, _):
            if isinstance(expected, bool) or isinstance(value, bool) or expected is None:
                return expected is value
            return isinstance(value, int | float) and bool(expected == value)


def _values_at(where: Location, value: dict[str, Any], steps: StepBudget) -> Iterator[Any]:
    match where:
        case ExactKey(key):
            if key in value:
                yield value[key]
        case KeyPattern(texts):
            yield from (entry for key, entry in value.items() if texts.regex.matches(key, steps))
        case AnyDepth():
            yield from jsonpath.walk(value, steps)
        case AtPath(path):
            yield from jsonpath.select(path, value, steps)


# --- covering


def covers(wide: ValuePattern, narrow: ValuePattern, steps: StepBudget) -> bool:
    """Check whether `wide` allows everything that `narrow` allows.

    Returns:
        False also if that cannot be decided.

    Raises:
        StepBudgetExceeded: If the budget is not enough.
    """
    steps.spend()
    if wide == narrow:
        return True
    match narrow:
        case OneOf(options):
            return all(covers(wide, option, steps) for option in options)
        case Scalar(value, _) | ExactText(value):
            return allows(wide, value, steps)
    match wide:
        case OneOf(options):
            return any(covers(option, narrow, steps) for option in options)
        case AnyText():
            return isinstance(narrow, RegexText | Not)
        case RegexText(glob=str(glob)):
            return isinstance(narrow, RegexText) and narrow.glob is not None and is_narrower_glob(narrow.glob, glob)
        case Not(of):
            return covers(narrow.of, of, steps) if isinstance(narrow, Not) else _disjoint(of, narrow)
        case ObjectPattern(rules):
            return isinstance(narrow, ObjectPattern) and all(_implies(rule, narrow, steps) for rule in rules)
    return False


def _disjoint(one: ValuePattern, other: ValuePattern) -> bool:
    """Check whether no text matches both patterns.

    Decides only globs of which neither prefix begins with the other's; False for all others.
    """
    if not (isinstance(one, RegexText) and isinstance(other, RegexText)) or one.prefix is None or other.prefix is None:
        return False
    return not (one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix))


def are_disjoint(one: ValuePattern, other: ValuePattern, steps: StepBudget) -> bool:
    """Check whether no value is allowed by both patterns.

    Returns:
        False also if that cannot be decided.

    Raises:
        StepBudgetExceeded: If the budget is not enough.
    """
    steps.spend()
    for first, second in ((one, other), (other, one)):
        match first:
            case OneOf(options):
                return all(are_disjoint(option, second, steps) for option in options)
            case Scalar(value, _) | ExactText(value):
                return not allows(second, value, steps)
    for first, second in ((one, other), (other, one)):
        if isinstance(first, ObjectPattern) and not isinstance(second, ObjectPattern):
            return True
        if isinstance(first, Not) and covers(first.of, second, steps):
            return True
    if isinstance(one, ObjectPattern) and isinstance(other, ObjectPattern):
        return any(
            isinstance(rule.where, ExactKey)
            and rule.where == second_rule.where
            and are_disjoint(rule.pattern, second_rule.pattern, steps)
            for rule in one.rules
            for second_rule in other.rules
        )
    return _disjoint(one, other)


def _implies(rule: FieldRule, narrow: ObjectPattern, steps: StepBudget) -> bool:
    """Check whether every object that `narrow` allows meets the rule."""
    if isinstance(rule.where, AnyDepth):
        return _contains(rule.pattern, narrow, steps)
    where, pattern = rule.where, rule.pattern
    return any(
        _covers_location(where, one.where, steps) and covers(pattern, one.pattern, steps) for one in narrow.rules
    )


def _covers_location(wide: ExactKey | KeyPattern | AtPath, narrow: Location, steps: StepBudget) -> bool:
    """Check whether every value at `narrow` is also at `wide`."""
    match wide, narrow:
        case KeyPattern(texts), ExactKey(key):
            return texts.regex.matches(key, steps)
        case KeyPattern(texts), KeyPattern(inner):
            return covers(texts, inner, steps)
        case (ExactKey(), ExactKey()) | (AtPath(), AtPath()):
            return wide == narrow
    return False


def _contains(pattern: ValuePattern, narrow: ValuePattern, steps: StepBudget) -> bool:
    """Check whether every value that `narrow` allows is, or contains, a value that the pattern allows."""
    if covers(pattern, narrow, steps):
        return True
    match narrow:
        case OneOf(options):
            return all(_contains(pattern, option, steps) for option in options)
        case ObjectPattern(rules):
            return any(_contains(pattern, rule.pattern, steps) for rule in rules)
    return False


# --- globs, as regular expressions


_SEGMENT_CHAR = "[^/]"
_FIRST_CHAR = "[^/.]"
_ANY_CHARS, _ANY_CHAR = "*", "?"
_UNSUPPORTED_CHARS = "[{("
_LITERAL_PREFIX = re.compile(r"[^*?\\]*")


class GlobSyntaxError(ValueError):
    """A glob that cannot be read, with the reason."""


def is_glob(text: str) -> bool:
    """Check whether a text has wildcards."""
    return "*" in text or "?" in text


def glob_to_regex(source: str, loose: bool = False) -> str:
    """Return the regular expression that matches the texts of the glob.

    Args:
        source: The glob.
        loose: Whether it stands under a negation.

    Raises:
        GlobSyntaxError: If the glob is not supported.
    """
    segments = [_tokens(segment) for segment in _split(source)]
    parts: list[str] = []
    pending = False  # whether a slash comes before the next segment
    for number, tokens in enumerate(segments):
        last = number == len(segments) - 1
        if tokens == [_ANY_CHARS, _ANY_CHARS]:
            across = _globstar_regex(loose)
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
        parts.append(_segment_regex(tokens, loose))
        pending = True
    return f"^(?:{''.join(parts)}){'/?' if loose else ''}$"


def is_narrower_glob(narrow: str, wide: str) -> bool:
    """Check whether every text of the glob `narrow` matches `wide`.

    Returns:
        False also if that is not decided: `wide` has a wildcard that is not at its end, or one of the globs has an
            escaped character.
    """
    prefix = wide.rstrip(_ANY_CHARS)
    if is_glob(prefix) or "\\" in wide or "\\" in narrow or not narrow.startswith(prefix):
        return False
    rest = narrow[len(prefix) :]
    begins_segment = not prefix or prefix.endswith("/")
    if begins_segment and wide[len(prefix) :] == _ANY_CHARS * 2:
        return not any(segment.startswith(".") for segment in rest.split("/"))
    if not rest or "/" in rest:
        return False
    # Within one segment. `**` alone would cross slashes; a wildcard does not match a dot at the segment's beginning.
    return not begins_segment or not (rest.startswith(".") or rest == "**")


def literal_prefix(source: str) -> str:
    """Return the beginning that all texts of the glob share."""
    prefix = _LITERAL_PREFIX.match(source)
    assert prefix is not None
    return prefix[0].removesuffix("/") if source.startswith(_ANY_CHARS * 2, prefix.end()) else prefix[0]


def _split(source: str) -> list[list[str]]:
    """Split a glob into segments of characters. An escaped character has its backslash before it."""
    segments: list[list[str]] = [[]]
    characters = iter(source)
    for char in characters:
        if char == "/":
            segments.append([])
        elif char == "\\":
            escaped = next(characters, None)
            if escaped is None:
                raise GlobSyntaxError("it ends with a `\\` that escapes nothing")
            segments[-1].append("\\" + escaped)
        elif char in _UNSUPPORTED_CHARS:
            raise GlobSyntaxError(
                f"`{char}` has no meaning in a glob; write a list, a /regular expression/, or `\\{char}`"
            )
        else:
            segments[-1].append(char)
    return segments


def _tokens(segment: list[str]) -> list[str]:
    """Merge neighbouring stars of a segment that has other characters, too."""
    if segment == [_ANY_CHARS, _ANY_CHARS]:
        return segment
    return [
        token for n, token in enumerate(segment) if not (token == _ANY_CHARS and n and segment[n - 1] == _ANY_CHARS)
    ]


def _globstar_regex(loose: bool) -> str:
    one = f"{_SEGMENT_CHAR}*" if loose else f"(?:{_FIRST_CHAR}{_SEGMENT_CHAR}*)?"
    return f"{one}(?:/{one})*"


def _segment_regex(tokens: list[str], loose: bool) -> str:
    plain = [_token_regex(token) for token in tokens]
    if tokens == [_ANY_CHARS] and not loose:
        return f"{_FIRST_CHAR}{_SEGMENT_CHAR}*"
    if loose or not tokens or tokens[0] not in (_ANY_CHARS, _ANY_CHAR):
        return "".join(plain)
    rest = "".join(plain[1:])
    if tokens[0] == _ANY_CHAR:
        return _FIRST_CHAR + rest
    some = f"{_FIRST_CHAR}{_SEGMENT_CHAR}*{rest}"
    if tokens[1] in (".", "\\."):
        return some
    none = (_FIRST_CHAR if tokens[1] == _ANY_CHAR else plain[1]) + "".join(plain[2:])
    return f"(?:{some}|{none})"


def _token_regex(token: str) -> str:
    if token == _ANY_CHARS:
        return f"{_SEGMENT_CHAR}*"
    return _SEGMENT_CHAR if token == _ANY_CHAR else re.escape(token[-1])
