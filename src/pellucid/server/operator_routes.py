"""Routes for operators: `GET /api/status`, the cancel of a run, `GET /api/usage` and `GET /api/feedback`.

All need an operator's key.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ..asgi import http
from ..protocols import chat
from ..protocols.chat.types import Rating
from ..storage.usage import COLUMNS, MAX_ROWS
from ..telemetry import log
from .exchange import Exchange
from .routing import STRING, Handlers, Operation, Table, parameter
from .status import CancelledRun, GatewayStatus
from .usage_report import CSV_TYPE, DEFAULT_COLUMNS, UsageReport, csv_text, entry_of, read_columns, read_filter

_USAGE_FILTERS = ("from", "to", "owner", "key", "model")
_ERROR_STATUSES = (401, 403, 429, 500, 503)


MAX_FEEDBACK = 10_000
"""Maximum number of lines of one response."""

LINES_TYPE = "application/jsonl"


class FeedbackLine(msgspec.Struct, kw_only=True):
    """One line of `GET /api/feedback`: what a person thinks of an answer, without the answer."""

    event_id: str
    conversation_id: str
    owner: str
    model: str
    rating: Rating
    comment: str
    updated_at: int


class OperatorHandlers(Handlers):
    """Handlers of these routes."""

    async def status(self, exchange: Exchange) -> None:
        await exchange.send_json(await self._services.state.status())

    async def cancel(self, exchange: Exchange) -> None:
        cancelled = await self._services.state.cancel(exchange.path_params["id"])
        log.warning("%s cancelled the run %s", exchange.principal.log_name, cancelled.id)
        await exchange.send_json(cancelled)

    async def usage(self, exchange: Exchange) -> None:
        columns = read_columns(exchange.query_param("group_by"), "group_by")
        exchange.check_query_params(*_USAGE_FILTERS, "group_by")
        filter = read_filter(*(exchange.query_param(name) for name in _USAGE_FILTERS))
        await self._services.usage_writer.write()
        rows = await self._services.store.usage.report(columns, filter)
        exchange.response_headers.append((b"vary", b"accept"))
        if CSV_TYPE in http.parse_qualities(exchange.request_header("accept")):
            await exchange.send_text(csv_text(columns, rows).encode(), f"{CSV_TYPE}; charset=utf-8")
        else:
            await exchange.send_json(UsageReport(data=[entry_of(row) for row in rows]))

    async def feedback(self, exchange: Exchange) -> None:
        exchange.check_query_params("since")
        since = exchange.query_int("since", 0, 0)
        rows = await self._services.store.feedback.list(since / 1000, MAX_FEEDBACK)
        lines = [
            FeedbackLine(
                event_id=one.response_id,
                conversation_id=row.chat_id,
                owner=one.owner,
                model=row.model,
                rating=one.rating,
                comment=one.comment,
                updated_at=round(one.updated_at * 1000),
            )
            for row in rows
            for one in (row.feedback,)
        ]
        await exchange.send_text(msgspec.json.Encoder().encode_lines(lines), f"{LINES_TYPE}; charset=utf-8")


TABLE = Table(
    [
        Operation(
            "GET",
            "/api/usage",
            OperatorHandlers.usage,
            "getUsage",
            "What was used and what it cost",
            response_body={"application/json": UsageReport, CSV_TYPE: {"schema": STRING}},
            description=f"At most {MAX_ROWS} sums, as JSON or, with `Accept: text/csv`, as CSV",
            parameters=[
                parameter("from", "query", "The first day (`2026-01-31`) or month (`2026-01`), in UTC."),
                parameter("to", "query", "The last day or month."),
                parameter("owner", "query", "Only what this owner used."),
                parameter("key", "query", "Only what was used with the key of this id."),
                parameter("model", "query", "Only what was used of the model with this public name."),
                parameter(
                    "group_by",
                    "query",
                    f"What has a sum of its own: some of {', '.join(COLUMNS)}, separated by commas.",
                    default=",".join(DEFAULT_COLUMNS),
                ),
            ],
            error_statuses=(400, *_ERROR_STATUSES),
            is_operator_only=True,
        ),
        Operation(
            "GET",
            "/api/feedback",
            OperatorHandlers.feedback,
            "getFeedback",
            "What people think of answers, as JSON lines",
            response_body={LINES_TYPE: {"schema": STRING, "x-line": {"$ref": "#/components/schemas/FeedbackLine"}}},
            description=f"At most {MAX_FEEDBACK} lines, the oldest first",
            parameters=[
                parameter(
                    "since",
                    "query",
                    "Only what was set at this time or later, in milliseconds since 1970 (`updated_at` of a line).",
                    Annotated[int, Meta(ge=0)],
                    0,
                )
            ],
            error_statuses=(400, *_ERROR_STATUSES),
            is_operator_only=True,
        ),
        Operation(
            "GET",
            "/api/status",
            OperatorHandlers.status,
            "getStatus",
            "The state of the gateway: models, runs that have not ended, failures",
            response_body=GatewayStatus,
            error_statuses=_ERROR_STATUSES,
            is_operator_only=True,
        ),
        Operation(
            "POST",
            "/api/status/runs/{id}/cancel",
            OperatorHandlers.cancel,
            "cancelLiveRun",
            "Cancel a run that has not ended, of whichever owner",
            response_body=CancelledRun,
            error_statuses=(*_ERROR_STATUSES, 404),
            is_operator_only=True,
        ),
    ],
    protocol=chat.PROTOCOL,
    metrics_name="plain",
    handlers=[OperatorHandlers],
    error_body="ChatErrorBody",  # below /api, errors have the form of the chat
    path_parameters={"id": parameter("id", "path", "The run's id, from the list of runs.")},
    components={"FeedbackLine": FeedbackLine},
    advertised_routes=["GET /api/usage", "GET /api/status"],
)
