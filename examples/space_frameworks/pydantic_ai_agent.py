"""An agent of Pydantic AI in a space, with a scripted model:  python pydantic_ai_agent.py

The address and the token of its participant are in PELLUCID_SPACE_URL and PELLUCID_SPACE_TOKEN. It thinks, calls a tool
of its own, and answers.
"""

import asyncio
import os
from collections.abc import AsyncIterator

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from pellucid.spaces import FunctionInSpace, Participant
from pellucid.spaces.adapters.pydantic_ai import pydantic_ai_agent


async def script(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | dict[int, DeltaThinkingPart] | dict[int, DeltaToolCall]]:
    if not any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        yield {0: DeltaThinkingPart(content="Are the tests ")}
        yield {0: DeltaThinkingPart(content="green?")}
        yield {1: DeltaToolCall(name="run_tests", json_args='{"suite": "release"}')}
    else:
        yield {0: DeltaThinkingPart(content="They are.")}
        yield "All tests "
        yield "pass."


agent = Agent(FunctionModel(stream_function=script), name="tests")


@agent.tool_plain
def run_tests(suite: str) -> str:
    """Run a suite of tests."""
    return f"{suite}: 1,204 passed"


async def main() -> None:
    url, token = os.environ["PELLUCID_SPACE_URL"], os.environ["PELLUCID_SPACE_TOKEN"]
    async with Participant(url, token=token) as me, FunctionInSpace(pydantic_ai_agent(agent), me):
        await asyncio.Future()


if __name__ == "__main__":
    asyncio.run(main())
