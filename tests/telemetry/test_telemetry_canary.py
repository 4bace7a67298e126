"""The canary of the views is in no log line at level debug, no metric, no span and not in `/api/status`: for every
wire, in the raw view and in each lesser view."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scripted import Call, Script, Upstream
from tests.scripted.gateway import Served
from tests.telemetry.telemetry_kit import CapturedTelemetry, captured_telemetry
from tests.view.canary_wires import CANARIES, ERROR, Canary
from tests.view.view_kit import SECRET, SUMMARY

VIEWS = ("raw", "summary", "sealed", "hidden")
QUESTION, ARGUED = "what-is-asked-of-it", "what-a-tool-is-told"
SECRETS = (SECRET, SUMMARY, QUESTION, ARGUED, "The answer.", "Lyon")


def plays(canary: Canary) -> Script:
    async def script(call: Call) -> None:
        await call.answer(200, canary.body, canary.content_type)

    return script


async def refuses(call: Call) -> None:
    await call.answer(400, json.dumps({"error": ERROR}).encode(), x_request_id=f"{SECRET} {SECRET}")


async def talks_nonsense(call: Call) -> None:
    await call.answer(200, f"{SECRET}: {SECRET}\n\ndata: {SECRET}\n\n".encode(), "text/event-stream")


def all_telemetry(captured: CapturedTelemetry, gateway: Served) -> str:
    """Return the log lines, the spans, the metrics and the state for operators as one text."""
    lines = "\n".join(captured.written)
    spans = "\n".join(span.to_json() for span in captured.spans)
    state = gateway.request("GET", "/api/status").body
    return lines + spans + (gateway.request("GET", "/metrics").body + state).decode()


@pytest.mark.parametrize("stream", [True, False])
def test_no_reasoning_is_in_logs_metrics_or_spans(upstream: Upstream, stream: bool) -> None:
    providers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    for canary in CANARIES:
        # Some wires put the model's name in the path: the call is played by the key that every request carries.
        models[f"{canary.row} {canary.name}"] = {"provider": canary.row, "model": canary.model}
        base = f"{upstream.url}/{canary.row}"
        providers[canary.row] = {"base_url": base, "limits": {"retries": 0}, "models": [f"unused-{canary.row}"]}
    scripts = {f"{canary.row} {canary.name}": plays(canary) for canary in CANARIES}
    scripts |= {"vllm refuses": refuses, "vllm nonsense": talks_nonsense}
    models |= {name: {"provider": "vllm", "model": "m"} for name in ("vllm refuses", "vllm nonsense")}
    playing: list[Script] = []

    async def any_of_them(call: Call) -> None:
        await playing[-1](call)

    sung = 0
    original, upstream._scripts = upstream._scripts, _Always(any_of_them)
    try:
        with captured_telemetry({"providers": providers, "models": models}) as (gateway, captured):
            for name, script in scripts.items():
                playing.append(script)
                for view in VIEWS:
                    body = {"model": name, "input": QUESTION, "stream": stream, "instructions": ARGUED}
                    reply = gateway.post(body, {"Pellucid-View": view})
                    sung += SECRET.encode() in reply.body
                chat = {"model": name, "messages": [{"role": "user", "content": QUESTION}], "stream": stream}
                gateway.request("POST", "/v1/chat/completions", json.dumps(chat).encode())
            gateway.idle()
            everything = all_telemetry(captured, gateway)
    finally:
        upstream._scripts = original
    assert sung >= len(CANARIES) // 2, "the raw view has the canary"
    assert len(captured.lines) >= len(scripts) * 5
    assert len(captured.named("chat ")) == len(scripts) * 5
    for secret in SECRETS:
        at = everything.find(secret)
        assert at < 0, everything[max(0, at - 300) : at + 100]


class _Always(dict[str, Script]):
    """Scripts in which every name has the same script."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def get(self, name: str, default: Any = None) -> Script:
        return self._script
