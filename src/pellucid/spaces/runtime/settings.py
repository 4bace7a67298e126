"""The settings of a space, as its operator writes them in TOML, as JSON, and as they are stored.

    settings = read_settings({"reasoning": "flag", "idle_seconds": 600})
    read_settings(settings.dump()) == settings

A missing key has its default. An unknown key is refused; the message says where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any, ClassVar, Literal

import msgspec
from msgspec.structs import replace

from ...envelopes.capability import read_capabilities
from ...envelopes.lifecycle import LifecycleSettings
from ...envelopes.talk import LIMIT_NAMES, TalkLimits
from ...errors import RequestError
from ...unicode import describe_validation_error, did_you_mean
from .redaction import PatternRedactor, Redact

MAX_NAME_LENGTH = 64
MAX_TOPIC_CHARS = 300
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A rate limit: so many a second, with bursts."""

    REQUIRED: ClassVar[Mapping[str, str]] = {
        "per_second": "how many may come in a second, like `per_second = 20`, together with `burst`",
        "burst": "how many may come at once, like `burst = 100`, together with `per_second`",
    }
    """The purpose of each field, for the error when it is missing."""

    per_second: float
    """How many may come in a second."""
    burst: float
    """How many may come at once."""


class FloodLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of one participant at one replica."""

    reasoning: Rate = Rate(per_second=100, burst=500)
    """Messages of each family."""
    chat: Rate = Rate(per_second=20, burst=100)
    mcp: Rate = Rate(per_second=100, burst=500)
    stream: Rate = Rate(per_second=200, burst=1000)
    """Of streams, also each frame of data."""
    other: Rate = Rate(per_second=20, burst=100)
    bytes: Rate = Rate(per_second=1_000_000, burst=8_000_000)
    """Bytes of each family."""
    frame_bytes: int = 1 << 20
    """Maximum size of an envelope."""
    open_contexts: int = 64
    """Maximum number of its contexts that are open."""
    open_streams: int = 16
    """Maximum number of its streams that are open."""
    outlet_bytes: int = 4 << 20
    """Bytes that may wait for a slow reader before it gets a gap instead."""
    errors: Rate = Rate(per_second=10, burst=20)
    """How many refusals one connection is sent. The next one that is sent says how many were not."""
    patience: float = 10
    """Seconds for which a participant may exceed its limit before it is disconnected."""
    seats: int = 64
    """Maximum number of connections of one participant at one replica."""


class Compress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When long reasoning is summarised."""

    after: int
    """Number of thoughts in one context after which the gateway summarises them."""


class TalkSettings(TalkLimits, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How much agents may say before a person joins in (`envelopes.talk`): in the space, and in each context."""

    context: TalkLimits = TalkLimits()
    people: tuple[str, ...] = ()
    """The participants who are people. Empty: everyone who has sent no reasoning and no response."""

    @property
    def is_unlimited(self) -> bool:
        """Whether there is no limit."""
        return all(getattr(one, name) is None for one in (self, self.context) for name in LIMIT_NAMES)


class SpaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The settings of a space."""

    topic: str = ""
    """What it is about, in a line."""
    reasoning: Literal["strict", "flag", "off"] = "strict"
    """What happens to reasoning that breaks its life cycle: it is refused, flagged, or not checked."""
    responses: Literal["strict", "flag"] = "strict"
    """What happens to a response by a participant who may not answer the request: it is refused, or flagged."""
    owner_only: bool = False
    """Whether only its starter may reason in a context."""
    addresses: Literal["restrict", "advisory"] = "restrict"
    """Whether `to` keeps others from reading an envelope."""
    read_reasoning: Literal["everyone", "capability"] = "everyone"
    """Who may read the reasoning of others. `capability`: who holds `reasoning/read`."""
    idle_seconds: float | None = 1800
    """Silence after which a context is abandoned. Null (in TOML: inf): never."""
    grace_seconds: float = 5
    """How long a participant may be absent before its open contexts are abandoned."""
    templates: dict[str, list[str]] = {}
    """The names of each template's steps, in order."""
    redact: list[Redact] = []
    limits: FloodLimits = FloodLimits()
    talk: TalkSettings = TalkSettings()
    always: list[str | dict[str, Any]] = msgspec.field(default_factory=lambda: ["mcp/response"])
    """Capabilities of every participant."""
    compress: Compress | None = None

    @property
    def advisory(self) -> bool:
        """Whether `to` is only advice, and everyone may read every envelope."""
        return self.addresses == "advisory"

    def dump(self) -> bytes:
        """Return the JSON that is stored."""
        return msgspec.json.encode(self)

    def lifecycle(self) -> LifecycleSettings:
        """Return the settings of the life cycle."""
        return LifecycleSettings(
            mode=self.reasoning,
            owner_only=self.owner_only,
            has_audiences=not self.advisory,
            templates={name: tuple(steps) for name, steps in self.templates.items()},
            max_open=self.limits.open_contexts,
            idle_ms=None if self.idle_seconds in (None, inf) else round(self.idle_seconds * 1000),
            max_implicit=MAX_IMPLICIT,
            max_ended=MAX_ENDED,
            max_ids=MAX_IDS,
        )


MAX_IMPLICIT, MAX_ENDED, MAX_IDS = 1_000, 2_000, 5_000
"""How much of a space's past its state remembers. The store is asked for the rest. The state is stored every few
hundred envelopes, so it has to be small.
"""


def read_settings(written: Mapping[str, Any] | bytes, location: str = "settings") -> SpaceSettings:
    """Read settings.

    Args:
        written: The settings as a mapping, or as JSON.
        location: Where they stand, for errors.

    Raises:
        RequestError: If a value is not valid.
    """
    try:
        if isinstance(written, bytes):
            settings = msgspec.json.decode(written, type=SpaceSettings)
        else:
            settings = msgspec.convert(dict(written), SpaceSettings)
    except msgspec.ValidationError as error:
        raise _to_request_error(str(error), location) from None
    if settings.idle_seconds == inf:
        settings = replace(settings, idle_seconds=None)
    check_settings(settings, location)
    return settings


def check_settings(settings: SpaceSettings, location: str = "settings") -> None:
    """Check what types do not express.

    Raises:
        RequestError: If a value is not valid.
    """
    if len(settings.topic) > MAX_TOPIC_CHARS:
        raise _invalid_settings(f"{location}.topic", f"a topic has at most {MAX_TOPIC_CHARS} characters")
    read_capabilities(settings.always, f"{location}.always")
    PatternRedactor.from_rules(settings.redact, f"{location}.redact")
    for name, steps in settings.templates.items():
        if not steps or len(set(steps)) < len(steps):
            raise _invalid_settings(
                f"{location}.templates.{name}", "a template has at least one step, and each name once"
            )
    for name, number in (("idle_seconds", settings.idle_seconds), ("grace_seconds", settings.grace_seconds)):
        never = name == "idle_seconds" and number in (None, inf)
        if not never and not (number is not None and 0 <= number < 1e9):
            raise _invalid_settings(
                f"{location}.{name}", f"it must be a number of seconds, from 0{_OR_NEVER.get(name, '')}"
            )
    limits = settings.limits
    for name in ("reasoning", "chat", "mcp", "stream", "other", "bytes", "errors"):
        rate: Rate = getattr(limits, name)
        if not (rate.per_second > 0 and rate.burst >= 1):
            raise _invalid_settings(
                f"{location}.limits.{name}", "`per_second` must be more than 0, and `burst` 1 or more"
            )
    for name in ("frame_bytes", "open_contexts", "open_streams", "outlet_bytes", "seats"):
        if getattr(limits, name) < 1:
            raise _invalid_settings(f"{location}.limits.{name}", "it must be 1 or more")
    for where, talk in (("talk", settings.talk), ("talk.context", settings.talk.context)):
        for name in LIMIT_NAMES:
            allowed = getattr(talk, name)
            if allowed is not None and not 0 < allowed < inf:
                raise _invalid_settings(f"{location}.{where}.{name}", "it must be more than 0; without it: no limit")
    if settings.compress is not None and settings.compress.after < 2:
        raise _invalid_settings(f"{location}.compress.after", "it must be 2 or more")


def check_name(name: str, location: str = "name") -> str:
    """Return the name of a space if it is valid.

    Raises:
        RequestError: If it is not.
    """
    if len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name):
        return name
    raise _invalid_settings(
        location,
        f"a space's name is 1 to {MAX_NAME_LENGTH} letters, digits, '-', '_' and '.'; it begins with a letter or digit",
    )


_OR_NEVER = {"idle_seconds": "; inf: never"}

_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


def _to_request_error(text: str, location: str) -> RequestError:
    what, path = describe_validation_error(text)
    location = f"{location}.{path}" if path else location
    if unknown := _UNKNOWN.fullmatch(what):
        name = unknown.group(1)
        return _invalid_settings(
            f"{location}.{name}", f"there is no such setting; {did_you_mean(name, SpaceSettings.__struct_fields__)}"
        )
    if missing := _MISSING.fullmatch(what):
        name = missing.group(1)
        right = Rate.REQUIRED.get(name)
        return _invalid_settings(f"{location}.{name}", f"it is required: {right}" if right else "it is required")
    return _invalid_settings(location, what)


def _invalid_settings(location: str, message: str) -> RequestError:
    return RequestError(f"{location}: {message}", code="invalid_settings", param=location)
