"""`POST /ag-ui`: runs for AG-UI's clients, in whatever dialect they speak; and runs that outlive their request.

A client sends the whole conversation each time, so nothing has to be kept here: by default a run is its request's, and
ends with it. With `store: true` it runs in the background, and `GET /ag-ui?threadId=…&runId=…` tells it again from its
beginning, on any replica, while it goes on and afterwards; `POST /ag-ui/cancel` and `DELETE /ag-ui` with the same
query end it, and take it away.
"""

from __future__ import annotations

import hashlib
import time
from types import NoneType
from typing import Literal, get_args

import msgspec
from starlette.routing import BaseRoute

from ..asgi.agui import DIALECT_HEADER, fits
from ..asgi.streaming import serve_stream
from ..errors import PellucidError, RequestError
from ..parts import ModelMessage, ModelResponse, messages_to_json
from ..protocols import agui
from ..protocols.agui import DialectName, Encoder, Message, Request, dialect_of, parse_input
from ..protocols.agui.events import AGUIEvent
from ..protocols.agui.messages import RunAgentInput
from ..protocols.agui.proto import MEDIA_TYPE, accepted, delta_frames, encode_frame
from ..protocols.agui.request import Options
from ..protocols.agui.thread import without
from ..runs import RunSource
from ..storage import StoredResponse
from ..view import Reader, Redactor, View, lesser
from .exchange import Door, Exchange, new_minter
from .prepare import Prepared, prepare
from .routing import STRING, Operation, Schema, Table, event_stream, parameter
from .services import Services, protocol_of


class Header(msgspec.Struct, frozen=True):
    """What is kept of how a run was asked for, so that it can be told again."""

    thread_id: str
    run_id: str
    dialect: DialectName
    view: View
    most: View
    """What anybody might see of its model."""
    model: str
    parent_run_id: str | None = None
    reasoning: bool = True
    chunks: bool = False
    snapshot: bool | None = None
    stored: bool = False
    history: list[Message] = []
    """The messages before, where the run ends with all of them."""
    protocol: str = "agui"

    def encoder(self, reader: Reader, *, binary: bool) -> Encoder:
        return Encoder(
            self.thread_id,
            self.run_id,
            self.dialect,
            parent_run_id=self.parent_run_id,
            reasoning=self.reasoning and reader.rule.items,
            chunks=self.chunks,
            model=self.model if reader.counts else None,
            history=_visible_history(reader, self.history),
            ahead=not self.stored,  # what is told again is told in the same bytes
            snapshot=self.snapshot,
            frame=encode_frame if binary else None,
            deltas=delta_frames if binary else None,
        )


class Status(msgspec.Struct, rename="camel"):
    """How a stored run is, when it was to be cancelled."""

    thread_id: str
    run_id: str
    status: str


class Deleted(msgspec.Struct, rename="camel"):
    """A stored run that is no more."""

    thread_id: str
    run_id: str
    deleted: Literal[True] = True


_header = msgspec.json.Decoder(Header)
_json = msgspec.json.Encoder().encode


class AGUI:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        request = parse_input(await exchange.body(services.config.server), dict(exchange.query))
        options, thread = request.options, request.thread_id
        mint = new_minter()
        prepared = await prepare(services, exchange, request, options.model, mint)
        if options.view is not None:
            exchange.reader = exchange.reader.asking(options.view)
        store = principal.policy.may_store(bool(options.store))
        messages = self._opened(prepared, request)
        header = self._asked(exchange, request, prepared, store)
        told = dialect_of(header.dialect).seals != "none"
        seals = told and header.reasoning and exchange.reader.rule.seals
        run = prepared.run(prepared.call(messages), seals=seals, thread=thread)
        prepared.warn()
        if store:
            row = self._row(exchange, header, messages_to_json(messages))
            exchange.watch.response_id = row.id
            try:
                await services.detached.start(row, run, chosen=True)
            except PellucidError as error:
                if error.info.code != "already_exists":
                    raise
                raise RequestError(
                    f"runId: there is, or was, a run {request.run_id!r} of this thread already; give each an id of its "
                    "own",
                    code="already_exists",
                    param="runId",
                ) from None
            run = services.detached.follow(row)
        await self._serve(exchange, run, header)

    async def read(self, exchange: Exchange) -> None:
        """A run that is kept, from its beginning."""
        row = await self._row_of(exchange)
        header = _header.decode(row.header)
        most = lesser(header.most, self._services.catalog.most(header.model))
        exchange.reader = exchange.reads(most, header.view, summaries=True)
        await self._serve(exchange, self._services.reading(row), header)

    async def cancel(self, exchange: Exchange) -> None:
        row = await self._row_of(exchange)
        if not row.finished:
            await self._services.cancel(row)
            row = await self._row_of(exchange)
        header = _header.decode(row.header)
        await exchange.answer(Status(header.thread_id, header.run_id, row.status))

    async def delete(self, exchange: Exchange) -> None:
        row = await self._row_of(exchange)
        if not row.finished:
            await self._services.cancel(row)
        await self._services.store.responses.delete(row.owner, row.id)
        await self._services.detached.forget(row)
        header = _header.decode(row.header)
        await exchange.answer(Deleted(header.thread_id, header.run_id))

    # --- what they share ---------------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange, run: RunSource, header: Header) -> None:
        binary = header.dialect == "1.0" and accepted(exchange.header("accept"))
        encoder, redactor = header.encoder(exchange.reader, binary=binary), Redactor(exchange.reader)
        if binary:
            await serve_stream(exchange, run, redactor, encoder, MEDIA_TYPE)
        else:
            await serve_stream(exchange, run, redactor, encoder)

    def _opened(self, prepared: Prepared, request: Request) -> list[ModelMessage]:
        """The conversation. What is sealed is looked at also where it goes to no model: no wrong value is let pass."""
        said = request.messages()
        loose = [ModelResponse([part]) for part in request.loose(said)]
        return prepared.opened([*said, *loose], thread=request.thread_id, fits=fits)[: len(said)]

    def _asked(self, exchange: Exchange, request: Request, prepared: Prepared, store: bool) -> Header:
        options, usual = request.options, self._services.config.server.agui_dialect
        dialect = request.dialect(exchange.header(DIALECT_HEADER), usual)
        snapshot = dialect.snapshot if options.snapshot is None else options.snapshot
        return Header(
            thread_id=request.thread_id,
            run_id=request.run_id,
            dialect=dialect.name,
            view=exchange.reader.view,
            most=self._services.catalog.most(prepared.name),
            model=prepared.name,
            parent_run_id=request.input.parent_run_id,
            reasoning=options.reasoning != "off",
            chunks=bool(options.chunks),
            snapshot=options.snapshot,
            stored=store,
            history=list(request.input.messages) if snapshot else [],
        )

    def _row(self, exchange: Exchange, header: Header, messages: bytes) -> StoredResponse:
        now = time.time()
        return StoredResponse(
            id=_row_id(header.thread_id, header.run_id),
            owner=exchange.principal.owner,
            created_at=now,
            updated_at=now,
            expires_at=self._services.expiry(exchange.principal),
            status="in_progress",
            model=header.model,
            background=True,
            header=_json(header),
            messages=messages,
        )

    async def _row_of(self, exchange: Exchange) -> StoredResponse:
        """The row of the run that the query names. Raises `RequestError`."""
        thread, run = exchange.asked("threadId"), exchange.asked("runId")
        if thread is None or run is None:
            missing = "threadId" if thread is None else "runId"
            raise RequestError(f"{missing}: which run; ask with ?threadId=…&runId=…", code="missing", param=missing)
        row = await self._services.store.responses.get(exchange.principal.owner, _row_id(thread, run), log=True)
        if row is None or protocol_of(row.header) != "agui":
            raise RequestError(
                f"there is no run {run!r} of a thread {thread!r} here; it may have expired, been deleted or not been "
                "stored",
                kind="not_found",
                code="run_not_found",
                param="runId",
            )
        return row


def _visible_history(reader: Reader, messages: list[Message]) -> list[Message]:
    """What came before a run, as whoever reads the run may see it: that need not be whoever said it."""
    if reader.view == "raw":
        return messages
    return without(messages, forms=reader.rule.forms, sealed=not reader.rule.seals)


def _row_id(thread: str, run: str) -> str:
    """Ids of clients may be anything, and as long as they like."""
    name = "\0".join((str(len(thread)), thread, run)).encode("utf-8", "surrogatepass")
    return f"agui_{hashlib.blake2b(name, digest_size=16).hexdigest()}"


SPOKEN = ["POST /ag-ui"]


def _options() -> list[Schema]:
    """The options that a query may have, each as `forwardedProps` have it, but for null."""
    return [
        parameter(
            *(field.encode_name, "query", f"As `forwardedProps.pellucid.{field.encode_name}`."),
            next(one for one in get_args(field.type) if one is not NoneType),
        )
        for field in msgspec.structs.fields(Options)
    ]


_EVENTS = tuple(one for one in get_args(AGUIEvent) if "THINKING" not in str(one.__struct_config__.tag))
"""Those of 1.0."""
_VIEW = parameter("Pellucid-View", "header", "In what form reasoning is wanted: no more than the key allows.", View)
_DIALECT = parameter("AG-UI-Dialect", "header", "What the client speaks.", DialectName)
_RUN = [{**parameter(f"{one}Id", "query", f"The {one}."), "required": True} for one in ("thread", "run")]
_STREAM = event_stream("AGUIEvent") | {MEDIA_TYPE: {"schema": STRING}}
_READ = "A stored run once more from its beginning, live or over"

TABLE = Table(
    [
        Operation(
            *("POST", "/ag-ui", AGUI.run, "runAgent", "Ask a model in AG-UI; its events are the stream"),
            *(_STREAM, [*_options(), _DIALECT, _VIEW], RunAgentInput),
        ),
        Operation("GET", "/ag-ui", AGUI.read, "readRun", _READ, _STREAM, [*_RUN, _VIEW]),
        Operation("DELETE", "/ag-ui", AGUI.delete, "deleteRun", "Take a stored run away", Deleted, _RUN),
        Operation(
            *("POST", "/ag-ui/cancel", AGUI.cancel, "cancelRun", "Cancel a stored run that is under way"),
            *(Status, _RUN),
        ),
    ],
    error="AGUIRunErrorEvent",
    prefix="AGUI",
    components={"Event": _EVENTS, "Options": Options},
)


def routes(services: Services) -> list[BaseRoute]:
    return TABLE.routes([AGUI(services)], lambda _, one: Door(one, agui, lambda: services.guard))
