"""httpx transport that keeps to an egress policy, for the MCP client, which supports only httpx.

It sends requests through aiohttp and `EgressConnector`, so names, addresses and redirects are checked in one place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import httpx2
from yarl import URL

from .connector import EgressConnector
from .policy import EgressError, EgressPolicy


class ResponseTooLarge(httpx2.StreamError):
    """The response body is larger than `max_bytes`."""


class EgressTransport(httpx2.AsyncBaseTransport):
    """httpx transport with an egress policy. The httpx client that uses it closes it.

    A refusal of the policy is raised as `httpx2.ConnectError`. Its cause is the `EgressError` (see `cause_of`).

    Args:
        policy: Checks each request.
        max_bytes: Limit for the body of a response that is not an event stream. None: no limit.
    """

    def __init__(self, policy: EgressPolicy, max_bytes: int | None = None) -> None:
        self._policy = policy
        self._max_bytes = max_bytes
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        limits: dict[str, float | None] = request.extensions.get("timeout") or {}
        try:
            response = await self._open_session().request(
                request.method,
                URL(str(request.url), encoded=True),
                headers=[(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers.raw],
                data=await request.aread() or None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=limits.get("connect"), sock_read=limits.get("read")
                ),
            )
        except EgressError as error:
            raise httpx2.ConnectError(error.info.message, request=request) from error
        except TimeoutError as error:
            is_connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            error_type = httpx2.ConnectTimeout if is_connecting else httpx2.ReadTimeout
            raise error_type("the server did not answer in time", request=request) from error
        except aiohttp.ClientConnectorError as error:
            raise httpx2.ConnectError("the server cannot be reached", request=request) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise httpx2.ReadError(f"the server did not answer ({type(error).__name__})", request=request) from error
        is_event_stream = response.content_type == "text/event-stream"
        return httpx2.Response(
            response.status,
            headers=list(response.raw_headers),
            stream=_ResponseBody(response, None if is_event_stream else self._max_bytes),
            request=request,
        )

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=EgressConnector(self._policy, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Content-Type", "Accept", "Accept-Encoding"),
            )
        return self._session


class _ResponseBody(httpx2.AsyncByteStream):
    """The body of a response, with a limit for its size."""

    def __init__(self, response: aiohttp.ClientResponse, max_bytes: int | None) -> None:
        self._response = response
        self._left_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._response.content.iter_any():
                if self._left_bytes is not None:
                    self._left_bytes -= len(piece)
                    if self._left_bytes < 0:
                        raise ResponseTooLarge("the response is too large")
                yield piece
        except TimeoutError as error:
            raise httpx2.ReadTimeout("the server stopped sending the response") from error
        except (aiohttp.ClientError, OSError) as error:
            raise httpx2.ReadError(f"the connection failed during the response ({type(error).__name__})") from error

    async def aclose(self) -> None:
        # Close the connection unless the response was read to its end. Then the connection can be reused.
        self._response.close() if not self._response.content.at_eof() else self._response.release()


def cause_of(error: BaseException) -> EgressError | None:
    """Return the `EgressError` behind an exception of httpx, or of a library that uses it; None if there is none."""
    seen: list[Any] = [error]
    for link in seen:
        if isinstance(link, EgressError):
            return link
        inner = [link.__cause__, link.__context__, *getattr(link, "exceptions", ())]
        seen += [other for other in inner if other is not None and all(other is not known for known in seen)]
    return None
