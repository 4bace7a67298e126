"""What a relay does, whoever keeps it.

The rules:

* **Logs.** Entries are numbered 1, 2, 3 … per log, without holes. An append lands whole or not at all, once. A log that
  has its last entry takes no more. Whoever follows a log gets what is there, then what comes, each entry once, in
  order, on any replica, also after the end. Nothing is kept for ever: a log goes some time after its last append.
* **Leases.** The lease of a name belongs to the log of that name. Each claim gives a token that is greater than every
  one before it, also when the lease ran out, was released or was forgotten; and from then on the log refuses what
  comes with a lesser one. A log whose name nobody ever claimed takes the token 0.
* **Signals.** What is told to a name reaches everyone who listens to it, those who begin to listen within the hour
  too: a signal may be told before its listener is there, or while its connection is broken.
* **Limits.** Each counter is a bucket that holds `limit`, starts full and fills up again in `window` seconds, steadily.
  Either every counter allows what is asked, and all is taken, or nothing is.
* **Rolls.** Who is on a roll stays on it for so long from when they entered it last, unless they quit.
* **Time** is the relay's, not the replicas'.
* What a relay forgot is never made up: who follows or writes a log that is gone is told so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias

import msgspec

from ..errors import ErrorInfo, PellucidError
from .follower import Follower

LOG_LIFE_SECONDS = 86_400.0
"""Seconds that a log is kept after its last append, unless `drop` says sooner."""
TOMBSTONE_SECONDS = 3600.0
"""Seconds that it is known of a log that it was there after it went, so that nobody begins it anew."""
SIGNAL_LIFE_SECONDS = 3600.0
"""Seconds that a signal is kept after the last one to its name."""
MAX_SIGNALS = 1000
"""How many signals are kept for a name: the newest."""

LogEntry: TypeAlias = Any
"""What a log holds: bytes; within one process (`MemoryRelay`), any object that nobody changes any more."""

Listener: TypeAlias = Follower
"""It listens as others follow, but a mailbox has no end and is never lost: it may be empty again."""


class RelayError(PellucidError):
    """The relay does not answer, or not as it should. The next call may succeed."""

    def __init__(self, message: str, *, code: str = "relay_unavailable", retry_after: float | None = 1.0) -> None:
        super().__init__(ErrorInfo("unavailable", message, code=code, retry_after=retry_after))


class LogLost(RelayError):
    """What was in the log is gone: it was dropped, or the relay forgot it."""

    def __init__(self, message: str = "the run's log is no longer there") -> None:
        super().__init__(message, code="log_lost", retry_after=None)


class FencedError(PellucidError):
    """The log is not this writer's any more: somebody else claimed its name since, or the log has ended."""

    def __init__(self, message: str = "another writer has claimed the log since, or ended it") -> None:
        super().__init__(ErrorInfo("server_error", message, code="fenced"))


class LimitResult(msgspec.Struct, frozen=True):
    """What became of a `spend` or a `charge`."""

    allowed: bool
    retry_after: float
    """Seconds until the same would be allowed if nobody else took anything; `inf` if it is more than the limit."""
    limiting_counter: str | None
    """The counter that has to be waited for the longest, if one has to."""
    levels: dict[str, float]
    """What each counter holds now; below zero after a `charge` of more than it held."""


class Relay(Protocol):
    """Everything that asks the relay raises `RelayError` when it does not answer."""

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
        """Write to the log; gives the number of its newest entry. `last` ends it (`entries` may be empty then).

        `fence` is the token of the lease of the same name. With `after`, the number of the newest entry that this
        writer knows of, the same append may be tried again: it lands once. `decoded`: for each entry what followers in
        this process may get in its place. Raises `FencedError` or `LogLost`, and then nothing was written.
        """
        ...

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
        """`append` without waiting: `done` gets the number, or what is wrong. It may be called within this call."""
        ...

    def writing(self, log: str) -> AbstractContextManager[None]:
        """While this process is the log's writer: followers here get what it appends, and need not ask for it."""
        ...

    def follow(self, log: str, after: int = 0) -> Follower:
        """Read the log from the entry after number `after`. A log that is not there yet is waited for.

        What is wrong (`RelayError`, `LogLost`) is raised by the follower's `take`.
        """
        ...

    async def exists(self, log: str) -> bool:
        """Whether something was appended to the log, and it is still there."""
        ...

    async def length(self, log: str) -> int:
        """How many entries there are in the log now; 0 if it is not there. Its end may count as one more."""
        ...

    async def drop(self, log: str, after_seconds: float) -> None:
        """Let the log go after so many seconds. Whoever follows it then gets `LogLost`."""
        ...

    async def claim(self, name: str, holder: str, seconds: float, *, lapsed: bool = False) -> int | None:
        """Take the lease of `name`: a token, or None if somebody else holds it. Its own holder gets a new token.

        With `lapsed`, only a lease that ran out without being released is taken: of all who try, one gets it.
        """
        ...

    async def renew(self, name: str, token: int, seconds: float) -> bool:
        """Hold on to it for so many seconds from now; False if it is not this token's any more."""
        ...

    async def release(self, name: str, token: int) -> None:
        """Give it back, if it is still this token's."""
        ...

    async def lapsed_leases(self, prefix: str = "", limit: int = 100) -> list[str]:
        """Names that begin so whose lease ran out without being released, the longest ago first."""
        ...

    async def publish(self, name: str, message: bytes) -> None: ...

    def subscribe(self, name: str) -> Listener:
        """What was told to `name` within the hour, and what will be."""
        ...

    async def spend(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult:
        """Take `amounts` if every counter in `limits` allows it (0 of those without an amount), else nothing."""
        ...

    async def charge(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult:
        """Take them in any case: what is known only after the fact. A counter that falls below zero is waited for."""
        ...

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        """Take one of `limit` places, or keep it for so many seconds from now; False if they are all taken."""
        ...

    async def release_slot(self, bucket: str, holder: str) -> None:
        """Give the place back."""
        ...

    async def set_presence(self, group: str, member: str, seconds: float) -> None:
        """Stand on the roll for so many seconds from now."""
        ...

    async def clear_presence(self, group: str, member: str) -> None:
        """Stand on it no more."""
        ...

    async def list_present(self, group: str) -> list[str]:
        """Who stands on it now, in the order in which they lapse."""
        ...

    async def check(self) -> None:
        """Raises `RelayError` unless the relay is there."""
        ...

    async def aclose(self) -> None: ...
