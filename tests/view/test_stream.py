"""A redacted stream is legal for every viewer, and has exactly the content that the viewer may see."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.emit import response_events
from pellucid.events import (
    ErrorEvent,
    Event,
    FunctionToolResultEvent,
    ItemEndEvent,
    ItemStartEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    ResponseEndEvent,
    ResponseStartEvent,
    RunEndEvent,
    SideEvent,
    SummaryEvent,
)
from pellucid.fold import fold
from pellucid.parts import (
    BuiltinToolReturnPart,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    Origin,
    RefusalPart,
    SystemPromptPart,
    Text,
    TextPart,
    ThinkingPart,
    ThinkingPartDelta,
    Usage,
    UserPromptPart,
)
from pellucid.view import Redactor, Viewer, redact_messages
from tests.examples import many
from tests.view.view_kit import (
    LESSER,
    NEWS,
    ORIGIN,
    READERS,
    SEAL,
    SECRET,
    SUMMARY,
    enriched,
    kinds,
    leaks,
    one_by_one,
    plain,
    redacted,
    rich_runs,
    run_of,
    runs,
    texts,
    turn_of,
)

readers = st.sampled_from(READERS)
lesser_readers = st.sampled_from(LESSER)


# --- every run, every reader -----------------------------------------------------------------------------------------


@many
@given(rich_runs, readers)
def test_a_redacted_stream_is_legal_and_numbered_without_gaps(events: list[Event], reader: Viewer) -> None:
    fold(events)  # the run itself is legal
    visible = redacted(events, reader)
    folded = fold(visible)  # refuses gaps, and open parts
    assert folded.run_end is not None
    assert folded.snapshot() is None
    last: str | None = None
    for event in visible:
        assert not isinstance(event, SummaryEvent)
        if isinstance(event, ResponseStartEvent):
            last = None
        elif isinstance(event, PartStartEvent):
            assert event.previous_part_kind == last
        elif isinstance(event, PartEndEvent):
            last = event.part.part_kind


@given(rich_runs, readers, st.lists(st.integers(0, 60), max_size=5))
def test_batch_boundaries_do_not_change_the_result(events: list[Event], reader: Viewer, places: list[int]) -> None:
    whole = redacted(events, reader)
    assert redacted(events, reader, places) == whole
    assert one_by_one(events, reader) == whole


@many
@given(rich_runs, readers)
def test_a_redacted_stream_folds_into_the_redacted_messages(events: list[Event], reader: Viewer) -> None:
    events = plain(events)
    assert fold(redacted(events, reader)).messages == redact_messages(fold(events).messages, reader)


@given(runs, readers)
def test_redaction_is_idempotent(events: list[Event], reader: Viewer) -> None:
    visible = redacted(events, reader)
    assert redacted(visible, reader) == visible
    messages = redact_messages(fold(events).messages, reader)
    assert redact_messages(messages, reader) == messages


@given(runs, readers)
def test_a_replayed_run_is_redacted_like_the_live_one(events: list[Event], reader: Viewer) -> None:
    for message in fold(events).messages:
        if isinstance(message, ModelResponse):
            again = fold(redacted(list(response_events(message)), reader)).response
            assert again is not None
            assert [again] == redact_messages([message], reader)


@many
@given(rich_runs, lesser_readers)
def test_no_reasoning_leaves(events: list[Event], reader: Viewer) -> None:
    visible = redacted(events, reader)
    assert not leaks(visible)
    assert not leaks(redact_messages(fold(events).messages, reader))
    if reader.view != "summary":
        assert not leaks(visible, SUMMARY)
    if reader.view == "hidden":
        assert not leaks(visible, SEAL)
        assert not leaks(visible, '"reasoning"')
        assert not leaks(visible, "thinking")


@given(rich_runs, lesser_readers)
def test_the_answer_is_not_redacted(events: list[Event], reader: Viewer) -> None:
    messages, visible = fold(events).messages, fold(redacted(events, reader)).messages
    for kind in (TextPart, RefusalPart, BuiltinToolReturnPart):
        assert texts(visible, kind) == texts(messages, kind)
    calls = [[call.args for call in one.tool_calls] for one in messages if isinstance(one, ModelResponse)]
    assert [[call.args for call in one.tool_calls] for one in visible if isinstance(one, ModelResponse)] == calls
    results = [event for event in events if isinstance(event, FunctionToolResultEvent)]
    assert [event for event in redacted(events, reader) if isinstance(event, FunctionToolResultEvent)] == results


@given(rich_runs)
def test_sealed_reasoning_is_a_start_an_end_and_a_seal(events: list[Event]) -> None:
    def reasoning(events: list[Event]) -> list[tuple[Any, Any, Any]]:
        started: dict[int, ItemStartEvent] = {}
        out: list[tuple[Any, Any, Any]] = []
        for event in events:
            if isinstance(event, ItemStartEvent):
                started[event.index] = event
            elif isinstance(event, ItemEndEvent) and started[event.index].kind == "reasoning":
                out.append((started[event.index].id, event.status, event.seal))
        return out

    sealed = redacted(events, Viewer("sealed"))
    whole = reasoning(events)
    # An item of which only the seal is left is reasoning, too.
    assert [one for one in reasoning(sealed) if one in whole] == whole
    assert all(seal for one in reasoning(sealed) if one not in whole for seal in one[2:])
    assert not any(isinstance(event, PartStartEvent) and event.part.part_kind == "thinking" for event in sealed)


@given(rich_runs, st.sampled_from(["raw", "summary"]))
def test_our_summaries_are_parts_of_their_item(events: list[Event], view: Any) -> None:
    visible = redacted(events, Viewer(view, summaries=True))

    def by_item(events: list[Event]) -> list[list[str]]:
        out: list[list[str]] = []
        for event in events:
            if isinstance(event, ItemStartEvent) and event.kind == "reasoning":
                out.append([])
            elif isinstance(event, SummaryEvent):
                out[-1].append(event.text)
            elif (
                isinstance(event, PartEndEvent)
                and isinstance(event.part, ThinkingPart)
                and event.part.form == "summary"
                and event.part.content.startswith(f"{SUMMARY} ")
                and event.part.content[-1].isdigit()
            ):
                out[-1].append(event.part.content)
        return [texts for texts in out if texts]

    assert by_item(visible) == by_item(events)


# --- the content of each view ----------------------------------------------------------------------------------------

A_RUN = run_of(
    [
        (
            [
                ("raw", 0, "one", True),
                ("summary", 0, "two", True),
                ("text", 0, "Hello", False),
                ("opaque", 0, "", False),
                ("file", 0, "", True),
                ("file", 0, "", False),
                ("raw", 1, "three", False),
                ("tool", 0, "{}", True),
            ],
            "eof",
            "stop",
        ),
        ([("raw", 0, "", True), ("text", 0, "Done", False)], "eof", "stop"),
    ]
)


def sealed_all(events: list[Event]) -> list[Event]:
    return [replace(one, seal=SEAL) if isinstance(one, ItemEndEvent) else one for one in events]


def test_items_in_each_view() -> None:
    by_view = {view: kinds(redacted(sealed_all(A_RUN), Viewer(view))) for view in ("summary", "sealed", "hidden")}
    second = ["reasoning", "sealed", "message", "[text]", "sealed"]
    rest = ["message", "[text]", "sealed", "reasoning", "sealed", "file", "[file]", "sealed", "reasoning", "sealed"]
    call = ["tool_call", "[tool-call]", "sealed"]
    assert by_view["summary"] == ["reasoning", "[thinking]", "sealed", *rest, *call, *second]
    assert by_view["sealed"] == ["reasoning", "sealed", *rest, *call, *second]
    answer = ["message", "[text]", "end", "file", "[file]", "end", "tool_call", "[tool-call]", "end"]
    assert by_view["hidden"] == [*answer, "message", "[text]", "end"]
    # Without a seal, an item without content is dropped.
    assert kinds(redacted(A_RUN, Viewer("sealed"))).count("reasoning") == 3


def test_the_raw_view_gets_the_same_batch_objects() -> None:
    redactor = Redactor(Viewer("raw"))
    for batch in ([], A_RUN, A_RUN[:3]):
        assert redactor.feed(batch) is batch


def test_our_summaries_need_a_request_for_them() -> None:
    events = enriched(A_RUN, random.Random(1))
    assert any(isinstance(event, SummaryEvent) for event in events)
    visible = redacted(events, Viewer("raw"))
    assert visible == [event for event in events if not isinstance(event, SummaryEvent)]


def _live(*texts: str) -> list[Event]:
    """Return a run with a thought that is summarised while it is streamed, and an answer."""
    out: list[Event] = [ResponseStartEvent(ORIGIN), ItemStartEvent(0, "reasoning", "rs_1")]
    out.append(PartStartEvent(0, ThinkingPart("")))
    for text in texts:
        out += [PartDeltaEvent(0, ThinkingPartDelta(SECRET)), SummaryEvent(0, text)]
    out.append(PartEndEvent(0, ThinkingPart(SECRET * len(texts))))
    out.append(ItemEndEvent(0, seal=SEAL))
    out += turn_of([("text", 0, "So.", False)])[1:-1]
    at = len(out) - 5
    out[at:] = [_moved(event, 1) for event in out[at:]]
    return [*out, ResponseEndEvent(), RunEndEvent("completed")]


def _moved(event: Any, by: int) -> Any:
    return replace(event, index=event.index + by)


def test_a_summary_is_streamed_live_in_the_summary_view() -> None:
    events = _live("First.", "Second.")
    fold(events)
    visible = redacted(events, Viewer("summary"))
    response = fold(visible).response
    assert response is not None
    summaries = [ThinkingPart(text, form="summary", item_id="rs_1") for text in ("First.", "Second.")]
    assert response.parts[:2] == summaries
    # The summary is at the position where it arrived, not at the end of the thought.
    redactor = Redactor(Viewer("summary"))
    at = next(at for at, event in enumerate(events) if isinstance(event, SummaryEvent))
    redactor.feed(events[:at])
    assert [type(event) for event in redactor.feed([events[at]])] == [PartStartEvent, PartDeltaEvent, PartEndEvent]


def test_a_summary_in_the_raw_view_follows_its_thought() -> None:
    response = fold(redacted(_live("First.", "Second."), Viewer("raw", summaries=True))).response
    assert response is not None
    assert [(part.part_kind, getattr(part, "form", None)) for part in response.parts] == [
        ("thinking", "raw"), ("thinking", "summary"), ("thinking", "summary"), ("text", None),
    ]  # fmt: skip


def test_an_error_has_our_message_only() -> None:
    events = turn_of([("text", 0, "a", False), ("fail", 3, "", False)])
    [error] = [event.error for event in redacted(list(events), Viewer("hidden")) if isinstance(event, ErrorEvent)]
    assert (error.kind, error.full_message, error.retry_after) == ("model_error", "it broke", 1.5)
    assert (error.code, error.param, error.status, error.native, error.upstream_message) == (None,) * 5


def test_only_known_side_events_leave() -> None:
    events: list[Event] = list(NEWS)
    assert redacted(events, Viewer("raw")) == events
    for reader in LESSER:
        visible = redacted(events, reader)
        assert not leaks(visible)
        names = ["STATE_SNAPSHOT", "STATE_DELTA", "ACTIVITY_SNAPSHOT", "SUBAGENT_STARTED", "interrupt", "result"]
        assert [event.name for event in visible if isinstance(event, SideEvent)] == ["position", *names]
        assert visible[1] == SideEvent("agui", "STATE_SNAPSHOT", {"snapshot": {"n": 1}})
        assert visible[-1] == SideEvent("agui", "result", 42)
        others = Redactor(reader).feed(events)
        assert others == [SideEvent("queue", "position", 2)], "only AG-UI's viewers get its side events"


def test_the_account_of_an_origin_is_withheld() -> None:
    [start] = redacted([ResponseStartEvent(ORIGIN, "id", "name")], Viewer("summary"))
    assert start == ResponseStartEvent(Origin("p", "w", "m"))


@pytest.mark.parametrize("view", ["raw", "summary", "sealed", "hidden"])
def test_without_counts_no_number_allows_an_estimate(view: Any) -> None:
    visible = redacted(A_RUN, Viewer(view, counts=False))
    usages = [event.usage for event in visible if isinstance(event, ResponseEndEvent | RunEndEvent)]
    assert usages == [Usage()] * 3
    shown = redacted(A_RUN, Viewer(view))
    assert [event.usage.output_reasoning_tokens for event in shown if isinstance(event, RunEndEvent)] == [30]
    responses = redact_messages(fold(A_RUN).messages, Viewer(view, counts=False))
    assert all(one.usage == Usage() for one in responses if isinstance(one, ModelResponse))


def test_prompts_are_not_redacted() -> None:
    parts: list[ModelRequestPart] = [SystemPromptPart("Be brief."), UserPromptPart([Text("Hi")], name="Ann")]
    request = ModelRequest(list(parts), instructions="x", metadata={"x": SECRET})
    for reader in LESSER:
        assert redact_messages([request], reader) == [ModelRequest(list(parts), instructions="x")]
    assert redact_messages([request], Viewer("raw")) == [request]
