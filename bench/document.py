"""Write measured figures into pages of the documentation, between two comments, with the date, commit and machine.

<!-- begin: NAME -->
everything here is replaced
<!-- end: NAME -->
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import processes

ROOT = Path(__file__).resolve().parents[1]
PERFORMANCE = ROOT / "docs" / "performance.md"
COMPATIBILITY = ROOT / "docs" / "compatibility.md"


def write_section(page: Path, name: str, text: str) -> None:
    """Replace the text between the two comments of this name.

    Raises:
        ValueError: If the page does not have them.
    """
    begin, end = f"<!-- begin: {name} -->", f"<!-- end: {name} -->"
    before, opened, rest = page.read_text("utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"{page.name}: needs a line {begin} and, after it, a line {end}")
    page.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", "utf-8")


def conditions(command: str, started: datetime, versions: Iterable[str] = ()) -> str:
    """Return a sentence that says when, at which commit, how and on which machine something was measured."""
    machine = processes.machine()
    on = [str(machine["cpu"]), f"{machine['cpus']} CPUs", str(machine["kernel"]), f"Python {platform.python_version()}"]
    day = f"{started.astimezone(UTC):%Y-%m-%d}"
    return f"Measured on {day} at commit {commit()} by `{command}`: {', '.join([*on, *versions])}."


def commit() -> str:
    """Return the short name of the checkout's commit."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
