"""Routes outside any protocol: models, the index, health, metrics, and the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.routing import BaseRoute

from ..errors import RequestError
from ..protocols import openresponses
from ..version import __version__
from .access.policy import visible_models
from .catalog import Catalog
from .exchange import Exchange
from .page import Page, built_files, prefers_html
from .routing import STRING, Handlers, Operation, Schema, Table, parameter, routes_of
from .services import Services


class Model(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    context_length: int | UnsetType = UNSET
    """The size of its context in tokens, if it is known."""


class Models(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]


class AnthropicModel(msgspec.Struct, kw_only=True):
    """A model, as Anthropic's API describes it."""

    id: str
    type: Literal["model"] = "model"
    display_name: str
    created_at: str


class AnthropicModels(msgspec.Struct, kw_only=True):
    """The list of models, as clients get it that send `anthropic-version`. There is one page."""

    data: list[AnthropicModel]
    has_more: Literal[False] = False
    first_id: str | None
    last_id: str | None


class Status(msgspec.Struct):
    status: str
    detail: str | UnsetType = UNSET


class Index(msgspec.Struct):
    pellucid: str
    speaks: list[str]


class MetaHandlers(Handlers):
    """Handlers of these routes. `build_document` returns the response of `/openapi.json`.

    It is called for the first request, because it takes longer than the rest of the gateway's start.
    """

    def __init__(
        self,
        services: Services,
        advertised_routes: list[str],
        build_document: Callable[[], dict[str, Any]],
        page: Page | None,
    ) -> None:
        super().__init__(services)
        self._advertised_routes = [*advertised_routes, "GET /v1/models", "GET /openapi.json"]
        self._build_document = build_document
        self._document: dict[str, Any] | None = None
        self._page = page

    def _model_entry(self, name: str, catalog: Catalog) -> Model:
        return Model(
            id=name,
            created=self._services.started_at,
            owned_by=catalog.find(name)[1].origin.provider,
            context_length=catalog.context_tokens(name) or UNSET,
        )

    def _anthropic_entry(self, name: str) -> AnthropicModel:
        created_at = datetime.fromtimestamp(self._services.started_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return AnthropicModel(id=name, display_name=name, created_at=created_at)

    async def models(self, exchange: Exchange) -> None:
        await self._services.refresh_connections()
        catalog = self._services.catalog
        names = visible_models(exchange.principal, await catalog.served_names())
        if exchange.recognised_protocol == "messages":
            entries = [self._anthropic_entry(name) for name in names]
            ends = (names[0], names[-1]) if names else (None, None)
            await exchange.send_json(AnthropicModels(data=entries, first_id=ends[0], last_id=ends[1]))
            return
        await exchange.send_json(Models(data=[self._model_entry(name, catalog) for name in names]))

    async def model(self, exchange: Exchange) -> None:
        name = exchange.path_params["id"]
        exchange.principal.policy.check_model(name)
        catalog = self._services.catalog
        if name not in await catalog.served_names():
            raise RequestError(
                f"there is no model named {name!r} here", kind="not_found", code="model_not_found", param="model"
            )
        is_messages = exchange.recognised_protocol == "messages"
        await exchange.send_json(self._anthropic_entry(name) if is_messages else self._model_entry(name, catalog))

    async def index(self, exchange: Exchange) -> None:
        if self._page is not None:
            if prefers_html(exchange.request_header("accept")):
                await self._page.index(exchange)
                return
            exchange.response_headers.append((b"vary", b"accept"))
        await exchange.send_json(Index(__version__, self._advertised_routes))

    async def health(self, exchange: Exchange) -> None:
        await exchange.send_json(Status("ok"))

    async def ready(self, exchange: Exchange) -> None:
        if self._services.is_draining:
            await exchange.send_json(Status("stopping"), 503)
            return
        missing = await self._services.readiness.check()
        if missing:
            await exchange.send_json(Status(missing[0].status, missing[0].reason), 503)
        else:
            await exchange.send_json(Status("ready"))

    async def openapi(self, exchange: Exchange) -> None:
        if self._document is None:
            self._document = await asyncio.to_thread(self._build_document)
        await exchange.send_json(self._document)

    async def metrics(self, exchange: Exchange) -> None:
        assert self._services.telemetry.metrics is not None
        text, content_type = self._services.telemetry.metrics.exposition(exchange.request_header("accept") or "")
        await exchange.send_text(text, content_type)


def _json_response(description: str, component: str) -> Schema:
    schema = {"$ref": f"#/components/schemas/{component}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_ERROR_STATUSES = (401, 403, 429, 500, 503)
"""Statuses of authentication and limits, and of faults."""
_METRICS = Operation(
    "GET",
    "/metrics",
    MetaHandlers.metrics,
    "metrics",
    "Metrics, for Prometheus",
    response_body={media: {"schema": STRING} for media in ("text/plain", "application/openmetrics-text")},
    error_statuses=_ERROR_STATUSES,
    extra_responses={404: _json_response("Metrics are disabled", "ErrorBody")},
    is_operator_only=True,
)
TABLE = Table(
    [
        Operation(
            "GET",
            "/v1/models",
            MetaHandlers.models,
            "listModels",
            "List the models",
            response_body={"application/json": (Models, AnthropicModels)},
            error_statuses=_ERROR_STATUSES,
        ),
        Operation(
            "GET",
            "/v1/models/{id:path}",
            MetaHandlers.model,
            "getModel",
            "One model",
            response_body={"application/json": (Model, AnthropicModel)},
            error_statuses=(*_ERROR_STATUSES, 404),
        ),
        Operation(
            "GET",
            "/",
            MetaHandlers.index,
            "index",
            "The server's routes; to a browser, the chat's page",
            response_body=Index,
            page_statuses=(200, 503),
            extra_responses={503: {"description": "The page was not built"}},
            security=(),
        ),
        Operation(
            "GET",
            "/health",
            MetaHandlers.health,
            "health",
            "Check that the process is alive",
            response_body=Status,
            security=(),
        ),
        Operation(
            "GET",
            "/ready",
            MetaHandlers.ready,
            "ready",
            "Check that requests can be served",
            response_body=Status,
            extra_responses={503: _json_response("Not ready, with the reason", "Status")},
            security=(),
        ),
        Operation(
            "GET",
            "/openapi.json",
            MetaHandlers.openapi,
            "openapi",
            "This document",
            response_body=dict[str, Any],
            security=(),
        ),
        _METRICS,
    ],
    protocol=openresponses.PROTOCOL,
    metrics_name="plain",
    error_statuses=(500,),
    path_parameters={"id": parameter("id", "path", "The model's name, which may contain slashes.")},
)


def routes(
    services: Services, advertised_routes: list[str], build_document: Callable[[], dict[str, Any]]
) -> list[BaseRoute]:
    page = Page(built_files()) if services.config.server.page else None
    telemetry = services.config.telemetry
    operations = [row for row in TABLE.operations if row is not _METRICS]
    if telemetry.metrics:
        open_metrics = _METRICS._replace(security=(), is_operator_only=False)
        operations.append(open_metrics if telemetry.metrics_open else _METRICS)
    handlers = MetaHandlers(services, advertised_routes, build_document, page)
    meta_routes = routes_of(TABLE._replace(operations=operations), services, [handlers])
    return [*meta_routes, *(page.routes() if page is not None else [])]
