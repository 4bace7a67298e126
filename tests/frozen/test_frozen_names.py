"""Names that users depend on change only with a line in the changelog.

`names.txt` has the names of the last release (or, before the first, of the version from which they are kept). A name
that is new or gone is listed in CHANGELOG.md, under "Unreleased", in the section "Names": in backticks, as
`tests/frozen/names.py` writes it, or with a `*` at its end for all that begin so. At a release, the list is written
anew (`python -m tests.frozen.names > tests/frozen/names.txt`) and the section stays with the release.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from tests.frozen.names import current_names

FROZEN = Path(__file__).with_name("names.txt").read_text().splitlines()
CHANGELOG = (Path(__file__).parents[2] / "CHANGELOG.md").read_text()


def _listed(what: str) -> list[str]:
    """The patterns in backticks on the changelog's lines that begin with this word."""
    unreleased = CHANGELOG.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    section = unreleased.partition("\n### Names\n")[2].partition("\n### ")[0]
    lines = [line for line in re.split(r"\n(?=- )", section) if line.startswith(f"- {what}")]
    return re.findall(r"`([^`]+)`", "\n".join(lines))


def _unlisted(names: set[str], patterns: list[str]) -> list[str]:
    literal = [re.sub(r"[\[{?]", "?", pattern) for pattern in patterns]
    return sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in literal))


def test_names_that_are_gone_stand_in_the_changelog() -> None:
    gone = _unlisted(set(FROZEN) - set(current_names()), _listed("Removed"))
    assert not gone, f"CHANGELOG.md, Unreleased, Names, has no line `- Removed: …` for: {gone}"


def test_names_that_are_new_stand_in_the_changelog() -> None:
    new = _unlisted(set(current_names()) - set(FROZEN), _listed("Added"))
    assert not new, f"CHANGELOG.md, Unreleased, Names, has no line `- Added: …` for: {new}"


def test_there_are_names_of_every_kind() -> None:
    kinds = {name.partition(" ")[0] for name in FROZEN}
    assert kinds == {
        *("path", "config", "environment", "command", "code", "metric", "attribute", "event", "field", "envelope")
    }
