"""The worked example: an agent of Pydantic AI, moved to Pellucid with the conversations that it stored."""

from __future__ import annotations

import asyncio
import json
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from pellucid.models import close_shared_pool
from tests.interop.provider_kit import CLAUDE, PROVIDERS, Body, TurnServer, anthropic_turn

EXAMPLE = Path(__file__).parents[2] / "examples" / "moved_agent"
[ANTHROPIC] = [provider for provider in PROVIDERS if provider.name == "anthropic"]


def _module(name: str) -> Any:
    spec = spec_from_file_location(f"moved_agent_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(id: str, name: str, **arguments: Any) -> Body:
    return {"type": "tool_use", "id": f"toolu_{id}", "name": name, "input": arguments}


def _thought(text: str) -> Body:
    return {"type": "thinking", "thinking": text, "signature": f"signature of {text}"}


TURNS = [
    anthropic_turn(CLAUDE, _thought("Which account?"), _call("1", "balance", account="savings")),
    anthropic_turn(CLAUDE, _thought("Another one."), _call("2", "balance", account="main")),
    anthropic_turn(CLAUDE, _thought("Enough."), _call("3", "final_result", advice="You can pay.", risk=1)),
    anthropic_turn(CLAUDE, _thought("As before."), _call("4", "final_result", advice="Yes, still.", risk=2)),
]


def test_the_agent_that_was_moved_continues_the_conversation_of_the_other() -> None:
    async def answers(first: str, second: str) -> tuple[list[Any], list[Body]]:
        """Ask two questions, of the agents of these modules; return the answers and the requests."""
        modules = [_module(first), _module(second)]
        with TurnServer(ANTHROPIC, TURNS) as server:
            models = {"before": ANTHROPIC.theirs(server.url, CLAUDE), "after": ANTHROPIC.our_model(server.url)}
            try:
                bank = modules[0].Bank("Ada", {"main": 12.5})
                output, stored = await modules[0].answer(models[first], "Can I pay 10?", bank)
                if first != second:
                    stored = modules[1].converted(stored)
                again, _ = await modules[1].answer(models[second], "And now?", bank, stored)
            finally:
                await close_shared_pool()
        return [(answer.advice, answer.risk) for answer in (output, again)], server.requests

    expected, requests_before = asyncio.run(answers("before", "before"))
    for first in ("before", "after"):
        outputs, requests = asyncio.run(answers(first, "after"))
        assert outputs == expected == [("You can pay.", 1), ("Yes, still.", 2)]
        assert len(requests) == len(requests_before) == 4
        # The model gets back what it thought, with its signatures, at the same places.
        assert _model_blocks(requests[-1]) == _model_blocks(requests_before[-1])
        assert "signature of Enough." in json.dumps(requests[-1])
        assert "There is no account savings" in json.dumps(requests[-1])


def _model_blocks(request: Body) -> list[list[Body]]:
    return [message["content"] for message in request["messages"] if message["role"] == "assistant"]
