"""Metrics, spans and log lines of a gateway's requests and runs.

    RequestTelemetry    one request, from its first byte to the end of its response; each turn of a socket is one
    RunTelemetry        one run: each turn of its model, each call of its tools, and its end

A run can outlive the request that began it. Its end then has a log line of its own, with the request's id. Nothing here
is called for a delta, and nothing here gets a text of a request or a response.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
from opentelemetry.trace import Span, TracerProvider, use_span

from ..asgi.http import Scope
from ..errors import ConfigError, ErrorInfo, ModelError, PellucidError
from ..events import DeploymentFailure, ErrorEvent, Event, ResponseEndEvent, ResponseStartEvent, RunEndEvent
from ..models import ChatModel, ModelStream
from ..models.deployments import HEALTH_CAUSES, Failure, cause_of
from ..parts import Origin, RetryPromptPart, ToolCallPart, ToolReturnPart
from ..providers.profiles import telemetry_name
from ..runs import DrivenRun
from ..settings import ModelCall
from ..spaces.runtime.webhooks import Webhook
from ..telemetry import log, names, spans
from ..telemetry.lines import LogLine, formatter, request_id
from ..telemetry.metrics import OTHER, Metrics
from ..telemetry.spans import Tracing
from .access.policy import Principal
from .config import TelemetryConfig
from .live_runs import LiveRuns, RunStatus
from .spend import NANOS

NO_ROUTE = "none"
_LINK_TOKEN = re.compile(r"(/shared/).+", re.IGNORECASE | re.DOTALL)
CLIENT_CLOSED_REQUEST = 499
"""The status, in telemetry, of a request whose client left before the response."""
PROBE_PATHS = frozenset({"/health", "/ready", "/metrics"})
"""Paths that machines request periodically: logged at level debug, and not traced."""


class Telemetry:
    """Telemetry of one gateway."""

    def __init__(
        self,
        config: TelemetryConfig,
        is_known_model: Callable[[str | None], bool],
        tracers: TracerProvider | None = None,
    ) -> None:
        """Create the telemetry.

        Args:
            config: `[telemetry]` of the configuration.
            is_known_model: Whether the operator chose this name of a model, so that it may be a label of metrics.
            tracers: Where spans are sent; by default the process's provider.
        """
        self.metrics = Metrics() if config.metrics else None
        self.tracing = Tracing(tracers)
        self.live_runs = LiveRuns(is_known_model)
        self._is_known_model = is_known_model

    def model_label(self, model: str | None) -> str:
        """Return a model's name as a label.

        Clients can invent names, so those that are not known have one common label.
        """
        return model if model is not None and self._is_known_model(model) else OTHER

    def record_deployment_failure(self, failure: Failure) -> None:
        """Count a failure of a deployment, and record it (see `deployments.FailureObserver`)."""
        if self.metrics is not None:
            self.metrics.deployment_failures(failure.model, failure.deployment, failure.cause).inc()
        self.record_failure(
            failure.error,
            failure.provider,
            model=failure.model,
            deployment=failure.deployment,
            request_id=failure.request_id,
            was_retried=failure.was_retried,
            concerns_health=failure.concerns_health,
        )

    def on_deliveries(self, webhook: Webhook, outcome: str, count: int) -> None:
        """Count deliveries of a webhook (see `webhooks.WebhookObserver`)."""
        if self.metrics is not None:
            self.metrics.webhook_deliveries(webhook.space, webhook.name, outcome).inc(count)

    def on_backlog(self, webhook: Webhook, behind: int) -> None:
        """Record the backlog of a webhook."""
        if self.metrics is not None:
            self.metrics.webhook_backlog(webhook.space, webhook.name).set(behind)

    def record_failure(
        self,
        error: PellucidError,
        provider: str,
        *,
        model: str | None,
        deployment: str,
        request_id: str | None,
        was_retried: bool = False,
        concerns_health: bool,
    ) -> None:
        """Count a failure of a model's side, and note it for the operator (see `LiveRuns.record_failure`).

        Args:
            error: The error. One that is no `ModelError` is the gateway's own, such as a limit of a deployment.
            provider: The provider of the model.
            model: The public name.
            deployment: The deployment that failed.
            request_id: The id of the request.
            was_retried: Whether the gateway tries again.
            concerns_health: Whether the deployment may fail for other requests, too.
        """
        if isinstance(error, ModelError):
            if self.metrics is not None:
                self.metrics.upstream_errors(provider, error.info.kind).inc()
            # The address that was called, where it may be the fault. Clients do not get it.
            if error.address is not None:
                log.warning("the provider %s at %s: %s", provider, error.address, error.info.message)
        self.live_runs.record_failure(
            model, deployment, error.info, request_id, was_retried=was_retried, concerns_health=concerns_health
        )

    def begin_request(self, scope: Scope) -> RequestTelemetry:
        return RequestTelemetry(self, scope)


class RequestTelemetry:
    """Telemetry of one request. The code that serves it sets the attributes; `end` reports them."""

    def __init__(self, telemetry: Telemetry, scope: Scope, turn: int | None = None) -> None:
        self.telemetry = telemetry
        headers = {name: value for name, value in scope["headers"] if name in _HEADERS}
        client_request_id = names.safe_id(headers.get(b"x-request-id", b"").decode("latin-1"))
        self.id = client_request_id or f"req_{secrets.token_hex(12)}"
        self.method = "WEBSOCKET" if scope["type"] == "websocket" else str(scope["method"])
        self.path = _LINK_TOKEN.sub(r"\1{token}", str(scope["path"]))
        """The path in logs. The token of a link that shares a chat is left out, wherever the request is answered."""
        self.route = NO_ROUTE
        self.protocol = NO_ROUTE
        self.status = 0
        """The status of the response; 0: not answered yet."""
        self.error: str | None = None
        """The kind of the error with which it was answered."""
        self.principal = Principal("")
        self.model: str | None = None
        """The model's public name."""
        self.response_id: str | None = None
        self.failed_deployments: list[DeploymentFailure] = []
        """The deployments that did not answer."""
        self.has_deployments = False
        """Whether the model has several deployments, which report their failures themselves."""
        self.is_stream = False
        self.run: RunTelemetry | None = None
        self.has_ended = False
        self._scope = scope
        self._turn_count = 0
        self.started_at = time.monotonic()
        # A socket is open for an hour: each of its turns has a span, the socket itself has none.
        self.span: Span | None = None
        if (scope["type"] == "http" or turn is not None) and self.path not in PROBE_PATHS:
            carrier = {name.decode(): value.decode("latin-1") for name, value in headers.items()}
            attributes = {names.HTTP_METHOD: _known_method(self.method), names.REQUEST_ID: self.id}
            self.span = telemetry.tracing.start_request(_known_method(self.method), attributes, carrier)

    @property
    def response_header(self) -> tuple[bytes, bytes]:
        """The header with the request's id, for every response."""
        return b"x-request-id", self.id.encode()

    @property
    def described_failures(self) -> list[str]:
        """The failures of deployments so far, as `PROVIDER/MODEL:CAUSE`."""
        return [f"{failure.name}:{failure.cause}" for failure in self.failed_deployments]

    def begin_turn(self) -> RequestTelemetry:
        """Return the telemetry of the next turn within a socket."""
        self._turn_count += 1
        turn = RequestTelemetry(self.telemetry, self._scope, self._turn_count)
        turn.id = f"{self.id}.{self._turn_count}"
        turn.route, turn.protocol, turn.principal = self.route, self.protocol, self.principal
        request_id.set(turn.id)
        return turn

    def begin_stream(self) -> None:
        """The response is a stream, and begins."""
        self.status, self.is_stream = 200, True
        if self.telemetry.metrics is not None:
            self.telemetry.metrics.open_streams(self.protocol).inc()

    def record_error(self, status: int, error: ErrorInfo) -> None:
        """The request is answered with an error."""
        self.status, self.error = status, error.kind

    def begin_run(self, model: ChatModel, tool_names: Container[str]) -> RunTelemetry:
        """Return the telemetry of a run that this request begins."""
        self.run = RunTelemetry(self, model, tool_names)
        return self.run

    def end(self) -> None:
        """Report the request, which is over. Idempotent."""
        if self.has_ended:
            return
        self.has_ended = True
        seconds = time.monotonic() - self.started_at
        status = self.status or CLIENT_CLOSED_REQUEST
        method = _known_method(self.method)
        metrics = self.telemetry.metrics
        if metrics is not None:
            metrics.requests(self.route, method, self.protocol, str(status)).inc()
            metrics.request_seconds(self.route, method, self.protocol).observe(seconds)
            if self.is_stream:
                metrics.open_streams(self.protocol).dec()
        if self.span is not None:
            self._end_span(self.span, method, status)
        level = logging.DEBUG if self.route in PROBE_PATHS else logging.INFO
        if log.isEnabledFor(level):
            log.log(level, "%s", LogLine("request", self._log_fields(status, seconds)))

    def _end_span(self, span: Span, method: str, status: int) -> None:
        has_route = self.route != NO_ROUTE
        span.update_name(f"{method} {self.route}" if has_route else method)
        run = self.run
        error = self.error or (run.error if run is not None else None)
        attributes = {
            names.HTTP_ROUTE: self.route if has_route else None,
            names.HTTP_STATUS: status,
            names.PROTOCOL: self.protocol,
            names.REQUEST_MODEL: self.model,
            names.RESPONSE_ID: self.response_id,
        }
        # OpenTelemetry's semantic conventions: a mistake in the request (4xx) is not a failure of the server.
        failed = status >= 500 or status < 400
        spans.end_span(span, attributes | (run.span_attributes if run is not None else {}), error, failed=failed)

    def _log_fields(self, status: int, seconds: float) -> dict[str, Any]:
        principal, run = self.principal, self.run
        return {
            "method": self.method,
            "path": self.path,
            "status": status,
            "seconds": round(seconds, 4),
            "request_id": self.id,
            "protocol": self.protocol,
            "owner": principal.owner or None,
            "key": principal.key_id,
            "model": self.model,
            "response_id": self.response_id,
            "stream": self.is_stream if self.model is not None else None,
            "error": self.error,
            "failed_deployments": ",".join(self.described_failures) or None,
            **(run.log_fields if run is not None else {}),
        }


class RunMeasurements(msgspec.Struct):
    """The measurements of one run. Seconds count from its opening; None: it did not come to that."""

    cost_nanos: int | None = None
    """In billionths of the currency, estimates included; None: no model that answered has prices."""
    first_thought: float | None = None
    first_answer: float | None = None
    thinking: float = 0.0
    characters: int = 0
    reasoning_characters: int = 0
    seconds: float = 0.0
    end: RunEndEvent = RunEndEvent("cancelled")


class RunTelemetry:
    """Telemetry of one run."""

    def __init__(self, request: RequestTelemetry, model: ChatModel, tool_names: Container[str]) -> None:
        telemetry = request.telemetry
        self.request = request
        self.metrics, self._tracing = telemetry.metrics, telemetry.tracing
        self.model_label = telemetry.model_label(request.model)
        self.model = self.observe(model)
        """The model, wrapped so that its turns are observed."""
        self.error: str | None = None
        self.span_attributes: dict[str, Any] = {}
        """Attributes for the request's span, when the run is over."""
        self.log_fields: dict[str, Any] = {}
        """Fields for the request's log line."""
        self._tool_names = tool_names
        self._turn: ModelStream | None = None
        self._deployments: dict[str, None] = {}
        """The deployments that were called, if the model has several."""
        self._upstream_ids: list[str] = []
        self._finish_reasons: list[str] = []
        self._span: Span | None = None
        """The span of the current turn."""
        self._turn_started_at = 0.0
        self._turn_error: str | None = None
        self._is_stopping = False
        self.source: DrivenRun | None = None
        """The run itself."""
        self._live_runs = telemetry.live_runs
        self._live_id: str | None = None
        """The id among the live runs. None: it is not among them."""
        self._is_open = False

    def observe(self, model: ChatModel) -> ChatModel:
        """Return a model whose turns are observed, in place of the one that was observed before."""
        self.model = observed = ObservedModel(model, self)
        self.origin = model.origin
        self._labels = (self.model_label, self.origin.provider)
        return observed

    # --- the run, as `metering.MeterStage` reports it ------------------------------------------------------------

    def on_opened(self) -> None:
        """The run has begun."""
        self._is_open = True
        self._add_live()
        if self.metrics is not None:
            self.metrics.open_runs(self.model_label).inc()

    def on_stopping(self) -> None:
        """The reader stops the run: errors from now on are a consequence of that."""
        self._is_stopping = True

    def on_event(self, event: Event) -> None:
        """A turn began, ended, or failed."""
        if isinstance(event, ResponseStartEvent):
            self.origin = event.origin
            self._labels = (self.model_label, event.origin.provider)
            if event.deployment is not None:
                self._deployments[event.deployment.name] = None
                if self._span is not None:
                    self._span.set_attribute(names.DEPLOYMENT, event.deployment.name)
            if self._span is not None:
                self._span.set_attribute(names.FIRST_CHUNK, time.monotonic() - self._turn_started_at)
        elif isinstance(event, ErrorEvent):
            if not self._is_stopping:
                self._turn_error = event.error.kind
                self._count_error(ModelError(event.error))
        elif isinstance(event, ResponseEndEvent):
            if self.metrics is not None and (unread := getattr(self._turn, "unread_fields", None)):
                self.metrics.count_unread_fields(self.origin.provider, unread)
            # A turn whose deployment failed in its thoughts ends as paused, too.
            if event.finish_reason not in ("error", "pause") and not self._is_stopping:
                self._live_runs.record_success(self.request.model, self.deployment)
            reasons = [event.finish_reason] if event.finish_reason is not None else []
            self._finish_reasons += reasons
            if self._span is not None:
                error = "cancelled" if self._is_stopping else self._turn_error
                self._end_turn({names.FINISH_REASONS: reasons or None, **spans.usage_attributes(event.usage)}, error)

    def on_ended(self, measurements: RunMeasurements) -> None:
        """The run, which was opened, is over. Called once."""
        end, usage = measurements.end, measurements.end.usage
        self._live_runs.count_end(end.status)
        self._remove_live()
        self.error = end.error.kind if end.error is not None else None
        self._end_turn({}, self.error or end.status)
        if self.metrics is not None:
            self._count_metrics(self.metrics, measurements)
        self.log_fields = {
            "run": end.status,
            "run_error": self.error,
            "first_reasoning": _round(measurements.first_thought),
            "first_answer": _round(measurements.first_answer),
            "thinking": _round(measurements.thinking or None),
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.output_reasoning_tokens,
            **_cost_field(measurements),
            "upstream": ",".join(self._upstream_ids) or None,
            "deployment": ",".join(self._deployments) or None,
        }
        if self.request.span is not None:
            self.span_attributes = {
                names.OPERATION: names.CHAT,
                names.PROVIDER: telemetry_name(self.origin.provider),
                names.FINISH_REASONS: self._finish_reasons or None,
                names.RUN_STATUS: end.status,
                names.FIRST_CHUNK: _first_chunk_seconds(measurements),
                **spans.usage_attributes(usage),
            }
        if self.request.has_ended and log.isEnabledFor(logging.INFO):
            fields = {
                "seconds": _round(measurements.seconds),
                "request_id": self.request.id,
                "model": self.request.model,
                "response_id": self.request.response_id,
                "failed_deployments": ",".join(self.request.described_failures) or None,
            }
            log.info("%s", LogLine("run", fields | self.log_fields))

    def _count_metrics(self, metrics: Metrics, measurements: RunMeasurements) -> None:
        labels, usage = self._labels, measurements.end.usage
        metrics.open_runs(self.model_label).dec()
        metrics.run_ends(*labels, measurements.end.status).inc()
        metrics.run_seconds(*labels).observe(measurements.seconds)
        for family, seconds in (
            (metrics.first_reasoning_seconds, measurements.first_thought),
            (metrics.first_answer_seconds, measurements.first_answer),
            (metrics.thinking_seconds, measurements.thinking or None),
        ):
            if seconds is not None:
                family(*labels).observe(seconds)
        for counter, tokens in (
            (metrics.input_tokens, usage.input_tokens),
            (metrics.output_tokens, usage.output_tokens),
            (metrics.reasoning_tokens, usage.output_reasoning_tokens),
        ):
            if tokens is not None and tokens > 0:
                counter(*labels).inc(tokens)
        if measurements.cost_nanos:
            metrics.cost(*labels).inc(measurements.cost_nanos / NANOS)

    # --- turns ---------------------------------------------------------------------------------------------------

    def begin_turn(self, model: ChatModel, call: ModelCall) -> None:
        self._add_live()
        self._turn = self._turn_error = None
        self._turn_started_at = time.monotonic()
        if self.metrics is not None:
            self.metrics.turns(*self._labels).inc()
        parent = self.request.span
        # Also when the request is over: a background run belongs to the request that began it.
        if parent is not None and parent.get_span_context().trace_flags.sampled:
            self._span = self._tracing.start_turn(parent, f"{names.CHAT} {model.name}", _turn_attributes(model, call))

    def on_turn_opened(self, turn: ModelStream) -> None:
        self._turn = turn
        self._note_upstream_id(turn.request_id)

    def _note_upstream_id(self, upstream_id: str | None) -> None:
        upstream_id = names.safe_id(upstream_id)
        if upstream_id is not None:
            self._upstream_ids.append(upstream_id)
            if self._span is not None:
                self._span.set_attribute(names.UPSTREAM_REQUEST_ID, upstream_id)

    def on_turn_failed(self, error: BaseException) -> None:
        """The model could not be called."""
        kind = error.info.kind if isinstance(error, ModelError) else None
        if isinstance(error, ModelError):
            self._note_upstream_id(error.request_id)
            self._count_error(error)
        self._end_turn({}, kind or type(error).__name__)
        if not self._is_open:
            self._remove_live()
            if isinstance(error, ModelError):
                self._live_runs.count_end("failed")

    def _end_turn(self, attributes: dict[str, Any], error: str | None) -> None:
        span, self._span = self._span, None
        attributes |= {names.FAILED_DEPLOYMENTS: self.request.described_failures or None}
        spans.end_span(span, attributes, error, failed=error != "cancelled")

    def _count_error(self, error: ModelError) -> None:
        request, cause = self.request, cause_of(error)
        if request.has_deployments and cause is not None:
            # They have reported their failures (`Telemetry.record_deployment_failure`).
            if self._turn is None:  # none of them answered
                self._live_runs.record_failure(request.model, None, error.info, request.id, concerns_health=False)
            return
        request.telemetry.record_failure(
            error,
            self.model.origin.provider,
            model=request.model,
            deployment=self.deployment,
            request_id=request.id,
            concerns_health=cause in HEALTH_CAUSES,
        )

    # --- what an operator sees while it runs -----------------------------------------------------------------------

    @property
    def deployment(self) -> str:
        """The deployment that answers, or was called last."""
        return self.model.origin.deployment

    def describe(self, id: str, replica: str, *, attached: bool) -> RunStatus | None:
        """Return what an operator sees of the run; None if it has ended."""
        source, request = self.source, self.request
        if source is None or source.ended is not None:
            return None
        seconds = time.monotonic() - request.started_at
        return RunStatus(
            id=id,
            replica=replica,
            request_id=request.id,
            response_id=request.response_id,
            protocol=request.protocol,
            model=request.model,
            deployment=self.deployment,
            owner=request.principal.owner,
            key=request.principal.key_id,
            started_at=round(time.time() - seconds, 3),
            seconds=round(seconds, 3),
            state=source.state,
            characters=source.characters,
            attached=attached,
        )

    def _add_live(self) -> None:
        if self._live_id is None:
            self._live_id = self._live_runs.add(self)

    def _remove_live(self) -> None:
        if self._live_id is not None:
            self._live_runs.remove(self._live_id)
            self._live_id = self.source = None

    # --- tools ---------------------------------------------------------------------------------------------------

    @contextmanager
    def trace_tool_call(self, call: ToolCallPart) -> Iterator[Callable[[ToolReturnPart | RetryPromptPart], None]]:
        """Trace one call of a tool. The caller passes the result to the yielded function."""
        name = call.tool_name if call.tool_name in self._tool_names else OTHER
        attributes = {
            names.OPERATION: names.EXECUTE_TOOL,
            names.TOOL_NAME: name,
            names.TOOL_TYPE: "function",
            names.TOOL_CALL_ID: names.safe_id(call.tool_call_id),
        }
        parent = self.request.span
        span = (
            self._tracing.start_tool_call(parent, f"{names.EXECUTE_TOOL} {name}", attributes)
            if parent is not None
            else None
        )
        outcome = "cancelled"
        started_at = time.monotonic()

        def set_result(result: ToolReturnPart | RetryPromptPart) -> None:
            nonlocal outcome
            outcome = result.outcome if isinstance(result, ToolReturnPart) else "retry"

        try:
            # Spans of the tool are children of this one. An exception's message must not be in a span.
            with (
                nullcontext() if span is None else use_span(span, record_exception=False, set_status_on_exception=False)
            ):
                yield set_result
        finally:
            if self.metrics is not None:
                self.metrics.tool_calls(name, outcome).inc()
                self.metrics.tool_seconds(name).observe(time.monotonic() - started_at)
            spans.end_span(span, {names.TOOL_OUTCOME: outcome}, None if outcome == "success" else outcome)


class ObservedModel:
    """A model whose turns are observed. The streams of turns are the model's own: nothing wraps them."""

    def __init__(self, model: ChatModel, telemetry: RunTelemetry) -> None:
        self.name = model.name
        self._model = model
        self._telemetry = telemetry

    @property
    def origin(self) -> Origin:
        """The origin of the deployment that answers, or was called last."""
        return self._model.origin

    async def open(self, call: ModelCall) -> ModelStream:
        telemetry = self._telemetry
        telemetry.begin_turn(self._model, call)
        try:
            turn = await self._model.open(call)
        except BaseException as error:
            telemetry.on_turn_failed(error)
            raise
        telemetry.on_turn_opened(turn)
        return turn

    def warnings(self, call: ModelCall) -> list[str]:
        return self._model.warnings(call)


_HEADERS = (b"x-request-id", b"traceparent", b"tracestate")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "WEBSOCKET"})


def _known_method(method: str) -> str:
    """Return the method, or one label for all unknown ones: clients can invent methods."""
    return method if method in _METHODS else "_OTHER"


def _turn_attributes(model: ChatModel, call: ModelCall) -> dict[str, Any]:
    host, port = getattr(model, "address", None) or (None, None)
    settings = {name: call.settings.get(field) for field, name in names.SETTING_ATTRIBUTES.items()}
    return {
        names.OPERATION: names.CHAT,
        names.PROVIDER: telemetry_name(model.origin.provider),
        names.REQUEST_MODEL: model.name,
        names.REQUEST_STREAM: call.stream,
        names.SERVER_ADDRESS: host,
        names.SERVER_PORT: port,
        **{name: value for name, value in settings.items() if isinstance(value, int | float)},
    }


def _cost_field(measurements: RunMeasurements) -> dict[str, float | None]:
    """Return the field of the log with the cost, whose name says whether it is an estimate."""
    nanos = measurements.cost_nanos
    is_exact = nanos is None or measurements.end.usage.cost_nanos is not None
    return {"cost" if is_exact else "estimated_cost": None if nanos is None else nanos / NANOS}


def _first_chunk_seconds(measurements: RunMeasurements) -> float | None:
    return min((s for s in (measurements.first_thought, measurements.first_answer) if s is not None), default=None)


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


EXPORT_TIMEOUT_SECONDS = 3
"""How long to wait for a collector that does not answer, also when the gateway stops."""


def configure_logging(config: TelemetryConfig) -> None:
    """Write the log to stderr. Called once at the start of a process, and not for each gateway."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(config.log))
    log.handlers[:] = [handler]
    log.setLevel(config.log_level.upper())
    log.propagate = False


def create_tracer_provider(config: TelemetryConfig) -> TracerProvider | None:
    """Return a provider of tracers that sends spans to `otlp_endpoint`; None if it is not configured.

    Raises:
        ConfigError: The extra is not installed.
    """
    endpoint = config.otlp_endpoint
    if endpoint is None:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            ["telemetry.otlp_endpoint: sending traces needs an extra: pip install 'pellucid[otel]'"]
        ) from error
    url = endpoint if endpoint.endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
    # Other settings come from the standard environment variables (OTEL_…).
    service_name = os.environ.get("OTEL_SERVICE_NAME", "pellucid")
    timeout_seconds = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else EXPORT_TIMEOUT_SECONDS
    provider = trace.TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=timeout_seconds)))
    return provider


def shut_down_tracer_provider(provider: TracerProvider | None) -> None:
    """Send the remaining spans, and stop. It may block, so it must not run in the event loop."""
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        shutdown()
