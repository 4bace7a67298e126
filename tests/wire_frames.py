"""Frames of every wire except event streams: regular deltas, and odd frames that are similar to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pellucid.providers.profiles import builtin_profiles

ROWS = dict(builtin_profiles())
ROWS["magistral"] = ROWS["mistral"].for_model("magistral-small-2506")


class Wire(NamedTuple):
    """The frames of a server on one wire."""

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
    google_chunk([{"functionCall": {"name": "f", "willContinue": True}}], {"totalTokenCount": 9}),
    google_chunk(
        [
            {"text": "x"},
            {"functionCall": {"partialArgs": [{"jsonPath": "$.a", "stringValue": "v"}], "willContinue": True}},
        ],
        {"totalTokenCount": 9},
    ),
    google_chunk([{"text": "x"}], {"totalTokenCount": 9}, groundingMetadata={"webSearchQueries": ["q"]}),
    google_chunk([{"text": "x"}], {"totalTokenCount": 9}, avgLogprobs=-1.5),
    google_chunk([{"text": "x"}], {"totalTokenCount": 9}, groundingMetadata={"totalTokenCount": 3}),
    google_chunk([{"text": "x"}, {"text": ""}], {"totalTokenCount": 9}),
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
        event(chunk("x", tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), None),
        event(chunk(None, reasoning="x", tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), None),
        event(chunk("x", function_call={"arguments": "{"}), None),
        event(chunk([{"type": "text", "text": "x"}, {"type": "thinking", "thinking": ""}]), None),
        event(chunk([{"type": "text", "text": "x"}]), None),
        event(chunk("x", reasoning_details=[{"type": "reasoning.text", "text": ""}]), None),
        event(chunk([{"type": "text", "text": "<"}], reasoning="x"), None),
        event(json.dumps(chunk("x") | {"system_fingerprint": "a"}).replace('"x"', '"\\u0061"'), None),
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
        event(chunk([{"type": "text", "text": "x"}, {"type": "thinking", "thinking": [""]}]), None),
        event(chunk([{"type": "text", "text": "x"}, thought("")]), None),
        event(chunk([{"type": "text", "text": "y"}]), None),
        event(chunk([{"type": "reference", "reference_ids": [1]}]), None),
        event(chunk("x", role="tool", tool_call_id="1"), None),
        event(chunk("x", tool_calls=[{"id": "a", "function": {"name": "f", "arguments": "{}"}}]), None),
        event(chunk("x", tool_calls=[{"index": 0, "function": {"arguments": "{"}}]), None),
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
        line(message={"content": "x", "tool_calls": [{}]}),
        line(message={"content": "x", "thinking": "x", "tool_calls": [{}]}),
        line(message={"content": "x"}, created_at=7),
        line(message={"content": "x"}, done=True, done_reason="load"),
        line(message={"content": "x"}, error="e"),
        line(response="x"),
        line(message={"content": "<think>"}),
    ],
    [line(message={"content": ""}, done=True, done_reason="stop", eval_count=3)],
)

TAGGED = CHAT._replace(row="openai-compat", odd=[*CHAT.odd, event(chunk("<think>"), None)])
MAGISTRAL = MISTRAL._replace(row="magistral", odd=[*MISTRAL.odd, event(chunk("<think>"), None)])

EVERY = {
    "anthropic": ANTHROPIC,
    "openai_responses": RESPONSES,
    "google": GOOGLE,
    "google_array": GOOGLE_ARRAY,
    "openai_chat": CHAT,
    "openai_chat_tagged": TAGGED,
    "mistral": MISTRAL,
    "mistral_tagged": MAGISTRAL,
    "cohere": COHERE,
    "ollama": OLLAMA,
}


TEXTS = st.text(alphabet='ab "\\,:{}[]\né😀<>/', max_size=4) | st.sampled_from(
    [" tok", "the", "<think>", "</think>", "m", "text", "1", '","text":"x', "x}]}", '"sequence_number":7', "\r\n\r\n"]
)
PIECES = st.tuples(st.booleans(), TEXTS)
NEXT = st.lists(PIECES, min_size=1, max_size=6) | st.integers(0, 99)
"""Some pieces, or the number of an odd frame."""


def encoded_frames(wire: Wire, script: list[list[tuple[bool, str]] | int], *, ends: bool) -> list[bytes]:
    """Return the frames that a server sends for this script."""
    frames = list(wire.begin)
    for step in script:
        if isinstance(step, int):
            frames.append(wire.odd[step % len(wire.odd)])
        else:
            frames += [wire.frame(thought, text, len(frames)) for thought, text in step]
    return frames + (wire.end if ends else [])
