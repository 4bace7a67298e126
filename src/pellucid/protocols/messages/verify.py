"""Verifies that a stream keeps the protocol's rules, and names those that it violates.

* framing: every event is a JSON object, and its name is its type.
* fields: an event has the fields and types that its type needs.
* life: `message_start` comes first and once; after `message_delta` comes only `message_stop`, which is last; an `error`
  ends the stream in place of both.
* block: blocks do not overlap; their indices count 0, 1, 2 …; each is started, and stopped once.
* delta: a delta has the type that its block needs, and comes within the block.
* thinking: the signature comes after the text, once, and is not empty.
* stop: the reason is `tool_use` if, and only if, there are calls, unless the answer was cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...framing import SSEDecoder
from . import types as t

_DELTA_TYPES: dict[str, tuple[type[Any], ...]] = {
    "text": (t.TextDelta, t.CitationsDelta),
    "thinking": (t.ThinkingDelta, t.SignatureDelta),
    "redacted_thinking": (),
    "tool_use": (t.InputJsonDelta,),
    "server_tool_use": (t.InputJsonDelta,),
    "mcp_tool_use": (t.InputJsonDelta,),
}


def verify(body: bytes) -> list[str]:
    """Return the rules that the stream violates, as `rule: problem`; empty if it is legal."""
    check = _Check()
    for name, data in SSEDecoder(max_bytes=len(body) + 1).feed(body):
        check.violations += check.frame(name, data)
    check.violations += check.end()
    return check.violations


class _Check:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self._started = False
        self._stopping = False
        self._has_ended = False
        self._next_index = 0
        self._block: dict[str, Any] | None = None
        self._has_signature = False
        self._has_calls = False

    def frame(self, name: str, data: bytes) -> Iterator[str]:
        try:
            event = msgspec.json.decode(data, type=t.MessageStreamEvent)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            yield f"fields: not an event: {error}"
            return
        type = event.__struct_config__.tag
        if name != type:
            yield f"framing: an event {type} with the name {name or 'of none'}"
        if self._has_ended:
            yield f"life: {type} after the end"
        if isinstance(event, t.Ping):
            return
        if isinstance(event, t.ErrorBody):
            self._has_ended = True
            return
        if isinstance(event, t.MessageStart) == self._started:
            yield f"life: {type} {'again' if self._started else 'before message_start'}"
        self._started = True
        if self._stopping and not isinstance(event, t.MessageStop):
            yield f"life: {type} after message_delta"
        match event:
            case t.MessageStart(message=message):
                if message.content or message.stop_reason is not None:
                    yield "life: message_start holds content or a stop reason"
            case t.ContentBlockStart():
                yield from self._block_start(event)
            case t.ContentBlockDelta():
                yield from self._delta(event)
            case t.ContentBlockStop():
                yield from self._block_stop(event)
            case t.MessageDelta(delta=delta):
                self._stopping = True
                if self._block is not None:
                    yield "block: a block is open at the end"
                if (
                    delta.stop_reason in ("tool_use", "end_turn")
                    and (delta.stop_reason == "tool_use") != self._has_calls
                ):
                    yield f"stop: {delta.stop_reason}, and there are {'' if self._has_calls else 'no '}calls"
            case t.MessageStop():
                self._has_ended = True
                if not self._stopping:
                    yield "life: message_stop without message_delta"

    def end(self) -> Iterator[str]:
        if not self._has_ended:
            yield "life: there is neither message_stop nor an error"

    def _block_start(self, event: t.ContentBlockStart) -> Iterator[str]:
        if self._block is not None:
            yield f"block: block {event.index} starts while another is open"
        if event.index != self._next_index:
            yield f"block: index {event.index} in place of {self._next_index}"
        self._next_index = event.index + 1
        self._block, self._has_signature = event.content_block, False
        self._has_calls = self._has_calls or event.content_block.get("type") == "tool_use"

    def _delta(self, event: t.ContentBlockDelta) -> Iterator[str]:
        if self._block is None or event.index != self._next_index - 1:
            yield f"delta: a delta of block {event.index}, which is not open"
            return
        type, delta = str(self._block.get("type")), event.delta
        if not isinstance(delta, _DELTA_TYPES.get(type, ())):
            yield f"delta: {delta.__struct_config__.tag} in a block {type}"
        match delta:
            case t.SignatureDelta():
                if self._has_signature or not delta.signature:
                    yield "thinking: a second or an empty signature"
                self._has_signature = True
            case t.ThinkingDelta() if self._has_signature:
                yield "thinking: text after the signature"

    def _block_stop(self, event: t.ContentBlockStop) -> Iterator[str]:
        if self._block is None or event.index != self._next_index - 1:
            yield f"block: block {event.index} stops, and is not open"
        self._block = None
