"""Hashes and digests of the record. An independent verifier has to implement these functions.

* `content_digest` is SHA-256 over the salt (16 random bytes) and the content. Without the salt, guesses of the content
  cannot be tested.
* `canonical_json` is JSON with sorted keys and without spaces, in UTF-8: RFC 8785, for text, integers, lists and
  objects.
* `frame_content` joins a content of several pieces: a line of JSON with name and length of each piece (null: there is
  none), a line break, and the pieces.
* `entry_hash` is SHA-256 over the hash of the previous entry (32 bytes) and the entry as canonical JSON. The first
  entry follows the hash of its owner and scope (`genesis_hash`), so no chain can be presented as that of another scope.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import msgspec

SALT_BYTES = 16

_GENESIS = b"pellucid/record/1\n"

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False).encode


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of a chain: an event in the life of one content."""

    number: int
    """Position in the chain, from 1, without gaps."""
    at: int
    """In milliseconds since 1970."""
    kind: str
    """`response`, `item`, `envelope`: content was stored. `deleted`, `expired`, `erased`: content was removed."""
    subject: str
    """Id of the content, or sequence number of the envelope."""
    digest: str | None = None
    """Digest of the stored content, in hexadecimal. None: the entry has no content."""
    more: dict[str, Any] = {}
    """`ends`: the numbers of the entries whose content this one removes, as pairs of (first, last). The store may add
    other members."""


class ChainHead(NamedTuple):
    """Number and hash of the newest entry of a chain."""

    number: int
    hash: bytes


def canonical_json(value: Any) -> bytes:
    """Encode a value as canonical JSON (see the module)."""
    # A lone surrogate is not valid text, but a record that contains one must be hashed without an error.
    return _encode(value).encode("utf-8", "surrogatepass")


def content_digest(salt: bytes, content: Iterable[bytes]) -> bytes:
    """Return the digest of a content, which is passed in pieces."""
    hasher = sha256(salt)
    for piece in content:
        hasher.update(piece)
    return hasher.digest()


def frame_content(fields: Mapping[str, Any], pieces: Mapping[str, bytes | None]) -> list[bytes]:
    """Build a content of several pieces (see the module).

    Floats in `fields` are written as by Python: the shortest decimal number that has the same value.
    """
    lengths = [[name, None if piece is None else len(piece)] for name, piece in pieces.items()]
    return [canonical_json({**fields, "pieces": lengths}) + b"\n", *(piece for piece in pieces.values() if piece)]


def decode_hex(text: str) -> bytes:
    """Decode lower-case hexadecimal without spaces; return empty bytes, which are never a hash, for other text."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return b""
    return data if data.hex() == text else b""


def genesis_hash(owner: str, scope: str) -> bytes:
    """Return the hash that the first entry of a chain follows."""
    return sha256(_GENESIS + canonical_json({"owner": owner, "scope": scope})).digest()


def entry_hash(previous: bytes, entry: Entry) -> bytes:
    """Return the hash of an entry that follows the hash `previous`."""
    # Formatted without the JSON encoder, for speed: this runs for every stored content. A test compares it with
    # `canonical_json`.
    members = f'"kind":{encode_basestring(entry.kind)}'
    if entry.more:
        members += f',"more":{canonical_json(entry.more).decode("utf-8", "surrogatepass")}'
    members += f',"number":{entry.number},"subject":{encode_basestring(entry.subject)}}}'
    digest_member = f'"digest":{encode_basestring(entry.digest)},' if entry.digest is not None else ""
    return sha256(previous + f'{{"at":{entry.at},{digest_member}{members}'.encode("utf-8", "surrogatepass")).digest()


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Convert numbers to pairs of (first, last), for `ends`."""
    pairs: list[list[int]] = []
    for number in sorted(numbers):
        if pairs and number == pairs[-1][1] + 1:
            pairs[-1][1] = number
        else:
            pairs.append([number, number])
    return pairs


def ended_ranges(more: dict[str, Any]) -> Sequence[tuple[int, int]] | None:
    """Return the pairs of `ends` in an entry's `more`; None if they are not valid."""
    pairs = more.get("ends", [])
    if not isinstance(pairs, list):
        return None
    ended: list[tuple[int, int]] = []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(end) is int for end in pair)):
            return None
        if not 1 <= pair[0] <= pair[1]:
            return None
        ended.append((pair[0], pair[1]))
    return ended
