"""Decoding of Responses: the difficult cases of the wire, one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid.errors import ErrorInfo
from pellucid.events import ItemEndEvent, ItemStartEvent, PartDeltaEvent, PartEndEvent, PartStartEvent
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolCallPartDelta,
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    OpaquePart,
    RefusalPart,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pellucid.providers.wires import WIRES
from tests.providers_openai_responses.responses_kit import (
    OPENAI,
    ROWS,
    added,
    answer,
    body,
    created,
    done,
    events_of,
    folded,
    function_call,
    kinds_and_texts,
    message,
    origin,
    output_text,
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

ANSWER = answer(1, "the answer")


def test_a_thought_ends_with_its_end_event() -> None:
    """A viewer does not wait for the next item to see the end."""
    frames = thought(0, "One.", "Two.")
    upto = next(n for n, frame in enumerate(frames) if frame["type"] == "response.reasoning_summary_part.done") + 1
    profile = ROWS[OPENAI]
    events = WIRES["openai_responses"].decoder(profile, origin(profile)).feed(sse(created(), *frames[:upto]))
    assert isinstance(events[-1], PartEndEvent)
    assert isinstance(events[-1].part, ThinkingPart)
    assert events[-1].part.content == "One."


# --- reasoning ---------------------------------------------------------------------------------------------------


def test_one_item_holds_summaries_raw_text_and_encrypted_content() -> None:
    at = {"output_index": 0, "content_index": 0}
    first, *rest, last = thought(0, "one", "two", encrypted="whole")
    last["item"]["content"] = raw("hmm")
    data = stream(first, rest, wire_event("reasoning_text.delta", delta="hmm", **at), last, ANSWER)
    events = events_of(data)
    reasoning = next(e for e in events if isinstance(e, ItemStartEvent))
    end = next(e for e in events if isinstance(e, ItemEndEvent))
    assert (reasoning.kind, reasoning.native_id, end.signature) == ("reasoning", "rs", "whole")
    response = response_of(data)
    assert [(p.content, p.form, p.id, p.signature) for p in thoughts(response)] == [
        ("one", "summary", "rs", "whole"),
        ("two", "summary", "rs", None),
        ("hmm", "raw", "rs", None),
    ]
    assert sent(response)[0] == {
        "type": "reasoning",
        "id": "rs",
        "summary": summary("one", "two"),
        "content": raw("hmm"),
        "encrypted_content": "whole",
    }


def test_only_encrypted_content_of_the_end_event_is_a_signature() -> None:
    response = response_of(stream(thought(0, encrypted="whole"), ANSWER))
    assert [(p.content, p.signature) for p in thoughts(response)] == [("", "whole")]
    begins = added(0, "reasoning", id="rs", summary=[], encrypted_content="half")
    (cut,) = thoughts(folded(sse(created(), begins)).response)  # type: ignore[arg-type]
    assert cut.signature is None


def test_a_reasoning_item_with_only_an_id_is_a_part() -> None:
    for data in (
        stream(thought(0), ANSWER),
        body({"type": "reasoning", "id": "rs", "summary": []}, ANSWER[-1]["item"]),
    ):
        response = response_of(data)
        assert response.parts[0] == ThinkingPart("", id="rs")
        assert kinds_and_texts(response)[1] == ("text", "the answer")


def test_a_reasoning_item_starts_before_its_first_text() -> None:
    (_, start) = events_of(sse(created(), added(0, "reasoning", id="rs", summary=[])), cause="cancelled")[:2]
    assert isinstance(start, ItemStartEvent)
    assert start.kind == "reasoning"


@pytest.mark.parametrize(
    ("delta", "part", "form"),
    [
        ("reasoning.delta", "content_part", "raw"),
        ("reasoning_text.delta", "content_part", "raw"),
        ("reasoning_text.delta", "reasoning_part", "raw"),
        ("reasoning_summary_text.delta", "reasoning_summary_part", "summary"),
        ("reasoning_summary.delta", None, "summary"),
        ("reasoning_text.delta", None, "raw"),
    ],
)
def test_every_dialect_of_reasoning_events_is_decoded(delta: str, part: str | None, form: str) -> None:
    at: dict[str, Any] = {"output_index": 0, "summary_index" if form == "summary" else "content_index": 0}
    text = summary("")[0] if form == "summary" else raw("")[0]
    events = [
        added(0, "reasoning", id="rs"),
        *([wire_event(f"{part}.added", part=text, **at)] if part else []),
        wire_event(delta, delta="ab", **at),
        wire_event(delta, delta="cd", **at),
        wire_event(delta.replace("delta", "done"), text="abcd", **at),
        *([wire_event(f"{part}.done", part=text | {"text": "abcd"}, **at)] if part else []),
        done(0, "reasoning", id="rs"),
    ]
    (thinking,) = thoughts(response_of(stream(events, ANSWER)))
    assert (thinking.content, thinking.form) == ("abcd", form)


def test_reasoning_between_calls_keeps_its_position() -> None:
    data = stream(
        thought(0, "a", id="rs1", encrypted="A"),
        function_call(1, "f", "{}", id="fc1", call_id="c1"),
        thought(2, "b", id="rs2", encrypted="B"),
        function_call(3, "g", "{}", id="fc2", call_id="c2"),
        thought(4, id="rs3", encrypted="C"),
        answer(5, "d"),
    )
    response = response_of(data)
    assert kinds_and_texts(response) == [
        ("thinking", "a"),
        ("tool-call", "{}"),
        ("thinking", "b"),
        ("tool-call", "{}"),
        ("thinking", ""),
        ("text", "d"),
    ]
    assert [item.get("id") for item in sent(response)] == ["rs1", "fc1", "rs2", "fc2", "rs3", "msg"]


def test_interleaved_items_wait_until_the_earlier_one_ends() -> None:
    first, second = thought(0, "thinking", encrypted="E"), ANSWER
    mixed = [event for pair in zip(first, second, strict=False) for event in pair]
    mixed += first[len(second) :] + second[len(first) :]
    response = response_of(stream(mixed))
    assert kinds_and_texts(response) == [("thinking", "thinking"), ("text", "the answer")]
    assert thoughts(response)[0].signature == "E"


def test_interleaved_parts_of_one_item_are_two_parts() -> None:
    at = {"output_index": 0}
    shown = [wire_event("reasoning_summary_text.delta", delta=piece, summary_index=0, **at) for piece in "abc"]
    hidden = [wire_event("reasoning_text.delta", delta=piece, content_index=0, **at) for piece in "xyz"]
    last = done(0, "reasoning", id="rs", summary=summary("abc"), content=raw("xyz"), encrypted_content="E")
    mixed = [event for pair in zip(shown, hidden, strict=True) for event in pair]
    response = response_of(stream(added(0, "reasoning", id="rs"), mixed, last, ANSWER))
    assert [(p.content, p.form) for p in thoughts(response)] == [("abc", "summary"), ("xyz", "raw")]
    assert sent(response)[0] == {"type": "reasoning", "id": "rs", "summary": summary("abc"), "content": raw("xyz"),
                                 "encrypted_content": "E"}  # fmt: skip


def test_interleaved_calls_are_two_calls() -> None:
    one, two = function_call(0, "f", '{"a": 1}', call_id="c1"), function_call(1, "g", '{"b": 2}', call_id="c2")
    mixed = [event for pair in zip(one, two, strict=True) for event in pair]
    calls = response_of(stream(mixed)).tool_calls
    assert [(c.tool_name, c.args, c.tool_call_id) for c in calls] == [("f", '{"a": 1}', "c1"), ("g", '{"b": 2}', "c2")]


LATE_END: list[dict[str, Any] | list[dict[str, Any]]] = [
    added(0, "reasoning", id="rs"),
    wire_event("reasoning_text.delta", 0, content_index=0, delta="hm"),
    ANSWER[:3],
    ANSWER[3:],
    wire_event("reasoning_text.done", 0, content_index=0, text="hm"),
]


def test_the_answer_does_not_wait_for_a_late_end_of_reasoning() -> None:
    reader_events = events_of(sse(created(), *LATE_END[:3]), "openrouter-responses", cause="cancelled")
    texts = [e.part.part_kind for e in reader_events if isinstance(e, PartStartEvent)]
    assert texts == ["thinking", "text"]
    data = stream(*LATE_END, done(0, "reasoning", id="rs", content=raw("hm"), summary=[]))
    assert kinds_and_texts(response_of(data, "openrouter-responses")) == [("thinking", "hm"), ("text", "the answer")]


def test_late_data_of_an_item_is_sent_back_with_it() -> None:
    data = stream(*LATE_END, done(0, "reasoning", id="rs", content=raw("hm"), summary=[], encrypted_content="E"))
    response = response_of(data, "openrouter-responses")
    assert kinds_and_texts(response) == [("thinking", "hm"), ("text", "the answer"), ("thinking", "")]
    first, second = sent(response, row="openrouter-responses")
    assert first == {"type": "reasoning", "id": "rs", "summary": [], "content": raw("hm"), "encrypted_content": "E"}
    assert second["id"] == "msg"


def test_answer_text_in_a_reasoning_item_is_reasoning() -> None:
    data = stream(
        added(0, "reasoning", id="rs"),
        wire_event("output_text.delta", 0, content_index=0, delta="hm"),
        wire_event("output_text.delta", 0, content_index=0, delta="m"),
        done(0, "reasoning", id="rs", content=raw("hmm")),
        ANSWER,
    )
    assert kinds_and_texts(response_of(data)) == [("thinking", "hmm"), ("text", "the answer")]


def test_reasoning_streamed_and_ended_under_different_names_is_one_part() -> None:
    data = stream(
        added(0, "reasoning", id="rs"),
        wire_event("reasoning_text.delta", 0, content_index=0, delta="hmm"),
        done(0, "reasoning", id="rs", summary=summary("hmm"), content=[], encrypted_content="E"),
        ANSWER,
    )
    response = response_of(data)
    assert [(p.content, p.form) for p in thoughts(response)] == [("hmm", "raw")]
    reasoning = sent(response)[0]
    assert (reasoning["summary"], reasoning["content"]) == (summary("hmm"), [])


def test_unknown_fields_of_an_item_are_sent_back() -> None:
    item = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E", "new_field": {"a": 1}}
    call = {"type": "function_call", "id": "fc", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"}
    response = response_of(body(item, call))
    assert sent(response) == [item, call]


# --- texts that are repeated, or missing ----------------------------------------------------------------------------

WHOLE = thought(0, "one", "two", encrypted="E") + function_call(1, "f", '{"a": 1}') + answer(2, "text")


@pytest.mark.parametrize("left_out", [
    (),
    ("delta",),
    ("part.added", "part.done"),
    ("text.done", "arguments.done"),
    ("delta", "part.added", "part.done", "text.done", "arguments.done"),
    ("output_item.added",),
    ("output_item.added", "delta", "part.added", "part.done", "text.done", "arguments.done"),
])  # fmt: skip
def test_any_repetition_of_a_text_may_be_missing(left_out: tuple[str, ...]) -> None:
    events = [event for event in WHOLE if not event["type"].endswith(left_out)] if left_out else WHOLE
    assert response_of(stream(events)).parts == response_of(stream(WHOLE)).parts


def test_a_body_gives_the_same_parts_as_the_stream() -> None:
    output = [event["item"] for event in WHOLE if event["type"].endswith("item.done")]
    streamed, whole = response_of(stream(WHOLE)), response_of(body(*output))
    assert whole.parts == streamed.parts
    assert whole.finish_reason == streamed.finish_reason == "tool_call"


def test_the_last_event_may_contain_items_that_were_not_streamed() -> None:
    output = [event["item"] for event in WHOLE if event["type"].endswith("item.done")]
    expected = response_of(stream(WHOLE)).parts
    assert response_of(sse(created(), response_end(output=output))).parts == expected
    # Items that were streamed are not repeated, even if their ids differ now.
    rotated = [item | {"id": f"other-{n}"} for n, item in enumerate(output)]
    assert response_of(sse(created(), WHOLE, response_end(output=rotated))).parts == expected
    some = [event for event in WHOLE if event.get("output_index") == 0]
    assert response_of(sse(created(), some, response_end(output=output))).parts == expected


def test_the_last_event_ends_items_that_were_not_ended() -> None:
    opened = [event for event in WHOLE if not event["type"].endswith("done")]
    output = [event["item"] for event in WHOLE if event["type"].endswith("item.done")]
    assert response_of(sse(created(), opened, response_end(output=output))).parts == response_of(stream(WHOLE)).parts


def test_all_items_may_have_index_0() -> None:
    events = [event | ({"output_index": 0} if "output_index" in event else {}) for event in WHOLE]
    output = [event["item"] for event in WHOLE if event["type"].endswith("item.done")]
    assert response_of(sse(created(), events, response_end(output=output))).parts == response_of(stream(WHOLE)).parts


def test_items_may_have_no_index() -> None:
    events = [{k: v for k, v in event.items() if k != "output_index"} for event in WHOLE]
    assert response_of(stream(events)).parts == response_of(stream(WHOLE)).parts


def test_padding_is_ignored_and_logprobs_are_preserved() -> None:
    probability = {"token": "a", "logprob": -0.5}
    events = [
        added(0, "message", id="msg"),
        wire_event("output_text.delta", 0, content_index=0, delta="a", logprobs=[probability], obfuscation="xxxxxx"),
        wire_event("output_text.done", 0, content_index=0, text="a", logprobs=[probability]),
        wire_event("output_item.done", 0, item=message(output_text("a", logprobs=[probability]), id="msg")),
    ]
    whole = message(output_text("a", logprobs=[probability]), id="msg")
    for data in (stream(events), body(whole)):
        (text,) = response_of(data).parts
        assert isinstance(text, TextPart)
        assert (text.content, text.logprobs) == ("a", [probability])
    assert b"xxxxxx" in stream(events)
    assert "xxxxxx" not in str(response_of(stream(events)))


# --- messages ------------------------------------------------------------------------------------------------------


def test_annotations_belong_to_their_text_and_are_not_repeated() -> None:
    cite = {"type": "url_citation", "url": "https://a.example", "start_index": 0, "end_index": 1, "title": "A"}
    first, part, *middle, text_done, part_done, last = answer(0, "text")
    part_done["part"]["annotations"] = last["item"]["content"][0]["annotations"] = [cite]
    annotation_event = wire_event(
        "output_text.annotation.added", 0, content_index=0, annotation_index=0, annotation=cite
    )
    for events in (
        [first, part, *middle, annotation_event, text_done, part_done, last],
        [first, part, *middle, part_done, last],
    ):
        (text,) = response_of(stream(*events)).parts
        assert isinstance(text, TextPart)
        assert text.annotations == [cite]
    (text,) = response_of(body(last["item"])).parts
    assert isinstance(text, TextPart)
    assert text.annotations == [cite]


def test_several_texts_of_one_message_are_one_message() -> None:
    item = message(output_text("a"), output_text("b"), id="msg", phase="commentary")
    events = [e for e in events_of(body(item)) if isinstance(e, ItemStartEvent | PartStartEvent)]
    assert [type(e).__name__ for e in events] == ["ItemStartEvent", "PartStartEvent", "PartStartEvent"]
    assert sent(response_of(body(item))) == [item]


def test_the_phase_is_sent_back() -> None:
    data = stream(thought(0, encrypted="E"), answer(1, "I look", phase="commentary"), function_call(2, "f", "{}"))
    response = response_of(data)
    text = response.parts[1]
    assert isinstance(text, TextPart)
    assert text.provider_details == {"phase": "commentary"}
    assert sent(response)[1]["phase"] == "commentary"


def test_a_refusal_is_a_refusal_part() -> None:
    at = {"output_index": 0, "content_index": 0}
    part = {"type": "refusal", "refusal": ""}
    events = [
        added(0, "message", id="msg"),
        wire_event("content_part.added", part=part, **at),
        wire_event("refusal.delta", delta="I ca", **at),
        wire_event("refusal.delta", delta="n't", **at),
        wire_event("refusal.done", refusal="I can't", **at),
        wire_event("content_part.done", part=part | {"refusal": "I can't"}, **at),
        wire_event("output_item.done", 0, item=message(part | {"refusal": "I can't"}, id="msg")),
    ]
    for data in (stream(events), body(events[-1]["item"])):
        response = response_of(data)
        assert response.parts == [RefusalPart("I can't")]
        assert response.finish_reason == "stop"


def test_an_empty_message_is_ignored() -> None:
    assert response_of(stream(answer(0, "", phase="final_answer"))).parts == []


def test_several_summaries_of_a_body_are_one_item() -> None:
    starts = [e for e in events_of(body(thought(0, "a", "b")[-1]["item"])) if isinstance(e, ItemStartEvent)]
    assert len(starts) == 1


def test_a_user_message_in_the_output_is_not_text_of_the_model() -> None:
    """The output of a compaction repeats messages of the user."""
    item = {"type": "message", "role": "user", "id": "msg", "content": [{"type": "input_text", "text": "q"}]}
    compaction = {"type": "compaction", "id": "cmp", "encrypted_content": "E"}
    data = json.dumps({"id": "c", "object": "response.compaction", "output": [item, compaction]}).encode()
    response = response_of(data)
    assert [type(part) for part in response.parts] == [OpaquePart, CompactionPart]
    assert sent(response) == [item, compaction]


# --- calls ---------------------------------------------------------------------------------------------------------


def test_a_call_may_be_named_late() -> None:
    data = stream(
        wire_event("function_call_arguments.delta", 0, delta='{"a"'),
        wire_event("function_call_arguments.delta", 0, delta=": 1}"),
        done(0, "function_call", id="fc", call_id="c", name="f", arguments='{"a": 1}'),
    )
    (call,) = response_of(data).tool_calls
    assert (call.tool_name, call.args, call.tool_call_id, call.id) == ("f", '{"a": 1}', "c", "fc")


def test_arguments_may_be_an_object() -> None:
    item = {"id": "fc", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    whole = done(0, "function_call", **item)
    for data in (body(whole["item"]), stream(added(0, "function_call", **item), whole)):
        (call,) = response_of(data).tool_calls
        assert call.args_as_dict() == {"a": 1}


def test_a_custom_tools_call_is_a_call_with_one_argument() -> None:
    item = {"id": "ct", "call_id": "c", "name": "sql"}
    data = stream(
        added(0, "custom_tool_call", input="", **item),
        wire_event("custom_tool_call_input.delta", 0, delta="SELECT "),
        wire_event("custom_tool_call_input.delta", 0, delta='"1"'),
        wire_event("custom_tool_call_input.done", 0, input='SELECT "1"'),
        done(0, "custom_tool_call", input='SELECT "1"', **item),
        function_call(1, "f", "{}"),
    )
    response = response_of(data)
    call = response.parts[0]
    assert isinstance(call, ToolCallPart)
    assert (call.tool_name, call.args, call.complete) == ("sql", '{"input":"SELECT \\"1\\""}', True)
    assert sent(response)[0] == {"type": "custom_tool_call", "input": 'SELECT "1"', **item}


@pytest.mark.parametrize("has_done", [True, False])
def test_a_custom_call_that_was_cut_off_is_incomplete(has_done: bool) -> None:
    item = {"id": "ct", "call_id": "c", "name": "patch"}
    cut = done(0, "custom_tool_call", input="*** Begin", status="incomplete", **item)
    end = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [cut["item"]]}
    data = stream(
        added(0, "custom_tool_call", input="", **item),
        wire_event("custom_tool_call_input.delta", 0, delta="*** Begin"),
        *([wire_event("custom_tool_call_input.done", 0, input="*** Begin"), cut] if has_done else []),
        wire_event("incomplete", response=end),
    )
    response = response_of(data)
    (call,) = response.parts
    assert isinstance(call, ToolCallPart)
    assert (call.complete, call.args, response.finish_reason) == (False, '{"input":"*** Begin', "length")


def test_custom_calls_that_the_provider_runs_are_builtin_calls() -> None:
    item = {"id": "ctc", "call_id": "xs", "name": "x_keyword_search", "input": "q"}
    data = stream(added(0, "custom_tool_call", **item), done(0, "custom_tool_call", **item), ANSWER)
    response = response_of(data, "xai-responses")
    assert response.tool_calls == []
    assert response.finish_reason == "stop"
    assert [type(p) for p in response.parts] == [BuiltinToolCallPart, BuiltinToolReturnPart, TextPart]


# --- builtin tools ---------------------------------------------------------------------------------------------------

PIXEL = "iVBORw0KGgo+/w=="

TOOLS: list[tuple[dict[str, Any], str, Any, Any, int]] = [
    (
        {"type": "web_search_call", "action": {"type": "search", "query": "q", "sources": [{"url": "u"}]}},
        "web_search", {"type": "search", "query": "q"}, {"status": "completed", "sources": [{"url": "u"}]}, 0,
    ),
    (
        {"type": "file_search_call", "queries": ["q"], "results": [{"file_id": "f"}]},
        "file_search", {"queries": ["q"]}, {"status": "completed", "results": [{"file_id": "f"}]}, 0,
    ),
    (
        {"type": "code_interpreter_call", "code": "1", "container_id": "c", "outputs": [
            {"type": "logs", "logs": "1"}, {"type": "image", "url": f"data:image/png;base64,{PIXEL}"}]},
        "code_execution", {"container_id": "c", "code": "1"}, {"status": "completed", "logs": ["1"]}, 1,
    ),
    (
        {"type": "image_generation_call", "result": PIXEL, "output_format": "webp", "revised_prompt": "p"},
        "image_generation", "", {"status": "completed", "output_format": "webp", "revised_prompt": "p"}, 1,
    ),
    (
        {"type": "mcp_call", "server_label": "s", "name": "f", "arguments": "{}", "output": "o", "error": None},
        "mcp_server:s", {"action": "call_tool", "tool_name": "f", "tool_args": "{}"},
        {"status": "completed", "output": "o"}, 0,
    ),
    (
        {"type": "mcp_list_tools", "server_label": "s", "tools": [{"name": "f"}]},
        "mcp_server:s", {"action": "list_tools"}, {"status": "completed", "tools": [{"name": "f"}]}, 0,
    ),
]  # fmt: skip


SENT_BACK: dict[str, dict[str, Any]] = {"web_search_call": {"action": {"type": "search", "query": "q"}}}
"""The fields that are sent back in another form: OpenAI does not take back the sources of a search."""


@pytest.mark.parametrize(("item", "name", "args", "returned", "files"), TOOLS, ids=lambda v: str(v)[:30])
def test_a_builtin_tool(item: dict[str, Any], name: str, args: Any, returned: Any, files: int) -> None:
    item = {"id": "it", "status": "completed", **item}
    early = {"id": "it", "type": item["type"], "status": "in_progress", "server_label": item.get("server_label")}
    events = [wire_event("output_item.added", 1, item=early), wire_event(f"{item['type']}.in_progress", 1)]
    data = stream(thought(0, encrypted="E"), events, wire_event("output_item.done", 1, item=item), answer(2, "t"))
    whole = body(thought(0, encrypted="E")[-1]["item"], item, answer(2, "t")[-1]["item"])
    for response in (response_of(data), response_of(whole)):
        _, call, back, *made, text = response.parts
        assert isinstance(call, BuiltinToolCallPart)
        assert isinstance(back, BuiltinToolReturnPart)
        assert (call.tool_name, call.args, call.tool_call_id) == (name, args, "it")
        assert (back.tool_name, back.content, back.tool_call_id) == (name, returned, "it")
        assert len(made) == files
        assert all(isinstance(part, FilePart) and part.data == PIXEL for part in made)
        assert isinstance(text, TextPart)
        # It is sent back between its reasoning and the next item, with all that the provider takes back.
        reasoning, native, _ = sent(response, openai_store=True)
        assert reasoning["type"] == "reasoning"
        assert PIXEL not in str(native)
        assert native["id"] == "it"
        expected_native = {k: v for k, v in item.items() if k != "outputs"} | SENT_BACK.get(item["type"], {})
        if item["type"] == "image_generation_call":
            assert native == {"type": "image_generation_call", "id": "it"}
        else:
            assert {k: native[k] for k in expected_native} == expected_native


def test_a_builtin_call_starts_at_once_and_remains_if_truncated() -> None:
    data = sse(
        created(),
        added(0, "code_interpreter_call", id="ci", code="", container_id="c"),
        wire_event("code_interpreter_call.interpreting", 0),
        wire_event("code_interpreter_call_code.delta", 0, delta="impo"),
        wire_event("code_interpreter_call_code.delta", 0, delta="rt"),
    )
    result = folded(data)
    assert result.error is not None
    (call,) = result.response.parts  # type: ignore[union-attr]
    assert isinstance(call, BuiltinToolCallPart)
    assert (call.args, call.complete) == ({"container_id": "c", "code": "import"}, False)
    deltas = [e.delta for e in events_of(data) if isinstance(e, PartDeltaEvent)]
    assert [d.status for d in deltas if isinstance(d, BuiltinToolCallPartDelta)] == ["interpreting", None]
    assert sent(result.response) == []


def test_unknown_items_are_preserved() -> None:
    item = {"type": "acme:oracle", "id": "x", "status": "completed", "anything": [1, {"a": None}]}
    for data in (stream(added(0, "acme:oracle", id="x"), wire_event("output_item.done", 0, item=item), ANSWER),
                 body(item, ANSWER[-1]["item"])):  # fmt: skip
        response = response_of(data)
        opaque, text = response.parts
        assert isinstance(opaque, OpaquePart)
        assert (opaque.type, opaque.native) == ("acme:oracle", item)
        assert isinstance(text, TextPart)
        assert sent(response)[0] == item


def test_unknown_content_is_sent_back_in_its_message() -> None:
    item = message(output_text("a"), {"type": "output_hologram", "data": "x"}, id="msg")
    response = response_of(body(item))
    assert [part.part_kind for part in response.parts] == ["text", "opaque"]
    assert sent(response) == [item]


def test_a_compaction_item_is_a_compaction_part() -> None:
    item = {"type": "compaction", "id": "cmp", "encrypted_content": "E"}
    response = response_of(stream(answer(0, "t"), wire_event("output_item.done", 1, item=item)))
    part = response.parts[1]
    assert isinstance(part, CompactionPart)
    assert (part.id, part.signature, part.content) == ("cmp", "E", None)
    assert sent(response)[1] == item


# --- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("max_output_tokens", "length"),
        ("max_messages", "length"),
        ("content_filter", "content_filter"),
        ("steered", "length"),
        (None, "length"),
    ],
)
def test_an_incomplete_response_has_a_finish_reason(reason: str | None, finish: str) -> None:
    details = {"reason": reason} if reason else None
    events = [*answer(0, "half")[:4], response_end("incomplete", incomplete_details=details)]
    for data in (sse(created(), events), body(message(output_text("half"), id="m"), status="incomplete",
                                            incomplete_details=details)):  # fmt: skip
        response = response_of(data)
        assert (response.finish_reason, response.native_finish_reason) == (finish, reason or "incomplete")
        (text,) = response.parts
        assert isinstance(text, TextPart)
        assert text.complete is False


def test_truncated_reasoning_is_incomplete_and_not_sent_back() -> None:
    item = {"type": "reasoning", "id": "rs", "summary": summary("one", "tw"), "encrypted_content": "E",
            "status": "incomplete"}  # fmt: skip
    half = [*thought(0, "one", "two")[:-3], wire_event("output_item.done", 0, item=item)]
    data = sse(created(), half, response_end("incomplete", incomplete_details={"reason": "max_output_tokens"}))
    response = response_of(data)
    assert [(p.content, p.complete) for p in thoughts(response)] == [("one", True), ("two", False)]
    assert sent(response) == []


def test_encrypted_reasoning_without_an_answer_is_not_sent_back() -> None:
    data = sse(created(), thought(0, encrypted="E"), response_end("incomplete"))
    assert sent(response_of(data)) == []


FLAT = {"type": "error", "code": "server_error", "message": "went wrong", "param": None}
NESTED = {"type": "error", "error": {"type": "server_error", "code": None, "message": "went wrong", "param": None}}
FAILED = response_end("failed", error={"code": "server_error", "message": "went wrong"})


@pytest.mark.parametrize("events", [[FLAT], [NESTED], [FAILED], [FLAT, FAILED], [NESTED, FAILED, FLAT]])
def test_every_form_of_an_error_is_one_error_event(events: list[dict[str, Any]]) -> None:
    result = folded(sse(created(), answer(0, "so far")[:4], *events))
    assert result.error is not None
    assert (result.error.upstream_message, result.error.code) == ("went wrong", "server_error")
    assert kinds_and_texts(result.response) == [("text", "so far")]
    assert result.response is not None
    assert result.response.finish_reason == "error"
    assert result.response.parts[0].complete is False  # type: ignore[union-attr]


def test_usage_after_an_error_is_read() -> None:
    failed = response_end("failed", error={"code": "x", "message": "m"}, usage={"input_tokens": 3, "output_tokens": 1})
    response = folded(sse(created(), NESTED, failed)).response
    assert response is not None
    assert response.usage.input_tokens == 3


@pytest.mark.parametrize(
    ("status", "code"), [("cancelled", "cancelled"), ("failed", "failed"), ("in_progress", "response_not_finished")]
)
def test_a_failed_response_without_an_error_object_is_an_error(status: str, code: str) -> None:
    result = folded(body(status=status))
    assert result.error is not None
    assert result.error.code == code


@pytest.mark.parametrize("data", [
    body(error={"code": "server_error", "message": "bad", "type": "server_error"}, status="failed"),
    json.dumps({"error": {"message": "bad", "code": "server_error"}}).encode(),
    json.dumps([{"error": {"message": "bad", "code": "server_error"}}]).encode(),
    b'data: {"error": {"message": "bad", "code": "server_error"}}\n\n',
    b'event: error\ndata: {"message": "bad", "code": "server_error"}\n\n',
])  # fmt: skip
def test_an_error_body_is_an_error(data: bytes) -> None:
    error = folded(data).error
    assert error is not None
    assert (error.upstream_message, error.code) == ("bad", "server_error")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_stream"),
        (b"\n\n: ping\n\n", "empty_stream"),
        (b"data: [DONE]\n\n", "empty_stream"),
        (b"<html><title>Bad gateway</title></html>", "not_responses"),
        (b'{"id": "x", "choices": []}', "not_responses"),
        (b"data: hello\n\n", "not_responses"),
        (sse(created()), "stream_truncated"),
        (sse(created(), answer(0, "half")[:3]), "stream_truncated"),
        (sse(created(), thought(0, "half")[:4]), "stream_truncated"),
    ],
)
def test_a_body_of_another_format_is_an_error(data: bytes, code: str) -> None:
    result = folded(data)
    assert result.error is not None
    assert result.error.code == code


def test_a_truncated_stream_keeps_its_parts_as_incomplete() -> None:
    result = folded(sse(created(), thought(0, "one"), function_call(1, "f", '{"a": 1}')[:2]))
    assert kinds_and_texts(result.response) == [("thinking", "one"), ("tool-call", '{"')]
    assert result.response is not None
    assert result.response.tool_calls[0].complete is False


def test_an_error_of_the_transport_takes_precedence_over_truncation() -> None:
    error = ErrorInfo("timeout", "too slow", code="idle_timeout")
    result = folded(sse(created(), thought(0, "one")[:4]), cause="error", error=error)
    assert result.error == error
    assert folded(sse(created(), thought(0, "one")[:4]), cause="cancelled").error is None


def test_done_alone_ends_the_stream() -> None:
    response = response_of(sse(created(), answer(0, "a"), "data: [DONE]"))
    assert (kinds_and_texts(response), response.finish_reason) == ([("text", "a")], "stop")


def test_the_last_event_needs_no_blank_line() -> None:
    assert kinds_and_texts(response_of(stream(answer(0, "a"))[:-2])) == [("text", "a")]


def test_the_decoder_reports_its_end() -> None:
    reader = WIRES["openai_responses"].decoder(ROWS[OPENAI], origin())
    reader.feed(sse(created(), answer(0, "a")))
    assert not reader.done
    reader.feed(sse(response_end()))
    assert reader.done


# --- numbers and names ---------------------------------------------------------------------------------------------


def test_usage_is_as_reported() -> None:
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 17,
        "num_sources_used": 3,
        "cost": 0.1,
    }
    read = response_of(body(usage=usage)).usage
    assert (read.input_tokens, read.output_tokens, read.output_reasoning_tokens) == (10, 7, 5)
    assert (read.cache_read_tokens, read.cache_write_tokens) == (4, 2)
    assert read.details == {"reasoning_tokens": 5, "num_sources_used": 3}
    nothing = response_of(body()).usage
    assert (nothing.input_tokens, nothing.output_tokens, nothing.output_reasoning_tokens) == (None, None, None)


def test_reasoning_tokens_are_added_to_the_output_if_the_total_includes_them() -> None:
    usage = {"input_tokens": 10, "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 5}}
    for total, expected in ((22, 12), (17, 7)):
        assert response_of(body(usage=usage | {"total_tokens": total}), "xai-responses").usage.output_tokens == expected


def test_the_response_has_its_id_model_and_details() -> None:
    withheld = [{"type": "reasoning", "action": "removed", "id": "rs", "reason": "model_mismatch"}]
    data = sse(created(), response_end(service_tier="flex", input_transformations=withheld))
    response = response_of(data)
    assert (response.provider_response_id, response.model_name) == ("resp_1", "m-1")
    assert response.provider_details == {"service_tier": "flex", "input_transformations": withheld}


def test_every_delta_is_one_event() -> None:
    events = events_of(stream(thought(0, "abcdef"), ANSWER))
    deltas = [e.delta for e in events if isinstance(e, PartDeltaEvent) and isinstance(e.delta, ThinkingPartDelta)]
    assert [delta.content_delta for delta in deltas] == ["ab", "cdef"]


# --- unusual values --------------------------------------------------------------------------------------------------


def test_fields_of_wrong_types_are_ignored() -> None:
    odd: list[Any] = [
        wire_event("created", response={"id": 7, "model": None}),
        {"type": "response.output_item.added", "output_index": "zero", "item": {"type": "message", "id": 1}},
        {"type": "response.output_text.delta", "output_index": 0.5, "content_index": None, "delta": {"text": "a"}},
        {"type": "response.output_text.delta", "delta": ["no"]},
        {"type": "response.output_text.delta", "delta": None},
        {"type": "response.output_text.delta", "delta": "b", "logprobs": "none"},
        {"type": "response.output_text.annotation.added", "annotation": "no"},
        {"type": "response.output_item.done", "item": {"type": "message", "content": "abc"}},
        {"type": 5},
        {"no": "type"},
        wire_event("completed", response={"output": "none", "usage": [], "status": 3}),
    ]
    assert kinds_and_texts(response_of(sse(*odd, named=False))) == [("text", "abc")]


def test_lone_surrogates_and_invalid_numbers() -> None:
    data = (
        stream(ANSWER).replace(b'"the answer"', b'"the answer \\ud83d"').replace(b'"sequence', b'"x": NaN, "sequence')
    )
    assert response_of(data).text is not None


def test_the_type_may_be_in_the_event_field_alone() -> None:
    events = [created(), *answer(0, "a"), response_end()]
    lines = [f"event: {event.pop('type')}\ndata: {json.dumps(event)}\n\n" for event in events]
    assert kinds_and_texts(response_of("".join(lines).encode())) == [("text", "a")]
