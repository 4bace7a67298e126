"""Where a space is: its WebSocket and its HTTP, out of whatever URL somebody was given for it.

ws://host:8080/spaces/review/ws     http://host:8080/spaces/review     ws://host:8080/ws?space=review
http://host:8080, with the space's name beside it
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from ...errors import RequestError

_OPEN, _SECURE = ("ws", "http"), ("wss", "https")
_PATH = re.compile(r"(?P<before>.*?)(?:/spaces/(?P<name>[^/]+)(?:/ws)?|/ws)?/?")


class Address(NamedTuple):
    """One space of one gateway. `host` begins with `//` and has what comes before the gateway's own paths."""

    space: str
    host: str
    secure: bool

    def socket(self, **query: str | int | float | None) -> str:
        scheme = "wss" if self.secure else "ws"
        return f"{scheme}:{self.host}/spaces/{quote(self.space, safe='')}/ws{_query(query)}"

    def http(self, path: str = "", **query: str | int | float | bool | None) -> str:
        """`path`: under the space, like `/envelopes`."""
        scheme = "https" if self.secure else "http"
        return f"{scheme}:{self.host}/spaces/{quote(self.space, safe='')}{path}{_query(query)}"


def address(url: str, space: str | None = None) -> Address:
    """Raises `RequestError` for what leads to no space."""
    parts = urlsplit(url)
    if parts.scheme not in _OPEN + _SECURE or not parts.hostname:
        raise RequestError(
            f"url: {url!r} leads to no space: it is like http://host:8080/spaces/NAME", code="invalid_url", param="url"
        )
    if parts.username is not None or "token" in parse_qs(parts.query):
        raise RequestError("url: a secret has no place in a URL; give the token apart", code="invalid_url", param="url")
    found = _PATH.fullmatch(parts.path)
    before, named = (found["before"], found["name"]) if found else (parts.path, None)
    asked = parse_qs(parts.query).get("space", [None])[0]
    name = space or (unquote(named) if named else asked)
    if not name:
        raise RequestError(
            f"url: {url!r} names no space: it is like http://host:8080/spaces/NAME, or the space is named apart",
            code="invalid_url",
            param="url",
        )
    return Address(name, f"//{parts.netloc}{before}", parts.scheme in _SECURE)


def _query(values: Mapping[str, str | int | float | bool | None]) -> str:
    said = {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }
    return f"?{urlencode(said)}" if said else ""
