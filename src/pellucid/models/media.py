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
from .model import Asked, ModelStream

MAX_BYTES = 20 * 1024 * 1024
"""Of one file."""
MAX_FILES, MAX_CALL_BYTES = 32, 64 * 1024 * 1024
"""Of one call, which sends them all."""
SECONDS = 30.0
REMEMBERED_BYTES, REMEMBERED_SECONDS = 64 * 1024 * 1024, 120.0
REMEMBERED_URLS, MAX_URL = 4096, 2048
"""Those that were judged; longer ones are judged each time."""
JUDGE_SECONDS = 20.0
"""For all that one call hands on."""

_ACCEPT: dict[type[UserContent], tuple[str, ...]] = {
    Image: ("image/*",),
    Audio: ("audio/*",),
    Video: ("video/*",),
    File: ("application/*", "text/*", "image/*"),
}


class _Found(NamedTuple):
    until: float
    media_type: str
    data: str
    """In base64, as every wire carries it."""
    size: int
    """In bytes, before that."""


class Media:
    """What was judged and fetched lately, for all models of a process."""

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy
        self._remembered: dict[tuple[type[UserContent], str], _Found] = {}
        self._size = 0
        self._judged: dict[str, float] = {}
        """URLs that may be handed on, and until when that is held to be so."""

    async def judge(self, urls: Iterable[str]) -> None:
        """Raises `EgressError` for those of which one may not be handed on."""
        now = time.monotonic()
        try:
            async with asyncio.timeout(JUDGE_SECONDS):
                for url in urls:
                    if self._judged.get(url, 0.0) <= now:
                        await self._policy.judge(url)
                        self._keep(url, now + REMEMBERED_SECONDS)
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

    def _keep(self, url: str, until: float) -> None:
        self._judged.pop(url, None)
        if len(self._judged) >= REMEMBERED_URLS:
            del self._judged[next(iter(self._judged))]
        if len(url) <= MAX_URL:
            self._judged[url] = until

    async def fetched(self, content: UserContent, url: str) -> _Found:
        """Raises `EgressError` for what may not or cannot be fetched."""
        now, name = time.monotonic(), (type(content), url)
        self._forget(now)
        found = self._remembered.get(name)
        if found is None:
            from ..egress.connector import fetch

            fetched = await fetch(
                self._policy, url, max_bytes=MAX_BYTES, seconds=SECONDS, accept=_ACCEPT[type(content)], param="input"
            )
            data = base64.b64encode(fetched.data).decode()
            found = _Found(time.monotonic() + REMEMBERED_SECONDS, fetched.media_type, data, len(fetched.data))
            before = self._remembered.pop(name, None)
            self._size += len(data) - (len(before.data) if before is not None else 0)
            self._remembered[name] = found
            self._forget(now)
        return found

    def _forget(self, now: float) -> None:
        """The oldest first: what is too old, and what is too much."""
        while self._remembered:
            name, oldest = next(iter(self._remembered.items()))
            if oldest.until > now and self._size <= REMEMBERED_BYTES:
                return
            del self._remembered[name]
            self._size -= len(oldest.data)


class WithMedia:
    """`inner`, asked with URLs that were judged; with `inline`, with data where a call has URLs."""

    def __init__(self, inner: Asked, media: Media, *, inline: bool = False) -> None:
        self.name = inner.name
        self.origin = inner.origin
        self.warnings = inner.warnings
        self._inner = inner
        self._media = media
        self._inline = inline

    async def open(self, call: ModelCall) -> ModelStream:
        """Raises `EgressError` for what may not or cannot be fetched, and whatever the model raises."""
        if self._inline and any(_names(part) for message in call.messages for part in message.parts):
            call = replace(call, messages=await _Inlining(self._media).messages(call.messages))
        if urls := _handed_on(call.messages):
            await self._media.judge(urls)
        return await self._inner.open(call)


class _Inlining:
    """One call's files."""

    def __init__(self, media: Media) -> None:
        self._media = media
        self._files = 0
        self._bytes = 0

    async def messages(self, messages: list[ModelMessage]) -> list[ModelMessage]:
        return [
            replace(message, parts=[await self._part(part) for part in message.parts])
            if isinstance(message, ModelRequest) and any(map(_names, message.parts))
            else message
            for message in messages
        ]

    async def _part(self, part: ModelRequestPart) -> ModelRequestPart:
        if not _names(part):
            return part
        return replace(part, content=[await self._content(one) for one in _contents(part)])

    async def _content(self, content: Any) -> Any:
        if not _is_url(content):
            return content
        self._files += 1
        self._check()
        found = await self._media.fetched(content, content.url)
        self._bytes += found.size
        self._check()
        return replace(content, url=None, media_type=found.media_type, data=found.data)

    def _check(self) -> None:
        if self._files > MAX_FILES or self._bytes > MAX_CALL_BYTES:
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


def _names(part: Any) -> bool:
    """Whether it names files by URL."""
    return any(map(_is_url, _contents(part)))


def _handed_on(messages: list[ModelMessage]) -> list[str]:
    """The URLs in all places in which some provider takes one, each once."""
    held = (
        held
        for message in messages
        for part in message.parts
        for content in _contents(part)
        if type(content) in _ACCEPT
        for held in (content.url, getattr(content, "file_id", None), content.data)
    )
    # Neither the name of a file nor base64 holds a colon.
    return list(dict.fromkeys(url for url in held if url and ":" in url and url[:5].lower() != "data:"))


def _is_url(content: Any) -> bool:
    return type(content) in _ACCEPT and (content.url or "").startswith(("http://", "https://"))
