"""More of what the upstream can play: what a response may look like, in each wire that has it.

`SHAPES` are built from parts of a response (a thought, a text, a call) by a function for each wire; `SPECIAL` are what
a single wire has: interleaved blocks, errors, forms of an event stream, notes on a text. They are played in fewer
ways than `FIXTURES` (`runs.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from .fixtures import (
    END,
    USAGE,
    Script,
    as_json,
    bedrock_delta,
    blocks,
    chunk,
    cohere,
    event_stream,
    google,
    mistral,
    responses,
    sse,
)


class Thought(NamedTuple):
    pieces: tuple[str, ...]


class Text(NamedTuple):
    pieces: tuple[str, ...]


class Call(NamedTuple):
    pieces: tuple[str, ...]
    """Of its arguments."""


Part = Thought | Text | Call
_HEX = "0123456789abcdef"
_CITY = ('{"city":', '"Lyon"}')
_UNICODE = ("e\u0301 ", "\U0001f469", "\u200d\U0001f469 ", "a\u2028b\u2029c ", "\x00\x1b\x7f ", "\ufeff\u202e x\r\n\t")
_HALVES = ("one \ud83d", "\ude00 two ", "\udc00 three \ud800")
"""A pair in two pieces, and halves alone."""

SHAPES: dict[str, list[Part]] = {
    "texts-and-call": [Text(("First, ", "so.")), Call(_CITY), Text(("Then ", "so."))],
    "several-thoughts": [Thought(("one ", "two")), Thought(("three",)), Text(("so",))],
    "thought-after-text": [Text(("So: ",)), Thought(("or ", "not")), Text(("no.",)), Thought(("hm",))],
    "parallel-calls": [Thought(("both",)), Call(_CITY), Call(("{", "}")), Call(())],
    "empty-pieces": [Thought(("", "a", "")), Text(("", "b", "", "c", ""))],
    "nothing": [],
    "empty-text": [Text(("",))],
    "unicode": [Thought(_UNICODE), Text(_UNICODE), Call(('{"\u2028":', '"\\u0000\U0001f30a"}'))],
    "halves-of-pairs": [Thought(_HALVES), Text(_HALVES), Call(('{"a":"\\ud83d', '\\ude00 \\ud800"}'))],
    "bad-arguments": [Call(('{"city": ',)), Call(("[1, 2]",)), Call(('"x"',))],
}


# --- each wire ----------------------------------------------------------------------------------------------------


def _called(parts: list[Part]) -> bool:
    return any(isinstance(part, Call) for part in parts)


def _numbered(parts: list[Part]) -> list[tuple[int, Part]]:
    """Each part with its number among its kind."""
    counts: dict[type[Any], int] = {}
    out = []
    for part in parts:
        out.append((counts.get(type(part), 0), part))
        counts[type(part)] = counts.get(type(part), 0) + 1
    return out


def _tool_call(n: int, arguments: str, *, first: bool) -> dict[str, Any]:
    head = {"id": f"call_{n}", "type": "function"} if first else {}
    name = {"name": f"tool_{n}"} if first else {}
    return {"index": n, **head, "function": {**name, "arguments": arguments}}


def _in_chat(parts: list[Part]) -> bytes:
    frames: list[Any] = [chunk(role="assistant", content="")]
    for n, part in _numbered(parts):
        if isinstance(part, Call):
            frames.append(chunk(tool_calls=[_tool_call(n, "", first=True)]))
            frames += [chunk(tool_calls=[_tool_call(n, piece, first=False)]) for piece in part.pieces]
        else:
            name = "content" if isinstance(part, Text) else "reasoning_content"
            frames += [chunk(**{name: piece}) for piece in part.pieces]
    return sse(*frames, chunk("tool_calls" if _called(parts) else "stop"), *END)


def _in_anthropic(parts: list[Part]) -> bytes:
    inner: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    for n, part in _numbered(parts):
        if isinstance(part, Text):
            deltas = [{"type": "text_delta", "text": piece} for piece in part.pieces]
            inner.append(({"type": "text", "text": ""}, deltas))
        elif isinstance(part, Thought):
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in part.pieces]
            deltas.append({"type": "signature_delta", "signature": f"U0lH{n}"})
            inner.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        else:
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in part.pieces]
            inner.append(({"type": "tool_use", "id": f"toolu_{n}", "name": f"tool_{n}", "input": {}}, deltas))
    return blocks(*inner, stop="tool_use" if _called(parts) else "end_turn")


def _item(n: int, part: Part, id: str = "") -> dict[str, Any]:
    text = "".join(part.pieces)
    if isinstance(part, Text):
        content = [{"type": "output_text", "text": text, "annotations": []}]
        head = {"type": "message", "id": id or f"msg_{n}", "role": "assistant", "status": "completed"}
        return {**head, "content": content}
    if isinstance(part, Thought):
        summary = [{"type": "summary_text", "text": piece} for piece in part.pieces]
        sealed = {"encrypted_content": f"RU5DUllQVEVE{n}"}
        return {"type": "reasoning", "id": id or f"rs_{n}", "summary": summary, **sealed}
    named = {"type": "function_call", "id": id or f"fc_{n}", "call_id": f"call_{n}", "name": f"tool_{n}"}
    return {**named, "arguments": text, "status": "completed"}


def _in_responses(parts: list[Part]) -> bytes:
    return responses(*(_item(n, part) for n, part in _numbered(parts)))


def _in_google(parts: list[Part]) -> bytes:
    out: list[dict[str, Any]] = []
    for n, part in _numbered(parts):
        if isinstance(part, Text):
            out += [{"text": piece} for piece in part.pieces]
        elif isinstance(part, Thought):
            out += [{"text": piece, "thought": True} for piece in part.pieces]
        else:
            try:
                arguments = json.loads("".join(part.pieces) or "{}")
            except ValueError:
                arguments = None
            call = {"name": f"tool_{n}", "args": arguments, "id": f"call_{n}"}
            out.append({"functionCall": call, "thoughtSignature": f"Q0FMTA{n}="})
    return google(*out)


def _in_bedrock(parts: list[Part]) -> bytes:
    events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    for at, (n, part) in enumerate(_numbered(parts)):
        if isinstance(part, Text):
            events += [bedrock_delta(at, text=piece) for piece in part.pieces]
        elif isinstance(part, Thought):
            events += [bedrock_delta(at, reasoningContent={"text": piece}) for piece in part.pieces]
            events.append(bedrock_delta(at, reasoningContent={"signature": f"U0lH{n}"}))
        else:
            start = {"toolUse": {"toolUseId": f"t{n}", "name": f"tool_{n}"}}
            events.append(("contentBlockStart", {"contentBlockIndex": at, "start": start}))
            events += [bedrock_delta(at, toolUse={"input": piece}) for piece in part.pieces]
        events.append(("contentBlockStop", {"contentBlockIndex": at}))
    usage = {"inputTokens": 11, "outputTokens": 23, "totalTokens": 34}
    stop = "tool_use" if _called(parts) else "end_turn"
    return event_stream(*events, ("messageStop", {"stopReason": stop}), ("metadata", {"usage": usage}))


def _in_mistral(parts: list[Part]) -> bytes:
    frames: list[Any] = []
    for n, part in _numbered(parts):
        if isinstance(part, Text):
            frames += [mistral(piece) for piece in part.pieces]
        elif isinstance(part, Thought):
            for k, piece in enumerate(part.pieces, 1):
                thinking = {"type": "thinking", "thinking": [{"type": "text", "text": piece}]}
                frames.append(mistral([thinking | ({"closed": True} if k == len(part.pieces) else {})]))
        else:
            for k, piece in enumerate(part.pieces or ("",)):
                delta = {"content": "", "tool_calls": [_tool_call(n, piece, first=k == 0)]}
                frames.append({"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta}]})
    end = {**mistral("", "tool_calls" if _called(parts) else "stop"), "usage": USAGE}
    return sse(*frames, end, "data: [DONE]")


def _in_cohere(parts: list[Part]) -> bytes:
    frames: list[Any] = [{"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}}]
    for at, (n, part) in enumerate(_numbered(parts)):
        if isinstance(part, Call):
            head = {"id": f"call_{n}", "type": "function", "function": {"name": f"tool_{n}", "arguments": ""}}
            frames.append(cohere("tool-call-start", at, message={"tool_calls": head}))
            calls = ({"function": {"arguments": piece}} for piece in part.pieces)
            frames += [cohere("tool-call-delta", at, message={"tool_calls": call}) for call in calls]
            frames.append(cohere("tool-call-end", at))
        else:
            name = "text" if isinstance(part, Text) else "thinking"
            frames.append(cohere("content-start", at, message={"content": {"type": name, name: ""}}))
            frames += [cohere("content-delta", at, message={"content": {name: piece}}) for piece in part.pieces]
            frames.append(cohere("content-end", at))
    usage = {"tokens": {"input_tokens": 11, "output_tokens": 23}}
    finish = "TOOL_CALL" if _called(parts) else "COMPLETE"
    return sse(*frames, cohere("message-end", finish_reason=finish, usage=usage), names=True)


def _lines(*lines: dict[str, Any]) -> bytes:
    head = {"model": "qwen3", "created_at": "2024-01-01T00:00:00Z"}
    return "".join(f"{as_json({**head, **line})}\n" for line in lines).encode()


def _in_ollama(parts: list[Part]) -> bytes:
    messages: list[dict[str, Any]] = []
    for n, part in _numbered(parts):
        if isinstance(part, Text):
            messages += [{"content": piece} for piece in part.pieces]
        elif isinstance(part, Thought):
            messages += [{"content": "", "thinking": piece} for piece in part.pieces]
        else:
            try:
                arguments = json.loads("".join(part.pieces) or "{}")
            except ValueError:
                arguments = None
            call = {"function": {"name": f"tool_{n}", "arguments": arguments}}
            messages.append({"content": "", "tool_calls": [call]})
    lines = [{"message": {"role": "assistant", **message}, "done": False} for message in messages]
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 23}
    return _lines(*lines, {"message": {"role": "assistant", "content": ""}, **end})


class Wire(NamedTuple):
    provider: str
    model: str
    build: Callable[[list[Part]], bytes]
    content_type: str = "text/event-stream"

    def script(self, name: str, body: bytes) -> Script:
        return Script(f"shape:{self.provider}:{name}", self.provider, self.model, body, self.content_type)


CHAT = Wire("deepseek", "deepseek-reasoner", _in_chat)
ANTHROPIC = Wire("anthropic", "claude-sonnet-4-5", _in_anthropic)
RESPONSES = Wire("openai-responses", "gpt-5", _in_responses)
GOOGLE = Wire("google", "gemini-3-flash-preview", _in_google)
BEDROCK = Wire(
    "bedrock", "us.anthropic.claude-sonnet-4-20250514-v1:0", _in_bedrock, "application/vnd.amazon.eventstream"
)
MISTRAL = Wire("mistral", "magistral-medium-latest", _in_mistral)
COHERE = Wire("cohere", "command-a-reasoning-08-2025", _in_cohere)
OLLAMA = Wire("ollama-native", "qwen3", _in_ollama, "application/x-ndjson")
WIRES = (CHAT, ANTHROPIC, RESPONSES, GOOGLE, BEDROCK, MISTRAL, COHERE, OLLAMA)
_NAMED = (ANTHROPIC, RESPONSES, COHERE)
"""Wires with a line for each event's name."""
_TAGS = Wire("llama.cpp", "m", _in_chat)
_OPENAI = Wire("openai", "gpt-4o", _in_chat)

_PLAIN: list[Part] = [Thought(("hm ", "so")), Text(("It is ", "9.9"))]


# --- what ends in another way -------------------------------------------------------------------------------------


def _changed(body: bytes, before: bytes, after: bytes) -> bytes:
    assert before in body
    return body.replace(before, after)


def _frames(wire: Wire, parts: list[Part] | None = None) -> list[bytes]:
    """The frames of a text wire's response, with what separates them."""
    body = wire.build(_PLAIN if parts is None else parts)
    end = b"\n" if wire is OLLAMA else b"\r\n\r\n" if wire is GOOGLE else b"\n\n"
    return [frame + end for frame in body.split(end) if frame]


def _cut(wire: Wire) -> list[Script]:
    """Without its last frames, and in the middle of one."""
    body = wire.build(_PLAIN)
    scripts = [wire.script("cut-in-a-frame", body[: len(body) * 3 // 5])]
    if wire is not BEDROCK:
        frames = _frames(wire)
        scripts += [
            wire.script("without-its-last-frame", b"".join(frames[:-1])),
            wire.script("without-its-last-frames", b"".join(frames[:-3])),
        ]
    return scripts


_ERRORS: list[tuple[Wire, Any]] = [
    (CHAT, {"error": {"message": "too much", "type": "server_error", "code": "overloaded"}}),
    (ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error", "message": "too much"}}),
    (RESPONSES, {"type": "error", "code": "server_error", "message": "too much", "param": None, "sequence_number": 99}),
    (GOOGLE, {"error": {"code": 503, "message": "too much", "status": "UNAVAILABLE"}}),
    (MISTRAL, {"object": "error", "message": "too much", "type": "service_tier_capacity_exceeded", "code": "3505"}),
    (COHERE, {"type": "message-end", "delta": {"finish_reason": "ERROR", "error": "too much"}}),
]


def _failing() -> list[Script]:
    scripts = [
        wire.script("error-in-stream", b"".join(_frames(wire)[:-3]) + sse(error, names=wire in _NAMED))
        for wire, error in _ERRORS
    ]
    failed = {"id": "resp_1", "object": "response", "model": "gpt-5", "created_at": 1, "status": "failed", "output": []}
    fault = {"code": "rate_limit_exceeded", "message": "too much"}
    frame = {"type": "response.failed", "response": {**failed, "error": fault}, "sequence_number": 99}
    scripts.append(RESPONSES.script("failed", b"".join(_frames(RESPONSES)[:-3]) + sse(frame, names=True)))
    scripts.append(OLLAMA.script("error-in-stream", b"".join(_frames(OLLAMA)[:-2]) + b'{"error":"too much"}\n'))
    begun = ("messageStart", {"role": "assistant"}), bedrock_delta(0, text="so")
    throttled = ("throttlingException", {"message": "too much"})
    scripts.append(BEDROCK.script("exception-in-stream", event_stream(*begun, throttled)))
    return scripts


# --- forms of an event stream -------------------------------------------------------------------------------------


def _forms() -> list[Script]:
    scripts = []
    for wire in (CHAT, ANTHROPIC, RESPONSES, MISTRAL):
        body = wire.build(_PLAIN)
        scripts += [
            wire.script("crlf", body.replace(b"\n", b"\r\n")),
            wire.script("comments", b": hello\n\n" + body.replace(b"\n\n", b"\n\n: PROCESSING\n\n") + b": bye\n\n"),
        ]
    body = CHAT.build(_PLAIN)
    scripts += [
        CHAT.script("cr", body.replace(b"\n", b"\r")),
        CHAT.script("byte-order-mark", b"\xef\xbb\xbf" + body),
        CHAT.script("no-space", body.replace(b"data: ", b"data:")),
        CHAT.script("other-fields", body.replace(b"data: ", b"id: 7\nretry: 10\nevent: message\nnew: 1\ndata: ")),
        CHAT.script("data-on-two-lines", body.replace(b', "choices"', b',\ndata: "choices"')),
        CHAT.script("empty-events", body.replace(b"\n\n", b"\n\n\n\ndata:\n\ndata: \n\n")),
        CHAT.script("no-json", _changed(body, b"data: [DONE]", b"data: {not json\n\ndata: [1]\n\ndata: [DONE]")),
        CHAT.script("after-the-end", body + sse(chunk(content="too late"))),
        CHAT.script("not-utf-8", _changed(body, b"9.9", b"9.9 \xff\xfe\xc3")),
        OLLAMA.script("crlf-and-empty-lines", OLLAMA.build(_PLAIN).replace(b"\n", b"\r\n\r\n")),
        OLLAMA.script("no-last-line-end", OLLAMA.build(_PLAIN).rstrip()),
    ]
    return scripts


def _unknown() -> list[Script]:
    """An event and a field that no version knows, among those that are known."""
    event = {"type": "new_event", "new": {"a": [1]}, "index": 7}
    scripts = []
    for wire in (CHAT, ANTHROPIC, RESPONSES, GOOGLE, MISTRAL, COHERE):
        first, *rest = _frames(wire)
        body = b"".join([first, sse(event, names=wire in _NAMED), *rest])
        scripts.append(wire.script("unknown-event", body))
        new = b'{"new_field": {"deep": [null]}, "'
        changed = [frame.replace(b'{"', new, 1) if b"data: {" in frame else frame for frame in [first, *rest]]
        scripts.append(wire.script("unknown-field", b"".join(changed)))
    scripts.append(
        BEDROCK.script(
            "unknown-event",
            event_stream(
                ("messageStart", {"role": "assistant"}),
                ("newEvent", {"a": 1}),
                bedrock_delta(0, newContent={"a": 1}),
                bedrock_delta(1, text="so"),
                ("messageStop", {"stopReason": "new_reason"}),
            ),
        )
    )
    scripts.append(OLLAMA.script("unknown-field", OLLAMA.build(_PLAIN).replace(b'"role"', b'"new": {"a": 1}, "role"')))
    return scripts


# --- interleaved --------------------------------------------------------------------------------------------------


def _interleaved() -> list[Script]:
    calls = [chunk(tool_calls=[_tool_call(n, "", first=True)]) for n in (0, 1)]
    pieces = [chunk(tool_calls=[_tool_call(n, piece, first=False)]) for piece in ('{"a', '":1', "}") for n in (0, 1)]
    both = chunk(tool_calls=[_tool_call(n, "{}", first=True) for n in (0, 1)])
    mixed = [chunk(content="a "), chunk(reasoning_content="b "), chunk(content="c "), chunk(reasoning_content="d")]
    starts: list[Any] = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_start",
            "index": 1,
            "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
        },
    ]
    deltas: list[Any] = [
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "I look"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " up."}},
    ]
    stops = [{"type": "content_block_stop", "index": n} for n in (1, 0)]
    first, ping, *_, end, over = _frames(ANTHROPIC)
    start = ("contentBlockStart", {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t1", "name": "f"}}})
    return [
        CHAT.script("interleaved-calls", sse(*calls, *pieces, chunk("tool_calls"), *END)),
        CHAT.script("two-calls-in-a-chunk", sse(both, chunk("tool_calls"), *END)),
        CHAT.script("interleaved-thought-and-text", sse(*mixed, chunk("stop"), *END)),
        ANTHROPIC.script("interleaved-blocks", first + ping + sse(*starts, *deltas, *stops, names=True) + end + over),
        BEDROCK.script(
            "interleaved-blocks",
            event_stream(
                ("messageStart", {"role": "assistant"}),
                bedrock_delta(0, text="I "),
                start,
                bedrock_delta(1, toolUse={"input": '{"a":'}),
                bedrock_delta(0, text="look."),
                bedrock_delta(1, toolUse={"input": "1}"}),
                ("contentBlockStop", {"contentBlockIndex": 1}),
                ("contentBlockStop", {"contentBlockIndex": 0}),
                ("messageStop", {"stopReason": "tool_use"}),
            ),
        ),
        RESPONSES.script("interleaved-items", _two_items()),
    ]


def _two_items() -> bytes:
    """Two items that are open at once."""
    first, last = _frames(RESPONSES, [])
    message, call = _item(0, Text(("so",))), _item(0, Call(("{}",)))
    frames: list[Any] = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        {"type": "response.output_item.added", "output_index": 1, "item": {**call, "arguments": ""}},
    ]
    for item, at, kind, piece in (
        (call, 1, "function_call_arguments", "{"),
        (message, 0, "output_text", "s"),
        (call, 1, "function_call_arguments", "}"),
        (message, 0, "output_text", "o"),
    ):
        place = {"item_id": item["id"], "output_index": at, "content_index": 0}
        frames.append({"type": f"response.{kind}.delta", **place, "delta": piece})
    frames += [
        {"type": "response.output_item.done", "output_index": at, "item": item}
        for at, item in ((1, call), (0, message))
    ]
    return (
        first
        + sse(*frames, names=True)
        + _changed(last, b'"output": []', f'"output": {as_json([message, call])}'.encode())
    )


# --- notes on a text ----------------------------------------------------------------------------------------------


def _notes() -> list[Script]:
    """Refusals, annotations, log probabilities, and counts in other places."""
    url = {"type": "url_citation", "url": "https://x.example", "title": "X", "start_index": 0, "end_index": 2}
    probability = {"token": "so", "logprob": -0.5, "bytes": [115, 111], "top_logprobs": []}
    place = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
    noted: list[Any] = [
        {"type": "response.output_text.delta", **place, "delta": "so", "logprobs": [probability]},
        {"type": "response.output_text.annotation.added", **place, "annotation_index": 0, "annotation": url},
        {"type": "response.output_text.done", **place, "text": "so", "logprobs": [probability]},
    ]
    refused: list[Any] = [
        {"type": "response.refusal.delta", **place, "delta": "I can"},
        {"type": "response.refusal.delta", **place, "delta": "not."},
        {"type": "response.refusal.done", **place, "refusal": "I cannot."},
    ]
    cited = {
        "type": "char_location",
        "cited_text": "so",
        "document_index": 0,
        "start_char_index": 0,
        "end_char_index": 2,
    }
    deltas: list[dict[str, Any]] = [
        {"type": "text_delta", "text": "so"},
        {"type": "citations_delta", "citation": cited},
    ]
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://x.example", "title": "X"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 0, "endIndex": 2, "text": "so"}, "groundingChunkIndices": [0]}
        ],
        "webSearchQueries": ["x"],
    }
    chosen = {"chosenCandidates": [{"token": "so", "tokenId": 1, "logProbability": -0.5}], "topCandidates": []}
    candidate = {"content": {"parts": [{"text": "so"}], "role": "model"}, "index": 0}
    source = {"type": "document", "id": "d0", "document": {"id": "d0", "title": "X"}}
    citation = {"start": 0, "end": 2, "text": "so", "sources": [source]}
    usage_only = {"id": "chatcmpl-1", "choices": [], "usage": USAGE}
    place_cited = {"title": "X", "location": {"documentChar": {"documentIndex": 0, "start": 0, "end": 2}}}
    several: list[dict[str, Any]] = [
        {"type": "output_text", "text": text, "annotations": []} for text in ("One, ", "two, ", "", "three.")
    ]
    message = {**_item(0, Text(())), "content": several}
    thoughts = [{"type": "reasoning_text", "text": text} for text in ("one ", "two")]
    return [
        RESPONSES.script("texts-of-one-message", responses(message)),
        RESPONSES.script("texts-of-one-thought", responses({**_item(0, Thought(("in short",))), "content": thoughts})),
        RESPONSES.script("annotations-and-logprobs", _one_message("output_text", "text", noted, url)),
        RESPONSES.script("refusal", _one_message("refusal", "refusal", refused, None)),
        ANTHROPIC.script("citations", blocks(({"type": "text", "text": "", "citations": []}, deltas))),
        ANTHROPIC.script("refusal", blocks(({"type": "text", "text": ""}, deltas[:1]), stop="refusal")),
        GOOGLE.script(
            "grounding", sse({"candidates": [{**candidate, "groundingMetadata": grounding, "finishReason": "STOP"}]})
        ),
        GOOGLE.script(
            "logprobs", sse({"candidates": [{**candidate, "logprobsResult": chosen, "finishReason": "STOP"}]})
        ),
        GOOGLE.script("blocked", sse({"promptFeedback": {"blockReason": "SAFETY"}, "responseId": "r"})),
        GOOGLE.script("unsafe", sse({"candidates": [{**candidate, "finishReason": "SAFETY", "finishMessage": "no"}]})),
        GOOGLE.script(
            "usage-in-each-frame",
            sse(
                {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 11, "totalTokenCount": 11}},
                {
                    "candidates": [{**candidate, "finishReason": "STOP"}],
                    "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 2, "totalTokenCount": 13},
                },
            ),
        ),
        BEDROCK.script(
            "citations",
            event_stream(
                ("messageStart", {"role": "assistant"}),
                bedrock_delta(0, text="so"),
                bedrock_delta(0, citation=place_cited),
                ("contentBlockStop", {"contentBlockIndex": 0}),
                ("messageStop", {"stopReason": "end_turn"}),
            ),
        ),
        BEDROCK.script(
            "guardrail",
            event_stream(
                ("messageStart", {"role": "assistant"}),
                bedrock_delta(0, text="I cannot."),
                ("messageStop", {"stopReason": "guardrail_intervened"}),
            ),
        ),
        MISTRAL.script(
            "references",
            sse(
                mistral([{"type": "text", "text": "so"}, {"type": "reference", "reference_ids": [0]}]),
                mistral("", "stop"),
                "data: [DONE]",
            ),
        ),
        MISTRAL.script(
            "texts-in-a-chunk",
            sse(
                mistral([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]),
                mistral("", "length"),
                "data: [DONE]",
            ),
        ),
        COHERE.script(
            "citations",
            sse(
                cohere("content-start", 0, message={"content": {"type": "text", "text": ""}}),
                cohere("content-delta", 0, message={"content": {"text": "so"}}),
                cohere("citation-start", 0, message={"citations": citation}),
                cohere("citation-end", 0),
                cohere("content-end", 0),
                cohere("message-end", finish_reason="MAX_TOKENS"),
                names=True,
            ),
        ),
        COHERE.script(
            "tool-plan",
            sse(
                cohere("tool-plan-delta", message={"tool_plan": "I "}),
                cohere("tool-plan-delta", message={"tool_plan": "look."}),
                cohere("message-end", finish_reason="COMPLETE"),
                names=True,
            ),
        ),
        OLLAMA.script(
            "logprobs",
            _lines(
                {"message": {"role": "assistant", "content": "so"}, "logprobs": [probability], "done": False},
                {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "length"},
            ),
        ),
        _OPENAI.script("only-usage", sse(usage_only, "data: [DONE]")),
        _OPENAI.script(
            "usage-beside-the-end", sse(chunk(content="so"), {**chunk("stop"), "usage": USAGE}, "data: [DONE]")
        ),
        _OPENAI.script(
            "usage-in-each-chunk",
            sse(
                {**chunk(content="s"), "usage": {**USAGE, "completion_tokens": 1, "total_tokens": 12}},
                {**chunk(content="o"), "usage": {**USAGE, "completion_tokens": 2, "total_tokens": 13}},
                {**chunk("stop"), "usage": None},
                usage_only,
                "data: [DONE]",
            ),
        ),
        _OPENAI.script("refusal-after-text", sse(chunk(content="so "), chunk(refusal="no"), chunk("stop"), *END)),
        _OPENAI.script("second-choice", _second_choice()),
        _TAGS.script("tags-by-letters", _letters("<think>hm < so </thin </think>\n\nyes</think> <thin")),
        _TAGS.script("tags-never-closed", _letters("<think>hm, so")),
        _TAGS.script("tags-empty", sse(chunk(content="<think></think>"), chunk(content="yes"), chunk("stop"), *END)),
        CHAT.script("long-line", CHAT.build([Thought(("lång " * 3000,)), Text(("so " * 9000,))])),
        ANTHROPIC.script("long-line", ANTHROPIC.build([Thought(("lång " * 3000,)), Text(("so " * 9000,))])),
        CHAT.script(
            "ids-like-ours",
            CHAT.build([Call(_CITY)])
            .replace(b"call_0", b"call_" + 24 * b"a")
            .replace(b"chatcmpl-1", b"chatcmpl-" + 2 * _HEX.encode()),
        ),
        ANTHROPIC.script("ids-like-ours", ANTHROPIC.build([Call(_CITY)]).replace(b"toolu_0", b"toolu_" + 24 * b"b")),
        RESPONSES.script("ids-like-ours", _ids_like_ours()),
    ]


def _one_message(kind: str, field: str, events: list[Any], annotation: dict[str, Any] | None) -> bytes:
    """A response of one message of one part, with these events in it."""
    first, last = _frames(RESPONSES, [])
    text = "so" if kind == "output_text" else "I cannot."
    part = {"type": kind, field: text} | ({"annotations": [annotation]} if annotation else {})
    message = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed", "content": [part]}
    frames = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        *events,
        {"type": "response.output_item.done", "output_index": 0, "item": message},
    ]
    return (
        first + sse(*frames, names=True) + _changed(last, b'"output": []', f'"output": {as_json([message])}'.encode())
    )


def _second_choice() -> bytes:
    second = {"id": "chatcmpl-1", "choices": [{"index": 1, "delta": {"content": "or so"}, "finish_reason": "stop"}]}
    return sse(chunk(content="so"), second, chunk("stop"), *END)


def _letters(text: str) -> bytes:
    return sse(*(chunk(content=letter) for letter in text), chunk("stop"), *END)


def _ids_like_ours() -> bytes:
    ids = [f"{prefix}_{2 * _HEX}" for prefix in ("rs", "msg", "fc")]
    parts: list[Part] = [Thought(("hm",)), Text(("so",)), Call(("{}",))]
    body = responses(*(_item(0, part, id) for part, id in zip(parts, ids, strict=True)))
    return body.replace(b"resp_1", f"resp_{2 * _HEX}".encode()).replace(b"call_0", b"call_" + 24 * b"c")


SHAPED = [
    *(wire.script(name, wire.build(parts)) for name, parts in SHAPES.items() for wire in WIRES),
    *(script for wire in WIRES for script in _cut(wire)),
    *_failing(),
    *_forms(),
    *_unknown(),
    *_interleaved(),
    *_notes(),
]
