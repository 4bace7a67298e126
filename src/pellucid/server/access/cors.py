"""CORS: web pages of other origins may use the gateway only if `[access.cors]` names their origin.

* A browser sends the origin of a page (`Origin`). Other clients do not, and are not checked.
* Origins are compared literally. `*` allows every page that has a key, without the browser's own credentials.
* Where no credentials are required, a page can also come from a name that its owner points at this machine (DNS
  rebinding), and look like our own page. So there, our own page is only one that was requested at an address or at
  localhost. Under `/api` this also holds for requests without `Origin`, which browsers leave out of the GETs of a page.

These are pure functions of the request's headers. Every response to a page, streamed or not, carries `headers`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from .config import CorsConfig
from .errors import HTTPHeader, forbidden
from .same_origin import is_api

ALLOWED_METHODS = b"GET, POST, PATCH, DELETE, OPTIONS"
EXPOSED_HEADERS = b"x-request-id, retry-after, www-authenticate, pellucid-warning, " + b", ".join(
    b"x-ratelimit-%s-%s" % (what, name)
    for name in (b"requests", b"tokens", b"reasoning-tokens")
    for what in (b"limit", b"remaining", b"reset")
)
PREFLIGHT_SECONDS = b"600"

_HOST = re.compile(r"(?:\[(?P<bracketed>[^][]*)\]|(?P<name>[^][:]*))(?::[0-9]*)?")
"""A Host: a name or an address, optionally with a port, and nothing else."""


class Cors:
    """The checks and response headers for one configuration."""

    def __init__(self, config: CorsConfig | None = None) -> None:
        config = config or CorsConfig()
        self._origins = frozenset(origin.encode() for origin in config.origins)
        self._hosts = frozenset(origin.partition(b"://")[2] for origin in self._origins)
        self._allows_all = b"*" in self._origins
        self._credentials = config.credentials and not self._allows_all

    def check(self, scope: Mapping[str, Any], *, unauthenticated: bool = False) -> None:
        """Refuse a page of another origin, over HTTP and WebSocket.

        Args:
            scope: the ASGI scope of the request.
            unauthenticated: whether this request is served without credentials.

        Raises:
            AccessError: forbidden.
        """
        request_headers = dict(scope["headers"])
        origin, host = request_headers.get(b"origin"), request_headers.get(b"host", b"")
        if (
            unauthenticated
            and is_api(scope)
            and not (self._allows_all or host in self._hosts or _cannot_be_rebound(host))
        ):
            raise forbidden(
                "this gateway has no keys, so it can only be used at an address or at localhost; for another name, put "
                "its origin into access.cors.origins",
                "foreign_origin",
            )
        if origin is None or self._is_named_origin(origin):
            return
        if origin.partition(b"://")[2] != host or (unauthenticated and not _cannot_be_rebound(host)):
            raise forbidden(
                "this request comes from a web page of another origin, which access.cors.origins does not name",
                "foreign_origin",
            )

    def is_from_named_origin(self, scope: Mapping[str, Any]) -> bool:
        """Return whether the request comes from a page whose origin the operator named."""
        origin = dict(scope["headers"]).get(b"origin")
        return origin is not None and self._is_named_origin(origin)

    def headers(self, scope: Mapping[str, Any]) -> list[HTTPHeader]:
        """Return the headers that every response to this request carries, errors and streams too."""
        if not self._origins:
            return []
        if self._allows_all:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", EXPOSED_HEADERS)]
        # Sent to all clients: a cache must not give one page the response that was made for another.
        vary = (b"vary", b"origin")
        origin = dict(scope["headers"]).get(b"origin")
        if origin is None or not self._is_named_origin(origin):
            return [vary]
        headers = [(b"access-control-allow-origin", origin), vary, (b"access-control-expose-headers", EXPOSED_HEADERS)]
        if self._credentials:
            headers.append((b"access-control-allow-credentials", b"true"))
        return headers

    def preflight(self, scope: Mapping[str, Any]) -> list[HTTPHeader] | None:
        """Return the headers of the empty response (204) to a preflight request; None if the request is not one.

        For an origin that is not named, the response allows nothing, so its browser sends no request.
        """
        request_headers = dict(scope["headers"])
        if (
            scope.get("method") != "OPTIONS"
            or b"access-control-request-method" not in request_headers
            or b"origin" not in request_headers
        ):
            return None
        headers = [header for header in self.headers(scope) if header[0] != b"access-control-expose-headers"]
        if not self._is_named_origin(request_headers[b"origin"]):
            return headers
        headers += [(b"access-control-allow-methods", ALLOWED_METHODS), (b"access-control-max-age", PREFLIGHT_SECONDS)]
        # A named origin may send any header: SDKs send many of their own.
        if requested := request_headers.get(b"access-control-request-headers"):
            headers.append((b"access-control-allow-headers", requested))
        return headers

    def _is_named_origin(self, origin: bytes) -> bool:
        return self._allows_all or origin in self._origins


def _cannot_be_rebound(host: bytes) -> bool:
    """Return whether a Host is an address or localhost: their owner cannot point them at another machine."""
    match = _HOST.fullmatch(host.decode("latin-1").lower())
    if match is None:
        return False
    name = match["bracketed"] or match["name"] or ""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
