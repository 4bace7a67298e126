"""Decide which parts of the history are sent to which model, for every wire.

* Parts of the same origin (provider, wire, model, account) are sent unchanged and in order.
* Of parts of another origin, signatures, ids and other opaque data are never sent. Their readable reasoning is sent as
  the profile says. A readable compaction is sent as text.
* If only the model of the origin is not known, parts are sent to every model of its provider. Reasoning of another
  model is then not sent to a model that cannot be asked to think.
* Readable reasoning of unknown origin (a client sent it as plain text) is sent if the profile has a field for unsigned
  reasoning. It has no opaque data.
* Unsigned reasoning is not sent if the profile's provider rejects it.
* A tool call or reasoning that was cut off is not sent: it does not show what the model meant.
* A call without a result counts as cut off, and a result whose call is not sent is left out too (`repair_calls`). No
  provider accepts one without the other, or two results of one call: only the first is sent.
* A request to try again is sent as a failed result of the call, or, without a call, as a prompt of the user.
* No reasoning is sent to a model that does not accept it, or not while thinking is switched off (`replay_on`).
* Sealed reasoning must have been opened before.

A profile's strategies are `Profile.replay`, `foreign`, `lost` and `lost_on`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from operator import is_

from msgspec.structs import replace

from ..errors import RequestError
from ..parts import (
    PROVIDER_FIELDS,
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RetryPromptPart,
    SealedPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    same_origin,
)
from .profile import Profile

_OPAQUE = (*PROVIDER_FIELDS, "origin")
"""The fields that only the origin of a part understands, for every kind of part."""


def repair_calls(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Repair calls and results that do not match, for example after a cancelled turn.

    No `RetryPromptPart` is left: each is the `ToolReturnPart` or `UserPromptPart` as which it is sent.

    Complete calls without a result are marked as cut off. Results of cut-off calls, and second results of a call, are
    removed. The calls of the last message still wait for their results. A result whose call is not in the messages at
    all stays, because the provider has stored the call.
    """
    repaired: list[ModelMessage] = []
    returned: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            message = _with_parts(message, [_without_retry(part) for part in message.parts])
            returned |= {part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)}
        else:
            calls = {part.tool_call_id for part in message.tool_calls}
            if repaired and not calls <= returned:
                message = _mark_calls_cut_off(message, calls - returned)
            returned -= calls
        repaired.append(message)
    repaired.reverse()
    return _without_duplicate_results(_without_results_of_cut_calls(repaired))


def _with_parts(message: ModelRequest, parts: list[ModelRequestPart]) -> ModelRequest:
    """Return the message with these parts; the message itself if they are its own."""
    is_same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if is_same else replace(message, parts=parts)


def _without_retry(part: ModelRequestPart) -> ModelRequestPart:
    """Return the part as which a request to try again is sent; other parts unchanged."""
    if not isinstance(part, RetryPromptPart):
        return part
    if part.tool_name is None:
        return UserPromptPart(part.content)
    return ToolReturnPart(part.tool_name, part.content, part.tool_call_id, "failed")


def _mark_calls_cut_off(response: ModelResponse, calls: set[str]) -> ModelResponse:
    parts = [
        replace(part, complete=False) if isinstance(part, ToolCallPart) and part.tool_call_id in calls else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def _without_results_of_cut_calls(messages: list[ModelMessage]) -> list[ModelMessage]:
    cut: set[str] = set()
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            cut |= {part.tool_call_id for part in message.tool_calls}
            cut -= {part.tool_call_id for part in message.tool_calls if part.complete}
        elif cut:
            parts = [p for p in message.parts if not (isinstance(p, ToolReturnPart) and p.tool_call_id in cut)]
            messages[index] = _with_parts(message, parts)
    return messages


def _without_duplicate_results(messages: list[ModelMessage]) -> list[ModelMessage]:
    waiting: Counter[str] = Counter()
    """How many results each call id still waits for. Some models give several calls the same id."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            for id, count in Counter(part.tool_call_id for part in message.tool_calls).items():
                waiting[id] = count
            continue
        parts: list[ModelRequestPart] = []
        for part in message.parts:
            if isinstance(part, ToolReturnPart) and part.tool_call_id in waiting:
                waiting[part.tool_call_id] -= 1
                if waiting[part.tool_call_id] < 0:
                    continue
            parts.append(part)
        messages[index] = _with_parts(message, parts)
    return messages


def made_call_id(id: str) -> str:
    """Return an id for a call whose own id a provider does not accept. The same id always gives the same result."""
    return f"call_{sha256(id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def results_as_text(parts: list[ModelRequestPart]) -> list[ModelRequestPart]:
    """Convert results to text, for wires whose results are text only.

    Images and files that functions returned become a prompt of the user, after all results of the turn.
    """
    out: list[ModelRequestPart] = []
    media: list[UserContent] = []
    insert_at = 0
    for part in parts:
        if isinstance(part, ToolReturnPart) and (contents := part.contents) is not None:
            text = "\n".join(content.text for content in contents if isinstance(content, Text))
            others = [content for content in contents if not isinstance(content, Text)]
            if others:
                media += [Text(f"What {part.tool_name} returned ({part.tool_call_id}):"), *others]
                text = f"{text}\n(The rest of it follows as a message.)".lstrip()
            part = replace(part, content=text)
        out.append(part)
        if isinstance(part, ToolReturnPart):
            insert_at = len(out)
    if media:
        out.insert(insert_at, UserPromptPart(media))
    return out


def parts_to_send(
    response: ModelResponse, target: Origin, profile: Profile, *, thinking_off: bool = False
) -> list[ModelResponsePart]:
    """Return the parts of one earlier response that may be sent, in order, without opaque data of other origins.

    Args:
        response: The response.
        target: The origin to which they are sent.
        profile: The profile.
        thinking_off: Whether the request switches thinking off.

    Raises:
        RequestError: The response holds sealed reasoning.
    """
    # Models that do not reason reject reasoning, and an origin without a model matches them, too.
    rejects_others = profile.thinking == profile.thinking_mode == "none" and not (response.model_name or "").startswith(
        target.model
    )
    sends_reasoning = profile.replay != "none" and not (thinking_off and profile.replay_on == "thinking")
    sendable: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, SealedPart):
            raise RequestError(
                "the history holds sealed reasoning that was not opened; open it before it goes to a model",
                code="sealed_reasoning",
            )
        if isinstance(part, ThinkingPart) and not sends_reasoning:
            continue
        if isinstance(part, OpaquePart) and part.wire is not None:
            if part.wire == profile.native_wire:
                sendable.append(part)
            elif part.text:
                sendable.append(TextPart(part.text))
            continue
        origin = getattr(part, "origin", None) or response.origin
        is_unfit = isinstance(part, ThinkingPart) and origin is not None and not origin.model and rejects_others
        if same_origin(origin, target) and not is_unfit:
            sent: ModelResponsePart | None = part
        else:
            sent = _without_opaque(part, known=origin is not None and not is_unfit, profile=profile)
        if sent is not None and _is_returnable(sent, profile):
            sendable.append(sent)
    return sendable


def count_unsigned(messages: Sequence[ModelMessage], profile: Profile) -> int:
    """Return how many thoughts are not sent because their client returned them as plain text, without a signature."""
    if profile.replay_unsigned or profile.replay == "none":
        return 0
    return sum(
        isinstance(part, ThinkingPart) and not part.signature and bool(part.content) and part.complete
        for message in messages
        if isinstance(message, ModelResponse) and message.origin is None
        for part in message.parts
        if getattr(part, "origin", None) is None
    )


def _is_returnable(part: ModelResponsePart, profile: Profile) -> bool:
    if isinstance(part, ThinkingPart) and not part.signature and not profile.replay_unsigned:
        return False
    if isinstance(part, ThinkingPart | ToolCallPart):
        return part.complete
    return True


def _without_opaque(part: ModelResponsePart, *, known: bool, profile: Profile) -> ModelResponsePart | None:
    """Return `part` for a model that did not make it; None if it may not be sent."""
    if isinstance(part, ThinkingPart):
        # A summary is not the model's reasoning: it is sent in its place only if the operator configures that.
        is_accepted = profile.foreign == "field" if known else part.form == "raw"
        if not is_accepted or not part.content:
            return None
        return ThinkingPart(part.content, form=part.form, complete=part.complete)
    if isinstance(part, OpaquePart):
        return None
    if isinstance(part, CompactionPart):
        # Only its origin accepts it as a compaction; for other models it is text about the conversation so far.
        return TextPart(part.content) if part.content else None
    cleared = {name: None for name in _OPAQUE if getattr(part, name, None) is not None}
    return replace(part, **cleared) if cleared else part


def reasoning_text(parts: list[ModelResponsePart]) -> str | None:
    """Join the readable reasoning in `parts`, for wires that have it in a sibling field; None if there is none."""
    texts = [part.content for part in parts if isinstance(part, ThinkingPart) and part.content]
    return "\n\n".join(texts) if texts else None


def placeholder_reasoning(profile: Profile, *, calls: bool, thinking_off: bool = False) -> str | None:
    """Return the text to send for lost reasoning, if the profile's provider rejects a message without reasoning.

    Args:
        profile: The profile.
        calls: Whether the message has calls.
        thinking_off: Whether the request switches thinking off.

    Returns:
        The text; None to send none.
    """
    if profile.lost == "omit" or thinking_off or (profile.lost_on == "tool_calls" and not calls):
        return None
    return {"empty": "", "space": " ", "sentinel": profile.sentinel}[profile.lost]
