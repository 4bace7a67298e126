"""What is hashed, and how. Whoever checks the record without us has this to write anew.

* `digest` of a content is SHA-256 over 16 random bytes, the salt, and the content. Without the salt nobody can try out
  guesses.
* `canonical` is JSON with its keys sorted and no blanks, in UTF-8: RFC 8785, for text, integers, lists and objects.
* `framed` is a content of several pieces: a line of JSON that names them and says how long each is (null: there is
  none), a line break, and the pieces.
* The hash of an entry (`follow`) is SHA-256 over the hash of the one before it (32 bytes) and the entry as canonical
  JSON. The first follows the hash of its owner and scope (`genesis`), so no chain can be passed off as another's.
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
    """What happened to something in a scope."""

    number: int
    """From 1, without holes."""
    at: int
    """In milliseconds since 1970."""
    kind: str
    """`response`, `item`, `envelope`: it was stored. `deleted`, `expired`, `erased`: its content is gone."""
    subject: str
    """What it happened to: an id, or the number of an envelope."""
    digest: str | None = None
    """Of the content that was stored, in hexadecimal. None: there is none to this entry."""
    more: dict[str, Any] = {}
    """`ends`: the numbers of the entries whose content is gone by this, as pairs of first and last. Other words are
    of whoever stores."""


class ChainHead(NamedTuple):
    """How far a chain has come."""

    number: int
    hash: bytes


def canonical_json(value: Any) -> bytes:
    # Half of a surrogate pair is no text, but what somebody wrote into a record is to be hashed, not fallen over.
    return _encode(value).encode("utf-8", "surrogatepass")


def content_digest(salt: bytes, content: Iterable[bytes]) -> bytes:
    hasher = sha256(salt)
    for piece in content:
        hasher.update(piece)
    return hasher.digest()


def frame_content(fields: Mapping[str, Any], pieces: Mapping[str, bytes | None]) -> list[bytes]:
    """One content. A number with a point in `fields` is written as Python does: the shortest that reads back equal."""
    lengths = [[name, None if piece is None else len(piece)] for name, piece in pieces.items()]
    return [canonical_json({**fields, "pieces": lengths}) + b"\n", *(piece for piece in pieces.values() if piece)]


def decode_hex(text: str) -> bytes:
    """The bytes that are written so, and in no other way; nothing, which is no hash, if none are."""
    try:
        data = bytes.fromhex(text)
    except ValueError:
        return b""
    return data if data.hex() == text else b""


def genesis_hash(owner: str, scope: str) -> bytes:
    """What the first entry of a chain follows."""
    return sha256(_GENESIS + canonical_json({"owner": owner, "scope": scope})).digest()


def entry_hash(previous: bytes, entry: Entry) -> bytes:
    """The hash of an entry that comes after this one."""
    # By hand, for this is done once for everything that is stored. A test holds it to `canonical`.
    members = f'"kind":{encode_basestring(entry.kind)}'
    if entry.more:
        members += f',"more":{canonical_json(entry.more).decode("utf-8", "surrogatepass")}'
    members += f',"number":{entry.number},"subject":{encode_basestring(entry.subject)}}}'
    digest_member = f'"digest":{encode_basestring(entry.digest)},' if entry.digest is not None else ""
    return sha256(previous + f'{{"at":{entry.at},{digest_member}{members}'.encode("utf-8", "surrogatepass")).digest()


def to_ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Pairs of first and last, for `ends`."""
    pairs: list[list[int]] = []
    for number in sorted(numbers):
        if pairs and number == pairs[-1][1] + 1:
            pairs[-1][1] = number
        else:
            pairs.append([number, number])
    return pairs


def ended_ranges(more: dict[str, Any]) -> Sequence[tuple[int, int]] | None:
    """The pairs in an entry's `more`; None if what stands there is no such thing."""
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
