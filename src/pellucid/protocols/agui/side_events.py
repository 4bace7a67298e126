"""Events that an application adds to a run: state, activities, steps, subagents, custom and raw events.

They come as side events of the namespace `agui` whose name is the type and whose value has the fields (`as_side_event`
of an event makes one), and are sent where they stand in the run. Two names are not types of events but set the end of
the run: `interrupt`, with the fields of an interrupt, and `result`, with any value. A call that a run waits for is an
interrupt, too. RUN_STARTED, RUN_FINISHED and RUN_ERROR are sent by the run only.

Events that the dialect does not define are dropped, and chunks are expanded. The result cannot make a stream illegal:
illegal events are changed or dropped (see `side_event_filter`), no delta is empty, and `end_all` ends what is open. Of
interrupts with the same id the last one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from ...errors import IllegalEvent, RequestError
from ...events import DEFERRED, SideEvent
from ...view import SIDE_EVENT_FIELDS
from . import events as e
from .chunks import Expander
from .client_messages import adapt_messages, text_of
from .dialects import Dialect
from .interrupts import interrupt_of
from .messages import NAMESPACE, Interrupt, Message
from .side_event_filter import SideEventFilter

_COMMON_FIELDS = frozenset({"timestamp", "subagentRunId"})
_STEP_FIELDS = _COMMON_FIELDS | {"stepName"}
_ACTIVITY_FIELDS = _COMMON_FIELDS | {"messageId", "activityType"}
_PARENT_FIELDS = frozenset({"parentSubagentRunId", "parentToolCallId", "parentMessageId"})
# An application needs more than the question here, so an interrupt's `metadata`, which the agent sets, is shown.
_INTERRUPT_FIELDS = frozenset(
    ["id", "reason", "message", "toolCallId", "responseSchema", "expiresAt", "metadata", "subagentRunId"]
)
_FIELDS: dict[str, frozenset[str] | None] = {
    "STATE_SNAPSHOT": _COMMON_FIELDS | {"snapshot"},
    "STATE_DELTA": _COMMON_FIELDS | {"delta"},
    "STEP_STARTED": _STEP_FIELDS,
    "STEP_FINISHED": _STEP_FIELDS,
    "ACTIVITY_SNAPSHOT": _ACTIVITY_FIELDS | {"content", "replace"},
    "ACTIVITY_DELTA": _ACTIVITY_FIELDS | {"patch"},
    "SUBAGENT_STARTED": _COMMON_FIELDS | _PARENT_FIELDS | {"name", "description"},
    "SUBAGENT_FINISHED": _COMMON_FIELDS | {"result", "outcome"},
    "SUBAGENT_ERROR": _COMMON_FIELDS | {"message", "code"},
    "interrupt": _INTERRUPT_FIELDS,
    "result": None,
}
SHOWN_FIELDS = {**SIDE_EVENT_FIELDS, **{(NAMESPACE, name): fields for name, fields in _FIELDS.items()}}
"""The side events that are shown in restricted views, and their fields, for `pellucid.view.Redactor`.

It is an allow-list: an agent's state, steps, activities and subagents, and its questions to people. Events that may
hold a model's full output (messages, calls, raw and custom events) are not shown. Neither are the fields that every
event may have: `metadata`, and `rawEvent`, which holds the original event.
"""

_RUN_EVENTS = (e.RunStartedEvent, e.RunFinishedEvent, e.RunErrorEvent)


class SideEvents:
    """Converts side events to the AG-UI events to send.

    Args:
        dialect: What the client speaks.
        reasoning: Whether events of reasoning are sent.
        history: The messages that the client has before the run.
    """

    def __init__(self, dialect: Dialect, *, reasoning: bool = True, history: Iterable[Message] = ()) -> None:
        self._interrupts: dict[str, Interrupt] = {}
        self.result: Any = None
        self._dialect = dialect
        self._reasoning = reasoning
        self._expander = Expander(dialect)
        self._filter = SideEventFilter(history)

    @property
    def interrupts(self) -> list[Interrupt]:
        return list(self._interrupts.values())

    def feed(self, event: SideEvent) -> list[e.AGUIEvent]:
        """Return the events to send for a side event.

        Raises:
            IllegalEvent: The side event is not a valid event of AG-UI.
        """
        if event.name == "result":
            self.result = event.value
            return []
        try:
            is_deferred = (event.namespace, event.name) == DEFERRED
            if is_deferred or event.name == "interrupt":
                interrupt = interrupt_of(event.value) if is_deferred else msgspec.convert(event.value, Interrupt)
                self._interrupts[interrupt.id] = interrupt
                return []
            agui_event = e.decode_event({**event.value, "type": event.name})
            expanded = self._expander.feed(agui_event)
        except (RequestError, msgspec.ValidationError, TypeError) as error:
            raise IllegalEvent("side", f"a side event of {NAMESPACE!r} named {event.name!r}: {error}") from None
        return [
            filtered
            for one in expanded
            if (adapted := self._adapt_to_dialect(one)) is not None
            for filtered in self._filter.feed(adapted)
        ]

    def ends_before(self, event: e.AGUIEvent) -> list[e.AGUIEvent]:
        """Return the end events that must be sent before an event of the model's run."""
        ends = self._expander.feed(event)[:-1] if self._expander.is_open else []
        return [filtered for end in ends for filtered in self._filter.feed(end)] + self._filter.observe(event)

    def end_all(self, *, failed: bool = False) -> list[e.AGUIEvent]:
        """End everything that is open, last opened first."""
        ends = [filtered for end in self._expander.end() for filtered in self._filter.feed(end)]
        return ends + self._filter.end_all(failed=failed)

    def _adapt_to_dialect(self, event: e.AGUIEvent) -> e.AGUIEvent | None:
        """Return an event as the dialect defines it; None if the dialect has no such event."""
        dialect = self._dialect
        if event.type not in dialect.event_types or isinstance(event, _RUN_EVENTS):
            return None
        if not self._reasoning and event.type.startswith(("REASONING_", "THINKING_")):
            return None
        if not dialect.has_subagents and getattr(event, "subagent_run_id", None) is not None:
            event = replace(event, subagent_run_id=None)
        if isinstance(event, e.ReasoningMessageStartEvent):
            return replace(event, role=dialect.reasoning_role)
        if isinstance(event, e.ReasoningStartEvent) and dialect.seal_carrier != "span":
            return replace(event, encrypted_content=None)
        if isinstance(event, e.ToolCallResultEvent) and not dialect.has_media_results:
            return replace(event, content=text_of(event.content))
        if isinstance(event, e.MessagesSnapshotEvent):
            return replace(event, messages=adapt_messages(event.messages, dialect, reasoning=self._reasoning))
        return event
