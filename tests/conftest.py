"""The scripted upstream, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripted import Upstream


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running
