"""The record as lines of JSON, which can be verified without the store.

The order is: `begin`; the public `key`s; the `checkpoint`s, oldest first; each `scope`, followed by its `entry`s; the
`unrecorded` contents; and `end`, which proves that no line is missing at the end.

The digest of an entry covers its `content`: text, or base64 in `content_base64`. If the content was removed, the `salt`
is missing too.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from ..errors import RequestError
from .chain import Entry
from .keys import Checkpoint

FORMAT = "pellucid/record/1"


class Begin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="begin"):
    """First line: whether the export contains everything, one owner, or one scope."""

    format: str
    at: int
    owner: str | None = None
    scope: str | None = None


class KeyLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="key"):
    """A public key, in PEM."""

    id: str
    pem: str


class CheckpointLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="checkpoint"):
    """A checkpoint, with the owner and the numbers of the row in which it is stored."""

    owner: str
    number: int
    serial: int
    checkpoint: Checkpoint | None
    """None: the stored row does not contain a valid checkpoint."""
    signature: bytes


class ScopeLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="scope"):
    """A chain, with its stored head."""

    owner: str
    scope: str
    number: int
    hash: str
    signed: int
    """Number of the last entry in a checkpoint."""
    since: int
    """Time of its first entry, in milliseconds since 1970."""
    seal: str | None = None


class EntryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line", tag="entry"):
    """An entry of the chain of the last `scope` line."""

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
        """The entry, without salt and content."""
        return Entry(**{name: getattr(self, name) for name in Entry.__struct_fields__})

    @property
    def content_bytes(self) -> bytes | None:
        """The content as bytes; None if it is not included."""
        return self.content.encode("utf-8", "surrogatepass") if self.content is not None else self.content_base64


class UnrecordedLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="unrecorded"):
    """Stored content without an entry in the record."""

    owner: str
    scope: str
    kind: str
    subject: str
    before: bool
    """Whether it is older than the record."""


class End(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """Last line: the number of lines before it."""

    lines: int


Line: TypeAlias = Begin | KeyLine | CheckpointLine | ScopeLine | EntryLine | UnrecordedLine | End

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> bytes:
    """Encode one line, with a line break."""
    return msgspec.json.encode(line) + b"\n"


def decode_line(data: bytes, number: int) -> Line:
    """Decode one line.

    Args:
        data: The line.
        number: Its number, for the message.

    Raises:
        RequestError: If it is not a line of a record.
    """
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "it is not JSON in UTF-8"
        raise RequestError(f"line {number} is not a line of a record: {reason}", code="not_a_record") from None


def content_fields(data: bytes) -> dict[str, Any]:
    """Return the fields of an entry line that contain this content."""
    try:
        return {"content": data.decode()}
    except UnicodeDecodeError:
        return {"content_base64": data}
