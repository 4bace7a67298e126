"""Attachments of a question: what may be attached, and the parts that they become.

* The content decides about the type, not the name and not what the client declares: images are recognised by their
  first bytes, PDF documents too, and everything else must be text in UTF-8.
* A text becomes text of the prompt, with its name, because every model reads text. Images and PDF documents become
  images and files, which the wires send in their own form.
* Names come from other computers. They are shown and sent without directories, and as `clean_file_name` returns them.
* An attachment is stored once, in the messages of its turn. A question that is asked again names it by its id.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from itertools import chain, count
from typing import Any, Literal, NamedTuple

from ...errors import RequestError
from ...parts import File, Image, ModelMessage, ModelRequest, Text, UserContent, UserPromptPart
from ...unicode import clean_file_name, truncate
from ..decoding import invalid
from . import types as t

MAX_ATTACHMENTS = 10
"""Attachments of one question."""
MAX_ATTACHMENT_BYTES = 10 * 1024 * 1024
"""Size of one attachment."""
MAX_TOTAL_BYTES = 20 * 1024 * 1024
"""Size of all attachments of one question."""
MAX_NAME_CHARACTERS = 120

_REST_OF_BODY = 512 * 1024
"""Bytes of a request's body that are left for what is not an attachment."""

ATTACHMENT_PREFIX = "att"
PDF, TEXT = "application/pdf", "text/plain"
_IMAGE_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", PDF, "text/*")
"""The types of attachments, for clients."""

Medium = Literal["image", "pdf"]
"""What some models cannot take. Every model takes texts."""


class Limits(NamedTuple):
    """The limits of a question's attachments."""

    max_files: int = MAX_ATTACHMENTS
    max_file_bytes: int = MAX_ATTACHMENT_BYTES
    max_total_bytes: int = MAX_TOTAL_BYTES

    @classmethod
    def within(cls, max_body_bytes: int) -> Limits:
        """Return the limits for bodies of at most this size, in which attachments are base64."""
        total = max(0, min(MAX_TOTAL_BYTES, (max_body_bytes - _REST_OF_BODY) * 3 // 4))
        return cls(max_file_bytes=min(MAX_ATTACHMENT_BYTES, total), max_total_bytes=total)


DEFAULT_LIMITS = Limits()


class Attachment(NamedTuple):
    """An attachment that was checked."""

    name: str
    media_type: str
    size: int
    """In bytes."""
    content: UserContent


class Download(NamedTuple):
    """A stored attachment, to be sent to its owner."""

    name: str
    media_type: str
    data: bytes


def medium_of(content: Any) -> Medium | None:
    """Return what a model must be able to take for this content; None for text, and for content of other kinds."""
    if isinstance(content, Image):
        return "image"
    return "pdf" if isinstance(content, File) and content.media_type == PDF else None


def _medium_of_type(media_type: str) -> Medium | None:
    return "image" if media_type.startswith("image/") else "pdf" if media_type == PDF else None


def read_attachments(inputs: Sequence[t.AttachmentInput], limits: Limits) -> list[Attachment | str]:
    """Check the attachments of a request.

    Args:
        inputs: The attachments as the client sent them.
        limits: The limits. Attachments that are named by their id are counted, but not their size.

    Returns:
        For each the attachment, or the id by which it is named.

    Raises:
        RequestError: There are too many, or one is too large, of another type, or not base64.
    """
    check_count(len(inputs), limits)
    ids = [one.id for one in inputs if one.id is not None]
    for index, one in enumerate(inputs):
        if one.id is not None and ids.count(one.id) > 1:
            raise invalid(f"attachments[{index}]", f"{one.id[:80]!r} is named more than once", "duplicate_attachment")
    return [_read(one, f"attachments[{index}]", limits) for index, one in enumerate(inputs)]


def check_count(count: int, limits: Limits) -> None:
    """Raise `RequestError` if there are too many attachments."""
    if count > limits.max_files:
        raise invalid(
            "attachments",
            f"there are {count}, and a question has at most {limits.max_files}",
            "too_many_attachments",
            kind="too_large",
        )


def check_total(attachments: Sequence[Attachment], limits: Limits) -> None:
    """Raise `RequestError` if the attachments are too large together."""
    total = sum(attachment.size for attachment in attachments)
    if total > limits.max_total_bytes:
        raise invalid(
            "attachments",
            f"they are too large together: those of a question have at most {size_text(limits.max_total_bytes)}",
            "attachments_too_large",
            kind="too_large",
        )


def size_text(size: int) -> str:
    """Return a size in bytes for people."""
    return f"{size / (1 << 20):.3g} MiB" if size >= 1 << 20 else f"{size / 1024:.3g} KiB"


def _read(one: t.AttachmentInput, path: str, limits: Limits) -> Attachment | str:
    if one.id is not None:
        if one.data is not None:
            raise invalid(path, "it has an id, so it is stored already; leave out data, or the id")
        return one.id
    if one.data is None:
        problem = "it is required: the content in base64, or instead of it the id of an earlier attachment"
        raise invalid(f"{path}.data", problem, "missing")
    name = _clean_name(one.name or "")
    size = len(one.data) // 4 * 3 - one.data[-2:].count("=")
    if size > limits.max_file_bytes:
        raise invalid(
            path,
            f"{name!r} is too large: an attachment has at most {size_text(limits.max_file_bytes)}",
            "attachment_too_large",
            kind="too_large",
        )
    try:
        data = base64.b64decode(one.data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{path}.data", f"that of {name!r} is not valid base64") from None
    if not data:
        raise invalid(path, f"{name!r} is empty")
    media_type = _media_type_of(data)
    declared = (one.media_type or "").partition(";")[0].strip().lower()
    expected = _medium_of_type(declared)
    if media_type is None or expected not in (None, _medium_of_type(media_type)):
        mismatch = f": its content is not {truncate(declared)}" if media_type is not None else ""
        raise invalid(
            path,
            f"{name!r} cannot be attached{mismatch}; PNG, JPEG, GIF and WebP images, PDF documents and texts in UTF-8 "
            "can be",
            "unsupported_attachment",
        )
    if media_type == TEXT:
        return Attachment(name, TEXT, len(data), Text(text=_text_content(name, data.decode())))
    if media_type == PDF:
        return Attachment(name, PDF, len(data), File(data=one.data, media_type=PDF, filename=name))
    return Attachment(name, media_type, len(data), Image(data=one.data, media_type=media_type))


def _media_type_of(data: bytes) -> str | None:
    """Return the media type of a file by its content; None if it is none that can be attached."""
    for signature, media_type in _IMAGE_SIGNATURES.items():
        if data.startswith(signature):
            return media_type
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image/webp"
    if data.startswith(b"%PDF-"):
        return PDF
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    # Binary formats of ASCII bytes alone exist; a text has no NUL.
    return None if "\0" in text else TEXT


def _clean_name(name: str) -> str:
    """Return the name of a file as it is shown and sent."""
    return clean_file_name(name.replace("\\", "/").rpartition("/")[2], "file", MAX_NAME_CHARACTERS)


# --- texts as parts of a prompt ------------------------------------------------------------------------------------


_TAG = re.compile(r"<[\s/]*(file(?:-\d+)?)\b", re.IGNORECASE)


def _text_content(name: str, text: str) -> str:
    """Return a text as a model gets it: between tags, of which the text has none, so that it cannot add a file."""
    tags = {match[1].lower() for match in _TAG.finditer(text)}
    tag = next(tag for tag in chain(["file"], map("file-{}".format, count(2))) if tag not in tags)
    return f'<{tag} name="{name}">\n{text}\n</{tag}>'


def _text_in(content: str) -> str:
    """Return the text between the tags of `_text_content`."""
    return content.partition("\n")[2].rpartition("\n")[0]


# --- stored attachments --------------------------------------------------------------------------------------------


def attachment_id(event_id: str, index: int) -> str:
    """Return the id of an attachment.

    Args:
        event_id: The id of the question's or the answer's event.
        index: The attachment's place in the question.
    """
    return f"{ATTACHMENT_PREFIX}_{event_id.partition('_')[2]}_{index}"


def parse_attachment_id(id: str) -> tuple[str, int] | None:
    """Return the id of the answer's event, and the attachment's place; None if `id` is not the id of an attachment."""
    prefix, _, rest = id.partition("_")
    suffix, _, index = rest.rpartition("_")
    if prefix != ATTACHMENT_PREFIX or not suffix or index not in _INDICES:
        return None
    return f"{t.ANSWER_PREFIX}_{suffix}", int(index)


_INDICES = frozenset(map(str, range(MAX_ATTACHMENTS)))


class StoredAttachment(NamedTuple):
    """What the input of a turn has of an attachment: all but its content."""

    name: str
    media_type: str
    size: int


def attachment_infos(event_id: str, attachments: Sequence[StoredAttachment]) -> list[t.AttachmentInfo]:
    """Return the attachments of a question as clients get them.

    Args:
        event_id: The id of the question's or the answer's event.
        attachments: What is stored of the attachments.
    """
    ids = [attachment_id(event_id, index) for index in range(len(attachments))]
    return [
        t.AttachmentInfo(
            id=id, name=one.name, media_type=one.media_type, size=one.size, url=f"{t.ATTACHMENTS_PATH}/{id}"
        )
        for id, one in zip(ids, attachments, strict=True)
    ]


def stored_attachments(attachments: Sequence[StoredAttachment], messages: Sequence[ModelMessage]) -> list[Attachment]:
    """Return the attachments of a stored question, with their contents.

    Args:
        attachments: What the input of the turn has of its attachments.
        messages: The messages of the turn. The first begins with the contents.
    """
    if not messages or not isinstance(messages[0], ModelRequest):
        return []
    prompt = next((part for part in messages[0].parts if isinstance(part, UserPromptPart)), None)
    if prompt is None or isinstance(prompt.content, str):
        return []
    return [Attachment(*one, content) for one, content in zip(attachments, prompt.content, strict=False)]


def download_of(attachment: Attachment) -> Download:
    """Return the content of a stored attachment."""
    content = attachment.content
    if isinstance(content, Text):
        return Download(attachment.name, TEXT, _text_in(content.text).encode("utf-8", "replace"))
    assert isinstance(content, Image | File)
    return Download(attachment.name, attachment.media_type, base64.b64decode(content.data or ""))


def attachment_not_found(id: str, param: str) -> RequestError:
    """Return the error for an attachment that does not exist, or belongs to another owner; the message is the same."""
    return invalid(
        param,
        f"there is no attachment {id[:80]!r} here; it may have been deleted with its conversation",
        "attachment_not_found",
        kind="not_found",
    )
