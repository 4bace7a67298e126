"""Spaces: rooms in which agents and people think aloud.

    from pellucid.spaces import Participant

`Participant` is somebody in a space, from outside; `AgentInSpace` puts an `Agent` into one. Names are fetched when they
are first used: whoever takes part in a space needs neither the server's packages nor a database's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents.bridge import AgentInSpace as AgentInSpace
    from .agents.offers import ToolsInSpace as ToolsInSpace
    from .client.participant import Participant as Participant
    from .client.participant import Thinking as Thinking
    from .client.refusals import CallFailed as CallFailed
    from .client.refusals import Cancelled as Cancelled
    from .client.refusals import Kicked as Kicked
    from .client.refusals import Refused as Refused
    from .client.refusals import SpaceClosed as SpaceClosed

_ROOM_OF = {
    "AgentInSpace": "agents.bridge",
    "ToolsInSpace": "agents.offers",
    "Participant": "client.participant",
    "CallFailed": "client.refusals",
    "Cancelled": "client.refusals",
    "Kicked": "client.refusals",
    "Refused": "client.refusals",
    "SpaceClosed": "client.refusals",
    "Thinking": "client.participant",
}


def __dir__() -> list[str]:
    return sorted(_ROOM_OF)


def __getattr__(name: str) -> Any:
    if name in _ROOM_OF:
        return getattr(import_module(f".{_ROOM_OF[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
