"""A graph of LangGraph in a space, with a scripted model:  python langgraph_agent.py

The address and the token of its participant are in PELLUCID_SPACE_URL and PELLUCID_SPACE_TOKEN. The graph thinks, then
asks people before it decides: `interrupt` is a question in the space, and the answer to it resumes the graph.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from pellucid.spaces import FunctionInSpace, Participant
from pellucid.spaces.adapters.langgraph import langgraph_agent


class ScriptedModel(BaseChatModel):
    """A chat model that always thinks and says the same."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError("it only streams")

    async def _astream(self, *args: Any, **options: Any) -> AsyncIterator[ChatGenerationChunk]:
        for text in ("A release on a Friday ", "is a risk.\n\n", "Somebody must be on call."):
            yield ChatGenerationChunk(message=AIMessageChunk(content=[{"type": "reasoning", "reasoning": text}]))
        yield ChatGenerationChunk(message=AIMessageChunk(content="The plan is complete."))


async def plan(state: MessagesState) -> MessagesState:
    return {"messages": [await ScriptedModel().ainvoke(state["messages"])]}


def decide(state: MessagesState) -> MessagesState:
    on_call = interrupt("Who is on call tonight?")
    return {"messages": [AIMessage(f"We release, and {on_call} is on call.")]}


graph = (
    StateGraph(MessagesState)
    .add_node("plan", plan)
    .add_node("decide", decide)
    .add_edge(START, "plan")
    .add_edge("plan", "decide")
    .add_edge("decide", END)
    .compile(checkpointer=InMemorySaver())
)


async def main() -> None:
    url, token = os.environ["PELLUCID_SPACE_URL"], os.environ["PELLUCID_SPACE_TOKEN"]
    async with Participant(url, token=token) as me, FunctionInSpace(langgraph_agent(graph), me):
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main())
