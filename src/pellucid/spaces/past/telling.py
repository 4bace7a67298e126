"""A reasoning as OpenTelemetry's GenAI conventions tell it: the event with the messages of a model's turn.

Parts keep their order: `reasoning`, `tool_call`, `tool_call_response`, `text`. What the model said last is the output;
all before it is the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...envelopes import time_text
from .dialogue import Answer, Called, Dialogue, Heard, Thought

EVENT = "gen_ai.client.inference.operation.details"


def event(said: Dialogue, about: Mapping[str, Any]) -> dict[str, Any]:
    """`about`: further attributes."""
    told = _messages(said)
    output = told.pop() if told and told[-1]["role"] == "assistant" else None
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "pellucid",
        "gen_ai.agent.name": said.owner,
        **about,
        "gen_ai.input.messages": told,
    }
    if output is not None:
        calls = any(part["type"] == "tool_call" for part in output["parts"])
        finish = "stop" if said.answered else "tool_call" if calls else "incomplete"
        attributes["gen_ai.output.messages"] = [output | {"finish_reason": finish}]
    return {"event_name": EVENT, "timestamp": time_text(said.first.ts), "attributes": attributes}


def _messages(said: Dialogue) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    calls = 0

    def add(role: str, part: dict[str, Any], **more: Any) -> None:
        if told and told[-1]["role"] == role and all(told[-1].get(name) == one for name, one in more.items()):
            told[-1]["parts"].append(part)
        else:
            told.append({"role": role, "parts": [part], **more})

    for turn in said.turns:
        match turn:
            case Heard(speaker, text):
                add("user", {"type": "text", "content": text}, name=speaker)
            case Thought(text):
                add("assistant", {"type": "reasoning", "content": text})
            case Called(name, arguments, result):
                calls += 1
                id = f"call_{calls}"
                add("assistant", {"type": "tool_call", "id": id, "name": name, "arguments": arguments})
                if result is not None:
                    add("tool", {"type": "tool_call_response", "id": id, "response": result})
            case Answer(text):
                add("assistant", {"type": "text", "content": text})
    return told
