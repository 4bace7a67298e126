"""Events to the AI SDK's UI message stream, version 1: what `useChat` makes its message of.

    start
      start-step                                              one step for each turn of the model
        reasoning-start / -delta … / -end                     one block for each text of a reasoning item
        text-start / -delta … / -end                          one block for each text of a message
        tool-input-start / -delta … / -available or -error    a call; and where functions are called here:
        tool-output-available or -error                       what came of it
        source-url, file
      finish-step
    finish, or error and finish, or abort; [DONE]

* A reasoning item is told as soon as it begins, with or without text; its further texts (summaries) are blocks of their
  own, `ID:2`, `ID:3` …. Words are told with the first of them.
* A block ends when its item does, or when the next one begins: what is sealed is known only at the end, and stands in
  its `providerMetadata` (see `marks`). So does a call's, on `tool-input-available`. A message that holds nothing but a
  seal is an empty text. What this protocol has no block for (a provider's own tools, opaque items) has its seal in a
  `data-pellucid` part in its place, which pages leave alone and send back.
* A provider's own tools are `providerExecuted`. All tools are `dynamic`: a page knows none of them by type.
* A call whose arguments are not JSON, or not whole, is `tool-input-error`. A result is told only of a call that was.
* Citations are sources, each address once, behind the text. A picture that was made while thinking is not shown.
* `messageMetadata` has `model` at the start and `usage`, where its reader may see it, at the end.
* Whatever is open is closed before an error; after it come only the end of its step and `finish`.

An encoder is pure, and all that one batch gives is one piece of bytes. The events that come by the thousand are written
from templates, everything else from the types.

What a call, a run's end and its tokens are in this protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

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
)
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    ModelResponsePart,
    RefusalPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)
from ...unicode import json_safe, replace_surrogates
from .. import text_metadata
from . import chunks as c
from .chunks import OURS, FinishReason

CUT = "The model was cut off in the middle of this call."
_NOT_JSON = "The model wrote arguments that are not JSON."

_MOST = 2**53 - 1
"""What JavaScript can hold."""

_USAGE = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "output_reasoning_tokens",
    "cachedInputTokens": "cache_read_tokens",
}
"""The AI SDK's names, and ours."""


def input_of(part: ToolCallPart | BuiltinToolCallPart) -> tuple[Any, str | None]:
    """The arguments as JSON, as the model wrote them; or their text, and what is wrong with it."""
    try:
        text = replace_surrogates(part.args_as_json())
    except (TypeError, ValueError, RecursionError):
        return "", _NOT_JSON
    if not part.complete:
        return text if part.args else "", CUT
    try:
        # On one line, and nothing else changed: numbers stay as precise as they are.
        msgspec.json.decode(text)
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1)), None
    except (msgspec.DecodeError, RecursionError):
        return text, _NOT_JSON


def finish_reason(end: RunEndEvent, *, calls: bool) -> FinishReason:
    """`calls`: whether there are some that nobody answered."""
    match end.status, end.incomplete_reason:
        case "failed", _:
            return "error"
        case "incomplete", "content_filter":
            return "content-filter"
        case "incomplete", "max_tool_calls":
            return "other"
        case "incomplete", _:
            return "length"
        case _:
            return "tool-calls" if calls else "stop"


def usage_of(usage: Usage) -> dict[str, int]:
    """The numbers that are known; none, if its reader may not see them."""
    known = {name: getattr(usage, ours) for name, ours in _USAGE.items()}
    return {name: number for name, number in known.items() if number is not None and 0 <= number <= _MOST}


DONE = b"data: [DONE]\n\n"
QUEUED = b": queued\n\n"

_json = msgspec.json.Encoder().encode


class Encoder:
    """One message: `start` and `feed` give bytes to send. `seals`: whether the reader takes what is sealed.

    `message_id` is the one that the client shall know the message by; where it goes on with a message of its own, that
    message's.
    """

    def __init__(self, message_id: str, model: str, *, seals: bool = True) -> None:
        self.ended = False
        self._message_id, self._model = replace_surrogates(message_id), replace_surrogates(model)
        self._seals = seals
        self._out: list[bytes] = []
        self._step = False
        self._item: _Item | None = None
        self._block: _Block | None = None
        """The open block."""
        self._begun: ThinkingPart | TextPart | RefusalPart | None = None
        """A part that has begun, and said nothing yet."""
        self._head: bytes | None = None
        """The beginning of every delta of the open part, once it has a place."""
        self._calls: dict[str, str] = {}
        """The calls that were told, and by which ids."""
        self._told_ids: set[str] = set()
        self._unanswered: set[str] = set()
        self._sources: set[str] = set()
        self._ids = 0

    def start(self, *, queued: bool = False) -> bytes:
        """What opens the stream; `queued` when the model has yet to become free, which is said in a comment."""
        self._write(c.StartChunk(self._message_id, {"model": self._model}))
        opening = self._take()
        return opening + QUEUED if queued else opening

    def feed(self, events: list[Event], now: int) -> bytes:
        """What these events are on the wire (maybe nothing). This protocol tells no time."""
        for event in events:
            if type(event) is PartDeltaEvent:
                self._delta(event)
            elif not self.ended:
                handler = HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event)
        return self._take()

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """What encodes the text of one more delta like the last, if UTF-8 can hold it; None if an event is needed."""
        return self._encode_text if self._head is not None else None

    def _encode_text(self, text: str, now: int) -> bytes:
        assert self._head is not None
        return self._head + _json(text) + b"}\n\n"

    # --- deltas ------------------------------------------------------------------------------------------------

    def _delta(self, event: PartDeltaEvent) -> None:
        delta = event.delta
        text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
        if not text:
            return
        head = self._head
        if head is None:
            if self._begun is None:
                return
            head = self._open(self._begun)
        try:
            data = _json(text)
        except UnicodeEncodeError:
            data = _json(replace_surrogates(text))
        self._out.append(head + data + b"}\n\n")

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent) -> None:
        self._item = item = _Item(replace_surrogates(event.id) if event.id else self._fresh_id(), event.kind)
        if event.kind == "reasoning":
            self._begin("reasoning", item, {})

    def _item_end(self, event: ItemEndEvent) -> None:
        item, self._item = self._item, None
        self._begun = self._head = None
        if item is None:
            return
        seal = event.seal if event.seal is not None else item.token
        seal = replace_surrogates(seal) if seal is not None and self._seals else None
        if item.kind == "message" and seal is not None and self._block is None:
            self._begin("text", item, {})
        if self._block is not None:
            cut = {"complete": False} if event.status == "incomplete" else {}
            self._end_block(item, cut if seal is None else {**cut, "sealed": seal})
            seal = None
        self._release(item, seal)

    def _release(self, item: _Item, seal: str | None) -> None:
        """What waited for the item's end, with its seal where it has a place for it."""
        held, item.held = item.held, []
        bearers = [chunk for chunk in held if item.bears(chunk)]
        if seal is not None and bearers:
            _mark(bearers[-1], item=item.id, sealed=seal)
            seal = None
        for chunk in held:
            if seal is not None and isinstance(chunk, _INPUTS):
                _mark(chunk, item=item.id)
            self._write(chunk)
        if seal is not None:
            self._write(c.SealChunk(item.id, {"item": item.id, "sealed": seal}))

    # --- blocks ------------------------------------------------------------------------------------------------

    def _open(self, part: ThinkingPart | TextPart | RefusalPart) -> bytes:
        """The head of the deltas of the block that this part is written to."""
        item, block = self._item, self._block
        assert item is not None
        kind = "reasoning" if isinstance(part, ThinkingPart) else "text"
        marks: dict[str, Any] = {"refusal": True} if isinstance(part, RefusalPart) else {}
        if isinstance(part, ThinkingPart) and part.form != "raw":
            marks["form"] = part.form
        if block is not None and not block.used and block.kind == kind:
            block.marks = marks
        else:
            if block is not None:
                self._end_block(item, {})
            block = self._begin(kind, item, marks)
        block.used = True
        self._begun = None
        self._head = block.head
        return block.head

    def _begin(self, kind: str, item: _Item, marks: dict[str, Any]) -> _Block:
        self._need_step()
        item.blocks += 1
        id = item.id if item.blocks == 1 else f"{item.id}:{item.blocks}"
        block = self._block = _Block(kind, id, marks)
        if kind == "reasoning":
            self._write(c.ReasoningStartChunk(id, {OURS: {"item": item.id, **marks}}))
        else:
            self._write(c.TextStartChunk(id, {OURS: marks} if marks else UNSET))
        return block

    def _end_block(self, item: _Item, more: dict[str, Any]) -> None:
        block, self._block = self._block, None
        assert block is not None
        marks = {**block.marks, **more}
        if block.kind == "reasoning":
            self._write(c.ReasoningEndChunk(block.id, {OURS: {"item": item.id, **marks}}))
        else:
            if "sealed" in marks:
                marks = {"item": item.id, **marks}
            self._write(c.TextEndChunk(block.id, {OURS: marks} if marks else UNSET))

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent) -> None:
        part, self._head = event.part, None
        if self._item is None:
            return
        if isinstance(part, ThinkingPart | TextPart | RefusalPart):
            self._begun = part
        elif isinstance(part, ToolCallPart | BuiltinToolCallPart):
            self._call_start(part, self._item)

    def _part_end(self, event: PartEndEvent) -> None:
        self._begun = self._head = None
        if self._item is not None:
            finish = _ENDS.get(type(event.part))
            if finish is not None:
                finish(self, event.part, self._item)

    def _text_end(self, part: TextPart, item: _Item) -> None:
        for one in text_metadata.citations(part.annotations or []):
            if one.url not in self._sources:
                self._sources.add(one.url)
                source = f"source_{len(self._sources)}_{self._message_id}"
                item.held.append(c.SourceUrlChunk(source, one.url, one.title or UNSET))

    def _sealed_end(self, part: SealedPart, item: _Item) -> None:
        item.token = part.token or None

    def _file_end(self, part: FilePart, item: _Item) -> None:
        if not part.thought:
            self._need_step()
            media_type = replace_surrogates(part.media_type)
            item.held.append(c.FileChunk(f"data:{media_type};base64,{replace_surrogates(part.data)}", media_type))

    def _call_start(self, part: ToolCallPart | BuiltinToolCallPart, item: _Item) -> None:
        id = replace_surrogates(part.tool_call_id)
        if not id or id in self._told_ids:
            # Two calls under one id would be one to the client.
            id = item.id if item.id not in self._told_ids else self._fresh_id()
        item.call = id
        self._told_ids.add(id)
        self._calls[part.tool_call_id] = id
        self._need_step()
        executed = True if isinstance(part, BuiltinToolCallPart) else UNSET
        self._write(c.ToolInputStartChunk(id, replace_surrogates(part.tool_name), executed, True))
        self._head = b'data: {"type":"tool-input-delta","toolCallId":%b,"inputTextDelta":' % _json(id)

    def _call_end(self, part: ToolCallPart | BuiltinToolCallPart, item: _Item) -> None:
        executed = True if isinstance(part, BuiltinToolCallPart) else UNSET
        if isinstance(part, ToolCallPart):
            self._unanswered.add(item.call)
        given, wrong = input_of(part)
        chunk: c.Chunk
        if wrong is None:
            chunk = c.ToolInputAvailableChunk(
                item.call, replace_surrogates(part.tool_name), given, executed, dynamic=True
            )
        else:
            chunk = c.ToolInputErrorChunk(
                item.call, replace_surrogates(part.tool_name), given, wrong, executed, dynamic=True
            )
            if wrong == CUT:
                _mark(chunk, complete=False)
        item.held.append(chunk)

    def _return_end(self, part: BuiltinToolReturnPart, item: _Item) -> None:
        id = self._called(part.tool_call_id, part.tool_name, item.held, executed=True)
        item.held.append(c.ToolOutputAvailableChunk(id, json_safe(part).content, True, True))

    def _called(self, given: str, name: str, out: list[c.Chunk], *, executed: bool) -> str:
        """The id by which the client knows the call; it is told of one that it does not know."""
        if given in self._calls:
            return self._calls[given]
        self._need_step()
        id = replace_surrogates(given)
        if not id or id in self._told_ids:
            id = self._fresh_id()
        self._told_ids.add(id)
        self._calls[given] = id
        out.append(
            c.ToolInputAvailableChunk(id, replace_surrogates(name), {}, True if executed else UNSET, dynamic=True),
        )
        return id

    # --- the run -----------------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent) -> None:
        self._end_step()
        self._need_step()

    def _need_step(self) -> None:
        if not self._step:
            self._step = True
            self._write(c.StartStepChunk())

    def _end_step(self) -> None:
        if self._step:
            self._step = False
            self._write(c.FinishStepChunk())

    def _tool_result(self, event: FunctionToolResultEvent) -> None:
        result = event.result
        if result.tool_name is None:
            return  # a word to the model about its answer, not a call's result
        result = json_safe(result)
        told: list[c.Chunk] = []
        id = self._called(event.result.tool_call_id, result.tool_name or "", told, executed=False)
        self._unanswered.discard(id)
        if isinstance(result, ToolReturnPart) and result.outcome == "success":
            told.append(c.ToolOutputAvailableChunk(id, result.content, dynamic=True))
        else:
            text = result.content_as_text() if isinstance(result, ToolReturnPart) else result.content
            told.append(c.ToolOutputErrorChunk(id, text, dynamic=True))
        for chunk in told:
            self._write(chunk)

    def _run_end(self, event: RunEndEvent) -> None:
        self.ended = True
        item, self._item = self._item, None
        self._begun = self._head = None
        if item is not None:
            if self._block is not None:
                self._end_block(item, {"complete": False})
            self._release(item, None)
        if event.status == "failed":
            error = event.error or ErrorInfo("server_error", "the run failed without saying why")
            self._write(c.ErrorChunk(replace_surrogates(error.full_message)))
        self._end_step()
        if event.status == "cancelled":
            self._write(c.AbortChunk())
        else:
            usage = usage_of(event.usage)
            reason = finish_reason(event, calls=bool(self._unanswered))
            self._write(c.FinishChunk(reason, {"usage": usage} if usage else UNSET))
        self._out.append(DONE)

    # --- writing -----------------------------------------------------------------------------------------------

    def _fresh_id(self) -> str:
        """An id for what its run gave none."""
        self._ids += 1
        return f"{self._message_id}_{self._ids}"

    def _write(self, chunk: c.Chunk) -> None:
        self._out.append(b"data: " + _json(chunk) + b"\n\n")

    def _take(self) -> bytes:
        out = self._out
        if not out:
            return b""
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)


_INPUTS = (c.ToolInputAvailableChunk, c.ToolInputErrorChunk)


class _Item:
    """The open item."""

    __slots__ = ("blocks", "call", "held", "id", "kind", "token")

    def __init__(self, id: str, kind: str) -> None:
        self.id = id
        self.kind = kind
        self.blocks = 0
        """How many it has had."""
        self.call = ""
        """By which id its call was told."""
        self.token: str | None = None
        """A token of ours that its model's run passed on."""
        self.held: list[c.Chunk] = []
        """What waits for its end."""

    def bears(self, chunk: c.Chunk) -> bool:
        """Whether all that is sealed of the item may ride on it."""
        return isinstance(chunk, c.FileChunk if self.kind == "file" else _INPUTS) and self.kind in ("file", "tool_call")


class _Block:
    """The open block: the template of its deltas, and what its end is to say."""

    __slots__ = ("head", "id", "kind", "marks", "used")

    def __init__(self, kind: str, id: str, marks: dict[str, Any]) -> None:
        self.kind = kind
        self.id = id
        self.marks = marks
        self.used = False
        self.head = b'data: {"type":"%b-delta","id":%b,"delta":' % (kind.encode(), _json(id))


def _mark(chunk: Any, **values: Any) -> None:
    given = {} if chunk.provider_metadata is UNSET else chunk.provider_metadata[OURS]
    chunk.provider_metadata = {OURS: {**given, **values}}


_ENDS: dict[type[ModelResponsePart], Callable[[Encoder, Any, _Item], None]] = {
    TextPart: Encoder._text_end,
    ToolCallPart: Encoder._call_end,
    BuiltinToolCallPart: Encoder._call_end,
    BuiltinToolReturnPart: Encoder._return_end,
    FilePart: Encoder._file_end,
    SealedPart: Encoder._sealed_end,
}

HANDLERS: dict[type[Any], Callable[[Encoder, Any], None]] = {
    ResponseStartEvent: Encoder._turn_start,
    ItemStartEvent: Encoder._item_start,
    ItemEndEvent: Encoder._item_end,
    PartStartEvent: Encoder._part_start,
    PartEndEvent: Encoder._part_end,
    FunctionToolResultEvent: Encoder._tool_result,
    RunEndEvent: Encoder._run_end,
}
"""What handles each kind of event but deltas, which `feed` handles itself. An event that is not here is not shown."""
