"""Fixtures: one browser and one gateway for all tests, a browser profile for each, and scripted models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from pellucid.server.config import check_config
from tests.page.page_kit import ModelScript, PageServer, ScriptedModels, Tab, Tabs, TCPProxy, browser
from tests.scripted import Upstream
from tests.scripted.gateway import Served, serve

_open = ExitStack()
_running: list[Browser] = []
_profiles: list[BrowserContext] = []
"""A browser profile that tests reuse, so that files are loaded once. Empty while in use."""
PLAIN: dict[str, Any] = {"viewport": {"width": 1100, "height": 800}}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Close the browser after the last test of this folder: its event loop occupies the main thread."""
    yield
    if nextitem is None or nextitem.path.parent != item.path.parent:
        _running.clear()
        _profiles.clear()
        _open.close()


@pytest.fixture
def chrome() -> Browser:
    if not _running:
        _running.append(_open.enter_context(browser()))
    return _running[0]


@pytest.fixture(scope="session")
def page_server(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    models = ScriptedModels(upstream)
    store = tmp_path_factory.mktemp("page") / "store.sqlite"
    config = {**models.config(upstream), "storage": {"url": f"sqlite:///{store}"}}
    with serve(check_config(config, {"A_KEY": "k"})) as gateway:
        yield PageServer(models, gateway, str(store))


@pytest.fixture
def model_script(page_server: PageServer) -> Iterator[ModelScript]:
    """The script of the models. Afterwards no answer is in progress, and all chats are deleted."""
    page_server.models.model_script = model_script = ModelScript()
    yield model_script
    for chat in page_server.gateway.request("GET", "/api/conversations?limit=100").json["data"]:
        page_server.gateway.request("DELETE", f"/api/conversations/{chat['id']}")
    model_script.close()


@pytest.fixture
def gateway(page_server: PageServer) -> Served:
    return page_server.gateway


@pytest.fixture
def tabs(chrome: Browser, gateway: Served, model_script: ModelScript) -> Iterator[Tabs]:
    """Factory of tabs, each in its own profile with its own settings; checks that none of them had errors."""
    made: list[Tab] = []

    def make(proxy: TCPProxy | None = None, to: Served | None = None, **context_options: Any) -> Tab:
        context = chrome.new_context(**{**PLAIN, **context_options})
        made.append(Tab(context, to or gateway, proxy.url if proxy else None))
        return made[-1]

    try:
        yield make
        for tab in made:
            assert not tab.unexpected_errors, tab.unexpected_errors
    finally:
        for tab in made:
            tab.context.close()


@pytest.fixture
def tab(chrome: Browser, gateway: Served, model_script: ModelScript) -> Iterator[Tab]:
    """A tab in a profile without stored data; checks that it had no errors."""
    context = _profiles.pop() if _profiles else chrome.new_context(**PLAIN)
    made = Tab(context, gateway)
    yield made
    assert not made.unexpected_errors, made.unexpected_errors
    # The page stores a draft when it goes away, so the storage is deleted after that.
    made.page.goto("about:blank")
    context.new_cdp_session(made.page).send(
        "Storage.clearDataForOrigin", {"origin": made.url, "storageTypes": "local_storage"}
    )
    made.page.close()
    context.clear_cookies()
    _profiles.append(context)


@pytest.fixture
def proxy(gateway: Served) -> Iterator[TCPProxy]:
    made = TCPProxy(gateway.port)
    yield made
    made.close()
