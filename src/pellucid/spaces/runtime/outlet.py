"""Where what is said goes: one connection's way out, and the frames that go there.

A frame is made once for all who read the same of it: as JSON, and as the bytes of one WebSocket text frame, which a
server may hand to each socket as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from ...envelopes import DialectName, Envelope, encode

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
