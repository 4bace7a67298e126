"""Which envelopes a viewer sees, in each view."""

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

viewers = st.builds(
    SpaceViewer, participant=st.sampled_from([*SENDERS, "watcher"]), reasoning=st.booleans(), observes=st.booleans()
)


def place_all(conversation: list[Envelope]) -> list[tuple[Envelope, ContextPlace]]:
    space = life()
    log = [(envelope, space.feed(envelope)) for envelope in conversation]
    return [(envelope, verdict.place) for envelope, verdict in log if verdict.accepted]


def visible(log: list[tuple[Envelope, ContextPlace]], viewer: SpaceViewer) -> list[Envelope]:
    return [envelope for envelope, place in log if is_shown(envelope, place, viewer)]


@given(conversations(), viewers, st.booleans())
def test_each_view_contains_the_smaller_one_in_order(
    conversation: list[Envelope], viewer: SpaceViewer, advisory: bool
) -> None:
    log = place_all(conversation)
    main, collapsed, full = (
        [id(one) for one in visible(log, replace(viewer, view=view, advisory=advisory))]
        for view in ("main", "collapsed", "full")
    )
    everything = [id(envelope) for envelope, _ in log]
    for less, more in ((main, collapsed), (collapsed, full), (full, everything)):
        rest = iter(more)
        assert all(one in rest for one in less)


@given(conversations(), viewers, st.booleans())
def test_every_view_shows_what_requires_action(
    conversation: list[Envelope], viewer: SpaceViewer, advisory: bool
) -> None:
    me = viewer.participant
    for envelope, place in place_all(conversation):
        mine = not envelope.to or me in envelope.to
        for view in SPACE_VIEWS:
            seen = is_shown(envelope, place, replace(viewer, view=view, advisory=advisory))
            if envelope.family == "mcp" and mine:
                assert seen
            if me in envelope.to and envelope.family != "reasoning":
                assert seen
            if view == "main" and envelope.family == "reasoning" and envelope.sender != me:
                assert not seen or (envelope.kind == "reasoning/cancel" and place.owner == me)
            if envelope.sender == me or (envelope.kind == "reasoning/cancel" and place.owner == me and mine):
                assert seen


@given(conversations(), viewers)
def test_addresses_restrict_unless_they_are_advisory(conversation: list[Envelope], viewer: SpaceViewer) -> None:
    me = viewer.participant
    for envelope, place in place_all(conversation):
        everybody = replace(envelope, to=())
        for view in SPACE_VIEWS:
            mine = replace(viewer, view=view)
            seen = is_shown(envelope, place, mine)
            if envelope.to and me not in (*envelope.to, envelope.sender):
                overheard = viewer.observes and envelope.sender != GATEWAY
                assert seen == (overheard and is_shown(everybody, place, mine))
                if envelope.sender == GATEWAY:
                    assert not is_shown(envelope, place, replace(mine, advisory=True))


@given(conversations(), viewers)
def test_viewers_without_reasoning_see_none(conversation: list[Envelope], viewer: SpaceViewer) -> None:
    blind = replace(viewer, reasoning=False)
    for envelope, place in place_all(conversation):
        if envelope.family == "reasoning" and blind.participant not in (envelope.sender, place.owner):
            assert not is_shown(envelope, place, blind)


def test_collapsed_is_one_line_for_each_context() -> None:
    log = place_all(seed_flow("option_5_many_agents"))
    watcher = SpaceViewer(participant="watcher", view="collapsed")
    kinds = [envelope.kind for envelope in visible(log, watcher) if envelope.family != "mcp"]

    start, end = "reasoning/start", "reasoning/conclusion"
    assert kinds == ["chat", start, start, end, end, "chat", "chat"]


def test_the_main_view_shows_requests_and_envelopes_outside_contexts() -> None:
    watcher = SpaceViewer(participant="watcher", view="main")
    log = place_all(seed_flow("option_5"))
    assert [envelope.kind for envelope in visible(log, watcher)] == [
        "chat",
        "mcp/request",
        "mcp/request",
        "chat",
    ]
    blind = replace(watcher, reasoning=False)
    assert visible(log, blind) == visible(log, watcher)
    option_3 = place_all(seed_flow("file_write_option_3"))
    assert [envelope.kind for envelope in visible(option_3, blind)] == ["chat", "mcp/request", "chat"]


def test_an_agent_sees_the_cancellation_of_its_reasoning() -> None:
    log = place_all([envelope_of("start", id="m1", by="a"), envelope_of("cancel", "m1", by="human")])
    for participant, sees in {"a": True, "human": True, "b": False}.items():
        viewer = SpaceViewer(participant=participant, view="main", reasoning=False)
        assert is_shown(*log[1], viewer) is sees


def test_a_welcome_is_shown_to_its_recipient_only() -> None:
    welcome = envelope_of("system/welcome", by=GATEWAY, to=["a"])
    observer = SpaceViewer(participant="watcher", observes=True, advisory=True)
    assert not is_shown(welcome, ContextPlace(), observer)


def test_an_unknown_view_is_refused() -> None:
    assert [space_view(name) for name in SPACE_VIEWS] == list(SPACE_VIEWS)
    with pytest.raises(RequestError, match="did you mean 'collapsed'"):
        space_view("colapsed")
