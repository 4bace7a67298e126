"""Shared by the Chat Completions tests: strategies for runs, drivers of the encoder, and two checks of its output (the
schemas made from our types, and the official client's types)."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import Cause, Event, ItemEndEvent, ItemStartEvent, ModelEvent, SummaryEvent
from pellucid.framing import SSEDecoder
from pellucid.parts import (
    BuiltinToolCallPart,
    CompactionPart,
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponsePart,
    OpaquePart,
    Origin,
    RefusalPart,
    RetryPromptPart,
    SealedPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    Usage,
)
from pellucid.protocols.chat_completions import Encoder, parse_request
from pellucid.run import CallTools, Minter, Run
from pellucid.server.openapi import build_components
from pellucid.server.stateless import TABLES
from pellucid.settings import ModelCall

NOW = 1_700_000_000
ORIGIN = Origin("p", "w", "m")
SERVER_TOOLS = frozenset({"f0"})
ID = 'chatcmpl_%s"1'
MODEL = "m%d"

# Text that looks like a template, a frame or the end of a stream; characters that JSON escapes; lone surrogates.
PIECES = ["", "a", "%s%d%", '"\\/', "\n\ndata: [DONE]\n\n", "\u2028\u2029\x85", "\x00\x1f\x7f", "😀é", "\ud83d", "{}"]
CITATION = {"type": "url_citation", "url": "https://e.org/\udc00", "title": 5, "start_index": True, "end_index": 7}
LOGPROBS: list[dict[str, Any]] = [
    {"token": "a\ud800", "logprob": float("-inf"), "bytes": None, "top_logprobs": 5},
    {"token": "b", "logprob": 10**400, "bytes": [98], "top_logprobs": [{"token": "c"}, {}]},
    {"no": "token"},
]
USAGES = [Usage(), Usage(7, 5), Usage(7, 5, 3, 2, 1, 4, 4), Usage(None, 2)]

step_lists = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *["thinking", "summary", "sealed", "seal", "item", "text", "cite", "refusal", "call", "args", "dict"],
                *["close", "builtin", "file", "opaque", "compaction", "fail"],
            ]
        ),
        st.integers(0, 2),
        st.sampled_from(PIECES),
    ),
    max_size=16,
)
turns = st.lists(
    st.tuples(
        step_lists,
        st.sampled_from([None, "stop", "tool_call", "length", "content_filter", "error"]),
        st.sampled_from(USAGES),
    ),
    min_size=1,
    max_size=3,
)
causes: st.SearchStrategy[Cause] = st.sampled_from(["eof", "error", "cancelled"])


def emit_step(emitter: Emitter, what: str, key: int, text: str) -> None:
    match what:
        case "thinking":
            emitter.thinking(("raw", key), text, item=("r", key // 2), form="redacted" if key == 2 else "raw")
        case "summary":
            emitter.thinking(("sum", key), text, item=("r", key // 2), form="summary")
        case "sealed":
            emitter.whole_part(SealedPart(text), item=("r", key))
        case "seal":
            emitter.thinking(("raw", key), signature=f"s{text}", details={"d": text})
        case "text":
            emitter.text(("t", key), text, logprobs=LOGPROBS if key == 1 else None)
        case "cite":
            nested = {"type": "url_citation", "url_citation": {"url": text}}
            emitter.text(("t", key), text, annotations=[CITATION, nested, {"type": "file_citation"}])
        case "refusal":
            emitter.refusal(("x", key), text)
        case "call":
            emitter.tool_call(("f", key), text, name=f"f{key}{text}", call_id=f"c{key % 2}" if key else None)
        case "args":
            emitter.tool_call(("f", key), text)
        case "dict":
            args = {text: text} if text.isprintable() and text else {}
            emitter.tool_call(("f", key), args, name=f"f{key}", signature=text)
        case "close":
            for kind in ("raw", "sum", "t", "f"):
                emitter.close((kind, key))
        case "item":
            emitter.item(("i", key), "reasoning", signature=text)
        case "builtin":
            emitter.whole_part(BuiltinToolCallPart("search", {"q": 1}, "b"))
        case "file":
            emitter.whole_part(FilePart("aGk=", "image/png"))
        case "opaque":
            emitter.whole_part(OpaquePart("x", {"secret": text}))
        case "compaction":
            emitter.whole_part(CompactionPart(text, signature="sig"))
        case "fail" if key == 2:
            emitter.fail(ErrorInfo("model_error", f"broke: {text}", code="c" if text else None, param=text))


def add_seals_and_summaries(events: list[Event], seals: int) -> list[Event]:
    """Add summaries and seals to a run. `seals`: 0 none, 1 on reasoning items, 2 on all items."""
    out: list[Event] = []
    kind, id = "", None
    for event in events:
        if isinstance(event, ItemStartEvent):
            kind, id = event.kind, event.id
        if isinstance(event, ItemEndEvent) and (seals == 2 or (seals == 1 and kind == "reasoning")):
            if kind == "reasoning":
                out.append(SummaryEvent(event.index, "in short"))
            event = replace(event, seal=f"seal.of.{id}")
        out.append(event)
    return out


def run_of(script: list[Any], cause: Cause, seals: int = 0) -> tuple[list[list[Event]], Run]:
    """The batches of a run with a server tool (`f0`), one for each event, and the run."""
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools=SERVER_TOOLS, max_tool_calls=5)
    run.start()
    events: list[Event] = []
    for turn_calls, reason, usage in script:
        emitter = Emitter(ORIGIN)
        for call in turn_calls:
            emit_step(emitter, *call)
        emitter.usage = usage
        emitter.finish(reason)
        turn_events, effects = run.feed(emitter.end(cause if turn_calls == script[-1][0] else "eof"))
        events += turn_events
        if run.run_end is not None:
            break
        [tools] = effects
        assert isinstance(tools, CallTools)
        results: list[ToolReturnPart | RetryPromptPart] = [
            ToolReturnPart(call.tool_name, "\udcff no", call.tool_call_id)
            if at % 2
            else RetryPromptPart("again", call.tool_name, call.tool_call_id)
            for at, call in enumerate(tools.calls)
        ]
        events += run.add_results(results)[0]
    events += run.end(ErrorInfo("timeout", "the model was not called again"))
    return [[event] for event in add_seals_and_summaries(events, seals)], run


def run_events(events: list[ModelEvent]) -> list[Event]:
    """The events of one turn, from a run."""
    run = Run(ModelCall("m", []), Minter(b"seed"))
    run.start()
    return run.feed(events)[0]


def make_encoder(**kwargs: Any) -> Encoder:
    return Encoder(ID, MODEL, NOW, server_tools=SERVER_TOOLS, **kwargs)


def encode(batches: list[list[Event]], **kwargs: Any) -> bytes:
    """The complete stream of these batches."""
    encoder = make_encoder(**kwargs)
    return encoder.start() + b"".join(encoder.feed(batch, NOW + 1) for batch in batches)


def completion_of(batches: list[list[Event]], **kwargs: Any) -> dict[str, Any]:
    """The completion, as a request without streaming receives it."""
    encoder = make_encoder(**kwargs)
    encoder.start()
    for batch in batches:
        encoder.feed(batch, NOW)
    completion: dict[str, Any] = json.loads(msgspec.json.encode(encoder.completion))
    return completion


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """The stream's chunks, without `[DONE]`, which is checked."""
    *frames, last = SSEDecoder(max_bytes=len(stream) + 1).feed(stream)
    assert last.data == b"[DONE]"
    assert stream.endswith(b"data: [DONE]\n\n")
    return [json.loads(frame.data) for frame in frames]


def join_deltas(chunks: list[dict[str, Any]], field: str) -> str | None:
    """The joined texts of the deltas of one field; None if there are none."""
    deltas = [choice["delta"].get(field) for chunk in chunks for choice in chunk.get("choices", [])]
    texts = [delta for delta in deltas if delta is not None]
    return "".join(texts) if texts else None


def replace_lone_surrogates(text: str) -> str:
    """`text` with lone surrogates replaced, as JSON cannot hold them."""
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


# --- expected content ----------------------------------------------------------------------------------------------


def parts_of(messages: list[ModelMessage]) -> list[ModelResponsePart]:
    return [part for message in messages if not isinstance(message, ModelRequest) for part in message.parts]


def reasoning_of(messages: list[ModelMessage]) -> str | None:
    texts = [
        replace_lone_surrogates(part.content)
        for part in parts_of(messages)
        if isinstance(part, ThinkingPart) and part.content
    ]
    return "\n\n".join(texts) or None


def content_of(messages: list[ModelMessage]) -> str | None:
    text, apart = "", False
    for message in messages:
        if isinstance(message, ModelRequest):
            apart = True
            continue
        for part in message.parts:
            if isinstance(part, TextPart) and part.content:
                text, apart = text + ("\n\n" if apart and text else "") + replace_lone_surrogates(part.content), False
    return text or None


def refusal_of(messages: list[ModelMessage]) -> str | None:
    return (
        "".join(replace_lone_surrogates(part.content) for part in parts_of(messages) if isinstance(part, RefusalPart))
        or None
    )


def calls_of(messages: list[ModelMessage]) -> list[tuple[str, str, str]]:
    """Id, name and arguments of the calls that the client executes."""
    return [
        (
            replace_lone_surrogates(part.tool_call_id),
            replace_lone_surrogates(part.tool_name),
            replace_lone_surrogates("" if not part.complete and not part.args else part.args_as_json()),
        )
        for part in parts_of(messages)
        if isinstance(part, ToolCallPart) and part.tool_name not in SERVER_TOOLS
    ]


# --- checks of the output ------------------------------------------------------------------------------------------


@cache
def validator(name: str) -> Any:
    schema = {
        "$ref": f"#/components/schemas/{name}",
        "components": {"schemas": build_components(TABLES["chat_completions"])},
    }
    return jsonschema.Draft202012Validator(schema)


def schema_errors(name: str, value: Any) -> list[str]:
    return [f"{name}{error.json_path[1:]}: {error.message}" for error in validator(name).iter_errors(value)]


def check_chunks(chunks: list[dict[str, Any]]) -> None:
    """Check every chunk against our schema and the official client's type."""
    for chunk in chunks:
        if "error" in chunk:
            assert schema_errors("ErrorBody", chunk) == []
        else:
            assert schema_errors("ChatCompletionChunk", chunk) == []
            ChatCompletionChunk.model_validate(chunk)


def check_completion(completion: dict[str, Any]) -> None:
    assert schema_errors("ChatCompletion", completion) == []
    ChatCompletion.model_validate(completion)


def accumulate(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The completion that the official client accumulates from the chunks, normalized."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks:
        for _ in state.handle_chunk(ChatCompletionChunk.model_validate(chunk)):
            pass
    return normalize(state.current_completion_snapshot.model_dump(mode="json", warnings=False))


def normalize(completion: dict[str, Any]) -> dict[str, Any]:
    """A completion without the differences between a streamed, a whole and a parsed one."""
    [choice] = completion["choices"]
    message = {name: value for name, value in choice["message"].items() if value is not None and name != "parsed"}
    for call in message.get("tool_calls", []):
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    details = [one for one in message.pop("reasoning_details", []) if one["type"] != "reasoning.text"]
    logprobs = (choice.get("logprobs") or {}).get("content")
    usage = {name: value for name, value in (completion.get("usage") or {}).items() if value is not None}
    for name in ("prompt_tokens_details", "completion_tokens_details"):
        usage[name] = {key: value for key, value in usage.get(name, {}).items() if value is not None}
    return {
        "id": completion["id"],
        "model": completion["model"],
        "created": completion["created"],
        "finish_reason": choice["finish_reason"],
        "message": message,
        "details": details,
        "logprobs": logprobs,
        "usage": usage,
    }


def parts_sent_back(message: dict[str, Any]) -> list[ModelResponsePart]:
    """The parts of the next request when the client sends the message back unchanged."""
    user = {"role": "user", "content": "Hi"}
    body = {"messages": [user, message, user]}
    messages = parse_request(json.dumps(body).encode()).messages
    return parts_of(messages)
