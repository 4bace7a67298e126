"""The short form of the golden comparison: this checkout against the version from which behaviour is kept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.needs("history", "long")
@pytest.mark.timeout(900)
def test_every_visible_difference_is_in_the_changelog() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "golden.py"), "--short"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
