"""`/api/session`: whether a person is signed in; sign-in with an API key or with a provider; sign-out.

The result is a cookie that no script can read (`access.session`), which is valid only under `/api`. Only pages of this
gateway may sign a person in or out.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.routing import BaseRoute

from ..asgi import http
from ..errors import PellucidError, RequestError
from ..protocols import chat
from ..protocols.client_protocols import CLIENT_PROTOCOLS
from ..protocols.decoding import decode
from .access import oidc, origins, session
from .access.errors import AccessError, HTTPHeader
from .access.guard import SignInMethod
from .access.policy import Principal
from .access.session import cookie_header, is_https, read_cookie
from .exchange import Endpoint, Exchange, Handler
from .page import send_notice
from .routing import Handlers, Operation, Schema, Table, parameter
from .services import Services

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_MAX_BODY_BYTES = 16 * 1024


class Session(msgspec.Struct):
    signed_in: bool
    needed: Annotated[bool, Meta(description="Whether people have to sign in.")]
    ways: list[SignInMethod]
    name: Annotated[str | UnsetType, Meta(description="The key's name, or the person's.")] = UNSET
    owner: Annotated[
        str | UnsetType, Meta(description="A mark of the owner, the same for all sign-ins of one owner.")
    ] = UNSET
    create_spaces: Annotated[
        Literal[True] | UnsetType, Meta(description="Whether the person may create spaces (`POST /api/spaces`).")
    ] = UNSET


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(description="An API key.")]


class SessionHandlers(Handlers):
    """Handlers of the session routes."""

    async def read(self, exchange: Exchange) -> None:
        """Report whether the person is signed in, whether that is needed, and how to sign in."""
        guard = self._services.guard
        needed = await guard.requires_credential(exchange.scope)
        try:
            principal = await guard.admit(exchange.scope)
        except AccessError as error:
            if error.info.kind != "unauthorized" and not (needed and error.info.kind == "forbidden"):
                raise
            # Also a client of another machine where there are no keys: it cannot sign in.
            await self._send_session(exchange, needed=True)
        else:
            await self._send_session(exchange, needed=needed, principal=principal)

    async def sign_in(self, exchange: Exchange) -> None:
        """Sign in with a key."""
        guard, scope = self._services.guard, exchange.scope
        origins.check_not_foreign(scope)
        needed = await guard.requires_credential(scope)
        key = decode(
            await http.read_body(scope, exchange.receive, _MAX_BODY_BYTES, self._body_timeout_seconds), SignIn
        ).key
        if not needed:
            await self.read(exchange)
            return
        await guard.login_throttle.take(scope)
        principal, cookie_value = await guard.sign_in(key)
        await guard.login_throttle.refund(scope)
        exchange.telemetry.principal = principal
        exchange.response_headers.append(self._session_cookie(cookie_value, secure=is_https(scope)))
        await self._send_session(exchange, needed=True, principal=principal)

    async def sign_out(self, exchange: Exchange) -> None:
        """End the session, and delete the cookie. A session at the provider is not ended."""
        origins.check_not_foreign(exchange.scope)
        needed = await self._services.guard.requires_credential(exchange.scope)
        exchange.response_headers.append(self._session_cookie("", secure=is_https(exchange.scope)))
        await self._services.guard.sign_out(exchange.scope)
        if needed:
            await self._send_session(exchange, needed=True)
        else:
            await self.read(exchange)

    # --- with a provider -----------------------------------------------------------------------------------------

    async def begin_sign_in(self, exchange: Exchange) -> None:
        """Redirect to the provider."""
        try:
            origin = _request_origin(exchange)
            await self._services.guard.login_throttle.take(exchange.scope)
            location, cookie_value = await self._require_provider().begin(origin, exchange.query_param("next"))
        except PellucidError as error:
            await _send_notice(exchange, error)
            return
        await self._services.guard.login_throttle.refund(exchange.scope)
        secure = is_https(exchange.scope) or self._has_https_redirect_base
        attempt_cookie = cookie_header(
            oidc.COOKIE,
            cookie_value,
            path=oidc.PATH,
            max_age_seconds=oidc.ATTEMPT_SECONDS,
            same_site="Lax",
            secure=secure,
        )
        await _redirect(exchange, location, [attempt_cookie])

    async def callback(self, exchange: Exchange) -> None:
        """Finish the sign-in, when the browser returns from the provider."""
        guard, scope = self._services.guard, exchange.scope
        secure = is_https(scope) or self._has_https_redirect_base
        # An attempt can be finished once, whatever its result.
        cleared_cookie = cookie_header(
            oidc.COOKIE, "", path=oidc.PATH, max_age_seconds=0, same_site="Lax", secure=secure
        )
        try:
            await guard.login_throttle.take(scope)
            identity, next_path = await self._require_provider().finish(
                dict(exchange.query), read_cookie(scope, oidc.COOKIE)
            )
            await guard.login_throttle.refund(scope)
        except PellucidError as error:
            await _send_notice(exchange, error, [cleared_cookie])
            return
        assert guard.browser_sessions is not None
        cookie_value = guard.browser_sessions.encode(guard.browser_sessions.for_provider(identity))
        exchange.telemetry.principal = Principal(identity.owner, None, identity.name)
        await _redirect(exchange, next_path, [cleared_cookie, self._session_cookie(cookie_value, secure=secure)])

    # --- helpers -------------------------------------------------------------------------------------------------

    async def _send_session(self, exchange: Exchange, *, needed: bool, principal: Principal | None = None) -> None:
        session = Session(False, needed, await self._services.guard.sign_in_methods() if needed else [])
        if principal is not None:
            if needed:
                session.signed_in, session.owner = True, principal.owner_mark
                session.name = principal.name or UNSET
            if principal.policy.operator:
                session.create_spaces = True
        exchange.response_headers.append((b"cache-control", b"no-store"))
        await exchange.send_json(session)

    def _session_cookie(self, value: str, *, secure: bool) -> HTTPHeader:
        sessions = self._services.guard.browser_sessions
        seconds = sessions.lifetime_seconds if sessions is not None and value else 0
        return cookie_header(
            session.COOKIE, value, path=session.PATH, max_age_seconds=seconds, same_site="Strict", secure=secure
        )

    def _require_provider(self) -> oidc.OIDCClient:
        provider = self._services.guard.oidc
        if provider is None:
            raise RequestError(
                "signing in with a provider is not configured; the operator can name one in [access.oidc]",
                kind="not_found",
                code="no_provider",
            )
        return provider

    @property
    def _body_timeout_seconds(self) -> float:
        return self._services.config.server.request_seconds

    @property
    def _has_https_redirect_base(self) -> bool:
        oidc_config = self._services.config.access.oidc
        return oidc_config is not None and (oidc_config.redirect_base or "").startswith("https://")


def _request_origin(exchange: Exchange) -> str:
    """Return the origin at which the browser reached the gateway."""
    host = exchange.request_header("host") or ""
    if not _HOST.fullmatch(host):
        raise RequestError("the request's Host is not a valid host name", code="invalid_host")
    return f"{exchange.scope['scheme']}://{host}"


async def _redirect(exchange: Exchange, location: str, headers: list[HTTPHeader]) -> None:
    exchange.response_started = True
    exchange.telemetry.status = 303
    headers = [
        (b"location", location.encode("latin-1")),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
        *headers,
        *exchange.response_headers,
    ]
    await http.send_body(exchange.send, 303, b"", "text/plain; charset=utf-8", headers)


async def _send_notice(exchange: Exchange, error: PellucidError, headers: list[HTTPHeader] | None = None) -> None:
    """Send the error as a page: the person followed a link, no script reads the response."""
    exchange.telemetry.error = error.info.kind
    await send_notice(exchange, error.info, [*(headers or []), *http.retry_headers(error.info)])


_PATH = "/api/session"
_NEXT = parameter("next", "query", "The path to go to afterwards.")
_PROVIDER_PARAMETERS = [
    parameter(name, "query", "A parameter of the provider's response.") for name in ("code", "state", "error")
]
_PAGES = (400, 401, 403, 404, 429, 503)


def _redirect_operation(path: str, handler: Any, operation_id: str, summary: str, *parameters: Schema) -> Operation:
    """Return an operation that browsers navigate to, and that no script calls."""
    return Operation(
        "GET",
        path,
        handler,
        operation_id,
        summary,
        parameters=parameters,
        status=303,
        description="Redirect",
        error_statuses=(*_PAGES, 500),
        page_statuses=_PAGES,
    )


TABLE = Table(
    [
        Operation(
            "GET",
            _PATH,
            SessionHandlers.read,
            "session",
            "Whether the person is signed in, and how to sign in",
            response_body=Session,
        ),
        Operation(
            "POST",
            _PATH,
            SessionHandlers.sign_in,
            "signIn",
            "Sign in with an API key",
            response_body=Session,
            request_body=SignIn,
            error_statuses=(400, 401, 403, 408, 413, 429, 500, 503),
        ),
        Operation("DELETE", _PATH, SessionHandlers.sign_out, "signOut", "Sign out", response_body=Session),
        _redirect_operation(oidc.PATH, SessionHandlers.begin_sign_in, "beginSignIn", "Redirect to the provider", _NEXT),
        _redirect_operation(
            oidc.CALLBACK, SessionHandlers.callback, "endSignIn", "Return from the provider", *_PROVIDER_PARAMETERS
        ),
    ],
    protocol=chat.PROTOCOL,
    metrics_name="session",
    error_body="ChatErrorBody",
    error_statuses=(400, 403, 500, 503),
    security=(),
)
"""Its endpoints have no guard: people have yet to sign in."""


def routes(services: Services) -> list[BaseRoute]:
    """Return the routes of the table. Their responses have the headers of CORS, which the guard adds elsewhere."""

    def make_endpoint(_: Operation, handler: Handler) -> Endpoint:
        async def handle(exchange: Exchange) -> None:
            exchange.response_headers += services.guard.cors.headers(exchange.scope)
            await handler(exchange)

        return Endpoint(handle, CLIENT_PROTOCOLS[TABLE.protocol].error_format, TABLE.metrics_name)

    return TABLE.routes([SessionHandlers(services)], make_endpoint)
