"""Decoding of Chat Completions: regular, unusual and invalid responses."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo
from pellucid.events import ErrorEvent, ItemStartEvent, PartDeltaEvent, PartEndEvent, ResponseEndEvent
from pellucid.parts import FilePart, OpaquePart, RefusalPart, TextPart, ThinkingPart, ToolCallPart, Usage
from pellucid.providers import stream_decoder
from pellucid.providers.openai_chat.details import details_from_parts
from pellucid.providers.profiles import builtin_profiles, load_profiles
from pellucid.providers.wires import WIRES
from tests.cases import Cases
from tests.cutting import cut, merged
from tests.examples import by_circle
from tests.providers.wire_kit import (
    ROWS,
    body,
    call,
    chunk,
    events_of,
    folded,
    is_complete,
    kinds_and_texts,
    origin,
    response_of,
    sse,
    thoughts,
)

ANY_ROW = pytest.mark.parametrize("row", ["openai-compat", "vllm", "openrouter", "deepseek"])


def stream(*deltas: dict[str, Any], finish: str | None = "stop") -> bytes:
    return sse(*(chunk(**delta) for delta in deltas), *([chunk(finish)] if finish else []))


def kinds_and_texts_of(
    *deltas: dict[str, Any], row: str = "openai-compat", finish: str = "stop"
) -> list[tuple[str, Any]]:
    return kinds_and_texts(response_of(row, stream(*deltas, finish=finish)))


# --- order -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["minimax", "mistral"])
@pytest.mark.parametrize("close", ["</think>", "\n</think>\n\n"])
def test_a_call_directly_after_tagged_reasoning_ends_it(row: str, close: str) -> None:
    """Its markers are those of the reasoning before the call; there is no empty reasoning after the call."""
    model = "magistral-medium-2506" if row == "mistral" else "MiniMax-M3"
    profile = builtin_profiles()[row].for_model(model)
    tool_call = {"index": 0, "id": "call00001", "function": {"name": "look", "arguments": "{}"}}
    data = stream({"content": "<think>\nWhy"}, {"content": f"?{close}"}, {"tool_calls": [tool_call]})
    reader = WIRES[profile.wire].decoder(profile, origin(row))
    events = [*reader.feed(data), *reader.end()]
    parts = [event.part for event in events if isinstance(event, PartEndEvent)]
    assert [(type(part), getattr(part, "content", None)) for part in parts] == [
        (ThinkingPart, "Why?"),
        (ToolCallPart, None),
    ]
    assert isinstance(parts[0], ThinkingPart)
    assert parts[0].provider_details == {"open": "<think>\n", "close": close}


@ANY_ROW
def test_reasoning_precedes_text_of_the_same_chunk(row: str) -> None:
    assert kinds_and_texts_of({"content": "b", "reasoning_content": "a"}, row=row) == [("thinking", "a"), ("text", "b")]


@ANY_ROW
def test_fields_of_one_chunk_have_a_fixed_order(row: str) -> None:
    everything = {"tool_calls": [call("{}", name="f", id="c", index=0)], "content": "b", "reasoning": "a"}
    assert kinds_and_texts_of(everything, row=row) == [("thinking", "a"), ("text", "b"), ("tool-call", "{}")]


@ANY_ROW
def test_reasoning_that_resumes_after_text_is_a_new_item(row: str) -> None:
    data = stream({"reasoning": "a"}, {"content": "b"}, {"reasoning": "c"}, {"content": "d"})
    assert kinds_and_texts(response_of(row, data)) == [
        ("thinking", "a"),
        ("text", "b"),
        ("thinking", "c"),
        ("text", "d"),
    ]
    kinds = [event.kind for event in events_of(row, data) if isinstance(event, ItemStartEvent)]
    assert kinds == ["reasoning", "message", "reasoning", "message"]


@ANY_ROW
def test_reasoning_that_resumes_after_a_call_is_a_new_item(row: str) -> None:
    data = stream(
        {"reasoning": "a"},
        {"tool_calls": [call("{}", name="f", id="c0", index=0)]},
        {"reasoning": "b"},
        {"tool_calls": [call("{}", name="g", id="c1", index=1)]},
        finish="tool_calls",
    )
    assert kinds_and_texts(response_of(row, data)) == [
        ("thinking", "a"),
        ("tool-call", "{}"),
        ("thinking", "b"),
        ("tool-call", "{}"),
    ]


def test_structured_reasoning_that_resumes_is_sent_back_in_full() -> None:
    """The same index after text is a second block, which must be sent back, too."""
    one, two = ({"type": "reasoning.text", "text": text, "index": 0} for text in "ab")
    data = stream({"reasoning_details": [one]}, {"content": "t"}, {"reasoning_details": [two]})
    response = response_of("openrouter", data)
    assert [entry["text"] for entry in details_from_parts(response.parts)] == ["a", "b"]


def test_empty_missing_and_null_fields_are_ignored() -> None:
    nothing: tuple[dict[str, Any], ...] = (
        {},
        {"content": ""},
        {"content": None},
        {"reasoning": ""},
        {"reasoning": None, "content": None},
        {"tool_calls": []},
        {"tool_calls": None},
        {"reasoning_details": []},
        {"refusal": ""},
        {"function_call": {"name": "", "arguments": ""}},
        {"tool_calls": [call("", index=0)]},
    )
    assert kinds_and_texts_of(
        *nothing, {"reasoning": "a"}, *nothing, {"reasoning": "b"}, *nothing, {"content": "c"}
    ) == [
        ("thinking", "ab"),
        ("text", "c"),
    ]


def test_only_the_first_of_several_reasoning_fields_is_read() -> None:
    assert kinds_and_texts_of({"reasoning": "a", "reasoning_content": "a", "reasoning_text": "a"}) == [
        ("thinking", "a")
    ]
    assert kinds_and_texts_of({"reasoning": "a", "reasoning_content": ""}) == [("thinking", "a")]
    assert kinds_and_texts_of({"reasoning": {"effort": "low"}, "reasoning_text": "a"}) == [("thinking", "a")]


@pytest.mark.parametrize("field", ["thoughts", "chain-of-thought", "gedächtnis", "class", "content_", "1"])
def test_an_operators_row_names_any_field_of_reasoning(field: str) -> None:
    rows = load_profiles(
        {"house": {"extends": "openai-compat", "reasoning_fields": [field, "reasoning"]}}, builtin_profiles()
    )
    texts = [{field: "a"}, {"reasoning": "b", field: ""}, {field: "c", "reasoning": "c"}, {"content": "It is."}]
    answer = [("thinking", "abc"), ("text", "It is.")]
    for data in (stream(*texts), stream(*texts).replace(b'"index"', b'"index_": 0, "index"')):
        assert kinds_and_texts(response_of(rows["house"], data)) == answer
    message = {"role": "assistant", field: "abc", "content": "It is."}
    whole = {"choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
    assert kinds_and_texts(response_of(rows["house"], json.dumps(whole).encode())) == answer
    broken = chunk(content="It is.") | {"id": 5}  # decoded leniently
    broken["choices"][0]["delta"] |= {field: "a", "tool_calls": 3}
    assert kinds_and_texts(response_of(rows["house"], sse(broken, chunk("stop")))) == [
        ("thinking", "a"),
        ("text", "It is."),
    ]


def test_a_second_choice_is_ignored() -> None:
    two = chunk(content="a")
    two["choices"].append({"index": 1, "delta": {"content": "z", "reasoning": "z"}, "finish_reason": "length"})
    response = response_of("openai-compat", sse(two, chunk("stop")))
    assert kinds_and_texts(response) == [("text", "a")]
    assert response.finish_reason == "stop"


def test_log_probabilities_belong_to_their_text_and_are_not_repeated() -> None:
    tokens = [{"token": "a", "logprob": -0.1}]
    for row in ("openai", "vllm"):
        response = response_of(
            row, sse(chunk(content="a", choice={"logprobs": {"content": tokens}}), chunk(content="b"), chunk("stop"))
        )
        assert response.parts == [TextPart("ab", logprobs=tokens)]


def test_annotations_belong_to_the_text() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "http://x"}}
    for data in (stream({"content": "a"}, {"annotations": [note]}), body(content="a", annotations=[note])):
        assert response_of("openai", data).parts == [TextPart("a", annotations=[note])]


def test_content_parts_of_unknown_type_are_opaque_parts() -> None:
    entry = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    response = response_of("openai-compat", body(content=[{"type": "text", "text": "a"}, entry, "b"]))
    _, opaque, _ = response.parts
    assert isinstance(opaque, OpaquePart)
    assert opaque.native == entry
    assert [part.part_kind for part in response.parts] == ["text", "opaque", "text"]


def test_images_are_files_after_the_text_of_their_chunk_and_others_are_opaque() -> None:
    urls = ("data:image/png;base64,AA==", "https://x")
    here, elsewhere = ({"type": "image_url", "image_url": {"url": url}} for url in urls)
    response = response_of("openrouter", sse(chunk(content="a", images=[here, elsewhere]), chunk("stop")))
    text, file, opaque = response.parts
    assert (text.part_kind, opaque.part_kind) == ("text", "opaque")
    assert file == FilePart("AA==", "image/png", provider_name="openrouter")
    assert isinstance(opaque, OpaquePart)
    assert opaque.native == elsewhere


# --- tool calls --------------------------------------------------------------------------------------------------


def decoded_calls(*fragments: list[dict[str, Any]], row: str = "openai-compat") -> list[tuple[str, str, Any]]:
    deltas = [{"tool_calls": entries} for entries in fragments]
    response = response_of(row, stream(*deltas, finish="tool_calls"))
    assert response.finish_reason == "tool_call"
    assert len(response.tool_calls) == len(response.parts), "the response has calls only"
    return [(part.tool_call_id, part.tool_name, part.args) for part in response.tool_calls]


def test_arguments_in_fragments_are_joined() -> None:
    fragments = ([call("", name="f", id="a", index=0)], [call('{"x"', index=0)], [call(":1}", index=0)])
    assert decoded_calls(*fragments) == [("a", "f", '{"x":1}')]


TWO = [("a", "f", '{"x":1}'), ("b", "g", '{"y":2}')]


def test_parallel_calls() -> None:
    assert (
        decoded_calls(
            [call('{"x"', name="f", id="a", index=0)],
            [call(":1}", index=0)],
            [call('{"y"', name="g", id="b", index=1)],
            [call(":2}", index=1)],
        )
        == TWO
    )


def test_interleaved_calls() -> None:
    assert (
        decoded_calls(
            [call('{"x"', name="f", id="a", index=0), call('{"y"', name="g", id="b", index=1)],
            [call(":2}", index=1), call(":1}", index=0)],
        )
        == TWO
    )


def test_calls_with_the_same_index_are_distinguished_by_their_ids() -> None:
    assert (
        decoded_calls([call('{"x":1}', name="f", id="a", index=0)], [call('{"y":2}', name="g", id="b", index=0)]) == TWO
    )


def test_interleaved_calls_with_the_same_index() -> None:
    assert (
        decoded_calls(
            [call('{"x"', name="f", id="a", index=0)],
            [call('{"y"', name="g", id="b", index=0)],
            [call(":1}", id="a", index=0)],
            [call(":2}", id="b", index=0)],
        )
        == TWO
    )


def test_complete_calls_with_the_same_index_and_no_ids() -> None:
    fragments = [call('{"x":1}', name="f", index=0)], [call('{"y":2}', name="g", index=0)]
    assert decoded_calls(*fragments) == [("", "f", '{"x":1}'), ("", "g", '{"y":2}')]


def test_calls_without_an_index() -> None:
    assert decoded_calls([call('{"x":1}', name="f", id="a")], [call('{"y"', name="g", id="b")], [call(":2}")]) == TWO
    assert decoded_calls([call('{"x":1}', name="f", id="a"), call('{"y":2}', name="g", id="b")]) == TWO
    assert (
        decoded_calls([call('{"x"', name="f", id="a")], [call('{"y":2}', name="g", id="b")], [call(":1}", id="a")])
        == TWO
    )


def test_fragments_that_repeat_name_and_id_are_one_call() -> None:
    assert decoded_calls(*([call(args, name="f", id="a", index=0)] for args in ('{"x"', ":", "1}"))) == TWO[:1]
    assert decoded_calls(*([call(args, name="f", index=0)] for args in ('{"x"', ":", "1}"))) == [("", "f", '{"x":1}')]


def test_a_new_id_for_every_fragment_is_no_new_call() -> None:
    fragments = [call("", name="f", id="a", index=0)], [call('{"x"', id="r1", index=0)], [call(":1}", id="r2", index=0)]
    assert decoded_calls(*fragments) == TWO[:1]


def test_a_late_name_belongs_to_its_call() -> None:
    assert (
        decoded_calls([call('{"x"', id="a", index=0)], [call(":1", index=0)], [call("}", name="f", index=0)]) == TWO[:1]
    )
    assert decoded_calls([call(id="a", index=0)], [call(name="f", index=0)], [call('{"x":1}', index=0)]) == TWO[:1]


def test_a_call_without_a_name_is_not_dropped() -> None:
    assert decoded_calls([call('{"x":1}', id="a", index=0)]) == [("a", "", '{"x":1}')]


def test_arguments_may_be_an_object_or_null_or_another_type() -> None:
    assert decoded_calls([call({"x": 1}, name="f", id="a", index=0)]) == [("a", "f", {"x": 1})]
    assert decoded_calls([call({}, name="f", id="a", index=0)]) == [("a", "f", "{}")]
    assert decoded_calls([call(None, name="f", id="a", index=0)]) == [("a", "f", "")]
    assert decoded_calls([call([1], name="f", id="a", index=0)]) == [("a", "f", "[1]")]
    assert decoded_calls([call('{"x":', id="a", index=0)], [call({"y": 2}, name="f", index=0)]) == [
        ("a", "f", '{"x":{"y":2}')
    ]


def test_the_legacy_function_call() -> None:
    deltas = ({"function_call": {"name": "f", "arguments": ""}}, {"function_call": {"arguments": '{"x":1}'}})
    response = response_of("openai-compat", stream(*deltas, finish="function_call"))
    assert kinds_and_texts(response) == [("tool-call", '{"x":1}')]
    assert response.finish_reason == "tool_call"
    whole = body("function_call", content=None, function_call={"name": "f", "arguments": '{"x":1}'})
    assert kinds_and_texts(response_of("openai-compat", whole)) == [("tool-call", '{"x":1}')]


def test_calls_without_a_finish_reason_of_their_own() -> None:
    response = response_of("snowflake", sse(chunk(tool_calls=[call("{}", name="f", id="a", index=0)])))
    assert response.finish_reason == "tool_call"


def test_arguments_that_are_not_json_are_not_changed() -> None:
    assert decoded_calls([call("{'x': 1}", name="f", id="a", index=0)]) == [("a", "f", "{'x': 1}")]


letters = st.text(alphabet='{}[]":,xyz1 ', max_size=8)


@given(st.data())
def test_calls_are_complete_however_they_are_fragmented(data: st.DataObject) -> None:
    """Any number of calls, any fragments, distinguished by index, id or both, interleaved in any way."""
    objects = st.dictionaries(letters, letters, max_size=3).map(json.dumps)
    arguments = data.draw(st.lists(objects, min_size=1, max_size=4))
    how = data.draw(st.sampled_from(["index", "id, all number 0", "id, no index"]))

    def about(number: int) -> dict[str, Any]:
        match how:
            case "index":
                return {"index": number}
            case "id, all number 0":
                return {"index": 0, "id": f"c{number}"}
            case _:
                return {"id": f"c{number}"}

    fragments = [
        [(number, piece) for piece in cut(text.encode(), data.draw(st.lists(st.integers(0, 30), max_size=3)))]
        for number, text in enumerate(arguments)
    ]
    opening = [call("", name=f"f{number}", **{**about(number), "id": f"c{number}"}) for number in range(len(arguments))]
    deltas = [[entry] for entry in opening]
    while any(fragments):
        number, piece = data.draw(st.sampled_from([some for some in fragments if some])).pop(0)
        deltas.append([call(piece.decode(), **about(number))])
    assert decoded_calls(*deltas) == [(f"c{number}", f"f{number}", text) for number, text in enumerate(arguments)]


# --- refusals ----------------------------------------------------------------------------------------------------


def test_a_refusal_is_not_an_error() -> None:
    for data in (stream({"refusal": "I can"}, {"refusal": "not."}), body(content=None, refusal="I cannot.")):
        response = response_of("openai", data)
        assert response.parts == [RefusalPart("I cannot.")]
        assert response.finish_reason == "stop"


# --- errors within the stream ------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[str | dict[str, Any], ErrorInfo]] = {
    "an error event": (
        'event: error\ndata: {"error": {"message": "Overloaded", "type": "overloaded_error"}}',
        ErrorInfo("unavailable", "the provider is not available for now: Overloaded", code="overloaded_error"),
    ),
    "an error event with a bare object": (
        'event: error\ndata: {"code": "InvalidParameter", "message": "No."}',
        ErrorInfo("model_error", "the provider reported an error: No.", code="InvalidParameter"),
    ),
    "an error event with plain text": (
        "event: error\ndata: Overloaded",
        ErrorInfo("model_error", "the provider reported an error: Overloaded"),
    ),
    "an error object in data": (
        {"error": {"message": "No.", "type": "BadRequestError", "code": 400, "param": "messages"}},
        ErrorInfo(
            "invalid_request",
            "the provider refused the request (status 400): No.",
            code="400",
            param="messages",
            status=400,
        ),
    ),
    "an error text in data": (
        {"error": "model runner has crashed"},
        ErrorInfo("model_error", "the provider reported an error: model runner has crashed"),
    ),
    "an error object alone": (
        {"object": "error", "message": "No.", "type": "BadRequestError", "code": 400},
        ErrorInfo("invalid_request", "the provider refused the request (status 400): No.", code="400", status=400),
    ),
    "a validation error": (
        {"detail": [{"loc": ["body"], "msg": "Field required", "type": "missing"}]},
        ErrorInfo("model_error", "the provider reported an error: Field required", code="missing"),
    ),
    "an error in a list": (
        'data: [{"error": {"code": 503, "message": "Busy.", "status": "UNAVAILABLE"}}]',
        ErrorInfo("unavailable", "the provider is not available for now (status 503): Busy.", code="503", status=503),
    ),
    "an error next to a choice": (
        chunk("error", content="")
        | {"error": {"code": 502, "message": "Provider returned error", "metadata": {"raw": "upstream said no"}}},
        ErrorInfo(
            "unavailable",
            "the provider is not available for now (status 502): Provider returned error: upstream said no",
            code="502",
            status=502,
        ),
    ),
    "an error under x_groq": (
        {"choices": [], "x_groq": {"id": "r", "error": "over capacity"}},
        ErrorInfo("model_error", "the provider reported an error: over capacity"),
    ),
    "a status under base_resp": (
        {"choices": None, "base_resp": {"status_code": 1004, "status_msg": "not authorized"}},
        ErrorInfo("model_error", "the provider reported an error: not authorized", code="1004"),
    ),
    "bytes that are no JSON": (
        "data: Internal Server Error",
        ErrorInfo(
            "model_error",
            "the provider did not answer in Chat Completions JSON: 'Internal Server Error'",
            code="not_chat_completions",
        ),
    ),
}


def without_native(error: ErrorInfo) -> ErrorInfo:
    """Return the error with its full message as the message, and without the upstream's body."""
    return ErrorInfo(error.kind, error.full_message, error.code, error.param, error.status)


@pytest.mark.parametrize("row", ["openai-compat", "openai"])
def test_an_error_in_the_stream_is_an_event_and_earlier_parts_remain(row: str) -> None:
    with Cases() as case:
        for name, (frame, expected) in ERRORS.items():
            for done in (True, False):
                data = sse(chunk(reasoning="a"), chunk(content="b <thi"), frame, chunk(content="too late"), done=done)
                with case(f"{name}, done: {done}"):
                    result = folded(row, data)
                    assert result.error is not None
                    assert without_native(result.error) == expected
                    assert result.response is not None
                    assert kinds_and_texts(result.response) == [("thinking", "a"), ("text", "b <thi")]
                    assert result.response.finish_reason == "error"
                    assert not is_complete(result.response.parts[-1])


@pytest.mark.parametrize("name", [name for name, (frame, _) in ERRORS.items() if isinstance(frame, dict)])
def test_an_error_may_be_the_whole_body(name: str) -> None:
    frame, expected = ERRORS[name]
    result = folded("openai-compat", json.dumps(frame).encode())
    assert result.error is not None
    assert without_native(result.error) == expected


@pytest.mark.parametrize("reason", ["error", "network_error", "insufficient_system_resource"])
def test_some_finish_reasons_are_errors(reason: str) -> None:
    result = folded("openai-compat", stream({"content": "a"}, finish=reason))
    assert result.error is not None
    assert result.error.code == reason
    assert result.response is not None
    assert (result.response.finish_reason, result.response.native_finish_reason) == ("error", reason)


def test_only_the_first_error_counts() -> None:
    data = sse(chunk(content="a"), {"error": {"message": "one"}}, {"error": {"message": "two"}})
    errors = [event.error for event in events_of("openai-compat", data) if isinstance(event, ErrorEvent)]
    assert [error.upstream_message for error in errors] == ["one"]


@pytest.mark.parametrize("cause", ["error", "cancelled"])
def test_a_transport_that_fails_leaves_a_closed_turn(cause: Any) -> None:
    error = ErrorInfo("unavailable", "the upstream closed the connection") if cause == "error" else None
    result = folded("openai-compat", sse(chunk(reasoning="a"), done=False), cause=cause, error=error)
    assert result.error == error
    assert result.response is not None
    assert result.response.parts == [ThinkingPart("a", provider_name="openai-compat", complete=False)]


# --- ends --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["deepseek", "groq"])
@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_model_cut_off_in_its_reasoning_keeps_it_marked_incomplete(row: str, reason: str) -> None:
    thought: dict[str, Any] = {"content": "<think>a"} if row == "groq" else {"reasoning_content": "a"}
    for data in (stream(thought, finish=reason), body(reason, **{"content": "", **thought})):
        response = response_of(row, data)
        assert response.parts == [ThinkingPart("a", provider_name=row, complete=False)]
        assert response.finish_reason == reason


def test_only_the_part_cut_off_is_incomplete() -> None:
    response = response_of("deepseek", stream({"reasoning_content": "a"}, {"content": "b"}, finish="length"))
    assert [is_complete(part) for part in response.parts] == [True, False]


def test_a_call_cut_off_in_its_arguments_is_incomplete() -> None:
    data = stream({"tool_calls": [call('{"x', name="f", id="a", index=0)]}, finish="length")
    assert [part.complete for part in response_of("openai", data).tool_calls] == [False]


def test_usage_comes_after_the_finish_reason_and_without_choices() -> None:
    last = {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    events = events_of("openai", sse(chunk(content="a"), chunk("stop"), last))
    assert isinstance(events[-1], ResponseEndEvent)
    assert events[-1].usage == Usage(1, 2)


def test_empty_usage_does_not_replace_earlier_usage() -> None:
    counted = chunk("stop") | {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}
    nothings: list[dict[str, Any] | None] = [None, {}]
    for nothing in nothings:
        data = sse(chunk(content="a"), counted, {"choices": [], "usage": nothing})
        assert response_of("openai", data).usage == Usage(1, 2)


def test_usage_that_is_not_reported_is_none() -> None:
    usage = response_of("openai", body(content="a", usage={"prompt_tokens": 1, "completion_tokens": 0})).usage
    assert usage == Usage(1, 0)
    assert usage.output_reasoning_tokens is None
    assert response_of("openai", body(content="a")).usage == Usage()


def test_counts_of_the_wrong_type_are_not_counts() -> None:
    odd = {
        "prompt_tokens": "7",
        "completion_tokens": True,
        "total_tokens": None,
        "prompt_tokens_details": [],
        "completion_tokens_details": {"reasoning_tokens": 1.5},
        "is_byok": False,
    }
    assert response_of("openai", body(content="a", usage=odd)).usage == Usage()


def test_an_end_without_finish_reason_and_done_is_an_error() -> None:
    result = folded("openai-compat", stream({"reasoning": "a"}, finish=None).replace(b"data: [DONE]\n\n", b""))
    assert result.error is not None
    assert result.error.code == "stream_truncated"
    assert result.response is not None
    assert not is_complete(result.response.parts[0])


def test_either_finish_reason_or_done_completes_a_stream() -> None:
    assert response_of("openai", stream({"content": "a"}).replace(b"data: [DONE]\n\n", b"")).finish_reason == "stop"
    assert response_of("openai", stream({"content": "a"}, finish=None)).finish_reason == "stop"


def test_a_complete_last_event_needs_no_blank_line() -> None:
    data = sse(chunk(content="a"), chunk("length", content="b"), done=False)
    for ending in (b"\n\n", b"\n", b""):
        response = response_of("openai", data.removesuffix(b"\n\n") + ending)
        assert (response.text, response.finish_reason) == ("ab", "length")
    for done in (b"data: [DONE]", b"data: [DONE]\n", b"data: [DONE]\r\n"):
        assert response_of("openai", sse(chunk(content="a"), done=False) + done).text == "a"


def test_an_incomplete_event_after_the_finish_reason_is_ignored() -> None:
    data = sse(chunk(content="a"), chunk("stop"), done=False) + b'data: {"choices": [], "usa'
    assert response_of("openai", data).text == "a"


# --- bytes -------------------------------------------------------------------------------------------------------


def test_comments_blank_lines_and_named_events_are_ignored() -> None:
    frames: tuple[str, ...] = (
        ": keep-alive",
        ": OPENROUTER PROCESSING",
        "",
        "event: ping\ndata: {}",
        "event: message",
        "retry: 3",
    )
    frames += ("data:",)
    data = sse(*frames, chunk(content="a"), *frames, chunk("stop"), *frames)
    assert kinds_and_texts(response_of("openai-compat", data)) == [("text", "a")]
    crlf = data.replace(b"\n", b"\r\n")
    assert merged(events_of("openai-compat", crlf)) == merged(events_of("openai-compat", data))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\n\n",
        b"garbage",
        b"\x00\xff\xfe",
        b"<html><body>502 Bad Gateway</body></html>",
        b"null",
        b"[]",
        b"{}",
        b"42",
        b'{"choices": 5, oops',
        b'{"choices":',
        b"{" * 10_000,
        b'{"a":' * 50_000,
        b"data: {}\n\n",
        b"data: [DONE",
        b"\xef\xbb\xbf",
        b'{"choices": 5, "a": ' + b"[" * 100_000,
        b"data: " + b'{"choices": 5, "a": ' + b"[" * 100_000 + b"\n\n",
    ],
)
def test_a_body_of_another_format_is_an_error(garbage: bytes) -> None:
    for data in (garbage, [garbage[at : at + 1] for at in range(min(len(garbage), 100))] + [garbage[100:]]):
        result = folded("openai-compat", data)
        assert result.error is not None
        assert result.error.kind == "model_error"
        assert result.error.code in ("empty_stream", "not_chat_completions")


def test_an_html_page_in_place_of_a_response_is_quoted() -> None:
    result = folded("openai-compat", b"<html><title>502 Bad Gateway</title></html>")
    assert result.error is not None
    assert "502 Bad Gateway" in result.error.full_message
    assert "502" not in result.error.message


def test_the_first_byte_decides_between_stream_and_body() -> None:
    """`events_of` passes no content type, so a body may be declared as a stream, and a stream as a body."""
    expected = [("thinking", "a"), ("text", "b")]
    for lead in (b"", b"\n", b" \r\n\n"):
        assert kinds_and_texts(response_of("openai-compat", lead + body(content="b", reasoning="a"))) == expected
        assert (
            kinds_and_texts(response_of("openai-compat", lead + stream({"content": "b", "reasoning": "a"}))) == expected
        )


def test_bytes_that_are_not_utf8_are_replaced() -> None:
    data = stream({"content": "aXb"}).replace(b"aXb", b"a\xffb")
    assert kinds_and_texts(response_of("openai-compat", data)) == [("text", "a\ufffdb")]
    assert kinds_and_texts(response_of("openai-compat", body(content="aXb").replace(b"X", b"\xff"))) == [
        ("text", "a\ufffdb")
    ]


def test_lone_surrogates_are_replaced_and_pairs_are_not() -> None:
    data = stream({"content": "aXb"})
    for escape, text in ((rb"\ud800", "\ufffd"), (rb"\ude00", "\ufffd"), (rb"\ud83d\ude00", "😀")):
        for written in (data, body(content="aXb")):
            assert kinds_and_texts(response_of("openai-compat", written.replace(b"X", escape))) == [
                ("text", f"a{text}b")
            ]


def test_invalid_numbers_are_ignored() -> None:
    chunk_ = b'data: {"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":%b}]}}]}\n\n'
    for number in (b"NaN", b"-Infinity", b"1e999", b"9" * 400):
        assert response_of("openai-compat", chunk_ % number + stream()).text == "a"


def test_a_chunk_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    huge = "x" * 5_000_000
    assert (
        response_of(
            "openai",
            stream({"reasoning": huge}),
        ).thinking
        == huge
    )
    monkeypatch.setattr(stream_decoder, "DEFAULT_MAX_BYTES", 1000)
    reader = WIRES["openai_chat"].decoder(ROWS["openai"], origin("openai"))
    events = reader.feed(stream({"content": "a"})) + reader.feed(b"data: " + b"x" * 2000) + reader.end()
    assert [event.error.code for event in events if isinstance(event, ErrorEvent)] == ["frame_too_large"]


# --- properties --------------------------------------------------------------------------------------------------

texts = st.text(alphabet=st.sampled_from("ab<>/think \n\"'\\é😀"), max_size=6)
fragment = st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | texts,
        "reasoning_content": st.none() | texts,
        "reasoning": st.none() | texts,
        "refusal": st.none() | texts,
        "reasoning_details": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(
                        ["reasoning.text", "reasoning.summary", "reasoning.encrypted", "reasoning.new"]
                    )
                },
                optional={
                    "text": texts,
                    "summary": texts,
                    "data": texts,
                    "signature": st.none() | texts,
                    "id": texts,
                    "index": st.integers(0, 2) | st.none(),
                    "format": texts,
                },
            ),
            max_size=2,
        ),
        "tool_calls": st.lists(
            st.builds(
                lambda function, **rest: {"function": function, **rest},
                st.fixed_dictionaries({}, optional={"name": st.sampled_from(["f", "g", ""]), "arguments": texts}),
                index=st.integers(0, 2) | st.none(),
                id=st.sampled_from(["a", "b", "", None]),
            ),
            max_size=2,
        ),
    },
)
frames = st.lists(
    st.builds(lambda delta: chunk(**delta), fragment)
    | st.sampled_from(
        [
            ": ping",
            "",
            {"choices": [], "usage": {"prompt_tokens": 1}},
            chunk("stop"),
            chunk("length"),
            chunk("tool_calls"),
            {"error": {"message": "broke"}},
        ]
    ),
    max_size=12,
)
rows = st.sampled_from(sorted(ROWS))


@given(rows, frames, st.booleans(), st.lists(st.integers(0, 3000), max_size=6))
def test_any_chunks_split_anywhere_give_one_valid_turn(
    row: str, script: list[Any], done: bool, places: list[int]
) -> None:
    data = sse(*script, done=done)
    folded(row, data)  # raises if the events are not valid
    assert merged(events_of(row, cut(data, places))) == merged(events_of(row, data))


@given(frames)
def test_no_text_is_lost_or_invented(script: list[Any]) -> None:
    """On a wire without tags, details and errors, the decoded text equals the text that was sent, in order.

    Reasoning of white space alone is none.
    """
    texts_by_kind: dict[str, str] = {"thinking": "", "text": "", "refusal": ""}
    plain = []
    for frame in script:
        if not isinstance(frame, dict) or not frame.get("choices"):
            continue
        delta = frame["choices"][0]["delta"]
        delta.pop("reasoning_details", None)
        plain.append(frame)
        texts_by_kind["thinking"] += delta.get("reasoning_content") or delta.get("reasoning") or ""
        texts_by_kind["text"] += delta.get("content") or ""
        texts_by_kind["refusal"] += delta.get("refusal") or ""
    response = response_of("openai", sse(*plain))
    for kind, type_ in (("thinking", ThinkingPart), ("text", TextPart), ("refusal", RefusalPart)):
        decoded = "".join(part.content for part in response.parts if isinstance(part, type_))
        sent = texts_by_kind[kind]
        if kind == "thinking" and decoded != sent:
            # White space at the end, after another kind of text, is not kept.
            assert not sent.removeprefix(decoded).strip()
            assert sent.startswith(decoded)
        else:
            assert decoded == sent


VALID = [
    chunk(role="assistant", content="", reasoning_content="a"),
    chunk(reasoning="b", reasoning_details=[{"type": "reasoning.text", "text": "b", "index": 0, "signature": "s"}]),
    chunk(
        content="<think>c</think>d",
        annotations=[{"type": "url_citation"}],
        choice={"logprobs": {"content": [{"token": "d", "logprob": -1}]}},
    ),
    chunk(refusal="e", executed_tools=[{"index": 0, "type": "search", "arguments": "{}", "output": "o"}]),
    chunk(tool_calls=[call('{"x"', name="f", id="a", index=0), call(":1}", index=0)], function_call={"name": "g"}),
    chunk("tool_calls", reasoning_opaque="o", choice={"native_finish_reason": "n"}),
    {
        "id": "x",
        "choices": [],
        "error": None,
        "base_resp": {"status_code": 0},
        "x_groq": {"usage": {"prompt_tokens": 1}},
        "usage": {"prompt_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 2}},
    },
]

ODD: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        1.5,
        10**30,
        "",
        "x",
        "\ud800",
        [],
        [None],
        [1, "a", {}],
        {},
        {"a": 1},
        {"index": {}},
        [[]],
        {"type": "thinking", "thinking": 5},
        [{"type": [], "text": {}}],
        {"type": "text", "text": "t"},
        [{"index": []}],
    ]
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, entry in inner for place in paths_of(entry, (*path, name)))]


def with_change(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_change(value[path[0]], path[1:], new)
    return copy


PLACES = [(number, path) for number, frame in enumerate(VALID) for path in paths_of(frame)]


def check_decoding(row: str, frames_: list[Any]) -> None:
    written = [f"data: {json.dumps(frame)}" for frame in frames_]
    for data in (sse(*written), *(json.dumps(frame).replace('"delta"', '"message"').encode() for frame in frames_)):
        events = events_of(row, data)
        folded(row, data)
        msgspec.json.encode(events)  # all encoders and stores accept it


@given(rows, st.lists(st.tuples(st.sampled_from(PLACES), ODD), min_size=1, max_size=4))
def test_wrong_types_anywhere_give_a_valid_turn(row: str, changes: list[tuple[Any, Any]]) -> None:
    frames_: list[Any] = list(VALID)
    for (number, path), new in changes:
        try:
            frames_[number] = with_change(frames_[number], path, new)
        except (KeyError, IndexError, TypeError):  # an earlier change removed the path
            continue
    check_decoding(row, frames_)


@pytest.mark.parametrize("new", [None, 5, "x", [], {}, [1], {"a": {}}], ids=repr)
def test_every_field_may_hold_anything(new: Any) -> None:
    for number, path in PLACES:
        frames_ = list(VALID)
        frames_[number] = with_change(VALID[number], path, new)
        check_decoding("openrouter", frames_)


def test_a_field_of_the_wrong_type_does_not_affect_other_fields() -> None:
    """If one field has the wrong type, the rest of the chunk is still decoded."""
    odd_ones = {"refusal": 5, "tool_calls": "x", "reasoning_details": 5, "annotations": {"a": 1}, "audio": 1}
    for name, odd in odd_ones.items():
        assert kinds_and_texts_of({"reasoning": "a", "content": "b", name: odd}) == [("thinking", "a"), ("text", "b")]
    one = call("{}", name="f", id="a", index=0)
    assert kinds_and_texts_of({"tool_calls": [1, one]}, finish="tool_calls") == [("tool-call", "{}")]
    assert kinds_and_texts_of({"tool_calls": one}, finish="tool_calls") == [("tool-call", "{}")]


@given(
    st.binary(max_size=200)
    | st.lists(
        st.sampled_from(
            [
                b"data: ",
                b"{",
                b"}",
                b'"choices":',
                b"[",
                b"]",
                b"\n\n",
                b"\r",
                b"event: error\n",
                b'{"delta":{"content":"a"}}',
                b"[DONE]",
                b"\xff",
                b'"error":',
                b"5",
                b",",
                b":",
            ]
        ),
        max_size=30,
    ).map(b"".join)
)
def test_any_bytes_give_a_valid_turn(data: bytes) -> None:
    folded("groq", data)
    folded("groq", [data[at : at + 1] for at in range(len(data))])


def test_a_stream_with_flipped_bytes_gives_a_valid_turn() -> None:
    with Cases() as case:
        for seed in range(by_circle(25, 300)):
            dice = random.Random(seed)
            data = bytearray(sse(*VALID))
            for _ in range(dice.randrange(1, 20)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            with case(f"seed {seed}"):
                folded("openrouter", bytes(data))


def test_deltas_are_emitted_by_the_read_that_contains_them() -> None:
    """A thinking delta is emitted as soon as its bytes are received, before the end of the stream."""
    for row in sorted(ROWS):
        reader = WIRES["openai_chat"].decoder(ROWS[row], origin(row))
        for number in range(3):
            events = reader.feed(sse(chunk(reasoning=f"r{number}"), done=False))
            assert any(isinstance(event, PartDeltaEvent) for event in events)


def test_a_tool_call_part_has_all_arguments_at_its_end() -> None:
    response = response_of("openai", stream({"tool_calls": [call('{"x":1}', name="f", id="a", index=0)]}))
    assert response.parts == [ToolCallPart("f", '{"x":1}', "a")]
    assert thoughts(response) == []


def test_a_choice_with_another_index_is_read() -> None:
    response = folded(
        "openai-compat", sse(chunk(choice={"index": 1}, content="hi"), chunk("stop", choice={"index": 1}))
    )
    assert response.response is not None
    assert response.response.text == "hi"


def test_data_after_done_is_ignored() -> None:
    once = sse(chunk(content="hi"), chunk("stop"))
    response = folded("openai-compat", once + once).response
    assert response is not None
    assert response.text == "hi"


@pytest.mark.parametrize("cut", range(5))
def test_a_byte_order_mark_before_a_body_is_ignored(cut: int) -> None:
    data = b"\xef\xbb\xbf" + body(content="yes")
    assert response_of("openai", [data[:cut], data[cut:]]).text == "yes"
