"""The recordings of this repository decode to what their files say, and every wire has one of each case.

Rules that hold for every response, however its bytes are split, are checked with the larger set, too.
"""

from __future__ import annotations

import random
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from pellucid.events import ModelEvent
from pellucid.fold import Fold, fold
from pellucid.parts import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    Origin,
    ThinkingPart,
    ToolReturnPart,
    UserPromptPart,
)
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES, decode
from pellucid.settings import ModelCall
from tests.cases import Cases
from tests.cutting import cut, cuts_to_try, merged
from tests.examples import by_circle
from tests.recordings import EVENT_STREAM, Recording, larger_set, own_recordings

ROWS = builtin_profiles()

CASES = {
    "thinking": "readable reasoning, then an answer",
    "signed": "a signature or encrypted reasoning, with text or without",
    "redacted": "opaque data in the place of reasoning",
    "summaries": "readable reasoning that is a summary",
    "interleaved": "reasoning again, after text or a call",
    "parallel_calls": "several calls in one turn",
    "server_tools": "tools that the provider ran itself, or sources of the text",
    "files": "images that the model made",
    "tags": "reasoning between tags in the text",
    "unknown": "content of an unknown type",
    "whole": "a response in one piece",
    "keep_alive": "comments, pings",
    "refusal": "a refusal, or an end by a filter",
    "limit": "the token limit within the reasoning",
    "error": "an error in the stream",
    "cut": "the connection ends early",
    "reasoning_tokens": "a count of reasoning tokens",
}

GAPS = {
    "openai_chat": {},
    "openai_responses": {"tags": "reasoning is an item"},
    "anthropic": {"tags": "reasoning is a block", "files": "files of its tools have an id in a result, and no data"},
    "google": {"tags": "reasoning is a part", "keep_alive": "none is documented"},
    "mistral": {
        "redacted": "a thinking chunk has text",
        "summaries": "thinking is the model's own",
        "files": "files of its tools have an id, and no data",
        "keep_alive": "none is documented",
        "refusal": "a refusal is text",
        "reasoning_tokens": "not reported",
    },
    "cohere": {
        "signed": "there are no signatures",
        "redacted": "thinking has text",
        "summaries": "thinking is the model's own",
        "files": "models write text only",
        "tags": "reasoning is a block",
        "keep_alive": "none is documented",
        "refusal": "a refusal is text",
        "reasoning_tokens": "not reported",
    },
    "ollama": {
        "signed": "there are no signatures",
        "redacted": "thinking has text",
        "summaries": "thinking is the model's own",
        "server_tools": "the server runs no tools",
        "files": "models write text only",
        "unknown": "a message has fields, not typed blocks",
        "keep_alive": "none is documented",
        "refusal": "a refusal is text",
        "reasoning_tokens": "not reported",
    },
    "bedrock": {"keep_alive": "none is documented", "reasoning_tokens": "not reported"},
}
"""The cases that a wire does not have, with the reason."""

SAME_FORM = {
    "snowflake": "openrouter",
    "crusoe": "vllm",
    "bedrock-mantle-chat": "groq",
    "lmstudio": "sglang",
    "google-vertex": "google",
    "bedrock-mantle": "openai-responses",
    "openresponses": "vllm-responses",
    "deepseek-responses": "vllm-responses",
    "lmstudio-responses": "vllm-responses",
    "anthropic-vertex": "anthropic",
    "deepseek-anthropic": "anthropic-compat",
    "minimax-anthropic": "anthropic-compat",
    "kimi-anthropic": "anthropic-compat",
}
"""The rows whose responses have the form of another row's."""

_LARGEST = 6_000
"""A recording shows one thing; a reader has to see it."""


# --- the tables ----------------------------------------------------------------------------------------------------


def test_every_wire_has_every_case_or_a_reason() -> None:
    with Cases() as case:
        for wire in WIRES:
            shown = {name for one in own_recordings() if one.row.wire == wire for name in one.meta["cases"]}
            with case(wire):
                assert shown.isdisjoint(GAPS[wire])
                assert shown | GAPS[wire].keys() == CASES.keys()


def test_every_row_has_a_recording_or_the_form_of_one_that_has() -> None:
    recorded = {one.provider for one in own_recordings()}
    assert recorded.isdisjoint(SAME_FORM)
    assert recorded | SAME_FORM.keys() == ROWS.keys()
    for row, other in SAME_FORM.items():
        assert other in recorded
        assert ROWS[row].wire == ROWS[other].wire


def test_every_recording_is_small_and_names_what_it_follows() -> None:
    with Cases() as case:
        for one in own_recordings():
            with case(one.name):
                assert one.meta.keys() <= {"about", "docs", "cases", "model", "content_type"}
                assert one.meta["about"].endswith(".")
                assert one.meta["docs"].startswith("https://")
                assert one.meta["cases"]
                assert len(one.body) <= _LARGEST


# --- decoding ------------------------------------------------------------------------------------------------------


def origin_of(recording: Recording) -> Origin:
    return Origin(recording.provider, recording.row.wire, recording.model)


def events_of(recording: Recording, reads: Iterable[bytes]) -> list[ModelEvent]:
    row = recording.row
    decoder = WIRES[row.wire].decoder(row, origin_of(recording))
    events = [event for read in reads for event in decoder.feed(read)] + decoder.end()
    assert decoder.end() == [], "end is idempotent"
    return events


def folded(recording: Recording, reads: Iterable[bytes]) -> Fold:
    """Decode and fold. It fails if the events are not legal, or leave the turn open."""
    result = fold(events_of(recording, reads))
    assert result.response is not None
    assert result.snapshot() is None
    return result


def decoded(recording: Recording) -> dict[str, Any]:
    """Return the response in the form of a file's `expected`: without nulls, which TOML does not have."""
    result = folded(recording, [recording.body])
    response = msgspec.to_builtins(result.response)
    for name in ("kind", "origin"):
        del response[name]
    if (error := result.error) is not None:
        fields = ("kind", "code", "status", "upstream_message")
        response["error"] = {name: getattr(error, name) for name in fields}
    known: dict[str, Any] = _without_nulls(response)
    return known


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def test_a_recording_decodes_to_what_its_file_says() -> None:
    with Cases() as case:
        for one in own_recordings():
            with case(one.name):
                assert decoded(one) == one.expected


_VALUE = re.compile(rb'(?<=":)\s?("(?:[^"\\]|\\.)*"|-?\d[\d.]*|true|false|null)')
"""A value in JSON text that is no object and no list."""


def test_json_of_any_depth_in_the_place_of_any_value_is_decoded_or_refused() -> None:
    """The depth that Python's stack allows depends on its version, and a provider chooses the depth of its JSON."""
    dice = random.Random(7)
    with Cases() as case:
        for one in own_recordings():
            values = list(_VALUE.finditer(one.body))
            for value in dice.sample(values, k=min(len(values), by_circle(3, 10))):
                for depth in (330, 700, 960, 4_000):
                    opening, closing = dice.choice(((b'{"a":', b"}"), (b"[", b"]")))
                    nested = opening * depth + b"1" + closing * depth
                    with case(f"{one.name}, {value[0]!r}, {depth}"):
                        fold(decode(one.row, one.body[: value.start()] + nested + one.body[value.end() :]))


# --- both sets -----------------------------------------------------------------------------------------------------

OWN = pytest.param(False, id="own")
LARGER = pytest.param(True, id="larger", marks=pytest.mark.needs("recordings"))
each_set = pytest.mark.parametrize("larger", [OWN, LARGER])


def recorded(larger: bool) -> list[Recording]:
    return larger_set() if larger else own_recordings()


@each_set
def test_reasoning_is_sent_back_to_the_model_that_made_it(larger: bool) -> None:
    """Every character of complete reasoning, and every signature; Bedrock's encrypted reasoning as base64."""
    with Cases() as case:
        for one in recorded(larger):
            result, row = folded(one, [one.body]), one.row
            if result.error is not None or row.replay == "none":
                continue
            with case(one.name):
                response = result.response
                assert response is not None
                answers: list[ModelRequestPart] = [
                    ToolReturnPart(call.tool_name, "ok", call.tool_call_id) for call in response.tool_calls
                ]
                history: list[ModelMessage] = [
                    ModelRequest([UserPromptPart("hi")]),
                    response,
                    ModelRequest(answers or [UserPromptPart("so")]),
                ]
                body = WIRES[row.wire].encode(ModelCall(one.model, history), row, origin_of(one))
                sent = msgspec.json.encode(body)
                for part in response.parts:
                    signature = (getattr(part, "signature", None) or "").encode()
                    if getattr(part, "complete", True):
                        assert signature in sent or b64encode(signature) in sent
                        assert not isinstance(part, ThinkingPart) or msgspec.json.encode(part.content)[1:-1] in sent


# --- splitting -----------------------------------------------------------------------------------------------------


def bodies_of(recording: Recording) -> list[bytes]:
    """Return the body, of Google's streams with both ends of lines that it uses."""
    body = recording.body
    if recording.row.wire != "google" or not body.startswith(b"data:"):
        return [body]
    body = body.replace(b"\r\n", b"\n")
    return [body, body.replace(b"\n", b"\r\n")]


def splits_of(recording: Recording, body: bytes) -> Iterator[Iterable[int]]:
    """Yield positions at which to split a body: every position at once; every one, some distance apart; some.

    Of the larger set: some positions, around the ends of frames and elsewhere.
    """
    if recording.own:
        apart = by_circle(16, 128)
        yield from (range(first, len(body), apart) for first in range(apart))
    else:
        frame_ends = () if recording.content_type == EVENT_STREAM else (b"\n\n", b"\r\n\r\n", b'"}', b"think>", b"\\")
        yield from cuts_to_try(body, *frame_ends, seed=recording.name)
        dice = random.Random(recording.name)
        yield from (dice.choices(range(len(body)), k=count) for count in (3, 30, 300))
    if len(body) <= 100_000:
        yield range(len(body))


@each_set
def test_a_body_split_anywhere_gives_the_same_events(larger: bool) -> None:
    with Cases() as case:
        for one in recorded(larger):
            with case(one.name):
                # A frame of Responses is one delta; on other wires, text may be held back because of a marker.
                comparable = list if one.row.wire == "openai_responses" else merged
                for body in bodies_of(one):
                    whole = comparable(events_of(one, [body]))
                    for places in splits_of(one, body):
                        assert comparable(events_of(one, cut(body, places))) == whole, f"cut at {[*places][:5]}…"


@each_set
def test_a_body_that_ends_anywhere_is_a_closed_turn_with_a_part_of_the_content(larger: bool) -> None:
    with Cases() as case:
        for one in recorded(larger):
            with case(one.name):
                whole = _content(folded(one, [one.body]))
                dice = random.Random(one.name)
                for place in dice.choices(range(len(one.body)), k=by_circle(12, 100)):
                    content = _content(folded(one, [one.body[:place]]))
                    # White space before a tag, and the beginning of one, are text until more is known.
                    assert whole.startswith(_partial_tag.sub("", content)), place


_partial_tag = re.compile(r"\s*(<[^>]*)?$")


def _content(result: Fold) -> str:
    """Return what was thought and written, and the arguments of calls."""
    assert result.response is not None
    values = (getattr(part, name, None) for part in result.response.parts for name in ("content", "args"))
    return "".join(value for value in values if isinstance(value, str))
