"""`POST /v1/responses`."""

from __future__ import annotations

import asyncio
import secrets
import time

import msgspec

from ..errors import ErrorInfo, IllegalEvent, PellucidError, RequestError
from ..events import RunEndEvent
from ..protocols.openresponses import Dialect, Encoder, Request, error_body, parse_request, status_of
from ..run import Minter
from ..runs import AttachedRun
from ..telemetry import log, place_of
from . import http
from .catalog import Catalog
from .config import Config

EVENTS_HEADER = b"openresponses-reasoning-events"

FAULT = ErrorInfo("server_error", "the gateway failed; the operator's log says where")
STOPPING = ErrorInfo("unavailable", "the gateway is stopping; ask again in a moment", code="stopping")


class ResponsesEndpoint:
    """An ASGI application for one path."""

    def __init__(self, config: Config, catalog: Catalog) -> None:
        self._catalog = catalog
        self._limit = config.server.max_body_bytes
        self._body_seconds = config.server.request_seconds
        self._dialect: Dialect = config.server.reasoning_events

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            http.refuse_foreign_page(scope)
            dialect = self._dialect_of(scope)
            request = parse_request(await http.read_body(scope, receive, self._limit, self._body_seconds))
            name, model = self._catalog.find(request.model)
            mint = Minter(secrets.token_bytes(16))
            response = request.response(mint("resp"), name, int(time.time()))
            encoder = Encoder(response, dialect, obfuscate=request.obfuscate)
            run = AttachedRun(model, request.call, mint)
        except RequestError as error:
            unread = error.info.kind in ("slow_request", "too_large")
            await _send_error(send, error.info, [http.CLOSE] if unread else [])
            return
        except http.ClientGone:
            return
        except Exception as error:
            log.error("a fault while reading a request: %s", place_of(error))
            await _send_error(send, FAULT)
            return
        async with http.Client(receive) as client:
            try:
                if await self._begin(request, run, encoder, client, send):
                    await self._stream(run, encoder, client, send)
            finally:
                # Whatever ended it (the client, a shutdown, a fault of ours): the upstream is not left working.
                run.close()
        if run.raised is not None and not isinstance(run.raised, PellucidError):
            log.error("a fault between two turns: %s", place_of(run.raised))
        if client.gone:
            log.debug("a client left; its upstream was closed")

    async def _begin(
        self, request: Request, run: AttachedRun, encoder: Encoder, client: http.Client, send: http.Send
    ) -> bool:
        """Ask the model. Whether there is a stream to send; if not, all was answered here."""
        try:
            await run.open()
            failed = None if request.stream else await _read_whole(run, encoder)
        except asyncio.CancelledError:
            if client.gone:
                raise
            failed = STOPPING
        except Exception as error:
            if isinstance(error, PellucidError) and not isinstance(error, IllegalEvent):
                failed = error.info
            else:
                log.error("a fault while serving a response: %s", place_of(error))
                failed = FAULT
        if failed is not None:
            await _send_error(send, failed)
        elif not request.stream:
            await http.send_json(send, 200, msgspec.json.encode(encoder.response))
        return failed is None and request.stream

    async def _stream(self, run: AttachedRun, encoder: Encoder, client: http.Client, send: http.Send) -> None:
        await http.start_stream(send)
        last = b""
        try:
            await send(http.piece(encoder.start(queued=run.waiting)))
            while True:
                await run.wait()
                events = run.take()
                if events is None:
                    break
                piece = encoder.feed(events, int(time.time()))
                if run.run.ended is not None:
                    last = piece
                elif piece:
                    await send(http.piece(piece))
        except asyncio.CancelledError:
            if client.gone:
                raise
            last = encoder.feed(run.cancel(STOPPING), int(time.time()))
        except Exception as error:
            log.error("a fault while streaming a response: %s", place_of(error))
            last = _last_words(run, encoder)
        # The last events and the end of the body are one write.
        await send(http.piece(last, last=True))

    def _dialect_of(self, scope: http.Scope) -> Dialect:
        for name, value in scope["headers"]:
            if name == EVENTS_HEADER:
                match value.decode("latin-1").strip().lower():
                    case "openresponses":
                        return "openresponses"
                    case "openai":
                        return "openai"
                    case other:
                        raise RequestError(
                            f"the header OpenResponses-Reasoning-Events must be openresponses or openai, not {other!r}",
                            code="invalid_header",
                        )
        return self._dialect


def _last_words(run: AttachedRun, encoder: Encoder) -> bytes:
    """What ends the stream after a fault of ours, closing what is open as far as it can still be closed."""
    now = int(time.time())
    last = b""
    try:
        last = encoder.feed(run.fail(FAULT), now)
    except Exception as again:
        log.error("and the stream could not be closed in form: %s", place_of(again))
    if encoder.response.status not in ("completed", "incomplete", "failed"):
        last += encoder.feed([RunEndEvent("failed", run.run.usage, FAULT)], now)
    return last


async def _read_whole(run: AttachedRun, encoder: Encoder) -> ErrorInfo | None:
    """Read to the end; the error to answer with a status if the run failed and there is nothing worth keeping."""
    encoder.start()
    while (events := await run.read()) is not None:
        encoder.feed(events, int(time.time()))
    ended = run.run.ended
    return ended.error if ended is not None and not encoder.response.output else None


async def _send_error(send: http.Send, error: ErrorInfo, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    await http.send_json(send, status_of(error), error_body(error), [*http.retry_after(error), *(headers or [])])
