"""Whatever a model says, in whatever pieces: the stream is legal, the same however it is read, and what is kept."""

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
from pellucid.protocols.chat import build_answer
from pellucid.protocols.chat.encode import QUEUED
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from pellucid.unicode import replace_surrogates
from pellucid.view import VIEWS, Redactor, Viewer
from tests.chat.chat_kit import (
    NOW,
    an_encoder,
    encoded,
    final,
    frames_of,
    joined,
    names,
    of,
    pieces,
    read,
    runs,
)
from tests.view.view_kit import READERS

places = st.lists(st.integers(0, 60), max_size=8)
readers = st.sampled_from(READERS)


def for_reader(events: list[Event], reader: Viewer) -> list[Event]:
    return Redactor(reader).feed(events)


@given(runs, readers)
def test_every_run_is_legal_for_every_reader(events: list[Event], reader: Viewer) -> None:
    frames = frames_of(encoded(for_reader(events, reader), view=reader.view))
    assert frames[0]["type"] == "message_started"
    assert [frame["type"] for frame in frames].index("message_final") == len(frames) - 1
    reasoning = [segment for segment in final(frames)["segments"] if segment["type"] == "reasoning"]
    if reader.view == "hidden":
        assert not reasoning
        assert not of(frames, "reasoning_segment_meta", "reasoning_part_started")
    if reader.view == "sealed":
        assert all(segment["parts"] == [] for segment in reasoning)
    if reader.view == "summary":
        assert {part["type"] for segment in reasoning for part in segment["parts"]} <= {"summary_text"}
    if not reader.counts:
        assert b"tokens" not in msgspec.json.encode({**final(frames), "error": None})


@given(runs, places, readers)
def test_how_events_are_batched_changes_nothing(events: list[Event], cuts: list[int], reader: Viewer) -> None:
    events = for_reader(events, reader)
    assert encoded(events, cuts) == encoded(events)


@given(runs, places)
def test_who_goes_on_from_anywhere_gets_what_is_missing(events: list[Event], cuts: list[int]) -> None:
    whole = pieces(encoded(events))
    for after in range(-1, len(whole) + 1):
        assert encoded(events, cuts, after=after) == b"".join(whole[after + 1 :])


@given(runs)
def test_what_is_streamed_is_what_is_kept_and_all_that_was_said(events: list[Event]) -> None:
    frames = frames_of(encoded(events))
    kept = [
        text
        for segment in final(frames)["segments"]
        for text in (
            [part["text"] for part in segment["parts"]] if segment["type"] == "reasoning" else [segment.get("text")]
        )
        if text is not None
    ]
    assert joined(frames) == kept
    said = [
        replace_surrogates(part.content)
        for message in fold(events).messages
        if isinstance(message, ModelResponse)
        for part in message.parts
        if isinstance(part, ThinkingPart | TextPart | RefusalPart) and part.content
    ]
    assert "".join(kept) == "".join(said)


@given(runs)
def test_the_event_without_a_stream_is_that_of_the_stream(events: list[Event]) -> None:
    encoder = an_encoder(effort_level="high")
    frames = read(encoder.start() + encoder.feed(events, NOW))
    event = build_answer("evt_1", "chat_1", "m", NOW - 5, [(NOW, events)], effort_level="high")
    assert encoder.ended
    assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == frames[-1].event  # type: ignore[union-attr]
    assert encoder.event == event


@given(runs)
def test_a_segment_has_one_id_from_its_first_frame_to_the_end_and_numbers_in_order(events: list[Event]) -> None:
    frames = frames_of(encoded(events))
    segments = final(frames)["segments"]
    opened = [frame for frame in of(frames, "reasoning_segment_meta") if "output_index" in frame]
    assert [(frame["segment_id"], frame["output_index"], frame["sequence_number"]) for frame in opened] == [
        (segment["id"], at, segment["sequence_number"])
        for at, segment in enumerate(segments)
        if segment["type"] == "reasoning"
    ]
    numbers = [frame["sequence_number"] for frame in frames if "sequence_number" in frame]
    assert numbers == sorted(set(numbers))
    # One for each segment and for each part of reasoning, and no more.
    assert all(number < len(segments) + sum(len(one.get("parts", ())) for one in segments) for number in numbers)


# --- single things -------------------------------------------------------------------------------------------------


def run(*turns: Any, cause: Any = "eof") -> list[Event]:
    """The run of these turns: each a function that says something, to an emitter."""
    machine = Run(ModelCall("m", []), Minter(b"seed"))
    machine.start()
    emitter = Emitter(Origin("p", "w", "m"))
    for say in turns:
        say(emitter)
    emitter.finish("stop", None)
    return machine.feed(emitter.end(cause))[0] + machine.end()


def test_an_answer_ends_once() -> None:
    encoder = an_encoder()
    stream = encoder.start() + encoder.feed(run(lambda emitter: emitter.text("t", "Hi")), NOW)
    assert encoder.feed([RunEndEvent("failed")], NOW) == b""
    assert final(frames_of(stream))["status"] == encoder.event.status == "completed"


def test_a_model_that_is_not_free_yet_is_a_comment() -> None:
    encoder = an_encoder()
    assert encoder.start(queued=True) == QUEUED + an_encoder().start()
    assert an_encoder(after=0).start(queued=True) == b""


def test_only_an_answer_that_was_not_kept_has_no_final_event() -> None:
    failed = RunEndEvent("failed", error=ErrorInfo("unavailable", "the response came, and …", code="not_kept"))
    events = run(lambda emitter: emitter.text("t", "Hi"))
    told_ = frames_of(encoded([*events[:-1], failed]))
    assert names(told_)[-2:] == ["text_delta", "message_error"]
    for view in VIEWS:
        assert for_reader([failed], Viewer(view))[0].error.code == "not_kept"  # type: ignore[union-attr]


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
    ],
)
def test_every_end_is_told_and_kept(end: RunEndEvent, last: list[str], fault: str | None) -> None:
    events = run(lambda emitter: emitter.thinking("k", "Hm."))
    frames = frames_of(encoded([*events[:-1], end]))
    assert names(frames)[5:] == last
    event = final(frames)
    assert event["status"] == end.status
    assert event["completed_at"] == NOW
    assert event.get("error", {}).get("code") == fault
    if end.status == "failed" and end.error is not None:
        assert of(frames, "message_error")[0]["message"] == "too slow: sorry" == event["error"]["message"]


@pytest.mark.parametrize("cause", ["error", "cancelled"])
def test_what_was_cut_off_is_closed_and_not_whole(cause: Any) -> None:
    events = run(lambda emitter: emitter.thinking("k", "Hm"), cause=cause)
    frames = frames_of(encoded(events))
    assert "reasoning_part_completed" in names(frames)
    [segment] = final(frames)["segments"]
    assert segment["parts"][0]["is_complete"] is False
    assert segment["combined_text"] == "Hm"


def test_a_run_that_broke_off_in_the_middle_of_a_word_is_closed_and_is_no_event() -> None:
    events = run(lambda emitter: emitter.thinking("k", "Hm"))
    place = next(at for at, event in enumerate(events) if isinstance(event, PartEndEvent))
    frames = frames_of(encoded([*events[:place], RunEndEvent("failed", error=ErrorInfo("server_error", "a fault"))]))
    assert names(frames)[-2:] == ["reasoning_part_completed", "message_error"]


def test_reasoning_that_goes_on_after_text_is_another_segment_in_its_place() -> None:
    def say(emitter: Emitter) -> None:
        emitter.thinking("a", "One.")
        emitter.text("b", "Two.")
        emitter.thinking("c", "Three.")
        emitter.text("d", "Four.")

    frames = frames_of(encoded(run(say)))
    segments = final(frames)["segments"]
    assert [(s["type"], s.get("output_index"), s.get("sequence_number")) for s in segments] == [
        ("reasoning", 0, 0),
        ("text", None, None),
        ("reasoning", 2, 3),
        ("text", None, None),
    ]
    assert [frame["output_index"] for frame in of(frames, "text_delta")] == [1, 3]
    assert [span["segment_id"] for span in final(frames)["timeline"]] == [segment["id"] for segment in segments]


def test_parts_of_one_message_are_one_text_and_a_refusal_stands_alone() -> None:
    cited = {"type": "url_citation", "url": "https://e.org", "title": "E", "start_index": 0, "end_index": 2}

    def say(emitter: Emitter) -> None:
        emitter.text("a", "One ", item="m")
        emitter.text("b", "two", item="m", annotations=[cited])
        emitter.refusal("c", "No.", item="m")
        emitter.text("d", "three", item="m")

    [one, no, more] = final(frames_of(encoded(run(say))))["segments"]
    assert (one["text"], no["text"], more["text"]) == ("One two", "No.", "three")
    assert (no["id"], more["id"]) == (f"{one['id']}_2", f"{one['id']}_3")
    assert one["annotations"] == [cited | {"start_index": 4, "end_index": 6}]
    assert set(more) == {"id", "type", "text"}


def test_tokens_of_a_thought_are_told_when_they_are_known_and_only_of_one() -> None:
    def counted(thoughts: int, tokens: int | None) -> list[dict[str, Any]]:
        def say(emitter: Emitter) -> None:
            for number in range(thoughts):
                emitter.thinking(number, "Hm.", item=number)
                emitter.text(("t", number), "So.")
            emitter.usage = Usage(5, 20, tokens)

        return frames_of(encoded(run(say), effort_level="low"))

    frames = counted(1, 12)
    [opening, counts] = of(frames, "reasoning_segment_meta")
    assert opening["effort_level"] == "low"
    assert (counts["reasoning_tokens"], counts["form"]) == (12, "raw")
    [segment, _] = final(frames)["segments"]
    assert (segment["reasoning_tokens"], segment["effort_level"]) == (12, "low")
    assert final(frames)["usage"] == {"input_tokens": 5, "output_tokens": 20, "reasoning_tokens": 12}
    for thoughts, tokens in ((2, 12), (1, None), (1, 0)):
        frames = counted(thoughts, tokens)
        assert not any("reasoning_tokens" in frame for frame in frames[:-1])
        assert not any("reasoning_tokens" in segment for segment in final(frames)["segments"])


def test_a_megabyte_and_half_a_character() -> None:
    long = "思" * 400_000

    def say(emitter: Emitter) -> None:
        emitter.thinking("a", long)
        emitter.thinking("a", " \ud83d")
        emitter.text("b", '\x00\u2028\x7f%s"\\\n\n', signature="s")

    frames = frames_of(encoded(run(say)))
    [thought, text] = final(frames)["segments"]
    assert thought["combined_text"] == f"{long} \ufffd"
    assert text["text"] == '\x00\u2028\x7f%s"\\\n\n'


def test_what_says_nothing_to_a_reader_opens_nothing() -> None:
    def say(emitter: Emitter) -> None:
        emitter.item("i", "reasoning", signature="blob")
        emitter.text("t", "", signature="s")

    frames = frames_of(encoded(run(say)))
    # That there was a thought is seen; a text without a word is none.
    [segment] = final(frames)["segments"]
    assert (segment["type"], segment["parts"], segment["combined_text"]) == ("reasoning", [], "")
    assert names(frames) == ["message_started", "reasoning_segment_meta", "message_final"]
