"""OpenAI's client for Python: all its calls that this gateway supports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from openai.types.conversations import ConversationItem, Message
from openai.types.responses import (
    Response,
    ResponseCreatedEvent,
    ResponseInputMessageItem,
    ResponseInputText,
    ResponseItem,
    ResponseReasoningItem,
)

from tests.clients.clients_kit import ANSWER, KEY, THOUGHT, WEATHER, calls, says_not_now, thinks, thinks_for_ever, waits
from tests.scripted import Upstream
from tests.scripted.gateway import Served
from tests.waiting import LIMIT_SECONDS, wait_until

TOOLS: Any = [{"type": "function", "name": "get_weather", "parameters": WEATHER, "strict": False}]


def text_deltas(events: Any, kind: str) -> str:
    return "".join(event.delta for event in events if event.type == f"response.{kind}.delta")


def text_of(item: ResponseItem | ConversationItem) -> str:
    """The text of an input message."""
    assert isinstance(item, ResponseInputMessageItem | Message)
    [content] = item.content
    assert isinstance(content, ResponseInputText)
    return content.text


def result(call: Any, output: str) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": output}


def reasoning_of(upstream: Upstream, model: str, call: int) -> list[str | None]:
    """Return the reasoning that the upstream received in its history."""
    return [m.get("reasoning_content") or m.get("reasoning") for m in upstream.calls(model)[call].body["messages"]]


# --- text and reasoning -----------------------------------------------------------------------------------------------


def test_reasoning_is_streamed_live_with_its_types(client: openai.OpenAI, upstream: Upstream) -> None:
    may_answer = threading.Event()
    seen: list[str] = []
    with client.responses.create(model=upstream.plays(waits(may_answer)), input="Why?", stream=True) as stream:
        for event in stream:
            if event.type == "response.reasoning_text.delta":
                seen.append(event.delta)
                may_answer.set()
            elif event.type == "response.output_text.delta":
                seen.append(event.delta)
            last = event
    assert "".join(seen) == THOUGHT + ANSWER
    assert last.type == "response.completed"
    [reasoning, message] = last.response.output
    assert isinstance(reasoning, ResponseReasoningItem)
    assert [content.text for content in reasoning.content or []] == [THOUGHT]
    assert message.type == "message"


# --- tools over several turns -----------------------------------------------------------------------------------------


def by_id(client: openai.OpenAI, model: str, include: Any) -> Callable[[Response | None, list[Any]], Response]:
    def turn(last: Response | None, new: list[Any]) -> Response:
        previous = last.id if last is not None else None
        return client.responses.create(model=model, input=new, tools=TOOLS, previous_response_id=previous)

    return turn


def by_echo(client: openai.OpenAI, model: str, include: Any) -> Callable[[Response | None, list[Any]], Response]:
    history: list[Any] = []

    def turn(last: Response | None, new: list[Any]) -> Response:
        if last is not None:
            history.extend(item.model_dump(exclude_none=True) for item in last.output)
        history.extend(new)
        return client.responses.create(model=model, input=history, tools=TOOLS, store=False, include=include)

    return turn


@pytest.mark.parametrize("seals", [False, True], ids=["raw", "sealed"])
@pytest.mark.parametrize("way", [by_id, by_echo])
def test_tools_over_three_turns(client: openai.OpenAI, upstream: Upstream, way: Any, seals: bool) -> None:
    model = upstream.plays(calls("Oslo", "First Oslo."), calls("Rome", "Then Rome.", "call_2"), thinks)
    turn = way(client, model, ["reasoning.encrypted_content"] if seals else [])
    response = turn(None, [{"role": "user", "content": "Weather?"}])
    for city in ("Oslo", "Rome"):
        reasoning, call = response.output
        assert (reasoning.type, call.type) == ("reasoning", "function_call")
        assert city in call.arguments
        response = turn(response, [result(call, f"rain in {city}")])
    assert response.output_text == ANSWER
    last = upstream.calls(model)[2].body["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "tool", "assistant", "tool"]
    assert [message["content"] for message in last if message["role"] == "tool"] == ["rain in Oslo", "rain in Rome"]
    assert [text for text in reasoning_of(upstream, model, 2) if text] == ["First Oslo.", "Then Rome."]


def test_the_stream_helper_accumulates_a_stream_with_a_call(client: openai.OpenAI, upstream: Upstream) -> None:
    with client.responses.stream(model=upstream.plays(calls("Oslo")), input="Weather?", tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        reasoning, call = stream.get_final_response().output
    assert "response.reasoning_text.delta" in kinds
    assert kinds.count("response.function_call_arguments.done") == 1
    assert (reasoning.type, call.type) == ("reasoning", "function_call")


# --- encrypted content ------------------------------------------------------------------------------------------------


def test_encrypted_reasoning_is_returned_by_the_client(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(calls("Oslo"), thinks)
    ask: Any = {"model": model, "tools": TOOLS, "store": False, "include": ["reasoning.encrypted_content"]}
    headers = {"Pellucid-View": "sealed"}
    question: Any = {"role": "user", "content": "Weather?"}
    first = client.responses.create(input=[question], extra_headers=headers, **ask)
    reasoning, call = first.output
    assert isinstance(reasoning, ResponseReasoningItem)
    assert reasoning.encrypted_content
    assert not reasoning.content
    assert "Ask the weather" not in first.model_dump_json()
    echoed: Any = [question, *first.output, result(call, "rain")]
    second = client.responses.create(input=echoed, extra_headers=headers, **ask)
    assert second.output_text == ANSWER
    assert "Ask the weather." in reasoning_of(upstream, model, 1)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    broken = reasoning.model_copy(update={"encrypted_content": reasoning.encrypted_content[:-6] + "AAAAAA"})
    spoilt: Any = [question, broken, call, result(call, "rain")]
    with pytest.raises(openai.BadRequestError) as wrong:
        client.responses.create(input=spoilt, **ask)
    assert wrong.value.param == "input[1].encrypted_content"


# --- background, resume, cancel ---------------------------------------------------------------------------------------


def test_an_interrupted_stream_is_resumed(client: openai.OpenAI, upstream: Upstream) -> None:
    may_answer = threading.Event()
    seen: list[Any] = []
    model = upstream.plays(waits(may_answer))
    with client.responses.create(model=model, input="Why?", background=True, stream=True) as stream:
        for event in stream:
            seen.append(event)
            if event.type == "response.reasoning_text.delta":
                break
    id = seen[0].response.id
    assert client.responses.retrieve(id).status == "in_progress"
    live = client.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number)
    may_answer.set()
    seen += live
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert text_deltas(seen, "reasoning_text") == THOUGHT
    assert text_deltas(seen, "output_text") == ANSWER
    assert client.responses.retrieve(id).output_text == ANSWER
    for cursor in range(len(seen)):
        again = list(client.responses.retrieve(id, stream=True, starting_after=cursor))
        assert [e.model_dump() for e in again] == [e.model_dump() for e in seen[cursor + 1 :]]


def test_a_background_response_is_polled(client: openai.OpenAI, upstream: Upstream) -> None:
    may_answer = threading.Event()
    response = client.responses.create(model=upstream.plays(waits(may_answer)), input="Why?", background=True)
    assert response.status in ("queued", "in_progress")
    assert response.background
    may_answer.set()
    wait_until(lambda: client.responses.retrieve(response.id).status not in ("queued", "in_progress"))
    response = client.responses.retrieve(response.id)
    assert (response.status, response.output_text) == ("completed", ANSWER)


def test_a_response_is_cancelled(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(thinks_for_ever)
    with client.responses.create(model=model, input="Why?", background=True, stream=True) as stream:
        first = next(iter(stream))
        assert isinstance(first, ResponseCreatedEvent)
        id = first.response.id
        assert upstream.calls(model, 1)
        cancelled = client.responses.cancel(id)
        rest = list(stream)
    assert cancelled.status == "cancelled"
    assert upstream.calls(model)[0].connection.closed.wait(LIMIT_SECONDS)
    assert client.responses.cancel(id).status == "cancelled"
    assert client.responses.retrieve(id).status == "cancelled"
    assert rest[-1].type in ("response.incomplete", "response.failed")
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(client.responses.create(model=upstream.plays(thinks), input="Why?").id)


# --- stored responses and conversations -------------------------------------------------------------------------------


def test_a_response_is_read_and_deleted(client: openai.OpenAI, upstream: Upstream) -> None:
    first = client.responses.create(model=upstream.plays(thinks), input="Why?", metadata={"a": "b"})
    again = client.responses.retrieve(first.id)
    assert again == first
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.delete(first.id)


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_the_input_is_listed_in_pages(client: openai.OpenAI, upstream: Upstream, order: Any) -> None:
    texts = [f"number {n}" for n in range(7)]
    input_items: Any = [{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in texts]
    response = client.responses.create(model=upstream.plays(thinks), input=input_items)
    page = client.responses.input_items.list(response.id, limit=3, order=order)
    assert len(page.data) == 3
    listed_texts = [text_of(item) for item in page]  # the SDK turns the pages
    assert listed_texts == (texts if order == "asc" else texts[::-1])


def test_conversations_are_created_changed_and_listed(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(thinks)
    content = [{"type": "input_text", "text": "My name is Ada."}]
    items: Any = [{"type": "message", "role": "user", "content": content}]
    conversation = client.conversations.create(metadata={"topic": "names"}, items=items)
    assert client.conversations.retrieve(conversation.id).metadata == {"topic": "names"}
    assert client.conversations.update(conversation.id, metadata={"topic": "people"}).metadata == {"topic": "people"}
    client.responses.create(model=model, input="Why?", conversation=conversation.id)
    client.responses.create(model=model, input="And?", conversation=conversation.id)
    messages = upstream.calls(model)[1].body["messages"]
    assert [m["role"] for m in messages] == ["user", "user", "assistant", "user"]
    assert all(text in str(m["content"]) for m, text in zip(messages, ["Ada", "Why?", ANSWER, "And?"], strict=True))
    stored_items = list(client.conversations.items.list(conversation.id, limit=2, order="asc"))
    turn_types = ["message", "reasoning", "message"]  # question, thought and answer
    assert [item.type for item in stored_items] == ["message", *turn_types, *turn_types]
    added = client.conversations.items.create(conversation.id, items=items)
    id = added.data[0].id
    assert id is not None
    one = client.conversations.items.retrieve(id, conversation_id=conversation.id)
    assert one.type == "message"
    assert text_of(one) == "My name is Ada."
    client.conversations.items.delete(id, conversation_id=conversation.id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(id, conversation_id=conversation.id)
    assert client.conversations.delete(conversation.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_a_conversation_is_compacted(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(thinks)
    compacted = client.responses.compact(model=model, input=[{"role": "user", "content": "My name is Ada."}])
    [item] = compacted.output
    assert (compacted.object, item.type) == ("response.compaction", "compaction")
    client.responses.create(model=model, input=[item.to_dict(), {"role": "user", "content": "Who am I?"}])  # type: ignore[list-item]
    messages = upstream.calls(model)[1].body["messages"]
    assert ANSWER.strip() in str(messages)
    assert messages[-1]["content"] == "Who am I?"


# --- Chat Completions -------------------------------------------------------------------------------------------------


def test_input_tokens_are_estimated(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(thinks)
    short = client.responses.input_tokens.count(model=model, input="one two")
    text = "one two three four " * 100
    long = client.responses.input_tokens.count(model=model, input=[{"role": "user", "content": text}])
    assert 0 < short.input_tokens < long.input_tokens
    assert abs(long.input_tokens - len(text) / 4) < 20
    assert upstream.calls(model) == []


def test_a_model_is_retrieved(client: openai.OpenAI) -> None:
    first = next(iter(client.models.list()))
    assert client.models.retrieve(first.id) == first


def test_chat_completions_with_reasoning(client: openai.OpenAI, upstream: Upstream) -> None:
    ask: Any = {"model": upstream.plays(thinks), "messages": [{"role": "user", "content": "Why?"}]}
    message: Any = client.chat.completions.create(**ask).choices[0].message
    assert (message.reasoning_content, message.content) == (THOUGHT, ANSWER)
    deltas: list[Any] = [chunk.choices[0].delta for chunk in client.chat.completions.create(stream=True, **ask)]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == THOUGHT
    assert "".join(delta.content or "" for delta in deltas) == ANSWER


def test_chat_completions_with_tools_over_two_turns(client: openai.OpenAI, upstream: Upstream) -> None:
    model = upstream.plays(calls("Oslo"), thinks)
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}]
    history: list[Any] = [{"role": "user", "content": "Weather?"}]
    message = client.chat.completions.create(model=model, messages=history, tools=tools).choices[0].message
    [call] = message.tool_calls or []
    history += [message, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    second = client.chat.completions.create(model=model, messages=history, tools=tools)
    assert second.choices[0].message.content == ANSWER
    assert "Ask the weather." in reasoning_of(upstream, model, 1)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def as_acme(guarded: Served) -> Iterator[Callable[[str], openai.OpenAI]]:
    made: list[openai.OpenAI] = []

    def client(key: str) -> openai.OpenAI:
        made.append(openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=key, max_retries=0))
        return made[-1]

    yield client
    for one in made:
        one.close()


def test_every_error_status_has_its_sdk_class(
    client: openai.OpenAI, as_acme: Callable[[str], openai.OpenAI], upstream: Upstream
) -> None:

    with pytest.raises(openai.AuthenticationError) as unknown:
        as_acme("wrong").responses.create(input="Why?")
    assert unknown.value.code == "invalid_api_key"
    acme = as_acme(KEY)
    with pytest.raises(openai.PermissionDeniedError) as forbidden:
        acme.responses.create(model="gpt-5", input="Why?")
    assert (forbidden.value.code, forbidden.value.param) == ("model_not_allowed", "model")
    with pytest.raises(openai.NotFoundError) as missing:
        acme.responses.create(model="missing", input="Why?")
    with pytest.raises(openai.NotFoundError):
        acme.responses.retrieve("resp_nothing")
    with pytest.raises(openai.RateLimitError, match="slow down") as limited:
        client.responses.create(model=upstream.plays(says_not_now), input="Why?")
    assert limited.value.response.headers["retry-after"] == "60"
    with pytest.raises(openai.InternalServerError) as down:
        client.responses.create(model="nobody", input="Why?")
    assert down.value.status_code == 503
    with pytest.raises(openai.InternalServerError) as down:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "Why?"}])
    assert down.value.status_code == 503
    for error in (unknown, forbidden, missing, limited, down):
        assert error.value.response.headers["x-request-id"] == error.value.request_id


def test_a_key_has_its_own_rate_limit(as_acme: Callable[[str], openai.OpenAI], upstream: Upstream) -> None:

    acme = as_acme(KEY)
    with pytest.raises(openai.RateLimitError) as limited:  # noqa: PT012 (the first two may pass)
        for _ in range(3):
            acme.responses.create(model="model-of-acme", input="Why?")
    assert 0 < int(limited.value.response.headers["retry-after"]) <= 60
