"""The tamper-evident record: proof of what was stored, in which order, and that it has not been changed.

Each scope (a response, a conversation, a space) has one chain. Stored content adds an entry: a salted digest of the
content, and a hash over it and the previous entry. A checkpoint is a signature over the heads of chains. So:

* Changed content does not match its digest. A changed, missing, inserted or moved entry does not match the hashes. An
  attacker who computes all hashes again has no key to sign them. The removal of the end of a chain, or of a whole
  scope, is detected by the checkpoint that contains it.
* The salt of erased content is deleted. The chain remains valid, and no guess can be compared with the remaining
  digest. The erasure is an entry of its own.

This package does no I/O, except for the key file (`keys`). Time and randomness are arguments.

* `chain` defines the hashes, `keys` the keys, checkpoints and seals, `lines` the record as lines of JSON, and `verify`
  checks these lines.
"""

from __future__ import annotations

from .chain import SALT_BYTES, ChainHead, Entry, canonical_json, content_digest, entry_hash, frame_content, genesis_hash
from .keys import (
    Checkpoint,
    Recording,
    RecordKeys,
    Signer,
    TrustedKeys,
    ensure_record_keys,
    find_record_keys,
    read_public_keys,
    read_record_keys,
    sign_checkpoint,
)
from .lines import Begin, CheckpointLine, End, EntryLine, KeyLine, Line, ScopeLine, UnrecordedLine
from .verify import Finding, Report, ScopeReport, Verifier

__all__ = [
    "SALT_BYTES",
    "Begin",
    "ChainHead",
    "Checkpoint",
    "CheckpointLine",
    "End",
    "Entry",
    "EntryLine",
    "Finding",
    "KeyLine",
    "Line",
    "RecordKeys",
    "Recording",
    "Report",
    "ScopeLine",
    "ScopeReport",
    "Signer",
    "TrustedKeys",
    "UnrecordedLine",
    "Verifier",
    "canonical_json",
    "content_digest",
    "ensure_record_keys",
    "entry_hash",
    "find_record_keys",
    "frame_content",
    "genesis_hash",
    "read_public_keys",
    "read_record_keys",
    "sign_checkpoint",
]
