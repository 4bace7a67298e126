"""The log of a run: its batches, encoded for a relay or the store.

Encoders are pure, so a log that is read again gives the very bytes that were sent, on any replica and in any dialect.
No two batches are ever merged: a reader's cursor may point between any two events.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from ..events import Event, SideEvent
from ..relay import LogEntry
from ..telemetry import error_location, log
from ..unicode import json_safe
from .source import Batch

QUEUED = SideEvent("queue", "waited")
"""Alone in the first entry of a log: the model had yet to become free when the run began."""


_encode = msgspec.json.Encoder().encode
_batch_decoder = msgspec.json.Decoder(Batch)
_batches_decoder = msgspec.json.Decoder(list[Batch])


def encode_batch(batch: Batch) -> bytes:
    """One batch as a relay carries it. What JSON cannot hold is replaced where it stands."""
    return encode_for_relay(batch)[0]


def encode_for_relay(batch: Batch) -> tuple[bytes, Batch]:
    """One batch as a relay carries it, and as it is decoded again."""
    try:
        return _encode(batch), batch
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        batch = Batch(batch.time_ms, [json_safe(event) for event in batch.events])
        return _encode(batch), batch


def decode_batch(data: bytes) -> Batch:
    return _batch_decoder.decode(data)


def batch_of(entry: LogEntry) -> Batch:
    """The batch of a relay's entry: as it is where the relay is this process's memory, encoded elsewhere."""
    return entry if isinstance(entry, Batch) else decode_batch(entry)


def decode_readable(entries: Iterable[LogEntry]) -> list[Batch]:
    """The entries, as far as they can be read: a replica of a later version may say what this one does not know."""
    batches: list[Batch] = []
    for entry in entries:
        try:
            batches.append(batch_of(entry))
        except msgspec.DecodeError as error:
            log.error("a run's log cannot be read further: %s", error_location(error))
            break
    return batches


def pack_log(batches: Sequence[Batch]) -> bytes:
    """A whole log as a store carries it."""
    try:
        data = _encode(batches)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        data = b"[" + b",".join(map(encode_batch, batches)) + b"]"
    # Level 1: whoever waits for the end of a stream waits for this, and the rest of the gain is small. A window of
    # 16 KiB: with the usual one, zlib's memory is mapped and unmapped each time, which takes longer than the rest.
    compressor = zlib.compressobj(1, zlib.DEFLATED, 14, 7)
    return compressor.compress(data) + compressor.flush()


def unpack_log(data: bytes) -> list[Batch]:
    return _batches_decoder.decode(zlib.decompress(data))


def events_of(entries: Sequence[Batch]) -> list[Event]:
    return [event for entry in entries for event in entry.events]
