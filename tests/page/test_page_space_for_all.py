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
from tests.page.page_space_kit import (
    ScriptedParticipants,
    gateway_with_spaces,
    join_space,
    lane,
    model_script,
    participants,
    play_review,
    token,
)
from tests.scripted.gateway import Served

__all__ = ["model_script", "participants"]

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


def test_a_whole_session_by_keys_alone(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    play_review(participants)
    page = tab.page
    page.goto(f"{tab.url}/spaces/{space}")
    tab.element("join-token").wait_for()
    assert focused(page) == "join-token"
    page.keyboard.type(token(space, "mara"))
    page.keyboard.press("Enter")
    tab.element("context-line").first.wait_for()
    reach(page, "message-field")
    page.keyboard.type("What now?")
    page.keyboard.press("Enter")
    expect(tab.element("message").last).to_contain_text("What now?")
    assert focused(page) == "message-field"
    reach(page, "toggle-context")
    before = page.locator(":focus").get_attribute("aria-expanded")
    page.keyboard.press("Enter")
    assert page.locator(":focus").get_attribute("aria-expanded") != before
    reach(page, "scrub", most=120)
    page.keyboard.press("ArrowLeft")
    expect(tab.element("room")).to_have_attribute("data-live", "false")
    reach(page, "live")
    page.keyboard.press(" ")
    expect(tab.element("room")).to_have_attribute("data-live", "true")
    page.locator("[data-testid=to-reasoning]").last.focus()
    page.keyboard.press("Enter")
    expect(lane(tab, "security-agent").locator(".row--head").first).to_be_focused()
    tab.element("open-search").focus()
    page.keyboard.press("Enter")
    assert focused(page) == "space-search"
    page.keyboard.press("Escape")
    expect(tab.element("open-search")).to_be_focused()


@pytest.mark.needs("node")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violations(tabs: Tabs, participants: ScriptedParticipants, space: str, theme: Any) -> None:
    axe = (installed(Path(__file__).parent) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    tab = tabs(color_scheme=theme, reduced_motion="reduce", viewport={"width": 1500, "height": 900})

    def errors() -> list[str]:
        tab.wait_rendered()
        tab.page.evaluate(axe)
        violations = tab.page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [
            f"{one['id']}: {node['html'][:160]} {[why['message'][:160] for why in [*node['any'], *node['all']]]}"
            for one in violations
            for node in one["nodes"]
        ]

    tab.page.goto(f"{tab.url}/spaces/{space}")
    tab.element("join-token").wait_for()
    assert errors() == [], "coming in"
    tab.page.goto(f"{tab.url}/spaces")
    tab.element("space-row").first.wait_for()
    assert errors() == [], "the list"
    tab.element("new-space").click()
    assert errors() == [], "a new space"
    join_space(tab, space=space)
    assert errors() == [], "an empty room"
    tab.element("invite").click()
    assert errors() == [], "an invitation"
    tab.page.keyboard.press("Escape")
    play_review(participants)
    expect(tab.element("context-line")).to_have_count(4)
    tab.element("request").first.get_by_role("button").click()
    tab.element("open-filter").click()
    tab.element("filters").get_by_role("button", name="ops").or_(
        tab.element("filters").get_by_role("button").first
    ).click()
    assert errors() == [], "a lively one"
    tab.element("open-search").click()
    tab.element("space-search").fill("token")
    tab.element("search-hit").first.wait_for()
    assert errors() == [], "the search"
    tab.page.keyboard.press("Escape")
    tab.element("scrub").fill("12")
    assert errors() == [], "the past"


def test_reduced_motion_is_respected(tabs: Tabs, participants: ScriptedParticipants, space: str) -> None:
    tab = tabs(reduced_motion="reduce")
    play_review(participants)
    join_space(tab, space=space)
    expect(tab.element("context-line")).to_have_count(4)
    moving = """() => document.getAnimations().filter((one) => {
      const timing = one.effect.getComputedTiming()
      return one.playState === "running" && (timing.iterations === Infinity || timing.duration > 10)
    }).length"""
    tab.wait_rendered()
    assert tab.page.evaluate(moving) == 0


# --- on a phone, and in any script -------------------------------------------------------------------------------

WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
SMALL = """() => [...document.querySelectorAll('button, select, input')].filter((one) => one.checkVisibility())
  .map((one) => [one.outerHTML.slice(0, 120), one.getBoundingClientRect()])
  .filter(([, box]) => box.width > 0 && Math.min(box.width, box.height) < 24).map(([html]) => html)"""


def test_on_a_phone_one_pane_at_a_time_and_nothing_is_wider_than_the_screen(
    tabs: Tabs, participants: ScriptedParticipants, space: str
) -> None:
    tab = tabs(**PHONE)
    names = play_review(participants)
    participants.send(
        "docs-agent", "reasoning/thought", names["docs"], message="word" * 90 + "\n\n```\n" + "x" * 300 + "\n```"
    )
    participants.call("docs-agent", "tool" * 40, names["docs"], query="y" * 300)
    participants.send("mara", "chat", text="long" * 90)
    join_space(tab, space=space)
    expect(tab.element("message").last).to_contain_text("longlong")
    assert tab.page.evaluate(WIDE) == 0
    for pane in (tab.element("conversation"), lane(tab, "docs-agent"), lane(tab, "security-agent")):
        name = pane.get_attribute("data-pane")
        there = tab.element("to-main") if name == "" else tab.element("to-lane").filter(has_text=str(name))
        there.click()
        expect(pane).to_be_in_viewport(ratio=0.9)
        scroller = pane.locator("[data-scroller]")
        assert scroller.evaluate("one => one.scrollWidth - one.clientWidth") <= 0
    tab.wait_rendered()
    assert tab.page.evaluate(SMALL) == [], "fingers need 24 by 24"
    tab.element("open-filter").click()
    assert tab.page.evaluate(WIDE) == 0
    assert tab.page.evaluate(SMALL) == []


def test_text_has_the_direction_of_its_script(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    start = participants.send("docs-agent", "reasoning/start", message="متى المدّ؟")
    participants.send("docs-agent", "reasoning/thought", start, message="المدّ عند الظهر.")
    participants.send("docs-agent", "chat", text="المدّ في الثانية عشرة.")
    join_space(tab, space=space)
    direction = "one => getComputedStyle(one).direction"
    thought = lane(tab, "docs-agent").get_by_text("المدّ عند الظهر.")
    title = lane(tab, "docs-agent").get_by_text("متى المدّ؟")
    answer = tab.element("message").get_by_text("المدّ في الثانية عشرة.")
    assert [one.evaluate(direction) for one in (thought, title, answer)] == ["rtl"] * 3
    tab.page.evaluate("() => { document.documentElement.dir = 'rtl' }")
    tab.wait_rendered()
    assert tab.page.evaluate(WIDE) == 0
    first, second = (tab.element(name).bounding_box() for name in ("conversation", "lane"))
    assert first is not None
    assert second is not None
    assert first["x"] > second["x"], "the conversation stands at the beginning of the line"


# --- hostile and unusual texts ---------------------------------------------------------------------------------------

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[press](javascript:alert(1))",
    "![x](https://evil.example/x.png)",
    "\u202egnp.exe",
    '"><svg onload=alert(1)>',
]


def test_every_message_is_text(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    words = "\n\n".join(HOSTILE)
    hostile: dict[str, Any] = {
        "message": words, "goal": words, "approach": words, "estimated_duration": words, "severity": words,
        "components": [words], "questions": [words], "hypothesis": words, "evidence": [words], "decision": words,
        "key_factors": [words], "recommendation": words, "details": {words: words}, "reason": words,
    }  # fmt: skip
    start = participants.send("docs-agent", "reasoning/start", **{**hostile, "template": None})
    for kind in ("thought", "question", "observation", "hypothesis"):
        participants.send("docs-agent", f"reasoning/{kind}", start, **hostile)
    params = {"name": words, "arguments": {words: words}}
    request = participants.send("docs-agent", "mcp/request", start, method="tools/call", params=params)
    participants.send(
        "test-runner", "mcp/response", start, request, result={"content": [{"type": "text", "text": words}]}
    )
    participants.send("docs-agent", "mcp/proposal", method="tools/call", params=params)
    participants.send("docs-agent", "reasoning/conclusion", start, **hostile)
    participants.send("docs-agent", "odd/kind", text=words)
    answer = participants.send("docs-agent", "chat", about=start, text=words)
    participants.send("ops", "chat", about=answer, text=words)
    join_space(tab, space=space)
    expect(tab.element("message")).to_have_count(2)
    tab.element("request").get_by_role("button").click()
    tab.element("open-search").click()
    tab.element("space-search").fill("onerror")
    tab.element("search-hit").first.wait_for()
    tab.wait_rendered()
    for wrong in ("img", "script:not([src])", "svg[onload]", "a[href^='javascript']", "[onerror]"):
        assert tab.page.locator(f"#root {wrong}").count() == 0, wrong
    assert "\u202e" not in tab.page.locator("#root").inner_text()


def test_thousands_stay_smooth(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    """Of three thousand thoughts only those near the visible area are rendered, and each can be found."""
    start = participants.send("perf-agent", "reasoning/start", message="Count")
    thoughts = [
        {"kind": "reasoning/thought", "context": start, "payload": {"message": f"Thought number {number} of many."}}
        for number in range(3_000)
    ]
    participants.send_all("perf-agent", thoughts[:1500])
    join_space(tab, space=space)
    mine = lane(tab, "perf-agent")
    expect(mine).to_contain_text("Thought number 1499 of many.")
    participants.send_all("perf-agent", thoughts[1500:])
    expect(mine).to_contain_text("Thought number 2999 of many.")
    tab.wait_rendered()
    assert mine.locator(".row").count() < 300
    assert mine.locator("[data-scroller]").evaluate(LEFT) < 40, "a reader at the end stays at the end"
    mine.locator("[data-scroller]").evaluate("one => { one.scrollTop = one.scrollHeight / 2 }")
    tab.wait_rendered()
    assert mine.locator(".row:visible").count() > 3
    assert mine.locator(".row").count() < 400
    tab.element("open-search").click()
    tab.element("space-search").fill("number 1234 of")
    tab.element("search-hit").first.click()
    expect(mine.locator(".row:focus")).to_contain_text("Thought number 1234 of many.")
    expect(mine.locator(".row:focus")).to_be_in_viewport()
