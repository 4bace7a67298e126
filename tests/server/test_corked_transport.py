"""Data that a connection holds back to write together: nothing is lost, reordered, or held longer than a loop step."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pellucid.server.uvicorn_adapter.http import CorkedTransport


class RecordingTransport:
    """A transport that records what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.writes.append(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def corked() -> tuple[RecordingTransport, CorkedTransport]:
    transport = RecordingTransport()
    return transport, CorkedTransport(cast("Any", transport), asyncio.get_running_loop())


def test_a_head_is_written_with_the_data_of_the_same_loop_step() -> None:
    async def one_response() -> list[bytes]:
        transport, cork = corked()
        cork.cork()
        await asyncio.sleep(0)  # the model is called
        cork.write(b"head, ")
        cork.write(b"created, ")
        cork.write(b"first")
        await asyncio.sleep(0)
        cork.write(b"second")
        return transport.writes

    assert asyncio.run(one_response()) == [b"head, created, first", b"second"]


def test_a_finished_response_does_not_separate_the_next_head_from_its_data() -> None:
    async def two_responses() -> list[bytes]:
        transport, cork = corked()
        cork.cork()
        cork.write(b"first")
        cork.flush()  # it ended in the loop step in which it began
        cork.cork()
        await asyncio.sleep(0)
        cork.write(b"head, ")
        cork.write(b"second")
        await asyncio.sleep(0)
        return transport.writes

    assert asyncio.run(two_responses()) == [b"first", b"head, second"]


def test_nothing_is_written_to_a_closed_connection() -> None:
    async def closed_meanwhile() -> list[bytes]:
        transport, cork = corked()
        cork.cork()
        cork.write(b"head")
        transport.close()
        await asyncio.sleep(0)
        return transport.writes

    assert asyncio.run(closed_meanwhile()) == []


@given(st.lists(st.sampled_from(["cork", "write", "step", "flush"]), max_size=30), st.booleans())
def test_nothing_is_lost_or_reordered(steps: list[str], closes: bool) -> None:
    async def run() -> None:
        transport, cork = corked()
        written = b""
        for number, step in enumerate(steps):
            if step == "write":
                cork.write(b"%d;" % number)
                written += b"%d;" % number
            elif step == "step":
                await asyncio.sleep(0)
                assert b"".join(transport.writes) == written
            else:
                getattr(cork, step)()
        if closes:
            cork.close()
        await asyncio.sleep(0)
        assert b"".join(transport.writes) == written

    asyncio.run(run())
