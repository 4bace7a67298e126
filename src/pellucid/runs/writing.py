"""Writes the log of one run at a relay that may be slow, away, or forgetful.

* In the memory of one process, a batch is appended as it is, and followers get it within the same call.
* All that comes during one round trip goes with the next; followers in this process get the batches as they are.
* What may have landed is asked again exactly as it was, so that it lands once.
* A relay that forgot the log is told it again, from the beginning and under the same numbers.
* A log that is somebody else's is left as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ..errors import PellucidError
from ..events import PartDeltaEvent, RunEndEvent
from ..models import TextWriter
from ..relay import LogAppender, LogEntry, LogLost, MemoryRelay, Relay
from .lease import Lease
from .log import carried
from .source import Batch, batches_like

PAUSE = 0.5, 5.0
"""Seconds between two tries while the relay does not take it: at first, and at most."""

END_SECONDS = 10.0
"""How long the end of a log waits for a relay that is away."""


class LogWriter:
    def __init__(self, relay: Relay, lease: Lease) -> None:
        self._relay = relay
        self._lease = lease
        self._memory = relay if isinstance(relay, MemoryRelay) else None
        self._appender: LogAppender | None = None
        """Of a log in memory, once something was appended to it."""
        self.batches: list[Batch] = []
        """What the run delivered, but for its end."""
        self.end: Batch | None = None
        """The batch with the run's end, which is stored before it is shown: `finish` logs it."""
        self._entries: list[LogEntry] = []
        self._decoded: list[Batch] = []
        """The entries, where they are encoded, as followers in this process get them."""
        self._whole = False
        """Whether the last entry is there."""
        self._sent = 0
        """How many of the entries are in the log."""
        self._asked: tuple[int, bool] | None = None
        """Up to which entry the append goes of which it is not known whether it landed, and whether it ends the log."""
        self._retrying: asyncio.Task[None] | None = None
        """Tries again what failed, and nothing else is asked meanwhile."""
        self._done = False
        """Whether the log has its end."""
        self._over = asyncio.Event()
        """It has, or it is somebody else's."""

    def add(self, batch: Batch) -> None:
        """Log a batch of the run, now or as soon as the relay takes it. A `BatchReceiver`."""
        if type(batch.events[-1]) is RunEndEvent:
            self.end = batch
            return
        self.batches.append(batch)
        appender, entries = self._appender, self._entries
        if appender is not None and self._sent == len(entries) and appender.append(batch):
            entries.append(batch)
            self._sent += 1
        else:
            self._add(batch)

    def open_text(self, like: PartDeltaEvent) -> TextWriter:
        """See `TextSink`: each text is a batch of its own."""
        return TextWriter(batches_like(like), self.add)

    async def finish(self, batch: Batch) -> bool:
        """Log the last batch; whether the log has its end then. A relay that is away is not waited for for ever."""
        self._whole = True
        self._add(batch)
        if not self._done:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await self._over.wait()
        return self._done

    def close(self) -> None:
        """Nothing more is written."""
        self._over.set()
        if self._retrying is not None:
            self._retrying.cancel()

    def _add(self, batch: Batch) -> None:
        if self._memory is not None:
            self._entries.append(batch)
        else:
            entry, decoded = carried(batch)
            self._entries.append(entry)
            self._decoded.append(decoded)
        self._append()

    def _append(self) -> None:
        """Append all that is not in the log yet; unless something is being appended, then it follows."""
        lease = self._lease
        if lease.lost:
            self._over.set()
        if self._asked is not None or self._retrying is not None or lease.lost:
            return
        upto, last = self._asked = len(self._entries), self._whole
        entries, decoded = self._entries[self._sent : upto], self._decoded[self._sent : upto]
        self._relay.append_soon(
            lease.name, entries, lease.fence, done=self._appended, last=last, after=self._sent, decoded=decoded
        )

    def _appended(self, result: int | PellucidError) -> None:
        if isinstance(result, PellucidError):
            if not self._over.is_set():
                self._retrying = asyncio.create_task(self._retry())
            return
        self._note(result)
        if not self._done and (self._sent < len(self._entries) or self._whole):
            self._append()

    def _note(self, sent: int) -> None:
        """What was asked for has landed."""
        assert self._asked is not None
        self._sent, self._done, self._asked = sent, self._asked[1], None
        if self._done:
            self._over.set()
        elif self._memory is not None:
            self._appender = self._memory.appender(self._lease.name, self._lease.fence)

    async def _retry(self) -> None:
        """Append what failed, until it has landed or the log is not ours to write any more."""
        pause = PAUSE[0]
        while not self._lease.lost:
            try:
                await self._append_again()
            except LogLost:
                with suppress(PellucidError):
                    await self._forgotten()
            except PellucidError:
                pass  # `Fenced`, too: a later lease of our own may fence what was asked under an earlier one
            else:
                self._retrying = None
                if not self._done:
                    self._append()
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE[1])
        self._over.set()

    async def _append_again(self) -> None:
        lease = self._lease
        upto, last = self._asked = self._asked or (len(self._entries), self._whole)
        entries, decoded = self._entries[self._sent : upto], self._decoded[self._sent : upto]
        self._note(
            await self._relay.append(lease.name, entries, lease.fence, last=last, after=self._sent, decoded=decoded)
        )

    async def _forgotten(self) -> None:
        await self._lease.renew()
        if not self._lease.lost:
            await self._relay.drop(self._lease.name, 0)
            self._asked = None
            self._appender = None
            self._sent = 0
