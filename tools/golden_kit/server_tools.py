"""A gateway with tools of its own and a model that writes summaries: functions, an MCP server, calls that fail."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from .captures import Case
from .gateway import Gateway
from .protocols import CLIENTS, QUESTION, Client
from .runs import _record_rows as record_rows
from .setting import STORE, Cases, Setting, configuration, record_reply, record_requests
from .talk import MODEL, SCRIPT, Talk, chunks
from .upstream import Play

WRITER = "vllm"
"""The provider of the model that writes summaries: another than that of the runs, so that it has plays of its own."""

FUNCTIONS = '''
import time

from pellucid import ModelRetry, Tool


def weather(city: str, days: int = 1) -> dict:
    """Say the weather.

    Args:
        city: Its English name.
        days: How many.
    """
    if city != "Lyon":
        raise ModelRetry("Only Lyon is known.")
    return {"sky": "rain", "days": days}


def broken() -> str:
    raise RuntimeError("a secret of the server")


def slow() -> str:
    time.sleep(1.0)
    return "too late"


all_tools = [weather, broken, Tool(slow, name="slow", timeout=0.2), Tool(weather, name="alone", sequential=True)]
'''


def _configuration() -> str:
    peer = json.dumps(str(Path(__file__).with_name("small_mcp.py")))
    return f"""{STORE}
[tools]
functions = ["golden_functions:all_tools"]
max_calls = 4
[tools.mcp.small]
command = {json.dumps(sys.executable)}
args = [{peer}]
allowed_tools = ["echo", "count", "fail"]
[summaries]
model = "writer"
[models.writer]
provider = "{WRITER}"
model = "w"
"""


@contextmanager
def gateway_with_tools(on: Setting) -> Iterator[Gateway]:
    data = on.gateway.data.with_name(f"{on.gateway.data.name}-tools")
    files = {"golden_functions.py": FUNCTIONS}
    with Gateway(on.checkout, data, configuration(on.upstream, [], _configuration()), files) as gateway:
        yield gateway


def calls(*named: tuple[str, Any], thought: str = "I need to know.") -> Play:
    """A response with a thought and calls: names and arguments (a text as it is)."""
    deltas = [
        {
            "index": n,
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": name, "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments)},
        }
        for n, (name, arguments) in enumerate(named)
    ]
    return Play(chunks({"reasoning_content": thought}, {"tool_calls": deltas}, finish="tool_calls"))


SAYS = Play(chunks({"reasoning_content": "Now I know."}, {"content": "It rains."}))
PLAYS: dict[str, tuple[Play, ...]] = {
    "a function": (calls(("weather", {"city": "Lyon", "days": 2})), SAYS),
    "an MCP tool": (calls(("echo", {"text": "Grüße"})), SAYS),
    "structured": (calls(("count", {"text": "abc"})), SAYS),
    "several at once": (calls(("weather", {"city": "Lyon"}), ("count", {"text": "a"}), ("echo", {"text": "b"})), SAYS),
    "one after another": (calls(("alone", {"city": "Lyon"})), calls(("echo", {"text": "c"}), thought="More."), SAYS),
    "retry": (calls(("weather", {"city": "Paris"})), SAYS),
    "wrong arguments": (calls(("weather", {"town": 1}), ("weather", "{nonsense")), SAYS),
    "failures": (calls(("broken", {}), ("slow", {}), ("fail", {})), SAYS),
    "unknown": (calls(("no_such_tool", {}), ("hidden", {})), SAYS),
    "the client's too": (calls(("echo", {"text": "d"}), ("look_up", {"city": "Lyon"})), SAYS),
    "too many": (calls(("echo", {"text": "e"}), ("echo", {"text": "f"}), ("echo", {"text": "g"})),),
}
_ONCE = [client for client in CLIENTS if "+" not in client.name]
_SHORT = ("openresponses/openresponses", "chat_completions", "agui/1.0", "ai_sdk", "chat")


def server_tools(on: Setting) -> Cases:
    with gateway_with_tools(on) as gateway:
        here = on._replace(gateway=gateway)
        for what, plays in PLAYS.items():
            for client in _ONCE:
                if on.short and client.name not in _SHORT:
                    continue
                for stream in (True, False) if client.whole else (True,):
                    name = f"tools/{what}/{client.name}/{'stream' if stream else 'whole'}"
                    yield name, partial(_run, here, plays=plays, client=client, stream=stream)
        for view in ("summary", "sealed", "hidden"):
            yield f"tools/view/{view}", partial(_view, here, view=view)
        for what, more in REQUESTS.items():
            yield f"tools/request/{what}", partial(_request, here, more=more)
        yield "tools/continued", partial(_continued, here)
        yield "tools/stored", partial(_stored, here)
        for what in WRITERS:
            yield f"tools/summaries/{what}", partial(_summaries, here, what=what)


def _run(on: Setting, case: Case, plays: tuple[Play, ...], client: Client, stream: bool) -> None:
    on.upstream.play(SCRIPT.provider, *plays)
    ask = client.ask(MODEL, client.begin(), stream)
    record_reply(case, "reply", on.gateway.request("POST", ask.path, ask.body, ask.headers))
    record_requests(case, on.upstream)


def _view(on: Setting, case: Case, view: str) -> None:
    on.upstream.play(WRITER, Play(chunks({"content": "In short."})))
    on.upstream.play(SCRIPT.provider, *PLAYS["one after another"])
    body = {"model": MODEL, "input": QUESTION, "include": ["reasoning.encrypted_content"]}
    record_reply(case, "reply", on.gateway.request("POST", "/v1/responses", body, {"Pellucid-View": view}))


_MCP = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:1/mcp", "require_approval": "never"}
REQUESTS: dict[str, dict[str, Any]] = {
    "max_tool_calls": {"max_tool_calls": 1},
    "no parallel calls": {"parallel_tool_calls": False},
    "none": {"tool_choice": "none"},
    "required": {"tool_choice": "required"},
    "one": {"tool_choice": {"type": "function", "name": "echo"}},
    "allowed": {
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "echo"}]}
    },
    "a tool by the same name": {"tools": [{"type": "function", "name": "echo", "parameters": {"type": "object"}}]},
    "a server that is not allowed": {"tools": [_MCP]},
    "a server with approval": {"tools": [{**_MCP, "require_approval": "always"}]},
}


def _request(on: Setting, case: Case, more: dict[str, Any]) -> None:
    on.upstream.play(SCRIPT.provider, *PLAYS["several at once"])
    record_reply(
        case, "reply", on.gateway.request("POST", "/v1/responses", {"model": MODEL, "input": QUESTION, **more})
    )
    record_requests(case, on.upstream)


def _continued(on: Setting, case: Case) -> None:
    """A call of the client's tool next to one of the server's; its result comes with the next response."""
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, *PLAYS["the client's too"])
    tools = [{"type": "function", "name": "look_up", "parameters": {"type": "object"}}]
    first = talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION, "tools": tools}).json
    call = next(item for item in first["output"] if item["type"] == "function_call" and item["name"] == "look_up")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "found"}
    talk("POST", "/v1/responses", {"model": MODEL, "input": [result], "previous_response_id": first["id"]})
    record_requests(case, on.upstream)


def _stored(on: Setting, case: Case) -> None:
    talk = Talk(case, on.gateway)
    on.upstream.play(SCRIPT.provider, *PLAYS["failures"])
    made = talk("POST", "/v1/responses", {"model": MODEL, "input": QUESTION}).json["id"]
    talk("GET", f"/v1/responses/{made}?stream=true", Pellucid_View="sealed")
    on.upstream.play(SCRIPT.provider, *PLAYS["one after another"])
    events = talk("POST", "/api/chat", {"text": QUESTION, "model": MODEL}).events
    on.upstream.play(SCRIPT.provider, SAYS)
    more = {"text": "And then?", "model": MODEL, "conversation_id": events[0]["conversation_id"]}
    talk("POST", "/api/chat", more)
    record_requests(case, on.upstream)
    record_rows(on, case, made, events[0]["event_id"])


WRITERS: dict[str, Play] = {
    "written": Play(chunks({"content": "**Numbers**\n\nThey were "}, {"content": "compared."})),
    "empty": Play(chunks({"content": ""})),
    "failed": Play(b'{"error": {"message": "no"}}', "application/json", 400),
    "cut": Play(chunks({"content": "They w"}, finish="length")),
    "with thoughts": Play(chunks({"reasoning_content": "hm"}, {"content": "In short."})),
}


def _summaries(on: Setting, case: Case, what: str) -> None:
    """Whole replies, as events of a summary and of the answer come in any order; and what its writer was sent."""
    think = "First I look at the whole parts, which are equal. Then I compare the fractions one by one. " * 8
    for label, path, body, headers in (
        ("responses", "/v1/responses", {"input": QUESTION, "reasoning": {"summary": "auto"}}, {}),
        ("view", "/v1/responses", {"input": QUESTION, "store": False}, {"Pellucid-View": "summary"}),
        ("chat completions", "/v1/chat/completions", {"messages": _USER}, {"Pellucid-View": "summary"}),
        ("chat", "/api/chat", {"text": QUESTION}, {"Pellucid-View": "summary"}),
    ):
        on.upstream.play(WRITER, WRITERS[what])
        on.upstream.play(SCRIPT.provider, Play(chunks({"reasoning_content": think}, {"content": "9.9"})))
        reply = on.gateway.request("POST", path, {"model": MODEL, **body}, headers)
        case.add(f"{label}: head", reply.head)
        final = [event for event in reply.events if event["type"] == "message_final"]
        case.add(f"{label}: body", json.dumps(final) if path == "/api/chat" else reply.body)
        sent = [request for request in on.upstream.requests() if f" /{WRITER}/" in request.line]
        case.add_unordered(f"{label}: to the writer", [request.body.decode() for request in sent])


_USER = [{"role": "user", "content": QUESTION}]
