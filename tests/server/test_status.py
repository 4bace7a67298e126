"""`/api/status`: what an operator sees of models, runs and failures; and the cancel of a run in every protocol."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import jsonschema
import pytest
from websockets.sync.client import connect

from pellucid.relay import MemoryRelay, Relay
from pellucid.server.access.policy import Policy
from tests.schemas import openapi_document
from tests.scripted import Call, Script, Upstream, delta, say
from tests.scripted.gateway import Reply, Served, events_of
from tests.server.state_kit import Caller, calls, make_keys, serving, url_of
from tests.waiting import LIMIT_SECONDS, wait_until

VALIDATOR = jsonschema.Draft202012Validator({"$ref": "#/components/schemas/GatewayStatus", **openapi_document()})
SECRETS = ("the-thought", "the-answer", "the-question")
STATUS = "/api/status"
CODE = "cancelled_by_operator"


async def linger(word: str) -> str:
    """Never return."""
    await asyncio.Event().wait()
    return word


async def silent(call: Call) -> None:
    """Script a model that does not accept its call."""
    await call.wait_for_disconnect()


async def begins(call: Call) -> None:
    """Script a model that accepts its call, and says nothing."""
    await call.head()
    await call.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    await call.wait_for_disconnect()


async def thinks(call: Call) -> None:
    await call.head()
    await call.event({"choices": [{"index": 0, "delta": {"reasoning_content": "the-thought"}}]})
    await call.wait_for_disconnect()


async def answers(call: Call) -> None:
    await call.head()
    await call.event({"choices": [{"index": 0, "delta": {"content": "the-answer"}}]})
    await call.wait_for_disconnect()


def fails_with(status: int, code: str) -> Script:
    async def script(call: Call) -> None:
        await call.answer(status, json.dumps({"error": {"message": "the-thought", "code": code}}).encode())

    return script


class Party(NamedTuple):
    gateway: Served
    operator: Caller
    ann: Caller
    bob: Caller

    def status(self) -> dict[str, Any]:
        reply = self.operator.do("GET", STATUS)
        assert reply.status == 200, reply.body
        assert not any(secret.encode() in reply.body for secret in SECRETS)
        status: dict[str, Any] = reply.json
        VALIDATOR.validate(status)
        return status

    def runs(self, model: str) -> list[dict[str, Any]]:
        """Return the runs of a model that have not ended."""
        return [run for run in self.status()["runs"] if run["model"] == f"vllm:{model}"]

    def run_in(self, model: str, state: str) -> dict[str, Any]:
        """Wait until the only run of a model is in a state."""
        wait_until(lambda: [run["state"] for run in self.runs(model)] == [state], f"a run is {state}")
        return self.runs(model)[0]

    def cancel(self, id: str) -> Reply:
        return self.operator.do("POST", f"{STATUS}/runs/{id}/cancel")


@contextmanager
def party_of(upstream: Upstream, url: str, **sections: Any) -> Iterator[Party]:
    policies = {"operations": Policy(operator=True), "ann": None, "bob": None}
    keys = make_keys(url, policies)
    with serving(upstream, url, access={"keys": True}, server={"shutdown_seconds": 0.1}, **sections) as gateway:
        operator, ann, bob = (Caller(gateway, keys[name]) for name in policies)
        yield Party(gateway, operator, ann, bob)


@pytest.fixture(scope="module")
def party(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Party]:
    url = url_of(tmp_path_factory.mktemp("status") / "store.sqlite")
    with party_of(upstream, url, tools={"functions": [f"{__name__}:linger", "tests.server.state_kit:look_up"]}) as made:
        yield made


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as executor:
        yield executor


# --- who may see it ---------------------------------------------------------------------------------------------------


def test_only_an_operator_sees_and_cancels_anything(party: Party, upstream: Upstream) -> None:
    model = upstream.plays(thinks)
    party.ann.create_response(model, background=True)
    run = party.run_in(model, "thinking")
    for caller in (party.ann, party.bob):
        for method, path in (("GET", STATUS), ("POST", f"{STATUS}/runs/{run['id']}/cancel")):
            reply = caller.do(method, path)
            assert (reply.status, reply.json["error"]["code"]) == (403, "operator_only")
    assert Caller(party.gateway).do("GET", STATUS).status == 401
    assert Caller(party.gateway).do("POST", f"{STATUS}/runs/{run['id']}/cancel").status == 401
    assert party.runs(model)
    party.cancel(run["id"])


def test_it_is_open_where_no_keys_are_required(upstream: Upstream) -> None:
    with serving(upstream) as gateway:
        status = gateway.request("GET", STATUS).json
        assert (status["ready"], status["runs"], status["failures"]) == (True, [], [])
        [replica] = status["replicas"]
        assert (replica["id"], replica["state"], replica["reasons"]) == (status["replica"], "ready", [])
        # The Host rule protects it.
        assert gateway.request("GET", STATUS, headers={"Host": "rebound.example"}).status == 403


# --- runs -------------------------------------------------------------------------------------------------------------


def test_runs_that_have_not_ended_are_listed(party: Party, upstream: Upstream, background: ThreadPoolExecutor) -> None:
    before = party.status()["counts"]
    thinking, answering, waiting = upstream.plays(thinks), upstream.plays(answers), upstream.plays(silent)
    calling, ending = upstream.plays(calls("linger")), upstream.plays(say("the-thought", "the-answer"))
    response = party.ann.create_response(thinking, "the-question", background=True)
    whole = background.submit(party.bob.say, answering, "the-question")
    chat = {"model": f"vllm:{waiting}", "messages": [{"role": "user", "content": "the-question"}]}
    unanswered = background.submit(party.bob.do, "POST", "/v1/chat/completions", chat, **{"X-Request-Id": "mine-1"})
    called = background.submit(party.ann.say, calling, "the-question")
    party.ann.create_response(ending, "the-question")

    first, second = party.run_in(thinking, "thinking"), party.run_in(answering, "answering")
    third, fourth = party.run_in(waiting, "waiting"), party.run_in(calling, "tools")
    assert not party.runs(ending)
    assert (first["response_id"], first["owner"], first["attached"]) == (response["id"], "ann", False)
    assert (first["deployment"], first["characters"]) == (f"vllm/{thinking}", len("the-thought"))
    assert (second["owner"], second["attached"], second["protocol"]) == ("bob", True, "openresponses")
    assert (third["request_id"], third["protocol"], third["characters"]) == ("mine-1", "chat_completions", 0)
    assert (fourth["owner"], fourth["attached"]) == ("ann", True)
    for run in (first, second, third, fourth):
        assert run["key"]
        assert run["seconds"] >= 0
        assert abs(run["started_at"] + run["seconds"] - time.time()) < LIMIT_SECONDS
        assert run["replica"] == party.status()["replica"]
        assert party.cancel(run["id"]).json["id"] == run["id"]
    assert [whole.result().json["status"], unanswered.result().status] == ["failed", 403]
    assert called.result().json["error"]["code"] == CODE
    counts = party.status()["counts"]
    # The run whose model never accepted its call has not begun.
    assert (counts["failed"] - before["failed"], counts["completed"] - before["completed"]) == (3, 1)


def test_a_request_causes_no_call_of_the_relay(upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def count(name: str) -> None:
        method = getattr(MemoryRelay, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return method(*args, **kwargs)

        monkeypatch.setattr(MemoryRelay, name, counted)

    for name in Relay.__abstractmethods__:
        count(name)
    model = upstream.plays(say("the-thought", "the-answer"))
    with serving(upstream) as gateway:
        gateway.request("GET", STATUS)
        # An idle process renews its membership, in these tests once an hour.
        assert called.count("set_presence") == 1
        called.clear()
        for stream in (False, True):
            assert gateway.ask(f"vllm:{model}", stream).status == 200
        assert called == []
        gateway.request("GET", STATUS)
        assert set(called) <= {"list_present", "check"}


def test_a_run_whose_client_leaves_is_not_listed_any_more(party: Party, upstream: Upstream) -> None:
    model = upstream.plays(thinks)
    with serving(upstream) as gateway:

        def listed() -> list[Any]:
            runs: list[Any] = gateway.request("GET", STATUS).json["runs"]
            return runs

        stream = gateway.open(f"vllm:{model}")
        stream.until("the-thought")
        assert [run["response_id"] for run in listed()] == [stream_id(stream.seen)]
        stream.leave()
        wait_until(lambda: not listed(), "the run is not listed")


def stream_id(data: bytes) -> str:
    id: str = json.loads(data.split(b"data: ")[1].split(b"\n")[0])["response"]["id"]
    return id


# --- cancel -----------------------------------------------------------------------------------------------------------


def _data(body: bytes) -> list[dict[str, Any]]:
    """Return the JSON of all frames of a stream."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def _responses_stream(reply: Reply) -> str:
    events = events_of(reply.body)
    assert events[-1]["type"] == "response.failed"
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning"]
    code: str = events[-1]["response"]["error"]["code"]
    return code


def _error_code(reply: Reply) -> str:
    code: str = reply.json["error"]["code"]
    return code


def _messages_whole(reply: Reply) -> str:
    assert (reply.status, reply.json["error"]["type"]) == (403, "permission_error")
    return CODE if "an operator" in reply.json["error"]["message"] else ""


def _messages_stream(reply: Reply) -> str:
    [error] = [event for event in _data(reply.body) if event["type"] == "error"]
    assert error["error"]["type"] == "permission_error"
    return CODE if "an operator" in error["error"]["message"] else ""


def _agui(reply: Reply) -> str:
    last = _data(reply.body)[-1]
    assert last["type"] == "RUN_ERROR"
    code: str = last["code"]
    return code


def _ai_sdk(reply: Reply) -> str:
    chunks = _data(reply.body)
    assert chunks[-1]["type"] == "finish"
    [error] = [chunk for chunk in chunks if chunk["type"] == "error"]
    return CODE if "an operator" in error["errorText"] else ""


def _chat(reply: Reply) -> str:
    final = _data(reply.body)[-1]
    assert (final["type"], final["event"]["status"]) == ("message_final", "failed")
    code: str = final["event"]["error"]["code"]
    return code


USER = {"role": "user", "content": "the-question"}
PROTOCOLS: dict[str, tuple[str, dict[str, Any], Callable[[Reply], str]]] = {
    "responses, streamed": ("/v1/responses", {"input": "the-question", "stream": True}, _responses_stream),
    "responses, whole": ("/v1/responses", {"input": "the-question"}, _error_code),
    "responses, not stored": ("/v1/responses", {"input": "the-question", "store": False}, _error_code),
    "responses, followed": (
        "/v1/responses",
        {"input": "the-question", "stream": True, "background": True},
        _responses_stream,
    ),
    "chat completions, streamed": (
        "/v1/chat/completions",
        {"messages": [USER], "stream": True},
        lambda reply: _data(reply.body)[-1]["error"]["code"],
    ),
    "chat completions, whole": ("/v1/chat/completions", {"messages": [USER]}, _error_code),
    "messages, streamed": ("/v1/messages", {"messages": [USER], "max_tokens": 9, "stream": True}, _messages_stream),
    "messages, whole": ("/v1/messages", {"messages": [USER], "max_tokens": 9}, _messages_whole),
    "AG-UI": ("/ag-ui", {"threadId": "t", "runId": "r", "messages": [{"id": "u", **USER}]}, _agui),
    "AG-UI, stored": (
        "/ag-ui?store=true",
        {"threadId": "t", "runId": "r2", "messages": [{"id": "u", **USER}]},
        _agui,
    ),
    "AI SDK": (
        "/api/chat",
        {"messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "the-question"}]}]},
        _ai_sdk,
    ),
    "chat": ("/api/chat", {"text": "the-question"}, _chat),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_cancelled_run_ends_in_the_form_of_its_protocol(
    party: Party, upstream: Upstream, background: ThreadPoolExecutor, protocol: str
) -> None:
    path, body, code_of = PROTOCOLS[protocol]
    model = upstream.plays(thinks)
    if path.startswith("/ag-ui"):
        path += f"{'&' if '?' in path else '?'}model=vllm:{model}"
    ended: Future[Reply] = background.submit(party.ann.do, "POST", path, {"model": f"vllm:{model}", **body})
    run = party.run_in(model, "thinking")
    assert party.cancel(run["id"]).status == 200
    assert code_of(ended.result()) == CODE
    assert not party.runs(model)
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)
    # It is over: there is nothing to cancel any more.
    reply = party.cancel(run["id"])
    assert (reply.status, reply.json["error"]["code"]) == (404, "run_not_found")


def test_a_socket_remains_open_when_its_response_is_cancelled(party: Party, upstream: Upstream) -> None:
    model, other = upstream.plays(thinks), upstream.plays(say("", "the-answer"))
    address = party.gateway.url.replace("http", "ws") + "/v1/responses"
    with connect(address, additional_headers=party.ann.headers, open_timeout=LIMIT_SECONDS) as socket:

        def create(name: str) -> None:
            socket.send(json.dumps({"type": "response.create", "model": f"vllm:{name}", "input": "the-question"}))

        def last() -> dict[str, Any]:
            while True:
                event: dict[str, Any] = json.loads(socket.recv(LIMIT_SECONDS))
                if event["type"] in ("response.failed", "response.completed"):
                    return event

        create(model)
        party.cancel(party.run_in(model, "thinking")["id"])
        assert last()["response"]["error"]["code"] == CODE
        create(other)
        assert last()["type"] == "response.completed"


def test_what_was_produced_is_stored(party: Party, upstream: Upstream, background: ThreadPoolExecutor) -> None:
    for more in ({"store": True}, {"background": True, "store": True}):
        model = upstream.plays(thinks)
        background.submit(party.ann.say, model, **more)
        run = party.run_in(model, "thinking")
        party.cancel(run["id"])
        stored = party.ann.until(run["response_id"], "failed")
        assert stored["error"]["code"] == CODE
        [reasoning] = stored["output"]
        assert reasoning["content"][0]["text"] == "the-thought"


def test_a_model_that_does_not_accept_its_call_is_not_waited_for(
    party: Party, upstream: Upstream, background: ThreadPoolExecutor
) -> None:
    """Neither by a request nor in the background; nor in a second turn, after a tool."""
    model = upstream.plays(silent)
    whole = background.submit(party.ann.say, model)
    upstream.calls(model, 1)
    party.cancel(party.run_in(model, "waiting")["id"])
    assert (whole.result().status, _error_code(whole.result())) == (403, CODE)
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)

    model = upstream.plays(calls("look_up"), silent)
    whole = background.submit(party.ann.say, model)
    upstream.calls(model, 2)
    party.cancel(party.run_in(model, "waiting")["id"])
    response = whole.result().json
    assert (response["status"], response["error"]["code"]) == ("failed", CODE)
    assert [item["type"] for item in response["output"]] == ["reasoning", "function_call", "function_call_output"]
    assert upstream.calls(model)[1].connection.closed.wait(LIMIT_SECONDS)

    model = upstream.plays(silent)
    response = party.ann.create_response(model, background=True)
    party.cancel(party.run_in(model, "waiting")["id"])
    assert party.ann.until(response["id"], "failed")["error"]["code"] == CODE


# --- models and failures ----------------------------------------------------------------------------------------------


def deployments(status: dict[str, Any], model: str) -> dict[str, dict[str, Any]]:
    [row] = [row for row in status["models"] if row["name"] == model]
    return {one["name"]: one for one in row["deployments"]}


def test_the_health_of_deployments(upstream: Upstream) -> None:
    first, second = upstream.plays(fails_with(503, "overloaded_error")), upstream.plays(say("", "the-answer"))
    rows = [{"provider": "vllm", "model": model, "order": order} for order, model in enumerate((first, second))]
    with serving(upstream, models={"m": {"deployments": rows}}) as gateway:
        before = gateway.request("GET", STATUS).json
        assert {one["state"] for one in deployments(before, "m").values()} == {"available"}
        assert gateway.post({"model": "m", "input": "the-question"}, {"X-Request-Id": "mine-2"}).status == 200
        status = gateway.request("GET", STATUS).json
        one, other = deployments(status, "m").values()
        assert (one["name"], one["state"], one["failures"]) == (f"vllm/{first}", "cooling", 1)
        assert one["cooling_until"] > time.time() - LIMIT_SECONDS
        assert (other["name"], other["state"], other["failures"]) == (f"vllm/{second}", "available", 0)
        [failure] = status["failures"]
        assert one["last_failure"] == failure
        assert (failure["request_id"], failure["model"], failure["deployment"]) == ("mine-2", "m", f"vllm/{first}")
        assert (failure["kind"], failure["status"], failure["code"]) == ("unavailable", 503, "overloaded_error")
        assert failure["was_retried"]
        assert "the-thought" not in json.dumps(status)


async def thinks_and_fails(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.event({"error": {"message": "out of memory", "code": 500}})


def test_a_deployment_that_fails_after_thoughts_has_failed(upstream: Upstream) -> None:
    first, second = upstream.plays(thinks_and_fails), upstream.plays(say())
    rows = [{"provider": "vllm", "model": first}, {"provider": "vllm", "model": second, "order": 2}]
    models = {"two": {"deployments": rows, "retry_thoughts": True}}
    with serving(upstream, models=models) as gateway:
        assert gateway.ask("two").json["status"] == "completed"
        one, other = deployments(gateway.request("GET", STATUS).json, "two").values()
        assert (one["name"], one["state"], one["failures"]) == (f"vllm/{first}", "cooling", 1)
        assert (other["name"], other["state"], other["failures"]) == (f"vllm/{second}", "available", 0)


@pytest.mark.parametrize("retry_thoughts", [True, False])
def test_a_failure_is_recorded_once(upstream: Upstream, retry_thoughts: bool) -> None:
    first, second = upstream.plays(thinks_and_fails), upstream.plays(say())
    rows = [{"provider": "vllm", "model": first}, {"provider": "vllm", "model": second, "order": 2}]
    with serving(upstream, models={"m": {"deployments": rows, "retry_thoughts": retry_thoughts}}) as gateway:
        gateway.ask("m")
        [failure] = gateway.request("GET", STATUS).json["failures"]
    assert (failure["deployment"], failure["was_retried"]) == (f"vllm/{first}", retry_thoughts)


async def begins_and_fails(call: Call) -> None:
    await call.head()
    await call.event({"choices": [{"index": 0, "delta": {"role": "assistant"}}]})
    await call.event({"error": {"message": "out of memory", "code": 500}})


@pytest.mark.parametrize("script", [fails_with(503, "overloaded_error"), begins_and_fails], ids=["refused", "begun"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_only_the_last_failure_of_a_request_was_not_retried(upstream: Upstream, script: Script, rounds: int) -> None:
    rows = [{"provider": "vllm", "model": upstream.plays(script), "order": order} for order in range(2)]
    limits = {"retries": rounds - 1, "retry_wait": 0.1}
    with serving(upstream, models={"m": {"deployments": rows}}, limits=limits) as gateway:
        gateway.ask("m")
        [summary, *failures] = gateway.request("GET", STATUS).json["failures"]
    assert (summary["deployment"], summary["was_retried"]) == (None, False)
    assert [one["was_retried"] for one in failures] == [False, *[True] * (2 * rounds - 1)]


@pytest.mark.parametrize("script", [silent, begins], ids=["no head", "no content"])
def test_a_deployment_that_says_nothing_is_not_waited_for(
    upstream: Upstream, background: ThreadPoolExecutor, script: Script
) -> None:
    models = [upstream.plays(script), upstream.plays(say("", "the-answer"))]
    rows = [{"provider": "vllm", "model": model, "order": order} for order, model in enumerate(models)]
    with serving(upstream, models={"m": {"deployments": rows}}) as gateway:

        def runs() -> list[Any]:
            listed: list[Any] = gateway.request("GET", STATUS).json["runs"]
            return listed

        whole = background.submit(gateway.ask, "m")
        upstream.calls(models[0], 1)
        wait_until(lambda: [run["state"] for run in runs()] == ["waiting"], "it waits for the model")
        assert gateway.request("POST", f"{STATUS}/runs/{runs()[0]['id']}/cancel").status == 200
        assert _error_code(whole.result()) == CODE
        assert upstream.calls(models[0])[0].connection.closed.wait(LIMIT_SECONDS)
        assert not upstream.calls(models[1])
        status = gateway.request("GET", STATUS).json
        assert (status["runs"], status["failures"]) == ([], [])
        assert {one["state"] for one in deployments(status, "m").values()} == {"available"}


def test_a_model_with_one_deployment_fails_until_it_answers(upstream: Upstream) -> None:
    working = False

    async def sometimes(call: Call) -> None:
        await (say("", "the-answer") if working else fails_with(500, "the-thought"))(call)

    model = upstream.plays(sometimes)
    with serving(upstream, models={"m": {"provider": "vllm", "model": model}}) as gateway:
        for _ in range(2):
            gateway.ask("m")
        status = gateway.request("GET", STATUS).json
        [one] = deployments(status, "m").values()
        assert (one["state"], one["failures"], one["cooling_until"]) == ("failing", 2, None)
        assert status["counts"]["failed"] == 2
        # A code that the gateway does not know is not shown: a provider may write anything into it.
        assert [(f["status"], f["code"], f["was_retried"]) for f in status["failures"]] == [(500, None, False)] * 2
        working = True
        assert gateway.ask("m").status == 200
        [one] = deployments(gateway.request("GET", STATUS).json, "m").values()
        assert (one["state"], one["failures"], one["last_failure"]["status"]) == ("available", 0, 500)


@pytest.mark.parametrize("code", ["first_byte_timeout", "idle_timeout", "empty_stream", "stream_truncated"])
def test_the_codes_of_the_gateway_are_shown(upstream: Upstream, code: str) -> None:
    async def fails(call: Call) -> None:
        if code == "first_byte_timeout":
            await call.wait_for_disconnect()
        await call.head()
        if code == "idle_timeout":
            await call.event(delta(content="the-answer"))
            await call.wait_for_disconnect()
        if code == "stream_truncated":
            await call.event(delta(content="the-answer"))
        await call.end()

    with serving(upstream, limits={"first_byte": 1.0, "idle": 1.0, "retries": 0}) as gateway:
        gateway.ask(f"vllm:{upstream.plays(fails)}")
        assert [failure["code"] for failure in gateway.request("GET", STATUS).json["failures"]] == [code]


def test_names_that_clients_invent_are_listed_only_if_they_work(upstream: Upstream) -> None:
    missing, working = upstream.plays(fails_with(404, "model_not_found")), upstream.plays(say("", "the-answer"))
    with serving(upstream) as gateway:
        gateway.ask(f"vllm:{missing}")
        gateway.ask(f"vllm:{working}")
        names = [row["name"] for row in gateway.request("GET", STATUS).json["models"]]
        assert names == [f"vllm:{working}"]
