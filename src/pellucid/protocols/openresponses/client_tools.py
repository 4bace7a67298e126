"""The tools of a client, as functions that every model can call, and the way back from a call to the client's tool.

Every type of tool that a client itself executes becomes a function:

* A `namespace` becomes a function for each of its tools. The name is `namespace__name`, or a shorter form of it that is
  unique. The client gets `name` and `namespace` back apart.
* A `custom` tool becomes a function with one text. The client gets the text back, while it streams. Models of OpenAI
  get the tool itself; for others, a grammar is described in words. The text is checked afterwards, and the client is
  warned of one that the grammar does not permit. It gets the call all the same: its tool tells the model best what is
  wrong.
* `tool_search` and `local_shell` become functions with the arguments that the client expects.

Tools that OpenAI runs (for example `web_search`) are offered to models of its wire alone. Tools may also come in the
input: with `additional_tools`, and as the result of a search. Those of earlier turns can still be called.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import msgspec

from ...settings import NativeTool, ToolDefinition
from ...unicode import replace_surrogates, truncate
from ..decoding import check_depth, invalid
from . import types as t
from .grammars import MAX_WORK, NotDecided, read_grammar

OPENAI_WIRE = "openai_responses"
"""The name of the wire whose form these tools and items have."""

MAX_NAME_CHARS = 64
"""The maximum length of a function's name at every provider."""

TOOL_ITEMS = (t.AdditionalToolsParam, t.ToolSearchOutputParam)
"""The items that add tools."""

_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_KNOWN_TOOLS = frozenset(str(tool.__struct_config__.tag) for tool in get_args(t.ToolParam)) - {"native"}

INPUT = "input"
"""The argument of the function that stands for a custom tool."""

_INPUT_SCHEMA = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}
_SHELL_SCHEMA = {
    "type": "object",
    "properties": {
        "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer", "description": "The time limit, in milliseconds."},
    },
    "required": ["command"],
}
_SHELL_DESCRIPTION = "Run a command in the user's environment and return its output."
_SEARCH_SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
_SEARCH_DESCRIPTION = "Search for further tools. Those that are found can be called from then on."


class ClientTool(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call of a function becomes for the client. It is stored with a run, so that its calls can be shown."""

    kind: Literal["function", "custom", "tool_search", "local_shell"]
    name: str
    namespace: str | None = None
    syntax: Literal["lark", "regex"] | None = None
    grammar: str = ""

    def call_item(self, id: str, call_id: str, arguments: str | None, status: t.Status) -> t.CallItem:
        """Return the item of a call.

        Args:
            id: The item's id.
            call_id: The call's id.
            arguments: The arguments of the function, as JSON text, or the text of a custom tool; None at the start.
            status: The item's status.
        """
        namespace = msgspec.UNSET if self.namespace is None else self.namespace
        match self.kind:
            case "custom":
                return t.CustomToolCallItem(id, call_id, self.name, arguments or "", status, namespace)
            case "tool_search":
                return t.ToolSearchCallItem(id, call_id, _object(arguments), status)
            case "local_shell":
                return t.LocalShellCallItem(id, call_id, {"type": "exec", "env": {}, **_object(arguments)}, status)
            case _:
                return t.FunctionCallItem(id, call_id, self.name, arguments or "", status, namespace)

    def permits(self, text: str) -> bool:
        """Return whether the tool's grammar permits a text; true if that cannot be decided in a short time."""
        grammar = None if self.syntax is None else read_grammar(self.syntax, self.grammar).grammar
        try:
            return grammar is None or grammar.permits(text)
        except NotDecided:
            return True


def _object(arguments: str | None) -> dict[str, Any]:
    if not arguments:
        return {}
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return {"invalid_json": arguments}


class ClientTools(msgspec.Struct, frozen=True):
    """The tools of one request."""

    functions: tuple[ToolDefinition, ...]
    native: tuple[NativeTool, ...]
    """Tools that OpenAI runs."""
    by_function: dict[str, ClientTool]
    """The tools that are not plain functions, by the name of their function."""


def known_form(tool: Any) -> Any:
    """Return a tool of a request in a form that `ToolParam` can hold: one of an unknown type is a native tool."""
    if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
        return tool
    is_search_of_openai = tool["type"] == "tool_search" and tool.get("execution") == "server"
    return tool if tool["type"] in _KNOWN_TOOLS and not is_search_of_openai else {"type": "native", "native": tool}


def read_tools(
    tools: Sequence[t.ToolParam], items: Sequence[t.ItemParam] = (), earlier_items: Sequence[t.ItemParam] = ()
) -> ClientTools:
    """Return the tools of a request as functions.

    Args:
        tools: The tools of the request. MCP servers are left out.
        items: The input, which may add tools. One that is defined again, in another list, replaces the earlier one.
        earlier_items: The input of the turns before, which may have added tools, too.

    Raises:
        RequestError: A tool is not valid, or two have the same name.
    """
    defined: dict[str, _Definition] = {}
    native: dict[bytes, NativeTool] = {}
    added: list[tuple[str, ClientTool]] = []
    for path, tool in chain(_tools_of_items(earlier_items, "previous input"), _all_tools(tools, items)):
        match tool:
            case t.NativeToolParam():
                key = msgspec.json.encode(tool.native)
                native[key] = NativeTool(OPENAI_WIRE, native_name(tool.native), path, tool.native)
            case t.NamespaceToolParam():
                for index, inner in enumerate(tool.tools):
                    inner_path = f"{path}.tools[{index}]"
                    added.append((inner_path, _add(defined, inner, tool, inner_path)))
            case t.McpToolParam():
                if not path.startswith("tools["):
                    raise invalid(path, "MCP servers are named in tools; move it there", kind="unsupported")
            case _:
                added.append((path, _add(defined, tool, None, path)))
    _check_grammars(added)
    return ClientTools(
        tuple(definition.function for definition in defined.values()),
        tuple(native.values()),
        {name: tool for name, (_, _, tool) in defined.items() if tool != ClientTool("function", name)},
    )


def _all_tools(tools: Sequence[t.ToolParam], items: Sequence[t.ItemParam]) -> Iterator[tuple[str, t.ToolParam]]:
    for index, tool in enumerate(tools):
        yield f"tools[{index}]", tool
    yield from _tools_of_items(items, "input")


def _tools_of_items(items: Sequence[t.ItemParam], path: str) -> Iterator[tuple[str, t.ToolParam]]:
    for item_index, item in enumerate(items):
        if isinstance(item, TOOL_ITEMS):
            for index, tool in enumerate(item.tools):
                yield f"{path}[{item_index}].tools[{index}]", tool


_FunctionLike = t.FunctionToolParam | t.CustomToolParam | t.ToolSearchToolParam | t.LocalShellToolParam


class _Definition(NamedTuple):
    """A function that stands for a tool of the client."""

    list_path: str
    """The path of the list that has the tool."""
    function: ToolDefinition
    tool: ClientTool


def _add(
    defined: dict[str, _Definition], param: _FunctionLike, namespace: t.NamespaceToolParam | None, path: str
) -> ClientTool:
    function, tool = _function_of(param, namespace, path)
    list_path = path.partition("[")[0] if path.startswith("tools[") else path.partition("]")[0]
    new, earlier = _Definition(list_path, function, tool), defined.get(function.name)
    if earlier is not None and earlier != new:
        is_same_tool = (earlier.tool.namespace, earlier.tool.name) == (tool.namespace, tool.name)
        if not is_same_tool or earlier.list_path == list_path:
            raise invalid(f"{path}.name", f"another tool is called {function.name!r}, too; give one another name")
    defined[function.name] = new
    return tool


def _function_of(
    tool: _FunctionLike, namespace: t.NamespaceToolParam | None, path: str
) -> tuple[ToolDefinition, ClientTool]:
    """Return the function that stands for a tool, and what a call of it becomes."""
    match tool:
        case t.ToolSearchToolParam():
            check_depth(tool.parameters, f"{path}.parameters")
            function = ToolDefinition(
                "tool_search", tool.parameters or _SEARCH_SCHEMA, tool.description or _SEARCH_DESCRIPTION
            )
            return function, ClientTool("tool_search", "tool_search")
        case t.LocalShellToolParam():
            function = ToolDefinition("local_shell", _SHELL_SCHEMA, _SHELL_DESCRIPTION)
            return function, ClientTool("local_shell", "local_shell")
    space = namespace.name if namespace is not None else None
    name, description = function_name(space, tool.name), tool.description
    if namespace is not None and namespace.description:
        description = f"{namespace.description}\n\n{description or ''}".rstrip()
    if isinstance(tool, t.CustomToolParam):
        return _text_function(tool, name, space, description)
    check_depth(tool.parameters, f"{path}.parameters")
    function = ToolDefinition(name, tool.parameters or {}, description, tool.strict)
    return function, ClientTool("function", tool.name, space)


def native_name(tool: dict[str, Any]) -> str:
    """Return the name by which a tool that OpenAI runs is chosen."""
    return str(tool.get("name") or tool["type"])


def function_name(namespace: str | None, name: str) -> str:
    """Return the name of the function that stands for a tool of a namespace."""
    if not namespace:
        return name
    full = f"{namespace}__{name}"
    if len(full) <= MAX_NAME_CHARS and _NAME.fullmatch(full):
        return full
    suffix = hashlib.sha256(full.encode(errors="replace")).hexdigest()[:10]
    return f"{re.sub('[^a-zA-Z0-9_-]', '_', full)[: MAX_NAME_CHARS - 11]}_{suffix}"


# --- custom tools ------------------------------------------------------------------------------------------------


def _text_function(
    tool: t.CustomToolParam, name: str, namespace: str | None, description: str | None
) -> tuple[ToolDefinition, ClientTool]:
    native = {"type": "custom", "name": name, "description": description}
    if tool.format is not None:
        native["format"] = msgspec.to_builtins(tool.format)
    words = f"The argument {INPUT!r} is plain text, not JSON."
    client_tool = ClientTool("custom", tool.name, namespace)
    if isinstance(grammar := tool.format, t.ToolFormatGrammar):
        words += f" It must match this {_SYNTAX_NAMES[grammar.syntax]}:\n{grammar.definition}"
        client_tool = ClientTool("custom", tool.name, namespace, grammar.syntax, grammar.definition)
    definition = ToolDefinition(
        name,
        _INPUT_SCHEMA,
        f"{description}\n\n{words}" if description else words,
        wire_fields={OPENAI_WIRE: {key: value for key, value in native.items() if value is not None}},
    )
    return definition, client_tool


_SYNTAX_NAMES = {"lark": "Lark grammar", "regex": "regular expression"}


def _check_grammars(tools: Iterable[tuple[str, ClientTool]]) -> None:
    """Raise `RequestError` for a grammar that is not valid. Those for which no time is left are not checked."""
    work = 0
    for path, tool in tools:
        if tool.syntax is not None and work < MAX_WORK:
            grammar = read_grammar(tool.syntax, tool.grammar)
            work += grammar.work
            if grammar.problem:
                problem = f"not a valid {_SYNTAX_NAMES[tool.syntax]}: {truncate(grammar.problem)}"
                raise invalid(f"{path}.format.definition", problem)


class TextArgument:
    """Reads the text of a custom tool from the arguments of its function, while they stream.

    Where they do not have the form `{"input": "…"}`, the whole is known at their end (`rest`).
    """

    _OPENING: ClassVar = re.compile(r'\s*\{\s*"input"\s*:\s*"')
    _ENDING: ClassVar = re.compile(r'"\s*\}?\s*\Z')
    _MAX_OPENING: ClassVar = 100
    # Characters and complete escapes. Half a surrogate pair at the end is not complete.
    _TEXT: ClassVar = re.compile(
        r'(?>(?:[^"\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}'
        r'|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\["\\/bfnrt])*)'
    )

    def __init__(self) -> None:
        self._pending = ""
        self._state: Literal["opening", "text", "end"] = "opening"
        self._sent: list[str] = []

    def feed(self, piece: str) -> str:
        """Return the text that a piece of the arguments adds; empty if it is not known yet."""
        if self._state == "end":
            return ""
        self._pending += piece
        if self._state == "opening":
            opening = self._OPENING.match(self._pending)
            if opening is None:
                if len(self._pending) > self._MAX_OPENING:
                    self._state = "end"
                return ""
            self._state, self._pending = "text", self._pending[opening.end() :]
        encoded = self._TEXT.match(self._pending)
        assert encoded is not None  # the pattern matches the empty text
        self._pending = self._pending[encoded.end() :]
        if self._pending.startswith('"') or len(self._pending) > 12:
            self._state = "end"
        text = replace_surrogates(json.loads(f'"{encoded.group()}"', strict=False)) if encoded.group() else ""
        if text:
            self._sent.append(text)
        return text

    def rest(self, arguments: str) -> tuple[str, str]:
        """Return the complete text, which the complete arguments hold, and what of it `feed` did not return."""
        sent, text = "".join(self._sent), replace_surrogates(text_of_arguments(arguments))
        if not text.startswith(sent):
            # Not valid JSON, because the model did not escape the text. What `feed` did not read is used as it is.
            opening = self._OPENING.match(arguments)
            rest = arguments[opening.end() :] if opening is not None else ""
            read = self._TEXT.match(rest)
            text = sent + self._ENDING.sub("", rest[read.end() if read is not None else 0 :])
        return text, text[len(sent) :]


def text_of_arguments(arguments: str) -> str:
    """Return the text of a custom tool: the argument, the only text of other arguments, or else the arguments."""
    value = _json_of(arguments)
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return arguments
    texts = [text for text in value.values() if isinstance(text, str)]
    if isinstance(value.get(INPUT), str):
        return str(value[INPUT])
    return texts[0] if len(texts) == 1 else arguments if value else ""


def is_valid_argument(arguments: str) -> bool:
    """Return whether arguments are JSON, so that no text of a custom tool is guessed."""
    return _json_of(arguments) is not None


def _json_of(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None
