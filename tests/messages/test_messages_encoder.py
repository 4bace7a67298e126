"""The encoder's stream is legal for any run, and the official client accumulates from it what a whole answer holds."""

from __future__ import annotations

from typing import Any

from anthropic.types import Message
from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.events import Cause, ItemEndEvent
from pellucid.parts import RefusalPart, SealedPart, TextPart, ThinkingPart, ToolCallPart
from pellucid.protocols.messages.verify import verify
from pellucid.run import Minter, Run
from pellucid.settings import ModelCall
from tests.batching import batch_sizes, in_batches
from tests.chat_completions.chat_completions_kit import (
    ORIGIN,
    SERVER_TOOLS,
    causes,
    emit_step,
    replace_lone_surrogates,
    run_of,
    step_lists,
    turns,
)
from tests.messages.messages_kit import (
    accumulate,
    encode,
    events_of,
    make_encoder,
    message_of,
    normalize,
    parts_of,
    parts_sent_back,
)

seals = st.integers(0, 2)


@given(turns, causes, seals, st.booleans())
def test_any_run_gives_a_legal_stream_with_all_its_content(
    script: list[Any], cause: Cause, sealed: int, omit: bool
) -> None:
    batches, run = run_of(script, cause, sealed)
    stream = encode(batches, omit_thinking=omit)
    assert verify(stream) == []
    message, parts = message_of(batches, omit_thinking=omit), parts_of(list(run.messages))
    texts = [part.content for part in parts if isinstance(part, TextPart | RefusalPart) and part.content]
    assert [block["text"] for block in message["content"] if block["type"] == "text"] == [
        replace_lone_surrogates(text) for text in texts
    ]
    thoughts = "".join(p.content for p in parts if isinstance(p, ThinkingPart) and p.form != "redacted")
    shown = "".join(block["thinking"] for block in message["content"] if block["type"] == "thinking")
    assert shown.replace("\n\n", "") == ("" if omit else replace_lone_surrogates(thoughts).replace("\n\n", ""))
    calls = [part for part in parts if isinstance(part, ToolCallPart) and part.tool_name not in SERVER_TOOLS]
    assert [block["name"] for block in message["content"] if block["type"] == "tool_use"] == [
        replace_lone_surrogates(call.tool_name) for call in calls
    ]
    # Every seal of what this reader may see, once and in order.
    wanted = [event.seal for [event] in batches if isinstance(event, ItemEndEvent) and event.seal]
    got = [block.get("signature") or block.get("data") for block in message["content"]]
    got = [seal for seal in got if seal]
    assert [seal for seal in wanted if seal in got] == got
    assert {s for s in wanted if s.startswith("seal.of.rs_")} <= set(got)


@given(turns, causes, seals)
def test_the_official_client_accumulates_the_whole_message(script: list[Any], cause: Cause, sealed: int) -> None:
    batches, run = run_of(script, cause, sealed)
    assert run.run_end is not None
    if run.run_end.status != "failed" and not any(
        "INVALID_JSON" in block.get("input", ()) for block in message_of(batches)["content"]
    ):
        message = accumulate(events_of(encode(batches)))
        assert message == normalize(message_of(batches))
        Message.model_validate(message)


@given(turns, causes, seals, batch_sizes)
def test_batch_boundaries_change_no_byte_and_no_event_is_cut(
    script: list[Any], cause: Cause, sealed: int, sizes: list[int]
) -> None:
    events = [event for batch in run_of(script, cause, sealed)[0] for event in batch]
    encoder = make_encoder()
    pieces = [encoder.start(), *(encoder.feed(batch, 1) for batch in in_batches(events, sizes))]
    assert b"".join(pieces) == encode([events])
    assert all(piece.endswith(b"\n\n") for piece in pieces if piece)


@given(step_lists, st.integers(0, 60), st.booleans())
def test_a_run_that_is_cut_anywhere_gives_a_closed_and_legal_stream(steps: Any, count: int, cancel: bool) -> None:
    emitter = Emitter(ORIGIN)
    for call in steps:
        emit_step(emitter, *call)
    run = Run(ModelCall("m", []), Minter(b"seed"))
    events, _ = run.feed(emitter.end()[:count])
    if cancel:
        run.cancel()
    assert verify(encode([events + run.end()])) == []


@given(turns, seals)
def test_a_returned_message_has_its_blocks_in_order(script: list[Any], sealed: int) -> None:
    batches, _run = run_of(script, "eof", sealed)
    message = message_of(batches)
    tokens = [
        seal.replace("seal.of.", "a.b.c.d.")
        for seal in (b.get("signature") or b.get("data") for b in message["content"])
        if seal
    ]
    for block in message["content"]:
        for name in ("signature", "data"):
            if block.get(name):
                block[name] = block[name].replace("seal.of.", "a.b.c.d.")
    parts = parts_sent_back(message)
    assert [part.token for part in parts if isinstance(part, SealedPart)] == tokens
    assert [type(part) for part in parts if not isinstance(part, SealedPart)] == [
        {"text": TextPart, "tool_use": ToolCallPart, "thinking": ThinkingPart}[block["type"]]
        for block in message["content"]
        if not (block.get("signature") or block.get("data") or block.get("thinking") == "")
    ]
