"""The example: agents of three frameworks and a person in one space, over real sockets."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pellucid.envelopes import Envelope, text_of
from pellucid.envelopes.translate import read

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
    shown: list[Envelope] = []
    async with example.a_gateway(tmp_path) as (url, tokens):
        await example.session(url, tokens, shown.append)
        records = {name: await _record(url, token) for name, token in tokens.items()}
    record = records["person"]
    assert [one.id for one in record if one.kind == "chat"] == [one.id for one in shown if one.kind == "chat"]

    # Who said what, for which recipients, as an answer to what.
    question, private = (one for one in record if one.sender == "person" and not one.correlation_id)
    chats = [(one.sender, one.to, text_of(one).strip(), one.correlation_id) for one in record if one.kind == "chat"]
    inquiry = next(one for one in record if text_of(one) == "Who is on call tonight?")
    starts = {(one.sender, one.correlation_id[0]): one for one in record if one.kind == "reasoning/start"}
    assert sorted(chats[1:]) == sorted(
        [
            ("plan", (), "Who is on call tonight?", (question.id,)),
            ("person", (), "Ada", (inquiry.id,)),
            *(
                (name, (), text, (question.id, starts[name, question.id].id))
                for name, text in (
                    ("database", "The database is ready."),
                    ("plan", "We release, and Ada is on call."),
                    ("tests", "All tests pass."),
                )
            ),
            ("person", ("database",), "Could we restore the backup, if it fails?", ()),
            ("database", ("person",), "Yes, to the state of 06:10.", (private.id, starts["database", private.id].id)),
        ]
    )

    # What each thought, in its own context. The graph asked while its own was open.
    inside = {
        key: [(one.kind.partition("/")[2], text_of(one).strip()) for one in record if one.context == start.id]
        for key, start in starts.items()
    }
    assert inside == {
        ("database", question.id): [
            ("thought", "The migration adds a column."),
            ("thought", "It needs no lock."),
            ("conclusion", "The database is ready."),
        ],
        ("plan", question.id): [
            ("thought", "A release on a Friday is a risk."),
            ("thought", "Somebody must be on call."),
            ("thought", "The plan is complete."),
            ("conclusion", "We release, and Ada is on call."),
        ],
        ("tests", question.id): [
            ("thought", "Are the tests green?"),
            ("thought", 'Calling run_tests({"suite":"release"})'),
            ("observation", "release: 1,204 passed"),
            ("thought", "They are."),
            ("conclusion", "All tests pass."),
        ],
        ("database", private.id): [
            ("thought", "The newest backup is from 06:10, and a test restored it."),
            ("conclusion", "Yes, to the state of 06:10."),
        ],
    }
    plan = [one.seq for one in record if one.context == starts["plan", question.id].id]
    assert starts["plan", question.id].seq < inquiry.seq < plan[-1]

    # The audience: the second question is between two of them, the rest is for everyone.
    between_two = [one for one in record if one.recipients]
    assert {frozenset(one.recipients) | {one.sender} for one in between_two} == {frozenset({"person", "database"})}
    assert [one.kind for one in between_two] == [
        "chat",
        "reasoning/start",
        "reasoning/thought",
        "reasoning/conclusion",
        "chat",
    ]
    assert _ids(records["database"]) == _ids(record)
    assert _ids(records["plan"]) == _ids(records["tests"]) == _ids(record) - _ids(between_two)


def _ids(envelopes: list[Envelope]) -> set[str]:
    return {one.id for one in envelopes if not one.kind.startswith("system/")}


async def _record(url: str, token: str) -> list[Envelope]:
    """Read the history of the space, as the participant of this token sees it."""
    address = url.replace("ws:", "http:").removesuffix("/ws") + "/envelopes?limit=500"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as client,
        client.get(address) as reply,
    ):
        assert reply.status == 200
        return [read(one) for one in (await reply.json())["envelopes"]]
