"""Deployments: a public model name behind which there are several models of providers.

* A call goes to a deployment of the lowest `order` that is available, by weight. A conversation stays with the
  deployment that made its last answer, because only that one can read what it signed or encrypted.
* A deployment that fails is not called for a while (its cooldown, which all replicas share), and the call goes to the
  next one at once. Only when all have failed is there a wait, with jitter, and at least as long as `Retry-After` says.
  A deployment that is over a limit of its own is passed over, without a cooldown.
* If no deployment can answer, the call goes to other models, which the operator names by the cause. The cooldowns and
  limits of their deployments apply as if they had been requested.
* All of this happens before the first content of the turn, for which `RequestModel.open` waits: when it returns, it is
  known who answers, and what failed is an exception. With `retry_thoughts` it also happens if a model has only thought
  so far: the thought stays, as incomplete, and the next deployment starts again without it. A turn with text or calls
  is never repeated.
* What the next deployment may not see of the history (signatures, encrypted reasoning) is left out by its wire.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from hashlib import blake2b
from typing import Literal, NamedTuple, Protocol

from msgspec.structs import replace

from ..background_tasks import start_task
from ..errors import ErrorInfo, ModelError, PellucidError, RequestError
from ..events import (
    AnsweringDeployment,
    DeploymentFailure,
    ErrorEvent,
    ModelEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
)
from ..parts import ModelMessage, ModelResponse, ThinkingPart, Usage
from ..providers.errors import CONTEXT_LENGTH_EXCEEDED
from ..relay import Relay, RelayError
from ..settings import ModelCall
from ..telemetry import log
from ..telemetry.lines import request_id
from ..upstream.client import backoff_seconds
from .model import ChatModel, ModelEventReceiver, ModelRead, ModelStream, TextReceiver
from .retrying import Opener, RetryingStream

Cause = Literal["rate_limit", "down", "context_length", "refused"]
"""Why a deployment does not answer."""

HEALTH_CAUSES: frozenset[Cause] = frozenset({"rate_limit", "down"})
"""The causes for which a deployment may fail for other requests, too."""

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


MAX_FAILURES = 16
"""The number of failures that are listed for one request."""


MAX_REPEATS = 3
"""How often turns are repeated after thoughts alone in one request."""


def cause_of(error: PellucidError) -> Cause | None:
    """Return the cause of an error for which another deployment may help; None if the request itself is wrong."""
    info = error.info
    if isinstance(error, RequestError) and info.kind not in _RETRIED_REFUSALS:
        return None
    if info.code == CONTEXT_LENGTH_EXCEEDED:
        return "context_length"
    if info.code in _REFUSAL_CODES:
        return "refused"
    if info.kind == "too_many_requests":
        return "rate_limit"
    return "down" if info.kind in _DOWN_KINDS else None


_RETRIED_REFUSALS = frozenset({"unauthorized", "too_many_requests"})
"""The kinds of requests that are refused here for a reason that only concerns one deployment."""


class Slot(Protocol):
    """One of the concurrent streams of a deployment."""

    async def release(self) -> None:
        """Release it. Never raises."""
        ...

    def settle(self, usage: Usage | None) -> None:
        """Charge the tokens of a turn that is over, if any, and release it, without a wait."""
        ...


class DeploymentLimits(Protocol):
    """Counts the requests, tokens and streams of a deployment."""

    async def acquire(self) -> Slot:
        """Count a request, and hold a stream. Raises `RequestError` if the deployment is over a limit of its own."""
        ...


class Deployment(NamedTuple):
    """One deployment of a model."""

    name: str
    """`PROVIDER/MODEL`, for logs, metrics and responses."""
    model: ChatModel
    order: int = 1
    weight: float = 1.0
    limits: DeploymentLimits | None = None
    """They apply whichever public name is called, also if it answers instead of another model."""


_Candidate = tuple[Deployment, bool]
"""A deployment that may be called, and whether it is one of the model's own."""


class Cooldowns:
    """The deployments that are not called for a while. With a relay, all replicas know of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        """The ends of cooldowns, by the clock."""
        self._failures: dict[str, int] = {}
        """The number of failures in succession."""
        self._relay: Relay | None = None
        self._shared: frozenset[str] = frozenset()
        """What other replicas reported."""
        self._shared_at = -math.inf
        self._is_relay_up = True

    def share(self, relay: Relay) -> None:
        """Share the cooldowns from now on."""
        self._relay = relay

    def begin(self, deployment: str, retry_after: float | None) -> float | None:
        """Begin the cooldown of a deployment that failed.

        Args:
            deployment: The deployment.
            retry_after: The seconds that its provider named.

        Returns:
            Its seconds. None if there is one already that ends at about that time, or later: when a deployment fails,
            all of its calls may fail at once, and that is one failure.
        """
        now = self._clock()
        left = self._until.get(deployment, now) - now
        seconds = retry_after or 0.0
        if left <= 0:
            failures = self._failures.get(deployment, 0)
            self._failures[deployment] = failures + 1
            seconds = max(seconds, COOLDOWN_SECONDS * 2.0 ** min(failures, 10))
        seconds = min(seconds, MAX_COOLDOWN_SECONDS)
        if seconds <= left + 1:
            return None
        self._until[deployment] = now + seconds
        if self._relay is not None:
            start_task(self._relay.set_presence(_COOLDOWN_GROUP, deployment, seconds), "a cooldown was not shared")
        return seconds

    def seconds_left(self) -> dict[str, float]:
        """Return the deployments that failed in this process and are in cooldown, and the seconds until its end."""
        now = self._clock()
        return {name: until - now for name, until in self._until.items() if until > now}

    def on_success(self, deployment: str) -> None:
        """Note that a deployment answers."""
        if self._failures:
            self._failures.pop(deployment, None)

    def active(self) -> frozenset[str]:
        """Return the deployments that are in cooldown."""
        if not self._until and self._relay is None:
            return frozenset()
        now = self._clock()
        self._until = {name: until for name, until in self._until.items() if until > now}
        if self._relay is not None and now - self._shared_at > SHARED_SECONDS:
            self._shared_at = now
            start_task(self._load(self._relay), "the cooldowns of other replicas are not known")
        return self._shared.union(self._until)

    def split(self, ranked: Sequence[Deployment]) -> tuple[list[Deployment], list[Deployment]]:
        """Return those of the deployments that are available, and those in cooldown."""
        cooling = self.active()
        if not cooling:
            return [*ranked], []
        return [d for d in ranked if d.name not in cooling], [d for d in ranked if d.name in cooling]

    async def _load(self, relay: Relay) -> None:
        was_up, self._is_relay_up = self._is_relay_up, True
        try:
            self._shared = frozenset(await relay.list_present(_COOLDOWN_GROUP))
        except RelayError:
            self._shared, self._is_relay_up = frozenset(), False
            if was_up:
                raise  # to the log, once in an outage


class Failure(NamedTuple):
    """A deployment failed."""

    model: str
    """The public name."""
    deployment: str
    provider: str
    cause: Cause
    error: PellucidError
    request_id: str | None
    concerns_health: bool
    """Whether the deployment may fail for other requests, too."""
    was_retried: bool
    """Whether the gateway calls another one, or this one again. Otherwise the client got the error."""


FailureObserver = Callable[[Failure], None]


class DeployedModel:
    """A public model name with several deployments. A `ChatModel`, which many requests share."""

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
        cause_of: Callable[[PellucidError], Cause | None] = cause_of,
        on_failure: FailureObserver | None = None,
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
            cause_of: Returns the cause of an error; None if no other deployment or model is called for it.
            on_failure: Is called with each failure of a deployment.
        """
        self.name = name
        self.deployments = tuple(sorted(deployments, key=lambda deployment: deployment.order))
        self.origin = self.deployments[0].model.origin
        self.retry_thoughts = retry_thoughts
        self.cause_of = cause_of
        self._has_choice = len({deployment.order for deployment in deployments}) < len(deployments)
        """Whether two deployments have the same `order`."""
        self.cooldowns = cooldowns
        self._retries = retries
        self._retry_wait = retry_wait
        self._fallbacks = fallbacks
        self._find = find
        self.on_failure = on_failure

    def for_request(
        self,
        failures: list[DeploymentFailure] | None = None,
        on_answer: Callable[[str], None] | None = None,
        retry_thoughts: bool | None = None,
    ) -> RequestModel:
        """Return the model for one request.

        Args:
            failures: Gets the failures of deployments, at most `MAX_FAILURES`.
            on_answer: Is called with the deployment that answers, before `open` returns.
            retry_thoughts: Replaces the model's own setting; None: does not.
        """
        if retry_thoughts is None:
            retry_thoughts = self.retry_thoughts
        return RequestModel(self, [] if failures is None else failures, on_answer, retry_thoughts=retry_thoughts)

    def warnings(self, call: ModelCall) -> list[str]:
        """Return the warnings of the deployment with the lowest `order`."""
        return self.deployments[0].model.warnings(call)

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn, as `RequestModel.open` does. A turn of thoughts alone is not repeated."""
        return await self.for_request(retry_thoughts=False).open(call)

    def is_available(self, causes: Set[Cause] = HEALTH_CAUSES) -> bool:
        """Whether a deployment of this model, or a model that answers instead of it, is not in cooldown.

        Args:
            causes: Why this model does not answer.
        """
        cooling = self.cooldowns.active()
        models = (self, *self.fallbacks_for(causes).values())
        return any(deployment.name not in cooling for model in models for deployment in deployments_of(model))

    def first_candidate(self, call: ModelCall) -> ChatModel:
        """Return the model of the deployment that a call would try first."""
        available, cooling = self.candidates(call)
        return [*available, *cooling][0].model

    # --- for the attempts of a request --------------------------------------------------------------------------

    def candidates(self, call: ModelCall) -> tuple[list[Deployment], list[Deployment]]:
        """Return the deployments that are available, and those in cooldown, each in the order of a call's attempts."""
        if not self._has_choice:
            return self.cooldowns.split(self.deployments)
        last = next((m.origin for m in reversed(call.messages) if isinstance(m, ModelResponse) and m.origin), None)
        key = call.settings.get("cache_key")

        def rank(deployment: Deployment) -> tuple[int, bool, float]:
            share = _fraction(key, deployment.name) if key else 1 - random.random()
            return deployment.order, deployment.model.origin != last, -math.log(share) / deployment.weight

        return self.cooldowns.split(sorted(self.deployments, key=rank))

    def fallbacks_for(self, causes: Set[Cause]) -> dict[str, ChatModel]:
        """Return the models that answer instead of this one, by their public names."""
        names = dict.fromkeys(name for cause, others in self._fallbacks.items() if cause in causes for name in others)
        names.pop(self.name, None)
        return {name: self._find(name) for name in names} if self._find is not None else {}

    def begin_cooldown(self, deployment: Deployment, error: PellucidError) -> None:
        """Begin the cooldown of a deployment that failed."""
        seconds = self.cooldowns.begin(deployment.name, error.info.retry_after)
        if seconds is not None:
            log.warning(
                "the deployment %s of %s: %s; it is not called for %.3g s",
                deployment.name,
                self.name,
                error.info.message,
                seconds,
            )

    def with_retry_after(self, error: PellucidError) -> PellucidError:
        """Return the error of a call that no deployment answered, with the time until one is called again."""
        seconds = self.cooldowns.seconds_left()
        wait = min((seconds.get(deployment.name, 0.0) for deployment in self.deployments), default=0.0)
        if not isinstance(error, ModelError) or wait <= (error.info.retry_after or 0.0):
            return error
        return ModelError(replace(error.info, retry_after=wait), error.request_id, error.address)

    def wait_seconds(self, round_number: int, error: ErrorInfo) -> float | None:
        """Return the seconds to wait before all deployments are tried again; None if that does not help."""
        retry_after = error.retry_after or 0.0
        if round_number >= self._retries or retry_after > self._retry_wait:
            return None
        return max(backoff_seconds(0.5, round_number, self._retry_wait), retry_after)


def deployments_of(model: ChatModel) -> Sequence[Deployment]:
    """Return the deployments of a model: of one without several, itself."""
    if isinstance(model, RequestModel):
        model = model.model
    return model.deployments if isinstance(model, DeployedModel) else (Deployment(model.origin.deployment, model),)


class RequestModel:
    """A deployed model during one request. A `ChatModel`."""

    def __init__(
        self,
        model: DeployedModel,
        failures: list[DeploymentFailure],
        on_answer: Callable[[str], None] | None,
        *,
        retry_thoughts: bool,
    ) -> None:
        """Create the model; see `DeployedModel.for_request`."""
        self.model = model
        self.name = model.name
        self.origin = model.origin
        """The origin of the deployment that was called last; before a call, of the one with the lowest `order`."""
        self.failures = failures
        """The failures so far."""
        self.warnings = model.warnings
        self._on_answer = on_answer
        self._repeats_left = MAX_REPEATS if retry_thoughts else 0

    async def open(self, call: ModelCall) -> ModelStream:
        """Start a turn at the first deployment that answers, and wait for its first content.

        Raises:
            PellucidError: What the last deployment raised, if none answers.
        """
        messages = _without_cut_thoughts(call.messages)
        if messages is not call.messages:
            call = replace(call, messages=messages)
        attempts = _Attempts(self, call)
        stream = await attempts.open()
        if self._on_answer is not None:
            self._on_answer(attempts.deployment.name)
        return stream

    def begin_repeat(self, cause: Cause) -> bool:
        """Begin to repeat a turn of thoughts alone. Returns False if it is not repeated.

        It is if repeats are left, and another deployment is available, or a model for this cause.
        """
        if not self._repeats_left or not self.model.is_available({cause}):
            return False
        self._repeats_left -= 1
        return True

    def report(
        self, deployment: Deployment, error: PellucidError, cause: Cause, request: str | None, *, was_retried: bool
    ) -> None:
        """Report that a deployment failed in the request with this id."""
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(DeploymentFailure(deployment.name, cause))
        if self.model.on_failure is not None:
            provider, is_unhealthy = deployment.model.origin.provider, _concerns_health(error, cause)
            self.model.on_failure(
                Failure(self.name, deployment.name, provider, cause, error, request, is_unhealthy, was_retried)
            )


def _concerns_health(error: PellucidError, cause: Cause) -> bool:
    """Whether a deployment that failed may fail for other requests, too.

    A request that was refused here, by a limit of the deployment, says nothing about the provider.
    """
    return cause in HEALTH_CAUSES and not isinstance(error, RequestError)


class _Attempts:
    """The attempts to start one turn, and what its stream does when it fails or ends."""

    def __init__(self, request: RequestModel, call: ModelCall) -> None:
        self._request = request
        self._model = request.model
        self._call = call
        self._request_id = request_id.get()  # a stream that fails is read in the context of its connection
        self._round = 0
        self._causes: set[Cause] = set()
        """Why deployments failed in this round."""
        self._is_refused = False
        """Whether this model does not take the request at all: all of its deployments are the same model."""
        self._error: PellucidError
        """The last error of the model's own deployments."""
        self._slot: Slot | None = None
        """The stream of the deployment that is called, if it has limits."""
        self._candidates = self._round_of_candidates()
        self._next: _Candidate | None = next(self._candidates)
        """What is called next; None: nothing in this round."""
        self._wait_seconds: float | None = None
        """The wait before the next round; None: there is none."""
        self.deployment, self._is_own = self._next
        """The deployment that was called last, and whether it is one of the model's own."""

    async def open(self) -> ModelStream:
        """Start the turn, and wait for its first content."""
        stream = DeployedStream(self, await self._open_next())
        await stream.wait_for_content()
        return stream

    def _round_of_candidates(self) -> Iterator[_Candidate]:
        """Yield what is called: the deployments that are available, those of other models, and those in cooldown."""
        self._causes.clear()
        self._is_refused = False
        tried: set[str] = set()
        others_cooling: list[Deployment] = []
        for own in self._model.candidates(self._call):
            for deployment in own:
                if not self._is_refused:
                    yield deployment, True
            # Without a cause, all deployments are in cooldown.
            for name, other in self._model.fallbacks_for(self._causes or HEALTH_CAUSES).items():
                if name not in tried:
                    tried.add(name)
                    # The fallbacks of another model are not followed.
                    available, cooling = (
                        other.candidates(self._call)
                        if isinstance(other, DeployedModel)
                        else self._model.cooldowns.split(deployments_of(other))
                    )
                    others_cooling += cooling
                    for deployment in available:
                        yield deployment, False
        for deployment in others_cooling:
            yield deployment, False

    def _find_next(self) -> bool:
        """Find what is called next. Returns whether there is anything, now or after a wait."""
        self._next, self._wait_seconds = next(self._candidates, None), None
        if self._next is None and not self._causes.isdisjoint(HEALTH_CAUSES):
            self._wait_seconds = self._model.wait_seconds(self._round, self._error.info)
        return self._next is not None or self._wait_seconds is not None

    async def _open_next(self) -> ModelStream:
        """Call what is next until a deployment accepts the call. Raises `PellucidError` when nothing is left."""
        await self._release_slot()
        while True:
            self.deployment, self._is_own = self._next or await self._begin_round()
            self._request.origin = self.deployment.model.origin
            try:
                if self.deployment.limits is not None:
                    self._slot = await self.deployment.limits.acquire()
                return await self.deployment.model.open(self._call)
            except BaseException as error:
                await self._release_slot()
                if not isinstance(error, PellucidError) or not self._note(error):
                    raise

    async def _begin_round(self) -> _Candidate:
        """Wait, and begin with the first deployment again. Raises `PellucidError` if that does not help."""
        if self._wait_seconds is None:
            raise self._model.with_retry_after(self._error)
        await asyncio.sleep(self._wait_seconds)
        self._round += 1
        self._candidates = self._round_of_candidates()
        return next(self._candidates)

    def _note(self, error: PellucidError) -> bool:
        """Note a failure before any content. Returns whether another deployment may help."""
        cause = self._model.cause_of(error)
        if self._is_own:
            self._error = error
            if cause is None:
                return False
            self._is_refused = self._is_refused or cause in ("context_length", "refused")
        if cause is not None:
            self._causes.add(cause)
            if _concerns_health(error, cause):
                self._model.begin_cooldown(self.deployment, error)
        failed, is_followed = self.deployment, self._find_next()
        if cause is not None:
            self._request.report(failed, error, cause, self._request_id, was_retried=is_followed)
        return True  # what another model does not support is not wrong in the request

    async def _release_slot(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            await slot.release()

    # --- for the stream ---------------------------------------------------------------------------------------------

    def retry(self, error: ErrorInfo) -> Opener | None:
        """Return the function that opens another stream after an error before any content; see `RetryingStream`."""
        return self._open_next if self._note(ModelError(error)) else None

    def on_error(self, error: ErrorInfo, *, is_after_thoughts: bool) -> bool:
        """Note an error after some content. Returns whether the turn is repeated.

        Args:
            error: The error.
            is_after_thoughts: Whether there were only thoughts.
        """
        failure = ModelError(error)
        cause = self._model.cause_of(failure)
        if cause is None:
            return False
        # Other causes begin no cooldown, so that the same deployment would be called again.
        is_unhealthy = _concerns_health(failure, cause)
        if is_unhealthy:
            self._model.begin_cooldown(self.deployment, failure)
        is_repeated = is_unhealthy and is_after_thoughts and self._request.begin_repeat(cause)
        self._request.report(self.deployment, failure, cause, self._request_id, was_retried=is_repeated)
        return is_repeated

    def announce(self, start: ResponseStartEvent) -> ResponseStartEvent:
        """Return the start of the turn with the deployment that answers."""
        return replace(start, deployment=AnsweringDeployment(self.deployment.name, [*self._request.failures]))

    def on_end(self, end: ResponseEndEvent | None) -> None:
        """Release what the turn held, and charge the deployment for its tokens."""
        if end is not None and end.finish_reason != "error":
            self._model.cooldowns.on_success(self.deployment.name)
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.settle(end.usage if end is not None else None)


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
        self._is_repeated = False
        self._end: ResponseEndEvent | None = None
        self._is_settled = False

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
        if isinstance(events, list) and not _OBSERVED_EVENTS.isdisjoint(map(type, events)):
            shown = [self._on_turn_event(event) if type(event) in _OBSERVED_EVENTS else event for event in events]
            events = [event for event in shown if event is not None]
        self._deliver(events)

    def _on_turn_event(self, event: ModelEvent) -> ModelEvent | None:
        """Return the event that is delivered, if any."""
        if type(event) is ResponseStartEvent:
            return self._attempts.announce(event)
        if type(event) is PartStartEvent:
            self._has_answered = self._has_answered or type(event.part) is not ThinkingPart
        elif type(event) is ErrorEvent and self._error is None:  # as the first content, it has been noted
            self._is_repeated = self._attempts.on_error(event.error, is_after_thoughts=not self._has_answered)
            return None if self._is_repeated else event
        elif type(event) is ResponseEndEvent:
            self._end = event
            return replace(event, finish_reason="pause") if self._is_repeated else event
        return event


_OBSERVED_EVENTS = frozenset({ResponseStartEvent, PartStartEvent, ErrorEvent, ResponseEndEvent})


def _without_cut_thoughts(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return the conversation without thoughts at its end that were cut off: the next deployment starts again."""
    end = len(messages)
    while end and isinstance(last := messages[end - 1], ModelResponse) and _is_cut_thought(last):
        end -= 1
    return messages[:end] if end < len(messages) else messages


def _is_cut_thought(response: ModelResponse) -> bool:
    return all(isinstance(part, ThinkingPart) for part in response.parts) and not all(
        getattr(part, "complete", True) for part in response.parts
    )


def _fraction(key: str, name: str) -> float:
    """Return a number between 0 and 1 that is always the same for a key and a deployment."""
    digest = blake2b(f"{key}\0{name}".encode(errors="replace"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") + 1) / (2**64 + 1)
