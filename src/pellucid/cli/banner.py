"""What `pellucid serve` says once it is up: where it is, and a command to see a model think that works as it stands."""

from __future__ import annotations

import ipaddress
import os
import socket

import click

from ..errors import PellucidError
from ..local.supervisor import Engine
from ..models.embedded import LOAD_SECONDS
from ..providers.profile import Profile
from ..server import Config
from ..server.config import ProviderConfig, find_api_key
from ..storage import open_store


async def print_banner(config: Config, sockets: list[socket.socket], engine: Engine | None) -> None:
    """To be called when it listens."""
    address, note = address_of(config.server.host, sockets[0].getsockname()[1])
    _print(f"{click.style('Pellucid', bold=True)} listens on {click.style(address, fg='cyan')}{note}")
    if engine is not None:
        _print(f"  loading {engine.model.title} …")
        try:
            await engine.wait_ready(LOAD_SECONDS)
        except PellucidError as error:
            _print(f"  it did not load: {error.info.full_message}")
            return
        _print("  ready. It is a small model, for trying things out; the README says how to use a better one.")
    profiles = config.all_profiles()
    for name, provider in config.providers.items():
        if remedy := missing_key_hint(provider, profiles[provider.profile or name]):
            _print(click.style(f"  {name} wants a key, and the environment has none: {remedy}", fg="yellow"))
        models = ", ".join(provider.models) or "any model it has"
        _print(f"  {name}: {models}")
    model = "" if engine is not None or has_default_model(config) else '"model": "MODEL", '
    variable, requirement = await credential_hint(config) or ("", "")
    requirements = [need for need in ("the name of a model for MODEL" if model else "", requirement) if need]
    if config.server.page:
        # The page offers what has a name.
        condition = " (once a model is named: --upstream-model)" if model else ""
        _print(f"Ask it in a browser{condition}: {click.style(f'{address}/', fg='cyan')}")
    if config.spaces or await _store_has(config.store_url(), spaces=True):
        _print(f"Its spaces: {click.style(f'{address}/spaces', fg='cyan')}")
    _print(f"See it think{', with ' if requirements else ''}{' and '.join(requirements)}:")
    header = f'-H "Authorization: Bearer ${variable}" ' if variable else ""
    _print(
        f"""  curl -N {address}/v1/responses {header}-H 'Content-Type: application/json' \\
    -d '{{{model}"input": "A train travels 60 km in 45 minutes. How fast is it?", "stream": true}}'"""
    )


def _print(text: str) -> None:
    # Each line whole, however long: it may be read from a file. With rich, a gateway would keep 2 MB for this.
    click.echo(text, err=True, color=False if os.environ.get("NO_COLOR") else None)


def address_of(host: str, port: int) -> tuple[str, str]:
    """An address at which it can be asked from here, and what is to be said beside it."""
    try:
        is_unspecified = not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_unspecified = False
    if is_unspecified:
        loopback = "[::1]" if ":" in host else "127.0.0.1"
        return f"http://{loopback}:{port}", ", and on every other address of this machine"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}", ""


def missing_key_hint(provider: ProviderConfig, profile: Profile) -> str | None:
    """What to do about a provider's key that is not there and is wanted."""
    if profile.auth in ("optional", "none", "aws") or find_api_key(provider, profile) is not None:
        return None
    usual_variables = f"set {' or '.join(profile.api_key_env)}, or " if profile.api_key_env else ""
    return f"{usual_variables}name the variable that holds it (--api-key-env, or api_key_env in the configuration)"


def has_default_model(config: Config) -> bool:
    has_listed_models = any(provider.models for provider in config.providers.values())
    return config.server.default_model is not None or bool(config.models) or has_listed_models


async def credential_hint(config: Config) -> tuple[str, str] | None:
    """The shell variable that whoever asks may have a credential in, and what has to be there first; None where nobody
    needs one."""
    access = config.access
    if access.key_env is not None:
        return access.key_env, ""
    if access.keys or (access.keys is None and access.jwt is None and await _store_has(config.store_url())):
        return "KEY", "a key in $KEY (`pellucid keys create --owner ME` makes one)"
    return ("TOKEN", "a token of your issuer in $TOKEN") if access.jwt is not None else None


async def _store_has(url: str, *, spaces: bool = False) -> bool:
    """Whether keys, or spaces, are kept there."""
    try:
        store = await open_store(url)
    except PellucidError:
        return False
    try:
        return bool(await (store.spaces.list() if spaces else store.keys.list()))
    except PellucidError:
        return False
    finally:
        await store.aclose()
