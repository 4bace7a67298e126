"""Errors of a participant."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind, PellucidError


class Refused(PellucidError):
    """The space refused an envelope. Nothing of it is stored, and no other participant received it.

    Attributes:
        id: Id of the envelope.
        kind: Its kind.
        info: The error. `info.code` is its most specific code.
    """

    def __init__(self, info: ErrorInfo, id: str, kind: str) -> None:
        super().__init__(info)
        self.id = id
        self.kind = kind


class SpaceClosed(PellucidError):
    """There is no connection to the space, and there will be none.

    The token is refused, the space is deleted or closed for good, or there was no answer for too long.
    """

    def __init__(self, message: str, *, kind: ErrorKind = "unavailable", code: str = "space_closed") -> None:
        super().__init__(ErrorInfo(kind, message, code=code))


class Kicked(SpaceClosed):
    """Another participant removed this one from the space.

    Attributes:
        by: Id of the participant who did.
        reason: The reason that it gave.
    """

    def __init__(self, by: str, reason: str | None) -> None:
        super().__init__(
            f"{by!r} removed this participant from the space" + (f": {reason}" if reason else ""),
            kind="forbidden",
            code="kicked",
        )
        self.by = by
        self.reason = reason


class Cancelled(PellucidError):
    """Raised inside a reasoning that another participant ended.

    Attributes:
        path: Path of the context.
        by: Id of the participant who ended it.
        reason: The reason that it gave.
    """

    def __init__(self, path: str, by: str, reason: str | None) -> None:
        super().__init__(
            ErrorInfo(
                "invalid_request",
                f"{by!r} ended the reasoning {path!r}" + (f": {reason}" if reason else ""),
                code="reasoning_cancelled",
            )
        )
        self.path = path
        self.by = by
        self.reason = reason


class CallFailed(PellucidError):
    """A tool of another participant failed, or its call was rejected.

    Attributes:
        error: The error that came back, as JSON.
    """

    def __init__(self, message: str, error: Any = None, *, code: str = "call_failed") -> None:
        super().__init__(ErrorInfo("model_error", message, code=code))
        self.error = error
