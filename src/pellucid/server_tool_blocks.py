"""Convert blocks of Anthropic's own tools to parts, and back, for the wire and for the client protocol of its API.

A result refers to its call by id; the type of the result block names the tool. Several of the provider's tools have
one unified name (`bash_code_execution` is code execution); the native name is stored in
`provider_details["anthropic_tool_name"]`. The tool of a remote MCP server is `mcp_server:NAME`, and its arguments hold
the name of the server's tool. Other fields are stored in `provider_details` and are returned as they came.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .parts import BuiltinToolCallPart, BuiltinToolReturnPart

WIRE = "anthropic"
"""The name of the wire whose form these blocks have."""

Block = dict[str, Any]

NATIVE_NAME_KEY = "anthropic_tool_name"

_UNIFIED_NAMES = {
    "bash_code_execution": "code_execution",
    "text_editor_code_execution": "code_execution",
    "tool_search_tool_regex": "tool_search",
    "tool_search_tool_bm25": "tool_search",
}
"""Unified names of tools, where they differ from the native names."""

_RESULT_SUFFIX = "_tool_result"
_MCP_TOOL_NAME = "mcp_server"
_CALL_KEYS = frozenset({"type", "id", "name", "input", "server_name"})
_RESULT_KEYS = frozenset({"type", "tool_use_id", "content", "is_error"})


def is_server_tool_call(kind: str) -> bool:
    return kind in ("server_tool_use", "mcp_tool_use")


def is_server_tool_result(kind: str) -> bool:
    return kind.endswith(_RESULT_SUFFIX)


def extra_fields(block: Block, known: frozenset[str]) -> dict[str, Any]:
    """Return the fields of a block that are not `known` and not null. A direct caller is the default, and left out."""
    return {
        name: value
        for name, value in block.items()
        if name not in known and value is not None and not (name == "caller" and value == {"type": "direct"})
    }


def input_affixes(block: Block) -> tuple[str, str]:
    """Return the JSON text before and after a streamed input. For an MCP server's tool, the input is one argument."""
    if block.get("type") != "mcp_tool_use":
        return "", ""
    head = msgspec.json.encode({"action": "call_tool", "tool_name": str(block.get("name") or "")}).decode()
    return f'{head[:-1]},"tool_args":', "}"


def call_part(block: Block, provider: str) -> BuiltinToolCallPart:
    """Return the call's part, with the input that the block holds."""
    name, details = str(block.get("name") or ""), extra_fields(block, _CALL_KEYS)
    args = block.get("input")
    args = args if isinstance(args, dict) else {}
    if block.get("type") == "mcp_tool_use":
        args = {"action": "call_tool", "tool_name": name, "tool_args": args}
        tool_name = f"{_MCP_TOOL_NAME}:{block.get('server_name') or ''}"
    else:
        tool_name = _UNIFIED_NAMES.get(name, name)
        if tool_name != name:
            details = {NATIVE_NAME_KEY: name, **details}
    return BuiltinToolCallPart(
        tool_name,
        args or None,
        str(block.get("id") or ""),
        provider_name=provider,
        provider_details=details or None,
    )


def return_part(block: Block, called_name: str | None, provider: str) -> BuiltinToolReturnPart:
    """Return the result's part. `called_name` is the tool's unified name, if its call was seen."""
    native_name, details = str(block["type"]).removesuffix(_RESULT_SUFFIX), extra_fields(block, _RESULT_KEYS)
    content = block.get("content")
    if native_name == "mcp":
        tool_name = called_name or _MCP_TOOL_NAME
        content = {name: block[name] for name in ("content", "is_error") if name in block}
    else:
        tool_name = called_name or _UNIFIED_NAMES.get(native_name, native_name)
        if tool_name != native_name:
            details = {NATIVE_NAME_KEY: native_name, **details}
        if "is_error" in block:
            details["is_error"] = block["is_error"]
    return BuiltinToolReturnPart(
        tool_name,
        content,
        str(block.get("tool_use_id") or ""),
        provider_name=provider,
        provider_details=details or None,
    )


def call_block(part: BuiltinToolCallPart) -> Block | None:
    """Return the call's block; None if the call was truncated and its input is not complete."""
    if not part.complete:
        return None
    details = dict(part.provider_details or {})
    native_name = details.pop(NATIVE_NAME_KEY, part.tool_name)
    args = part.args or {}
    if isinstance(args, str):
        try:
            args = msgspec.json.decode(args, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
    if part.tool_name.startswith(f"{_MCP_TOOL_NAME}:"):
        return {
            "type": "mcp_tool_use",
            "id": part.tool_call_id,
            "server_name": part.tool_name.partition(":")[2],
            "name": args.get("tool_name", ""),
            "input": args.get("tool_args", {}),
            **details,
        }
    return {"type": "server_tool_use", "id": part.tool_call_id, "name": native_name, "input": args, **details}


def result_block(part: BuiltinToolReturnPart) -> Block:
    """Return the result's block."""
    details = dict(part.provider_details or {})
    native_name = details.pop(NATIVE_NAME_KEY, part.tool_name)
    if part.tool_name.partition(":")[0] == _MCP_TOOL_NAME:
        result = part.content if isinstance(part.content, dict) else {"content": part.content}
        return {"type": "mcp_tool_result", "tool_use_id": part.tool_call_id, **result, **details}
    return {
        "type": f"{native_name}{_RESULT_SUFFIX}",
        "tool_use_id": part.tool_call_id,
        "content": part.content,
        **details,
    }
