"""A store, from its URL."""

from __future__ import annotations

import time
from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ..errors import ConfigError
from ..record import Recording
from . import retention, search
from .chats import Chats
from .conversations import Conversations
from .keys import Keys
from .names import finds
from .record_store import Record
from .responses import Responses
from .spaces import Spaces
from .sqlite import Sqlite
from .statement import Ask, Database, Op, Params, Statement, each

_ANYTHING = Statement(sa.select(sa.literal_column("1")))


class Store:
    """What is kept, and what can be done with it. `clock` is the time of day, for what has expired."""

    def __init__(
        self, database: Database, clock: Callable[[], float] = time.time, recording: Recording | None = None
    ) -> None:
        recording = recording or Recording()
        self._database = database
        self._clock = clock
        self._recording = recording
        self.responses = Responses(database, clock, recording)
        self.conversations = Conversations(database, clock, recording)
        self.chats = Chats(database, clock, recording)
        self.record = Record(database, clock, recording)
        self.keys = Keys(database)
        self.spaces = Spaces(database, clock, recording)

    @property
    def transactions(self) -> int:
        """How many transactions this process has written so far; each may hold many writes."""
        return self._database.transactions

    async def check(self) -> None:
        """Raises `StoreError` if the store does not answer."""
        await self._database.read(_check, {})

    async def expire(self, now: float, limit: int = 10_000) -> int:
        """Delete what is due, with all that belongs to it; at most `limit` responses, conversations and chats. How
        many. Spaces are never due; what a removal of one left that was broken off is taken away."""
        await self.spaces.sweep()
        return await self._in_steps(retention.expire, {"now": now, "recording": self._recording}, limit)

    @finds(0)
    async def erase(self, owner: str) -> int:
        """Delete everything of one tenant: responses, conversations, chats, spaces, keys. How many of these there were.

        What it does at the same time is not prevented; let nobody in before."""
        asked = {"for_owner": owner, "now": self._clock(), "recording": self._recording}
        gone = await self._in_steps(retention.erase, asked, None)
        for space in await self.spaces.list(owner):
            gone += await self.spaces.remove(owner, space.name)
        await self.spaces.sweep()
        more, first = gone > 0, True
        while more:
            more, first = await self._database.write(_MERGE_EACH, first), False
        return gone

    async def aclose(self) -> None:
        """Finish what waits, and let go of everything. What is asked afterwards is a `StoreError`."""
        await self._database.aclose()

    async def _in_steps(self, op: Callable[[list[Params]], Op[list[int]]], params: Params, limit: int | None) -> int:
        gone = 0
        while limit is None or gone < limit:
            step = retention.STEP if limit is None else min(retention.STEP, limit - gone)
            some = await self._database.write(op, {**params, "most": step})
            gone += some
            if some < step:
                break
        return gone


_MERGE_EACH = each(search.merge)


def _check(params: Params) -> Op[None]:
    yield Ask(_ANYTHING, params)


async def open_store(url: str, *, clock: Callable[[], float] = time.time, recording: Recording | None = None) -> Store:
    """Open the store, making or migrating its tables if need be.

    `sqlite:///relative/path`, `sqlite:////absolute/path`, `sqlite://` (in memory, gone with the process) or
    `postgresql://user:password@host/database`. `recording`: whether what is stored is recorded (it is), and whose seals
    are on the record. Raises `ConfigError` for a URL that is none of these, `StoreError` if
    the database does not answer or was written by a newer version."""
    parsed = check_store_url(url)
    if parsed.drivername == "sqlite":
        path = parsed.database
        return Store(await Sqlite.open(None if path in (None, "", ":memory:") else path), clock, recording)
    from .postgres import Postgres

    return Store(await Postgres.open(parsed), clock, recording)


def check_store_url(url: str) -> URL:
    """What a URL says. Raises `ConfigError` for one that `open_store` would not take. Nothing is opened."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.drivername not in ("sqlite", "postgresql", "postgres", "postgresql+asyncpg"):
        # The URL itself is not repeated: it may hold a password.
        raise ConfigError(["a store is sqlite:///PATH, sqlite:// (in memory) or postgresql://USER:PASSWORD@HOST/NAME"])
    if parsed.drivername != "sqlite":
        try:
            from . import postgres  # noqa: F401
        except ModuleNotFoundError:
            raise ConfigError(["a store in PostgreSQL needs asyncpg: pip install 'pellucid[postgres]'"]) from None
    return parsed
