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
from collections.abc import Callable
from functools import lru_cache

from .families import WHITESPACE, Family, ImplicitStart
from .spans import CLOSE, DROP, OPEN, TEXT, THINKING, Scan, Span, SpanParser, marker_pattern

_WHITESPACE_RUN = re.compile(f"[{WHITESPACE}]*")
_TICKS = re.compile("`+")
_QUOTES = frozenset("\"'“‘«„‹")
_OUTSIDE_STRINGS = frozenset("\t\r\n]}")  # characters before a marker that is outside JSON strings


class _Patterns:
    """The patterns of one family, compiled once. Index -1 is the implicit start."""

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
        "start",
        "text",
        "thinking",
        "trail",
        "undecided",
    )

    def __init__(self, family: Family) -> None:
        starts, ends, trailers = family.starts, family.ends, family.trailers
        answer = {"answer": family.answer_starts, "structural": family.structural}
        breaks = {"line": family.breaks, "special": family.special_breaks, "trail": trailers}
        self.anywhere = family.position == "anywhere"
        self.pair_of = {marker: i for i, pair in enumerate(family.pairs) for marker in pair.starts}

        self.start: Scan = marker_pattern({"open": starts, "end": ends, **answer}).match
        self.undecided: Scan = marker_pattern(
            {"open": starts, "end": ends, "special": family.special_breaks, **answer}
        ).search
        again = starts if self.anywhere else ()
        self.after: Scan = marker_pattern({"open": again, "end": ends, **answer}).match
        # A closing marker that is also structural ends every message: in the answer it is not a stray one.
        strays = tuple(marker for marker in ends if marker not in family.structural)
        in_text = {"open": starts, "end": strays, "structural": family.structural, "trail": trailers}
        self.text: Scan = marker_pattern(in_text, tick="`+").search
        # Inside code only the end of the output counts. A span in single or double backticks ends with its
        # line at the latest, so that a lone backtick does not hide the rest of the answer.
        on_line = tuple(marker for marker in trailers if not marker.startswith("\n"))
        self.inline: Scan = marker_pattern({"trail": on_line}, tick="`+", newline=r"(?=\n)").search
        self.fence: Scan = marker_pattern({"trail": trailers}, tick="`+").search
        self.trail: Scan = marker_pattern({"trail": trailers}).match
        self.opening: list[Scan] = []
        self.thinking: list[Scan] = []
        for pair in family.pairs:
            self.opening.append(marker_pattern({"end": pair.ends, **breaks}).match)
            self.thinking.append(marker_pattern({"end": pair.ends, **breaks}).search)
        self.opening.append(marker_pattern({"end": ends, "open": starts, **breaks, **answer}).match)
        self.thinking.append(marker_pattern({"end": ends, **breaks}).search)

        self.quick_text = _first_char_search(("`",), *in_text.values())
        self.quick_inline = _first_char_search(("`", "\n"), trailers)
        self.quick_fence = _first_char_search(("`",), trailers)
        self.quick_thinking = _first_char_search((), ends, *breaks.values(), tail=rf"|[{WHITESPACE}]\Z")


def _first_char_search(*groups: tuple[str, ...], tail: str = "") -> Scan:
    """Return a search for the first character of any live marker. Text without one needs no closer look."""
    firsts = {marker[0] for group in groups for marker in group}
    return re.compile("[" + "".join(re.escape(first) for first in sorted(firsts)) + "]" + tail).search


_patterns = lru_cache(maxsize=256)(_Patterns)


class Splitter(SpanParser):
    """A parser of reasoning markers.

    Args:
        family: The markers.
        implicit_start: Overrides the family's (case 4: prefilled opening marker).
        max_undecided_chars: With `auto`, how many characters are held back before they are taken as answer.

    Attributes:
        truncated: Whether the input ended inside reasoning (case 6: unclosed block).
    """

    __slots__ = (
        "_code_ticks",
        "_has_closed",
        "_is_json",
        "_is_marked",
        "_last_text",
        "_literal_openings",
        "_max_undecided_chars",
        "_may_open_explicitly",
        "_pair",
        "_patterns",
        "_span_pieces",
        "_trailers",
        "_trailing_ticks",
        "_undecided_chars",
        "_undecided_pieces",
        "_whitespace",
        "family",
        "truncated",
    )

    def __init__(
        self,
        family: Family,
        *,
        implicit_start: ImplicitStart | None = None,
        max_undecided_chars: int = 65_536,
    ) -> None:
        super().__init__()
        self.family = family
        self.truncated = False
        self._patterns = _patterns(family)
        self._max_undecided_chars = max_undecided_chars
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

        self._state = _at_start
        choice = implicit_start or family.implicit_start
        if choice == "always":
            self._state, self._may_open_explicitly = _opening, True
        elif choice == "auto":
            self._state = _undecided

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
        return self._read(text)

    @property
    def is_after_reasoning(self) -> bool:
        """Whether a reasoning block has ended, and nothing but white space has followed."""
        return self._state is _after

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

    def end(self) -> list[Span]:
        """End the input and return the remaining spans. A second call returns nothing."""
        out = super().end()
        self.truncated = self._state is _thinking or (self._state is _opening and self._is_marked)
        return out

    def _choose_fast_path(self) -> None:
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

    def _match(self, scan: Scan, buf: str, pos: int) -> re.Match[str] | None:
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
                if quoted or s._is_json or not s._has_closed:
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
