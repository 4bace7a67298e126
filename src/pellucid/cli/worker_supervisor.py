"""`pellucid serve --workers N`: one supervisor process and N worker processes.

* The supervisor listens, and the workers accept. If a worker dies, another one accepts the connections that wait.
* Workers are new processes (no fork). The first one starts alone: it creates the tables and key files, and an error is
  reported only once. If it ends with an error before any worker has accepted connections, the gateway ends with its
  exit status.
* Any other worker that ends, whenever and however, is restarted after a pause. The pause grows while workers end early.
  Every end has a log line with its status.
* On SIGINT or SIGTERM, the supervisor signals all workers and waits until their streams have ended. It forwards a
  second signal, after which the workers end at once. When the supervisor dies, the workers shut down in the same way.
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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import multiprocess

from ..local.engine_sharing import EngineServer, WorkerConnection
from ..server import Config
from ..telemetry import log
from .banner import print_banner
from .http_server import (
    ABORT_SECONDS,
    CLOSE_SECONDS,
    FORCED_SECONDS,
    ExitLimit,
    handle_stop_signals,
    listen,
    use_default_actions,
)
from .local import engine_to_serve
from .worker_ipc import TO_SUPERVISOR_DECODER, Channel, ToSupervisor, WorkerListening, WorkerSetup

RESTART_SECONDS = 0.2, 30.0
"""Seconds before a worker is restarted: the first pause, and the longest."""

STABLE_SECONDS = 10.0
"""Seconds after which a worker counts as stable, so that the pause starts again from the first value."""

KILL_GRACE_SECONDS = 5.0
"""Seconds that a worker gets in addition to its own time limits for shutting down, before it is killed."""

STOPPED_STATUSES = (0, -signal.SIGTERM, -signal.SIGINT)
"""Exit statuses of a worker that was stopped."""


async def supervise(config: Config) -> None:
    """Serve until a signal stops the supervisor.

    Raises:
        SystemExit: A worker could not start (with its exit status), or ended with an error while stopping (1).
    """
    sockets = listen(config.server.host, config.server.port)
    engine = await engine_to_serve(config)
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
        self._any_listening = asyncio.Event()
        self._listening: set[int] = set()
        """The numbers of the workers that have accepted connections."""
        self._count = config.server.workers
        server = config.server
        self._work_seconds = server.drain_seconds + server.shutdown_seconds
        self._stop_seconds = self._work_seconds + ABORT_SECONDS + CLOSE_SECONDS + KILL_GRACE_SECONDS
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
        self._stopping_now = asyncio.Event()
        self._exit_limit = ExitLimit()

    async def run(self) -> int:
        """Run until all workers have ended. Returns the exit status."""
        with handle_stop_signals(self._on_signal):
            first = asyncio.create_task(self._keep_running(1))
            await _wait_for(first, self._any_listening)
            rest = [] if first.done() else [self._keep_running(number) for number in range(2, self._count + 1)]
            await asyncio.gather(first, *rest)
        return self._exit_status

    def _on_signal(self, number: int) -> None:
        if not self._stopping.is_set():
            log.info(
                "stopping: the workers end their requests, for at most %g s; a second signal ends them at once",
                self._work_seconds,
            )
            self._exit_limit.set(self._stop_seconds + KILL_GRACE_SECONDS)
        else:
            log.warning("stopping at once after a second signal")
            self._stopping_now.set()
            use_default_actions()
            self._exit_limit.set(FORCED_SECONDS + 2 * KILL_GRACE_SECONDS)
        self._stop(number)

    def _stop(self, number: int) -> None:
        self._stopping.set()
        for worker in self._workers.values():
            worker.stop(number)

    def _on_listening(self, number: int) -> None:
        self._listening.add(number)
        self._any_listening.set()
        if len(self._listening) == self._count:
            self.all_listening.set()

    async def _keep_running(self, number: int) -> None:
        """Keep one worker running, until all are stopped."""
        pause_seconds = RESTART_SECONDS[0]
        while not self._stopping.is_set():
            started_at = time.monotonic()
            try:
                worker = self._workers[number] = await _Worker.start(
                    self._setup, self._engine_server, self._metrics, partial(self._on_listening, number)
                )
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
                    log.error("worker %d %s while it stopped", number, how)
                    self._exit_status = self._exit_status or 1
                return
            if status > 0 and not self._any_listening.is_set():
                # It printed the reason, and the other workers would fail, too.
                log.error("worker %d %s before it accepted connections; the gateway ends", number, how)
                self._exit_status = status
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
        await _wait_for(ending, self._stopping)
        await _wait_for(ending, self._stopping_now, self._stop_seconds)
        if self._stopping_now.is_set():
            await asyncio.wait([ending], timeout=FORCED_SECONDS + KILL_GRACE_SECONDS)
        if not ending.done():
            log.error("the process %d does not end, and is killed", worker.process.pid)
            with suppress(ProcessLookupError):
                worker.process.kill()
        return await ending


async def _wait_for(task: asyncio.Task[Any], event: asyncio.Event, timeout_seconds: float | None = None) -> None:
    """Wait until the task is done, the event is set, or the time is over."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([task, waiting], timeout=timeout_seconds, return_when="FIRST_COMPLETED")
    waiting.cancel()


class _Worker:
    """One worker process, from its start to its end."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        channel: Channel[ToSupervisor],
        connection: WorkerConnection | None,
        metrics: Path,
        on_listening: Callable[[], None],
    ) -> None:
        self.process = process
        self._is_listening = False
        self._on_listening = on_listening
        self._channel = channel
        self._connection = connection
        self._metrics = metrics
        self._receiver = asyncio.create_task(self._receive_messages())

    @classmethod
    async def start(
        cls,
        setup: WorkerSetup,
        engine_server: EngineServer | None,
        metrics: Path,
        on_listening: Callable[[], None],
    ) -> _Worker:
        """Start a worker process, and send it its setup. `on_listening` is called when it accepts connections."""
        own_end, worker_end = socket.socketpair()
        with worker_end:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "pellucid",
                "worker",
                str(worker_end.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(worker_end.fileno(), *setup.sockets),
                env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(metrics)},
                # The supervisor forwards signals of the terminal, once.
                start_new_session=True,
            )
        channel = await Channel.open(own_end, TO_SUPERVISOR_DECODER)
        channel.send(setup)
        connection = engine_server.connect(channel.send) if engine_server is not None else None
        return cls(process, channel, connection, metrics, on_listening)

    def stop(self, number: int) -> None:
        """Send a signal. A worker that does not listen yet gets SIGTERM, because it would report SIGINT as a fault."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number if self._is_listening else signal.SIGTERM)

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
                self._is_listening = True
                self._on_listening()
            elif self._connection is not None:
                self._connection.receive(message)
