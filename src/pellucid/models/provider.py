"""A model by its name alone: profile, address, key and connections are the usual ones, unless they are given.

A subclass says which row of the profiles is its own, and nothing else.
"""

from __future__ import annotations

import os
from typing import ClassVar

from msgspec.structs import replace

from ..errors import ConfigError, RequestError
from ..providers.profile import Profile
from ..providers.profiles import builtin_profiles, tags_mistakes
from ..settings import ModelSettings
from ..unicode import did_you_mean
from ..upstream import Limits, UpstreamClient
from .model import Model


class ProviderModel(Model):
    """A model of a provider that is known. Nothing is looked up or connected to before it is asked."""

    profile_names: ClassVar[tuple[str, ...]] = ()
    """The rows that the class is made for. The first is the default; others must be of the wire of one of them. Where
    there are none, the row must be given, and may be any."""

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
        """`profile`: a row, or the name of one that ships (`deepseek`, `vllm`).

        `api_key`, `base_url`: by default from the environment variables that the row names. `account`: a label for the
        account, where signatures of several are about. `thinking_tags`: the markers around reasoning in text, in place
        of the row's: a pair, or the name of a family. Raises `ConfigError` for a row or markers that cannot be.
        """
        row = _profile_of(type(self), profile).for_model(model_name)
        if thinking_tags is not None:
            mistakes = tags_mistakes(thinking_tags)
            if mistakes:
                raise ConfigError([f"thinking_tags: {mistake}" for mistake in mistakes])
            row = replace(row, tags=thinking_tags)
        address = _from_environment(row.base_url_env)
        custom_base_url = base_url or (address and address.rstrip("/") + row.base_url_env_path)
        self._has_custom_base_url = custom_base_url is not None
        """Whether it may be somebody else's server, which may want no key."""
        super().__init__(
            model_name,
            row,
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
        """What the upstream calls it."""
        return self.name

    def api_key(self) -> str | None:
        row = self.profile
        key = self._api_key or _from_environment(row.api_key_env)
        if (
            key is None
            and row.api_key_env
            and row.auth not in ("optional", "none", "aws")
            and not self._has_custom_base_url
        ):
            raise RequestError(
                f"{row.title} needs an API key: set the environment variable {' or '.join(row.api_key_env)}, "
                f"or give the model an api_key",
                kind="unauthorized",
                code="missing_api_key",
            )
        return key


def _from_environment(names: tuple[str, ...]) -> str | None:
    # A file's last line break comes along easily, and no header can hold it.
    return next((value for name in names if (value := os.environ.get(name, "").strip())), None)


def _profile_of(model: type[ProviderModel], profile: Profile | str | None) -> Profile:
    rows = builtin_profiles()
    name = next(iter(model.profile_names), None) if profile is None else profile
    if name is None:
        raise ConfigError([f"profile: it is missing; {model.__name__} needs a profile, or the name of one that ships"])
    row = rows.get(name) if isinstance(name, str) else name
    wires = list(dict.fromkeys(rows[own].wire for own in model.profile_names))
    if row is None:
        raise ConfigError([f"profile: there is no profile {name!r}; {did_you_mean(name, rows)}"])
    if wires and row.wire not in wires:
        raise ConfigError(
            [f"profile: {row.name!r} is of the wire {row.wire}, and {model.__name__} speaks {' or '.join(wires)}"]
        )
    return row
