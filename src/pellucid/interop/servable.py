"""Agents of Pellucid and of other libraries, as what can be served (`agent.run_input.ServableAgent`)."""

from __future__ import annotations

from typing import Any

from ..agent.run_input import ServableAgent


def servable(agent: Any) -> ServableAgent:
    """Return an agent in the form in which it is served.

    Args:
        agent: A `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.

    Raises:
        TypeError: `agent` is not an agent.
    """
    if isinstance(agent, ServableAgent):
        return agent
    if any(base.__module__.partition(".")[0] == "pydantic_ai" for base in type(agent).__mro__):
        from .pydantic_ai import PydanticAgent

        return PydanticAgent(agent, agent.name or "agent")
    raise TypeError(f"a {type(agent).__name__} is no agent: give a pellucid.Agent or a pydantic_ai.Agent")
