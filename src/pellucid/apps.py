"""Agents as applications, in three lines:

    from pellucid import Agent, agui

    app = agui(Agent("anthropic:claude-sonnet-4-0"))      # uvicorn module:app

Any agent will do, of ours or of Pydantic AI; this is the one place that knows of both, and of how they are served.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .agent.run_input import ServableAgent
from .asgi.agui import AGUIApp
from .protocols.agui import DialectName
from .sealing import Keys
from .view import View


def agui(
    agent: Any,
    *,
    path: str = "/",
    dialect: DialectName | None = None,
    view: View = "raw",
    seal_keys: Keys | str | Path | None = None,
    deps: Any = None,
) -> AGUIApp:
    """An ASGI application that answers AG-UI's clients with runs of `agent`.

    `agent`: a `pellucid.Agent`, a `pydantic_ai.Agent`, or whatever else is `ServableAgent`.
    `path`: where it is POSTed to.
    `dialect`: what clients are taken for that say neither which dialect nor which version they speak (`0.x`).
    `view`: the most that anybody may see of the reasoning: `raw`, `summary`, `sealed` or `hidden`.
    `seal_keys`: a key set, or the path of its file, which is made if it is not there. None: the environment's, or the
    file that the gateway has as well.
    `deps`: the dependencies of each run, or a function that makes them of the run's `RunAgentInput`. Where they are a
    dataclass with a field `state` (`StateDeps`), that holds the client's state, as the type of what it holds here.

    Raises `ConfigError` for keys that cannot be read, `TypeError` for what is no agent.
    """
    return AGUIApp(_servable(agent), path=path, dialect=dialect, view=view, seal_keys=seal_keys, deps=deps)


def _servable(agent: Any) -> ServableAgent:
    if isinstance(agent, ServableAgent):
        return agent
    if any(base.__module__.partition(".")[0] == "pydantic_ai" for base in type(agent).__mro__):
        from .interop.pydantic_ai import PydanticAgent

        return PydanticAgent(agent, agent.name or "agent")
    raise TypeError(f"a {type(agent).__name__} is no agent: give a pellucid.Agent or a pydantic_ai.Agent")
