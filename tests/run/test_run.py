"""The run as a machine: ids minted once, tools called in a loop, and exactly one end, from anywhere."""

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
    """A turn that thinks, speaks and calls."""
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", think)
    emitter.text("t", text)
    for at, (name, call_id) in enumerate(calls):
        emitter.tool_call(at, "{}", name=name, call_id=call_id)
    emitter.finish(reason)
    emitter.usage = usage or Usage()
    return emitter.end()


def a_run(**kwargs: Any) -> Run:
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
    """The run's end: there is one, it is last, and all of it is legal."""
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
    # A key is padded with zeros: seeds that differ in nothing else are one seed.
    if seed.rstrip(b"\0") != other.rstrip(b"\0"):
        assert not set(minted(seed)) & set(minted(other))


def test_ids_are_unique_over_all_turns_and_stand_in_the_messages() -> None:
    run = a_run()
    events, effects = run.feed(turn(("ours", "a")))
    more, _ = run.add_results(returns(effects))
    last, _ = run.feed(turn(text="done"))
    ids = ids_of(events + last)
    assert len(set(ids)) == len(ids) == 4
    kept = [part.item_id for m in run.messages if isinstance(m, ModelResponse) for part in m.parts]
    assert kept == ids
    assert not {event.id for event in more if isinstance(event, FunctionToolResultEvent)} & set(ids)


def test_an_item_that_has_its_public_id_keeps_it() -> None:
    parts: Any = [ThinkingPart("t", item_id="rs_1"), TextPart("a", item_id="msg_1")]
    run = a_run()
    events, _ = run.feed(response_events(ModelResponse(parts, origin=ORIGIN)))
    assert ids_of(events) == ["rs_1", "msg_1"]


def test_a_call_without_an_id_gets_one_and_keeps_it() -> None:
    run = a_run()
    events, effects = run.feed(turn(("ours", None), ("ours", None), ("ours", "given")))
    told = [event.part.tool_call_id for event in events if isinstance(event, FunctionToolCallEvent)]
    for kind in (PartStartEvent, PartEndEvent):
        parts = [event.part for event in events if isinstance(event, kind)]
        assert [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)] == told
    assert [call.tool_call_id for call in returns(effects)] == told
    assert len(set(told)) == 3
    assert told[0].startswith("call_")
    assert told[2] == "given"


def test_two_calls_under_one_id_get_two_in_a_turn_and_over_turns() -> None:
    """Servers that number their calls anew in every turn, or call every call the same."""
    run = a_run()
    seen: list[str] = []
    for _ in range(2):
        _, effects = run.feed(turn(("ours", "call_0"), ("ours", "call_0")))
        results = returns(effects)
        seen += [result.tool_call_id for result in results]
        run.add_results(results)
    assert len(set(seen)) == 4
    assert seen[0] == "call_0"


# --- the loop --------------------------------------------------------------------------------------------------------


def test_without_server_tools_a_turn_is_the_run() -> None:
    run = Run(CALL, Minter(b"seed"))
    run.start()
    events, effects = run.feed(turn(("theirs", "a"), ("ours", "b"), reason="tool_call"))
    assert effects == []
    assert end_of(events).status == "completed"
    assert not [event for event in events if isinstance(event, FunctionToolCallEvent)]


def test_what_passes_through_changes_in_nothing_but_ids() -> None:
    said = turn(("theirs", "a"), text="x")
    events, _ = a_run().feed(said)
    bare = [
        event.__class__(**{f: getattr(event, f) for f in event.__struct_fields__ if f != "id"})
        if isinstance(event, ItemStartEvent)
        else event
        for event in events
    ]
    assert bare[:-1] == said


def test_server_tools_loop_with_the_whole_history_and_the_same_settings() -> None:
    run = a_run()
    events, effects = run.feed(turn(("ours", "a"), think="one", usage=Usage(10, 5, 2)))
    calls = [event.part.tool_call_id for event in events if isinstance(event, FunctionToolCallEvent)]
    assert calls == ["a"]
    assert run.run_end is None
    for content, think in (("42", "two"), (RetryPromptPart("again", "ours", "b"), "three")):
        results = returns(effects) if isinstance(content, str) else [content]
        more, [asked] = run.add_results(results)
        assert isinstance(asked, CallModel)
        ask = asked
        assert ask.call.messages[-1] == ModelRequest(results)
        assert (ask.call.tools, ask.call.settings, ask.call.model) == (CALL.tools, CALL.settings, CALL.model)
        said, effects = run.feed(
            turn(*([("ours", "b")] if think == "two" else []), think=think, usage=Usage(20, 7, None))
        )
        events += more + said
    # Every turn's reasoning is an item and a message of its own, in order, with the results between.
    assert [type(message) for message in ask.call.messages] == [ModelRequest, ModelResponse] * 2 + [ModelRequest]
    assert [m.thinking for m in ask.call.messages if isinstance(m, ModelResponse)] == ["one", "two"]
    assert run.messages == fold(events).messages
    assert [m.thinking for m in run.messages if isinstance(m, ModelResponse)] == ["one", "two", "three"]
    end = end_of(events)
    assert (end.status, end.usage) == ("completed", Usage(50, 19, 2))
    assert len(set(ids_of(events))) == len(ids_of(events))


def test_the_call_that_was_handed_in_is_not_changed() -> None:
    before = list(CALL.messages)
    run = a_run()
    run.add_results(returns(run.feed(turn(("ours", "a")))[1]))
    assert CALL.messages == before


def test_the_caller_s_calls_wait_until_the_server_s_are_done_and_then_the_run_ends() -> None:
    run = a_run()
    events, effects = run.feed(turn(("ours", "a"), ("theirs", "b"), reason="tool_call"))
    assert [call.tool_call_id for call in returns(effects)] == ["a"]
    more, effects = run.add_results(returns(effects))
    assert effects == []
    assert end_of(events + more).status == "completed"
    # The caller's call is in the messages, and has no result.
    assert [type(message) for message in run.messages] == [ModelResponse, ModelRequest]


@pytest.mark.parametrize(("limit", "turns"), [(1, 1), (2, 2), (3, 3)])
def test_more_calls_than_allowed_end_the_run_incomplete(limit: int, turns: int) -> None:
    run = a_run(max_tool_calls=limit)
    events: list[Event] = []
    for at in range(turns):
        said, effects = run.feed(turn(("ours", f"c{at}")))
        more, _ = run.add_results(returns(effects))
        events += said + more
    said, effects = run.feed(turn(("ours", "one too many")))
    assert effects == []
    end = end_of(events + said)
    assert (end.status, end.incomplete_reason) == ("incomplete", "max_tool_calls")


def test_a_batch_of_calls_that_goes_beyond_the_limit_runs_none_of_them() -> None:
    events, effects = a_run(max_tool_calls=1).feed(turn(("ours", "a"), ("ours", "b")))
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
def test_how_a_turn_ended_says_how_the_run_did(reason: Any, status: str, why: Any) -> None:
    end = end_of(a_run().feed(turn(text="x", reason=reason))[0])
    assert (end.status, end.incomplete_reason) == (status, why)
    assert (end.error is not None) is (status == "failed")


def test_a_turn_that_was_cut_does_not_call_its_tools() -> None:
    events, effects = a_run().feed(turn(("ours", "a"), reason="length"))
    assert effects == []
    assert end_of(events).status == "incomplete"


def test_a_turn_that_broke_off_without_a_reason_has_failed() -> None:
    """A completed run has no incomplete item."""
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "half a th")
    end = end_of(a_run().feed(emitter.end("cancelled"))[0])
    assert (end.status, end.error.kind if end.error else None) == ("failed", "model_error")


# --- ends ------------------------------------------------------------------------------------------------------------


def fed(run: Run, count: int) -> list[Event]:
    """What the run says while the first `count` events of a two-turn conversation come one by one."""
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
def test_from_anywhere_there_is_exactly_one_end_and_the_stream_is_legal(count: int, how: str) -> None:
    run = a_run()
    events = fed(run, count)
    if how != "fail":
        run.cancel()
    events += run.end(OUCH if how != "cancel" else None)
    end = end_of(events)
    if count == TOTAL:
        assert end.status == "completed"
    else:
        assert end.status == ("failed" if how == "fail" else "cancelled")
        assert end.error == (OUCH if how == "fail" else None)
    # What had come is kept, and nothing comes any more.
    said = "".join(
        event.delta.content_delta or ""
        for event in events
        if isinstance(event, PartDeltaEvent) and isinstance(event.delta, ThinkingPartDelta)
    )
    kept = "".join(m.thinking or "" for m in run.messages if isinstance(m, ModelResponse))
    assert said == kept
    assert run.end(OUCH) == []
    assert run.feed(turn(text="late")) == ([], [])
    assert run.add_results([ToolReturnPart("ours", "late", "a")]) == ([], [])


def test_a_turn_that_is_closed_by_the_run_is_marked_where_it_broke() -> None:
    run = a_run()
    emitter = Emitter(ORIGIN)
    emitter.text("t", "half an ans")
    events, _ = run.feed(emitter.take())
    events += run.end(OUCH)
    [part] = [part for m in run.messages if isinstance(m, ModelResponse) for part in m.parts]
    assert isinstance(part, TextPart)
    assert (part.content, part.complete) == ("half an ans", False)
    assert [event.error for event in events if isinstance(event, ErrorEvent)] == [OUCH]


def test_an_error_that_was_told_is_not_told_again() -> None:
    run = a_run()
    emitter = Emitter(ORIGIN)
    emitter.fail(ErrorInfo("model_error", "the first"))
    events, _ = run.feed(emitter.take())
    end = end_of(events + run.end(OUCH))
    assert end.error == ErrorInfo("model_error", "the first")


def test_a_run_that_was_cancelled_while_its_tools_ran_does_not_ask_again() -> None:
    run = a_run()
    events, effects = run.feed(turn(("ours", "a")))
    run.cancel()
    more, effects = run.add_results(returns(effects))
    assert effects == []
    assert end_of(events + more).status == "cancelled"


def test_a_cancelled_run_ends_as_cancelled_whatever_the_turn_says() -> None:
    for reason in ("stop", "length", "error", None):
        run = a_run()
        run.cancel()
        assert end_of(run.feed(turn(text="x", reason=reason))[0]).status == "cancelled"


def test_what_comes_with_or_after_the_end_is_not_heard() -> None:
    events, _ = a_run().feed([*turn(text="x"), SideEvent("queue", "left"), *turn(text="another")])
    assert end_of(events).status == "completed"


def test_side_events_pass_through_in_their_place() -> None:
    side = SideEvent("queue", "position", 3)
    events, _ = a_run().feed([side, *turn(text="x")])
    assert events[0] is side


@given(st.lists(st.sampled_from(["ours", "theirs"]), max_size=3), st.lists(st.integers(0, 6), max_size=6))
def test_where_the_reads_fall_changes_nothing(names: list[str], sizes: list[int]) -> None:
    said = turn(*((name, None) for name in names), text="x", usage=Usage(1, 2))
    whole_events, whole_effects = a_run().feed(list(said))
    run, left = a_run(), list(said)
    events: list[Event] = []
    effects: list[Effect] = []
    for size in [*sizes, len(said)]:
        more, effects = run.feed(left[:size])
        left = left[size:]
        events += more
        if effects:
            break
    assert (events, effects) == (whole_events, whole_effects)
    assert isinstance(said[0], ResponseStartEvent)
    assert isinstance(said[-1], ResponseEndEvent)


# --- an answer that is looked at -----------------------------------------------------------------------------------


def test_an_answer_is_the_last_word_only_when_it_is_accepted() -> None:
    run = a_run(checks_output=True)
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
    said, _ = run.feed(turn(text="yes"))
    last, effects = run.accept()
    events += said + last
    assert effects == []
    assert end_of(events).status == "completed"
    assert fold(events).messages == run.messages
    assert [type(message) for message in run.messages] == [ModelResponse, ModelRequest, ModelResponse]


def test_what_is_not_an_answer_is_not_looked_at() -> None:
    for reason in ("length", "error", "content_filter"):
        run = a_run(checks_output=True)
        _, effects = run.feed(turn(text="half", reason=reason))
        assert effects == []
        assert run.run_end is not None
    run = a_run(checks_output=True)
    run.feed(turn(("theirs", "a")))
    assert run.run_end is not None, "the caller's call is theirs to answer"


def test_a_word_on_an_answer_that_nobody_gave() -> None:
    run = a_run(checks_output=True)
    for say in (run.accept, lambda: run.reject(RetryPromptPart("no"))):
        with pytest.raises(IllegalEvent, match="no answer"):
            say()
    run.feed(turn(text="yes"))
    with pytest.raises(IllegalEvent, match="goes on"):
        run.feed(turn(text="and more"))
    assert run.end(OUCH)[-1] is run.run_end


def test_a_call_can_be_the_answer() -> None:
    run = a_run()
    events, effects = run.feed(turn(("ours", "a")))
    more, effects = run.add_results(returns(effects), ends_run=True)
    assert effects == []
    assert end_of(events + more).status == "completed"


def test_a_provider_that_pauses_is_asked_to_go_on() -> None:
    run = a_run()
    events, [ask] = run.feed(turn(think="searching", reason="pause"))
    assert isinstance(ask, CallModel)
    assert [m.thinking for m in ask.call.messages if isinstance(m, ModelResponse)] == ["searching"]
    more, _ = run.feed(turn(text="found"))
    assert end_of(events + more).status == "completed"


def test_a_run_that_was_cancelled_does_not_ask_again_after_a_look() -> None:
    for say in ("accept", "refuse"):
        run = a_run(checks_output=True)
        events, _ = run.feed(turn(text="maybe"))
        run.cancel()
        more, effects = run.accept() if say == "accept" else run.reject(RetryPromptPart("no"))
        assert effects == []
        assert end_of(events + more).status == "cancelled"


def test_a_call_is_not_forced_for_ever() -> None:
    forced = msgspec.structs.replace(CALL, tool_choice=ToolChoice("required", ("ours",)))
    for checks, mode, names in ((False, "auto", ()), (True, "required", ("ours",))):
        run = Run(forced, Minter(b"seed"), server_tools=frozenset({"ours"}), checks_output=checks)
        run.start()
        _, effects = run.feed(turn(("ours", "a")))
        _, [ask] = run.add_results(returns(effects))
        assert isinstance(ask, CallModel)
        assert (ask.call.tool_choice.mode, ask.call.tool_choice.names) == (mode, names)


def test_a_loop_that_goes_nowhere_ends() -> None:
    run = a_run(max_turns=3)
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
