"""A seat: one connection of a participant, at one replica.

    seat = await space.sit("alice", outlet)
    await seat.hear(frame)                    # what is wrong with it goes to the outlet, as `system/error`
    await seat.leave()

The welcome is written first; then what was said before, if it was asked for; then what is said, as it is stored. What
is shown comes in its order, and nothing comes twice or is left out, but for a gap that is told (`system/gap`).

An outlet is the connection's way out, given by whoever holds it. A frame is made once for all who read the same of it:
as JSON, and as the bytes of one WebSocket text frame, which a server may hand to each socket as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Protocol, TypeAlias, runtime_checkable

from ...envelopes import USUAL, DialectName, Envelope, EnvelopeError, closing, encode, said
from ...envelopes.kinds import HEARTBEAT
from ...envelopes.shown import Subscriber
from ...errors import ErrorInfo, PellucidError
from .hearing import Bucket, Heard, TooMuch
from .ids import new_id
from .inbox import Answer, Item
from .settings import SpaceSettings

_FINAL_TEXT = 0x81


class Frame:
    """One envelope in one dialect. Immutable."""

    __slots__ = ("seq", "text", "wire")

    def __init__(self, text: bytes, seq: int = 0) -> None:
        self.text = text
        """JSON."""
        self.wire = wire_of(text)
        """The same as one unmasked WebSocket text frame."""
        self.seq = seq
        """The envelope's number in its space; 0: it has none, it is for this reader alone."""


def wire_of(text: bytes) -> bytes:
    """One WebSocket frame, as servers send it (RFC 6455, 5.2)."""
    size = len(text)
    if size < 126:
        return bytes((_FINAL_TEXT, size)) + text
    if size < 1 << 16:
        return b"\x81\x7e" + size.to_bytes(2, "big") + text
    return b"\x81\x7f" + size.to_bytes(8, "big") + text


def frame_of(envelope: Envelope, dialect: DialectName) -> Frame:
    return Frame(encode(envelope, dialect), envelope.seq)


class Outlet(Protocol):
    """Given by whoever holds the connection. Nothing here raises."""

    def write(self, frames: Sequence[Frame]) -> None:
        """Send them, in order. It does not block: what the socket does not take yet, waits."""
        ...

    @property
    def waiting(self) -> int:
        """Bytes that the socket has not taken yet."""
        ...

    async def drained(self) -> None:
        """Until `waiting` is small again, or the connection is gone."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close it, after what was written. Idempotent."""
        ...


Line: TypeAlias = Callable[[bytes], object]
"""Takes the bytes of frames (`Frame.wire`)."""


@runtime_checkable
class Direct(Outlet, Protocol):
    """An outlet that has a shorter way, most of the time: what is said to many costs little more than what its network
    does with it."""

    @property
    def line(self) -> Line | None:
        """Where frames may be written with nothing asked, for as long as it is this. None: not now, `write` does it."""
        ...

    def watch(self, changed: Callable[[], None] | None) -> None:
        """It is called whenever `line` may be another, also from within it."""
        ...


# --- seats


MOST_WAITING = 128
"""Envelopes of one seat that may wait to be judged before it is not heard any further."""
BREATH = 64
"""Refusals after which others get their turn."""


class SeatHost(Protocol):
    """What a seat needs of its space."""

    @property
    def settings(self) -> SpaceSettings: ...

    @property
    def is_full(self) -> bool: ...

    def now_ms(self) -> int: ...

    def capabilities(self, participant: str) -> tuple[dict[str, Any], ...]: ...

    def read(self, participant: str, data: bytes | str | dict[str, Any], size: int | None, seat: Seat) -> Heard: ...

    def out_of_patience(self, participant: str) -> bool: ...

    def put(self, item: Item) -> None: ...

    def regroup(self, seat: Seat) -> None: ...

    def remove(self, seat: Seat) -> None: ...

    async def left(self, seat: Seat) -> None: ...


class Seat:
    def __init__(
        self,
        space: SeatHost,
        participant: str,
        outlet: Outlet,
        dialect: DialectName | None,
        reader: Subscriber,
        address: str = "",
    ) -> None:
        self.participant = participant
        self.address = address
        """Under which it reached the gateway."""
        self.outlet = outlet
        self.dialect = dialect
        """None: it has not shown yet which it speaks."""
        self.speaks: DialectName = dialect or USUAL
        self.reader = reader
        self.capabilities: tuple[dict[str, Any], ...] = ()
        """What it was told last that it may."""
        self.group: tuple[object, ...] | None = None
        self.at = 0
        """How far it was given the log, while it is not in the audience."""
        self.past = 0
        """Up to which number it is given what was said as what is over: flagged as replayed."""
        self.missed = 0
        """How much it might have seen that it was not given, since it is behind."""
        self.gone = False
        """Nothing more is written to it."""
        self.has_left = False
        self.task: asyncio.Task[None] | None = None
        """What brings it up to date."""
        self._space = space
        self._waiting = 0
        self._room: asyncio.Future[None] | None = None
        self._told = Bucket(space.settings.limits.errors)
        self._untold = 0
        self._later: asyncio.TimerHandle | None = None
        self._refused = 0

    async def hear(self, data: bytes | str | dict[str, Any], size: int | None = None) -> None:
        """Take one frame. It comes back when the next may be taken; it raises nothing, whatever is in the frame.

        `size`: its bytes, where `data` was read before."""
        if self.gone:
            return
        space = self._space
        try:
            heard = space.read(self.participant, data, size, self)
        except PellucidError as error:
            if isinstance(error, EnvelopeError) and _is_heartbeat(error):
                return
            self.refuse(error, error.about if isinstance(error, TooMuch) else None)
            if error.info.code == "rate_limited" and space.out_of_patience(self.participant):
                self.close(closing.BROKE_RULES, "it says more than the space takes, and goes on")
            self._refused += 1
            if self._refused % BREATH == 0:
                await asyncio.sleep(0)
            return
        self._waiting += 1

        def tell(answer: Answer) -> None:
            self._waiting -= 1
            self._answered(heard.envelope, answer)
            if self._room is not None and not self._room.done():
                self._room.set_result(None)

        space.put(heard.item(tell, self.address))
        while self._waiting >= MOST_WAITING or (self._waiting and space.is_full):
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    async def leave(self) -> None:
        """It is over. Idempotent."""
        await self._space.left(self)

    def speak(self, dialect: DialectName) -> None:
        """It has shown which dialect it speaks."""
        self.dialect = dialect
        if dialect != self.speaks:
            self.speaks = dialect
            self._space.regroup(self)

    def write(self, *envelopes: Envelope) -> None:
        """What is for this seat alone."""
        if not self.gone:
            self.outlet.write([frame_of(one, self.speaks) for one in envelopes])

    def refuse(self, error: PellucidError, about: Envelope | None = None) -> None:
        """Tell it, unless it was told too much."""
        space = self._space
        if self._told.wait(1, monotonic()) > 0:
            self._untold += 1
            if self._later is None:
                self._later = asyncio.get_running_loop().call_later(1.0, self._catch_up_on_errors)
            return
        self._told.take(1)
        more: dict[str, Any] = {}
        if error.info.code == "capability_violation":
            more["your_capabilities"] = list(space.capabilities(self.participant))
        if self._untold:
            more["dropped"], self._untold = self._untold, 0
        self.write(said.error(new_id(), space.now_ms(), self.participant, error, about, **more))

    def _catch_up_on_errors(self) -> None:
        self._later = None
        if self._untold and not self.gone:
            many = self._untold
            self.refuse(
                PellucidError(
                    ErrorInfo(
                        "too_many_requests",
                        f"{many} more were refused, and not told of one by one",
                        code="rate_limited",
                        retry_after=1.0,
                    )
                )
            )

    def _answered(self, envelope: Envelope, answer: Answer) -> None:
        if self.gone:
            return
        if answer.error is not None:
            self.refuse(answer.error, envelope)
        # Who is not there yet is given it in its place, or told that it stands in a gap.
        elif answer.stored and not answer.fresh and (self.group or answer.stored.envelope.seq <= self.at):
            self.write(answer.stored.told)
        if answer.extra:
            self.write(*answer.extra)

    def close(self, code: int, reason: str) -> None:
        """The gateway closes it. Whoever holds the connection still says `leave`."""
        if not self.gone:
            self._space.remove(self)
            self.outlet.close(code, reason)

    def stop(self) -> None:
        """Nothing more is written to it."""
        self.gone = True
        if self._later is not None:
            self._later.cancel()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


def _is_heartbeat(error: EnvelopeError) -> bool:
    kind = error.attempted_kind
    return kind is not None and kind.replace(".", "/") == HEARTBEAT
