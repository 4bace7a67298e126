"""What an MCP server returns, as a tool's result: plain JSON or text, and parts where there is more than text to it.

* Structured content is the result, where the rest is only its text again.
* Text alone is text. With pictures, sounds or files it is a list of content parts, in order.
* Links are kept as the JSON they are: nothing is fetched here.
* A result past the limit is refused whole: half a result reads like a whole one.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..parts import Audio, File, Image, Text, UserContent, json_text
from .protocol import ToolFailed


def result_of(result: Any, max_bytes: int) -> Any:
    """The value of a `CallToolResult`. Raises `ToolFailed` for one that is an error, or too large."""
    blocks: list[Any] = list(result.content)
    structured = result.structured_content
    texts = [block.text for block in blocks if block.type == "text"]
    value: Any
    if structured is not None and len(texts) == len(blocks) and not result.is_error:
        value = structured
    elif len(texts) == len(blocks):
        value = "\n".join(texts)
    else:
        value = [_content(block) for block in blocks]
    size = len(value) if isinstance(value, str) else len(msgspec.json.encode(value))
    if size > max_bytes:
        raise ToolFailed(f"The result is too large: {size} bytes, and at most {max_bytes} are taken.")
    if result.is_error:
        raise ToolFailed(value or "The tool failed, and did not say why.")
    return value


def _content(block: Any) -> UserContent:
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return Image(data=block.data, media_type=block.mime_type)
        case "audio":
            return Audio(data=block.data, media_type=block.mime_type)
        case "resource" if getattr(block.resource, "text", None) is not None:
            return Text(block.resource.text)
        case "resource":
            kind = block.resource.mime_type or "application/octet-stream"
            if kind.startswith("image/"):
                return Image(data=block.resource.blob, media_type=kind)
            name = str(block.resource.uri).rpartition("/")[2] or None
            return File(data=block.resource.blob, media_type=kind, filename=name)
        case _:
            return Text(json_text(block.model_dump(mode="json", by_alias=True, exclude_none=True)))
