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
from ..profile import Profile
from ..tool_schema import arguments_object
from .blocks import REDACTED
from .content import content_blocks
from .server_tools import call_block, result_block

Body = dict[str, Any]

THINKING_TYPES = ("thinking", REDACTED)
_UNFINISHED_REASONS = ("pause_turn", "tool_use")
"""Stop reasons after which a call of the provider's own tool may still be without its result."""


def system_prompt(messages: list[ModelMessage]) -> str:
    """All that is said to the model from above: this wire has one place for it. Of instructions, the last hold."""
    prompts: list[str] = []
    instructions = None
    for message in messages:
        if isinstance(message, ModelRequest):
            instructions = message.instructions or instructions
            prompts += [part.content for part in message.parts if isinstance(part, SystemPromptPart) and part.content]
    return "\n\n".join([*prompts, *([instructions] if instructions else [])])


def encode_messages(messages: list[ModelMessage], row: Profile, target: Origin, *, thinking_off: bool) -> list[Body]:
    entries: list[tuple[str, list[Body]]] = []
    messages = history.repair_calls(messages)
    paired_ids = _paired_call_ids(messages)
    for message in messages:
        if isinstance(message, ModelResponse):
            entries.append(
                ("assistant", _assistant_blocks(message, row, target, paired_ids, thinking_off=thinking_off))
            )
        else:
            entries.append(("user", _user_blocks(message)))
    merged = _merge_roles(entries)
    for role, blocks in merged:
        if role == "assistant":
            _insert_placeholder_thinking(blocks, row, thinking_off=thinking_off)
    return [{"role": role, "content": blocks} for role, blocks in merged]


def is_reasoning_lost(messages: list[Body]) -> bool:
    """Whether the last answer made calls, which are answered now, and its reasoning does not go back with it.

    It is read off what is sent: turns that were cut off may have vanished from between.
    """
    if len(messages) < 2 or messages[-1]["role"] == "assistant":
        return False
    blocks: list[Body] = messages[-2]["content"]
    return blocks[0]["type"] not in THINKING_TYPES and any(block["type"] == "tool_use" for block in blocks)


def _merge_roles(entries: list[tuple[str, list[Body]]]) -> list[tuple[str, list[Body]]]:
    """Neighbours of one role made one, without messages that say nothing."""
    merged: list[tuple[str, list[Body]]] = []
    for role, blocks in entries:
        if not blocks:
            continue
        if merged and merged[-1][0] != role:
            _drop_trailing_thinking(merged)
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        else:
            merged.append((role, blocks))
    _drop_trailing_thinking(merged)
    for role, blocks in merged:
        if role == "user":
            blocks.sort(key=lambda block: block["type"] != "tool_result")
    return merged


def _drop_trailing_thinking(merged: list[tuple[str, list[Body]]]) -> None:
    """The last message is whole: a thought that nothing follows does not go back."""
    if merged and merged[-1][0] == "assistant":
        blocks = merged[-1][1]
        while blocks and blocks[-1]["type"] in THINKING_TYPES:
            blocks.pop()
        if not blocks:
            merged.pop()


def _insert_placeholder_thinking(blocks: list[Body], row: Profile, *, thinking_off: bool) -> None:
    """What is sent where a thought must stand and none does: none was given back, or what it led to was cut off."""
    if any(block["type"] in THINKING_TYPES for block in blocks):
        return
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    placeholder = history.placeholder_reasoning(row, calls=has_calls, thinking_off=thinking_off)
    if placeholder is not None:
        blocks.insert(0, {"type": "thinking", "thinking": placeholder, "signature": ""})


# --- what the user's side says -----------------------------------------------------------------------------------


def _user_blocks(message: ModelRequest) -> list[Body]:
    blocks: list[Body] = []
    for part in message.parts:
        match part:
            case UserPromptPart():
                blocks += content_blocks(part.content)
            case ToolReturnPart():
                blocks.append(_tool_result(part.tool_call_id, part.content, failed=part.outcome != "success"))
            case RetryPromptPart() if part.tool_name is not None:
                blocks.append(_tool_result(part.tool_call_id, part.content, failed=True))
            case RetryPromptPart():
                blocks += content_blocks(part.content)
            case SystemPromptPart():
                pass  # see `system_prompt`
    return blocks


def _tool_result(call_id: str, content: Any, *, failed: bool) -> Body:
    body: Body = {"type": "tool_result", "tool_use_id": _safe_call_id(call_id)}
    blocks = content_blocks(content)
    if blocks:
        body["content"] = blocks
    return body | ({"is_error": True} if failed else {})


# --- what the model said -----------------------------------------------------------------------------------------


def _assistant_blocks(
    response: ModelResponse, row: Profile, target: Origin, paired_ids: set[str], *, thinking_off: bool
) -> list[Body]:
    parts = history.parts_to_send(response, target, row, thinking_off=thinking_off)
    is_unfinished = response.native_finish_reason in _UNFINISHED_REASONS
    blocks: list[Body] = []
    for part in parts:
        # Whatever part is not the provider's own has lost its provider's name on the way.
        is_own = getattr(part, "provider_name", None) == target.provider
        if isinstance(part, BuiltinToolCallPart | BuiltinToolReturnPart) and (
            not is_own
            or not (part.tool_call_id in paired_ids or (is_unfinished and isinstance(part, BuiltinToolCallPart)))
        ):
            continue
        block = _block(part, is_own)
        if block is not None:
            blocks.append(block)
    return blocks


def _block(part: ModelResponsePart, is_own: bool) -> Body | None:
    match part:
        case ThinkingPart() if part.form == "redacted" or part.id == REDACTED:
            return {"type": REDACTED, "data": part.signature}
        case ThinkingPart():
            body: Body = {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}
            return body | (part.provider_details or {})
        case TextPart() if part.content.strip():
            # Between a thought and a call the model likes to write a line break, and is refused to hear of it.
            return {"type": "text", "text": part.content} | _citations_field(part.provider_details)
        case RefusalPart() if part.content.strip():
            return {"type": "text", "text": part.content}
        case ToolCallPart():
            call: Body = {"type": "tool_use", "id": _safe_call_id(part.tool_call_id), "name": part.tool_name}
            return call | {"input": arguments_object(part)} | (part.provider_details or {})
        case BuiltinToolCallPart():
            return call_block(part)
        case BuiltinToolReturnPart():
            return result_block(part)
        case CompactionPart() if is_own:
            return _compaction_block(part)
        case CompactionPart() if part.content:
            return {"type": "text", "text": part.content}
        case OpaquePart():
            return part.native if isinstance(part.native, dict) and "type" in part.native else None
        case _:
            # Files that a model made have no place in its messages here.
            return None


def _citations_field(details: dict[str, Any] | None) -> Body:
    citations = (details or {}).get("citations")
    return {"citations": citations} if citations else {}


def _compaction_block(part: CompactionPart) -> Body:
    details = dict(part.provider_details or {})
    if part.signature is not None and part.signature not in details.values():
        details["signature"] = part.signature
    return {"type": "compaction", "content": part.content, **details}


def _paired_call_ids(messages: list[ModelMessage]) -> set[str]:
    """The ids of the calls of providers' own tools that have both a whole call and a result."""
    call_ids: set[str] = set()
    result_ids: set[str] = set()
    for message in messages:
        for part in message.parts if isinstance(message, ModelResponse) else ():
            if isinstance(part, BuiltinToolCallPart) and call_block(part) is not None:
                call_ids.add(part.tool_call_id)
            elif isinstance(part, BuiltinToolReturnPart):
                result_ids.add(part.tool_call_id)
    return call_ids & result_ids


_FORBIDDEN_IN_CALL_ID = re.compile(r"[^a-zA-Z0-9_-]")


def _safe_call_id(call_id: str) -> str:
    """A call's id as this provider takes it: other providers use more characters."""
    return _FORBIDDEN_IN_CALL_ID.sub("_", call_id) or "call"
