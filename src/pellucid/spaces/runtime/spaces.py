"""The spaces of one process, by name: opened when somebody comes, closed when nobody is there.

spaces = Spaces(store, relay)
space, participant = await spaces.admit("review", token)
seat = await space.sit(participant, outlet)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from uuid import uuid4

from ...errors import ErrorInfo, PellucidError, RequestError
from ...relay import Relay
from ...storage import SpaceGone, Store
from ...telemetry import log, place_of
from .compression import Compressing, Compressor
from .ids import digest_of
from .keeper import Pace
from .living import Configuration, Living, load
from .space import Space
from .writer import PAGE


class Spaces:
    """`clock` gives seconds since 1970; `compressor` says several thoughts in one, for spaces that want it."""

    def __init__(
        self,
        store: Store,
        relay: Relay,
        *,
        clock: Callable[[], float] = time.time,
        compressor: Compressor | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._store = store
        self._relay = relay
        self._clock = clock
        self._compressor = compressor
        self._pace = pace or Pace()
        self._me = uuid4().hex
        self._open: dict[str, Space] = {}
        self._opening: dict[str, asyncio.Task[Space]] = {}
        self._sweeping: asyncio.Task[None] | None = None
        self._closed = False

    async def start(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.create_task(self._sweep())

    async def aclose(self) -> None:
        """Say who leaves, and let go of all of them."""
        self._closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        for opening in list(self._opening.values()):
            opening.cancel()
        if self._opening:
            await asyncio.wait(list(self._opening.values()))
        spaces, self._open = list(self._open.values()), {}
        await asyncio.gather(*(space.aclose() for space in spaces))

    # --- finding

    async def space(self, name: str) -> Space:
        """Raises `RequestError` if there is none, `StoreError`."""
        space = self._open.get(name)
        if space is None or space.closed:
            opening = self._opening.get(name)
            if opening is None:
                opening = self._opening[name] = asyncio.create_task(self._opened(name))
                opening.add_done_callback(lambda _: self._opening.pop(name, None))
            space = await asyncio.shield(opening)
        space.used = monotonic()
        return space

    async def _opened(self, name: str) -> Space:
        if self._closed:
            raise PellucidError(ErrorInfo("unavailable", "the server is stopping", code="stopping", retry_after=1.0))
        before = self._open.pop(name, None)
        if before is not None:
            await before.aclose()
        spaces = self._store.spaces
        configuration = await Configuration.of(spaces, name)
        if configuration is None:
            raise SpaceGone(name)
        owner = configuration.owner
        kept = await spaces.state(owner, name)
        if kept is not None and kept[0] > configuration.head:
            kept = None  # the store was put back to an older state
        state = load(configuration.settings, kept)
        while told := await spaces.page(owner, name, after=state.head, limit=PAGE):
            for one in told:
                state.replay(one)
        space = Space(
            self._store,
            self._relay,
            Living(state),
            configuration,
            me=self._me,
            pace=self._pace,
            clock=self._clock,
        )
        if self._compressor is not None:
            space.compressing = Compressing(space, self._store.spaces, self._compressor)
        self._open[name] = space
        try:
            # What the configuration says is in the log before anybody is asked in.
            await space.look()
        except BaseException:
            self._open.pop(name, None)
            await space.aclose()
            raise
        return space

    async def admit(self, name: str, token: str) -> tuple[Space, str]:
        """The space, and whose token it is. Raises `PellucidError` (`unauthorized`, `forbidden`), `StoreError`.

        What is wrong with a token is told the same whether there is such a space or not."""
        of = await self._store.spaces.of_token(digest_of(token))
        if not of:
            raise PellucidError(
                ErrorInfo("unauthorized", "nobody here has this token", code="invalid_token", param="token")
            )
        found = next((one.id for space, one in of if space.name == name), None)
        if found is None:
            raise RequestError(
                "this token opens no space of this name", kind="forbidden", code="wrong_space", param="space"
            )
        space = await self.space(name)
        if not space.is_member(found):
            await space.look()
        if not space.is_member(found):
            raise RequestError(f"{found!r} is not in this space any more", kind="forbidden", code="not_a_member")
        return space, found

    async def erase(self, name: str, seqs: Sequence[int]) -> int:
        """Take away what these envelopes say, from the store and from memory; how many said something. Other replicas
        forget it when they next look. Raises `PellucidError`."""
        space = await self.space(name)
        gone = await self._store.spaces.erase(space.owner, name, seqs, at=space.now_ms())
        space.forget()
        return gone

    # --- closing

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._pace.unused / 4)
            for name, space in list(self._open.items()):
                unused = monotonic() - space.used > self._pace.unused
                if space.closed or (unused and space.is_idle):
                    self._open.pop(name, None)
                    try:
                        with suppress(PellucidError):
                            await space.aclose()
                    except Exception as error:
                        log.error("a space could not be closed: %s", place_of(error))
