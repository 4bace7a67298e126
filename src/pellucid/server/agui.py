"""`POST /ag-ui`: runs for AG-UI clients, in any dialect of AG-UI; and stored runs that outlive their request.

A client sends the whole conversation with each request, so by default nothing is stored, and a run ends with its
request. With `store: true` it runs in the background: `GET /ag-ui?threadId=…&runId=…` streams it from its beginning, on
any replica, while it runs and afterwards. `POST /ag-ui/cancel` and `DELETE /ag-ui` with the same query cancel it and
delete it.

The threads of some agents are held by the server (`agui_threads`). Without `runId`, the query is about the newest run
of such a thread, and DELETE deletes the whole thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Literal, get_args

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ..asgi.agui import (
    SYSTEM_MESSAGES_WARNING,
    ApprovalStage,
    approvals_of,
    check_sealed_approval,
    serve_events,
)
from ..conversation import join_messages
from ..errors import PellucidError, RequestError
from ..parts import ModelMessage, SystemPromptPart, ToolCallPart, UserPromptPart, messages_to_json
from ..protocols import agui
from ..protocols.agui import DialectName, Message, parse_input
from ..protocols.agui.client_messages import redact_messages
from ..protocols.agui.dialects import Dialect
from ..protocols.agui.events import AGUIEvent
from ..protocols.agui.history import add_context, history_of, is_carrier_of
from ..protocols.agui.interrupts import check_resume, missing_answer
from ..protocols.agui.messages import DeveloperMessage, RunAgentInput, SystemMessage, ToolMessage
from ..protocols.agui.proto import MEDIA_TYPE
from ..protocols.agui.request import DIALECT_HEADER, Options, Request
from ..protocols.agui.run_header import RunHeader
from ..protocols.client_protocols import CLIENT_PROTOCOLS
from ..protocols.decoding import invalid
from ..runs import RunSource
from ..runs.detached_runs import BeginRow
from ..settings import ModelCall
from ..storage import ChatBusy, StoredResponse
from ..storage.names import check_names
from ..tools import DeferredToolResults
from ..unicode import truncate
from ..view import View, Viewer
from .access.errors import forbidden
from .agent_model import AgentModel
from .agui_threads import (
    ThreadPosition,
    busy,
    chat_id,
    find_newest_run,
    find_position,
    find_requested_approvals,
    row_id,
)
from .exchange import Exchange, new_minter
from .prepare import PreparedRequest, prepare
from .routing import STRING, Handlers, Operation, Schema, Table, event_stream, parameter
from .stored_runs import find_row, make_row, max_view_of


class Status(msgspec.Struct, rename="camel"):
    """The status of a stored run that was to be cancelled."""

    thread_id: str
    run_id: str
    status: str


class Deleted(msgspec.Struct, rename="camel"):
    """A stored run, or a thread, that was deleted."""

    thread_id: str
    run_id: str | UnsetType = UNSET
    """Not set if the whole thread was deleted."""
    deleted: Literal[True] = True


_header_decoder = msgspec.json.Decoder(RunHeader)


class AGUIHandlers(Handlers):
    """Handlers of the AG-UI routes."""

    async def run(self, exchange: Exchange) -> None:
        services, principal = self._services, exchange.principal
        request = await exchange.compute(
            parse_input, await exchange.read_json(services.config.server), dict(exchange.query)
        )
        options, thread_id = request.options, request.thread_id
        mint = new_minter()
        exchange.scope.setdefault("state", {})["run_input"] = request.input  # for the dependencies of an agent
        prepared = await prepare(services, exchange, request, options.model, mint)
        if options.view is not None:
            exchange.viewer = exchange.viewer.for_request(options.view)
        if isinstance(prepared.model, AgentModel):
            prepared.client = prepared.client._replace(state=request.input.state)
            if not prepared.model.accepts_instructions and (count := request.system_message_count):
                prepared.warnings.append(SYSTEM_MESSAGES_WARNING.format(count))
            if prepared.model.holds_threads:
                await self._run_in_thread(exchange, prepared, request, prepared.model)
                return
            if request.resume:
                raise RequestError(
                    "resume: interrupts of this agent are not supported here, as the server does not hold its threads",
                    kind="unsupported",
                    code="interrupt_not_supported",
                    param="resume",
                )
        is_stored = principal.policy.may_store(bool(options.store))
        opened = await exchange.compute(_open_messages, prepared, request)
        dialect, header = self._make_header(exchange, prepared, request, is_stored=is_stored)
        with_seals = dialect.has_seals and header.reasoning and exchange.viewer.rule.seals
        call = await exchange.compute(prepared.model_call, opened)
        run = await prepared.create_run(call, with_seals=with_seals, thread_id=thread_id)
        prepared.add_warning_headers()
        if is_stored:
            row = make_row(
                services,
                exchange.principal,
                header,
                created_at=time.time(),
                id=row_id(thread_id, request.run_id),
                model=header.model,
                background=True,
                messages=messages_to_json(opened),
            )
            exchange.telemetry.response_id = row.id
            await self._start(exchange, request, row, run)
            run = services.detached.follow(row)
        await self._serve(exchange, run, header)

    async def _run_in_thread(
        self, exchange: Exchange, prepared: PreparedRequest, request: Request, agent: AgentModel
    ) -> None:
        """Run an agent in a thread that the server holds."""
        services, principal = self._services, exchange.principal
        if not principal.policy.store:
            raise forbidden(
                "the threads of this agent are stored, and your key does not allow that", "store_not_allowed"
            )
        if request.options.store is False:
            raise RequestError(
                "store: the threads of this agent are stored; leave it out", kind="unsupported", param="store"
            )
        check_names(**{f"messages[{index}].id": one.id for index, one in enumerate(request.input.messages)})
        # The id of a call is one of the model: it may come again on another branch, or in another thread.
        sealer = services.sealer.for_tenant(f"{principal.owner}:{prepared.model_name}", request.thread_id)
        position = await find_position(services, principal, request)
        approvals = await find_requested_approvals(services, prepared.model_name, position)
        messages, call = await exchange.compute(
            _thread_call, prepared, request, agent, position, approvals, partial(check_sealed_approval, sealer)
        )
        prepared.client = prepared.client._replace(results=DeferredToolResults(approvals=approvals_of(request.resume)))
        if position.left_out:
            prepared.warnings.append(f"{position.left_out} message(s) that this thread does not have were left out")
        _, header = self._make_header(exchange, prepared, request, is_stored=True)
        # A snapshot would have the messages before the run as the client sent them.
        header = replace(header, snapshot=False, history=[])
        run = await prepared.create_run(call, with_seals=False, stages=[ApprovalStage(sealer.seal_call)])
        prepared.add_warning_headers()
        row = make_row(
            services,
            principal,
            header,
            created_at=time.time(),
            id=row_id(request.thread_id, request.run_id),
            model=header.model,
            previous_id=None if position.previous is None else position.previous.id,
            conversation_id=position.chat.id,
            background=True,
            input=msgspec.json.encode([message for _, message in position.new_messages]),
            messages=messages_to_json(messages),
        )
        exchange.telemetry.response_id = row.id

        async def begin(row: StoredResponse, fence: int) -> None:
            try:
                await services.store.chats.begin_turn(position.chat, row, fence, follows=None)
            except PellucidError as error:
                # Of two first runs of a thread at once, the second finds that the thread exists.
                if (
                    error.info.code == "already_exists"
                    and await services.store.responses.get(row.owner, row.id) is None
                ):
                    raise busy(request.thread_id) from None
                raise

        await self._start(exchange, request, row, run, begin)
        await self._serve(exchange, services.detached.follow(row), header)

    def _make_header(
        self, exchange: Exchange, prepared: PreparedRequest, request: Request, *, is_stored: bool
    ) -> tuple[Dialect, RunHeader]:
        """Return the dialect of the client, and the header of its run. Raises `RequestError`."""
        services = self._services
        dialect = request.dialect(exchange.request_header(DIALECT_HEADER), services.config.server.agui_dialect)
        header = request.run_header(
            dialect,
            view=exchange.viewer.view,
            max_view=services.catalog.max_view(prepared.model_name),
            model=prepared.model_name,
            stored=is_stored,
        )
        return dialect, header

    async def _start(
        self, exchange: Exchange, request: Request, row: StoredResponse, run: RunSource, begin: BeginRow | None = None
    ) -> None:
        """Start a run in the background (see `Services.start_detached`)."""
        try:
            await self._services.start_detached(exchange.principal, row, run, begin, is_client_id=True)
        except ChatBusy:
            raise busy(request.thread_id) from None
        except PellucidError as error:
            if error.info.code != "already_exists":
                raise
            raise RequestError(
                f"runId: this thread has, or had, a run {truncate(request.run_id)!r} already; give each run an id of "
                "its own",
                kind="conflict",
                code="already_exists",
                param="runId",
            ) from None

    async def replay(self, exchange: Exchange) -> None:
        """Stream a stored run from its beginning."""
        row = await self._find_row(exchange)
        header = _header_decoder.decode(row.header)
        exchange.viewer = exchange.viewer_for(max_view_of(self._services, row), header.view, with_summaries=True)
        await self._serve(exchange, self._services.replay(row), header)

    async def cancel(self, exchange: Exchange) -> None:
        await self._services.cancel(await self._find_row(exchange))
        row = await self._find_row(exchange)
        header = _header_decoder.decode(row.header)
        await exchange.send_json(Status(header.thread_id, header.run_id, row.status))

    async def delete(self, exchange: Exchange) -> None:
        if exchange.query_param("runId") is None and (thread_id := exchange.query_param("threadId")) is not None:
            turns = await self._services.store.chats.delete(exchange.principal.owner, chat_id(thread_id))
            if turns is None:
                raise _thread_not_found(thread_id)
            await self._services.stop_deleted(turns)
            await exchange.send_json(Deleted(thread_id))
            return
        row = await self._find_row(exchange)
        if row.conversation_id is not None:
            raise RequestError(
                "runId: the server holds this thread, and other runs continue its runs; leave runId out to delete all",
                kind="unsupported",
                code="unsupported_parameter",
                param="runId",
            )
        await self._services.cancel(row)
        await self._services.store.responses.delete(row.owner, row.id)
        await self._services.detached.drop_log(row)
        header = _header_decoder.decode(row.header)
        await exchange.send_json(Deleted(header.thread_id, header.run_id))

    # --- helpers -----------------------------------------------------------------------------------------------

    async def _serve(self, exchange: Exchange, run: RunSource, header: RunHeader) -> None:
        viewer = exchange.viewer
        history = _visible_history(viewer, header.history)
        model = header.model if viewer.counts else None
        await serve_events(exchange, run, header, history, reasoning=viewer.rule.items, model=model)

    async def _find_row(self, exchange: Exchange) -> StoredResponse:
        """Return the row of the run that the query names. Raises `RequestError`."""
        thread_id, run_id = exchange.query_param("threadId"), exchange.query_param("runId")
        if thread_id is None:
            raise invalid("threadId", "required; name the run with ?threadId=…&runId=…", "missing")
        owner = exchange.principal.owner
        if run_id is None:
            not_found = _thread_not_found(thread_id)
            newest_id = await find_newest_run(self._services, owner, thread_id)
            if newest_id is None:
                raise not_found
            return await find_row(self._services, owner, newest_id, agui.PROTOCOL, not_found, log=True)
        not_found = RequestError(
            f"there is no run {truncate(run_id)!r} of a thread {truncate(thread_id)!r} here; it may have expired, been "
            "deleted or not been stored",
            kind="not_found",
            code="run_not_found",
            param="runId",
        )
        id = row_id(thread_id, run_id)
        return await find_row(self._services, owner, id, agui.PROTOCOL, not_found, log=True)


def _open_messages(prepared: PreparedRequest, request: Request) -> list[ModelMessage]:
    """Return the messages of a request with their seals opened. Raises `SealError` for one that is not valid."""
    model = prepared.model
    messages = request.messages(system_messages=not isinstance(model, AgentModel) or model.accepts_instructions)
    opened = prepared.unseal(
        [*messages, *request.unused_seals(messages)], thread_id=request.thread_id, is_carrier=is_carrier_of
    )
    return opened[: len(messages)]


def _visible_history(viewer: Viewer, messages: list[Message]) -> list[Message]:
    """Return the messages before a run as this viewer may see them. The viewer may be another than their sender."""
    if viewer.rule.is_full:
        return messages
    return redact_messages(messages, forms=viewer.rule.forms, remove_seals=not viewer.rule.seals)


def _thread_call(
    prepared: PreparedRequest,
    request: Request,
    agent: AgentModel,
    position: ThreadPosition,
    approvals: frozenset[str],
    check_seal: Callable[[ToolCallPart, str, str], None],
) -> tuple[list[ModelMessage], ModelCall]:
    """Return the messages that a run adds to its thread, and the call of the agent.

    Raises:
        RequestError: A message or an answer is not valid, or was not requested.
    """

    def check_approval(call: ToolCallPart, token: str, path: str) -> None:
        if call.tool_call_id not in approvals:
            raise invalid(path, f"no approval of the call {truncate(call.tool_call_id)!r} was requested")
        check_seal(call, token, path)

    paths = [path for path, _ in position.new_messages]
    new_messages = [message for _, message in position.new_messages]
    answered: dict[str, str] = {}
    for path, message in position.new_messages:
        if isinstance(message, ToolMessage) and (first := answered.setdefault(message.tool_call_id, path)) != path:
            raise invalid(f"{path}.toolCallId", f"{first} is a result of the same call; send one")
    waiting_calls = {id: call for id, call in position.waiting_calls.items() if id not in answered}
    check_resume(
        request.resume,
        request.client_tools,
        waiting_calls,
        check_approval,
        has_own_interrupts=agent.has_own_interrupts,
    )
    for id in (*answered, *(entry.interrupt_id for entry in request.resume)):
        if id in approvals:
            waiting = f"the call {truncate(id)!r} waits for an approval, and takes no result of the client"
            raise invalid("messages" if id in answered else "resume", f"{waiting}; approve or refuse it with resume")
    if answered and not request.resume and approvals:
        raise missing_answer(position.waiting_calls[min(approvals)])
    results = {id: call for id, call in position.waiting_calls.items() if id not in approvals}
    added = history_of(new_messages, resume=request.resume, waiting_calls=results, paths=paths)
    instructions = [one for one in request.input.messages if isinstance(one, SystemMessage | DeveloperMessage)]
    prompts = history_of(instructions) if agent.accepts_instructions else []
    messages = join_messages(prompts, position.history, added)
    part_type = SystemPromptPart if agent.accepts_instructions else UserPromptPart
    return added, prepared.model_call(add_context(messages, request.input.context or [], part_type))


def _thread_not_found(thread_id: str) -> RequestError:
    return RequestError(
        f"this server holds no thread {truncate(thread_id)!r}, or it has expired or was deleted; name a stored run by "
        "its &runId=…, too",
        kind="not_found",
        code="conversation_not_found",
        param="threadId",
    )


def _options() -> list[Schema]:
    """Return the query parameters: each option as in `forwardedProps`, but without null."""
    return [
        parameter(
            field.encode_name,
            "query",
            f"As `forwardedProps.pellucid.{field.encode_name}`.",
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
[_PATH] = CLIENT_PROTOCOLS[agui.PROTOCOL].paths

TABLE = Table(
    [
        Operation(
            "POST",
            _PATH,
            AGUIHandlers.run,
            "runAgent",
            "Run a model; the response is a stream of AG-UI events",
            response_body=_STREAM,
            parameters=[*_options(), _DIALECT, _VIEW],
            request_body=RunAgentInput,
        ),
        Operation(
            "GET",
            _PATH,
            AGUIHandlers.replay,
            "readRun",
            _REPLAY_SUMMARY,
            response_body=_STREAM,
            parameters=[*_RUN_PARAMETERS, _VIEW],
        ),
        Operation(
            "DELETE",
            _PATH,
            AGUIHandlers.delete,
            "deleteRun",
            "Delete a stored run",
            response_body=Deleted,
            parameters=_RUN_PARAMETERS,
        ),
        Operation(
            "POST",
            f"{_PATH}/cancel",
            AGUIHandlers.cancel,
            "cancelRun",
            "Cancel a stored run that is in progress",
            response_body=Status,
            parameters=_RUN_PARAMETERS,
        ),
    ],
    protocol=agui.PROTOCOL,
    handlers=[AGUIHandlers],
    error_body="AGUIRunErrorEvent",
    component_prefix="AGUI",
    components={"Event": _EVENTS, "Options": Options},
    advertised_routes=[f"POST {_PATH}"],
)
