"""What Prometheus collects, in a registry of the gateway's own.

Labels are from closed sets: what a client or a model may call things is `other` unless the operator has named it so. A
metric's children are looked up once for each set of labels, and nothing here is called for a delta.

Several workers of one gateway count in files of one directory (`PROMETHEUS_MULTIPROC_DIR`, which their supervisor sets
before they begin), and each of them tells the sum.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Generic, Literal, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

Kind = TypeVar("Kind", Counter, Gauge, Histogram)

OTHER = "other"
QUICK = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
"""Seconds until something is seen."""
LONG = (0.1, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280)
"""Seconds that a run takes, or that it thinks."""


class Family(Generic[Kind]):
    """A metric with its labels: `family("a", "b")` is the child that counts."""

    def __init__(self, metric: Kind) -> None:
        self._metric: Kind = metric
        self._children: dict[tuple[str, ...], Kind] = {}

    def __call__(self, *labels: str) -> Kind:
        child = self._children.get(labels)
        if child is None:
            child = self._children[labels] = self._metric.labels(*labels)
        return child


class Metrics:
    """One gateway's."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        served = ("route", "method", "protocol")
        asked = ("model", "provider")
        self.requests = self._counter("requests", "Requests answered.", (*served, "status"))
        self.request_seconds = self._histogram("request_seconds", "From a request to the end of its answer.", served)
        self.open_streams = self._gauge("open_streams", "Answers that are being streamed.", ("protocol",))
        self.open_runs = self._gauge("open_runs", "Runs under way, those in the background among them.", ("model",))
        self.run_ends = self._counter("run_ends", "Runs that ended, and how.", (*asked, "status"))
        self.run_seconds = self._histogram("run_seconds", "From a run's beginning to its end.", asked)
        self.first_reasoning = self._histogram(
            "first_reasoning_seconds", "From a run's beginning to its first token of reasoning.", asked, QUICK
        )
        self.first_answer = self._histogram(
            "first_answer_seconds", "From a run's beginning to its first token of the answer.", asked, QUICK
        )
        self.thinking = self._histogram("thinking_seconds", "How long a run thought, if it did.", asked)
        self.input_tokens = self._counter("input_tokens", "Tokens read, as providers report them.", asked)
        self.output_tokens = self._counter("output_tokens", "Tokens written, reasoning included.", asked)
        self.reasoning_tokens = self._counter("reasoning_tokens", "Tokens of reasoning.", asked)
        self.turns = self._counter("upstream_turns", "Times that a model was asked.", asked)
        self.upstream_errors = self._counter("upstream_errors", "Failures of the models' side.", ("provider", "kind"))
        self.tool_calls = self._counter("tool_calls", "Calls of the server's own tools.", ("tool", "outcome"))
        self.tool_seconds = self._histogram("tool_seconds", "How long they took.", ("tool",))

    def text(self, accept: str) -> tuple[bytes, str]:
        """Everything, in the form that the `Accept` header asks for, and its content type."""
        encode, content_type = choose_encoder(accept)
        registry = self.registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return encode(registry), content_type

    def _counter(self, name: str, about: str, labels: Sequence[str]) -> Family[Counter]:
        return Family(Counter(f"pellucid_{name}", about, labels, registry=self.registry))

    def _gauge(self, name: str, about: str, labels: Sequence[str]) -> Family[Gauge]:
        # What a worker that died had open is not open any more.
        mode: Literal["livesum"] = "livesum"
        return Family(Gauge(f"pellucid_{name}", about, labels, registry=self.registry, multiprocess_mode=mode))

    def _histogram(
        self, name: str, about: str, labels: Sequence[str], buckets: Sequence[float] = LONG
    ) -> Family[Histogram]:
        return Family(Histogram(f"pellucid_{name}", about, labels, registry=self.registry, buckets=buckets))
