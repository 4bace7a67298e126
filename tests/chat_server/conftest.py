"""One gateway for most tests; each scripts a model of its own behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripted import Upstream
from scripted.gateway import Served

sys.path.append(str(Path(__file__).parents[1] / "server"))


@pytest.fixture(scope="session")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from state_kit import serving, url_of

    store = url_of(tmp_path_factory.mktemp("chat") / "store.sqlite")
    with serving(upstream, store, tools={"functions": ["state_kit:look_up"]}) as running:
        yield running
