"""A model by its name alone, with defaults for profile, base URL, key and connection pool.

A subclass only names its builtin profiles.
"""

from __future__ import annotations

import os
from typing import ClassVar

from msgspec.structs import replace

from ..errors import ConfigError, RequestError
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles, hidden_row, named_profiles, tags_mistakes
from ..settings import ModelSettings
from ..unicode import did_you_mean
from ..upstream import Limits, UpstreamClient
from .model import Model


class ProviderModel(Model):
    """A model of a known provider. No key is looked up and no connection is opened before the first call."""

    profile_names: ClassVar[tuple[str, ...]] = ()
    """Names of the class's profiles. The first is the default; any other profile must have the wire of one of them. A
    class without profiles needs `profile`, which may have any wire."""

    def __init__(
        self,
        model_name: str,
        *,
        profile: Profile | str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        settings: ModelSettings | None = None,
        transport: UpstreamClient | None = None,
        limits: Limits | None = None,
        headers: dict[str, str] | None = None,
        thinking_tags: tuple[str, str] | str | None = None,
        account: str | None = None,
    ) -> None:
        """Create a model.

        Args:
            model_name: The model's name at the upstream.
            profile: A profile, or the name of a builtin one (`deepseek`, `vllm`).
            api_key: The key; by default from the environment variables that the profile names.
            base_url: Base URL of the server; by default from the environment variables that the profile names, else the
                profile's.
            settings: Settings of each call; those of the call take precedence.
            transport: The client for requests; by default the running loop's connection pool.
            limits: Limits of requests.
            headers: Headers of each request.
            thinking_tags: Markers around reasoning in text, in place of the profile's: a pair, or the name of a family.
            account: Label of the account, to distinguish signatures of several accounts.

        Raises:
            ConfigError: The profile is missing, does not exist or has another wire, or the markers are not valid.
        """
        resolved_profile = _profile_of(type(self), profile).for_model(model_name)
        if thinking_tags is not None:
            if mistakes := tags_mistakes(thinking_tags):
                raise ConfigError([f"thinking_tags: {mistake}" for mistake in mistakes])
            resolved_profile = replace(resolved_profile, tags=thinking_tags)
        address = _from_environment(resolved_profile.base_url_env)
        custom_base_url = base_url or (address and address.rstrip("/") + resolved_profile.base_url_env_path)
        self._has_custom_base_url = custom_base_url is not None
        """Whether the base URL was set by the user. Such a server may need no key."""
        super().__init__(
            model_name,
            resolved_profile,
            transport,
            base_url=custom_base_url,
            api_key=api_key,
            account=account,
            settings=settings,
            limits=limits,
            headers=headers,
        )

    @property
    def model_name(self) -> str:
        """The model's name at the upstream."""
        return self.name

    def api_key(self) -> str | None:
        profile = self.profile
        key = self._api_key or _from_environment(profile.api_key_env)
        needs_key = profile.api_key_env and profile.auth not in ("optional", "none", "aws")
        if key is None and needs_key and not self._has_custom_base_url:
            raise RequestError(
                f"{profile.title} needs an API key: set the environment variable {' or '.join(profile.api_key_env)}, "
                f"or set api_key",
                kind="unauthorized",
                code="missing_api_key",
            )
        return key


def _from_environment(names: tuple[str, ...]) -> str | None:
    # Keys that are read from files often end with a line break, which a header cannot hold.
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def _profile_of(model: type[ProviderModel], profile: Profile | str | None) -> Profile:
    profiles = builtin_profiles()
    if profile is None:
        if not model.profile_names:
            raise ConfigError(
                [f"profile: it is missing; {model.__name__} needs a profile, or the name of a built-in one"]
            )
        profile = profiles[model.profile_names[0]]
    wires = list(dict.fromkeys(profiles[name].wire for name in model.profile_names))
    if isinstance(profile, str):
        named = named_profiles()
        if profile not in named:
            raise ConfigError([f"profile: there is no profile {profile!r}; {did_you_mean(profile, named)}"])
        hidden = hidden_row(profile)
        # The class has decided about the wire: `OpenAIChatModel` with the profile `openai` is Chat Completions.
        profile = hidden if hidden is not None and hidden.wire in wires else named[profile]
    if wires and profile.wire not in wires:
        raise ConfigError(
            [
                f"profile: {profile.name!r} has the wire {profile.wire}, "
                f"and {model.__name__} supports {' or '.join(wires)}"
            ]
        )
    return profile
