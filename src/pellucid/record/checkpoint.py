"""Checkpoints: a signature over how far chains have come.

One names the heads of an owner's chains that went on since the one before, whose hash it holds (`previous`): so an
owner's checkpoints are a chain themselves, and a scope that is named in one cannot vanish. It also holds the hash of
the checkpoint that the gateway made before it, whoever's (`before`), so that no owner can vanish with all theirs.

What is signed is the line `pellucid/checkpoint/1` and the checkpoint as canonical JSON; its hash is SHA-256 over that
JSON and the signature.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from .digest import canonical
from .keys import Signer, Trusted

_SIGNED = b"pellucid/checkpoint/1\n"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is signed."""

    owner: str
    number: int
    """Of the owner's checkpoints, from 1."""
    previous: str
    """The hash of the owner's one before; empty: it is the first."""
    serial: int
    """Of the gateway's checkpoints, from 1."""
    before: str
    """The hash of the gateway's one before; empty: it is the first."""
    at: int
    """In milliseconds since 1970."""
    key: str
    """The id of the key that signs."""
    heads: dict[str, tuple[int, str]]
    """How far each chain has come that went on: number and hash (hexadecimal) of its newest entry, by scope."""

    def body(self) -> bytes:
        return canonical(msgspec.to_builtins(self))


class Signed(msgspec.Struct, frozen=True):
    """A checkpoint with its signature."""

    checkpoint: Checkpoint
    signature: bytes

    @property
    def hash(self) -> str:
        return sha256(self.checkpoint.body() + self.signature).hexdigest()

    def holds(self, trusted: Trusted) -> bool:
        """Whether its key, which is one of these, signed it."""
        return trusted.signed(self.checkpoint.key, _SIGNED + self.checkpoint.body(), self.signature)


def signed(signer: Signer, checkpoint: Checkpoint) -> Signed:
    return Signed(checkpoint, signer.sign(_SIGNED + checkpoint.body()))


def read_body(body: bytes) -> Checkpoint | None:
    """The checkpoint that has this body; None if none has exactly this."""
    try:
        checkpoint = msgspec.json.decode(body, type=Checkpoint)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return checkpoint if checkpoint.body() == body else None
