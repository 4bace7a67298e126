"""Fixtures: agents with a scripted model behind a real socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pellucid import Agent
from pellucid.models import Model
from pellucid.providers.profiles import builtin_profiles
from pellucid.upstream import Limits
from tests.agent.agent_kit import MakeAgent
from tests.agui import agui_client, agui_node
from tests.agui.agui_client import Converse
from tests.scripted import Call, Script, Upstream


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["python", pytest.param("packages", marks=pytest.mark.needs("node"))])
def converse(request: pytest.FixtureRequest) -> Converse:
    """Play conversations with AG-UI clients: the project's own in Python, and the official packages."""
    return agui_node.converse if request.param == "packages" else agui_client.converse


@pytest.fixture
def make_agent(upstream: Upstream) -> MakeAgent:
    """`agent, get_calls = make_agent(script, …, tools=[…])`; `get_calls()` returns the requests to the model."""

    def make(*scripts: Script, **options: Any) -> tuple[Agent[Any, Any], Callable[[], list[Call]]]:
        name = upstream.plays(*scripts)
        model = Model(name, builtin_profiles()["vllm"], base_url=upstream.url, limits=Limits(retries=0))
        return Agent(model, **options), lambda: upstream.calls(name)

    return make
