"""Search finds every text that holds the query, in any script; the index changes only its speed."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import example, given
from hypothesis import strategies as st

from pellucid.emit import Emitter
from pellucid.events import RunEndEvent
from pellucid.parts import Origin
from pellucid.runs import Batch
from pellucid.runs.stored_run import build_finished_run
from pellucid.storage import Store, StoredChat, open_store, search, tables
from pellucid.storage.statement import Operation, Params, for_each
from pellucid.storage.statement import param as parameter
from tests.service_postgres import PostgresServer
from tests.storage.storage_kit import response, store_at

pytestmark = pytest.mark.anyio

# Characters that are special to LIKE, FTS5, SQL or a terminal; with case; with marks; of scripts without spaces.
PIECES = [
    *"aAbB%_\\\"'*:()^-+.{}?\n\t\x01\x1b\0 ",
    *["AND", "OR NOT", "NEAR(", "é", "e\u0301", "Ö", "ß", "SS", "ς", "Σ", "İ", "ı", "ﬁ", "Ｆ", "²"],
    *["漢", "字", "かな", "ｶﾞ", "한국", "한", "עברית", "ไทย", "हि", "😀", "👩\u200d🔬", "\U000f0001", "\ud800"],
]
texts = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)


def _add(texts: list[search.Text]) -> Operation[None]:
    return search.insert_texts(texts)


_ADD_EACH = for_each(_add)
T = tables.texts
NEWEST = search.search_query(
    [T.c.id],
    lambda matched: matched.texts.order_by(matched.number.desc()).limit(parameter("most", sa.BigInteger)),
)


def _newest(params: Params) -> Operation[list[str]]:
    rows = yield NEWEST.bind(params)
    return [row[0] for row in rows]


async def newest(store: Store, owner: str, query: str, most: int = 100) -> list[str]:
    """Return the ids of the newest texts of a room that match."""
    params = {**search.search_params(owner, "room", query), "most": most}
    return await store._database.read(_newest, params)


async def put(store: Store, owner: str, *texts: str) -> None:
    rows = [search.Text(owner, "room", "", str(place), text) for place, text in enumerate(texts)]
    await store._database.write(_ADD_EACH, rows)


def test_search_finds_exactly_the_texts_that_hold_the_query(url: str) -> None:
    with asyncio.Runner() as runner:
        store = runner.run(open_store(url))
        owners = itertools.count()

        @given(st.lists(texts, min_size=1, max_size=6), texts, st.data())
        @example(["100%", "100_", "100\\", "1000"], "0%", None)
        @example(['say "hi"', "say 'hi'"], '"hi"', None)
        def any_text(stored_texts: list[str], drawn_query: str, data: st.DataObject | None) -> None:
            owner = f"owner{next(owners)}"
            runner.run(put(store, owner, *stored_texts))
            runner.run(put(store, f"{owner}'s neighbour", *stored_texts))
            queries = [drawn_query]
            if data is not None:  # and a query that matches
                text = data.draw(st.sampled_from(stored_texts))
                at = data.draw(st.integers(0, len(text) - 1))
                queries.append(text[at : at + data.draw(st.integers(1, 9))])
            for query in queries:
                needle = search.fold_text(query)
                expected = [str(n) for n in range(len(stored_texts)) if needle in search.fold_text(stored_texts[n])]
                assert runner.run(newest(store, owner, query)) == expected[::-1], (stored_texts, query)

        try:
            any_text()
        finally:
            runner.run(store.aclose())


@pytest.mark.parametrize(
    ("text", "matches", "misses"),
    [
        ("Die Straße nach Łódź", ["STRASSE", "straße", "ŁÓDŹ"], ["Lodz", "strase"]),
        ("un café crème", ["CAFÉ", "cafe\u0301 c"], ["cafe", "creme"]),
        ("ΟΔΥΣΣΕΥΣ", ["οδυσσευς", "σσε"], ["odys"]),
        ("日本語の文章", ["日本", "語", "の文章"], ["日語"]),
        ("ｆｕｌｌ ﬁne ｶﾞｷﾞ", ["full", "FINE", "ガギ"], []),
        ("שלום עולם", ["לום ע"], ["םולש"]),
        ("a👩\u200d🔬b", ["👩\u200d🔬", "👩", "\u200d🔬b"], ["👨"]),
        ("tab\there\x01 and \0 there", ["b\th", "\x01 a", "\0"], ["b h"]),
        ("İstanbul", ["İSTANBUL", "stanbul"], ["istanbul"]),
    ],
)
async def test_search_folds_case_and_compatibility_characters(
    store: Store, text: str, matches: list[str], misses: list[str]
) -> None:
    await put(store, "ann", text)
    for query in matches:
        assert await newest(store, "ann", query) == ["0"], query
    for query in misses:
        assert await newest(store, "ann", query) == [], query


async def test_a_long_query_is_answered(store: Store) -> None:
    words = " ".join(f"word{n}" for n in range(3_000))
    await put(store, "ann", words, words.replace("word2999", "word"))
    assert await newest(store, "ann", words) == ["0"]
    assert await newest(store, "ann", "a" * 100_000) == []


async def test_search_works_without_the_trigram_extension(postgres_server: PostgresServer) -> None:
    """A database role that may create tables but no extension."""
    import asyncpg

    for allowed in (True, False):
        url = postgres_server.database()
        if not allowed:
            name = url.rsplit("/", 1)[1]
            postgres_server.sql(url, f"CREATE ROLE plain_{name} LOGIN; GRANT ALL ON SCHEMA public TO plain_{name}")
            url = url.replace("//postgres@", f"//plain_{name}@")
        async with store_at(url) as store:
            await put(store, "ann", "Marmalade for all", "and for 漢字漢字")
            assert await newest(store, "ann", "MALADE") == ["0"]
            assert await newest(store, "ann", "字漢字") == ["1"]
        connection = await asyncpg.connect(url)
        indexes = await connection.fetchval("SELECT count(*) FROM pg_indexes WHERE indexname = 'texts_grams'")
        await connection.close()
        assert indexes == allowed


@pytest.mark.parametrize(
    ("text", "query", "snippet"),
    [
        ("short", "HO", "short"),
        (f"{'x ' * 200}needle {'y ' * 200}", "Needle", f"…{'x ' * 20}needle {'y ' * 56}y…"),
        (f"{'ﬁ' * 300}needle", "NEEDLE", f"…{'ﬁ' * 40}needle"),
        (f"{'ﷺ ' * 3000}needle", "needle", f"…{'ﷺ ' * 20}needle"),  # in a later chunk
        (f"{'é ' * 2046}needle{'é' * 200}", "needle", f"…{'é ' * 20}needle{'é' * 114}…"),  # across two chunks
        (f"{'ﷺ ' * 3000}{'é' * 4000}", "é" * 3999, f"…{'ﷺ ' * 20}{'é' * 120}…"),
        ("lines\n\n  and\tmore", "and", "lines and more"),
    ],
)
def test_a_snippet_shows_the_match(text: str, query: str, snippet: str) -> None:
    assert search.snippet(text, query) == snippet


@pytest.mark.parametrize("marks", ["\u0300\u0316", "\u0344", "\uff9e\u0316"])
def test_combining_marks_are_reordered_in_short_runs(marks: str) -> None:
    """Ordering all of them takes quadratic time: one such text would block the server for minutes."""
    folded = search.fold_text(f"zo{marks * 90_000} needle")
    runs = re.findall(r"[\u0300-\u036f\u3099]+", folded.replace("\N{COMBINING GRAPHEME JOINER}", " "))
    assert len(runs) > 1000
    assert max(map(len, runs)) <= 64
    assert folded.endswith(" needle")
    assert search.snippet(f"zo{marks * 90_000} needle", "needle").endswith(" needle")


def test_usual_numbers_of_marks_are_independent_of_order() -> None:
    assert search.fold_text("a" + "\u0300\u0316" * 15) == search.fold_text("a" + "\u0316\u0300" * 15)
    assert "\N{COMBINING GRAPHEME JOINER}" not in search.fold_text("a" + "\u0316" * 30)


@pytest.mark.parametrize("filling", ["x", "é ", "ﷺ é "])
async def test_text_beyond_the_searched_length_is_not_found(store: Store, filling: str) -> None:
    """The stored texts are complete nevertheless."""
    text = f"needle {filling * 500_000} thimble"
    assert len(search.fold_text(text, search.MAX_SEARCHED_CHARS)) == search.MAX_SEARCHED_CHARS
    beginning = search.fold_text(text[: 2 * search.MAX_SEARCHED_CHARS])[: search.MAX_SEARCHED_CHARS]
    assert search.fold_text(text, search.MAX_SEARCHED_CHARS)[:-1] == beginning[:-1]
    await put(store, "ann", text, f"{filling * (search.MAX_SEARCHED_CHARS // 40 // len(filling))} thimble")
    assert await newest(store, "ann", "needle") == ["0"]
    assert await newest(store, "ann", "thimble") == ["1"]
    assert search.snippet(text, "NEEDLE").startswith("needle")
    assert search.snippet(text, "THIMBLE").startswith("needle")  # this part is not searched
    assert await store._database.read(_text, None) == text


def _text(_: None) -> Operation[str | None]:
    return (yield from search.get_text("ann", "room", "0"))


async def test_a_snippet_is_of_the_newest_turn_that_matches(store: Store) -> None:
    for n, text in enumerate(["Marmalade first", "Marmalade second", "none"]):
        current = await store.chats.get("ann", "chat") or StoredChat(
            id="chat", owner="ann", title="Marmalade", created_at=1.0, updated_at=1.0
        )
        row = response(f"evt_{n}", status="queued", conversation_id="chat", previous_id=current.head, text=text)
        await store.chats.begin_turn(current, row, 1)
        await store.responses.finish(response(row.id, text=f"{text}\n\nanswer"), [], 1)
    for query, snippet in ("marmalade", "Marmalade second answer"), ("first", "Marmalade first answer"):
        assert [item.snippet for item in (await store.chats.list("ann", query=query)).chats] == [snippet]
    assert [item.snippet for item in (await store.chats.list("ann")).chats] == [None]


def _turn_events() -> Iterator[Any]:
    emitter = Emitter(Origin("p", "chat", "m"))
    emitter.start()
    emitter.thinking("r", "What I think of it")
    emitter.text("t", "First this.")
    emitter.finish("stop")
    yield from emitter.end()


def test_thoughts_are_not_searchable() -> None:
    events = [*_turn_events(), RunEndEvent("completed")]
    row = response(status="in_progress", text="What was asked")
    assert build_finished_run(row, [Batch(2_000, events)]).row.text == "What was asked\n\nFirst this."
    assert build_finished_run(response(status="in_progress"), [Batch(2_000, events)]).row.text is None
