"""The verifier says what the official clients do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pellucid.protocols.agui.dialects import DialectName
from pellucid.protocols.agui.verify import verify
from tests.agui import agui_node, agui_streams

SEQUENCES = 300


def several(strategy: st.SearchStrategy[Any]) -> list[list[dict[str, Any]]]:
    """The same sequences each time: a few processes play them all."""
    found: list[Any] = []

    @seed(1)
    @settings(
        max_examples=SEQUENCES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(sequence: Any) -> None:
        found.append(sequence)

    collect()
    return found


@pytest.mark.parametrize(
    ("rich", "dialect", "clients"), [(True, "1.0", ["1.0.0"]), (False, "0.x", ["1.0.0", "0.0.58", "0.0.45"])]
)
def test_fatal_is_what_a_client_refuses(rich: bool, dialect: DialectName, clients: list[Any]) -> None:
    sequences = several(agui_streams.broken(rich))
    played = [agui_node.play(client, sequences) for client in clients]
    wrong = []
    fatal = 0
    for sequence, *gave in zip(sequences, *played, strict=True):
        violation = verify(sequence, dialect, least="fatal")
        fatal += violation is not None
        if (violation is None) != all(one["accepted"] for one in gave):
            wrong.append((sequence, violation, [one["error"] for one in gave]))
    assert not wrong, f"{len(wrong)} of {len(sequences)}; the shortest: {min(wrong, key=lambda one: len(one[0]))}"
    assert SEQUENCES // 5 < fatal < SEQUENCES


def test_what_is_legal_is_taken_whole_and_without_a_warning() -> None:
    """Also after accidents: whatever the verifier has nothing to say about comes to the messages that it spells."""
    sequences = several(agui_streams.runs() | agui_streams.broken())
    legal = [sequence for sequence in sequences if verify(sequence, least="silent") is None]
    assert len(legal) > SEQUENCES // 4
    for sequence, gave in zip(legal, agui_node.play("1.0.0", legal), strict=True):
        assert gave["accepted"], (sequence, gave)
        assert [one for one in gave["warnings"] if "apply" not in one] == [], sequence
        if not any(event["type"] == "MESSAGES_SNAPSHOT" or "input" in event for event in sequence):
            assert {one["id"]: one for one in gave["messages"]} == spelled(sequence), sequence


@pytest.mark.parametrize(("dialect", "rich"), [("1.0", True), ("0.x", False), ("1.0", False)])
def test_whole_runs_keep_every_rule(dialect: DialectName, rich: bool) -> None:
    for sequence in several(agui_streams.runs(rich)):
        assert verify([dict(event) for event in sequence], dialect) is None, sequence


def spelled(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The messages, by id. No two events name one for different things here."""
    out: dict[str, Any] = {}
    calls: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for event in events:
        kind = event["type"].rpartition("_")[0]
        id = event.get("messageId") or event.get("toolCallId", "")
        if event["type"].endswith("_CHUNK"):
            owner = event.get("subagentRunId")
            id = last[kind] = event.get("messageId", event.get("toolCallId", last.get(kind, "")))
            event = {**event, **({"subagentRunId": owner} if owner else {})}
        starts = event["type"].endswith(("_START", "_CHUNK"))
        owner = {"subagentRunId": event["subagentRunId"]} if "subagentRunId" in event else {}
        if kind in ("TEXT_MESSAGE", "REASONING_MESSAGE"):
            role = "reasoning" if kind == "REASONING_MESSAGE" else event.get("role", "assistant")
            name = {"name": event["name"]} if "name" in event and kind == "TEXT_MESSAGE" else {}
            if starts and id not in out:
                out[id] = {"id": id, "role": role, "content": "", **name, **owner}
            out[id]["content"] = out[id].get("content", "") + event.get("delta", "")
            _metadata(out[id], event)
        elif kind == "TOOL_CALL" and event["type"] != "TOOL_CALL_RESULT":
            if starts and id not in calls:
                calls[id] = {"id": id, "type": "function", "function": {"name": event["toolCallName"], "arguments": ""}}
                holder = event.get("parentMessageId") or id
                out.setdefault(holder, {"id": holder, "role": "assistant", **owner})
                out[holder].setdefault("toolCalls", []).append(calls[id])
            calls[id]["function"]["arguments"] += event.get("delta", "")
            _metadata(calls[id], event)
        elif event["type"] == "TOOL_CALL_RESULT":
            out[id] = {
                "id": id,
                "role": "tool",
                "toolCallId": event["toolCallId"],
                "content": event["content"],
                **owner,
            }
            _metadata(out[id], event)
        elif event["type"] == "REASONING_ENCRYPTED_VALUE":
            entity = calls if event["subtype"] == "tool-call" else out
            entity[event["entityId"]]["encryptedValue"] = event["encryptedValue"]
        elif event["type"] == "ACTIVITY_SNAPSHOT":
            if id in out and event.get("replace") is False:
                continue
            kept = {"metadata": out[id]["metadata"]} if "metadata" in out.get(id, {}) else {}
            about = {"activityType": event["activityType"], "content": dict(event["content"])}
            out[id] = {"id": id, "role": "activity", **about, **owner, **kept}
            _metadata(out[id], event)
        elif event["type"] == "ACTIVITY_DELTA":
            _metadata(out[id], event)
            if not event["patch"] or "n" in out[id]["content"]:
                out[id]["activityType"] = event["activityType"]
                out[id]["content"].update({"n": 2} if event["patch"] else {})
    return out


def _metadata(target: dict[str, Any], event: dict[str, Any]) -> None:
    if "metadata" in event:
        target["metadata"] = {**target.get("metadata", {}), **event["metadata"]}
