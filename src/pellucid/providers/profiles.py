"""Dialects as data: a profile is a row of values and of names from closed sets of small strategies.

There is no `if provider ==` anywhere else. The rows that ship are in `profiles.toml`; an operator adds rows of the
same form in the configuration. Evidence for each row's values is beside the row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args, get_origin

import msgspec
from msgspec.structs import fields

from .. import tags
from ..errors import ConfigError
from ..text import meant


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One dialect."""

    name: str = ""
    title: str = ""
    wire: Literal[
        "openai_chat", "openai_responses", "anthropic", "google", "mistral", "cohere", "bedrock", "ollama"
    ] = "openai_chat"

    # Where it is, and who we are there.
    base_url: str = ""
    path: str = "/chat/completions"
    base_url_env: tuple[str, ...] = ()
    """The environment variables that usually name another address; only the library looks at them."""
    base_url_env_path: str = ""
    """What the provider's own clients add to an address from there."""
    api_key_env: tuple[str, ...] = ()
    auth: Literal["bearer", "api-key", "x-api-key", "x-goog-api-key", "aws", "optional", "none"] = "bearer"
    """`bearer`: `Authorization: Bearer KEY`; `optional`: the same, if there is a key; `aws`: the same, and without a
    key the request is signed; `…-key`: a header of that name."""
    path_whole: str = ""
    """The path for an answer in one piece, where it is not `path`. Both may hold `{model}`."""
    model_in: Literal["body", "path"] = "body"
    """What says which model is meant; with `path`, the body has the API's version and betas in the model's place."""
    stream_in: Literal["body", "path"] = "body"
    """What says whether to stream, on wires where it can be either."""
    api_version: str = ""
    betas: tuple[str, ...] = ()
    """Features that are asked for by name, on wires that have such names."""

    # Reading.
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning", "reasoning_text")
    """Where reasoning text may stand beside the content; the first that holds text counts."""
    merge: Literal["incremental", "cumulative", "detect"] = "incremental"
    """Whether a streamed reasoning fragment is the next piece, or everything so far."""
    repeats: Literal["keep", "drop"] = "keep"
    """Whether a reasoning delta equal to the one before it is a second copy."""
    tags: str | tuple[str, str] | None = None
    """The family of markers (see `pellucid.tags`) that may stand in the content, or `harmony`, or a pair of markers
    (`["<reflect>", "</reflect>"]`); None: content is content."""
    implicit_start: Literal["never", "always", "auto"] | None = None
    """Whether an answer may begin inside reasoning, without the opening marker; None: as the family says."""
    reasoning_tokens: Literal["inside", "outside", "by_total"] = "inside"
    """Whether the completion count includes reasoning; `by_total`: whichever agrees with the reported total."""
    item_end: Literal["told", "next"] = "told"
    """When a reasoning item is over: when the wire tells its end, or, where that comes only after everything else,
    with the next item."""
    server_tools: tuple[str, ...] = ()
    """Types of calls that the provider answers itself, although they look like calls for us to answer."""
    form: Literal["raw", "summary"] = "raw"
    """What readable reasoning is, where the wire itself does not tell."""

    # Asking.
    max_tokens: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    thinking: Literal[
        "effort", "thinking_type", "enable_thinking", "reasoning_object", "reasoning_switch", "template", "none"
    ] = "none"
    """How to say how much to think:
    `effort` `reasoning_effort: low`; `thinking_type` `thinking: {type: enabled}` and `reasoning_effort`;
    `enable_thinking` `enable_thinking: true`; `reasoning_object` `reasoning: {effort: low}`; `reasoning_switch`
    `reasoning: {enabled: true}` and `reasoning_effort`; `template` `chat_template_kwargs: {enable_thinking: true}`
    and `reasoning_effort`; `none`: it cannot be said."""
    effort_field: str = "reasoning_effort"
    """Where `effort` puts the level."""
    efforts: tuple[str, ...] = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    """The levels this provider knows. Others are rounded to the nearest; where there are none, none is sent."""
    effort_on: str = ""
    """The level that stands for the model's own amount, where a model that is asked for none does not think; empty:
    to ask for no level is enough."""
    thinking_on: str = "enabled"
    """What `thinking_type` calls it to think."""
    template_switches: tuple[str, ...] = ("enable_thinking",)
    """What chat templates call the switch; a template ignores the names that it does not know."""
    budget_field: str = ""
    """Where a budget of thinking tokens goes; empty: it cannot be said. (`reasoning_object` has its own place.)"""
    thinking_mode: Literal["none", "budget", "adaptive"] = "none"
    """How Claude is told to think: not at all; by a budget of tokens; as it sees fit, by `efforts`."""
    thinking_off: Literal["disabled", "between_tools", "least"] = "disabled"
    """How Claude is told not to think; `least`: it cannot be, and thinks as little as it can."""
    thinking_display: str = ""
    """What to ask for where reasoning is not shown unasked (`summarized`)."""
    budgets: dict[str, int] = {}
    """The tokens of thought that a level stands for; `on` is the model's own amount."""
    max_tokens_default: int = 0
    """What to send on wires that demand a limit, where none was asked for."""
    sampling: Literal["free", "without_thinking", "told_off", "never"] = "free"
    """When `temperature`, `top_p` and what else bends the choice of tokens are sent, where some models refuse them;
    `told_off`: to a model that thinks unasked, only when it is told not to."""
    forced_calls: Literal["free", "without_thinking", "never"] = "free"
    """When a model can be made to call a tool."""
    knows: tuple[str, ...] = ()
    """Which settings beyond the common ones it takes: `top_k`, `verbosity`, `service_tier`, `user`, `metadata`,
    `cache_key`. Many servers refuse a field that they do not know."""
    own: dict[str, str] = {}
    """Settings that only this provider has, and where in the body they go (`a.b`: inside an object). They are sent as
    they are, and win over the unified ones. Where there are none, a wire takes those of its own maker."""
    media: Literal["by_url", "inline"] = "by_url"
    """Whether it fetches images and files that a request names; `inline`: they must be in the request."""
    system_role: Literal["system", "developer"] = "system"
    stream_usage: bool = True
    """Whether `stream_options: {include_usage: true}` may be sent."""
    store: bool | None = None
    """Whether to ask that answers be kept at the provider; None: it is not said."""
    include: tuple[str, ...] = ()
    """What to ask for besides the answer (`reasoning.encrypted_content`)."""

    # What goes back (see `history`).
    replay: Literal["none", "field", "details", "carrier"] = "none"
    """How own reasoning goes back: not at all; as text in `replay_field`; as the structured whole it came as (merged
    `reasoning_details`, a Responses item), or in the field where there is none; or as the carrier it came in: the
    merged details, else tags in the content."""
    replay_on: Literal["always", "thinking"] = "always"
    """`thinking`: not to a model that is told not to think."""
    replay_unsigned: bool = True
    """Whether reasoning without a signature may go back."""
    replay_field: str = "reasoning_content"
    replay_also: tuple[str, ...] = ()
    """Further fields that get the same text, for servers of which one does not know the version."""
    replay_signature: str = ""
    """The field for the signature beside the text; empty: there is none."""
    foreign: Literal["drop", "field"] = "drop"
    """What becomes of another model's readable reasoning."""
    lost: Literal["omit", "empty", "space", "sentinel"] = "omit"
    """What to send where the reasoning of an own message did not come back; `sentinel`: the text of that name."""
    sentinel: str = ""
    lost_on: Literal["all", "tool_calls"] = "tool_calls"
    lost_stops_thinking: bool = False
    """Whether a call whose reasoning did not come back can only be followed by an answer without thinking."""

    models: tuple[dict[str, Any], ...] = ()
    """What differs for the models whose name fits the pattern `match` (`*` and `?`; capitals make no difference)."""

    def for_model(self, model: str) -> Profile:
        """This profile with what differs for `model`; of several rows that fit, the first."""
        for row in self.models:
            if fnmatchcase(model.lower(), row["match"].lower()):
                return _derive(self, {name: value for name, value in row.items() if name != "match"} | {"models": ()})
        return self


def _derive(base: Profile, changes: Mapping[str, Any]) -> Profile:
    return msgspec.convert({**msgspec.to_builtins(base), **changes}, Profile)


_TAGS = (*tags.FAMILIES, "harmony")


def load_profiles(rows: Mapping[str, Any], known: Mapping[str, Profile]) -> dict[str, Profile]:
    """Profiles from tables. A row may extend one of `known` or an earlier row.

    Raises `ConfigError` with one line a mistake.
    """
    loaded: dict[str, Profile] = {}
    mistakes: list[str] = []
    for name, row in rows.items():
        where = f"profiles.{name}"
        if not isinstance(row, Mapping):
            mistakes.append(f"{where}: {row!r} is not right; it must be a table")
            continue
        values = dict(row)
        base_name = values.pop("extends", None)
        choices = {**known, **loaded}
        if base_name is not None and (not isinstance(base_name, str) or base_name not in choices):
            mistakes.append(f"{where}.extends: there is no profile {base_name!r}; {meant(base_name, choices)}")
            continue
        base = Profile() if base_name is None else choices[base_name]
        found = _mistakes(where, values, _FIELDS)
        if not found:
            for number, model_row in enumerate(values.get("models", ())):
                found += _mistakes(f"{where}.models[{number}]", model_row, _MODEL_FIELDS, needed="match")
        mistakes += found
        if not found:
            loaded[name] = _derive(base, {"title": name, **values, "name": name})
    if mistakes:
        raise ConfigError(mistakes)
    return loaded


# --- what can be wrong with a row --------------------------------------------------------------------------------

_FIELDS = {field.name: field.type for field in fields(Profile) if field.name != "name"}
_MODEL_FIELDS = {"match": str, **{name: _FIELDS[name] for name in _FIELDS if name not in ("title", "wire", "models")}}


def _mistakes(where: str, values: Mapping[str, Any], known: Mapping[str, Any], needed: str | None = None) -> list[str]:
    """One line for each value that cannot be, with what could."""
    found = [] if needed is None or needed in values else [f"{where}.{needed}: it is missing; it must be a text"]
    for name, value in values.items():
        if name not in known:
            found.append(f"{where}.{name}: there is no such key; {meant(name, known)}")
            continue
        try:
            msgspec.convert(value, known[name])
        except msgspec.ValidationError:
            found.append(f"{where}.{name}: {value!r} is not right; it must be {_wanted(known[name])}")
            continue
        if name == "tags":
            found += [f"{where}.{name}: {mistake}" for mistake in tags_mistakes(value)]
    return found


def tags_mistakes(value: str | Sequence[str] | None) -> list[str]:
    """What is wrong with a marker family's name, or with a pair of markers."""
    if value is None:
        return []
    if not isinstance(value, str):
        return [] if all(marker.strip() for marker in value) else [f"{list(value)!r} is not right; a marker is blank"]
    return [] if value in _TAGS else [f"there is no marker family {value!r}; {meant(value, _TAGS)}"]


def _wanted(type_: Any) -> str:
    """A type, for people."""
    options = [option for option in get_args(type_) if option not in (type(None), Ellipsis)]
    if get_origin(type_) is Literal:
        return f"one of {', '.join(repr(option) for option in options)}"
    if get_origin(type_) is tuple:
        return "a list of tables" if get_origin(options[0]) is dict else "a list of texts"
    if get_origin(type_) is dict:
        return "a table of texts" if options[-1] is str else "a table of numbers"
    if type_ == _FIELDS["tags"]:
        return "the name of a marker family, or a pair of markers"
    if options:
        return _wanted(options[0])
    return {bool: "true or false", int: "a number"}.get(type_, "a text")


@cache
def builtin_profiles() -> dict[str, Profile]:
    """The rows that ship, by name."""
    text = files(__package__).joinpath("profiles.toml").read_bytes()
    return load_profiles(msgspec.toml.decode(text), {})
