"""Prepare a release, and print its part of the changelog.

    python tools/release.py prepare 0.2.0    # version.py, CHANGELOG.md and names.txt; then commit, tag v0.2.0
    python tools/release.py notes 0.2.0      # the section of CHANGELOG.md, for the release's page

The tag `v0.2.0` starts the workflow that publishes. `notes` fails unless version.py and CHANGELOG.md have that version,
so a tag on the wrong commit publishes nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHANGELOG = Path("CHANGELOG.md")
VERSION = Path("src/pellucid/version.py")
NAMES = Path("tests/frozen/names.txt")

_VERSION_LINE = re.compile(r'^__version__ = "([^"]+)"$', re.MULTILINE)
_UNRELEASED = "\n## Unreleased\n"


class ReleaseError(Exception):
    """The files do not allow what was requested."""


def prepare(root: Path, version: str, day: date) -> None:
    """Write the version, and make the section "Unreleased" of the changelog the one of this version.

    Raises:
        ReleaseError: The version is malformed or exists already, or nothing is unreleased.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise ReleaseError(f"{version!r} is not a version such as 0.2.0 or 0.2.0rc1")
    changelog = (root / CHANGELOG).read_text("utf-8")
    if f"\n## {version} " in changelog:
        raise ReleaseError(f"CHANGELOG.md has {version} already")
    before, heading, after = changelog.partition(_UNRELEASED)
    if not heading or not after.partition("\n## ")[0].strip():
        raise ReleaseError('CHANGELOG.md has nothing under "## Unreleased"')
    (root / CHANGELOG).write_text(f"{before}{_UNRELEASED}\n## {version} ({day})\n{after}", "utf-8")
    text = (root / VERSION).read_text("utf-8")
    (root / VERSION).write_text(_VERSION_LINE.sub(f'__version__ = "{version}"', text), "utf-8")


def notes(root: Path, version: str) -> str:
    """Return the section of a version, without its heading.

    Raises:
        ReleaseError: version.py has another version, or the changelog has no section for this one.
    """
    written = _VERSION_LINE.search((root / VERSION).read_text("utf-8"))
    if written is None or written[1] != version:
        raise ReleaseError(f"{VERSION} has the version {written and written[1]}, and not {version}")
    section = re.search(
        rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)\n(.*?)(?=^## |\Z)",
        (root / CHANGELOG).read_text("utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    if section is None:
        raise ReleaseError(f'CHANGELOG.md has no section "## {version} (DATE)"')
    return section[1].strip() + "\n"


def main(arguments: list[str]) -> int:
    try:
        match arguments:
            case ["prepare", version]:
                prepare(ROOT, version, datetime.now(UTC).date())
                names = [sys.executable, "-m", "tests.frozen.names"]
                done = subprocess.run(names, cwd=ROOT, stdout=subprocess.PIPE, check=True)
                (ROOT / NAMES).write_bytes(done.stdout)
            case ["notes", version]:
                print(notes(ROOT, version), end="")
            case _:
                print(__doc__)
                return 2
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
