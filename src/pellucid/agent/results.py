"""Results of an agent's run: its output, its usage and limits, and its own errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Generic, Literal, TypeVar

from ..errors import ErrorInfo, PellucidError
from ..parts import ModelMessage, ModelResponse, messages_to_json
from ..tools import RunUsage


class UnexpectedModelBehavior(PellucidError):
    """The model did something from which an agent cannot continue.

    For example: too many wrong calls, no answer, or a cut-off answer.

    Args:
        message: What happened.
        code: The error code.
        detail: Text of the model or of a tool. It is in the exception's text, and in no lesser view.
    """

    def __init__(self, message: str, code: str, detail: str | None = None) -> None:
        super().__init__(ErrorInfo("model_error", message, code=code, upstream_message=detail))


class UsageLimitExceeded(PellucidError):
    """The run exceeded its `UsageLimits`, or was about to.

    Args:
        message: Which limit, and by how much.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorInfo("too_large", message, code="usage_limit"))


@dataclass(frozen=True, kw_only=True)
class UsageLimits:
    """The limits of a run; None means no limit. Tokens that a provider does not report do not count.

    Requests and calls are refused before they are made. Tokens can be counted only after a turn.
    """

    request_limit: int | None = 50
    tool_calls_limit: int | None = None
    input_tokens_limit: int | None = None
    output_tokens_limit: int | None = None
    total_tokens_limit: int | None = None

    def check_request(self, usage: RunUsage) -> None:
        """Check the limits before a request to the model.

        Raises:
            UsageLimitExceeded: A limit is reached.
        """
        if self.request_limit is not None and usage.requests >= self.request_limit:
            raise UsageLimitExceeded(f"the next request would exceed the request_limit of {self.request_limit}")
        self.check_tokens(usage)

    def check_calls(self, usage: RunUsage, additional: int) -> None:
        """Check the limit of calls before `additional` functions are called.

        Raises:
            UsageLimitExceeded: The calls would exceed the limit.
        """
        if self.tool_calls_limit is not None and usage.tool_calls + additional > self.tool_calls_limit:
            raise UsageLimitExceeded(
                f"{usage.tool_calls + additional} tool calls would exceed the tool_calls_limit "
                f"of {self.tool_calls_limit}"
            )

    def check_tokens(self, usage: RunUsage) -> None:
        """Check the limits of tokens after a turn.

        Raises:
            UsageLimitExceeded: A limit is exceeded.
        """
        for kind, used, limit in (
            ("input", usage.input_tokens, self.input_tokens_limit),
            ("output", usage.output_tokens, self.output_tokens_limit),
            ("total", usage.total_tokens, self.total_tokens_limit),
        ):
            if limit is not None and used is not None and used > limit:
                raise UsageLimitExceeded(f"{used} {kind} tokens are more than the {kind}_tokens_limit of {limit}")


Out = TypeVar("Out")


@dataclass(frozen=True)
class AgentRunResult(Generic[Out]):
    """The result of a run that has ended."""

    output: Out
    usage: RunUsage
    warnings: list[str]
    """Settings that the model does not support, and other warnings, as plain sentences."""
    _messages: list[ModelMessage] = field(repr=False)
    _history_length: int = field(repr=False)

    def all_messages(self) -> list[ModelMessage]:
        """Return the whole conversation: the message history, and the messages of this run."""
        return list(self._messages)

    def new_messages(self) -> list[ModelMessage]:
        """Return the messages of this run: the request, the answers, the results of functions."""
        return self._messages[self._history_length :]

    def all_messages_json(self) -> bytes:
        """Return the whole conversation as JSON, which `pellucid.messages_from_json` reads."""
        return messages_to_json(self.all_messages())

    def new_messages_json(self) -> bytes:
        """Return the messages of this run as JSON, which `pellucid.messages_from_json` reads."""
        return messages_to_json(self.new_messages())

    @property
    def response(self) -> ModelResponse:
        """The model's last turn."""
        return next(message for message in reversed(self._messages) if isinstance(message, ModelResponse))

    @property
    def thinking(self) -> str | None:
        """The readable reasoning of all turns of the run, or None."""
        turns = [message.thinking for message in self.new_messages() if isinstance(message, ModelResponse)]
        return "\n\n".join(text for text in turns if text) or None


@dataclass(frozen=True)
class AgentRunResultEvent(Generic[Out]):
    """The last event of `run_stream_events`."""

    result: AgentRunResult[Out]
    event_kind: ClassVar[Literal["agent_run_result"]] = "agent_run_result"
