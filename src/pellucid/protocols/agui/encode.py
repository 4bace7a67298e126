"""Encode the events of a run as AG-UI, in any dialect (`dialects` lists the differences).

    RUN_STARTED
      REASONING_START (a span)                                 one for each reasoning item
        REASONING_MESSAGE_START / CONTENT … / END              its text; another message where its form changes
        REASONING_ENCRYPTED_VALUE                              its sealed token, one for the item
      REASONING_END
      TEXT_MESSAGE_START / CONTENT … / END, encrypted value    one for each message item with text
      TOOL_CALL_START / ARGS … / END, encrypted value          TOOL_CALL_RESULT, where functions are called here
    RUN_FINISHED, or RUN_ERROR

* A span starts when its item begins; a message starts with its first text. A client drops an encrypted value whose
  message it does not know. So a reasoning item without text gets an empty message if it has a token. An item that this
  protocol does not define (a provider's own tool, a file, an opaque block) gets an empty reasoning message for its
  token.
* Ids are made by `metadata`. Paragraphs of one message are separated by a blank line. The `metadata` of a reasoning
  message's start has the form of its text; that of its end says if the model was cut off.
* A call belongs to the assistant's last message if only calls came after that message, else to a new message.
* The `metadata` of RUN_FINISHED has the reason why a run is incomplete, and the status of a cancelled run where the
  dialect has no outcome for it. Everything that is open is closed before RUN_FINISHED or RUN_ERROR.
* The proposal carries tokens on REASONING_START. If the token is not known when the span begins (it is known where the
  batch holds the whole item, or the item was made for the token), an empty second span of the same id carries it. Only
  in this dialect does the output depend on how events are batched.

An encoder is pure: the time is an argument, and each batch becomes one piece of bytes. Deltas are written from
templates, all other events from their types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from ...accumulator import TEXT_FIELD
from ...events import (
    DEFERRED,
    AnsweringDeployment,
    Event,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
)
from ...framing import sse_event
from ...parts import (
    DEFAULT_MEDIA_TYPES,
    RefusalPart,
    Text,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
)
from ...unicode import json_safe, replace_surrogates
from ..encoding import PARAGRAPH_BREAK, PING, QUEUED, complete_arguments, to_json
from . import events as e
from .chunks import as_chunks
from .client_messages import ClientMessages, adapt_messages
from .dialects import DIALECTS, DialectName
from .messages import (
    NAMESPACE,
    ActivityMessage,
    AssistantMessage,
    AudioContent,
    ContentPart,
    DataSource,
    DocumentContent,
    FileSource,
    ImageContent,
    Message,
    ReasoningMessage,
    Source,
    TextContent,
    UrlSource,
    VideoContent,
)
from .metadata import carrier_id, make_metadata, message_id, span_id
from .proto import delta_frame_encoder, encode_frame
from .run_end import outcome_of, seals_ahead, usage_of, with_gateway_fields
from .side_events import SideEvents

_MEDIA: dict[str, type[ImageContent | AudioContent | VideoContent | DocumentContent]] = {
    "image": ImageContent,
    "audio": AudioContent,
    "video": VideoContent,
    "file": DocumentContent,
}
"""The class of the part for each kind of content."""

_DELTA_SUFFIX = b"}\n\n"
"""The end of the frame of a delta, after its text."""


def content_parts(result: ToolReturnPart, *, media: bool) -> str | list[ContentPart]:
    """Return the content of a tool message for the result of a function.

    Args:
        result: The result.
        media: Whether the client accepts images, audio, video and documents in results.

    Returns:
        Text; or parts, if the result has more than text and `media` is set.
    """
    contents = result.contents
    if contents is None:
        return result.content_as_text()
    texts = [content.text for content in contents if isinstance(content, Text)]
    if len(texts) == len(contents) or not media:
        return "\n".join(texts)
    return [_content_part(content) for content in contents]


def _content_part(content: UserContent) -> ContentPart:
    if isinstance(content, Text):
        return TextContent(text=content.text)
    source: Source
    file_id: str | None = getattr(content, "file_id", None)
    if content.url is not None:
        source = UrlSource(value=content.url, mime_type=content.media_type)
    elif file_id is not None and content.data is None:
        source = FileSource(value=file_id, mime_type=content.media_type)
    else:
        media_type = content.media_type or DEFAULT_MEDIA_TYPES[content.kind]
        source = DataSource(value=content.data or "", mime_type=media_type)
    return _MEDIA[content.kind](source=source)


class Encoder:
    """Encodes the stream of one run: `start` and `feed` return the bytes to send.

    Args:
        thread_id: The client's id of the thread.
        run_id: The client's id of the run.
        dialect: What the client speaks.
        parent_run_id: `parentRunId` of RUN_STARTED.
        reasoning: Whether events of reasoning are sent.
        chunks: Whether the model's messages and calls are sent as chunks.
        model: The requested name of the model, for the usage.
        history: The messages before the run, for the snapshot.
        snapshot: Whether the run ends with MESSAGES_SNAPSHOT; None for the dialect's default.
        ahead: Whether a token may be sent on the start of its item if the batch holds the whole item (in the proposal).
            Without it the output does not depend on how events are batched.
        binary: Whether events are protobuf frames (`proto`), and not server-sent events.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        dialect: DialectName = "1.0",
        *,
        parent_run_id: str | None = None,
        reasoning: bool = True,
        chunks: bool = False,
        model: str | None = None,
        history: Sequence[Message] = (),
        snapshot: bool | None = None,
        ahead: bool = True,
        binary: bool = False,
    ) -> None:
        self.dialect = DIALECTS[dialect]
        self.ended = False
        self._thread_id, self._run_id, self._parent_run_id = (
            replace_surrogates(thread_id),
            replace_surrogates(run_id),
            parent_run_id,
        )
        self._reasoning = reasoning
        self._seals = reasoning and self.dialect.has_seals
        self._seals_ahead = ahead and self._seals and self.dialect.seal_carrier == "span"
        self._chunks = chunks
        self._model = model
        self._binary = binary
        self._out: list[bytes] = []
        wants_snapshot = self.dialect.ends_with_snapshot if snapshot is None else snapshot
        self._client_messages = ClientMessages(history) if wants_snapshot else None
        self._side_events = SideEvents(self.dialect, reasoning=reasoning, history=history)
        self._held_events: list[e.AGUIEvent] = []
        """Side events that wait until no message is open."""
        self._open_item: _OpenItem | None = None
        self._open_message: _OpenMessage | None = None
        """The open message or call."""
        self._open_part: _OpenMessage | None = None
        """The open message or call, while an open part writes to it."""
        self._pending_part: ThinkingPart | TextPart | RefusalPart | None = None
        """The open part, while it has no text."""
        self._call_parent_id: str | None = None
        """The id of the message that the next call belongs to; None for a new message."""
        self._deployment: AnsweringDeployment | None = None
        self._pending_calls: dict[str, None] = {}
        """The calls without a result."""
        self._generated_ids = 0
        self._known_seals: dict[int, str] = {}
        """Tokens that are known when their item begins, by the index of its start event in the batch."""

    @property
    def ping(self) -> bytes:
        """A comment; the binary form has none."""
        return b"" if self._binary else PING

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream. A comment says if the request is `queued`."""
        started = e.RunStartedEvent(
            thread_id=self._thread_id,
            run_id=self._run_id,
            protocol_version=self.dialect.protocol_version,
            parent_run_id=self._parent_run_id,
        )
        self._write(started)
        output = self.feed([], 0)
        return output + QUEUED if queued and not self._binary else output

    def feed(self, events: list[Event], now: int) -> bytes:
        """Encode the events of one batch (see `protocols.Encoder`). Events have no time of their own."""
        if self._seals_ahead and len(events) > 1:
            self._known_seals = seals_ahead(events)
        for index, event in enumerate(events):
            if type(event) is PartDeltaEvent:
                self._delta(event)
            elif not self.ended:
                handler = HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event, index)
        output = b"".join(self._out)
        self._out.clear()
        return output

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return a function that encodes the text of further deltas; None where the next delta needs an event."""
        is_plain = self._open_part is not None and not self._open_part.next_prefix and not self._binary
        return self._encode_text if is_plain else None

    def _encode_text(self, text: str, now: int) -> bytes:
        assert self._open_part is not None
        return self._open_part.delta_prefix + to_json(text) + _DELTA_SUFFIX

    @property
    def messages(self) -> list[Message]:
        """The messages of the thread, as the snapshot has them; empty without a snapshot."""
        if self._client_messages is None:
            return []
        messages = adapt_messages(self._client_messages.messages, self.dialect, reasoning=self._reasoning)
        return [one for one in messages if not (self._client_messages.is_patched and isinstance(one, ActivityMessage))]

    # --- deltas ------------------------------------------------------------------------------------------------

    def _delta(self, event: PartDeltaEvent) -> None:
        delta, message = event.delta, self._open_part
        text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
        if not text:
            return
        if message is None:
            if self._pending_part is None or self._open_item is None:
                return
            message = self._message_for(self._open_item, self._pending_part)
        if self._binary:
            prefix, message.next_prefix = message.next_prefix, ""
            if message.encode_delta is None:
                message.encode_delta = delta_frame_encoder(message.sample_delta)
            self._out.append(message.encode_delta(prefix + text))
            return
        try:
            data = to_json(text)
        except UnicodeEncodeError:
            data = to_json(replace_surrogates(text))
        if message.next_prefix:
            data, message.next_prefix = to_json(message.next_prefix)[:-1] + data[1:], ""
        self._out.append(message.delta_prefix + data + _DELTA_SUFFIX)

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, index: int) -> None:
        item = self._open_item = _OpenItem(event.id or self._fresh_id(), event.kind)
        if event.kind == "reasoning" and self._reasoning:
            item.span_seal = self._known_seals.pop(index, None)
            self._write_span_start(item.id, item.span_seal)
            item.is_span = True

    def _item_end(self, event: ItemEndEvent, index: int) -> None:
        item, self._open_item = self._open_item, None
        if item is None:
            return
        seal = event.seal if self._seals else None
        if item.is_span:
            self._reasoning_end(item, event, seal)
            return
        self._end_message(make_metadata(**item.end_metadata) if item.end_metadata else None)
        if seal is None:
            return
        if item.call_id is not None and self.dialect.seal_carrier == "event":
            self._write_encrypted_value(item.call_id, seal, of_call=True)
        elif item.message_count and self.dialect.seal_carrier == "event":
            self._write_encrypted_value(item.id, seal)
        else:
            self._write_carrier(carrier_id(item.id), seal)

    def _reasoning_end(self, item: _OpenItem, event: ItemEndEvent, seal: str | None) -> None:
        form = self._open_message.form if self._open_message is not None else None
        is_cut_off = event.status == "incomplete" and self.dialect.has_metadata
        self._end_message(make_metadata(form=form, complete=False) if is_cut_off and form is not None else None)
        if seal is not None and self.dialect.seal_carrier == "event":
            if not item.message_count:
                self._write_empty_message(item.id)
            self._write_encrypted_value(item.id, seal)
        self._write_span_end(item.id)
        if seal is not None and self.dialect.seal_carrier == "span":
            if item.span_seal is None:
                self._write_span_start(item.id, seal)
                self._write_span_end(item.id)
            self._record_seal(item.id, seal, has_message=bool(item.message_count))

    def _write_carrier(self, id: str, seal: str) -> None:
        """Write a reasoning item that carries the token of an item that has no carrier of its own in the dialect."""
        on_start = self.dialect.seal_carrier == "span"
        self._write_span_start(id, seal if on_start else None)
        if not on_start:
            self._write_empty_message(id)
            self._write_encrypted_value(id, seal)
        self._write_span_end(id)
        if on_start:
            self._record_seal(id, seal, has_message=False)

    def _write_empty_message(self, id: str) -> None:
        """Write an empty reasoning message, for an encrypted value to refer to."""
        self._start_reasoning_message(id, "redacted")
        self._end_message(None)

    def _record_seal(self, id: str, seal: str, *, has_message: bool) -> None:
        """Set a token on its message for the snapshot; make the message if only a span was sent (in the proposal)."""
        if self._client_messages is None:
            return
        if not has_message:
            self._client_messages.set_text(ReasoningMessage(id=id, content=""))
            self._call_parent_id = None
        self._client_messages.set_value(id, seal)

    def _write_span_start(self, id: str, seal: str | None) -> None:
        if self.dialect.reasoning == "thinking":
            self._write(e.ThinkingStartEvent())
        else:
            self._write(e.ReasoningStartEvent(message_id=span_id(id), encrypted_content=seal))

    def _write_span_end(self, id: str) -> None:
        if self.dialect.reasoning == "thinking":
            self._write(e.ThinkingEndEvent())
        else:
            self._write(e.ReasoningEndEvent(message_id=span_id(id)))

    def _write_encrypted_value(self, id: str, seal: str, *, of_call: bool = False) -> None:
        subtype = "tool-call" if of_call else "message"
        self._write(e.ReasoningEncryptedValueEvent(subtype=subtype, entity_id=id, encrypted_value=seal))  # type: ignore[arg-type]
        if self._client_messages is not None:
            self._client_messages.set_value(id, seal, of_call=of_call)

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, index: int) -> None:
        item, part = self._open_item, event.part
        if item is None:
            return
        if isinstance(part, ThinkingPart | TextPart | RefusalPart):
            # The part may have a signature and no text. So its message starts with its first text.
            self._pending_part = part if item.is_span or not isinstance(part, ThinkingPart) else None
        elif isinstance(part, ToolCallPart):
            part = json_safe(part)
            self._call_parent_id = self._call_parent_id or item.id
            item.call_id = part.tool_call_id
            self._pending_calls[part.tool_call_id] = None
            start = e.ToolCallStartEvent(
                tool_call_id=part.tool_call_id, tool_call_name=part.tool_name, parent_message_id=self._call_parent_id
            )
            self._write(start)
            delta = e.ToolCallArgsEvent(tool_call_id=part.tool_call_id, delta="")
            self._open_part = self._open_message = _OpenMessage(
                delta, e.ToolCallEndEvent(tool_call_id=part.tool_call_id), self._chunks
            )

    def _message_for(self, item: _OpenItem, part: ThinkingPart | TextPart | RefusalPart) -> _OpenMessage:
        """Return the message that a part writes to: the open message if the part continues it, else a new one."""
        form = part.form if isinstance(part, ThinkingPart) else part.part_kind
        message = self._open_message
        self._pending_part = None
        if message is not None and isinstance(part, ThinkingPart) and message.form != form:
            self._end_message(None)
            message = None
        if message is not None:
            # The text parts of a message are one text. Thoughts and refusals are separate paragraphs.
            message.divider = PARAGRAPH_BREAK if isinstance(part, ThinkingPart) or message.form != form else ""
            message.next_prefix = message.divider
            message.form = form
        elif isinstance(part, ThinkingPart):
            item.message_count += 1
            message = self._start_reasoning_message(message_id(item.id, item.message_count), form)
        else:
            item.message_count = 1
            self._call_parent_id = item.id
            metadata = make_metadata(refusal=True) if isinstance(part, RefusalPart) else None
            self._write(e.TextMessageStartEvent(message_id=item.id, role="assistant", metadata=metadata))
            if self._client_messages is not None:
                self._client_messages.set_text(AssistantMessage(id=item.id, content="", metadata=metadata))
            delta = e.TextMessageContentEvent(message_id=item.id, delta="")
            message = _OpenMessage(delta, e.TextMessageEndEvent(message_id=item.id), self._chunks, form, metadata)
        self._open_part = self._open_message = message
        return message

    def _start_reasoning_message(self, id: str, form: str) -> _OpenMessage:
        delta: e.AGUIEvent
        if self.dialect.reasoning == "thinking":
            self._write(e.ThinkingTextMessageStartEvent())
            delta, end = e.ThinkingTextMessageContentEvent(delta=""), e.ThinkingTextMessageEndEvent()
            self._open_message = _OpenMessage(delta, end, self._chunks, form)
            return self._open_message
        self._call_parent_id = None
        metadata = make_metadata(form=form) if self.dialect.has_metadata else None
        self._write(e.ReasoningMessageStartEvent(message_id=id, role=self.dialect.reasoning_role, metadata=metadata))
        if self._client_messages is not None:
            self._client_messages.set_text(ReasoningMessage(id=id, content="", metadata=metadata))
        delta = e.ReasoningMessageContentEvent(message_id=id, delta="")
        self._open_message = _OpenMessage(
            delta, e.ReasoningMessageEndEvent(message_id=id), self._chunks, form, metadata
        )
        return self._open_message

    def _part_end(self, event: PartEndEvent, index: int) -> None:
        item, message, part = self._open_item, self._open_part, event.part
        self._open_part = self._pending_part = None
        if item is None or message is None:
            return
        if isinstance(part, ToolCallPart):
            part = json_safe(part)
            arguments, unsent = complete_arguments(part)
            if unsent:
                self._write(message.delta_event(unsent))
            if self._client_messages is not None and self._call_parent_id is not None:
                self._client_messages.add_call(self._call_parent_id, part.tool_call_id, part.tool_name, arguments)
            self._end_message(None)
        elif isinstance(part, ThinkingPart | TextPart | RefusalPart):
            if isinstance(part, TextPart) and part.annotations:
                item.end_metadata = {
                    **item.end_metadata,
                    "annotations": [*item.end_metadata.get("annotations", []), *part.annotations],
                }
            if self._client_messages is not None and part.content:
                message.texts.append(message.divider + part.content)

    def _end_message(self, metadata: dict[str, Any] | None) -> None:
        """End the open message or call."""
        message, self._open_part, self._pending_part = self._open_message, None, None
        if message is None:
            return
        end = message.end_event
        self._write(replace(end, metadata=metadata) if metadata else end)
        self._open_message = None
        if self._client_messages is not None and isinstance(end, e.TextMessageEndEvent | e.ReasoningMessageEndEvent):
            kind = AssistantMessage if isinstance(end, e.TextMessageEndEvent) else ReasoningMessage
            merged = {**(message.metadata or {}), **(metadata or {})} or None
            self._client_messages.set_text(kind(id=end.message_id, content="".join(message.texts), metadata=merged))
        held_events, self._held_events = self._held_events, []
        for event in held_events:
            self._write_side_event(event)

    # --- the run -----------------------------------------------------------------------------------------------

    def _response_start(self, event: ResponseStartEvent, index: int) -> None:
        self._call_parent_id = None
        self._deployment = event.deployment

    def _tool_result(self, event: FunctionToolResultEvent, index: int) -> None:
        result = event.result
        if result.tool_name is None:
            return  # A prompt to the model to correct its answer, not the result of a call.
        result = json_safe(result)
        media = self.dialect.has_media_results
        content = content_parts(result, media=media) if isinstance(result, ToolReturnPart) else result.content
        id = event.id or self._fresh_id()
        self._pending_calls.pop(result.tool_call_id, None)
        self._write(e.ToolCallResultEvent(message_id=id, tool_call_id=result.tool_call_id, content=content))
        if self._client_messages is not None:
            self._client_messages.add_result(id, result.tool_call_id, content)

    def _side_event(self, event: SideEvent, index: int) -> None:
        if event.namespace != NAMESPACE and (event.namespace, event.name) != DEFERRED:
            return
        for agui_event in self._side_events.feed(event):
            if isinstance(agui_event, e.ActivitySnapshotEvent | e.TextMessageStartEvent | e.ReasoningMessageStartEvent):
                self._call_parent_id = None  # Clients look for the parent at the end of their list of messages.
            elif isinstance(agui_event, e.ToolCallResultEvent):
                self._pending_calls.pop(agui_event.tool_call_id, None)
            self._send_side_event(agui_event)

    def _run_end(self, event: RunEndEvent, index: int) -> None:
        failed = event.status == "failed"
        item, self._open_item = self._open_item, None
        self._end_message(None)
        if item is not None and item.is_span:
            self._write_span_end(item.id)
        for end in self._side_events.end_all(failed=failed):
            self._write_side_event(end)
        usage = usage_of(event.usage, self._model)
        if failed:
            error = json_safe(event.failure)
            self._write(
                e.RunErrorEvent(
                    message=error.full_message,
                    code=error.code or error.kind,
                    usage=usage,
                    metadata=with_gateway_fields(None, event.usage, self._deployment),
                )
            )
        else:
            if self._client_messages is not None:
                self._write(e.MessagesSnapshotEvent(messages=self.messages))
            outcome, metadata = outcome_of(event, self.dialect, list(self._pending_calls), self._side_events.interrupts)
            finished = e.RunFinishedEvent(
                thread_id=self._thread_id,
                run_id=self._run_id,
                result=self._side_events.result,
                outcome=outcome,
                usage=usage,
                metadata=with_gateway_fields(metadata, event.usage, self._deployment),
            )
            self._write(finished)
        self.ended = True

    # --- writing -----------------------------------------------------------------------------------------------

    def _fresh_id(self) -> str:
        """Return an id for an item or a result without an id."""
        self._generated_ids += 1
        return f"{self._run_id}_{self._generated_ids}"

    def _write(self, event: e.AGUIEvent) -> None:
        """Write an event of the model's run, after the ends of side messages that it causes."""
        for end in self._side_events.ends_before(event):
            self._send_side_event(end)
        self._write_event(event)

    def _write_event(self, event: e.AGUIEvent) -> None:
        for chunk in as_chunks(event, self.dialect) if self._chunks else (event,):
            self._append(chunk)

    def _send_side_event(self, event: e.AGUIEvent) -> None:
        """Write an event of the application, or hold it until the open message ends.

        Between chunks it would end the open message, and a snapshot would lack that message.
        """
        if self._open_message is not None and (
            self._chunks or self._held_events or isinstance(event, e.MessagesSnapshotEvent)
        ):
            self._held_events.append(event)
        else:
            self._write_side_event(event)

    def _write_side_event(self, event: e.AGUIEvent) -> None:
        if self._client_messages is not None:
            self._client_messages.apply(event)
        self._append(event)

    def _append(self, event: e.AGUIEvent) -> None:
        self._out.append(encode_frame(event) if self._binary else sse_event(e.encode_event(event)))


class _OpenItem:
    """The open item."""

    __slots__ = ("call_id", "end_metadata", "id", "is_span", "kind", "message_count", "span_seal")

    def __init__(self, id: str, kind: str) -> None:
        self.id = replace_surrogates(id)
        self.kind = kind
        self.is_span = False
        """Whether the item is sent as a span of reasoning."""
        self.span_seal: str | None = None
        """The token that the start of the span carried, if any."""
        self.message_count = 0
        self.call_id: str | None = None
        self.end_metadata: dict[str, Any] = {}
        """The `metadata` of its message's end event."""


class _OpenMessage:
    """An open message or call: its end event, and the template of its deltas."""

    __slots__ = (
        "_delta_template",
        "delta_prefix",
        "divider",
        "encode_delta",
        "end_event",
        "form",
        "metadata",
        "next_prefix",
        "sample_delta",
        "texts",
    )

    def __init__(
        self,
        delta: e.AGUIEvent,
        end_event: e.AGUIEvent,
        chunks: bool,
        form: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._delta_template = delta
        self.end_event = end_event
        self.form = form
        self.metadata = metadata
        self.next_prefix = ""
        """Text to insert before the next delta."""
        self.divider = ""
        """The separator between the open part of the message and the part before it."""
        self.texts: list[str] = []
        self.sample_delta = replace(delta, delta="x")
        """A delta event as it is sent, as a chunk or not."""
        if chunks and not isinstance(delta, e.ThinkingTextMessageContentEvent):
            self.sample_delta = as_chunks(self.sample_delta, DIALECTS["1.0"])[0]
        # {"type":…,"messageId":…,"delta":"x"}, up to the value of delta.
        self.delta_prefix = b"data: " + e.encode_event(self.sample_delta)[: -len(b'"x"}')]
        self.encode_delta: Callable[[str], bytes] | None = None
        """Encodes its deltas by their text; set with the first delta of the binary transport."""

    def delta_event(self, text: str) -> e.AGUIEvent:
        return replace(self._delta_template, delta=text)


HANDLERS: dict[type[Any], Callable[[Encoder, Any, int], None]] = {
    ResponseStartEvent: Encoder._response_start,
    ItemStartEvent: Encoder._item_start,
    ItemEndEvent: Encoder._item_end,
    PartStartEvent: Encoder._part_start,
    PartEndEvent: Encoder._part_end,
    FunctionToolResultEvent: Encoder._tool_result,
    SideEvent: Encoder._side_event,
    RunEndEvent: Encoder._run_end,
}
"""The handler of each kind of event but deltas, which `feed` handles. Other events are not shown."""
