"""Bugs of other libraries on this wire; each test is named after its issue."""

from __future__ import annotations

import json
from typing import Any

from pellucid.parts import ModelRequest, ModelResponse, TextPart, ThinkingPart, UserPromptPart
from pellucid.providers.anthropic.encode import encode
from pellucid.settings import ModelCall
from tests.providers_anthropic.anthropic_kit import (
    ROWS,
    block_delta,
    block_start,
    block_stop,
    body,
    folded,
    message_end,
    origin,
    part_contents,
    response_of,
    sse,
    start,
    text,
    thinking,
    tool,
)


def replayed_content(response: ModelResponse, row: str = "anthropic") -> list[dict[str, Any]]:
    (message,) = encode(ModelCall("claude", [response]), ROWS[row], origin(row))["messages"]
    content: list[dict[str, Any]] = message["content"]
    return content


def test_agno_8794_fragments_were_replayed_in_place_of_blocks() -> None:
    stream = sse(start(), *thinking(0, "a", "b", "c", signature="sig"), *tool(1, "t", "{}"), *message_end("tool_use"))
    assert replayed_content(response_of(stream))[0] == {"type": "thinking", "thinking": "abc", "signature": "sig"}


def test_hermes_agent_35975_interleaved_blocks_were_regrouped() -> None:
    stream = sse(
        start(),
        *thinking(0, "a", signature="s1"),
        *tool(1, "t1", "{}"),
        *thinking(2, "b", signature="s2"),
        *tool(3, "t2", "{}"),
        *message_end("tool_use"),
    )
    kinds = [(block["type"], block.get("signature")) for block in replayed_content(response_of(stream))]
    assert kinds == [("thinking", "s1"), ("tool_use", None), ("thinking", "s2"), ("tool_use", None)]


def test_litellm_23047_thoughts_between_searches_were_moved_and_doubled() -> None:
    blocks: list[dict[str, Any]] = []
    for n in "12":
        blocks += [
            {"type": "thinking", "thinking": f"why {n}", "signature": f"s{n}"},
            {"type": "server_tool_use", "id": f"srv_{n}", "name": "web_search", "input": {"query": n}},
            {"type": "web_search_tool_result", "tool_use_id": f"srv_{n}", "content": []},
        ]
    blocks.append({"type": "text", "text": "so"})
    assert replayed_content(response_of(body(*blocks))) == blocks


def test_litellm_38809_thoughts_with_only_a_signature_were_dropped_as_empty() -> None:
    response = response_of(sse(start(), *thinking(0, signature="sig"), *tool(1, "t", "{}"), *message_end("tool_use")))
    assert part_contents(response)[0] == ("thinking", "")
    assert replayed_content(response)[0] == {"type": "thinking", "thinking": "", "signature": "sig"}


def test_litellm_31654_a_thought_was_sent_without_its_signature() -> None:
    response = ModelResponse([ThinkingPart("why", provider_name="anthropic"), TextPart("so")], origin=origin())
    assert [block["type"] for block in replayed_content(response)] == ["text"]


def test_pydantic_ai_5532_a_thought_broken_off_was_replayed_with_half_a_signature() -> None:
    frames = [
        start(),
        block_start(0, "thinking", thinking="", signature=""),
        block_delta(0, "thinking", thinking="why"),
    ]
    response = folded(sse(*frames)).response
    assert response is not None
    call = ModelCall("claude", [response, ModelRequest([UserPromptPart("go on")])])
    for row in ("anthropic", "anthropic-compat"):
        assert [m["role"] for m in encode(call, ROWS[row], origin(row))["messages"]] == ["user"]


def test_forgecode_2107_the_final_block_was_a_thought() -> None:
    """A call that was cut off is not replayed, nor is the thought before it."""
    stream = sse(start(), *thinking(0, "why"), *tool(1, "t", '{"a": '), *message_end("max_tokens"))
    call = ModelCall("claude", [response_of(stream), ModelRequest([UserPromptPart("go on")])])
    (message,) = encode(call, ROWS["anthropic"], origin())["messages"]
    assert message["role"] == "user"


def test_inspect_ai_4979_thoughts_were_replayed_as_text_in_tags() -> None:
    """The model imitates what it reads, so reasoning that cannot be replayed as a block is not replayed at all."""
    parts: list[Any] = [ThinkingPart("SECRET", signature="x", provider_name="elsewhere"), TextPart("so")]
    for row in ROWS:
        for made_by in (origin("elsewhere"), None):
            sent = json.dumps(encode(ModelCall("c", [ModelResponse(parts, origin=made_by)]), ROWS[row], origin(row)))
            assert "think>" not in sent
            assert "<thinking" not in sent
            assert row != "anthropic" or "SECRET" not in sent


def test_vercel_ai_two_messages_were_made_one() -> None:
    stream = sse(start("msg_1"), *text(0, "a")[:2], start("msg_2"), *text(0, "b"), *message_end())
    result = folded(stream)
    assert result.error is not None
    assert result.response is not None
    assert part_contents(result.response) == [("text", "a")]


def test_cursor_byok_276_a_server_wanted_a_thought_where_there_was_none() -> None:
    response = response_of(sse(start(), *tool(0, "t", "{}"), *message_end("tool_use")), "deepseek-anthropic")
    assert replayed_content(response, "deepseek-anthropic")[0] == {"type": "thinking", "thinking": "", "signature": ""}


def test_white_space_between_blocks_was_refused() -> None:
    stream = sse(start(), *thinking(0, "why"), *text(1, "\n\n"), *tool(2, "t", "{}"), *message_end("tool_use"))
    assert [block["type"] for block in replayed_content(response_of(stream))] == ["thinking", "tool_use"]


def test_a_block_that_never_stopped_swallowed_the_next() -> None:
    """A proxy leaves out `content_block_stop` and reuses the index."""
    stream = sse(start(), *thinking(0, "a")[:-1], *text(0, "so")[:-1], *message_end())
    assert part_contents(response_of(stream)) == [("thinking", "a"), ("text", "so")]
    other = sse(start(), *thinking(0, "a")[:-1], *text(1, "so")[:-1], block_stop(7), *message_end())
    assert part_contents(response_of(other)) == [("thinking", "a"), ("text", "so")]
