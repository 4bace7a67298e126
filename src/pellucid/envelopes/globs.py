"""Globs, read into trees: `*` and `?` within a segment between slashes, `**` across them, `\\` before what is meant so.

As micromatch reads them, whom MEW's capabilities are written for: `**` crosses slashes only where it is a whole segment
(`a/**` is also `a`), `*` stands for at least one character where it is. Braces, brackets and parentheses, to which it
gives meanings of their own, are refused where it would: a list or a regular expression says it better.

A wildcard never lets a hidden segment in: it does not begin one that begins with a dot (so `/public/**` is not
`/public/../etc`). Under a negation (`loose`) it never lets one out: there it does, and a slash at the end changes
nothing.
"""

from __future__ import annotations

from .syntax import EMPTY, Chars, Either, Many, Seq, Tree, one_of, optional, without

_SLASH = Chars(one_of("/"))
_INSIDE = Chars(without(one_of("/")))
_FIRST = Chars(without(one_of("/.")))
_STAR, _ONE = "*", "?"
_SPECIAL = "[{("


class NotGlob(ValueError):
    """What is written there, and what is not possible about it."""


def is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def parse(source: str, loose: bool = False) -> Tree:
    """The texts that the glob matches. Raises `NotGlob`."""
    segments = [_tokens(segment) for segment in _split(source)]
    parts: list[Tree] = []
    pending = False  # whether a slash comes before the next segment
    for number, tokens in enumerate(segments):
        last = number == len(segments) - 1
        if tokens == [_STAR, _STAR]:
            across = _across(loose)
            if not last:  # `**/`: any number of segments, each with its slash
                parts.append(_SLASH if pending else EMPTY)
                parts.append(optional(Seq((across, _SLASH))))
                pending = False
            elif pending:  # `a/**`: also `a` itself
                parts.append(optional(Seq((_SLASH, across))))
            else:
                parts.append(across)
            continue
        if pending:
            parts.append(_SLASH)
        parts.append(_segment(tokens, loose))
        pending = True
    if loose:
        parts.append(optional(_SLASH))
    return Seq(tuple(parts))


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


def _across(loose: bool) -> Tree:
    one = Many(_INSIDE) if loose else optional(Seq((_FIRST, Many(_INSIDE))))
    return Seq((one, Many(Seq((_SLASH, one)))))


def _segment(tokens: list[str], loose: bool) -> Tree:
    plain = [_plain(token) for token in tokens]
    if tokens == [_STAR] and not loose:
        return Seq((_FIRST, Many(_INSIDE)))
    if loose or not tokens or tokens[0] not in (_STAR, _ONE):
        return Seq(tuple(plain))
    if tokens[0] == _ONE:
        return Seq((_FIRST, *plain[1:]))
    some = Seq((_FIRST, Many(_INSIDE), *plain[1:]))
    if tokens[1] in (".", "\\."):
        return some
    none = (_FIRST if tokens[1] == _ONE else plain[1], *plain[2:])
    return Either((some, Seq(none)))


def _plain(token: str) -> Tree:
    if token == _STAR:
        return Many(_INSIDE)
    return _INSIDE if token == _ONE else Chars(one_of(token[-1]))
