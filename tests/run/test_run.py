"""The `Run` state machine: ids, the loop of tools, exactly one end, and checks of the output."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter, response_events
from pellucid.errors import ErrorInfo, IllegalEvent
from pellucid.events import (
    ErrorEvent,
    Event,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
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
from pellucid.fold import fold
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    ModelRequest,
    ModelResponse,
    Origin,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    Usage,
    UserPromptPart,
)
from pellucid.run import PREFIX_OF, CallModel, CallTools, CheckOutput, Effect, Minter, Run
from pellucid.settings import ModelCall, ToolChoice, ToolDefinition

ORIGIN = Origin("p", "w", "m")
CALL = ModelCall("m", [ModelRequest([UserPromptPart("go")])], tools=(ToolDefinition("ours"), ToolDefinition("theirs")))
OUCH = ErrorInfo("timeout", "the upstream went quiet")
Called = tuple[str, str | None]


def turn(
    *calls: Called, think: str = "t", text: str = "", reason: Any = "stop", usage: Usage | None = None
) -> list[ModelEvent]:
    """Return the events of a turn with thinking, text and calls."""
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", think)
    emitter.text("t", text)
    for at, (name, call_id) in enumerate(calls):
        emitter.tool_call(at, "{}", name=name, call_id=call_id)
    emitter.finish(reason)
    emitter.usage = usage or Usage()
    return emitter.end()


def new_run(**kwargs: Any) -> Run:
    run = Run(CALL, Minter(b"seed"), server_tools=frozenset({"ours"}), **kwargs)
    assert run.start() == [CallModel(CALL)]
    return run


def returns(effects: list[Effect], content: Any = "42") -> list[Any]:
    [effect] = effects
    assert isinstance(effect, CallTools)
    return [ToolReturnPart(call.tool_name, content, call.tool_call_id) for call in effect.calls]


def ids_of(events: list[Event]) -> list[str]:
    return [event.id or "" for event in events if isinstance(event, ItemStartEvent)]


def end_of(events: list[Event]) -> RunEndEvent:
    """Return the end of the run: there is exactly one, it is last, and the events are legal."""
    assert fold(events).run_end is events[-1]
    [end] = [event for event in events if isinstance(event, RunEndEvent)]
    return end


# --- ids -------------------------------------------------------------------------------------------------------------


def test_every_item_gets_an_id_with_its_prefix_in_one_format() -> None:
    emitter = Emitter(ORIGIN)
    for kind in PREFIX_OF:
        emitter.item(kind, kind)
    starts = [event for event in emitter.take() if isinstance(event, ItemStartEvent)]
    mint = Minter(b"seed")
    ids = [mint(PREFIX_OF[event.kind]) for event in starts]
    assert [id.partition("_")[0] for id in ids] == ["rs", "msg", "fc", "bt", "file", "cmp", "op"]
    assert all(len(id.partition("_")[2]) == 32 and int(id.partition("_")[2], 16) >= 0 for id in ids)


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_the_same_seed_gives_the_same_ids_and_another_seed_none_of_them(seed: bytes, other: bytes) -> None:
    def minted(seed: bytes) -> list[str]:
        mint = Minter(seed)
        return [mint("rs") for _ in range(20)]

    assert minted(seed) == minted(seed)
    assert len(set(minted(seed))) == 20
    # Keys are padded with zeros, so seeds that differ only in trailing zeros are equal.
    if seed.rstrip(b"\0") != other.rstrip(b"\0"):
        assert not set(minted(seed)) & set(minted(other))


def test_ids_are_unique_over_all_turns_and_are_in_the_messages() -> None:
    run = new_run()
    events, effects = run.feed(turn(("ours", "a")))
    more, _ = run.add_results(returns(effects))
    last, _ = run.feed(turn(text="done"))
    ids = ids_of(events + last)
    assert len(set(ids)) == len(ids) == 4
    message_ids = [part.item_id for m in run.messages if isinstance(m, ModelResponse) for part in m.parts]
    assert message_ids == ids
    assert not {event.id for event in more if isinstance(event, FunctionToolResultEvent)} & set(ids)


def test_an_item_that_has_its_public_id_keeps_it() -> None:
    parts: Any = [ThinkingPart("t", item_id="rs_1"), TextPart("a", item_id="msg_1")]
    run = new_run()
    events, _ = run.feed(response_events(ModelResponse(parts, origin=ORIGIN)))
    assert ids_of(events) == ["rs_1", "msg_1"]


def test_a_call_without_an_id_gets_one_and_keeps_it() -> None:
    run = new_run()
    events, effects = run.feed(turn(("ours", None), ("ours", None), ("ours", "given")))
    call_ids = [event.part.tool_call_id for event in events if isinstance(event, FunctionToolCallEvent)]
    for kind in (PartStartEvent, PartEndEvent):
        parts = [event.part for event in events if isinstance(event, kind)]
        assert [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)] == call_ids
    assert [call.tool_call_id for call in returns(effects)] == call_ids
    assert len(set(call_ids)) == 3
    assert call_ids[0].startswith("call_")
    assert call_ids[2] == "given"


def test_repeated_call_ids_are_replaced_within_and_across_turns() -> None:
    """Some servers number calls from 0 in every turn, or use one id for all calls."""
    run = new_run()
    seen: list[str] = []
    for _ in range(2):
        _, effects = run.feed(turn(("ours", "call_0"), ("ours", "call_0")))
        results = returns(effects)
        seen += [result.tool_call_id for result in results]
        run.add_results(results)
    assert len(set(seen)) == 4
    assert seen[0] == "call_0"


# --- the loop --------------------------------------------------------------------------------------------------------


def test_without_server_tools_a_run_has_one_turn() -> None:
    run = Run(CALL, Minter(b"seed"))
    run.start()
    events, effects = run.feed(turn(("theirs", "a"), ("ours", "b"), reason="tool_call"))
    assert effects == []
    assert end_of(events).status == "completed"
    assert not [event for event in events if isinstance(event, FunctionToolCallEvent)]


def test_events_of_a_turn_change_only_in_their_ids() -> None:
    turn_events = turn(("theirs", "a"), text="x")
    events, _ = new_run().feed(turn_events)
    bare = [
        event.__class__(**{f: getattr(event, f) for f in event.__struct_fields__ if f != "id"})
        if isinstance(event, ItemStartEvent)
        else event
        for event in events
    ]
    assert bare[:-1] == turn_events


def test_server_tools_loop_with_the_whole_history_and_the_same_settings() -> None:
    run = new_run()
    events, effects = run.feed(turn(("ours", "a"), think="one", usage=Usage(10, 5, 2)))
    calls = [event.part.tool_call_id for event in events if isinstance(event, FunctionToolCallEvent)]
    assert calls == ["a"]
    assert run.run_end is None
    for content, think in (("42", "two"), (RetryPromptPart("again", "ours", "b"), "three")):
        results = returns(effects) if isinstance(content, str) else [content]
        more, [effect] = run.add_results(results)
        assert isinstance(effect, CallModel)
        ask = effect
        assert ask.call.messages[-1] == ModelRequest(results)
        assert (ask.call.tools, ask.call.settings, ask.call.model) == (CALL.tools, CALL.settings, CALL.model)
        turn_events, effects = run.feed(
            turn(*([("ours", "b")] if think == "two" else []), think=think, usage=Usage(20, 7, None))
        )
        events += more + turn_events
    # Every turn has its own reasoning item and message, in order, with the results in between.
    assert [type(message) for message in ask.call.messages] == [ModelRequest, ModelResponse] * 2 + [ModelRequest]
    assert [m.thinking for m in ask.call.messages if isinstance(m, ModelResponse)] == ["one", "two"]
    assert run.messages == fold(events).messages
    assert [m.thinking for m in run.messages if isinstance(m, ModelResponse)] == ["one", "two", "three"]
    end = end_of(events)
    assert (end.status, end.usage) == ("completed", Usage(50, 19, 2))
    assert len(set(ids_of(events))) == len(ids_of(events))


def test_the_call_of_the_caller_is_not_changed() -> None:
    before = list(CALL.messages)
    run = new_run()
    run.add_results(returns(run.feed(turn(("ours", "a")))[1]))
    assert CALL.messages == before


def test_client_calls_end_the_run_after_the_servers_calls_are_done() -> None:
    run = new_run()
    events, effects = run.feed(turn(("ours", "a"), ("theirs", "b"), reason="tool_call"))
    assert [call.tool_call_id for call in returns(effects)] == ["a"]
    more, effects = run.add_results(returns(effects))
    assert effects == []
    assert end_of(events + more).status == "completed"
    # The caller's call is in the messages, without a result.
    assert [type(message) for message in run.messages] == [ModelResponse, ModelRequest]


@pytest.mark.parametrize(("limit", "turns"), [(1, 1), (2, 2), (3, 3)])
def test_more_calls_than_allowed_end_the_run_incomplete(limit: int, turns: int) -> None:
    run = new_run(max_tool_calls=limit)
    events: list[Event] = []
    for at in range(turns):
        turn_events, effects = run.feed(turn(("ours", f"c{at}")))
        more, _ = run.add_results(returns(effects))
        events += turn_events + more
    turn_events, effects = run.feed(turn(("ours", "one too many")))
    assert effects == []
    end = end_of(events + turn_events)
    assert (end.status, end.incomplete_reason) == ("incomplete", "max_tool_calls")


def test_no_call_is_executed_if_together_they_exceed_the_limit() -> None:
    events, effects = new_run(max_tool_calls=1).feed(turn(("ours", "a"), ("ours", "b")))
    assert effects == []
    assert end_of(events).incomplete_reason == "max_tool_calls"


@pytest.mark.parametrize(
    ("reason", "status", "why"),
    [
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
        ("error", "failed", None),
        ("stop", "completed", None),
        (None, "completed", None),
    ],
)
def test_the_status_of_a_run_follows_from_its_last_finish_reason(reason: Any, status: str, why: Any) -> None:
    end = end_of(new_run().feed(turn(text="x", reason=reason))[0])
    assert (end.status, end.incomplete_reason) == (status, why)
    assert (end.error is not None) is (status == "failed")


def test_a_turn_that_was_cut_because_it_repeats_itself_says_so() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("k", "again and again and ")
    emitter.cut("repetition")
    end = end_of(new_run().feed(emitter.end("cancelled"))[0])
    assert (end.status, end.incomplete_reason) == ("incomplete", "repetition")


def test_calls_of_a_turn_that_was_cut_are_not_executed() -> None:
    events, effects = new_run().feed(turn(("ours", "a"), reason="length"))
    assert effects == []
    assert end_of(events).status == "incomplete"


def test_a_truncated_turn_without_a_finish_reason_fails_the_run() -> None:
    """A completed run has no incomplete items."""
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "half a th")
    end = end_of(new_run().feed(emitter.end("cancelled"))[0])
    assert (end.status, end.error.kind if end.error else None) == ("failed", "model_error")


# --- ends ------------------------------------------------------------------------------------------------------------


def feed_first(run: Run, count: int) -> list[Event]:
    """Feed the first `count` events of a two-turn conversation one by one, and return the run's events."""
    out: list[Event] = []
    for first in (turn(("ours", "a"), text="x"), turn(text="y")):
        for event in first[:count]:
            events, effects = run.feed([event])
            out += events
            if effects and count > len(first):
                out += run.add_results(returns(effects))[0]
        count -= len(first)
        if count <= 0:
            break
    return out


TOTAL = len(turn(("ours", "a"), text="x")) + len(turn(text="y"))


@given(st.integers(0, TOTAL), st.sampled_from(["cancel", "fail", "both"]))
def test_a_run_that_is_stopped_anywhere_has_exactly_one_end_and_is_legal(count: int, how: str) -> None:
    run = new_run()
    events = feed_first(run, count)
    if how != "fail":
        run.cancel()
    events += run.end(OUCH if how != "cancel" else None)
    end = end_of(events)
    if count == TOTAL:
        assert end.status == "completed"
    else:
        assert end.status == ("failed" if how == "fail" else "cancelled")
        assert end.error == (OUCH if how == "fail" else None)
    # Earlier parts are stored, and there are no further events.
    streamed_thinking = "".join(
        event.delta.content_delta or ""
        for event in events
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta)
    )
    stored_thinking = "".join(m.thinking or "" for m in run.messages if isinstance(m, ModelResponse))
    assert streamed_thinking == stored_thinking
    assert run.end(OUCH) == []
    assert run.feed(turn(text="late")) == ([], [])
    assert run.add_results([ToolReturnPart("ours", "late", "a")]) == ([], [])


def test_a_part_that_is_closed_by_the_run_is_incomplete() -> None:
    run = new_run()
    emitter = Emitter(ORIGIN)
    emitter.text("t", "half an ans")
    events, _ = run.feed(emitter.take())
    events += run.end(OUCH)
    [part] = [part for m in run.messages if isinstance(m, ModelResponse) for part in m.parts]
    assert isinstance(part, TextPart)
    assert (part.content, part.complete) == ("half an ans", False)
    assert [event.error for event in events if isinstance(event, ErrorEvent)] == [OUCH]


def test_only_the_first_error_is_emitted() -> None:
    run = new_run()
    emitter = Emitter(ORIGIN)
    emitter.fail(ErrorInfo("model_error", "the first"))
    events, _ = run.feed(emitter.take())
    end = end_of(events + run.end(OUCH))
    assert end.error == ErrorInfo("model_error", "the first")


def test_a_run_that_is_cancelled_during_its_tools_does_not_call_the_model_again() -> None:
    run = new_run()
    events, effects = run.feed(turn(("ours", "a")))
    run.cancel()
    more, effects = run.add_results(returns(effects))
    assert effects == []
    assert end_of(events + more).status == "cancelled"


def test_a_cancelled_run_ends_as_cancelled_whatever_the_turn_says() -> None:
    for reason in ("stop", "length", "error", None):
        run = new_run()
        run.cancel()
        assert end_of(run.feed(turn(text="x", reason=reason))[0]).status == "cancelled"


def test_events_with_or_after_the_end_are_ignored() -> None:
    events, _ = new_run().feed([*turn(text="x"), SideEvent("queue", "left"), *turn(text="another")])
    assert end_of(events).status == "completed"


def test_side_events_keep_their_position() -> None:
    side = SideEvent("queue", "position", 3)
    events, _ = new_run().feed([side, *turn(text="x")])
    assert events[0] is side


@given(st.lists(st.sampled_from(["ours", "theirs"]), max_size=3), st.lists(st.integers(0, 6), max_size=6))
def test_the_boundaries_of_reads_change_nothing(names: list[str], sizes: list[int]) -> None:
    turn_events = turn(*((name, None) for name in names), text="x", usage=Usage(1, 2))
    whole_events, whole_effects = new_run().feed(list(turn_events))
    run, left = new_run(), list(turn_events)
    events: list[Event] = []
    effects: list[Effect] = []
    for size in [*sizes, len(turn_events)]:
        more, effects = run.feed(left[:size])
        left = left[size:]
        events += more
        if effects:
            break
    assert (events, effects) == (whole_events, whole_effects)
    assert isinstance(turn_events[0], ResponseStartEvent)
    assert isinstance(turn_events[-1], ResponseEndEvent)


# --- checks of the output ------------------------------------------------------------------------------------------


def test_an_answer_ends_the_run_only_when_it_is_accepted() -> None:
    run = new_run(checks_output=True)
    events, [look] = run.feed(turn(text="maybe"))
    assert isinstance(look, CheckOutput)
    assert look.response.text == "maybe"
    assert run.run_end is None
    wrong = RetryPromptPart("Say yes or no.")
    more, [ask] = run.reject(wrong)
    assert isinstance(ask, CallModel)
    assert ask.call.messages[-1] == ModelRequest([wrong])
    assert [m.text for m in ask.call.messages if isinstance(m, ModelResponse)] == ["maybe"]
    events += more
    turn_events, _ = run.feed(turn(text="yes"))
    last, effects = run.accept()
    events += turn_events + last
    assert effects == []
    assert end_of(events).status == "completed"
    assert fold(events).messages == run.messages
    assert [type(message) for message in run.messages] == [ModelResponse, ModelRequest, ModelResponse]


def test_only_an_answer_is_checked() -> None:
    for reason in ("length", "error", "content_filter"):
        run = new_run(checks_output=True)
        _, effects = run.feed(turn(text="half", reason=reason))
        assert effects == []
        assert run.run_end is not None
    run = new_run(checks_output=True)
    run.feed(turn(("theirs", "a")))
    assert run.run_end is not None, "the caller answers its own call"


def test_accept_and_reject_without_an_answer_are_illegal() -> None:
    run = new_run(checks_output=True)
    for say in (run.accept, lambda: run.reject(RetryPromptPart("no"))):
        with pytest.raises(IllegalEvent, match="no answer"):
            say()
    run.feed(turn(text="yes"))
    with pytest.raises(IllegalEvent, match="goes on"):
        run.feed(turn(text="and more"))
    assert run.end(OUCH)[-1] is run.run_end


def test_a_call_can_be_the_answer() -> None:
    run = new_run()
    events, effects = run.feed(turn(("ours", "a")))
    more, effects = run.add_results(returns(effects), ends_run=True)
    assert effects == []
    assert end_of(events + more).status == "completed"


def test_a_paused_turn_is_continued() -> None:
    run = new_run()
    events, [ask] = run.feed(turn(think="searching", reason="pause"))
    assert isinstance(ask, CallModel)
    assert [m.thinking for m in ask.call.messages if isinstance(m, ModelResponse)] == ["searching"]
    more, _ = run.feed(turn(text="found"))
    assert end_of(events + more).status == "completed"


def test_a_cancelled_run_does_not_call_the_model_again_after_a_check() -> None:
    for say in ("accept", "refuse"):
        run = new_run(checks_output=True)
        events, _ = run.feed(turn(text="maybe"))
        run.cancel()
        more, effects = run.accept() if say == "accept" else run.reject(RetryPromptPart("no"))
        assert effects == []
        assert end_of(events + more).status == "cancelled"


def test_a_call_is_forced_again_only_if_the_output_is_checked() -> None:
    forced = msgspec.structs.replace(CALL, tool_choice=ToolChoice("required", ("ours",)))
    for checks, mode, names in ((False, "auto", ()), (True, "required", ("ours",))):
        run = Run(forced, Minter(b"seed"), server_tools=frozenset({"ours"}), checks_output=checks)
        run.start()
        _, effects = run.feed(turn(("ours", "a")))
        _, [ask] = run.add_results(returns(effects))
        assert isinstance(ask, CallModel)
        assert (ask.call.tool_choice.mode, ask.call.tool_choice.names) == (mode, names)


def test_a_loop_without_progress_ends() -> None:
    run = new_run(max_turns=3)
    events, effects = run.feed(turn(reason="pause"))
    for _ in range(5):
        if effects:
            more, effects = run.feed(turn(reason="pause"))
            events += more
    end = end_of(events)
    assert (end.status, end.error and end.error.code) == ("failed", "max_turns")
    assert len(run.messages) == 3


def test_ids_of_calls_are_unique_in_the_whole_conversation() -> None:
    before = [ModelRequest([UserPromptPart("go")]), ModelResponse([ToolCallPart("ours", "{}", "f:0")], origin=ORIGIN)]
    answered = [*before, ModelRequest([ToolReturnPart("ours", "1", "f:0")])]
    run = Run(msgspec.structs.replace(CALL, messages=answered), Minter(b"seed"))
    events, _ = run.feed(turn(("theirs", "f:0"), ("theirs", "f:1")))
    calls = [
        event.part.tool_call_id
        for event in events
        if isinstance(event, PartEndEvent)
        and isinstance(event.part, ToolCallPart | BuiltinToolCallPart | BuiltinToolReturnPart)
    ]
    assert calls[0] not in ("f:0", "")
    assert calls[1] == "f:1"
