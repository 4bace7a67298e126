"""Any input: no exception, a valid and closed turn, and the same events however the bytes are split."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pellucid.events import Cause
from tests.examples import many
from tests.providers_openai_responses.responses_kit import (
    ROWS,
    added,
    answer,
    body,
    created,
    cut,
    done,
    events_of,
    folded,
    function_call,
    kinds_and_texts,
    message,
    output_text,
    raw,
    response_end,
    response_of,
    sse,
    summary,
    thought,
    wire_event,
)

SAMPLES = [
    sse(
        created(),
        thought(0, "one", "two", encrypted="E"),
        function_call(1, "f", '{"a": 1}'),
        answer(2, "text"),
        response_end(),
    ),
    sse(
        created(),
        added(0, "web_search_call", id="ws"),
        done(0, "web_search_call", id="ws", action={"type": "search"}),
        added(1, "reasoning", id="rs"),
        wire_event("reasoning_text.delta", 1, content_index=0, delta="hm"),
        answer(2, "text"),
        done(1, "reasoning", id="rs", content=raw("hm"), encrypted_content="E"),
        {"type": "error", "error": {"message": "m"}},
        response_end("failed"),
    ),
    body(
        {"type": "reasoning", "id": "rs", "summary": summary("s"), "encrypted_content": "E"},
        {"type": "code_interpreter_call", "id": "ci", "code": "1", "outputs": [{"type": "logs", "logs": "1"}]},
        message(output_text("a"), {"type": "refusal", "refusal": "no"}, id="m"),
        {"type": "acme:x", "id": "x"},
    ),
]

ROW = st.sampled_from(sorted(ROWS))
CAUSE: st.SearchStrategy[Cause] = st.sampled_from(["eof", "error", "cancelled"])


@given(st.sampled_from(SAMPLES), ROW, st.lists(st.integers(0, 4000), max_size=12))
def test_any_split_gives_the_same_events(data: bytes, row: str, places: list[int]) -> None:
    assert events_of(cut(data, places), row) == events_of(data, row)


@given(st.sampled_from(SAMPLES), ROW, st.integers(0, 2**32), CAUSE)
@many
def test_garbled_responses_give_a_valid_turn(data: bytes, row: str, seed: int, cause: Cause) -> None:
    dice = random.Random(seed)
    garbled = bytearray(data)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(garbled))
        match dice.randrange(4):
            case 0:
                garbled[at] = dice.randrange(256)
            case 1:
                del garbled[at : at + dice.randrange(1, 60)]
            case 2:
                garbled[at:at] = garbled[dice.randrange(len(garbled)) :][: dice.randrange(200)]
            case _:
                garbled[at:at] = dice.choice([b"\n\n", b"null", b'"', b"{", b"0", b"\xff", b"data: "])
    folded(bytes(garbled), row, cause=cause)


@given(st.binary(max_size=300), ROW, CAUSE)
def test_any_bytes_give_a_valid_turn(data: bytes, row: str, cause: Cause) -> None:
    folded(data, row, cause=cause)


EVENTS: list[dict[str, Any]] = [
    event
    for index in (0, 1)
    for events in (
        thought(index, "one", "two", encrypted="E"),
        function_call(index, "f", '{"a": 1}'),
        answer(index, "text"),
        [added(index, "web_search_call", id="ws"), done(index, "web_search_call", id="ws")],
        [added(index, "compaction", id="cm"), done(index, "compaction", id="cm", encrypted_content="E")],
        [wire_event("reasoning_text.delta", index, content_index=0, delta="raw"), done(index, "acme:x", id="x")],
        [wire_event("refusal.delta", index, content_index=1, delta="no")],
    )
    for event in events
] + [response_end(), response_end("incomplete"), response_end("failed"), {"type": "error", "message": "m"}]


@many
@given(st.lists(st.sampled_from(EVENTS), max_size=25), ROW, CAUSE)
def test_events_in_any_order_give_a_valid_turn(events: list[dict[str, Any]], row: str, cause: Cause) -> None:
    folded(sse(created(), *events), row, cause=cause)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats() | st.sampled_from(["", "text", "reasoning"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(
        st.sampled_from(["type", "text", "id", "content", "summary", "item", "part"]), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 9), VALUES), max_size=12), ROW)
def test_any_values_in_any_fields_give_a_valid_turn(changes: list[tuple[Any, int, Any]], row: str) -> None:
    events = []
    for event, place, value in changes:
        changed = json.loads(json.dumps(event))
        inner = changed.get("item") or changed.get("response") or changed
        where = inner if place % 2 else changed
        where[sorted(where)[place % len(where)]] = value
        events.append(changed)
    folded(sse(created(), *events), row)


@given(
    st.lists(
        st.sampled_from(["thought", "answer", "call"]).flatmap(
            lambda kind: st.tuples(st.just(kind), st.text("ab \n", min_size=1, max_size=6).filter(str.strip))
        ),
        min_size=1,
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
def test_interleaved_items_are_emitted_one_after_the_other(items: list[tuple[str, str]], dice: Any) -> None:
    """Items are emitted in the order in which they start."""
    queues = []
    for index, (kind, text) in enumerate(items):
        match kind:
            case "thought":
                queues.append(thought(index, text, id=f"i{index}", encrypted="E"))
            case "answer":
                queues.append(answer(index, text, id=f"i{index}"))
            case _:
                queues.append(function_call(index, "f", json.dumps(text), id=f"i{index}", call_id=f"c{index}"))
    # Items start in order, each up to its first text, because an item without content does not start.
    mixed = [queue.pop(0) for queue in queues for _ in range(3 if len(queue) > 3 else 1)]
    while any(queues):
        queue = dice.choice([queue for queue in queues if queue])
        mixed.append(queue.pop(0))
    kinds = {"thought": "thinking", "answer": "text", "call": "tool-call"}
    expected = [(kinds[kind], json.dumps(text) if kind == "call" else text) for kind, text in items]
    assert kinds_and_texts(response_of(sse(created(), mixed, response_end()))) == expected
