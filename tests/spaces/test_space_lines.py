"""An outlet's shorter way: whoever has one is given the same bytes in the same order, however it comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from pellucid.spaces.runtime.session import Frame, RawWrite, RawWriteOutlet
from tests.examples import costly
from tests.spaces.space_kit import Sink, chat, join_space, opened


class Lined(Sink):
    """`narrow`: its line is gone for a while. `falls`: the line fails, and nobody was told."""

    def __init__(self) -> None:
        super().__init__()
        self.wires: list[bytes] = []
        self.by_line = 0
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
        assert self.closed is None, "written to after it was closed"
        self.wires += [frame.wire for frame in frames]

    def _take(self, wire: bytes) -> None:
        assert self.closed is None, "written to after it was closed"
        assert not self.narrow, "the line was gone"
        if self.falls:
            self.falls = False
            raise RuntimeError("the transport is closed")
        self.wires.append(wire)
        self.by_line += 1
        if self.narrows:
            # As a transport does whose buffer fills up by this very write.
            self.narrows = False
            self.turn(narrow=True)


STEPS = ["say", "say", "whisper", "address", "narrow", "widen", "narrows", "falls"]


@costly
@given(st.lists(st.sampled_from(STEPS), max_size=15))
def test_by_its_line_or_not_a_seat_is_given_the_same(steps: list[str]) -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            _, plain = await join_space(space, "cyd")
            lined = Lined()
            assert isinstance(lined, RawWriteOutlet)
            assert not isinstance(plain, RawWriteOutlet)
            await space.join("dee", lined)
            begun, before = len(plain.frames), len(lined.wires)
            for step in [*steps, "widen", "say"]:
                match step:
                    case "say":
                        await space.post("ada", chat("to all"))
                    case "whisper":
                        await space.post("ada", chat("to one", to=["bob"]))
                    case "address":
                        await space.post("ada", chat("to two", to=["dee", "cyd"]))
                    case "falls" | "narrows":
                        setattr(lined, step, True)
                    case _:
                        lined.turn(narrow=step == "narrow")
            said = [wire for wire in lined.wires[before:] if b'"chat"' in wire]
            assert said == [frame.wire for frame in plain.frames[begun:] if b'"chat"' in frame.wire]
            assert lined.by_line or "falls" in steps

    asyncio.run(scene())


def test_who_left_is_not_written_to() -> None:
    async def scene() -> None:
        async with opened() as (_, space, _):
            lined = Lined()
            seat = await space.join("dee", lined)
            await space.post("ada", chat("before"))
            assert lined.by_line == 1
            await seat.leave()
            lined.close(1000, "")
            lined.turn(narrow=False)
            await space.post("ada", chat("after"))
            assert not any(b"after" in wire for wire in lined.wires)

    asyncio.run(scene())
