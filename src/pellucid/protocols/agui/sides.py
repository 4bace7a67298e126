"""What an agent says beside its model: state, activities, steps, subagents, custom and raw events.

They come as side events of the namespace `agui`, named by their type, with the event's fields (`side` makes one), and
leave where they stand. Two names are no events but tell how the run ends: `interrupt`, with an interrupt's fields, and
`result`, with any value. What the run itself says (RUN_STARTED, RUN_FINISHED, RUN_ERROR) it says alone.

What the dialect has no word for is left out, and chunks are expanded. Nothing that leaves here can break a stream: what
is open is not started again, only what is open goes on and ends, no delta is empty, and `closing` ends what is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ...errors import IllegalEvent, RequestError
from ...events import SideEvent
from . import events as e
from .chunks import Expander
from .dialects import Dialect
from .messages import Interrupt
from .thread import shaped, text_of

NAMESPACE = "agui"


def side(event: e.AGUIEvent | Interrupt) -> SideEvent:
    """The side event that carries it through a run."""
    value = msgspec.to_builtins(event)
    name = "interrupt" if isinstance(event, Interrupt) else value.pop("type")
    return SideEvent(NAMESPACE, name, value)


class _Pair(NamedTuple):
    start: type[Any]
    more: type[Any] | None
    end: type[Any]
    id: str


_PAIRS = (
    _Pair(e.TextMessageStartEvent, e.TextMessageContentEvent, e.TextMessageEndEvent, "message_id"),
    _Pair(e.ToolCallStartEvent, e.ToolCallArgsEvent, e.ToolCallEndEvent, "tool_call_id"),
    _Pair(e.ReasoningStartEvent, None, e.ReasoningEndEvent, "message_id"),
    _Pair(e.ReasoningMessageStartEvent, e.ReasoningMessageContentEvent, e.ReasoningMessageEndEvent, "message_id"),
    _Pair(e.StepStartedEvent, None, e.StepFinishedEvent, "step_name"),
    _Pair(e.SubagentStartedEvent, None, e.SubagentFinishedEvent, "subagent_run_id"),
    _Pair(e.SubagentStartedEvent, None, e.SubagentErrorEvent, "subagent_run_id"),
)
_STARTS: dict[type[Any], _Pair] = {pair.start: pair for pair in reversed(_PAIRS)}
_MORES: dict[type[Any], _Pair] = {pair.more: pair for pair in _PAIRS if pair.more is not None}
_ENDS: dict[type[Any], _Pair] = {pair.end: pair for pair in _PAIRS}

_THE_RUNS = (e.RunStartedEvent, e.RunFinishedEvent, e.RunErrorEvent)


class Sides:
    """`feed` each side event; the events to send come out."""

    def __init__(self, dialect: Dialect, *, reasoning: bool = True) -> None:
        self.interrupts: list[Interrupt] = []
        self.result: Any = None
        self._dialect = dialect
        self._reasoning = reasoning
        self._expander = Expander(dialect)
        self._open: dict[tuple[type[Any], str | None, str], e.AGUIEvent] = {}
        """What is open, by what started it, and whose it is."""

    def feed(self, event: SideEvent) -> list[e.AGUIEvent]:
        """Raises `IllegalEvent` for one that is no event of this protocol."""
        if event.name == "result":
            self.result = event.value
            return []
        try:
            if event.name == "interrupt":
                self.interrupts.append(msgspec.convert(event.value, Interrupt))
                return []
            said = e.decode_event({**event.value, "type": event.name})
            whole = self._expander.feed(said)
        except (RequestError, msgspec.ValidationError, TypeError) as error:
            raise IllegalEvent("side", f"a side event of {NAMESPACE!r} named {event.name!r}: {error}") from None
        return [told for one in whole if (told := self._told(one)) is not None and self._stands(told)]

    def before(self, event: e.AGUIEvent) -> list[e.AGUIEvent]:
        """What an event of the model ends here."""
        if not self._expander.open:
            return []
        return [one for one in self._expander.feed(event)[:-1] if self._stands(one)]

    def closing(self, *, failed: bool = False) -> list[e.AGUIEvent]:
        """The ends of all that is open, what was opened last first."""
        out = [end for end in self._expander.end() if self._stands(end)]
        for (start, owner, id), _ in reversed(list(self._open.items())):
            pair = _STARTS[start]
            if pair.start is not e.SubagentStartedEvent:
                out.append(pair.end(**{pair.id: id, "subagent_run_id": owner}))
            elif failed:
                out.append(e.SubagentErrorEvent(subagent_run_id=id, message="the run failed"))
            else:
                out.append(e.SubagentFinishedEvent(subagent_run_id=id))
        self._open.clear()
        return out

    def _told(self, event: e.AGUIEvent) -> e.AGUIEvent | None:
        """The event as the dialect has it; None if it has no such thing."""
        dialect = self._dialect
        if event.type not in dialect.types or isinstance(event, _THE_RUNS):
            return None
        if not self._reasoning and event.type.startswith(("REASONING_", "THINKING_")):
            return None
        if not dialect.subagents and getattr(event, "subagent_run_id", None) is not None:
            event = replace(event, subagent_run_id=None)
        if isinstance(event, e.ReasoningMessageStartEvent):
            return replace(event, role=dialect.role)
        if isinstance(event, e.ReasoningStartEvent) and dialect.seals != "span":
            return replace(event, encrypted_content=None)
        if isinstance(event, e.ToolCallResultEvent) and not dialect.media_results:
            return replace(event, content=text_of(event.content))
        if isinstance(event, e.MessagesSnapshotEvent):
            return replace(event, messages=shaped(event.messages, dialect, reasoning=self._reasoning))
        return event

    def _stands(self, event: e.AGUIEvent) -> bool:
        """Whether it may stand here; if so, it is taken note of."""
        kind = type(event)
        pair = _STARTS.get(kind) or _MORES.get(kind) or _ENDS.get(kind)
        if pair is None:
            return True
        owned = pair.start is e.StepStartedEvent
        owner = getattr(event, "subagent_run_id", None)
        key = (pair.start, owner if owned else None, getattr(event, pair.id))
        if kind is pair.start:
            fresh = key not in self._open
            self._open.setdefault(key, event)
            return fresh
        if kind is pair.more:
            return key in self._open and bool(getattr(event, "delta", ""))
        return self._open.pop(key, None) is not None


__all__ = ["NAMESPACE", "Sides", "side"]
