"""The interface of a relay, and the rules that every relay follows.

* **Logs.** The entries of a log are numbered 1, 2, 3 … without gaps. An append is atomic and takes effect once. A log
  that has ended accepts no more entries. A follower receives the existing entries and then the new ones, each once and
  in order, on any replica, also after the log has ended. A log is deleted some time after its last append.
* **Leases.** The lease of a name protects the log of that name. Each claim returns a fencing token that is greater than
  all earlier ones, even if the lease expired, was released or was deleted. From then on, the log refuses appends with a
  smaller token. A log whose name was never claimed accepts the token 0.
* **Signals.** A message that is published to a name reaches every subscriber of that name, including those that
  subscribe within the next hour. So a signal may be published before its subscriber exists, or while its connection is
  broken.
* **Limits.** Each counter is a token bucket that holds `limit`, starts full, and refills steadily in `window` seconds.
  A request takes all its amounts if every counter allows it, else nothing.
* **Slots.** A bucket has a limited number of slots. A holder has its slot for some seconds, and can extend that time.
* **Presence.** A member of a group stays present for some seconds after it was last set, unless it is removed.
* **Time** is the relay's time, not that of the replicas.
* Lost data is never hidden: a follower or writer of a log that was deleted gets `LogLost`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import msgspec

from ..errors import ErrorInfo, PellucidError
from .follower import Follower

LOG_LIFE_SECONDS = 86_400.0
"""Seconds for which a log is stored after its last append, unless `drop` sets an earlier time."""
TOMBSTONE_SECONDS = 3600.0
"""Seconds for which the existence of a log is remembered after it was deleted, so that it is not started again."""
SIGNAL_LIFE_SECONDS = 3600.0
"""Seconds for which the signals to a name are stored, after the last of them."""
MAX_SIGNALS = 1000
"""Limit for the number of signals stored for a name. The oldest are dropped."""

LogEntry: TypeAlias = Any
"""An entry of a log: bytes, or, within one process (`MemoryRelay`), any object that is no longer changed."""

Listener: TypeAlias = Follower
"""A subscription to signals. It has the interface of a follower, but is never lost, and ends only with the relay."""


class RelayError(PellucidError):
    """The relay does not reply, or replies with an error. The next call may succeed."""

    def __init__(self, message: str, *, code: str = "relay_unavailable", retry_after: float | None = 1.0) -> None:
        super().__init__(ErrorInfo("unavailable", message, code=code, retry_after=retry_after))


class LogLost(RelayError):
    """The entries of the log are lost: it was dropped, or the relay deleted it."""

    def __init__(self, message: str = "the run's log no longer exists") -> None:
        super().__init__(message, code="log_lost", retry_after=None)


class FencedError(PellucidError):
    """This writer may not append any more: another one has claimed the name of the log, or the log has ended."""

    def __init__(self, message: str = "another writer has claimed the log since, or ended it") -> None:
        super().__init__(ErrorInfo("server_error", message, code="fenced"))


class LimitResult(msgspec.Struct, frozen=True):
    """The result of `spend` or `charge`."""

    allowed: bool
    retry_after: float
    """Seconds until the same request would be allowed, if nothing else is taken; `inf` if it exceeds the limit."""
    limiting_counter: str | None
    """The counter with the longest wait; None if the request was allowed."""
    levels: dict[str, float]
    """The current level of each counter. It is below zero after a `charge` of more than the counter held."""


class Relay(ABC):
    """The interface of a relay. Each coroutine raises `RelayError` if the relay does not reply."""

    is_remote: bool = True
    """Whether calls wait for another process. If not, its coroutines return without a wait, and do not fail."""

    async def append(
        self,
        log: str,
        entries: Sequence[LogEntry],
        fence: int,
        *,
        last: bool = False,
        after: int | None = None,
        decoded: Sequence[LogEntry] | None = None,
    ) -> int:
        """Append entries to a log.

        Args:
            log: The name of the log.
            entries: The entries. May be empty if `last` is set.
            fence: The fencing token of the lease of the same name.
            last: Whether this ends the log.
            after: The number of the newest entry that this writer knows. With it, the same append can be retried and
                takes effect once.
            decoded: For each entry, an object that followers in this process may receive instead of it.

        Returns:
            The number of the newest entry.

        Raises:
            FencedError: This writer may not append any more. Nothing was written.
            LogLost: The log was deleted. Nothing was written.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(result: int | PellucidError) -> None:
            if future.done():  # the caller was cancelled
                return
            if isinstance(result, PellucidError):
                future.set_exception(result)
            else:
                future.set_result(result)

        self.append_soon(log, entries, fence, done=done, last=last, after=after, decoded=decoded)
        return await future

    @abstractmethod
    def append_soon(
        self,
        log: str,
        entries: Sequence[LogEntry],
        fence: int,
        *,
        done: Callable[[int | PellucidError], None],
        last: bool = False,
        after: int | None = None,
        decoded: Sequence[LogEntry] | None = None,
    ) -> None:
        """Append entries to a log without waiting (see `append`).

        Args:
            done: Called with the number of the newest entry, or with the error. It may be called within this call.
        """

    @abstractmethod
    def writing(self, log: str) -> AbstractContextManager[None]:
        """Context in which this process is the only writer of the log.

        Followers in this process receive what it appends, and do not read it from the relay.
        """

    @abstractmethod
    def follow(self, log: str, after: int = 0) -> Follower:
        """Read a log from the entry after number `after`. If the log does not exist yet, the follower waits for it.

        Errors (`RelayError`, `LogLost`) are raised by the follower's `take`.
        """

    @abstractmethod
    async def length(self, log: str) -> int:
        """Return the number of entries in the log; 0 if it does not exist. Its end may count as one more."""

    @abstractmethod
    async def drop(self, log: str, after_seconds: float) -> None:
        """Delete the log after some seconds. Its followers then get `LogLost`."""

    @abstractmethod
    async def claim(self, name: str, holder: str, seconds: float, *, lapsed: bool = False) -> int | None:
        """Claim the lease of a name.

        Args:
            name: The name, which is also that of a log.
            holder: The id of the holder. The current holder of the lease gets a new token.
            seconds: The duration of the lease.
            lapsed: Claim the lease only if it expired without being released. If several try, one gets it.

        Returns:
            A new fencing token; None if another holder has the lease.
        """

    @abstractmethod
    async def renew(self, name: str, token: int, seconds: float) -> bool:
        """Extend a lease to some seconds from now. Returns False if the token is no longer valid."""

    @abstractmethod
    async def release(self, name: str, token: int) -> None:
        """Release a lease, if the token is still valid."""

    @abstractmethod
    async def lapsed_leases(self, prefix: str = "", limit: int = 100) -> list[str]:
        """Return names with this prefix whose lease expired without being released, the earliest first."""

    @abstractmethod
    async def publish(
        self, name: str, message: bytes, *, max_stored: int = MAX_SIGNALS, seconds: float = SIGNAL_LIFE_SECONDS
    ) -> None:
        """Publish a message to the subscribers of a name.

        Args:
            name: The name.
            message: The message.
            max_stored: How many of the newest messages are stored, for subscribers that are slow or come later.
            seconds: How long they are stored after the newest one.
        """

    @abstractmethod
    def subscribe(self, name: str) -> Listener:
        """Receive the messages that were published to a name within the last hour, and all later ones."""

    async def spend(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult:
        """Take amounts from the counters of a bucket if every counter allows it, else nothing.

        Args:
            bucket: The name of the bucket.
            amounts: Amount by counter; 0 for a counter that is not in it.
            limits: Limit by counter.
            window_seconds: The time in which an empty counter refills completely.
        """
        return await self._take(bucket, amounts, limits, window_seconds, is_forced=False)

    async def charge(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult:
        """Take amounts even if a counter does not allow it, for amounts that are known only afterwards.

        A counter may fall below zero. Later requests then wait until it has refilled.
        """
        return await self._take(bucket, amounts, limits, window_seconds, is_forced=True)

    @abstractmethod
    async def _take(
        self,
        bucket: str,
        amounts: Mapping[str, float],
        limits: Mapping[str, float],
        window_seconds: float,
        *,
        is_forced: bool,
    ) -> LimitResult:
        """Do `spend`, or with `is_forced` `charge`."""

    @abstractmethod
    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        """Acquire one of `limit` slots of a bucket, or extend it, to some seconds from now.

        Returns:
            False if other holders have all slots.
        """

    @abstractmethod
    async def release_slot(self, bucket: str, holder: str) -> None:
        """Release the slot of a holder."""

    @abstractmethod
    async def set_presence(self, group: str, member: str, seconds: float) -> None:
        """Set a member of a group present for some seconds from now."""

    @abstractmethod
    async def clear_presence(self, group: str, member: str) -> None:
        """Remove a member from the group."""

    @abstractmethod
    async def list_present(self, group: str) -> list[str]:
        """Return the members that are present, in the order in which they expire."""

    @abstractmethod
    async def check(self) -> None:
        """Check that the relay responds.

        Raises:
            RelayError: It does not.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections of this process, and all its followers."""
