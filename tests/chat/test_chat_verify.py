"""The verifier names the rule that the first illegal frame breaks; and no rule is there that nothing breaks."""

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
from tests.chat.chat_kit import encoded, frames_of, pieces, runs

Frames = list[dict[str, Any]]


def legal() -> Frames:
    """A bit of everything."""
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
    return frames_of(encoded(run.feed(emitter.end("eof"))[0]))


KINDS = [frame["type"] for frame in legal()]


def at(kind: str, number: int = 0) -> int:
    return [place for place, one in enumerate(KINDS) if one == kind][number]


def written(frames: Frames) -> bytes:
    return b"".join(
        b"id: %d\nevent: %b\ndata: %b\n\n" % (number, frame["type"].encode(), msgspec.json.encode(frame))
        for number, frame in enumerate(frames)
    )


def change(kind: str, number: int = 0, /, **fields: Any) -> Callable[[Frames], None]:
    def do(frames: Frames) -> None:
        frames[at(kind, number)] |= fields

    return do


def change_final(place: int | None, **fields: Any) -> Callable[[Frames], None]:
    def do(frames: Frames) -> None:
        event = frames[-1]["event"]
        (event if place is None else event["segments"][place]).update(fields)

    return do


def drop(kind: str, number: int = 0) -> Callable[[Frames], object]:
    return lambda frames: frames.pop(at(kind, number))


def double(kind: str, number: int = 0) -> Callable[[Frames], None]:
    return lambda frames: frames.insert(at(kind, number), dict(frames[at(kind, number)]))


def move(kind: str, number: int, to: int) -> Callable[[Frames], None]:
    return lambda frames: frames.insert(to, frames.pop(at(kind, number)))


PART, DELTA, OVER = "reasoning_part_started", "reasoning_part_delta", "reasoning_part_completed"
META, UPDATE, RESULT = "reasoning_segment_meta", "web_search_call_update", "web_search_call_result"
ERROR = {"type": "message_error", "event_id": "evt_1", "message": "no"}
CANCELLED = {"type": "message_cancelled", "event_id": "evt_1"}

BROKEN: list[tuple[str, Callable[[Frames], object]]] = [
    ("fields", change("text_delta", text_delta=5)),
    ("fields", change("text_delta", extra=1)),
    ("fields", lambda frames: frames[1].pop("segment_id")),
    ("fields", change("message_started", view="all")),
    ("start", drop("message_started")),
    ("start", double("message_started")),
    ("same", change("text_delta", event_id="evt_2")),
    ("same", change_final(None, id="evt_2")),
    ("end", double("message_final")),
    ("end", drop("message_final")),
    ("end", lambda frames: frames.__setitem__(slice(-1, -1), [CANCELLED, dict(frames[-2])])),
    ("end", lambda frames: frames.__setitem__(slice(-1, None), [CANCELLED])),
    ("order", change(PART, 0, sequence_number=0)),
    ("order", change("web_search_call_started", sequence_number=1)),
    ("segment", drop(META)),
    ("segment", double(META)),
    ("segment", lambda frames: frames[at(META)].pop("created_at")),
    ("segment", change(PART, segment_id="rs_other")),
    ("segment", lambda frames: frames.insert(at("tool_call_started"), {**frames[at(PART, 1)], "summary_index": 2})),
    ("part", change(PART, 1, summary_index=2)),
    ("part", change(DELTA, 1, summary_index=0)),
    ("part", drop(OVER)),
    ("part", double(OVER)),
    ("part", move("text_delta", 0, at(OVER))),
    ("delta", change(DELTA, text_delta="")),
    ("delta", change("text_delta", text_delta="")),
    ("text", change("text_delta", 1, output_index=0)),
    ("text", move("text_delta", 1, at("tool_call_started"))),
    ("call", double("tool_call_started")),
    ("call", drop("tool_call_started")),
    ("call", double(RESULT)),
    ("call", change(RESULT, error="no")),
    ("call", lambda frames: frames.__setitem__(at(RESULT), {**frames[at(RESULT)], "type": "tool_result"})),
    ("call", move(UPDATE, 0, at("tool_call_started"))),
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


def test_what_is_broken_is_named() -> None:
    with Cases() as case:
        for place, (rule, breaks) in enumerate(BROKEN):
            with case(f"{rule}-{place}"):
                frames = legal()
                assert verify(written(frames)) == []
                breaks(frames)
                [found] = verify(written(frames))
                assert found.partition(":")[0] == rule, found


NO_FRAMES: list[Callable[[bytes], bytes]] = [
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


def test_so_is_what_is_no_frame() -> None:
    with Cases() as case:
        for place, change in enumerate(NO_FRAMES):
            with case(place):
                [found] = verify(change(written(legal())))
                assert found.startswith("frame: ")


def test_every_rule_can_be_broken_and_comments_break_none() -> None:
    assert {rule for rule, _ in BROKEN} | {"frame"} == set(RULES)
    assert verify(b": queued\n\n" + b": broken off\n\n".join(pieces(written(legal())))) == []
    assert verify(b"") == ["end: the stream ends without message_final (frame 0)"]
    assert verify(written([*legal()[:-1], ERROR])) == []


def test_the_frame_is_named_and_nothing_of_what_stands_in_it() -> None:
    frames = legal()
    frames[at(DELTA)]["text_delta"] = {"secret": "told"}
    [found] = verify(written(frames))
    assert f"(frame {at(DELTA)})" in found
    assert "told" not in found
    assert "secret" not in found


@given(runs, st.randoms(use_true_random=False))
def test_whatever_is_dropped_doubled_or_swapped_it_is_never_a_fault_of_the_verifier(
    events: Any, dice: random.Random
) -> None:
    frames = pieces(encoded(events))
    for _ in range(2):
        one, two = dice.randrange(len(frames)), dice.randrange(len(frames))
        match dice.randrange(3):
            case 0:
                frames[one], frames[two] = frames[two], frames[one]
            case 1:
                frames.insert(two, frames[one])
            case 2 if len(frames) > 1:
                del frames[one]
    renumbered = [b"id: %d" % at + frame[frame.index(b"\n") :] for at, frame in enumerate(frames)]
    assert len(verify(b"".join(renumbered))) <= 1
