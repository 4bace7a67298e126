"""Options that several commands share, their conversion to a configuration, and safe output of foreign text."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import ConfigError
from ..unicode import did_you_mean

if TYPE_CHECKING:
    from ..server.config import Config

_CONTROL_CHARACTERS = dict.fromkeys(
    [*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)


def strip_controls(text: str) -> str:
    """Remove control characters, except line feed and tab: text of a model must not control the terminal.

    Those that change the direction of what follows are removed, too: with them a line can show what it does not say.
    """
    return text.translate(_CONTROL_CHARACTERS)


F = TypeVar("F", bound=Callable[..., Any])


def option_group(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds several options to a command."""

    def add(command: F) -> F:
        for option in options:
            command = option(command)
        return command

    return add


model_options = option_group(
    click.option("--config", "file", type=click.Path(path_type=Path), help="A TOML file (see docs/configuration.md)."),
    click.option("--provider", metavar="NAME", help="The upstream's profile: vllm, openai, deepseek …"),
    click.option("--upstream", metavar="URL", help="The upstream's address, including /v1."),
    click.option("--upstream-model", metavar="M", help="The model's name there."),
    click.option("--api-key-env", metavar="VAR", help="The environment variable that holds the upstream's key."),
    click.option("--local-model", metavar="NAME", help="The embedded model, by name or as a path to a GGUF file."),
)
"""The options that locate the models: a configuration file, or one upstream."""


def read_options(
    file: Path | None,
    provider: str | None,
    upstream: str | None,
    upstream_model: str | None,
    api_key_env: str | None,
    local_model: str | None,
    **server: Any,
) -> Config:
    """Build the configuration from the options, and from the configuration file if there is one.

    Raises:
        ConfigError: The options or the file are invalid.
    """
    from ..providers.profiles import named_profiles
    from ..server.config import DEFAULT_FILE, check_config, read_config

    table: dict[str, Any] = {}
    if provider is None and upstream is None:
        for option, value in (("--upstream-model", upstream_model), ("--api-key-env", api_key_env)):
            if value is not None:
                raise ConfigError([f"{option}: it needs an upstream; give --provider or --upstream too"])
    if file is not None or DEFAULT_FILE.exists():
        base = read_config(file or DEFAULT_FILE)
        if not (provider or upstream or local_model or any(value is not None for value in server.values())):
            return base
        table = tomllib.loads((file or DEFAULT_FILE).read_text("utf-8"))
    if upstream is not None and provider is None:
        provider = "openai-compat"
    if provider is not None:
        known = {*named_profiles(), *table.get("profiles", {})}
        if provider not in known:
            raise ConfigError([f"--provider: no profile {provider!r}; {did_you_mean(provider, known)}"])
        models = [upstream_model] if upstream_model is not None else None
        options = {"base_url": upstream, "api_key_env": api_key_env, "models": models}
        table["providers"] = {provider: {key: value for key, value in options.items() if value is not None}}
        table.pop("models", None)
    if local_model is not None:
        key = "path" if local_model.endswith(".gguf") or "/" in local_model else "model"
        table["local"] = {"enabled": True, key: local_model}
    server_options = {name: value for name, value in server.items() if value is not None}
    if server_options:
        table["server"] = {**table.get("server", {}), **server_options}
    return check_config(table, os.environ)
