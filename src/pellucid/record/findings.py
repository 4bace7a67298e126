"""What comes of checking a record."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

What: TypeAlias = Literal[
    "cut",  # the lines end before their end
    "checkpoint",  # a checkpoint is missing, was changed, or does not follow the one before
    "signature",  # a checkpoint was not signed with its key
    "key",  # a checkpoint was signed with a key that is not known
    "known",  # a checkpoint that was known before is not there
    "vanished",  # a scope is not there
    "entry",  # an entry was changed, or does not follow the one before
    "missing",  # an entry is not there
    "head",  # the chain does not end where it is kept that it does
    "seal",  # … and whoever changed that had no key
    "rewritten",  # the chain is whole, and not the one that was signed
    "content",  # a content was changed
    "gone",  # a content is gone, and nothing says why
    "kept",  # a content is said to be gone, and can still be told by its salt
    "unrecorded",  # something is stored of which the record knows nothing
]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is wrong."""

    what: What
    message: str
    owner: str | None = None
    scope: str | None = None
    entry: int | None = None
    """The number of the entry. Of several, the first."""
    checkpoint: int | None = None
    """The number of the owner's checkpoint."""

    def __str__(self) -> str:
        where = [part for part in (self.owner, self.scope) if part is not None]
        return f"{' '.join(where)}: {self.message}" if where else self.message


class ScopeReport(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a scope."""

    owner: str
    scope: str
    entries: int
    contents: int
    """So many contents are there, as they were recorded."""
    gone: int
    """So many were deleted, erased, or have expired."""
    signed: int
    """Its entries up to this one are in a checkpoint; 0: none is."""
    checkpoint: int | None
    """The number of the owner's last checkpoint that names it."""
    signed_at: int | None
    """When that was made, in milliseconds."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in all."""

    scopes: int
    entries: int
    contents: int
    gone: int
    checkpoints: int
    before: int
    """So many things are stored that are older than the record."""
    keys: Literal["given", "own", "none"]
    """By which keys the checkpoints were checked: by ones that were given, or by the record's own word."""
    findings: tuple[Finding, ...]

    @property
    def right(self) -> bool:
        return not self.findings
