"""A log that is kept and read again says what the run said, whatever that was."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pellucid.runs.keeping import KeptRun

from pellucid.events import Event, RunEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.protocols.openresponses import Encoder
from pellucid.protocols.openresponses import types as t
from pellucid.protocols.openresponses.verify import verify
from pellucid.relay import Follower
from pellucid.runs import Running
from pellucid.runs.log import Entry, decode_entry, encode_entry, events_of, pack, readable, unpack
from pellucid.runs.replay import MOST, PIECE, FinishedLog, LiveLog
from pellucid.storage import open_store
from tests.cases import Cases
from tests.examples import costly
from tests.replicas.runs_kit import ODD, MadeUp, batches, row_of


def encoded(events: list[list[Event]], after: int = -1, dialect: Any = "openresponses") -> bytes:
    encoder = Encoder(t.Response(id="resp_1", created_at=1, model="m"), dialect, after=after)
    return encoder.start() + b"".join(encoder.feed(batch, 7) for batch in events)


@given(batches())
def test_what_is_read_again_is_what_was_said(said: list[list[Event]]) -> None:
    entries = [Entry(place, batch) for place, batch in enumerate(said)]
    data = [encode_entry(entry) for entry in entries]
    again = [decode_entry(one) for one in data]
    assert unpack(pack(data)) == again
    assert [(entry.now, len(entry.events)) for entry in again] == [(e.now, len(e.events)) for e in entries]
    # Once more, it is the very same.
    assert [decode_entry(encode_entry(entry)) for entry in again] == again
    # It is legal, and what a client gets of it is the same to the byte.
    fold(events_of(again))
    for dialect in ("openresponses", "openai"):
        live = encoded(said, dialect=dialect)
        assert encoded([entry.events for entry in again], dialect=dialect) == live
        assert verify(live, dialect) == []


@given(batches())
@costly
def test_from_every_cursor(said: list[list[Event]]) -> None:
    whole = encoded(said)
    pieces = [piece + b"\n\n" for piece in whole.split(b"\n\n")[:-1]]
    again = unpack(pack(encode_entry(Entry(7, batch)) for batch in said))
    for cursor in range(len(pieces) - 1):
        assert encoded([entry.events for entry in again], after=cursor) == b"".join(pieces[cursor + 1 :])


async def kept(said: list[list[Event]], *, waiting: bool) -> tuple[bytes, bytes]:
    """What a client got of a run while it was kept, and what it gets of it afterwards."""
    run = MadeUp(said)
    run.waiting = waiting
    store = await open_store("sqlite://")
    try:
        keeping = KeptRun(run, row_of(1), store)
        live = await read(keeping)
        row = await store.responses.get("ann", "resp_1", log=True)
        assert row is not None
        return live, await read(FinishedLog(unpack(row.log)))
    finally:
        await store.aclose()


async def read(run: Running) -> bytes:
    await run.open()
    encoder = Encoder(t.Response(id="resp_1", created_at=1, model="m"))
    out = [encoder.start(queued=run.waiting)]
    while True:
        await run.wait()
        events = run.take()
        if events is None:
            return b"".join(out)
        out.append(encoder.feed(events, 7))


@given(batches(), st.booleans())
@costly
def test_a_stream_that_had_to_wait_is_the_same_afterwards(said: list[list[Event]], waiting: bool) -> None:
    live, again = asyncio.run(kept(said, waiting=waiting))
    assert (b"response.queued" in live) == waiting
    assert live == again


def test_what_json_cannot_hold_does_not_break_a_log() -> None:
    with Cases() as case:
        for odd in ODD:
            with case(repr(odd)):
                entry = Entry(1, [SideEvent("x", "y", odd), SideEvent("x", "z", {"in": [odd]})])
                data = encode_entry(entry)
                first, second = decode_entry(data).events
                assert isinstance(first, SideEvent)
                assert isinstance(second, SideEvent)
                assert second.value["in"] == [first.value]
                msgspec.json.decode(data)


def test_values_without_end_are_cut_off() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert decode_entry(encode_entry(Entry(1, [SideEvent("x", "y", endless)])))


def test_what_a_later_version_says_ends_what_can_be_read() -> None:
    """Its replica may have died, and its run must be ended by one that does not know the word."""
    known, unknown = encode_entry(Entry(1, [SideEvent("x", "y", 1)])), b'[2,[{"kind":"of-tomorrow"}]]'
    for alien in (unknown, b"[1,", b"{}", b""):
        assert readable([known, alien, known]) == [decode_entry(known)]


class _AllAtOnce:
    """A follower that has everything there is."""

    def __init__(self, entries: list[Entry]) -> None:
        self._pieces = [[encode_entry(entry) for entry in entries]]

    async def wait(self) -> None:
        assert self._pieces, "it is waited for more while there is something to give"

    def take(self) -> list[bytes] | None:
        return self._pieces.pop() if self._pieces else None

    def close(self) -> None:
        pass


@pytest.mark.parametrize("live", [True, False])
def test_an_entry_with_thousands_of_events_is_given_in_pieces(live: bool) -> None:
    """Each with its time; and others get their turn in between."""
    asyncio.run(_given_in_pieces(live))


async def _given_in_pieces(live: bool) -> None:
    said = [Entry(time, [SideEvent("x", "y", number) for number in range(10_000)]) for time in (5, 6)]
    said += [Entry(7, []), Entry(8, [RunEndEvent("completed")])]
    log = LiveLog(cast("Follower", _AllAtOnce(said))) if live else FinishedLog(said)
    given: list[tuple[int, Event]] = []
    while log.ended is None:
        await log.wait()
        events = log.take()
        assert events is not None
        assert len(events) <= 2 * MOST
        assert [event for entry in log.heard for event in entry.events] == events
        given += [(entry.now, event) for entry in log.heard for event in entry.events]
    assert given == [(entry.now, event) for entry in said for event in entry.events]
    assert log.ended == RunEndEvent("completed")
    assert log.take() is None


def test_a_long_log_is_given_in_pieces() -> None:
    said = [Entry(1, [SideEvent("x", "y", number)]) for number in range(3 * PIECE + 1)]
    log, seen = FinishedLog(said), []
    while (events := log.take()) is not None:
        assert len(events) <= PIECE
        seen.append(events)
    # A log without an end was broken off, and is told so.
    assert sum(map(len, seen)) == 3 * PIECE + 2
    assert log.ended is not None
    assert log.ended.error is not None
    assert log.ended.error.code == "log_lost"
