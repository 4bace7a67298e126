"""Codex and Claude Code take part in a space, with one line of configuration: over HTTP and `pellucid space mcp`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_coding_agents import SECONDS, Ask, Place, claude_code, configured_codex
from tests.node_packages import installed
from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import get, served, token

pytestmark = [pytest.mark.timeout(4 * SECONDS), pytest.mark.needs("node", "long")]

DONE = "I took part in the space."
AGENTS = ("codex", "claude")


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Gateway with the scripted models and a space."""
    rooms: dict[str, Any] = {"room": {"participants": [*AGENTS, "watcher"]}}
    providers = {"vllm": {"profile": "vllm", "base_url": upstream.url}}
    with served(tmp_path_factory.mktemp("tokens"), rooms, providers=providers, limits={"retries": 0}) as running:
        yield running


def takes_part(chat: str) -> Script:
    """Return a script that reads the space, reasons in it, says something, and answers."""

    async def script(call: Call) -> None:
        results = [message for message in call.body["messages"] if message["role"] == "tool"]
        tools = [tool["function"]["name"] for tool in call.body.get("tools", [])]
        context = results and find_context(str(results[-1]["content"]))
        steps: list[tuple[str, dict[str, Any]]] = [
            ("read", {}),
            ("think", {"step": "start", "text": "What is this about?"}),
            ("think", {"step": "conclusion", "text": "A test", "context": context}),
            ("say", {"text": chat}),
        ]
        await call.head()
        if not any("space" in name for name in tools):
            await call.event(delta("stop", content="A title"))
        elif len(results) < len(steps):
            tool, arguments = steps[len(results)]
            name = next(name for name in tools if "space" in name and name.endswith(tool))
            function = {"name": name, "arguments": json.dumps(arguments)}
            await call.event(
                delta("tool_calls", tool_calls=[{"index": 0, "id": f"call_{len(results)}", "function": function}])
            )
        else:
            await call.event(delta("stop", content=DONE))
        await call.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}})
        await call.event(b"[DONE]")
        await call.end()

    return script


def find_context(text: str) -> str | None:
    """Return the context that the result of a tool names, however an agent wraps it."""
    unescaped = text.replace("\\", "")
    return unescaped.partition('"context":"')[2].partition('"')[0] or None


def codex_in_space(place: Place, way: str, bearer: str) -> Ask:
    if way == "http":
        headers = json.dumps(f"Bearer {bearer}")
        server = f'url = "{place.url}/spaces/room/mcp"\nhttp_headers = {{ Authorization = {headers} }}'
    else:
        program, *arguments = PELLUCID
        server = f"command = {json.dumps(program)}\nargs = {json.dumps([*arguments, 'space', 'mcp', 'room'])}"
        server += f'\nenv = {{ PELLUCID_SPACE_URL = "{place.url}", PELLUCID_SPACE_TOKEN = "{bearer}" }}'
    return configured_codex(place, f"[mcp_servers.space]\nrequired = true\nstartup_timeout_sec = {SECONDS}\n{server}\n")


def claude_in_space(place: Place, way: str, bearer: str) -> Ask:
    server: dict[str, Any] = {"type": "http", "url": f"{place.url}/spaces/room/mcp"}
    server["headers"] = {"Authorization": f"Bearer {bearer}"}
    if way == "stdio":
        program, *arguments = PELLUCID
        server = {"command": program, "args": [*arguments, "space", "mcp", "room"]}
        server["env"] = {"PELLUCID_SPACE_URL": place.url, "PELLUCID_SPACE_TOKEN": bearer}
    # Otherwise its first request may have no tools of the server, and `--print` has no second one.
    server["alwaysLoad"] = True
    added = place.run(["@anthropic-ai/claude-code-linux-x64/claude", "mcp", "add-json", "space", json.dumps(server)])
    assert "Added" in added, added
    return claude_code(place, MCP_CONNECTION_NONBLOCKING="false", MCP_CONNECT_TIMEOUT_MS=f"{SECONDS * 1000}")


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_reads_reasons_and_talks_in_a_space(
    gateway: Served, upstream: Upstream, tmp_path: Path, agent: str, way: str
) -> None:
    packages = installed(Path(__file__).parent / "agents") / "node_modules"
    in_space = codex_in_space if agent == "codex" else claude_in_space
    ask = in_space(Place(tmp_path, packages, gateway.url), way, token("room", agent))
    chat = f"{agent} over {way} was here."
    shown = ask(upstream.plays(takes_part(chat)), False)
    assert DONE in shown, shown[-3000:]

    reply = get(gateway, "/spaces/room/envelopes?limit=500", token("room", "watcher")).json
    mine = [one for one in reply["envelopes"] if one["from"] == agent][-3:]
    assert [one["kind"] for one in mine] == ["reasoning/start", "reasoning/conclusion", "chat"]
    assert mine[1]["context"] == mine[0]["id"]
    assert mine[2]["payload"]["text"] == chat
    presence = [
        one["payload"]["event"]
        for one in reply["envelopes"]
        if one["kind"] == "system/presence" and one["payload"]["participant"]["id"] == agent
    ]
    assert presence[0] == "join"
