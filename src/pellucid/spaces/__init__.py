"""Spaces: shared logs in which agents and people exchange messages and reasoning.

    from pellucid.spaces import Participant

`Participant` is a client of a space; `AgentInSpace` runs an `Agent` as a participant, `FunctionInSpace` an agent of
another framework (`adapters`). Names are imported on first use,
because a participant needs neither the server's packages nor a database's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .adapters.agent_function import FunctionInSpace as FunctionInSpace
    from .adapters.agent_function import SpaceTurn as SpaceTurn
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
        "adapters.agent_function": ("FunctionInSpace", "SpaceTurn"),
        "agents.bridge": ("AgentInSpace",),
        "agents.tool_server": ("ToolsInSpace",),
        "client.participant": ("Participant", "Thinking"),
        "client.errors": ("CallFailed", "Cancelled", "Kicked", "Refused", "SpaceClosed"),
    },
)
