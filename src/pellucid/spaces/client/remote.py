"""Where a space is: its WebSocket and its HTTP, out of whatever URL somebody was given for it. And its history, over
HTTP, for one token: pages, search, export, replay.

    ws://host:8080/spaces/review/ws     http://host:8080/spaces/review     ws://host:8080/ws?space=review
    http://host:8080, with the space's name beside it
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import aiohttp
import msgspec

from ...envelopes.envelope import Envelope, EnvelopeError
from ...envelopes.translate import read
from ...errors import ERROR_KINDS, ErrorInfo, ErrorKind, PellucidError, RequestError

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


PAGE = 500

_STATUS: dict[int, ErrorKind] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    413: "too_large",
    429: "too_many_requests",
    503: "unavailable",
}


class RemotePage(msgspec.Struct, frozen=True):
    envelopes: list[Envelope]
    has_more: bool
    reached: int
    """Up to which number this is all that there is to be read."""


class SpaceReader:
    """Used as it is, or as `async with`, which closes its connections."""

    def __init__(self, where: Address, token: str, *, patience: float = 60.0) -> None:
        """`patience`: seconds for each answer."""
        self.address = where
        self._head = {"Authorization": f"Bearer {token}"}
        self._patience = patience
        self._session: aiohttp.ClientSession | None = None

    async def page(
        self,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = PAGE,
        newest: bool = False,
        **more: str | None,
    ) -> RemotePage:
        """What was said after and before these numbers (neither is in it), in order. `newest`: the last of it instead
        of the first. `more`: `view`, `kind`, `from`, `context`. Raises `PellucidError`."""
        body = await self.get(
            "/envelopes", after_seq=after_seq, before_seq=before_seq, limit=limit, newest=newest or None, **more
        )
        found = body.get("envelopes")
        if not isinstance(found, list):
            raise _foreign()
        envelopes = [_envelope(one) for one in found]
        last = body.get("last")
        reached = max(after_seq or 0, last if isinstance(last, int) else 0, *(one.seq for one in envelopes[-1:]))
        has_more = body.get("has_more") is True
        if not has_more and before_seq is not None:
            reached = max(reached, before_seq - 1)
        return RemotePage(envelopes, has_more, reached)

    async def post(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Say something without being there: `{id, seq, status, timestamp}`. Raises `PellucidError`."""
        return await self._json("POST", self.address.http("/envelopes"), envelope)

    async def get(self, path: str = "", **query: Any) -> dict[str, Any]:
        """Raises `PellucidError`."""
        return await self._json("GET", self.address.http(path, **query))

    async def lines(self, path: str, **query: Any) -> AsyncIterator[bytes]:
        """The lines of what comes as it is made: an export, a replay. Raises `PellucidError`."""
        # However long it takes: a replay may pause.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._patience)
        head = {**self._head, "Accept": "application/x-ndjson"}
        try:
            async with self._client().get(self.address.http(path, **query), headers=head, timeout=timeout) as response:
                if response.status >= 400:
                    raise PellucidError(problem(response.status, await response.read()))
                left = b""
                async for piece in response.content.iter_any():
                    *whole, left = (left + piece).split(b"\n")
                    for line in whole:
                        if line.strip():
                            yield line
                if left.strip():
                    yield left
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _nobody(self.address, error) from error

    async def _json(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        try:
            async with self._client().request(
                method,
                url,
                headers=self._head,
                data=None if body is None else msgspec.json.encode(body),
                timeout=aiohttp.ClientTimeout(self._patience),
            ) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _nobody(self.address, error) from error
        if status >= 400:
            raise PellucidError(problem(status, data))
        value = _decoded(data)
        if not isinstance(value, dict):
            raise _foreign()
        return value

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=True, headers={"Content-Type": "application/json"})
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> SpaceReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def problem(status: int, body: bytes) -> ErrorInfo:
    """What an HTTP answer says is wrong, in the gateway's words where there are some."""
    kind = _STATUS.get(status, "server_error" if status >= 500 else "invalid_request")
    message, code = f"the gateway answered with HTTP {status}", None
    said = _decoded(body)
    if isinstance(said, dict):
        error = said.get("error")
        told = error if isinstance(error, dict) else said
        if isinstance(told.get("message"), str):
            message = told["message"]
        code = told["code"] if isinstance(told.get("code"), str) else (error if isinstance(error, str) else None)
        kind = next((one for one in ERROR_KINDS if one == told.get("type")), kind)
    return ErrorInfo(kind, message, code=code, status=status)


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _nobody(where: Address, error: BaseException) -> PellucidError:
    why = f"nobody answers at {where.http()} ({type(error).__name__})"
    return PellucidError(ErrorInfo("unavailable", why, code="unreachable"))


def _foreign() -> PellucidError:
    why = "what answered is no gateway of spaces"
    return PellucidError(ErrorInfo("unavailable", why, code="not_a_gateway"))


def _envelope(value: Any) -> Envelope:
    try:
        return read(value)
    except EnvelopeError as error:
        raise _foreign() from error
