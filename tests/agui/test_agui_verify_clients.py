"""The verifier agrees with the official clients."""

from __future__ import annotations

import pytest

from pellucid.protocols.agui.dialects import DialectName
from pellucid.protocols.agui.verify import verify
from tests.agui import agui_node, agui_streams
from tests.agui.agui_client import messages_from_events
from tests.agui.agui_kit import several


@pytest.mark.needs("node")
@pytest.mark.parametrize(
    ("rich", "dialect", "clients"), [(True, "1.0", ["1.0.0"]), (False, "0.x", ["1.0.0", "0.0.58", "0.0.45"])]
)
def test_violations_are_fatal_if_and_only_if_a_client_refuses_them(
    rich: bool, dialect: DialectName, clients: list[agui_node.Client]
) -> None:
    sequences = several(agui_streams.broken(rich))
    played = [agui_node.play(client, sequences) for client in clients]
    wrong = []
    fatal = 0
    for sequence, *result in zip(sequences, *played, strict=True):
        violation = verify(sequence, dialect, least="fatal")
        fatal += violation is not None
        if (violation is None) != all(one["accepted"] for one in result):
            wrong.append((sequence, violation, [one["error"] for one in result]))
    assert not wrong, f"{len(wrong)} of {len(sequences)}; the shortest: {min(wrong, key=lambda one: len(one[0]))}"
    assert len(sequences) // 5 < fatal < len(sequences)


@pytest.mark.needs("node")
def test_legal_streams_are_accepted_without_a_warning() -> None:
    """Mutated streams without a violation lead to the messages that their events add up to."""
    sequences = several(agui_streams.runs() | agui_streams.broken())
    legal = [sequence for sequence in sequences if verify(sequence, least="silent") is None]
    assert len(legal) > len(sequences) // 4
    for sequence, result in zip(legal, agui_node.play("1.0.0", legal), strict=True):
        assert result["accepted"], (sequence, result)
        assert [one for one in result["warnings"] if "apply" not in one] == [], sequence
        if not any(event["type"] == "MESSAGES_SNAPSHOT" or "input" in event for event in sequence):
            assert {one["id"]: one for one in result["messages"]} == messages_from_events(sequence), sequence


@pytest.mark.parametrize(("dialect", "rich"), [("1.0", True), ("0.x", False), ("1.0", False)])
def test_generated_runs_have_no_violation(dialect: DialectName, rich: bool) -> None:
    for sequence in several(agui_streams.runs(rich)):
        assert verify([dict(event) for event in sequence], dialect) is None, sequence
