"""What the encoders of several client protocols share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ..events import Event, PartDeltaEvent
from ..parts import BuiltinToolCallPart, ToolCallPart, Usage

V = TypeVar("V")

DONE = b"data: [DONE]\n\n"
"""The end of a stream, as OpenAI's clients expect it."""
QUEUED = b": queued\n\n"
"""The comment of a stream whose request waits until the model is free."""
PING = b": ping\n\n"
"""The comment that keeps a silent stream of server-sent events open."""
PARAGRAPH_BREAK = "\n\n"
"""Separates texts that become one."""

to_json = msgspec.json.Encoder().encode
"""Encodes as JSON, faster than `msgspec.json.encode`."""


EventHandlers: TypeAlias = Mapping[type[Any], Callable[[Any, Any], None]]
"""The handler of each kind of event except deltas. Events that are not listed are not shown."""


class BatchEncoder:
    """Base of encoders (see `protocols.Encoder`) whose handlers need an event alone, and not its time or position."""

    HANDLERS: ClassVar[EventHandlers]
    ping = PING

    def __init__(self) -> None:
        self.ended = False
        self._out: list[bytes] = []

    def feed(self, events: list[Event], now: int) -> bytes:
        """Encode the events of one batch."""
        for event in events:
            if type(event) is PartDeltaEvent:  # its part is open, so the stream is not at its end
                self._delta(event)
            elif not self.ended:
                handler = self.HANDLERS.get(type(event))
                if handler is not None:
                    handler(self, event)
        output = b"".join(self._out)
        self._out.clear()
        return output

    def _delta(self, event: PartDeltaEvent) -> None:
        raise NotImplementedError


def complete_arguments(part: ToolCallPart | BuiltinToolCallPart) -> tuple[str, str]:
    """Return the arguments of a call that has ended, and those among them that no delta had.

    Clients parse the arguments, so a complete call without arguments gets an empty object.
    """
    arguments = part.args_as_text()
    return (arguments, "") if arguments or not part.complete else ("{}", "{}")


MAX_SAFE_INTEGER = 2**53 - 1
"""`Number.MAX_SAFE_INTEGER` of JavaScript."""


def safe_counts(usage: Usage, fields: Mapping[str, str]) -> dict[str, int]:
    """Return the known numbers of tokens that JavaScript can hold.

    Args:
        usage: The usage.
        fields: The protocol's name of each number, with the field of `Usage`.
    """
    counts = {name: getattr(usage, field) for name, field in fields.items()}
    return {name: number for name, number in counts.items() if number is not None and 0 <= number <= MAX_SAFE_INTEGER}


def or_unset(value: V | None) -> V | UnsetType:
    """Return a value for a field that is absent where there is none."""
    return UNSET if value is None else value
