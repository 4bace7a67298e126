"""One gateway for most tests; each test scripts its own model behind it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scripted import Upstream
from tests.scripted.gateway import Served


@pytest.fixture(scope="session")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    from tests.server.state_kit import serving, url_of

    store = url_of(tmp_path_factory.mktemp("chat") / "store.sqlite")
    with serving(upstream, store, tools={"functions": ["tests.server.state_kit:look_up"]}) as running:
        yield running
