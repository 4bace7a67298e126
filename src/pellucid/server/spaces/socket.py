"""`/spaces/{name}/ws`, and MEW's `/ws?space=NAME`: a participant's socket.

* Who brings their token in the upgrade (`Authorization: Bearer`) is let in or turned away there, with a status. Who
  does not (a browser cannot, MEW's client does not) says it in the first frame, within `JOIN_SECONDS`:
  `{"type": "join", "space": …, "token": …}`. A token never stands in an address.
* What is refused before somebody has a seat is told as `system/error`, and the socket closed: 4400 for a frame that is
  no join, 4401 and 4403 for a token, 4408 for nobody.
* The dialect is that of the subprotocol, of the query or of the join; else what the first envelope shows.
* A space has no end of time, so neither have its sockets. When the server stops they are closed with 1012, and whoever
  comes back goes on from the last `seq` that they have.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress

from ...asgi import http
from ...asgi.streaming import FAULT, is_client_error
from ...envelopes import USUAL, DialectName, Join, closing, dialect_named, encode, is_heartbeat, join_in, load
from ...envelopes.envelope import EnvelopeError
from ...envelopes.said import error as said_error
from ...envelopes.shown import space_view
from ...errors import PellucidError
from ...spaces.runtime.ids import new_id
from ...spaces.runtime.seats import Seat
from ...telemetry import log, place_of
from ..access.credentials import credential
from ..exchange import Exchange
from ..services import Services
from ..websocket import STOPPED, WebSocket
from . import asked
from .door import PROTOCOL, SPACES, Inside, admitted
from .outlets import Farewell, outlet_of
from .replaying import Replaying

JOIN_SECONDS = 10.0
MAX_JOIN = 64 * 1024
"""Bytes of a join."""
MAX_UNKNOWN = 4 * MAX_JOIN
"""Bytes of one message that are read at all of who is not known yet: no memory is filled by strangers."""

_CODES = {
    "unauthorized": closing.NO_TOKEN,
    "forbidden": closing.NOT_LET_IN,
    "server_error": closing.BROKEN,
    "unavailable": closing.LATER,
}
"""By what was wrong; for all else, that it was no join."""


class SpaceSocket:
    """An ASGI application for a WebSocket. `route`: what it is called in metrics."""

    def __init__(self, services: Services, route: str, join_seconds: float = JOIN_SECONDS) -> None:
        self._services = services
        self._route = route
        self._join_seconds = join_seconds

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        exchange = Exchange(scope, receive, send, SPACES)
        await receive()  # websocket.connect
        exchange.watch.route, exchange.watch.protocol = self._route, PROTOCOL
        cors = self._services.guard.cors
        exchange.headers += cors.headers(scope)
        socket = WebSocket(exchange)
        spoken = asked.subprotocol(scope.get("subprotocols", []))
        try:
            socket.check_open()
            cors.check(scope)
            visit = Visit(self._services, socket, spoken[1] if spoken else None)
            await visit.come_in()
        except Exception as error:
            await socket.refuse(error)
            return
        with suppress(http.ClientGone):
            await socket.accept(spoken[0] if spoken else None, None if visit.is_in else MAX_UNKNOWN)
            await visit.run(self._join_seconds)


class Visit:
    """One socket, for as long as it is open. Raises `PellucidError` for what was asked for wrongly."""

    def __init__(self, services: Services, socket: WebSocket, dialect: DialectName | None) -> None:
        self._services = services
        self._socket = socket
        self._exchange = exchange = socket.exchange
        self._outlet = outlet_of(socket)
        self._wanted = asked.wanted(exchange)
        self._replay = asked.replay(exchange)
        self._dialect = dialect or self._wanted.dialect
        self._space = exchange.params.get("name") or exchange.asked("space")
        self._token = credential(exchange.scope)
        self._inside: Inside | None = None
        self._seat: Seat | None = None
        self._replaying: Replaying | None = None

    async def come_in(self) -> None:
        """With the token of the upgrade, where there is one. Raises `PellucidError`."""
        if self._token is not None and self._space is not None:
            self._inside = await admitted(self._services, self._exchange, self._space, self._token)

    @property
    def is_in(self) -> bool:
        """Whether it is known whose socket it is."""
        return self._inside is not None

    async def run(self, join_seconds: float) -> None:
        """Until the socket is closed, by whichever end. Raises `http.ClientGone`."""
        late = asyncio.get_running_loop().call_later(join_seconds, self._too_late)
        try:
            if self._inside is not None:
                await self._told(self._sit(self._inside))
            end = await self._socket.listen(self._heard)
        finally:
            late.cancel()
            await self._leave()
        if end != "gone":
            await self._outlet.aclose()
            await self._socket.close(*(self._outlet.farewell or Farewell(STOPPED, "the server stops")))

    async def _leave(self) -> None:
        if self._replaying is not None:
            await self._replaying.stop()
        if self._seat is not None:
            await self._seat.leave()

    def _too_late(self) -> None:
        if self._seat is None and self._replaying is None:
            self._outlet.close(closing.NOBODY, "nobody joined")

    # --- what comes --------------------------------------------------------------------------------------------

    async def _heard(self, data: str | bytes) -> None:
        if self._outlet.farewell is not None:
            return
        if self._replaying is not None:
            self._replaying.hear(data)
        elif self._seat is None:
            await self._told(self._join(data))
        else:
            await self._said(self._seat, data)

    async def _said(self, seat: Seat, data: str | bytes) -> None:
        # What may be a join is short, and has the word in it. All else is the seat's, which reads it once.
        if len(data) > MAX_JOIN or not ("join" in data if isinstance(data, str) else b"join" in data):
            await seat.hear(data)
            return
        try:
            again = join_in(load(data))
        except EnvelopeError:
            again = None
        if again is None:
            await seat.hear(data)
        else:
            await self._told(self._again(again))

    async def _join(self, data: str | bytes) -> None:
        """The first frame. Raises `PellucidError`."""
        if len(data) > MAX_JOIN:
            raise EnvelopeError(f"a join may be {MAX_JOIN} bytes", kind="too_large", code="too_large")
        frame = load(data)
        if is_heartbeat(frame):
            return
        join = join_in(frame)
        if join is None:
            raise EnvelopeError(
                'the first frame says who comes: {"type": "join", "space": …, "token": …}; or send the token with the '
                "upgrade, as Authorization: Bearer …",
                kind="unauthorized",
                code="join_required",
            )
        self._inside = await admitted(self._services, self._exchange, self._name_in(join), join.token or self._token)
        await self._sit(self._inside, join)

    async def _again(self, join: Join) -> None:
        """Somebody who has a seat says who they are: whoever the door let in, or nobody else. Raises."""
        here = self._inside
        assert here is not None
        if join.token is not None or join.space not in (None, here.space.name):
            there = await admitted(self._services, self._exchange, self._name_in(join), join.token or self._token)
            if (there.space.name, there.participant) != (here.space.name, here.participant):
                raise EnvelopeError(
                    f"this socket is {here.participant!r}'s in {here.space.name!r}; open another one",
                    kind="forbidden",
                    code="already_joined",
                )

    def _name_in(self, join: Join) -> str | None:
        if self._space is not None and join.space is not None and join.space != self._space:
            raise EnvelopeError(
                f"space: the address is that of {self._space!r}, and the frame names {join.space!r}",
                kind="forbidden",
                code="space_mismatch",
                param="space",
            )
        return join.space or self._space

    # --- coming in ---------------------------------------------------------------------------------------------

    async def _sit(self, inside: Inside, join: Join | None = None) -> None:
        view, after, dialect = self._wanted.view, self._wanted.after, self._dialect
        if join is not None:
            view = space_view(join.view) if join.view is not None else view
            after = join.after_seq if join.after_seq is not None else after
            dialect = dialect or (dialect_named(join.dialect, "dialect") if join.dialect is not None else None)
        self._exchange.watch.principal = self._exchange.principal
        self._socket.take()
        if self._replay is not None:
            self._replaying = Replaying(self._services, inside, self._outlet, self._replay, view, dialect or USUAL)
            self._replaying.start()
            return
        self._seat = await inside.space.sit(
            inside.participant,
            self._outlet,
            dialect=dialect,
            view=view,
            after_seq=after,
            history=self._wanted.history,
            address=asked.address(self._exchange),
        )

    async def _told(self, doing: Awaitable[None]) -> None:
        """Whatever is refused of it is told, and ends the socket."""
        try:
            await doing
        except PellucidError as error:
            await self._turn_away(error if is_client_error(error) else PellucidError(FAULT))
        except Exception as error:
            log.error("a fault while somebody came into a space: %s", place_of(error))
            await self._turn_away(PellucidError(FAULT))

    async def _turn_away(self, error: PellucidError) -> None:
        info = error.info
        self._exchange.watch.error = info.kind
        who = self._inside.participant if self._inside is not None else ""
        told = said_error(new_id(), round(time.time() * 1000), who or "you", error)
        await self._socket.say(encode(told, self._dialect or USUAL).decode())
        self._outlet.close(_CODES.get(info.kind, closing.NO_JOIN), (info.code or info.kind)[:120])
