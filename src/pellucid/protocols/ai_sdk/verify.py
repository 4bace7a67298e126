"""Check whether a stream is a legal UI message stream, as strictly as the strictest client.

The rules:

    framing   unnamed events with JSON on one line; `[DONE]` is last
    fields    the types of `chunks`, without other fields
    life      start; steps; finish or abort once, last; only the end follows an error
    step      all content is within a step
    block     blocks of reasoning and text are open one at a time, under ids that do not repeat
    tool      a call starts, continues, is complete, and gets one result
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ...framing import SSEDecoder
from . import chunks as c

_decode = msgspec.json.Decoder(c.AnyChunk).decode


def verify(stream: bytes) -> list[str]:
    """Return the violations in a stream.

    Args:
        stream: The whole body of the response.

    Returns:
        Texts `rule: what is wrong`; empty for a legal stream.
    """
    violations: list[str] = []
    frames = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    if not stream.endswith(b"data: [DONE]\n\n"):
        violations.append("framing: the stream does not end in [DONE]")
    verifier = _Verifier()
    for name, data in frames:
        if name:
            violations.append(f"framing: an event with the name {name}")
        if data == b"[DONE]":
            violations += verifier.end()
            continue
        try:
            chunk = _decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            violations.append(f"fields: not a chunk: {error}")
            continue
        violations += verifier.feed(chunk)
    return violations


class _Verifier:
    def __init__(self) -> None:
        self._has_started = self._has_ended = self._has_failed = self._in_step = False
        self._open_block: tuple[str, str] | None = None
        self._block_ids: set[str] = set()
        self._call_states: dict[str, str] = {}
        """The state of each call by its id: "streaming" arguments, "complete" arguments, or "answered"."""

    def feed(self, chunk: c.AnyChunk) -> Iterator[str]:
        if self._has_ended:
            yield f"life: {chunk.__struct_config__.tag} after the end"
        if isinstance(chunk, c.StartChunk) == self._has_started:
            yield "life: start comes first, and once"
        self._has_started = True
        if self._has_failed and not isinstance(chunk, c.FinishStepChunk | c.FinishChunk):
            yield f"life: {chunk.__struct_config__.tag} after an error"
        match chunk:
            case c.StartChunk():
                pass
            case c.StartStepChunk() | c.FinishStepChunk():
                yield from self._step_boundary(isinstance(chunk, c.StartStepChunk))
            case c.FinishChunk() | c.AbortChunk():
                yield from self._message_end(chunk)
            case c.ErrorChunk():
                self._has_failed = True
                yield from self._check_closed("an error")
            case _:
                if not self._in_step:
                    yield f"step: {chunk.__struct_config__.tag} outside a step"
                yield from self._content(chunk)

    def end(self) -> Iterator[str]:
        if not self._has_ended:
            yield "life: there is neither finish nor abort"

    def _step_boundary(self, starts: bool) -> Iterator[str]:
        if starts == self._in_step:
            yield "step: steps begin and end in turn"
        self._in_step = starts
        yield from self._check_closed("a step's edge")

    def _message_end(self, chunk: c.FinishChunk | c.AbortChunk) -> Iterator[str]:
        self._has_ended = True
        if self._in_step:
            yield "step: the stream ends in the middle of a step"
        if isinstance(chunk, c.FinishChunk) and self._has_failed != (chunk.finish_reason == "error"):
            yield f"life: {chunk.finish_reason} {'after' if self._has_failed else 'without'} an error"

    def _check_closed(self, where: str) -> Iterator[str]:
        if self._open_block is not None:
            yield f"block: {self._open_block[1]} is open at {where}"
        for id, state in self._call_states.items():
            if state == "streaming":
                yield f"tool: the arguments of {id} are open at {where}"

    def _content(self, chunk: c.AnyChunk) -> Iterator[str]:
        if isinstance(chunk, c.ReasoningStartChunk | c.TextStartChunk):
            yield from self._check_closed("the beginning of a block")
            if chunk.id in self._block_ids:
                yield f"block: the id {chunk.id} is used again"
            self._block_ids.add(chunk.id)
            self._open_block = (_kind(chunk), chunk.id)
        elif isinstance(chunk, c.ReasoningDeltaChunk | c.TextDeltaChunk | c.ReasoningEndChunk | c.TextEndChunk):
            if self._open_block != (_kind(chunk), chunk.id):
                yield f"block: {chunk.id} continues or ends, but is not open"
            if isinstance(chunk, c.ReasoningEndChunk | c.TextEndChunk):
                self._open_block = None
            elif not chunk.delta:
                yield "block: an empty delta"
        elif isinstance(chunk, c.ToolOutputAvailableChunk | c.ToolOutputErrorChunk):
            if self._call_states.get(chunk.tool_call_id) != "complete":
                yield f"tool: {chunk.tool_call_id} gets a result, but does not wait for one"
            self._call_states[chunk.tool_call_id] = "answered"
        elif isinstance(chunk, c.ToolInputStartChunk):
            yield from self._check_closed("the beginning of a call")
            if chunk.tool_call_id in self._call_states:
                yield f"tool: the id {chunk.tool_call_id} is used again"
            self._call_states[chunk.tool_call_id] = "streaming"
        elif isinstance(chunk, c.ToolInputDeltaChunk):
            if self._call_states.get(chunk.tool_call_id) != "streaming" or not chunk.input_text_delta:
                yield f"tool: {chunk.tool_call_id} continues, but is not open"
        elif isinstance(chunk, c.ToolInputAvailableChunk | c.ToolInputErrorChunk):
            if self._call_states.get(chunk.tool_call_id) in ("complete", "answered"):
                yield f"tool: {chunk.tool_call_id} is complete already"
            self._call_states[chunk.tool_call_id] = "complete"


def _kind(chunk: c.AnyChunk) -> str:
    return str(chunk.__struct_config__.tag).partition("-")[0]
