"""How much, how fast, how many at once: a policy's numbers, counted by the relay, so that all replicas count as one.

* Requests are taken before the work, all counters at once or none. Tokens are known after it: they are charged then,
  also below zero, and the next request waits until the counter is positive again.
* What a provider does not report is estimated from the text, for the counter alone: a client that leaves before the
  end has used what was written until then, and must not get it for nothing.
* When nobody can count, requests with limits are refused (`limits_when_down`): a budget is a promise about money, and
  an outage must not lift it. An operator to whom an answer is worth more says `allow`. Who has no limits never asks
  the relay, and does not notice.
* A place for a stream is held for some seconds at a time, so that those of a dead replica come free by themselves.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from ...parts import Usage
from ...relay import LimitResult
from ...telemetry import error_location, log
from .backend import BackendUnavailable, call_backend
from .errors import AccessError, HTTPHeader
from .policy import Policy, Principal

WINDOW_SECONDS = 60.0
CHARACTERS_PER_TOKEN = 4

COUNTERS = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "reasoning_tokens": "reasoning_tokens_per_minute",
}
"""The relay's counters, and the policy's fields that limit them."""


class RateCounter(Protocol):
    """The relay, as far as limits need it (`pellucid.relay.Relay`)."""

    async def spend(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult: ...

    async def charge(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult: ...

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool: ...

    async def release_slot(self, bucket: str, holder: str) -> None: ...


def limits_of(policy: Policy) -> dict[str, float]:
    values = {counter: getattr(policy, field) for counter, field in COUNTERS.items()}
    return {counter: float(value) for counter, value in values.items() if value is not None}


def has_limits(policy: Policy) -> bool:
    """Whether there is anything that its holder's runs could come up against."""
    return policy.streams is not None or bool(limits_of(policy))


def charged_tokens(usage: Usage, characters: int = 0, reasoning_characters: int = 0) -> dict[str, float]:
    """What a run is charged for. `characters` is how much it wrote in all, `reasoning_characters` how much of that was
    thought: they stand in for numbers that the provider did not report."""
    reasoning = usage.output_reasoning_tokens
    if reasoning is None:
        reasoning = math.ceil(reasoning_characters / CHARACTERS_PER_TOKEN)
        if usage.output_tokens is not None:
            reasoning = min(reasoning, usage.output_tokens)
    output = usage.output_tokens
    if output is None:
        output = max(math.ceil(characters / CHARACTERS_PER_TOKEN), reasoning)
    return {"tokens": float((usage.input_tokens or 0) + output), "reasoning_tokens": float(reasoning)}


class RateLimiter:
    """`aclose` when the server ends. `hold_seconds` is how long a place outlives the replica that took it."""

    def __init__(
        self, relay: RateCounter, when_down: Literal["refuse", "allow"] = "refuse", lease_seconds: float = 60.0
    ) -> None:
        self._relay = relay
        self._when_down = when_down
        self._lease_seconds = lease_seconds
        self._replica = secrets.token_hex(8)
        self._slot_count = 0
        self._slots: dict[str, tuple[str, int]] = {}
        self._renewal_task: asyncio.Task[None] | None = None

    async def spend(self, principal: Principal, requests: int = 1) -> list[HTTPHeader]:
        """Take what a request costs; gives the headers that tell what is left. Raises `AccessError`."""
        limits = limits_of(principal.policy)
        if not limits:
            return []
        try:
            verdict = await call_backend(
                self._relay.spend(principal.bucket, {"requests": requests}, limits, WINDOW_SECONDS)
            )
        except BackendUnavailable as error:
            self._handle_unavailable(error)
            return []
        headers = _rate_limit_headers(limits, verdict.levels)
        if verdict.allowed:
            return headers
        counter = verdict.limiting_counter or "requests"
        label = counter.replace("_", " ")
        wait_seconds = verdict.retry_after if math.isfinite(verdict.retry_after) else None
        advice = (
            "they are more than that at once" if wait_seconds is None else f"try again in {math.ceil(wait_seconds)} s"
        )
        raise AccessError(
            f"more than {limits[counter]:g} {label} a minute; {advice}",
            kind="too_many_requests",
            code="rate_limit_exceeded",
            retry_after=wait_seconds,
            headers=headers,
        )

    async def charge(self, principal: Principal, amounts: Mapping[str, float]) -> None:
        """Take what a run has used (`charged_tokens`). Never fails: it is too late to refuse."""
        limits = {name: limit for name, limit in limits_of(principal.policy).items() if amounts.get(name)}
        if limits:
            try:
                await call_backend(self._relay.charge(principal.bucket, amounts, limits, WINDOW_SECONDS))
            except BackendUnavailable:
                log.warning("the tokens of a run were not counted, as the relay does not answer")

    @asynccontextmanager
    async def stream_slot(self, principal: Principal) -> AsyncIterator[None]:
        """A place among the streams that may be open at once, for as long as the block takes. Raises `AccessError`."""
        limit = principal.policy.streams
        if limit is None:
            yield
            return
        self._slot_count += 1
        bucket, holder = f"streams:{principal.bucket}", f"{self._replica}:{self._slot_count}"
        # Kept before it is asked for: a place that was taken while we left, or while nobody heard the answer, is
        # given back like any other.
        self._slots[holder] = (bucket, limit)
        try:
            await self._acquire_slot(bucket, limit, holder)
            if self._renewal_task is None:
                self._renewal_task = asyncio.create_task(self._renew_slots())
            yield
        finally:
            del self._slots[holder]
            await self._release_slot(bucket, holder)

    async def aclose(self) -> None:
        if self._renewal_task is not None:
            self._renewal_task.cancel()
            await asyncio.gather(self._renewal_task, return_exceptions=True)
            self._renewal_task = None

    async def _acquire_slot(self, bucket: str, limit: int, holder: str) -> None:
        try:
            acquired = await call_backend(self._relay.acquire_slot(bucket, limit, holder, self._lease_seconds))
        except BackendUnavailable as error:
            self._handle_unavailable(error)
            return
        if not acquired:
            raise AccessError(
                f"more than {limit} responses at once; wait until one of them has ended",
                kind="too_many_requests",
                code="too_many_streams",
            )

    async def _release_slot(self, bucket: str, holder: str) -> None:
        try:
            await call_backend(self._relay.release_slot(bucket, holder))
        except BackendUnavailable:
            log.debug("a stream's place was not given back; it comes free by itself")

    async def _renew_slots(self) -> None:
        """Hold on to what is held. A place that was lost meanwhile is no reason to cut a stream that is open."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            for holder, (bucket, limit) in list(self._slots.items()):
                if holder not in self._slots:
                    continue
                try:
                    await call_backend(self._relay.acquire_slot(bucket, limit, holder, self._lease_seconds))
                except BackendUnavailable:
                    break  # for the next time
                except Exception as error:
                    log.error("a fault while keeping a stream's place: %s", error_location(error))
                    break
                if holder not in self._slots:
                    await self._release_slot(bucket, holder)

    def _handle_unavailable(self, error: BackendUnavailable) -> None:
        if self._when_down == "refuse":
            raise AccessError(
                "requests cannot be counted now, as the relay does not answer, and this key has limits; try again in "
                "a moment",
                kind="unavailable",
                code="limits_unavailable",
                retry_after=5,
            ) from error


def _rate_limit_headers(limits: Mapping[str, float], left: Mapping[str, float]) -> list[HTTPHeader]:
    """OpenAI's names; `reset` is when the counter is full again, in seconds."""
    headers: list[HTTPHeader] = []
    for counter, limit in limits.items():
        name, remaining = counter.replace("_", "-"), left.get(counter, limit)
        reset_seconds = max(0.0, (limit - remaining) * WINDOW_SECONDS / limit)
        for what, value in (
            ("limit", f"{limit:.0f}"),
            ("remaining", f"{max(0, math.floor(remaining))}"),
            ("reset", f"{reset_seconds:.3f}s"),
        ):
            headers.append((f"x-ratelimit-{what}-{name}".encode(), value.encode()))
    return headers
