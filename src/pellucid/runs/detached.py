"""Runs that no request drives: each is a task here, writes a log that any replica can follow, and ends in the store.

* A run belongs to the holder of its lease. The lease's token fences the log and the store: what somebody writes who
  lost it lands nowhere.
* The end is written in this order: store, log, lease. Who reads the end finds it kept.
* When a lease lapses (its holder died), exactly one survivor closes the log and keeps what came, as failed.
* A relay that is away does not stop a run: it goes on, and its end is kept. Its followers are told that they lost it.

What is driven is any `Running`; how its row came to be is not known here.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from math import inf

from ..errors import ErrorInfo, PellucidError
from ..events import Event, FunctionToolResultEvent, RunEndEvent
from ..fold import Fold, fold
from ..parts import ToolReturnPart
from ..relay import Fenced, LogLost, Relay
from ..run import Minter
from ..storage import Store, StoredResponse
from ..telemetry import log, place_of
from .keeping import Finished, finish, keep_end, not_kept
from .log import Entry, decode_entry, encode_entry, events_of
from .replay import LiveLog
from .running import Running

LEASE_SECONDS = 15.0
"""How long a dead replica's runs wait for a survivor."""

KEEP_SECONDS = 60.0
"""How long the end of a run waits for a store that is away."""

LOG_SECONDS = 300.0
"""How long a finished log can still be followed live; after that it is read from the store."""

FAULT = ErrorInfo("server_error", "the gateway failed in the middle of this run")
ABANDONED = ErrorInfo(
    "server_error", "the replica that drove this run is gone; what came until then is kept", code="abandoned"
)


class Detached:
    """The detached runs of one process, and its eye on those of others."""

    def __init__(self, store: Store, relay: Relay, *, holder: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self.store = store
        self.relay = relay
        self.holder = holder
        self.lease_seconds = lease_seconds
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watch: asyncio.Task[None] | None = None
        self._stopping: ErrorInfo | None = None

    async def start(self, row: StoredResponse, run: Running) -> None:
        """Drive `run` from now on; its log can be followed at once. Raises `PellucidError` if nothing was begun."""
        fence = await self.relay.claim(_name(row.owner, row.id), self.holder, self.lease_seconds)
        if fence is None:
            raise RuntimeError(f"the run {row.id} has a driver already")
        try:
            await self.store.responses.begin(row, fence)
        except BaseException:
            with suppress(PellucidError):
                await self.relay.release(_name(row.owner, row.id), fence)
            raise
        task = asyncio.create_task(_Driver(self, row, run, fence).drive())
        self._tasks[row.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(row.id, None))

    def follow(self, row: StoredResponse) -> LiveLog:
        """The run, from its beginning, wherever it is driven."""
        return LiveLog(self.relay.follow(_name(row.owner, row.id)))

    async def cancel(self, row: StoredResponse) -> None:
        """Ask whoever drives it to stop. Its log ends when it has."""
        await self.relay.tell(_name(row.owner, row.id), b"cancel")

    # --- the process's life ------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Look after the runs of replicas that are gone, from now on."""
        self._watch = asyncio.create_task(self._look())

    async def aclose(self, patience: float, why: ErrorInfo) -> None:
        """Let runs finish for `patience` seconds, then end them as failed because of `why`."""
        if self._watch is not None:
            self._watch.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=patience)
        tasks = list(self._tasks.values())
        self._stopping = why
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=10)

    @property
    def stopping(self) -> ErrorInfo | None:
        """Why runs are broken off, if they are."""
        return self._stopping

    async def _look(self) -> None:
        while True:
            try:
                for name in await self.relay.lapsed(100):
                    if name.startswith(_PREFIX):
                        await self._bury(*_of_name(name), lapsed=True)
                # Runs whose lease was lost with the relay that held it.
                for id, owner, _ in await self.store.responses.unfinished(time.time() - 4 * self.lease_seconds):
                    if id not in self._tasks:
                        await self._bury(owner, id)
            except PellucidError as error:
                log.warning("cannot look after the runs of others: %s", error.info.message)
            except Exception as error:
                log.error("a fault while looking after the runs of others: %s", place_of(error))
            await asyncio.sleep(self.lease_seconds / 3)

    async def _bury(self, owner: str, id: str, *, lapsed: bool = False) -> None:
        """Write the end of a run whose driver is gone, unless somebody else does."""
        relay, name = self.relay, _name(owner, id)
        fence = await relay.claim(name, self.holder, self.lease_seconds, lapsed=lapsed)
        if fence is None:
            return
        row = await self.store.responses.take_over(owner, id, fence)
        if row is not None:
            entries = [decode_entry(data) for data in await self._read(name, fence)]
            folded = fold(events_of(entries))
            if folded.ended is None:
                entries.append(Entry(int(time.time()), closing(folded, id, ABANDONED)))
            if await keep_end(self.store, await finish(row, entries), fence):
                log.warning("a run was abandoned by its replica, and ended here")
            if folded.ended is None:
                with suppress(Fenced, LogLost):
                    await relay.append(name, [encode_entry(entries[-1])], fence, last=True)
                    await relay.drop(name, LOG_SECONDS)
        await relay.release(name, fence)

    async def _read(self, name: str, fence: int) -> list[bytes]:
        """All that is in a log to which nobody writes any more."""
        relay = self.relay
        if not await relay.exists(name):
            return []
        try:
            count: float = await relay.append(name, [], fence)
        except Fenced:
            count = inf  # it has its end
        read: list[bytes] = []
        follower = relay.follow(name)
        try:
            while len(read) < count:
                await follower.wait()
                more = follower.take()
                if more is None:
                    break
                read += more
        finally:
            follower.close()
        return read


class _Driver:
    """One run, from its first batch to its end in the store."""

    def __init__(self, home: Detached, row: StoredResponse, run: Running, fence: int) -> None:
        self._home = home
        self._row = row
        self._name = _name(row.owner, row.id)
        self._run = run
        self._fence = fence
        self._entries: list[Entry] = []
        self._encoded: list[bytes] = []
        self._sent = 0
        """How many of the entries are in the log."""
        self._more = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._cancelled = False
        self._lost = False
        """Whether the lease is somebody else's."""

    async def drive(self) -> None:
        sending = asyncio.create_task(self._send())
        helpers = [asyncio.create_task(self._keep_name()), asyncio.create_task(self._listen())]
        try:
            end = await self._read()
            if not self._lost:
                await self._finish(end, sending)
        finally:
            for helper in (*helpers, sending):
                helper.cancel()
            await asyncio.gather(*helpers, sending, return_exceptions=True)

    # --- the run -------------------------------------------------------------------------------------------------

    async def _read(self) -> Entry:
        """Note everything but the end, which comes back: it is told after it is kept."""
        self._reading = asyncio.current_task()
        run, home = self._run, self._home
        try:
            await run.open()
            while True:
                await run.wait()
                events = run.take()
                if run.ended is not None or events is None:
                    break
                if events:
                    self._note(Entry(run.now, events))
        except asyncio.CancelledError:
            events = await run.stop(None if self._cancelled else home.stopping or FAULT)
        except PellucidError as error:
            events = await run.stop(error.info)
        except Exception as error:
            log.error("a fault while driving a run: %s", place_of(error))
            events = await run.stop(FAULT)
        finally:
            self._reading = None
        if not events or not isinstance(events[-1], RunEndEvent):
            events = closing(fold(events_of(self._entries)), self._row.id, FAULT)
        return Entry(int(time.time()), events)

    def _note(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._encoded.append(encode_entry(entry))
        self._more.set()

    async def _finish(self, end: Entry, sending: asyncio.Task[None]) -> None:
        """Store, log, lease."""
        home = self._home
        error = await self._keep(await finish(self._row, [*self._entries, end]))
        if error is not None:
            before = end.events[:-1]
            end = Entry(end.now, [*before, RunEndEvent("failed", error=not_kept(error))])
        self._encoded.append(encode_entry(end))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        with suppress(PellucidError):
            await self._append(last=True)
            await home.relay.drop(self._name, LOG_SECONDS)
            await home.relay.release(self._name, self._fence)

    async def _keep(self, done: Finished) -> ErrorInfo | None:
        """Try until the store takes it, for as long as anybody would wait."""
        until = time.monotonic() + KEEP_SECONDS
        while True:
            try:
                if not await keep_end(self._home.store, done, self._fence):
                    self._lost = True
                return None
            except PellucidError as error:
                if time.monotonic() > until:
                    return error.info
            await asyncio.sleep(0.5)

    # --- beside it -----------------------------------------------------------------------------------------------

    async def _send(self) -> None:
        """Append what was noted; all that came during one round trip goes with the next."""
        while True:
            await self._more.wait()
            self._more.clear()
            try:
                await self._append()
            except PellucidError:
                await asyncio.sleep(0.5)
                self._more.set()

    async def _append(self, *, last: bool = False) -> None:
        relay, name = self._home.relay, self._name
        if self._sent == len(self._encoded):
            return
        try:
            self._sent = await relay.append(name, self._encoded[self._sent :], self._fence, last=last, after=self._sent)
        except LogLost:
            # The relay forgot what it had. It is told again, from the beginning, under the same numbers.
            await relay.drop(name, 0)
            self._sent = 0
            raise
        except Fenced:
            if not await self._claim_again():
                return
            raise

    async def _keep_name(self) -> None:
        home, name = self._home, self._name
        while True:
            await asyncio.sleep(home.lease_seconds / 3)
            with suppress(PellucidError):
                if not (await home.relay.renew(name, self._fence, home.lease_seconds) or await self._claim_again()):
                    return

    async def _claim_again(self) -> bool:
        """The lease lapsed (this process stood still, or the relay forgot it): it is ours if nobody took it since."""
        home = self._home
        fence = await home.relay.claim(self._name, home.holder, home.lease_seconds)
        if fence is None:
            self._lost = True
            if self._reading is not None:
                self._reading.cancel()
            return False
        self._fence = fence
        return True

    async def _listen(self) -> None:
        while True:
            listener = self._home.relay.listen(self._name)
            try:
                while True:
                    await listener.wait()
                    if b"cancel" in (listener.take() or []):
                        self._cancelled = True
                        if self._reading is not None:
                            self._reading.cancel()
            except PellucidError:
                await asyncio.sleep(0.5)
            finally:
                listener.close()


def closing(folded: Fold, seed: str, error: ErrorInfo) -> list[Event]:
    """What ends a run that broke off after what was folded: as failed, its unanswered calls answered so."""
    mint = Minter(seed.encode()[:64])
    why = "The run ended before this function returned."
    answers = [
        FunctionToolResultEvent(ToolReturnPart(call.tool_name, why, call.tool_call_id, "failed"), mint("fco"))
        for call in folded.unanswered
    ]
    return [*answers, *folded.closing(error), RunEndEvent("failed", folded.usage, error)]


_PREFIX = "run:"


def _name(owner: str, id: str) -> str:
    """Of its lease, its log and its mailbox. What is another owner's has another name."""
    return f"{_PREFIX}{id}:{owner}"


def _of_name(name: str) -> tuple[str, str]:
    """The owner and the id."""
    id, _, owner = name.removeprefix(_PREFIX).partition(":")
    return owner, id


__all__ = ["ABANDONED", "Detached", "closing"]
