"""Names that users depend on change only with a line in the changelog.

`names.txt` has the names of the last release (or, before the first, of the version from which they are frozen). A new
or removed name is listed in CHANGELOG.md, under "Unreleased", in the section "Names": in backticks, as
`tests/frozen/names.py` writes it, or with a `*` at its end as a prefix. At a release, the list is generated again
(`python -m tests.frozen.names > tests/frozen/names.txt`) and the section stays with the release.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from pellucid.protocols.agui.dialects import Dialect
from pellucid.protocols.agui.interrupts import DeferredCall
from pellucid.protocols.agui.verify import Violation
from tests.frozen.asserted import ROOT, codes_in_docs, codes_in_tests
from tests.frozen.names import KINDS, answer_roots, current_names, protocol_structs, request_roots
from tests.frozen.schemas import unreached

FROZEN = Path(__file__).with_name("names.txt").read_text().splitlines()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
OF_OTHERS = frozenset({"bad_thing", "context_closed", "overloaded_error", "rate_limit", "tool_use_failed"})
"""Codes of providers, scripted upstreams and a participant, which tests name."""


def _listed(what: str) -> list[str]:
    """Return the patterns in backticks on the changelog's lines that begin with this word."""
    unreleased = CHANGELOG.partition("\n## Unreleased\n")[2].partition("\n## ")[0]
    section = unreleased.partition("\n### Names\n")[2].partition("\n### ")[0]
    lines = [line for line in re.split(r"\n(?=- )", section) if line.startswith(f"- {what}")]
    return re.findall(r"`([^`]+)`", "\n".join(lines))


def _unlisted(names: set[str], patterns: list[str]) -> list[str]:
    literal = [re.sub(r"[\[{?]", "?", pattern) for pattern in patterns]
    return sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in literal))


def test_removed_names_are_in_the_changelog() -> None:
    gone = _unlisted(set(FROZEN) - set(current_names()), _listed("Removed"))
    assert not gone, f"CHANGELOG.md, Unreleased, Names, has no line `- Removed: …` for: {gone}"


def test_new_names_are_in_the_changelog() -> None:
    new = _unlisted(set(current_names()) - set(FROZEN), _listed("Added"))
    assert not new, f"CHANGELOG.md, Unreleased, Names, has no line `- Added: …` for: {new}"


def test_every_kind_has_names() -> None:
    kinds = {name.partition(" ")[0] for name in current_names()}
    openapi = {"path", "operation", "parameter", "request", "answer", "schema", "security"}
    assert kinds == {*KINDS, *openapi, "span", "log"}


def test_every_code_in_tests_and_docs_is_listed() -> None:
    listed = [name.removeprefix("code ").replace("{}", "*") for name in current_names() if name.startswith("code ")]
    spoken = codes_in_tests() | codes_in_docs()
    unlisted = {
        code: sorted(places)
        for code, places in spoken.items()
        if code not in OF_OTHERS and not any(fnmatchcase(code, pattern) for pattern in listed)
    }
    assert not unlisted
    assert len(spoken) > 100, "the search does not find the codes any more"


def test_every_object_of_a_client_protocol_is_listed() -> None:
    read, written = request_roots(), answer_roots()
    for package, structs in protocol_structs().items():
        roots = [*read.get(package, {}).values(), *written.get(package, {}).values()]
        left = unreached(structs, roots) - {DeferredCall, Dialect, Violation}  # which are on no wire
        assert not left, f"name them in `request_roots` or `answer_roots`: {left}"


def test_every_query_parameter_in_the_docs_is_listed() -> None:
    listed = {
        name.split()[4].removesuffix("[]") for name in current_names() if re.match(r"parameter \S+ \S+ query", name)
    }
    listed |= {name.removeprefix("query ") for name in current_names() if name.startswith("query ")}
    for path in sorted((ROOT / "docs").glob("*.md")):
        sent = set(re.findall(r"(?<=[?&])([a-z_A-Z]+)(?==[^\s=])", path.read_text()))
        assert sent <= listed, path.name
