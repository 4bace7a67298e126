"""Splits text with reasoning markers into reasoning and answer, as it streams in.

The rules:

1. Any division of the text into pieces gives the same spans, once neighbours of one kind are joined.
2. The texts of all spans, in order, are the input, character for character: markers, stripped white space
   and dropped tokens have spans of their own, so history can be sent back verbatim.
3. Only what could still change its meaning is held back: a proper prefix of a live marker, white space that
   a marker would strip, a token that is dropped only where the output ends and, in `auto`, the undecided
   beginning (up to a cap).
4. The first closing marker closes. There is no nesting: an opening marker inside reasoning is reasoning.
5. A block without reasoning text is no block: it becomes one `drop` span.
6. A leading opening marker opens; one inside the answer is answer, unless `position` is `anywhere`, and
   then still inside backticks and fences.
7. Where the input ends inside reasoning, everything there is reasoning, and `truncated` is set.
8. White space is stripped behind the opening marker, before the closing one, and, as whole blank lines,
   behind it. Text that no marker touches is left as it is.

No clock, no I/O. The work is linear: text that was scanned is never scanned again, but for a held prefix,
which is shorter than the longest marker, and once for a beginning that was undecided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from pellucid.tags.families import WHITESPACE, Family, ImplicitStart, Position
from pellucid.tags.families import family as find_family

OPEN = "open"
"""Reasoning begins. The opening marker with the white space around it; `""` if the start was implicit."""
THINKING = "thinking"
"""Reasoning text."""
CLOSE = "close"
"""Reasoning ends. The closing marker with the stripped white space; `""` if a tool marker ended it."""
TEXT = "text"
"""Answer text, tool markers included."""
DROP = "drop"
"""Neither reasoning nor answer: empty blocks, stray closing markers, wrappers, end-of-sequence tokens."""
TOOL = "tool"
"""A tool call begins; the text is its recipient (harmony only). Not part of the input's text."""
TOOL_ARGS = "tool_args"
"""A piece of a tool call's arguments (harmony only)."""
TOOL_END = "tool_end"
"""A tool call ends: its end token, `""` if none came (harmony only)."""


class Span(NamedTuple):
    """A piece of the input and what it is. Unpacks as `kind, text`."""

    kind: str
    text: str


_Scan: TypeAlias = "Callable[..., re.Match[str] | None]"
_BLANKS = re.compile(f"[{WHITESPACE}]*")
_TICKS = re.compile("`+")
_QUOTES = frozenset("\"'“‘«„‹")
_OUTSIDE_STRINGS = frozenset("\t\r\n]}")  # what stands unescaped before a marker that no JSON string holds


def partial(markers: Iterable[str]) -> str:
    """A regular expression source for the proper prefixes of `markers`; `""` if there are none."""
    trie: dict[str, list[str]] = {}
    for marker in markers:
        if len(marker) > 1:
            trie.setdefault(marker[0], []).append(marker[1:])
    branches = []
    for first, rest in trie.items():
        deeper = partial(rest)
        branches.append(re.escape(first) + (f"(?:{deeper})?" if deeper else ""))
    return "|".join(branches)


def live(roles: dict[str, tuple[str, ...]], **extra: str) -> re.Pattern[str]:
    """A pattern that finds the leftmost live marker, named by its role, or else `part`.

    `part` is the longest suffix that a marker may still grow out of. `extra` are roles given as regular
    expression sources. A marker that begins with another one is left out: the shorter one is complete
    first, and text must not mean something else for arriving in one piece. With nothing to find, the
    pattern never matches.
    """
    every = {marker for markers in roles.values() for marker in markers}
    roles = {
        role: tuple(m for m in markers if not any(m != other and m.startswith(other) for other in every))
        for role, markers in roles.items()
    }
    groups = [
        f"(?P<{role}>{'|'.join(re.escape(marker) for marker in markers)})" for role, markers in roles.items() if markers
    ]
    groups += [f"(?P<{role}>{source})" for role, source in extra.items()]
    prefixes = partial(marker for markers in roles.values() for marker in markers)
    if prefixes:
        groups.append(rf"(?P<part>(?:{prefixes})\Z)")
    return re.compile("|".join(groups) if groups else "(?!)")


class _Rules:
    """The patterns of one family at one position, compiled once. Index -1 is the implicit start."""

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

        self.start: _Scan = live({"open": starts, "end": ends, **answer}).match
        self.undecided: _Scan = live({"open": starts, "end": ends, "special": family.special_breaks, **answer}).search
        again = starts if self.anywhere else ()
        self.after: _Scan = live({"open": again, "end": ends, **answer}).match
        # An end that is structural, too, ends every message: in the answer it is not a stray one.
        strays = tuple(marker for marker in ends if marker not in family.structural)
        in_text = {"open": starts, "end": strays, "structural": family.structural, "trail": trailers}
        self.text: _Scan = live(in_text, tick="`+").search
        # Inside of code only the end of the output counts. A span in single or double backticks ends with
        # its line at the latest, so that a lone backtick does not hide the rest of the answer.
        on_line = tuple(marker for marker in trailers if not marker.startswith("\n"))
        self.inline: _Scan = live({"trail": on_line}, tick="`+", newline=r"(?=\n)").search
        self.fence: _Scan = live({"trail": trailers}, tick="`+").search
        self.trail: _Scan = live({"trail": trailers}).match
        self.seed: Callable[[str], Iterator[re.Match[str]]] = live({"open": starts, "end": ends, **answer}).finditer
        self.opening: list[_Scan] = []
        self.thinking: list[_Scan] = []
        for pair in family.pairs:
            self.opening.append(live({"end": pair.ends, **breaks}).match)
            self.thinking.append(live({"end": pair.ends, **breaks}).search)
        self.opening.append(live({"end": ends, "open": starts, **breaks, **answer}).match)
        self.thinking.append(live({"end": ends, **breaks}).search)

        self.quick_text = _quick(("`",), *in_text.values())
        self.quick_inline = _quick(("`", "\n"), trailers)
        self.quick_fence = _quick(("`",), trailers)
        self.quick_thinking = _quick((), ends, *breaks.values(), tail=rf"|[{WHITESPACE}]\Z")


def _quick(*groups: tuple[str, ...], tail: str = "") -> _Scan:
    """A search for anything that needs a closer look: the first character of a live marker."""
    firsts = {marker[0] for group in groups for marker in group}
    return re.compile("[" + "".join(re.escape(first) for first in sorted(firsts)) + "]" + tail).search


_rules = lru_cache(maxsize=256)(_Rules)


class Splitter:
    """A state machine: `feed` it text, read spans; `end` it once.

    family: a row's name, a (start, end) pair of markers, or a `Family`.
    implicit_start: overrides the family's; `never`, `always` or `auto` (case 4: prefilled opening marker).
    position: `start` or `anywhere`; overrides the family's (cases 8 and 10: markers inside the answer).
    thinking: whether the request switched thinking on; decides where the family says `thinking`.
    prefill: the assistant turn as far as it stands in the prompt, with or without the template's header
        (case 19). Where it is not blank it decides how the output starts, and `implicit_start` does not.
    stray: `drop` takes a closing marker out of the answer that follows a closed block (case 11), unless it
        is quoted, in code, or has an opening marker in the answer, or the answer begins like JSON; `keep`
        leaves it in. Either sets `stray_close`.
    auto_cap: with `auto`, how many characters are held at most before they are declared answer.

    `truncated`: the input ended inside reasoning (case 6: unclosed block). `stray_close`: a closing marker
    came where there was nothing to close (cases 5 and 11).
    """

    __slots__ = (
        "_cap",
        "_code",
        "_echo",
        "_ended",
        "_final",
        "_held",
        "_held_size",
        "_json",
        "_kind",
        "_last",
        "_literal",
        "_marked",
        "_pair",
        "_pending",
        "_quick",
        "_raw",
        "_rules",
        "_seen",
        "_state",
        "_stray",
        "_ticks",
        "_trail",
        "_ws",
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
        auto_cap: int = 65_536,
    ) -> None:
        self.family = find_family(family)
        self.truncated = False
        self.stray_close = False
        self._rules = _rules(self.family, position or self.family.position)
        self._stray = stray
        self._cap = auto_cap
        self._ended = False
        self._final = False  # inside end() or pause(): a proper prefix can no longer become a marker
        self._quick: _Scan | None = None  # set while nothing is held: finds what needs more than release
        self._kind = TEXT  # the span kind of a quick release
        self._pending = ""  # the proper prefix of a live marker that ends the input so far
        self._raw: list[str] = []  # the text of the open, close or drop span that is being gathered
        self._ws: list[str] = []  # white space that a marker may strip
        self._trail: list[str] = []  # trailers that are dropped if nothing but an end follows
        self._held: list[str] = []  # the undecided beginning
        self._held_size = 0
        self._pair = -1  # which pair's ends close; -1: any
        self._echo = False  # inside an implicit start: the model may still write the opening marker
        self._marked = False  # the open reasoning block was announced by a marker
        self._seen = False  # a block was closed, or the answer's beginning was marked
        self._json = False  # the answer begins like JSON: byte-exact
        self._literal = 0  # opening markers that stand in the answer as text, and want their ends
        self._code = 0  # length of the backtick run that opened the code that the answer is in
        self._ticks = 0  # backticks that end the answer so far: a run that may go on
        self._last = ""  # the last piece of the answer

        choice = implicit_start or self.family.implicit_start
        if choice == "thinking":
            choice = "always" if thinking else "never"
        self._state: Callable[[Splitter, str, int, list[Span]], int] = _at_start
        if prefill.strip(WHITESPACE):
            self._seed(prefill, position or self.family.position)
        elif choice == "always":
            self._state, self._echo = _opening, True
        elif choice == "auto":
            self._state = _undecided

    @property
    def in_reasoning(self) -> bool:
        """Whether the next text, as far as is known, is reasoning."""
        return self._state is _opening or self._state is _thinking

    def feed(self, text: str) -> list[Span]:
        """Takes the next piece of text; returns what can be said about the text so far, in order.

        Raises RuntimeError after `end`.
        """
        quick = self._quick
        if quick is not None and quick(text) is None:
            if not text:
                return []
            self._last = text
            return [Span(self._kind, text)]
        if self._ended:
            raise RuntimeError("feed() after end()")
        out: list[Span] = []
        if text:
            self._drive(self._pending + text, out)
            self._settle()
        return out

    @property
    def special(self) -> Callable[[str], object] | None:
        """What finds, in the next piece of text, something that may not be released as it is; None if any may not."""
        return self._quick

    def skip(self, text: str) -> None:
        """`feed`, for text in which `special` finds nothing: what it would return is known."""
        if text:
            self._last = text

    def pause(self) -> list[Span]:
        """Releases what is held, as `end` would, but goes on: for a tool call that arrives beside the text.

        A marker that is cut in two by a pause is no marker.
        """
        out: list[Span] = []
        if not self._ended:
            self._flush(out)
            self._settle()
        return out

    def end(self) -> list[Span]:
        """Says that no text follows; returns the rest. Called again, it returns nothing."""
        if self._ended:
            return []
        out: list[Span] = []
        self._flush(out)
        self.truncated = self._state is _thinking or (self._state is _opening and self._marked)
        self._quick = None
        self._ended = True
        return out

    def _drive(self, buf: str, out: list[Span]) -> None:
        self._pending = ""
        pos, size = 0, len(buf)
        while pos < size:
            pos = self._state(self, buf, pos, out)

    def _settle(self) -> None:
        """Chooses the quick release for the next piece, if nothing is held."""
        self._quick = None
        if self._pending or self._trail:
            return
        if self._state is _thinking and not self._ws:
            self._quick, self._kind = self._rules.quick_thinking, THINKING
        elif self._state is _in_text and not self._ticks:
            rules, code = self._rules, self._code
            self._quick = rules.quick_fence if code > 2 else rules.quick_inline if code else rules.quick_text
            self._kind = TEXT

    def _flush(self, out: list[Span]) -> None:
        self._final = True
        if self._pending:
            self._drive(self._pending, out)
        if self._state is _undecided:  # no closing marker came: it was answer
            self._decide(_at_start, "", out)
        state = self._state
        if state is _at_start:
            self._emit(TEXT, self._ws, out)
        elif state is _opening:
            self._emit(DROP, self._raw, out)
        elif state is _after:
            self._raw += self._ws
            self._ws.clear()
            self._release(out)
        else:
            self._emit(THINKING, self._ws, out)
            self._emit(DROP, self._trail, out)
        self._final = False

    def _seed(self, prefill: str, position: Position) -> None:
        """Sets the state that the prefilled text leaves behind (case 19: assistant prefill)."""
        inside, done = False, 0
        for match in self._rules.seed(prefill):
            role, marker = match.lastgroup, match.group()
            if role == "open":
                if inside or (self._seen and position == "start"):
                    continue
                # Behind words on the same line it is prose about a marker; behind a header it is none.
                before = prefill[: match.start()].rstrip(" \t")
                if not before or before[-1] in "\n>]":
                    inside, self._pair, done = True, self._rules.pair_of[marker], match.end()
            elif role == "end":
                if inside and marker in self.family.pairs[self._pair].ends:
                    inside, self._seen, done = False, True, match.end()
                elif not inside and not self._seen:  # the template closes what was never opened
                    self._seen, done = True, match.end()
            elif role != "part" and not inside:
                self._seen, done = True, match.end()
        begun = bool(prefill[done:].strip(WHITESPACE))
        if inside:
            self._state, self._marked, self._echo = _opening, True, not begun
        elif self._seen and begun:
            self._state = _in_text
            self._settle()

    def _emit(self, kind: str, pieces: list[str], out: list[Span]) -> None:
        if pieces:
            out.append(Span(kind, "".join(pieces)))
            pieces.clear()

    def _release(self, out: list[Span]) -> None:
        """Emits the closing span that `_after` gathered. A later one, after a pause, is only white space."""
        text = "".join(self._raw)
        if text or self._kind == CLOSE:
            out.append(Span(self._kind, text))
        self._raw.clear()
        self._kind = DROP

    def _decide(self, state: Callable[[Splitter, str, int, list[Span]], int], rest: str, out: list[Span]) -> None:
        """Ends the undecided beginning: all of it is read again, in the state that was found."""
        whole = "".join(self._held) + rest
        self._held.clear()
        self._held_size = 0
        self._state = state
        self._drive(whole, out)

    def _open(self, marker: str, before: list[str]) -> None:
        self._raw = [*before, marker]
        before.clear()
        self._pair = self._rules.pair_of[marker]
        self._echo, self._marked = False, True
        self._state = _opening

    def _close(self, kind: str) -> None:
        self._kind, self._state, self._seen = kind, _after, True

    def _begin_text(self, first: str, spaces: str, out: list[Span]) -> None:
        if spaces:
            out.append(Span(TEXT, spaces))
        self._last = spaces
        self._json = first in "{["
        self._code = self._ticks = self._literal = 0
        self._state = _in_text

    def _break(self, marker: str, out: list[Span]) -> None:
        """A tool marker ended reasoning: it is the first text of the answer."""
        self._begin_text(marker[0], marker, out)
        self._seen = True

    def _think(self, body: str, out: list[Span]) -> None:
        """Emits reasoning text up to its last visible character; the white space behind that is held."""
        core = body.rstrip(WHITESPACE)
        if not core:
            (self._trail or self._ws).append(body)
            return
        rest = body[len(core) :]
        if self._ws or self._trail:
            core = "".join(self._ws) + "".join(self._trail) + core
            self._ws.clear()
            self._trail.clear()
        out.append(Span(THINKING, core))
        if rest:
            self._ws.append(rest)

    def _backticks(self, run: int) -> None:
        """Applies a complete run of backticks: it opens code, closes what it fits, or is part of it."""
        if not self._code:
            self._code = run
        elif run == self._code or (run > self._code > 2):
            self._code = 0

    def _find(self, scan: _Scan, buf: str, pos: int) -> re.Match[str] | None:
        match = scan(buf, pos)
        while match is not None and self._final and match.lastgroup == "part":
            match = scan(buf, match.start() + 1)
        return match

    def _match(self, scan: _Scan, buf: str, pos: int) -> re.Match[str] | None:
        match = scan(buf, pos)
        if match is not None and self._final and match.lastgroup == "part":
            return None
        return match


# The states. Each reads `buf` from `pos`, which is not its end, and returns how far it came; what it cannot
# judge yet it puts into one of the splitter's stores.


def _undecided(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """Case 4, `auto`: a closing marker with no opening one says that all of it was reasoning."""
    stop = min(len(buf), pos + s._cap - s._held_size)
    match = s._rules.undecided(buf, pos, stop)
    if match is not None and match.lastgroup != "part":
        s._decide(_opening if match.lastgroup == "end" else _at_start, buf[pos:], out)
        return len(buf)
    if s._held_size + stop - pos >= s._cap:
        s._decide(_at_start, buf[pos:], out)
        return len(buf)
    cut = len(buf) if match is None or s._final else match.start()
    if cut > pos:
        s._held.append(buf[pos:cut])
        s._held_size += cut - pos
    s._pending = buf[cut:]
    return len(buf)


def _at_start(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """Nothing but white space so far: the only place where an opening marker counts by default."""
    at = _blanks(s._ws, buf, pos)
    if at == len(buf):
        return at
    match = s._match(s._rules.start, buf, at)
    if match is None:
        spaces = "".join(s._ws)
        s._ws.clear()
        if s._seen:  # the prefill ended with a closing marker: blank lines belong to that
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
        s._open(match.group(), s._ws)
    else:  # case 5: a closing marker before any text; or the answer's wrapper
        s._raw = [*s._ws, match.group()]
        s._ws.clear()
        s._close(DROP)
    return match.end()


def _opening(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """Inside reasoning that has no text yet: it may still turn out to be an empty block."""
    at = _blanks(s._raw, buf, pos)
    if at == len(buf):
        return at
    match = s._match(s._rules.opening[-1 if s._echo else s._pair], buf, at)
    if match is None:
        out.append(Span(OPEN, "".join(s._raw)))
        s._raw.clear()
        s._echo = False
        s._state = _thinking
        return at
    role, marker = match.lastgroup, match.group()
    if role == "part":
        s._pending = buf[at:]
        return len(buf)
    if role == "open":
        s._open(marker, s._raw)
    elif role in ("end", "answer", "structural"):  # the last two: the implicit start was none
        s._raw.append(marker)
        s._close(DROP)
    elif role == "trail":
        s._raw.append(marker)
    else:
        s._emit(DROP, s._raw, out)
        s._break(marker, out)
    return match.end()


def _thinking(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """Inside reasoning. The first closing marker, or a tool marker (case 12), ends it."""
    scan = s._rules.thinking[s._pair]
    while True:
        match = s._find(scan, buf, pos)
        at = len(buf) if match is None else match.start()
        if at > pos:
            s._think(buf[pos:at], out)
        if match is None:
            return at
        role, marker = match.lastgroup, match.group()
        if role == "part":
            s._pending = marker
            return len(buf)
        pos = match.end()
        if role == "trail":
            s._trail.append(marker)
        elif role == "line" and not any("\n" in blanks for blanks in s._ws):
            s._think(marker, out)
        else:
            s._raw = [*s._ws, *s._trail]
            s._ws.clear()
            s._trail.clear()
            s._close(CLOSE)
            if role == "end":
                s._raw.append(marker)
            else:
                s._release(out)
                s._break(marker, out)
            return pos


def _after(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """Behind a closing marker: blank lines are the marker's, the indentation of the answer is not."""
    at = _blanks(s._ws, buf, pos)
    if at == len(buf):
        return at
    match = s._match(s._rules.after, buf, at)
    if match is None:
        spaces = "".join(s._ws)
        s._ws.clear()
        cut = spaces.rfind("\n") + 1
        s._raw.append(spaces[:cut])
        s._release(out)
        s._begin_text(buf[at], spaces[cut:], out)
        return at
    role, marker = match.lastgroup, match.group()
    if role == "part":
        s._pending = buf[at:]
        return len(buf)
    s._raw += s._ws
    s._ws.clear()
    if role == "end":
        s._raw.append(marker)
        s.stray_close = True
        return match.end()
    s._release(out)
    if role == "open":
        s._open(marker, [])
    else:
        s._raw = [marker]
    return match.end()


def _in_text(s: Splitter, buf: str, pos: int, out: list[Span]) -> int:
    """The answer. Everything is released, but for what may end the output, or start another block."""
    rules, size = s._rules, len(buf)
    if s._trail:
        at = _blanks(s._trail, buf, pos)
        if at == size:
            return at
        match = s._match(rules.trail, buf, at)
        if match is not None and match.lastgroup == "part":
            s._pending = buf[at:]
            return size
        if match is not None:
            s._trail.append(match.group())
            return match.end()
        s._last = "".join(s._trail)  # more text follows: it ended nothing
        s._emit(TEXT, s._trail, out)
        pos = at
    begin = entry = pos
    if s._ticks:
        run = _TICKS.match(buf, pos)
        if run is not None:
            s._ticks += run.end() - pos
            pos = run.end()
        if pos < size:
            s._backticks(s._ticks)
            s._ticks = 0
    while pos < size:
        scan = rules.fence if s._code > 2 else rules.inline if s._code else rules.text
        match = s._find(scan, buf, pos)
        if match is None:
            break
        role, at, pos = match.lastgroup, match.start(), match.end()
        if role == "tick":
            if pos == size:
                s._ticks = pos - at
            else:
                s._backticks(pos - at)
            continue
        if role == "newline":
            s._code = 0
            continue
        if role == "end" or role == "open":
            before = buf[at - 1] if at > entry else s._last[-1:]
            quoted = before in _QUOTES or (s._json and before not in _OUTSIDE_STRINGS)
            if role == "open":
                if quoted or not rules.anywhere:
                    s._literal += 1
                    continue
            elif s._literal:
                s._literal -= 1
                continue
            else:
                s.stray_close = s.stray_close or not quoted
                if quoted or s._json or not s._seen or s._stray == "keep":
                    continue
        if at > begin:
            s._last = buf[begin:at]
            out.append(Span(TEXT, s._last))
        begin = pos
        if role == "part":
            s._pending = match.group()
            return size
        if role == "trail":
            s._trail.append(match.group())
            return pos
        if role == "open":
            s._open(match.group(), [])
            return pos
        s._last = match.group()
        out.append(Span(DROP, s._last))
    if begin < size:
        s._last = buf[begin:]
        out.append(Span(TEXT, s._last))
    return size


def _blanks(store: list[str], buf: str, pos: int) -> int:
    """Moves the white space at `pos` into `store`; returns where it ends."""
    match = _BLANKS.match(buf, pos)
    at = match.end() if match is not None else pos
    if at > pos:
        store.append(buf[pos:at])
    return at
