"""The stream of any run in any batches is legal, has the run's content, and is parsed back to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.events import Cause, Event, ItemEndEvent
from pellucid.parts import (
    BuiltinToolCallPart,
    BuiltinToolReturnPart,
    FilePart,
    ModelMessage,
    ModelRequest,
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
from pellucid.protocols.ai_sdk.verify import verify
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from pellucid.view import Redactor, Viewer
from tests.ai_sdk import ai_sdk_node
from tests.ai_sdk.ai_sdk_kit import (
    MODEL,
    an_encoder,
    causes,
    chunks_of,
    encoded,
    given_back,
    message_of,
    parts_of,
    requests_of,
    run_of,
    saying,
    says,
    shown,
    turns,
)
from tests.batching import batch_sizes, in_batches

ORIGIN = Origin("p", "w", "m")
seals = st.integers(0, 2)


def texts(messages: list[ModelMessage], *kinds: type[Any]) -> list[str]:
    return [shown(part.content) for part in parts_of(messages) if isinstance(part, kinds) and part.content]


def blocks(message: dict[str, Any], kind: str) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == kind and part["text"]]


@given(turns, causes, seals)
def test_every_run_is_a_legal_stream_with_all_its_content(script: list[Any], cause: Cause, sealed: int) -> None:
    batches, run = run_of(script, cause, sealed)
    stream = encoded(batches)
    assert verify(stream) == []
    message, messages = message_of(chunks_of(stream)), list(run.messages)
    assert blocks(message, "reasoning") == texts(messages, ThinkingPart)
    assert blocks(message, "text") == texts(messages, TextPart, RefusalPart)
    calls = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
    made = [part for part in parts_of(messages) if isinstance(part, ToolCallPart | BuiltinToolCallPart)]
    assert [part["toolName"] for part in calls] == [shown(part.tool_name) for part in made]
    assert not any(part.get("state") in ("streaming", "input-streaming") for part in message["parts"])
    answered = [part for part in calls if part["state"].startswith("output")]
    assert len(answered) >= len([part for part in requests_of(messages) if isinstance(part, ToolReturnPart)])
    assert len([part for part in message["parts"] if part["type"] == "file"]) == len(
        [part for part in parts_of(messages) if isinstance(part, FilePart)]
    )


@given(turns, causes, seals, batch_sizes)
def test_batch_boundaries_change_no_byte_and_split_no_chunk(
    script: list[Any], cause: Cause, sealed: int, sizes: list[int]
) -> None:
    events = [event for batch in run_of(script, cause, sealed)[0] for event in batch]
    encoder = an_encoder()
    pieces = [encoder.start(), *(encoder.feed(batch, 1) for batch in in_batches(events, sizes))]
    assert b"".join(pieces) == encoded([events])
    assert all(piece.endswith(b"\n\n") for piece in pieces if piece)


@given(says, st.integers(0, 60), st.booleans())
def test_a_run_interrupted_at_any_event_is_a_closed_and_legal_stream(calls: Any, count: int, cancel: bool) -> None:
    emitter = Emitter(ORIGIN)
    for call in calls:
        saying(emitter, *call)
    run = Run(ModelCall("m", []), Minter(b"seed"))
    events, _ = run.feed(emitter.end()[:count])
    if cancel:
        run.cancel()
    stream = encoded([events + run.end()])
    assert verify(stream) == []
    assert run.run_end is not None
    assert kinds(stream)[-1] == ("abort" if run.run_end.status == "cancelled" else "finish")


@given(turns, causes, st.sampled_from(["summary", "sealed", "hidden"]), st.booleans())
def test_every_lesser_view_is_legal_and_holds_no_thought(
    script: list[Any], cause: Cause, view: Any, counts: bool
) -> None:
    batches, run = run_of(script, cause, 2)
    redact = Redactor(Viewer(view, counts=counts)).feed
    stream = encoded([redact(batch) for batch in batches])
    assert verify(stream) == []
    message = message_of(chunks_of(stream))
    reasoning = [part for part in message["parts"] if part["type"] == "reasoning"]
    if view == "hidden":
        assert not reasoning
        assert b"sealed" not in stream
        assert not any(part["type"].startswith("data-") for part in message["parts"])
    if view == "sealed":
        assert not any(part["text"] for part in reasoning)
        assert len(reasoning) >= len({part.item_id for part in parts_of(list(run.messages)) if is_thought(part)})
    if not counts:
        assert "usage" not in message.get("metadata", {})


def is_thought(part: Any) -> bool:
    return isinstance(part, ThinkingPart) and part.item_id is not None


@given(says, seals)
def test_the_returned_message_is_parsed_to_the_original(calls: Any, sealed: int) -> None:
    batches, run = run_of([(calls, "stop", Usage())], "eof", sealed)
    assert run.run_end is not None
    if run.run_end.status == "failed":
        return
    message = message_of(chunks_of(encoded(batches)))
    back = given_back(message)
    was = list(run.messages)
    parts, made = parts_of(back), parts_of(was)
    assert texts(back, TextPart) == texts(was, TextPart)
    assert texts(back, RefusalPart) == texts(was, RefusalPart)
    # A call has its own id and its arguments, and its result if there is one.
    assert [(part.tool_call_id, part.tool_name) for part in parts if isinstance(part, ToolCallPart)] == [
        (shown(part.tool_call_id), shown(part.tool_name)) for part in made if isinstance(part, ToolCallPart)
    ]
    returned = [part for part in requests_of(was) if isinstance(part, ToolReturnPart | RetryPromptPart)]
    assert [part.tool_call_id for part in requests_of(back) if isinstance(part, ToolReturnPart)] == [
        shown(part.tool_call_id) for part in returned
    ] or any(is_wrong(part) for part in message["parts"])
    # Every seal occurs once, in order; only reasoning without a following answer or call may be missing.
    items = [event.seal for [event] in batches if isinstance(event, ItemEndEvent) and event.seal]
    tokens = [part.token for part in parts if isinstance(part, SealedPart) and part.token.startswith("seal.of.")]
    assert [token for token in items if token in tokens] == tokens
    assert all(".rs_" in token for token in items if token not in tokens)


def is_wrong(part: dict[str, Any]) -> bool:
    """Return whether the part is a call whose arguments are no valid JSON."""
    return part.get("state") == "output-error"


@given(st.text(), st.integers(1, 5))
def test_text_keeps_every_character(text: str, size: int) -> None:
    emitter = Emitter(ORIGIN)
    for kind in (emitter.thinking, emitter.text):
        for at in range(0, len(text), size):
            kind("k", text[at : at + size])
    message = message_of(chunks_of(encoded([events_of(emitter)])))
    for name in ("reasoning", "text"):
        is_nothing = name == "reasoning" and not text.strip()
        assert "".join(blocks(message, name)) == ("" if is_nothing else text)


@pytest.mark.needs("node")
def test_the_official_schema_and_reader_accept_every_stream() -> None:
    streams: list[bytes] = []

    @seed(1)
    @settings(database=None, phases=[Phase.generate])
    @given(turns, causes, seals, st.sampled_from(["raw", "summary", "sealed", "hidden"]))
    def collect(script: list[Any], cause: Cause, sealed: int, view: Any) -> None:
        redact = Redactor(Viewer(view)).feed
        streams.append(encoded([redact(batch) for batch in run_of(script, cause, sealed)[0]]))

    collect()
    assert len(streams) > settings().max_examples * 4 // 5
    for version, read in ai_sdk_node.reads(streams).items():
        for stream, seen in zip(streams, read, strict=True):
            chunks = chunks_of(stream)
            expected = message_of(chunks)
            assert seen["kinds"] == [chunk["type"] for chunk in chunks]
            assert seen["errors"] == [chunk["errorText"] for chunk in chunks if chunk["type"] == "error"]
            for kind in ("reasoning", "text"):
                assert blocks(seen["message"], kind) == blocks(expected, kind)
            assert version != "7" or settled(seen["message"]) == settled(expected)


def settled(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message without empty steps at its end: the package adds a step with its first part."""
    parts = list(message["parts"])
    while parts and parts[-1] == {"type": "step-start"}:
        parts.pop()
    return {**message, "parts": parts}


# --- special cases -------------------------------------------------------------------------------------------------


def events_of(emitter: Emitter, reason: Any = "stop", usage: Usage | None = None) -> list[Event]:
    run = Run(ModelCall("m", []), Minter(b"seed"))
    run.start()
    emitter.finish(reason)
    emitter.usage = usage or Usage()
    return run.feed(emitter.end())[0]


def kinds(stream: bytes) -> list[str]:
    assert verify(stream) == []
    return [chunk["type"] for chunk in chunks_of(stream)]


def test_the_bytes_of_a_stream() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "Let me ")
    emitter.thinking("k", "see.")
    emitter.text("t", "42")
    stream = encoded([events_of(emitter, usage=Usage(7, 9, 4))]).decode()
    thought, text = ids_of(stream)
    item = f'"providerMetadata":{{"pellucid":{{"item":"{thought}"}}}}'
    lines = [
        f'{{"type":"start","messageId":"msg_%s\\"1","messageMetadata":{{"model":"{MODEL}"}}}}',
        '{"type":"start-step"}',
        f'{{"type":"reasoning-start","id":"{thought}",{item}}}',
        f'{{"type":"reasoning-delta","id":"{thought}","delta":"Let me "}}',
        f'{{"type":"reasoning-delta","id":"{thought}","delta":"see."}}',
        f'{{"type":"reasoning-end","id":"{thought}",{item}}}',
        f'{{"type":"text-start","id":"{text}"}}',
        f'{{"type":"text-delta","id":"{text}","delta":"42"}}',
        f'{{"type":"text-end","id":"{text}"}}',
        '{"type":"finish-step"}',
        '{"type":"finish","finishReason":"stop","messageMetadata":{"usage":{"inputTokens":7,"outputTokens":9,'
        '"totalTokens":16,"reasoningTokens":4}}}',
        "[DONE]",
    ]
    assert stream == "".join(f"data: {line}\n\n" for line in lines)


def ids_of(stream: str) -> list[str]:
    """Return the ids of the stream's blocks."""
    chunks = chunks_of(stream.encode())
    return list(dict.fromkeys(chunk["id"] for chunk in chunks if "id" in chunk))


def test_a_comment_reports_the_queue() -> None:
    assert an_encoder().start(queued=True).endswith(b"\n\n: queued\n\n")


def test_summaries_are_blocks_of_one_item_and_its_seal_is_on_the_last() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("a", "First.", item="i", form="summary")
    emitter.thinking("b", "Second.", item="i", form="summary")
    events = events_of(emitter)
    batches = [[with_a_seal(event)] for event in events]
    message = message_of(chunks_of(encoded(batches)))
    first, second = [part for part in message["parts"] if part["type"] == "reasoning"]
    item = first["providerMetadata"]["pellucid"]["item"]
    assert (first["id"], second["id"]) == (item, f"{item}:2")
    assert first["providerMetadata"] == {"pellucid": {"item": item, "form": "summary"}}
    assert second["providerMetadata"] == {"pellucid": {"item": item, "form": "summary", "sealed": "seal"}}


def with_a_seal(event: Event) -> Event:
    return replace(event, seal="seal") if isinstance(event, ItemEndEvent) else event


def test_a_seal_without_a_block_is_a_data_part() -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "", signature="gemini's")
    emitter.whole_part(BuiltinToolCallPart("web_search", {"q": 1}, "b1"))
    emitter.whole_part(BuiltinToolReturnPart("web_search", {"found": []}, "b1"))
    emitter.whole_part(FilePart("aGk=", "image/png"))
    batches = [[with_a_seal(event)] for event in events_of(emitter)]
    message = message_of(chunks_of(encoded(batches)))
    _, text, search, *more = message["parts"]
    assert (text["text"], text["providerMetadata"]["pellucid"]["sealed"]) == ("", "seal")
    assert search["providerExecuted"]
    assert (search["state"], search["input"], search["output"]) == ("output-available", {"q": 1}, {"found": []})
    assert [part["type"] for part in more][-1] == "file"
    assert {part["type"] for part in more[:-1]} == {"data-pellucid"}
    assert more[-1]["url"] == "data:image/png;base64,aGk="
    back = parts_of(given_back(message))
    assert {type(part) for part in back} == {SealedPart}
    without = {**message, "parts": [part for part in message["parts"] if part["type"] != "data-pellucid"]}
    part_types = [type(part) for part in parts_of(given_back(without))]
    assert part_types == [SealedPart, BuiltinToolCallPart, BuiltinToolReturnPart, SealedPart]


@pytest.mark.parametrize(("args", "complete"), [("{", True), ('{"a"', False), ("", False), ('{"a":\n1}', True)])
def test_arguments_are_one_line_of_json_or_an_error(args: str, complete: bool) -> None:
    emitter = Emitter(ORIGIN)
    emitter.tool_call("c", args, name="f", call_id="c1")
    emitter.close("c")
    stream = encoded([events_of(emitter, "stop" if complete else "length")])
    inputs = [chunk for chunk in chunks_of(stream) if chunk["type"].startswith("tool-input")]
    assert verify(stream) == []
    if args.endswith("}"):
        assert b'"input":{"a":1}' in stream
        assert inputs[-1]["type"] == "tool-input-available"
    else:
        assert (inputs[-1]["type"], inputs[-1]["input"]) == ("tool-input-error", args)


@pytest.mark.parametrize(
    ("reason", "finish"), [(None, "stop"), ("stop", "stop"), ("length", "length"), ("content_filter", "content-filter")]
)
def test_finish_reasons(reason: Any, finish: str) -> None:
    emitter = Emitter(ORIGIN)
    emitter.text("t", "a")
    assert chunks_of(encoded([events_of(emitter, reason)]))[-1]["finishReason"] == finish


def test_a_failure_closes_every_block_and_ends_a_legal_stream() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "Hm")
    emitter.fail(ErrorInfo("model_error", "the model broke off", upstream_message="CUDA"))
    stream = encoded([events_of(emitter)])
    assert kinds(stream)[-5:] == ["reasoning-delta", "reasoning-end", "error", "finish-step", "finish"]
    end, error = chunks_of(stream)[-4], chunks_of(stream)[-3]
    assert end["providerMetadata"]["pellucid"]["complete"] is False
    assert error == {"type": "error", "errorText": "the model broke off: CUDA"}
    assert chunks_of(stream)[-1]["finishReason"] == "error"


def test_citations_are_sources_and_each_url_occurs_once() -> None:
    emitter = Emitter(ORIGIN)
    cited = [{"type": "url_citation", "url": url, "title": "T"} for url in ("https://a.b/", "https://c.d/")]
    emitter.text("t", "a", annotations=[*cited, *cited])
    stream = encoded([events_of(emitter)])
    sources = [chunk for chunk in chunks_of(stream) if chunk["type"] == "source-url"]
    assert [(chunk["url"], chunk["title"]) for chunk in sources] == [("https://a.b/", "T"), ("https://c.d/", "T")]
    assert len({chunk["sourceId"] for chunk in sources}) == 2
    assert kinds(stream).index("text-end") < kinds(stream).index("source-url")


def test_a_tool_loop_is_steps_of_one_message_and_is_parsed_to_turns() -> None:
    run = Run(ModelCall("m", []), Minter(b"seed"), server_tools=frozenset({"f0"}))
    run.start()
    first = Emitter(ORIGIN)
    first.thinking("k", "Look it up.")
    first.tool_call("c", '{"q":1}', name="f0", call_id="c1")
    first.finish("tool_call")
    second = Emitter(ORIGIN)
    second.thinking("k", "There it is.")
    second.text("t", "42")
    batches = [run.feed(first.end())[0], run.add_results([ToolReturnPart("f0", {"n": 1}, "c1")])[0]]
    batches.append(run.feed(second.end())[0])
    stream = encoded(batches)
    steps = [*("start-step", "reasoning-start", "reasoning-delta", "reasoning-end"), "tool-input-start"]
    steps += ["tool-input-delta", "tool-input-available", "tool-output-available", "finish-step", "start-step"]
    assert kinds(stream)[1:11] == steps
    back = given_back(message_of(chunks_of(stream)))
    assert [type(message) for message in back] == [type(message) for message in run.messages]
    assert isinstance(back[1], ModelRequest)
    assert back[1].parts == [ToolReturnPart("f0", {"n": 1}, "c1")]
