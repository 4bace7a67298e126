"""The rules of the life cycle of a context, one by one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from pellucid.envelopes import GATEWAY
from pellucid.envelopes.lifecycle import MOVES
from pellucid.envelopes.reasoning import ContextStatus, EndedContext, NameSet
from tests.cases import Cases
from tests.envelopes.life_kit import code, envelope_of, feed_all, flags, life, seed_flow
from tests.envelopes.seed_flows import FLOWS


@pytest.mark.parametrize("name", sorted(FLOWS))
def test_every_flow_of_the_seed_passes(name: str) -> None:
    space = life()
    verdicts = feed_all(space, *seed_flow(name))

    assert [verdict.error for verdict in verdicts] == [None] * len(verdicts)
    expected = {"unknown_reference"} if name == "references" else set()
    assert set().union(*map(flags, verdicts)) == expected


def test_all_the_flows_of_the_seed_pass_in_one_space() -> None:
    space = life()
    for name in FLOWS:
        assert [verdict.error for verdict in feed_all(space, *seed_flow(name))] == [None] * len(FLOWS[name])


def test_the_seeds_final_answers_are_linked() -> None:
    for name, path in {"option_4": "reason-123", "option_5": "msg-101", "file_write_option_4": "reason-789"}.items():
        space = life()
        verdicts = feed_all(space, *seed_flow(name))

        ended_context = space.contexts.by_name(path)
        assert ended_context is not None
        assert ended_context.status == "concluded"
        answers = [verdict for verdict in verdicts if verdict.links]
        assert all(verdict.links == (path,) for verdict in answers)
        assert len(answers) == (2 if name == "option_4" else 1)  # the proposal is a result of it, too
        assert ended_context.answer is not None

    space = life()
    feed_all(space, *seed_flow("option_5_many_agents"))
    assert {path: ended_context.answer for path, ended_context in space.state.ended.items()} == {
        "msg-201": "msg-210",
        "msg-202": "msg-211",
    }


def test_the_table_of_moves_is_complete() -> None:
    assert {len(row) for row in MOVES.values()} == {6}


def test_a_start_inside_an_open_context_nests_and_else_opens_its_label() -> None:
    space = life()
    verdicts = feed_all(
        space,
        envelope_of("start", id="m1"),
        envelope_of("start", "m1", id="m2"),
        envelope_of("start", "m1/m2", id="m3"),
        envelope_of("start", "m1/named", id="m4"),
        envelope_of("start", "label", id="m5"),
        envelope_of("start", "far/off", id="m6"),
    )
    assert [verdict.place.path for verdict in verdicts] == ["m1", "m1/m2", "m1/m2/m3", "m1/named", "label", "far/off"]
    assert list(space.state.open) == ["m1", "m1/m2", "m1/m2/m3", "m1/named", "label", "far/off"]


def test_a_starts_id_means_the_context_that_it_opened_wherever_that_is() -> None:
    space = life()
    feed_all(
        space,
        envelope_of("start", id="m1"),
        envelope_of("start", "m1", id="m2"),
        envelope_of("start", "label", id="m3"),
    )

    for written, expected_path in {
        "m2": "m1/m2",
        "m2/deeper": "m1/m2/deeper",
        "m3": "label",
        "label/m3": "label",
        "label/m3/x": "label/x",
    }.items():
        assert space.feed(envelope_of("thought", written)).place.path == expected_path


def test_implicit_contexts_open_by_being_spoken_in_and_become_started_ones() -> None:
    space = life()
    first, again, thought, start = feed_all(
        space,
        envelope_of("chat", "talk"),
        envelope_of("request", "talk"),
        envelope_of("thought", "idea", by="b", ts=1),
        envelope_of("start", "talk", id="m1", by="b"),
        envelope_of("chat", "idea", ts=2),
    )[:4]
    assert (first.place.role, again.place.role) == ("opens", "step")
    assert flags(first) == set()
    assert space.state.implicit["idea"].active == 2
    assert flags(thought) == {"not_started"}
    assert start.place.path == "talk"
    assert space.contexts.by_name("m1") is space.state.open["talk"]
    assert flags(space.feed(envelope_of("thought", "talk", by="b"))) == set()


@pytest.mark.parametrize("mode", ["strict", "flag", "off"])
def test_reasoning_after_the_end_is_refused_or_flagged(mode: str) -> None:
    with Cases() as case:
        for kind in ("thought", "question", "conclusion", "cancel", "start"):
            with case(kind):
                _check_reasoning_after_the_end(kind, mode)


def _check_reasoning_after_the_end(kind: str, mode: str) -> None:
    space = life(mode=mode)
    feed_all(
        space,
        envelope_of("start", id="m1"),
        envelope_of("chat", "m1/aside"),
        envelope_of("thought", "m1"),
        envelope_of("conclusion", "m1"),
    )
    late = space.feed(envelope_of(kind, "m1"))

    assert code(late) == ("context_ended" if mode == "strict" else None)
    assert flags(late) == ({"context_ended"} if mode == "flag" else set())
    for inside in ("m1/never/seen", "m1/aside"):
        assert code(space.feed(envelope_of(kind, inside))) == ("context_ended" if mode == "strict" else None)


@pytest.mark.parametrize("kind", ["chat", "request", "response", "proposal"])
def test_other_envelopes_are_accepted_after_the_end(kind: str) -> None:
    space = life()
    feed_all(space, envelope_of("start", id="m1"), envelope_of("conclusion", "m1"))
    late = space.feed(envelope_of(kind, "m1"))

    assert late.accepted
    assert flags(late) == {"after_end"}


def test_the_gateway_adds_summaries_to_any_context() -> None:
    space = life(owner_only=True)
    feed_all(space, envelope_of("start", id="m1"), envelope_of("thought", "m1", id="t1"))
    summary: dict[str, Any] = {"message": "in short", "metadata": {"compresses": ["t1"]}}
    assert space.feed(envelope_of("thought", "m1", by=GATEWAY, **summary)).accepted
    feed_all(space, envelope_of("conclusion", "m1"))
    late = space.feed(envelope_of("thought", "m1", by=GATEWAY, **summary))
    assert (late.accepted, late.place.path) == (True, "m1")


def test_a_context_operation_is_ignored() -> None:
    space = life()
    pushed = replace(envelope_of("thought"), context_operation={"operation": "push", "topic": "x"})
    assert space.feed(pushed).accepted


@pytest.mark.parametrize(("by", "status"), [("human", "cancelled"), (GATEWAY, "abandoned")])
def test_one_conclusion_is_accepted_after_a_cancel(by: str, status: ContextStatus) -> None:
    space = life()
    feed_all(space, envelope_of("start", id="m1"))

    assert space.feed(envelope_of("cancel", "m1", by=by, reason="enough")).ended == (EndedContext("m1", status),)
    refused, concluded, again = feed_all(
        space, envelope_of("thought", "m1"), envelope_of("conclusion", "m1"), envelope_of("conclusion", "m1")
    )
    assert (code(refused), code(concluded), code(again)) == ("context_ended", None, "context_ended")
    assert "one conclusion" in str(refused.error and refused.error.message)
    assert space.state.ended["m1"].status == status


def test_a_conclusion_that_says_cancelled_cancels() -> None:
    space = life()
    feed_all(space, envelope_of("start", id="m1"))
    assert space.feed(envelope_of("conclusion", "m1", cancelled=True)).ended == (EndedContext("m1", "cancelled"),)


@pytest.mark.parametrize(("end", "inner"), [("conclusion", "abandoned"), ("cancel", "cancelled")])
def test_ending_a_context_ends_those_inside_it(end: str, inner: str) -> None:
    space = life()
    feed_all(
        space,
        envelope_of("start", id="m1"),
        envelope_of("start", "m1", id="m2"),
        envelope_of("start", "m1/m2", id="m3"),
    )
    feed_all(space, envelope_of("start", id="m10"))
    verdict = space.feed(envelope_of(end, "m1"))

    assert [(one.path, one.status) for one in verdict.ended[1:]] == [("m1/m2", inner), ("m1/m2/m3", inner)]
    assert flags(verdict) == ({"left_open"} if end == "conclusion" else set())
    assert list(space.state.open) == ["m10"]
    assert code(space.feed(envelope_of("thought", "m1/m2"))) == "context_ended"
    assert space.feed(envelope_of("conclusion", "m1/m2")).accepted


def test_ends_and_steps_need_a_context() -> None:
    space = life()
    verdicts = feed_all(
        space,
        envelope_of("conclusion", "m1"),
        envelope_of("cancel", "m1"),
        envelope_of("thought"),
        envelope_of("conclusion"),
    )
    assert [code(verdict) for verdict in verdicts] == ["context_unknown"] * 2 + ["context_required"] * 2


def test_names_are_unique() -> None:
    space = life()
    feed_all(space, envelope_of("chat", id="m0"), envelope_of("start", id="m1"), envelope_of("start", "label", id="m2"))
    feed_all(space, envelope_of("conclusion", "label"))
    for again in (
        envelope_of("start", id="m0"),
        envelope_of("start", id="m1"),
        envelope_of("start", id="m2"),
        envelope_of("start", id="label"),
        envelope_of("start", "m1", id="m2"),
        envelope_of("start", "other", id="m1"),
    ):
        assert code(space.feed(again)) == "id_conflict"
    assert code(space.feed(envelope_of("start", id="m9"))) is None


def test_names_in_the_history_are_known() -> None:
    space = life(max_ids=2)
    feed_all(space, *(envelope_of("chat", id=name) for name in ("i1", "i2", "i1", "i3")))
    assert list(space.state.recent) == ["i1", "i3"]

    space = life(max_ended=1, max_ids=1)
    feed_all(
        space,
        envelope_of("start", id="old"),
        envelope_of("conclusion", "old"),
        envelope_of("start", "tag", id="x"),
        envelope_of("conclusion", "tag"),
    )
    feed_all(space, envelope_of("start", id="m3"), envelope_of("conclusion", "m3"))

    again, step, more = (
        envelope_of("start", id="old"),
        envelope_of("thought", "tag/in"),
        envelope_of("start", id="m4", references=["x", "y"]),
    )
    names = [space.unknown_names(one) for one in (again, step, more)]
    assert names[0].ids == {"old"}
    assert names[1].paths == {"tag/in", "tag"}
    assert names[2].ids == {"m4", "x", "y"}
    assert code(space.feed(again, known=NameSet(frozenset({"old"})))) == "id_conflict"
    assert code(space.feed(step, known=NameSet(paths=frozenset({"tag"})))) == "context_ended"
    assert [flag.message for flag in space.feed(more, known=NameSet(frozenset({"x"}))).flags] == [
        "nothing in this space is called 'y'"
    ]


def test_every_participant_contributes_unless_owner_only() -> None:
    others = (
        envelope_of("thought", "m1", by="b"),
        envelope_of("start", "m1", id="m2", by="b"),
        envelope_of("conclusion", "m1", by="b"),
    )
    free, strict = life(), life(owner_only=True)
    feed_all(free, envelope_of("start", id="m1"))
    assert [code(one) for one in feed_all(free, *others)] == [None] * 3
    feed_all(strict, envelope_of("start", id="m1"))
    assert [code(one) for one in feed_all(strict, *others)] == ["owner_only"] * 3
    assert [
        code(one) for one in feed_all(strict, envelope_of("thought", "m1"), envelope_of("start", "m1", id="m3"))
    ] == [None] * 2
    feed_all(strict, envelope_of("chat", "m1/aside"))
    assert code(strict.feed(envelope_of("thought", "m1/aside", by="b"))) == "owner_only"
    assert [
        code(one) for one in feed_all(strict, envelope_of("chat", "m1", by="b"), envelope_of("cancel", "m1", by="b"))
    ] == [None] * 2


def test_the_final_answer_is_an_envelope_of_the_owner_outside_the_context() -> None:
    space = life()
    feed_all(
        space,
        envelope_of("chat", id="m0", by="user"),
        envelope_of("start", id="m1", about="m0"),
        envelope_of("start", "m1", id="m2", about="m0"),
    )
    inside, other, acknowledged = feed_all(
        space,
        envelope_of("chat", "m1", about="m0"),
        envelope_of("chat", about="m0", by="b"),
        envelope_of("chat/acknowledge", about="m0"),
    )
    assert inside.links == other.links == acknowledged.links == ()
    early = space.feed(envelope_of("chat", about="m0", id="early"))
    assert early.links == ("m1",)  # inner contexts belong to it
    feed_all(space, envelope_of("conclusion", "m1/m2"), envelope_of("conclusion", "m1"))
    final, after = feed_all(
        space, envelope_of("chat", about="m1", id="final"), envelope_of("chat", about=["m0", "m1"], id="after")
    )
    assert final.links == after.links == ("m1",)
    assert space.state.ended["m1"].answer == "final"


def test_the_number_of_open_contexts_is_limited() -> None:
    for mode in ("strict", "flag", "off"):
        space = life(max_open=2, mode=mode)
        feed_all(
            space,
            envelope_of("start", id="m1"),
            envelope_of("start", "m1", id="m2"),
            envelope_of("start", id="m3", by="b"),
        )
        assert space.contexts.count_open_of("agent") == 2
        assert code(space.feed(envelope_of("start", id="m4"))) == "too_many_contexts"
        feed_all(space, envelope_of("conclusion", "m1/m2"))
        assert space.feed(envelope_of("start", id="m5")).accepted
        assert space.contexts.count_open_of("agent") == 2


def test_paths_have_at_most_five_segments() -> None:
    for mode in ("strict", "flag", "off"):
        space = life(mode=mode)
        path = "m0"
        feed_all(space, envelope_of("start", id="m0"))
        for number in range(1, 5):
            feed_all(space, envelope_of("start", path, id=f"m{number}"))
            path = f"{path}/m{number}"
        assert code(space.feed(envelope_of("start", path, id="m5"))) == "too_deep"
        assert code(space.feed(envelope_of("thought", "m4/deeper"))) == "too_deep"
        assert code(space.feed(envelope_of("start", "m" * 255, id="long"))) is None
        assert code(space.feed(envelope_of("start", "m" * 255, id="longer"))) == "too_long"


def test_idle_and_left_contexts_are_ended_by_the_gateway() -> None:
    space = life(idle_ms=1000)
    feed_all(
        space,
        envelope_of("start", id="m1", ts=0),
        envelope_of("start", "m1", id="m2", ts=0),
        envelope_of("start", id="m3", ts=0, by="b"),
    )
    feed_all(space, envelope_of("thought", "m3", ts=900, by="b"))
    assert space.feed(envelope_of("thought", "m1/m2", ts=0), time_ms=500).accepted

    assert [one.path for one in space.due(1499)] == []
    assert [one.path for one in space.due(1500)] == ["m1"]
    assert [one.path for one in space.due(1900)] == ["m1", "m3"]
    assert [one.path for one in space.left_open_by("b")] == ["m3"]
    for one in space.due(1500):
        verdict = space.feed(envelope_of("cancel", one.path, by=GATEWAY, reason="timeout"))
        assert {ended.status for ended in verdict.ended} == {"abandoned"}
    assert space.due(1500) == space.left_open_by("agent") == ()


def test_steps_follow_their_template() -> None:
    space = life(templates={"incident": ("facts", "causes", "fix")})
    assert code(space.feed(envelope_of("start", id="m0", template="incdent"))) == "unknown_template"
    feed_all(space, envelope_of("start", id="m1", template="incident"))
    steps = ["facts", "facts", "fix", "causes", "facts", "nothing", None]
    payloads: list[dict[str, Any]] = [{"step": step} if step else {} for step in steps]
    verdicts = feed_all(space, *(envelope_of("thought", "m1", **payload) for payload in payloads))

    late = "step_out_of_order"
    assert [code(verdict) for verdict in verdicts] == [None, None, late, None, late, "unknown_step", None]
    assert flags(space.feed(envelope_of("conclusion", "m1"))) == {"steps_missing"}
