"""Events to AG-UI: one run's stream, in any dialect (`dialects` says what differs).

    RUN_STARTED
      REASONING_START (a span)                                 one for each reasoning item
        REASONING_MESSAGE_START / CONTENT … / END              its text; another message where its form changes
        REASONING_ENCRYPTED_VALUE                              its seal, one for the item
      REASONING_END
      TEXT_MESSAGE_START / CONTENT … / END, encrypted value    one for each message item that says anything
      TOOL_CALL_START / ARGS … / END, encrypted value          TOOL_CALL_RESULT, where functions are called here
    RUN_FINISHED, or RUN_ERROR

* A span is told as soon as its item begins, messages with their first text. A client drops an encrypted value whose
  message it does not know: so a reasoning item without text has an empty message when it has a seal, and so has what
  this protocol has no word for (a provider's own tools, files, opaque blocks).
* Ids are those of `marks`. Paragraphs of one message are a blank line apart. What a reasoning message's text is stands
  in the `metadata` of its start, that it was cut off in that of its end.
* A call is held by the assistant's last message if nothing but calls came after it, else by a new one: in its place.
* A run that was cut says why in the `metadata` of RUN_FINISHED; one that was cancelled, too, where the dialect has no
  outcome for it. Whatever is open is closed before either end.
* The proposal has what is sealed on REASONING_START: if it is known by then (the batch holds the whole item, or the
  item was made for it), else on that of an empty second span of the same id. Only there does it matter how events are
  batched.

An encoder is pure: the time is handed in, and all that one batch gives is one piece of bytes. The events that come by
the thousand are written from templates, everything else from the types.

What a function returned, as a tool message has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ...accumulator import TEXT_FIELD
from ...errors import ErrorInfo
from ...events import (
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
from ...parts import RefusalPart, Text, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart, UserContent
from ...unicode import json_safe, replace_surrogates
from . import events as e
from .chunks import chunked
from .dialects import DIALECTS, Dialect, DialectName
from .ending import outcome_of, seals_ahead, usage_of
from .marks import carrier_id, mark, message_id, span_id
from .messages import (
    NAMESPACE,
    ActivityMessage,
    AudioContent,
    ContentPart,
    DataSource,
    DocumentContent,
    FileSource,
    ImageContent,
    Message,
    Source,
    TextContent,
    UrlSource,
    VideoContent,
)
from .sides import DEFERRED, Sides
from .thread import Thread, shaped

_MEDIA: dict[str, tuple[type[ImageContent | AudioContent | VideoContent | DocumentContent], str]] = {
    "image": (ImageContent, "image/png"),
    "audio": (AudioContent, "audio/wav"),
    "video": (VideoContent, "video/mp4"),
    "file": (DocumentContent, "application/octet-stream"),
}
"""The part of each medium, and what it is if nobody said."""


def content_parts(result: ToolReturnPart, *, media: bool) -> str | list[ContentPart]:
    """Text; or parts, if there is more than text and the client takes it (`media`)."""
    contents = result.contents
    if contents is None:
        return result.content_as_text()
    words = [content.text for content in contents if isinstance(content, Text)]
    if len(words) == len(contents) or not media:
        return "\n".join(words)
    return [_part(content) for content in contents]


def _part(content: UserContent) -> ContentPart:
    if isinstance(content, Text):
        return TextContent(text=content.text)
    made, kind = _MEDIA[content.kind]
    source: Source
    file_id: str | None = getattr(content, "file_id", None)
    if content.url is not None:
        source = UrlSource(value=content.url, mime_type=content.media_type)
    elif file_id is not None and content.data is None:
        source = FileSource(value=file_id, mime_type=content.media_type)
    else:
        source = DataSource(value=content.data or "", mime_type=content.media_type or kind)
    return made(source=source)


Frame = Callable[[e.AGUIEvent], bytes]
"""How an event becomes bytes."""
Deltas = Callable[[e.AGUIEvent], Callable[[str], bytes]]
"""How the deltas of a message become bytes, given one of them: text by text."""

QUEUED = b": queued\n\n"
APART = "\n\n"

_json = msgspec.json.Encoder().encode


class Encoder:
    """One run's stream: `start` and `feed` give bytes to send.

    `reasoning`: whether any of it is told. `seals`: whether the reader takes what is sealed. `chunks`: the model's
    messages and calls as chunks. `timestamps`: whether each event after the first has the time of its batch. `model`:
    whose usage it is, as it was asked for. `snapshot`: whether the run ends with all messages, of which `history` are
    those before it; None leaves it to the dialect. `ahead`: whether what is sealed of a whole batch may be told with
    its beginning; without, how events are batched makes no difference. `frame`: what writes events, if not
    server-sent events; `deltas`: what writes those that come by the thousand, to the same bytes.
    """

    def __init__(
        self,
        thread_id: str,
        run_id: str,
        dialect: Dialect | DialectName = "1.0",
        *,
        parent_run_id: str | None = None,
        reasoning: bool = True,
        seals: bool = True,
        chunks: bool = False,
        timestamps: bool = False,
        model: str | None = None,
        history: Sequence[Message] = (),
        snapshot: bool | None = None,
        ahead: bool = True,
        frame: Frame | None = None,
        deltas: Deltas | None = None,
    ) -> None:
        self.dialect = dialect if isinstance(dialect, Dialect) else DIALECTS[dialect]
        self.ended = False
        self._thread_id, self._run_id, self._parent_run_id = (
            replace_surrogates(thread_id),
            replace_surrogates(run_id),
            parent_run_id,
        )
        self._reasoning = reasoning
        self._seals = seals and reasoning and self.dialect.seals != "none"
        self._seals_ahead = ahead and self._seals and self.dialect.seals == "span"
        self._chunks = chunks
        self._timestamps = timestamps
        self._model = model
        self._frame = frame
        self._deltas = deltas
        self._tail = b"}\n\n"
        self._now: int | None = None
        self._out: list[bytes] = []
        wanted = self.dialect.snapshot if snapshot is None else snapshot
        self._thread = Thread(history) if wanted else None
        self._sides = Sides(self.dialect, reasoning=reasoning, history=history)
        self._held: list[e.AGUIEvent] = []
        """What an agent said beside, and has to wait until no message is open."""
        self._item: _Item | None = None
        self._message: _Open | None = None
        """The open message or call."""
        self._part: _Open | None = None
        """The same, while the open part writes to it."""
        self._begun: ThinkingPart | TextPart | RefusalPart | None = None
        """A part that has begun, and said nothing yet."""
        self._holder: str | None = None
        """The message that holds the next call; None: a new one."""
        self._calls: dict[str, None] = {}
        """The calls without a result."""
        self._ids = 0
        self._known: dict[int, str] = {}
        """Seals that are known before their item, by the place of its start in the batch."""

    def start(self, *, queued: bool = False) -> bytes:
        """What opens the stream; `queued` when the model has yet to become free, which is said in a comment."""
        started = e.RunStartedEvent(
            thread_id=self._thread_id,
            run_id=self._run_id,
            protocol_version=self.dialect.protocol_version,
            parent_run_id=self._parent_run_id,
        )
        self._write(started)
        opening = self._take()
        return opening + QUEUED if queued and self._frame is None else opening

    def feed(self, events: list[Event], now: int) -> bytes:
        """What these events are on the wire (maybe nothing). `now` is in milliseconds."""
        if self._timestamps:
            self._now = now
            self._tail = b',"timestamp":%d}\n\n' % self._now
        if self._seals_ahead and len(events) > 1:
            self._known = seals_ahead(events)
        for place, event in enumerate(events):
            if type(event) is PartDeltaEvent:
                self._delta(event)
            elif not self.ended:
                handler = HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event, place)
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """What encodes the text of one more delta like the last, if UTF-8 can hold it; None if an event is needed."""
        is_plain = self._part is not None and not self._part.before and self._frame is None and not self._timestamps
        return self._encode_text if is_plain else None

    def _encode_text(self, text: str, now: int) -> bytes:
        assert self._part is not None
        return self._part.head + _json(text) + self._tail

    @property
    def messages(self) -> list[Message]:
        """The thread's messages, if a snapshot was wanted."""
        if self._thread is None:
            return []
        messages = shaped(self._thread.messages, self.dialect, reasoning=self._reasoning)
        return [one for one in messages if not (self._thread.patched and isinstance(one, ActivityMessage))]

    # --- deltas ------------------------------------------------------------------------------------------------

    def _delta(self, event: PartDeltaEvent) -> None:
        delta, open_ = event.delta, self._part
        text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
        if not text:
            return
        if open_ is None:
            if self._begun is None or self._item is None:
                return
            open_ = self._open_text(self._item, self._begun)
        if self._frame is not None:
            before, open_.before = open_.before, ""
            if self._deltas is None or self._now is not None:
                self._tell(open_.more(before + text))
                return
            if open_.framed is None:
                open_.framed = self._deltas(open_.told)
            self._out.append(open_.framed(before + text))
            return
        try:
            data = _json(text)
        except UnicodeEncodeError:
            data = _json(replace_surrogates(text))
        if open_.before:
            data, open_.before = _json(open_.before)[:-1] + data[1:], ""
        self._out.append(open_.head + data + self._tail)

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent, place: int) -> None:
        item = self._item = _Item(event.id or self._fresh_id(), event.kind)
        if event.kind == "reasoning" and self._reasoning:
            item.sealed = self._known.pop(place, None)
            self._span(item.id, item.sealed)
            item.spans = True

    def _item_end(self, event: ItemEndEvent, place: int) -> None:
        item, self._item = self._item, None
        if item is None:
            return
        seal = event.seal if self._seals else None
        if item.spans:
            self._reasoning_end(item, event, seal)
            return
        self._close(mark(**item.end) if item.end else None)
        if seal is None:
            return
        if item.call_id is not None and self.dialect.seals == "event":
            self._value(item.call_id, seal, of_call=True)
        elif item.messages and self.dialect.seals == "event":
            self._value(item.id, seal)
        else:
            self._carrier(carrier_id(item.id), seal)

    def _reasoning_end(self, item: _Item, event: ItemEndEvent, seal: str | None) -> None:
        form = self._message.form if self._message is not None else None
        cut = event.status == "incomplete" and self.dialect.marks
        self._close(mark(form=form, complete=False) if cut and form is not None else None)
        if seal is not None and self.dialect.seals == "event":
            if not item.messages:
                self._anchor(item.id)
            self._value(item.id, seal)
        self._span_end(item.id)
        if seal is not None and self.dialect.seals == "span":
            if item.sealed is None:
                self._span(item.id, seal)
                self._span_end(item.id)
            self._remember_sealed(item.id, seal, known=bool(item.messages))

    def _carrier(self, id: str, seal: str) -> None:
        """A reasoning item made to hold what is sealed of something that this protocol, or its dialect, cannot say."""
        on_start = self.dialect.seals == "span"
        self._span(id, seal if on_start else None)
        if not on_start:
            self._anchor(id)
            self._value(id, seal)
        self._span_end(id)
        if on_start:
            self._remember_sealed(id, seal, known=False)

    def _anchor(self, id: str) -> None:
        """An empty message, for a value to be found on."""
        self._begin_thought(id, "redacted")
        self._close(None)

    def _remember_sealed(self, id: str, seal: str, *, known: bool) -> None:
        """What is sealed belongs to a message of the thread, in the proposal too, where only a span was told."""
        if self._thread is None:
            return
        if not known:
            self._thread.reasoning(id, "", None)
            self._holder = None
        self._thread.value(id, seal)

    def _span(self, id: str, seal: str | None) -> None:
        if self.dialect.reasoning == "thinking":
            self._write(e.ThinkingStartEvent())
        else:
            self._write(e.ReasoningStartEvent(message_id=span_id(id), encrypted_content=seal))

    def _span_end(self, id: str) -> None:
        if self.dialect.reasoning == "thinking":
            self._write(e.ThinkingEndEvent())
        else:
            self._write(e.ReasoningEndEvent(message_id=span_id(id)))

    def _value(self, id: str, seal: str, *, of_call: bool = False) -> None:
        subtype = "tool-call" if of_call else "message"
        self._write(e.ReasoningEncryptedValueEvent(subtype=subtype, entity_id=id, encrypted_value=seal))  # type: ignore[arg-type]
        if self._thread is not None:
            self._thread.value(id, seal, of_call=of_call)

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent, place: int) -> None:
        item, part = self._item, event.part
        if item is None:
            return
        if isinstance(part, ThinkingPart | TextPart | RefusalPart):
            # It may turn out to be a signature and nothing to read: its message opens with its first text.
            self._begun = part if item.spans or not isinstance(part, ThinkingPart) else None
        elif isinstance(part, ToolCallPart):
            part = json_safe(part)
            self._holder = self._holder or item.id
            item.call_id = part.tool_call_id
            self._calls[part.tool_call_id] = None
            start = e.ToolCallStartEvent(
                tool_call_id=part.tool_call_id, tool_call_name=part.tool_name, parent_message_id=self._holder
            )
            self._write(start)
            more = e.ToolCallArgsEvent(tool_call_id=part.tool_call_id, delta="")
            self._part = self._message = _Open(more, e.ToolCallEndEvent(tool_call_id=part.tool_call_id), self._chunks)

    def _open_text(self, item: _Item, part: ThinkingPart | TextPart | RefusalPart) -> _Open:
        """The message that a part writes to: the open one, if it goes on with that."""
        form = part.form if isinstance(part, ThinkingPart) else part.part_kind
        open_ = self._message
        self._begun = None
        if open_ is not None and isinstance(part, ThinkingPart) and open_.form != form:
            self._close(None)
            open_ = None
        if open_ is not None:
            # The parts of a message are one text; thoughts, and words of refusal, are apart from it.
            open_.divider = APART if isinstance(part, ThinkingPart) or open_.form != form else ""
            open_.before = open_.divider
            open_.form = form
        elif isinstance(part, ThinkingPart):
            item.messages += 1
            open_ = self._begin_thought(message_id(item.id, item.messages), form)
        else:
            item.messages = 1
            self._holder = item.id
            marked = mark(refusal=True) if isinstance(part, RefusalPart) else None
            self._write(e.TextMessageStartEvent(message_id=item.id, role="assistant", metadata=marked))
            if self._thread is not None:
                self._thread.text(item.id, "", marked)
            more = e.TextMessageContentEvent(message_id=item.id, delta="")
            open_ = _Open(more, e.TextMessageEndEvent(message_id=item.id), self._chunks, form, marked)
        self._part = self._message = open_
        return open_

    def _begin_thought(self, id: str, form: str) -> _Open:
        more: e.AGUIEvent
        if self.dialect.reasoning == "thinking":
            self._write(e.ThinkingTextMessageStartEvent())
            more, end = e.ThinkingTextMessageContentEvent(delta=""), e.ThinkingTextMessageEndEvent()
            self._message = _Open(more, end, self._chunks, form)
            return self._message
        self._holder = None
        marked = mark(form=form) if self.dialect.marks else None
        self._write(e.ReasoningMessageStartEvent(message_id=id, role=self.dialect.role, metadata=marked))
        if self._thread is not None:
            self._thread.reasoning(id, "", marked)
        more = e.ReasoningMessageContentEvent(message_id=id, delta="")
        self._message = _Open(more, e.ReasoningMessageEndEvent(message_id=id), self._chunks, form, marked)
        return self._message

    def _part_end(self, event: PartEndEvent, place: int) -> None:
        item, open_, part = self._item, self._part, event.part
        self._part = self._begun = None
        if item is None or open_ is None:
            return
        if isinstance(part, ToolCallPart):
            part = json_safe(part)
            arguments = part.args_as_text()
            if not arguments and part.complete:
                # Clients parse the arguments: a call without any has an empty object.
                arguments = "{}"
                self._write(open_.more(arguments))
            if self._thread is not None and self._holder is not None:
                self._thread.call(self._holder, part.tool_call_id, part.tool_name, arguments)
            self._close(None)
        elif isinstance(part, ThinkingPart | TextPart | RefusalPart):
            if isinstance(part, TextPart) and part.annotations:
                item.end = {**item.end, "annotations": [*item.end.get("annotations", []), *part.annotations]}
            if self._thread is not None and part.content:
                open_.said.append(open_.divider + part.content)

    def _close(self, metadata: dict[str, Any] | None) -> None:
        """End the open message or call."""
        open_, self._part, self._begun = self._message, None, None
        if open_ is None:
            return
        self._write(replace(open_.end, metadata=metadata) if metadata else open_.end)
        self._message = None
        if self._thread is not None and isinstance(open_.end, e.TextMessageEndEvent):
            self._thread.text(open_.end.message_id, open_.text, {**(open_.metadata or {}), **(metadata or {})} or None)
        elif self._thread is not None and isinstance(open_.end, e.ReasoningMessageEndEvent):
            both = {**(open_.metadata or {}), **(metadata or {})}
            self._thread.reasoning(open_.end.message_id, open_.text, both or None)
        held, self._held = self._held, []
        for event in held:
            self._say(event)

    # --- the run -----------------------------------------------------------------------------------------------

    def _response_start(self, event: ResponseStartEvent, place: int) -> None:
        self._holder = None

    def _tool_result(self, event: FunctionToolResultEvent, place: int) -> None:
        result = event.result
        if result.tool_name is None:
            return  # a word to the model about its answer, not a call's result
        result = json_safe(result)
        media = self.dialect.media_results
        content = content_parts(result, media=media) if isinstance(result, ToolReturnPart) else result.content
        id = event.id or self._fresh_id()
        self._calls.pop(result.tool_call_id, None)
        self._write(e.ToolCallResultEvent(message_id=id, tool_call_id=result.tool_call_id, content=content))
        if self._thread is not None:
            self._thread.result(id, result.tool_call_id, content)

    def _side(self, event: SideEvent, place: int) -> None:
        if event.namespace != NAMESPACE and (event.namespace, event.name) != DEFERRED:
            return
        for told in self._sides.feed(event):
            if isinstance(told, e.ActivitySnapshotEvent | e.TextMessageStartEvent | e.ReasoningMessageStartEvent):
                self._holder = None  # clients look for it at the end of their list
            elif isinstance(told, e.ToolCallResultEvent):
                self._calls.pop(told.tool_call_id, None)
            self._beside(told)

    def _run_end(self, event: RunEndEvent, place: int) -> None:
        failed = event.status == "failed"
        item, self._item = self._item, None
        self._close(None)
        if item is not None and item.spans:
            self._span_end(item.id)
        for end in self._sides.closing(failed=failed):
            self._say(end)
        usage = usage_of(event.usage, self._model)
        if failed:
            error = json_safe(event.error or ErrorInfo("server_error", "the run failed without saying why"))
            self._write(e.RunErrorEvent(message=error.full_message, code=error.code or error.kind, usage=usage))
        else:
            if self._thread is not None:
                self._write(e.MessagesSnapshotEvent(messages=self.messages))
            outcome, marked = outcome_of(event, self.dialect, list(self._calls), self._sides.interrupts)
            finished = e.RunFinishedEvent(
                thread_id=self._thread_id,
                run_id=self._run_id,
                result=self._sides.result,
                outcome=outcome,
                usage=usage,
                metadata=marked,
            )
            self._write(finished)
        self.ended = True

    # --- writing -----------------------------------------------------------------------------------------------

    def _fresh_id(self) -> str:
        """An id for an item that its run gave none."""
        self._ids += 1
        return f"{self._run_id}_{self._ids}"

    def _write(self, event: e.AGUIEvent) -> None:
        """What the run says; it ends what an agent has open in chunks."""
        for end in self._sides.before(event):
            self._beside(end)
        self._tell(event)

    def _tell(self, event: e.AGUIEvent) -> None:
        for told in chunked(event, self.dialect) if self._chunks else (event,):
            self._put(told)

    def _beside(self, event: e.AGUIEvent) -> None:
        """What an agent says: between chunks it would end what is open, and a snapshot would be without that."""
        if self._message is not None and (self._chunks or self._held or isinstance(event, e.MessagesSnapshotEvent)):
            self._held.append(event)
        else:
            self._say(event)

    def _say(self, event: e.AGUIEvent) -> None:
        if self._thread is not None:
            self._thread.apply(event)
        self._put(event)

    def _put(self, event: e.AGUIEvent) -> None:
        if self._now is not None and event.timestamp is None:
            event = replace(event, timestamp=self._now)
        self._out.append(sse_event(e.encode_event(event)) if self._frame is None else self._frame(event))

    def _take(self) -> bytes:
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)


class _Item:
    """The open item."""

    __slots__ = ("call_id", "end", "id", "kind", "messages", "sealed", "spans")

    def __init__(self, id: str, kind: str) -> None:
        self.id = replace_surrogates(id)
        self.kind = kind
        self.spans = False
        """Whether it is told as a span of reasoning."""
        self.sealed: str | None = None
        """Its seal, if the span has told it already."""
        self.messages = 0
        self.call_id: str | None = None
        self.end: dict[str, Any] = {}
        """What its message's end tells."""


class _Open:
    """An open message or call: how it ends, and the template of its deltas."""

    __slots__ = ("_more", "before", "divider", "end", "form", "framed", "head", "metadata", "said", "told")

    def __init__(
        self,
        more: e.AGUIEvent,
        end: e.AGUIEvent,
        chunks: bool,
        form: str = "",
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self._more = more
        self.end = end
        self.form = form
        self.metadata = metadata
        self.before = ""
        """What comes before the next delta."""
        self.divider = ""
        """What stands between the open part of the message and the part before it."""
        self.said: list[str] = []
        self.told = replace(more, delta="x")
        """A delta, as it is told."""
        if chunks and not isinstance(more, e.ThinkingTextMessageContentEvent):
            self.told = chunked(self.told, DIALECTS["1.0"])[0]
        # {"type":…,"messageId":…,"delta":"x"}, up to the delta.
        self.head = b"data: " + e.encode_event(self.told)[: -len(b'"x"}')]
        self.framed: Callable[[str], bytes] | None = None
        """What writes the frames of its deltas, once there was one."""

    def more(self, text: str) -> e.AGUIEvent:
        return replace(self._more, delta=text)

    @property
    def text(self) -> str:
        return "".join(self.said)


HANDLERS: dict[type[Any], Callable[[Encoder, Any, int], None]] = {
    ResponseStartEvent: Encoder._response_start,
    ItemStartEvent: Encoder._item_start,
    ItemEndEvent: Encoder._item_end,
    PartStartEvent: Encoder._part_start,
    PartEndEvent: Encoder._part_end,
    FunctionToolResultEvent: Encoder._tool_result,
    SideEvent: Encoder._side,
    RunEndEvent: Encoder._run_end,
}
"""What handles each kind of event but deltas, which `feed` handles itself. An event that is not here is not shown."""
