"""Ids of the gateway: unique, of one form, and ordered by time."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest

from pellucid.run import Minter
from pellucid.server.exchange import new_minter


def test_ids_sort_by_the_time_of_their_minter(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [1_700_000_000_000, 1_700_000_000_001, 1_800_000_000_000, 9_999_999_999_999]
    made = []
    for at in times:
        monkeypatch.setattr(time, "time_ns", lambda at=at: at * 1_000_000)
        mint = new_minter()
        made.append([mint("resp") for _ in range(50)])
    assert all(max(earlier) < min(later) for earlier, later in pairwise(made))


def test_ids_of_one_moment_differ_and_have_one_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)
    ids = [mint(prefix) for mint in (new_minter() for _ in range(100)) for prefix in ("msg", "rs", "msg")]
    assert len({id.partition("_")[2] for id in ids}) == len(ids)
    assert all(re.fullmatch(r"(msg|rs)_[0-9a-f]{32}", id) for id in ids)


def test_a_seed_and_a_time_give_the_same_ids() -> None:
    one, other, timeless = Minter(b"seed", 5), Minter(b"seed", 5), Minter(b"seed")
    first = one("rs")
    assert first == other("rs")
    assert first.startswith("rs_000000000005")
    assert first[15:] == timeless("rs")[15:]
