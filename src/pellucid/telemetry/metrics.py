"""The gateway's metrics for Prometheus, in a registry of their own.

Labels are from closed sets: a name that a client or a model chose is `other` unless the operator has configured it. A
metric's children are looked up once for each set of labels, and nothing here is called for a delta.

Several workers of one gateway count in files of one directory (`PROMETHEUS_MULTIPROC_DIR`, which their supervisor sets
before they start), and each of them reports the sum.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

MAX_FIELDS = 32
"""How many fields of one provider have a label; the others are `other`."""

Kind = TypeVar("Kind", Counter, Gauge, Histogram)

OTHER = "other"
LATENCY_BUCKETS_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
"""Buckets for the time to the first output, in seconds."""
DURATION_BUCKETS_SECONDS = (0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Buckets for the duration of a run or of its reasoning, in seconds."""


class LabeledMetric(Generic[Kind]):
    """A metric with labels: `metric("a", "b")` returns the child with these label values."""

    def __init__(self, metric: Kind) -> None:
        self.metric: Kind = metric
        self._children: dict[tuple[str, ...], Kind] = {}

    def __call__(self, *labels: str) -> Kind:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self.metric.labels(*labels)
        return child


class Metrics:
    """The metrics of one gateway."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._fields_of_provider: dict[str, set[str]] = {}
        request_labels = ("route", "method", "protocol")
        model_labels = ("model", "provider")
        self.requests = self._counter("requests", "Requests answered.", (*request_labels, "status"))
        self.request_seconds = self._histogram(
            "request_seconds", "From a request to the end of its answer.", request_labels
        )
        self.open_streams = self._gauge("open_streams", "Answers that are being streamed.", ("protocol",))
        self.open_runs = self._gauge("open_runs", "Runs in progress, detached runs included.", ("model",))
        self.run_ends = self._counter("run_ends", "Runs that ended, and how.", (*model_labels, "status"))
        self.run_seconds = self._histogram("run_seconds", "From a run's beginning to its end.", model_labels)
        self.first_reasoning_seconds = self._histogram(
            "first_reasoning_seconds",
            "From a run's beginning to its first token of reasoning.",
            model_labels,
            LATENCY_BUCKETS_SECONDS,
        )
        self.first_answer_seconds = self._histogram(
            "first_answer_seconds",
            "From a run's beginning to its first token of the answer.",
            model_labels,
            LATENCY_BUCKETS_SECONDS,
        )
        self.thinking_seconds = self._histogram("thinking_seconds", "Duration of the reasoning of a run.", model_labels)
        self.input_tokens = self._counter("input_tokens", "Tokens read, as providers report them.", model_labels)
        self.output_tokens = self._counter("output_tokens", "Tokens written, reasoning included.", model_labels)
        self.reasoning_tokens = self._counter("reasoning_tokens", "Tokens of reasoning.", model_labels)
        self.cost = self._counter("cost", "Costs by the operator's prices, estimates included.", model_labels)
        self.turns = self._counter("upstream_turns", "Requests to models, one for each turn.", model_labels)
        self.upstream_errors = self._counter("upstream_errors", "Failures of the models' side.", ("provider", "kind"))
        self.deployment_failures = self._counter(
            "deployment_failures", "Failures of deployments.", ("model", "deployment", "cause")
        )
        self.unread_fields = self._counter(
            "unread_fields", "Turns whose answer had a field that is not read.", ("provider", "field")
        )
        self.tool_calls = self._counter("tool_calls", "Calls of the server's own tools.", ("tool", "outcome"))
        self.tool_seconds = self._histogram("tool_seconds", "Duration of calls of the server's own tools.", ("tool",))

        webhook_labels = ("space", "webhook")
        self.webhook_deliveries = self._counter(
            "webhook_deliveries", "Deliveries of webhooks, by outcome.", (*webhook_labels, "outcome")
        )
        self.webhook_backlog = self._gauge(
            "webhook_backlog", "Envelopes of a space that a webhook has not processed.", webhook_labels
        )

    def count_unread_fields(self, provider: str, fields: Iterable[str]) -> None:
        """Count a turn for each field of its answer that is not read. The provider chose their names."""
        known = self._fields_of_provider.setdefault(provider, set())
        labels = set()
        for field in fields:
            if len(known) < MAX_FIELDS:
                known.add(field)
            labels.add(field if field in known else OTHER)
        for label in labels:
            self.unread_fields(provider, label).inc()

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in the format that the `Accept` header requests, and its content type."""
        encode, content_type = choose_encoder(accept)
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return encode(registry), content_type

    def _counter(self, name: str, description: str, labels: Sequence[str]) -> LabeledMetric[Counter]:
        return LabeledMetric(Counter(f"pellucid_{name}", description, labels, registry=self.registry))

    def _gauge(self, name: str, description: str, labels: Sequence[str]) -> LabeledMetric[Gauge]:
        # Gauges of a worker that died no longer count.
        mode: Literal["livesum"] = "livesum"
        return LabeledMetric(
            Gauge(f"pellucid_{name}", description, labels, registry=self.registry, multiprocess_mode=mode)
        )

    def _histogram(
        self, name: str, description: str, labels: Sequence[str], buckets: Sequence[float] = DURATION_BUCKETS_SECONDS
    ) -> LabeledMetric[Histogram]:
        return LabeledMetric(
            Histogram(f"pellucid_{name}", description, labels, registry=self.registry, buckets=buckets)
        )
