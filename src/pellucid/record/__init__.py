"""The tamper-evident record: what was stored, in which order, and that nobody changed it since.

Each scope (a response, a conversation, a space) has one chain. What is stored there adds an entry: the digest of the
content with a salt, and a hash over that and over the entry before. A checkpoint is a signature over how far the chains
have come. So:

* Content that was changed does not fit its digest; an entry that was changed, left out, added or moved does not fit the
  hashes; who makes all hashes anew lacks the key to sign them; and who drops an end, or a whole scope, leaves a
  checkpoint that names it.
* What is erased goes with its salt. The chain stays whole, and the digest that is left in it can be compared with no
  guess. That it was erased is an entry of its own.

No input or output here, but for the file of the key (`keys`); no clock, and no randomness that is not handed in.

* `chain` is what is hashed, and how; `keys` who signs, and what is signed. `lines` is the record as lines of JSON, and
  `verify` reads them and says what is wrong.
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
