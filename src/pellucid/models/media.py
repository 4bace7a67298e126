"""Images and files by URL: checked, and for models that take no URLs fetched and sent as data.

The client of a request names the URLs. Therefore files are fetched under the operator's egress policy, with limits for
each file and for all files of a call. URLs that a model's server fetches are checked by the same policy, because the
server may be in a network of the operator. A file that a run needs in each turn is checked and fetched once.
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
from .model import ChatModel, Model, ModelStream

MAX_FILE_BYTES = 20 * 1024 * 1024
"""Limit of one file."""
MAX_FILES, MAX_CALL_BYTES = 32, 64 * 1024 * 1024
"""Limits of all files of one call."""
FETCH_SECONDS = 30.0
MAX_CACHED_BYTES, CACHE_SECONDS = 64 * 1024 * 1024, 120.0
MAX_CHECKED_URLS, MAX_URL_LENGTH = 4096, 2048
"""Number of checked URLs that are stored, and their maximum length in characters. Longer URLs are checked each time."""
CHECK_SECONDS = 20.0
"""Time limit of the checks of all URLs of one call."""

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
    """Base64, as every wire carries it."""
    size_bytes: int
    """Bytes before base64."""


class MediaFetcher:
    """Checks and fetches files, with a cache for all models of a process."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        self._cache: dict[tuple[type[UserContent], str], _FetchedFile] = {}
        self._cached_bytes = 0
        self._allowed_until: dict[str, float] = {}
        """Checked URLs, and the monotonic time until which the check is valid."""

    async def check_urls(self, urls: Iterable[str]) -> None:
        """Check that the egress policy allows all URLs. Raises `EgressError` for the first that it does not allow."""
        now = time.monotonic()
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                for url in urls:
                    if self._allowed_until.get(url, 0.0) <= now:
                        await self._policy.check_forwarded(url)
                        self._remember_url(url, now + CACHE_SECONDS)
        except TimeoutError:
            raise EgressError(
                "input: the host names of its files could not be resolved in time",
                kind="timeout",
                code="egress_timeout",
                param="input",
            ) from None
        except EgressError as error:
            info = error.info
            raise EgressError(
                f"input: a file in it is not passed on to the model: {info.message}",
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
        """Return the file at `url`, cached or fetched. Raises `EgressError` if it may not or cannot be fetched."""
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
        """Remove files, oldest first, that have expired or exceed the size of the cache."""
        while self._cache:
            key, oldest = next(iter(self._cache.items()))
            if oldest.expires_at > now and self._cached_bytes <= MAX_CACHED_BYTES:
                return
            del self._cache[key]
            self._cached_bytes -= len(oldest.data)


class MediaModel:
    """Model that checks the URLs of each call before `inner` gets it; with `inline`, URLs are replaced by data."""

    def __init__(self, inner: ChatModel, media: MediaFetcher, *, inline: bool = False) -> None:
        self.name = inner.name
        self.origin = inner.origin
        self.warnings = inner.warnings
        self._inner = inner
        self._media = media
        self._inline = inline

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn. Raises `EgressError` for a URL that may not or cannot be fetched, and what the model raises."""
        return await self._inner.open(await self._with_media(call))

    async def count_tokens(self, call: ModelCall) -> int | None:
        """Ask the provider for the number of tokens; see `Model.count_tokens`. Raises `EgressError`, as `open` does."""
        if not isinstance(self._inner, Model) or not self._inner.counts_tokens:
            return None
        return await self._inner.count_tokens(await self._with_media(call))

    async def _with_media(self, call: ModelCall) -> ModelCall:
        """Return the call with URLs checked, and replaced where `inline` says so."""
        files = _files(call.messages)
        if self._inline and any(map(_is_url, files)):
            call = replace(call, messages=await _Inliner(self._media).inline_messages(call.messages))
            files = _files(call.messages)
        if urls := _forwarded_urls(files):
            await self._media.check_urls(urls)
        return call


class _Inliner:
    """Replaces the URLs of one call by data."""

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
                f"input: its files by URL exceed the limits of one request: {MAX_FILES} files, of "
                f"{MAX_CALL_BYTES} bytes in total",
                kind="too_large",
                code="files_too_large",
                param="input",
            )


def _contents(part: Any) -> list[Any]:
    content = part.content if isinstance(part, UserPromptPart | ToolReturnPart) else None
    return content if isinstance(content, list) else []


def _has_urls(part: Any) -> bool:
    """Whether a part has files by URL."""
    return any(map(_is_url, _contents(part)))


def _files(messages: list[ModelMessage]) -> list[Any]:
    """Return the images, documents and other files of a conversation."""
    return [
        content
        for message in messages
        for part in message.parts
        if type(part) is UserPromptPart or type(part) is ToolReturnPart
        if type(part.content) is list
        for content in part.content
        if type(content) in _ACCEPT
    ]


def _forwarded_urls(files: list[Any]) -> list[str]:
    """Return the URLs in all fields in which some provider accepts a URL, each once."""
    candidates = (candidate for file in files for candidate in (file.url, getattr(file, "file_id", None), file.data))
    # File ids and base64 have no colon.
    return list(dict.fromkeys(url for url in candidates if url and ":" in url and url[:5].lower() != "data:"))


def _is_url(content: Any) -> bool:
    return type(content) in _ACCEPT and (content.url or "").startswith(("http://", "https://"))
