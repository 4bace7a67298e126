"""Images and files by URL: judged here, and for models that take none fetched here, and sent as data.

What is fetched is named by whoever asks, so it is fetched under the operator's egress policy, with bounds: on each
file, and on all that one call brings along. What a model's server fetches itself is judged by the same policy: it may
stand in a network of the operator's. What a run asks for in every turn is judged and fetched once.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..egress import EgressError, EgressPolicy
from ..errors import RequestError
from ..parts import (
    Audio,
    File,
    Image,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
)
from ..settings import ModelCall
from .model import ChatModel, ModelStream

MAX_FILE_BYTES = 20 * 1024 * 1024
"""Of one file."""
MAX_FILES, MAX_CALL_BYTES = 32, 64 * 1024 * 1024
"""Of one call, which sends them all."""
FETCH_SECONDS = 30.0
MAX_CACHED_BYTES, CACHE_SECONDS = 64 * 1024 * 1024, 120.0
MAX_CHECKED_URLS, MAX_URL_LENGTH = 4096, 2048
"""Those that were judged; longer ones are judged each time."""
CHECK_SECONDS = 20.0
"""For all that one call hands on."""

_ACCEPT: dict[type[UserContent], tuple[str, ...]] = {
    Image: ("image/*",),
    Audio: ("audio/*",),
    Video: ("video/*",),
    File: ("application/*", "text/*", "image/*"),
}


class _FetchedFile(NamedTuple):
    expires_at: float
    media_type: str
    data: str
    """In base64, as every wire carries it."""
    size_bytes: int
    """In bytes, before that."""


class MediaFetcher:
    """What was judged and fetched lately, for all models of a process."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        self._cache: dict[tuple[type[UserContent], str], _FetchedFile] = {}
        self._cached_bytes = 0
        self._allowed_until: dict[str, float] = {}
        """URLs that may be handed on, and until when that is held to be so."""

    async def check_urls(self, urls: Iterable[str]) -> None:
        """Raises `EgressError` for those of which one may not be handed on."""
        now = time.monotonic()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                for url in urls:
                    if self._allowed_until.get(url, 0.0) <= now:
                        await self._policy.check_forwarded(url)
                        self._remember_url(url, now + CACHE_SECONDS)
        except TimeoutError:
            raise EgressError(
                "input: the hosts of its files could not be looked up in time",
                kind="timeout",
                code="egress_timeout",
                param="input",
            ) from None
        except EgressError as error:
            info = error.info
            raise EgressError(
                f"input: a file in it is not handed on to the model: {info.message}",
                kind=info.kind,
                code=info.code or "egress_refused",
                param="input",
            ) from error

    def _remember_url(self, url: str, expires_at: float) -> None:
        self._allowed_until.pop(url, None)
        if len(self._allowed_until) >= MAX_CHECKED_URLS:
            del self._allowed_until[next(iter(self._allowed_until))]
        if len(url) <= MAX_URL_LENGTH:
            self._allowed_until[url] = expires_at

    async def get_file(self, content: UserContent, url: str) -> _FetchedFile:
        """Raises `EgressError` for what may not or cannot be fetched."""
        now, key = time.monotonic(), (type(content), url)
        self._evict(now)
        file = self._cache.get(key)
        if file is None:
            from ..egress.connector import fetch

            response = await fetch(
                self._policy,
                url,
                max_bytes=MAX_FILE_BYTES,
                timeout_seconds=FETCH_SECONDS,
                accept=_ACCEPT[type(content)],
                param="input",
            )
            data = base64.b64encode(response.data).decode()
            file = _FetchedFile(time.monotonic() + CACHE_SECONDS, response.media_type, data, len(response.data))
            replaced = self._cache.pop(key, None)
            self._cached_bytes += len(data) - (len(replaced.data) if replaced is not None else 0)
            self._cache[key] = file
            self._evict(now)
        return file

    def _evict(self, now: float) -> None:
        """The oldest first: what is too old, and what is too much."""
        while self._cache:
            key, oldest = next(iter(self._cache.items()))
            if oldest.expires_at > now and self._cached_bytes <= MAX_CACHED_BYTES:
                return
            del self._cache[key]
            self._cached_bytes -= len(oldest.data)


class MediaModel:
    """`inner`, asked with URLs that were judged; with `inline`, with data where a call has URLs."""

    def __init__(self, inner: ChatModel, media: MediaFetcher, *, inline: bool = False) -> None:
        self.name = inner.name
        self.origin = inner.origin
        self.warnings = inner.warnings
        self._inner = inner
        self._media = media
        self._inline = inline

    async def open(self, call: ModelCall) -> ModelStream:
        """Raises `EgressError` for what may not or cannot be fetched, and whatever the model raises."""
        if self._inline and any(_has_urls(part) for message in call.messages for part in message.parts):
            call = replace(call, messages=await _Inliner(self._media).inline_messages(call.messages))
        if urls := _forwarded_urls(call.messages):
            await self._media.check_urls(urls)
        return await self._inner.open(call)


class _Inliner:
    """One call's files."""

    def __init__(self, media: MediaFetcher) -> None:
        self._media = media
        self._file_count = 0
        self._total_bytes = 0

    async def inline_messages(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        return [
            replace(message, parts=[await self._inline_part(part) for part in message.parts])
            if isinstance(message, ModelRequest) and any(map(_has_urls, message.parts))
            else message
            for message in messages
        ]

    async def _inline_part(self, part: ModelRequestPart) -> ModelRequestPart:
        if not _has_urls(part):
            return part
        return replace(part, content=[await self._inline_content(content) for content in _contents(part)])

    async def _inline_content(self, content: Any) -> Any:
        if not _is_url(content):
            return content
        self._file_count += 1
        self._check_limits()
        file = await self._media.get_file(content, content.url)
        self._total_bytes += file.size_bytes
        self._check_limits()
        return replace(content, url=None, media_type=file.media_type, data=file.data)

    def _check_limits(self) -> None:
        if self._file_count > MAX_FILES or self._total_bytes > MAX_CALL_BYTES:
            raise RequestError(
                f"input: the files that it names by URL are too many for one request; there may be {MAX_FILES}, of "
                f"{MAX_CALL_BYTES} bytes together",
                kind="too_large",
                code="files_too_large",
                param="input",
            )


def _contents(part: Any) -> list[Any]:
    content = part.content if isinstance(part, UserPromptPart | ToolReturnPart) else None
    return content if isinstance(content, list) else []


def _has_urls(part: Any) -> bool:
    """Whether it names files by URL."""
    return any(map(_is_url, _contents(part)))


def _forwarded_urls(messages: list[ModelMessage]) -> list[str]:
    """The URLs in all places in which some provider takes one, each once."""
    candidates = (
        candidates
        for message in messages
        for part in message.parts
        for content in _contents(part)
        if type(content) in _ACCEPT
        for candidates in (content.url, getattr(content, "file_id", None), content.data)
    )
    # Neither the name of a file nor base64 holds a colon.
    return list(dict.fromkeys(url for url in candidates if url and ":" in url and url[:5].lower() != "data:"))


def _is_url(content: Any) -> bool:
    return type(content) in _ACCEPT and (content.url or "").startswith(("http://", "https://"))
