"""A space opens by its snapshot and a short rest of its log, and how much of the past is in memory decides nothing."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.errors import PellucidError
from pellucid.spaces.runtime import live_state, settings
from pellucid.spaces.runtime.live_state import load_state
from pellucid.spaces.runtime.provisioning import create_space
from pellucid.spaces.runtime.space_manager import SpaceManager
from pellucid.spaces.runtime.state import SpaceState
from pellucid.storage import Append, Spaces
from tests.examples import costly
from tests.spaces.space_kit import OWNER, QUICK, chat, join_space, opened, whole_log
from tests.spaces.test_space_properties import envelopes, names, play_script, steps
from tests.spaces.test_space_runtime import UNLIMITED
from tests.waiting import eventually

INTERVAL = 3


class Calls:
    """Counts the calls of methods of the store."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
        self.of: dict[str, int] = dict.fromkeys(methods, 0)
        for name in methods:
            monkeypatch.setattr(Spaces, name, self._counted(name, getattr(Spaces, name)))

    def _counted(self, name: str, method: Any) -> Any:
        async def counted(*args: Any, **more: Any) -> Any:
            self.of[name] += 1
            return await method(*args, **more)

        return counted


async def reopen(spaces: SpaceManager, name: str = "room") -> Any:
    """Close a space and open it again, as the next process does."""
    await spaces._open.pop(name).aclose()
    return await spaces.space(name)


@costly
@given(st.lists(steps, max_size=40))
def test_a_snapshot_and_the_rest_of_the_log_give_the_state_of_the_whole_log(script: list[tuple[Any, ...]]) -> None:
    async def scene() -> None:
        async with opened() as (spaces, space, store):
            await play_script(space, script)
            log = await whole_log(space)
            whole = SpaceState(space.settings)
            for one in log:
                whole.replay(one)
            snapshot = await store.spaces.state(OWNER, "room")
            restored = load_state(space.settings, snapshot)
            assert (snapshot is not None) == (len(log) >= INTERVAL)
            for one in log[restored.head :]:
                restored.replay(one)
            assert restored.dump() == whole.dump()
            after_leaving = await reopen(spaces)
            assert after_leaving._live.state.dump() == space._live.state.dump()

    with patch.object(live_state, "SNAPSHOT_INTERVAL", INTERVAL):
        asyncio.run(scene())


@costly
@given(st.lists(st.tuples(names, envelopes()), max_size=30))
def test_envelopes_are_judged_the_same_however_many_ids_are_in_memory(script: list[tuple[str, Any]]) -> None:
    """Ids that are not in memory are looked up when the envelope is appended, or when it was refused otherwise."""

    async def outcomes() -> list[Any]:
        answers: list[Any] = []
        async with opened() as (_, space, _store):
            for who, envelope in script:
                try:
                    answers.append((await space.post(who, envelope)).stored.envelope.seq)
                except PellucidError as error:
                    answers.append((error.info.code, error.info.param))
            log = [(one.envelope.sender, one.envelope.kind, one.envelope.payload) for one in await whole_log(space)]
        return [answers, log]

    def remembering(ids: int, recent: int) -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
        return patch.object(settings, "MAX_IDS", ids), patch.object(live_state, "MAX_RECENT", recent)

    everything = asyncio.run(outcomes())
    with (few := remembering(1, 1))[0], few[1]:
        assert asyncio.run(outcomes()) == everything


def test_a_resend_that_would_be_refused_is_answered_too() -> None:
    """When its id is not in memory any more: that it is known is decided first."""

    async def scene() -> None:
        async with opened() as (_, space, _store):
            context: dict[str, Any] = {"context": "s-1", "payload": {"message": "x"}}
            thought = {"kind": "reasoning/thought", "id": "t-1", **context}
            await space.post("ada", {"kind": "reasoning/start", "id": "s-1", "payload": {"message": "x"}})
            first = await space.post("ada", thought)
            await space.post("ada", {"kind": "reasoning/conclusion", **context})
            space._live.state.lifecycle.state.recent.clear()  # as after thousands of envelopes
            space._live.forget()
            space._live.state.lifecycle.state.recent.clear()
            assert (await space.post("ada", thought)).stored == first.stored
            with pytest.raises(PellucidError) as raised:
                await space.post("dee", thought)
            assert raised.value.info.code == "id_conflict"

    asyncio.run(scene())


def test_a_snapshot_is_stored_after_so_many_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "SNAPSHOT_BYTES", 50_000)

    async def scene() -> None:
        async with opened(settings=UNLIMITED) as (_, space, store):
            for number in range(20):
                await space.post("ada", chat("x" * 10_000))
                snapshot = await store.spaces.state(OWNER, "room")
                assert number < 6 or (snapshot is not None and space.head - snapshot[0] <= 6)

    asyncio.run(scene())


def test_a_log_without_a_snapshot_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or with one that this version cannot read."""

    async def scene() -> None:
        async with opened(f"sqlite:///{tmp_path}/s.db", UNLIMITED) as (spaces, space, store):
            for _ in range(1_600):
                await space.post("ada", chat("x"))
            head = space.head
            unreadable = Append(owner=OWNER, space="room", expected_head=head, version=1, envelopes=(), state=b"{")
            await store.spaces.append(unreadable)
            calls = Calls(monkeypatch, "page")
            first = await reopen(spaces)
            assert calls.of["page"] >= 3
            assert first._live.state.dump() == space._live.state.dump()
            calls.of["page"] = 0
            second = await reopen(spaces)
            assert calls.of["page"] == 0
            assert (second.head, second._live.state.dump()) == (head, space._live.state.dump())

    asyncio.run(scene())


def test_the_snapshot_of_an_earlier_version_is_read() -> None:
    """Otherwise the first opening after an update reads whole logs. Fields may be added to a dump, none renamed."""
    state = load_state(settings.read_settings({}), (SNAPSHOT["head"], msgspec.json.encode(SNAPSHOT)))
    assert msgspec.json.decode(state.dump()) == SNAPSHOT


def test_idle_spaces_are_read_in_one_query(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with opened() as (spaces, _, store):
            for number in range(20):
                name = f"other-{number}"
                await create_space(store.spaces, OWNER, name, settings.read_settings({}), {"ada": ["chat"]})
                await join_space(await spaces.space(name), "ada")
            await asyncio.sleep(2 * QUICK.poll_seconds)
            calls = Calls(monkeypatch, "head", "heads")
            await eventually(lambda: calls.of["heads"] >= 4)
            assert calls.of["head"] <= 20, "perhaps once for what was just appended"

    asyncio.run(scene())


def test_a_new_id_costs_no_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        async with opened(settings=UNLIMITED) as (_, space, _store):
            await space.post("ada", {"kind": "reasoning/start", "id": "s-1", "payload": {"message": "x"}})
            calls = Calls(monkeypatch, "existing_names", "get_envelope_by_id", "append")
            for number in range(20):
                thought = {"kind": "reasoning/thought", "id": f"t-{number}", "context": "s-1", "payload": {}}
                await space.post("ada", thought)
            assert calls.of == {"existing_names": 0, "get_envelope_by_id": 0, "append": 20}

    asyncio.run(scene())


SNAPSHOT: dict[str, Any] = {
    "head": 10,
    "at": 1795913445097,
    "doors": {
        "always": ["mcp/response"],
        "doors": {"ada": ["*"], "bob": ["chat", {"kind": "mcp/*"}]},
        "templates": {"plan": ["look", "decide"]},
        "people": ["bob"],
    },
    "ledger": {
        "always": [{"kind": "mcp/response"}],
        "doors": {"ada": [{"kind": "*"}], "bob": [{"kind": "chat"}, {"kind": "mcp/*"}]},
        "revoked": {"bob": [{"kind": "mcp/request"}]},
        "grants": [["g-1", "ada", "bob", [{"kind": "reasoning/*"}], True]],
        "kicked": ["cyd"],
    },
    "contexts": {
        "open": {
            "s-1": {
                "path": "s-1",
                "owner": "ada",
                "start": "s-1",
                "triggers": ["q-1"],
                "opened": 1795913445022,
                "active": 1795913445022,
                "audience": ["ada", "bob"],
            }
        },
        "implicit": {"im": {"path": "im", "owner": "bob", "opened": 1795913445060, "active": 1795913445060}},
        "ended": {
            "s-2": {
                "path": "s-2",
                "owner": "ada",
                "start": "s-2",
                "status": "concluded",
                "opened": 1795913445036,
                "active": 1795913445036,
                "ended_by": "e-5",
            }
        },
        "recent": {"s-1": 3, "s-2": 4, "c-1": 6},
    },
    "proposals": {"p-1": {"id": "p-1", "proposer": "ada", "method": "tools/call"}},
    "present": {"ada": 1795913445000},
    "away": {"bob": 1795913445001},
    "requests": {"requests": {"r-1": {"to": ["bob"]}}},
    "talk": {
        "space": {"turns": 3, "tokens": 8, "since": 1795913445084},
        "contexts": {"s-1": {"tokens": 1, "since": 1795913445022}},
        "agents": {"ada": True},
    },
    "streams": {
        "stream-9": {
            "id": "stream-9",
            "owner": "ada",
            "writers": ["ada"],
            "created": 1795913445097,
            "opening": ["st-1", "e-9"],
            "details": {"direction": "upload", "encoding": "text"},
        }
    },
}
"""A dump as it has been written since there are streams."""
