"""Tools of real MCP servers, named by the operator or by a request."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Reply, Served, serve
from tests.server.loop_kit import calling, function, kinds, legal_events, output, outputs, turn
from tests.service_ports import candidate_ports
from tests.waiting import wait_until

PEER = str(Path(__file__).parents[1] / "tools" / "mcp_peer.py")
TOOLS = ["add", "fail", "picture", "pid", "shape", "slow", "die"]


@pytest.fixture(scope="module")
def peer() -> Iterator[int]:
    """Run an MCP server over streamable HTTP, and yield its port."""
    for port in candidate_ports():
        process = subprocess.Popen([sys.executable, PEER, "http", str(port)], stderr=subprocess.DEVNULL)
        try:
            wait_until(partial(answers_or_has_ended, process, port), "the MCP server answers")
            if process.poll() is None:
                yield port
                return
        finally:
            process.kill()
            process.wait()


def answers_or_has_ended(process: subprocess.Popen[bytes], port: int) -> bool:
    with socket.socket() as knock:
        return process.poll() is not None or knock.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def looping(upstream: Upstream, peer: int) -> Iterator[Served]:
    stdio = {"command": sys.executable, "args": [PEER, "stdio"]}
    # The time that a server needs to restart counts for the call that restarts it.
    patient = {**stdio, "allowed_tools": [tool for tool in TOOLS if tool != "slow"], "timeout_seconds": 30.0}
    config = {
        "tools": {
            "mcp": {
                "here": patient,
                "hasty": {**stdio, "allowed_tools": ["slow"], "timeout_seconds": 1.0},
                "there": {"url": f"http://127.0.0.1:{peer}/mcp", "allowed_tools": ["add", "two.parts"]},
                "nowhere": {"url": "http://127.0.0.1:9/mcp"},
            }
        },
        "egress": {"allow": ["localhost"]},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    with serve(config) as running:
        yield running


def offered_tools(upstream: Upstream, model: str) -> set[str]:
    return {tool["function"]["name"] for tool in upstream.calls(model)[0].body.get("tools", [])}


def test_tools_of_all_servers_are_offered_and_called(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("Sum. ", "", calling("here_add", "c1", a=1, b=2), calling("there_add", "c2", a=3, b=4)),
        turn("More. ", "", calling("two_parts", "c3"), calling("shape", "c4"), calling("fail", "c5")),
        turn("", "Done."),
    )
    items = output(looping.ask(model, stream=True))
    assert outputs(items) == {
        "c1": "3",
        "c2": "7",
        "c3": "one\ntwo",
        "c4": '{"n":1}',
        "c5": "there is no such city",
    }
    assert kinds(items)[-1] == "message"
    assert offered_tools(upstream, model) == {*TOOLS, "here_add", "there_add", "two_parts"} - {"add"}


def test_a_slow_tool_times_out_and_a_dead_server_is_restarted(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("", "", calling("slow", "c1", seconds=30)),
        turn("", "", calling("die", "c2")),
        turn("", "", calling("pid", "c3")),
        turn("", "Done."),
    )
    results = outputs(output(looping.ask(model, stream=True)))
    assert results["c1"] == "It did not return within 1 s."
    assert "whether the call was carried out is not known" in results["c2"]
    assert results["c3"].isdecimal()


def test_an_image_of_a_tool_is_stored_as_an_image(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "", calling("picture", "c1")), turn("", "A pixel."))
    response = legal_events(looping.ask(model, stream=True))[-1]["response"]
    [text, image, link] = outputs(response["output"])["c1"]
    assert (text["text"], image["type"], link["type"]) == ("see:", "input_image", "input_text")
    looping.ask(model, input="Sure?", previous_response_id=response["id"])
    _, second, third = (call.body["messages"] for call in upstream.calls(model))
    assert third[: len(second)] == second
    assert second[-1]["content"][-1]["type"] == "image_url"


# --- servers that a request names ------------------------------------------------------------------------------------


def mcp_tool(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "mine", "server_url": url, "require_approval": "never", **more}


def test_a_request_can_name_a_server(looping: Served, upstream: Upstream, peer: int) -> None:
    url = f"http://localhost:{peer}/mcp"
    own = function("add")
    for stream in (True, False):
        model = upstream.plays(turn("Sum. ", "", calling("mine_add", "c1", a=1, b=2)), turn("", "Three."))
        tools = [own, mcp_tool(url, allowed_tools=["add"], headers={"X-One": "1"})]
        reply = looping.ask(model, stream=stream, tools=tools)
        items = output(reply)
        assert outputs(items) == {"c1": "3"}
        assert kinds(items) == ["reasoning", "function_call", "function_call_output", "message"]
        assert {"add", "mine_add"} <= offered_tools(upstream, model)
        response = legal_events(reply)[-1]["response"] if stream else reply.json
        assert [tool["name"] for tool in response["tools"]] == ["add"]


def test_a_tool_of_a_named_server_can_be_forced_in_the_background(
    looping: Served, upstream: Upstream, peer: int
) -> None:
    model = upstream.plays(turn("", "", calling("shape", "c1")), turn("", "One."))
    tools = [mcp_tool(f"http://localhost:{peer}/mcp", allowed_tools={"tool_names": ["env"]})]
    choice = {"type": "function", "name": "env"}
    reply = looping.ask(model, tools=tools, tool_choice=choice, background=True)
    assert reply.status == 200, reply.body
    path, under_way = f"/v1/responses/{reply.json['id']}", ("queued", "in_progress")
    wait_until(lambda: looping.request("GET", path).json["status"] not in under_way, "the response is over")
    got = looping.request("GET", path).json
    assert got["status"] == "completed", got
    assert upstream.calls(model)[0].body["tool_choice"] == {"type": "function", "function": {"name": "env"}}


def refusal_of(reply: Reply) -> tuple[int, Any, Any]:
    return reply.status, reply.error["code"], reply.error["param"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_private_address_is_refused(looping: Served, upstream: Upstream, peer: int, stream: bool) -> None:
    model = upstream.plays(turn("", "Hi."))
    for url in (f"http://127.0.0.1:{peer}/mcp", "http://169.254.169.254/", "http://[::1]/", "http://10.0.0.1/mcp"):
        reply = looping.ask(model, stream=stream, tools=[function("own"), mcp_tool(url)])
        assert refusal_of(reply) == (403, "egress_refused", "tools[1]")
    assert upstream.calls(model) == []


def test_names_of_private_addresses_and_unreachable_servers_are_refused(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "Hi."))
    reply = looping.ask(model, tools=[mcp_tool("http://localhost.localdomain:1/mcp")])
    assert refusal_of(reply) == (403, "egress_refused", "tools[0]")
    gone = looping.ask(model, stream=True, tools=[mcp_tool("http://localhost:9/mcp")])
    assert gone.status >= 400
    assert gone.error["code"] == "mcp_unavailable"
    assert "'mine'" in gone.error["message"]


@pytest.mark.parametrize("approval", [None, "always", {"never": {"tool_names": ["add"]}}])
def test_required_approval_is_unsupported(looping: Served, upstream: Upstream, approval: Any) -> None:
    tool = mcp_tool("https://example.com/mcp", require_approval=approval)
    reply = looping.ask(upstream.plays(turn("", "Hi.")), tools=[tool])
    assert refusal_of(reply) == (400, "unsupported_approval", "tools[0].require_approval")
    assert "'never'" in reply.error["message"]


def test_urls_labels_and_headers_are_validated(looping: Served, upstream: Upstream) -> None:
    model = upstream.plays(turn("", "Hi."))
    for change, code, param in (
        ({"server_url": "file:///etc/passwd"}, "bad_url", "tools[0]"),
        ({"server_url": "http://me:secret@example.com/"}, "bad_url", "tools[0]"),
        ({"server_label": "a b"}, "invalid_value", "tools[0].server_label"),
        ({"allowed_tools": "add"}, "invalid_value", "tools[0].allowed_tools"),
        ({"headers": {"Host": "x"}}, "invalid_request", "tools[0]"),
    ):
        reply = looping.ask(model, tools=[mcp_tool("https://example.com/mcp") | change])
        assert refusal_of(reply) == (400, code, param)
        assert "secret" not in reply.error["message"]


# --- keys ------------------------------------------------------------------------------------------------------------


def test_tools_outside_a_key_s_policy_are_not_offered(
    upstream: Upstream, peer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_KEY", "k" * 32)
    config = {
        "access": {"key_env": "THE_KEY", "key_policy": "few", "policies": {"few": {"tools": ["ad*"]}}},
        "tools": {"functions": ["tests.server.loop_tools:every"]},
        "egress": {"allow": ["localhost"]},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    from pellucid.server.config import check_config

    with serve(check_config(config, os.environ)) as running:
        mine = {"Authorization": "Bearer " + "k" * 32}
        model = upstream.plays(turn("", "", calling("weather", "c1", city="Lyon")))
        reply = running.post({"model": model, "input": "Why?"}, mine)
        assert kinds(output(reply)) == ["function_call"]
        assert offered_tools(upstream, model) == {"add"}
        server = mcp_tool(f"http://localhost:{peer}/mcp")
        reply = running.post({"model": model, "input": "Why?", "tools": [server]}, mine)
        assert refusal_of(reply) == (403, "tool_not_allowed", "tools")
        assert "'mcp:localhost'" in reply.error["message"]
