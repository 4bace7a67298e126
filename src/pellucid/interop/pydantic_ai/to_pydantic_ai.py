"""Our parts in Pydantic AI's words: what can be said in them, and nothing else.

What cannot (an origin, an item, log-probabilities, …) is not this module's concern: `messages` keeps it. A time that
is not known is the epoch: never now, never guessed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from pydantic_ai import messages as theirs
from pydantic_ai.usage import RequestUsage

from ... import parts as ours

UNKNOWN_TIME = datetime.fromtimestamp(0, UTC)

NATIVE_REASON_KEY = "finish_reason"
"""Where Pydantic AI's own models keep the provider's word for why it stopped, in `provider_details`."""


def response_part(part: ours.ModelResponsePart) -> theirs.ModelResponsePart | None:
    """The part; None for what their vocabulary has no kind for."""
    converter = _RESPONSE_CONVERTERS[type(part)]
    return converter(part) if converter is not None else None


def request_part(part: ours.ModelRequestPart, timestamp: datetime) -> theirs.ModelRequestPart:
    return _REQUEST_CONVERTERS[type(part)](part, timestamp)


def usage(reported: ours.Usage) -> RequestUsage:
    """Pydantic AI counts what nobody counted as 0, and says how many requests that is true of."""
    numbers = {name: getattr(reported, name) or 0 for name in reported.__struct_fields__ if name != "details"}
    is_unknown = reported == ours.Usage()
    return RequestUsage(**numbers, details=dict(reported.details), unmeasured_requests=int(is_unknown))


def finish_reason(reason: ours.FinishReason | None) -> theirs.FinishReason | None:
    return None if reason == "pause" else reason


# --- what a model says -------------------------------------------------------------------------------------------


def _shared_fields(part: Any) -> dict[str, Any]:
    """The fields that have the same name and meaning on both sides."""
    return {"id": part.id, "provider_name": part.provider_name, "provider_details": part.provider_details or None}


def _thinking(part: ours.ThinkingPart) -> theirs.ThinkingPart:
    return theirs.ThinkingPart(part.content, signature=part.signature, **_shared_fields(part))


def _text(part: ours.TextPart) -> theirs.TextPart:
    citations = [_citation(annotation) for annotation in part.annotations or ()]
    return theirs.TextPart(
        part.content, citations=[c for c in citations if c is not None] or None, **_shared_fields(part)
    )


def _citation(annotation: dict[str, Any]) -> theirs.Citation | None:
    url, title = annotation.get("url"), annotation.get("title")
    if annotation.get("type") != "url_citation" or not isinstance(url, str):
        return None
    source = theirs.WebCitationSource(url, title=title if isinstance(title, str) else None)
    start, end = annotation.get("start_index"), annotation.get("end_index")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
        return theirs.Citation([source], anchor=theirs.ContentCitationAnchor(start=start, end=end))
    return theirs.Citation([source])


def _refusal(part: ours.RefusalPart) -> theirs.TextPart:
    return theirs.TextPart(part.content, **_shared_fields(part))


def _call(part: ours.ToolCallPart) -> theirs.ToolCallPart:
    return theirs.ToolCallPart(part.tool_name, part.args, part.tool_call_id, **_shared_fields(part))


def _builtin_call(part: ours.BuiltinToolCallPart) -> theirs.NativeToolCallPart:
    return theirs.NativeToolCallPart(part.tool_name, part.args, part.tool_call_id, **_shared_fields(part))


def _builtin_return(part: ours.BuiltinToolReturnPart) -> theirs.NativeToolReturnPart:
    return theirs.NativeToolReturnPart(
        part.tool_name,
        part.content,
        part.tool_call_id,
        timestamp=UNKNOWN_TIME,
        provider_name=part.provider_name,
        provider_details=part.provider_details or None,
    )


def _file(part: ours.FilePart) -> theirs.FilePart:
    return theirs.FilePart(_binary(part.data, part.media_type), **_shared_fields(part))


def _compaction(part: ours.CompactionPart) -> theirs.CompactionPart:
    return theirs.CompactionPart(part.content, **_shared_fields(part))


_RESPONSE_CONVERTERS: dict[type, Callable[[Any], theirs.ModelResponsePart] | None] = {
    ours.ThinkingPart: _thinking,
    ours.TextPart: _text,
    ours.RefusalPart: _refusal,
    ours.ToolCallPart: _call,
    ours.BuiltinToolCallPart: _builtin_call,
    ours.BuiltinToolReturnPart: _builtin_return,
    ours.FilePart: _file,
    ours.CompactionPart: _compaction,
    # Blocks that nobody but their maker may read: they ride with the message, and no other model is shown them.
    ours.OpaquePart: None,
    ours.SealedPart: None,
}


UNMAPPED_PARTS = tuple(kind for kind, make in _RESPONSE_CONVERTERS.items() if make is None)
"""Our parts that have no counterpart."""


# --- what is said to a model -------------------------------------------------------------------------------------


def _system(part: ours.SystemPromptPart, timestamp: datetime) -> theirs.SystemPromptPart:
    return theirs.SystemPromptPart(part.content, timestamp=timestamp)


def _user(part: ours.UserPromptPart, timestamp: datetime) -> theirs.UserPromptPart:
    content = part.content if isinstance(part.content, str) else [user_content(item) for item in part.content]
    return theirs.UserPromptPart(content, timestamp=timestamp)


def _return(part: ours.ToolReturnPart, timestamp: datetime) -> theirs.ToolReturnPart:
    return theirs.ToolReturnPart(
        part.tool_name, _returned_content(part.content), part.tool_call_id, timestamp=timestamp, outcome=part.outcome
    )


def _returned_content(content: Any) -> Any:
    """What a function returned. Content parts are content parts also when a store's JSON made objects of them."""
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
    ours.SystemPromptPart: _system,
    ours.UserPromptPart: _user,
    ours.ToolReturnPart: _return,
    ours.RetryPromptPart: _retry,
}

_URL_TYPES: dict[type, Any] = {
    ours.Image: theirs.ImageUrl,
    ours.Audio: theirs.AudioUrl,
    ours.Video: theirs.VideoUrl,
    ours.File: theirs.DocumentUrl,
}
_DEFAULT_MEDIA_TYPES = {
    ours.Image: "image/png",
    ours.Audio: "audio/wav",
    ours.Video: "video/mp4",
    ours.File: "application/octet-stream",
}
"""What to call data of which only the kind is known."""


def user_content(item: ours.UserContent) -> theirs.UserContent:
    if isinstance(item, ours.Text):
        return item.text
    media_type = item.media_type or _DEFAULT_MEDIA_TYPES[type(item)]
    file_id = getattr(item, "file_id", None)
    if item.data is not None:
        return _binary(item.data, media_type)
    if item.url is not None:
        detail = getattr(item, "detail", None)
        made: theirs.UserContent = _URL_TYPES[type(item)](
            item.url, media_type=media_type, vendor_metadata={"detail": detail} if detail else None
        )
        return made
    # Whose file it is stands nowhere with us; OpenAI's are the ones that have a name on our wires.
    return theirs.UploadedFile(file_id or "", "openai", media_type=media_type)


def _binary(data: str, media_type: str) -> theirs.BinaryContent:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    return theirs.BinaryContent.narrow_type(theirs.BinaryContent(raw, media_type=media_type))
