"""Images, documents, audio and video in the form of Converse, and redacted reasoning as base64.

Media have a format name of Bedrock's own, and bytes or an S3 location. Nothing is fetched here: a file at another URL
must have been fetched before.

Redacted reasoning may be split over several deltas, each with base64 of its own. Base64 with padding cannot be
concatenated: the bytes are joined, and encoded once. Claude's `redactedContent` is the UTF-8 of a text; that text is
stored as the part's signature, as it would be by the Anthropic wire. Other models may send any bytes, or no base64 at
all: then the signature is the wire's value, and the part's details hold a mark for it.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable
from typing import Any

from ...parts import Audio, File, Image, Text, UserContent, Video
from ..media import split_data_url, unsupported
from ..setting_fields import Body

_FORMATS: dict[str, dict[str, str]] = {
    "image": {
        "image/png": "png",
        "image/jpeg": "jpeg",
        "image/jpg": "jpeg",
        "image/gif": "gif",
        "image/webp": "webp",
    },
    "video": {
        "video/mp4": "mp4",
        "video/quicktime": "mov",
        "video/webm": "webm",
        "video/x-matroska": "mkv",
        "video/x-flv": "flv",
        "video/mpeg": "mpeg",
        "video/x-ms-wmv": "wmv",
        "video/3gpp": "three_gp",
    },
    "audio": {
        "audio/mpeg": "mp3",
        "audio/mp3": "mp3",
        "audio/wav": "wav",
        "audio/x-wav": "wav",
        "audio/aac": "aac",
        "audio/flac": "flac",
        "audio/ogg": "ogg",
        "audio/opus": "opus",
        "audio/mp4": "m4a",
        "audio/webm": "webm",
    },
    "document": {
        "application/pdf": "pdf",
        "text/csv": "csv",
        "application/msword": "doc",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
        "application/vnd.ms-excel": "xls",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
        "text/html": "html",
        "text/plain": "txt",
        "text/markdown": "md",
    },
}

_FORBIDDEN_IN_NAME = re.compile(r"[^0-9A-Za-z \-()\[\]]+")


class ContentEncoder:
    """Encodes the contents of one request. Documents need names that are unique in the request."""

    def __init__(self) -> None:
        self._document_names: set[str] = set()

    def encode(self, contents: Iterable[UserContent]) -> list[Body]:
        """Encode contents as blocks. Raises `RequestError` for content that cannot be sent."""
        return [block for content in contents if (block := self._block(content)) is not None]

    def _block(self, content: UserContent) -> Body | None:
        match content:
            case Text():
                # The wire rejects blank text.
                return {"text": content.text} if content.text.strip() else None
            case Image():
                return {"image": _media_source("image", content, "image/png")}
            case Audio():
                return {"audio": _media_source("audio", content, "audio/wav")}
            case Video():
                return {"video": _media_source("video", content, "video/mp4")}
            case File():
                kind = (content.media_type or _guess_media_type(content) or "").partition("/")[0]
                if kind in ("image", "audio", "video"):
                    return {kind: _media_source(kind, content, "")}
                return {
                    "document": {
                        "name": self._document_name(content.filename),
                        **_media_source("document", content, ""),
                    }
                }

    def _document_name(self, filename: str | None) -> str:
        """Return a unique name of the characters that Bedrock accepts, without two spaces in a row."""
        stem, dot, _ = (filename or "").rpartition(".")
        words = _FORBIDDEN_IN_NAME.sub(" ", stem if dot else filename or "").split()
        name = base = " ".join(words)[:180] or "Document"
        number = 1
        while name in self._document_names:
            number += 1
            name = f"{base} ({number})"
        self._document_names.add(name)
        return name


def _media_source(kind: str, content: Image | Audio | Video | File, default_media_type: str) -> Body:
    media_type, data, url = content.media_type, content.data, content.url
    data_url = split_data_url(url)
    if data_url is not None and data_url[1]:
        media_type, data = data_url[0] or media_type, data_url[2]
    formats, noun = _FORMATS[kind], f"{'an' if kind[0] in 'ai' else 'a'} {kind}"
    media_type = (media_type or _guess_media_type(content) or default_media_type).partition(";")[0].strip().lower()
    if media_type not in formats:
        raise unsupported(
            f"Bedrock does not take {noun} of type {media_type or 'unknown'!r}; it takes {', '.join(formats)}"
        )
    if data:
        return {"format": formats[media_type], "source": {"bytes": data}}
    if url and url.startswith("s3://"):
        return {"format": formats[media_type], "source": {"s3Location": {"uri": url}}}
    if url:
        raise unsupported(f"Bedrock does not take {noun} by URL; it takes bytes, or a file in S3")
    raise unsupported(
        f"Bedrock does not take {noun} without bytes; a file id is valid only at the provider that issued it"
    )


def _guess_media_type(content: Image | Audio | Video | File) -> str | None:
    """Guess the media type from the extension of a file name or URL."""
    name = (content.filename if isinstance(content, File) else None) or content.url or ""
    extension = name.rpartition(".")[2].lower()
    extension = {"jpg": "jpeg"}.get(extension, extension)
    return next(
        (type_ for formats in _FORMATS.values() for type_, known in formats.items() if known == extension),
        None,
    )


BASE64_DETAILS: dict[str, Any] = {"redacted_content": "base64"}
"""Details of a part whose signature is already the wire's value."""


def join_base64(pieces: list[str]) -> bytes | None:
    """Decode and join base64 pieces; None if one is not base64."""
    try:
        return b"".join(b64decode(piece, validate=True) for piece in pieces)
    except (Error, ValueError):
        return None


def redacted_signature(pieces: list[str]) -> tuple[str, dict[str, Any] | None]:
    """Return the signature and the details of the part for a redacted block."""
    data = join_base64(pieces)
    if data is None:
        return "".join(pieces), BASE64_DETAILS
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return b64encode(data).decode(), BASE64_DETAILS


def redacted_content(signature: str, details: dict[str, Any] | None) -> str:
    """Return the wire's value of a redacted part."""
    if (details or {}).get("redacted_content") == "base64":
        return signature
    return b64encode(signature.encode()).decode()
