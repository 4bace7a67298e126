"""Metrics, spans and log lines of requests, runs, turns and tools agree with the requests of the test."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from pellucid.telemetry.metrics import MAX_FIELDS
from pellucid.telemetry.spans import Tracing
from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import serve
from tests.telemetry.telemetry_kit import calls, captured_telemetry, config_of, metrics
from tests.waiting import LIMIT_SECONDS, wait_until

TOOLS = {"functions": ["tests.telemetry.telemetry_kit:add", "tests.telemetry.telemetry_kit:broken"]}
RUN = 'model="{}",provider="vllm"'


def test_a_run_with_tools_has_metrics_spans_and_lines(upstream: Upstream) -> None:
    model = upstream.plays(
        calls("add", '{"a": 1, "b": 2}'), calls("broken", '{"words": "t0psecret"}'), calls("add", "{}"), say()
    )
    with captured_telemetry(config_of(upstream, model, tools=TOOLS)) as (gateway, captured):
        trace = "0af7651916cd43dd8448eb211c80319c"
        reply = gateway.post(
            {"model": model, "input": "Why?", "stream": True}, {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        )
        gateway.idle()
        numbers = metrics(gateway)
    assert reply.status == 200

    run = RUN.format(model)
    assert numbers[f'pellucid_run_ends_total{{{run},status="completed"}}'] == 1
    assert numbers[f"pellucid_upstream_turns_total{{{run}}}"] == 4
    assert numbers[f"pellucid_input_tokens_total{{{run}}}"] == 3 * 5 + 7
    assert numbers[f"pellucid_output_tokens_total{{{run}}}"] == 3 * 6 + 9
    assert numbers[f"pellucid_reasoning_tokens_total{{{run}}}"] == 3 * 2
    for name in ("first_reasoning", "first_answer", "thinking", "run"):
        assert numbers[f"pellucid_{name}_seconds_count{{{run}}}"] == 1
    assert numbers['pellucid_tool_calls_total{outcome="success",tool="add"}'] == 1
    assert numbers['pellucid_tool_calls_total{outcome="retry",tool="add"}'] == 1
    assert numbers['pellucid_tool_calls_total{outcome="failed",tool="broken"}'] == 1
    assert numbers['pellucid_tool_seconds_count{tool="add"}'] == 2
    assert numbers[f'pellucid_open_runs{{model="{model}"}}'] == 0
    assert numbers['pellucid_open_streams{protocol="openresponses"}'] == 0

    [request] = captured.named("POST")
    assert (request.name, request.kind) == ("POST /v1/responses", SpanKind.SERVER)
    assert request.parent is not None
    assert format(request.parent.span_id, "016x") == "b7ad6b7169203331"
    attributes = dict(request.attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.model"] == model
    assert attributes["gen_ai.response.id"] == reply.events[0]["response"]["id"]
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (22, 27)
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == 6
    assert attributes["pellucid.request_id"] == reply.headers["x-request-id"]
    turns, tools = captured.named("chat "), captured.named("execute_tool ")
    assert [(span.kind, span.status.status_code) for span in turns] == [(SpanKind.CLIENT, StatusCode.UNSET)] * 4
    assert [dict(span.attributes or {})["gen_ai.response.finish_reasons"] for span in turns] == [
        *([("tool_call",)] * 3),
        ("stop",),
    ]
    assert [span.name for span in tools] == ["execute_tool add", "execute_tool broken", "execute_tool add"]
    assert [dict(span.attributes or {}).get("error.type") for span in tools] == [None, "failed", "retry"]
    for span in (*turns, *tools):
        assert span.parent is not None
        assert span.parent.span_id == request.context.span_id
        assert format(span.context.trace_id, "032x") == trace

    line = next(line for line in captured.lines if line["path"] == "/v1/responses")
    assert line["what"] == "request"
    assert (line["status"], line["run"], line["model"], line["owner"]) == (200, "completed", model, "local")
    assert (line["input_tokens"], line["output_tokens"], line["reasoning_tokens"]) == (22, 27, 6)
    assert line["upstream"] == "up-1,up-1,up-1"
    assert "t0psecret" not in "".join(captured.written)


async def _fails_midway(call: Call) -> None:
    await call.head()
    await call.event(delta(content="Hm"))
    await call.event({"error": {"message": "t0psecret", "type": "overloaded_error", "code": "t0psecret"}})
    await call.end()


async def _refuses(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "t0psecret"}}', request_id="up-9")


@pytest.mark.parametrize(("script", "kind"), [(_fails_midway, "unavailable"), (_refuses, "too_many_requests")])
def test_a_failure_of_the_provider_is_counted_once(upstream: Upstream, script: Any, kind: str) -> None:
    model = upstream.plays(script)
    with captured_telemetry(config_of(upstream, model)) as (gateway, captured):
        for stream in (True, False):
            gateway.ask(model, stream=stream)
        gateway.idle()
        numbers = metrics(gateway)
    assert numbers[f'pellucid_upstream_errors_total{{kind="{kind}",provider="vllm"}}'] == 2
    for span in captured.spans:
        assert dict(span.attributes or {})["error.type"] == kind
    assert "t0psecret" not in "".join(captured.written)
    if script is _refuses:
        assert {line.get("error") for line in captured.lines if line["path"] == "/v1/responses"} == {kind}
        assert [dict(span.attributes or {})["pellucid.upstream.request_id"] for span in captured.named("chat")] == [
            "up-9"
        ] * 2


def test_a_disconnect_and_a_shutdown_are_no_failures_of_the_model(upstream: Upstream) -> None:
    model = upstream.plays(_hangs)
    with captured_telemetry(config_of(upstream, model)) as (gateway, captured):
        with gateway.open(model) as stream:
            stream.until("Hm")
            numbers = metrics(gateway)
            assert numbers['pellucid_open_streams{protocol="openresponses"}'] == 1
            assert numbers[f'pellucid_open_runs{{model="{model}"}}'] == 1
        gateway.idle()
        numbers = metrics(gateway)
    assert numbers[f'pellucid_run_ends_total{{{RUN.format(model)},status="cancelled"}}'] == 1
    assert numbers['pellucid_open_streams{protocol="openresponses"}'] == 0
    assert not [name for name in numbers if "upstream_errors" in name]
    assert [dict(span.attributes or {})["error.type"] for span in captured.named("chat")] == ["cancelled"]


def test_labels_are_bounded(upstream: Upstream) -> None:
    """Unknown model names of clients add no label values."""
    upstream.plays(say())
    config = {"providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway:
        gateway.ask("warm-up")
        before = len(metrics(gateway))
        for n in range(20):
            assert gateway.ask(f"made-up-{n}").status == 200
            gateway.request("GET", f"/made/up/{n}")
            gateway.request("GET", f"/v1/responses/resp_{n}")
            gateway.request(f"MADEUP{n}", "/v1/responses")
        numbers = metrics(gateway)
    assert "made-up" not in str(numbers)
    assert numbers['pellucid_upstream_turns_total{model="other",provider="vllm"}'] == 21
    # Two more routes and one more method, each with one status, and their durations.
    assert len(numbers) - before < 100


def test_gateways_of_one_process_have_separate_metrics(upstream: Upstream) -> None:
    model = upstream.plays(say())
    name = f'pellucid_run_ends_total{{{RUN.format(model)},status="completed"}}'
    with serve(config_of(upstream, model)) as one, serve(config_of(upstream, model)) as other:
        one.ask(model)
        assert metrics(one)[name] == 1
        assert name not in metrics(other)


def test_metrics_need_access_to_the_gateway(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sesame-open-the-door-please")
    from pellucid.server.config import check_config

    policies = {"user": {"models": ["*"]}, "operator": {"operator": True, "models": []}}

    def config(policy: str | None = None, **telemetry: bool) -> Any:
        access = {"key_env": "KEY", "policies": policies} | ({"key_policy": policy} if policy is not None else {})
        more = {"access": access, "telemetry": telemetry}
        return check_config(config_of(upstream, "m", **more), {"KEY": "sesame-open-the-door-please"})

    with serve(config()) as gateway:
        assert gateway.request("GET", "/metrics").status == 401
        key = {"Authorization": "Bearer sesame-open-the-door-please"}
        assert gateway.request("GET", "/metrics", headers=key).status == 200
        wanted = {**key, "Accept": "application/openmetrics-text; version=1.0.0"}
        assert gateway.request("GET", "/metrics", headers=wanted).body.endswith(b"# EOF\n")
    with serve(config("user")) as gateway:
        refused = gateway.request("GET", "/metrics", headers=key)
        assert (refused.status, refused.json["error"]["code"]) == (403, "operator_only")
        assert "pellucid keys create --operator" in refused.json["error"]["message"]
        assert gateway.request("GET", "/v1/models", headers=key).status == 200
    with serve(config("operator")) as gateway:
        assert gateway.request("GET", "/metrics", headers=key).status == 200
    with serve(config(metrics_open=True)) as gateway:
        assert gateway.request("GET", "/metrics").status == 200
    with serve(config(metrics=False, metrics_open=True)) as gateway:
        assert gateway.request("GET", "/metrics").status == 404


def test_every_response_has_a_request_id(upstream: Upstream) -> None:
    model = upstream.plays(say())
    with captured_telemetry(config_of(upstream, model)) as (gateway, captured):
        for method, path in (("GET", "/health"), ("GET", "/nowhere"), ("PUT", "/v1/responses"), ("GET", "/v1/models")):
            assert gateway.request(method, path).headers["x-request-id"].startswith("req_")
        accepted = gateway.post({"model": model, "input": "x"}, {"X-Request-Id": "mine-1"})
        refused = gateway.post({"model": model}, {"X-Request-Id": "two words"})
        gateway.request("GET", "/v1/models?key=t0psecret")
        gateway.idle()
    assert accepted.headers["x-request-id"] == "mine-1"
    assert refused.headers["x-request-id"].startswith("req_")
    assert {line["request_id"] for line in captured.lines} >= {"mine-1", refused.headers["x-request-id"]}
    assert "t0psecret" not in "".join(captured.written)


def test_a_background_run_has_its_own_line_and_spans(upstream: Upstream) -> None:
    model = upstream.plays(say())
    with captured_telemetry(config_of(upstream, model)) as (gateway, captured):
        reply = gateway.post({"model": model, "input": "x", "background": True})
        wait_until(lambda: any(line["what"] == "run" for line in captured.lines))
        numbers = metrics(gateway)
    [line] = [line for line in captured.lines if line["what"] == "run"]
    assert (line["run"], line["response_id"]) == ("completed", reply.json["id"])
    assert line["request_id"] == reply.headers["x-request-id"]
    assert (line["input_tokens"], line["output_tokens"]) == (7, 9)
    assert numbers[f'pellucid_run_ends_total{{{RUN.format(model)},status="completed"}}'] == 1
    [request], [turn] = captured.named("POST"), captured.named("chat")
    assert turn.parent is not None
    assert turn.parent.span_id == request.context.span_id


def test_each_turn_of_a_socket_is_a_request(upstream: Upstream) -> None:
    from websockets.sync.client import connect

    model = upstream.plays(say())

    def ask(socket: Any, **body: Any) -> list[Any]:
        socket.send(json.dumps({"type": "response.create", "store": False, **body}))
        messages: list[Any] = []
        while not messages or messages[-1]["type"] not in ("response.completed", "error"):
            messages.append(json.loads(socket.recv(LIMIT_SECONDS)))
        return messages

    with captured_telemetry(config_of(upstream, model)) as (gateway, captured):
        with connect(gateway.url.replace("http", "ws") + "/v1/responses") as socket:
            assert ask(socket, model=model, input="x")[-1]["type"] == "response.completed"
            assert ask(socket, model=model, input=7)[-1]["type"] == "error"
        gateway.idle()
        wait_until(lambda: len(captured.lines) >= 3)
        numbers = metrics(gateway)
    about = 'method="WEBSOCKET",protocol="openresponses",route="/v1/responses"'
    assert [numbers[f'pellucid_requests_total{{{about},status="{status}"}}'] for status in (101, 200, 400)] == [1, 1, 1]
    one, two, whole = [line for line in captured.lines if line["path"] == "/v1/responses"]
    assert (one["request_id"], two["request_id"]) == (f"{whole['request_id']}.1", f"{whole['request_id']}.2")
    assert (one["run"], two["error"]) == ("completed", "invalid_request")
    assert numbers['pellucid_open_streams{protocol="openresponses"}'] == 0
    assert len(captured.named("WEBSOCKET")) == 2


def test_without_a_tracer_there_are_no_spans() -> None:
    assert (
        Tracing().start_request("x", {}, {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
        is None
    )


async def _hangs(call: Call) -> None:
    await call.head()
    await call.event(delta(content="Hm"))
    await call.wait_for_disconnect()


def test_a_run_refused_by_a_limit_is_not_counted(upstream: Upstream) -> None:
    model = upstream.plays(_hangs)
    access = {"default_policy": "one", "policies": {"one": {"streams": 1}}}
    with captured_telemetry({**config_of(upstream, model), "access": access}) as (gateway, _):
        with gateway.open(model) as stream:
            stream.until("Hm")
            for streamed in (True, False):
                assert gateway.ask(model, stream=streamed, store=False).status == 429
                late = gateway.ask(model, stream=streamed, background=True, store=True)
                assert (late.status, late.error["code"]) == (429, "too_many_streams")
            assert metrics(gateway)[f'pellucid_open_runs{{model="{model}"}}'] == 1
        gateway.idle()
        numbers = metrics(gateway)
    assert numbers[f'pellucid_open_runs{{model="{model}"}}'] == 0
    assert [numbers[name] for name in numbers if name.startswith("pellucid_run_seconds_count") and model in name] == [1]


# --- fields that are not read --------------------------------------------------------------------------------------

UNREAD = 'pellucid_unread_fields_total{{field="{}",provider="{}"}}'


def thinks_in(field: str, *more: str) -> Script:
    """Return a script that thinks in a field that is not read."""

    async def script(call: Call) -> None:
        await call.head()
        for word in ("secret ", "thought "):
            await call.event(delta(**{field: word, **dict.fromkeys(more, word)}))
        await call.event(delta(content="42."))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return script


def test_fields_that_are_not_read_are_counted(upstream: Upstream) -> None:
    """Once for each turn, without their values."""
    model, plain = upstream.plays(thinks_in("my_thoughts")), upstream.plays(say())
    with captured_telemetry(config_of(upstream, model, plain)) as (gateway, captured):
        for _ in range(2):
            assert gateway.ask(model).status == 200
        assert gateway.ask(plain).status == 200
        numbers = metrics(gateway)
    assert {name: n for name, n in numbers.items() if "unread" in name and "_created" not in name} == {
        UNREAD.format("choices[].delta.my_thoughts", "vllm"): 2
    }
    assert "secret" not in str(numbers) + "".join(captured.written)


def test_unread_fields_of_a_deployment_are_those_of_its_provider(upstream: Upstream) -> None:
    model = upstream.plays(thinks_in("my_thoughts"))
    rows = [{"provider": name, "model": model, "order": n} for n, name in enumerate(("down", "house"), 1)]
    providers = {
        "down": {"profile": "vllm", "base_url": "http://127.0.0.1:1", "limits": {"retries": 0}},
        "house": {"profile": "vllm", "base_url": upstream.url},
    }
    with serve({"providers": providers, "models": {"m": {"deployments": rows}}}) as gateway:
        assert gateway.ask("m").status == 200
        numbers = metrics(gateway)
    assert numbers[UNREAD.format("choices[].delta.my_thoughts", "house")] == 1


def test_labels_of_unread_fields_are_bounded(upstream: Upstream) -> None:
    """Providers choose these names."""
    model = upstream.plays(*(thinks_in(f"thoughts_{n}", "Hm, a name", "x" * 99) for n in range(MAX_FIELDS + 8)))
    with serve({"providers": {"vllm": {"base_url": upstream.url, "models": [model]}}}) as gateway:
        for _ in range(MAX_FIELDS + 8):
            gateway.ask(model)
        numbers = metrics(gateway)
    names = [name for name in numbers if name.startswith("pellucid_unread_fields_total")]
    assert len(names) == MAX_FIELDS + 1
    assert numbers[UNREAD.format("other", "vllm")] == 9
    assert numbers[UNREAD.format("choices[].delta.…", "vllm")] == MAX_FIELDS + 8
    assert "Hm, a name" not in str(numbers)
