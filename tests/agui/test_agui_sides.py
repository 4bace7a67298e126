"""Side events of an agent in any order: the stream is legal, and clients keep their messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import IllegalEvent
from pellucid.events import Event, RunEndEvent
from pellucid.parts import Usage
from pellucid.protocols.agui import DialectName, Encoder, Interrupt
from pellucid.protocols.agui import events as e
from pellucid.protocols.agui.messages import (
    ActivityMessage,
    AssistantMessage,
    FunctionCall,
    ReasoningMessage,
    ToolCall,
    UserMessage,
)
from tests.agui import agui_node
from tests.agui.agui_kit import DIALECTS, events_of, several, turn, types, violation_of
from tests.examples import many

ids = st.sampled_from(["a", "b", "c"])
owners = st.sampled_from([None, None, None, "a", "b"])
words = st.sampled_from(["", "x", "yy"])


def made(cls: type[Any], owned: bool = True, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, **({"subagent_run_id": owners} if owned else {}), **fields)


calls = st.lists(st.builds(ToolCall, id=ids, function=st.just(FunctionCall(name="f", arguments="{}"))), max_size=2)
messages = st.one_of(
    st.builds(UserMessage, id=ids, content=words),
    st.builds(AssistantMessage, id=ids, content=words, tool_calls=st.none() | calls, subagent_run_id=owners),
    st.builds(ReasoningMessage, id=ids, content=words, subagent_run_id=owners),
    st.builds(ActivityMessage, id=ids, activity_type=st.just("p"), content=st.just({})),
)
no_patch: st.SearchStrategy[Any] = st.just([])
maybe = st.none() | ids
side_events = st.one_of(
    made(e.TextMessageStartEvent, message_id=ids, role=st.sampled_from([None, "assistant", "user"])),
    made(e.TextMessageContentEvent, message_id=ids, delta=words),
    made(e.TextMessageEndEvent, message_id=ids),
    made(e.TextMessageChunkEvent, message_id=maybe, delta=st.none() | words),
    made(e.ToolCallStartEvent, tool_call_id=ids, tool_call_name=st.just("f"), parent_message_id=maybe),
    made(e.ToolCallArgsEvent, tool_call_id=ids, delta=words),
    made(e.ToolCallEndEvent, tool_call_id=ids),
    made(e.ToolCallChunkEvent, tool_call_id=maybe, tool_call_name=st.none() | st.just("f"), delta=st.none() | words),
    made(e.ToolCallResultEvent, message_id=ids, tool_call_id=ids, content=words),
    made(e.ReasoningStartEvent, message_id=ids, encrypted_content=st.none() | st.just("v")),
    made(e.ReasoningEndEvent, message_id=ids),
    made(e.ReasoningMessageStartEvent, message_id=ids, role=st.just("reasoning")),
    made(e.ReasoningMessageContentEvent, message_id=ids, delta=words),
    made(e.ReasoningMessageEndEvent, message_id=ids),
    made(e.ReasoningMessageChunkEvent, message_id=maybe, delta=st.none() | words),
    made(
        e.ReasoningEncryptedValueEvent,
        subtype=st.sampled_from(["message", "tool-call"]),
        entity_id=ids,
        encrypted_value=st.sampled_from(["v", "w"]),
    ),
    made(e.ActivitySnapshotEvent, message_id=ids, activity_type=st.just("p"), content=st.just({})),
    made(e.ActivityDeltaEvent, message_id=ids, activity_type=st.just("p"), patch=no_patch),
    made(e.MessagesSnapshotEvent, False, messages=st.lists(messages, max_size=3)),
    made(e.StepStartedEvent, step_name=ids),
    made(e.StepFinishedEvent, step_name=ids),
    made(e.SubagentStartedEvent, False, subagent_run_id=ids, name=st.just("n"), parent_subagent_run_id=maybe),
    made(e.SubagentFinishedEvent, False, subagent_run_id=ids),
    made(e.SubagentErrorEvent, False, subagent_run_id=ids, message=st.just("no")),
    st.builds(Interrupt, id=ids, reason=st.just("x")),
    st.builds(e.ThinkingStartEvent),
    st.builds(e.ThinkingTextMessageStartEvent),
    st.builds(e.ThinkingTextMessageContentEvent, delta=words),
    st.builds(e.ThinkingTextMessageEndEvent),
    st.builds(e.ThinkingEndEvent),
    st.builds(e.StateSnapshotEvent, snapshot=st.just({})),
)
lists = st.lists(side_events, max_size=25)
DONE = RunEndEvent("completed", Usage())


def stream_of(events: list[Any], dialect: DialectName = "1.0", **options: Any) -> list[dict[str, Any]]:
    """Return the stream of a run of these events alone; chunks of no message are refused, and the run goes on."""
    encoder = Encoder("t", "r", dialect, **options)
    out = encoder.start()
    for one in events:
        try:
            out += encoder.feed([one.as_side_event()], 1)
        except IllegalEvent:
            continue
    return events_of(out + encoder.feed([DONE], 1))


def check_legal(events: list[dict[str, Any]], dialect: DialectName) -> None:
    violation = violation_of(events, dialect, least="silent")
    assert violation is None, f"{violation}\n" + "\n".join(map(json.dumps, events))


@many
@given(lists, st.sampled_from(DIALECTS), st.sampled_from([None, True]), st.booleans())
def test_any_side_events_are_a_legal_stream(
    events: list[Any], dialect: DialectName, snapshot: bool | None, chunks: bool
) -> None:
    check_legal(stream_of(events, dialect, snapshot=snapshot, chunks=chunks), dialect)


plain = lists.map(lambda events: [one for one in events if not isinstance(one, e.MessagesSnapshotEvent)])


@given(plain, st.sampled_from(DIALECTS), st.booleans(), st.lists(st.integers(0, 99), min_size=25, max_size=25))
def test_side_events_among_model_events_are_a_legal_stream(
    events: list[Any], dialect: DialectName, chunks: bool, at: list[int]
) -> None:
    script = [("thinking", 0, "hm"), ("close", 0, ""), ("text", 0, "Hi"), ("text", 0, " you"), ("call", 1, "")]
    batches: list[list[Event]] = [[event] for batch in turn(*script) for event in batch]
    places = sorted(place % len(batches) for place, _ in zip(at, events, strict=False))
    for place, one in reversed(list(zip(places, events, strict=True))):
        batches.insert(place, [one.as_side_event()])
    encoder = Encoder("t", "r", dialect, chunks=chunks)
    out = encoder.start()
    for batch in batches:
        try:
            out += encoder.feed(batch, 1)
        except IllegalEvent:
            continue
    check_legal(events_of(out), dialect)


# --- the corners, one by one ---------------------------------------------------------------------------------------


def text(id: str, word: str, **more: Any) -> list[Any]:
    return [
        e.TextMessageStartEvent(message_id=id, role="assistant", **more),
        e.TextMessageContentEvent(message_id=id, delta=word, **more),
        e.TextMessageEndEvent(message_id=id, **more),
    ]


def test_a_second_message_with_the_same_id_gets_a_new_id() -> None:
    events = stream_of([*text("m", "one"), *text("m", "two")])
    assert [event["messageId"] for event in events[1:-1]] == ["m"] * 3 + ["m:2"] * 3


def test_a_subagent_starts_once_and_after_its_parent() -> None:
    start = e.SubagentStartedEvent(subagent_run_id="s", name="n", parent_subagent_run_id="nobody")
    events = stream_of([start, e.SubagentFinishedEvent(subagent_run_id="s"), start])
    assert types(events)[1:-1] == ["SUBAGENT_STARTED", "SUBAGENT_FINISHED"]
    assert "parentSubagentRunId" not in events[1]


def test_later_events_of_a_message_keep_its_owner() -> None:
    began, content, over = text("m", "x")
    events = stream_of([e.TextMessageStartEvent(message_id="m", subagent_run_id="s"), content, over])
    assert {event.get("subagentRunId") for event in events[1:-1]} == {"s"}
    assert began.subagent_run_id is None


def test_the_last_of_two_interrupts_with_one_id_counts() -> None:
    finished = stream_of([Interrupt(id="i", reason="x"), Interrupt(id="i", reason="y")])[-1]
    assert finished["outcome"]["interrupts"] == [{"id": "i", "reason": "y"}]


def test_a_delta_of_an_unknown_activity_is_dropped() -> None:
    assert types(stream_of([e.ActivityDeltaEvent(message_id="q", activity_type="p", patch=[])])) == [
        "RUN_STARTED",
        "RUN_FINISHED",
    ]


# --- the thread ----------------------------------------------------------------------------------------------------


SPOKEN: list[Any] = [
    *text("m", "one "),
    *text("m", "two"),
    e.ToolCallStartEvent(tool_call_id="c", tool_call_name="f", parent_message_id="m"),
    e.ToolCallArgsEvent(tool_call_id="c", delta='{"a"'),
    e.ToolCallArgsEvent(tool_call_id="c", delta=":1}"),
    e.ToolCallEndEvent(tool_call_id="c"),
    e.ReasoningEncryptedValueEvent(subtype="tool-call", entity_id="c", encrypted_value="v"),
    e.ToolCallResultEvent(message_id="r", tool_call_id="c", content="3"),
    e.ReasoningMessageStartEvent(message_id="t", role="reasoning"),
    e.ReasoningMessageContentEvent(message_id="t", delta="hm"),
    e.ReasoningMessageEndEvent(message_id="t"),
    e.ReasoningEncryptedValueEvent(subtype="message", entity_id="t", encrypted_value="w"),
    e.ActivitySnapshotEvent(message_id="act", activity_type="p", content={"done": 1}),
]


@pytest.mark.parametrize("dialect", ["1.0", "proposal"])
def test_a_snapshot_has_the_agent_s_own_messages(dialect: DialectName) -> None:
    events = stream_of(SPOKEN, dialect, snapshot=True)
    check_legal(events, dialect)
    [snapshot] = [event["messages"] for event in events if event["type"] == "MESSAGES_SNAPSHOT"]
    assert [one["id"] for one in snapshot] == ["m", "r", "m:2", "t", "act"]
    assert [one["content"] for one in snapshot][:3] == ["one ", "3", "two"]
    [call] = snapshot[0]["toolCalls"]
    assert (call["function"]["arguments"], call.get("encryptedValue")) == (
        '{"a":1}',
        "v" if dialect == "1.0" else None,
    )
    assert snapshot[3]["content"] == ("hm" if dialect == "1.0" else ["hm"])


def test_the_agent_s_own_snapshot_replaces_its_messages() -> None:
    mine = e.MessagesSnapshotEvent(messages=[UserMessage(id="u", content="short")])
    events = stream_of([*text("m", "long"), mine, *text("n", "more")], snapshot=True)
    assert [one["id"] for one in events[-2]["messages"]] == ["u", "n"]


@pytest.mark.needs("node")
@pytest.mark.parametrize(("client", "dialect"), [("1.0.0", "1.0"), ("1.0.0", "0.x"), ("0.0.58", "0.x")])
def test_clients_accept_every_stream_and_a_snapshot_removes_nothing(
    client: agui_node.Client, dialect: DialectName
) -> None:
    examples: list[list[Any]] = [SPOKEN, *several(lists, share=3)]
    without = agui_node.play(client, [stream_of(one, dialect) for one in examples])
    after = agui_node.play(client, [stream_of(one, dialect, snapshot=True) for one in examples])
    for example, result, snapshot in zip(examples, without, after, strict=True):
        assert (result["accepted"], snapshot["accepted"]) == (True, True), (example, result, snapshot)
        assert by_id(snapshot["messages"]) == by_id(result["messages"]), stream_of(example, dialect, snapshot=True)


def by_id(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["id"]: {name: value for name, value in one.items() if value not in (None, [], "")} for one in messages}
