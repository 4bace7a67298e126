"""The page with the embedded model: the real engine, with the tiny model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect

from pellucid.local.fetch import fetch
from pellucid.local.model_index import find_model
from pellucid.local.supervisor import Engine
from pellucid.models.embedded import EmbeddedModel
from pellucid.upstream import UpstreamClient
from tests.page.page_kit import Tabs
from tests.scripted.gateway import Served, serve
from tests.waiting import wait_until

pytestmark = pytest.mark.needs("engine")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    model = msgspec.structs.replace(find_model("smollm2-135m"), hub="")
    paths: list[Path] = []
    # The main thread has the browser's event loop.
    fetching = threading.Thread(target=lambda: paths.append(asyncio.run(fetch(model))))
    fetching.start()
    fetching.join()
    engine = Engine(model, paths[0], log=tmp_path_factory.mktemp("page-engine") / "engine.log", first_pause_seconds=0.1)
    transport = UpstreamClient()
    config = {"local": {"model": "smollm2-135m"}}
    with serve(config, EmbeddedModel(engine, transport), transport) as gateway:
        wait_until(lambda: gateway.request("GET", "/ready").status == 200, "the model is loaded")
        yield gateway


STREAMS = """() => {
  const there = (name) => document.querySelector(`[data-testid=${name}]`)
  return there("overlay-part") && !there("show-reasoning")
}"""


def test_the_embedded_model_thinks_and_answers(tabs: Tabs, home: Served) -> None:
    tab = tabs(to=home)
    tab.open()
    expect(tab.element("empty")).to_contain_text("runs on this machine")
    tab.element("model-picker").click()
    expect(tab.page.get_by_role("menuitemradio")).to_contain_text("runs on this machine · small, often wrong")
    tab.page.keyboard.press("Escape")
    tab.ask("Is the sky blue? Answer in one word.")
    tab.page.wait_for_function(STREAMS)
    tab.page.wait_for_selector("[data-testid=answer-text], [data-testid=show-reasoning]", timeout=60_000)
    # The answer may still be in progress; its beginning is enough.
    tab.page.keyboard.press("Escape")
    tab.page.locator("[data-testid=assistant-event]:not([data-status=in_progress])").wait_for()
    tab.open_reasoning()
    assert tab.element("reasoning-part").inner_text().strip()
