"""Types of the payloads of known kinds.

A field that is not named here is stored and not checked. A named field that is absent or null is None. Where senders
write either one string or a list of strings, both are accepted (`TextOrTexts`).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

Probability: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A number from 0 to 1."""

TextOrTexts: TypeAlias = str | tuple[str, ...]
WrittenCapability: TypeAlias = str | dict[str, Any]
"""A capability as it is written: a pattern of kinds, or an object with `kind` and `payload`."""


class Payload(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """Base of all payloads, and the payload of unknown kinds."""


class Uncertainty(msgspec.Struct, frozen=True):
    """A confidence, as a range."""

    low: Probability
    high: Probability
    source: str | None = None
    """Where the estimate comes from: `model`, `tests`, …"""

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("`low` must not be more than `high`")


class ReasoningMetadata(Payload, frozen=True):
    """`metadata` of an envelope of reasoning."""

    approach: str | None = None
    estimated_duration: str | float | None = None
    """As its sender wrote it: `30s`."""
    confidence: Probability | None = None
    uncertainty: Uncertainty | None = None
    compresses: tuple[str, ...] | None = None
    """Ids of the thoughts that this one summarises."""


class ReasoningStep(Payload, frozen=True):
    """Payload of any envelope in a context of reasoning."""

    message: str | None = None
    content: str | None = None
    confidence: Probability | None = None
    uncertainty: Uncertainty | None = None
    metadata: ReasoningMetadata | None = None
    step: str | None = None
    """Name of the step of the context's template."""


class Start(ReasoningStep, frozen=True):
    """Payload of `reasoning/start`."""

    goal: str | None = None
    triggered_by: str | None = None
    approach: str | None = None
    references: TextOrTexts | None = None
    """Ids of other messages, or `space:NAME/ID`."""
    template: str | None = None


class Thought(ReasoningStep, frozen=True):
    """Payload of `reasoning/thought`."""

    reasoning: str | None = None


class Question(ReasoningStep, frozen=True):
    """Payload of `reasoning/question`."""

    questions: TextOrTexts | None = None


class Observation(ReasoningStep, frozen=True):
    """Payload of `reasoning/observation`."""

    severity: str | None = None
    components: TextOrTexts | None = None
    details: Any = None


class Hypothesis(ReasoningStep, frozen=True):
    """Payload of `reasoning/hypothesis`."""

    hypothesis: str | None = None
    evidence: Any = None


class Conclusion(ReasoningStep, frozen=True):
    """Payload of `reasoning/conclusion`."""

    decision: str | None = None
    key_factors: TextOrTexts | None = None
    recommendation: str | None = None
    cancelled: bool | None = None
    reason: str | None = None


class Reason(Payload, frozen=True):
    """The reason of a cancel, a withdrawal or a rejection."""

    reason: str | None = None


class Share(Payload, frozen=True):
    """Payload of `reasoning/share`: who is added to the audience of its context."""

    participants: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=256)]
    reason: str | None = None


class Chat(Payload, frozen=True):
    """Payload of `chat`."""

    text: str | None = None
    message: str | None = None
    """The name of `text` in the draft. No stored envelope has it alone."""
    format: str | None = None


class Acknowledgement(Payload, frozen=True):
    """Payload of acknowledgements."""

    status: str | None = None


class McpRequest(Payload, frozen=True):
    """An MCP request or notification, or the proposal of one."""

    method: str | None = None
    id: str | int | float | None = None
    jsonrpc: str | None = None
    params: dict[str, Any] | list[Any] | None = None


class McpResponse(Payload, frozen=True):
    """An MCP response: a result or an error."""

    id: str | int | float | None = None
    jsonrpc: str | None = None
    result: Any = None
    error: Any = None


class Grant(Payload, frozen=True):
    """A grant. The envelope's id is the id of the grant."""

    recipient: str
    capabilities: tuple[WrittenCapability, ...]
    reason: str | None = None


class Revoke(Payload, frozen=True):
    """Ends one grant, or everything that was granted of the listed capabilities."""

    recipient: str | None = None
    grant_id: str | None = None
    capabilities: tuple[WrittenCapability, ...] | None = None
    reason: str | None = None


class Invite(Payload, frozen=True):
    """Payload of `space/invite`."""

    participant_id: str
    initial_capabilities: tuple[WrittenCapability, ...] | None = None
    email: str | None = None
    reason: str | None = None


class InviteAck(Payload, frozen=True):
    """The result of an invitation."""

    status: str
    participant_id: str | None = None
    token: str | None = None
    connection_url: str | None = None


class Kick(Payload, frozen=True):
    """Payload of `space/kick`."""

    participant_id: str
    reason: str | None = None


class Renew(Payload, frozen=True):
    """Payload of `space/renew`."""

    reason: str | None = None


class Limit(Payload, frozen=True):
    """The notice that a limit of agents' talk is reached."""

    limit: str
    """`turns`, `seconds` or `tokens`."""
    allowed: float
    used: float
    message: str | None = None


class Present(msgspec.Struct, frozen=True, omit_defaults=True):
    """A participant in the space, with its capabilities."""

    id: str
    capabilities: tuple[WrittenCapability, ...] = ()


class Welcome(Payload, frozen=True):
    """What a participant learns when it joins, and when its rights change."""

    you: Present
    participants: tuple[Present, ...] = ()
    active_streams: tuple[dict[str, Any], ...] = ()


class Presence(Payload, frozen=True):
    """A participant joined, left or was invited."""

    event: str
    """`join`, `leave` or `invited`."""
    participant: Present


class Failure(Payload, frozen=True):
    """A refusal: `error` is the code, `message` the sentence."""

    error: str
    message: str | None = None
    attempted_kind: str | None = None
    your_capabilities: tuple[WrittenCapability, ...] | None = None
