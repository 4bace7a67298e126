"""A Python client of AG-UI that builds messages as the official client does.

It has the functions of `agui_node` and returns the same results, for machines without Node. The tests that run with
both clients show that they agree.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal
from urllib.parse import urlsplit

from pellucid.framing import SSEDecoder
from pellucid.protocols.agui import DialectName
from pellucid.protocols.agui.verify import verify
from tests.waiting import LIMIT_SECONDS

Version = Literal["1.0.0", "0.0.58", "0.0.45", "0.0.39"]

VERSIONS: dict[Version, DialectName] = {"1.0.0": "1.0", "0.0.58": "0.x", "0.0.45": "0.x", "0.0.39": "thinking"}
"""The official clients, and the dialect of each."""

Converse = Callable[[Sequence[Mapping[str, Any]]], list[list[dict[str, Any]]]]
"""`converse` of this module or of `agui_node`."""

_LIMIT_BYTES = 1 << 24


def play(sequences: Sequence[Sequence[dict[str, Any]]], dialect: DialectName = "1.0") -> list[dict[str, Any]]:
    """Feed each sequence of events to the client and return its results: see `agui_node.play`."""
    return [_outcome(list(events), messages_from_events(events), dialect) for events in sequences]


def converse(conversations: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """Run many conversations and return the results of each turn: see `agui_node.converse`."""
    return [_conversation(**conversation) for conversation in conversations]


def _conversation(
    client: Version,
    url: str,
    turns: Sequence[Mapping[str, Any]],
    threadId: str,
    headers: Mapping[str, str] | None = None,
    messages: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    history = deepcopy(list(messages))
    interrupts: list[dict[str, Any]] = []
    outcomes: list[dict[str, Any]] = []
    for number, turn in enumerate(turns):
        parameters = dict(turn)
        if answers := parameters.pop("answers", None):
            history += _results(history, answers)
        if settle := parameters.pop("settle", None):
            parameters["resume"] = [{"interruptId": one["id"], **settle} for one in interrupts]
        history += parameters.pop("messages", [])
        abort = parameters.pop("abort", None)
        body: dict[str, Any] = {"threadId": threadId, "runId": f"run-{number}", "tools": [], "context": [], "state": {}}
        body |= {"forwardedProps": {}, "messages": history, **parameters}
        if client == "1.0.0":
            body["protocolVersion"] = "1.0"
        outcome = _run(client, url, body, dict(headers or {}), abort)
        history, interrupts = outcome["messages"], outcome["interrupts"]
        outcomes.append(deepcopy(outcome))
    return outcomes


def _run(client: Version, url: str, body: dict[str, Any], headers: dict[str, str], abort: str | None) -> dict[str, Any]:
    address = urlsplit(url)
    path = f"{address.path or '/'}{'?' + address.query if address.query else ''}"
    connection = http.client.HTTPConnection(address.netloc, timeout=LIMIT_SECONDS)
    try:
        head = {"Content-Type": "application/json", "Accept": "text/event-stream", **headers}
        connection.request("POST", path, json.dumps(body), head)
        response = connection.getresponse()
        if response.status != 200:
            refused = _outcome([], {one["id"]: one for one in body["messages"]}, None)
            return refused | {"accepted": False, "error": f"HTTP {response.status}: {response.read().decode()}"}
        events: list[dict[str, Any]] = []
        decoder = SSEDecoder(max_bytes=_LIMIT_BYTES)
        while piece := response.read1(65536):
            events += [json.loads(frame.data) for frame in decoder.feed(piece)]
            kinds = [event["type"] for event in events]
            if abort in kinds:
                del events[kinds.index(abort) + 1 :]
                break
        dialect = None if abort else VERSIONS[client]
        messages = messages_from_events(events, body["messages"])
        if client != "1.0.0":
            for message in messages.values():
                message.pop("metadata", None)  # which older clients do not know
        return _outcome(events, messages, dialect)
    finally:
        connection.close()


def _outcome(
    events: list[dict[str, Any]], messages: Mapping[str, dict[str, Any]], dialect: DialectName | None
) -> dict[str, Any]:
    """Return the result of one run; without a dialect, the events are not verified."""
    fatal = verify(events, dialect, least="fatal") if dialect else None
    silent = verify(events, dialect, least="silent") if dialect else None
    failed = [event["message"] for event in events if event["type"] == "RUN_ERROR"]
    ends = [event.get("outcome") or {} for event in events if event["type"] == "RUN_FINISHED"]
    return {
        "accepted": fatal is None,
        "error": str(fatal) if fatal else None,
        "failed": failed[-1] if failed else None,
        "events": [event["type"] for event in events],
        "warnings": [str(silent)] if silent else [],
        "messages": list(messages.values()),
        "interrupts": ends[-1].get("interrupts", []) if ends else [],
    }


def _results(messages: Sequence[dict[str, Any]], answers: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a result for each call without one, chosen by the function's name."""
    answered = {message.get("toolCallId") for message in messages}
    calls = [call for message in messages for call in message.get("toolCalls") or [] if call["id"] not in answered]
    named = [(call["id"], answers[call["function"]["name"]]) for call in calls]
    return [{"id": f"of-{id}", "role": "tool", "toolCallId": id, "content": answer} for id, answer in named]


# --- messages ----------------------------------------------------------------------------------------------------


def messages_from_events(events: Iterable[dict[str, Any]], before: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Build messages from events, by id, after the given earlier messages.

    In these events, an id always refers to the same message or call.
    """
    out: dict[str, Any] = {message["id"]: deepcopy(message) for message in before}
    calls: dict[str, Any] = _calls(out)
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
            result = {"id": id, "role": "tool", "toolCallId": event["toolCallId"], "content": event["content"]}
            out[id] = {**result, **owner}
            _metadata(out[id], event)
        elif event["type"] == "REASONING_ENCRYPTED_VALUE":
            entity = calls if event["subtype"] == "tool-call" else out
            entity[event["entityId"]]["encryptedValue"] = event["encryptedValue"]
        elif event["type"] == "MESSAGES_SNAPSHOT":
            out = {message["id"]: deepcopy(message) for message in event["messages"]}
            calls = _calls(out)
        elif event["type"] == "ACTIVITY_SNAPSHOT":
            if id in out and event.get("replace") is False:
                continue
            metadata = {"metadata": out[id]["metadata"]} if "metadata" in out.get(id, {}) else {}
            about = {"activityType": event["activityType"], "content": dict(event["content"])}
            out[id] = {"id": id, "role": "activity", **about, **owner, **metadata}
            _metadata(out[id], event)
        elif event["type"] == "ACTIVITY_DELTA":
            _metadata(out[id], event)
            if not event["patch"] or "n" in out[id]["content"]:
                out[id]["activityType"] = event["activityType"]
                out[id]["content"].update({"n": 2} if event["patch"] else {})
    return out


def _calls(messages: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    return {call["id"]: call for message in messages.values() for call in message.get("toolCalls") or []}


def _metadata(target: dict[str, Any], event: dict[str, Any]) -> None:
    if "metadata" in event:
        target["metadata"] = {**target.get("metadata", {}), **event["metadata"]}
