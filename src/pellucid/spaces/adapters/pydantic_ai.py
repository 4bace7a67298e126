"""An agent of Pydantic AI as a participant of a space.

    async with Participant(url, token=token) as me, FunctionInSpace(pydantic_ai_agent(agent), me):
        await asyncio.Future()

| agent | space |
|---|---|
| `ThinkingPart` | thoughts, as they arrive |
| the text of the last response, or its output as JSON | the answer; earlier texts are thoughts |
| calls of its own tools, their results | thoughts and observations |
| a call that needs approval (`DeferredToolRequests.approvals`) | a proposal: a request approves it |
| a call that is made elsewhere (`DeferredToolRequests.calls`) | a proposal, which another participant carries out |

For the last two, `DeferredToolRequests` has to be among the agent's output types.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

from pydantic_ai import AgentRunResultEvent, DeferredToolRequests, DeferredToolResults, ToolDenied, messages
from pydantic_core import to_json

from ...parts import TextPart, TextPartDelta, ThinkingPartDelta, ToolCallPart, ToolReturnPart
from .agent_function import AgentFunction, SpaceTurn, Step


def pydantic_ai_agent(agent: Any, **options: Any) -> AgentFunction:
    """Return an agent of Pydantic AI as the agent of a `FunctionInSpace`.

    Args:
        agent: The agent.
        options: Options of `Agent.run_stream_events`, such as `deps`.
    """

    async def run(turn: SpaceTurn) -> AsyncGenerator[Step, None]:
        prompt: str | None = turn.prompt
        history, deferred = None, None
        while True:
            result: Any = None
            async with agent.run_stream_events(
                prompt, message_history=history, deferred_tool_results=deferred, **options
            ) as events:
                async for event in events:
                    if isinstance(event, AgentRunResultEvent):
                        result = event.result
                    for step in _steps_of(event):
                        yield step
            if not isinstance(result.output, DeferredToolRequests):
                break
            deferred = await _settle(turn, result.output)
            prompt, history = None, result.all_messages()
        if not isinstance(result.output, str):
            yield TextPart(content=to_json(result.output, fallback=str).decode())

    return run


def _steps_of(event: Any) -> Iterator[Step]:
    match event:
        case messages.PartStartEvent(part=messages.ThinkingPart(content=str(text))) if text:
            yield ThinkingPartDelta(content_delta=text)
        case messages.PartDeltaEvent(delta=messages.ThinkingPartDelta(content_delta=str(text))):
            yield ThinkingPartDelta(content_delta=text)
        case messages.PartStartEvent(part=messages.TextPart(content=text)):
            yield TextPart(content=text)
        case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)):
            yield TextPartDelta(content_delta=text)
        case messages.FunctionToolCallEvent(part=call):
            yield ToolCallPart(tool_name=call.tool_name, args=call.args_as_dict(), tool_call_id=call.tool_call_id)
        case messages.FunctionToolResultEvent(part=part):
            yield ToolReturnPart(
                tool_name=part.tool_name, content=part.model_response_str(), tool_call_id=part.tool_call_id
            )


async def _settle(turn: SpaceTurn, requests: DeferredToolRequests) -> DeferredToolResults:
    """Have calls approved, or made by others."""
    results = DeferredToolResults()
    for call in requests.approvals:
        refusal = await turn.approve(call.tool_name, call.args_as_dict())
        results.approvals[call.tool_call_id] = True if refusal is None else ToolDenied(refusal)
    for call in requests.calls:
        results.calls[call.tool_call_id] = await turn.propose(call.tool_name, call.args_as_dict())
    return results
