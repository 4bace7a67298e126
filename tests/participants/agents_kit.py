"""Agents for spaces, with scripted models."""

from __future__ import annotations

import json
from typing import Any

from pellucid import Agent
from pellucid.models import Model
from pellucid.providers.profiles import builtin_profiles
from pellucid.upstream import Limits
from tests.scripted import Call, Script, Upstream, delta


def calling(name: str, reasoning: str = "I must look.", text: str = "", **arguments: Any) -> Script:
    """Script in which the model thinks and calls this function."""

    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content=reasoning))
        if text:
            await call.event(delta(content=text))
        function = {"name": name, "arguments": json.dumps(arguments)}
        await call.event(delta(tool_calls=[{"index": 0, "id": f"c{id(call)}", "function": function}]))
        await call.event(delta("tool_calls"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def agent_of(upstream: Upstream, *scripts: Script, **options: Any) -> Agent[Any, Any]:
    model = Model(upstream.plays(*scripts), builtin_profiles()["vllm"], base_url=upstream.url, limits=Limits(retries=0))
    return Agent(model, **options)


def model_requests(upstream: Upstream, agent: Agent[Any, Any]) -> list[dict[str, Any]]:
    """Return the requests that the agent's model received."""
    return [call.body for call in upstream.calls(agent._model.name)]  # type: ignore[union-attr]
