"""CopilotKit's runtimes in front of `pellucid.agui(agent)`, and pages that use them (see `node_clients.mjs`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pellucid import Agent, agui
from pellucid.models import Model
from pellucid.providers.profiles import builtin_profiles
from pellucid.upstream import Limits
from pellucid.view import View
from tests.agent.agui_app_kit import running
from tests.clients.clients_kit import ANSWER, THOUGHT, thinks, thinks_for_ever
from tests.clients.matrix_kit import COPILOTKIT, SCRIPTS, SECONDS, run_clients
from tests.clients.node_kit import NODE_CLIENTS, with_node_clients
from tests.scripted import Call, Upstream
from tests.waiting import wait_until

HERE = Path(__file__).parent
TURNS = [
    ("streamed", thinks, []),
    ("tools", SCRIPTS["tools"][0], []),
    ("tools", SCRIPTS["tools"][1], ["First Oslo."]),
    ("tools", thinks, ["First Oslo.", "Then Rome."]),
    ("next_turn", thinks, []),
    ("next_turn", thinks, [THOUGHT]),
    ("stopped", thinks_for_ever, []),
    ("stopped", thinks, []),  # reasoning that broke off goes to no model
]
"""The calls of the model: the scenario, what it does, and the reasoning that comes back to it."""


def thoughts_in(call: Call) -> list[str | None]:
    return [message.get("reasoning") for message in call.body["messages"] if message["role"] == "assistant"]


@pytest.mark.timeout(SECONDS)
@pytest.mark.needs("node", "long")
@pytest.mark.parametrize("view", ["raw", "sealed"])
@pytest.mark.parametrize("runtime", COPILOTKIT)
def test_page_of_an_agent(runtime: str, view: View, upstream: Upstream, tmp_path: Path) -> None:
    # A page that sees no reasoning cannot stop the model in it.
    turns = [turn for turn in TURNS if view == "raw" or turn[0] != "stopped"]
    name = upstream.plays(*(script for _, script, _ in turns))
    model = Model(name, builtin_profiles()["vllm"], base_url=upstream.url, limits=Limits(retries=0))
    application = agui(Agent(model), view=view, path="/ag-ui")

    async def without_query(scope: Any, receive: Any, send: Any) -> None:
        """Serve the agent, which has one model, whichever the script of the clients names."""
        await application({**scope, "query_string": b""}, receive, send)

    scenarios = dict.fromkeys((scenario for scenario, _, _ in turns), name)
    directory = with_node_clients(tmp_path, HERE / "copilotkit")
    with running(without_query) as app:
        measured = run_clients(NODE_CLIENTS, {runtime: scenarios}, app.url, directory)[runtime]
        calls = upstream.calls(name)
        for call in [call for (_, script, _), call in zip(turns, calls, strict=True) if script is thinks_for_ever]:
            wait_until(call.connection.closed.is_set, "the model that was stopped is disconnected")
    shown = {"thought": THOUGHT if view == "raw" else "", "text": ANSWER}
    assert measured.values == {**dict.fromkeys(scenarios, ANSWER), "streamed": shown}
    assert [thoughts_in(call) for call in calls] == [returned for _, _, returned in turns]
