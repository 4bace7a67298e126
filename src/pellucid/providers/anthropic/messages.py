"""The history as messages of alternating roles, each a list of blocks.

The rules the provider has, and refuses a request for:

* blocks of an own answer go back as they came, in order; what of an answer goes back at all is `history`'s to say;
* the results of calls stand first in the user's message that follows the calls;
* no message is empty, no text is nothing but white space; an assistant's message does not end in a thought, and where
  the row says that each must have one, it is given an empty one when none is left;
* a call of the provider's own tool needs its result, and the result its call;
* ids of calls are letters, digits, `_` and `-`.
"""

from __future__ import annotations

import re
from typing import Any

from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from .. import history
from ..functions import arguments_object
from ..profile import Profile
from .blocks import REDACTED
from .content import content_blocks
from .server_tools import call_block, result_block

Body = dict[str, Any]

THOUGHTS = ("thinking", REDACTED)
_UNFINISHED = ("pause_turn", "tool_use")
"""Stop reasons after which a call of the provider's own tool may still be without its result."""


def system_of(messages: list[ModelMessage]) -> str:
    """All that is said to the model from above: this wire has one place for it. Of instructions, the last hold."""
    said: list[str] = []
    instructions = None
    for message in messages:
        if isinstance(message, ModelRequest):
            instructions = message.instructions or instructions
            said += [part.content for part in message.parts if isinstance(part, SystemPromptPart) and part.content]
    return "\n\n".join([*said, *([instructions] if instructions else [])])


def messages_of(messages: list[ModelMessage], row: Profile, target: Origin, *, thinking_off: bool) -> list[Body]:
    sayings: list[tuple[str, list[Body]]] = []
    messages = history.settled(messages)
    paired = _paired(messages)
    for message in messages:
        if isinstance(message, ModelResponse):
            sayings.append(("assistant", _answer(message, row, target, paired, thinking_off=thinking_off)))
        else:
            sayings.append(("user", _request(message)))
    sent = _alternating(sayings)
    for role, blocks in sent:
        if role == "assistant":
            _stand_in(blocks, row, thinking_off=thinking_off)
    return [{"role": role, "content": blocks} for role, blocks in sent]


def lost_reasoning(messages: list[Body]) -> bool:
    """Whether the last answer made calls, which are answered now, and its reasoning does not go back with it.

    It is read off what is sent: turns that were cut off may have vanished from between.
    """
    if len(messages) < 2 or messages[-1]["role"] == "assistant":
        return False
    said: list[Body] = messages[-2]["content"]
    return said[0]["type"] not in THOUGHTS and any(block["type"] == "tool_use" for block in said)


def _alternating(sayings: list[tuple[str, list[Body]]]) -> list[tuple[str, list[Body]]]:
    """Neighbours of one role made one, without messages that say nothing."""
    merged: list[tuple[str, list[Body]]] = []
    for role, blocks in sayings:
        if not blocks:
            continue
        if merged and merged[-1][0] != role:
            _settle(merged)
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        else:
            merged.append((role, blocks))
    _settle(merged)
    for role, blocks in merged:
        if role == "user":
            blocks.sort(key=lambda block: block["type"] != "tool_result")
    return merged


def _settle(merged: list[tuple[str, list[Body]]]) -> None:
    """The last message is whole: a thought that nothing follows does not go back."""
    if merged and merged[-1][0] == "assistant":
        blocks = merged[-1][1]
        while blocks and blocks[-1]["type"] in THOUGHTS:
            blocks.pop()
        if not blocks:
            merged.pop()


def _stand_in(blocks: list[Body], row: Profile, *, thinking_off: bool) -> None:
    """What is sent where a thought must stand and none does: none was given back, or what it led to was cut off."""
    if any(block["type"] in THOUGHTS for block in blocks):
        return
    calls = any(block["type"] == "tool_use" for block in blocks)
    stand_in = history.stand_in(row, calls=calls, thinking_off=thinking_off)
    if stand_in is not None:
        blocks.insert(0, {"type": "thinking", "thinking": stand_in, "signature": ""})


# --- what the user's side says -----------------------------------------------------------------------------------


def _request(message: ModelRequest) -> list[Body]:
    blocks: list[Body] = []
    for part in message.parts:
        match part:
            case UserPromptPart():
                blocks += content_blocks(part.content)
            case ToolReturnPart():
                blocks.append(_result(part.tool_call_id, part.content, failed=part.outcome != "success"))
            case RetryPromptPart() if part.tool_name is not None:
                blocks.append(_result(part.tool_call_id, part.content, failed=True))
            case RetryPromptPart():
                blocks += content_blocks(part.content)
            case SystemPromptPart():
                pass  # see `system_of`
    return blocks


def _result(call_id: str, content: Any, *, failed: bool) -> Body:
    body: Body = {"type": "tool_result", "tool_use_id": _id(call_id)}
    said = content_blocks(content)
    if said:
        body["content"] = said
    return body | ({"is_error": True} if failed else {})


# --- what the model said -----------------------------------------------------------------------------------------


def _answer(
    response: ModelResponse, row: Profile, target: Origin, paired: set[str], *, thinking_off: bool
) -> list[Body]:
    parts = history.parts_to_send(response, target, row, thinking_off=thinking_off)
    unfinished = response.native_finish_reason in _UNFINISHED
    blocks: list[Body] = []
    for part in parts:
        # Whatever part is not the provider's own has lost its provider's name on the way.
        own = getattr(part, "provider_name", None) == target.provider
        if isinstance(part, BuiltinToolCallPart | BuiltinToolReturnPart) and (
            not own or not (part.tool_call_id in paired or (unfinished and isinstance(part, BuiltinToolCallPart)))
        ):
            continue
        said = _block(part, own)
        if said is not None:
            blocks.append(said)
    return blocks


def _block(part: ModelResponsePart, own: bool) -> Body | None:
    match part:
        case ThinkingPart() if part.form == "redacted" or part.id == REDACTED:
            return {"type": REDACTED, "data": part.signature}
        case ThinkingPart():
            body: Body = {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}
            return body | (part.provider_details or {})
        case TextPart() if part.content.strip():
            # Between a thought and a call the model likes to write a line break, and is refused to hear of it.
            return {"type": "text", "text": part.content} | _cited(part.provider_details)
        case RefusalPart() if part.content.strip():
            return {"type": "text", "text": part.content}
        case ToolCallPart():
            call: Body = {"type": "tool_use", "id": _id(part.tool_call_id), "name": part.tool_name}
            return call | {"input": arguments_object(part)} | (part.provider_details or {})
        case BuiltinToolCallPart():
            return call_block(part)
        case BuiltinToolReturnPart():
            return result_block(part)
        case CompactionPart() if own:
            return _compaction(part)
        case CompactionPart() if part.content:
            return {"type": "text", "text": part.content}
        case OpaquePart():
            return part.native if isinstance(part.native, dict) and "type" in part.native else None
        case _:
            # Files that a model made have no place in its messages here.
            return None


def _cited(details: dict[str, Any] | None) -> Body:
    citations = (details or {}).get("citations")
    return {"citations": citations} if citations else {}


def _compaction(part: CompactionPart) -> Body:
    details = dict(part.provider_details or {})
    if part.signature is not None and part.signature not in details.values():
        details["signature"] = part.signature
    return {"type": "compaction", "content": part.content, **details}


def _paired(messages: list[ModelMessage]) -> set[str]:
    """The ids of the calls of providers' own tools that have both a whole call and a result."""
    called: set[str] = set()
    returned: set[str] = set()
    for message in messages:
        for part in message.parts if isinstance(message, ModelResponse) else ():
            if isinstance(part, BuiltinToolCallPart) and call_block(part) is not None:
                called.add(part.tool_call_id)
            elif isinstance(part, BuiltinToolReturnPart):
                returned.add(part.tool_call_id)
    return called & returned


_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")


def _id(call_id: str) -> str:
    """A call's id as this provider takes it: other providers use more characters."""
    return _FORBIDDEN.sub("_", call_id) or "call"
