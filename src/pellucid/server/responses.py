"""`POST /v1/responses`."""

from __future__ import annotations

import secrets
import time

import msgspec

from ..errors import ErrorInfo, PellucidError, RequestError
from ..events import Event, RunEndEvent
from ..protocols.openresponses import Dialect, Encoder, Request, error_body, parse_request, status_of
from ..run import Minter
from ..runs import AttachedRun
from ..telemetry import log
from . import http
from .catalog import Catalog
from .config import Config

EVENTS_HEADER = b"openresponses-reasoning-events"


class ResponsesEndpoint:
    """An ASGI application for one path."""

    def __init__(self, config: Config, catalog: Catalog) -> None:
        self._catalog = catalog
        self._limit = config.server.max_body_bytes
        self._dialect: Dialect = config.server.reasoning_events

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        try:
            dialect = self._dialect_of(scope)
            request = parse_request(await http.read_body(receive, self._limit))
            name, model = self._catalog.find(request.model)
        except RequestError as error:
            await _send_error(send, error.info)
            return
        except http.ClientGone:
            return
        now = int(time.time())
        mint = Minter(secrets.token_bytes(16))
        encoder = Encoder(request.response(mint("resp"), name, now), dialect, obfuscate=request.obfuscate)
        run = AttachedRun(model, request.call, mint)
        async with http.Disconnect(receive) as client:
            try:
                await self._serve(request, run, encoder, send)
            finally:
                # Whatever ended it (the client, a shutdown, a fault of ours): the upstream is not left working.
                run.cancel()
        if client.gone:
            log.debug("the client left; its upstream was closed")

    async def _serve(self, request: Request, run: AttachedRun, encoder: Encoder, send: http.Send) -> None:
        try:
            await run.open()
        except PellucidError as error:
            await _send_error(send, error.info)
            return
        if request.stream:
            await self._stream(run, encoder, send)
        else:
            await self._whole(run, encoder, send)

    async def _stream(self, run: AttachedRun, encoder: Encoder, send: http.Send) -> None:
        await http.start_stream(send)
        await http.send_piece(send, encoder.start(queued=run.waiting))
        while (events := await run.read()) is not None:
            piece = encoder.feed(events, int(time.time()))
            if piece:
                await http.send_piece(send, piece)
        await http.end_stream(send)

    async def _whole(self, run: AttachedRun, encoder: Encoder, send: http.Send) -> None:
        encoder.start()
        while (events := await run.read()) is not None:
            encoder.feed(events, int(time.time()))
            failed = _failure_without_output(events, encoder)
            if failed is not None:
                await _send_error(send, failed)
                return
        await http.send_json(send, 200, msgspec.json.encode(encoder.response))

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


def _failure_without_output(events: list[Event], encoder: Encoder) -> ErrorInfo | None:
    """The error to answer with an HTTP status: the run failed and there is nothing worth keeping."""
    last = events[-1] if events else None
    if isinstance(last, RunEndEvent) and last.status == "failed" and not encoder.response.output:
        return last.error
    return None


async def _send_error(send: http.Send, error: ErrorInfo) -> None:
    await http.send_json(send, status_of(error), error_body(error), http.retry_after(error))
