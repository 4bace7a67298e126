"""The seventeen checks of the public compliance suite, against a model that reasons, and stricter.

The suite validates with the published schemas, which tolerate unknown fields and check known ones. These tests also
check every event against the rules of the specification's text (`verify`), and require the reasoning.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pellucid.protocols.openresponses.verify import verify
from tests.openresponses.openresponses_kit import check_events, schemas
from tests.scripted import Call, Upstream, delta
from tests.scripted.gateway import Served, events_of
from tests.server.sockets_kit import Socket, opened

pytestmark = pytest.mark.needs("schema")

Body = dict[str, Any]
HEART = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmM"
    "IQAAAABJRU5ErkJggg=="
)


async def reasons_then_answers(call: Call) -> None:
    """Script a model that reasons first, then calls a function if it has one, or answers."""
    await call.head()
    for word in ("The ", "user ", "wants ", "something. "):
        await call.event(delta(reasoning_content=word))
    if call.body.get("tools"):
        name = call.body["tools"][0]["function"]["name"]
        for function in ({"name": name, "arguments": ""}, {"arguments": '{"location": '}, {"arguments": '"Rome"}'}):
            more = {"id": "call_1", "type": "function"} if "name" in function else {}
            await call.event(delta(tool_calls=[{"index": 0, **more, "function": function}]))
        await call.event(delta("tool_calls"))
    else:
        for word in ("Hello", " there", "."):
            await call.event(delta(content=word))
        await call.event(delta("stop"))
    details = {"reasoning_tokens": 4}
    usage = {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17, "completion_tokens_details": details}
    await call.event({"choices": [], "usage": usage})
    await call.event(b"[DONE]")
    await call.end()


@pytest.fixture
def model(upstream: Upstream) -> str:
    return upstream.plays(reasons_then_answers)


@pytest.fixture
def socket(gateway: Served, model: str) -> Iterator[Socket]:
    headers = {"Content-Type": "application/json", "Authorization": "Bearer any"}
    with opened(gateway, model, additional_headers=headers) as made:
        yield made


def check_schema(name: str, value: Body) -> Body:
    for schema in schemas()[1:]:
        assert schema.errors(name, value) == []
    return value


def check_completed(response: Body, kind: str = "message") -> Body:
    """Check a response as the suite does, and that its reasoning comes first."""
    check_schema("ResponseResource", response)
    assert response["status"] == "completed"
    reasoning, item = response["output"]
    assert [part["text"] for part in reasoning["content"]] == ["The user wants something. "]
    assert (reasoning["type"], item["type"]) == ("reasoning", kind)
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 4
    return response


def get_response(gateway: Served, model: str, **body: Any) -> Body:
    reply = gateway.ask(model, **body)
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "application/json"
    value: Body = reply.json
    return value


def user(text: str) -> Body:
    return {"type": "message", "role": "user", "content": text}


def assistant(text: str, **more: Any) -> Body:
    return {"type": "message", "role": "assistant", "content": text, **more}


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_basic_response(gateway: Served, model: str) -> None:
    check_completed(get_response(gateway, model, input=[user("Say hello in three words.")]))


def test_assistant_phase(gateway: Served, model: str) -> None:
    history = [assistant("Let me look.", phase="commentary"), assistant("Four.", phase="final_answer")]
    check_completed(get_response(gateway, model, input=[*history, user("Again?")]))


def test_response_output_phase_schema(gateway: Served, model: str) -> None:
    """Like the suite, check only the schema: a response whose messages have phases is valid."""
    response = check_completed(get_response(gateway, model))
    for phase in ("commentary", "final_answer"):
        check_schema(
            "ResponseResource", response | {"output": [item | {"phase": phase} for item in response["output"]]}
        )


@pytest.mark.parametrize("stored", [True, False])
def test_streaming_response(gateway: Served, model: str, *, stored: bool) -> None:
    reply = gateway.ask(model, stream=True, store=stored, input=[user("Count to five.")])
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert verify(reply.body) == []
    check_events(reply.events)
    check_completed(reply.events[-1]["response"])


def test_system_prompt(gateway: Served, model: str, upstream: Upstream) -> None:
    pirate = {"type": "message", "role": "system", "content": "You are a pirate."}
    check_completed(get_response(gateway, model, input=[pirate, user("Say hello.")]))
    assert upstream.calls(model)[-1].body["messages"][0] == {"role": "system", "content": "You are a pirate."}


TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather at a place",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


@pytest.mark.parametrize("stream", [True, False])
def test_tool_calling(gateway: Served, model: str, *, stream: bool) -> None:
    reply = gateway.ask(model, stream=stream, input=[user("The weather in Rome?")], tools=[TOOL])
    if stream:
        assert verify(reply.body) == []
        check_events(reply.events)
    response = check_completed(reply.events[-1]["response"] if stream else reply.json, "function_call")
    assert json.loads(response["output"][1]["arguments"]) == {"location": "Rome"}


def test_image_input(gateway: Served, model: str, upstream: Upstream) -> None:
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": HEART}]
    check_completed(get_response(gateway, model, input=[{"type": "message", "role": "user", "content": content}]))
    _, image = upstream.calls(model)[-1].body["messages"][0]["content"]
    assert image["image_url"]["url"] == HEART


def test_multi_turn(gateway: Served, model: str, upstream: Upstream) -> None:
    check_completed(
        get_response(gateway, model, input=[user("I am Alice."), assistant("Hello Alice!"), user("Who am I?")])
    )
    roles = [message["role"] for message in upstream.calls(model)[-1].body["messages"]]
    assert roles == ["user", "assistant", "user"]


# --- compaction ------------------------------------------------------------------------------------------------------


def post_compact(gateway: Served, body: Body) -> tuple[int, Body]:
    reply = gateway.request("POST", "/v1/responses/compact", json.dumps(body).encode())
    return reply.status, reply.json


HISTORY = [user("We launch on Tuesday."), assistant("Understood.")]


def test_compact_response(gateway: Served, model: str) -> None:
    status, body = post_compact(gateway, {"model": model, "prompt_cache_key": "key", "input": HISTORY})
    assert status == 200
    check_schema("CompactResource", body)
    assert [item["type"] for item in body["output"]] == ["compaction"]


def test_compact_missing_model(gateway: Served) -> None:
    status, body = post_compact(gateway, {"input": HISTORY})
    assert status == 400
    assert body["error"]["param"] == "model"


def test_websocket_compact_new_chain(gateway: Served, socket: Socket) -> None:
    _, body = post_compact(gateway, {"model": socket.model, "input": HISTORY})
    check_completed(socket.ask(store=False, input=[*body["output"], user("Go on.")], tools=[]).response)


# --- sockets ---------------------------------------------------------------------------------------------------------


def test_websocket_response(socket: Socket) -> None:
    check_completed(socket.ask(input=[user("Count to three.")]).response)


def test_websocket_sequential_responses(socket: Socket) -> None:
    for text in ("first", "second"):
        check_completed(socket.ask(store=False, input=text).response)


def test_websocket_continuation(socket: Socket, upstream: Upstream) -> None:
    first = socket.ask(store=False, input="The word is cobalt.")
    check_completed(first.response)
    check_completed(socket.ask(store=False, input="Which word?", previous_response_id=first.id).response)
    assert [message["content"] for message in upstream.calls(socket.model)[-1].body["messages"]] == [
        "The word is cobalt.",
        "Hello there.",
        "Which word?",
    ]


def test_websocket_reconnect_store_false_recovery(gateway: Served, socket: Socket) -> None:
    first = socket.ask(store=False, input="The word is copper.")
    with opened(gateway, socket.model) as other:
        assert other.ask(store=False, previous_response_id=first.id).code == "previous_response_not_found"
        check_completed(other.ask(store=False, input=[user("Begin again.")]).response)


def test_websocket_previous_response_not_found(socket: Socket) -> None:
    missing = socket.ask(store=False, previous_response_id="resp_openresponses_missing_1")
    assert missing.code == "previous_response_not_found"


def test_websocket_failed_continuation_evicts_cache(socket: Socket) -> None:
    first = socket.ask(store=False, input="The word is ember.")
    output = {"type": "function_call_output", "call_id": "call_openresponses_missing", "output": "No such call."}
    assert socket.ask(store=False, previous_response_id=first.id, input=[output]).error is not None
    assert socket.ask(store=False, previous_response_id=first.id).code == "previous_response_not_found"


def test_websocket_generate_false(socket: Socket) -> None:
    """This is a check of earlier versions of the suite."""
    warm = socket.ask(store=False, generate=False)
    check_schema("ResponseResource", warm.response)
    assert (warm.response["status"], warm.response["output"]) == ("completed", [])
    check_completed(socket.ask(store=False, previous_response_id=warm.id).response)


def test_a_resumed_stream_is_the_rest_of_the_first_stream(gateway: Served, model: str) -> None:
    """The suite does not check this yet. Test every cursor."""
    first = gateway.ask(model, stream=True, store=True)
    id, count = first.events[0]["response"]["id"], len(first.events)
    frames = first.body.split(b"\n\n")
    for cursor in range(count):
        rest = gateway.request("GET", f"/v1/responses/{id}?stream=true&starting_after={cursor}").body
        assert rest == b"\n\n".join(frames[cursor + 1 :])
        assert [event["sequence_number"] for event in events_of(rest)] == list(range(cursor + 1, count))
