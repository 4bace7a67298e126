"""A worker process of `pellucid serve --workers N`. Only the supervisor (`worker_supervisor`) starts it.

It serves like a gateway of one process, on the supervisor's sockets and with the supervisor's engine. When the
supervisor has ended, the worker lets its streams finish, and ends.
"""

from __future__ import annotations

import asyncio
import signal
import socket

import click
import msgspec
import uvloop

from ..local.engine_sharing import RemoteEngine
from ..models.embedded import EmbeddedModel
from ..server import Config, create_app
from ..server.observability import configure_logging
from ..upstream import UpstreamClient
from .http_server import GatewayServer
from .local import local_model
from .worker_ipc import FROM_SUPERVISOR_DECODER, Channel, FromSupervisor, WorkerListening, WorkerSetup


@click.command(hidden=True)
@click.argument("fd", type=int)
def worker(fd: int) -> None:
    """Used by `pellucid serve --workers N`."""
    uvloop.run(_run_worker(socket.socket(fileno=fd)))


async def _run_worker(sock: socket.socket) -> None:
    channel = await Channel.open(sock, FROM_SUPERVISOR_DECODER)
    setup = await channel.receive()
    if not isinstance(setup, WorkerSetup):
        return  # the supervisor has ended already
    config = msgspec.msgpack.decode(setup.config, type=Config)
    configure_logging(config.telemetry)
    transport = UpstreamClient(config.limits)
    engine = local = None
    if setup.engine_key is not None:
        engine = RemoteEngine(local_model(config.local), setup.engine_key, channel.send)
        local = EmbeddedModel(engine, transport)
    server = GatewayServer(create_app(config, local, transport))
    helpers = [
        asyncio.create_task(_receive_messages(channel, server, engine)),
        asyncio.create_task(_report_listening(channel, server)),
    ]
    try:
        await server.run_until_stopped([socket.socket(fileno=number) for number in setup.sockets])
    finally:
        for helper in helpers:
            helper.cancel()
        channel.close()


async def _receive_messages(
    channel: Channel[FromSupervisor], server: GatewayServer, engine: RemoteEngine | None
) -> None:
    while (message := await channel.receive()) is not None:
        if engine is not None and not isinstance(message, WorkerSetup):
            engine.receive(message)
    if not server.should_exit:  # the supervisor has ended before it could send a signal
        signal.raise_signal(signal.SIGTERM)


async def _report_listening(channel: Channel[FromSupervisor], server: GatewayServer) -> None:
    await server.wait_started()
    channel.send(WorkerListening())
