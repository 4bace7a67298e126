"""In every dialect, the stream of any run is legal, and clients build the same messages from it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import ErrorInfo, RequestError
from pellucid.events import Event, ItemStartEvent, PartDeltaEvent, PartEndEvent, RunEndEvent
from pellucid.parts import ModelResponse, SealedPart, ThinkingPart, ThinkingPartDelta, Usage
from pellucid.protocols import agui
from pellucid.protocols.agui import AGUIEvent, DialectName, Encoder, decode_event, encode_event, metadata, proto
from pellucid.protocols.agui.history import history_of
from pellucid.protocols.agui.messages import AssistantMessage, Message, ReasoningMessage, UserMessage
from pellucid.protocols.agui.side_events import SHOWN_FIELDS
from pellucid.protocols.agui.verify import verify
from pellucid.unicode import replace_surrogates
from pellucid.view import Redactor, View, Viewer
from tests.agui import agui_client, agui_node
from tests.agui.agui_kit import (
    DIALECTS,
    NOW,
    encoded,
    events_of,
    run_of,
    runs,
    several,
    streamed,
    turn,
    turns,
    types,
    violation_of,
)
from tests.batching import batch_sizes, in_batches

dialects = st.sampled_from(DIALECTS)
HISTORY: list[Message] = [
    UserMessage(id="u1", content="Hi"),
    ReasoningMessage(id="rs_old", content="hm", encrypted_value="kept"),
    AssistantMessage(id="a1", content="Hello"),
]


def seen(batches: list[list[Event]], view: View) -> list[list[Event]]:
    redactor = Redactor(Viewer(view, summaries=view == "raw"), SHOWN_FIELDS)
    return [redactor.feed(list(batch)) for batch in batches]


@given(runs(), dialects, st.booleans(), st.booleans(), st.sampled_from(["raw", "summary", "sealed", "hidden"]))
def test_every_run_is_a_legal_stream(
    batches: list[list[Event]], dialect: DialectName, chunks: bool, reasoning: bool, view: View
) -> None:
    stream = encoded(seen(batches, view), dialect, chunks=chunks, reasoning=reasoning)
    events = events_of(stream)
    # Chunks have no end event, so the sealed value follows the last one; and agents send side events at any time.
    violation = violation_of(events, dialect, least="silent")
    assert violation is None, f"{violation}\n" + "\n".join(map(json.dumps, events))
    assert all(frame.startswith(b"data: {") for frame in stream.split(b"\n\n")[:-1])
    for event in events:
        assert None not in event.values() or event["type"] == "CUSTOM"
        again = decode_event(event)
        assert json.loads(encode_event(again)) == event
    if not reasoning:
        assert not [kind for kind in types(events) if kind.startswith(("REASONING_", "THINKING_"))]


@given(runs(sides=False), dialects, st.booleans())
def test_events_are_in_the_order_that_clients_expect(
    batches: list[list[Event]], dialect: DialectName, snapshot: bool
) -> None:
    events = streamed(seen(batches, "raw"), dialect, history=HISTORY, snapshot=snapshot)
    begun: list[Any] = [{**events[0], "input": _input(dialect)}, *events[1:]] if snapshot else events
    violation = violation_of(begun, dialect)
    assert violation is None, f"{violation}\n" + "\n".join(map(json.dumps, events))


def _input(dialect: DialectName) -> Any:
    messages = [m for m in HISTORY if dialect == "1.0" or dialect == "0.x" or not isinstance(m, ReasoningMessage)]
    body = {"messages": msgspec.to_builtins(messages), "tools": [], "context": []}
    return {"threadId": "t", "runId": "r", **body}


@given(runs(), st.sampled_from(["1.0", "0.x", "thinking"]), st.booleans(), batch_sizes)
def test_batch_boundaries_change_no_byte_and_split_no_event(
    batches: list[list[Event]], dialect: DialectName, chunks: bool, sizes: list[int]
) -> None:
    events = [event for batch in batches for event in batch]
    encoder = Encoder("t", "r", dialect, chunks=chunks)
    pieces = [encoder.start(), *(encoder.feed(batch, NOW) for batch in in_batches(events, sizes))]
    assert b"".join(pieces) == encoded([events], dialect, chunks=chunks)
    assert all(piece.endswith(b"\n\n") for piece in pieces if piece)


@given(turns, st.integers(0, 60), dialects)
def test_a_run_interrupted_at_any_event_closes_everything(script: Any, count: int, dialect: DialectName) -> None:
    """As when the gateway itself fails and can only report the end of the run."""
    events = [event for batch in run_of(script, "eof") for event in batch][:count]
    failed = RunEndEvent("failed", error=ErrorInfo("server_error", "over"))
    for end in (failed, RunEndEvent("cancelled")):
        result = streamed([[event for event in events if not isinstance(event, RunEndEvent)], [end]], dialect)
        assert verify(result, dialect) is None
        assert types(result)[-1] == ("RUN_ERROR" if end is failed else "RUN_FINISHED")
        openers = sum(kind.endswith("_START") for kind in types(result))
        assert openers == sum(kind.endswith("_END") for kind in types(result))


# --- the official clients ------------------------------------------------------------------------------------------


CLIENTS: list[tuple[agui_node.Client, DialectName]] = [
    ("1.0.0", "1.0"),
    ("1.0.0", "0.x"),
    ("0.0.58", "0.x"),
    ("0.0.45", "0.x"),
    ("0.0.39", "thinking"),
]


@pytest.mark.needs("node")
@pytest.mark.parametrize(("client", "dialect"), CLIENTS)
def test_clients_accept_every_run_and_build_the_messages_of_the_snapshot(
    client: agui_node.Client, dialect: DialectName
) -> None:
    examples = several(runs(), share=5)
    streams = [streamed(batches, dialect) for batches in examples]
    plain = agui_node.play(client, streams)
    in_chunks = agui_node.play(client, [streamed(batches, dialect, chunks=True) for batches in examples])
    after = agui_node.play(client, [streamed(batches, dialect, snapshot=True) for batches in examples])
    for stream, result, chunked, snapshot in zip(streams, plain, in_chunks, after, strict=True):
        assert all(one["accepted"] for one in (result, chunked, snapshot)), (stream, result, chunked, snapshot)
        if client == "1.0.0":
            assert [one for one in result["warnings"] if "apply" not in one and "patch" not in one.lower()] == [], (
                stream
            )
        if types(stream)[-1] == "RUN_ERROR" or any(is_side_event(event) for event in stream):
            continue
        assert without_explicit_ends(chunked["messages"]) == without_explicit_ends(result["messages"]), stream
        if client != "0.0.45":  # which holds results in another order
            assert by_id(snapshot["messages"]) == by_id(result["messages"]), stream


def test_a_snapshot_has_the_texts_of_a_message_as_streamed() -> None:
    batches = turn(("text", 0, "one "), ("text", 1, "two"))
    [result] = agui_client.play([streamed(batches)])
    [snapshot] = agui_client.play([streamed(batches, snapshot=True)])
    assert [message["content"] for message in result["messages"]] == ["one two"]
    assert snapshot["messages"][0]["content"] == "one two"


@given(runs(), st.sampled_from(["1.0", "0.x"]))
def test_events_add_up_to_the_messages_of_the_snapshot(batches: list[list[Event]], dialect: DialectName) -> None:
    """Compare with the messages that the Python client builds."""
    stream = streamed(batches, dialect)
    [result] = agui_client.play([stream], dialect)
    [chunked] = agui_client.play([streamed(batches, dialect, chunks=True)], dialect)
    assert (result["accepted"], chunked["accepted"]) == (True, True)
    if types(stream)[-1] == "RUN_ERROR" or any(is_side_event(event) for event in stream):
        return
    assert without_explicit_ends(chunked["messages"]) == without_explicit_ends(result["messages"])
    [snapshot] = agui_client.play([streamed(batches, dialect, snapshot=True)], dialect)
    assert by_id(snapshot["messages"]) == by_id(result["messages"])


@pytest.mark.needs("node")
def test_the_binary_transport_carries_the_same_events() -> None:
    examples = several(runs(), share=5)
    binary = [(encoded(batches, binary=True), proto.MEDIA_TYPE) for batches in examples]
    text = [(encoded(batches), "text/event-stream") for batches in examples]
    for one, other in zip(agui_node.play("1.0.0", binary), agui_node.play("1.0.0", text), strict=True):
        assert (one["accepted"], one["events"]) == (True, other["events"])
        assert by_id(one["messages"]) == by_id(other["messages"])


def is_side_event(event: dict[str, Any]) -> bool:
    ids = ("act", "theirs", "chunked", "mused")
    return event.get("messageId") in ids or event.get("toolCallId") == "called"


def by_id(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        one["id"]: {name: value for name, value in one.items() if value not in (None, [])}
        for one in json.loads(json.dumps(messages), object_hook=_with_shown_arguments)
    }


def _with_shown_arguments(value: dict[str, Any]) -> dict[str, Any]:
    """Replace lone surrogates in the arguments of an object by the replacement character.

    Deltas of arguments that came as an object have them as JSON escapes; a snapshot has the replacement.
    """
    if "\\ud" in str(value.get("arguments", "")) or "\ufffd" in str(value.get("arguments", "")):
        with suppress(ValueError):  # arguments that are no JSON are compared unchanged
            value["arguments"] = replace_surrogates(json.dumps(json.loads(value["arguments"]), ensure_ascii=False))
    return value


def without_explicit_ends(messages: list[dict[str, Any]]) -> list[Any]:
    """Return the messages without the metadata that only explicit end events have."""
    return [
        (one["id"], one["role"], one.get("content"), one.get("toolCalls"), one.get("encryptedValue"))
        for one in messages
    ]


# --- special cases -------------------------------------------------------------------------------------------------


def test_reasoning_ends_with_message_value_and_span_before_text() -> None:
    events = streamed(turn(("thinking", 0, "Let me "), ("thinking", 0, "see."), ("close", 0, ""), ("text", 0, "Hi")))
    assert types(events) == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_ENCRYPTED_VALUE",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_CONTENT",
        "TEXT_MESSAGE_END",
        "REASONING_ENCRYPTED_VALUE",
        "RUN_FINISHED",
    ]
    assert events[0] == {"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}
    span, message, text = events[1]["messageId"], events[2]["messageId"], events[8]["messageId"]
    assert len({span, message, text}) == 3
    assert events[2] == {
        "type": "REASONING_MESSAGE_START",
        "messageId": message,
        "role": "reasoning",
        "metadata": {"pellucid": {"form": "raw"}},
    }
    assert events[6] == {
        "type": "REASONING_ENCRYPTED_VALUE",
        "subtype": "message",
        "entityId": message,
        "encryptedValue": "sealed-0",
    }
    assert events[11]["entityId"] == text
    [usage] = events[-1]["usage"]
    assert usage == {"inputTokens": 7, "outputTokens": 5, "totalTokens": 12, "reasoningTokens": 3}


def test_the_sealed_value_of_a_call_follows_its_end() -> None:
    events = streamed(turn(("text", 0, "Wait"), ("call", 1, ""), reason="tool_call"))
    start, args, end, value, finished = events[-5:]
    assert types([start, args, end, value, finished]) == [
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "REASONING_ENCRYPTED_VALUE",
        "RUN_FINISHED",
    ]
    assert start["parentMessageId"] == events[1]["messageId"]
    assert args["delta"] == "{}"
    assert (value["subtype"], value["entityId"]) == ("tool-call", start["toolCallId"])
    assert finished["outcome"] == {"type": "success", "pendingToolCallIds": [start["toolCallId"]]}
    old = streamed(turn(("call", 1, ""), reason="tool_call"), "0.x")
    assert "outcome" not in old[-1]


def test_a_call_after_reasoning_is_a_separate_message() -> None:
    calls = [
        ("text", 0, "a"),
        ("close", 0, ""),
        ("thinking", 0, "b"),
        ("close", 0, ""),
        ("call", 1, ""),
        ("call", 2, ""),
    ]
    events = streamed(turn(*calls, reason="tool_call"))
    text = next(event["messageId"] for event in events if event["type"] == "TEXT_MESSAGE_START")
    first, second = (event["parentMessageId"] for event in events if event["type"] == "TOOL_CALL_START")
    assert first == second != text
    unaware = streamed(turn(*calls, reason="tool_call"), reasoning=False)
    assert {event["parentMessageId"] for event in unaware if event["type"] == "TOOL_CALL_START"} == {text}


@pytest.mark.parametrize("what", ["seal", "builtin", "opaque"])
def test_a_seal_without_text_is_on_an_empty_message(what: str) -> None:
    events = streamed(turn((what, 0, "x")))
    assert types(events)[1:-1] == [
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_END",
        "REASONING_ENCRYPTED_VALUE",
        "REASONING_END",
    ]
    assert events[2]["metadata"] == {"pellucid": {"form": "redacted"}}
    assert events[4]["entityId"] == events[2]["messageId"]


def test_each_form_is_a_separate_message_and_paragraphs_are_separated() -> None:
    calls = [("thinking", 0, "one"), ("close", 0, ""), ("thinking", 1, "two"), ("close", 1, ""), ("summary", 0, "so")]
    events = streamed(turn(*calls))
    starts = [event for event in events if event["type"] == "REASONING_MESSAGE_START"]
    assert [event["metadata"]["pellucid"]["form"] for event in starts] == ["raw", "summary"]
    assert starts[1]["messageId"] == starts[0]["messageId"] + ":2"
    texts: dict[str, str] = {}
    for event in events:
        if event["type"] == "REASONING_MESSAGE_CONTENT":
            texts[event["messageId"]] = texts.get(event["messageId"], "") + event["delta"]
    assert list(texts.values()) == ["one\n\ntwo", "so"]
    values = [event["entityId"] for event in events if event["type"] == "REASONING_ENCRYPTED_VALUE"]
    assert values == [starts[0]["messageId"]]


def test_incomplete_reasoning_is_marked_at_its_end() -> None:
    batches = run_of([([("thinking", 0, "I was")], None, Usage())], "error")
    end = next(event for event in streamed(batches) if event["type"] == "REASONING_MESSAGE_END")
    assert end["metadata"] == {"pellucid": {"form": "raw", "complete": False}}


def test_the_thinking_dialect_has_thinking_events() -> None:
    events = streamed(turn(("thinking", 0, "a"), ("text", 0, "b")), "thinking")
    assert types(events)[1:6] == [
        "THINKING_START",
        "THINKING_TEXT_MESSAGE_START",
        "THINKING_TEXT_MESSAGE_CONTENT",
        "THINKING_TEXT_MESSAGE_END",
        "THINKING_END",
    ]
    assert events[3] == {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "a"}


def test_the_proposal_has_an_empty_second_span_for_a_late_value() -> None:
    events = streamed(turn(("thinking", 0, "a"), ("text", 0, "b")), "proposal")
    assert types(events)[:8] == [
        "RUN_STARTED",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_CONTENT",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "REASONING_START",
        "REASONING_END",
    ]
    assert "protocolVersion" not in events[0]
    assert events[2]["role"] == "assistant"
    assert "encryptedContent" not in events[1]
    assert events[6] == {**events[1], "encryptedContent": "sealed-0"}
    snapshot, finished = events[-2:]
    assert finished["type"] == "RUN_FINISHED"
    [thought, text, carrier] = snapshot["messages"]
    assert thought == {
        "id": events[2]["messageId"],
        "role": "reasoning",
        "content": ["a"],
        "encryptedContent": "sealed-0",
    }
    assert text["content"] == "b"
    assert (carrier["content"], carrier["encryptedContent"]) == ([], "sealed-1")


def test_the_proposal_has_an_early_value_on_the_start_event() -> None:
    at_once = [[event for batch in turn(("thinking", 0, "a")) for event in batch]]
    events = streamed(at_once, "proposal")
    assert types(events).count("REASONING_START") == 1
    assert events[1]["encryptedContent"] == "sealed-0"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_side_event_is_encoded_or_unknown_to_the_dialect(dialect: DialectName) -> None:
    known = agui.DIALECTS[dialect].event_types
    for event in (
        agui.StateSnapshotEvent(snapshot=None),
        agui.ActivitySnapshotEvent(message_id="a", activity_type="t", content={}),
        agui.SubagentStartedEvent(subagent_run_id="s", name="n"),
        agui.RawEvent(event=1),
    ):
        event_types = types(streamed([[event.as_side_event()]], dialect))
        assert event_types[1:] == ([event.type] if event.type in known else [])


def test_an_interrupt_is_the_outcome_of_the_run() -> None:
    batches = turn(("text", 0, "May I?"))
    batches[0].insert(0, agui.Interrupt(id="i", reason="tool_call", message="May I?").as_side_event())
    finished = streamed(batches)[-1]
    assert finished["outcome"] == {
        "type": "interrupt",
        "interrupts": [{"id": "i", "reason": "tool_call", "message": "May I?"}],
    }


def test_every_event_has_a_public_class() -> None:
    classes = get_args(AGUIEvent)
    assert len(classes) == 31 + 5
    assert all(getattr(agui, cls.__name__) is cls for cls in classes)


def test_empty_deltas_are_not_encoded() -> None:
    batches = turn(("thinking", 0, "a"), ("close", 0, ""))
    at = next(n for n, batch in enumerate(batches) if any(isinstance(e, PartDeltaEvent) for e in batch))
    batches[at].append(PartDeltaEvent(0, ThinkingPartDelta("", signature_delta="s")))
    batches = [
        [
            PartEndEvent(0, ThinkingPart("a", signature="s")) if isinstance(event, PartEndEvent) else event
            for event in batch
        ]
        for batch in batches
    ]
    assert types(streamed(batches)).count("REASONING_MESSAGE_CONTENT") == 1


@given(st.text(min_size=1).filter(lambda id: metadata.item_id_of(id) == id), st.integers(1, 99))
def test_every_message_id_is_mapped_to_its_item(item: str, number: int) -> None:
    ids = [metadata.span_id(item), metadata.message_id(item), metadata.message_id(item, number + 1)]
    assert len(set(ids)) == 3
    assert {metadata.item_id_of(id) for id in ids} == {item}


@pytest.mark.parametrize(
    ("version", "name"), [(None, "0.x"), ("", "0.x"), ("0.9", "0.x"), ("1.0", "1.0"), ("1.1", "1.0"), ("1.0.0", "1.0")]
)
def test_the_dialect_follows_the_protocol_version(version: str | None, name: str) -> None:
    assert agui.dialect_for(version).name == name


@pytest.mark.parametrize("version", ["2", "2.0", "10.0", "1.", "1.x", "v1", "draft", "1.0\n"])
def test_a_version_of_the_future_is_refused(version: str) -> None:
    with pytest.raises(RequestError, match=r"protocolVersion: .* send 1\.0, or leave it out") as raised:
        agui.dialect_for(version)
    assert (raised.value.info.code, raised.value.info.param) == ("unsupported_version", "protocolVersion")


@given(runs(sides=False), st.sampled_from(["1.0", "0.x", "proposal"]))
def test_the_messages_of_a_run_are_parsed_back(batches: list[list[Event]], dialect: DialectName) -> None:
    """Every reasoning message has its item, every seal occurs once, and the text is unchanged."""
    encoder = Encoder("t", "r", dialect, snapshot=True)
    stream = events_of(encoder.start() + b"".join(encoder.feed(batch, NOW) for batch in seen(batches, "raw")))
    snapshot = [event["messages"] for event in stream if event["type"] == "MESSAGES_SNAPSHOT"]
    assert bool(snapshot) == (types(stream)[-1] == "RUN_FINISHED")
    if not snapshot:
        return
    body = {"threadId": "t", "runId": "r2", "messages": snapshot[0]}
    messages = agui.parse_input(json.dumps(body).encode()).input.messages
    assert msgspec.to_builtins(messages) == body["messages"]
    seals = [event["encryptedValue"] for event in stream if event["type"] == "REASONING_ENCRYPTED_VALUE"]
    seals += [event["encryptedContent"] for event in stream if event.get("encryptedContent")]
    user: list[Message] = [*messages, UserMessage(id="u", content="and?")]
    parts = [part for one in history_of(user) if isinstance(one, ModelResponse) for part in one.parts]
    assert {part.token for part in parts if isinstance(part, SealedPart)} <= set(seals)
    items = {event.id for batch in batches for event in batch if isinstance(event, ItemStartEvent)}
    assert {part.item_id for part in parts if isinstance(part, ThinkingPart)} <= items
