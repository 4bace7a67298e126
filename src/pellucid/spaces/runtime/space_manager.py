"""The spaces of one process, by name. A space is opened on first use and closed when it is unused.

spaces = SpaceManager(store, relay)
space, participant = await spaces.admit("review", token)
session = await space.join(participant, outlet)
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
from ...storage import Append, SpaceNotFound, Store
from ...telemetry import error_location, log
from .compression import Compressor
from .ids import digest_of
from .live_state import Configuration, LiveState, load_state
from .maintenance import Intervals
from .space import Space
from .state import SpaceState
from .writer import PAGE_SIZE

MAX_OPENED_PAGES = 2
"""Number of pages of the log after the snapshot above which a space that is opened gets a new one."""


class SpaceManager:
    """All spaces of one process.

    Args:
        store: The store.
        relay: The relay between replicas.
        clock: Returns seconds since 1970.
        compressor: Summarises several thoughts in one, for spaces with that setting. None: no space does.
        intervals: Intervals of the periodic work.
    """

    def __init__(
        self,
        store: Store,
        relay: Relay,
        *,
        clock: Callable[[], float] = time.time,
        compressor: Compressor | None = None,
        intervals: Intervals | None = None,
    ) -> None:
        self._store = store
        self._relay = relay
        self._clock = clock
        self._compressor = compressor
        self._intervals = intervals or Intervals()
        self._replica_id = uuid4().hex
        self._open: dict[str, Space] = {}
        self._opening: dict[str, asyncio.Task[Space]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_closed = False

    async def start(self) -> None:
        """Start to close unused spaces, and to read what other processes write."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(work) for work in (self._sweep(), self._poll_heads())]

    async def aclose(self) -> None:
        """Announce that all participants leave, and release all spaces."""
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for opening in list(self._opening.values()):
            opening.cancel()
        if self._opening:
            await asyncio.wait(list(self._opening.values()))
        spaces, self._open = list(self._open.values()), {}
        await asyncio.gather(*(space.aclose() for space in spaces))

    # --- access

    async def space(self, name: str) -> Space:
        """Return the space of this name; open it if necessary.

        Raises:
            RequestError: If there is no such space.
            StoreError: If the store fails.
        """
        space = self._open.get(name)
        if space is None or space.is_closed:
            opening = self._opening.get(name)
            if opening is None:
                opening = self._opening[name] = asyncio.create_task(self._open_space(name))
                opening.add_done_callback(lambda _: self._opening.pop(name, None))
            space = await asyncio.shield(opening)
        space.last_used = monotonic()
        return space

    async def _open_space(self, name: str) -> Space:
        if self._is_closed:
            raise PellucidError(ErrorInfo("unavailable", "the server is stopping", code="stopping", retry_after=1.0))
        previous = self._open.pop(name, None)
        if previous is not None:
            await previous.aclose()
        spaces = self._store.spaces
        configuration = await Configuration.load(spaces, name)
        if configuration is None:
            raise SpaceNotFound(name)
        owner = configuration.owner
        snapshot = await spaces.state(owner, name)
        if snapshot is not None and snapshot[0] > configuration.head:
            snapshot = None  # the store was restored to an older state
        state = load_state(configuration.settings, snapshot)
        page_count, has_more = 0, state.head < configuration.head
        while has_more and (page := await spaces.page(owner, name, after=state.head, limit=PAGE_SIZE)):
            for one in page:
                state.replay(one)
            page_count, has_more = page_count + 1, page.has_more
        if page_count > MAX_OPENED_PAGES:
            await self._store_snapshot(configuration, state)
        space = Space(
            self._store,
            self._relay,
            LiveState(state),
            configuration,
            replica_id=self._replica_id,
            intervals=self._intervals,
            clock=self._clock,
            compressor=self._compressor,
        )
        self._open[name] = space
        try:
            # The configuration is in the log before any participant joins.
            await space.catch_up()
        except BaseException:
            self._open.pop(name, None)
            await space.aclose()
            raise
        return space

    async def _store_snapshot(self, configuration: Configuration, state: SpaceState) -> None:
        """Store the state of a log that had no snapshot, or none that this version can read."""
        append = Append(
            owner=configuration.owner,
            space=configuration.name,
            expected_head=state.head,
            version=configuration.version,
            envelopes=(),
            state=state.dump(),
        )
        with suppress(PellucidError):  # Another process has appended, or the next opening tries again.
            await self._store.spaces.append(append)

    async def admit(self, name: str | None, token: str) -> tuple[Space, str]:
        """Return the space, and the id of the participant that owns the token.

        The error for a wrong token is the same whether the space exists or not.

        Args:
            name: The name of the space. None: the one that the token opens.
            token: The token.

        Raises:
            RequestError: If no space is named, and the token opens several.
            PellucidError: `unauthorized` if the token is unknown; `forbidden` if it does not admit to this space.
            StoreError: If the store fails.
        """
        matches = await self._store.spaces.find_by_token(digest_of(token))
        if not matches:
            raise PellucidError(
                ErrorInfo("unauthorized", "this token is not known here", code="invalid_token", param="token")
            )
        if name is None:
            if len(matches) > 1:
                raise RequestError(
                    "space: this token opens several spaces: name one, such as ?space=review",
                    code="missing",
                    param="space",
                )
            name = matches[0][0].name
        participant = next((one.id for space, one in matches if space.name == name), None)
        if participant is None:
            raise RequestError(
                "this token admits to no space of this name", kind="forbidden", code="wrong_space", param="space"
            )
        space = await self.space(name)
        if not space.is_member(participant):
            await space.catch_up()
        if not space.is_member(participant):
            raise RequestError(f"{participant!r} is not in this space any more", kind="forbidden", code="not_a_member")
        return space, participant

    async def erase(self, name: str, seqs: Sequence[int]) -> int:
        """Erase the contents of envelopes, in the store and in memory.

        Other replicas drop them at their next read of the store.

        Returns:
            How many of the envelopes had contents.

        Raises:
            PellucidError: If the space does not exist or the store fails.
        """
        space = await self.space(name)
        erased_count = await self._store.spaces.erase(space.owner, name, seqs, at_ms=space.now_ms())
        space.forget()
        return erased_count

    async def _poll_heads(self) -> None:
        """Read the heads of all open spaces at intervals, in one query, and make those read that have another one."""
        while True:
            await asyncio.sleep(self._intervals.poll_seconds)
            spaces = [space for space in self._open.values() if not space.is_closed]
            if not spaces:
                continue
            try:
                heads = await self._store.spaces.heads([space.name for space in spaces])
            except PellucidError:
                continue  # Each space reads its own head when it is written to.
            except Exception as error:
                log.error("the heads of spaces could not be read: %s", error_location(error))
                continue
            for space in spaces:
                space.check_head(heads.get((space.owner, space.name)))

    # --- closing

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._intervals.unused_seconds / 4)
            for name, space in list(self._open.items()):
                is_unused = monotonic() - space.last_used > self._intervals.unused_seconds
                if space.is_closed or (is_unused and space.is_idle):
                    self._open.pop(name, None)
                    try:
                        with suppress(PellucidError):
                            await space.aclose()
                    except Exception as error:
                        log.error("a space could not be closed: %s", error_location(error))
