"""What runs cost: shown in every protocol, in metrics and logs, added up in the store, and limited by budgets."""

from __future__ import annotations

import csv
import io
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import openai
import pytest
from websockets.sync.client import connect

from pellucid.server.access.policy import Policy
from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import Gateway, Reply, Served, serve
from tests.server.spend_kit import COST, PRICES, PROTOCOLS, REASONING_COST, USAGE
from tests.server.state_kit import Caller, make_keys, url_of
from tests.service_postgres import PostgresServer, postgres_server
from tests.telemetry.telemetry_kit import captured_telemetry, metrics
from tests.waiting import wait_until

__all__ = ["postgres_server"]

BILLED = say(usage=USAGE)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


def priced_config(
    upstream: Upstream, *scripts: Script, prices: dict[str, Any] | None = PRICES, **more: Any
) -> dict[str, Any]:
    """The configuration of a gateway whose model `m` has prices, and answers with the scripts."""
    model: dict[str, Any] = {"provider": "vllm", "model": upstream.plays(*scripts)}
    if prices is not None:
        model["prices"] = prices
    return {"providers": {"vllm": {"base_url": upstream.url}}, "models": {"m": model}, **more}


@contextmanager
def priced(upstream: Upstream, *scripts: Script, **more: Any) -> Iterator[Served]:
    """A gateway with that configuration."""
    with serve(priced_config(upstream, *scripts, **more)) as running:
        yield running


def usage(gateway: Gateway, query: str = "", **headers: str) -> list[dict[str, Any]]:
    reply = gateway.request("GET", f"/api/usage?{query}", headers={"Host": "localhost", **headers})
    assert reply.status == 200, reply.body
    rows: list[dict[str, Any]] = reply.json["data"]
    return rows


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_protocol_shows_the_cost(upstream: Upstream, name: str) -> None:
    with priced(upstream, BILLED) as gateway:
        reply = PROTOCOLS[name].ask(gateway, "m")
        assert reply.status == 200, reply.body
        shown = PROTOCOLS[name].usage_of(reply)
        assert shown["cost"] == COST
        assert shown.get("reasoning_cost") == (REASONING_COST if name == "chat" else None)
        [row] = usage(gateway)
    assert row == {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "model": "m",
        "requests": 1,
        "input_tokens": 1000,
        "cached_tokens": 200,
        "cache_write_tokens": 0,
        "output_tokens": 500,
        "reasoning_tokens": 100,
        "cost": COST,
        "currency": "USD",
        "estimated": 0,
    }


def test_official_clients_read_the_cost(upstream: Upstream) -> None:
    with priced(upstream, BILLED) as gateway:
        client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none")
        response = client.responses.create(model="m", input="Why?")
        completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Why?"}])
        anthropic_client = anthropic.Anthropic(base_url=gateway.url, api_key="none")
        message = anthropic_client.messages.create(
            model="m", max_tokens=100, messages=[{"role": "user", "content": "Why?"}]
        )
    assert response.usage is not None
    assert completion.usage is not None
    shown = [response.usage, completion.usage, message.usage]
    assert [usage.model_extra and usage.model_extra["cost"] for usage in shown] == [COST] * 3


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_viewer_without_counts_sees_no_cost(upstream: Upstream, name: str) -> None:
    access = {"default_policy": "p", "policies": {"p": {"counts": False}}}
    with priced(upstream, BILLED, access=access) as gateway:
        reply = PROTOCOLS[name].ask(gateway, "m")
        assert reply.status == 200
        assert b"cost" not in reply.body
        assert [row["cost"] for row in usage(gateway)] == [COST]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_model_without_prices_has_no_cost(upstream: Upstream, name: str) -> None:
    with priced(upstream, BILLED, prices=None) as gateway:
        assert b'"cost"' not in PROTOCOLS[name].ask(gateway, "m").body
        [row] = usage(gateway)
    assert (row["requests"], row["input_tokens"], row["cost"], row["currency"]) == (1, 1000, 0, None)


def test_a_stored_response_and_its_replay_have_the_cost_of_the_run(upstream: Upstream) -> None:
    with priced(upstream, BILLED) as gateway:
        id = gateway.ask("m", background=True).json["id"]

        def stored() -> Any:
            return gateway.request("GET", f"/v1/responses/{id}").json

        wait_until(lambda: stored()["status"] == "completed", "the run is over")
        assert stored()["usage"]["cost"] == COST
        replayed = gateway.request("GET", f"/v1/responses/{id}?stream=true")
        assert replayed.events[-1]["response"]["usage"]["cost"] == COST
        assert [row["requests"] for row in usage(gateway)] == [1]


def test_a_compaction_costs_what_its_run_costs(upstream: Upstream) -> None:
    with priced(upstream, BILLED) as gateway:
        body = json.dumps({"model": "m", "input": "Why?"}).encode()
        compacted = gateway.request("POST", "/v1/responses/compact", body, {"Content-Type": "application/json"})
        assert compacted.json["usage"]["cost"] == COST
        assert [row["cost"] for row in usage(gateway)] == [COST]


def test_every_turn_of_a_run_counts(upstream: Upstream) -> None:
    tools = {"functions": [f"{__name__}:archive"]}
    with priced(upstream, calls_a_tool("archive"), BILLED, tools=tools) as gateway:
        assert gateway.ask("m").json["usage"]["cost"] == 2 * COST
        assert [(row["requests"], row["cost"]) for row in usage(gateway)] == [(2, 2 * COST)]


async def reports_nothing(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Let me see. " * 10))
    await call.event(delta("stop", content="It is 42."))
    await call.event(b"[DONE]")
    await call.end()


def test_what_a_provider_does_not_report_is_estimated_and_not_shown(upstream: Upstream) -> None:
    with captured_telemetry(priced_config(upstream, reports_nothing)) as (gateway, telemetry):
        assert "cost" not in (gateway.ask("m").json["usage"] or {})
        [row] = usage(gateway)
        counted = metrics(gateway)["""pellucid_cost_total{model="m",provider="vllm"}"""]
    # "Why?" is a token; 120 characters of reasoning are 30, and with the answer 33.
    assert (row["estimated"], row["input_tokens"], row["output_tokens"], row["reasoning_tokens"]) == (1, 1, 33, 30)
    assert row["cost"] == (1 * 1.5 + 3 * 6 + 30 * 3) / 1_000_000
    [line] = [line for line in telemetry.lines if line.get("model") == "m"]
    assert line["estimated_cost"] == row["cost"]
    assert "cost" not in line
    assert counted == row["cost"]


def test_logs_and_metrics_have_the_cost(upstream: Upstream) -> None:
    with captured_telemetry(priced_config(upstream, BILLED)) as (gateway, telemetry):
        for _ in range(2):
            gateway.ask("m")
        counted = metrics(gateway)["""pellucid_cost_total{model="m",provider="vllm"}"""]
    assert [line["cost"] for line in telemetry.lines if line.get("model") == "m"] == [COST] * 2
    assert counted == 2 * COST


async def never_ends(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Let me see. "))
    await call.wait_for_disconnect()


async def breaks_off(call: Call) -> None:
    await call.head()
    await call.event(delta(content="It is"))
    call.reset()


async def refuses(call: Call) -> None:
    await call.head()
    await call.event({"error": {"message": "overloaded", "type": "overloaded_error"}})
    await call.end()


def test_a_client_that_leaves_pays_for_what_was_written(upstream: Upstream) -> None:
    with priced(upstream, never_ends) as gateway:
        with gateway.open("m") as stream:
            stream.until("Let me see.")
        gateway.idle()
        [row] = usage(gateway)
    assert (row["requests"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (1, 1, 1, 3)
    assert row["cost"] == (1 * 1.5 + 3 * 3) / 1_000_000


def leave_after(gateway: Served, upstream: Upstream, model: str, calls: int) -> None:
    """Begin a response, and disconnect when a model was called for this number of turns."""
    body = json.dumps({"model": "m", "input": "Why?", "stream": True}).encode()
    with socket.create_connection(("127.0.0.1", gateway.port)) as sock:
        sock.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        sock.sendall(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        upstream.calls(model, at_least=calls)
    gateway.idle()


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("names", [["one"], ["one", "two"]], ids=["one deployment", "two deployments"])
def test_a_client_that_leaves_before_the_first_word_pays_for_what_was_read(
    upstream: Upstream, names: list[str], has_head: bool
) -> None:
    async def is_silent(call: Call) -> None:
        if has_head:
            await call.head()
        await call.wait_for_disconnect()

    models = [upstream.plays(is_silent) for _ in names]
    rows = [{"provider": "vllm", "model": model, "order": order} for order, model in enumerate(models)]
    config = {
        "providers": {"vllm": {"base_url": upstream.url}},
        "models": {"m": {"prices": PRICES, "deployments": rows}},
    }
    with serve(config) as gateway:
        leave_after(gateway, upstream, models[0], 1)
        wait_until(lambda: len(usage(gateway)) == 1, "the run is accounted for")
        [row] = usage(gateway)
        counts = gateway.request("GET", "/api/status").json["counts"]
    assert (row["requests"], row["estimated"], row["input_tokens"], row["output_tokens"]) == (1, 1, 1, 0)
    assert (counts["live"], counts["cancelled"]) == (0, 1)


async def archive(name: str) -> str:
    """A tool with a long result."""
    return "a" * 4_000


def calls_a_tool(name: str) -> Script:
    """A turn that calls a function."""

    async def script(call: Call) -> None:
        function = {"name": name, "arguments": '{"name": "x"}'}
        await call.head()
        await call.event(delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": function}]))
        await call.event(delta("tool_calls"))
        await call.event({"choices": [], "usage": USAGE})
        await call.event(b"[DONE]")
        await call.end()

    return script


@pytest.mark.parametrize("has_head", [True, False])
@pytest.mark.parametrize("count", [1, 2], ids=["one deployment", "two deployments"])
def test_a_client_that_leaves_pays_for_the_turn_that_the_model_was_reading(
    upstream: Upstream, count: int, has_head: bool
) -> None:
    async def is_silent(call: Call) -> None:
        if has_head:
            await call.head()
        await call.wait_for_disconnect()

    models = [upstream.plays(calls_a_tool("archive"), is_silent) for _ in range(count)]
    rows = [{"provider": "vllm", "model": model, "order": order} for order, model in enumerate(models)]
    config = {
        "providers": {"vllm": {"base_url": upstream.url}},
        "models": {"m": {"prices": PRICES, "deployments": rows}},
        "tools": {"functions": [f"{__name__}:archive"]},
    }
    with serve(config) as gateway:
        leave_after(gateway, upstream, models[0], 2)
        wait_until(lambda: [row["requests"] for row in usage(gateway)] == [2], "both turns are accounted for")
        [row] = usage(gateway, "group_by=deployment")
    assert (row["deployment"], row["estimated"], row["output_tokens"]) == (f"vllm/{models[0]}", 1, 500)
    assert row["input_tokens"] >= 1000 + 1000  # the result of the tool is part of what it read


def test_a_second_turn_that_is_refused_costs_nothing(upstream: Upstream) -> None:
    async def is_down(call: Call) -> None:
        await call.answer(503, b"{}")

    tools = {"functions": [f"{__name__}:archive"]}
    with priced(upstream, calls_a_tool("archive"), is_down, tools=tools, limits={"retries": 0}) as gateway:
        assert gateway.ask("m").json["status"] == "failed"
        assert [(row["requests"], row["cost"]) for row in usage(gateway)] == [(1, COST)]


def test_a_deployment_that_was_not_called_costs_nothing(upstream: Upstream) -> None:
    """What a client that leaves pays for is the deployment of the lowest order, which the model called."""

    async def is_silent(call: Call) -> None:
        await call.wait_for_disconnect()

    main, backup = upstream.plays(is_silent), upstream.plays(BILLED)
    rows = [{"provider": "vllm", "model": name, "order": order} for name, order in ((backup, 2), (main, 1))]
    config = {"providers": {"vllm": {"base_url": upstream.url}}, "models": {"m": {"deployments": rows}}}
    with serve(config) as gateway:
        leave_after(gateway, upstream, main, 1)
        wait_until(lambda: len(usage(gateway)) == 1, "the run is accounted for")
        [row] = usage(gateway, "group_by=deployment")
    assert (row["deployment"], row["estimated"]) == (f"vllm/{main}", 1)


def test_a_run_that_fails_counts_what_was_written(upstream: Upstream) -> None:
    with priced(upstream, breaks_off) as gateway:
        gateway.ask("m")
        [row] = usage(gateway)
    assert (row["requests"], row["estimated"], row["output_tokens"]) == (1, 1, 2)
    assert row["cost"] == (1 * 1.5 + 2 * 6) / 1_000_000


def test_a_refused_turn_costs_nothing(upstream: Upstream) -> None:
    with priced(upstream, refuses, limits={"retries": 0}) as gateway:
        gateway.ask("m")
        assert [(row["cost"], row["estimated"], row["output_tokens"]) for row in usage(gateway)] in ([], [(0, 0, 0)])


def test_the_deployment_that_answers_has_its_own_prices(upstream: Upstream) -> None:
    async def is_down(call: Call) -> None:
        await call.answer(503, b"{}")

    down, up = upstream.plays(is_down), upstream.plays(BILLED)
    other = upstream.plays(BILLED)
    provider = {
        "base_url": upstream.url,
        "prices": {"model-*": {"input": 1, "output": 0}, other: {"input": 2, "output": 0}},
    }
    config = {
        "limits": {"retries": 0},
        "providers": {"vllm": provider},
        "models": {
            "own": {
                "prices": {"input": 3, "output": 0},
                "deployments": [
                    {"provider": "vllm", "model": down},
                    {"provider": "vllm", "model": up, "order": 2, "prices": {"input": 4, "output": 0}},
                ],
            },
            "fallback": {
                "deployments": [{"provider": "vllm", "model": down}],
                "fallbacks": {"down": ["of-provider"]},
            },
            "of-provider": {"provider": "vllm", "model": other},
            "named": {"provider": "vllm", "model": upstream.plays(BILLED)},
        },
    }
    with serve(config) as gateway:
        costs = {name: gateway.ask(name).json["usage"]["cost"] for name in ("own", "fallback", "of-provider", "named")}
        rows = usage(gateway, "group_by=model,deployment")
    assert costs == {"own": 0.004, "fallback": 0.002, "of-provider": 0.002, "named": 0.001}
    assert {row["model"]: row["deployment"] for row in rows}["fallback"] == f"vllm/{other}"
    assert {row["model"]: row["cost"] for row in rows} == costs


def test_summaries_count_for_the_key_that_gets_them(upstream: Upstream) -> None:
    async def summary(call: Call) -> None:
        await say("", "The model looked.", usage={"prompt_tokens": 100, "completion_tokens": 10})(call)

    async def is_down(call: Call) -> None:
        await call.answer(503, b"{}")

    thinker, writer = upstream.plays(say("Let me see. " * 20, "42.", usage=USAGE)), upstream.plays(summary)
    rows = [
        {"provider": "vllm", "model": upstream.plays(is_down), "prices": {"input": 100, "output": 100}},
        {"provider": "vllm", "model": writer, "order": 2, "prices": {"input": 1, "output": 1}},
    ]
    config = {
        "providers": {"vllm": {"base_url": upstream.url}},
        "summaries": {"model": "writer", "seconds": 60},
        "models": {
            "m": {"provider": "vllm", "model": thinker, "prices": PRICES},
            "writer": {"deployments": rows},
        },
    }
    with serve(config) as gateway:
        reply = gateway.ask("m", reasoning={"summary": "auto"})
        assert reply.json["usage"]["cost"] == COST
        upstream.calls(writer, at_least=1)
        wait_until(lambda: len(usage(gateway)) == 2, "the summary is counted")
        counted = {row["model"]: row for row in usage(gateway, "group_by=owner,model,deployment")}
    assert {name: (row["owner"], row["deployment"], row["cost"]) for name, row in counted.items()} == {
        "m": ("local", f"vllm/{thinker}", COST),
        "writer": ("local", f"vllm/{writer}", 0.00011),
    }


# --- budgets -----------------------------------------------------------------------------------------------------


def with_budget(**limits: Any) -> dict[str, Any]:
    return {"default_policy": "p", "policies": {"p": limits}}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_spent_budget_refuses_in_the_form_of_every_protocol(upstream: Upstream, name: str) -> None:
    row = PROTOCOLS[name]
    with priced(upstream, BILLED, access=with_budget(cost_per_day=2 * COST)) as gateway:
        for _ in range(2):
            assert row.ask(gateway, "m").status == 200
        reply = row.ask(gateway, "m")
        assert reply.status == 429
        error = row.error_of(reply)
        assert error["code"] == "budget_exceeded"
        assert "the budget of this key, 0.00786 USD a day, is used up; 0.00786 USD are used" in error[
            "message"
        ].replace("requests without a key", "this key")
        assert "; it renews at 2" in error["message"]
        assert reply.headers["x-should-retry"] == "false"
        assert 0 < int(reply.headers["retry-after"]) <= 86_400
        assert [counted["requests"] for counted in usage(gateway)] == [2]


def test_a_turn_of_a_socket_is_refused(upstream: Upstream) -> None:
    with (
        priced(upstream, BILLED, access=with_budget(cost_per_month=COST)) as gateway,
        connect(f"ws://127.0.0.1:{gateway.port}/v1/responses") as socket,
    ):
        ends = []
        for _ in range(2):
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Why?"}))
            while True:
                event = json.loads(socket.recv())
                if event["type"] in ("error", "response.completed", "response.failed"):
                    ends.append(event)
                    break
    assert ends[0]["response"]["usage"]["cost"] == COST
    assert ends[1]["error"]["code"] == "budget_exceeded"
    assert "a month, is used up" in ends[1]["error"]["message"]


def test_a_budget_survives_a_restart(upstream: Upstream, tmp_path: Path) -> None:
    storage, access = {"url": f"sqlite:///{tmp_path}/store.db"}, with_budget(cost_per_day=COST)
    with priced(upstream, BILLED, storage=storage, access=access) as gateway:
        assert gateway.ask("m").status == 200
    with priced(upstream, BILLED, storage=storage, access=access) as gateway:
        assert gateway.ask("m").error["code"] == "budget_exceeded"
        assert [row["cost"] for row in usage(gateway)] == [COST]


class Party(NamedTuple):
    """A gateway with keys, and what each of them sends."""

    gateway: Served
    callers: dict[str, Caller]

    def ask(self, name: str) -> Reply:
        return self.callers[name].do("POST", "/v1/responses", {"model": "m", "input": "Why?"})


@contextmanager
def with_keys(upstream: Upstream, tmp_path: Path, policies: dict[str, Policy | None], **more: Any) -> Iterator[Party]:
    """A gateway with a key for each name, whose owner is the part of the name before `/`."""
    url = url_of(tmp_path / "store.sqlite")
    keys = make_keys(url, policies)
    with priced(upstream, BILLED, storage={"url": url}, access={"keys": True}, **more) as gateway:
        yield Party(gateway, {name: Caller(gateway, key) for name, key in keys.items()})


def test_a_key_is_charged_for_input_that_is_not_reported_and_not_for_impossible_numbers(
    upstream: Upstream, tmp_path: Path
) -> None:
    url = url_of(tmp_path / "store.sqlite")
    keys = make_keys(url, {"ann": Policy(tokens_per_minute=1000)})
    absurd = [say(text="", usage={"prompt_tokens": n, "completion_tokens": 1}) for n in (-(10**9), 2**62)]
    unreported = say(text="", usage={"completion_tokens": 1})
    with serve(
        priced_config(upstream, *absurd, unreported, unreported, storage={"url": url}, access={"keys": True})
    ) as gateway:
        ann = Caller(gateway, keys["ann"])

        def ask(text: str) -> Reply:
            return ann.do("POST", "/v1/responses", {"model": "m", "input": text})

        for _ in absurd:
            assert ask("Why?").status == 200
        assert ask("Why? " * 100).status == 200
        remaining = int(ask("Why?").headers["x-ratelimit-remaining-tokens"])
    assert 850 < remaining < 900  # 125 tokens are the input


def test_a_report_has_no_part_that_is_larger_than_its_whole(upstream: Upstream) -> None:
    """Some providers count cached tokens and reasoning separately, or with another tokenizer."""
    separate = {
        "prompt_tokens": 3,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 700, "cache_write_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 900},
    }
    with priced(upstream, say(usage=separate)) as gateway:
        assert gateway.ask("m").status == 200
        wait_until(lambda: usage(gateway), "the usage is written")
        [row] = usage(gateway)
    assert (row["input_tokens"], row["cached_tokens"], row["cache_write_tokens"]) == (3, 3, 0)
    assert (row["output_tokens"], row["reasoning_tokens"]) == (1, 1)


def test_each_key_has_its_own_budget(upstream: Upstream, tmp_path: Path) -> None:
    policies = {"ann/1": Policy(cost_per_day=COST), "ann/2": Policy(cost_per_day=2 * COST), "ann/3": None}
    with with_keys(upstream, tmp_path, policies) as party:
        statuses = {name: [party.ask(name).status for _ in range(3)] for name in policies}
    assert statuses == {"ann/1": [200, 429, 429], "ann/2": [200, 200, 429], "ann/3": [200, 200, 200]}


def test_an_owner_has_a_budget_for_all_keys_together(upstream: Upstream, tmp_path: Path) -> None:
    spend = {"owners": {"ann": {"cost_per_month": 2 * COST}}}
    with with_keys(upstream, tmp_path, {"ann/1": None, "ann/2": None, "bob": None}, spend=spend) as party:
        assert [party.ask(name).status for name in ("ann/1", "ann/2", "bob", "ann/1", "ann/2", "bob")] == [
            *(200, 200, 200),
            *(429, 429, 200),
        ]


def test_only_operators_read_what_was_used(upstream: Upstream, tmp_path: Path) -> None:
    with with_keys(upstream, tmp_path, {"ann": None, "operations": Policy(operator=True)}) as party:
        party.ask("ann")
        assert party.gateway.request("GET", "/api/usage").status == 401
        refused = party.callers["ann"].do("GET", "/api/usage?owner=ann")
        assert (refused.status, refused.json["error"]["code"]) == (403, "operator_only")
        reply = party.callers["operations"].do("GET", "/api/usage?group_by=owner,key")
        [row] = reply.json["data"]
    assert row["owner"] == "ann"
    assert row["key"].startswith("key_")
    assert b"Why?" not in reply.body


@pytest.mark.needs("postgresql")
def test_replicas_share_a_budget(upstream: Upstream, postgres_server: PostgresServer) -> None:
    more: dict[str, Any] = {
        "storage": {"url": postgres_server.database()},
        "access": with_budget(cost_per_day=2 * COST),
    }
    with priced(upstream, BILLED, **more) as first, priced(upstream, BILLED, **more) as second:
        assert [first.ask("m").status, first.ask("m").status, first.ask("m").status] == [200, 200, 429]
        usage(first)  # which writes what was not written yet
        assert second.ask("m").error["code"] == "budget_exceeded"
        assert [(row["requests"], row["cost"]) for row in usage(second)] == [(2, 2 * COST)]


def test_concurrent_runs_are_all_counted(upstream: Upstream) -> None:
    with priced(upstream, BILLED) as gateway, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: gateway.ask("m", store=False), range(40)))
        assert {reply.json["usage"]["cost"] for reply in replies} == {COST}
        assert [(row["requests"], row["cost"]) for row in usage(gateway)] == [(40, 0.1572)]


# --- reports -----------------------------------------------------------------------------------------------------


def test_a_report_is_grouped_filtered_and_csv(upstream: Upstream) -> None:
    with priced(upstream, BILLED) as gateway:
        gateway.ask("m")
        today = time.strftime("%Y-%m-%d", time.gmtime())
        assert usage(gateway, "group_by=month,owner,key,deployment")[0]["month"] == today[:7]
        assert len(usage(gateway, f"from={today}&to={today[:7]}&model=m&owner=local")) == 1
        for query in ("to=2020-01", "model=other", "owner=other", "key=key_1", "model=%00"):
            assert usage(gateway, query) == [], query
        text = gateway.request("GET", "/api/usage?group_by=model", headers={"Accept": "text/csv"})
        assert text.headers["content-type"] == "text/csv; charset=utf-8"
        rows = list(csv.DictReader(io.StringIO(text.body.decode())))
        assert rows[0] | {"model": "m", "cost": "0.00393", "requests": "1", "currency": "USD"} == rows[0]
        for query, param in (
            ("from=yesterday", "from"),
            ("to=2026-1-1", "to"),
            ("from=2026-13", "from"),
            ("to=2026-02-31", "to"),
            ("from=2026-02&to=2026-01-31", "to"),
            ("from=2026-01-31&to=2026-01-05", "to"),
            ("from=%D9%A2026-01", "from"),
            ("group_by=color", "group_by"),
            ("by=day", "by"),
        ):
            reply = gateway.request("GET", f"/api/usage?{query}", headers={"Host": "localhost"})
            assert reply.status == 400
            assert param in reply.json["error"]["message"]
