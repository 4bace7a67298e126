"""Parses a request and turns it into a `ModelCall`.

Settings that mean the same for every model become settings of the call. Fields that only Anthropic's models know are
`wire_settings` (see `pellucid.settings`): those models get them unchanged, others do not get them. So for Anthropic's
models, `thinking` and `output_config` are sent as they came, and for all others as the unified settings that say the
same.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

from ...errors import RequestError
from ...parts import ModelMessage, SealedPart
from ...server_tool_blocks import WIRE
from ...settings import ModelCall, ModelSettings, NativeTool, OutputFormat, ToolChoice, ToolDefinition
from ...unicode import truncate
from ...view import View
from ..decoding import BodyRequest, check_depth, convert, invalid, read_json, requested_settings
from ..tool_choice import choose_from_all, merge_tools, require_tool
from . import types as t
from .content import Conversation, convert_block, wire_fields
from .encode import Encoder


class Request(BodyRequest, frozen=True):
    """A parsed request."""

    body: t.CreateMessage
    conversation: Conversation
    functions: tuple[ToolDefinition, ...]
    """The client's own functions."""
    native_tools: tuple[NativeTool, ...]
    """Tools that Anthropic defines."""
    wire_settings: dict[str, Any]
    """The settings for Anthropic's models, in place of the unified ones."""

    @property
    def messages(self) -> list[ModelMessage]:
        """The conversation."""
        return self.conversation.messages

    @property
    def warnings(self) -> Sequence[str]:
        """What of the request is left out."""
        return self.conversation.warnings

    @property
    def view(self) -> View | None:
        """Always None: the protocol has no field for it. `thinking.display` decides about the text alone."""
        return None

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the client's own functions."""
        return frozenset(tool.name for tool in self.functions)

    def encoder(self, id: str, model: str, created: int, server_tools: Container[str]) -> Encoder:
        """Return the encoder of the answer (see `StatelessRequest`). The protocol has no time."""
        thinking = self.body.thinking
        return Encoder(
            id,
            model,
            omit_thinking=thinking is not None and thinking.display == "omitted",
            server_tools=server_tools,
            stop_sequences=self.body.stop_sequences or (),
        )

    def token_path(self, part: SealedPart) -> str:
        """Return the path of this sealed token in the request."""
        return self.conversation.token_paths.get(part.token, "messages")

    def call(
        self, messages: Sequence[ModelMessage] | None = None, server_tools: Sequence[ToolDefinition] = ()
    ) -> ModelCall:
        """Return the call of the model (see `ClientRequest`); by default, with the conversation of the request.

        Raises:
            RequestError: `tool_choice` is invalid for these functions.
        """
        body = self.body
        native_names = {tool.name for tool in self.native_tools}
        tools, choice = _tools_and_choice(merge_tools(self.functions, server_tools), body.tool_choice, native_names)
        return ModelCall(
            model=body.model or "",
            messages=list(self.messages if messages is None else messages),
            settings=_settings(body, self.wire_settings, bool(tools)),
            tools=tools,
            native_tools=self.native_tools,
            tool_choice=choice,
            output=_output_format(body),
            stream=True,
            # A client that does not say otherwise shows what it gets.
            assumed_settings=frozenset({"thinking_summary"}),
        )


def parse_request(data: bytes | dict[str, Any], headers: Mapping[str, str] = {}) -> Request:
    """Parse a body, or the JSON object that was already read from it.

    Errors of `tool_choice` are raised by `Request.call`.

    Args:
        data: The body.
        headers: Those of the request whose names are in `FORWARDED_HEADERS`.

    Raises:
        RequestError: The message names the field and says what would be valid.
    """
    raw = data if isinstance(data, dict) else read_json(data)
    body = convert(raw, t.CreateMessage)
    if not body.messages:
        raise RequestError("messages: at least one is required", code="missing", param="messages")
    if raw.get("thread") is not None:
        # Anthropic's client continues without a thread when it reads this code.
        raise RequestError(
            "thread: conversations are not stored here; send all messages, without thread",
            kind="unsupported",
            code=t.NO_THREADS,
            param="thread",
        )
    functions, native_tools = _tools(body.tools or [])
    _output_format(body)
    return Request(body, Conversation(body), functions, native_tools, _wire_settings(raw, body, headers))


# --- settings ----------------------------------------------------------------------------------------------------

VERSION_HEADER, BETA_HEADER = "anthropic-version", "anthropic-beta"
FORWARDED_HEADERS = (VERSION_HEADER, BETA_HEADER)
"""Headers that go to Anthropic's models unchanged."""

_SERVICE_TIERS = {"standard_only": "default"}
"""The unified names of service tiers that have another name here."""


def _settings(body: t.CreateMessage, wire_settings: dict[str, Any], has_tools: bool) -> ModelSettings:
    """Return the model settings. `has_tools`: whether the model gets any functions."""
    choice, metadata, tier = body.tool_choice, body.metadata, body.service_tier
    overrides = {
        "user": metadata.user_id if metadata is not None else None,
        "stop_sequences": body.stop_sequences or None,
        "service_tier": _SERVICE_TIERS.get(tier, tier) if tier is not None else None,
        "parallel_tool_calls": False if has_tools and choice is not None and choice.disable_parallel_tool_use else None,
        **_thinking(body),
    }
    settings = requested_settings(body, {}, overrides)
    if wire_settings:
        settings["wire_settings"] = {WIRE: wire_settings}
    return settings


def _thinking(body: t.CountTokens) -> dict[str, Any]:
    """Return the reasoning settings, in the unified form."""
    thinking, effort = body.thinking, body.output_config.effort if body.output_config is not None else None
    if thinking is None:
        return {"thinking": effort}
    if thinking.type == "disabled":
        return {"thinking": False}
    return {
        "thinking": effort or True,
        "thinking_budget": thinking.budget_tokens if (thinking.budget_tokens or 0) > 0 else None,
        # A client that does not say otherwise shows what it gets.
        "thinking_summary": None if thinking.display == "omitted" else "auto",
    }


def _wire_settings(raw: dict[str, Any], body: t.CreateMessage, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings for Anthropic's models. None removes a unified setting."""
    settings: dict[str, Any] = {}
    if body.thinking is not None or body.output_config is not None:
        settings |= {"thinking": None, "thinking_budget": None}
    if body.thinking is not None:
        settings["anthropic_thinking"] = raw["thinking"]
    extra_body = {name: value for name, value in raw.items() if name not in t.CreateMessage.__struct_fields__}
    for name, struct in (("metadata", t.MetadataParam), ("output_config", t.OutputConfigParam)):
        if set(raw.get(name) or ()) - set(struct.__struct_fields__):
            extra_body[name] = raw[name]
    if body.output_config is not None and body.output_config.effort is not None:
        settings["anthropic_effort"] = body.output_config.effort
    if extra_body:
        settings["extra_body"] = extra_body
    if betas := [beta.strip() for beta in headers.get(BETA_HEADER, "").split(",") if beta.strip()]:
        settings["anthropic_betas"] = betas
    if version := headers.get(VERSION_HEADER):
        settings["extra_headers"] = {VERSION_HEADER: version}
    return settings


def _output_format(body: t.CountTokens) -> OutputFormat:
    """Return the format of the answer.

    Raises:
        RequestError: It is invalid, or given twice.
    """
    path, format = "output_config.format", body.output_config.format if body.output_config is not None else None
    if body.output_format is not None:
        if format is not None:
            raise invalid("output_format", "output_config.format is its new name; send only one of them")
        path, format = "output_format", body.output_format
    if format is None:
        return OutputFormat()
    check_depth(format.schema, f"{path}.schema")
    return OutputFormat("json_schema", "output", format.schema)


# --- tools -------------------------------------------------------------------------------------------------------


def _tools(raw: list[dict[str, Any]]) -> tuple[tuple[ToolDefinition, ...], tuple[NativeTool, ...]]:
    """Return the client's functions, and the tools that Anthropic defines."""
    functions: list[ToolDefinition] = []
    native: list[NativeTool] = []
    names: set[str] = set()
    for index, entry in enumerate(raw):
        path = f"tools[{index}]"
        tool = convert_block(entry, t.ToolParam, path)
        if tool.name is not None and tool.name in names:
            raise invalid(f"{path}.name", f"another tool has the name {truncate(tool.name)!r}; names must be unique")
        names.add(tool.name or "")
        if tool.type not in (None, "custom"):
            native.append(NativeTool(WIRE, tool.name or tool.type, path, entry))
            continue
        if tool.name is None:
            raise RequestError(f"{path}.name: it is required", code="missing", param=f"{path}.name")
        check_depth(tool.input_schema, f"{path}.input_schema")
        functions.append(
            ToolDefinition(
                tool.name,
                tool.input_schema or {},
                tool.description,
                tool.strict,
                wire_fields=wire_fields(entry, t.ToolParam),
            )
        )
    return tuple(functions), tuple(native)


def _tools_and_choice(
    tools: tuple[ToolDefinition, ...], choice: t.ToolChoiceParam | None, native_names: Collection[str]
) -> tuple[tuple[ToolDefinition, ...], ToolChoice]:
    match choice:
        case None:
            return choose_from_all(tools, None)
        case t.ToolChoiceParam(type="tool"):
            if choice.name is not None and choice.name in native_names:
                return tools, ToolChoice("required", (choice.name,))
            return require_tool(tools, choice.name)
        case t.ToolChoiceParam(type="any"):
            if native_names and not tools:
                return tools, ToolChoice("required")
            return choose_from_all(tools, "required")
        case _:
            return choose_from_all(tools, choice.type)
