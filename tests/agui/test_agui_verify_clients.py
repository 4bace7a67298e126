"""The verifier says what the official clients do."""

from __future__ import annotations

from typing import Any

import agui_node
import agui_streams
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from pellucid.protocols.agui.verify import Dialect, verify

SEQUENCES = 300


def several(strategy: st.SearchStrategy[Any]) -> list[list[dict[str, Any]]]:
    """The same sequences each time: a few processes play them all."""
    found: list[Any] = []

    @seed(1)
    @settings(
        max_examples=SEQUENCES,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(sequence: Any) -> None:
        found.append(sequence)

    collect()
    return found


@pytest.mark.parametrize(("rich", "dialect", "clients"), [(True, "1.0", ["1.0.0"]), (False, "0.x", ["1.0.0", "0.0.58", "0.0.45"])])
def test_fatal_is_what_a_client_refuses(rich: bool, dialect: Dialect, clients: list[Any]) -> None:
    sequences = several(agui_streams.broken(rich))
    played = [agui_node.play(client, sequences) for client in clients]
    wrong = []
    fatal = 0
    for sequence, *gave in zip(sequences, *played, strict=True):
        violation = verify(sequence, dialect, least="fatal")
        fatal += violation is not None
        if (violation is None) != all(one["accepted"] for one in gave):
            wrong.append((sequence, violation, [one["error"] for one in gave]))
    assert not wrong, f"{len(wrong)} of {len(sequences)}; the shortest: {min(wrong, key=lambda one: len(one[0]))}"
    assert SEQUENCES // 5 < fatal < SEQUENCES
