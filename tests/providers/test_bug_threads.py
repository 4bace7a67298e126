"""Bugs of other gateways and clients of Chat Completions; each test is named after one, and shows that it is absent."""

from __future__ import annotations

from typing import Any

import msgspec

from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    Origin,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.openai_chat.encode import encode
from pellucid.settings import ModelCall
from tests.providers.wire_kit import (
    ROWS,
    body,
    call,
    chunk,
    is_complete,
    kinds_and_texts,
    origin,
    response_of,
    sse,
    thoughts,
)

TOOL = call("{}", name="f", id="c1", index=0)


def next_turn(row: str, response: ModelResponse, *, target: str | None = None) -> list[dict[str, Any]]:
    """Return the messages of the request that follows the result of a tool call."""
    result = ModelRequest([ToolReturnPart("f", "42", "c1")])
    history: list[ModelMessage] = [ModelRequest([UserPromptPart("q")]), response, result]
    name = target or row
    messages: list[dict[str, Any]] = encode(ModelCall("m", history), ROWS[name], origin(name))["messages"]
    return messages


def test_details_replayed_as_fragments_broke_the_signature_after_a_tool_call() -> None:
    """agno-agi/agno#8794"""
    entries = [{"type": "reasoning.text", "index": 0, **piece} for piece in (
        {"text": "a"}, {"text": "b"}, {"signature": "S"})]  # fmt: skip
    data = sse(*(chunk(reasoning_details=[e]) for e in entries), chunk(tool_calls=[TOOL]), chunk("tool_calls"))
    _, answer, _ = next_turn("openrouter", response_of("openrouter", data))
    assert answer["reasoning_details"] == [{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "S"}]


def test_a_list_position_taken_for_an_index_mixed_blocks_up() -> None:
    """pailat/adk-llm-bridge#82"""
    blocks = [
        {"type": "reasoning.summary", "index": 3, "summary": "a"},
        {"type": "reasoning.encrypted", "index": 4, "data": "b"},
    ]
    data = sse(*(chunk(reasoning_details=[block]) for block in blocks), chunk("stop", content="c"))
    assert [(part.content, part.signature) for part in thoughts(response_of("openrouter", data))] == [
        ("a", None),
        ("", "b"),
    ]


def test_signature_only_reasoning_was_dropped_as_empty() -> None:
    """BerriAI/litellm#38809"""
    entry = {"type": "reasoning.text", "index": 0, "text": "", "signature": "S"}
    response = response_of("openrouter", body("tool_calls", content=None, reasoning_details=[entry], tool_calls=[TOOL]))
    assert [part.signature for part in thoughts(response)] == ["S"]
    _, answer, _ = next_turn("openrouter", response)
    assert answer["reasoning_details"] == [entry]


def test_reasoning_in_a_sibling_field_was_lost_when_streaming() -> None:
    """BerriAI/litellm#29518"""
    assert response_of("openai-compat", sse(chunk(reasoning_content="a"), chunk("stop", content="b"))).thinking == "a"


def test_tags_leaked_into_the_answer_when_streaming() -> None:
    """BerriAI/litellm#26326"""
    data = sse(*(chunk(content=piece) for piece in ("<thi", "nk>a</th", "ink>", "b")), chunk("stop"))
    assert kinds_and_texts(response_of("fireworks", data)) == [("thinking", "a"), ("text", "b")]


def test_content_as_a_list_hid_the_reasoning() -> None:
    """BerriAI/litellm#16272, vercel/ai#17971: neither hidden nor glued to the answer."""
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "391."}]}, {"type": "text", "text": "391"}]
    for data in (sse(chunk(content=content), chunk("stop")), body(content=content)):
        assert kinds_and_texts(response_of("openai-compat", data)) == [("thinking", "391."), ("text", "391")]


def test_reasoning_replayed_as_tags_was_imitated_in_the_answer() -> None:
    """UKGovernmentBEIS/inspect_ai#4979: another model's thought never becomes text for any provider."""
    thought = ModelResponse([ThinkingPart("secret thought")], origin=Origin("elsewhere", "openai_chat", "x"))
    for row in ROWS:
        assert b"secret thought" not in msgspec.json.encode(encode(ModelCall("m", [thought]), ROWS[row], origin(row)))
    for row in set(ROWS) - {"minimax"}:  # which expects tags
        own = ModelResponse([ThinkingPart("thought")], origin=origin(row))
        assert b"<think>" not in msgspec.json.encode(encode(ModelCall("m", [own]), ROWS[row], origin(row)))


def test_reasoning_and_content_in_one_delta_were_mixed_up() -> None:
    """vllm-project/vllm#43933, #55195"""
    data = sse(chunk(reasoning="a"), chunk(reasoning="b", content="c"), chunk(content="d"), chunk("stop"))
    assert kinds_and_texts(response_of("vllm", data)) == [("thinking", "ab"), ("text", "cd")]


def test_a_model_specific_tag_leaked_into_the_answer() -> None:
    """vllm-project/vllm#45687, #46042"""
    row = msgspec.structs.replace(ROWS["vllm"], tags="minimax-m3")
    data = sse(*(chunk(content=piece) for piece in ("<mm:", "think>a", "</mm:think>", "b")), chunk("stop"))
    assert kinds_and_texts(response_of(row, data)) == [("thinking", "a"), ("text", "b")]


def test_the_renamed_field_was_dropped_on_input() -> None:
    """vllm-project/vllm#38488: both names are sent, and each server knows one."""
    _, answer, _ = next_turn("vllm", response_of("vllm", body("tool_calls", reasoning="a", tool_calls=[TOOL])))
    assert answer["reasoning"] == answer["reasoning_content"] == "a"


def test_a_stripped_opening_tag_left_its_closing_tag_in_the_answer() -> None:
    """ggml-org/llama.cpp#23320: if the profile says so, text before the closing tag is reasoning."""
    data = sse(*(chunk(content=piece) for piece in ("hm ", "so\n</th", "ink>\n\n", "b")), chunk("stop"))
    row = msgspec.structs.replace(ROWS["llama.cpp"], implicit_start="auto")
    assert kinds_and_texts(response_of(row, data)) == [("thinking", "hm so"), ("text", "b")]


def test_a_call_without_reasoning_was_refused() -> None:
    """anomalyco/opencode#25758, continuedev/continue#10193: a required field is sent even without reasoning."""
    lost = response_of("kimi", body("tool_calls", content=None, tool_calls=[TOOL]))
    for row, stand_in in (("kimi", " "), ("deepseek", "")):
        own = msgspec.structs.replace(lost, origin=origin(row))
        _, answer, _ = next_turn(row, own)
        assert answer["reasoning_content"] == stand_in


def test_a_second_closing_tag_leaked_into_the_answer() -> None:
    """antirez/ds4#678"""
    data = sse(chunk(content="<think>a</think>\n\nb\n"), chunk(content="</think>\nc"), chunk("stop"))
    response = response_of("vllm", data)
    assert response.thinking == "a"
    assert response.text is not None
    assert "think" not in response.text


def test_incremental_details_read_as_cumulative_ones_lost_their_beginning() -> None:
    """MiniMax-AI/MiniMax-M2#95"""
    texts = ("The", " user", " asks")
    entries = [[{"type": "reasoning.text", "index": 0, "text": text}] for text in texts]
    data = sse(*(chunk(reasoning_details=entry) for entry in entries), chunk("stop", content="b"))
    assert response_of("minimax", data).thinking == "The user asks"


def test_a_stripped_thought_signature_made_the_next_call_malformed() -> None:
    """OpenRouterTeam/openrouter-examples#67, RooCodeInc/Roo-Code#10640: one encrypted entry, under the call's id."""
    entry = {"type": "reasoning.encrypted", "id": "c1", "format": "google-gemini-v1", "index": 0, "data": "CiQB"}
    data = sse(chunk(reasoning_details=[entry]), chunk(tool_calls=[TOOL]), chunk("tool_calls"))
    _, answer, _ = next_turn("openrouter", response_of("openrouter", data))
    assert answer["reasoning_details"] == [entry]
    assert answer["tool_calls"][0]["id"] == "c1"


def test_interleaved_thoughts_and_calls_lost_their_order() -> None:
    """NousResearch/hermes-agent#35975, BerriAI/litellm#23047: preserved as far as the wire permits."""
    blocks = [[{"type": "reasoning.text", "index": n, "text": f"t{n}", "signature": f"S{n}"}] for n in range(2)]
    data = sse(
        chunk(reasoning_details=blocks[0]), chunk(tool_calls=[TOOL]),
        chunk(reasoning_details=blocks[1]), chunk(tool_calls=[call("{}", name="g", id="c2", index=1)]),
        chunk("tool_calls"),
    )  # fmt: skip
    response = response_of("openrouter", data)
    assert kinds_and_texts(response) == [
        ("thinking", "t0"),
        ("tool-call", "{}"),
        ("thinking", "t1"),
        ("tool-call", "{}"),
    ]
    _, answer, _ = next_turn("openrouter", response)
    assert answer["reasoning_details"] == [block[0] for block in blocks]


def test_reasoning_cut_short_became_the_answer() -> None:
    """If the limit is reached during reasoning, the response has no text."""
    cut_short: list[tuple[str, dict[str, Any]]] = [
        ("vllm", {"content": "<think>a"}),
        ("vllm", {"reasoning": "a"}),
        ("minimax", {"content": "<think>a"}),
    ]
    for row, delta in cut_short:
        response = response_of(row, sse(chunk(**delta), chunk("length")))
        assert response.text is None
        assert response.thinking == "a"
        assert not is_complete(response.parts[0])
