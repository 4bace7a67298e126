"""The fields of a request that come from settings, with a record of the setting from which each comes.

Each wire has tables (setting → path in the body), and functions for settings that are not one field of the body each.
All of them write through a `SettingFields`. So a request and the warnings about it (`setting_warnings`) come from the
same code:

* A setting that nothing writes is one that the model does not take.
* Of two settings with one path, the later write wins, and the earlier setting is not sent.
* A setting that is left out because of another one is withheld by the code that leaves it out.
* A number that is sent as another number gets a note from the code that changes it.

A path consists of the names of objects and a field, joined by dots (`generationConfig.topP`). A setting that acts
elsewhere, or inside a field that has other content, claims a path of its own below it (`tools.cache_control`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from .effort import SAMPLING, accepts_sampling
from .profile import Profile

Body = dict[str, Any]
Settings = Mapping[str, Any]

HEADER = "header:"
"""The prefix of a header's path."""

HISTORY = "messages.reasoning"
"""The path of earlier reasoning in the messages."""


class SettingWrite(NamedTuple):
    """One write of a setting to a path."""

    setting: str
    path: str
    value: Any
    state: Literal["sent", "withheld", "bar"] = "sent"
    """`withheld`: it would be sent without certain other settings. `bar`: it only keeps others from writing there."""


class SettingFields:
    """The fields of one request that come from settings, and the record of their writes."""

    def __init__(self, settings: Settings, body: Body | None = None) -> None:
        """Create the fields.

        Args:
            settings: The request's settings.
            body: The body to write to; settings replace its fields. None for a new one.
        """
        self.settings = settings
        self.body: Body = {} if body is None else body
        self.writes: list[SettingWrite] = []
        """In order of precedence: later writes win."""
        self.suppressors: dict[str, set[str]] = {}
        """For each withheld setting, the settings that cause it."""
        self.notes: dict[str, str] = {}
        """A sentence for each setting whose value is sent changed; `{model}` stands for the model's name."""
        self.dependent: set[str] = set()
        """Settings that have an effect only together with others."""
        self.thinking_paths: tuple[str, ...] = ()
        """The paths at which values of `thinking` can be sent."""
        self.thinking_position = 0
        """How many writes come before those of `thinking`."""

    # --- writing ---------------------------------------------------------------------------------------------------

    def put(self, setting: str, path: str, value: Any) -> None:
        """Send `value` at `path`."""
        self.writes.append(SettingWrite(setting, path, value))
        self._write(path, value)

    def put_defaults(self, profile: Profile) -> None:
        """Send the profile's `default_fields`, which no setting wrote. Call it before settings are written."""
        for path, value in profile.default_fields.items():
            self._write(path, value)

    def _write(self, path: str, value: Any) -> None:
        inside = self.body
        if "." in path:
            *objects, path = path.split(".")
            for name in objects:
                old = inside.get(name)
                inside[name] = inside = dict(old) if isinstance(old, dict) else {}
        inside[path] = value

    def value_at(self, path: str) -> Any:
        """Return the value at `path` in the body; None if there is none."""
        inside: Any = self.body
        for name in path.split("."):
            inside = inside.get(name) if isinstance(inside, dict) else None
        return inside

    def put_all(self, paths: Mapping[str, str], *, skip_none: bool = False) -> None:
        """Send the settings that are in this table, unchanged."""
        settings = self.settings
        if settings.keys().isdisjoint(paths.keys()):
            return  # most requests have few settings, and tables are long
        for setting, path in paths.items():
            if setting in settings and not (skip_none and settings[setting] is None):
                self.put(setting, path, settings[setting])

    def put_extra_body(self, *, merge: bool = False) -> None:
        """Send the fields of `extra_body`, which replace all others; with `merge`, objects are merged."""
        extra: Body = self.settings.get("extra_body", {})
        if merge:
            self.writes += [SettingWrite("extra_body", path, None) for path in leaf_paths("", extra)]
            _merge(self.body, extra)
        else:
            self.writes += [SettingWrite("extra_body", name, value) for name, value in extra.items()]
            self.body.update(extra)

    def claim(self, setting: str, path: str, value: Any = None) -> None:
        """Record that `setting` acts at `path`, which other code writes."""
        self.writes.append(SettingWrite(setting, path, value))

    def bar(self, setting: str, *paths: str) -> None:
        """Record that with `setting`, earlier settings are not sent at these paths."""
        self.writes += [SettingWrite(setting, path, None, "bar") for path in paths]

    def claim_request_settings(self) -> None:
        """Record the settings that act on any HTTP request, whatever its body is."""
        if "timeout" in self.settings:
            self.claim("timeout", "timeout:")
        for name in self.settings.get("extra_headers", ()):
            self.claim("extra_headers", HEADER + name)

    def settle_sampling(
        self, profile: Profile, path: str, *, is_accepted: bool, paths: Container[str] = SAMPLING
    ) -> None:
        """Remove the sampling settings, if the model does not take them together with the effort at `path`.

        Args:
            profile: The profile.
            path: The path of the effort.
            is_accepted: Whether the model takes them.
            paths: The paths of sampling settings.
        """
        if not is_accepted:
            efforts = [write for write in self.writes if write.path == path]
            suppressors = [write.setting for write in efforts if not accepts_sampling(profile, write.value)]
            self.withdraw(paths, by=suppressors if profile.sampling == "without_thinking" else None)
            return
        if profile.sampling != "thinking_switched_off":
            return
        # They are sent because of the effort, if `thinking` set it.
        sampling = [write for write in self.writes if write.path in SAMPLING]
        self.dependent |= {write.setting for write in sampling}
        if [write.setting for write in self.writes if write.path == path] == ["thinking"]:
            self.writes += [SettingWrite("thinking", f"sampling.{path}", value) for _, path, value, _ in sampling]

    def claim_history(self, profile: Profile) -> None:
        """Record that earlier reasoning is not sent back while thinking is switched off."""
        if profile.replay != "none" and profile.replay_on == "thinking":
            self.claim("thinking", HISTORY)

    def withhold(self, setting: str, path: str, by: Iterable[str] = ()) -> None:
        """Record that `setting` would be sent at `path` without the settings `by`."""
        self.writes.append(SettingWrite(setting, path, None, "withheld"))
        self.add_suppressors(setting, by)

    def add_suppressors(self, setting: str, by: Iterable[str]) -> None:
        """Record that `setting` has no effect together with any one of these settings."""
        self.suppressors.setdefault(setting, set()).update(by)

    def withdraw(self, fields: Container[str], by: Iterable[str] | None) -> None:
        """Remove top-level fields again.

        Args:
            fields: The fields.
            by: The settings that cause it; None if the model never takes the fields.
        """
        for name in [name for name in self.body if name in fields]:
            del self.body[name]
        by = None if by is None else set(by)
        for index, write in enumerate(self.writes):
            if write.path in fields:
                self.writes[index] = write._replace(state="bar" if by is None else "withheld")
                self.add_suppressors(write.setting, by or ())

    def remove(self, path: str) -> None:
        """Remove the field at `path`, and the objects that become empty."""
        *objects, name = path.split(".")
        inside = [self.body]
        for outer in objects:
            inside.append(inside[-1][outer])
        for body, field in zip(reversed(inside), reversed((*objects, name)), strict=True):
            if field == name or not body[field]:
                del body[field]

    def set_thinking_paths(self, *paths: str, before: bool = False) -> None:
        """Record the paths at which values of `thinking` can be sent.

        Args:
            *paths: The paths.
            before: Whether these writes come before all others, not after those so far.
        """
        self.thinking_paths = paths
        self.thinking_position = 0 if before else len(self.writes)


def leaf_paths(path: str, value: Any) -> Iterator[str]:
    """Yield the paths of the scalar values in a value."""
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
