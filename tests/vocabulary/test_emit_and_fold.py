"""`emit` writes a legal sequence for any calls of a decoder, and `fold` reads it back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter, response_events
from pellucid.errors import ErrorInfo, IllegalEvent
from pellucid.events import (
    Cause,
    ErrorEvent,
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    ModelEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
)
from pellucid.fold import Fold, fold
from pellucid.parts import (
    BuiltinToolCallPart,
    ModelResponse,
    OpaquePart,
    Origin,
    RefusalPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    json_text,
)

ORIGIN = Origin("p", "w", "m")

# Calls on the emitter: (method, key, text, ends). There are few keys, so that calls collide.
calls = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "thinking",
                "text",
                "refusal",
                "tool",
                "args",
                "builtin",
                "close",
                "whole",
                "seal",
                "item",
                "other",
                "fail",
            ]
        ),
        st.integers(0, 3),
        st.sampled_from(["", "a", "{", "}", '{"x":1}', " "]),
        st.booleans(),
    ),
    max_size=25,
)


def say(emitter: Emitter, call: tuple[str, int, str, bool]) -> None:
    method, key, text, ends = call
    match method:
        case "thinking":
            emitter.thinking(("k", key), text, explicit_end=ends)
        case "text":
            emitter.text(("t", key), text, explicit_end=ends)
        case "refusal":
            emitter.refusal(("r", key), text)
        case "tool":
            emitter.tool_call(("f", key), text, name=f"f{key}", call_id=f"c{key}", explicit_end=ends)
        case "args":
            emitter.tool_call(("f", key), text)
        case "close":
            for kind in "ktf":
                emitter.close((kind, key))
        case "whole":
            emitter.whole_part(OpaquePart("x", text), item=("w", key) if ends else None)
        case "builtin":
            emitter.builtin_call(("b", key), text, name="search", status="on" if ends else None)
        case "seal":
            # An empty signature is none.
            emitter.thinking(("k", key), signature=text)
            emitter.text(("t", key), signature=text)
        case "other":
            emitter.item(("w", key), "compaction", native={"x": text}, explicit_end=ends)
            emitter.close(("w", key))
        case "item":
            emitter.item(("k", key), "reasoning", signature=f"i{text}", explicit_end=ends)
            if ends:
                emitter.close(("k", key))
        case "fail" if key == 3:
            emitter.fail(ErrorInfo("model_error", "broke"))


@given(calls, st.sampled_from(["eof", "error", "cancelled"]), st.sampled_from([None, "stop", "length"]))
def test_any_calls_give_a_legal_closed_turn(
    script: list[tuple[str, int, str, bool]], cause: Cause, reason: Any
) -> None:
    emitter = Emitter(ORIGIN)
    events: list[ModelEvent] = []
    for call in script:
        say(emitter, call)
        events += emitter.take()
    emitter.finish(reason)
    events += emitter.end(cause)
    assert emitter.end(cause) == []
    folded = fold(list(events))  # raises if the events are illegal
    assert folded.response is not None
    assert folded.snapshot() is None
    # A response and its replay are equal.
    again = fold(list(response_events(folded.response))).response
    assert again == folded.response


@given(calls)
def test_no_text_is_lost_and_every_block_keeps_its_order(script: list[tuple[str, int, str, bool]]) -> None:
    emitter = Emitter(ORIGIN)
    texts: dict[str, str] = {"thinking": "", "text": "", "refusal": ""}
    script = [call for call in script if call[0] in ("thinking", "text", "refusal", "close", "tool", "args", "whole")]
    for call in script:
        say(emitter, call)
    for method, key, text, _ in script:
        if method in texts:
            texts[method] += f"{key}{text}" if text else ""
    response = fold(list(emitter.end())).response
    assert response is not None
    # Per kind, the output has the characters of the input (blocks that were held back may come later).
    for kind, cls in (("thinking", ThinkingPart), ("text", TextPart), ("refusal", RefusalPart)):
        out = "".join(part.content for part in response.parts if isinstance(part, cls))
        sent = "".join(text for method, _, text, _ in script if method == kind)
        if kind == "thinking":  # white space alone is no reasoning
            out, sent = "".join(out.split()), "".join(sent.split())
        assert sorted(out) == sorted(sent)
    wholes = [part.native for part in response.parts if isinstance(part, OpaquePart) and part.type == "x"]
    assert sorted(wholes) == sorted(text for method, _, text, _ in script if method == "whole")


def events_of(*calls: tuple[str, int, str, bool]) -> list[ModelEvent]:
    emitter = Emitter(ORIGIN)
    for call in calls:
        say(emitter, call)
    return emitter.end()


def parts_of(*calls: tuple[str, int, str, bool]) -> list[Any]:
    response = fold(list(events_of(*calls))).response
    assert response is not None
    return [(part.part_kind, getattr(part, "content", None) or getattr(part, "args", None)) for part in response.parts]


def test_reasoning_that_resumes_after_text_is_a_new_item_in_its_place() -> None:
    calls = [("thinking", 0, "a", False), ("text", 0, "b", False), ("thinking", 0, "c", False)]
    assert parts_of(*calls) == [("thinking", "a"), ("text", "b"), ("thinking", "c")]
    assert [e.kind for e in events_of(*calls) if isinstance(e, ItemStartEvent)] == ["reasoning", "message", "reasoning"]


def test_interleaved_calls_are_complete_and_in_order_of_opening() -> None:
    assert parts_of(
        ("tool", 0, '{"a', False), ("tool", 1, '{"b', False), ("args", 0, '":1}', False), ("args", 1, '":2}', False)
    ) == [("tool-call", '{"a":1}'), ("tool-call", '{"b":2}')]


def test_a_second_call_does_not_wait_for_one_with_complete_arguments() -> None:
    emitter = Emitter(ORIGIN)
    say(emitter, ("tool", 0, '{"a":1}', False))
    emitter.take()
    say(emitter, ("tool", 1, "{", False))
    assert [type(event) for event in emitter.take()][-2:] == [PartStartEvent, PartDeltaEvent]


def test_a_block_that_the_wire_ends_keeps_a_later_one_waiting() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("a", "x", explicit_end=True)
    emitter.text("b", "y")
    assert not any(isinstance(e, PartStartEvent) and isinstance(e.part, TextPart) for e in emitter.take())
    emitter.close("a")
    assert any(isinstance(e, PartStartEvent) and isinstance(e.part, TextPart) for e in emitter.take())


def test_arguments_after_a_complete_call_are_in_provider_details() -> None:
    response = fold(
        list(events_of(("tool", 0, "{}", False), ("text", 0, "a", False), ("args", 0, '{"x":1}', False)))
    ).response
    assert response is not None
    late = [{"tool_call_id": "c0", "arguments": '{"x":1}'}]
    assert response.provider_details == {"late_arguments": late}


def test_a_signature_without_text_is_a_part() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("a", signature="s")
    response = fold(list(emitter.end())).response
    assert response is not None
    assert response.parts == [ThinkingPart("", signature="s", provider_name="p")]


def test_waiting_blocks_are_emitted_as_soon_as_the_previous_one_is_complete() -> None:
    emitter = Emitter(ORIGIN)
    say(emitter, ("tool", 0, '{"a"', False))
    say(emitter, ("tool", 1, "{}", False))
    say(emitter, ("args", 0, ":1}", False))
    emitter.take()
    say(emitter, ("text", 0, "now", False))
    opened = [event.part.part_kind for event in emitter.take() if isinstance(event, PartStartEvent)]
    assert opened == ["tool-call", "text"]


def test_waiting_blocks_are_replayed_only_once() -> None:
    # Replaying all waiting blocks each time that one is released would take hours here.
    emitter, n = Emitter(ORIGIN), 20_000
    for i in range(n):
        emitter.tool_call(i, '{"a"', name="f", call_id=str(i))
    for i in range(n):
        emitter.tool_call(i, ":1}")
    response = fold(list(emitter.end())).response
    assert response is not None
    assert [part.args for part in response.tool_calls] == ['{"a":1}'] * n


def test_every_call_that_was_cut_is_incomplete() -> None:
    emitter = Emitter(ORIGIN)
    for call in (("tool", 0, '{"a', False), ("tool", 1, '{"b', False), ("tool", 2, "{}", False)):
        say(emitter, call)
    response = fold(list(emitter.end("error"))).response
    assert response is not None
    assert [part.complete for part in response.tool_calls] == [False, False, True]


def test_opaque_data_of_text_and_calls_may_come_in_deltas() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "a")
    emitter.text("t", signature="s")
    emitter.tool_call("f", "{}", name="f", signature="u", details={"x": 1})
    events = emitter.end()
    deltas = [event.delta for event in events if isinstance(event, PartDeltaEvent)]
    assert [getattr(delta, "signature_delta", None) for delta in deltas] == [None, "s", None, "u"]
    assert [event.origin for event in events if isinstance(event, ItemEndEvent)] == [ORIGIN, ORIGIN]
    response = fold(list(events)).response
    assert response is not None
    assert response.parts == [
        TextPart("a", signature="s", provider_name="p"),
        ToolCallPart("f", "{}", signature="u", provider_name="p", provider_details={"x": 1}),
    ]


def test_a_providers_own_call_streams() -> None:
    emitter = Emitter(ORIGIN)
    emitter.builtin_call("b", name="web_search", call_id="w", status="in_progress")
    emitter.builtin_call("b", '{"query":"x"}')
    response = fold(list(emitter.end())).response
    assert response is not None
    assert response.parts == [BuiltinToolCallPart("web_search", '{"query":"x"}', "w", provider_name="p")]


def test_an_encrypted_item_without_text_is_a_part_without_deltas() -> None:
    events = events_of(("item", 0, "z", True))
    assert not any(isinstance(event, PartStartEvent | PartDeltaEvent) for event in events)
    [end] = [event for event in events if isinstance(event, ItemEndEvent)]
    assert (end.signature, end.origin) == ("iz", ORIGIN)
    response = fold(list(events)).response
    assert response is not None
    assert response.parts == [ThinkingPart("", signature="iz", provider_name="p")]


@pytest.mark.parametrize(
    ("texts", "signature", "parts"),
    [
        ([" ", "\n"], None, []),
        ([" ", "\n", "a ", " "], None, [(" \na  ", None)]),
        ([" "], "s", [(" ", "s")]),
    ],
)
def test_reasoning_does_not_open_with_white_space_alone(texts: list[str], signature: str | None, parts: Any) -> None:
    emit = Emitter(ORIGIN)
    for text in texts:
        emit.thinking("t", text)
    if signature is not None:
        emit.thinking("t", signature=signature)
    emit.close("t")
    emit.text("a", "x")
    response = fold(list(emit.end())).response
    assert response is not None
    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart)]
    assert [(part.content, part.signature) for part in thoughts] == parts


def test_empty_text_without_opaque_data_is_dropped() -> None:
    assert [type(event) for event in events_of(("thinking", 0, "", False), ("text", 0, "", False))] == [
        ResponseStartEvent,
        ResponseEndEvent,
    ]


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_a_cut_during_reasoning_closes_the_block_as_incomplete(reason: Any) -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("a", "so far", explicit_end=True)
    emitter.close("a")  # Anthropic closes the block before it sends the reason
    emitter.finish(reason)
    events = emitter.end()
    [end] = [event for event in events if isinstance(event, ItemEndEvent)]
    assert end.status == "incomplete"
    response = fold(list(events)).response
    assert response is not None
    assert response.parts == [ThinkingPart("so far", provider_name="p", complete=False)]


def test_a_failure_keeps_the_parts_and_is_emitted_once() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("a", "so far")
    emitter.fail(ErrorInfo("model_error", "first"))
    emitter.fail(ErrorInfo("model_error", "second"))
    emitter.text("a", "ignored")
    emitter.usage = Usage(input_tokens=3)
    events = emitter.end("error")
    assert [event.error.message for event in events if isinstance(event, ErrorEvent)] == ["first"]
    response = fold(list(events)).response
    assert response is not None
    assert response.parts == [TextPart("so far", complete=False)]
    assert (response.finish_reason, response.usage) == ("error", Usage(input_tokens=3))


def test_public_ids_and_late_data_end_up_on_the_parts() -> None:
    events: list[Event] = [
        ResponseStartEvent(ORIGIN),
        ItemStartEvent(0, "reasoning", id="rs_1", native_id="n"),
        PartStartEvent(0, ThinkingPart("", form="summary")),
        PartDeltaEvent(0, ThinkingPartDelta("one")),
        PartEndEvent(0, ThinkingPart("one", form="summary")),
        PartStartEvent(1, ThinkingPart("", form="summary")),
        PartDeltaEvent(1, ThinkingPartDelta("two")),
        PartEndEvent(1, ThinkingPart("two", form="summary")),
        ItemEndEvent(0, signature="enc", native={"k": 1}, origin=ORIGIN),
        ResponseEndEvent(),
    ]
    response = fold(events).response
    assert response is not None
    assert response.parts == [
        ThinkingPart(
            "one",
            form="summary",
            signature="enc",
            provider_name="p",
            provider_details={"native": {"k": 1}},
            item_id="rs_1",
        ),
        ThinkingPart("two", form="summary", item_id="rs_1"),
    ]
    assert response.thinking == "one\n\ntwo"


START, END = ResponseStartEvent(ORIGIN), ResponseEndEvent()
ITEM, ITEM_END = ItemStartEvent(0, "message"), ItemEndEvent(0)
PART, PART_END = PartStartEvent(0, TextPart("")), PartEndEvent(0, TextPart("a"))
OPAQUE_ITEM, THOUGHT_ITEM = ItemStartEvent(0, "opaque"), ItemStartEvent(0, "reasoning")
SIGNED = PartDeltaEvent(0, ThinkingPartDelta(signature_delta="s"))
THOUGHT = PartStartEvent(0, ThinkingPart(""))
DELTA = PartDeltaEvent(0, TextPartDelta("a"))
ERROR = ErrorEvent(ErrorInfo("model_error", "x"))
RUN_END = RunEndEvent("completed")
CALL = FunctionToolCallEvent(ToolCallPart("f", "{}", "c"))
RESULT = FunctionToolResultEvent(ToolReturnPart("f", 1, "c"))
CUT = [START, ITEM, PART, DELTA, PartEndEvent(0, TextPart("a", complete=False))]


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        ("turn", [START, START]),
        ("turn", [ITEM]),
        ("turn", [END]),
        ("turn", [ERROR]),
        ("turn", [START, CALL]),
        ("item", [START, ITEM, ItemStartEvent(1, "message")]),
        ("item", [START, ItemStartEvent(1, "message")]),
        ("item", [START, ITEM_END]),
        ("part", [START, PART]),
        ("part", [START, ITEM, PART, PartStartEvent(1, TextPart(""))]),
        ("part", [START, ITEM, PartStartEvent(1, TextPart(""))]),
        ("part", [START, ITEM, DELTA]),
        ("part", [START, ITEM, PART, DELTA, PART_END, DELTA]),
        ("part", [START, ITEM, PART_END]),
        ("kind", [START, ITEM, PartStartEvent(0, ThinkingPart(""))]),
        ("kind", [START, ITEM, PART, PartDeltaEvent(0, ThinkingPartDelta("a"))]),
        ("kind", [START, ITEM, PART, PartEndEvent(0, RefusalPart(""))]),
        ("text", [START, ITEM, PartStartEvent(0, TextPart("a"))]),
        ("text", [START, ITEM, PART, DELTA, PartEndEvent(0, TextPart("b"))]),
        ("empty", [START, ITEM, PART, PartDeltaEvent(0, TextPartDelta(""))]),
        ("empty", [START, ITEM, ITEM_END]),
        ("empty", [START, ItemStartEvent(0, "reasoning"), THOUGHT, PartEndEvent(0, ThinkingPart(""))]),
        ("closed", [START, ITEM, PART, ITEM_END]),
        ("closed", [START, ITEM, PART, DELTA, PART_END, END]),
        ("closed", [START, ITEM, PART, ERROR]),
        ("incomplete", [*CUT, ITEM_END]),
        ("text", [START, OPAQUE_ITEM, PartStartEvent(0, OpaquePart("x", 1)), PartEndEvent(0, OpaquePart("x", 2))]),
        ("text", [START, THOUGHT_ITEM, THOUGHT, SIGNED, PartEndEvent(0, ThinkingPart("", signature="t"))]),
        ("error", [START, ERROR, ERROR]),
        ("error", [START, ERROR, ITEM]),
        ("result", [RESULT]),
        ("result", [CALL, RESULT, RESULT]),
        ("run", [RUN_END, RUN_END]),
        ("run", [START, RUN_END]),
        ("run", [RUN_END, SideEvent("x", "y")]),
    ],
)  # fmt: skip
def test_each_rule_is_enforced_by_name(rule: str, events: list[Event]) -> None:
    folded = Fold()
    for event in events[:-1]:
        folded.feed(event)
    with pytest.raises(IllegalEvent) as caught:
        folded.feed(events[-1])
    assert caught.value.rule == rule


def test_a_run_folds_into_messages_with_results_between_turns() -> None:
    first: list[Event] = [START, ItemStartEvent(0, "tool_call"), PartStartEvent(0, ToolCallPart("f", "", "c"))]
    first += [PartEndEvent(0, ToolCallPart("f", "", "c")), ITEM_END, ResponseEndEvent(usage=Usage(1, 2))]
    second: list[Event] = [START, ITEM, PART, DELTA, PART_END, ITEM_END, ResponseEndEvent(usage=Usage(3, 4, 1))]
    folded = fold([*first, CALL, RESULT, *second, SideEvent("a", "b"), RUN_END])
    assert [message.kind for message in folded.messages] == ["response", "request", "response"]
    assert folded.usage == Usage(4, 6, 1)


def test_the_snapshot_of_an_open_turn() -> None:
    folded = fold([START, ITEM, PART, DELTA, DELTA])
    snapshot = folded.snapshot()
    assert snapshot is not None
    assert snapshot.parts == [TextPart("aa", complete=False)]


def test_the_snapshot_of_a_signed_thought_keeps_the_signature() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("a", "b", signature="s")
    snapshot = fold(list(emitter.take())).snapshot()
    assert snapshot is not None
    assert snapshot.parts == [ThinkingPart("b", signature="s", provider_name="p", complete=False)]


def test_a_part_with_the_key_of_another_kind_of_item_is_a_separate_item() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("a", "b", item="x")
    emitter.whole_part(OpaquePart("new", 1), item="x")
    response = fold(list(emitter.end())).response
    assert response is not None
    assert response.parts == [TextPart("b"), OpaquePart("new", 1)]


def test_a_lone_surrogate_is_valid_json() -> None:
    assert ToolReturnPart("f", {"name": "\ud800"}).content_as_text() == '{"name": "\\ud800"}'


def test_usage_that_is_not_reported_is_none() -> None:
    assert Usage() + Usage() == Usage()
    assert (Usage(1, None) + Usage(2, 5, details={"x": 1}) + Usage(details={"x": 2})) == Usage(3, 5, details={"x": 3})
    assert Usage(1, None).total_tokens is None
    assert Usage(1, 2).total_tokens == 3


def test_messages_round_trip_as_json() -> None:
    response = ModelResponse(
        [
            ThinkingPart("t", signature="s", form="summary"),
            TextPart("a", annotations=[{"type": "url_citation"}]),
            ToolCallPart("f", {"a": 1}, "c"),
            BuiltinToolCallPart("web_search", "{}", "b"),
            OpaquePart("new", {"x": 1}),
        ],
        usage=Usage(1, 2),
        origin=ORIGIN,
        finish_reason="stop",
    )
    assert msgspec.json.decode(msgspec.json.encode(response), type=ModelResponse) == response


def test_kinds_are_readable_attributes_and_tags() -> None:
    part = ThinkingPart("x")
    assert part.part_kind == "thinking"
    assert msgspec.to_builtins(part)["part_kind"] == "thinking"
    assert ThinkingPartDelta("x").part_delta_kind == "thinking"
    assert DELTA.event_kind == "part_delta"


@given(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3), max_size=2), st.text(max_size=3))
def test_arguments_as_an_object_stream_as_json_text_and_stay_an_object(args: dict[str, Any], more: str) -> None:
    emitter = Emitter(ORIGIN)
    emitter.tool_call("a", args, name="f", call_id="c")
    emitter.tool_call("a", more)
    response = fold(list(emitter.end())).response
    assert response is not None
    [call] = response.parts
    assert isinstance(call, ToolCallPart)
    assert call.args == (json_text(args) + more if more else args)
    assert fold(list(response_events(response))).response == response
