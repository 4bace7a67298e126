"""The models that a gateway serves, by their public names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from ..egress import EgressPolicy
from ..errors import RequestError
from ..models import Asked, Model
from ..models.media import Media, WithMedia
from ..parts import Origin
from ..settings import ModelSettings
from ..storage.names import storable
from ..upstream import UpstreamClient
from ..view import View, lesser
from .config import Config, ModelConfig, ProviderConfig, api_key

MAX_NAME = 256
"""Names come from clients: they are compared, kept and repeated."""


class Catalog:
    """Finds the model for a public name.

    A name is, in this order: one of the configured models; a model that a provider lists; `PROVIDER:MODEL`; and,
    where a single provider lists no models, whatever that provider calls its own.
    """

    def __init__(
        self, config: Config, transport: UpstreamClient, local: Asked | None = None, more: Iterable[Asked] = ()
    ) -> None:
        self._transport = transport
        self._profiles = config.all_profiles()
        self._providers = config.providers
        self._media = Media(EgressPolicy(config.egress.allow))
        self._named: dict[str, Asked] = {}
        self._open: dict[tuple[str, str], Asked] = {}
        for name, entry in config.models.items():
            if entry.provider == "local":
                if local is not None:
                    self._named[name] = local
            else:
                self._named[name] = self._model(entry.provider, entry.model or name, entry.settings)
        for provider_name, provider in config.providers.items():
            for name in provider.models:
                self._named.setdefault(name, self._model(provider_name, name))
        if local is not None:
            self._named.setdefault(local.name, local)
            self._named.setdefault("local", local)
        for asked in more:
            # Who builds the application in code has the last word on its names.
            self._named[asked.name] = WithMedia(asked, self._media)
        self._context = {name: entry.context for name, entry in config.models.items()}
        self._most = {name: self._of_name(entry) for name, entry in config.models.items()}
        self._most_by: dict[tuple[str, str], View] = {}
        for name in config.models:
            if (named := self._named.get(name)) is not None:
                key = (named.origin.provider, named.origin.model)
                self._most_by[key] = lesser(self._most[name], self._most_by.get(key, "raw"))
        self._any = [name for name, provider in config.providers.items() if not provider.models]
        self.default = config.server.default_model

    def names(self) -> list[str]:
        """The public names that are known; a provider that lists none may serve others."""
        return list(self._named)

    def __contains__(self, name: object) -> bool:
        """Whether the operator has named it."""
        return name in self._named

    def most(self, name: str) -> View:
        """What anybody may see of the reasoning of the model with this public name; all of one that is not there any
        more (what it was is kept with what it said)."""
        if name in self._most:
            return self._most[name]
        try:
            return self.most_by(self.find(name)[1].origin)
        except RequestError:
            return "raw"

    def most_by(self, origin: Origin | None) -> View:
        """The same of a model by whatever name it is asked: nobody sees more of it by a way round its name."""
        if origin is None:
            return "raw"
        provider = self._providers.get(origin.provider)
        own = self._most_by.get((origin.provider, origin.model), "raw")
        return own if provider is None else lesser(own, provider.view)

    def context(self, name: str) -> int | None:
        """How many tokens fit into the context of the model with this public name, if the operator said so."""
        return self._context.get(name)

    def _of_name(self, entry: ModelConfig) -> View:
        provider = self._providers.get(entry.provider)
        return entry.view if provider is None else lesser(entry.view, provider.view)

    def find(self, name: str | None) -> tuple[str, Asked]:
        """The public name and its model. Raises `RequestError` (`model_not_found`)."""
        if name is None:
            name = self.default or next(iter(self._named), None)
            if name is None:
                raise RequestError(
                    "model: required, as this gateway has no default model; name one in the request, or give the "
                    "gateway one (--upstream-model, or server.default_model in the configuration)",
                    param="model",
                    code="missing",
                )
        if len(name) > MAX_NAME or not storable(name):
            raise RequestError(
                f"model: a name has at most {MAX_NAME} characters, and no NUL among them",
                kind="not_found",
                code="model_not_found",
                param="model",
            )
        served = self._named.get(name) or (self._by_provider(name) if name else None)
        if served is None:
            near = get_close_matches(name, self._named, 1)
            known = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(self._named) or 'none by name'}"
            raise RequestError(
                f"model: no model {name!r} here; {known}", kind="not_found", code="model_not_found", param="model"
            )
        return name, served

    def _by_provider(self, name: str) -> Asked | None:
        provider, colon, model = name.partition(":")
        if colon and provider in self._providers and model:
            return self._opened(provider, model)
        if len(self._any) == 1:
            return self._opened(self._any[0], name)
        return None

    def _opened(self, provider: str, model: str) -> Asked:
        key = (provider, model)
        served = self._open.get(key)
        if served is None:
            if len(self._open) >= 1024:  # names come from clients
                self._open.clear()
            served = self._open[key] = self._model(provider, model)
        return served

    def _model(self, provider_name: str, model: str, settings: ModelSettings | None = None) -> Asked:
        provider: ProviderConfig = self._providers[provider_name]
        profile = self._profiles[provider.profile or provider_name]
        asked = Model(
            model,
            profile,
            self._transport,
            base_url=provider.base_url,
            api_key=api_key(provider, profile),
            account=provider.account,
            settings=settings,
            limits=provider.limits,
            headers=provider.headers,
            provider=provider_name,
        )
        return WithMedia(asked, self._media, inline=profile.media == "inline")
