"""Globs, as regular expressions: `*` and `?` within a segment between slashes, `**` across them, `\\` before what is
meant as it stands.

As micromatch reads them, for which MEW's capabilities are written: `**` crosses slashes only where it is a whole
segment (`a/**` is also `a`), `*` stands for at least one character where it is. Braces, brackets and parentheses, to
which it gives meanings of their own, are refused where it would: a list or a regular expression says it better.

A wildcard never lets a hidden segment in: it does not begin one that begins with a dot (so `/public/**` is not
`/public/../etc`). Under a negation (`loose`) it never lets one out: there it does, and a slash at the end changes
nothing.
"""

from __future__ import annotations

import re

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
