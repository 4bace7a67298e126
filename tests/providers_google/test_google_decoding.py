"""Edge cases of Gemini's answers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.events import ItemStartEvent, PartDeltaEvent
from pellucid.parts import BuiltinToolCallPart, FilePart, OpaquePart, TextPart, ThinkingPart, ToolCallPart
from pellucid.providers.google.decode import FINISH_REASONS
from pellucid.providers.wires import WIRES
from tests.providers_google.google_kit import (
    ROWS,
    answer,
    array,
    body,
    call,
    cut,
    events_of,
    folded,
    origin,
    part_contents,
    response_of,
    sse,
    stream,
    text,
    thought,
)

# --- boundaries of parts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fragments", "parts"),
    [
        # Fragments of one kind are one part; a change of kind begins another part.
        ([text("a"), text("b")], [("text", "ab")]),
        ([thought("a"), thought("b"), text("c")], [("thinking", "ab"), ("text", "c")]),
        (
            [thought("a"), text("b"), thought("c"), text("d")],
            [("thinking", "a"), ("text", "b"), ("thinking", "c"), ("text", "d")],
        ),
        # A signature belongs to the fragments before it: at the end, without text, as in Gemini 3 …
        ([text("a"), text("b"), text("", "S")], [("text", "ab", "S")]),
        # … or with the first fragment, as in 2.5.
        ([thought("t"), text("a", "S"), text("b")], [("thinking", "t"), ("text", "ab", "S")]),
        ([text("a"), text("b", "S")], [("text", "ab", "S")]),
        # A second signature begins another part.
        ([text("a", "S"), text("b", "T")], [("text", "a", "S"), ("text", "b", "T")]),
        ([text("a", "S"), text("b"), text("", "T")], [("text", "ab", "S"), ("text", "", "T")]),
        # Fragments after another kind are a new part, signed or not.
        (
            [text("a", "S"), thought("t"), text("b"), text("", "T")],
            [("text", "a", "S"), ("thinking", "t"), ("text", "b", "T")],
        ),
        # A signed thought; a thought with only a signature.
        ([thought("a"), thought("", "S"), text("b")], [("thinking", "a", "S"), ("text", "b")]),
        ([thought("", "S"), text("b")], [("thinking", "", "S"), ("text", "b")]),
        # A signature of a text is never moved to a call, or the other way round.
        ([call("f", "S"), text("", "T")], [("tool-call", {}, "S"), ("text", "", "T")]),
        ([text("a"), call("f", "S", x=1)], [("text", "a"), ("tool-call", {"x": 1}, "S")]),
        # Empty text is no part and no boundary.
        ([text("a"), text(""), thought(""), text("b")], [("text", "ab")]),
        ([call("f", "S"), call("f"), call("g")], [("tool-call", {}, "S"), ("tool-call", {}), ("tool-call", {})]),
    ],
)  # fmt: skip
def test_the_parts_of_a_stream(fragments: list[dict[str, Any]], parts: list[tuple[Any, ...]]) -> None:
    assert part_contents(response_of(stream(*fragments))) == parts
    # The number of chunks makes no difference.
    assert part_contents(response_of(sse(answer(*fragments, finish="STOP")))) == parts


def test_the_parts_of_a_body_are_not_merged() -> None:
    response = response_of(body(text("a"), text("b"), text("c", "S"), text(""), thought("d"), thought("e")))
    assert part_contents(response) == [
        ("text", "a"), ("text", "b"), ("text", "c", "S"), ("thinking", "d"), ("thinking", "e"),
    ]  # fmt: skip


def test_a_signed_text_is_an_item_of_its_own() -> None:
    items = [e for e in events_of(body(text("a", "S"), text("b", "T"))) if isinstance(e, ItemStartEvent)]
    assert [item.kind for item in items] == ["message", "message"]


def test_thought_and_text_of_one_chunk_are_emitted_with_their_read() -> None:
    reader = new_decoder()
    events = reader.feed(sse(answer(thought("t"), text("a"))))
    assert [event.delta.content_delta for event in events if isinstance(event, PartDeltaEvent)] == ["t", "a"]  # type: ignore[union-attr]


def new_decoder() -> Any:
    return WIRES["google"].decoder(ROWS["google"], origin())


def test_thoughts_are_summaries_except_for_open_models() -> None:
    (part,) = response_of(stream(thought("t"))).parts
    assert isinstance(part, ThinkingPart)
    assert (part.form, part.provider_name) == ("summary", "google")
    (part,) = response_of(stream(thought("t")), model="gemma-4-26b-a4b-it").parts
    assert isinstance(part, ThinkingPart)
    assert part.form == "raw"


def test_a_text_that_is_signed_late_has_its_provider_name() -> None:
    (part,) = response_of(stream(text("a"), text("", "S"))).parts
    assert isinstance(part, TextPart)
    assert (part.signature, part.provider_name) == ("S", "google")


def test_a_signature_is_unchanged() -> None:
    signature = "EpAI+/=\n \u00e9=="
    (part,) = response_of(stream(text("a", signature))).parts
    assert isinstance(part, TextPart)
    assert part.signature == signature


# --- parts that are not text -------------------------------------------------------------------------------------


def test_images_of_the_thought_and_of_the_answer() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "AA=="}}
    response = response_of(stream({**image, "thought": True}, {**image, "thoughtSignature": "S"}))
    assert response.parts == [
        FilePart("AA==", "image/png", thought=True, provider_name="google"),
        FilePart(
            "AA==", "image/png", signature="S", provider_name="google", provider_details={"thought_signature": "S"}
        ),
    ]


def test_code_and_its_result() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "S"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}
    response = response_of(stream(code, text(""), result, code, result, text("done")))
    assert part_contents(response) == [
        ("builtin-tool-call", {"language": "PYTHON", "code": "1"}, "S"),
        ("builtin-tool-return", {"outcome": "OUTCOME_OK", "output": "1"}),
        ("builtin-tool-call", {"language": "PYTHON", "code": "1"}, "S"),
        ("builtin-tool-return", {"outcome": "OUTCOME_OK", "output": "1"}),
        ("text", "done"),
    ]
    ids = [part.tool_call_id for part in response.parts[:4]]  # type: ignore[union-attr]
    assert ids[0] == ids[1] != ids[2] == ids[3], "a result has its call's id, also if Google sent none"


def test_builtin_tools() -> None:
    search_call = {
        "toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["x"]}, "id": "i"},
        "thoughtSignature": "S",
    }
    search_result = {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "response": {"r": 1}, "id": "i"}}
    maps_call = {"toolCall": {"toolType": "GOOGLE_MAPS", "id": "m"}}
    first, second, third, *_ = response_of(stream(search_call, search_result, maps_call)).parts
    assert isinstance(first, BuiltinToolCallPart)
    assert (first.tool_name, first.args, first.tool_call_id) == ("web_search", {"queries": ["x"]}, "i")
    assert first.provider_details == {"thought_signature": "S"}
    assert (second.tool_name, second.content, second.tool_call_id) == ("web_search", {"r": 1}, "i")  # type: ignore[union-attr]
    assert isinstance(third, BuiltinToolCallPart)
    assert (third.tool_name, third.args) == ("google_maps", None)


def test_an_unknown_part_is_an_opaque_part() -> None:
    new = {"hologram": {"depth": 3, "some_key": None}, "thoughtSignature": "S", "partMetadata": {"a": 1}}
    response = response_of(stream(text("a"), new, text("b")))
    assert response.parts[1] == OpaquePart("hologram", new, provider_name="google")
    assert part_contents(response)[2] == ("text", "b")


def test_a_part_with_only_a_signature_is_opaque() -> None:
    (_, part) = response_of(stream(text("a"), {"thoughtSignature": "S"})).parts
    assert part == OpaquePart("thought_signature", {"thoughtSignature": "S"}, provider_name="google")


def test_an_empty_part_is_dropped() -> None:
    assert response_of(stream({}, text("a"), {})).text == "a"


# --- calls -------------------------------------------------------------------------------------------------------


def test_stop_after_calls_is_finish_reason_tool_call() -> None:
    response = response_of(stream(call("f", "S", city="Paris")))
    assert (response.finish_reason, response.native_finish_reason) == ("tool_call", "STOP")
    assert response_of(body(call("f"))).finish_reason == "tool_call"
    assert response_of(stream(call("f"), finish="MAX_TOKENS")).finish_reason == "length"


def test_a_call_without_arguments_has_none() -> None:
    (part,) = response_of(stream({"functionCall": {"name": "f", "id": "i"}})).parts
    assert isinstance(part, ToolCallPart)
    assert (part.args, part.tool_call_id, part.complete) == ({}, "i", True)


def piece(path: str, *, on: bool = True, more: bool = False, **value: Any) -> dict[str, Any]:
    one = {"jsonPath": path, **value} | ({"willContinue": True} if more else {})
    return {"functionCall": {"partialArgs": [one]} | ({"willContinue": True} if on else {})}


PIECES = [
    {"functionCall": {"name": "f", "id": "i", "willContinue": True}, "thoughtSignature": "S"},
    piece("$.items[0].name", stringValue="ap", more=True),
    piece("$.items[0].name", stringValue="ple", more=True),
    piece("$.items[0].name", stringValue=""),
    piece("$.items[0].price", numberValue=0.5),
    piece("$.items[1]['odd key']", boolValue=True),
    piece("$.items[1].none", nullValue=None),
]
WHOLE = {"items": [{"name": "apple", "price": 0.5}, {"odd key": True, "none": None}]}


@pytest.mark.parametrize(
    "rest",
    [
        [{"functionCall": {}}],
        [piece("$.n", on=False, numberValue=1)],
        [],  # the end of the stream ends the call,
        [text("and")],  # so does another part,
        [call("g")],  # and another call
    ],
)
def test_partial_arguments_are_joined(rest: list[dict[str, Any]]) -> None:
    part = response_of(stream(*PIECES, *rest)).parts[0]
    assert isinstance(part, ToolCallPart)
    extra = {"n": 1} if rest and "partialArgs" in rest[0].get("functionCall", {}) else {}
    assert (part.tool_name, part.args, part.tool_call_id) == ("f", WHOLE | extra, "i")
    assert (part.signature, part.complete) == ("S", True)


def test_a_call_with_truncated_arguments_is_incomplete() -> None:
    result = folded(stream(*PIECES, finish=None))
    assert result.response is not None
    (part,) = result.response.parts
    assert isinstance(part, ToolCallPart)
    assert not part.complete
    assert json.loads(part.args + "}") == WHOLE  # type: ignore[operator]


def test_invalid_argument_paths_are_ignored() -> None:
    wild = [
        piece("$.a[999999999]", numberValue=1), piece("$.a.b", numberValue=1), piece("nonsense", numberValue=1),
        piece("$.a[0].c", numberValue=2), piece("", numberValue=3), {"functionCall": {"partialArgs": [None, 1, {}]}},
    ]  # fmt: skip
    (part, *_) = response_of(stream({"functionCall": {"name": "f", "willContinue": True}}, *wild)).parts
    assert isinstance(part, ToolCallPart)
    assert part.args == {"a": [{"c": 2}]}


# --- both cases --------------------------------------------------------------------------------------------------


def test_fields_in_snake_case_are_read() -> None:
    """Gateways and dumps of the SDK write it; arguments and results of functions keep their names."""
    chunk = {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "a", "thought_signature": "S"},
                        {"function_call": {"name": "f", "args": {"a_b": {"c_d": 1}}}, "thought_signature": "T"},
                        {"inline_data": {"mime_type": "image/png", "data": "AA=="}},
                    ]
                },
                "finish_reason": "STOP",
            }
        ],
        "usage_metadata": {"prompt_token_count": 3, "thoughts_token_count": 2},
        "model_version": "m",
        "response_id": "r",
    }  # fmt: skip
    for data in (sse(chunk), json.dumps(chunk).encode()):
        response = response_of(data)
        assert part_contents(response)[:2] == [("text", "a", "S"), ("tool-call", {"a_b": {"c_d": 1}}, "T")]
        assert isinstance(response.parts[2], FilePart)
        assert response.parts[2].media_type == "image/png"
        assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 2)
        assert (response.model_name, response.provider_response_id) == ("m", "r")
        assert response.native_finish_reason == "STOP"


def test_a_mixture_of_snake_and_camel_case_is_read() -> None:
    chunk = answer({"text": "a", "thought_signature": "S"}, finish="STOP")
    assert part_contents(response_of(sse(chunk))) == [("text", "a", "S")]


def test_arguments_in_snake_case_are_unchanged() -> None:
    response = response_of(stream(call("f", "S", first_name="x", args={"a_b": 1})))
    assert part_contents(response) == [("tool-call", {"first_name": "x", "args": {"a_b": 1}}, "S")]


# --- framing -----------------------------------------------------------------------------------------------------


def test_an_array_is_read_in_pieces() -> None:
    chunks = [answer(thought("t")), answer(text('a "quoted" \\ [b], {c}')), answer(text("", "S"), finish="STOP")]
    whole = events_of(sse(*chunks))
    assert events_of(array(*chunks)) == whole
    data = array(*chunks)
    assert events_of([data[at : at + 1] for at in range(len(data))]) == whole


def test_the_end_of_an_array_ends_the_turn() -> None:
    reader = new_decoder()
    reader.feed(array(answer(text("a")), closed=False))
    assert not reader.done
    reader.feed(b"\n]")
    assert reader.done
    assert not folded(array(answer(text("a")))).error, "a closed array is complete"


def test_a_truncated_array_is_an_error() -> None:
    for data in (array(answer(text("a")), closed=False), array(answer(text("a")), answer(text("b")))[:-60]):
        result = folded(data)
        assert result.error is not None
        assert result.error.code == "stream_truncated"
        assert result.response is not None
        assert result.response.text == "a"


def test_a_body_in_place_of_a_stream_is_decoded() -> None:
    assert part_contents(response_of(b"  \n" + body(thought("t"), text("a")))) == [("thinking", "t"), ("text", "a")]


# --- usage -------------------------------------------------------------------------------------------------------


def test_output_tokens_include_thoughts_and_counts_are_cumulative() -> None:
    chunks = [
        answer(thought("t")) | {"usageMetadata": {"promptTokenCount": 9, "thoughtsTokenCount": 100}},
        answer(text("a")) | {"usageMetadata": {"thoughtsTokenCount": 258, "candidatesTokenCount": 3}},
        answer(text("b"), finish="STOP")
        | {"usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 29, "totalTokenCount": 296}},
    ]  # fmt: skip
    usage = response_of(sse(*chunks)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.output_reasoning_tokens) == (9, 287, 258)
    assert usage.total_tokens == 296
    assert usage.details == {"thoughts_tokens": 258}


_COUNTED = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "cachedContentTokenCount")
counts = st.none() | st.dictionaries(st.sampled_from(_COUNTED), st.none() | st.integers(0, 999), max_size=4)


@given(st.lists(counts, min_size=1, max_size=8), st.lists(st.integers(0, 2000), max_size=4))
def test_the_last_count_of_each_kind_counts(usages: list[Any], places: list[int]) -> None:
    chunks = [answer(text("a")) | ({} if counted is None else {"usageMetadata": counted}) for counted in usages]
    data = sse(*chunks, answer(text(""), finish="STOP"))
    known = {name: count for counted in usages for name, count in (counted or {}).items() if count is not None}
    for reads in ([data], cut(data, places), [data[:1], *cut(data[1:], range(0, len(data), 40))]):
        usage = response_of(reads).usage
        assert usage.input_tokens == known.get("promptTokenCount")
        assert usage.output_reasoning_tokens == known.get("thoughtsTokenCount")
        assert usage.cache_read_tokens == known.get("cachedContentTokenCount")


def test_usage_that_is_not_reported_is_none() -> None:
    usage = response_of(stream(text("a"))).usage
    assert (usage.input_tokens, usage.output_tokens, usage.output_reasoning_tokens) == (None, None, None)
    assert usage.cache_read_tokens is None


def test_tokens_by_modality_and_from_the_cache() -> None:
    counted = {
        "promptTokenCount": 10,
        "cachedContentTokenCount": 4,
        "toolUsePromptTokenCount": 5,
        "candidatesTokenCount": 7,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 8}, {"modality": "AUDIO", "tokenCount": 2}],
        "candidatesTokensDetails": [{"modality": "IMAGE", "tokenCount": 7}, {"modality": "TEXT", "tokenCount": 0}],
        "cacheTokensDetails": [{"modality": "TEXT", "tokenCount": 4}],
        "trafficType": "ON_DEMAND",
    }
    response = response_of(sse(answer(text("a"), finish="STOP") | {"usageMetadata": counted}))
    usage = response.usage
    assert (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) == (15, 7, 4)
    assert usage.input_audio_tokens == 2
    assert usage.details == {
        "cached_content_tokens": 4, "tool_use_prompt_tokens": 5, "text_prompt_tokens": 8, "audio_prompt_tokens": 2,
        "image_candidates_tokens": 7, "text_cache_tokens": 4,
    }  # fmt: skip
    assert response.provider_details == {"traffic_type": "ON_DEMAND"}


# --- ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [name for name, ours in FINISH_REASONS.items() if ours != "error"])
def test_finish_reasons(reason: str) -> None:
    for native in (reason, reason.lower()):
        response = response_of(stream(text("a"), finish=native))
        assert (response.finish_reason, response.native_finish_reason) == (FINISH_REASONS[reason], native)


@pytest.mark.parametrize("reason", ["OTHER", "FINISH_REASON_UNSPECIFIED", "SOMETHING_NEW"])
def test_an_unknown_finish_reason_is_none(reason: str) -> None:
    response = response_of(stream(text("a"), finish=reason))
    assert (response.finish_reason, response.native_finish_reason) == (None, reason)


@pytest.mark.parametrize("reason", [name for name, ours in FINISH_REASONS.items() if ours == "error"])
def test_finish_reasons_that_are_errors(reason: str) -> None:
    result = folded(stream(thought("t"), finish=reason, finishMessage="Malformed function call: f("))
    assert result.error is not None
    assert (result.error.code, result.error.upstream_message) == (reason, "Malformed function call: f(")
    assert result.response is not None
    assert part_contents(result.response) == [("thinking", "t")], "earlier parts are kept"
    assert result.response.finish_reason == "error"
    without = folded(stream(text("a"), finish=reason)).error
    assert without is not None, "without a message, too"
    assert (without.message, without.upstream_message) == (result.error.message, reason)


def test_an_answer_without_content_has_its_usage() -> None:
    """There are no parts and no content, only usage."""
    last = {"candidates": [{"finishReason": "MAX_TOKENS", "index": 0}], "usageMetadata": {"thoughtsTokenCount": 97}}
    for data in (sse(last), json.dumps(last).encode(), array(last)):
        response = response_of(data)
        assert response.parts == []
        assert (response.finish_reason, response.usage.output_reasoning_tokens) == ("length", 97)


def test_a_thought_that_was_cut_off_is_incomplete() -> None:
    (part,) = response_of(stream(thought("so I"), finish="MAX_TOKENS")).parts
    assert isinstance(part, ThinkingPart)
    assert not part.complete


def test_a_blocked_prompt_is_finish_reason_content_filter() -> None:
    refused = {
        "promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"},
        "usageMetadata": {"promptTokenCount": 9, "totalTokenCount": 9},
        "modelVersion": "gemini-3.7-flash",
        "responseId": "r",
    }
    for data in (sse(refused), json.dumps(refused).encode(), array(refused)):
        response = response_of(data)
        assert (response.finish_reason, response.native_finish_reason) == ("content_filter", "PROHIBITED_CONTENT")
        assert response.usage.input_tokens == 9
        assert response.provider_details == {"block_reason": "PROHIBITED_CONTENT", "block_reason_message": "no"}


def test_content_and_parts_may_be_missing() -> None:
    contents: list[dict[str, Any]] = [{}, {"role": "model"}, {"parts": []}]
    empty = [{"candidates": [{"content": content}]} for content in contents]
    chunks = [*empty, {"candidates": []}, {"usageMetadata": {"promptTokenCount": 1}}, answer(text("a"), finish="STOP")]
    assert response_of(sse(*chunks)).text == "a"


def test_a_finish_reason_in_every_chunk_does_not_end_the_turn() -> None:
    response = response_of(sse(answer(text("a"), finish="STOP"), answer(text("b"), finish="STOP")))
    assert part_contents(response) == [("text", "ab")]


def test_only_the_first_candidate_is_decoded() -> None:
    other = {"content": {"parts": [text("no")]}, "index": 1}
    first = answer(text("a"), finish="STOP")
    first["candidates"].insert(0, other)
    assert response_of(sse({"candidates": [other]}, first)).text == "a"


def test_a_truncated_stream_is_an_error() -> None:
    result = folded(stream(thought("t"), text("a"), finish=None))
    assert result.error is not None
    assert result.error.code == "stream_truncated"
    assert result.response is not None
    assert part_contents(result.response) == [("thinking", "t"), ("text", "a")]
    assert result.response.parts[-1].complete is False  # type: ignore[union-attr]


def test_a_cancelled_turn_has_no_error_and_a_failed_one_has_the_transports() -> None:
    result = folded(stream(thought("t"), finish=None), cause="cancelled")
    assert result.error is None
    result = folded(stream(thought("t"), finish=None), cause="error", error=ErrorInfo("unavailable", "gone"))
    assert result.error == ErrorInfo("unavailable", "gone")


# --- errors ------------------------------------------------------------------------------------------------------

BUSY = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
QUOTA = {
    "error": {
        "code": 429,
        "message": "You exceeded your current quota.",
        "status": "RESOURCE_EXHAUSTED",
        "details": [{"@type": "QuotaFailure"}, {"@type": "RetryInfo", "retryDelay": "34.4s"}],
    }
}


@pytest.mark.parametrize(
    "data",
    [
        sse(answer(text("a")), BUSY),
        sse(answer(text("a")), [BUSY]),
        array(answer(text("a")), BUSY),
        array(answer(text("a")), BUSY, closed=False),
    ],
)
def test_an_error_in_a_stream(data: bytes) -> None:
    result = folded(data)
    assert result.error is not None
    assert (result.error.kind, result.error.code) == ("unavailable", "UNAVAILABLE")
    assert result.error.full_message == ("the provider is not available for now (status 503): The model is overloaded.")
    assert result.response is not None
    assert result.response.text == "a", "earlier parts are kept"


@pytest.mark.parametrize("data", [json.dumps(QUOTA).encode(), json.dumps([QUOTA], indent=1).encode(), sse(QUOTA)])
def test_an_error_instead_of_an_answer(data: bytes) -> None:
    error = folded(data).error
    assert error is not None
    assert (error.kind, error.code, error.status) == ("too_many_requests", "RESOURCE_EXHAUSTED", 429)
    assert error.retry_after == 34.4


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_stream"),
        (b" \n", "empty_stream"),
        (b": keep-alive\n\n", "empty_stream"),
        (b"[]", "empty_stream"),
        (b"{}", "not_gemini"),
        (b'{"choices": []}', "not_gemini"),
        (b"<html><h1>502</h1></html>", "not_gemini"),
        (b"data: oops\n\n", "not_gemini"),
        (b"data: 7\n\n", "not_gemini"),
        (b"[1, 2]", "not_gemini"),
    ],
)
def test_data_of_another_format_is_an_error(data: bytes, code: str) -> None:
    error = folded(data).error
    assert error is not None
    assert error.code == code


# --- grounding ---------------------------------------------------------------------------------------------------

GROUNDED = "Zürich is 🏔. Paris is not."
METADATA = {
    "webSearchQueries": ["zurich"],
    "groundingChunks": [
        {"web": {"uri": "https://a", "title": "A"}},
        {"maps": {"uri": "https://m", "title": "M"}},
        {"retrievedContext": {"title": "T", "text": "x"}},
    ],
    "groundingSupports": [
        {"segment": {"endIndex": 16, "text": "Zürich is 🏔."}, "groundingChunkIndices": [0, 1, 9]},
        # One byte off, as Google sometimes is: the text occurs only once.
        {"segment": {"startIndex": 18, "endIndex": 31, "text": "Paris is not."}, "groundingChunkIndices": [0]},
        {"segment": {"startIndex": 2, "endIndex": 4, "text": "is"}, "groundingChunkIndices": [0]},
        {"segment": {"endIndex": 3, "text": "not there"}, "groundingChunkIndices": [0]},
        {"segment": {}, "groundingChunkIndices": [0]},
    ],
}


@pytest.mark.parametrize(
    "data",
    [
        stream(text("Zürich is "), text("🏔. Paris is not."), groundingMetadata=METADATA),
        body(text(GROUNDED), groundingMetadata=METADATA),
    ],
)
def test_citations_count_in_characters_and_searches_are_parts(data: bytes) -> None:
    answered, file_call, file_return, web_call, web_return = response_of(data).parts
    assert isinstance(answered, TextPart)
    cited = [(GROUNDED[a["start_index"] : a["end_index"]], a["url"], a["title"]) for a in answered.annotations or []]
    assert cited == [
        ("Zürich is 🏔.", "https://a", "A"),
        ("Zürich is 🏔.", "https://m", "M"),
        ("Paris is not.", "https://a", "A"),
    ]
    assert (file_call.tool_name, web_call.tool_name) == ("file_search", "web_search")  # type: ignore[union-attr]
    assert file_return.content == [{"title": "T", "text": "x"}]  # type: ignore[union-attr]
    assert web_call.args == {"queries": ["zurich"]}  # type: ignore[union-attr]
    assert web_return.content == [{"domain": None, "title": "A", "uri": "https://a"}]  # type: ignore[union-attr]
    assert web_call.tool_call_id == web_return.tool_call_id  # type: ignore[union-attr]


def test_url_context_parts_come_before_the_answer() -> None:
    pages = {"urlMetadata": [{"retrievedUrl": "https://a", "urlRetrievalStatus": "SUCCESS"}]}
    response = response_of(sse(answer(text("a"), finish="STOP", urlContextMetadata=pages)))
    assert part_contents(response) == [
        ("builtin-tool-call", {"urls": ["https://a"]}),
        ("builtin-tool-return", [{"retrieved_url": "https://a", "url_retrieval_status": "SUCCESS"}]),
        ("text", "a"),
    ]  # fmt: skip


def test_searches_that_are_parts_are_not_added_from_the_metadata() -> None:
    search_call = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["zurich"]}, "id": "i"}}
    response = response_of(stream(search_call, text("a"), groundingMetadata=METADATA))
    assert [part.part_kind for part in response.parts] == ["builtin-tool-call", "text"]
    assert response.provider_details is not None
    assert response.provider_details["grounding_metadata"] == METADATA, "the metadata is stored, too"


def test_metadata_of_the_answer_is_in_provider_details() -> None:
    ratings = [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "NEGLIGIBLE"}]
    response = response_of(stream(text("a"), safetyRatings=ratings, avgLogprobs=-0.5))
    assert response.provider_details == {"safety_ratings": ratings, "avg_logprobs": -0.5}
