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

from ..local.engine_sharing import EngineServer, WorkerConnection
from ..server import Config
from ..telemetry import log
from .banner import print_banner
from .http_server import ABORT_SECONDS, listen
from .local import local_engine
from .worker_ipc import TO_SUPERVISOR_DECODER, Channel, ToSupervisor, WorkerListening, WorkerSetup

RESTART_SECONDS = 0.2, 30.0
"""Seconds before a worker that ended is started again: at first, and at most."""

STABLE_SECONDS = 10.0
"""One that lived for so long has lasted."""

KILL_GRACE_SECONDS = 20.0
"""How much longer than it may take a worker has to end, before it is killed."""

STOPPED_STATUSES = (0, -signal.SIGTERM, -signal.SIGINT)
"""How one ends that was told to."""


async def supervise(config: Config) -> None:
    """Serve until told to stop. Leaves with the status of a worker that could not start, or with 1 if one ended ill."""
    sockets = listen(config.server.host, config.server.port)
    engine = await local_engine(config.local) if config.uses_local_model else None
    engine_server = None
    if engine is not None:
        await engine.start()
        engine_server = EngineServer(engine)
    with tempfile.TemporaryDirectory(prefix="pellucid-metrics-", ignore_cleanup_errors=True) as metrics:
        workers = Workers(config, sockets, engine_server, Path(metrics))
        banner_task: asyncio.Task[None] | None = None
        try:
            serving = asyncio.create_task(workers.run())
            await asyncio.wait(
                [serving, up_task := asyncio.create_task(workers.all_listening.wait())], return_when="FIRST_COMPLETED"
            )
            up_task.cancel()
            if workers.all_listening.is_set():
                banner_task = asyncio.create_task(print_banner(config, sockets, engine))
            status = await serving
        finally:
            if banner_task is not None:
                banner_task.cancel()
            if engine_server is not None and engine is not None:
                engine_server.close()
                await engine.stop()
            for sock in sockets:
                sock.close()
    if status:
        raise SystemExit(status)


class Workers:
    """`up` is set when all of them listen."""

    def __init__(
        self, config: Config, sockets: list[socket.socket], engine_server: EngineServer | None, metrics: Path
    ) -> None:
        self.all_listening = asyncio.Event()
        self._count = config.server.workers
        server = config.server
        self._stop_timeout_seconds = server.drain_seconds + server.shutdown_seconds + ABORT_SECONDS + KILL_GRACE_SECONDS
        self._setup = WorkerSetup(
            msgspec.msgpack.encode(config),
            [sock.fileno() for sock in sockets],
            engine_server.engine.api_key if engine_server is not None else None,
        )
        self._engine_server = engine_server
        self._metrics = metrics
        self._workers: dict[int, _Worker] = {}
        self._exit_status = 0
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Until they have all ended; the status to leave with."""
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self._stop, number)
        try:
            first = asyncio.create_task(self._keep_running(1))
            listening = asyncio.create_task(self._wait_listening(1))
            await asyncio.wait([first, listening], return_when="FIRST_COMPLETED")
            rest = [] if first.done() else [self._keep_running(number) for number in range(2, self._count + 1)]
            all_up = asyncio.create_task(self._wait_all_listening())
            await asyncio.gather(first, *rest)
            for task in (listening, all_up):
                task.cancel()
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
        return self._exit_status

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for worker in self._workers.values():
            worker.stop(number)

    async def _wait_listening(self, number: int) -> None:
        while number not in self._workers:  # noqa: ASYNC110 (a moment, until its process is there)
            await asyncio.sleep(0.01)
        await self._workers[number].listening.wait()

    async def _wait_all_listening(self) -> None:
        await asyncio.gather(*(self._wait_listening(number) for number in range(1, self._count + 1)))
        self.all_listening.set()

    async def _keep_running(self, number: int) -> None:
        """Keep one running, until all are to stop."""
        pause_seconds = RESTART_SECONDS[0]
        while not self._stopping.is_set():
            started_at = time.monotonic()
            try:
                worker = self._workers[number] = await _Worker.start(self._setup, self._engine_server, self._metrics)
            except OSError as error:
                how, status = f"could not be started ({os.strerror(error.errno or 0)})", 1
            else:
                if self._stopping.is_set():
                    worker.stop(signal.SIGTERM)
                status = await self._wait_ended(worker)
                how = f"with status {status}" if status >= 0 else f"by signal {-status}"
                how = f"(process {worker.process.pid}) ended {how}"
            if self._stopping.is_set():
                if status not in STOPPED_STATUSES:
                    self._exit_status = self._exit_status or 1
                return
            if not self.all_listening.is_set():
                # It said why. Nobody was served yet, and the others would not fare better.
                self._exit_status = status if status > 0 else 1
                self._stop(signal.SIGTERM)
                return
            if time.monotonic() - started_at > STABLE_SECONDS:
                pause_seconds = RESTART_SECONDS[0]
            log.error("worker %d %s; another one is started", number, how)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_seconds)
            pause_seconds = min(pause_seconds * 2, RESTART_SECONDS[1])

    async def _wait_ended(self, worker: _Worker) -> int:
        ending = asyncio.create_task(worker.wait_ended())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([ending, stopping], return_when="FIRST_COMPLETED")
        stopping.cancel()
        if not ending.done():
            await asyncio.wait([ending], timeout=self._stop_timeout_seconds)
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
        connection: WorkerConnection | None,
        metrics: Path,
    ) -> None:
        self.process = process
        self.listening = asyncio.Event()
        self._channel = channel
        self._connection = connection
        self._metrics = metrics
        self._receiver = asyncio.create_task(self._receive_messages())

    @classmethod
    async def start(cls, setup: WorkerSetup, engine_server: EngineServer | None, metrics: Path) -> _Worker:
        own_end, worker_end = socket.socketpair()
        with worker_end:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pellucid", "worker", str(worker_end.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(worker_end.fileno(), *setup.sockets),
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(metrics)},
                # A signal from the terminal is the supervisor's to pass on, once.
                start_new_session=True,
            )
        channel = await Channel.open(own_end, TO_SUPERVISOR_DECODER)
        channel.send(setup)
        return cls(
            process, channel, engine_server.connect(channel.send) if engine_server is not None else None, metrics
        )

    def stop(self, number: int) -> None:
        """One that does not listen yet would only call an interruption a fault."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number if self.listening.is_set() else signal.SIGTERM)

    async def wait_ended(self) -> int:
        status = await self.process.wait()
        self._receiver.cancel()
        if self._connection is not None:
            self._connection.close()
        self._channel.close()
        # What it counted stays counted; what it had open is open no more.
        multiprocess.mark_process_dead(self.process.pid, str(self._metrics))  # type: ignore[no-untyped-call]
        return status

    async def _receive_messages(self) -> None:
        while (message := await self._channel.receive()) is not None:
            if isinstance(message, WorkerListening):
                self.listening.set()
            elif self._connection is not None:
                self._connection.receive(message)
