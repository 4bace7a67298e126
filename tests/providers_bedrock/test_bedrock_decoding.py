"""Converse: decoding of valid, unusual and broken answers."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.errors import ErrorInfo
from pellucid.events import ErrorEvent, ItemStartEvent, PartDeltaEvent
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    OpaquePart,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    Usage,
)
from pellucid.providers.bedrock.encode import encode
from pellucid.providers.wires import WIRES
from pellucid.settings import ModelCall
from tests.event_stream_messages import eventstream_message
from tests.examples import many
from tests.providers_bedrock.bedrock_kit import (
    CLAUDE,
    NOVA,
    ROW,
    b64,
    begin,
    body,
    completeness,
    cut,
    delta,
    event,
    events_of,
    exception,
    failed,
    folded,
    frame,
    merged,
    message_end,
    origin,
    part_contents,
    redacted,
    response_of,
    row_of,
    stop,
    stream,
    text,
    thought,
    tool,
)

PNG = b"\x89PNG\r\n\x1a\n picture"


# --- reasoning -----------------------------------------------------------------------------------------------------


def test_reasoning_text_and_call_in_order() -> None:
    data = stream(
        thought(0, "Let me ", "see.", signature="EvYB"),
        text(1, "One ", "moment."),
        tool(2, "look", '{"at":', '"it"}'),
        message_end("tool_use"),
    )
    response = response_of(data)
    assert part_contents(response) == [
        ("thinking", "Let me see."),
        ("text", "One moment."),
        ("tool-call", '{"at":"it"}'),
    ]
    first, _, call = response.parts
    assert isinstance(first, ThinkingPart)
    assert (first.signature, first.provider_name, first.complete) == ("EvYB", "bedrock", True)
    assert isinstance(call, ToolCallPart)
    assert (call.tool_name, call.tool_call_id) == ("look", "tooluse_1")
    assert (response.finish_reason, response.native_finish_reason) == ("tool_call", "tool_use")


def test_deltas_of_text_and_reasoning_are_emitted_with_their_read() -> None:
    """They have no contentBlockStart: the first delta opens the block."""
    reader = WIRES["bedrock"].decoder(row_of(), origin())
    reader.feed(stream())
    events = reader.feed(frame("contentBlockDelta", delta(0, reasoningContent={"text": "Let"})[1]))
    assert isinstance(events[0], ItemStartEvent)
    assert isinstance(events[-1], PartDeltaEvent)
    assert isinstance(events[-1].delta, ThinkingPartDelta)
    assert events[-1].delta.content_delta == "Let"


def test_a_signature_without_text_is_a_thought() -> None:
    response = response_of(stream(thought(0, signature="EvYB"), text(1, "Hi."), message_end()))
    assert response.parts[0] == ThinkingPart(
        "", signature="EvYB", provider_name="bedrock", form="summary", item_id=None
    )
    assert response.parts[1] == TextPart("Hi.")


def test_an_empty_thought_is_dropped() -> None:
    assert (
        part_contents(
            response_of(stream(thought(0), [delta(0, reasoningContent={"text": ""}), stop(0)], message_end()))
        )
        == []
    )


def test_interleaved_and_resumed_reasoning_keeps_its_place() -> None:
    data = stream(
        thought(0, "a", signature="s0"),
        tool(1, "f", "{}", id="c1"),
        thought(2, "b", signature="s2"),
        text(3, "x"),
        thought(4, "c", signature="s4"),
        tool(5, "g", "{}", id="c2"),
        message_end("tool_use"),
    )
    response = response_of(data)
    assert part_contents(response) == [
        ("thinking", "a"),
        ("tool-call", "{}"),
        ("thinking", "b"),
        ("text", "x"),
        ("thinking", "c"),
        ("tool-call", "{}"),
    ]
    assert [part.signature for part in response.parts if isinstance(part, ThinkingPart)] == ["s0", "s2", "s4"]


def test_overlapping_blocks_are_put_in_order() -> None:
    data = stream(
        delta(0, reasoningContent={"text": "a"}),
        delta(1, text="x"),
        delta(0, reasoningContent={"text": "b"}),
        delta(0, reasoningContent={"signature": "s"}),
        stop(0),
        delta(1, text="y"),
        stop(1),
        message_end(),
    )
    response = response_of(data)
    assert part_contents(response) == [("thinking", "ab"), ("text", "xy")]


def test_another_kind_under_the_same_index_is_another_block() -> None:
    """Some models use index 0 for every block and send one stop."""
    data = stream(
        delta(0, reasoningContent={"text": "a"}), delta(0, text="x"), delta(0, reasoningContent={"text": "b"}),
        delta(0, text="y"), stop(0), message_end(),
    )  # fmt: skip
    assert part_contents(response_of(data)) == [("thinking", "a"), ("text", "x"), ("thinking", "b"), ("text", "y")]


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("streamed", [True, False])
def test_both_shapes_of_reasoning_are_read_in_both_places(flat: bool, streamed: bool) -> None:
    inner: dict[str, Any] = {"text": "a", "signature": "s"}
    block = {"reasoningContent": inner if flat else {"reasoningText": inner}}
    response = response_of(stream(delta(0, **block), stop(0), message_end()) if streamed else body(block))
    (part,) = response.parts
    assert isinstance(part, ThinkingPart)
    assert (part.content, part.signature) == ("a", "s")


def test_a_profile_may_declare_reasoning_a_summary() -> None:
    data = stream(thought(0, "a", signature="s"), message_end())
    older, newer = "us.anthropic.claude-3-7-sonnet-20250219-v1:0", "anthropic.claude-opus-4-7"
    for model, form in ((older, "raw"), (newer, "summary")):
        (part,) = response_of(data, model).parts
        assert isinstance(part, ThinkingPart)
        assert part.form == form


# --- redacted reasoning --------------------------------------------------------------------------------------------


def blob_of(data: bytes) -> ThinkingPart:
    (part,) = response_of(data).parts
    assert isinstance(part, ThinkingPart)
    assert (part.content, part.form, part.id, part.complete) == ("", "redacted", "redacted_content", True)
    return part


def test_a_redacted_block_is_its_text() -> None:
    part = blob_of(stream(redacted(0, b"EtkECkgIBxAB"), message_end()))
    assert (part.signature, part.provider_details) == ("EtkECkgIBxAB", None)


def test_pieces_of_a_blob_are_joined_as_bytes_not_as_base64() -> None:
    """Each piece has its own padding, and may end within a character."""
    whole = "Etké==".encode()
    assert (
        blob_of(stream(redacted(0, *(whole[at : at + 1] for at in range(len(whole)))), message_end())).signature
        == "Etké=="
    )


def test_a_blob_that_is_not_utf_8_stays_base64() -> None:
    part = blob_of(stream(redacted(0, b"\xff\x00", b"\xfe"), message_end()))
    assert (part.signature, part.provider_details) == (b64(b"\xff\x00\xfe"), {"redacted_content": "base64"})


def test_a_blob_that_is_not_base64_is_unchanged() -> None:
    part = blob_of(stream(delta(0, reasoningContent={"redactedContent": "not base64!"}), stop(0), message_end()))
    assert (part.signature, part.provider_details) == ("not base64!", {"redacted_content": "base64"})


def test_a_redacted_block_of_a_body() -> None:
    assert blob_of(body({"reasoningContent": {"redactedContent": b64(b"Etk")}})).signature == "Etk"


def test_a_redacted_block_keeps_its_position() -> None:
    """Also if its stop comes late."""
    data = stream(
        delta(0, reasoningContent={"redactedContent": b64(b"one")}), delta(1, text="x"), stop(0), stop(1), message_end()
    )
    assert [part.part_kind for part in response_of(data).parts] == ["thinking", "text"]


def test_text_and_blob_under_one_index_are_two_thoughts() -> None:
    data = stream(
        delta(0, reasoningContent={"text": "a"}), delta(0, reasoningContent={"redactedContent": b64(b"b")}),
        delta(0, reasoningContent={"text": "c"}), stop(0), message_end(),
    )  # fmt: skip
    response = response_of(data)
    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart)]
    assert [(part.content, part.signature) for part in thoughts] == [("a", None), ("", "b"), ("c", None)]
    assert thoughts == response.parts


# --- tagged thinking -----------------------------------------------------------------------------------------------


def test_tagged_thinking_of_nova_is_reasoning() -> None:
    data = stream(
        text(0, "<thin", "king> I need ", "it.</", "thinking>\n"), tool(1, "f", "{}"), message_end("tool_use")
    )
    response = response_of(data, NOVA)
    assert part_contents(response) == [("thinking", "I need it."), ("tool-call", "{}")]
    assert isinstance(response.parts[0], ThinkingPart)
    assert response.parts[0].provider_details == {"open": "<thinking> ", "close": "</thinking>\n"}


def test_each_text_block_may_begin_with_tagged_thinking() -> None:
    data = stream(text(0, "<thinking>a</thinking> b"), text(1, "<thinking>c</thinking> d"), message_end())
    assert part_contents(response_of(data, NOVA)) == [
        ("thinking", "a"),
        ("text", " b"),
        ("thinking", "c"),
        ("text", " d"),
    ]


def test_an_incomplete_marker_is_text() -> None:
    response = response_of(stream(text(0, "<thi"), text(1, "<b>"), message_end()), NOVA)
    assert part_contents(response) == [("text", "<thi"), ("text", "<b>")]


def test_tags_in_claudes_text_are_text() -> None:
    tagged = "<thinking>a</thinking>b"
    assert part_contents(response_of(stream(text(0, tagged), message_end()))) == [("text", tagged)]


def test_tagged_thinking_that_is_cut_off_is_incomplete() -> None:
    response = response_of(stream(text(0, "<thinking>I ne"), message_end("max_tokens")), NOVA)
    (part,) = response.parts
    assert isinstance(part, ThinkingPart)
    assert (part.content, part.complete, part.provider_details) == ("I ne", False, {"open": "<thinking>"})


def test_a_tag_family_that_this_wire_does_not_support_is_ignored() -> None:
    row = replace(ROW, tags="harmony")
    assert part_contents(response_of(stream(text(0, "a"), message_end()), row=row)) == [("text", "a")]


# --- calls ---------------------------------------------------------------------------------------------------------


def test_a_call_without_arguments() -> None:
    (call,) = response_of(stream(tool(0, "f"), message_end("tool_use"))).parts
    assert isinstance(call, ToolCallPart)
    assert (call.args, call.complete) == ("{}", True)


def test_calls_side_by_side_keep_their_arguments_apart() -> None:
    data = stream(
        begin(0, toolUse={"toolUseId": "a", "name": "f"}),
        begin(1, toolUse={"toolUseId": "b", "name": "g"}),
        delta(1, toolUse={"input": '{"y"'}),
        delta(0, toolUse={"input": '{"x"'}),
        delta(1, toolUse={"input": ":2}"}),
        delta(0, toolUse={"input": ":1}"}),
        stop(1),
        stop(0),
        message_end("tool_use"),
    )
    calls = response_of(data).tool_calls
    assert [(call.tool_call_id, call.args) for call in calls] == [("a", '{"x":1}'), ("b", '{"y":2}')]


def test_arguments_of_a_call_that_never_began_are_kept() -> None:
    data = stream(delta(0, toolUse={"input": '{"a":'}), delta(0, toolUse={"input": "1}"}), stop(0), message_end())
    (call,) = response_of(data).tool_calls
    assert (call.tool_name, call.args) == ("", '{"a":1}')


def test_arguments_as_an_object() -> None:
    head, args = {"toolUseId": "t", "name": "f"}, {"input": {"a": 1}}
    (call,) = response_of(body({"toolUse": {**head, **args}}, reason="tool_use")).tool_calls
    assert call.args == {"a": 1}
    (call,) = response_of(stream(begin(0, toolUse=head), delta(0, toolUse=args), stop(0), message_end())).tool_calls
    assert call.args == '{"a":1}'


CALLED = BuiltinToolCallPart("web_search", '{"q":1}', "s1", provider_name="bedrock")
RETURNED = BuiltinToolReturnPart(
    "web_search", "found", "s1", provider_name="bedrock", provider_details={"status": "success", "type": "search"}
)


def test_the_providers_own_tools() -> None:
    data = stream(
        tool(0, "web_search", '{"q"', ":1}", id="s1", type="server_tool_use"),
        begin(1, toolResult={"toolUseId": "s1", "status": "success", "type": "search"}),
        delta(1, toolResult=[{"text": "fou"}]),
        delta(1, toolResult=[{"text": "nd"}]),
        stop(1),
        text(2, "There."),
        message_end(),
    )
    assert response_of(data).parts == [CALLED, RETURNED, TextPart("There.")]


def test_the_providers_own_tools_in_a_body() -> None:
    data = body(
        {"toolUse": {"toolUseId": "s1", "name": "web_search", "input": {"q": 1}, "type": "server_tool_use"}},
        {"toolResult": {"toolUseId": "s1", "content": [{"json": {"n": 1}}], "status": "success"}},
    )
    called, returned = response_of(data).parts
    assert called == replace(CALLED, args={"q": 1})
    assert returned == replace(RETURNED, content=[{"json": {"n": 1}}], provider_details={"status": "success"})


# --- other blocks --------------------------------------------------------------------------------------------------

WEB = {"title": "T", "location": {"web": {"url": "https://x.example/", "domain": "x.example"}}}
PAGE = {"title": "D", "location": {"documentPage": {"documentIndex": 0, "start": 1, "end": 2}}}


@pytest.mark.parametrize("streamed", [True, False])
def test_citations(streamed: bool) -> None:
    data = (
        stream(
            [delta(0, text="It is "), delta(0, text="so."), delta(0, citation=WEB), delta(0, citation=PAGE), stop(0)],
            message_end(),
        )
        if streamed
        else body({"citationsContent": {"content": [{"text": "It is so."}], "citations": [WEB, PAGE]}})
    )
    (part,) = response_of(data).parts
    assert isinstance(part, TextPart)
    assert part.content == "It is so."
    assert part.annotations == [
        {"type": "url_citation", "start_index": 0, "end_index": 9, "title": "T", "url": "https://x.example/"}
    ]
    assert part.provider_details == {"citations": [WEB, PAGE]}, "unchanged, to be replayed"


def test_a_citation_is_on_the_answer_and_not_on_tagged_thinking() -> None:
    data = stream(delta(0, text="<thinking>hm</thinking>So."), delta(0, citation=WEB), stop(0), message_end())
    answer = response_of(data, NOVA).parts[1]
    assert isinstance(answer, TextPart)
    (note,) = answer.annotations or []
    assert (note["start_index"], note["end_index"]) == (0, 3)


@pytest.mark.parametrize("streamed", [True, False])
def test_an_image(streamed: bool) -> None:
    data = (
        stream(
            begin(0, image={"format": "png"}),
            delta(0, image={"source": {"bytes": b64(PNG[:4])}}),
            delta(0, image={"source": {"bytes": b64(PNG[4:])}}),
            stop(0),
            message_end(),
        )
        if streamed
        else body({"image": {"format": "png", "source": {"bytes": b64(PNG)}}})
    )
    assert response_of(data).parts == [FilePart(b64(PNG), "image/png", provider_name="bedrock")]


def test_an_image_by_reference_is_an_opaque_part() -> None:
    block = {"image": {"format": "png", "source": {"s3Location": {"uri": "s3://b/k"}}}}
    assert response_of(body(block)).parts == [OpaquePart("image", block, provider_name="bedrock")]


def test_unknown_blocks_are_opaque_parts() -> None:
    block = {"hologram": {"depth": 3}}
    assert response_of(body({"text": "a"}, block)).parts[1] == OpaquePart("hologram", block, provider_name="bedrock")
    streamed = stream(
        begin(0, hologram={"depth": 3}), delta(0, hologram={"x": 1}), stop(0), text(1, "a"), message_end()
    )
    opaque, answer = response_of(streamed).parts
    assert isinstance(opaque, OpaquePart)
    assert opaque.type == "hologram"
    assert opaque.native == {
        "contentBlockStart": {"hologram": {"depth": 3}},
        "contentBlockDelta": [{"hologram": {"x": 1}}],
    }
    assert answer == TextPart("a")
    (only,) = response_of(stream(delta(0, hologram={"x": 1}), stop(0), message_end())).parts
    assert isinstance(only, OpaquePart)


def test_text_in_content_block_start_is_decoded() -> None:
    assert part_contents(response_of(stream(begin(0, text="a"), delta(0, text="b"), stop(0), message_end()))) == [
        ("text", "ab")
    ]
    assert part_contents(response_of(stream(begin(0), delta(0, text="b"), stop(0), message_end()))) == [("text", "b")]


def test_unknown_events_are_ignored() -> None:
    assert part_contents(response_of(stream(event("progress", percent=3), text(0, "a"), message_end()))) == [
        ("text", "a")
    ]


def test_metadata_of_the_answer_is_in_provider_details() -> None:
    trace = {"guardrail": {"actionReason": "no"}, "promptRouter": {"invokedModelId": "anthropic.claude-x"}}
    stops = [
        event("messageStop", stopReason="end_turn", additionalModelResponseFields={"stop_sequence": "."}),
        event("metadata", usage={"inputTokens": 1}, trace=trace),
    ]
    response = response_of(stream(text(0, "a"), stops))
    assert response.provider_details == {"additionalModelResponseFields": {"stop_sequence": "."}, "trace": trace}
    assert response.model_name == "anthropic.claude-x"
    whole = body({"text": "a"}, trace=trace, additionalModelResponseFields={"stop_sequence": "."})
    assert response_of(whole).provider_details == response.provider_details


# --- usage and stop reasons ----------------------------------------------------------------------------------------


def test_usage_has_no_reasoning_count_and_counts_the_cache_as_input() -> None:
    counts = {
        "inputTokens": 10,
        "outputTokens": 20,
        "totalTokens": 537,
        "cacheReadInputTokens": 500,
        "cacheReadInputTokenCount": 500,
        "cacheWriteInputTokens": 7,
        "cacheDetails": [{"ttl": "1h", "inputTokens": 7}],
        "serverToolUsage": {},
        "imageTokens": 3,
    }
    for data in (stream(message_end(usage=counts)), body(usage=counts)):
        assert response_of(data).usage == Usage(517, 20, None, 500, 7, details={"imageTokens": 3, "cacheDetails.1h": 7})


def test_usage_that_is_not_reported_is_none() -> None:
    assert response_of(stream(text(0, "a"), event("messageStop", stopReason="end_turn"))).usage == Usage()
    assert response_of(stream(message_end(usage={"outputTokens": "many"}))).usage == Usage()


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_call"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content_filter"),
        ("content_filtered", "content_filter"),
        ("something_new", None),
    ],
)
def test_stop_reasons(native: str, reason: str | None) -> None:
    for data in (stream(text(0, "a"), message_end(native)), body({"text": "a"}, reason=native)):
        response = response_of(data)
        assert (response.finish_reason, response.native_finish_reason) == (reason, native)


@pytest.mark.parametrize("native", ["malformed_model_output", "malformed_tool_use"])
def test_malformed_model_output_is_an_error(native: str) -> None:
    for data in (stream(text(0, "a"), message_end(native)), body({"text": "a"}, reason=native)):
        error, response = failed(data)
        assert (error.kind, error.code) == ("model_error", native)
        assert part_contents(response) == [("text", "a")], "earlier parts are kept"


def test_a_token_limit_during_reasoning_makes_it_incomplete() -> None:
    """The block ends without its signature: it is kept and incomplete."""
    response = response_of(stream(thought(0, "Let me"), message_end("max_tokens")))
    (part,) = response.parts
    assert isinstance(part, ThinkingPart)
    assert (part.content, part.signature, part.complete) == ("Let me", None, False)
    assert response.finish_reason == "length"


def test_a_token_limit_during_the_answer_leaves_the_thought_complete() -> None:
    response = response_of(stream(thought(0, "a", signature="s"), text(1, "b"), message_end("max_tokens")))
    assert completeness(response) == [True, False]


def test_a_stream_is_done_after_its_usage() -> None:
    reader = WIRES["bedrock"].decoder(row_of(), origin())
    last, usage = (frame(*message) for message in message_end())
    done = [reader.done]
    for data in (stream(text(0, "a")) + last, usage):
        reader.feed(data)
        done.append(reader.done)
    assert done == [False, False, True]
    assert not WIRES["bedrock"].decoder(row_of(), origin()).done


# --- failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("throttlingException", "too_many_requests"),
        ("ThrottlingException", "too_many_requests"),
        ("serviceQuotaExceededException", "too_many_requests"),
        ("validationException", "invalid_request"),
        ("serviceUnavailableException", "unavailable"),
        ("internalServerException", "model_error"),
        ("modelStreamErrorException", "model_error"),
        ("modelTimeoutException", "timeout"),
        ("accessDeniedException", "model_error"),
        ("somethingNewException", "model_error"),
    ],
)
def test_exceptions_in_the_stream(name: str, kind: str) -> None:
    error, response = failed(
        stream(thought(0, "a", signature="s"), delta(1, text="b"), exception(name, {"message": "no"}))
    )
    assert (error.kind, error.code, error.upstream_message) == (kind, name, "no")
    assert part_contents(response) == [("thinking", "a"), ("text", "b")]
    assert completeness(response) == [True, False]


def test_a_model_error_has_its_original_status_and_message() -> None:
    value = {"message": "The model failed.", "originalStatusCode": 429, "originalMessage": "Slow down."}
    error, _ = failed(stream(exception("modelStreamErrorException", value)))
    assert (error.kind, error.status, error.upstream_message) == (
        "too_many_requests",
        429,
        "The model failed.: Slow down.",
    )


def test_an_exception_sent_as_an_event_is_an_error() -> None:
    error, _ = failed(stream(event("throttlingException", message="no")))
    assert (error.kind, error.upstream_message) == ("too_many_requests", "no")


def test_an_exception_without_a_message() -> None:
    error, _ = failed(stream(exception("internalServerException")))
    assert error.full_message == "the provider reported an error: internalServerException"


def test_an_error_in_the_headers() -> None:
    headers = {":message-type": "error", ":error-code": "InternalServerException", ":error-message": "Broken."}
    error, response = failed(stream(text(0, "a"), eventstream_message(b"", headers)))
    assert (error.kind, error.code, error.upstream_message) == ("model_error", "InternalServerException", "Broken.")
    assert part_contents(response) == [("text", "a")]


def test_frames_after_an_exception_are_ignored() -> None:
    error, response = failed(
        stream(
            text(0, "a"),
            exception("throttlingException", {"message": "no"}),
            text(1, "b"),
            exception("x"),
            message_end(),
        )
    )
    assert (error.upstream_message, part_contents(response)) == ("no", [("text", "a")])


def test_a_stream_truncated_between_messages_is_an_error() -> None:
    error, response = failed(stream(thought(0, "a", signature="s"), delta(1, text="b")))
    assert error.code == "stream_truncated"
    assert part_contents(response) == [("thinking", "a"), ("text", "b")]
    assert completeness(response) == [True, False]


def test_a_stream_truncated_within_a_message_is_an_error() -> None:
    data = stream(text(0, "a"), message_end())
    error, response = failed(data[: len(stream(text(0, "a"))) + 20])
    assert error.code == "stream_truncated"
    assert part_contents(response) == [("text", "a")]
    assert failed(data[:5])[0].code == "stream_truncated"


def test_a_stream_truncated_after_message_stop_is_complete() -> None:
    data = stream(text(0, "a"), message_end())
    response = response_of(data[:-1])
    assert (part_contents(response), response.usage) == ([("text", "a")], Usage())


def test_a_redacted_block_that_is_cut_off_is_incomplete() -> None:
    _, response = failed(stream(delta(0, reasoningContent={"redactedContent": b64(b"abc")})))
    (part,) = response.parts
    assert isinstance(part, ThinkingPart)
    assert (part.form, part.complete) == ("redacted", False)


def test_a_call_that_is_cut_off_is_incomplete() -> None:
    _, response = failed(stream(tool(0, "f", '{"a":')[:-1]))
    (call,) = response.tool_calls
    assert (call.args, call.complete) == ('{"a":', False)


@pytest.mark.parametrize("broken", [b"\x00" * 20, b"\x01garbage and more of it", stream()[:-1] + b"x"])
def test_a_corrupt_stream_is_an_error(broken: bytes) -> None:
    error, response = failed(stream(text(0, "a")) + broken)
    assert error.code == "frame_broken"
    assert part_contents(response) == [("text", "a")]


def test_a_message_that_is_not_json_is_an_error() -> None:
    error, response = failed(stream(text(0, "a"), frame("contentBlockDelta", b"<html>"), message_end()))
    assert (error.code, part_contents(response)) == ("not_converse", [("text", "a")])
    assert error.full_message == "the provider did not answer in Bedrock's Converse format: '<html>'"


@pytest.mark.parametrize(
    ("data", "code", "message"),
    [
        (b"", "empty_stream", "ended without a single word of Converse"),
        (b"<html>Bad Gateway", "not_converse", "did not answer in Bedrock's Converse format: '<html>Bad Gateway'"),
        (
            b"upstream connect error",
            "not_converse",
            "did not answer in Bedrock's Converse format: 'upstream connect error'",
        ),
        (b'{"choices": []}', "not_converse", "did not answer in Bedrock's Converse format"),
        (b"[1]", "not_converse", "did not answer in Bedrock's Converse format"),
        (b'{"message": "Too many tokens"}', None, "Too many tokens"),
        (b'{"Message": "Who are you?"}', None, "Who are you?"),
        (
            b'{"Output":{"__type":"com.amazon.coral.service#UnknownOperationException"},"Version":"1.0"}',
            "UnknownOperationException",
            "the provider reported an error: UnknownOperationException",
        ),
    ],
)
def test_data_of_another_format_is_an_error(data: bytes, code: str | None, message: str) -> None:
    error, response = failed(data)
    assert error.code == code
    assert message in error.full_message
    assert response.parts == []


def test_a_body_is_limited() -> None:
    reader = WIRES["bedrock"].decoder(row_of(), origin())
    events = reader.feed(b"{" + b" " * (24 * 1024 * 1024))
    assert isinstance(events[-1], ErrorEvent)
    assert events[-1].error.code == "frame_too_large"


def test_a_cancelled_turn_is_closed_and_incomplete() -> None:
    result = folded(stream(thought(0, "a", signature="s"), delta(1, text="b")), cause="cancelled")
    assert result.error is None
    assert result.response is not None
    assert completeness(result.response) == [True, False]


def test_a_transport_error_is_the_error_of_the_turn() -> None:
    error, _ = failed(stream(delta(0, text="a")), cause="error", error=ErrorInfo("unavailable", "gone"))
    assert error.message == "gone"


@pytest.mark.parametrize(
    "piece",
    [
        {"contentBlockIndex": "0", "delta": {"text": "x"}},
        {"contentBlockIndex": None, "delta": {"text": "x"}},
        {"delta": {"text": "x"}},
        {"contentBlockIndex": 0, "delta": {"text": "x", "reasoningContent": None, "toolUse": 3}},
        {"contentBlockIndex": 0, "delta": {"text": "x", "citation": None}},
    ],
)
def test_pieces_of_odd_types_are_read_as_far_as_they_fit(piece: dict[str, Any]) -> None:
    parts = part_contents(response_of(stream(("contentBlockDelta", piece), stop(0), message_end())))
    assert ("text", "x") in parts


def test_a_lone_surrogate_does_not_lose_the_text() -> None:
    data = stream(
        frame("contentBlockDelta", b'{"contentBlockIndex":0,"delta":{"text":"a\\ud83d"}}'), stop(0), message_end()
    )
    assert part_contents(response_of(data)) == [("text", "a\ufffd")]


# --- arbitrary input -----------------------------------------------------------------------------------------------

everything = stream(
    thought(0, "a", "b", signature="s"),
    redacted(1, b"x", b"yz"),
    text(2, "<thinking>c</thinking>d", "e"),
    tool(3, "f", '{"a"', ":1}"),
    tool(4, "w", "{}", id="s1", type="server_tool_use"),
    [begin(5, toolResult={"toolUseId": "s1"}), delta(5, toolResult=[{"json": {}}]), stop(5)],
    [begin(6, image={"format": "png"}), delta(6, image={"source": {"bytes": b64(PNG)}}), stop(6)],
    [delta(7, hologram=1), stop(7)],
    [delta(8, text="cited"), delta(8, citation=WEB), stop(8)],
    message_end(),
)
whole_body = body(
    {"reasoningContent": {"reasoningText": {"text": "a", "signature": "s"}}},
    {"reasoningContent": {"redactedContent": b64(b"x")}},
    {"text": "<thinking>c</thinking>d"},
    {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}},
    {"hologram": 1},
)
models = st.sampled_from([CLAUDE, NOVA, "meta.llama3"])
answers = st.sampled_from([everything, whole_body])


@given(answers, st.lists(st.integers(0, 4000), max_size=12), models)
def test_any_cut_gives_the_same(data: bytes, places: list[int], model: str) -> None:
    assert merged(events_of(cut(data, places), model)) == merged(events_of(data, model))


@given(answers, st.integers(0, 10**6), st.sampled_from(["cut", "flip", "drop", "insert"]), models)
@many
def test_any_damage_gives_a_legal_turn(data: bytes, at: int, how: str, model: str) -> None:
    damaged = bytearray(data)
    at %= len(damaged)
    match how:
        case "cut":
            del damaged[at:]
        case "flip":
            damaged[at] ^= 1 << at % 8
        case "drop":
            del damaged[at]
        case "insert":
            damaged.insert(at, 0x7B)
    result = folded(bytes(damaged), model)
    if bytes(damaged) != data and data is everything and at < len(data) - 400:
        assert result.error is not None, "damage is an error"


names = st.sampled_from(
    ["text", "reasoningContent", "toolUse", "toolResult", "citation", "image", "hologram", "reasoningText", "signature",
     "redactedContent", "input", "name", "toolUseId", "type", "source", "bytes", "contentBlockIndex", "delta", "start",
     "stopReason", "usage", "inputTokens", "trace", "content", "message", "output"]
)  # fmt: skip
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 3), st.floats(allow_nan=False), st.text(max_size=6),
    st.sampled_from(["server_tool_use", "<thinking>", "</thinking>", "QUJD", "{}", "end_turn", "max_tokens"]),
)  # fmt: skip
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
events = st.sampled_from(
    ["contentBlockDelta", "contentBlockDelta", "contentBlockStart", "contentBlockStop", "messageStop", "metadata"]
)
messages = st.tuples(
    events,
    st.fixed_dictionaries(
        {},
        optional={
            "contentBlockIndex": st.one_of(st.integers(0, 2), values),
            "delta": st.one_of(st.dictionaries(names, values, max_size=3), values),
            "start": st.one_of(st.dictionaries(names, values, max_size=3), values),
            "stopReason": values,
            "usage": values,
        },
    ),
)


@given(st.lists(messages, max_size=14), models, st.lists(st.integers(0, 3000), max_size=6))
def test_any_messages_give_a_legal_turn(sent: list[Any], model: str, places: list[int]) -> None:
    data = stream(*sent)
    folded(data, model)
    assert merged(events_of(cut(data, places), model)) == merged(events_of(data, model))


@given(st.dictionaries(names, values, max_size=5), values, models)
def test_any_body_gives_a_legal_turn(block: dict[str, Any], value: Any, model: str) -> None:
    folded(body(block, value), model)
    folded(json.dumps({"output": {"message": {"content": value}}, "stopReason": value, "usage": value}).encode(), model)
    folded(json.dumps(value).encode(), model)


@given(st.binary(max_size=200), models)
def test_any_bytes_give_a_legal_turn(data: bytes, model: str) -> None:
    folded(data, model)
    folded(b"\x00" + data, model)


def pieces_of(kind: str, index: int) -> list[Any]:
    match kind:
        case "thought":
            return thought(index, *"ab", signature=f"s{index}")
        case "redacted":
            return redacted(index, b"x", b"y")
        case "text":
            return text(index, *"cd")
        case _:
            return tool(index, "f", '{"a"', ":1}", id=f"t{index}")


@given(st.randoms(use_true_random=False))
@many
def test_blocks_in_any_interleaving_are_whole(dice: random.Random) -> None:
    """In any order of the deltas of several blocks, each block is one part with all of its deltas."""
    kinds = dice.choices(["thought", "redacted", "text", "call"], k=4)
    queues = [pieces_of(kind, index) for index, kind in enumerate(kinds)]
    mixed = []
    while any(queues):
        mixed.append(dice.choice([queue for queue in queues if queue]).pop(0))
    response = response_of(stream(mixed, message_end()))
    got = sorted(
        (part.part_kind, getattr(part, "signature", None) or "", getattr(part, "content", ""))
        for part in response.parts
    )
    wanted = {
        "thought": ("thinking", "s{}", "ab"),
        "redacted": ("thinking", "xy", ""),
        "text": ("text", "", "cd"),
        "call": ("tool-call", "", ""),
    }
    parts = enumerate(wanted[kind] for kind in kinds)
    assert got == sorted((name, signature.format(index), content) for index, (name, signature, content) in parts)


# --- a tag that is not closed ----------------------------------------------------------------------------------------

KIMI = "moonshot.kimi-k2-thinking"
UNCLOSED = (" <think> The temp", "erature in London is 30 °C.")


def kimi_parts(data: bytes) -> list[tuple[str, str, bool]]:
    return [
        (part.part_kind, part.content, part.complete)
        for part in response_of(data, KIMI).parts
        if isinstance(part, ThinkingPart | TextPart)
    ]


def test_a_turn_that_ends_after_an_unclosed_tag_has_an_answer() -> None:
    answer = "The temperature in London is 30 °C."
    assert kimi_parts(body({"text": "".join(UNCLOSED)})) == [("text", answer, True)]
    # A stream has shown it as reasoning already; the answer is what goes back to the model.
    streamed = stream(text(0, *UNCLOSED), message_end())
    assert kimi_parts(streamed) == [("thinking", answer, False), ("text", answer, True)]
    response = response_of(streamed, KIMI)
    call = ModelCall(KIMI, [replace(response, origin=origin(KIMI))])
    (message,) = encode(call, row_of(KIMI), origin(KIMI))["messages"]
    assert message["content"] == [{"text": answer}]


@pytest.mark.parametrize("reason", ["max_tokens", "stop_sequence"])
def test_reasoning_that_was_cut_off_is_no_answer(reason: str) -> None:
    for data in (body({"text": "".join(UNCLOSED)}, reason=reason), stream(text(0, *UNCLOSED), message_end(reason))):
        assert [part[0] for part in kimi_parts(data)] == ["thinking"]


def test_an_unclosed_tag_before_an_answer_is_reasoning() -> None:
    whole = body({"text": "<think> why"}, {"text": "So."})
    for data in (whole, stream(text(0, "<think> why"), text(1, "So."), message_end())):
        assert [part[:2] for part in kimi_parts(data)] == [("thinking", "why"), ("text", "So.")]
    closed = stream(text(0, "<think> why </think>"), message_end())
    assert [part[:2] for part in kimi_parts(closed)] == [("thinking", "why")]
