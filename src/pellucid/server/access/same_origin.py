"""Requests under `/api`, which browsers send: none counts that a page of somebody else's made a browser send.

* A browser says where a request comes from: `Sec-Fetch-Site` (which no page can set), or else `Origin`. Clients that
  are no browsers say neither.
* A cookie comes along whoever asked for the request, so with one it must be shown that the page was ours: always for
  what changes anything, and for the rest unless nothing was said.
* Where nobody needs a credential, what a foreign page sends is refused in the same manner; so is a name that somebody
  else points at this machine (DNS rebinding), also on requests that carry no `Origin`.
* A body is JSON and says so: a form, and a script's request that its browser asks nobody about, cannot say it.

Pure functions of the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import RequestError
from .errors import AccessError, forbidden

API_PREFIX = "/api/"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def is_api(scope: Mapping[str, Any]) -> bool:
    """Whether these rules hold for it."""
    return str(scope["path"]).startswith(API_PREFIX)


def is_own_page(scope: Mapping[str, Any]) -> bool | None:
    """Whether a page of ours sent this. None: no page at all (a person's address bar), or nothing is said."""
    headers = dict(scope["headers"])
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return None if site == b"none" else site == b"same-origin"
    if origin is not None:
        return bool(origin.partition(b"://")[2] == headers.get(b"host"))
    return None


def check_own_page(scope: Mapping[str, Any]) -> None:
    """A request that brings a cookie must be our own page's. Raises `AccessError` (forbidden)."""
    is_own = is_own_page(scope)
    if is_own is False or (is_own is None and scope.get("method") not in _SAFE_METHODS):
        raise _foreign_origin()


def check_not_foreign(scope: Mapping[str, Any]) -> None:
    """A foreign page must not have sent this, and it need not have been a page. Raises `AccessError` (forbidden)."""
    if is_own_page(scope) is False:
        raise _foreign_origin()


def check_json_body(scope: Mapping[str, Any]) -> None:
    """Raises `RequestError` for a body that does not say that it is JSON."""
    headers = dict(scope["headers"])
    if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
        return
    media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if media != b"application/json":
        hint = f"not {media[:60].decode('latin-1')!r}" if media else "and say so"
        raise RequestError(f"send the body as JSON, with Content-Type: application/json, {hint}", code="not_json")


def _foreign_origin() -> AccessError:
    return forbidden(
        "this request was not sent by this gateway's own page; from elsewhere, send an API key as Authorization: "
        "Bearer …",
        "foreign_origin",
    )
