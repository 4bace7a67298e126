"""`pellucid serve --workers N`: one process that supervises, N that serve.

The rules:

* The supervisor listens, and its workers accept: who is in the line when a worker dies is served by another.
* Workers are fresh processes. The first one starts alone: what it makes (tables, key files) the others find, and what
  is wrong is told once. A gateway that cannot start ends with that one's status.
* Later, one that ends is started again, after a pause that grows while it does not last.
* Told to stop, the supervisor tells all of them and waits until their streams have ended. When it is gone itself, they
  end as if they had been told.
* What there is one of (the embedded engine, the numbers for Prometheus) is here. What they share otherwise is the
  relay's and the store's: they are replicas of one another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import msgspec
from prometheus_client import multiprocess

from ..local.lending import Borrower, Lender
from ..server import Config
from ..telemetry import log
from .channel import TO_SUPERVISOR, Begin, Channel, ToSupervisor, Up
from .greeting import greet
from .http_server import LAST_WORDS_SECONDS, listen
from .local import local_engine

PAUSE = 0.2, 30.0
"""Seconds before a worker that ended is started again: at first, and at most."""

LASTING = 10.0
"""One that lived for so long has lasted."""

OVERTIME = 20.0
"""How much longer than it may take a worker has to end, before it is killed."""

QUIET = (0, -signal.SIGTERM, -signal.SIGINT)
"""How one ends that was told to."""


async def supervise(config: Config) -> None:
    """Serve until told to stop. Leaves with the status of a worker that could not start, or with 1 if one ended ill."""
    sockets = listen(config.server.host, config.server.port)
    engine = await local_engine(config.local) if config.use_local else None
    lender = None
    if engine is not None:
        await engine.start()
        lender = Lender(engine)
    with tempfile.TemporaryDirectory(prefix="pellucid-metrics-", ignore_cleanup_errors=True) as metrics:
        workers = Workers(config, sockets, lender, Path(metrics))
        greeting: asyncio.Task[None] | None = None
        try:
            serving = asyncio.create_task(workers.run())
            await asyncio.wait([serving, up := asyncio.create_task(workers.up.wait())], return_when="FIRST_COMPLETED")
            up.cancel()
            if workers.up.is_set():
                greeting = asyncio.create_task(greet(config, sockets, engine))
            status = await serving
        finally:
            if greeting is not None:
                greeting.cancel()
            if lender is not None and engine is not None:
                lender.close()
                await engine.stop()
            for sock in sockets:
                sock.close()
    if status:
        raise SystemExit(status)


class Workers:
    """`up` is set when all of them listen."""

    def __init__(self, config: Config, sockets: list[socket.socket], lender: Lender | None, metrics: Path) -> None:
        self.up = asyncio.Event()
        self._count = config.server.workers
        server = config.server
        self._patience = server.drain_seconds + server.shutdown_seconds + LAST_WORDS_SECONDS + OVERTIME
        self._begin = Begin(
            msgspec.msgpack.encode(config),
            [sock.fileno() for sock in sockets],
            lender.engine.api_key if lender is not None else None,
        )
        self._lender = lender
        self._metrics = metrics
        self._workers: dict[int, _Worker] = {}
        self._failed = 0
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Until they have all ended; the status to leave with."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._told, number)
        try:
            first = asyncio.create_task(self._keep(1))
            listens = asyncio.create_task(self._listens(1))
            await asyncio.wait([first, listens], return_when="FIRST_COMPLETED")
            rest = [] if first.done() else [self._keep(number) for number in range(2, self._count + 1)]
            all_up = asyncio.create_task(self._all_up())
            await asyncio.gather(first, *rest)
            for task in (listens, all_up):
                task.cancel()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
        return self._failed

    def _told(self, number: int) -> None:
        self._stopping.set()
        for worker in self._workers.values():
            worker.tell(number)

    async def _listens(self, number: int) -> None:
        while number not in self._workers:  # noqa: ASYNC110 (a moment, until its process is there)
            await asyncio.sleep(0.01)
        await self._workers[number].up.wait()

    async def _all_up(self) -> None:
        await asyncio.gather(*(self._listens(number) for number in range(1, self._count + 1)))
        self.up.set()

    async def _keep(self, number: int) -> None:
        """Keep one running, until all are to stop."""
        pause = PAUSE[0]
        while not self._stopping.is_set():
            since = time.monotonic()
            try:
                worker = self._workers[number] = await _Worker.start(self._begin, self._lender, self._metrics)
            except OSError as error:
                how, status = f"could not be started ({os.strerror(error.errno or 0)})", 1
            else:
                if self._stopping.is_set():
                    worker.tell(signal.SIGTERM)
                status = await self._ended(worker)
                how = f"with status {status}" if status >= 0 else f"by signal {-status}"
                how = f"(process {worker.process.pid}) ended {how}"
            if self._stopping.is_set():
                if status not in QUIET:
                    self._failed = self._failed or 1
                return
            if not self.up.is_set():
                # It said why. Nobody was served yet, and the others would not fare better.
                self._failed = status if status > 0 else 1
                self._told(signal.SIGTERM)
                return
            if time.monotonic() - since > LASTING:
                pause = PAUSE[0]
            log.error("worker %d %s; another one is started", number, how)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            pause = min(pause * 2, PAUSE[1])

    async def _ended(self, worker: _Worker) -> int:
        ending = asyncio.create_task(worker.ended())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ending, stopping], return_when="FIRST_COMPLETED")
        stopping.cancel()
        if not ending.done():
            await asyncio.wait([ending], timeout=self._patience)
            if not ending.done():
                log.error("the process %d does not end, and is killed", worker.process.pid)
                worker.process.kill()
        return await ending


class _Worker:
    """One life of one worker."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        channel: Channel[ToSupervisor],
        borrower: Borrower | None,
        metrics: Path,
    ) -> None:
        self.process = process
        self.up = asyncio.Event()
        self._channel = channel
        self._borrower = borrower
        self._metrics = metrics
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, begin: Begin, lender: Lender | None, metrics: Path) -> _Worker:
        ours, its = socket.socketpair()
        with its:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pellucid", "worker", str(its.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(its.fileno(), *begin.sockets),
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(metrics)},
                # A signal from the terminal is the supervisor's to pass on, once.
                start_new_session=True,
            )
        channel = await Channel.on(ours, TO_SUPERVISOR)
        channel.say(begin)
        return cls(process, channel, lender.lend(channel.say) if lender is not None else None, metrics)

    def tell(self, number: int) -> None:
        """One that does not listen yet would only call an interruption a fault."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number if self.up.is_set() else signal.SIGTERM)

    async def ended(self) -> int:
        status = await self.process.wait()
        self._listening.cancel()
        if self._borrower is not None:
            self._borrower.gone()
        self._channel.close()
        # What it counted stays counted; what it had open is open no more.
        multiprocess.mark_process_dead(self.process.pid, str(self._metrics))  # type: ignore[no-untyped-call]
        return status

    async def _listen(self) -> None:
        while (message := await self._channel.hear()) is not None:
            if isinstance(message, Up):
                self.up.set()
            elif self._borrower is not None:
                self._borrower.heard(message)
