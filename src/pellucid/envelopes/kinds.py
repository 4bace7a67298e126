"""The kinds of envelopes, with everything in which they differ; and where the text of an envelope stands.

    kind_of("reasoning/thought").act           # "step": its effect on its context
    text_of(envelope)                          # the text that its sender wrote for people

A kind consists of words with `/` between them. Dots, which the drafts wrote, are read as slashes, in capabilities too.
Each known kind has a row in a table. A kind without a row is accepted. It behaves like its family (`reasoning`, `mcp`
…), and its payload is not checked.

A new kind needs its payload (`payloads`) and its row here. Life cycle, capabilities, views, search, export and terminal
follow from the row. The page has its own texts for kinds (`ui/src/spaces`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ..unicode import describe_validation_error
from . import payloads as p
from .envelope import Envelope, EnvelopeError, field_error

MAX_LENGTH = 255

CHAT = "chat"
CHAT_ACK = "chat/acknowledge"
CHAT_CANCEL = "chat/cancel"
START = "reasoning/start"
THOUGHT = "reasoning/thought"
QUESTION = "reasoning/question"
OBSERVATION = "reasoning/observation"
HYPOTHESIS = "reasoning/hypothesis"
CONCLUSION = "reasoning/conclusion"
CANCEL = "reasoning/cancel"
SHARE = "reasoning/share"
"""Adds participants to the audience of a context."""
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
RENEW = "space/renew"
"""Renews what agents may say (see `talk`): in its context, or without one in the whole space."""
STREAM_REQUEST = "stream/request"
STREAM_OPEN = "stream/open"
STREAM_CLOSE = "stream/close"
STREAM_GRANT_WRITE = "stream/grant-write"
STREAM_REVOKE_WRITE = "stream/revoke-write"
STREAM_TRANSFER = "stream/transfer-ownership"
STREAM_WRITE_GRANTED = "stream/write-granted"
STREAM_WRITE_REVOKED = "stream/write-revoked"
STREAM_TRANSFERRED = "stream/ownership-transferred"
WELCOME = "system/welcome"
PRESENCE = "system/presence"
ERROR = "system/error"
GAP = "system/gap"
"""Sent to a slow reader: which envelopes were left out."""
CONFIGURED = "system/configured"
"""What the configuration changed: configured participants, everyone's capabilities, templates. Only the gateway sees
it.
"""

LIMIT = "system/limit"
"""A notice to all: agents have used what they may say (see `talk`)."""

JOIN = "system/join"
HEARTBEAT = "system/heartbeat"
"""Kinds that only clients send, in frames that do not become envelopes."""

Act: TypeAlias = Literal["start", "step", "conclusion", "cancel", "share", "message"]
"""The effect of an envelope on its context.

A `step` neither begins nor ends a reasoning. A `share` widens its audience. A `message` is not reasoning at all.
"""

Visibility: TypeAlias = Literal["always", "content", "reasoning"]
"""Who may see an envelope that stands in a context.

`always`: everyone, in every view, because a participant must act on it. `content`: those who may read reasoning, and
its recipients. `reasoning`: only those who may read reasoning.
"""

LabelContent: TypeAlias = Literal[
    "text", "opening", "severity", "confidence", "conclusion", "call", "result", "reason", "nothing", "kind"
]
"""What of an envelope is shown in one line of a transcript.

Its text, also with what they open or how confident they are; a call or its result; the reason; nothing; or the kind
and whatever the payload holds.
"""


class Label(NamedTuple):
    """How an envelope looks in a transcript."""

    mark: str = "·"
    style: str = "italic"
    content: LabelContent = "kind"
    prefix: str = ""
    """Text before the content."""
    nested_style: str | None = None
    """The style within a context, if it differs."""
    nested_bar: bool = True
    """Whether a bar is drawn before the mark within a context. Reasoning draws its own."""


_COMMON_TEXT_FIELDS = (
    "message",
    "reasoning",
    "text",
    "content",
    "input",
    "goal",
    "decision",
    "recommendation",
    "reason",
)
"""Fields in which senders put their text. MEW's agents start with `input` and think in `reasoning`; the seed's agents
have a `goal`.
"""

_JSON_RPC = ("jsonrpc", "id")
"""Fields of the JSON-RPC protocol itself."""


class EnvelopeKind(NamedTuple):
    """One kind, or all kinds of a family without a row of their own."""

    name: str
    payload: type[p.Payload] = p.Payload
    act: Act = "message"
    visibility: Visibility = "content"
    text_fields: tuple[str, ...] = _COMMON_TEXT_FIELDS
    """Fields in which its text may stand. The first of them that has any text is used."""
    more_text_fields: tuple[str, ...] = ()
    """Further fields that hold text."""
    unsearched_fields: tuple[str, ...] = ()
    input_field: str = "message"
    """The field for text that a person types."""
    link: Literal["answer", "call"] | None = None
    """How it is related to the context that it comes out of."""
    proposal_status: Literal["fulfilled", "rejected", "withdrawn"] | None = None
    """The status that it gives to a proposal to which it correlates."""
    label: Label = Label()
    talk: Literal["turn", "thought", "end", "text"] | None = None
    """How it counts towards the limits of agents' talk (see `talk`). An `end` is a turn unless it ends something open,
    `text` is one if it has any. None: it does not count, and is never refused by them.
    """


_REASONING = EnvelopeKind("reasoning", act="step", visibility="reasoning", talk="thought")
_MCP = EnvelopeKind("mcp", visibility="always", unsearched_fields=_JSON_RPC, talk="turn")
_RIGHTS = EnvelopeKind("capability", visibility="always")
_SPACE = EnvelopeKind("space", visibility="always")
_SYSTEM = EnvelopeKind("system", visibility="always")
_FAMILIES: Mapping[str, EnvelopeKind] = {
    row.name: row for row in (_REASONING, _MCP, _RIGHTS, _SPACE, EnvelopeKind("participant", talk="text"), _SYSTEM)
}
_DEFAULT_KIND = EnvelopeKind("", talk="turn")

_STEP = Label("│", "dim", "text", nested_bar=False)

KINDS: Mapping[str, EnvelopeKind] = {
    row.name: row
    for row in (
        EnvelopeKind(
            CHAT,
            p.Chat,
            text_fields=("text", "message", "content"),
            input_field="text",
            link="answer",
            label=Label("", "", "text", nested_style="dim"),
            talk="turn",
        ),
        EnvelopeKind(CHAT_ACK, p.Acknowledgement, talk="text"),
        EnvelopeKind(CHAT_CANCEL, p.Reason, talk="text"),
        _REASONING._replace(
            name=START,
            payload=p.Start,
            act="start",
            more_text_fields=("approach",),
            label=_STEP._replace(mark="╭", content="opening"),
        ),
        _REASONING._replace(name=THOUGHT, payload=p.Thought, label=_STEP),
        _REASONING._replace(
            name=QUESTION,
            payload=p.Question,
            text_fields=("message", "content", "questions"),
            label=_STEP._replace(mark="│ ?"),
        ),
        _REASONING._replace(
            name=OBSERVATION,
            payload=p.Observation,
            more_text_fields=("details",),
            label=_STEP._replace(mark="│ ●", content="severity"),
        ),
        _REASONING._replace(
            name=HYPOTHESIS,
            payload=p.Hypothesis,
            text_fields=("hypothesis", "message", "content"),
            more_text_fields=("evidence",),
            label=_STEP._replace(mark="│ ~", content="confidence"),
        ),
        _REASONING._replace(
            name=CONCLUSION,
            payload=p.Conclusion,
            act="conclusion",
            more_text_fields=("decision", "key_factors", "recommendation"),
            label=_STEP._replace(mark="╰", style="dim bold", content="conclusion"),
            talk="end",
        ),
        _REASONING._replace(
            name=CANCEL,
            payload=p.Reason,
            act="cancel",
            input_field="reason",
            label=_STEP._replace(mark="╰", style="red", content="reason", prefix="cancelled"),
            talk="end",
        ),
        _REASONING._replace(
            name=SHARE,
            payload=p.Share,
            act="share",
            input_field="reason",
            label=_STEP._replace(mark="│ +", content="kind"),
            talk="text",
        ),
        _MCP._replace(
            name=REQUEST,
            payload=p.McpRequest,
            link="call",
            proposal_status="fulfilled",
            label=Label("→", "", "call"),
        ),
        _MCP._replace(name=RESPONSE, payload=p.McpResponse, link="answer", label=Label("←", "", "result"), talk="end"),
        _MCP._replace(name=PROPOSAL, payload=p.McpRequest, link="call", label=Label("⇢", "bold", "call", "proposes ")),
        _MCP._replace(
            name=WITHDRAW,
            payload=p.Reason,
            proposal_status="withdrawn",
            label=Label("✗", "red", "reason", "withdraws it"),
            talk=None,
        ),
        _MCP._replace(
            name=REJECT,
            payload=p.Reason,
            proposal_status="rejected",
            label=Label("✗", "red", "reason", "rejects it"),
            talk=None,
        ),
        _RIGHTS._replace(name=GRANT, payload=p.Grant),
        _RIGHTS._replace(name=REVOKE, payload=p.Revoke),
        _RIGHTS._replace(name=GRANT_ACK, payload=p.Acknowledgement, talk="text"),
        _SPACE._replace(name=INVITE, payload=p.Invite),
        _SPACE._replace(name=INVITE_ACK, payload=p.InviteAck),
        _SPACE._replace(name=KICK, payload=p.Kick),
        _SPACE._replace(
            name=RENEW,
            payload=p.Renew,
            input_field="reason",
            label=Label("+", "dim italic", "nothing", "agents may go on"),
        ),
        _SYSTEM._replace(
            name=WELCOME,
            payload=p.Welcome,
            label=Label(
                "!",
                "dim italic",
                "nothing",
                "this is not the same space as before; its envelopes follow",
                nested_bar=False,
            ),
        ),
        _SYSTEM._replace(name=PRESENCE, payload=p.Presence),
        _SYSTEM._replace(
            name=ERROR,
            payload=p.Failure,
            text_fields=("message", "error"),
            label=Label("!", "red", "text", nested_bar=False),
        ),
        _SYSTEM._replace(name=GAP),
        _SYSTEM._replace(
            name=LIMIT,
            payload=p.Limit,
            text_fields=("message",),
            label=Label("!", "yellow", "text", nested_bar=False),
        ),
        _SYSTEM._replace(name=CONFIGURED),
    )
}

STEP_KINDS = frozenset(row.name for row in KINDS.values() if row.act == "step")
"""The kinds that `reasoning/step` covers in a capability: they neither begin nor end a reasoning."""


def kind_of(name: str) -> EnvelopeKind:
    """Return the row of a kind, or the row of its family if it has none."""
    return KINDS.get(name) or _FAMILIES.get(name.partition("/")[0], _DEFAULT_KIND)


RESERVED = "system"
"""The first word of the kinds that only the gateway may send."""

_KIND = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_:-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_:-]*)*")
_MISSING = re.compile("Object missing required field `(.*)`")


def is_reserved(kind: str) -> bool:
    """Check whether only the gateway sends this kind, however it is spelled: `system/x`, `System.x`, `system:x`."""
    return kind.replace(".", "/").replace(":", "/").partition("/")[0].lower() == RESERVED


def normalize_kind(kind: str) -> str:
    """Return the kind with slashes.

    Raises:
        EnvelopeError: If it is not a valid kind.
    """
    slashed = kind.replace(".", "/")
    if len(kind) > MAX_LENGTH:
        raise field_error("kind", f"at most {MAX_LENGTH} characters, not {len(kind)}", "too_long")
    if _KIND.fullmatch(slashed) is None:
        raise field_error(
            "kind",
            f"{kind!r} is not valid: a kind is words of letters, digits, '_', '-' and ':' with '/' between them, "
            "like 'reasoning/start'",
            "invalid_kind",
        )
    return slashed


def decode_payload(kind: str, payload: Mapping[str, Any]) -> p.Payload:
    """Return the known fields of a payload, with their types.

    Raises:
        EnvelopeError: If a known field has a wrong type or value.
    """
    try:
        return msgspec.convert(payload, kind_of(kind).payload)
    except msgspec.ValidationError as error:
        raise _payload_error(str(error), kind) from None


def _payload_error(text: str, kind: str) -> EnvelopeError:
    """Convert a message of msgspec to an error that names the place in the envelope."""
    (what, field), code = describe_validation_error(text), "invalid_payload"
    steps = ["payload", field]
    missing = _MISSING.fullmatch(what)
    if missing:
        steps.append(missing.group(1))
        what, code = "it is required", "missing"
    location = ".".join(step for step in steps if step)
    return field_error(location, f"{what} (in a {kind!r})", code)


# --- words


def text_of(envelope: Envelope) -> str:
    """Return the text of an envelope, wherever its sender put it; empty if there is none."""
    payload = envelope.payload
    for name in kind_of(envelope.kind).text_fields:
        value = payload.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list):
            lines = [line for line in value if isinstance(line, str)]
            if lines:
                return "\n".join(lines)
    return ""


def searched_text(envelope: Envelope) -> str:
    """Return the text that search looks into, and from which snippets are cut.

    The text of the envelope comes first, then every other string of the payload, one line each. The fields of JSON-RPC
    itself are left out of MCP.
    """
    words, unsearched = text_of(envelope), kind_of(envelope.kind).unsearched_fields
    payload = {name: value for name, value in envelope.payload.items() if name not in unsearched}
    lines = [words] if words else []
    lines += [one for one in _strings(payload) if one and one != words]
    return "\n".join(lines)


def _strings(value: Any) -> Iterator[str]:
    """Yield all strings in a value, in order. Not recursive, because the sender chooses the depth."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            stack += reversed(one.values())
        elif isinstance(one, list | tuple):
            stack += reversed(one)
