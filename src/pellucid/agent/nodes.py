"""A run step by step: `async for node in run`.

A node is the next step. It may be streamed (`async with node.stream() as events`). A node that is not streamed is run
before the next node comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ..events import Event, FunctionToolResultEvent, ResponseEndEvent, RunEndEvent
from ..parts import ModelRequest, ModelResponse
from .agent_run import AgentRun, EventReader
from .results import AgentRunResult

Out = TypeVar("Out")


class _Node:
    """A sequence of the run's events, up to one that ends it."""

    def __init__(self, reader: EventReader, *last_event_types: type[Event]) -> None:
        self._reader = reader
        self._last_event_types = last_event_types
        self._is_over = False

    async def events(self) -> AsyncIterator[Event]:
        while not self._is_over:
            event = await self._reader.next()
            if event is None:
                self._is_over = True
                return
            self._is_over = isinstance(event, (*self._last_event_types, RunEndEvent)) and not self._continues(event)
            yield event

    def _continues(self, event: Event) -> bool:
        """Check that the next event is in the same batch and of the same kind: all results come at once."""
        next_event = self._reader.peek()
        return isinstance(next_event, (type(event), RunEndEvent)) and not isinstance(event, ResponseEndEvent)

    @asynccontextmanager
    async def stream(self, ctx: Any = None) -> AsyncIterator[AsyncIterator[Event]]:
        """Return the events of this step as they come.

        Args:
            ctx: Ignored. Programs written for Pydantic AI pass a context.
        """
        yield self.events()

    async def finish(self) -> None:
        async for _ in self.events():
            pass


class ModelRequestNode(_Node):
    """The next step is a request to the model."""

    def __init__(self, reader: EventReader, request: ModelRequest) -> None:
        super().__init__(reader, ResponseEndEvent)
        self.request = request


class CallToolsNode(_Node):
    """The model has answered: the next step calls functions, or checks the answer."""

    def __init__(self, reader: EventReader, response: ModelResponse) -> None:
        super().__init__(reader, FunctionToolResultEvent)
        self.model_response = response


@dataclass(frozen=True)
class End(Generic[Out]):
    """The run has ended."""

    data: AgentRunResult[Out]


async def nodes(run: AgentRun[Out]) -> AsyncIterator[ModelRequestNode | CallToolsNode | End[Out]]:
    """Yield the steps of a run, in order."""
    reader = EventReader(run)
    while True:
        requests = (message for message in reversed(run.all_messages()) if isinstance(message, ModelRequest))
        request = next(requests, ModelRequest([]))
        request_node = ModelRequestNode(reader, request)
        yield request_node
        await request_node.finish()
        response = run.last_response
        if response is not None and response.finish_reason == "pause":
            continue
        if response is not None:
            tools_node = CallToolsNode(reader, response)
            yield tools_node
            await tools_node.finish()
        if run.is_over:
            await reader.next()  # raises the error that ended the run, if there was one
            yield End(run.result)
            return
