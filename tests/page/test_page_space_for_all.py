"""Accessibility of a space: keyboard, screen reader, phone, themes, scripts, long histories; and
every message is shown as text."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.node_packages import installed
from tests.page.page_kit import LEFT, Tab, Tabs
from tests.page.page_space_kit import Voices, come_in, gateway_with_spaces, lane, model_script, review, token, voices
from tests.scripted.gateway import Served

__all__ = ["model_script", "voices"]

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}
SPACES = [f"hall-{number}" for number in range(16)]
_next = itertools.count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with gateway_with_spaces(tmp_path_factory.mktemp("spaces"), SPACES) as served:
        yield served


@pytest.fixture
def space() -> str:
    return SPACES[next(_next)]


# --- by keys and by ear ------------------------------------------------------------------------------------------


def focused(page: Page) -> str:
    testid: str = page.evaluate("() => document.activeElement?.dataset.testid ?? document.activeElement?.tagName ?? ''")
    return testid


def reach(page: Page, testid: str, key: str = "Tab", most: int = 80) -> None:
    seen = []
    for _ in range(most):
        page.keyboard.press(key)
        seen.append(focused(page))
        if seen[-1] == testid:
            return
    pytest.fail(f"{testid} is not reached by {key}, but {seen}")


def test_a_whole_session_by_keys_alone(tab: Tab, voices: Voices, space: str) -> None:
    review(voices)
    page = tab.page
    page.goto(f"{tab.url}/spaces/{space}")
    tab.there("join-token").wait_for()
    assert focused(page) == "join-token"
    page.keyboard.type(token(space, "mara"))
    page.keyboard.press("Enter")
    tab.there("context-line").first.wait_for()
    reach(page, "message-field")
    page.keyboard.type("What now?")
    page.keyboard.press("Enter")
    expect(tab.there("message").last).to_contain_text("What now?")
    assert focused(page) == "message-field"
    reach(page, "toggle-context")
    before = page.locator(":focus").get_attribute("aria-expanded")
    page.keyboard.press("Enter")
    assert page.locator(":focus").get_attribute("aria-expanded") != before
    reach(page, "scrub", most=120)
    page.keyboard.press("ArrowLeft")
    expect(tab.there("room")).to_have_attribute("data-live", "false")
    reach(page, "live")
    page.keyboard.press(" ")
    expect(tab.there("room")).to_have_attribute("data-live", "true")
    page.locator("[data-testid=to-reasoning]").last.focus()
    page.keyboard.press("Enter")
    expect(lane(tab, "security-agent").locator(".row--head").first).to_be_focused()
    tab.there("open-search").focus()
    page.keyboard.press("Enter")
    assert focused(page) == "space-search"
    page.keyboard.press("Escape")
    expect(tab.there("open-search")).to_be_focused()


@pytest.mark.needs("node")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violations(tabs: Tabs, voices: Voices, space: str, theme: Any) -> None:
    axe = (installed(Path(__file__).parent) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    tab = tabs(color_scheme=theme, reduced_motion="reduce", viewport={"width": 1500, "height": 900})

    def wrong() -> list[str]:
        tab.settled()
        tab.page.evaluate(axe)
        violations = tab.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{one['id']}: {node['html'][:160]} {[why['message'][:160] for why in [*node['any'], *node['all']]]}"
            for one in violations
            for node in one["nodes"]
        ]

    tab.page.goto(f"{tab.url}/spaces/{space}")
    tab.there("join-token").wait_for()
    assert wrong() == [], "coming in"
    come_in(tab, space=space)
    assert wrong() == [], "an empty room"
    review(voices)
    expect(tab.there("context-line")).to_have_count(4)
    tab.there("request").first.get_by_role("button").click()
    tab.there("open-filter").click()
    tab.there("filters").get_by_role("button", name="ops").or_(tab.there("filters").get_by_role("button").first).click()
    assert wrong() == [], "a lively one"
    tab.there("open-search").click()
    tab.there("space-search").fill("token")
    tab.there("search-hit").first.wait_for()
    assert wrong() == [], "the search"
    tab.page.keyboard.press("Escape")
    tab.there("scrub").fill("12")
    assert wrong() == [], "the past"


def test_reduced_motion_is_respected(tabs: Tabs, voices: Voices, space: str) -> None:
    tab = tabs(reduced_motion="reduce")
    review(voices)
    come_in(tab, space=space)
    expect(tab.there("context-line")).to_have_count(4)
    moving = """() => document.getAnimations().filter((one) => {
      const timing = one.effect.getComputedTiming()
      return one.playState === "running" && (timing.iterations === Infinity || timing.duration > 10)
    }).length"""
    tab.settled()
    assert tab.page.evaluate(moving) == 0


# --- on a phone, and in any script -------------------------------------------------------------------------------

WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
SMALL = """() => [...document.querySelectorAll('button, select, input')].filter((one) => one.checkVisibility())
  .map((one) => [one.outerHTML.slice(0, 120), one.getBoundingClientRect()])
  .filter(([, box]) => box.width > 0 && Math.min(box.width, box.height) < 24).map(([html]) => html)"""


def test_on_a_phone_one_pane_at_a_time_and_nothing_is_wider_than_the_screen(
    tabs: Tabs, voices: Voices, space: str
) -> None:
    tab = tabs(**PHONE)
    names = review(voices)
    voices.say(
        "docs-agent", "reasoning/thought", names["docs"], message="word" * 90 + "\n\n```\n" + "x" * 300 + "\n```"
    )
    voices.call("docs-agent", "tool" * 40, names["docs"], query="y" * 300)
    voices.say("mara", "chat", text="long" * 90)
    come_in(tab, space=space)
    expect(tab.there("message").last).to_contain_text("longlong")
    assert tab.page.evaluate(WIDE) == 0
    for pane in (tab.there("conversation"), lane(tab, "docs-agent"), lane(tab, "security-agent")):
        name = pane.get_attribute("data-pane")
        there = tab.there("to-main") if name == "" else tab.there("to-lane").filter(has_text=str(name))
        there.click()
        expect(pane).to_be_in_viewport(ratio=0.9)
        scroller = pane.locator("[data-scroller]")
        assert scroller.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    tab.settled()
    assert tab.page.evaluate(SMALL) == [], "fingers need 24 by 24"
    tab.there("open-filter").click()
    assert tab.page.evaluate(WIDE) == 0
    assert tab.page.evaluate(SMALL) == []


def test_text_has_the_direction_of_its_script(tab: Tab, voices: Voices, space: str) -> None:
    start = voices.say("docs-agent", "reasoning/start", message="متى المدّ؟")
    voices.say("docs-agent", "reasoning/thought", start, message="المدّ عند الظهر.")
    voices.say("docs-agent", "chat", text="المدّ في الثانية عشرة.")
    come_in(tab, space=space)
    direction = "one => getComputedStyle(one).direction"
    thought = lane(tab, "docs-agent").get_by_text("المدّ عند الظهر.")
    title = lane(tab, "docs-agent").get_by_text("متى المدّ؟")
    answer = tab.there("message").get_by_text("المدّ في الثانية عشرة.")
    assert [one.evaluate(direction) for one in (thought, title, answer)] == ["rtl"] * 3
    tab.page.evaluate("() => { document.documentElement.dir = 'rtl' }")
    tab.settled()
    assert tab.page.evaluate(WIDE) == 0
    first, second = (tab.there(name).bounding_box() for name in ("conversation", "lane"))
    assert first is not None
    assert second is not None
    assert first["x"] > second["x"], "the conversation stands at the beginning of the line"


# --- whatever is said ------------------------------------------------------------------------------------------------

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[press](javascript:alert(1))",
    "![x](https://evil.example/x.png)",
    "\u202egnp.exe",
    '"><svg onload=alert(1)>',
]


def test_every_message_is_text(tab: Tab, voices: Voices, space: str) -> None:
    words = "\n\n".join(HOSTILE)
    hostile: dict[str, Any] = {
        "message": words, "goal": words, "approach": words, "estimated_duration": words, "severity": words,
        "components": [words], "questions": [words], "hypothesis": words, "evidence": [words], "decision": words,
        "key_factors": [words], "recommendation": words, "details": {words: words}, "reason": words,
    }  # fmt: skip
    start = voices.say("docs-agent", "reasoning/start", **{**hostile, "template": None})
    for kind in ("thought", "question", "observation", "hypothesis"):
        voices.say("docs-agent", f"reasoning/{kind}", start, **hostile)
    params = {"name": words, "arguments": {words: words}}
    request = voices.say("docs-agent", "mcp/request", start, method="tools/call", params=params)
    voices.say("test-runner", "mcp/response", start, request, result={"content": [{"type": "text", "text": words}]})
    voices.say("docs-agent", "mcp/proposal", method="tools/call", params=params)
    voices.say("docs-agent", "reasoning/conclusion", start, **hostile)
    voices.say("docs-agent", "odd/kind", text=words)
    answer = voices.say("docs-agent", "chat", about=start, text=words)
    voices.say("ops", "chat", about=answer, text=words)
    come_in(tab, space=space)
    expect(tab.there("message")).to_have_count(2)
    tab.there("request").get_by_role("button").click()
    tab.there("open-search").click()
    tab.there("space-search").fill("onerror")
    tab.there("search-hit").first.wait_for()
    tab.settled()
    for wrong in ("img", "script:not([src])", "svg[onload]", "a[href^='javascript']", "[onerror]"):
        assert tab.page.locator(f"#root {wrong}").count() == 0, wrong
    assert "\u202e" not in tab.page.locator("#root").inner_text()


def test_thousands_stay_smooth(tab: Tab, voices: Voices, space: str) -> None:
    """Of three thousand thoughts only those near the visible area are rendered, and each can be found."""
    start = voices.say("perf-agent", "reasoning/start", message="Count")
    thoughts = [
        {"kind": "reasoning/thought", "context": start, "payload": {"message": f"Thought number {number} of many."}}
        for number in range(3_000)
    ]
    voices.many("perf-agent", thoughts[:1500])
    come_in(tab, space=space)
    mine = lane(tab, "perf-agent")
    expect(mine).to_contain_text("Thought number 1499 of many.")
    voices.many("perf-agent", thoughts[1500:])
    expect(mine).to_contain_text("Thought number 2999 of many.")
    tab.settled()
    assert mine.locator(".row").count() < 300
    assert mine.locator("[data-scroller]").evaluate(LEFT) < 40, "whoever is at the end stays there"
    mine.locator("[data-scroller]").evaluate("one => { one.scrollTop = one.scrollHeight / 2 }")
    tab.settled()
    assert mine.locator(".row:visible").count() > 3
    assert mine.locator(".row").count() < 400
    tab.there("open-search").click()
    tab.there("space-search").fill("number 1234 of")
    tab.there("search-hit").first.click()
    expect(mine.locator(".row:focus")).to_contain_text("Thought number 1234 of many.")
    expect(mine.locator(".row:focus")).to_be_in_viewport()
