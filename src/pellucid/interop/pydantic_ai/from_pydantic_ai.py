"""Convert Pydantic AI's parts to ours, with what a model sees of them.

Fields without a counterpart (run ids, retry budgets, cache points, …) are left out here; `messages` stores them. A
number of tokens that is 0 becomes None, because Pydantic AI does not distinguish 0 from unknown.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace
from pydantic_ai import messages as theirs
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import to_json, to_jsonable_python

from ... import parts as ours
from . import conventions

T = TypeVar("T")


def response_parts(message: theirs.ModelResponse, origin: ours.Origin | None) -> list[ours.ModelResponsePart | None]:
    """Convert the parts of a response; None for parts without a counterpart.

    Args:
        message: The response.
        origin: Its origin, if that is known.
    """
    parts: list[ours.ModelResponsePart | None] = []
    for part in message.parts:
        is_own = part.provider_name is None or part.provider_name == message.provider_name
        part_origin = origin if is_own else _origin_of(part)
        converted = response_part(part, conventions.source_of(part_origin, message.model_name))
        if converted is not None and part_origin is not None and part_origin != origin:
            converted = replace(converted, origin=part_origin)
        parts.append(converted)
    if origin is not None and origin.api == "google":
        conventions.move_thought_signatures(message.parts, parts)
    return parts


def _origin_of(part: theirs.ModelResponsePart) -> ours.Origin | None:
    """Return the origin of a part that is of another provider than its response."""
    alone = theirs.ModelResponse([part], provider_name=part.provider_name)
    return conventions.origin_of(alone, part.provider_name)


def thinking_form(part: theirs.ThinkingPart) -> ours.Form:
    """Return the form of a thought, by its id and the name of its provider."""
    converted = response_part(part, conventions.source_of(_origin_of(part), None))
    return converted.form if isinstance(converted, ours.ThinkingPart) else "raw"


def response_part(
    part: theirs.ModelResponsePart, source: conventions.Source | None = None
) -> ours.ModelResponsePart | None:
    """Convert a part of a response; None if there is no part of this kind in our vocabulary.

    Args:
        part: The part.
        source: Where it is from; None if that is not known.
    """
    converted = _convert(_RESPONSE_CONVERTERS, part)
    return None if converted is None else conventions.read_part(part, converted, source)


def request_part(part: theirs.ModelRequestPart) -> ours.ModelRequestPart | None:
    """Convert a part of a request; None if it is not for a model or our vocabulary has no part of this kind."""
    return _convert(_REQUEST_CONVERTERS, part)


def usage(reported: RequestUsage | RunUsage) -> ours.Usage:
    counts = {name: getattr(reported, name) or None for name in ours.TOKEN_COUNTS}
    return ours.Usage(**counts, details=dict(reported.details))


def _convert(table: dict[type, Callable[[Any], T]], part: Any) -> T | None:
    # Pydantic AI has subclasses for known tools, with the same content.
    converter = next((table[kind] for kind in type(part).__mro__ if kind in table), None)
    return converter(part) if converter is not None else None


# --- parts of responses ------------------------------------------------------------------------------------------


def _shared_fields(part: Any) -> dict[str, Any]:
    return {"id": part.id, "provider_name": part.provider_name, "provider_details": details(part.provider_details)}


def details(raw: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return details as JSON values, which can be stored and compared; None if they are empty.

    The remainder that `messages` stores distinguishes empty details from None.
    """
    return jsonable(raw) if raw else None


def jsonable(value: Any) -> Any:
    """Return the JSON value that Pydantic AI would store for a value."""
    return to_jsonable_python(value, by_alias=True, bytes_mode="base64", serialize_unknown=True)


def _call_fields(part: theirs.ToolCallPart | theirs.NativeToolCallPart) -> dict[str, Any]:
    return {
        "tool_name": part.tool_name,
        "args": args(part.args),
        "tool_call_id": conventions.split_call_id(part.tool_call_id)[0],
        **_shared_fields(part),
    }


def args(value: Any) -> str | dict[str, Any] | None:
    """Convert the arguments of a call: text, an object as JSON values, or None."""
    converted: str | dict[str, Any] | None = jsonable(value) if isinstance(value, dict) else value
    return converted


def _annotations(citation: theirs.Citation) -> list[dict[str, Any]]:
    anchor: dict[str, Any] = {}
    if isinstance(citation.anchor, theirs.ContentCitationAnchor):
        anchor = {"start_index": citation.anchor.start, "end_index": citation.anchor.end}
    return [
        {"type": "url_citation", "url": source.url} | ({"title": source.title} if source.title else {}) | anchor
        for source in citation.sources
        if isinstance(source, theirs.WebCitationSource)
    ]


_RESPONSE_CONVERTERS: dict[type, Callable[[Any], ours.ModelResponsePart]] = {
    theirs.ThinkingPart: lambda part: ours.ThinkingPart(
        part.content,
        signature=part.signature,
        form="redacted" if part.id in conventions.REDACTED_IDS else "raw",
        **_shared_fields(part),
    ),
    theirs.TextPart: lambda part: ours.TextPart(
        part.content,
        annotations=[note for citation in part.citations or () for note in _annotations(citation)] or None,
        **_shared_fields(part),
    ),
    theirs.ToolCallPart: lambda part: ours.ToolCallPart(**_call_fields(part)),
    theirs.NativeToolCallPart: lambda part: ours.BuiltinToolCallPart(**_call_fields(part)),
    theirs.NativeToolReturnPart: lambda part: ours.BuiltinToolReturnPart(
        part.tool_name,
        jsonable(part.content),
        part.tool_call_id,
        provider_name=part.provider_name,
        provider_details=details(part.provider_details),
    ),
    theirs.FilePart: lambda part: ours.FilePart(
        base64.b64encode(part.content.data).decode(), part.content.media_type, **_shared_fields(part)
    ),
    theirs.CompactionPart: lambda part: ours.CompactionPart(part.content, **_shared_fields(part)),
    theirs.SpeechPart: lambda part: ours.TextPart(part.transcript or "", **_shared_fields(part)),
}


# --- parts of requests -------------------------------------------------------------------------------------------


def _user(part: theirs.UserPromptPart) -> ours.UserPromptPart:
    if isinstance(part.content, str):
        return ours.UserPromptPart(part.content)
    items = [user_content(item) for item in part.content]
    return ours.UserPromptPart([item for item in items if item is not None])


def _return(part: theirs.ToolReturnPart) -> ours.ToolReturnPart | ours.RetryPromptPart:
    call_id, _ = conventions.split_call_id(part.tool_call_id)
    if part.outcome == "retried":
        return ours.RetryPromptPart(part.model_response_str(wrap_if_error=False), part.tool_name, call_id)
    # An interrupted call has no result. Its content reports that, as the content of a failed call does.
    outcome: Any = "failed" if part.outcome == "interrupted" else part.outcome
    return ours.ToolReturnPart(part.tool_name, _returned_content(part), call_id, outcome)


def _returned_content(part: theirs.ToolReturnPart) -> Any:
    if not part.files:
        return jsonable(part.content)
    items = part.content if isinstance(part.content, list) else [part.content]
    converted = [_returned_item(item) for item in items]
    return [item for item in converted if item is not None]


def _returned_item(item: Any) -> ours.UserContent | None:
    if isinstance(item, str) or theirs.is_multi_modal_content(item):
        return user_content(item)
    return ours.Text(_json(item))


def _json(value: Any) -> str:
    return to_json(value, by_alias=True, bytes_mode="base64", serialize_unknown=True).decode()


_REQUEST_CONVERTERS: dict[type, Callable[[Any], ours.ModelRequestPart]] = {
    theirs.SystemPromptPart: lambda part: ours.SystemPromptPart(part.content, dynamic_ref=part.dynamic_ref),
    theirs.UserPromptPart: _user,
    theirs.ToolReturnPart: _return,
    theirs.RetryFeedbackPart: lambda part: ours.RetryPromptPart(
        part.content if isinstance(part.content, str) else _json(part.content)
    ),
    theirs.SpeechPart: lambda part: ours.UserPromptPart(part.transcript or ""),
}


def user_content(item: theirs.UserContent) -> ours.UserContent | None:
    """Convert a piece of content; None for a marker that is not content."""
    if isinstance(item, str):
        return ours.Text(item)
    if isinstance(item, theirs.TextContent):
        return ours.Text(item.content)
    if isinstance(item, theirs.BinaryContent):
        kind = _BY_MEDIA_TYPE.get(item.media_type.partition("/")[0], ours.File)
        return kind(data=base64.b64encode(item.data).decode(), media_type=item.media_type)
    if isinstance(item, theirs.UploadedFile):
        image = item.media_type.startswith("image/")
        return (ours.Image if image else ours.File)(file_id=item.file_id, media_type=item.media_type)
    if isinstance(item, theirs.ImageUrl):
        detail = (item.vendor_metadata or {}).get("detail")
        known: Any = detail if detail in ("low", "high", "auto", "original") else None
        return ours.Image(url=item.url, detail=known)
    return next((kind(url=item.url) for their_kind, kind in _BY_URL.items() if isinstance(item, their_kind)), None)


_Media: TypeAlias = type[ours.Image] | type[ours.Audio] | type[ours.Video] | type[ours.File]
_BY_MEDIA_TYPE: dict[str, _Media] = {"image": ours.Image, "audio": ours.Audio, "video": ours.Video}
_BY_URL: dict[Any, _Media] = {
    theirs.AudioUrl: ours.Audio,
    theirs.VideoUrl: ours.Video,
    theirs.DocumentUrl: ours.File,
}
