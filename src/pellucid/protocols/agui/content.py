"""What a function returned, as a tool message has it."""

from __future__ import annotations

from ...parts import Text, ToolReturnPart, UserContent
from .messages import (
    AudioContent,
    ContentPart,
    DataSource,
    DocumentContent,
    FileSource,
    ImageContent,
    Source,
    TextContent,
    UrlSource,
    VideoContent,
)

_MEDIA: dict[str, tuple[type[ImageContent | AudioContent | VideoContent | DocumentContent], str]] = {
    "image": (ImageContent, "image/png"),
    "audio": (AudioContent, "audio/wav"),
    "video": (VideoContent, "video/mp4"),
    "file": (DocumentContent, "application/octet-stream"),
}
"""The part of each medium, and what it is if nobody said."""


def content_parts(result: ToolReturnPart, *, media: bool) -> str | list[ContentPart]:
    """Text; or parts, if there is more than text and the client takes it (`media`)."""
    contents = result.contents
    if contents is None:
        return result.content_as_text()
    words = [content.text for content in contents if isinstance(content, Text)]
    if len(words) == len(contents) or not media:
        return "\n".join(words)
    return [_part(content) for content in contents]


def _part(content: UserContent) -> ContentPart:
    if isinstance(content, Text):
        return TextContent(text=content.text)
    made, kind = _MEDIA[content.kind]
    source: Source
    file_id: str | None = getattr(content, "file_id", None)
    if content.url is not None:
        source = UrlSource(value=content.url, mime_type=content.media_type)
    elif file_id is not None and content.data is None:
        source = FileSource(value=file_id, mime_type=content.media_type)
    else:
        source = DataSource(value=content.data or "", mime_type=content.media_type or kind)
    return made(source=source)
