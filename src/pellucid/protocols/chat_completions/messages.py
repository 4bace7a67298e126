"""The conversation of a request as parts.

An assistant's message holds its reasoning, its words and its calls in separate fields, so their order within it is lost
on this wire: reasoning comes first, then text, then calls. What is sealed says what it came after and goes there again.
Reasoning may be written in three places; the same text in two of them is one thought.

What `reasoning_details` may hold:

* one of our tokens (`reasoning.encrypted`, see `encode`): a `SealedPart`. A token of a thought holds the thought
  itself, so the readable text beside it is not told again.
* readable text and summaries, in fragments or whole; a signature by somebody else is left out, for it could not go back
  to its maker from here.
* somebody else's encrypted data: refused, since it cannot be opened here.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NoReturn, TypeAlias

from msgspec.structs import replace

from ...errors import RequestError
from ...parts import (
    Audio,
    File,
    Form,
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
from ...text import brief
from . import types as t


def messages_of(said: list[t.Message]) -> list[ModelMessage]:
    """Raises `RequestError` naming the message."""
    messages: list[ModelMessage] = []
    names: dict[str, str] = {}
    """The functions that were called, by the call's id."""
    waiting: Counter[str] = Counter()
    """How many results each id still waits for: some models give several calls one id."""
    unanswered: dict[str, str] = {}
    """The ids of calls in OpenAI's first form, which has none, by the function's name."""
    for index, message in enumerate(said):
        at = f"messages[{index}]"
        match message:
            case t.ChatSystemMessage():
                _say(messages, SystemPromptPart(_text(message.content)))
            case t.ChatDeveloperMessage():
                _say(messages, SystemPromptPart(_text(message.content), "developer"))
            case t.ChatUserMessage():
                _say(messages, UserPromptPart(_user(message.content, at), message.name or None))
            case t.ChatAssistantMessage():
                parts = _assistant(message, at, names, unanswered)
                waiting.update(part.tool_call_id for part in parts if isinstance(part, ToolCallPart))
                if parts:
                    messages.append(ModelResponse(parts))
            case t.ChatToolMessage():
                id = message.tool_call_id
                if id not in names:
                    _wrong(at, f"no tool call with the id {id!r} comes before this result", "tool_call_id")
                if not waiting[id]:
                    _wrong(at, f"the tool call with the id {id!r} has its result already", "tool_call_id")
                waiting[id] -= 1
                _say(messages, ToolReturnPart(names[id], _text(message.content), id))
            case t.ChatFunctionMessage():
                name = message.name or ""
                if name not in unanswered:
                    _wrong(at, f"no call of a function {brief(name)!r} comes before this result", "name")
                _say(messages, ToolReturnPart(name, message.content or "", unanswered.pop(name)))
    return messages


def _say(messages: list[ModelMessage], part: ModelRequestPart) -> None:
    last = messages[-1] if messages else None
    if isinstance(last, ModelRequest):
        last.parts.append(part)
    else:
        messages.append(ModelRequest([part]))


def _text(content: str | list[t.ChatTextContent]) -> str:
    return content if isinstance(content, str) else "\n".join(entry.text for entry in content)


# --- what the user says ------------------------------------------------------------------------------------------


def _user(content: str | list[t.UserContent], at: str) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [_content(entry, f"{at}.content[{index}]") for index, entry in enumerate(content)]


def _content(content: t.UserContent, at: str) -> UserContent:
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
                _wrong(f"{at}.file", "a file needs file_data or a file_id", "file_data")
            return _file(file)


def _file(file: t.ChatFileData) -> File:
    data, media_type, url = file.file_data, None, None
    if data is not None and data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head[5:].partition(";")[0] or None
    elif data is not None and data.startswith(("https://", "http://")):
        data, url = None, data  # OpenRouter's clients put an address there
    return File(url=url, data=data, media_type=media_type, file_id=file.file_id, filename=file.filename)


# --- what the assistant said -------------------------------------------------------------------------------------


def _assistant(
    message: t.ChatAssistantMessage, at: str, names: dict[str, str], unanswered: dict[str, str]
) -> list[ModelResponsePart]:
    if message.audio is not None:
        _wrong(at, "no speech is kept here; give back what was said as content", "audio")
    sealed, readable = _details(message.reasoning_details or [], at)
    calls: list[ToolCallPart] = []
    for index, call in enumerate(message.tool_calls or []):
        if call.type != "function" or call.function is None:
            _wrong(f"{at}.tool_calls[{index}]", "only calls of functions can be given back", "type")
        names[call.id] = call.function.name
        calls.append(ToolCallPart(call.function.name, call.function.arguments, call.id))
    parts: list[ModelResponsePart] = []
    if not any(_is_of(part, "rs") for part, _ in sealed):
        parts += _thoughts(readable, message.reasoning_content, message.reasoning)
    words = _words(message, [part.item_id for part, _ in sealed if _is_of(part, "msg")])
    told = made = 0
    for part, place in sealed:
        # One that lost its place stands before what it may belong to.
        characters, count = place or ((ALL, 0) if _is_of(part, "fc") else (0, 0))
        before, words = _parted(words, characters - told)
        parts += [*before, *calls[made:count], part]
        told, made = max(told, characters), max(made, count)
    parts += [*words, *calls[made:]]
    if message.function_call is not None:
        name, id = message.function_call.name, f"{at.translate(_PLAIN)}_call"
        names[id], unanswered[name] = name, id
        parts.append(ToolCallPart(name, message.function_call.arguments, id))
    return parts


ALL = 2**53
"""More characters than any text has."""

_Words: TypeAlias = list[TextPart | RefusalPart]

_PLAIN = str.maketrans({"[": "_", "]": ""})


def _is_of(part: SealedPart, prefix: str) -> bool:
    """Whether this is the token of that kind of item. Public ids begin with it; a client may have lost a thought's."""
    return part.item_id.startswith(f"{prefix}_") if part.item_id else prefix == "rs"


def _words(message: t.ChatAssistantMessage, items: list[str | None]) -> _Words:
    """`items` are the items of text whose tokens came back: if there was but one, the text is that one's."""
    parts: _Words = []
    content = message.content if isinstance(message.content, list) else [t.ChatTextContent(message.content or "")]
    item = items[0] if len(items) == len(content) == 1 else None
    for entry in content:
        if isinstance(entry, t.ChatTextContent) and entry.text:
            parts.append(TextPart(entry.text, item_id=item))
        elif isinstance(entry, t.ChatRefusalContent) and entry.refusal:
            parts.append(RefusalPart(entry.refusal))
    if message.refusal:
        parts.append(RefusalPart(message.refusal))
    return parts


def _parted(words: _Words, characters: int) -> tuple[_Words, _Words]:
    """The first so many characters of text, and the rest."""
    for index, part in enumerate(words):
        if isinstance(part, TextPart):
            if characters < len(part.content):
                head, tail = (
                    replace(part, content=text) for text in (part.content[:characters], part.content[characters:])
                )
                return [*words[:index], *([head] if characters > 0 else [])], [tail, *words[index + 1 :]]
            characters -= len(part.content)
    return words, []


# --- reasoning ---------------------------------------------------------------------------------------------------

_READABLE: dict[str, tuple[str, Form]] = {
    "reasoning.text": ("text", "raw"),
    "reasoning.summary": ("summary", "summary"),
}


Place: TypeAlias = tuple[int, int] | None
"""After how many characters of text, and after how many calls; None: it did not say."""


def _details(
    details: list[t.ReasoningDetailParam], at: str
) -> tuple[list[tuple[SealedPart, Place]], list[ThinkingPart]]:
    """Our tokens and their places, and what can be read, in order."""
    sealed: list[tuple[SealedPart, Place]] = []
    readable: list[ThinkingPart] = []
    last: tuple[str, int] | None = None
    for position, detail in enumerate(details):
        if detail.type == "reasoning.encrypted":
            if not detail.data or detail.format not in (None, t.FORMAT):
                _foreign(f"{at}.reasoning_details[{position}]", detail.format)
            sealed.append((SealedPart(detail.data, detail.id or None), _place(detail.after)))
        elif detail.type in _READABLE:
            field, form = _READABLE[detail.type]
            text = getattr(detail, field) or ""
            place = (detail.type, detail.index) if detail.index is not None else None
            if place is not None and place == last:
                readable[-1] = ThinkingPart(readable[-1].content + text, form=form)
            elif text:
                readable.append(ThinkingPart(text, form=form))
            else:
                continue
            last = place
    return sealed, readable


def _place(after: Any) -> Place:
    """A client may have lost it, or made it up."""
    match after:
        case [int(characters), int(calls)] if characters >= 0 and calls >= 0:
            return characters, calls
        case _:
            return None


def _thoughts(details: list[ThinkingPart], *fields: str | None) -> list[ThinkingPart]:
    """Each thought once: what the details hold, then what only a field holds."""
    thoughts = list(details)
    told: list[str] = []
    for field in fields:
        if not field or field in told:
            continue
        told.append(field)
        rest = field
        for detail in details:
            rest = _without(rest, detail.content)
        if rest.strip():
            thoughts.append(ThinkingPart(rest))
    return thoughts


def _without(text: str, part: str) -> str:
    """The text without that part of it, and without the blank line that set the two apart (see `encode`)."""
    before, found, after = text.partition(part)
    if not found:
        before, found, after = text.partition(part.strip())
    if not found:
        return text
    if after.startswith("\n\n"):
        return before + after[2:]
    return before.removesuffix("\n\n") + after


def _foreign(at: str, format: Any) -> NoReturn:
    whose = f"of the format {format!r}" if format else "empty"
    _wrong(
        at,
        f"this data is {whose} and was not sealed here, so it cannot be opened; leave the entry out",
        "data",
        "invalid_encrypted_content",
    )


def _wrong(at: str, message: str, field: str, code: str = "invalid_value") -> NoReturn:
    path = f"{at}.{field}"
    raise RequestError(f"{path}: {message}", code=code, param=path)
