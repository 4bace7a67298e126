"""What a store says when it cannot do what it was asked: to callers, that it does not; in the log (`OutageLog`), why.

No message holds SQL or a value that was to be kept: of what the database said, only the name of the error is known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from ..errors import CONVERSATION_BUSY, CONVERSATION_MOVED, ErrorInfo, ErrorKind, PellucidError, RequestError
from ..telemetry import log
from ..unicode import truncate

RECOVERY_SECONDS = 1.0
"""Seconds without a failure, after which an answer means that it answers again: a database that does every other thing
is not told twice each time."""

REPEAT_SECONDS = 10.0
"""So long the same fault is not said again."""


class StoreError(PellucidError):
    """The store did not do it, or did not say whether it did.

    `cause` is the name of the database's own error (`ConnectionRefusedError`, `DiskFullError`), for a log.
    """

    def __init__(
        self,
        message: str = "the store does not answer; try again in a moment",
        *,
        kind: ErrorKind = "unavailable",
        code: str = "storage_unavailable",
        cause: str | None = None,
    ) -> None:
        super().__init__(ErrorInfo(kind=kind, code=code, message=message))
        self.cause = cause

    def copy(self) -> StoreError:
        """The same for another waiter: an exception that is raised twice gathers both tracebacks."""
        return type(self)(self.info.message, kind=self.info.kind, code=self.info.code or "", cause=self.cause)


class StoreUnavailable(StoreError):
    """Nobody is there, or what is there cannot work now: nothing that is tried with it will do."""


class StatementFailed(StoreError):
    """The database took no offence at the rest: only this statement cannot be done as it is."""

    def __init__(
        self,
        message: str = "the store could not do this; that is a fault of this server",
        *,
        kind: ErrorKind = "server_error",
        code: str = "storage_failed",
        cause: str | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message, kind=kind, code=code, cause=cause)
        self.is_retryable = is_retryable
        """It came into another's way (a deadlock, say), and the same may succeed if it is tried again."""


class AlreadyStored(StatementFailed):
    """There is such a row already."""

    def __init__(
        self,
        message: str = "there is something with this id already; each needs an id of its own",
        *,
        kind: ErrorKind = "invalid_request",
        code: str = "already_exists",
        cause: str | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message, kind=kind, code=code, cause=cause, is_retryable=is_retryable)


class PreviousResponseGone(PellucidError):
    """A response that a kept one builds on is not there any more. `missing` is its id."""

    def __init__(self, missing: str) -> None:
        message = f"the response {missing}, on which this conversation builds, is not kept any more"
        super().__init__(ErrorInfo(kind="not_found", code="previous_response_not_found", message=message))
        self.missing_id = missing


class ChatBusy(RequestError):
    """A turn cannot begin while the one before it is still being answered."""

    def __init__(self) -> None:
        message = "this conversation is being answered; wait for the end of it, or cancel it"
        super().__init__(message, code=CONVERSATION_BUSY, param="conversation_id")


class ChatMoved(RequestError):
    """A turn would go on from another place than its chat is at now."""

    def __init__(self) -> None:
        message = "follows: this conversation goes on elsewhere by now; load it again, and ask where it is"
        super().__init__(message, code=CONVERSATION_MOVED, param="follows")


class ChatNotFound(RequestError):
    """There is no such chat, or not any more."""

    def __init__(self, id: str) -> None:
        message = f"there is no conversation {truncate(id)}; it may have been deleted, or have expired"
        super().__init__(message, kind="not_found", code="conversation_not_found", param="conversation_id")


class SpaceNotFound(RequestError):
    """There is no such space, or not any more."""

    def __init__(self, name: str) -> None:
        message = f"there is no space {truncate(name)}; it may have been removed"
        super().__init__(message, kind="not_found", code="space_not_found", param="space")


class AppendConflict(PellucidError):
    """Somebody else appended to the space, or changed it: `head` and `version` say where it is now.

    Whoever appends reads what is new and tries again; nobody else is to see this."""

    def __init__(self, head: int, version: int) -> None:
        message = "somebody else wrote into this space meanwhile; try again"
        super().__init__(ErrorInfo(kind="unavailable", code="overtaken", message=message))
        self.head = head
        self.version = version


class OutageLog:
    """Why a database does not do what it is asked: `with` it, whatever is asked is carried out.

    A database has two, one for what is read and one for what is written (a full disk can be read). One line says that
    it stopped answering, one that it answers again, and none is there for each request in between."""

    def __init__(self, operation: Literal["read", "written"], clock: Callable[[], float] = time.monotonic) -> None:
        self._operation = operation
        self._clock = clock
        self._failed_at: float | None = None
        """When it did last, while it does not answer."""
        self._logged_at: dict[str, float] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            if self._failed_at is not None and self._clock() - self._failed_at >= RECOVERY_SECONDS:
                self._failed_at = None
                log.warning("the store answers again: it can be %s", self._operation)
        elif isinstance(error, StoreUnavailable):
            if self._failed_at is None:
                log.warning("the store does not answer: it cannot be %s (%s)", self._operation, error.cause)
            self._failed_at = self._clock()
        elif isinstance(error, StatementFailed) and not isinstance(error, AlreadyStored) and error.cause:
            now = self._clock()
            if now - self._logged_at.get(error.cause, -REPEAT_SECONDS) >= REPEAT_SECONDS:
                self._logged_at[error.cause] = now
                log.warning("the store failed: %s", error.cause)
