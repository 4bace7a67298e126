"""The scripted upstream, once for all tests; and a home of their own for what gateways keep."""

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
    """Nothing that a test keeps is where a user keeps theirs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    from tests.scripted import Upstream  # a server and its client, of which most tests need nothing

    with Upstream() as running:
        yield running
