"""The ledger of grants: granting, revoking, ending; and every right has a source that could grant it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Any

from msgspec.structs import replace

from pellucid.envelopes import GATEWAY, Envelope
from pellucid.envelopes.capability import Capability, read_capabilities
from pellucid.envelopes.grants import (
    MAX_CAPABILITIES,
    MAX_GRANTS,
    MAX_REVOKED,
    ConfiguredRevoked,
    GrantAcknowledged,
    GrantAdded,
    GrantEnded,
    Ledger,
    ParticipantInvited,
    ParticipantKicked,
    Ruling,
)
from pellucid.envelopes.regex import StepBudget
from tests.cases import Cases
from tests.examples import by_circle

_ids = count()


def make_envelope(sender: str, kind: str, payload: dict[str, Any] | None = None, **more: Any) -> Envelope:
    return Envelope(
        **{"id": f"e{next(_ids)}", "ts": 0, "sender": sender, "kind": kind, "payload": payload or {}, **more}
    )


def grant(sender: str, recipient: str, *capabilities: Any, id: str = "") -> Envelope:
    payload = {"recipient": recipient, "capabilities": list(capabilities)}
    return make_envelope(sender, "capability/grant", payload, **({"id": id} if id else {}))


def revoke(sender: str, **payload: Any) -> Envelope:
    return make_envelope(sender, "capability/revoke", payload)


def invite(sender: str, name: str, *initial: Any) -> Envelope:
    return make_envelope(sender, "space/invite", {"participant_id": name, "initial_capabilities": list(initial)})


def kick(sender: str, name: str) -> Envelope:
    return make_envelope(sender, "space/kick", {"participant_id": name})


def make_ledger(**doors: list[Any]) -> Ledger:
    ledger = Ledger()
    for name, written in doors.items():
        ledger.configure_participant(name, read_capabilities(written))
    return ledger


def events_of(ruling: Ruling) -> tuple[Any, ...]:
    assert ruling.refusal is None, ruling.refusal
    return ruling.events


def refusal_of(ruling: Ruling) -> tuple[str | None, str | None]:
    assert ruling.refusal is not None
    assert ruling.events == ()
    return ruling.refusal.code, ruling.refusal.param


def is_allowed(ledger: Ledger, who: str, kind: str, payload: dict[str, Any] | None = None) -> bool:
    return ledger.decide(make_envelope(who, kind, payload)).allowed


# --- granting


def test_a_grant_is_held_until_it_is_revoked_by_its_id() -> None:
    ledger = make_ledger(admin=["*"], bob=["chat"])
    granting = grant("admin", "bob", "reasoning/*", id="g1")
    assert [type(event) for event in events_of(ledger.feed(granting))] == [GrantAdded]
    decision = ledger.decide(make_envelope("bob", "reasoning/start"))
    assert (decision.allowed, decision.by, decision.source) == (True, {"kind": "reasoning/*"}, "g1")
    (ended,) = events_of(ledger.feed(revoke("admin", recipient="bob", grant_id="g1")))
    assert (ended.grant_id, ended.recipient, ended.why) == ("g1", "bob", "revoked")
    assert not is_allowed(ledger, "bob", "reasoning/start")


def test_a_grant_beyond_the_rights_of_its_sender_is_refused() -> None:
    ledger = make_ledger(
        boss=["capability/grant", "chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}], bob=["chat"]
    )
    assert refusal_of(ledger.feed(grant("boss", "bob", "chat", "mcp/request"))) == (
        "escalation",
        "payload.capabilities[1]",
    )
    assert refusal_of(ledger.feed(grant("boss", "bob", "*"))) == ("escalation", "payload.capabilities[0]")
    events_of(ledger.feed(grant("boss", "bob", {"kind": "mcp.request", "payload": {"method": "tools/call"}})))
    assert is_allowed(ledger, "bob", "mcp/request", {"method": "tools/call"})
    assert not is_allowed(ledger, "bob", "mcp/request", {"method": "resources/read"})


EXCEPT = "payload.capabilities[0].except"
REFUSED: list[tuple[Envelope, str, str]] = [
    (grant("admin", "admin", "chat"), "forbidden", "payload.recipient"),
    (grant("admin", "nobody", "chat"), "not_found", "payload.recipient"),
    (grant("admin", "bob"), "invalid_request", "payload.capabilities"),
    (grant("admin", "bob", {"kind": "/(/"}), "invalid_capability", "payload.capabilities[0].kind"),
    (grant("admin", "bob", *["chat"] * (MAX_CAPABILITIES + 1)), "too_large", "payload.capabilities"),
    (make_envelope("admin", "capability/grant", {"capabilities": []}), "missing", "payload.recipient"),
    (grant("bob", "admin", "chat"), "capability_violation", "kind"),
    (revoke("admin", recipient="bob"), "invalid_request", "payload"),
    (revoke("admin", capabilities=["chat"]), "invalid_request", "payload.recipient"),
    (revoke("admin", recipient="bob", grant_id="g0"), "not_found", "payload"),
    (revoke("admin", recipient="bob", capabilities=["mcp/*"]), "not_found", "payload.capabilities"),
    (revoke("admin", recipient="bob", capabilities=[{"kind": "*", "except": ["chat"]}]), "invalid_request", EXCEPT),
    (revoke("admin", recipient="nobody", capabilities=["*"]), "not_found", "payload.capabilities"),
    (kick("admin", "admin"), "forbidden", "payload.participant_id"),
    (kick("admin", "nobody"), "not_found", "payload.participant_id"),
    (invite("admin", "system:gateway"), "invalid_request", "payload.participant_id"),
    (make_envelope("admin", "system/presence"), "capability_violation", "kind"),
    (make_envelope("stranger", "chat"), "capability_violation", "kind"),
]


def test_a_refusal_has_a_reason_and_changes_nothing() -> None:
    with Cases() as case:
        for envelope, code, param in REFUSED:
            with case(f"{envelope.sender} {envelope.kind} {envelope.payload}"):
                ledger = make_ledger(admin=["*"], bob=["chat"])
                assert refusal_of(ledger.feed(envelope)) == (code, param)
                assert not ledger.grants
                assert ledger.members == ("admin", "bob")


def test_a_repeated_grant_changes_nothing_and_a_conflicting_id_is_refused() -> None:
    ledger = make_ledger(admin=["*"], bob=[])
    events_of(ledger.feed(grant("admin", "bob", "chat", id="g1")))
    assert events_of(ledger.feed(grant("admin", "bob", "chat", id="g1"))) == ()
    assert refusal_of(ledger.feed(grant("admin", "bob", "mcp/*", id="g1"))) == ("id_conflict", "id")


def test_the_number_of_grants_is_limited() -> None:
    ledger = make_ledger(admin=["*"], bob=[])
    for _ in range(MAX_GRANTS):
        events_of(ledger.feed(grant("admin", "bob", "chat")))
    assert refusal_of(ledger.feed(grant("admin", "bob", "chat")))[0] == "too_many"


def test_only_the_recipient_acknowledges_a_grant() -> None:
    ledger = make_ledger(admin=["*"], bob=["chat"], eve=["chat"])
    events_of(ledger.feed(grant("admin", "bob", "mcp/*", id="g1")))
    ack: dict[str, Any] = {"payload": {"status": "accepted"}, "correlation_id": ("g1",)}
    assert events_of(ledger.feed(make_envelope("bob", "capability/grant-ack", **ack))) == (
        GrantAcknowledged("g1", "bob"),
    )
    assert ledger.grants["g1"].acknowledged
    assert refusal_of(ledger.feed(make_envelope("eve", "capability/grant-ack", **ack))) == (
        "capability_violation",
        "kind",
    )
    assert refusal_of(ledger.feed(make_envelope("admin", "capability/grant-ack", **ack))) == (
        "not_found",
        "correlation_id",
    )
    ack["payload"] = {"status": "declined"}
    (ended,) = events_of(ledger.feed(make_envelope("bob", "capability/grant-ack", **ack)))
    assert (ended.why, is_allowed(ledger, "bob", "mcp/request")) == ("declined", False)


# --- revoking


def test_revoking_by_capabilities_ends_all_that_they_cover() -> None:
    ledger = make_ledger(admin=["*"], bob=[])
    call = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
    events_of(ledger.feed(grant("admin", "bob", call, "chat", id="g1")))
    events_of(ledger.feed(grant("admin", "bob", "mcp/*", id="g2")))
    tools = {"kind": "mcp/request", "payload": {"method": "tools/*"}}
    ended, reduced = events_of(ledger.feed(revoke("admin", recipient="bob", capabilities=[tools])))
    assert (ended.grant_id, [one.written for one in ended.capabilities]) == ("g1", [call])
    assert (reduced.grant_id, [one.written["kind"] for one in reduced.capabilities]) == ("g2", ["mcp/*"])
    assert [one.written for one in ledger.grants["g2"].capabilities] == [{"kind": "mcp/*", "except": [tools]}]
    assert is_allowed(ledger, "bob", "chat")
    assert is_allowed(ledger, "bob", "mcp/proposal", {"method": "tools/call"})
    assert not is_allowed(ledger, "bob", "mcp/request", {"method": "tools/call"})
    assert refusal_of(ledger.feed(revoke("admin", recipient="bob", capabilities=[tools]))) == (
        "not_found",
        "payload.capabilities",
    )


def test_only_the_granter_or_a_holder_of_the_rights_revokes() -> None:
    ledger = make_ledger(admin=["*"], mod=["capability/*", "chat"], bob=[], eve=["capability/revoke"])
    events_of(ledger.feed(grant("admin", "bob", "mcp/*", id="g1")))
    events_of(ledger.feed(grant("mod", "bob", "chat", id="g2")))
    for sender, which in (("mod", "g1"), ("eve", "g1"), ("eve", "g2")):
        assert refusal_of(ledger.feed(revoke(sender, recipient="bob", grant_id=which))) == ("forbidden", "payload")
    events_of(ledger.feed(revoke("mod", recipient="bob", grant_id="g2")))
    events_of(ledger.feed(revoke("admin", recipient="bob", grant_id="g1")))


def test_configured_capabilities_are_narrowed_until_their_configuration_changes() -> None:
    ledger = make_ledger(admin=["*"], bob=["mcp/*", "chat"])
    (change,) = events_of(ledger.feed(revoke("admin", recipient="bob", capabilities=["mcp/request", "chat"])))
    assert isinstance(change, ConfiguredRevoked)
    assert (change.recipient, change.by) == ("bob", "admin")
    assert [one.capability.written for one in ledger.held("bob")] == [
        {"kind": "mcp/*", "except": [{"kind": "mcp/request"}]}
    ]
    again = Ledger.load(ledger.dump())
    for one in (ledger, again):
        assert [is_allowed(one, "bob", kind) for kind in ("mcp/request", "mcp/proposal", "chat")] == [
            False,
            True,
            False,
        ]
    ledger.configure_everyone(read_capabilities(["chat"]))
    assert not is_allowed(ledger, "bob", "chat")
    events_of(ledger.feed(grant("admin", "bob", "mcp/request")))
    assert is_allowed(ledger, "bob", "mcp/request")
    ledger.configure_participant("bob", read_capabilities(["mcp/*"]))
    assert is_allowed(ledger, "bob", "chat")


REVOKERS = [
    ("root", True),  # holds everything
    ("mod", True),  # holds all rights over others that bob holds
    ("peer", False),  # does not, although it holds what is taken
    ("chatter", False),  # may not revoke
]


def test_who_may_revoke_configured_capabilities() -> None:
    with Cases() as case:
        for who, may in REVOKERS:
            with case(who):
                ledger = make_ledger(
                    root=["*"],
                    mod=["capability/revoke", "space/*"],
                    peer=["capability/revoke", "mcp/request"],
                    chatter=["chat"],
                    bob=["mcp/*", "space/invite"],
                )
                ruling = ledger.feed(revoke(who, recipient="bob", capabilities=["mcp/request"]))
                assert (ruling.refusal is None) == may, ruling
                assert is_allowed(ledger, "bob", "mcp/request") != may


def test_a_participant_renounces_and_cannot_take_from_a_stronger_one() -> None:
    ledger = make_ledger(root=["*"], mod=["capability/*", "chat"], bob=["capability/revoke", "chat"])
    for one in ("*", "chat"):
        assert refusal_of(ledger.feed(revoke("mod", recipient="root", capabilities=[one]))) == (
            "forbidden",
            "payload.recipient",
        )
    assert is_allowed(ledger, "root", "chat")
    events_of(ledger.feed(revoke("bob", recipient="bob", capabilities=["*"])))
    assert not ledger.held("bob")


def test_what_was_taken_cannot_be_granted() -> None:
    """Neither the taken capability nor a wider one; the rest can be."""
    ledger = make_ledger(root=["*"], ann=["*"], bob=[])
    events_of(ledger.feed(grant("ann", "bob", "mcp/request", "mcp/proposal", id="g1")))
    taken = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
    _, ended = events_of(ledger.feed(revoke("root", recipient="ann", capabilities=[taken])))
    assert (ended.grant_id, [one.written["kind"] for one in ended.capabilities]) == ("g1", ["mcp/request"])
    for wide in ("*", "mcp/*", "mcp/request", taken, {"kind": ["chat", "mcp/request"]}):
        assert refusal_of(ledger.feed(grant("ann", "bob", wide)))[0] == "escalation"
    rest = {"kind": "mcp/request", "payload": {"method": "tools/list"}}
    for narrow in ("chat", "reasoning/*", rest, {"kind": "mcp/*", "except": [taken]}):
        events_of(ledger.feed(grant("ann", "bob", narrow)))


def test_an_old_revocation_has_no_effect_that_its_sender_could_not_have() -> None:
    """A log from before revocations reached the configuration: the grant still ends."""
    ledger = make_ledger(root=["*"], ann=["capability/*", "chat"], bob=["*"])
    events_of(ledger.feed(grant("root", "ann", "mcp/request", id="g0")))
    events_of(ledger.feed(grant("ann", "bob", "mcp/request", id="g1")))
    old = revoke("ann", recipient="bob", capabilities=["mcp/*"])
    assert refusal_of(ledger.feed(old))[0] == "forbidden"
    assert [type(one) for one in ledger.replay(old)] == [GrantEnded]
    assert is_allowed(ledger, "bob", "mcp/request")


def test_the_number_of_revoked_patterns_is_limited() -> None:
    ledger = make_ledger(admin=["*"], bob=["*"])
    for number in range(MAX_REVOKED):
        events_of(ledger.feed(revoke("admin", recipient="bob", capabilities=[f"mcp/a{number}"])))
    events_of(ledger.feed(grant("admin", "bob", "chat")))
    before = ledger.dump()
    assert refusal_of(ledger.feed(revoke("admin", recipient="bob", capabilities=["chat"])))[0] == "too_many"
    assert ledger.dump() == before, "neither the grant nor the configured capability is taken"
    events_of(ledger.feed(revoke("admin", recipient="bob", capabilities=["mcp/*"])))
    events_of(ledger.feed(revoke("admin", recipient="bob", capabilities=["chat"])))
    assert not is_allowed(ledger, "bob", "chat")
    assert is_allowed(Ledger.load(ledger.dump()), "bob", "reasoning/start")


def test_a_chain_of_grants_ends_with_its_source() -> None:
    ledger = make_ledger(admin=["*"], bob=[], cat=[], dan=[])
    events_of(ledger.feed(grant("admin", "bob", "mcp/*", "chat", "capability/grant", id="g1")))
    events_of(ledger.feed(grant("bob", "cat", "mcp/request", "capability/grant", id="g2")))
    events_of(ledger.feed(grant("cat", "dan", "mcp/request", id="g3")))
    events = events_of(ledger.feed(revoke("admin", grant_id="g1", capabilities=["mcp/*"])))
    assert [(event.grant_id, event.why) for event in events] == [
        ("g1", "revoked"),
        ("g2", "source_ended"),
        ("g3", "source_ended"),
    ]
    assert is_allowed(ledger, "bob", "chat")
    assert is_allowed(ledger, "cat", "capability/grant")
    assert not is_allowed(ledger, "dan", "mcp/request")


def test_circular_grants_end_with_their_source() -> None:
    ledger = make_ledger(admin=["*"], bob=["capability/grant"], cat=["capability/grant"])
    events_of(ledger.feed(grant("admin", "bob", "mcp/*", id="g1")))
    events_of(ledger.feed(grant("bob", "cat", "mcp/*", id="g2")))
    events_of(ledger.feed(grant("cat", "bob", "mcp/*", id="g3")))
    events_of(ledger.feed(revoke("admin", grant_id="g1")))
    assert not ledger.grants


def test_a_narrower_configuration_ends_grants_that_depended_on_it() -> None:
    ledger = make_ledger(admin=["*"], bob=[])
    events_of(ledger.feed(grant("admin", "bob", "mcp/*", "chat")))
    (ended,) = ledger.configure_participant("admin", read_capabilities(["chat", "capability/*"]))
    assert isinstance(ended, GrantEnded)
    assert (is_allowed(ledger, "bob", "chat"), is_allowed(ledger, "bob", "mcp/request")) == (True, False)
    (shut,) = ledger.remove_configured("admin")
    assert isinstance(shut, GrantEnded)
    assert shut.why == "source_ended"


# --- inviting and kicking


def test_an_invited_participant_holds_the_initial_capabilities() -> None:
    ledger = make_ledger(admin=["*"])
    invited, granted = events_of(ledger.feed(invite("admin", "new", "chat", "mcp/proposal")))
    assert invited == ParticipantInvited("new", "admin", "created")
    assert isinstance(granted, GrantAdded)
    assert is_allowed(ledger, "new", "mcp/proposal")
    assert events_of(ledger.feed(invite("admin", "new", "*"))) == (
        ParticipantInvited("new", "admin", "already_exists"),
    )
    assert not is_allowed(ledger, "new", "mcp/request")


def test_an_invitation_beyond_the_rights_of_its_sender_is_refused() -> None:
    ledger = make_ledger(host=["space/invite", "chat"])
    assert refusal_of(ledger.feed(invite("host", "new", "*"))) == ("escalation", "payload.initial_capabilities[0]")
    assert [*ledger.members] == ["host"]
    events_of(ledger.feed(invite("host", "new")))
    assert [*ledger.members] == ["host", "new"]


def test_a_kick_removes_the_participant_and_their_grants() -> None:
    ledger = make_ledger(admin=["*"], bob=["chat", "capability/grant"], cat=[])
    events_of(ledger.feed(grant("bob", "cat", "chat")))
    kicked, ended = events_of(ledger.feed(kick("admin", "bob")))
    assert kicked == ParticipantKicked("bob", "admin")
    assert (ended.recipient, ended.why) == ("cat", "source_ended")
    assert not ledger.is_member("bob")
    assert refusal_of(ledger.feed(make_envelope("bob", "chat")))[0] == "capability_violation"
    ledger.configure_participant("bob", read_capabilities(["chat"]))
    assert not is_allowed(ledger, "bob", "chat")
    events_of(ledger.feed(invite("admin", "bob")))
    assert is_allowed(ledger, "bob", "chat")


def test_kicks_and_readmissions_of_superiors_are_refused() -> None:
    ledger = make_ledger(admin=["*"], mod=["space/kick", "space/invite"], bob=["mcp/*", "chat"])
    assert refusal_of(ledger.feed(kick("mod", "admin"))) == ("forbidden", "payload.participant_id")
    events_of(ledger.feed(kick("mod", "bob")))
    ledger.configure_participant("root", read_capabilities(["*"]))
    events_of(ledger.feed(kick("root", "admin")))
    assert refusal_of(ledger.feed(invite("mod", "admin"))) == ("forbidden", "payload.participant_id")
    events_of(ledger.feed(invite("mod", "bob")))


def test_the_gateway_may_do_anything() -> None:
    ledger = make_ledger(bob=[])
    events_of(ledger.feed(grant(GATEWAY, "bob", "*")))
    events_of(ledger.feed(make_envelope(GATEWAY, "system/presence")))
    events_of(ledger.feed(kick(GATEWAY, "bob")))
    assert ledger.members == ()


def test_default_capabilities_are_held_by_every_participant() -> None:
    ledger = Ledger(read_capabilities(["mcp/response"]))
    ledger.configure_participant("bob", ())
    assert is_allowed(ledger, "bob", "mcp/response")
    assert not is_allowed(ledger, "stranger", "mcp/response")


def test_rights_without_envelopes_are_granted_like_others() -> None:
    ledger = make_ledger(admin=["*"], bob=["chat"])
    assert (ledger.holds_right("admin", "space/observe"), ledger.holds_right("bob", "space/observe")) == (True, False)
    events_of(ledger.feed(grant("admin", "bob", "space/observe")))
    assert ledger.holds_right("bob", "space/observe")
    assert not ledger.holds_right("stranger", "space/observe")


# --- any sequence of steps

NAMES = ["ann", "bob", "cat", "dan"]
_WRITTEN = [
    "*",
    "chat",
    "mcp/*",
    "!mcp/*",
    "reasoning/step",
    "reasoning/*",
    "capability/*",
    "capability/grant",
    "space/*",
    {"kind": ["chat", "capability/grant"]},
    {"kind": "mcp/request", "payload": {"method": "tools/*"}},
    {"kind": "mcp/request", "payload": {"method": "!tools/call"}},
    {"kind": "capability/grant", "payload": {"recipient": "bob"}},
    {"kind": "capability/*", "payload": {"recipient": "!ann"}},
    {"kind": "chat", "to": ["bob", "cat"]},
]


def _steps(dice: Random) -> Iterator[tuple[Any, ...]]:
    """Yield random steps in a space, most of them grants and revocations."""

    def some_patterns(least: int = 0) -> list[Any]:
        return dice.choices(_WRITTEN, k=dice.randint(least, 3))

    def person() -> str:
        return dice.choices(NAMES, weights=[4, 3, 2, 1])[0]

    for name, first in zip(NAMES, ("*", "capability/*", "space/*", "chat"), strict=True):
        yield "door", name, [first, *some_patterns()]
    for _ in range(40):
        action = dice.choices(("grant", "revoke", "take", "door", "invite", "kick"), weights=[14, 4, 1, 1, 2, 1])[0]
        match action:
            case "grant":
                who = person()
                yield action, who, dice.choice([one for one in NAMES if one != who]), some_patterns(1)
            case "revoke":
                yield action, person(), dice.randint(0, 99)
            case "take":
                yield action, person(), person(), dice.choice(_WRITTEN)
            case "door":
                yield action, person(), some_patterns(1)
            case "invite":
                yield action, person(), dice.choice([*NAMES, "eve"]), some_patterns()
            case "kick":
                yield action, person(), dice.choice([*NAMES, "eve"])


_PROBES = [
    ("chat", {}, ()),
    ("chat", {}, ("bob",)),
    ("mcp/request", {"method": "tools/call"}, ()),
    ("mcp/request", {"method": "resources/read"}, ()),
    ("mcp/response", {}, ()),
    ("reasoning/start", {}, ()),
    ("reasoning/thought", {}, ()),
    ("capability/grant", {"recipient": "bob"}, ()),
    ("capability/revoke", {"recipient": "cat"}, ()),
    ("space/kick", {}, ()),
]


def _apply_step(ledger: Ledger, number: int, step: tuple[Any, ...]) -> None:
    action, who, *rest = step
    if action == "door":
        ledger.configure_participant(who, read_capabilities(rest[0]))
        return
    match action, *rest:
        case "grant", recipient, written:
            envelope = make_envelope(who, "capability/grant", {"recipient": recipient, "capabilities": written})
        case "revoke", place:
            grant_id = [*ledger.grants, "none"][place % (len(ledger.grants) + 1)]
            envelope = make_envelope(who, "capability/revoke", {"grant_id": grant_id})
        case "take", recipient, written:
            envelope = make_envelope(who, "capability/revoke", {"recipient": recipient, "capabilities": [written]})
        case "invite", name, written:
            envelope = make_envelope(who, "space/invite", {"participant_id": name, "initial_capabilities": written})
        case "kick", name:
            envelope = make_envelope(who, "space/kick", {"participant_id": name})
        case _:
            raise AssertionError(step)
    ledger.feed(replace(envelope, id=f"s{number}"))


def _is_derived(
    ledger: Ledger, who: str, probe: Envelope, doors: dict[str, tuple[Capability, ...]], before: int
) -> bool:
    """Return whether a right comes from the configuration, or from a grant whose sender had it."""
    if who in doors and any(one.allows(probe, StepBudget(10_000)) for one in doors[who]):
        return True
    return any(
        grant.recipient == who
        and any(one.allows(probe, StepBudget(10_000)) for one in grant.capabilities)
        and _is_derived(ledger, grant.by, probe, doors, place)
        for place, grant in enumerate(list(ledger.grants.values())[:before])
    )


def test_every_right_comes_from_the_configuration_or_a_grant() -> None:
    with Cases() as case:
        for seed in range(by_circle(12, 100)):
            with case(f"seed {seed}"):
                _check_rights(seed)


def _check_rights(seed: int) -> None:
    """Play one random sequence; after each step, every right must come from the configuration or a grant."""
    ledger, again = Ledger(), Ledger()
    steps = list(_steps(Random(seed)))
    doors: dict[str, tuple[Capability, ...]] = {}
    for number, step in enumerate(steps):
        _apply_step(ledger, number, step)
        if step[0] == "door":
            doors[step[1]] = read_capabilities(step[2])
        inside = {name: door for name, door in doors.items() if name in ledger.members}
        for who in [*NAMES, "eve"]:
            for kind, payload, to in _PROBES:
                probe = Envelope(id="probe", ts=0, sender=who, kind=kind, payload=payload, to=to)
                if ledger.decide(probe).allowed:
                    assert _is_derived(ledger, who, probe, inside, len(ledger.grants)), (who, kind, payload, step)
            assert ledger.is_member(who) or not ledger.held(who)
    for number, step in enumerate(steps):
        _apply_step(again, number, step)
    assert (dict(again.grants), again.members) == (dict(ledger.grants), ledger.members)
