"""What was said and not yet heard back. Until its echo comes, an envelope stays here, and goes out again over each new
connection, byte for byte: a space takes the same twice as once.

At most `MOST_FLYING` are on their way at once, and fewer where the space says that they come too fast: half as many
each time, and one more for as many as it takes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from ...envelopes.envelope import Envelope
from ...envelopes.payloads import Failure
from ...envelopes.translate import encode
from ...errors import ERROR_KINDS, ErrorInfo, ErrorKind
from ...text import writable
from .refusals import Refused

RATE_LIMITED = "rate_limited"

MOST_FLYING = 64


class Sent:
    """One envelope on its way."""

    __slots__ = ("data", "echo", "id", "kind", "since", "times")

    def __init__(self, envelope: Envelope, now: float) -> None:
        self.id = envelope.id
        self.kind = envelope.kind
        self.data = _frame(envelope)
        self.since = now
        self.times = 0
        """How often it was sent."""
        self.echo: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()


class Outbox:
    """Of one participant. `patience`: seconds for which what is refused for coming too fast is tried again."""

    def __init__(self, patience: float) -> None:
        self._sent: dict[str, Sent] = {}
        self._queue: deque[Sent] = deque()
        self._woken = asyncio.Event()
        self._hold = 0.0
        """Until when nothing may be sent."""
        self._patience = patience
        self._flying: set[str] = set()
        """What was sent over this connection, and has no echo."""
        self._most = float(MOST_FLYING)

    def add(self, envelope: Envelope) -> Sent:
        sent = Sent(envelope, asyncio.get_running_loop().time())
        self._sent[sent.id] = sent
        self._queue.append(sent)
        self._woken.set()
        return sent

    def drop(self, sent: Sent) -> None:
        """Nobody waits for it any more."""
        if self._sent.get(sent.id) is sent:
            del self._sent[sent.id]
            self._landed(sent.id)

    def _landed(self, id: str) -> None:
        self._flying.discard(id)
        self._woken.set()

    def again(self) -> None:
        """A new connection: everything that was not echoed goes out, in its order."""
        self._queue = deque(self._sent.values())
        self._flying.clear()
        self._woken.set()

    async def next(self) -> Sent:
        """What is to be sent next, when it may be."""
        loop = asyncio.get_running_loop()
        while True:
            if not self._queue or len(self._flying) >= self._most:
                self._woken.clear()
                await self._woken.wait()
            elif (wait := self._hold - loop.time()) > 0:
                await asyncio.sleep(wait)
            else:
                sent = self._queue.popleft()
                if sent.id in self._sent:
                    self._flying.add(sent.id)
                    sent.times += 1
                    return sent

    def echoed(self, envelope: Envelope) -> int:
        """An envelope of this participant's was heard. How often it was sent, as far as somebody waits for it."""
        sent = self._sent.pop(envelope.id, None)
        if sent is None:
            return 0
        self._most = min(self._most + 1 / self._most, MOST_FLYING)
        self._landed(sent.id)
        if not sent.echo.done():
            sent.echo.set_result(envelope)
        return sent.times

    def refused(self, error: Envelope) -> bool:
        """Whether the error is about something that waits here."""
        payload = error.payload
        mine = [sent for id in error.correlation_id if (sent := self._sent.get(id)) is not None]
        if payload.get("code") == RATE_LIMITED:
            self._slow_down(mine, error)
            return bool(mine) or not error.correlation_id
        for sent in mine:
            self._give_up(sent, _info(payload))
        return bool(mine)

    def too_large(self, why: str) -> None:
        """The connection was closed over the size of a frame: it was the largest one's."""
        if self._sent:
            largest = max(self._sent.values(), key=lambda sent: len(sent.data))
            self._give_up(
                largest, ErrorInfo("too_large", f"the space takes no frame of {len(largest.data)} bytes: {why}")
            )

    def fail(self, error: Exception) -> None:
        """None of it will be echoed."""
        for sent in self._sent.values():
            if not sent.echo.done():
                sent.echo.set_exception(error)
        self._sent.clear()
        self._queue.clear()

    def _slow_down(self, mine: list[Sent], error: Envelope) -> None:
        now, wait = asyncio.get_running_loop().time(), error.payload.get("retry_after")
        pause = float(wait) if isinstance(wait, int | float) and not isinstance(wait, bool) else 1.0
        for sent in mine:
            if now + pause > sent.since + self._patience:
                self._give_up(sent, _info(error.payload))
        self._hold = max(self._hold, now + pause)
        self._most = max(1.0, self._most / 2)
        # Not all that is refused is told of one by one: what has no echo by then goes again, in its order.
        self.again()

    def _give_up(self, sent: Sent, info: ErrorInfo) -> None:
        self._sent.pop(sent.id, None)
        self._landed(sent.id)
        if not sent.echo.done():
            sent.echo.set_exception(Refused(info, sent.id, sent.kind))


def _frame(envelope: Envelope) -> bytes:
    try:
        return encode(envelope, "mew/v0.4")
    except UnicodeEncodeError:  # models write half an emoji now and then
        return encode(writable(envelope), "mew/v0.4")


def _info(payload: dict[str, Any]) -> ErrorInfo:
    """An error as the space tells it (see `envelopes.said`)."""
    said, code = msgspec.convert(payload, Failure, strict=False).error, payload.get("code")
    kind: ErrorKind = next(
        (one for one in ERROR_KINDS if one == said),
        "forbidden" if said == "capability_violation" else "invalid_request",
    )
    message = payload.get("message")
    param = payload.get("param")
    wait = payload.get("retry_after")
    return ErrorInfo(
        kind,
        message if isinstance(message, str) else str(said),
        code=code if isinstance(code, str) else str(said),
        param=param if isinstance(param, str) else None,
        retry_after=float(wait) if isinstance(wait, int | float) else None,
    )
