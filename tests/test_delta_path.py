"""The way of a delta from socket to socket: the number of calls for each kind of run, and its description in docs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TEXTS = {"responses": 6, "stored": 6, "chat_completions": 6, "agui": 6, "chat": 11, "background": 11, "deployed": 6}
EVENTS = {
    "responses": 11,
    "stored": 13,
    "chat_completions": 12,
    "agui": 12,
    "chat": 14,
    "background": 14,
    "deployed": 13,
}
"""On the text path and without it, as in docs/architecture.md; the requirement is fewer than 15."""


def traced(*arguments: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the number of calls by kind of run, and the calls of the first kind."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace_delta.py", *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    counts = {name: int(count) for name, count in re.findall(r"^(\w+): (\d+) calls$", done.stdout, re.MULTILINE)}
    return counts, re.findall(r"^    (\S+)  (\S+)$", done.stdout.partition("stored:")[0], re.MULTILINE)


def test_the_number_of_calls_for_a_delta() -> None:
    shown = re.findall(r"^\| `(\S+)` `(\S+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    texts, of_text = traced()
    assert texts == TEXTS
    events, of_event = traced("--events")
    assert events == EVENTS
    assert shown == [*of_text, *of_event]
