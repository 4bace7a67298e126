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

from .effort import SAMPLING, may_sample
from .profiles import Profile

Body = dict[str, Any]
Settings = Mapping[str, Any]

HEADER = "header:"
"""What the path of a header begins with."""

HISTORY = "messages.reasoning"
"""The path of earlier reasoning."""

_THINKING = frozenset({"thinking", "thinking_budget", "thinking_summary"})
"""Each wire says which of these wins: the order in which they are written does not."""


class Write(NamedTuple):
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
        self.writes: list[Write] = []
        """In order of precedence: later writes win."""
        self._silencers: dict[str, set[str]] = {}
        """The settings because of which others are withheld."""
        self.notes: dict[str, str] = {}
        """A sentence for each setting that is sent otherwise than given; `{model}` stands for the model's name."""
        self.dependent: set[str] = set()
        """Settings that mean nothing but beside others."""
        self._thinking_paths: tuple[str, ...] = ()
        self._thinking_place = 0

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, setting: str, path: str, value: Any) -> None:
        """Send `value` at `path`."""
        self.writes.append(Write(setting, path, value))
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
        for setting, path in paths.items():
            if setting in settings and not (skip_none and settings[setting] is None):
                self.put(setting, path, settings[setting])

    def put_extra_body(self, *, merge: bool = False) -> None:
        """Send the fields that the caller names, in place of all others; with `merge`, object by object."""
        extra: Body = self.settings.get("extra_body", {})
        if merge:
            self.writes += [Write("extra_body", path, None) for path in _leaf_paths("", extra)]
            _merge(self.body, extra)
        else:
            self.writes += [Write("extra_body", name, value) for name, value in extra.items()]
            self.body.update(extra)

    def claim(self, setting: str, path: str, value: Any = None) -> None:
        """Record that `setting` acts at `path`, where something else writes."""
        self.writes.append(Write(setting, path, value))

    def bar(self, setting: str, *paths: str) -> None:
        """Record that beside `setting` nothing of earlier settings is sent at these paths."""
        self.writes += [Write(setting, path, None, "bar") for path in paths]

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
            self.writes += [Write("thinking", f"sampling.{path}", value) for _, path, value, _ in sampling]

    def claim_history(self, row: Profile) -> None:
        """Record that a model which is told not to think does not get its earlier thoughts back."""
        if row.replay != "none" and row.replay_on == "thinking":
            self.claim("thinking", HISTORY)

    def withhold(self, setting: str, path: str, by: Iterable[str] = ()) -> None:
        """Record that `setting` would be sent at `path`, were it not for the settings `by`."""
        self.writes.append(Write(setting, path, None, "withheld"))
        self._silencers.setdefault(setting, set()).update(by)

    def withdraw(self, fields: Container[str], by: Iterable[str] | None) -> None:
        """Remove top-level fields again: because of the settings `by`, or (None) because the model never takes them."""
        for name in [name for name in self.body if name in fields]:
            del self.body[name]
        by = None if by is None else set(by)
        for place, write in enumerate(self.writes):
            if write.path in fields:
                self.writes[place] = write._replace(state="bar" if by is None else "withheld")
                self._silencers.setdefault(write.setting, set()).update(by or ())

    def remove(self, path: str) -> None:
        """Send nothing at `path`, and no objects that are empty then."""
        *objects, name = path.split(".")
        inside = [self.body]
        for outer in objects:
            inside.append(inside[-1][outer])
        for body, field in zip(reversed(inside), reversed((*objects, name)), strict=True):
            if field == name or not body[field]:
                del body[field]

    def thinking_at(self, *paths: str, before: bool = False) -> None:
        """Record where any value of `thinking` can be sent: in place of the writes until now, or `before` all."""
        self._thinking_paths = paths
        self._thinking_place = 0 if before else len(self.writes)

    # --- what was written ------------------------------------------------------------------------------------------

    def is_known(self, setting: str) -> bool:
        """Whether the model takes a setting, or would without the others."""
        return any(write.setting == setting and write.state != "bar" for write in self.writes)

    def sent(self, setting: str) -> list[Write]:
        """The writes of a setting that nothing later takes the place of."""
        return [
            write
            for place, write in enumerate(self.writes)
            if write.setting == setting
            and write.state == "sent"
            and not _is_covered(write, self._later(place, setting))
        ]

    def silencers(self, setting: str) -> list[str]:
        """The settings of which each alone keeps this one from being sent, in the order in which they were given."""
        by = self._silencers.get(setting, ())
        own = [(at, one) for at, one in enumerate(self.writes) if one.setting == setting and one.state != "bar"]
        return [
            other
            for other in self.settings
            if other in by
            or (other != setting and not {other, setting} <= _THINKING and all(self._hides(other, *one) for one in own))
        ]

    def thinking_can_change(self) -> bool:
        """Whether some value of `thinking` would change the request."""
        later = self._later(self._thinking_place - 1, "thinking")
        return any(not _is_written_over(path, later) for path in self._thinking_paths)

    def _later(self, place: int, setting: str) -> list[Write]:
        """What other settings write behind this place."""
        return [
            one
            for one in self.writes[place + 1 :]
            if one.state != "withheld" and one.setting != setting and not {one.setting, setting} <= _THINKING
        ]

    def _hides(self, other: str, place: int, write: Write) -> bool:
        """Whether a setting takes the place of this write, or sends the same there."""
        behind = [one for one in self.writes[place + 1 :] if one.setting == other]
        return _is_covered(write, behind) or (
            write.value is not None and any(one[:3] == (other, write.path, write.value) for one in self.writes)
        )


def silences_sampling(fields: SettingFields, row: Profile, path: str) -> list[str] | None:
    """The settings of which each alone asks for an effort at `path` beside which this model takes no sampling; None for
    a model that takes none without them either."""
    if row.sampling != "without_thinking":
        return None
    return [one.setting for one in fields.writes if one.path == path and not may_sample(row, one.value)]


def _is_covered(write: Write, later: list[Write]) -> bool:
    return bool(later) and all(_is_written_over(path, later) for path in _leaf_paths(write.path, write.value))


def _is_written_over(path: str, later: list[Write]) -> bool:
    return any(path == one.path or path.startswith(f"{one.path}.") for one in later)


def _leaf_paths(path: str, value: Any) -> Iterator[str]:
    """The paths of the plain values in it."""
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaf_paths(f"{path}.{name}" if path else name, inner)
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
