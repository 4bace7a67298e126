"""The configuration: one TOML file, checked whole on start.

Every mistake is named with its key and what would be right, all of them at once. Secrets are never in the file: they
come from the environment, under the providers' usual names or one that the file gives.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import ConfigError
from ..providers.profiles import Profile, builtin_profiles, load_profiles
from ..transport import Limits


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    allow_unauthenticated: bool = False
    """Whether to listen where others can reach it without knowing who they are."""
    max_body_bytes: int = 32 * 1024 * 1024
    reasoning_events: Literal["openresponses", "openai"] = "openresponses"
    """Whose names raw reasoning events have unless a request says otherwise."""
    default_model: str | None = None
    """The model for requests that name none; by default the first there is."""
    shutdown_seconds: float = 30.0
    """How long open streams may go on after the server was told to stop."""


class ProviderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One upstream."""

    profile: str | None = None
    """The dialect; by default the provider's own name."""
    base_url: str | None = None
    api_key_env: str | None = None
    account: str | None = None
    headers: dict[str, str] = {}
    models: list[str] = []
    """The models it serves; empty: any that is asked for."""
    limits: Limits | None = None


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model under a public name."""

    provider: str
    model: str | None = None
    """What the provider calls it; by default the public name."""
    settings: dict[str, Any] = {}


class LocalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The embedded model."""

    enabled: bool | None = None
    """By default: when no provider is configured."""
    model: str | None = None
    path: str | None = None
    """A weight file of one's own, instead of the catalogue's."""
    threads: int | None = None
    context: int | None = None


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: ServerConfig = ServerConfig()
    limits: Limits = Limits()
    providers: dict[str, ProviderConfig] = {}
    models: dict[str, ModelConfig] = {}
    local: LocalConfig = LocalConfig()
    profiles: dict[str, dict[str, Any]] = {}

    @property
    def use_local(self) -> bool:
        return not self.providers if self.local.enabled is None else self.local.enabled

    def all_profiles(self) -> dict[str, Profile]:
        """The built-in rows and the file's own."""
        known = builtin_profiles()
        return {**known, **load_profiles(self.profiles, known)}


def read_config(path: Path) -> Config:
    """The configuration in a file. Raises `ConfigError`."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error
    return check_config(table)


def check_config(table: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Config:
    """A configuration from a table, or `ConfigError` with every mistake in it."""
    mistakes = _unknown_keys(table, Config, "")
    known = {name: value for name, value in table.items() if name in Config.__struct_fields__}
    sections: dict[str, Any] = {}
    for field in msgspec.structs.fields(Config):
        if field.name not in known:
            continue
        try:
            sections[field.name] = msgspec.convert(known[field.name], field.type)
        except msgspec.ValidationError as error:
            said = str(error)
            if "unknown field" not in said:  # those are all named already, with what was probably meant
                mistakes.append(
                    f"{field.name}: {said.replace('`$.', f'`{field.name}.').replace('`$', f'`{field.name}')}"
                )
    config = Config(**sections)
    mistakes += _inconsistencies(config, environ)
    if mistakes:
        raise ConfigError(mistakes)
    return config


def _unknown_keys(table: Any, to: Any, at: str) -> list[str]:
    """Keys that nothing reads, each with the nearest that something does."""
    if not isinstance(table, Mapping):
        return []
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(to)}
    mistakes: list[str] = []
    for name, value in table.items():
        path = f"{at}{name}"
        if name not in fields:
            near = get_close_matches(name, fields, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(fields))}"
            mistakes.append(f"{path}: no such key; {meant}")
            continue
        inner = _STRUCT_OF.get(name if at == "" else f"*.{name}")
        if inner is None:
            continue
        entries = value.items() if name in ("providers", "models") and at == "" and isinstance(value, Mapping) else ()
        for key, entry in entries:
            mistakes += _unknown_keys(entry, inner, f"{path}.{key}.")
        if not (name in ("providers", "models") and at == ""):
            mistakes += _unknown_keys(value, inner, f"{path}.")
    return mistakes


_STRUCT_OF: dict[str, Any] = {
    "server": ServerConfig,
    "limits": Limits,
    "providers": ProviderConfig,
    "models": ModelConfig,
    "local": LocalConfig,
    "*.limits": Limits,
}


def _inconsistencies(config: Config, environ: Mapping[str, str]) -> list[str]:
    mistakes: list[str] = []
    try:
        profiles = config.all_profiles()
    except ConfigError as error:
        mistakes += error.mistakes
        profiles = builtin_profiles()
    for name, provider in config.providers.items():
        wanted = provider.profile or name
        profile = profiles.get(wanted)
        if profile is None:
            near = get_close_matches(wanted, profiles, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(profiles))}"
            mistakes.append(f"providers.{name}.profile: no profile {wanted!r}; {meant}")
            continue
        url = provider.base_url or profile.base_url
        if not url.startswith(("http://", "https://")):
            mistakes.append(
                f"providers.{name}.base_url: {url!r} is not an http:// or https:// address"
                if url
                else f"providers.{name}.base_url: {profile.title} has no address of its own, so one is required"
            )
        if provider.api_key_env is not None and provider.api_key_env not in environ:
            mistakes.append(f"providers.{name}.api_key_env: the environment has no {provider.api_key_env}")
    for name, model in config.models.items():
        if model.provider not in config.providers and model.provider != "local":
            there = ", ".join(sorted(config.providers)) or "none"
            mistakes.append(f"models.{name}.provider: no provider {model.provider!r}; configured are: {there}")
    if config.local.enabled is False and not config.providers:
        mistakes.append("providers: there is no model to serve: configure a provider, or let [local] be enabled")
    if config.server.workers > 1:
        mistakes.append("server.workers: only 1 is possible yet")
    return mistakes


def api_key(provider: ProviderConfig, profile: Profile, environ: Mapping[str, str] = os.environ) -> str | None:
    """The provider's key from the environment; None when there is none."""
    names = [provider.api_key_env] if provider.api_key_env is not None else profile.api_key_env
    return next((environ[name] for name in names if environ.get(name)), None)
