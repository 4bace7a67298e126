"""The ledger: what is given, taken back and ended; and that nobody ever gets what nobody could give."""

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


def say(sender: str, kind: str, payload: dict[str, Any] | None = None, **more: Any) -> Envelope:
    return Envelope(
        **{"id": f"e{next(_ids)}", "ts": 0, "sender": sender, "kind": kind, "payload": payload or {}, **more}
    )


def grant(sender: str, recipient: str, *capabilities: Any, id: str = "") -> Envelope:
    payload = {"recipient": recipient, "capabilities": list(capabilities)}
    return say(sender, "capability/grant", payload, **({"id": id} if id else {}))


def revoke(sender: str, **payload: Any) -> Envelope:
    return say(sender, "capability/revoke", payload)


def invite(sender: str, name: str, *initial: Any) -> Envelope:
    return say(sender, "space/invite", {"participant_id": name, "initial_capabilities": list(initial)})


def kick(sender: str, name: str) -> Envelope:
    return say(sender, "space/kick", {"participant_id": name})


def space(**doors: list[Any]) -> Ledger:
    ledger = Ledger()
    for name, written in doors.items():
        ledger.configure_participant(name, read_capabilities(written))
    return ledger


def fine(ruling: Ruling) -> tuple[Any, ...]:
    assert ruling.refusal is None, ruling.refusal
    return ruling.events


def refused(ruling: Ruling) -> tuple[str | None, str | None]:
    assert ruling.refusal is not None
    assert ruling.events == ()
    return ruling.refusal.code, ruling.refusal.param


def may(ledger: Ledger, who: str, kind: str, payload: dict[str, Any] | None = None) -> bool:
    return ledger.decide(say(who, kind, payload)).allowed


# --- granting


def test_a_grant_is_held_until_it_is_revoked_by_its_id() -> None:
    ledger = space(admin=["*"], bob=["chat"])
    given = grant("admin", "bob", "reasoning/*", id="g1")
    assert [type(event) for event in fine(ledger.feed(given))] == [GrantAdded]
    decision = ledger.decide(say("bob", "reasoning/start"))
    assert (decision.allowed, decision.by, decision.source) == (True, {"kind": "reasoning/*"}, "g1")
    (ended,) = fine(ledger.feed(revoke("admin", recipient="bob", grant_id="g1")))
    assert (ended.grant_id, ended.recipient, ended.why) == ("g1", "bob", "revoked")
    assert not may(ledger, "bob", "reasoning/start")


def test_nobody_grants_what_they_lack() -> None:
    ledger = space(
        boss=["capability/grant", "chat", {"kind": "mcp/request", "payload": {"method": "tools/*"}}], bob=["chat"]
    )
    assert refused(ledger.feed(grant("boss", "bob", "chat", "mcp/request"))) == (
        "escalation",
        "payload.capabilities[1]",
    )
    assert refused(ledger.feed(grant("boss", "bob", "*"))) == ("escalation", "payload.capabilities[0]")
    fine(ledger.feed(grant("boss", "bob", {"kind": "mcp.request", "payload": {"method": "tools/call"}})))
    assert may(ledger, "bob", "mcp/request", {"method": "tools/call"})
    assert not may(ledger, "bob", "mcp/request", {"method": "resources/read"})


REFUSED: list[tuple[Envelope, str, str]] = [
    (grant("admin", "admin", "chat"), "forbidden", "payload.recipient"),
    (grant("admin", "nobody", "chat"), "not_found", "payload.recipient"),
    (grant("admin", "bob"), "invalid_request", "payload.capabilities"),
    (grant("admin", "bob", {"kind": "/(/"}), "invalid_capability", "payload.capabilities[0].kind"),
    (grant("admin", "bob", *["chat"] * (MAX_CAPABILITIES + 1)), "too_large", "payload.capabilities"),
    (say("admin", "capability/grant", {"capabilities": []}), "missing", "payload.recipient"),
    (grant("bob", "admin", "chat"), "capability_violation", "kind"),
    (revoke("admin", recipient="bob"), "invalid_request", "payload"),
    (revoke("admin", capabilities=["chat"]), "invalid_request", "payload.recipient"),
    (revoke("admin", recipient="bob", grant_id="g0"), "not_found", "payload"),
    (revoke("admin", recipient="bob", capabilities=["chat"]), "not_found", "payload"),
    (kick("admin", "admin"), "forbidden", "payload.participant_id"),
    (kick("admin", "nobody"), "not_found", "payload.participant_id"),
    (invite("admin", "system:gateway"), "invalid_request", "payload.participant_id"),
    (say("admin", "system/presence"), "capability_violation", "kind"),
    (say("stranger", "chat"), "capability_violation", "kind"),
]


def test_what_is_refused_says_why_and_changes_nothing() -> None:
    with Cases() as case:
        for envelope, code, param in REFUSED:
            with case(f"{envelope.sender} {envelope.kind} {envelope.payload}"):
                ledger = space(admin=["*"], bob=["chat"])
                assert refused(ledger.feed(envelope)) == (code, param)
                assert not ledger.grants
                assert ledger.members == ("admin", "bob")


def test_the_same_grant_again_changes_nothing_and_another_of_its_id_is_refused() -> None:
    ledger = space(admin=["*"], bob=[])
    fine(ledger.feed(grant("admin", "bob", "chat", id="g1")))
    assert fine(ledger.feed(grant("admin", "bob", "chat", id="g1"))) == ()
    assert refused(ledger.feed(grant("admin", "bob", "mcp/*", id="g1"))) == ("id_conflict", "id")


def test_grants_are_counted() -> None:
    ledger = space(admin=["*"], bob=[])
    for _ in range(MAX_GRANTS):
        fine(ledger.feed(grant("admin", "bob", "chat")))
    assert refused(ledger.feed(grant("admin", "bob", "chat")))[0] == "too_many"


def test_who_was_granted_something_may_always_acknowledge_it_and_nobody_else() -> None:
    ledger = space(admin=["*"], bob=["chat"], eve=["chat"])
    fine(ledger.feed(grant("admin", "bob", "mcp/*", id="g1")))
    ack: dict[str, Any] = {"payload": {"status": "accepted"}, "correlation_id": ("g1",)}
    assert fine(ledger.feed(say("bob", "capability/grant-ack", **ack))) == (GrantAcknowledged("g1", "bob"),)
    assert ledger.grants["g1"].acknowledged
    assert refused(ledger.feed(say("eve", "capability/grant-ack", **ack))) == ("capability_violation", "kind")
    assert refused(ledger.feed(say("admin", "capability/grant-ack", **ack))) == ("not_found", "correlation_id")
    ack["payload"] = {"status": "declined"}
    (ended,) = fine(ledger.feed(say("bob", "capability/grant-ack", **ack)))
    assert (ended.why, may(ledger, "bob", "mcp/request")) == ("declined", False)


# --- taking back


def test_revoking_by_capabilities_takes_all_that_is_no_more_than_them() -> None:
    ledger = space(admin=["*"], bob=[])
    call = {"kind": "mcp/request", "payload": {"method": "tools/call"}}
    fine(ledger.feed(grant("admin", "bob", call, "chat", id="g1")))
    fine(ledger.feed(grant("admin", "bob", "mcp/*", id="g2")))
    tools = {"kind": "mcp/request", "payload": {"method": "tools/*"}}
    (ended,) = fine(ledger.feed(revoke("admin", recipient="bob", capabilities=[tools])))
    assert (ended.grant_id, [one.written for one in ended.capabilities]) == ("g1", [call])
    assert may(ledger, "bob", "chat")
    assert refused(ledger.feed(revoke("admin", recipient="bob", capabilities=[tools]))) == (
        "not_found",
        "payload.capabilities",
    )


def test_only_who_gave_or_could_have_given_takes_back() -> None:
    ledger = space(admin=["*"], mod=["capability/*", "chat"], bob=[], eve=["capability/revoke"])
    fine(ledger.feed(grant("admin", "bob", "mcp/*", id="g1")))
    fine(ledger.feed(grant("mod", "bob", "chat", id="g2")))
    for sender, which in (("mod", "g1"), ("eve", "g1"), ("eve", "g2")):
        assert refused(ledger.feed(revoke(sender, recipient="bob", grant_id=which))) == ("forbidden", "payload")
    fine(ledger.feed(revoke("mod", recipient="bob", grant_id="g2")))
    fine(ledger.feed(revoke("admin", recipient="bob", grant_id="g1")))


def test_what_was_given_at_the_door_only_the_door_takes_back() -> None:
    ledger = space(admin=["*"], bob=["chat"])
    assert refused(ledger.feed(revoke("admin", recipient="bob", capabilities=["chat"])))[0] == "not_found"
    assert may(ledger, "bob", "chat")
    ledger.configure_participant("bob", ())
    assert not may(ledger, "bob", "chat")


def test_a_chain_ends_with_its_source() -> None:
    ledger = space(admin=["*"], bob=[], cat=[], dan=[])
    fine(ledger.feed(grant("admin", "bob", "mcp/*", "chat", "capability/grant", id="g1")))
    fine(ledger.feed(grant("bob", "cat", "mcp/request", "capability/grant", id="g2")))
    fine(ledger.feed(grant("cat", "dan", "mcp/request", id="g3")))
    events = fine(ledger.feed(revoke("admin", grant_id="g1", capabilities=["mcp/*"])))
    assert [(event.grant_id, event.why) for event in events] == [
        ("g1", "revoked"),
        ("g2", "source_ended"),
        ("g3", "source_ended"),
    ]
    assert may(ledger, "bob", "chat")
    assert may(ledger, "cat", "capability/grant")
    assert not may(ledger, "dan", "mcp/request")


def test_two_grants_do_not_hold_each_other_up() -> None:
    ledger = space(admin=["*"], bob=["capability/grant"], cat=["capability/grant"])
    fine(ledger.feed(grant("admin", "bob", "mcp/*", id="g1")))
    fine(ledger.feed(grant("bob", "cat", "mcp/*", id="g2")))
    fine(ledger.feed(grant("cat", "bob", "mcp/*", id="g3")))
    fine(ledger.feed(revoke("admin", grant_id="g1")))
    assert not ledger.grants


def test_a_narrower_door_ends_what_was_given_through_the_wider() -> None:
    ledger = space(admin=["*"], bob=[])
    fine(ledger.feed(grant("admin", "bob", "mcp/*", "chat")))
    (ended,) = ledger.configure_participant("admin", read_capabilities(["chat", "capability/*"]))
    assert isinstance(ended, GrantEnded)
    assert (may(ledger, "bob", "chat"), may(ledger, "bob", "mcp/request")) == (True, False)
    (shut,) = ledger.remove_configured("admin")
    assert isinstance(shut, GrantEnded)
    assert shut.why == "source_ended"


# --- coming and going


def test_who_is_invited_holds_what_the_invitation_brings() -> None:
    ledger = space(admin=["*"])
    invited, granted = fine(ledger.feed(invite("admin", "new", "chat", "mcp/proposal")))
    assert invited == ParticipantInvited("new", "admin", "created")
    assert isinstance(granted, GrantAdded)
    assert may(ledger, "new", "mcp/proposal")
    assert fine(ledger.feed(invite("admin", "new", "*"))) == (ParticipantInvited("new", "admin", "already_exists"),)
    assert not may(ledger, "new", "mcp/request")


def test_nobody_invites_with_more_than_they_hold() -> None:
    ledger = space(host=["space/invite", "chat"])
    assert refused(ledger.feed(invite("host", "new", "*"))) == ("escalation", "payload.initial_capabilities[0]")
    assert [*ledger.members] == ["host"]
    fine(ledger.feed(invite("host", "new")))
    assert [*ledger.members] == ["host", "new"]


def test_who_is_kicked_is_out_with_all_they_gave() -> None:
    ledger = space(admin=["*"], bob=["chat", "capability/grant"], cat=[])
    fine(ledger.feed(grant("bob", "cat", "chat")))
    kicked, ended = fine(ledger.feed(kick("admin", "bob")))
    assert kicked == ParticipantKicked("bob", "admin")
    assert (ended.recipient, ended.why) == ("cat", "source_ended")
    assert not ledger.is_member("bob")
    assert refused(ledger.feed(say("bob", "chat")))[0] == "capability_violation"
    ledger.configure_participant("bob", read_capabilities(["chat"]))
    assert not may(ledger, "bob", "chat")
    fine(ledger.feed(invite("admin", "bob")))
    assert may(ledger, "bob", "chat")


def test_nobody_kicks_or_lets_back_in_who_may_do_more_to_others() -> None:
    ledger = space(admin=["*"], mod=["space/kick", "space/invite"], bob=["mcp/*", "chat"])
    assert refused(ledger.feed(kick("mod", "admin"))) == ("forbidden", "payload.participant_id")
    fine(ledger.feed(kick("mod", "bob")))
    ledger.configure_participant("root", read_capabilities(["*"]))
    fine(ledger.feed(kick("root", "admin")))
    assert refused(ledger.feed(invite("mod", "admin"))) == ("forbidden", "payload.participant_id")
    fine(ledger.feed(invite("mod", "bob")))


def test_the_gateway_may_do_anything() -> None:
    ledger = space(bob=[])
    fine(ledger.feed(grant(GATEWAY, "bob", "*")))
    fine(ledger.feed(say(GATEWAY, "system/presence")))
    fine(ledger.feed(kick(GATEWAY, "bob")))
    assert ledger.members == ()


def test_what_everybody_holds() -> None:
    ledger = Ledger(read_capabilities(["mcp/response"]))
    ledger.configure_participant("bob", ())
    assert may(ledger, "bob", "mcp/response")
    assert not may(ledger, "stranger", "mcp/response")


def test_rights_that_nobody_sends_are_held_like_others() -> None:
    ledger = space(admin=["*"], bob=["chat"])
    assert (ledger.holds_right("admin", "space/observe"), ledger.holds_right("bob", "space/observe")) == (True, False)
    fine(ledger.feed(grant("admin", "bob", "space/observe")))
    assert ledger.holds_right("bob", "space/observe")
    assert not ledger.holds_right("stranger", "space/observe")


# --- whatever happens

PEOPLE = ["ann", "bob", "cat", "dan"]
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


def _steps(chance: Random) -> Iterator[tuple[Any, ...]]:
    """A long afternoon in a space, most of it spent on giving and taking rights."""

    def some(least: int = 0) -> list[Any]:
        return chance.choices(_WRITTEN, k=chance.randint(least, 3))

    def person() -> str:
        return chance.choices(PEOPLE, weights=[4, 3, 2, 1])[0]

    for name, first in zip(PEOPLE, ("*", "capability/*", "space/*", "chat"), strict=True):
        yield "door", name, [first, *some()]
    for _ in range(40):
        what = chance.choices(("grant", "revoke", "take", "door", "invite", "kick"), weights=[14, 4, 1, 1, 2, 1])[0]
        match what:
            case "grant":
                who = person()
                yield what, who, chance.choice([one for one in PEOPLE if one != who]), some(1)
            case "revoke":
                yield what, person(), chance.randint(0, 99)
            case "take":
                yield what, person(), person(), chance.choice(_WRITTEN)
            case "door":
                yield what, person(), some(1)
            case "invite":
                yield what, person(), chance.choice([*PEOPLE, "eve"]), some()
            case "kick":
                yield what, person(), chance.choice([*PEOPLE, "eve"])


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


def _do(ledger: Ledger, number: int, step: tuple[Any, ...]) -> None:
    what, who, *rest = step
    if what == "door":
        ledger.configure_participant(who, read_capabilities(rest[0]))
        return
    match what, *rest:
        case "grant", recipient, written:
            envelope = say(who, "capability/grant", {"recipient": recipient, "capabilities": written})
        case "revoke", place:
            grant_id = [*ledger.grants, "none"][place % (len(ledger.grants) + 1)]
            envelope = say(who, "capability/revoke", {"grant_id": grant_id})
        case "take", recipient, written:
            envelope = say(who, "capability/revoke", {"recipient": recipient, "capabilities": [written]})
        case "invite", name, written:
            envelope = say(who, "space/invite", {"participant_id": name, "initial_capabilities": written})
        case "kick", name:
            envelope = say(who, "space/kick", {"participant_id": name})
        case _:
            raise AssertionError(step)
    ledger.feed(replace(envelope, id=f"s{number}"))


def _could(ledger: Ledger, who: str, probe: Envelope, doors: dict[str, tuple[Capability, ...]], before: int) -> bool:
    """Whether they hold it from the door, or from somebody who could when they gave it: told from the grants alone."""
    if who in doors and any(one.allows(probe, StepBudget(10_000)) for one in doors[who]):
        return True
    return any(
        grant.recipient == who
        and any(one.allows(probe, StepBudget(10_000)) for one in grant.capabilities)
        and _could(ledger, grant.by, probe, doors, place)
        for place, grant in enumerate(list(ledger.grants.values())[:before])
    )


def test_nobody_ever_may_what_nobody_could_give() -> None:
    with Cases() as case:
        for seed in range(by_circle(12, 100)):
            with case(f"seed {seed}"):
                _check_rights(seed)


def _check_rights(seed: int) -> None:
    """Play one random conversation; after each step, every right comes from a door or from a grant."""
    ledger, again = Ledger(), Ledger()
    happened = list(_steps(Random(seed)))
    doors: dict[str, tuple[Capability, ...]] = {}
    for number, step in enumerate(happened):
        _do(ledger, number, step)
        if step[0] == "door":
            doors[step[1]] = read_capabilities(step[2])
        inside = {name: door for name, door in doors.items() if name in ledger.members}
        for who in [*PEOPLE, "eve"]:
            for kind, payload, to in _PROBES:
                probe = Envelope(id="probe", ts=0, sender=who, kind=kind, payload=payload, to=to)
                if ledger.decide(probe).allowed:
                    assert _could(ledger, who, probe, inside, len(ledger.grants)), (who, kind, payload, step)
            assert ledger.is_member(who) or not ledger.held(who)
    for number, step in enumerate(happened):
        _do(again, number, step)
    assert (dict(again.grants), again.members) == (dict(ledger.grants), ledger.members)
