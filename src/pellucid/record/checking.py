"""One chain, checked entry by entry."""

from __future__ import annotations

import hmac
from collections.abc import Iterator

from .chain import Head, ended_by, follow, genesis
from .digest import digest, unhex
from .findings import Finding, ScopeReport, What
from .heads import SignedHead
from .keys import Recording
from .lines import EntryLine, ScopeLine

_NONE, _THERE, _SALT, _MISSING, _ENDED = range(5)
"""Of an entry's content: it has none; is there; only its salt is; is not there; and is said to be gone."""

_HOLE = 1_000_000
"""More entries than these are not missing in one place: then the numbers are wrong."""


class Scope:
    """`signed`: what checkpoints say of it, oldest first."""

    def __init__(self, line: ScopeLine, signed: list[SignedHead], recording: Recording | None) -> None:
        self._line = line
        self._signed = signed
        self._next_signed = 0
        self._matched = 0
        """Up to here the chain is one that was signed."""
        self._rewritten = False
        self._recording = recording
        self._number = 0
        self._entries = 0
        self._states = bytearray(1)  # entries are counted from 1
        self._hashes: list[bytes] = [genesis(line.owner, line.scope)]
        """What the next entry may follow; more than one where the last was not right."""
        self._since: int | None = None

    def finding(self, what: What, message: str, entry: int | None = None, checkpoint: int | None = None) -> Finding:
        line = self._line
        return Finding(
            what=what, message=message, owner=line.owner, scope=line.scope, entry=entry, checkpoint=checkpoint
        )

    def feed(self, line: EntryLine) -> Iterator[Finding]:
        self._entries += 1
        number = line.number
        if number <= self._number or number - self._number > _HOLE:
            yield self.finding("entry", f"entry {number} comes after entry {self._number}", number)
            return
        if number > self._number + 1:
            first, last = self._number + 1, number - 1
            named = f"entry {first} is" if first == last else f"entries {first} to {last} are"
            yield self.finding("missing", f"{named} not there", first)
            self._states.extend(bytes(number - 1 - self._number))
            self._hashes = []
        if number == 1:
            self._since = line.at
        self._number = number
        yield from self._linked(line)
        yield from self._kept(line)
        yield from self._ends(line)

    def _linked(self, line: EntryLine) -> Iterator[Finding]:
        entry, number = line.entry, line.number
        stored = unhex(line.hash)
        right = [follow(previous, entry) for previous in self._hashes]
        if self._hashes and stored not in right:
            told = f"entry {number} ({_of(line)}) was changed, or does not follow the one before it"
            yield self.finding("entry", told, number)
            self._hashes = [stored, *right]
        else:
            self._hashes = [stored]
        yield from self._checkpoint(number)

    def _checkpoint(self, number: int) -> Iterator[Finding]:
        """Whether this is the entry that was signed under this number, if one was."""
        while self._next_signed < len(self._signed) and self._signed[self._next_signed].number <= number:
            signed = self._signed[self._next_signed]
            self._next_signed += 1
            if signed.number != number:
                continue  # that entry is missing, which was said
            if signed.hash in self._hashes:
                self._matched = number
            elif not self._rewritten:
                self._rewritten = True
                first = self._matched + 1
                which = f"entry {number} is" if first == number else f"entries {first} to {number} are"
                told = f"{which} not what checkpoint {signed.checkpoint} signed: the chain was written anew"
                yield self.finding("rewritten", told, first, signed.checkpoint)

    def _kept(self, line: EntryLine) -> Iterator[Finding]:
        state, content = _NONE, line.kept
        if line.digest is not None:
            if line.salt is None:
                state = _MISSING
            elif content is None:
                state = _SALT
            else:
                state = _THERE
                made = digest(unhex(line.salt), [content]).hex()
                if not hmac.compare_digest(made.encode(), line.digest.encode("utf-8", "replace")):
                    told = f"the content of entry {line.number} ({_of(line)}) is not what was recorded"
                    yield self.finding("content", told, line.number)
        self._states.append(state)

    def _ends(self, line: EntryLine) -> Iterator[Finding]:
        pairs = ended_by(line.more)
        if pairs is None or any(last >= line.number for _, last in pairs):
            told = f"entry {line.number} ({_of(line)}) ends the content of entries that do not come before it"
            yield self.finding("entry", told, line.number)
            return
        for first, last in pairs:
            for number in range(first, last + 1):
                if self._states[number] in (_THERE, _SALT):
                    told = f"the content of entry {number} is gone, says entry {line.number}, but its salt is there"
                    yield self.finding("kept", told, number)
                self._states[number] = _ENDED

    def end(self) -> Iterator[Finding]:
        """There are no more entries."""
        for state, told in (
            (_MISSING, "the salt of entry {} is gone, and no entry says why"),
            (_SALT, "the content of entry {} is not there, and no entry says why"),
        ):
            at = self._states.find(state)
            while at >= 0:
                yield self.finding("gone", told.format(at), at)
                at = self._states.find(state, at + 1)
        yield from self._ended_right()

    def _ended_right(self) -> Iterator[Finding]:
        line = self._line
        for signed in self._signed[self._next_signed :]:
            told = f"entry {signed.number} is not there, which checkpoint {signed.checkpoint} signed"
            yield self.finding("missing", told, self._number + 1, signed.checkpoint)
            break
        if line.number != self._number:
            if line.number > self._number:
                told = f"it ends with entry {self._number}, and had {line.number}"
                yield self.finding("missing", told, self._number + 1)
            else:
                yield self.finding("head", f"it has entry {self._number}, and is to end with {line.number}")
        elif unhex(line.hash) not in self._hashes:
            yield self.finding("head", "it is to end with another hash than its last entry has", self._number)
        if self._since is not None and line.since != self._since:
            yield self.finding("head", "it is to have begun at another time than its first entry")
        covered = self._signed[-1].number if self._signed else 0
        if line.signed > covered:
            yield self.finding("checkpoint", f"the checkpoint that signed it up to entry {line.signed} is not there")
        elif line.signed < covered:
            yield self.finding("head", f"it is to be signed up to entry {line.signed}, and is up to {covered}")
        if self._recording is not None:
            seal = unhex(line.seal) if line.seal is not None else None
            head = Head(line.number, unhex(line.hash))
            if not self._recording.sealed(line.owner, line.scope, head, line.signed, seal):
                told = f"its end (entry {line.number}) was written without the key: there may have been more, or less"
                yield self.finding("seal", told, line.number)

    @property
    def report(self) -> ScopeReport:
        last = self._signed[-1] if self._signed else None
        return ScopeReport(
            owner=self._line.owner,
            scope=self._line.scope,
            entries=self._entries,
            contents=self._states.count(_THERE),
            gone=self._states.count(_ENDED),
            signed=self._matched,
            checkpoint=last.checkpoint if last else None,
            signed_at=last.at if last else None,
        )


def _of(line: EntryLine) -> str:
    return f"{line.kind} {line.subject}" if line.subject else line.kind
