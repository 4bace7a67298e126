"""The HTTP server of one process: its sockets and its shutdown."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn

from ..errors import ConfigError
from ..server.app import Gateway, uvicorn_settings

ABORT_SECONDS = 5.0
"""Seconds for aborted streams to send their last events."""


class GatewayServer(uvicorn.Server):
    """A uvicorn server that ends normally after SIGINT or SIGTERM. (uvicorn raises the signal again.)"""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(uvicorn.Config(gateway, **uvicorn_settings(gateway.services.config), lifespan="off"))
        self._gateway = gateway

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
        if not self.started:
            raise SystemExit(1)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._gateway.lifespan_context.__aenter__()
        await super().startup(sockets)

    async def wait_started(self) -> None:
        """Wait until the server accepts connections."""
        while not self.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.05)

    def _is_idle(self) -> bool:
        return not self.server_state.tasks

    async def _wait_for(self, seconds: float, is_done: Callable[[], bool]) -> None:
        """Wait until a condition is met, but no longer than `seconds`, and not after a second signal."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_done() and not self.force_exit:  # noqa: ASYNC110 (uvicorn has no event)
            await asyncio.sleep(0.02)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with handle_stop_signals(lambda number: self.handle_exit(number, None)):
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.force_exit and self.started:
            self._gateway.services.stop_detached_runs()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down gracefully.

        First, `/ready` reports that no new requests should come. Then new requests are refused, while running requests
        end. Requests that take too long are cancelled.
        """
        server = self._gateway.services.config.server
        self._gateway.services.is_draining = True
        await self._wait_for(server.drain_seconds, lambda: False)
        self._gateway.services.begin_shutdown()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # an idle one is closed, others after their response; a WebSocket is notified
        await self._wait_for(server.shutdown_seconds, self._is_idle)
        for task in list(self.server_state.tasks):
            task.cancel()
        await self._wait_for(ABORT_SECONDS, self._is_idle)
        await super().shutdown(sockets)
        # After a second signal, it does not wait for the streams, but still releases the application's resources.
        await self._gateway.lifespan_context.__aexit__(None, None, None)


@contextmanager
def handle_stop_signals(handler: Callable[[int], None]) -> Iterator[None]:
    """Call `handler` with the number of each SIGINT and SIGTERM, instead of their default actions."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, handler, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


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
