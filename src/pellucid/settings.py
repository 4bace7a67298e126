"""How a model is to be used: settings, tools, and the whole request for one turn.

Settings are plain dictionaries (`TypedDict`), as in the guide this package follows, so that they merge with `|`:
model < agent < run, shallowly. Provider-specific classes extend `ModelSettings` beside their models.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args, get_type_hints

import msgspec

from .errors import RequestError
from .parts import ModelMessage

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[str, ...] = get_args(Effort)
"""From the least to the most."""
ThinkingLevel: TypeAlias = bool | Effort
"""How much to think. True: the model's own default amount; False and `none`: not at all."""


def nearest_effort(level: str, known: tuple[str, ...]) -> str | None:
    """`level`, or the nearest of the `known` ones; None where there is none to name.

    Thinking is not switched on or off by rounding.
    """
    if level in known or level not in EFFORTS:
        return level
    if level == "none":
        return None
    at = EFFORTS.index(level)
    choices = [name for name in known if name in EFFORTS and name != "none"]
    return min(choices, key=lambda name: abs(EFFORTS.index(name) - at), default=None)


class SettingFlags(NamedTuple):
    """What is special about a setting, but for its name and type."""

    is_echoed: bool = False
    """Whether a response that echoes its request shows it as it was said there."""
    is_client_settable: bool = True
    """Whether clients of the gateway can set it for the model."""


_ECHOED, _INTERNAL = SettingFlags(is_echoed=True), SettingFlags(is_client_settable=False)


class ModelSettings(TypedDict, total=False):
    """Settings that mean the same for every model. A provider's own setting wins over its unified twin."""

    max_tokens: Annotated[int, _ECHOED]
    """The most tokens the model may write, reasoning included."""
    temperature: Annotated[float, _ECHOED]
    top_p: Annotated[float, _ECHOED]
    top_k: int
    seed: int
    presence_penalty: Annotated[float, _ECHOED]
    frequency_penalty: Annotated[float, _ECHOED]
    logit_bias: dict[str, int]
    stop_sequences: list[str]
    parallel_tool_calls: Annotated[bool, _ECHOED]
    service_tier: Annotated[str, _ECHOED]
    user: Annotated[str, _ECHOED]
    """A stable, pseudonymous id of the end user, for the provider's abuse detection."""
    cache_key: Annotated[str, _ECHOED]
    verbosity: Literal["low", "medium", "high"]
    thinking: ThinkingLevel
    """Absent: whatever the model does unasked."""
    thinking_budget: int
    """Tokens of thought, where a provider counts them."""
    thinking_summary: Literal["auto", "concise", "detailed"]
    logprobs: bool
    top_logprobs: Annotated[int, _ECHOED]
    metadata: Annotated[dict[str, str], SettingFlags(is_echoed=True, is_client_settable=False)]
    timeout: Annotated[float, _INTERNAL]
    """Seconds for the whole turn."""
    extra_headers: Annotated[dict[str, str], _INTERNAL]
    extra_body: Annotated[dict[str, Any], _INTERNAL]


class Setting(NamedTuple):
    """A row of `SETTING_ATTRIBUTES`; of the last two, see `Mark`."""

    name: str
    type: Any
    is_echoed: bool
    is_client_settable: bool


def _setting_rows() -> list[Setting]:
    hints = get_type_hints(ModelSettings, include_extras=True)
    return [
        Setting(name, type_, *next(iter(getattr(hints[name], "__metadata__", ())), SettingFlags()))
        for name, type_ in get_type_hints(ModelSettings).items()
    ]


SETTINGS = {row.name: row for row in _setting_rows()}
"""`ModelSettings` as a table: all settings by name, in the order in which requests are read and warnings are given.

Who reads it: the parsers of requests (a field of a setting's name is that setting), the echo, the warnings. Which
settings a model takes is said by its wire, which maps those that it has to its own fields (`providers`): what no line
of a wire writes, its models cannot honour, and the warnings say so.
"""


def merge_settings(*layers: ModelSettings | None) -> ModelSettings:
    """The layers, later ones winning, key by key (nested values are replaced whole)."""
    merged: ModelSettings = {}
    for layer in layers:
        if layer:
            merged = {**merged, **layer}
    return merged


def validate_settings(settings: ModelSettings) -> ModelSettings:
    """The settings, if the common ones among them have values that can be. Raises `RequestError` for the first that
    has not; a provider's own are the provider's to judge."""
    for name, value in settings.items():
        if name in SETTINGS:
            try:
                msgspec.convert(value, SETTINGS[name].type)
            except msgspec.ValidationError as error:
                raise RequestError(f"the setting {name} cannot be {value!r}: {error}", param=name) from error
    return settings


class ToolDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function the model may call. `parameters` is a JSON Schema for the arguments object."""

    name: str
    parameters: dict[str, Any] = {}
    description: str | None = None
    strict: bool | None = None


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the model may, must or must not call; `names` narrows which functions it may choose from."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()


class OutputFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The form of the answer's text."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn's request, in nobody's dialect. A provider module turns it into its wire's body."""

    model: str
    messages: list[ModelMessage]
    settings: ModelSettings = {}
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    output: OutputFormat = OutputFormat()
    stream: bool = True
