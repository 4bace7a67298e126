"""Shared by the tests of the chat protocol: strategies for runs, drivers of the encoder, and decoders of its frames."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from pellucid.events import Event
from pellucid.protocols.chat import Encoder, message_started
from pellucid.protocols.chat.frames import Frame
from pellucid.protocols.chat.verify import verify
from tests.agui.agui_kit import runs as odd_runs
from tests.view.view_kit import rich_runs

NOW = 1_700_000_000_000

runs: st.SearchStrategy[list[Event]] = st.one_of(
    rich_runs, odd_runs(sides=False).map(lambda batches: [event for batch in batches for event in batch])
)
"""Complete runs: every kind of part and ending, with seals, summaries, side events and lone surrogates."""


def make_encoder(*, after: int = -1, live: bool = False, **more: Any) -> Encoder:
    return Encoder(message_started("evt_1", "chat_1", "m", NOW - 5, **more), after=after, live=live)


def encode(events: Sequence[Event], cuts: Sequence[int] = (), **more: Any) -> bytes:
    """The complete stream of `events`, in batches that end at `cuts`; all batches have one time."""
    encoder = make_encoder(**more)
    edges = [0, *sorted({min(cut, len(events)) for cut in cuts}), len(events)]
    batches = [events[a:b] for a, b in pairwise(edges)]
    return encoder.start() + b"".join(encoder.feed(batch, NOW) for batch in batches)


def split_frames(stream: bytes) -> list[bytes]:
    """The frames of a stream, as bytes."""
    return [frame + b"\n\n" for frame in stream.split(b"\n\n")[:-1]]


def verified_frames(stream: bytes) -> list[dict[str, Any]]:
    """The decoded frames of a stream, after checking that the stream is legal."""
    assert verify(stream) == []
    return [msgspec.json.decode(frame.split(b"\ndata: ")[1]) for frame in split_frames(stream)]


def frame_types(frames: list[dict[str, Any]]) -> list[str]:
    """The types of the frames; consecutive deltas of one type count once."""
    types = [frame["type"] for frame in frames]
    return [one for at, one in enumerate(types) if not (one.endswith("_delta") and types[at - 1 : at] == [one])]


def select(frames: list[dict[str, Any]], *types: str) -> list[dict[str, Any]]:
    return [frame for frame in frames if frame["type"] in types]


def final_event(frames: list[dict[str, Any]]) -> dict[str, Any]:
    event: dict[str, Any] = frames[-1]["event"]
    return event


def decode_typed(stream: bytes) -> list[Frame]:
    return [msgspec.json.decode(frame.split(b"\ndata: ")[1], type=Frame) for frame in split_frames(stream)]


def joined_texts(frames: list[dict[str, Any]]) -> list[str]:
    """The joined deltas of each text segment and of each reasoning part, in stream order."""
    texts: dict[Any, str] = {}
    for frame in select(frames, "text_delta", "reasoning_part_delta"):
        key = frame.get("output_index", (frame.get("segment_id"), frame.get("summary_index")))
        texts[key] = texts.get(key, "") + frame["text_delta"]
    return list(texts.values())
