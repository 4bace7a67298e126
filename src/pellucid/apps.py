"""Agents as ASGI applications.

    from pellucid import Agent, agui

    app = agui(Agent("anthropic:claude-sonnet-4-0"))      # uvicorn module:app

The agent may be Pellucid's or Pydantic AI's. Only this module knows both kinds of agent and how they are served.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    system_messages: bool = False,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
) -> AGUIApp:
    """Make an ASGI application that serves runs of an agent to AG-UI clients.

    Args:
        agent: A `pellucid.Agent`, a `pydantic_ai.Agent`, or any other `ServableAgent`.
        path: The path that clients POST to.
        dialect: The dialect for clients that name neither a dialect nor a version (by default `0.x`).
        view: The least restricted view of the reasoning that a client may have: `raw`, `summary`, `sealed` or `hidden`.
        seal_keys: A key set, or the path of its file, which is created if it does not exist. None: the keys in the
            environment, or the gateway's own file.
        deps: The dependencies of each run, or a function that makes them from the run's `RunAgentInput`. If they are a
            dataclass with a field `state` (`StateDeps`), the field holds the client's state, converted to the type of
            its value here.
        system_messages: Whether clients may instruct the model with messages of the roles `system` and `developer`, and
            with `context`. By default such messages are left out, and `context` is a text of the user.
        hosts: Names under which the application may be used, in addition to addresses, localhost and the machine's
            name; `*` for all. The application has no keys, so a web page could otherwise use it under a name that its
            owner points at this machine (DNS rebinding).
        origins: Origins of other web pages that may use it, such as `https://app.example.com`; `*` for all.

    Returns:
        The application.

    Raises:
        ConfigError: The keys cannot be read.
        TypeError: `agent` is not an agent.
    """
    return AGUIApp(
        _servable(agent),
        path=path,
        dialect=dialect,
        view=view,
        seal_keys=seal_keys,
        deps=deps,
        system_messages=system_messages,
        hosts=hosts,
        origins=origins,
    )


def _servable(agent: Any) -> ServableAgent:
    if isinstance(agent, ServableAgent):
        return agent
    if any(base.__module__.partition(".")[0] == "pydantic_ai" for base in type(agent).__mro__):
        from .interop.pydantic_ai import PydanticAgent

        return PydanticAgent(agent, agent.name or "agent")
    raise TypeError(f"a {type(agent).__name__} is no agent: give a pellucid.Agent or a pydantic_ai.Agent")
