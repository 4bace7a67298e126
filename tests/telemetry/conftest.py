"""`pellucid serve`, as it is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripted.commands import Serve, serving_in


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    return serving_in(tmp_path)
