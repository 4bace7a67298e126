"""`POST /api/chat` as the AI SDK's pages use it: response headers, refusals, and disconnects."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from pellucid.protocols.ai_sdk.verify import verify
from pellucid.server.config import check_config
from tests.ai_sdk.ai_sdk_kit import USER, chunks_of, message_of
from tests.scripted import Call, Upstream, delta, say
from tests.scripted.gateway import Reply, Served, serve
from tests.waiting import LIMIT_SECONDS

KEY_ENV = "PELLUCID_TEST_AI_SDK_KEY"
KEY = "a-key-that-nobody-can-guess-0123456789"


def post(gateway: Served, body: Any, path: str = "/api/chat", **headers: str) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return gateway.request("POST", path, data, {"Content-Type": "application/json", **headers})


@pytest.fixture(scope="module")
def guarded(upstream: Upstream) -> Iterator[Served]:
    policy = {"models": ["model-*", "vllm:*", "nothing"], "view": "summary", "counts": False}
    config = {
        "access": {"key_env": KEY_ENV, "key_owner": "acme", "key_policy": "small", "policies": {"small": policy}},
        "providers": {"vllm": {"base_url": upstream.url, "models": ["model-of-acme", "*"]}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEY_ENV, KEY)
        with serve(check_config(config, {KEY_ENV: KEY})) as running:
            yield running


def test_the_response_headers(gateway: Served, upstream: Upstream) -> None:
    reply = post(gateway, {"messages": [USER], "model": upstream.plays(say())})
    assert reply.status == 200
    assert reply.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.headers["cache-control"] == "no-cache"
    assert verify(reply.body) == []
    message = message_of(chunks_of(reply.body))
    assert message["id"].startswith("msg_")
    assert message["metadata"]["usage"] == {"inputTokens": 7, "outputTokens": 9, "totalTokens": 16}


def test_the_protocol_is_chosen_by_the_query_or_the_body(gateway: Served, upstream: Upstream) -> None:
    reply = post(gateway, {"text": "Hi", "model": upstream.plays(say())}, "/api/chat?protocol=ai-sdk")
    assert (reply.status, reply.headers["content-type"]) == (400, "text/plain; charset=utf-8")
    assert reply.body == b"messages: it is required"
    other = post(gateway, {"text": "Hi", "model": upstream.plays(say())})
    assert "x-vercel-ai-ui-message-stream" not in other.headers


def test_an_allowed_origin_gets_cors_headers(upstream: Upstream) -> None:
    origin = "http://localhost:3000"
    config = {
        "access": {"cors": {"origins": [origin]}},
        "providers": {"vllm": {"profile": "vllm", "base_url": upstream.url}},
    }
    body = {"messages": [USER], "model": upstream.plays(say())}
    with serve(config) as gateway:
        let_in = post(gateway, body, Origin=origin)
        assert (let_in.status, let_in.headers["access-control-allow-origin"]) == (200, origin)
        assert post(gateway, body, Origin="http://elsewhere.example").status == 403


def test_a_stream_cannot_be_resumed(gateway: Served) -> None:
    reply = gateway.request("GET", "/api/chat/some-chat/stream")
    assert (reply.status, reply.body) == (204, b"")


async def says_not_now(call: Call) -> None:
    await call.answer(429, b'{"error": {"message": "slow down"}}', Retry_After="60")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"messages": [USER], "model": "gone:nobody"}, 503, ""),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].parts: it is required"),
        ({"messages": [USER], "view": "all"}, 400, "view: "),
    ],
)
def test_a_refusal_is_a_sentence(gateway: Served, body: dict[str, Any], status: int, words: str) -> None:
    reply = post(gateway, body)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    text = reply.body.decode()
    assert text.startswith(words)
    assert text
    assert text[0] not in '{["'


def test_a_provider_error_keeps_its_status_and_retry_after(gateway: Served, upstream: Upstream) -> None:
    reply = post(gateway, {"messages": [USER], "model": upstream.plays(says_not_now)})
    assert (reply.status, reply.headers["retry-after"]) == (429, "60")
    assert reply.body.decode().endswith("slow down")


def test_a_key_limits_the_view(guarded: Served, upstream: Upstream) -> None:
    body = {"messages": [USER], "model": f"vllm:{upstream.plays(say('A secret thought. ', '42.'))}"}
    auth = {"Authorization": f"Bearer {KEY}"}
    unknown = post(guarded, body, "/api/chat?protocol=ai-sdk")
    assert (unknown.status, unknown.headers["content-type"]) == (401, "text/plain; charset=utf-8")
    assert post(guarded, body).json["error"]["message"] == unknown.body.decode()
    forbidden = post(guarded, {**body, "view": "raw"}, **auth)
    assert (forbidden.status, forbidden.headers["content-type"]) == (403, "text/plain; charset=utf-8")
    assert "'summary' at most" in forbidden.body.decode()
    reply = post(guarded, body, **auth)
    assert verify(reply.body) == []
    assert b"secret" not in reply.body
    message = message_of(chunks_of(reply.body))
    kinds = [part["type"] for part in message["parts"]]
    assert kinds == ["step-start", "reasoning", "text"]
    assert "usage" not in message["metadata"]
    for model, status in (("gpt", 403), ("nothing", 404)):
        other = post(guarded, {**body, "model": model}, **auth)
        assert (other.status, other.headers["content-type"]) == (status, "text/plain; charset=utf-8")
        assert model in other.body.decode()


async def thinks_for_ever(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.wait_for_disconnect()


def test_a_disconnect_ends_the_run_at_once(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(thinks_for_ever)
    body = json.dumps({"messages": [USER], "model": model}).encode()
    head = b"POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=LIMIT_SECONDS) as sock:
        sock.sendall(head % len(body) + body)
        seen = b""
        while b"reasoning-delta" not in seen:
            seen += sock.recv(65536)
    [call] = upstream.calls(model)
    assert call.connection.closed.wait(LIMIT_SECONDS)
    gateway.idle()


async def breaks_off(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.event({"error": {"message": "CUDA out of memory"}})
    await call.end()


def test_a_failure_during_the_stream_is_an_error_chunk_and_a_legal_end(gateway: Served, upstream: Upstream) -> None:
    reply = post(gateway, {"messages": [USER], "model": upstream.plays(breaks_off)})
    assert verify(reply.body) == []
    chunks = chunks_of(reply.body)
    assert [chunk["type"] for chunk in chunks[-3:]] == ["error", "finish-step", "finish"]
    assert "CUDA out of memory" in chunks[-3]["errorText"]
    hidden = post(gateway, {"messages": [USER], "model": upstream.plays(breaks_off), "view": "hidden"})
    assert b"CUDA" not in hidden.body
