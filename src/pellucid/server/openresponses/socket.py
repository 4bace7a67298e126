"""`GET /v1/responses` as a WebSocket: one response after another over one connection (specification of 2026-04-24).

* A message is `{"type": "response.create", …}` with the body of a request. Every response is streamed, and none is in
  the background: `stream` and `background` may only say so. (The specification forbids both; clients send them.) Events
  are sent as one message each, numbered from 0 for each response, without `[DONE]`.
* Responses are made one at a time. Messages that come meanwhile are queued, up to a limit.
* `generate: false` calls no model: it gives a response without output, which the next request can continue.
* The socket remembers its last response, so that a request can continue it also with `store: false`. If a request that
  continues it fails, the socket forgets it.
* An error is `{"type": "error", "status": …, "error": {…}}`, and the socket stays open.
* A socket whose key is revoked ends at once, with an error, and so does its current response.
* A socket whose time is over (`socket_seconds`), or whose server stops, is closed when the current response is over;
  queued messages are not processed. A client that leaves cancels the current response.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from ...asgi import http
from ...asgi.streaming import FAULT, STOPPING, BodyWriter, EncodedStream, error_for_client, stop_source
from ...conversation import join_messages
from ...errors import ErrorInfo, PellucidError, RequestError
from ...events import Event, RunEndEvent
from ...fold import Fold
from ...protocols import Encoder, openresponses
from ...protocols.client_protocols import CLIENT_PROTOCOLS
from ...protocols.decoding import invalid
from ...protocols.errors import status_of
from ...protocols.openresponses import FORWARDED_HEADERS, PROTOCOL, request_from
from ...runs import Batch, RunSource, clock_ms
from ...runs.replay import FinishedLog
from ...runs.stored_run import not_stored_error, store_run
from ...storage import StoredResponse
from ...telemetry import error_location, log
from ...view import Redactor, redact_error
from ..access.revocation import OpenRequest
from ..exchange import Exchange, new_minter
from ..services import Services
from ..websocket import CLOSE_NORMAL, CLOSE_POLICY_VIOLATION, CLOSE_RESTARTING, EndReason, WebSocket
from .previous_context import CachedResponse, since_compaction
from .resolve import ResolvedRequest, resolve_request

MAX_QUEUED_MESSAGES = 8
"""Maximum number of queued messages; together they may be as large as one message."""

_FIXED_FIELDS = {"stream": True, "background": False}
"""The fields that have only one value on a socket, and that value."""


class _FoldingRedactor:
    """A redactor that also folds the run, so that the socket can remember it."""

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
        exchange = Exchange(scope, receive, send, CLIENT_PROTOCOLS[PROTOCOL].error_format)
        await receive()  # websocket.connect
        guard, telemetry = self._services.guard, exchange.telemetry
        telemetry.route, telemetry.protocol = scope["path"], PROTOCOL
        exchange.response_headers += guard.cors.headers(scope)
        socket = WebSocket(exchange)
        try:
            socket.check_open()
            exchange.principal = telemetry.principal = await guard.admit(scope)
        except Exception as error:
            await socket.refuse(error)
            return
        connection = _ResponsesConnection(self._services, socket)
        guard.open_requests.add(connection.open_request)
        try:
            await socket.accept()
            await connection.run()
        except http.ClientGone:
            pass
        finally:
            guard.open_requests.discard(connection.open_request)


class _ResponsesConnection:
    """One socket, for as long as it is open."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self._socket = socket
        self._exchange = exchange = socket.exchange
        self._telemetry = exchange.telemetry
        self._cached_response: CachedResponse | None = None
        self._queue: list[str | bytes] = []
        self._worker: asyncio.Task[None] | None = None
        """The task that processes queued messages, one after another."""
        self._leaving: asyncio.Task[None] | None = None
        """The task that waits until the client leaves, while the last response is finished."""
        self._stop_reason: ErrorInfo | None = None
        """The error with which a response that is cancelled now ends; None if the client is gone."""
        self.open_request = OpenRequest(exchange.principal, self._interrupt)

    async def run(self) -> None:
        """Serve the socket until either end closes it. A server that must stop now cancels this task."""
        end: EndReason = "gone"
        try:
            end = await self._socket.listen(self._on_message, self._services.config.server.socket_seconds)
            if end != "gone" and self._stop_reason is None:
                end = await self._finish_response(end)
        except asyncio.CancelledError:
            end, self._stop_reason = "stopping", STOPPING
        finally:
            await self._stop()
        if end == "over":
            await self._send_error(self._stop_reason or self._time_limit_error())
        if end != "gone":
            normal_code = CLOSE_NORMAL if self._stop_reason is None else CLOSE_POLICY_VIOLATION
            await self._socket.close(normal_code if end == "over" else CLOSE_RESTARTING)

    def _interrupt(self, error: PellucidError) -> None:
        """End the socket and its current response with an error."""
        self._stop_reason = error.info
        self._socket.stop_listening()
        if self._leaving is not None:
            self._leaving.cancel()

    # --- receiving ---------------------------------------------------------------------------------------------

    async def _on_message(self, data: str | bytes) -> None:
        queue = self._queue
        if queue and (len(queue) >= MAX_QUEUED_MESSAGES or sum(map(len, queue)) + len(data) > self._max_message_bytes):
            await self._send_error(
                ErrorInfo(
                    "too_many_requests",
                    "a response is in progress on this socket, and the queue of messages is full; send the message "
                    "again after the end of the response, or use another socket",
                    code="response_in_progress",
                )
            )
            return
        queue.append(data)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._process_queue())

    async def _finish_response(self, end: EndReason) -> EndReason:
        """Wait for the end of the current response, unless the client leaves."""
        self._queue.clear()
        if self._worker is None or self._worker.done():
            return end
        self._leaving = asyncio.create_task(self._socket.wait_for_disconnect())
        try:
            await asyncio.wait((self._worker, self._leaving), return_when=asyncio.FIRST_COMPLETED)
            return "gone" if self._leaving.done() and self._stop_reason is None else end
        finally:
            self._leaving.cancel()

    async def _stop(self) -> None:
        self._queue.clear()
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    # --- responses ---------------------------------------------------------------------------------------------

    async def _process_queue(self) -> None:
        while self._queue:
            telemetry = self._exchange.telemetry = self._telemetry.begin_turn()
            try:
                await self._respond(self._queue.pop(0))
            finally:
                telemetry.end()

    async def _respond(self, data: str | bytes) -> None:
        exchange, previous_id = self._exchange, None
        try:
            # The credential may have been revoked since the socket was opened.
            exchange.principal = exchange.telemetry.principal = await self._services.guard.admit(exchange.scope)
            self.open_request.principal = exchange.principal
            exchange.viewer = exchange.principal.policy.viewer
            raw = await self._decode_message(data)
            value = raw.get("previous_response_id")
            previous_id = value if isinstance(value, str) else None
            generate = _pop_bool(raw, "generate")
            resolved = await resolve_request(
                self._services,
                exchange,
                await exchange.compute(request_from, raw, exchange.request_headers(FORWARDED_HEADERS)),
                new_minter(),
                self._cached_response,
            )
            end = await self._serve(resolved, generate)
            if end.status == "failed":
                self._drop_cached_response(previous_id)
        except http.ClientGone:
            pass  # `listen` ends, too
        except Exception as error:
            self._drop_cached_response(previous_id)
            info = error_for_client(error, "a fault while serving a socket")
            exchange.telemetry.record_error(status_of(info), info)
            with suppress(http.ClientGone):
                await self._send_error(info)

    async def _decode_message(self, data: str | bytes) -> dict[str, Any]:
        if len(data) > self._max_message_bytes:
            raise RequestError(
                f"the message is larger than {self._max_message_bytes} bytes, the most this server takes",
                kind="too_large",
                code="body_too_large",
            )
        self._services.memory.check()
        limits = self._services.config.server
        raw = await self._exchange.decode_json(data, limits.max_items, limits.max_tools)
        if raw.pop("type", None) != "response.create":
            raise invalid("type", "must be 'response.create'")
        for name, value in _FIXED_FIELDS.items():
            if raw.get(name) not in (value, None):
                raise invalid(
                    name,
                    "over a socket, every response is streamed, and none is made in the background; leave it out",
                    "unsupported_parameter",
                )
        return raw

    @property
    def _max_message_bytes(self) -> int:
        return self._exchange.principal.policy.body_limit(self._services.config.server.max_body_bytes)

    async def _serve(self, resolved: ResolvedRequest, generate: bool) -> RunEndEvent:
        header = resolved.run_header
        row = resolved.make_row(header) if resolved.is_stored else None
        run = await resolved.create_run(row) if generate else await self._run_without_model(row)
        encoder, redactor = header.encoder(resolved.viewer, framing="lines"), Redactor(resolved.viewer)
        await self._open_run(run)
        try:
            self._exchange.telemetry.begin_stream()
            await self._stream(resolved, run, redactor, encoder)
        finally:
            await stop_source(run)
        return run.ended or RunEndEvent("failed", error=FAULT)

    async def _run_without_model(self, row: StoredResponse | None) -> RunSource:
        """Return a run in which no model is called, stored as `row`."""
        end = RunEndEvent("completed")
        time_ms = clock_ms()
        if row is not None:
            error = await store_run(self._services.store, row, [Batch(time_ms, [end])])
            if error is not None:
                end = RunEndEvent("failed", error=not_stored_error(error))
        return FinishedLog([Batch(time_ms, [end])])

    async def _open_run(self, run: RunSource) -> None:
        try:
            await run.open()
        except asyncio.CancelledError:
            if self._stop_reason is None:
                raise
            raise PellucidError(self._stop_reason) from None

    async def _stream(self, resolved: ResolvedRequest, run: RunSource, redactor: Redactor, encoder: Encoder) -> None:
        fold = Fold()
        writer = self._socket.create_writer()
        stream = EncodedStream(run, _FoldingRedactor(fold, redactor), encoder, writer)
        try:
            await stream.deliver()
            self._cache_response(resolved, fold, run.ended)
        except asyncio.CancelledError:
            if self._stop_reason is None:
                raise
            await stream.stop(self._stop_reason)
        except http.ClientGone:
            raise
        except Exception as error:
            log.error("a fault while streaming: %s", error_location(error))
            await stream.stop(FAULT)
        else:
            await self._end_stream(writer, stream.end_data)
        finally:
            writer.close()

    async def _end_stream(self, writer: BodyWriter, last: bytes) -> None:
        """Write the end of the stream exactly once, also while the server stops."""
        ending = asyncio.create_task(writer.end(last))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            if self._stop_reason is None:
                ending.cancel()
                raise
            await ending

    def _cache_response(self, resolved: ResolvedRequest, fold: Fold, end: RunEndEvent | None) -> None:
        if end is not None and end.status in ("completed", "incomplete"):
            messages = join_messages(resolved.previous.messages, resolved.new_messages, fold.messages)
            self._cached_response = CachedResponse(
                resolved.id,
                since_compaction(messages) if resolved.request.is_compaction else messages,
                resolved.request.tool_items,
                is_stored=resolved.is_stored,
            )

    def _drop_cached_response(self, previous_id: str | None) -> None:
        if self._cached_response is not None and self._cached_response.id == previous_id:
            self._cached_response = None

    # --- sending -----------------------------------------------------------------------------------------------

    async def _send_error(self, error: ErrorInfo) -> None:
        error = redact_error(error, self._exchange.viewer)
        body = {"type": "error", "status": status_of(error), "error": openresponses.error_payload(error)}
        await self._socket.send_text(msgspec.json.encode(body).decode())

    def _time_limit_error(self) -> ErrorInfo:
        return ErrorInfo(
            "invalid_request",
            f"this socket has been open for {self._services.config.server.socket_seconds:g} s, the maximum; "
            "open another",
            code="websocket_connection_limit_reached",
        )


def _pop_bool(raw: dict[str, Any], name: str) -> bool:
    """Remove a boolean field, and return its value; true if it is missing."""
    value = raw.pop(name, None)
    if value is not None and not isinstance(value, bool):
        raise invalid(name, "must be true or false")
    return value is not False
