"""The kinds of envelopes: a row for each, which everybody reads who treats kinds differently; and where words stand.

    kind_of("reasoning/thought").act           # "step": what it does to the context in which it stands
    text_of(envelope)                          # the words that its sender meant for people

A kind is words with `/` between them. Dots, which the drafts wrote, are slashes, in capabilities too. A kind without a
row is as good as any other: it is what its family is (`reasoning`, `mcp` …), with a payload that nobody looks into.

A new kind is its payload (`payloads`) and its row here: life cycle, capabilities, views, search, export and terminal
follow. The page has its own words for it (`ui/src/spaces`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from ..unicode import describe_validation_error
from . import payloads as p
from .envelope import Envelope, EnvelopeError

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
GAP = "system/gap"
"""To a reader who was too slow: what was left out."""
CONFIGURED = "system/configured"
"""What the configuration changed: doors, what everybody holds, templates. For nobody's eyes but the gateway's."""

JOIN = "system/join"
HEARTBEAT = "system/heartbeat"
"""What only a client sends, in frames that become no envelopes."""

Act: TypeAlias = Literal["start", "step", "conclusion", "cancel", "word"]
"""What an envelope does in a context of reasoning. A `word` is no reasoning; a `step` neither begins nor ends one."""

Visibility: TypeAlias = Literal["always", "words", "reasoning"]
"""Who is shown it where it stands in a context: everybody, in every view, for somebody must act on it; those who may
read reasoning, and whom it is addressed to; or those who may read reasoning alone."""

LabelContent: TypeAlias = Literal[
    "words", "opening", "severity", "confidence", "conclusion", "call", "result", "reason", "nothing", "kind"
]
"""What of an envelope is told in one line: its words, also with what they open or how sure they are; a call, or what
came of it; why; nothing; or the kind and whatever there is."""


class Label(NamedTuple):
    """How an envelope looks in a transcript."""

    mark: str = "·"
    style: str = "italic"
    content: LabelContent = "kind"
    prefix: str = ""
    """What stands before that."""
    nested_style: str | None = None
    """The style within a context, where it is another."""
    nested_bar: bool = True
    """Whether a bar stands before the mark within a context. What reasons draws its own."""


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
"""Where people put their words. MEW's agents start with `input` and think in `reasoning`; the seed's have a `goal`."""

_JSON_RPC = ("jsonrpc", "id")
"""What JSON-RPC says for itself."""


class EnvelopeKind(NamedTuple):
    """One kind, or all of a family that have no row of their own."""

    name: str
    payload: type[p.Payload] = p.Payload
    act: Act = "word"
    visibility: Visibility = "words"
    text_fields: tuple[str, ...] = _COMMON_TEXT_FIELDS
    """Where its words stand: in the first of these that has any."""
    more_text_fields: tuple[str, ...] = ()
    """What else it says in words."""
    unsearched_fields: tuple[str, ...] = ()
    input_field: str = "message"
    """Where words go that somebody types for it."""
    link: Literal["answer", "call"] | None = None
    """What it is to a context that it comes out of."""
    proposal_status: Literal["fulfilled", "rejected", "withdrawn"] | None = None
    """What becomes of a proposal that it names."""
    changes_rights: bool = False
    label: Label = Label()


KINDS: Mapping[str, EnvelopeKind] = {
    row.name: row
    for row in (
        EnvelopeKind(
            CHAT,
            p.Chat,
            text_fields=("text", "message", "content"),
            input_field="text",
            link="answer",
            label=Label("", "", "words", nested_style="dim"),
        ),
        EnvelopeKind(CHAT_ACK, p.Status),
        EnvelopeKind(CHAT_CANCEL, p.Reason),
        EnvelopeKind(
            START,
            p.Start,
            act="start",
            visibility="reasoning",
            more_text_fields=("approach",),
            label=Label("╭", "dim", "opening", nested_bar=False),
        ),
        EnvelopeKind(
            THOUGHT,
            p.Thought,
            act="step",
            visibility="reasoning",
            label=Label("│", "dim", "words", nested_bar=False),
        ),
        EnvelopeKind(
            QUESTION,
            p.Question,
            act="step",
            visibility="reasoning",
            text_fields=("message", "content", "questions"),
            label=Label("│ ?", "dim", "words", nested_bar=False),
        ),
        EnvelopeKind(
            OBSERVATION,
            p.Observation,
            act="step",
            visibility="reasoning",
            more_text_fields=("details",),
            label=Label("│ ●", "dim", "severity", nested_bar=False),
        ),
        EnvelopeKind(
            HYPOTHESIS,
            p.Hypothesis,
            act="step",
            visibility="reasoning",
            text_fields=("hypothesis", "message", "content"),
            more_text_fields=("evidence",),
            label=Label("│ ~", "dim", "confidence", nested_bar=False),
        ),
        EnvelopeKind(
            CONCLUSION,
            p.Conclusion,
            act="conclusion",
            visibility="reasoning",
            more_text_fields=("decision", "key_factors", "recommendation"),
            label=Label("╰", "dim bold", "conclusion", nested_bar=False),
        ),
        EnvelopeKind(
            CANCEL,
            p.Reason,
            act="cancel",
            visibility="reasoning",
            input_field="reason",
            label=Label("╰", "red", "reason", "cancelled", nested_bar=False),
        ),
        EnvelopeKind(
            REQUEST,
            p.McpRequest,
            visibility="always",
            unsearched_fields=_JSON_RPC,
            link="call",
            proposal_status="fulfilled",
            label=Label("→", "", "call"),
        ),
        EnvelopeKind(
            RESPONSE,
            p.McpResponse,
            visibility="always",
            unsearched_fields=_JSON_RPC,
            link="answer",
            label=Label("←", "", "result"),
        ),
        EnvelopeKind(
            PROPOSAL,
            p.McpRequest,
            visibility="always",
            unsearched_fields=_JSON_RPC,
            link="call",
            label=Label("⇢", "bold", "call", "proposes "),
        ),
        EnvelopeKind(
            WITHDRAW,
            p.Reason,
            visibility="always",
            unsearched_fields=_JSON_RPC,
            proposal_status="withdrawn",
            label=Label("✗", "red", "reason", "withdraws it"),
        ),
        EnvelopeKind(
            REJECT,
            p.Reason,
            visibility="always",
            unsearched_fields=_JSON_RPC,
            proposal_status="rejected",
            label=Label("✗", "red", "reason", "rejects it"),
        ),
        EnvelopeKind(GRANT, p.Grant, visibility="always", changes_rights=True),
        EnvelopeKind(REVOKE, p.Revoke, visibility="always", changes_rights=True),
        EnvelopeKind(GRANT_ACK, p.Status, visibility="always", changes_rights=True),
        EnvelopeKind(INVITE, p.Invite, visibility="always", changes_rights=True),
        EnvelopeKind(INVITE_ACK, p.InviteAck, visibility="always"),
        EnvelopeKind(KICK, p.Kick, visibility="always", changes_rights=True),
        EnvelopeKind(
            WELCOME,
            p.Welcome,
            visibility="always",
            label=Label(
                "!",
                "dim italic",
                "nothing",
                "this space is not the one that was here before; what it holds follows",
                nested_bar=False,
            ),
        ),
        EnvelopeKind(PRESENCE, p.Presence, visibility="always"),
        EnvelopeKind(
            ERROR,
            p.Failure,
            visibility="always",
            text_fields=("message", "error"),
            label=Label("!", "red", "words", nested_bar=False),
        ),
        EnvelopeKind(GAP, visibility="always"),
        EnvelopeKind(CONFIGURED, visibility="always"),
    )
}

_FAMILIES: Mapping[str, EnvelopeKind] = {
    row.name: row
    for row in (
        EnvelopeKind("reasoning", act="step", visibility="reasoning"),
        EnvelopeKind("mcp", visibility="always", unsearched_fields=_JSON_RPC),
        EnvelopeKind("capability", visibility="always"),
        EnvelopeKind("space", visibility="always"),
        EnvelopeKind("participant", visibility="always"),
        EnvelopeKind("system", visibility="always"),
    )
}
_DEFAULT_KIND = EnvelopeKind("")

STEP_KINDS = frozenset(row.name for row in KINDS.values() if row.act == "step")
"""What `reasoning/step` means in a capability: thinking on, neither beginning nor ending."""


def kind_of(name: str) -> EnvelopeKind:
    """The row of this kind; of one that has none, its family's."""
    return KINDS.get(name) or _FAMILIES.get(name.partition("/")[0], _DEFAULT_KIND)


RESERVED = "system"
"""The first word of what the gateway alone may send."""

_KIND = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_:-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_:-]*)*")
_MISSING = re.compile("Object missing required field `(.*)`")


def is_reserved(kind: str) -> bool:
    """Whether the gateway alone sends it, however it is spelled: `system/x`, `System.x`, `system:x`."""
    return kind.replace(".", "/").replace(":", "/").partition("/")[0].lower() == RESERVED


def normalize_kind(kind: str) -> str:
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


def decode_payload(kind: str, payload: Mapping[str, Any]) -> p.Payload:
    """What is known of the payload. Raises `EnvelopeError` where a known field is not what it must be."""
    try:
        return msgspec.convert(payload, kind_of(kind).payload)
    except msgspec.ValidationError as error:
        raise _payload_error(str(error), kind) from None


def _payload_error(text: str, kind: str) -> EnvelopeError:
    """What msgspec says is wrong, with its place in the envelope."""
    (what, field), code = describe_validation_error(text), "invalid_payload"
    steps = ["payload", field]
    missing = _MISSING.fullmatch(what)
    if missing:
        steps.append(missing.group(1))
        what, code = "it is required", "missing"
    at = ".".join(step for step in steps if step)
    return EnvelopeError(f"{at}: {what} (in a {kind!r})", code=code, param=at)


# --- words


def text_of(envelope: Envelope) -> str:
    """The words of it, wherever its sender put them; empty where there are none."""
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
    """What search looks into, and what a snippet is cut out of: the words first, then every other string of the
    payload, a line for each; of MCP, nothing that JSON-RPC needs for itself."""
    words, unsearched = text_of(envelope), kind_of(envelope.kind).unsearched_fields
    payload = {name: value for name, value in envelope.payload.items() if name not in unsearched}
    lines = [words] if words else []
    lines += [one for one in _strings(payload) if one and one != words]
    return "\n".join(lines)


def _strings(value: Any) -> Iterator[str]:
    """All that are in it, in order. Not by recursion: how deep it goes is its sender's choice."""
    stack = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            stack += reversed(one.values())
        elif isinstance(one, list | tuple):
            stack += reversed(one)
