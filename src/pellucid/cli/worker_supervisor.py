"""`pellucid serve --workers N`: one supervisor process and N worker processes.

* The supervisor listens, and the workers accept. If a worker dies, another one accepts the connections that wait.
* Workers are new processes (no fork). The first one starts alone: it creates the tables and key files, and an error is
  reported only once. If it cannot start, the gateway ends with its exit status.
* Later, a worker that ends is restarted after a pause. The pause grows while workers end early.
* On SIGINT or SIGTERM, the supervisor signals all workers and waits until their streams have ended. When the supervisor
  dies, the workers shut down in the same way.
* The supervisor owns what exists once: the embedded engine, and the metrics for Prometheus. Everything else is shared
  through the relay and the store, as between replicas.
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
from .http_server import ABORT_SECONDS, handle_stop_signals, listen
from .local import local_engine
from .worker_ipc import TO_SUPERVISOR_DECODER, Channel, ToSupervisor, WorkerListening, WorkerSetup

RESTART_SECONDS = 0.2, 30.0
"""Seconds before a worker is restarted: the first pause, and the longest."""

STABLE_SECONDS = 10.0
"""Seconds after which a worker counts as stable, so that the pause starts again from the first value."""

KILL_GRACE_SECONDS = 20.0
"""Seconds that a worker gets in addition to its own time limits for shutting down, before it is killed."""

STOPPED_STATUSES = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit statuses of a worker that was stopped."""


async def supervise(config: Config) -> None:
    """Serve until a signal stops the supervisor.

    Raises:
        SystemExit: A worker could not start (with its exit status), or ended with an error while stopping (1).
    """
    sockets = listen(config.server.host, config.server.port)
    engine = await local_engine(config.local) if config.uses_local_model else None
    engine_server = None
    if engine is not None:
        await engine.start()
        engine_server = EngineServer(engine)
    with tempfile.TemporaryDirectory(prefix="pellucid-metrics-", ignore_cleanup_errors=True) as metrics:
        workers = Workers(config, sockets, engine_server, Path(metrics))

        async def print_banner_when_up() -> None:
            await workers.all_listening.wait()
            await print_banner(config, sockets, engine)

        banner_task = asyncio.create_task(print_banner_when_up())
        try:
            status = await workers.run()
        finally:
            banner_task.cancel()
            if engine_server is not None and engine is not None:
                engine_server.close()
                await engine.stop()
            for sock in sockets:
                sock.close()
    if status:
        raise SystemExit(status)


class Workers:
    """The worker processes. `all_listening` is set when all of them accept connections."""

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
        """Run until all workers have ended. Returns the exit status."""
        with handle_stop_signals(self._stop):
            first = asyncio.create_task(self._keep_running(1))
            listening = asyncio.create_task(self._wait_listening(1))
            await asyncio.wait([first, listening], return_when="FIRST_COMPLETED")
            rest = [] if first.done() else [self._keep_running(number) for number in range(2, self._count + 1)]
            all_up = asyncio.create_task(self._wait_all_listening())
            await asyncio.gather(first, *rest)
            for task in (listening, all_up):
                task.cancel()
        return self._exit_status

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for worker in self._workers.values():
            worker.stop(number)

    async def _wait_listening(self, number: int) -> None:
        while number not in self._workers:  # noqa: ASYNC110 (a moment, until its process exists)
            await asyncio.sleep(0.01)
        await self._workers[number].listening.wait()

    async def _wait_all_listening(self) -> None:
        await asyncio.gather(*(self._wait_listening(number) for number in range(1, self._count + 1)))
        self.all_listening.set()

    async def _keep_running(self, number: int) -> None:
        """Keep one worker running, until all are stopped."""
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
                # It printed the reason. No request was served yet, and the other workers would fail, too.
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
    """One worker process, from its start to its end."""

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
        """Start a worker process, and send it its setup."""
        own_end, worker_end = socket.socketpair()
        with worker_end:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "pellucid", "worker", str(worker_end.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(worker_end.fileno(), *setup.sockets),
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(metrics)},
                # The supervisor forwards signals of the terminal, once.
                start_new_session=True,
            )
        channel = await Channel.open(own_end, TO_SUPERVISOR_DECODER)
        channel.send(setup)
        return cls(
            process, channel, engine_server.connect(channel.send) if engine_server is not None else None, metrics
        )

    def stop(self, number: int) -> None:
        """Send a signal. A worker that does not listen yet gets SIGTERM, because it would report SIGINT as a fault."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number if self.listening.is_set() else signal.SIGTERM)

    async def wait_ended(self) -> int:
        """Wait until the process has ended, and release its resources. Returns its exit status."""
        status = await self.process.wait()
        self._receiver.cancel()
        if self._connection is not None:
            self._connection.close()
        self._channel.close()
        # Its counters stay in the totals. Its gauges (open requests) are removed.
        multiprocess.mark_process_dead(self.process.pid, str(self._metrics))  # type: ignore[no-untyped-call]
        return status

    async def _receive_messages(self) -> None:
        while (message := await self._channel.receive()) is not None:
            if isinstance(message, WorkerListening):
                self.listening.set()
            elif self._connection is not None:
                self._connection.receive(message)
