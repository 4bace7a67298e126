"""The encoder's stream is legal for any run, fits both schemas, and loses nothing."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import Cause, Event, ModelEvent
from pellucid.parts import (
    BuiltinToolCallPart,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    OpaquePart,
    RefusalPart,
    RetryPromptPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)
from pellucid.protocols.openresponses.verify import verify
from pellucid.run import CallTools, Effect, Minter, Run
from pellucid.settings import ModelCall
from tests.batching import batch_sizes, in_batches
from tests.openresponses.openresponses_kit import (
    ALIASES,
    NOW,
    ORIGIN,
    check_events,
    encode,
    event_types,
    events_of,
    make_encoder,
    run_events,
    schemas,
)

# Text that looks like a template, a frame or the end of a stream; characters that JSON escapes; lone surrogates.
PIECES = ["", "a", "%s%d%", '"\\/', "\n\ndata: [DONE]\n\n", "\u2028\u2029\x85", "\x00\x1f\x7f", "😀é", "\ud83d", "{}"]
CITATION = {"type": "url_citation", "url": "https://e.org/\udc00", "title": 5, "start_index": True, "end_index": 2**70}
LOGPROBS: list[dict[str, Any]] = [
    {"token": "a\ud800", "logprob": float("-inf"), "bytes": None, "top_logprobs": 5},
    {"token": "b", "logprob": 10**400, "bytes": [True], "top_logprobs": [{"token": "c"}, None, {"logprob": -1}]},
    {"logprob": -0.5},
]
USAGES = [Usage(), Usage(7, 5, 3), Usage(output_tokens=4, cache_read_tokens=2**70)]

step_lists = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["thinking", "summary", "sealed", "seal", "item", "text", "cite", "refusal", "call", "args", "dict"],
                *["close", "builtin", "file", "opaque", "compaction", "fail"],
            ]
        ),
        st.integers(0, 2),
        st.sampled_from(PIECES),
    ),
    max_size=16,
)
turns = st.lists(
    st.tuples(
        step_lists,
        st.sampled_from([None, "stop", "tool_call", "length", "content_filter", "error"]),
        st.sampled_from(USAGES),
    ),
    min_size=1,
    max_size=3,
)


def emit_step(emitter: Emitter, what: str, key: int, text: str) -> None:
    match what:
        case "thinking":
            emitter.thinking(("raw", key), text, item=("r", key // 2), form="redacted" if key == 2 else "raw")
        case "summary":
            emitter.thinking(("sum", key), text, item=("r", key // 2), form="summary")
        case "sealed":
            emitter.whole_part(SealedPart(text), item=("r", key))
        case "seal":
            emitter.thinking(("raw", key), signature=f"s{text}", details={"d": text})
        case "text":
            emitter.text(("t", key), text, logprobs=LOGPROBS if key == 1 else None)
        case "cite":
            nested = {"type": "url_citation", "url_citation": {"url": text}}
            emitter.text(("t", key), text, annotations=[CITATION, nested, {"type": "file_citation"}])
        case "refusal":
            emitter.refusal(("x", key), text)
        case "call":
            emitter.tool_call(("f", key), text, name=f"f{key}{text}", call_id=f"c{key % 2}" if key else None)
        case "args":
            emitter.tool_call(("f", key), text)
        case "dict":
            args = {text: text} if text.isprintable() and text else {}
            emitter.tool_call(("f", key), args, name=f"f{key}", signature=text)
        case "close":
            for kind in ("raw", "sum", "t", "f"):
                emitter.close((kind, key))
        case "item":
            emitter.item(("i", key), "reasoning", signature=text)
        case "builtin":
            emitter.whole_part(BuiltinToolCallPart("search", {"q": 1}, "b"))
        case "file":
            emitter.whole_part(FilePart("aGk=", "image/png"))
        case "opaque":
            emitter.whole_part(OpaquePart("x", {"secret": text}))
        case "compaction":
            emitter.whole_part(CompactionPart(text, signature="sig"))
        case "fail" if key == 2:
            emitter.fail(ErrorInfo("model_error", f"broke: {text}", code="c" if text else None, param=text))


def run_of(script: list[Any], cause: Cause) -> tuple[list[list[Event]], Run]:
    """The batches of a run with a server tool (`f0`), one for each step, and the run."""
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools=frozenset({"f0"}), max_tool_calls=5)
    run.start()
    batches: list[list[Event]] = []
    for steps, reason, usage in script:
        emitter = Emitter(ORIGIN)
        batches_of_turn: list[list[ModelEvent]] = []
        for call in steps:
            emit_step(emitter, *call)
            batches_of_turn.append(emitter.take())
        emitter.usage = usage
        emitter.finish(reason)
        batches_of_turn.append(emitter.end(cause if steps == script[-1][0] else "eof"))
        effects: list[Effect] = []
        for batch in batches_of_turn:
            events, effects = run.feed(batch)
            batches.append(events)
        if run.run_end is not None:
            return batches, run
        [tools] = effects
        assert isinstance(tools, CallTools)
        results: list[ToolReturnPart | RetryPromptPart] = [
            ToolReturnPart(call.tool_name, "\udcff no", call.tool_call_id)
            if at % 2
            else RetryPromptPart("again", call.tool_name, call.tool_call_id)
            for at, call in enumerate(tools.calls)
        ]
        events, _ = run.add_results(results)
        batches.append(events)
    batches.append(run.end(ErrorInfo("timeout", "the model was not called again")))
    return batches, run


def replace_lone_surrogates(text: str) -> str:
    """`text` with lone surrogates replaced, as JSON cannot hold them."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def output_of_parts(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """The output expected of these messages, made from their parts: kind, id and text of each item."""
    out: list[dict[str, Any]] = []
    for message in messages:
        if isinstance(message, ModelRequest):
            for result in message.parts:
                assert isinstance(result, ToolReturnPart | RetryPromptPart)
                out.append({"call_id": result.tool_call_id, "output": replace_lone_surrogates(str(result.content))})
            continue
        for part in message.parts:
            entry: dict[str, Any] = {"id": getattr(part, "item_id", None)}
            match part:
                case ThinkingPart(form="summary"):
                    entry["summary"] = [replace_lone_surrogates(part.content)] if part.content else []
                case ThinkingPart():
                    entry["content"] = [replace_lone_surrogates(part.content)] if part.content else []
                case SealedPart():
                    entry["content"] = []
                case TextPart() | RefusalPart():
                    entry["content"] = [replace_lone_surrogates(part.content)]
                case ToolCallPart():
                    entry |= {"call_id": part.tool_call_id, "name": replace_lone_surrogates(part.tool_name)}
                    entry["arguments"] = replace_lone_surrogates(
                        "" if not part.complete and not part.args else part.args_as_json()
                    )
                case _:
                    continue
            if out and out[-1].get("id") == entry["id"] and "call_id" not in entry:
                for field in ("content", "summary"):
                    if field in entry:
                        out[-1][field] = out[-1].get(field, []) + entry[field]
            else:
                out.append(entry)
    return out


def output_of_items(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same fields of the items that a client receives."""
    out: list[dict[str, Any]] = []
    for item in output:
        if item["type"] == "function_call_output":
            out.append({"call_id": item["call_id"], "output": item["output"]})
        elif item["type"] == "function_call":
            out.append({field: item[field] for field in ("id", "call_id", "name", "arguments")})
        else:
            entry = {"id": item["id"]}
            for field in ("content", "summary"):
                entry[field] = [part.get("text", part.get("refusal")) for part in item.get(field, [])]
            out.append(entry)
    return out


def drop_empty_fields(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if value != []} for item in items]


@given(turns, st.sampled_from(["eof", "error", "cancelled"]))
def test_any_run_gives_a_legal_stream_that_fits_the_schemas(script: list[Any], cause: Cause) -> None:
    batches, run = run_of(script, cause)
    stream = encode(batches)
    assert verify(stream) == []
    events = events_of(stream)
    check_events(events)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    # The conversation continues with the output that the client has.
    assert drop_empty_fields(output_of_items(events[-1]["response"]["output"])) == drop_empty_fields(
        output_of_parts(list(run.messages))
    )


@given(turns, st.sampled_from(["eof", "error", "cancelled"]), st.booleans(), batch_sizes)
def test_batch_boundaries_change_no_byte_and_no_event_is_cut(
    script: list[Any], cause: Cause, obfuscate: bool, sizes: list[int]
) -> None:
    events = [event for batch in run_of(script, cause)[0] for event in batch]
    at_once = encode([events], obfuscate=obfuscate)
    encoder = make_encoder(obfuscate=obfuscate)
    pieces = [encoder.start(), *(encoder.feed(batch, NOW + 1) for batch in in_batches(events, sizes))]
    assert b"".join(pieces) == at_once
    assert all(piece.endswith(b"\n\n") for piece in pieces if piece)


@given(turns, st.sampled_from(["eof", "error"]))
def test_the_response_without_a_stream_is_that_of_the_terminal_event(script: list[Any], cause: Cause) -> None:
    batches, _ = run_of(script, cause)
    encoder = make_encoder()
    stream = encoder.start() + b"".join(encoder.feed(batch, NOW) for batch in batches)
    whole = json.loads(msgspec.json.encode(encoder.response))
    assert whole == events_of(stream)[-1]["response"]
    for schema, name in zip(schemas(), ("Response", "ResponseResource"), strict=False):
        assert schema.errors(name, whole) == []


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
    check_events(events_of(stream))


@given(turns)
def test_in_openai_s_dialect_only_names_and_the_form_of_the_error_differ(script: list[Any]) -> None:
    batches, _ = run_of(script, "eof")
    ours, theirs = encode(batches), encode(batches, "openai")
    assert verify(theirs, "openai") == []
    renamed = []
    for event in events_of(theirs):
        if event["type"] == "error":
            inner = next(own for own in events_of(ours) if own["type"] == "error")["error"]
            flat = {name: event.pop(name) for name in ("code", "message", "param")}
            assert flat == {name: inner[name] for name in flat}
            event["error"] = inner
        elif event["type"] in ALIASES:
            assert schemas()[0].errors(event["type"], event) == []
        renamed.append({**event, "type": ALIASES.get(event["type"], event["type"])})
    assert renamed == events_of(ours)


@given(st.text(), st.integers(1, 5))
def test_text_is_conserved_character_by_character(text: str, size: int) -> None:
    emitter = Emitter(ORIGIN)
    for kind in (emitter.thinking, emitter.text):
        for at in range(0, len(text), size):
            kind("k", text[at : at + size])
    events = events_of(encode([run_events(emitter.end())]))
    for name in ("response.reasoning", "response.output_text"):
        deltas = "".join(event["delta"] for event in events if event["type"] == f"{name}.delta")
        done = "".join(event["text"] for event in events if event["type"] == f"{name}.done")
        is_nothing = name == "response.reasoning" and not text.strip()
        assert deltas == done == ("" if is_nothing else text)


# --- single cases -------------------------------------------------------------------------------------------------


def legal_events(
    *steps: tuple[str, int, str], reason: Any = "stop", usage: Usage | None = None
) -> list[dict[str, Any]]:
    emitter = Emitter(ORIGIN)
    for call in steps:
        emit_step(emitter, *call)
    emitter.finish(reason)
    emitter.usage = usage or Usage()
    stream = encode([run_events(emitter.end())])
    assert verify(stream) == []
    check_events(events_of(stream))
    return events_of(stream)


def test_a_signature_alone_is_an_item_without_deltas() -> None:
    events = legal_events(("seal", 0, "blob"))
    assert event_types(events)[2:-1] == ["output_item.added", "output_item.done"]
    assert set(events[3]["item"]) == {"type", "id", "summary", "status"}


def test_a_signature_before_its_text_opens_nothing_until_the_text_comes() -> None:
    events = legal_events(("seal", 0, "early"), ("thinking", 0, "then text"))
    assert event_types(events)[2:6] == ["output_item.added", "content_part.added", "reasoning.delta", "reasoning.done"]


def test_summaries_count_by_summary_index_and_raw_text_by_content_index() -> None:
    events = legal_events(("summary", 0, "s0"), ("summary", 1, "s1"), ("thinking", 0, "raw"), ("thinking", 1, "more"))
    assert event_types(events)[2:-1] == [
        "output_item.added",
        *["reasoning_summary_part.added", "reasoning_summary_text.delta"],
        *["reasoning_summary_text.done", "reasoning_summary_part.done"],
        *["reasoning_summary_part.added", "reasoning_summary_text.delta"],
        *["reasoning_summary_text.done", "reasoning_summary_part.done"],
        *["content_part.added", "reasoning.delta", "reasoning.done", "content_part.done"],
        *["content_part.added", "reasoning.delta", "reasoning.done", "content_part.done"],
        "output_item.done",
    ]
    deltas = [event for event in events if event["type"].endswith(".delta")]
    assert [event.get("summary_index", event.get("content_index")) for event in deltas] == [0, 1, 0, 1]
    [item] = events[-1]["response"]["output"]
    assert [part["text"] for part in item["summary"]] == ["s0", "s1"]
    assert [part["text"] for part in item["content"]] == ["raw", "more"]


def test_reasoning_after_text_is_a_second_item() -> None:
    events = legal_events(("thinking", 0, "one"), ("text", 0, "said"), ("thinking", 0, "two"))
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "reasoning"]
    assert len({item["id"] for item in output}) == 3


@pytest.mark.parametrize("unshown", ["builtin", "file", "opaque", "compaction"])
def test_a_part_without_an_output_item_takes_no_index_and_leaves_no_trace(unshown: str) -> None:
    events = legal_events(("thinking", 0, "t"), (unshown, 0, "CANARY"), ("text", 0, "a"), (unshown, 0, "CANARY"))
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [(event["output_index"], event["item"]["type"]) for event in added] == [(0, "reasoning"), (1, "message")]
    assert "CANARY" not in json.dumps(events)


def test_opaque_data_of_reasoning_is_not_shown() -> None:
    events = legal_events(("seal", 0, "CANARY"), ("thinking", 0, "t"), ("item", 0, "CANARY"), ("sealed", 0, "CANARY"))
    assert "CANARY" not in json.dumps(events)


def test_a_refusal_is_a_content_part_of_the_message() -> None:
    events = legal_events(("text", 0, "Well,"), ("refusal", 0, "no."))
    assert event_types(events)[2:-1] == [
        "output_item.added",
        *["content_part.added", "output_text.delta", "output_text.done", "content_part.done"],
        *["content_part.added", "refusal.delta", "refusal.done", "content_part.done"],
        "output_item.done",
    ]
    assert events[-1]["response"]["output"][0]["content"][1] == {"type": "refusal", "refusal": "no."}


@pytest.mark.parametrize(
    ("annotation", "title"),
    [
        ({"type": "url_citation", "url": "https://e.org", "title": "T", "start_index": 1, "end_index": 2}, "T"),
        ({"type": "url_citation", "url_citation": {"url": "https://e.org", "start_index": 1, "end_index": 2}}, ""),
    ],
)
def test_citations_flat_and_nested_are_events_and_part_of_the_text(annotation: dict[str, Any], title: str) -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "see", annotations=[annotation])
    emitter.text("t", annotations=[annotation, {"type": "file_citation", "file_id": "f"}])
    events = events_of(encode([run_events(emitter.end())]))
    citation = {"type": "url_citation", "url": "https://e.org", "title": title, "start_index": 1, "end_index": 2}
    added = [event for event in events if event["type"] == "response.output_text.annotation.added"]
    assert [(event["annotation_index"], event["annotation"]) for event in added] == [(0, citation), (1, citation)]
    assert events[-1]["response"]["output"][0]["content"][0]["annotations"] == [citation, citation]


def test_logprobs_have_every_field_even_where_the_provider_gave_none() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "é", logprobs=[{"token": "é", "logprob": -0.1, "bytes": None}])
    events = events_of(encode([run_events(emitter.end())]))
    check_events(events)
    whole = [{"token": "é", "logprob": -0.1, "bytes": [195, 169], "top_logprobs": []}]
    assert [event["logprobs"] for event in events if event["type"].startswith("response.output_text.d")] == [whole] * 2


def test_unknown_usage_is_null_and_known_usage_has_a_total() -> None:
    assert legal_events(("text", 0, "a"))[-1]["response"]["usage"] is None
    usage = legal_events(("text", 0, "a"), usage=Usage(7, 5, 3, 2))[-1]["response"]["usage"]
    assert usage == {
        "input_tokens": 7,
        "output_tokens": 5,
        "total_tokens": 12,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 3},
    }


@pytest.mark.parametrize("args", ["", {}])
def test_a_call_without_arguments_has_an_empty_object(args: Any) -> None:
    emitter = Emitter(ORIGIN)
    emitter.tool_call("f", args, name="now", call_id="c")
    stream = encode([run_events(emitter.end())])
    assert verify(stream) == []
    assert events_of(stream)[-1]["response"]["output"][0]["arguments"] == "{}"


def test_an_interrupted_call_keeps_its_partial_arguments() -> None:
    for text in ("", '{"city": "Par'):
        response = legal_events(("call", 0, text), reason="length")[-1]["response"]
        assert response["status"] == "incomplete"
        [call] = response["output"]
        assert (call["status"], call["arguments"]) == ("incomplete", text)


def test_a_cancelled_run_is_incomplete_with_the_reason_cancelled() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "half a th")
    run = Run(ModelCall("m", []), Minter(b""))
    run.cancel()
    events = events_of(encode([run.feed(emitter.end("cancelled"))[0]]))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "cancelled"}


def test_a_failed_stream_keeps_its_output_and_has_an_error_and_a_failed_event() -> None:
    events = legal_events(("thinking", 0, "kept"), ("fail", 2, "why"))
    error, failed = events[-2:]
    assert error["error"] == {"type": "model_error", "code": "c", "message": "broke: why", "param": "why"}
    assert failed["response"]["error"] == {"code": "c", "message": "broke: why"}
    assert failed["response"]["output"][0]["content"][0]["text"] == "kept"
    assert failed["response"]["output"][0]["status"] == "incomplete"
    assert failed["response"]["completed_at"] is None


def test_a_queued_response_is_in_progress_when_the_model_begins() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "a")
    encoder = make_encoder()
    stream = encoder.start(queued=True) + encoder.feed(run_events(emitter.end()), NOW)
    assert verify(stream) == []
    events = events_of(stream)
    check_events(events)
    assert event_types(events)[:4] == ["created", "queued", "in_progress", "output_item.added"]
    assert [event["response"]["status"] for event in events[:3]] == ["queued", "queued", "in_progress"]


def test_obfuscation_pads_every_delta_that_has_the_field_to_a_multiple_of_32() -> None:
    emitter = Emitter(ORIGIN)
    for at in range(40):
        emitter.text("t", "é\n" * at)
    emitter.refusal("r", "no")
    events = events_of(encode([run_events(emitter.end())], obfuscate=True))
    check_events(events)
    for event in events:
        if event["type"] == "response.output_text.delta":
            size = len(json.dumps(event["delta"], ensure_ascii=False).encode()) + len(event["obfuscation"])
            assert size % 32 == 0
        else:
            assert "obfuscation" not in event


def test_very_long_text_is_not_truncated() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "x" * 5_000_000)
    events = events_of(encode([run_events(emitter.end())]))
    assert [len(event["text"]) for event in events if event["type"] == "response.reasoning.done"] == [5_000_000]


def test_a_lone_surrogate_is_replaced_and_never_raises() -> None:
    events = legal_events(
        ("thinking", 0, "\ud83d"), ("text", 0, "a\udc00"), ("call", 0, "\ud83d"), ("cite", 0, "\ud83d")
    )
    text = json.dumps(events)
    assert "\\ufffd" in text
    assert "\\ud83d" not in text


def test_opaque_data_that_json_cannot_hold_does_not_break_the_stream() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "t", details={"native": deep, "what": object()})
    emitter.item("i", "reasoning", native=deep)
    emitter.fail(ErrorInfo("model_error", "broke", native=deep))
    stream = encode([run_events(emitter.end())])
    assert verify(stream) == []


def test_item_ids_have_their_prefix_in_stream_and_history() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "t")
    emitter.text("t", "a")
    emitter.tool_call("f", "{}", name="f", call_id="c")
    run = Run(ModelCall("m", []), Minter(b""))
    events = events_of(encode([run.feed(emitter.end())[0]]))
    ids = [item["id"] for item in events[-1]["response"]["output"]]
    assert [id.partition("_")[0] for id in ids] == ["rs", "msg", "fc"]
    [message] = run.messages
    assert [getattr(part, "item_id", None) for part in message.parts] == ids
