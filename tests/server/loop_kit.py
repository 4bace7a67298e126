"""Scripts of a model that calls functions, and checks for every response of the gateway."""

from __future__ import annotations

import json
from typing import Any

from pellucid.protocols.openresponses.verify import verify
from tests.scripted import Call, Script, delta
from tests.scripted.gateway import Reply
from tests.server.event_check import check_events

Item = dict[str, Any]


def calling(name: str, id: str = "", index: int = 0, **arguments: Any) -> dict[str, Any]:
    return {
        "index": index,
        "id": id or f"call_{name}_{index}",
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments)},
    }


def turn(thought: str = "", text: str = "", *calls: dict[str, Any], finish: str | None = None) -> Script:
    """Script one turn over Chat Completions: reasoning, text, and calls."""

    async def script(call: Call) -> None:
        await call.head()
        for word in thought.split(" ") if thought else []:
            await call.event(delta(reasoning_content=word + " "))
        if text:
            await call.event(delta(content=text))
        for index, made in enumerate(calls):
            await call.event(delta(tool_calls=[{**made, "index": index}]))
        await call.event(delta(finish or ("tool_calls" if calls else "stop")))
        await call.event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
        await call.event(b"[DONE]")
        await call.end()

    return script


def legal_events(reply: Reply) -> list[dict[str, Any]]:
    """Return the events of a stream, after checking them against the specification and the published schema."""
    assert reply.status == 200, reply.body
    assert verify(reply.body) == []
    check_events(reply.events)
    assert [event["sequence_number"] for event in reply.events] == list(range(len(reply.events)))
    return reply.events


def output(reply: Reply) -> list[Item]:
    if reply.headers["content-type"].startswith("text/event-stream"):
        items: list[Item] = legal_events(reply)[-1]["response"]["output"]
        return items
    assert reply.status == 200, reply.body
    items = reply.json["output"]
    return items


def kinds(items: list[Item]) -> list[str]:
    return [item["type"] for item in items]


def outputs(items: list[Item]) -> dict[str, Any]:
    """Return the outputs of functions by call id."""
    return {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}


def function(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": properties}}
