"""An MCP server with working and failing tools: `mcp_peer.py stdio`, `mcp_peer.py http PORT [json] [reserved]`.
A `reserved` port is held by the process that starts the server, so that no other program gets it.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

PIXEL = "iVBORw0KGgo="
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
NAMES = [
    "add",
    "boom",
    "cancel",
    "die",
    "env",
    "fail",
    "huge",
    "meet",
    "pid",
    "picture",
    "refuse",
    "shape",
    "slow",
    "two.parts",
]
meeting: list[anyio.Event] = []
"""Calls of `meet` that wait for the others."""


def text(content: str) -> types.TextContent:
    return types.TextContent(type="text", text=content)


async def list_tools(_: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    """List the tools: 300 with fillers, 50 on a page."""
    names = [*NAMES, *(f"tool_{number}" for number in range(300 - len(NAMES)))]
    start = int(params.cursor) if params and params.cursor else 0
    tools = [
        types.Tool(name=name, description=f"It is {name}.", input_schema=ADD if name == "add" else {"type": "object"})
        for name in names[start : start + 50]
    ]
    return types.ListToolsResult(tools=tools, next_cursor=str(start + 50) if start + 50 < len(names) else None)


async def call_tool(_: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    arguments = params.arguments or {}
    print("a line for the standard error: hunter2", file=sys.stderr)  # noqa: T201
    match params.name:
        case "add":
            return types.CallToolResult(content=[text(str(arguments["a"] + arguments["b"]))])
        case "boom":
            raise RuntimeError("hunter2")
        case "refuse":
            raise MCPError(types.INVALID_PARAMS, "the city is missing")
        case "fail":
            return types.CallToolResult(content=[text("there is no such city")], is_error=True)
        case "die":
            os._exit(1)
        case "pid":
            return types.CallToolResult(content=[text(str(os.getpid()))])
        case "env":
            return types.CallToolResult(content=[text(os.environ.get(arguments["name"], "none"))])
        case "huge":
            return types.CallToolResult(content=[text("x" * arguments["n"])])
        case "meet":
            meeting.append(here := anyio.Event())
            if len(meeting) == arguments["count"]:
                for waiting in meeting:
                    waiting.set()
                meeting.clear()
            await here.wait()
            return types.CallToolResult(content=[text("met")])
        case "slow":
            await anyio.sleep(arguments["seconds"])
            return types.CallToolResult(content=[text("at last")])
        case "shape":
            return types.CallToolResult(content=[text('{"n":1}')], structured_content={"n": 1})
        case "picture":
            link = types.ResourceLink(type="resource_link", name="more", uri="file:///more")
            picture = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
            return types.CallToolResult(content=[text("see:"), picture, link])
        case "two.parts":
            return types.CallToolResult(content=[text("one"), text("two")])
    raise MCPError(types.INVALID_PARAMS, f"no tool {params.name}")


server = Server("peer", on_list_tools=list_tools, on_call_tool=call_tool)


async def stdio() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        anyio.run(stdio)
    else:
        import uvicorn
        from mcp.server.transport_security import TransportSecuritySettings

        # It is also reached under invented host names.
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        app = server.streamable_http_app(json_response="json" in sys.argv, transport_security=security)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if "reserved" in sys.argv:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(("127.0.0.1", int(sys.argv[2])))
            uvicorn.Server(uvicorn.Config(app, log_level="error")).run([listener])
