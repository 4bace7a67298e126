"""Warnings about settings: one sentence for each that a model cannot honour as given.

They are read off what a wire wrote (`SettingFields`); nothing is encoded for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from ..settings import ModelSettings
from .effort import LEVELS
from .profiles import Profile, builtin_profiles
from .setting_fields import HISTORY, SettingFields

_EMPTY: tuple[Any, ...] = ({}, [], None)
"""Values that ask for nothing."""


def setting_warnings(fields: SettingFields, row: Profile, model: str) -> list[str]:
    """The sentences, in the order of the settings. `model`: the model's name in them."""
    found: list[str] = []
    plain = _without_conflicts(fields)
    for setting, value in fields.settings.items():
        if setting == "thinking":
            sentence = _about_thinking(fields, row, model)
        elif setting in plain or value in _EMPTY or fields.sent(setting):
            if setting not in fields.notes or _is_visible(value, fields.body):
                continue
            sentence = fields.notes[setting].format(model=model)
        else:
            sentence = _about(setting, value, fields, row, model)
        if sentence is not None:
            found.append(f"{setting}: {sentence}")
    return found


def _without_conflicts(fields: SettingFields) -> set[str]:
    """Settings that are certainly sent: no other is written near them. Mostly these are all."""
    plain = {write.setting for write in fields.writes}
    tops: dict[str, str] = {}
    for setting, path, _, state in fields.writes:
        other = tops.setdefault(path.partition(".")[0], setting)
        if other != setting:
            plain -= {other, setting}
        elif state != "sent":
            plain.discard(setting)
    return plain


def _about(setting: str, value: Any, fields: SettingFields, row: Profile, model: str) -> str | None:
    """A setting that is not sent."""
    if setting in fields.dependent or not fields.is_known(setting):
        return _unknown(setting, row, model)
    if type(value) not in (int, float) and _is_visible(value, fields.body):
        return None  # another setting asks for the very same
    return _beside(fields.silencers(setting))


def _beside(silencers: list[str]) -> str:
    return f"it is not sent beside {' and '.join(silencers) or 'the other settings'}"


def _unknown(setting: str, row: Profile, model: str) -> str:
    sentence = f"{model} takes no such setting"
    if setting in ModelSettings.__annotations__:
        return sentence
    maker = setting.partition("_")[0]
    rows = builtin_profiles()
    if maker in rows and not row.name.startswith(maker):
        return f"it is a setting of {rows[maker].title}, and {model} is asked over {row.title}"
    near = _nearest_setting(setting)
    return sentence if near is None else f"{sentence}; did you mean {near!r}?"


@lru_cache(256)
def _nearest_setting(name: str) -> str | None:
    """The unified setting that may be meant. To look for it takes long."""
    return next(iter(get_close_matches(name, ModelSettings.__annotations__, 1)), None)


def _about_thinking(fields: SettingFields, row: Profile, model: str) -> str | None:
    level = fields.settings["thinking"]
    if not fields.thinking_can_change():
        if fields.is_known("thinking"):
            return _beside(fields.silencers("thinking"))
        return f"{model} cannot be told how much to think"
    if level is True:
        return None
    sent = [leaf for write in fields.sent("thinking") if write.path != HISTORY for leaf in leaves(write.value)]
    words = [leaf for leaf in sent if isinstance(leaf, str) and leaf in LEVELS]
    numbers = [leaf for leaf in sent if type(leaf) is int]
    if level in (False, "none"):
        if not sent:
            return f"{model} cannot be told not to think"
        if any(word != "none" for word in words) or any(number > 0 for number in numbers):
            return f"{model} cannot be told not to think; it is told to think as little as it can"
        return None
    if not sent:
        return f"{model} knows no level {level!r}; it thinks as much as it does unasked"
    if level in words or (numbers and level in row.budgets):
        return None
    if words:
        return f"{model} knows no level {level!r}; it is asked for {words[0]!r}, the nearest"
    return f"{model} knows no level {level!r}; it is asked to think, and not how much"


def _is_visible(value: Any, body: Any) -> bool:
    """Whether all of a value can be seen in what is sent; of a yes or no it cannot be said."""
    sent = list(leaves(body))
    return all(
        not isinstance(leaf, bool) and any(type(one) is type(leaf) and one == leaf for one in sent)
        for leaf in leaves(value)
    )


def leaves(value: Any) -> Iterator[Any]:
    """The plain values in it, in order."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value
