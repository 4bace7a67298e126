"""What the configuration names, as the thing itself: tools, MCP servers, the writer of summaries, seal keys.

`config` says whether the file is right in itself. Whether what it names is there, is known when it is made:
`check_named` makes all of it, tells everything that is missing, and keeps nothing. It does what the first moment of a
start does, and no more: no file is made, no address connected to, no program started; an operator's own modules are
imported.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from ..errors import ConfigError, PellucidError
from ..models import Asked
from ..record import Recording, ensure_record_keys, find_record_keys
from ..relay import check_relay_url
from ..runs.summaries import ModelWriter, Writer
from ..sealing import KeyFile, Keys, env_keys, read_keys
from ..storage import check_store_url
from ..tools import AnyTool, load_tools
from ..tools.mcp import MCPServer
from ..upstream import UpstreamClient
from .access.jwks import check_jwks_file
from .access.pepper import check_pepper
from .catalog import Catalog
from .config import Config, MCPConfig
from .observe import exporting, flush
from .space_config import read_tokens


def functions(config: Config) -> list[AnyTool]:
    """The operator's own. Raises `ConfigError`."""
    return load_tools(config.tools.functions, key="tools.functions")


def mcp_server(name: str, config: MCPConfig) -> MCPServer:
    """Not connected to yet. Raises `ConfigError`."""
    headers = {**config.headers, **{header: os.environ[variable] for header, variable in config.headers_env.items()}}
    try:
        return MCPServer(
            name,
            command=config.command,
            args=config.args,
            env=config.env,
            url=config.url,
            headers=headers,
            allowed_tools=config.allowed_tools,
            timeout=config.timeout_seconds,
        )
    except PellucidError as error:
        raise ConfigError([f"tools.mcp.{name}: {error.info.message}"]) from error


def summary_writer(config: Config, catalog: Catalog, local: Asked | None) -> Writer | None:
    """Who writes the summaries of models that make none, if anybody does. Raises `ConfigError`."""
    name = config.summaries.model
    if name == "none":
        return None
    if name is None:
        return ModelWriter(local) if local is not None else None
    try:
        return ModelWriter(catalog.find(name)[1])
    except PellucidError as error:
        raise ConfigError([f"summaries.model: {error.info.message.removeprefix('model: ')}"]) from error


def seal_keys(config: Config) -> Callable[[], Keys]:
    """Those there are now, whenever asked. Raises `ConfigError`."""
    keys = env_keys()
    if keys is not None:
        return lambda: keys
    return KeyFile(config.seal_keys_path())


def recording(config: Config) -> Recording:
    """Whether what is stored is recorded, and by whose key. Raises `ConfigError`."""
    # What was recorded before may still be deleted where nothing is any more, which its chains say.
    keys = (ensure_record_keys if config.record.enabled else find_record_keys)(config.record_key_path())
    return Recording(config.record.enabled, keys.signers if keys is not None else ())


def check_named(config: Config, local: Asked | None) -> list[str]:
    """Every mistake that starting would find before it opens anything. `local`: the embedded model, where it is on."""
    mistakes: list[str] = []

    @contextmanager
    def noted(key: str = "") -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            mistakes.extend(key + mistake for mistake in error.mistakes)

    with noted():
        _check_host(config.server.host)
    with noted():
        summary_writer(config, Catalog(config, UpstreamClient(config.limits), local), local)
    with noted():
        functions(config)
    for name, server in config.tools.mcp.items():
        with noted():
            mcp_server(name, server)
    with noted():
        flush(exporting(config.telemetry))
    with noted("sealing.keys_file: "):
        if env_keys() is None and (path := config.seal_keys_path()).exists():
            read_keys(path)
    with noted("record.key_file: "):
        if config.record.enabled:
            find_record_keys(config.record_key_path())
    with noted():
        if config.access.keys is not False:
            pepper = config.access.pepper_file
            check_pepper(Path(pepper) if pepper is not None else None)
    with noted():
        if config.access.jwt is not None and config.access.jwt.jwks_file is not None:
            check_jwks_file(config.access.jwt.jwks_file)
    with noted():
        read_tokens(config.spaces, os.environ)
    with noted("storage.url: "):
        if (config.storage.url or config.storage.url_env) is not None:
            check_store_url(config.store_url())
    with noted("relay.url: "):
        check_relay_url(config.relay_url())
    if local is not None and find_spec("xllamacpp") is None:
        mistakes.append("local.enabled: the embedded model needs an extra: pip install 'pellucid[local]'")
    return mistakes


def _check_host(host: str) -> None:
    try:
        socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError([f"server.host: {host!r}: {error.strerror}"]) from error
