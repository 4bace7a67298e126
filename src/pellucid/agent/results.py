"""What a run of an agent gives: its result, what it used and may use, and its own errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeVar

from ..errors import ErrorInfo, PellucidError
from ..parts import ModelMessage, ModelResponse, Usage, messages_to_json


class UnexpectedModelBehavior(PellucidError):
    """The model did what an agent cannot go on from: too many wrong calls, no answer, an answer that was cut off.

    `said` is what the model, or a tool, had to say of it: in the exception's text, and in no lesser view.
    """

    def __init__(self, message: str, code: str, detail: str | None = None) -> None:
        super().__init__(ErrorInfo("model_error", message, code=code, upstream_message=detail))


class UsageLimitExceeded(PellucidError):
    """The run used, or was about to use, more than its `UsageLimits` allow."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorInfo("too_large", message, code="usage_limit"))


class RunUsage(Usage, frozen=True):
    """Tokens over all turns of a run, and how often what was done."""

    requests: int = 0
    """How often the model was asked."""
    tool_calls: int = 0
    """How many functions were called."""


def run_usage(usage: Usage, requests: int, tool_calls: int) -> RunUsage:
    tokens = {name: getattr(usage, name) for name in Usage.__struct_fields__}
    return RunUsage(**tokens, requests=requests, tool_calls=tool_calls)


@dataclass(frozen=True, kw_only=True)
class UsageLimits:
    """The most that a run may use; None: as much as it likes. Tokens that a provider does not report do not count.

    Requests and calls are refused before they are made; tokens can only be counted after a turn.
    """

    request_limit: int | None = 50
    tool_calls_limit: int | None = None
    input_tokens_limit: int | None = None
    output_tokens_limit: int | None = None
    total_tokens_limit: int | None = None

    def check_request(self, usage: RunUsage) -> None:
        """Before the model is asked once more. Raises `UsageLimitExceeded`."""
        if self.request_limit is not None and usage.requests >= self.request_limit:
            raise UsageLimitExceeded(
                f"the next request would be one more than the request_limit of {self.request_limit}"
            )
        self.check_tokens(usage)

    def check_calls(self, usage: RunUsage, additional: int) -> None:
        """Before `more` functions are called. Raises `UsageLimitExceeded`."""
        if self.tool_calls_limit is not None and usage.tool_calls + additional > self.tool_calls_limit:
            raise UsageLimitExceeded(
                f"{usage.tool_calls + additional} tool calls would exceed the tool_calls_limit of {self.tool_calls_limit}"
            )

    def check_tokens(self, usage: RunUsage) -> None:
        """After a turn. Raises `UsageLimitExceeded`."""
        for kind, limit in (
            ("input", self.input_tokens_limit),
            ("output", self.output_tokens_limit),
            ("total", self.total_tokens_limit),
        ):
            used: int | None = getattr(usage, f"{kind}_tokens")
            if limit is not None and used is not None and used > limit:
                raise UsageLimitExceeded(f"{used} {kind} tokens are more than the {kind}_tokens_limit of {limit}")


Out = TypeVar("Out")


@dataclass(frozen=True)
class AgentRunResult(Generic[Out]):
    """A run that is over."""

    output: Out
    usage: RunUsage
    warnings: list[str]
    """What was asked of the model that it cannot do, in plain sentences."""
    _messages: list[ModelMessage] = field(repr=False)
    _history_length: int = field(repr=False)

    def all_messages(self) -> list[ModelMessage]:
        """The whole conversation: the history that was handed in, and what this run added."""
        return list(self._messages)

    def new_messages(self) -> list[ModelMessage]:
        """What this run added: the request, the answers, the results of functions."""
        return self._messages[self._history_length :]

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
