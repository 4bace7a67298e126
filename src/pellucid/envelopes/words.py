"""Where the words stand in an envelope: those that its sender meant for people, and all that search looks into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .envelope import Envelope
from .kinds import CHAT, ERROR, HYPOTHESIS, QUESTION

_WORDS: Mapping[str, tuple[str, ...]] = {
    CHAT: ("text", "message", "content"),
    QUESTION: ("message", "content", "questions"),
    HYPOTHESIS: ("hypothesis", "message", "content"),
    ERROR: ("message", "error"),
}
_ANY = ("message", "reasoning", "text", "content", "input", "goal", "decision", "recommendation", "reason")
"""Where people put their words. MEW's agents start with `input` and think in `reasoning`; the seed's have a `goal`."""

_WIRING = frozenset({"jsonrpc", "id"})
"""What JSON-RPC says for itself."""


def text_of(envelope: Envelope) -> str:
    """The words of it, wherever its sender put them; empty where there are none."""
    payload = envelope.payload
    for name in _WORDS.get(envelope.kind, _ANY):
        value = payload.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            lines = [line for line in value if isinstance(line, str)]
            if lines:
                return "\n".join(lines)
    return ""


def searched_text(envelope: Envelope) -> str:
    """What search looks into, and what a snippet is cut out of: the words first, then every other string of the
    payload, a line for each; of MCP, nothing that JSON-RPC needs for itself."""
    words, payload = text_of(envelope), envelope.payload
    if envelope.family == "mcp":
        payload = {name: value for name, value in payload.items() if name not in _WIRING}
    lines = [words] if words else []
    lines += [one for one in _strings(payload) if one and one != words]
    return "\n".join(lines)


def _strings(value: Any) -> Iterator[str]:
    """All that are in it, in order. Not by recursion: how deep it goes is its sender's choice."""
    ahead = [value]
    while ahead:
        one = ahead.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            ahead += reversed(one.values())
        elif isinstance(one, list | tuple):
            ahead += reversed(one)
