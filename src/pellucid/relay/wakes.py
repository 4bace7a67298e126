"""One connection on which Redis says which streams have something new, for the whole process.

It says only how far a stream has come; the entries are read from the stream itself. So a message that is lost costs
time and never an entry, and entries that came while one read was under way come with the next. (One XREAD over all
streams would have to be interrupted for each new follower, and sent anew with every name at each entry; one for each
follower would be a connection for each.)

When the connection breaks, `broke` is called, and it is made anew; then `ready` is called for every channel again. When
that fails for longer than `patience`, `gone` is called, each time.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Protocol

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import RedisError

from .pipe import Address, hang_up
from .relay import RelayError

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
