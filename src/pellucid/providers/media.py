"""Images, sounds and files as the wires of OpenAI's family carry them: by URL, which may hold the data itself."""

from __future__ import annotations

from typing import Any

from ..errors import RequestError
from ..parts import Audio, File, Image, UserContent


def url_of(content: Image | File, default_type: str) -> str:
    """Where it is; or the data as a `data:` URL, taken for `otherwise` where it does not say what it is."""
    return content.url or data_url(content, default_type)


def data_url(content: Image | File, default_type: str) -> str:
    return f"data:{content.media_type or default_type};base64,{content.data or ''}"


def input_audio(content: Audio) -> dict[str, Any]:
    """Sound as a piece of a message."""
    kind = (content.media_type or "audio/wav").rpartition("/")[2].removeprefix("x-")
    form = {"mpeg": "mp3"}.get(kind, kind)
    return {"type": "input_audio", "input_audio": {"data": content.data, "format": form}}


def unsupported_content(content: UserContent, where: str) -> RequestError:
    """`where` begins with the preposition: `over Responses`, `to Mistral`."""
    return RequestError(
        f"a {content.kind} in this form cannot be sent {where}",
        kind="unsupported",
        code="unsupported_content",
    )
