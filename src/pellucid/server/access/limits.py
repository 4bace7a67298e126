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
import itertools
import math
import secrets
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Literal, TypeVar

from ...background_tasks import start_task
from ...parts import Usage
from ...relay import LimitResult, Relay
from ...telemetry import error_location, log
from .errors import AccessError, BackendUnavailable, HTTPHeader, call_backend, unavailable
from .policy import COUNTERS, Policy, Principal

WINDOW_SECONDS = 60.0

SLOT_RETRY_SECONDS = 1.0
"""`Retry-After` of a request over the limit of streams. When one of them will end is not known."""

MAX_ATTEMPTS_PER_MINUTE = 20
"""Attempts to sign in. All people behind one address (of a proxy, for example) count as one."""
_SIGN_IN_LIMITS = {"attempts": float(MAX_ATTEMPTS_PER_MINUTE)}

T = TypeVar("T")


class StreamSlot:
    """One of a principal's concurrent streams. As a context manager, it is held for the time of the block."""

    def __init__(self, limiter: RateLimiter, principal: Principal) -> None:
        self._limiter = limiter
        self._principal = principal
        self._limit = principal.policy.streams
        """None: streams are not limited, and there is nothing to hold."""
        self._bucket = f"streams:{principal.bucket}"
        self._holder: str | None = None

    async def acquire(self) -> None:
        """Acquire the slot.

        Raises:
            AccessError: too_many_requests; or unavailable when the relay does not answer.
        """
        if self._limit is None:
            return
        self._holder = self._limiter.new_holder()
        try:
            await self._limiter.acquire_slot(self._bucket, self._limit, self._holder)
        except BaseException:
            await self.release()
            raise

    async def release(self) -> None:
        """Release the slot, if it is held. Never raises."""
        holder, self._holder = self._holder, None
        if holder is not None:
            await self._limiter.release_slot(self._bucket, holder)

    def settle(self, usage: Usage | None) -> None:
        """Charge the tokens, if any, and release the slot, without a wait."""
        self._limiter.run(self._settle(usage))

    async def _settle(self, usage: Usage | None) -> None:
        try:
            if usage is not None:
                await self._limiter.charge(self._principal, usage)
        finally:
            await self.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        await self.release()


class RateLimiter:
    """Applies the limits of policies. `aclose` it with the server."""

    def __init__(self, relay: Relay, when_down: Literal["refuse", "allow"], lease_seconds: float = 60.0) -> None:
        """Create a limiter.

        Args:
            relay: Counts for all replicas; or for this process, until `share`.
            when_down: What happens to requests with limits while the relay does not answer.
            lease_seconds: How long a slot stays taken after its replica died.
        """
        self._relay = relay
        self._when_down = when_down
        self._lease_seconds = lease_seconds
        self._replica = secrets.token_hex(8)
        self._slot_numbers = itertools.count(1)
        self._slots: dict[str, tuple[str, int]] = {}
        self._renewal_task: asyncio.Task[None] | None = None

    def share(self, relay: Relay) -> None:
        """Count for all replicas from now on."""
        self._relay = relay

    async def spend(self, principal: Principal, requests: int = 1) -> LimitResult | None:
        """Count requests.

        Returns:
            The levels of the counters, for `rate_limit_headers`; None if nothing was counted.

        Raises:
            AccessError: `too_many_requests`; or unavailable when the relay does not answer.
        """
        limits = principal.policy.rate_limits
        if not limits:
            return None
        try:
            result = await self._call(
                self._relay.spend(principal.bucket, {"requests": requests}, limits, WINDOW_SECONDS)
            )
        except BackendUnavailable as error:
            self._handle_unavailable(error)
            return None
        if result.allowed:
            return result
        counter = result.limiting_counter or "requests"
        label = counter.replace("_", " ")
        wait_seconds = result.retry_after if math.isfinite(result.retry_after) else None
        advice = (
            "this request alone exceeds the limit"
            if wait_seconds is None
            else f"try again in {math.ceil(wait_seconds)} s"
        )
        message = f"more than {limits[counter]:g} {label} a minute; {advice}"
        raise _too_many(message, "rate_limit_exceeded", wait_seconds, rate_limit_headers(principal.policy, result))

    async def charge(self, principal: Principal, usage: Usage) -> None:
        """Count tokens that were used. Never raises: the run is over."""
        limits = principal.policy.token_limits
        if not limits:
            return
        amounts = {
            "tokens": float((usage.input_tokens or 0) + (usage.output_tokens or 0)),
            "reasoning_tokens": float(usage.output_reasoning_tokens or 0),
        }
        limits = {name: limit for name, limit in limits.items() if amounts[name]}
        if limits:
            try:
                await self._call(self._relay.charge(principal.bucket, amounts, limits, WINDOW_SECONDS))
            except BackendUnavailable:
                log.warning("the tokens of a run were not counted, as the relay does not answer")

    def stream_slot(self, principal: Principal) -> StreamSlot:
        """Return one of the principal's concurrent streams, which is not yet acquired."""
        return StreamSlot(self, principal)

    def run(self, settlement: Coroutine[Any, Any, None]) -> None:
        """Run calls to the relay without a wait for their end: at once, or in a task if they may wait."""
        if self._relay.is_remote:
            start_task(settlement, "the tokens of a run could not be counted")
            return
        try:  # noqa: SIM105 (it is called for each request)
            settlement.send(None)
        except StopIteration:
            pass

    async def aclose(self) -> None:
        if self._renewal_task is not None:
            self._renewal_task.cancel()
            await asyncio.gather(self._renewal_task, return_exceptions=True)
            self._renewal_task = None

    def _call(self, request: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Return a call to the relay, with a time limit if it may wait."""
        return call_backend(request) if self._relay.is_remote else request

    # --- for slots ----------------------------------------------------------------------------------------------

    def new_holder(self) -> str:
        """Return an id for the holder of a slot."""
        return f"{self._replica}:{next(self._slot_numbers)}"

    async def acquire_slot(self, bucket: str, limit: int, holder: str) -> None:
        """Acquire a slot, and renew it until it is released. Raises `AccessError`."""
        # Recorded before the request: a slot that was taken although this task was cancelled, or although the relay's
        # answer was lost, is released like any other.
        self._slots[holder] = (bucket, limit)
        try:
            acquired = await self._call(self._relay.acquire_slot(bucket, limit, holder, self._lease_seconds))
        except BackendUnavailable as error:
            self._handle_unavailable(error)
            return
        if not acquired:
            raise _too_many(
                f"more than {limit} responses at once; wait until one of them has ended",
                "too_many_streams",
                SLOT_RETRY_SECONDS,
            )
        if self._renewal_task is None:
            self._renewal_task = asyncio.create_task(self._renew_slots())

    async def release_slot(self, bucket: str, holder: str) -> None:
        """Release a slot. Never raises."""
        self._slots.pop(holder, None)
        try:
            await self._call(self._relay.release_slot(bucket, holder))
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
                    await self._call(self._relay.acquire_slot(bucket, limit, holder, self._lease_seconds))
                except BackendUnavailable:
                    break  # until the next round
                except Exception as error:
                    log.error("a fault while renewing the slot of a stream: %s", error_location(error))
                    break
                if holder not in self._slots:
                    await self.release_slot(bucket, holder)

    def _handle_unavailable(self, error: BackendUnavailable) -> None:
        if self._when_down == "refuse":
            raise AccessError(
                "requests cannot be counted now, as the relay does not answer, and this key has limits; try again in "
                "a moment",
                kind="unavailable",
                code="limits_unavailable",
                retry_after=5,
            ) from error


class PrincipalLimits:
    """The limits of one principal, such as a deployment. It is a `models.deployments.DeploymentLimits`."""

    def __init__(self, limiter: RateLimiter, principal: Principal) -> None:
        self._limiter = limiter
        self._principal = principal

    async def acquire(self) -> StreamSlot:
        """Count a request, and hold a stream. Raises `AccessError`."""
        # The slot comes first: a request that gets none is not sent, and must not be counted.
        slot = self._limiter.stream_slot(self._principal)
        try:
            await slot.acquire()
            await self._limiter.spend(self._principal)
        except BaseException as error:
            await slot.release()
            if not isinstance(error, AccessError):
                raise
            info = error.info
            message = f"a limit of the deployment {self._principal.name}: {info.message}"
            raise AccessError(message, kind=info.kind, code=info.code or "", retry_after=info.retry_after) from error
        return slot


def _too_many(
    message: str, code: str, retry_after: float | None = None, headers: list[HTTPHeader] | None = None
) -> AccessError:
    """Return a 429 error."""
    return AccessError(message, kind="too_many_requests", code=code, retry_after=retry_after, headers=headers)


def rate_limit_headers(policy: Policy, result: LimitResult) -> list[HTTPHeader]:
    """Return the headers with OpenAI's names; `reset` is the number of seconds until the counter is full again."""
    headers: list[HTTPHeader] = []
    for counter, limit in policy.rate_limits.items():
        limit_name, remaining_name, reset_name = _HEADER_NAMES[counter]
        remaining = result.levels.get(counter, limit)
        reset_seconds = max(0.0, (limit - remaining) * WINDOW_SECONDS / limit)
        headers += (
            (limit_name, b"%d" % limit),
            (remaining_name, b"%d" % max(0, math.floor(remaining))),
            (reset_name, b"%.3fs" % reset_seconds),
        )
    return headers


_HEADER_NAMES = {
    counter: tuple(
        f"x-ratelimit-{what}-{counter.replace('_', '-')}".encode() for what in ("limit", "remaining", "reset")
    )
    for counter in COUNTERS
}


class LoginThrottle:
    """Counter of attempts: `take` one before it is made, `refund` it if it succeeded."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def take(self, scope: Mapping[str, Any], purpose: str = "to sign in") -> None:
        """Count an attempt, before it is made.

        Args:
            scope: The ASGI scope of the request.
            purpose: What is attempted, for the message.

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
            raise _too_many(f"too many attempts {purpose}; try again in {wait} s", "too_many_attempts", wait)

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
