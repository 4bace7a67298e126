"""The verifier reports each rule that a stream breaks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pellucid.protocols.ai_sdk.verify import verify
from tests.cases import Cases

START, STEP, END = {"type": "start", "messageId": "m"}, {"type": "start-step"}, {"type": "finish-step"}
FINISH = {"type": "finish", "finishReason": "stop"}
FAILED = [{"type": "error", "errorText": "no"}, END, {"type": "finish", "finishReason": "error"}]


def block(kind: str, id: str, *deltas: str) -> list[dict[str, Any]]:
    more = [{"type": f"{kind}-delta", "id": id, "delta": delta} for delta in deltas]
    return [{"type": f"{kind}-start", "id": id}, *more, {"type": f"{kind}-end", "id": id}]


THOUGHT, WORDS = block("reasoning", "r", "Hm."), block("text", "t", "42")
CALL = [
    {"type": "tool-input-start", "toolCallId": "c", "toolName": "f", "dynamic": True},
    {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": "{}"},
    {"type": "tool-input-available", "toolCallId": "c", "toolName": "f", "input": {}, "dynamic": True},
]
RESULT = {"type": "tool-output-available", "toolCallId": "c", "output": None, "dynamic": True}


def written(chunks: list[Any], end: str = "data: [DONE]\n\n") -> bytes:
    lines = (chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    return ("".join(lines) + end).encode()


@pytest.mark.parametrize(
    "chunks",
    [
        [START, STEP, *THOUGHT, *WORDS, END, FINISH],
        [START, STEP, *THOUGHT, *CALL, RESULT, END, STEP, *WORDS, END, FINISH],
        [START, STEP, *THOUGHT, *FAILED],
        [START, *FAILED[:1], FAILED[2]],
        [START, ": queued\n\n", STEP, END, {"type": "abort"}],
    ],
)
def test_legal_streams_have_no_violation(chunks: list[Any]) -> None:
    assert verify(written(chunks)) == []


BROKEN: list[tuple[list[Any], str]] = [
    ([STEP, END, FINISH], "life"),
    ([START, START, FINISH], "life"),
    ([START, STEP, END], "life"),
    ([START, FINISH, FINISH], "life"),
    ([START, {"type": "finish", "finishReason": "error"}], "life"),
    ([START, STEP, FAILED[0], *WORDS, END, FAILED[2]], "life"),
    ([START, STEP, FINISH], "step"),
    ([START, END, FINISH], "step"),
    ([START, *WORDS, FINISH], "step"),
    ([START, STEP, *THOUGHT[:2], *WORDS, END, FINISH], "block"),
    ([START, STEP, *THOUGHT[1:], END, FINISH], "block"),
    ([START, STEP, *WORDS, *WORDS, END, FINISH], "block"),
    ([START, STEP, *WORDS[:-1], END, FINISH], "block"),
    ([START, STEP, *block("text", "t", ""), END, FINISH], "block"),
    ([START, STEP, *CALL[:2], END, FINISH], "tool"),
    ([START, STEP, CALL[1], END, FINISH], "tool"),
    ([START, STEP, *CALL, *CALL, END, FINISH], "tool"),
    ([START, STEP, *CALL, RESULT, RESULT, END, FINISH], "tool"),
    ([START, STEP, *CALL[:2], RESULT, END, FINISH], "tool"),
    ([START, STEP, {"type": "text-start", "id": "t", "more": 1}, END, FINISH], "fields"),
    ([START, STEP, {"type": "text-start"}, END, FINISH], "fields"),
    ([START, {"type": "new"}, FINISH], "fields"),
    ([START, {**FINISH, "finishReason": "interrupted"}], "fields"),
    ([START, "event: x\ndata: {}\n\n", FINISH], "framing"),
]


def test_every_rule_has_a_stream_that_breaks_it() -> None:
    with Cases() as case:
        for chunks, rule in BROKEN:
            with case(rule):
                assert rule in [broken.partition(":")[0] for broken in verify(written(chunks))]


def test_the_stream_must_have_an_end() -> None:
    assert verify(written([START, FINISH], end="")) == ["framing: the stream does not end in [DONE]"]
