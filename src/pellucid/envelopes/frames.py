"""Decode one WebSocket frame or HTTP body: a JSON object, or the join with which MEW's client begins.

JSON is read strictly, with one exception: half of a surrogate pair, which JavaScript writes when it cuts a text in two,
becomes U+FFFD. So no thought is lost because of half an emoji. Values that are nested too deeply are refused.

Every refusal names the envelope, because its sender waits for it. The id and kind of a frame that cannot be decoded, or
is too large, are read from its beginning (`peek`). No more than `MAX_PEEK` is looked at, and only these two short texts
are decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from math import isfinite
from typing import Any, NoReturn, cast

import msgspec

from ..unicode import is_nested_deeper, replace_surrogates
from .envelope import EnvelopeError, field_error, is_id, json_type_name
from .kinds import HEARTBEAT, JOIN

MAX_DEPTH = 64
"""Maximum nesting of an envelope."""

MAX_TOKEN = 4096

_MAX_QUOTED = 40
"""How many characters of a name are quoted in an error."""


def decode_frame(data: Any) -> dict[str, Any]:
    """Return the object in a frame.

    Args:
        data: The bytes or text of a frame, or JSON that was decoded before.

    Raises:
        EnvelopeError: If it is not a valid JSON object, or nested too deeply.
    """
    value, is_valid = data, False
    try:
        if isinstance(data, bytes | bytearray | memoryview | str):
            value, is_valid = _parse(data)
        if not isinstance(value, dict):
            raise EnvelopeError(f"an envelope is a JSON object, not {json_type_name(value)}", code="invalid_type")
        if is_nested_deeper(value, MAX_DEPTH):
            raise too_deep()
        return cast("dict[str, Any]", value if is_valid else _sanitize(value, ""))
    except EnvelopeError as error:
        error.envelope_id, error.attempted_kind = peek(value)
        raise


def too_deep() -> EnvelopeError:
    """Return the error for an envelope that is nested deeper than `MAX_DEPTH`."""
    return EnvelopeError(f"nested deeper than {MAX_DEPTH} levels", code="too_deep")


def _parse(data: bytes | bytearray | memoryview | str) -> tuple[Any, bool]:
    """Return the value, and whether UTF-8 can encode all of it."""
    try:
        return msgspec.json.decode(data), True
    except RecursionError:
        raise too_deep() from None
    except (msgspec.DecodeError, UnicodeError) as error:
        strict = error
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        return json.loads(text, parse_constant=_reject_constant), False
    except RecursionError:
        raise too_deep() from None
    except ValueError:
        if data[:1] in ("#", b"#"):
            raise EnvelopeError(
                "the frames of streams ('#stream#…') are accepted on sockets only",
                kind="not_found",
                code="stream_not_found",
            ) from None
        raise EnvelopeError(f"the frame is not valid JSON: {strict}", code="invalid_json") from None


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _sanitize(value: Any, location: str) -> Any:
    """Return the value with everything replaced that JSON or UTF-8 cannot hold.

    Raises:
        EnvelopeError: If a value cannot be represented at all.
    """
    match value:
        case str():
            return replace_surrogates(value)
        case None | bool() | int():
            return value
        case float() if isfinite(value):
            return value
        case float():
            raise EnvelopeError(
                f"{location or 'the frame'}: a number must be finite, and within 64 bits", param=location or None
            )
        case dict():
            named = ((replace_surrogates(str(name)), one) for name, one in value.items())
            return {name: _sanitize(one, f"{location}.{name[:_MAX_QUOTED]}".lstrip(".")) for name, one in named}
        case list():
            return [_sanitize(one, f"{location}[{index}]") for index, one in enumerate(value)]
    raise EnvelopeError(f"{location}: {json_type_name(value)} is not JSON", code="invalid_type", param=location or None)


class Join(msgspec.Struct, frozen=True):
    """The first frame of MEW's client, which identifies itself in it and not in its URL.

    The participant's name is only a claim: the token decides. The last three fields are extensions: the last sequence
    number that the client has, the view, and the dialect.
    """

    space: str | None = None
    token: str | None = None
    participant: str | None = None
    after_seq: int | None = None
    view: str | None = None
    dialect: str | None = None

    def __repr__(self) -> str:
        """Leave out the token, because this may be logged."""
        return f"Join(space={self.space!r}, participant={self.participant!r}, after_seq={self.after_seq!r})"


def parse_join(frame: Mapping[str, Any]) -> Join | None:
    """Return the join in a frame; None if the frame is not a join.

    Raises:
        EnvelopeError: If the join is not valid.
    """
    kind = frame.get("kind")
    if frame.get("type") == "join" and kind is None:
        fields: Any = frame
        prefix = ""
    elif isinstance(kind, str) and kind.replace(".", "/") == JOIN:
        fields = frame.get("payload")
        prefix = "payload."
        if not isinstance(fields, dict):
            raise field_error(
                "payload",
                f"a join has an object with `space` and `token`, not {json_type_name(fields)}",
                "invalid_type",
            )
    else:
        return None
    after_seq = fields.get("after_seq")
    if after_seq is not None and (
        isinstance(after_seq, bool) or not isinstance(after_seq, int) or not 0 <= after_seq < 2**63
    ):
        raise EnvelopeError(
            f"{prefix}after_seq: must be the number of the last envelope that you have, from 0",
            param=f"{prefix}after_seq",
        )
    text = partial(_text, fields, prefix)
    return Join(
        space=text("space"),
        token=text("token"),
        participant=text("participantId") or text("participant_id") or text("participant"),
        after_seq=after_seq,
        view=text("view"),
        dialect=text("dialect") or _text(frame, "", "protocol"),
    )


def _text(fields: Mapping[str, Any], prefix: str, name: str) -> str | None:
    value, location = fields.get(name), prefix + name
    if value is None:
        return None
    if not isinstance(value, str):
        raise field_error(location, f"must be a string, not {json_type_name(value)}", "invalid_type")
    if len(value) > MAX_TOKEN:
        raise field_error(location, f"at most {MAX_TOKEN} characters", "too_long")
    return value


def is_heartbeat(frame: Mapping[str, Any]) -> bool:
    """Check whether the frame is a heartbeat, which is dropped."""
    kind = frame.get("kind")
    return isinstance(kind, str) and kind.replace(".", "/") == HEARTBEAT


MAX_PEEK = 4096
"""Bytes or characters."""

_TOKEN = re.compile(r'\s*("(?>(?:[^"\\]|\\.)*)"|[\[{]|[\]}]|[:,]|[^\s\[\]{}:,"]++)', re.DOTALL)
_PEEKED_MEMBERS = ("id", "kind")


def peek(frame: Any) -> tuple[str | None, str | None]:
    """Return the id and kind of the envelope in a frame; each is None if it cannot be read.

    Args:
        frame: The bytes or text of a frame, or JSON that was decoded before.
    """
    members: dict[str, Any] = {}
    if isinstance(frame, dict):
        members = {name: frame.get(name) for name in _PEEKED_MEMBERS}
    elif isinstance(frame, bytes | bytearray | memoryview | str):
        start = frame[:MAX_PEEK]
        members = _peek_members(start if isinstance(start, str) else bytes(start).decode(errors="replace"))
    id, kind = (value if is_id(value) else None for value in (members.get("id"), members.get("kind")))
    return id, kind


def _peek_members(text: str) -> dict[str, Any]:
    """Return the string members of the outermost object, as far as the text goes."""
    members: dict[str, Any] = {}
    depth, position, name, before = 0, 0, "", ""
    while (token := _TOKEN.match(text, position)) is not None:
        word, position = token[1], token.end()
        if word in "[{":
            depth += 1
        elif word in "]}":
            depth -= 1
            if depth <= 0:
                break
        elif depth == 1 and word[0] == '"':
            value = _decode_string(word)
            if before == ":" and name in _PEEKED_MEMBERS:
                members[name] = value
            name = value or "" if before in ("{", ",") else ""
        before = word
    return members


def _decode_string(word: str) -> str | None:
    try:
        return msgspec.json.decode(word, type=str)
    except (msgspec.MsgspecError, UnicodeError):
        return None
