"""Who is shown what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pellucid.envelopes import GATEWAY, Envelope
from pellucid.envelopes.reasoning import ContextPlace
from pellucid.envelopes.visibility import SPACE_VIEWS, SpaceViewer, is_shown, space_view
from pellucid.errors import RequestError
from tests.envelopes.life_kit import SENDERS, conversations, envelope_of, life, seed_flow

readers = st.builds(
    SpaceViewer, participant=st.sampled_from([*SENDERS, "watcher"]), reasoning=st.booleans(), observes=st.booleans()
)


def placed(conversation: list[Envelope]) -> list[tuple[Envelope, ContextPlace]]:
    space = life()
    told = [(envelope, space.feed(envelope)) for envelope in conversation]
    return [(envelope, verdict.place) for envelope, verdict in told if verdict.accepted]


def shown(log: list[tuple[Envelope, ContextPlace]], reader: SpaceViewer, *, advisory: bool = False) -> list[Envelope]:
    return [envelope for envelope, place in log if is_shown(envelope, place, reader, advisory=advisory)]


@given(conversations(), readers, st.booleans())
def test_main_is_in_collapsed_and_that_in_full_in_order(
    conversation: list[Envelope], reader: SpaceViewer, advisory: bool
) -> None:
    told = placed(conversation)
    main, collapsed, full = (
        [id(one) for one in shown(told, replace(reader, view=view), advisory=advisory)]
        for view in ("main", "collapsed", "full")
    )
    everything = [id(envelope) for envelope, _ in told]
    for less, more in ((main, collapsed), (collapsed, full), (full, everything)):
        rest = iter(more)
        assert all(one in rest for one in less)


@given(conversations(), readers, st.booleans())
def test_every_view_has_what_must_be_acted_on(
    conversation: list[Envelope], reader: SpaceViewer, advisory: bool
) -> None:
    me = reader.participant
    for envelope, place in placed(conversation):
        mine = not envelope.to or me in envelope.to
        for view in SPACE_VIEWS:
            seen = is_shown(envelope, place, replace(reader, view=view), advisory=advisory)
            if envelope.family == "mcp" and mine:
                assert seen
            if me in envelope.to and (reader.reasoning or envelope.family != "reasoning"):
                assert seen
            if envelope.sender == me or (envelope.kind == "reasoning/cancel" and place.owner == me and mine):
                assert seen


@given(conversations(), readers)
def test_addresses_restrict_unless_they_are_advisory(conversation: list[Envelope], reader: SpaceViewer) -> None:
    me = reader.participant
    for envelope, place in placed(conversation):
        everybody = replace(envelope, to=())
        for view in SPACE_VIEWS:
            mine = replace(reader, view=view)
            seen = is_shown(envelope, place, mine)
            if envelope.to and me not in (*envelope.to, envelope.sender):
                overheard = reader.observes and envelope.sender != GATEWAY
                assert seen == (overheard and is_shown(everybody, place, mine))
                if envelope.sender == GATEWAY:
                    assert not is_shown(envelope, place, mine, advisory=True)


@given(conversations(), readers)
def test_who_may_not_read_reasoning_reads_none(conversation: list[Envelope], reader: SpaceViewer) -> None:
    blind = replace(reader, reasoning=False)
    for envelope, place in placed(conversation):
        if envelope.family == "reasoning" and blind.participant not in (envelope.sender, place.owner):
            assert not is_shown(envelope, place, blind)


def test_collapsed_is_one_line_for_each_context() -> None:
    told = placed(seed_flow("option_5_many_agents"))
    watcher = SpaceViewer(participant="watcher", view="collapsed")
    kinds = [envelope.kind for envelope in shown(told, watcher) if envelope.family != "mcp"]

    start, end = "reasoning/start", "reasoning/conclusion"
    assert kinds == ["chat", start, start, end, end, "chat", "chat"]


def test_main_is_what_stands_in_no_context_and_what_asks_for_something() -> None:
    watcher = SpaceViewer(participant="watcher", view="main")
    told = placed(seed_flow("option_5"))
    assert [envelope.kind for envelope in shown(told, watcher)] == [
        "chat",
        "reasoning/start",
        "mcp/request",
        "mcp/request",
        "chat",
    ]
    blind = replace(watcher, reasoning=False)
    assert "reasoning/start" not in [envelope.kind for envelope in shown(told, blind)]
    option_3 = placed(seed_flow("file_write_option_3"))
    assert [envelope.kind for envelope in shown(option_3, blind)] == ["chat", "mcp/request", "chat"]


def test_an_agent_hears_that_its_reasoning_is_cancelled() -> None:
    told = placed([envelope_of("start", id="m1", by="a"), envelope_of("cancel", "m1", by="human")])
    for who, hears in {"a": True, "human": True, "b": False}.items():
        reader = SpaceViewer(participant=who, view="main", reasoning=False)
        assert is_shown(*told[1], reader) is hears


def test_a_welcome_is_nobody_elses() -> None:
    welcome = envelope_of("system/welcome", by=GATEWAY, to=["a"])
    observer = SpaceViewer(participant="watcher", observes=True)
    assert not is_shown(welcome, ContextPlace(), observer, advisory=True)


def test_a_view_is_one_of_three() -> None:
    assert [space_view(name) for name in SPACE_VIEWS] == list(SPACE_VIEWS)
    with pytest.raises(RequestError, match="did you mean 'collapsed'"):
        space_view("colapsed")
