"""One message of a space, in the one form in which it is kept.

Whatever its sender wrote (dots or slashes, `correlationId` or `correlation_id`, one id or a list), an `Envelope` says
it in one way; `translate` reads and writes the others. The rules:

* `sender` is who the gateway knows the sender to be. `seq` is the gateway's number in its space, from 1: the order,
  and the key. Ids are the senders' own, and may come twice.
* A payload is kept as it was written, unknown keys too; so are unknown fields beside it (`extra`). But a chat's words
  are in `text`, whether their sender said `message`, `content` or `text`.
* A context that is no path (MEW's SDK knows `{"operation": "push"}`) is kept in `context_operation`, uninterpreted.
* Nobody but the gateway speaks in `system/*`.
* Ids of envelopes, and of who is in a space, are printable, at most 255 characters, and otherwise anything; who comes
  in has one without blanks, for it is typed, and stands in lists.

JSON of an `Envelope` (`msgspec.json`) is what is stored: it reads back equal.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from ..errors import ErrorKind, RequestError

DialectName: TypeAlias = Literal["meup-draft", "meup/v0.2", "mew/v0.4"]

GATEWAY = "system:gateway"
"""The sender of what the gateway says itself. No participant may be called so, or anything that begins `system:`."""

_GATEWAY_PREFIX = "system:"

MAX_ID_LENGTH = 255
MAX_IDS = 256
"""How many may stand in one list."""

ERASED: dict[str, Any] = {"erased": True}
"""The `extra` of an envelope of which what it said was taken away."""


class Flag(msgspec.Struct, frozen=True):
    """Something to be seen about an envelope that was accepted."""

    code: str
    message: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One message of a space."""

    id: str
    ts: int
    """When it was sent, as its sender says: milliseconds since 1970."""
    sender: str = msgspec.field(name="from")
    kind: str
    """With slashes: `reasoning/start`."""
    to: tuple[str, ...] = ()
    """Whom it is for. Empty: everybody."""
    correlation_id: tuple[str, ...] = ()
    """The ids of what it answers, fulfils or follows from."""
    context: str | None = None
    """The path in which it stands (see `context`). None: the main conversation."""
    payload: dict[str, Any] = {}
    dialect: DialectName = "mew/v0.4"
    """In which it was written."""
    seq: int = 0
    """0: it has none yet."""
    context_operation: dict[str, Any] | None = None
    """A context that is an object, as it was written."""
    extra: dict[str, Any] = {}
    """Fields of the envelope that nobody here knows, as they were written."""
    replayed: bool = False
    """It is sent again, out of the history: to be looked at, and never acted on."""
    flags: tuple[Flag, ...] = ()
    """What the gateway found to be seen about it. They are told with it, and never kept in it."""

    @property
    def family(self) -> str:
        """What the kind begins with: `reasoning`, `mcp`, `chat`, `system` …"""
        return self.kind.partition("/")[0]

    @property
    def is_erased(self) -> bool:
        """Whether what it said was taken away. Not by the mark alone: its sender may have written that."""
        return not self.payload and self.extra == ERASED


class EnvelopeError(RequestError):
    """A frame or envelope that cannot be accepted: what was wrong, where (`param`), and what would be right.

    `about` is the id of the envelope and `attempted_kind` its kind, where they could be read: whoever sent it is told
    which one was refused.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind = "invalid_request",
        code: str = "invalid_value",
        param: str | None = None,
        envelope_id: str | None = None,
        attempted_kind: str | None = None,
    ) -> None:
        super().__init__(message, kind=kind, code=code, param=param)
        self.envelope_id = envelope_id
        self.attempted_kind = attempted_kind


def json_type_name(value: Any) -> str:
    """What JSON calls such a value, for a sentence."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
    return f"a {type(value).__name__}"


# --- ids


def is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH and value.isprintable()


def check_id(value: Any, at: str) -> str:
    """The id itself. Raises `EnvelopeError`, naming the place `at`."""
    if is_id(value):
        return str(value)
    if not isinstance(value, str):
        raise EnvelopeError(f"{at}: must be a string, not {json_type_name(value)}", code="invalid_type", param=at)
    if len(value) > MAX_ID_LENGTH:
        raise EnvelopeError(f"{at}: at most {MAX_ID_LENGTH} characters, not {len(value)}", code="too_long", param=at)
    what = "must not be empty" if not value else "must have no control characters, and no blanks but spaces"
    raise EnvelopeError(f"{at}: {what}", param=at)


def check_ids(value: Any, at: str) -> tuple[str, ...]:
    """One id, a list of them, or none. Raises `EnvelopeError`."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (check_id(value, at),)
    if not isinstance(value, list):
        raise EnvelopeError(
            f"{at}: must be an array of ids, not {json_type_name(value)}", code="invalid_type", param=at
        )
    if len(value) > MAX_IDS:
        raise EnvelopeError(f"{at}: at most {MAX_IDS} ids, not {len(value)}", code="too_long", param=at)
    return tuple(check_id(one, f"{at}[{index}]") for index, one in enumerate(value))


def check_participant(value: Any, at: str = "participant") -> str:
    """The id of somebody who may come in: not one of the gateway's. Raises `EnvelopeError`."""
    name = check_id(value, at)
    if name.lower().startswith(_GATEWAY_PREFIX):
        raise EnvelopeError(f"{at}: {name!r} is the gateway's: nobody's id begins with {_GATEWAY_PREFIX!r}", param=at)
    if " " in name:
        raise EnvelopeError(
            f"{at}: {name!r} has blanks, and an id has none; {'-'.join(name.split()) or 'alice'!r} would do", param=at
        )
    return name
