"""A run's input, read: the conversation, the client's tools, and what it asks of this gateway.

What AG-UI has no field for is asked for in `forwardedProps.pellucid`, or in the query, which goes before:

    model      the model's public name                      effort     how much to think
    view       the form of reasoning that may be seen       reasoning  `off`: no event tells of it
    store      whether anything is kept                     dialect    what the client speaks
    chunks     whether messages come as chunks              snapshot   whether the run ends with all messages

Everything that is wrong is said with its place (`messages[3].content[0]: …`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from ...errors import RequestError
from ...parts import ModelMessage, ModelResponse, SealedPart, View
from ...settings import Effort, ModelCall, ModelSettings, ToolDefinition
from ...unicode import truncate
from ..decoding import check_depth, decode
from ..tool_choice import merge_tools
from . import messages as m
from .dialects import Dialect, DialectName, dialect_for, dialect_of
from .history import history_of, sealed_in

PROPS = "pellucid"
"""The key of ours in `forwardedProps`."""

MOST_QUOTED = 40
"""How much of a wrong value is told again."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a client may ask of this gateway. None: whatever the server does unasked."""

    model: str | None = None
    effort: Effort | None = None
    view: View | None = None
    reasoning: Literal["on", "off"] | None = None
    store: bool | None = None
    dialect: DialectName | None = None
    chunks: bool | None = None
    snapshot: bool | None = None


class Request(NamedTuple):
    """A request as it was understood."""

    input: m.RunAgentInput
    options: Options

    @property
    def thread_id(self) -> str:
        return self.input.thread_id

    @property
    def run_id(self) -> str:
        return self.input.run_id

    @property
    def resume(self) -> list[m.ResumeEntry]:
        """Answers to interrupts of the run before."""
        return self.input.resume or []

    def dialect(self, header: str | None, usual: DialectName | None) -> Dialect:
        """The client's: what it asks for (in the header, if nowhere else), what its version speaks, or what clients are
        taken for that do not say. Raises `RequestError`, also for a header that need not have been read."""
        in_header = dialect_of(header.lower(), "AG-UI-Dialect") if header is not None else None
        if self.options.dialect is not None:
            return dialect_of(self.options.dialect)
        if in_header is not None:
            return in_header
        version = self.input.protocol_version
        return dialect_of(usual) if version is None and usual is not None else dialect_for(version)

    def messages(self) -> list[ModelMessage]:
        """The conversation. Raises `RequestError`."""
        return history_of(self.input.messages, self.input.context or [], self.resume)

    def loose(self, messages: Sequence[ModelMessage]) -> list[SealedPart]:
        """What came sealed and goes to no model: it is not in the conversation, or stands there a second time."""
        said = [part for message in messages if isinstance(message, ModelResponse) for part in message.parts]
        kept = {part.token: part.item_id for part in reversed(said) if isinstance(part, SealedPart)}
        return [part for part in sealed_in(self.input.messages) if kept.get(part.token) != part.item_id]

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The functions that the client runs."""
        return tuple(ToolDefinition(tool.name, tool.parameters or {}, tool.description) for tool in _tools(self.input))

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the functions that the client runs."""
        return frozenset(tool.name for tool in _tools(self.input))

    @property
    def wants_summaries(self) -> bool:
        """Where summaries are all that may be seen, there are some; beside the raw text they have no place here."""
        return False

    @property
    def max_tool_calls(self) -> int | None:
        return None

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """What to ask the model, whose name is still the public one: by default, the conversation as it came.

        `server_tools` are offered beside the client's own, which go before one of the same name. Raises `RequestError`.
        """
        messages = self.messages() if messages is None else messages
        if not messages:
            raise RequestError(
                "messages: at least one that a model can read is required", code="missing", param="messages"
            )
        effort = self.options.effort
        settings: ModelSettings = {} if effort is None else {"thinking": False if effort == "none" else effort}
        return ModelCall(self.options.model or "", list(messages), settings, merge_tools(self.tools, server_tools))

    def token_path(self, part: SealedPart) -> str:
        """Where in the input this token stands."""
        for index, message in enumerate(self.input.messages):
            at = f"messages[{index}]"
            for name in ("encryptedValue", "encryptedContent"):
                field = "encrypted_value" if name == "encryptedValue" else "encrypted_content"
                if message.id == part.item_id and getattr(message, field, None) == part.token:
                    return f"{at}.{name}"
            for number, call in enumerate(getattr(message, "tool_calls", None) or []):
                if call.id == part.item_id and call.encrypted_value == part.token:
                    return f"{at}.toolCalls[{number}].encryptedValue"
        return "messages"


def parse_input(data: bytes, query: Mapping[str, str] | None = None) -> Request:
    """Raises `RequestError` naming the field and what would be right. Others' query parameters are ignored."""
    input = decode(data, m.RunAgentInput)
    for index, tool in enumerate(input.tools or []):
        at = f"tools[{index}].parameters"
        if tool.parameters is not None and not isinstance(tool.parameters, dict):
            raise RequestError(f"{at}: must be a JSON Schema, which is an object", code="invalid_type", param=at)
        check_depth(tool.parameters, at)
    for index, entry in enumerate(input.resume or []):
        check_depth({"payload": entry.payload}, f"resume[{index}].payload")
    _differ([tool.name for tool in _tools(input)], "tools")
    props = input.forwarded_props
    ours = props.get(PROPS) if isinstance(props, dict) else None
    options = _options({} if ours is None else ours, f"forwardedProps.{PROPS}")
    asked = {name: value for name, value in (query or {}).items() if name in _RIGHT}
    over = _options(asked)
    return Request(input, replace(options, **{name: getattr(over, name) for name in asked}))


def _tools(input: m.RunAgentInput) -> list[m.Tool]:
    return input.tools or []


def _differ(names: list[str], at: str) -> None:
    for index, name in enumerate(names):
        if name in names[:index]:
            path = f"{at}[{index}].name"
            raise RequestError(
                f"{path}: there is a tool named {truncate(name)!r} already", code="invalid_value", param=path
            )


def _options(given: Any, at: str = "") -> Options:
    """What stands at this place of the input; without one, in the query, where everything is text."""
    if not isinstance(given, dict):
        raise RequestError(f"{at}: must be an object with options in it", code="invalid_type", param=at)
    for name in given:
        if name not in _RIGHT:
            where = f"{at}.{truncate(name)}"
            known = ", ".join(_RIGHT)
            raise RequestError(f"{where}: no such option; there are {known}", code="unknown_option", param=where)
    try:
        options = msgspec.convert(given, Options, strict=bool(at))
    except msgspec.ValidationError as error:
        name = str(error).partition("`$.")[2].rstrip("`")
        raise _wrong(name, given.get(name), at) from None
    for name in given if not at else ():
        if getattr(options, name) is None:  # where everything is text, so is "null"
            raise _wrong(name, given[name], at)
    return options


def _wrong(name: str, given: Any, at: str) -> RequestError:
    where = f"{at}.{name}".lstrip(".")
    value = json.dumps(given)
    got = value if len(value) <= MOST_QUOTED else f"{value[:MOST_QUOTED]}…"
    return RequestError(f"{where}: must be {_RIGHT.get(name)}, not {got}", code="invalid_value", param=where)


def _right(kind: Any) -> str:
    """What may stand where an option is of this type, or none."""
    words = [str(word) for one in get_args(kind) if get_origin(one) is Literal for word in get_args(one)]
    if words:
        return "one of " + ", ".join(words)
    return "true or false" if bool in get_args(kind) else "a model's public name"


_RIGHT = {name: _right(kind) for name, kind in get_type_hints(Options).items()}
