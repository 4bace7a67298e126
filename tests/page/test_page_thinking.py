"""Thinking that can be used: it stays in place, renders like an answer, and can be searched, copied and timed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.page.page_kit import LEFT, ModelScript, Tab, Tabs, shot

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESKTOP = {"viewport": {"width": 1440, "height": 900}}
SIZES = pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])

MAX_SHIFT = 0.02
SENTENCE = "The sea rises twice a day because the moon pulls at it, and the earth turns beneath. "
RICH = """**Working it out**

Since $h = 3.3 x$, and after the table:

| time | height |
|---|---:|
| 9:40 | 0.8 m |

```py
height = 3.1  # metres
```
"""
FORMULAS = "\n\n".join(
    f"So $x_{n}^2$ is:\n\n$$\\sum_{{k=1}}^{{{n}}} \\frac{{k^2}}{{2}} = \\int_0^1 x\\,dx$$" for n in range(6)
)
TOP = "one => one.getBoundingClientRect().top"


BUSY = """() => {
  const work = () => {
    const end = performance.now() + 60
    while (performance.now() < end);
    window.busy = requestAnimationFrame(work)
  }
  work()
}"""
"""Each frame takes over 60 ms."""


def shifted(tab: Tab) -> None:
    total, what = tab.layout_shifts()
    assert total < MAX_SHIFT, what


@SIZES
def test_nothing_jumps_when_text_begins_after_tools(tabs: Tabs, model_script: ModelScript, size: Any) -> None:
    tab = tabs(**size)
    tab.open_and_ask()
    for n in range(2):
        model_script.think(SENTENCE * 4).call("weather", {"city": "Ur"}, id=f"call_{n}").end("tool_calls")
        expect(tab.element("overlay-tool")).to_have_count(n + 1)
    tab.reset_layout_shifts()
    model_script.say("It is ")
    tab.element("answer-text").wait_for()
    shifted(tab)
    rows = [tab.element("overlay-tool").nth(n).evaluate(TOP) for n in range(2)]
    # A tool that is called after text has its row above the text, too. It grows there by some pixels in each frame,
    # also if the frames are long.
    tab.page.evaluate(BUSY)
    model_script.say(SENTENCE * 3).call("weather", {"city": "Uruk"}, id="call_2").end("tool_calls")
    expect(tab.element("overlay-tool")).to_have_count(3)
    expect(tab.element("overlay-tool").last.locator(".step-row--late")).to_have_css("animation-name", "grow")
    tab.page.wait_for_function("() => document.getAnimations().every((one) => one.animationName !== 'grow')")
    tab.page.evaluate("() => cancelAnimationFrame(window.busy)")
    shifted(tab)
    tab.reset_layout_shifts()
    text = tab.element("answer-text").first.evaluate(TOP)
    model_script.think("So.").say("clear.").end()
    tab.wait_finished()
    shifted(tab)
    assert [tab.element("tool-segment").nth(n).evaluate(TOP) for n in range(2)] == pytest.approx(rows, abs=1)
    assert tab.element("answer-text").first.evaluate(TOP) == pytest.approx(text, abs=1)
    toggle, last = tab.element("show-reasoning").evaluate(TOP), tab.element("tool-segment").last.evaluate(TOP)
    assert last < toggle < text, "the toggle is next to the text"


GAPS = """() => {
  const [question, first] = [document.querySelector("[data-testid=user-event]"), document.querySelector(".steps > *")]
  const [toggle, panel] = [document.querySelector(".reasoning__row"), document.querySelector(".reasoning__panel--open")]
  const box = (one) => one.getBoundingClientRect()
  const rows = [...document.querySelectorAll(".steps > :not([hidden])")].map(box)
  return {
    under: box(first).top - box(question).bottom,
    between: Math.max(...rows.slice(1).map((row, n) => row.top - rows[n].bottom)),
    toggle: box(toggle).top,
  }
}"""


@SIZES
def test_an_answer_that_ends_while_a_row_grows_does_not_jump(tabs: Tabs, model_script: ModelScript, size: Any) -> None:
    tab = tabs(**size)
    tab.open_and_ask()
    model_script.think(SENTENCE).say(SENTENCE * 8)
    tab.element("answer-text").wait_for()
    tab.page.wait_for_timeout(200)  # later than what a resumed stream brings at once
    tab.reset_layout_shifts()
    model_script.call("weather", {"city": "Uruk"}).end("tool_calls").say("Clear.").end()
    tab.wait_finished()
    grown = "() => document.getAnimations().every((one) => one.effect.getKeyframes()[0].blockSize === undefined)"
    tab.page.wait_for_function(grown)
    shifted(tab)
    row, toggle = tab.element("tool-segment").bounding_box(), tab.element("show-reasoning").bounding_box()
    assert row
    assert toggle
    assert row["y"] + row["height"] <= toggle["y"] + 1


@SIZES
def test_many_calls_are_few_rows_and_do_not_jump(tabs: Tabs, model_script: ModelScript, size: Any) -> None:
    tab = tabs(**size)
    tab.open_and_ask()
    model_script.think(SENTENCE).say(SENTENCE * 8)
    tab.element("answer-text").wait_for()
    tab.page.wait_for_timeout(200)  # later than what a resumed stream brings at once
    fold = tab.element("tool-fold")
    for turn in range(4):
        for n in range(2):
            model_script.call("weather", {"city": "Ur"}, id=f"call_{turn}_{n}", index=n)
        model_script.end("tool_calls")
        calls = 2 * (turn + 1)
        if calls <= 5:
            expect(tab.element("overlay-tool")).to_have_count(calls)
        else:
            expect(fold).to_have_text(f"Called weather {calls - 4} more times")
            expect(tab.element("overlay-tool")).to_have_count(4)
        tab.page.wait_for_function("() => document.getAnimations().every((one) => one.animationName !== 'grow')")
        if calls <= 5:
            tab.reset_layout_shifts()
    shifted(tab)
    text = tab.element("answer-text")
    height = text.evaluate(TOP) - fold.evaluate(TOP)
    model_script.say("Clear.").end()
    tab.wait_finished()
    shifted(tab)
    assert text.evaluate(TOP) - fold.evaluate(TOP) == pytest.approx(height, abs=1)
    expect(tab.element("tool-segment")).to_have_count(4)
    shot(tab, f"fold-{size['viewport']['width']}")
    fold.click()
    expect(tab.element("tool-segment")).to_have_count(8)


@SIZES
def test_opened_by_hand_it_leaves_no_hole(tabs: Tabs, model_script: ModelScript, size: Any) -> None:
    """The rows of tools move into the panel. Their space closes: by scrolling, or else the toggle takes their place."""
    tab = tabs(**size)
    tab.open()
    for n in range(2):
        model_script.call("weather", {"city": "Ur"}, id=f"a_{n}").call("weather", {"city": "Uruk"}, id=f"b_{n}")
        model_script.end("tool_calls").answer(SENTENCE * (2 if n == 0 else 60), SENTENCE * 20)
        tab.ask()
        expect(tab.element("show-reasoning")).to_have_count(n + 1)
        if n == 0:
            closed = tab.page.evaluate(GAPS)
            toggle = tab.element("show-reasoning")
            toggle.click()
            expect(tab.element("reasoning-part")).to_be_visible()
            opened = tab.page.evaluate(GAPS)
            assert opened["under"] == pytest.approx(closed["under"], abs=1)
            assert opened["between"] < 16
            toggle.click()
            tab.wait_rendered()
            assert tab.page.evaluate(GAPS) == pytest.approx(closed, abs=1)
    # The box can be scrolled: the toggle stays where it was pressed.
    toggle = tab.element("show-reasoning").last
    toggle.scroll_into_view_if_needed()
    for _ in range(2):
        before = toggle.evaluate(TOP)
        toggle.click()
        tab.wait_rendered()
        assert toggle.evaluate(TOP) == pytest.approx(before, abs=1)


@SIZES
def test_a_long_chat_with_formulas_opens_without_a_jump(tabs: Tabs, model_script: ModelScript, size: Any) -> None:
    for _ in range(6):
        model_script.answer(FORMULAS, "Hm.")
    first = tabs(**DESKTOP)
    first.open()
    for n in range(6):
        first.ask("Again?")
        expect(first.element("show-reasoning")).to_have_count(n + 1)
    tab = tabs(**size)
    tab.open(f"/c/{first.conversation}")
    expect(tab.element("show-reasoning")).to_have_count(6)
    expect(tab.element("answer-text").first.locator("math")).to_have_count(12)
    shifted(tab)
    assert tab.element("scroller").evaluate(LEFT) <= 2


def test_thoughts_render_like_answers(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think(RICH)
    for kind in (".code", "table", "math", "strong", "pre span[class]"):
        expect(tab.element("overlay-part").locator(kind).first).to_be_attached()
    assert tab.element("overlay").locator("button, a").count() == 0
    model_script.say("Noon.").end()
    tab.wait_finished()
    panel = tab.open_reasoning()
    for kind in (".code", "table", "math", "strong", "pre span[class]"):
        expect(panel.locator(kind).first).to_be_visible()


def test_the_seconds_are_the_same_afterwards(tab: Tab, model_script: ModelScript) -> None:
    """Only reasoning counts, not the tools between."""
    tab.open_and_ask()
    seconds = tab.element("reasoning-overlay").locator(".seconds")
    model_script.think("First. ")
    expect(seconds).to_have_text("2 s")
    model_script.call("weather", {"city": "Ur"}).end("tool_calls").think("Then. ")
    expect(seconds).to_have_text(re.compile("[34] s"))
    model_script.say("Noon.")
    tab.element("answer-text").wait_for()
    expect(tab.element("overlay")).to_contain_text("Thought")
    shown = seconds.inner_text()
    model_script.end()
    tab.wait_finished()
    expect(tab.element("reasoning-meta")).to_have_text(shown)
    tab.page.reload()
    expect(tab.element("reasoning-meta")).to_have_text(shown)


def test_a_tool_has_a_line_for_people_and_its_arguments_as_they_were(tab: Tab, model_script: ModelScript) -> None:
    arguments = '{"city":   "Ur"}'
    tab.open_and_ask()
    model_script.call("weather", arguments).end("tool_calls")
    row = tab.element("overlay-tool").locator(".tool__row")
    expect(row).to_have_text(re.compile(r"Called weather\s*Ur\s*Done"))
    model_script.answer("Clear.")
    tab.wait_finished()
    tool = tab.element("tool-segment")
    expect(tool).to_have_text(re.compile(r"Called weather\s*Ur\s*Done"))
    tool.get_by_role("button").click()
    assert tool.locator("pre").first.text_content() == arguments
    expect(tool.locator("pre").nth(1)).to_contain_text('"degrees": 21')
    assert json.loads(tool.locator("pre").nth(1).inner_text())


MARKED = "(name) => [...(CSS.highlights.get(name) ?? [])].map((one) => one.toString())"


def test_thoughts_are_searched_by_keys(tab: Tab, model_script: ModelScript) -> None:
    long = "\n\n".join(f"{n}. {SENTENCE}" for n in range(900))
    for thought in ("The **mo**on.", f"{long}\n\nAt last, the MOON!"):
        model_script.answer("Noon.", thought)
    tab.open_and_ask("One?")
    tab.wait_finished()
    tab.ask("Two?")
    expect(tab.element("show-reasoning")).to_have_count(2)
    keys = tab.page.keyboard
    tab.element("composer").focus()
    keys.press("Control+Shift+F")
    expect(tab.element("find-field")).to_be_focused()
    keys.type("no such thing")
    expect(tab.element("find-count")).to_have_text("No matches")
    tab.element("find-field").fill("at last, the moon")
    expect(tab.element("find-count")).to_have_text("1 match")
    keys.press("Enter")
    expect(tab.element("find-count")).to_have_text("1 of 1")
    tab.page.wait_for_function(f"() => ({MARKED})('current-match')[0] === 'At last, the MOON'")
    expect(tab.element("reasoning-part").last.get_by_text("At last")).to_be_in_viewport()
    tab.element("find-field").fill("turns beneath")
    expect(tab.element("find-count")).to_have_text("900 matches")
    keys.press("Shift+Enter")
    expect(tab.element("find-count")).to_have_text("900 of 900")
    keys.press("Enter")
    expect(tab.element("find-count")).to_have_text("1 of 900")
    expect(tab.element("reasoning-part").last.locator("li").first).to_be_in_viewport()
    assert tab.element("show-reasoning").first.get_attribute("aria-expanded") == "false", "without a match, closed"
    keys.press("Escape")
    expect(tab.element("find")).to_have_count(0)
    expect(tab.element("composer")).to_be_focused()
    assert tab.page.evaluate(MARKED, "matches") == []


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_the_timeline_leads_to_its_moments(tab: Tab, model_script: ModelScript, direction: str) -> None:
    long = "\n\n".join(SENTENCE * 3 for _ in range(30))
    tab.open_and_ask()
    model_script.think(f"Begin. {long}")
    tab.element("overlay-part").wait_for()
    tab.page.wait_for_timeout(300)  # the bar needs a width
    model_script.call("weather", {"city": "Ur"}).end("tool_calls").think(f"Afterwards. {long}")
    expect(tab.element("overlay-part")).to_have_count(2)
    tab.page.wait_for_timeout(300)
    model_script.say("Noon.").end()
    tab.wait_finished()
    language = {"ltr": "en", "rtl": "he"}[direction]
    tab.page.evaluate("(own) => Object.assign(document.documentElement, own)", {"dir": direction, "lang": language})
    tab.open_reasoning()
    control = tab.element("timeline-control")
    first, second = (tab.element("reasoning-part").nth(n).locator("p").first for n in range(2))
    box = control.bounding_box()
    assert box
    span = tab.page.locator(".timeline__span--reasoning").nth(1).bounding_box()
    assert span
    edge = span["x"] + 2 if direction == "ltr" else span["x"] + span["width"] - 2
    control.click(position={"x": edge - box["x"], "y": box["height"] / 2})
    expect(second).to_be_in_viewport()
    control.focus()
    tab.page.keyboard.press("Home")
    expect(first).to_be_in_viewport()
    tab.page.keyboard.press("ArrowRight")
    expect(tab.element("tool-segment")).to_be_in_viewport()
    expect(control).to_have_attribute("aria-valuetext", re.compile("^Called weather for"))


def test_a_thought_is_copied_as_it_is(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(permissions=["clipboard-read", "clipboard-write"])
    model_script.think("**One**").call("weather", {"city": "Ur"}).end("tool_calls").think("Two.").say("Noon.").end()
    tab.open_and_ask()
    tab.wait_finished()
    panel = tab.open_reasoning()
    read = "() => navigator.clipboard.readText()"
    panel.get_by_role("button", name="Copy this thought").first.click()
    expect(panel.get_by_role("button", name="Copy this thought").first).to_have_text("Copied")
    assert tab.page.evaluate(read) == "**One**"
    tab.page.get_by_role("button", name="Copy all thoughts").click()
    tab.page.wait_for_function(f"async () => await ({read})() === '**One**\\n\\nTwo.'")


# --- fingers -----------------------------------------------------------------------------------------------------

PRESSABLE = "button, a[href], input, textarea, select, [role=button], [role=slider], [role^=menuitem], summary"
SMALL = """(all) => all.filter((one) => {
  // Links within a text, and what is not shown, or not to be pressed.
  if (one.closest(".text p, .text li, .text td") || one.closest(".visually-hidden") || one.disabled) return false
  const style = getComputedStyle(one)
  if (style.visibility === "hidden" || style.display === "inline") return false
  const { width, height } = (one.closest("label") ?? one).getBoundingClientRect()
  return width > 0 && height > 0 && (width < 43.5 || height < 43.5)
}).map((one) => `${one.outerHTML.slice(0, 140)} ${JSON.stringify(one.getBoundingClientRect())}`)"""


def small(tab: Tab) -> list[str]:
    tab.wait_rendered()
    elements: list[str] = tab.page.locator(PRESSABLE).evaluate_all(SMALL)
    return elements


def test_everything_that_fingers_press_is_large_enough(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(**PHONE)
    tab.open()
    assert small(tab) == [], "an empty page"
    tab.ask("When?")
    model_script.think("Hm.").call("weather", {"city": "Ur"}).end("tool_calls").think("So.").say(RICH)
    tab.element("answer-text").wait_for()
    assert small(tab) == [], "while it streams"
    model_script.end()
    tab.wait_finished()
    tab.element("tool-segment").first.get_by_role("button").tap()
    tab.open_reasoning()
    tab.element("find-thoughts").tap()
    tab.element("find-field").wait_for()
    assert small(tab) == [], "with everything open"
    tab.element("find-close").tap()
    tab.element("edit").tap()
    assert small(tab) == [], "the form to edit"
    tab.page.keyboard.press("Escape")
    for picker in ("model-picker", "effort-picker", "view-picker"):
        if tab.element(picker).count():
            tab.element(picker).tap()
            assert small(tab) == [], picker
            tab.page.keyboard.press("Escape")
    model_script.think("Hm.").fail("asleep")
    tab.ask("Then?")
    tab.wait_finished("failed")
    assert small(tab) == [], "an error"
    tab.element("menu").tap()
    item: Locator = tab.element("conversation-item").first
    item.wait_for()
    assert small(tab) == [], "the list of chats"
    item.get_by_role("button").tap()
    assert small(tab) == [], "a menu"


def test_an_answer_of_thoughts_alone_says_so(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Only this.")
    tab.element("overlay-part").wait_for()
    model_script.end()
    tab.wait_finished()
    expect(tab.element("error-state")).to_contain_text("The model thought, but gave no answer.")
    model_script.answer("Noon.", "Again.")
    tab.element("retry").click()
    expect(tab.element("answer-text")).to_have_text("Noon.")
    assert tab.element("error-state").count() == 0
