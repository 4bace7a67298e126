"""`GET /v1/responses` as a WebSocket: one response after another over one connection (specification of 2026-04-24).

* A message is `{"type": "response.create", …}` with the body of a request, without `stream`, `stream_options` and
  `background`. The events come as messages of their own, numbered from 0 for each response, without `[DONE]`.
* One response at a time: what is asked meanwhile waits its turn, as far as there is room.
* `generate: false` asks no model: it gives a response without output, from which the next one can go on.
* The socket remembers its last response, so that `store: false` can go on from it; a request that goes on from it and
  fails makes the socket forget it.
* An error is `{"type": "error", "status": …, "error": {…}}`, and the socket stays open.
* A socket whose time is over (`socket_seconds`), or whose server stops, is closed when the response under way is over;
  what still waits for its turn is not begun. A client that leaves takes the response under way along.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ...asgi import http
from ...asgi.streaming import FAULT, STOPPING, BodyWriter, EncodedStream, is_client_error, release
from ...conversation import joined
from ...errors import ErrorInfo, PellucidError, RequestError
from ...events import Event, RunEndEvent
from ...fold import Fold
from ...protocols import Encoder, openresponses
from ...protocols.openresponses import read_json, request_of
from ...runs import Batch, RunSource, clock_ms
from ...runs.replay import FinishedLog
from ...runs.stored_run import not_kept, put
from ...storage import StoredResponse
from ...telemetry import log, place_of
from ...view import Redactor, redact_error
from ..exchange import Exchange, new_minter
from ..services import Services
from ..websocket import OVER, STOPPED, End, WebSocket
from .asking import Asking, asking_for
from .earlier import Recent

MAX_WAITING = 8
"""Messages that may wait for their turn; together they may be as large as one."""

_NOT_HERE = ("stream", "stream_options", "background")


class _FoldingRedactor:
    """A redactor of a run that the socket remembers."""

    wants_deltas = True

    def __init__(self, fold: Fold, redactor: Redactor) -> None:
        self._fold = fold
        self._redactor = redactor

    def feed(self, events: list[Event]) -> list[Event]:
        for event in events:
            self._fold.feed(event)
        return self._redactor.feed(events)


class ResponsesSocket:
    """An ASGI application for a WebSocket."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        exchange = Exchange(scope, receive, send, openresponses)
        await receive()  # websocket.connect
        guard, watch = self._services.guard, exchange.watch
        watch.route, watch.protocol = scope["path"], "openresponses"
        exchange.headers += guard.cors.headers(scope)
        socket = WebSocket(exchange)
        try:
            socket.check_open()
            exchange.principal = watch.principal = await guard.admit(scope)
        except Exception as error:
            await socket.refuse(error)
            return
        try:
            await socket.accept()
            await _Conversation(self._services, socket).run()
        except http.ClientGone:
            pass


class _Conversation:
    """One socket, for as long as it is open."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self._socket = socket
        self._exchange = exchange = socket.exchange
        self._watch = exchange.watch
        self._recent: Recent | None = None
        self._waiting: list[str | bytes] = []
        self._busy: asyncio.Task[None] | None = None
        """What serves the messages, one after another."""
        self._farewell: ErrorInfo | None = None
        """What a response that is cancelled now ends with; None when nobody is there to be told."""

    async def run(self) -> None:
        """Until the socket is closed, by whichever end. A server that cannot wait any longer cancels this."""
        end: End = "gone"
        try:
            end = await self._socket.listen(self._heard, self._services.config.server.socket_seconds)
            if end != "gone":
                end = await self._finish(end)
        except asyncio.CancelledError:
            end, self._farewell = "stopping", STOPPING
        finally:
            await self._stop()
        if end == "over":
            await self._error(self._too_old())
        if end != "gone":
            await self._socket.close(OVER if end == "over" else STOPPED)

    # --- what comes --------------------------------------------------------------------------------------------

    async def _heard(self, data: str | bytes) -> None:
        waiting = self._waiting
        if waiting and (len(waiting) >= MAX_WAITING or sum(map(len, waiting)) + len(data) > self._limit):
            await self._error(
                ErrorInfo(
                    "too_many_requests",
                    "a response is under way on this socket, and no more messages can wait for its end; ask again "
                    "then, or open another socket",
                    code="response_in_progress",
                )
            )
            return
        waiting.append(data)
        if self._busy is None or self._busy.done():
            self._busy = asyncio.create_task(self._work())

    async def _finish(self, end: End) -> End:
        """Let the response under way end, unless its client leaves."""
        self._waiting.clear()
        if self._busy is None or self._busy.done():
            return end
        leaves = asyncio.create_task(self._socket.left())
        try:
            await asyncio.wait((self._busy, leaves), return_when=asyncio.FIRST_COMPLETED)
            return "gone" if leaves.done() else end
        finally:
            leaves.cancel()

    async def _stop(self) -> None:
        self._waiting.clear()
        if self._busy is not None:
            self._busy.cancel()
            await asyncio.gather(self._busy, return_exceptions=True)

    # --- what is answered --------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while self._waiting:
            watch = self._exchange.watch = self._watch.turn()
            try:
                await self._respond(self._waiting.pop(0))
            finally:
                watch.end()

    async def _respond(self, data: str | bytes) -> None:
        exchange, previous = self._exchange, None
        try:
            # Whoever was let in an hour ago need not be now.
            exchange.principal = exchange.watch.principal = await self._services.guard.admit(exchange.scope)
            exchange.reader = exchange.principal.policy.reader
            raw = self._read(data)
            given = raw.get("previous_response_id")
            previous = given if isinstance(given, str) else None
            generate = _flag(raw, "generate")
            asking = await asking_for(self._services, exchange, request_of(raw), new_minter(), self._recent)
            end = await self._serve(asking, generate)
            if end.status == "failed":
                self._forget(previous)
        except http.ClientGone:
            pass  # whoever listens is told, too
        except Exception as error:
            self._forget(previous)
            if not is_client_error(error):
                log.error("a fault while serving a socket: %s", place_of(error))
            info = error.info if isinstance(error, PellucidError) and is_client_error(error) else FAULT
            exchange.watch.refused(openresponses.status_of(info), info)
            await self._error(info)

    def _read(self, data: str | bytes) -> dict[str, Any]:
        if len(data) > self._limit:
            raise RequestError(
                f"the message is larger than {self._limit} bytes, the most this server takes",
                kind="too_large",
                code="body_too_large",
            )
        raw = read_json(data)
        if raw.pop("type", None) != "response.create":
            raise RequestError("type: must be 'response.create'", code="invalid_value", param="type")
        for name in _NOT_HERE:
            if name in raw:
                raise RequestError(
                    f"{name}: it cannot be sent over a socket, where everything is streamed; leave it out",
                    code="unsupported_parameter",
                    param=name,
                )
        return raw

    @property
    def _limit(self) -> int:
        return self._exchange.principal.policy.body_bytes(self._services.config.server.max_body_bytes)

    async def _serve(self, asking: Asking, generate: bool) -> RunEndEvent:
        header = asking.header
        row = asking.row(header) if asking.store else None
        run = asking.run(row) if generate else await self._without_model(row)
        encoder, redactor = header.encoder(asking.reader, framing="lines"), Redactor(asking.reader)
        await self._open(run)
        try:
            self._exchange.watch.streaming()
            await self._stream(asking, run, redactor, encoder)
        finally:
            await release(run)
        return run.ended or RunEndEvent("failed", error=FAULT)

    async def _without_model(self, row: StoredResponse | None) -> RunSource:
        """A run in which no model is called, stored as `row`."""
        end = RunEndEvent("completed")
        time_ms = clock_ms()
        if row is not None:
            error = await put(self._services.store, row, [Batch(time_ms, [end])])
            if error is not None:
                end = RunEndEvent("failed", error=not_kept(error))
        return FinishedLog([Batch(time_ms, [end])])

    async def _open(self, run: RunSource) -> None:
        try:
            await run.open()
        except asyncio.CancelledError:
            if self._farewell is None:
                raise
            raise PellucidError(self._farewell) from None

    async def _stream(self, asking: Asking, run: RunSource, redactor: Redactor, encoder: Encoder) -> None:
        fold = Fold()
        writer = self._socket.writer()
        stream = EncodedStream(run, _FoldingRedactor(fold, redactor), encoder, writer)
        try:
            await stream.deliver()
            self._remember(asking, fold, run.ended)
        except asyncio.CancelledError:
            if self._farewell is None:
                raise
            await stream.stop(self._farewell)
        except http.ClientGone:
            raise
        except Exception as error:
            log.error("a fault while streaming: %s", place_of(error))
            await stream.stop(FAULT)
        else:
            await self._end(writer, stream.last)
        finally:
            writer.close()

    async def _end(self, writer: BodyWriter, last: bytes) -> None:
        """Write the end, once, also while the server stops."""
        ending = asyncio.create_task(writer.end(last))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            if self._farewell is None:
                ending.cancel()
                raise
            await ending

    def _remember(self, asking: Asking, fold: Fold, end: RunEndEvent | None) -> None:
        if end is not None and end.status in ("completed", "incomplete"):
            self._recent = Recent(asking.id, joined(asking.before, asking.new, fold.messages), kept=asking.store)

    def _forget(self, previous: str | None) -> None:
        if self._recent is not None and self._recent.id == previous:
            self._recent = None

    # --- what is said ------------------------------------------------------------------------------------------

    async def _tell(self, lines: bytes) -> None:
        for line in lines.splitlines():
            await self._socket.say(line.decode())

    async def _error(self, error: ErrorInfo) -> None:
        error = redact_error(error, self._exchange.reader)
        body = {"type": "error", "status": openresponses.status_of(error), "error": openresponses.error_payload(error)}
        await self._tell(msgspec.json.encode(body))

    def _too_old(self) -> ErrorInfo:
        return ErrorInfo(
            "invalid_request",
            f"this socket has been open for {self._services.config.server.socket_seconds:g} s, the most there is; "
            "open another",
            code="websocket_connection_limit_reached",
        )


def _flag(raw: dict[str, Any], name: str) -> bool:
    """A field that is true unless it is said to be false."""
    value = raw.pop(name, None)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name}: must be true or false", code="invalid_value", param=name)
    return value is not False
