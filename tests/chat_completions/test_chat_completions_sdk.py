"""The official client over HTTP: it accumulates a stream to the whole completion, and what it sends back is parsed to
the original parts."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import openai
import pytest
import uvicorn

from pellucid.errors import RequestError
from pellucid.parts import SealedPart, TextPart, ThinkingPart, ToolCallPart, Usage
from pellucid.protocols.chat_completions import Encoder, Request, error_body, parse_request
from pellucid.protocols.errors import status_of
from tests.cases import Cases
from tests.chat_completions.chat_completions_kit import NOW, normalize, parts_sent_back, run_of
from tests.waiting import wait_until

CITED = [("cite", 0, "see")]
SCRIPTS: dict[str, Any] = {
    "thinks": (
        [("thinking", 0, "Let me"), ("thinking", 0, " see."), ("text", 0, "It is"), ("text", 0, " 42.")],
        "stop",
    ),
    "calls": ([("thinking", 0, "Ask."), ("call", 1, ""), ("args", 1, '{"a":'), ("args", 1, "1}")], "tool_call"),
    "calls twice": ([("call", 1, ""), ("args", 1, "{}"), ("call", 2, ""), ("args", 2, "{}")], "tool_call"),
    "interleaves": (
        [("thinking", 0, "One."), ("text", 0, "First,"), ("summary", 1, "Two."), ("text", 1, " last.")],
        "stop",
    ),
    "is likely": ([("text", 1, "a"), ("text", 1, "b")], "stop"),
    "cites": ([("text", 0, "As they say"), *CITED], "stop"),
    "refuses": ([("refusal", 0, "I would"), ("refusal", 0, " rather not.")], "stop"),
    "is cut": ([("thinking", 0, "half a th")], "length"),
    "says nothing": ([], "stop"),
    "breaks": ([("thinking", 0, "Hm."), ("text", 0, "It"), ("fail", 2, "out of memory")], "stop"),
}
ASK: Any = [{"role": "user", "content": "Why?"}]


class App:
    """A minimal endpoint: the model's name selects the script and its seals (`NAME/SEALS`)."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        try:
            request = parse_request(body)
        except RequestError as error:
            await self._send_json(send, status_of(error.info), error_body(error.info))
            return
        self.requests.append(request)
        name, _, seals = (request.model or "").partition("/")
        steps, reason = SCRIPTS[name]
        batches, _ = run_of([(steps, reason, Usage(9, 8, 7, 6))], "eof", int(seals or 0))
        encoder = Encoder(
            "chatcmpl_1", name, NOW, request.body.reasoning_fields or "both", include_usage=request.include_usage
        )
        if not request.stream:
            for batch in batches:
                encoder.feed(batch, NOW)
            if encoder.error is not None:
                await self._send_json(send, status_of(encoder.error), error_body(encoder.error))
            else:
                await self._send_json(send, 200, encoder.completion)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        pieces = [encoder.start(), *(encoder.feed(batch, NOW) for batch in batches)]
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _send_json(self, send: Any, status: int, value: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": msgspec.json.encode(value)})


@pytest.fixture(scope="module")
def endpoint() -> Iterator[tuple[str, App]]:
    app = App()
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), "the server's start")
    assert thread.is_alive()
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/v1", app
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(endpoint: tuple[str, App]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=endpoint[0], api_key="any", max_retries=0) as made:
        yield made


COMPLETING = [name for name in SCRIPTS if name != "breaks"]


def test_the_stream_helper_accumulates_the_whole_completion(client: openai.OpenAI) -> None:
    with Cases() as case:
        for seals in [0, 1, 2]:
            for name in COMPLETING:
                with case(f"{seals}, {name}"):
                    model = f"{name}/{seals}"
                    whole = client.chat.completions.create(model=model, messages=ASK)
                    options: Any = {"include_usage": True}
                    with client.chat.completions.stream(model=model, messages=ASK, stream_options=options) as stream:
                        kinds = [event.type for event in stream]
                        accumulated = stream.current_completion_snapshot
                    assert normalize(accumulated.model_dump(mode="json", warnings=False)) == normalize(
                        whole.model_dump(mode="json")
                    )
                    assert kinds.count("tool_calls.function.arguments.done") == len(
                        whole.choices[0].message.tool_calls or []
                    )
                    assert whole.usage is not None
                    assert whole.usage.completion_tokens_details is not None
                    assert whole.usage.completion_tokens_details.reasoning_tokens == 7


def test_the_deltas_of_a_raw_stream_add_up_to_the_answer(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(model="thinks", messages=ASK, stream=True)
    deltas = [chunk.choices[0].delta for chunk in stream]
    assert deltas[0].role == "assistant"
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Let me see."
    assert "".join(getattr(delta, "reasoning", None) or "" for delta in deltas) == "Let me see."
    assert "".join(delta.content or "" for delta in deltas) == "It is 42."


@pytest.mark.parametrize("fields", ["reasoning", "reasoning_content"])
def test_reasoning_fields_selects_one_field(client: openai.OpenAI, fields: str) -> None:
    completion = client.chat.completions.create(model="thinks", messages=ASK, extra_body={"reasoning_fields": fields})
    message = completion.choices[0].message.model_dump(exclude_none=True)
    assert {name for name in message if name.startswith("reasoning")} == {fields}


@pytest.mark.parametrize("name", COMPLETING)
def test_a_message_that_the_client_sends_back_is_parsed_to_the_same_parts(
    client: openai.OpenAI, endpoint: Any, name: str
) -> None:
    """Applications append the dumped message to the next request."""
    for seals in (0, 1):
        first = client.chat.completions.create(model=f"{name}/{seals}", messages=ASK)
        message: Any = first.choices[0].message
        results: Any = [
            {"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls or []
        ]
        client.chat.completions.create(model="thinks", messages=[*ASK, message, *results, *ASK])
        parts = [part for m in endpoint[1].requests[-1].messages if m.kind == "response" for part in m.parts]
        assert parts == parts_sent_back(message.model_dump(exclude_none=True))
        kinds = {type(part) for part in parts}
        assert (SealedPart in kinds) == (seals == 1 and hasattr(message, "reasoning"))
        assert (ThinkingPart in kinds) == (seals == 0 and hasattr(message, "reasoning"))
        assert [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)] == [
            call.id for call in message.tool_calls or []
        ]
        assert "".join(part.content for part in parts if isinstance(part, TextPart)) == (message.content or "")


def test_a_failed_stream_raises_the_upstream_error(client: openai.OpenAI) -> None:
    seen = []
    with pytest.raises(openai.APIError, match="broke: out of memory") as failed:  # noqa: PT012
        for chunk in client.chat.completions.create(model="breaks", messages=ASK, stream=True):
            seen.append(chunk.choices[0].delta)  # noqa: PERF401
    assert (failed.value.code, failed.value.type, failed.value.param) == ("c", "model_error", "out of memory")
    assert [delta.content for delta in seen if delta.content] == ["It"]
    with pytest.raises(openai.InternalServerError, match="broke: out of memory") as whole:
        client.chat.completions.create(model="breaks", messages=ASK)
    assert whole.value.status_code == 502


def test_a_bad_request_raises_the_client_s_error(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="thinks", messages=ASK, n=2)
    assert (wrong.value.param, wrong.value.code) == ("n", "unsupported_parameter")


def test_a_truncated_completion_is_not_parsed(client: openai.OpenAI) -> None:
    with (
        pytest.raises(openai.LengthFinishReasonError),
        client.chat.completions.stream(model="is cut", messages=ASK) as stream,
    ):
        stream.get_final_completion()


def test_the_async_client_accumulates_a_stream(endpoint: tuple[str, App]) -> None:
    async def main() -> str:
        async with openai.AsyncOpenAI(base_url=endpoint[0], api_key="any", max_retries=0) as client:
            async with client.chat.completions.stream(model="calls", messages=ASK) as stream:
                final = await stream.get_final_completion()
            [call] = final.choices[0].message.tool_calls or []
            return call.function.arguments

    assert json.loads(asyncio.run(main())) == {"a": 1}
