"""The way of a delta from socket to socket: how many calls it is for each kind of run, and that the docs show it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FEWER_THAN = 15


def test_a_delta_takes_few_calls_in_every_kind_of_run() -> None:
    printed = subprocess.run(
        [sys.executable, ROOT / "tools" / "trace_delta.py"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    counts = {name: int(count) for name, count in re.findall(r"^(\w+): (\d+) calls$", printed, re.MULTILINE)}
    assert set(counts) == {"responses", "stored", "chat_completions", "agui", "chat", "background"}
    assert all(0 < count < FEWER_THAN for count in counts.values()), printed

    responses = re.findall(r"^    (\S+)  (\S+)$", printed.partition("stored:")[0], re.MULTILINE)
    shown = re.findall(r"^\| `(\S+)` `(\S+)` \|", (ROOT / "docs" / "architecture.md").read_text(), re.MULTILINE)
    assert responses == shown
