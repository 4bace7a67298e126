"""A path and what it answers to, by method."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class _Methods:
    def __init__(self, path: str, doors: Mapping[str, ASGIApp], also: str) -> None:
        self._path = path
        self._doors = dict(doors)
        if "GET" in doors:
            self._doors.setdefault("HEAD", doors["GET"])
        self._allowed = ", ".join(sorted(self._doors))
        self._told = self._allowed + also

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "watch" in scope:
            scope["watch"].route = self._path
        door = self._doors.get(scope["method"])
        if door is None:
            told = f"{scope['method']} is not allowed on {scope['path']}; it takes {self._told}"
            raise HTTPException(405, told, headers={"Allow": self._allowed})
        await door(scope, receive, send)


def route(path: str, doors: Mapping[str, ASGIApp], also: str = "") -> Route:
    """All that is at one path, so that whoever asks in another way is told every way there is; `also`: what is not HTTP
    among them."""
    return Route(path, _Methods(path, doors, also))
