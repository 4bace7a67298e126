"""The only door to models: HTTP over aiohttp, a read at a time.

* Three time limits: to connect, to the first byte of the answer's body, and from then on for each read (`idle`). Only
  the time that somebody waits to read counts: a slow reader is not the upstream's silence.
* Tried again only while not a byte of an answer has come: when connecting fails, when the connection closes without a
  word, or when the answer is one of the statuses that say "not now". What a server asks for in `Retry-After` is kept,
  within `retry_wait`. An upstream that is silent for too long is not asked again: it may be at work.
* The reader's pace is the upstream's pace: nothing is read that was not asked for, but for one socket buffer.
* `close` gives the connection up at once if the answer is not over: the model stops working for nobody.
* A redirect is an answer: nobody is followed with the gateway's keys.

Nothing here knows what the bytes mean.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from io import BytesIO
from math import isfinite
from typing import Annotated

import aiohttp
import msgspec
from msgspec import Meta
from yarl import URL

from .errors import ErrorInfo, ModelError

RETRY_STATUSES = frozenset({408, 429, 502, 503, 504, 529})

_LARGE = 1 << 20

Seconds = Annotated[float, Meta(gt=0, le=1_000_000)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait for a model, in seconds, and how often to try."""

    connect: Seconds = 10.0
    first_byte: Seconds = 600.0
    """From the request to the first byte of the answer's body: a large model may think for minutes before it."""
    idle: Seconds = 300.0
    """For each read after that."""
    retries: Annotated[int, Meta(ge=0, le=100)] = 2
    retry_wait: Annotated[float, Meta(ge=0, le=1_000_000)] = 10.0
    """The longest to wait before trying again, whatever the server asks for."""


class _NoAnswer(ModelError):
    """Not a byte of an answer came, and another try may get one."""


class Transport:
    """A pool of connections. One for the whole process; `aclose` when it ends."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._lingering: set[Answer] = set()
        self._session: aiohttp.ClientSession | None = None

    async def open(
        self,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        limits: Limits | None = None,
        total: float | None = None,
    ) -> Answer:
        """POST `body` and wait for the answer's head. Raises `ModelError` when nobody answers.

        An answer with an error status is an answer: it is returned like any other. `total` is how many seconds all
        of it may take, tries and reading included.
        """
        deadline = None if total is None else asyncio.get_running_loop().time() + total
        try:
            async with asyncio.timeout_at(deadline):
                answer = await self._open(url, headers, body, limits or self.limits)
        except TimeoutError as error:
            raise ModelError(_silent("timeout", total or 0), where=_host(url)) from error
        if deadline is not None and total is not None:
            answer.end_by(deadline, total)
        return answer

    async def _open(self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits) -> Answer:
        attempt = 0
        while True:
            last = attempt >= limits.retries
            try:
                answer = await self._attempt(url, headers, body, limits)
            except _NoAnswer as error:
                if last:
                    raise ModelError(error.info, where=error.where) from error.__cause__
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
            raise ModelError(_unreachable(error), where=_host(url)) from error

    async def aclose(self) -> None:
        for answer in list(self._lingering):
            answer.close()
        if self._session is not None:
            await self._session.close()

    async def _attempt(self, url: str, headers: Mapping[str, str], body: bytes, limits: Limits) -> Answer:
        asked = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limits.first_byte):
                response = await self._pool().post(
                    _exactly(url),
                    headers=headers,
                    # A large body goes out piece by piece, so that others are served meanwhile.
                    data=body if len(body) < _LARGE else BytesIO(body),
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=None, connect=limits.connect, sock_connect=limits.connect),
                )
        except aiohttp.ConnectionTimeoutError as error:
            detail = f"no connection within {limits.connect:g} s"
            raise _NoAnswer(_unreachable(error, detail), where=_host(url)) from error
        except TimeoutError as error:
            raise ModelError(_silent("first_byte_timeout", limits.first_byte), where=_host(url)) from error
        except aiohttp.InvalidURL as error:
            raise ModelError(
                ErrorInfo("server_error", "the model's provider has an address that is none", code="bad_upstream_url"),
                where=_host(url),
            ) from error
        except aiohttp.ServerDisconnectedError as error:
            detail = "it closed the connection without an answer"
            if isinstance(error.message, str):
                raise _NoAnswer(_unreachable(error, detail), where=_host(url)) from error
            detail = "it closed the connection in mid-answer"
            raise ModelError(_unreachable(error, detail), where=_host(url)) from error
        except aiohttp.ClientResponseError as error:
            raise ModelError(
                ErrorInfo(
                    kind="model_error",
                    code="not_http",
                    message="the upstream answered something that is not HTTP/1.1",
                    # On one line, without the arrow that points at the place.
                    said=" ".join(str(error.message).split()).rstrip(" ^") or None,
                ),
                where=_host(url),
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _NoAnswer(_unreachable(error), where=_host(url)) from error
        return Answer(response, limits, asked, self._lingering)

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

    __slots__ = (
        "_broken",
        "_came",
        "_content",
        "_data",
        "_deadline",
        "_late",
        "_limits",
        "_lingering",
        "_loop",
        "_over",
        "_response",
        "_since",
        "_tick",
        "_watch",
    )

    def __init__(self, response: aiohttp.ClientResponse, limits: Limits, asked: float, lingering: set[Answer]) -> None:
        self._response = response
        self._content = response.content
        self._data = b""
        self._over = response.content is aiohttp.streams.EMPTY_PAYLOAD
        """Whether nothing more is to be waited for: an answer without a body is over before it begins."""
        self._limits = limits
        self._lingering = lingering
        """Where those are that are finished, and wait for their end."""
        self._loop = asyncio.get_running_loop()
        self._deadline: tuple[float, float] | None = None
        self._late = False
        self._broken: ErrorInfo | None = None
        self._since = asked
        """Since when the upstream has been silent."""
        self._came = 0
        """How many bytes had come at the last look: looking now and then costs less than a clock at every read."""
        self._tick = min(1.0, limits.idle / 4, limits.first_byte / 4)
        self._watch: asyncio.TimerHandle | None = None
        if not self._over:
            self._look_in(self._tick)

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
        """Seconds to wait before asking again, where the upstream says so, as a number or as a date."""
        said = self._response.headers.get("Retry-After", "")
        try:
            seconds = float(said)
        except ValueError:
            try:
                seconds = parsedate_to_datetime(said).timestamp() - time.time()
            except (ValueError, OverflowError):
                return None
            seconds = max(0.0, seconds)
        return seconds if isfinite(seconds) and seconds >= 0 else None

    async def wait(self) -> None:
        """Wait until there is something to take."""
        if self._data or self._over:
            return
        content = self._content
        try:
            if content._waiter is None and not (content._buffer or content._eof or content._exception):
                # What `readany` does, without its three coroutines: this is called for every token.
                content._waiter = waiter = self._loop.create_future()
                try:
                    await waiter
                finally:
                    content._waiter = None
                self._data = content.read_nowait()
            if not self._data:
                self._data = await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            self._broken = self._why(error)
            self._over = True
            self._data = self._unread()
            self.close()

    def take(self) -> bytes:
        """What has come, at least a byte; `b""` when it is over. Raises `ModelError` when it breaks off."""
        data, self._data = self._data, b""
        if not data:
            self._stop_watch()
            if self._broken is not None:
                raise ModelError(self._broken)
        return data

    async def read(self) -> bytes:
        """Both."""
        await self.wait()
        return self.take()

    async def read_all(self, limit: int, seconds: float = 10.0) -> bytes:
        """What comes within `seconds`, at most `limit` bytes of it, and be done with the answer. Never raises."""
        pieces, size = [], 0
        try:
            async with asyncio.timeout(seconds):
                while size < limit and (piece := await self.read()):
                    pieces.append(piece)
                    size += len(piece)
        except (ModelError, TimeoutError):
            pass
        finally:
            self.close()
        return b"".join(pieces)[:limit]

    def end_by(self, deadline: float, total: float) -> None:
        """All of it must have come by `deadline`, `total` seconds after it was asked for."""
        self._deadline = (deadline, total)
        self._look_in(deadline - self._loop.time())

    def close(self) -> None:
        """Give up the connection, at once if the answer is not over. Idempotent."""
        self._stop_watch()
        self._lingering.discard(self)
        self._response.close()

    def finish(self) -> None:
        """Nothing more is wanted: the connection is kept if the answer ends within a moment, and else given up."""
        self._stop_watch()
        if self._content.is_eof():
            self._response.close()
        else:
            self._lingering.add(self)
            self._watch = self._loop.call_later(1.0, self.close)

    def _look(self) -> None:
        now, came = self._loop.time(), self._content.total_bytes
        reading = self._content._waiter is not None  # aiohttp has no word for it
        if came != self._came or (came and not reading):
            self._came, self._since = came, now
        left = self._patience - (now - self._since)
        if self._deadline is not None:
            left = min(left, self._deadline[0] - now)
        connection = self._response.connection
        if not reading:
            self._look_in(self._tick)
        elif connection is not None and connection.protocol is not None and not connection.protocol.connected:
            # aiohttp closes on broken framing without telling whoever waits to read.
            self._content.set_exception(aiohttp.ClientPayloadError())
        elif left > 0:
            self._look_in(left)
        else:
            self._late = True
            self._content.set_exception(aiohttp.SocketTimeoutError())

    @property
    def _patience(self) -> float:
        """How long the upstream may be silent."""
        return self._limits.idle if self._came else self._limits.first_byte

    def _look_in(self, seconds: float) -> None:
        self._stop_watch()
        self._watch = self._loop.call_later(min(max(0.0, seconds), self._tick), self._look)

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _unread(self) -> bytes:
        """What had come when the answer broke off. aiohttp would raise before it gives that, and has no word for it."""
        buffer = self._content._buffer
        data = b"".join(buffer)
        buffer.clear()
        return data

    def _why(self, error: BaseException) -> ErrorInfo:
        if not self._late:
            return ErrorInfo(
                kind="model_error",
                code="stream_truncated",
                message=f"the upstream's connection broke off in mid-answer ({type(error).__name__})",
            )
        if self._deadline is not None and self._loop.time() >= self._deadline[0]:
            return _silent("timeout", self._deadline[1])
        return _silent("idle_timeout" if self._came else "first_byte_timeout", self._patience)


def _exactly(url: str) -> URL | str:
    """The URL to the letter: what was signed is what must be sent, and aiohttp would rewrite `%3A` as `:`."""
    try:
        return URL(url, encoded=True) if url.isascii() and url.isprintable() and " " not in url else url
    except ValueError:
        return url  # aiohttp says what is wrong with it


def _host(url: str) -> str:
    """Where `url` points, without the path or anything secret in it."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0].rpartition('@')[2]}"


def _unreachable(error: BaseException, detail: str = "") -> ErrorInfo:
    said = None
    if not detail:
        error = getattr(error, "os_error", error)
        detail = _why_not(error)
        # What a library says may quote the other side: its certificate, or what it sent.
        said = str(error) if detail in (_INSECURE, _FAILED) else None
    message = f"the model's provider cannot be reached: {detail}"
    return ErrorInfo("unavailable", message, code="unreachable", said=said or None)


_INSECURE = "no secure connection comes about"
_FAILED = "the connection failed"


def _why_not(error: BaseException) -> str:
    """What the system says, without the addresses that a library repeats."""
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, ssl.SSLError | ssl.CertificateError | aiohttp.ClientSSLError):
        return _INSECURE
    if isinstance(error, socket.gaierror) and error.strerror:
        return error.strerror
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number is not None and number > 0 else _FAILED


def _silent(code: str, seconds: float) -> ErrorInfo:
    what = {"idle_timeout": "said nothing", "timeout": "did not finish"}.get(code, "did not begin to answer")
    return ErrorInfo(kind="timeout", code=code, message=f"the upstream {what} within {seconds:g} s")
