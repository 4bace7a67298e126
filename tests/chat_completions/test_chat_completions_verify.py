"""The verifier finds each rule that is broken by one edit of a legal stream."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.parts import Usage
from pellucid.protocols.chat_completions.verify import verify
from tests.cases import Cases
from tests.chat_completions.chat_completions_kit import chunks_of, encode, run_of

STEPS = [
    *[("summary", 0, "a"), ("close", 0, ""), ("thinking", 0, "b"), ("text", 0, "c"), ("cite", 0, "d")],
    *[("call", 1, ""), ("args", 1, '{"a":'), ("args", 1, "1}")],
]
STREAM = encode(run_of([(STEPS, "tool_call", Usage(1, 2))], "eof", 1)[0], include_usage=True)
CHUNKS = chunks_of(STREAM)


def index_of(field: str, which: int = 0) -> int:
    """The index of the chunk whose delta has that field."""
    places = [n for n, one in enumerate(CHUNKS) if one["choices"] and field in one["choices"][0]["delta"]]
    return places[which]


def delta(chunks: list[Any], field: str, which: int = 0) -> dict[str, Any]:
    fields: dict[str, Any] = chunks[index_of(field, which)]["choices"][0]["delta"]
    return fields


def move(chunks: list[Any], place: int, to: int) -> None:
    chunks.insert(to, chunks.pop(place))


FINISH = len(CHUNKS) - 2
ERROR = {"error": {"message": "m", "type": "t", "param": None, "code": "c"}}

BREAKS: dict[str, tuple[str, Callable[[list[Any]], Any]]] = {
    "not a chunk": ("fields", lambda c: c.insert(1, {"object": "x"})),
    "another id": ("same", lambda c: c[2].update(id="other")),
    "no role": ("life", lambda c: delta(c, "role").pop("role")),
    "a second role": ("life", lambda c: delta(c, "content", 1).update(role="assistant")),
    "no finish": ("life", lambda c: c.pop(FINISH)),
    "two finishes": ("life", lambda c: c.insert(FINISH, c[FINISH])),
    "text after the finish": ("life", lambda c: move(c, index_of("content", 1), FINISH)),
    "usage too early": ("life", lambda c: move(c, FINISH + 1, 1)),
    "something after the usage": ("life", lambda c: c.append(c[1])),
    "an error after the finish": ("life", lambda c: c.insert(FINISH + 1, ERROR)),
    "something after an error": ("life", lambda c: c.insert(3, ERROR)),
    "the wrong finish": ("finish", lambda c: c[FINISH]["choices"][0].update(finish_reason="stop")),
    "the finish says something": ("life", lambda c: c[FINISH]["choices"][0]["delta"].update(content="x")),
    "an empty text": ("delta", lambda c: delta(c, "content", 1).update(content="")),
    "an empty delta": ("delta", lambda c: delta(c, "content", 1).clear()),
    "two things": ("delta", lambda c: delta(c, "content", 1).update(reasoning="x", reasoning_content="x")),
    "an empty thought": ("delta", lambda c: delta(c, "reasoning").update(reasoning="", reasoning_content="")),
    "two thoughts": ("thought", lambda c: delta(c, "reasoning").update(reasoning="other")),
    "another field": ("thought", lambda c: delta(c, "reasoning", 1).pop("reasoning")),
    "a call without its name": ("call", lambda c: delta(c, "tool_calls")["tool_calls"][0]["function"].pop("name")),
    "a call named twice": ("call", lambda c: delta(c, "tool_calls", 1)["tool_calls"][0].update(id="again")),
    "a call too far": ("call", lambda c: delta(c, "tool_calls", 1)["tool_calls"][0].update(index=5)),
    "no arguments": (
        "delta",
        lambda c: delta(c, "tool_calls", 1)["tool_calls"][0]["function"].update(arguments=""),
    ),
    "a detail too far": (
        "detail",
        lambda c: delta(c, "reasoning_details")["reasoning_details"][0].update(index=4),
    ),
    "a detail twice": (
        "detail",
        lambda c: c.insert(index_of("reasoning_details", -1), c[index_of("reasoning_details", -1)]),
    ),
    "an empty detail": (
        "detail",
        lambda c: delta(c, "reasoning_details", -1)["reasoning_details"][0].update(data=""),
    ),
    "citations too early": ("late", lambda c: move(c, index_of("annotations"), 2)),
}


def write_stream(chunks: list[Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def test_the_stream_itself_is_legal() -> None:
    assert verify(STREAM) == []
    assert verify(write_stream(CHUNKS)) == []
    assert verify(write_stream([*CHUNKS[:FINISH], ERROR])) == []


def test_each_broken_rule_is_found() -> None:
    with Cases() as case:
        for name in BREAKS:
            with case(name):
                rule, break_it = BREAKS[name]
                chunks = json.loads(json.dumps(CHUNKS))
                break_it(chunks)
                assert rule in {broken.partition(":")[0] for broken in verify(write_stream(chunks))}


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        STREAM.removesuffix(b"data: [DONE]\n\n"),
        STREAM + b"data: [DONE]\n\n",
        STREAM.replace(b"data: [DONE]", b"data: [DONE]\n\ndata: {}"),
        b"event: x\n" + STREAM,
        STREAM.replace(b"data: {", b"data: [{", 1),
    ],
)
def test_wrong_framing_is_found(stream: bytes) -> None:
    assert verify(stream)


@given(st.binary())
def test_any_bytes_break_a_rule_and_never_raise(body: bytes) -> None:
    assert verify(body)
    assert verify(b"data: %b\n\n" % body)
