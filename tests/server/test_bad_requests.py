"""An invalid request gets a 4xx error that names the location; the upstream is not called."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import RequestError
from pellucid.protocols.errors import status_of
from pellucid.server.catalog import Catalog
from pellucid.server.config import check_config
from pellucid.upstream import UpstreamClient
from tests.scripted import Upstream, say
from tests.scripted.gateway import Served


def request_with_image(url: str) -> dict[str, Any]:
    """Return a request with this image."""
    return {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        (b"", None, "not valid JSON"),
        (b"{", None, "not valid JSON"),
        (b'{"input": "\xff"}', None, "not valid JSON"),
        (b'{"input": "\\ud800"}', None, "not valid JSON: \\ud800 is half of a surrogate pair"),
        (b'{"input": "\\\\ud800 \\ud83d\\ude00 \\udc00x"}', None, "\\udc00 is half"),
        (b'{"input": 1e999}', None, "not valid JSON"),
        (b"[" * 100_000, None, "nested too deeply"),
        (b"[]", None, "must be a JSON object"),
        (b"null", None, "must be a JSON object"),
        ({}, "input", "required"),
        ({"input": []}, "input", "required"),
        ({"input": 3}, "input", "input"),
        ({"input": "x", "stream": "yes"}, "stream", "bool"),
        ({"input": "x", "temperature": 9}, "temperature", "<= 2"),
        ({"input": "x", "max_output_tokens": 1}, "max_output_tokens", ">= 16"),
        ({"input": "x", "reasoning": {"effort": "huge"}}, "reasoning.effort", "huge"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type", "web_search"),
        ({"input": "x", "tool_choice": "required"}, "tool_choice", "no tools"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id", "no response 'resp_1'"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].image_url",
            "image_url",
        ),
        (request_with_image("file:///etc/passwd"), "input", "'file'"),
        (request_with_image("http://2130706433/"), "input", "neither a host name nor an address"),
    ],
)
def test_an_error_names_its_location(
    gateway: Served, upstream: Upstream, body: Any, param: str | None, says: str
) -> None:
    model = upstream.plays(say())
    reply = gateway.post({**body, "model": model} if isinstance(body, dict) else body)
    assert reply.status == 400
    assert reply.error["type"] == "invalid_request_error"
    assert reply.error["param"] == param
    assert says in reply.error["message"]
    assert upstream.calls(model) == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("address", ["169.254.169.254", "10.0.0.1:9090", "localhost:9090", "redis:6379"])
def test_image_urls_with_private_addresses_are_refused(
    gateway: Served, upstream: Upstream, address: str, stream: bool
) -> None:
    """The model's server would fetch such addresses from inside its network."""
    model, image_request = upstream.plays(say()), request_with_image(f"http://{address}/metrics?key=hunter2")
    content = image_request["input"][0]["content"]
    function_call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    for items in (
        image_request["input"],
        [function_call, {"type": "function_call_output", "call_id": "c", "output": content}],
    ):
        reply = gateway.post({"input": items, "model": model, "stream": stream})
        assert reply.status == 403
        assert (reply.error["code"], reply.error["param"]) == ("egress_refused", "input")
        assert address.partition(":")[0] in reply.error["message"]
        assert b"hunter2" not in reply.body
    body = {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"http://{address}/"}}]}],
    }
    reply = gateway.request("POST", "/v1/chat/completions", json.dumps(body).encode(), {})
    assert reply.status == 403
    assert upstream.calls(model) == []


@pytest.mark.parametrize("name", ["x" * 1000, "", "\0", "vllm:x\0y"])
def test_an_invalid_model_name_is_not_found(gateway: Served, name: str) -> None:
    reply = gateway.ask(name)
    assert reply.status == 404
    assert reply.error["code"] == "model_not_found"
    assert reply.error["param"] == "model"
    assert len(reply.body) < 500


def test_an_unknown_model_is_not_found_and_similar_names_are_suggested() -> None:
    config = check_config(
        {"providers": {"vllm": {"base_url": "http://127.0.0.1:1", "models": ["qwen3-8b", "olmo", "ano*"]}}}, {}
    )
    catalog = Catalog(config, UpstreamClient())
    with pytest.raises(RequestError, match="no model 'qwen3-80b' here; did you mean 'qwen3-8b'") as caught:
        catalog.find("qwen3-80b")
    assert status_of(caught.value.info) == 404
    with pytest.raises(RequestError, match="there are: qwen3-8b, olmo"):
        catalog.find("zzz")
    assert catalog.find(None)[0] == "qwen3-8b"
    assert catalog.find("vllm:another")[1].name == "another"


def test_an_unknown_header_value_is_refused(gateway: Served) -> None:
    reply = gateway.post({"input": "x"}, {"OpenResponses-Reasoning-Events": "klingon"})
    assert reply.status == 400
    assert "'klingon'" in reply.error["message"]


def test_a_foreign_origin_is_refused(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(say())
    for page in ("https://example.com", "null", "http://127.0.0.1:1"):
        reply = gateway.post({"input": "x", "model": model}, {"Origin": page, "Content-Type": "text/plain"})
        assert (reply.status, reply.error["code"]) == (403, "foreign_origin")
    assert upstream.calls(model) == []


def test_a_body_over_the_limit_is_refused(gateway: Served) -> None:
    reply = gateway.post({"input": "x" * 300_000})
    assert reply.status == 413
    assert "200000 bytes" in reply.error["message"]


def test_a_content_length_over_the_limit_is_refused_before_the_body_is_sent(gateway: Served) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), 5) as sock:
        sock.sendall(
            b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert sock.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_chunked_body_is_refused_when_it_exceeds_the_limit(gateway: Served) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), 5) as sock:
        sock.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(21):
            sock.sendall(b"2710\r\n" + b" " * 10_000 + b"\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_a_body_that_breaks_off_is_not_logged(gateway: Served, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), 5) as sock:
        sock.sendall(b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    gateway.idle()
    assert caplog.records == []


SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    SCALARS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
ITEM = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["message", "reasoning", "function_call", "function_call_output", "item_reference"])
        | JSON,
        "role": st.sampled_from(["user", "assistant", "system", "developer"]) | JSON,
        "content": st.text(max_size=9) | JSON,
        "summary": JSON,
        "call_id": JSON,
        "output": JSON,
        "arguments": JSON,
        "name": JSON,
    },
)
FIELDS = (
    "instructions", "tools", "tool_choice", "metadata", "text", "temperature", "top_p", "stream", "stream_options",
    "max_output_tokens", "max_tool_calls", "reasoning", "include", "truncation", "service_tier", "top_logprobs",
)  # fmt: skip


@given(
    body=st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON)),
    items=st.none() | JSON | st.lists(ITEM, max_size=3),
)
def test_any_json_is_answered_or_refused_with_a_valid_error(
    gateway: Served, upstream: Upstream, body: dict[str, Any], items: Any
) -> None:
    reply = gateway.post({**body, "input": items, "model": "any"})
    if reply.status == 200:
        assert b"response" in reply.body
    else:
        assert reply.status == 400
        assert reply.error["type"] == "invalid_request_error"
