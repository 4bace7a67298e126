"""The example: agents of three frameworks and a person in one space, over real sockets."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.envelopes import Envelope, text_of

pytest.importorskip("langgraph")
pytest.importorskip("pydantic_ai")

pytestmark = pytest.mark.anyio

EXAMPLE = Path(__file__).parents[2] / "examples" / "space_frameworks"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield importlib.import_module("session")
    for name in ("session", "own_agent", "langgraph_agent", "pydantic_ai_agent"):
        sys.modules.pop(name, None)


async def test_three_frameworks_and_a_person_in_one_space(example: Any, tmp_path: Path) -> None:
    seen: list[Envelope] = []
    async with example.a_gateway(tmp_path) as (url, tokens):
        answers = await example.session(url, tokens, seen.append)
    assert {name: text_of(answer).strip() for name, answer in answers.items()} == {
        "database": "The database is ready.",
        "plan": "We release, and Ada is on call.",
        "tests": "All tests pass.",
    }
    question = next(one for one in seen if one.sender == "person")
    starts = {one.sender: one for one in seen if one.kind == "reasoning/start"}
    inside = {
        name: [(one.kind.partition("/")[2], text_of(one).strip()) for one in seen if one.context == start.id]
        for name, start in starts.items()
    }
    assert inside == {
        "database": [
            ("thought", "The migration adds a column."),
            ("thought", "It needs no lock."),
            ("conclusion", "The database is ready."),
        ],
        "plan": [
            ("thought", "A release on a Friday is a risk."),
            ("thought", "Somebody must be on call."),
            ("thought", "The plan is complete."),
            ("conclusion", "We release, and Ada is on call."),
        ],
        "tests": [
            ("thought", "Are the tests green?"),
            ("thought", 'Calling run_tests({"suite":"release"})'),
            ("observation", "release: 1,204 passed"),
            ("thought", "They are."),
            ("conclusion", "All tests pass."),
        ],
    }
    for name, start in starts.items():
        assert start.correlation_id == (question.id,)
        assert answers[name].correlation_id == (question.id, start.id)
    # The graph asked while its reasoning was open, and the person answered.
    inquiry = next(one for one in seen if one.sender == "plan" and text_of(one) == "Who is on call tonight?")
    assert inquiry.correlation_id == (question.id,)
    assert starts["plan"].seq < inquiry.seq < answers["plan"].seq
