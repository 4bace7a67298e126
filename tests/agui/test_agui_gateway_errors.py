"""Requests that `/ag-ui` refuses: a status and an event whose message has the location and the allowed values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agui.agui_gateway_kit import USER, WEATHER, begin, error_of, post, run, run_input
from tests.cases import Cases
from tests.scripted import Call, Upstream, say
from tests.scripted.gateway import Served, serve
from tests.server.state_kit import config_of, hangs
from tests.waiting import LIMIT_SECONDS


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serve(config_of(upstream, server={"max_body_bytes": 50_000})) as running:
        yield running


VIEWS = "raw, summary, sealed, hidden"
QUERIES: list[tuple[dict[str, str], str]] = [
    ({"view": "loud"}, f'view: must be one of {VIEWS}, not "loud"'),
    ({"effort": "much"}, 'effort: must be one of none, minimal, low, medium, high, xhigh, max, not "much"'),
    ({"store": "maybe"}, 'store: must be true or false, not "maybe"'),
    ({"chunks": ""}, 'chunks: must be true or false, not ""'),
    ({"snapshot": "7"}, 'snapshot: must be true or false, not "7"'),
    ({"reasoning": "false"}, 'reasoning: must be one of on, off, not "false"'),
    ({"dialect": "2.0"}, 'dialect: must be one of 1.0, 0.x, thinking, proposal, not "2.0"'),
]
AT = "forwardedProps.pellucid"
PROPS: list[tuple[Any, str, str]] = [
    ([], AT, "must be an object of options"),
    ({"views": "raw"}, f"{AT}.views", "no such option; there are model, effort, view, "),
    ({"view": 3}, f"{AT}.view", f"must be one of {VIEWS}, not 3"),
    ({"store": "true"}, f"{AT}.store", 'must be true or false, not "true"'),
    ({"model": 3}, f"{AT}.model", "must be a model's public name, not 3"),
    ({"model": ["x" * 100]}, f"{AT}.model", "must be a model's public name, not [\"xxx"),
]


@pytest.mark.parametrize(("query", "message"), QUERIES)
def test_an_invalid_option_in_the_query_is_refused(gateway: Served, query: dict[str, str], message: str) -> None:
    code, param, words = error_of(post(gateway, "vllm:m", **query))
    assert (code, param, words) == ("invalid_value", next(iter(query)), message)


@pytest.mark.parametrize(("value", "at", "message"), PROPS)
def test_an_invalid_option_in_forwarded_props_is_refused(gateway: Served, value: Any, at: str, message: str) -> None:
    _, param, words = error_of(post(gateway, "vllm:m", run_input(forwardedProps={"pellucid": value})))
    assert param == at
    assert words.startswith(f"{at}: {message}")
    assert len(words) < 200


def test_options_of_other_software_are_ignored(gateway: Served, upstream: Upstream) -> None:
    body = run_input(forwardedProps={"theirs": {"view": "loud"}}, state={"x": [1]}, parentRunId="r0")
    events = run(gateway, f"vllm:{upstream.plays(say())}", body, theirs="x")
    assert events[0]["parentRunId"] == "r0"


@pytest.mark.parametrize(
    ("headers", "param", "message"),
    [
        ({"Pellucid-View": "loud"}, "view", f"'loud' is not a view; it is one of {VIEWS}"),
        ({"AG-UI-Dialect": "2"}, "AG-UI-Dialect", "'2' is not a dialect of AG-UI; it is one of 1.0, 0.x, "),
    ],
)
def test_an_invalid_header_is_refused(gateway: Served, headers: dict[str, str], param: str, message: str) -> None:
    _, at, words = error_of(post(gateway, "vllm:m", None, headers))
    assert at == param
    assert words.startswith(message)


def test_a_header_is_validated_even_if_the_query_overrides_it(gateway: Served) -> None:
    _, at, _ = error_of(post(gateway, "vllm:m", None, {"AG-UI-Dialect": "2"}, dialect="1.0"))
    assert at == "AG-UI-Dialect"


ORPHAN = {"id": "a", "role": "tool", "toolCallId": "c", "content": ""}
FORGED = {"id": "a", "role": "assistant", "content": "x", "encryptedValue": "zz"}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_type", None),
        (b"{}", "missing", "threadId"),
        (run_input(run=1), "invalid_value", "runId"),  # type: ignore[arg-type]
        ({"threadId": "t", "runId": "r", "messages": []}, "missing", "messages"),
        (run_input(USER, {"role": "user", "content": "x"}), "missing", "messages[1].id"),
        (run_input({"id": "a", "role": "robot"}), "invalid_value", "messages[0].role"),
        (run_input(USER, ORPHAN), "invalid_value", "messages[1].toolCallId"),
        (run_input(tools=[WEATHER, WEATHER]), "invalid_value", "tools[1].name"),
        (run_input(tools=[{**WEATHER, "parameters": 3}]), "invalid_type", "tools[0].parameters"),
        (run_input(resume=[{"interruptId": "x", "status": "odd"}]), "invalid_value", "resume[0].status"),
        (run_input(context=[{"description": "x"}]), "missing", "context[0].value"),
        (run_input(USER, FORGED), "seal_broken", "messages[1].encryptedValue"),
    ],
)  # fmt: skip
def test_an_error_in_the_input_names_its_location(gateway: Served, body: Any, code: str, param: str | None) -> None:
    error = error_of(post(gateway, "vllm:m", body if isinstance(body, bytes) else json.dumps(body).encode()))
    assert error[:2] == (code, param)
    assert param is None or error[2].startswith(f"{param}: ")


def test_errors_have_their_http_status(gateway: Served, upstream: Upstream) -> None:
    assert error_of(post(gateway, "nobody"), 404)[:2] == ("model_not_found", "model")
    assert error_of(post(gateway, "vllm:m", run_input({**USER, "content": "x" * 60_000})), 413)[0] == "body_too_large"
    for method, path in (("GET", "/ag-ui"), ("DELETE", "/ag-ui"), ("POST", "/ag-ui/cancel")):
        assert error_of(gateway.request(method, path))[:2] == ("missing", "threadId")
        code, param, message = error_of(gateway.request(method, f"{path}?threadId=t"), 404)
        assert (code, param, "runId" in message) == ("conversation_not_found", "threadId", True)
    assert error_of(gateway.request("GET", "/ag-ui?threadId=t&runId=r"), 404)[:2] == ("run_not_found", "runId")

    async def busy(call: Call) -> None:
        await call.answer(429, b'{"error":{"message":"slow down"}}', retry_after="7")

    reply = post(gateway, f"vllm:{upstream.plays(busy)}")
    assert error_of(reply, 429)[0] == "too_many_requests"
    assert reply.headers["retry-after"] == "7"


def test_the_binary_transport_needs_the_accept_header_and_version_1_0(gateway: Served, upstream: Upstream) -> None:
    kind, text = "application/vnd.ag-ui.event+proto", "text/event-stream"
    requests = [
        ("1.0", f"{text}, {kind}", kind),
        (None, f"{text}, {kind}", text),
        ("1.0", f"{kind};q=0.5, {text};q=0.5", kind),
        ("1.0", f"{kind};q=0.4, {text};q=0.5", text),
        ("1.0", f"{kind};q=0.4, text/*;q=0.5", text),
        ("1.0", f"{kind};q=0.4, {text};q=0.1, */*", kind),
        ("1.0", f"{kind};q=0, {text};q=0", text),
        ("1.0", "*/*", text),
    ]
    name = f"vllm:{upstream.plays(say())}"
    with Cases() as case:
        for version, accept, content_type in requests:
            with case(f"{version} {accept}"):
                body = run_input() if version is None else run_input(protocolVersion=version)
                reply = post(gateway, name, body, {"Accept": accept})
                assert reply.status == 200
                assert reply.headers["content-type"].partition(";")[0] == content_type


def test_a_disconnect_ends_the_run(gateway: Served, upstream: Upstream) -> None:
    name = upstream.plays(hangs)
    with begin(gateway, f"vllm:{name}") as stream:
        stream.until("Hm.")
    [call] = upstream.calls(name)
    assert call.connection.closed.wait(LIMIT_SECONDS)
