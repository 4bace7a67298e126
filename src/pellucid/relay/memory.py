"""The relay of a single process. Everything is in memory, and lost when the process ends.

Objects are deleted when they expire. There is no timer: each call first deletes the objects that have expired.

Limits are token buckets (`scripts` has the same algorithm for Redis). A counter is stored as a level and the time of
that level. It refills by `limit / window` a second, up to `limit`.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf
from typing import Any

from ..errors import PellucidError
from .follower import Follower
from .relay import (
    LOG_LIFE_SECONDS,
    MAX_SIGNALS,
    SIGNAL_LIFE_SECONDS,
    TOMBSTONE_SECONDS,
    FencedError,
    LimitResult,
    Listener,
    LogEntry,
    LogLost,
    Relay,
)

ROUNDING_TOLERANCE = 1e-9
"""Tolerance for floating-point rounding, as a fraction of the limit."""


class _Expiring:
    """Base class of objects that are deleted at some time."""

    expires_at = 0.0
    next_check_at = inf
    """The time of the next entry for this object in the expiry heap."""


class _Log(_Expiring):
    """A log and its followers."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.has_ended = False
        self.is_gone = False
        """Whether the relay has deleted the log."""
        self.followers: set[Follower] = set()
        """Followers that read the log, or wait for it to begin."""

    @property
    def exists(self) -> bool:
        """Whether the log has entries or has ended. (A log that is only waited for does not exist.)"""
        return bool(self.entries) or self.has_ended

    def deliver_to(self, follower: Follower) -> None:
        """Put the entries into the follower that it has not received yet."""
        if follower.position > len(self.entries):
            follower.fail(LogLost())
        if self.entries[follower.position :]:
            follower.put(self.entries[follower.position :], len(self.entries))
        if self.has_ended:
            follower.end()
        if follower.is_over:
            self.followers.discard(follower)


class _Mark(_Expiring):
    """The lease of a name, and the state of the log of that name. It outlives the log."""

    def __init__(self) -> None:
        self.fence = 0
        self.holder: str | None = None
        self.lease_until = 0.0
        self.count = 0
        self.has_ended = False


class LogAppender:
    """Appends single entries to one log, for its current writer. Followers receive an entry within the call.

    It does not extend the life of the log. That counts from the last `append` of the relay, or from the last renewal of
    the lease.
    """

    __slots__ = ("_fence", "_log", "_mark")

    def __init__(self, log: _Log, mark: _Mark, fence: int) -> None:
        self._log = log
        self._mark = mark
        self._fence = fence

    def append(self, entry: LogEntry) -> bool:
        """Append one entry.

        Returns:
            False if it could not be appended. `append` of the relay then raises the reason.
        """
        log, mark = self._log, self._mark
        if mark.fence != self._fence or mark.has_ended or log.is_gone:
            return False
        entries = log.entries
        entries.append(entry)
        mark.count = number = len(entries)
        for follower in tuple(log.followers):
            receiver = follower.receiver
            if receiver is not None and follower.position == number - 1:
                follower.position = number
                receiver(entry)
            else:
                log.deliver_to(follower)
        return True


class _Mailbox(_Expiring):
    """The signals to a name, and its subscribers."""

    def __init__(self) -> None:
        self.messages: deque[bytes] = deque(maxlen=MAX_SIGNALS)
        self.listeners: set[Listener] = set()


class _Bucket(_Expiring):
    """The counters of a bucket."""

    def __init__(self) -> None:
        self.counters: dict[str, tuple[float, float]] = {}
        """Maps the name of a counter to its level and the time of that level."""


class _TimedMembers(_Expiring):
    """Holders of slots, or members of a group, and the time when each expires."""

    def __init__(self) -> None:
        self.until: dict[str, float] = {}


class MemoryRelay(Relay):
    """The relay of a single process, in memory (see `relay.Relay`).

    Args:
        clock: Returns seconds, and never goes back.
    """

    is_remote = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Fencing tokens are also stored in the database, so the tokens of the next process must be greater.
        self._token = time.time_ns() // 1000
        self._logs: dict[str, _Log] = {}
        self._marks: dict[str, _Mark] = {}
        self._boxes: dict[str, _Mailbox] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._slots: dict[str, _TimedMembers] = {}
        self._groups: dict[str, _TimedMembers] = {}
        self._expiry_heap: list[tuple[float, int, dict[str, Any], str]] = []
        """Heap of (time, sequence number, table, key): when to check whether an object has expired."""
        self._heap_counter = 0
        self._held_leases: set[str] = set()
        """Names whose lease was neither released nor deleted."""

    # --- logs --------------------------------------------------------------------------------------------------

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
        try:
            number = self._append(log, entries, fence, last, after)
        except PellucidError as error:
            done(error)
        else:
            done(number)

    def _append(self, log: str, entries: Sequence[LogEntry], fence: int, last: bool, after: int | None) -> int:
        now = self._expire_due()
        mark, stored = self._marks.get(log), self._logs.get(log)
        if mark is None:
            if fence:
                raise LogLost()
            mark = _Mark()
        if fence < mark.fence:
            raise FencedError()
        if (mark.count or mark.has_ended) and (stored is None or not stored.exists):
            raise LogLost()
        if after is not None and after != mark.count:
            if after + len(entries) == mark.count and mark.has_ended == last:
                return mark.count
            raise LogLost("the run's log does not contain what its writer wrote")
        if mark.has_ended:
            raise FencedError()
        if not entries and not last:
            return mark.count
        if stored is None:
            stored = self._logs[log] = _Log()
        self._marks[log], mark.fence = mark, fence
        stored.entries += entries
        mark.count = len(stored.entries)
        stored.has_ended = mark.has_ended = last
        self._set_expiry(self._marks, log, mark, now + LOG_LIFE_SECONDS + TOMBSTONE_SECONDS)
        self._set_expiry(self._logs, log, stored, now + LOG_LIFE_SECONDS)
        for follower in list(stored.followers):
            stored.deliver_to(follower)
        return mark.count

    def open_appender(self, log: str, fence: int) -> LogAppender | None:
        """Return an appender for a writer that has appended before; None if it may not append any more."""
        mark, stored = self._marks.get(log), self._logs.get(log)
        if mark is None or stored is None or mark.fence != fence or mark.has_ended:
            return None
        return LogAppender(stored, mark, fence)

    def writing(self, log: str) -> AbstractContextManager[None]:
        return nullcontext()

    def follow(self, log: str, after: int = 0) -> Follower:
        now = self._expire_due()
        follower = Follower(after, lambda follower: self._on_taken(log, follower))
        stored = self._logs.get(log)
        if stored is None:
            mark = self._marks.get(log)
            if after or (mark is not None and (mark.count or mark.has_ended)):
                follower.fail(LogLost())
                return follower
            stored = self._logs[log] = _Log()
            self._set_expiry(self._logs, log, stored, now + LOG_LIFE_SECONDS)
        stored.followers.add(follower)
        stored.deliver_to(follower)
        return follower

    async def length(self, log: str) -> int:
        self._expire_due()
        stored = self._logs.get(log)
        return len(stored.entries) if stored is not None else 0

    async def drop(self, log: str, after_seconds: float) -> None:
        now = self._expire_due()
        if (stored := self._logs.get(log)) is not None and stored.exists:
            self._set_expiry(self._logs, log, stored, now + after_seconds)
            if (mark := self._marks.get(log)) is not None:
                self._set_expiry(self._marks, log, mark, now + after_seconds + TOMBSTONE_SECONDS)
            self._expire_due()

    def _on_taken(self, log: str, follower: Follower) -> None:
        """Handle that a follower has taken its entries, or was closed."""
        stored = self._logs.get(log)
        if stored is not None and follower.is_closed:
            stored.followers.discard(follower)
            if not stored.followers and not stored.exists:
                del self._logs[log]

    # --- leases ------------------------------------------------------------------------------------------------

    async def claim(self, name: str, holder: str, seconds: float, *, lapsed: bool = False) -> int | None:
        now = self._expire_due()
        mark = self._marks.get(name)
        is_free = mark is None or mark.holder is None or mark.lease_until <= now
        if lapsed and (mark is None or mark.holder is None or not is_free):
            return None
        if mark is None:
            mark = self._marks[name] = _Mark()
        if not is_free and mark.holder != holder:
            return None
        self._token = max(self._token, mark.fence) + 1
        mark.fence, mark.holder, mark.lease_until = self._token, holder, now + seconds
        self._held_leases.add(name)
        self._set_expiry(self._marks, name, mark, now + max(LOG_LIFE_SECONDS, seconds) + TOMBSTONE_SECONDS)
        return mark.fence

    async def renew(self, name: str, token: int, seconds: float) -> bool:
        now = self._expire_due()
        mark = self._marks.get(name)
        if mark is None or mark.fence != token or mark.holder is None:
            return False
        mark.lease_until = now + seconds
        self._set_expiry(self._marks, name, mark, now + LOG_LIFE_SECONDS + TOMBSTONE_SECONDS)
        if (stored := self._logs.get(name)) is not None and not stored.has_ended:
            self._set_expiry(self._logs, name, stored, now + LOG_LIFE_SECONDS)
        return True

    async def release(self, name: str, token: int) -> None:
        mark = self._marks.get(name)
        if mark is not None and mark.fence == token:
            mark.holder = None
            self._held_leases.discard(name)

    async def lapsed_leases(self, prefix: str = "", limit: int = 100) -> list[str]:
        now = self._expire_due()
        lapsed = [
            (until, name)
            for name in self._held_leases
            if name.startswith(prefix) and (until := self._marks[name].lease_until) <= now
        ]
        return [name for _, name in sorted(lapsed)[:limit]]

    # --- signals -----------------------------------------------------------------------------------------------

    async def publish(
        self, name: str, message: bytes, *, max_stored: int = MAX_SIGNALS, seconds: float = SIGNAL_LIFE_SECONDS
    ) -> None:
        now = self._expire_due()
        box = self._mailbox(name)
        box.messages.append(message)
        while len(box.messages) > max_stored:
            box.messages.popleft()
        self._set_expiry(self._boxes, name, box, now + seconds)
        for listener in box.listeners:
            listener.put([message], listener.position + 1)

    def subscribe(self, name: str) -> Listener:
        now = self._expire_due()
        listener = Listener(0, lambda listener: self._on_listener_taken(name, listener))
        box = self._mailbox(name)
        if not box.expires_at:  # it is new
            self._set_expiry(self._boxes, name, box, now + SIGNAL_LIFE_SECONDS)
        box.listeners.add(listener)
        if box.messages:
            listener.put(list(box.messages), len(box.messages))
        return listener

    def _mailbox(self, name: str) -> _Mailbox:
        return self._boxes.get(name) or self._boxes.setdefault(name, _Mailbox())

    def _on_listener_taken(self, name: str, listener: Listener) -> None:
        box = self._boxes.get(name)
        if box is not None and listener.is_closed:
            box.listeners.discard(listener)
            if not box.listeners and not box.messages:
                del self._boxes[name]

    # --- limits ------------------------------------------------------------------------------------------------

    async def _take(
        self,
        bucket: str,
        amounts: Mapping[str, float],
        limits: Mapping[str, float],
        window_seconds: float,
        *,
        is_forced: bool,
    ) -> LimitResult:
        now = self._expire_due()
        stored = self._buckets.get(bucket) or self._buckets.setdefault(bucket, _Bucket())
        counters = stored.counters
        levels: dict[str, float] = {}
        """The levels if the request is allowed."""
        longest_wait, limiting_counter, lowest = 0.0, None, 0.0
        for name, limit in limits.items():
            counter = counters.get(name)
            level = limit if counter is None else counter[0] + (now - counter[1]) * limit / window_seconds
            level = limit if level > limit else level
            amount = amounts.get(name, 0.0)
            if level + limit * ROUNDING_TOLERANCE < amount:
                wait = inf if amount > limit or limit <= 0 else (amount - level) * window_seconds / limit
                if wait > longest_wait:
                    longest_wait, limiting_counter = wait, name
            levels[name] = level = level - amount
            if level < 0 < limit:
                lowest = min(lowest, level / limit)
        allowed = is_forced or limiting_counter is None
        if not allowed:
            levels = {name: level + amounts.get(name, 0.0) for name, level in levels.items()}
        for name, level in levels.items():
            counters[name] = level, now
        # A bucket that is full again lives a little longer, so that not each request creates it.
        self._set_expiry(self._buckets, bucket, stored, max(now + (1 - lowest) * window_seconds, stored.expires_at))
        if allowed:
            return LimitResult(True, 0.0, None, levels)
        return LimitResult(False, longest_wait, limiting_counter, levels)

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        now = self._expire_due()
        slots = self._slots.get(bucket) or self._slots.setdefault(bucket, _TimedMembers())
        if len(slots.until) >= limit:
            slots.until = {member: until for member, until in slots.until.items() if until > now}
        if allowed := holder in slots.until or len(slots.until) < limit:
            slots.until[holder] = now + seconds
            self._set_expiry(self._slots, bucket, slots, max(slots.expires_at, now + seconds))
        return allowed

    async def release_slot(self, bucket: str, holder: str) -> None:
        if (slots := self._slots.get(bucket)) is not None:
            slots.until.pop(holder, None)

    # --- presence ----------------------------------------------------------------------------------------------

    async def set_presence(self, group: str, member: str, seconds: float) -> None:
        now = self._expire_due()
        members = self._groups.get(group) or self._groups.setdefault(group, _TimedMembers())
        members.until[member] = now + seconds
        self._set_expiry(self._groups, group, members, max(members.until.values()))

    async def clear_presence(self, group: str, member: str) -> None:
        if (members := self._groups.get(group)) is not None:
            members.until.pop(member, None)

    async def list_present(self, group: str) -> list[str]:
        now = self._expire_due()
        if (members := self._groups.get(group)) is None:
            return []
        members.until = {member: until for member, until in members.until.items() if until > now}
        return sorted(members.until, key=members.until.__getitem__)

    # --- time --------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Do nothing: a relay in memory is always available."""

    async def aclose(self) -> None:
        for log in self._logs.values():
            _close(log.followers)
        for box in self._boxes.values():
            _close(box.listeners)

    def _set_expiry(self, table: dict[str, Any], name: str, item: _Expiring, expires_at: float) -> None:
        item.expires_at = expires_at
        if expires_at < item.next_check_at:
            self._schedule_check(expires_at, table, name, item)

    def _schedule_check(self, check_at: float, table: dict[str, Any], name: str, item: _Expiring) -> None:
        item.next_check_at = check_at
        self._heap_counter += 1
        heapq.heappush(self._expiry_heap, (check_at, self._heap_counter, table, name))

    def _expire_due(self) -> float:
        """Delete every object that has expired, and return the current time."""
        now = self._clock()
        while self._expiry_heap and self._expiry_heap[0][0] <= now:
            check_at, _, table, name = heapq.heappop(self._expiry_heap)
            item = table.get(name)
            if item is None or item.next_check_at != check_at:
                continue
            if item.expires_at > now:
                self._schedule_check(item.expires_at, table, name, item)
            elif name in self._held_leases and isinstance(item, _Mark):
                # The lease has expired without being released. It is kept, so that another holder can claim it later.
                self._schedule_check(now + TOMBSTONE_SECONDS, table, name, item)
            elif isinstance(item, _Mailbox) and item.listeners:
                item.messages.clear()
                self._schedule_check(now + SIGNAL_LIFE_SECONDS, table, name, item)
            else:
                del table[name]
                if isinstance(item, _Log):
                    item.is_gone = True
                    for follower in item.followers:
                        follower.fail(LogLost())
        return now


def _close(followers: Iterable[Follower]) -> None:
    for follower in list(followers):
        follower.close()
