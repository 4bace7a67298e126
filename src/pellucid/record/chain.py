"""The record's chains as lines of JSON, and the hashes over them (docs/record.md has the format for other verifiers).

The lines are `begin`; the public `key`s; the `checkpoint`s, oldest first; each `scope`, followed by its `entry`s; the
`unrecorded` contents; and `end`, which proves that no line is missing at the end. In lines, times are in milliseconds
since 1970; hashes, digests, salts and seals are in hexadecimal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, NamedTuple, TypeAlias

import msgspec

from ..errors import RequestError

FORMAT = "pellucid/record/1"
SALT_BYTES = 16

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode


class ChainHead(NamedTuple):
    """The end of a chain."""

    owner: str
    scope: str
    number: int  # of the newest entry; 0: there is none
    hash: bytes  # of the newest entry
    signed: int  # number of the last entry in a checkpoint
    seal: bytes | None = None


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed content of a checkpoint: the heads of an owner's chains that have new entries."""

    owner: str
    number: int  # among the owner's checkpoints, from 1
    previous: str  # hash of the owner's previous checkpoint; empty for the first
    serial: int  # number among the gateway's checkpoints, from 1
    before: str  # hash of the gateway's previous checkpoint; empty for the first
    at: int
    key: str  # id of the signing key
    heads: dict[str, tuple[int, str]]  # by scope: number and hash of the newest entry

    def body(self) -> bytes:
        """Return the checkpoint as canonical JSON."""
        return canonical_json(msgspec.to_builtins(self))


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="line"):
    pass


class Begin(_Line, frozen=True, tag="begin"):
    """First line: whether the export contains everything, one owner, or one scope."""

    format: str
    at: int
    owner: str | None = None
    scope: str | None = None


class KeyLine(_Line, frozen=True, tag="key"):
    """A public key, in PEM."""

    id: str
    pem: str


class CheckpointLine(_Line, frozen=True, tag="checkpoint"):
    """A checkpoint, with the owner and the numbers of the row in which it is stored."""

    owner: str
    number: int
    serial: int
    checkpoint: Checkpoint | None  # None: the stored row does not contain a valid checkpoint
    signature: bytes


class ScopeLine(_Line, frozen=True, tag="scope"):
    """A chain, with its stored head."""

    owner: str
    scope: str
    number: int
    hash: str
    signed: int
    since: int  # time of the first entry
    seal: str | None = None


class EntryLine(_Line, frozen=True, tag="entry"):
    """An entry of the chain of the last `scope` line: an event in the life of one content.

    If the content was removed, the salt is missing too.
    """

    number: int  # position in the chain, from 1, without gaps
    at: int
    kind: str  # of the stored content (`response`, `item`, `envelope`); `deleted`, `expired`, `erased`; `accepted`
    subject: str  # id of the content, or sequence number of the envelope
    hash: str
    digest: str | None = None  # None: the entry has no content
    more: dict[str, Any] = {}  # `ends`: pairs of the first and the last entry whose content this one removes
    salt: str | None = None
    content: str | None = None
    content_base64: bytes | None = None  # a content that is not UTF-8

    @property
    def content_bytes(self) -> bytes | None:
        """The content as bytes; None if it is not included."""
        return self.content.encode("utf-8", "surrogatepass") if self.content is not None else self.content_base64


class UnrecordedLine(_Line, frozen=True, tag="unrecorded"):
    """Stored content without an entry in the record."""

    owner: str
    scope: str
    kind: str
    subject: str
    before: bool  # whether it is older than the record


class End(_Line, frozen=True, tag="end"):
    """Last line: the number of lines before it."""

    lines: int


Line: TypeAlias = Begin | KeyLine | CheckpointLine | ScopeLine | EntryLine | UnrecordedLine | End

_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)


def decode_line(data: bytes, number: int) -> Line:
    """Decode the line with this number. Raises `RequestError` if it is not a line of a record."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else "it is not JSON in UTF-8"
        raise RequestError(f"line {number} is not a line of a record: {reason}", code="not_a_record") from None


def canonical_json(value: Any) -> bytes:
    """Encode a value as canonical JSON. Floats are written as by Python: the shortest number of the same value."""
    # A lone surrogate is not valid text, but a record that contains one must be hashed without an error.
    return _encode(value).encode("utf-8", "surrogatepass")


def frame_content(fields: Mapping[str, Any], pieces: Mapping[str, bytes | None]) -> list[bytes]:
    """Build a content: a line of JSON with `fields`, and with name and length of each piece; and the pieces."""
    lengths = [[name, None if piece is None else len(piece)] for name, piece in pieces.items()]
    return [canonical_json({**fields, "pieces": lengths}) + b"\n", *(piece for piece in pieces.values() if piece)]


def content_digest(salt: bytes, content: Iterable[bytes]) -> bytes:
    """Return the digest of a content, which is passed in pieces."""
    hasher = sha256(salt)
    for piece in content:
        hasher.update(piece)
    return hasher.digest()


def genesis_hash(owner: str, scope: str) -> bytes:
    """Return the hash that the first entry of a chain follows."""
    return sha256(f"{FORMAT}\n".encode() + canonical_json({"owner": owner, "scope": scope})).digest()


def entry_hash(previous: bytes, entry: EntryLine) -> bytes:
    """Return the hash of an entry that follows the hash `previous`."""
    # Canonical JSON without the encoder, for speed: this runs for every stored content.
    quote = encode_basestring
    digest = f'"digest":{quote(entry.digest)},' if entry.digest is not None else ""
    more = f'"more":{_encode(entry.more)},' if entry.more else ""
    fields = f'"kind":{quote(entry.kind)},{more}"number":{entry.number},"subject":{quote(entry.subject)}'
    return sha256(previous + f'{{"at":{entry.at},{digest}{fields}}}'.encode("utf-8", "surrogatepass")).digest()


def checkpoint_hash(body: bytes, signature: bytes) -> str:
    """Return the hash of a signed checkpoint."""
    return sha256(body + signature).hexdigest()


def decode_hex(text: str) -> bytes:
    """Decode lower-case hexadecimal without spaces; return empty bytes, which are never a hash, for other text."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return b""
    return data if data.hex() == text else b""
