"""A log that is encoded and decoded has the same events."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import Event, RunEndEvent, SideEvent
from pellucid.fold import fold
from pellucid.protocols.openresponses import Encoder
from pellucid.protocols.openresponses import types as t
from pellucid.protocols.openresponses.verify import verify
from pellucid.relay import Follower, MemoryRelay
from pellucid.runs import Batch, RunSource
from pellucid.runs.replay import MAX_BATCHES, MAX_EVENTS, FinishedLog, LiveLog
from pellucid.runs.run_log import decode_batch, decode_readable, encode_batch, events_of, pack_log, unpack_log
from pellucid.runs.stored_run import StoreStage
from pellucid.storage import open_store
from tests.cases import Cases
from tests.examples import costly
from tests.replicas.runs_kit import ODD_VALUES, batches, row_of
from tests.scripted_runs import pass_through_stage
from tests.waiting import loop_turns


def encoded(events: list[list[Event]], after: int = -1, dialect: Any = "openresponses") -> bytes:
    encoder = Encoder(t.Response(id="resp_1", created_at=1, model="m"), dialect, after=after)
    return encoder.start() + b"".join(encoder.feed(batch, 7) for batch in events)


@given(batches())
def test_a_decoded_log_equals_the_original(event_batches: list[list[Event]]) -> None:
    entries = [Batch(place, batch) for place, batch in enumerate(event_batches)]
    data = [encode_batch(entry) for entry in entries]
    again = [decode_batch(one) for one in data]
    assert unpack_log(pack_log(entries)) == again
    assert [(entry.time_ms, len(entry.events)) for entry in again] == [(e.time_ms, len(e.events)) for e in entries]
    # A second round trip changes nothing.
    assert [decode_batch(encode_batch(entry)) for entry in again] == again
    # The sequence is legal, and its encoding for a client is the same to the byte.
    fold(events_of(again))
    for dialect in ("openresponses", "openai", "summary"):
        live = encoded(event_batches, dialect=dialect)
        assert encoded([entry.events for entry in again], dialect=dialect) == live
        assert verify(live, dialect) == []


@given(batches())
@costly
def test_a_stored_log_is_encoded_from_every_cursor(event_batches: list[list[Event]]) -> None:
    all_bytes = encoded(event_batches)
    pieces = [piece + b"\n\n" for piece in all_bytes.split(b"\n\n")[:-1]]
    again = unpack_log(pack_log([Batch(7, batch) for batch in event_batches]))
    for cursor in range(len(pieces) - 1):
        assert encoded([entry.events for entry in again], after=cursor) == b"".join(pieces[cursor + 1 :])


async def live_and_stored_bytes(event_batches: list[list[Event]], *, queued: bool) -> tuple[bytes, bytes]:
    """Return the bytes of a run for a client while it is stored, and those of its replay."""
    store = await open_store("sqlite://")
    try:
        encoder = Encoder(t.Response(id="resp_1", created_at=1, model="m"))
        passed = await pass_through_stage(StoreStage(row_of(1), store), event_batches, queued=queued)
        live = encoder.start(queued=queued) + b"".join(
            encoder.feed([event], batch.time_ms) for batch in passed for event in batch.events
        )
        row = await store.responses.get("ann", "resp_1", log=True)
        assert row is not None
        return live, await read(FinishedLog(unpack_log(row.log)))
    finally:
        await store.aclose()


async def read(run: RunSource) -> bytes:
    await run.open()
    encoder = Encoder(t.Response(id="resp_1", created_at=1, model="m"))
    out = [encoder.start(queued=run.queued)]
    await run.deliver(lambda batch: out.append(encoder.feed(batch.events, batch.time_ms)))
    return b"".join(out)


@given(batches(), st.booleans())
@costly
def test_a_stored_stream_equals_its_replay(event_batches: list[list[Event]], queued: bool) -> None:
    live, again = asyncio.run(live_and_stored_bytes(event_batches, queued=queued))
    assert (b"response.queued" in live) == queued
    assert live == again


def test_values_that_json_cannot_hold_do_not_break_a_log() -> None:
    with Cases() as case:
        for odd in ODD_VALUES:
            with case(repr(odd)):
                entry = Batch(1, [SideEvent("x", "y", odd), SideEvent("x", "z", {"in": [odd]})])
                data = encode_batch(entry)
                first, second = decode_batch(data).events
                assert isinstance(first, SideEvent)
                assert isinstance(second, SideEvent)
                assert second.value["in"] == [first.value]
                msgspec.json.decode(data)


def test_recursive_values_are_cut_off() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert decode_batch(encode_batch(Batch(1, [SideEvent("x", "y", endless)])))


def test_reading_ends_at_an_entry_of_a_later_version() -> None:
    """A replica of a later version may have died; one that does not know its events must still end the run."""
    known, unknown = encode_batch(Batch(1, [SideEvent("x", "y", 1)])), b'[2,[{"kind":"of-tomorrow"}]]'
    for alien in (unknown, b"[1,", b"{}", b""):
        assert decode_readable([known, alien, known]) == [decode_batch(known)]


@pytest.mark.parametrize("live", [True, False])
def test_an_entry_with_thousands_of_events_is_delivered_in_pieces(live: bool) -> None:
    """Each piece has its time, and other tasks run in between."""
    asyncio.run(_check_delivery_in_pieces(live))


async def _check_delivery_in_pieces(live: bool) -> None:
    log_batches = [Batch(time, [SideEvent("x", "y", number) for number in range(10_000)]) for time in (5, 6)]
    log_batches += [Batch(7, []), Batch(8, [RunEndEvent("completed")])]
    log = source_of(log_batches, live=live)
    received: list[tuple[int, Event]] = []
    sizes = [0]

    def receive(batch: Batch) -> None:
        sizes[-1] += len(batch.events)
        received.extend((batch.time_ms, event) for event in batch.events)

    async def count_turns() -> None:
        while True:
            sizes.append(0)
            await asyncio.sleep(0)

    between = asyncio.create_task(count_turns())
    await log.deliver(receive)
    between.cancel()
    assert max(sizes) <= 2 * MAX_EVENTS
    assert received == [(entry.time_ms, event) for entry in log_batches for event in entry.events]
    assert log.ended == RunEndEvent("completed")


def source_of(log_batches: list[Batch], *, live: bool) -> LiveLog | FinishedLog:
    """Make a log that has all batches."""
    if not live:
        return FinishedLog(log_batches)
    follower = Follower(0, lambda follower: None)
    follower.put([encode_batch(entry) for entry in log_batches], len(log_batches))
    follower.end()
    return LiveLog(follower)


def test_a_long_log_is_delivered_in_pieces() -> None:
    async def main() -> None:
        log_batches = [Batch(1, [SideEvent("x", "y", number)]) for number in range(3 * MAX_BATCHES + 1)]
        log, seen = FinishedLog(log_batches), [0]

        def receive(batch: Batch) -> None:
            seen[-1] += len(batch.events)

        async def count_turns() -> None:
            while True:
                seen.append(0)
                await asyncio.sleep(0)

        between = asyncio.create_task(count_turns())
        await log.deliver(receive)
        between.cancel()
        assert max(seen) <= MAX_BATCHES
        # A log without an end was interrupted; the source adds an end with an error.
        assert sum(seen) == 3 * MAX_BATCHES + 2
        assert log.ended is not None
        assert log.ended.error is not None
        assert log.ended.error.code == "log_lost"

    asyncio.run(main())


# --- delivery to a receiver----------------------------------------------------------------------------------------

SIZES = [0, 1, 2, MAX_BATCHES - 1, MAX_BATCHES, MAX_BATCHES + 1, 3 * MAX_BATCHES]
LENGTHS = [0, 1, 1, 2, MAX_EVENTS // MAX_BATCHES, MAX_EVENTS - 1, MAX_EVENTS, MAX_EVENTS + 1, 2 * MAX_EVENTS + 1]


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Batch], list[int]]:
    """A log whose batches and backlogs are about as large as one delivery, and the ends of the parts that are written
    together."""
    size = draw(st.sampled_from(SIZES))
    lengths = [1] * size
    for at in draw(st.lists(st.integers(0, max(0, size - 1)), max_size=4)) if size else ():
        lengths[at] = draw(st.sampled_from(LENGTHS))
    numbers = iter(range(sum(lengths)))
    log_batches = [
        Batch(10 + at, [SideEvent("x", "y", next(numbers)) for _ in range(n)]) for at, n in enumerate(lengths)
    ]
    log_batches.append(Batch(10 + size, [RunEndEvent("completed")]))
    return log_batches, sorted(draw(st.sets(st.integers(0, len(log_batches) - 1), max_size=6)))


def flatten(batches: list[Batch]) -> list[tuple[int, Event]]:
    return [(batch.time_ms, event) for batch in batches for event in batch.events]


async def push(relay: MemoryRelay, log_batches: list[Batch], ends: list[int], dice: random.Random) -> None:
    """Write the log in parts, some of them in the same turn of the event loop."""
    places = [0, *ends, len(log_batches)]
    for start, end in pairwise(places):
        await relay.append("log", log_batches[start:end], 0, last=end == len(log_batches))
        await loop_turns(dice.randint(0, 3))


@given(logs(), st.booleans(), st.booleans(), st.randoms(use_true_random=True))
def test_a_log_is_delivered_once_in_order_and_with_its_times(
    log: tuple[list[Batch], list[int]], live: bool, pauses: bool, dice: random.Random
) -> None:
    """This holds for any backlog, any growth, and any pauses of the receiver."""
    log_batches, ends = log

    async def main() -> None:
        relay = MemoryRelay()
        source = LiveLog(relay.follow("log")) if live else FinishedLog(log_batches)
        received: list[Batch] = []
        paused_since = [0]
        """The number of events since the pause began."""

        def receive(batch: Batch) -> None:
            received.append(batch)
            paused_since[0] += len(batch.events)
            if pauses and dice.randint(0, 9) == 0:
                source.pause()
                paused_since[0] = 0
                asyncio.get_running_loop().call_soon(resume, dice.randint(0, 4))

        def resume(turns: int) -> None:
            if turns:
                asyncio.get_running_loop().call_soon(resume, turns - 1)
            else:
                # Only events that were under way may arrive during a pause.
                assert paused_since[0] <= 2 * MAX_EVENTS + MAX_BATCHES
                source.resume()

        await source.open()
        delivery = asyncio.create_task(source.deliver(receive))
        if live:
            await push(relay, log_batches, ends, dice)
        async with asyncio.timeout(60):
            await delivery
        assert flatten(received) == flatten(log_batches)
        assert all(len(batch.events) <= MAX_EVENTS for batch in received)
        assert source.ended == RunEndEvent("completed")
        count = len(received)
        await source.stop()
        await loop_turns()
        assert len(received) == count

    asyncio.run(main())


@given(logs(), st.booleans(), st.integers(0, 12), st.booleans(), st.booleans(), st.randoms(use_true_random=True))
def test_a_reader_that_stops_gets_an_end(
    log: tuple[list[Batch], list[int]], live: bool, after: int, paused: bool, meanwhile: bool, dice: random.Random
) -> None:
    log_batches, ends = log

    async def main() -> None:
        relay = MemoryRelay()
        source = LiveLog(relay.follow("log")) if live else FinishedLog(log_batches)
        received: list[Batch] = []
        delivery = asyncio.create_task(source.deliver(received.append))
        writing = asyncio.create_task(push(relay, log_batches, ends, dice))
        await loop_turns(after)
        if paused:
            source.pause()
        if meanwhile:
            async with asyncio.timeout(60):
                await asyncio.gather(source.stop(), delivery)
        else:
            delivery.cancel()
            await asyncio.wait({delivery})
            await source.stop()
        await writing
        events = events_of(received)
        if meanwhile or events:
            folded = fold(events)
            assert folded.run_end is source.ended
            assert isinstance(events[-1], RunEndEvent)
            assert flatten(received)[: len(events) - 1] == flatten(log_batches)[: len(events) - 1]
            assert source.is_interrupted == (events[-1].status != "completed")
        await loop_turns()
        assert events_of(received) == events

    asyncio.run(main())


def test_an_error_of_the_receiver_ends_the_delivery() -> None:
    """The receiver may run in a call of `deliver` or in one of the writer of the log."""

    class Broken(Exception):
        pass

    log_batches = [Batch(at, [SideEvent("x", "y", at)]) for at in range(2)] + [Batch(2, [RunEndEvent("completed")])]

    async def main(nth: int, live: bool, early: bool) -> None:
        relay = MemoryRelay()
        source = LiveLog(relay.follow("log")) if live else FinishedLog(log_batches)
        received: list[Batch] = []

        def receive(batch: Batch) -> None:
            received.append(batch)
            if batch.time_ms == nth:
                raise Broken

        if early:
            await relay.append("log", log_batches, 0, last=True)
        delivery = asyncio.create_task(source.deliver(receive))
        await loop_turns()
        for entry in () if early else log_batches:
            await relay.append("log", [entry], 0, last=entry is log_batches[-1])
        with pytest.raises(Broken):
            async with asyncio.timeout(30):
                await delivery
        nth = 99
        await source.stop()
        assert sum(isinstance(event, RunEndEvent) for event in events_of(received)) == 1
        assert isinstance(events_of(received)[-1], RunEndEvent)

    with Cases() as case:
        for nth in range(3):
            for live, early in ((True, True), (True, False), (False, True)):
                with case((nth, live, early)):
                    asyncio.run(main(nth, live, early))
