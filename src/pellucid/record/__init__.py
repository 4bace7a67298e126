"""The tamper-evident record: proof of what was stored, in which order, and that it has not been changed.

Each scope (a response, a conversation, a space) has one chain. Stored content adds an entry: a salted digest of the
content, and a hash over it and the previous entry. A checkpoint is a signature over the heads of chains. The salt of
erased content is deleted: the chain remains valid, and no guess can be compared with the remaining digest.

`chain` defines the lines of a record and their hashes, `keys` the keys, signatures and seals, and `verify` checks the
lines (docs/record.md). This package does no I/O, except for the key file. Time and randomness are arguments.
"""

from .chain import ChainHead, CheckpointLine, EntryLine, KeyLine, Line, ScopeLine, UnrecordedLine
from .keys import Recording, Signer, read_recording
from .verify import Report, ScopeReport, Verifier

__all__ = [
    "ChainHead",
    "CheckpointLine",
    "EntryLine",
    "KeyLine",
    "Line",
    "Recording",
    "Report",
    "ScopeLine",
    "ScopeReport",
    "Signer",
    "UnrecordedLine",
    "Verifier",
    "read_recording",
]
