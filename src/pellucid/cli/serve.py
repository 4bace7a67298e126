"""`pellucid serve`: runs the gateway in this process or in several worker processes."""

from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from .options import model_options, read_options

if TYPE_CHECKING:
    from ..server import Config

MAX_OPEN_FILES = 65_536
"""Each connection is an open file. The usual soft limit of a process, 1024, is far below the hard one."""


@click.command()
@model_options
@click.option("--host", metavar="H", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=int, metavar="P", help="The port to listen on (8080).")
@click.option("--workers", type=int, metavar="N", help="How many processes (1); more than one needs Redis.")
def serve(host: str | None, port: int | None, workers: int | None, **where: Any) -> None:
    """Start the gateway. Without any configuration, it answers with a small model of its own (the extra `local`)."""
    # Imported here, as in `_serve`, because `--help` and an error in the configuration do not need these modules.
    import uvloop

    from ..server.observability import configure_logging
    from ..storage.gateway_lock import gateway_lock
    from .banner import address_of
    from .worker_supervisor import supervise

    config = read_options(**where, host=host, port=port, workers=workers)
    configure_logging(config.telemetry)
    _raise_open_files_limit()
    port = config.server.port
    address = address_of(config.server.host, port)[0] if port else ""  # with 0, the system chooses the port
    with gateway_lock(config.store_url(), address):
        uvloop.run(_serve(config) if config.server.workers == 1 else supervise(config))


def _raise_open_files_limit() -> None:
    """Raise the soft limit of open files as far as the hard limit permits; child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with suppress(ValueError, OSError):  # a system may have a lower maximum
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


async def _serve(config: Config) -> None:
    from ..models.embedded import EmbeddedModel
    from ..server import create_app
    from ..upstream import UpstreamClient
    from .banner import print_banner
    from .http_server import GatewayServer, listen
    from .local import engine_to_serve

    sockets = listen(config.server.host, config.server.port)
    transport = UpstreamClient(config.limits)
    engine = await engine_to_serve(config)
    local = EmbeddedModel(engine, transport) if engine is not None else None
    server = GatewayServer(create_app(config, local, transport))

    async def print_banner_when_up() -> None:
        await server.wait_started()
        await print_banner(config, sockets, engine)

    banner_task = asyncio.create_task(print_banner_when_up())
    try:
        await server.run_until_stopped(sockets)
    finally:
        banner_task.cancel()
