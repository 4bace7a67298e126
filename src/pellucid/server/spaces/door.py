"""Who asks for something of a space: whoever brings a participant's token, and nobody else.

* The token alone opens the space that it is for. A key of the gateway opens none; and where the gateway asks for keys,
  nobody needs one here.
* A token that is unknown, one of another space, and a space that is not there are told in the same words.
* Web pages of other origins may ask as far as the operator lets them (`[access.cors]`), as everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from ...asgi import http
from ...asgi.streaming import STOPPING
from ...errors import PellucidError, RequestError
from ...protocols import openresponses
from ...protocols.errors import ErrorForm
from ...spaces.runtime.space import Space
from ...view import Reader
from ..access.credentials import credential
from ..access.errors import AccessError, forbidden, unauthorized
from ..access.policy import Principal
from ..exchange import Door, Endpoint, Exchange
from ..services import Services

PROTOCOL = "spaces"
"""What requests and sockets of spaces are called in metrics and in what is logged."""

SPACES = openresponses
"""The form of errors: `{"error": {"message", "type", "param", "code"}}`."""


class Inside(NamedTuple):
    """Who asks, and in which space."""

    space: Space
    participant: str


Answer = Callable[[Exchange, Inside], Awaitable[None]]


async def admitted(services: Services, exchange: Exchange, name: str | None, token: str | None) -> Inside:
    """Whose token it is, in the space of that name. Raises `AccessError` (unauthorized, forbidden)."""
    if name is None:
        raise RequestError("space: its name is required, such as ?space=review", code="missing", param="space")
    if not token:
        raise unauthorized(
            "a space asks for the token of one of its participants; send it as Authorization: Bearer …",
            "missing_credentials",
        )
    try:
        inside = Inside(*await services.spaces.admit(name, token))
    except PellucidError as error:
        _say(error)
    exchange.principal = exchange.watch.principal = Principal(inside.space.owner, None, inside.participant)
    return inside


def _say(error: PellucidError) -> NoReturn:
    """A refusal with the headers that HTTP has for it."""
    info = error.info
    if isinstance(error, AccessError) or info.kind not in ("unauthorized", "forbidden"):
        raise error
    made = unauthorized if info.kind == "unauthorized" else forbidden
    raise made(info.message, info.code or "invalid_token") from None


class Doors:
    """Makes the doors of HTTP."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def anybody(self, endpoint: Endpoint, form: ErrorForm = SPACES) -> Door:
        """For an endpoint that finds out itself who asks."""
        services = self._services

        async def answering(exchange: Exchange) -> None:
            cors = services.guard.cors
            exchange.headers += cors.headers(exchange.scope)
            exchange.reader = Reader("raw")  # nothing here is an upstream's
            if exchange.scope["closing"]:
                exchange.headers.append(http.CLOSE)
                raise PellucidError(STOPPING)
            cors.check(exchange.scope)
            await endpoint(exchange)

        return Door(answering, form, protocol=PROTOCOL)

    def participant(self, answer: Answer, form: ErrorForm = SPACES) -> Door:
        """For participants alone. The space is the path's `name`, or the query's `space`."""

        async def answering(exchange: Exchange) -> None:
            name = exchange.params.get("name") or exchange.asked("space")
            await answer(exchange, await admitted(self._services, exchange, name, credential(exchange.scope)))

        return self.anybody(answering, form)

    def table(self, answers: Mapping[str, Answer], form: ErrorForm = SPACES) -> dict[str, Any]:
        """A path's doors, by method."""
        return {method: self.participant(answer, form) for method, answer in answers.items()}
