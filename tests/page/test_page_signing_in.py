"""The page of a gateway that requires keys: signing in with a key, and out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from pellucid.server.config import check_config
from tests.page.page_kit import ModelScript, PageServer, Tab, Tabs
from tests.scripted import Upstream
from tests.scripted.gateway import Served, serve

KEY = "correct-horse-battery-staple-1234"


@pytest.fixture(scope="module")
def closed(page_server: PageServer, upstream: Upstream) -> Iterator[Served]:
    config: dict[str, Any] = {
        **page_server.models.config(upstream),
        "access": {"key_env": "ENTRY", "key_policy": "all", "policies": {"all": {}}},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENTRY", KEY)
        with serve(check_config(config, {"A_KEY": "k", "ENTRY": KEY})) as gateway:
            yield gateway


@pytest.fixture
def outside(tabs: Tabs, closed: Served) -> Tab:
    tab = tabs(to=closed)
    tab.allow("40[13]")  # the browser tells of every refused request
    return tab


def signs_in(tab: Tab, key: str = KEY) -> None:
    tab.page.get_by_label("API key").fill(key)
    tab.page.get_by_role("button", name="Sign in").click()


def test_without_a_key_nothing_is_shown(outside: Tab) -> None:
    outside.page.goto(outside.url)
    outside.element("sign-in").wait_for()
    assert outside.element("composer").count() == 0
    assert outside.element("conversation-item").count() == 0


def test_a_wrong_key_shows_an_error(outside: Tab) -> None:
    outside.page.goto(outside.url)
    signs_in(outside, "wrong" * 8)
    expect(outside.page.get_by_role("alert")).to_be_visible()
    assert outside.element("composer").count() == 0
    assert outside.context.cookies() == []
    signs_in(outside)
    outside.element("composer").wait_for()


def test_signed_in_one_chats_and_signed_out_it_is_gone(outside: Tab, model_script: ModelScript) -> None:
    outside.page.goto(outside.url)
    signs_in(outside)
    outside.element("model-picker").wait_for()
    [cookie] = outside.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["path"]) == ("pellucid_session", True, "/api")
    assert cookie["sameSite"] == "Strict"
    assert KEY not in cookie["value"]
    assert "pellucid_session" not in outside.page.evaluate("() => document.cookie")
    model_script.answer("Noon.", "Hm.")
    outside.ask("When?")
    outside.wait_finished()
    outside.page.reload()
    outside.wait_finished()
    path = outside.page.url
    # Who is no operator is not offered what would be refused.
    expect(outside.element("take-to-space")).to_have_count(0)
    outside.page.goto(f"{outside.url}/spaces")
    outside.element("join-token").wait_for()
    expect(outside.element("new-space")).to_have_count(0)
    outside.page.goto(path)
    outside.wait_finished()
    outside.element("sign-out").click()
    outside.element("sign-in").wait_for()
    assert "Noon." not in outside.page.content()
    assert outside.context.cookies() == []
    outside.page.goto(path)
    outside.element("sign-in").wait_for()
    signs_in(outside)
    outside.wait_finished()
    assert outside.page.url == path, "one comes back where one was"


def test_a_session_that_ended_leads_to_the_sign_in(outside: Tab, model_script: ModelScript) -> None:
    outside.page.goto(outside.url)
    signs_in(outside)
    outside.element("model-picker").wait_for()
    outside.context.clear_cookies()
    outside.ask("When?")
    outside.element("sign-in").wait_for()
    assert model_script.calls == []
