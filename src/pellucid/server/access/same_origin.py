"""Checks of requests under `/api`, which browsers send: requests that a foreign page caused are refused.

* A browser sends the origin of a request: `Sec-Fetch-Site` (which no page can set), or else `Origin`. Other clients
  send neither.
* A browser sends cookies with every request, whichever page caused it. So a request with a cookie must come from our
  own page: always if it changes anything, and otherwise unless neither header is present.
* Where no credentials are required, requests of foreign pages are refused in the same way. So are requests under a
  foreign name that points at this machine (DNS rebinding), also without `Origin`.
* A body must be JSON and be declared as JSON. A form cannot declare that, nor can a script's request that is sent
  without a preflight.

These are pure functions of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import RequestError
from .errors import AccessError, forbidden

API_PREFIX = "/api/"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def is_api(scope: Mapping[str, Any]) -> bool:
    """Return whether these rules apply to the request."""
    return str(scope["path"]).startswith(API_PREFIX)


def is_own_page(scope: Mapping[str, Any]) -> bool | None:
    """Return whether our own page sent the request.

    None: no page sent it (a person's address bar), or neither header is present.
    """
    headers = dict(scope["headers"])
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return None if site == b"none" else site == b"same-origin"
    if origin is not None:
        return bool(origin.partition(b"://")[2] == headers.get(b"host"))
    return None


def check_own_page(scope: Mapping[str, Any]) -> None:
    """Check that a request with a cookie comes from our own page. Raises `AccessError` (forbidden)."""
    is_own = is_own_page(scope)
    if is_own is False or (is_own is None and scope.get("method") not in _SAFE_METHODS):
        raise _foreign_origin()


def check_not_foreign(scope: Mapping[str, Any]) -> None:
    """Check that no foreign page sent the request; it need not come from a page. Raises `AccessError` (forbidden)."""
    if is_own_page(scope) is False:
        raise _foreign_origin()


def check_json_body(scope: Mapping[str, Any]) -> None:
    """Check that a body is declared as JSON. Raises `RequestError`."""
    headers = dict(scope["headers"])
    if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
        return
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        hint = f"not {media[:60].decode('latin-1')!r}" if media else "which is missing"
        raise RequestError(f"send the body as JSON, with Content-Type: application/json, {hint}", code="not_json")


def _foreign_origin() -> AccessError:
    return forbidden(
        "this request was not sent by this gateway's own page; from elsewhere, send an API key as Authorization: "
        "Bearer …",
        "foreign_origin",
    )
