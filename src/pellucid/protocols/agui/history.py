"""Convert the messages of a run's input to parts.

AG-UI stores one model turn as several messages: reasoning, text, calls. Between two requests they are one response
again, in their order.

* A reasoning message becomes a `ThinkingPart`. Its token becomes a `SealedPart` before it, and replaces it once opened
  (see `sealing.attach`). The encrypted value of a text or a call is a `SealedPart` before that part. The id of the
  message or call to which a token is bound is `SealedPart.item_id`.
* Reasoning at the end of an interrupted turn, with no text or call after it, is sent to no model: providers refuse a
  thought without an answer. Only tokens at the end of a turn with text or calls are kept.
* Activities are not sent to a model. Encrypted values on other messages are not ours, and are ignored.
* `context` becomes one system prompt, after those of the client. A client that sends it could send a system message, so
  this gives it no more authority. Where messages of the roles `system` and `developer` are left out, it is a text of
  the user, at the same place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from ...conversation import join_messages
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
from ..decoding import invalid
from ..message_parts import (
    append_part,
    joined_if_text,
    media_content,
    with_visible_texts,
    without_trailing_reasoning,
)
from . import messages as m
from .metadata import form_of, is_complete, item_id_of

NO_CALLS: Mapping[str, ToolCallPart] = MappingProxyType({})


def history_of(
    client_messages: Sequence[m.Message],
    context: Sequence[m.Context] = (),
    resume: Sequence[m.ResumeEntry] = (),
    *,
    system_messages: bool = True,
    waiting_calls: Mapping[str, ToolCallPart] = NO_CALLS,
    paths: Sequence[str] | None = None,
) -> list[ModelMessage]:
    """Convert the messages of a client to the conversation for a model.

    Args:
        client_messages: The messages of the input.
        context: Additional information for the run.
        resume: Answers to interrupts; those for a call become its result.
        system_messages: Whether messages of the roles `system` and `developer` are included.
        waiting_calls: The calls before these messages that have no result, by their ids.
        paths: The path of each message in the input, if they are not all messages of the input.

    Raises:
        RequestError: A message is invalid; `param` is its path.
    """
    conversation = _Conversation(waiting_calls)
    for index, message in enumerate(client_messages):
        if system_messages or not isinstance(message, m.SystemMessage | m.DeveloperMessage):
            conversation.add(message, f"messages[{index}]" if paths is None else paths[index])
    conversation.resume(resume)
    trimmed = [
        replace(
            message,
            parts=without_trailing_reasoning(with_visible_texts(message.parts, item_id_of), _is_content),
        )
        if isinstance(message, ModelResponse)
        else message
        for message in conversation.messages
    ]
    messages = join_messages([message for message in trimmed if message.parts])
    return add_context(messages, context, SystemPromptPart if system_messages else UserPromptPart)


def sealed_in(messages: Sequence[m.Message]) -> list[SealedPart]:
    """Return the sealed tokens in these messages, with the visible reasoning next to them."""
    conversation = _Conversation()
    for index, message in enumerate(messages):
        if isinstance(message, m.ReasoningMessage | m.AssistantMessage):
            conversation.add(message, f"messages[{index}]")
    return [
        part
        for turn in conversation.messages
        if isinstance(turn, ModelResponse)
        for part in with_visible_texts(turn.parts, item_id_of)
        if isinstance(part, SealedPart)
    ]


def is_carrier_of(entity_id: str, item_id: str | None, call_ids: Collection[str] = ()) -> bool:
    """Return whether the token of an item may come back on a message or call.

    The token of an item is on a message of the item, on its call, or on a reasoning message made to carry it.

    Args:
        entity_id: The id of the message or call on which the token came.
        item_id: The public id of the item that was sealed.
        call_ids: The ids of the calls in the item.
    """
    if item_id is None or entity_id in call_ids:
        return entity_id in call_ids
    return item_id_of(entity_id) in (item_id, f"rs_{item_id.partition('_')[2]}")


class _Conversation:
    """Collects the parts of requests and responses in turn."""

    def __init__(self, waiting_calls: Mapping[str, ToolCallPart] = NO_CALLS) -> None:
        self.messages: list[ModelMessage] = []
        self._tool_names = {id: call.tool_name for id, call in waiting_calls.items()}
        """Names of the called functions, by the id of the call."""
        self._unanswered = set(waiting_calls)

    def add(self, message: m.Message, path: str) -> None:
        match message:
            case m.SystemMessage():
                self._append(SystemPromptPart(message.content))
            case m.DeveloperMessage():
                self._append(SystemPromptPart(message.content, "developer"))
            case m.UserMessage():
                self._append(UserPromptPart(_user_contents(message.content, f"{path}.content"), message.name or None))
            case m.ToolMessage():
                self._append(self._tool_return(message, path))
            case m.ReasoningMessage():
                self._append(*_reasoning_parts(message))
            case m.AssistantMessage():
                self._append(*self._assistant_parts(message))
            case m.ActivityMessage():
                pass

    def resume(self, entries: Sequence[m.ResumeEntry]) -> None:
        """Add the results of calls from answers to interrupts.

        An interrupt whose id is that of a call waits for its result. Other answers are for the application.
        """
        for entry in entries:
            id = entry.interrupt_id
            if id in self._unanswered:
                self._unanswered.remove(id)
                if entry.status == "cancelled":
                    part = ToolReturnPart(self._tool_names[id], "The user cancelled this.", id, "denied")
                else:
                    part = ToolReturnPart(self._tool_names[id], entry.payload, id)
                self._append(part)

    def _append(self, *parts: ModelRequestPart | ModelResponsePart) -> None:
        for part in parts:
            append_part(self.messages, part)

    def _assistant_parts(self, message: m.AssistantMessage) -> list[ModelResponsePart]:
        parts: list[ModelResponsePart] = []
        if message.encrypted_value:
            parts.append(SealedPart(message.encrypted_value, message.id))
        if message.content:
            parts.append(TextPart(message.content, item_id=item_id_of(message.id)))
        for call in message.tool_calls or []:
            self._tool_names[call.id] = call.function.name
            self._unanswered.add(call.id)
            if call.encrypted_value:
                parts.append(SealedPart(call.encrypted_value, call.id))
            parts.append(ToolCallPart(call.function.name, call.function.arguments, call.id))
        return parts

    def _tool_return(self, message: m.ToolMessage, path: str) -> ToolReturnPart:
        id = message.tool_call_id
        if id not in self._tool_names:
            raise invalid(f"{path}.toolCallId", f"no tool call with the id {id!r} comes before this result")
        self._unanswered.discard(id)
        content = _user_contents(message.content, f"{path}.content")
        if isinstance(content, list):
            content = joined_if_text(content)
        if message.error is None:
            return ToolReturnPart(self._tool_names[id], content, id)
        return ToolReturnPart(self._tool_names[id], content or message.error, id, "failed")


def _reasoning_parts(message: m.ReasoningMessage) -> list[ModelResponsePart]:
    parts: list[ModelResponsePart] = []
    if message.sealed:
        parts.append(SealedPart(message.sealed, message.id))
    if message.text:
        form, complete = form_of(message.metadata) or "raw", is_complete(message.metadata)
        parts.append(ThinkingPart(message.text, form=form, complete=complete, item_id=item_id_of(message.id)))
    return parts


def _is_content(part: ModelResponsePart) -> bool:
    return isinstance(part, TextPart | ToolCallPart)


def add_context(
    messages: list[ModelMessage], context: Sequence[m.Context], part_type: type[SystemPromptPart | UserPromptPart]
) -> list[ModelMessage]:
    """Return a conversation with the context of a run, if there is any, before the first message of the user."""
    if not context:
        return messages
    text = "\n\n".join(f"{one.description}:\n{one.value}" for one in context)
    part = part_type(f"Context from the application:\n\n{text}")
    first = messages[0] if messages else None
    if not isinstance(first, ModelRequest):
        return [ModelRequest([part]), *messages]
    insert_at = next(
        (index for index, one in enumerate(first.parts) if not isinstance(one, SystemPromptPart)), len(first.parts)
    )
    return [replace(first, parts=[*first.parts[:insert_at], part, *first.parts[insert_at:]]), *messages[1:]]


# --- content -----------------------------------------------------------------------------------------------------


def _user_contents(content: str | list[m.ContentPart], path: str) -> str | list[UserContent]:
    if isinstance(content, str):
        return content
    return [_user_content(part, f"{path}[{index}]") for index, part in enumerate(content)]


def _user_content(part: m.ContentPart, path: str) -> UserContent:
    match part:
        case m.TextContent():
            return Text(part.text)
        case m.BinaryContent():
            return _binary_content(part, path)
        case m.ImageContent():
            return Image(**_source_fields(part.source))
        case m.DocumentContent():
            name = part.metadata.get("filename") if isinstance(part.metadata, dict) else None
            return File(**_source_fields(part.source), filename=name if isinstance(name, str) else None)
        case m.AudioContent() | m.VideoContent():
            if isinstance(part.source, m.FileSource):
                raise invalid(f"{path}.source", "audio and video must be data or a url", "unsupported_source")
            kind = Audio if isinstance(part, m.AudioContent) else Video
            return kind(**_source_fields(part.source))


def _source_fields(source: m.Source) -> dict[str, Any]:
    field = "data" if isinstance(source, m.DataSource) else "url" if isinstance(source, m.UrlSource) else "file_id"
    return {field: source.value, "media_type": source.mime_type}


def _binary_content(part: m.BinaryContent, path: str) -> UserContent:
    sources = {name: value for name in ("data", "url") if (value := getattr(part, name))}
    kind = part.mime_type.partition("/")[0]
    if not sources and part.id and kind not in ("audio", "video"):
        sources = {"file_id": part.id}
    if not sources:
        raise invalid(path, "binary content needs data or a url", "missing")
    fields = {**dict(list(sources.items())[:1]), "media_type": part.mime_type}
    return media_content(part.mime_type, fields, part.filename)
