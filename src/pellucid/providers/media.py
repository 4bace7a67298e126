"""Images, audio and files as OpenAI's wires and similar ones carry them: by URL, also by `data:` URLs."""

from __future__ import annotations

from typing import Any

from ..errors import RequestError
from ..parts import DEFAULT_MEDIA_TYPES, Audio, File, Image, UserContent


def url_of(content: Image | File, default_type: str | None = None) -> str:
    """Return the content's URL, or its data as a `data:` URL, with `default_type` if it has no media type."""
    return content.url or data_url(content, default_type)


def data_url(content: Image | File, default_type: str | None = None) -> str:
    """Return the content's data as a `data:` URL, with `default_type` if it has no media type."""
    media_type = content.media_type or default_type or DEFAULT_MEDIA_TYPES[content.kind]
    return f"data:{media_type};base64,{content.data or ''}"


def input_audio(content: Audio) -> dict[str, Any]:
    """Encode audio as a content part."""
    kind = (content.media_type or "audio/wav").rpartition("/")[2].removeprefix("x-")
    form = {"mpeg": "mp3"}.get(kind, kind)
    return {"type": "input_audio", "input_audio": {"data": content.data, "format": form}}


def unsupported_content(content: UserContent, where: str) -> RequestError:
    """Return the error for content that a wire cannot carry.

    Args:
        content: The content.
        where: The wire, with its preposition: `over Responses`, `to Mistral`.
    """
    return unsupported(f"a {content.kind} in this form cannot be sent {where}")


def unsupported(message: str) -> RequestError:
    """Return the error for content that a wire cannot carry, with this message."""
    return RequestError(message, kind="unsupported", code="unsupported_content")


def split_data_url(url: str | None) -> tuple[str, bool, str] | None:
    """Split a `data:` URL (RFC 2397).

    Returns:
        The media type, empty if there is none; whether the data is base64; the data. None for another URL.
    """
    if url is None or not url.startswith("data:"):
        return None
    head, _, data = url.removeprefix("data:").partition(",")
    media_type, *options = head.split(";")
    return media_type, "base64" in options, data


_IMAGE_BASE64_PREFIXES = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}


def image_type_of(data: str) -> str | None:
    """Return the media type of an image, from the first characters of its base64 data; None if it is unknown."""
    return next((kind for start, kind in _IMAGE_BASE64_PREFIXES.items() if data.startswith(start)), None)
