"""Warnings about settings: one sentence for each setting that a model cannot honour as requested.

They are derived from the writes of a wire (`SettingFields`). No request is encoded for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from ..settings import EFFORTS, SETTINGS
from .profile import Profile
from .profiles import builtin_profiles
from .setting_fields import HISTORY, SettingFields, SettingWrite, leaf_paths

_ANY: Any = object()

_EMPTY: tuple[Any, ...] = ({}, [], None)
"""Values that request nothing."""

_THINKING = frozenset({"thinking", "thinking_budget", "thinking_summary"})
"""The order of writes does not decide which of these wins: a wire withholds the others."""


def setting_warnings(
    fields: SettingFields, profile: Profile, model: str, assumed_settings: Collection[str] = ()
) -> list[str]:
    """Return the warnings, in the order of the settings.

    Args:
        fields: The fields that the wire wrote.
        profile: The profile.
        model: The model's name in the warnings.
        assumed_settings: Settings without warnings (see `ModelCall`).
    """
    warnings: list[str] = []
    outcome = _Outcome(fields)
    for setting, value in fields.settings.items():
        if setting in assumed_settings:
            continue
        if setting == "thinking":
            sentence = _thinking_message(outcome, profile, model)
        elif value in _EMPTY:
            continue
        elif outcome.sent(setting):
            if setting not in fields.notes or _is_in_request(value, fields.body):
                continue
            sentence = fields.notes[setting].format(model=model)
        elif setting in fields.dependent or not outcome.is_known(setting):
            sentence = _unknown_setting_message(setting, profile, model)
        elif type(value) not in (int, float) and _is_in_request(value, fields.body):
            continue  # another setting requests the same
        else:
            sentence = _not_sent_message(outcome.suppressors(setting))
        if sentence is not None:
            warnings.append(f"{setting}: {sentence}")
    return warnings


class _Outcome:
    """The final state of the settings after all writes."""

    def __init__(self, fields: SettingFields) -> None:
        self.fields = fields
        self._writes_of: dict[str, list[int]] = {}
        """The indexes of each setting's writes, without bars."""
        self._writes_in: dict[str, list[int]] = {}
        """The indexes of the writes inside each top-level field. Only writes in the same one can conflict."""
        for index, (setting, path, _, state) in enumerate(fields.writes):
            if state != "bar":
                self._writes_of.setdefault(setting, []).append(index)
            self._writes_in.setdefault(_top_field(path), []).append(index)
        self._is_disjoint = _are_disjoint([write.path for write in fields.writes])
        """Whether no two writes overlap, as is usual: then no writes need to be compared."""

    def is_known(self, setting: str) -> bool:
        """Whether the model takes a setting, or would take it without the other settings."""
        return setting in self._writes_of

    def sent(self, setting: str) -> list[SettingWrite]:
        """Return the writes of a setting that no later write replaces."""
        return [
            write
            for index in self._writes_of.get(setting, ())
            if (write := self.fields.writes[index]).state == "sent"
            if self._is_disjoint or not _is_covered(write, self._later(index, write.path, setting))
        ]

    def suppressors(self, setting: str, value: Any = _ANY) -> list[str]:
        """Return the settings that each prevent this one from being sent, in the order of the request.

        Args:
            setting: The setting.
            value: Only writes that hold this value.
        """
        per_write = [
            self._suppressors_of_write(index)
            for index in self._writes_of.get(setting, ())
            if value is _ANY or value in _leaves(self.fields.writes[index].value)
        ]
        if not per_write:
            return []
        names = set.intersection(*per_write) | self.fields.suppressors.get(setting, set())
        return [other for other in self.fields.settings if other in names]

    def thinking_can_change(self) -> bool:
        """Whether some value of `thinking` would change the request."""
        last = self.fields.thinking_position - 1
        return any(
            not _is_written_over(path, self._later(last, path, "thinking")) for path in self.fields.thinking_paths
        )

    def _later(self, index: int, path: str, setting: str) -> list[SettingWrite]:
        """Return the writes of other settings after `index` in the top-level field of `path`."""
        return [
            write
            for other in self._writes_in.get(_top_field(path), ())
            if other > index and (write := self.fields.writes[other]).state != "withheld"
            if write.setting != setting and not {write.setting, setting} <= _THINKING
        ]

    def _suppressors_of_write(self, index: int) -> set[str]:
        """Return the settings that each replace this write, or send the same value there."""
        write = self.fields.writes[index]
        suppressors: set[str] = set()
        later_writes: dict[str, list[SettingWrite]] = {}
        for other in self._writes_in[_top_field(write.path)]:
            one = self.fields.writes[other]
            if one.setting == write.setting or {one.setting, write.setting} <= _THINKING:
                continue
            if write.value is not None and one[1:3] == write[1:3]:
                suppressors.add(one.setting)
            elif other > index:
                later_writes.setdefault(one.setting, []).append(one)
        return suppressors | {name for name, writes in later_writes.items() if _is_covered(write, writes)}


def _top_field(path: str) -> str:
    return path.partition(".")[0]


def _are_disjoint(paths: list[str]) -> bool:
    known = set(paths)
    if len(known) < len(paths):
        return False
    for path in paths:
        while "." in path:
            path = path.rpartition(".")[0]
            if path in known:
                return False
    return True


def _is_covered(write: SettingWrite, later: list[SettingWrite]) -> bool:
    return bool(later) and all(_is_written_over(path, later) for path in leaf_paths(write.path, write.value))


def _is_written_over(path: str, later: list[SettingWrite]) -> bool:
    return any(path == one.path or path.startswith(f"{one.path}.") for one in later)


# --- messages ------------------------------------------------------------------------------------------------------


def _not_sent_message(suppressors: list[str]) -> str:
    return f"it is not sent together with {' and '.join(suppressors) or 'the other settings'}"


def _unknown_setting_message(setting: str, profile: Profile, model: str) -> str:
    sentence = f"{model} takes no such setting"
    if setting in SETTINGS:
        return sentence
    maker = setting.partition("_")[0]
    profiles = builtin_profiles()
    if maker in profiles and not profile.name.startswith(maker):
        return f"it is a setting of {profiles[maker].title}, and {model} is called over {profile.title}"
    near = _nearest_setting(setting)
    return sentence if near is None else f"{sentence}; did you mean {near!r}?"


@lru_cache(256)
def _nearest_setting(name: str) -> str | None:
    """Return the unified setting with the most similar name. The search is slow, so results are cached."""
    return next(iter(get_close_matches(name, SETTINGS, 1)), None)


def _thinking_message(outcome: _Outcome, profile: Profile, model: str) -> str | None:
    level = outcome.fields.settings["thinking"]
    if not outcome.thinking_can_change():
        if outcome.is_known("thinking"):
            return _not_sent_message(outcome.suppressors("thinking"))
        return f"the thinking of {model} cannot be set"
    if level is True:
        return None
    sent = [leaf for write in outcome.sent("thinking") if write.path != HISTORY for leaf in _leaves(write.value)]
    words = [leaf for leaf in sent if isinstance(leaf, str) and leaf in EFFORTS]
    numbers = [leaf for leaf in sent if type(leaf) is int]
    if not sent and (others := outcome.suppressors("thinking")):
        return _not_sent_message(others)
    if level in (False, "none"):
        if not sent:
            return f"the thinking of {model} cannot be switched off"
        if any(word != "none" for word in words) or any(number > 0 for number in numbers):
            return f"the thinking of {model} cannot be switched off; the lowest level is requested"
        return None
    if not sent:
        return f"{model} knows no level {level!r}; its default is used"
    if level in words or (numbers and level in profile.budgets):
        return None
    if others := outcome.suppressors("thinking", level):
        return _not_sent_message(others)
    if words:
        return f"{model} knows no level {level!r}; the nearest, {words[0]!r}, is requested"
    return f"{model} knows no level {level!r}; thinking is requested without a level"


def _is_in_request(value: Any, body: Any) -> bool:
    """Whether all of a value can be found in the request. For a boolean this is unknown, so it is False."""
    sent = list(_leaves(body))
    return all(
        not isinstance(leaf, bool) and any(type(one) is type(leaf) and one == leaf for one in sent)
        for leaf in _leaves(value)
    )


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the scalar values in a value, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield value
