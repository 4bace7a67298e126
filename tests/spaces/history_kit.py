"""Spaces with envelopes in a real database, and their viewers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from pellucid.envelopes import Envelope
from pellucid.envelopes.lifecycle import LifecycleSettings, Mode
from pellucid.envelopes.visibility import SpaceView, SpaceViewer, is_shown
from pellucid.spaces.history.history import History
from pellucid.storage import Append, Store, StoredEnvelope, StoredSpace, open_store
from tests.envelopes.life_kit import CheckedLifecycle
from tests.service_postgres import PostgresServer

OWNER = "ann"
T = TypeVar("T")

MODES: tuple[Mode, ...] = ("strict", "off")


class SpaceStore:
    """One store and the spaces in it: each test, and each example of a property, has its own space."""

    def __init__(self, runner: asyncio.Runner, store: Store) -> None:
        self.run_all = runner
        self.store = store
        self._names = itertools.count(1)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.run_all.run(coroutine)

    def space(
        self, envelopes: Iterable[Envelope], *, mode: Mode = "strict", name: str | None = None, recorded: bool = False
    ) -> SpaceLog:
        """Create a space with those of these envelopes that are accepted, one second apart."""
        return self.rows(accepted(envelopes, mode=mode), name=name, recorded=recorded)

    def rows(self, rows: list[StoredEnvelope], *, name: str | None = None, recorded: bool = False) -> SpaceLog:
        """Create a space with these rows."""
        name = name or f"room-{next(self._names)}"
        self.run(self._put(name, rows, recorded))
        return SpaceLog(self, name, rows)

    async def _put(self, name: str, rows: Sequence[StoredEnvelope], recorded: bool) -> None:
        space = StoredSpace(owner=OWNER, name=name, created_at=0.0, settings=b"{}")
        await self.store.spaces.put(space, [])
        for start in range(0, len(rows), 1000):
            batch = rows[start : start + 1000]
            await self.store.spaces.append(
                Append(owner=OWNER, space=name, expected_head=start, version=1, envelopes=batch, recorded=recorded)
            )


class SpaceLog:
    """A space and its log."""

    def __init__(self, space_store: SpaceStore, name: str, log: list[StoredEnvelope]) -> None:
        self.space_store = space_store
        self.name = name
        self.log = log

    def history(self, reader: SpaceViewer | str = "watcher", *, view: SpaceView = "full", **more: Any) -> History:
        if isinstance(reader, str):
            reader = SpaceViewer(participant=reader, view=view)
        return History(self.space_store.store, OWNER, self.name, reader, **more)

    def shown(self, reader: SpaceViewer) -> list[StoredEnvelope]:
        """Return what the viewer may see, by `is_shown` itself."""
        return [one for one in self.log if is_shown(one.envelope, one.place, reader)]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self.space_store.run(coroutine)


def accepted(envelopes: Iterable[Envelope], *, mode: Mode = "strict") -> list[StoredEnvelope]:
    lifecycle = CheckedLifecycle(LifecycleSettings(mode=mode))
    rows: list[StoredEnvelope] = []
    for envelope in envelopes:
        numbered = replace(envelope, seq=len(rows) + 1)
        verdict = lifecycle.feed(numbered)
        if verdict.accepted:
            rows.append(StoredEnvelope(numbered, 1_000 * numbered.seq, verdict.place))
    return rows


@contextmanager
def space_store_in(url: str) -> Iterator[SpaceStore]:
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))
        try:
            yield SpaceStore(runner, store)
        finally:
            runner.run(store.aclose())


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def space_store(request: pytest.FixtureRequest) -> Iterator[SpaceStore]:
    """A store on each kind of database."""
    url = "sqlite://"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.database()
    with space_store_in(url) as opened:
        yield opened


async def collected(chunks: Any) -> bytes:
    """Join the chunks of an export."""
    return b"".join([chunk async for chunk in chunks])
