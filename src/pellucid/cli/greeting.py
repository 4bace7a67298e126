"""What `pellucid serve` says once it is up: where it is, and how to see a model think."""

from __future__ import annotations

import socket

from rich.console import Console

from ..errors import PellucidError
from ..local.supervise import Engine
from ..models.embedded import LOAD_SECONDS
from ..server import Config
from ..server.config import api_key


async def greet(config: Config, sockets: list[socket.socket], engine: Engine | None) -> None:
    """To be called when it listens."""
    console = Console(stderr=True, highlight=False)
    host = f"[{config.server.host}]" if ":" in config.server.host else config.server.host
    address = f"http://{host}:{sockets[0].getsockname()[1]}"
    console.print(f"[bold]Pellucid[/] listens on [cyan]{address}[/]")
    if engine is not None:
        console.print(f"  loading {engine.model.title} …")
        try:
            await engine.ready(LOAD_SECONDS)
        except PellucidError as error:
            console.print(f"  it did not load: {error.info.told}", markup=False)
            return
        console.print("  ready. It is a small model, for trying things out; the README says how to use a better one.")
    profiles = config.all_profiles()
    for name, provider in config.providers.items():
        profile = profiles[provider.profile or name]
        if profile.auth not in ("optional", "none", "aws") and api_key(provider, profile) is None:
            wanted = (
                provider.api_key_env or " or ".join(profile.api_key_env) or "a variable and name it with api_key_env"
            )
            console.print(f"  [yellow]{name} wants a key, and the environment has none: set {wanted}[/]")
        models = ", ".join(provider.models) or "any model it has"
        console.print(f"  {name}: {models}")
    default = config.server.default_model or next((name for p in config.providers.values() for name in p.models), None)
    model = "" if engine is not None or default is not None or config.models else '"model": "NAME", '
    console.print("See it think:")
    console.print(
        f"""  curl -N {address}/v1/responses -H 'Content-Type: application/json' \\
    -d '{{{model}"input": "A train travels 60 km in 45 minutes. How fast is it?", "stream": true}}'""",
        soft_wrap=True,
        markup=False,
    )


__all__ = ["greet"]
