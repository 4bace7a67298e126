"""What participants write, and the canonical form: one translated into the other; and the dialects that they speak, as
data (`DIALECTS`).

|                  | `meup-draft`                     | `meup/v0.2`      | `mew/v0.4`       |
| kind             | `reasoning.start`                | with slashes     | with slashes     |
| correlation      | `correlationId`; a string if one | `correlation_id` | `correlation_id` |
| words of a chat  | `message`                        | `text`           | `text`           |

Reading is generous, and the same for all dialects: dots or slashes, `correlationId` or `correlation_id`, one id or a
list, `message`, `text` or `content` in a chat; what is missing is filled in by whoever holds the connection. Writing is
exact: each dialect as its own documents have it.

`read(write(e, d), d) == e`, but for `dialect`, which is `d` then: every dialect carries every other field. Beside their
own fields all have `seq`, in a replay `replayed`, and `flags` where the gateway found something to be seen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from ..text import meant
from . import context as paths
from .envelope import DialectName, Envelope, EnvelopeError, Flag, check_id, check_ids, is_id, name_of
from .frames import load
from .kinds import CHAT, RESERVED, is_reserved, normal, typed

_MOST_QUOTED = 40
"""How much of a wrong value is told again."""


class Dialect(NamedTuple):
    """How one dialect writes."""

    name: DialectName
    protocol: str
    subprotocol: str
    """Its name where there may be no slash: in a WebSocket's handshake."""
    spoken: str
    """What the protocols' names look like whose speakers are taken for its own: a pattern."""
    separator: str
    correlation: str
    is_scalar: bool
    """Whether one id stands without a list."""
    words: str
    """The field of a chat's words."""


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
USUAL: DialectName = "mew/v0.4"


def dialect_named(name: str, at: str = "protocol") -> DialectName:
    """The dialect that somebody means by a protocol, a subprotocol or a query. Raises `EnvelopeError`."""
    for row in DIALECTS.values():
        if re.fullmatch(row.spoken, name):
            return row.name
    said = name[:_MOST_QUOTED]
    raise EnvelopeError(
        f"{at}: {said!r} is not spoken here; {meant(said, DIALECTS)}", code="unknown_protocol", param=at
    )


def dialect_of(frame: Mapping[str, Any]) -> DialectName | None:
    """The dialect in which a first envelope is written: by its protocol, or its spelling. None: it does not show.

    Raises `EnvelopeError` for a protocol that nobody here speaks.
    """
    protocol, kind, payload = frame.get("protocol"), frame.get("kind"), frame.get("payload")
    if isinstance(protocol, str):
        return dialect_named(protocol)
    if isinstance(kind, str):
        if "." in kind or "correlationId" in frame:
            return "meup-draft"
        if kind == CHAT and isinstance(payload, dict) and ("message" in payload) != ("text" in payload):
            return "meup-draft" if "message" in payload else USUAL
        if "/" in kind or "correlation_id" in frame:
            return USUAL
    return None


_KNOWN = frozenset(
    {"protocol", "id", "ts", "from", "to", "kind", "correlation_id", "correlationId", "context", "payload"}
)
_GATEWAYS = frozenset({"seq", "replayed", "flags", "type", "token"})
"""What a participant's envelope may not bring along: the gateway's own fields, what a client takes for a frame of
another sort, and a secret that was put in the wrong place."""

_FOLDED = {name.casefold(): name for name in _KNOWN | _GATEWAYS}

_LONGEST_TS = 40

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_EARLIEST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MS
_LATEST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MS


class Defaults(NamedTuple):
    """What the gateway knows of an envelope, and its sender may leave out."""

    sender: str
    """Who it is, whatever the envelope says."""
    id: str
    ts: int
    """Milliseconds since 1970."""


# --- reading ---------------------------------------------------------------------------------------------------


def read(data: Any, dialect: DialectName | None = None, defaults: Defaults | None = None) -> Envelope:
    """The envelope in a frame's bytes, or in JSON that was read before.

    `dialect`: what the connection speaks; None: what the envelope shows that it is.
    `defaults`: given for what a participant sends: `from` must be its sender's or absent, and what is the gateway's
    alone (`system/*`, `seq`) is not taken from it. Without, the gateway itself is believed: nothing may be missing.

    Raises `EnvelopeError`, and nothing else.
    """
    frame = load(data)
    try:
        return _envelope(frame, dialect, defaults)
    except EnvelopeError as error:
        error.about, error.attempted_kind = (one if is_id(one) else None for one in map(frame.get, ("id", "kind")))
        raise


def _envelope(frame: dict[str, Any], dialect: DialectName | None, defaults: Defaults | None) -> Envelope:
    own = defaults is not None
    protocol = _as(str, frame, "protocol")
    if protocol is not None:
        dialect_named(protocol)
    kind = normal(_required(_as(str, frame, "kind"), "kind"))
    if own and is_reserved(kind):
        raise EnvelopeError(
            f"kind: {kind!r} is the gateway's: nobody else sends {RESERVED}/*",
            kind="forbidden",
            code="capability_violation",
            param="kind",
        )
    payload = _as(dict, frame, "payload") or {}
    typed(kind, payload)
    extra = {name: value for name, value in frame.items() if name not in _KNOWN and name not in _GATEWAYS}
    if own and extra:
        _check_names(extra)
    where = frame.get("context")
    if where is not None and not isinstance(where, str | dict):
        raise EnvelopeError(
            f"context: must be a path, like 'msg-301/msg-302', not {name_of(where)}",
            code="invalid_type",
            param="context",
        )
    return Envelope(
        id=_id(frame, "id", defaults.id if defaults else None),
        ts=_ts(frame.get("ts"), defaults.ts if defaults else None),
        sender=_sender(frame, defaults),
        to=check_ids(frame.get("to"), "to"),
        kind=kind,
        correlation_id=_correlation(frame),
        context=paths.parse(where) if isinstance(where, str) and where else None,
        context_operation=where if isinstance(where, dict) else None,
        payload=_canonical(payload) if kind == CHAT else payload,
        dialect=dialect or dialect_of(frame) or USUAL,
        seq=0 if own else _seq(frame),
        replayed=not own and frame.get("replayed") is True,
        flags=() if own else _flags(frame.get("flags")),
        extra=extra,
    )


def _check_names(extra: Mapping[str, Any]) -> None:
    """Some readers of JSON (Go's) take `FROM` for `from`, and the last of them holds: so nobody may write one."""
    for name in extra:
        meant = _FOLDED.get(name.casefold())
        if meant is not None:
            raise EnvelopeError(
                f"{name!r} could be read as {meant!r}: write {meant!r}, or call it something else", param=name
            )


def _as(type_: type[Any], frame: Mapping[str, Any], name: str) -> Any:
    value = frame.get(name)
    if value is None:
        return None
    if not isinstance(value, type_) or isinstance(value, bool):
        right = name_of(type_())
        raise EnvelopeError(f"{name}: must be {right}, not {name_of(value)}", code="invalid_type", param=name)
    return value


def _required(value: Any, name: str) -> Any:
    if value is None:
        raise EnvelopeError(f"{name}: it is required", code="missing", param=name)
    return value


def _sender(frame: Mapping[str, Any], defaults: Defaults | None) -> str:
    claimed = _id(frame, "from", defaults.sender if defaults else None)
    if defaults is not None and claimed != defaults.sender:
        raise EnvelopeError(
            f"from: this is {defaults.sender!r}, who cannot speak as {claimed!r}; leave it out",
            kind="forbidden",
            code="sender_mismatch",
            param="from",
        )
    return claimed


def _id(frame: Mapping[str, Any], name: str, default: str | None) -> str:
    value = frame.get(name)
    return str(_required(default, name)) if value is None else check_id(value, name)


def _correlation(frame: Mapping[str, Any]) -> tuple[str, ...]:
    new = check_ids(frame.get("correlation_id"), "correlation_id")
    old = check_ids(frame.get("correlationId"), "correlationId")
    if new and old and new != old:
        raise EnvelopeError("correlationId: says something else than correlation_id; send one", param="correlationId")
    return new or old


def _ts(value: Any, default: int | None) -> int:
    if value is None:
        return int(_required(default, "ts"))
    if isinstance(value, str) and len(value) <= _LONGEST_TS:
        try:
            when = msgspec.convert(value, datetime)
            value = (when.replace(tzinfo=when.tzinfo or UTC) - _EPOCH) // _MS
        except msgspec.ValidationError:
            pass
    if isinstance(value, int | float) and not isinstance(value, bool) and _EARLIEST <= value <= _LATEST:
        return int(value)
    raise EnvelopeError(
        "ts: must be a time like '2025-08-31T12:00:00.000Z' (RFC 3339), or milliseconds since 1970", param="ts"
    )


def _seq(frame: Mapping[str, Any]) -> int:
    seq = _as(int, frame, "seq") or 0
    if not 0 <= seq < 2**63:
        raise EnvelopeError("seq: must be a number from 0 that fits into 63 bits", param="seq")
    return int(seq)


def _flags(value: Any) -> tuple[Flag, ...]:
    """Those that can be read."""
    try:
        return msgspec.convert(value, tuple[Flag, ...])
    except msgspec.ValidationError:
        return ()


def _canonical(payload: dict[str, Any]) -> dict[str, Any]:
    """A chat says its words in `text`, whatever its sender calls them."""
    words = next((name for name in ("text", "message", "content") if isinstance(payload.get(name), str)), None)
    if words is None:
        return payload
    return {
        "text" if name == words else name: value
        for name, value in payload.items()
        if name == words or (name != "text" and (name != "message" or value is not None))
    }


# --- writing ---------------------------------------------------------------------------------------------------


def write(envelope: Envelope, dialect: DialectName) -> dict[str, Any]:
    """The envelope as JSON for a participant who speaks `dialect`."""
    row = DIALECTS[dialect]
    said: dict[str, Any] = {
        "protocol": row.protocol,
        "id": envelope.id,
        "ts": time_text(envelope.ts),
        "from": envelope.sender,
    }
    if envelope.to:
        said["to"] = list(envelope.to)
    said["kind"] = envelope.kind.replace("/", row.separator)
    if envelope.correlation_id:
        one, *more = envelope.correlation_id
        said[row.correlation] = one if row.is_scalar and not more else [one, *more]
    where = envelope.context if envelope.context is not None else envelope.context_operation
    if where is not None:
        said["context"] = where
    payload = envelope.payload
    if envelope.kind == CHAT:
        payload = _canonical(payload)
        if row.words not in payload:
            payload = {row.words if name == "text" else name: value for name, value in payload.items()}
    said["payload"] = payload
    if envelope.seq:
        said["seq"] = envelope.seq
    if envelope.replayed:
        said["replayed"] = True
    if envelope.flags:
        said["flags"] = [{"code": flag.code, "message": flag.message} for flag in envelope.flags]
    return said | (envelope.extra | said) if envelope.extra else said


def encode(envelope: Envelope, dialect: DialectName) -> bytes:
    """The same, as a frame."""
    return msgspec.json.encode(write(envelope, dialect))


def time_text(ts: int) -> str:
    """Milliseconds since 1970 as RFC 3339."""
    return (_EPOCH + ts * _MS).isoformat(timespec="milliseconds").replace("+00:00", "Z")
