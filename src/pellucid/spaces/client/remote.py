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

_PLAIN_SCHEMES, _SECURE_SCHEMES = ("ws", "http"), ("wss", "https")
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


def parse_address(url: str, space: str | None = None) -> Address:
    """Raises `RequestError` for what leads to no space."""
    parts = urlsplit(url)
    if parts.scheme not in _PLAIN_SCHEMES + _SECURE_SCHEMES or not parts.hostname:
        raise RequestError(
            f"url: {url!r} leads to no space: it is like http://host:8080/spaces/NAME", code="invalid_url", param="url"
        )
    if parts.username is not None or "token" in parse_qs(parts.query):
        raise RequestError("url: a secret has no place in a URL; give the token apart", code="invalid_url", param="url")
    match = _PATH.fullmatch(parts.path)
    prefix, path_name = (match["before"], match["name"]) if match else (parts.path, None)
    query_name = parse_qs(parts.query).get("space", [None])[0]
    name = space or (unquote(path_name) if path_name else query_name)
    if not name:
        raise RequestError(
            f"url: {url!r} names no space: it is like http://host:8080/spaces/NAME, or the space is named apart",
            code="invalid_url",
            param="url",
        )
    return Address(name, f"//{parts.netloc}{prefix}", parts.scheme in _SECURE_SCHEMES)


def _query(values: Mapping[str, str | int | float | bool | None]) -> str:
    params = {
        name: ("true" if value else "false") if isinstance(value, bool) else value
        for name, value in values.items()
        if value is not None
    }
    return f"?{urlencode(params)}" if params else ""


PAGE_SIZE = 500

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

    def __init__(self, address: Address, token: str, *, patience: float = 60.0) -> None:
        """`patience`: seconds for each answer."""
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout_seconds = patience
        self._session: aiohttp.ClientSession | None = None

    async def page(
        self,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = PAGE_SIZE,
        newest: bool = False,
        **more: str | None,
    ) -> RemotePage:
        """What was said after and before these numbers (neither is in it), in order. `newest`: the last of it instead
        of the first. `more`: `view`, `kind`, `from`, `context`. Raises `PellucidError`."""
        body = await self.get(
            "/envelopes", after_seq=after_seq, before_seq=before_seq, limit=limit, newest=newest or None, **more
        )
        rows = body.get("envelopes")
        if not isinstance(rows, list):
            raise _not_a_gateway()
        envelopes = [_read_envelope(one) for one in rows]
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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout_seconds)
        headers = {**self._headers, "Accept": "application/x-ndjson"}
        try:
            async with self._client().get(
                self.address.http(path, **query), headers=headers, timeout=timeout
            ) as response:
                if response.status >= 400:
                    raise PellucidError(error_from_response(response.status, await response.read()))
                remainder = b""
                async for piece in response.content.iter_any():
                    *complete, remainder = (remainder + piece).split(b"\n")
                    for line in complete:
                        if line.strip():
                            yield line
                if remainder.strip():
                    yield remainder
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.address, error) from error

    async def _json(self, method: str, url: str, body: Any = None) -> dict[str, Any]:
        try:
            async with self._client().request(
                method,
                url,
                headers=self._headers,
                data=None if body is None else msgspec.json.encode(body),
                timeout=aiohttp.ClientTimeout(self._timeout_seconds),
            ) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _unreachable(self.address, error) from error
        if status >= 400:
            raise PellucidError(error_from_response(status, data))
        value = _decode(data)
        if not isinstance(value, dict):
            raise _not_a_gateway()
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


def error_from_response(status: int, body: bytes) -> ErrorInfo:
    """What an HTTP answer says is wrong, in the gateway's words where there are some."""
    kind = _STATUS.get(status, "server_error" if status >= 500 else "invalid_request")
    message, code = f"the gateway answered with HTTP {status}", None
    decoded = _decode(body)
    if isinstance(decoded, dict):
        error = decoded.get("error")
        fields = error if isinstance(error, dict) else decoded
        if isinstance(fields.get("message"), str):
            message = fields["message"]
        code = fields["code"] if isinstance(fields.get("code"), str) else (error if isinstance(error, str) else None)
        kind = next((one for one in ERROR_KINDS if one == fields.get("type")), kind)
    return ErrorInfo(kind, message, code=code, status=status)


def _decode(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _unreachable(address: Address, error: BaseException) -> PellucidError:
    message = f"nobody answers at {address.http()} ({type(error).__name__})"
    return PellucidError(ErrorInfo("unavailable", message, code="unreachable"))


def _not_a_gateway() -> PellucidError:
    message = "what answered is no gateway of spaces"
    return PellucidError(ErrorInfo("unavailable", message, code="not_a_gateway"))


def _read_envelope(value: Any) -> Envelope:
    try:
        return read(value)
    except EnvelopeError as error:
        raise _not_a_gateway() from error
