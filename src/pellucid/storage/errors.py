"""Errors of the store. Callers learn that an operation failed; the log says why (`OutageLog`).

No message contains SQL or a stored value: only the name of the database's error is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

from ..errors import ErrorInfo, ErrorKind, PellucidError, RequestError
from ..telemetry import log
from ..unicode import truncate

RECOVERY_SECONDS = 1.0
"""Seconds without a failure until the database counts as available again. So a database that fails every second call is
not logged each time."""

REPEAT_SECONDS = 10.0
"""Seconds during which the same error is not logged again."""


class StoreError(PellucidError):
    """The store did not carry out an operation, or its result is unknown.

    `cause` is the name of the database's error for the log, for example `ConnectionRefusedError`, or
    asyncpg's `DiskFullError`. `is_retryable`: whether a statement may succeed when it is repeated, for example after a
    deadlock. A subclass has its own defaults of message, kind, code and `retry_after` (for clients, in seconds).
    """

    message = "the store does not answer; try again in a moment"
    kind: ErrorKind = "unavailable"
    code = "storage_unavailable"
    retry_after: float | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        kind: ErrorKind | None = None,
        code: str | None = None,
        cause: str | None = None,
        is_retryable: bool = False,
    ) -> None:
        super().__init__(
            ErrorInfo(kind or self.kind, message or self.message, code=code or self.code, retry_after=self.retry_after)
        )
        self.cause = cause
        self.is_retryable = is_retryable

    def copy(self) -> StoreError:
        """Return a copy for another waiter: an exception that is raised twice would collect both tracebacks."""
        return type(self)(self.info.message, kind=self.info.kind, code=self.info.code, cause=self.cause)


class StoreUnavailable(StoreError):
    """The database cannot be reached or cannot work now: every statement would fail."""

    retry_after = 1.0


class StatementFailed(StoreError):
    """The database works, but cannot execute this statement."""

    message = "the store could not do this; that is a fault of this server"
    kind: ErrorKind = "server_error"
    code = "storage_failed"


class AlreadyStored(StatementFailed):
    """There is a row with this key already."""

    message = "there is something with this id already; ids must be unique"
    kind: ErrorKind = "invalid_request"
    code = "already_exists"


class PreviousResponseGone(PellucidError):
    """A response in the chain of `previous_id`s is not stored any more. `missing_id` is its id."""

    def __init__(self, missing: str) -> None:
        message = f"the response {missing}, on which this conversation builds, is not stored any more"
        super().__init__(ErrorInfo(kind="not_found", code="previous_response_not_found", message=message))
        self.missing_id = missing


class ChatBusy(RequestError):
    """A turn cannot begin while the turn before it is in progress."""

    def __init__(self) -> None:
        message = "this conversation is being answered; wait for the end of it, or cancel it"
        super().__init__(message, kind="conflict", code="conversation_busy", param="conversation_id")


class ChatMoved(RequestError):
    """A turn would follow another turn than the current head of its chat."""

    def __init__(self) -> None:
        message = "follows: this conversation has a newer turn; load it again, and continue from its last turn"
        super().__init__(message, kind="conflict", code="conversation_moved", param="follows")


class ChatNotFound(RequestError):
    """The chat does not exist, or not any more."""

    def __init__(self, id: str) -> None:
        message = f"there is no conversation {truncate(id)}; it may have been deleted, or have expired"
        super().__init__(message, kind="not_found", code="conversation_not_found", param="conversation_id")


class SpaceNotFound(RequestError):
    """The space does not exist, or not any more."""

    def __init__(self, name: str) -> None:
        message = f"there is no space {truncate(name)}; it may have been removed"
        super().__init__(message, kind="not_found", code="space_not_found", param="space")


class IdsExist(PellucidError):
    """Ids that were to be new are in the log of the space already: `ids`. Nothing was appended.

    The writer looks up whose they are and tries again. No client gets this error.
    """

    def __init__(self, ids: frozenset[str]) -> None:
        super().__init__(ErrorInfo("conflict", "some of these ids are in the space already", code="id_conflict"))
        self.ids = ids


class AppendConflict(PellucidError):
    """Another writer appended to the space or changed it. `head` and `version` are its current ones.

    The writer reads the new envelopes and tries again. No client gets this error.
    """

    def __init__(self, head: int, version: int) -> None:
        message = "another writer appended to this space meanwhile; try again"
        super().__init__(ErrorInfo(kind="unavailable", code="overtaken", message=message))
        self.head = head
        self.version = version


class OutageLog:
    """Context manager around operations of a database, which logs outages.

    A database has two, one for reads and one for writes: a full disk can be read. One line is logged when the database
    stops answering, and one when it answers again. Failed requests in between are not logged.

    Args:
        operation: Which operations, for the message.
        clock: Monotonic time in seconds.
    """

    def __init__(self, operation: Literal["read", "written"], clock: Callable[[], float] = time.monotonic) -> None:
        self._operation = operation
        self._clock = clock
        self.has_failed = False
        """Whether the last operation failed because the database was not available."""
        self._failed_at: float | None = None
        """Time of the last failure during an outage; None: there is no outage."""
        self._logged_at: dict[str, float] = {}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.has_failed = False
            if self._failed_at is not None and self._clock() - self._failed_at >= RECOVERY_SECONDS:
                self._failed_at = None
                log.warning("the store answers again: it can be %s", self._operation)
        elif isinstance(error, StoreUnavailable):
            self.has_failed = True
            if self._failed_at is None:
                log.warning("the store does not answer: it cannot be %s (%s)", self._operation, error.cause)
            self._failed_at = self._clock()
        elif isinstance(error, StatementFailed) and not isinstance(error, AlreadyStored) and error.cause:
            now = self._clock()
            if now - self._logged_at.get(error.cause, -REPEAT_SECONDS) >= REPEAT_SECONDS:
                self._logged_at[error.cause] = now
                log.warning("the store failed: %s", error.cause)
