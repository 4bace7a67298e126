"""The scripted upstream, one for all tests; and a separate home directory for data that gateways store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.examples import register_profiles

if TYPE_CHECKING:
    from tests.scripted import Upstream

pytest_plugins = ["tests.requirements"]
register_profiles()


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the data of tests separate from the data of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    from tests.scripted import Upstream  # imported here, because most tests do not need the server and its client

    with Upstream() as running:
        yield running
