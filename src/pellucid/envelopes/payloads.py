"""What the payloads of the known kinds hold, by name and type.

A field that is not named here is nobody's mistake: it is kept, and not looked at. A field that is named and absent, or
null, is None. Where people and models write now a string and now a list of them, both are read (`TextOrTexts`).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A share of certainty: from 0 to 1."""

TextOrTexts: TypeAlias = str | tuple[str, ...]
WrittenCapability: TypeAlias = str | dict[str, Any]
"""A pattern of kinds, or an object with `kind` and `payload`."""


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """The root of them all, and what an unknown kind has."""


class Uncertainty(msgspec.Struct, frozen=True):
    """How sure, as a range."""

    low: Probability
    high: Probability
    source: str | None = None
    """What says so: `model`, `tests`, …"""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("`low` must not be more than `high`")


class Metadata(Payload, frozen=True):
    approach: str | None = None
    estimated_duration: str | float | None = None
    """As its sender says it: `30s`."""
    confidence: Probability | None = None
    uncertainty: Uncertainty | None = None
    compresses: tuple[str, ...] | None = None
    """The ids of the thoughts that this one stands for."""


class Step(Payload, frozen=True):
    """Anything said in a context of reasoning."""

    message: str | None = None
    content: str | None = None
    confidence: Probability | None = None
    uncertainty: Uncertainty | None = None
    metadata: Metadata | None = None
    step: str | None = None
    """Which step of the context's template this is."""


class Start(Step, frozen=True):
    goal: str | None = None
    triggered_by: str | None = None
    approach: str | None = None
    references: TextOrTexts | None = None
    """Ids of other messages, or `space:NAME/ID`."""
    template: str | None = None


class Thought(Step, frozen=True):
    reasoning: str | None = None


class Question(Step, frozen=True):
    questions: TextOrTexts | None = None


class Observation(Step, frozen=True):
    severity: str | None = None
    components: TextOrTexts | None = None
    details: Any = None


class Hypothesis(Step, frozen=True):
    hypothesis: str | None = None
    evidence: Any = None


class Conclusion(Step, frozen=True):
    decision: str | None = None
    key_factors: TextOrTexts | None = None
    recommendation: str | None = None
    cancelled: bool | None = None
    reason: str | None = None


class Reason(Payload, frozen=True):
    """Why not: of a cancel, a withdrawal, a rejection."""

    reason: str | None = None


class Chat(Payload, frozen=True):
    text: str | None = None
    message: str | None = None
    """The draft's name for `text`; no kept envelope has it alone."""
    format: str | None = None


class Status(Payload, frozen=True):
    status: str | None = None


class McpRequest(Payload, frozen=True):
    """A request, a notification, or the proposal of one."""

    method: str | None = None
    id: str | int | float | None = None
    jsonrpc: str | None = None
    params: dict[str, Any] | list[Any] | None = None


class McpResponse(Payload, frozen=True):
    id: str | int | float | None = None
    jsonrpc: str | None = None
    result: Any = None
    error: Any = None


class Grant(Payload, frozen=True):
    """The envelope's id is the id of the grant."""

    recipient: str
    capabilities: tuple[WrittenCapability, ...]
    reason: str | None = None


class Revoke(Payload, frozen=True):
    """Of one grant, or of what was granted of these."""

    recipient: str | None = None
    grant_id: str | None = None
    capabilities: tuple[WrittenCapability, ...] | None = None
    reason: str | None = None


class Invite(Payload, frozen=True):
    participant_id: str
    initial_capabilities: tuple[WrittenCapability, ...] | None = None
    email: str | None = None
    reason: str | None = None


class InviteAck(Payload, frozen=True):
    status: str
    participant_id: str | None = None
    token: str | None = None
    connection_url: str | None = None


class Kick(Payload, frozen=True):
    participant_id: str
    reason: str | None = None


class Present(msgspec.Struct, frozen=True, omit_defaults=True):
    """Somebody in the space, and what they may."""

    id: str
    capabilities: tuple[WrittenCapability, ...] = ()


class Welcome(Payload, frozen=True):
    you: Present
    participants: tuple[Present, ...] = ()
    active_streams: tuple[dict[str, Any], ...] = ()


class Presence(Payload, frozen=True):
    event: str
    """`join`, `leave`, `invited`."""
    participant: Present


class Failure(Payload, frozen=True):
    """What was refused: `error` is the code, `message` the sentence."""

    error: str
    message: str | None = None
    attempted_kind: str | None = None
    your_capabilities: tuple[WrittenCapability, ...] | None = None
