"""Helpers of the AG-UI tests: strategies for runs with seals and side events, and readers of encoded streams."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import Cause, Event, ItemEndEvent, ItemStartEvent, ModelEvent, SummaryEvent
from pellucid.framing import SSEDecoder
from pellucid.parts import (
    BuiltinToolCallPart,
    CompactionPart,
    FilePart,
    Image,
    OpaquePart,
    Origin,
    RetryPromptPart,
    Text,
    ToolReturnPart,
    Usage,
)
from pellucid.protocols import agui
from pellucid.protocols.agui import DialectName, Encoder
from pellucid.protocols.agui.sequence import Severity
from pellucid.protocols.agui.verify import Violation, verify
from pellucid.run import CallTools, Effect, Minter, Run
from pellucid.settings import ModelCall

T = TypeVar("T")

NOW = 1_700_000_000
ORIGIN = Origin("p", "w", "m")
PIECES = ["", "a", "%s%d", '"\\/', "\n\ndata: {}\n\n", "\u2028\u2029\x85", "\x00\x7f", "😀é", "\ud83d", "{}", ":2"]
USAGES = [Usage(), Usage(7, 5, 3), Usage(output_tokens=4, cache_read_tokens=2**70)]
DIALECTS: list[DialectName] = ["1.0", "0.x", "thinking", "proposal"]

SIDES: list[agui.AGUIEvent | agui.Interrupt] = [
    agui.StateSnapshotEvent(snapshot={"n": 1}),
    agui.StateDeltaEvent(delta=[{"op": "add", "path": "/n", "value": 2}]),
    agui.CustomEvent(name="n", value=None),
    agui.RawEvent(event={"x": 1}),
    agui.StepStartedEvent(step_name="s"),
    agui.StepStartedEvent(step_name="s"),
    agui.StepFinishedEvent(step_name="s"),
    agui.ActivitySnapshotEvent(message_id="act", activity_type="plan", content={"n": 1}),
    agui.SubagentStartedEvent(subagent_run_id="sub", name="helper"),
    agui.TextMessageStartEvent(message_id="theirs", subagent_run_id="sub"),
    agui.TextMessageContentEvent(message_id="theirs", delta="said"),
    agui.TextMessageContentEvent(message_id="theirs", delta=""),
    agui.TextMessageChunkEvent(message_id="chunked", delta="b"),
    agui.TextMessageChunkEvent(message_id="chunked", delta=""),
    agui.ReasoningMessageChunkEvent(message_id="mused", delta="c"),
    agui.ToolCallChunkEvent(tool_call_id="called", tool_call_name="g", delta="{}"),
    agui.RunFinishedEvent(thread_id="other", run_id="other"),
    agui.Interrupt(id="i", reason="why"),
]
"""Side events that an agent may send. Each occurs at most once in a run, because ids are unique in a thread."""

model_calls = st.tuples(
    st.sampled_from(
        [
            *["thinking", "thinking", "summary", "seal", "item", "text", "text", "cite", "refusal", "call", "args"],
            *["dict", "close", "builtin", "file", "opaque", "compaction", "fail"],
        ]
    ),
    st.integers(0, 2),
    st.sampled_from(PIECES),
)
turns = st.lists(
    st.tuples(
        st.lists(model_calls, max_size=14),
        st.sampled_from([None, "stop", "tool_call", "length", "content_filter", "error"]),
        st.sampled_from(USAGES),
    ),
    min_size=1,
    max_size=3,
)
causes: st.SearchStrategy[Cause] = st.sampled_from(["eof", "error", "cancelled"])


@st.composite
def runs(draw: st.DrawFn, sides: bool = True) -> list[list[Event]]:
    """Draw the batches of a run as the raw view has them: with seals, and with an agent's side events."""
    batches = run_of(draw(turns), draw(causes))
    with_seals = draw(st.booleans())
    batches = [[sealed(event) if with_seals else event for event in batch] for batch in summarised(batches)]
    if sides:
        for at in sorted(draw(st.lists(st.integers(0, len(SIDES) - 1), unique=True, max_size=6))):
            where = draw(st.integers(0, len(batches) - 2)) if len(batches) > 1 else 0
            batch = batches[where]
            batch.insert(draw(st.integers(0, max(0, len(batch) - 1))), SIDES[at].as_side_event())
    return batches


def several(strategy: st.SearchStrategy[T], share: int = 1) -> list[T]:
    """Draw a list of values, for a client in another process that plays all of them at once.

    Args:
        strategy: the strategy to draw from.
        share: divisor of the profile's number of examples.
    """
    drawn: list[T] = []

    @seed(1)
    @settings(max_examples=settings().max_examples // share, database=None, phases=[Phase.generate])
    @given(strategy)
    def collect(one: T) -> None:
        drawn.append(one)

    collect()
    return drawn


def say(emitter: Emitter, what: str, key: int, text: str) -> None:
    match what:
        case "thinking":
            emitter.thinking(("raw", key), text, item=("r", key // 2), form="redacted" if key == 2 else "raw")
        case "summary":
            emitter.thinking(("sum", key), text, item=("r", key // 2), form="summary")
        case "seal":
            emitter.thinking(("raw", key), signature=f"s{text}")
        case "text":
            emitter.text(("t", key), text, item=("m", key // 2))
        case "cite":
            citation = {"type": "url_citation", "url": text}
            emitter.text(("t", key), text, annotations=[citation])
        case "refusal":
            emitter.refusal(("x", key), text, item=("m", key // 2))
        case "call":
            emitter.tool_call(("f", key), text, name=f"f{key}{text}", call_id=f"c{key % 2}" if key else None)
        case "args":
            emitter.tool_call(("f", key), text)
        case "dict":
            emitter.tool_call(("f", key), {"k": text}, name=f"f{key}", signature=text)
        case "close":
            for kind in ("raw", "sum", "t", "f"):
                emitter.close((kind, key))
        case "item":
            emitter.item(("i", key), "reasoning", signature=text)
        case "builtin":
            emitter.whole_part(BuiltinToolCallPart("search", {"q": 1}, "b"))
        case "file":
            emitter.whole_part(FilePart("aGk=", "image/png"))
        case "opaque":
            emitter.whole_part(OpaquePart("x", {"secret": text}))
        case "compaction":
            emitter.whole_part(CompactionPart(text, signature="sig"))
        case "fail" if key == 2:
            emitter.fail(ErrorInfo("model_error", f"broke: {text}", code="c" if text else None, param=text))


def run_of(script: list[Any], cause: Cause) -> list[list[Event]]:
    """Return the batches of a run with a server tool (`f0`), one batch for each call of the emitter."""
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools=frozenset({"f0"}), max_tool_calls=5)
    run.start()
    batches: list[list[Event]] = []
    for calls, reason, usage in script:
        emitter = Emitter(ORIGIN)
        read: list[list[ModelEvent]] = []
        for call in calls:
            say(emitter, *call)
            read.append(emitter.take())
        emitter.usage = usage
        emitter.finish(reason)
        read.append(emitter.end(cause if calls == script[-1][0] else "eof"))
        effects: list[Effect] = []
        for batch in read:
            events, effects = run.feed(batch)
            batches.append(events)
        if run.run_end is not None:
            return batches
        [tools] = effects
        assert isinstance(tools, CallTools)
        results: list[ToolReturnPart | RetryPromptPart] = [
            ToolReturnPart(call.tool_name, [Text("\udcff no"), Image(url="https://e.org/i.png")], call.tool_call_id)
            if at % 2
            else RetryPromptPart("again", call.tool_name, call.tool_call_id)
            for at, call in enumerate(tools.calls)
        ]
        batches.append(run.add_results(results)[0])
    batches.append(run.end(ErrorInfo("timeout", "nobody asked the model again")))
    return batches


def summarised(batches: list[list[Event]]) -> list[list[Event]]:
    """Add a summary event of the gateway to each reasoning item; a view turns it into a part or drops it."""
    out: list[list[Event]] = []
    for batch in batches:
        events: list[Event] = []
        for event in batch:
            events.append(event)
            if isinstance(event, ItemStartEvent) and event.kind == "reasoning":
                events.append(SummaryEvent(event.index, "in short"))
        out.append(events)
    return out


def sealed(event: Event) -> Event:
    return replace(event, seal=f"sealed-{event.index}") if isinstance(event, ItemEndEvent) else event


# --- reading -----------------------------------------------------------------------------------------------------


def encoded(batches: list[list[Event]], dialect: DialectName = "1.0", **kwargs: Any) -> bytes:
    """Encode the batches to a whole stream."""
    encoder = Encoder("t", "r", dialect, **kwargs)
    return encoder.start() + b"".join(encoder.feed(batch, NOW) for batch in batches)


def events_of(stream: bytes) -> list[dict[str, Any]]:
    assert b"\r" not in stream
    return [json.loads(frame.data) for frame in SSEDecoder(max_bytes=len(stream) + 1).feed(stream)]


def streamed(batches: list[list[Event]], dialect: DialectName = "1.0", **kwargs: Any) -> list[dict[str, Any]]:
    return events_of(encoded(batches, dialect, **kwargs))


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def turn(*calls: tuple[str, int, str], reason: Any = "stop", seals: bool = True) -> list[list[Event]]:
    """Return the batches of a run of one turn, one batch for each call of the emitter."""
    batches = run_of([(list(calls), reason, Usage(7, 5, 3))], "eof")
    return [[sealed(event) if seals else event for event in batch] for batch in batches]


def violation_of(events: list[Any], dialect: DialectName, least: Severity = "style") -> Violation | None:
    """Return the first violation, if there is one.

    Models and applications of tests write any text as the arguments of a call. It is passed on as it is.
    """
    violation = verify(events, dialect, least)
    return None if violation is not None and violation.rule == "arguments" else violation
