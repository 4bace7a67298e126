"""`GET /api/models`: what a page can offer: the models that its reader may ask, how hard each can be made to think, and
how much of that may be seen.

Nobody keeps a list of who hears which effort: a model is asked what it would not honour, as for any request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ...errors import RequestError
from ...models import Asked
from ...protocols.chat import THINKING
from ...settings import ModelCall
from ...view import VIEWS, lesser
from ..access.policy import visible
from ..exchange import Exchange
from ..services import Services


class Models:
    """The endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._efforts: dict[str, list[str]] = {}

    async def __call__(self, exchange: Exchange) -> None:
        principal = exchange.principal
        reader = exchange.reads()
        default = self._default()
        models = []
        for name, asked in self._each(default):
            if visible(principal, [name]):
                models.append(
                    self._entry(name, asked, name == default)
                    | {"view": lesser(reader.view, self._services.catalog.most(name))}
                )
                await asyncio.sleep(0)
        await exchange.answer({"data": models, "views": list(VIEWS[VIEWS.index(reader.view) :])})

    def _each(self, default: str | None) -> list[tuple[str, Asked]]:
        """Each model once, under the name that it is best known by."""
        catalog, found = self._services.catalog, dict[int, tuple[str, Asked]]()
        names = catalog.names()
        first = [default] if default is not None else []
        for name in dict.fromkeys([*first, *names]):
            asked = catalog.find(name)[1]
            found.setdefault(id(asked), (name, asked))
        order = {name: place for place, name in enumerate(names)}
        return sorted(found.values(), key=lambda one: order.get(one[0], -1))

    def _default(self) -> str | None:
        try:
            return self._services.catalog.find(None)[0]
        except RequestError:
            return None

    def _entry(self, name: str, asked: Asked, default: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {"id": name, "efforts": self._heard(name, asked)}
        if default:
            entry["default"] = True
        if asked is self._services.local:
            entry["embedded"] = True
        return entry

    def _heard(self, name: str, asked: Asked) -> list[str]:
        """The efforts that it would honour as given."""
        if name not in self._efforts:
            calls = {word: ModelCall(name, [], {"thinking": level}) for word, level in THINKING.items()}
            self._efforts[name] = [word for word, call in calls.items() if not asked.warnings(call)]
        return self._efforts[name]
