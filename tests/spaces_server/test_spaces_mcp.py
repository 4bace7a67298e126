"""A space as an MCP server, used by the official MCP client."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import MCPError

import pellucid.spaces.agents.space_tools as space_tools
from pellucid.envelopes import Envelope
from pellucid.server.spaces import mcp as sessions
from pellucid.spaces import Refused
from tests.cases import Cases
from tests.replicas.replicas_kit import replicas
from tests.scripted.commands import PELLUCID
from tests.scripted.gateway import Gateway, Served
from tests.spaces_server.space_mcp_kit import (
    Era,
    Way,
    call,
    failure,
    mcp_client,
    open_stream,
    participant,
    text_of,
)
from tests.spaces_server.space_wire_kit import spaces_of, token
from tests.waiting import HOUR_SECONDS, LIMIT_SECONDS, eventually

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("way", ["http", "stdio"])
@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_is_present_reasons_and_talks(gateway: Served, room: str, way: Way, era: Era) -> None:
    async with participant(gateway, room, "human") as human:
        async with mcp_client(gateway, room, "agent", way=way, era=era) as client:
            assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
            await eventually(lambda: "agent" in human.participants)
            question = await human.say("Should we deploy?")
            seen = await call(client, "read")
            assert (seen["space"], seen["you"], seen["participants"]) == (room, "agent", ["human"])
            assert seen["envelopes"][-1]["payload"] == {"text": "Should we deploy?"}
            assert seen["next_after_seq"] == question.seq

            start = await call(client, "think", step="start", text="The change", answers=[question.id])
            thought = await call(client, "think", step="thought", text="Auth", context=start["context"], confidence=0.4)
            await call(client, "think", step="conclusion", text="No", context=start["context"])
            sent = await call(client, "say", text="Do not deploy.", answers=[question.id, start["id"]])
            received: list[Envelope] = []
            while not received or received[-1].id != sent["id"]:
                received.append(await anext(human))
            steps = [one for one in received if one.seq > question.seq]
            assert [(one.sender, one.kind, one.context) for one in steps] == [
                ("agent", "reasoning/start", None),
                ("agent", "reasoning/thought", start["context"]),
                ("agent", "reasoning/conclusion", start["context"]),
                ("agent", "chat", None),
            ]
            assert steps[1].payload == {"message": "Auth", "confidence": 0.4}
            assert steps[1].id == thought["id"]
            assert steps[-1].correlation_id == (question.id, start["id"])

            waiting = asyncio.create_task(call(client, "wait", after_seq=seen["next_after_seq"]))
            await human.say("to nobody in particular")
            thanks = await human.say("thank you", answers=sent["id"])
            received_now = await waiting
            assert [one["id"] for one in received_now["envelopes"]] == [thanks.id]
            assert (received_now["next_after_seq"], received_now["timed_out"]) == (thanks.seq, False)
        if (way, era) != ("http", "auto"):  # without a session, nothing tells that the client is gone
            await eventually(lambda: "agent" not in human.participants)


async def test_the_tools_say_what_they_do(gateway: Served, room: str) -> None:
    async with mcp_client(gateway, room, "agent") as client:
        assert client.instructions is not None
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["read", "say", "think", "propose", "answer", "wait"]
        for name, tool in tools.items():
            assert tool.description
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (name in ("read", "wait"))
            assert tool.output_schema is not None
            assert tool.output_schema["type"] == tool.input_schema["type"] == "object"
            for field, schema in tool.input_schema["properties"].items():
                assert schema["description"], (name, field)
                assert "type" in schema or field == "result"


async def test_a_refusal_is_a_tool_error_in_the_words_of_the_space(gateway: Served, room: str) -> None:
    async with participant(gateway, room, "watcher") as me:
        with pytest.raises(Refused) as refused:
            await me.send("reasoning/start", {"message": "Hm"})
    async with mcp_client(gateway, room, "watcher") as client:
        message = await failure(client, "think", step="start", text="Hm")
        assert message == f"{refused.value.info.message} (capability_violation)"
        sent = await call(client, "say", text="I may do this")
        assert sent["seq"]


async def test_only_an_audience_reads_a_context_until_it_is_widened(gateway: Served, room: str) -> None:
    async with mcp_client(gateway, room, "agent") as agent, mcp_client(gateway, room, "granter") as other:
        start = await call(agent, "think", step="start", text="Between us", to=["watcher"])
        await call(agent, "think", step="thought", text="secret one", context=start["context"])
        assert "secret" not in json.dumps(await call(other, "read"))
        message = await failure(other, "think", step="thought", text="Me too", context=start["context"])
        assert "(context_unknown)" in message
        await call(agent, "think", step="share", text="You too", context=start["context"], to=["granter"])
        await call(agent, "think", step="thought", text="secret two", context=start["context"])
        seen = json.dumps(await call(other, "read"))
        assert "secret two" in seen
        assert "secret one" not in seen
        contexts = json.loads((await other.read_resource(f"space://{room}/contexts")).contents[0].text)  # type: ignore[union-attr]
        assert "secret one" not in json.dumps(contexts)


async def test_proposals_requests_and_grants_are_answered(gateway: Served, room: str) -> None:
    async with (
        participant(gateway, room, "granter") as tools,
        participant(gateway, room, "watcher") as watcher,
        mcp_client(gateway, room, "human") as human,
        mcp_client(gateway, room, "agent") as agent,
    ):
        proposal = await call(agent, "propose", tool="deploy", arguments={"to": "production"}, to=["human"])
        [seen] = (await call(human, "wait", after_seq=0))["envelopes"]
        assert (seen["id"], seen["kind"]) == (proposal["id"], "mcp/proposal")
        assert seen["payload"]["params"] == {"name": "deploy", "arguments": {"to": "production"}}

        assert "`respond` is for mcp/request" in await failure(human, "answer", seq=seen["seq"], action="respond")
        assert "(envelope_not_found)" in await failure(human, "answer", seq=10**9, action="reject")
        request = await call(human, "answer", seq=seen["seq"], action="fulfil", to=["granter"])
        received = await anext(one async for one in tools if one.kind == "mcp/request")
        assert (received.id, received.correlation_id) == (request["id"], (proposal["id"],))
        assert received.to == ("granter", "agent")
        await tools.respond(received, {"content": [{"type": "text", "text": "deployed"}]})
        for one in (human, agent):  # who sent it, and who proposed it
            received_now = await call(one, "wait", after_seq=request["seq"])
            assert [x["kind"] for x in received_now["envelopes"]] == ["mcp/response"]

        rejected = await call(agent, "propose", tool="deploy", arguments={}, to=["human"])
        await call(human, "answer", seq=rejected["seq"], action="reject", reason="unsafe")
        [rejection] = (await call(agent, "wait", after_seq=rejected["seq"]))["envelopes"]
        assert (rejection["kind"], rejection["payload"]) == ("mcp/reject", {"reason": "unsafe"})

        allowed = await watcher.send("chat", {"text": "may I?"})
        granted = await call(agent, "propose", tool="scan", arguments={})
        await call(human, "answer", seq=granted["seq"], action="grant", reason="go on")
        [grant] = (await call(agent, "wait", after_seq=allowed.seq))["envelopes"]
        assert grant["payload"]["capabilities"] == [
            {"kind": "mcp/request", "payload": {"method": "tools/call", "params": {"name": "scan"}}}
        ]
        await call(agent, "answer", seq=grant["seq"], action="accept")
        for pattern in ("*", "/.*/"):
            greedy = await call(agent, "propose", tool=pattern, arguments={})
            result = await human.call_tool("answer", {"seq": greedy["seq"], "action": "grant"})
            assert result.is_error
            assert "not_one_call" in str(result.content)

        request_task = asyncio.create_task(tools.call("lookup", {"q": 1}, to="agent"))
        received_now = await call(agent, "wait", after_seq=grant["seq"])
        assert received_now["envelopes"][-1]["kind"] == "mcp/request"
        await call(agent, "answer", seq=received_now["envelopes"][-1]["seq"], action="respond", result={"found": 3})
        assert (await request_task)["content"] == [{"type": "text", "text": '{"found":3}'}]


async def test_wait_returns_after_its_time_and_reports_progress(
    gateway: Served, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_tools, "PROGRESS_SECONDS", 0.05)
    reports = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async with mcp_client(gateway, room, "agent") as client, participant(gateway, room, "human") as human:
        last = await human.say("not for you")
        arguments = {"after_seq": 0, "timeout_seconds": 0.5}
        result = await client.call_tool("wait", arguments, progress_callback=on_progress)
        assert result.structured_content == {"envelopes": [], "next_after_seq": last.seq, "timed_out": True}
        assert reports
        assert {(total, message) for _, total, message in reports} == {(0.5, "waiting for the space")}
        everything = await call(client, "wait", after_seq=0, concerning="everyone")
        assert everything["envelopes"][-1]["payload"] == {"text": "not for you"}
        # A position that does not exist is that of the newest envelope: what comes is not missed.
        beyond = await call(client, "wait", after_seq=10**12, timeout_seconds=0)
        assert beyond["next_after_seq"] == last.seq


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_call_ends_when_it_is_cancelled(gateway: Served, room: str, era: Era, waits: WaitCounter) -> None:
    async with mcp_client(gateway, room, "agent", era=era) as client:
        waiting = asyncio.create_task(call(client, "wait", after_seq=0, timeout_seconds=300))
        await eventually(lambda: waits.count == 1)
        waiting.cancel()
        await eventually(lambda: waits.count == 0)
        assert (await call(client, "read"))["you"] == "agent"  # the session goes on


async def test_a_call_ends_when_the_client_is_gone(gateway: Served, room: str, waits: WaitCounter) -> None:
    body = {"name": "wait", "arguments": {"after_seq": 0, "timeout_seconds": 300}}
    with open_stream(gateway, "POST", f"/spaces/{room}/mcp", rpc("tools/call", body), headers_of(room, "agent")):
        await eventually(lambda: waits.count == 1)
    await eventually(lambda: waits.count == 0)


class WaitCounter:
    """How many calls of `wait` are served now."""

    count = 0


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> WaitCounter:
    counter, row = WaitCounter(), space_tools.TOOLS["wait"]

    async def counted(*arguments: Any) -> Any:
        counter.count += 1
        try:
            return await row.call(*arguments)
        finally:
            counter.count -= 1

    monkeypatch.setitem(space_tools.TOOLS, "wait", row._replace(call=counted))
    return counter


async def test_two_clients_with_one_token_are_one_participant(gateway: Served, room: str) -> None:
    async with participant(gateway, room, "human") as human:
        presence: list[str] = []
        with human.subscribe(lambda one: presence.append(one.payload["event"]) if one.family == "system" else None):
            async with mcp_client(gateway, room, "agent") as one:
                async with mcp_client(gateway, room, "agent") as other:
                    sent = await call(one, "say", text="from the one")
                    assert (await call(other, "read"))["envelopes"][-1]["id"] == sent["id"]
                assert (await call(one, "read"))["you"] == "agent"
                await human.say("the other has gone")
                assert presence == ["join"]
            await eventually(lambda: presence == ["join", "leave"])


def rpc(method: str, params: Any = None, id: Any = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}).encode()


def headers_of(space: str, who: str, **more: str) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {token(space, who)}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **more,
    }


INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def initialize(gateway: Gateway, space: str, who: str) -> str:
    reply = gateway.request("POST", f"/spaces/{space}/mcp", rpc("initialize", INITIALIZE), headers_of(space, who))
    assert reply.status == 200, reply.body
    return reply.headers["mcp-session-id"]


def test_only_the_token_of_the_space_opens_it(gateway: Served, room: str) -> None:
    path, body = f"/spaces/{room}/mcp", rpc("initialize", INITIALIZE)
    assert gateway.request("POST", path, body, headers_of(room, "nobody")).status == 401
    assert gateway.request("POST", path, body).status == 401
    assert gateway.request("POST", "/spaces/room-0/mcp", body, headers_of(room, "agent")).status == 403
    page = headers_of(room, "agent", Origin="https://evil.example")
    assert gateway.request("POST", path, body, page).status == 403
    rebound = headers_of(room, "agent", Host="evil.example")
    assert gateway.request("POST", path, body, rebound).status == 403
    # A session's id opens nothing: with another's token, it is another session.
    id = initialize(gateway, room, "agent")
    stolen = headers_of(room, "watcher", **{"Mcp-Session-Id": id})
    reply = gateway.request("POST", path, rpc("tools/call", {"name": "read", "arguments": {}}), stolen)
    assert b'"you":"watcher"' in reply.body.replace(b"\\", b"")


HOSTILE: dict[str, tuple[bytes, dict[str, str], int]] = {
    "no JSON": (b"{", {}, 400),
    "no UTF-8": (b"\xff", {}, 400),
    "nested deeply": (b"[" * 100_000, {}, 400),
    "parameters nested deeply": (b'{"params":' * 5_000 + b"1" + b"}" * 5_000, {}, 400),
    "half an emoji": (rpc("tools/call", {"name": "say", "arguments": {"text": "\ud83d"}}), {}, 400),
    "a batch": (b"[]", {}, 400),
    "a number": (b"7", {}, 400),
    "unknown version": (rpc("tools/list"), {"Mcp-Protocol-Version": "1999-01-01"}, 400),
    "bad session id": (rpc("tools/list"), {"Mcp-Session-Id": "a b"}, 400),
    "no stream accepted": (rpc("tools/list"), {"Accept": "text/html"}, 406),
    "too large": (b" " * (5 * 1024 * 1024), {}, 413),
}


def test_what_is_no_message_is_refused(gateway: Served, room: str) -> None:
    with Cases() as case:
        for name, (body, headers, status) in HOSTILE.items():
            with case(name):
                reply = gateway.request("POST", f"/spaces/{room}/mcp", body, headers_of(room, "agent", **headers))
                assert reply.status == status, reply.body
                assert "error" in reply.json
                assert "Traceback" not in reply.body.decode()


ARGUMENTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown field": ("say", {"text": "a", "loud": True}, "unknown field `loud`"),
    "wrong type": ("read", {"after_seq": "ten"}, "after_seq"),
    "out of range": ("wait", {"after_seq": 0, "timeout_seconds": 1e9}, "timeout_seconds"),
    "missing": ("wait", {}, "after_seq"),
    "no context": ("think", {"step": "thought", "text": "a"}, "name the context"),
    "impossible context": ("think", {"step": "thought", "text": "a", "context": "../x"}, "segment 1"),
    "recipient unknown": ("say", {"text": "a", "to": ["nobody-here"]}, "target_not_found"),
}


def test_wrong_arguments_are_named(gateway: Served, room: str) -> None:
    with Cases() as case:
        for name, (tool, arguments, expected) in ARGUMENTS.items():
            with case(name):
                body = rpc("tools/call", {"name": tool, "arguments": arguments})
                reply = gateway.request("POST", f"/spaces/{room}/mcp", body, headers_of(room, "agent"))
                data = next(line for line in reply.body.splitlines() if line.startswith(b"data:"))
                result = json.loads(data.removeprefix(b"data:"))["result"]
                assert result["isError"] is True
                assert expected in result["content"][0]["text"]


def test_half_an_emoji_is_replaced(gateway: Served, room: str) -> None:
    versions = {"protocolVersion": "2026-07-28", "clientCapabilities": {}}
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in versions.items()}
    headers = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "say"}
    for arguments, expected in (({"text": "a\ud83d"}, '"seq"'), ({"text": "a", "\ud83d": 1}, "unknown field")):
        body = rpc("tools/call", {"name": "say", "arguments": arguments, "_meta": meta})
        reply = gateway.request("POST", f"/spaces/{room}/mcp", body, headers_of(room, "agent", **headers))
        assert expected in reply.json["result"]["content"][0]["text"]


async def test_unknown_tools_and_resources_are_protocol_errors(gateway: Served, room: str) -> None:
    async with mcp_client(gateway, room, "agent") as client:
        with pytest.raises(MCPError, match="there is no tool 'shout'; there are read, say"):
            await client.call_tool("shout", {})
        for uri in (
            "space://other/envelopes",
            f"space://{room}/secrets",
            f"space://{room}/envelopes/x",
            "file:///etc",
            "space://[x",
        ):
            with pytest.raises(MCPError, match="there is no resource"):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="context_unknown"):
            await client.read_resource(f"space://{room}/contexts/none")


async def test_null_is_the_same_as_nothing(gateway: Served, room: str) -> None:
    async with mcp_client(gateway, room, "agent") as client:
        await call(client, "say", text="hello", to=None, answers=None, context=None)


async def test_results_are_bounded_and_resources_have_the_rest(gateway: Served, room: str) -> None:
    async with mcp_client(gateway, room, "watcher") as client, participant(gateway, room, "human") as human:
        large = await human.say("é" * 30_000)
        seen = await call(client, "read", after_seq=large.seq - 1)
        [shown] = seen["envelopes"]
        assert shown["truncated"] is True
        assert len(shown["payload"]["text"]) == 4_000
        [whole] = (await client.read_resource(shown["resource"])).contents
        assert json.loads(whole.text)["payload"]["text"] == "é" * 30_000  # type: ignore[union-attr]

        for _ in range(12):
            last = await human.say("x" * 15_000)
        position, count = large.seq, 0
        while True:
            page = await call(client, "read", after_seq=position)
            assert len(json.dumps(page)) < 1.2 * space_tools.MAX_RESULT_BYTES
            count, position = count + len(page["envelopes"]), page["next_after_seq"]
            if not page["has_more"]:
                break
        assert (count, position) == (12, last.seq)
        newest = await call(client, "read")
        assert newest["envelopes"][-1]["seq"] == newest["next_after_seq"] == last.seq
        before = await call(client, "read", before_seq=newest["envelopes"][0]["seq"], limit=1)
        assert before["envelopes"][0]["seq"] == newest["envelopes"][0]["seq"] - 1

        uri = f"space://{room}/envelopes?after_seq={last.seq - 1}&limit=1"
        [page_text] = (await client.read_resource(uri)).contents
        assert json.loads(page_text.text)["envelopes"][0]["seq"] == last.seq  # type: ignore[union-attr]


async def test_a_view_hides_reasoning(gateway: Served, room: str) -> None:
    async with participant(gateway, room, "human") as human:
        async with human.reasoning("Deep") as thought:
            await thought("very deep")
        async with mcp_client(gateway, room, "agent", query="?view=main") as client:
            await human.say("so")
            assert {one["kind"] for one in (await call(client, "read"))["envelopes"]} <= {"chat", "system/presence"}


def is_present(gateway: Gateway, room: str, who: str) -> bool:
    reply = gateway.request("GET", f"/spaces/{room}", headers={"Authorization": f"Bearer {token(room, 'watcher')}"})
    return bool(next(one for one in reply.json["participants"] if one["id"] == who)["present"])


async def test_an_ended_session_is_not_found(gateway: Served, room: str) -> None:
    id = initialize(gateway, room, "agent")
    headers = headers_of(room, "agent", **{"Mcp-Session-Id": id})
    assert is_present(gateway, room, "agent")
    assert gateway.request("DELETE", f"/spaces/{room}/mcp", headers=headers).status == 204
    await eventually(lambda: not is_present(gateway, room, "agent"))
    reply = gateway.request("POST", f"/spaces/{room}/mcp", rpc("tools/list"), headers)
    assert (reply.status, reply.error["code"]) == (404, "session_ended")


async def test_an_unused_session_leaves_and_its_next_request_joins_again(
    gateway: Served, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = initialize(gateway, room, "agent")
    monkeypatch.setattr(sessions, "IDLE_SECONDS", 0.0)
    await eventually(lambda: not is_present(gateway, room, "agent"))
    monkeypatch.setattr(sessions, "IDLE_SECONDS", HOUR_SECONDS)
    headers = headers_of(room, "agent", **{"Mcp-Session-Id": id})
    assert gateway.request("POST", f"/spaces/{room}/mcp", rpc("tools/list"), headers).status == 200
    assert is_present(gateway, room, "agent")


async def test_a_session_leaves_when_its_stream_is_closed(
    gateway: Served, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LINGER_SECONDS", 0.0)
    headers = headers_of(room, "agent", **{"Mcp-Session-Id": initialize(gateway, room, "agent")})
    with open_stream(gateway, "GET", f"/spaces/{room}/mcp", None, headers) as stream:
        stream.until(": the session is open")
        assert is_present(gateway, room, "agent")
    await eventually(lambda: not is_present(gateway, room, "agent"))


async def test_sessions_are_limited(gateway: Served, room: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 0)
    reply = gateway.request("POST", f"/spaces/{room}/mcp", rpc("initialize", INITIALIZE), headers_of(room, "agent"))
    assert (reply.status, reply.error["code"]) == (503, "too_many_sessions")


async def test_a_participant_who_is_removed_learns_it(
    gateway: Served, room: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_tools, "PROGRESS_SECONDS", 0.05)
    is_waiting = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        is_waiting.set()

    async with mcp_client(gateway, room, "agent") as client, participant(gateway, room, "human") as human:
        waiting = asyncio.create_task(
            client.call_tool("wait", {"after_seq": 0, "timeout_seconds": 300}, progress_callback=on_progress)
        )
        await is_waiting.wait()
        await human.send("space/kick", {"participant_id": "agent", "reason": "enough"})
        result = await waiting
        assert result.is_error
        assert text_of(result) == "'human' removed this participant from the space: enough (kicked)"


def test_a_gateway_that_stops_ends_what_waits(tmp_path: Path) -> None:
    lines = ['[providers.vllm]\nbase_url = "http://127.0.0.1:9/v1"\n[storage]\nurl = "sqlite://"']
    for name, space in spaces_of(tmp_path, {"a": {"participants": ["x"]}}).items():
        for id, row in space["participants"].items():
            lines.append(f"[spaces.{name}.participants.{id}]\ntoken_file = {json.dumps(row['token_file'])}")
    body = rpc("tools/call", {"name": "wait", "arguments": {"after_seq": 0, "timeout_seconds": 300}})
    with replicas("\n".join(lines)) as [gateway]:
        headers = headers_of("a", "x", **{"Mcp-Session-Id": initialize(gateway, "a", "x")})
        stream = open_stream(gateway, "GET", "/spaces/a/mcp", None, headers)
        stream.until(": the session is open")
        waiting = open_stream(gateway, "POST", "/spaces/a/mcp", body, headers)
        gateway.signal(signal.SIGTERM)
        assert b"cancelled" in waiting.rest()
        stream.rest()
        assert gateway.process.wait(LIMIT_SECONDS) == 0


async def test_a_killed_client_program_has_left(gateway: Served, room: str) -> None:
    env = {"PELLUCID_SPACE_URL": gateway.url, "PELLUCID_SPACE_TOKEN": token(room, "agent"), "PATH": "/usr/bin"}
    program = subprocess.Popen(  # noqa: ASYNC220
        [*PELLUCID, "space", "mcp", room], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        await eventually(lambda: is_present(gateway, room, "agent"), within=3 * LIMIT_SECONDS)  # imports take long
        program.send_signal(signal.SIGKILL)
        await eventually(lambda: not is_present(gateway, room, "agent"))
    finally:
        program.kill()
        program.communicate()
