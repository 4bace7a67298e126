"""What differs between the clients that there are, as data: a row each.

    1.0        @ag-ui/client from 1.0.0
    0.x        what every client from 0.0.45 on takes, 1.0.0 as well: who does not say its version gets this
    thinking   clients up to 0.0.39, which have THINKING_* events and no reasoning in their messages
    proposal   the proposal of 2025, to the letter

No client may be told what it has no word for: older ones end the run at an event that they do not know, or at an empty
delta, and take tools' results as text alone.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from ...errors import RequestError
from ...unicode import truncate
from .events import TYPE_OF
from .messages import PROTOCOL_VERSION

DialectName = Literal["1.0", "0.x", "thinking", "proposal"]


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    name: DialectName
    event_types: frozenset[str]
    """The events that it has."""
    protocol_version: str | None = None
    """What RUN_STARTED says of it."""
    reasoning: Literal["messages", "thinking"] = "messages"
    """Whether reasoning is messages within spans, or THINKING_* events, which have no ids and stay in no history."""
    reasoning_role: Literal["reasoning", "assistant"] = "reasoning"
    """Whose REASONING_MESSAGE_START is."""
    seal_carrier: Literal["event", "span", "none"] = "event"
    """Where what is sealed goes: an event for each message and call; REASONING_START; nowhere."""
    content_is_list: bool = False
    """Whether a reasoning message in a snapshot has a list as its content, and `encryptedContent`."""
    has_metadata: bool = True
    """Whether `metadata` says what the text of a reasoning message is. (The proposal has no such field.)"""
    empty_chunk_closes: bool = False
    """Whether a reasoning chunk with an empty delta ends its message. (Elsewhere it says nothing.)"""
    reasoning_keeps_chunk: bool = False
    """Whether a chunked reasoning message stays open at other reasoning events."""
    has_media_results: bool = False
    """Whether a tool's result may be images and the like, not text alone."""
    outcomes: frozenset[str] = frozenset({"interrupt"})
    """How RUN_FINISHED may say that it ended, beside nothing."""
    has_subagents: bool = False
    """Whether it knows subagents, and whose each event is."""
    message_roles: frozenset[str]
    """The messages that it has."""
    ends_with_snapshot: bool = False
    """Whether a run ends with all messages, unless asked otherwise."""


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
    """The dialect of this name. Raises `RequestError` if there is none; `param` says where the name stood."""
    for known in get_args(DialectName):
        if known == name:
            return DIALECTS[known]
    known_names = ", ".join(DIALECTS)
    raise RequestError(
        f"{truncate(name)!r} is not a dialect of AG-UI; it is one of {known_names}", code="unknown_dialect", param=param
    )


def dialect_for(protocol_version: str | None) -> Dialect:
    """The dialect for a client that says it speaks this version, or says nothing."""
    # A later version understands 1.0; what is no version at all is left to the oldest that says none.
    major = (protocol_version or "0").partition(".")[0]
    return DIALECTS["1.0" if major.isdecimal() and major.strip("0") else "0.x"]
