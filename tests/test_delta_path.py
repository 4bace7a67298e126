"""The way of a delta from socket to socket: how many calls it is for each kind of run, and that the docs show it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CALLS = {"responses": 11, "stored": 13, "chat_completions": 12, "agui": 12, "chat": 14, "background": 14}
"""As docs/architecture.md says; fewer than 15 are asked for."""


def test_a_delta_takes_few_calls_in_every_kind_of_run() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace_delta.py"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    counts = {name: int(count) for name, count in re.findall(r"^(\w+): (\d+) calls$", done.stdout, re.MULTILINE)}
    assert counts == CALLS, done.stdout

    responses = re.findall(r"^    (\S+)  (\S+)$", done.stdout.partition("stored:")[0], re.MULTILINE)
    shown = re.findall(r"^\| `(\S+)` `(\S+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert responses == shown
