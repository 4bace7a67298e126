"""The encoder's stream is legal for any run, independent of batches and cursors, and equal to the stored event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import Event, PartEndEvent, RunEndEvent
from pellucid.fold import fold
from pellucid.parts import ModelResponse, Origin, RefusalPart, TextPart, ThinkingPart, Usage
from pellucid.protocols.chat import build_answer, message_started
from pellucid.protocols.encoding import QUEUED
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from pellucid.unicode import replace_surrogates
from pellucid.view import VIEWS, Redactor, Viewer
from tests.chat.chat_kit import (
    NOW,
    decode_typed,
    encode,
    final_event,
    frame_types,
    joined_texts,
    make_encoder,
    runs,
    select,
    split_frames,
    verified_frames,
)
from tests.view.view_kit import READERS

cut_lists = st.lists(st.integers(0, 60), max_size=8)
viewers = st.sampled_from(READERS)


def redact_for(events: list[Event], viewer: Viewer) -> list[Event]:
    return Redactor(viewer).feed(events)


@given(runs, viewers)
def test_every_run_is_legal_for_every_viewer(events: list[Event], viewer: Viewer) -> None:
    frames = verified_frames(encode(redact_for(events, viewer), view=viewer.view))
    assert frames[0]["type"] == "message_started"
    assert [frame["type"] for frame in frames].index("message_final") == len(frames) - 1
    reasoning = [segment for segment in final_event(frames)["segments"] if segment["type"] == "reasoning"]
    if viewer.view == "hidden":
        assert not reasoning
        assert not select(frames, "reasoning_segment_meta", "reasoning_part_started")
    if viewer.view == "sealed":
        assert all(segment["parts"] == [] for segment in reasoning)
    if viewer.view == "summary":
        assert {part["type"] for segment in reasoning for part in segment["parts"]} <= {"summary_text"}
    if not viewer.counts:
        assert b"tokens" not in msgspec.json.encode({**final_event(frames), "error": None})


@given(runs, cut_lists, viewers)
def test_batch_boundaries_change_no_byte(events: list[Event], cuts: list[int], viewer: Viewer) -> None:
    events = redact_for(events, viewer)
    assert encode(events, cuts) == encode(events)


@given(runs, cut_lists)
def test_every_cursor_gives_the_remaining_frames(events: list[Event], cuts: list[int]) -> None:
    whole = split_frames(encode(events))
    for after in range(-1, len(whole) + 1):
        assert encode(events, cuts, after=after) == b"".join(whole[after + 1 :])


@given(runs)
def test_streamed_text_equals_the_final_event_and_the_run(events: list[Event]) -> None:
    frames = verified_frames(encode(events))
    final_texts = [
        text
        for segment in final_event(frames)["segments"]
        for text in (
            [part["text"] for part in segment["parts"]] if segment["type"] == "reasoning" else [segment.get("text")]
        )
        if text is not None
    ]
    assert joined_texts(frames) == final_texts
    run_texts = [
        replace_surrogates(part.content)
        for message in fold(events).messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ThinkingPart | TextPart | RefusalPart) and part.content
    ]
    assert "".join(final_texts) == "".join(run_texts)


@given(runs)
def test_build_answer_returns_the_event_of_the_stream(events: list[Event]) -> None:
    encoder = make_encoder(effort_level="high")
    frames = decode_typed(encoder.start() + encoder.feed(events, NOW))
    start_frame = message_started("evt_1", "chat_1", "m", NOW - 5, effort_level="high")
    event = build_answer(start_frame, [(NOW, events)])
    assert encoder.ended
    assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == frames[-1].event  # type: ignore[union-attr]
    assert encoder.event == event


@given(runs)
def test_segment_ids_are_stable_and_sequence_numbers_increase(events: list[Event]) -> None:
    frames = verified_frames(encode(events))
    segments = final_event(frames)["segments"]
    opened = [frame for frame in select(frames, "reasoning_segment_meta") if "output_index" in frame]
    assert [(frame["segment_id"], frame["output_index"], frame["sequence_number"]) for frame in opened] == [
        (segment["id"], at, segment["sequence_number"])
        for at, segment in enumerate(segments)
        if segment["type"] == "reasoning"
    ]
    numbers = [frame["sequence_number"] for frame in frames if "sequence_number" in frame]
    assert numbers == sorted(set(numbers))
    # One number for each segment and for each reasoning part, and no more.
    assert all(number < len(segments) + sum(len(one.get("parts", ())) for one in segments) for number in numbers)


# --- single cases --------------------------------------------------------------------------------------------------


def run(*turns: Any, cause: Any = "eof") -> list[Event]:
    """The events of a run whose turns are produced by `turns`: functions that write to an emitter."""
    machine = Run(ModelCall("m", []), Minter(b"seed"))
    machine.start()
    emitter = Emitter(Origin("p", "w", "m"))
    for emit in turns:
        emit(emitter)
    emitter.finish("stop", None)
    return machine.feed(emitter.end(cause))[0] + machine.end()


def test_an_answer_ends_once() -> None:
    encoder = make_encoder()
    stream = encoder.start() + encoder.feed(run(lambda emitter: emitter.text("t", "Hi")), NOW)
    assert encoder.feed([RunEndEvent("failed")], NOW) == b""
    assert final_event(verified_frames(stream))["status"] == encoder.event.status == "completed"


def test_a_queued_answer_begins_with_a_comment() -> None:
    encoder = make_encoder()
    assert encoder.start(queued=True) == QUEUED + make_encoder().start()
    assert make_encoder(after=0).start(queued=True) == b""


def test_an_answer_that_was_not_stored_has_no_final_event() -> None:
    failed = RunEndEvent("failed", error=ErrorInfo("unavailable", "the response came, and …", code="not_kept"))
    events = run(lambda emitter: emitter.text("t", "Hi"))
    frames = verified_frames(encode([*events[:-1], failed]))
    assert frame_types(frames)[-2:] == ["text_delta", "message_error"]
    for view in VIEWS:
        assert redact_for([failed], Viewer(view))[0].error.code == "not_kept"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("end", "last", "fault"),
    [
        (RunEndEvent("completed"), ["message_final"], None),
        (RunEndEvent("cancelled"), ["message_cancelled", "message_final"], None),
        (
            RunEndEvent("failed", error=ErrorInfo("timeout", "too slow", upstream_message="sorry")),
            ["message_error", "message_final"],
            "timeout",
        ),
        (RunEndEvent("failed"), ["message_error", "message_final"], "server_error"),
        (RunEndEvent("incomplete", incomplete_reason="max_output_tokens"), ["message_final"], "max_output_tokens"),
        (RunEndEvent("incomplete", incomplete_reason="content_filter"), ["message_final"], "content_filter"),
        (RunEndEvent("incomplete", incomplete_reason="max_tool_calls"), ["message_final"], "max_tool_calls"),
        (RunEndEvent("incomplete", incomplete_reason="repetition"), ["message_final"], "repetition"),
    ],
)
def test_every_run_end_is_streamed_and_in_the_final_event(end: RunEndEvent, last: list[str], fault: str | None) -> None:
    events = run(lambda emitter: emitter.thinking("k", "Hm."))
    frames = verified_frames(encode([*events[:-1], end]))
    assert frame_types(frames)[5:] == last
    event = final_event(frames)
    assert event["status"] == end.status
    assert event["completed_at"] == NOW
    assert event.get("error", {}).get("code") == fault
    if end.status == "failed" and end.error is not None:
        assert select(frames, "message_error")[0]["message"] == "too slow: sorry" == event["error"]["message"]


@pytest.mark.parametrize("cause", ["error", "cancelled"])
def test_an_interrupted_part_is_closed_and_not_complete(cause: Any) -> None:
    events = run(lambda emitter: emitter.thinking("k", "Hm"), cause=cause)
    frames = verified_frames(encode(events))
    assert "reasoning_part_completed" in frame_types(frames)
    [segment] = final_event(frames)["segments"]
    assert segment["parts"][0]["is_complete"] is False
    assert segment["combined_text"] == "Hm"


def test_a_run_that_fails_inside_a_part_closes_it_and_has_no_final_event() -> None:
    events = run(lambda emitter: emitter.thinking("k", "Hm"))
    place = next(at for at, event in enumerate(events) if isinstance(event, PartEndEvent))
    frames = verified_frames(
        encode([*events[:place], RunEndEvent("failed", error=ErrorInfo("server_error", "a fault"))])
    )
    assert frame_types(frames)[-2:] == ["reasoning_part_completed", "message_error"]


def test_reasoning_after_text_is_a_new_segment() -> None:
    def emit(emitter: Emitter) -> None:
        emitter.thinking("a", "One.")
        emitter.text("b", "Two.")
        emitter.thinking("c", "Three.")
        emitter.text("d", "Four.")

    frames = verified_frames(encode(run(emit)))
    segments = final_event(frames)["segments"]
    assert [(s["type"], s.get("output_index"), s.get("sequence_number")) for s in segments] == [
        ("reasoning", 0, 0),
        ("text", None, None),
        ("reasoning", 2, 3),
        ("text", None, None),
    ]
    assert [frame["output_index"] for frame in select(frames, "text_delta")] == [1, 3]
    assert [span["segment_id"] for span in final_event(frames)["timeline"]] == [segment["id"] for segment in segments]


def test_text_parts_of_one_item_are_one_segment_and_a_refusal_is_another() -> None:
    cited = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 0, "end_index": 2}

    def emit(emitter: Emitter) -> None:
        emitter.text("a", "One ", item="m")
        emitter.text("b", "two", item="m", annotations=[cited])
        emitter.refusal("c", "No.", item="m")
        emitter.text("d", "three", item="m")

    [one, no, more] = final_event(verified_frames(encode(run(emit))))["segments"]
    assert (one["text"], no["text"], more["text"]) == ("One two", "No.", "three")
    assert (no["id"], more["id"]) == (f"{one['id']}_2", f"{one['id']}_3")
    assert one["annotations"] == [cited | {"start_index": 4, "end_index": 6}]
    assert set(more) == {"id", "type", "text"}


def test_reasoning_tokens_are_sent_only_for_a_single_segment() -> None:
    def frames_with_usage(thoughts: int, tokens: int | None) -> list[dict[str, Any]]:
        def emit(emitter: Emitter) -> None:
            for number in range(thoughts):
                emitter.thinking(number, "Hm.", item=number)
                emitter.text(("t", number), "So.")
            emitter.usage = Usage(5, 20, tokens)

        return verified_frames(encode(run(emit), effort_level="low"))

    frames = frames_with_usage(1, 12)
    [opening, counts] = select(frames, "reasoning_segment_meta")
    assert opening["effort_level"] == "low"
    assert (counts["reasoning_tokens"], counts["form"]) == (12, "raw")
    [segment, _] = final_event(frames)["segments"]
    assert (segment["reasoning_tokens"], segment["effort_level"]) == (12, "low")
    assert final_event(frames)["usage"] == {"input_tokens": 5, "output_tokens": 20, "reasoning_tokens": 12}
    for thoughts, tokens in ((2, 12), (1, None), (1, 0)):
        frames = frames_with_usage(thoughts, tokens)
        assert not any("reasoning_tokens" in frame for frame in frames[:-1])
        assert not any("reasoning_tokens" in segment for segment in final_event(frames)["segments"])


def test_long_text_is_complete_and_lone_surrogates_are_replaced() -> None:
    long = "思" * 400_000

    def emit(emitter: Emitter) -> None:
        emitter.thinking("a", long)
        emitter.thinking("a", " \ud83d")
        emitter.text("b", '\x00\u2028\x7f%s"\\\n\n', signature="s")

    frames = verified_frames(encode(run(emit)))
    [thought, text] = final_event(frames)["segments"]
    assert thought["combined_text"] == f"{long} \ufffd"
    assert text["text"] == '\x00\u2028\x7f%s"\\\n\n'


def test_empty_text_opens_no_segment() -> None:
    def emit(emitter: Emitter) -> None:
        emitter.item("i", "reasoning", signature="blob")
        emitter.text("t", "", signature="s")

    frames = verified_frames(encode(run(emit)))
    # The viewer sees that there was a thought; an empty text is no segment.
    [segment] = final_event(frames)["segments"]
    assert (segment["type"], segment["parts"], segment["combined_text"]) == ("reasoning", [], "")
    assert frame_types(frames) == ["message_started", "reasoning_segment_meta", "message_final"]
