"""The dialects of AG-UI: a row for each generation of clients.

    1.0        @ag-ui/client from 1.0.0
    0.x        accepted by every client from 0.0.45, also by 1.0.0; for clients that do not send a version
    thinking   clients before 0.0.45, which have THINKING_* events and no reasoning messages
    proposal   the proposal of 2025, as written

A client must not receive what its version does not define: older clients end the run at an unknown event and at an
empty delta, and accept only text as the result of a tool.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

import msgspec

from ...errors import RequestError
from ...unicode import truncate
from .events import TYPE_OF
from .messages import PROTOCOL_VERSION

DialectName = Literal["1.0", "0.x", "thinking", "proposal"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one generation of clients sends and accepts."""

    name: DialectName
    event_types: frozenset[str]
    """The types of events that the dialect defines."""
    protocol_version: str | None = None
    """`protocolVersion` of RUN_STARTED."""
    reasoning: Literal["messages", "thinking"] = "messages"
    """How reasoning is sent: as messages within spans, or as THINKING_* events (without ids, in no history)."""
    reasoning_role: Literal["reasoning", "assistant"] = "reasoning"
    """`role` of REASONING_MESSAGE_START."""
    seal_carrier: Literal["event", "span", "none"] = "event"
    """What carries sealed tokens: an event for each message or call, REASONING_START, or nothing."""
    content_is_list: bool = False
    """Whether a reasoning message in a snapshot has a list as its content, and its token in `encryptedContent`."""
    has_metadata: bool = True
    """Whether reasoning messages have our `metadata`, with the form of the text. (The proposal has no such field.)"""
    empty_chunk_closes: bool = False
    """Whether a reasoning chunk with an empty delta ends its message. (In other dialects it is ignored.)"""
    reasoning_keeps_chunk: bool = False
    """Whether a reasoning message that is open in chunks stays open at other reasoning events."""
    has_media_results: bool = False
    """Whether the result of a tool may contain images, audio, video and documents."""
    outcomes: frozenset[str] = frozenset({"interrupt"})
    """The outcomes of RUN_FINISHED that the dialect defines."""
    has_subagents: bool = False
    """Whether the dialect has subagents, and `subagentRunId` on events."""
    message_roles: frozenset[str]
    """The roles of messages that the dialect defines."""
    ends_with_snapshot: bool = False
    """Whether a run ends with MESSAGES_SNAPSHOT, unless the request sets `snapshot`."""

    @property
    def has_seals(self) -> bool:
        """Whether sealed tokens can be sent."""
        return self.seal_carrier != "none"


_ROLES = frozenset({"developer", "system", "user", "assistant", "tool"})
_THINKING_EVENTS = frozenset(name for name in TYPE_OF if name.startswith("THINKING_"))
_V1_EVENTS = frozenset(TYPE_OF) - _THINKING_EVENTS
_V0_EVENTS = frozenset(name for name in _V1_EVENTS if not name.startswith("SUBAGENT_"))

DIALECTS: dict[DialectName, Dialect] = {
    "1.0": Dialect(
        name="1.0",
        event_types=_V1_EVENTS,
        protocol_version=PROTOCOL_VERSION,
        has_media_results=True,
        outcomes=frozenset({"success", "interrupt", "cancelled"}),
        has_subagents=True,
        message_roles=_ROLES | {"reasoning", "activity"},
    ),
    "0.x": Dialect(name="0.x", event_types=_V0_EVENTS, message_roles=_ROLES | {"reasoning", "activity"}),
    "thinking": Dialect(
        name="thinking",
        event_types=frozenset(name for name in _V0_EVENTS if not name.startswith(("REASONING_", "ACTIVITY_")))
        | _THINKING_EVENTS,
        reasoning="thinking",
        seal_carrier="none",
        message_roles=_ROLES,
    ),
    "proposal": Dialect(
        name="proposal",
        event_types=_V0_EVENTS - {"REASONING_ENCRYPTED_VALUE"},
        reasoning_role="assistant",
        seal_carrier="span",
        content_is_list=True,
        has_metadata=False,
        empty_chunk_closes=True,
        reasoning_keeps_chunk=True,
        message_roles=_ROLES | {"reasoning", "activity"},
        ends_with_snapshot=True,
    ),
}


def dialect_of(name: str, param: str | None = None) -> Dialect:
    """Return the dialect with this name.

    Args:
        name: The name.
        param: Where in the request the name is, for the error.

    Raises:
        RequestError: There is no dialect with this name.
    """
    for known in get_args(DialectName):
        if known == name:
            return DIALECTS[known]
    known_names = ", ".join(DIALECTS)
    raise RequestError(
        f"{truncate(name)!r} is not a dialect of AG-UI; it is one of {known_names}", code="unknown_dialect", param=param
    )


def dialect_for(protocol_version: str | None) -> Dialect:
    """Return the dialect for the `protocolVersion` of a request.

    Clients before 1.0 send none, and minor versions are compatible.

    Raises:
        RequestError: The version is no version, or of a later major version.
    """
    version = re.fullmatch(r"([01])(\.[0-9]+)*", protocol_version or "0")
    if version is None:
        raise RequestError(
            f"protocolVersion: {truncate(protocol_version or '')!r} is not a version that this server supports; send "
            f"{PROTOCOL_VERSION}, or leave it out",
            code="unsupported_version",
            param="protocolVersion",
        )
    return DIALECTS["1.0" if version[1] == "1" else "0.x"]
