"""Exports are valid for their consumers (ourselves, trainers, telemetry), and are streamed."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam
from pydantic import TypeAdapter

from pellucid.envelopes import DIALECTS, DialectName, Envelope, read
from pellucid.envelopes.lifecycle import Mode
from pellucid.errors import RequestError
from pellucid.spaces.history.export import export_format, reasoning_form
from pellucid.spaces.history.history import History, ReplayRange
from pellucid.spaces.history.training import REASONING_FORMS, ReasoningForm
from tests.envelopes.life_kit import conversations, envelope_of, seed_flow
from tests.examples import costly
from tests.spaces.history_kit import MODES, OWNER, SpaceStore, collected, space_store_in

MESSAGES = TypeAdapter(list[ChatCompletionMessageParam])
TOOLS = TypeAdapter(list[ChatCompletionFunctionToolParam])
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@pytest.fixture(scope="module")
def space_store() -> Iterator[SpaceStore]:
    with space_store_in("sqlite://") as opened:
        yield opened


async def lines(history: History, *args: Any, **more: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await collected(history.export(*args, **more))).splitlines()]


# --- jsonl


@costly
@given(conversations(), st.sampled_from(sorted(DIALECTS)))
def test_a_jsonl_export_reads_back_and_verifies(
    space_store: SpaceStore, conversation: list[Envelope], dialect: DialectName
) -> None:
    space = space_store.space(conversation)
    history = space.history("a")
    whole = space.run(collected(history.export("jsonl", dialect=dialect)))
    *exported, last = whole.splitlines(keepends=True)
    shown = space.run(history.page(limit=500)).envelopes
    assert [read(line, dialect) for line in exported] == [replace(one, dialect=dialect) for one in shown]
    export = json.loads(last)["export"]
    assert export["count"] == len(exported)
    assert export["sha256"] == hashlib.sha256(b"".join(exported)).hexdigest()
    assert (export["first_seq"], export["last_seq"]) == ((shown[0].seq, shown[-1].seq) if shown else (None, None))


def test_a_jsonl_export_ends_with_the_head_of_the_record(space_store: SpaceStore) -> None:
    space = space_store.space([envelope_of("chat", text=str(number)) for number in range(1_200)], recorded=True)
    *exported, last = space.run(lines(space.history("a"), "jsonl", after=10))
    assert [one["seq"] for one in exported] == list(range(11, 1_201))
    assert last["export"]["record"]["scope"] == f"space:{space.name}"
    assert last["export"]["record"]["number"] == 1_200


def test_the_exported_head_of_the_record_is_that_of_the_store(space_store: SpaceStore) -> None:
    for recorded in (True, False):
        space = space_store.space([envelope_of("chat", text="hey"), envelope_of("chat", text="ho")], recorded=recorded)
        *_, last = space.run(lines(space.history("a")))
        head = space.run(space_store.store.record.head(OWNER, f"space:{space.name}"))
        record = last["export"]["record"]
        assert (record and (record["number"], record["hash"])) == (head and (head.number, head.hash.hex()))
        assert (record is not None) == recorded


def test_the_memory_of_exports_and_replays_is_bounded(space_store: SpaceStore) -> None:
    words = "x" * 1_000
    space = space_store.space(
        [envelope_of("chat" if one % 2 else "thought", "talk", text=words) for one in range(2_000)]
    )
    history = space.history("a")

    def peak_bytes(batches: Any) -> int:
        async def drain() -> None:
            async for _ in batches:
                pass

        tracemalloc.start()
        space.run(drain())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    for short, long in (
        (history.export("jsonl", before=1_000), history.export("jsonl")),
        (history.replay(ReplayRange(before=1_000)), history.replay()),
    ):
        assert peak_bytes(long) < 1.5 * peak_bytes(short)


# --- chat-jsonl


def check_trainable(line: dict[str, Any], form: ReasoningForm) -> None:
    """Assert what OpenAI's file check and common chat templates require."""
    messages = line["messages"]
    MESSAGES.validate_python([{k: v for k, v in one.items() if k != form} for one in messages])
    TOOLS.validate_python(line.get("tools", []))
    offered = {tool["function"]["name"] for tool in line.get("tools", [])}
    talk = [one for one in messages if one["role"] != "tool"]
    assert all(isinstance(one["content"], str) for one in messages)
    assert all(one["content"] or one.get("tool_calls") for one in talk)
    for before, after in zip(messages, [*messages[1:], None], strict=True):
        calls = before.get("tool_calls", [])
        assert len(calls) <= 1
        if calls:
            assert after is not None
            assert (after["role"], after["tool_call_id"]) == ("tool", calls[0]["id"])
            assert isinstance(json.loads(calls[0]["function"]["arguments"]), dict)
            assert calls[0]["function"]["name"] in offered
            assert NAME.fullmatch(calls[0]["function"]["name"])
        elif before["role"] != "tool":
            assert after is None or after["role"] != before["role"]
        assert NAME.fullmatch(before.get("name", "nobody"))
    others = {"reasoning_content", "thinking", "reasoning"} - {form}
    assert not any(others & one.keys() for one in messages)


@costly
@given(
    conversations(senders=["a", "b", "ç <ö>"]), st.sampled_from(REASONING_FORMS), st.booleans(), st.sampled_from(MODES)
)
def test_every_line_of_training_data_is_valid(
    space_store: SpaceStore, conversation: list[Envelope], form: ReasoningForm, complete: bool, mode: Mode
) -> None:
    conversation_with_text = [replace(one, payload=one.payload | _payload(one)) for one in conversation]
    space = space_store.space(conversation_with_text, mode=mode)
    for line in space.run(lines(space.history("a"), "chat-jsonl", reasoning=form, complete=complete)):
        check_trainable(line, form)
        assert line["metadata"]["space"] == space.name
        if complete:
            assert line["messages"][0]["role"] == "user"
            assert line["messages"][-1]["role"] == "assistant"
    for line in space.run(lines(space.history("a"), "chat-jsonl", metadata=False)):
        assert line.keys() <= {"messages", "tools"}
    for line in space.run(lines(space.history("a"), "otel")):
        attributes = line["attributes"]
        for message in [*attributes["gen_ai.input.messages"], *attributes.get("gen_ai.output.messages", [])]:
            assert message["role"] in ("user", "assistant", "tool")
            assert all(set(part) == PARTS[part["type"]] for part in message["parts"])


PARTS = {
    "text": {"type", "content"},
    "reasoning": {"type", "content"},
    "tool_call": {"type", "id", "name", "arguments"},
    "tool_call_response": {"type", "id", "response"},
}


def _payload(envelope: Envelope) -> dict[str, Any]:
    if envelope.kind in ("mcp/request", "mcp/proposal"):
        return {"method": "tools/call", "params": {"name": "sc an/é", "arguments": {"of": envelope.id}}}
    if envelope.kind == "mcp/response":
        return {"result": {"content": [{"type": "text", "text": "found"}]}}
    return {"text" if envelope.kind == "chat" else "message": f"words of {envelope.seq}"}


def review() -> list[Envelope]:
    schema = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    offer = {"tools": [{"name": "scan", "description": "Looks for secrets.", "inputSchema": schema}]}
    scan_result = {"content": [{"type": "text", "text": "2 findings"}]}
    return [
        envelope_of("request", by="agent", id="list", method="tools/list"),
        envelope_of("response", by="scanner", about="list", result=offer),
        envelope_of("chat", by="human", id="q", text="Is it safe?"),
        envelope_of("start", by="agent", id="m1", about="q", message="Looking."),
        envelope_of("thought", "m1", by="agent", message="I should scan."),
        envelope_of(
            "request",
            "m1",
            by="agent",
            id="c",
            method="tools/call",
            params={"name": "scan", "arguments": {"path": "."}},
        ),
        envelope_of("response", by="scanner", about="c", result=scan_result),
        envelope_of("thought", "m1", by="agent", message="Two findings."),
        envelope_of("conclusion", "m1", by="agent", message="Not safe."),
        envelope_of("chat", by="agent", about="q", text="No: two findings."),
    ]


def test_a_context_becomes_a_training_conversation(space_store: SpaceStore) -> None:
    (line,) = space_store.run(lines(space_store.space(review()).history("human"), "chat-jsonl"))
    call = {"id": "call_1", "type": "function", "function": {"name": "scan", "arguments": '{"path":"."}'}}
    assert line["messages"] == [
        {"role": "user", "content": "Is it safe?", "name": "human"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "Looking.\n\nI should scan.",
            "tool_calls": [call],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "2 findings"},
        {
            "role": "assistant",
            "content": "No: two findings.",
            "reasoning_content": "Two findings.\n\nNot safe.",
        },
    ]
    (tool,) = line["tools"]
    assert (tool["function"]["description"], tool["function"]["parameters"]["required"]) == (
        "Looks for secrets.",
        ["path"],
    )
    about = line["metadata"]
    assert (about["context"], about["owner"], about["status"], about["trigger"]) == (
        "m1",
        "agent",
        "concluded",
        "correlated",
    )
    assert (about["complete"], about["unanswered"], about["cut"]) == (True, 0, False)


@pytest.mark.parametrize(
    ("form", "field", "content"),
    [
        ("thinking", "thinking", "No: two findings."),
        ("reasoning", "reasoning", "No: two findings."),
        ("think", None, "<think>\nTwo findings.\n\nNot safe.\n</think>\n\nNo: two findings."),
        ("none", None, "No: two findings."),
    ],
)
def test_reasoning_is_in_the_field_of_the_chosen_form(
    space_store: SpaceStore, form: ReasoningForm, field: str | None, content: str
) -> None:
    (line,) = space_store.run(lines(space_store.space(review()).history("human"), "chat-jsonl", reasoning=form))
    last = line["messages"][-1]
    assert last["content"] == content
    assert set(last) == {"role", "content"} | ({field} if field else set())


def test_a_context_as_opentelemetry_attributes(space_store: SpaceStore) -> None:
    (line,) = space_store.run(lines(space_store.space(review()).history("human"), "otel"))
    attributes = line["attributes"]
    parts = [part for message in attributes["gen_ai.input.messages"] for part in message["parts"]]
    assert [part["type"] for part in parts] == ["text", "reasoning", "reasoning", "tool_call", "tool_call_response"]
    (output,) = attributes["gen_ai.output.messages"]
    assert [part["type"] for part in output["parts"]] == ["reasoning", "reasoning", "text"]
    assert (output["finish_reason"], attributes["gen_ai.agent.name"]) == ("stop", "agent")


def test_every_context_of_the_seed_is_exported_and_those_with_a_question_are_complete(space_store: SpaceStore) -> None:
    complete = {"option_4": 1, "option_5": 1, "option_5_many_agents": 2, "file_write_option_3": 1, "nested": 0}
    for flow, number in complete.items():
        space = space_store.space(seed_flow(flow))
        exported = space.run(lines(space.history("watcher"), "chat-jsonl"))
        assert sum(line["metadata"]["complete"] for line in exported) == number, flow
        assert len(exported) == len(space.run(space.history("watcher").contexts()).contexts)


def test_a_context_that_was_implicit_first_is_exported_once(space_store: SpaceStore) -> None:
    space = space_store.space(
        [envelope_of("thought", "talk", message="hm"), envelope_of("start", "talk", message="so"), *review()]
    )
    assert len(space.run(lines(space.history("watcher"), "chat-jsonl"))) == 2


def test_envelopes_of_other_participants_are_user_messages(space_store: SpaceStore) -> None:
    space = space_store.space(seed_flow("collaborative"))
    (line,) = space.run(lines(space.history("watcher"), "chat-jsonl"))
    assert [(one["role"], one["content"]) for one in line["messages"]] == [
        ("assistant", "I think we should check performance first"),
        ("user", "Have you considered the cache impact?"),
        ("assistant", "Cache impact is minimal, proceeding with performance check"),
    ]


def test_compressed_and_erased_thoughts_are_not_exported(space_store: SpaceStore) -> None:
    space = space_store.space(
        [
            envelope_of("start", by="agent", id="m1"),
            envelope_of("thought", "m1", by="agent", id="t1", message="one"),
            envelope_of("thought", "m1", by="agent", id="t2", message="secret"),
            envelope_of("request", "m1", by="agent", id="c", method="tools/call", params={"name": "scan"}),
            envelope_of("thought", "m1", by="agent", message="in short", metadata={"compresses": ["t1", "t2"]}),
            envelope_of("conclusion", "m1", by="agent", message="done"),
        ]
    )
    space.run(space_store.store.spaces.erase(OWNER, space.name, [3, 4], at_ms=0))
    history = space.history("watcher")
    (line,) = space.run(lines(history, "chat-jsonl"))
    assert line["messages"] == [{"role": "assistant", "content": "done", "reasoning_content": "one"}]
    assert b"secret" not in space.run(collected(history.export("jsonl")))
    assert space.run(history.search("secret")).hits == ()


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    assert export_format("otel") == "otel"
    assert reasoning_form("think") == "think"
    with pytest.raises(RequestError, match="jsonl"):
        export_format("xml")
    with pytest.raises(RequestError, match="did you mean 'thinking'"):
        reasoning_form("thinkin")
