"""A connection to Redis that pipelines the commands of all callers.

* Commands that are queued while replies are awaited are sent together in the next write. Under load, many callers share
  one round trip, and no caller waits for a free connection.
* A caller that stops waiting (its client has disconnected) does not disturb the others. Its reply is read and dropped.
* If Redis does not reply, every waiting caller gets `RelayError` at once, and the next call reconnects. A command is
  sent again only if it was certainly not executed.
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

Reply: TypeAlias = "asyncio.Future[Any]"
Argument: TypeAlias = str | bytes | int | float

TIMEOUT_ERRORS = (TimeoutError, Late)

MAX_COMMANDS_PER_WRITE = 256
"""Limit for the number of commands in one write."""


class RedisAddress:
    """The address of a Redis server, and the settings to connect to it.

    Args:
        url: A URL in the form of redis-py.
        timeout_seconds: Time limit for connecting, and for each call.

    Raises:
        ValueError: Redis-py cannot read the URL.
    """

    def __init__(self, url: str, timeout_seconds: float) -> None:
        self.timeout_seconds = timeout_seconds
        self._pool: Any = ConnectionPool.from_url(
            url,
            protocol=2,
            socket_timeout=None,
            socket_connect_timeout=timeout_seconds,
            retry=Retry(NoBackoff(), 0),
            health_check_interval=0,
        )
        self._make_connection()  # raises if the URL has options that redis-py does not support
        kwargs = self._pool.connection_kwargs
        self.name = kwargs.get("path") or f"{kwargs.get('host', 'localhost')}:{kwargs.get('port', 6379)}"
        """Host and port, or the path of the socket, for messages to the operator. It contains no credentials."""

    def _make_connection(self) -> Any:
        return self._pool.make_connection()

    async def connect(self) -> AbstractConnection:
        """Open a connection. Raises `RedisError`, `OSError` or `TimeoutError`."""
        connectable = self._make_connection()
        connection: AbstractConnection = connectable
        try:
            async with asyncio.timeout(self.timeout_seconds):
                await connectable.connect()
        except BaseException:
            await disconnect(connection)
            raise
        return connection

    def to_relay_error(self, error: BaseException) -> RelayError:
        """Convert an exception to a `RelayError`. Clients may see its message, so it does not contain the address.

        Redis's own message is left out, too, because it may quote the command.
        """
        if isinstance(error, RelayError):
            return error
        if isinstance(error, (ResponseError, AuthenticationError, BusyLoadingError)):
            problem = f"refused ({_first_word(error)})"
        elif isinstance(error, TIMEOUT_ERRORS):
            problem = f"did not answer within {self.timeout_seconds:g} s"
        else:
            problem = "does not answer"
        return RelayError(f"the relay {problem}")


class PipelinedConnection:
    """A connection to Redis that many callers share. It connects when it is first used."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._queue: list[tuple[tuple[Argument, ...], Reply]] = []
        self._task: asyncio.Task[None] | None = None
        self._connection: AbstractConnection | None = None
        self._is_closed = False

    def call(self, *command: Argument) -> Reply:
        """Send a command. The future gets the reply as bytes, or `RelayError`."""
        reply: Reply = asyncio.get_running_loop().create_future()
        if self._is_closed:
            reply.set_exception(RelayError("the relay is closed"))
            return reply
        self._queue.append((command, reply))
        if self._task is None:
            self._task = asyncio.create_task(self._send_queued())
        return reply

    def run_script(self, script: Script, keys: Sequence[str], *arguments: Argument) -> Reply:
        """Run a Lua script. Scripts that Redis does not know are loaded first."""
        return self.call("EVALSHA", script.sha, len(keys), *keys, *arguments)

    async def aclose(self) -> None:
        """Close the connection. Calls that wait for a reply get `RelayError`."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail(self._queue, RelayError("the relay is closed"))
        self._queue = []
        await self._disconnect()

    async def _send_queued(self) -> None:
        batch: list[tuple[tuple[Argument, ...], Reply]] = []
        try:
            # Commands of the same iteration of the event loop are sent together.
            await asyncio.sleep(0)
            while self._queue:
                batch, self._queue = self._queue[:MAX_COMMANDS_PER_WRITE], self._queue[MAX_COMMANDS_PER_WRITE:]
                try:
                    async with asyncio.timeout(self._address.timeout_seconds):
                        await self._exchange(batch)
                except (RedisError, OSError, TimeoutError) as error:
                    await self._disconnect()
                    if isinstance(error, TIMEOUT_ERRORS):
                        # Later callers have waited, too, and would wait for the same time again.
                        batch, self._queue = batch + self._queue, []
                    self._fail(batch, self._address.to_relay_error(error))
        finally:
            self._fail(batch, RelayError("the relay's connection was closed"))
            self._task = None

    async def _exchange(self, batch: list[tuple[tuple[Argument, ...], Reply]]) -> None:
        connection = await self._ensure_connected()
        while batch:
            commands = b"".join([pack_command(command) for command, _ in batch])  # type: ignore[arg-type]  # its stub
            await connection.send_packed_command(commands, check_health=False)
            unknown_scripts = []
            for request in batch:
                future = request[1]
                try:
                    value = await connection.read_response(disable_decoding=True)
                except NoScriptError:
                    unknown_scripts.append(request)
                except ResponseError as error:
                    self._fail([request], self._address.to_relay_error(error))
                else:
                    if not future.done():
                        future.set_result(value)
            if unknown_scripts:
                await self._load_scripts(connection)
            batch = unknown_scripts

    async def _ensure_connected(self) -> AbstractConnection:
        connection = self._connection
        if connection is not None and await _is_stale(connection):
            await self._disconnect()
        if self._connection is None:
            self._connection = connection = await self._address.connect()
            await self._load_scripts(connection)
        return self._connection

    async def _load_scripts(self, connection: AbstractConnection) -> None:
        await connection.send_packed_command(
            connection.pack_commands([("SCRIPT", "LOAD", script.text) for script in ALL]), check_health=False
        )
        for _ in ALL:
            await connection.read_response(disable_decoding=True)

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await disconnect(connection)

    @staticmethod
    def _fail(requests: list[tuple[tuple[Argument, ...], Reply]], error: RelayError) -> None:
        for _, reply in requests:
            if not reply.done():
                reply.set_exception(error)


async def disconnect(connection: AbstractConnection) -> None:
    """Close a connection, and ignore errors."""
    with suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


async def _is_stale(connection: AbstractConnection) -> bool:
    """Return whether the server has closed the connection while it was idle. Then no call needs to fail for it."""
    can_read: Any = getattr(connection, "can_read", None) or connection.can_read_destructive  # redis-py before 8
    try:
        return bool(await can_read())
    except (RedisError, OSError, TimeoutError):
        return True


def _first_word(error: BaseException) -> str:
    """Return the error code of a Redis error (`OOM`, `READONLY`, `NOAUTH` …), without the rest of its message."""
    word = str(error).partition(" ")[0]
    return word if word.isupper() else type(error).__name__
