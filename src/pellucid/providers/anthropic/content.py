"""Encode text, images and documents as content blocks of a user message or a tool result."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Any
from urllib.parse import unquote_to_bytes

from ...errors import RequestError
from ...parts import Audio, File, Image, Text, Video, json_text

Body = dict[str, Any]

_CONTENT_TYPES = (Text, Image, Audio, Video, File)

_IMAGE_BASE64_PREFIXES = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lG": "image/gif", "UklGR": "image/webp"}
"""First characters of an image's base64 data, and its media type."""


def content_blocks(content: Any) -> list[Body]:
    """Encode a text, a list of contents, or any other JSON value (as text) as blocks.

    Raises:
        RequestError: This wire cannot carry the content.
    """
    if isinstance(content, list) and content and all(isinstance(entry, (*_CONTENT_TYPES, str)) for entry in content):
        return [block for entry in content for block in _block(entry)]
    if isinstance(content, _CONTENT_TYPES):
        return _block(content)
    if content is None:
        return []
    return _block(content if isinstance(content, str) else json_text(content))


def _block(content: Any) -> list[Body]:
    match content:
        case str():
            return [{"type": "text", "text": content}] if content.strip() else []
        case Text():
            return _block(content.text)
        case Image() if content.file_id or content.data or content.url:
            return [{"type": "image", "source": _source(content, "image/png")}]
        case File() if content.file_id or content.data or content.url:
            return [_document(content)]
        case _:
            raise RequestError(
                f"a {getattr(content, 'kind', 'content')} in this form cannot be sent over Anthropic Messages; "
                f"it takes text, images, PDF and plain text",
                kind="unsupported",
                code="unsupported_content",
            )


def _source(content: Image | File, default_media_type: str) -> Body:
    if content.file_id:
        return {"type": "file", "file_id": content.file_id}
    media_type, data = content.media_type, content.data
    if data is None and content.url is not None:
        if not content.url.startswith("data:"):
            return {"type": "url", "url": content.url}
        media_type, data = _data_url(content.url)
    data = data or ""
    detected_media_type = next(
        (name for start, name in _IMAGE_BASE64_PREFIXES.items() if data.startswith(start)), default_media_type
    )
    return {"type": "base64", "media_type": media_type or detected_media_type, "data": data}


def _document(file: File) -> Body:
    source = _source(file, "application/pdf")
    media_type = source.get("media_type", "")
    if media_type.startswith("image/"):
        return {"type": "image", "source": source}
    if media_type.startswith("text/") or media_type == "application/json":
        source = {"type": "text", "media_type": "text/plain", "data": _decoded_text(source["data"])}
    elif media_type and media_type != "application/pdf":
        raise RequestError(
            f"a file of type {media_type} cannot be sent over Anthropic Messages; it takes PDF, plain text and images",
            kind="unsupported",
            code="unsupported_content",
        )
    return {"type": "document", "source": source} | ({"title": file.filename} if file.filename else {})


def _decoded_text(data: str) -> str:
    try:
        return b64decode(data, validate=True).decode("utf-8", "replace")
    except (Base64Error, ValueError):
        raise RequestError("a file's data is not base64", code="invalid_base64") from None


def _data_url(url: str) -> tuple[str | None, str]:
    head, _, data = url.removeprefix("data:").partition(",")
    media_type, *options = head.split(";")
    if "base64" not in options:
        data = b64encode(unquote_to_bytes(data)).decode()
    return media_type or None, data
