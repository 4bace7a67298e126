"""Which web pages may use the gateway: CORS, and checks of requests that browsers send.

CORS (`Cors`): pages of other origins may use the gateway only if `[access.cors]` names their origin.

* A browser sends the origin of a page (`Origin`). Other clients do not, and are not checked.
* Origins are compared literally. `*` allows every page that has a key, without the browser's own credentials.
* Where no credentials are required, a page can also come from a name that its owner points at this machine (DNS
  rebinding), and look like our own page. So there, the `Host` of every request is checked (`pellucid.asgi.host`).

Under `/api`, requests that a foreign page caused are refused:

* A browser sends the origin of a request: `Sec-Fetch-Site` (which no page can set), or else `Origin`. Other clients
  send neither.
* A browser sends cookies with every request, whichever page caused it. So a request with a cookie must come from our
  own page: always if it changes anything, and otherwise unless neither header is present.
* Where no credentials are required, requests of foreign pages are refused in the same way.
* A body must be JSON and be declared as JSON. A form cannot declare that, nor can a script's request that is sent
  without a preflight.

These are pure functions of the request's headers. Every response to a page, streamed or not, carries `headers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...asgi.host import foreign_origin_message, is_same_origin, origin_of
from ...errors import RequestError
from ...unicode import truncate
from .config import CorsConfig
from .errors import AccessError, HTTPHeader, forbidden

ALLOWED_METHODS = b"GET, POST, PATCH, DELETE, OPTIONS"
EXPOSED_HEADERS = b"x-request-id, retry-after, www-authenticate, pellucid-warning, " + b", ".join(
    b"x-ratelimit-%s-%s" % (what, name)
    for name in (b"requests", b"tokens", b"reasoning-tokens")
    for what in (b"limit", b"remaining", b"reset")
)
PREFLIGHT_SECONDS = b"600"
API_PREFIX = "/api/"
_SETTING = "access.cors.origins"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Cors:
    """The checks and response headers for one configuration."""

    def __init__(self, config: CorsConfig) -> None:
        self._origins = frozenset(origin.encode() for origin in config.origins)
        self._allows_all = b"*" in self._origins
        self._credentials = config.credentials and not self._allows_all

    def check(self, scope: Mapping[str, Any]) -> None:
        """Refuse a page of another origin, over HTTP and WebSocket. Raises `AccessError` (forbidden)."""
        if is_same_origin(scope) is False and not self.is_from_named_origin(scope):
            raise forbidden(foreign_origin_message(origin_of(scope) or "", _SETTING), "foreign_origin")

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
        if scope.get("method") != "OPTIONS":
            return None
        request_headers = dict(scope["headers"])
        if b"access-control-request-method" not in request_headers or b"origin" not in request_headers:
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


def is_api(scope: Mapping[str, Any]) -> bool:
    """Return whether these rules apply to the request."""
    return str(scope["path"]).startswith(API_PREFIX)


def is_own_page(scope: Mapping[str, Any]) -> bool | None:
    """Return whether our own page sent the request.

    None: no page sent it (a person's address bar), or neither header is present.
    """
    site = dict(scope["headers"]).get(b"sec-fetch-site")
    if site is not None:
        return None if site == b"none" else site == b"same-origin"
    return is_same_origin(scope)


def check_own_page(scope: Mapping[str, Any]) -> None:
    """Check that a request with a cookie comes from our own page. Raises `AccessError` (forbidden)."""
    is_own = is_own_page(scope)
    if is_own is False or (is_own is None and scope.get("method") not in _SAFE_METHODS):
        raise _foreign_origin(scope)


def check_not_foreign(scope: Mapping[str, Any]) -> None:
    """Check that no foreign page sent the request; it need not come from a page. Raises `AccessError` (forbidden)."""
    if is_own_page(scope) is False:
        raise _foreign_origin(scope)


def check_json_body(scope: Mapping[str, Any]) -> None:
    """Check that a body is declared as JSON. Raises `RequestError`."""
    headers = dict(scope["headers"])
    if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
        return
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        hint = f"not {media[:60].decode('latin-1')!r}" if media else "which is missing"
        raise RequestError(f"send the body as JSON, with Content-Type: application/json, {hint}", code="not_json")


def _foreign_origin(scope: Mapping[str, Any]) -> AccessError:
    origin = origin_of(scope)
    page = f", but by one of the origin {truncate(origin)!r}" if origin is not None else ""
    return forbidden(
        f"this request was not sent by this gateway's own page{page}; from elsewhere, send an API key as "
        f"Authorization: Bearer …, and other pages must be in {_SETTING}",
        "foreign_origin",
    )
