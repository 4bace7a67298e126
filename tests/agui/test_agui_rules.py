"""Each rule has a stream that breaks it alone, and the official client treats the stream as the rule defines."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from pellucid.protocols.agui import events as e
from pellucid.protocols.agui.dialects import DIALECTS, DialectName
from pellucid.protocols.agui.sequence import RULES, Severity
from pellucid.protocols.agui.verify import Verifier, verify
from tests.agui import agui_node

Event = dict[str, Any]

START: Event = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
END: Event = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
FAILED: Event = {"type": "RUN_ERROR", "message": "m"}
VALUE: Event = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "r1", "encryptedValue": "v"}
ACTIVITY_DELTA: Event = {"type": "ACTIVITY_DELTA", "messageId": "x", "activityType": "a", "patch": []}
HELPER: Event = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n"}
HELPED: Event = {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"}


def text_message(id: str = "a", *deltas: str, **more: Any) -> list[Event]:
    contents = [{"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": delta} for delta in deltas]
    opens = {"type": "TEXT_MESSAGE_START", "messageId": id, **more}
    return [opens, *contents, {"type": "TEXT_MESSAGE_END", "messageId": id}]


def thought(id: str = "r1", *deltas: str, role: str = "reasoning") -> list[Event]:
    contents = [{"type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": delta} for delta in deltas]
    opens = {"type": "REASONING_MESSAGE_START", "messageId": id, "role": role}
    return [opens, *contents, {"type": "REASONING_MESSAGE_END", "messageId": id}]


def tool_call(id: str = "c", **more: Any) -> list[Event]:
    return [
        {"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "f", **more},
        {"type": "TOOL_CALL_END", "toolCallId": id},
    ]


def arguments(delta: str, id: str = "c") -> Event:
    return {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": delta}


def result(call: str = "c", id: str = "t1") -> Event:
    return {"type": "TOOL_CALL_RESULT", "messageId": id, "toolCallId": call, "content": "x"}


def span(*inside: Event, id: str = "s1") -> list[Event]:
    return [{"type": "REASONING_START", "messageId": id}, *inside, {"type": "REASONING_END", "messageId": id}]


def snapshot(*messages: Event) -> Event:
    return {"type": "MESSAGES_SNAPSHOT", "messages": list(messages)}


def interrupt(*ids: str) -> Event:
    return {**END, "outcome": {"type": "interrupt", "interrupts": [{"id": id, "reason": "why"} for id in ids]}}


class Case(NamedTuple):
    rule: str
    severity: Severity
    at: int
    events: list[Event]


R1 = {"id": "r1", "role": "reasoning", "content": ""}
CASES = [
    Case("event", "fatal", 1, [START, {"messageId": "a"}, END]),
    Case("type", "silent", 1, [START, {"type": "NOVELTY"}, END]),
    Case("fields", "fatal", 1, [START, *thought(role="assistant"), END]),
    Case("fields", "fatal", 1, [START, {"type": "STEP_STARTED"}, END]),
    Case("fields", "fatal", 1, [START, {**text_message()[0], "timestamp": 1.5}, END]),
    Case("fields", "fatal", 1, [START, {**text_message()[0], "metadata": None}, END]),
    Case("fields", "fatal", 1, [START, {**VALUE, "subtype": "reasoning"}, END]),
    Case("fields", "fatal", 1, [START, snapshot({**R1, "content": ["a"]}), END]),
    Case("unknown", "silent", 1, [START, {**span()[0], "encryptedContent": "v"}, span()[1], END]),
    Case("retired", "silent", 1, [START, *tool_call(parentMessageId=None), END]),
    Case("retired", "silent", 1, [START, {"type": "THINKING_START"}, {"type": "THINKING_END"}, END]),
    Case("start", "fatal", 0, [*text_message(), END]),
    Case("start", "fatal", 1, [START, START, END]),
    Case("terminal", "fatal", 2, [START, END, *text_message()]),
    Case("terminal", "fatal", 2, [START, FAILED, END]),
    Case("truncated", "silent", 4, [START, *text_message("a", "x")]),
    Case("version", "silent", 0, [{**START, "protocolVersion": "2.0"}, END]),
    Case("run", "silent", 1, [START, {**END, "runId": "other"}]),
    Case("run", "silent", 2, [START, END, {**START, "threadId": "other"}, {**END, "threadId": "other"}]),
    Case("reopened", "fatal", 2, [START, text_message()[0], text_message()[0], END]),
    Case("unopened", "fatal", 1, [START, thought("r1", "x")[1], END]),
    Case("unopened", "fatal", 1, [START, {"type": "STEP_FINISHED", "stepName": "n"}, END]),
    Case("unclosed", "fatal", 2, [START, span()[0], END]),
    Case("owner", "fatal", 2, [START, text_message()[0], {**text_message("a", "x")[1], "subagentRunId": "s"}, END]),
    Case("subagent", "fatal", 3, [START, HELPER, HELPED, HELPER, END]),
    Case("chunk", "fatal", 1, [START, {"type": "REASONING_MESSAGE_CHUNK", "delta": "x"}, END]),
    Case("chunk", "fatal", 1, [START, {"type": "TOOL_CALL_CHUNK", "toolCallId": "c"}, END]),
    Case("ids", "silent", 3, [START, *thought("a", "hm")[::2], *text_message("a", "x"), END]),
    Case("ids", "silent", 3, [START, *tool_call("a"), *tool_call("a"), END]),
    Case("anchor", "silent", 1, [START, VALUE, *thought(), END]),
    Case("value", "silent", 4, [START, *thought(), VALUE, {**VALUE, "encryptedValue": "w"}, END]),
    Case("snapshot", "silent", 4, [START, *thought(), VALUE, snapshot(R1), END]),
    Case("snapshot", "silent", 3, [START, *thought(), snapshot({**R1, "id": "r2"}), END]),
    Case("snapshot", "silent", 2, [START, tool_call()[0], snapshot(), tool_call()[1], END]),
    Case("result", "silent", 2, [START, tool_call()[0], result(), tool_call()[1], END]),
    Case("result", "silent", 4, [START, *tool_call(), result(), result(id="t2"), END]),
    Case("result", "silent", 3, [START, *text_message(), result("zz"), END]),
    Case("result", "silent", 2, [START, result("earlier"), result("earlier", id="t2"), END]),
    Case("arguments", "silent", 4, [START, tool_call()[0], arguments("{"), tool_call()[1], END]),
    Case("arguments", "silent", 5, [START, tool_call()[0], arguments("{"), arguments("}}"), tool_call()[1], END]),
    Case("interrupt", "silent", 1, [START, interrupt("i", "i")]),
    Case("activity", "silent", 1, [START, ACTIVITY_DELTA, END]),
    Case("empty", "style", 2, [START, *text_message("a", ""), END]),
    Case("order", "style", 2, [START, thought()[0], VALUE, thought()[1], END]),
    Case("order", "style", 5, [START, *span(*thought()), VALUE, END]),
    Case("order", "style", 2, [START, span()[0], *text_message(), span()[1], END]),
]


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(RULES)


def test_each_case_breaks_its_rule_alone() -> None:
    for case in CASES:
        violation = verify(case.events)
        assert violation is not None, case
        assert (violation.rule, violation.severity, violation.index) == (case.rule, case.severity, case.at), case
        assert verify(case.events, least="fatal") == (violation if case.severity == "fatal" else None)


CUT: Event = {**END, "metadata": {"pellucid": {"status": "incomplete"}}}
CANCELLED: Event = {**END, "outcome": {"type": "cancelled"}}
CUT_CALL = [START, tool_call()[0], arguments("{"), tool_call()[1]]


@pytest.mark.parametrize("end", [CUT, CANCELLED, FAILED])
def test_the_arguments_of_a_run_that_was_cut_off_may_be_cut_off(end: Event) -> None:
    assert verify([*CUT_CALL, end]) is None


@pytest.mark.parametrize("written", ["", "{}", '{"a": [1]}', "[]", "1"])
def test_results_and_arguments_that_are_legal(written: str) -> None:
    call = [tool_call()[0], *([arguments(written)] if written else []), tool_call()[1]]
    assert verify([START, result("earlier"), *call, result(id="t2"), *text_message(), END]) is None


def test_the_gravest_violation_of_an_event_comes_first() -> None:
    snake_case = {"type": "TEXT_MESSAGE_CONTENT", "message_id": "a", "delta": "x"}
    for events in ([START, snake_case, END], [START, text_message()[0], snake_case, END]):
        violation = verify(events)
        assert violation is not None
        assert (violation.rule, violation.severity, violation.index) == ("fields", "fatal", len(events) - 2)
        assert "messageId" in violation.message


@pytest.mark.needs("node")
def test_the_official_client_agrees_with_the_rules() -> None:
    for case, result in zip(CASES, agui_node.play("1.0.0", [case.events for case in CASES]), strict=True):
        assert result["accepted"] == (case.severity != "fatal"), (case, result)


LOST: list[tuple[list[Event], list[Event]]] = [
    ([*thought("a", "hm"), *text_message("a", "x")], [{"id": "a", "role": "reasoning", "content": "hmx"}]),
    ([VALUE, *thought()], [R1]),
    ([*thought(), VALUE, {**VALUE, "encryptedValue": "w"}], [{**R1, "encryptedValue": "w"}]),
    ([*thought(), VALUE, snapshot(R1)], [R1]),
    ([*thought(), snapshot({**R1, "id": "r2"})], [{**R1, "id": "r2"}]),
]


def test_silently_dropped_events_are_of_level_silent() -> None:
    for events, _ in LOST:
        violation = verify([START, *events, END])
        assert violation is not None
        assert violation.severity == "silent"


@pytest.mark.needs("node")
def test_the_client_ignores_violations_of_level_silent() -> None:
    streams = [[START, *events, END] for events, _ in LOST]
    for (_, messages), result in zip(LOST, agui_node.play("1.0.0", streams), strict=True):
        assert (result["accepted"], result["warnings"], result["messages"]) == (True, [], messages)


OLD: list[tuple[DialectName, str, list[Event]]] = [
    ("0.x", "type", [START, HELPER, HELPED, END]),
    ("0.x", "type", [START, {"type": "NOVELTY"}, END]),
    ("0.x", "fields", [START, {**END, "outcome": {"type": "cancelled"}}]),
    ("0.x", "fields", [START, {**END, "outcome": {"type": "success", "pendingToolCallIds": []}}]),
    ("0.x", "empty", [START, *text_message("a", ""), END]),
    ("0.x", "terminal", [START, FAILED, START, END]),
    ("thinking", "type", [START, *thought(), END]),
    ("thinking", "unopened", [START, {"type": "THINKING_TEXT_MESSAGE_START"}, END]),
    ("thinking", "reopened", [START, {"type": "THINKING_START"}, {"type": "THINKING_START"}, END]),
    ("thinking", "fields", [START, snapshot(R1), END]),
]
THINKING: list[Event] = [
    START,
    {"type": "THINKING_START", "title": "t"},
    {"type": "THINKING_TEXT_MESSAGE_START"},
    {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "hm"},
    {"type": "THINKING_TEXT_MESSAGE_END"},
    {"type": "THINKING_END"},
    *text_message("a", "x"),
    END,
]


def test_fatal_violations_of_older_dialects() -> None:
    for dialect, rule, events in OLD:
        violation = verify(events, dialect)
        assert violation is not None
        assert (violation.rule, violation.severity) == (rule, "fatal"), (dialect, events)
    assert verify(THINKING, "thinking") is None


@pytest.mark.needs("node")
def test_older_clients_refuse_fatal_violations() -> None:
    streams = [events for _, _, events in OLD]
    older: list[agui_node.Client] = ["0.0.58", "0.0.45", "0.0.39"]
    played = {client: agui_node.play(client, [*streams, THINKING]) for client in older}
    for at, (dialect, _, events) in enumerate(OLD):
        clients = older[:2] if dialect == "0.x" else older[2:]
        assert not all(played[client][at]["accepted"] for client in clients), (dialect, events)
    # What the oldest knows, the others know as well.
    for result in played.values():
        assert result[-1]["accepted"], result[-1]
        assert result[-1]["messages"][-1]["content"] == "x"


PROPOSED = {"type": "REASONING_START", "messageId": "s1", "encryptedContent": "v"}
CHUNKS = [{"type": "REASONING_MESSAGE_CHUNK", "messageId": "r1", "delta": "a"}, {"type": "REASONING_MESSAGE_CHUNK"}]


@pytest.mark.parametrize(
    ("rule", "events"),
    [
        (None, [PROPOSED, *thought("r1", "hm", role="assistant"), span()[1]]),
        (None, [snapshot({"id": "r1", "role": "reasoning", "content": ["a"], "encryptedContent": "v"})]),
        (None, [*span(CHUNKS[0]), {**CHUNKS[1], "delta": "b"}, {**CHUNKS[1], "delta": ""}, *text_message("a", "x")]),
        ("fields", [*thought("r1", "hm")]),
        ("fields", [snapshot(R1)]),
        ("type", [*thought(role="assistant"), VALUE]),
        ("empty", [*thought("r1", "", role="assistant")]),
        ("chunk", [CHUNKS[1]]),
        ("chunk", [CHUNKS[0], {**CHUNKS[1], "delta": ""}, CHUNKS[1]]),
        ("chunk", [CHUNKS[0], *text_message("a", "x"), {**CHUNKS[1], "delta": "more"}]),
    ],
)
def test_the_rules_of_the_proposal(rule: str | None, events: list[Event]) -> None:
    violation = verify([START, *events, END], "proposal", least="silent")
    assert (violation and violation.rule) == rule, violation


def test_the_verifier_accepts_objects_and_classes() -> None:
    verifier = Verifier("1.0")
    for event in (START, *text_message("a", "x")):
        assert verifier.feed(e.decode_event(event)) == []
    [violation] = verifier.feed({**END, "runId": "other"})
    assert (violation.index, violation.rule) == (4, "run")
    assert "RUN_FINISHED" in str(violation)
    assert verifier.end() == []
    assert verify([msgspec.Raw(b"1")]) is not None
    for value in (None, 1, "x", [], object()):
        assert verify([value]) == verify([{}])


def test_dialects_are_those_of_the_encoder() -> None:
    for name, dialect in DIALECTS.items():
        for kind in dialect.event_types:
            violation = verify([START, {"type": kind}], name)
            assert violation is None or violation.rule != "type", (name, kind)
    with pytest.raises(ValueError, match="there is no dialect '2'"):
        Verifier("2")  # type: ignore[arg-type]


def test_the_sealed_value_of_chunks_follows_the_last_chunk() -> None:
    started = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
    value = {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "a", "encryptedValue": "v"}
    rest = [value, {"type": "REASONING_END", "messageId": "s"}, {**started, "type": "RUN_FINISHED"}]
    span = {"type": "REASONING_START", "messageId": "s"}
    assert verify([started, span, {"type": "REASONING_MESSAGE_CHUNK", "messageId": "a", "delta": "x"}, *rest]) is None
    whole = {"type": "REASONING_MESSAGE_START", "messageId": "a", "role": "reasoning"}
    end = {"type": "REASONING_MESSAGE_END", "messageId": "a"}
    early = verify([started, span, whole, value, end, *rest[1:]])
    assert early is not None
    assert early.rule == "order"
