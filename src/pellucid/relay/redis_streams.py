"""Follows Redis streams, for all followers in this process, with two connections.

`Streams` reads the streams:

* Followers at the same position share one read. Nothing is read for a follower that has enough entries untaken.
* Followers receive what this process appends as soon as Redis has accepted it, without a read.
* A read after a notification is checked by its numbers: no gap, and the same BORN. If entries may have been missed or
  lost (at first, after the connection broke, and periodically), the read begins with the last known entry. If that
  entry does not exist, the log is lost; a mailbox starts again from its first message.
* During an outage, followers wait for some seconds, and then fail. Subscribers of mailboxes wait without a limit.

`ChannelSubscriber` is notified of new entries, with one connection for the whole process. A notification contains only
the newest number of a stream; the entries are read from the stream itself. So a lost notification delays entries but
never loses them, and entries that arrive during a read come with the next read. (One XREAD over all streams would have
to be interrupted for each new follower, and sent again with every name for each entry. One XREAD for each follower
would need a connection for each.)

The subscriber calls the methods `on_…` of `Streams`. When the connection breaks, `on_disconnected` is called, and the
subscriber reconnects. `on_subscribed` is then called for every channel again. While reconnecting fails for longer than
`outage_seconds`, `on_unavailable` is called for each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import Any

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import RedisError

from .follower import Follower
from .redis_connection import PipelinedConnection, RedisAddress, Reply, disconnect
from .relay import LogLost, RelayError

HEARTBEAT_SECONDS = 5.0
"""Seconds without a message after which a PING is sent."""
RECONNECT_SECONDS = 0.1, 1.0
"""Seconds between two attempts to connect: the first pause, and the longest."""
MAX_CHANNELS_PER_COMMAND = 500


class ChannelSubscriber:
    """Subscribes to Redis channels, over one connection that is restored when it breaks."""

    def __init__(self, address: RedisAddress, streams: Streams, outage_seconds: float) -> None:
        self._address = address
        self._streams = streams
        self._outage_seconds = outage_seconds
        self._channels: set[str] = set()
        self._pending: dict[str, bool] = {}
        """Channels to subscribe to (True) or to unsubscribe from (False) with the next command."""
        self._has_pending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def subscribe(self, channel: str) -> None:
        self._channels.add(channel)
        self._pending[channel] = True
        self._has_pending.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def unsubscribe(self, channel: str) -> None:
        self._channels.discard(channel)
        self._pending[channel] = False
        self._has_pending.set()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        down_since: float | None = None
        pause_seconds = RECONNECT_SECONDS[0]
        while True:
            error: Exception
            try:
                connection = await self._address.connect()
            except (RedisError, OSError, TimeoutError) as caught:
                error = caught
            else:
                down_since, pause_seconds = None, RECONNECT_SECONDS[0]
                try:
                    await self._listen(connection)
                except (RedisError, OSError, TimeoutError) as caught:
                    error = caught
                finally:
                    await disconnect(connection)
                self._streams.on_disconnected()
            down_since = down_since or monotonic()
            if monotonic() - down_since > self._outage_seconds:
                self._streams.on_unavailable(self._address.to_relay_error(error))
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 2, RECONNECT_SECONDS[1])

    async def _listen(self, connection: AbstractConnection) -> None:
        self._pending = dict.fromkeys(self._channels, True)
        self._has_pending.set()
        sender = asyncio.create_task(self._send_subscriptions(connection))
        was_silent = False
        try:
            while True:
                message = await connection.read_response(disable_decoding=True, timeout=HEARTBEAT_SECONDS)
                if message is None:
                    if was_silent or sender.done():
                        raise Unconnected
                    was_silent = True
                    await connection.send_command("PING", check_health=False)
                    continue
                was_silent = False
                if isinstance(message, list) and message[0] == b"message":
                    self._streams.on_notification(message[1].decode(), message[2])
                elif isinstance(message, list) and message[0] == b"subscribe":
                    self._streams.on_subscribed(message[1].decode())
        finally:
            sender.cancel()
            with suppress(asyncio.CancelledError, RedisError, OSError):
                await sender

    async def _send_subscriptions(self, connection: AbstractConnection) -> None:
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            pending, self._pending = self._pending, {}
            commands: list[tuple[str, ...]] = []
            for verb, subscribes in (("SUBSCRIBE", True), ("UNSUBSCRIBE", False)):
                names = [name for name, is_wanted in pending.items() if is_wanted is subscribes]
                commands += [
                    (verb, *names[i : i + MAX_CHANNELS_PER_COMMAND])
                    for i in range(0, len(names), MAX_CHANNELS_PER_COMMAND)
                ]
            await connection.send_packed_command(connection.pack_commands(commands), check_health=False)


PAGE_ENTRIES = 200
"""Limit for the number of entries in one read."""
ROUND_SECONDS = 20
"""Seconds in which every stream is checked once, even without a notification."""
RETRY_SECONDS = 0.25


class _Stream:
    """A Redis stream that is followed in this process: a log or a mailbox."""

    def __init__(self, key: str, mark_key: str | None) -> None:
        self.key = key
        self.mark_key = mark_key
        """The key that records whether the log ever began. None for a mailbox."""
        self.born: bytes | None = None
        self.newest_number = 0
        """The greatest number that is known from notifications and appends."""
        self.followers: set[Follower] = set()
        self.is_subscribed = False
        self.was_interrupted = False
        """Whether the connection broke since the first follower was added."""


class Streams:
    """Reads Redis streams for all followers in this process."""

    def __init__(self, address: RedisAddress, outage_seconds: float) -> None:
        self._connection = PipelinedConnection(address)
        self._subscriber = ChannelSubscriber(address, self, outage_seconds)
        self._outage_seconds = outage_seconds
        self._streams: dict[str, _Stream] = {}
        self._failing_since: float | None = None
        """The time since which reads have failed; None if the last read succeeded."""
        self._round_keys: list[str] = []
        self._written_keys: set[str] = set()
        """Keys of streams that this process writes."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def follow(self, key: str, mark_key: str | None, after: int) -> Follower:
        """Follow a stream.

        Args:
            key: The key of the stream.
            mark_key: The key that records whether the log ever began. None for a mailbox.
            after: The number of the last entry that is not wanted.
        """
        stream = self._streams.get(key) or _Stream(key, mark_key)
        follower = Follower(after, partial(self._on_taken, stream))
        if self._is_closed and mark_key is None:
            follower.close()
            return follower
        if self._is_closed:
            follower.fail(RelayError("the relay is closed"))
            return follower
        self._streams[key] = stream
        stream.followers.add(follower)
        self._read_new(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1.0, self._tick)
        return follower

    @contextmanager
    def writing(self, key: str) -> Iterator[None]:
        """Context in which this process writes the stream, so that no notifications are needed."""
        self._written_keys.add(key)
        try:
            yield
        finally:
            self._written_keys.discard(key)
            if (stream := self._streams.get(key)) is not None:
                self._subscribe(stream)
                self._recheck(stream)

    def on_appended(self, key: str, entries: Sequence[Any], number: int, *, size_bytes: int, has_ended: bool) -> None:
        """Handle an append by this process.

        Args:
            key: The key of the stream.
            entries: The entries, as followers receive them.
            number: The number of the last entry.
            size_bytes: The total size of the entries.
            has_ended: Whether the append ended the log.
        """
        stream = self._streams.get(key)
        if stream is None:
            return
        stream.newest_number = max(stream.newest_number, number + has_ended)
        before = number - len(entries)
        current_followers = [
            follower
            for follower in stream.followers
            if follower.position == before and not (follower.is_unverified or follower.is_reading or follower.is_full)
        ]
        self._deliver(stream, current_followers, entries, number, size_bytes=size_bytes, has_ended=has_ended)
        self._read_new(stream)

    async def aclose(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in list(self._streams.values()):
            for follower in list(stream.followers):
                follower.close()
        await self._subscriber.aclose()
        await self._connection.aclose()

    # --- notifications -----------------------------------------------------------------------------------------

    def on_subscribed(self, channel: str) -> None:
        """Handle that a channel is subscribed: all later notifications will arrive."""
        self._failing_since = None
        self._recheck(self._streams.get(channel))

    def on_notification(self, channel: str, newest: bytes) -> None:
        """Handle a notification: `newest` is the id of the newest entry of the stream (`N-BORN`)."""
        stream = self._streams.get(channel)
        if stream is not None:
            number, _, born = newest.partition(b"-")
            stream.newest_number = max(stream.newest_number, int(number))
            if stream.born is not None and born != stream.born:
                self._recheck(stream)
            else:
                self._read_new(stream)

    def on_disconnected(self) -> None:
        """Handle that notifications may be missing: all streams are read again when there is a connection."""
        for stream in self._streams.values():
            stream.was_interrupted = True

    def on_unavailable(self, error: RelayError) -> None:
        """Handle an outage that is too long: the followers of logs fail. Listeners of mailboxes only wait."""
        for stream in list(self._streams.values()):
            if stream.mark_key is not None:
                self._fail(stream, stream.followers, error)

    # --- reading -----------------------------------------------------------------------------------------------

    def _recheck(self, stream: _Stream | None) -> None:
        if stream is not None:
            for follower in stream.followers:
                follower.is_unverified = True
            self._read_new(stream)

    def _read_new(self, stream: _Stream) -> None:
        """Start a read for each position that has followers for which there may be entries."""
        groups: dict[tuple[int, bool], list[Follower]] = {}
        for follower in stream.followers:
            if not (follower.is_reading or follower.is_full) and (
                follower.is_unverified or follower.position < stream.newest_number
            ):
                groups.setdefault((follower.position, follower.is_unverified), []).append(follower)
        for (position, is_unverified), followers in groups.items():
            for follower in followers:
                follower.is_reading, follower.is_unverified = True, False
            born_reply = (
                self._connection.call("HGET", stream.mark_key, "born")
                if is_unverified and not position and stream.mark_key
                else None
            )
            first = position if is_unverified and position else position + 1
            reply = self._connection.call("XRANGE", stream.key, first, "+", "COUNT", PAGE_ENTRIES)
            read = _StreamRead(stream, followers, position, is_unverified, stream.newest_number, born_reply)
            reply.add_done_callback(partial(self._on_read, read))

    def _on_read(self, read: _StreamRead, reply: Reply) -> None:
        stream = read.stream
        for follower in read.followers:
            follower.is_reading = False
            if follower.position != read.position:
                follower.is_unverified = True
        followers = [
            follower for follower in read.followers if follower.position == read.position and not follower.is_over
        ]
        born_error = read.born_reply.exception() if read.born_reply is not None else None
        error = reply.exception() or born_error
        if error is not None:
            self._on_read_failed(stream, followers, error)
            return
        self._failing_since = None
        rows = reply.result()
        if read.accept(rows):
            size_bytes = sum(map(len, read.entries))
            self._deliver(stream, followers, read.entries, read.number, size_bytes=size_bytes, has_ended=read.has_ended)
        elif stream.mark_key is not None:
            self._fail(stream, followers, LogLost())
        else:
            stream.born, stream.newest_number = None, 0
            for follower in stream.followers:
                follower.position = 0
            self._recheck(stream)
            return
        if rows and len(rows) == PAGE_ENTRIES:
            stream.newest_number = max(stream.newest_number, read.number + 1)
        elif not read.entries and read.is_unverified and stream.newest_number == read.newest:
            # The announced entry does not exist: the notification came from another database of the server.
            stream.newest_number = min(stream.newest_number, read.position)
        elif not rows:
            for follower in followers:
                follower.is_unverified = True
        if stream.followers:
            if stream.key not in self._written_keys:
                self._subscribe(stream)
            self._read_new(stream)

    def _deliver(
        self,
        stream: _Stream,
        followers: list[Follower],
        entries: Sequence[Any],
        number: int,
        *,
        size_bytes: int,
        has_ended: bool,
    ) -> None:
        for follower in followers:
            if entries:
                follower.put(entries, number, size_bytes)
            if has_ended:
                follower.end()
        if has_ended:
            self._remove_followers(stream, followers)

    def _subscribe(self, stream: _Stream) -> None:
        """Subscribe to the notifications of the stream."""
        if not stream.is_subscribed:
            stream.is_subscribed = True
            self._subscriber.subscribe(stream.key)

    def _on_read_failed(self, stream: _Stream, followers: list[Follower], error: BaseException) -> None:
        if self._is_closed:
            return
        now = monotonic()
        self._failing_since = self._failing_since or now
        if stream.mark_key is not None and now - self._failing_since > self._outage_seconds:
            self._fail(stream, followers, error)
            return
        for follower in followers:
            follower.is_unverified = follower.is_reading = True
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry, stream, followers)

    def _retry(self, stream: _Stream, followers: list[Follower]) -> None:
        for follower in followers:
            follower.is_reading = False
        if not self._is_closed:
            self._read_new(stream)

    def _fail(self, stream: _Stream, followers: Iterable[Follower], error: BaseException) -> None:
        followers = list(followers)
        for follower in followers:
            follower.fail(error if isinstance(error, RelayError) else RelayError("the relay does not answer"))
        self._remove_followers(stream, followers)

    def _on_taken(self, stream: _Stream, follower: Follower) -> None:
        """Handle that a follower has taken its entries, or was closed."""
        if follower.is_closed:
            self._remove_followers(stream, [follower])
        else:
            self._read_new(stream)

    def _remove_followers(self, stream: _Stream, followers: Iterable[Follower]) -> None:
        stream.followers.difference_update(followers)
        if not stream.followers and self._streams.get(stream.key) is stream:
            del self._streams[stream.key]
            if stream.is_subscribed:
                self._subscriber.unsubscribe(stream.key)

    def _tick(self) -> None:
        """Check a share of the streams each second, so that all are checked in `ROUND_SECONDS`."""
        self._timer = asyncio.get_running_loop().call_later(1.0, self._tick) if self._streams else None
        self._round_keys = self._round_keys or list(self._streams)
        count = -(-len(self._streams) // ROUND_SECONDS)
        due_keys, self._round_keys = self._round_keys[:count], self._round_keys[count:]
        for key in due_keys:
            self._recheck(self._streams.get(key))


class _StreamRead:
    """One read of a stream: its followers, its start, and its result."""

    def __init__(
        self,
        stream: _Stream,
        followers: list[Follower],
        position: int,
        is_unverified: bool,
        newest: int,
        born_reply: Reply | None,
    ) -> None:
        self.stream = stream
        self.followers = followers
        self.position = self.number = position
        self.is_unverified = is_unverified
        self.newest = newest
        self.born_reply = born_reply
        self.entries: list[bytes] = []
        self.has_ended = False

    def accept(self, rows: list[Any]) -> bool:
        """Store the result of the read. Returns whether it continues the log that was read so far, without a gap."""
        stream, is_mailbox = self.stream, self.stream.mark_key is None
        is_continuous = not (self.is_unverified and self.position)
        for name, (field, data) in rows:
            text, _, born = name.partition(b"-")
            number = int(text)
            if stream.born is None:
                stream.born = born
            if born != stream.born:
                return False
            if field == b"z":
                self.has_ended = True
            elif number == self.position:
                is_continuous = True
            elif is_mailbox or number == self.number + 1:
                self.number = number
                self.entries.append(data)
            else:
                return False
        if self.is_unverified and not self.position and not rows:
            has_begun = self.born_reply is not None and self.born_reply.result() is not None
            return is_mailbox or not (has_begun or stream.born is not None or stream.was_interrupted)
        return is_continuous
