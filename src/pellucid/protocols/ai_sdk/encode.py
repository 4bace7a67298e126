"""Encode the events of a run as the AI SDK's UI message stream, version 1, which `useChat` reads.

    start
      start-step                                              one step for each turn of the model
        reasoning-start / -delta … / -end                     one block for each text of a reasoning item
        text-start / -delta … / -end                          one block for each text of a message
        tool-input-start / -delta … / -available or -error    a call
        tool-output-available or -error                       its result, if the function is called here
        source-url, file
      finish-step
    finish, or error and finish, or abort; [DONE]

* A reasoning block starts when its item begins, with or without text. Further texts of the item (summaries) are blocks
  of their own, `ID:2`, `ID:3` …. A text block starts with its first text.
* A block ends when its item ends or the next block begins. The sealed token is known only at the end of the item. It is
  in the `providerMetadata` of the block's end (see `chunks`), and that of a call on `tool-input-available`. A message
  with a token and no text is an empty text block. An item without a block in this protocol (a provider's own tool, an
  opaque item) has its token in a `data-pellucid` part, which pages ignore and send back.
* A provider's own tools are `providerExecuted`. All tools are `dynamic`, because a page does not know their types.
* A call whose arguments are not valid or not complete JSON is `tool-input-error`. A result without a call in the stream
  gets a call before it.
* Citations are sources after the text, each address once. A picture that was made while thinking is not shown.
* `messageMetadata` has `model` at the start, and at the end `usage`, if the viewer may see it, and `deployment`, if the
  model has several.
* Everything that is open is closed before an error. Only the end of the step and `finish` follow an error.

An encoder is pure, and each batch becomes one piece of bytes. Deltas are written from templates, all other chunks from
their types.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from ...accumulator import TEXT_FIELD
from ...events import (
    AnsweringDeployment,
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
)
from ...unicode import json_safe, replace_surrogates
from .. import text_metadata
from ..encoding import DONE, QUEUED, BatchEncoder, EventHandlers, safe_counts, to_json
from . import chunks as c
from .chunks import METADATA_KEY, FinishReason

INCOMPLETE_CALL = "The model was cut off in the middle of this call."
_NOT_JSON = "The model wrote arguments that are not JSON."

_USAGE_FIELDS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "totalTokens": "total_tokens",
    "reasoningTokens": "output_reasoning_tokens",
    "cachedInputTokens": "cache_read_tokens",
}
"""The AI SDK's names of the numbers of tokens, with the fields of `Usage`."""


def parse_arguments(part: ToolCallPart | BuiltinToolCallPart) -> tuple[Any, str | None]:
    """Return the arguments of a call.

    Returns:
        The JSON as the model wrote it, on one line, and None; or the text of the arguments, and what is wrong with it.
    """
    try:
        text = replace_surrogates(part.args_as_json())
    except (TypeError, ValueError, RecursionError):
        return "", _NOT_JSON
    if not part.complete:
        return text if part.args else "", INCOMPLETE_CALL
    try:
        # Only the white space changes. Decoding and encoding again could change numbers.
        msgspec.json.decode(text)
        return msgspec.Raw(msgspec.json.format(text.encode(), indent=-1)), None
    except (msgspec.DecodeError, RecursionError):
        return text, _NOT_JSON


def finish_reason(end: RunEndEvent, *, has_pending_calls: bool) -> FinishReason:
    """Return the reason why a run finished.

    Args:
        end: The end of the run.
        has_pending_calls: Whether there are calls without a result.
    """
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
            return "tool-calls" if has_pending_calls else "stop"


class Encoder(BatchEncoder):
    """Encodes one message: `start` and `feed` return the bytes to send.

    Args:
        message_id: The id of the message for the client: that of the client's last message if the run continues it.
        model: The public name of the model.
    """

    def __init__(self, message_id: str, model: str) -> None:
        super().__init__()
        self._message_id, self._model = replace_surrogates(message_id), replace_surrogates(model)
        self._in_step = False
        self._deployment: AnsweringDeployment | None = None
        self._open_item: _OpenItem | None = None
        self._open_block: _OpenBlock | None = None
        """The open block."""
        self._pending_part: ThinkingPart | TextPart | RefusalPart | None = None
        """The open part, while it has no text."""
        self._delta_prefix: bytes | None = None
        """The bytes before the text of a delta of the open part; None while the part has no block."""
        self._call_ids: dict[str, str] = {}
        """For the id of each call, the id that the client knows it by."""
        self._used_call_ids: set[str] = set()
        self._pending_calls: set[str] = set()
        self._source_urls: set[str] = set()
        self._generated_ids = 0

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream. A comment says if the request is `queued`."""
        self._write(c.StartChunk(self._message_id, {"model": self._model}))
        output = self.feed([], 0)
        return output + QUEUED if queued else output

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return a function that encodes the text of further deltas; None where the next delta needs an event."""
        return self._encode_text if self._delta_prefix is not None else None

    def _encode_text(self, text: str, now: int) -> bytes:
        assert self._delta_prefix is not None
        return self._delta_prefix + to_json(text) + b"}\n\n"

    # --- deltas ------------------------------------------------------------------------------------------------

    def _delta(self, event: PartDeltaEvent) -> None:
        delta = event.delta
        text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
        if not text:
            return
        prefix = self._delta_prefix
        if prefix is None:
            if self._pending_part is None:
                return
            prefix = self._block_for(self._pending_part)
        try:
            data = to_json(text)
        except UnicodeEncodeError:
            data = to_json(replace_surrogates(text))
        self._out.append(prefix + data + b"}\n\n")

    # --- items -------------------------------------------------------------------------------------------------

    def _item_start(self, event: ItemStartEvent) -> None:
        self._open_item = item = _OpenItem(replace_surrogates(event.id) if event.id else self._fresh_id(), event.kind)
        if event.kind == "reasoning":
            self._start_block("reasoning", item, {})

    def _item_end(self, event: ItemEndEvent) -> None:
        item, self._open_item = self._open_item, None
        self._pending_part = self._delta_prefix = None
        if item is None:
            return
        seal = event.seal if event.seal is not None else item.seal
        seal = replace_surrogates(seal) if seal is not None else None
        if item.kind == "message" and seal is not None and self._open_block is None:
            self._start_block("text", item, {})
        if self._open_block is not None:
            incomplete = {"complete": False} if event.status == "incomplete" else {}
            self._end_block(item, incomplete if seal is None else {**incomplete, "sealed": seal})
            seal = None
        self._write_held(item, seal)

    def _write_held(self, item: _OpenItem, seal: str | None) -> None:
        """Write the chunks that waited for the item's end, with its token on the last that can carry it."""
        chunks, item.held_chunks = item.held_chunks, []
        carriers = [chunk for chunk in chunks if item.carries_seal(chunk)]
        if seal is not None and carriers:
            _add_metadata(carriers[-1], item=item.id, sealed=seal)
            seal = None
        for chunk in chunks:
            if seal is not None and isinstance(chunk, _TOOL_INPUTS):
                _add_metadata(chunk, item=item.id)
            self._write(chunk)
        if seal is not None:
            self._write(c.SealChunk(item.id, {"item": item.id, "sealed": seal}))

    # --- blocks ------------------------------------------------------------------------------------------------

    def _block_for(self, part: ThinkingPart | TextPart | RefusalPart) -> bytes:
        """Return the bytes before the text of a delta for the block of a part; start the block if needed."""
        item, block = self._open_item, self._open_block
        assert item is not None
        kind = "reasoning" if isinstance(part, ThinkingPart) else "text"
        metadata: dict[str, Any] = {"refusal": True} if isinstance(part, RefusalPart) else {}
        if isinstance(part, ThinkingPart) and part.form != "raw":
            metadata["form"] = part.form
        if block is not None and not block.has_text and block.kind == kind:
            block.metadata = metadata
        else:
            if block is not None:
                self._end_block(item, {})
            block = self._start_block(kind, item, metadata)
        block.has_text = True
        self._pending_part = None
        self._delta_prefix = block.delta_prefix
        return block.delta_prefix

    def _start_block(self, kind: str, item: _OpenItem, metadata: dict[str, Any]) -> _OpenBlock:
        self._ensure_step()
        item.block_count += 1
        id = item.id if item.block_count == 1 else f"{item.id}:{item.block_count}"
        block = self._open_block = _OpenBlock(kind, id, metadata)
        if kind == "reasoning":
            self._write(c.ReasoningStartChunk(id, {METADATA_KEY: {"item": item.id, **metadata}}))
        else:
            self._write(c.TextStartChunk(id, {METADATA_KEY: metadata} if metadata else UNSET))
        return block

    def _end_block(self, item: _OpenItem, extra: dict[str, Any]) -> None:
        block, self._open_block = self._open_block, None
        assert block is not None
        metadata = {**block.metadata, **extra}
        if block.kind == "reasoning":
            self._write(c.ReasoningEndChunk(block.id, {METADATA_KEY: {"item": item.id, **metadata}}))
        else:
            if "sealed" in metadata:
                metadata = {"item": item.id, **metadata}
            self._write(c.TextEndChunk(block.id, {METADATA_KEY: metadata} if metadata else UNSET))

    # --- parts -------------------------------------------------------------------------------------------------

    def _part_start(self, event: PartStartEvent) -> None:
        part, self._delta_prefix = event.part, None
        if self._open_item is None:
            return
        if isinstance(part, ThinkingPart | TextPart | RefusalPart):
            self._pending_part = part
        elif isinstance(part, ToolCallPart | BuiltinToolCallPart):
            self._call_start(part, self._open_item)

    def _part_end(self, event: PartEndEvent) -> None:
        self._pending_part = self._delta_prefix = None
        if self._open_item is not None:
            handler = _PART_END_HANDLERS.get(type(event.part))
            if handler is not None:
                handler(self, event.part, self._open_item)

    def _text_end(self, part: TextPart, item: _OpenItem) -> None:
        for one in text_metadata.citations(part.annotations or []):
            if one.url not in self._source_urls:
                self._source_urls.add(one.url)
                source = f"source_{len(self._source_urls)}_{self._message_id}"
                item.held_chunks.append(c.SourceUrlChunk(source, one.url, one.title or UNSET))

    def _sealed_end(self, part: SealedPart, item: _OpenItem) -> None:
        item.seal = part.token or None

    def _file_end(self, part: FilePart, item: _OpenItem) -> None:
        if not part.thought:
            self._ensure_step()
            media_type = replace_surrogates(part.media_type)
            item.held_chunks.append(
                c.FileChunk(f"data:{media_type};base64,{replace_surrogates(part.data)}", media_type)
            )

    def _call_start(self, part: ToolCallPart | BuiltinToolCallPart, item: _OpenItem) -> None:
        id = replace_surrogates(part.tool_call_id)
        if not id or id in self._used_call_ids:
            # Clients merge two calls with the same id.
            id = item.id if item.id not in self._used_call_ids else self._fresh_id()
        item.call_id = id
        self._used_call_ids.add(id)
        self._call_ids[part.tool_call_id] = id
        self._ensure_step()
        executed = True if isinstance(part, BuiltinToolCallPart) else UNSET
        self._write(c.ToolInputStartChunk(id, replace_surrogates(part.tool_name), executed, True))
        self._delta_prefix = b'data: {"type":"tool-input-delta","toolCallId":%b,"inputTextDelta":' % to_json(id)

    def _call_end(self, part: ToolCallPart | BuiltinToolCallPart, item: _OpenItem) -> None:
        executed = True if isinstance(part, BuiltinToolCallPart) else UNSET
        if isinstance(part, ToolCallPart):
            self._pending_calls.add(item.call_id)
        arguments, error = parse_arguments(part)
        chunk: c.Chunk
        if error is None:
            chunk = c.ToolInputAvailableChunk(
                item.call_id, replace_surrogates(part.tool_name), arguments, executed, dynamic=True
            )
        else:
            chunk = c.ToolInputErrorChunk(
                item.call_id, replace_surrogates(part.tool_name), arguments, error, executed, dynamic=True
            )
            if error == INCOMPLETE_CALL:
                _add_metadata(chunk, complete=False)
        item.held_chunks.append(chunk)

    def _return_end(self, part: BuiltinToolReturnPart, item: _OpenItem) -> None:
        id = self._call_id_for(part.tool_call_id, part.tool_name, item.held_chunks, executed=True)
        item.held_chunks.append(c.ToolOutputAvailableChunk(id, json_safe(part).content, True, True))

    def _call_id_for(self, tool_call_id: str, name: str, out: list[c.Chunk], *, executed: bool) -> str:
        """Return the id by which the client knows a call; add a call chunk to `out` if it does not know the call."""
        if tool_call_id in self._call_ids:
            return self._call_ids[tool_call_id]
        self._ensure_step()
        id = replace_surrogates(tool_call_id)
        if not id or id in self._used_call_ids:
            id = self._fresh_id()
        self._used_call_ids.add(id)
        self._call_ids[tool_call_id] = id
        out.append(
            c.ToolInputAvailableChunk(id, replace_surrogates(name), {}, True if executed else UNSET, dynamic=True),
        )
        return id

    # --- the run -----------------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent) -> None:
        self._deployment = event.deployment
        self._end_step()
        self._ensure_step()

    def _ensure_step(self) -> None:
        if not self._in_step:
            self._in_step = True
            self._write(c.StartStepChunk())

    def _end_step(self) -> None:
        if self._in_step:
            self._in_step = False
            self._write(c.FinishStepChunk())

    def _tool_result(self, event: FunctionToolResultEvent) -> None:
        result = event.result
        if result.tool_name is None:
            return  # A prompt to the model to correct its answer, not the result of a call.
        result = json_safe(result)
        chunks: list[c.Chunk] = []
        id = self._call_id_for(event.result.tool_call_id, result.tool_name or "", chunks, executed=False)
        self._pending_calls.discard(id)
        if isinstance(result, ToolReturnPart) and result.outcome == "success":
            chunks.append(c.ToolOutputAvailableChunk(id, result.content, dynamic=True))
        else:
            text = result.content_as_text() if isinstance(result, ToolReturnPart) else result.content
            chunks.append(c.ToolOutputErrorChunk(id, text, dynamic=True))
        for chunk in chunks:
            self._write(chunk)

    def _run_end(self, event: RunEndEvent) -> None:
        self.ended = True
        item, self._open_item = self._open_item, None
        self._pending_part = self._delta_prefix = None
        if item is not None:
            if self._open_block is not None:
                self._end_block(item, {"complete": False})
            self._write_held(item, None)
        if event.status == "failed":
            self._write(c.ErrorChunk(replace_surrogates(event.failure.full_message)))
        self._end_step()
        if event.status == "cancelled":
            self._write(c.AbortChunk())
        else:
            usage: dict[str, float] = {**safe_counts(event.usage, _USAGE_FIELDS)}  # empty if it is hidden
            if event.usage.cost is not None:
                usage["cost"] = event.usage.cost
            reason = finish_reason(event, has_pending_calls=bool(self._pending_calls))
            metadata: dict[str, Any] = {"usage": usage} if usage else {}
            if self._deployment is not None:
                metadata["deployment"] = self._deployment
            self._write(c.FinishChunk(reason, metadata or UNSET))
        self._out.append(DONE)

    # --- writing -----------------------------------------------------------------------------------------------

    def _fresh_id(self) -> str:
        """Return an id for an item or a call without an id."""
        self._generated_ids += 1
        return f"{self._message_id}_{self._generated_ids}"

    def _write(self, chunk: c.Chunk) -> None:
        self._out.append(b"data: " + to_json(chunk) + b"\n\n")

    HANDLERS: ClassVar[EventHandlers] = {
        ResponseStartEvent: _turn_start,
        ItemStartEvent: _item_start,
        ItemEndEvent: _item_end,
        PartStartEvent: _part_start,
        PartEndEvent: _part_end,
        FunctionToolResultEvent: _tool_result,
        RunEndEvent: _run_end,
    }


_TOOL_INPUTS = (c.ToolInputAvailableChunk, c.ToolInputErrorChunk)


class _OpenItem:
    """The open item."""

    __slots__ = ("block_count", "call_id", "held_chunks", "id", "kind", "seal")

    def __init__(self, id: str, kind: str) -> None:
        self.id = id
        self.kind = kind
        self.block_count = 0
        """Number of blocks that the item had so far."""
        self.call_id = ""
        """The id by which the client knows its call."""
        self.seal: str | None = None
        """A sealed token of this gateway that the model's run passed on."""
        self.held_chunks: list[c.Chunk] = []
        """Chunks that wait for the item's end."""

    def carries_seal(self, chunk: c.Chunk) -> bool:
        """Return whether a chunk of this item can carry its token."""
        return isinstance(chunk, c.FileChunk if self.kind == "file" else _TOOL_INPUTS) and self.kind in (
            "file",
            "tool_call",
        )


class _OpenBlock:
    """The open block: the template of its deltas, and the metadata of its end."""

    __slots__ = ("delta_prefix", "has_text", "id", "kind", "metadata")

    def __init__(self, kind: str, id: str, metadata: dict[str, Any]) -> None:
        self.kind = kind
        self.id = id
        self.metadata = metadata
        self.has_text = False
        self.delta_prefix = b'data: {"type":"%b-delta","id":%b,"delta":' % (kind.encode(), to_json(id))


def _add_metadata(chunk: Any, **values: Any) -> None:
    existing = {} if chunk.provider_metadata is UNSET else chunk.provider_metadata[METADATA_KEY]
    chunk.provider_metadata = {METADATA_KEY: {**existing, **values}}


_PART_END_HANDLERS: dict[type[ModelResponsePart], Callable[[Encoder, Any, _OpenItem], None]] = {
    TextPart: Encoder._text_end,
    ToolCallPart: Encoder._call_end,
    BuiltinToolCallPart: Encoder._call_end,
    BuiltinToolReturnPart: Encoder._return_end,
    FilePart: Encoder._file_end,
    SealedPart: Encoder._sealed_end,
}
