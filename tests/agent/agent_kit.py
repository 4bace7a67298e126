"""Helpers of the tests of agents."""

from __future__ import annotations

import builtins
import json
from collections.abc import Callable
from typing import Any

from pellucid import Agent
from pellucid.parts import ModelMessage, RetryPromptPart, ToolReturnPart
from tests.scripted import Call, Script, delta

MakeAgent = Callable[..., tuple[Agent[Any, Any], Callable[[], list[Call]]]]


def calls(
    *named: tuple[str, dict[str, Any] | str], reasoning: str = "I must look.", text: str = "", id: str | None = None
) -> Script:
    """Return a script in which the model thinks and calls these functions. `id`: the id of each call."""

    async def script(call: Call) -> None:
        number = builtins.id(call)
        await call.head()
        await call.event(delta(reasoning_content=reasoning))
        if text:
            await call.event(delta(content=text))
        for index, (name, arguments) in enumerate(named):
            args = arguments if isinstance(arguments, str) else json.dumps(arguments)
            function = {"name": name, "arguments": args}
            await call.event(
                delta(tool_calls=[{"index": index, "id": id or f"c{number}-{index}", "function": function}])
            )
        await call.event(delta("tool_calls"))
        await call.event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5}})
        await call.event(b"[DONE]")
        await call.end()

    return script


def writes_arguments(name: str, *pieces: str) -> Script:
    """Return a script in which the model calls one function, and writes its arguments in these pieces."""

    async def script(call: Call) -> None:
        await call.head()
        for number, piece in enumerate(pieces):
            head = {"id": f"c{id(call)}"} if number == 0 else {}
            function = {"arguments": piece} | ({"name": name} if number == 0 else {})
            await call.event(delta(tool_calls=[{"index": 0, **head, "function": function}]))
        await call.event(delta("tool_calls"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def offered(call: Call) -> list[str]:
    """Return the names of the tools in a request."""
    return [tool["function"]["name"] for tool in call.body.get("tools", ())]


def results_in(message: ModelMessage) -> list[ToolReturnPart | RetryPromptPart]:
    """Return the parts of a message that has only results of calls."""
    results = [part for part in message.parts if isinstance(part, ToolReturnPart | RetryPromptPart)]
    assert len(results) == len(message.parts)
    return results
