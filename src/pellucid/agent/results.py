"""What a run gave, whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeVar

from ..parts import ModelMessage, ModelResponse, messages_to_json
from .limits import RunUsage

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
