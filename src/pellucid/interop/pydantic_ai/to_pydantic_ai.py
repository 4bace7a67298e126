"""Convert our parts to Pydantic AI's, as far as these have the fields.

Fields without a counterpart (an origin, an item, log probabilities, …) are left out here; `messages` stores them. An
unknown time becomes 1970-01-01, never the current time.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from pydantic_ai import messages as theirs
from pydantic_ai.usage import RequestUsage

from ... import parts as ours
from . import conventions

UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)

NATIVE_REASON_KEY = "finish_reason"
"""The key in `provider_details` under which Pydantic AI's models store the provider's own finish reason."""


def response_parts(
    parts: Sequence[ours.ModelResponsePart], origin: ours.Origin | None, model_name: str | None
) -> list[theirs.ModelResponsePart | None]:
    """Convert parts of a response; None for parts of which Pydantic AI has no kind.

    Args:
        parts: The parts; those of one item together.
        origin: The origin of the response.
        model_name: The model's name in the response.
    """
    converted = [
        response_part(part, conventions.source_of(getattr(part, "origin", None) or origin, model_name))
        for part in parts
    ]
    conventions.move_item_signatures(converted, origin)
    return converted


def response_part(
    part: ours.ModelResponsePart, source: conventions.Source | None = None
) -> theirs.ModelResponsePart | None:
    """Convert a part of a response; None if Pydantic AI has no part of this kind.

    Args:
        part: The part.
        source: Where it is from; None if that is not known.
    """
    converter = _RESPONSE_CONVERTERS[type(part)]
    if converter is None:
        return None
    converted = converter(part)
    conventions.write_part(part, converted, source)
    return converted


def request_part(part: ours.ModelRequestPart, timestamp: datetime) -> theirs.ModelRequestPart:
    return _REQUEST_CONVERTERS[type(part)](part, timestamp)


def usage(reported: ours.Usage) -> RequestUsage:
    """Convert usage. Pydantic AI has 0 for unknown numbers, and the number of requests without any numbers."""
    numbers = {name: getattr(reported, name) or 0 for name in ours.TOKEN_COUNTS}
    is_unknown = reported == ours.Usage()
    return RequestUsage(**numbers, details=dict(reported.details), unmeasured_requests=int(is_unknown))


def finish_reason(reason: ours.FinishReason | None) -> theirs.FinishReason | None:
    return None if reason == "pause" else reason


# --- parts of responses ------------------------------------------------------------------------------------------


def _shared_fields(part: Any) -> dict[str, Any]:
    """Return the fields that have the same name and meaning in both libraries."""
    return {"id": part.id, "provider_name": part.provider_name, "provider_details": part.provider_details or None}


def _call_fields(part: ours.ToolCallPart | ours.BuiltinToolCallPart) -> dict[str, Any]:
    return {
        "tool_name": part.tool_name,
        "args": part.args,
        "tool_call_id": part.tool_call_id,
        **_shared_fields(part),
    }


def _text(part: ours.TextPart) -> theirs.TextPart:
    citations = [citation for annotation in part.annotations or () if (citation := _citation(annotation)) is not None]
    return theirs.TextPart(part.content, citations=citations or None, **_shared_fields(part))


def _citation(annotation: dict[str, Any]) -> theirs.Citation | None:
    url, title = annotation.get("url"), annotation.get("title")
    if annotation.get("type") != "url_citation" or not isinstance(url, str):
        return None
    source = theirs.WebCitationSource(url, title=title if isinstance(title, str) else None)
    start, end = annotation.get("start_index"), annotation.get("end_index")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
        return theirs.Citation([source], anchor=theirs.ContentCitationAnchor(start=start, end=end))
    return theirs.Citation([source])


_RESPONSE_CONVERTERS: dict[type, Callable[[Any], theirs.ModelResponsePart] | None] = {
    ours.ThinkingPart: lambda part: theirs.ThinkingPart(part.content, signature=part.signature, **_shared_fields(part)),
    ours.TextPart: _text,
    ours.RefusalPart: lambda part: theirs.TextPart(part.content, **_shared_fields(part)),
    ours.ToolCallPart: lambda part: theirs.ToolCallPart(**_call_fields(part)),
    ours.BuiltinToolCallPart: lambda part: theirs.NativeToolCallPart(**_call_fields(part)),
    ours.BuiltinToolReturnPart: lambda part: theirs.NativeToolReturnPart(
        part.tool_name,
        part.content,
        part.tool_call_id,
        timestamp=UNKNOWN_TIME,
        provider_name=part.provider_name,
        provider_details=part.provider_details or None,
    ),
    ours.FilePart: lambda part: theirs.FilePart(_binary(part.data, part.media_type), **_shared_fields(part)),
    ours.CompactionPart: lambda part: theirs.CompactionPart(part.content, **_shared_fields(part)),
    # Only the producer can read these blocks. They are stored with the message and shown to no other model.
    ours.OpaquePart: None,
    ours.SealedPart: None,
}


UNMAPPED_PARTS = tuple(kind for kind, make in _RESPONSE_CONVERTERS.items() if make is None)
"""Our parts without a counterpart in Pydantic AI."""


# --- parts of requests -------------------------------------------------------------------------------------------


def _returned_content(content: Any) -> Any:
    """Convert the result of a function. Content parts are recognised also as JSON objects, as a store returns them."""
    if not isinstance(content, list):
        return content
    try:
        items = msgspec.convert(msgspec.to_builtins(content), list[ours.UserContent])
    except (msgspec.ValidationError, TypeError):
        return content
    return [user_content(item) for item in items] if any(not isinstance(item, ours.Text) for item in items) else content


def _retry(part: ours.RetryPromptPart, timestamp: datetime) -> theirs.ToolReturnPart | theirs.RetryFeedbackPart:
    if part.tool_name is None:
        return theirs.RetryFeedbackPart(part.content, retry=theirs.RetryInfo("model_retry"), timestamp=timestamp)
    return theirs.ToolReturnPart(
        part.tool_name, part.content, part.tool_call_id, timestamp=timestamp, outcome="retried"
    )


_REQUEST_CONVERTERS: dict[type, Callable[[Any, datetime], theirs.ModelRequestPart]] = {
    ours.SystemPromptPart: lambda part, timestamp: theirs.SystemPromptPart(
        part.content, timestamp=timestamp, dynamic_ref=part.dynamic_ref
    ),
    ours.UserPromptPart: lambda part, timestamp: theirs.UserPromptPart(
        part.content if isinstance(part.content, str) else [user_content(item) for item in part.content],
        timestamp=timestamp,
    ),
    ours.ToolReturnPart: lambda part, timestamp: theirs.ToolReturnPart(
        part.tool_name, _returned_content(part.content), part.tool_call_id, timestamp=timestamp, outcome=part.outcome
    ),
    ours.RetryPromptPart: _retry,
}

_URL_TYPES: dict[type, Any] = {
    ours.Image: theirs.ImageUrl,
    ours.Audio: theirs.AudioUrl,
    ours.Video: theirs.VideoUrl,
    ours.File: theirs.DocumentUrl,
}


def user_content(item: ours.UserContent) -> theirs.UserContent:
    if isinstance(item, ours.Text):
        return item.text
    media_type = item.media_type or ours.DEFAULT_MEDIA_TYPES[item.kind]
    file_id = getattr(item, "file_id", None)
    if item.data is not None:
        return _binary(item.data, media_type)
    if item.url is not None:
        detail = getattr(item, "detail", None)
        made: theirs.UserContent = _URL_TYPES[type(item)](
            item.url, media_type=media_type, vendor_metadata={"detail": detail} if detail else None
        )
        return made
    # Our parts do not have the provider of a file. On our wires only OpenAI's files have ids.
    return theirs.UploadedFile(file_id or "", "openai", media_type=media_type)


def _binary(data: str, media_type: str) -> theirs.BinaryContent:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    return theirs.BinaryContent.narrow_type(theirs.BinaryContent(raw, media_type=media_type))
