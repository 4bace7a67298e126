"""Spans are exported to a collector over HTTP, the last ones when the gateway stops."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from pellucid.errors import ConfigError
from pellucid.server.config import TelemetryConfig, check_config
from pellucid.server.observability import create_tracer_provider
from tests.scripted import Upstream, say
from tests.scripted.gateway import serve
from tests.telemetry.telemetry_kit import config_of


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    came: list[tuple[str, ExportTraceServiceRequest]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            came.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_spans_are_exported_to_a_collector(upstream: Upstream) -> None:
    model = upstream.plays(say())
    with collector() as (url, came):
        with serve(config_of(upstream, model, telemetry={"otlp_endpoint": url})) as gateway:
            assert gateway.ask(model).status == 200
        assert {path for path, _ in came} == {"/v1/traces"}
        exported = [
            (resource, span.name)
            for _, request in came
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
    assert {name for _, name in exported} == {f"chat {model}", "POST /v1/responses"}
    service = {a.key: a.value.string_value for a in exported[0][0].resource.attributes}["service.name"]
    assert service == "pellucid"


def test_an_unreachable_collector_blocks_no_request(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.server.observability.EXPORT_TIMEOUT_SECONDS", 0.1)
    model = upstream.plays(say())
    with serve(config_of(upstream, model, telemetry={"otlp_endpoint": "http://127.0.0.1:9"})) as gateway:
        assert gateway.ask(model).status == 200


def test_a_configuration_error_names_its_key(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as wrong:
        check_config(config_of(upstream, "m", telemetry={"otlp_endpoint": "collector:4318", "log": "xml"}), {})
    assert [mistake.split(":")[0] for mistake in wrong.value.mistakes] == ["telemetry.log", "telemetry.otlp_endpoint"]
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"pellucid\[otel\]"):
        create_tracer_provider(TelemetryConfig(otlp_endpoint="http://127.0.0.1:9"))
