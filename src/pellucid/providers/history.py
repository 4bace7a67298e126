"""What of the history goes back to whom: decided here, for every wire.

* Made by the same origin (provider, wire, model, account): verbatim and in order.
* Made by another: its signatures, ids and other opaque data never leave; its readable reasoning as the row says.
  A compaction that can be read goes as text.
* Made by nobody knows whom (a client gave it back as plain text): readable reasoning goes where the row has a place
  for unsigned reasoning; there is nothing opaque to keep.
* Unsigned, where the row's provider refuses what is not signed: it does not go back.
* Cut off: a tool call or a thought that was cut off is not a fact about the model's mind; neither goes back.
* Never answered: a call that the conversation left without a result was cut off, too, and so is a result whose call
  does not go (`settled`): no provider takes one without the other, nor two results of one call: the first stands.
* To a model that does not take reasoning back, or not while it is told not to think (`replay_on`), none goes.
* Sealed: must have been opened before it comes here.

The strategies by which a row says what to do are `Profile.replay`, `foreign`, `lost` and `lost_on`.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeGuard

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
"""What only the maker of a part understands, whatever kind of part it is."""


def repair_calls(messages: list[ModelMessage]) -> list[ModelMessage]:
    """The messages, with whole calls that were never answered marked as cut off, and without results of cut-off calls
    and of those that were answered before.

    A conversation goes on after a turn that was cancelled. The calls of the last message wait for their results; a
    result whose call is not here at all (the provider keeps it) stays.
    """
    repaired: list[ModelMessage] = []
    returned: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            returned |= {part.tool_call_id for part in message.parts if _is_call_result(part)}
        else:
            calls = {part.tool_call_id for part in message.tool_calls}
            if repaired and not calls <= returned:
                message = _mark_calls_cut_off(message, calls - returned)
            returned -= calls
        repaired.append(message)
    repaired.reverse()
    return _without_duplicate_results(_without_results_of_cut_calls(repaired))


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
        elif cut and any(_is_call_result(part) and part.tool_call_id in cut for part in message.parts):
            parts = [part for part in message.parts if not (_is_call_result(part) and part.tool_call_id in cut)]
            messages[index] = replace(message, parts=parts)
    return messages


def _without_duplicate_results(messages: list[ModelMessage]) -> list[ModelMessage]:
    waiting: Counter[str] = Counter()
    """How many results each call still waits for. Some models give several calls one id."""
    for index, message in enumerate(messages):
        if isinstance(message, ModelResponse):
            for id, count in Counter(part.tool_call_id for part in message.tool_calls).items():
                waiting[id] = count
            continue
        duplicates: list[ModelRequestPart] = []
        for part in message.parts:
            if _is_call_result(part) and part.tool_call_id in waiting:
                if waiting[part.tool_call_id] == 0:
                    duplicates.append(part)
                else:
                    waiting[part.tool_call_id] -= 1
        if duplicates:
            parts = [part for part in message.parts if not any(part is one for one in duplicates)]
            messages[index] = replace(message, parts=parts)
    return messages


def _is_call_result(part: ModelRequestPart | ModelResponsePart) -> TypeGuard[ToolReturnPart | RetryPromptPart]:
    """Whether this is the result of a call."""
    return isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and part.tool_name is not None)


def results_as_text(parts: list[ModelRequestPart]) -> list[ModelRequestPart]:
    """For wires on which a function returns text alone: the pictures and files it returned come as what the user shows,
    behind all results of the turn."""
    out: list[ModelRequestPart] = []
    media: list[UserContent] = []
    insert_at = 0
    for part in parts:
        contents = part.contents if isinstance(part, ToolReturnPart) else None
        if contents is not None and isinstance(part, ToolReturnPart):
            text = "\n".join(content.text for content in contents if isinstance(content, Text))
            others = [content for content in contents if not isinstance(content, Text)]
            if others:
                media += [Text(f"What {part.tool_name} returned ({part.tool_call_id}):"), *others]
                text = f"{text}\n(The rest of it follows as a message.)".lstrip()
            part = replace(part, content=text)
        out.append(part)
        if _is_call_result(part):
            insert_at = len(out)
    if media:
        out.insert(insert_at, UserPromptPart(media))
    return out


def parts_to_send(
    response: ModelResponse, target: Origin, row: Profile, *, thinking_off: bool = False
) -> list[ModelResponsePart]:
    """The parts of one earlier response that may go to `target`, in order, with nothing opaque that is not its own.

    `is_thinking_off`: the model is told not to think. Raises `RequestError` if the response still holds sealed reasoning.
    """
    sends_reasoning = row.replay != "none" and not (thinking_off and row.replay_on == "thinking")
    sendable: list[ModelResponsePart] = []
    for part in response.parts:
        if isinstance(part, SealedPart):
            raise RequestError(
                "the history holds sealed reasoning that was not opened; open it before it goes to a model",
                code="sealed_reasoning",
            )
        if isinstance(part, ThinkingPart) and not sends_reasoning:
            continue
        origin = getattr(part, "origin", None) or response.origin
        if same_origin(origin, target):
            sent: ModelResponsePart | None = part
        else:
            sent = _without_opaque(part, known=origin is not None, row=row)
        if sent is not None and _is_returnable(sent, row):
            sendable.append(sent)
    return sendable


def _is_returnable(part: ModelResponsePart, row: Profile) -> bool:
    if isinstance(part, ThinkingPart) and not part.signature and not row.replay_unsigned:
        return False
    if isinstance(part, ThinkingPart | ToolCallPart):
        return part.complete
    return True


def _without_opaque(part: ModelResponsePart, *, known: bool, row: Profile) -> ModelResponsePart | None:
    """`part` for a model that did not make it; None if nothing of it may go."""
    if isinstance(part, ThinkingPart):
        # A summary is not what the model thought: only an operator's word sends it in the thought's place.
        is_accepted = row.foreign == "field" if known else part.form == "raw"
        if not is_accepted or not part.content:
            return None
        return ThinkingPart(part.content, form=part.form, complete=part.complete)
    if isinstance(part, OpaquePart):
        return None
    if isinstance(part, CompactionPart):
        # Only its maker takes it as what it is; for everybody else it is what was said until now.
        return TextPart(part.content) if part.content else None
    cleared = {name: None for name in _OPAQUE if getattr(part, name, None) is not None}
    return replace(part, **cleared) if cleared else part


def reasoning_text(parts: list[ModelResponsePart]) -> str | None:
    """The readable reasoning among `parts` as one text, as sibling-field wires carry it; None if there is none."""
    texts = [part.content for part in parts if isinstance(part, ThinkingPart) and part.content]
    return "\n\n".join(texts) if texts else None


def placeholder_reasoning(row: Profile, *, calls: bool, thinking_off: bool = False) -> str | None:
    """What to send for reasoning that did not come back, where the row's provider refuses a message without it.

    `calls`: the message makes calls.
    """
    if row.lost == "omit" or thinking_off or (row.lost_on == "tool_calls" and not calls):
        return None
    return {"empty": "", "space": " ", "sentinel": row.sentinel}[row.lost]
