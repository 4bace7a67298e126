"""Bugs of other gateways and clients of Responses; each test is named after one, and shows that it is absent."""

from __future__ import annotations

from typing import Any

import msgspec

from pellucid.parts import ModelRequest, ModelResponse, Origin, TextPart, ThinkingPart, ToolReturnPart
from pellucid.providers.openai_responses.encode import encode
from pellucid.settings import ModelCall
from tests.providers_openai_responses.responses_kit import (
    ROWS,
    added,
    answer,
    body,
    created,
    done,
    function_call,
    kinds_and_texts,
    origin,
    raw,
    response_end,
    response_of,
    sent,
    sse,
    stream,
    summary,
    thought,
    thoughts,
    wire_event,
)

RESULT = ModelRequest([ToolReturnPart("f", "42", "c1")])


def item_types(items: list[dict[str, Any]]) -> list[tuple[str | None, str | None]]:
    return [(item.get("type", item.get("role")), item.get("id")) for item in items]


def test_reasoning_was_sent_without_its_required_following_item() -> None:
    """continuedev/continue#8933, openai/openai-agents-python#1611, pydantic/pydantic-ai#2861, #2870"""
    for data in (stream(thought(0, encrypted="E")), stream(thought(0, encrypted="E"), answer(1, ""))):
        assert sent(response_of(data)) == []
    whole = response_of(stream(thought(0, encrypted="E"), function_call(1, "f", "{}")))
    edited = msgspec.structs.replace(whole, parts=whole.parts[:1])
    assert sent(edited) == []


def test_a_call_was_sent_without_its_required_reasoning_item() -> None:
    """pydantic/pydantic-ai#3230, omnigent-ai/omnigent#5066, VRSEN/agency-swarm#367: then also without its id."""
    usage = {"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 5}}
    data = sse(created(), thought(0, encrypted="E"), function_call(1, "f", "{}"), response_end(usage=usage))
    whole = response_of(data)
    edited = msgspec.structs.replace(whole, parts=whole.parts[1:])
    assert item_types(sent(edited, RESULT)) == [("function_call", None), ("function_call_output", None)]
    unsealed = response_of(stream(thought(0, "s"), function_call(1, "f", "{}")))
    assert item_types(sent(unsealed, RESULT)) == [("function_call", None), ("function_call_output", None)]


def test_an_item_that_was_not_stored_was_referenced() -> None:
    """vercel/ai#7543, openai/openai-agents-python#919: encrypted_content was null, and nothing was stored."""
    item: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": None}
    call = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "f", "arguments": "{}"}
    assert item_types(sent(response_of(body(item, call)))) == [("function_call", None)]
    request = encode(ModelCall("m", []), ROWS["openai-responses"], origin())
    assert request["store"] is False
    assert request["include"] == ["reasoning.encrypted_content"]


def test_a_gateway_lost_the_encrypted_content_that_it_was_sent() -> None:
    """maximhq/bifrost#5410, earendil-works/pi#3369"""
    response = response_of(stream(thought(0, encrypted="E"), function_call(1, "f", "{}")))
    reasoning, call, _ = sent(response, RESULT)
    assert reasoning == {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E"}
    assert call["id"] == "fc"


def test_a_reshaped_reasoning_item_could_not_be_decrypted() -> None:
    """lidge-jun/opencodex#2229: content is not rewritten into summary, nor the other way round."""
    for item in (
        {"type": "reasoning", "id": "rs", "summary": [], "content": raw("r"), "encrypted_content": "E"},
        {"type": "reasoning", "id": "rs", "summary": summary("a", "b"), "encrypted_content": "E"},
        {"type": "reasoning", "id": "rs", "summary": summary("a"), "content": raw("r", "s"), "encrypted_content": "E"},
    ):
        response = response_of(body(item, answer(1, "t")[-1]["item"]), "xai-responses")
        assert sent(response, row="xai-responses")[0] == item


def test_ids_that_change_with_every_event_tore_the_answer_apart() -> None:
    """GitHub Copilot's proxy sends another id with every event."""
    events = [*thought(0, "Counting", encrypted=None), *answer(1, "There are three")]
    for number, event in enumerate([created(), *events]):
        for where in (event, event.get("item", {}), event.get("response", {})):
            where.update({name: f"id-{number}" for name in ("id", "item_id") if name in where})
    whole = [event["item"] | {"id": f"end-{n}"} for n, event in enumerate(events) if event["type"].endswith("m.done")]
    response = response_of(sse(created(), events, response_end(output=whole)), "copilot-responses")
    assert kinds_and_texts(response) == [("thinking", "Counting"), ("text", "There are three")]


def test_every_token_counted_as_a_content_part_of_its_own() -> None:
    """vllm-project/vllm#35184: no part was announced, and content_index grew from delta to delta."""
    text = "The user asks"
    deltas = [wire_event("reasoning_text.delta", 0, content_index=n, delta=piece) for n, piece in enumerate(text)]
    data = stream(
        added(0, "reasoning", id="rs"), deltas, done(0, "reasoning", id="rs", content=raw(text)), answer(1, "a")
    )
    assert [part.content for part in thoughts(response_of(data, "vllm-responses"))] == [text]


def test_vllm_reasoning_events_were_ignored() -> None:
    """vllm-project/vllm#43395 and antwort: `response.reasoning_part.added`, `response.reasoning_text.delta`."""
    at: dict[str, Any] = {"output_index": 0, "content_index": 0, "item_id": "rs"}
    data = stream(
        added(0, "reasoning", id="rs", summary=[]),
        wire_event("reasoning_part.added", part=raw("")[0], **at),
        wire_event("reasoning_text.delta", delta="hm", **at),
        wire_event("reasoning_text.done", text="hm", **at),
        wire_event("reasoning_part.done", part=raw("hm")[0], **at),
        done(0, "reasoning", id="rs", content=raw("hm"), summary=[]),
        answer(1, "a"),
    )
    assert kinds_and_texts(response_of(data, "vllm-responses")) == [("thinking", "hm"), ("text", "a")]


def test_summaries_and_raw_reasoning_were_confused_or_dropped() -> None:
    """vercel/ai#19659, QuantumNous/new-api#7114, BerriAI/litellm#40654"""
    item = {"type": "reasoning", "id": "rs", "summary": summary("short"), "content": raw("at length")}
    assert [(p.content, p.form) for p in thoughts(response_of(body(item)))] == [
        ("short", "summary"),
        ("at length", "raw"),
    ]


def test_reasoning_was_not_given_back_on_the_second_tool_turn() -> None:
    """huggingface/responses.js#54, maximhq/bifrost#3802: a server with reasoning in the clear refuses without it."""
    first = response_of(
        stream(
            added(0, "reasoning", id="r1"),
            wire_event("reasoning_text.delta", 0, content_index=0, delta="hm"),
            done(0, "reasoning", id="r1", content=raw("hm")),
            function_call(1, "f", "{}"),
        ),
        "deepseek-responses",
    )
    items = sent(first, RESULT, row="deepseek-responses")
    assert item_types(items) == [("reasoning", "r1"), ("function_call", "fc"), ("function_call_output", None)]
    assert items[0]["content"] == raw("hm")


def test_encrypted_reasoning_was_requested_of_models_without_it() -> None:
    """OpenHands/software-agent-sdk#1208, pydantic/pydantic-ai#2867"""
    row = ROWS["openai-responses"]
    for model, asks in (("gpt-4o-mini", False), ("gpt-4.1", False), ("gpt-5", True), ("o4-mini", True)):
        assert ("include" in encode(ModelCall(model, []), row.for_model(model), origin())) is asks


def test_signature_only_reasoning_was_dropped_as_empty() -> None:
    """BerriAI/litellm#38809, for items without a summary"""
    assert [p.signature for p in thoughts(response_of(stream(thought(0, encrypted="E"), answer(1, "a"))))] == ["E"]


def test_interleaved_reasoning_and_tools_were_regrouped() -> None:
    """NousResearch/hermes-agent#35975, BerriAI/litellm#23047"""
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "q"}}
    output = [
        thought(0, id="r1", encrypted="A")[-1]["item"], search,
        thought(0, id="r2", encrypted="B")[-1]["item"], search | {"id": "ws2"},
        thought(0, id="r3", encrypted="C")[-1]["item"], answer(5, "a")[-1]["item"],
    ]  # fmt: skip
    items = sent(response_of(body(*output)))
    assert item_types(items) == [
        ("reasoning", "r1"), ("web_search_call", "ws"), ("reasoning", "r2"), ("web_search_call", "ws2"),
        ("reasoning", "r3"), ("message", "msg"),
    ]  # fmt: skip


def test_another_models_thought_became_text() -> None:
    """UKGovernmentBEIS/inspect_ai#4979: neither in tags nor otherwise, for any provider."""
    foreign = ModelResponse([ThinkingPart("secret thought"), TextPart("a")], origin=Origin("else", "anthropic", "x"))
    for row in ROWS:
        request = msgspec.json.encode(encode(ModelCall("m", [foreign]), ROWS[row], origin(row)))
        assert b"secret thought" not in request
        assert b"<think>" not in request


def test_an_error_without_a_code_was_not_an_error() -> None:
    """vercel/ai: `code` may be null"""
    from tests.providers_openai_responses.responses_kit import folded

    event = {"type": "error", "error": {"type": "server_error", "code": None, "message": "Sorry", "param": None}}
    error = folded(sse(created(), event)).error
    assert error is not None
    assert (error.kind, error.upstream_message) == ("model_error", "Sorry")
