"""What a run used, and what it may use."""

from __future__ import annotations

from dataclasses import dataclass

from ..parts import Usage
from .errors import UsageLimitExceeded


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

    def check_calls(self, usage: RunUsage, more: int) -> None:
        """Before `more` functions are called. Raises `UsageLimitExceeded`."""
        if self.tool_calls_limit is not None and usage.tool_calls + more > self.tool_calls_limit:
            raise UsageLimitExceeded(
                f"{usage.tool_calls + more} tool calls would exceed the tool_calls_limit of {self.tool_calls_limit}"
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
