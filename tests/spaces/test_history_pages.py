"""Pages, search and replay give every visible envelope once, in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import Envelope, context
from pellucid.envelopes.visibility import SpaceViewer
from pellucid.errors import RequestError
from pellucid.spaces.history.history import History, ReplayRange
from tests.envelopes.life_kit import conversations, envelope_of
from tests.examples import costly
from tests.service_postgres import postgres_server
from tests.spaces.history_kit import SpaceLog, SpaceStore, space_store

__all__ = ["postgres_server", "space_store"]


readers = st.builds(
    SpaceViewer, participant=st.sampled_from(["a", "watcher"]), reasoning=st.booleans(), observes=st.booleans()
)


async def read_forwards(history: History, limit: int, **filters: object) -> list[Envelope]:
    envelopes: list[Envelope] = []
    after, more = 0, True
    while more:
        page = await history.page(after=after, limit=limit, **filters)  # type: ignore[arg-type]
        assert len(page.envelopes) <= limit
        assert len(page.at) == len(page.envelopes)
        assert all(page.first <= one.seq <= page.last for one in page.envelopes)
        envelopes += page.envelopes
        after, more = page.last, page.has_more
    return envelopes


async def read_backwards(history: History, limit: int, **filters: object) -> list[Envelope]:
    envelopes: list[Envelope] = []
    before: int | None = None
    more = True
    while more:
        page = await history.page(before=before, limit=limit, newest=True, **filters)  # type: ignore[arg-type]
        envelopes = [*page.envelopes, *envelopes]
        before, more = page.first, page.has_more
    return envelopes


@costly
@given(conversations(), readers, st.integers(1, 7), st.sampled_from([(), ("chat",), ("reasoning/*", "mcp/request")]))
def test_pages_in_either_direction_give_the_whole_history(
    space_store: SpaceStore, conversation: list[Envelope], reader: SpaceViewer, limit: int, kinds: tuple[str, ...]
) -> None:
    space = space_store.space(conversation)
    seen = [one.envelope for one in space.shown(reader)]
    history = space.history(reader)
    assert space.run(read_forwards(history, limit)) == seen == space.run(read_backwards(history, limit))

    families = {kind.removesuffix("/*") for kind in kinds}
    expected = [one for one in seen if not kinds or one.kind in families or one.family in families]
    assert (
        space.run(read_forwards(history, limit, kinds=kinds))
        == expected
        == space.run(read_backwards(history, limit, kinds=kinds))
    )
    inside = [one.envelope for one in space.shown(reader) if context.is_within(one.place.path, "m0")]
    assert space.run(read_forwards(history, limit, within="m0")) == inside


def test_a_page_skips_hidden_envelopes(space_store: SpaceStore) -> None:
    whispers = [envelope_of("chat", by="a", id=f"w{number}", to=["b"], text="psst") for number in range(1_200)]
    space = space_store.space(
        [envelope_of("chat", id="first", text="hey"), *whispers, envelope_of("chat", id="last", text="ho")]
    )
    page = space.run(space.history("watcher").page(limit=2))
    assert ([one.id for one in page.envelopes], page.has_more) == (["first", "last"], False)
    newest = space.run(space.history("watcher").page(limit=2, newest=True))
    assert [one.id for one in newest.envelopes] == ["first", "last"]


def test_search_finds_text_in_every_script_page_by_page(space_store: SpaceStore) -> None:
    texts = ["Straßenbahn", "токен истёк", "令牌已过期", "انتهت الصلاحية", "a needle in much hay " * 40]
    visible = [
        envelope_of("thought", "talk", by="a", message=f"{number}: {text}") for number, text in enumerate(texts * 3)
    ]
    hidden = [envelope_of("chat", by="a", to=["b"], text=f"hidden {text}") for text in texts]
    space = space_store.space([*visible, *hidden])
    history = space.history("watcher")
    for query in ("STRASSEN", "ТОКЕН", "已过", "الصلاحية", "needle"):
        seqs: list[int] = []
        before: int | None = None
        more = True
        while more:
            hits = space.run(history.search(query, before=before, limit=2))
            assert all(query.casefold() in hit.snippet.casefold() for hit in hits.hits)
            assert all(len(hit.snippet) < 200 for hit in hits.hits)
            seqs += [hit.envelope.seq for hit in hits.hits]
            before, more = hits.before, hits.has_more
        assert len(seqs) == 3
        assert seqs == sorted(seqs, reverse=True)
    assert space.run(history.search("needle", kinds=("chat",))).hits == ()
    assert len(space.run(history.search("needle", within="talk")).hits) == 3
    assert space.run(history.search("")).hits == ()


@costly
@given(conversations(), readers, st.none() | st.integers(0, 10), st.none() | st.integers(0, 30))
def test_a_replay_gives_the_visible_envelopes_flagged(
    space_store: SpaceStore, conversation: list[Envelope], reader: SpaceViewer, after: int | None, before: int | None
) -> None:
    space = space_store.space(conversation)
    replayed = space.run(collect_replay(space.history(reader), after=after or 0, before=before))
    low, high = after or 0, before if before is not None else 1_000
    assert replayed == [
        replace(one.envelope, replayed=True) for one in space.shown(reader) if low < one.envelope.seq < high
    ]


async def collect_replay(history: History, sleep: Any = asyncio.sleep, **filters: Any) -> list[Envelope]:
    return [one async for batch in history.replay(ReplayRange(**filters), sleep=sleep) for one in batch]


class RecordingSleep:
    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)


def talk(space_store: SpaceStore, number: int = 6) -> SpaceLog:
    """Create a space with one chat a second; every second one is addressed to b."""
    return space_store.space(
        [envelope_of("chat", by="a", to=["b"] if one % 2 else [], text=f"{one}") for one in range(number)]
    )


@pytest.mark.parametrize("speed", [0.5, 1, 4])
def test_a_replay_keeps_the_pace_of_the_visible_envelopes(space_store: SpaceStore, speed: float) -> None:
    sleep = RecordingSleep()
    replayed = space_store.run(collect_replay(talk(space_store).history("watcher"), speed=speed, sleep=sleep))
    assert ([one.seq for one in replayed], sleep.pauses) == ([1, 3, 5], [2 / speed, 2 / speed])


def test_long_pauses_are_limited_and_short_ones_skipped(space_store: SpaceStore) -> None:
    space = talk(space_store)
    sleep = RecordingSleep()
    space_store.run(collect_replay(space.history("watcher"), speed=1, sleep=sleep, longest_pause=0.5))
    assert sleep.pauses == [0.5, 0.5]
    space_store.run(collect_replay(space.history("watcher"), speed=1e6, sleep=sleep))
    space_store.run(collect_replay(space.history("watcher"), sleep=sleep))
    assert len(sleep.pauses) == 2


def test_a_replay_can_be_limited_by_time(space_store: SpaceStore) -> None:
    history = talk(space_store).history("b")
    assert [one.seq for one in space_store.run(collect_replay(history, since=2_500, until=5_000))] == [3, 4]
    assert [one.seq for one in space_store.run(collect_replay(history, since=0, after=4))] == [5, 6]
    assert space_store.run(collect_replay(history, since=99_000)) == []


def test_an_invalid_speed_is_refused(space_store: SpaceStore) -> None:
    for speed in (0, -1, float("nan"), float("inf")):
        with pytest.raises(RequestError, match="speed"):
            space_store.run(collect_replay(talk(space_store).history("b"), speed=speed))


def test_a_replay_can_be_cancelled_during_a_pause(space_store: SpaceStore) -> None:
    async def cancelled() -> int:
        replayed: list[Envelope] = []
        is_paused = asyncio.Event()

        async def sleep(_: float) -> None:
            is_paused.set()
            await asyncio.Event().wait()

        async def listen() -> None:
            async for batch in space.history("b").replay(ReplayRange(speed=1), sleep=sleep):
                replayed.extend(batch)

        task = asyncio.create_task(listen())
        await is_paused.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(replayed)

    space = talk(space_store)
    assert space_store.run(cancelled()) == 1
