"""What can go wrong for one who is in a space, or wants to be."""

from __future__ import annotations

from typing import Any

from ...errors import ErrorInfo, ErrorKind, PellucidError


class Refused(PellucidError):
    """The space did not take an envelope. Nothing of it is stored, and nobody else heard of it.

    `id` and `kind` are the envelope's; `info.code` is the finest name of the reason.
    """

    def __init__(self, info: ErrorInfo, id: str, kind: str) -> None:
        super().__init__(info)
        self.id = id
        self.kind = kind


class SpaceClosed(PellucidError):
    """There is no connection to the space, and there will be none: the token is refused, the space is gone, it closed
    for good, or nobody answered for too long."""

    def __init__(self, message: str, *, kind: ErrorKind = "unavailable", code: str = "space_closed") -> None:
        super().__init__(ErrorInfo(kind, message, code=code))


class Kicked(SpaceClosed):
    """Somebody put this participant out. `reason` is theirs."""

    def __init__(self, by: str, reason: str | None) -> None:
        super().__init__(
            f"{by!r} put this participant out of the space" + (f": {reason}" if reason else ""),
            kind="forbidden",
            code="kicked",
        )
        self.by = by
        self.reason = reason


class Cancelled(PellucidError):
    """Raised inside a reasoning that somebody else ended: `by` whom, and the `reason` they gave."""

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
    """A tool of somebody else failed, or its call was rejected. `error` is what they say of it, as JSON."""

    def __init__(self, message: str, error: Any = None, *, code: str = "call_failed") -> None:
        super().__init__(ErrorInfo("model_error", message, code=code))
        self.error = error
