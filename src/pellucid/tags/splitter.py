"""Split streamed text with reasoning markers into reasoning and answer.

The rules:

1. Any division of the text into pieces gives the same spans, once neighbours of one kind are joined.
2. The texts of all spans, in order, are the input, character for character. Markers, stripped white space and
   dropped tokens have spans of their own, so history can be sent back unchanged.
3. Text is held back only while its meaning may change: a proper prefix of a live marker, white space that a
   marker would strip, a token that is dropped only at the end of the output and, with `auto`, the undecided
   beginning (up to a limit).
4. The first closing marker closes. There is no nesting: an opening marker inside reasoning is reasoning.
5. A block without reasoning text is not a block: it becomes one `drop` span.
6. A leading opening marker opens reasoning. One inside the answer is answer, unless `position` is `anywhere`;
   inside backticks and fences it is always answer.
7. If the input ends inside reasoning, everything there is reasoning, and `truncated` is set.
8. White space is stripped after the opening marker, before the closing marker, and, as whole blank lines, after
   the closing marker. Text that does not touch a marker is left as it is.

The splitter has no clock and does no I/O. The work is linear: text is scanned once, except a held prefix, which is
shorter than the longest marker, and an undecided beginning, which is scanned twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from pellucid.tags.families import WHITESPACE, Family, ImplicitStart, Position
from pellucid.tags.families import family as find_family

OPEN = "open"
"""Reasoning begins. The text is the opening marker with the white space around it; `""` for an implicit start."""
THINKING = "thinking"
"""Reasoning text."""
CLOSE = "close"
"""Reasoning ends. The text is the closing marker with the stripped white space; `""` if a tool marker ended it."""
TEXT = "text"
"""Answer text, tool markers included."""
DROP = "drop"
"""Neither reasoning nor answer: empty blocks, stray closing markers, wrappers, end-of-sequence tokens."""
TOOL = "tool"
"""A tool call begins (harmony only). The text is its recipient, and not part of the input's text."""
TOOL_ARGS = "tool_args"
"""A piece of a tool call's arguments (harmony only)."""
TOOL_END = "tool_end"
"""A tool call ends (harmony only). The text is its end token; `""` if there was none."""


class Span(NamedTuple):
    """A piece of the input and its kind. Unpacks as `kind, text`."""

    kind: str
    text: str


_Scan: TypeAlias = "Callable[..., re.Match[str] | None]"
_WHITESPACE_RUN = re.compile(f"[{WHITESPACE}]*")
_TICKS = re.compile("`+")
_QUOTES = frozenset("\"'“‘«„‹")
_OUTSIDE_STRINGS = frozenset("\t\r\n]}")  # characters before a marker that is outside JSON strings


def prefix_pattern(markers: Iterable[str]) -> str:
    """Return the source of a regular expression for the proper prefixes of `markers`; `""` if there are none."""
    trie: dict[str, list[str]] = {}
    for marker in markers:
        if len(marker) > 1:
            trie.setdefault(marker[0], []).append(marker[1:])
    branches = []
    for first, rest in trie.items():
        suffixes = prefix_pattern(rest)
        branches.append(re.escape(first) + (f"(?:{suffixes})?" if suffixes else ""))
    return "|".join(branches)


def marker_pattern(roles: dict[str, tuple[str, ...]], **extra: str) -> re.Pattern[str]:
    """Return a pattern that finds the leftmost live marker, as a group named by its role, or else `part`.

    `part` is the longest suffix that may be the beginning of a marker. A marker that begins with another marker is left
    out: the shorter one is complete first, and text must mean the same however it is cut into pieces. Without any
    marker, the pattern never matches.

    Args:
        roles: The markers of each role.
        **extra: Roles given as regular expression sources.
    """
    all_markers = {marker for markers in roles.values() for marker in markers}
    roles = {
        role: tuple(m for m in markers if not any(m != other and m.startswith(other) for other in all_markers))
        for role, markers in roles.items()
    }
    groups = [
        f"(?P<{role}>{'|'.join(re.escape(marker) for marker in markers)})" for role, markers in roles.items() if markers
    ]
    groups += [f"(?P<{role}>{source})" for role, source in extra.items()]
    prefixes = prefix_pattern(marker for markers in roles.values() for marker in markers)
    if prefixes:
        groups.append(rf"(?P<part>(?:{prefixes})\Z)")
    return re.compile("|".join(groups) if groups else "(?!)")


class _Patterns:
    """The patterns of one family and position, compiled once. Index -1 is the implicit start."""

    __slots__ = (
        "after",
        "anywhere",
        "fence",
        "inline",
        "opening",
        "pair_of",
        "quick_fence",
        "quick_inline",
        "quick_text",
        "quick_thinking",
        "seed",
        "start",
        "text",
        "thinking",
        "trail",
        "undecided",
    )

    def __init__(self, family: Family, position: Position) -> None:
        starts, ends, trailers = family.starts, family.ends, family.trailers
        answer = {"answer": family.answer_starts, "structural": family.structural}
        breaks = {"line": family.breaks, "special": family.special_breaks, "trail": trailers}
        self.anywhere = position == "anywhere"
        self.pair_of = {marker: i for i, pair in enumerate(family.pairs) for marker in pair.starts}

        self.start: _Scan = marker_pattern({"open": starts, "end": ends, **answer}).match
        self.undecided: _Scan = marker_pattern(
            {"open": starts, "end": ends, "special": family.special_breaks, **answer}
        ).search
        again = starts if self.anywhere else ()
        self.after: _Scan = marker_pattern({"open": again, "end": ends, **answer}).match
        # A closing marker that is also structural ends every message: in the answer it is not a stray one.
        strays = tuple(marker for marker in ends if marker not in family.structural)
        in_text = {"open": starts, "end": strays, "structural": family.structural, "trail": trailers}
        self.text: _Scan = marker_pattern(in_text, tick="`+").search
        # Inside code only the end of the output counts. A span in single or double backticks ends with its
        # line at the latest, so that a lone backtick does not hide the rest of the answer.
        on_line = tuple(marker for marker in trailers if not marker.startswith("\n"))
        self.inline: _Scan = marker_pattern({"trail": on_line}, tick="`+", newline=r"(?=\n)").search
        self.fence: _Scan = marker_pattern({"trail": trailers}, tick="`+").search
        self.trail: _Scan = marker_pattern({"trail": trailers}).match
        self.seed: Callable[[str], Iterator[re.Match[str]]] = marker_pattern(
            {"open": starts, "end": ends, **answer}
        ).finditer
        self.opening: list[_Scan] = []
        self.thinking: list[_Scan] = []
        for pair in family.pairs:
            self.opening.append(marker_pattern({"end": pair.ends, **breaks}).match)
            self.thinking.append(marker_pattern({"end": pair.ends, **breaks}).search)
        self.opening.append(marker_pattern({"end": ends, "open": starts, **breaks, **answer}).match)
        self.thinking.append(marker_pattern({"end": ends, **breaks}).search)

        self.quick_text = _first_char_search(("`",), *in_text.values())
        self.quick_inline = _first_char_search(("`", "\n"), trailers)
        self.quick_fence = _first_char_search(("`",), trailers)
        self.quick_thinking = _first_char_search((), ends, *breaks.values(), tail=rf"|[{WHITESPACE}]\Z")


def _first_char_search(*groups: tuple[str, ...], tail: str = "") -> _Scan:
    """Return a search for the first character of any live marker. Text without one needs no closer look."""
    firsts = {marker[0] for group in groups for marker in group}
    return re.compile("[" + "".join(re.escape(first) for first in sorted(firsts)) + "]" + tail).search


_patterns = lru_cache(maxsize=256)(_Patterns)


class Splitter:
    """A state machine that splits text into spans: `feed` text, then `end` once.

    Args:
        family: A row's name, a (start, end) pair of markers, or a `Family`.
        implicit_start: Overrides the family's; `never`, `always` or `auto` (case 4: prefilled opening marker).
        position: Overrides the family's; `start` or `anywhere` (cases 8 and 10: markers inside the answer).
        thinking: Whether the request switched thinking on; decides if the family's `implicit_start` is `thinking`.
        prefill: The part of the assistant turn that is in the prompt, with or without the template's header
            (case 19). If it is not blank, it decides how the output starts, and `implicit_start` is ignored.
        stray: `drop` removes a closing marker from the answer after a closed block (case 11), unless it is quoted,
            in code, or has an opening marker in the answer, or the answer begins like JSON. `keep` leaves it in.
            Both set `stray_close`.
        max_undecided_chars: With `auto`, how many characters are held back before they are taken as answer.

    Attributes:
        truncated: Whether the input ended inside reasoning (case 6: unclosed block).
        stray_close: Whether a closing marker came with nothing to close (cases 5 and 11).
    """

    __slots__ = (
        "_code_ticks",
        "_ended",
        "_has_closed",
        "_is_final",
        "_is_json",
        "_is_marked",
        "_kind",
        "_last_text",
        "_literal_openings",
        "_max_undecided_chars",
        "_may_open_explicitly",
        "_pair",
        "_patterns",
        "_pending",
        "_quick",
        "_span_pieces",
        "_state",
        "_stray",
        "_trailers",
        "_trailing_ticks",
        "_undecided_chars",
        "_undecided_pieces",
        "_whitespace",
        "family",
        "stray_close",
        "truncated",
    )

    def __init__(
        self,
        family: Family | str | tuple[str, str] = "think",
        *,
        implicit_start: ImplicitStart | None = None,
        position: Position | None = None,
        thinking: bool = True,
        prefill: str = "",
        stray: Literal["drop", "keep"] = "drop",
        max_undecided_chars: int = 65_536,
    ) -> None:
        self.family = find_family(family)
        self.truncated = False
        self.stray_close = False
        self._patterns = _patterns(self.family, position or self.family.position)
        self._stray = stray
        self._max_undecided_chars = max_undecided_chars
        self._ended = False
        self._is_final = False  # inside end() or pause(): a proper prefix can no longer become a marker
        self._quick: _Scan | None = None  # set while nothing is held back: finds text that needs more than release
        self._kind = TEXT  # the span kind of a quick release
        self._pending = ""  # the proper prefix of a live marker that ends the input so far
        self._span_pieces: list[str] = []  # the text of the open, close or drop span that is being collected
        self._whitespace: list[str] = []  # white space that a marker may strip
        self._trailers: list[str] = []  # trailers that are dropped if nothing but an end follows
        self._undecided_pieces: list[str] = []  # the undecided beginning
        self._undecided_chars = 0
        self._pair = -1  # the pair whose end markers close; -1: any
        self._may_open_explicitly = False  # inside an implicit start: the model may still write the opening marker
        self._is_marked = False  # a marker opened the reasoning block
        self._has_closed = False  # a block was closed, or a marker began the answer
        self._is_json = False  # the answer begins like JSON: it stays byte-exact
        self._literal_openings = 0  # opening markers in the answer's text that have no closing marker yet
        self._code_ticks = 0  # length of the backtick run that opened the current code
        self._trailing_ticks = 0  # backticks at the end of the answer so far: a run that may continue
        self._last_text = ""  # the last piece of the answer

        choice = implicit_start or self.family.implicit_start
        if choice == "thinking":
            choice = "always" if thinking else "never"
        self._state: Callable[[Splitter, str, int, list[Span]], int] = _at_start
        if prefill.strip(WHITESPACE):
            self._apply_prefill(prefill, position or self.family.position)
        elif choice == "always":
            self._state, self._may_open_explicitly = _opening, True
        elif choice == "auto":
            self._state = _undecided

    @property
    def in_reasoning(self) -> bool:
        """Whether the next text, as far as is known, is reasoning."""
        return self._state is _opening or self._state is _thinking

    def feed(self, text: str) -> list[Span]:
        """Read the next piece of text.

        Returns:
            The spans that are certain so far, in order.

        Raises:
            RuntimeError: `end` was called.
        """
        quick = self._quick
        if quick is not None and quick(text) is None:
            if not text:
                return []
            self._last_text = text
            return [Span(self._kind, text)]
        if self._ended:
            raise RuntimeError("feed() after end()")
        out: list[Span] = []
        if text:
            self._process(self._pending + text, out)
            self._choose_fast_path()
        return out

    @property
    def find_special(self) -> Callable[[str], object] | None:
        """A search for anything in the next piece of text that prevents its release as it is.

        None if no text may be released unread.
        """
        return self._quick

    def skip(self, text: str) -> None:
        """Replace `feed` for text in which `find_special` finds nothing, so that its result is known."""
        if text:
            self._last_text = text

    def pause(self) -> list[Span]:
        """Release the held text, as `end` does, but continue. Called before a tool call that comes outside the text.

        A marker that a pause cuts in two is not a marker.
        """
        out: list[Span] = []
        if not self._ended:
            self._flush(out)
            self._choose_fast_path()
        return out

    def end(self) -> list[Span]:
        """End the input and return the remaining spans. A second call returns nothing."""
        if self._ended:
            return []
        out: list[Span] = []
        self._flush(out)
        self.truncated = self._state is _thinking or (self._state is _opening and self._is_marked)
        self._quick = None
        self._ended = True
        return out

    def _process(self, buf: str, out: list[Span]) -> None:
        self._pending = ""
        pos, size = 0, len(buf)
        while pos < size:
            pos = self._state(self, buf, pos, out)

    def _choose_fast_path(self) -> None:
        """Choose the fast path for the next piece, if nothing is held back."""
        self._quick = None
        if self._pending or self._trailers:
            return
        if self._state is _thinking and not self._whitespace:
            self._quick, self._kind = self._patterns.quick_thinking, THINKING
        elif self._state is _in_text and not self._trailing_ticks:
            rules, code = self._patterns, self._code_ticks
            self._quick = rules.quick_fence if code > 2 else rules.quick_inline if code else rules.quick_text
            self._kind = TEXT

    def _flush(self, out: list[Span]) -> None:
        self._is_final = True
        if self._pending:
            self._process(self._pending, out)
        if self._state is _undecided:  # no closing marker came: it was answer
            self._end_undecided(_at_start, "", out)
        state = self._state
        if state is _at_start:
            self._emit_span(TEXT, self._whitespace, out)
        elif state is _opening:
            self._emit_span(DROP, self._span_pieces, out)
        elif state is _after:
            self._span_pieces += self._whitespace
            self._whitespace.clear()
            self._emit_closing(out)
        else:
            self._emit_span(THINKING, self._whitespace, out)
            self._emit_span(DROP, self._trailers, out)
        self._is_final = False

    def _apply_prefill(self, prefill: str, position: Position) -> None:
        """Set the state after the prefilled text (case 19: assistant prefill)."""
        inside, done = False, 0
        for match in self._patterns.seed(prefill):
            role, marker = match.lastgroup, match.group()
            if role == "open":
                if inside or (self._has_closed and position == "start"):
                    continue
                # After words on the same line it is prose about a marker; after a header it is a marker.
                before = prefill[: match.start()].rstrip(" \t")
                if not before or before[-1] in "\n>]":
                    inside, self._pair, done = True, self._patterns.pair_of[marker], match.end()
            elif role == "end":
                if inside and marker in self.family.pairs[self._pair].ends:
                    inside, self._has_closed, done = False, True, match.end()
                elif not inside and not self._has_closed:  # the template closes what was never opened
                    self._has_closed, done = True, match.end()
            elif role != "part" and not inside:
                self._has_closed, done = True, match.end()
        begun = bool(prefill[done:].strip(WHITESPACE))
        if inside:
            self._state, self._is_marked, self._may_open_explicitly = _opening, True, not begun
        elif self._has_closed and begun:
            self._state = _in_text
            self._choose_fast_path()

    def _emit_span(self, kind: str, pieces: list[str], out: list[Span]) -> None:
        if pieces:
            out.append(Span(kind, "".join(pieces)))
            pieces.clear()

    def _emit_closing(self, out: list[Span]) -> None:
        """Emit the closing span that `_after` collected. A later one, after a pause, is only white space."""
        text = "".join(self._span_pieces)
        if text or self._kind == CLOSE:
            out.append(Span(self._kind, text))
        self._span_pieces.clear()
        self._kind = DROP

    def _end_undecided(
        self, state: Callable[[Splitter, str, int, list[Span]], int], rest: str, out: list[Span]
    ) -> None:
        """End the undecided beginning: read all of it again in the state that was decided."""
        whole = "".join(self._undecided_pieces) + rest
        self._undecided_pieces.clear()
        self._undecided_chars = 0
        self._state = state
        self._process(whole, out)

    def _open_block(self, marker: str, before: list[str]) -> None:
        self._span_pieces = [*before, marker]
        before.clear()
        self._pair = self._patterns.pair_of[marker]
        self._may_open_explicitly, self._is_marked = False, True
        self._state = _opening

    def _close_block(self, kind: str) -> None:
        self._kind, self._state, self._has_closed = kind, _after, True

    def _begin_text(self, first: str, spaces: str, out: list[Span]) -> None:
        if spaces:
            out.append(Span(TEXT, spaces))
        self._last_text = spaces
        self._is_json = first in "{["
        self._code_ticks = self._trailing_ticks = self._literal_openings = 0
        self._state = _in_text

    def _end_at_tool_marker(self, marker: str, out: list[Span]) -> None:
        """End reasoning at a tool marker, which is the first text of the answer."""
        self._begin_text(marker[0], marker, out)
        self._has_closed = True

    def _emit_thinking(self, body: str, out: list[Span]) -> None:
        """Emit reasoning text up to its last visible character; hold back the white space after it."""
        core = body.rstrip(WHITESPACE)
        if not core:
            (self._trailers or self._whitespace).append(body)
            return
        rest = body[len(core) :]
        if self._whitespace or self._trailers:
            core = "".join(self._whitespace) + "".join(self._trailers) + core
            self._whitespace.clear()
            self._trailers.clear()
        out.append(Span(THINKING, core))
        if rest:
            self._whitespace.append(rest)

    def _apply_backticks(self, run: int) -> None:
        """Apply a complete run of backticks: it opens code, closes matching code, or is part of the code."""
        if not self._code_ticks:
            self._code_ticks = run
        elif run == self._code_ticks or (run > self._code_ticks > 2):
            self._code_ticks = 0

    def _search(self, scan: _Scan, buf: str, pos: int) -> re.Match[str] | None:
        match = scan(buf, pos)
        while match is not None and self._is_final and match.lastgroup == "part":
            match = scan(buf, match.start() + 1)
        return match

    def _match(self, scan: _Scan, buf: str, pos: int) -> re.Match[str] | None:
        match = scan(buf, pos)
        if match is not None and self._is_final and match.lastgroup == "part":
            return None
        return match


# The states. Each reads `buf` from `pos`, which is not its end, and returns the position that it reached. Text that
# it cannot decide yet it stores in one of the splitter's lists.


def _undecided(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """State of an undecided beginning (case 4, `auto`): a closing marker without an opening one makes it reasoning."""
    stop = min(len(buf), pos + s._max_undecided_chars - s._undecided_chars)
    match = s._patterns.undecided(buf, pos, stop)
    if match is not None and match.lastgroup != "part":
        s._end_undecided(_opening if match.lastgroup == "end" else _at_start, buf[pos:], out)
        return len(buf)
    if s._undecided_chars + stop - pos >= s._max_undecided_chars:
        s._end_undecided(_at_start, buf[pos:], out)
        return len(buf)
    cut = len(buf) if match is None or s._is_final else match.start()
    if cut > pos:
        s._undecided_pieces.append(buf[pos:cut])
        s._undecided_chars += cut - pos
    s._pending = buf[cut:]
    return len(buf)


def _at_start(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """State with only white space so far: the only place where an opening marker counts by default."""
    at = _take_whitespace(s._whitespace, buf, pos)
    if at == len(buf):
        return at
    match = s._match(s._patterns.start, buf, at)
    if match is None:
        spaces = "".join(s._whitespace)
        s._whitespace.clear()
        if s._has_closed:  # the prefill ended with a closing marker, to which the blank lines belong
            cut = spaces.rfind("\n") + 1
            if cut:
                out.append(Span(DROP, spaces[:cut]))
            spaces = spaces[cut:]
        s._begin_text(buf[at], spaces, out)
        return at
    role = match.lastgroup
    if role == "part":
        s._pending = buf[at:]
        return len(buf)
    if role == "open":
        s._open_block(match.group(), s._whitespace)
    else:  # case 5: a closing marker before any text, or the wrapper of the answer
        s._span_pieces = [*s._whitespace, match.group()]
        s._whitespace.clear()
        s._close_block(DROP)
    return match.end()


def _opening(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """State inside reasoning without text so far: it may turn out to be an empty block."""
    at = _take_whitespace(s._span_pieces, buf, pos)
    if at == len(buf):
        return at
    match = s._match(s._patterns.opening[-1 if s._may_open_explicitly else s._pair], buf, at)
    if match is None:
        out.append(Span(OPEN, "".join(s._span_pieces)))
        s._span_pieces.clear()
        s._may_open_explicitly = False
        s._state = _thinking
        return at
    role, marker = match.lastgroup, match.group()
    if role == "part":
        s._pending = buf[at:]
        return len(buf)
    if role == "open":
        s._open_block(marker, s._span_pieces)
    elif role in ("end", "answer", "structural"):  # the last two: there was no implicit start
        s._span_pieces.append(marker)
        s._close_block(DROP)
    elif role == "trail":
        s._span_pieces.append(marker)
    else:
        s._emit_span(DROP, s._span_pieces, out)
        s._end_at_tool_marker(marker, out)
    return match.end()


def _thinking(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """State inside reasoning. The first closing marker, or a tool marker (case 12), ends it."""
    scan = s._patterns.thinking[s._pair]
    while True:
        match = s._search(scan, buf, pos)
        at = len(buf) if match is None else match.start()
        if at > pos:
            s._emit_thinking(buf[pos:at], out)
        if match is None:
            return at
        role, marker = match.lastgroup, match.group()
        if role == "part":
            s._pending = marker
            return len(buf)
        pos = match.end()
        if role == "trail":
            s._trailers.append(marker)
        elif role == "line" and not any("\n" in blanks for blanks in s._whitespace):
            s._emit_thinking(marker, out)
        else:
            s._span_pieces = [*s._whitespace, *s._trailers]
            s._whitespace.clear()
            s._trailers.clear()
            s._close_block(CLOSE)
            if role == "end":
                s._span_pieces.append(marker)
            else:
                s._emit_closing(out)
                s._end_at_tool_marker(marker, out)
            return pos


def _after(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """State after a closing marker: blank lines belong to the marker, the answer's indentation does not."""
    at = _take_whitespace(s._whitespace, buf, pos)
    if at == len(buf):
        return at
    match = s._match(s._patterns.after, buf, at)
    if match is None:
        spaces = "".join(s._whitespace)
        s._whitespace.clear()
        cut = spaces.rfind("\n") + 1
        s._span_pieces.append(spaces[:cut])
        s._emit_closing(out)
        s._begin_text(buf[at], spaces[cut:], out)
        return at
    role, marker = match.lastgroup, match.group()
    if role == "part":
        s._pending = buf[at:]
        return len(buf)
    s._span_pieces += s._whitespace
    s._whitespace.clear()
    if role == "end":
        s._span_pieces.append(marker)
        s.stray_close = True
        return match.end()
    s._emit_closing(out)
    if role == "open":
        s._open_block(marker, [])
    else:
        s._span_pieces = [marker]
    return match.end()


def _in_text(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """State inside the answer. Text is released, except what may end the output or start another block."""
    rules, size = s._patterns, len(buf)
    if s._trailers:
        at = _take_whitespace(s._trailers, buf, pos)
        if at == size:
            return at
        match = s._match(rules.trail, buf, at)
        if match is not None and match.lastgroup == "part":
            s._pending = buf[at:]
            return size
        if match is not None:
            s._trailers.append(match.group())
            return match.end()
        s._last_text = "".join(s._trailers)  # more text follows, so the output did not end here
        s._emit_span(TEXT, s._trailers, out)
        pos = at
    begin = entry = pos
    if s._trailing_ticks:
        run = _TICKS.match(buf, pos)
        if run is not None:
            s._trailing_ticks += run.end() - pos
            pos = run.end()
        if pos < size:
            s._apply_backticks(s._trailing_ticks)
            s._trailing_ticks = 0
    while pos < size:
        scan = rules.fence if s._code_ticks > 2 else rules.inline if s._code_ticks else rules.text
        match = s._search(scan, buf, pos)
        if match is None:
            break
        role, at, pos = match.lastgroup, match.start(), match.end()
        if role == "tick":
            if pos == size:
                s._trailing_ticks = pos - at
            else:
                s._apply_backticks(pos - at)
            continue
        if role == "newline":
            s._code_ticks = 0
            continue
        if role == "end" or role == "open":
            before = buf[at - 1] if at > entry else s._last_text[-1:]
            quoted = before in _QUOTES or (s._is_json and before not in _OUTSIDE_STRINGS)
            if role == "open":
                if quoted or not rules.anywhere:
                    s._literal_openings += 1
                    continue
            elif s._literal_openings:
                s._literal_openings -= 1
                continue
            else:
                s.stray_close = s.stray_close or not quoted
                if quoted or s._is_json or not s._has_closed or s._stray == "keep":
                    continue
        if at > begin:
            s._last_text = buf[begin:at]
            out.append(Span(TEXT, s._last_text))
        begin = pos
        if role == "part":
            s._pending = match.group()
            return size
        if role == "trail":
            s._trailers.append(match.group())
            return pos
        if role == "open":
            s._open_block(match.group(), [])
            return pos
        s._last_text = match.group()
        out.append(Span(DROP, s._last_text))
    if begin < size:
        s._last_text = buf[begin:]
        out.append(Span(TEXT, s._last_text))
    return size


def _take_whitespace(pieces: list[str], buf: str, pos: int) -> int:
    """Move the white space at `pos` to `pieces`; return the position of its end."""
    match = _WHITESPACE_RUN.match(buf, pos)
    at = match.end() if match is not None else pos
    if at > pos:
        pieces.append(buf[pos:at])
    return at
