"""Verification of the record: whether it is complete and unchanged, and the stored contents match it.

    verifier = Verifier(trusted)
    for line in lines: reports += verifier.feed(line)    # a ScopeReport for each complete scope
    report = verifier.end()                              # with all findings

The verifier is fed the lines of a record in order (`lines`), from a store or from a file. It keeps only the data that
later lines need. After a finding, verification continues: an entry with a wrong hash is one finding, and the entries
after it are compared with the stored hash.

First, the checkpoints are verified: their order, and the heads that they contain (`_CheckpointChains`). Then each chain
is compared with these heads, entry by entry (`_Scope`).
"""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from .chain import ChainHead, content_digest, decode_hex, ended_ranges, entry_hash, genesis_hash
from .keys import Recording, SignedCheckpoint, TrustedKeys, parse_pem_keys
from .lines import FORMAT, Begin, CheckpointLine, End, EntryLine, KeyLine, Line, ScopeLine, UnrecordedLine

MAX_FINDINGS = 1_000
"""Maximum number of findings in a report."""

FindingKind: TypeAlias = Literal[
    "cut",  # lines are missing at the end
    "checkpoint",  # a checkpoint is missing, was changed, or does not follow the previous one
    "signature",  # the signature of a checkpoint is not valid
    "key",  # a checkpoint was signed with an unknown key
    "known",  # a checkpoint that was known before is missing
    "vanished",  # a scope in a checkpoint is missing
    "entry",  # an entry was changed, or does not follow the previous one
    "missing",  # an entry is missing
    "head",  # the stored head of a chain does not match its last entry
    "seal",  # the stored head of a chain was written without the key
    "rewritten",  # the chain is consistent, but is not the signed one
    "content",  # a content was changed
    "gone",  # a content is missing, and no entry removes it
    "kept",  # an entry removes a content, but its salt is still there
    "unrecorded",  # a stored content has no entry
]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A difference between the record and what it must be."""

    what: FindingKind
    message: str
    owner: str | None = None
    scope: str | None = None
    entry: int | None = None
    """Number of the entry; of several entries, the first."""
    checkpoint: int | None = None
    """Number of the owner's checkpoint."""

    def __str__(self) -> str:
        where = [part for part in (self.owner, self.scope) if part is not None]
        return f"{' '.join(where)}: {self.message}" if where else self.message


class ScopeReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one scope."""

    owner: str
    scope: str
    entries: int
    contents: int
    """Number of contents that are present."""
    gone: int
    """Number of contents that were deleted or erased, or have expired."""
    signed: int
    """Number of the last entry in a checkpoint; 0: there is none."""
    checkpoint: int | None
    """Number of the owner's last checkpoint that contains the scope."""
    signed_at: int | None
    """Time of that checkpoint, in milliseconds since 1970."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Result for the whole record."""

    scopes: int
    entries: int
    contents: int
    gone: int
    checkpoints: int
    before: int
    """Number of stored contents that are older than the record."""
    keys: Literal["given", "own", "none"]
    """The keys that verified the checkpoints: those passed to the verifier, or those in the record itself."""
    findings: tuple[Finding, ...]

    @property
    def is_ok(self) -> bool:
        """Whether there are no findings."""
        return not self.findings


class Verifier:
    """Verifies the lines of a record.

    Args:
        trusted: The public keys that are trusted; if empty, the keys in the record itself.
        recording: Has the keys that check the seals of chains; None: seals are not checked.
        known: Checkpoints that the record must contain.
    """

    def __init__(
        self,
        trusted: TrustedKeys | None = None,
        recording: Recording | None = None,
        known: Iterable[SignedCheckpoint] = (),
    ) -> None:
        self._has_trusted_keys = bool(trusted)
        self._trusted = trusted if trusted is not None else TrustedKeys()
        self._recording = recording
        self._known = tuple(known)
        self._begin: Begin | None = None
        self._checkpoint_chain: _CheckpointChains | None = None
        self._scope: _Scope | None = None
        self._findings: list[Finding] = []
        self._lines = 0
        self._totals = Counter[str]()
        self._older_count = 0
        self._has_end = False

    def feed(self, line: Line) -> list[ScopeReport]:
        """Verify the next line; return the reports of scopes that end before it."""
        reports: list[ScopeReport] = []
        if isinstance(line, EntryLine):
            if self._scope is None:
                self._add_findings([Finding("entry", "there is an entry before any scope", entry=line.number)])
            else:
                self._add_findings(self._scope.feed(line))
        else:
            if self._scope is not None:
                reports.append(self._end_scope(self._scope))
            self._add_findings(self._check_line(line))
        self._lines += 1
        return reports

    def end(self) -> Report:
        """Finish the verification after the last line. A record without an `end` line is incomplete."""
        if self._scope is not None:
            self._end_scope(self._scope)
        if not self._has_end:
            self._add_findings([Finding("cut", "the record was cut off: its last line is missing")])
        else:
            self._add_findings(self._checkpoints.find_vanished())
            self._add_findings(self._checkpoints.find_missing(self._known))
        return Report(
            **{name: self._totals[name] for name in ("scopes", "entries", "contents", "gone")},
            checkpoints=self._checkpoints.count,
            before=self._older_count,
            keys="given" if self._has_trusted_keys else "own" if self._trusted else "none",
            findings=tuple(self._findings),
        )

    @property
    def _checkpoints(self) -> _CheckpointChains:
        if self._checkpoint_chain is None:
            begin = self._begin or Begin(format=FORMAT, at=0)
            self._checkpoint_chain = _CheckpointChains(self._trusted, begin.owner, begin.scope)
        return self._checkpoint_chain

    def _check_line(self, line: Line) -> Iterator[Finding]:
        match line:
            case Begin():
                if line.format != FORMAT:
                    yield Finding("cut", f"the format is {line.format!r}, and only {FORMAT!r} is supported")
                if self._begin is not None or self._checkpoint_chain is not None:
                    yield Finding("cut", "this is more than one record, or its beginning is missing")
                self._begin = line
            case KeyLine():
                if not self._has_trusted_keys:
                    self._trusted.update(TrustedKeys(parse_pem_keys(line.pem.encode(), "the record's key")[1]))
            case CheckpointLine():
                yield from self._checkpoints.feed(line)
            case ScopeLine():
                self._scope = _Scope(line, self._checkpoints.heads_of(line.owner, line.scope), self._recording)
                if self._checkpoints.mark_seen(line.owner, line.scope):
                    yield self._scope.finding("head", "this scope is there twice")
            case UnrecordedLine(before=True):
                self._older_count += 1
            case UnrecordedLine():
                message = (
                    f"{line.kind} {line.subject} is stored without an entry: it was inserted by other means, or while "
                    "recording was disabled"
                )
                yield Finding("unrecorded", message, line.owner, line.scope)
            case End():
                self._has_end = True
                if line.lines != self._lines:
                    yield Finding("cut", f"there are {self._lines} lines, and {line.lines} were written")

    def _end_scope(self, scope: _Scope) -> ScopeReport:
        self._scope = None
        self._add_findings(scope.end())
        report = scope.report
        self._totals.update(scopes=1, entries=report.entries, contents=report.contents, gone=report.gone)
        return report

    def _add_findings(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if len(self._findings) < MAX_FINDINGS:
                self._findings.append(finding)


# --------------------------------------------------------------------------------------------------- checkpoints


class _SignedHead(NamedTuple):
    """The head of a chain in a checkpoint with a valid signature."""

    number: int
    hash: bytes
    checkpoint: int
    time_ms: int


class _LastCheckpoint(NamedTuple):
    number: int
    hash: str


_NO_CHECKPOINT = _LastCheckpoint(0, "")


class _CheckpointChains:
    """The checkpoints of all owners (`owner` is None), of one owner, or those that contain one scope.

    In the last case, checkpoints may be missing, so their order is not checked.
    """

    def __init__(self, trusted: TrustedKeys, owner: str | None, scope: str | None) -> None:
        self.count = 0
        self._trusted = trusted
        self._owner = owner
        self._scope = scope
        self._last_of_gateway = _NO_CHECKPOINT
        self._last_of_owner: dict[str, _LastCheckpoint] = {}
        self._hashes: set[str] = set()
        self._heads: dict[tuple[str, str], list[_SignedHead]] = {}
        self._seen: set[tuple[str, str]] = set()

    def feed(self, line: CheckpointLine) -> Iterator[Finding]:
        self.count += 1
        checkpoint = line.checkpoint
        if checkpoint is None:
            yield _checkpoint_finding(line, f"what is stored as checkpoint {line.number} is not a checkpoint")
            return
        if (checkpoint.owner, checkpoint.number, checkpoint.serial) != (line.owner, line.number, line.serial):
            yield _checkpoint_finding(line, f"what is stored as checkpoint {line.number} of this owner is another one")
            return
        signed = SignedCheckpoint(checkpoint, line.signature)
        if self._scope is None:
            yield from self._check_order(line, signed)
        self._hashes.add(signed.hash)
        if checkpoint.key not in self._trusted:
            message = f"checkpoint {line.number} was signed with the key {checkpoint.key}, which is not known here"
            yield _checkpoint_finding(line, message, "key")
        elif not signed.is_valid(self._trusted):
            message = f"checkpoint {line.number} was changed, or signed without its key"
            yield _checkpoint_finding(line, message, "signature")
        else:
            for scope, (number, hash) in checkpoint.heads.items():
                if self._scope is None or scope == self._scope:
                    yield from self._add_head(
                        line, scope, _SignedHead(number, decode_hex(hash), line.number, checkpoint.at)
                    )

    def _check_order(self, line: CheckpointLine, signed: SignedCheckpoint) -> Iterator[Finding]:
        """Check that a checkpoint follows the owner's previous one; and the gateway's, if all owners are exported."""
        checkpoint = signed.checkpoint
        last = self._last_of_owner.get(line.owner, _NO_CHECKPOINT)
        if checkpoint.number != last.number + 1:
            yield _missing(line, last.number + 1, checkpoint.number - 1)
        elif checkpoint.previous != last.hash:
            yield _checkpoint_finding(
                line, f"checkpoint {line.number} does not follow checkpoint {last.number} as it is stored"
            )
        self._last_of_owner[line.owner] = _LastCheckpoint(checkpoint.number, signed.hash)
        if self._owner is not None:
            return
        number, hash = self._last_of_gateway
        if checkpoint.serial != number + 1:
            message = f"of the gateway's checkpoints, {number + 1} to {checkpoint.serial - 1} are not there"
            yield Finding("checkpoint", message)
        elif checkpoint.before != hash:
            message = f"the gateway's checkpoint {checkpoint.serial} does not follow {number} as it is stored"
            yield Finding("checkpoint", message)
        self._last_of_gateway = _LastCheckpoint(checkpoint.serial, signed.hash)

    def _add_head(self, line: CheckpointLine, scope: str, head: _SignedHead) -> Iterator[Finding]:
        heads = self._heads.setdefault((line.owner, scope), [])
        if heads and heads[-1].number >= head.number:
            yield _checkpoint_finding(
                line, f"checkpoint {line.number} says that {scope} went back to entry {head.number}"
            )
        else:
            heads.append(head)

    def heads_of(self, owner: str, scope: str) -> list[_SignedHead]:
        """Return the signed heads of a chain, oldest first."""
        return self._heads.get((owner, scope), [])

    def mark_seen(self, owner: str, scope: str) -> bool:
        """Note that a chain is present; return whether it was noted before."""
        was_seen = (owner, scope) in self._seen
        self._seen.add((owner, scope))
        return was_seen

    def find_vanished(self) -> Iterator[Finding]:
        """Yield a finding for each chain that is in a checkpoint, but not in the record."""
        for (owner, scope), heads in self._heads.items():
            if (owner, scope) not in self._seen:
                last = heads[-1]
                message = f"it is missing, and had {last.number} entries by checkpoint {last.checkpoint}"
                yield Finding("vanished", message, owner, scope, checkpoint=last.checkpoint)

    def find_missing(self, known: Iterable[SignedCheckpoint]) -> Iterator[Finding]:
        """Yield a finding for each known checkpoint that should be in this export, but is missing."""
        for signed in known:
            checkpoint = signed.checkpoint
            is_in_export = self._owner in (None, checkpoint.owner) and (
                self._scope is None or self._scope in checkpoint.heads
            )
            if is_in_export and signed.hash not in self._hashes:
                message = f"checkpoint {checkpoint.number}, which was known before, is missing or was changed"
                yield Finding("known", message, checkpoint.owner, checkpoint=checkpoint.number)


def _checkpoint_finding(line: CheckpointLine, message: str, what: FindingKind = "checkpoint") -> Finding:
    return Finding(what, message, line.owner, checkpoint=line.number)


def _missing(line: CheckpointLine, first: int, last: int) -> Finding:
    if last < first:
        return _checkpoint_finding(line, f"checkpoint {line.number} comes after checkpoint {first - 1}")
    named = f"checkpoint {first} is" if first == last else f"checkpoints {first} to {last} are"
    return Finding("checkpoint", f"{named} not there", line.owner, checkpoint=first)


# ------------------------------------------------------------------------------------------------------ one chain

_NO_CONTENT, _PRESENT, _SALT_ONLY, _MISSING, _ENDED = range(5)
"""States of an entry's content: none; present; only its salt is present; missing; removed by a later entry."""

_MAX_GAP = 1_000_000
"""A gap of more entries than this is not a gap: the number of the entry is wrong."""


class _Scope:
    """Verifies one chain. `signed`: its heads in checkpoints, oldest first."""

    def __init__(self, line: ScopeLine, signed: list[_SignedHead], recording: Recording | None) -> None:
        self._line = line
        self._signed = signed
        self._next_signed = 0
        self._matched = 0
        """Number of the last entry that matches a signed head."""
        self._rewritten = False
        self._recording = recording
        self._number = 0
        self._entries = 0
        self._states = bytearray(1)  # the numbers of entries begin with 1
        self._hashes: list[bytes] = [genesis_hash(line.owner, line.scope)]
        """Hashes that the next entry may follow; more than one after an entry with a wrong hash."""
        self._since: int | None = None

    def finding(
        self, what: FindingKind, message: str, entry: int | None = None, checkpoint: int | None = None
    ) -> Finding:
        return Finding(what, message, self._line.owner, self._line.scope, entry, checkpoint)

    def feed(self, line: EntryLine) -> Iterator[Finding]:
        self._entries += 1
        number = line.number
        if number <= self._number or number - self._number > _MAX_GAP:
            yield self.finding("entry", f"entry {number} comes after entry {self._number}", number)
            return
        if number > self._number + 1:
            first, last = self._number + 1, number - 1
            yield self.finding("missing", f"{_entries_are(first, last)} not there", first)
            self._states.extend(bytes(number - 1 - self._number))
            self._hashes = []
        if number == 1:
            self._since = line.at
        self._number = number
        yield from self._check_hash(line)
        yield from self._check_signed_head(number)
        yield from self._check_content(line)
        yield from self._check_ends(line)

    def _check_hash(self, line: EntryLine) -> Iterator[Finding]:
        entry, number = line.entry, line.number
        stored = decode_hex(line.hash)
        expected = [entry_hash(previous, entry) for previous in self._hashes]
        if self._hashes and stored not in expected:
            message = f"entry {number} ({_describe(line)}) was changed, or does not follow the one before it"
            yield self.finding("entry", message, number)
            self._hashes = [stored, *expected]
        else:
            self._hashes = [stored]

    def _check_signed_head(self, number: int) -> Iterator[Finding]:
        """Check that an entry matches the signed head with its number, if there is one."""
        while self._next_signed < len(self._signed) and self._signed[self._next_signed].number <= number:
            signed = self._signed[self._next_signed]
            self._next_signed += 1
            if signed.number != number:
                continue  # that entry is missing, which is another finding
            if signed.hash in self._hashes:
                self._matched = number
            elif not self._rewritten:
                self._rewritten = True
                first = self._matched + 1
                message = (
                    f"{_entries_are(first, number)} not what checkpoint {signed.checkpoint} signed: "
                    "the chain was rewritten"
                )
                yield self.finding("rewritten", message, first, signed.checkpoint)

    def _check_content(self, line: EntryLine) -> Iterator[Finding]:
        state, content = _NO_CONTENT, line.content_bytes
        if line.digest is not None:
            if line.salt is None:
                state = _MISSING
            elif content is None:
                state = _SALT_ONLY
            else:
                state = _PRESENT
                actual = content_digest(decode_hex(line.salt), [content]).hex()
                if not hmac.compare_digest(actual.encode(), line.digest.encode("utf-8", "replace")):
                    message = f"the content of entry {line.number} ({_describe(line)}) is not what was recorded"
                    yield self.finding("content", message, line.number)
        self._states.append(state)

    def _check_ends(self, line: EntryLine) -> Iterator[Finding]:
        pairs = ended_ranges(line.more)
        if pairs is None or any(last >= line.number for _, last in pairs):
            message = f"entry {line.number} ({_describe(line)}) removes the content of entries that are not before it"
            yield self.finding("entry", message, line.number)
            return
        for first, last in pairs:
            for number in range(first, last + 1):
                if self._states[number] in (_PRESENT, _SALT_ONLY):
                    message = (
                        f"the content of entry {number} was removed by entry {line.number}, but its salt is still there"
                    )
                    yield self.finding("kept", message, number)
                self._states[number] = _ENDED

    def end(self) -> Iterator[Finding]:
        """Finish the chain after its last entry."""
        for state, template in (
            (_MISSING, "the salt of entry {} is missing, and no entry says why"),
            (_SALT_ONLY, "the content of entry {} is missing, and no entry says why"),
        ):
            number = self._states.find(state)
            while number >= 0:
                yield self.finding("gone", template.format(number), number)
                number = self._states.find(state, number + 1)
        yield from self._check_chain_end()

    def _check_chain_end(self) -> Iterator[Finding]:
        line = self._line
        if self._next_signed < len(self._signed):
            signed = self._signed[self._next_signed]
            message = f"entry {signed.number}, which checkpoint {signed.checkpoint} signed, is missing"
            yield self.finding("missing", message, self._number + 1, signed.checkpoint)
        if line.number != self._number:
            message = f"it ends with entry {self._number}, but its stored head is entry {line.number}"
            if line.number > self._number:
                yield self.finding("missing", message, self._number + 1)
            else:
                yield self.finding("head", message)
        elif decode_hex(line.hash) not in self._hashes:
            yield self.finding("head", "its stored head has another hash than its last entry", self._number)
        if self._since is not None and line.since != self._since:
            yield self.finding("head", "its stored time of beginning is not that of its first entry")
        covered = self._signed[-1].number if self._signed else 0
        if line.signed > covered:
            yield self.finding("checkpoint", f"the checkpoint that signed it up to entry {line.signed} is not there")
        elif line.signed < covered:
            yield self.finding(
                "head", f"it is marked as signed up to entry {line.signed}, but is signed up to {covered}"
            )
        if self._recording is not None:
            seal = decode_hex(line.seal) if line.seal is not None else None
            head = ChainHead(line.number, decode_hex(line.hash))
            if not self._recording.is_sealed(line.owner, line.scope, head, line.signed, seal):
                message = (
                    f"its end (entry {line.number}) was written without the key: entries may have been removed or added"
                )
                yield self.finding("seal", message, line.number)

    @property
    def report(self) -> ScopeReport:
        last = self._signed[-1] if self._signed else None
        return ScopeReport(
            owner=self._line.owner,
            scope=self._line.scope,
            entries=self._entries,
            contents=self._states.count(_PRESENT),
            gone=self._states.count(_ENDED),
            signed=self._matched,
            checkpoint=last.checkpoint if last else None,
            signed_at=last.time_ms if last else None,
        )


def _entries_are(first: int, last: int) -> str:
    return f"entry {first} is" if first == last else f"entries {first} to {last} are"


def _describe(line: EntryLine) -> str:
    return f"{line.kind} {line.subject}" if line.subject else line.kind
