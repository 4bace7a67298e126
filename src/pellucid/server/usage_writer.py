"""Writes what runs used to the store, and knows what a key has spent.

* What is used is added up here and written together, once a second and when the server stops: no request waits for it.
  A process that is killed loses what it has not written.
* While the store does not answer, nothing is lost: it is written when the store answers again.
* What a key has totals is the sum of what the store has and what is not written yet. The store is asked at most every
  `REFRESH_SECONDS` for a key, so a replica notices within that time, and the others' second, what others have written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec

from ..background_tasks import start_task
from ..errors import PellucidError
from ..storage import CostTotals, UsageCounts, UsageKey, UsageStore
from ..telemetry import error_location, log

WRITE_SECONDS = 1.0
"""For how long sums wait to be written."""

DAY_SECONDS = 86_400

REFRESH_SECONDS = 2.0
"""How old the knowledge of what other replicas wrote may be."""

MAX_READS = 3
"""How often what a key has totals is read again because a write began meanwhile."""

MAX_KNOWN = 10_000
"""How many costs of keys and owners are remembered."""


_Payer = tuple[str, str | None]
"""An owner, and one of its keys; None: all of them."""


class _KnownCost(msgspec.Struct):
    """What a payer has spent, today and in this month."""

    day: str
    totals: CostTotals
    read_at: float


class UsageWriter:
    """Adds up what is used, and writes it. `aclose` it with the server, before the store."""

    def __init__(
        self,
        store: UsageStore,
        currency: str,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a writer.

        Args:
            store: The store's sums (`store.usage`).
            currency: The currency of costs.
            clock: Wall clock, in seconds since 1970.
            monotonic: Monotonic clock in seconds.
        """
        self.currency = currency
        self._store = store
        self._clock = clock
        self._monotonic = monotonic
        self._day_number, self._day = -1, ""
        self._unwritten: dict[UsageKey, UsageCounts] = {}
        self._costs: dict[_Payer, _KnownCost] = {}
        self._reads: dict[_Payer, asyncio.Task[_KnownCost]] = {}
        self._lock = asyncio.Lock()
        """Held during a write."""
        self._writes = 0
        """Number of writes that have begun."""
        self._task: asyncio.Task[None] | None = None
        self._is_failing = False

    @property
    def today(self) -> str:
        """The day, in UTC."""
        number = int(self._clock() // DAY_SECONDS)
        if number != self._day_number:
            self._day_number = number
            self._day = datetime.fromtimestamp(number * DAY_SECONDS, UTC).strftime("%Y-%m-%d")
        return self._day

    @property
    def unwritten_count(self) -> int:
        """The number of requests to models whose usage is not written yet."""
        return sum(counts.requests for counts in self._unwritten.values())

    def add(
        self, owner: str, key_id: str | None, model: str, deployment: str, counts: UsageCounts, *, has_prices: bool
    ) -> None:
        """Add what a turn used.

        Args:
            owner: The owner who used it.
            key_id: The key; None if there was none.
            model: The public name of the model.
            deployment: `PROVIDER/MODEL`.
            counts: Its numbers.
            has_prices: Whether the model has prices.
        """
        day = self.today
        key = UsageKey(owner, key_id or "", day, model, deployment, self.currency if has_prices else "")
        _add_to(self._unwritten, key, counts)
        for payer in ((owner, key.key_id), (owner, None)):
            known = self._costs.get(payer)
            if known is not None and known.day == day:
                known.totals = CostTotals(known.totals.day + counts.cost_nanos, known.totals.month + counts.cost_nanos)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._write_periodically())

    async def cost_totals(self, owner: str, key_id: str | None) -> CostTotals:
        """Return what a key, or an owner, has spent today and in this month.

        Args:
            owner: The owner.
            key_id: The key; empty: what the owner used without a key; None: all that it used.

        Raises:
            StoreError: The store does not answer.
        """
        totals = self.cached_cost_totals(owner, key_id)
        if totals is not None:
            return totals
        payer = (owner, key_id)
        task = self._reads.get(payer)
        if task is None:
            task = self._reads[payer] = asyncio.create_task(self._read(*payer))
            task.add_done_callback(lambda task: self._end_read(payer, task))
        return (await asyncio.shield(task)).totals  # several requests wait for it

    def cached_cost_totals(self, owner: str, key_id: str | None) -> CostTotals | None:
        """Return the same without the store; None if what is known is too old."""
        known = self._costs.get((owner, key_id))
        if known is None or known.day != self.today or self._monotonic() - known.read_at > REFRESH_SECONDS:
            return None
        return known.totals

    def _end_read(self, payer: _Payer, task: asyncio.Task[_KnownCost]) -> None:
        del self._reads[payer]
        if not task.cancelled():
            task.exception()  # the requests that waited for it may have left

    async def _read(self, owner: str, key_id: str | None) -> _KnownCost:
        for _ in range(MAX_READS):
            # What is being written must not be missed, nor counted twice. If each read meets a write, the last one
            # counts: it may miss what was used in one second.
            async with self._lock:
                writes, day, read_at = self._writes, self.today, self._monotonic()
            stored = await self._store.cost_totals(owner, key_id, self.currency, day)
            if writes == self._writes:
                break
        unwritten = [
            (key.day, counts.cost_nanos)
            for key, counts in self._unwritten.items()
            if key.owner == owner and key_id in (None, key.key_id) and key.currency == self.currency
        ]
        today = stored.day + sum(cost for other_day, cost in unwritten if other_day == day)
        month = stored.month + sum(cost for other_day, cost in unwritten if other_day[:7] == day[:7])
        if len(self._costs) >= MAX_KNOWN:
            self._costs.clear()
        known = self._costs[owner, key_id] = _KnownCost(day, CostTotals(today, month), read_at)
        return known

    async def aclose(self) -> None:
        """Write the rest."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        await self.write()
        if self._unwritten:
            log.error("what %d requests to models used was not stored", self.unwritten_count)

    async def _write_periodically(self) -> None:
        while self._unwritten:
            await asyncio.sleep(WRITE_SECONDS)
            await self.write()
        self._task = None

    async def write(self) -> None:
        """Write what was added. What cannot be written now waits for the next time.

        A caller that is cancelled does not stop the write: it may have succeeded, and would be repeated.
        """
        await asyncio.shield(start_task(self._write(), "what was used is not stored yet"))

    async def _write(self) -> None:
        async with self._lock:
            if not self._unwritten:
                return
            sums, self._unwritten = self._unwritten, {}
            self._writes += 1
            try:
                if not await self._store_sums(list(sums.items())):
                    # One of them cannot be stored at all; it must not hold back the others.
                    for one in list(sums.items()):
                        if not await self._store_sums([one]):
                            log.error("what %d requests to %s used cannot be stored", one[1].requests, one[0].model)
                        del sums[one[0]]
                sums.clear()
                self._is_failing = False
            except PellucidError as error:
                if not self._is_failing:
                    log.warning("what was used is not stored yet: %s", error.info.message)
                self._is_failing = True
            except Exception as error:
                log.error("a fault while storing what was used: %s", error_location(error))
            finally:
                for key, counts in sums.items():
                    _add_to(self._unwritten, key, counts)

    async def _store_sums(self, sums: list[tuple[UsageKey, UsageCounts]]) -> bool:
        """Add sums to the store. Returns False if the store rejects them; raises if it does not answer."""
        try:
            await self._store.add(sums)
        except PellucidError as error:
            if error.info.kind in ("unavailable", "timeout"):
                raise
            return False
        return True


def _add_to(sums: dict[UsageKey, UsageCounts], key: UsageKey, counts: UsageCounts) -> None:
    known = sums.get(key)
    if known is None:
        known = sums[key] = UsageCounts()
    known.add(counts)
