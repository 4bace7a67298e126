"""One frame of a socket, or one body: a JSON object, or the frame with which MEW's client joins.

Strict JSON is read, with one exception: half of a surrogate pair, which JavaScript writes where it cuts text in two,
becomes U+FFFD, so that no thought is lost for half an emoji. What is nested deeper than anybody means is refused.

Of a frame that is too large to be read, the id and the kind are told where they stand near its beginning (`glimpse`):
so much is looked at and no more, whatever is in it, and nothing is decoded but the two short texts themselves.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn, cast

import msgspec

from ..unicode import is_nested_deeper, replace_surrogates
from .envelope import EnvelopeError, is_id, json_type_name
from .kinds import HEARTBEAT, JOIN

MAX_DEPTH = 64
"""How deeply an envelope may be nested."""

MAX_TOKEN = 4096

_MAX_QUOTED = 40
"""How much of a name is told again."""


def decode_frame(data: Any) -> dict[str, Any]:
    """The object in a frame's bytes or text; or of JSON that was read before. Raises `EnvelopeError`."""
    if isinstance(data, bytes | bytearray | memoryview | str):
        value, is_valid = _parse(data)
    else:
        value, is_valid = data, False
    if not isinstance(value, dict):
        raise EnvelopeError(f"an envelope is a JSON object, not {json_type_name(value)}", code="invalid_type")
    if is_nested_deeper(value, MAX_DEPTH):
        raise EnvelopeError(f"nested deeper than {MAX_DEPTH} levels", code="too_deep")
    return cast("dict[str, Any]", value if is_valid else _sanitize(value, ""))


def _parse(data: bytes | bytearray | memoryview | str) -> tuple[Any, bool]:
    """The value, and whether UTF-8 can hold all of it."""
    try:
        return msgspec.json.decode(data), True
    except RecursionError:
        raise EnvelopeError(f"nested deeper than {MAX_DEPTH} levels", code="too_deep") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        strict = error
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        return json.loads(text, parse_constant=_reject_constant), False
    except RecursionError:
        raise EnvelopeError(f"nested deeper than {MAX_DEPTH} levels", code="too_deep") from None
    except ValueError:
        if data[:1] in ("#", b"#"):
            raise _stream_error() from None
        raise EnvelopeError(f"the frame is not valid JSON: {strict}", code="invalid_json") from None


def _stream_error() -> EnvelopeError:
    """For MEW's frames of a stream, `#stream-1#…`. They are no envelopes: nobody could keep, redact, order or replay
    what they say, nor withhold it from who may not read it. So none is carried."""
    return EnvelopeError(
        "the data of streams ('#stream#…') is not carried here, only envelopes are: say it in "
        "reasoning/thought, chat or a kind of your own",
        kind="not_found",
        code="stream_not_found",
    )


def _reject_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _sanitize(value: Any, at: str) -> Any:
    """The value as JSON and UTF-8 can hold it."""
    match value:
        case str():
            return replace_surrogates(value)
        case None | bool() | int():
            return value
        case float() if isfinite(value):
            return value
        case float():
            raise EnvelopeError(f"{at or 'the frame'}: a number must be finite, and within 64 bits", param=at or None)
        case dict():
            named = ((replace_surrogates(str(name)), one) for name, one in value.items())
            return {name: _sanitize(one, f"{at}.{name[:_MAX_QUOTED]}".lstrip(".")) for name, one in named}
        case list():
            return [_sanitize(one, f"{at}[{index}]") for index, one in enumerate(value)]
    raise EnvelopeError(f"{at}: {json_type_name(value)} is no JSON", code="invalid_type", param=at or None)


class Join(msgspec.Struct, frozen=True):
    """How MEW's client says who it is: in its first frame, not in its URL.

    The participant's name is a claim: the token decides. The last three are ours: from where on the history is wanted,
    how much of the reasoning, and in which dialect.
    """

    space: str | None = None
    token: str | None = None
    participant: str | None = None
    after_seq: int | None = None
    view: str | None = None
    dialect: str | None = None

    def __repr__(self) -> str:
        """Without the token: this may be logged."""
        return f"Join(space={self.space!r}, participant={self.participant!r}, after_seq={self.after_seq!r})"


def parse_join(frame: Mapping[str, Any]) -> Join | None:
    """None: it is no join. Raises `EnvelopeError` for one that is wrong."""
    kind = frame.get("kind")
    if frame.get("type") == "join" and kind is None:
        fields: Any = frame
        at = ""
    elif isinstance(kind, str) and kind.replace(".", "/") == JOIN:
        fields = frame.get("payload")
        at = "payload."
        if not isinstance(fields, dict):
            raise EnvelopeError(
                f"payload: a join has an object with `space` and `token`, not {json_type_name(fields)}",
                code="invalid_type",
                param="payload",
            )
    else:
        return None
    after_seq = fields.get("after_seq")
    if after_seq is not None and (
        isinstance(after_seq, bool) or not isinstance(after_seq, int) or not 0 <= after_seq < 2**63
    ):
        raise EnvelopeError(
            f"{at}after_seq: the number of the last envelope that you have, from 0", param=f"{at}after_seq"
        )
    dialect = _text(fields, at, "dialect") or _text(frame, "", "protocol")
    participant = (
        _text(fields, at, "participantId") or _text(fields, at, "participant_id") or _text(fields, at, "participant")
    )
    return Join(
        space=_text(fields, at, "space"),
        token=_text(fields, at, "token"),
        participant=participant,
        after_seq=after_seq,
        view=_text(fields, at, "view"),
        dialect=dialect,
    )


def _text(fields: Mapping[str, Any], at: str, name: str) -> str | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise EnvelopeError(
            f"{at}{name}: must be a string, not {json_type_name(value)}", code="invalid_type", param=f"{at}{name}"
        )
    if len(value) > MAX_TOKEN:
        raise EnvelopeError(f"{at}{name}: at most {MAX_TOKEN} characters", code="too_long", param=f"{at}{name}")
    return value


def is_heartbeat(frame: Mapping[str, Any]) -> bool:
    """Whether it says no more than that its sender is there: to be dropped."""
    kind = frame.get("kind")
    return isinstance(kind, str) and kind.replace(".", "/") == HEARTBEAT


MAX_PEEK = 4096
"""Bytes or characters."""

_TOKEN = re.compile(r'\s*("(?>(?:[^"\\]|\\.)*)"|[\[{]|[\]}]|[:,]|[^\s\[\]{}:,"]++)', re.DOTALL)
_PEEKED_MEMBERS = ("id", "kind")


def peek(frame: bytes | str | dict[str, Any]) -> tuple[str | None, str | None]:
    """The id and the kind of the envelope in this frame, each None where it cannot be told."""
    if isinstance(frame, dict):
        members = {name: frame.get(name) for name in _PEEKED_MEMBERS}
    else:
        start = frame[:MAX_PEEK]
        members = _peek_members(start.decode(errors="replace") if isinstance(start, bytes) else start)
    id, kind = (value if is_id(value) else None for value in (members.get("id"), members.get("kind")))
    return id, kind


def _peek_members(text: str) -> dict[str, Any]:
    """The texts among the object's own members, as far as the text goes."""
    members: dict[str, Any] = {}
    depth, at, name, before = 0, 0, "", ""
    while (token := _TOKEN.match(text, at)) is not None:
        word, at = token[1], token.end()
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
