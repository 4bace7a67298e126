"""Tools of MCP servers that use the official package: as a process, and over HTTP."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.egress import EgressError, EgressPolicy
from pellucid.errors import PellucidError, RequestError
from pellucid.parts import Image, Text, ToolCallPart
from pellucid.tools import RunContext, ServerToolset, Tool, ToolFailed, collect_tools
from pellucid.tools.mcp import MCPServer, MCPTool, tool_name
from pellucid.tools.mcp_session import LineLimitDecoder
from tests.tools.small_peer import NAMES, SmallHTTPPeer
from tests.waiting import LIMIT_SECONDS, eventually, loop_turns, wait_until

pytestmark = pytest.mark.anyio

PEER = str(Path(__file__).with_name("mcp_peer.py"))
SMALL_PEER = str(Path(__file__).with_name("small_peer.py"))
CONTEXT: RunContext[None] = RunContext(None, None)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


def stdio(name: str = "peer", *more: str, **options: Any) -> MCPServer:
    return MCPServer(name, command=sys.executable, args=[PEER, "stdio", *more], **options)


def small(*arguments: str, **options: Any) -> MCPServer:
    return MCPServer("peer", command=sys.executable, args=[SMALL_PEER, *arguments], **options)


class Http:
    """An HTTP server in its own process, at a port that stays reserved while it is down."""

    def __init__(self, *options: str) -> None:
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._reserved.bind(("127.0.0.1", 0))
        self.port: int = self._reserved.getsockname()[1]
        self.options = options
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.start()

    def start(self) -> None:
        command = [sys.executable, PEER, "http", str(self.port), *self.options, "reserved"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: self._answers() or self.process.poll() is not None, "the MCP server answers, or has ended")
        assert self.process.poll() is None

    def _answers(self) -> bool:
        with socket.socket() as knock:
            return knock.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.kill()
        self._reserved.close()


@pytest.fixture(scope="module")
def http() -> Iterator[Http]:
    running = Http()
    yield running
    running.close()


@pytest.fixture(scope="module")
def http_json() -> Iterator[Http]:
    running = Http("json")
    yield running
    running.close()


@pytest.fixture(scope="module", params=["stdio", "http", "http_json"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[MCPServer]:
    if request.param == "stdio":
        made = stdio()
    else:
        made = MCPServer("peer", url=request.getfixturevalue(request.param).url)
    async with made:
        yield made


async def failure(server: MCPServer, tool: str, **arguments: Any) -> Any:
    with pytest.raises(ToolFailed) as raised:
        await server.call(tool, arguments)
    return raised.value.content


# --- over every transport ----------------------------------------------------------------------------------------


async def test_tools_of_a_server_and_their_results(server: MCPServer) -> None:
    tools = {tool.remote_name: tool for tool in await server.tools()}
    assert len(tools) == 300
    add = tools["add"]
    assert add.definition.description == "It is add."
    assert add.definition.parameters_json_schema["required"] == ["a", "b"]
    assert tools["two.parts"].name == "two_parts"
    assert await add.call(CONTEXT, add.validate({"a": 1, "b": 2})) == "3"
    assert await server.call("shape", {}) == {"n": 1}
    assert await server.call("two.parts", {}) == "one\ntwo"
    caption, picture, link = await server.call("picture", {})
    assert (caption, picture) == (Text("see:"), Image(data="iVBORw0KGgo=", media_type="image/png"))
    assert "file:///more" in link.text
    # A result may have 3 MB, and calls run concurrently over one connection.
    sizes = [len(text) for text in await asyncio.gather(*(server.call("huge", {"n": 3_000_000}) for _ in range(2)))]
    assert sizes == [3_000_000] * 2
    async with asyncio.timeout(LIMIT_SECONDS):  # each returns when all five have arrived
        met = await asyncio.gather(*(server.call("meet", {"count": 5}) for _ in range(5)))
    assert met == ["met"] * 5


async def test_errors_and_logs_do_not_quote_internal_data(
    server: MCPServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    assert await failure(server, "fail") == "there is no such city"
    assert "the city is missing" in await failure(server, "refuse")
    assert "hunter2" not in await failure(server, "boom")
    assert "too large" in await failure(server, "huge", n=5 << 20)
    assert await server.call("add", {"a": 40, "b": 1_000_002}) == "1000042"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await server.call("slow", {"seconds": 60})
    assert await server.call("add", {"a": 1, "b": 1}) == "2"
    logged = [record.getMessage() for record in caplog.records]
    assert not [line for line in logged if "1000042" in line or "hunter2" in line or "no such city" in line]
    assert "hunter2" not in "".join(capfd.readouterr())


@dataclass(frozen=True)
class HastyTool(MCPTool):
    """A tool with its own timeout."""

    @property
    def timeout(self) -> float | None:
        return 0.5


async def test_server_tools_return_every_outcome_in_order(server: MCPServer) -> None:
    tools = {tool.name: tool for tool in await server.tools() if tool.name in ("add", "fail", "slow", "boom", "refuse")}
    tools["slow"] = HastyTool(server, "slow", tools["slow"].definition)
    calls = [
        ToolCallPart("slow", {"seconds": 3600}, "1"),
        ToolCallPart("add", {"a": 1, "b": 2}, "2"),
        ToolCallPart("fail", {}, "3"),
        ToolCallPart("boom", "{}", "4"),
        ToolCallPart("add", "not json", "5"),
        ToolCallPart("nothing", {}, "6"),
    ]
    results = await ServerToolset(list(tools.values()), timeout=LIMIT_SECONDS).call(calls, CONTEXT)
    assert [result.tool_call_id for result in results] == list("123456")
    outcomes = [getattr(result, "outcome", "again") for result in results]
    assert outcomes == ["failed", "success", "failed", "failed", "again", "again"]
    assert results[0].content == "It did not return within 0.5 s."


# --- restarts and lost connections -------------------------------------------------------------------------------


async def test_a_server_that_exits_during_a_call_is_restarted_by_the_next() -> None:
    async with small() as server:
        first = await server.call("pid", {})
        slow = asyncio.create_task(failure(server, "slow"))
        while await server.call("under_way", {}) != "1":
            await loop_turns()
        assert "not known" in await failure(server, "die")
        assert "not known" in await slow
        second = await server.call("pid", {})
        assert first != second
        # A server that exits between calls is restarted without a failed call.
        os.kill(int(second), 9)
        await eventually(lambda: server._live_session() is None)
        third = await server.call("pid", {})
        assert third not in (first, second)
        assert len(await server.tools()) == len(NAMES)
    with pytest.raises(ProcessLookupError):
        os.kill(int(third), 0)


async def test_a_call_is_repeated_if_the_http_server_lost_its_session() -> None:
    with SmallHTTPPeer() as peer:
        async with MCPServer("peer", url=peer.url) as server:
            assert await server.call("add", {"a": 1, "b": 1}) == "2"
            before = set(peer.sessions)
            peer.sessions.clear()
            assert await server.call("add", {"a": 2, "b": 2}) == "4"
            assert len(before) == len(peer.sessions) == 1
            assert before != peer.sessions


@pytest.mark.needs("long")
async def test_an_http_server_that_was_restarted_is_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.tools.mcp._BACKOFF_SECONDS", (3600.0, 3600.0))
    peer = Http()
    try:
        async with MCPServer("peer", url=peer.url) as server:
            assert await server.call("add", {"a": 1, "b": 1}) == "2"
            assert "not known" in await failure(server, "die")
            assert "cannot be reached" in await failure(server, "add", a=1, b=1)
            peer.start()
            end_backoff(server)
            assert await server.call("add", {"a": 2, "b": 2}) == "4"
            peer.kill()
            peer.start()
            assert await server.call("add", {"a": 3, "b": 3}) == "6"
    finally:
        peer.close()


async def test_an_unreachable_server_is_not_tried_again_during_the_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.tools.mcp._BACKOFF_SECONDS", (3600.0, 3600.0))
    peer = SmallHTTPPeer()
    async with MCPServer("peer", url=peer.url, connect_timeout=0.2) as server:
        assert "cannot be reached" in await failure(
            server, "add", a=1, b=1
        )  # the port is open, but the server does not answer
        with peer:
            assert "cannot be reached" in await failure(server, "add", a=1, b=1)
            end_backoff(server)
            server._connect_timeout = LIMIT_SECONDS
            assert await server.call("add", {"a": 2, "b": 2}) == "4"


def end_backoff(server: MCPServer) -> None:
    """End the backoff of a server."""
    assert server._backoff is not None
    server._backoff = (asyncio.get_running_loop().time(), *server._backoff[1:])


@pytest.mark.parametrize("peer", ["http", "http_json"])
async def test_an_answer_that_is_too_large_is_not_read_to_its_end(peer: str, request: pytest.FixtureRequest) -> None:
    async with MCPServer("peer", url=request.getfixturevalue(peer).url, max_result=1000) as server:
        messages = [await failure(server, "huge", n=n) for n in (1001, 1_000_000)]
        assert messages[0] == "The result is too large: 1001 bytes exceed the limit of 1000."
        assert "that is too large" in messages[1]
        assert await server.call("add", {"a": 1, "b": 1}) == "2"


async def test_a_message_on_standard_output_that_is_too_large_is_dropped() -> None:
    async with stdio("peer", max_result=1000) as server:
        assert await failure(server, "huge", n=1001) == "The result is too large: 1001 bytes exceed the limit of 1000."
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await server.call("huge", {"n": 1_000_000})
        assert await server.call("add", {"a": 1, "b": 1}) == "2"


@given(st.lists(st.text("aé😀\n", max_size=40), max_size=8), st.integers(1, 7))
def test_a_line_within_the_limit_is_decoded_unchanged(texts: list[str], size: int) -> None:
    class Decoder(LineLimitDecoder):
        max_characters = 20

    text = "".join(texts)
    data, decoder = text.encode(), Decoder()
    pieces = [decoder.decode(data[at : at + size]) for at in range(0, len(data), size)]
    decoded = "".join([*pieces, decoder.decode(b"", final=True)]).split("\n")
    for line, result in zip(text.split("\n"), decoded, strict=True):
        assert result == line if len(line) <= 20 else len(result) <= 20


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"command": "/no/such/program"}, "unavailable", "FileNotFoundError"),
        ({"command": sys.executable, "args": ["-c", ""]}, "unavailable", "MCPError"),
        ({"command": sys.executable, "args": ["-c", "print('hello')"]}, "unavailable", "MCPError"),
        ({"command": "sh", "args": ["-c", "cat >/dev/null"], "connect_timeout": 0.3}, "timeout", "0.3 s"),
        ({"url": "http://127.0.0.1:1/mcp"}, "unavailable", "Connect"),
        ({"command": sys.executable, "args": [SMALL_PEER, "endless"]}, "model_error", "no end"),
    ],
)
async def test_a_server_without_a_list_of_tools_is_an_error(options: dict[str, Any], kind: str, says: str) -> None:
    async with MCPServer("peer", **options) as server:
        with pytest.raises(PellucidError, match=says) as raised:
            await server.tools()
        assert raised.value.info.kind == kind
        assert "'peer'" in raised.value.info.message


async def test_a_server_that_starts_slowly_serves_a_later_call() -> None:
    given_up = 0
    async with small("late") as server:
        async with asyncio.timeout(LIMIT_SECONDS):
            while True:
                try:
                    async with asyncio.timeout(0.1):
                        assert await server.call("add", {"a": 1, "b": 1}) == "2"
                        break
                except TimeoutError:
                    given_up += 1
    assert given_up


async def test_a_server_that_is_closed_while_it_starts_leaves_no_process() -> None:
    before = asyncio.all_tasks()
    async with MCPServer("peer", command="sleep", args=["61"]) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await server.tools()
    assert asyncio.all_tasks() == before


def test_a_server_is_used_by_several_event_loops_in_turn(http: Http) -> None:
    server = MCPServer("peer", url=http.url)

    async def once() -> Any:
        return await server.call("add", {"a": 1, "b": 1})

    assert [asyncio.run(once()) for _ in range(2)] == ["2", "2"]


# --- permissions -------------------------------------------------------------------------------------------------


async def test_a_server_process_has_only_the_configured_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    async with small(env={"GIVEN": "yes"}) as server:
        assert await server.call("env", {"name": "SECRET_KEY"}) == "none"
        assert await server.call("env", {"name": "GIVEN"}) == "yes"


async def test_only_allowed_tools_are_listed_and_called(http: Http) -> None:
    async with MCPServer("peer", url=http.url, allowed_tools=["add", "gone"]) as server:
        assert [tool.name for tool in await server.tools()] == ["add"]
        assert "not allowed" in await failure(server, "pid")


async def test_a_server_that_a_request_names_is_reached_under_the_policy(http: Http) -> None:
    with pytest.raises(EgressError):
        MCPServer("peer", url=http.url, policy=EgressPolicy())

    async def private(host: str) -> list[str]:
        return ["127.0.0.1"]

    url = http.url.replace("127.0.0.1", "peer.test")
    async with MCPServer("peer", url=url, policy=EgressPolicy(resolve=private)) as server:
        with pytest.raises(EgressError) as raised:
            await server.tools()
        assert raised.value.info.code == "egress_refused"
    async with MCPServer("peer", url=url, policy=EgressPolicy(["peer.test"], resolve=private)) as server:
        assert len(await server.tools()) == 300


@pytest.mark.parametrize(
    "options", [{}, {"command": "x", "url": "http://x"}, {"url": "http://x", "headers": {"Host": "y"}}]
)
def test_invalid_options_of_a_server(options: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="'peer'"):
        MCPServer("peer", **options)


# --- several servers ---------------------------------------------------------------------------------------------


async def test_tools_of_several_servers_have_names_of_their_own(http: Http, http_json: Http) -> None:
    def pid() -> None: ...

    one, two = (
        MCPServer(name, url=peer.url, allowed_tools=["add", "pid"])
        for name, peer in (("one", http), ("two", http_json))
    )
    three = MCPServer("three", url=http.url, allowed_tools=["env"])
    down = MCPServer("down", url="http://127.0.0.1:1/mcp")
    async with one, two, three, down:
        tools = await collect_tools([Tool(pid)], [one, two, three, down])
        assert [tool.name for tool in tools] == ["pid", "one_add", "one_pid", "two_add", "two_pid", "env"]
        [renamed] = [tool for tool in tools if tool.name == "two_add"]
        assert isinstance(renamed, MCPTool)
        assert await renamed.call(CONTEXT, {"a": 1, "b": 1}) == "2"
        with pytest.raises(PellucidError, match="'down'"):
            await collect_tools([], [down], required=True)


def test_names_are_valid_for_every_model() -> None:
    assert tool_name("a.b/c d") == "a_b_c_d"
    long = [tool_name("x" * 100 + tail) for tail in "ab"]
    assert [len(name) for name in long] == [64, 64]
    assert long[0] != long[1]
