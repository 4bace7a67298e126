"""How a space behaves, as its operator writes it: in TOML, as JSON, and as it is kept.

    settings = read_settings({"reasoning": "flag", "idle_seconds": 600})
    read_settings(settings.dump()) == settings

What is not written has its default; a word that nobody here knows is refused, and the sentence says where.
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
from ...errors import RequestError
from ...unicode import describe_validation_error, did_you_mean
from .redaction import PatternRedactor

MAX_NAME_LENGTH = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Rate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """So many a second, and so many at once."""

    REQUIRED: ClassVar[Mapping[str, str]] = {
        "per_second": "how many may come in a second, like `per_second = 20` beside `burst`",
        "burst": "how many may come at once, like `burst = 100` beside `per_second`",
    }
    """What each field is, for who left it out."""

    per_second: float
    burst: float


class FloodLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one participant may do, on one replica."""

    reasoning: Rate = Rate(per_second=100, burst=500)
    """Messages of each family."""
    chat: Rate = Rate(per_second=20, burst=100)
    mcp: Rate = Rate(per_second=100, burst=500)
    other: Rate = Rate(per_second=20, burst=100)
    bytes: Rate = Rate(per_second=1_000_000, burst=8_000_000)
    """Of each family."""
    frame_bytes: int = 1 << 20
    """The largest envelope."""
    open_contexts: int = 64
    outlet_bytes: int = 4 << 20
    """What may wait for one slow reader before it is told of a gap instead."""
    errors: Rate = Rate(per_second=10, burst=20)
    """How many refusals one connection is told of. The next one that is told says how many were not."""
    patience: float = 10
    """Seconds that somebody may go on over the limit before they are let go."""
    seats: int = 64
    """Connections of one participant at one replica."""


class Redact(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is found of `pattern` becomes `[redacted:NAME]`."""

    name: str
    pattern: str


class Compress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: int
    """Thoughts of one context, after which the gateway says them in one."""


class SpaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    reasoning: Literal["strict", "flag", "off"] = "strict"
    """What becomes of reasoning that breaks its life cycle: it is refused, flagged, or nobody looks."""
    owner_only: bool = False
    """Whether a context is its starter's alone."""
    addresses: Literal["restrict", "advisory"] = "restrict"
    """Whether `to` keeps others from reading it."""
    read_reasoning: Literal["everyone", "capability"] = "everyone"
    """Who may read others' reasoning; `capability`: who holds `reasoning/read`."""
    idle_seconds: float | None = 1800
    """Silence after which a context is abandoned; null (in TOML: inf): none is."""
    grace_seconds: float = 5
    """How long somebody may be gone before their open contexts are abandoned."""
    templates: dict[str, list[str]] = {}
    """The names of each template's steps, in order."""
    redact: list[Redact] = []
    limits: FloodLimits = FloodLimits()
    always: list[str | dict[str, Any]] = msgspec.field(default_factory=lambda: ["mcp/response"])
    """Capabilities that everybody has."""
    compress: Compress | None = None

    @property
    def advisory(self) -> bool:
        """Whether `to` says for whom an envelope is, and everybody may read it."""
        return self.addresses == "advisory"

    def dump(self) -> bytes:
        """As it is kept: JSON."""
        return msgspec.json.encode(self)

    def lifecycle(self, templates: Mapping[str, list[str]] | None = None) -> LifecycleSettings:
        steps = self.templates if templates is None else templates
        return LifecycleSettings(
            mode=self.reasoning,
            owner_only=self.owner_only,
            templates={name: tuple(named) for name, named in steps.items()},
            max_open=self.limits.open_contexts,
            idle_ms=None if self.idle_seconds in (None, inf) else round(self.idle_seconds * 1000),
            max_implicit=MAX_IMPLICIT,
            max_ended=MAX_ENDED,
            max_ids=MAX_IDS,
        )


MAX_IMPLICIT, MAX_ENDED, MAX_IDS = 1_000, 2_000, 5_000
"""How much of a space's past its state remembers; for the rest, the store is asked. The state is kept every few hundred
envelopes, so it is small."""


def read_settings(written: Mapping[str, Any] | bytes, at: str = "settings") -> SpaceSettings:
    """Raises `RequestError` for what is wrong, with its place under `at`."""
    try:
        if isinstance(written, bytes):
            settings = msgspec.json.decode(written, type=SpaceSettings)
        else:
            settings = msgspec.convert(dict(written), SpaceSettings)
    except msgspec.ValidationError as error:
        raise _to_request_error(str(error), at) from None
    if settings.idle_seconds == inf:
        settings = replace(settings, idle_seconds=None)
    check_settings(settings, at)
    return settings


def check_settings(settings: SpaceSettings, at: str = "settings") -> None:
    """What types do not say. Raises `RequestError`."""
    read_capabilities(settings.always, f"{at}.always")
    PatternRedactor.from_rules(settings.redact, f"{at}.redact")
    for name, steps in settings.templates.items():
        if not steps or len(set(steps)) < len(steps):
            raise _invalid_settings(f"{at}.templates.{name}", "a template has at least one step, and each name once")
    for name, number in (("idle_seconds", settings.idle_seconds), ("grace_seconds", settings.grace_seconds)):
        never = name == "idle_seconds" and number in (None, inf)
        if not never and not (number is not None and 0 <= number < 1e9):
            raise _invalid_settings(f"{at}.{name}", f"it must be a number of seconds, from 0{_OR_NEVER.get(name, '')}")
    limits = settings.limits
    for name in ("reasoning", "chat", "mcp", "other", "bytes", "errors"):
        rate: Rate = getattr(limits, name)
        if not (rate.per_second > 0 and rate.burst >= 1):
            raise _invalid_settings(f"{at}.limits.{name}", "`per_second` must be more than 0, and `burst` 1 or more")
    for name in ("frame_bytes", "open_contexts", "outlet_bytes", "seats"):
        if getattr(limits, name) < 1:
            raise _invalid_settings(f"{at}.limits.{name}", "it must be 1 or more")
    if settings.compress is not None and settings.compress.after < 2:
        raise _invalid_settings(f"{at}.compress.after", "it must be 2 or more")


def check_name(name: str, at: str = "name") -> str:
    """The name of a space. Raises `RequestError`."""
    if len(name) <= MAX_NAME_LENGTH and _NAME.fullmatch(name):
        return name
    raise _invalid_settings(
        at,
        f"a space's name is 1 to {MAX_NAME_LENGTH} letters, digits, '-', '_' and '.', and begins with a letter or digit",
    )


_OR_NEVER = {"idle_seconds": "; inf: never"}

_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")


def _to_request_error(text: str, at: str) -> RequestError:
    what, place = describe_validation_error(text)
    where = f"{at}.{place}" if place else at
    if unknown := _UNKNOWN.fullmatch(what):
        name = unknown.group(1)
        return _invalid_settings(
            f"{where}.{name}", f"nothing is called so here; {did_you_mean(name, SpaceSettings.__struct_fields__)}"
        )
    if missing := _MISSING.fullmatch(what):
        name = missing.group(1)
        right = Rate.REQUIRED.get(name)
        return _invalid_settings(f"{where}.{name}", f"it is required: {right}" if right else "it is required")
    return _invalid_settings(where, what)


def _invalid_settings(at: str, message: str) -> RequestError:
    return RequestError(f"{at}: {message}", code="invalid_settings", param=at)
