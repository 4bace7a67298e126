"""Official MCP clients in a space: over streamable HTTP and over `pellucid space mcp`, in both eras of the protocol."""

from __future__ import annotations

import contextlib
import http.client
import os
from collections.abc import AsyncIterator
from typing import Any, Literal

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from pellucid.spaces import Participant
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Gateway, Stream
from tests.spaces_server.space_wire_kit import token
from tests.waiting import LIMIT_SECONDS

Era = Literal["legacy", "auto"]
"""Whether the client initializes a session, as until 2025, or sends independent requests, as since 2026."""
Way = Literal["http", "stdio"]


@contextlib.asynccontextmanager
async def _http_streams(url: str, bearer: str, **options: Any) -> AsyncIterator[Any]:
    headers = {"Authorization": f"Bearer {bearer}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(60, read=300), trust_env=False, **options) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


def mcp_client(
    gateway: Gateway, space: str, who: str, *, way: Way = "http", era: Era = "legacy", query: str = "", **options: Any
) -> Client:
    """Return a client that takes part as `who`, in `async with`. `options`: those of httpx's client."""
    if way == "http":
        streams = _http_streams(f"{gateway.url}/spaces/{space}/mcp{query}", token(space, who), **options)
        return Client(streams, mode=era)
    program, *arguments = PELLUCID
    env = {**os.environ, "PELLUCID_SPACE_URL": gateway.url, "PELLUCID_SPACE_TOKEN": token(space, who)}
    parameters = StdioServerParameters(command=program, args=[*arguments, "space", "mcp", space], env=env)
    return Client(stdio_client(parameters), mode=era)


def participant(gateway: Gateway, space: str, who: str) -> Participant:
    """Return a participant without MCP, in `async with`."""
    return Participant(gateway.url, token=token(space, who), space=space)


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Call a tool that succeeds, and return its structured result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    structured: dict[str, Any] = result.structured_content
    return structured


async def failure(client: Client, tool: str, /, **arguments: Any) -> str:
    """Call a tool that fails, and return its message."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    return text_of(result)


def open_stream(gateway: Gateway, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Stream:
    """Send a request, and return its response to be read in steps."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=LIMIT_SECONDS)
    connection.request(method, path, body, headers)
    assert connection.sock is not None
    return Stream(connection.sock, connection.getresponse())


def text_of(result: CallToolResult) -> str:
    [content] = result.content
    assert content.type == "text"
    return str(content.text)
