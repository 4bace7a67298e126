"""Models that were connected in the page: `connections.toml` in the data folder.

* The file contains keys, so only its owner may read it. It is replaced, never written in place, under a lock.
* It is read again when it has changed, so a change reaches every process that shares the data folder.
* The configuration file wins: a connection with the name of one of its providers is not used, and a model that the
  configuration serves under a name keeps it (`Catalog`).
* A file that cannot be read, or has mistakes, is never written to: who made it may want to mend it. Its rows without
  mistakes are used.
* Its addresses come from people who use the page. So the egress policy decides about them, when they are saved and for
  each request (`connection_policy`); no variable of the environment gives them a key; and a key is sent only to the
  server for which it was entered.
* An operator may agree that a connection leads to their own network. What is stored with it is each address that they
  agreed to: a name that has another one later is refused then. It holds for this connection and its server alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..data_directory import FileStamp, exclusive_lock, read_secret, replace_secret, stamp_of
from ..egress import EgressError, EgressPolicy
from ..egress.policy import LOOKUP_TIMEOUT_SECONDS, is_own_network, is_special, parse_literal
from ..errors import RequestError
from ..local import LOCAL_PROVIDER
from ..providers.profile import Profile
from ..storage.names import is_storable
from ..telemetry import log
from ..unicode import did_you_mean
from ..upstream import UpstreamClient
from .access.config import is_secret_text
from .agent_model import MAX_NAME_CHARACTERS
from .config import DEFAULT_FILE, Config, ProviderConfig, url_mistakes

MAX_CONNECTIONS, MAX_MODELS = 100, 200
"""The most connections of a file, and models of one."""

MAX_KEY_CHARACTERS = 8192

MAX_PRIVATE_ADDRESSES = 16
"""The most addresses of an own network that a connection may lead to."""

_SHOWN_CHARACTERS = 4
_MIN_SHOWN_KEY = 16
"""The last characters of a key that are shown, and the length from which they are."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_NO_SCHEME = re.compile(r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?P<port>:[0-9]+)?(/[^?#]*)?")
_PASTED_PATHS = ("/chat/completions", "/responses", "/messages")
"""The paths of requests, at the end of addresses that providers show in their examples."""
_HEADER = """\
# Models that were connected in Pellucid's page. This file contains keys: only its owner may read it.
# It is read again when it changes. The configuration file wins where names are the same.
"""


class Connection(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A provider with models, as the page made it. Its name is that of a provider, as in `[providers.NAME]`."""

    profile: str
    models: list[str]
    base_url: str | None = None
    """By default, the address of the profile."""
    api_key: str | None = None
    private_addresses: tuple[str, ...] = ()
    """The addresses outside the public internet that an operator has agreed to, of the server at `base_url`."""

    def __repr__(self) -> str:
        return f"Connection(profile={self.profile!r}, models={self.models!r}, base_url={self.base_url!r})"

    @property
    def key_end(self) -> str | None:
        """The last characters of the key, by which people recognise it; None if there is none, or a short one."""
        key = self.api_key
        return key[-_SHOWN_CHARACTERS:] if key is not None and len(key) >= _MIN_SHOWN_KEY else None

    def as_provider(self) -> ProviderConfig:
        """Return it as a row of the configuration, which never contains the key."""
        return ProviderConfig(profile=self.profile, base_url=self.base_url, models=self.models)


class ConnectionBody(msgspec.Struct, forbid_unknown_fields=True):
    """A connection to be saved."""

    profile: str
    models: Annotated[list[str], Meta(max_length=MAX_MODELS)]
    base_url: str | None = None
    """By default, the provider's usual address."""
    api_key: str | None = None
    """null: the key that is stored; empty: none."""
    private_addresses: list[str] | None = None
    """The addresses of an own network that the server may have. null: those that are stored, for the same server."""


class ConnectionSet(NamedTuple):
    """What the file contained when it was read. It is replaced, and never changed."""

    connections: Mapping[str, Connection] = MappingProxyType({})
    mistakes: tuple[str, ...] = ()
    """Why the file, or a row of it, cannot be used."""
    default_model: str | None = None
    """The public name of the model that was chosen as the default."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    connections: dict[str, dict[str, object]] = {}
    default_model: str | None = None


class ConnectionFile:
    """The connections of a gateway.

    Args:
        path: The file, which need not exist.
        config: The configuration, which has the profiles and wins where names are the same.
    """

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self._config = config
        self._profiles = config.all_profiles()
        self._stamp: FileStamp | None = None
        self._current = ConnectionSet()
        self._reading = threading.Lock()

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles that a connection may have, by name."""
        return self._profiles

    @property
    def has_changed(self) -> bool:
        """Whether the file has changed since `current` read it."""
        return stamp_of(self.path) != self._stamp

    def current(self) -> ConnectionSet:
        """Return the connections, read again if the file has changed. Never raises; may be called in any thread."""
        with self._reading:
            stamp = stamp_of(self.path)
            if stamp != self._stamp:
                self._current = self._read()
                self._stamp = stamp
                for mistake in self._current.mistakes:
                    log.error("%s: %s", self.path, mistake)
            return self._current

    def is_replaced(self, name: str) -> bool:
        """Return whether the configuration file has a provider of this name, which is used instead."""
        return name in self._config.providers

    def save(self, name: str, body: ConnectionBody) -> Connection:
        """Create or replace the connection with this name, and write the file.

        Raises:
            RequestError: A value is wrong, the configuration has this name, or the file must be mended first.
        """
        if self.is_replaced(name):
            raise RequestError(
                f"the configuration file has a provider {name!r}, which would be used instead; choose another name",
                kind="conflict",
                code="name_taken",
                param="name",
            )
        connection: Connection | None = None

        def replace(connections: dict[str, Connection]) -> None:
            nonlocal connection
            known = connections.get(name)
            connection = self.resolve_connection(known, body)
            mistakes = [*self._name_mistakes(name), *self._mistakes(connection)]
            if not connection.models:
                mistakes.append(("models", "choose at least one model"))
            if name not in connections and len(connections) >= MAX_CONNECTIONS:
                mistakes.append(("name", f"there are {MAX_CONNECTIONS} connections, which is the most; delete one"))
            raise_first(mistakes)
            connections[name] = connection

        self._change(replace)
        assert connection is not None
        return connection

    def delete(self, name: str) -> None:
        """Delete a connection, and write the file.

        Raises:
            RequestError: There is none of this name, or the file must be mended first.
        """

        def remove(connections: dict[str, Connection]) -> None:
            if connections.pop(name, None) is None:
                raise RequestError(
                    f"there is no connection {name[:64]!r}", kind="not_found", code="connection_not_found", param="name"
                )

        self._change(remove)

    def choose_default(self, model: str | None) -> None:
        """Choose the default model by its public name (None: none is chosen), and write the file.

        Raises:
            RequestError: The file must be mended first.
        """
        self._change(lambda connections: None, model)

    def resolve_connection(self, known: Connection | None, body: ConnectionBody) -> Connection:
        """Return the connection that a request describes, with what it takes over from the one that it replaces.

        Raises:
            RequestError: The key would be sent to another server than the one for which it was given.
        """
        base_url = self._address_of(body.base_url or "", self._profiles.get(body.profile)) or None
        key = body.api_key.strip() if body.api_key is not None else None
        agreed = tuple(dict.fromkeys(body.private_addresses or ()))
        connection = Connection(body.profile, list(dict.fromkeys(body.models)), base_url, key or None, agreed)
        is_same_server = known is not None and self._server_of(known) == self._server_of(connection)
        if known is not None and is_same_server and body.private_addresses is None:
            connection = msgspec.structs.replace(connection, private_addresses=known.private_addresses)
        if key is not None or known is None or known.api_key is None:
            return connection
        if not is_same_server:
            raise RequestError(
                "api_key: the address is another one now, so enter the key again", code="key_needed", param="api_key"
            )
        return msgspec.structs.replace(connection, api_key=known.api_key)

    @staticmethod
    def _address_of(text: str, profile: Profile | None) -> str:
        """Return the base URL that people mean who type or paste an address.

        Without a scheme, it is `http` for an own network or a port, and otherwise `https`. What the gateway adds to a
        base URL itself, such as `/chat/completions`, is removed.
        """
        url = text.strip().rstrip("/")
        if (host := _NO_SCHEME.fullmatch(url)) is not None:
            name = host["name"].lower()
            url = f"{'http' if host['port'] or is_special(name.strip('[]')) else 'https'}://{url}"
        own_path = (profile.path,) if profile is not None else ()
        for path in (*own_path, *_PASTED_PATHS):
            if url.endswith(path):
                return url.removesuffix(path).rstrip("/")
        return url

    def check(self, connection: Connection) -> None:
        """Check a connection. Raises `RequestError` for the first mistake."""
        raise_first(self._mistakes(connection))

    def url_of(self, connection: Connection) -> str:
        """Return the address of a connection; empty if neither it nor its profile has one."""
        profile = self._profiles.get(connection.profile)
        return connection.base_url or (profile.base_url if profile is not None else "")

    def policy_for(self, connection: Connection) -> EgressPolicy:
        """Return the policy for the addresses of a connection."""
        return connection_policy(self._config, connection)

    async def addresses_to_agree_to(self, connection: Connection) -> list[str]:
        """Return the addresses of an own network that a connection needs, and to which no operator has agreed yet."""
        host = urlsplit(self.url_of(connection)).hostname if self._address_mistake(connection) is None else None
        if not host:
            return []
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                addresses = await self.policy_for(connection).own_network_addresses(host)
        except TimeoutError:
            return []
        return [str(address) for address in addresses[:MAX_PRIVATE_ADDRESSES]]

    def refusal(self, error: EgressError, url: str) -> str:
        """Return the sentence for an address that the policy refuses, with what its operator can do."""
        if error.info.code != "egress_refused":
            return error.info.message
        host = urlsplit(url).hostname
        refused = f"this gateway does not connect to {host}, which is not a public address"
        file = f"{DEFAULT_FILE.resolve()} (or the file that was given with --config)"
        if self._config.egress.allow:
            return f'{refused}. To allow it, add "{host}" to "allow" under [egress] in {file}, and restart the gateway.'
        return f"""{refused}. To allow it, add these two lines to {file}, and restart the gateway:
[egress]
allow = ["{host}"]"""

    # --- the file ----------------------------------------------------------------------------------------------

    def _read(self) -> ConnectionSet:
        try:
            data = read_secret(self.path)[0]
        except FileNotFoundError:
            return ConnectionSet()
        except OSError as error:
            return ConnectionSet(mistakes=(error.strerror or str(error),))
        try:
            read = msgspec.convert(tomllib.loads(data.decode()), _File)
        except (ValueError, msgspec.ValidationError) as error:
            # Not UTF-8, not TOML, a number with too many digits. The texts name keys and places, and no values.
            return ConnectionSet(mistakes=(f"it is damaged: {error}",))
        except RecursionError:
            return ConnectionSet(mistakes=("it is damaged: its values are nested too deeply",))
        connections: dict[str, Connection] = {}
        mistakes: list[str] = []
        default_model = read.default_model
        if default_model is not None and not is_model_name(default_model):
            mistakes.append("default_model: this is not the name of a model")
            default_model = None
        for name, row in read.connections.items():
            try:
                connection = msgspec.convert(row, Connection)
            except msgspec.ValidationError as error:
                mistakes.append(f"connections.{name}: {error}")
                continue
            row_mistakes = [*self._name_mistakes(name), *self._mistakes(connection)]
            mistakes += [f"connections.{name}.{field}: {problem}" for field, problem in row_mistakes]
            if not row_mistakes:
                connections[name] = connection
        return ConnectionSet(MappingProxyType(connections), tuple(mistakes), default_model)

    def _change(
        self, change: Callable[[dict[str, Connection]], None], default_model: str | UnsetType | None = UNSET
    ) -> None:
        """Read the file, change its connections or the default model, and replace it, while no other process does.

        A symbolic link stays: the file to which it leads is replaced, or created.
        """
        try:
            path = Path(os.path.realpath(self.path))
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with exclusive_lock(path):
                read = self._read()
                if read.mistakes:
                    raise RequestError(
                        f"{self.path} cannot be changed, because {read.mistakes[0]}; correct the file, or remove it",
                        kind="conflict",
                        code="connections_damaged",
                    )
                connections = dict(read.connections)
                change(connections)
                default = read.default_model if default_model is UNSET else default_model
                replace_secret(path, _encode(connections, default))
        except OSError as error:
            raise RequestError(
                f"the connections cannot be saved: {error.strerror or error}", kind="unavailable", code="not_saved"
            ) from error

    # --- checks ------------------------------------------------------------------------------------------------

    def _server_of(self, connection: Connection) -> tuple[str, str]:
        """Return the server to which a connection's key is sent."""
        parts = urlsplit(self.url_of(connection))
        return parts.scheme, parts.netloc.lower()

    def _address_mistake(self, connection: Connection) -> str | None:
        """Return what is wrong with the form of a connection's address."""
        url, profile = self.url_of(connection), self._profiles.get(connection.profile)
        if not url:
            return f"enter the address: {profile.title} has no usual one" if profile is not None else None
        return next(iter(url_mistakes(url)), None)

    def _name_mistakes(self, name: str) -> list[tuple[str, str]]:
        if name == LOCAL_PROVIDER:
            return [("name", "this name is that of the embedded model; choose another one")]
        if not _NAME.fullmatch(name):
            return [("name", "a name has 1 to 64 letters, digits and . _ -")]
        return []

    def _mistakes(self, connection: Connection) -> list[tuple[str, str]]:
        """Return the fields that are wrong, each with what would be right. No message contains the key."""
        mistakes: list[tuple[str, str]] = []
        profile = self._profiles.get(connection.profile)
        if profile is None:
            name = connection.profile[:64]
            mistakes.append(("profile", f"there is no provider {name!r}; {did_you_mean(name, self._profiles)}"))
        elif profile.auth == "aws" and connection.api_key is None:
            mistakes.append(("api_key", f"{profile.title} needs a key here"))
        url = self.url_of(connection)
        if problem := self._address_mistake(connection):
            mistakes.append(("base_url", problem))
        elif url:
            try:
                self.policy_for(connection).check_url(url)
            except EgressError as error:
                mistakes.append(("base_url", self.refusal(error, url)))
        mistakes += _agreement_mistakes(connection)
        key = connection.api_key
        if key is not None and (len(key) > MAX_KEY_CHARACTERS or not is_secret_text(key)):
            mistakes.append(("api_key", "this is not a key: it has spaces, or characters that no key has"))
        if len(connection.models) > MAX_MODELS:
            mistakes.append(("models", f"at most {MAX_MODELS} models"))
        mistakes += [
            ("models", f"{model[:80]!r} is not the name of a model")
            for model in connection.models
            if not is_model_name(model)
        ]
        return mistakes


def is_model_name(text: str) -> bool:
    """Return whether a text can name a model of a provider."""
    is_short = 0 < len(text) < MAX_NAME_CHARACTERS
    return is_short and "*" not in text and text.isprintable() and text.strip() == text and is_storable(text)


def raise_first(mistakes: list[tuple[str, str]]) -> None:
    """Raise the first of the mistakes of a request, if there are any: a `RequestError`."""
    for field, problem in mistakes:
        raise RequestError(f"{field}: {problem}", code="invalid_value", param=field)


def connection_policy(config: Config, connection: Connection) -> EgressPolicy:
    """Return the policy for the addresses of a connection.

    It is the one for the addresses that clients name, and allows those that an operator agreed to. Where the
    configuration requires no credentials, clients are on this machine, and its own servers (Ollama, vLLM, …) are
    allowed, too.
    """
    own = [] if config.access.requires_credentials else ["localhost", "127.0.0.0/8", "::1"]
    agreed = filter(_may_be_agreed_to, connection.private_addresses)
    return EgressPolicy([*config.egress.allow, *own, *agreed], names_unknown_hosts=True)


class ConnectionClients:
    """The HTTP clients for requests to connections.

    Connections to the public internet share one. Each server in an own network has one with its own policy and pool, so
    what was agreed to for it is of no use to another connection.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._clients: dict[tuple[str, ...], UpstreamClient] = {}

    def client_for(self, connection: Connection) -> UpstreamClient:
        """Return the client for a connection. May be called in any thread."""
        agreed = connection.private_addresses
        key = (urlsplit(connection.base_url or "").netloc, *agreed) if agreed else ()
        if key not in self._clients:
            policy = connection_policy(self._config, connection)
            self._clients.setdefault(key, UpstreamClient(self._config.limits, policy=policy))
        return self._clients[key]

    async def aclose(self) -> None:
        """Close all clients."""
        for client in self._clients.values():
            await client.aclose()


def _agreement_mistakes(connection: Connection) -> list[tuple[str, str]]:
    mistakes: list[tuple[str, str]] = []
    if len(connection.private_addresses) > MAX_PRIVATE_ADDRESSES:
        mistakes.append(("private_addresses", f"at most {MAX_PRIVATE_ADDRESSES} addresses"))
    mistakes += [
        ("private_addresses", f"{text[:80]!r} is no address of a network of one's own (such as 192.168.1.20)")
        for text in connection.private_addresses
        if not _may_be_agreed_to(text)
    ]
    return mistakes


def _may_be_agreed_to(text: str) -> bool:
    """Return whether a text is one address of an own network: no name, no network, none of cloud metadata."""
    address = parse_literal(text)
    return address is not None and is_own_network(address)


def _encode(connections: Mapping[str, Connection], default_model: str | None) -> bytes:
    """Return the content of the file. A JSON string of printable text is a TOML string."""
    lines = [_HEADER]
    if default_model is not None:
        lines.append(f"default_model = {json.dumps(default_model, ensure_ascii=False)}\n\n")
    for name, connection in connections.items():
        fields = msgspec.to_builtins(connection)
        lines.append(f"[connections.{json.dumps(name)}]\n")
        lines += [f"{field} = {json.dumps(value, ensure_ascii=False)}\n" for field, value in fields.items()]
        lines.append("\n")
    return "".join(lines).encode()
