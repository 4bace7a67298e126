"""The rules of the specification for WebSockets, one by one (2026-04-24)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import openai
import pytest
from websockets.exceptions import ConnectionClosed

from tests.scripted import Call, Script, Upstream, delta, say, serve
from tests.scripted.gateway import Served
from tests.server.sockets_kit import Socket, opened

THINKS = say("Let me see.", "It is 42.")


def waits(until: threading.Event, then: str = "done") -> Script:
    async def script(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Hm. "))
        while not until.is_set():  # noqa: ASYNC110 (another thread sets it)
            await asyncio.sleep(0.005)
        await call.event(delta(content=then))
        await call.event(delta("stop"))
        await call.event(b"[DONE]")
        await call.end()

    return script


async def breaks(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.event({"error": {"message": "out of memory"}})
    await call.end()


@pytest.fixture
def socket(gateway: Served, upstream: Upstream) -> Iterator[Socket]:
    with opened(gateway, upstream.plays(THINKS)) as made:
        yield made


def sent_texts(upstream: Upstream, model: str, which: int = -1) -> list[str]:
    """Return the text of every message in one request to the model."""
    return [message["content"] for message in upstream.calls(model)[which].body["messages"]]


# --- messages --------------------------------------------------------------------------------------------------------


def test_the_events_equal_those_of_a_stream_without_done(gateway: Served, socket: Socket) -> None:
    over_socket = socket.ask(store=False).events
    over_http = gateway.ask(socket.model, stream=True, store=False).events
    assert [event["type"] for event in over_socket] == [event["type"] for event in over_http]
    # Nothing follows the events: the next event belongs to the next response.
    assert socket.ask(store=False).events[0]["type"] == "response.created"


def test_sequence_numbers_begin_at_0_in_each_response(socket: Socket) -> None:
    for _ in range(3):
        events = socket.ask().events
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stream", False),
        ("stream", {}),
        ("background", True),
        ("background", "no"),
        ("stream_options", 5),
    ],
)
def test_a_response_is_streamed_and_in_the_foreground(socket: Socket, field: str, value: object) -> None:
    turn = socket.ask(**{field: value})
    assert turn.error is not None
    assert (turn.error["status"], turn.error["error"]["param"]) == (400, field)
    assert socket.ask().text == "It is 42. "


@pytest.mark.parametrize("fields", [{"stream": True}, {"background": False}, {"stream": None, "stream_options": {}}])
def test_fields_that_say_how_it_is_are_accepted(socket: Socket, fields: dict[str, object]) -> None:
    assert socket.ask(**fields).text == "It is 42. "


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("no json", None),
        ("[]", None),
        ('"response.create"', None),
        ("", None),
        ("{}", "type"),
        ('{"type": "response.cancel"}', "type"),
        ('{"type": "response.create"}', "input"),
        ('{"type": "response.create", "input": 5}', "input"),
        ('{"type": "response.create", "input": "x", "generate": "no"}', "generate"),
        ("[" * 100_000, None),
    ],
)
def test_an_invalid_message_is_an_error_and_the_socket_stays_open(
    socket: Socket, message: str, param: str | None
) -> None:
    socket.connection.send(message)
    turn = socket.turn()
    assert turn.error is not None
    assert (turn.error["status"], turn.error["error"]["param"]) == (400, param)
    assert socket.ask().text == "It is 42. "


def test_a_binary_message_is_read_like_any_other(socket: Socket) -> None:
    socket.connection.send(json.dumps({"type": "response.create", "model": socket.model, "input": "x"}).encode())
    assert socket.turn().text == "It is 42. "


def test_an_error_of_the_model_has_its_status(gateway: Served, upstream: Upstream) -> None:
    async def refuses(call: Call) -> None:
        await call.answer(429, b'{"error": {"message": "slow down"}}', Retry_After="60")

    with opened(gateway, upstream.plays(refuses)) as socket:
        turn = socket.ask()
        assert turn.error is not None
        assert turn.error["status"] == 429


def test_a_broken_response_ends_with_error_and_failed_events(gateway: Served, upstream: Upstream) -> None:
    with opened(gateway, upstream.plays(breaks, THINKS)) as socket:
        error, failed = socket.ask().events[-2:]
        assert (error["type"], error["status"], failed["type"]) == ("error", 502, "response.failed")
        assert socket.ask().text == "It is 42. "


@pytest.mark.parametrize("dialect", ["openresponses", "openai"])
def test_a_header_of_the_handshake_chooses_the_event_names(gateway: Served, upstream: Upstream, dialect: str) -> None:
    headers = {"OpenResponses-Reasoning-Events": dialect}
    name = {"openresponses": "response.reasoning.delta", "openai": "response.reasoning_text.delta"}[dialect]
    with opened(gateway, upstream.plays(THINKS, breaks), additional_headers=headers) as socket:
        socket.send()
        assert name in [event["type"] for event in socket.until("response.completed")]
        socket.send()
        error = socket.until("response.failed")[-2]
        assert error["error"]["message"], "errors have one form on sockets"


# --- one response at a time ------------------------------------------------------------------------------------------


def test_queued_requests_are_answered_in_order(gateway: Served, upstream: Upstream) -> None:
    go = threading.Event()
    with opened(gateway, upstream.plays(waits(go, "first"), say(text="second"), say(text="third"))) as socket:
        for _ in range(3):
            socket.send()
        socket.until("response.reasoning.delta")
        assert len(upstream.calls(socket.model)) == 1
        go.set()
        ends = [socket.until("response.completed") for _ in range(3)]
        texts = [end[-1]["response"]["output"][-1]["content"][0]["text"].strip() for end in ends]
        assert texts == ["first", "second", "third"]
        # The events of responses are not interleaved.
        assert [event["sequence_number"] for event in ends[1]] == list(range(len(ends[1])))


def test_requests_over_the_queue_limit_are_refused_and_queued_ones_are_answered(
    gateway: Served, upstream: Upstream
) -> None:
    go = threading.Event()
    with opened(gateway, upstream.plays(waits(go), THINKS)) as socket:
        for _ in range(12):
            socket.send(store=False)
        refused = [event for event in socket.until("error") if event["type"] == "error"]
        go.set()
        ended = 0
        while ended < 9:
            event = socket.message()
            refused += [event] if event["type"] == "error" else []
            ended += event["type"] == "response.completed"
        assert [(error["status"], error["error"]["code"]) for error in refused] == [(429, "response_in_progress")] * 3


def test_the_queue_is_limited_to_the_size_of_a_message(gateway: Served, upstream: Upstream) -> None:
    go = threading.Event()
    with opened(gateway, upstream.plays(waits(go), THINKS)) as socket:
        socket.send()
        socket.until("response.reasoning.delta")
        for _ in range(3):
            socket.send(input="x" * 90_000)
        assert socket.until("error")[-1]["error"]["code"] == "response_in_progress"
        go.set()
        for _ in range(3):
            socket.until("response.completed")


# --- continuing ------------------------------------------------------------------------------------------------------


def test_an_unstored_response_can_be_continued_on_the_same_socket(socket: Socket, upstream: Upstream) -> None:
    first = socket.ask(store=False, input="one")
    second = socket.ask(store=False, input="two", previous_response_id=first.id)
    assert second.response["previous_response_id"] == first.id
    socket.ask(store=False, input="three", previous_response_id=second.id)
    assert sent_texts(upstream, socket.model) == ["one", "It is 42. ", "two", "It is 42. ", "three"]


def test_reasoning_is_sent_back_with_its_call(gateway: Served, upstream: Upstream) -> None:
    async def calls(call: Call) -> None:
        await call.head()
        await call.event(delta(reasoning_content="Ask the weather."))
        function = {"name": "get_weather", "arguments": "{}"}
        await call.event(delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": function}]))
        await call.event(delta("tool_calls"))
        await call.event(b"[DONE]")
        await call.end()

    tools = [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}]
    with opened(gateway, upstream.plays(calls, THINKS)) as socket:
        first = socket.ask(store=False, tools=tools)
        output = {"type": "function_call_output", "call_id": "call_1", "output": "rain"}
        socket.ask(store=False, tools=tools, input=[output], previous_response_id=first.id)
        _, called, result = upstream.calls(socket.model)[-1].body["messages"]
        assert "Ask the weather." in called.values()
        assert result["content"] == "rain"


def test_an_unstored_response_is_unknown_on_another_socket(gateway: Served, socket: Socket) -> None:
    first = socket.ask(store=False)
    with opened(gateway, socket.model) as other:
        turn = other.ask(previous_response_id=first.id)
        assert turn.error is not None
        assert (turn.error["status"], turn.code) == (400, "previous_response_not_found")
    assert gateway.ask(socket.model, previous_response_id=first.id).error["code"] == "previous_response_not_found"
    assert gateway.request("GET", f"/v1/responses/{first.id}").status == 404


def test_a_stored_response_can_be_continued_anywhere(gateway: Served, socket: Socket, upstream: Upstream) -> None:
    first = socket.ask(store=True, input="one")
    with opened(gateway, socket.model) as other:
        second = other.ask(store=True, input="two", previous_response_id=first.id)
    assert gateway.ask(socket.model, previous_response_id=second.id).status == 200
    assert sent_texts(upstream, socket.model) == ["one", "It is 42. ", "two", "It is 42. ", "Why?"]


def test_a_stored_continuation_of_an_unstored_response_is_complete(
    gateway: Served, socket: Socket, upstream: Upstream
) -> None:
    first = socket.ask(store=False, input="one")
    second = socket.ask(store=True, input="two", previous_response_id=first.id)
    with opened(gateway, socket.model) as other:
        assert other.ask(store=True, input="three", previous_response_id=second.id).response["status"] == "completed"
    assert sent_texts(upstream, socket.model) == ["one", "It is 42. ", "two", "It is 42. ", "three"]
    items = gateway.request("GET", f"/v1/responses/{second.id}/input_items").json["data"]
    assert [item["content"][0]["text"] for item in items] == ["two"]


def test_only_the_last_unstored_response_is_remembered(socket: Socket) -> None:
    first = socket.ask(store=False)
    socket.ask(store=False)
    assert socket.ask(store=False, previous_response_id=first.id).code == "previous_response_not_found"


def test_an_unknown_previous_response_is_not_found(socket: Socket) -> None:
    turn = socket.ask(store=False, previous_response_id="resp_never")
    assert turn.error is not None
    assert turn.error == {
        "type": "error",
        "status": 400,
        "error": {
            "type": "invalid_request_error",
            "code": "previous_response_not_found",
            "param": "previous_response_id",
            "message": turn.error["error"]["message"],
        },
    }


MISSING = [{"type": "function_call_output", "call_id": "call_missing", "output": "x"}]


def test_a_refused_continuation_evicts_the_previous_response(socket: Socket) -> None:
    first = socket.ask(store=False)
    failed = socket.ask(store=False, input=MISSING, previous_response_id=first.id)
    assert failed.error is not None
    assert failed.error["status"] == 400
    assert socket.ask(store=False, previous_response_id=first.id).code == "previous_response_not_found"


def test_a_failed_continuation_evicts_the_previous_response(gateway: Served, upstream: Upstream) -> None:
    with opened(gateway, upstream.plays(THINKS, breaks, THINKS)) as socket:
        first = socket.ask(store=False)
        assert socket.ask(store=False, previous_response_id=first.id).response["status"] == "failed"
        assert socket.ask(store=False, previous_response_id=first.id).code == "previous_response_not_found"


def test_a_stored_response_survives_a_failed_continuation(socket: Socket) -> None:
    first = socket.ask(store=True)
    assert socket.ask(input=MISSING, previous_response_id=first.id).error is not None
    assert socket.ask(previous_response_id=first.id).response["status"] == "completed"


def test_other_errors_do_not_evict_the_previous_response(socket: Socket) -> None:
    first = socket.ask(store=False)
    assert socket.ask(store=False, temperature=5).error is not None
    assert socket.ask(store=False, previous_response_id="resp_never").error is not None
    assert socket.ask(store=False, previous_response_id=first.id).response["status"] == "completed"


@pytest.mark.parametrize("store", [True, False])
def test_generate_false_makes_a_response_that_can_be_continued(
    socket: Socket, upstream: Upstream, *, store: bool
) -> None:
    warm = socket.ask(store=store, generate=False, input="one")
    assert (warm.response["status"], warm.response["output"]) == ("completed", [])
    assert upstream.calls(socket.model) == []
    assert socket.ask(store=False, input="two", previous_response_id=warm.id).text == "It is 42. "
    assert sent_texts(upstream, socket.model) == ["one", "two"]


# --- the time limit --------------------------------------------------------------------------------------------------


def test_a_socket_over_its_time_limit_gets_an_error_and_is_closed(upstream: Upstream) -> None:
    config = {"server": {"socket_seconds": 0.3}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway, opened(gateway, upstream.plays(THINKS)) as socket:
        assert socket.turn().code == "websocket_connection_limit_reached"
        with pytest.raises(ConnectionClosed) as closed:
            socket.message()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


def test_a_socket_over_its_time_limit_finishes_its_response(upstream: Upstream) -> None:
    go = threading.Event()
    config = {"server": {"socket_seconds": 0.5}, "providers": {"vllm": {"base_url": upstream.url}}}
    with serve(config) as gateway, opened(gateway, upstream.plays(waits(go))) as socket:
        socket.send()
        socket.send()  # this one is too late
        threading.Timer(0.8, go.set).start()
        assert socket.turn().text == "done"
        assert socket.turn().code == "websocket_connection_limit_reached"
        with pytest.raises(ConnectionClosed):
            socket.message()
        assert len(upstream.calls(socket.model)) == 1


# --- the official client ---------------------------------------------------------------------------------------------


# The client opens its sockets in a way that its library deprecates.
@pytest.mark.filterwarnings("ignore:connect:DeprecationWarning")
def test_the_official_client_speaks_over_a_socket(gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(THINKS)
    headers = {"OpenResponses-Reasoning-Events": "openai"}
    with (
        openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="any", max_retries=0, default_headers=headers) as client,
        client.responses.connect() as connection,
    ):
        previous: str | None = None
        for _ in range(2):
            more = {} if previous is None else {"previous_response_id": previous}
            connection.send({"type": "response.create", "model": model, "input": "Why?", "store": False, **more})  # type: ignore[arg-type]
            thought = ""
            for event in connection:
                if event.type == "response.reasoning_text.delta":
                    thought += event.delta
                if event.type == "response.completed":
                    previous = event.response.id
                    assert event.response.output_text == "It is 42. "
                    break
            assert thought == "Let me see. "
        connection.send({"type": "response.create", "model": model, "input": "x", "previous_response_id": "resp_no"})
        error = connection.recv()
        assert error.type == "error"
    assert sent_texts(upstream, model) == ["Why?", "It is 42. ", "Why?"]
