"""docs/providers.md has an entry for each builtin profile, which agrees with the profile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from pellucid.providers.profile import Profile
from pellucid.providers.profiles import builtin_profiles

PAGE = Path(__file__).parents[2] / "docs/providers.md"
ROWS = builtin_profiles()
_ENTRY = re.compile(r"^\| `([\w.-]+)` \| (.*) \| (.*) \| (.*?) ?\| (\S+) \|$", re.MULTILINE)


class Entry(NamedTuple):
    read: str
    sent_back: str
    not_possible: str
    compared: str


ENTRIES = {name: Entry(*cells) for name, *cells in _ENTRY.findall(PAGE.read_text())}


def cell(name: str, column: str) -> str:
    """Return a cell; for `as NAME`, together with the cell of that row."""
    text: str = getattr(ENTRIES[name], column)
    return text + "".join(cell(other, column) for other in re.findall(r"\bas `([\w.-]+)`", text) if other != name)


def variants(profile: Profile) -> list[Profile]:
    """Return the profile, and the profile of each row of `models`."""
    return [profile, *(profile.for_model(str(row["match"]).replace("*", "x")) for row in profile.models)]


def test_each_profile_has_one_entry() -> None:
    assert len(_ENTRY.findall(PAGE.read_text())) == len(ENTRIES), "a row has two entries"
    assert set(ENTRIES) == set(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_an_entry_agrees_with_its_profile(name: str) -> None:
    profile, sent_back, not_possible = ROWS[name], cell(name, "sent_back"), cell(name, "not_possible")
    assert re.fullmatch(r"20\d\d-[01]\d", ENTRIES[name].compared)
    assert (profile.replay == "none") == sent_back.startswith("nothing"), sent_back
    if profile.replay == "field" and profile.wire in ("openai_chat", "ollama"):
        for field in (profile.replay_field, *profile.replay_also, profile.replay_signature):
            assert f"`{field}`" in sent_back or not field
    if profile.wire == "openai_chat" and profile.replay in ("details", "carrier"):
        assert "reasoning_details" in sent_back
    if profile.replay_on == "thinking":
        assert "nothing while thinking is off" in sent_back
    if profile.tags is not None:
        assert "tags" in cell(name, "read")
    if any(row.forced_calls != "free" for row in variants(profile)):
        assert "forced calls" in not_possible
    if any(row.thinking_off == "least" for row in variants(profile)):
        assert "switching off" in not_possible
