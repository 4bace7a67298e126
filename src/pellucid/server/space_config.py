"""`[spaces.NAME]` in the configuration: the settings, the participants and the webhooks of a space.

    [spaces.review]
    reasoning = "strict"

    [spaces.review.participants.alice]
    token_env = "ALICE_TOKEN"
    capabilities = ["chat", "mcp/*", "reasoning/*"]

    [spaces.review.webhooks.ops]
    url = "https://ops.example/spaces"
    secret_env = "OPS_SECRET"

A space's settings, its owner, its participants and its webhooks are in one table. Tokens and secrets are in the
environment or in files, never in the configuration. When the server starts, the configuration is written to the store.
Participants that were invited or added in another way stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ..envelopes.capability import read_capabilities
from ..envelopes.envelope import check_participant
from ..envelopes.visibility import SpaceView
from ..errors import ConfigError, RequestError
from ..spaces.runtime.provisioning import declare_space
from ..spaces.runtime.settings import SpaceSettings, check_name, check_settings
from ..spaces.runtime.webhooks import Webhook, read_secret
from ..storage import AlreadyStored, Store
from ..telemetry import log
from .access.config import OWNER_RULE, is_owner_name, is_secret_text

SHORT_TOKEN_CHARACTERS = 16
"""A token shorter than this works, and the log warns that it can be guessed."""

MAX_TOKEN_CHARACTERS = 4096

DEFAULT_CAPABILITIES: tuple[str, ...] = (
    "chat",
    "chat/*",
    "mcp/*",
    "reasoning/*",
    "stream/*",
    "participant/status",
    "capability/grant-ack",
)
"""Capabilities of a participant that has none configured: to take part, and not to administer others."""


class ParticipantConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A participant that may join."""

    token_env: str | None = None
    """The environment variable that holds the token."""
    token_file: str | None = None
    """The file that holds the token, instead."""
    capabilities: list[str | dict[str, Any]] | None = None
    """What the participant may send; by default chats, MCP and reasoning (`DEFAULT_CAPABILITIES`)."""

    @property
    def granted_capabilities(self) -> list[str | dict[str, Any]]:
        return list(DEFAULT_CAPABILITIES) if self.capabilities is None else self.capabilities


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A webhook: an address that receives what happens in the space."""

    url: str
    """The address to which envelopes are sent."""
    secret_env: str | None = None
    """The environment variable that holds the secret of the signatures (`whsec_…`)."""
    secret_file: str | None = None
    """The file that holds the secret, instead."""
    kinds: list[str] = msgspec.field(default_factory=lambda: ["*"])
    """Kinds of envelopes, also with `*`."""
    view: SpaceView = "main"
    """What of reasoning is sent: `main`: nothing that is in a context."""
    max_behind: int = 10_000
    """Backlog, in envelopes of the space, above which the oldest are skipped."""


class SpaceConfig(SpaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A space: its settings and its participants."""

    owner: str = "local"
    """The owner. Callers with a key of this owner see the space in the list of spaces."""
    participants: dict[str, ParticipantConfig] = msgspec.field(default_factory=dict)
    webhooks: dict[str, WebhookConfig] = msgspec.field(default_factory=dict)

    @property
    def settings(self) -> SpaceSettings:
        return SpaceSettings(**{name: getattr(self, name) for name in SpaceSettings.__struct_fields__})


def check_spaces(spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> list[str]:
    """Return every mistake that can be found without opening a file."""
    mistakes: list[str] = []
    for name, space in spaces.items():
        location = f"spaces.{name}"
        mistakes += _mistakes_of(location, partial(check_name, name, location))
        mistakes += _settings_mistakes(space.settings, location)
        if not is_owner_name(space.owner):
            mistakes.append(f"{location}.owner: {OWNER_RULE}")
        for id, participant in space.participants.items():
            mistakes += _participant_mistakes(id, participant, f"{location}.participants.{id}", environ)
        mistakes += _shared_token_mistakes(location, space, environ)
        for id, webhook in space.webhooks.items():
            mistakes += _webhook_mistakes(id, webhook, f"{location}.webhooks.{id}", environ)
    return mistakes


def _mistakes_of(location: str, check: Callable[[], object]) -> list[str]:
    """Return the mistake that `check` raises, if any, with its key."""
    try:
        check()
    except RequestError as error:
        message = error.info.message
        return [message if message.startswith(location) else f"{location}: {message}"]
    return []


def _settings_mistakes(settings: SpaceSettings, location: str) -> list[str]:
    """Return the first mistake of each setting: one mistake does not hide another."""
    defaults, mistakes = SpaceSettings(), []
    for name in settings.__struct_fields__:
        candidate = msgspec.structs.replace(defaults, **{name: getattr(settings, name)})
        mistakes += _mistakes_of(location, partial(check_settings, candidate, location))
    return mistakes


def _participant_mistakes(
    id: str, participant: ParticipantConfig, location: str, environ: Mapping[str, str]
) -> list[str]:
    mistakes = _mistakes_of(location, lambda: check_participant(id, location))
    mistakes += _mistakes_of(
        location, lambda: read_capabilities(participant.granted_capabilities, f"{location}.capabilities")
    )
    if (participant.token_env is None) == (participant.token_file is None):
        mistakes.append(f"{location}: needs a token_env or a token_file, and one of them only")
    if participant.token_env is not None and not environ.get(participant.token_env, "").strip():
        mistakes.append(f"{location}.token_env: the environment has no {participant.token_env}")
    return mistakes


def _webhook_mistakes(id: str, webhook: WebhookConfig, location: str, environ: Mapping[str, str]) -> list[str]:
    mistakes = _mistakes_of(location, partial(check_name, id, location))
    # The address is not quoted, because it may be a secret.
    try:
        parts = urlsplit(webhook.url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    if not is_url or "@" in parts.netloc or parts.fragment or " " in webhook.url or not webhook.url.isprintable():
        mistakes.append(f"{location}.url: it is no http:// or https:// address without credentials and #")
    if not webhook.kinds or not all(webhook.kinds):
        mistakes.append(f'{location}.kinds: name kinds, like "chat" or "mcp/*", or leave it out for all')
    if webhook.max_behind < 1:
        mistakes.append(f"{location}.max_behind: it must be 1 or more")
    if (webhook.secret_env is None) == (webhook.secret_file is None):
        mistakes.append(f"{location}: needs a secret_env or a secret_file, and one of them only")
    if webhook.secret_env is not None:
        mistakes += [f"{location}.{mistake}" for mistake in _webhook_key(webhook, environ)[1]]
    return mistakes


def _webhook_key(webhook: WebhookConfig, environ: Mapping[str, str]) -> tuple[bytes, list[str]]:
    """Return the key of a webhook, and the mistakes in it."""
    text, mistake = _read_secret("secret", webhook.secret_env, webhook.secret_file, environ)
    if mistake is not None:
        return b"", [mistake]
    try:
        return read_secret(text), []
    except ValueError as error:
        return b"", [f"secret_{'file' if webhook.secret_env is None else 'env'}: {error}"]


def read_webhooks(spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> list[Webhook]:
    """Return all webhooks. Raises `ConfigError` with every mistake in their secrets."""
    mistakes: list[str] = []
    webhooks: list[Webhook] = []
    for name, space in spaces.items():
        for id, webhook in space.webhooks.items():
            key, wrong = _webhook_key(webhook, environ)
            mistakes += [f"spaces.{name}.webhooks.{id}.{mistake}" for mistake in wrong]
            webhooks.append(
                Webhook(
                    owner=space.owner,
                    space=name,
                    name=id,
                    url=webhook.url,
                    key=key,
                    kinds=tuple(webhook.kinds),
                    view=webhook.view,
                    max_behind=webhook.max_behind,
                )
            )
    if mistakes:
        raise ConfigError(mistakes)
    return webhooks


def _shared_token_mistakes(location: str, space: SpaceConfig, environ: Mapping[str, str]) -> list[str]:
    """Return the mistakes of participants whose tokens in the environment are equal."""
    participant_by_token: dict[str, str] = {}
    mistakes: list[str] = []
    for id, participant in space.participants.items():
        if token := environ.get(participant.token_env or "", "").strip():
            mistakes += _add_token(participant_by_token, token, id, f"{location}.participants.{id}")
    return mistakes


def _add_token(participant_by_token: dict[str, str], token: str, id: str, location: str) -> list[str]:
    """Add the token of a participant; return the mistake if another one of the space has the same token."""
    other = participant_by_token.setdefault(token, id)
    return [] if other == id else [f"{location}: has the same token as {other!r}; each needs its own"]


def read_tokens(spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return the tokens by space and participant. Raises `ConfigError` with every mistake."""
    mistakes: list[str] = []
    tokens: dict[tuple[str, str], str] = {}
    for name, space in spaces.items():
        participant_by_token: dict[str, str] = {}
        for id, participant in space.participants.items():
            location = f"spaces.{name}.participants.{id}"
            token, mistake = _read_token(participant, environ)
            if mistake is not None:
                mistakes.append(f"{location}.{mistake}")
            else:
                mistakes += _add_token(participant_by_token, token, id, location)
            tokens[name, id] = token
    if mistakes:
        raise ConfigError(mistakes)
    return tokens


def _read_token(participant: ParticipantConfig, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the token, and the mistake in it, if any."""
    text, mistake = _read_secret("token", participant.token_env, participant.token_file, environ)
    if mistake is None and (not 0 < len(text) <= MAX_TOKEN_CHARACTERS or not is_secret_text(text)):
        key = "token_file" if participant.token_env is None else "token_env"
        return "", f"{key}: a token is 1 to {MAX_TOKEN_CHARACTERS} ASCII characters without spaces"
    return text, mistake


def _read_secret(
    what: str, variable: str | None, file: str | None, environ: Mapping[str, str]
) -> tuple[str, str | None]:
    """Return the text of a variable or a file, and why it could not be read, with its key (`{what}_file`)."""
    if variable is not None:
        text = environ.get(variable, "").strip()
        return text, None if text else f"{what}_env: the environment has no {variable}"
    try:
        return Path(file or "").expanduser().read_text("utf-8").strip(), None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        return "", f"{what}_file: {file}: {reason}"


async def store_spaces(store: Store, spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> None:
    """Write the configured spaces to the store. Raises `ConfigError`."""
    tokens = read_tokens(spaces, environ)
    mistakes = []
    for name, space in spaces.items():
        for id in space.participants:
            if len(tokens[name, id]) < SHORT_TOKEN_CHARACTERS:
                log.warning("the token of %s in the space %s is short: it can be guessed", id, name)
        existing = await store.spaces.get(name)
        if existing is not None and existing.origin == "made" and existing.owner == space.owner:
            log.info(
                "the space %s was made by a command: its settings are those of the configuration from now on, and its "
                "participants stay",
                name,
            )
        participants = {
            id: (participant.granted_capabilities, tokens[name, id]) for id, participant in space.participants.items()
        }
        try:
            await declare_space(store.spaces, space.owner, name, space.settings, participants)
        except AlreadyStored as error:
            mistakes.append(f"spaces.{name}: {error.info.message}")
    if mistakes:
        raise ConfigError(mistakes)
