"""One connection to Redis, and everything that wants to go over it.

* What is asked while an answer is awaited goes out together with the next write: under load, many callers share one
  round trip, and nobody waits for a connection.
* Whoever stops waiting (a client left) disturbs nobody: the connection stays in step.
* When Redis does not answer, everyone who waits gets `RelayError` at once, and the next call connects anew. Nothing is
  sent twice but what certainly was not done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as Late

from .relay import RelayError
from .scripts import ALL, Script

Answer: TypeAlias = "asyncio.Future[Any]"
Argument: TypeAlias = str | bytes | int | float

LATE = (TimeoutError, Late)

AT_ONCE = 256
"""How many commands go out in one write."""


class Address:
    """Where Redis is, and how to connect to it."""

    def __init__(self, url: str, timeout: float) -> None:
        self.timeout = timeout
        self._pool: Any = ConnectionPool.from_url(
            url,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
        self._make()  # it raises where the address asks for what there is not
        kwargs = self._pool.connection_kwargs
        self.name = kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        """Without a user, a password or anything else of the address."""

    def _make(self) -> Any:
        return self._pool.make_connection()

    async def connect(self) -> AbstractConnection:
        made = self._make()
        connection: AbstractConnection = made
        try:
            async with asyncio.timeout(self.timeout):
                await made.connect()
        except BaseException:
            await hang_up(connection)
            raise
        return connection

    def unavailable(self, error: BaseException) -> RelayError:
        """What went wrong, in our words: what Redis says may quote what it was sent."""
        if isinstance(error, RelayError):
            return error
        if isinstance(error, (ResponseError, AuthenticationError, BusyLoadingError)):
            what = f"refused ({_first_word(error)})"
        elif isinstance(error, LATE):
            what = f"did not answer within {self.timeout:g} s"
        else:
            what = "does not answer"
        return RelayError(f"the relay at {self.name} {what}")


class Pipe:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._asked: list[tuple[tuple[Argument, ...], Answer]] = []
        self._task: asyncio.Task[None] | None = None
        self._connection: AbstractConnection | None = None
        self._closed = False

    def call(self, *command: Argument) -> Answer:
        """Ask Redis. The answer, in bytes, or `RelayError`."""
        answer: Answer = asyncio.get_running_loop().create_future()
        if self._closed:
            answer.set_exception(RelayError("the relay is closed"))
            return answer
        self._asked.append((command, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return answer

    def run(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Answer:
        return self.call("EVALSHA", script.sha, len(keys), *keys, *arguments)

    def unavailable(self, error: BaseException) -> RelayError:
        """See `Address.unavailable`."""
        return self._address.unavailable(error)

    async def aclose(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail(self._asked, RelayError("the relay is closed"))
        self._asked = []
        await self._hang_up()

    async def _run(self) -> None:
        batch: list[tuple[tuple[Argument, ...], Answer]] = []
        try:
            # What else is asked in this turn of the loop goes along.
            await asyncio.sleep(0)
            while self._asked:
                batch, self._asked = self._asked[:AT_ONCE], self._asked[AT_ONCE:]
                try:
                    async with asyncio.timeout(self._address.timeout):
                        await self._exchange(batch)
                except (RedisError, OSError, TimeoutError) as error:
                    await self._hang_up()
                    if isinstance(error, LATE):
                        # Who came after these has waited too, and would wait as long again.
                        batch, self._asked = batch + self._asked, []
                    self._fail(batch, self._address.unavailable(error))
        finally:
            self._fail(batch, RelayError("the relay's connection was given up"))
            self._task = None

    async def _exchange(self, batch: list[tuple[tuple[Argument, ...], Answer]]) -> None:
        connection = await self._connected()
        while batch:
            commands = b"".join([pack_command(command) for command, _ in batch])  # type: ignore[arg-type]  # its stub
            await connection.send_packed_command(commands, check_health=False)
            again = []
            for asked in batch:
                answer = asked[1]
                try:
                    said = await connection.read_response(disable_decoding=True)
                except NoScriptError:
                    again.append(asked)
                except ResponseError as error:
                    self._fail([asked], self._address.unavailable(error))
                else:
                    if not answer.done():
                        answer.set_result(said)
            if again:
                await self._load(connection)
            batch = again

    async def _connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is not None and await _is_stale(connection):
            await self._hang_up()
        if self._connection is None:
            self._connection = connection = await self._address.connect()
            await self._load(connection)
        return self._connection

    async def _load(self, connection: AbstractConnection) -> None:
        await connection.send_packed_command(
            connection.pack_commands([("SCRIPT", "LOAD", script.text) for script in ALL]), check_health=False
        )
        for _ in ALL:
            await connection.read_response(disable_decoding=True)

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await hang_up(connection)

    @staticmethod
    def _fail(asked: list[tuple[tuple[Argument, ...], Answer]], error: RelayError) -> None:
        for _, answer in asked:
            if not answer.done():
                answer.set_exception(error)


async def hang_up(connection: AbstractConnection) -> None:
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


async def _is_stale(connection: AbstractConnection) -> bool:
    """Whether it was closed while nothing was asked: then nothing need fail for it."""
    look: Any = getattr(connection, "can_read", None) or connection.can_read_destructive  # redis-py before 8
    try:
        return bool(await look())
    except (RedisError, OSError, TimeoutError):
        return True


def _first_word(error: BaseException) -> str:
    """`OOM`, `READONLY`, `NOAUTH` …: the name of what Redis says, without the rest."""
    word = str(error).partition(" ")[0]
    return word if word.isupper() else type(error).__name__
