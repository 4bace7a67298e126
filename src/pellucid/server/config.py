"""The configuration: one TOML file, checked completely at the start.

All mistakes are reported at once, each with its key and what would be right. Secrets are never in the file: they come
from the environment, under the providers' usual names or a name that the file gives.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints, is_typeddict
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ..data_directory import default_record_key, default_seal_keys, default_store_url
from ..errors import ConfigError
from ..local import LOCAL_PROVIDER, model_index
from ..protocols.agui.dialects import DialectName
from ..protocols.decoding import MAX_ITEMS, MAX_TOOLS
from ..protocols.openresponses import Dialect
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles, hidden_row, load_profiles, named_profiles
from ..settings import ModelSettings
from ..unicode import did_you_mean
from ..upstream import Limits, Seconds
from ..view import View
from .access.budgets import Budget
from .access.config import PUBLIC_HOST_WITHOUT_KEYS, AccessConfig, check_access, is_loopback
from .space_config import SpaceConfig, check_spaces
from .spend import Prices, price_mistakes

Count = Annotated[int, Meta(ge=1)]


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[server]`: the address, and limits of requests."""

    host: str = "127.0.0.1"
    """The address to listen at. Other machines can reach one that is not loopback, so it needs `[access]`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8080
    """0: any free port."""
    workers: Count = 1
    """Processes. More than one need a relay."""
    allow_unauthenticated: bool = False
    """Whether to listen at an address that other machines can reach, without requiring credentials."""
    max_body_bytes: Count = 32 * 1024 * 1024
    """Maximum size of a request's body."""
    max_memory_bytes: Annotated[int, Meta(ge=0)] | None = None
    """Resident memory of a process above which it accepts no new work; by default a share of what the machine or the
    container has (`server.memory`). 0: no limit."""
    max_items: Count = MAX_ITEMS
    """Items or messages of one request, with their parts."""
    max_tools: Count = MAX_TOOLS
    """Tools of one request."""
    reasoning_events: Dialect = "openresponses"
    """Names of raw reasoning events for clients that are not known, unless the request or the key chooses."""
    agui_dialect: DialectName | None = None
    """The dialect of AG-UI clients that name none; by default the one before 1.0."""
    default_model: str | None = None
    """The model of requests that name none; by default the first one."""
    shutdown_seconds: Annotated[float, Meta(ge=0, le=1_000_000)] = 30.0
    """How long open streams may continue after a shutdown has begun."""
    drain_seconds: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """Time between the signal to stop and the shutdown.

    The server still serves, but `/ready` fails, so that load balancers stop sending requests.
    """
    request_seconds: Seconds = 60.0
    """How long a client may take to send the head of a request, then each chunk of its body, and all of its body
    (longer by a second for each 500 bytes)."""
    unread_seconds: Seconds = 300.0
    """How long a client may leave sent data unread before its connection is closed."""
    socket_seconds: Seconds = 3600.0
    """Maximum lifetime of a WebSocket for responses. Sockets of spaces have no such limit."""
    page: bool = True
    """Whether the chat's page is served at `/`."""


class ProviderConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[providers.NAME]`: one upstream."""

    profile: str | None = None
    """The profile; by default the one with the provider's name."""
    base_url: str | None = None
    """Its address; by default the usual one of the profile."""
    api_key_env: str | None = None
    """The environment variable that holds its key; by default the usual one of the profile."""
    account: str | None = None
    """Distinguishes accounts at one provider: none gets the opaque reasoning of another."""
    headers: dict[str, str] = {}
    """Headers of each request to it."""
    models: list[str] | None = None
    """The models that it serves. None: any that a request names; an empty list: those of `[models]` only. One with `*`
    permits names after `PROVIDER:`."""
    limits: Limits | None = None
    view: View = "raw"
    """The fullest view that anyone gets of the reasoning of its models."""
    prices: dict[str, Prices] = {}
    """The prices of its models, by their names here, which may have `*`."""

    @property
    def listed_models(self) -> list[str]:
        """The models that are public names by themselves."""
        return [name for name in self.models or () if "*" not in name]


class DeploymentConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[[models.NAME.deployments]]`: one of several models that serve a public name."""

    provider: str
    """The provider, by its name in `[providers]`."""
    model: str | None = None
    """The provider's name for it; by default the public name."""
    order: int = 1
    """Those of a higher order are called if none of a lower order answers."""
    weight: Annotated[float, Meta(gt=0, le=1_000_000)] = 1.0
    """Its share of the calls, relative to others of its order."""
    settings: ModelSettings = {}
    """Settings of each call, after those of the model."""
    requests_per_minute: Count | None = None
    """Maximum of calls a minute. None: no limit, here and below."""
    tokens_per_minute: Count | None = None
    """Maximum of input and output tokens a minute."""
    streams: Count | None = None
    """Maximum of concurrent calls."""
    prices: Prices | None = None
    """Its prices; by default those of the model."""


class FallbacksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[models.NAME.fallbacks]`: the public names of models that answer instead, by the cause."""

    rate_limit: list[str] = []
    """The provider refuses because of too many requests."""
    down: list[str] = []
    """No answer, or an error of the provider."""
    context_length: list[str] = []
    """The conversation is too long."""
    refused: list[str] = []
    """The provider refuses the content."""


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[models.NAME]`: a model with a public name, which may end with `*`."""

    provider: str | None = None
    """The provider; required without `deployments`."""
    model: str | None = None
    """The provider's name for it; by default the public name. A `*` is what the public name has in its place."""
    deployments: list[DeploymentConfig] = []
    """Several models that serve the name, in place of `provider` and `model`."""
    fallbacks: FallbacksConfig = FallbacksConfig()
    retry_thoughts: bool = False
    """Whether another deployment is called if one fails after thoughts alone, which then stay as incomplete."""
    settings: ModelSettings = {}
    """Settings of each call, unless the request has them."""
    view: View = "raw"
    """The fullest view that anyone gets of its reasoning."""
    context: Count | None = None
    """The size of its context (input and output) in tokens, if the operator knows it."""
    prices: Prices | None = None
    """Its prices; by default those that its provider has for it."""


class LocalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[local]`: the embedded model."""

    enabled: bool | None = None
    """By default it is enabled when no provider is configured."""
    model: str | None = None
    """A model of the catalogue (`pellucid models`)."""
    path: str | None = None
    """A weight file, instead of a model of the catalogue."""
    threads: Count | None = None
    """Threads of the engine; by default by the number of processors."""
    context: Count | None = None
    """Size of its context in tokens."""


DAY_SECONDS = 86_400.0


class StorageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[storage]`: where responses, conversations and keys are stored, and for how long."""

    url: str | None = None
    """`sqlite:///file` or `postgresql://host/database`; by default a SQLite file in the user's data directory."""
    url_env: str | None = None
    """The environment variable that holds the URL, if it contains a password."""
    store: bool = True
    """Whether a response is stored if its request does not choose."""
    retention_seconds: Annotated[float, Meta(gt=0)] | None = 30 * DAY_SECONDS
    """How long data is stored; `inf`: until it is deleted."""


class RelayConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[relay]`: what replicas share while responses are live."""

    url: str | None = None
    """`redis://host:6379`; by default the memory of this process."""
    url_env: str | None = None
    """The environment variable that holds the URL, if it contains a password."""
    lease_seconds: Annotated[float, Meta(ge=1, le=3600)] = 15.0
    """Time after the death of a replica until its runs are ended and its participants count as absent.

    Until then its background responses wait for another replica, which ends them, and participants that were connected
    to it count as present in their spaces.
    """


class SealingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[sealing]`: keys of sealed reasoning. Replicas share one set of keys."""

    keys_file: str | None = None
    """By default a file in the user's data directory; PELLUCID_SEAL_KEYS in the environment takes precedence."""


class RecordConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[record]`: the tamper-evident record of what is stored. Replicas share one key."""

    enabled: bool = True
    """Whether what is stored is recorded."""
    key_file: str | None = None
    """By default a file in the user's data directory; PELLUCID_RECORD_KEY in the environment takes precedence."""
    seconds: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """Maximum time until recorded entries are covered by a checkpoint."""
    entries: Count = 1_000
    """Maximum number of entries of one process that are not covered by a checkpoint."""


class SummariesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[summaries]`: summaries of reasoning, for models that make none."""

    model: str | None = None
    """The public name of the model that writes them; by default the embedded model, if there is one.

    `none`: no summaries.
    """
    seconds: Annotated[float, Meta(gt=0, le=600)] = 10.0
    """How long a response waits for its last summary."""

    @property
    def is_model_named(self) -> bool:
        """Whether the operator has named the model."""
        return self.model not in (None, "none")


class ChatConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[chat]`: the chats of the page."""

    sharing: bool | None = None
    """Whether chats can be shared by links that need no key; by default only while no keys are required."""
    title_model: str | None = None
    """The public name of the model that writes the titles of chats; by default the one that answers, if it is a
    provider's and can do without thinking.

    `none`: a title is the beginning of the first question.
    """


class MCPConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[tools.mcp.NAME]`: a Model Context Protocol server, started here (`command`) or reached at `url`."""

    command: str | None = None
    """The program that is started."""
    args: list[str] = []
    """Its arguments."""
    env: dict[str, str] = {}
    """Its environment variables."""
    url: str | None = None
    """The address of a server that runs elsewhere."""
    headers: dict[str, str] = {}
    """Headers of each request to it."""
    headers_env: dict[str, str] = {}
    """Headers whose values come from the environment, because secrets are not in this file."""
    allowed_tools: list[str] | None = None
    """Names of its tools that are offered. None: all."""
    timeout_seconds: Seconds | None = None
    """Time limit of a call; by default that of `[tools]`."""


class ToolsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[tools]`: functions that this server calls itself, for callers whose policy allows it."""

    functions: list[str] = []
    """Each as `package.module:function`."""
    timeout_seconds: Seconds = 60.0
    """Time limit of a call."""
    max_calls: Count = 128
    """Maximum number of calls for one response; the request's `max_tool_calls` may be lower."""
    mcp: dict[str, MCPConfig] = {}


class SpendConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[spend]`: what the prices of models are in."""

    currency: Annotated[str, Meta(pattern=r"\A[A-Za-z]{1,8}\Z")] = "USD"
    """The currency of all prices, costs and budgets: letters."""
    owners: dict[str, Budget] = {}
    """The budgets of owners, for all their keys together."""


class EgressConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[egress]`: addresses that clients may name (images, MCP servers of a request) and the gateway may fetch."""

    allow: list[str] = []
    """Host names, addresses or networks that are not public, or `*`.

    Also schemes (`s3://`): such addresses are passed on to models.
    """


class TelemetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[telemetry]`: metrics, logs and traces. None of them holds content of requests or responses."""

    metrics: bool = True
    """Whether `GET /metrics` is served, for Prometheus."""
    metrics_open: bool = False
    """Whether `/metrics` needs no credentials; by default it needs an operator's key, where keys are required."""
    log: Literal["text", "json"] = "text"
    """The form of log lines."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe level that is logged."""
    otlp_endpoint: str | None = None
    """Where spans are sent with OTLP over HTTP: `http://host:4318`."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole configuration. `read_config` reads it from a file, `check_config` from a table."""

    server: ServerConfig = ServerConfig()
    access: AccessConfig = AccessConfig()
    storage: StorageConfig = StorageConfig()
    relay: RelayConfig = RelayConfig()
    sealing: SealingConfig = SealingConfig()
    record: RecordConfig = RecordConfig()
    summaries: SummariesConfig = SummariesConfig()
    chat: ChatConfig = ChatConfig()
    tools: ToolsConfig = ToolsConfig()
    egress: EgressConfig = EgressConfig()
    spend: SpendConfig = SpendConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    limits: Limits = Limits()
    providers: dict[str, ProviderConfig] = {}
    models: dict[str, ModelConfig] = {}
    local: LocalConfig = LocalConfig()
    profiles: dict[str, dict[str, Any]] = {}
    """Rows of dialects of your own, by name (docs/configuration.md)."""
    spaces: dict[str, SpaceConfig] = {}

    def store_url(self) -> str:
        return _url(self.storage) or default_store_url()

    def relay_url(self) -> str | None:
        return _url(self.relay)

    def seal_keys_path(self) -> Path:
        path = self.sealing.keys_file
        return Path(path).expanduser() if path is not None else default_seal_keys()

    def record_key_path(self) -> Path:
        path = self.record.key_file
        return Path(path).expanduser() if path is not None else default_record_key()

    @property
    def uses_local_model(self) -> bool:
        return not self.providers if self.local.enabled is None else self.local.enabled

    def serves(self, provider: str, model: str) -> bool:
        """Return whether `PROVIDER:MODEL` is a name: the provider has no list of models, or this one is in it."""
        row = self.providers.get(provider)
        if row is None or not model:
            return False
        return row.models is None or any(fnmatchcase(model, name) for name in row.models)

    @property
    def warnings(self) -> list[str]:
        """What works, but perhaps not as the operator expects: models that two providers list, models without prices
        where there are budgets."""
        warnings: list[str] = []
        first: dict[str, str] = {}
        for provider, row in self.providers.items():
            for name in row.listed_models:
                other = first.setdefault(name, provider)
                if other != provider and name not in self.models:
                    warnings.append(
                        f"providers.{provider}.models: {name!r} is also a model of the provider {other!r}, which is "
                        f"called; say which is called first with [[models.{name}.deployments]]"
                    )
        budgets = [f"access.policies.{name}" for name, policy in self.access.policies.items() if policy.has_budget]
        budgets += [f"spend.owners.{name}" for name in self.spend.owners]
        if budgets and not any(_price_tables(self)):
            warnings += [f"{budget}: a budget without effect, as no model has prices" for budget in budgets]
        elif budgets:
            warnings += [f"{path}; budgets do not limit what has none" for path in _models_without_prices(self)]
        return [*warnings, *self._name_warnings()]

    def all_profiles(self) -> dict[str, Profile]:
        """Return the built-in profiles, by all their names, and those of the file, which take precedence."""
        # A row extends the values of the row with this name, and therefore of its wire.
        return named_profiles() | load_profiles(self.profiles, named_profiles() | builtin_profiles())

    def profile_name(self, provider: str) -> str:
        """Return the name of a provider's profile, among `all_profiles`.

        `openai` is the Responses API, as everywhere. Here it was Chat Completions, and it still is at an address that
        is not OpenAI's: servers there have Chat Completions, and often nothing else.
        """
        return self.profile_name_of(provider, self.providers[provider])

    def profile_name_of(self, provider: str, row: ProviderConfig) -> str:
        """Return the name of the profile that a provider of this name and these values has."""
        name = row.profile or provider
        older = self._older_meaning(name)
        return name if older is None or not _is_elsewhere(row, name) else older

    def _older_meaning(self, name: str) -> str | None:
        """Return the name of the profile that a name meant in older configurations, if it means another one now."""
        row = hidden_row(name) if name not in self.profiles else None
        return row.aliases[0] if row is not None else None

    def _name_warnings(self) -> Iterator[str]:
        """Yield one line for each name of a profile that means another one than in older configurations."""
        for provider, row in self.providers.items():
            name = row.profile or provider
            if (older := self._older_meaning(name)) is not None:
                now = named_profiles()[name].name
                if _is_elsewhere(row, name):
                    yield (
                        f"providers.{provider}: at this address, {name!r} is {older!r}, as before; write which it is: "
                        f'profile = "{older}", or "{now}"'
                    )
                else:
                    yield (
                        f"providers.{provider}: {name!r} is {now!r} now, and was {older!r} before; write which it is: "
                        f'profile = "{now}", or "{older}"'
                    )
        for name, values in self.profiles.items():
            base = values.get("extends")
            if isinstance(base, str) and (older := self._older_meaning(base)) is not None:
                yield f'profiles.{name}.extends: {base!r} is the row {older!r}; write "{older}"'


def _is_elsewhere(provider: ProviderConfig, profile_name: str) -> bool:
    """Whether a provider has another host than the builtin profile with this name."""
    url = provider.base_url
    return url is not None and _host_of(url) != _host_of(named_profiles()[profile_name].base_url)


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _url(section: StorageConfig | RelayConfig) -> str | None:
    return os.environ[section.url_env] if section.url_env is not None else section.url


def read_storage_config(path: Path) -> Config:
    """Read the configuration for a command that uses only the store.

    Other parts of the environment that a gateway needs (keys of providers, tokens of participants) are not checked.

    Args:
        path: The TOML file.

    Raises:
        ConfigError: With all mistakes.
    """
    mistakes: list[str] = []
    config = _read_struct(Config, _read_toml(path), "", mistakes)
    if isinstance(config, Config):
        mistakes += _backend_url_mistakes("storage", config.storage, os.environ)
        if not mistakes:
            return config
    raise ConfigError(mistakes)


DEFAULT_FILE = Path("pellucid.toml")
"""The configuration file that is read if no other is named."""


def read_config(path: Path) -> Config:
    """Read and check the configuration in a file.

    Args:
        path: The TOML file.

    Raises:
        ConfigError: With all mistakes.
    """
    return check_config(_read_toml(path), os.environ)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8: {error}"]) from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{path}: not TOML: {error}"]) from error


def check_config(table: Mapping[str, Any], environ: Mapping[str, str]) -> Config:
    """Read and check the configuration in a table.

    Args:
        table: The parsed TOML.
        environ: The environment.

    Returns:
        The configuration.

    Raises:
        ConfigError: With all mistakes.
    """
    mistakes: list[str] = []
    config = _read_struct(Config, table, "", mistakes)
    if isinstance(config, Config):
        mistakes += _inconsistencies(config, environ)
        if not mistakes:
            return config
    raise ConfigError(mistakes)


class _Invalid:
    """Stands for a value that could not be read; its mistake is in the list."""


def _read_struct(target: Any, table: Any, location: str, mistakes: list[str]) -> Any:
    """Read a struct (or typed dictionary) from a table, key by key, so that one mistake does not hide another."""
    if not isinstance(table, Mapping):
        mistakes.append(f"{location}: must be a table, not {table!r}")
        return _Invalid()
    if is_typeddict(target):
        types, required = get_type_hints(target), set[str]()
    else:
        types = {field.encode_name: field.type for field in msgspec.structs.fields(target)}
        required = {field.encode_name for field in msgspec.structs.fields(target) if field.required}
    values: dict[str, Any] = {}
    for name, value in table.items():
        path = f"{location}.{name}" if location else name
        if name in types:
            values[name] = _read_value(types[name], value, path, mistakes)
        else:
            mistakes.append(f"{path}: no such key; {did_you_mean(name, types)}")
    for name in required - values.keys():
        requirement = getattr(target, "REQUIRED", {}).get(name)
        mistakes.append(f"{location}.{name}: required{f': {requirement}' if requirement else ''}")
        values[name] = _Invalid()
    invalid = [name for name, value in values.items() if isinstance(value, _Invalid)]
    if required.intersection(invalid):
        return _Invalid()
    return target(**{name: value for name, value in values.items() if name not in invalid})


def _read_value(target: Any, value: Any, path: str, mistakes: list[str]) -> Any:
    options = [option for option in get_args(target) or (target,) if option is not type(None)]
    if len(options) == 1 and get_origin(target) is not list and (is_typeddict(options[0]) or _is_struct(options[0])):
        return _read_struct(options[0], value, path, mistakes)
    if get_origin(target) is dict and _is_struct(get_args(target)[1]) and isinstance(value, Mapping):
        entries = {
            name: _read_struct(get_args(target)[1], entry, f"{path}.{name}", mistakes) for name, entry in value.items()
        }
        return {name: entry for name, entry in entries.items() if not isinstance(entry, _Invalid)}
    if get_origin(target) is list and _is_struct(get_args(target)[0]) and isinstance(value, list):
        rows = [_read_struct(get_args(target)[0], entry, f"{path}[{n}]", mistakes) for n, entry in enumerate(value)]
        return [row for row in rows if not isinstance(row, _Invalid)]
    try:
        return msgspec.convert(value, target)
    except msgspec.ValidationError as error:
        choices = [
            choice for option in (target, *options) if get_origin(option) is Literal for choice in get_args(option)
        ]
        if choices:
            mistakes.append(f"{path}: {value!r} is none of {', '.join(map(repr, choices))}")
        else:
            message, _, where = str(error).partition(" - at `$")
            where = where.removesuffix("`").replace("[...]", "")
            mistakes.append(f"{path}{where}: {message[0].lower()}{message[1:]}")
        return _Invalid()


def _is_struct(target: Any) -> bool:
    return isinstance(target, type) and issubclass(target, msgspec.Struct)


def _inconsistencies(config: Config, environ: Mapping[str, str]) -> list[str]:
    mistakes: list[str] = []
    try:
        profiles = config.all_profiles()
    except ConfigError as error:
        mistakes += error.mistakes
        profiles = named_profiles()
    for name in config.providers:
        mistakes += [f"providers.{name}{mistake}" for mistake in _provider_mistakes(name, config, profiles, environ)]
    server = config.server
    names = {*config.models, *(model for provider in config.providers.values() for model in provider.listed_models)}
    mistakes += _model_mistakes(config, names)
    mistakes += [f"{key}{mistake}" for key, prices in _price_tables(config) for mistake in price_mistakes(prices)]
    mistakes += _local_mistakes(config)
    # The embedded model has its own names; a provider that lists no models accepts any name.
    if server.default_model is not None and config.providers and not config.uses_local_model:
        listed = all(provider.models is not None for provider in config.providers.values())
        if listed and server.default_model not in names and ":" not in server.default_model:
            mistakes.append(
                f"server.default_model: no model {server.default_model!r}; {did_you_mean(server.default_model, names)}"
            )
    mistakes += check_access(config.access, environ)
    mistakes += check_spaces(config.spaces, environ)
    if config.summaries.model == "none" or (config.summaries.model is None and not config.uses_local_model):
        mistakes += [
            f"spaces.{name}.compress: there is no model that writes it; name one in summaries.model"
            for name, space in config.spaces.items()
            if space.compress is not None
        ]
    if config.telemetry.otlp_endpoint is not None:
        mistakes += [f"telemetry.otlp_endpoint: {mistake}" for mistake in url_mistakes(config.telemetry.otlp_endpoint)]
    mistakes += _backend_and_mcp_mistakes(config, environ)
    if server.workers > 1:
        mistakes += _worker_mistakes(config, environ)
    # Without credentials, every client that reaches the port can use the operator's models and read all reasoning.
    if not is_loopback(server.host) and not (server.allow_unauthenticated or config.access.requires_credentials):
        mistakes.append(PUBLIC_HOST_WITHOUT_KEYS.format(host=server.host))
    return mistakes


def _model_mistakes(config: Config, names: set[str]) -> list[str]:
    mistakes: list[str] = []
    for name, model in config.models.items():
        path = f"models.{name}"
        headers = _header_mistakes(model.settings.get("extra_headers", {}))
        mistakes += [f"{path}.settings.extra_headers{mistake}" for mistake in headers]
        providers = {
            f"{path}.deployments[{index}].provider": row.provider for index, row in enumerate(model.deployments)
        }
        if model.provider is not None:
            providers[f"{path}.provider"] = model.provider
        if (model.provider is None) == (not model.deployments):
            mistakes.append(f"{path}: needs a provider or deployments, and one of them only")
        targets = [(row.provider, row.model or name) for row in model.deployments]
        mistakes += [
            f"{path}.deployments[{index}]: {provider}/{target} is there already; a weight makes its share larger"
            for index, (provider, target) in enumerate(targets)
            if (provider, target) in targets[:index]
        ]
        for key, provider in providers.items():
            if provider == LOCAL_PROVIDER:
                if not config.uses_local_model:
                    mistakes.append(f"{key}: the embedded model is off; set local.enabled = true")
            elif provider not in config.providers:
                mistakes.append(f"{key}: no provider {provider!r}; {did_you_mean(provider, config.providers)}")
        fallbacks = msgspec.structs.asdict(model.fallbacks)
        mistakes += [
            f"{path}.fallbacks.{cause}: {name!r} is this model itself; name another one"
            for cause, others in fallbacks.items()
            if name in others
        ]
        mistakes += [
            f"{path}.fallbacks.{cause}: no model {other!r}; {did_you_mean(other, names)}"
            for cause, others in fallbacks.items()
            for other in others
            if other not in names
            and not any(fnmatchcase(other, known) for known in names)
            and not config.serves(*other.partition(":")[::2])
        ]
        if "*" in name[:-1] or (name.endswith("*") and (model.deployments or model.fallbacks != FallbacksConfig())):
            mistakes.append(f"{path}: a * stands at the end of a name, of a model with one provider and no fallbacks")
    return mistakes


def configured_deployments(entry: ModelConfig) -> list[DeploymentConfig]:
    """Return the deployments of a model; a model with one provider has one."""
    if entry.provider is not None:
        return [DeploymentConfig(provider=entry.provider, model=entry.model)]
    return entry.deployments


def _models_without_prices(config: Config) -> Iterator[str]:
    """Yield what clients can call and has no prices, with its key, and what would be right."""
    rows = [(name, entry, row) for name, entry in config.models.items() for row in configured_deployments(entry)]
    for name, entry, row in rows:
        provider = config.providers.get(row.provider)
        has_prices = row.prices is not None or entry.prices is not None
        if provider is not None and not has_prices and not _matches_any(row.model or name, provider.prices):
            yield f"models.{name}: {row.model or name!r} of the provider {row.provider!r} has no prices"
    for provider_name, provider in config.providers.items():
        with_prices = [
            row.model or name
            for name, entry, row in rows
            if row.provider == provider_name and (row.prices is not None or entry.prices is not None)
        ]
        if provider.models is None and "*" not in provider.prices:
            yield (
                f"providers.{provider_name}: a request may name any of its models ({provider_name}:MODEL), also one "
                "without prices: list its models, with models = [] for those of [models] only"
            )
        for model in provider.models or ():
            if not _matches_any(model, [*provider.prices, *with_prices]):
                yield f"providers.{provider_name}.models: {model!r} has no prices"


def matches_model(model: str, pattern: str) -> bool:
    """Return whether a name of a model is this one, which may have `*`."""
    return model == pattern or ("*" in pattern and fnmatchcase(model, pattern))


def _matches_any(model: str, patterns: Iterable[str]) -> bool:
    return any(matches_model(model, pattern) for pattern in patterns)


def _price_tables(config: Config) -> Iterator[tuple[str, Prices]]:
    """Return all prices, with their keys."""
    for name, provider in config.providers.items():
        for model, prices in provider.prices.items():
            yield f"providers.{name}.prices.{model}", prices
    for name, entry in config.models.items():
        if entry.prices is not None:
            yield f"models.{name}.prices", entry.prices
        for index, row in enumerate(entry.deployments):
            if row.prices is not None:
                yield f"models.{name}.deployments[{index}].prices", row.prices


def _worker_mistakes(config: Config, environ: Mapping[str, str]) -> list[str]:
    """Return what several workers cannot do with the memory of one process."""
    mistakes, condition = [], f"for server.workers = {config.server.workers}"
    relay, store = (
        section.url if section.url_env is None else environ.get(section.url_env, "missing:")
        for section in (config.relay, config.storage)
    )
    if (relay or "memory:").partition(":")[0] == "memory":
        mistakes.append(
            f"relay.url: {condition}, live responses must be where all workers can reach them: "
            "configure a Redis (redis://127.0.0.1:6379), or one worker"
        )
    if (store or "").rstrip("/") in ("sqlite:", "sqlite:///:memory:"):
        mistakes.append(
            f"storage.url: {condition}, stored data must be where all workers can reach it: "
            "configure a file (sqlite:///pellucid.sqlite) or a PostgreSQL, or one worker"
        )
    return mistakes


_SCHEMES = {
    "storage": ("sqlite", "postgresql", "postgresql+asyncpg", "postgres"),
    "relay": ("memory", "redis", "rediss", "unix"),
}


def _backend_url_mistakes(key: str, section: StorageConfig | RelayConfig, environ: Mapping[str, str]) -> list[str]:
    mistakes, schemes = [], _SCHEMES[key]
    if section.url_env is not None and not environ.get(section.url_env):
        mistakes.append(f"{key}.url_env: the environment has no {section.url_env}")
    if section.url is not None and section.url.partition(":")[0] not in schemes:
        choices = ", ".join(f"{scheme}://…" for scheme in schemes)
        mistakes.append(f"{key}.url: {section.url!r} is none of {choices}")
    return mistakes


def _backend_and_mcp_mistakes(config: Config, environ: Mapping[str, str]) -> list[str]:
    mistakes = [
        *_backend_url_mistakes("storage", config.storage, environ),
        *_backend_url_mistakes("relay", config.relay, environ),
    ]
    for name, server in config.tools.mcp.items():
        location = f"tools.mcp.{name}"
        if (server.command is None) == (server.url is None):
            mistakes.append(f"{location}: needs a command or a url, and one of them only")
        mistakes += [f"{location}.headers{mistake}" for mistake in _header_mistakes(server.headers)]
        mistakes += [
            f"{location}.headers_env.{header}: the environment has no {variable}"
            for header, variable in server.headers_env.items()
            if not environ.get(variable)
        ]
    return mistakes


_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FRAMING_HEADERS = frozenset({"content-length", "transfer-encoding", "connection", "host", "upgrade", "expect"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


def _provider_mistakes(
    name: str, config: Config, profiles: Mapping[str, Profile], environ: Mapping[str, str]
) -> list[str]:
    provider, mistakes = config.providers[name], []
    if name == LOCAL_PROVIDER:
        mistakes.append(": this name is reserved for the embedded model; choose another name, and set the profile")
    if ":" in name:
        mistakes.append(": a provider's name cannot contain a colon, which separates PROVIDER:MODEL")
    profile_name = config.profile_name(name)
    profile = profiles.get(profile_name)
    if profile is None:
        mistakes.append(f".profile: no profile {profile_name!r}; {did_you_mean(profile_name, profiles)}")
    elif not provider.base_url and not profile.base_url and not find_base_url(config, name, profile, environ):
        mistakes.append(f".base_url: required, as {profile.title} has no default address")
    if provider.base_url:
        mistakes += [f".base_url: {mistake}" for mistake in url_mistakes(provider.base_url)]
    if provider.api_key_env is not None and not environ.get(provider.api_key_env):
        mistakes.append(f".api_key_env: the environment has no {provider.api_key_env}")
    return mistakes + [f".headers{mistake}" for mistake in _header_mistakes(provider.headers)]


def _header_mistakes(headers: Mapping[str, str]) -> list[str]:
    mistakes = []
    for header, value in headers.items():
        if not _HEADER_NAME.fullmatch(header):
            mistakes.append(f": {header!r} is not a valid header name")
        if header.lower() in _FRAMING_HEADERS:
            mistakes.append(f".{header}: frames the message, and cannot be configured")
        if _CONTROL.search(value):
            mistakes.append(f".{header}: contains a line break or another control character")
    return mistakes


def url_mistakes(url: str) -> list[str]:
    """Return the mistakes in the address of a provider, or of another server."""
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        is_valid = None
    if not is_valid or not url.isprintable() or " " in url:
        return [f"{url!r} is not an http:// or https:// address"]
    if "@" in parts.netloc:
        return ["contains a password; secrets come from the environment (api_key_env)"]
    if parts.query or parts.fragment:
        return [f"{url!r} must end with its path (such as /v1), without ? or #"]
    return []


def _local_mistakes(config: Config) -> list[str]:
    local, mistakes = config.local, []
    if not config.uses_local_model:
        if not config.providers and not config.spaces:
            mistakes.append("providers: there is no model to serve: configure a provider, or let [local] be enabled")
        return mistakes
    names = [model.name for model in model_index.all_models()]
    if local.path is not None:
        if not Path(local.path).expanduser().is_file():
            mistakes.append(f"local.path: there is no file {local.path!r}")
    elif local.model is not None and local.model not in names:
        mistakes.append(f"local.model: no model {local.model!r}; {did_you_mean(local.model, names)}")
    return mistakes


def find_base_url(config: Config, provider: str, profile: Profile, environ: Mapping[str, str]) -> str | None:
    """Return a provider's address: its own, or that of an environment variable that a row of the file names.

    Variables that a builtin row names are for programs. They do not change where a gateway sends its requests.
    """
    row = config.providers[provider]
    address = next((value for name in profile.base_url_env if (value := environ.get(name, "").strip())), None)
    if row.base_url is not None or address is None or not _names_variables(config, config.profile_name(provider)):
        return row.base_url
    return address.rstrip("/") + profile.base_url_env_path


def _names_variables(config: Config, profile_name: str) -> bool:
    """Whether a row of the file, or one of the file that it extends, names the variables of its address itself."""
    rows = dict(config.profiles)
    while (row := rows.pop(profile_name, None)) is not None:
        if "base_url_env" in row or any("base_url_env" in model for model in row.get("models", ())):
            return True
        profile_name = row.get("extends", "")
    return False


def find_api_key(provider: ProviderConfig, profile: Profile) -> str | None:
    """Return the provider's key from the environment; None when there is none."""
    names = [provider.api_key_env] if provider.api_key_env is not None else profile.api_key_env
    # A key that was read from a file often ends with a line break, which a header cannot contain.
    return next((key for name in names if (key := os.environ.get(name, "").strip())), None)
