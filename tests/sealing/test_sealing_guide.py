"""The guide's example runs, and its commands and codes exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from pellucid.cli.seal_keys import seal_keys
from pellucid.sealing import Keys, SealCode

GUIDE = (Path(__file__).parents[2] / "docs" / "sealing.md").read_text()


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [code] = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(code, {})
    assert Keys.from_json((tmp_path / "keys.json").read_bytes())


def test_codes_and_commands() -> None:
    assert set(re.findall(r"^\| `(seal_\w+)`", GUIDE, re.MULTILINE)) == set(get_args(SealCode))
    assert set(re.findall(r"^    pellucid seal-keys (\w+)", GUIDE, re.MULTILINE)) == set(seal_keys.commands)
