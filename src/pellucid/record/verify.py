"""Is the record whole, and is what is stored what was recorded?

    verifier = Verifier(trusted)
    for line in lines: told += verifier.feed(line)       # a ScopeReport for each scope that is through
    report = verifier.end()                              # with every Finding

It is fed the lines of a record in their order (`lines`), from a store or from a file, and holds of them only what is
still to be compared. What is wrong is named where it is wrong, and what follows it is checked nevertheless: an entry
whose hash is not right is one finding, not as many as there are entries after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain as both

from .checking import Scope
from .findings import Finding, Report, ScopeReport
from .heads import Heads
from .keys import Recording, Signed, Trusted, read_signers
from .lines import (
    FORMAT,
    Begin,
    CheckpointLine,
    End,
    EntryLine,
    KeyLine,
    Line,
    ScopeLine,
    UnrecordedLine,
)

MOST = 1_000
"""So many findings are told, at most."""


class Verifier:
    """`trusted`: the public keys that count; none: those that the record names itself. `recording`: by whose seals the
    ends of chains are known that no checkpoint covers yet. `known`: checkpoints that must be in it."""

    def __init__(
        self, trusted: Trusted | None = None, recording: Recording | None = None, known: Iterable[Signed] = ()
    ) -> None:
        self._given = bool(trusted)
        self._trusted = trusted if trusted is not None else Trusted()
        self._recording = recording
        self._known = tuple(known)
        self._begin: Begin | None = None
        self._heads: Heads | None = None
        self._scope: Scope | None = None
        self._findings: list[Finding] = []
        self._lines = 0
        self._scopes = self._entries = self._contents = self._gone = self._before = 0
        self._ended = False

    def feed(self, line: Line) -> list[ScopeReport]:
        """The next line. What is through by it."""
        through: list[ScopeReport] = []
        if isinstance(line, EntryLine):
            self._lines += 1
            if self._scope is None:
                self._found(Finding(what="entry", message="there is an entry before any scope", entry=line.number))
            else:
                for finding in self._scope.feed(line):
                    self._found(finding)
            return through
        if self._scope is not None:
            through.append(self._through(self._scope))
        match line:
            case Begin():
                self._begun(line)
            case KeyLine():
                self._key(line)
            case CheckpointLine():
                for finding in self._checked.feed(line):
                    self._found(finding)
            case ScopeLine():
                self._scope = Scope(line, self._checked.of(line.owner, line.scope), self._recording)
                if self._checked.seen(line.owner, line.scope):
                    self._found(self._scope.finding("head", "this scope comes twice"))
            case UnrecordedLine():
                self._unrecorded(line)
            case End():
                self._ended = True
                if line.lines != self._lines:
                    told = f"there are {self._lines} lines, and {line.lines} were written"
                    self._found(Finding(what="cut", message=told))
        self._lines += 1
        return through

    def end(self) -> Report:
        """There are no more. (A record that does not close with its own `end` was cut off.)"""
        if self._scope is not None:
            self._through(self._scope)
        if not self._ended:
            self._found(Finding(what="cut", message="the record was cut off: its last line is missing"))
        else:
            for finding in both(self._checked.vanished(), self._checked.unknown(self._known)):
                self._found(finding)
        return Report(
            scopes=self._scopes,
            entries=self._entries,
            contents=self._contents,
            gone=self._gone,
            checkpoints=self._checked.count,
            before=self._before,
            keys="given" if self._given else "own" if self._trusted else "none",
            findings=tuple(self._findings),
        )

    @property
    def _checked(self) -> Heads:
        if self._heads is None:
            begin = self._begin or Begin(format=FORMAT, at=0)
            self._heads = Heads(self._trusted, begin.owner, begin.scope)
        return self._heads

    def _begun(self, line: Begin) -> None:
        if line.format != FORMAT:
            self._found(Finding(what="cut", message=f"this is {line.format!r}, and {FORMAT!r} is what is known here"))
        if self._begin is not None or self._heads is not None:
            self._found(Finding(what="cut", message="this is more than one record, or not from its beginning"))
        self._begin = line

    def _key(self, line: KeyLine) -> None:
        if self._given:
            return
        for key in read_signers(line.pem.encode(), "the record's key")[1]:
            self._trusted.add(key)

    def _through(self, scope: Scope) -> ScopeReport:
        self._scope = None
        for finding in scope.end():
            self._found(finding)
        report = scope.report
        self._scopes += 1
        self._entries += report.entries
        self._contents += report.contents
        self._gone += report.gone
        return report

    def _unrecorded(self, line: UnrecordedLine) -> None:
        if line.before:
            self._before += 1
            return
        told = (
            f"{line.kind} {line.subject} is stored, and no entry says so: it was put there otherwise, or while "
            "nothing was recorded"
        )
        self._found(Finding(what="unrecorded", message=told, owner=line.owner, scope=line.scope))

    def _found(self, finding: Finding) -> None:
        if len(self._findings) < MOST:
            self._findings.append(finding)
