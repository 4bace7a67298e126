"""The fields of a request that come from settings, written so that it is known which setting each comes from.

Each wire has tables (setting → path in the body) and, for settings that are more than a value in one place, functions.
All of them write through a `SettingFields`. So a request and the warnings about it (`setting_warnings`) come from the
same lines:

* A setting that no line writes is one that the model does not take.
* Of two settings in one place, the later write wins, and the earlier setting is not sent beside it.
* A setting that is left out because of another one is withheld by the line that leaves it out.
* A number that is sent as another one gets a note from the line that changes it.

A path is the names of objects and a field, joined by dots (`generationConfig.topP`). Settings that act elsewhere, or
within a field that has other content, claim a path of their own below it (`tools.cache_control`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .effort import SAMPLING, accepts_sampling
from .profile import Profile

Body = dict[str, Any]
Settings = Mapping[str, Any]

HEADER = "header:"
"""What the path of a header begins with."""

HISTORY = "messages.reasoning"
"""The path of earlier reasoning."""


class SettingWrite(NamedTuple):
    """A setting, written to one place."""

    setting: str
    path: str
    value: Any
    state: Literal["sent", "withheld", "bar"] = "sent"
    """Withheld: it would be sent, were it not for other settings. A bar only keeps others from writing there."""


class SettingFields:
    """The fields of one request that come from settings."""

    def __init__(self, settings: Settings, body: Body | None = None) -> None:
        """Write to `body`; what stands in it gives way to the settings."""
        self.settings = settings
        self.body: Body = {} if body is None else body
        self.writes: list[SettingWrite] = []
        """In order of precedence: later writes win."""
        self.suppressors: dict[str, set[str]] = {}
        """For each setting that is withheld, those because of which it is."""
        self.notes: dict[str, str] = {}
        """A sentence for each setting that is sent otherwise than given; `{model}` stands for the model's name."""
        self.dependent: set[str] = set()
        """Settings that mean nothing but beside others."""
        self.thinking_paths: tuple[str, ...] = ()
        """Where any value of `thinking` can be sent."""
        self.thinking_position = 0
        """How many writes come before it."""

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, setting: str, path: str, value: Any) -> None:
        """Send `value` at `path`."""
        self.writes.append(SettingWrite(setting, path, value))
        inside = self.body
        if "." in path:
            *objects, path = path.split(".")
            for name in objects:
                old = inside.get(name)
                inside[name] = inside = dict(old) if isinstance(old, dict) else {}
        inside[path] = value

    def put_all(self, paths: Mapping[str, str], *, skip_none: bool = False) -> None:
        """Send those of the settings that stand in this table, unchanged."""
        settings = self.settings
        if settings.keys().isdisjoint(paths.keys()):
            return  # most requests have few settings, and tables are long
        for setting, path in paths.items():
            if setting in settings and not (skip_none and settings[setting] is None):
                self.put(setting, path, settings[setting])

    def put_extra_body(self, *, merge: bool = False) -> None:
        """Send the fields that the caller names, in place of all others; with `merge`, object by object."""
        extra: Body = self.settings.get("extra_body", {})
        if merge:
            self.writes += [SettingWrite("extra_body", path, None) for path in leaf_paths("", extra)]
            _merge(self.body, extra)
        else:
            self.writes += [SettingWrite("extra_body", name, value) for name, value in extra.items()]
            self.body.update(extra)

    def claim(self, setting: str, path: str, value: Any = None) -> None:
        """Record that `setting` acts at `path`, where something else writes."""
        self.writes.append(SettingWrite(setting, path, value))

    def bar(self, setting: str, *paths: str) -> None:
        """Record that beside `setting` nothing of earlier settings is sent at these paths."""
        self.writes += [SettingWrite(setting, path, None, "bar") for path in paths]

    def claim_request_settings(self) -> None:
        """Record those that act on a request over HTTP, whatever its body is."""
        if "timeout" in self.settings:
            self.claim("timeout", "timeout:")
        for name in self.settings.get("extra_headers", ()):
            self.claim("extra_headers", HEADER + name)

    def claim_sampling(self, path: str) -> None:
        """Record that sampling is sent because of a thinking level at `path`, if that is what it is sent beside."""
        sampling = [write for write in self.writes if write.path in SAMPLING]
        self.dependent |= {write.setting for write in sampling}
        if [write.setting for write in self.writes if write.path == path] == ["thinking"]:
            self.writes += [SettingWrite("thinking", f"sampling.{path}", value) for _, path, value, _ in sampling]

    def claim_history(self, row: Profile) -> None:
        """Record that a model which is told not to think does not get its earlier thoughts back."""
        if row.replay != "none" and row.replay_on == "thinking":
            self.claim("thinking", HISTORY)

    def withhold(self, setting: str, path: str, by: Iterable[str] = ()) -> None:
        """Record that `setting` would be sent at `path`, were it not for the settings `by`."""
        self.writes.append(SettingWrite(setting, path, None, "withheld"))
        self.add_suppressors(setting, by)

    def add_suppressors(self, setting: str, by: Iterable[str]) -> None:
        """Record that beside each of these settings `setting` makes no difference."""
        self.suppressors.setdefault(setting, set()).update(by)

    def withdraw(self, fields: Container[str], by: Iterable[str] | None) -> None:
        """Remove top-level fields again: because of the settings `by`, or (None) because the model never takes them."""
        for name in [name for name in self.body if name in fields]:
            del self.body[name]
        by = None if by is None else set(by)
        for place, write in enumerate(self.writes):
            if write.path in fields:
                self.writes[place] = write._replace(state="bar" if by is None else "withheld")
                self.add_suppressors(write.setting, by or ())

    def remove(self, path: str) -> None:
        """Send nothing at `path`, and no objects that are empty then."""
        *objects, name = path.split(".")
        inside = [self.body]
        for outer in objects:
            inside.append(inside[-1][outer])
        for body, field in zip(reversed(inside), reversed((*objects, name)), strict=True):
            if field == name or not body[field]:
                del body[field]

    def set_thinking_paths(self, *paths: str, before: bool = False) -> None:
        """Record where any value of `thinking` can be sent: in place of the writes until now, or `before` all."""
        self.thinking_paths = paths
        self.thinking_position = 0 if before else len(self.writes)


def sampling_suppressors(fields: SettingFields, row: Profile, path: str) -> list[str] | None:
    """The settings of which each alone asks for an effort at `path` beside which this model takes no sampling; None for
    a model that takes none without them either."""
    if row.sampling != "without_thinking":
        return None
    return [one.setting for one in fields.writes if one.path == path and not accepts_sampling(row, one.value)]


def leaf_paths(path: str, value: Any) -> Iterator[str]:
    """The paths of the plain values in it."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from leaf_paths(f"{path}.{name}" if path else name, inner)
    elif path:
        yield path


def _merge(body: Body, more: Body) -> None:
    for name, value in more.items():
        old = body.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            body[name] = old = dict(old)
            _merge(old, value)
        else:
            body[name] = value
