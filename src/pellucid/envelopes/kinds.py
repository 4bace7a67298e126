"""The kinds there are, what their payloads hold, and where the words stand in them.

A kind is words with `/` between them. Dots, which the drafts wrote, are slashes, in capabilities too. A kind that is
not in the table is as good as any other, with a payload that nobody looks into.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from . import payloads as p
from .envelope import Envelope, EnvelopeError

MAX_LENGTH = 255

CHAT = "chat"
START = "reasoning/start"
THOUGHT = "reasoning/thought"
CONCLUSION = "reasoning/conclusion"
CANCEL = "reasoning/cancel"
REQUEST = "mcp/request"
RESPONSE = "mcp/response"
PROPOSAL = "mcp/proposal"
WITHDRAW = "mcp/withdraw"
REJECT = "mcp/reject"
GRANT = "capability/grant"
REVOKE = "capability/revoke"
INVITE = "space/invite"
KICK = "space/kick"
WELCOME = "system/welcome"
PRESENCE = "system/presence"
ERROR = "system/error"
JOIN = "system/join"
HEARTBEAT = "system/heartbeat"

PAYLOADS: Mapping[str, type[p.Payload]] = {
    CHAT: p.Chat,
    "chat/acknowledge": p.Status,
    "chat/cancel": p.Reason,
    START: p.Start,
    THOUGHT: p.Thought,
    "reasoning/question": p.Question,
    "reasoning/observation": p.Observation,
    "reasoning/hypothesis": p.Hypothesis,
    CONCLUSION: p.Conclusion,
    CANCEL: p.Reason,
    REQUEST: p.McpRequest,
    RESPONSE: p.McpResponse,
    PROPOSAL: p.McpRequest,
    WITHDRAW: p.Reason,
    REJECT: p.Reason,
    GRANT: p.Grant,
    REVOKE: p.Revoke,
    "capability/grant-ack": p.Status,
    INVITE: p.Invite,
    "space/invite-ack": p.InviteAck,
    KICK: p.Kick,
    WELCOME: p.Welcome,
    PRESENCE: p.Presence,
    ERROR: p.Failure,
}

STEPS = frozenset({THOUGHT, "reasoning/question", "reasoning/observation", "reasoning/hypothesis"})
"""What `reasoning/step` means in a capability: thinking on, neither beginning nor ending."""

REASONING = STEPS | {START, CONCLUSION, CANCEL}

ACTIONS = frozenset({REQUEST, RESPONSE, PROPOSAL, WITHDRAW, REJECT})
"""What everybody must be able to act on, in whatever context it stands."""

RESERVED = "system"
"""The first word of what the gateway alone may send."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    CHAT: ("text", "message", "content"),
    "reasoning/question": ("message", "content", "questions"),
    "reasoning/hypothesis": ("hypothesis", "message", "content"),
    ERROR: ("message", "error"),
}
_ANY = ("message", "reasoning", "text", "content", "input", "goal", "decision", "recommendation", "reason")
"""Where people put their words. MEW's agents start with `input` and think in `reasoning`; the seed's have a `goal`."""

_KIND = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_:-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_:-]*)*")
_FAULT = re.compile(r" - at `(?:key in `)?\$\.?(.*?)`$")
_MISSING = re.compile("Object missing required field `(.*)`")


def normal(kind: str) -> str:
    """The kind with slashes. Raises `EnvelopeError`."""
    slashed = kind.replace(".", "/")
    if len(kind) > MAX_LENGTH:
        raise EnvelopeError(f"kind: at most {MAX_LENGTH} characters, not {len(kind)}", code="too_long", param="kind")
    if _KIND.fullmatch(slashed) is None:
        raise EnvelopeError(
            f"kind: {kind!r} is none: it is words of letters, digits, '_', '-' and ':' with '/' between them, like "
            "'reasoning/start'",
            code="invalid_kind",
            param="kind",
        )
    return slashed


def typed(kind: str, payload: Mapping[str, Any]) -> p.Payload:
    """What is known of the payload. Raises `EnvelopeError` where a known field is not what it must be."""
    into = PAYLOADS.get(kind, p.Payload)
    try:
        return msgspec.convert(payload, into)
    except msgspec.ValidationError as error:
        raise _told(str(error), kind) from None


def _told(text: str, kind: str) -> EnvelopeError:
    """What msgspec says is wrong, with its place in the envelope."""
    found = _FAULT.search(text)
    steps = ["payload", found.group(1) if found else ""]
    what, code = _FAULT.sub("", text), "invalid_payload"
    missing = _MISSING.fullmatch(what)
    if missing:
        steps.append(missing.group(1))
        what, code = "it is required", "missing"
    at = ".".join(step for step in steps if step)
    return EnvelopeError(f"{at}: {what} (in a {kind!r})", code=code, param=at)


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


def tool_of(envelope: Envelope) -> str | None:
    """The tool that it calls, or proposes to call."""
    params = envelope.payload.get("params")
    if envelope.payload.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    name = params.get("name")
    return name if isinstance(name, str) else None


__all__ = [
    "ACTIONS",
    "CANCEL",
    "CHAT",
    "CONCLUSION",
    "ERROR",
    "GRANT",
    "HEARTBEAT",
    "INVITE",
    "JOIN",
    "KICK",
    "PAYLOADS",
    "PRESENCE",
    "PROPOSAL",
    "REASONING",
    "REJECT",
    "REQUEST",
    "RESERVED",
    "RESPONSE",
    "REVOKE",
    "START",
    "STEPS",
    "THOUGHT",
    "WELCOME",
    "WITHDRAW",
    "normal",
    "text_of",
    "tool_of",
    "typed",
]
