"""Helpers of the view tests: runs with a marker in every reasoning carrier, and readers of redacted runs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import (
    Cause,
    Event,
    ItemEndEvent,
    ItemStartEvent,
    ModelEvent,
    PartStartEvent,
    SideEvent,
    SummaryEvent,
)
from pellucid.parts import (
    BuiltinToolReturnPart,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    OpaquePart,
    Origin,
    RefusalPart,
    SealedPart,
    TextPart,
    ToolReturnPart,
    Usage,
    UserPromptPart,
)
from pellucid.protocols.agui.side_events import SHOWN_FIELDS
from pellucid.run import CallModel, CallTools, Minter, Run
from pellucid.settings import ModelCall
from pellucid.view import VIEWS, Redactor, Viewer

SECRET = "t0psecret"
"""Stands in everything that must not leave."""
SUMMARY = "in short"
"""Stands in summaries, the provider's and ours."""
SEAL = "seal-of"
ORIGIN = Origin("p", "w", "m", account=SECRET)
DETAILS = {SECRET: [{"deep": SECRET}]}

READERS = [Viewer(view, counts, summaries) for view in VIEWS for counts in (True, False) for summaries in (False, True)]
LESSER = [reader for reader in READERS if reader.view != "raw"]


def leaks(value: Any, marker: str = SECRET) -> bool:
    """Return whether the marker is in the value's JSON or in its representation."""
    return marker.encode() in msgspec.json.encode(value) or marker in repr(value)


# --- one turn --------------------------------------------------------------------------------------------------------

Call = tuple[str, int, str, bool]
"""A method of the emitter, the block's key (few, so that they collide), some text, and a choice."""

_METHODS = [
    "raw", "raw", "summary", "redacted", "text", "refusal", "tool", "args", "builtin", "return", "file", "compaction",
    "opaque", "sealed", "item", "close", "seal", "notes", "fail",
]  # fmt: skip


def say(emitter: Emitter, call: Call) -> None:
    method, key, text, choice = call
    signed: dict[str, Any] = {"signature": SECRET, "details": DETAILS} if choice else {}
    more: dict[str, Any] = {"provider_name": SECRET, "provider_details": DETAILS, "id": SECRET}
    together = ("w", key) if choice else None
    match method:
        case "raw":
            emitter.thinking(("k", key), f"{SECRET}{text}" if text else "", item=("i", key), id=SECRET, **signed)
        case "summary":
            summary = f"{SUMMARY}{text}" if text else ""
            emitter.thinking(("s", key), summary, item=("i", key), form="summary", id=SECRET, **signed)
        case "redacted":
            emitter.thinking(("x", key), form="redacted", item=("i", key), signature=SECRET)
        case "text":
            emitter.text(("t", key), text, id=SECRET, **signed)
        case "notes":
            emitter.text(("t", key), text, logprobs=[{"token": SECRET}], annotations=[{"type": "note"}])
        case "refusal":
            emitter.refusal(("r", key), text)
        case "tool":
            emitter.tool_call(("f", key), text, name=f"f{key}", call_id=f"c{key}", id=SECRET, **signed)
        case "args":
            emitter.tool_call(("f", key), text)
        case "builtin":
            emitter.builtin_call(("b", key), text, name="search", call_id="b", status="on" if choice else None)
            emitter.builtin_call(("b", key), details=DETAILS)
        case "return":
            emitter.whole_part(BuiltinToolReturnPart("search", {"found": text}, "b", **more), item=together)
        case "file":
            data = SECRET if choice else "aGk="
            emitter.whole_part(FilePart(data, "image/png", choice, signature=SECRET, **more), item=("p", key))
        case "compaction":
            emitter.whole_part(CompactionPart(SECRET, signature=SECRET, **more), item=together)
        case "opaque":
            emitter.whole_part(OpaquePart(SECRET, DETAILS, id=SECRET, provider_name=SECRET), item=together)
        case "sealed":
            emitter.whole_part(SealedPart(f"{SEAL}-{key}"))
        case "item":
            emitter.item(("i", key), "reasoning", id=SECRET, signature=SECRET, native=DETAILS)
        case "close":
            for kind in "ksxtfbi":
                emitter.close((kind, key))
        case "seal":
            emitter.text(("t", key), signature=SECRET)
            emitter.tool_call(("f", key), signature=SECRET, details=DETAILS)
        case "fail" if key == 3:
            emitter.fail(ErrorInfo("model_error", "it broke", SECRET, SECRET, 400, 1.5, DETAILS, SECRET))


calls = st.lists(
    st.tuples(
        st.sampled_from(_METHODS),
        st.integers(0, 3),
        st.sampled_from(["", "a", "{", "}", '{"x":1}', " "]),
        st.booleans(),
    ),
    max_size=20,
)
turns = st.lists(
    st.tuples(
        calls, st.sampled_from(["eof", "error", "cancelled"]), st.sampled_from([None, "stop", "length", "pause"])
    ),
    min_size=1,
    max_size=3,
)
Turn = tuple[list[Call], Cause, Any]


def turn_of(script: list[Call], cause: Cause = "eof", reason: Any = "stop") -> list[ModelEvent]:
    emitter = Emitter(ORIGIN)
    emitter.start(SECRET, SECRET)
    emitter.provider_details = dict(DETAILS)
    emitter.usage = Usage(10, 20, 15, 3, 2, details={SECRET: 15})
    for call in script:
        say(emitter, call)
    emitter.finish(reason, SECRET)
    return emitter.end(cause)


# --- a run -----------------------------------------------------------------------------------------------------------


def run_of(script: list[Turn]) -> list[Event]:
    """Return the run of these turns: two of the functions are the server's, the others the caller's."""
    run = Run(ModelCall("m", [ModelRequest([UserPromptPart("Hi")])]), Minter(b"seed"), server_tools={"f0", "f1"})
    effects = run.start()
    out: list[Event] = []
    for turn in script:
        if not effects or not isinstance(effects[0], CallModel):
            break
        events, effects = run.feed(turn_of(*turn))
        out += events
        if effects and isinstance(effects[0], CallTools):
            results = [ToolReturnPart(call.tool_name, "found", call.tool_call_id) for call in effects[0].calls]
            events, effects = run.add_results(list(results))
            out += events
    return out + run.end()


NEWS = [
    SideEvent("queue", "position", 2),
    SideEvent("queue", SECRET, SECRET),
    SideEvent("agui", "STATE_SNAPSHOT", {"snapshot": {"n": 1}, "rawEvent": SECRET, "metadata": DETAILS}),
    SideEvent("agui", "STATE_DELTA", {"delta": [], SECRET: 1}),
    SideEvent("agui", "STEP_STARTED", SECRET),
    SideEvent(
        "agui", "ACTIVITY_SNAPSHOT", {"messageId": "a", "activityType": "plan", "content": {}, "rawEvent": SECRET}
    ),
    SideEvent("agui", "SUBAGENT_STARTED", {"subagentRunId": "s", "name": "helper", "metadata": DETAILS}),
    SideEvent("agui", "interrupt", {"id": "i", "reason": "why", "rawEvent": SECRET}),
    SideEvent("agui", "result", 42),
    SideEvent("agui", "state", {"x": SECRET}),
    SideEvent("agui", "RAW", {"event": SECRET}),
    SideEvent("agui", "CUSTOM", {"name": "thought", "value": SECRET}),
    SideEvent("agui", "MESSAGES_SNAPSHOT", {"messages": [{"id": "r", "role": "reasoning", "content": SECRET}]}),
    SideEvent("agui", "REASONING_MESSAGE_CHUNK", {"messageId": "r", "delta": SECRET}),
    SideEvent("agui", "TEXT_MESSAGE_CHUNK", {"messageId": "t", "delta": SECRET}),
    SideEvent("agui", "TOOL_CALL_CHUNK", {"toolCallId": "c", "toolCallName": "f", "delta": SECRET}),
    SideEvent("pydantic_ai", "event", {"x": SECRET}),
]
"""Side events, with the marker in every field that is withheld."""


def enriched(events: list[Event], dice: random.Random) -> list[Event]:
    """Add the events of the stages to a run: seals, summaries, and queue positions."""
    out: list[Event] = []
    item: ItemStartEvent | None = None
    for event in events:
        if isinstance(event, ItemStartEvent):
            item = event
        elif isinstance(event, ItemEndEvent):
            if dice.random() < 0.5:
                event = replace(event, seal=f"{SEAL}-{event.index}")
            item = None
        out.append(event)
        if event is events[-1]:
            break
        while item is not None and item.kind == "reasoning" and dice.random() < 0.3:
            out.append(SummaryEvent(item.index, f"{SUMMARY} {dice.randrange(9)}"))
        if dice.random() < 0.1:
            out.append(dice.choice(NEWS))
    return out


def plain(events: list[Event]) -> list[Event]:
    """Return the events without those that are in no message."""
    return [
        replace(event, seal=None) if isinstance(event, ItemEndEvent) else event
        for event in events
        if not isinstance(event, SummaryEvent)
    ]


runs = st.builds(run_of, turns)
rich_runs = st.builds(enriched, runs, st.randoms(use_true_random=False))


# --- reading runs ----------------------------------------------------------------------------------------------------


def redacted(events: list[Event], reader: Viewer, places: Iterable[int] = ()) -> list[Event]:
    """Return the events for the viewer, of a run in batches that end at these indexes."""
    redactor = Redactor(reader, SHOWN_FIELDS)
    edges = sorted({min(place, len(events)) for place in places} | {0, len(events)})
    return [event for a, b in pairwise(edges) for event in redactor.feed(events[a:b])]


def one_by_one(events: list[Event], reader: Viewer) -> list[Event]:
    return redacted(events, reader, range(len(events)))


def kinds(events: list[Event]) -> list[str]:
    """Abbreviate the events: items and parts by their kind, in pairs of start and end."""
    out: list[str] = []
    for event in events:
        if isinstance(event, ItemStartEvent):
            out.append(event.kind)
        elif isinstance(event, PartStartEvent):
            out.append(f"[{event.part.part_kind}]")
        elif isinstance(event, ItemEndEvent):
            out.append("sealed" if event.seal else "end")
    return out


def texts(
    messages: list[ModelMessage], kind: type[TextPart] | type[RefusalPart] | type[BuiltinToolReturnPart]
) -> list[object]:
    """Return the contents of the parts of this kind."""
    return [
        part.content
        for message in messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, kind)
    ]


def sse(*frames: Any) -> bytes:
    return b"".join(
        b"data: %b\n\n" % (one.encode() if isinstance(one, str) else json.dumps(one).encode()) for one in frames
    )
