"""A compiled graph of LangGraph as a participant of a space.

    async with Participant(url, token=token) as me, FunctionInSpace(langgraph_agent(graph), me):
        await asyncio.Future()

| graph | space |
|---|---|
| reasoning in the content blocks of its chat models | thoughts, as they arrive |
| the text of the last message | the answer; texts of earlier messages are thoughts |
| calls of its own tools, their results | thoughts and observations |
| `interrupt("Deploy?")` | a question to people; the text of the answer resumes the graph |
| `interrupt` of LangChain's human-in-the-loop middleware | a proposal for each call: a request approves it |

A graph that interrupts needs a checkpointer. Each question is a thread of its own, unless `config` names one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Interrupt

from ...parts import TextPart, TextPartDelta, ThinkingPartDelta, ToolCallPart, ToolReturnPart
from ..agents.bridge import text_or_json
from .agent_function import AgentFunction, SpaceTurn, Step

_INTERRUPT = "__interrupt__"


def langgraph_agent(
    graph: Any,
    *,
    make_input: Callable[[SpaceTurn], Any] | None = None,
    config: Mapping[str, Any] | None = None,
) -> AgentFunction:
    """Return a graph as the agent of a `FunctionInSpace`.

    Args:
        graph: The compiled graph.
        make_input: Makes its input of a question. None: `{"messages": [the prompt, as a user's message]}`.
        config: Its `RunnableConfig`.
    """

    async def run(turn: SpaceTurn) -> AsyncGenerator[Step, None]:
        configurable = {"thread_id": turn.question.id, **(config or {}).get("configurable", {})}
        settings: RunnableConfig = {**(config or {}), "configurable": configurable}  # type: ignore[typeddict-item]
        default = {"messages": [{"role": "user", "content": turn.prompt}]}
        next_input: Any = default if make_input is None else make_input(turn)
        while next_input is not None:
            messages, interrupts = _MessageReader(), dict[str, Interrupt]()
            async for mode, data in graph.astream(next_input, settings, stream_mode=["messages", "updates"]):
                if mode == "messages":
                    for step in messages.feed(data[0]):
                        yield step
                elif isinstance(data, dict):
                    interrupts |= {one.id: one for one in data.get(_INTERRUPT, ())}
            for step in messages.calls():
                yield step
            answers = {id: await _answer(turn, one.value) for id, one in interrupts.items()}
            next_input = Command(resume=answers) if answers else None

    return run


class _MessageReader:
    """Converts the messages of one stream of a graph to steps."""

    def __init__(self) -> None:
        self._messages: dict[str | None, AIMessage] = {}
        """Messages whose calls were not reported yet, by id."""
        self._reported: set[str] = set()
        self._text_of: str | None = None
        """Id of the message whose text is open."""

    def feed(self, message: BaseMessage) -> Iterator[Step]:
        """Yield the steps of a message, or of a chunk of one."""
        if isinstance(message, ToolMessage):
            yield from self.calls()
            yield ToolReturnPart(
                tool_name=message.name or "", content=str(message.text), tool_call_id=message.tool_call_id
            )
        elif isinstance(message, AIMessage):
            if message.id not in self._messages:
                yield from self.calls()
            earlier = self._messages.get(message.id)
            if isinstance(message, AIMessageChunk) and isinstance(earlier, AIMessageChunk):
                self._messages[message.id] = earlier + message
            else:
                self._messages[message.id] = message
            for block in message.content_blocks:
                if block["type"] == "reasoning" and (thinking := block.get("reasoning")):
                    yield ThinkingPartDelta(content_delta=thinking)
                elif block["type"] == "text" and (text := block["text"]):
                    is_open, self._text_of = self._text_of == message.id, message.id
                    yield TextPartDelta(content_delta=text) if is_open else TextPart(content=text)

    def calls(self) -> Iterator[Step]:
        """Yield the calls of the messages that are complete."""
        messages, self._messages = self._messages, {}
        for message in messages.values():
            for call in message.tool_calls:
                id = call["id"] or ""
                if id not in self._reported:
                    self._reported.add(id)
                    yield ToolCallPart(tool_name=call["name"], args=call["args"], tool_call_id=id)


async def _answer(turn: SpaceTurn, value: Any) -> Any:
    """Have an interrupt answered: calls are proposed, anything else is a question to people."""
    calls = value.get("action_requests") if isinstance(value, dict) else None
    if not isinstance(calls, list):
        return await turn.ask(text_or_json(value))
    decisions = []
    for call in calls:
        refusal = await turn.approve(call["name"], call.get("args") or {})
        decisions.append({"type": "approve"} if refusal is None else {"type": "reject", "message": refusal})
    return {"decisions": decisions}
