"""Routes with which the page connects models: `/api/connections`, `/api/providers`, `/api/models/default`.

They are for operators and, where no credentials are required, for clients on the gateway's own machine
(`Guard.check_may_connect`). No response contains a key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..errors import RequestError
from ..local import model_index
from ..local.fetch import cached_path
from ..protocols import chat
from ..protocols.decoding import decode
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles, hidden_row
from ..telemetry import log
from .access.config import is_loopback
from .connection_check import CheckedConnection, check_connection, private_address_problem
from .connections import Connection, ConnectionBody
from .exchange import Exchange
from .feed import ModelsChanged
from .routing import Handlers, Operation, Table, parameter
from .services import Services

COMMON_PROVIDERS = (
    *("openai", "anthropic", "google", "openrouter", "deepseek", "mistral", "groq", "xai"),
    *("ollama", "lmstudio", "llama.cpp", "vllm", "openai-compat"),
)
"""The providers that are offered first, by the names that people write."""


class Provider(msgspec.Struct, kw_only=True):
    """A provider that can be connected."""

    profile: str
    title: str
    names: list[str]
    """Other names, by which it is found."""
    base_url: str
    """Its usual address; empty: it has none."""
    key: Literal["required", "optional"]
    local: bool
    """Whether its usual address is on the gateway's own machine."""
    common: bool


class LargerModel(msgspec.Struct, kw_only=True):
    """A model that can run inside the gateway, instead of a smaller one or of none. Nothing is fetched unasked."""

    name: str
    title: str
    note: str
    """What it is good for."""
    bytes: int
    """The size of its download."""
    memory_bytes: int
    licence: str
    licence_url: str
    cached: bool
    """Whether it was fetched before."""
    command: str
    """The command that starts the gateway with it, and fetches it before."""
    install: str | UnsetType = UNSET
    """The command that installs the engine, if it is missing."""


class Providers(msgspec.Struct):
    data: list[Provider]
    larger_models: list[LargerModel]
    """Empty if the gateway does not use the embedded engine."""


class DefaultModelBody(msgspec.Struct, forbid_unknown_fields=True):
    model: str | None
    """The model that answers where a request names none. null: as without a choice."""


class ConnectionInfo(msgspec.Struct, kw_only=True):
    """A connection, without its key."""

    name: str
    profile: str
    title: str
    base_url: str
    models: list[str]
    served_as: list[str]
    """The public names of its models."""
    has_key: bool
    private_addresses: Annotated[
        list[str] | UnsetType, Meta(description="The addresses of an own network to which an operator agreed.")
    ] = UNSET
    key_end: Annotated[str | UnsetType, Meta(description="The last characters of a key that is long enough.")] = UNSET
    replaced: Annotated[
        Literal[True] | UnsetType, Meta(description="The configuration file has a provider of this name.")
    ] = UNSET


class Connections(msgspec.Struct):
    data: list[ConnectionInfo]
    taken: list[str]
    """Names that connections cannot have, as the configuration file has them."""
    problems: list[str]
    """Why the file of connections, or a part of it, is not used. While there are any, nothing can be changed."""
    file: str


class ConnectionTestBody(msgspec.Struct, forbid_unknown_fields=True):
    """A connection to be tested."""

    profile: str
    base_url: str | None = None
    api_key: str | None = None
    """null: the key of the connection `name`, if the address is still that of its server."""
    model: str | None = None
    """The model that gets a short question. null: the provider is asked for its list of models."""
    name: str | None = None
    private_addresses: list[str] | None = None
    """The addresses of an own network that the server may have. null: those of the connection `name`."""


class DeletedConnection(msgspec.Struct):
    name: str
    deleted: Literal[True] = True


class ConnectionHandlers(Handlers):
    """Handlers of these routes."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._connections = services.connections

    async def providers(self, exchange: Exchange) -> None:
        self._check(exchange)
        config, local = self._services.config, self._services.local
        larger = await asyncio.to_thread(larger_models, local.name if local is not None else None)
        await exchange.send_json(
            Providers(
                offered_providers(config.profiles, self._connections.profiles),
                larger if config.uses_local_model else [],
            )
        )

    async def read(self, exchange: Exchange) -> None:
        self._check(exchange)
        current = await self._services.refresh_connections()
        infos = [self._info(name, connection) for name, connection in current.connections.items()]
        taken = ["local", *self._services.config.providers]
        await exchange.send_json(Connections(infos, taken, [*current.mistakes], str(self._connections.path)))

    async def check(self, exchange: Exchange) -> None:
        self._check(exchange)
        body = decode(await exchange.read_body(self._services.config.server), ConnectionTestBody)
        connected = (await self._services.refresh_connections()).connections
        known = connected.get(body.name) if body.name is not None else None
        models = [] if body.model is None else [body.model]
        values = ConnectionBody(body.profile, models, body.base_url, body.api_key, body.private_addresses)
        connection = self._connections.resolve_connection(known, values)
        needed = await self._connections.addresses_to_agree_to(connection)
        if needed:
            problem = private_address_problem(self._connections.url_of(connection), needed)
            result = CheckedConnection(ok=False, models=[], has_list=False, problem=problem)
        else:
            self._connections.check(connection)
            profile = self._profile_of(connection)
            result = await check_connection(connection, profile, self._connections, body.model)
        if result.base_url is UNSET and connection.base_url != (body.base_url or None):
            result.base_url = connection.base_url or UNSET
        await exchange.send_json(result)

    async def save(self, exchange: Exchange) -> None:
        self._check(exchange)
        body = decode(await exchange.read_body(self._services.config.server), ConnectionBody)
        name = exchange.path_params["name"]
        known = (await self._services.refresh_connections()).connections.get(name)
        connection = self._connections.resolve_connection(known, body)
        if needed := await self._connections.addresses_to_agree_to(connection):
            message = private_address_problem(self._connections.url_of(connection), needed).message
            raise RequestError(message, code="private_address", param="base_url")
        connection = await asyncio.to_thread(self._connections.save, name, body)
        await self._services.refresh_connections()
        info = self._info(name, connection)
        host = urlsplit(info.base_url).netloc
        own = f" (agreed: {', '.join(connection.private_addresses)})" if connection.private_addresses else ""
        log.warning(
            "%s saved the connection %s: %s at %s%s, %d models",
            exchange.principal.log_name,
            name,
            info.profile,
            host,
            own,
            len(info.models),
        )
        self._services.feed.publish_to_all(ModelsChanged())
        await exchange.send_json(info)

    async def delete(self, exchange: Exchange) -> None:
        self._check(exchange)
        name = exchange.path_params["name"]
        await asyncio.to_thread(self._connections.delete, name)
        await self._services.refresh_connections()
        log.warning("%s deleted the connection %s", exchange.principal.log_name, name)
        self._services.feed.publish_to_all(ModelsChanged())
        await exchange.send_json(DeletedConnection(name))

    async def choose_default(self, exchange: Exchange) -> None:
        self._check(exchange)
        body = decode(await exchange.read_body(self._services.config.server), DefaultModelBody)
        configured = self._services.config.server.default_model
        if configured is not None and body.model is not None:
            raise RequestError(
                f"the configuration names the default model (server.default_model: {configured!r}), which is used",
                kind="conflict",
                code="default_configured",
                param="model",
            )
        if body.model is not None:
            await self._services.find_model(body.model)
        await asyncio.to_thread(self._connections.choose_default, body.model)
        await self._services.refresh_connections()
        log.warning("%s chose the default model: %s", exchange.principal.log_name, body.model)
        self._services.feed.publish_to_all(ModelsChanged())
        await exchange.send_json(body)

    def _check(self, exchange: Exchange) -> None:
        self._services.guard.check_may_connect(exchange.scope, exchange.principal)
        exchange.response_headers.append((b"cache-control", b"no-store"))

    def _profile_of(self, connection: Connection) -> Profile:
        """Return the profile of a connection, as the catalog uses it."""
        return self._connections.profiles[self._services.config.profile_name_of("", connection.as_provider())]

    def _info(self, name: str, connection: Connection) -> ConnectionInfo:
        profile = self._profile_of(connection)
        is_replaced = self._connections.is_replaced(name)
        return ConnectionInfo(
            name=name,
            profile=connection.profile,
            title=profile.title,
            base_url=connection.base_url or profile.base_url,
            models=connection.models,
            served_as=[] if is_replaced else self._services.catalog.names_of(name),
            has_key=connection.api_key is not None,
            private_addresses=list(connection.private_addresses) or UNSET,
            key_end=connection.key_end or UNSET,
            replaced=True if is_replaced else UNSET,
        )


def larger_models(name: str | None) -> list[LargerModel]:
    """Return the embedded models that are larger than one.

    Args:
        name: The one that is used; None: the gateway has none.
    """
    return [
        LargerModel(
            name=model.name,
            title=model.title,
            note=model.note,
            bytes=model.bytes,
            memory_bytes=model.memory,
            licence=model.licence,
            licence_url=model.licence_url,
            cached=cached_path(model) is not None,
            command=f"pellucid serve --local-model {model.name}",
            install=UNSET if model_index.is_engine_installed() else model_index.INSTALL_COMMAND,
        )
        for model in model_index.larger_models(name)
    ]


def offered_providers(own_rows: Iterable[str], profiles: Mapping[str, Profile]) -> list[Provider]:
    """Return the providers that can be connected: the common ones first, the others by their titles.

    Args:
        own_rows: The names of the configuration's own profiles.
        profiles: All profiles by all their names.
    """
    rows = {name: profiles[name] for name in own_rows}
    for row in builtin_profiles().values():
        name = row.name if hidden_row(row.name) is None else row.aliases[0]
        common = next((alias for alias in row.aliases if alias in COMMON_PROVIDERS), name)
        rows.setdefault(common, row)
    providers = [_provider(name, row) for name, row in rows.items()]
    order = {name: index for index, name in enumerate(COMMON_PROVIDERS)}
    return sorted(providers, key=lambda one: (order.get(one.profile, len(order)), one.title.casefold()))


def _provider(name: str, row: Profile) -> Provider:
    hidden = hidden_row(name)
    # An alias that hides another row has that row's title, and the other row says what it is.
    title = hidden.title if hidden is not None else row.title
    if hidden_row(row.name) is not None:
        title = f"{row.title}, Chat Completions"
    return Provider(
        profile=name,
        title=title,
        names=[other for other in dict.fromkeys((row.name, *row.aliases)) if other != name],
        base_url=row.base_url,
        key="optional" if row.auth in ("optional", "none") else "required",
        local=is_loopback(urlsplit(row.base_url).hostname or ""),
        common=name in COMMON_PROVIDERS,
    )


_ERRORS = (400, 401, 403, 408, 413, 429, 500, 503)
TABLE = Table(
    [
        Operation(
            "GET",
            "/api/connections",
            ConnectionHandlers.read,
            "listConnections",
            "The models that were connected in the page, without keys",
            response_body=Connections,
            is_operator_only=True,
        ),
        Operation(
            "POST",
            "/api/providers/test",
            ConnectionHandlers.check,
            "testConnection",
            "Send a request to a provider, before its connection is saved",
            response_body=CheckedConnection,
            request_body=ConnectionTestBody,
            is_operator_only=True,
        ),
        Operation(
            "PUT",
            "/api/connections/{name}",
            ConnectionHandlers.save,
            "saveConnection",
            "Create or replace a connection; its models can be used at once",
            response_body=ConnectionInfo,
            request_body=ConnectionBody,
            error_statuses=(*_ERRORS, 409),
            is_operator_only=True,
        ),
        Operation(
            "DELETE",
            "/api/connections/{name}",
            ConnectionHandlers.delete,
            "deleteConnection",
            "Delete a connection; runs in progress end as usual",
            response_body=DeletedConnection,
            error_statuses=(*_ERRORS, 404, 409),
            is_operator_only=True,
        ),
        Operation(
            "PUT",
            "/api/models/default",
            ConnectionHandlers.choose_default,
            "chooseDefaultModel",
            "Choose the model that answers where a request names none",
            response_body=DefaultModelBody,
            request_body=DefaultModelBody,
            error_statuses=(*_ERRORS, 404, 409),
            is_operator_only=True,
        ),
        Operation(
            "GET",
            "/api/providers",
            ConnectionHandlers.providers,
            "listProviders",
            "The providers that can be connected, and larger models that can run inside the gateway",
            response_body=Providers,
            is_operator_only=True,
        ),
    ],
    protocol=chat.PROTOCOL,
    metrics_name="plain",
    handlers=[ConnectionHandlers],
    error_body="ChatErrorBody",
    error_statuses=_ERRORS,
    path_parameters={"name": parameter("name", "path", "The connection's name, which is that of a provider.")},
)
