"""On every wire of text, what is recognised by its likeness means exactly what it would mean if read in full."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import ModelEvent, ResponseEndEvent
from pellucid.parts import Origin
from pellucid.providers.likeness import DATE, NUMBER, WORD, Likeness, unread
from pellucid.providers.profiles import builtin_profiles
from pellucid.providers.wires import WIRES
from tests.cases import Cases
from tests.cutting import content_deltas

ROWS = builtin_profiles()


class Wire(NamedTuple):
    """How a server writes on it."""

    row: str
    begin: list[bytes]
    frame: Callable[[bool, str, int], bytes]
    """One more piece of thought or text, the `number`th."""
    odd: list[bytes]
    """What is nearly like it, and what comes between."""
    end: list[bytes]
    thought_over: tuple[bytes, ...] = ()
    """What the server says before it goes on to the text, where text waits for it."""


def event(value: dict[str, Any] | str, name: str | None = "", more: str = "") -> bytes:
    data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    kind = value.get("type") if name == "" and isinstance(value, dict) else name
    return (f"event: {kind}\n" if kind else "").encode() + f"data: {data[:-1]}{more}{data[-1]}\n\n".encode()


# --- Anthropic ----------------------------------------------------------------------------------------------------


def block_delta(index: int, **delta: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": delta}


def anthropic_frame(thought: bool, text: str, number: int) -> bytes:
    delta = {"type": "thinking_delta", "thinking": text} if thought else {"type": "text_delta", "text": text}
    return event(block_delta(int(not thought), **delta), more=" " * (number % 3))


ANTHROPIC = Wire(
    "anthropic",
    [
        event({"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}),
        event({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
    ],
    anthropic_frame,
    [
        event({"type": "ping"}),
        event({"type": "content_block_stop", "index": 0}),
        event({"type": "content_block_stop", "index": 1}),
        event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "b"}}),
        event({"type": "content_block_start", "index": 1, "content_block": {"type": "thinking", "thinking": "b"}}),
        event({"type": "content_block_start", "index": 1, "content_block": {"type": "odd", "text": "b"}}),
        event(block_delta(0, type="signature_delta", signature="s")),
        event(block_delta(0, type="thinking_delta", thinking="t", signature="s")),
        event(block_delta(1, type="citations_delta", citation={"url": "https://x", "cited_text": "c"})),
        event(block_delta(1, type="text_delta", text="t", citation={"url": "https://x"})),
        event(block_delta(1, type="text_delta", text="", citation={"url": "https://x"})),
        event({"type": "error", "error": {"type": "overloaded_error", "message": "m"}}),
        event({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 2}}),
    ],
    [event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}), event({"type": "message_stop"})],
)


# --- Responses ----------------------------------------------------------------------------------------------------

IN_MESSAGE = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
IN_SUMMARY = {"item_id": "rs_1", "output_index": 0, "summary_index": 0}
REASONING, MESSAGE = {"id": "rs_1", "type": "reasoning"}, {"id": "msg_1", "type": "message", "phase": "final_answer"}


def responses_frame(thought: bool, text: str, number: int) -> bytes:
    kind = "response.reasoning_summary_text.delta" if thought else "response.output_text.delta"
    more = {**IN_SUMMARY, "delta": text} if thought else {**IN_MESSAGE, "delta": text, "logprobs": []}
    return event({"type": kind, "sequence_number": number, **more, "obfuscation": "aB3"[: number % 4]})


RESPONSES = Wire(
    "openai-responses",
    [
        event({"type": "response.created", "response": {"id": "resp_1", "model": "m"}}),
        event({"type": "response.output_item.added", "output_index": 0, "item": REASONING}),
        event({"type": "response.output_item.added", "output_index": 1, "item": MESSAGE}),
    ],
    responses_frame,
    [
        event({"type": "response.output_text.delta", **IN_MESSAGE, "delta": "l", "logprobs": [{"token": "l"}]}),
        event({"type": "response.output_text.delta", **IN_MESSAGE, "delta": {"text": "x"}, "logprobs": []}),
        event({"type": "response.output_text.delta", **IN_MESSAGE, "content_index": 1, "delta": "x"}),
        event({"type": "response.output_text.done", **IN_MESSAGE, "text": "abcdefghijklmnopqrstuvwxyz"}),
        event({"type": "response.reasoning_summary_text.done", **IN_SUMMARY, "text": "abcdefghijklmnopqrstuvwxyz"}),
        event({"type": "response.reasoning_text.delta", "output_index": 0, "content_index": 0, "delta": "r"}),
        event({"type": "response.output_item.done", "output_index": 0, "item": REASONING | {"encrypted_content": "e"}}),
        event({"type": "response.output_item.done", "output_index": 1, "item": MESSAGE}),
        event({"type": "response.output_item.added", "output_index": 1, "item": MESSAGE | {"id": "msg_2"}}),
        event({"type": "response.web_search_call.searching", "output_index": 2}),
        event({"type": "error", "code": "c", "message": "m"}),
    ],
    [event({"type": "response.completed", "response": {"status": "completed", "usage": {"input_tokens": 1}}})],
    (event({"type": "response.output_item.done", "output_index": 0, "item": REASONING}),),
)


# --- Google -------------------------------------------------------------------------------------------------------


def google_chunk(parts: list[dict[str, Any]], usage: dict[str, Any] | None, **candidate: Any) -> dict[str, Any]:
    counted = {} if usage is None else {"usageMetadata": {"promptTokenCount": 3, **usage}}
    about = {"modelVersion": "m", "responseId": "r"}
    return {"candidates": [{"content": {"parts": parts, "role": "model"}, "index": 0, **candidate}], **counted, **about}


def google_json(thought: bool, text: str, number: int) -> dict[str, Any]:
    counts = {"totalTokenCount": 3 + number, "thoughtsTokenCount" if thought else "candidatesTokenCount": number}
    return google_chunk([{"text": text, "thought": True} if thought else {"text": text}], counts)


def google_frame(thought: bool, text: str, number: int) -> bytes:
    return event(google_json(thought, text, number)).replace(b"\n", b"\r\n")


GOOGLE_ODD = [
    google_chunk([{"text": "x", "thoughtSignature": "s"}], {"totalTokenCount": 9}),
    google_chunk([{"text": "", "thoughtSignature": "s"}], None),
    google_chunk([{"text": "x"}, {"text": "y", "thought": True}], {"totalTokenCount": 9}),
    google_chunk([{"text": "x"}], {"totalTokenCount": 7, "toolUsePromptTokenCount": 4}),
    google_chunk([{"text": "x"}], {"totalTokenCount": 7, "candidatesTokenCount": 2.5}),
    google_chunk([{"text": "x"}], None),
    google_chunk([{"functionCall": {"name": "f", "args": {"text": "x"}}}], {"totalTokenCount": 9}),
    google_chunk([{"text": "x"}], {"totalTokenCount": 9}, groundingMetadata={"webSearchQueries": ["q"]}),
    google_chunk([{"text": "x"}], {"totalTokenCount": 9}, avgLogprobs=-1.5),
    google_chunk([{"text": "x"}], {"totalTokenCount": 9}, index=1),
    {"error": {"code": 503, "message": "m", "status": "UNAVAILABLE"}},
]
GOOGLE_END = google_chunk([{"text": "."}], {"totalTokenCount": 99}, finishReason="STOP")

GOOGLE = Wire("google", [], google_frame, [event(odd) for odd in GOOGLE_ODD], [event(GOOGLE_END)])
GOOGLE_ARRAY = Wire(
    "google",
    [b"[" + json.dumps(google_json(True, "t", 0)).encode()],
    lambda thought, text, number: b"\n,\r\n" + json.dumps(google_json(thought, text, number)).encode(),
    [*(b"\n,\r\n" + json.dumps(odd, indent=1).encode() for odd in GOOGLE_ODD), b"\n,\r\n17", b',{"a":"b]"}'],
    [b"\n,\r\n" + json.dumps(GOOGLE_END).encode() + b"\n]"],
)


# --- Chat Completions and its relatives ---------------------------------------------------------------------------


def chunk(content: Any, choice: dict[str, Any] | None = None, number: int = 0, **delta: Any) -> dict[str, Any]:
    one = {"index": 0, "delta": {"content": content, **delta}, "finish_reason": None, **(choice or {})}
    return {"id": "1", "model": "m", "choices": [one], "obfuscation": "aB3"[: number % 4]}


def thought(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}], **more}


CHAT = Wire(
    "vllm",
    [],
    lambda thought, text, number: event(
        chunk(None, number=number, reasoning=text) if thought else chunk(text, number=number), None
    ),
    [
        event(chunk("x", {"index": 1}), None),
        event(chunk("x", {"logprobs": {"content": [{"token": "x"}]}}), None),
        event(chunk("x", refusal="no"), None),
        event(chunk("x", {"finish_reason": "length"}), None),
    ],
    [b"data: [DONE]\n\n"],
)
MISTRAL = Wire(
    "mistral",
    [],
    lambda thinks, text, number: event(chunk([thought(text)] if thinks else text), None),
    [
        event(chunk([thought("x", closed=True)]), None),
        event(chunk([thought("x", signature="s")]), None),
        event(chunk([{"type": "thinking", "thinking": [{"type": "text", "text": "x", "more": 1}]}]), None),
        event(chunk([{"type": "thinking", "thinking": [{"type": "tool_reference", "text": "x"}]}]), None),
        event(chunk([thought("x"), {"type": "text", "text": "y"}]), None),
        event(chunk([{"type": "text", "text": "y"}]), None),
        event(chunk([{"type": "reference", "reference_ids": [1]}]), None),
        event(chunk("x", role="tool", tool_call_id="1"), None),
        event(chunk("x", tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]), None),
        event(chunk("x", {"index": 1}), None),
        event(chunk("x", {"logprobs": {"content": [{"token": "x"}]}}), None),
        event(chunk("x", {"finish_reason": "length"}), None),
        event(chunk("x") | {"usage": {"prompt_tokens": 1}}, None),
    ],
    [event(chunk("", {"finish_reason": "stop"}), None), b"data: [DONE]\n\n"],
)


def cohere_event(index: int, kind: str = "content-delta", **content: Any) -> dict[str, Any]:
    return {"type": kind, "index": index, "delta": {"message": {"content": content}}}


COHERE = Wire(
    "cohere",
    [event({"type": "message-start", "id": "1"})],
    lambda thought, text, number: event(cohere_event(int(not thought), **{"thinking" if thought else "text": text})),
    [
        event({"type": "content-end", "index": 0}),
        event({"type": "content-end", "index": 1}),
        event(cohere_event(0, kind="content-start", type="text", text="")),
        event(cohere_event(1, kind="content-start", type="odd", text="x")),
        event(cohere_event(2, text="x")),
        event(cohere_event(1, text="x", thinking="y")),
        event(cohere_event(1, text=None)),
        event(cohere_event(1, text="x") | {"logprobs": {"text": "x", "logprobs": [-1.0]}}),
        event({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "p"}}}),
        event({"type": "citation-start", "delta": {"message": {"citations": {"text": "x", "sources": []}}}}),
    ],
    [event({"type": "message-end", "id": "1", "delta": {"finish_reason": "COMPLETE"}})],
)


def line(number: int = 0, **more: Any) -> bytes:
    created = f"2026-11-21T09:00:{number % 60:02}.{'123456789'[number % 8 :]}Z"
    return json.dumps({"model": "m", "created_at": created, "done": False} | more, ensure_ascii=False).encode() + b"\n"


OLLAMA = Wire(
    "ollama-native",
    [],
    lambda thought, text, number: line(
        number, message={"role": "assistant", "content": "", "thinking": text} if thought else {"content": text}
    ),
    [
        line(message={"content": "x", "thinking": "y"}),
        line(message={"content": "x", "images": ["iVBOR"]}),
        line(message={"content": "x", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}),
        line(message={"content": "x"}, logprobs=[{"token": "x"}]),
        line(message={"content": "x"}, created_at=7),
        line(message={"content": "x"}, done=True, done_reason="load"),
        line(message={"content": "x"}, error="e"),
        line(response="x"),
        line(message={"content": "<think>"}),
    ],
    [line(message={"content": ""}, done=True, done_reason="stop", eval_count=3)],
)

EVERY = {
    "anthropic": ANTHROPIC,
    "openai_responses": RESPONSES,
    "google": GOOGLE,
    "google_array": GOOGLE_ARRAY,
    "openai_chat": CHAT,
    "mistral": MISTRAL,
    "cohere": COHERE,
    "ollama": OLLAMA,
}


def decoder(wire: Wire) -> Any:
    row = ROWS[wire.row]
    return WIRES[row.wire].decoder(row, Origin(row.name, row.wire, "m"), "text/event-stream")


def played(wire: Wire, reads: list[bytes], *, tries: int = 8) -> list[ModelEvent]:
    reader = decoder(wire)
    reader._reader.like.tries = tries
    events: list[ModelEvent] = []
    for read in reads:
        events += reader.feed(read)
    return events + list(reader.end())


TEXTS = st.text(alphabet='ab "\\,:{}[]\né😀<>/', max_size=4) | st.sampled_from(
    [" tok", "the", "<think>", "</think>", "m", "text", "1", '","text":"x', "x}]}", '"sequence_number":7', "\r\n\r\n"]
)
SAID = st.tuples(st.booleans(), TEXTS)
NEXT = st.lists(SAID, min_size=1, max_size=6) | st.integers(0, 99)
"""Some pieces, or something odd."""


@pytest.mark.parametrize("name", EVERY)
@given(st.lists(NEXT, max_size=6), st.booleans(), st.integers(1, 4))
def test_the_short_way_tells_what_the_long_way_tells(
    name: str, script: list[list[tuple[bool, str]] | int], ends: bool, together: int
) -> None:
    wire = EVERY[name]
    written = list(wire.begin)
    for step in script:
        if isinstance(step, int):
            written.append(wire.odd[step % len(wire.odd)])
        else:
            written += [wire.frame(thought, text, len(written)) for thought, text in step]
    written += wire.end if ends else []
    reads = [b"".join(written[at : at + together]) for at in range(0, len(written), together)]
    assert played(wire, reads) == played(wire, reads, tries=0)


@pytest.mark.parametrize("name", EVERY)
def test_whatever_comes_between_means_what_it_would_mean(name: str) -> None:
    wire = EVERY[name]
    with Cases() as case:
        for odd, thought in product(wire.odd, (True, False)):
            alike = [wire.frame(thought, f" tok{number}", number) for number in range(4)]
            # The last after the odd one is like those before it, to the byte but for its text.
            reads = [*wire.begin, *alike, odd, alike[3].replace(b"tok3", b"again"), *alike]
            with case(f"{'thought' if thought else 'text'}, then {odd!r}"):
                assert played(wire, reads) == played(wire, reads, tries=0)
                assert played(wire, [b"".join(reads)]) == played(wire, [b"".join(reads)], tries=0)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("thought", [True, False])
@pytest.mark.parametrize("together", [1, 2])
def test_a_frame_is_not_read_in_full_when_only_its_text_is_new(
    name: str, thought: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = EVERY[name]
    reader = decoder(wire)
    begin = [*wire.begin, *(() if thought else wire.thought_over)]
    for read in [*begin, *(wire.frame(thought, f" tok{number}", number) for number in range(3))]:
        reader.feed(read)
    monkeypatch.setattr(reader._reader, "frame", None)
    events = reader.feed(b"".join(wire.frame(thought, ' "more"\n', number) for number in range(13, 13 + together)))
    assert content_deltas(events) == [' "more"\n'] * together


@pytest.mark.parametrize("wire", [GOOGLE, GOOGLE_ARRAY])
def test_what_was_counted_in_frames_that_were_passed_over_is_counted(wire: Wire) -> None:
    reads = [*wire.begin, *(wire.frame(False, f" tok{number}", number) for number in range(1, 30))]
    end = played(wire, reads)[-1]
    assert isinstance(end, ResponseEndEvent)
    assert end.usage.output_tokens == 29


VALUES = (unread(b"n", NUMBER), unread(b"d", DATE), unread(b"w", WORD))
LEARNED = b'{"n": 7, "w":"aB", "text":"learned", "d":"2026-11-21T09:00:00Z", "n":1}'


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (b'{"n": 8, "w":"", "text":"x\\n", "d":"2027-01-01T00:00:00.123456789+01:00", "n":0}', "x\n"),
        (b'{"n": 10, "w":"9", "text":"}", "d":"2026-11-21T09:00:00Z", "n":999999999999999999}', "}"),
        (b'{"n": 08, "w":"", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8.5, "w":"", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": "8", "w":"", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"\\n", "text":"x", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x", "d":"yesterday, at nine", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x", "d":"2026-11-21T09:00:00Z", "n":}', None),
        (b'{"n": 8, "w":"a", "text":"", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":null, "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x", "more":1, "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x\xff", "d":"2026-11-21T09:00:00Z", "n":1}', None),
        (b'{"n": 8, "w":"a", "text":"x', None),
    ],
)
def test_a_value_that_is_not_read_may_be_another_of_its_form(frame: bytes, text: str | None) -> None:
    like = Likeness(VALUES)
    like.learn("", LEARNED, "learned", print)
    assert like.text_of("", frame) == text


def test_a_read_that_holds_its_frame_twice_teaches_nothing() -> None:
    frame = b'{"text":"a"}'
    like = Likeness()
    like.learn("", frame, "a", print)
    like.learn_read(b": " + frame + b"\ndata: " + frame + b"\n\n", "", frame)
    assert like.read is None
