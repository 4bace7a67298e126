"""`/spaces/{name}/ws`, and MEW's `/ws?space=NAME`: the socket of a participant.

* A client that sends its token in the upgrade (`Authorization: Bearer`) is accepted or refused there, with a status.
  Others (browsers and MEW's client cannot send it) send it in the first frame, within `JOIN_SECONDS`: `{"type": "join",
  "space": …, "token": …}`. A token is never in a URL.
* An error before the session is open is sent as `system/error`, and the socket is closed: 4400 for a frame that is not
  a join, 4401 and 4403 for a token, 4408 if no join is sent.
* The dialect is that of the subprotocol, of the query or of the join; otherwise that of the first envelope.
* Sockets have no time limit. When the server stops they are closed with 1012, and a client that reconnects continues
  after the last `seq` that it has.

With `replay` in its query, a socket only replays the history of a space (`ReplayConnection`). It accepts no messages
and has no session: other participants do not see it, and envelopes that are sent meanwhile are not part of it. The
welcome describes what is replayed, every envelope is flagged `replayed`, and after the last one the socket is closed
(1000).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

from ...asgi import http
from ...asgi.streaming import FAULT, is_client_error
from ...envelopes import (
    DEFAULT_DIALECT,
    DialectName,
    Envelope,
    Join,
    Present,
    close_codes,
    decode_frame,
    encode,
    gateway_messages,
    is_heartbeat,
    parse_dialect,
    parse_join,
)
from ...envelopes.envelope import EnvelopeError
from ...envelopes.visibility import SpaceView, space_view
from ...errors import PellucidError
from ...spaces.history.history import ReplayRange
from ...spaces.runtime.ids import new_id
from ...spaces.runtime.session import Session, encode_frame
from ...telemetry import error_location, log
from ..access.credentials import credential
from ..exchange import Exchange
from ..services import Services
from ..websocket import CLOSE_RESTARTING, WebSocket
from . import space_query
from .auth import ERROR_FORMAT, PROTOCOL_NAME, AuthenticatedParticipant, authenticate
from .history_handlers import history_of
from .outlets import LOW_WATER_BYTES, CloseReason, DirectOutlet, QueuedOutlet, create_outlet

JOIN_SECONDS = 10.0
MAX_JOIN_BYTES = 64 * 1024
"""Maximum size of a join."""
MAX_BYTES_BEFORE_JOIN = 4 * MAX_JOIN_BYTES
"""Maximum size of a message before the client is authenticated, so that unknown clients cannot fill the memory."""

_CLOSE_CODES = {
    "unauthorized": close_codes.UNAUTHORIZED,
    "forbidden": close_codes.FORBIDDEN,
    "server_error": close_codes.INTERNAL_ERROR,
    "unavailable": close_codes.TRY_AGAIN_LATER,
    "too_many_requests": close_codes.POLICY_VIOLATION,
}
"""Close codes by the kind of error; other kinds are closed as `INVALID_JOIN`."""


class SpaceSocket:
    """An ASGI application for a WebSocket. `route`: its name in metrics."""

    def __init__(self, services: Services, route: str, join_seconds: float = JOIN_SECONDS) -> None:
        self._services = services
        self._route = route
        self._join_seconds = join_seconds

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        exchange = Exchange(scope, receive, send, ERROR_FORMAT)
        await receive()  # websocket.connect
        exchange.telemetry.route, exchange.telemetry.protocol = self._route, PROTOCOL_NAME
        cors = self._services.guard.cors
        exchange.response_headers += cors.headers(scope)
        socket = WebSocket(exchange)
        chosen = space_query.choose_subprotocol(scope.get("subprotocols", []))
        try:
            socket.check_open()
            cors.check(scope)
            connection = SpaceConnection(self._services, socket, chosen[1] if chosen else None)
            await connection.authenticate_upgrade()
        except Exception as error:
            await socket.refuse(error)
            return
        with suppress(http.ClientGone):
            await socket.accept(
                chosen[0] if chosen else None, None if connection.is_authenticated else MAX_BYTES_BEFORE_JOIN
            )
            await connection.run(self._join_seconds)


class SpaceConnection:
    """One socket, for as long as it is open. Its constructor raises `PellucidError` for an invalid query."""

    def __init__(self, services: Services, socket: WebSocket, dialect: DialectName | None) -> None:
        self._services = services
        self._socket = socket
        self._exchange = exchange = socket.exchange
        self._outlet = create_outlet(socket)
        self._query = space_query.parse_socket_query(exchange)
        self._replay_range = space_query.replay_param(exchange)
        self._dialect = dialect or self._query.dialect
        self._space_name = exchange.path_params.get("name") or exchange.query_param("space")
        self._token = credential(exchange.scope)
        self._authenticated: AuthenticatedParticipant | None = None
        self._session: Session | None = None
        self._replay_connection: ReplayConnection | None = None

    async def authenticate_upgrade(self) -> None:
        """Authenticate the token of the upgrade, if there is one. Raises `PellucidError`."""
        if self._token is not None and self._space_name is not None:
            self._authenticated = await authenticate(self._services, self._exchange, self._space_name, self._token)

    @property
    def is_authenticated(self) -> bool:
        """Whether the participant is known."""
        return self._authenticated is not None

    async def run(self, join_seconds: float) -> None:
        """Serve the socket until either end closes it. Raises `http.ClientGone`."""
        join_timer = asyncio.get_running_loop().call_later(join_seconds, self._on_join_timeout)
        try:
            if self._authenticated is not None:
                await self._refuse_on_error(self._open_session(self._authenticated))
            end = await self._socket.listen(self._on_message)
        finally:
            join_timer.cancel()
            await self._leave()
        if end != "gone":
            await self._outlet.aclose()
            await self._socket.close(*(self._outlet.close_reason or CloseReason(CLOSE_RESTARTING, "the server stops")))

    async def _leave(self) -> None:
        if self._replay_connection is not None:
            await self._replay_connection.stop()
        if self._session is not None:
            await self._session.leave()

    def _on_join_timeout(self) -> None:
        if self._session is None and self._replay_connection is None:
            self._outlet.close(close_codes.JOIN_TIMEOUT, "no join was sent")

    # --- receiving ---------------------------------------------------------------------------------------------

    async def _on_message(self, data: str | bytes) -> None:
        if self._outlet.close_reason is not None:
            return
        if self._replay_connection is not None:
            self._replay_connection.reject_message()
        elif self._session is None:
            await self._refuse_on_error(self._join(data))
        else:
            await self._on_session_message(self._session, data)

    async def _on_session_message(self, session: Session, data: str | bytes) -> None:
        # A join is short and contains the word. All other messages go to the session, which decodes them once.
        if len(data) > MAX_JOIN_BYTES or not ("join" in data if isinstance(data, str) else b"join" in data):
            await session.receive(data)
            return
        try:
            join = parse_join(decode_frame(data))
        except EnvelopeError:
            join = None
        if join is None:
            await session.receive(data)
        else:
            await self._refuse_on_error(self._check_repeated_join(join))

    async def _join(self, data: str | bytes) -> None:
        """Process the first frame. Raises `PellucidError`."""
        if len(data) > MAX_JOIN_BYTES:
            raise EnvelopeError(f"a join may be {MAX_JOIN_BYTES} bytes", kind="too_large", code="too_large")
        frame = decode_frame(data)
        if is_heartbeat(frame):
            return
        join = parse_join(frame)
        if join is None:
            raise EnvelopeError(
                'the first frame must be a join: {"type": "join", "space": …, "token": …}; or send the token with the '
                "upgrade, as Authorization: Bearer …",
                code="join_required",
            )
        self._authenticated = await authenticate(
            self._services, self._exchange, self._space_name_of(join), join.token or self._token
        )
        await self._open_session(self._authenticated, join)

    async def _check_repeated_join(self, join: Join) -> None:
        """Check that another join on an open session names the same participant. Raises `PellucidError`."""
        current = self._authenticated
        assert current is not None
        if join.token is not None or join.space not in (None, current.space.name):
            claimed = await authenticate(
                self._services, self._exchange, self._space_name_of(join), join.token or self._token
            )
            if (claimed.space.name, claimed.participant) != (current.space.name, current.participant):
                raise EnvelopeError(
                    f"this socket belongs to {current.participant!r} in {current.space.name!r}; open another one",
                    kind="forbidden",
                    code="already_joined",
                )

    def _space_name_of(self, join: Join) -> str | None:
        if self._space_name is not None and join.space is not None and join.space != self._space_name:
            raise EnvelopeError(
                f"space: the address is that of {self._space_name!r}, and the frame names {join.space!r}",
                kind="forbidden",
                code="space_mismatch",
                param="space",
            )
        return join.space or self._space_name

    # --- joining -----------------------------------------------------------------------------------------------

    async def _open_session(self, authenticated: AuthenticatedParticipant, join: Join | None = None) -> None:
        view, after, dialect = self._query.view, self._query.after, self._dialect
        if join is not None:
            view = space_view(join.view) if join.view is not None else view
            after = join.after_seq if join.after_seq is not None else after
            dialect = dialect or (parse_dialect(join.dialect, "dialect") if join.dialect is not None else None)
        self._exchange.telemetry.principal = self._exchange.principal
        self._socket.set_max_message_bytes()
        if self._replay_range is not None:
            self._replay_connection = ReplayConnection(
                self._services, authenticated, self._outlet, self._replay_range, view, dialect or DEFAULT_DIALECT
            )
            return
        self._session = await authenticated.space.join(
            authenticated.participant,
            self._outlet,
            dialect=dialect,
            view=view,
            after_seq=after,
            history=self._query.history,
            address=space_query.gateway_url(self._exchange),
        )

    async def _refuse_on_error(self, operation: Awaitable[None]) -> None:
        """Await the operation. If it fails, send the error and close the socket."""
        try:
            await operation
        except PellucidError as error:
            await self._refuse(error if is_client_error(error) else PellucidError(FAULT))
        except Exception as error:
            log.error("a fault while a participant joined a space: %s", error_location(error))
            await self._refuse(PellucidError(FAULT))

    async def _refuse(self, error: PellucidError) -> None:
        info = error.info
        self._exchange.telemetry.error = info.kind
        participant = self._authenticated.participant if self._authenticated is not None else ""
        envelope = gateway_messages.error(new_id(), round(time.time() * 1000), participant or "you", error)
        await self._socket.send_text(encode(envelope, self._dialect or DEFAULT_DIALECT).decode())
        self._outlet.close(_CLOSE_CODES.get(info.kind, close_codes.INVALID_JOIN), (info.code or info.kind)[:120])


class ReplayConnection:
    """One replay to one socket."""

    def __init__(
        self,
        services: Services,
        authenticated: AuthenticatedParticipant,
        outlet: DirectOutlet | QueuedOutlet,
        replay_range: ReplayRange,
        view: SpaceView,
        dialect: DialectName,
    ) -> None:
        self._authenticated = authenticated
        self._outlet = outlet
        self._range = replay_range
        self._dialect = dialect
        self._history = history_of(services, authenticated, view, None)
        self._unreported_errors = 0
        self._task = asyncio.create_task(self._send_history())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def reject_message(self) -> None:
        """Answer a message with an error.

        A client that sends without reading does not get one each time; the next one says for how many others it stands.
        """
        if self._outlet.buffered_bytes > LOW_WATER_BYTES:
            self._unreported_errors += 1
            return
        refusal = EnvelopeError(
            "this socket replays the history, and accepts no messages; open one without `replay` to send messages",
            kind="forbidden",
            code="read_only",
        )
        more = {"dropped": self._unreported_errors} if self._unreported_errors else {}
        self._unreported_errors = 0
        self._send_error(refusal, **more)

    async def _send_history(self) -> None:
        space, participant = self._authenticated
        try:
            self._send([self._welcome()])
            async for batch in self._history.replay(self._range):
                if not space.is_member(participant):
                    self._outlet.close(close_codes.FORBIDDEN, "you are not in this space any more")
                    return
                self._send(batch)
                await self._outlet.wait_drained()
            self._outlet.close(close_codes.NORMAL_CLOSURE, "the replay is over")
        except PellucidError as failed:
            self._fail(failed)
        except Exception as failed:
            log.error("a fault while replaying a space: %s", error_location(failed))
            self._fail(PellucidError(FAULT))

    def _welcome(self) -> Envelope:
        space, part = self._authenticated.space, self._range
        others = [Present(member.id, member.capabilities) for member in space.members() if member.present]
        parameters: dict[str, Any] = {
            "after_seq": part.after,
            "before_seq": part.before,
            "since": part.since,
            "until": part.until,
            "speed": part.speed,
            "longest_pause": part.longest_pause,
        }
        you = space.presence_of(self._authenticated.participant)
        replay = {name: value for name, value in parameters.items() if value is not None}
        return gateway_messages.welcome(new_id(), space.now_ms(), you, others, head=space.head, replay=replay)

    def _fail(self, failed: PellucidError) -> None:
        self._send_error(failed)
        self._outlet.close(close_codes.INTERNAL_ERROR, (failed.info.code or failed.info.kind)[:120])

    def _send_error(self, error: PellucidError, **more: Any) -> None:
        space, participant = self._authenticated
        self._send([gateway_messages.error(new_id(), space.now_ms(), participant, error, **more)])

    def _send(self, envelopes: list[Envelope]) -> None:
        self._outlet.write([encode_frame(envelope, self._dialect) for envelope in envelopes])
