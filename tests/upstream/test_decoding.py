"""Compressed bodies: any cut gives the same bytes, bombs end, and nothing keeps the loop busy."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.upstream.decompression import SLICE_BYTES, DecodingReceiver, Decompressor
from tests.waiting import loop_turns

TEXT = b"data: {}\n\n" * 20 + bytes(range(256))
RAW = zlib.compressobj(wbits=-zlib.MAX_WBITS)
BODIES = {
    "gzip": ("gzip", gzip.compress(TEXT)),
    "x-gzip": ("x-gzip", gzip.compress(TEXT)),
    "gzip in members": ("gzip", gzip.compress(TEXT[:50]) + gzip.compress(b"") + gzip.compress(TEXT[50:])),
    "deflate": ("deflate", zlib.compress(TEXT)),
    "deflate without its wrapper": ("deflate", RAW.compress(TEXT) + RAW.flush()),
}


async def turns_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition is true; no time passes."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come true")


class Run:
    """A `DecodingReceiver` between a connection and a receiver, both played by the test."""

    def __init__(self, encoding: str) -> None:
        self.slices: list[bytes] = []
        self.ends: list[ErrorInfo | None] = []
        self.is_paused = False
        self.receiver = DecodingReceiver(encoding, self, self.slices.append, self.ends.append)

    @property
    def code(self) -> str | None:
        [error] = self.ends
        return error.code if error else None

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    async def feed(self, *reads: bytes) -> Run:
        """Give it reads when it takes them, and the end."""
        for read in reads:
            self.receiver.data_received(read)
            await turns_until(lambda: not self.is_paused or bool(self.ends))
        if not self.ends:
            self.receiver.body_ended(None)
        await turns_until(lambda: bool(self.ends))
        return self


def decode(encoding: str, *reads: bytes) -> Run:
    async def main() -> Run:
        return await Run(encoding).feed(*reads)

    return asyncio.run(main())


@given(st.sampled_from(list(BODIES)), st.lists(st.integers(0, 300), max_size=6))
def test_any_cut_gives_the_same_bytes(name: str, cuts: list[int]) -> None:
    encoding, body = BODIES[name]
    places = sorted({min(one, len(body)) for one in cuts} | {0, len(body)})
    run = decode(encoding, *(body[a:b] for a, b in pairwise(places)))
    assert (b"".join(run.slices), run.code) == (TEXT, None)


@given(st.sampled_from(list(BODIES)), st.data())
def test_a_body_that_stops_before_its_end_is_truncated(name: str, data: st.DataObject) -> None:
    encoding, body = BODIES[name]
    if name == "gzip in members":
        body = gzip.compress(TEXT)  # between two members it is whole
    run = decode(encoding, body[: data.draw(st.integers(1, len(body) - 1))])
    assert TEXT.startswith(b"".join(run.slices))
    assert run.code == "stream_truncated"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_without_a_byte_is_whole(encoding: str) -> None:
    assert (decode(encoding).slices, decode(encoding).code) == ([], None)


@pytest.mark.parametrize(("encoding", "body"), [("gzip", b"not gzip"), ("deflate", b"\xff\xff"), ("deflate", b"x")])
def test_what_is_not_compressed_is_truncated(encoding: str, body: bytes) -> None:
    assert decode(encoding, body).code == "stream_truncated"


def test_bytes_behind_the_end_are_an_error() -> None:
    run = decode("gzip", gzip.compress(TEXT) + b"more")
    assert run.code == "stream_truncated"
    assert b"".join(run.slices) in (b"", TEXT)


def test_a_read_that_becomes_megabytes_comes_in_slices_and_the_connection_waits() -> None:
    body = gzip.compress(bytes(5 * SLICE_BYTES + 7))

    async def main() -> None:
        run = Run("gzip")
        run.receiver.data_received(body)
        assert [len(one) for one in run.slices] == [SLICE_BYTES]
        assert run.is_paused
        await asyncio.sleep(0)
        assert [len(one) for one in run.slices] == [SLICE_BYTES] * 2
        await run.feed()
        assert [len(one) for one in run.slices] == [SLICE_BYTES] * 5 + [7]
        assert run.code is None

    asyncio.run(main())


def test_a_receiver_that_pauses_gets_nothing_until_it_goes_on() -> None:
    async def main() -> None:
        run = Run("gzip")
        run.receiver.data_received(gzip.compress(bytes(3 * SLICE_BYTES)))
        run.receiver.pause_reading()
        run.receiver.body_ended(None)
        await loop_turns()
        assert (len(run.slices), run.ends) == (1, [])
        run.receiver.resume_reading()
        await turns_until(lambda: bool(run.ends))
        assert (sum(map(len, run.slices)), run.code) == (3 * SLICE_BYTES, None)

    asyncio.run(main())


def test_closing_ends_it() -> None:
    async def main() -> None:
        run = Run("gzip")
        run.receiver.data_received(gzip.compress(bytes(3 * SLICE_BYTES)))
        run.receiver.close()
        run.receiver.resume_reading()
        await loop_turns()
        assert (len(run.slices), run.ends) == (1, [])

    asyncio.run(main())


def test_a_bomb_is_decompressed_only_while_it_is_read() -> None:
    async def main() -> None:
        run = Run("gzip")
        run.receiver.data_received(gzip.compress(bytes(100 * SLICE_BYTES)))
        await loop_turns()
        run.receiver.close()
        assert run.receiver.body_bytes == len(b"".join(run.slices)) < 100 * SLICE_BYTES

    asyncio.run(main())


def test_many_members_are_taken_a_few_at_a_time() -> None:
    """Each one's begin copies what is behind it."""
    decompressor = Decompressor("gzip")
    decompressor.feed(gzip.compress(b"a") * 1000)
    first, has_more = decompressor.next_slice()
    assert (first, has_more) == (b"a" * 32, True)
    rest = []
    while has_more:
        piece, has_more = decompressor.next_slice()
        rest.append(piece)
    assert b"".join(rest) == b"a" * 968
    assert decompressor.is_complete
