"""Spaces: rooms in which agents and people think aloud.

    from pellucid.spaces import Participant

`Participant` is somebody in a space, from outside; `AgentInSpace` puts an `Agent` into one. Names are fetched when they
are first used: whoever takes part in a space needs neither the server's packages nor a database's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .agents.bridge import AgentInSpace as AgentInSpace
    from .agents.tool_server import ToolsInSpace as ToolsInSpace
    from .client.errors import CallFailed as CallFailed
    from .client.errors import Cancelled as Cancelled
    from .client.errors import Kicked as Kicked
    from .client.errors import Refused as Refused
    from .client.errors import SpaceClosed as SpaceClosed
    from .client.participant import Participant as Participant
    from .client.participant import Thinking as Thinking

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "agents.bridge": ("AgentInSpace",),
        "agents.offers": ("ToolsInSpace",),
        "client.participant": ("Participant", "Thinking"),
        "client.refusals": ("CallFailed", "Cancelled", "Kicked", "Refused", "SpaceClosed"),
    },
)
