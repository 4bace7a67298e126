"""OpenTelemetry spans: a request (SERVER), each turn of a model within it (CLIENT), each call of a tool (INTERNAL).

Without a tracer provider there are no spans, and no work is done for them. No span holds content, and none records an
exception, because its message may quote content.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import ProxyTracerProvider, Span, SpanKind, Status, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from . import names

Attributes = Mapping[str, Any]

_propagator = TraceContextTextMapPropagator()


class Tracing:
    """Starts spans.

    Args:
        provider: The tracer provider; by default the process's, if one is set.
    """

    def __init__(self, provider: TracerProvider | None = None) -> None:
        if provider is None:
            global_provider = trace.get_tracer_provider()
            provider = None if isinstance(global_provider, ProxyTracerProvider) else global_provider
        self._tracer = provider.get_tracer("pellucid") if provider is not None else None

    def start_request(self, name: str, attributes: Attributes, headers: Mapping[str, str]) -> Span | None:
        """Start a span for a request, in the trace that its headers name. None without a tracer provider."""
        if self._tracer is None:
            return None
        context = _propagator.extract(headers) if "traceparent" in headers else Context()
        return self._start(name, SpanKind.SERVER, attributes, context)

    def start_turn(self, parent: Span | None, name: str, attributes: Attributes) -> Span | None:
        """Start a span for a model's turn. None without a parent."""
        return self._start_child(parent, name, SpanKind.CLIENT, attributes)

    def start_tool_call(self, parent: Span | None, name: str, attributes: Attributes) -> Span | None:
        """Start a span for a tool call. None without a parent."""
        return self._start_child(parent, name, SpanKind.INTERNAL, attributes)

    def _start_child(self, parent: Span | None, name: str, kind: SpanKind, attributes: Attributes) -> Span | None:
        if parent is None:
            return None
        return self._start(name, kind, attributes, trace.set_span_in_context(parent, Context()))

    def _start(self, name: str, kind: SpanKind, attributes: Attributes, context: Context) -> Span:
        assert self._tracer is not None
        return self._tracer.start_span(
            name,
            context,
            kind,
            {key: value for key, value in attributes.items() if value is not None},
            record_exception=False,
            set_status_on_exception=False,
        )


def end_span(span: Span | None, attributes: Attributes, error: str | None = None, *, failed: bool = True) -> None:
    """End a span.

    Args:
        span: The span; None is ignored.
        attributes: The attributes that are known at the end.
        error: The kind of error.
        failed: Whether the error is the span's own failure.
    """
    if span is None:
        return
    span.set_attributes({key: value for key, value in attributes.items() if value is not None})
    if error is not None:
        span.set_attribute(names.ERROR_TYPE, error)
        if failed:
            span.set_status(Status(StatusCode.ERROR))
    span.end()


def usage_attributes(usage: Any) -> dict[str, int]:
    """Return the attributes of a usage."""
    return {
        name: value for field, name in names.USAGE_ATTRIBUTES.items() if (value := getattr(usage, field)) is not None
    }
