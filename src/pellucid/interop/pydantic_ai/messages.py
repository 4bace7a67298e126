"""The history, from one library to the other and back, without loss.

    from_pydantic(to_pydantic(messages)) == messages
    to_pydantic(from_pydantic(messages)) == messages

A message is translated, translated back, and the difference to what it was is kept with it, as JSON:

* on a Pydantic AI message under `pellucid`: of a response's part in its `provider_details`, where it survives history
  processors, stores and front ends; of all else in the message's `metadata`;
* on a message of ours under `pydantic_ai`: in a response's `provider_details`, in a request's `metadata`. No wire
  sends either.

What was kept with a part is void once the part says something else: it may hold what was taken out. Nothing that
was kept can change a part's kind but a refusal's (text, over there), and what is no patch is left alone: histories come
back from clients.

"Without loss" is as Pydantic AI stores it (`ModelMessagesTypeAdapter`): an object of the application's own in a tool's
result is the JSON of it afterwards, as it is there. Its deprecated `RetryPromptPart` comes back as what it stands for
there.

What one vocabulary has no field for, as data: what is missing from `back` to be `whole` again.

    patch = difference(whole, back)      # None when nothing is missing
    apply(patch, back) == whole          # for any JSON values, and only as large as what differs

A message that is translated loses what the other side has no word for. So it is translated back at once, and the
difference to what it was travels with the translation. No field is listed by hand, so none can be forgotten, and a
field that a later release adds rides along by itself.

A patch is JSON: `{"is": value}` stands in place of what there was; `{"in": {key: patch}, "without": [key]}` goes into
an object, or by index into a list of the same length.
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
from . import inward, outward

Patch = dict[str, Any]


def difference(whole: Any, back: Any) -> Patch | None:
    """What makes `whole` of `back`; None if they are the same."""
    if isinstance(whole, dict) and isinstance(back, dict):
        within = {key: {"is": value} for key, value in whole.items() if key not in back}
        both = [(key, difference(value, back[key])) for key, value in whole.items() if key in back]
        within |= {key: patch for key, patch in both if patch is not None}
        without = [key for key in back if key not in whole]
        patch = ({"in": within} if within else {}) | ({"without": without} if without else {})
        return patch or None
    if isinstance(whole, list) and isinstance(back, list) and len(whole) == len(back):
        patches = [difference(*pair) for pair in zip(whole, back, strict=True)]
        inside = {str(index): patch for index, patch in enumerate(patches) if patch is not None}
        return {"in": inside} if inside else None
    # 1, 1.0 and True are equal in Python, and three things in JSON.
    return None if type(whole) is type(back) and whole == back else {"is": whole}


def apply(patch: Any, back: Any) -> Any:
    """`back` made whole. Raises `ValueError` for what is no patch of it: patches come back from clients."""
    if not isinstance(patch, dict):
        raise ValueError("a patch is an object")
    if "is" in patch:
        return patch["is"]
    within, without = patch.get("in", {}), patch.get("without", [])
    if not isinstance(within, dict) or not isinstance(without, list):
        raise ValueError("a patch goes into an object by key")
    if isinstance(back, list):
        made = list(back)
        for index, inner in within.items():
            if not index.isdecimal() or int(index) >= len(made):
                raise ValueError(f"there is no {index} in a list of {len(made)}")
            made[int(index)] = apply(inner, made[int(index)])
        return made
    if not isinstance(back, dict):
        raise ValueError("there is nothing to go into")
    kept = {key: value for key, value in back.items() if key not in without}
    return kept | {key: apply(inner, kept.get(key)) for key, inner in within.items()}


_SAID = ("part_kind", "tool_name", "tool_call_id", "content", "args", "data", "transcript")


def said(part: dict[str, Any]) -> str:
    """A digest of what a part says. What was kept with a part that says something else by now is void: it may
    hold the very words that were taken out."""
    # An object's keys have no order, neither in JSON nor in a database that keeps it.
    text = msgspec.json.encode([part.get(name) for name in _SAID], order="sorted")
    return blake2b(text, digest_size=9).hexdigest()


HELD_THERE = "pellucid"
"""The key under which a Pydantic AI message keeps what it has no field for."""
HELD_HERE = "pydantic_ai"
"""The same on a message of ours."""

Kept = dict[str, Any]
"""`message`: a patch of the message's own fields; `parts`: by index, `[digest, patch]`; `also`: `[index, part]` for
parts that have no counterpart on the other side."""


def to_pydantic(messages: Sequence[ours.ModelMessage]) -> list[theirs.ModelMessage]:
    """Our messages as Pydantic AI's; `ModelMessagesTypeAdapter` takes them."""
    return [_out(message) for message in messages]


def from_pydantic(messages: Sequence[theirs.ModelMessage]) -> list[ours.ModelMessage]:
    """Pydantic AI's messages as ours, with all that ours have no field for kept for the way back."""
    return [_keep_theirs(message, read_message(message)) for message in messages]


# --- from theirs -------------------------------------------------------------------------------------------------


def read_message(message: theirs.ModelMessage) -> ours.ModelMessage:
    """The message as a model is to see it. What ours have no field for is not kept."""
    bare, kept = _without_held(message)
    plain = _plain_in(bare)
    return _restored(plain, kept) if kept else plain


def _plain_in(message: theirs.ModelMessage) -> ours.ModelMessage:
    if isinstance(message, theirs.ModelRequest):
        asked = [inward.request_part(part) for part in message.parts]
        return ours.ModelRequest(
            [part for part in asked if part is not None],
            instructions=message.instructions,
            timestamp=message.timestamp,
            metadata=inward.details(message.metadata),
        )
    details = dict(inward.details(message.provider_details) or {})
    native = details.pop(outward.NATIVE_REASON, None)
    said_so = isinstance(native, str)
    answered = [inward.response_part(part) for part in message.parts]
    return ours.ModelResponse(
        [part for part in answered if part is not None],
        usage=inward.usage(message.usage),
        model_name=message.model_name,
        provider_response_id=message.provider_response_id,
        finish_reason=message.finish_reason,
        native_finish_reason=native if said_so else None,
        provider_details=(details if said_so else inward.details(message.provider_details)) or None,
        timestamp=message.timestamp,
    )


def _restored(plain: ours.ModelMessage, kept: Kept) -> ours.ModelMessage:
    """The message with what was kept of it; as it is, if what was kept does not fit."""
    known = msgspec.to_builtins(plain)
    try:
        made = _with_kept(known, kept, {("text", "refusal")})
        return msgspec.convert(made, type(plain))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return plain


def _keep_theirs(message: theirs.ModelMessage, made: ours.ModelMessage) -> ours.ModelMessage:
    back = _out(made)
    bare, _ = _without_held(message)
    counted = [place is not None for place in _places(bare)]
    ours_of = [index for index, part in enumerate(made.parts) if not isinstance(part, outward.NO_KIND)]
    kept = _kept(_dump(message), _dump(back), counted, [msgspec.to_builtins(made.parts[index]) for index in ours_of])
    return _hold_here(made, kept) if kept else made


def _hold_here(message: ours.ModelMessage, kept: Kept) -> ours.ModelMessage:
    if isinstance(message, ours.ModelRequest):
        return replace(message, metadata={**(message.metadata or {}), HELD_HERE: kept})
    return replace(message, provider_details={**(message.provider_details or {}), HELD_HERE: kept})


# --- from ours ---------------------------------------------------------------------------------------------------


def _out(message: ours.ModelMessage) -> theirs.ModelMessage:
    field = "metadata" if isinstance(message, ours.ModelRequest) else "provider_details"
    held = getattr(message, field) or {}
    kept = held.get(HELD_HERE)
    if not isinstance(kept, dict):
        return _hold_ours(message)
    rest = {name: value for name, value in held.items() if name != HELD_HERE}
    plain = _hold_ours(replace(message, **{field: rest or None}))
    return _restored_there(plain, message, kept)


def _restored_there(plain: theirs.ModelMessage, message: ours.ModelMessage, kept: Kept) -> theirs.ModelMessage:
    sent = [part for part in message.parts if not isinstance(part, outward.NO_KIND)]
    try:
        made = _with_kept(_dump(plain), kept, None, msgspec.to_builtins(sent))
        [whole] = theirs.ModelMessagesTypeAdapter.validate_json(msgspec.json.encode([made]))
    except (ValidationError, ValueError, TypeError, AttributeError, RecursionError):
        return plain
    return whole


def _hold_ours(message: ours.ModelMessage) -> theirs.ModelMessage:
    """The message in their words, holding what they have no field for."""
    plain = _plain_out(message)
    counted = [not isinstance(part, outward.NO_KIND) for part in message.parts]
    there = [_said_there(dumped) for dumped in _dump(plain)["parts"]]
    kept = _kept(msgspec.to_builtins(message), msgspec.to_builtins(_plain_in(plain)), counted, there)
    if not kept:
        return plain
    if isinstance(plain, theirs.ModelResponse):
        for index, [digest, patch] in kept.pop("parts", {}).items():
            hold_on_part(plain.parts[int(index)], [digest, patch])
        # A turn that only parts had to be kept of needs nothing on the message.
        if not kept:
            return plain
    plain.metadata = {**(plain.metadata or {}), HELD_THERE: kept}
    return plain


def _plain_out(message: ours.ModelMessage) -> theirs.ModelMessage:
    if isinstance(message, ours.ModelRequest):
        at = message.timestamp or outward.UNKNOWN_TIME
        return theirs.ModelRequest(
            [outward.request_part(part, at) for part in message.parts],
            instructions=message.instructions,
            timestamp=message.timestamp,
            metadata=message.metadata or None,
        )
    parts = [outward.response_part(part) for part in message.parts]
    native = {outward.NATIVE_REASON: message.native_finish_reason} if message.native_finish_reason else {}
    return theirs.ModelResponse(
        [part for part in parts if part is not None],
        usage=outward.usage(message.usage),
        model_name=message.model_name,
        timestamp=message.timestamp or outward.UNKNOWN_TIME,
        provider_name=message.origin.provider if message.origin is not None else None,
        provider_details={**(message.provider_details or {}), **native} or None,
        provider_response_id=message.provider_response_id,
        finish_reason=outward.finish_reason(message.finish_reason),
    )


def kept_of_part(part: ours.ModelResponsePart, there: theirs.ModelResponsePart) -> list[Any] | None:
    """What `there` has no field for of `part`, as it is held on it."""
    back = inward.response_part(there)
    whole, known = msgspec.to_builtins(part), msgspec.to_builtins(back) if back is not None else {}
    patch = difference(whole, known)
    return [said(_said_there(_dump_part(there))), patch] if patch is not None else None


def hold_on_part(there: Any, kept: list[Any]) -> None:
    there.provider_details = {**(there.provider_details or {}), HELD_THERE: kept}


# --- what is kept ------------------------------------------------------------------------------------------------


def _dump(message: theirs.ModelMessage) -> dict[str, Any]:
    [dumped] = theirs.ModelMessagesTypeAdapter.dump_python([message], mode="json")
    assert isinstance(dumped, dict)
    return dumped


def _dump_part(part: theirs.ModelResponsePart) -> dict[str, Any]:
    [dumped] = _dump(theirs.ModelResponse([part], timestamp=outward.UNKNOWN_TIME))["parts"]
    assert isinstance(dumped, dict)
    return dumped


def _said_there(dumped: dict[str, Any]) -> dict[str, Any]:
    # A file's identifier and the like may be filled in on the way; its bytes are what it says.
    content = dumped.get("content")
    if dumped.get("part_kind") == "file" and isinstance(content, dict):
        return {**dumped, "content": content.get("data")}
    return dumped


def _kept(
    whole: dict[str, Any], back: dict[str, Any], counted: Sequence[bool], carriers: Sequence[dict[str, Any]]
) -> Kept:
    """What is missing from `back`: `counted` says which parts of `whole` have a counterpart there, and `carriers`
    are those counterparts."""
    kept: Kept = {}
    fields = difference(_fields(whole), _fields(back))
    if fields is not None:
        kept["message"] = fields
    patches: dict[str, list[Any]] = {}
    also: list[list[Any]] = []
    there = 0
    for index, (part, has_one) in enumerate(zip(whole["parts"], counted, strict=True)):
        if not has_one:
            also.append([index, part])
            continue
        patch: Patch | None = difference(part, back["parts"][there])
        if patch is not None:
            patches[str(there)] = [said(carriers[there]), patch]
        there += 1
    if patches:
        kept["parts"] = patches
    if also:
        kept["also"] = also
    return kept


def _with_kept(
    back: dict[str, Any],
    kept: Kept,
    kinds: set[tuple[str, str]] | None,
    carriers: Sequence[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """`back` with what was kept. `kinds` are the changes of a part's kind that are allowed; None for any."""
    whole = apply(kept["message"], _fields(back)) if "message" in kept else _fields(back)
    parts = []
    for index, part in enumerate(back["parts"]):
        digest, patch = kept.get("parts", {}).get(str(index), (None, None))
        if patch is not None and (carriers is None or digest == said(carriers[index])):
            made = apply(patch, part)
            change = (part.get("part_kind"), made.get("part_kind"))
            if kinds is not None and change[0] != change[1] and change not in kinds:
                raise ValueError(f"what was kept makes a {change[1]} part of a {change[0]} part")
            part = made
        parts.append(part)
    for index, part in kept.get("also", ()):
        parts.insert(index, part)
    if whole.get("kind") != back["kind"]:
        raise ValueError("what was kept is of another kind of message")
    return {**whole, "parts": parts}


def _fields(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "parts"}


def _without_held(message: theirs.ModelMessage) -> tuple[theirs.ModelMessage, Kept]:
    """The message without what it holds for us, and that; what its parts say something else about is left out."""
    metadata = message.metadata or {}
    held = metadata.get(HELD_THERE)
    kept: Kept = dict(held) if isinstance(held, dict) else {}
    changes: dict[str, Any] = {}
    if kept:
        changes["metadata"] = {name: value for name, value in metadata.items() if name != HELD_THERE} or None
    parts: list[Any] = list(message.parts)
    by_index: dict[str, Any] = {}
    for index, part in enumerate(parts):
        details = getattr(part, "provider_details", None) or {}
        held = details.get(HELD_THERE)
        if _is_kept(held):
            rest = {name: value for name, value in details.items() if name != HELD_THERE}
            parts[index] = _replaced(part, provider_details=rest or None)
            by_index[str(index)] = held
    if by_index:
        changes["parts"] = parts
        kept["parts"] = by_index
    bare = _replaced(message, **changes) if changes else message
    if kept.get("parts"):
        kept["parts"] = _current(kept["parts"], bare)
    return bare, kept


def _current(kept: Any, message: theirs.ModelMessage) -> dict[str, Any]:
    """What was kept of parts that still say what they said, by the index of what we make of each."""
    if not isinstance(kept, dict):
        return {}
    current = {}
    for index, (dumped, place) in enumerate(zip(_dump(message)["parts"], _places(message), strict=True)):
        held = kept.get(str(index))
        if place is not None and _is_kept(held) and held[0] == said(_said_there(dumped)):
            current[str(place)] = held
    return current


def _places(message: theirs.ModelMessage) -> list[int | None]:
    """For each part of the message, the index of what we make of it; None for what we have no kind for."""
    read: Any = inward.request_part if isinstance(message, theirs.ModelRequest) else inward.response_part
    places: list[int | None] = []
    count = 0
    for part in message.parts:
        has_one = read(part) is not None
        places.append(count if has_one else None)
        count += has_one
    return places


def _is_kept(held: Any) -> TypeGuard[list[Any]]:
    return isinstance(held, list) and len(held) == 2 and isinstance(held[0], str)


def _replaced(of: Any, **changes: Any) -> Any:
    made = copy(of)
    for name, value in changes.items():
        setattr(made, name, value)
    return made
