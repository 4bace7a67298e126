"""`/api/session`: whether a person is signed in, and signing in and out, with an API key or with a provider.

What comes of it is a cookie that no script can read (`access.session`), which counts under `/api` alone. Signing in and
out is for pages of ours: nobody else's page may sign a person in as somebody, or out.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.routing import BaseRoute

from ...asgi import http
from ...errors import PellucidError, RequestError
from ...protocols import chat
from ...protocols.decoding import decode
from ..access import oidc, same_origin, session
from ..access.errors import AccessError, Header
from ..access.guard import Way
from ..access.policy import Principal
from ..access.session import cookie, cookie_header, over_https
from ..exchange import Door, Endpoint, Exchange
from ..page import notice
from ..routing import Operation, Schema, Table, parameter
from ..services import Services

_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]{2,45}\](:[0-9]{1,5})?")
_MAX_BODY = 16 * 1024


class Session(msgspec.Struct):
    signed_in: bool
    needed: Annotated[bool, Meta(description="Whether anybody has to sign in.")]
    ways: list[Way]
    name: Annotated[str | UnsetType, Meta(description="The key's name, or the person's.")] = UNSET


class SignIn(msgspec.Struct, forbid_unknown_fields=True):
    key: Annotated[str, Meta(description="An API key.")]


class Sessions:
    """The endpoints."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def read(self, exchange: Exchange) -> None:
        """Whether whoever asks is signed in, or need not be, and how they could."""
        guard = self._services.guard
        if not await guard.check(exchange.scope):
            try:
                await guard.admit(exchange.scope)
            except AccessError as error:
                if error.info.kind != "unauthorized":
                    raise
                # From elsewhere, and there are no keys: a person cannot do anything about it here.
                await self._told(exchange, needed=True)
                return
            await self._told(exchange, needed=False)
            return
        try:
            principal = await guard.admit(exchange.scope)
        except AccessError as error:
            if error.info.kind not in ("unauthorized", "forbidden"):
                raise
            await self._told(exchange, needed=True)
            return
        await self._told(exchange, needed=True, principal=principal)

    async def sign_in(self, exchange: Exchange) -> None:
        """With a key."""
        guard, scope = self._services.guard, exchange.scope
        same_origin.check_not_foreign(scope)
        needed = await guard.check(scope)
        key = decode(await http.read_body(scope, exchange.receive, _MAX_BODY, self._patience), SignIn).key
        if not needed:
            await self._told(exchange, needed=False)
            return
        await guard.attempts.take(scope)
        principal, value = await guard.sign_in(key)
        await guard.attempts.give_back(scope)
        exchange.watch.principal = principal
        exchange.headers.append(self._session_cookie(value, secure=over_https(scope)))
        await self._told(exchange, needed=True, principal=principal)

    async def sign_out(self, exchange: Exchange) -> None:
        """The cookie goes; whatever the provider thinks is between it and the person."""
        same_origin.check_not_foreign(exchange.scope)
        needed = await self._services.guard.check(exchange.scope)
        exchange.headers.append(self._session_cookie("", secure=over_https(exchange.scope)))
        await self._told(exchange, needed=needed)

    # --- with a provider -----------------------------------------------------------------------------------------

    async def begin(self, exchange: Exchange) -> None:
        """To the provider."""
        try:
            base = _base(exchange)
            await self._services.guard.attempts.take(exchange.scope)
            location, value = await self._provider().begin(base, exchange.asked("next"))
        except PellucidError as error:
            await _told_to_person(exchange, error)
            return
        await self._services.guard.attempts.give_back(exchange.scope)
        secure = over_https(exchange.scope) or self._based_on_https
        kept = cookie_header(oidc.COOKIE, value, path=oidc.PATH, seconds=oidc.SECONDS, same_site="Lax", secure=secure)
        await _go(exchange, location, [kept])

    async def callback(self, exchange: Exchange) -> None:
        """Back from the provider."""
        guard, scope = self._services.guard, exchange.scope
        secure = over_https(scope) or self._based_on_https
        # Good for one answer, whatever comes of it.
        gone = cookie_header(oidc.COOKIE, "", path=oidc.PATH, seconds=0, same_site="Lax", secure=secure)
        try:
            await guard.attempts.take(scope)
            who, next_ = await self._provider().finish(dict(exchange.query), cookie(scope, oidc.COOKIE))
            await guard.attempts.give_back(scope)
        except PellucidError as error:
            await _told_to_person(exchange, error, [gone])
            return
        assert guard.sessions is not None
        value = guard.sessions.write(guard.sessions.by_provider(who))
        exchange.watch.principal = Principal(who.owner, None, who.name)
        await _go(exchange, next_, [gone, self._session_cookie(value, secure=secure)])

    # --- what they share -----------------------------------------------------------------------------------------

    async def _told(self, exchange: Exchange, *, needed: bool, principal: Principal | None = None) -> None:
        name = principal.name if principal is not None else None
        ways = await self._services.guard.ways() if needed else []
        exchange.headers.append((b"cache-control", b"no-store"))
        await exchange.answer(Session(principal is not None, needed, ways, name or UNSET))

    def _session_cookie(self, value: str, *, secure: bool) -> Header:
        sessions = self._services.guard.sessions
        seconds = sessions.seconds if sessions is not None and value else 0
        return cookie_header(
            session.COOKIE, value, path=session.PATH, seconds=seconds, same_site="Strict", secure=secure
        )

    def _provider(self) -> oidc.Oidc:
        provider = self._services.guard.oidc
        if provider is None:
            raise RequestError(
                "nobody signs in with a provider here; the operator can name one in [access.oidc]",
                kind="not_found",
                code="no_provider",
            )
        return provider

    @property
    def _patience(self) -> float:
        return self._services.config.server.request_seconds

    @property
    def _based_on_https(self) -> bool:
        named = self._services.config.access.oidc
        return named is not None and (named.redirect_base or "").startswith("https://")


def _base(exchange: Exchange) -> str:
    """The origin at which the browser asked."""
    host = exchange.header("host") or ""
    if not _HOST.fullmatch(host):
        raise RequestError("the request's Host is no host's name", code="invalid_host")
    return f"{exchange.scope['scheme']}://{host}"


async def _go(exchange: Exchange, location: str, headers: list[Header]) -> None:
    exchange.started = True
    exchange.watch.status = 303
    headers = [
        (b"location", location.encode("latin-1")),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
        *headers,
        *exchange.headers,
    ]
    await http.send_body(exchange.send, 303, b"", "text/plain; charset=utf-8", headers)


async def _told_to_person(exchange: Exchange, error: PellucidError, headers: list[Header] | None = None) -> None:
    """Whoever is here came by a link, not by a script."""
    exchange.watch.error = error.info.kind
    await notice(exchange, error.info, [*(headers or []), *http.retry_after(error.info)])


_PATH = "/api/session"
_NEXT = parameter("next", "query", "The path to go on with afterwards.")
_SAID = [parameter(name, "query", "What the provider says.") for name in ("code", "state", "error")]
_PAGES = (400, 401, 403, 404, 429, 503)


def _way(path: str, endpoint: Any, id: str, summary: str, *parameters: Schema) -> Operation:
    """For a browser that goes there, not for a script."""
    what = Operation("GET", path, endpoint, id, summary, None, parameters, status=303, description="Go on there")
    return what._replace(refuses=(*_PAGES, 500), pages=_PAGES)


TABLE = Table(
    [
        Operation("GET", _PATH, Sessions.read, "session", "Whether somebody is signed in, and how to", Session),
        Operation(
            *("POST", _PATH, Sessions.sign_in, "signIn", "Sign in with an API key", Session, (), SignIn),
            refuses=(400, 401, 403, 408, 413, 429, 500, 503),
        ),
        Operation("DELETE", _PATH, Sessions.sign_out, "signOut", "Sign out", Session),
        _way(oidc.PATH, Sessions.begin, "beginSignIn", "To the provider with which people sign in", _NEXT),
        _way(oidc.CALLBACK, Sessions.callback, "endSignIn", "Back from the provider", *_SAID),
    ],
    error="ChatErrorBody",
    refuses=(400, 403, 500, 503),
    security=(),
)
"""No guard stands before them: whoever is here has yet to say who they are."""


def routes(services: Services) -> list[BaseRoute]:
    def door(_: Operation, endpoint: Endpoint) -> Door:
        async def answering(exchange: Exchange) -> None:
            exchange.headers += services.guard.cors.headers(exchange.scope)
            await endpoint(exchange)

        return Door(answering, chat, protocol="session")

    return TABLE.routes([Sessions(services)], door)
