"""`/spaces/{name}/mcp`: a space as an MCP server over streamable HTTP, with a participant's token.

The tools are those of `spaces.agents.space_tools`, and the transport is the MCP package's, without its sessions: those
live in one process, and a request may come to any worker or replica. Here every request has the token, every tool has
its positions as arguments, and a session is only the presence of its participant:

* `initialize` gets an `Mcp-Session-Id`. The first request with it that comes to a process joins the space there. A
  client without one (as of the protocol's version 2026-07-28, which has no sessions) has one session for its token.
* A session leaves the space when the client ends it (DELETE), when it was not used for `IDLE_SECONDS`, when its event
  stream (GET) was closed and it is not used for `LINGER_SECONDS`, and when the gateway stops. After DELETE, its id gets
  404; otherwise its next request joins again.
* The processes announce ends, and the cancellations of calls, over the relay (`_Signal`).
* A call is cancelled when the client cancels it (`notifications/cancelled`), and when it closes the call's stream.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing, contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec

from ...asgi import http
from ...asgi.streaming import PING_SECONDS, STOPPING
from ...envelopes.visibility import SpaceView
from ...errors import ErrorInfo, PellucidError, RequestError
from ...relay import RelayError
from ...spaces.client.errors import SpaceClosed
from ...spaces.client.participant import Participant
from ...telemetry import error_location, log
from ..access.credentials import credential
from ..exchange import Exchange
from ..services import Services
from . import space_query
from .auth import AuthenticatedParticipant
from .local_transport import LocalTransport

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ...spaces.agents.space_tools import SpaceTools

SESSION_HEADER = "mcp-session-id"
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,128}")

MAX_BODY_BYTES = 4 * 1024 * 1024
"""Maximum size of a message, as of the MCP package. An envelope may be smaller (`frame_bytes`)."""
MAX_SESSIONS = 1_000
"""Maximum number of sessions in one process. The space limits those of one participant (`seats`)."""
IDLE_SECONDS = 600.0
"""How long a session lasts that is not used. An agent may work for minutes between two calls."""
LINGER_SECONDS = 30.0
"""How long a session lasts after its event stream was closed: a client that reconnects does it sooner."""
SWEEP_SECONDS = 5.0
CLOSE_SECONDS = 5.0
"""How long a gateway that stops waits until the participants have left."""
MAX_ENDED = 10_000
"""How many ids of ended sessions are remembered."""

Application: TypeAlias = Callable[[http.Scope, http.Receive, http.Send], Awaitable[None]]

_CHANNEL = "mcp-sessions"
_REQUEST_CANCELLED = -32800
_SCOPE_KEY = "mcp_session"


class SessionKey(NamedTuple):
    """What a session belongs to. An id alone opens nothing: the token decides on the space and the participant."""

    space: str
    participant: str
    view: SpaceView
    id: str
    """Empty: the session of a client without one."""


class _Signal(msgspec.Struct, omit_defaults=True):
    """What a process announces to the others."""

    event: Literal["ended", "stream_closed", "cancelled"]
    key: SessionKey
    request_id: str = ""


class _Message(msgspec.Struct):
    """What decides how a JSON-RPC message is treated here."""

    method: str = ""
    params: dict[str, Any] | None = None


class MCPSession:
    """The presence of one client in this process."""

    def __init__(self, key: SessionKey, participant: Participant, tools: SpaceTools) -> None:
        self.key = key
        self.participant = participant
        self.tools = tools
        self.ended = asyncio.Event()
        self._users = 0
        self._last_used = monotonic()
        self._is_lingering = False
        """Whether its event stream was closed, here or in another process."""
        self._calls: dict[str, CancelScope] = {}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the session while a request is served."""
        self._users += 1
        self._is_lingering = False
        try:
            yield
        finally:
            self._users -= 1
            self._last_used = monotonic()

    def stream_closed(self) -> None:
        """Record that the event stream was closed."""
        self._is_lingering = True

    def expires_at(self) -> float | None:
        """Return the time (monotonic) at which it ends; None while it is used."""
        return None if self._users else self._last_used + (LINGER_SECONDS if self._is_lingering else IDLE_SECONDS)

    @contextmanager
    def cancellable(self, request_id: str) -> Iterator[CancelScope]:
        """Cancel the block if the client cancels this request."""
        from anyio import CancelScope

        with CancelScope() as scope:
            self._calls[request_id] = scope
            try:
                yield scope
            finally:
                if self._calls.get(request_id) is scope:
                    del self._calls[request_id]

    def cancel(self, request_id: str) -> bool:
        """Cancel a request. Returns whether it is served here."""
        scope = self._calls.get(request_id)
        if scope is not None:
            scope.cancel()
        return scope is not None

    async def end(self) -> None:
        """Cancel what waits, and leave the space. Idempotent."""
        self.ended.set()
        for scope in list(self._calls.values()):
            scope.cancel()
        await self.participant.aclose()


class MCPSessions:
    """The sessions of this process, and the MCP package's transport. A `services.Stoppable`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions: dict[SessionKey, MCPSession] = {}
        self._opening: dict[SessionKey, asyncio.Task[MCPSession]] = {}
        self._ended: OrderedDict[SessionKey, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        """Tasks of sessions that are ending."""
        self._starting: asyncio.Task[Application] | None = None
        services.stoppables.append(self)

    # --- sessions

    async def open(self, key: SessionKey, token: str, address: str) -> MCPSession:
        """Return the session, after joining the space if necessary.

        Raises:
            PellucidError: If it has ended, or the participant cannot join.
        """
        if key in self._ended:
            raise RequestError("this session was ended; initialize another one", kind="not_found", code="session_ended")
        session = self._sessions.get(key)
        if session is not None and not session.participant.is_closed:
            return session
        opening = self._opening.get(key)
        if opening is None:
            if len(self._sessions) + len(self._opening) >= MAX_SESSIONS:
                message = f"there are {MAX_SESSIONS} MCP sessions here, the maximum"
                raise PellucidError(
                    ErrorInfo("unavailable", message, code="too_many_sessions", retry_after=SWEEP_SECONDS)
                )
            opening = self._opening[key] = asyncio.create_task(self._join(key, token, address))
            opening.add_done_callback(lambda _: self._opening.pop(key, None))
        return await asyncio.shield(opening)

    async def _join(self, key: SessionKey, token: str, address: str) -> MCPSession:
        from ...spaces.agents.space_tools import SpaceTools

        participant = Participant.over(LocalTransport(self._services, key.space, token, address), view=key.view)
        try:
            await participant.__aenter__()
        except SpaceClosed as error:
            raise PellucidError(error.info) from error
        session = self._sessions[key] = MCPSession(key, participant, SpaceTools(participant))
        return session

    def announce(self, event: Literal["ended", "stream_closed", "cancelled"], key: SessionKey, id: str = "") -> None:
        """Do something with a session, in all processes."""
        signal = _Signal(event, key, id)
        self._apply(signal)
        self._spawn(self._publish(signal))

    async def _publish(self, signal: _Signal) -> None:
        with suppress(RelayError):
            await self._services.relay.publish(_CHANNEL, msgspec.json.encode(signal))

    def _apply(self, signal: _Signal) -> None:
        session = self._sessions.get(signal.key)
        if signal.event == "ended" and signal.key.id:
            self._ended[signal.key] = None
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        if session is None:
            return
        if signal.event == "ended":
            self._end(session)
        elif signal.event == "stream_closed":
            session.stream_closed()
        else:
            session.cancel(signal.request_id)

    def _end(self, session: MCPSession) -> None:
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
        ending = self._spawn(session.end())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    # --- life

    async def application(self) -> Application:
        """Return the ASGI application of the MCP package. It starts with the first request.

        Raises:
            RequestError: If the package is not installed.
        """
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    async def _start(self) -> Application:
        try:
            manager = await asyncio.to_thread(_import_mcp)
        except ImportError as error:
            self._starting = None
            raise RequestError(
                "spaces as MCP servers need the package mcp on the gateway: install pellucid[mcp]",
                kind="unsupported",
                code="missing_extra",
            ) from error
        ready = asyncio.Event()
        for work in (_run(manager, ready), self._expire_sessions(), self._listen()):
            self._spawn(work)
        await ready.wait()
        handle_request: Application = manager.handle_request
        return handle_request

    async def _expire_sessions(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.expire(monotonic())

    def expire(self, now: float) -> None:
        """End the sessions whose time is over.

        Args:
            now: The time, by the monotonic clock.
        """
        for session in list(self._sessions.values()):
            at = session.expires_at()
            if session.participant.is_closed or (at is not None and at <= now):
                self._end(session)

    async def _listen(self) -> None:
        """Apply what other processes announce."""
        with closing(self._services.relay.subscribe(_CHANNEL)) as listener:
            while (messages := await listener.read()) is not None:
                for message in messages:
                    with suppress(msgspec.DecodeError):
                        self._apply(msgspec.json.decode(message, type=_Signal))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a fault of MCP sessions: %s", error_location(error))

    def begin_shutdown(self) -> None:
        """End all sessions."""
        for session in list(self._sessions.values()):
            self._end(session)

    async def aclose(self) -> None:
        """End all sessions, and wait until their participants have left."""
        for opening in (*self._opening.values(), *([self._starting] if self._starting is not None else ())):
            opening.cancel()
        self.begin_shutdown()
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_SECONDS)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _import_mcp() -> StreamableHTTPSessionManager:
    """Return the transport of the MCP package. Importing it takes some 100 ms. Raises `ImportError`."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ...spaces.agents.mcp_server import create_server

    server = create_server(lambda ctx: _session_of(ctx).tools)
    server.middleware.append(_make_cancellable)
    return StreamableHTTPSessionManager(server, stateless=True)


async def _run(manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
    async with manager.run():
        ready.set()
        await asyncio.Event().wait()


def _session_of(ctx: Any) -> MCPSession:
    session: MCPSession = ctx.request.scope[_SCOPE_KEY]
    return session


async def _make_cancellable(ctx: Any, call_next: Any) -> Any:
    """Middleware of the MCP server: a call ends when it is cancelled by a request of its own, or with its session."""
    if ctx.request_id is None:
        return await call_next(ctx)
    from mcp import MCPError

    with _session_of(ctx).cancellable(str(ctx.request_id)):
        return await call_next(ctx)
    raise MCPError(_REQUEST_CANCELLED, "the request was cancelled")


class MCPHandlers:
    """Handlers of `/spaces/{name}/mcp`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._sessions = MCPSessions(services)

    async def post(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Serve one JSON-RPC message."""
        application = await self._sessions.application()
        body = await exchange.read_body(self._services.config.server)
        if len(body) > MAX_BODY_BYTES:
            raise RequestError(
                f"the body is larger than {MAX_BODY_BYTES} bytes, the most that an MCP message may be",
                kind="too_large",
                code="body_too_large",
            )
        try:
            message = msgspec.json.decode(body, type=_Message)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            message = _Message()  # the MCP package refuses it
        key = self._key(exchange, authenticated)
        if message.method == "initialize":
            key = key._replace(id=secrets.token_hex(16))
            exchange.response_headers.append((SESSION_HEADER.encode(), key.id.encode()))
        session = await self._open(exchange, key)
        if message.method == "notifications/cancelled" and message.params is not None and key.id:
            request_id = str(message.params.get("requestId"))
            if not session.cancel(request_id):
                self._sessions.announce("cancelled", key, request_id)
        with session.in_use():
            await application(
                {**exchange.scope, _SCOPE_KEY: session}, _replay(body, exchange.receive), _with_headers(exchange)
            )

    async def get(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """Hold the event stream of a session. It has pings only: results and progress are in the responses to calls."""
        if exchange.scope["method"] == "HEAD":
            await exchange.send_no_content()
            return
        await self._sessions.application()
        key = self._key(exchange, authenticated)
        session = await self._open(exchange, key)
        try:
            with session.in_use():
                async with http.Client(exchange) as client:
                    writer = await exchange.stream()
                    try:
                        writer.write(b": the session is open\n\n")
                        while not session.ended.is_set():
                            with suppress(TimeoutError):
                                async with asyncio.timeout(PING_SECONDS):
                                    await session.ended.wait()
                                    break
                            writer.write(b": ping\n\n")
                    finally:
                        if not client.has_left:
                            await writer.end(b"")
                        writer.close()
        finally:
            if not session.ended.is_set():
                self._sessions.announce("stream_closed", key)

    async def delete(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> None:
        """End a session: its participant leaves, unless it has other connections."""
        self._sessions.announce("ended", self._key(exchange, authenticated))
        await exchange.send_no_content()

    async def _open(self, exchange: Exchange, key: SessionKey) -> MCPSession:
        if self._services.is_closing:
            raise PellucidError(STOPPING)
        token = credential(exchange.scope)
        assert token is not None  # it was authenticated
        return await self._sessions.open(key, token, space_query.gateway_url(exchange))

    def _key(self, exchange: Exchange, authenticated: AuthenticatedParticipant) -> SessionKey:
        id = exchange.request_header(SESSION_HEADER) or ""
        if id and not _SESSION_ID.fullmatch(id):
            raise RequestError("Mcp-Session-Id: must be the id that `initialize` returned", code="invalid_session_id")
        view = space_query.view_param(exchange)
        return SessionKey(authenticated.space.name, authenticated.participant, view, id)


def _replay(body: bytes, receive: http.Receive) -> http.Receive:
    """Return a `receive` that returns the body, which was read already, and then what comes."""
    is_sent = False

    async def replay() -> http.Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def _with_headers(exchange: Exchange) -> http.Send:
    """Return a `send` that adds the gateway's headers to the response."""

    async def send(message: http.Message) -> None:
        if message["type"] == "http.response.start":
            exchange.begin_response(message["status"])
            message = {**message, "headers": [*message["headers"], *exchange.response_headers]}
        await exchange.send(message)

    return send
