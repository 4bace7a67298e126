"""Authentication of participants: only a participant's token opens a space.

* The token alone selects the space and the participant. A key of the gateway opens no space; and where the gateway
  requires keys, none is needed here.
* An unknown token, a token of another space, and a space that does not exist give the same error.
* Web pages of other origins may send requests as far as the operator allows it (`[access.cors]`), as for all routes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, NoReturn

from ...asgi import http
from ...asgi.streaming import STOPPING
from ...errors import PellucidError, RequestError
from ...protocols.client_protocols import CLIENT_PROTOCOLS
from ...protocols.errors import ErrorFormat
from ...spaces.runtime.space import Space
from ...view import Viewer
from ..access.credentials import credential
from ..access.errors import AccessError, forbidden, unauthorized
from ..access.policy import Principal
from ..exchange import Endpoint, Exchange, Handler
from ..services import Services

PROTOCOL_NAME = "spaces"
"""The name of spaces in metrics and logs."""

ERROR_FORMAT = CLIENT_PROTOCOLS["openresponses"].error_format
"""The form of errors: `{"error": {"message", "type", "param", "code"}}`."""


class AuthenticatedParticipant(NamedTuple):
    """A participant in a space."""

    space: Space
    participant: str


ParticipantHandler = Callable[[Exchange, AuthenticatedParticipant], Awaitable[None]]


async def authenticate(
    services: Services, exchange: Exchange, name: str | None, token: str | None
) -> AuthenticatedParticipant:
    """Return the participant with this token in the space with this name.

    Args:
        services: The gateway.
        exchange: The request.
        name: The name of the space. None: the token opens one space only.
        token: The token.

    Raises:
        AccessError: Unauthorized or forbidden.
        RequestError: No space is named, and there is no token, or one that opens several.
    """
    if name is None and not token:
        raise RequestError("space: its name is required, such as ?space=review", code="missing", param="space")
    if not token:
        raise unauthorized(
            "a space requires the token of one of its participants; send it as Authorization: Bearer …",
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
    """Raise the error with the headers that HTTP requires for it."""
    info = error.info
    if isinstance(error, AccessError) or info.kind not in ("unauthorized", "forbidden"):
        raise error
    make_error = unauthorized if info.kind == "unauthorized" else forbidden
    raise make_error(info.message, info.code or "invalid_token") from None


class EndpointFactory:
    """Makes the endpoints of HTTP routes."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def without_token(self, handler: Handler, error_format: ErrorFormat = ERROR_FORMAT) -> Endpoint:
        """Return an endpoint whose handler authenticates the caller itself."""
        services = self._services

        async def handle(exchange: Exchange) -> None:
            cors = services.guard.cors
            exchange.response_headers += cors.headers(exchange.scope)
            exchange.viewer = Viewer("raw")  # no output of an upstream model is sent here
            if exchange.scope["closing"]:
                exchange.response_headers.append(http.CLOSE_HEADER)
                raise PellucidError(STOPPING)
            cors.check(exchange.scope)
            await handler(exchange)

        return Endpoint(handle, error_format, PROTOCOL_NAME)

    def for_participants(self, handler: ParticipantHandler, error_format: ErrorFormat = ERROR_FORMAT) -> Endpoint:
        """Return an endpoint for participants. The space is the path's `name`, or the query's `space`."""

        async def handle(exchange: Exchange) -> None:
            name = exchange.path_params.get("name") or exchange.query_param("space")
            await handler(exchange, await authenticate(self._services, exchange, name, credential(exchange.scope)))

        return self.without_token(handle, error_format)
