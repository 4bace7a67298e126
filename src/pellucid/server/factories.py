"""Creation of what the configuration names: tools, MCP servers, the writers of summaries and titles, seal keys.

`config` checks whether the file is consistent. Whether the things that it names exist is known when they are created.
`check_startup` creates all of them, reports every mistake, and discards the results. It does no more than the beginning
of a start: it creates no file, connects to no address, and starts no program. It does import the operator's modules.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigError, PellucidError
from ..local.model_index import INSTALL_COMMAND, is_engine_installed
from ..models import ChatModel
from ..models.deployments import deployments_of
from ..record import Recording, read_recording
from ..relay import check_relay_url
from ..runs.summaries import SummaryWriter
from ..sealing import KeyFile, Keys, env_keys, read_keys
from ..settings import ModelCall
from ..storage import check_store_url
from ..tools import AnyTool, load_tools
from ..tools.mcp import MCPServer
from ..upstream import UpstreamClient
from .access.jwt import check_jwks_file
from .access.keys import check_pepper
from .agent_model import AgentModel
from .catalog import Catalog
from .config import Config, LocalConfig, MCPConfig
from .observability import create_tracer_provider, shut_down_tracer_provider
from .space_config import read_tokens


def load_functions(config: Config) -> list[AnyTool]:
    """Load the operator's own tools. Raises `ConfigError`."""
    return load_tools(config.tools.functions, key="tools.functions")


def create_mcp_server(name: str, config: MCPConfig) -> MCPServer:
    """Create an MCP server, without connecting to it. Raises `ConfigError`."""
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


def create_summary_writer(config: Config, catalog: Catalog, local: ChatModel | None) -> SummaryWriter | None:
    """Create the writer of summaries for models that make none, if one is configured. Raises `ConfigError`."""
    name = config.summaries.model
    if name == "none":
        return None
    if name is None:
        return SummaryWriter(local) if local is not None else None
    return SummaryWriter(_find_configured(catalog, "summaries.model", name)[1])


def _find_configured(catalog: Catalog, key: str, name: str) -> tuple[str, ChatModel]:
    """Return the model that a key of the configuration names. Raises `ConfigError`."""
    try:
        return catalog.find(name)
    except PellucidError as error:
        raise ConfigError([f"{key}: {error.info.message.removeprefix('model: ')}"]) from error


def find_title_writer(config: Config, catalog: Catalog, answering: str | None) -> tuple[str, ChatModel] | None:
    """Return the model that writes the titles of chats, with its public name; None if none does.

    By default, it is the model that answers, if it is one of a provider, and can do without thinking: the embedded
    model would be busy for seconds, and an agent does more than write.

    Args:
        config: The configuration.
        catalog: The models.
        answering: The public name of the model that answers; None: only whether the configured one exists.

    Raises:
        ConfigError: There is no model of the configured name.
    """
    configured = config.chat.title_model
    if configured == "none":
        return None
    if configured is not None:
        return _find_configured(catalog, "chat.title_model", configured)
    if answering is None:
        return None
    name, model = catalog.find(answering)
    can_write = (
        not isinstance(model, AgentModel)
        and all(catalog.has_provider(one.model.origin.provider) for one in deployments_of(model))
        and not model.warnings(ModelCall(name, [], {"thinking": False}))
    )
    return (name, model) if can_write else None


def create_seal_key_source(config: Config) -> Callable[[], Keys]:
    """Return a function that returns the current seal keys. Raises `ConfigError`."""
    keys = env_keys()
    if keys is not None:
        return lambda: keys
    return KeyFile(config.seal_keys_path())


def load_recording(config: Config) -> Recording:
    """Return whether stored data is recorded, and with which keys. Raises `ConfigError`."""
    # Also where recording is off now, entries of earlier data may be deleted, and their chains must record that.
    is_enabled = config.record.enabled
    return read_recording(config.record_key_path(), is_enabled=is_enabled, create=is_enabled)


def check_startup(config: Config, client: UpstreamClient, local: ChatModel | None) -> list[str]:
    """Return every mistake that a start would find before it opens anything.

    Args:
        config: The configuration.
        client: A client for upstream requests, of which none is sent.
        local: The embedded model, where it is enabled.
    """
    mistakes: list[str] = []

    @contextmanager
    def collect_mistakes(key_prefix: str = "") -> Iterator[None]:
        try:
            yield
        except ConfigError as error:
            mistakes.extend(key_prefix + mistake for mistake in error.mistakes)

    catalog = Catalog(config, client, local)
    with collect_mistakes():
        _check_host(config.server.host)
    with collect_mistakes():
        create_summary_writer(config, catalog, local)
    with collect_mistakes():
        find_title_writer(config, catalog, None)
    with collect_mistakes():
        load_functions(config)
    for name, server in config.tools.mcp.items():
        with collect_mistakes():
            create_mcp_server(name, server)
    with collect_mistakes():
        shut_down_tracer_provider(create_tracer_provider(config.telemetry))
    with collect_mistakes("sealing.keys_file: "):
        if env_keys() is None and (path := config.seal_keys_path()).exists():
            read_keys(path)
    with collect_mistakes("record.key_file: "):
        if config.record.enabled:
            read_recording(config.record_key_path())
    with collect_mistakes():
        if config.access.keys is not False:
            pepper = config.access.pepper_file
            check_pepper(Path(pepper) if pepper is not None else None, os.environ)
    with collect_mistakes():
        if config.access.jwt is not None and config.access.jwt.jwks_file is not None:
            check_jwks_file(config.access.jwt.jwks_file)
    with collect_mistakes():
        read_tokens(config.spaces, os.environ)
    with collect_mistakes("storage.url: "):
        if (config.storage.url or config.storage.url_env) is not None:
            check_store_url(config.store_url())
    with collect_mistakes("relay.url: "):
        check_relay_url(config.relay_url())
    # Without a word about it in the configuration, the gateway starts without it.
    if local is not None and config.local != LocalConfig() and not is_engine_installed():
        mistakes.append(f"local: the embedded model needs an extra: {INSTALL_COMMAND}")
    return mistakes


def _check_host(host: str) -> None:
    try:
        socket.getaddrinfo(host or None, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ConfigError([f"server.host: {host!r}: {error.strerror}"]) from error
