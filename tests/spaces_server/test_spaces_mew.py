"""MEW's own scenarios 4 (capabilities), 8 (grants) and 11 (chat controls), as its agents and scripts play them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scripted.gateway import Reply, Served
from tests.spaces_server.space_wire_kit import Body, joined, mew, post, served, token

TOOLS = {"kind": "mcp/request", "payload": {"method": "tools/*"}}

CAPABILITIES = {
    "calculator-agent": ["mcp/response", "system/*"],
    "coordinator": ["capability/grant", "capability/revoke", "system/*"],
    "limited-agent": ["chat", TOOLS],
}
GRANTS = {
    "test-agent": ["mcp/proposal", "mcp/response", "chat", "capability/grant-ack"],
    "file-server": ["mcp/response", "chat"],
    "test-client": ["chat", TOOLS, "mcp/response", "capability/grant", "system/*"],
}
CONTROLS = {"control-agent": ["*"], "test-client": ["chat", "system/*"]}


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    spaces: dict[str, Body] = {
        "capabilities": {"participants": CAPABILITIES},
        "grants": {"participants": GRANTS, "addresses": "advisory"},
        "grants-restrict": {"participants": GRANTS},
        "controls": {"participants": CONTROLS, "reasoning": "flag"},
        "controls-strict": {"participants": CONTROLS},
    }
    folder: Path = tmp_path_factory.mktemp("mew")
    with served(folder, spaces) as gateway:
        yield gateway


def post_mew(gateway: Served, space: str, participant: str, body: Any) -> Reply:
    """Post as MEW's scripts do: without the name of the space."""
    return post(gateway, f"/participants/{participant}/messages", body, token(space, participant))


def test_scenario_4_capabilities(scenarios: Served) -> None:
    space = "capabilities"
    with (
        mew(scenarios, space, "limited-agent") as limited,
        mew(scenarios, space, "coordinator"),
        mew(scenarios, space, "calculator-agent") as calculator,
    ):
        register = {"id": "register", "kind": "system/register", "payload": {"capabilities": []}}
        reply = post_mew(scenarios, space, "limited-agent", register)
        assert reply.status == 400
        assert "system/register is reserved for the gateway" in reply.json["message"]
        error = limited.until("system/error")
        assert error["correlation_id"] == ["register"]
        assert "system/register is reserved for the gateway" in error["payload"]["message"]

        for id, params in (("list", {}), ("add", {"name": "add", "arguments": {"a": 5, "b": 3}})):
            request = {
                "id": id,
                "kind": "mcp/request",
                "to": ["calculator-agent"],
                "payload": {"method": "tools/call" if params else "tools/list", "params": params},
            }
            assert post_mew(scenarios, space, "limited-agent", request).status == 200
            received = calculator.until("mcp/request")
            calculator.mew("mcp/response", {"result": 8}, to=[received["from"]], correlation_id=[received["id"]])
            assert limited.until("mcp/response")["correlation_id"] == [id]

        revoke = {
            "id": "revoke",
            "kind": "capability/revoke",
            "payload": {"recipient": "limited-agent", "capabilities": [TOOLS]},
        }
        assert post_mew(scenarios, space, "coordinator", revoke).status == 200
        assert limited.until("capability/revoke")["id"] == "revoke"
        assert post_mew(scenarios, space, "limited-agent", {**request, "id": "late"}).status == 403
        assert post_mew(scenarios, space, "coordinator", {"kind": "chat", "payload": {"text": "x"}}).status == 403


@pytest.mark.parametrize(("space", "is_proposal_seen"), [("grants", True), ("grants-restrict", False)])
def test_scenario_8_grants(scenarios: Served, space: str, is_proposal_seen: bool) -> None:
    """Its client reads a proposal that is addressed to another participant: that needs `addresses = "advisory"`."""
    call = {"name": "write_file", "arguments": {"path": "foo.txt", "content": "foo"}}
    with (
        mew(scenarios, space, "test-client") as client,
        mew(scenarios, space, "file-server") as files,
        mew(scenarios, space, "test-agent") as agent,
    ):
        proposal = agent.mew("mcp/proposal", {"method": "tools/call", "params": call}, to=["file-server"])
        assert files.until("mcp/proposal")["id"] == proposal["id"]
        with joined(scenarios, space, "test-client", query="?dialect=mew/v0.4") as sender:
            # The script sends its token in the upgrade, and joins again.
            sender.send(type="join", space=space, token=token(space, "test-client"), participantId="test-client")
            only_write = {"method": "tools/call", "params": {"name": "write_file"}}
            granted = {"kind": "mcp/request", "to": ["file-server"], "payload": only_write}
            grant = {"recipient": "test-agent", "capabilities": [granted], "reason": "Scenario 8 capability grant"}
            assert sender.say(kind="capability/grant", id="grant", to=["test-agent"], payload=grant)["seq"]
            fulfilment = {"jsonrpc": "2.0", "id": 200, "method": "tools/call", "params": call}
            sender.say(
                kind="mcp/request", id="fulfil", correlation_id=[proposal["id"]], to=["file-server"], payload=fulfilment
            )
        assert files.until("mcp/request")["correlation_id"] == [proposal["id"]]
        answer = {"jsonrpc": "2.0", "id": 200, "result": {"content": []}}
        assert files.mew("mcp/response", answer, to=["test-client"], correlation_id=["fulfil"])["seq"]

        assert agent.until("capability/grant")["from"] == "test-client"
        ack = agent.mew("capability/grant-ack", {"status": "accepted"}, correlation_id=["grant"])
        assert ack["from"] == "test-agent"
        direct = {"jsonrpc": "2.0", "id": "r", "method": "tools/call", "params": call}
        request = agent.mew("mcp/request", direct, to=["file-server"])
        assert request["kind"] == "mcp/request"
        assert files.until("mcp/request")["from"] == "test-agent"
        files.mew("mcp/response", {**answer, "id": "r"}, to=["test-agent"], correlation_id=[request["id"]])
        assert agent.until("mcp/response")["correlation_id"] == [request["id"]]

        assert client.until("capability/grant-ack")["from"] == "test-agent"
        assert is_proposal_seen == ("mcp/proposal" in [one["kind"] for one in client.seen])


@pytest.mark.parametrize(("space", "is_strict"), [("controls", False), ("controls-strict", True)])
def test_scenario_11_chat_controls(scenarios: Served, space: str, is_strict: bool) -> None:
    """Its agent writes the context into the payload, and cancels a reasoning that it has concluded."""
    with mew(scenarios, space, "test-client") as client, mew(scenarios, space, "control-agent") as agent:

        def chat_as_client(id: str, text: str) -> Body:
            body = {"id": id, "kind": "chat", "to": ["control-agent"], "payload": {"text": text}}
            assert post_mew(scenarios, space, "test-client", body).status == 200
            return agent.until("chat", id=id)

        chat_as_client("ack", "ack")
        agent.mew("chat/acknowledge", {"text": "Acknowledged."}, correlation_id=["ack"], to=["test-client"])
        chat_as_client("cancel", "cancel ack")
        agent.mew("chat/cancel", {"reason": "cancellation requested"}, correlation_id=["ack"], to=["test-client"])
        for kind in ("chat/acknowledge", "chat/cancel"):
            assert client.until(kind)["correlation_id"] == ["ack"]

        chat_as_client("reason", "start_reasoning")
        context = {"context": "reasoning-start-1"}
        agent.mew("reasoning/start", {**context, "hint": "Calculating detailed response"}, correlation_id=["reason"])
        agent.mew("reasoning/thought", {**context, "text": "Gathering supporting information"})
        agent.mew("reasoning/conclusion", {**context, "text": "Ready to proceed"})
        started = client.until("reasoning/start")
        assert started["correlation_id"] == ["reason"]
        assert '"context": "reasoning-start-1"' in json.dumps(started)
        assert client.until("reasoning/conclusion")["context"] == "reasoning-start-1"

        chat_as_client("stop", "cancel_reasoning")
        late = agent.mew("reasoning/cancel", {**context, "reason": "User requested stop"}, correlation_id=["stop"])
        if is_strict:
            assert late["payload"]["code"] == "context_ended"
        else:
            cancelled = client.until("reasoning/cancel")
            assert (cancelled["correlation_id"], cancelled["context"]) == (["stop"], "reasoning-start-1")
