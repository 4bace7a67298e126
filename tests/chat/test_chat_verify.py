"""The verifier names the rule that the first illegal frame breaks; every rule has a frame that breaks it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.parts import BuiltinToolCallPart, BuiltinToolReturnPart, Origin, Usage
from pellucid.protocols.chat.verify import RULES, verify
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.chat.chat_kit import encode, runs, split_frames, verified_frames

Frames = list[dict[str, Any]]


def legal_frames() -> Frames:
    """A legal stream with a part of every kind."""
    run, emitter = Run(ModelCall("m", []), Minter(b"seed")), Emitter(Origin("p", "w", "m"))
    run.start()
    emitter.thinking("a", "One.", item="r")
    emitter.thinking("b", "Two.", item="r", form="summary")
    emitter.text("t", "So ")
    emitter.text("t", "it is.")
    emitter.whole_part(BuiltinToolCallPart("web_search", {"q": 1}, "b1"))
    emitter.whole_part(BuiltinToolReturnPart("web_search", "found", "b1"))
    emitter.tool_call("c", "{}", name="f", call_id="c1")
    emitter.usage = Usage(1, 2, 3)
    emitter.finish("stop", None)
    return verified_frames(encode(run.feed(emitter.end("eof"))[0]))


KINDS = [frame["type"] for frame in legal_frames()]


def index_of(kind: str, number: int = 0) -> int:
    return [place for place, one in enumerate(KINDS) if one == kind][number]


def write_frames(frames: Frames) -> bytes:
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n" % (number, frame["type"].encode(), msgspec.json.encode(frame))
        for number, frame in enumerate(frames)
    )


def change(kind: str, number: int = 0, /, **fields: Any) -> Callable[[Frames], None]:
    def edit(frames: Frames) -> None:
        frames[index_of(kind, number)] |= fields

    return edit


def change_final(place: int | None, **fields: Any) -> Callable[[Frames], None]:
    def edit(frames: Frames) -> None:
        event = frames[-1]["event"]
        (event if place is None else event["segments"][place]).update(fields)

    return edit


def drop(kind: str, number: int = 0) -> Callable[[Frames], object]:
    return lambda frames: frames.pop(index_of(kind, number))


def duplicate(kind: str, number: int = 0) -> Callable[[Frames], None]:
    return lambda frames: frames.insert(index_of(kind, number), dict(frames[index_of(kind, number)]))


def move(kind: str, number: int, to: int) -> Callable[[Frames], None]:
    return lambda frames: frames.insert(to, frames.pop(index_of(kind, number)))


PART, DELTA, COMPLETED = "reasoning_part_started", "reasoning_part_delta", "reasoning_part_completed"
META, UPDATE, RESULT = "reasoning_segment_meta", "web_search_call_update", "web_search_call_result"
ERROR = {"type": "message_error", "event_id": "evt_1", "message": "no"}
CANCELLED = {"type": "message_cancelled", "event_id": "evt_1"}

BROKEN: list[tuple[str, Callable[[Frames], object]]] = [
    ("fields", change("text_delta", text_delta=5)),
    ("fields", change("text_delta", extra=1)),
    ("fields", lambda frames: frames[1].pop("segment_id")),
    ("fields", change("message_started", view="all")),
    ("start", drop("message_started")),
    ("start", duplicate("message_started")),
    ("same", change("text_delta", event_id="evt_2")),
    ("same", change_final(None, id="evt_2")),
    ("end", duplicate("message_final")),
    ("end", drop("message_final")),
    ("end", lambda frames: frames.__setitem__(slice(-1, -1), [CANCELLED, dict(frames[-2])])),
    ("end", lambda frames: frames.__setitem__(slice(-1, None), [CANCELLED])),
    ("order", change(PART, 0, sequence_number=0)),
    ("order", change("web_search_call_started", sequence_number=1)),
    ("segment", drop(META)),
    ("segment", duplicate(META)),
    ("segment", lambda frames: frames[index_of(META)].pop("created_at")),
    ("segment", change(PART, segment_id="rs_other")),
    (
        "segment",
        lambda frames: frames.insert(index_of("tool_call_started"), {**frames[index_of(PART, 1)], "summary_index": 2}),
    ),
    ("part", change(PART, 1, summary_index=2)),
    ("part", change(DELTA, 1, summary_index=0)),
    ("part", drop(COMPLETED)),
    ("part", duplicate(COMPLETED)),
    ("part", move("text_delta", 0, index_of(COMPLETED))),
    ("delta", change(DELTA, text_delta="")),
    ("delta", change("text_delta", text_delta="")),
    ("text", change("text_delta", 1, output_index=0)),
    ("text", move("text_delta", 1, index_of("tool_call_started"))),
    ("call", duplicate("tool_call_started")),
    ("call", drop("tool_call_started")),
    ("call", duplicate(RESULT)),
    ("call", change(RESULT, error="no")),
    ("call", lambda frames: frames.__setitem__(index_of(RESULT), {**frames[index_of(RESULT)], "type": "tool_result"})),
    ("call", move(UPDATE, 0, index_of("tool_call_started"))),
    ("final", change_final(None, status="failed")),
    ("final", change_final(None, status="in_progress")),
    ("final", lambda frames: frames.insert(-1, ERROR)),
    ("final", change_final(0, id="rs_other")),
    ("final", change_final(0, combined_text="One.")),
    ("final", change_final(0, reasoning_tokens=4)),
    ("final", change_final(0, sequence_number=3)),
    ("final", change_final(0, parts=[])),
    ("final", change_final(1, text="So")),
    ("final", change_final(2, status="incomplete")),
    ("final", change_final(2, result="lost")),
    ("final", change_final(3, call_id="c2")),
    ("final", change_final(3, status="completed", result=1)),
    ("final", lambda frames: frames[-1]["event"]["segments"].pop()),
    ("final", lambda frames: frames[-1]["event"].pop("timeline")),
    ("final", lambda frames: frames[-1]["event"]["segments"].reverse()),
    ("final", drop("text_delta", 1)),
    ("final", drop(RESULT)),
]


def test_the_first_broken_rule_is_named() -> None:
    with Cases() as case:
        for place, (rule, breaks) in enumerate(BROKEN):
            with case(f"{rule}-{place}"):
                frames = legal_frames()
                assert verify(write_frames(frames)) == []
                breaks(frames)
                [violation] = verify(write_frames(frames))
                assert violation.partition(":")[0] == rule, violation


MALFORMED: list[Callable[[bytes], bytes]] = [
    lambda stream: stream.replace(b"id: 3\n", b"id: 4\n"),
    lambda stream: stream.replace(b"id: 3\n", b""),
    lambda stream: stream.replace(b"event: text_delta", b"event: text"),
    lambda stream: stream.replace(b"\n", b"\r\n"),
    lambda stream: stream.replace(b'data: {"type":"text_delta"', b'data: {"type":"text_delta'),
    lambda stream: stream.replace(b'data: {"type":"text_delta"', b'data: {"type":5'),
    lambda stream: stream[:-1],
    lambda stream: stream + b"id: 99",
    lambda stream: b"data: [DONE]\n\n" + stream,
]


def test_a_malformed_frame_breaks_the_frame_rule() -> None:
    with Cases() as case:
        for place, change in enumerate(MALFORMED):
            with case(place):
                [violation] = verify(change(write_frames(legal_frames())))
                assert violation.startswith("frame: ")


def test_every_rule_can_be_broken_and_comments_break_none() -> None:
    assert {rule for rule, _ in BROKEN} | {"frame"} == set(RULES)
    assert verify(b": queued\n\n" + b": broken off\n\n".join(split_frames(write_frames(legal_frames())))) == []
    assert verify(b"") == ["end: the stream ends without message_final (frame 0)"]
    assert verify(write_frames([*legal_frames()[:-1], ERROR])) == []


def test_a_violation_names_the_frame_and_shows_no_content() -> None:
    frames = legal_frames()
    frames[index_of(DELTA)]["text_delta"] = {"secret": "told"}
    [violation] = verify(write_frames(frames))
    assert f"(frame {index_of(DELTA)})" in violation
    assert "told" not in violation
    assert "secret" not in violation


@given(runs, st.randoms(use_true_random=False))
def test_the_verifier_never_raises_on_reordered_frames(events: Any, dice: random.Random) -> None:
    frames = split_frames(encode(events))
    for _ in range(2):
        one, two = dice.randrange(len(frames)), dice.randrange(len(frames))
        match dice.randrange(3):
            case 0:
                frames[one], frames[two] = frames[two], frames[one]
            case 1:
                frames.insert(two, frames[one])
            case 2 if len(frames) > 1:
                del frames[one]
    renumbered = [b"id: %d" % number + frame[frame.index(b"\n") :] for number, frame in enumerate(frames)]
    assert len(verify(b"".join(renumbered))) <= 1
