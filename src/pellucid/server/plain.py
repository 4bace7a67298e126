"""What is no protocol: what there is, whether it works, and how it is described."""

from __future__ import annotations

from starlette.routing import BaseRoute

from .. import __version__
from ..errors import RequestError
from ..protocols import openresponses
from .access.policy import visible
from .exchange import Door, Exchange, route
from .openapi import document
from .page import Page, built, prefers_html
from .services import Services


def routes(services: Services, spoken: list[str]) -> list[BaseRoute]:
    catalog = services.catalog

    def entry(name: str) -> dict[str, object]:
        origin = catalog.find(name)[1].origin
        return {"id": name, "object": "model", "created": services.started, "owned_by": origin.provider}

    async def models(exchange: Exchange) -> None:
        names = visible(exchange.principal, catalog.names())
        await exchange.answer({"object": "list", "data": [entry(name) for name in names]})

    async def model(exchange: Exchange) -> None:
        name = exchange.params["id"]
        exchange.principal.policy.check_model(name)
        if name not in catalog.names():
            raise RequestError(
                f"there is no model {name!r} by name here", kind="not_found", code="model_not_found", param="model"
            )
        await exchange.answer(entry(name))

    page = Page(built()) if services.config.server.page else None

    async def index(exchange: Exchange) -> None:
        if page is not None:
            if prefers_html(exchange.header("accept")):
                await page.index(exchange)
                return
            exchange.headers.append((b"vary", b"accept"))
        await exchange.answer({"pellucid": __version__, "speaks": [*spoken, "GET /v1/models", "GET /openapi.json"]})

    async def health(exchange: Exchange) -> None:
        await exchange.answer({"status": "ok"})

    async def metrics(exchange: Exchange) -> None:
        assert services.telemetry.metrics is not None
        text, content_type = services.telemetry.metrics.text(exchange.header("accept") or "")
        await exchange.answer_with(text, content_type)

    async def ready(exchange: Exchange) -> None:
        if services.leaving:
            await exchange.answer({"status": "stopping"}, 503)
            return
        missing = await services.check()
        if missing is None:
            await exchange.answer({"status": "ready"})
        else:
            await exchange.answer({"status": "loading", "detail": missing}, 503)

    openapi_document = document()

    async def openapi(exchange: Exchange) -> None:
        await exchange.answer(openapi_document)

    guarded = [("/v1/models", models), ("/v1/models/{id:path}", model)]
    public = [("/", index), ("/health", health), ("/ready", ready), ("/openapi.json", openapi)]
    told = services.config.telemetry
    if told.metrics:
        (public if told.metrics_open else guarded).append(("/metrics", metrics))
    return [
        *(route(path, {"GET": Door(one, openresponses, lambda: services.guard, "plain")}) for path, one in guarded),
        *(route(path, {"GET": Door(one, openresponses, protocol="plain")}) for path, one in public),
        *(page.routes() if page is not None else []),
    ]
