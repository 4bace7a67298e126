"""`POST /ag-ui`: runs for AG-UI clients, in any dialect of AG-UI; and stored runs that outlive their request.

A client sends the whole conversation with each request, so by default nothing is stored, and a run ends with its
request. With `store: true` it runs in the background: `GET /ag-ui?threadId=…&runId=…` streams it from its beginning, on
any replica, while it runs and afterwards. `POST /ag-ui/cancel` and `DELETE /ag-ui` with the same query cancel it and
delete it.
"""

from __future__ import annotations

import hashlib
import time
from types import NoneType
from typing import Literal, get_args

import msgspec
from starlette.routing import BaseRoute

from ..asgi.agui import DIALECT_HEADER, is_bound_to_carrier
from ..asgi.streaming import serve_stream
from ..errors import PellucidError, RequestError
from ..parts import ModelMessage, ModelResponse, messages_to_json
from ..protocols import agui
from ..protocols.agui import DialectName, Encoder, Message, Request, dialect_of, parse_input
from ..protocols.agui.client_messages import redact_messages
from ..protocols.agui.events import AGUIEvent
from ..protocols.agui.messages import RunAgentInput
from ..protocols.agui.proto import MEDIA_TYPE, accepts_protobuf, delta_frame_encoder, encode_frame
from ..protocols.agui.request import Options
from ..runs import RunSource
from ..storage import StoredResponse
from ..view import Redactor, View, Viewer, stricter
from .exchange import Endpoint, Exchange, new_minter
from .prepare import PreparedRequest, prepare
from .routing import STRING, Operation, Schema, Table, event_stream, parameter
from .services import Services, protocol_of


class AGUIRunHeader(msgspec.Struct, frozen=True):
    """How a run was requested: what is stored of it, so that it can be streamed again."""

    thread_id: str
    run_id: str
    dialect: DialectName
    view: View
    most: View
    """The fullest view that its model allowed to anyone."""
    model: str
    parent_run_id: str | None = None
    reasoning: bool = True
    chunks: bool = False
    snapshot: bool | None = None
    stored: bool = False
    history: list[Message] = []
    """The messages before the run, if the run ends with a snapshot of all messages."""
    protocol: str = "agui"

    def encoder(self, viewer: Viewer, *, binary: bool) -> Encoder:
        """Return the encoder of the run for this viewer."""
        return Encoder(
            self.thread_id,
            self.run_id,
            self.dialect,
            parent_run_id=self.parent_run_id,
            reasoning=self.reasoning and viewer.rule.items,
            chunks=self.chunks,
            model=self.model if viewer.counts else None,
            history=_visible_history(viewer, self.history),
            ahead=not self.stored,  # a stored run is the same to the byte whenever it is read
            snapshot=self.snapshot,
            frame=encode_frame if binary else None,
            deltas=delta_frame_encoder if binary else None,
        )


class Status(msgspec.Struct, rename="camel"):
    """The status of a stored run that was to be cancelled."""

    thread_id: str
    run_id: str
    status: str


class Deleted(msgspec.Struct, rename="camel"):
    """A stored run that was deleted."""

    thread_id: str
    run_id: str
    deleted: Literal[True] = True


_header_decoder = msgspec.json.Decoder(AGUIRunHeader)
_encode_json = msgspec.json.Encoder().encode


class AGUIHandlers:
    """Handlers of the AG-UI routes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        request = parse_input(await exchange.read_body(services.config.server), dict(exchange.query))
        options, thread_id = request.options, request.thread_id
        mint = new_minter()
        prepared = await prepare(services, exchange, request, options.model, mint)
        if options.view is not None:
            exchange.viewer = exchange.viewer.for_request(options.view)
        is_stored = principal.policy.may_store(bool(options.store))
        messages = self._unseal(prepared, request)
        header = self._make_header(exchange, request, prepared, is_stored)
        dialect_has_seals = dialect_of(header.dialect).seal_carrier != "none"
        with_seals = dialect_has_seals and header.reasoning and exchange.viewer.rule.seals
        run = prepared.create_run(prepared.model_call(messages), with_seals=with_seals, thread_id=thread_id)
        prepared.add_warning_headers()
        if is_stored:
            row = self._make_row(exchange, header, messages_to_json(messages))
            exchange.telemetry.response_id = row.id
            try:
                await services.detached.start(row, run, is_client_id=True)
            except PellucidError as error:
                if error.info.code != "already_exists":
                    raise
                raise RequestError(
                    f"runId: this thread has, or had, a run {request.run_id!r} already; give each run an id of its own",
                    code="already_exists",
                    param="runId",
                ) from None
            run = services.detached.follow(row)
        await self._serve(exchange, run, header)

    async def replay(self, exchange: Exchange) -> None:
        """Stream a stored run from its beginning."""
        row = await self._find_row(exchange)
        header = _header_decoder.decode(row.header)
        max_view = stricter(header.most, self._services.catalog.max_view(header.model))
        exchange.viewer = exchange.viewer_for(max_view, header.view, with_summaries=True)
        await self._serve(exchange, self._services.replay(row), header)

    async def cancel(self, exchange: Exchange) -> None:
        row = await self._find_row(exchange)
        if not row.is_finished:
            await self._services.cancel(row)
            row = await self._find_row(exchange)
        header = _header_decoder.decode(row.header)
        await exchange.send_json(Status(header.thread_id, header.run_id, row.status))

    async def delete(self, exchange: Exchange) -> None:
        row = await self._find_row(exchange)
        if not row.is_finished:
            await self._services.cancel(row)
        await self._services.store.responses.delete(row.owner, row.id)
        await self._services.detached.drop_log(row)
        header = _header_decoder.decode(row.header)
        await exchange.send_json(Deleted(header.thread_id, header.run_id))

    # --- helpers -----------------------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange, run: RunSource, header: AGUIRunHeader) -> None:
        binary = header.dialect == "1.0" and accepts_protobuf(exchange.request_header("accept"))
        encoder, redactor = header.encoder(exchange.viewer, binary=binary), Redactor(exchange.viewer)
        if binary:
            await serve_stream(exchange, run, redactor, encoder, MEDIA_TYPE)
        else:
            await serve_stream(exchange, run, redactor, encoder)

    def _unseal(self, prepared: PreparedRequest, request: Request) -> list[ModelMessage]:
        """Return the conversation without sealed parts.

        Sealed parts that are sent to no model are opened, too, so that an invalid token is always an error.
        """
        messages = request.messages()
        loose = [ModelResponse([part]) for part in request.unused_seals(messages)]
        opened = prepared.unseal([*messages, *loose], thread_id=request.thread_id, matches_part=is_bound_to_carrier)
        return opened[: len(messages)]

    def _make_header(
        self, exchange: Exchange, request: Request, prepared: PreparedRequest, is_stored: bool
    ) -> AGUIRunHeader:
        options, default_dialect = request.options, self._services.config.server.agui_dialect
        dialect = request.dialect(exchange.request_header(DIALECT_HEADER), default_dialect)
        with_snapshot = dialect.ends_with_snapshot if options.snapshot is None else options.snapshot
        return AGUIRunHeader(
            thread_id=request.thread_id,
            run_id=request.run_id,
            dialect=dialect.name,
            view=exchange.viewer.view,
            most=self._services.catalog.max_view(prepared.model_name),
            model=prepared.model_name,
            parent_run_id=request.input.parent_run_id,
            reasoning=options.reasoning != "off",
            chunks=bool(options.chunks),
            snapshot=options.snapshot,
            stored=is_stored,
            history=list(request.input.messages) if with_snapshot else [],
        )

    def _make_row(self, exchange: Exchange, header: AGUIRunHeader, messages: bytes) -> StoredResponse:
        now = time.time()
        return StoredResponse(
            id=_row_id(header.thread_id, header.run_id),
            owner=exchange.principal.owner,
            created_at=now,
            updated_at=now,
            expires_at=self._services.expires_at(exchange.principal),
            status="in_progress",
            model=header.model,
            background=True,
            header=_encode_json(header),
            messages=messages,
        )

    async def _find_row(self, exchange: Exchange) -> StoredResponse:
        """Return the row of the run that the query names. Raises `RequestError`."""
        thread_id, run_id = exchange.query_param("threadId"), exchange.query_param("runId")
        if thread_id is None or run_id is None:
            missing = "threadId" if thread_id is None else "runId"
            raise RequestError(
                f"{missing}: required; name the run with ?threadId=…&runId=…", code="missing", param=missing
            )
        row = await self._services.store.responses.get(exchange.principal.owner, _row_id(thread_id, run_id), log=True)
        if row is None or protocol_of(row.header) != "agui":
            raise RequestError(
                f"there is no run {run_id!r} of a thread {thread_id!r} here; it may have expired, been deleted or not "
                "been stored",
                kind="not_found",
                code="run_not_found",
                param="runId",
            )
        return row


def _visible_history(viewer: Viewer, messages: list[Message]) -> list[Message]:
    """Return the messages before a run as this viewer may see them. The viewer may be another than their sender."""
    if viewer.view == "raw":
        return messages
    return redact_messages(messages, forms=viewer.rule.forms, remove_seals=not viewer.rule.seals)


def _row_id(thread_id: str, run_id: str) -> str:
    """Return the id of a run's row. Ids of clients may be any text of any length, so a digest of them is used."""
    key = "\0".join((str(len(thread_id)), thread_id, run_id)).encode("utf-8", "surrogatepass")
    return f"agui_{hashlib.blake2b(key, digest_size=16).hexdigest()}"


ADVERTISED_ROUTES = ["POST /ag-ui"]


def _options() -> list[Schema]:
    """Return the query parameters: each option as in `forwardedProps`, but without null."""
    return [
        parameter(
            *(field.encode_name, "query", f"As `forwardedProps.pellucid.{field.encode_name}`."),
            next(one for one in get_args(field.type) if one is not NoneType),
        )
        for field in msgspec.structs.fields(Options)
    ]


_EVENTS = tuple(one for one in get_args(AGUIEvent) if "THINKING" not in str(one.__struct_config__.tag))
"""The events of AG-UI 1.0."""
_VIEW = parameter("Pellucid-View", "header", "The view of reasoning, at most the one that the key allows.", View)
_DIALECT = parameter("AG-UI-Dialect", "header", "The dialect of the client.", DialectName)
_RUN_PARAMETERS = [{**parameter(f"{one}Id", "query", f"The {one}."), "required": True} for one in ("thread", "run")]
_STREAM = event_stream("AGUIEvent") | {MEDIA_TYPE: {"schema": STRING}}
_REPLAY_SUMMARY = "Stream a stored run from its beginning, live or finished"

TABLE = Table(
    [
        Operation(
            *("POST", "/ag-ui", AGUIHandlers.run, "runAgent", "Run a model; the response is a stream of AG-UI events"),
            *(_STREAM, [*_options(), _DIALECT, _VIEW], RunAgentInput),
        ),
        Operation("GET", "/ag-ui", AGUIHandlers.replay, "readRun", _REPLAY_SUMMARY, _STREAM, [*_RUN_PARAMETERS, _VIEW]),
        Operation(
            "DELETE", "/ag-ui", AGUIHandlers.delete, "deleteRun", "Delete a stored run", Deleted, _RUN_PARAMETERS
        ),
        Operation(
            *("POST", "/ag-ui/cancel", AGUIHandlers.cancel, "cancelRun", "Cancel a stored run that is in progress"),
            *(Status, _RUN_PARAMETERS),
        ),
    ],
    error_body="AGUIRunErrorEvent",
    component_prefix="AGUI",
    components={"Event": _EVENTS, "Options": Options},
)


def routes(services: Services) -> list[BaseRoute]:
    return TABLE.routes([AGUIHandlers(services)], lambda _, one: Endpoint(one, agui, lambda: services.guard))
