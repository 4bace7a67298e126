"""Encoding of a run's log: its batches, for a relay or the store.

Encoders of client protocols are pure functions of the events, so a log that is read again gives exactly the bytes that
were sent, on any replica and in any dialect. Batches are never merged: the cursor of a reader may point between any two
events.
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
"""The only event in the first entry of a log, if the run began with a wait for a busy model."""


_encode = msgspec.json.Encoder().encode
_batch_decoder = msgspec.json.Decoder(Batch)
_batches_decoder = msgspec.json.Decoder(list[Batch])


def encode_batch(batch: Batch) -> bytes:
    """Encode one batch for a relay. Values that JSON cannot represent are replaced."""
    return encode_for_relay(batch)[0]


def encode_for_relay(batch: Batch) -> tuple[bytes, Batch]:
    """Encode one batch for a relay; return the bytes, and the batch that they decode to."""
    try:
        return _encode(batch), batch
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        batch = Batch(batch.time_ms, [json_safe(event) for event in batch.events])
        return _encode(batch), batch


def decode_batch(data: bytes) -> Batch:
    """Decode one batch of a relay's log."""
    return _batch_decoder.decode(data)


def batch_of(entry: LogEntry) -> Batch:
    """Return the batch of a log entry. An entry is encoded, unless the relay is the memory of this process."""
    return entry if isinstance(entry, Batch) else decode_batch(entry)


def decode_readable(entries: Iterable[LogEntry]) -> list[Batch]:
    """Decode entries up to the first that cannot be decoded, which a replica of a later version may have written."""
    batches: list[Batch] = []
    for entry in entries:
        try:
            batches.append(batch_of(entry))
        except msgspec.DecodeError as error:
            log.error("a run's log cannot be read further: %s", error_location(error))
            break
    return batches


def pack_log(batches: Sequence[Batch]) -> bytes:
    """Encode and compress a whole log for the store."""
    try:
        data = _encode(batches)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        data = b"[" + b",".join(map(encode_batch, batches)) + b"]"
    # Level 1: the end of a stream waits for this, and higher levels gain little. Window of 16 KiB: with the default
    # size, zlib's memory is mapped and unmapped each time, which takes longer than the compression.
    compressor = zlib.compressobj(1, zlib.DEFLATED, 14, 7)
    return compressor.compress(data) + compressor.flush()


def unpack_log(data: bytes) -> list[Batch]:
    """Decompress and decode a log from the store."""
    return _batches_decoder.decode(zlib.decompress(data))


def events_of(entries: Sequence[Batch]) -> list[Event]:
    """Return the events of batches in one list."""
    return [event for entry in entries for event in entry.events]
