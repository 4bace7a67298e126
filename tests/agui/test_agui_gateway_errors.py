"""What `/ag-ui` refuses: a status and an event, whose words say what was wrong, where, and what would be right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agui.agui_gateway_kit import USER, WEATHER, asked, begin, post, refused, run
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


@pytest.mark.parametrize(("query", "told"), QUERIES)
def test_an_option_in_the_query(gateway: Served, query: dict[str, str], told: str) -> None:
    code, param, words = refused(post(gateway, "vllm:m", **query))
    assert (code, param, words) == ("invalid_value", next(iter(query)), told)


@pytest.mark.parametrize(("given", "at", "told"), PROPS)
def test_an_option_in_forwarded_props(gateway: Served, given: Any, at: str, told: str) -> None:
    _, param, words = refused(post(gateway, "vllm:m", asked(forwardedProps={"pellucid": given})))
    assert param == at
    assert words.startswith(f"{at}: {told}")
    assert len(words) < 200


def test_what_is_others_is_left_alone(gateway: Served, upstream: Upstream) -> None:
    body = asked(forwardedProps={"theirs": {"view": "loud"}}, state={"x": [1]}, parentRunId="r0")
    events = run(gateway, f"vllm:{upstream.plays(say())}", body, theirs="x")
    assert events[0]["parentRunId"] == "r0"


@pytest.mark.parametrize(
    ("headers", "param", "told"),
    [
        ({"Pellucid-View": "loud"}, "view", f"'loud' is not a view; it is one of {VIEWS}"),
        ({"AG-UI-Dialect": "2"}, "AG-UI-Dialect", "'2' is not a dialect of AG-UI; it is one of 1.0, 0.x, "),
    ],
)
def test_a_header(gateway: Served, headers: dict[str, str], param: str, told: str) -> None:
    _, at, words = refused(post(gateway, "vllm:m", None, headers))
    assert at == param
    assert words.startswith(told)


def test_a_header_is_judged_also_where_the_query_decides(gateway: Served) -> None:
    _, at, _ = refused(post(gateway, "vllm:m", None, {"AG-UI-Dialect": "2"}, dialect="1.0"))
    assert at == "AG-UI-Dialect"


ORPHAN = {"id": "a", "role": "tool", "toolCallId": "c", "content": ""}
FORGED = {"id": "a", "role": "assistant", "content": "x", "encryptedValue": "zz"}


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{", "invalid_json", None),
        (b"[]", "invalid_type", None),
        (b"{}", "missing", "threadId"),
        (asked(run=1), "invalid_value", "runId"),  # type: ignore[arg-type]
        ({"threadId": "t", "runId": "r", "messages": []}, "missing", "messages"),
        (asked(USER, {"role": "user", "content": "x"}), "missing", "messages[1].id"),
        (asked({"id": "a", "role": "robot"}), "invalid_value", "messages[0].role"),
        (asked(USER, ORPHAN), "invalid_value", "messages[1].toolCallId"),
        (asked(tools=[WEATHER, WEATHER]), "invalid_value", "tools[1].name"),
        (asked(tools=[{**WEATHER, "parameters": 3}]), "invalid_type", "tools[0].parameters"),
        (asked(resume=[{"interruptId": "x", "status": "odd"}]), "invalid_value", "resume[0].status"),
        (asked(context=[{"description": "x"}]), "missing", "context[0].value"),
        (asked(USER, FORGED), "seal_broken", "messages[1].encryptedValue"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_input_is_said_with_its_place(
    gateway: Served, body: Any, code: str, param: str | None
) -> None:
    told = refused(post(gateway, "vllm:m", body if isinstance(body, bytes) else json.dumps(body).encode()))
    assert told[:2] == (code, param)
    assert param is None or told[2].startswith(f"{param}: ")


def test_statuses_are_those_of_http(gateway: Served, upstream: Upstream) -> None:
    assert refused(post(gateway, "nobody"), 404)[:2] == ("model_not_found", "model")
    assert refused(post(gateway, "vllm:m", asked({**USER, "content": "x" * 60_000})), 413)[0] == "body_too_large"
    for query, param in (("", "threadId"), ("?threadId=t", "runId")):
        for method, path in (("GET", "/ag-ui"), ("DELETE", "/ag-ui"), ("POST", "/ag-ui/cancel")):
            assert refused(gateway.request(method, path + query))[:2] == ("missing", param)
    assert refused(gateway.request("GET", "/ag-ui?threadId=t&runId=r"), 404)[:2] == ("run_not_found", "runId")

    async def busy(call: Call) -> None:
        await call.answer(429, b'{"error":{"message":"slow down"}}', retry_after="7")

    reply = post(gateway, f"vllm:{upstream.plays(busy)}")
    assert refused(reply, 429)[0] == "too_many_requests"
    assert reply.headers["retry-after"] == "7"


def test_the_binary_transport_is_for_who_asks_for_it_and_speaks_1_0(gateway: Served, upstream: Upstream) -> None:
    kind = "application/vnd.ag-ui.event+proto"
    for version, told in (("1.0", kind), (None, "text/event-stream")):
        body = asked() if version is None else asked(protocolVersion=version)
        reply = post(gateway, f"vllm:{upstream.plays(say())}", body, {"Accept": f"text/event-stream, {kind}"})
        assert reply.status == 200
        assert reply.headers["content-type"].partition(";")[0] == told


def test_who_leaves_takes_the_run_along(gateway: Served, upstream: Upstream) -> None:
    name = upstream.plays(hangs)
    with begin(gateway, f"vllm:{name}") as stream:
        stream.until("Hm.")
    [call] = upstream.calls(name)
    assert call.connection.closed.wait(LIMIT_SECONDS)
