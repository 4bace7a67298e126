"""The verifier reports every rule that a stream breaks by its name, and accepts legal streams."""

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.errors import ErrorInfo
from pellucid.protocols.openresponses.verify import verify
from tests.cases import Cases
from tests.openresponses.openresponses_kit import ORIGIN, encode, events_of, run_events

Events = list[dict[str, Any]]


def legal_events(reason: Any = "stop", error: ErrorInfo | None = None) -> Events:
    """A stream with parts of every kind: two of reasoning, a summary, text with a citation, a refusal, two calls."""
    emitter = Emitter(ORIGIN)
    emitter.thinking("raw", "ab", item="r")
    emitter.thinking("raw", "c", item="r")
    emitter.thinking("raw2", "d", item="r")
    emitter.thinking("sum", "s", item="r", form="summary")
    cited = {"type": "url_citation", "url": "https://e.org", "title": "t", "start_index": 0, "end_index": 1}
    emitter.text("t", "x", annotations=[cited])
    emitter.text("t", "y", annotations=[cited])
    emitter.refusal("n", "no")
    emitter.tool_call("f", '{"a":', name="f", call_id="c1")
    emitter.tool_call("f", "1}")
    emitter.tool_call("g", "{}", name="g", call_id="c2")
    emitter.finish(reason)
    return events_of(encode([run_events(emitter.end("eof" if error is None else "error", error))]))


LEGAL = legal_events()


def write_stream(events: Events, *, renumber: bool = True, end: str = "data: [DONE]\n\n") -> bytes:
    """The events as bytes; `renumber` gives them consecutive sequence numbers."""
    out = []
    for number, event in enumerate(events):
        event = event | {"sequence_number": number} if renumber else event
        out.append(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n")
    return ("".join(out) + end).encode()


def index_of(events: Events, name: str, which: int = 0) -> int:
    return [at for at, event in enumerate(events) if event["type"] == f"response.{name}"][which]


def test_legal_streams_pass() -> None:
    assert verify(write_stream(LEGAL)) == []
    assert verify(write_stream(legal_events("length"))) == []
    assert verify(write_stream(legal_events(error=ErrorInfo("model_error", "broke")))) == []


# --- each edit breaks one rule ---------------------------------------------------------------------------------------

Edit = Callable[[Events], object]


def drop(name: str, which: int = 0) -> Edit:
    return lambda events: events.pop(index_of(events, name, which))


def duplicate(name: str, which: int = 0) -> Edit:
    return lambda events: events.insert(index_of(events, name, which), events[index_of(events, name, which)])


def swap(name: str, which: int = 0) -> Edit:
    """An edit that swaps an event with the one after it."""

    def edit(events: Events) -> None:
        at = index_of(events, name, which)
        events[at], events[at + 1] = events[at + 1], events[at]

    return edit


def change(name: str, which: int = 0, /, **fields: Any) -> Edit:
    return lambda events: events[index_of(events, name, which)].update(fields)


def change_nested(name: str, what: str, which: int = 0, /, **fields: Any) -> Edit:
    return lambda events: events[index_of(events, name, which)][what].update(fields)


def output(edit: Callable[[list[Any]], Any]) -> Edit:
    return lambda events: edit(events[-1]["response"]["output"])


def add(event: dict[str, Any], at: int) -> Edit:
    return lambda events: events.insert(at, event)


ERROR = {"type": "error", "error": {"type": "server_error", "code": None, "message": "m", "param": None}}

BROKEN: list[tuple[str, str, Edit]] = [
    ("life", "no created", drop("created")),
    ("life", "created twice", duplicate("created")),
    ("life", "no in_progress", drop("in_progress")),
    ("life", "in_progress late", swap("in_progress")),
    ("life", "no terminal event", drop("completed")),
    ("life", "two terminal events", duplicate("completed")),
    ("life", "something after the end", add(ERROR, 10_000)),
    ("life", "an error and yet completed", lambda events: events.insert(-1, ERROR)),
    ("life", "the status is another", change_nested("completed", "response", status="failed")),
    ("item", "an item never added", drop("output_item.added", 2)),
    ("item", "an item never done", drop("output_item.done", 1)),
    ("item", "a part before its item", swap("output_item.added", 0)),
    ("item", "an item added before the last is done", swap("output_item.done", 0)),
    ("item", "output_index skips", change("output_item.added", 1, output_index=2)),
    ("item", "an event about another item", change("reasoning.delta", 0, item_id="rs_other")),
    ("item", "an event with another index", change("output_text.delta", 0, output_index=0)),
    ("item", "an item done that is another", change_nested("output_item.done", "item", 0, id="rs_other")),
    ("item", "an item added with content", change_nested("output_item.added", "item", 0, summary=[{"text": "s"}])),
    ("item", "an item done without its parts", change_nested("output_item.done", "item", 1, content=[])),
    ("item", "a call done with other arguments", change_nested("output_item.done", "item", 2, arguments="{}")),
    ("item", "a call added with its arguments", change_nested("output_item.added", "item", 2, arguments="{}")),
    ("item", "an item added with what is sealed", change_nested("output_item.added", "item", 0, encrypted_content="s")),
    (
        "item",
        "a message that holds what is sealed",
        change_nested("output_item.done", "item", 1, encrypted_content="s"),
    ),
    ("part", "a part never added", drop("content_part.added", 0)),
    ("part", "a part never done", drop("content_part.done", 0)),
    ("part", "a part done before its text", drop("reasoning.done", 0)),
    ("part", "text done twice", duplicate("reasoning.done", 0)),
    ("part", "a delta after done", swap("reasoning.delta", 1)),
    ("part", "content_index skips", change("content_part.added", 1, content_index=2)),
    ("part", "a delta for another part", change("output_text.delta", 0, content_index=1)),
    ("part", "summary_index skips", change("reasoning_summary_part.added", 0, summary_index=1)),
    ("part", "text in a reasoning item", change_nested("content_part.added", "part", 0, type="output_text")),
    ("part", "a part added with text", change_nested("content_part.added", "part", 0, text="early")),
    ("part", "a part done with another text", change_nested("content_part.done", "part", 0, text="other")),
    ("part", "a delta of another kind", change("reasoning.delta", 0, type="response.output_text.delta")),
    ("part", "a call without done", drop("function_call_arguments.done", 0)),
    ("part", "a call's done twice", duplicate("function_call_arguments.done", 0)),
    ("part", "annotation_index skips", change("output_text.annotation.added", 1, annotation_index=2)),
    ("part", "an annotation after the text", swap("output_text.annotation.added", 1)),
    ("text", "a delta lost", drop("reasoning.delta", 0)),
    ("text", "another text in done", change("output_text.done", 0, text="zz")),
    ("text", "an empty delta", lambda events: change("output_text.delta", 0, delta="")(events)),
    ("text", "a summary's delta lost", drop("reasoning_summary_text.delta")),
    ("text", "a refusal's delta lost", drop("refusal.delta")),
    ("text", "a call's delta lost", drop("function_call_arguments.delta", 1)),
    ("output", "an item missing", output(lambda items: items.pop())),
    ("output", "items in another order", output(lambda items: items.reverse())),
    ("output", "another text in the end", output(lambda items: items[1]["content"].pop())),
    (
        "incomplete",
        "an incomplete item and yet completed",
        change_nested("output_item.done", "item", 3, status="incomplete"),
    ),
    (
        "incomplete",
        "an incomplete item that is not last",
        change_nested("output_item.done", "item", 0, status="incomplete"),
    ),
    ("framing", "OpenAI's name for it", change("reasoning.delta", 0, type="response.reasoning_text.delta")),
    ("framing", "an unknown event", change("reasoning.delta", 0, type="response.reasoning_summary.delta")),
    ("fields", "an item without an id", lambda events: events[2]["item"].pop("id")),
    ("fields", "a delta without a delta", lambda events: events[index_of(events, "output_text.delta")].pop("delta")),
    ("fields", "an end without a response", lambda events: events[-1].pop("response")),
]


def test_each_broken_rule_is_found_by_name() -> None:
    with Cases() as case:
        for rule, name, edit in BROKEN:
            with case(name):
                events = copy.deepcopy(LEGAL)
                edit(events)
                assert rule in {broken.partition(":")[0] for broken in verify(write_stream(events))}


def test_two_items_with_one_id_are_found() -> None:
    text = json.dumps(legal_events())
    ids = [item["id"] for item in legal_events()[-1]["response"]["output"]]
    events = json.loads(text.replace(ids[3], ids[2]))
    assert verify(write_stream(events)) == [f"item: there is an item {ids[2]} already"]


def test_numbers_that_skip_repeat_or_are_missing_are_found() -> None:
    for number in (7, 0, None, "1"):
        events = legal_events()
        events[1]["sequence_number"] = number
        assert verify(write_stream(events, renumber=False)) == [
            f"sequence: response.in_progress has {number}, expected 1"
        ]


def test_a_stream_that_does_not_end_with_one_done_is_found() -> None:
    done = "data: [DONE]\n\n"
    with Cases() as case:
        for end in ("", "data: [DONE]\n", done + done, f'{done}event: x\ndata: {{"type":"x"}}\n\n'):
            with case(repr(end)):
                assert any(broken.startswith("framing") for broken in verify(write_stream(LEGAL, end=end)))


def test_an_event_line_that_is_not_the_type_is_found() -> None:
    body = write_stream(legal_events()).replace(b"event: response.reasoning.done", b"event: response.reasoning.gone")
    assert {broken.partition(":")[0] for broken in verify(body)} == {"framing"}


def test_a_stream_of_another_dialect_breaks_a_rule() -> None:
    emitter = Emitter(ORIGIN)
    emitter.thinking("k", "t")
    body = encode([run_events(emitter.end())])
    assert verify(body) == []
    assert verify(body, "openai") != []


@given(st.binary(max_size=200))
def test_any_bytes_break_a_rule_and_never_raise(body: bytes) -> None:
    assert verify(body) != []
    assert verify(b"data: " + body + b"\n\ndata: [DONE]\n\n") != []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_any_value_in_any_field_never_raises(data: st.DataObject) -> None:
    events = copy.deepcopy(LEGAL)
    event = data.draw(st.sampled_from(events))
    event[data.draw(st.sampled_from(sorted(event)))] = data.draw(json_values)
    verify(write_stream(events, renumber=False))
