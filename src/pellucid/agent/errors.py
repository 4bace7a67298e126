"""What can go wrong in an agent's run beyond the model's own faults."""

from __future__ import annotations

from ..errors import ErrorInfo, PellucidError


class UnexpectedModelBehavior(PellucidError):
    """The model did what an agent cannot go on from: too many wrong calls, no answer, an answer that was cut off.

    `said` is what the model, or a tool, had to say of it: in the exception's text, and in no lesser view.
    """

    def __init__(self, message: str, code: str, said: str | None = None) -> None:
        super().__init__(ErrorInfo("model_error", message, code=code, said=said))


class UsageLimitExceeded(PellucidError):
    """The run used, or was about to use, more than its `UsageLimits` allow."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorInfo("too_large", message, code="usage_limit"))
