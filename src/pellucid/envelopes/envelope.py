"""One message of a space, in the canonical form in which it is stored.

A sender may write dots or slashes, `correlationId` or `correlation_id`, one id or a list. An `Envelope` has one form
for all of them; `translate` reads and writes the others. The rules:

* `sender` is the participant that the gateway has authenticated. `seq` is the number that the gateway assigns within
  the space, from 1. It is the order and the key. Ids are chosen by senders and may repeat.
* A payload is stored as it was written, with unknown keys. Unknown fields of the envelope are stored in `extra`. The
  text of a chat is in `text`, also if its sender wrote `message` or `content`.
* A context that is not a path (MEW's SDK sends `{"operation": "push"}`) is stored in `context_operation` and not
  interpreted.
* Only the gateway sends kinds under `system/*`.
* Ids of envelopes and participants are printable and have at most 255 characters. Participant ids also have no blanks,
  because people type them, and lists of them are separated by blanks.

The JSON of an `Envelope` (`msgspec.json`) is what is stored. Decoding it gives an equal envelope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal, TypeAlias

import msgspec

from ..errors import ErrorInfo, ErrorKind, RequestError

DialectName: TypeAlias = Literal["meup-draft", "meup/v0.2", "mew/v0.4"]

GATEWAY = "system:gateway"
"""The sender of the gateway's own envelopes. No participant may have this id, or one that begins with `system:`."""

_GATEWAY_PREFIX = "system:"

MAX_ID_LENGTH = 255
MAX_IDS = 256
"""Maximum number of ids in one list."""

ERASED: dict[str, Any] = {"erased": True}
"""The `extra` of an envelope whose contents were erased."""


class Flag(msgspec.Struct, frozen=True):
    """The gateway's note on an envelope that it accepted: a broken rule, or a reference to something unknown."""

    code: str
    message: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, repr_omit_defaults=True):
    """One message of a space."""

    id: str
    ts: int
    """Time of sending according to the sender, in milliseconds since 1970."""
    sender: str = msgspec.field(name="from")
    kind: str
    """The kind, with slashes: `reasoning/start`."""
    to: tuple[str, ...] = ()
    """Ids of the recipients. Empty: the audience of its context, or everyone."""
    correlation_id: tuple[str, ...] = ()
    """Ids of the envelopes that this one answers, fulfils or follows from."""
    context: str | None = None
    """Path of the context to which it belongs (see `context`). None: the main conversation."""
    payload: dict[str, Any] = {}
    dialect: DialectName = "mew/v0.4"
    """The dialect in which it was written."""
    seq: int = 0
    """Sequence number in the space. 0: not assigned yet."""
    context_operation: dict[str, Any] | None = None
    """A context that is an object, as it was written."""
    extra: dict[str, Any] = {}
    """Unknown fields of the envelope, as they were written."""
    replayed: bool = False
    """Whether it is sent again from the history. Receivers must not act on a replayed envelope."""
    audience: tuple[str, ...] = ()
    """Who may read it, if it names no recipients and its context has an audience. Only the gateway sets it."""
    flags: tuple[Flag, ...] = ()
    """Notes of the gateway. They are delivered with the envelope and not stored in it."""

    @property
    def recipients(self) -> tuple[str, ...]:
        """The participants that it is for. Empty: everyone."""
        return self.to or self.audience

    @property
    def readers(self) -> tuple[str, ...]:
        """The participants who may read it: its recipients and its sender. Empty: everyone."""
        return readers_of(self.sender, self.recipients)

    @property
    def family(self) -> str:
        """The first word of the kind, such as `reasoning`, `mcp`, `chat` or `system`."""
        return self.kind.partition("/")[0]

    @property
    def is_erased(self) -> bool:
        """Whether its contents were erased.

        The mark alone is not enough, because a sender may write it: the payload must be empty, too.
        """
        return not self.payload and self.extra == ERASED


def readers_of(sender: str, recipients: tuple[str, ...]) -> tuple[str, ...]:
    """Return who may read what a sender wrote for these recipients. Empty: everyone."""
    return tuple(dict.fromkeys((sender, *recipients))) if recipients else ()


Sees: TypeAlias = Callable[[Collection[str]], bool]
"""Whether a participant may read what is for these readers (see `readers_of`).

What it may not read does not exist for it: whatever refers to it is treated like a reference to an unknown id.
"""


def sees_as(participant: str) -> Sees:
    """Return the `Sees` of a participant who reads what is for it and for everyone, and nothing else."""
    return lambda readers: not readers or participant in readers


class EnvelopeError(RequestError):
    """A frame or envelope that cannot be accepted.

    The message says what is wrong and what would be right; `param` says where.

    Attributes:
        envelope_id: The id of the envelope, if it could be read. The sender learns from it which envelope was refused.
        attempted_kind: The kind of the envelope, if it could be read.
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


def refuse(code: str, message: str, *, param: str, kind: ErrorKind = "invalid_request") -> ErrorInfo:
    """Return the error for an envelope that the rules of a space do not allow."""
    return ErrorInfo(kind=kind, code=code, message=message, param=param)


def field_error(
    location: str, message: str, code: str = "invalid_value", *, kind: ErrorKind = "invalid_request"
) -> EnvelopeError:
    """Build the error for one value of a frame.

    Args:
        location: Where the value stands: `payload.message`.
        message: What is wrong, and what would be right.
        code: The error's code.
        kind: Its kind.
    """
    return EnvelopeError(f"{location}: {message}", kind=kind, code=code, param=location)


def json_type_name(value: Any) -> str:
    """Name the JSON type of a value, for use in a sentence ("a string")."""
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
    """Check that a value is a valid envelope id: a printable string of 1 to 255 characters."""
    return isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH and value.isprintable()


def check_id(value: Any, location: str) -> str:
    """Return the id if it is valid.

    Args:
        value: The id, of any type.
        location: Where the value stands, for the error.

    Raises:
        EnvelopeError: If the value is not a valid id.
    """
    if is_id(value):
        return str(value)
    if not isinstance(value, str):
        raise field_error(location, f"must be a string, not {json_type_name(value)}", "invalid_type")
    if len(value) > MAX_ID_LENGTH:
        raise field_error(location, f"at most {MAX_ID_LENGTH} characters, not {len(value)}", "too_long")
    what = "must not be empty" if not value else "must not contain control characters, tabs or line breaks"
    raise field_error(location, what)


def check_ids(value: Any, location: str) -> tuple[str, ...]:
    """Return the ids of a field that holds one id, a list of ids, or nothing.

    Raises:
        EnvelopeError: If the value has another type, or if an id is not valid.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return (check_id(value, location),)
    if not isinstance(value, list):
        raise field_error(location, f"must be an array of ids, not {json_type_name(value)}", "invalid_type")
    if len(value) > MAX_IDS:
        raise field_error(location, f"at most {MAX_IDS} ids, not {len(value)}", "too_long")
    return tuple(check_id(one, f"{location}[{index}]") for index, one in enumerate(value))


def check_participant(value: Any, location: str = "participant") -> str:
    """Return the id of a participant if it is valid and not reserved for the gateway.

    Raises:
        EnvelopeError: If the id is not valid, begins with `system:`, or has blanks.
    """
    name = check_id(value, location)
    if name.lower().startswith(_GATEWAY_PREFIX):
        raise field_error(
            location, f"{name!r} is reserved for the gateway: no participant's id begins with {_GATEWAY_PREFIX!r}"
        )
    if " " in name:
        raise field_error(
            location, f"{name!r} must not have blanks; {'-'.join(name.split()) or 'alice'!r} would be valid"
        )
    return name
