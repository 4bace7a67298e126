"""Profiles as data: the builtin rows (`profiles.toml`), and rows of the same form in an operator's configuration.

All rows are checked. The reason for a row's values is next to the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import fields

from .. import tags
from ..errors import ConfigError
from ..unicode import did_you_mean
from .profile import Profile
from .wires import WIRES

_TAGS = (*tags.FAMILIES, "harmony")


def load_profiles(rows: Mapping[str, Any], known: Mapping[str, Profile]) -> dict[str, Profile]:
    """Make profiles from tables.

    Args:
        rows: The rows by name. A row may extend a known profile or an earlier row. One with an address of its own has
            nothing to do with the environment variables of the other's address.
        known: The known profiles by name.

    Returns:
        The new profiles by name.

    Raises:
        ConfigError: One line for each mistake.
    """
    loaded: dict[str, Profile] = {}
    mistakes: list[str] = []
    for name, row in rows.items():
        where = f"profiles.{name}"
        if not isinstance(row, Mapping):
            mistakes.append(f"{where}: {row!r} is not right; it must be a table")
            continue
        values = {name: _with_current_name(name, value) for name, value in row.items()}
        base_name = values.pop("extends", None)
        choices = {**known, **loaded}
        if base_name is not None and (not isinstance(base_name, str) or base_name not in choices):
            mistakes.append(f"{where}.extends: there is no profile {base_name!r}; {did_you_mean(base_name, choices)}")
            continue
        base = Profile() if base_name is None else choices[base_name]
        row_mistakes = _mistakes(where, values, _FIELDS)
        if not row_mistakes:
            for number, model_row in enumerate(values.get("models", ())):
                model_path = f"{where}.models[{number}]"
                if "match" not in model_row:
                    row_mistakes.append(f"{model_path}.match: it is missing; it must be a text")
                row_mistakes += _mistakes(model_path, model_row, _MODEL_FIELDS)
        if not row_mistakes:
            if "base_url" in values:
                values = {"base_url_env": (), "base_url_env_path": "", **values}
            loaded[name] = base.derive({**_NAMES, "title": name, **values, "name": name})
            row_mistakes += _unsupported_thinking(where, loaded[name])
        mistakes += row_mistakes
    if mistakes:
        raise ConfigError(mistakes)
    return loaded


# --- checks of a row ---------------------------------------------------------------------------------------------

_NAMES: dict[str, Any] = {"aliases": (), "model_families": (), "telemetry_name": ""}
"""The keys that only builtin rows have, and what other rows have in their place."""
_FIELDS = {field.name: field.type for field in fields(Profile) if field.name != "name" and field.name not in _NAMES}
_FIELDS["wire"] = Literal[tuple(WIRES)]
_MODEL_FIELDS = {"match": str, **{name: _FIELDS[name] for name in _FIELDS if name not in ("title", "wire", "models")}}


_RENAMED_VALUES = {("item_end", "told"): "reported", ("sampling", "told_off"): "thinking_switched_off"}
"""The previous names of values, which rows may still have."""


def _with_current_name(key: str, value: Any) -> Any:
    """Return a value of a row under its present name; in `models`, those of each row."""
    if key == "models" and isinstance(value, list):
        return [
            {name: _with_current_name(name, each) for name, each in row.items()} if isinstance(row, dict) else row
            for row in value
        ]
    return _RENAMED_VALUES.get((key, value), value) if isinstance(value, str) else value


def _mistakes(where: str, values: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return one line for each invalid value, with the valid ones."""
    mistakes: list[str] = []
    for name, value in values.items():
        if name not in known:
            mistakes.append(f"{where}.{name}: there is no such key; {did_you_mean(name, known)}")
            continue
        try:
            msgspec.convert(value, known[name])
        except msgspec.ValidationError:
            mistakes.append(f"{where}.{name}: {value!r} is not right; it must be {_describe_type(known[name])}")
            continue
        if name == "tags":
            mistakes += [f"{where}.{name}: {mistake}" for mistake in tags_mistakes(value)]
    return mistakes


def _unsupported_thinking(where: str, profile: Profile) -> list[str]:
    """Return one line for each value of `thinking` that the profile's wire cannot send."""
    supported = WIRES[profile.wire].thinking
    values = {where: profile.thinking} | {
        f"{where}.models[{number}]": row["thinking"] for number, row in enumerate(profile.models) if "thinking" in row
    }
    return [
        f"{path}.thinking: the wire {profile.wire!r} cannot send {value!r}; it must be {_one_of(sorted(supported))}"
        for path, value in values.items()
        if supported is not None and value not in supported
    ]


def tags_mistakes(value: str | Sequence[str] | None) -> list[str]:
    """Check a marker family's name or a pair of markers. Return one line for each mistake."""
    if value is None:
        return []
    if not isinstance(value, str):
        return [] if all(marker.strip() for marker in value) else [f"{list(value)!r} is not right; a marker is blank"]
    return [] if value in _TAGS else [f"there is no marker family {value!r}; {did_you_mean(value, _TAGS)}"]


def _one_of(options: Sequence[Any]) -> str:
    return f"one of {', '.join(repr(option) for option in options)}"


def _describe_type(type_: Any) -> str:
    """Describe a type for an error message."""
    options = [option for option in get_args(type_) if option not in (type(None), Ellipsis)]
    if get_origin(type_) is Literal:
        return _one_of(options)
    if get_origin(type_) is tuple:
        if get_origin(options[0]) is Literal:
            return f"a list of {', '.join(repr(option) for option in get_args(options[0]))}"
        return "a list of tables" if get_origin(options[0]) is dict else "a list of texts"
    if get_origin(type_) is dict:
        return {str: "a table of texts", int: "a table of numbers"}.get(options[-1], "a table of values")
    if type_ == _FIELDS["tags"]:
        return "the name of a marker family, or a pair of markers"
    if options:
        return _describe_type(options[0])
    return {bool: "true or false", int: "a number"}.get(type_, "a text")


@cache
def builtin_profiles() -> dict[str, Profile]:
    """Return the builtin profiles by name."""
    rows = msgspec.toml.decode(files(__package__).joinpath("profiles.toml").read_bytes())
    names = {name: {key: row.pop(key) for key in _NAMES if key in row} for name, row in rows.items()}
    return {name: profile.derive(names[name]) for name, profile in load_profiles(rows, {}).items()}


@cache
def named_profiles() -> dict[str, Profile]:
    """Return the builtin profiles by each name that a user can write: the names of the rows, and their aliases.

    This is the only place where a provider's name is resolved: `Agent`, `pellucid serve`, `pellucid decode` and the
    configuration use it. An alias takes precedence over the name of a row: `openai` is the Responses API.
    """
    rows = builtin_profiles()
    return rows | {alias: profile for profile in rows.values() for alias in profile.aliases}


def hidden_row(name: str) -> Profile | None:
    """Return the row whose name is the alias of another row, so that the name alone does not lead to it."""
    row = builtin_profiles().get(name)
    return row if row is not named_profiles().get(name) else None


def telemetry_name(provider: str) -> str:
    """Return a provider's name in OpenTelemetry's conventions, or the name itself if they have none for it."""
    profile = named_profiles().get(provider)
    return profile.telemetry_name or provider if profile is not None else provider
