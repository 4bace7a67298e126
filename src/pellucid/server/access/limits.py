"""Rates, token budgets and concurrent streams of a policy, and attempts to sign in: counted by the relay for all
replicas together.

* Requests are counted before the work, all counters at once or none. Tokens are known only after it: they are charged
  then, also below zero, and the next request is refused until the counter is positive again.
* Tokens that a provider does not report are estimated from the text, for the counter only. A client that leaves early
  has used what was written until then, and is charged for it.
* While the relay does not answer, requests with limits are refused (`limits_when_down`): a budget limits cost, and an
  outage must not lift it. The operator can choose `allow` instead. Principals without limits do not use the relay.
* A stream's slot is a lease of some seconds that is renewed, so the slots of a replica that died become free.
* Failed attempts to sign in are limited per client address. A key cannot be guessed; the limit protects the store and
  the OpenID Connect provider from the load of many attempts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Protocol

from ...parts import Usage, estimated_tokens
from ...relay import LimitResult
from ...telemetry import error_location, log
from .errors import AccessError, BackendUnavailable, HTTPHeader, call_backend, unavailable
from .policy import Policy, Principal

WINDOW_SECONDS = 60.0
MAX_ATTEMPTS_PER_MINUTE = 20
"""Attempts to sign in. All people behind one address (of a proxy, for example) count as one."""
_SIGN_IN_LIMITS = {"attempts": float(MAX_ATTEMPTS_PER_MINUTE)}

COUNTERS = {
    "requests": "requests_per_minute",
    "tokens": "tokens_per_minute",
    "reasoning_tokens": "reasoning_tokens_per_minute",
}
"""The relay's counters, and the fields of `Policy` that limit them."""


class RateCounter(Protocol):
    """The methods of the relay (`pellucid.relay.Relay`) that limits need."""

    async def spend(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult: ...

    async def charge(
        self, bucket: str, amounts: Mapping[str, float], limits: Mapping[str, float], window_seconds: float = 60
    ) -> LimitResult: ...

    async def acquire_slot(self, bucket: str, limit: int, holder: str, seconds: float) -> bool: ...

    async def release_slot(self, bucket: str, holder: str) -> None: ...


def limits_of(policy: Policy) -> dict[str, float]:
    """Return the limits of a policy by counter."""
    values = {counter: getattr(policy, field) for counter, field in COUNTERS.items()}
    return {counter: float(value) for counter, value in values.items() if value is not None}


def has_limits(policy: Policy) -> bool:
    """Return whether a policy limits runs in any way."""
    return (
        policy.streams is not None
        or policy.requests_per_minute is not None
        or policy.tokens_per_minute is not None
        or policy.reasoning_tokens_per_minute is not None
    )


def charged_tokens(usage: Usage, characters: int = 0, reasoning_characters: int = 0) -> dict[str, float]:
    """Return the tokens that a run is charged for.

    Args:
        usage: What the provider reported.
        characters: Characters that the run wrote in all.
        reasoning_characters: How many of these were reasoning. Both replace numbers that the provider did not report.
    """
    reasoning = usage.output_reasoning_tokens
    if reasoning is None:
        reasoning = estimated_tokens(reasoning_characters)
        if usage.output_tokens is not None:
            reasoning = min(reasoning, usage.output_tokens)
    output = usage.output_tokens
    if output is None:
        output = max(estimated_tokens(characters), reasoning)
    return {"tokens": float((usage.input_tokens or 0) + output), "reasoning_tokens": float(reasoning)}


class RateLimiter:
    """Applies the limits of policies. `aclose` it with the server."""

    def __init__(self, relay: RateCounter, when_down: Literal["refuse", "allow"], lease_seconds: float = 60.0) -> None:
        """Create a limiter.

        Args:
            relay: Counts for all replicas.
            when_down: What happens to requests with limits while the relay does not answer.
            lease_seconds: How long a slot stays taken after its replica died.
        """
        self._relay = relay
        self._when_down = when_down
        self._lease_seconds = lease_seconds
        self._replica = secrets.token_hex(8)
        self._slot_count = 0
        self._slots: dict[str, tuple[str, int]] = {}
        self._renewal_task: asyncio.Task[None] | None = None

    async def spend(self, principal: Principal, requests: int = 1) -> list[HTTPHeader]:
        """Count requests.

        Returns:
            The `x-ratelimit-*` headers.

        Raises:
            AccessError: `too_many_requests`; or unavailable when the relay does not answer.
        """
        if not has_limits(principal.policy):
            return []
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
            "this request alone exceeds the limit"
            if wait_seconds is None
            else f"try again in {math.ceil(wait_seconds)} s"
        )
        message = f"more than {limits[counter]:g} {label} a minute; {advice}"
        raise _too_many(message, "rate_limit_exceeded", wait_seconds, headers)

    async def charge(self, principal: Principal, amounts: Mapping[str, float]) -> None:
        """Count the tokens of a run (`charged_tokens`). Never raises: the run is over."""
        limits = {name: limit for name, limit in limits_of(principal.policy).items() if amounts.get(name)}
        if limits:
            try:
                await call_backend(self._relay.charge(principal.bucket, amounts, limits, WINDOW_SECONDS))
            except BackendUnavailable:
                log.warning("the tokens of a run were not counted, as the relay does not answer")

    @asynccontextmanager
    async def stream_slot(self, principal: Principal) -> AsyncIterator[None]:
        """Hold one of the principal's concurrent streams for the time of the block.

        Raises:
            AccessError: On entering: too_many_requests; or unavailable when the relay does not answer.
        """
        limit = principal.policy.streams
        if limit is None:
            yield
            return
        self._slot_count += 1
        bucket, holder = f"streams:{principal.bucket}", f"{self._replica}:{self._slot_count}"
        # Recorded before the request: a slot that was taken although this task was cancelled, or although the relay's
        # answer was lost, is released like any other.
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
            raise _too_many(
                f"more than {limit} responses at once; wait until one of them has ended", "too_many_streams"
            )

    async def _release_slot(self, bucket: str, holder: str) -> None:
        try:
            await call_backend(self._relay.release_slot(bucket, holder))
        except BackendUnavailable:
            log.debug("the slot of a stream was not released; its lease will expire")

    async def _renew_slots(self) -> None:
        """Renew the leases of the slots in use. A slot that was lost meanwhile does not end its open stream."""
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            for holder, (bucket, limit) in list(self._slots.items()):
                if holder not in self._slots:
                    continue
                try:
                    await call_backend(self._relay.acquire_slot(bucket, limit, holder, self._lease_seconds))
                except BackendUnavailable:
                    break  # until the next round
                except Exception as error:
                    log.error("a fault while renewing the slot of a stream: %s", error_location(error))
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


def _too_many(
    message: str, code: str, retry_after: float | None = None, headers: list[HTTPHeader] | None = None
) -> AccessError:
    """Return a 429 error."""
    return AccessError(message, kind="too_many_requests", code=code, retry_after=retry_after, headers=headers)


def _rate_limit_headers(limits: Mapping[str, float], levels: Mapping[str, float]) -> list[HTTPHeader]:
    """Return the headers with OpenAI's names; `reset` is the number of seconds until the counter is full again."""
    headers: list[HTTPHeader] = []
    for counter, limit in limits.items():
        name, remaining = counter.replace("_", "-"), levels.get(counter, limit)
        reset_seconds = max(0.0, (limit - remaining) * WINDOW_SECONDS / limit)
        for what, value in (
            ("limit", f"{limit:.0f}"),
            ("remaining", f"{max(0, math.floor(remaining))}"),
            ("reset", f"{reset_seconds:.3f}s"),
        ):
            headers.append((f"x-ratelimit-{what}-{name}".encode(), value.encode()))
    return headers


class LoginThrottle:
    """Counter of attempts: `take` one before it is made, `refund` it if it succeeded."""

    def __init__(self, relay: RateCounter) -> None:
        self._relay = relay

    async def take(self, scope: Mapping[str, Any]) -> None:
        """Count an attempt, before it is made.

        Args:
            scope: The ASGI scope of the request.

        Raises:
            AccessError: `too_many_requests` when the limit is reached; unavailable when the relay does not answer.
        """
        try:
            verdict = await call_backend(
                self._relay.spend(_sign_in_bucket(scope), {"attempts": 1}, _SIGN_IN_LIMITS, WINDOW_SECONDS)
            )
        except BackendUnavailable as error:
            raise unavailable(
                "signing in is not possible now, as the relay does not answer; try again in a moment"
            ) from error
        if not verdict.allowed:
            wait = math.ceil(verdict.retry_after)
            raise _too_many(f"too many attempts to sign in; try again in {wait} s", "too_many_attempts", wait)

    async def refund(self, scope: Mapping[str, Any]) -> None:
        """Take back an attempt that succeeded."""
        with suppress(BackendUnavailable):  # the counter refills with time
            await call_backend(
                self._relay.charge(_sign_in_bucket(scope), {"attempts": -1}, _SIGN_IN_LIMITS, WINDOW_SECONDS)
            )


def _sign_in_bucket(scope: Mapping[str, Any]) -> str:
    """Return the name of the counter for the address of the client."""
    client = scope.get("client")
    host = client[0] if client is not None else "local"
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return f"sign-in:{host}"
    # Who has one IPv6 address usually has a whole /64 network.
    return f"sign-in:{address if address.version == 4 else ipaddress.ip_network((int(address), 64), strict=False)}"
