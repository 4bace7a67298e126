"""Verification of the record: whether it is complete and unchanged, and the stored contents match it.

    verifier = Verifier(trusted)
    for line in lines: report = verifier.feed(line)     # a ScopeReport when a scope is complete
    report = verifier.end()                             # with all findings

The verifier keeps only the data that later lines need: the heads in checkpoints, with which each chain is compared.
After a finding, it continues: an entry with a wrong hash is one finding, and the next one is compared with that hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Literal, TypeAlias

import msgspec

from . import chain
from .chain import ChainHead, Checkpoint, CheckpointLine, EntryLine, Line, ScopeLine
from .keys import Recording, is_signed, parse_pem_keys

MAX_FINDINGS = 1_000
"""Maximum number of findings in a report."""
_MAX_GAP = 1_000_000
"""A gap of more entries than this is not a gap: the number of the entry is wrong."""

FindingKind: TypeAlias = (
    Literal["cut", "checkpoint", "signature", "key", "known", "vanished", "entry", "missing", "head", "seal"]
    | Literal["rewritten", "content", "gone", "kept", "unrecorded"]
)
"""See docs/record.md."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A difference between the record and what it must be."""

    what: FindingKind
    message: str
    owner: str | None = None
    scope: str | None = None
    entry: int | None = None  # number of the entry; of several entries, the first
    checkpoint: int | None = None  # number of the owner's checkpoint

    def __str__(self) -> str:
        where = [part for part in (self.owner, self.scope) if part is not None]
        return f"{' '.join(where)}: {self.message}" if where else self.message


class ScopeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one scope."""

    owner: str
    scope: str
    entries: int
    contents: int  # that are present
    gone: int  # contents that were deleted or erased, or have expired
    signed: int  # number of the last entry in a checkpoint; 0: there is none
    checkpoint: int | None  # number of the owner's last checkpoint that contains the scope
    signed_at: int | None  # time of that checkpoint, in milliseconds since 1970


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Result for the whole record."""

    scopes: int
    entries: int
    contents: int
    gone: int
    checkpoints: int
    before: int  # stored contents that are older than the record
    keys: Literal["given", "own", "none"]  # that verified the checkpoints: "own" are those in the record itself
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


class Verifier:
    """Verifies the lines of a record.

    Args:
        trusted: The public keys that are trusted, by id; if empty, the keys in the record itself.
        recording: Has the keys that check the seals of chains; None: seals are not checked.
        known: Checkpoints that the record must contain.
    """

    def __init__(
        self,
        trusted: Mapping[str, bytes] | None = None,
        recording: Recording | None = None,
        known: Iterable[CheckpointLine] = (),
    ) -> None:
        self._trusted = dict(trusted or {})
        self._has_trusted_keys = bool(trusted)
        self._recording = recording or Recording()
        self._known = tuple(known)
        self._findings: list[Finding] = []
        self._totals = Counter[str]()
        self._lines = 0
        self._begin = chain.Begin(format=chain.FORMAT, at=0)
        self._has_begun = self._has_ended = False
        self._last_checkpoints: dict[str | None, tuple[int, str]] = {}  # of each owner, and of the gateway (None)
        self._checkpoint_hashes: set[str] = set()
        self._checkpoints: dict[tuple[str, str], list[Checkpoint]] = {}  # valid ones with each chain, oldest first
        self._seen_chains: set[tuple[str, str]] = set()
        self._chain: _Chain | None = None

    def feed(self, line: Line) -> ScopeReport | None:
        """Verify the next line; return the report of the scope that ends before it, if one does."""
        report = None if isinstance(line, EntryLine) else self._end_chain()
        match line:
            case EntryLine():
                if self._chain is not None:
                    self._chain.feed(line)
                else:
                    self._add("entry", "there is an entry before any scope", entry=line.number)
            case chain.Begin():
                self._check_begin(line)
            case chain.KeyLine():
                if not self._has_trusted_keys:
                    self._trusted |= parse_pem_keys(line.pem.encode(), "the record's key")[1]
            case CheckpointLine():
                self._check_checkpoint(line)
            case ScopeLine():
                self._begin_chain(line)
            case chain.UnrecordedLine(before=True):
                self._totals["before"] += 1
            case chain.UnrecordedLine():
                how = "it was inserted by other means, or while recording was disabled"
                message = f"{line.kind} {line.subject} is stored without an entry: {how}"
                self._add("unrecorded", message, line.owner, line.scope)
            case chain.End():
                self._has_ended = True
                if line.lines != self._lines:
                    self._add("cut", f"there are {self._lines} lines, and {line.lines} were written")
        self._lines += 1
        return report

    def end(self) -> Report:
        """Finish the verification after the last line. A record without an `end` line is incomplete."""
        self._end_chain()
        if self._has_ended:
            self._find_vanished()
        else:
            self._add("cut", "the record was cut off: its last line is missing")
        return Report(
            **{name: self._totals[name] for name in Report.__struct_fields__[:6]},
            keys="given" if self._has_trusted_keys else "own" if self._trusted else "none",
            findings=tuple(self._findings),
        )

    def _add(
        self, what: FindingKind, message: str, owner: str | None = None, scope: str | None = None, **numbers: int
    ) -> None:
        if len(self._findings) < MAX_FINDINGS:
            self._findings.append(Finding(what, message, owner, scope, **numbers))

    def _check_begin(self, line: chain.Begin) -> None:
        if line.format != chain.FORMAT:
            self._add("cut", f"the format is {line.format!r}, and only {chain.FORMAT!r} is supported")
        has_content = self._totals["checkpoints"] or self._seen_chains
        if self._has_begun or has_content:
            self._add("cut", "this is more than one record, or its beginning is missing")
        if not has_content:
            self._begin, self._has_begun = line, True

    def _check_checkpoint(self, line: CheckpointLine) -> None:
        self._totals["checkpoints"] += 1
        name, checkpoint = f"checkpoint {line.number}", line.checkpoint

        def add(what: FindingKind, message: str) -> None:
            self._add(what, message, line.owner, checkpoint=line.number)

        if checkpoint is None:
            return add("checkpoint", f"what is stored as {name} is not a checkpoint")
        if (checkpoint.owner, checkpoint.number, checkpoint.serial) != (line.owner, line.number, line.serial):
            return add("checkpoint", f"what is stored as {name} of this owner is another one")
        body, only_scope = checkpoint.body(), self._begin.scope
        hash = chain.checkpoint_hash(body, line.signature)
        self._checkpoint_hashes.add(hash)
        if only_scope is None:  # otherwise, checkpoints without the scope are missing
            self._check_order(checkpoint, hash)
        public = self._trusted.get(checkpoint.key)
        if public is None:
            return add("key", f"{name} was signed with the key {checkpoint.key}, which is not known here")
        if not is_signed(body, line.signature, public):
            return add("signature", f"{name} was changed, or signed without its key")
        for scope, (number, _) in checkpoint.heads.items():
            if only_scope in (None, scope):
                earlier = self._checkpoints.setdefault((line.owner, scope), [])
                if earlier and earlier[-1].heads[scope][0] >= number:
                    add("checkpoint", f"{name} says that {scope} went back to entry {number}")
                else:
                    earlier.append(checkpoint)

    def _check_order(self, checkpoint: Checkpoint, hash: str) -> None:
        """Check that a checkpoint follows the owner's previous one; and the gateway's, if all owners are exported."""
        owner, number, serial = checkpoint.owner, checkpoint.number, checkpoint.serial
        last, last_hash = self._last_checkpoints.get(owner, (0, ""))
        self._last_checkpoints[owner] = number, hash
        if number <= last:
            self._add("checkpoint", f"checkpoint {number} comes after checkpoint {last}", owner, checkpoint=number)
        elif number > last + 1:
            message = f"{_are('checkpoint', 'checkpoints', last + 1, number - 1)} not there"
            self._add("checkpoint", message, owner, checkpoint=last + 1)
        elif checkpoint.previous != last_hash:
            message = f"checkpoint {number} does not follow checkpoint {last} as it is stored"
            self._add("checkpoint", message, owner, checkpoint=number)
        if self._begin.owner is not None:
            return
        last, last_hash = self._last_checkpoints.get(None, (0, ""))
        self._last_checkpoints[None] = serial, hash
        if serial != last + 1:
            self._add("checkpoint", f"of the gateway's checkpoints, {last + 1} to {serial - 1} are not there")
        elif checkpoint.before != last_hash:
            self._add("checkpoint", f"the gateway's checkpoint {serial} does not follow {last} as it is stored")

    def _find_vanished(self) -> None:
        """Find the chains of checkpoints, and the known checkpoints, that are not in the record."""
        for (owner, scope), checkpoints in self._checkpoints.items():
            if (owner, scope) not in self._seen_chains:
                last = checkpoints[-1]
                message = f"it is missing, and had {last.heads[scope][0]} entries by checkpoint {last.number}"
                self._add("vanished", message, owner, scope, checkpoint=last.number)
        only_owner, only_scope = self._begin.owner, self._begin.scope
        for line in self._known:
            known = line.checkpoint
            if known is None or only_owner not in (None, known.owner) or only_scope not in (None, *known.heads):
                continue
            if chain.checkpoint_hash(known.body(), line.signature) not in self._checkpoint_hashes:
                message = f"checkpoint {known.number}, which was known before, is missing or was changed"
                self._add("known", message, known.owner, checkpoint=known.number)

    def _begin_chain(self, line: ScopeLine) -> None:
        key = line.owner, line.scope
        if key in self._seen_chains:
            self._add("head", "this scope is there twice", *key)
        self._seen_chains.add(key)
        self._chain = _Chain(line, self._checkpoints.get(key, []), self._recording, self._add)

    def _end_chain(self) -> ScopeReport | None:
        if self._chain is None:
            return None
        report, self._chain = self._chain.end(), None
        self._totals.update(scopes=1, entries=report.entries, contents=report.contents, gone=report.gone)
        return report


_NO_CONTENT, _PRESENT, _SALT_ONLY, _MISSING, _ENDED = range(5)
"""States of an entry's content: none; present; only its salt is present; missing; removed by a later entry."""


class _Chain:
    """Verifies one chain. `checkpoints`: those that contain it, oldest first."""

    def __init__(
        self, line: ScopeLine, checkpoints: list[Checkpoint], recording: Recording, add: Callable[..., None]
    ) -> None:
        self._line, self._recording = line, recording
        self._checkpoints = {checkpoint.heads[line.scope][0]: checkpoint for checkpoint in checkpoints}
        self._signed = max(self._checkpoints, default=0)  # number of the last signed entry
        self._add = partial(add, owner=line.owner, scope=line.scope)
        self._entries = self._number = 0
        self._matched = 0  # number of the last entry that matches a signed head
        self._is_rewritten = False
        self._since: int | None = None
        self._states = bytearray(1)  # the numbers of entries begin with 1
        # Hashes that the next entry may follow; more than one after an entry with a wrong hash.
        self._hashes = [chain.genesis_hash(line.owner, line.scope)]

    def feed(self, line: EntryLine) -> None:
        """Verify the next entry."""
        self._entries += 1
        number = line.number
        name = f"entry {number} ({line.kind} {line.subject})" if line.subject else f"entry {number} ({line.kind})"
        if not 0 < number - self._number <= _MAX_GAP:
            self._add("entry", f"entry {number} comes after entry {self._number}", entry=number)
            return
        if number > self._number + 1:
            first = self._number + 1
            self._add("missing", f"{_are('entry', 'entries', first, number - 1)} not there", entry=first)
            self._states.extend(bytes(number - first))
            self._hashes = []
        if number == 1:
            self._since = line.at
        self._number = number
        stored = chain.decode_hex(line.hash)
        expected = [chain.entry_hash(previous, line) for previous in self._hashes]
        self._hashes = [stored]
        if expected and stored not in expected:
            self._add("entry", f"{name} was changed, or does not follow the one before it", entry=number)
            self._hashes += expected
        self._check_signed_head(number)
        self._states.append(self._check_content(line, name))
        self._check_ends(line, name)

    def _check_signed_head(self, number: int) -> None:
        """Check that an entry is the one that was signed with its number, if one was."""
        checkpoint = self._checkpoints.get(number)
        if checkpoint is None:
            return
        if chain.decode_hex(checkpoint.heads[self._line.scope][1]) in self._hashes:
            self._matched = number
        elif not self._is_rewritten:
            self._is_rewritten = True
            first = self._matched + 1
            are_not = f"{_are('entry', 'entries', first, number)} not what checkpoint {checkpoint.number} signed"
            self._add("rewritten", f"{are_not}: the chain was rewritten", entry=first, checkpoint=checkpoint.number)

    def _check_content(self, line: EntryLine, name: str) -> int:
        """Check the content of an entry; return its state."""
        content = line.content_bytes
        if line.digest is None:
            return _NO_CONTENT
        if line.salt is None or content is None:
            return _MISSING if line.salt is None else _SALT_ONLY
        actual = chain.content_digest(chain.decode_hex(line.salt), [content]).hex()
        if actual != line.digest:
            self._add("content", f"the content of {name} is not what was recorded", entry=line.number)
        return _PRESENT

    def _check_ends(self, line: EntryLine, name: str) -> None:
        """Check the entries whose content an entry removes."""
        try:
            ended = msgspec.convert(line.more.get("ends", []), list[tuple[int, int]])
        except msgspec.ValidationError:
            ended = [(0, 0)]
        if not all(0 < first <= last < line.number for first, last in ended):
            message = f"{name} removes the content of entries that are not before it"
            self._add("entry", message, entry=line.number)
            return
        for number in (number for first, last in ended for number in range(first, last + 1)):
            if self._states[number] in (_PRESENT, _SALT_ONLY):
                message = f"the content of entry {number} was removed by entry {line.number}"
                self._add("kept", f"{message}, but its salt is still there", entry=number)
            self._states[number] = _ENDED

    def end(self) -> ScopeReport:
        """Finish the chain after its last entry."""
        for missing_part, part in ((_MISSING, "salt"), (_SALT_ONLY, "content")):
            for number in (number for number, state in enumerate(self._states) if state == missing_part):
                self._add("gone", f"the {part} of entry {number} is missing, and no entry says why", entry=number)
        self._check_head()
        last = self._checkpoints.get(self._signed)
        return ScopeReport(
            owner=self._line.owner,
            scope=self._line.scope,
            entries=self._entries,
            contents=self._states.count(_PRESENT),
            gone=self._states.count(_ENDED),
            signed=self._matched,
            checkpoint=last.number if last else None,
            signed_at=last.at if last else None,
        )

    def _check_head(self) -> None:
        """Check the stored head."""
        line, number = self._line, self._number
        if (signed := next((signed for signed in self._checkpoints if signed > number), None)) is not None:
            checkpoint = self._checkpoints[signed].number
            message = f"entry {signed}, which checkpoint {checkpoint} signed, is missing"
            self._add("missing", message, entry=number + 1, checkpoint=checkpoint)
        ends = f"it ends with entry {number}, but its stored head is entry {line.number}"
        if line.number > number:
            self._add("missing", ends, entry=number + 1)
        elif line.number < number:
            self._add("head", ends)
        elif chain.decode_hex(line.hash) not in self._hashes:
            self._add("head", "its stored head has another hash than its last entry", entry=number)
        if self._since not in (None, line.since):
            self._add("head", "its stored time of beginning is not that of its first entry")
        if line.signed > self._signed:
            self._add("checkpoint", f"the checkpoint that signed it up to entry {line.signed} is not there")
        elif line.signed < self._signed:
            self._add("head", f"it is marked as signed up to entry {line.signed}, but is signed up to {self._signed}")
        hash, seal = chain.decode_hex(line.hash), None if line.seal is None else chain.decode_hex(line.seal)
        if not self._recording.is_sealed(ChainHead(line.owner, line.scope, line.number, hash, line.signed, seal)):
            how = "was written without the key: entries may have been removed or added"
            self._add("seal", f"its end (entry {line.number}) {how}", entry=line.number)


def _are(one: str, more: str, first: int, last: int) -> str:
    return f"{one} {first} is" if first == last else f"{more} {first} to {last} are"
