"""aiohttp behind the interface of the upstream client: a second opinion on HTTP, for tests alone.

It uses what aiohttp documents and nothing else, and the project's own errors and tries. What it cannot do without
private attributes it does not do: the end of silence is looked for while a read waits, and a connection is not kept
after `finish`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import aiohttp
from yarl import URL

from pellucid.errors import ModelError
from pellucid.upstream import Limits
from pellucid.upstream.client import retry
from pellucid.upstream.errors import (
    InvalidResponse,
    NoResponse,
    bad_url_error,
    not_http_error,
    origin_of,
    timeout_error,
    truncated_error,
    unreachable_error,
)
from pellucid.upstream.response import retry_after_of


class PeerClient:
    """Sends requests as `UpstreamClient` does."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def open(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: Limits | None = None,
        total_seconds: float | None = None,
    ) -> PeerResponse:
        """POST `body` and wait for the response's head. Raises `ModelError`."""
        within = limits or self.limits
        # A `PeerResponse` has what `retry` uses of a response.
        attempt = cast("Any", lambda is_first: self._attempt(url, headers, body, within))
        return cast("PeerResponse", await retry(within, attempt))

    async def aclose(self) -> None:
        await self._session.close()

    async def _attempt(self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits) -> PeerResponse:
        where = origin_of(url)
        timeout = aiohttp.ClientTimeout(total=None, connect=limits.connect, sock_connect=limits.connect)
        try:
            async with asyncio.timeout(limits.first_byte):
                response = await self._session.post(
                    URL(url, encoded=True), headers=headers, data=body, allow_redirects=False, timeout=timeout
                )
        except aiohttp.ConnectionTimeoutError as error:
            detail = f"no connection within {limits.connect:g} s"
            raise NoResponse(unreachable_error(error, detail), where) from error
        except TimeoutError as error:
            raise ModelError(timeout_error("first_byte_timeout", limits.first_byte), address=where) from error
        except aiohttp.InvalidURL as error:
            raise ModelError(bad_url_error(), address=where) from error
        except aiohttp.ServerDisconnectedError as error:
            if isinstance(error.message, str):
                raise NoResponse(
                    unreachable_error(error, "it closed the connection without an answer"), where
                ) from error
            raise ModelError(
                unreachable_error(error, "it closed the connection in mid-answer"), address=where
            ) from error
        except aiohttp.ClientResponseError as error:
            raise ModelError(
                not_http_error(InvalidResponse(" ".join(str(error.message).split()))), address=where
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoResponse(unreachable_error(error), where) from error
        return PeerResponse(response, limits)


class PeerResponse:
    """A response of aiohttp's, read as by a `BodyReader`."""

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits) -> None:
        self._response = response
        self._limits = limits
        self._has_begun = False

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    @property
    def retry_after(self) -> float | None:
        return retry_after_of(self._response.headers.get("Retry-After", ""))

    async def read(self) -> bytes:
        """Wait for data and return it; `b""` at the end. Raises `ModelError` if it broke off."""
        code, patience = ("idle_timeout", self._limits.idle)
        if not self._has_begun:
            code, patience = ("first_byte_timeout", self._limits.first_byte)
        try:
            async with asyncio.timeout(patience):
                data = await self._response.content.readany()
        except TimeoutError as error:
            raise ModelError(timeout_error(code, patience)) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ModelError(truncated_error()) from error
        self._has_begun = self._has_begun or bool(data)
        return data

    def close(self) -> None:
        self._response.close()

    def finish(self) -> None:
        self._response.close()
