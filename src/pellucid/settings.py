"""Settings of models, tools, and the request for one turn.

Settings are plain dictionaries (`TypedDict`), as in the guide that this package follows, so that they merge with `|`:
model < agent < run, shallowly. Classes with a provider's own settings extend `ModelSettings`, in the modules of their
models.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict, cast, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from .errors import RequestError
from .parts import ModelMessage, WireFields
from .unicode import truncate

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[str, ...] = get_args(Effort)
"""Levels of effort, in ascending order."""
ThinkingLevel: TypeAlias = bool | Effort
"""How much a model thinks. True: the model's default amount; False and `none`: not at all."""

Verbosity: TypeAlias = Literal["low", "medium", "high"]
"""How long the answers of a model are."""
SummaryDetail: TypeAlias = Literal["auto", "concise", "detailed"]
"""How detailed a provider's summaries of reasoning are."""


def nearest_effort(level: str, known: tuple[str, ...]) -> str | None:
    """Return `level`, or the nearest level in `known`; None if there is none.

    Rounding never switches thinking on or off.
    """
    if level in known or level not in EFFORTS:
        return level
    if level == "none":
        return None
    choices = [name for name in known if name in EFFORTS and name != "none"]
    return min(choices, key=lambda name: abs(EFFORTS.index(name) - EFFORTS.index(level)), default=None)


class Setting(NamedTuple):
    """A row of `SETTINGS`."""

    name: str
    type: Any
    is_sampling: bool = False
    """Whether the setting changes how tokens are chosen; some models refuse such settings while they think."""
    is_client_settable: bool = True
    """Whether clients of the gateway can set it."""
    is_traced: bool = False
    """Whether it is an attribute of a turn's span. OpenTelemetry has `gen_ai.request.NAME` for it."""


# Fields of a setting's row, in the annotation of its type.
_TRACED = {"is_traced": True}
_SAMPLING = {"is_sampling": True}
_INTERNAL = {"is_client_settable": False}


class ModelSettings(TypedDict, total=False):
    """Settings that mean the same for every model. A provider's own setting wins over the unified one."""

    max_tokens: Annotated[int, _TRACED]
    """Limit of tokens that the model may write, reasoning included."""
    temperature: Annotated[float, _SAMPLING | _TRACED]
    top_p: Annotated[float, _SAMPLING | _TRACED]
    top_k: Annotated[int, _TRACED]
    seed: int
    presence_penalty: Annotated[float, _SAMPLING | _TRACED]
    frequency_penalty: Annotated[float, _SAMPLING | _TRACED]
    logit_bias: Annotated[dict[str, int], _SAMPLING]
    stop_sequences: list[str]
    parallel_tool_calls: bool
    service_tier: str
    user: str
    """A stable, pseudonymous id of the end user, for the provider's abuse detection."""
    cache_key: str
    verbosity: Verbosity
    thinking: ThinkingLevel
    """Absent: the model's default."""
    thinking_budget: int
    """Limit of reasoning tokens, where a provider has one."""
    thinking_summary: SummaryDetail
    logprobs: Annotated[bool, _SAMPLING]
    top_logprobs: Annotated[int, _SAMPLING]
    metadata: Annotated[dict[str, str], _INTERNAL]
    timeout: Annotated[float, _INTERNAL]
    """Limit for the whole turn, in seconds."""
    extra_headers: Annotated[dict[str, str], _INTERNAL]
    extra_body: Annotated[dict[str, Any], _INTERNAL]
    wire_settings: Annotated[dict[str, dict[str, Any]], _INTERNAL]
    """Settings for the models of one wire, by the wire's name. They replace the others; None removes a setting."""


def _setting_rows() -> list[Setting]:
    hints = get_type_hints(ModelSettings, include_extras=True)
    return [
        Setting(name, type_, **next(iter(getattr(hints[name], "__metadata__", ())), {}))
        for name, type_ in get_type_hints(ModelSettings).items()
    ]


SETTINGS = {row.name: row for row in _setting_rows()}
"""`ModelSettings` as a table: all settings by name, in the order in which requests are read and warnings are listed.

The parsers of requests (a field with a setting's name is that setting), the echo and the warnings read it. Each wire
defines which settings its models take: it maps them to its own fields (`providers`). A setting that a wire does not
write is one that its models cannot honour, and the warnings report it.
"""


def settings_for_wire(settings: ModelSettings, wire: str | None) -> ModelSettings:
    """Return the settings for models of a wire, with its own settings in place of the others."""
    if "wire_settings" not in settings:
        return settings
    merged: dict[str, Any] = {name: value for name, value in settings.items() if name != "wire_settings"}
    for name, value in settings["wire_settings"].get(wire or "", {}).items():
        if isinstance(value, dict) and name in ("extra_body", "extra_headers"):
            merged[name] = {**value, **merged.get(name, {})}
        elif value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return cast("ModelSettings", merged)


def merge_settings(*layers: ModelSettings | None) -> ModelSettings:
    """Merge layers of settings key by key. Later layers win; nested values are replaced whole."""
    merged: ModelSettings = {}
    for layer in layers:
        if layer:
            merged = {**merged, **layer}
    return merged


def validate_settings(settings: ModelSettings) -> ModelSettings:
    """Check the types of the common settings, and return them. A provider's own settings are left to the provider.

    Raises:
        RequestError: A setting has a value of the wrong type; the first one is reported.
    """
    for name, value in settings.items():
        if name in SETTINGS:
            try:
                msgspec.convert(value, SETTINGS[name].type)
            except msgspec.ValidationError as error:
                raise RequestError(f"the setting {name} cannot be {value!r}: {error}", param=name) from error
    return settings


ToolKind: TypeAlias = Literal["function", "output", "external", "unapproved"]
"""What a call of a tool leads to: it is executed; it is the answer (`output`); the caller of the run executes it
(`external`); it is executed after an approval (`unapproved`). No wire has a field for it."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function that the model may call.

    A dataclass, so that `dataclasses.replace` changes it, as functions that prepare tools do.
    """

    name: str
    parameters_json_schema: dict[str, Any] = field(default_factory=dict)
    """A JSON Schema of the arguments object."""
    description: str | None = None
    strict: bool | None = None
    """Whether the provider must force the arguments to match the schema."""
    wire_fields: WireFields | None = None
    kind: ToolKind = "function"
    metadata: dict[str, Any] | None = None
    """An application's own data. It is never sent to a model."""


_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def check_tool_name(name: str, subject: str) -> None:
    """Check that providers accept a name: OpenAI and Anthropic document this pattern, and others accept it.

    Args:
        name: The name.
        subject: What has the name, for the error message.

    Raises:
        RequestError: They would refuse it.
    """
    if not _TOOL_NAME.fullmatch(name):
        raise RequestError(
            f"{subject} cannot be named {truncate(name)!r}: providers accept 1 to 64 letters and digits of ASCII, _ "
            f"and -, for example {accepted_name(name)!r}",
            code="invalid_value",
        )


def accepted_name(name: str) -> str:
    """Return a name that providers accept (see `check_tool_name`), with `_` for what they refuse."""
    return name if _TOOL_NAME.fullmatch(name) else re.sub(r"[^a-zA-Z0-9_-]+", "_", name)[:60].strip("_") or "name"


class NativeTool(msgspec.Struct, frozen=True):
    """A tool that a provider defines, in the form of its wire. Models of other wires are not offered it."""

    wire: str
    name: str
    path: str
    """The path of the tool in the client's request, for warnings."""
    native: dict[str, Any]


class ToolChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the model may, must or must not call a function. `names` limits the functions it may choose from."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] = ()
    is_preference: bool = False
    """Whether a model that cannot be made to call a function may choose. Otherwise `required` is refused for it."""


class OutputFormat(msgspec.Struct, frozen=True, omit_defaults=True):
    """The format of the answer's text."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class ModelCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request for one turn, independent of any wire. A wire encodes it as its request body."""

    model: str
    messages: list[ModelMessage]
    settings: ModelSettings = {}
    tools: tuple[ToolDefinition, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    output: OutputFormat = OutputFormat()
    stream: bool = True
    native_tools: tuple[NativeTool, ...] = ()
    """Tools that a provider defines, for the models of its wire."""
    assumed_settings: frozenset[str] = frozenset()
    """Names of settings that the caller did not set itself, so that it gets no warning about them."""

    def for_wire(self, wire: str | None) -> ModelCall:
        """Return the call as models of a wire get it: without what only other wires know.

        Args:
            wire: The wire; None for a model that knows only what is common to all.

        Raises:
            RequestError: No tool is left.
        """
        if not self.native_tools and "wire_settings" not in self.settings:
            return self
        tools = tuple(tool for tool in self.native_tools if tool.wire == wire)
        if self.native_tools and not (tools or self.tools) and self.tool_choice.mode != "none":
            path = f"{self.native_tools[0].path}.type"
            raise RequestError(
                f"{path}: the tool {truncate(self.native_tools[0].name)!r} is not offered here, and there is no other; "
                f"{_OTHER_TOOLS}",
                kind="unsupported",
                code="unsupported_tool",
                param=path,
            )
        return replace(self, settings=settings_for_wire(self.settings, wire), native_tools=tools)

    def native_tool_warnings(self, wire: str | None) -> list[str]:
        """Return a sentence about the tools that models of this wire are not offered; empty if there are none."""
        tools = [tool for tool in self.native_tools if tool.wire != wire]
        if not tools:
            return []
        names = [f"{tool.path} ({truncate(tool.name)!r})" for tool in tools[:_MAX_NAMED_TOOLS]]
        more = f" and {len(tools) - len(names)} more" if len(tools) > len(names) else ""
        return [f"{', '.join(names)}{more}: left out; {_OTHER_TOOLS}"]


_OTHER_TOOLS = "tools that another provider defines cannot be called here"
_MAX_NAMED_TOOLS = 8
