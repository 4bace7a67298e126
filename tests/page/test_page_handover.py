"""From the overlay to the persisted view: no layout shift, wherever the reader is, and no gap.

`layout-shift` is the browser's own measurement; shifts after user input count here, too. What
the reader looks at keeps its position, to the pixel.
"""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.page_kit import LEFT, ModelScript, Tab, Tabs
from tests.scripted import delta

PARAGRAPH = "The sea rises twice a day because the moon pulls at it, and the earth turns beneath. "
LONG = "\n\n".join(PARAGRAPH * 3 for _ in range(30))

TOP = "one => one.getBoundingClientRect().top"
SCROLLED = "one => one.scrollTop"


def thought(tab: Tab, model_script: ModelScript, words: str = "Half of it. ") -> None:
    """Think at some length, call a tool, and think again."""
    model_script.think(words * 60)
    tab.element("overlay-part").wait_for()
    model_script.call("weather", {"city": "Ur"}).end("tool_calls").think("So it is. " * 30)
    expect(tab.element("overlay-part")).to_have_count(2)


def still(tab: Tab, moved: float = 0.0) -> None:
    total, what = tab.layout_shifts()
    assert total <= 0.001 + moved, what


def test_the_measurement_detects_a_shift(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.")
    tab.open_and_ask()
    tab.wait_finished()
    tab.reset_layout_shifts()
    still(tab)
    tab.element("answer-text").evaluate("one => { one.style.paddingTop = '80px' }")
    assert tab.layout_shifts()[0] > 0.001


def test_a_short_answer_is_finalized_without_a_shift(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    thought(tab, model_script)
    model_script.say("It is **clear**.")
    expect(tab.element("answer-text")).to_have_text("It is clear.")
    tab.reset_layout_shifts()
    before = tab.element("answer-text").evaluate(TOP)
    model_script.end()
    tab.wait_finished()
    still(tab)
    assert tab.element("answer-text").evaluate(TOP) == pytest.approx(before, abs=1)


def test_thinking_and_the_text_below_it_shift_nothing(tab: Tab, model_script: ModelScript) -> None:
    """While the model thinks, the page grows at its end; when the text begins, the overlay shrinks without a jump."""
    tab.open_and_ask()
    question = tab.element("user-event")
    model_script.think("One. ")
    tab.element("overlay-part").wait_for()
    tab.reset_layout_shifts()
    before = question.evaluate(TOP)
    for n in range(40):
        model_script.think(f"Thought {n}. ")
    expect(tab.element("overlay-part")).to_contain_text("Thought 39")
    still(tab)
    assert question.evaluate(TOP) == pytest.approx(before, abs=1)


def test_a_long_answer_read_at_its_end(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    thought(tab, model_script)
    model_script.say(LONG + "\n\nThe end.")
    expect(tab.element("answer-text")).to_contain_text("The end.")
    last = tab.element("answer-text").locator("p").last
    expect(last).to_be_in_viewport()
    tab.reset_layout_shifts()
    before = last.evaluate(TOP)
    model_script.end()
    tab.wait_finished()
    still(tab)
    assert last.evaluate(TOP) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("place", ["top", "middle"])
def test_a_long_answer_read_further_up(tab: Tab, model_script: ModelScript, place: str) -> None:
    tab.open_and_ask()
    thought(tab, model_script)
    model_script.say(LONG)
    scroller = tab.element("scroller")
    tab.wait_rendered()
    scroller.hover()
    tab.page.mouse.wheel(0, -100_000 if place == "top" else -900)
    tab.wait_scrolled_away(scroller)
    model_script.say("\n\nThe end.")
    expect(tab.element("answer-text")).to_contain_text("The end.")
    tab.reset_layout_shifts()
    seen = tab.element("answer-text").locator("p").nth(0 if place == "top" else 25)
    before, scrolled = seen.evaluate(TOP), scroller.evaluate(SCROLLED)
    model_script.end()
    tab.wait_finished()
    still(tab)
    assert seen.evaluate(TOP) == pytest.approx(before, abs=1)
    assert scroller.evaluate(SCROLLED) == pytest.approx(scrolled, abs=1)


def test_a_reader_of_an_earlier_answer_is_not_scrolled(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer(LONG, "Hm.")
    tab.open_and_ask("First?")
    tab.wait_finished()
    tab.ask("Second?")
    model_script.think("Begin. ")
    tab.element("overlay-part").wait_for()
    tab.element("scroller").hover()
    tab.page.mouse.wheel(0, -2000)
    seen = tab.element("answer-text").locator("p").nth(12)
    expect(tab.element("jump-down")).to_be_visible()
    tab.reset_layout_shifts()
    before = seen.evaluate(TOP)
    for n in range(30):
        model_script.think(f"Thought {n}. " * 5)
    model_script.say(LONG)
    expect(tab.element("answer-text")).to_have_count(2)
    model_script.end()
    expect(tab.element("show-reasoning")).to_have_count(2)
    still(tab)
    assert seen.evaluate(TOP) == pytest.approx(before, abs=1)
    tab.element("jump-down").click()
    expect(tab.element("jump-down")).to_have_count(0)
    tab.wait_rendered()
    assert tab.element("scroller").evaluate(LEFT) <= 2


def test_earlier_answers_do_not_change_while_one_streams(tabs: Tabs, model_script: ModelScript) -> None:
    """Includes an earlier failure with its button, and versions."""
    tab = tabs(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    model_script.think("Hm.").fail("asleep")
    tab.open_and_ask("First?")
    tab.wait_finished("failed")
    tab.ask("Second?")
    model_script.think("Hm.")
    tab.element("overlay-part").wait_for()
    tab.reset_layout_shifts()
    before = tab.element("user-event").nth(1).evaluate(TOP)
    model_script.say("Noon.")
    tab.element("answer-text").wait_for()
    assert tab.element("user-event").nth(1).evaluate(TOP) == pytest.approx(before, abs=1)
    model_script.end()
    tab.wait_finished()
    still(tab)
    assert tab.element("user-event").nth(1).evaluate(TOP) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("answer", ["Short.", LONG])
def test_sources_shift_nothing(tab: Tab, model_script: ModelScript, answer: str) -> None:
    """Sources arrive with the final event, below the text."""
    tab.open_and_ask()
    thought(tab, model_script)
    cited = [{"url": f"https://{n}.example.org/moon", "title": f"Of the moon, part {n}"} for n in range(12)]
    model_script.say(answer)
    model_script.frames(delta(annotations=[{"type": "url_citation", "url_citation": one} for one in cited]))
    tab.element("answer-text").wait_for()
    tab.wait_rendered()
    last = tab.element("answer-text").locator("p").last
    tab.reset_layout_shifts()
    before = last.evaluate(TOP)
    model_script.end()
    tab.wait_finished()
    expect(tab.element("sources").get_by_role("link")).to_have_count(12)
    still(tab)
    assert last.evaluate(TOP) == pytest.approx(before, abs=1)


@pytest.mark.parametrize("answer", ["", "Short."])
def test_no_gap_is_left(tab: Tab, model_script: ModelScript, answer: str) -> None:
    """The overlay leaves no space between the toggle and the text, or between the answer and the next question."""
    tab.open_and_ask()
    thought(tab, model_script)
    if answer:
        model_script.say(answer)
        tab.element("answer-text").wait_for()
    model_script.end()
    tab.wait_finished()
    rem = tab.page.evaluate("() => parseFloat(getComputedStyle(document.documentElement).fontSize)")
    if answer:
        toggle = tab.element("tool-segment").last.bounding_box()
        text = tab.element("answer-text").bounding_box()
        assert toggle
        assert text
        assert text["y"] - toggle["y"] - toggle["height"] < 3 * rem
    model_script.answer("Again.", "More.")
    tab.ask("And again?")
    expect(tab.element("show-reasoning")).to_have_count(2)
    foot = tab.element("assistant-event").first.locator(".answer__foot").bounding_box()
    question = tab.element("user-event").nth(1).bounding_box()
    assert foot
    assert question
    assert question["y"] - foot["y"] - foot["height"] < 5 * rem


def test_a_thought_that_is_opened_stays_where_it_was_pressed(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.", LONG)
    tab.open_and_ask()
    tab.wait_finished()
    toggle = tab.element("show-reasoning")
    before = toggle.evaluate(TOP)
    tab.open_reasoning()
    tab.wait_rendered()
    assert toggle.evaluate(TOP) == pytest.approx(before, abs=1)
    toggle.click()
    tab.wait_rendered()
    assert toggle.evaluate(TOP) == pytest.approx(before, abs=1)


def test_the_overlay_follows_its_end_unless_its_reader_went_up(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("\n\n".join(f"Thought {n}." for n in range(80)))
    expect(tab.element("overlay-part")).to_contain_text("Thought 79")
    overlay = tab.element("overlay")
    view = tab.page.viewport_size
    box = overlay.bounding_box()
    assert view
    assert box
    assert box["height"] < view["height"] * 0.75, "it is a bounded box"
    tab.wait_rendered()
    assert overlay.evaluate(LEFT) <= 2
    overlay.hover()
    tab.page.mouse.wheel(0, -400)
    tab.wait_scrolled_away(overlay)
    tab.wait_rendered()
    before = overlay.evaluate(SCROLLED)
    model_script.think("\n\nOne more. " * 20)
    expect(tab.element("overlay-part")).to_contain_text("One more.")
    tab.wait_rendered()
    assert overlay.evaluate(SCROLLED) == pytest.approx(before, abs=1)
