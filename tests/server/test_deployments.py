"""Models with several deployments: who is called, who answers instead, and what a client sees of it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from pellucid.asgi import streaming
from pellucid.background_tasks import wait_for_tasks
from pellucid.errors import ConfigError, ErrorInfo, ModelError, PellucidError, RequestError
from pellucid.events import DeploymentFailure
from pellucid.models import Model, ModelStream
from pellucid.models.deployments import (
    COOLDOWN_SECONDS,
    Cooldowns,
    DeployedModel,
    Deployment,
    DeploymentLimits,
    deployments_of,
)
from pellucid.parts import ModelRequest, ModelResponse, OpaquePart, Origin, TextPart, ThinkingPart, UserPromptPart
from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles
from pellucid.relay import MemoryRelay, RelayError
from pellucid.server.catalog import Catalog
from pellucid.server.config import check_config
from pellucid.settings import ModelCall
from pellucid.upstream import UpstreamClient
from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import Reply, Served, serve
from tests.server.loop_kit import legal_events
from tests.telemetry.telemetry_kit import captured_telemetry
from tests.waiting import LIMIT_SECONDS

ANSWERS = say("Let me see.", "It is 42.")
HEADER = "pellucid-deployment"


def answers_with(status: int, message: str = "not now", code: str | None = None, **headers: str) -> Script:
    async def script(call: Call) -> None:
        await call.answer(status, json.dumps({"error": {"message": message, "code": code}}).encode(), **headers)

    return script


async def fails_in_the_stream(call: Call) -> None:
    await call.head()
    await call.event(delta(role="assistant"))
    await call.event({"error": {"message": "overloaded", "type": "overloaded_error"}})
    await call.end()


async def breaks_before_a_word(call: Call) -> None:
    await call.head()
    call.reset()


def breaks_after(*fields: dict[str, Any]) -> Script:
    async def script(call: Call) -> None:
        await call.head()
        for each in fields:
            await call.event(delta(**each))
        await call.event({"error": {"message": "overloaded", "type": "overloaded_error"}})
        await call.end()

    return script


async def refuses_without_a_word(call: Call) -> None:
    await call.head()
    await call.event(delta("content_filter"))
    await call.event(b"[DONE]")
    await call.end()


def deployed_config(upstream: Upstream, *models: str, retries: int = 0, **more: Any) -> dict[str, Any]:
    """The configuration of a gateway whose model `m` has these deployments, in this order."""
    rows = [{"provider": "vllm", "model": model, "order": order} for order, model in enumerate(models)]
    return {
        "providers": {"vllm": {"base_url": upstream.url}},
        "limits": {"retries": retries, "retry_wait": 0.5},
        "models": {"m": {"deployments": rows, **more}},
    }


@contextmanager
def deployed(upstream: Upstream, *models: str, retries: int = 0, **more: Any) -> Iterator[Served]:
    """A gateway whose model `m` has these deployments, in this order."""
    with serve(deployed_config(upstream, *models, retries=retries, **more)) as running:
        yield running


def answer_of(reply: Reply) -> tuple[str, str]:
    """The text of a completed response, and the deployment that made it."""
    assert reply.status == 200, reply.body
    response = legal_events(reply)[-1]["response"] if reply.body.startswith(b"event:") else reply.json
    assert response["status"] == "completed", response
    return response["output"][-1]["content"][0]["text"].strip(), reply.headers.get(HEADER, "")


FAILURES = {
    "429": answers_with(429),
    "500": answers_with(500),
    "503": answers_with(503),
    "401": answers_with(401),
    "404": answers_with(404),
    "in the stream": fails_in_the_stream,
    "before a word": breaks_before_a_word,
}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("failure", FAILURES)
def test_the_next_deployment_answers(upstream: Upstream, failure: str, stream: bool) -> None:
    first, second = upstream.plays(FAILURES[failure]), upstream.plays(ANSWERS)
    with deployed(upstream, first, second) as gateway:
        text, named = answer_of(gateway.ask("m", stream))
        assert (text, named) == ("It is 42.", f"vllm/{second}")
        # It is not called again for a while.
        assert answer_of(gateway.ask("m", stream)) == ("It is 42.", f"vllm/{second}")
        metrics = gateway.request("GET", "/metrics").body.decode()
    assert (len(upstream.calls(first)), len(upstream.calls(second))) == (1, 2)
    cause = "rate_limit" if failure == "429" else "down"
    (line,) = [line for line in metrics.splitlines() if line.startswith("pellucid_deployment_failures_total{")]
    assert all(f'"{label}"' in line for label in ("m", f"vllm/{first}", cause))
    assert line.endswith(" 1.0")


def test_a_request_that_is_wrong_is_not_repeated(upstream: Upstream) -> None:
    first, second = upstream.plays(answers_with(400, "no such field")), upstream.plays(ANSWERS)
    with deployed(upstream, first, second) as gateway:
        assert gateway.ask("m").status == 400
    assert not upstream.calls(second)


def test_a_turn_with_text_is_not_repeated(upstream: Upstream) -> None:
    first = upstream.plays(breaks_after({"reasoning_content": "Hm. "}, {"content": "It "}))
    second = upstream.plays(ANSWERS)
    with deployed(upstream, first, second, retry_thoughts=True) as gateway:
        response = legal_events(gateway.ask("m", stream=True))[-1]["response"]
        assert response["status"] == "failed"
        assert not upstream.calls(second)


def test_after_thoughts_alone_another_deployment_answers_if_the_operator_wants_it(upstream: Upstream) -> None:
    first, second = upstream.plays(breaks_after({"reasoning_content": "Hm, well. "})), upstream.plays(ANSWERS)
    with deployed(upstream, first, second) as gateway:
        assert legal_events(gateway.ask("m", stream=True))[-1]["response"]["status"] == "failed"
        assert not upstream.calls(second)
    for stream in (True, False):
        first = upstream.plays(breaks_after({"reasoning_content": "Hm, well. "}))
        with deployed(upstream, first, second, retry_thoughts=True) as gateway:
            reply = gateway.ask("m", stream, store=True)
            response = legal_events(reply)[-1]["response"] if stream else reply.json
            thoughts = [item["content"][0]["text"] for item in response["output"] if item["type"] == "reasoning"]
            assert (response["status"], thoughts) == ("completed", ["Hm, well. ", "Let me see. "])
            # The second deployment starts again; the thought that was cut off is in the history of neither.
            assert [m["role"] for m in upstream.calls(second)[-1].body["messages"]] == ["user"]
            assert gateway.ask("m", previous_response_id=response["id"]).status == 200
            assert "Hm, well" not in json.dumps(upstream.calls(second)[-1].body)


def test_thoughts_are_repeated_a_few_times_at_most(upstream: Upstream) -> None:
    thinks = [upstream.plays(breaks_after({"reasoning_content": "Hm. "})) for _ in range(6)]
    with deployed(upstream, *thinks, retry_thoughts=True) as gateway:
        response = legal_events(gateway.ask("m", stream=True))[-1]["response"]
        assert (response["status"], len(response["output"])) == ("failed", 4)
    assert [len(upstream.calls(model)) for model in thinks] == [1, 1, 1, 1, 0, 0]
    first, *others = (upstream.plays(breaks_after({"reasoning_content": "Hm. "})) for _ in range(5))
    for names, counts in (others[:1], [1, 1, 0, 0, 0]), (others, [2, 2, 1, 1, 0]):
        fallbacks = {"down": [f"vllm:{name}" for name in names]}
        with deployed(upstream, first, retry_thoughts=True, fallbacks=fallbacks) as gateway:
            assert legal_events(gateway.ask("m", stream=True))[-1]["response"]["status"] == "failed"
        # Whatever has failed is in cooldown, so it is not called to repeat a thought.
        assert [len(upstream.calls(model)) for model in (first, *others)] == counts


def test_a_refusal_after_thoughts_is_not_repeated(upstream: Upstream) -> None:
    async def refuses(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm. "))
        await call.event({"error": {"message": "no", "code": "content_filter"}})
        await call.end()

    first, second = upstream.plays(refuses), upstream.plays(ANSWERS)
    with deployed(upstream, first, second, retry_thoughts=True) as gateway:
        assert legal_events(gateway.ask("m", stream=True))[-1]["response"]["status"] == "failed"
    assert (len(upstream.calls(first)), len(upstream.calls(second))) == (1, 0)


QUESTIONS: dict[str, dict[str, Any]] = {
    "/v1/responses": {"input": "Why?", "model": "m"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Why?"}], "model": "m"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 100, "model": "m"},
    "/ag-ui": {
        "threadId": "t",
        "runId": "r",
        "state": {},
        "tools": [],
        "context": [],
        "forwardedProps": {"model": "m"},
        "messages": [{"id": "1", "role": "user", "content": "Why?"}],
    },
    "/api/chat": {"text": "Why?", "model": "m"},
}


def stream_of(gateway: Served, path: str, **fields: Any) -> Reply:
    """The stream of an answer to a question in the protocol of a path."""
    body = QUESTIONS[path] | ({"stream": True} if path.startswith("/v1") else {}) | fields
    return gateway.request("POST", path, json.dumps(body).encode(), {"Content-Type": "application/json"})


@pytest.mark.parametrize("path", QUESTIONS)
def test_a_thought_that_another_deployment_follows_is_legal_in_every_protocol(upstream: Upstream, path: str) -> None:
    first, second = upstream.plays(breaks_after({"reasoning_content": "Hm, well. "})), upstream.plays(ANSWERS)
    with deployed(upstream, first, second, retry_thoughts=True) as gateway:
        reply = stream_of(gateway, path)
    assert reply.status == 200
    text = reply.body.decode()
    assert text.index("well.") < text.index("see.") < text.index("42.")
    assert "overloaded" not in text
    # The header names the one that began; the end of the stream, who answered.
    if path != "/api/chat":
        assert reply.headers[HEADER] == f"vllm/{first}"
    assert deployments_in(text)[-1] == answered_by(second, (first, "down"))


def deployments_in(text: str) -> list[Any]:
    """The values of all fields `deployment`, of a body or of the events of a stream."""
    values: list[Any] = []

    def search(value: Any) -> None:
        for name, member in value.items() if isinstance(value, dict) else ():
            if name == "deployment":
                values.append(member)
            search(member)
        for member in value if isinstance(value, list) else ():
            search(member)

    for line in text.splitlines():
        if (data := line.removeprefix("data: ")).startswith("{"):
            search(json.loads(data))
    return values


def answered_by(model: str, *failures: tuple[str, str]) -> dict[str, Any]:
    failed = [{"name": f"vllm/{name}", "cause": cause} for name, cause in failures]
    return {"name": f"vllm/{model}", "failed": failed}


@pytest.mark.parametrize("path", QUESTIONS)
@pytest.mark.parametrize("failure", ["429", "before a word"])
def test_the_answer_names_who_made_it_and_who_failed(upstream: Upstream, path: str, failure: str) -> None:
    first, second = upstream.plays(FAILURES[failure]), upstream.plays(ANSWERS)
    with deployed(upstream, first, second) as gateway:
        named = answered_by(second, (first, "rate_limit" if failure == "429" else "down"))
        reply = stream_of(gateway, path)
        assert reply.headers.get(HEADER) in (f"vllm/{second}", None if path == "/api/chat" else "")
        assert deployments_in(reply.body.decode())[-1] == named
        if path.startswith("/v1"):
            reply = stream_of(gateway, path, stream=False)
            assert deployments_in(reply.body.decode()) == [answered_by(second)]  # the other one is not called


def test_logs_and_traces_say_who_answered_and_who_failed(upstream: Upstream) -> None:
    limited, broken, good = (upstream.plays(script) for script in (answers_with(429), breaks_before_a_word, ANSWERS))
    failed = [f"vllm/{limited}:rate_limit", f"vllm/{broken}:down"]
    with captured_telemetry(deployed_config(upstream, limited, broken, good)) as (gateway, captured):
        assert gateway.ask("m").status == 200
        assert gateway.ask("m").status == 200
        gateway.idle()
        first, second = (line for line in captured.lines if line["what"] == "request")
        assert (first["deployment"], first["failed_deployments"]) == (f"vllm/{good}", ",".join(failed))
        assert (second["deployment"], second.get("failed_deployments")) == (f"vllm/{good}", None)
        [span, _] = captured.named("chat ")
        assert span.attributes is not None
        assert span.attributes["pellucid.deployment"] == f"vllm/{good}"
        assert list(span.attributes["pellucid.failed_deployments"]) == failed  # type: ignore[arg-type]
    with captured_telemetry(deployed_config(upstream, limited, broken)) as (gateway, captured):
        assert gateway.ask("m").status == 502
        gateway.idle()
        [line] = (line for line in captured.lines if line["what"] == "request")
        assert line["failed_deployments"] == ",".join(failed)
        [span] = captured.named("chat ")
        assert span.attributes is not None
        assert list(span.attributes["pellucid.failed_deployments"]) == failed  # type: ignore[arg-type]


def test_all_deployments_are_tried_again_and_the_last_error_is_the_answer(upstream: Upstream) -> None:
    one, two = upstream.plays(answers_with(503)), upstream.plays(answers_with(429), ANSWERS)
    with deployed(upstream, one, two, retries=1) as gateway:
        assert answer_of(gateway.ask("m")) == ("It is 42.", f"vllm/{two}")
    one, two = upstream.plays(answers_with(503)), upstream.plays(answers_with(429))
    with deployed(upstream, one, two, retries=1) as gateway:
        reply = gateway.ask("m")
        assert reply.status in (429, 503)
    assert (len(upstream.calls(one)), len(upstream.calls(two))) == (2, 2)


def test_retry_after_is_believed(upstream: Upstream) -> None:
    one, two = (upstream.plays(answers_with(429, Retry_After="30")) for _ in range(2))
    with deployed(upstream, one, two, retries=3) as gateway:
        reply = gateway.ask("m")
    assert (reply.status, reply.headers.get("retry-after")) == (429, "30")
    assert (len(upstream.calls(one)), len(upstream.calls(two))) == (1, 1)


@pytest.mark.parametrize(
    ("cause", "failure"),
    [
        ("context_length", answers_with(400, "maximum context length is 100 tokens", code="context_length_exceeded")),
        ("refused", answers_with(400, "the content was filtered", code="content_filter")),
        ("refused", refuses_without_a_word),
        ("rate_limit", answers_with(429)),
        ("down", answers_with(503)),
        ("down", fails_in_the_stream),
    ],
)
def test_another_model_answers_by_cause(upstream: Upstream, cause: str, failure: Script) -> None:
    first, other = upstream.plays(failure), upstream.plays(ANSWERS)
    with deployed(upstream, first, fallbacks={cause: [f"vllm:{other}"]}) as gateway:
        assert answer_of(gateway.ask("m")) == ("It is 42.", f"vllm/{other}")
    others = {name: [f"vllm:{other}"] for name in ("context_length", "refused", "rate_limit", "down") if name != cause}
    with deployed(upstream, first, fallbacks=others) as gateway:
        reply = gateway.ask("m")
        assert reply.status != 200 or reply.json["status"] != "completed"
    assert len(upstream.calls(other)) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses/input_tokens", {"input": "Why?"}),
        ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "Why?"}]}),
    ],
)
def test_tokens_are_counted_by_the_deployment_that_would_be_called(
    upstream: Upstream, path: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")

    async def counts(call: Call) -> None:
        is_count = call.path.endswith("/count_tokens")
        await call.answer(200 if is_count else 400, b'{"input_tokens": 77}' if is_count else b"{}")

    first, second = upstream.plays(answers_with(429)), upstream.plays(counts)
    config = deployed_config(upstream, first, second)
    config["providers"]["anthropic"] = {"base_url": upstream.url}
    config["models"]["m"]["deployments"][1]["provider"] = "anthropic"
    data = json.dumps({"model": "m", **body}).encode()
    with serve(config) as gateway:
        assert gateway.request("POST", path, data).json["estimated"] is True  # the first one does not count
        gateway.ask("m")  # its cooldown begins
        assert gateway.request("POST", path, data).json["input_tokens"] == 77


@pytest.mark.parametrize("is_silent_after", ["request", "head", "preamble"])
def test_a_deployment_that_is_silent_has_failed(upstream: Upstream, is_silent_after: str) -> None:
    async def is_silent(call: Call) -> None:
        if is_silent_after != "request":
            await call.head()
        if is_silent_after == "preamble":
            await call.event(delta(role="assistant"))
        await call.wait_for_disconnect()

    first, second = upstream.plays(is_silent), upstream.plays(ANSWERS)
    config = deployed_config(upstream, first, second)
    config["limits"] |= {"first_byte": 1.0, "idle": 1.0}
    with serve(config) as gateway:
        assert answer_of(gateway.ask("m", stream=True)) == ("It is 42.", f"vllm/{second}")


def test_after_a_long_silence_the_end_names_who_answered(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HEAD_SECONDS", 0.05)
    head_arrived = threading.Event()

    async def dies_late(call: Call) -> None:
        await call.head()
        await asyncio.to_thread(head_arrived.wait, LIMIT_SECONDS)
        call.reset()

    first, second = upstream.plays(dies_late), upstream.plays(ANSWERS)
    with deployed(upstream, first, second) as gateway, gateway.open("m") as stream:
        assert HEADER not in stream.response.headers
        head_arrived.set()
        stream.rest()
    assert deployments_in(stream.seen.decode())[-1] == answered_by(second, (first, "down"))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_leaves_before_the_first_content_is_no_failure(upstream: Upstream, stream: bool) -> None:
    async def is_left(call: Call) -> None:
        await call.head()
        await call.event(delta(role="assistant"))
        await call.wait_for_disconnect()

    first, second = upstream.plays(is_left, ANSWERS), upstream.plays(ANSWERS)
    with deployed(upstream, first, second) as gateway:
        with socket.create_connection(("127.0.0.1", gateway.port)) as client:
            body = json.dumps({"model": "m", "input": "Why?", "stream": stream}).encode()
            head = f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
            [call] = upstream.calls(first, 1)
        assert call.connection.closed.wait(LIMIT_SECONDS)
        assert answer_of(gateway.ask("m"))[1] == f"vllm/{first}"
    assert not upstream.calls(second)


def test_in_a_storm_of_429_each_deployment_is_called_once(upstream: Upstream) -> None:
    """With `Retry-After` as a number, as a date, and with values that mean nothing."""
    later = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    storm = [upstream.plays(answers_with(429, Retry_After=value)) for value in ("90", later, "0", "soon", "1e999")]
    last = upstream.plays(ANSWERS)
    with deployed(upstream, *storm, last) as gateway:
        assert {answer_of(gateway.ask("m", stream=number % 2 == 0)) for number in range(20)} == {
            ("It is 42.", f"vllm/{last}")
        }
    assert [len(upstream.calls(model)) for model in storm] == [1] * 5


def test_a_deployment_that_is_silent_until_a_limit_has_failed(upstream: Upstream) -> None:
    async def sends_comments(call: Call) -> None:
        await call.head()
        await call.event(delta(role="assistant"))
        with suppress(ConnectionError):
            while True:
                await call.raw(b": keep-alive\n\n")
                await asyncio.sleep(0.05)

    silent, good = upstream.plays(sends_comments), upstream.plays(ANSWERS)
    config = deployed_config(upstream, silent, good)
    config["limits"] |= {"turn_seconds": 0.5}
    with serve(config) as gateway:
        reply = gateway.ask("m")
        assert answer_of(reply) == ("It is 42.", f"vllm/{good}")
        assert reply.json["deployment"]["failed"] == [{"name": f"vllm/{silent}", "cause": "down"}]


def test_a_request_over_the_streams_of_a_deployment_is_not_counted(upstream: Upstream) -> None:
    async def thinks(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm. "))
        await call.wait_for_disconnect()

    config = deployed_config(upstream, upstream.plays(thinks, ANSWERS), retries=2)
    [row] = config["models"]["m"]["deployments"]
    row |= {"streams": 1, "requests_per_minute": 2}
    with serve(config) as gateway:
        with gateway.open("m") as stream:
            stream.until("Hm.")
            for _ in range(2):
                reply = gateway.ask("m")
                assert reply.status == 429
                assert reply.json["error"]["code"] == "too_many_streams"
                assert "the deployment vllm/" in reply.json["error"]["message"]
                assert reply.headers["retry-after"] == "1"
        gateway.idle()
        assert answer_of(gateway.ask("m"))[0] == "It is 42."


def test_fallbacks_are_no_circle(upstream: Upstream) -> None:
    one, two = upstream.plays(answers_with(503)), upstream.plays(answers_with(429, Retry_After="7"))
    config = deployed_config(upstream, one, fallbacks={"down": ["n"], "rate_limit": ["n"]})
    other = {"deployments": [{"provider": "vllm", "model": two}], "fallbacks": {"rate_limit": ["m"]}}
    config["models"]["n"] = other
    with serve(config) as gateway:
        reply = gateway.ask("m")
        # The error is that of the model that was requested.
        assert (reply.status, reply.headers.get("retry-after")) == (503, "5")  # the end of its cooldown
        assert (len(upstream.calls(one)), len(upstream.calls(two))) == (1, 1)


def test_a_model_in_fallbacks_is_called_before_a_deployment_in_cooldown(upstream: Upstream) -> None:
    first, other = upstream.plays(answers_with(503), ANSWERS), upstream.plays(ANSWERS, answers_with(503))
    with deployed(upstream, first, fallbacks={"down": [f"vllm:{other}"]}) as gateway:
        assert answer_of(gateway.ask("m"))[1] == f"vllm/{other}"
        assert len(upstream.calls(first)) == 1
        # If that fails, too, the deployment is called in spite of its cooldown.
        assert answer_of(gateway.ask("m"))[1] == f"vllm/{first}"
        assert (len(upstream.calls(first)), len(upstream.calls(other))) == (2, 2)


@pytest.mark.parametrize("count", [1, 2], ids=["plain", "two deployments"])
def test_a_fallback_in_cooldown_is_called_after_those_that_are_available(upstream: Upstream, count: int) -> None:
    first, *down = (upstream.plays(answers_with(503)) for _ in range(1 + count))
    good = upstream.plays(ANSWERS)
    config = deployed_config(upstream, first, fallbacks={"down": ["b", "c"]})
    rows = [{"provider": "vllm", "model": name} for name in down]
    config["models"]["b"] = rows[0] if count == 1 else {"deployments": rows}
    config["models"]["c"] = {"provider": "vllm", "model": good}
    with serve(config) as gateway:
        assert [answer_of(gateway.ask("m"))[1] for _ in range(5)] == [f"vllm/{good}"] * 5
    assert [len(upstream.calls(model)) for model in (first, *down, good)] == [*[1] * (1 + count), 5]


def test_a_fallback_in_cooldown_is_called_if_all_else_has_failed(upstream: Upstream) -> None:
    first, other = upstream.plays(answers_with(503)), upstream.plays(answers_with(503), ANSWERS)
    with deployed(upstream, first, fallbacks={"down": [f"vllm:{other}"]}) as gateway:
        assert gateway.ask("m").status == 503
        assert answer_of(gateway.ask("m"))[1] == f"vllm/{other}"
    assert [len(upstream.calls(model)) for model in (first, other)] == [2, 2]


def test_a_deployment_in_cooldown_can_lead_to_the_model_for_another_cause(upstream: Upstream) -> None:
    too_long = answers_with(400, "maximum context length is 100 tokens", code="context_length_exceeded")
    first, longer = upstream.plays(answers_with(503), too_long), upstream.plays(ANSWERS)
    with deployed(upstream, first, fallbacks={"context_length": [f"vllm:{longer}"]}) as gateway:
        assert gateway.ask("m").status == 503
        assert answer_of(gateway.ask("m"))[1] == f"vllm/{longer}"


def test_the_limits_of_a_model_hold_if_it_answers_instead_of_another(upstream: Upstream) -> None:
    first, limited, last = upstream.plays(answers_with(503)), upstream.plays(ANSWERS), upstream.plays(ANSWERS)
    config = deployed_config(upstream, first, fallbacks={"down": ["b", f"vllm:{last}"]})
    config["models"]["b"] = {"deployments": [{"provider": "vllm", "model": limited, "requests_per_minute": 1}]}
    with serve(config) as gateway:
        assert [answer_of(gateway.ask("m"))[1] for _ in range(3)] == [f"vllm/{limited}", *[f"vllm/{last}"] * 2]
        assert gateway.ask("b").status == 429
    assert len(upstream.calls(limited)) == 1


def test_what_a_model_in_fallbacks_does_not_support_is_not_the_error(upstream: Upstream) -> None:
    refuses = upstream.plays(answers_with(400, "no such field"))
    first, good = upstream.plays(answers_with(429, Retry_After="9")), upstream.plays(ANSWERS)
    with deployed(upstream, first, fallbacks={"rate_limit": [f"vllm:{refuses}"]}) as gateway:
        reply = gateway.ask("m")
        assert (reply.status, reply.headers["retry-after"]) == (429, "9")
    with deployed(upstream, first, fallbacks={"rate_limit": [f"vllm:{refuses}", f"vllm:{good}"]}) as gateway:
        assert answer_of(gateway.ask("m"))[1] == f"vllm/{good}"


def test_a_fallback_of_another_wire_gets_what_it_understands(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that OpenAI runs goes to OpenAI alone; functions and the schema of the answer go to both."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "key")

    async def claude(call: Call) -> None:
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": [], "usage": usage}
        text = {"type": "text_delta", "text": '{"n": 42}'}
        await call.head()
        await call.event({"type": "message_start", "message": message})
        await call.event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        await call.event({"type": "content_block_delta", "index": 0, "delta": text})
        await call.event({"type": "content_block_stop", "index": 0})
        await call.event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
        await call.event({"type": "message_stop"})
        await call.end()

    first, other = upstream.plays(answers_with(429, Retry_After="9")), upstream.plays(claude)
    config = {
        "providers": {
            "openai-responses": {"base_url": upstream.url},
            "anthropic": {"base_url": upstream.url, "models": [other]},
        },
        "limits": {"retries": 0},
        "models": {"m": {"provider": "openai-responses", "model": first, "fallbacks": {"rate_limit": [other]}}},
    }
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    request = {
        "tools": [{"type": "web_search"}, {"type": "function", "name": "add", "parameters": {"type": "object"}}],
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": schema}},
    }
    with serve(config) as gateway:
        assert answer_of(gateway.ask("m", stream=True, **request)) == ('{"n": 42}', f"anthropic/{other}")
    [to_openai], [to_claude] = upstream.calls(first), upstream.calls(other)
    assert {tool["type"] for tool in to_openai.body["tools"]} == {"web_search", "function"}
    assert [tool["name"] for tool in to_claude.body["tools"]] == ["add"]
    assert all(json.dumps(schema["properties"]) in json.dumps(call.body) for call in (to_openai, to_claude))


def test_a_model_in_fallbacks_may_have_a_wildcard(upstream: Upstream) -> None:
    first, other = upstream.plays(answers_with(503)), upstream.plays(ANSWERS)
    config = deployed_config(upstream, first, fallbacks={"down": [f"team/{other}"]})
    config["models"]["team/*"] = {"provider": "vllm", "model": "*"}
    with serve(config) as gateway:
        assert answer_of(gateway.ask("m")) == ("It is 42.", f"vllm/{other}")


def test_a_model_shows_no_more_than_those_in_its_fallbacks(upstream: Upstream) -> None:
    first, other = upstream.plays(answers_with(503)), upstream.plays(ANSWERS)
    config = deployed_config(upstream, first, fallbacks={"down": ["n"]})
    config["models"]["n"] = {"provider": "vllm", "model": other, "view": "hidden"}
    with serve(config) as gateway:
        assert [item["type"] for item in gateway.ask("m").json["output"]] == ["message"]


@pytest.mark.parametrize("of_model", [False, True])
@pytest.mark.parametrize("of_key", [False, True])
def test_a_key_decides_whether_thoughts_are_repeated(upstream: Upstream, of_model: bool, of_key: bool) -> None:
    first, second = upstream.plays(breaks_after({"reasoning_content": "Hm, well. "})), upstream.plays(ANSWERS)
    config = deployed_config(upstream, first, second, retry_thoughts=of_model)
    config["access"] = {"default_policy": "p", "policies": {"p": {"retry_thoughts": of_key}}}
    with serve(config) as gateway:
        response = legal_events(gateway.ask("m", stream=True))[-1]["response"]
        assert response["status"] == ("completed" if of_key else "failed")


def test_a_deployment_over_its_own_limit_is_not_called(upstream: Upstream) -> None:
    first, second = upstream.plays(ANSWERS), upstream.plays(ANSWERS)
    rows = [
        {"provider": "vllm", "model": first, "order": 1, "requests_per_minute": 1},
        {"provider": "vllm", "model": second, "order": 2},
    ]
    with deployed(upstream, deployments=rows) as gateway:
        assert [answer_of(gateway.ask("m"))[1] for _ in range(3)] == [f"vllm/{first}", *[f"vllm/{second}"] * 2]


def test_a_hundred_streams_survive_the_end_of_a_deployment(upstream: Upstream) -> None:
    """Half of the streams are at a deployment that breaks off before the first word."""
    first, second = upstream.plays(breaks_before_a_word), upstream.plays(ANSWERS)
    rows = [{"provider": "vllm", "model": model} for model in (first, second)]
    with deployed(upstream, deployments=rows) as gateway:
        replies = [gateway.ask("m", stream=True) for _ in range(100)]
    assert {answer_of(reply)[0] for reply in replies} == {"It is 42."}


# --- who is called ---------------------------------------------------------------------------------------------------


class Named:
    """A model that is only named."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.origin = Origin("p", "openai_chat", name)

    async def open(self, call: ModelCall) -> ModelStream:
        raise ModelError(ErrorInfo("unavailable", "down"))

    def warnings(self, call: ModelCall) -> list[str]:
        return [f"of {self.name}"]


def model_of(*rows: tuple[str, int, float], cooldowns: Cooldowns | None = None) -> DeployedModel:
    return DeployedModel(
        "m", [Deployment(name, Named(name), order, weight) for name, order, weight in rows], cooldowns or Cooldowns()
    )


def call_of(last: str | None = None, **settings: Any) -> ModelCall:
    messages: list[Any] = [ModelRequest([UserPromptPart("Hi")])]
    if last is not None:
        messages += [ModelResponse([TextPart("Hi")], origin=Origin("p", "openai_chat", last)), *messages]
    return ModelCall("m", messages, settings)  # type: ignore[arg-type]


def first_of(model: DeployedModel, call: ModelCall) -> str:
    return str(model.first_candidate(call).name)


def test_calls_are_divided_by_weight() -> None:
    weights = {"a": 5.0, "b": 2.0, "c": 1.0}
    model = model_of(*((name, 1, weight) for name, weight in weights.items()), ("d", 2, 100))
    counts = Counter(first_of(model, call_of(cache_key=str(number))) for number in range(8_000))
    chi_squared = sum((counts[name] - 1_000 * weight) ** 2 / (1_000 * weight) for name, weight in weights.items())
    assert chi_squared < 13.8  # two degrees of freedom: exceeded with a probability of 0.1 %; the keys are fixed
    assert set(counts) == set(weights)
    assert {first_of(model, call_of()) for _ in range(300)} == set(weights)


def test_the_first_deployment_is_the_one_of_the_lowest_order() -> None:
    model = model_of(("backup", 2, 1), ("main", 1, 1))
    assert (model.origin.model, [one.name for one in model.deployments]) == ("main", ["main", "backup"])
    assert model.warnings(call_of()) == ["of main"]


def test_the_origin_during_a_request_is_that_of_the_deployment_that_was_called_last() -> None:
    shared = DeployedModel("m", [Deployment(name, Named(name)) for name in ("a", "b")], Cooldowns(), retries=0)
    model = shared.for_request()
    with pytest.raises(ModelError):
        asyncio.run(model.open(call_of("a")))
    assert model.origin.model == "b"
    assert shared.origin.model == "a"


def test_calls_with_one_cache_key_go_to_one_deployment() -> None:
    model = model_of(("a", 1, 1), ("b", 1, 1))
    assert len({first_of(model, call_of(cache_key="k")) for _ in range(20)}) == 1


@pytest.mark.parametrize("last", ["a", "b"])
def test_a_conversation_stays_with_its_deployment(last: str) -> None:
    model = model_of(("a", 1, 1), ("b", 1, 1), ("c", 2, 1))
    assert {first_of(model, call_of(last)) for _ in range(20)} == {last}
    assert first_of(model, call_of("c")) in ("a", "b")


class Recorded(Named):
    """A model of a provider that records the requests of its wire, and does not answer."""

    def __init__(self, profile: Profile, provider: str) -> None:
        self.model = Model("x", profile, base_url="http://127.0.0.1:1", api_key="key", provider=provider)
        self.name, self.origin = "x", self.model.origin
        self.requests: list[str] = []

    async def open(self, call: ModelCall) -> ModelStream:
        self.requests.append(repr(self.model.request(call, "key")))
        return await super().open(call)


SIGNED = "SIGNED-7f3a"


def signed_answer(origin: Origin) -> ModelResponse:
    """An answer with data that only its provider can read, wherever a provider may put some."""
    opaque: dict[str, Any] = {"id": SIGNED, "signature": SIGNED, "provider_name": origin.provider}
    opaque["provider_details"] = {"type": "reasoning.text", "data": SIGNED, "id": SIGNED}
    parts: list[Any] = [
        ThinkingPart("Let me see.", **opaque),
        ThinkingPart("", form="redacted", **opaque),
        TextPart("It is 42.", **opaque),
        OpaquePart("reasoning.new", {"type": "reasoning.new", "data": SIGNED}, provider_name=origin.provider),
    ]
    return ModelResponse([msgspec.structs.replace(part, origin=origin) for part in parts], origin=origin)


def test_what_one_deployment_signed_is_never_sent_to_another() -> None:
    profiles = builtin_profiles()
    question = ModelRequest([UserPromptPart("Why?")])

    async def scene(maker: Profile, other: Profile) -> None:
        one, two = Recorded(maker, "one"), Recorded(other, "two")
        model = DeployedModel("m", [Deployment("two", two, 1), Deployment("one", one, 1)], Cooldowns(), retries=0)
        failures: list[DeploymentFailure] = []
        with pytest.raises(PellucidError):
            await model.for_request(failures, lambda deployment: None, None).open(
                ModelCall("m", [question, signed_answer(one.origin), question])
            )
        assert [failure.name for failure in failures] == ["one", "two"]  # its maker comes first
        assert len(one.requests) == len(two.requests) == 1
        assert "It is 42." in two.requests[0]
        assert SIGNED not in two.requests[0]

    async def scenes() -> None:
        for maker in profiles.values():
            for other in profiles.values():
                await scene(maker, other)

    asyncio.run(scenes())


def test_replicas_share_cooldowns() -> None:
    async def scene() -> None:
        relay = MemoryRelay()
        here, there = Cooldowns(), Cooldowns()
        here.share(relay)
        there.share(relay)
        assert here.begin("a", None) == COOLDOWN_SECONDS
        assert here.active() == {"a"}
        model = model_of(("a", 1, 1), ("b", 2, 1), cooldowns=there)
        first_of(model, call_of())  # loads what others know
        await asyncio.sleep(0.05)
        assert first_of(model, call_of()) == "b"
        await relay.aclose()

    asyncio.run(scene())


def test_an_outage_of_the_relay_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Down(MemoryRelay):
        async def list_present(self, group: str) -> list[str]:
            raise RelayError("the relay does not answer")

    async def scene() -> None:
        now = 0.0
        cooldowns = Cooldowns(lambda: now)
        cooldowns.share(Down())
        for _ in range(3):
            assert cooldowns.active() == set()
            await wait_for_tasks(LIMIT_SECONDS)
            now += 10

    asyncio.run(scene())
    assert [record.getMessage() for record in caplog.records] == [
        "the cooldowns of other replicas are not known: the relay does not answer"
    ]


def test_cooldowns_grow_with_each_failure_after_the_last_one() -> None:
    now = 0.0
    cooldowns = Cooldowns(lambda: now)
    seconds: list[float | None] = []
    for _ in range(2_000):
        seconds.append(cooldowns.begin("a", None))
        now += 200.0
    assert seconds[:6] == [5.0, 10.0, 20.0, 40.0, 80.0, 120.0]
    assert set(seconds[6:]) == {120.0}
    cooldowns.on_success("a")
    assert cooldowns.begin("a", None) == 5.0


def test_calls_that_fail_at_once_are_one_failure() -> None:
    now = 0.0
    cooldowns = Cooldowns(lambda: now)
    assert [cooldowns.begin("a", None) for _ in range(3)] == [5.0, None, None]
    now = 4.0
    assert cooldowns.begin("a", None) is None
    assert cooldowns.begin("a", 30.0) == 30.0  # what the provider says counts
    now = 33.9
    assert cooldowns.active() == {"a"}
    now = 34.1
    assert cooldowns.active() == set()
    assert cooldowns.begin("a", None) == 10.0


@pytest.mark.parametrize(("retry_after", "seconds"), [(0.0, 5.0), (-3.0, 5.0), (60.0, 60.0), (1e9, 120.0)])
def test_a_cooldown_believes_retry_after_within_reason(retry_after: float, seconds: float) -> None:
    assert Cooldowns().begin("a", retry_after) == seconds


# --- configuration ---------------------------------------------------------------------------------------------------

PROVIDERS = {"a": {"profile": "vllm", "base_url": "http://127.0.0.1:1/v1"}}


def test_limits_hold_without_a_relay() -> None:
    """As in `pellucid ask`, which has none."""
    row = {"provider": "a", "model": "x", "requests_per_minute": 1}
    catalog = Catalog(
        check_config({"providers": PROVIDERS, "models": {"m": {"deployments": [row]}}}, {}), UpstreamClient()
    )
    [deployment] = deployments_of(catalog.find("m")[1])
    assert deployment.limits is not None

    async def scene(limits: DeploymentLimits) -> None:
        await limits.acquire()
        with pytest.raises(RequestError, match="a limit of the deployment a/x"):
            await limits.acquire()

    asyncio.run(scene(deployment.limits))


@pytest.mark.parametrize(
    ("models", "mistake"),
    [
        ({"m": {}}, "models.m: needs a provider or deployments"),
        ({"m": {"provider": "a", "deployments": [{"provider": "a"}]}}, "models.m: needs a provider or deployments"),
        ({"m": {"deployments": [{"provider": "b"}]}}, "models.m.deployments[0].provider: no provider 'b'"),
        ({"m": {"provider": "a", "fallbacks": {"down": ["n"]}}}, "models.m.fallbacks.down: no model 'n'"),
        ({"m*x": {"provider": "a"}}, "models.m*x: a * stands at the end"),
        ({"m*": {"deployments": [{"provider": "a"}]}}, "models.m*: a * stands at the end"),
        ({"m*": {"provider": "a", "fallbacks": {"down": ["m"]}}}, "models.m*: a * stands at the end"),
    ],
)
def test_mistakes_are_named(models: dict[str, Any], mistake: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config({"providers": PROVIDERS, "models": models}, {})
    assert any(mistake in line for line in caught.value.mistakes), caught.value.mistakes


def test_a_model_of_two_providers_is_named() -> None:
    providers = {name: {**PROVIDERS["a"], "models": ["m"]} for name in ("a", "b")}
    (warning,) = check_config({"providers": providers}, {}).warnings
    assert "providers.b.models: 'm' is also a model of the provider 'a'" in warning
    rows = [{"provider": "a"}, {"provider": "b", "order": 2}]
    assert check_config({"providers": providers, "models": {"m": {"deployments": rows}}}, {}).warnings == []


def test_a_client_names_only_models_that_the_operator_lists(upstream: Upstream) -> None:
    listed, other = upstream.plays(ANSWERS), upstream.plays(ANSWERS)
    with serve({"providers": {"vllm": {"base_url": upstream.url, "models": [listed]}}}) as gateway:
        assert gateway.ask(f"vllm:{listed}").status == 200
        for name in (f"vllm:{other}", "vllm:../../x", other):
            assert gateway.ask(name).status == 404, name
    assert not upstream.calls(other)


def test_a_name_may_end_with_a_wildcard(upstream: Upstream) -> None:
    model = upstream.plays(ANSWERS)
    config = {
        "providers": {"vllm": {"base_url": upstream.url, "models": ["other"]}},
        "models": {
            "team/*": {"provider": "vllm", "model": "*", "view": "hidden"},
            "team/x-*": {"provider": "vllm", "model": f"{model[:-1]}*"},
        },
    }
    with serve(config) as gateway:
        reply = gateway.ask(f"team/{model}")
        assert [item["type"] for item in reply.json["output"]] == ["message"]
        reply = gateway.ask(f"team/x-{model[-1]}")
        assert reply.json["output"][-1]["type"] == "message"
        assert gateway.ask("team/").status == 404
        assert gateway.ask("teams/x").status == 404
