"""An ASGI application that serves an agent to AG-UI clients (see `pellucid.agui`).

A client sends the whole conversation with each request and gets one run. Nothing is stored. A client that disconnects
ends its run.

* The client's tools are offered to the agent. A call of one ends the run; its result comes with the next run.
* The client's state is `ctx.deps.state` for the agent's functions. What they pass to `ctx.emit` is sent while they run.
* A call that waits (`ApprovalRequired`, `CallDeferred`) is an interrupt, and `resume` continues from it. An approval is
  bound to the thread, the call, its function and its arguments: a call that no model made here cannot be approved.
* Messages of the roles `system` and `developer` are left out, and `context` is text of the user, unless the application
  trusts its clients with instructions (`system_messages`).
* Sealed tokens of an answer come back with the conversation. Each is bound to its thread and its message; any other
  value is refused.
* An exception in an agent is RUN_ERROR without its text. The log has its location, without its text.

The application has no keys: requests are accepted only for a Host that no page can choose, and from pages of its own or
of listed origins (`host`). Browsers also ask for permission before a page of another origin may post JSON, which this
application does not give: use `starlette.middleware.cors`.

Nothing of the run before is stored, so the calls that wait for an answer (`check_resume`) are those without a result at
the end of the conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any

from ..agent.run_input import RunInput, ServableAgent, keep_connected, unanswered_calls, with_state
from ..data_directory import default_seal_keys
from ..errors import ErrorInfo, RequestError
from ..events import DEFERRED, SideEvent
from ..models.connection_pool import close_shared_pool
from ..parts import Origin, ToolCallPart
from ..protocols import agui
from ..protocols.agui import DialectName, Message, Request, dialect_of, parse_input
from ..protocols.agui.history import history_of, is_carrier_of
from ..protocols.agui.interrupts import approval_of, check_resume, parse_approval_id
from ..protocols.agui.messages import ResumeEntry
from ..protocols.agui.proto import MEDIA_TYPE
from ..protocols.agui.request import DIALECT_HEADER
from ..protocols.agui.run_header import RunHeader
from ..protocols.agui.side_events import SHOWN_FIELDS
from ..protocols.decoding import MAX_ITEMS, MAX_TOOLS
from ..protocols.errors import ErrorFormat
from ..runs.seal_stage import SealStage
from ..runs.source import Batch, RunSource
from ..runs.stages import Stage
from ..sealing import (
    AttachedHistory,
    KeyFile,
    Keys,
    Sealed,
    Sealer,
    SealError,
    TenantSealer,
    attach,
    env_keys,
    make_opener,
)
from ..settings import ModelSettings
from ..tools import DeferredToolResults, ToolApproved, ToolDenied
from ..unicode import truncate
from ..view import Redactor, View, Viewer, parse_view
from . import http
from .exchange import HTTPExchange
from .host import HostRule
from .streaming import serve_stream

SYSTEM_MESSAGES_WARNING = (
    "system messages of the client were left out: {}; agui(agent, system_messages=True) accepts them"
)


def check_sealed_approval(sealer: TenantSealer, call: ToolCallPart, token: str, path: str) -> None:
    """Check the seal of a request for approval. Raises `SealError`."""
    try:
        sealer.check_call(token, call)
    except SealError as error:
        if error.code in ("seal_key_unknown", "seal_key_retired"):
            raise error.at(path) from None
        problem = (
            f"approval of the call {truncate(call.tool_call_id)!r} of {truncate(call.tool_name)!r} with these "
            "arguments was not requested in this thread; send the call and the interrupt's id as they came, and other "
            "arguments as payload.editedArgs"
        )
        raise SealError(error.code, problem).at(path) from None


class ApprovalStage(Stage):
    """Stage that puts a seal on each request for approval."""

    wants_deltas = False

    def __init__(self, seal: Callable[[ToolCallPart], str]) -> None:
        self._seal = seal

    def process(self, batch: Batch) -> Batch:
        events = batch.events
        for index, event in enumerate(events):
            if isinstance(event, SideEvent) and (event.namespace, event.name) == DEFERRED and event.value["approval"]:
                value = event.value
                call = ToolCallPart(value["tool_name"], value["arguments"], value["tool_call_id"])
                events[index] = SideEvent(event.namespace, event.name, value | {"seal": self._seal(call)})
        return batch


async def serve_events(
    exchange: HTTPExchange,
    run: RunSource,
    header: RunHeader,
    history: list[Message],
    *,
    reasoning: bool,
    model: str | None = None,
) -> None:
    """Stream a run. Events are protobuf frames if the client names their type, and prefers no other.

    Args:
        exchange: The exchange, with its viewer.
        run: The run.
        header: The header of the run.
        history: The messages before the run, as the viewer may see them.
        reasoning: Whether reasoning is sent.
        model: The name of the model, if it is sent.
    """
    accept = exchange.request_header("accept")
    quality = http.parse_qualities(accept).get(MEDIA_TYPE, 0.0)
    binary = header.dialect == "1.0" and quality > 0 and quality >= http.media_quality(accept, "text/event-stream")
    encoder = header.encoder(reasoning=reasoning, binary=binary, model=model, history=history)
    redactor = Redactor(exchange.viewer, SHOWN_FIELDS)
    await serve_stream(exchange, run, redactor, encoder, MEDIA_TYPE if binary else http.EVENT_STREAM)


def application_path(path: str) -> str:
    """Return the path of an application, beginning with a slash, and without one at its end."""
    return f"/{path.strip('/')}".rstrip("/")


_TENANT = "agent"
"""The owner of all sealed tokens: all clients of the agent. Each token is also bound to its thread."""


class AGUIApp:
    """The ASGI application. `pellucid.agui` documents the arguments."""

    def __init__(
        self,
        agent: ServableAgent,
        *,
        path: str = "/",
        dialect: DialectName | None = None,
        view: View = "raw",
        seal_keys: Keys | str | Path | None = None,
        deps: Any = None,
        system_messages: bool = False,
        max_body_bytes: int = 20_000_000,
        body_seconds: float = 30.0,
        hosts: Sequence[str] = (),
        origins: Sequence[str] = (),
    ) -> None:
        self._agent = agent
        self._host_rule = HostRule(hosts, origins, "hosts", "origins")
        self._path = application_path(path)
        # Applications may share their keys: what one agent may do, another one may not.
        name = getattr(agent, "name", None)
        self._approval_tenant = f"{_TENANT}:{name}" if name else _TENANT
        self._dialect = None if dialect is None else dialect_of(dialect, "dialect").name
        self._viewer = Viewer(parse_view(view, "view"))
        self._sealer = Sealer(_load_keys(seal_keys))
        self._deps = deps
        self._system_messages = system_messages
        self._body_limits = max_body_bytes, body_seconds

    async def __call__(self, scope: http.Scope, receive: http.Receive, send: http.Send) -> None:
        if scope["type"] == "http":
            await self._handle(HTTPExchange(scope, receive, send, _ERROR_FORMAT))
        elif scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await send({"type": "websocket.close"})

    async def _run_lifespan(self, receive: http.Receive, send: http.Send) -> None:
        """Handle the lifespan events: between them, the agent's connections are kept for all requests.

        An application that gets no such events connects for each request.
        """
        await receive()  # lifespan.startup
        async with keep_connected(self._agent):
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown
        await close_shared_pool()
        await send({"type": "lifespan.shutdown.complete"})

    async def _handle(self, exchange: HTTPExchange) -> None:
        exchange.viewer = self._viewer
        try:
            self._host_rule.check_host(exchange.scope)
            self._host_rule.check_origin(exchange.scope)
            if http.path(exchange.scope).rstrip("/") != self._path:
                raise RequestError(f"the agent is at {self._path or '/'}", kind="not_found", code="not_found")
            if exchange.scope["method"] != "POST":
                exchange.response_headers.append((b"allow", b"POST"))
                await exchange.send_json(_METHOD_NOT_ALLOWED, 405)
                return
            await self._serve_run(exchange)
        except http.ClientGone:
            pass
        except Exception as error:
            await exchange.send_exception(error, "an agent failed before its run began")

    async def _serve_run(self, exchange: HTTPExchange) -> None:
        if not (exchange.request_header("content-type") or "").lower().startswith("application/json"):
            raise RequestError("the body must be JSON; send Content-Type: application/json", code="not_json")
        body = await http.read_body(exchange.scope, exchange.receive, *self._body_limits)
        raw = await exchange.decode_json(body, MAX_ITEMS, MAX_TOOLS)
        request = await exchange.compute(parse_input, raw, dict(exchange.query))
        options, input = request.options, request.input
        if options.model is not None or options.store:
            name = "model" if options.model is not None else "store"
            reason = {"model": "an agent has a model of its own", "store": "this application stores nothing"}[name]
            raise RequestError(f"{name}: {reason}; leave it out", kind="unsupported", param=name)
        dialect = request.dialect(exchange.request_header(DIALECT_HEADER), self._dialect)
        sealer = self._sealer.for_tenant(_TENANT, request.thread_id)
        approval_sealer = self._sealer.for_tenant(self._approval_tenant, request.thread_id)
        exchange.viewer = viewer = self._viewer.for_request(options.view)
        reasoning = options.reasoning != "off" and viewer.rule.items
        check_resume(
            request.resume,
            request.client_tools,
            unanswered_calls(history_of(request.input.messages)) if request.resume else {},
            partial(check_sealed_approval, approval_sealer),
            has_own_interrupts=callable(self._deps),
        )
        attached = await exchange.compute(_open_history, request, sealer.open, self._system_messages)
        messages = attached.messages
        call = request.call(messages)
        deps = self._deps(input) if callable(self._deps) else self._deps
        stages: list[Stage] = [ApprovalStage(approval_sealer.seal_call)]
        if reasoning and dialect.has_seals:
            stages.append(SealStage(sealer.seal))
        run = await self._agent.start(
            RunInput(
                messages=call.messages,
                tools=call.tools,
                results=DeferredToolResults(approvals=approvals_of(request.resume)),
                deps=with_state(await deps if isawaitable(deps) else deps, input.state),
                settings=ModelSettings(**call.settings),
                stages=stages,
            )
        )
        if not self._system_messages and (count := request.system_message_count):
            exchange.response_headers += http.warning_headers([SYSTEM_MESSAGES_WARNING.format(count)])
        origin = getattr(run, "origin", None)
        if isinstance(origin, Origin):
            exchange.response_headers += http.warning_headers(attached.warnings(origin))
        header = request.run_header(dialect, view=viewer.view, max_view=viewer.view, model="", stored=False)
        await serve_events(exchange, run, header, header.history, reasoning=reasoning)


_ERROR_FORMAT = ErrorFormat(agui.error_body)
_METHOD_NOT_ALLOWED = agui.error_body(
    ErrorInfo("invalid_request", "a run is started with POST", code="method_not_allowed")
)


def approvals_of(resume: Sequence[ResumeEntry]) -> dict[str, ToolApproved | ToolDenied]:
    """Return the answers to requests for approval, by the id of the call. Other entries are for the agent.

    Raises:
        RequestError: An answer is invalid; `param` is its path.
    """
    approvals: dict[str, ToolApproved | ToolDenied] = {}
    for index, entry in enumerate(resume):
        if (approval := parse_approval_id(entry.interrupt_id)) is not None:
            call_id, _ = approval
            answer = approval_of(entry, f"resume[{index}].payload")
            denied = ToolDenied(answer.reason) if answer.reason else ToolDenied()
            approvals[call_id] = ToolApproved(answer.edited_args) if answer.approved else denied
    return approvals


def _load_keys(keys: Keys | str | Path | None) -> Keys | Callable[[], Keys]:
    if isinstance(keys, Keys):
        return keys
    environment_keys = env_keys() if keys is None else None
    return environment_keys if environment_keys is not None else KeyFile(default_seal_keys() if keys is None else keys)


def _open_history(request: Request, open_token: Callable[[str], Sealed], system_messages: bool) -> AttachedHistory:
    """Return the conversation with its sealed tokens opened, and what to warn about.

    Raises:
        SealError: A token is not valid; `param` is its path.
    """
    messages = request.messages(system_messages=system_messages)
    attached = attach(
        [*messages, *request.unused_seals(messages)], make_opener(open_token, request.token_path, is_carrier_of)
    )
    return attached._replace(messages=attached.messages[: len(messages)])
