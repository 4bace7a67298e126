"""The AI SDK against the running gateway: its `Chat`, its transport, and `useChat` in a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.ai_sdk import ai_sdk_chat, ai_sdk_node
from tests.scripted import Call, Upstream, abandoned_then, delta, say
from tests.scripted.gateway import Served
from tests.server.loop_kit import calling, turn

Chats = Callable[..., dict[str, Any]]
"""Runs a chat against a gateway and returns its report: `chats(gateway, turns, on_progress, model=…, view=…)`."""


@pytest.fixture(params=["python", pytest.param("package", marks=pytest.mark.needs("node"))])
def chats(request: pytest.FixtureRequest) -> Chats:
    converse = ai_sdk_node.chats if request.param == "package" else ai_sdk_chat.chats

    def chats(
        gateway: Served, turns: list[Any], on_progress: Callable[[Any], None] = print, **body: Any
    ) -> dict[str, Any]:
        more = {key: body.pop(key) for key in ("messages", "headers") if key in body}
        return converse(f"{gateway.url}/api/chat", turns, on_progress, body=body, **more)

    return chats


def texts(message: dict[str, Any], kind: str) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == kind]


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


SIGNATURE, ENCRYPTED = "c2lnbmF0dXJl", "gAAAAA-encrypted"


async def claude(call: Call) -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [
        {"type": "thinking_delta", "thinking": "Deep thought."},
        {"type": "signature_delta", "signature": SIGNATURE},
    ]
    body = sse(
        {"type": "message_start", "message": {"id": "m", "model": "c", "content": [], "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "42."}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    )
    await call.answer(200, body, "text/event-stream")


async def gpt(call: Call) -> None:
    item = {"type": "reasoning", "id": "rs_theirs", "summary": [], "encrypted_content": ENCRYPTED}
    content = [{"type": "output_text", "text": "42.", "annotations": []}]
    words = {"type": "message", "id": "msg_theirs", "role": "assistant", "status": "completed", "content": content}
    usage = {"input_tokens": 3, "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 5}}
    body = sse(
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "encrypted_content": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.added", "output_index": 1, "item": {**words, "content": []}},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "42.", "item_id": "m"},
        {"type": "response.output_item.done", "output_index": 1, "item": words},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [], "usage": usage}},
    )
    await call.answer(200, body, "text/event-stream")


@pytest.mark.parametrize("view", ["raw", "sealed"])
def test_a_signature_returns_to_its_provider_on_the_second_turn(
    chats: Chats, gateway: Served, upstream: Upstream, view: str
) -> None:
    model = upstream.plays(claude, family="claude-opus-4-5")
    seen = chats(gateway, ["Why?", "And?"], model=f"claude:{model}", effort="high", view=view)
    assert (seen["errors"], seen["status"]) == ([], "ready")
    answer = seen["messages"][1]
    thought = "Deep thought." if view == "raw" else ""
    assert (texts(answer, "reasoning"), texts(answer, "text")) == ([thought], ["42."])
    assert view == "raw" or "Deep thought" not in json.dumps(seen)
    sealed = next(part for part in answer["parts"] if part["type"] == "reasoning")["providerMetadata"]["pellucid"]
    assert sealed["sealed"]
    assert seen["sent"][1]["messages"][1] == answer
    second = upstream.calls(model)[1].body["messages"]
    assert [message["role"] for message in second] == ["user", "assistant", "user"]
    assert second[1]["content"][0] == {"type": "thinking", "thinking": "Deep thought.", "signature": SIGNATURE}
    assert second[1]["content"][1]["text"] == "42."


@pytest.mark.parametrize("view", ["raw", "sealed"])
def test_encrypted_reasoning_returns_to_its_provider_on_the_second_turn(
    chats: Chats, gateway: Served, upstream: Upstream, view: str
) -> None:
    model = upstream.plays(gpt, family="gpt-5")
    seen = chats(gateway, ["Why?", "And?"], model=f"responses:{model}", effort="high", view=view)
    assert seen["errors"] == []
    answer = seen["messages"][1]
    assert (texts(answer, "reasoning"), texts(answer, "text")) == ([""], ["42."])
    assert answer["metadata"]["usage"]["reasoningTokens"] == 5
    assert ENCRYPTED not in json.dumps(seen)
    second = upstream.calls(model)[1].body["input"]
    [reasoning] = [item for item in second if item.get("type") == "reasoning"]
    assert reasoning["encrypted_content"] == ENCRYPTED


def test_readable_reasoning_returns_and_hidden_reasoning_does_not_exist(
    chats: Chats, gateway: Served, upstream: Upstream
) -> None:
    model = upstream.plays(say("Let me see.", "It is 42."))
    seen = chats(gateway, ["Why?", "And?"], model=model)
    answer = seen["messages"][1]
    assert (texts(answer, "reasoning"), texts(answer, "text")) == (["Let me see. "], ["It is 42. "])
    assert [part["state"] for part in answer["parts"] if "state" in part] == ["done", "done"]
    second = upstream.calls(model)[1].body["messages"][1]
    assert "Let me see. " in (second.get("reasoning_content"), second.get("reasoning"))
    hidden = chats(gateway, ["Why?"], model=model, view="hidden")["messages"][1]
    assert [part["type"] for part in hidden["parts"]] == ["step-start", "text"]


def test_functions_of_the_server_are_steps_of_one_message(chats: Chats, gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(
        turn("I need a sum. ", "", calling("add", "c1", a=2, b=3), calling("boom", "c2")),
        turn("Now I know. ", "Five."),
    )
    seen = chats(gateway, ["What is 2 + 3?", "And?"], model=model)
    assert seen["errors"] == []
    answer = seen["messages"][1]
    kinds = [part["type"] for part in answer["parts"]]
    assert kinds == [
        *("step-start", "reasoning", "dynamic-tool", "dynamic-tool", "step-start", "reasoning", "text"),
    ]
    added, broke = [part for part in answer["parts"] if part["type"] == "dynamic-tool"]
    assert (added["state"], added["input"], added["output"]) == ("output-available", {"a": 2, "b": 3}, 5)
    assert (broke["state"], broke["errorText"]) == ("output-error", "The tool failed (RuntimeError).")
    assert seen["finishes"][0]["finishReason"] == "stop"
    second, third = (call.body["messages"] for call in upstream.calls(model)[1:3])
    for message in (*second, *third):
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])  # a page keeps the value alone
    assert third[: len(second)] == second
    assert [message["role"] for message in third] == ["user", "assistant", "tool", "tool", "assistant", "user"]


def test_a_page_continues_with_its_own_tool_result(chats: Chats, gateway: Served, upstream: Upstream) -> None:
    """The page runs a tool that the server does not have, and sends the message with the result."""
    model = upstream.plays(say("I see. ", "Rain."))
    call = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {"city": "Oslo"}}
    messages = [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Weather?"}]},
        {"id": "a1", "role": "assistant", "parts": [{"type": "step-start"}, {**call, "output": "rain"}]},
    ]
    seen = chats(gateway, [{"resend": True}], model=model, messages=messages)
    assert [message["id"] for message in seen["messages"]] == ["u1", "a1"]
    assert [part["type"] for part in seen["messages"][1]["parts"]] == [
        *("step-start", "tool-weather", "step-start", "reasoning", "text"),
    ]
    sent = upstream.calls(model)[0].body["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["content"] == "rain"


def test_an_answer_is_regenerated(chats: Chats, gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(say("Hm. ", "One."), say("Hm. ", "Two."))
    seen = chats(gateway, [{"resume": True}, "Why?", {"regenerate": True}], model=model)
    assert seen["errors"] == []
    assert [texts(message, "text") for message in seen["messages"]] == [["Why?"], ["Two. "]]
    assert seen["sent"][-1]["trigger"] == "regenerate-message"
    assert [message["role"] for message in upstream.calls(model)[1].body["messages"]] == ["user"]


async def thinks_for_ever(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.wait_for_disconnect()


def test_stop_closes_the_upstream_and_the_chat_continues(chats: Chats, gateway: Served, upstream: Upstream) -> None:
    model = upstream.plays(*abandoned_then(thinks_for_ever, say("Hm. ", "Two.")))
    stopped: list[Any] = []
    turns = [{"text": "Why?", "stop": "reasoning"}, "And?"]
    seen = chats(gateway, turns, stopped.append, model=model)
    assert stopped == ["stopped"]
    assert (seen["errors"], seen["status"], seen["finishes"][0]["isAbort"]) == ([], "ready", True)
    # An incomplete thought goes to no model.
    assert [message["role"] for message in upstream.calls(model)[1].body["messages"]] in (["user"], ["user", "user"])
    assert texts(seen["messages"][-1], "text") == ["Two. "]


async def breaks_off(call: Call) -> None:
    await call.head()
    await call.event(delta(reasoning_content="Hm. "))
    await call.event({"error": {"message": "CUDA out of memory"}})
    await call.end()


def test_errors_are_sentences(chats: Chats, gateway: Served, upstream: Upstream) -> None:
    broke = chats(gateway, ["Why?"], model=upstream.plays(breaks_off))
    assert broke["status"] == "error"
    assert "CUDA out of memory" in broke["errors"][0]
    assert broke["heads"][0]["x-vercel-ai-ui-message-stream"] == "v1"
    refused = chats(gateway, ["Why?"], model="gone:nobody")
    assert refused["heads"][0]["status"] == 503
    assert refused["errors"][0].startswith("the model")


@pytest.mark.needs("node")
def test_use_chat_in_a_page(gateway: Served, upstream: Upstream) -> None:
    url = f"{gateway.url}/api/chat"
    model = upstream.plays(say("Let me see.", "It is 42."), say("Again.", "Still 42."), breaks_off)
    seen = ai_sdk_node.page(url, ["Why?", "And?", "Really?"], body={"model": model})
    assert seen["reasoning"][:2] == ["Let me see. ", "Again. "]
    assert seen["text"] == ["It is 42. ", "Still 42. "]
    assert "CUDA out of memory" in seen["error"][0]
    assert {"submitted", "ready", "error"} <= set(seen["statuses"])
