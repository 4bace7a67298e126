"""What of the side events leaves, for readers who may not see raw reasoning.

An allow-list of names, and of fields within them: what an agent says of its own state, steps, activities and helpers,
and what it asks people. What could hold a model's words in full (messages, calls, raw and custom events) does not
leave, nor does what each event is open to: `metadata`, and `rawEvent`, which is what it was made of.
"""

from __future__ import annotations

from ..events import SideEvent

_OWNED = frozenset({"timestamp", "subagentRunId"})
_STEP = _OWNED | {"stepName"}
_ACTIVITY = _OWNED | {"messageId", "activityType"}
_PARENTS = frozenset({"parentSubagentRunId", "parentToolCallId", "parentMessageId"})
# The one place for what an application has to know beside the question: here `metadata` is the agent's word, too.
_INTERRUPT = frozenset(
    ["id", "reason", "message", "toolCallId", "responseSchema", "expiresAt", "metadata", "subagentRunId"]
)

SIDES: dict[tuple[str, str], frozenset[str] | None] = {
    ("queue", "loading"): None,
    ("queue", "position"): None,
    ("queue", "waited"): None,
    ("agui", "STATE_SNAPSHOT"): _OWNED | {"snapshot"},
    ("agui", "STATE_DELTA"): _OWNED | {"delta"},
    ("agui", "STEP_STARTED"): _STEP,
    ("agui", "STEP_FINISHED"): _STEP,
    ("agui", "ACTIVITY_SNAPSHOT"): _ACTIVITY | {"content", "replace"},
    ("agui", "ACTIVITY_DELTA"): _ACTIVITY | {"patch"},
    ("agui", "SUBAGENT_STARTED"): _OWNED | _PARENTS | {"name", "description"},
    ("agui", "SUBAGENT_FINISHED"): _OWNED | {"result", "outcome"},
    ("agui", "SUBAGENT_ERROR"): _OWNED | {"message", "code"},
    ("agui", "interrupt"): _INTERRUPT,
    ("agui", "result"): None,
}
"""The fields of its value that leave, by namespace and name; None: the value is one thing, and leaves whole."""


def shown_side(event: SideEvent) -> SideEvent | None:
    """What of a side event leaves; None if nothing does."""
    fields = SIDES.get((event.namespace, event.name), frozenset())
    if fields is None:
        return event
    value = event.value
    if not fields or not isinstance(value, dict):
        return None
    return SideEvent(event.namespace, event.name, {name: value[name] for name in value if name in fields})
