"""The state of a gateway, for its operator: models and their health, runs that have not ended, failures; and cancel.

Each replica reports its own part when it is asked for it, and whichever was asked puts the parts together
(`replicas`). So nothing is written while no operator looks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

import msgspec

from ..background_tasks import start_task
from ..errors import ErrorInfo, PellucidError, RequestError
from ..models import ChatModel
from ..models.deployments import deployments_of
from ..relay import Relay
from ..runs.detached_runs import DetachedRuns
from ..telemetry import log
from ..version import __version__
from .catalog import Catalog
from .live_runs import MAX_FAILURES, Health, LiveRuns, ModelFailure, RunStatus
from .readiness import Readiness
from .replicas import Replicas

CANCELLED_BY_OPERATOR = ErrorInfo(
    "forbidden", "an operator of the gateway cancelled this run", code="cancelled_by_operator"
)
"""The error of a run that an operator cancels. Clients do not repeat a request that is forbidden."""

MAX_RUNS = 1000
"""How many runs each replica lists, the oldest first."""

END_SECONDS = 1.0
"""How long a cancel waits for the end of the run, which may have to be stored."""

DeploymentState = Literal["available", "failing", "cooling", "loading"]
"""`failing`: its last turn failed. `cooling`: it failed, and is not called for a while. `loading`: of the embedded
model."""

ReplicaState = Literal["ready", "not_ready", "stopping", "no_answer"]

_STATES: tuple[DeploymentState, ...] = ("available", "failing", "cooling", "loading")
"""The states from the best to the worst."""


class DeploymentStatus(msgspec.Struct):
    """One deployment of a model."""

    name: str
    """`PROVIDER/MODEL`."""
    order: int
    weight: float
    state: DeploymentState
    cooling_until: float | None = None
    """Seconds since 1970."""
    failures: int = 0
    """The number of failures in succession."""
    last_failure: ModelFailure | None = None


class ModelStatus(msgspec.Struct):
    """A model, by its public name."""

    name: str
    deployments: list[DeploymentStatus]


class RunCounts(msgspec.Struct):
    """Numbers of runs. Those that have ended are counted from the start of each process."""

    live: int = 0
    completed: int = 0
    incomplete: int = 0
    failed: int = 0
    cancelled: int = 0


class ReplicaStatus(msgspec.Struct):
    """One process of the gateway."""

    id: str
    state: ReplicaState
    reasons: list[str]
    """Why it is not ready."""
    counts: RunCounts
    version: str | None = None
    started_at: int | None = None
    """Seconds since 1970."""


class GatewayStatus(msgspec.Struct):
    """The state of the whole gateway."""

    object: Literal["gateway.status"]
    version: str
    replica: str
    """The process that was asked."""
    started_at: int
    """When that process started, in seconds since 1970."""
    ready: bool
    """Whether all replicas are."""
    replicas: list[ReplicaStatus]
    counts: RunCounts
    """The sums over the replicas."""
    models: list[ModelStatus]
    runs: list[RunStatus]
    """The runs that have not ended, the oldest first; at most 1000 of each replica."""
    failures: list[ModelFailure]
    """The last failures, the newest first; at most 100."""


class CancelledRun(msgspec.Struct):
    """The response to a cancel."""

    object: Literal["run.cancelled"]
    id: str
    replica: str
    """The process that drove it."""


class ReplicaReport(msgspec.Struct):
    """What one replica reports."""

    status: ReplicaStatus
    models: list[ModelStatus]
    runs: list[RunStatus]
    failures: list[ModelFailure]


class _Question(msgspec.Struct):
    """What one replica sends to the others."""

    cancel: str | None = None
    """The id of the run to cancel. None: a report is wanted."""


_question_decoder = msgspec.json.Decoder(_Question)
_report_decoder = msgspec.json.Decoder(ReplicaReport)
_found_decoder = msgspec.json.Decoder(bool)


class LocalModel(ChatModel, Protocol):
    """The embedded model, which may be loading."""

    @property
    def is_loading(self) -> bool: ...


class GatewayState:
    """Reports the state of the gateway, and cancels runs on whichever replica.

    Args:
        replica: The name of this process.
        relay: What the replicas share.
        live_runs: The runs of this process.
        get_catalog: Returns the models, as they are now.
        local: The embedded model.
        detached: The runs of this process in the background.
        readiness: The check whether this process is ready.
        is_stopping: Whether it is stopping.
        started_at: When this process started, in seconds since 1970.
        lapse_seconds: After how much time a process that died is not listed any more.
    """

    def __init__(
        self,
        *,
        replica: str,
        relay: Relay,
        live_runs: LiveRuns,
        get_catalog: Callable[[], Catalog],
        local: LocalModel | None,
        detached: DetachedRuns,
        readiness: Readiness,
        is_stopping: Callable[[], bool],
        started_at: int,
        lapse_seconds: float,
    ) -> None:
        self._live_runs = live_runs
        self._get_catalog = get_catalog
        self._local = local
        self._detached = detached
        self._readiness = readiness
        self._is_stopping = is_stopping
        self._started_at = started_at
        self._replicas = Replicas(relay, replica, self._answer, lapse_seconds)

    def start(self) -> None:
        """Join the replicas of the gateway."""
        self._replicas.start()

    async def aclose(self) -> None:
        """Leave the replicas of the gateway."""
        await self._replicas.aclose()

    async def status(self) -> GatewayStatus:
        """Return the state of the whole gateway. If the relay is down, it is that of this process."""
        own, answers = await asyncio.gather(self._report(), self._reports_of_others())
        return _merge([own, *(_report_of(name, answer) for name, answer in answers.items())])

    async def _reports_of_others(self) -> Mapping[str, bytes | None]:
        try:
            return await self._replicas.call(msgspec.json.encode(_Question()))
        except PellucidError as error:
            log.warning("the state of other replicas is not known: %s", error.info.message)
            return {}

    async def cancel(self, id: str) -> CancelledRun:
        """Cancel a run, attached or in the background, on whichever replica.

        Returns:
            The cancelled run. It has ended, unless its end could not be stored within `END_SECONDS`.

        Raises:
            RequestError: There is no such run.
            RelayError: It is not here, and the relay does not reply.
        """
        if await self._cancel_here(id):
            return CancelledRun("run.cancelled", id, self._replicas.name)
        answers = await self._replicas.call(msgspec.json.encode(_Question(cancel=id)))
        for replica, answer in answers.items():
            if answer is not None and _found_decoder.decode(answer):
                return CancelledRun("run.cancelled", id, replica)
        silent = [replica for replica, answer in answers.items() if answer is None]
        hint = f"; these replicas do not answer: {', '.join(silent)}" if silent else ""
        raise RequestError(f"there is no run {id!r} that has not ended{hint}", kind="not_found", code="run_not_found")

    async def _answer(self, message: bytes) -> bytes:
        """Return the answer to another replica."""
        question = _question_decoder.decode(message)
        if question.cancel is not None:
            return msgspec.json.encode(await self._cancel_here(question.cancel))
        return msgspec.json.encode(await self._report())

    async def _cancel_here(self, id: str) -> bool:
        """Cancel a run of this process. Returns whether there is one with this id."""
        run = self._live_runs.get(id)
        if run is None:
            return False
        task = start_task(run.abort(CANCELLED_BY_OPERATOR), "a run that an operator cancelled did not end properly")
        await asyncio.wait({task}, timeout=END_SECONDS)
        return True

    # --- the report of this process ----------------------------------------------------------------------------

    async def _report(self) -> ReplicaReport:
        reasons = [missing.reason for missing in await self._readiness.check()]
        name, live_runs = self._replicas.name, self._live_runs
        state: ReplicaState = "stopping" if self._is_stopping() else "not_ready" if reasons else "ready"
        counts = msgspec.convert({"live": len(live_runs), **live_runs.end_counts}, RunCounts)
        status = ReplicaStatus(name, state, reasons, counts, __version__, self._started_at)
        runs = live_runs.describe(name, self._detached.sources, MAX_RUNS)
        return ReplicaReport(status, self._model_statuses(), runs, list(live_runs.failures))

    def _model_statuses(self) -> list[ModelStatus]:
        """Return the models that the operator named, and those that were called successfully."""
        catalog = self._get_catalog()
        seconds_left = catalog.cooldowns.seconds_left()
        health = dict(self._live_runs.health)
        local, now = self._local, time.time()
        statuses: list[ModelStatus] = []
        listed: set[str] = set()

        def add(model_name: str, rows: Iterable[tuple[str, int, float, bool]]) -> None:
            deployments: list[DeploymentStatus] = []
            for name, order, weight, is_loading in rows:
                one, left = health.get(name, _NO_FAILURES), seconds_left.get(name)
                state: DeploymentState = "failing" if one.failures else "available"
                state = "loading" if is_loading else "cooling" if left is not None else state
                until = None if left is None else round(now + left, 3)
                deployments.append(DeploymentStatus(name, order, weight, state, until, one.failures, one.last_failure))
                listed.add(name)
            statuses.append(ModelStatus(model_name, deployments))

        for name, model in catalog.unique_models():
            loading = local if local is not None and local.is_loading else None
            add(name, [(one.name, one.order, one.weight, one.model is loading) for one in deployments_of(model)])
        for deployment, one in health.items():
            if deployment not in listed:
                add(one.model or deployment, [(deployment, 1, 1.0, False)])
        return statuses


_NO_FAILURES = Health(None)


def _report_of(replica: str, answer: bytes | None) -> ReplicaReport:
    reason = "it does not answer"
    if answer is not None:
        try:
            return _report_decoder.decode(answer)
        except msgspec.DecodeError:
            reason = "its answer is that of another version"
    return ReplicaReport(ReplicaStatus(replica, "no_answer", [reason], RunCounts()), [], [], [])


def _merge(reports: list[ReplicaReport]) -> GatewayStatus:
    """Return the state of the gateway. The first report is that of this process."""
    own = reports[0].status
    replicas = [report.status for report in reports]
    models: dict[str, ModelStatus] = {}
    for report in reports:
        for model in report.models:
            known = models.setdefault(model.name, model)
            if known is not model:
                known.deployments = _merge_deployments([*known.deployments, *model.deployments])
    counts: Counter[str] = Counter()
    for replica in replicas:
        counts.update(msgspec.structs.asdict(replica.counts))
    failures = sorted((one for report in reports for one in report.failures), key=lambda one: one.time, reverse=True)
    return GatewayStatus(
        object="gateway.status",
        version=__version__,
        replica=own.id,
        started_at=own.started_at or 0,
        ready=all(replica.state == "ready" for replica in replicas),
        replicas=replicas,
        counts=msgspec.convert(dict(counts), RunCounts),
        models=list(models.values()),
        runs=sorted((run for report in reports for run in report.runs), key=lambda run: run.started_at),
        failures=failures[:MAX_FAILURES],
    )


def _merge_deployments(statuses: list[DeploymentStatus]) -> list[DeploymentStatus]:
    """Return one status for each deployment: the worst, with the newest failure."""
    merged: dict[str, DeploymentStatus] = {}
    for status in statuses:
        known = merged.setdefault(status.name, status)
        if known is status:
            continue
        known.state = max(known.state, status.state, key=_STATES.index)
        known.cooling_until = max(known.cooling_until or 0, status.cooling_until or 0) or None
        known.failures = max(known.failures, status.failures)
        failures = [one for one in (known.last_failure, status.last_failure) if one is not None]
        known.last_failure = max(failures, key=lambda one: one.time, default=None)
    return list(merged.values())
