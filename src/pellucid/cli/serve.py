"""`pellucid serve`: the gateway."""

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
from typing import Any

import click
import uvicorn
import uvloop
from rich.console import Console

from ..errors import ConfigError, PellucidError
from ..models.embedded import LOAD_SECONDS, EmbeddedModel
from ..server import Config, create_app
from ..server.app import Gateway, settings_of
from ..server.config import api_key
from ..server.observe_setup import set_up_log
from ..transport import Transport
from .local import embedded_model
from .options import model_options, read_options

LAST_WORDS_SECONDS = 5.0
"""How long streams that are broken off have to say so."""


@click.command()
@model_options
@click.option("--host", metavar="H", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=int, metavar="P", help="The port to listen on (8080).")
@click.option("--workers", type=int, metavar="N", help="How many processes (1).")
def serve(host: str | None, port: int | None, workers: int | None, **where: Any) -> None:
    """Start the gateway. With no configuration at all, with a small model of its own."""
    config = read_options(**where, host=host, port=port, workers=workers)
    set_up_log(config.telemetry)
    uvloop.run(_serve(config))


class _Server(uvicorn.Server):
    """A server that, told to stop, stops and is done: a program that was asked to end and did has not failed."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway

    def _idle(self) -> bool:
        return not self.server_state.tasks

    async def _wait(self, seconds: float, until: Callable[[], bool]) -> None:
        """Unless it is told to stop once more."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until() and not self.force_exit:  # noqa: ASYNC110 (uvicorn has no event)
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
            self._gateway.services.hurry()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """First nobody is to come (`/ready` says so), then who comes is refused, while what is under way ends."""
        server = self._gateway.services.config.server
        self._gateway.services.leaving = True
        await self._wait(server.drain_seconds, lambda: False)
        self._gateway.services.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()  # idle ones are closed, others after their answer; a socket is told
        await self._wait(server.shutdown_seconds, self._idle)
        for task in list(self.server_state.tasks):
            task.cancel()
        await self._wait(LAST_WORDS_SECONDS, self._idle)
        await super().shutdown(sockets)
        if self.force_exit:
            # Told twice, it does not wait for the streams; what the application holds is given back all the same.
            await self.lifespan.shutdown()


def _listen(host: str, port: int) -> list[socket.socket]:
    """The sockets to listen on. Raises `ConfigError`; first of all, before a model is fetched in vain."""
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
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


async def _serve(config: Config) -> None:
    sockets = _listen(config.server.host, config.server.port)
    transport = Transport(config.limits)
    local = await embedded_model(config.local, transport) if config.use_local else None
    app = create_app(config, local, transport)
    server = _Server(uvicorn.Config(app, **settings_of(config)), app)
    greeting = asyncio.create_task(_greet(config, server, local))
    # What there is now stays: it need not be looked through for garbage again and again while streams wait.
    gc.collect()
    gc.freeze()
    try:
        await server.serve(sockets)
    finally:
        greeting.cancel()
    if not server.started:
        raise SystemExit(1)


async def _greet(config: Config, server: uvicorn.Server, local: EmbeddedModel | None) -> None:
    """Say, once it is true, where the server is and how to see a model think."""
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.05)
    console = Console(stderr=True, highlight=False)
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    address = f"http://{host}:{server.servers[0].sockets[0].getsockname()[1]}"
    console.print(f"[bold]Pellucid[/] listens on [cyan]{address}[/]")
    if local is not None:
        console.print(f"  loading {local.engine.model.title} …")
        try:
            await local.engine.ready(LOAD_SECONDS)
        except PellucidError as error:
            console.print(f"  it did not load: {error.info.told}", markup=False)
            return
        console.print("  ready. It is a small model, for trying things out; the README says how to use a better one.")
    profiles = config.all_profiles()
    for name, provider in config.providers.items():
        profile = profiles[provider.profile or name]
        if profile.auth not in ("optional", "none", "aws") and api_key(provider, profile) is None:
            wanted = provider.api_key_env or " or ".join(profile.api_key_env) or "a variable that api_key_env names"
            console.print(f"  [yellow]{name} wants a key, and the environment has none: set {wanted}[/]")
        models = ", ".join(provider.models) or "any model it has"
        console.print(f"  {name}: {models}")
    default = config.server.default_model or next((name for p in config.providers.values() for name in p.models), None)
    model = "" if local is not None or default is not None or config.models else '"model": "NAME", '
    console.print("See it think:")
    console.print(
        f"""  curl -N {address}/v1/responses -H 'Content-Type: application/json' \\
    -d '{{{model}"input": "A train travels 60 km in 45 minutes. How fast is it?", "stream": true}}'""",
        soft_wrap=True,
        markup=False,
    )
