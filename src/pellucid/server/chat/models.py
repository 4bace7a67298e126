"""`GET /api/models` and `GET /api/tools`: the models and tools that a page can offer.

No list says which levels of effort a model supports: each model is checked for settings that it does not support, as
for any request.
"""

from __future__ import annotations

import asyncio
from typing import Any, get_args

from msgspec import UNSET, UnsetType

from ...errors import RequestError
from ...local import model_index
from ...models import ChatModel
from ...protocols.chat import MAX_INSTRUCTIONS_CHARS, MEDIA_TYPES, THINKING_LEVELS, Effort, Medium
from ...settings import ModelCall
from ...tools.mcp import MCPTool
from ...view import VIEWS, stricter
from ..access.policy import visible_models
from ..agent_model import AgentModel
from ..catalog import Catalog
from ..exchange import Exchange
from ..routing import Handlers
from ..services import Services
from . import response_types
from .attachments import limits_for


class ModelsHandler(Handlers):
    """Handler of `GET /api/models`: the models, with their efforts and the fullest view of their reasoning."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._efforts: dict[str, tuple[ChatModel, list[Effort]]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        await self._services.refresh_connections()
        principal, catalog = exchange.principal, self._services.catalog
        viewer = exchange.viewer_for()
        default_name = self._find_default_name(catalog)
        models = []
        for name, model in catalog.unique_models(default_name):
            if visible_models(principal, [name]):
                models.append(
                    response_types.Model(
                        id=name,
                        efforts=self._supported_efforts(name, model),
                        efforts_unknown=UNSET if catalog.knows_efforts(model) else True,
                        default=True if name == default_name else UNSET,
                        view=stricter(viewer.view, catalog.max_view(name)),
                        provider=catalog.provider_title(model) or UNSET,
                        context_tokens=catalog.context_tokens(name) or UNSET,
                        **self._embedded_fields(model),
                        accepts=self._accepted_media(model, catalog),
                        agent=True if isinstance(model, AgentModel) else UNSET,
                    )
                )
                await asyncio.sleep(0)
        limits = response_types.AttachmentLimits(*limits_for(self._services, exchange), list(MEDIA_TYPES))
        views = list(VIEWS[VIEWS.index(viewer.view) :])
        config = self._services.config
        may_connect = self._services.guard.may_connect(exchange.scope, principal)
        await exchange.send_json(
            response_types.Models(
                models,
                views,
                limits,
                MAX_INSTRUCTIONS_CHARS,
                config.spend.currency,
                connect=True if may_connect else UNSET,
                default_configured=True if may_connect and config.server.default_model is not None else UNSET,
            )
        )

    async def tools(self, exchange: Exchange) -> None:
        """`GET /api/tools`: the server's tools that the caller may use."""
        tools = [
            response_types.ServerTool(
                name=tool.name,
                description=tool.definition.description or UNSET,
                server=tool.server.name if isinstance(tool, MCPTool) else UNSET,
            )
            for tool in await self._services.tools_for(exchange.principal)
        ]
        await exchange.send_json(response_types.ServerTools(tools))

    def _accepted_media(self, model: ChatModel, catalog: Catalog) -> list[Medium] | UnsetType:
        accepted = catalog.accepted_media(model)
        return UNSET if accepted is None else [medium for medium in get_args(Medium) if medium in accepted]

    def _embedded_fields(self, model: ChatModel) -> dict[str, Any]:
        """Return what is said of the embedded model alone: whether it loads, its full name and size, a larger one."""
        local = self._services.local
        if local is None or model is not local:
            return {}
        fields = {"embedded": True, "loading": True if local.is_loading else UNSET}
        row = next((one for one in model_index.all_models() if one.name == model.name), None)
        if row is None:
            return fields
        larger = [response_types.LargerModel(one.title, one.bytes) for one in model_index.larger_models(row.name)]
        return {
            **fields,
            "title": row.title,
            "bytes": row.bytes,
            "larger": larger[0] if larger else UNSET,
        }

    def _find_default_name(self, catalog: Catalog) -> str | None:
        try:
            return catalog.find(None)[0]
        except RequestError:
            return None

    def _supported_efforts(self, name: str, model: ChatModel) -> list[Effort]:
        """Return the efforts that are sent to the model as they are."""
        known = self._efforts.get(name)
        if known is None or known[0] is not model:
            calls = {effort: ModelCall(name, [], {"thinking": level}) for effort, level in THINKING_LEVELS.items()}
            known = self._efforts[name] = model, [effort for effort, call in calls.items() if not model.warnings(call)]
        return known[1]
