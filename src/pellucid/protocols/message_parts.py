"""What the client protocols share where they turn messages into parts, and results of functions into content."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from ..parts import (
    Audio,
    File,
    Image,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    SealedPart,
    Text,
    ThinkingPart,
    UserContent,
    Video,
)


def append_part(messages: list[ModelMessage], part: ModelRequestPart | ModelResponsePart) -> None:
    """Add a part to the last message, or to a new one if the last is of the other kind."""
    message_type: type[Any] = ModelRequest if isinstance(part, ModelRequestPart) else ModelResponse
    if messages and isinstance(messages[-1], message_type):
        parts: list[Any] = messages[-1].parts
        parts.append(part)
    else:
        messages.append(message_type([part]))


def with_visible_texts(
    parts: list[ModelResponsePart], item_id_of: Callable[[str], str] = lambda id: id
) -> list[ModelResponsePart]:
    """Return parts whose sealed tokens have the visible reasoning of their items.

    The texts of an item that came back several times are divided equally among its tokens.

    Args:
        parts: The parts of one turn.
        item_id_of: Returns the id of the item to which the id of a token belongs.
    """
    texts: dict[str, list[str]] = {}
    tokens: dict[str, list[int]] = {}
    for index, part in enumerate(parts):
        if isinstance(part, ThinkingPart) and part.item_id is not None:
            texts.setdefault(part.item_id, []).append(part.content)
        elif isinstance(part, SealedPart) and part.item_id is not None:
            tokens.setdefault(item_id_of(part.item_id), []).append(index)
    parts = list(parts)
    for id in texts.keys() & tokens.keys():
        count = len(texts[id]) // len(tokens[id])
        for number, index in enumerate(tokens[id], 1):
            end = number * count if number < len(tokens[id]) else None
            text = "\n\n".join(texts[id][(number - 1) * count : end])
            parts[index] = replace(parts[index], visible_texts=(text,) if text else ())
    return parts


def joined_if_text(contents: list[UserContent]) -> str | list[UserContent]:
    """Return contents that are all text as one text, with a line for each; other contents as they are."""
    texts = [content.text for content in contents if isinstance(content, Text)]
    return "\n".join(texts) if len(texts) == len(contents) else contents


def split_file_data(file_data: str) -> tuple[str, str | None]:
    """Return the base64 data and the media type of `file_data`, which is base64 or a data URL."""
    if not file_data.startswith("data:"):
        return file_data, None
    head, _, data = file_data.partition(",")
    return data, head[5:].partition(";")[0] or None


_MEDIA: dict[str, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}


def media_content(media_type: str, fields: dict[str, Any], filename: str | None) -> UserContent:
    """Return the content for a media type: an image, audio, a video, or a file.

    Args:
        media_type: The media type, as the client sent it.
        fields: The fields of the content: its source and media type.
        filename: The name of a file.
    """
    content_type = _MEDIA.get(media_type.partition("/")[0])
    return content_type(**fields) if content_type is not None else File(**fields, filename=filename)


def without_trailing_reasoning(
    parts: list[ModelResponsePart], is_content: Callable[[ModelResponsePart], bool]
) -> list[ModelResponsePart]:
    """Return parts without the reasoning after the last content; sealed tokens there are kept.

    Providers refuse a thought without an answer. Without any content, nothing is left.
    """
    last = max((index for index, part in enumerate(parts) if is_content(part)), default=None)
    if last is None:
        return []
    return [*parts[: last + 1], *(part for part in parts[last + 1 :] if isinstance(part, SealedPart))]
