"""A run step by step: `async for node in run`, or `node = await run.next(node)`.

A node is the next step. It may be streamed (`async with node.stream() as stream`). A node that is not streamed is run
before the next node comes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from ..events import Event, FunctionToolResultEvent, ResponseEndEvent, RunEndEvent
from ..parts import ModelRequest, ModelResponse, UserContent
from .agent_run import AgentRun, AnswerStream, EventReader, RunPlan
from .results import AgentRunResult

Out = TypeVar("Out")


class NodeStream(AnswerStream[Any]):
    """The events of one step. If the step is the run's answer, it can also be read as text or as output.

    The run checks an output at the next step. What `stream_output` yields last is complete, but not checked.
    """

    def __init__(self, run: AgentRun[Any], node: _Node) -> None:
        super().__init__(run)
        self._node = node

    def stream_events(self) -> AsyncIterator[Event]:
        """Yield every event of the step that is still to come, in order."""
        return self._node.events()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self.stream_events()


@dataclass(eq=False)
class _Node:
    """A sequence of the run's events, up to one that ends it."""

    _run: AgentRun[Any] = field(repr=False)
    _reader: EventReader = field(repr=False)
    _is_over: bool = field(default=False, init=False, repr=False)

    _last_event_types: ClassVar[tuple[type[Event], ...]] = (RunEndEvent,)

    async def events(self) -> AsyncIterator[Event]:
        while not self._is_over:
            event = await self._reader.next()
            if event is None:
                self._is_over = True
                return
            self._is_over = isinstance(event, self._last_event_types) and not self._continues(event)
            yield event

    def _continues(self, event: Event) -> bool:
        """Check that the next event is in the same batch and of the same kind: all results come at once."""
        next_event = self._reader.peek()
        return isinstance(next_event, (type(event), RunEndEvent)) and not isinstance(event, ResponseEndEvent)

    @asynccontextmanager
    async def stream(self, ctx: Any = None) -> AsyncIterator[NodeStream]:
        """Return the events of this step as they come.

        Args:
            ctx: Ignored. Programs written for Pydantic AI pass a context.
        """
        yield NodeStream(self._run, self)

    async def finish(self) -> None:
        async for _ in self.events():
            pass


@dataclass(eq=False)
class UserPromptNode:
    """The run begins: the next step makes its first request of the user's message."""

    user_prompt: str | list[str | UserContent] | None


@dataclass(eq=False)
class ModelRequestNode(_Node):
    """The next step is a request to the model."""

    request: ModelRequest

    _last_event_types = (ResponseEndEvent, RunEndEvent)


@dataclass(eq=False)
class CallToolsNode(_Node):
    """The model has answered: the next step calls functions, or checks the answer."""

    model_response: ModelResponse

    _last_event_types = (FunctionToolResultEvent, RunEndEvent)


@dataclass(frozen=True)
class End(Generic[Out]):
    """The run has ended."""

    data: AgentRunResult[Out]


Step: TypeAlias = UserPromptNode | ModelRequestNode | CallToolsNode
"""A node that can be run."""


class SteppedRun(AgentRun[Out]):
    """An `AgentRun` that is run node by node. The iteration of a run that is cancelled ends without an `End`."""

    def __init__(self, plan: RunPlan) -> None:
        super().__init__(plan)
        self._reader = EventReader(self)
        self.next_node: Step | End[Out] = UserPromptNode(plan.context.prompt)
        """The next step, which `next` runs."""

    async def __aenter__(self) -> SteppedRun[Out]:
        return self

    async def __aiter__(self) -> AsyncIterator[Step | End[Out]]:
        node = self.next_node
        yield node
        while not isinstance(node, End):
            # A node that the program ran itself (`next`) is not run again.
            if node is self.next_node:
                await self._finish(node)
                if self.is_cancelled:
                    return
                self.next_node = await self._following(node)
            node = self.next_node
            yield node

    async def next(self, node: Step) -> Step | End[Out]:
        """Run a step, and return the one after it.

        Args:
            node: The next step (`next_node`). It may have been streamed, in part or to its end.

        Raises:
            RuntimeError: `node` is not the next step, or the run was cancelled.
            Exception: Everything that `Agent.run` raises.
        """
        if node is not self.next_node:
            raise RuntimeError(f"{type(node).__name__} is not the next step of this run, which is in `next_node`")
        await self._finish(node)
        if self.is_cancelled:
            raise RuntimeError("the run was cancelled: it has no further steps")
        self.next_node = await self._following(node)
        return self.next_node

    async def _finish(self, node: Step) -> None:
        if not isinstance(node, UserPromptNode):
            await node.finish()

    async def _following(self, node: Step) -> Step | End[Out]:
        response = self.last_response
        if isinstance(node, ModelRequestNode) and response is not None and response.finish_reason != "pause":
            return CallToolsNode(self, self._reader, response)
        if self.is_over:
            await self._reader.next()  # raises the error that ended the run, if there was one
            return End(self.result)
        requests = (message for message in reversed(self.all_messages()) if isinstance(message, ModelRequest))
        return ModelRequestNode(self, self._reader, next(requests, ModelRequest([])))
