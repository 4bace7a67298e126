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
from ..spaces.runtime.making import declare
from ..spaces.runtime.settings import SpaceSettings, check_name, check_settings
from ..storage import AlreadyStored, Store
from ..telemetry import log
from .access.config import OWNER_RULE, owner_fits

SHORT = 16
"""Characters. A shorter token works, and the log says that it can be guessed."""

MAX_TOKEN = 4096

USUAL: tuple[str, ...] = (
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
    def may(self) -> list[str | dict[str, Any]]:
        return list(USUAL) if self.capabilities is None else self.capabilities


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
        at = f"spaces.{name}"
        mistakes += _mistake(at, partial(check_name, name, at))
        mistakes += _settings(space.settings, at)
        if not owner_fits(space.owner):
            mistakes.append(f"{at}.owner: {OWNER_RULE}")
        for id, who in space.participants.items():
            mistakes += _participant(id, who, f"{at}.participants.{id}", environ)
        mistakes += _shared_tokens(at, space, environ)
    return mistakes


def _mistake(at: str, check: Callable[[], object]) -> list[str]:
    """What is wrong, if anything is, with its key."""
    try:
        check()
    except RequestError as error:
        message = error.info.message
        return [message if message.startswith(at) else f"{at}: {message}"]
    return []


def _settings(settings: SpaceSettings, at: str) -> list[str]:
    """Of each setting its first mistake: one that is wrong does not hide another."""
    usual, mistakes = SpaceSettings(), []
    for name in settings.__struct_fields__:
        alone = msgspec.structs.replace(usual, **{name: getattr(settings, name)})
        mistakes += _mistake(at, partial(check_settings, alone, at))
    return mistakes


def _participant(id: str, who: ParticipantConfig, at: str, environ: Mapping[str, str]) -> list[str]:
    mistakes = _mistake(at, lambda: check_participant(id, at))
    mistakes += _mistake(at, lambda: read_capabilities(who.may, f"{at}.capabilities"))
    if (who.token_env is None) == (who.token_file is None):
        mistakes.append(f"{at}: needs a token_env or a token_file, and one of them only")
    if who.token_env is not None and not environ.get(who.token_env, "").strip():
        mistakes.append(f"{at}.token_env: the environment has no {who.token_env}")
    return mistakes


def _shared_tokens(at: str, space: SpaceConfig, environ: Mapping[str, str]) -> list[str]:
    """Within one space a token is one participant's."""
    seen: dict[str, str] = {}
    mistakes = []
    for id, who in space.participants.items():
        token = environ.get(who.token_env or "", "").strip()
        if token and seen.setdefault(token, id) != id:
            mistakes.append(f"{at}.participants.{id}: has the same token as {seen[token]!r}; each needs their own")
    return mistakes


def read_tokens(spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """The tokens, by space and participant. Raises `ConfigError` with every mistake."""
    mistakes: list[str] = []
    tokens: dict[tuple[str, str], str] = {}
    for name, space in spaces.items():
        owners: dict[str, str] = {}
        for id, who in space.participants.items():
            at = f"spaces.{name}.participants.{id}"
            token, wrong = _token(who, environ)
            if wrong is not None:
                mistakes.append(f"{at}.{wrong}")
            elif owners.setdefault(token, id) != id:
                mistakes.append(f"{at}: has the same token as {owners[token]!r}; each needs their own")
            tokens[name, id] = token
    if mistakes:
        raise ConfigError(mistakes)
    return tokens


def _token(who: ParticipantConfig, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """The token, and what is wrong with it."""
    if who.token_env is not None:
        text, at = environ.get(who.token_env, ""), "token_env"
    else:
        at = "token_file"
        try:
            text = Path(who.token_file or "").expanduser().read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            return "", f"{at}: {who.token_file}: {reason}"
    text = text.strip()
    if not text or len(text) > MAX_TOKEN or not text.isascii() or not text.isprintable() or " " in text:
        return "", f"{at}: a token is 1 to {MAX_TOKEN} ASCII characters without spaces"
    return text, None


async def put_spaces(store: Store, spaces: Mapping[str, SpaceConfig], environ: Mapping[str, str]) -> None:
    """Make the configured spaces what they are to be. Raises `ConfigError`."""
    tokens = read_tokens(spaces, environ)
    mistakes = []
    for name, space in spaces.items():
        for id in space.participants:
            if len(tokens[name, id]) < SHORT:
                log.warning("the token of %s in the space %s is short: it can be guessed", id, name)
        before = await store.spaces.get(name)
        if before is not None and before.origin == "made" and before.owner == space.owner:
            log.info(
                "the space %s was made by a command: its settings are the configuration's from now on, and who was "
                "added to it stays",
                name,
            )
        participants = {id: (who.may, tokens[name, id]) for id, who in space.participants.items()}
        try:
            await declare(store.spaces, space.owner, name, space.settings, participants)
        except AlreadyStored as error:
            mistakes.append(f"spaces.{name}: {error.info.message}")
    if mistakes:
        raise ConfigError(mistakes)
