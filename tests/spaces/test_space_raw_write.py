"""Raw writes of an outlet: the same bytes in the same order, whenever raw writes become available or unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from pellucid.spaces.runtime.session import Frame, RawWrite
from tests.examples import costly
from tests.spaces.space_kit import Sink, chat, join_space, opened


class RawWriteSink(Sink):
    """`narrow`: raw writes are unavailable. `falls`: the next raw write fails. `narrows`: the next one disables raw
    writes."""

    def __init__(self) -> None:
        super().__init__()
        self.wires: list[bytes] = []
        self.raw_write_count = 0
        self.narrow = self.falls = self.narrows = False
        self._changed: Callable[[], None] | None = None

    @property
    def raw_write(self) -> RawWrite | None:
        return None if self.narrow or self.closed else self._take

    def watch(self, changed: Callable[[], None] | None) -> None:
        self._changed = changed

    def turn(self, *, narrow: bool) -> None:
        self.narrow = narrow
        if self._changed is not None:
            self._changed()

    def write(self, frames: Sequence[Frame]) -> None:
        assert self.closed is None, "a frame was written after the close"
        self.wires += [frame.wire for frame in frames]

    def _take(self, wire: bytes) -> None:
        assert self.closed is None, "a frame was written after the close"
        assert not self.narrow, "raw writes were unavailable"
        if self.falls:
            self.falls = False
            raise RuntimeError("the transport is closed")
        self.wires.append(wire)
        self.raw_write_count += 1
        if self.narrows:
            # As in a transport whose buffer is full after this write.
            self.narrows = False
            self.turn(narrow=True)


STEPS = ["say", "say", "whisper", "address", "narrow", "widen", "narrows", "falls"]


@costly
@given(st.lists(st.sampled_from(STEPS), max_size=15))
def test_raw_writes_deliver_the_same_frames(steps: list[str]) -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            _, plain_sink = await join_space(space, "cyd")
            raw_sink = RawWriteSink()
            assert raw_sink.raw_write is not None
            assert plain_sink.raw_write is None
            await space.join("dee", raw_sink)
            begun, before = len(plain_sink.frames), len(raw_sink.wires)
            for step in [*steps, "widen", "say"]:
                match step:
                    case "say":
                        await space.post("ada", chat("to all"))
                    case "whisper":
                        await space.post("ada", chat("to one", to=["bob"]))
                    case "address":
                        await space.post("ada", chat("to two", to=["dee", "cyd"]))
                    case "falls" | "narrows":
                        setattr(raw_sink, step, True)
                    case _:
                        raw_sink.turn(narrow=step == "narrow")
            written = [wire for wire in raw_sink.wires[before:] if b'"chat"' in wire]
            assert written == [frame.wire for frame in plain_sink.frames[begun:] if b'"chat"' in frame.wire]
            assert raw_sink.raw_write_count or "falls" in steps

    asyncio.run(scene())


def test_a_closed_session_is_not_written_to() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            raw_sink = RawWriteSink()
            session = await space.join("dee", raw_sink)
            await space.post("ada", chat("before"))
            assert raw_sink.raw_write_count == 1
            await session.leave()
            raw_sink.close(1000, "")
            raw_sink.turn(narrow=False)
            await space.post("ada", chat("after"))
            assert not any(b"after" in wire for wire in raw_sink.wires)

    asyncio.run(scene())
