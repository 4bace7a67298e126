"""Encodes events as Messages: server-sent events, and the message that they add up to.

All output of a run is one message, for any number of turns: one content block for each part, and for each item of
reasoning one block with all its parts, separated by blank lines. Blocks do not overlap, and the index counts them.

* Reasoning is a `thinking` block. Its `signature` is the item's seal, which comes last; so a client that only sends
  blocks back keeps the reasoning of any model. Reasoning without readable text keeps its block, with an empty text, as
  Anthropic's models write it where `thinking.display` is `omitted`.
* Tools that Anthropic's models ran themselves, and blocks of theirs that are not known here, are shown in their own
  form to readers who may see all of it.
* Where the reader may not see the text, and for seals of what this protocol cannot show (other providers' own tools,
  files, signatures of texts and calls), the seal is the `data` of a `redacted_thinking` block.
* Calls that the client must answer are `tool_use`. Calls that the server answers (`server_tools`), and their results,
  are not shown, because a client would try to answer them.
* A run that fails ends in an event `error`, without `message_stop`. Its complete answer is the error alone.
* The stop reason of an answer that was cut off is `max_tokens`, if the model gave no other.

An encoder is pure, and encodes one batch as one piece of bytes. Deltas are written from a template for each block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container
from typing import Any, ClassVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from ...accumulator import TEXT_FIELD
from ...errors import ErrorInfo
from ...events import (
    AnsweringDeployment,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
)
from ...framing import sse_event
from ...parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    ModelResponsePart,
    OpaquePart,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    Usage,
    estimated_tokens,
)
from ...server_tool_blocks import WIRE, call_block, result_block
from ...unicode import json_safe, replace_surrogates
from .. import text_metadata
from ..encoding import PARAGRAPH_BREAK, BatchEncoder, EventHandlers, or_unset, to_json
from . import types as t
from .types import error_body

_STOP_REASONS: dict[str | None, t.StopReason] = {
    "length": "max_tokens",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
_NATIVE_STOP_REASONS: dict[str | None, t.StopReason] = {
    reason: reason for reason in get_args(t.StopReason) if reason not in ("tool_use", "end_turn")
}
"""Reasons of Anthropic's models that say more than the unified ones."""

PING = sse_event(to_json(t.Ping()), "ping")


class Encoder(BatchEncoder):
    """Encodes one message.

    `start` and `feed` return bytes to send. `message` is the complete answer, once the run has ended.
    """

    ping = PING

    def __init__(
        self,
        id: str,
        model: str,
        *,
        omit_thinking: bool = False,
        server_tools: Container[str] = frozenset(),
        stop_sequences: Collection[str] = (),
    ) -> None:
        """Create the encoder of a message.

        Args:
            id: The id of the message.
            model: The model's public name.
            omit_thinking: Whether the client wants thinking blocks without text.
            server_tools: The names of the functions whose calls the server answers.
            stop_sequences: Texts at which the model stops.
        """
        super().__init__()
        self.error: ErrorInfo | None = None
        """Why the run failed. The complete answer is then this error, with its status."""
        self._id, self._model = replace_surrogates(id), replace_surrogates(model)
        self._omit_thinking = omit_thinking
        self._server_tools = server_tools
        self._stop_sequences = stop_sequences
        self._content: list[dict[str, Any]] = []
        """The blocks that have ended, and the open one."""
        self._block: _Block | None = None
        """The open block."""
        self._next_block: tuple[dict[str, Any], str, str] | None = None
        """What to open at the first text: a block without text is not shown, unless a seal makes it one."""
        self._has_thinking = False
        """Whether the open item has a thinking part that this reader may see."""
        self._is_hidden_call = False
        """Whether the open item is a call that the server answers."""
        self._is_native = False
        """Whether the open item has blocks in this API's own form."""
        self._has_calls = False
        self._api = ""
        """The wire of the turn's model."""
        self._deployment: AnsweringDeployment | UnsetType = UNSET
        self._stop_reason: t.StopReason = "end_turn"
        self._stop_sequence: str | None = None
        self._usage = Usage()

    def start(self, *, queued: bool = False) -> bytes:
        """Return the bytes that open the stream. A ping follows if the request is `queued`."""
        message = t.Message(
            id=self._id,
            model=self._model,
            content=[],
            stop_reason=None,
            stop_sequence=None,
            usage=t.MessageUsage(input_tokens=0, output_tokens=0),
        )
        opening = _event("message_start", t.MessageStart(message))
        return opening + PING if queued else opening

    def text_encoder(self) -> Callable[[str, int], bytes] | None:
        """Return a function that encodes the text of further deltas; None where the next delta needs an event."""
        block = self._block
        return self._encode_text if block is not None and not block.separator and self._next_block is None else None

    def _encode_text(self, text: str, now: int) -> bytes:
        assert self._block is not None
        return to_json(text).join(self._block.template)

    @property
    def message(self) -> t.Message:
        """The message. It also holds the content of a failed run, for which the client gets `error` instead."""
        return t.Message(
            id=self._id,
            model=self._model,
            content=self._content,
            stop_reason=self._stop_reason,
            stop_sequence=self._stop_sequence,
            usage=self._message_usage(),
            deployment=self._deployment,
        )

    # --- blocks ------------------------------------------------------------------------------------------------

    def _open(self, block: dict[str, Any], delta_type: str, text_field: str) -> None:
        index = len(self._content)
        self._content.append(block)
        self._out.append(_event("content_block_start", t.ContentBlockStart(index, dict(block))))
        self._block, self._next_block = _Block(index, delta_type, text_field), None

    def _write_delta(self, index: int, delta: t.Delta) -> None:
        self._out.append(_event("content_block_delta", t.ContentBlockDelta(index, delta)))

    def _close(self) -> None:
        if self._block is not None:
            self._out.append(_event("content_block_stop", t.ContentBlockStop(self._block.index)))
        self._block = self._next_block = None

    def _delta(self, event: PartDeltaEvent) -> None:
        delta = event.delta
        text: str | None = getattr(delta, TEXT_FIELD[type(delta)])
        if not text:
            return
        if self._next_block is not None:
            self._open(*self._next_block)
        block = self._block
        if block is None:
            return
        if block.separator:
            text, block.separator = block.separator + text, ""
        try:
            data = to_json(text)
        except UnicodeEncodeError:
            data = to_json(replace_surrogates(text))
        self._out.append(data.join(block.template))

    # --- items and parts ---------------------------------------------------------------------------------------

    def _turn_start(self, event: ResponseStartEvent) -> None:
        self._api = event.origin.api
        self._deployment = or_unset(event.deployment)

    def _item_start(self, event: ItemStartEvent) -> None:
        self._has_thinking = self._is_hidden_call = self._is_native = False

    def _item_end(self, event: ItemEndEvent) -> None:
        # A block in the API's own form is sent back in this form, and needs no seal.
        has_seal = event.seal and not (self._is_hidden_call or self._is_native)
        seal = replace_surrogates(event.seal or "") if has_seal else None
        if seal is not None:
            if self._block is None and self._has_thinking:
                self._open(*_thinking_block())
            if self._block is None:
                self._open({"type": "redacted_thinking", "data": seal}, "", "")
            else:
                self._content[-1]["signature"] = seal
                self._write_delta(self._block.index, t.SignatureDelta(seal))
        self._close()

    def _part_start(self, event: PartStartEvent) -> None:
        part = event.part
        if isinstance(part, ThinkingPart):
            if part.form != "redacted":
                self._has_thinking = True
                if self._block is not None:
                    self._block.separator = PARAGRAPH_BREAK
                elif not self._omit_thinking:
                    self._next_block = _thinking_block()
        elif isinstance(part, TextPart | RefusalPart):
            self._next_block = {"type": "text", "text": ""}, "text_delta", "text"
        elif isinstance(part, ToolCallPart):
            self._is_hidden_call = part.tool_name in self._server_tools
            if not self._is_hidden_call:
                self._has_calls = True
                id, name = replace_surrogates(part.tool_call_id), replace_surrogates(part.tool_name)
                self._open(
                    {"type": "tool_use", "id": id, "name": name, "input": {}}, "input_json_delta", "partial_json"
                )

    def _part_end(self, event: PartEndEvent) -> None:
        part = event.part
        self._next_block = None
        if isinstance(part, ThinkingPart):
            self._thinking_end(part)
        elif self._block is None:
            self._write_native_block(part)
        else:
            if isinstance(part, TextPart | RefusalPart):
                self._text_end(part)
            elif isinstance(part, ToolCallPart):
                self._content[-1]["input"] = _arguments(part)
            self._close()

    def _write_native_block(self, part: ModelResponsePart) -> None:
        """Write a part that has a block in this API only, if an Anthropic model made it and this reader may see all."""
        if self._api != WIRE or getattr(part, "provider_name", None) is None:
            return
        match part:
            case BuiltinToolCallPart():
                block = call_block(part)
            case BuiltinToolReturnPart():
                block = result_block(part)
            case OpaquePart(native={"type": str()} as block):
                pass
            case _:
                return
        if block is None:
            return
        self._is_native = True
        block = json_safe(block)
        is_call = isinstance(part, BuiltinToolCallPart)
        self._open({**block, "input": {}} if is_call else block, "input_json_delta", "partial_json")
        if is_call:
            self._content[-1]["input"] = block["input"]
            self._write_delta(len(self._content) - 1, t.InputJsonDelta(to_json(block["input"]).decode()))
        self._close()

    def _thinking_end(self, part: ThinkingPart) -> None:
        if self._block is None:
            return
        block = self._content[-1]
        separator = PARAGRAPH_BREAK if block["thinking"] and part.content else ""
        block["thinking"] += separator + replace_surrogates(part.content)
        if not part.content:
            self._block.separator = ""

    def _text_end(self, part: TextPart | RefusalPart) -> None:
        assert self._block is not None
        self._content[-1]["text"] = replace_surrogates(part.content)
        citations = _citations(part) if isinstance(part, TextPart) else []
        details = part.provider_details or {}
        self._is_native = self._api == WIRE and part.signature is None and set(details) == {"citations"}
        for citation in citations:
            self._write_delta(self._block.index, t.CitationsDelta(citation))
        if citations:
            self._content[-1]["citations"] = citations

    # --- the end -----------------------------------------------------------------------------------------------

    def _turn_end(self, event: ResponseEndEvent) -> None:
        reason, details = event.native_finish_reason, event.provider_details or {}
        sequence = details.get("stop_sequence")
        self._stop_sequence = sequence if isinstance(sequence, str) and sequence in self._stop_sequences else None
        if self._api == WIRE and reason in _NATIVE_STOP_REASONS:
            self._stop_reason = _NATIVE_STOP_REASONS[reason]
        elif self._stop_sequence is not None:
            self._stop_reason = "stop_sequence"
        else:
            self._stop_reason = _STOP_REASONS.get(event.finish_reason, "end_turn")

    def _run_end(self, event: RunEndEvent) -> None:
        self.ended = True
        self._usage = event.usage
        if event.status == "failed":
            self.error = event.failure
            self._out.append(_event("error", json_safe(error_body(self.error))))
            return
        if event.status == "completed":
            if self._has_calls:
                self._stop_reason = "tool_use"
        elif self._stop_reason in ("end_turn", "stop_sequence"):
            self._stop_reason = "refusal" if event.incomplete_reason == "content_filter" else "max_tokens"
        delta = t.StopDelta(self._stop_reason, self._stop_sequence)
        self._out.append(_event("message_delta", t.MessageDelta(delta, self._message_usage(), self._deployment)))
        self._out.append(_event("message_stop", t.MessageStop()))

    def _message_usage(self) -> t.MessageUsage:
        usage = self._usage
        read, written = usage.cache_read_tokens, usage.cache_write_tokens
        reasoning = usage.output_reasoning_tokens
        output_tokens = usage.output_tokens
        return t.MessageUsage(
            input_tokens=max(0, (usage.input_tokens or 0) - (read or 0) - (written or 0)),
            output_tokens=estimate_tokens(self._content) if output_tokens is None else output_tokens,
            cache_creation_input_tokens=or_unset(written),
            cache_read_input_tokens=or_unset(read),
            output_tokens_details=UNSET if reasoning is None else t.OutputTokensDetails(reasoning),
            estimated=True if output_tokens is None else UNSET,
            cost=or_unset(usage.cost),
        )

    HANDLERS: ClassVar[EventHandlers] = {
        ResponseStartEvent: _turn_start,
        ResponseEndEvent: _turn_end,
        ItemStartEvent: _item_start,
        ItemEndEvent: _item_end,
        PartStartEvent: _part_start,
        PartEndEvent: _part_end,
        RunEndEvent: _run_end,
    }


class _Block:
    """The open block: the bytes around the text of a delta, and a text that comes before the next one."""

    __slots__ = ("index", "separator", "template")

    def __init__(self, index: int, delta_type: str, text_field: str) -> None:
        self.index = index
        self.separator = ""
        self.template = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
            % (index, delta_type.encode(), text_field.encode()),
            b"}}\n\n",
        )


def _thinking_block() -> tuple[dict[str, Any], str, str]:
    return {"type": "thinking", "thinking": "", "signature": ""}, "thinking_delta", "thinking"


def estimate_tokens(value: Any) -> int:
    """Return an estimate of the tokens of all texts in a value."""
    characters, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            values += [inner for name, inner in value.items() if name not in _NOT_ESTIMATED]
        elif isinstance(value, list | tuple):
            values += value
    return estimated_tokens(characters)


_NOT_ESTIMATED = frozenset(
    {
        "type",
        "kind",
        "part_kind",
        "role",
        "outcome",
        "id",
        "signature",
        "data",
        "tool_use_id",
        "tool_call_id",
        "wire_fields",
    }
)
"""Fields of blocks and of parts that are no text for the model."""


def _arguments(part: ToolCallPart) -> dict[str, Any]:
    """Return the arguments as an object. Invalid JSON is kept as text, in the form that Anthropic documents."""
    try:
        arguments = part.args_as_dict()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {"INVALID_JSON": replace_surrogates(part.args_as_text())}
    safe: dict[str, Any] = json_safe(arguments)
    return safe


def _citations(part: TextPart) -> list[dict[str, Any]]:
    """Return the citations of a text: Anthropic's own unchanged, others as results of a search."""
    native = (part.provider_details or {}).get("citations")
    if not isinstance(native, list) or not all(isinstance(citation, dict) for citation in native):
        native = [
            {
                "type": "web_search_result_location",
                "url": citation.url,
                "title": citation.title,
                "cited_text": part.content[citation.start or 0 : citation.end] if citation.end is not None else "",
                "encrypted_index": "",
            }
            for citation in text_metadata.citations(part.annotations or [])
        ]
    return json_safe(native)


def _event(name: str, value: Any) -> bytes:
    return sse_event(to_json(value), name)
