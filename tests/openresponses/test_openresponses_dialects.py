"""The dialects: the summary dialect in streams, items and histories, and which clients get which dialect."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from pellucid.emit import Emitter
from pellucid.parts import ModelResponse, ThinkingPart
from pellucid.protocols.openresponses import ReferenceContext, client_dialect
from pellucid.protocols.openresponses.verify import verify
from tests.openresponses.openresponses_kit import (
    ORIGIN,
    check_events,
    encode,
    event_types,
    events_of,
    request,
    run_events,
)
from tests.openresponses.test_openresponses_encoder import run_of, turns


def thoughts(*forms: Any) -> bytes:
    """The stream of one reasoning item with a text of each form, then a signature."""
    emitter = Emitter(ORIGIN)
    for number, form in enumerate(forms):
        emitter.thinking(number, f"thought {number}", item="r", form=form)
    emitter.item("r", "reasoning", signature="sig")
    return encode([run_events(emitter.end())], "summary")


def test_raw_reasoning_has_the_events_of_summaries() -> None:
    stream = thoughts("raw", "raw")
    events = events_of(stream)
    assert verify(stream, "summary") == []
    check_events(events)
    types = [event_type for event_type in event_types(events) if "reasoning" in event_type]
    part = ["reasoning_summary_part.added", "reasoning_summary_text.delta", "reasoning_summary_text.done"]
    assert types == [*part, "reasoning_summary_part.done"] * 2
    [item] = events[-1]["response"]["output"]
    assert [text["text"] for text in item["summary"]] == ["thought 0", "thought 1"]
    assert item["content"] == [{"type": "reasoning_text", "text": f"thought {number}"} for number in range(2)]


def test_a_summary_of_the_model_is_no_raw_text() -> None:
    [item] = events_of(thoughts("raw", "summary"))[-1]["response"]["output"]
    assert [text["text"] for text in item["summary"]] == ["thought 0", "thought 1"]
    assert [text["text"] for text in item["content"]] == ["thought 0"]
    [item] = events_of(thoughts("summary"))[-1]["response"]["output"]
    assert "content" not in item


@given(turns)
def test_every_stream_is_legal_and_has_the_texts_of_the_other_dialects(script: list[Any]) -> None:
    batches, _ = run_of(script, "eof")
    stream = encode(batches, "summary")
    assert verify(stream, "summary") == []
    check_events(events_of(stream))
    ours, others = (
        [event["delta"] for event in events_of(encode(batches, dialect)) if event["type"].endswith(".delta")]
        for dialect in ("summary", "openai")
    )
    assert ours == others


def test_raw_text_that_is_not_in_the_summary_is_a_violation() -> None:
    stream = thoughts("raw").replace(b'"reasoning_text","text":"thought 0"', b'"reasoning_text","text":"other"')
    assert [violation for violation in verify(stream, "summary") if "content" in violation]


def reasoning_parts(context: ReferenceContext, **item: Any) -> list[Any]:
    item = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "thought"}], **item}
    [message] = request(input=[item]).messages(context)
    assert isinstance(message, ModelResponse)
    return list(message.parts)


def test_what_a_summary_without_a_seal_is_depends_on_what_the_client_gets() -> None:
    assert reasoning_parts(ReferenceContext()) == [ThinkingPart("thought", form="summary")]
    context = ReferenceContext(summary_form="raw")
    assert reasoning_parts(context) == [ThinkingPart("thought")]
    raw = [{"type": "reasoning_text", "text": "raw"}]
    assert reasoning_parts(context, content=raw) == [ThinkingPart("raw")]


@pytest.mark.parametrize(
    ("dialect", "headers"),
    [
        ("summary", {"originator": "codex_exec", "user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64) xterm"}),
        ("summary", {"originator": "Codex Desktop"}),
        ("summary", {"user-agent": "OpenAI/Python 3.57.0", "x-stainless-lang": "python"}),
        ("summary", {"user-agent": "AsyncAzureOpenAI/Python 1.60.0", "x-stainless-lang": "python"}),
        ("summary", {"user-agent": "Agents/Python 0.24.0", "x-stainless-lang": "python"}),
        ("summary", {"user-agent": "Agents/JavaScript 0.20.0", "x-stainless-lang": "js"}),
        ("summary", {"user-agent": "pydantic-ai/2.68.0", "x-stainless-lang": "python"}),
        ("summary", {"user-agent": "langchainjs-openai/1.0.0 ((node/v20.20.2; linux; x64))", "x-stainless-lang": "js"}),
        ("summary", {"user-agent": "litellm/1.110.2"}),
        ("summary", {"user-agent": "lm15/stdlib"}),
        ("summary", {"user-agent": "ai-sdk/openai/3.0.141 ai-sdk/provider-utils/4.0.66 runtime/node.js/v20.20.2"}),
        ("summary", {"user-agent": "ai-sdk-openai/4.0.118 ai-sdk-provider-utils/5.0.81 node.js/v20.20.2"}),
        ("summary", {"user-agent": "ai-sdk/open-responses/1.0.39 ai-sdk/provider-utils/4.0.50 runtime/node.js/v20"}),
        ("summary", {"user-agent": "ai/6.0.326 ai-sdk/provider-utils/4.0.66 runtime/node.js/v20.20.2"}),
        ("summary", {"user-agent": "opencode/1.18.33 ai-sdk/openai/3.0.141 ai-sdk/provider-utils/4.0.66"}),
        ("openai", {"user-agent": "OpenAI/JS 6.49.0", "x-stainless-lang": "js"}),
        ("openai", {"user-agent": "Mozilla/5.0 (X11; Linux x86_64)", "x-stainless-lang": "js"}),
        ("openai", {"user-agent": "OpenAI/Go 3.1.0", "x-stainless-lang": "go"}),
        (None, {"user-agent": "curl/8.5.0"}),
        (None, {"user-agent": "python-httpx/0.28.1"}),
        (None, {"user-agent": "mail/1.0"}),
        (None, {"user-agent": ""}),
        (None, {}),
    ],
)
def test_the_dialect_of_a_client(dialect: str | None, headers: dict[str, str]) -> None:
    assert client_dialect(headers.get) == dialect
