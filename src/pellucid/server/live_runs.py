"""What runs in this process, and what failed lately: `observability` feeds it, `status` reads it.

A run is registered when its model is called, and removed when it has ended. What changes while it runs (its state, its
number of characters) is read from the run itself when an operator wants to see it, so nothing here is called for a
delta. Nothing here holds a text of a request, of a response or of a provider.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Container
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

import msgspec

from ..errors import ErrorInfo
from ..run import RunState
from ..runs import DrivenRun, RunSource

MAX_FAILURES = 100
"""How many failures are remembered."""

MAX_DEPLOYMENTS = 512
"""How many deployments have a remembered health. Names of models may come from clients."""


class ModelFailure(msgspec.Struct, frozen=True):
    """A failure of a model's side."""

    time: float
    """Seconds since 1970."""
    request_id: str | None
    model: str | None
    """The model's public name."""
    deployment: str | None
    """`PROVIDER/MODEL`. None: none of the model's deployments answered."""
    kind: str
    """The kind of the error, from the gateway's closed list."""
    status: int | None
    """The provider's HTTP status."""
    code: str | None
    """The code of the error, if it is one that the gateway knows."""
    was_retried: bool
    """Whether only an attempt failed, after which the gateway tries again. Otherwise the client got the error."""


class RunStatus(msgspec.Struct, frozen=True):
    """A run that has not ended."""

    id: str
    replica: str
    """The process that drives it."""
    request_id: str
    response_id: str | None
    """The id that the client has for it."""
    protocol: str
    model: str | None
    deployment: str
    owner: str
    key: str | None
    """The id of the key."""
    started_at: float
    """Seconds since 1970."""
    seconds: float
    """Since the request began."""
    state: RunState
    characters: int
    """The size of the model's output so far, reasoning included."""
    attached: bool
    """Whether it ends when its client leaves. Otherwise it runs in the background."""


class TrackedRun(Protocol):
    """A run, as it is registered (see `observability.RunTelemetry`)."""

    source: DrivenRun | None
    """The run itself."""

    def describe(self, id: str, replica: str, *, attached: bool) -> RunStatus | None:
        """Return what an operator sees of it; None if it has ended."""
        ...


class Health(msgspec.Struct):
    """The failures of one deployment."""

    model: str | None
    """The public name under which it was called first."""
    failures: int = 0
    """The number of failures in succession."""
    last_failure: ModelFailure | None = None


class LiveRuns:
    """The runs of this process that have not ended, the last failures, and the health of deployments."""

    def __init__(self, is_known_model: Callable[[str | None], bool]) -> None:
        """Create the registry. `is_known_model`: whether the operator chose this name of a model."""
        self._is_known_model = is_known_model
        self._runs: WeakValueDictionary[str, TrackedRun] = WeakValueDictionary()
        """The runs by their ids. Weak, so that a run whose end was lost in a fault does not stay."""
        self._prefix = f"run_{secrets.token_hex(6)}"
        self._numbers = count(1)
        self.health: dict[str, Health] = {}
        """The health by deployment."""
        self.failures: deque[ModelFailure] = deque(maxlen=MAX_FAILURES)
        self.end_counts: Counter[str] = Counter()
        """The number of runs that have ended, by status."""

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: TrackedRun) -> str:
        """Register a run; return its id."""
        id = f"{self._prefix}{next(self._numbers):06x}"
        self._runs[id] = run
        return id

    def remove(self, id: str) -> None:
        """Remove a run, which is over or was not begun."""
        self._runs.pop(id, None)

    def count_end(self, status: str) -> None:
        """Count a run that has ended with this status."""
        self.end_counts[status] += 1

    def get(self, id: str) -> DrivenRun | None:
        """Return the run with this id, if it has not ended."""
        run = self._runs.get(id)
        return run.source if run is not None else None

    def describe(self, replica: str, detached: Container[RunSource], limit: int) -> list[RunStatus]:
        """Return the runs, the oldest first.

        Args:
            replica: The name of this process.
            detached: The runs that are driven in the background.
            limit: Return no more than this number.
        """
        described: list[RunStatus] = []
        for id, run in list(self._runs.items()):
            if len(described) == limit:
                break
            status = run.describe(id, replica, attached=run.source not in detached)
            if status is not None:
                described.append(status)
        return described

    def record_failure(
        self,
        model: str | None,
        deployment: str | None,
        error: ErrorInfo,
        request_id: str | None,
        *,
        was_retried: bool = False,
        concerns_health: bool,
    ) -> None:
        """Record a failure.

        Args:
            model: The public name.
            deployment: The deployment that failed; None: all of the model's.
            error: The error.
            request_id: The id of the request.
            was_retried: Whether the gateway tries again.
            concerns_health: Whether the deployment may fail for other requests, too.
        """
        code = error.code if error.is_own or error.code in _KNOWN_CODES else None
        failure = ModelFailure(time.time(), request_id, model, deployment, error.kind, error.status, code, was_retried)
        self.failures.append(failure)
        if deployment is None or not concerns_health:
            return
        health = self._health_of(model, deployment, is_working=False)
        if health is not None:
            health.failures += 1
            health.last_failure = failure

    def record_success(self, model: str | None, deployment: str) -> None:
        """Record that a turn of a deployment ended without an error."""
        health = self._health_of(model, deployment, is_working=True)
        if health is not None:
            health.failures = 0

    def _health_of(self, model: str | None, deployment: str, *, is_working: bool) -> Health | None:
        health = self.health.get(deployment)
        # A name that the operator did not choose, and that never worked, is most likely no model.
        if health is None and len(self.health) < MAX_DEPLOYMENTS and (is_working or self._is_known_model(model)):
            health = self.health[deployment] = Health(model)
        return health


_KNOWN_CODES = frozenset(
    {
        "content_filter",
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "model_not_found",
        "not_an_answer",
        "not_http",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "redirect",
        "timeout_error",
        "unreachable",
    }
)
"""The codes that are shown of errors in which something comes from an upstream: common ones of providers, which may
write anything, and those of the gateway for such errors."""
