"""Encode a call as the body of a Mistral chat request.

Mistral rejects three things that other servers accept: a call id that is not nine letters and digits, a user message
directly after a tool message, and a last message of the assistant that is not marked as a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import blake2b
from itertools import pairwise
from typing import Any

from ...parts import (
    Audio,
    File,
    Image,
    Origin,
    Text,
    ThinkingPart,
    ToolCallPart,
    UserContent,
)
from ...settings import ModelCall, nearest_effort
from ..chat_request import AssistantMessage, ChatMessages, ChatRequest, tool_call, user_message
from ..effort import effort_paths
from ..media import unsupported_content, url_of
from ..profile import Profile
from ..setting_fields import Body, SettingFields
from ..tagged_text import with_markers
from ..tool_schema import function_tool, offered_tools, response_format

_PATHS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "random_seed",
    "stop_sequences": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "logprobs": "logprobs",
    "top_logprobs": "top_logprobs",
    "parallel_tool_calls": "parallel_tool_calls",
    "service_tier": "service_tier",
    "cache_key": "prompt_cache_key",
    "metadata": "metadata",
}
"""Settings that are sent unchanged, and their paths in the body."""


# --- thinking ----------------------------------------------------------------------------------------------------


def _write_effort(fields: SettingFields, profile: Profile) -> None:
    fields.set_thinking_paths(*effort_paths(profile, profile.effort_field))
    level = fields.settings.get("thinking")
    if level is None:
        return
    # By default these models do not think, and no level means their own amount: True needs a level.
    level = "none" if level is False else "high" if level is True else level
    effort = nearest_effort(level, profile.efforts)
    if effort is not None:
        fields.put("thinking", profile.effort_field, effort)


_THINKING_WRITERS: dict[str, Callable[[SettingFields, Profile], None]] = {
    "effort": _write_effort,
    "none": lambda fields, profile: None,
}
THINKING = frozenset(_THINKING_WRITERS)


# --- tools -------------------------------------------------------------------------------------------------------


def _tools(call: ModelCall) -> Body:
    tools, choice = offered_tools(call), call.tool_choice
    if not tools:
        return {}
    body: Body = {"tools": [function_tool(tool, "description", "parameters", "strict") for tool in tools]}
    if choice.mode == "required" and len(tools) == 1 and choice.names:
        return body | {"tool_choice": {"type": "function", "function": {"name": tools[0].name}}}
    return body | ({} if choice.mode == "auto" else {"tool_choice": "none" if choice.mode == "none" else "any"})


# --- messages ----------------------------------------------------------------------------------------------------

_BRIDGE_MESSAGE = {"role": "assistant", "content": "OK"}
"""Assistant message between a tool message and a user message. It must not be empty."""


def _messages(call: ModelCall, profile: Profile, target: Origin) -> list[Body]:
    messages = _MESSAGES.write(call, profile, target)
    result = messages[:1]
    for before, after in pairwise(messages):
        if before["role"] == "tool" and after["role"] == "user":
            result.append(_BRIDGE_MESSAGE)
        result.append(after)
    if result and result[-1]["role"] == "assistant":
        result[-1] = result[-1] | {"prefix": True}
    return result


def _tool_result(call_id: str, name: str, content: str) -> Body:
    return {"role": "tool", "tool_call_id": safe_call_id(call_id), "name": name, "content": content}


def _content_chunk(content: UserContent) -> Body:
    match content:
        case Text():
            return {"type": "text", "text": content.text}
        case Image() if content.url or content.data:
            url = url_of(content)
            return {"type": "image_url", "image_url": {"url": url, "detail": content.detail} if content.detail else url}
        case Audio() if content.data or content.url:
            return {"type": "input_audio", "input_audio": content.data or content.url}
        case File() if content.file_id:
            return {"type": "file", "file_id": content.file_id}
        case File() if content.url or content.data:
            url = url_of(content, "application/pdf")
            name_field = {"document_name": content.filename} if content.filename else {}
            return {"type": "document_url", "document_url": url} | name_field
        case _:
            raise unsupported_content(content, "to Mistral")


def _tool_call(part: ToolCallPart) -> Body:
    return tool_call(part) | {"id": safe_call_id(part.tool_call_id)}


def _answer(answer: AssistantMessage) -> Body:
    chunks = answer.chunks(_thinking_chunks, lambda part: _chunks_with_inserted(part.content, _details(part)))
    if not (chunks or answer.calls):
        return {}
    return {"content": _simplify_content(chunks)} | ({"tool_calls": answer.calls} if answer.calls else {})


def _thinking_chunks(part: ThinkingPart) -> list[Body]:
    tagged = with_markers(part)
    return [_thinking_chunk(part)] if tagged is None else [_text_chunk(tagged)]


def _simplify_content(chunks: list[Body]) -> str | list[Body]:
    """Join chunks of text alone into a string. Reasoning stays a chunk: in a string it would be read as the answer."""
    if all(chunk["type"] == "text" for chunk in chunks):
        return "".join(chunk["text"] for chunk in chunks)
    return chunks


def _thinking_chunk(part: ThinkingPart) -> Body:
    details = _details(part)
    chunk: Body = {"type": "thinking", "thinking": _chunks_with_inserted(part.content, details)}
    if part.signature is not None:
        chunk["signature"] = part.signature
    return chunk | ({"closed": True} if details.get("closed") is True else {})


def _text_chunk(text: str) -> Body:
    return {"type": "text", "text": text}


def _details(part: object) -> dict[str, Any]:
    return getattr(part, "provider_details", None) or {}


def _chunks_with_inserted(text: str, details: dict[str, Any]) -> list[Body]:
    """Return the text as chunks, with the inserted chunks at their positions."""
    chunks: list[Body] = []
    start = 0
    for entry in details.get("inserted", ()):
        offset = entry["at"]
        chunks += [_text_chunk(text[start:offset])] if offset > start else []
        chunks.append(entry["chunk"])
        start = max(offset, start)
    return chunks + ([_text_chunk(text[start:])] if start < len(text) else [])


# --- ids of calls ------------------------------------------------------------------------------------------------

_VALID_CALL_ID = re.compile("[a-zA-Z0-9]{9}")


def safe_call_id(call_id: str) -> str:
    """Return the id if Mistral accepts it, else an id that is derived from it, the same for call and result."""
    return (
        call_id
        if _VALID_CALL_ID.fullmatch(call_id)
        else blake2b(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:9]
    )


_MESSAGES = ChatMessages(
    user=user_message(_content_chunk), answer=_answer, tool_call=_tool_call, tool_result=_tool_result
)
_REQUEST = ChatRequest(
    settings=lambda profile: _PATHS,
    thinking=lambda fields, profile: _THINKING_WRITERS[profile.thinking](fields, profile),
    messages=_messages,
    tools=_tools,
    output=lambda output: response_format(output, "description", "strict"),
)
encode, setting_fields = _REQUEST.encode, _REQUEST.setting_fields
