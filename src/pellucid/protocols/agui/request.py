"""Parse the input of a run: the conversation, the client's tools, and the options of this gateway.

Options that AG-UI has no field for are in `forwardedProps.pellucid`, or in the query, which takes precedence:

    model      the model's public name                      effort     how much to think
    view       the form in which reasoning leaves           reasoning  `off`: no event of reasoning is sent
    store      whether the run is stored                    dialect    what the client speaks
    chunks     whether messages come as chunks              snapshot   whether the run ends with all messages

Every error has the path of the invalid value (`messages[3].content[0]: …`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from ...errors import RequestError
from ...parts import ModelMessage, ModelResponse, SealedPart
from ...settings import Effort, ModelCall, ModelSettings, ToolDefinition
from ...unicode import truncate
from ...view import View
from ..decoding import PlainRequest, check_depth, decode, invalid
from ..tool_choice import merge_tools
from . import messages as m
from .dialects import Dialect, DialectName, dialect_for, dialect_of
from .history import history_of, sealed_in
from .run_header import RunHeader

OPTIONS_KEY = "pellucid"
"""Our key in `forwardedProps`."""

DIALECT_HEADER = "ag-ui-dialect"
"""The request header with the dialect of the client."""

MAX_QUOTED_CHARS = 40
"""Largest number of characters of an invalid value that an error quotes."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of this gateway for one run. None is the server's default."""

    model: str | None = None
    effort: Effort | None = None
    view: View | None = None
    reasoning: Literal["on", "off"] | None = None
    store: bool | None = None
    dialect: DialectName | None = None
    chunks: bool | None = None
    snapshot: bool | None = None


class Request(PlainRequest, frozen=True):
    """A parsed request."""

    input: m.RunAgentInput
    options: Options

    @property
    def thread_id(self) -> str:
        """The id of the conversation, which the client chose."""
        return self.input.thread_id

    @property
    def run_id(self) -> str:
        """The id of the run, which the client chose."""
        return self.input.run_id

    @property
    def resume(self) -> list[m.ResumeEntry]:
        """Answers to the interrupts of the run before."""
        return self.input.resume or []

    def dialect(self, header: str | None, default: DialectName | None) -> Dialect:
        """Return the dialect of the client.

        In this order: the option `dialect`, the header, the dialect of the client's version, the default.

        Args:
            header: The value of `AG-UI-Dialect`; None without it.
            default: The dialect of clients that send no version; None for 0.x.

        Raises:
            RequestError: There is no such dialect; also if the header is invalid and the option overrides it.
        """
        header_dialect = dialect_of(header.lower(), "AG-UI-Dialect") if header is not None else None
        if self.options.dialect is not None:
            return dialect_of(self.options.dialect)
        if header_dialect is not None:
            return header_dialect
        version = self.input.protocol_version
        return dialect_of(default) if version is None and default is not None else dialect_for(version)

    def messages(self, *, system_messages: bool = True) -> list[ModelMessage]:
        """Return the conversation.

        Args:
            system_messages: Whether the client may instruct the model (see `history_of`).

        Raises:
            RequestError: A message is invalid.
        """
        context = self.input.context or []
        return history_of(self.input.messages, context, self.resume, system_messages=system_messages)

    @property
    def system_message_count(self) -> int:
        """The number of messages of the roles `system` and `developer`."""
        return sum(isinstance(message, m.SystemMessage | m.DeveloperMessage) for message in self.input.messages)

    def unused_seals(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return the sealed tokens that are sent to no model: those not in the conversation, or on a second entity.

        They are opened, too, so that an invalid token is always an error.

        Args:
            messages: The conversation, as `messages` returned it.

        Returns:
            A response for each token.
        """
        response_parts = [part for message in messages if isinstance(message, ModelResponse) for part in message.parts]
        item_id_of_token = {
            part.token: part.item_id for part in reversed(response_parts) if isinstance(part, SealedPart)
        }
        return [
            ModelResponse([part])
            for part in sealed_in(self.input.messages)
            if item_id_of_token.get(part.token) != part.item_id
        ]

    def run_header(self, dialect: Dialect, *, view: View, max_view: View, model: str, stored: bool) -> RunHeader:
        """Return how the run was requested.

        Args:
            dialect: The dialect of the client.
            view: The view that was requested.
            max_view: The fullest view that the model allows to anyone.
            model: The public name of the model.
            stored: Whether the run is stored.
        """
        options = self.options
        with_snapshot = dialect.ends_with_snapshot if options.snapshot is None else options.snapshot
        return RunHeader(
            thread_id=self.thread_id,
            run_id=self.run_id,
            dialect=dialect.name,
            view=view,
            max_view=max_view,
            model=model,
            parent_run_id=self.input.parent_run_id,
            reasoning=options.reasoning != "off",
            chunks=bool(options.chunks),
            snapshot=options.snapshot,
            stored=stored,
            history=list(self.input.messages) if with_snapshot else [],
        )

    @property
    def tools(self) -> tuple[ToolDefinition, ...]:
        """The client's tools, which the client runs."""
        return tuple(ToolDefinition(tool.name, tool.parameters or {}, tool.description) for tool in _tools(self.input))

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the client's tools."""
        return frozenset(tool.name for tool in _tools(self.input))

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """Return the call of the model (see `ClientRequest`); by default, with the conversation of the request.

        Raises:
            RequestError: There is no message for a model.
        """
        messages = self.messages() if messages is None else messages
        if not messages:
            raise invalid("messages", "at least one message for a model is required", "missing")
        effort = self.options.effort
        settings: ModelSettings = {} if effort is None else {"thinking": False if effort == "none" else effort}
        return ModelCall(self.options.model or "", list(messages), settings, merge_tools(self.tools, server_tools))

    def token_path(self, part: SealedPart) -> str:
        """Return the path of a sealed token in the input."""
        for index, message in enumerate(self.input.messages):
            path = f"messages[{index}]"
            for name in ("encryptedValue", "encryptedContent"):
                field = "encrypted_value" if name == "encryptedValue" else "encrypted_content"
                if message.id == part.item_id and getattr(message, field, None) == part.token:
                    return f"{path}.{name}"
            for number, call in enumerate(getattr(message, "tool_calls", None) or []):
                if call.id == part.item_id and call.encrypted_value == part.token:
                    return f"{path}.toolCalls[{number}].encryptedValue"
        return "messages"


def parse_input(data: bytes | dict[str, Any], query: Mapping[str, str] | None = None) -> Request:
    """Parse the body of a request.

    Args:
        data: The body, or the JSON object that was decoded from it.
        query: The parameters of the query; those that are no option are ignored.

    Raises:
        RequestError: The body or an option is invalid; the message has the field and what is allowed.
    """
    input = decode(data, m.RunAgentInput)
    for index, tool in enumerate(input.tools or []):
        path = f"tools[{index}].parameters"
        if tool.parameters is not None and not isinstance(tool.parameters, dict):
            raise invalid(path, "must be a JSON Schema, which is an object", "invalid_type")
        check_depth(tool.parameters, path)
    for index, entry in enumerate(input.resume or []):
        check_depth({"payload": entry.payload}, f"resume[{index}].payload")
    dialect_for(input.protocol_version)  # an unknown version is refused, also if an option names the dialect
    _check_unique((tool.name for tool in _tools(input)), "tools", "name")
    _check_unique((message.id for message in input.messages), "messages", "id")
    props = input.forwarded_props
    raw_options = props.get(OPTIONS_KEY) if isinstance(props, dict) else None
    options = _parse_options({} if raw_options is None else raw_options, f"forwardedProps.{OPTIONS_KEY}")
    query_options = {name: value for name, value in (query or {}).items() if name in _ALLOWED}
    overrides = _parse_options(query_options)
    return Request(input, replace(options, **{name: getattr(overrides, name) for name in query_options}))


def _tools(input: m.RunAgentInput) -> list[m.Tool]:
    return input.tools or []


def _check_unique(values: Iterable[str], base_path: str, field: str) -> None:
    first_index: dict[str, int] = {}
    for index, value in enumerate(values):
        if (first := first_index.setdefault(value, index)) != index:
            path, first_path = (f"{base_path}[{one}].{field}" for one in (index, first))
            raise invalid(path, f"{truncate(value)!r} is {first_path} already; each needs its own")


def _parse_options(fields: Any, base_path: str = "") -> Options:
    """Parse options.

    Args:
        fields: The options.
        base_path: Their path in the input; empty for those of the query, whose values are texts.

    Raises:
        RequestError: There is no such option, or its value is invalid.
    """
    if not isinstance(fields, dict):
        raise invalid(base_path, "must be an object of options", "invalid_type")
    for name in fields:
        if name not in _ALLOWED:
            path = f"{base_path}.{truncate(name)}"
            known = ", ".join(_ALLOWED)
            raise invalid(path, f"no such option; there are {known}", "unknown_option")
    try:
        options = msgspec.convert(fields, Options, strict=bool(base_path))
    except msgspec.ValidationError as error:
        name = str(error).partition("`$.")[2].rstrip("`")
        raise _invalid_option(name, fields.get(name), base_path) from None
    for name in fields if not base_path else ():
        if getattr(options, name) is None:  # msgspec reads the text "null" as None.
            raise _invalid_option(name, fields[name], base_path)
    return options


def _invalid_option(name: str, supplied: Any, base_path: str) -> RequestError:
    path = f"{base_path}.{name}".lstrip(".")
    value = json.dumps(supplied)
    quoted = value if len(value) <= MAX_QUOTED_CHARS else f"{value[:MAX_QUOTED_CHARS]}…"
    return invalid(path, f"must be {_ALLOWED.get(name)}, not {quoted}")


def _describe_allowed(option_type: Any) -> str:
    """Describe the allowed values of an option with this type."""
    choices = [
        str(word)
        for alternative in get_args(option_type)
        if get_origin(alternative) is Literal
        for word in get_args(alternative)
    ]
    if choices:
        return "one of " + ", ".join(choices)
    return "true or false" if bool in get_args(option_type) else "a model's public name"


_ALLOWED = {name: _describe_allowed(kind) for name, kind in get_type_hints(Options).items()}
