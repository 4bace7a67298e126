"""A small MCP server over its standard streams, without the MCP package: two tools that answer, one that fails."""

from __future__ import annotations

import json
import sys
from typing import Any

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "echo", "description": "Repeat a text.", "inputSchema": _TEXT},
    {"name": "count", "description": "Count letters.", "inputSchema": _TEXT},
    {"name": "fail", "inputSchema": {"type": "object"}},
    {"name": "hidden", "inputSchema": {"type": "object"}},
]


def reply(message: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a message; None to a notification."""
    if "id" not in message:
        return None
    head = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            version = message["params"]["protocolVersion"]
            info = {"name": "small", "version": "1"}
            result: dict[str, Any] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": TOOLS}
        case "tools/call":
            result = called(message["params"]["name"], message["params"].get("arguments") or {})
        case _:
            return {**head, "error": {"code": -32601, "message": "no such method"}}
    return {**head, "result": result}


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    match name:
        case "echo":
            return {"content": [{"type": "text", "text": arguments["text"]}]}
        case "count":
            counted = {"letters": len(arguments["text"])}
            return {"content": [{"type": "text", "text": json.dumps(counted)}], "structuredContent": counted}
        case _:
            return {"content": [{"type": "text", "text": "it cannot"}], "isError": True}


if __name__ == "__main__":
    for line in sys.stdin:
        if (answer := reply(json.loads(line))) is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
