"""A participant that knows only chat and MCP, in a space where others reason."""

from __future__ import annotations

from tests.scripted.gateway import Served
from tests.spaces_server.space_wire_kit import Body, MewClient, ids_of, joined, mew

UNDERSTOOD = ("chat", "mcp/request", "mcp/response", "mcp/proposal", "mcp/reject", "mcp/withdraw")


class ChatParticipant:
    """Client that understands a welcome, chats and MCP, and skips everything else. It offers one tool."""

    def __init__(self, client: MewClient) -> None:
        self.client = client
        self.read_envelopes: list[Body] = []
        self.skipped_count = 0

    def next(self) -> Body:
        while True:
            one = self.client.next()
            if one["kind"] not in UNDERSTOOD:
                self.skipped_count += 1
                continue
            if one["from"] != self.client._participant:
                self.read_envelopes.append(one)
                return one

    def serve(self, result: Body) -> Body:
        """Answer the next request that is addressed to it."""
        while True:
            one = self.next()
            if one["kind"] == "mcp/request" and self.client._participant in one.get("to", []):
                answer = {"jsonrpc": "2.0", "id": one["payload"]["id"], "result": result}
                self.client.mew("mcp/response", answer, to=[one["from"]], correlation_id=[one["id"]])
                return one


def test_a_chat_only_client_works_in_a_reasoning_space(gateway: Served, room: str) -> None:
    with mew(gateway, room, "granter") as tools, joined(gateway, room, "agent") as agent:
        chat_participant = ChatParticipant(tools)
        assert tools.seen[0]["kind"] == "system/welcome"
        chat_participant.client.mew("chat", {"text": "Should we deploy?"})
        question = agent.until("chat")

        # The agent reasons, and calls the other's tool from its context.
        agent.say(kind="reasoning/start", id="r-1", correlation_id=[question["id"]], payload={"message": "Checking"})
        agent.say(kind="reasoning/thought", context="r-1", payload={"message": "What tools are there?"})
        calls: list[tuple[str, Body, Body]] = [
            ("tools/list", {}, {"tools": [{"name": "scan", "inputSchema": {"type": "object"}}]}),
            ("tools/call", {"name": "scan"}, {"content": [{"type": "text", "text": "clean"}]}),
        ]
        for number, (method, params, result) in enumerate(calls):
            call = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            sent = agent.say(kind="mcp/request", context="r-1", to=["granter"], payload=call)
            request = chat_participant.serve(result)
            assert (request["id"], request["context"]) == (sent["id"], "r-1")
            answer = agent.until("mcp/response")
            assert ids_of(answer) == [sent["id"]]
            assert answer["payload"]["result"] == result

        # A proposal is fulfilled or rejected by a participant who may send it.
        agent.say(kind="mcp/proposal", id="p-1", context="r-1", payload={"method": "tools/call", "params": {}})
        proposal = chat_participant.next()
        assert proposal["id"] == "p-1"
        chat_participant.client.mew("mcp/reject", {"reason": "unsafe"}, correlation_id=["p-1"])
        assert agent.until("mcp/reject")["payload"] == {"reason": "unsafe"}

        agent.say(kind="reasoning/conclusion", context="r-1", payload={"message": "Clean"})
        agent.say(kind="chat", correlation_id=[question["id"]], payload={"text": "Deploy."})
        final = chat_participant.next()
        assert (final["payload"]["text"], ids_of(final)) == ("Deploy.", [question["id"]])
        assert chat_participant.skipped_count >= 3, "reasoning was skipped"


def test_mcp_envelopes_are_delivered_in_every_view(gateway: Served, room: str) -> None:
    with (
        joined(gateway, room, "human", query="?view=main") as main,
        joined(gateway, room, "granter", query="?view=collapsed") as collapsed,
        joined(gateway, room, "agent") as agent,
    ):
        agent.say(kind="reasoning/start", id="r-1", payload={"message": "Hm"})
        agent.say(kind="reasoning/thought", id="t-1", context="r-1", payload={"message": "secret step"})
        agent.say(kind="mcp/request", id="c-1", context="r-1", payload={"method": "tools/list", "id": 1})
        agent.say(kind="mcp/proposal", id="p-1", context="r-1", payload={"method": "x"})
        agent.say(kind="reasoning/thought", id="t-2", context="r-1", to=["human"], payload={"message": "for you"})
        agent.say(kind="reasoning/conclusion", id="e-1", context="r-1", payload={"message": "So"})
        agent.say(kind="chat", id="a-1", payload={"text": "done"})
        received_ids = {}
        for name, client in (("main", main), ("collapsed", collapsed)):
            client.answer("a-1")
            received_ids[name] = [one["id"] for one in client.seen if one["from"] == "agent"]
    assert received_ids["main"] == ["c-1", "p-1", "a-1"]
    assert received_ids["collapsed"] == ["r-1", "c-1", "p-1", "e-1", "a-1"]
