"""The kinds there are, and what their payloads hold (where the words stand in them: `words`).

A kind is words with `/` between them. Dots, which the drafts wrote, are slashes, in capabilities too. A kind that is
not in the table is as good as any other, with a payload that nobody looks into.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ..text import misfit
from . import payloads as p
from .envelope import EnvelopeError

MAX_LENGTH = 255

CHAT = "chat"
CHAT_CANCEL = "chat/cancel"
START = "reasoning/start"
THOUGHT = "reasoning/thought"
QUESTION = "reasoning/question"
OBSERVATION = "reasoning/observation"
HYPOTHESIS = "reasoning/hypothesis"
CONCLUSION = "reasoning/conclusion"
CANCEL = "reasoning/cancel"
REQUEST = "mcp/request"
RESPONSE = "mcp/response"
PROPOSAL = "mcp/proposal"
WITHDRAW = "mcp/withdraw"
REJECT = "mcp/reject"
GRANT = "capability/grant"
REVOKE = "capability/revoke"
GRANT_ACK = "capability/grant-ack"
INVITE = "space/invite"
INVITE_ACK = "space/invite-ack"
KICK = "space/kick"
WELCOME = "system/welcome"
PRESENCE = "system/presence"
ERROR = "system/error"
JOIN = "system/join"
HEARTBEAT = "system/heartbeat"
GAP = "system/gap"
"""To a reader who was too slow: what was left out."""
CONFIGURED = "system/configured"
"""What the configuration changed: doors, what everybody holds, templates. For nobody's eyes but the gateway's."""

PAYLOADS: Mapping[str, type[p.Payload]] = {
    CHAT: p.Chat,
    "chat/acknowledge": p.Status,
    CHAT_CANCEL: p.Reason,
    START: p.Start,
    THOUGHT: p.Thought,
    QUESTION: p.Question,
    OBSERVATION: p.Observation,
    HYPOTHESIS: p.Hypothesis,
    CONCLUSION: p.Conclusion,
    CANCEL: p.Reason,
    REQUEST: p.McpRequest,
    RESPONSE: p.McpResponse,
    PROPOSAL: p.McpRequest,
    WITHDRAW: p.Reason,
    REJECT: p.Reason,
    GRANT: p.Grant,
    REVOKE: p.Revoke,
    GRANT_ACK: p.Status,
    INVITE: p.Invite,
    INVITE_ACK: p.InviteAck,
    KICK: p.Kick,
    WELCOME: p.Welcome,
    PRESENCE: p.Presence,
    ERROR: p.Failure,
}

STEPS = frozenset({THOUGHT, QUESTION, OBSERVATION, HYPOTHESIS})
"""What `reasoning/step` means in a capability: thinking on, neither beginning nor ending."""

RESERVED = "system"
"""The first word of what the gateway alone may send."""

_KIND = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_:-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_:-]*)*")
_MISSING = re.compile("Object missing required field `(.*)`")


def is_reserved(kind: str) -> bool:
    """Whether the gateway alone sends it, however it is spelled: `system/x`, `System.x`, `system:x`."""
    return kind.replace(".", "/").replace(":", "/").partition("/")[0].lower() == RESERVED


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
    (what, place), code = misfit(text), "invalid_payload"
    steps = ["payload", place]
    missing = _MISSING.fullmatch(what)
    if missing:
        steps.append(missing.group(1))
        what, code = "it is required", "missing"
    at = ".".join(step for step in steps if step)
    return EnvelopeError(f"{at}: {what} (in a {kind!r})", code=code, param=at)
