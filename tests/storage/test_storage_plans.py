"""Every question is answered by an index: what a store holds does not make asking it slower."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pellucid.storage import (
    appends,
    chains,
    chats,
    conversations,
    envelopes,
    keys,
    links,
    responses,
    retention,
    rooms,
    search,
    tables,
    turns,
    walks,
)
from pellucid.storage.sqlite import _DIALECT
from pellucid.storage.statement import Statement
from tests.storage.storage_kit import opened

pytestmark = pytest.mark.anyio

MODULES = (
    *(appends, chains, chats, conversations, envelopes, keys, links),
    *(responses, retention, rooms, search, turns, walks),
)
TABLES = set(tables.metadata.tables)
READS_ALL = {"keys._ALL", "rooms._ALL", "rooms._LEFT"}  # of which there are few
READS_ALL_OF_ONE_OWNER = {"retention._OWNED", "rooms._LIST"}


def statements() -> Iterator[tuple[str, Statement]]:
    def within(value: Any) -> Iterator[Statement]:
        if isinstance(value, Statement):
            yield value
        elif isinstance(value, dict):
            yield from within(list(value.values()))
        elif isinstance(value, list | tuple):
            for one in value:
                yield from within(one)

    for module in MODULES:
        for name, value in vars(module).items():
            for statement in within(value):
                yield f"{module.__name__.rsplit('.', 1)[1]}.{name}", statement


async def test_every_question_is_answered_by_an_index(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(f"sqlite:///{path}"):
        pass
    database = sqlite3.connect(path)
    seen = 0
    for name, statement in statements():
        prepared = statement.on(_DIALECT)
        plan = database.execute("EXPLAIN QUERY PLAN " + prepared.text, [None] * prepared.text.count("?"))
        for *_, step in plan:
            verb, *words = step.split()
            if verb == "SCAN" and words[0] in TABLES:
                assert name in READS_ALL, (name, step)
            if verb == "SEARCH" and words[0] in TABLES and step.endswith("(owner=?)"):
                assert name in READS_ALL_OF_ONE_OWNER or words[0] == "keys", (name, step)
        seen += 1
    database.close()
    assert seen > 25
