"""Convert a history between Pellucid and Pydantic AI, both ways, without loss.

    from_pydantic(to_pydantic(messages)) == messages
    to_pydantic(from_pydantic(messages)) == messages

A converted message lacks the fields that the other library does not have. So it is converted back at once, and the
difference to the original, the *remainder*, is stored on the converted message as JSON. No list of fields is needed,
and fields that a later release adds are included.

* On a Pydantic AI message the remainder is under `pellucid`: that of a response's part in the part's
  `provider_details`, where history processors, stores and front ends preserve it; all else in the message's `metadata`.
* On a message of ours it is under `pydantic_ai`: in a response's `provider_details`, or in a request's `metadata`. No
  wire sends either.

The remainder of a part is ignored if the content of the part changed, because it could contain what was removed. A
remainder can change the kind of a part only from text to refusal. An invalid remainder is ignored, because histories
come back from clients.

"Without loss" means as Pydantic AI stores messages (`ModelMessagesTypeAdapter`): an object of the application in a
tool's result becomes JSON. The deprecated `RetryPromptPart` becomes the part that replaces it.

The difference is a patch:

    patch = difference(original, translated)         # None if they are equal
    apply_patch(patch, translated) == original       # for any JSON values

A patch is JSON, as small as the difference: `{"is": value}` replaces a value; `{"in": {key: patch}, "without": [key]}`
changes an object, or by index a list of the same length.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from hashlib import blake2b
from typing import Any, TypeGuard

import msgspec
from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_ai import messages as theirs

from ... import parts as ours
from . import conventions, from_pydantic_ai, to_pydantic_ai

Patch = dict[str, Any]


def difference(original: Any, translated: Any) -> Patch | None:
    """Return the patch that makes `original` of `translated`; None if they are equal."""
    if isinstance(original, dict) and isinstance(translated, dict):
        entries = {key: {"is": value} for key, value in original.items() if key not in translated}
        shared = [(key, difference(value, translated[key])) for key, value in original.items() if key in translated]
        entries |= {key: patch for key, patch in shared if patch is not None}
        removed = [key for key in translated if key not in original]
        patch = ({"in": entries} if entries else {}) | ({"without": removed} if removed else {})
        return patch or None
    if isinstance(original, list) and isinstance(translated, list) and len(original) == len(translated):
        patches = [difference(*pair) for pair in zip(original, translated, strict=True)]
        entries_by_index = {str(index): patch for index, patch in enumerate(patches) if patch is not None}
        return {"in": entries_by_index} if entries_by_index else None
    # 1, 1.0 and True are equal in Python, but different in JSON.
    return None if type(original) is type(translated) and original == translated else {"is": original}


def apply_patch(patch: Any, translated: Any) -> Any:
    """Apply a patch to a JSON value.

    Raises:
        ValueError: It is not a patch of this value. (Patches come back from clients.)
    """
    if not isinstance(patch, dict):
        raise ValueError("a patch is an object")
    if "is" in patch:
        return patch["is"]
    entries, removed = patch.get("in", {}), patch.get("without", [])
    if not isinstance(entries, dict) or not isinstance(removed, list):
        raise ValueError("in a patch, `in` is an object and `without` a list")
    if isinstance(translated, list):
        items = list(translated)
        for index, inner_patch in entries.items():
            if not index.isdecimal() or int(index) >= len(items):
                raise ValueError(f"there is no {index} in a list of {len(items)}")
            items[int(index)] = apply_patch(inner_patch, items[int(index)])
        return items
    if not isinstance(translated, dict):
        raise ValueError("only an object or a list can be patched")
    remaining = {key: value for key, value in translated.items() if key not in removed}
    return remaining | {key: apply_patch(inner_patch, remaining.get(key)) for key, inner_patch in entries.items()}


_DIGEST_FIELDS = ("part_kind", "tool_name", "tool_call_id", "content", "args", "data", "transcript")


def content_digest(part: dict[str, Any]) -> str:
    """Return a digest of the content of a part.

    The remainder of a part with another content is ignored, because it could contain what was removed.
    """
    # Databases that store JSON may change the order of keys.
    text = msgspec.json.encode([part.get(name) for name in _DIGEST_FIELDS], order="sorted")
    return blake2b(text, digest_size=9).hexdigest()


KEY_IN_THEIRS = "pellucid"
"""The key of the remainder on a Pydantic AI message."""
KEY_IN_OURS = "pydantic_ai"
"""The key of the remainder on a message of ours."""

Remainder = dict[str, Any]
"""`message`: a patch of the message's own fields; `parts`: by index, `[digest, patch]`; `also`: `[index, part]` for
parts without a counterpart in the other library."""


def to_pydantic(messages: Sequence[ours.ModelMessage]) -> list[theirs.ModelMessage]:
    """Convert our messages to Pydantic AI's.

    Args:
        messages: The history.

    Returns:
        Messages that `ModelMessagesTypeAdapter` can store, with the remainder for `from_pydantic`.
    """
    return [_to_theirs(message) for message in messages]


def from_pydantic(messages: Sequence[theirs.ModelMessage]) -> list[ours.ModelMessage]:
    """Convert Pydantic AI's messages to ours.

    Args:
        messages: The history.

    Returns:
        Our messages, with the remainder for `to_pydantic`.
    """
    return [_with_their_remainder(message, read_message(message)) for message in messages]


# --- from Pydantic AI --------------------------------------------------------------------------------------------


def read_message(message: theirs.ModelMessage) -> ours.ModelMessage:
    """Convert a message for a model, without storing the remainder."""
    stripped, remainder = _split_remainder(message)
    converted = _convert_theirs(stripped, _recorded_origin(stripped, remainder))
    return _restore_ours(converted, remainder) if remainder else converted


def _recorded_origin(message: theirs.ModelMessage, remainder: Remainder) -> ours.Origin | None:
    """Return the origin of a response: that which the remainder has, else the one that its provider's name tells."""
    if not isinstance(message, theirs.ModelResponse):
        return None
    try:
        return msgspec.convert(remainder["message"]["in"]["origin"]["is"], ours.Origin)
    except (LookupError, ValueError, TypeError):
        return conventions.origin_of(message, message.provider_name)


def _convert_theirs(message: theirs.ModelMessage, origin: ours.Origin | None) -> ours.ModelMessage:
    if isinstance(message, theirs.ModelRequest):
        request_parts = [from_pydantic_ai.request_part(part) for part in message.parts]
        return ours.ModelRequest(
            [part for part in request_parts if part is not None],
            instructions=message.instructions,
            timestamp=message.timestamp,
            metadata=from_pydantic_ai.details(message.metadata),
        )
    details = dict(from_pydantic_ai.details(message.provider_details) or {})
    native_reason = details.pop(to_pydantic_ai.NATIVE_REASON_KEY, None)
    has_native_reason = isinstance(native_reason, str)
    response_parts = from_pydantic_ai.response_parts(message, origin)
    return ours.ModelResponse(
        [part for part in response_parts if part is not None],
        usage=from_pydantic_ai.usage(message.usage),
        origin=origin,
        model_name=message.model_name,
        provider_response_id=message.provider_response_id,
        finish_reason=message.finish_reason,
        native_finish_reason=native_reason if has_native_reason else None,
        provider_details=(details if has_native_reason else from_pydantic_ai.details(message.provider_details)) or None,
        timestamp=message.timestamp,
    )


def _restore_ours(converted: ours.ModelMessage, remainder: Remainder) -> ours.ModelMessage:
    """Return the message with its remainder applied; unchanged if the remainder is invalid."""
    fields = msgspec.to_builtins(converted)
    try:
        restored = _apply_remainder(fields, remainder, {("text", "refusal")})
        return msgspec.convert(restored, type(converted))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return converted


def _with_their_remainder(message: theirs.ModelMessage, converted: ours.ModelMessage) -> ours.ModelMessage:
    translated = _to_theirs(converted)
    stripped, _ = _split_remainder(message)
    has_counterpart = [counterpart is not None for counterpart in _counterpart_indexes(stripped)]
    remainder = _remainder_of(_dump(message), _dump(translated), has_counterpart, _carriers(converted))
    return _store_in_ours(converted, remainder) if remainder else converted


def _carriers(message: ours.ModelMessage) -> list[dict[str, Any]]:
    """Return the parts that have a counterpart in Pydantic AI, as JSON values."""
    mapped_parts = [part for part in message.parts if not isinstance(part, to_pydantic_ai.UNMAPPED_PARTS)]
    carriers: list[dict[str, Any]] = msgspec.to_builtins(mapped_parts)
    return carriers


def _store_in_ours(message: ours.ModelMessage, remainder: Remainder) -> ours.ModelMessage:
    if isinstance(message, ours.ModelRequest):
        return replace(message, metadata={**(message.metadata or {}), KEY_IN_OURS: remainder})
    return replace(message, provider_details={**(message.provider_details or {}), KEY_IN_OURS: remainder})


# --- to Pydantic AI ----------------------------------------------------------------------------------------------


def _to_theirs(message: ours.ModelMessage) -> theirs.ModelMessage:
    field = "metadata" if isinstance(message, ours.ModelRequest) else "provider_details"
    fields = getattr(message, field) or {}
    remainder = fields.get(KEY_IN_OURS)
    if not isinstance(remainder, dict):
        return _with_our_remainder(message)
    converted = _with_our_remainder(replace(message, **{field: _without(KEY_IN_OURS, fields)}))
    return _restore_theirs(converted, message, remainder)


def _restore_theirs(
    converted: theirs.ModelMessage, message: ours.ModelMessage, remainder: Remainder
) -> theirs.ModelMessage:
    try:
        restored = _apply_remainder(_dump(converted), remainder, None, _carriers(message))
        [restored_message] = theirs.ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([restored]))
    except (ValidationError, ValueError, TypeError, AttributeError, RecursionError):
        return converted
    return restored_message


def _with_our_remainder(message: ours.ModelMessage) -> theirs.ModelMessage:
    """Convert a message of ours, and store the remainder on it."""
    converted = _convert_ours(message)
    has_counterpart = [not isinstance(part, to_pydantic_ai.UNMAPPED_PARTS) for part in message.parts]
    carriers = [_digested_part(dumped) for dumped in _dump(converted)["parts"]]
    origin = message.origin if isinstance(message, ours.ModelResponse) else None
    translated: dict[str, Any] = msgspec.to_builtins(_convert_theirs(converted, origin))
    if origin is not None:
        # The remainder has the whole origin, so that parts are read as they were written (`_recorded_origin`).
        translated.pop("origin", None)
    remainder = _remainder_of(msgspec.to_builtins(message), translated, has_counterpart, carriers)
    if not remainder:
        return converted
    if isinstance(converted, theirs.ModelResponse):
        for index, [digest, patch] in remainder.pop("parts", {}).items():
            store_on_part(converted.parts[int(index)], [digest, patch])
        # If only parts have a remainder, the message needs none.
        if not remainder:
            return converted
    converted.metadata = {**(converted.metadata or {}), KEY_IN_THEIRS: remainder}
    return converted


def _convert_ours(message: ours.ModelMessage) -> theirs.ModelMessage:
    if isinstance(message, ours.ModelRequest):
        timestamp = message.timestamp or to_pydantic_ai.UNKNOWN_TIME
        return theirs.ModelRequest(
            [to_pydantic_ai.request_part(part, timestamp) for part in message.parts],
            instructions=message.instructions,
            timestamp=message.timestamp,
            metadata=message.metadata or None,
        )
    parts = to_pydantic_ai.response_parts(message.parts, message.origin, message.model_name)
    native_reason = (
        {to_pydantic_ai.NATIVE_REASON_KEY: message.native_finish_reason} if message.native_finish_reason else {}
    )
    return theirs.ModelResponse(
        [part for part in parts if part is not None],
        usage=to_pydantic_ai.usage(message.usage),
        model_name=message.model_name,
        timestamp=message.timestamp or to_pydantic_ai.UNKNOWN_TIME,
        provider_name=conventions.their_provider(message.origin.provider) if message.origin is not None else None,
        provider_details={**(message.provider_details or {}), **native_reason} or None,
        provider_response_id=message.provider_response_id,
        finish_reason=to_pydantic_ai.finish_reason(message.finish_reason),
    )


def part_remainder(
    part: ours.ModelResponsePart, their_part: theirs.ModelResponsePart, origin: ours.Origin
) -> list[Any] | None:
    """Return the remainder of a part for its counterpart, `[digest, patch]`; None if nothing is missing.

    Args:
        part: The part.
        their_part: The counterpart.
        origin: The origin of the response.
    """
    alone = theirs.ModelResponse([their_part], provider_name=conventions.their_provider(origin.provider))
    [translated] = from_pydantic_ai.response_parts(alone, origin)
    patch = difference(msgspec.to_builtins(part), {} if translated is None else msgspec.to_builtins(translated))
    return [content_digest(_digested_part(_dump_part(their_part))), patch] if patch is not None else None


def store_on_part(their_part: Any, remainder: list[Any]) -> None:
    their_part.provider_details = {**(their_part.provider_details or {}), KEY_IN_THEIRS: remainder}


# --- the remainder -----------------------------------------------------------------------------------------------


def _dump(message: theirs.ModelMessage) -> dict[str, Any]:
    [dumped] = theirs.ModelMessagesTypeAdapter.dump_python([message], mode="json")
    assert isinstance(dumped, dict)
    return dumped


def _dump_part(part: theirs.ModelResponsePart) -> dict[str, Any]:
    [dumped] = _dump(theirs.ModelResponse([part], timestamp=to_pydantic_ai.UNKNOWN_TIME))["parts"]
    assert isinstance(dumped, dict)
    return dumped


def _digested_part(dumped: dict[str, Any]) -> dict[str, Any]:
    # Pydantic AI may fill in fields such as a file's identifier. Its content is its bytes.
    content = dumped.get("content")
    if dumped.get("part_kind") == "file" and isinstance(content, dict):
        return {**dumped, "content": content.get("data")}
    return dumped


def _remainder_of(
    original: dict[str, Any],
    translated: dict[str, Any],
    has_counterpart: Sequence[bool],
    carriers: Sequence[dict[str, Any]],
) -> Remainder:
    """Return what is missing from a message that was converted and converted back.

    Args:
        original: The message.
        translated: The message after both conversions.
        has_counterpart: For each part of the original, whether it has a counterpart in the converted message.
        carriers: The counterparts, in order.
    """
    remainder: Remainder = {}
    fields = difference(_fields(original), _fields(translated))
    if fields is not None:
        remainder["message"] = fields
    patches: dict[str, list[Any]] = {}
    unmapped: list[list[Any]] = []
    counterpart = 0
    for index, (part, is_mapped) in enumerate(zip(original["parts"], has_counterpart, strict=True)):
        if not is_mapped:
            unmapped.append([index, part])
            continue
        patch: Patch | None = difference(part, translated["parts"][counterpart])
        if patch is not None:
            patches[str(counterpart)] = [content_digest(carriers[counterpart]), patch]
        counterpart += 1
    if patches:
        remainder["parts"] = patches
    if unmapped:
        remainder["also"] = unmapped
    return remainder


def _apply_remainder(
    translated: dict[str, Any],
    remainder: Remainder,
    allowed_kind_changes: set[tuple[str, str]] | None,
    carriers: Sequence[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return a message with its remainder applied.

    Args:
        translated: The message.
        remainder: The remainder.
        allowed_kind_changes: The changes of a part's kind that are allowed; None for any.
        carriers: The parts that carry the remainder, to check the digests; None if they were checked.

    Raises:
        ValueError: The remainder does not fit the message.
    """
    restored = apply_patch(remainder["message"], _fields(translated)) if "message" in remainder else _fields(translated)
    parts = []
    for index, part in enumerate(translated["parts"]):
        digest, patch = remainder.get("parts", {}).get(str(index), (None, None))
        if patch is not None and (carriers is None or digest == content_digest(carriers[index])):
            restored_part = apply_patch(patch, part)
            kind_change = (part.get("part_kind"), restored_part.get("part_kind"))
            if (
                allowed_kind_changes is not None
                and kind_change[0] != kind_change[1]
                and kind_change not in allowed_kind_changes
            ):
                raise ValueError(f"the remainder makes a {kind_change[1]} part of a {kind_change[0]} part")
            part = restored_part
        parts.append(part)
    for index, part in remainder.get("also", ()):
        parts.insert(index, part)
    if restored.get("kind") != translated["kind"]:
        raise ValueError("the remainder is of another kind of message")
    return {**restored, "parts": parts}


def _fields(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "parts"}


def _without(key: str, fields: dict[str, Any]) -> dict[str, Any] | None:
    return {name: value for name, value in fields.items() if name != key} or None


def _split_remainder(message: theirs.ModelMessage) -> tuple[theirs.ModelMessage, Remainder]:
    """Return a message without its remainder, and the remainder without that of parts whose content changed."""
    metadata = message.metadata or {}
    stored = metadata.get(KEY_IN_THEIRS)
    remainder: Remainder = dict(stored) if isinstance(stored, dict) else {}
    changes: dict[str, Any] = {}
    if remainder:
        changes["metadata"] = _without(KEY_IN_THEIRS, metadata)
    parts: list[Any] = list(message.parts)
    by_index: dict[str, Any] = {}
    for index, part in enumerate(parts):
        details = getattr(part, "provider_details", None) or {}
        stored = details.get(KEY_IN_THEIRS)
        if _is_part_remainder(stored):
            parts[index] = _copy_with(part, provider_details=_without(KEY_IN_THEIRS, details))
            by_index[str(index)] = stored
    if by_index:
        changes["parts"] = parts
        remainder["parts"] = by_index
    stripped = _copy_with(message, **changes) if changes else message
    if remainder.get("parts"):
        remainder["parts"] = _current_remainders(remainder["parts"], stripped)
    return stripped, remainder


def _current_remainders(stored: Any, message: theirs.ModelMessage) -> dict[str, Any]:
    """Return the remainders of parts whose content did not change, by the index of the counterpart."""
    if not isinstance(stored, dict):
        return {}
    current = {}
    for index, (dumped, counterpart) in enumerate(
        zip(_dump(message)["parts"], _counterpart_indexes(message), strict=True)
    ):
        remainder = stored.get(str(index))
        if (
            counterpart is not None
            and _is_part_remainder(remainder)
            and remainder[0] == content_digest(_digested_part(dumped))
        ):
            current[str(counterpart)] = remainder
    return current


def _counterpart_indexes(message: theirs.ModelMessage) -> list[int | None]:
    """Return for each part of a message the index of its counterpart; None for parts without one."""
    convert: Any = (
        from_pydantic_ai.request_part if isinstance(message, theirs.ModelRequest) else from_pydantic_ai.response_part
    )
    indexes: list[int | None] = []
    count = 0
    for part in message.parts:
        is_mapped = convert(part) is not None
        indexes.append(count if is_mapped else None)
        count += is_mapped
    return indexes


def _is_part_remainder(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and len(value) == 2 and isinstance(value[0], str)


def _copy_with(original: Any, **changes: Any) -> Any:
    copied = copy(original)
    for name, value in changes.items():
        setattr(copied, name, value)
    return copied
