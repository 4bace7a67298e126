"""The address of a space, from any of its URLs; a participant's token; and the history over HTTP, for one token.

    ws://host:8080/spaces/review/ws     http://host:8080/spaces/review     ws://host:8080/ws?space=review
    http://host:8080, with the name of the space as a separate argument

The history consists of pages, search, export and replay.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import msgspec

from ...envelopes.envelope import Envelope, EnvelopeError
from ...envelopes.translate import read
from ...envelopes.visibility import SpaceView
from ...errors import ERROR_KINDS, ErrorInfo, ErrorKind, PellucidError, RequestError

if TYPE_CHECKING:
    import aiohttp

_PLAIN_SCHEMES, _SECURE_SCHEMES = ("ws", "http"), ("wss", "https")
_PATH = re.compile(r"(?P<before>.*?)(?:/spaces/(?P<name>[^/]+)(?:/ws)?|/ws)?/?")


class SpaceAddress(NamedTuple):
    """One space of one gateway. `host` begins with `//` and includes any path before the gateway's own paths."""

    space: str
    host: str
    secure: bool

    def socket(self, **query: str | int | float | None) -> str:
        """Return the URL of the space's WebSocket."""
        scheme = "wss" if self.secure else "ws"
        return f"{scheme}:{self.host}/spaces/{quote(self.space, safe='')}/ws{_query(query)}"

    def http(self, path: str = "", **query: str | int | float | bool | None) -> str:
        """Return an HTTP URL.

        Args:
            path: Path under the space, like `/envelopes`.
            query: Query parameters. Those that are None are left out.
        """
        scheme = "https" if self.secure else "http"
        return f"{scheme}:{self.host}/spaces/{quote(self.space, safe='')}{path}{_query(query)}"


def parse_address(url: str, space: str | None = None) -> SpaceAddress:
    """Parse the URL of a space.

    Args:
        url: The URL of the space, or of the gateway.
        space: The name of the space, if the URL does not have it.

    Raises:
        RequestError: If the URL does not lead to a space.
    """
    parts = urlsplit(url)
    if parts.scheme not in _PLAIN_SCHEMES + _SECURE_SCHEMES or not parts.hostname:
        raise RequestError(
            f"url: {url!r} leads to no space: use a URL like http://host:8080/spaces/NAME",
            code="invalid_url",
            param="url",
        )
    if parts.username is not None or "token" in parse_qs(parts.query):
        raise RequestError("url: it must not hold a secret; pass the token separately", code="invalid_url", param="url")
    match = _PATH.fullmatch(parts.path)
    prefix, path_name = (match["before"], match["name"]) if match else (parts.path, None)
    query_name = parse_qs(parts.query).get("space", [None])[0]
    name = space or (unquote(path_name) if path_name else query_name)
    if not name:
        raise RequestError(
            f"url: {url!r} names no space: use a URL like http://host:8080/spaces/NAME, or pass the name separately",
            code="invalid_url",
            param="url",
        )
    return SpaceAddress(name, f"//{parts.netloc}{prefix}", parts.scheme in _SECURE_SCHEMES)


TOKEN_RULE = "a token has only ASCII characters, and no spaces"


def parse_token(token: str) -> str:
    """Return a participant's token without the spaces and line ends around it, which files and shells add.

    Raises:
        RequestError: If it cannot be a token.
    """
    stripped = token.strip()
    if not stripped:
        raise RequestError("token: must not be empty", param="token")
    if not (stripped.isascii() and stripped.isprintable() and " " not in stripped):
        raise RequestError(f"token: {TOKEN_RULE}", param="token")
    return stripped


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
    """A page of the history."""

    envelopes: list[Envelope]
    has_more: bool
    reached: int
    """Number up to which the page is complete."""
    head: int
    """Number of the newest envelope of the space."""


class HistoryReader(Protocol):
    """The history of a space, as one participant may read it."""

    async def page(
        self,
        *,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = PAGE_SIZE,
        newest: bool = False,
        **more: str | None,
    ) -> RemotePage:
        """Return envelopes between two numbers (see `SpaceReader.page`)."""
        ...

    async def contexts(self, *, view: SpaceView = "full", limit: int = 20) -> dict[str, Any]:
        """Return the newest contexts of reasoning, one line each, as JSON."""
        ...

    async def context(self, path: str, *, view: SpaceView = "full") -> dict[str, Any]:
        """Return a context of reasoning as a tree, as JSON."""
        ...

    async def aclose(self) -> None:
        """Release what it holds."""
        ...


class SpaceReader:
    """The history of a space over HTTP. Used directly, or as `async with`, which closes its connections."""

    def __init__(self, address: SpaceAddress, token: str, *, timeout_seconds: float = 60.0) -> None:
        """Create a reader.

        Args:
            address: Where the space is.
            token: The participant's token.
            timeout_seconds: Seconds to wait for each response.
        """
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"}
        self._timeout_seconds = timeout_seconds
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
        """Return envelopes between two numbers (both exclusive), in order.

        Args:
            after_seq: Only envelopes after this number.
            before_seq: Only envelopes before this number.
            limit: Maximum number of envelopes.
            newest: Return the last ones instead of the first ones.
            more: `view`, `kind`, `from`, `context`.

        Raises:
            PellucidError: If the gateway refuses or does not answer.
        """
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
        head = body.get("head")
        return RemotePage(envelopes, has_more, reached, head if isinstance(head, int) else reached)

    async def contexts(self, *, view: SpaceView = "full", limit: int = 20) -> dict[str, Any]:
        """Return the newest contexts of reasoning, one line each.

        Raises:
            PellucidError: If the gateway refuses or does not answer.
        """
        return await self.get("/contexts", view=view, limit=limit)

    async def context(self, path: str, *, view: SpaceView = "full") -> dict[str, Any]:
        """Return a context of reasoning as a tree.

        Raises:
            PellucidError: If the gateway refuses or does not answer, or there is no such context.
        """
        return await self.get(f"/contexts/{quote(path)}", view=view)

    async def post(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """Send an envelope without a connection. Returns `{id, seq, status, timestamp}`.

        Raises:
            PellucidError: If the gateway refuses or does not answer.
        """
        return await self._json("POST", self.address.http("/envelopes"), envelope)

    async def get(self, path: str = "", **query: Any) -> dict[str, Any]:
        """Return the JSON object at a path under the space.

        Raises:
            PellucidError: If the gateway refuses or does not answer.
        """
        return await self._json("GET", self.address.http(path, **query))

    async def lines(self, path: str, **query: Any) -> AsyncIterator[bytes]:
        """Yield the lines of a streamed response: an export or a replay.

        Raises:
            PellucidError: If the gateway refuses or does not answer.
        """
        import aiohttp  # a large package, which a gateway with spaces does not need

        # No total time-out: a replay may pause.
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
        import aiohttp

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
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(trust_env=True, headers={"Content-Type": "application/json"})
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> SpaceReader:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def error_from_response(status: int, body: bytes) -> ErrorInfo:
    """Convert an HTTP error response to an error, with the gateway's message if there is one."""
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


def _unreachable(address: SpaceAddress, error: BaseException) -> PellucidError:
    message = f"no answer from {address.http()} ({type(error).__name__})"
    return PellucidError(ErrorInfo("unavailable", message, code="unreachable"))


def _not_a_gateway() -> PellucidError:
    message = "the server is not a gateway with spaces"
    return PellucidError(ErrorInfo("unavailable", message, code="not_a_gateway"))


def _read_envelope(value: Any) -> Envelope:
    try:
        return read(value)
    except EnvelopeError as error:
        raise _not_a_gateway() from error
