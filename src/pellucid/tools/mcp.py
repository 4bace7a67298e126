"""MCP servers: toolsets whose tools a server has.

    agent = Agent("openai:gpt-5", toolsets=[MCPServerStdio("mcp-files", ["/srv"])])
    async with agent:  # keeps the connection between runs
        await agent.run("What is in notes.txt?")

* A server is connected to when it is first needed. The connection is kept, and made again after the other side has
  closed it. A call that was in progress then fails and is not repeated, because it may have been executed. A call that
  the server certainly did not receive is repeated.
* The server validates arguments, not Pellucid. Its error message goes to the model.
* A server that a request names is reached under an egress policy (`policy`). The operator's servers may be anywhere.

The result of an MCP tool becomes a plain JSON value or text, and content parts where it has more than text:

* Structured content is the result, if all other content is only its text.
* Text alone is text. With images, sounds or files, it is a list of content parts, in order.
* Links are returned as JSON: nothing is fetched here.
* A result over the limit is refused as a whole, because half a result looks like a whole one.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NoReturn, Self
from urllib.parse import urlsplit

from ..egress import EgressPolicy
from ..errors import ErrorInfo, ErrorKind, PellucidError, RequestError
from ..parts import Audio, File, Image, Text, UserContent, json_text
from ..settings import ToolDefinition
from ..telemetry import error_location, log
from .context import RunContext
from .execution import MAX_RESULT_BYTES, require_size
from .protocol import AnyTool, ToolFailed
from .toolsets import AbstractToolset, tools_by_name

if TYPE_CHECKING:
    from .mcp_session import MCPSession, Streams


def convert_result(result: Any, max_bytes: int) -> Any:
    """Return the value of a `CallToolResult`. Raises `ToolFailed` if it is an error, or too large."""
    blocks: list[Any] = list(result.content)
    structured = result.structured_content
    texts = [block.text for block in blocks if block.type == "text"]
    value: Any
    if structured is not None and len(texts) == len(blocks) and not result.is_error:
        value = structured
    elif len(texts) == len(blocks):
        value = "\n".join(texts)
    else:
        value = [_content(block) for block in blocks]
    require_size(value, max_bytes)
    if result.is_error:
        raise ToolFailed(value or "The tool failed, and did not say why.")
    return value


def _content(block: Any) -> UserContent:
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return Image(data=block.data, media_type=block.mime_type)
        case "audio":
            return Audio(data=block.data, media_type=block.mime_type)
        case "resource" if getattr(block.resource, "text", None) is not None:
            return Text(block.resource.text)
        case "resource":
            kind = block.resource.mime_type or "application/octet-stream"
            if kind.startswith("image/"):
                return Image(data=block.resource.blob, media_type=kind)
            name = str(block.resource.uri).rpartition("/")[2] or None
            return File(data=block.resource.blob, media_type=kind, filename=name)
        case _:
            return Text(json_text(block.model_dump(mode="json", by_alias=True, exclude_none=True)))


MAX_TOOLS = 2_000
"""Maximum number of tools that a server may list."""
LISTING_SECONDS = 300.0
"""How long a list of tools is valid, unless the server reports a change."""
_BACKOFF_SECONDS = (1.0, 60.0)
"""The first and the maximum time for which an unreachable server is not tried again."""
_INVALID_PARAMS, _INVALID_REQUEST, _CONNECTION_CLOSED, _PARSE_ERROR = -32602, -32600, -32000, -32700
_RESERVED_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})


class MCPServer(AbstractToolset):
    """An MCP server, started here and used over its standard streams, or reached by URL (streamable HTTP).

    Args:
        name: The server's name, for messages and for names of tools.
        command: The command that starts the server.
        args: The arguments of the command.
        env: All environment variables of a started server in addition to PATH, HOME and similar ones.
        cwd: The working directory of a started server.
        stderr: Whether the standard error of a started server is shown; otherwise it is dropped.
        url: The URL of the server.
        headers: Headers of every request.
        policy: What may be reached; anything by default.
        allowed_tools: The only tools that are listed and called; None for all.
        timeout: Seconds for each call; None: as the caller's default.
        connect_timeout: Seconds for the handshake, and for listing tools.
        max_result: Maximum size of a result, in bytes.

    Raises:
        RequestError: The arguments do not describe a server, or the package `mcp` is not installed.
    """

    def __init__(
        self,
        name: str,
        *,
        command: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stderr: bool = False,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        policy: EgressPolicy | None = None,
        allowed_tools: Sequence[str] | None = None,
        timeout: float | None = None,
        connect_timeout: float = 30.0,
        max_result: int = MAX_RESULT_BYTES,
    ) -> None:
        if (command is None) == (url is None):
            raise RequestError(f"the MCP server {name!r} needs a command or a url, and one of them only")
        reserved = [header for header in headers or () if header.lower() in _RESERVED_HEADERS]
        if reserved:
            raise RequestError(f"the MCP server {name!r} cannot be given the header {reserved[0]!r}")
        if url is not None:
            (policy or _ALLOW_ALL).check_url(url)
        self.name = name
        self.timeout = timeout
        self.last_logged_error: PellucidError | None = None
        """Why its tools were left out the last time, as it was logged."""
        self._command, self._args, self._env, self._cwd = command, list(args), dict(env or {}), cwd
        self._stderr = stderr
        self._url, self._headers = url, dict(headers or {})
        self._policy = policy or _ALLOW_ALL
        self._allowed_tools = None if allowed_tools is None else frozenset(allowed_tools)
        self._connect_timeout = connect_timeout
        self._max_result = max_result
        self._session: MCPSession | None = None
        self._opening: asyncio.Task[MCPSession] | None = None
        self._tool_cache: tuple[list[MCPTool], float] | None = None
        """The tools, and the time until which they are valid."""
        self._backoff: tuple[float, asyncio.AbstractEventLoop, PellucidError] | None = None
        """The time before which no connection is tried, the event loop of that clock, and the error."""
        self._backoff_seconds = _BACKOFF_SECONDS[0]
        self._users = 0
        """How often the toolset was entered and not left."""
        _require_mcp_package()

    @property
    def id(self) -> str:
        """The server's name."""
        return self.name

    # --- tools ---------------------------------------------------------------------------------------------------

    async def tools(self) -> list[MCPTool]:
        """Return the tools of the server.

        Raises:
            PellucidError: The server could not be asked (kinds `unavailable`, `timeout`, `model_error`).
            EgressError: The policy refuses the server.
        """
        now = asyncio.get_running_loop().time()
        if self._tool_cache is None or self._tool_cache[1] < now or self._live_session() is None:
            tools = await self._list_tools()
            self._tool_cache = (tools, now + LISTING_SECONDS)
        return list(self._tool_cache[0])

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, AnyTool]:
        """Return the tools of the server by name. Raises what `tools` raises."""
        return tools_by_name(await self.tools())

    async def _list_tools(self) -> list[MCPTool]:
        session = await self._connect()
        self._tool_cache = None
        tools: dict[str, MCPTool] = {}
        cursors: set[str] = set()
        cursor: str | None = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                while True:
                    page = await session.list_tools(cursor)
                    for tool in page.tools:
                        if self._allowed_tools is None or tool.name in self._allowed_tools:
                            tools[tool.name] = MCPTool(self, tool.name, definition_of(tool))
                    cursor = page.next_cursor
                    if cursor is None:
                        break
                    if cursor in cursors or len(tools) > MAX_TOOLS:
                        raise self._error("model_error", f"lists more than {MAX_TOOLS} tools, or its list has no end")
                    cursors.add(cursor)
        except PellucidError:
            raise
        except Exception as error:
            raise self._connection_error(error, "did not list its tools") from error
        missing = sorted(self._allowed_tools - tools.keys()) if self._allowed_tools is not None else []
        if missing:
            log.warning("the MCP server %s has no tool %s", self.name, ", ".join(missing))
        return list(tools.values())

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool.

        Args:
            tool: The server's name of the tool.
            arguments: The arguments.

        Raises:
            ToolFailed: The call failed. The message may be shown to the model.
        """
        if self._allowed_tools is not None and tool not in self._allowed_tools:
            raise ToolFailed(f"The tool {tool!r} is not allowed here.")
        for is_last_attempt in (False, True):
            try:
                session = await self._connect()
            except PellucidError as error:
                raise ToolFailed(f"The tool's server {self.name!r} cannot be reached ({error.info.code}).") from error
            try:
                result = await session.call_tool(tool, arguments)
            except Exception as error:
                if not is_last_attempt and _is_session_terminated(error):
                    # The server was restarted and does not know the session, so it has not looked at the call.
                    session.close()
                    continue
                self._raise_tool_failed(session, error)
            return convert_result(result, self._max_result)
        raise AssertionError("the second attempt returns or raises")

    def _raise_tool_failed(self, session: MCPSession, error: Exception) -> NoReturn:
        code = getattr(error, "code", None)
        if session.is_closed or code == _CONNECTION_CLOSED:
            session.close()
            reason = "broke off before it answered; whether the call was carried out is not known"
        elif code == _INVALID_PARAMS:
            reason = f"rejected the call: {error}"
        elif code == _PARSE_ERROR:
            reason = "sent a response that cannot be read, or that is too large"
        elif isinstance(code, int):
            reason = f"answered with an error (code {code})"
        else:
            log.warning("a call of the MCP server %s failed: %s", self.name, error_location(error))
            reason = f"sent a response that cannot be used ({type(error).__name__})"
        raise ToolFailed(f"The tool's server {self.name!r} {reason}.") from error

    # --- connection ----------------------------------------------------------------------------------------------

    async def _connect(self) -> MCPSession:
        """Return the session, after opening one if there is none. Raises `PellucidError`."""
        if (session := self._live_session()) is not None:
            return session
        loop = asyncio.get_running_loop()
        if self._opening is None or self._opening.done() or self._opening.get_loop() is not loop:
            if self._backoff is not None and loop.time() < self._backoff[0] and self._backoff[1] is loop:
                raise self._backoff[2].with_traceback(None)
            self._opening = asyncio.create_task(self._open_session())
            self._opening.add_done_callback(_retrieve_exception)
        # Shielded, so that a caller that times out leaves the connection to the next: a server may take longer to start
        # than a call may take.
        return await asyncio.shield(self._opening)

    async def _open_session(self) -> MCPSession:
        from .mcp_session import MCPSession

        loop = asyncio.get_running_loop()
        try:
            session = await MCPSession.open(self._streams(), self._connect_timeout, self._clear_tool_cache)
        except Exception as error:
            failure = self._connection_error(error, "cannot be connected to")
            self._backoff = (loop.time() + self._backoff_seconds, loop, failure)
            self._backoff_seconds = min(2 * self._backoff_seconds, _BACKOFF_SECONDS[1])
            raise failure from error
        self._session, self._tool_cache = session, None
        self._backoff, self._backoff_seconds = None, _BACKOFF_SECONDS[0]
        return session

    def _live_session(self) -> MCPSession | None:
        """Return the session, if it is open and belongs to the running event loop."""
        session = self._session
        is_alive = session is not None and not session.is_closed and session.loop is asyncio.get_running_loop()
        return session if is_alive else None

    def _clear_tool_cache(self) -> None:
        self._tool_cache = None

    def _streams(self) -> Streams:
        from .mcp_session import http_streams, stdio_streams

        # A message holds more than the result, and may hold it twice (as text and as structure), escaped.
        max_bytes = 4 * self._max_result + 65_536
        if self._command is not None:
            return stdio_streams(self._command, self._args, self._env, self._cwd, self._stderr, max_bytes)
        assert self._url is not None
        return http_streams(self._url, self._headers, self._policy, self._connect_timeout, max_bytes)

    def _connection_error(self, error: Exception, problem: str) -> PellucidError:
        if self._url is not None:
            from ..egress.httpx_transport import cause_of

            if (egress_error := cause_of(error)) is not None:
                return egress_error
        if isinstance(error, TimeoutError):
            return self._error("timeout", f"{problem} within {self._connect_timeout:g} s")
        return self._error("unavailable", f"{problem} ({_innermost_type(error)})")

    def _error(self, kind: ErrorKind, problem: str) -> PellucidError:
        return PellucidError(ErrorInfo(kind, f"the MCP server {self.name!r} {problem}", code=f"mcp_{kind}"))

    async def aclose(self) -> None:
        """Close the connection, and end a server that was started here. The object may be used again afterwards."""
        opening, self._opening = self._opening, None
        session, self._session = self._session, None
        if opening is not None and not opening.done() and opening.get_loop() is asyncio.get_running_loop():
            opening.cancel()
            await asyncio.wait([opening])
        if session is not None:
            await session.aclose()

    async def __aenter__(self) -> Self:
        self._users += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self._users -= 1
        if self._users == 0:
            await self.aclose()


class MCPServerStdio(MCPServer):
    """An MCP server that is started here, and used over its standard streams.

    Args:
        command: The command that starts it.
        args: The arguments of the command.
        options: The arguments of `MCPServer`; `id` is the server's name, by default the command's.
    """

    def __init__(self, command: str, args: Sequence[str] = (), *, id: str | None = None, **options: Any) -> None:
        super().__init__(id or command.rpartition("/")[2], command=command, args=args, **options)


class MCPServerStreamableHTTP(MCPServer):
    """An MCP server that is reached by URL.

    Args:
        url: The URL.
        options: The arguments of `MCPServer`; `id` is the server's name, by default the URL's host.
    """

    def __init__(self, url: str, *, id: str | None = None, **options: Any) -> None:
        super().__init__(id or urlsplit(url).hostname or url, url=url, **options)


@dataclass(frozen=True)
class MCPTool:
    """A tool of an MCP server."""

    server: MCPServer = field(repr=False)
    remote_name: str
    """The server's name of the tool."""
    definition: ToolDefinition
    max_retries: int | None = None
    sequential: bool = False

    @property
    def name(self) -> str:
        """The name that the model knows."""
        return self.definition.name

    @property
    def timeout(self) -> float | None:
        """Seconds for each call; None: as its caller's default."""
        return self.server.timeout

    def with_name(self, name: str) -> MCPTool:
        """Return the same tool with another name."""
        return replace(self, definition=replace(self.definition, name=name))

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged: the server validates them."""
        return arguments

    async def call(self, context: RunContext[Any], arguments: dict[str, Any]) -> Any:
        """Call the tool on its server. Raises `ToolFailed`."""
        return await self.server.call(self.remote_name, arguments)


def definition_of(tool: Any) -> ToolDefinition:
    """Return the description of an MCP tool for a model."""
    schema = dict(tool.input_schema)
    schema.pop("$schema", None)
    return ToolDefinition(
        tool_name(tool.name),
        {"type": "object", "properties": {}, **schema},
        tool.description or tool.title or None,
    )


def tool_name(name: str) -> str:
    """Return `name` in the form that all models accept: letters, digits, `_` and `-`, at most 64 characters."""
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", name) or "tool"
    if len(clean) <= 64:
        return clean
    return f"{clean[:55]}_{blake2b(name.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _retrieve_exception(opening: asyncio.Task[MCPSession]) -> None:
    """Retrieve the exception of a task: every caller that waited for it may have been cancelled.

    The next caller gets the stored error.
    """
    if not opening.cancelled():
        opening.exception()


def _is_session_terminated(error: Exception) -> bool:
    """Check that the server certainly did not look at the call, because it did not know the session."""
    return getattr(error, "code", None) == _INVALID_REQUEST and str(error) == "Session terminated"


def _innermost_type(error: BaseException) -> str:
    """Return the type's name of the first exception inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__


def _require_mcp_package() -> None:
    try:
        import mcp  # noqa: F401
    except ImportError as error:
        raise RequestError(
            "MCP servers need the package mcp: install pellucid[mcp]", kind="unsupported", code="missing_extra"
        ) from error


_ALLOW_ALL = EgressPolicy(["*"])
