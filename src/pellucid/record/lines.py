"""The record as lines of JSON, which can be checked without the store it came from.

In this order: `begin`; the public `key`s; the `checkpoint`s, oldest first; then each `scope`, followed by its `entry`s;
what is stored and `unrecorded`; and `end`, by which it is known that nothing was cut off.

An entry's `content` is what its digest is of: text, or base64 in `content_base64`. Where it is gone, so is the `salt`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..errors import RequestError
from .chain import Entry
from .keys import Checkpoint

FORMAT = "pellucid/record/1"


class Begin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="begin"):
    """What is told: everything, one owner's, or one scope."""

    format: str
    at: int
    owner: str | None = None
    scope: str | None = None


class KeyLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="key"):
    """A public key, in PEM."""

    id: str
    pem: str


class CheckpointLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="checkpoint"):
    """A checkpoint. The numbers beside it are those under which it is kept."""

    owner: str
    number: int
    serial: int
    checkpoint: Checkpoint | None
    """None: what is kept there is none."""
    signature: bytes


class ScopeLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="scope"):
    """A chain, and where it is kept that it ends."""

    owner: str
    scope: str
    number: int
    hash: str
    signed: int
    """Up to here it is in a checkpoint."""
    since: int
    """When its first entry was made."""
    seal: str | None = None


class EntryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="entry"):
    """An entry of the chain that was begun last."""

    number: int
    at: int
    kind: str
    subject: str
    hash: str
    digest: str | None = None
    more: dict[str, Any] = {}
    salt: str | None = None
    content: str | None = None
    content_base64: bytes | None = None

    @property
    def entry(self) -> Entry:
        return Entry(**{name: getattr(self, name) for name in Entry.__struct_fields__})

    @property
    def content_bytes(self) -> bytes | None:
        """The content itself."""
        return self.content.encode("utf-8", "surrogatepass") if self.content is not None else self.content_base64


class UnrecordedLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="unrecorded"):
    """Something that is stored, and of which the record knows nothing."""

    owner: str
    scope: str
    kind: str
    subject: str
    before: bool
    """It is older than the record."""


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """So many lines came before this one."""

    lines: int


Line: TypeAlias = Begin | KeyLine | CheckpointLine | ScopeLine | EntryLine | UnrecordedLine | End

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def decode_line(data: bytes, number: int) -> Line:
    """Raises `RequestError`, naming the line."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "it is no JSON in UTF-8"
        raise RequestError(f"line {number} is none of a record: {reason}", code="not_a_record") from None


def content_fields(data: bytes) -> dict[str, Any]:
    """The fields of a line that hold this."""
    try:
        return {"content": data.decode()}
    except UnicodeDecodeError:
        return {"content_base64": data}
