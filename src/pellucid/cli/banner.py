"""The banner of `pellucid serve`: its address, and a command that can be copied to see a model reason."""

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
from ..server.catalog import NO_MODEL
from ..server.config import ProviderConfig, find_api_key
from ..storage import open_store


async def print_banner(config: Config, sockets: list[socket.socket], engine: Engine | None) -> None:
    """Print the banner. Call it when the gateway accepts connections; it waits until the engine has loaded."""
    address, note = address_of(config.server.host, sockets[0].getsockname()[1])
    _print(f"{click.style('Pellucid', bold=True)} listens on {click.style(address, fg='cyan')}{note}")
    if engine is not None:
        if engine.state == "fetching":
            _print("  It serves while its small model is downloaded: the page can connect another one meanwhile.")
        while engine.state == "fetching":
            await engine.wait_changed()
        if engine.state != "failed":
            _print(f"  loading {engine.model.title} …")
        try:
            await engine.wait_ready(LOAD_SECONDS)
        except PellucidError as error:
            _print(f"  it did not load: {error.info.full_message}")
            return
        _print("  ready. It is a small model, for trying things out; the README explains how to use a better one.")
    profiles = config.all_profiles()
    for name, provider in config.providers.items():
        if remedy := missing_key_hint(provider, profiles[config.profile_name(name)]):
            _print(click.style(f"  {name} needs an API key, and the environment has none: {remedy}", fg="yellow"))
        models = "any model it has" if provider.models is None else ", ".join(provider.models)
        if models:
            _print(f"  {name}: {models}")
    if engine is None and config.uses_local_model:
        _print(click.style(f"  {NO_MODEL}", fg="yellow"))
    if config.models:
        _print(f"  models: {', '.join(config.models)}")
    model = "" if engine is not None or has_default_model(config) else '"model": "MODEL", '
    variable, requirement = await credential_hint(config) or ("", "")
    requirements = [need for need in ("the name of a model for MODEL" if model else "", requirement) if need]
    if config.server.page:
        # The page lists only models that have a name.
        condition = " (once a model is named: --upstream-model)" if model else ""
        _print(f"Use it in a browser{condition}: {click.style(f'{address}/', fg='cyan')}")
    if config.spaces or await _store_has(config.store_url(), spaces=True):
        _print(f"Its spaces: {click.style(f'{address}/spaces', fg='cyan')}")
    if engine is None and config.uses_local_model:
        return  # nothing would answer the command below
    _print(f"See it think{', with ' if requirements else ''}{' and '.join(requirements)}:")
    header = f'-H "Authorization: Bearer ${variable}" ' if variable else ""
    _print(
        f"""  curl -N {address}/v1/responses {header}-H 'Content-Type: application/json' \\
    -d '{{{model}"input": "A train travels 60 km in 45 minutes. How fast is it?", "stream": true}}'"""
    )


def _print(text: str) -> None:
    # Lines are not wrapped, because the output may be read from a file. Importing rich would cost 2 MB of memory.
    click.echo(text, err=True, color=False if os.environ.get("NO_COLOR") else None)


def address_of(host: str, port: int) -> tuple[str, str]:
    """Return a URL at which this machine can reach the gateway, and a note to print after it."""
    try:
        is_unspecified = not host or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        is_unspecified = False
    if is_unspecified:
        loopback = "[::1]" if ":" in host else "127.0.0.1"
        return f"http://{loopback}:{port}", ", and on every other address of this machine"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}", ""


def missing_key_hint(provider: ProviderConfig, profile: Profile) -> str | None:
    """Return how to set a provider's API key if it is required and missing, else None."""
    if profile.auth in ("optional", "none", "aws") or find_api_key(provider, profile) is not None:
        return None
    usual_variables = f"set {' or '.join(profile.api_key_env)}, or " if profile.api_key_env else ""
    return f"{usual_variables}name the variable that holds it (--api-key-env, or api_key_env in the configuration)"


def has_default_model(config: Config) -> bool:
    """Return whether a request without `model` has a model to use."""
    has_listed_models = any(provider.models for provider in config.providers.values())
    return config.server.default_model is not None or bool(config.models) or has_listed_models


async def credential_hint(config: Config) -> tuple[str, str] | None:
    """Return the shell variable for a client's credential, and what the user must put into it.

    The second value is empty if the variable is already set. None: no credential is required.
    """
    access = config.access
    if access.key_env is not None:
        return access.key_env, ""
    if access.keys or (access.keys is None and access.jwt is None and await _store_has(config.store_url())):
        return "KEY", "a key in $KEY (`pellucid keys create --owner ME` makes one)"
    return ("TOKEN", "a token of your issuer in $TOKEN") if access.jwt is not None else None


async def _store_has(url: str, *, spaces: bool = False) -> bool:
    """Return whether the store contains API keys (or spaces)."""
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
