"""Converts input items to messages, the form in which models are called.

Items of every dialect are accepted: reasoning may come as raw text, as summaries, as a token that was sealed here
(`SealedPart`, to be opened before a model sees it), or as all of them. What an item refers to (an earlier item by its
id, a call by its `call_id`) is passed in as `ReferenceContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NoReturn

import msgspec

from ...errors import RequestError
from ...parts import (
    Audio,
    File,
    Image,
    ModelMessage,
    ModelResponsePart,
    RefusalPart,
    SealedPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    Video,
)
from ..message_parts import append_part, joined_if_text, split_file_data
from . import types as t


class KnownCall(NamedTuple):
    """A function that was called with some `call_id`."""

    name: str
    pending_results: int = 1
    """The number of results that are missing: some models give several calls one id."""


class ReferenceContext(NamedTuple):
    """The calls and items that input items may refer to."""

    calls: Mapping[str, KnownCall] = {}
    """The functions that were called earlier in the conversation, by `call_id`."""
    items: Mapping[str, list[ModelMessage]] = {}
    """The messages of stored items, by the item's id."""


def messages_of(input: str | list[t.ItemParam], context: ReferenceContext) -> list[ModelMessage]:
    """Convert an input.

    Args:
        input: A text, or a list of items.
        context: The calls and items that items may refer to.

    Raises:
        RequestError: The message names the item and says what would be valid.
    """
    messages: list[ModelMessage] = []
    if isinstance(input, str):
        append_part(messages, UserPromptPart(input))
        return messages
    calls = dict(context.calls)
    for index, item in enumerate(input):
        path = f"input[{index}]"
        match item:
            case t.MessageParam(role="assistant"):
                for part in _assistant_parts(item, path):
                    append_part(messages, part)
            case t.MessageParam(role="user"):
                append_part(messages, UserPromptPart(_user_content(item.content, path)))
            case t.MessageParam():
                text = _only_text(item.content, path)
                append_part(messages, SystemPromptPart(text, "developer" if item.role == "developer" else "system"))
            case t.ReasoningParam():
                for thought in _reasoning_parts(item):
                    append_part(messages, thought)
            case t.FunctionCallParam():
                _register_call(calls, item.call_id, item.name)
                is_complete = item.status != "incomplete"
                append_part(
                    messages,
                    ToolCallPart(item.name, item.arguments, item.call_id, complete=is_complete, item_id=item.id),
                )
            case t.FunctionCallOutputParam():
                call = calls.get(item.call_id)
                if call is None:
                    _reject(path, f"no function_call with call_id {item.call_id!r} comes before this output", "call_id")
                if call.pending_results == 0:
                    _reject(path, f"the function_call with call_id {item.call_id!r} has its output already", "call_id")
                calls[item.call_id] = call._replace(pending_results=call.pending_results - 1)
                append_part(messages, ToolReturnPart(call.name, _tool_output(item, path), item.call_id))
            case t.ItemReference():
                for message in _referenced_messages(item, context, path):
                    for earlier_part in message.parts:
                        if isinstance(earlier_part, ToolCallPart):
                            _register_call(calls, earlier_part.tool_call_id, earlier_part.tool_name)
                        append_part(messages, earlier_part)
            case t.CompactionParam():
                append_part(messages, SealedPart(item.encrypted_content, item.id))
    return messages


def item_messages(item: bytes, context: ReferenceContext) -> list[ModelMessage]:
    """Convert one item that was stored as it was received."""
    return messages_of([msgspec.json.decode(item, type=t.ItemParam)], context)


def _register_call(calls: dict[str, KnownCall], id: str, name: str) -> None:
    pending_results = calls[id].pending_results if id in calls else 0
    calls[id] = KnownCall(name, pending_results + 1)


def _referenced_messages(item: t.ItemReference, context: ReferenceContext, path: str) -> list[ModelMessage]:
    if item.id not in context.items:
        raise RequestError(
            f"{path}: there is no item {item.id!r} here; an item that was not stored must be sent in full",
            kind="not_found",
            code="item_not_found",
            param=f"{path}.id",
        )
    return context.items[item.id]


def _assistant_parts(item: t.MessageParam, path: str) -> list[ModelResponsePart]:
    is_complete = item.status != "incomplete"
    if isinstance(item.content, str):
        return [TextPart(item.content, complete=is_complete, item_id=item.id)]
    parts: list[ModelResponsePart] = []
    for index, content in enumerate(item.content):
        match content:
            case t.Refusal():
                parts.append(RefusalPart(content.refusal, item_id=item.id))
            case t.OutputTextParam() | t.PlainTextParam() | t.InputText():
                parts.append(TextPart(content.text, complete=is_complete, item_id=item.id))
            case _:
                _reject(f"{path}.content[{index}]", "an assistant message holds output_text and refusal only", "type")
    return parts


def _reasoning_parts(item: t.ReasoningParam) -> list[ModelResponsePart]:
    """Return the sealed token if there is one, else the raw text if the client sent it, else the summaries."""
    if item.encrypted_content:
        texts = [content.text for content in item.content or item.summary]
        return [SealedPart(item.encrypted_content, item.id, "\n\n".join(texts) or None)]
    is_complete = item.status != "incomplete"
    if item.content:
        return [ThinkingPart(c.text, complete=is_complete) for c in item.content if c.text]
    return [ThinkingPart(s.text, form="summary", complete=is_complete) for s in item.summary if s.text]


def _user_content(content: str | list[t.InputContent], path: str) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [_content(entry, f"{path}.content[{index}]") for index, entry in enumerate(content)]


def _content(content: t.InputContent, path: str) -> UserContent:
    match content:
        case t.InputText() | t.OutputTextParam() | t.PlainTextParam():
            return Text(content.text)
        case t.InputImage(image_url=None, file_id=None):
            _reject(path, "an input_image needs an image_url or a file_id", "image_url")
        case t.InputImage():
            return Image(url=content.image_url, file_id=content.file_id, detail=content.detail)
        case t.InputFile(file_data=None, file_url=None, file_id=None):
            _reject(path, "an input_file needs file_data, file_url or a file_id", "file_data")
        case t.InputFile():
            data, media_type = (None, None) if content.file_data is None else split_file_data(content.file_data)
            return File(
                url=content.file_url,
                data=data,
                media_type=media_type,
                file_id=content.file_id,
                filename=content.filename,
            )
        case t.InputVideo():
            return Video(url=content.video_url)
        case t.InputAudio():
            return Audio(data=content.input_audio.data, media_type=f"audio/{content.input_audio.format}")
        case t.Refusal():
            _reject(path, "only an assistant message can hold a refusal", "type")


def _only_text(content: str | list[t.InputContent], path: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, entry in enumerate(content):
        if not isinstance(entry, t.InputText | t.PlainTextParam | t.OutputTextParam):
            _reject(f"{path}.content[{index}]", "only text can stand here", "type")
        texts.append(entry.text)
    return "\n".join(texts)


def _tool_output(item: t.FunctionCallOutputParam, path: str) -> str | list[UserContent]:
    """Return text as one string, and content with images or files as a list."""
    if isinstance(item.output, str):
        return item.output
    return joined_if_text([_content(content, f"{path}.output[{index}]") for index, content in enumerate(item.output)])


def _reject(path: str, problem: str, field: str) -> NoReturn:
    raise RequestError(f"{path}: {problem}", code="invalid_value", param=f"{path}.{field}")
