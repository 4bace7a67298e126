"""The client of models' servers: a request goes out, a response comes back, and what can be tried again is.

* A request is tried again only while not a byte of a response has come: when connecting fails, when the connection
  closes without a word, or when the response is one of the statuses that say "not now". What a server requests in
  `Retry-After` is honoured, within `retry_wait`. A server that is silent for too long gets no second request: it may be
  at work.
* An idle connection may have been closed by the server in the moment of the request. Then the next try
  comes at once, and on a new connection.
* A response with an error status is a response. A redirect is one, too: the gateway's keys are sent nowhere else.
* Cancelling `open` closes the connection.

Streams go over connections of our own (`connection`); aiohttp is left with `get`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..errors import ErrorInfo, ModelError
from .connection import Connection
from .connector import ConnectError, Lookup
from .errors import (
    DisconnectError,
    InvalidResponse,
    InvalidURL,
    NoResponse,
    bad_url_error,
    not_http_error,
    origin_of,
    timeout_error,
    unreachable_error,
)
from .limits import Limits
from .pool import Pool
from .request import Endpoint, encode_head, parse_url, wants_close
from .response import UpstreamResponse

if TYPE_CHECKING:
    import aiohttp

RETRY_STATUSES = frozenset({408, 429, 502, 503, 504, 529})


class UpstreamClient:
    """Sends requests to models' servers. One for each loop; `aclose` it at the end."""

    def __init__(self, limits: Limits | None = None, *, lookup: Lookup | None = None) -> None:
        """
        Args:
            limits: for requests that come without their own.
            lookup: how a host's name becomes addresses. By default the system's resolver.
        """
        self.limits = limits or Limits()
        self.is_closed = False
        self._pool = Pool(lookup)
        self._session: aiohttp.ClientSession | None = None

    @property
    def idle_connections(self) -> int:
        """The number of idle connections, which wait for the next request."""
        return self._pool.idle_count

    async def open(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: Limits | None = None,
        total_seconds: float | None = None,
    ) -> UpstreamResponse:
        """POST `body` and wait for the response's head.

        Args:
            url: sent to the letter.
            headers: sent besides the client's own.
            body: the whole of it.
            limits: in place of the client's.
            total: how many seconds all of it may take, tries and reading included.

        Raises:
            ModelError: there is no response.
            ValueError: a header contains a control character.
        """
        limits = limits or self.limits
        if total_seconds is None:
            return await retry(limits, lambda is_first: self._attempt(url, headers, body, limits, is_first))
        deadline = asyncio.get_running_loop().time() + total_seconds
        try:
            async with asyncio.timeout_at(deadline):
                response = await retry(limits, lambda is_first: self._attempt(url, headers, body, limits, is_first))
        except TimeoutError as error:
            raise ModelError(timeout_error("timeout", total_seconds), address=origin_of(url)) from error
        response.end_by(deadline, total_seconds)
        return response

    async def get(self, url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Send a small GET, for what surrounds the calls (a list of models).

        Returns: the status and the body.

        Raises:
            ModelError: there is no response within `limits.connect`.
        """
        import aiohttp  # a large package, and many gateways never need it

        try:
            async with (
                asyncio.timeout(self.limits.connect),
                self._aiohttp_session().get(url, headers=headers) as response,
            ):
                return response.status, await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ModelError(unreachable_error(error), address=origin_of(url)) from error

    async def aclose(self) -> None:
        """Close every connection, also under responses that are still read. Idempotent."""
        self.is_closed = True
        self._pool.close()
        if self._session is not None:
            await self._session.close()

    async def _attempt(
        self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits, is_first: bool
    ) -> UpstreamResponse:
        """Send the request once, on an idle connection only if it is the first try."""
        if self.is_closed:
            raise RuntimeError("the client is closed")
        try:
            target = parse_url(url)
        except InvalidURL as error:
            raise ModelError(bad_url_error(), address=origin_of(url)) from error
        head = encode_head(target, headers, len(body))
        sent_at = asyncio.get_running_loop().time()
        connection = self._pool.acquire(target.endpoint) if is_first else None
        try:
            async with asyncio.timeout(limits.first_byte):
                if connection is None:
                    connection = await self._connect(url, target.endpoint, limits)
                response_head = await connection.send(head, body, keeps_alive=not wants_close(headers))
            return UpstreamResponse(connection, response_head, limits, sent_at, self._pool.release)
        except TimeoutError as error:
            raise ModelError(timeout_error("first_byte_timeout", limits.first_byte), address=origin_of(url)) from error
        except InvalidResponse as error:
            if connection is not None:
                connection.close()
            raise ModelError(not_http_error(error), address=origin_of(url)) from error
        except DisconnectError as error:
            was_kept_alive = connection is not None and connection.has_served
            raise _disconnect_error(error, origin_of(url), was_kept_alive) from (error.cause or error)

    async def _connect(self, url: str, endpoint: Endpoint, limits: Limits) -> Connection:
        timeout = asyncio.timeout(limits.connect)
        try:
            async with timeout:
                return await self._pool.connect(endpoint)
        except TimeoutError as error:
            detail = f"no connection within {limits.connect:g} s"
            raise NoResponse(unreachable_error(error, detail), origin_of(url)) from error
        except ConnectError as error:
            raise NoResponse(unreachable_error(error.cause), origin_of(url)) from error.cause

    def _aiohttp_session(self) -> aiohttp.ClientSession:
        import aiohttp

        # Made on first use: aiohttp wants a running loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class Retriable(Protocol):
    """What `retry` needs to know of a response."""

    @property
    def status(self) -> int: ...

    @property
    def retry_after(self) -> float | None: ...

    def close(self) -> None: ...


R = TypeVar("R", bound=Retriable)


async def retry(limits: Limits, attempt: Callable[[bool], Awaitable[R]]) -> R:
    """Send a request until there is a response that is not worth another try.

    Args:
        limits: its `retries` and `retry_wait`.
        attempt: sends it once; is called with whether this is the first try.

    Raises:
        ModelError: the last try's, or one that no other try can help.
    """
    retry_count = 0
    while True:
        is_last = retry_count >= limits.retries
        try:
            response = await attempt(retry_count == 0)
        except NoResponse as error:
            if is_last:
                raise ModelError(error.info, address=error.address) from error.__cause__
            wait_seconds = 0.0 if error.was_kept_alive else min(0.25 * 2**retry_count, limits.retry_wait)
        else:
            if is_last or response.status not in RETRY_STATUSES:
                return response
            requested_seconds = response.retry_after
            if requested_seconds is not None and requested_seconds > limits.retry_wait:
                return response
            response.close()
            wait_seconds = (
                requested_seconds if requested_seconds is not None else min(0.5 * 2**retry_count, limits.retry_wait)
            )
        retry_count += 1
        await asyncio.sleep(wait_seconds)


def _disconnect_error(error: DisconnectError, where: str, was_kept_alive: bool) -> ModelError:
    info: ErrorInfo
    if error.cause is not None:
        info = unreachable_error(error.cause)
    elif error.has_begun:
        info = unreachable_error(error, "it closed the connection in mid-answer")
    else:
        info = unreachable_error(error, "it closed the connection without an answer")
    if error.has_begun:
        return ModelError(info, address=where)
    return NoResponse(info, where, was_kept_alive=was_kept_alive)
