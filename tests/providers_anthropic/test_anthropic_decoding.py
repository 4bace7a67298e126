"""Edge cases of the Messages wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.events import ItemStartEvent, PartDeltaEvent
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    CompactionPart,
    OpaquePart,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pellucid.providers.wires import WIRES
from tests.examples import many
from tests.providers_anthropic.anthropic_kit import (
    PING,
    ROWS,
    block_delta,
    block_start,
    block_stop,
    body,
    cut,
    events_of,
    folded,
    merged,
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

# --- thinking ----------------------------------------------------------------------------------------------------


def test_a_thinking_delta_is_emitted_with_its_read() -> None:
    reader = WIRES["anthropic"].decoder(ROWS["anthropic"], origin())
    reader.feed(sse(start(), block_start(0, "thinking", thinking="", signature="")))
    events = reader.feed(sse(block_delta(0, "thinking", thinking="a")))
    assert any(isinstance(event, PartDeltaEvent) for event in events), "a delta is emitted with its read"


def test_a_later_signature_replaces_the_earlier_one() -> None:
    stream = sse(
        start(),
        block_start(0, "thinking", thinking="", signature=""),
        block_delta(0, "thinking", thinking="why"),
        block_delta(0, "signature", signature="one"),
        block_delta(0, "signature", signature="two"),
        block_stop(0),
        *text(1, "so"),
        *message_end(),
    )
    assert response_of(stream).parts[0] == ThinkingPart(
        "why", signature="two", provider_name="anthropic", form="summary"
    )


def test_an_empty_signature_is_none() -> None:
    response = response_of(
        sse(start(), *thinking(0, "why", signature=""), *text(1, "so"), *message_end()), "anthropic-compat"
    )
    assert response.parts[0] == ThinkingPart("why", provider_name="anthropic-compat")


def test_a_thought_with_only_a_signature_is_a_part() -> None:
    response = response_of(sse(start(), *thinking(0), *text(1, "so"), *message_end()))
    assert (response.parts[0].content, response.parts[0].signature) == ("", "sig")  # type: ignore[union-attr]


def test_an_empty_thought_without_a_signature_is_dropped() -> None:
    assert part_contents(
        response_of(sse(start(), *thinking(0, "", signature=None), *text(1, "so"), *message_end()))
    ) == [("text", "so")]


def test_a_redacted_thought() -> None:
    stream = sse(
        start(), block_start(0, "redacted_thinking", data="blob"), block_stop(0), *text(1, "so"), *message_end()
    )
    expected = ThinkingPart("", id="redacted_thinking", signature="blob", provider_name="anthropic", form="redacted")
    assert response_of(stream).parts[0] == expected
    assert (
        response_of(body({"type": "redacted_thinking", "data": "blob"}, {"type": "text", "text": "so"})).parts[0]
        == expected
    )


def test_a_block_may_begin_with_text() -> None:
    stream = sse(
        start(),
        block_start(0, "thinking", thinking="a", signature="early"),
        block_delta(0, "thinking", thinking="b"),
        block_stop(0),
        block_start(1, "text", text="c"),
        block_delta(1, "text", text="d"),
        block_stop(1),
        *message_end(),
    )
    assert part_contents(response_of(stream)) == [("thinking", "ab"), ("text", "cd")]


def test_interleaved_thinking_keeps_its_place() -> None:
    stream = sse(
        start(),
        *thinking(0, "first", signature="s1"),
        *tool(1, "t1", '{"a":', "1}"),
        *thinking(2, "second", signature="s2"),
        *tool(3, "t2"),
        *message_end("tool_use"),
    )
    response = response_of(stream)
    assert part_contents(response) == [
        ("thinking", "first"), ("tool-call", '{"a":1}'), ("thinking", "second"), ("tool-call", "{}"),
    ]  # fmt: skip
    assert [part.signature for part in response.parts] == ["s1", None, "s2", None]  # type: ignore[union-attr]
    assert response.finish_reason == "tool_call"


def test_interleaved_blocks_are_whole_and_in_order() -> None:
    stream = sse(
        start(),
        block_start(0, "thinking", thinking="", signature=""),
        block_delta(0, "thinking", thinking="a"),
        block_start(1, "tool_use", id="t1", name="f", input={}),
        block_delta(1, "input_json", partial_json='{"x":'),
        block_start(2, "server_tool_use", id="s1", name="web_search", input={}),
        block_delta(0, "thinking", thinking="b"),
        block_delta(2, "input_json", partial_json='{"query":"q"}'),
        block_delta(1, "input_json", partial_json="1}"),
        block_stop(2),
        block_stop(0),
        block_stop(1),
        *text(3, "so"),
        *message_end(),
    )
    assert part_contents(response_of(stream)) == [
        ("thinking", "ab"), ("tool-call", '{"x":1}'), ("builtin-tool-call", '{"query":"q"}'), ("text", "so"),
    ]  # fmt: skip


def test_pings_and_unknown_events_are_ignored() -> None:
    plain = [start(), *thinking(0, "a", "b"), *text(1, "so"), *message_end()]
    noisy = [": comment", PING, *[frame for one in plain for frame in (one, PING, {"type": "news", "index": 0})][:-2]]
    assert merged(events_of(sse(*noisy))) == merged(events_of(sse(*plain)))


def test_a_missing_type_is_taken_from_the_event_name() -> None:
    stream = b"".join(
        b"event: %b\ndata: %b\n\n" % (frame["type"].encode(), json.dumps({**frame, "type": None}).encode())
        for frame in [start(), *thinking(0, "a"), *text(1, "so"), *message_end()]
    )
    assert part_contents(response_of(stream)) == [("thinking", "a"), ("text", "so")]


def test_deltas_without_their_block_are_kept() -> None:
    stream = sse(
        start(),
        block_delta(0, "thinking", thinking="a"),
        block_stop(0),
        block_delta(1, "text", text="so"),
        *message_end(),
    )
    assert part_contents(response_of(stream)) == [("thinking", "a"), ("text", "so")]


@pytest.mark.parametrize(("model", "form"), [("claude-3-7-sonnet-latest", "raw"), ("claude-sonnet-4-5", "summary")])
def test_thinking_is_raw_or_a_summary_depending_on_the_model(model: str, form: str) -> None:
    row = ROWS["anthropic"].for_model(model)
    assert response_of(sse(start(), *thinking(0, "a"), *text(1, "so"), *message_end()), row).parts[0].form == form  # type: ignore[union-attr]


# --- truncation --------------------------------------------------------------------------------------------------


def test_a_token_limit_inside_a_thought_makes_it_incomplete() -> None:
    """The provider closes the block before it reports that it was cut off."""
    for frames in (thinking(0, "a thou", signature=None), thinking(0, "a thou", signature=None)[:-1]):
        response = response_of(sse(start(), *frames, *message_end("max_tokens")))
        assert response.parts == [ThinkingPart("a thou", provider_name="anthropic", form="summary", complete=False)]
        assert response.finish_reason == "length"


def test_a_token_limit_inside_a_call_makes_it_incomplete() -> None:
    response = response_of(sse(start(), *tool(0, "t", '{"a": '), *message_end("max_tokens")))
    assert response.parts == [ToolCallPart("f", '{"a": ', "t", complete=False)]


def test_the_context_limit_is_finish_reason_length() -> None:
    response = response_of(sse(start(), *text(0, "a"), *message_end("model_context_window_exceeded")))
    assert (response.finish_reason, response.native_finish_reason) == ("length", "model_context_window_exceeded")
    assert response.parts == [TextPart("a", complete=False)]


@pytest.mark.parametrize("frames", [0, 1, 2, 3, 4, 5, 6, 7, 8])
def test_a_truncated_stream_is_an_error(frames: int) -> None:
    whole = [start(), *thinking(0, "why"), *text(1, "so"), *tool(2, "t", '{"a":')[:2]]
    result = folded(sse(*whole[:frames]))
    assert result.error is not None
    assert result.error.code == ("stream_truncated" if frames else "empty_stream")
    assert result.response is not None
    assert result.response.finish_reason == "error"
    assert all(part.complete for part in result.response.parts[:-1])  # type: ignore[union-attr]
    if result.response.parts and not whole[frames - 1]["type"].endswith("_stop"):
        assert not result.response.parts[-1].complete  # type: ignore[union-attr]
    assert result.response.usage.output_tokens is None, "the count of message_start is not final"


def test_a_cancelled_answer_is_closed() -> None:
    response = response_of(sse(start(), *thinking(0, "why")[:2]), cause="cancelled")
    assert response.parts == [ThinkingPart("why", provider_name="anthropic", form="summary", complete=False)]


def test_a_message_without_message_stop_is_complete_if_it_has_a_stop_reason() -> None:
    assert response_of(sse(start(), *text(0, "so"), *message_end()[:1])).finish_reason == "stop"


def test_a_missing_stop_reason_follows_from_the_parts() -> None:
    assert response_of(sse(start(), *text(0, "so"), {"type": "message_stop"})).finish_reason == "stop"
    assert response_of(sse(start(), *tool(0, "t"), {"type": "message_stop"})).finish_reason == "tool_call"


def test_frames_after_message_stop_are_ignored() -> None:
    reader = WIRES["anthropic"].decoder(ROWS["anthropic"], origin())
    reader.feed(sse(start(), *text(0, "so"), *message_end()))
    assert reader.done
    assert reader.feed(sse(start("msg_2"), *text(0, "more"), *message_end())) == []


# --- errors ------------------------------------------------------------------------------------------------------

OVERLOADED = {
    "type": "error",
    "error": {"type": "overloaded_error", "message": "Overloaded"},
    "request_id": "req_1",
}


def test_an_error_in_the_stream() -> None:
    result = folded(sse(start(), *thinking(0, "why")[:2], OVERLOADED))
    message = "the provider is not available for now"
    expected = ErrorInfo(
        "unavailable", message, code="overloaded_error", native=OVERLOADED, upstream_message="Overloaded"
    )
    assert result.error == expected
    assert result.response is not None
    assert part_contents(result.response) == [("thinking", "why")]
    assert not result.response.parts[0].complete  # type: ignore[union-attr]


def test_an_error_ends_decoding() -> None:
    reader = WIRES["anthropic"].decoder(ROWS["anthropic"], origin())
    reader.feed(sse(start(), OVERLOADED))
    assert reader.done


@pytest.mark.parametrize(
    ("kind", "type"),
    [
        ("too_many_requests", "rate_limit_error"),
        ("invalid_request", "invalid_request_error"),
        ("too_large", "request_too_large"),
        ("timeout", "timeout_error"),
        ("model_error", "api_error"),
        ("model_error", "permission_error"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_kinds_of_errors(kind: str, type: str, stream: bool) -> None:
    error = {"type": "error", "error": {"type": type, "message": "no"}}
    result = folded(sse(error) if stream else json.dumps(error).encode())
    assert result.error is not None
    assert (result.error.kind, result.error.upstream_message) == (kind, "no")


@pytest.mark.parametrize("data", [b"<html><h1>Bad gateway</h1>", b'{"id": "x", "choices": []}', b"data: nonsense\n\n"])
def test_data_of_another_format_is_an_error(data: bytes) -> None:
    result = folded(data)
    assert result.error is not None
    assert result.error.code == "not_anthropic_messages"


def test_a_second_message_in_the_stream_is_an_error() -> None:
    """Two messages are never merged."""
    stream = sse(
        start("msg_1"), *tool(0, "t", '{"a": ')[:2], start("msg_2"), *text(0, "the other"), *message_end()
    )  # fmt: skip
    result = folded(stream)
    assert result.error is not None
    assert result.error.code == "spliced_stream"
    assert result.response is not None
    assert result.response.parts == [ToolCallPart("f", '{"a": ', "t", complete=False)]
    assert result.response.provider_response_id == "msg_1"


def test_a_repeated_message_start_is_ignored() -> None:
    assert part_contents(response_of(sse(start(), *text(0, "a"), start(), *text(1, "b"), *message_end()))) == [
        ("text", "a"),
        ("text", "b"),
    ]


# --- stop reasons ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"type": "refusal", "category": "cyber", "explanation": "This is not for me."}, "This is not for me."),
        ({"type": "refusal", "category": "bio", "explanation": None}, "The model declined to answer (bio)."),
        (None, "The model declined to answer."),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_refusal_has_a_text(details: dict[str, Any] | None, words: str, stream: bool) -> None:
    data = (
        sse(start(), *text(0, "I"), *message_end("refusal", delta={"stop_details": details}))
        if stream
        else body({"type": "text", "text": "I"}, reason="refusal", stop_details=details)
    )
    response = response_of(data)
    assert [part.content for part in response.parts if isinstance(part, RefusalPart)] == [words]
    assert part_contents(response)[0] == ("text", "I")
    assert (response.finish_reason, response.native_finish_reason) == ("content_filter", "refusal")
    assert (response.provider_details or {}).get("stop_details") == details


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("tool_use", "tool_call"),
        ("pause_turn", "pause"), ("compaction", "stop"), ("something_new", None),
    ],
)  # fmt: skip
def test_stop_reasons(native: str, reason: str | None) -> None:
    response = response_of(sse(start(), *text(0, "a"), *message_end(native)))
    assert (response.finish_reason, response.native_finish_reason) == (reason, native)


def test_metadata_of_the_answer_is_in_provider_details() -> None:
    edits = {"applied_edits": [{"type": "clear_thinking_20251015"}]}
    dropped = [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "model_binding_mismatch"}]
    first = start()
    first["message"] |= {"input_transformations": dropped, "container": {"id": "c1"}}
    last, stop = message_end("stop_sequence", delta={"stop_sequence": "END"})
    last["context_management"] = edits
    assert response_of(sse(first, *text(0, "a"), last, stop)).provider_details == {
        "input_transformations": dropped, "container_id": "c1", "stop_sequence": "END", "context_management": edits,
    }  # fmt: skip


# --- tools -------------------------------------------------------------------------------------------------------


def test_a_call_with_its_input_in_block_start() -> None:
    stream = sse(
        start(), block_start(0, "tool_use", id="t", name="f", input={"a": 1}), block_stop(0), *message_end("tool_use")
    )
    assert response_of(stream).parts == [ToolCallPart("f", {"a": 1}, "t")]
    streamed = sse(
        start(),
        block_start(0, "tool_use", id="t", name="f", input={"a": 1}),
        block_delta(0, "input_json", partial_json='{"b":2}'),
        block_stop(0),
        *message_end("tool_use"),
    )
    assert response_of(streamed).parts == [ToolCallPart("f", '{"b":2}', "t")]


def test_a_call_without_input_does_not_delay_the_next_block() -> None:
    reader = WIRES["anthropic"].decoder(ROWS["anthropic"], origin())
    reader.feed(sse(start(), *tool(0, "t", "")))
    events = reader.feed(sse(*thinking(1, "next")[:2]))
    assert any(isinstance(event, ItemStartEvent) and event.kind == "reasoning" for event in events)


def test_the_caller_is_stored_unless_it_is_the_model() -> None:
    caller = {"type": "code_execution_20260120", "tool_id": "srv_1"}
    content = [{"type": "tool_use", "id": i, "name": "f", "input": {"a": 1}, "caller": c} for i, c in
               (("t1", caller), ("t2", {"type": "direct"}))]  # fmt: skip
    response = response_of(body(*content, reason="tool_use"))
    assert [part.provider_details for part in response.tool_calls] == [{"caller": caller}, None]


def test_blocks_in_message_start_are_decoded() -> None:
    held: list[dict[str, Any]] = [
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "text", "text": "and"},
    ]
    assert part_contents(response_of(sse(start(content=held), *text(0, "so"), *message_end("tool_use")))) == [
        ("tool-call", {"a": 1}), ("text", "and"), ("text", "so"),
    ]  # fmt: skip


SERVER_TOOLS = {
    "web_search": ("web_search", None),
    "web_fetch": ("web_fetch", None),
    "code_execution": ("code_execution", None),
    "bash_code_execution": ("code_execution", {"anthropic_tool_name": "bash_code_execution"}),
    "text_editor_code_execution": ("code_execution", {"anthropic_tool_name": "text_editor_code_execution"}),
    "advisor": ("advisor", None),
}


@pytest.mark.parametrize("native", SERVER_TOOLS)
def test_the_providers_own_tools(native: str) -> None:
    name, details = SERVER_TOOLS[native]
    result = {"type": f"{native}_result", "x": [1]}
    stream = sse(
        start(),
        *tool(0, "srv_1", '{"q"', ":1}", name=native, type="server_tool_use"),
        block_start(1, f"{native}_tool_result", tool_use_id="srv_1", content=result),
        block_stop(1),
        *text(2, "so"),
        *message_end(),
    )
    assert response_of(stream).parts[:2] == [
        BuiltinToolCallPart(name, '{"q":1}', "srv_1", provider_name="anthropic", provider_details=details),
        BuiltinToolReturnPart(name, result, "srv_1", provider_name="anthropic", provider_details=details),
    ]
    items = [event.kind for event in events_of(stream) if isinstance(event, ItemStartEvent)]
    assert items == ["builtin_tool", "message"], "a call and its result are one item"


def test_a_remote_servers_tool() -> None:
    stream = sse(
        start(),
        block_start(0, "mcp_tool_use", id="m1", name="ask", server_name="wiki", input={}),
        block_delta(0, "input_json", partial_json='{"q":1}'),
        block_stop(0),
        block_start(1, "mcp_tool_result", tool_use_id="m1", is_error=False, content=[{"type": "text", "text": "x"}]),
        block_stop(1),
        *message_end(),
    )
    call, result = response_of(stream).parts
    assert isinstance(call, BuiltinToolCallPart)
    assert isinstance(result, BuiltinToolReturnPart)
    assert call.tool_name == result.tool_name == "mcp_server:wiki"
    assert json.loads(call.args or "") == {"action": "call_tool", "tool_name": "ask", "tool_args": {"q": 1}}  # type: ignore[arg-type]
    assert result.content == {"content": [{"type": "text", "text": "x"}], "is_error": False}


def test_a_server_tool_that_is_cut_off() -> None:
    result = folded(sse(start(), *tool(0, "srv_1", '{"q', name="web_search", type="server_tool_use")[:2]))
    assert result.response is not None
    assert result.response.parts == [
        BuiltinToolCallPart("web_search", '{"q', "srv_1", provider_name="anthropic", complete=False)
    ]


# --- blocks of other kinds ---------------------------------------------------------------------------------------


def test_unknown_blocks_are_opaque_parts() -> None:
    block = {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": {"type": "refusal"}}
    fields = {name: value for name, value in block.items() if name != "type"}
    stream = sse(
        start(), *text(0, "a"), block_start(1, "fallback", **fields), block_stop(1), *text(2, "b"), *message_end()
    )
    response = response_of(stream)
    assert response.parts[1] == OpaquePart("fallback", block, provider_name="anthropic")
    assert part_contents(response)[2] == ("text", "b")


def test_deltas_of_unknown_blocks_are_joined() -> None:
    stream = sse(
        start(),
        block_start(0, "poem", verse="a", signature=""),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "verse_delta", "verse": "b"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        block_stop(0),
        *message_end(),
    )
    native = {"type": "poem", "verse": "ab", "signature": "s"}
    assert response_of(stream).parts == [OpaquePart("poem", native, provider_name="anthropic")]


def test_a_compaction() -> None:
    delta = {"type": "compaction_delta", "content": "So far.", "encrypted_content": "enc"}
    stream = sse(
        start(),
        block_start(0, "compaction", content=None),
        {"type": "content_block_delta", "index": 0, "delta": delta},
        block_stop(0),
        *message_end("compaction"),
    )
    assert response_of(stream).parts == [
        CompactionPart(
            "So far.", signature="enc", provider_name="anthropic", provider_details={"encrypted_content": "enc"}
        )
    ]  # fmt: skip


def test_citations() -> None:
    web = {"type": "web_search_result_location", "url": "https://x", "title": "X", "cited_text": "c",
           "encrypted_index": "opaque"}  # fmt: skip
    page = {"type": "page_location", "document_index": 0, "document_title": "D", "cited_text": "c",
            "start_page_number": 1}  # fmt: skip
    stream = sse(
        start(),
        block_start(0, "text", text="", citations=[]),
        block_delta(0, "citations", citation=web),
        block_delta(0, "text", text="so"),
        block_delta(0, "citations", citation=page),
        block_stop(0),
        *message_end(),
    )
    (part,) = response_of(stream).parts
    assert isinstance(part, TextPart)
    assert part.annotations == [
        {"type": "url_citation", "url": "https://x", "title": "X", "cited_text": "c", "start_index": 0, "end_index": 2},
        {"type": "file_citation", "filename": "D", "index": 0, "cited_text": "c", "start_index": 0, "end_index": 2},
    ]
    assert part.provider_details == {"citations": [web, page]}
    assert response_of(body({"type": "text", "text": "so", "citations": [web, page]})).parts == [part]


# --- usage -------------------------------------------------------------------------------------------------------


def test_counts_are_cumulative_and_input_includes_the_cache() -> None:
    stream = sse(
        start(cache_creation_input_tokens=5, cache_read_input_tokens=7),
        *text(0, "a"),
        *message_end(
            output_tokens=30, output_tokens_details={"thinking_tokens": 12}, server_tool_use={"web_search_requests": 2}
        ),
    )
    usage = response_of(stream).usage
    assert (usage.input_tokens, usage.output_tokens, usage.output_reasoning_tokens) == (22, 30, 12)
    assert (usage.cache_write_tokens, usage.cache_read_tokens) == (5, 7)
    assert usage.details["input_tokens"] == 10, "details have the provider's names and numbers"
    assert usage.details["web_search_requests"] == 2


def test_usage_that_is_not_reported_is_none() -> None:
    usage = response_of(body({"type": "text", "text": "a"}, usage={"output_tokens": 3})).usage
    assert (usage.input_tokens, usage.output_tokens) == (None, 3)
    assert usage.output_reasoning_tokens is None
    assert usage.cache_read_tokens is None


def test_only_a_field_of_the_wrong_type_is_ignored() -> None:
    stream = sse(
        start(),
        {"type": "content_block_start", "index": "0", "content_block": {"type": "thinking", "thinking": None}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "a", "text": 5}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": ["s"]}},
        {"type": "content_block_stop", "index": 0},
        *text(1, "so"),
        *message_end(output_tokens="many"),
    )
    response = response_of(stream)
    assert part_contents(response) == [("thinking", "a"), ("text", "so")]
    assert response.usage.output_tokens is None


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    data = sse(start(), *text(0, "X"), *message_end()).replace(b'"X"', b'"\\ud83d"')
    assert part_contents(response_of(data)) == [("text", "\ufffd")]


# --- arbitrary input ---------------------------------------------------------------------------------------------

FRAMES = [
    PING, start(), start("msg_2"), OVERLOADED, *thinking(0, "a"), *thinking(1, "b"), *text(0, "c"), *text(2, "d"),
    *tool(1, "t", '{"a":', "1}"), *tool(2, "u", "{]"), *tool(0, "s", "{}", name="web_search", type="server_tool_use"),
    block_start(1, "web_search_tool_result", tool_use_id="s", content=[]),
    block_start(2, "redacted_thinking", data="x"),
    block_start(0, "compaction", content=None), block_start(3, "mystery", a="b"), block_start(3, "tool_use"),
    block_delta(3, "mystery", a="c"), block_delta(0, "citations", citation={"type": "x", "url": "u"}),
    {"type": "content_block_start"}, {"type": "content_block_delta"}, {"type": "content_block_stop"},
    {"type": "message_start"}, {"type": "message_delta"}, {"index": 0}, {"type": "message", "content": "hi"},
    *message_end(), *message_end("refusal"), *message_end("max_tokens"), *message_end("tool_use"),
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAMES), max_size=14), st.sampled_from(["eof", "error", "cancelled"]))
def test_any_events_in_any_order_give_a_legal_turn(frames: list[Any], cause: Any) -> None:
    folded(sse(*frames), cause=cause)


@given(st.data())
@many
def test_garbled_streams_give_a_legal_turn_and_do_not_depend_on_cuts(data: st.DataObject) -> None:
    frames = data.draw(st.lists(st.sampled_from(FRAMES), min_size=1, max_size=8))
    stream = bytearray(sse(start(), *frames))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        stream = stream or bytearray(b"x")
    whole = bytes(stream)
    folded(whole)
    places = data.draw(st.lists(st.integers(0, len(whole)), max_size=5))
    assert merged(events_of(cut(whole, places))) == merged(events_of(whole))


@given(st.binary(max_size=200))
def test_any_bytes_give_a_legal_turn(data: bytes) -> None:
    folded(data)
    folded(b"data: " + data + b"\n\n")
    folded(b'{"type":"message","content":[' + data)
