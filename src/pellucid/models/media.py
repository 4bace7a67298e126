"""Images and files by URL, for models that take none: fetched here, and sent as data.

What is fetched is named by whoever asks, so it is fetched under the operator's egress policy, with bounds.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Sequence

from msgspec.structs import replace

from ..egress import EgressPolicy
from ..parts import Audio, File, Image, ModelMessage, ModelRequest, ModelRequestPart, UserContent, UserPromptPart, Video
from ..settings import ModelCall
from .model import Asked, Turn

MAX_BYTES = 20 * 1024 * 1024
SECONDS = 30.0
REMEMBERED, REMEMBERED_SECONDS = 32, 120.0
"""What a run asks for in every turn is fetched once."""

_ACCEPT: dict[type[UserContent], tuple[str, ...]] = {
    Image: ("image/*",),
    Audio: ("audio/*",),
    Video: ("video/*",),
    File: ("application/*", "text/*", "image/*"),
}


class WithMedia:
    """`inner`, asked with data where a call has URLs."""

    def __init__(self, inner: Asked, policy: EgressPolicy) -> None:
        self.name = inner.name
        self.origin = inner.origin
        self.warnings = inner.warnings
        self._inner = inner
        self._policy = policy
        self._remembered: dict[str, tuple[float, str, str]] = {}

    async def open(self, call: ModelCall) -> Turn:
        """Raises `EgressError` for what may not or cannot be fetched, and whatever the model raises."""
        return await self._inner.open(replace(call, messages=[await self._message(said) for said in call.messages]))

    async def _message(self, message: ModelMessage) -> ModelMessage:
        if not isinstance(message, ModelRequest) or not any(_named(part) for part in message.parts):
            return message
        return replace(message, parts=[await self._part(part) for part in message.parts])

    async def _part(self, part: ModelRequestPart) -> ModelRequestPart:
        contents = _contents(part)
        return replace(part, content=[await self._content(one) for one in contents]) if _named(part) else part

    async def _content(self, content: UserContent) -> UserContent:
        if not _is_url(content):
            return content
        url = getattr(content, "url", "")
        found = self._remembered.get(url)
        if found is None or found[0] < time.monotonic():
            fetched = await self._policy.fetch(
                url, max_bytes=MAX_BYTES, seconds=SECONDS, accept=_ACCEPT[type(content)], param="input"
            )
            found = (
                time.monotonic() + REMEMBERED_SECONDS,
                fetched.media_type,
                base64.b64encode(fetched.data).decode(),
            )
            while len(self._remembered) >= REMEMBERED:
                del self._remembered[next(iter(self._remembered))]
            self._remembered[url] = found
        return replace(content, url=None, media_type=found[1], data=found[2])


def _contents(part: ModelRequestPart) -> Sequence[UserContent]:
    return part.content if isinstance(part, UserPromptPart) and isinstance(part.content, list) else []


def _named(part: ModelRequestPart) -> bool:
    return any(_is_url(content) for content in _contents(part))


def _is_url(content: UserContent) -> bool:
    return (getattr(content, "url", None) or "").startswith(("http://", "https://"))


__all__ = ["WithMedia"]
