"""The relay that replicas share, in Redis or Valkey. See `relay.Relay`.

Three connections for the whole process, however many follow: one for what is asked and written, one for what is read,
one on which Redis says where there is something to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from ..errors import PellucidError
from . import scripts
from .buckets import DUST
from .follower import Follower
from .pipe import Address, Answer, Argument, Pipe
from .relay import LIFE, MAIL_LIFE, MAIL_ROOM, SPARE, Fenced, Listener, LogEntry, LogLost, RelayError, Verdict
from .streams import Streams

_LIFE, _SPARE = int(LIFE), int(SPARE)


APPEND_SECONDS = 0.001
"""The least time between two scripts that append: what is appended meanwhile goes in one, to however many logs."""
APPENDS_AT_ONCE = 200


class _Append(NamedTuple):
    keys: Sequence[str]
    arguments: Sequence[Argument]
    """As the script takes them of one log."""
    done: Callable[[Any], None]
    """Gets what the script says of it, or an exception."""


class _Appends:
    """Appends to all logs of this process. At most one script is under way, and it carries all that waited for it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._waiting: list[_Append] = []
        self._busy = False

    def add(self, one: _Append) -> None:
        self._waiting.append(one)
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        several, self._waiting = self._waiting[:APPENDS_AT_ONCE], self._waiting[APPENDS_AT_ONCE:]
        if not several:
            self._busy = False
            return
        keys = [key for one in several for key in one.keys]
        arguments = [argument for one in several for argument in one.arguments]
        said = self._pipe.run(scripts.APPEND, keys, _LIFE, _SPARE, *arguments)
        said.add_done_callback(partial(self._said, several))

    def _said(self, several: list[_Append], said: Answer) -> None:
        asyncio.get_running_loop().call_later(APPEND_SECONDS, self._send)
        error = said.exception()
        for one, answer in zip(several, [error] * len(several) if error is not None else said.result(), strict=True):
            one.done(answer)


class RedisRelay:
    def __init__(self, url: str, *, prefix: str, timeout: float, patience: float) -> None:
        address = Address(url, timeout)
        self._prefix = prefix
        self._leases = f"{prefix}leases"
        self._pipe = Pipe(address)
        self._appends = _Appends(self._pipe)
        self._streams = Streams(address, patience)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}{kind}:{name}"

    # --- logs --------------------------------------------------------------------------------------------------

    async def append(
        self,
        log: str,
        entries: Sequence[bytes],
        fence: int,
        *,
        last: bool = False,
        after: int | None = None,
        decoded: Sequence[LogEntry] | None = None,
    ) -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(result: int | PellucidError) -> None:
            if answer.done():  # whoever asked left
                return
            if isinstance(result, PellucidError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.append_soon(log, entries, fence, done=done, last=last, after=after, decoded=decoded)
        return await answer

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
        keys = self._log(log)

        def appended(said: Any) -> None:
            if type(said) is int:
                given, size = entries if decoded is None else decoded, sum(map(len, entries))
                self._streams.appended(keys[0], given, said, size=size, ended=last)
                done(said)
            elif said == b"fenced":
                done(Fenced())
            elif said == b"lost":
                done(LogLost())
            elif said == b"other":
                done(LogLost("the run's log does not hold what its writer wrote"))
            else:
                done(self._pipe.unavailable(said))

        known = -1 if after is None else after
        self._appends.add(_Append(keys, (fence, known, int(last), len(entries), *entries), appended))

    def writing(self, log: str) -> AbstractContextManager[None]:
        return self._streams.writing(self._key("log", log))

    def follow(self, log: str, after: int = 0) -> Follower:
        key, mark = self._log(log)
        return self._streams.follow(key, mark, after)

    async def exists(self, log: str) -> bool:
        return bool(await self._pipe.call("EXISTS", self._key("log", log)))

    async def length(self, log: str) -> int:
        return int(await self._pipe.call("XLEN", self._key("log", log)))

    async def drop(self, log: str, after_seconds: float) -> None:
        await self._pipe.run(scripts.DROP, self._log(log), max(0, round(after_seconds * 1000)), _SPARE * 1000)

    def _log(self, name: str) -> tuple[str, str]:
        return self._key("log", name), self._key("mark", name)

    # --- leases ------------------------------------------------------------------------------------------------

    async def claim(self, name: str, holder: str, seconds: float, *, lapsed: bool = False) -> int | None:
        keys, life = self._lease(name), (_LIFE + _SPARE) * 1000
        said = await self._pipe.run(scripts.CLAIM, keys, name, holder, _micro(seconds), int(lapsed), life)
        return None if said is None else int(said)

    async def renew(self, name: str, token: int, seconds: float) -> bool:
        keys, life = self._lease(name), (_LIFE + _SPARE) * 1000
        return bool(await self._pipe.run(scripts.RENEW, keys, name, token, _micro(seconds), life))

    async def release(self, name: str, token: int) -> None:
        await self._pipe.run(scripts.RELEASE, self._lease(name), name, token)

    async def lapsed(self, prefix: str = "", limit: int = 100) -> list[str]:
        return [name.decode() for name in await self._pipe.run(scripts.LAPSED, [self._leases], prefix, limit)]

    def _lease(self, name: str) -> tuple[str, str]:
        return self._key("mark", name), self._leases

    # --- signals -----------------------------------------------------------------------------------------------

    async def tell(self, name: str, message: bytes) -> None:
        await self._pipe.run(scripts.TELL, [self._key("box", name)], MAIL_ROOM, int(MAIL_LIFE), message)

    def listen(self, name: str) -> Listener:
        return self._streams.follow(self._key("box", name), None, 0)

    # --- limits ------------------------------------------------------------------------------------------------

    async def spend(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> Verdict:
        return await self._take(bucket, amounts, limits, window_seconds, always=False)

    async def charge(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> Verdict:
        return await self._take(bucket, amounts, limits, window_seconds, always=True)

    async def _take(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window: float, *, always: bool
    ) -> Verdict:
        counters = [x for name, limit in limits.items() for x in (name, float(amounts.get(name, 0)), float(limit))]
        allowed, retry_after, which, left = await self._pipe.run(
            scripts.TAKE, [self._key("bucket", bucket)], int(always), float(window), DUST, *counters
        )
        levels = dict(zip(limits, map(float, left), strict=True))
        return Verdict(bool(allowed), float(retry_after), which.decode() or None, levels)

    async def hold(self, bucket: str, limit: int, holder: str, seconds: float) -> bool:
        key = self._key("hold", bucket)
        return bool(await self._pipe.run(scripts.HOLD, [key], limit, holder, _micro(seconds)))

    async def unhold(self, bucket: str, holder: str) -> None:
        await self._pipe.call("ZREM", self._key("hold", bucket), holder)

    # --- rolls -------------------------------------------------------------------------------------------------

    async def enter(self, roll: str, who: str, seconds: float) -> None:
        await self._pipe.run(scripts.ENTER, [self._key("roll", roll)], who, _micro(seconds))

    async def quit(self, roll: str, who: str) -> None:
        await self._pipe.call("ZREM", self._key("roll", roll), who)

    async def roll(self, roll: str) -> list[str]:
        return [who.decode() for who in await self._pipe.run(scripts.ROLL, [self._key("roll", roll)])]

    # --- itself ------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        if await self._pipe.call("PING") != b"PONG":
            raise RelayError("what answers at the relay's address is not Redis")

    async def aclose(self) -> None:
        await self._streams.aclose()
        await self._pipe.aclose()


def _micro(seconds: float) -> int:
    return round(seconds * 1_000_000)
