"""Everyone in this process who follows a stream of Redis, over two connections in all.

* Followers that stand at the same entry share one read. Nothing is read for one that has enough untaken.
* What this process appends itself its followers get when Redis has taken it, and need not read.
* A read that follows a wake-up is checked by its numbers alone: no hole, and the same BORN. Whenever something may have
  been missed or forgotten (at first, after the connection broke, now and then) the read begins with the entry that is
  known, and if that is not there, the log is lost. It is the same for a mailbox, which then begins anew.
* A break is waited out for some seconds; then logs fail. Mailboxes wait for as long as it takes: silence is all they
  promise.

One connection on which Redis says which streams have something new, for the whole process.

It says only how far a stream has come; the entries are read from the stream itself. So a message that is lost costs
time and never an entry, and entries that came while one read was under way come with the next. (One XREAD over all
streams would have to be interrupted for each new follower, and sent anew with every name at each entry; one for each
follower would be a connection for each.)

When the connection breaks, `broke` is called, and it is made anew; then `ready` is called for every channel again. When
that fails for longer than `patience`, `gone` is called, each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any, Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import RedisError

from .follower import Follower
from .pipe import Address, Answer, Pipe, hang_up
from .relay import LogLost, RelayError

BEAT = 5.0
"""Seconds of silence after which Redis is asked whether it is still there."""
AGAIN = 0.1, 1.0
"""Seconds between two tries to connect: at first, and at most."""
AT_ONCE = 500


class Woken(Protocol):
    def ready(self, channel: str) -> None:
        """From now on whatever comes is told."""
        ...

    def wake(self, channel: str, what: bytes) -> None: ...

    def broke(self) -> None: ...

    def gone(self, error: RelayError) -> None: ...


class Wakes:
    def __init__(self, address: Address, woken: Woken, patience: float) -> None:
        self._address = address
        self._woken = woken
        self._patience = patience
        self._wanted: set[str] = set()
        self._unsaid: dict[str, bool] = {}
        """Channels that Redis is yet to be told about, and whether they are wanted."""
        self._say = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def want(self, channel: str) -> None:
        self._wanted.add(channel)
        self._unsaid[channel] = True
        self._say.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def unwant(self, channel: str) -> None:
        self._wanted.discard(channel)
        self._unsaid[channel] = False
        self._say.set()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        since: float | None = None
        pause = AGAIN[0]
        while True:
            error: Exception
            try:
                connection = await self._address.connect()
            except (RedisError, OSError, TimeoutError) as caught:
                error = caught
            else:
                since, pause = None, AGAIN[0]
                try:
                    await self._listen(connection)
                except (RedisError, OSError, TimeoutError) as caught:
                    error = caught
                finally:
                    await hang_up(connection)
                self._woken.broke()
            since = since or monotonic()
            if monotonic() - since > self._patience:
                self._woken.gone(self._address.unavailable(error))
            await asyncio.sleep(pause)
            pause = min(pause * 2, AGAIN[1])

    async def _listen(self, connection: AbstractConnection) -> None:
        self._unsaid = dict.fromkeys(self._wanted, True)
        self._say.set()
        saying = asyncio.create_task(self._tell(connection))
        silent = False
        try:
            while True:
                said = await connection.read_response(disable_decoding=True, timeout=BEAT)
                if said is None:
                    if silent or saying.done():
                        raise Unconnected
                    silent = True
                    await connection.send_command("PING", check_health=False)
                    continue
                silent = False
                if isinstance(said, list) and said[0] == b"message":
                    self._woken.wake(said[1].decode(), said[2])
                elif isinstance(said, list) and said[0] == b"subscribe":
                    self._woken.ready(said[1].decode())
        finally:
            saying.cancel()
            with suppress(asyncio.CancelledError, RedisError, OSError):
                await saying

    async def _tell(self, connection: AbstractConnection) -> None:
        while True:
            await self._say.wait()
            self._say.clear()
            unsaid, self._unsaid = self._unsaid, {}
            commands: list[tuple[str, ...]] = []
            for verb, wanted in (("SUBSCRIBE", True), ("UNSUBSCRIBE", False)):
                names = [name for name, is_wanted in unsaid.items() if is_wanted is wanted]
                commands += [(verb, *names[i : i + AT_ONCE]) for i in range(0, len(names), AT_ONCE)]
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)


PAGE = 200
"""How many entries one read brings."""
ROUND = 20
"""Seconds in which every stream is looked at once, whether something was told of it or not."""
RETRY = 0.25


class _Stream:
    def __init__(self, key: str, mark: str | None) -> None:
        self.key = key
        self.mark = mark
        """Where it is known whether the log ever began. None: it is a mailbox."""
        self.born: bytes | None = None
        self.newest = 0
        """The greatest number that was told of."""
        self.followers: set[Follower] = set()
        self.wanted = False
        self.broke = False
        """Whether the connection was lost since the first of them came."""


class Streams:
    def __init__(self, address: Address, patience: float) -> None:
        self._pipe = Pipe(address)
        self._wakes = Wakes(address, self, patience)
        self._patience = patience
        self._streams: dict[str, _Stream] = {}
        self._failing: float | None = None
        """Since when reads have failed."""
        self._round: list[str] = []
        self._written: set[str] = set()
        """Streams that this process writes."""
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def follow(self, key: str, mark: str | None, after: int) -> Follower:
        stream = self._streams.get(key) or _Stream(key, mark)
        follower = Follower(after, partial(self._moved, stream))
        if self._closed:
            follower.fail(RelayError("the relay is closed"))
            return follower
        self._streams[key] = stream
        stream.followers.add(follower)
        self._look(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)
        return follower

    @contextmanager
    def writing(self, key: str) -> Iterator[None]:
        """While this process writes the stream, nothing need be told of it."""
        self._written.add(key)
        try:
            yield
        finally:
            self._written.discard(key)
            if (stream := self._streams.get(key)) is not None:
                self._want(stream)
                self._doubt(stream)

    def appended(self, key: str, entries: Sequence[Any], number: int, *, size: int, ended: bool) -> None:
        """This process appended entries of `size` bytes in all; the last of them has this number."""
        stream = self._streams.get(key)
        if stream is None:
            return
        stream.newest = max(stream.newest, number + ended)
        before = number - len(entries)
        here = [one for one in stream.followers if one.at == before and not (one.doubted or one.reading or one.full)]
        self._put(stream, here, entries, number, size=size, ended=ended)
        self._look(stream)

    async def aclose(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._streams.values()):
            for follower in list(stream.followers):
                follower.close()
        await self._wakes.aclose()
        await self._pipe.aclose()

    # --- what is told ------------------------------------------------------------------------------------------

    def ready(self, channel: str) -> None:
        self._failing = None
        self._doubt(self._streams.get(channel))

    def wake(self, channel: str, what: bytes) -> None:
        stream = self._streams.get(channel)
        if stream is not None:
            number, _, born = what.partition(b"-")
            stream.newest = max(stream.newest, int(number))
            if stream.born is not None and born != stream.born:
                self._doubt(stream)
            else:
                self._look(stream)

    def broke(self) -> None:
        for stream in self._streams.values():
            stream.broke = True

    def gone(self, error: RelayError) -> None:
        for stream in list(self._streams.values()):
            if stream.mark is not None:
                self._fail(stream, stream.followers, error)

    # --- reading -----------------------------------------------------------------------------------------------

    def _doubt(self, stream: _Stream | None) -> None:
        if stream is not None:
            for follower in stream.followers:
                follower.doubted = True
            self._look(stream)

    def _look(self, stream: _Stream) -> None:
        """Read for everyone who has room and for whom there may be something."""
        places: dict[tuple[int, bool], list[Follower]] = {}
        for follower in stream.followers:
            if not (follower.reading or follower.full) and (follower.doubted or follower.at < stream.newest):
                places.setdefault((follower.at, follower.doubted), []).append(follower)
        for (at, doubted), followers in places.items():
            for follower in followers:
                follower.reading, follower.doubted = True, False
            began = self._pipe.call("HGET", stream.mark, "born") if doubted and not at and stream.mark else None
            first = at if doubted and at else at + 1
            answer = self._pipe.call("XRANGE", stream.key, first, "+", "COUNT", PAGE)
            read = _Read(stream, followers, at, doubted, stream.newest, began)
            answer.add_done_callback(partial(self._came, read))

    def _came(self, read: _Read, answer: Answer) -> None:
        stream = read.stream
        for follower in read.followers:
            follower.reading = False
            if follower.at != read.at:
                follower.doubted = True
        followers = [follower for follower in read.followers if follower.at == read.at and not follower.over]
        began = read.began.exception() if read.began is not None else None
        error = answer.exception() or began
        if error is not None:
            self._failed(stream, followers, error)
            return
        self._failing = None
        rows = answer.result()
        if read.sound(rows):
            size = sum(map(len, read.entries))
            self._put(stream, followers, read.entries, read.number, size=size, ended=read.ended)
        elif stream.mark is not None:
            self._fail(stream, followers, LogLost())
        else:
            stream.born, stream.newest = None, 0
            for follower in stream.followers:
                follower.at = 0
            self._doubt(stream)
            return
        if rows and len(rows) == PAGE:
            stream.newest = max(stream.newest, read.number + 1)
        elif not read.entries and read.doubted and stream.newest == read.newest:
            # What was told of is not there: it came from another database.
            stream.newest = min(stream.newest, read.at)
        elif not rows:
            for follower in followers:
                follower.doubted = True
        if stream.followers:
            if stream.key not in self._written:
                self._want(stream)
            self._look(stream)

    def _put(
        self,
        stream: _Stream,
        followers: list[Follower],
        entries: Sequence[Any],
        number: int,
        *,
        size: int,
        ended: bool,
    ) -> None:
        for follower in followers:
            if entries:
                follower.put(entries, number, size)
            if ended:
                follower.end()
        if ended:
            self._leave(stream, followers)

    def _want(self, stream: _Stream) -> None:
        """Be told what is new in it."""
        if not stream.wanted:
            stream.wanted = True
            self._wakes.want(stream.key)

    def _failed(self, stream: _Stream, followers: list[Follower], error: BaseException) -> None:
        if self._closed:
            return
        now = monotonic()
        self._failing = self._failing or now
        if stream.mark is not None and now - self._failing > self._patience:
            self._fail(stream, followers, error)
            return
        for follower in followers:
            follower.doubted = follower.reading = True
        asyncio.get_running_loop().call_later(RETRY, self._retry, stream, followers)

    def _retry(self, stream: _Stream, followers: list[Follower]) -> None:
        for follower in followers:
            follower.reading = False
        if not self._closed:
            self._look(stream)

    def _fail(self, stream: _Stream, followers: Iterable[Follower], error: BaseException) -> None:
        followers = list(followers)
        for follower in followers:
            follower.fail(error if isinstance(error, RelayError) else RelayError("the relay does not answer"))
        self._leave(stream, followers)

    def _moved(self, stream: _Stream, follower: Follower) -> None:
        """A follower took what there was, or closed."""
        if follower.closed:
            self._leave(stream, [follower])
        else:
            self._look(stream)

    def _leave(self, stream: _Stream, followers: Iterable[Follower]) -> None:
        stream.followers.difference_update(followers)
        if not stream.followers and self._streams.get(stream.key) is stream:
            del self._streams[stream.key]
            if stream.wanted:
                self._wakes.unwant(stream.key)

    def _tick(self) -> None:
        """A few streams each second, so that all have their turn in a round."""
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick) if self._streams else None
        self._round = self._round or list(self._streams)
        many = -(-len(self._streams) // ROUND)
        now, self._round = self._round[:many], self._round[many:]
        for key in now:
            self._doubt(self._streams.get(key))


class _Read:
    """One read of a stream: for whom, from where, and what it brought."""

    def __init__(
        self, stream: _Stream, followers: list[Follower], at: int, doubted: bool, newest: int, began: Answer | None
    ) -> None:
        self.stream = stream
        self.followers = followers
        self.at = self.number = at
        self.doubted = doubted
        self.newest = newest
        self.began = began
        self.entries: list[bytes] = []
        self.ended = False

    def sound(self, rows: list[Any]) -> bool:
        """Take what came; whether it is what follows, in the log that was read so far."""
        stream, box = self.stream, self.stream.mark is None
        known = not (self.doubted and self.at)
        for name, (field, data) in rows:
            text, _, born = name.partition(b"-")
            number = int(text)
            if stream.born is None:
                stream.born = born
            if born != stream.born:
                return False
            if field == b"z":
                self.ended = True
            elif number == self.at:
                known = True
            elif box or number == self.number + 1:
                self.number = number
                self.entries.append(data)
            else:
                return False
        if self.doubted and not self.at and not rows:
            began = self.began is not None and self.began.result() is not None
            return box or not (began or stream.born is not None or stream.broke)
        return known
