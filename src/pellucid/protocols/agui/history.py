"""The conversation of a run's input as parts.

AG-UI keeps what one model turn said as several messages: reasoning, text, calls. Between two requests they are one
response again, in their order.

* A reasoning message is a `ThinkingPart`; what came sealed with it stands before it, and takes its place once opened
  (see `sealing.attach`). An encrypted value of a text or a call is what its maker put on it, and stands before that.
  The entity to which each is bound (the id of the message or call) is its `SealedPart.item_id`.
* Reasoning of a turn that was broken off, which nothing follows before the next request, goes to no model: no provider
  takes a thought that led to nothing. Only what is sealed at the end of a turn that did say something is kept.
* Activities are for people. Values on other messages than these are not ours, and left alone.
* What the run should know beside the conversation (`context`) is one system prompt, after the client's own. Whoever
  sends it could send a system message as well, so it gains no authority by that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from ...conversation import join_messages
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
from . import messages as m
from .marks import form_of, is_complete, item_of


def history_of(
    said: Sequence[m.Message], context: Sequence[m.Context] = (), resume: Sequence[m.ResumeEntry] = ()
) -> list[ModelMessage]:
    """Raises `RequestError` naming the place."""
    thread = _Thread()
    for index, message in enumerate(said):
        thread.add(message, f"messages[{index}]")
    thread.resume(resume)
    kept = [_without_loose_ends(message) for message in thread.messages]
    messages = join_messages([message for message in kept if message.parts])
    return _with_context(messages, context) if context else messages


def sealed_in(said: Sequence[m.Message]) -> list[SealedPart]:
    """What came sealed in these messages."""
    thread = _Thread()
    for index, message in enumerate(said):
        if isinstance(message, m.ReasoningMessage | m.AssistantMessage):
            thread.add(message, f"messages[{index}]")
    parts = (part for turn in thread.messages if isinstance(turn, ModelResponse) for part in turn.parts)
    return [part for part in parts if isinstance(part, SealedPart)]


def belongs(entity: str, item_id: str | None, call_ids: Collection[str] = ()) -> bool:
    """Whether what was sealed of that item, with those calls in it, may come back on the entity of this id.

    An item's value rides on a message of its own, on its call, or on a reasoning message made to carry it.
    """
    if item_id is None or entity in call_ids:
        return entity in call_ids
    return item_of(entity) in (item_id, f"rs_{item_id.partition('_')[2]}")


class _Thread:
    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self._names: dict[str, str] = {}
        """The functions that were called, by the call's id."""
        self._unanswered: set[str] = set()

    def add(self, message: m.Message, at: str) -> None:
        match message:
            case m.SystemMessage():
                self._ask(SystemPromptPart(message.content))
            case m.DeveloperMessage():
                self._ask(SystemPromptPart(message.content, "developer"))
            case m.UserMessage():
                self._ask(UserPromptPart(_content(message.content, f"{at}.content"), message.name or None))
            case m.ToolMessage():
                self._ask(self._result(message, at))
            case m.ReasoningMessage():
                self._answer(_reasoning(message))
            case m.AssistantMessage():
                self._answer(self._said(message))
            case m.ActivityMessage():
                pass

    def resume(self, entries: Sequence[m.ResumeEntry]) -> None:
        """An interrupt that has a call's id waits for its result. Others are their agent's to understand."""
        for entry in entries:
            id = entry.interrupt_id
            if id in self._unanswered:
                self._unanswered.remove(id)
                if entry.status == "cancelled":
                    part = ToolReturnPart(self._names[id], "The user cancelled this.", id, "denied")
                else:
                    part = ToolReturnPart(self._names[id], entry.payload, id)
                self._ask(part)

    def _ask(self, part: ModelRequestPart) -> None:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelRequest):
            last.parts.append(part)
        else:
            self.messages.append(ModelRequest([part]))

    def _answer(self, parts: list[ModelResponsePart]) -> None:
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelResponse):
            last.parts.extend(parts)
        else:
            self.messages.append(ModelResponse(parts))

    def _said(self, message: m.AssistantMessage) -> list[ModelResponsePart]:
        parts: list[ModelResponsePart] = []
        if message.encrypted_value:
            parts.append(SealedPart(message.encrypted_value, message.id))
        if message.content:
            parts.append(TextPart(message.content, item_id=item_of(message.id)))
        for call in message.tool_calls or []:
            self._names[call.id] = call.function.name
            self._unanswered.add(call.id)
            if call.encrypted_value:
                parts.append(SealedPart(call.encrypted_value, call.id))
            parts.append(ToolCallPart(call.function.name, call.function.arguments, call.id))
        return parts

    def _result(self, message: m.ToolMessage, at: str) -> ToolReturnPart:
        id = message.tool_call_id
        if id not in self._names:
            _wrong(f"{at}.toolCallId", f"no tool call with the id {id!r} comes before this result")
        self._unanswered.discard(id)
        content = _content(message.content, f"{at}.content")
        if isinstance(content, list) and all(isinstance(one, Text) for one in content):
            content = "\n".join(one.text for one in content if isinstance(one, Text))
        if message.error is None:
            return ToolReturnPart(self._names[id], content, id)
        return ToolReturnPart(self._names[id], content or message.error, id, "failed")


def _reasoning(message: m.ReasoningMessage) -> list[ModelResponsePart]:
    parts: list[ModelResponsePart] = []
    if message.sealed:
        parts.append(SealedPart(message.sealed, message.id))
    if message.text:
        form, whole = form_of(message.metadata) or "raw", is_complete(message.metadata)
        parts.append(ThinkingPart(message.text, form=form, complete=whole, item_id=item_of(message.id)))
    return parts


def _without_loose_ends(message: ModelMessage) -> ModelMessage:
    """A response without the reasoning that led to nothing."""
    if isinstance(message, ModelRequest):
        return message
    said = [place for place, part in enumerate(message.parts) if isinstance(part, TextPart | ToolCallPart)]
    if not said:
        return replace(message, parts=[])
    end = said[-1] + 1
    late = [part for part in message.parts[end:] if isinstance(part, SealedPart)]
    return replace(message, parts=[*message.parts[:end], *late])


def _with_context(messages: list[ModelMessage], context: Sequence[m.Context]) -> list[ModelMessage]:
    told = "\n\n".join(f"{one.description}:\n{one.value}" for one in context)
    part = SystemPromptPart(f"Context from the application:\n\n{told}")
    first = messages[0] if messages else None
    if not isinstance(first, ModelRequest):
        return [ModelRequest([part]), *messages]
    own = next((at for at, one in enumerate(first.parts) if not isinstance(one, SystemPromptPart)), len(first.parts))
    return [replace(first, parts=[*first.parts[:own], part, *first.parts[own:]]), *messages[1:]]


# --- content -----------------------------------------------------------------------------------------------------


def _content(content: str | list[m.ContentPart], at: str) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [_one(part, f"{at}[{index}]") for index, part in enumerate(content)]


def _one(part: m.ContentPart, at: str) -> UserContent:
    match part:
        case m.TextContent():
            return Text(part.text)
        case m.BinaryContent():
            return _binary(part, at)
        case m.ImageContent():
            return Image(**_source(part.source))
        case m.DocumentContent():
            name = part.metadata.get("filename") if isinstance(part.metadata, dict) else None
            return File(**_source(part.source), filename=name if isinstance(name, str) else None)
        case m.AudioContent() | m.VideoContent():
            if isinstance(part.source, m.FileSource):
                _wrong(f"{at}.source", "sound and film can be given as data or url only", "unsupported_source")
            kind = Audio if isinstance(part, m.AudioContent) else Video
            return kind(**_source(part.source))


def _source(source: m.Source) -> dict[str, Any]:
    field = "data" if isinstance(source, m.DataSource) else "url" if isinstance(source, m.UrlSource) else "file_id"
    return {field: source.value, "media_type": source.mime_type}


def _binary(part: m.BinaryContent, at: str) -> UserContent:
    given = {name: value for name in ("data", "url") if (value := getattr(part, name))}
    kind = part.mime_type.partition("/")[0]
    if not given and part.id and kind not in ("audio", "video"):
        given = {"file_id": part.id}
    if not given:
        _wrong(at, "binary content needs data or a url", "missing")
    where = dict(list(given.items())[:1])
    match kind:
        case "image":
            return Image(**where, media_type=part.mime_type)
        case "audio":
            return Audio(**where, media_type=part.mime_type)
        case "video":
            return Video(**where, media_type=part.mime_type)
        case _:
            return File(**where, media_type=part.mime_type, filename=part.filename)


def _wrong(at: str, message: str, code: str = "invalid_value") -> NoReturn:
    raise RequestError(f"{at}: {message}", code=code, param=at)
