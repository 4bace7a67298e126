"""The models that a gateway serves, by their public names."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import islice
from typing import get_args

from msgspec.structs import replace

from ..egress import EgressPolicy
from ..errors import ModelError, RequestError
from ..local import LOCAL_PROVIDER
from ..local.model_index import INSTALL_COMMAND
from ..models import ChatModel, Model, ServedModel
from ..models.deployments import (
    Cause,
    Cooldowns,
    DeployedModel,
    Deployment,
    FailureObserver,
    deployments_of,
)
from ..models.media import MediaFetcher, MediaModel
from ..parts import Origin
from ..protocols.decoding import invalid
from ..providers.profile import Profile
from ..relay import MemoryRelay, Relay
from ..sealing import VisibleForms
from ..settings import EFFORTS, ModelSettings, merge_settings
from ..storage.names import is_storable
from ..upstream import Limits, UpstreamClient
from ..view import View, Viewer, stricter
from .access.limits import PrincipalLimits, RateLimiter
from .access.policy import Policy, Principal
from .agent_model import MAX_NAME_CHARACTERS, AgentModel
from .config import (
    Config,
    ModelConfig,
    ProviderConfig,
    configured_deployments,
    find_api_key,
    find_base_url,
    matches_model,
)
from .connections import ConnectionClients, ConnectionSet, is_model_name
from .spend import Prices, TokenPrices, token_prices_of

SERVED_SECONDS, RETRY_SECONDS = 300.0, 15.0
"""For how long a provider's list of models is believed, and after how long one that did not answer is asked again."""

NO_MODEL = (
    f"this gateway has no model yet: install the embedded one ({INSTALL_COMMAND}) and start again, or connect one "
    "(on its page, with --upstream URL --upstream-model NAME, or with [providers] in the configuration)"
)
"""What a gateway without a model says, in its banner, in `/ready` and to requests."""

MAX_SERVED_MODELS = 2000
"""How many models of one provider's list are named."""


class CatalogState:
    """What a catalog learns: the catalog that replaces it knows it, too."""

    def __init__(self) -> None:
        self.cooldowns = Cooldowns()
        # A limit of a deployment protects its provider, and is no budget: an outage of the relay lifts it.
        self.limiter = RateLimiter(MemoryRelay(), when_down="allow")
        self.served: dict[str, tuple[float, list[ServedModel]]] = {}
        """The models of each provider that lists none in the configuration, and when that is asked again."""
        self.context_tokens: dict[str, int] = {}
        """What these providers said of their models, by public name."""
        self.asking = asyncio.Lock()

    def share(self, relay: Relay) -> None:
        """Share the cooldowns and the limits of deployments with other replicas from now on."""
        self.cooldowns.share(relay)
        self.limiter.share(relay)

    async def aclose(self) -> None:
        """Release what the limits hold."""
        await self.limiter.aclose()


class Catalog:
    """Finds the model for a public name.

    A name is resolved in this order: a configured model; a model that a provider lists; a configured name with `*`;
    `PROVIDER:MODEL`; and, if exactly one provider lists no models, any name as a model of that provider.

    The configuration wins over connections: one with the name of a configured provider is not used, and a name that the
    configuration serves is not given to another model. A model whose name is taken is `CONNECTION:MODEL`.

    The models of a catalog do not change. When the connections change, another catalog takes over its `state`.
    """

    def __init__(
        self,
        config: Config,
        upstream_client: UpstreamClient,
        local: ChatModel | None = None,
        extra_models: Iterable[ChatModel] = (),
        on_failure: FailureObserver | None = None,
        *,
        connected: ConnectionSet = ConnectionSet(),  # noqa: B008 (immutable)
        connection_clients: ConnectionClients | None = None,
        state: CatalogState | None = None,
    ) -> None:
        """Create the catalog.

        Args:
            config: The configuration.
            upstream_client: The client for requests to providers.
            local: The embedded model.
            extra_models: Models that were passed in code. They override those of the configuration.
            on_failure: Is called with each failure of a deployment.
            connected: The models that were connected in the page, and the chosen default model.
            connection_clients: The clients for requests to them.
            state: That of the catalog before this one.
        """
        connections = connected.connections
        self._upstream_client = upstream_client
        self._connections = {name: one for name, one in connections.items() if name not in config.providers}
        self._unused = [name for name in connections if name in config.providers]
        self._connection_clients = connection_clients or ConnectionClients(config)
        self.state = state = state or CatalogState()
        self._config = config
        self._profiles = config.all_profiles()
        self._providers = config.providers
        self._entries = config.models
        self._token_prices: dict[tuple[str, str, str], TokenPrices | None] = {}
        self._serves = config.serves
        self._media = MediaFetcher(EgressPolicy(config.egress.allow))
        self._models: dict[str, ChatModel] = {}
        self._open_models: dict[tuple[str, str, str], ChatModel] = {}
        self.cooldowns, self._limiter = state.cooldowns, state.limiter
        self._on_failure = on_failure
        self._limits = config.limits
        self._local = local
        self._wildcards = {name: entry for name, entry in config.models.items() if name.endswith("*")}
        for name, entry in config.models.items():
            if name not in self._wildcards and (created := self._create_named(name, entry)) is not None:
                self._models[name] = created
        for provider_name, provider in config.providers.items():
            for name in provider.listed_models:
                self._models.setdefault(name, self._create_model(provider_name, name))
        if local is not None:
            self._models.setdefault(local.name, local)
            self._models.setdefault("local", local)
        for model in extra_models:
            # Models that were passed in code override those of the configuration.
            self._models[model.name] = model if isinstance(model, AgentModel) else self.with_media(model)
        self._context_tokens = {name: entry.context for name, entry in config.models.items()}
        self._max_views = {name: self._configured_view(entry) for name, entry in config.models.items()}
        self._max_views_by_origin: dict[tuple[str, str], View] = {}
        for name in config.models:
            for origin in self._origins_of(self._models.get(name)):
                origin_key = (origin.provider, origin.model)
                self._max_views_by_origin[origin_key] = stricter(
                    self._max_views[name], self._max_views_by_origin.get(origin_key, "raw")
                )
        self._unlisted_providers = [name for name, provider in config.providers.items() if provider.models is None]
        self.default_name = config.server.default_model
        self._max_views |= {name: self._view_with_fallbacks(name, entry) for name, entry in config.models.items()}
        self._connect_models()
        self._chosen_default = chosen = connected.default_model
        if self.default_name is None and chosen is not None and self._resolve(chosen) is not None:
            self.default_name = chosen

    def _connect_models(self) -> None:
        """Add the models of the connections. The names that the configuration serves are not given to them."""
        rows = {name: one.as_provider() for name, one in self._connections.items()}
        taken = {
            model
            for connection in self._connections.values()
            for model in connection.models
            if self._resolve(model) is not None
        }
        self._config = replace(self._config, providers={**rows, **self._providers})
        self._providers, self._serves = self._config.providers, self._config.serves
        for provider, connection in self._connections.items():
            for model in connection.models:
                name = f"{provider}:{model}" if model in taken or model in self._models else model
                if name not in self._models:
                    self._models[name] = self._create_model(provider, model)

    def connection_warnings(self) -> list[str]:
        """Return a line for each connection, or model of one, whose name means something else here."""
        warnings = [
            f"connections.{name}: not used, as providers.{name} in the configuration file is" for name in self._unused
        ]
        chosen = self._chosen_default
        if chosen is not None and chosen != self.default_name:
            configured = self._config.server.default_model is not None
            reason = "server.default_model in the configuration file is" if configured else "there is no such model"
            warnings.append(f"default_model: {chosen!r} is not used, as {reason}")
        for provider, connection in self._connections.items():
            names = self.names_of(provider)
            warnings += [
                f"connections.{provider}: another model is served as {model!r}; this one is {provider}:{model}"
                for model in connection.models
                if model not in names
            ]
        return warnings

    def with_media(self, model: ChatModel) -> ChatModel:
        """Return a model that was made in code, with the checks of the addresses that clients name."""
        return MediaModel(model, self._media)

    @property
    def agents(self) -> list[AgentModel]:
        """The agents that are served as models."""
        return [model for model in self._models.values() if isinstance(model, AgentModel)]

    def has_provider(self, name: str) -> bool:
        """Return whether a name is that of a provider: neither the embedded model nor a model that was made in code."""
        return name in self._providers

    def provider_title(self, model: ChatModel) -> str | None:
        """Return the title of a model's provider; None for the embedded model, an agent, and several deployments."""
        provider = model.origin.provider
        if isinstance(model, DeployedModel) or provider not in self._providers:
            return None
        return self._profiles[self._config.profile_name(provider)].title

    def knows_efforts(self, model: ChatModel) -> bool:
        """Whether it is known which levels of effort a model has: not where a server of any model is given all of them.

        Args:
            model: The model, or an agent. Of several deployments, it must be known of all.
        """
        called = (model.model or model) if isinstance(model, AgentModel) else model
        origins = [deployment.model.origin for deployment in deployments_of(called)]
        rows = [self._profile_of(one.provider, one.model) for one in origins if one.provider in self._providers]
        return not any(row.thinking != "none" and row.efforts == EFFORTS for row in rows)

    def names_of(self, provider: str) -> list[str]:
        """Return the public names of a provider's models that are known."""
        return [name for name, model in self._models.items() if model.origin.provider == provider]

    def names(self) -> list[str]:
        """Return the public names that are known. A provider that lists no models may serve others."""
        return list(self._models)

    def unique_models(self, preferred_name: str | None = None) -> list[tuple[str, ChatModel]]:
        """Return each model that has a known name once: under the preferred name, or else its first one."""
        names = list(self._models)
        by_identity = dict[int, tuple[str, ChatModel]]()
        for name in [*([preferred_name] if preferred_name is not None else []), *names]:
            model = self.find(name)[1]
            by_identity.setdefault(id(model), (name, model))
        order = {name: index for index, name in enumerate(names)}
        return sorted(by_identity.values(), key=lambda one: order.get(one[0], -1))

    async def served_names(self) -> list[str]:
        """Return the public names that are known, and those of the models that open-ended providers serve now.

        The providers are asked, and their answers are kept for `SERVED_SECONDS`. One that does not answer serves none.
        """
        served = self.state.served
        async with self.state.asking:
            now = time.monotonic()
            stale = [name for name in self._unlisted_providers if served.get(name, (0.0,))[0] <= now]
            for name, models in zip(stale, await asyncio.gather(*map(self._ask_provider, stale)), strict=True):
                served[name] = (now + (SERVED_SECONDS if models else RETRY_SECONDS), models)
        names = dict.fromkeys(self._models)
        for provider in self._unlisted_providers:
            prefix = "" if len(self._unlisted_providers) == 1 else f"{provider}:"
            for model in served[provider][1]:
                name = f"{prefix}{model.name}"
                names[name] = None
                if model.context_tokens is not None and name not in self._models:
                    self.state.context_tokens[name] = model.context_tokens
        return list(names)

    async def _ask_provider(self, name: str) -> list[ServedModel]:
        try:
            models = await self._connect(name, "").served_models()
        except (ModelError, RequestError):
            return []
        return list(islice((model for model in models if is_model_name(model.name)), MAX_SERVED_MODELS))

    def __contains__(self, name: object) -> bool:
        """Return whether the operator has named this model."""
        return name in self._models

    def max_view(self, name: str) -> View:
        """Return the fullest view that anyone gets of the reasoning of the model with this public name.

        `raw` for a model that does not exist any more: the view of its time is stored with its output.
        """
        configured = name if name in self._max_views else self._wildcard_of(name)
        if configured is not None:
            return self._max_views[configured]
        view: View = "raw"
        try:
            model = self.find(name)[1]
            called = (model.model or model) if isinstance(model, AgentModel) else model
        except RequestError:
            return view
        for deployment in deployments_of(called):
            view = stricter(view, self.max_view_of_origin(deployment.model.origin))
        return view

    def max_view_of_origin(self, origin: Origin | None) -> View:
        """Return the same for a model by its origin. It holds whatever public name was used, so no alias shows more."""
        if origin is None:
            return "raw"
        provider = self._providers.get(origin.provider)
        view = self._max_views_by_origin.get((origin.provider, origin.model), "raw")
        for name, entry in self._wildcards.items():
            if entry.provider == origin.provider and fnmatchcase(origin.model or "", entry.model or "*"):
                view = stricter(view, self._max_views[name])
        return view if provider is None else stricter(view, provider.view)

    def token_prices(self, name: str, origin: Origin) -> TokenPrices | None:
        """Return the prices of a token of a model; None if it has none.

        Args:
            name: The public name that was requested.
            origin: The model that answered: one of the deployments of that name, or a fallback.
        """
        key = (name, origin.provider, origin.model)
        if key not in self._token_prices:
            if len(self._token_prices) >= 1024:  # a bound, because names come from clients
                self._token_prices.clear()
            prices = self._find_prices(name, origin)
            self._token_prices[key] = None if prices is None else token_prices_of(prices)
        return self._token_prices[key]

    def _find_prices(self, name: str, origin: Origin) -> Prices | None:
        requested = name if name in self._entries else self._wildcard_of(name)
        for entry_name in dict.fromkeys([*([requested] if requested is not None else []), *self._entries]):
            entry = self._entries[entry_name]
            for row in configured_deployments(entry):
                pattern = row.model or ("*" if entry_name in self._wildcards else entry_name)
                is_its_model = row.provider == LOCAL_PROVIDER or matches_model(origin.model, pattern)
                prices = row.prices or entry.prices
                if row.provider == origin.provider and is_its_model and prices is not None:
                    return prices
        provider = self._providers.get(origin.provider)
        if provider is None:
            return None
        patterns = [pattern for pattern in provider.prices if matches_model(origin.model, pattern)]
        return provider.prices[max(patterns, key=lambda name: ("*" not in name, len(name)))] if patterns else None

    def visible_forms(self, viewer: Viewer) -> VisibleForms:
        """Return which forms of a sealed item's reasoning a viewer may see, of the model that made it."""
        return lambda item: viewer.limited_to(self.max_view_of_origin(item.made_for)).rule.forms

    def accepted_media(self, model: ChatModel) -> frozenset[str] | None:
        """Return what a model takes in addition to text (`Profile.accepts`); None if that is not known.

        Args:
            model: The model, or an agent. Of several deployments, all must take it.
        """
        called = (model.model or model) if isinstance(model, AgentModel) else model
        accepted = [self._accepted_by(deployment.model.origin) for deployment in deployments_of(called)]
        known = [media for media in accepted if media is not None]
        return frozenset.intersection(*known) if known and len(known) == len(accepted) else None

    def _accepted_by(self, origin: Origin) -> frozenset[str] | None:
        if origin.provider == LOCAL_PROVIDER:
            return frozenset()
        if origin.provider not in self._providers:
            return None
        media = self._profile_of(origin.provider, origin.model).accepts
        return None if media is None else frozenset(media)

    def context_tokens(self, name: str) -> int | None:
        """Return the size of the model's context in tokens, if it is configured, or its provider has said it."""
        return self._context_tokens.get(name) or self.state.context_tokens.get(name)

    def _configured_view(self, entry: ModelConfig) -> View:
        view = entry.view
        for row in configured_deployments(entry):
            provider = self._providers.get(row.provider)
            view = view if provider is None else stricter(view, provider.view)
        return view

    def _view_with_fallbacks(self, name: str, entry: ModelConfig) -> View:
        """Return the view of a model whose request another one may answer: the most restricted of all of them."""
        view = self._max_views[name]
        for cause in get_args(Cause):
            for other in getattr(entry.fallbacks, cause):
                view = stricter(view, self.max_view(other))
        return view

    @staticmethod
    def _origins_of(model: ChatModel | None) -> list[Origin]:
        return [deployment.model.origin for deployment in deployments_of(model)] if model is not None else []

    @property
    def lacks_model(self) -> bool:
        """Whether there is no model at all, because the embedded one is meant to be used and is not installed."""
        return self._config.uses_local_model and not (self._models or self._wildcards or self._providers)

    def has_default_model(self) -> bool:
        """Return whether the default model is available, or there is none, so that every request names its model."""
        try:
            _, model = self.find(None)
        except RequestError:
            return True
        return not isinstance(model, DeployedModel) or model.is_available()

    def find(self, name: str | None) -> tuple[str, ChatModel]:
        """Return the public name and the model. None is the default model.

        Raises:
            RequestError: `model_not_found`.
        """
        if self.lacks_model:
            raise invalid("model", NO_MODEL, "model_not_found", kind="not_found")
        if name is None:
            name = self.default_name or next(iter(self._models), None)
            if name is None:
                raise invalid(
                    "model",
                    "required, as this gateway has no default model; name one in the request, or give the "
                    "gateway one (--upstream-model, or server.default_model in the configuration)",
                    "missing",
                )
        if len(name) > MAX_NAME_CHARACTERS or not is_storable(name):
            raise invalid(
                "model",
                f"a name has at most {MAX_NAME_CHARACTERS} characters, and no NUL",
                "model_not_found",
                kind="not_found",
            )
        model = self._resolve(name)
        if model is None:
            near = get_close_matches(name, self._models, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self._models) or 'none by name'}"
            raise invalid("model", f"no model {name!r} here; {hint}", "model_not_found", kind="not_found")
        return name, model

    def _resolve(self, name: str) -> ChatModel | None:
        """Return the model that is served under a name; None if there is none."""
        model = self._models.get(name) or self._find_by_wildcard(name)
        return model or (self._find_by_provider(name) if name else None)

    def _find_by_wildcard(self, name: str) -> ChatModel | None:
        pattern = self._wildcard_of(name)
        if pattern is None:
            return None
        entry = self._wildcards[pattern]
        assert entry.provider is not None  # `config` checks it
        model = (entry.model or "*").replace("*", name[len(pattern) - 1 :])
        return self._open_model(entry.provider, model, pattern, entry.settings)

    def _wildcard_of(self, name: str) -> str | None:
        """Return the longest configured name with `*` that matches a name."""
        return max(
            (p for p in self._wildcards if name.startswith(p[:-1]) and len(name) >= len(p)), key=len, default=None
        )

    def _find_by_provider(self, name: str) -> ChatModel | None:
        provider, _, model = name.partition(":")
        if self._serves(provider, model):
            return self._open_model(provider, model)
        if len(self._unlisted_providers) == 1:
            return self._open_model(self._unlisted_providers[0], name)
        return None

    def _open_model(
        self, provider: str, model: str, pattern: str = "", settings: ModelSettings | None = None
    ) -> ChatModel:
        key = (provider, model, pattern)
        opened = self._open_models.get(key)
        if opened is None:
            if len(self._open_models) >= 1024:  # a bound, because names come from clients
                self._open_models.clear()
            opened = self._open_models[key] = self._create_model(provider, model, settings)
        return opened

    def _create_named(self, name: str, entry: ModelConfig) -> ChatModel | None:
        """Return the model with a public name; None if it is the embedded one and that is off."""
        rows = configured_deployments(entry)
        fallbacks: dict[Cause, list[str]] = {
            cause: others for cause in get_args(Cause) if (others := getattr(entry.fallbacks, cause))
        }
        policies = [
            Policy(
                requests_per_minute=row.requests_per_minute,
                tokens_per_minute=row.tokens_per_minute,
                streams=row.streams,
            )
            for row in rows
        ]
        is_deployed = len(rows) > 1 or bool(fallbacks) or any(policy.has_limits for policy in policies)
        deployments: list[Deployment] = []
        for row, policy in zip(rows, policies, strict=True):
            model = self._local
            if row.provider != LOCAL_PROVIDER:
                settings = merge_settings(entry.settings, row.settings)
                # A deployed model itself tries again.
                limits = replace(self._limits_of(row.provider), retries=0) if is_deployed else None
                model = self._create_model(row.provider, row.model or name, settings, limits)
            if model is not None:
                deployment = model.origin.deployment
                payer = Principal("", f"deployment:{deployment}", deployment, policy)
                own_limits = PrincipalLimits(self._limiter, payer) if policy.has_limits else None
                deployments.append(Deployment(deployment, model, row.order, row.weight, own_limits))
        if not deployments or not is_deployed:
            return deployments[0].model if deployments else None
        provider_limits = [self._limits_of(row.provider) for row in rows]
        return DeployedModel(
            name,
            deployments,
            self.cooldowns,
            retries=max(limits.retries for limits in provider_limits),
            retry_wait=max(limits.retry_wait for limits in provider_limits),
            retry_thoughts=entry.retry_thoughts,
            fallbacks=fallbacks,
            find=lambda other: self.find(other)[1],
            on_failure=self._on_failure,
        )

    def _limits_of(self, provider: str) -> Limits:
        row = self._providers.get(provider)
        return self._limits if row is None or row.limits is None else row.limits

    def _create_model(
        self, provider_name: str, model: str, settings: ModelSettings | None = None, limits: Limits | None = None
    ) -> ChatModel:
        created = self._connect(provider_name, model, settings, limits)
        return MediaModel(created, self._media, inline=created.profile.media == "inline")

    def _profile_of(self, provider_name: str, model: str) -> Profile:
        return self._profiles[self._config.profile_name(provider_name)].for_model(model)

    def _connect(
        self, provider_name: str, model: str, settings: ModelSettings | None = None, limits: Limits | None = None
    ) -> Model:
        provider: ProviderConfig = self._providers[provider_name]
        profile = self._profile_of(provider_name, model)
        connection = self._connections.get(provider_name)
        if connection is None:
            client = self._upstream_client
            base_url = find_base_url(self._config, provider_name, profile, os.environ)
            api_key = find_api_key(provider, profile)
        else:  # no variable of the environment changes where its key is sent
            client = self._connection_clients.client_for(connection)
            base_url, api_key = connection.base_url or profile.base_url, connection.api_key
        return Model(
            model,
            profile,
            client,
            base_url=base_url,
            api_key=api_key,
            account=provider.account,
            settings=settings,
            limits=limits or provider.limits,
            headers=provider.headers,
            provider=provider_name,
        )
