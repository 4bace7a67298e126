"""Parser of the harmony format (gpt-oss) as text: messages with headers, channels and recipients.

    <|start|>assistant<|channel|>analysis<|message|>…<|end|>

The rules are the splitter's (chunking does not matter, nothing is lost, as little as possible is held back) and:

1. A message is reasoning if its channel is `analysis`. It is a tool call if it has a recipient, whatever the
   channel and wherever the recipient is in the header. It is answer otherwise: `final`, a preamble in
   `commentary`, an unknown channel.
2. The template wrote `<|start|>assistant`, so the output may begin with any later part of a header.
3. A message ends at `<|end|>`, `<|call|>` or `<|return|>`, and at the next header if these are missing.
   Any other `<|x|>` is text. Text outside messages is answer.
4. White space inside a message is content: nothing is stripped.
5. A header without `<|message|>` is abandoned after `MAX_HEADER_CHARS` characters or at the end of the input.
   The text after its channel's name is then the message, if it can be distinguished from a header.
6. Headers and end tokens are `open` and `close` spans around reasoning and `drop` spans around answers. Around a
   tool call they are `drop` and `tool_end`. The texts of all spans except `tool` are the input.
"""

from __future__ import annotations

import re

from .spans import (
    CLOSE,
    DROP,
    OPEN,
    TEXT,
    THINKING,
    TOOL,
    TOOL_ARGS,
    TOOL_END,
    Span,
    SpanParser,
    marker_pattern,
    prefix_pattern,
)

MAX_HEADER_CHARS = 512
"""Length of a header after which it is abandoned."""

_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_HEADS = ("<|start|>", "<|channel|>")
_NON_TOOL_RECIPIENTS = ("user", "all", "assistant")  # recipients that are not tools

_BODY = marker_pattern({"end": _ENDS, "head": _HEADS}).search
_HEADER = marker_pattern({"end": _ENDS, "start": ("<|start|>",), "message": ("<|message|>",)}).search
_TOKENS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>")

# Between messages: the rest of a header whose beginning is in the prompt or was lost, or an end token.
# All groups are possessive or atomic, so that a long run of white space is not tried in every division.
_LEAD = re.compile(
    r"\s*+(?>(?:assistant)?)(?>(?:\s*+to=[^\s<]++)?)\s*+(?P<head>"
    + "|".join(map(re.escape, _TOKENS))
    + r")|\s*+(?P<end>"
    + "|".join(map(re.escape, _ENDS))
    + ")"
)
_LEAD_PART = re.compile(
    rf"\s*+(?:(?:{prefix_pattern(['assistant='])})\Z|(?>(?:assistant)?)\s*+"
    rf"(?:(?:t|to)\Z|(?>(?:to=[^\s<]*+)?)\s*+(?:{prefix_pattern((*_TOKENS, *_ENDS))})?\Z))"
)

_ROLE = re.compile(r"\s*(?:<\|start\|>)?\s*([^\s<=]+)(?=[\s<]|$)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_NAMED = re.compile(r"(?:\s*<\|start\|>)?[^<]*<\|channel\|>\s*(?:analysis|commentary|final)")

_MORE_HEADER = re.compile(r"<\||^\s*to?(?:=|$)")

_QUICK = re.compile("<").search


class Harmony(SpanParser):
    """A parser of gpt-oss's format.

    Attributes:
        channel: The channel of the current message; None outside messages and if the header names none.
    """

    __slots__ = ("_header_chars", "_header_pieces", "_is_at_start", "channel")

    def __init__(self) -> None:
        super().__init__()
        self.channel: str | None = None
        self._is_at_start = True  # nothing has been read yet
        self._header_pieces: list[str] = []  # the header, then the reasoning while it is blank
        self._header_chars = 0  # characters of the header
        self._state = _between

    def feed(self, text: str) -> list[Span]:
        """Read the next piece of text.

        Returns:
            The spans that are certain so far, in order.

        Raises:
            RuntimeError: `end` was called.
        """
        quick = self._quick
        if quick is not None and quick(text) is None:
            return [Span(self._kind, text)] if text else []
        return self._read(text)

    def end(self) -> list[Span]:
        """End the input and return the remaining spans. A second call returns nothing.

        A tool call is closed with an empty `tool_end`. Servers cut off the stop token, so its absence does not
        distinguish a truncated call from a complete one; the finish reason and the arguments do.
        """
        out = super().end()
        if self._state is _in_body and self._kind == TOOL_ARGS:
            out.append(Span(TOOL_END, ""))
            self._state = _between
        return out

    def _choose_fast_path(self) -> None:
        self._quick = _QUICK if self._state is _in_body and not self._pending else None

    def _flush(self, out: list[Span]) -> None:
        self._is_final = True
        if self._pending:
            self._process(self._pending, out)
        if self._state is _in_header:
            self._abandon_header("".join(self._header_pieces), True, out)
        if self._state is _blank_reasoning and self._header_pieces:
            out.append(Span(DROP, "".join(self._header_pieces)))
            self._header_pieces.clear()
        self._is_final = False

    def _begin_message(self, header: str, recipient: str | None, out: list[Span]) -> None:
        """Begin the message after a complete header."""
        self._is_at_start = False
        self._state = _in_body
        if recipient is not None and recipient not in _NON_TOOL_RECIPIENTS:
            self._kind = TOOL_ARGS
            out += (Span(DROP, header), Span(TOOL, recipient))
        elif self.channel == "analysis":
            self._kind, self._state = THINKING, _blank_reasoning
            self._header_pieces = [header]
        else:
            self._kind = TEXT
            out.append(Span(DROP, header))

    def _parse_header(self, header: str, out: list[Span]) -> None:
        channel, recipient, role = _CHANNEL.search(header), _RECIPIENT.search(header), _ROLE.match(header)
        self.channel = channel[1] if channel else None
        if role is not None and role[1] != "assistant":
            # A turn of a tool or user that the model invented: neither reasoning nor answer.
            self._is_at_start, self._state, self._kind = False, _in_body, DROP
            out.append(Span(DROP, header))
        else:
            self._begin_message(header, recipient[1] if recipient else None, out)

    def _abandon_header(self, header: str, truncated: bool, out: list[Span]) -> None:
        """Abandon a header without `<|message|>`. Its message may begin after the channel's name."""
        self._header_pieces.clear()
        channel_header = _NAMED.match(header)
        message = header[channel_header.end() :] if channel_header is not None else ""
        if channel_header is not None and message.strip() and not _MORE_HEADER.search(message):
            self._parse_header(channel_header.group(), out)
            self._process(message, out)
        elif truncated:
            out.append(Span(DROP, header))
            self._state = _between
        else:
            out.append(Span(TEXT, header))
            self._state, self._kind, self.channel, self._is_at_start = _in_body, TEXT, None, False

    def _end_message(self, token: str, out: list[Span]) -> None:
        """End the message; `token` is its end token, or empty."""
        if self._state is _blank_reasoning:
            out.append(Span(DROP, "".join(self._header_pieces) + token))
            self._header_pieces.clear()
        elif self._kind == THINKING:
            out.append(Span(CLOSE, token))
        elif self._kind == TOOL_ARGS:
            out.append(Span(TOOL_END, token))
        elif token:
            out.append(Span(DROP, token))
        self.channel = None
        self._state = _between


def _between(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    """State outside messages: a header begins, or continues the prompt's; or there is plain text."""
    lead = _LEAD.match(buf, pos, pos + MAX_HEADER_CHARS)
    if lead is None and not h._is_final and len(buf) - pos < MAX_HEADER_CHARS and _LEAD_PART.match(buf, pos):
        h._pending = buf[pos:]
        return len(buf)
    if lead is None:
        if h._is_final and not h._is_at_start and not buf[pos:].strip():
            out.append(Span(DROP, buf[pos:]))  # a line break after the last message
            return len(buf)
        h._state, h._kind, h._is_at_start = _in_body, TEXT, False
        return pos
    if lead["end"]:
        out.append(Span(DROP, lead.group()))
        h._is_at_start = False
        return lead.end()
    # The header's text stops before its first token, unless that token begins the header.
    at = lead.end() if lead["head"] == "<|start|>" else lead.start("head")
    h._header_pieces = [buf[pos:at]]
    h._header_chars = at - pos
    h._state = _in_header
    return at


def _in_header(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    stop = min(len(buf), pos + MAX_HEADER_CHARS - h._header_chars)
    match = h._search(_HEADER, buf, pos, stop)
    if match is None or match.lastgroup == "part":
        cut = stop if match is None else match.start()
        if h._header_chars + stop - pos >= MAX_HEADER_CHARS:
            h._abandon_header("".join(h._header_pieces) + buf[pos:cut], False, out)
            return cut
        h._header_pieces.append(buf[pos:cut])
        h._header_chars += cut - pos
        h._pending = buf[cut:]
        return len(buf)
    before = "".join(h._header_pieces) + buf[pos : match.start()]
    h._header_pieces.clear()
    if match.lastgroup == "message":
        h._parse_header(before + match.group(), out)
    elif match.lastgroup == "start":  # a new header: the old one never had a message
        out.append(Span(DROP, before))
        h._header_pieces, h._header_chars = [match.group()], match.end() - match.start()
    else:
        out.append(Span(DROP, before + match.group()))
        h._is_at_start = False
        h._state = _between
    return match.end()


_VISIBLE = re.compile(r"\S")


def _blank_reasoning(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    """State inside an analysis message without a visible character so far: it may turn out to be empty."""
    seen = _VISIBLE.search(buf, pos)
    at = len(buf) if seen is None else seen.start()
    if seen is None:
        h._header_pieces.append(buf[pos:])
        return at
    match = h._search(_BODY, buf, at)
    if match is not None and match.start() == at:
        if match.lastgroup == "part":
            h._header_pieces.append(buf[pos:at])
            h._pending = buf[at:]
            return len(buf)
        h._header_pieces.append(buf[pos:at])
        return _leave_message(h, match, out)
    header, *blanks = h._header_pieces or [""]
    out += (Span(OPEN, header), Span(THINKING, "".join(blanks) + buf[pos : at + 1]))
    h._header_pieces.clear()
    h._state = _in_body
    return at + 1


def _in_body(h: Harmony, buf: str, pos: int, out: list[Span]) -> int:
    match = h._search(_BODY, buf, pos)
    at = len(buf) if match is None else match.start()
    if at > pos:
        out.append(Span(h._kind, buf[pos:at]))
    if match is None:
        return at
    if match.lastgroup == "part":
        h._pending = buf[at:]
        return len(buf)
    return _leave_message(h, match, out)


def _leave_message(h: Harmony, match: re.Match[str], out: list[Span]) -> int:
    """End the message at `match`, which is an end token or the beginning of a header."""
    token = match.group()
    if match.lastgroup == "end":
        h._end_message(token, out)
        return match.end()
    h._end_message("", out)
    return match.start()
