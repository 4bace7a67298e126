"""`GET /v1/responses` as a WebSocket: one response after another over one connection (specification of 2026-04-24).

* A message is `{"type": "response.create", …}` with the body of a request, without `stream`, `stream_options` and
  `background`. The events come as messages of their own, numbered from 0 for each response, without `[DONE]`.
* One response at a time: what is asked meanwhile is refused, and the response under way goes on.
* The socket remembers its last response, so that `store: false` can go on from it; a request that goes on from it and
  fails makes the socket forget it.
* An error is `{"type": "error", "status": …, "error": {…}}`, and the socket stays open. After an hour it is closed.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from ...conversation import joined
from ...errors import ErrorInfo, PellucidError, RequestError
from ...events import Event, RunEndEvent
from ...fold import Fold
from ...parts import ModelMessage
from ...protocols import openresponses
from ...protocols.openresponses import read_json, request_of
from ...run import Minter
from ...runs import Running
from ...telemetry import log, place_of
from ...view import Redactor, redact_error
from .. import http
from ..exchange import FAULT, STOPPING, Exchange
from ..services import Services
from ..serving import is_told, last_words, let_go
from .asking import Asking, Recent, asking_for

LIFE_SECONDS = 3600.0
_NOT_HERE = ("stream", "stream_options", "background")


class ResponsesSocket:
    """An ASGI application for a WebSocket."""

    def __init__(self, services: Services, life_seconds: float = LIFE_SECONDS) -> None:
        self._services = services
        self._life = life_seconds

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        exchange = Exchange(scope, receive, send, openresponses)
        await receive()  # websocket.connect
        try:
            exchange.principal = await self._services.guard.admit(scope)
        except PellucidError as error:
            await _refuse_upgrade(exchange, error.info)
            return
        exchange.reader = exchange.principal.policy.reader
        await send({"type": "websocket.accept", "headers": exchange.headers})
        await _Conversation(self._services, exchange, self._life).run()


class _Conversation:
    """One socket, for as long as it is open."""

    def __init__(self, services: Services, exchange: Exchange, life: float) -> None:
        self._services = services
        self._exchange = exchange
        self._life = life
        self._recent: Recent | None = None
        self._busy: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            async with asyncio.timeout(self._life):
                while (message := await self._exchange.receive())["type"] != "websocket.disconnect":
                    if message["type"] == "websocket.receive":
                        await self._heard(message)
        except TimeoutError:
            await self._over()
            await self._error(
                ErrorInfo(
                    "invalid_request",
                    f"this socket has been open for {self._life:g} s, the most there is; open another",
                    code="websocket_connection_limit_reached",
                )
            )
            await self._exchange.send({"type": "websocket.close", "code": 1000})
        except asyncio.CancelledError:
            await self._over()
            raise
        finally:
            await self._over()

    async def _heard(self, message: http.Message) -> None:
        if self._busy is not None and not self._busy.done():
            await self._error(
                ErrorInfo(
                    "invalid_request",
                    "a response is under way on this socket; wait for its end, or open another socket",
                    code="response_in_progress",
                )
            )
            return
        data = message.get("text") or message.get("bytes") or ""
        self._busy = asyncio.create_task(self._respond(data))

    async def _over(self) -> None:
        if self._busy is not None:
            self._busy.cancel()
            await asyncio.gather(self._busy, return_exceptions=True)

    async def _respond(self, data: str | bytes) -> None:
        previous: str | None = None
        try:
            raw = self._read(data)
            given = raw.get("previous_response_id")
            previous = given if isinstance(given, str) else None
            request = request_of(raw)
            # Whoever was let in an hour ago need not be now.
            self._exchange.principal = await self._services.guard.admit(self._exchange.scope)
            mint = Minter(secrets.token_bytes(16))
            asking = await asking_for(self._services, self._exchange, request, mint, self._recent)
            await self._services.guard.spend(self._exchange.principal)
            ended = await self._serve(asking)
            if ended is not None and ended.status == "failed":
                self._forget(previous)
        except Exception as error:
            self._forget(previous)
            if not is_told(error):
                log.error("a fault while serving a socket: %s", place_of(error))
            info = error.info if isinstance(error, PellucidError) and is_told(error) else FAULT
            await self._error(info)

    def _read(self, data: str | bytes) -> dict[str, Any]:
        limit = self._exchange.principal.policy.body_bytes(self._services.config.server.max_body_bytes)
        if len(data) > limit:
            raise RequestError(
                f"the message is larger than {limit} bytes, the most this server takes",
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

    async def _serve(self, asking: Asking) -> RunEndEvent | None:
        header = asking.header
        inner: Running = asking.run()
        run = self._services.kept(inner, asking.row(header)) if asking.store else inner
        encoder = header.encoder(asking.reader, framing="lines")
        redact = Redactor(asking.reader).feed
        fold = Fold()
        try:
            await run.open()
            await self._tell(encoder.start(queued=run.waiting))
            while True:
                await run.wait()
                events = run.take()
                if events is None:
                    break
                for event in events:
                    fold.feed(event)
                if run.ended is not None:
                    self._remember(asking, fold, run.ended)
                await self._tell(encoder.feed(redact(events), run.now))
        except asyncio.CancelledError:
            if self._exchange.scope.get("state", {}).get("stopping"):
                await self._tell(await last_words(run, redact, encoder, STOPPING))
            raise
        finally:
            await let_go(run)
        return run.ended

    def _remember(self, asking: Asking, fold: Fold, end: RunEndEvent) -> None:
        if end.status in ("completed", "incomplete"):
            said: Sequence[ModelMessage] = fold.messages
            self._recent = Recent(asking.id, joined(asking.before, asking.new, said))

    def _forget(self, previous: str | None) -> None:
        if self._recent is not None and self._recent.id == previous:
            self._recent = None

    async def _tell(self, lines: bytes) -> None:
        for line in lines.splitlines():
            await self._exchange.send({"type": "websocket.send", "text": line.decode()})

    async def _error(self, error: ErrorInfo) -> None:
        error = redact_error(error, self._exchange.reader)
        body = {"type": "error", "status": openresponses.status_of(error), "error": openresponses.error_payload(error)}
        await self._exchange.send({"type": "websocket.send", "text": msgspec.json.encode(body).decode()})


async def _refuse_upgrade(exchange: Exchange, error: ErrorInfo) -> None:
    """With a status, where the server can say one; else by not taking the socket."""
    if "websocket.http.response" not in exchange.scope.get("extensions", {}):
        await exchange.send({"type": "websocket.close", "code": 1008})
        return
    body = msgspec.json.encode(openresponses.error_body(error))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *exchange.headers]
    status = openresponses.status_of(error)
    await exchange.send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await exchange.send({"type": "websocket.http.response.body", "body": body})


__all__ = ["Event", "ResponsesSocket"]
