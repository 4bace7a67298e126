"""One of the processes of `pellucid serve --workers N`. The supervisor (`workers`) starts it; nobody else does.

It serves as a gateway of one process does, on sockets that it was given, with an engine that it was lent. When the
supervisor is gone, it lets its streams finish and ends.
"""

from __future__ import annotations

import asyncio
import signal
import socket

import click
import msgspec
import uvloop

from ..local.lending import LentEngine
from ..models.embedded import EmbeddedModel
from ..server import Config, create_app
from ..server.observe import set_up_log
from ..upstream import UpstreamClient
from .channel import FOR_WORKER, Begin, Channel, ForWorker, Up
from .http_server import Server
from .local import local_model


@click.command(hidden=True)
@click.argument("fd", type=int)
def worker(fd: int) -> None:
    """Used by `pellucid serve --workers N`."""
    uvloop.run(_work(socket.socket(fileno=fd)))


async def _work(end: socket.socket) -> None:
    channel = await Channel.on(end, FOR_WORKER)
    begin = await channel.hear()
    if not isinstance(begin, Begin):
        return  # the supervisor is gone already
    config = msgspec.msgpack.decode(begin.config, type=Config)
    set_up_log(config.telemetry)
    transport = UpstreamClient(config.limits)
    engine = local = None
    if begin.engine_key is not None:
        engine = LentEngine(local_model(config.local), begin.engine_key, channel.say)
        local = EmbeddedModel(engine, transport)
    server = Server(create_app(config, local, transport))
    helpers = [asyncio.create_task(_listen(channel, server, engine)), asyncio.create_task(_tell(channel, server))]
    try:
        await server.until_told([socket.socket(fileno=number) for number in begin.sockets])
    finally:
        for helper in helpers:
            helper.cancel()
        channel.close()


async def _listen(channel: Channel[ForWorker], server: Server, engine: LentEngine | None) -> None:
    while (message := await channel.hear()) is not None:
        if engine is not None and not isinstance(message, Begin):
            engine.heard(message)
    server.handle_exit(signal.SIGTERM, None)


async def _tell(channel: Channel[ForWorker], server: Server) -> None:
    await server.up()
    channel.say(Up())
