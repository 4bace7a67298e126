"""Join a conversation with its continuation, repeat its last turn, and shorten a conversation that is too long.

A turn may call functions of the gateway and of the client. The gateway's results come at once, the client's with the
next request. Together they are the results of one turn, in the order of its calls, as every provider requires.

A conversation is shortened by whole turns of the user, the oldest first: a prompt and all messages up to the next
prompt. So no call is left without its result, and no result without its call. The last turn always stays, and so do
all prompts of the system or a developer, wherever they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, pairwise
from typing import cast

from msgspec.structs import replace

from .parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    are_complete,
)

MEDIA_LENGTH = 4_000
"""Characters that an image or a file counts as."""


def join_messages(*pieces: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Join pieces of a conversation. Consecutive requests become one, with tool results first."""
    out: list[ModelMessage] = []
    for is_request, messages in groupby(chain.from_iterable(pieces), lambda message: isinstance(message, ModelRequest)):
        if is_request:
            out.append(_merge_requests(cast("list[ModelRequest]", list(messages))))
        else:
            out.extend(messages)
    for index in range(1, len(out)):
        previous, message = out[index - 1], out[index]
        if isinstance(message, ModelRequest) and isinstance(previous, ModelResponse) and len(message.parts) > 1:
            out[index] = replace(message, parts=_results_first(message.parts, previous))
    return out


def has_split_results(messages: Sequence[ModelMessage]) -> bool:
    """Whether the results of a turn are in several requests, as in a conversation that waited for some of them.

    Providers expect all of them directly after the turn (`join_messages`).
    """
    return any(
        isinstance(previous, ModelRequest)
        and isinstance(message, ModelRequest)
        and any(isinstance(part, ToolReturnPart | RetryPromptPart) for part in message.parts)
        for previous, message in pairwise(messages)
    )


def _merge_requests(requests: list[ModelRequest]) -> ModelRequest:
    if len(requests) == 1:
        return requests[0]
    instructions = next((request.instructions for request in reversed(requests) if request.instructions), None)
    return replace(
        requests[0], parts=[part for request in requests for part in request.parts], instructions=instructions
    )


def _results_first(parts: list[ModelRequestPart], response: ModelResponse) -> list[ModelRequestPart]:
    order = {call.tool_call_id: index for index, call in enumerate(response.tool_calls)}
    # The sort is stable: parts that are not results of these calls keep their order after the results.
    return sorted(
        parts,
        key=lambda part: (
            order.get(part.tool_call_id, len(order))
            if isinstance(part, ToolReturnPart | RetryPromptPart)
            else len(order)
        ),
    )


def without_cut_turn(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation without a turn of the model at its end that broke off, so that it can be repeated.

    A turn with a whole call stays, and so does one that its provider only paused.
    """
    end = len(messages)
    while end and isinstance(last := messages[end - 1], ModelResponse) and _broke_off(last):
        end -= 1
    return list(messages[:end])


def _broke_off(response: ModelResponse) -> bool:
    if response.finish_reason == "pause" or any(call.complete for call in response.tool_calls):
        return False
    if response.finish_reason in ("error", "length", "content_filter") or not are_complete(response.parts):
        return True
    # A turn that was cancelled between two parts has none that was cut off, and no reason.
    answers = (part for part in response.parts if isinstance(part, TextPart | RefusalPart | FilePart))
    last = response.parts[-1] if response.parts else None
    return next(answers, None) is None or (response.finish_reason is None and isinstance(last, _NO_ANSWER))


_NO_ANSWER = (ThinkingPart, OpaquePart, BuiltinToolCallPart, BuiltinToolReturnPart)
"""Parts with which no complete turn ends."""


def count_droppable_turns(messages: Sequence[ModelMessage]) -> int:
    """Return how many turns can be dropped."""
    return max(0, len(_turn_starts(messages)) - 1)


def drop_oldest_turns(messages: Sequence[ModelMessage], count: int) -> list[ModelMessage]:
    """Return the conversation without its `count` oldest turns. It must have more turns than that."""
    if count == 0:
        return list(messages)
    start = _turn_starts(messages)[count]
    calls = {
        call.tool_call_id
        for message in messages[:start]
        if isinstance(message, ModelResponse)
        for call in message.tool_calls
    }
    return join_messages(system_prompts(messages[:start]), _without_results(messages[start:], calls))


def count_parts(messages: Iterable[ModelMessage]) -> int:
    """Return the number of parts of all messages."""
    return sum([len(message.parts) for message in messages])


def system_prompts(messages: Iterable[ModelMessage]) -> list[ModelMessage]:
    """Return what stays of messages that are dropped: the prompts of the system or a developer, in one request."""
    parts: list[ModelRequestPart] = []
    instructions = None
    for message in messages:
        if isinstance(message, ModelRequest):
            parts += [part for part in message.parts if isinstance(part, SystemPromptPart)]
            instructions = message.instructions or instructions
    return [ModelRequest(parts, instructions)] if parts or instructions else []


def turn_lengths(messages: Sequence[ModelMessage]) -> list[int]:
    """Return the approximate length of each turn in characters. Parts that always stay count for the last turn."""
    turns = []
    fixed_length = 0
    for begin, end in pairwise([0, *_turn_starts(messages)[1:], len(messages)]):
        parts = [part for message in messages[begin:end] for part in message.parts]
        turns.append(sum(part_length(part) for part in parts if not isinstance(part, SystemPromptPart)))
        fixed_length += sum(part_length(part) for part in parts if isinstance(part, SystemPromptPart))
    turns[-1] += fixed_length
    return turns


def _turn_starts(messages: Sequence[ModelMessage]) -> list[int]:
    """Return the indexes of the messages that begin a turn."""
    return [
        index
        for index, message in enumerate(messages)
        if isinstance(message, ModelRequest) and any(isinstance(part, UserPromptPart) for part in message.parts)
    ]


def _without_results(messages: Sequence[ModelMessage], calls: set[str]) -> list[ModelMessage]:
    """Remove the results of these calls."""
    out: list[ModelMessage] = []
    for message in messages:
        if isinstance(message, ModelResponse):
            # Some models reuse the same call ids in each turn.
            calls = calls.difference(call.tool_call_id for call in message.tool_calls)
            out.append(message)
            continue
        parts = [
            part
            for part in message.parts
            if not (isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_call_id in calls)
        ]
        if parts or not message.parts:
            out.append(message if len(parts) == len(message.parts) else replace(message, parts=parts))
    return out


def part_length(part: ModelRequestPart | ModelResponsePart) -> int:
    """Return the approximate length of a part in characters."""
    match part:
        case UserPromptPart(content=list(contents)) | ToolReturnPart(contents=list(contents)):
            return sum(len(content.text) if isinstance(content, Text) else MEDIA_LENGTH for content in contents)
        case ToolReturnPart():
            return len(part.content_as_text())
        case ToolCallPart():
            return len(part.args_as_json())
        case FilePart():
            return MEDIA_LENGTH
        case _:
            return len(getattr(part, "content", None) or "")
