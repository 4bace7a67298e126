"""No viewer gets more than they may see: not in a snippet, a count, a shape, a reference or an export."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import Envelope, context
from pellucid.envelopes.lifecycle import Mode
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.envelopes.visibility import SPACE_VIEWS, SpaceViewer, is_shown
from pellucid.spaces.history import context_tree, summaries, visible_log
from pellucid.spaces.history.history import History
from pellucid.spaces.history.training import REASONING_FORMS
from pellucid.storage import StoredEnvelope
from tests.envelopes.life_kit import conversations, envelope_of
from tests.examples import costly
from tests.spaces.history_kit import MODES, SpaceLog, SpaceStore, collected, space_store_in

SENDERS = ["alba", "bert", "cleo"]
readers = st.builds(
    SpaceViewer,
    participant=st.sampled_from([*SENDERS, "watcher"]),
    view=st.sampled_from(SPACE_VIEWS),
    reasoning=st.booleans(),
    observes=st.booleans(),
    advisory=st.booleans(),
)
MARK = re.compile(r"kanary\d+|\bm\d\b|\balba\b|\bbert\b|\bcleo\b|\blabel\b|\bsub\b")
"""Whatever identifies an envelope: its text, its id, its sender, the names of contexts."""


@pytest.fixture(scope="module")
def space_store() -> Iterator[SpaceStore]:
    with space_store_in("sqlite://") as opened:
        yield opened


def marked(conversation: list[Envelope]) -> list[Envelope]:
    """Give every envelope a text of its own, in every field that can have text."""
    return [
        replace(envelope, payload=envelope.payload | _words(envelope, f"kanary{number} needle"))
        for number, envelope in enumerate(conversation)
    ]


def _words(envelope: Envelope, words: str) -> dict[str, Any]:
    if envelope.kind in ("mcp/request", "mcp/proposal"):
        tool = {"name": words.partition(" ")[0], "arguments": {"q": words}}
        return {"method": "tools/call", "params": tool}
    if envelope.kind == "mcp/response":
        return {"result": {"content": [{"type": "text", "text": words}], "tools": [{"name": words}]}}
    return {"text" if envelope.kind == "chat" else "message": words, "details": words, "confidence": 0.5}


async def read_everything(history: History, seqs: range) -> bytes:
    """Return the results of every query."""
    contexts = await history.contexts()
    results: list[Any] = [
        await history.page(),
        await history.page(newest=True, limit=3),
        await history.page(kinds=("reasoning/*", "chat")),
        await history.page(within="m0"),
        await history.page(sender="alba", limit=1, newest=True),
        await history.page(after=2, limit=1, kinds=("mcp/*",)),
        await history.page(within="hidden", limit=1),
        await history.search("NEEDLE"),
        await history.search("needle", limit=1, before=len(seqs)),
        await history.search("needle", sender="zed", kinds=("chat",)),
        await history.search("kanary1"),
        contexts,
        await history.contexts(limit=1),
        await history.contexts(limit=1, before=len(seqs) // 2),
        await history.patterns(),
        await history.patterns(limit=1),
        *[await history.tree(line.path) for line in contexts.contexts],
        *[await history.tree(path) for path in ("m0", "m1", "m0/m1", "label", "nothing")],
        *[await history.references(seq) for seq in seqs],
        *[await history.one(seq) for seq in seqs],
        # Where an envelope stands (`place`) is for the server's own use: no query returns it.
        *[stored.envelope for number in range(8) if (stored := await history.log.by_id(f"m{number}"))],
        [batch async for batch in history.replay()],
    ]
    encoded = [msgspec.json.encode(results)]
    encoded += [await collected(history.export("jsonl")), await collected(history.export("otel"))]
    encoded += [await collected(history.export("chat-jsonl", reasoning=form)) for form in REASONING_FORMS]
    return b"\n".join(encoded)


@costly
@given(conversations(max_size=24, senders=SENDERS), readers, st.sampled_from(MODES))
def test_no_query_reveals_more_than_the_visible_envelopes(
    space_store: SpaceStore, conversation: list[Envelope], reader: SpaceViewer, mode: Mode
) -> None:
    space = space_store.space(marked(conversation), mode=mode)
    history = space.history(reader)
    output = space.run(read_everything(history, range(1, len(space.log) + 1))).decode()

    seen = space.shown(reader)
    visible_marks = set(MARK.findall(msgspec.json.encode([[one.envelope, one.place.path] for one in seen]).decode()))
    assert set(MARK.findall(output)) <= visible_marks | {reader.participant}
    # The page and the export contain everything that is visible.
    page = space.run(history.page(limit=500))
    assert page.envelopes == tuple(one.envelope for one in seen)


@costly
@given(conversations(max_size=24, senders=SENDERS), readers, st.sampled_from(MODES), st.randoms())
def test_what_a_viewer_may_not_see_changes_no_answer(
    space_store: SpaceStore, conversation: list[Envelope], reader: SpaceViewer, mode: Mode, random: Random
) -> None:
    space = space_store.space(marked(conversation), mode=mode)
    seen = space.shown(reader)
    other = space_store.rows(
        [one if one in seen else hidden_instead_of(one, seen, reader, random) for one in space.log]
    )
    assert other.shown(reader) == seen
    answers = [
        one.run(read_everything(one.history(reader), range(1, len(one.log) + 1))).replace(
            f'"{one.name}"'.encode(), b'"room"'
        )
        for one in (space, other)
    ]
    assert answers[0] == answers[1]


def hidden_instead_of(
    stored: StoredEnvelope, seen: list[StoredEnvelope], reader: SpaceViewer, random: Random
) -> StoredEnvelope:
    """Return another envelope that the viewer does not see either.

    In a context of which the viewer sees a part, only the text is another one.
    """
    same_place = replace(stored, envelope=replace(stored.envelope, payload={"text": "hidden needle kanary1"}))
    root = None if stored.place.path is None else context.root(stored.place.path)
    if root is not None and any(one.place.path and context.root(one.place.path) == root for one in seen):
        return same_place
    kind, place = random.choice(HIDDEN)
    other = replace(
        stored,
        place=place,
        envelope=Envelope(
            id="hidden" if place.role == "opens" else f"z{stored.envelope.seq}",
            ts=stored.envelope.ts,
            seq=stored.envelope.seq,
            sender="zed",
            to=("zed",),
            kind=kind,
            correlation_id=(random.choice(["m0", "m1", "m2", "hidden"]),),
            context=place.path if place.role != "opens" else None,
            payload={"text": "needle kanary1", "message": "needle", "method": "tools/list"},
        ),
    )
    return same_place if is_shown(other.envelope, other.place, reader) else other


HIDDEN = (
    ("chat", ContextPlace()),
    ("mcp/request", ContextPlace()),
    ("reasoning/start", ContextPlace("hidden", "opens", "zed")),
    ("reasoning/thought", ContextPlace("hidden", "step", "zed")),
    ("reasoning/conclusion", ContextPlace("hidden", "ends", "zed")),
)


def test_a_search_is_no_oracle_for_the_text_of_others(space_store: SpaceStore) -> None:
    chats = [envelope_of("chat", by="alba", text="hello"), envelope_of("chat", by="alba", to=["bert"], text="pin 4831")]
    plan = envelope_of("start", by="alba", id="plan", to=["bert"], message="a secret")
    space = space_store.space([*chats, plan, envelope_of("thought", "plan", by="alba", to=["bert"], message="zebra")])
    history = space.history("watcher")
    assert space.run(history.search("pin 4831")) == space.run(history.search("pin 9999"))
    for filters in ({"within": "plan"}, {"kinds": ("reasoning/*",)}, {"sender": "alba", "kinds": ("reasoning/start",)}):
        for newest in (False, True):
            page = space.run(history.page(newest=newest, **filters))
            assert (page.envelopes, page.has_more, page.first, page.last) == ((), False, 1, 4)
    assert [len(space.run(one).hits) for one in (history.search("hello"), history.search("pin"))] == [1, 0]
    assert space.run(history.contexts()) == space.run(space_store.space([]).history("watcher").contexts())


def test_a_result_ends_at_a_number_whatever_is_hidden(space_store: SpaceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (visible_log, summaries, context_tree):
        monkeypatch.setattr(module, "MAX_RANGE", 10)
    whispers = [envelope_of("chat", by="alba", to=["bert"], text="psst") for _ in range(23)]
    space = space_store.space([envelope_of("chat", by="alba", text="psst"), *whispers])
    history = space.history("watcher")
    reached: list[tuple[int, bool, int]] = []
    before: int | None = None
    while not reached or reached[-1][1]:
        hits = space.run(history.search("psst", before=before))
        before = hits.before
        reached.append((hits.before, hits.has_more, len(hits.hits)))
    assert reached == [(15, True, 0), (5, True, 0), (1, False, 1)]
    pages = [space.run(history.page(after=after, kinds=("chat",))) for after in (0, 10, 20)]
    assert [(one.first, one.last, one.has_more) for one in pages] == [(1, 10, True), (11, 20, True), (21, 24, False)]
    lines = space.run(history.contexts())
    assert (lines.before, lines.has_more) == (15, True)


def test_a_viewer_without_reasoning_sees_the_status_of_a_context_and_not_its_text(
    space_store: SpaceStore,
) -> None:
    space = space_store.space(
        [
            envelope_of("chat", by="human", id="secret-question", to=["agent"], text="psst"),
            envelope_of("start", by="agent", id="m1", about="secret-question", to=["human"], message="hidden start"),
            envelope_of("request", "m1", by="agent", id="call", method="tools/call", params={"name": "scan"}),
            envelope_of("conclusion", "m1", by="agent", to=["human"], message="hidden end"),
        ]
    )
    reader = SpaceViewer(participant="watcher", reasoning=False)
    (line,) = space.run(space.history(reader).contexts()).contexts
    assert (line.path, line.status, line.kinds) == ("m1", "concluded", {"mcp/request": 1})
    assert (line.start, line.conclusion, line.triggers, line.ended) == ("", "", (), None)
    (pattern,) = space.run(space.history(reader).patterns()).patterns
    assert pattern.shape == ("call scan",)
    line_of_training = space.run(collected(space.history(reader).export("chat-jsonl")))
    assert b"psst" not in line_of_training
    assert b"hidden" not in line_of_training


def test_the_owner_of_a_hidden_context_is_not_revealed(space_store: SpaceStore) -> None:
    space = space_store.space(
        [
            envelope_of("thought", "talk", by="agent", to=["human"], message="psst"),
            envelope_of("chat", "talk", by="human", text="so?"),
        ]
    )
    (line,) = space.run(space.history("watcher").contexts()).contexts
    tree = space.run(space.history("watcher").tree("talk"))
    assert tree is not None
    assert (line.owner, tree.trees[0].owner) == ("", "")
    assert space.run(space.history("human").contexts()).contexts[0].owner == "agent"


def test_references_into_unreadable_spaces_are_unknown(space_store: SpaceStore) -> None:
    other = space_store.space(
        [
            envelope_of("chat", by="human", id="open", text="to be read"),
            envelope_of("chat", by="human", id="closed", to=["agent"], text="kanary1"),
        ],
        name="other",
    )
    names = ["space:other/open", "space:other/closed", "space:other/none", "space:third/open", "space:", "nothing"]
    here = space_store.space([envelope_of("start", by="watcher", id="m1", references=names)])

    async def elsewhere(name: str) -> History | None:
        return other.history("watcher") if name == "other" else None

    for other_history, expected_ids in ((elsewhere, ["open"]), (None, [])):
        answer = here.run(here.history("watcher", other_history=other_history).references(1))
        assert answer is not None
        assert [one.name for one in answer.references] == names
        assert [one.envelope.id for one in answer.references if one.envelope is not None] == expected_ids


def test_a_hidden_envelope_is_reported_like_a_missing_one(space_store: SpaceStore) -> None:
    space: SpaceLog = space_store.space([envelope_of("chat", by="human", id="whisper", to=["agent"], text="kanary1")])
    history = space.history("watcher")
    for read in (history.one, history.references):
        assert space.run(read(1)) is None
        assert space.run(read(2)) is None
    assert space.run(history.log.by_id("whisper")) is None
    assert space.run(history.search("kanary1")).hits == ()
