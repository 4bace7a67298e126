"""Connections of agents that are served: they are kept for the life of the application."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pydantic_ai
import pydantic_ai.models.test
import pytest

from pellucid import Agent, FunctionToolset, WrapperToolset, agui, responses
from pellucid.models.test import TestModel
from tests.agent.agui_app_kit import running, serving

pytestmark = pytest.mark.anyio


def now() -> str:
    return "noon"


class Watched(WrapperToolset):
    """A toolset that counts how often it is connected."""

    def __init__(self) -> None:
        super().__init__(FunctionToolset([now]))
        self.users, self.connections = 0, 0

    async def __aenter__(self) -> Watched:
        self.connections += not self.users
        self.users += 1
        return self

    async def __aexit__(self, *error: object) -> None:
        self.users -= 1


class Broken(Watched):
    """A toolset that can be connected only later."""

    async def __aenter__(self) -> Broken:
        self.connections += 1
        if self.connections == 1:
            raise ConnectionError("not yet")
        return self

    async def __aexit__(self, *error: object) -> None:
        pass


def ask_agui(toolset: Watched, **options: Any) -> None:
    with serving(Agent(TestModel(), toolsets=[toolset]), **options) as app:
        for number in range(2):
            assert app.events(thread=f"t{number}")[-1]["type"] == "RUN_FINISHED"


def ask_responses(toolset: Watched) -> None:
    with running(responses(Agent(TestModel(), toolsets=[toolset]))) as app:
        for _ in range(2):
            reply = app.request("POST", "/v1/responses", b'{"input": "?"}', {"Content-Type": "application/json"})
            assert b'"completed"' in reply.body


APPLICATIONS: list[Callable[[Watched], None]] = [ask_agui, ask_responses]


@pytest.mark.parametrize("ask", APPLICATIONS)
def test_an_application_keeps_the_connections_of_its_agent(ask: Callable[[Watched], None]) -> None:
    toolset = Watched()
    ask(toolset)
    assert (toolset.connections, toolset.users) == (1, 0)


@pytest.mark.parametrize("ask", APPLICATIONS)
def test_an_application_starts_although_a_toolset_cannot_be_connected(ask: Callable[[Watched], None]) -> None:
    toolset = Broken()
    ask(toolset)
    assert toolset.connections == 3  # at the start, and for each of two runs


async def test_an_application_without_lifespan_events_connects_for_each_run(tmp_path: Path) -> None:
    toolset = Watched()
    app: Any = agui(Agent(TestModel(), toolsets=[toolset]), seal_keys=tmp_path / "keys.json")
    body = {"threadId": "t", "runId": "r", "messages": [{"id": "u", "role": "user", "content": "?"}]}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        for _ in range(2):
            assert "RUN_FINISHED" in (await client.post("/", json=body)).text
    assert toolset.connections == 2


@pytest.mark.parametrize("serve", [agui, responses])
def test_the_connections_of_an_agent_of_pydantic_ai_stay_open(serve: Callable[..., Any], tmp_path: Path) -> None:
    states: list[str] = []

    class Theirs(pydantic_ai.toolsets.WrapperToolset[Any]):
        async def __aenter__(self) -> Any:
            states.append("in")
            return self

        async def __aexit__(self, *error: object) -> None:
            states.append("out")

    inner: Any = pydantic_ai.toolsets.FunctionToolset([now])
    agent = pydantic_ai.Agent(pydantic_ai.models.test.TestModel(), toolsets=[Theirs(inner)])
    with running(serve(agent, seal_keys=tmp_path / "keys.json")):
        assert states == ["in"]
    assert states == ["in", "out"]
