"""Deployments: a public model name behind which there are several models of providers.

* A call goes to a deployment of the lowest `order` that is available, by weight. A conversation stays with the
  deployment that made its last answer, because only that one can read what it signed or encrypted.
* A deployment that fails is not called for a while (its cooldown, which all replicas share), and the call goes to the
  next one at once. Only when all have failed is there a wait, with jitter, and at least as long as `Retry-After` says.
* If no deployment can answer, the call goes to other models, which the operator names by the cause.
* All of this happens before the first event that a client sees. With `retry_thoughts` it also happens if a model has
  only thought so far: the thought stays, as incomplete, and the next deployment starts again without it. A turn with
  text or calls is never repeated.
* What the next deployment may not see of the history (signatures, encrypted reasoning) is left out by its wire.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from hashlib import blake2b
from typing import Literal, NamedTuple

from msgspec.structs import replace

from ..errors import ErrorInfo, PellucidError, RequestError
from ..events import ErrorEvent, ModelEvent, PartStartEvent, ResponseEndEvent
from ..models import ChatModel, ModelEventReceiver, ModelRead, ModelStream, TextReceiver
from ..models.retrying import RetryingStream
from ..parts import ModelMessage, ModelResponse, ThinkingPart
from ..providers.errors import CONTEXT_LENGTH_EXCEEDED
from ..relay import Relay, RelayError
from ..runs.task_group import start_task
from ..settings import ModelCall
from ..telemetry import log
from ..upstream.client import backoff_seconds
from .access.limits import RateLimiter, charged_tokens, has_limits
from .access.policy import Policy, Principal

Cause = Literal["rate_limit", "down", "context_length", "refused"]
"""Why a deployment does not answer."""

_REFUSAL_CODES = frozenset(
    {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation", "data_inspection_failed"}
)
"""Codes of providers that refuse the content of a request. There is no status for it."""

_DOWN_KINDS = frozenset({"unavailable", "timeout", "model_error", "not_found", "unauthorized"})
"""The kinds of errors of a deployment that cannot answer now, or is not configured correctly."""

COOLDOWN_SECONDS, MAX_COOLDOWN_SECONDS = 5.0, 120.0
"""The first cooldown. It doubles with each failure in succession, up to a maximum."""

SHARED_SECONDS = 1.0
"""How old the knowledge about the cooldowns of other replicas may be."""

_COOLDOWN_GROUP = "deployments:cooldown"


def cause_of(error: ErrorInfo) -> Cause | None:
    """Return the cause of an error for which another deployment may help; None if the request itself is wrong."""
    if error.code == CONTEXT_LENGTH_EXCEEDED:
        return "context_length"
    if error.code in _REFUSAL_CODES:
        return "refused"
    if error.kind == "too_many_requests":
        return "rate_limit"
    return "down" if error.kind in _DOWN_KINDS else None


class Deployment(NamedTuple):
    """One deployment of a model."""

    name: str
    """`PROVIDER/MODEL`, for logs, metrics and responses."""
    model: ChatModel
    order: int = 1
    weight: float = 1.0
    limits: Policy = Policy()
    """Its requests and tokens per minute, and its concurrent streams."""

    @property
    def principal(self) -> Principal:
        """The principal whose limits are those of the deployment."""
        return Principal("", f"deployment:{self.name}", policy=self.limits)


class Cooldowns:
    """The deployments that are not called for a while. With a relay, all replicas know of them."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """The ends of cooldowns, in monotonic time."""
        self._failures: dict[str, int] = {}
        """The number of failures in succession."""
        self._relay: Relay | None = None
        self._shared: frozenset[str] = frozenset()
        """What other replicas reported."""
        self._shared_at = -math.inf

    def share(self, relay: Relay) -> None:
        """Share the cooldowns from now on."""
        self._relay = relay

    def begin(self, deployment: str, retry_after: float | None) -> float:
        """Begin the cooldown of a deployment that failed.

        Args:
            deployment: The deployment.
            retry_after: The seconds that its provider named.

        Returns:
            Its seconds.
        """
        failures = self._failures.get(deployment, 0)
        self._failures[deployment] = failures + 1
        seconds = min(max(COOLDOWN_SECONDS * 2.0**failures, retry_after or 0.0), MAX_COOLDOWN_SECONDS)
        self._until[deployment] = time.monotonic() + seconds
        if self._relay is not None:
            start_task(self._relay.set_presence(_COOLDOWN_GROUP, deployment, seconds), "a cooldown was not shared")
        return seconds

    def on_success(self, deployment: str) -> None:
        """Note that a deployment answers."""
        if self._failures:
            self._failures.pop(deployment, None)

    def active(self) -> frozenset[str]:
        """Return the deployments that are in cooldown."""
        if not self._until and self._relay is None:
            return frozenset()
        now = time.monotonic()
        self._until = {name: until for name, until in self._until.items() if until > now}
        if self._relay is not None and now - self._shared_at > SHARED_SECONDS:
            self._shared_at = now
            start_task(self._load(self._relay), "the cooldowns of other replicas are not known")
        return self._shared.union(self._until)

    async def _load(self, relay: Relay) -> None:
        try:
            self._shared = frozenset(await relay.list_present(_COOLDOWN_GROUP))
        except RelayError:
            self._shared = frozenset()


FailureObserver = Callable[[str, str, Cause], None]
"""Is called with the public name, the deployment, and the cause of its failure."""


class DeployedModel:
    """A public model name with several deployments. A `ChatModel`."""

    def __init__(
        self,
        name: str,
        deployments: Sequence[Deployment],
        cooldowns: Cooldowns,
        *,
        retries: int = 2,
        retry_wait: float = 10.0,
        retry_thoughts: bool = False,
        fallbacks: Mapping[Cause, Sequence[str]] = {},
        find: Callable[[str], ChatModel] | None = None,
    ) -> None:
        """Create a model.

        Args:
            name: The public name.
            deployments: Its deployments, at least one.
            cooldowns: Those of all deployments of the gateway.
            retries: How often all deployments are tried again.
            retry_wait: The longest wait before that, in seconds.
            retry_thoughts: Whether another deployment is called if one fails after thoughts alone.
            fallbacks: The public names of the models that answer instead, by the cause.
            find: Finds the model with a public name.
        """
        self.name = name
        self.deployments = tuple(deployments)
        self.origin = self.deployments[0].model.origin
        self.limiter: RateLimiter | None = None
        """Counts the limits of deployments. None: they are not limited."""
        self.on_failure: FailureObserver = _ignore_failure
        self._cooldowns = cooldowns
        self._retries = retries
        self._retry_wait = retry_wait
        self.retry_thoughts = retry_thoughts
        self._fallbacks = fallbacks
        self._find = find

    def warnings(self, call: ModelCall) -> list[str]:
        """Return the warnings of the deployment that is called first."""
        return self.deployments[0].model.warnings(call)

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn at the first deployment that answers.

        Raises:
            PellucidError: What the last deployment raised, if none answers.
        """
        call = replace(call, messages=_without_cut_thoughts(call.messages))
        return await _Attempts(self, call, self._fallbacks).open()

    # --- for attempts -------------------------------------------------------------------------------------------

    def candidates(self, call: ModelCall) -> list[Deployment]:
        """Return the deployments in the order in which a call tries them."""
        cooling = self._cooldowns.active()
        last = next((m.origin for m in reversed(call.messages) if isinstance(m, ModelResponse) and m.origin), None)
        key = call.settings.get("cache_key")

        def rank(deployment: Deployment) -> tuple[bool, int, bool, float]:
            share = _fraction(key, deployment.name) if key else 1 - random.random()
            return (
                deployment.name in cooling,
                deployment.order,
                deployment.model.origin != last,
                -math.log(share) / deployment.weight,
            )

        return sorted(self.deployments, key=rank)

    def has_alternative(self) -> bool:
        """Whether a deployment is available that has not failed lately."""
        cooling = self._cooldowns.active()
        return any(deployment.name not in cooling for deployment in self.deployments)

    def fail(self, deployment: Deployment, error: ErrorInfo, cause: Cause) -> None:
        """Note that a deployment failed."""
        self.on_failure(self.name, deployment.name, cause)
        if cause in ("rate_limit", "down"):
            seconds = self._cooldowns.begin(deployment.name, error.retry_after)
            log.warning(
                "the deployment %s of %s: %s; it is not called for %.3g s",
                *(deployment.name, self.name, error.message, seconds),
            )

    def succeed(self, deployment: Deployment) -> None:
        """Note that a deployment answers."""
        self._cooldowns.on_success(deployment.name)

    async def wait(self, round_number: int, error: ErrorInfo | None) -> bool:
        """Wait before all deployments are tried again. Returns False if that does not help."""
        if round_number >= self._retries:
            return False
        seconds = backoff_seconds(0.5, round_number, self._retry_wait)
        if error is not None and error.retry_after is not None:
            if error.retry_after > self._retry_wait:
                return False
            seconds = max(seconds, error.retry_after)
        await asyncio.sleep(seconds)
        return True

    def fallback_models(self, causes: Iterable[Cause], fallbacks: Mapping[Cause, Sequence[str]]) -> list[ChatModel]:
        """Return the models that answer instead, each once."""
        names = dict.fromkeys(name for cause in causes for name in fallbacks.get(cause, ()))
        return [self._find(name) for name in names if name != self.name] if self._find is not None else []


class _Attempts:
    """The attempts to start one turn."""

    def __init__(self, model: DeployedModel, call: ModelCall, fallbacks: Mapping[Cause, Sequence[str]]) -> None:
        self._model = model
        self._call = call
        self._fallbacks = fallbacks
        self._untried = model.candidates(call)
        self._round = 0
        self._causes: dict[Cause, None] = {}
        self._error: PellucidError | None = None
        self._deployment = model.deployments[0]
        self._resources = AsyncExitStack()

    async def open(self) -> ModelStream:
        """Start the turn at the first deployment that answers."""
        stream = await self._open_next()
        return DeployedStream(self, stream)

    @property
    def deployment(self) -> Deployment:
        """The deployment that was called last."""
        return self._deployment

    async def _open_next(self) -> ModelStream:
        while True:
            while self._untried:
                self._deployment = deployment = self._untried.pop(0)
                try:
                    await self._enter_limits(deployment)
                    return await deployment.model.open(self._call)
                except PellucidError as error:
                    await self._resources.aclose()
                    if not self._note(error):
                        raise
                except BaseException:
                    await self._resources.aclose()
                    raise
            stream = await self._open_fallback()
            if stream is not None:
                return stream
            info = self._error.info if self._error is not None else None
            if not (self._causes.keys() & {"rate_limit", "down"} and await self._model.wait(self._round, info)):
                assert self._error is not None
                raise self._error
            self._round += 1
            self._untried = self._model.candidates(self._call)

    def _note(self, error: PellucidError) -> bool:
        """Note a failure. Returns whether another deployment may help."""
        cause = cause_of(error.info)
        if cause is None or (isinstance(error, RequestError) and error.info.kind not in _RETRIED_REFUSALS):
            return False
        self._error = error
        self._causes[cause] = None
        self._model.fail(self._deployment, error.info, cause)
        if cause in ("context_length", "refused"):
            self._untried.clear()  # all deployments are the same model
        return True

    async def _enter_limits(self, deployment: Deployment) -> None:
        """Count the request. Raises `AccessError` if the deployment is over a limit of its own."""
        limiter = self._model.limiter
        if limiter is not None and has_limits(deployment.limits):
            principal = deployment.principal
            await limiter.spend(principal)
            await self._resources.enter_async_context(limiter.stream_slot(principal))

    async def _open_fallback(self) -> ModelStream | None:
        for model in self._model.fallback_models(self._causes, self._fallbacks):
            try:
                # The fallbacks of a fallback are not followed, so that there is no circle.
                if isinstance(model, DeployedModel):
                    return await _Attempts(model, self._call, {}).open()
                stream = await model.open(self._call)
                self._deployment = Deployment(f"{model.origin.provider}/{model.origin.model}", model)
                return stream
            except PellucidError as error:
                if cause_of(error.info) is None:
                    raise
                self._error = error
        return None

    def retry(self, error: ErrorInfo) -> asyncio.Future[ModelStream] | None:
        """Return the opening of another stream after an error before any content; see `RetryingStream`."""
        if not self._note(PellucidError(error)) or not (self._untried or self._has_fallback()):
            return None
        return asyncio.ensure_future(self._open_after_failure())

    def _has_fallback(self) -> bool:
        return bool(self._model.fallback_models(self._causes, self._fallbacks))

    async def _open_after_failure(self) -> ModelStream:
        await self._resources.aclose()
        return await self._open_next()

    def can_replace_thoughts(self, error: ErrorInfo) -> bool:
        """Note a failure after thoughts alone. Returns whether another deployment is called."""
        if not self._model.retry_thoughts or not self._note(PellucidError(error)):
            return False
        return self._model.has_alternative()

    def on_end(self, end: ResponseEndEvent | None) -> None:
        """Release what the turn held, and charge the deployment for its tokens."""
        deployment, limiter = self._deployment, self._model.limiter
        if end is not None and end.finish_reason != "error":
            self._model.succeed(deployment)
        if limiter is None or not has_limits(deployment.limits):
            return
        tokens = charged_tokens(end.usage) if end is not None else None
        start_task(self._settle(limiter, tokens), "a deployment's limits were not counted")

    async def _settle(self, limiter: RateLimiter, tokens: dict[str, float] | None) -> None:
        if tokens is not None:
            await limiter.charge(self._deployment.principal, tokens)
        await self._resources.aclose()


_RETRIED_REFUSALS = frozenset({"unauthorized", "too_many_requests"})
"""The kinds of requests that are refused here for a reason that only concerns one deployment."""


class DeployedStream(RetryingStream):
    """The stream of a turn. After a failure that follows thoughts alone, its end tells the run to call the model again.

    (`retry_thoughts`; see the module.)
    """

    def __init__(self, attempts: _Attempts, stream: ModelStream) -> None:
        super().__init__(stream, attempts.retry)
        self._attempts = attempts
        self._deliver: ModelEventReceiver
        self._has_answered = False
        """Whether anything other than thoughts has begun."""
        self._is_retrying = False
        self._end: ResponseEndEvent | None = None
        self._is_settled = False

    @property
    def deployment(self) -> str:
        """The deployment that answers."""
        return super().deployment or self._attempts.deployment.name

    def start(self, receive: ModelEventReceiver, texts: TextReceiver | None = None) -> None:
        self._deliver = receive
        super().start(self._on_turn_events, texts)

    def cancel(self, error: ErrorInfo | None = None) -> list[ModelEvent]:
        events = super().cancel(error)
        if not self._is_settled:
            self._is_settled = True
            self._attempts.on_end(self._end)
        return events

    def _on_turn_events(self, events: ModelRead) -> None:
        if isinstance(events, list):
            for event in events:
                if type(event) is PartStartEvent:
                    self._has_answered = self._has_answered or type(event.part) is not ThinkingPart
                elif type(event) is ErrorEvent:
                    self._is_retrying = not self._has_answered and self._attempts.can_replace_thoughts(event.error)
                elif type(event) is ResponseEndEvent:
                    self._end = event
            if self._is_retrying:
                events = [_paused(event) for event in events if type(event) is not ErrorEvent]
        self._deliver(events)


def _paused(event: ModelEvent) -> ModelEvent:
    """Return the end of a turn that failed as one after which the model is called again."""
    return replace(event, finish_reason="pause") if type(event) is ResponseEndEvent else event


def _without_cut_thoughts(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation without thoughts at its end that were cut off: the next deployment starts again."""
    end = len(messages)
    while end and isinstance(last := messages[end - 1], ModelResponse) and _is_cut_thought(last):
        end -= 1
    return messages[:end]


def _is_cut_thought(response: ModelResponse) -> bool:
    return all(isinstance(part, ThinkingPart) for part in response.parts) and not all(
        getattr(part, "complete", True) for part in response.parts
    )


def _fraction(key: str, name: str) -> float:
    """Return a number between 0 and 1 that is always the same for a key and a deployment."""
    digest = blake2b(f"{key}\0{name}".encode(errors="replace"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 1) / (2**64 + 1)


def _ignore_failure(model: str, deployment: str, cause: Cause) -> None:
    pass
