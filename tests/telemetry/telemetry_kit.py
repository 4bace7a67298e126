"""A gateway with captured telemetry: its log at level debug, its metrics, its spans."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pellucid.telemetry.lines import LogLine, formatter
from tests.scripted import Call, Script, Upstream, delta
from tests.scripted.gateway import Served, serve


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


def broken(words: str) -> str:
    """Breaks, and says on what."""
    raise RuntimeError(words)


class CapturedTelemetry(logging.Handler):
    """Handler that collects the log lines and the spans of a gateway."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []
        self.written: list[str] = []
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self._forms = [formatter("text"), formatter("json"), logging.Formatter()]

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.written += [form.format(record) for form in self._forms]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The fields of the lines about requests and runs."""
        lines = [record.args[0] for record in self.records if isinstance(record.args, tuple) and record.args]
        return [{"what": line.event, **line.fields} for line in lines if isinstance(line, LogLine)]

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, start: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name.startswith(start)]


@contextmanager
def captured_telemetry(config: dict[str, Any]) -> Iterator[tuple[Served, CapturedTelemetry]]:
    captured = CapturedTelemetry()
    root, ours = logging.getLogger(), logging.getLogger("pellucid")
    before = root.level, ours.level
    root.addHandler(captured)
    root.setLevel(logging.DEBUG)
    ours.setLevel(logging.DEBUG)
    try:
        with serve(config, tracers=captured.tracers) as gateway:
            yield gateway, captured
    finally:
        root.removeHandler(captured)
        root.setLevel(before[0])
        ours.setLevel(before[1])


def config_of(upstream: Upstream, *models: str, **more: Any) -> dict[str, Any]:
    provider = {"base_url": upstream.url, "models": list(models), "limits": {"retries": 0}}
    return {"providers": {"vllm": provider}, **more}


def calls(name: str, arguments: str) -> Script:
    """Return a script that thinks and calls a function."""

    async def script(call: Call) -> None:
        await call.head(x_request_id="up-1")
        await call.event(delta(reasoning_content="Hm."))
        function = {"name": name, "arguments": arguments}
        await call.event(delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": function}]))
        await call.event(delta("tool_calls"))
        usage = {"prompt_tokens": 5, "completion_tokens": 6, "completion_tokens_details": {"reasoning_tokens": 2}}
        await call.event({"choices": [], "usage": usage})
        await call.event(b"[DONE]")
        await call.end()

    return script


def metrics(gateway: Served, headers: dict[str, str] | None = None) -> dict[str, float]:
    """Return the value of every metric, by its name and labels."""
    body = gateway.request("GET", "/metrics", headers=headers).body.decode()
    samples = re.findall(r"^(\S+(?:\{.*\})?) (\S+)$", body, re.MULTILINE)
    return {name: float(value) for name, value in samples}
