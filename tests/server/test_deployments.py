"""Models with several deployments: who is called, who answers instead, and what a client sees of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pellucid.errors import ConfigError, ErrorInfo, ModelError
from pellucid.models import ModelStream
from pellucid.parts import ModelRequest, ModelResponse, Origin, TextPart, UserPromptPart
from pellucid.relay import MemoryRelay
from pellucid.server.config import check_config
from pellucid.server.deployments import COOLDOWN_SECONDS, Cooldowns, DeployedModel, Deployment
from pellucid.settings import ModelCall
from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import Reply, Served, serve
from tests.server.loop_kit import legal_events

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


@contextmanager
def deployed(upstream: Upstream, *models: str, retries: int = 0, **more: Any) -> Iterator[Served]:
    """A gateway whose model `m` has these deployments, in this order."""
    rows = [{"provider": "vllm", "model": model, "order": order} for order, model in enumerate(models)]
    config = {
        "providers": {"vllm": {"base_url": upstream.url}},
        "limits": {"retries": retries, "retry_wait": 0.5},
        "models": {"m": {"deployments": rows, **more}},
    }
    with serve(config) as running:
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
        # The head of a stream names the deployment that accepted the request.
        failed_after_head = stream and failure in ("in the stream", "before a word")
        assert (text, named) == ("It is 42.", f"vllm/{first if failed_after_head else second}")
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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Why?"}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 100}),
        ("/api/chat", {"text": "Why?", "stream": None}),
    ],
)
def test_a_thought_that_another_deployment_follows_is_legal_in_every_protocol(
    upstream: Upstream, path: str, body: dict[str, Any]
) -> None:
    first, second = upstream.plays(breaks_after({"reasoning_content": "Hm, well. "})), upstream.plays(ANSWERS)
    with deployed(upstream, first, second, retry_thoughts=True) as gateway:
        fields = {"model": "m", "stream": True, **body}
        data = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
        reply = gateway.request("POST", path, data, {"Content-Type": "application/json"})
    assert reply.status == 200
    text = reply.body.decode()
    assert text.index("well.") < text.index("see.") < text.index("42.")
    assert "overloaded" not in text


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
        return []


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
    return model.candidates(call)[0].name


def test_calls_are_divided_by_weight() -> None:
    model = model_of(("a", 1, 3), ("b", 1, 1), ("c", 2, 100))
    counts = Counter(first_of(model, call_of(cache_key=str(number))) for number in range(4_000))
    assert counts["a"] + counts["b"] == 4_000
    assert 2_800 < counts["a"] < 3_200
    assert 0 < Counter(first_of(model, call_of()) for _ in range(200))["b"] < 200


def test_calls_with_one_cache_key_go_to_one_deployment() -> None:
    model = model_of(("a", 1, 1), ("b", 1, 1))
    assert len({first_of(model, call_of(cache_key="k")) for _ in range(20)}) == 1


@pytest.mark.parametrize("last", ["a", "b"])
def test_a_conversation_stays_with_its_deployment(last: str) -> None:
    model = model_of(("a", 1, 1), ("b", 1, 1), ("c", 2, 1))
    assert {first_of(model, call_of(last)) for _ in range(20)} == {last}
    assert first_of(model, call_of("c")) in ("a", "b")


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


def test_cooldowns_grow_and_believe_the_provider() -> None:
    cooldowns = Cooldowns()
    assert [cooldowns.begin("a", None) for _ in range(3)] == [5.0, 10.0, 20.0]
    assert cooldowns.begin("b", 60.0) == 60.0
    cooldowns.on_success("a")
    assert cooldowns.begin("a", None) == 5.0


# --- configuration ---------------------------------------------------------------------------------------------------

PROVIDERS = {"a": {"profile": "vllm", "base_url": "http://127.0.0.1:1/v1"}}


@pytest.mark.parametrize(
    ("models", "mistake"),
    [
        ({"m": {}}, "models.m: needs a provider or deployments"),
        ({"m": {"provider": "a", "deployments": [{"provider": "a"}]}}, "models.m: needs a provider or deployments"),
        ({"m": {"deployments": [{"provider": "b"}]}}, "models.m.deployments[0].provider: no provider 'b'"),
        ({"m": {"provider": "a", "fallbacks": {"down": ["n"]}}}, "models.m.fallbacks.down: no model 'n'"),
        ({"m*x": {"provider": "a"}}, "models.m*x: a * stands at the end"),
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
