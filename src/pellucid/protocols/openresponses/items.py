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
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
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
        _append_request_part(messages, UserPromptPart(input))
        return messages
    calls = dict(context.calls)
    for index, item in enumerate(input):
        at = f"input[{index}]"
        match item:
            case t.MessageParam(role="assistant"):
                for part in _assistant_parts(item, at):
                    _append_response_part(messages, part)
            case t.MessageParam(role="user"):
                content = item.content if isinstance(item.content, str) else _contents(item.content, at)
                _append_request_part(messages, UserPromptPart(content))
            case t.MessageParam():
                text = _only_text(item.content, at)
                _append_request_part(
                    messages, SystemPromptPart(text, "developer" if item.role == "developer" else "system")
                )
            case t.ReasoningParam():
                for thought in _reasoning_parts(item):
                    _append_response_part(messages, thought)
            case t.FunctionCallParam():
                _register_call(calls, item.call_id, item.name)
                is_complete = item.status != "incomplete"
                _append_response_part(
                    messages,
                    ToolCallPart(item.name, item.arguments, item.call_id, complete=is_complete, item_id=item.id),
                )
            case t.FunctionCallOutputParam():
                call = calls.get(item.call_id)
                if call is None:
                    _reject(at, f"no function_call with call_id {item.call_id!r} comes before this output", "call_id")
                if call.pending_results == 0:
                    _reject(at, f"the function_call with call_id {item.call_id!r} has its output already", "call_id")
                calls[item.call_id] = call._replace(pending_results=call.pending_results - 1)
                _append_request_part(messages, ToolReturnPart(call.name, _tool_output(item, at), item.call_id))
            case t.ItemReference():
                for message in _referenced_messages(item, context, at):
                    for earlier_part in message.parts:
                        if isinstance(earlier_part, ToolCallPart):
                            _register_call(calls, earlier_part.tool_call_id, earlier_part.tool_name)
                        _append_part(messages, earlier_part)
            case t.CompactionParam():
                _append_response_part(messages, SealedPart(item.encrypted_content, item.id))
    return messages


def item_messages(item: bytes, context: ReferenceContext) -> list[ModelMessage]:
    """Convert one item that was stored as it was received."""
    return messages_of([msgspec.json.decode(item, type=t.ItemParam)], context)


def _register_call(calls: dict[str, KnownCall], id: str, name: str) -> None:
    pending_results = calls[id].pending_results if id in calls else 0
    calls[id] = KnownCall(name, pending_results + 1)


def _referenced_messages(item: t.ItemReference, context: ReferenceContext, at: str) -> list[ModelMessage]:
    if item.id not in context.items:
        raise RequestError(
            f"{at}: there is no item {item.id!r} here; an item that was not stored must be sent in full",
            kind="not_found",
            code="item_not_found",
            param=f"{at}.id",
        )
    return context.items[item.id]


def _append_part(messages: list[ModelMessage], part: ModelRequestPart | ModelResponsePart) -> None:
    if isinstance(part, ModelRequestPart):
        _append_request_part(messages, part)
    else:
        _append_response_part(messages, part)


def _append_request_part(messages: list[ModelMessage], part: ModelRequestPart) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, ModelRequest):
        last.parts.append(part)
    else:
        messages.append(ModelRequest([part]))


def _append_response_part(messages: list[ModelMessage], part: ModelResponsePart) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, ModelResponse):
        last.parts.append(part)
    else:
        messages.append(ModelResponse([part]))


def _assistant_parts(item: t.MessageParam, at: str) -> list[ModelResponsePart]:
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
                _reject(f"{at}.content[{index}]", "an assistant message holds output_text and refusal only", "type")
    return parts


def _reasoning_parts(item: t.ReasoningParam) -> list[ModelResponsePart]:
    """Return the sealed token if there is one, else the raw text if the client sent it, else the summaries."""
    if item.encrypted_content:
        return [SealedPart(item.encrypted_content, item.id)]
    is_complete = item.status != "incomplete"
    if item.content:
        return [ThinkingPart(c.text, complete=is_complete) for c in item.content if c.text]
    return [ThinkingPart(s.text, form="summary", complete=is_complete) for s in item.summary if s.text]


def _contents(contents: list[t.InputContent], at: str) -> list[UserContent]:
    return [_content(content, f"{at}.content[{index}]") for index, content in enumerate(contents)]


def _content(content: t.InputContent, at: str) -> UserContent:
    match content:
        case t.InputText() | t.OutputTextParam() | t.PlainTextParam():
            return Text(content.text)
        case t.InputImage(image_url=None, file_id=None):
            _reject(at, "an input_image needs an image_url or a file_id", "image_url")
        case t.InputImage():
            return Image(url=content.image_url, file_id=content.file_id, detail=content.detail)
        case t.InputFile(file_data=None, file_url=None, file_id=None):
            _reject(at, "an input_file needs file_data, file_url or a file_id", "file_data")
        case t.InputFile():
            data, media_type = content.file_data, None
            if data is not None and data.startswith("data:"):
                head, _, data = data.partition(",")
                media_type = head[5:].partition(";")[0] or None
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
            _reject(at, "only an assistant message can hold a refusal", "type")


def _only_text(content: str | list[t.InputContent], at: str) -> str:
    if isinstance(content, str):
        return content
    texts = []
    for index, entry in enumerate(content):
        if not isinstance(entry, t.InputText | t.PlainTextParam | t.OutputTextParam):
            _reject(f"{at}.content[{index}]", "only text can stand here", "type")
        texts.append(entry.text)
    return "\n".join(texts)


def _tool_output(item: t.FunctionCallOutputParam, at: str) -> str | list[UserContent]:
    """Return text as one string, and content with images or files as a list."""
    if isinstance(item.output, str):
        return item.output
    contents = [_content(content, f"{at}.output[{index}]") for index, content in enumerate(item.output)]
    texts = [content.text for content in contents if isinstance(content, Text)]
    return "\n".join(texts) if len(texts) == len(contents) else contents


def _reject(at: str, message: str, field: str, code: str = "invalid_value") -> NoReturn:
    raise RequestError(f"{at}: {message}", code=code, param=f"{at}.{field}")
