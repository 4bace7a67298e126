"""The state judges envelopes and is the fold of the accepted ones; a refused one changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pellucid.envelopes import GATEWAY, Defaults, Envelope, EnvelopeError, Present, gateway_messages, kinds, read
from pellucid.errors import RequestError
from pellucid.spaces.runtime.settings import SpaceSettings, check_name, read_settings
from pellucid.spaces.runtime.state import ConfiguredAccess, SpaceState
from pellucid.storage import StoredEnvelope
from tests.spaces.test_space_properties import envelopes, names

CAPABILITIES: dict[str, tuple[str | dict[str, Any], ...] | None] = {
    "ada": ("*",),
    "bob": ("chat", "reasoning/*", "mcp/*", "capability/*"),
    "cyd": ("chat", "reasoning/step"),
    "dee": ("chat", {"kind": "mcp/*", "to": "ada"}),
}

doors = st.dictionaries(names, st.sampled_from(sorted(CAPABILITIES.values(), key=repr)), max_size=4)
steps = st.one_of(
    st.tuples(st.just("say"), names, envelopes()),
    st.tuples(st.just("say"), names, envelopes()),
    st.tuples(st.just("say"), names, envelopes()),
    st.tuples(st.just("presence"), names, st.sampled_from(["join", "leave"])),
    st.tuples(st.just("kick"), names, names),
    st.tuples(st.just("invite"), names, st.sampled_from(["ada", "bob", "eve"])),
    st.tuples(st.just("doors"), doors),
    st.tuples(st.just("cancel"), st.just(None)),
)


def configuration_envelope(state: SpaceState, wanted: ConfiguredAccess) -> Envelope | None:
    payload = state.configuration_change(wanted)
    return payload and Envelope(id="c", ts=0, sender=GATEWAY, to=(GATEWAY,), kind=kinds.CONFIGURED, payload=payload)  # type: ignore[return-value]


def envelope_for(state: SpaceState, step: tuple[Any, ...], number: int) -> Envelope | None:
    match step:
        case ("say", who, written):
            try:
                return read(written, None, Defaults(who, f"n-{number}", number))
            except EnvelopeError:
                return None
        case ("presence", who, event):
            return gateway_messages.presence(f"p-{number}", number, event, Present(who))
        case ("kick", who, participant):
            payload = {"participant_id": participant, "reason": "noise"}
            return Envelope(id=f"k-{number}", ts=0, sender=who, kind="space/kick", payload=payload)
        case ("invite", who, participant):
            payload = {"participant_id": participant, "initial_capabilities": ["chat"]}
            return Envelope(id=f"i-{number}", ts=0, sender=who, kind="space/invite", payload=payload)
        case ("doors", capabilities_by_name):
            return configuration_envelope(
                state, ConfiguredAccess(always=("mcp/response",), participants=capabilities_by_name, templates={})
            )
        case _:
            path = next(iter(state.lifecycle.state.open), None)
            return path and Envelope(id=f"x-{number}", ts=0, sender=GATEWAY, kind="reasoning/cancel", context=path)  # type: ignore[return-value]


@given(
    script=st.lists(steps, max_size=40),
    how=st.builds(
        SpaceSettings,
        reasoning=st.sampled_from(["strict", "flag", "off"]),
        responses=st.sampled_from(["strict", "flag"]),
        addresses=st.sampled_from(["restrict", "advisory"]),
    ),
    cut=st.integers(0, 40),
)
def test_the_state_is_the_fold_of_the_accepted_envelopes(
    script: list[tuple[Any, ...]], how: SpaceSettings, cut: int
) -> None:
    """From the beginning, or from a dump at any position, under any settings; also after erasures."""
    state = SpaceState(how)
    first = configuration_envelope(
        state, ConfiguredAccess(always=("mcp/response",), participants=CAPABILITIES, templates={})
    )
    assert first is not None
    log: list[StoredEnvelope] = []
    dumped: tuple[int, bytes] = (0, state.dump())
    changes = []
    for number, step in enumerate([("first",), *script]):
        envelope = first if number == 0 else envelope_for(state, step, number)
        if envelope is None:
            continue
        before = state.dump()
        outcome = state.judge(envelope, number)
        if outcome.stored is None:
            assert outcome.error is not None
            assert state.dump() == before, "a refused envelope changes nothing"
            continue
        assert outcome.stored.envelope.seq == state.head == len(log) + 1
        log.append(outcome.stored)
        changes.append(outcome.changes)
        if number == cut:
            dumped = (state.head, state.dump())
    replayed = SpaceState(SpaceSettings())
    assert [replayed.replay(one) for one in log] == changes
    assert replayed.dump() == state.dump()
    resumed = SpaceState.load(SpaceSettings(), dumped[1])
    for one in log[dumped[0] :]:
        resumed.replay(one)
    assert resumed.dump() == state.dump()
    erased_state = SpaceState(how)
    for one in log:
        erased_state.replay(erase(one))
    for name in CAPABILITIES:
        assert erased_state.capabilities(name) == state.capabilities(name)
    assert erased_state.present_since == state.present_since


def erase(one: StoredEnvelope) -> StoredEnvelope:
    return msgspec.structs.replace(
        one, envelope=msgspec.structs.replace(one.envelope, payload={}, extra={"erased": True})
    )


def configured_state(**settings: Any) -> SpaceState:
    """A state with the participants in `CAPABILITIES`."""
    state = SpaceState(SpaceSettings(**settings))
    wanted = ConfiguredAccess(always=("mcp/response",), participants=CAPABILITIES, templates={})
    assert state.judge(configuration_envelope(state, wanted) or _never(), 0).stored is not None
    return state


@given(st.lists(st.tuples(st.just("say"), st.sampled_from(["bob", "cyd", "dee"]), envelopes()), max_size=40))
def test_an_answer_is_read_by_those_who_may_read_what_it_answers(script: list[tuple[Any, ...]]) -> None:
    """No answer without recipients reaches anyone else, wherever it is, and who may not read something settles nothing
    of it."""
    state = configured_state(responses="flag")
    readers: dict[tuple[str, str], tuple[str, ...]] = {}
    for number, step in enumerate(script):
        envelope = envelope_for(state, step, number)
        if envelope is None:
            continue
        statuses = {id: one.status for id, one in state.proposals.state.items()}
        stored = state.judge(envelope, number).stored
        if stored is None:
            continue
        accepted = stored.envelope
        for id, status in statuses.items():
            if accepted.id != id and state.proposals.state[id].status != status:
                assert may_read(accepted.sender, readers["mcp/proposal", id])
        if accepted.kind in ("mcp/response", "mcp/reject", "mcp/withdraw") and not accepted.to:
            for target in ((kind, id) for kind in ("mcp/request", "mcp/proposal") for id in accepted.correlation_id):
                answered = readers.get(target, ())
                if answered and may_read(accepted.sender, answered) and not in_private_context(state, accepted):
                    assert accepted.readers
                    assert set(accepted.readers) <= set(answered)
        readers[accepted.kind, accepted.id] = accepted.readers


def may_read(participant: str, readers: tuple[str, ...]) -> bool:
    return not readers or participant in readers


def in_private_context(state: SpaceState, envelope: Envelope) -> bool:
    contexts = state.lifecycle.contexts
    return envelope.context is not None and contexts.audience(contexts.resolve(envelope.context)) is not None


def say(state: SpaceState, who: str, kind: str, id: str = "", **fields: Any) -> Envelope:
    """Judge an envelope that is accepted; return it as it is stored."""
    envelope = read({"kind": kind, "id": id or f"n-{state.head}", "payload": {}, **fields}, None, Defaults(who, "", 0))
    outcome = state.judge(envelope, 0)
    assert outcome.stored is not None, outcome.error
    return outcome.stored.envelope


def private_space() -> SpaceState:
    """A state with a context of ada and dee, in which ada asks and proposes something."""
    state = configured_state()
    say(state, "ada", "reasoning/start", "r-1", to=["dee"])
    say(state, "ada", "mcp/request", "q-1", context="r-1", payload={"method": "tools/call", "params": {"name": "x"}})
    say(state, "ada", "mcp/proposal", "p-1", context="r-1", payload={"method": "tools/list"})
    say(state, "ada", "mcp/request", "q-2", to=["dee"], payload={"method": "tools/list"})
    say(state, "ada", "mcp/proposal", "p-2", to=["bob"], payload={"method": "tools/list"})
    return state


@pytest.mark.parametrize("about", ["q-1", "q-2"])
@pytest.mark.parametrize("context", [None, "r-2"])
def test_an_answer_stays_with_those_who_could_read_the_request(about: str, context: str | None) -> None:
    """Also if its context is for everyone."""
    state = private_space()
    say(state, "bob", "reasoning/start", "r-2")
    fields: dict[str, Any] = {"correlation_id": [about], "context": context, "payload": {"result": 1}}
    assert set(say(state, "dee", "mcp/response", **fields).readers) == {"ada", "dee"}


def test_an_answer_to_several_is_for_those_who_may_read_all() -> None:
    state = private_space()
    say(state, "bob", "mcp/request", "q-3", to=["dee", "cyd"], payload={"method": "tools/list"})
    say(state, "bob", "mcp/request", "q-4", payload={"method": "tools/list"})
    answers: dict[str, Any] = {"correlation_id": ["q-2", "q-3", "q-4"], "payload": {"result": 1}}
    assert say(state, "dee", "mcp/response", **answers).readers == ("dee",)


def test_its_recipients_are_the_choice_of_the_sender() -> None:
    state = private_space()
    fields: dict[str, Any] = {"correlation_id": ["q-2"], "to": ["ada", "cyd"], "payload": {"result": 1}}
    assert say(state, "dee", "mcp/response", **fields).readers == ("dee", "ada", "cyd")


def test_a_rejection_stays_with_those_who_could_read_the_proposal() -> None:
    state = private_space()
    assert set(say(state, "bob", "mcp/reject", correlation_id=["p-2"]).readers) == {"ada", "bob"}
    assert set(say(state, "ada", "mcp/withdraw", correlation_id=["p-1"]).readers) == {"ada", "dee"}


def test_a_fulfilment_stays_in_the_audience_of_the_context_of_its_proposal() -> None:
    """Otherwise its sender chooses whose tool it calls."""
    state = private_space()
    assert say(state, "ada", "mcp/request", correlation_id=["p-1"], payload={"method": "x"}).readers == ("ada", "dee")
    assert say(state, "bob", "mcp/request", correlation_id=["p-2"], payload={"method": "x"}).readers == ()


def test_nothing_is_inherited_where_addresses_are_advisory() -> None:
    state = configured_state(addresses="advisory")
    say(state, "ada", "mcp/request", "q", to=["dee"], payload={"method": "tools/list"})
    assert say(state, "dee", "mcp/response", correlation_id=["q"], payload={"result": 1}).readers == ()
    say(state, "ada", "mcp/proposal", "p", to=["dee"], payload={"method": "tools/list"})
    say(state, "bob", "mcp/request", correlation_id=["p"], payload={"method": "tools/list"})
    assert state.proposals.state["p"].status == "fulfilled", "everyone reads it"


@pytest.mark.parametrize(
    "envelope",
    [
        {"kind": "mcp/response", "correlation_id": ["?-1"], "payload": {"result": 1}},
        {"kind": "mcp/reject", "correlation_id": ["?-1"]},
        {"kind": "mcp/withdraw", "correlation_id": ["?-1"]},
        {"kind": "reasoning/cancel", "context": "?-1"},
        {"kind": "reasoning/conclusion", "context": "?-1"},
        {"kind": "reasoning/share", "context": "?-1", "payload": {"participants": ["bob"]}},
        {"kind": "reasoning/conclusion", "context": "?-1/inner"},
    ],
)
def test_what_is_for_others_is_refused_like_what_does_not_exist(envelope: dict[str, Any]) -> None:
    state = private_space()
    answers = []
    for existing in "qpr", "xyz":
        for one in existing:
            text = msgspec.json.encode(envelope).replace(b"?", one.encode())
            outcome = state.judge(read(text, None, Defaults("bob", "n", 0)), 0)
            assert outcome.error is not None
            answers.append((outcome.error.code, outcome.error.message.replace(f"{one}-1", "?"), outcome.error.kind))
    assert len(set(answers)) == 1


def test_a_request_about_a_proposal_of_others_is_only_a_request() -> None:
    state = private_space()
    fulfilment = say(state, "bob", "mcp/request", correlation_id=["p-1"], to=["bob"], payload={"method": "tools/list"})
    assert (fulfilment.flags, state.proposals.state["p-1"].status) == ((), "open")
    say(state, "dee", "mcp/reject", correlation_id=["p-1"], to=["ada"])
    assert state.proposals.state["p-1"].status == "rejected"


def test_an_answer_of_others_is_not_the_outcome_of_a_proposal() -> None:
    state = configured_state(responses="flag")
    call = {"method": "tools/call", "params": {"name": "deploy"}}
    say(state, "bob", "mcp/proposal", "p", payload=call)
    say(state, "ada", "mcp/request", "r", correlation_id=["p"], to=["bob"], payload=call)
    say(state, "cyd", "mcp/response", "forged", correlation_id=["r"], payload={"result": "done"})
    assert state.proposals.state["p"].response is None
    say(state, "bob", "mcp/response", "answer", correlation_id=["r"], payload={"error": {"code": 1, "message": "no"}})
    proposal = state.proposals.state["p"]
    assert (proposal.status, proposal.response, proposal.failed) == ("fulfilled", "answer", True)


def test_a_dump_between_a_stream_request_and_its_opening_loses_nothing() -> None:
    """A replica that reads the log page by page makes one there."""
    state, log = SpaceState(SpaceSettings()), list[StoredEnvelope]()
    access = ConfiguredAccess(always=(), participants=dict.fromkeys(("ada", "bob"), CAPABILITIES["ada"]))
    configured = configuration_envelope(state, access)
    assert configured is not None
    request = Envelope(id="r", ts=0, sender="ada", to=("bob",), kind=kinds.STREAM_REQUEST)
    for envelope in (configured, gateway_messages.presence("p", 0, "join", Present("ada")), request):
        judged = state.judge(envelope, 1)
        assert judged.stored is not None
        log.append(judged.stored)
    reader = SpaceState(SpaceSettings())
    for stored in log:
        reader.replay(stored)
    (opening,) = state.stream_follow_ups(log[-1].envelope, ())
    opened = state.judge(msgspec.structs.replace(opening, id="o"), 1).stored
    assert opened is not None
    restored = SpaceState.load(SpaceSettings(), reader.dump())
    restored.replay(opened)
    (stream,) = restored.streams.state.values()
    assert stream.requested_to == ("bob",)
    assert restored.dump() == state.dump()


def test_an_unchanged_configuration_is_stored_once() -> None:
    state = SpaceState(SpaceSettings())
    wanted = ConfiguredAccess(always=("chat",), participants={"ada": ("*",)}, templates={"t": ("one", "two")})
    envelope = configuration_envelope(state, wanted)
    assert envelope is not None
    state.judge(envelope, 1)
    assert state.configuration_change(wanted) is None
    assert state.capabilities("ada") == ({"kind": "chat"}, {"kind": "*"})
    fewer = ConfiguredAccess(always=("chat",), participants={}, templates={"t": ("one", "two")})
    assert state.configuration_change(fewer) == {"doors": {"ada": None}}
    # A participant who was removed in between loses the grants that depended on the removed capabilities.
    state.judge(configuration_envelope(state, fewer) or envelope, 2)
    assert not state.ledger.is_member("ada")


def test_stored_times_never_go_back() -> None:
    state = SpaceState(SpaceSettings())
    state.judge(
        configuration_envelope(state, ConfiguredAccess(always=(), participants=CAPABILITIES, templates={})) or _never(),
        100,
    )
    outcome = state.judge(Envelope(id="a", ts=0, sender="ada", kind="chat", payload={"text": "x"}), 50)
    assert outcome.stored is not None
    assert outcome.stored.at == 100


def _never() -> Envelope:
    raise AssertionError


WRONG: dict[str, dict[str, Any]] = {
    "settings.reasonin": {"reasonin": "strict"},
    "settings.reasoning": {"reasoning": "loose"},
    "settings.limits.chat.per_second": {"limits": {"chat": {"per_second": "x", "burst": 1}}},
    "settings.limits.chat": {"limits": {"chat": {"per_second": 0, "burst": 1}}},
    "settings.limits.frame_bytes": {"limits": {"frame_bytes": 0}},
    "settings.idle_seconds": {"idle_seconds": -1},
    "settings.always[0].kinds": {"always": [{"kinds": "chat"}]},
    "settings.templates.t": {"templates": {"t": ["one", "one"]}},
    "settings.compress.after": {"compress": {"after": 1}},
}


@pytest.mark.parametrize("param", WRONG)
def test_an_invalid_setting_is_named(param: str) -> None:
    with pytest.raises(RequestError) as wrong:
        read_settings(WRONG[param])
    assert wrong.value.info.param == param


def test_settings_survive_serialization() -> None:
    written = {
        "reasoning": "flag",
        "addresses": "advisory",
        "templates": {"review": ["read", "judge"]},
        "redact": [{"name": "key", "pattern": "sk-[a-z]+"}],
        "limits": {"chat": {"per_second": 1, "burst": 2}},
        "always": ["mcp/response", {"kind": "chat", "to": "ada"}],
        "compress": {"after": 20},
        "idle_seconds": None,
    }
    settings = read_settings(written)
    assert read_settings(settings.dump()) == settings
    assert read_settings(b"{}") == SpaceSettings()
    assert read_settings({"idle_seconds": float("inf")}).idle_seconds is None


@pytest.mark.parametrize("name", ["", "-a", "a/b", "a b", "ä", "x" * 65, ".."])
def test_invalid_names_are_refused(name: str) -> None:
    with pytest.raises(RequestError, match="name"):
        check_name(name)


def test_a_refused_grant_changes_no_capabilities() -> None:
    """Its context is too deep: the change of capabilities is rolled back."""
    state = SpaceState(SpaceSettings())
    state.judge(
        configuration_envelope(state, ConfiguredAccess(always=(), participants=CAPABILITIES, templates={})) or _never(),
        1,
    )
    context = None
    for name in "vwxyz":
        start = Envelope(id=name, ts=0, sender="ada", kind="reasoning/start", context=context)
        assert state.judge(start, 1).stored is not None
        context = name
    before = state.dump()
    payload = {"recipient": "dee", "capabilities": ["reasoning/*"]}
    grant = Envelope(id="g", ts=0, sender="ada", kind="capability/grant", context="z/deep", payload=payload)
    outcome = state.judge(grant, 1)
    assert outcome.error is not None
    assert outcome.error.code == "too_deep"
    assert state.dump() == before
