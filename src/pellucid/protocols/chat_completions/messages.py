"""Converts the messages of a request to parts.

An assistant message holds its reasoning, its text and its calls in separate fields, so this wire loses their order:
reasoning comes first, then text, then calls. A sealed token carries its position and returns to it. Reasoning may be in
three fields; the same text in two of them is one piece of reasoning.

Entries of `reasoning_details`:

* A token that was sealed here (`reasoning.encrypted`, see `encode`) is a `SealedPart`. The token of a reasoning item
  holds the reasoning itself, so the readable text next to it is not repeated. Each field has the text of all items of
  the message, which the last token gets (`SealedPart.visible_texts`).
* Readable text and summaries, in fragments or whole, are kept. A signature by another provider is left out, because it
  could not go back to that provider from here.
* Encrypted data from elsewhere is refused, because it cannot be opened here.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

from msgspec.structs import replace

from ...errors import RequestError
from ...parts import (
    Audio,
    File,
    Form,
    Image,
    ModelMessage,
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
from ...unicode import truncate
from ..decoding import invalid
from ..message_parts import append_part, split_file_data
from . import types as t


def messages_of(request_messages: list[t.Message]) -> list[ModelMessage]:
    """Convert the messages of a request.

    Raises:
        RequestError: The message is invalid; the error names it.
    """
    messages: list[ModelMessage] = []
    function_names: dict[str, str] = {}
    """Names of the functions that were called, by call id."""
    pending_results: Counter[str] = Counter()
    """Number of results that are missing for each call id: some models give several calls one id."""
    legacy_call_ids: dict[str, str] = {}
    """Ids of calls in OpenAI's first form, which has no ids, by the function's name."""
    for index, message in enumerate(request_messages):
        path = f"messages[{index}]"
        match message:
            case t.ChatSystemMessage():
                append_part(messages, SystemPromptPart(_text(message.content)))
            case t.ChatDeveloperMessage():
                append_part(messages, SystemPromptPart(_text(message.content), "developer"))
            case t.ChatUserMessage():
                append_part(messages, UserPromptPart(_user_content(message.content, path), message.name or None))
            case t.ChatAssistantMessage():
                parts = _assistant_parts(message, path, function_names, legacy_call_ids)
                pending_results.update(part.tool_call_id for part in parts if isinstance(part, ToolCallPart))
                if parts:
                    messages.append(ModelResponse(parts))
            case t.ChatToolMessage():
                id = message.tool_call_id
                if id not in function_names:
                    raise invalid(f"{path}.tool_call_id", f"no tool call with the id {id!r} comes before this result")
                if not pending_results[id]:
                    raise invalid(f"{path}.tool_call_id", f"the tool call with the id {id!r} has its result already")
                pending_results[id] -= 1
                append_part(messages, ToolReturnPart(function_names[id], _text(message.content), id))
            case t.ChatFunctionMessage():
                name = message.name or ""
                if name not in legacy_call_ids:
                    raise invalid(f"{path}.name", f"no call of a function {truncate(name)!r} comes before this result")
                append_part(messages, ToolReturnPart(name, message.content or "", legacy_call_ids.pop(name)))
    return messages


def _text(content: str | list[t.ChatTextContent]) -> str:
    return content if isinstance(content, str) else "\n".join(entry.text for entry in content)


# --- user messages -----------------------------------------------------------------------------------------------


def _user_content(content: str | list[t.UserContent], path: str) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [_content(entry, f"{path}.content[{index}]") for index, entry in enumerate(content)]


def _content(content: t.UserContent, path: str) -> UserContent:
    match content:
        case t.ChatTextContent():
            return Text(content.text)
        case t.ChatImageContent(image_url=image):
            return Image(url=image.url, detail=image.detail)
        case t.ChatVideoContent(video_url=video):
            return Video(url=video.url)
        case t.ChatAudioContent(input_audio=audio):
            return Audio(data=audio.data, media_type=f"audio/{audio.format}")
        case t.ChatFileContent(file=file):
            if file.file_data is None and file.file_id is None:
                raise invalid(f"{path}.file.file_data", "a file needs file_data or a file_id")
            return _file(file)


def _file(file: t.ChatFileData) -> File:
    data, media_type, url = file.file_data, None, None
    if data is not None and data.startswith(("https://", "http://")):
        data, url = None, data  # OpenRouter's clients put a URL there
    elif data is not None:
        data, media_type = split_file_data(data)
    return File(url=url, data=data, media_type=media_type, file_id=file.file_id, filename=file.filename)


# --- assistant messages ------------------------------------------------------------------------------------------


def _assistant_parts(
    message: t.ChatAssistantMessage, path: str, function_names: dict[str, str], legacy_call_ids: dict[str, str]
) -> list[ModelResponsePart]:
    if message.audio is not None:
        raise invalid(f"{path}.audio", "audio is not stored here; send its text as content")
    sealed, readable = _details(message.reasoning_details or [], path)
    calls: list[ToolCallPart] = []
    for index, call in enumerate(message.tool_calls or []):
        if call.type != "function" or call.function is None:
            raise invalid(f"{path}.tool_calls[{index}].type", "only calls of functions can be sent back")
        function_names[call.id] = call.function.name
        calls.append(ToolCallPart(call.function.name, call.function.arguments, call.id))
    parts: list[ModelResponsePart] = []
    last_token = max((index for index, (part, _) in enumerate(sealed) if _is_token_of(part, "rs")), default=None)
    if last_token is None:
        parts += _thinking_parts(readable, message.reasoning_content, message.reasoning)
    else:
        details = "\n\n".join(part.content for part in readable)
        texts_of_fields = dict.fromkeys(filter(None, (details, message.reasoning_content, message.reasoning)))
        part, position = sealed[last_token]
        sealed[last_token] = replace(part, visible_texts=tuple(texts_of_fields)), position
    texts = _text_parts(message, [part.item_id for part, _ in sealed if _is_token_of(part, "msg")])
    text_offset = call_offset = 0
    for part, position in sealed:
        # A token without a position goes before everything to which it may belong.
        characters, count = position or ((ALL_CHARACTERS, 0) if _is_token_of(part, "fc") else (0, 0))
        preceding, texts = _split_text(texts, characters - text_offset)
        parts += [*preceding, *calls[call_offset:count], part]
        text_offset, call_offset = max(text_offset, characters), max(call_offset, count)
    parts += [*texts, *calls[call_offset:]]
    if message.function_call is not None:
        name, id = message.function_call.name, f"{path.translate(_ID_CHARACTERS)}_call"
        function_names[id], legacy_call_ids[name] = name, id
        parts.append(ToolCallPart(name, message.function_call.arguments, id))
    return parts


ALL_CHARACTERS = 2**53
"""A number of characters that is larger than any text."""

_TextParts: TypeAlias = list[TextPart | RefusalPart]

_ID_CHARACTERS = str.maketrans({"[": "_", "]": ""})


def _is_token_of(part: SealedPart, prefix: str) -> bool:
    """Check that a token belongs to an item of this kind.

    Public ids of items begin with the prefix. A client may have lost the id of a reasoning item.
    """
    return part.item_id.startswith(f"{prefix}_") if part.item_id else prefix == "rs"


def _text_parts(message: t.ChatAssistantMessage, item_ids: list[str | None]) -> _TextParts:
    """Return the text parts of a message.

    Args:
        message: The message.
        item_ids: The ids of the text items whose tokens came back. If there is only one, the text belongs to it.
    """
    parts: _TextParts = []
    content = message.content if isinstance(message.content, list) else [t.ChatTextContent(message.content or "")]
    item_id = item_ids[0] if len(item_ids) == len(content) == 1 else None
    for entry in content:
        if isinstance(entry, t.ChatTextContent) and entry.text:
            parts.append(TextPart(entry.text, item_id=item_id))
        elif isinstance(entry, t.ChatRefusalContent) and entry.refusal:
            parts.append(RefusalPart(entry.refusal))
    if message.refusal:
        parts.append(RefusalPart(message.refusal))
    return parts


def _split_text(texts: _TextParts, characters: int) -> tuple[_TextParts, _TextParts]:
    """Split texts after this number of characters."""
    for index, part in enumerate(texts):
        if isinstance(part, TextPart):
            if characters < len(part.content):
                head, tail = (
                    replace(part, content=text) for text in (part.content[:characters], part.content[characters:])
                )
                return [*texts[:index], *([head] if characters > 0 else [])], [tail, *texts[index + 1 :]]
            characters -= len(part.content)
    return texts, []


# --- reasoning ---------------------------------------------------------------------------------------------------

_READABLE: dict[str, tuple[str, Form]] = {
    "reasoning.text": ("text", "raw"),
    "reasoning.summary": ("summary", "summary"),
}


Position: TypeAlias = tuple[int, int] | None
"""The number of characters of text and the number of calls before a token; None if it is not known."""


def _details(
    details: list[t.ReasoningDetailParam], path: str
) -> tuple[list[tuple[SealedPart, Position]], list[ThinkingPart]]:
    """Return the sealed tokens with their positions, and the readable reasoning, each in order."""
    sealed: list[tuple[SealedPart, Position]] = []
    readable: list[ThinkingPart] = []
    last_key: tuple[str, int] | None = None
    for entry_index, detail in enumerate(details):
        if detail.type == "reasoning.encrypted":
            if not detail.data or detail.format not in (None, t.FORMAT):
                raise _foreign_data_error(f"{path}.reasoning_details[{entry_index}].data", detail.format)
            sealed.append((SealedPart(detail.data, detail.id or None), _position(detail.after)))
        elif detail.type in _READABLE:
            field, form = _READABLE[detail.type]
            text = getattr(detail, field) or ""
            entry_key = (detail.type, detail.index) if detail.index is not None else None
            if entry_key is not None and entry_key == last_key:
                readable[-1] = ThinkingPart(readable[-1].content + text, form=form)
            elif text:
                readable.append(ThinkingPart(text, form=form))
            else:
                continue
            last_key = entry_key
    return sealed, readable


def _position(after: Any) -> Position:
    """Return the position in `after`, which a client may have lost or changed."""
    match after:
        case [int(characters), int(calls)] if characters >= 0 and calls >= 0:
            return characters, calls
        case _:
            return None


def _thinking_parts(details: list[ThinkingPart], *texts: str | None) -> list[ThinkingPart]:
    """Return each piece of reasoning once: those in the details, then the remaining text of the fields."""
    parts = list(details)
    seen: list[str] = []
    for text in texts:
        if not text or text in seen:
            continue
        seen.append(text)
        remaining = text
        for detail in details:
            remaining = _remove_text(remaining, detail.content)
        if remaining.strip():
            parts.append(ThinkingPart(remaining))
    return parts


def _remove_text(text: str, part: str) -> str:
    """Remove a part of a text, and the blank line that separated it from the rest (see `encode`)."""
    before, matched, after = text.partition(part)
    if not matched:
        before, matched, after = text.partition(part.strip())
    if not matched:
        return text
    if after.startswith("\n\n"):
        return before + after[2:]
    return before.removesuffix("\n\n") + after


def _foreign_data_error(path: str, format: Any) -> RequestError:
    description = f"of the format {format!r}" if format else "empty"
    problem = f"this data is {description} and was not sealed here, so it cannot be opened; leave the entry out"
    return invalid(path, problem, "invalid_encrypted_content")
