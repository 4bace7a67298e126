"""The HTTP server of one process: the sockets it listens on, and how it comes to its end."""

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
"""How long streams that are broken off have to say so."""


class GatewayServer(uvicorn.Server):
    """A server that, told to stop, stops and is done: a program that was asked to end and did has not failed."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(uvicorn.Config(gateway, **uvicorn_settings(gateway.services.config), lifespan="off"))
        self._gateway = gateway

    async def run_until_stopped(self, sockets: list[socket.socket]) -> None:
        """Until it is told to stop. Raises `PellucidError` if something that is needed cannot be had."""
        # What there is now stays: it need not be looked through for garbage again and again while streams wait.
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
        """Wait until it listens."""
        while not self.started:  # noqa: ASYNC110 (uvicorn has no event for it)
            await asyncio.sleep(0.05)

    def _is_idle(self) -> bool:
        return not self.server_state.tasks

    async def _wait_for(self, seconds: float, is_done: Callable[[], bool]) -> None:
        """Unless it is told to stop once more."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_done() and not self.force_exit:  # noqa: ASYNC110 (uvicorn has no event)
            await asyncio.sleep(0.02)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for number in signals:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in signals:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self.force_exit and self.started:
            self._gateway.services.stop_background_runs()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First nobody is to come (`/ready` says so), then who comes is refused, while what is under way ends."""
        server = self._gateway.services.config.server
        self._gateway.services.is_draining = True
        await self._wait_for(server.drain_seconds, lambda: False)
        self._gateway.services.begin_shutdown()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # idle ones are closed, others after their answer; a socket is told
        await self._wait_for(server.shutdown_seconds, self._is_idle)
        for task in list(self.server_state.tasks):
            task.cancel()
        await self._wait_for(ABORT_SECONDS, self._is_idle)
        await super().shutdown(sockets)
        # Told twice, it does not wait for the streams; what the application holds is given back all the same.
        await self._gateway.lifespan_context.__aexit__(None, None, None)


def listen(host: str, port: int) -> list[socket.socket]:
    """The sockets to listen on. Raises `ConfigError`; first of all, before a model is fetched in vain."""
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
