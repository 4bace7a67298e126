"""What a run gave, whole (`AgentRunResult`) or while it comes (`StreamedRunResult`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, TypeVar

from ..events import Event, PartDeltaEvent, ResponseStartEvent, TextPartDelta
from ..parts import ModelMessage, ModelResponse, messages_to_json
from .limits import RunUsage

if TYPE_CHECKING:
    from .running import AgentRun

Out = TypeVar("Out")


@dataclass(frozen=True)
class AgentRunResult(Generic[Out]):
    """A run that is over."""

    output: Out
    usage: RunUsage
    warnings: list[str]
    """What was asked of the model that it cannot do, in plain sentences."""
    _messages: list[ModelMessage] = field(repr=False)
    _new_from: int = field(repr=False)

    def all_messages(self) -> list[ModelMessage]:
        """The whole conversation: the history that was handed in, and what this run added."""
        return list(self._messages)

    def new_messages(self) -> list[ModelMessage]:
        """What this run added: the request, the answers, the results of functions."""
        return self._messages[self._new_from :]

    def all_messages_json(self) -> bytes:
        return messages_to_json(self.all_messages())

    def new_messages_json(self) -> bytes:
        return messages_to_json(self.new_messages())

    @property
    def response(self) -> ModelResponse:
        """The model's last turn."""
        return next(message for message in reversed(self._messages) if isinstance(message, ModelResponse))

    @property
    def thinking(self) -> str | None:
        """The run's readable reasoning, all turns of it, or None."""
        turns = [message.thinking for message in self.new_messages() if isinstance(message, ModelResponse)]
        return "\n\n".join(text for text in turns if text) or None


@dataclass(frozen=True)
class AgentRunResultEvent(Generic[Out]):
    """The last event of `run_stream_events`."""

    result: AgentRunResult[Out]
    event_kind: ClassVar[Literal["agent_run_result"]] = "agent_run_result"


class StreamedRunResult(Generic[Out]):
    """A run whose answer has begun; read it as it comes, or wait for all of it.

    If the model goes on to call functions after it began to answer, the run goes on too, and so does the text.
    """

    def __init__(self, run: AgentRun[Out], begun: list[Event]) -> None:
        self._run = run
        self._left = begun
        """What came and was not read yet."""
        self._text = ""

    async def stream_text(self, *, delta: bool = False) -> AsyncIterator[str]:
        """The answer's text as it comes: with `delta` each new piece, else everything so far in its turn."""
        async for event in self.stream_events():
            if isinstance(event, ResponseStartEvent):
                self._text = ""
            elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
                new = event.delta.content_delta
                self._text += new
                if new:
                    yield new if delta else self._text

    async def stream_events(self) -> AsyncIterator[Event]:
        """Everything that is still to come, in order."""
        while True:
            while self._left:
                yield self._left.pop(0)
            batch = await self._run.read()
            if batch is None:
                return
            self._left = list(batch)

    async def stream_output(self) -> AsyncIterator[Out]:
        """The output so far: text grows; a value of another type comes once, when it is whole."""
        if self._run.by_text:
            async for text in self.stream_text():
                yield text  # type: ignore[misc]
        else:
            yield await self.get_output()

    async def get_output(self) -> Out:
        """All of it. Raises what the run raises."""
        async for _ in self.stream_events():
            pass
        return self._run.result.output

    @property
    def is_complete(self) -> bool:
        return self._run.is_over

    @property
    def result(self) -> AgentRunResult[Out]:
        """The result, once the run is over."""
        return self._run.result

    def all_messages(self) -> list[ModelMessage]:
        return self._run.all_messages()

    def new_messages(self) -> list[ModelMessage]:
        return self._run.new_messages()

    @property
    def usage(self) -> RunUsage:
        return self._run.usage

    @property
    def warnings(self) -> list[str]:
        return self._run.warnings
