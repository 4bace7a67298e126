"""`[spaces.NAME]` in the configuration: how a space behaves, and who is in it.

    [spaces.review]
    reasoning = "strict"

    [spaces.review.participants.alice]
    token_env = "ALICE_TOKEN"
    capabilities = ["chat", "mcp/*", "reasoning/*"]

Beside a space's settings stand its owner and its participants. A token is in the environment or in a file, never here.
What is configured is put into the store when the server starts: it then is what it says here, and whoever was invited
or added otherwise stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ..envelopes.capability import read_capabilities
from ..envelopes.envelope import check_participant
from ..errors import ConfigError, RequestError
from ..spaces.runtime.provisioning import declare_space
from ..spaces.runtime.settings import SpaceSettings, check_name, check_settings
from ..storage import AlreadyStored, Store
from ..telemetry import log
from .access.config import OWNER_RULE, is_owner_name

SHORT_TOKEN_CHARACTERS = 16
"""Characters. A shorter token works, and the log says that it can be guessed."""

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
"""What a participant may do of whom nothing is said: take part, and not rule over others."""


class ParticipantConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who may come in."""

    token_env: str | None = None
    """The environment variable that holds their token."""
    token_file: str | None = None
    """Or the file."""
    capabilities: list[str | dict[str, Any]] | None = None
    """What they may send. By default chats, MCP and reasoning (`USUAL`)."""

    @property
    def granted_capabilities(self) -> list[str | dict[str, Any]]:
        return list(DEFAULT_CAPABILITIES) if self.capabilities is None else self.capabilities


class SpaceConfig(SpaceSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A space: its settings, and who is in it."""

    owner: str = "local"
    """Whose it is: whoever asks for the list of spaces with a key of this owner finds it."""
    participants: dict[str, ParticipantConfig] = msgspec.field(default_factory=dict)

    @property
    def settings(self) -> SpaceSettings:
        return SpaceSettings(**{name: getattr(self, name) for name in SpaceSettings.__struct_fields__})


def check_spaces(spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> list[str]:
    """Every mistake that shows before a file is opened."""
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
    return mistakes


def _mistakes_of(location: str, check: Callable[[], object]) -> list[str]:
    """What is wrong, if anything is, with its key."""
    try:
        check()
    except RequestError as error:
        message = error.info.message
        return [message if message.startswith(location) else f"{location}: {message}"]
    return []


def _settings_mistakes(settings: SpaceSettings, location: str) -> list[str]:
    """Of each setting its first mistake: one that is wrong does not hide another."""
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


def _shared_token_mistakes(location: str, space: SpaceConfig, environ: Mapping[str, str]) -> list[str]:
    """Within one space a token is one participant's."""
    participant_by_token: dict[str, str] = {}
    mistakes = []
    for id, participant in space.participants.items():
        token = environ.get(participant.token_env or "", "").strip()
        if token and participant_by_token.setdefault(token, id) != id:
            mistakes.append(
                f"{location}.participants.{id}: has the same token as {participant_by_token[token]!r}; each needs their own"
            )
    return mistakes


def read_tokens(spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The tokens, by space and participant. Raises `ConfigError` with every mistake."""
    mistakes: list[str] = []
    tokens: dict[tuple[str, str], str] = {}
    for name, space in spaces.items():
        participant_by_token: dict[str, str] = {}
        for id, participant in space.participants.items():
            location = f"spaces.{name}.participants.{id}"
            token, mistake = _read_token(participant, environ)
            if mistake is not None:
                mistakes.append(f"{location}.{mistake}")
            elif participant_by_token.setdefault(token, id) != id:
                mistakes.append(
                    f"{location}: has the same token as {participant_by_token[token]!r}; each needs their own"
                )
            tokens[name, id] = token
    if mistakes:
        raise ConfigError(mistakes)
    return tokens


def _read_token(participant: ParticipantConfig, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The token, and what is wrong with it."""
    if participant.token_env is not None:
        text, key = environ.get(participant.token_env, ""), "token_env"
    else:
        key = "token_file"
        try:
            text = Path(participant.token_file or "").expanduser().read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            return "", f"{key}: {participant.token_file}: {reason}"
    text = text.strip()
    if not text or len(text) > MAX_TOKEN_CHARACTERS or not text.isascii() or not text.isprintable() or " " in text:
        return "", f"{key}: a token is 1 to {MAX_TOKEN_CHARACTERS} ASCII characters without spaces"
    return text, None


async def store_spaces(store: Store, spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> None:
    """Make the configured spaces what they are to be. Raises `ConfigError`."""
    tokens = read_tokens(spaces, environ)
    mistakes = []
    for name, space in spaces.items():
        for id in space.participants:
            if len(tokens[name, id]) < SHORT_TOKEN_CHARACTERS:
                log.warning("the token of %s in the space %s is short: it can be guessed", id, name)
        existing = await store.spaces.get(name)
        if existing is not None and existing.origin == "made" and existing.owner == space.owner:
            log.info(
                "the space %s was made by a command: its settings are the configuration's from now on, and who was "
                "added to it stays",
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
