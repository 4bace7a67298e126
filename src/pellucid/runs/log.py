"""What a run said, in a form that can be kept: entries, one for each batch, with the time at which it came.

Encoders are pure, so a log read again gives the very bytes that were sent, on any replica and in any dialect. No two
entries are ever merged: a reader's cursor may point between any two events.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import msgspec

from ..events import Event, SideEvent
from ..telemetry import log, place_of
from ..text import writable

WAITED = SideEvent("queue", "waited")
"""Alone in the first entry of a log: the model had yet to become free when the run began."""


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch."""

    now: int
    """When it came, in milliseconds since 1970."""
    events: list[Event]


_encode = msgspec.json.Encoder().encode
_entry = msgspec.json.Decoder(Entry)
_entries = msgspec.json.Decoder(list[Entry])


def encode_entry(entry: Entry) -> bytes:
    """One entry as a relay carries it. What JSON cannot hold is replaced where it stands."""
    try:
        return _encode(entry)
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
        return _encode(Entry(entry.now, [writable(event) for event in entry.events]))


def decode_entry(data: bytes) -> Entry:
    return _entry.decode(data)


def readable(data: Iterable[bytes]) -> list[Entry]:
    """The entries, as far as they can be read: a replica of a later version may say what this one does not know."""
    entries: list[Entry] = []
    for one in data:
        try:
            entries.append(decode_entry(one))
        except msgspec.DecodeError as error:
            log.error("a run's log cannot be read further: %s", place_of(error))
            break
    return entries


def pack(entries: Iterable[bytes]) -> bytes:
    """A whole log as a store carries it."""
    # Level 1: whoever waits for the end of a stream waits for this, and the rest of the gain is small.
    return zlib.compress(b"[" + b",".join(entries) + b"]", 1)


def unpack(data: bytes) -> list[Entry]:
    return _entries.decode(zlib.decompress(data))


def events_of(entries: Sequence[Entry]) -> list[Event]:
    return [event for entry in entries for event in entry.events]


__all__ = ["WAITED", "Entry", "decode_entry", "encode_entry", "events_of", "pack", "readable", "unpack"]
