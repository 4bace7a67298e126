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
from ...protocols.errors import ErrorFormat
from ...spaces.runtime.space import Space
from ...view import Viewer
from ..access.credentials import credential
from ..access.errors import AccessError, forbidden, unauthorized
from ..access.policy import Principal
from ..exchange import Endpoint, Exchange, Handler
from ..services import Services

PROTOCOL_NAME = "spaces"
"""What requests and sockets of spaces are called in metrics and in what is logged."""

ERROR_FORM = openresponses
"""The form of errors: `{"error": {"message", "type", "param", "code"}}`."""


class AuthenticatedParticipant(NamedTuple):
    """Who asks, and in which space."""

    space: Space
    participant: str


ParticipantHandler = Callable[[Exchange, AuthenticatedParticipant], Awaitable[None]]


async def authenticate(
    services: Services, exchange: Exchange, name: str | None, token: str | None
) -> AuthenticatedParticipant:
    """Whose token it is, in the space of that name. Raises `AccessError` (unauthorized, forbidden)."""
    if name is None:
        raise RequestError("space: its name is required, such as ?space=review", code="missing", param="space")
    if not token:
        raise unauthorized(
            "a space asks for the token of one of its participants; send it as Authorization: Bearer …",
            "missing_credentials",
        )
    try:
        authenticated = AuthenticatedParticipant(*await services.spaces.admit(name, token))
    except PellucidError as error:
        _raise_access_error(error)
    exchange.principal = exchange.telemetry.principal = Principal(
        authenticated.space.owner, None, authenticated.participant
    )
    return authenticated


def _raise_access_error(error: PellucidError) -> NoReturn:
    """A refusal with the headers that HTTP has for it."""
    info = error.info
    if isinstance(error, AccessError) or info.kind not in ("unauthorized", "forbidden"):
        raise error
    make_error = unauthorized if info.kind == "unauthorized" else forbidden
    raise make_error(info.message, info.code or "invalid_token") from None


class EndpointFactory:
    """Makes the doors of HTTP."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def without_token(self, handler: Handler, error_form: ErrorFormat = ERROR_FORM) -> Endpoint:
        """For an endpoint that finds out itself who asks."""
        services = self._services

        async def handle(exchange: Exchange) -> None:
            cors = services.guard.cors
            exchange.response_headers += cors.headers(exchange.scope)
            exchange.viewer = Viewer("raw")  # nothing here is an upstream's
            if exchange.scope["closing"]:
                exchange.response_headers.append(http.CLOSE)
                raise PellucidError(STOPPING)
            cors.check(exchange.scope)
            await handler(exchange)

        return Endpoint(handle, error_form, protocol=PROTOCOL_NAME)

    def for_participants(self, handler: ParticipantHandler, error_form: ErrorFormat = ERROR_FORM) -> Endpoint:
        """For participants alone. The space is the path's `name`, or the query's `space`."""

        async def handle(exchange: Exchange) -> None:
            name = exchange.path_params.get("name") or exchange.query_param("space")
            await handler(exchange, await authenticate(self._services, exchange, name, credential(exchange.scope)))

        return self.without_token(handle, error_form)

    def for_methods(
        self, handlers: Mapping[str, ParticipantHandler], error_form: ErrorFormat = ERROR_FORM
    ) -> dict[str, Any]:
        """A path's doors, by method."""
        return {method: self.for_participants(handler, error_form) for method, handler in handlers.items()}
