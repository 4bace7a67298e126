"""The only door to models: HTTP over aiohttp, a read at a time.

* Three time limits: to connect, to the first byte of the answer, and between reads (`idle`).
* Tried again only while not a byte of an answer has come: when connecting fails, or the answer is one of the
  statuses that say "not now". What a server asks for in `Retry-After` is kept, within `retry_wait`.
* The reader's pace is the upstream's pace: nothing is read that was not asked for, but for one socket buffer.
* `close` gives the connection up at once if the answer is not over: the model stops working for nobody.

Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
import msgspec

from .errors import ErrorInfo, ModelError

RETRY_STATUSES = frozenset({408, 429, 502, 503, 504, 529})


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for a model, in seconds, and how often to try."""

    connect: float = 10.0
    first_byte: float = 600.0
    """From the request to the first byte of the answer: a large model may think for minutes before it."""
    idle: float = 300.0
    """Between two reads."""
    retries: int = 2
    retry_wait: float = 10.0
    """The longest to wait before trying again, whatever the server asks for."""


class Transport:
    """A pool of connections. One for the whole process; `aclose` when it ends."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._session: aiohttp.ClientSession | None = None

    async def open(self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits | None = None) -> Answer:
        """POST `body` and wait for the answer's head. Raises `ModelError` when nobody answers.

        An answer with an error status is an answer: it is returned like any other.
        """
        limits = limits or self.limits
        attempt = 0
        while True:
            last = attempt >= limits.retries
            try:
                answer = await self._attempt(url, headers, body, limits)
            except ModelError:
                if last:
                    raise
                wait = min(0.25 * 2**attempt, limits.retry_wait)
            else:
                if last or answer.status not in RETRY_STATUSES:
                    return answer
                asked = answer.retry_after
                if asked is not None and asked > limits.retry_wait:
                    return answer
                answer.close()
                wait = asked if asked is not None else min(0.5 * 2**attempt, limits.retry_wait)
            attempt += 1
            await asyncio.sleep(wait)

    async def get(self, url: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """A small GET, for what surrounds the calls (a list of models). Raises `ModelError`."""
        try:
            async with asyncio.timeout(self.limits.connect), self._pool().get(url, headers=headers) as response:
                return response.status, await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise ModelError(_unreachable(url, error)) from error

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _attempt(self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits) -> Answer:
        try:
            async with asyncio.timeout(limits.first_byte):
                response = await self._pool().post(
                    url,
                    headers=headers,
                    data=body,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=limits.connect),
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise ModelError(_unreachable(url, error, f"no connection within {limits.connect:g} s")) from error
        except TimeoutError as error:
            raise ModelError(
                ErrorInfo(
                    kind="timeout",
                    code="first_byte_timeout",
                    message=f"{_host(url)} did not begin to answer within {limits.first_byte:g} s",
                )
            ) from error
        except aiohttp.InvalidURL as error:
            raise ModelError(
                ErrorInfo(kind="server_error", code="bad_upstream_url", message=f"{url!r} is not a URL")
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ModelError(_unreachable(url, error)) from error
        return Answer(response, limits.idle)

    def _pool(self) -> aiohttp.ClientSession:
        # Made on first use: aiohttp wants a running loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                timeout=aiohttp.ClientTimeout(total=None),
                # A compressed stream comes in lumps.
                headers={"Accept-Encoding": "identity"},
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=True,
            )
        return self._session


class Answer:
    """One answer: its head, and its bytes as they come."""

    __slots__ = ("_content", "_idle", "_late", "_loop", "_read_at", "_response", "_watch")

    def __init__(self, response: aiohttp.ClientResponse, idle: float) -> None:
        self._response = response
        self._content = response.content
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._read_at = self._loop.time()
        self._late = False
        # One timer for the whole answer, not one for every read.
        self._watch: asyncio.TimerHandle | None = self._loop.call_later(idle, self._look)

    @property
    def status(self) -> int:
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        return self._response.headers

    @property
    def content_type(self) -> str:
        return self._response.headers.get("Content-Type", "")

    @property
    def retry_after(self) -> float | None:
        try:
            return float(self._response.headers.get("Retry-After", ""))
        except ValueError:
            return None

    async def read(self) -> bytes:
        """What has come, at least a byte; `b""` when it is over. Raises `ModelError` when it breaks off."""
        try:
            data = await self._content.readany()
        except (aiohttp.ClientError, OSError) as error:
            self.close()
            raise ModelError(_idle_timeout(self._idle) if self._late else _broke_off(error)) from error
        self._read_at = self._loop.time()
        if not data:
            self._stop_watch()
        return data

    async def read_all(self, limit: int) -> bytes:
        """Everything, at most `limit` bytes of it."""
        pieces, size = [], 0
        while size < limit:
            piece = await self.read()
            if not piece:
                break
            pieces.append(piece)
            size += len(piece)
        self.close()
        return b"".join(pieces)[:limit]

    def close(self) -> None:
        """Give up the connection, at once if the answer is not over. Idempotent."""
        self._stop_watch()
        self._response.close()

    def _look(self) -> None:
        quiet = self._loop.time() - self._read_at
        if quiet >= self._idle:
            self._late = True
            self._watch = None
            self._content.set_exception(aiohttp.SocketTimeoutError())
        else:
            self._watch = self._loop.call_later(self._idle - quiet, self._look)

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


def _host(url: str) -> str:
    """Where `url` points, without the path or anything secret in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


def _unreachable(url: str, error: BaseException, detail: str = "") -> ErrorInfo:
    detail = detail or str(error) or type(error).__name__
    return ErrorInfo(kind="unavailable", code="unreachable", message=f"cannot reach {_host(url)}: {detail}")


def _broke_off(error: BaseException) -> ErrorInfo:
    return ErrorInfo(
        kind="model_error",
        code="stream_truncated",
        message=f"the upstream's connection broke off in mid-answer ({type(error).__name__})",
    )


def _idle_timeout(idle: float) -> ErrorInfo:
    return ErrorInfo(kind="timeout", code="idle_timeout", message=f"the upstream said nothing for {idle:g} s")
