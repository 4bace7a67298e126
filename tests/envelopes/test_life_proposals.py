"""Proposals: which participants may settle one, and in which state."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given

from pellucid.envelopes import Envelope, Flag
from pellucid.envelopes.envelope import Sees
from pellucid.envelopes.proposals import Proposal, Proposals
from pellucid.errors import ErrorInfo
from tests.envelopes.life_kit import conversations, envelope_of

ASK: dict[str, Any] = {"method": "tools/call", "params": {"name": "create_issue", "arguments": {}}}


def proposals_with_one(**more: Any) -> CheckedProposals:
    proposals = CheckedProposals()
    assert proposals.feed(envelope_of("proposal", id="p1", by="a", **(ASK | more))).changed == ("p1",)
    return proposals


class CheckedProposals(Proposals):
    """Proposals that are checked and applied, as in a space."""

    def feed(self, envelope: Envelope, sees: Sees | None = None) -> ProposalVerdict:
        error = self.refusal(envelope, sees)
        return ProposalVerdict(error) if error is not None else ProposalVerdict(None, *self.apply(envelope, sees))


class ProposalVerdict(NamedTuple):
    error: ErrorInfo | None
    flags: tuple[Flag, ...] = ()
    changed: tuple[str, ...] = ()


def _code(proposals: CheckedProposals, envelope: Envelope) -> str | None:
    error = proposals.feed(envelope).error
    return None if error is None else error.code


def test_a_proposal_is_fulfilled_and_has_an_outcome() -> None:
    proposals = proposals_with_one()
    assert proposals.feed(envelope_of("request", id="r1", by="human", about="p1", **ASK)).changed == ("p1",)
    assert proposals.feed(envelope_of("response", id="o1", by="tools", about="r1", error={"code": 1})).changed == (
        "p1",
    )
    one = proposals.state["p1"]
    assert (one.status, one.by, one.settled_by, one.response, one.failed) == ("fulfilled", "human", "r1", "o1", True)


@pytest.mark.parametrize(
    ("kind", "by", "expected"),
    [
        ("withdraw", "a", None),
        ("withdraw", "b", "not_proposer"),
        ("reject", "b", None),
        ("reject", "a", "own_proposal"),
        ("request", "a", None),
        ("request", "b", None),
    ],
)
def test_who_may_settle_a_proposal(kind: str, by: str, expected: str | None) -> None:
    assert _code(proposals_with_one(), envelope_of(kind, by=by, about="p1")) == expected


@pytest.mark.parametrize("first", ["withdraw", "reject", "request"])
@pytest.mark.parametrize("second", ["withdraw", "reject", "request"])
def test_the_first_settlement_holds(first: str, second: str) -> None:
    proposals = proposals_with_one()
    assert _code(proposals, envelope_of(first, by="a" if first == "withdraw" else "b", about="p1")) is None
    assert (
        _code(proposals, envelope_of(second, by="a" if second == "withdraw" else "b", about="p1")) == "proposal_settled"
    )


def test_a_proposal_does_not_exist_for_those_who_may_not_read_it() -> None:
    proposals = proposals_with_one(to=["b"])
    for kind in ("reject", "withdraw"):
        for about in ("p1", "p2"):
            error = proposals.feed(envelope_of(kind, by="c", about=about)).error
            assert error is not None
            assert error.code == "proposal_unknown"
            assert error.message.endswith(f"there is none called {about!r}")
    fulfilment = proposals.feed(envelope_of("request", id="r1", by="c", about="p1", method="other"))
    assert (fulfilment.error, fulfilment.flags, fulfilment.changed) == (None, (), ())
    assert proposals.feed(envelope_of("response", by="c", about="r1")).changed == ()
    assert proposals.state["p1"].status == "open"
    assert _code(proposals, envelope_of("reject", by="b", about="p1")) is None


@pytest.mark.parametrize("by", ["a", "b"])
def test_proposer_and_addressees_fulfil_a_proposal(by: str) -> None:
    """The proposer does so when it was granted the right."""
    assert proposals_with_one(to=["b"]).feed(envelope_of("request", by=by, about="p1", **ASK)).changed == ("p1",)


def test_who_may_read_a_proposal_by_a_right_fulfils_it_and_does_not_reject_it() -> None:
    proposals, fulfilment = proposals_with_one(to=["b"]), envelope_of("request", id="r1", by="c", about="p1", **ASK)
    error = proposals.refusal(envelope_of("reject", by="c", about="p1"), lambda readers: True)
    assert error is not None
    assert error.code == "not_addressed"
    before = msgspec.json.encode(proposals.state)
    assert proposals.feed(fulfilment, lambda readers: True).changed == ("p1",)
    again = Proposals(msgspec.json.decode(before, type=dict[str, Proposal]))
    assert again.replay(fulfilment, ("p1",)) == ("p1",)
    assert again.state == proposals.state


def test_rejecting_or_withdrawing_an_unknown_proposal_is_refused() -> None:
    proposals = proposals_with_one()
    for kind in ("reject", "withdraw"):
        assert _code(proposals, envelope_of(kind, by="b", about="p2")) == "proposal_unknown"
        assert _code(proposals, envelope_of(kind, by="b")) == "proposal_unknown"
    assert proposals.feed(envelope_of("request", by="b", about="p2")).changed == ()


def test_a_request_that_differs_from_its_proposal_is_flagged() -> None:
    other = envelope_of("request", by="b", about="p1", method="tools/call", params={"name": "delete_issue"})
    assert [flag.code for flag in proposals_with_one().feed(other).flags] == ["differs"]


def test_only_the_proposer_reuses_an_id() -> None:
    proposals = proposals_with_one()
    assert _code(proposals, envelope_of("proposal", id="p1", by="b", **ASK)) == "id_conflict"
    assert _code(proposals, envelope_of("proposal", id="p1", by="a", **ASK)) is None
    proposals.feed(envelope_of("request", id="r1", by="b", about="p1", **ASK))
    assert _code(proposals, envelope_of("proposal", id="p1", by="a", **ASK)) is None
    assert proposals.state["p1"].status == "open"
    assert proposals.feed(envelope_of("response", by="tools", about="r1")).changed == ()


def test_settled_proposals_are_forgotten_before_open_ones() -> None:
    proposals = CheckedProposals(max_remembered=3)
    for name in ("p0", "p1", "p2"):
        proposals.feed(envelope_of("proposal", id=name, by="a", **ASK))
    proposals.feed(envelope_of("request", id="r1", by="b", about="p1"))
    for name in ("p3", "p4"):
        proposals.feed(envelope_of("proposal", id=name, by="a", **ASK))
    assert list(proposals.state) == ["p2", "p3", "p4"]
    assert proposals._fulfilled_by == {}


def test_a_flood_of_proposals_displaces_those_of_its_sender() -> None:
    proposals = CheckedProposals(max_remembered=5)
    proposals.feed(envelope_of("proposal", id="p1", by="a", **ASK))
    for number in range(20):
        proposals.feed(envelope_of("proposal", id=f"flood-{number}", by="b", **ASK))
    assert list(proposals.state) == ["p1", *(f"flood-{number}" for number in range(16, 20))]


@given(conversations())
def test_replaying_accepted_envelopes_gives_the_same_state(conversation: list[Envelope]) -> None:
    proposals = CheckedProposals()
    accepted = []
    for envelope in conversation:
        before = msgspec.json.encode(proposals.state)
        if proposals.feed(envelope).error is None:
            accepted.append(envelope)
        else:
            assert msgspec.json.encode(proposals.state) == before
    again = Proposals()
    for envelope in accepted:
        again.replay(envelope)
    assert again.state == proposals.state
    restored = msgspec.json.decode(msgspec.json.encode(proposals.state), type=dict[str, Proposal])
    assert Proposals(restored)._fulfilled_by == proposals._fulfilled_by
