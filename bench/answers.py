"""Synthetic bytes of one long answer in the format of each wire, as a model server sends them.

Each answer reasons for `REASONING` deltas and speaks for `TEXT` deltas, with what real servers put around them: ids,
numbers, dates, running counts of tokens, padding. `frames` are its bytes, cut where the server ends a write.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

REASONING = TEXT = 400
DELTAS = REASONING + TEXT

Frames = list[bytes]
Delta = tuple[int, bool, str]
"""Its number, whether it is reasoning, and its text."""


class Answer(NamedTuple):
    """One answer. `profile` is the name of the profile that decodes it."""

    name: str
    profile: str
    content_type: str
    frames: Frames

    def reads(self, together: int) -> list[bytes]:
        """Return the bytes in reads that each contain `together` writes."""
        return [b"".join(self.frames[at : at + together]) for at in range(0, len(self.frames), together)]


_WORDS = (" the", " model", " thinks", " of", " sheep", ",", " and", ' "counts"', " them", ".\n\n", " naïve", " 17")


def deltas() -> Iterator[Delta]:
    for number in range(DELTAS):
        yield number, number < REASONING, _WORDS[number % len(_WORDS)]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _event(value: Any) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _named(value: dict[str, Any], padding: int = 0) -> bytes:
    data = _json(value)
    return b"event: %b\ndata: %b%b}\n\n" % (value["type"].encode(), data[:-1], b" " * padding)


# --- Chat Completions ---------------------------------------------------------------------------------------------


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-9f9d90210f194076abeee223863eaaf0",
        "object": "chat.completion.chunk",
        "created": 1790000000,
        "model": "some-model",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        **more,
    }


def openai_chat(field: str = "reasoning_content") -> Frames:
    usage = {"prompt_tokens": 17, "completion_tokens": DELTAS, "total_tokens": 17 + DELTAS}
    return [
        _event(_chunk({"role": "assistant", "content": ""})),
        *(_event(_chunk({field if thought else "content": text})) for _, thought, text in deltas()),
        _event(_chunk({}, "stop")),
        _event(_chunk({}) | {"choices": [], "usage": usage}),
        b"data: [DONE]\n\n",
    ]


def groq() -> Frames:
    return openai_chat("reasoning")


def mistral() -> Frames:
    def content(thought: bool, text: str) -> Any:
        return [{"type": "thinking", "thinking": [{"type": "text", "text": text}]}] if thought else text

    usage = {"prompt_tokens": 17, "completion_tokens": DELTAS, "total_tokens": 17 + DELTAS}
    return [
        _event(_chunk({"role": "assistant", "content": ""})),
        *(_event(_chunk({"content": content(thought, text)})) for _, thought, text in deltas()),
        _event(_chunk({"content": ""}, "stop", usage=usage)),
        b"data: [DONE]\n\n",
    ]


# --- Responses ----------------------------------------------------------------------------------------------------


def openai_responses() -> Frames:
    """Every event is numbered; deltas are padded, so that their size does not reveal their text."""
    words = [text for _, thought, text in deltas() if thought], [text for _, thought, text in deltas() if not thought]
    thought, answer = "".join(words[0]), "".join(words[1])
    summary, text = (
        {"type": "summary_text", "text": thought},
        {"type": "output_text", "text": answer, "annotations": []},
    )
    reasoning = {"id": "rs_68c42d1d0878819d8266007cd3d1402c", "type": "reasoning", "summary": [summary]}
    message: dict[str, Any] = {
        "id": "msg_68c42d26866c819da8d5c606621c9116", "type": "message", "role": "assistant", "status": "completed",
    }  # fmt: skip
    response: dict[str, Any] = {
        "id": "resp_68c42d1c0878819d8266007cd3d1402c", "object": "response", "created_at": 1790000000,
        "model": "some-model", "status": "in_progress", "output": [], "usage": None, "error": None,
        "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
        "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
    }  # fmt: skip
    usage = {
        "input_tokens": 17, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": DELTAS, "output_tokens_details": {"reasoning_tokens": REASONING},
        "total_tokens": 17 + DELTAS,
    }  # fmt: skip
    in_summary = {"item_id": reasoning["id"], "output_index": 0, "summary_index": 0}
    in_message = {"item_id": message["id"], "output_index": 1, "content_index": 0}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.in_progress", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning | {"summary": []}},
        {"type": "response.reasoning_summary_part.added", **in_summary, "part": summary | {"text": ""}},
        *(
            {
                "type": "response.reasoning_summary_text.delta", **in_summary, "delta": word,
                "obfuscation": _padding(word),
            }
            for word in words[0]
        ),
        {"type": "response.reasoning_summary_text.done", **in_summary, "text": thought},
        {"type": "response.reasoning_summary_part.done", **in_summary, "part": summary},
        {"type": "response.output_item.done", "output_index": 0, "item": reasoning},
        {
            "type": "response.output_item.added", "output_index": 1,
            "item": message | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **in_message, "part": text | {"text": ""}},
        *(
            {
                "type": "response.output_text.delta", **in_message, "delta": word, "logprobs": [],
                "obfuscation": _padding(word),
            }
            for word in words[1]
        ),
        {"type": "response.output_text.done", **in_message, "text": answer, "logprobs": []},
        {"type": "response.content_part.done", **in_message, "part": text},
        {"type": "response.output_item.done", "output_index": 1, "item": message | {"content": [text]}},
        {
            "type": "response.completed",
            "response": response
            | {"status": "completed", "usage": usage, "output": [reasoning, message | {"content": [text]}]},
        },
    ]  # fmt: skip
    return [_named({"type": event["type"], "sequence_number": number} | event) for number, event in enumerate(events)]


def _padding(word: str) -> str:
    return "aB3dE6gH9kLmN0pQ"[: 16 - len(word)]


# --- Anthropic ----------------------------------------------------------------------------------------------------


def anthropic() -> Frames:
    """The server pads its events with blanks."""
    message = {
        "id": "msg_011CdD8kd2BCHcbXAHcYxvaf", "type": "message", "role": "assistant", "model": "some-model",
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 17, "output_tokens": 2},
    }  # fmt: skip
    blocks = [{"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""}]
    grown: list[Frames] = [[], []]
    for number, thought, text in deltas():
        delta = {"type": "thinking_delta", "thinking": text} if thought else {"type": "text_delta", "text": text}
        event = {"type": "content_block_delta", "index": int(not thought), "delta": delta}
        grown[int(not thought)].append(_named(event, number * 7 % 16))
    signature = {"type": "signature_delta", "signature": "EpADCokBCA8YAipAsfSSBF77IhHThF" * 8}
    grown[0].append(_named({"type": "content_block_delta", "index": 0, "delta": signature}))
    frames = [_named({"type": "message_start", "message": message})]
    for index, block in enumerate(blocks):
        frames.append(_named({"type": "content_block_start", "index": index, "content_block": block}))
        frames += grown[index]
        frames.append(_named({"type": "content_block_stop", "index": index}))
    over = {"stop_reason": "end_turn", "stop_sequence": None}
    frames.append(_named({"type": "message_delta", "delta": over, "usage": {"output_tokens": DELTAS}}))
    return [*frames, _named({"type": "message_stop"})]


# --- Google -------------------------------------------------------------------------------------------------------


def _google() -> Iterator[bytes]:
    """Each chunk counts the tokens so far."""
    for number, thought, text in deltas():
        part = {"text": text, "thought": True} if thought else {"text": text}
        candidate: dict[str, Any] = {"content": {"parts": [part], "role": "model"}, "index": 0}
        if number == DELTAS - 1:
            candidate["finishReason"] = "STOP"
        usage: dict[str, Any] = {
            "promptTokenCount": 17,
            "totalTokenCount": 18 + number,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 17}],
            "thoughtsTokenCount": min(number + 1, REASONING),
        }
        if not thought:
            usage["candidatesTokenCount"] = number + 1 - REASONING
        about = {"modelVersion": "some-model", "responseId": "beHBaJfEMIi-qtsP3769-Q8"}
        yield json.dumps({"candidates": [candidate], "usageMetadata": usage, **about}, ensure_ascii=False).encode()


def google() -> Frames:
    """As events, whose lines end with CRLF."""
    return [b"data: " + chunk + b"\r\n\r\n" for chunk in _google()]


def google_array() -> Frames:
    """One JSON array: the response without `alt=sse`."""
    chunks = list(_google())
    return [b"[" + chunks[0], *(b"\n,\r\n" + chunk for chunk in chunks[1:]), b"\n]\n"]


# --- the others ---------------------------------------------------------------------------------------------------


def cohere() -> Frames:
    def event(kind: str, index: int, content: Any = None) -> bytes:
        more = {} if content is None else {"delta": {"message": {"content": content}}}
        return _named({"type": kind, "index": index, **more})

    started = {"id": "a7a1995c-1980-4683-8382-e8dda3598388", "type": "message-start"}
    frames = [_named(started | {"delta": {"message": {"role": "assistant", "content": []}}})]
    for index, kind in enumerate(("thinking", "text")):
        frames.append(event("content-start", index, {"type": kind, kind: ""}))
        texts = [text for _, thought, text in deltas() if thought == (kind == "thinking")]
        frames += [event("content-delta", index, {kind: text}) for text in texts]
        frames.append(event("content-end", index))
    tokens = {"input_tokens": 17, "output_tokens": DELTAS}
    over = {"finish_reason": "COMPLETE", "usage": {"billed_units": tokens, "tokens": tokens}}
    return [*frames, _named({"id": started["id"], "type": "message-end", "delta": over})]


def ollama() -> Frames:
    """Each line is dated."""

    def line(number: int, message: dict[str, Any], **more: Any) -> bytes:
        date = f"2026-11-21T09:{number // 60 % 60:02}:{number % 60:02}.{number * 7919 % 10**9:09}Z"
        whole = {"role": "assistant", "content": "", **message}
        return _json({"model": "some-model", "created_at": date, "message": whole, "done": False} | more) + b"\n"

    over = {
        "done": True, "done_reason": "stop", "total_duration": 5, "load_duration": 1, "prompt_eval_count": 17,
        "prompt_eval_duration": 1, "eval_count": DELTAS, "eval_duration": 3,
    }  # fmt: skip
    lines = [line(number, {"thinking" if thought else "content": text}) for number, thought, text in deltas()]
    return [*lines, line(DELTAS, {}, **over)]


def bedrock() -> Frames:
    """Binary messages around JSON, which is padded."""
    from tests.event_stream_messages import eventstream_message

    def message(event: str, value: dict[str, Any]) -> bytes:
        about = {":event-type": event, ":content-type": "application/json", ":message-type": "event"}
        return eventstream_message(_json(value), about)

    def stop(index: int) -> bytes:
        return message("contentBlockStop", {"contentBlockIndex": index, "p": "abcdefgh"})

    frames = [message("messageStart", {"p": "abcdefghijk", "role": "assistant"})]
    for number, thought, text in deltas():
        if number == REASONING:
            frames.append(stop(0))
        delta = {"reasoningContent": {"text": text}} if thought else {"text": text}
        padding = "abcdefghijklmnopqrstuvwxyz"[: 1 + number * 7 % 26]
        frames.append(
            message("contentBlockDelta", {"contentBlockIndex": int(not thought), "delta": delta, "p": padding})
        )
    usage = {"inputTokens": 17, "outputTokens": DELTAS, "totalTokens": 17 + DELTAS}
    return [
        *frames,
        stop(1),
        message("messageStop", {"p": "abc", "stopReason": "end_turn"}),
        message("metadata", {"metrics": {"latencyMs": 9}, "p": "ab", "usage": usage}),
    ]


_EVENTS, _JSON, _LINES = "text/event-stream", "application/json", "application/x-ndjson"

_ALL: list[tuple[str, str, str, Callable[[], Frames]]] = [
    ("openai_chat", "deepseek", _EVENTS, openai_chat),
    ("groq", "groq", _EVENTS, groq),
    ("openai_responses", "openai-responses", _EVENTS, openai_responses),
    ("anthropic", "anthropic", _EVENTS, anthropic),
    ("google", "google", _EVENTS, google),
    ("google_array", "google", _JSON, google_array),
    ("mistral", "mistral", _EVENTS, mistral),
    ("cohere", "cohere", _EVENTS, cohere),
    ("ollama", "ollama-native", _LINES, ollama),
    ("bedrock", "bedrock", "application/vnd.amazon.eventstream", bedrock),
]


def answers() -> list[Answer]:
    return [Answer(name, profile, content_type, make()) for name, profile, content_type, make in _ALL]
