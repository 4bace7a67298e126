"""The HTTP server of one process: its sockets, its signals and its shutdown.

* The first SIGINT or SIGTERM stops the server: requests and runs in progress have `server.shutdown_seconds` to end. The
  log states what is waited for.
* A second one ends them at once, in the form of their protocol.
* A third one, and a second one during the start, ends the process by the signal's default action.
* A stop is bounded: a process that cannot release its resources in time ends without.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn

from ..errors import ConfigError
from ..server.app import Gateway, uvicorn_settings
from ..telemetry import log

ABORT_SECONDS = 5.0
"""Seconds for aborted streams to send their last events."""

CLOSE_SECONDS = 20.0
"""Seconds for a stopping process to store the ends of runs, and to close its resources."""

FORCED_SECONDS, FORCED_ABORT_SECONDS = 5.0, 1.0
"""Seconds after a second signal: for everything, and for aborted streams."""

SETTLE_SECONDS = 0.1
"""Seconds in which idle sockets end after they were notified of a stop. Nothing is logged about them."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class GatewayServer(uvicorn.Server):
    """A uvicorn server that ends normally after SIGINT or SIGTERM. (uvicorn raises the signal again.)"""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(uvicorn.Config(gateway, **uvicorn_settings(gateway.services.config), lifespan="off"))
        self._gateway = gateway
        self._startup: asyncio.Task[Any] | None = None
        """The task that starts the services, while it does."""

    async def run_until_stopped(self, sockets: list[socket.socket]) -> None:
        """Serve until a signal stops the server.

        Raises:
            PellucidError: A resource that the gateway needs is not available.
            SystemExit: The server could not start.
        """
        # The objects that exist now stay alive. The garbage collector need not scan them again while streams wait.
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 20, 20)
        await self.serve(sockets)
        if not self.started and not self.should_exit:
            raise SystemExit(1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._startup = task = asyncio.current_task()
        assert task is not None
        try:
            await self._gateway.lifespan_context.__aenter__()
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
            task.uncancel()
            log.info("stopped during the start")
            return
        finally:
            self._startup = None
        await super().startup(sockets)

    async def wait_started(self) -> None:
        """Wait until the server accepts connections."""
        while not self.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.05)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        server, limit = self._gateway.services.config.server, ExitLimit()

        def on_signal(number: int) -> None:
            self.handle_exit(number, None)
            if self.force_exit or not self.started:
                use_default_actions()
                limit.set(FORCED_SECONDS if self.force_exit else CLOSE_SECONDS)
            else:
                limit.set(server.drain_seconds + server.shutdown_seconds + ABORT_SECONDS + CLOSE_SECONDS)

        with handle_stop_signals(on_signal):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server; at once, if it is stopping already."""
        if not self.should_exit:
            self.should_exit = True
            if self._startup is not None:
                self._startup.cancel()
        elif self.started and not self.force_exit:
            log.warning("stopping at once, after a second signal; ending %s", self._work() or "nothing")
            self.force_exit = True
            self._gateway.services.stop_detached_runs()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down gracefully.

        First, `/ready` reports that no new requests should come. Then new requests are refused, while running requests
        and runs in the background end. Those that take too long are cancelled.
        """
        services = self._gateway.services
        server = services.config.server
        services.is_draining = True
        if server.drain_seconds:
            log.info("stopping: for %g s, /ready answers 503, and requests are served", server.drain_seconds)
            await self._wait_for(server.drain_seconds, lambda: False)
        services.begin_shutdown()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # an idle one is closed, others after their response; a WebSocket is notified
        await self._wait_for_work(server.shutdown_seconds)
        services.stop_detached_runs()
        self._close_listeners(sockets or [])
        for task in list(self.server_state.tasks):
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # also connections that were opened meanwhile
        # Also after a second signal: streams end in the form of their protocol.
        seconds = FORCED_ABORT_SECONDS if self.force_exit else ABORT_SECONDS
        await self._wait_for(seconds, lambda: not self.server_state.connections, is_forced=True)
        for connection in list(self.server_state.connections):
            if connection.transport is not None:
                connection.transport.abort()
        await self._gateway.lifespan_context.__aexit__(None, None, None)

    async def _wait_for_work(self, seconds: float) -> None:
        """Wait until requests and runs have ended, and log what is waited for."""
        await self._wait_for(min(seconds, SETTLE_SECONDS), self._is_idle)
        if self.force_exit:
            return
        if self._is_idle():
            log.info("stopping: no request and no run is in progress")
            return
        log.info("stopping: waiting for %s, for at most %g s; a second signal ends them at once", self._work(), seconds)
        started_at = time.monotonic()
        await self._wait_for(seconds, self._is_idle)
        waited_seconds = time.monotonic() - started_at
        if self._is_idle():
            log.info("stopping: all have ended after %.1f s", waited_seconds)
        elif not self.force_exit:
            log.warning("stopping: ending %s after %.1f s", self._work(), waited_seconds)

    def _work(self) -> str:
        """Name what is in progress, for the log."""
        counts = (len(self.server_state.tasks), "request"), (self._gateway.services.detached.count, "background run")
        return " and ".join(f"{count} {what}{'s' if count > 1 else ''}" for count, what in counts if count)

    def _is_idle(self) -> bool:
        return not self.server_state.tasks and not self._gateway.services.detached.count

    async def _wait_for(self, seconds: float, is_done: Callable[[], bool], *, is_forced: bool = False) -> None:
        """Wait until a condition is met, but no longer than `seconds`.

        Args:
            seconds: The limit.
            is_done: The condition.
            is_forced: Whether to wait also after a second signal.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_done() and (is_forced or not self.force_exit):  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # uvicorn has no event for it

    def _close_listeners(self, sockets: list[socket.socket]) -> None:
        for server in self.servers:
            server.close()
        for sock in sockets:
            sock.close()


class ExitLimit:
    """Ends the process if it has not ended within a time, whatever blocks it."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def set(self, seconds: float) -> None:
        """Set the time, in seconds from now. A later call replaces an earlier one."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(seconds, self._exit, (seconds,))
        self._timer.daemon = True
        self._timer.start()

    @staticmethod
    def _exit(seconds: float) -> None:
        log.error("the process did not end within %g s after the signal, and is ended now", seconds)
        os._exit(1)


@contextmanager
def handle_stop_signals(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` with the number of each SIGINT and SIGTERM, instead of their default actions."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in STOP_SIGNALS:
            loop.remove_signal_handler(number)


def use_default_actions() -> None:
    """Let the next SIGINT or SIGTERM end the process, whatever it does then."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_DFL)


def listen(host: str, port: int) -> list[socket.socket]:
    """Open the sockets to listen on. Call this first, so that a model is not fetched if the port is in use.

    Raises:
        ConfigError: The address or port cannot be used.
    """
    sockets: list[socket.socket] = []
    try:
        address_infos = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in address_infos):
            sockets.append(socket.create_server(address[:2], family=family, backlog=4096))
    except OSError as error:
        for sock in sockets:
            sock.close()
        if isinstance(error, socket.gaierror):
            raise ConfigError([f"server.host: {host!r}: {error.strerror}"]) from error
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(
            [f"server.port: cannot listen on {host}:{port}: {reason}; choose another with --port"]
        ) from error
    return sockets
