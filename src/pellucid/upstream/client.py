"""HTTP client for model servers: sends a request, returns the response, retries where that is safe.

* A request is retried when connecting fails, when the connection closes before the first byte of a response, or when
  the status is one of `RETRY_STATUSES`, after a wait with jitter. `Retry-After` is honoured up to `retry_wait`. A
  request that times out is not retried, because the server may still be working on it.
* The server may close an idle connection at the moment when a request is sent on it. That request is sent again at
  once, on a new connection. This is not counted as a retry.
* A response with an error status is returned like any other. So is a redirect: it is not followed, so the gateway's
  keys are sent to no other server.
* Cancelling `open` closes the connection.

Streams use this package's own connections (`connection`). Only `get` uses aiohttp.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ..egress import EgressPolicy
from ..errors import ErrorInfo, ModelError
from .connection import Connection
from .connector import Lookup, Pool
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
from .hops import hops_headers
from .limits import Limits
from .request import Endpoint, encode_head, parse_url, wants_close
from .response import UpstreamResponse

if TYPE_CHECKING:
    import aiohttp
    from aiohappyeyeballs import AddrInfoType

MAX_LIST_BYTES = 16 * 1024 * 1024
"""The size of a response to a GET request, for example a list of models."""

RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 529})


class UpstreamClient:
    """Sends requests to model servers.

    Create one client for each event loop, and call `aclose` when it is no longer used.
    """

    def __init__(
        self, limits: Limits | None = None, *, lookup: Lookup | None = None, policy: EgressPolicy | None = None
    ) -> None:
        """Create a client without connections.

        Args:
            limits: Time limits and retries for requests that have no limits of their own.
            lookup: Resolves a host name to addresses. By default, the system's resolver.
            policy: Decides which addresses may be connected to, for URLs that the operator's file does not name. Each
                request raises `EgressError` for another one. By default, all may.
        """
        self.limits = limits or Limits()
        self.is_closed = False
        self._policy = policy
        self._pool = Pool(lookup if policy is None else _checked_lookup(policy))
        self._session: aiohttp.ClientSession | None = None

    @property
    def idle_connections(self) -> int:
        """The number of open connections that carry no request."""
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
            url: The URL. It is sent exactly as it is written.
            headers: Header fields, sent in addition to the client's own.
            body: The complete request body.
            limits: Time limits and retries for this request, instead of the client's.
            total_seconds: Limit for the whole exchange, including retries and reading the body.

        Returns:
            The response. Its body has not been read.

        Raises:
            ModelError: No response arrived.
            ValueError: A header contains a control character.
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
        """Send a GET request with a small response, for example a list of models.

        Returns:
            The status and the body.

        Raises:
            ModelError: No response arrived within `limits.connect`, or one larger than `MAX_LIST_BYTES`.
        """
        import aiohttp  # imported here because it is large, and many gateways never use it

        if self._policy is not None:
            self._policy.check_url(url)
        try:
            async with (
                asyncio.timeout(self.limits.connect),
                # A redirect could take the headers, and the keys in them, to another server.
                self._aiohttp_session().get(url, headers=headers, allow_redirects=False) as response,
            ):
                body = bytearray()
                async for piece in response.content.iter_any():
                    body += piece
                    if len(body) > MAX_LIST_BYTES:
                        raise ModelError(ErrorInfo("model_error", "the response is too large"), address=origin_of(url))
                return response.status, bytes(body)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ModelError(unreachable_error(error), address=origin_of(url)) from error

    async def aclose(self) -> None:
        """Close every connection, including those whose response is still being read. Idempotent."""
        self.is_closed = True
        self._pool.close()
        if self._session is not None:
            await self._session.close()

    async def _attempt(
        self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits, is_first: bool
    ) -> UpstreamResponse:
        """Send the request once. Only the first attempt uses an idle connection."""
        if self.is_closed:
            raise RuntimeError("the client is closed")
        if self._policy is not None:
            self._policy.check_url(url)
        try:
            target = parse_url(url)
        except InvalidURL as error:
            raise ModelError(bad_url_error(), address=origin_of(url)) from error
        headers = {**headers, **hops_headers(is_connection=self._policy is not None)}
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
            was_kept_alive = connection is not None and connection.has_served and not self.is_closed
            raise _disconnect_error(error, origin_of(url), was_kept_alive) from (error.cause or error)

    async def _connect(self, url: str, endpoint: Endpoint, limits: Limits) -> Connection:
        try:
            async with asyncio.timeout(limits.connect) as timeout:
                return await self._pool.connect(endpoint)
        except (OSError, UnicodeError) as error:
            detail = f"no connection within {limits.connect:g} s" if timeout.expired() else ""
            raise NoResponse(unreachable_error(error, detail), origin_of(url)) from error

    def _aiohttp_session(self) -> aiohttp.ClientSession:
        import aiohttp

        # Created on first use, because aiohttp needs a running event loop.
        if self._session is None:
            from ..egress.connector import EgressConnector

            self._session = aiohttp.ClientSession(
                connector=None if self._policy is None else EgressConnector(self._policy),
                timeout=aiohttp.ClientTimeout(total=None),
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


def _checked_lookup(policy: EgressPolicy) -> Lookup:
    """Return a lookup whose results are the addresses that the policy allows."""

    async def lookup(host: str, port: int) -> list[AddrInfoType]:
        return [
            info
            for address in await policy.allowed_addresses(host)
            for info in socket.getaddrinfo(
                str(address), port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
            )
        ]

    return lookup


async def retry(limits: Limits, attempt: Callable[[bool], Awaitable[UpstreamResponse]]) -> UpstreamResponse:
    """Call `attempt` until it returns a response that need not be retried.

    Args:
        limits: `retries` and `retry_wait` are used.
        attempt: Sends the request once. Its argument is True for the first attempt.

    Returns:
        The response of the last attempt.

    Raises:
        ModelError: The last attempt failed, or failed in a way that a retry cannot fix.
    """
    is_first, retry_count = True, 0
    while True:
        answer = attempt(is_first)
        is_first = False
        try:
            response = await answer
        except NoResponse as error:
            if error.was_kept_alive:
                continue  # at most once: only the first attempt uses an idle connection
            if retry_count >= limits.retries:
                raise ModelError(error.info, address=error.address) from error.__cause__
            wait_seconds = backoff_seconds(0.25, retry_count, limits.retry_wait)
        else:
            if retry_count >= limits.retries or response.status not in RETRY_STATUSES:
                return response
            requested_seconds = response.retry_after
            if requested_seconds is not None and requested_seconds > limits.retry_wait:
                return response
            response.close()
            # A clock that is wrong may ask for no wait at all.
            wait_seconds = max(backoff_seconds(0.5, retry_count, limits.retry_wait), requested_seconds or 0.0)
        retry_count += 1
        await asyncio.sleep(wait_seconds)


def backoff_seconds(first: float, retry_count: int, maximum: float) -> float:
    """Return the wait before a retry: twice as long for each, with jitter, so that clients do not come all at once."""
    return min(first * 2.0**retry_count, maximum) * random.uniform(0.5, 1.0)


def _disconnect_error(error: DisconnectError, where: str, was_kept_alive: bool) -> ModelError:
    if error.cause is not None:
        info = unreachable_error(error.cause)
    elif error.has_begun:
        info = unreachable_error(error, "it closed the connection in mid-answer")
    else:
        info = unreachable_error(error, "it closed the connection without an answer")
    if error.has_begun:
        return ModelError(info, address=where)
    return NoResponse(info, where, was_kept_alive=was_kept_alive)
