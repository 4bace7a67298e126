"""Where what is told goes: lines to stderr, spans to a collector. What does the telling is in `observe`."""

from __future__ import annotations

import logging
import os

from opentelemetry.trace import TracerProvider

from ..errors import ConfigError
from ..telemetry import log
from ..telemetry.lines import formatter
from .config import TelemetryConfig

PATIENCE_SECONDS = 3
"""How long a collector that does not answer is waited for, also by a gateway that stops."""


def set_up_log(config: TelemetryConfig) -> None:
    """Write what is logged to stderr. For the process: called where one begins, and not where a gateway is made."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(config.log))
    log.handlers[:] = [handler]
    log.setLevel(config.log_level.upper())
    log.propagate = False


def exporting(config: TelemetryConfig) -> TracerProvider | None:
    """A provider of tracers that sends its spans to `otlp_endpoint`. Raises `ConfigError` without the extra."""
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
    # What else is usual is taken from the environment by its usual names (OTEL_…).
    name = os.environ.get("OTEL_SERVICE_NAME", "pellucid")
    patience = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else PATIENCE_SECONDS
    provider = trace.TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url, timeout=patience)))
    return provider


def flush(provider: TracerProvider | None) -> None:
    """Send what is left, and stop. It may take a moment: not for the event loop."""
    shutdown = getattr(provider, "shutdown", None)
    if shutdown is not None:
        shutdown()
