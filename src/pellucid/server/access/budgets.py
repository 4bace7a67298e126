"""Budgets: what a key may spend in a day and in a month.

* A request is refused once the budget is used. What it will cost is known only when it is over, so a budget is exceeded
  by the requests that are in progress when it is reached, and by what other replicas used in the last seconds
  (`usage_writer`).
* While the store does not answer, requests with budgets are refused, or allowed (`limits_when_down`), as those with
  limits are while the relay does not answer.
* The budget of a policy is that of the key; without a key, of what the owner used without one. An owner can have a
  budget for all its keys together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from ...errors import BUDGET_EXCEEDED
from ...storage import CostTotals
from ..spend import format_amount, nanos_of
from ..usage_writer import UsageWriter
from .errors import AccessError, BackendUnavailable, call_backend
from .policy import Amount, Principal


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[spend.owners.NAME]`: what an owner may spend with all its keys, in the currency."""

    cost_per_day: Amount | None = None
    """A day is one of UTC. None: no limit."""
    cost_per_month: Amount | None = None
    """The same for a month."""


class Budgets:
    """Applies the budgets of policies."""

    def __init__(
        self,
        source: UsageWriter,
        when_down: Literal["refuse", "allow"],
        owners: Mapping[str, Budget] = {},
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the budgets.

        Args:
            source: Knows what a key has spent.
            owners: The budgets of owners.
            when_down: What happens to requests with budgets while the store does not answer.
            clock: Wall clock, in seconds since 1970.
        """
        self._source = source
        self._owners = owners
        self._when_down = when_down
        self._clock = clock

    async def check(self, principal: Principal) -> None:
        """Check that the principal has not spent its budgets.

        Raises:
            AccessError: `too_many_requests`; or unavailable when the store does not answer.
        """
        policy = principal.policy
        if policy.has_budget:
            whose = "this key" if principal.key_id is not None else "requests without a key"
            totals = await self._cost_totals(principal.owner, principal.key_id or "", whose)
            self._check(policy.cost_per_day, policy.cost_per_month, totals, whose, shows_amount=policy.counts)
        owner_budget = self._owners.get(principal.owner)
        if owner_budget is not None:
            # What others have used is not for the holder of one key.
            whose = f"{principal.owner!r} for all keys together"
            totals = await self._cost_totals(principal.owner, None, whose)
            self._check(owner_budget.cost_per_day, owner_budget.cost_per_month, totals, whose, shows_amount=False)

    async def _cost_totals(self, owner: str, key_id: str | None, whose: str) -> CostTotals | None:
        """Return what was spent; None if that is not known, and requests are allowed then."""
        totals = self._source.cached_cost_totals(owner, key_id)
        if totals is not None:
            return totals
        try:
            return await call_backend(self._source.cost_totals(owner, key_id))
        except BackendUnavailable as error:
            if self._when_down == "allow":
                return None
            raise AccessError(
                f"the budget of {whose} cannot be checked now, as the store does not answer; try again in a moment",
                kind="unavailable",
                code="limits_unavailable",
                retry_after=5,
            ) from error

    def _check(
        self,
        per_day: float | None,
        per_month: float | None,
        totals: CostTotals | None,
        whose: str,
        *,
        shows_amount: bool,
    ) -> None:
        if totals is None:
            return
        # If both are used, the month is what the client waits for.
        for period, budget, used in (("month", per_month, totals.month), ("day", per_day, totals.day)):
            if budget is not None and used >= nanos_of(budget):
                raise self._exceeded(period, nanos_of(budget), whose, used if shows_amount else None)

    def _exceeded(self, period: str, budget: int, whose: str, used: int | None) -> AccessError:
        now = datetime.fromtimestamp(self._clock(), UTC)
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        days = 1 if period == "day" else 32 - now.day
        renewal = midnight + timedelta(days=days)
        if period == "month":
            renewal = renewal.replace(day=1)
        currency = self._source.currency
        amount = f"; {format_amount(used)} {currency} are used" if used is not None else ""
        return AccessError(
            f"the budget of {whose}, {format_amount(budget)} {currency} a {period}, is used up{amount}; it renews at "
            f"{renewal:%Y-%m-%dT%H:%M:%SZ}",
            kind="too_many_requests",
            code=BUDGET_EXCEEDED,
            retry_after=(renewal - now).total_seconds(),
        )
