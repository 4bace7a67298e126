"""Codex takes part in a space, with one line of configuration: over HTTP and over `pellucid space mcp`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_coding_agents import SECONDS, Place, configured_codex
from tests.node_packages import installed
from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import get, served, token

pytestmark = [pytest.mark.timeout(4 * SECONDS), pytest.mark.needs("node", "long")]

DONE = "I took part in the space."
PARTICIPANT = "codex"


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Gateway with the scripted models and a space."""
    rooms: dict[str, Any] = {"room": {"participants": [PARTICIPANT, "watcher"]}}
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
        if len(results) < len(steps):
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
    """Return the context that the result of a tool names, however Codex wraps it."""
    unescaped = text.replace("\\", "")
    return unescaped.partition('"context":"')[2].partition('"')[0] or None


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_codex_reads_reasons_and_talks_in_a_space(
    gateway: Served, upstream: Upstream, tmp_path: Path, way: str
) -> None:
    space_token = token("room", PARTICIPANT)
    if way == "http":
        headers = json.dumps(f"Bearer {space_token}")
        server = f'url = "{gateway.url}/spaces/room/mcp"\nhttp_headers = {{ Authorization = {headers} }}'
    else:
        program, *arguments = PELLUCID
        server = f"command = {json.dumps(program)}\nargs = {json.dumps([*arguments, 'space', 'mcp', 'room'])}"
        server += f'\nenv = {{ PELLUCID_SPACE_URL = "{gateway.url}", PELLUCID_SPACE_TOKEN = "{space_token}" }}'
    packages = installed(Path(__file__).parent / "agents") / "node_modules"
    ask = configured_codex(
        Place(tmp_path, packages, gateway.url),
        f"[mcp_servers.space]\nrequired = true\nstartup_timeout_sec = {SECONDS}\n{server}\n",
    )
    chat = f"Codex over {way} was here."
    shown = ask(upstream.plays(takes_part(chat)), False)
    assert DONE in shown, shown[-3000:]

    reply = get(gateway, "/spaces/room/envelopes?limit=500", token("room", "watcher")).json
    mine = [one for one in reply["envelopes"] if one["from"] == PARTICIPANT][-3:]
    assert [one["kind"] for one in mine] == ["reasoning/start", "reasoning/conclusion", "chat"]
    assert mine[1]["context"] == mine[0]["id"]
    assert mine[2]["payload"]["text"] == chat
    presence = [
        one["payload"]["event"]
        for one in reply["envelopes"]
        if one["kind"] == "system/presence" and one["payload"]["participant"]["id"] == PARTICIPANT
    ]
    assert presence[0] == "join"
