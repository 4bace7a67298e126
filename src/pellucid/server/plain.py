"""What is no protocol: what there is, whether it works, and how it is described."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.routing import BaseRoute

from .. import __version__
from ..errors import RequestError
from ..protocols import openresponses
from .access.policy import visible
from .exchange import Door, Endpoint, Exchange
from .page import Page, built, prefers_html
from .routing import STRING, Operation, Schema, Table, parameter
from .services import Services


class Model(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class Models(msgspec.Struct, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Model]


class Status(msgspec.Struct):
    status: str
    detail: str | UnsetType = UNSET


class Index(msgspec.Struct):
    pellucid: str
    speaks: list[str]


class Plain:
    """The endpoints. `document` is what `/openapi.json` answers."""

    def __init__(self, services: Services, spoken: list[str], document: dict[str, Any], page: Page | None) -> None:
        self._services = services
        self._spoken = [*spoken, "GET /v1/models", "GET /openapi.json"]
        self._document = document
        self._page = page

    def _entry(self, name: str) -> Model:
        origin = self._services.catalog.find(name)[1].origin
        return Model(id=name, created=self._services.started, owned_by=origin.provider)

    async def models(self, exchange: Exchange) -> None:
        names = visible(exchange.principal, self._services.catalog.names())
        await exchange.answer(Models(data=[self._entry(name) for name in names]))

    async def model(self, exchange: Exchange) -> None:
        name = exchange.params["id"]
        exchange.principal.policy.check_model(name)
        if name not in self._services.catalog.names():
            raise RequestError(
                f"there is no model {name!r} by name here", kind="not_found", code="model_not_found", param="model"
            )
        await exchange.answer(self._entry(name))

    async def index(self, exchange: Exchange) -> None:
        if self._page is not None:
            if prefers_html(exchange.header("accept")):
                await self._page.index(exchange)
                return
            exchange.headers.append((b"vary", b"accept"))
        await exchange.answer(Index(__version__, self._spoken))

    async def health(self, exchange: Exchange) -> None:
        await exchange.answer(Status("ok"))

    async def ready(self, exchange: Exchange) -> None:
        if self._services.leaving:
            await exchange.answer(Status("stopping"), 503)
            return
        missing = await self._services.check()
        if missing is None:
            await exchange.answer(Status("ready"))
        else:
            await exchange.answer(Status("loading", missing), 503)

    async def openapi(self, exchange: Exchange) -> None:
        await exchange.answer(self._document)

    async def metrics(self, exchange: Exchange) -> None:
        assert self._services.telemetry.metrics is not None
        text, content_type = self._services.telemetry.metrics.text(exchange.header("accept") or "")
        await exchange.answer_with(text, content_type)


def _json(description: str, component: str) -> Schema:
    schema = {"$ref": f"#/components/schemas/{component}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_REFUSED = (401, 403, 429, 500, 503)
"""What the door itself may answer, and faults."""
_METRICS = Operation(
    *("GET", "/metrics", Plain.metrics, "metrics", "What is measured, for Prometheus"),
    {media: {"schema": STRING} for media in ("text/plain", "application/openmetrics-text")},
    refuses=_REFUSED,
    more={404: _json("The operator has them off", "ErrorBody")},
)
TABLE = Table(
    [
        Operation("GET", "/v1/models", Plain.models, "listModels", "The models there are", Models, refuses=_REFUSED),
        Operation(
            *("GET", "/v1/models/{id:path}", Plain.model, "getModel", "One model", Model), refuses=(*_REFUSED, 404)
        ),
        Operation(
            *("GET", "/", Plain.index, "index", "What this server speaks; to a browser, the chat's page", Index),
            pages=(200, 503),
            more={503: {"description": "The page was not built"}},
            security=(),
        ),
        Operation("GET", "/health", Plain.health, "health", "The process is alive", Status, security=()),
        Operation(
            *("GET", "/ready", Plain.ready, "ready", "Whether requests can be served", Status),
            more={503: _json("Not yet, and why", "Status")},
            security=(),
        ),
        Operation("GET", "/openapi.json", Plain.openapi, "openapi", "This document", dict[str, Any], security=()),
        _METRICS,
    ],
    refuses=(500,),
    names={"id": parameter("id", "path", "Its name, which may have slashes in it.")},
)


def routes(services: Services, spoken: list[str], document: dict[str, Any]) -> list[BaseRoute]:
    page = Page(built()) if services.config.server.page else None
    telemetry = services.config.telemetry

    def door(row: Operation, endpoint: Endpoint) -> Door:
        public = row.security == () or (row is _METRICS and telemetry.metrics_open)
        return Door(endpoint, openresponses, None if public else lambda: services.guard, "plain")

    served = [row for row in TABLE.operations if row is not _METRICS or telemetry.metrics]
    made = TABLE._replace(operations=served).routes([Plain(services, spoken, document, page)], door)
    return [*made, *(page.routes() if page is not None else [])]
