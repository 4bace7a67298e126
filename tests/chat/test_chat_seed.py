"""The specification's persisted example, produced from a model's events, and the frames that lead to it."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pellucid.emit import Emitter
from pellucid.events import SUMMARY_NOTE, Event, ItemEndEvent, ItemStartEvent, SideEvent, SummaryEvent
from pellucid.parts import Origin, ToolReturnPart
from pellucid.protocols.chat import build_question
from pellucid.run import CallTools, Minter, Run
from pellucid.settings import ModelCall
from pellucid.view import Redactor, Viewer
from tests.chat.chat_kit import NOW, final_event, frame_types, make_encoder, select, verified_frames

EXAMPLE = json.loads("""[
  {
    "id": "rs_68ae526f16dc81909d710ce7d1fc1ea4",
    "type": "reasoning",
    "parts": [
      {
        "text": "**Providing historical facts**\\n\\nI'm noting that the 18th President ...",
        "type": "summary_text",
        "created_at": 1756254831851,
        "is_complete": true,
        "summary_index": 0,
        "sequence_number": 3
      }
    ],
    "streaming": false,
    "output_index": 0,
    "combined_text": "**Providing historical facts**\\n\\nI'm noting ...",
    "sequence_number": 2
  },
  {
    "id": "msg_68ae52729cdc8190b7acba8cbb3d42ec",
    "text": "Ulysses S. Grant, serving from 1869 to 1877.",
    "type": "text"
  }
]""")
THOUGHT = EXAMPLE[0]["parts"][0]["text"]
TIME = EXAMPLE[0]["parts"][0]["created_at"]

EXPECTED = [
    # The example has the numbers of OpenAI's events and elides text; ours number what opens, from 0.
    {
        **EXAMPLE[0],
        "parts": [{**EXAMPLE[0]["parts"][0], "sequence_number": 1}],
        "combined_text": THOUGHT,
        "sequence_number": 0,
    },
    EXAMPLE[1],
]


class ExampleIds:
    """Returns the example's ids in place of those that a run makes."""

    def __call__(self, prefix: str) -> str:
        return str({"rs": EXAMPLE[0]["id"], "msg": EXAMPLE[1]["id"]}[prefix])


def batches() -> list[list[Event]]:
    """One batch for each piece that the model produced."""
    run, emitter = Run(ModelCall("m", []), ExampleIds()), Emitter(Origin("openai", "openai_responses", "m"))
    run.start()
    out: list[list[Event]] = []
    for piece in ("**Providing historical facts**", "\n\nI'm noting that", " the 18th President ..."):
        emitter.thinking("s", piece, item="r", form="summary")
        out.append(run.feed(emitter.take())[0])
    for piece in ("Ulysses S. Grant,", " serving from 1869 to 1877."):
        emitter.text("t", piece)
        out.append(run.feed(emitter.take())[0])
    emitter.finish("stop", None)
    return [*out, run.feed(emitter.end("eof"))[0]]


def stream(view: Any = "raw") -> list[dict[str, Any]]:
    encoder, redactor = make_encoder(view=view), Redactor(Viewer(view))
    data = encoder.start()
    for delay_ms, batch in enumerate(batches()):
        data += encoder.feed(redactor.feed(batch), TIME + delay_ms)
    return verified_frames(data)


def test_the_final_event_equals_the_persisted_example() -> None:
    event = final_event(stream())
    assert event["segments"] == EXPECTED
    assert event == {
        "id": "evt_1",
        "conversation_id": "chat_1",
        "role": "assistant",
        "model": "m",
        "created_at": NOW - 5,
        "status": "completed",
        "segments": EXPECTED,
        "completed_at": TIME + 5,
        "view": "raw",
        "timeline": [
            {"segment_id": EXAMPLE[0]["id"], "started_at": TIME, "ended_at": TIME + 3},
            {"segment_id": EXAMPLE[1]["id"], "started_at": TIME + 3, "ended_at": TIME + 5},
        ],
    }


def test_the_frames_of_the_persisted_example() -> None:
    part = {"event_id": "evt_1", "segment_id": EXAMPLE[0]["id"], "summary_index": 0}
    frames = stream()
    assert frames[:-1] == [
        {
            "type": "message_started",
            "event_id": "evt_1",
            "conversation_id": "chat_1",
            "model": "m",
            "created_at": NOW - 5,
            "view": "raw",
        },
        {
            "type": "reasoning_segment_meta",
            "event_id": "evt_1",
            "segment_id": EXAMPLE[0]["id"],
            "sequence_number": 0,
            "output_index": 0,
            "created_at": TIME,
        },
        {"type": "reasoning_part_started", **part, "sequence_number": 1, "created_at": TIME},
        {"type": "reasoning_part_delta", **part, "text_delta": "**Providing historical facts**"},
        {"type": "reasoning_part_delta", **part, "text_delta": "\n\nI'm noting that"},
        {"type": "reasoning_part_delta", **part, "text_delta": " the 18th President ..."},
        {"type": "reasoning_part_completed", **part, "is_complete": True, "completed_at": TIME + 3},
        {"type": "text_delta", "event_id": "evt_1", "text_delta": "Ulysses S. Grant,", "output_index": 1},
        {"type": "text_delta", "event_id": "evt_1", "text_delta": " serving from 1869 to 1877.", "output_index": 1},
    ]


def test_the_persisted_example_in_each_view() -> None:
    assert final_event(stream("summary"))["segments"] == EXPECTED
    assert select(stream("summary"), "reasoning_segment_meta")[0]["form"] == "summary"
    sealed = stream("sealed")
    assert final_event(sealed)["segments"] == [{**EXPECTED[0], "parts": [], "combined_text": ""}, EXPECTED[1]]
    assert frame_types(sealed) == ["message_started", "reasoning_segment_meta", "text_delta", "message_final"]
    assert sealed[1]["form"] == "sealed"
    hidden = stream("hidden")
    assert final_event(hidden)["segments"] == EXPECTED[1:]
    assert frame_types(hidden) == ["message_started", "text_delta", "message_final"]
    assert hidden[1]["output_index"] == 0


def test_several_turns_are_one_message_with_one_counter() -> None:
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools={"look"})
    run.start()
    encoder = make_encoder()
    data = encoder.start()
    for turn in range(2):
        emitter = Emitter(Origin("p", "w", "m"))
        emitter.thinking("a", f"Thought {turn}.")
        if turn == 0:
            emitter.tool_call("c", '{"where": "up"}', name="look", call_id="call_1")
        else:
            emitter.text("t", "There.")
        emitter.finish("stop", None)
        events, effects = run.feed(emitter.end("eof"))
        data += encoder.feed(events, NOW + turn)
        if effects and isinstance(effects[0], CallTools):
            data += encoder.feed(run.add_results([ToolReturnPart("look", {"seen": ["sky"]}, "call_1")])[0], NOW + 7)
    frames = verified_frames(data)
    assert frame_types(frames) == [
        "message_started",
        *("reasoning_segment_meta", "reasoning_part_started", "reasoning_part_delta", "reasoning_part_completed"),
        *("tool_call_started", "tool_call_update", "tool_call_update", "tool_result"),
        *("reasoning_segment_meta", "reasoning_part_started", "reasoning_part_delta", "reasoning_part_completed"),
        *("text_delta", "message_final"),
    ]
    segments = final_event(frames)["segments"]
    assert [segment["type"] for segment in segments] == ["reasoning", "tool_call", "reasoning", "text"]
    assert [segment.get("sequence_number") for segment in segments] == [0, 2, 3, None]
    assert [segment.get("output_index") for segment in segments] == [0, 1, 2, None]
    assert final_event(frames)["timeline"][1] == {
        "segment_id": segments[1]["id"],
        "started_at": NOW,
        "ended_at": NOW + 7,
    }


def test_the_stream_has_the_times_of_the_timeline() -> None:
    """A page that adds up the time of reasoning and of tools shows the same while it streams and afterwards."""
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools={"look"})
    run.start()
    emitter = Emitter(Origin("p", "w", "m"))
    for n, text in enumerate(("One.", "Two.")):
        emitter.thinking(n, text, item="a")
    emitter.tool_call("c", "{}", name="look", call_id="call_1")
    emitter.text("t", "There.")
    emitter.finish("stop", None)
    events, _ = run.feed(emitter.end("eof"))
    events += run.add_results([ToolReturnPart("look", "sky", "call_1")])[0]
    encoder = make_encoder()
    data = encoder.start()
    for second, event in enumerate(events):
        data += encoder.feed([event], NOW + 1000 * second)
    data += encoder.feed(run.end(), NOW + 1_000_000)
    frames = verified_frames(data)
    final = final_event(frames)
    spans = {span["segment_id"]: (span["started_at"], span["ended_at"]) for span in final["timeline"]}
    [thought] = select(frames, "reasoning_segment_meta")[:1]
    parts = select(frames, "reasoning_part_completed")
    assert len(parts) == 2
    assert spans[thought["segment_id"]] == (thought["created_at"], parts[-1]["completed_at"])
    [call], [result] = select(frames, "tool_call_started"), select(frames, "tool_result")
    [tool] = [segment for segment in final["segments"] if segment["type"] == "tool_call"]
    assert spans[tool["id"]] == (call["created_at"], result["completed_at"])
    assert call["created_at"] < result["completed_at"] < NOW + 1_000_000


def test_a_generated_summary_is_a_part_for_viewers_of_summaries() -> None:
    events = [event for batch in batches() for event in batch]
    place = next(at for at, event in enumerate(events) if isinstance(event, ItemStartEvent))
    events.insert(place + 1, SummaryEvent(0, "In short."))
    for viewer, texts in (
        (Viewer("summary"), ["In short.", THOUGHT]),
        (Viewer("raw", summaries=True), [THOUGHT, "In short."]),
        (Viewer("raw"), [THOUGHT]),
    ):
        encoder = make_encoder(view=viewer.view)
        frames = verified_frames(encoder.start() + encoder.feed(Redactor(viewer).feed(events), NOW))
        [segment] = [one for one in final_event(frames)["segments"] if one["type"] == "reasoning"]
        assert [part["text"] for part in segment["parts"]] == texts
        assert segment["combined_text"] == "\n\n".join(texts)
        assert [part["summary_index"] for part in segment["parts"]] == list(range(len(texts)))


def test_the_time_of_a_generated_summary_is_not_that_of_the_reasoning() -> None:
    """Its author is named to viewers of the summary alone, and so is what is missing."""
    emitter = Emitter(Origin("p", "openai_chat", "m"))
    run = Run(ModelCall("m", []), Minter(b"x"))
    run.start()
    emitter.thinking("s", "Long.", item="r")
    emitter.text("t", "Yes.")
    emitter.finish("stop", None)
    events = run.feed(emitter.end("eof"))[0]
    place = next(at for at, event in enumerate(events) if isinstance(event, ItemEndEvent))
    author, ended, late = (
        SideEvent(*SUMMARY_NOTE, value) for value in ({"author": "w"}, {"ended": True}, {"missing": "late"})
    )
    steps = [[*events[:place], author, ended], [SummaryEvent(0, "In short."), late, *events[place:]]]
    segments = {}
    for view in ("summary", "raw", "sealed"):
        encoder, redactor = make_encoder(view=view), Redactor(Viewer(view))
        data = (
            encoder.start()
            + encoder.feed(redactor.feed(steps[0]), NOW)
            + encoder.feed(redactor.feed(steps[1]), NOW + 9)
        )
        frames = verified_frames(data)
        final = final_event(frames)
        segments[view] = final["segments"][0]
        if view == "summary":
            assert final["timeline"][0]["ended_at"] == NOW
            assert [
                frame["completed_at"] for frame in select(frames, "reasoning_segment_meta") if "completed_at" in frame
            ] == [NOW]
    assert segments["summary"]["summary"] == {"author": "w", "missing": "late"}
    assert "summary" not in segments["raw"] | segments["sealed"]


def test_a_question_is_an_event() -> None:
    question = build_question("evt_7", "chat_1", "Why?\ud800", NOW, ["evt_5", "evt_7"])
    assert (question.id, question.segments[0].text, question.versions) == ("ask_7", "Why?\ufffd", ["evt_5", "evt_7"])
    question_with_one_version = msgspec.to_builtins(build_question("evt_7", "chat_1", "Why?", NOW, ["evt_7"]))
    assert question_with_one_version == {
        "id": "ask_7",
        "conversation_id": "chat_1",
        "role": "user",
        "created_at": NOW,
        "status": "completed",
        "segments": [{"id": "ask_7_text", "type": "text", "text": "Why?"}],
    }
