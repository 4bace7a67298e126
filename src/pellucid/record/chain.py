"""An entry of the record, and the chain that entries make.

The hash of an entry is SHA-256 over the hash of the one before it (32 bytes) and the entry as canonical JSON. The first
follows the hash of its owner and scope, so no chain can be passed off as another's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from json.encoder import encode_basestring
from typing import Any, NamedTuple

import msgspec

from .digest import canonical

_GENESIS = b"pellucid/record/1\n"


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


class Head(NamedTuple):
    """How far a chain has come."""

    number: int
    hash: bytes


def genesis(owner: str, scope: str) -> bytes:
    """What the first entry of a chain follows."""
    return sha256(_GENESIS + canonical({"owner": owner, "scope": scope})).digest()


def follow(previous: bytes, entry: Entry) -> bytes:
    """The hash of an entry that comes after this one."""
    # By hand, for this is done once for everything that is stored. A test holds it to `canonical`.
    said = f'"kind":{_text(entry.kind)}'
    if entry.more:
        said += f',"more":{canonical(entry.more).decode("utf-8", "surrogatepass")}'
    said += f',"number":{entry.number},"subject":{_text(entry.subject)}}}'
    of = f'"digest":{_text(entry.digest)},' if entry.digest is not None else ""
    return sha256(previous + f'{{"at":{entry.at},{of}{said}'.encode("utf-8", "surrogatepass")).digest()


_text = encode_basestring


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Them, as pairs of first and last."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def ended_by(more: dict[str, Any]) -> Sequence[tuple[int, int]] | None:
    """The pairs in an entry's `more`; None if what stands there is no such thing."""
    pairs = more.get("ends", [])
    if not isinstance(pairs, list):
        return None
    found: list[tuple[int, int]] = []
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and all(type(end) is int for end in pair)):
            return None
        if not 1 <= pair[0] <= pair[1]:
            return None
        found.append((pair[0], pair[1]))
    return found
