"""The relay that replicas share, in Redis or Valkey (see `relay.Relay`).

The process has three connections, whatever the number of followers: one for commands and writes, one for reads, and one
for notifications (publish/subscribe).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from ..errors import PellucidError
from . import scripts
from .follower import Follower
from .memory import ROUNDING_TOLERANCE
from .redis_connection import Argument, PipelinedConnection, RedisAddress, Reply
from .redis_streams import Streams
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
    RelayError,
)

_LOG_LIFE_SECONDS, _TOMBSTONE_SECONDS = int(LOG_LIFE_SECONDS), int(TOMBSTONE_SECONDS)


MIN_APPEND_INTERVAL_SECONDS = 0.001
"""The shortest time between two scripts that append. The appends of that time, to all logs, are sent in one script."""
MAX_APPENDS_PER_SCRIPT = 200


class _PendingAppend(NamedTuple):
    """An append that waits to be sent."""

    keys: Sequence[str]
    arguments: Sequence[Argument]
    """The arguments of the script for one log."""
    done: Callable[[Any], None]
    """Called with the result of the script for this log, or with an exception."""


class _AppendBatcher:
    """Batches the appends to all logs of this process. At most one script runs at a time."""

    def __init__(self, connection: PipelinedConnection) -> None:
        self._connection = connection
        self._queue: list[_PendingAppend] = []
        self._is_sending = False

    def add(self, append: _PendingAppend) -> None:
        self._queue.append(append)
        if not self._is_sending:
            self._is_sending = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        batch, self._queue = self._queue[:MAX_APPENDS_PER_SCRIPT], self._queue[MAX_APPENDS_PER_SCRIPT:]
        if not batch:
            self._is_sending = False
            return
        keys = [key for append in batch for key in append.keys]
        arguments = [argument for append in batch for argument in append.arguments]
        reply = self._connection.run_script(scripts.APPEND, keys, _LOG_LIFE_SECONDS, _TOMBSTONE_SECONDS, *arguments)
        reply.add_done_callback(partial(self._on_reply, batch))

    def _on_reply(self, batch: list[_PendingAppend], reply: Reply) -> None:
        asyncio.get_running_loop().call_later(MIN_APPEND_INTERVAL_SECONDS, self._send)
        error = reply.exception()
        for append, result in zip(batch, [error] * len(batch) if error is not None else reply.result(), strict=True):
            append.done(result)


class RedisRelay(Relay):
    """The relay in Redis or Valkey. See `relay.Relay` for the methods.

    Args:
        url: A URL in the form of redis-py.
        prefix: The prefix of every key and channel.
        timeout_seconds: Time limit for each call.
        outage_seconds: How long followers wait for Redis during an outage.
    """

    def __init__(self, url: str, *, prefix: str, timeout_seconds: float, outage_seconds: float) -> None:
        self._address = address = RedisAddress(url, timeout_seconds)
        self.address = address.name
        """Host and port, or the path of the socket. For the operator: errors that clients see do not contain it."""
        self._prefix = prefix
        self._leases = f"{prefix}leases"
        self._connection = PipelinedConnection(address)
        self._appends = _AppendBatcher(self._connection)
        self._streams = Streams(address, outage_seconds)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}{kind}:{name}"

    # --- logs --------------------------------------------------------------------------------------------------

    def append_soon(
        self,
        log: str,
        entries: Sequence[bytes],
        fence: int,
        *,
        done: Callable[[int | PellucidError], None],
        last: bool = False,
        after: int | None = None,
        decoded: Sequence[LogEntry] | None = None,
    ) -> None:
        keys = self._log_keys(log)

        def on_reply(result: Any) -> None:
            if type(result) is int:
                local_entries, size_bytes = entries if decoded is None else decoded, sum(map(len, entries))
                self._streams.on_appended(keys[0], local_entries, result, size_bytes=size_bytes, has_ended=last)
                done(result)
            elif result == b"fenced":
                done(FencedError())
            elif result == b"lost":
                done(LogLost())
            elif result == b"other":
                done(LogLost("the run's log does not contain what its writer wrote"))
            else:
                done(self._address.to_relay_error(result))

        expected_count = -1 if after is None else after
        self._appends.add(_PendingAppend(keys, (fence, expected_count, int(last), len(entries), *entries), on_reply))

    def writing(self, log: str) -> AbstractContextManager[None]:
        return self._streams.writing(self._key("log", log))

    def follow(self, log: str, after: int = 0) -> Follower:
        key, mark = self._log_keys(log)
        return self._streams.follow(key, mark, after)

    async def length(self, log: str) -> int:
        return int(await self._connection.call("XLEN", self._key("log", log)))

    async def drop(self, log: str, after_seconds: float) -> None:
        await self._connection.run_script(
            scripts.DROP, self._log_keys(log), max(0, round(after_seconds * 1000)), _TOMBSTONE_SECONDS * 1000
        )

    def _log_keys(self, name: str) -> tuple[str, str]:
        return self._key("log", name), self._key("mark", name)

    # --- leases ------------------------------------------------------------------------------------------------

    async def claim(self, name: str, holder: str, seconds: float, *, lapsed: bool = False) -> int | None:
        keys, life_milliseconds = self._lease_keys(name), (_LOG_LIFE_SECONDS + _TOMBSTONE_SECONDS) * 1000
        token = await self._connection.run_script(
            scripts.CLAIM, keys, name, holder, _to_microseconds(seconds), int(lapsed), life_milliseconds
        )
        return None if token is None else int(token)

    async def renew(self, name: str, token: int, seconds: float) -> bool:
        keys, life_milliseconds = self._lease_keys(name), (_LOG_LIFE_SECONDS + _TOMBSTONE_SECONDS) * 1000
        return bool(
            await self._connection.run_script(
                scripts.RENEW, keys, name, token, _to_microseconds(seconds), life_milliseconds
            )
        )

    async def release(self, name: str, token: int) -> None:
        await self._connection.run_script(scripts.RELEASE, self._lease_keys(name), name, token)

    async def lapsed_leases(self, prefix: str = "", limit: int = 100) -> list[str]:
        return [
            name.decode() for name in await self._connection.run_script(scripts.LAPSED, [self._leases], prefix, limit)
        ]

    def _lease_keys(self, name: str) -> tuple[str, str]:
        return self._key("mark", name), self._leases

    # --- signals -----------------------------------------------------------------------------------------------

    async def publish(
        self, name: str, message: bytes, *, max_stored: int = MAX_SIGNALS, seconds: float = SIGNAL_LIFE_SECONDS
    ) -> None:
        await self._connection.run_script(scripts.PUBLISH, [self._key("box", name)], max_stored, ceil(seconds), message)

    def subscribe(self, name: str) -> Listener:
        return self._streams.follow(self._key("box", name), None, 0)

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
        counters = [x for name, limit in limits.items() for x in (name, float(amounts.get(name, 0)), float(limit))]
        allowed, retry_after, limiting_counter, levels_left = await self._connection.run_script(
            scripts.TAKE,
            [self._key("bucket", bucket)],
            int(is_forced),
            float(window_seconds),
            ROUNDING_TOLERANCE,
            *counters,
        )
        levels = dict(zip(limits, map(float, levels_left), strict=True))
        return LimitResult(bool(allowed), float(retry_after), limiting_counter.decode() or None, levels)

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        key = self._key("hold", bucket)
        return bool(
            await self._connection.run_script(scripts.ACQUIRE_SLOT, [key], limit, holder, _to_microseconds(seconds))
        )

    async def release_slot(self, bucket: str, holder: str) -> None:
        await self._connection.call("ZREM", self._key("hold", bucket), holder)

    # --- presence ----------------------------------------------------------------------------------------------

    async def set_presence(self, group: str, member: str, seconds: float) -> None:
        await self._connection.run_script(
            scripts.SET_PRESENCE, [self._key("roll", group)], member, _to_microseconds(seconds)
        )

    async def clear_presence(self, group: str, member: str) -> None:
        await self._connection.call("ZREM", self._key("roll", group), member)

    async def list_present(self, group: str) -> list[str]:
        return [
            member.decode()
            for member in await self._connection.run_script(scripts.LIST_PRESENT, [self._key("roll", group)])
        ]

    # --- life cycle --------------------------------------------------------------------------------------------

    async def check(self) -> None:
        if await self._connection.call("PING") != b"PONG":
            raise RelayError("the server at the relay's address is not Redis")

    async def aclose(self) -> None:
        await self._streams.aclose()
        await self._connection.aclose()


def _to_microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
