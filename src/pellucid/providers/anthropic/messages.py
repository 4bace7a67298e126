"""Encode the history as messages of alternating roles, each a list of blocks.

The provider rejects a request that breaks one of these rules:

* blocks of the model's own answers are returned as they came, in order (`history` decides which parts are returned);
* results of calls come first in the user message that follows the calls;
* no message is empty, and no text is only white space; an assistant message does not end with a thinking block; where
  the profile requires one in each assistant message, an empty one is added if none is left;
* a call of the provider's own tool needs its result, and a result needs its call;
* call ids have only letters, digits, `_` and `-`.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator
from typing import Any, Protocol
from urllib.parse import unquote_to_bytes

from ...errors import RequestError
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    File,
    Image,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    WireFields,
    json_text,
)
from ...server_tool_blocks import WIRE, call_block, result_block
from .. import history
from ..claude import is_redacted
from ..media import image_type_of, split_data_url, unsupported, unsupported_content
from ..profile import Profile
from ..setting_fields import Body
from ..tool_schema import arguments_object
from .blocks import REDACTED

THINKING_TYPES = ("thinking", REDACTED)
_UNFINISHED_REASONS = ("pause_turn", "tool_use")
"""Stop reasons after which a call of the provider's own tool may have no result yet."""


def system_prompt(messages: list[ModelMessage]) -> str | list[Body]:
    """Return all system prompts and the last instructions: this wire has one field for them.

    They are one text, or blocks if a client sent blocks: caching depends on where a block ends.
    """
    prompts: list[Body] = []
    has_blocks, instructions = False, None
    for message in messages:
        if isinstance(message, ModelRequest):
            instructions = message.instructions or instructions
            for part in message.parts:
                if not isinstance(part, SystemPromptPart) or not part.content or "role" in wire_fields(part):
                    continue
                blocks = wire_fields(part).get("content")
                has_blocks = has_blocks or blocks is not None
                prompts += blocks or [{"type": "text", "text": part.content}]
    if instructions:
        prompts.append({"type": "text", "text": instructions})
    return prompts if has_blocks else "\n\n".join(prompt["text"] for prompt in prompts)


def encode_messages(
    messages: list[ModelMessage], profile: Profile, target: Origin, *, thinking_off: bool
) -> list[Body]:
    entries: list[tuple[str, list[Body]]] = []
    messages = history.repair_calls(messages)
    paired_ids = _paired_call_ids(messages)
    for message in messages:
        if isinstance(message, ModelResponse):
            entries.append(
                ("assistant", _assistant_blocks(message, profile, target, paired_ids, thinking_off=thinking_off))
            )
        else:
            entries += _request_entries(message)
    merged = _merge_roles(entries)
    for role, blocks in merged:
        if role == "assistant":
            _insert_placeholder_thinking(blocks, profile, thinking_off=thinking_off)
    return [{"role": role, "content": blocks} for role, blocks in merged]


def is_reasoning_lost(messages: list[Body]) -> bool:
    """Whether the last answer made calls that now get their results, and its reasoning is not sent with it.

    The encoded messages decide this, because truncated turns may have been left out of them.
    """
    if len(messages) < 2 or messages[-1]["role"] == "assistant":
        return False
    blocks: list[Body] = messages[-2]["content"]
    return blocks[0]["type"] not in THINKING_TYPES and any(block["type"] == "tool_use" for block in blocks)


def _merge_roles(entries: list[tuple[str, list[Body]]]) -> list[tuple[str, list[Body]]]:
    """Merge neighbours of one role, and leave out empty messages."""
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
    """Remove thinking blocks at the end of the last message: the provider rejects them there."""
    if merged and merged[-1][0] == "assistant":
        blocks = merged[-1][1]
        while blocks and blocks[-1]["type"] in THINKING_TYPES:
            blocks.pop()
        if not blocks:
            merged.pop()


def _insert_placeholder_thinking(blocks: list[Body], profile: Profile, *, thinking_off: bool) -> None:
    """Insert an empty thinking block where the server requires one and none is left.

    None is left if the client did not send it back, or if the content that followed it was truncated.
    """
    if any(block["type"] in THINKING_TYPES for block in blocks):
        return
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    placeholder = history.placeholder_reasoning(profile, calls=has_calls, thinking_off=thinking_off)
    if placeholder is not None:
        blocks.insert(0, {"type": "thinking", "thinking": placeholder, "signature": ""})


# --- user messages -----------------------------------------------------------------------------------------------


def _request_entries(message: ModelRequest) -> Iterator[tuple[str, list[Body]]]:
    """Yield the blocks of a request, each with its role; see `system_prompt` for system prompts."""
    for part in message.parts:
        match part:
            case UserPromptPart():
                yield "user", _content_blocks(part.content)
            case ToolReturnPart():
                yield "user", [_tool_result(part) | wire_fields(part)]
            case SystemPromptPart() if "role" in (fields := wire_fields(part)):
                # A client of this API put it among the messages.
                content = fields["content"]
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
                yield fields["role"], blocks
            case _:
                pass


def _tool_result(part: ToolReturnPart) -> Body:
    body: Body = {"type": "tool_result", "tool_use_id": _safe_call_id(part.tool_call_id)}
    blocks = _content_blocks(part.content)
    if blocks:
        body["content"] = blocks
    return body | ({"is_error": True} if part.outcome != "success" else {})


# --- content: text, images and documents ----------------------------------------------------------------------------


class _HasWireFields(Protocol):
    @property
    def wire_fields(self) -> WireFields | None: ...


def wire_fields(value: _HasWireFields) -> Body:
    """Return the fields of a client's block that only this wire knows (`cache_control`, …)."""
    return (value.wire_fields or {}).get(WIRE, {})


def _content_blocks(content: Any) -> list[Body]:
    """Encode a text, a list of contents, or any other JSON value (as text) as blocks.

    Raises:
        RequestError: This wire cannot carry the content.
    """
    if isinstance(content, list) and content and all(isinstance(entry, UserContent | str) for entry in content):
        return [block for entry in content for block in _content_block(entry)]
    if isinstance(content, UserContent | str):
        return _content_block(content)
    return [] if content is None else _content_block(json_text(content))


def _content_block(content: UserContent | str) -> list[Body]:
    match content:
        case str():
            return [{"type": "text", "text": content}] if content.strip() else []
        case Text():
            fields = wire_fields(content)
            if "type" in fields:
                return [fields]
            # A blank text is rejected. With fields of its own it is the client's block: the provider answers for it.
            return [{"type": "text", "text": content.text} | fields] if content.text.strip() or fields else []
        case Image() if content.file_id or content.data or content.url:
            return [{"type": "image", "source": _source(content, "image/png")} | wire_fields(content)]
        case File() if content.file_id or content.data or content.url:
            return [_document(content) | wire_fields(content)]
        case _:
            raise unsupported_content(content, "over Anthropic Messages; it takes text, images, PDF and plain text")


def _source(content: Image | File, default_media_type: str) -> Body:
    if content.file_id:
        return {"type": "file", "file_id": content.file_id}
    media_type, data = content.media_type, content.data
    if data is None and content.url is not None:
        data_url = split_data_url(content.url)
        if data_url is None:
            return {"type": "url", "url": content.url}
        media_type, is_base64, data = data_url
        if not is_base64:
            data = b64encode(unquote_to_bytes(data)).decode()
    data = data or ""
    return {"type": "base64", "media_type": media_type or image_type_of(data) or default_media_type, "data": data}


def _document(file: File) -> Body:
    source = _source(file, "application/pdf")
    media_type = source.get("media_type", "")
    if media_type.startswith("image/"):
        return {"type": "image", "source": source}
    if media_type.startswith("text/") or media_type == "application/json":
        source = {"type": "text", "media_type": "text/plain", "data": _decoded_text(source["data"])}
    elif media_type and media_type != "application/pdf":
        raise unsupported(
            f"a file of type {media_type} cannot be sent over Anthropic Messages; it takes PDF, plain text and images"
        )
    return {"type": "document", "source": source} | ({"title": file.filename} if file.filename else {})


def _decoded_text(data: str) -> str:
    try:
        return b64decode(data, validate=True).decode("utf-8", "replace")
    except (Base64Error, ValueError):
        raise RequestError("a file's data is not base64", code="invalid_base64") from None


# --- assistant messages ------------------------------------------------------------------------------------------


def _assistant_blocks(
    response: ModelResponse, profile: Profile, target: Origin, paired_ids: set[str], *, thinking_off: bool
) -> list[Body]:
    parts = history.parts_to_send(response, target, profile, thinking_off=thinking_off)
    is_unfinished = response.native_finish_reason in _UNFINISHED_REASONS
    blocks: list[Body] = []
    for part in parts:
        # `history.parts_to_send` removes the provider's name from parts of other providers.
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
        case ThinkingPart() if is_redacted(part):
            return {"type": REDACTED, "data": part.signature} if part.signature else None
        case ThinkingPart():
            body: Body = {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}
            return body | (part.provider_details or {})
        case TextPart() if part.content.strip() or wire_fields(part):
            # The model often writes a line break between thinking and a call; the provider rejects it as blank text.
            return {"type": "text", "text": part.content} | _citations_field(part.provider_details) | wire_fields(part)
        case RefusalPart() if part.content.strip():
            return {"type": "text", "text": part.content}
        case ToolCallPart():
            call: Body = {"type": "tool_use", "id": _safe_call_id(part.tool_call_id), "name": part.tool_name}
            arguments = arguments_object(part.args)
            return call | {"input": arguments} | (part.provider_details or {}) | wire_fields(part)
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
            # Assistant messages of this wire cannot hold files.
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
    """Return the ids of provider tools' calls that have both a complete call and a result."""
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
    """Replace the characters of a call id that this provider rejects. Other providers use more characters."""
    return _FORBIDDEN_IN_CALL_ID.sub("_", call_id) or "call"
