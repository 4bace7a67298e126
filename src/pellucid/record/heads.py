"""The checkpoints of a record: whether they follow each other, and what they say of each chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .digest import unhex
from .findings import Finding
from .keys import Signed, Trusted
from .lines import CheckpointLine


class SignedHead(NamedTuple):
    """Somebody with a key signed that a chain has come so far."""

    number: int
    hash: bytes
    checkpoint: int
    at: int


class _Last(NamedTuple):
    number: int
    hash: str


_START = _Last(0, "")


class Heads:
    """Of all owners (`owner` is None), of one, or of what one scope is named in: then some may be left out."""

    def __init__(self, trusted: Trusted, owner: str | None, scope: str | None) -> None:
        self.count = 0
        self._trusted = trusted
        self._all = owner is None and scope is None
        self._whole = scope is None
        self._only = scope
        self._serial = _START
        self._last: dict[str, _Last] = {}
        self._hashes: set[str] = set()
        self._heads: dict[tuple[str, str], list[SignedHead]] = {}
        self._seen: set[tuple[str, str]] = set()
        self._owner = owner

    def feed(self, line: CheckpointLine) -> Iterator[Finding]:
        self.count += 1
        checkpoint = line.checkpoint
        if checkpoint is None:
            yield _wrong(line, f"what is kept as checkpoint {line.number} is none")
            return
        if (checkpoint.owner, checkpoint.number, checkpoint.serial) != (line.owner, line.number, line.serial):
            yield _wrong(line, f"what is kept as checkpoint {line.number} of this owner is another one")
            return
        signed = Signed(checkpoint, line.signature)
        yield from self._follows(line, signed)
        self._hashes.add(signed.hash)
        if checkpoint.key not in self._trusted:
            told = f"checkpoint {line.number} was signed with the key {checkpoint.key}, which is not known here"
            yield _wrong(line, told, what="key")
        elif not signed.holds(self._trusted):
            told = f"checkpoint {line.number} was changed, or signed by somebody without its key"
            yield _wrong(line, told, what="signature")
        else:
            for scope, (number, hash) in checkpoint.heads.items():
                if self._only is None or scope == self._only:
                    yield from self._said(line, scope, SignedHead(number, unhex(hash), line.number, checkpoint.at))

    def _follows(self, line: CheckpointLine, signed: Signed) -> Iterator[Finding]:
        checkpoint = signed.checkpoint
        if self._whole:
            last = self._last.get(line.owner, _START)
            if checkpoint.number != last.number + 1:
                yield _missing(line, last.number + 1, checkpoint.number - 1)
            elif checkpoint.previous != last.hash:
                told = f"checkpoint {line.number} does not follow checkpoint {last.number} as that is now"
                yield _wrong(line, told)
            self._last[line.owner] = _Last(checkpoint.number, signed.hash)
        if self._all:
            if checkpoint.serial != self._serial.number + 1:
                told = (
                    f"of the gateway's checkpoints, {self._serial.number + 1} to {checkpoint.serial - 1} are not there"
                )
                yield Finding(what="checkpoint", message=told)
            elif checkpoint.before != self._serial.hash:
                told = (
                    f"the gateway's checkpoint {checkpoint.serial} does not follow {self._serial.number} as that is now"
                )
                yield Finding(what="checkpoint", message=told)
            self._serial = _Last(checkpoint.serial, signed.hash)

    def _said(self, line: CheckpointLine, scope: str, head: SignedHead) -> Iterator[Finding]:
        heads = self._heads.setdefault((line.owner, scope), [])
        if heads and heads[-1].number >= head.number:
            told = f"checkpoint {line.number} says that {scope} went back to entry {head.number}"
            yield _wrong(line, told)
        else:
            heads.append(head)

    def of(self, owner: str, scope: str) -> list[SignedHead]:
        """What is said of a chain, which is there."""
        return self._heads.get((owner, scope), [])

    def seen(self, owner: str, scope: str) -> bool:
        """Note that it is there; whether it was before."""
        before = (owner, scope) in self._seen
        self._seen.add((owner, scope))
        return before

    def vanished(self) -> Iterator[Finding]:
        """Those of which something is said, and that are not there."""
        for (owner, scope), heads in self._heads.items():
            if (owner, scope) not in self._seen:
                told = f"it is not there, and had {heads[-1].number} entries by checkpoint {heads[-1].checkpoint}"
                yield Finding(what="vanished", message=told, owner=owner, scope=scope, checkpoint=heads[-1].checkpoint)

    def unknown(self, known: Iterable[Signed]) -> Iterator[Finding]:
        """Those of these that should be there, and are not."""
        for signed in known:
            checkpoint = signed.checkpoint
            told_here = self._owner in (None, checkpoint.owner) and (
                self._only is None or self._only in checkpoint.heads
            )
            if told_here and signed.hash not in self._hashes:
                told = f"checkpoint {checkpoint.number}, which was known before, is not there as it was"
                yield Finding(what="known", message=told, owner=checkpoint.owner, checkpoint=checkpoint.number)


def _wrong(line: CheckpointLine, message: str, what: str = "checkpoint") -> Finding:
    return Finding(what=what, message=message, owner=line.owner, checkpoint=line.number)  # type: ignore[arg-type]


def _missing(line: CheckpointLine, first: int, last: int) -> Finding:
    if last < first:
        return _wrong(line, f"checkpoint {line.number} comes after checkpoint {first - 1}")
    named = f"checkpoint {first} is" if first == last else f"checkpoints {first} to {last} are"
    return Finding(what="checkpoint", message=f"{named} not there", owner=line.owner, checkpoint=first)
