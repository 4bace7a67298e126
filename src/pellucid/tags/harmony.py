"""Reads the harmony format (gpt-oss) as text: messages with headers, channels and recipients.

    <|start|>assistant<|channel|>analysis<|message|>…<|end|>

The rules, which are the splitter's (chunking does not matter, nothing is lost, the least is held) plus:

1. A message is reasoning if its channel is `analysis`, a tool call if it has a recipient, whichever the
   channel and wherever in the header the recipient stands, and answer otherwise: `final`, a preamble in
   `commentary`, an unknown channel.
2. The template wrote `<|start|>assistant`, so the output may begin with any later part of a header.
3. A message ends at `<|end|>`, `<|call|>` or `<|return|>`, and at the next header where these are missing.
   Any other `<|x|>` is text. Text outside of messages is answer.
4. White space inside of a message is content: nothing is stripped.
5. A header that never comes to `<|message|>` is given up after `HEADER_CAP` characters or where the input
   ends. What follows its channel's name is then the message, if it can be told from a header at all.
6. Headers and end tokens are `open` and `close` around reasoning and `drop` around answers. Around a tool
   call they are `drop` and `tool_end`. The texts of all spans but `tool` are the input.

Where the server's detokeniser left out the special tokens, `analysisThe user…assistantfinalHello` remains.
That is read only when asked for, since any answer may begin with the word "analysis".
"""

from __future__ import annotations

import re
from collections.abc import Callable

from pellucid.tags.splitter import (
    CLOSE,
    DROP,
    OPEN,
    TEXT,
    THINKING,
    TOOL,
    TOOL_ARGS,
    TOOL_END,
    Span,
    live,
    partial,
)

HEADER_CAP = 512
"""Characters that a header may have before it is given up."""

_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEADS = ("<|start|>", "<|channel|>")
_EVERYONE = ("user", "all", "assistant")  # recipients that are no tools

_BODY = live({"end": _ENDS, "head": _HEADS}).search
_HEADER = live({"end": _ENDS, "start": ("<|start|>",), "message": ("<|message|>",)}).search
_TOKENS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>")

# Between messages: the rest of a header whose beginning is in the prompt or was lost, or an end token.
# Possessive or atomic throughout: a long run of white space must not be tried in every division.
_LEAD = re.compile(
    r"\s*+(?>(?:assistant)?)(?>(?:\s*+to=[^\s<]++)?)\s*+(?P<head>"
    + "|".join(map(re.escape, _TOKENS))
    + r")|\s*+(?P<end>"
    + "|".join(map(re.escape, _ENDS))
    + ")"
)
_LEAD_PART = re.compile(
    rf"\s*+(?:(?:{partial(['assistant='])})\Z|(?>(?:assistant)?)\s*+"
    rf"(?:(?:t|to)\Z|(?>(?:to=[^\s<]*+)?)\s*+(?:{partial((*_TOKENS, *_ENDS))})?\Z))"
)

_ROLE = re.compile(r"\s*(?:<\|start\|>)?\s*([^\s<=]+)(?=[\s<]|$)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NAMED = re.compile(r"(?:\s*<\|start\|>)?[^<]*<\|channel\|>\s*(?:analysis|commentary|final)")

_MORE_HEADER = re.compile(r"<\||^\s*to?(?:=|$)")

_GLUED_START = re.compile(r"\s*(analysis|commentary|final)")
_GLUED_START_PART = re.compile(rf"\s*(?:{partial(['analysis', 'commentary', 'final'])})?\Z")
_GLUED_BODY = live({"head": ("assistantanalysis", "assistantcommentary", "assistantfinal")}).search
_GLUED_CALL = re.compile(r"\s*+to=([^\s{<]+?)\s*+(?>(?:json|code)?)\s*+(?={)")
_GLUED_CALL_PART = re.compile(r"\s*(?:t|to|to=[^{<]*)?\Z")

_QUICK = re.compile("<").search
_GLUED_QUICK = re.compile("a").search
_NOTHING = re.compile("(?!)").search


class Harmony:
    """A state machine: `feed` it text, read spans; `end` it once.

    glued: also read the form without special tokens, if the output begins with it.

    `truncated`: the input ended inside reasoning. `channel`: the channel of the message that is being read,
    None outside of messages and where the header names none.
    """

    __slots__ = (
        "_ended",
        "_final",
        "_fresh",
        "_glued",
        "_kind",
        "_pending",
        "_quick",
        "_raw",
        "_scan",
        "_size",
        "_sniff",
        "_state",
        "channel",
        "truncated",
    )

    def __init__(self, *, glued: bool = False) -> None:
        self.truncated = False
        self.channel: str | None = None
        self._sniff = glued  # the glued form may still begin
        self._glued = False  # it has begun
        self._ended = False
        self._final = False  # inside end() or pause(): prefixes can no longer become tokens
        self._fresh = True  # nothing was read yet
        self._kind = TEXT  # what the text of this message is
        self._pending = ""  # the input's end, as long as it may be the beginning of a token
        self._raw: list[str] = []  # the header, then the reasoning as long as it is blank
        self._size = 0  # characters of the header
        self._scan = _BODY
        self._quick: Callable[[str], re.Match[str] | None] | None = None
        self._state: Callable[[Harmony, str, int, list[Span]], int] = _between

    @property
    def in_reasoning(self) -> bool:
        """Whether the next text, as far as is known, is reasoning."""
        return self._state is _blank_reasoning or (self._state is _in_body and self._kind == THINKING)

    def feed(self, text: str) -> list[Span]:
        """Takes the next piece of text; returns what can be said about the text so far, in order.

        Raises RuntimeError after `end`.
        """
        quick = self._quick
        if quick is not None and quick(text) is None:
            return [Span(self._kind, text)] if text else []
        if self._ended:
            raise RuntimeError("feed() after end()")
        out: list[Span] = []
        if text:
            self._drive(self._pending + text, out)
            self._settle()
        return out

    def pause(self) -> list[Span]:
        """Releases what is held, as `end` would, but goes on. A token cut in two by a pause is text."""
        out: list[Span] = []
        if not self._ended:
            self._flush(out)
            self._settle()
        return out

    def end(self) -> list[Span]:
        """Says that no text follows; returns the rest. Called again, it returns nothing.

        A tool call is closed with an empty `tool_end`: servers cut the stop token, so its absence does not
        tell a complete call from a truncated one; the finish reason and the arguments do.
        """
        if self._ended:
            return []
        out: list[Span] = []
        self._flush(out)
        self.truncated = self.in_reasoning
        if self._state is _in_body and self._kind == TOOL_ARGS:
            out.append(Span(TOOL_END, ""))
        self._quick = None
        self._ended = True
        return out

    def _drive(self, buf: str, out: list[Span]) -> None:
        self._pending = ""
        pos, size = 0, len(buf)
        while pos < size:
            pos = self._state(self, buf, pos, out)

    def _settle(self) -> None:
        self._quick = None
        if self._state is _in_body and not self._pending:
            if self._scan is _BODY:
                self._quick = _QUICK
            else:
                self._quick = _GLUED_QUICK if self._scan is _GLUED_BODY else _NOTHING

    def _flush(self, out: list[Span]) -> None:
        self._final = True
        if self._pending:
            self._drive(self._pending, out)
        if self._state is _in_header:
            self._give_up("".join(self._raw), True, out)
        if self._state in (_blank_reasoning, _glued_call) and self._raw:
            out.append(Span(DROP, "".join(self._raw)))
            self._raw.clear()
        self._final = False

    def _find(self, scan: Callable[..., re.Match[str] | None], buf: str, pos: int, stop: int) -> re.Match[str] | None:
        match = scan(buf, pos, stop)
        while match is not None and self._final and match.lastgroup == "part":
            match = scan(buf, match.start() + 1, stop)
        return match

    def _begin(self, header: str, recipient: str | None, out: list[Span]) -> None:
        """A header is complete: what kind of message follows?"""
        self._fresh = False
        self._state = _in_body
        if recipient is not None and recipient not in _EVERYONE:
            self._kind = TOOL_ARGS
            out += (Span(DROP, header), Span(TOOL, recipient))
        elif self.channel == "analysis":
            self._kind, self._state = THINKING, _blank_reasoning
            self._raw = [header]
        else:
            self._kind = TEXT
            out.append(Span(DROP, header))

    def _parse(self, header: str, out: list[Span]) -> None:
        channel, recipient, role = _CHANNEL.search(header), _RECIPIENT.search(header), _ROLE.match(header)
        self.channel = channel[1] if channel else None
        if role is not None and role[1] != "assistant":
            # A tool's or user's turn that the model made up: neither its thought nor its speech.
            self._fresh, self._state, self._kind = False, _in_body, DROP
            out.append(Span(DROP, header))
        else:
            self._begin(header, recipient[1] if recipient else None, out)

    def _give_up(self, header: str, truncated: bool, out: list[Span]) -> None:
        """The header has no `<|message|>`. Its message may have begun behind the channel's name."""
        self._raw.clear()
        named = _NAMED.match(header)
        message = header[named.end() :] if named is not None else ""
        if named is not None and message.strip() and not _MORE_HEADER.search(message):
            self._parse(named.group(), out)
            self._drive(message, out)
        elif truncated:
            out.append(Span(DROP, header))
            self._state = _between
        else:
            out.append(Span(TEXT, header))
            self._state, self._kind, self.channel, self._fresh = _in_body, TEXT, None, False

    def _finish(self, token: str, out: list[Span]) -> None:
        """A message ends, with its end token or without."""
        if self._state is _blank_reasoning:
            out.append(Span(DROP, "".join(self._raw) + token))
            self._raw.clear()
        elif self._kind == THINKING:
            out.append(Span(CLOSE, token))
        elif self._kind == TOOL_ARGS:
            out.append(Span(TOOL_END, token))
        elif token:
            out.append(Span(DROP, token))
        self.channel = None
        self._state = _between


def _between(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    """Outside of messages: a header begins, or goes on where the prompt left off; or there is plain text."""
    if h._sniff:
        word = _GLUED_START.match(buf, pos, pos + HEADER_CAP)
        if word is not None:
            h._sniff, h._glued, h._scan = False, True, _GLUED_BODY
            return _glued_header(h, word[1], word.group(), word.end(), out)
        if not h._final and len(buf) - pos < HEADER_CAP and _GLUED_START_PART.match(buf, pos):
            h._pending = buf[pos:]
            return len(buf)
    lead = _LEAD.match(buf, pos, pos + HEADER_CAP)
    if lead is None and not h._final and len(buf) - pos < HEADER_CAP and _LEAD_PART.match(buf, pos):
        h._pending = buf[pos:]
        return len(buf)
    h._sniff = False
    if lead is None:
        if h._final and not h._fresh and not buf[pos:].strip():
            out.append(Span(DROP, buf[pos:]))  # a line break behind the last message
            return len(buf)
        h._state, h._kind, h._fresh = _in_body, TEXT, False
        return pos
    if lead["end"]:
        out.append(Span(DROP, lead.group()))
        h._fresh = False
        return lead.end()
    # The header's text stops before its first token, unless that token is what begins it.
    at = lead.end() if lead["head"] == "<|start|>" else lead.start("head")
    h._raw = [buf[pos:at]]
    h._size = at - pos
    h._state = _in_header
    return at


def _in_header(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    stop = min(len(buf), pos + HEADER_CAP - h._size)
    match = h._find(_HEADER, buf, pos, stop)
    if match is None or match.lastgroup == "part":
        cut = stop if match is None else match.start()
        if h._size + stop - pos >= HEADER_CAP:
            h._give_up("".join(h._raw) + buf[pos:cut], False, out)
            return cut
        h._raw.append(buf[pos:cut])
        h._size += cut - pos
        h._pending = buf[cut:]
        return len(buf)
    before = "".join(h._raw) + buf[pos : match.start()]
    h._raw.clear()
    if match.lastgroup == "message":
        h._parse(before + match.group(), out)
    elif match.lastgroup == "start":  # a new header: the old one never had a message
        out.append(Span(DROP, before))
        h._raw, h._size = [match.group()], match.end() - match.start()
    else:
        out.append(Span(DROP, before + match.group()))
        h._fresh = False
        h._state = _between
    return match.end()


_VISIBLE = re.compile(r"\S")


def _blank_reasoning(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    """Inside an analysis message without a visible character: it may still turn out to be empty."""
    seen = _VISIBLE.search(buf, pos)
    at = len(buf) if seen is None else seen.start()
    if seen is None:
        h._raw.append(buf[pos:])
        return at
    match = h._find(h._scan, buf, at, len(buf))
    if match is not None and match.start() == at:
        if match.lastgroup == "part":
            h._raw.append(buf[pos:at])
            h._pending = buf[at:]
            return len(buf)
        h._raw.append(buf[pos:at])
        return _leave(h, match, out)
    header, *blanks = h._raw or [""]
    out += (Span(OPEN, header), Span(THINKING, "".join(blanks) + buf[pos : at + 1]))
    h._raw.clear()
    h._state = _in_body
    return at + 1


def _in_body(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    match = h._find(h._scan, buf, pos, len(buf))
    at = len(buf) if match is None else match.start()
    if at > pos:
        out.append(Span(h._kind, buf[pos:at]))
    if match is None:
        return at
    if match.lastgroup == "part":
        h._pending = buf[at:]
        return len(buf)
    return _leave(h, match, out)


def _leave(h: Harmony, match: re.Match[str], out: list[Span]) -> int:
    """The message ends at `match`, which is an end token or the beginning of a header."""
    token = match.group()
    if match.lastgroup == "end":
        h._finish(token, out)
        return match.end()
    h._finish("", out)
    if h._glued:
        return _glued_header(h, token.removeprefix("assistant"), token, match.end(), out)
    return match.start()


def _glued_header(h: Harmony, channel: str, header: str, at: int, out: list[Span]) -> int:
    """A channel's name without its tokens. `final` is the last message: nothing in it is a marker."""
    h.channel = channel
    if channel == "commentary":
        h._raw, h._size, h._state = [header], 0, _glued_call
    else:
        h._begin(header, None, out)
        h._scan = _NOTHING if channel == "final" else _GLUED_BODY
    return at


def _glued_call(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    """Behind a glued `commentary`: ` to=functions.x json{`, or else a preamble."""
    call = _GLUED_CALL.match(buf, pos, pos + HEADER_CAP)
    if call is None and not h._final and len(buf) - pos < HEADER_CAP and _GLUED_CALL_PART.match(buf, pos):
        h._pending = buf[pos:]
        return len(buf)
    header = "".join(h._raw)
    h._raw.clear()
    if call is None:
        h._begin(header, None, out)
        return pos
    h._begin(header + call.group(), call[1], out)
    return call.end()
