"""Bodies that come in pieces: they are joined, and refused if they are too large or too slow on average."""

from __future__ import annotations

import asyncio

import pytest

from pellucid.asgi.http import MIN_BODY_RATE, Message, read_body
from pellucid.errors import RequestError

TIMEOUT_SECONDS = 10.0


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time passes only in `sleep`, so that hours take no time."""

    now = 0.0

    def time(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Let time pass. What is due meanwhile happens first."""
        self.now += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def read(pieces: list[bytes], seconds_each: float, max_bytes: int = 1_000_000) -> tuple[bytes | str, int]:
    """Read a body whose pieces come after so many seconds each.

    Returns:
        The body, or the message of the error; and how many pieces were received.
    """
    received = 0
    loop = Clock()

    async def receive() -> Message:
        nonlocal received
        await loop.sleep(seconds_each)
        received += 1
        return {"type": "http.request", "body": pieces[received - 1], "more_body": received < len(pieces)}

    async def main() -> bytes | str:
        try:
            return await read_body({"headers": []}, receive, max_bytes, TIMEOUT_SECONDS)
        except RequestError as error:
            return error.info.message

    try:
        return loop.run_until_complete(main()), received
    finally:
        loop.close()


@pytest.mark.parametrize(
    "pieces",
    [[b""], [b"abc"], [b"", b"abc"], [b"abc", b""], [b"a", b"bc"], [b"a", b"", b"b", b"c", b""]],
)
def test_pieces_are_joined(pieces: list[bytes]) -> None:
    assert read(pieces, 0.0) == (b"".join(pieces), len(pieces))


def test_a_byte_every_two_seconds_is_too_slow() -> None:
    message, received = read([b"x"] * 1000, 2.0)
    assert message == f"the body came at less than {MIN_BODY_RATE} bytes/s for 10 s"
    assert received == TIMEOUT_SECONDS / 2


def test_a_pause_is_too_long() -> None:
    message, received = read([b"x" * 100_000, b"y"], TIMEOUT_SECONDS + 1)
    assert (message, received) == ("no data of the body came for 10 s", 0)


def test_a_slow_connection_has_the_time_that_it_needs() -> None:
    """600 bytes every second, for more than an hour."""
    body, received = read([b"x" * 600] * 4000, 1.0, max_bytes=10_000_000)
    assert (len(body), received) == (2_400_000, 4000)


def test_pauses_within_the_average_are_accepted() -> None:
    body, _ = read([b"x" * 6000] * 20, 9.0)
    assert len(body) == 120_000


def test_a_body_that_slows_down_is_refused_in_the_end() -> None:
    message, received = read([b"x" * 5000, *[b"y"] * 1000], 2.0)
    assert message == f"the body came at less than {MIN_BODY_RATE} bytes/s for 10 s"
    # The first piece gives 10 more seconds.
    assert received == 2 * TIMEOUT_SECONDS / 2


def test_pieces_are_refused_when_they_exceed_the_limit() -> None:
    message, received = read([b"x" * 60] * 5, 0.0, max_bytes=100)
    assert "larger than 100 bytes" in str(message)
    assert received == 2
