"""An agent of Pellucid, with a scripted model."""

from collections.abc import AsyncIterator

from pellucid import Agent
from pellucid.messages import ModelMessage
from pellucid.models.function import AgentInfo, DeltaThinkingPart, FunctionModel


async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaThinkingPart]]:
    if "backup" in str(messages[-1]):
        yield {0: DeltaThinkingPart(content="The newest backup is from 06:10, and a test restored it.")}
        yield "Yes, to the state of 06:10."
    else:
        yield {0: DeltaThinkingPart(content="The migration adds a column.\n\n")}
        yield {0: DeltaThinkingPart(content="It needs no lock.")}
        yield "The database "
        yield "is ready."


agent = Agent(FunctionModel(stream_function=script), name="database")
