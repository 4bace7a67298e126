"""Cookies: read from a request, and written for its answer. No script can read one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from .errors import Header, unauthorized

MAX_COOKIE = 4096
"""Bytes; browsers keep no longer ones."""


def cookie(scope: Mapping[str, Any], name: str) -> str | None:
    """Its value. Raises `AccessError` (unauthorized) for two that differ: a neighbour's page can have set one."""
    start, found = name.encode() + b"=", set()
    for header, value in scope["headers"]:
        if header == b"cookie":
            pairs = (pair.strip() for pair in value.split(b";"))
            found |= {pair[len(start) :] for pair in pairs if pair.startswith(start)}
    found.discard(b"")
    if not found:
        return None
    if len(found) > 1:
        raise unauthorized(f"the request brings two different cookies {name}; delete them both", "invalid_credentials")
    value = found.pop()
    return value.decode() if len(value) <= MAX_COOKIE and value.isascii() else None


def cookie_header(
    name: str, value: str, *, path: str, seconds: float, same_site: Literal["Strict", "Lax"], secure: bool
) -> Header:
    """Sets it; with no `seconds`, takes it away."""
    text = f"{name}={value}; Path={path}; Max-Age={int(seconds)}; HttpOnly; SameSite={same_site}"
    return b"set-cookie", (text + "; Secure" if secure else text).encode()


def over_https(scope: Mapping[str, Any]) -> bool:
    """Whether the browser came over https, as far as can be told: what stands before us may have ended it."""
    return scope.get("scheme") == "https" or dict(scope["headers"]).get(b"origin", b"").startswith(b"https://")
