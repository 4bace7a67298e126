"""Dialects as data: a profile is a row of values and of names from closed sets of small strategies.

There is no `if provider ==` anywhere else. The rows that ship are in `profiles.toml`; an operator adds rows of the
same form in the configuration. Evidence for each row's values is beside the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from ..errors import ConfigError


class ModelRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What differs for the models of a provider whose name matches the pattern `match`."""

    match: str
    tags: str | msgspec.UnsetType | None = msgspec.UNSET
    implicit_start: str | msgspec.UnsetType | None = msgspec.UNSET
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    efforts: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    replay: str | msgspec.UnsetType = msgspec.UNSET
    lost: str | msgspec.UnsetType = msgspec.UNSET


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One dialect."""

    name: str = ""
    title: str = ""
    wire: Literal["openai_chat"] = "openai_chat"

    # Where it is, and who we are there.
    base_url: str = ""
    path: str = "/chat/completions"
    api_key_env: tuple[str, ...] = ()
    auth: Literal["bearer", "api-key", "optional", "none"] = "bearer"
    """`bearer`: `Authorization: Bearer KEY`; `api-key`: a header `api-key`; `optional`: bearer if there is a key."""

    # Reading.
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text")
    """Where reasoning text may stand beside the content; the first that holds text counts."""
    merge: Literal["incremental", "cumulative", "detect"] = "incremental"
    """Whether a streamed reasoning fragment is the next piece, or everything so far."""
    repeats: Literal["keep", "drop"] = "keep"
    """Whether a reasoning delta equal to the one before it is a second copy."""
    tags: str | None = None
    """The family of markers (see `pellucid.tags`) that may stand in the content; None: content is content."""
    implicit_start: Literal["never", "always", "auto"] | None = None
    """Whether an answer may begin inside reasoning, without the opening marker; None: as the family says."""
    reasoning_tokens: Literal["inside", "outside", "by_total"] = "inside"
    """Whether the completion count includes reasoning; `by_total`: whichever agrees with the reported total."""

    # Asking.
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal["effort", "thinking_type", "enable_thinking", "reasoning_object", "template", "none"] = "none"
    """How to say how much to think:
    `effort` `reasoning_effort: low`; `thinking_type` `thinking: {type: enabled}` (and `reasoning_effort` where the
    row has efforts); `enable_thinking` `enable_thinking: true, thinking_budget: N`; `reasoning_object`
    `reasoning: {effort: low}`; `template` `chat_template_kwargs: {enable_thinking: true}` and `reasoning_effort`;
    `none`: it cannot be said."""
    efforts: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    """The levels this provider knows. Others are rounded to the nearest."""
    system_role: Literal["system", "developer"] = "system"
    stream_usage: bool = True
    """Whether `stream_options: {include_usage: true}` may be sent."""

    # What goes back (see `history`).
    replay: Literal["none", "field", "details", "carrier"] = "none"
    """How own reasoning goes back: not at all; as text in `replay_field`; as the merged `reasoning_details`, or in
    the field where there are none; or each part in the carrier it came in (details, tags, else the field)."""
    replay_field: str = "reasoning_content"
    replay_also: tuple[str, ...] = ()
    """Further fields that get the same text, for servers of which one does not know the version."""
    foreign: Literal["drop", "field"] = "drop"
    """What becomes of another model's readable reasoning."""
    lost: Literal["omit", "empty", "space"] = "omit"
    """What to send where the reasoning of an own message did not come back."""
    lost_on: Literal["all", "tool_calls"] = "tool_calls"

    models: tuple[ModelRow, ...] = ()

    def for_model(self, model: str) -> Profile:
        """This profile with what differs for `model`; of several matching rows the first."""
        for row in self.models:
            if fnmatchcase(model, row.match):
                return _derive(self, {**_changes(row), "models": ()})
        return self


def _changes(row: ModelRow) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__ if name != "match"}
    return {name: value for name, value in values.items() if value is not msgspec.UNSET}


def _derive(base: Profile, changes: Mapping[str, Any]) -> Profile:
    return msgspec.convert({**msgspec.to_builtins(base), **changes}, Profile)


def load_profiles(rows: Mapping[str, Mapping[str, Any]], known: Mapping[str, Profile]) -> dict[str, Profile]:
    """Profiles from tables. A row may extend one of `known` or an earlier row.

    Raises `ConfigError` with one line a mistake.
    """
    loaded: dict[str, Profile] = {}
    mistakes: list[str] = []
    for name, row in rows.items():
        values = dict(row)
        base_name = values.pop("extends", None)
        base = loaded.get(base_name) or known.get(base_name) if base_name is not None else Profile()
        if base is None:
            choices = ", ".join(sorted({*known, *loaded}))
            mistakes.append(f"profiles.{name}.extends: no profile {base_name!r}; there are: {choices}")
            continue
        try:
            loaded[name] = _derive(base, {"title": name, **values, "name": name})
            for model_row in loaded[name].models:
                _derive(base, _changes(model_row))  # a mistake in it is found now, not at the first request
        except msgspec.ValidationError as error:
            mistakes.append(f"profiles.{name}: {error}")
    if mistakes:
        raise ConfigError(mistakes)
    return loaded


@cache
def builtin_profiles() -> dict[str, Profile]:
    """The rows that ship, by name."""
    text = files(__package__).joinpath("profiles.toml").read_bytes()
    return load_profiles(msgspec.toml.decode(text), {})
