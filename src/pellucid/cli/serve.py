"""`pellucid serve`: the gateway."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import click
import uvicorn
import uvloop
from rich.console import Console

from ..errors import ConfigError
from ..models.embedded import EmbeddedModel
from ..server import Config, create_app
from ..server.app import settings_of
from ..transport import Transport
from .local import embedded_model
from .options import model_options, read_options


@click.command()
@model_options
@click.option("--host", metavar="H", help="The address to listen on (127.0.0.1).")
@click.option("--port", type=int, metavar="P", help="The port to listen on (8080).")
@click.option("--workers", type=int, metavar="N", help="How many processes (1).")
def serve(host: str | None, port: int | None, workers: int | None, **where: Any) -> None:
    """Start the gateway. With no configuration at all, with a small model of its own."""
    config = read_options(**where, host=host, port=port, workers=workers)
    _refuse_open_door(config)
    uvloop.run(_serve(config))


def _refuse_open_door(config: Config) -> None:
    """Without keys, whoever can reach the port can spend the operator's money and read every thought."""
    host = config.server.host
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = host == "localhost"
    if not loopback and not config.server.allow_unauthenticated:
        raise ConfigError(
            [
                f"server.host: {host} can be reached by others, and this server knows no keys yet; listen on 127.0.0.1 "
                "behind a proxy that checks who is asking, or set server.allow_unauthenticated = true"
            ]
        )


async def _serve(config: Config) -> None:
    transport = Transport(config.limits)
    local = await embedded_model(config.local, transport) if config.use_local else None
    app = create_app(config, local, transport)
    server = uvicorn.Server(uvicorn.Config(app, **settings_of(config)))
    greeting = asyncio.create_task(_greet(config, server, local))
    try:
        await server.serve()
    finally:
        greeting.cancel()
    if not server.started:
        raise SystemExit(1)


async def _greet(config: Config, server: uvicorn.Server, local: EmbeddedModel | None) -> None:
    """Say, once it is true, where the server is and how to see a model think."""
    while not server.started:  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0.05)
    console = Console(stderr=True, highlight=False)
    address = f"http://{config.server.host}:{config.server.port}"
    console.print(f"[bold]Pellucid[/] listens on [cyan]{address}[/]")
    if local is not None:
        console.print(f"  loading {local.engine.model.title} …")
        await local.engine.ready(300)
        console.print("  ready. It is a small model, for trying things out; the README says how to use a better one.")
    for name, provider in config.providers.items():
        models = ", ".join(provider.models) or "any model it has"
        console.print(f"  {name}: {models}")
    console.print("See it think:")
    console.print(
        f"""  curl -N {address}/v1/responses -H 'Content-Type: application/json' \\
    -d '{{"input": "A train travels 60 km in 45 minutes. How fast is it?", "stream": true}}'""",
        soft_wrap=True,
        markup=False,
    )
