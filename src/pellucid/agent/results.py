"""Results of an agent's run: its output, its usage and limits, and its own errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, TypeVar

from msgspec import structs

from ..errors import ErrorInfo, PellucidError
from ..parts import ModelMessage, ModelResponse, ToolReturnPart, Usage, messages_to_json
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
    per_request_input_tokens_limit: int | None = None
    """Maximum number of input tokens of each request alone."""

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

    def check_tokens(self, usage: RunUsage, turn: Usage | None = None) -> None:
        """Check the limits of tokens after a turn.

        Args:
            usage: The usage so far.
            turn: The usage of the turn.

        Raises:
            UsageLimitExceeded: A limit is exceeded.
        """
        request_tokens = None if turn is None else turn.input_tokens
        for kind, used, name in (
            ("input", usage.input_tokens, "input_tokens_limit"),
            ("output", usage.output_tokens, "output_tokens_limit"),
            ("total", usage.total_tokens, "total_tokens_limit"),
            ("input", request_tokens, "per_request_input_tokens_limit"),
        ):
            limit = getattr(self, name)
            if limit is not None and used is not None and used > limit:
                raise UsageLimitExceeded(f"{used} {kind} tokens are more than the {name} of {limit}")


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
    _output_call_id: str | None = field(default=None, repr=False)
    """The id of the call that was the output; None if the output was text."""

    def all_messages(self, *, output_tool_return_content: str | None = None) -> list[ModelMessage]:
        """Return the whole conversation: the message history, and the messages of this run.

        Args:
            output_tool_return_content: What a model that continues the conversation reads as the result of the call
                that was the output.

        Raises:
            ValueError: There is such a content, and the output was no call.
        """
        messages = list(self._messages)
        if output_tool_return_content is not None:
            if self._output_call_id is None:
                raise ValueError("output_tool_return_content: the output of this run was not a call of an output tool")
            [*_, last] = messages
            messages[-1] = structs.replace(
                last, parts=[self._with_content(part, output_tool_return_content) for part in last.parts]
            )
        return messages

    def _with_content(self, part: Any, content: str) -> Any:
        is_output = isinstance(part, ToolReturnPart) and part.tool_call_id == self._output_call_id
        return structs.replace(part, content=content) if is_output else part

    def new_messages(self, *, output_tool_return_content: str | None = None) -> list[ModelMessage]:
        """Return the messages of this run: the request, the answers, the results of functions.

        Args:
            output_tool_return_content: As in `all_messages`.
        """
        return self.all_messages(output_tool_return_content=output_tool_return_content)[self._history_length :]

    def all_messages_json(self, *, output_tool_return_content: str | None = None) -> bytes:
        """Return the whole conversation as JSON, which `pellucid.messages_from_json` reads.

        Args:
            output_tool_return_content: As in `all_messages`.
        """
        return messages_to_json(self.all_messages(output_tool_return_content=output_tool_return_content))

    def new_messages_json(self, *, output_tool_return_content: str | None = None) -> bytes:
        """Return the messages of this run as JSON, which `pellucid.messages_from_json` reads.

        Args:
            output_tool_return_content: As in `all_messages`.
        """
        return messages_to_json(self.new_messages(output_tool_return_content=output_tool_return_content))

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
