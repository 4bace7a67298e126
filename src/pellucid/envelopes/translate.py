"""Translate between the canonical form and the dialects of participants. The dialects are data (`DIALECTS`).

|                  | `meup-draft`                     | `meup/v0.2`      | `mew/v0.4`       |
| kind             | `reasoning.start`                | with slashes     | with slashes     |
| correlation      | `correlationId`; a string if one | `correlation_id` | `correlation_id` |
| text of a chat   | `message`                        | `text`           | `text`           |

Reading is lenient, and the same for all dialects: dots or slashes, `correlationId` or `correlation_id`, one id or a
list, `message`, `text` or `content` in a chat. What is missing is filled in by the owner of the connection. Writing is
exact: each dialect as its own documents define it.

`read(write(e, d), d) == e` holds for all fields but `dialect`, which is `d` then, because every dialect carries every
other field. In addition to their own fields, all dialects have `seq`, in a replay `replayed`, `audience` if the context
has one, and `flags` if the gateway has remarks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from ..unicode import did_you_mean
from . import context as paths
from .envelope import (
    DialectName,
    Envelope,
    EnvelopeError,
    Flag,
    check_id,
    check_ids,
    field_error,
    json_type_name,
)
from .frames import decode_frame, peek
from .kinds import CHAT, RESERVED, decode_payload, is_reserved, kind_of, normalize_kind

_MAX_QUOTED = 40
"""How many characters of a wrong value are quoted in an error."""


class Dialect(NamedTuple):
    """How one dialect is written."""

    name: DialectName
    protocol: str
    subprotocol: str
    """Its name in a WebSocket handshake, where a slash is not allowed."""
    name_pattern: str
    """Regular expression of the protocol names that select this dialect."""
    separator: str
    correlation: str
    is_scalar: bool
    """Whether a single id is written without a list."""
    text_field: str
    """The field for the text of a chat."""


DIALECTS: Mapping[DialectName, Dialect] = {
    row.name: row
    for row in (
        Dialect(
            "meup-draft",
            "meup/draft",
            "meup-draft",
            r"meup[/.-](draft|v0\.[01])",
            ".",
            "correlationId",
            True,
            "message",
        ),
        Dialect("meup/v0.2", "meup/v0.2", "meup.v0.2", r"meup[/.-]v\d.*", "/", "correlation_id", False, "text"),
        Dialect("mew/v0.4", "mew/v0.4", "mew.v0.4", r"mew([/.-]v\d.*)?", "/", "correlation_id", False, "text"),
    )
}
DEFAULT_DIALECT: DialectName = "mew/v0.4"


def parse_dialect(name: str, location: str = "protocol") -> DialectName:
    """Return the dialect that a protocol, a subprotocol or a query names.

    Raises:
        EnvelopeError: If no dialect has this name.
    """
    for row in DIALECTS.values():
        if re.fullmatch(row.name_pattern, name):
            return row.name
    quoted = name[:_MAX_QUOTED]
    raise field_error(location, f"{quoted!r} is not supported; {did_you_mean(quoted, DIALECTS)}", "unknown_protocol")


def detect_dialect(frame: Mapping[str, Any]) -> DialectName | None:
    """Return the dialect in which a first envelope is written, from its protocol or its spelling.

    Returns:
        None if the envelope does not show it.

    Raises:
        EnvelopeError: If it names an unknown protocol.
    """
    protocol, kind, payload = frame.get("protocol"), frame.get("kind"), frame.get("payload")
    if isinstance(protocol, str):
        return parse_dialect(protocol)
    if isinstance(kind, str):
        if "." in kind or "correlationId" in frame:
            return "meup-draft"
        if kind == CHAT and isinstance(payload, dict) and ("message" in payload) != ("text" in payload):
            return "meup-draft" if "message" in payload else DEFAULT_DIALECT
        if "/" in kind or "correlation_id" in frame:
            return DEFAULT_DIALECT
    return None


_KNOWN_FIELDS = frozenset(
    {"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "correlationId", "context", "payload"}
)
_GATEWAY_FIELDS = frozenset({"seq", "replayed", "audience", "flags", "type", "token"})
"""Fields that a participant's envelope may not have: the gateway's own fields, a field that a client takes for another
sort of frame, and a secret in the wrong place.
"""

_FIELDS_BY_CASEFOLD = {name.casefold(): name for name in _KNOWN_FIELDS | _GATEWAY_FIELDS}

_MAX_TS_LENGTH = 40

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MIN_TS_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_MAX_TS_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class Defaults(NamedTuple):
    """What the gateway knows about an envelope, so that its sender may leave it out."""

    sender: str
    """The authenticated sender, whatever the envelope claims."""
    id: str
    ts: int
    """Milliseconds since 1970."""


# --- reading ---------------------------------------------------------------------------------------------------


def read(data: Any, dialect: DialectName | None = None, defaults: Defaults | None = None) -> Envelope:
    """Read an envelope.

    Args:
        data: The bytes of a frame, or JSON that was decoded before.
        dialect: The dialect of the connection. None: detect it from the envelope.
        defaults: For an envelope from a participant: `from` must be absent or the sender, and what only the gateway
            sets (`system/*`, `seq`) is not accepted. None: the envelope comes from the gateway, and no field may be
            missing.

    Raises:
        EnvelopeError: If it is not valid. Nothing else is raised.
    """
    frame = decode_frame(data)
    try:
        return _to_envelope(frame, dialect, defaults)
    except EnvelopeError as error:
        error.envelope_id, error.attempted_kind = peek(frame)
        raise


def _to_envelope(frame: dict[str, Any], dialect: DialectName | None, defaults: Defaults | None) -> Envelope:
    is_from_participant = defaults is not None
    protocol = _typed_field(str, frame, "protocol")
    if protocol is not None:
        parse_dialect(protocol)
    kind = normalize_kind(_required(_typed_field(str, frame, "kind"), "kind"))
    if is_from_participant and is_reserved(kind):
        # MEW's words, which its scripts look for.
        reason = f"{kind} is reserved for the gateway, like all of {RESERVED}/*"
        raise field_error("kind", reason, "capability_violation", kind="forbidden")
    payload = _typed_field(dict, frame, "payload") or {}
    decode_payload(kind, payload)
    extra = {name: value for name, value in frame.items() if name not in _KNOWN_FIELDS and name not in _GATEWAY_FIELDS}
    if is_from_participant and extra:
        _check_lookalikes(extra)
    context = frame.get("context")
    if context is not None and not isinstance(context, str | dict):
        raise field_error(
            "context", f"must be a path, like 'msg-301/msg-302', not {json_type_name(context)}", "invalid_type"
        )
    return Envelope(
        id=_id(frame, "id", defaults.id if defaults else None),
        ts=_ts(frame.get("ts"), defaults.ts if defaults else None),
        sender=_sender(frame, defaults),
        to=check_ids(frame.get("to"), "to"),
        kind=kind,
        correlation_id=_correlation(frame),
        context=_context(kind, context, payload) if is_from_participant else _path(context),
        context_operation=context if isinstance(context, dict) else None,
        payload=_canonical_chat(payload) if kind == CHAT else payload,
        dialect=dialect or detect_dialect(frame) or DEFAULT_DIALECT,
        seq=0 if is_from_participant else _seq(frame),
        replayed=not is_from_participant and frame.get("replayed") is True,
        audience=() if is_from_participant else check_ids(frame.get("audience"), "audience"),
        flags=() if is_from_participant else _flags(frame.get("flags")),
        extra=extra,
    )


def _path(context: Any) -> str | None:
    return paths.parse(context) if isinstance(context, str) and context else None


def _context(kind: str, context: Any, payload: Mapping[str, Any]) -> str | None:
    """Return the context of an envelope from a participant. MEW's agents may write that of reasoning in the payload."""
    inner = payload.get("context")
    if context is None and kind.startswith("reasoning/") and isinstance(inner, str):
        with suppress(EnvelopeError):
            return _path(inner)
    return _path(context)


def _check_lookalikes(extra: Mapping[str, Any]) -> None:
    """Refuse fields that differ from known ones by case.

    Some JSON readers (Go's) take `FROM` for `from`, and the last of them wins.
    """
    for name in extra:
        field = _FIELDS_BY_CASEFOLD.get(name.casefold())
        if field is not None:
            raise EnvelopeError(
                f"{name!r} could be read as {field!r}: write {field!r}, or choose another name", param=name
            )


def _typed_field(type_: type[Any], frame: Mapping[str, Any], name: str) -> Any:
    value = frame.get(name)
    if value is None:
        return None
    if not isinstance(value, type_) or isinstance(value, bool):
        right = json_type_name(type_())
        raise field_error(name, f"must be {right}, not {json_type_name(value)}", "invalid_type")
    return value


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise field_error(name, "it is required", "missing")
    return value


def _sender(frame: Mapping[str, Any], defaults: Defaults | None) -> str:
    claimed = _id(frame, "from", defaults.sender if defaults else None)
    if defaults is not None and claimed != defaults.sender:
        raise field_error(
            "from",
            f"this connection belongs to {defaults.sender!r}, who cannot send as {claimed!r}; leave it out",
            "sender_mismatch",
            kind="forbidden",
        )
    return claimed


def _id(frame: Mapping[str, Any], name: str, default: str | None) -> str:
    value = frame.get(name)
    return str(_required(default, name)) if value is None else check_id(value, name)


def _correlation(frame: Mapping[str, Any]) -> tuple[str, ...]:
    new = check_ids(frame.get("correlation_id"), "correlation_id")
    old = check_ids(frame.get("correlationId"), "correlationId")
    if new and old and new != old:
        raise field_error("correlationId", "differs from correlation_id; send one of them")
    return new or old


def _ts(value: Any, default: int | None) -> int:
    if value is None:
        return int(_required(default, "ts"))
    if isinstance(value, str) and len(value) <= _MAX_TS_LENGTH:
        try:
            when = msgspec.convert(value, datetime)
            value = (when.replace(tzinfo=when.tzinfo or UTC) - _EPOCH) // _MILLISECOND
        except msgspec.ValidationError:
            pass
    if isinstance(value, int | float) and not isinstance(value, bool) and _MIN_TS_MS <= value <= _MAX_TS_MS:
        return int(value)
    raise field_error("ts", "must be a time like '2025-08-31T12:00:00.000Z' (RFC 3339), or milliseconds since 1970")


def _seq(frame: Mapping[str, Any]) -> int:
    seq = _typed_field(int, frame, "seq") or 0
    if not 0 <= seq < 2**63:
        raise field_error("seq", "must be a number from 0 that fits into 63 bits")
    return int(seq)


def _flags(value: Any) -> tuple[Flag, ...]:
    """Return the flags that can be read."""
    try:
        return msgspec.convert(value, tuple[Flag, ...])
    except msgspec.ValidationError:
        return ()


def _canonical_chat(payload: dict[str, Any]) -> dict[str, Any]:
    """Put the text of a chat into `text`, whatever field its sender used."""
    text_field = next((name for name in kind_of(CHAT).text_fields if isinstance(payload.get(name), str)), None)
    if text_field is None:
        return payload
    return {
        "text" if name == text_field else name: value
        for name, value in payload.items()
        if name == text_field or (name != "text" and (name != "message" or value is not None))
    }


# --- writing ---------------------------------------------------------------------------------------------------


def write(envelope: Envelope, dialect: DialectName) -> dict[str, Any]:
    """Return the envelope as JSON for a participant.

    Args:
        envelope: The envelope.
        dialect: The participant's dialect.
    """
    row = DIALECTS[dialect]
    frame: dict[str, Any] = {
        "protocol": row.protocol,
        "id": envelope.id,
        "ts": time_text(envelope.ts),
        "from": envelope.sender,
    }
    if envelope.to:
        frame["to"] = list(envelope.to)
    frame["kind"] = envelope.kind.replace("/", row.separator)
    if envelope.correlation_id:
        one, *more = envelope.correlation_id
        frame[row.correlation] = one if row.is_scalar and not more else [one, *more]
    context = envelope.context if envelope.context is not None else envelope.context_operation
    if context is not None:
        frame["context"] = context
    payload = envelope.payload
    if envelope.kind == CHAT:
        payload = _canonical_chat(payload)
        if row.text_field not in payload:
            payload = {row.text_field if name == "text" else name: value for name, value in payload.items()}
    frame["payload"] = payload
    if envelope.seq:
        frame["seq"] = envelope.seq
    if envelope.replayed:
        frame["replayed"] = True
    if envelope.audience:
        frame["audience"] = list(envelope.audience)
    if envelope.flags:
        frame["flags"] = [{"code": flag.code, "message": flag.message} for flag in envelope.flags]
    return frame | (envelope.extra | frame) if envelope.extra else frame


def encode(envelope: Envelope, dialect: DialectName) -> bytes:
    """Return the envelope as the bytes of a frame."""
    return msgspec.json.encode(write(envelope, dialect))


def time_text(ts_ms: int) -> str:
    """Format milliseconds since 1970 as RFC 3339."""
    return (_EPOCH + ts_ms * _MILLISECOND).isoformat(timespec="milliseconds").replace("+00:00", "Z")
