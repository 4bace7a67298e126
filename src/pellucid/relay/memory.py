"""The relay of one process: everything in memory, nothing outlives it.

What is finished goes after its time; whoever asks for anything pays for the removal of what is due by then.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from math import inf

from ..errors import PellucidError
from . import buckets
from .follower import Follower
from .relay import LIFE, MAIL_LIFE, MAIL_ROOM, SPARE, Fenced, Listener, LogEntry, LogLost, Verdict


class _Kept:
    """Something that goes at some time."""

    due = 0.0
    looked_at = inf
    """When it is looked at next, to see whether it is due."""


class _Log(_Kept):
    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.ended = False
        self.is_gone = False
        """Whether the relay forgot it."""
        self.followers: set[Follower] = set()
        """Those who read it, or wait for it to begin."""

    @property
    def there(self) -> bool:
        return bool(self.entries) or self.ended

    def show(self, follower: Follower) -> None:
        """What the follower has not seen yet."""
        if follower.at > len(self.entries):
            follower.fail(LogLost())
        if self.entries[follower.at :]:
            follower.put(self.entries[follower.at :], len(self.entries))
        if self.ended:
            follower.end()
        if follower.over:
            self.followers.discard(follower)


class _Mark(_Kept):
    """Who may write the log of a name, and what became of it."""

    def __init__(self) -> None:
        self.fence = 0
        self.holder: str | None = None
        self.until = 0.0
        self.count = 0
        self.ended = False


class LogAppender:
    """Appends to one log, while it is its writer's. Followers get an entry within the call.

    It does not put off the time at which the log goes: that counts from the last `append`, or the lease's renewal.
    """

    __slots__ = ("_fence", "_log", "_mark")

    def __init__(self, log: _Log, mark: _Mark, fence: int) -> None:
        self._log = log
        self._mark = mark
        self._fence = fence

    def append(self, entry: LogEntry) -> bool:
        """Append one entry. False, and nothing happened, if `append` of the relay has to say what is wrong."""
        log, mark = self._log, self._mark
        if mark.fence != self._fence or mark.ended or log.is_gone:
            return False
        entries = log.entries
        entries.append(entry)
        mark.count = at = len(entries)
        for follower in tuple(log.followers):
            receiver = follower.receiver
            if receiver is not None and follower.at == at - 1:
                follower.at = at
                receiver(entry)
            else:
                log.show(follower)
        return True


class _Box(_Kept):
    def __init__(self) -> None:
        self.messages: deque[bytes] = deque(maxlen=MAIL_ROOM)
        self.listeners: set[Listener] = set()


class _Bucket(_Kept):
    def __init__(self) -> None:
        self.counters: buckets.Bucket = {}


class _Places(_Kept):
    def __init__(self) -> None:
        self.until: dict[str, float] = {}


class MemoryRelay:
    """See `relay.Relay`. `clock` gives seconds, and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Tokens stand in what is kept, too: those of the process that comes after this one must be greater.
        self._token = time.time_ns() // 1000
        self._logs: dict[str, _Log] = {}
        self._marks: dict[str, _Mark] = {}
        self._boxes: dict[str, _Box] = {}
        self._buckets: dict[str, _Bucket] = {}
        self._places: dict[str, _Places] = {}
        self._rolls: dict[str, _Places] = {}
        self._going: list[tuple[float, int, str, str]] = []
        """When to look whether something is due, and at what."""
        self._count = 0
        self._held: set[str] = set()
        """Names whose lease was neither released nor forgotten."""

    # --- logs --------------------------------------------------------------------------------------------------

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
        return self.append_now(log, entries, fence, last=last, after=after)

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
            number = self.append_now(log, entries, fence, last=last, after=after)
        except PellucidError as error:
            done(error)
        else:
            done(number)

    def append_now(
        self, log: str, entries: Sequence[LogEntry], fence: int, *, last: bool = False, after: int | None = None
    ) -> int:
        """`append`, without a step of the loop: followers are called back within this call."""
        now = self._now()
        mark, kept = self._marks.get(log), self._logs.get(log)
        if mark is None:
            if fence:
                raise LogLost()
            mark = _Mark()
        if fence < mark.fence:
            raise Fenced()
        if (mark.count or mark.ended) and (kept is None or not kept.there):
            raise LogLost()
        if after is not None and after != mark.count:
            if after + len(entries) == mark.count and mark.ended == last:
                return mark.count
            raise LogLost("the run's log does not hold what its writer wrote")
        if mark.ended:
            raise Fenced()
        if not entries and not last:
            return mark.count
        if kept is None:
            kept = self._logs[log] = _Log()
        self._marks[log], mark.fence = mark, fence
        kept.entries += entries
        mark.count = len(kept.entries)
        kept.ended = mark.ended = last
        self._keep("_marks", log, mark, now + LIFE + SPARE)
        self._keep("_logs", log, kept, now + LIFE)
        for follower in list(kept.followers):
            kept.show(follower)
        return mark.count

    def appender(self, log: str, fence: int) -> LogAppender | None:
        """What appends one entry after another, for a writer that has appended; None if it may not any more."""
        mark, kept = self._marks.get(log), self._logs.get(log)
        if mark is None or kept is None or mark.fence != fence or mark.ended:
            return None
        return LogAppender(kept, mark, fence)

    def writing(self, log: str) -> AbstractContextManager[None]:
        return nullcontext()

    def follow(self, log: str, after: int = 0) -> Follower:
        now = self._now()
        follower = Follower(after, lambda follower: self._left(log, follower))
        kept = self._logs.get(log)
        if kept is None:
            mark = self._marks.get(log)
            if after or (mark is not None and (mark.count or mark.ended)):
                follower.fail(LogLost())
                return follower
            kept = self._logs[log] = _Log()
            self._keep("_logs", log, kept, now + LIFE)
        kept.followers.add(follower)
        kept.show(follower)
        return follower

    async def exists(self, log: str) -> bool:
        self._now()
        kept = self._logs.get(log)
        return kept is not None and kept.there

    async def length(self, log: str) -> int:
        self._now()
        kept = self._logs.get(log)
        return len(kept.entries) if kept is not None else 0

    async def drop(self, log: str, after_seconds: float) -> None:
        now = self._now()
        if (kept := self._logs.get(log)) is not None and kept.there:
            self._keep("_logs", log, kept, now + after_seconds)
            if (mark := self._marks.get(log)) is not None:
                self._keep("_marks", log, mark, now + after_seconds + SPARE)
            self._now()

    def _left(self, log: str, follower: Follower) -> None:
        """A follower took what there was, or closed."""
        kept = self._logs.get(log)
        if kept is not None and follower.closed:
            kept.followers.discard(follower)
            if not kept.followers and not kept.there:
                del self._logs[log]

    # --- leases ------------------------------------------------------------------------------------------------

    async def claim(self, name: str, holder: str, seconds: float, *, lapsed: bool = False) -> int | None:
        now = self._now()
        mark = self._marks.get(name)
        free = mark is None or mark.holder is None or mark.until <= now
        if lapsed and (mark is None or mark.holder is None or not free):
            return None
        if mark is None:
            mark = self._marks[name] = _Mark()
        if not free and mark.holder != holder:
            return None
        self._token = max(self._token, mark.fence) + 1
        mark.fence, mark.holder, mark.until = self._token, holder, now + seconds
        self._held.add(name)
        self._keep("_marks", name, mark, now + max(LIFE, seconds) + SPARE)
        return mark.fence

    async def renew(self, name: str, token: int, seconds: float) -> bool:
        now = self._now()
        mark = self._marks.get(name)
        if mark is None or mark.fence != token or mark.holder is None:
            return False
        mark.until = now + seconds
        self._keep("_marks", name, mark, now + LIFE + SPARE)
        if (kept := self._logs.get(name)) is not None and not kept.ended:
            self._keep("_logs", name, kept, now + LIFE)
        return True

    async def release(self, name: str, token: int) -> None:
        mark = self._marks.get(name)
        if mark is not None and mark.fence == token:
            mark.holder = None
            self._held.discard(name)

    async def lapsed(self, prefix: str = "", limit: int = 100) -> list[str]:
        now = self._now()
        out = [
            (until, name)
            for name in self._held
            if name.startswith(prefix) and (until := self._marks[name].until) <= now
        ]
        return [name for _, name in sorted(out)[:limit]]

    # --- signals -----------------------------------------------------------------------------------------------

    async def tell(self, name: str, message: bytes) -> None:
        now = self._now()
        box = self._box(name)
        box.messages.append(message)
        self._keep("_boxes", name, box, now + MAIL_LIFE)
        for listener in box.listeners:
            listener.put([message], listener.at + 1)

    def listen(self, name: str) -> Listener:
        now = self._now()
        listener = Listener(0, lambda listener: self._silent(name, listener))
        box = self._box(name)
        if not box.due:  # it is new
            self._keep("_boxes", name, box, now + MAIL_LIFE)
        box.listeners.add(listener)
        if box.messages:
            listener.put(list(box.messages), len(box.messages))
        return listener

    def _box(self, name: str) -> _Box:
        return self._boxes.get(name) or self._boxes.setdefault(name, _Box())

    def _silent(self, name: str, listener: Listener) -> None:
        box = self._boxes.get(name)
        if box is not None and listener.closed:
            box.listeners.discard(listener)
            if not box.listeners and not box.messages:
                del self._boxes[name]

    # --- limits ------------------------------------------------------------------------------------------------

    async def spend(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> Verdict:
        return self._take(bucket, amounts, limits, window_seconds, always=False)

    async def charge(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> Verdict:
        return self._take(bucket, amounts, limits, window_seconds, always=True)

    def _take(
        self, name: str, amounts: Mapping[str, float], limits: Mapping[str, float], window: float, *, always: bool
    ) -> Verdict:
        now = self._now()
        bucket = self._buckets.get(name) or self._buckets.setdefault(name, _Bucket())
        verdict, full = buckets.take(bucket.counters, amounts, limits, window, now, always=always)
        self._keep("_buckets", name, bucket, max(full, bucket.due))
        return verdict

    async def hold(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        now = self._now()
        places = self._places.get(bucket) or self._places.setdefault(bucket, _Places())
        places.until = {who: until for who, until in places.until.items() if until > now}
        if allowed := holder in places.until or len(places.until) < limit:
            places.until[holder] = now + seconds
        self._keep("_places", bucket, places, max(places.until.values(), default=now))
        return allowed

    async def unhold(self, bucket: str, holder: str) -> None:
        if (places := self._places.get(bucket)) is not None:
            places.until.pop(holder, None)

    # --- rolls -------------------------------------------------------------------------------------------------

    async def enter(self, roll: str, who: str, seconds: float) -> None:
        now = self._now()
        places = self._rolls.get(roll) or self._rolls.setdefault(roll, _Places())
        places.until[who] = now + seconds
        self._keep("_rolls", roll, places, max(places.until.values()))

    async def quit(self, roll: str, who: str) -> None:
        if (places := self._rolls.get(roll)) is not None:
            places.until.pop(who, None)

    async def roll(self, roll: str) -> list[str]:
        now = self._now()
        if (places := self._rolls.get(roll)) is None:
            return []
        places.until = {who: until for who, until in places.until.items() if until > now}
        return sorted(places.until, key=places.until.__getitem__)

    # --- time --------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """It is here."""

    async def aclose(self) -> None:
        for log in self._logs.values():
            _close(log.followers)
        for box in self._boxes.values():
            _close(box.listeners)

    def _keep(self, room: str, name: str, what: _Kept, until: float) -> None:
        what.due = until
        if until < what.looked_at:
            self._look(until, room, name, what)

    def _look(self, at: float, room: str, name: str, what: _Kept) -> None:
        what.looked_at = at
        self._count += 1
        heapq.heappush(self._going, (at, self._count, room, name))

    def _now(self) -> float:
        """The time, once everything that is due has gone."""
        now = self._clock()
        while self._going and self._going[0][0] <= now:
            at, _, room, name = heapq.heappop(self._going)
            kept: dict[str, _Kept] = getattr(self, room)
            what = kept.get(name)
            if what is None or what.looked_at != at:
                continue
            if what.due > now:
                self._look(what.due, room, name, what)
            elif name in self._held and isinstance(what, _Mark):
                # A lease that ran out is somebody's to take, however late.
                self._look(now + SPARE, room, name, what)
            elif isinstance(what, _Box) and what.listeners:
                what.messages.clear()
                self._look(now + MAIL_LIFE, room, name, what)
            else:
                del kept[name]
                if isinstance(what, _Log):
                    what.is_gone = True
                    for follower in what.followers:
                        follower.fail(LogLost())
        return now


def _close(followers: Iterable[Follower]) -> None:
    for follower in list(followers):
        follower.close()
