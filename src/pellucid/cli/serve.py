"""`pellucid serve`: the gateway, in this process or in several."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from .options import model_options, read_options

if TYPE_CHECKING:
    from ..server import Config


@click.command()
@model_options
@click.option("--host", metavar="H", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=int, metavar="P", help="The port to listen on (8080).")
@click.option("--workers", type=int, metavar="N", help="How many processes (1); more than one needs Redis.")
def serve(host: str | None, port: int | None, workers: int | None, **where: Any) -> None:
    """Start the gateway. Without any configuration, it answers with a small model of its own."""
    # Imported here, as in `_serve`: `--help` and a mistake in the configuration need none of it.
    import uvloop

    from ..server.observe import set_up_log
    from .workers import supervise

    config = read_options(**where, host=host, port=port, workers=workers)
    set_up_log(config.telemetry)
    uvloop.run(_serve(config) if config.server.workers == 1 else supervise(config))


async def _serve(config: Config) -> None:
    from ..models.embedded import EmbeddedModel
    from ..server import create_app
    from ..upstream import UpstreamClient
    from .greeting import greet
    from .http_server import Server, listen
    from .local import local_engine

    sockets = listen(config.server.host, config.server.port)
    transport = UpstreamClient(config.limits)
    engine = await local_engine(config.local) if config.use_local else None
    local = EmbeddedModel(engine, transport) if engine is not None else None
    server = Server(create_app(config, local, transport))

    async def when_up() -> None:
        await server.up()
        await greet(config, sockets, engine)

    greeting = asyncio.create_task(when_up())
    try:
        await server.until_told(sockets)
    finally:
        greeting.cancel()
