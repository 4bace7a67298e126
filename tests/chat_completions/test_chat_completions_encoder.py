"""The encoder's stream is legal for any run, fits our schemas and the official client's types, and loses nothing."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import Cause, Event, ItemEndEvent
from pellucid.parts import RefusalPart, SealedPart, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart, Usage
from pellucid.protocols.chat_completions.verify import verify
from pellucid.run import CallTools, Minter, Run
from pellucid.settings import ModelCall
from pellucid.unicode import replace_surrogates
from tests.batching import batch_sizes, in_batches
from tests.chat_completions.chat_completions_kit import (
    ID,
    MODEL,
    NOW,
    ORIGIN,
    accumulate,
    calls_of,
    causes,
    check_chunks,
    check_completion,
    chunks_of,
    completion_of,
    content_of,
    emit_step,
    encode,
    join_deltas,
    make_encoder,
    normalize,
    parts_of,
    parts_sent_back,
    reasoning_of,
    refusal_of,
    run_events,
    run_of,
    step_lists,
    turns,
)

seals = st.integers(0, 2)
fields = st.sampled_from(["both", "reasoning_content", "reasoning"])


@given(turns, causes, seals, fields, st.booleans(), st.booleans())
def test_any_run_gives_a_legal_stream_with_all_its_content(
    script: list[Any], cause: Cause, sealed: int, reasoning_fields: Any, include_usage: bool, obfuscate: bool
) -> None:
    batches, run = run_of(script, cause, sealed)
    stream = encode(batches, fields=reasoning_fields, include_usage=include_usage, obfuscate=obfuscate)
    assert verify(stream) == []
    chunks = chunks_of(stream)
    check_chunks(chunks)
    messages = list(run.messages)
    for name in ("reasoning_content", "reasoning"):
        assert join_deltas(chunks, name) == (reasoning_of(messages) if reasoning_fields in ("both", name) else None)
    assert join_deltas(chunks, "content") == content_of(messages)
    assert join_deltas(chunks, "refusal") == refusal_of(messages)
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk.get("choices", []):
            for call in choice["delta"].get("tool_calls", []):
                calls.setdefault(call["index"], [call.get("id"), call["function"].get("name"), ""])
                calls[call["index"]][2] += call["function"]["arguments"]
    assert [tuple(call) for call in calls.values()] == calls_of(messages)


@given(turns, causes, seals, fields)
def test_the_official_client_accumulates_the_whole_completion(
    script: list[Any], cause: Cause, sealed: int, reasoning_fields: Any
) -> None:
    batches, run = run_of(script, cause, sealed)
    assert run.run_end is not None
    if run.run_end.status == "failed":
        return
    completion = completion_of(batches, fields=reasoning_fields)
    check_completion(completion)
    assert accumulate(chunks_of(encode(batches, fields=reasoning_fields, include_usage=True))) == normalize(completion)


@given(turns, causes, seals, st.booleans(), batch_sizes)
def test_batch_boundaries_change_no_byte_and_no_event_is_cut(
    script: list[Any], cause: Cause, sealed: int, obfuscate: bool, sizes: list[int]
) -> None:
    events = [event for batch in run_of(script, cause, sealed)[0] for event in batch]
    at_once = encode([events], obfuscate=obfuscate)
    encoder = make_encoder(obfuscate=obfuscate)
    pieces = [encoder.start(), *(encoder.feed(batch, NOW + 1) for batch in in_batches(events, sizes))]
    assert b"".join(pieces) == at_once
    assert all(piece.endswith(b"\n\n") for piece in pieces if piece)


@given(step_lists, st.integers(0, 60), st.booleans())
def test_a_run_that_is_cut_anywhere_gives_a_closed_and_legal_stream(steps: Any, count: int, cancel: bool) -> None:
    emitter = Emitter(ORIGIN)
    for call in steps:
        emit_step(emitter, *call)
    run = Run(ModelCall("m", []), Minter(b"seed"))
    events, _ = run.feed(emitter.end()[:count])
    if cancel:
        run.cancel()
    stream = encode([events + run.end()])
    assert verify(stream) == []
    check_chunks(chunks_of(stream))


def text_and_call_count(parts: list[Any]) -> tuple[str, int]:
    """The text without white space, and the number of calls."""
    text = "".join(part.content for part in parts if isinstance(part, TextPart))
    return replace_surrogates("".join(text.split())), sum(isinstance(part, ToolCallPart) for part in parts)


def parts_until(parts: list[Any], item: str, hidden: list[Any]) -> list[Any]:
    """The visible parts up to the end of that item."""
    last = max((place for place, part in enumerate(parts) if getattr(part, "item_id", None) == item), default=None)
    assert last is not None
    return [part for part in parts[: last + 1] if getattr(part, "item_id", None) not in hidden]


@given(step_lists, st.sampled_from(["stop", "length"]), seals, st.booleans())
def test_a_returned_message_is_parsed_to_the_same_parts(steps: Any, reason: Any, sealed: int, streamed: bool) -> None:
    batches, run = run_of([(steps, reason, Usage())], "eof", sealed)
    assert run.run_end is not None
    if run.run_end.status == "failed":
        return
    completion = completion_of(batches)
    [choice] = completion["choices"]
    accumulated = accumulate(chunks_of(encode(batches)))
    message = accumulated["message"] | {"reasoning_details": accumulated["details"]} if streamed else choice["message"]
    parts = parts_sent_back(message)
    messages = list(run.messages)
    # Every seal, in its order among those of calls and among the others.
    items = [event.seal for [event] in batches if isinstance(event, ItemEndEvent) and event.seal]
    hidden = [getattr(part, "item_id", None) for part in parts_of(messages) if getattr(part, "tool_name", None) == "f0"]
    visible_seals = [seal for seal in items if seal.removeprefix("seal.of.") not in hidden]
    tokens = [part.token for part in parts if isinstance(part, SealedPart)]
    assert sorted(tokens) == sorted(visible_seals)
    assert [token for token in tokens if ".fc_" in token] == [seal for seal in visible_seals if ".fc_" in seal]
    assert [token for token in tokens if ".fc_" not in token] == [seal for seal in visible_seals if ".fc_" not in seal]
    # Every thought once: sealed, or as text.
    thoughts = [part for part in parts if isinstance(part, ThinkingPart)]
    if any(".rs_" in token for token in tokens):
        assert thoughts == []
    else:
        letters = Counter("".join((reasoning_of(messages) or "").split()))
        assert Counter("".join("".join(part.content.split()) for part in thoughts)) == letters
    assert "".join(part.content for part in parts if isinstance(part, TextPart)) == (content_of(messages) or "")
    assert "".join(part.content for part in parts if isinstance(part, RefusalPart)) == (refusal_of(messages) or "")
    calls = [(part.tool_call_id, part.tool_name, part.args) for part in parts if isinstance(part, ToolCallPart)]
    assert calls == calls_of(messages)
    # The parts are in the wire's order, except that a sealed part comes after what preceded it.
    if not tokens:
        order = [_ORDER[type(part)] for part in parts]
        assert order == sorted(order)
    for place, part in enumerate(parts):
        if isinstance(part, SealedPart):
            assert text_and_call_count(parts[:place]) == text_and_call_count(
                parts_until(parts_of(messages), part.token.removeprefix("seal.of."), hidden)
            )


_ORDER = {ThinkingPart: 0, TextPart: 1, RefusalPart: 2, ToolCallPart: 3}


@given(st.text(), st.integers(1, 5))
def test_text_is_conserved_character_by_character(text: str, size: int) -> None:
    emitter = Emitter(ORIGIN)
    for kind in (emitter.thinking, emitter.text):
        for at in range(0, len(text), size):
            kind("k", text[at : at + size])
    chunks = chunks_of(encode([run_events(emitter.end())]))
    for name in ("reasoning", "reasoning_content", "content"):
        is_nothing = name != "content" and not text.strip()
        assert (join_deltas(chunks, name) or "") == ("" if is_nothing else text)


# --- single cases -------------------------------------------------------------------------------------------------


def batch_of(*steps: tuple[str, int, str], reason: Any = "stop", usage: Usage | None = None) -> list[Event]:
    emitter = Emitter(ORIGIN)
    for call in steps:
        emit_step(emitter, *call)
    emitter.finish(reason)
    emitter.usage = usage or Usage()
    return run_events(emitter.end())


def deltas_of(stream: bytes) -> list[dict[str, Any]]:
    assert verify(stream) == []
    check_chunks(chunks_of(stream))
    return [chunk["choices"][0]["delta"] for chunk in chunks_of(stream) if chunk.get("choices")]


def test_the_bytes_of_a_stream() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "Let me see.")
    emitter.text("t", "42")
    stream = encode([run_events(emitter.end())], include_usage=True).decode()
    head = f'{{"id":{json.dumps(ID)},"object":"chat.completion.chunk","created":{NOW},"model":"{MODEL}","choices":'
    tail = ',"finish_reason":null}],"usage":null}'
    lines = [
        f'data: {head}[{{"index":0,"delta":{{"role":"assistant","content":null}}{tail}',
        f'data: {head}[{{"index":0,"delta":{{"reasoning_content":"Let me see.","reasoning":"Let me see."}}{tail}',
        f'data: {head}[{{"index":0,"delta":{{"content":"42"}}{tail}',
        f'data: {head}[{{"index":0,"delta":{{}},"finish_reason":"stop"}}],"usage":null}}',
        "data: [DONE]",
        "",
    ]
    assert stream.split("\n\n") == lines


def test_reasoning_parts_are_separated_and_a_summary_is_marked_in_the_details() -> None:
    steps = [("summary", 0, "short"), ("thinking", 0, "long"), ("text", 0, "said"), ("thinking", 1, "more")]
    batch = batch_of(*steps)
    deltas = deltas_of(encode([batch]))
    assert [delta["reasoning"] for delta in deltas if "reasoning" in delta] == ["short", "\n\nlong", "\n\nmore"]
    summary = {"type": "reasoning.summary", "summary": "short", "index": 0}
    assert [delta["reasoning_details"] for delta in deltas if "reasoning_details" in delta] == [[summary]]
    message = completion_of([batch])["choices"][0]["message"]
    assert message["reasoning_details"] == [
        summary,
        {"type": "reasoning.text", "text": "long"},
        {"type": "reasoning.text", "text": "more"},
    ]
    streamed = {**message, "reasoning_details": [summary]}
    thoughts = [ThinkingPart("short", form="summary"), ThinkingPart("long"), ThinkingPart("more")]
    assert parts_sent_back(message) == [*thoughts, TextPart("said")]
    assert parts_sent_back(streamed) == [thoughts[0], ThinkingPart("long\n\nmore"), TextPart("said")]


def test_raw_reasoning_alone_has_no_details() -> None:
    batch = batch_of(("thinking", 0, "t"), ("text", 0, "a"))
    assert "reasoning_details" not in completion_of([batch])["choices"][0]["message"]
    assert b"reasoning_details" not in encode([batch])


def test_a_signature_without_text_is_shown_only_as_its_seal() -> None:
    batches, _ = run_of([([("seal", 0, "blob")], "stop", Usage())], "eof", 1)
    [entry] = [delta["reasoning_details"] for delta in deltas_of(encode(batches)) if "reasoning_details" in delta]
    id = entry[0]["id"]
    assert id.startswith("rs_")
    assert entry == [
        {"type": "reasoning.encrypted", "data": f"seal.of.{id}", "id": id, "format": "pellucid-v1", "index": 0}
    ]
    assert parts_sent_back(completion_of(batches)["choices"][0]["message"]) == [SealedPart(f"seal.of.{id}", id)]


@pytest.mark.parametrize("unshown", ["builtin", "file", "opaque", "compaction", "seal", "item", "sealed"])
def test_a_part_without_a_field_leaves_no_trace(unshown: str) -> None:
    batch = batch_of(("thinking", 0, "t"), (unshown, 0, "CANARY"), ("text", 0, "a"), (unshown, 0, "CANARY"))
    assert b"CANARY" not in encode([batch])
    assert "CANARY" not in json.dumps(completion_of([batch]))


def tool_loop() -> tuple[list[list[Event]], Run]:
    """A run of two turns: the first calls a server tool between texts, the second answers."""
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools=frozenset({"f0"}))
    run.start()
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "Look it up.")
    emitter.text("t", "One moment.")
    emitter.tool_call("c", '{"q":1}', name="f0", call_id="hidden")
    emitter.finish("tool_call")
    first, [effect] = run.feed(emitter.end())
    assert isinstance(effect, CallTools)
    results, _ = run.add_results([ToolReturnPart("f0", "CANARY", "hidden")])
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "There it is.")
    emitter.text("t", "42", annotations=[{"type": "url_citation", "url": "u", "start_index": 0, "end_index": 2}])
    second, _ = run.feed(emitter.end())
    return [first, results, second], run


def test_a_tool_loop_is_one_message_without_the_server_s_calls() -> None:
    batches, _ = tool_loop()
    stream = encode(batches)
    assert verify(stream) == []
    assert b"tool_calls" not in stream
    assert b"CANARY" not in stream
    whole = completion_of(batches)
    [choice] = whole["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == "One moment.\n\n42"
    assert choice["message"]["reasoning"] == "Look it up.\n\nThere it is."
    # The citation's indexes refer to the joined text.
    [annotation] = choice["message"]["annotations"]
    place = annotation["url_citation"]
    assert choice["message"]["content"][place["start_index"] : place["end_index"]] == "42"
    assert accumulate(chunks_of(stream)) == normalize(whole)


def test_only_calls_of_the_client_s_functions_are_shown() -> None:
    steps = [("call", 0, "{}"), ("dict", 0, ""), ("call", 1, '{"a":'), ("args", 1, "1}")]
    batches, _ = run_of([(steps, "tool_call", Usage())], "eof", 2)
    whole = completion_of(batches)
    [choice] = whole["choices"]
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["f0{}", 'f1{"a":']
    assert choice["finish_reason"] == "tool_calls"


def test_a_call_begins_with_its_name_and_goes_on_with_its_arguments() -> None:
    emitter = Emitter(ORIGIN)
    emitter.tool_call("a", "", name="f", call_id="c1")
    emitter.tool_call("a", '{"x"')
    emitter.tool_call("a", ":1}")
    emitter.tool_call("b", "", name="now", call_id="c2")
    deltas = deltas_of(encode([run_events(emitter.end())]))
    assert [delta["tool_calls"][0] for delta in deltas[1:-1]] == [
        {"index": 0, "function": {"arguments": "", "name": "f"}, "id": "c1", "type": "function"},
        {"index": 0, "function": {"arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": ":1}"}},
        {"index": 1, "function": {"arguments": "", "name": "now"}, "id": "c2", "type": "function"},
        {"index": 1, "function": {"arguments": "{}"}},
    ]


@pytest.mark.parametrize(
    ("reason", "finish"), [(None, "stop"), ("stop", "stop"), ("length", "length"), ("content_filter", "content_filter")]
)
def test_finish_reasons_are_mapped(reason: Any, finish: str) -> None:
    batch = batch_of(("text", 0, "a"), reason=reason)
    assert chunks_of(encode([batch]))[-1]["choices"][0]["finish_reason"] == finish
    assert completion_of([batch])["choices"][0]["finish_reason"] == finish


def test_a_cancelled_answer_has_the_finish_reason_length() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("k", "half a th")
    run = Run(ModelCall("m", []), Minter(b""))
    run.cancel()
    batch = run.feed(emitter.end("cancelled"))[0]
    assert chunks_of(encode([batch]))[-1]["choices"][0]["finish_reason"] == "length"


def test_a_failed_stream_keeps_its_deltas_and_ends_with_the_error() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "kept")
    emitter.fail(ErrorInfo("model_error", "the model broke", code="c", param="p", upstream_message="out of memory"))
    encoder = make_encoder(include_usage=True)
    stream = encoder.start() + encoder.feed(run_events(emitter.end()), NOW)
    assert verify(stream) == []
    error = {"message": "the model broke: out of memory", "type": "model_error", "param": "p", "code": "c"}
    assert chunks_of(stream)[-1] == {"error": error}
    assert join_deltas(chunks_of(stream), "reasoning") == "kept"
    assert encoder.ended
    assert encoder.error is not None


def test_usage_is_the_last_chunk_where_requested_and_omits_unknown_counts() -> None:
    batch = batch_of(("text", 0, "a"), usage=Usage(7, 5, 3, 2))
    assert b"usage" not in encode([batch])
    *chunks, last = chunks_of(encode([batch], include_usage=True))
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert completion_of([batch])["usage"] == last["usage"]
    assert "details" not in json.dumps(completion_of([batch_of(("text", 0, "a"), usage=Usage(7, 5))])["usage"])
    unknown = batch_of(("text", 0, "a"))
    assert "usage" not in completion_of([unknown])
    assert chunks_of(encode([unknown], include_usage=True))[-1]["choices"] != []


def test_logprobs_are_in_the_chunk_of_their_text_and_have_every_field() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "é", logprobs=[{"token": "é", "logprob": -0.1, "bytes": None}])
    batch = run_events(emitter.end())
    entry = {"token": "é", "logprob": -0.1, "bytes": [195, 169], "top_logprobs": []}
    [choice] = [chunk["choices"][0] for chunk in chunks_of(encode([batch])) if chunk["choices"][0].get("logprobs")]
    assert (choice["delta"], choice["logprobs"]["content"]) == ({"content": "é"}, [entry])
    assert completion_of([batch])["choices"][0]["logprobs"] == {"content": [entry], "refusal": None}


def test_a_queued_stream_begins_with_a_comment() -> None:
    encoder = make_encoder()
    stream = encoder.start(queued=True) + encoder.feed(batch_of(("text", 0, "a")), NOW)
    assert stream.startswith(b": queued\n\ndata: ")
    assert verify(stream) == []


def test_obfuscation_pads_every_delta_to_a_multiple_of_32() -> None:
    emitter = Emitter(ORIGIN)
    for at in range(40):
        emitter.text("t", "é\n" * at)
    for chunk in chunks_of(encode([run_events(emitter.end())], obfuscate=True)):
        text = chunk["choices"][0]["delta"].get("content")
        if text:
            assert (len(json.dumps(text, ensure_ascii=False).encode()) + len(chunk["obfuscation"])) % 32 == 0


def test_very_long_text_is_not_truncated() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "x" * 5_000_000)
    assert len(join_deltas(chunks_of(encode([run_events(emitter.end())])), "reasoning") or "") == 5_000_000


def test_opaque_data_that_json_cannot_hold_does_not_break_the_stream() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "t", details={"native": deep, "what": object()})
    emitter.item("i", "reasoning", native=deep)
    emitter.fail(ErrorInfo("model_error", "broke \ud83d", native=deep))
    assert verify(encode([run_events(emitter.end())])) == []
