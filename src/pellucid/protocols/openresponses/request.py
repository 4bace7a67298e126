"""Parses a request, turns it into a `ModelCall` once its previous context is known, and makes its echo in the response.

Errors name the path of the problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...errors import RequestError
from ...parts import ModelMessage, ModelRequest, SealedPart, SystemPromptPart
from ...settings import (
    ModelCall,
    ModelSettings,
    NativeTool,
    OutputFormat,
    ToolChoice,
    ToolDefinition,
    nearest_effort,
)
from ..decoding import BodyRequest, check_depth, convert, echoed_settings, invalid, read_json, requested_settings
from ..tool_choice import choose_from_all, merge_tools, reject_choice, require_tool, restrict_tools
from . import types as t
from .client_tools import OPENAI_WIRE, TOOL_ITEMS, ClientTools, function_name, known_form, native_name, read_tools
from .items import ReferenceContext, known_item, messages_of, with_content_parts, with_type


class MCPServerSpec(NamedTuple):
    """An MCP server whose tools are called here, for one request."""

    label: str
    url: str
    headers: dict[str, str]
    allowed_tools: list[str] | None
    path: str
    """The path of the server in the request."""


class Request(BodyRequest, frozen=True):
    """A parsed request."""

    body: t.CreateResponse
    raw_input: str | list[Any]
    """The input as it was received."""
    tools: ClientTools
    """The client's tools, as functions."""
    wire_settings: dict[str, Any]
    """Settings for the models of OpenAI's wire alone."""
    earlier_tool_items: tuple[t.ItemParam, ...] = ()
    """The items of earlier turns that added tools."""

    @property
    def obfuscate(self) -> bool:
        """Whether the client wants deltas to be padded."""
        return self.body.stream_options is not None and self.body.stream_options.include_obfuscation

    @property
    def wants_seals(self) -> bool:
        """Whether the client wants seals in reasoning items."""
        return "reasoning.encrypted_content" in (self.body.include or [])

    @property
    def wants_summaries(self) -> bool:
        """Whether the client wants summaries in addition to the raw text."""
        reasoning = self.body.reasoning
        return reasoning is not None and bool(reasoning.summary or reasoning.generate_summary)

    @property
    def client_tools(self) -> frozenset[str]:
        """The names of the client's own functions."""
        return frozenset(function.name for function in self.tools.functions)

    @property
    def is_compaction(self) -> bool:
        """Whether a compaction of the conversation is requested instead of an answer."""
        return isinstance(next(reversed(self._items), None), t.CompactionTriggerParam)  # it must be the last one

    @property
    def max_tool_calls(self) -> int | None:
        """The maximum number of calls; None for no limit by the client."""
        return self.body.max_tool_calls

    @property
    def mcp_servers(self) -> list[MCPServerSpec]:
        """The MCP servers that the request names."""
        return [
            MCPServerSpec(
                tool.server_label, tool.server_url, _headers(tool), _allowed_tool_names(tool), f"tools[{index}]"
            )
            for index, tool in enumerate(self.body.tools or [])
            if isinstance(tool, t.McpToolParam)
        ]

    @property
    def references(self) -> list[str]:
        """The ids of earlier items that the input refers to."""
        return [item.id for item in self._items if isinstance(item, t.ItemReference)]

    @property
    def _items(self) -> Sequence[t.ItemParam]:
        """The items of the input; empty if it is a text."""
        return self.body.input if isinstance(self.body.input, list) else ()

    @property
    def tool_items(self) -> tuple[t.ItemParam, ...]:
        """The items that added tools, up to this turn."""
        return (*self.earlier_tool_items, *(item for item in self._items if isinstance(item, TOOL_ITEMS)))

    def after(self, tool_items: Sequence[t.ItemParam]) -> Request:
        """Return the request with the tools that earlier turns added. Raises `RequestError`."""
        if not tool_items:
            return self
        tools = read_tools(self.body.tools or [], self._items, tool_items)
        return replace(self, tools=tools, earlier_tool_items=tuple(tool_items))

    def input_items(self, mint: Callable[[str], str]) -> list[dict[str, Any]]:
        """Return the input as items, as it was received, each with an id. A message's content is a list.

        Args:
            mint: Makes a new id with the given prefix.
        """
        if isinstance(self.raw_input, str):
            content = [{"type": "input_text", "text": self.raw_input}]
            return [{"id": mint("msg"), "type": "message", "role": "user", "content": content}]
        return [
            with_content_parts(item if item.get("id") else {**item, "id": mint(_ID_PREFIXES.get(item["type"], "item"))})
            for item in self.raw_input
        ]

    def token_path(self, part: SealedPart) -> str:
        """Return the path of this sealed token in the request."""
        items = self.raw_input if isinstance(self.raw_input, list) else []
        index = next((i for i, item in enumerate(items) if item.get("encrypted_content") == part.token), 0)
        return f"input[{index}].encrypted_content"

    def messages(
        self,
        context: ReferenceContext = ReferenceContext(),  # noqa: B008 (immutable)
        warnings: list[str] | None = None,
    ) -> list[ModelMessage]:
        """Return the messages that the input adds to the conversation.

        Args:
            context: The calls and items that items may refer to.
            warnings: Is extended by a sentence for each item that is not used as what it is.

        Raises:
            RequestError: The input is not valid.
        """
        is_whole_history = self.body.previous_response_id is None and self.body.conversation is None
        collected = [] if warnings is None else warnings
        return messages_of(self.body.input or [], context, collected if is_whole_history else None)

    def call(self, messages: Sequence[ModelMessage], server_tools: Sequence[ToolDefinition] = ()) -> ModelCall:
        """Return the call of the model (see `ClientRequest`).

        Raises:
            RequestError: `tool_choice` is invalid for these functions.
        """
        body = self.body
        tools, native_tools, choice = _tools_and_choice(body, self.tools, server_tools)
        conversation = list(messages)
        if body.instructions:
            system = SystemPromptPart(body.instructions)
            if conversation and isinstance(conversation[0], ModelRequest):
                conversation[0] = ModelRequest([system, *conversation[0].parts])
            else:
                conversation.insert(0, ModelRequest([system]))
        return ModelCall(
            model=body.model or "",
            messages=conversation,
            settings=_settings(body, self.wire_settings, bool(tools)),
            tools=tools,
            native_tools=native_tools,
            tool_choice=choice,
            output=_output_format(body.text),
            stream=True,
        )

    def call_without_choice(self, messages: Sequence[ModelMessage]) -> ModelCall:
        """Return the call as far as it is known before the tools of MCP servers are: for warnings."""
        settings = _settings(self.body, self.wire_settings, has_tools=True)
        return ModelCall(self.body.model or "", list(messages), settings, native_tools=self.tools.native)

    def response(self, id: str, model: str, created_at: int) -> t.Response:
        """Return the resource before the run: the request's echo, with every default filled in.

        Args:
            id: The id of the response.
            model: The model's public name.
            created_at: The time of the request, in seconds since 1970.
        """
        body = self.body
        reasoning = body.reasoning
        return t.Response(
            id=id,
            created_at=created_at,
            model=model,
            instructions=body.instructions,
            # In the specification, a response has a form for functions only.
            tools=[
                t.FunctionTool(name=x.name, description=x.description, parameters=x.parameters, strict=x.strict)
                for x in body.tools or []
                if isinstance(x, t.FunctionToolParam)
            ],
            tool_choice=_choice_echo(body.tool_choice),
            truncation=body.truncation or "disabled",
            text=_text_echo(body.text),
            reasoning=t.ReasoningConfig(
                nearest_effort(reasoning.effort, _ECHOED_EFFORTS) if reasoning.effort else None,
                reasoning.summary or reasoning.generate_summary,
            )
            if reasoning is not None
            else None,
            max_tool_calls=body.max_tool_calls,
            **echoed_settings(body, t.Response, _SETTING_FIELDS),
        )


def parse_request(data: bytes, headers: Mapping[str, str] = {}) -> Request:
    """Parse a body.

    Args:
        data: The body.
        headers: Those of the request's headers that `FORWARDED_HEADERS` names.

    Raises:
        RequestError: The message names the field and says what would be valid.
    """
    return request_from(read_json(data), headers)


def request_from(raw: dict[str, Any], headers: Mapping[str, str] = {}) -> Request:
    """Parse the JSON object of a body; see `parse_request`."""
    raw_input, raw_tools = raw.get("input"), raw.get("tools")
    known = dict(raw)
    if isinstance(raw_input, list):
        raw_input = [with_type(item) for item in raw_input]
        known["input"] = [known_item(item) for item in raw_input]
    if isinstance(raw_tools, list):
        known["tools"] = [known_form(tool) for tool in raw_tools]
    body = convert(known, t.CreateResponse)
    if body.input in (None, []) and body.previous_response_id is None and body.conversation is None:
        raise invalid("input", "a text or a list of items is required", "missing")
    if body.previous_response_id is not None and body.conversation is not None:
        raise RequestError(
            "previous_response_id and conversation: the response can continue only one of them",
            code="mutually_exclusive",
            param="previous_response_id",
        )
    _check_trigger(body)
    for name, alternative in _UNSUPPORTED_FIELDS.items():
        if raw.get(name) is not None:
            raise invalid(name, f"not supported here; {alternative}", "unsupported_parameter", kind="unsupported")
    if body.background and body.store is False:
        raise invalid("background", "a background response must be stored; leave store out, or set it to true")
    for index, tool in enumerate(body.tools or []):
        if isinstance(tool, t.McpToolParam):
            _check_server(tool, f"tools[{index}]")
    tools = read_tools(body.tools or [], body.input if isinstance(body.input, list) else ())
    _output_format(body.text)
    return Request(body, raw_input if raw_input is not None else [], tools, _wire_settings(raw, body, headers))


def _check_trigger(body: t.CreateResponse) -> None:
    """Check that a compaction is requested at the end, and of something. Raises `RequestError`."""
    items = body.input if isinstance(body.input, list) else []
    for index, item in enumerate(items):
        if isinstance(item, t.CompactionTriggerParam):
            if index + 1 < len(items):
                raise invalid(f"input[{index}]", "a compaction_trigger must be the last item")
            if index == 0 and body.previous_response_id is None and body.conversation is None:
                raise invalid("input", "there is nothing before the compaction_trigger to compact")


_UNSUPPORTED_FIELDS = {
    "prompt": "prompts are stored at their provider; send the instructions and the input themselves",
    "context_management": "set truncation to 'auto', or compact the conversation with POST /v1/responses/compact",
}
"""Fields that change what a model gets and cannot be honoured, and what to do instead."""

_ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "compaction": "cmp",
    "item_reference": "ref",
}


_SETTING_FIELDS = {"max_tokens": "max_output_tokens", "user": "safety_identifier", "cache_key": "prompt_cache_key"}
"""Fields whose name differs from that of the setting."""


def _value_or(value: Any, default: Any) -> Any:
    return default if value is None else value


# --- MCP servers -------------------------------------------------------------------------------------------------


def _check_server(tool: t.McpToolParam, path: str) -> None:
    if tool.require_approval != "never":
        problem = (
            "calls cannot be approved here; set it to 'never', and name the tools that may be called in allowed_tools"
        )
        raise invalid(f"{path}.require_approval", problem, "unsupported_approval", kind="unsupported")
    _allowed_tool_names(tool, path)


def _allowed_tool_names(tool: t.McpToolParam, path: str = "") -> list[str] | None:
    """Return the names in `allowed_tools`, which is a list or OpenAI's filter with a list."""
    match tool.allowed_tools:
        case None:
            return None
        case list(names) | {"tool_names": list(names)} if all(isinstance(name, str) for name in names):
            return names
        case _:
            raise invalid(f"{path}.allowed_tools", "must be a list of names, or {tool_names: […]}")


def _headers(tool: t.McpToolParam) -> dict[str, str]:
    bearer = {"Authorization": f"Bearer {tool.authorization}"} if tool.authorization else {}
    return {**(tool.headers or {}), **bearer}


# --- settings, tools, output -------------------------------------------------------------------------------------


FORWARDED_HEADERS = ("session-id", "session_id", "thread-id", "conversation_id", "x-client-request-id")
"""Headers of coding agents that go to models of OpenAI's wire unchanged, for prompt caches and traces."""

_FORWARDED_FIELDS = ("client_metadata", "prompt_cache_retention", "prompt_cache_options")
_INCLUDE_SETTINGS = {
    "code_interpreter_call.outputs": "openai_include_code_execution_outputs",
    "web_search_call.action.sources": "openai_include_web_search_sources",
    "file_search_call.results": "openai_include_file_search_results",
}
"""The settings that request additional output of OpenAI's own tools."""


def _wire_settings(raw: dict[str, Any], body: t.CreateResponse, headers: Mapping[str, str]) -> dict[str, Any]:
    settings: dict[str, Any] = {
        _INCLUDE_SETTINGS[name]: True for name in body.include or [] if name in _INCLUDE_SETTINGS
    }
    if fields := {name: raw[name] for name in _FORWARDED_FIELDS if raw.get(name) is not None}:
        settings["extra_body"] = fields
    if headers:
        settings["extra_headers"] = dict(headers)
    return settings


def _settings(body: t.CreateResponse, wire_settings: dict[str, Any], has_tools: bool) -> ModelSettings:
    reasoning = body.reasoning or t.ReasoningConfigParam()
    logprobs = bool(body.top_logprobs) or "message.output_text.logprobs" in (body.include or [])
    overrides = {
        "parallel_tool_calls": body.parallel_tool_calls if has_tools else None,
        "user": body.safety_identifier or body.user,
        "verbosity": body.text.verbosity if body.text is not None else None,
        "thinking": False if reasoning.effort == "none" else reasoning.effort,
        "thinking_summary": reasoning.summary or reasoning.generate_summary,
        "logprobs": logprobs or None,
        "top_logprobs": (body.top_logprobs or 0) if logprobs else None,
    }
    settings = requested_settings(body, _SETTING_FIELDS, overrides)
    if wire_settings:
        settings["wire_settings"] = {OPENAI_WIRE: wire_settings}
    return settings


def _tools_and_choice(
    body: t.CreateResponse, client_tools: ClientTools, server_tools: Sequence[ToolDefinition]
) -> tuple[tuple[ToolDefinition, ...], tuple[NativeTool, ...], ToolChoice]:
    """Return the functions that the model may call, the tools that OpenAI runs, and the choice among them."""
    tools, native = merge_tools(client_tools.functions, server_tools), client_tools.native
    native_names = {tool.name for tool in native}

    def is_native(entry: Any) -> bool:
        name = _tool_name(entry)
        return isinstance(name, str) and entry.get("type") not in _NAMED_TYPES and name in native_names

    match body.tool_choice:
        case "required" if native:
            return tools, native, ToolChoice("required")
        case None | str():
            tools, choice = choose_from_all(tools, body.tool_choice)
            return tools, native, choice
        case {"type": "allowed_tools", "tools": [_, *_] as entries, **more}:
            names = [_tool_name(entry) for entry in entries if not is_native(entry)]
            native_names = {_tool_name(entry) for entry in entries if is_native(entry)}
            tools, choice = restrict_tools(tools, names, more.get("mode"))
            return tools, tuple(tool for tool in native if tool.name in native_names), choice
        case {"type": str()} as entry if is_native(entry):
            return tools, native, ToolChoice("required", (_tool_name(entry),))
        case {"type": "function" | "custom" | "tool_search" | "local_shell"} as entry:
            tools, choice = require_tool(tools, _tool_name(entry))
            return tools, native, choice
        case _:
            reject_choice(
                "must be 'auto', 'none', 'required', {type: function, name}, {type} of one of the tools, or "
                "{type: allowed_tools, mode, tools} with at least one tool"
            )


_NAMED_TYPES = ("function", "custom")


def _tool_name(entry: Any) -> Any:
    """Return the name of the tool that an entry of `tool_choice` means."""
    if not isinstance(entry, dict) or not isinstance(entry.get("type", "function"), str):
        return None
    if entry.get("type", "function") not in _NAMED_TYPES:
        return native_name(entry)
    name, namespace = entry.get("name"), entry.get("namespace")
    return function_name(namespace, name) if isinstance(name, str) and isinstance(namespace, str) else name


def _choice_echo(choice: Any) -> Any:
    """Return the choice in the form of the response, which leaves nothing out. It was checked before."""
    match choice:
        case {"type": "allowed_tools", "tools": tools}:
            mode = _value_or(choice.get("mode"), "auto")
            return {"type": "allowed_tools", "tools": [_named_tool(tool) for tool in tools], "mode": mode}
        case {"type": str()}:
            return _named_tool(choice)
        case _:
            return _value_or(choice, "auto")


def _named_tool(entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", **{name: entry[name] for name in ("type", "name", "namespace") if name in entry}}


_ECHOED_EFFORTS = ("none", "low", "medium", "high", "xhigh")
"""The efforts of the specification. For another effort, the response holds the nearest of these."""


def _output_format(text: t.TextParam | None) -> OutputFormat:
    match text.format if text is not None else None:
        case t.FormatJsonObject():
            return OutputFormat("json_object")
        case t.FormatJsonSchema() as form:
            check_depth(form.schema, "text.format.schema")
            return OutputFormat("json_schema", form.name, form.schema, form.description, form.strict)
        case _:
            return OutputFormat()


def _text_echo(text: t.TextParam | None) -> dict[str, Any]:
    echo: dict[str, Any] = {"format": {"type": "text"}}
    match text.format if text is not None else None:
        case t.FormatJsonObject():
            echo["format"] = {"type": "json_object"}
        case t.FormatJsonSchema() as form:
            # The published schema permits only null for the schema in a response.
            echo["format"] = {
                "type": "json_schema",
                "name": form.name,
                "description": form.description,
                "schema": None,
                "strict": bool(form.strict),
            }
    if text is not None and text.verbosity is not None:
        echo["verbosity"] = text.verbosity
    return echo
