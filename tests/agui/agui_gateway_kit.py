"""Helpers of the `/ag-ui` tests: inputs, requests to a running gateway, and readers of its streams."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from pellucid.emit import Emitter
from pellucid.events import ModelEvent, SideEvent
from pellucid.models import ModelStream
from pellucid.parts import ModelResponse, Origin
from pellucid.protocols.agui import DialectName
from pellucid.protocols.agui.sequence import Severity
from pellucid.protocols.agui.verify import verify
from pellucid.settings import ModelCall
from tests.agui.agui_kit import events_of
from tests.scripted import Gateway, Reply, Stream
from tests.scripted_runs import ScriptedStream
from tests.waiting import LIMIT_SECONDS

USER = {"id": "u1", "role": "user", "content": "Why?"}
ON = {"id": "u2", "role": "user", "content": "And?"}
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def run_input(*messages: Any, thread: str = "t", run: str = "r", **more: Any) -> dict[str, Any]:
    """Return the input of a run, as a client before 1.0 posts it."""
    return {"threadId": thread, "runId": run, "messages": list(messages) or [USER], **more}


def path_of(model: str | None, /, **query: Any) -> str:
    named = {} if model is None else {"model": model}
    return "/ag-ui?" + urlencode({**named, **query})


def post(
    gateway: Gateway, model: str | None, body: Any = None, headers: dict[str, str] | None = None, /, **query: Any
) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(run_input() if body is None else body).encode()
    head = {"Content-Type": "application/json", **(headers or {})}
    return gateway.request("POST", path_of(model, **query), data, head)


def streamed(reply: Reply, dialect: DialectName = "0.x") -> list[dict[str, Any]]:
    """Return the events of a stream, after checking that clients of its dialect accept them without a warning."""
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = events_of(reply.body)
    # Chunks have no end event, so the sealed value follows the last chunk.
    least: Severity = "silent" if any(event["type"].endswith("_CHUNK") for event in events) else "style"
    violation = verify(events, dialect, least=least)
    assert violation is None, violation
    return events


def run(
    gateway: Gateway, model: str | None, body: Any = None, dialect: DialectName = "0.x", **query: Any
) -> list[dict[str, Any]]:
    """Run the model to its end and return the events."""
    named = {} if dialect == "0.x" else {"dialect": dialect}
    return streamed(post(gateway, model, body, **named, **query), dialect)


def begin(gateway: Gateway, model: str, body: Any = None, **query: Any) -> Stream:
    """Begin a run and return its open stream."""
    sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=LIMIT_SECONDS)
    data = json.dumps(run_input() if body is None else body).encode()
    head = f"POST {path_of(model, **query)} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    response = http.client.HTTPResponse(sock)
    response.begin()
    return Stream(sock, response)


def error_of(reply: Reply, status: int = 400) -> tuple[str, str | None, str]:
    """Return code, location and message of an error before the run began."""
    assert reply.status == status, reply.body
    error = reply.json
    assert error["type"] == "RUN_ERROR"
    assert set(error) <= {"type", "message", "code", "metadata"}
    return error["code"], error.get("metadata", {}).get("pellucid", {}).get("param"), error["message"]


def texts(events: list[dict[str, Any]], kind: str) -> str:
    """Return the joined deltas of this kind of message (`TEXT_MESSAGE`, `REASONING_MESSAGE` …)."""
    return "".join(event.get("delta", "") for event in events if event["type"] in (f"{kind}_CONTENT", f"{kind}_CHUNK"))


def without_ids(messages: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the messages as tuples of role and content, without ids."""
    out: list[tuple[Any, ...]] = []
    for message in messages:
        calls = [call["function"]["name"] for call in message.get("toolCalls") or []]
        out.append((message["role"], message.get("content") or "", *calls))
    return out


Step = SideEvent | Callable[[Emitter], None]


class Agent:
    """Model that plays scripted turns, one for each call, with side events among the model events."""

    def __init__(self, name: str, *turns: Sequence[Step]) -> None:
        self.name = name
        self.origin = Origin("agents", "agent", name)
        self.model_calls: list[ModelCall] = []
        self._turns = turns

    async def open(self, call: ModelCall) -> ModelStream:
        answer_count = sum(isinstance(message, ModelResponse) for message in call.messages)
        self.model_calls.append(call)
        return ScriptedStream(_reads(self.origin, self._turns[min(answer_count, len(self._turns) - 1)]))

    def warnings(self, call: ModelCall) -> list[str]:
        return []


def _reads(origin: Origin, steps: Sequence[Step]) -> Iterator[list[ModelEvent]]:
    emitter = Emitter(origin)
    for step in steps:
        if isinstance(step, SideEvent):
            yield [step]
        else:
            step(emitter)
            yield emitter.take()
    emitter.finish("stop")
    yield emitter.end("eof")
