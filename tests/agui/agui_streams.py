"""Legal AG-UI streams, and ways to break them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

Event = dict[str, Any]

_WORDS = st.sampled_from(["a", "b ", "é", "{", "\n"])
_ARGUMENTS = st.sampled_from([[], ["{}"], ["{", "}"], ['{"a": ', '"é"', "}"]])
"""The deltas of a call's arguments."""
_IDS = [f"i{n}" for n in range(40)]


@st.composite
def runs(draw: st.DrawFn, rich: bool = True) -> list[Event]:
    """Draw one run with events of every kind, each id once. `rich`: with events that only 1.0 has."""
    ids = iter(draw(st.permutations(_IDS)))
    out: list[Event] = [{"type": "RUN_STARTED", "threadId": "t", "runId": "r", "protocolVersion": "1.0"}]
    holders: list[str] = []
    calls: list[str] = []
    steps: list[str] = []
    kinds = ["reasoning", "text", "call", "step", "chunks", "state", "custom", "activity", "value", "result"]
    for kind in draw(st.lists(st.sampled_from([*kinds, "subagent"] if rich else kinds), max_size=6)):
        owner: Event = {}
        if kind == "subagent":
            name = next(ids)
            out.append({"type": "SUBAGENT_STARTED", "subagentRunId": name, "name": "helper"})
            owner, kind = {"subagentRunId": name}, draw(st.sampled_from(["reasoning", "text", "call"]))
        words = draw(st.lists(_WORDS, max_size=2))
        if kind == "reasoning":
            span, message = next(ids), next(ids)
            out.append({"type": "REASONING_START", "messageId": span, **owner})
            out.append({"type": "REASONING_MESSAGE_START", "messageId": message, "role": "reasoning", **owner})
            out += [{"type": "REASONING_MESSAGE_CONTENT", "messageId": message, "delta": word} for word in words]
            out.append({"type": "REASONING_MESSAGE_END", "messageId": message, **owner})
            if draw(st.booleans()):
                out.append(_value("message", message))
            out.append({"type": "REASONING_END", "messageId": span})
        elif kind == "text":
            holders.append(next(ids))
            out.append({"type": "TEXT_MESSAGE_START", "messageId": holders[-1], "role": "assistant", **owner})
            out += [{"type": "TEXT_MESSAGE_CONTENT", "messageId": holders[-1], "delta": word} for word in words]
            out.append({"type": "TEXT_MESSAGE_END", "messageId": holders[-1], "timestamp": 5})
        elif kind == "call":
            calls.append(next(ids))
            parent = {"parentMessageId": holders[-1]} if holders and not owner and draw(st.booleans()) else {}
            out.append({"type": "TOOL_CALL_START", "toolCallId": calls[-1], "toolCallName": "f", **parent, **owner})
            pieces = draw(_ARGUMENTS)
            out += [{"type": "TOOL_CALL_ARGS", "toolCallId": calls[-1], "delta": piece} for piece in pieces]
            out.append({"type": "TOOL_CALL_END", "toolCallId": calls[-1]})
        elif kind == "result" and unanswered(out):
            id = unanswered(out)[-1]
            out.append({"type": "TOOL_CALL_RESULT", "messageId": next(ids), "toolCallId": id, "content": "x"})
        elif kind == "value" and calls:
            out.append(_value("tool-call", calls.pop()))
        elif kind == "step":
            steps.append(next(ids))
            out.append({"type": "STEP_STARTED", "stepName": steps[-1]})
        elif kind == "chunks":
            noun, key, more = draw(st.sampled_from(_CHUNKS))
            id = next(ids)
            first, *rest = ["c", *words] if noun != "TOOL_CALL_CHUNK" else draw(_ARGUMENTS.filter(bool))
            out.append({"type": noun, key: id, **more, "delta": first})
            out += [{"type": noun, "delta": piece} for piece in rest]
        elif kind == "state":
            out.append({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}})
            out.append({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]})
        elif kind == "custom":
            out.append({"type": "CUSTOM", "name": "n", "value": None})
        elif kind == "activity":
            id = next(ids)
            out.append({"type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": "p", "content": {"n": 1}})
            patch = [{"op": "replace", "path": "/n", "value": 2}]
            out.append({"type": "ACTIVITY_DELTA", "messageId": id, "activityType": "p", "patch": patch})
        if owner:
            out.append({"type": "SUBAGENT_FINISHED", **owner})
    out += [{"type": "STEP_FINISHED", "stepName": step} for step in steps]
    usage = [{"provider": "p", "outputTokens": 5, "reasoningTokens": 3}]
    end = draw(st.sampled_from(["plain", "usage", "interrupt", "error", *(["cancelled", "pending"] if rich else [])]))
    if end == "error":
        return [*out, {"type": "RUN_ERROR", "message": "m", "code": "c"}]
    return [*out, {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", **_OUTCOMES.get(end, {}), "usage": usage}]


def unanswered(events: list[Event]) -> list[str]:
    """Return the ids of calls that have ended and have no result."""
    answered = {event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"}
    ended = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_END"]
    return [id for id in ended if id not in answered]


_CHUNKS: list[tuple[str, str, Event]] = [
    ("TEXT_MESSAGE_CHUNK", "messageId", {"role": "assistant"}),
    ("TOOL_CALL_CHUNK", "toolCallId", {"toolCallName": "f"}),
    ("REASONING_MESSAGE_CHUNK", "messageId", {}),
]
_OUTCOMES: dict[str, Event] = {
    "interrupt": {"outcome": {"type": "interrupt", "interrupts": [{"id": "x", "reason": "why"}]}},
    "cancelled": {"outcome": {"type": "cancelled"}},
    "pending": {"outcome": {"type": "success", "pendingToolCallIds": ["c"]}},
}


def _value(subtype: str, id: str) -> Event:
    return {"type": "REASONING_ENCRYPTED_VALUE", "subtype": subtype, "entityId": id, "encryptedValue": "v"}


_ODD: list[Any] = [
    None,
    "",
    "i0",
    "i1",
    1,
    1.5,
    True,
    [],
    {},
    "reasoning",
    "user",
    "message",
    "tool-call",
    {"type": "odd"},
]


_SOURCE: Event = {"type": "url", "value": "https://x", "mimeType": "a/b"}
_MESSAGES: list[Event] = [
    {"id": "m1", "role": "system", "content": "s", "name": "n"},
    {"id": "m2", "role": "user", "content": [{"type": "text", "text": "x"}]},
    {
        "id": "m3",
        "role": "assistant",
        "content": "x",
        "toolCalls": [{"id": "k", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    {"id": "m4", "role": "tool", "toolCallId": "k", "content": "x"},
    {"id": "m5", "role": "reasoning", "content": "x", "encryptedValue": "v"},
    {"id": "m6", "role": "activity", "activityType": "a", "content": {}},
]
_MEDIA: Event = {"id": "m7", "role": "user", "content": [{"type": "image", "source": _SOURCE}]}
_INPUT: Event = {
    "threadId": "t",
    "runId": "r",
    "messages": _MESSAGES[:3],
    "tools": [{"name": "f", "description": "d", "parameters": {}}],
    "context": [{"description": "d", "value": "v"}],
    "resume": [{"interruptId": "x", "status": "resolved", "payload": 1}],
}


@st.composite
def broken(draw: st.DrawFn, rich: bool = True) -> list[Event]:
    """Draw a run with one to three mutations: an event is dropped, duplicated or moved, or a field is changed."""
    events = deepcopy(draw(runs(rich)))
    if draw(st.integers(0, 3)) == 0:
        events[0]["input"] = deepcopy(_INPUT)
    if draw(st.integers(0, 2)) == 0:
        messages = deepcopy(draw(st.permutations([*_MESSAGES, *([_MEDIA] if rich else [])])))
        events.insert(draw(st.integers(1, len(events) - 1)), {"type": "MESSAGES_SNAPSHOT", "messages": messages})
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(events) - 1)))
        if not events:
            break
        match draw(
            st.sampled_from(["drop", "double", "swap", "rename", "field", "field", "deep", "remove", "add", "join"])
        ):
            case "drop":
                del events[at]
            case "double":
                events.insert(draw(st.integers(at, len(events))), deepcopy(events[at]))
            case "swap":
                other = draw(st.integers(0, len(events) - 1))
                events[at], events[other] = events[other], events[at]
            case "rename":
                ids = sorted({e[k] for e in events for k in _KEYS if isinstance(e.get(k), str)})
                keys = [key for key in _KEYS if key in events[at]]
                if ids and keys:
                    events[at][draw(st.sampled_from(keys))] = draw(st.sampled_from(ids))
            case "field":
                field = draw(st.sampled_from(sorted(set(events[at]) - {"type"}) or ["type"]))
                events[at][field] = draw(st.sampled_from(_ODD))
            case "deep":
                _change(draw, events[at])
            case "remove":
                del events[at][draw(st.sampled_from(sorted(set(events[at]) - {"type"}) or ["type"]))]
            case "add":
                field = draw(st.sampled_from(["extra", "timestamp", "metadata", "rawEvent", "role", "delta", "name"]))
                events[at][field] = draw(st.sampled_from(_ODD))
            case "join":
                events += deepcopy(draw(runs(rich)))
        if any("type" not in event for event in events):
            break
    return events


def _change(draw: st.DrawFn, holder: Any) -> None:
    """Change one value, at any depth."""
    while keys := list(holder) if isinstance(holder, dict) else list(range(len(holder))):
        key = draw(st.sampled_from([key for key in keys if key != "type"] or keys))
        if not isinstance(holder[key], dict | list) or draw(st.integers(0, 3)) == 0:
            holder[key] = draw(st.sampled_from(_ODD))
            return
        holder = holder[key]


_KEYS = ("messageId", "toolCallId", "entityId", "parentMessageId", "stepName", "subagentRunId")
