"""For every misbehaviour of the upstream, the client gets the right status, or a complete stream that ends with its
protocol's error, and no connection stays open."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.scripted import Call, Reply, Script, Upstream, delta, event, say, serve
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS


def refuses(status: int, body: bytes = b"", type: str = "application/json", **headers: str) -> Script:
    async def script(call: Call) -> None:
        await call.answer(status, body, type, **headers)

    return script


def error_of_failed_stream(reply: Reply) -> dict[str, str]:
    """Return the error of a stream that failed legally: nothing is open, then `error` and `response.failed`."""
    assert reply.status == 200
    assert verify(reply.body) == []
    *_, error, last = reply.events
    assert (error["type"], last["type"]) == ("error", "response.failed")
    assert last["response"]["error"]["message"] == error["error"]["message"]
    assert reply.body.endswith(b"data: [DONE]\n\n")
    error_object: dict[str, str] = error["error"]
    return error_object


# --- errors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("upstreams", "ours", "type"),
    [
        (400, 400, "invalid_request_error"),
        (401, 502, "model_error"),
        (402, 502, "model_error"),
        (403, 502, "model_error"),
        (404, 404, "not_found"),
        (413, 413, "invalid_request_error"),
        (422, 400, "invalid_request_error"),
        (429, 429, "too_many_requests"),
        (500, 502, "model_error"),
        (502, 503, "model_error"),
        (503, 503, "model_error"),
        (504, 504, "model_error"),
    ],
)
def test_an_upstream_error_is_passed_on_with_its_message(
    gateway: Served, upstream: Upstream, stream: bool, upstreams: int, ours: int, type: str
) -> None:
    body = json.dumps({"error": {"message": "the model sleeps", "code": "asleep"}}).encode()
    reply = gateway.ask(upstream.plays(refuses(upstreams, body)), stream=stream)
    assert reply.status == ours
    assert reply.error["type"] == type
    assert reply.error["code"] == "asleep"
    assert "the model sleeps" in reply.error["message"]


def test_a_401_of_the_upstream_becomes_a_502(gateway: Served, upstream: Upstream) -> None:
    """A client that sees 401 discards its key, but the gateway's key is wrong."""
    reply = gateway.ask(upstream.plays(refuses(401, b'{"error":{"message":"bad key"}}')))
    assert reply.status == 502
    assert "the credentials" in reply.error["message"]


@pytest.mark.parametrize(
    ("body", "type", "says"),
    [
        (b"", "text/plain", "the provider failed (status 500)"),
        (b"<html><head><title>500 Oh no</title></head></html>", "text/html", "500 Oh no"),
        (b"oh no", "text/plain", "oh no"),
        (b'{"detail": "oh no"}', "application/json", "oh no"),
        (b'[{"error": {"message": "oh no"}}]', "application/json", "oh no"),
        (b'{"error": "oh no"}', "application/json", "oh no"),
        (b'{"error": {"message": "oh', "application/json", "oh"),
        (b"\xff\xfe\x00", "application/octet-stream", ""),
        (b"[" * 60_000, "application/json", ""),
    ],
)
def test_an_upstream_error_may_have_any_body(
    gateway: Served, upstream: Upstream, body: bytes, type: str, says: str
) -> None:
    reply = gateway.ask(upstream.plays(refuses(500, body, type)))
    assert reply.status == 502
    assert says in reply.error["message"]
    assert len(reply.error["message"]) < 2000


def test_an_endless_error_body_is_not_read_to_its_end(gateway: Served, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head(400, "text/plain")
        while True:
            await call.data(b"no " * 1000)

    model = upstream.plays(script)
    assert gateway.ask(model).status == 400
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)


def test_a_redirect_is_not_followed(gateway: Served, upstream: Upstream, caplog: pytest.LogCaptureFixture) -> None:
    """It would send the gateway's keys and the conversation to a server that is not configured."""
    other = upstream.plays(say())
    reply = gateway.ask(upstream.plays(refuses(307, Location=f"{upstream.url}/elsewhere")))
    assert reply.status == 502
    message = "the provider answered 307, a redirect; base_url must be the address that it leads to"
    assert reply.error["message"] == message
    # Where it leads is for the operator alone.
    assert b"elsewhere" not in reply.body
    assert f"{upstream.url}/elsewhere" in caplog.text
    assert upstream.calls(other) == []


# --- retries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_503_is_retried(gateway: Served, upstream: Upstream, stream: bool) -> None:
    model = upstream.plays(refuses(503), refuses(503), say())
    reply = gateway.ask(model, stream=stream)
    assert reply.status == 200
    assert b'"completed"' in reply.body
    assert len(upstream.calls(model)) == 3


def test_a_connection_closed_before_the_response_is_retried(gateway: Served, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        call.close()

    model = upstream.plays(script, script, say())
    assert gateway.ask(model).status == 200
    assert len(upstream.calls(model)) == 3


def test_nothing_is_retried_after_the_first_byte(gateway: Served, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.raw(b"HTTP/1.1 200 OK\r\nConte")
        call.close()

    model = upstream.plays(script)
    assert gateway.ask(model).status == 503
    assert len(upstream.calls(model)) == 1


def test_retry_after_is_respected(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(refuses(429, Retry_After="0.04"), say())
    assert gateway.ask(model).status == 200
    first, second = upstream.calls(model)
    assert second.at - first.at >= 0.03  # clocks tick in milliseconds


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_retry_after_is_passed_to_the_client(gateway: Served, upstream: Upstream, stream: bool) -> None:
    model = upstream.plays(refuses(429, b'{"error":{"message":"slow down"}}', Retry_After="16.2"))
    reply = gateway.ask(model, stream=stream)
    assert (reply.status, reply.headers["retry-after"]) == (429, "17")
    assert len(upstream.calls(model)) == 1


# --- unreachable or silent ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_connection_is_unreachable(
    upstream: Upstream, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        limits = {"retries": 1, "retry_wait": 0.01}
        with serve({"providers": {"vllm": {"base_url": f"http://127.0.0.1:{port}", "limits": limits}}}) as gateway:
            reply = gateway.ask("any", stream=stream)
    assert reply.status == 503
    assert reply.error["code"] == "unreachable"
    assert reply.error["message"] == "the model's provider cannot be reached: Connection refused"
    # The address is for the operator only.
    assert str(port) not in reply.body.decode()
    assert f"the provider vllm at http://127.0.0.1:{port}: " in caplog.text


async def never_answers(call: Call) -> None:
    await call.wait_for_disconnect()


async def sends_only_its_head(call: Call) -> None:
    await call.head()
    await call.wait_for_disconnect()


async def falls_silent(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm"))
    await call.wait_for_disconnect()


@pytest.mark.parametrize("stream", [False, True])
def test_an_upstream_that_never_answers_times_out(gateway: Served, upstream: Upstream, stream: bool) -> None:
    model = upstream.plays(never_answers)
    reply = gateway.ask(f"silent:{model}", stream=stream)
    assert reply.status == 504
    assert reply.error["code"] == "first_byte_timeout"
    [call] = upstream.calls(model)
    assert call.connection.closed.wait(LIMIT_SECONDS)


def test_an_upstream_that_sends_only_its_head_times_out(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(sends_only_its_head)
    assert error_of_failed_stream(gateway.ask(f"silent:{model}", stream=True))["code"] == "first_byte_timeout"
    assert gateway.ask(f"silent:{model}").status == 504
    assert all(call.connection.closed.wait(LIMIT_SECONDS) for call in upstream.calls(model))


def test_a_silent_upstream_times_out_and_its_output_is_returned(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(falls_silent)
    reply = gateway.ask(f"silent:{model}", stream=True)
    assert error_of_failed_stream(reply)["code"] == "idle_timeout"
    assert '"delta":"Hm"' in reply.body.decode()
    whole = gateway.ask(f"silent:{model}")
    assert (whole.status, whole.json["status"]) == (200, "failed")
    assert whole.json["output"][0]["content"][0]["text"] == "Hm"
    assert whole.json["error"]["code"] == "idle_timeout"
    assert all(call.connection.closed.wait(LIMIT_SECONDS) for call in upstream.calls(model))


def test_comments_of_a_slow_upstream_reset_the_idle_timeout(gateway: Served, upstream: Upstream) -> None:
    """The response takes longer than the limit, but each pause is shorter."""

    async def script(call: Call) -> None:
        await call.head()
        for _ in range(5):
            await asyncio.sleep(0.25)
            await call.data(b": still at it\n\n")
        await call.event(delta("stop", content="Hi"))
        await call.end()

    reply = gateway.ask(f"slow:{upstream.plays(script)}", stream=True)
    assert reply.events[-1]["type"] == "response.completed"


# --- broken streams ----------------------------------------------------------------------------------------------

THOUGHT = event(delta(reasoning_content="Hm. ")) + event(delta(content="So"))


async def ends_early(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT)
    await call.end()


async def ends_in_an_event(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT + b'data: {"choices":[{"delta":{"cont')
    await call.end()


async def closes_in_a_chunk(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT)
    await call.raw(b"1000\r\ndata: {")
    call.close()


async def closes_before_its_length(call: Call) -> None:
    await call.head(framing="100000")
    await call.data(THOUGHT)
    call.close()


async def closes_without_a_length(call: Call) -> None:
    await call.head(framing="close")
    await call.data(THOUGHT)


async def resets(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT)
    await asyncio.sleep(0.25)  # RST overtakes what is not read yet
    call.reset()


async def breaks_its_framing(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT)
    await asyncio.sleep(0.25)  # in one read with the rest, not even the head would count
    await call.raw(b"zz\r\nwhat?\r\n")
    await call.wait_for_disconnect()


async def sends_an_error(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT)
    await call.event({"error": {"message": "out of memory", "code": 500}})
    await call.wait_for_disconnect()


async def turns_to_garbage(call: Call) -> None:
    await call.head()
    await call.data(THOUGHT)
    await call.data(b"data: {garbage}\n\n")
    await call.wait_for_disconnect()


BROKEN = [
    ends_early,
    ends_in_an_event,
    closes_in_a_chunk,
    closes_before_its_length,
    closes_without_a_length,
    resets,
    breaks_its_framing,
    sends_an_error,
    turns_to_garbage,
]


@pytest.mark.parametrize("script", BROKEN)
def test_a_broken_stream_keeps_its_output_and_ends_with_an_error(
    gateway: Served, upstream: Upstream, script: Script
) -> None:
    model = upstream.plays(script)
    reply = gateway.ask(model, stream=True)
    error = error_of_failed_stream(reply)
    assert error["type"] == "model_error"
    output = reply.events[-1]["response"]["output"]
    assert [(item["type"], item["status"]) for item in output] == [
        ("reasoning", "completed"),
        ("message", "incomplete"),
    ]
    assert output[1]["content"][0]["text"] == "So"

    whole = gateway.ask(model)
    assert (whole.status, whole.json["status"]) == (200, "failed")
    assert whole.json["error"]["code"] == error["code"]
    assert whole.json["output"][1]["content"][0]["text"] == "So"

    if script not in (ends_early, ends_in_an_event):  # these are complete HTTP responses
        assert all(call.connection.closed.wait(LIMIT_SECONDS) for call in upstream.calls(model))
    assert len(upstream.calls(model)) == 2


# --- invalid responses -------------------------------------------------------------------------------------------


def sends(body: bytes, type: str = "text/event-stream") -> Script:
    return refuses(200, body, type)


async def sends_no_http(call: Call) -> None:
    await call.raw(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
    call.close()


NONSENSE = {
    "nothing": sends(b""),
    "a page": sends(b"<!doctype html><title>Log in</title>", "text/html"),
    "a page as a stream": sends(b"<!doctype html><title>Log in</title>"),
    "bytes": sends(bytes(range(256)) * 50, "application/octet-stream"),
    "other JSON": sends(b'{"hello": "world"}', "application/json"),
    "cut JSON": sends(b'{"choices": [{"mess', "application/json"),
    "other events": sends(b"event: hello\ndata: world\n\n"),
    "only comments": sends(b": hello\n\n: world\n\n"),
    "an endless line": sends(b"data: " + b"x" * 300_000),
    "an error": sends(b'{"error": {"message": "no"}}', "application/json"),
}


@pytest.mark.parametrize("script", NONSENSE.values(), ids=NONSENSE)
def test_an_invalid_response_is_a_model_error(gateway: Served, upstream: Upstream, script: Script) -> None:
    model = upstream.plays(script)
    assert error_of_failed_stream(gateway.ask(model, stream=True))["type"] == "model_error"
    whole = gateway.ask(model)
    assert whole.status == 502
    assert whole.error["type"] == "model_error"


def test_a_response_that_is_not_http_is_refused(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(sends_no_http)
    reply = gateway.ask(model, stream=True)
    assert (reply.status, reply.error["code"]) == (502, "not_http")
    assert len(upstream.calls(model)) == 1


@pytest.mark.parametrize("type", ["text/plain", "application/json", "", "text/event-stream;charset=latin-1"])
def test_a_wrong_content_type_is_accepted(gateway: Served, upstream: Upstream, type: str) -> None:
    reply = gateway.ask(upstream.plays(sends(event(delta("stop", content="Hi")) + event(b"[DONE]"), type)), stream=True)
    assert reply.events[-1]["type"] == "response.completed"


def test_a_json_response_to_a_stream_request_is_streamed(gateway: Served, upstream: Upstream) -> None:
    message = {"role": "assistant", "reasoning_content": "Hm", "content": "Hi"}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    reply = gateway.ask(upstream.plays(sends(body, "application/json")), stream=True)
    assert verify(reply.body) == []
    assert [item["type"] for item in reply.events[-1]["response"]["output"]] == ["reasoning", "message"]


def test_an_endless_event_ends_at_the_limit(gateway: Served, upstream: Upstream) -> None:
    async def script(call: Call) -> None:
        await call.head()
        await call.data(b"data: ")
        while True:
            await call.data(b"x" * 1_000_000)

    model = upstream.plays(script)
    assert error_of_failed_stream(gateway.ask(model, stream=True))["code"] == "frame_too_large"
    [call] = upstream.calls(model)
    assert call.connection.closed.wait(LIMIT_SECONDS)
    assert call.connection.written < 60_000_000


def test_the_gateway_still_works_after_all_of_these(gateway: Served, upstream: Upstream) -> None:
    assert gateway.ask(upstream.plays(say())).json["status"] == "completed"
    gateway.idle()
