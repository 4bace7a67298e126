"""Images, documents, sounds and videos, as Converse takes them: a format of its own naming, and bytes or a place in S3.

Nothing is fetched here: a file at any other URL must have been fetched before.

Bytes in pieces. A blob may be cut over several deltas, each with base64 of its own.

Base64 cannot be joined where a piece has padding: the bytes are joined, and encoded once. What Bedrock calls
`redactedContent` is, from Claude, the UTF-8 of a text; that text is what is kept as the part's signature, as it would
be from Anthropic itself. From others it may be any bytes, or not even base64: then it is kept as it is on the wire,
and the part's details say so.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable
from typing import Any

from ...errors import RequestError
from ...parts import Audio, File, Image, Text, UserContent, Video

Body = dict[str, Any]

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

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)[^,]*;base64,(?P<data>.*)", re.DOTALL)
_NOT_IN_A_NAME = re.compile(r"[^0-9A-Za-z \-()\[\]]+")


class Media:
    """The content of one request: documents need names, which may not repeat."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def blocks(self, contents: Iterable[UserContent]) -> list[Body]:
        """Raises `RequestError` for what cannot be sent."""
        return [block for content in contents if (block := self._block(content)) is not None]

    def _block(self, content: UserContent) -> Body | None:
        match content:
            case Text():
                # Blank text is refused.
                return {"text": content.text} if content.text.strip() else None
            case Image():
                return {"image": _file("image", content, "image/png")}
            case Audio():
                return {"audio": _file("audio", content, "audio/wav")}
            case Video():
                return {"video": _file("video", content, "video/mp4")}
            case File():
                kind = (content.media_type or _guessed(content) or "").partition("/")[0]
                if kind in ("image", "audio", "video"):
                    return {kind: _file(kind, content, "")}
                return {"document": {"name": self._name(content.filename), **_file("document", content, "")}}

    def _name(self, filename: str | None) -> str:
        """A name that Bedrock accepts: few characters, no two spaces in a row, none twice."""
        stem, dot, _ = (filename or "").rpartition(".")
        words = _NOT_IN_A_NAME.sub(" ", stem if dot else filename or "").split()
        name = base = " ".join(words)[:180] or "Document"
        number = 1
        while name in self._names:
            number += 1
            name = f"{base} ({number})"
        self._names.add(name)
        return name


def _file(kind: str, content: Image | Audio | Video | File, usual: str) -> Body:
    media_type, data, url = content.media_type, content.data, content.url
    embedded = _DATA_URL.fullmatch(url) if url else None
    if embedded is not None:
        media_type, data = embedded["type"] or media_type, embedded["data"]
    formats, one = _FORMATS[kind], f"{'an' if kind[0] in 'ai' else 'a'} {kind}"
    media_type = (media_type or _guessed(content) or usual).partition(";")[0].strip().lower()
    if media_type not in formats:
        raise _unsupported(f"{one} of type {media_type or 'unknown'!r}; it takes {', '.join(formats)}")
    if data:
        return {"format": formats[media_type], "source": {"bytes": data}}
    if url and url.startswith("s3://"):
        return {"format": formats[media_type], "source": {"s3Location": {"uri": url}}}
    if url:
        raise _unsupported(f"{one} by URL; it takes bytes, or what lies in S3")
    raise _unsupported(f"{one} without bytes; a file id is known only to the provider that gave it")


def _guessed(content: Image | Audio | Video | File) -> str | None:
    """The type that a file's name tells."""
    name = (content.filename if isinstance(content, File) else None) or content.url or ""
    ending = name.rpartition(".")[2].lower()
    ending = {"jpg": "jpeg"}.get(ending, ending)
    return next(
        (type_ for formats in _FORMATS.values() for type_, known in formats.items() if known == ending),
        None,
    )


def _unsupported(what: str) -> RequestError:
    return RequestError(f"Bedrock does not take {what}", kind="unsupported", code="unsupported_content")


ON_THE_WIRE: dict[str, Any] = {"redacted_content": "base64"}
"""Details of a part whose signature is already what goes onto the wire."""


def joined(pieces: list[str]) -> bytes | None:
    """The bytes of all pieces; None if one is not base64."""
    try:
        return b"".join(b64decode(piece, validate=True) for piece in pieces)
    except (Error, ValueError):
        return None


def signature_of(pieces: list[str]) -> tuple[str, dict[str, Any] | None]:
    """What to keep of a redacted block, as a signature and the part's details."""
    data = joined(pieces)
    if data is None:
        return "".join(pieces), ON_THE_WIRE
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return b64encode(data).decode(), ON_THE_WIRE


def redacted_content(signature: str, details: dict[str, Any] | None) -> str:
    """The same, for the wire."""
    if (details or {}).get("redacted_content") == "base64":
        return signature
    return b64encode(signature.encode()).decode()
