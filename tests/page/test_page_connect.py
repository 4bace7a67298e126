"""From a page without a model to an answer of one's own: *Connect a model*."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.node_packages import installed
from tests.page.page_kit import Tab, Tabs
from tests.scripted import Call, Upstream, say
from tests.scripted.gateway import Served, serve

KEY = "sk-canary-3f9a8d7e6c5b4a39-WXYZ"
MODELS = [f"thinker-{n}" for n in range(1, 12)]


@pytest.fixture(scope="module")
def without_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        with serve({"local": {"enabled": False}, "spaces": {"room": {}}, "limits": {"retries": 0}}) as running:
            yield running


async def provider(call: Call) -> None:
    """A server that lists its models, and quotes a key that it does not know."""
    if call.headers.get("authorization") != f"Bearer {KEY}":
        error = {"message": f"Incorrect API key: {call.headers.get('authorization', 'none')}"}
        await call.answer(401, json.dumps({"error": error}).encode())
    elif call.method == "GET":
        await call.answer(200, json.dumps({"data": [{"id": name} for name in MODELS]}).encode())
    else:
        await say("Let me see. ", "It is 42.")(call)


def axe_violations(tab: Tab) -> list[str]:
    tab.wait_rendered()
    tab.page.evaluate((installed(Path(__file__).parent) / "node_modules" / "axe-core" / "axe.min.js").read_text())
    violations = tab.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in violations for node in one["nodes"]]


@pytest.mark.needs("node")
def test_from_no_model_to_an_answer_of_ones_own(tabs: Tabs, without_models: Served, upstream: Upstream) -> None:
    tab = tabs(to=without_models, bypass_csp=False, reduced_motion="reduce")
    tab.allow("400")  # an address that the gateway refuses
    url = f"{upstream.url}/{upstream.plays(provider)}"
    page = tab.page
    page.goto(f"{tab.url}/")
    expect(tab.element("empty")).to_contain_text("No model is available yet.")
    expect(tab.element("send")).to_be_disabled()
    assert axe_violations(tab) == [], "without a model"

    tab.element("connect-open").click()
    expect(tab.element("provider-search")).to_be_focused()
    assert axe_violations(tab) == [], "the choice of a provider"
    tab.element("provider-search").fill("litellm")
    tab.element("provider").click()
    message, models = tab.element("connect-message"), tab.element("connect-models")
    expect(tab.element("connect-address")).to_be_focused()
    expect(tab.element("connect-test")).to_be_disabled()
    for address, key, text in (
        ("http://169.254.169.254/v1", "", "does not connect to 169.254.169.254"),
        ("http://127.0.0.1:9/v1", "", "cannot be reached"),
        (url, "", "needs a key"),
        (url, f"{KEY}x", "refused the key"),
    ):
        tab.element("connect-address").fill(address)
        tab.element("connect-key").fill(key)
        tab.element("connect-test").click()
        expect(message).to_contain_text(text)
        expect(message).to_have_attribute("role", "alert")
    expect(message).to_contain_text("It says: Incorrect API key: Bearer [key]")
    assert axe_violations(tab) == [], "a refused key"
    tab.element("connect-key").fill(KEY)
    page.keyboard.press("Enter")
    expect(message).to_contain_text("It has 11 models")
    expect(tab.element("connect-save")).to_be_disabled()
    models.get_by_role("searchbox").fill("-11")
    models.get_by_label("thinker-11").check()
    tab.element("connect-test").click()
    expect(message).to_contain_text("thinker-11 answers")
    assert axe_violations(tab) == [], "the choice of a model"
    tab.element("connect-save").click()

    expect(tab.element("connect")).to_have_count(0)
    expect(tab.element("empty")).to_contain_text("thinker-11 answers")
    expect(tab.element("model-picker")).to_have_attribute("data-value", "thinker-11")
    tab.ask()
    expect(tab.wait_finished()).to_contain_text("It is 42.")

    # Later: the key is not shown, and stays; then the connection goes.
    tab.element("model-picker").click()
    expect(page.get_by_role("menuitemradio", name="thinker-11")).to_contain_text("Any OpenAI-compatible server")
    tab.element("connect-menu").click()
    row = tab.element("connection")
    expect(row).to_contain_text("key ends with WXYZ")
    assert axe_violations(tab) == [], "the connections"
    row.get_by_role("button", name="Change openai-compat").click()
    expect(tab.element("connect-key")).to_have_value("")
    models.get_by_label("Name of a model").fill("thinker-9")
    tab.element("connect-save").click()
    expect(tab.element("connect")).to_have_count(0)
    assert KEY not in page.content()
    assert [one["id"] for one in tab.api("/v1/models")["data"]] == ["thinker-11", "thinker-9"]
    tab.element("model-picker").click()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    row.get_by_role("button", name="Delete openai-compat").click()
    row.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)
    page.keyboard.press("Escape")
    expect(tab.element("connect")).to_have_count(0)
    expect(tab.element("model-picker")).to_have_count(0)
    assert tab.api("/v1/models")["data"] == []


@pytest.mark.needs("node")
def test_a_default_is_chosen_and_a_deleted_model_is_named(
    tabs: Tabs, without_models: Served, upstream: Upstream
) -> None:
    tab = tabs(to=without_models, bypass_csp=False, reduced_motion="reduce")
    url, page = f"{upstream.url}/{upstream.plays(provider)}", tab.page
    for name, model in (("one", "first-model"), ("two", "second-model")):
        row = {"profile": "openai-compat", "base_url": url, "api_key": KEY, "models": [model]}
        headers = {"Content-Type": "application/json"}
        without_models.request("PUT", f"/api/connections/{name}", json.dumps(row).encode(), headers)
    page.goto(f"{tab.url}/")
    picker = tab.element("model-picker")
    expect(picker).to_have_attribute("data-value", "first-model")
    picker.click()
    page.get_by_role("menuitemradio", name="second-model").click()
    picker.click()
    tab.element("make-default").click()
    picker.click()
    expect(page.get_by_role("menuitemradio", name="second-model")).to_contain_text("the default")
    expect(tab.element("make-default")).to_have_count(0)
    page.keyboard.press("Escape")

    # It goes while the page is open: nothing is sent to another one before the reader chooses it.
    without_models.request("DELETE", "/api/connections/two")
    note = tab.element("lost-model")
    expect(note).to_contain_text("second-model is not available here any more.")
    expect(page.get_by_text("How do I reverse a string in Python?")).to_have_count(0)
    expect(tab.element("send")).to_be_disabled()
    assert axe_violations(tab) == [], "a model that is gone"
    note.get_by_role("button", name="Continue with first-model").click()
    expect(note).to_have_count(0)
    tab.ask()
    expect(tab.wait_finished()).to_contain_text("It is 42.")
    page.reload()
    expect(picker).to_have_attribute("data-value", "first-model")
    page.close()
    without_models.request("DELETE", "/api/connections/one")


@pytest.mark.needs("node")
def test_a_larger_embedded_model_is_offered_with_its_command(
    tabs: Tabs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with serve({"spaces": {"room": {}}}) as gateway:
        tab = tabs(to=gateway, bypass_csp=False, reduced_motion="reduce")
        tab.page.goto(f"{tab.url}/")
        tab.element("connect-open").click()
        tab.page.get_by_role("button", name="Qwen3 1.7B (1.8 GB)").click()
        guide = tab.element("larger-guide")
        for fact in ("1.8 GB to download", "3.3 GB of memory", "Apache-2.0", "pellucid serve --local-model qwen3-1.7b"):
            expect(guide).to_contain_text(fact)
        assert axe_violations(tab) == [], "a larger model"
        guide.get_by_role("button", name="Back").click()
        expect(tab.element("provider-search")).to_be_visible()
        tab.page.close()
