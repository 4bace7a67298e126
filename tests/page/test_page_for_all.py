"""Accessibility of the page: keyboard, screen reader, phone, themes, scripts, reduced motion, long texts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import FilePayload, Locator, expect

from tests.node_packages import installed
from tests.page.page_kit import LEFT, ModelScript, Tab, Tabs

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True, "device_scale_factor": 2}

RICH = """## Tides

| when | how high | why |
|---|---:|---|
| noon | 3.1 m | the moon |

> It *rises*, and `falls`.

1. one
2. two

```py
def tide(hour: int) -> float:
    return 3.1  # metres, at the harbour wall, whatever the weather
```

See [the almanac](https://example.org/almanac)."""


def whole(tab: Tab, model_script: ModelScript) -> None:
    """A finished answer with all kinds of content, its reasoning opened."""
    model_script.think("**Which harbour?**\n\nI should look. ").call("weather", {"city": "Ur"}).end("tool_calls")
    model_script.think("Clear, so it is the moon alone.").say(RICH)
    model_script.end(
        usage={"prompt_tokens": 9, "completion_tokens": 90, "completion_tokens_details": {"reasoning_tokens": 40}}
    )
    tab.open_and_ask("When is high tide?")
    tab.wait_finished()
    tab.open_reasoning()


# --- by keys -----------------------------------------------------------------------------------------------------


def focused(tab: Tab) -> str:
    testid: str = tab.page.evaluate(
        "() => document.activeElement?.dataset.testid ?? document.activeElement?.tagName ?? ''"
    )
    return testid


def reach(tab: Tab, testid: str, key: str = "Tab", most: int = 40) -> Locator:
    """Press a key until that element has the focus."""
    seen = []
    for _ in range(most):
        if focused(tab) == testid:
            return tab.page.locator(":focus")
        tab.page.keyboard.press(key)
        seen.append(focused(tab))
    pytest.fail(f"{testid} is not reached by {key}, but {seen}")


def test_a_whole_session_by_keys_alone(tab: Tab, model_script: ModelScript) -> None:
    keys = tab.open().keyboard
    assert focused(tab) == "composer", "the composer has the focus"
    keys.type("First line")
    keys.press("Shift+Enter")
    keys.type("second line")
    keys.press("Enter")
    model_script.think("Hm.")
    tab.element("overlay-part").wait_for()
    assert tab.element("user-event").inner_text().startswith("First line\nsecond line")
    assert focused(tab) == "composer", "the focus stays where it was"
    model_script.say("Noon.").end()
    tab.wait_finished()
    assert focused(tab) == "composer", "also when it is over"
    reach(tab, "show-reasoning", "Shift+Tab")
    keys.press("Enter")
    tab.element("reasoning-part").wait_for()
    assert focused(tab) == "show-reasoning"
    expect(tab.page.locator(":focus")).to_have_attribute("aria-expanded", "true")
    keys.press(" ")
    expect(tab.element("reasoning-part")).to_have_count(0)
    reach(tab, "edit", "Shift+Tab")
    keys.press("Enter")
    assert focused(tab) == "edit-field"
    keys.press("Escape")
    expect(tab.element("edit")).to_be_focused()
    reach(tab, "model-picker")
    keys.press("Enter")
    keys.press("ArrowDown")
    keys.press("Escape")
    expect(tab.element("model-picker")).to_be_focused()
    reach(tab, "composer", "Shift+Tab")
    keys.type("Again")
    keys.press("Enter")
    model_script.think("On and on")
    tab.element("overlay-part").wait_for()
    keys.press("Escape")
    tab.wait_finished("cancelled")
    assert focused(tab) == "composer"


def test_the_focus_returns_after_renaming_or_keeping_a_chat_by_keys(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.")
    tab.open_and_ask("When?")
    tab.wait_finished()
    keys = tab.page.keyboard
    opener = tab.element("conversation-item").get_by_role("button")
    opener.focus()
    rename, delete = (tab.page.get_by_role("menuitem", name=name) for name in ("Rename", "Delete"))
    for title, end in (("Noon", "Enter"), ("Never", "Escape")):
        keys.press("Enter")
        expect(rename).to_be_focused()
        keys.press("Enter")
        expect(tab.page.get_by_label("Title")).to_be_focused()
        keys.type(title)
        keys.press(end)
        expect(tab.element("conversation-item")).to_contain_text("Noon")
        expect(opener).to_be_focused()
    keys.press("Enter")
    expect(rename).to_be_focused()
    keys.press("End")
    expect(delete).to_be_focused()
    keys.press("Enter")
    expect(tab.page.get_by_role("button", name="Cancel")).to_be_focused()
    keys.press("Escape")
    expect(opener).to_be_focused()


RINGED = """() => {
  const one = document.activeElement
  return [one, one.parentElement, one.closest("label")].filter(Boolean).some((each) => {
    const style = getComputedStyle(each)
    return (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none"
  })
}"""


def test_the_focus_is_visible(tab: Tab, model_script: ModelScript) -> None:
    whole(tab, model_script)
    tab.element("composer").focus()
    for _ in range(14):
        tab.page.keyboard.press("Shift+Tab")
        ring = tab.page.evaluate(RINGED)
        assert ring, tab.page.evaluate("() => document.activeElement.outerHTML.slice(0, 200)")


# --- by ear ----------------------------------------------------------------------------------------------------------


def test_a_screen_reader_gets_the_status_and_not_every_word(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    announcer = tab.element("announcer")
    expect(announcer).to_have_attribute("aria-live", "polite")
    expect(announcer).to_have_text("")
    tab.ask()
    answer = tab.element("assistant-event")
    model_script.think("Hm. ")
    expect(announcer).to_have_text("Thinking")
    expect(answer).to_have_attribute("aria-busy", "true")
    model_script.think("Word by word. ")
    expect(tab.element("overlay-part")).to_contain_text("Word by word.")
    assert announcer.inner_text() == "Thinking"
    # A button that says “Copied” is live too, but it changes only when the user presses it. Others are empty.
    live = tab.page.locator(":is([aria-live], [role=status], [role=log], [role=alert]):not(button *)")
    assert [text for text in live.all_inner_texts() if text] == ["Thinking"]
    model_script.say("Noon.").end()
    tab.wait_finished()
    expect(announcer).to_have_text("Answer ready")
    expect(answer).to_have_attribute("aria-busy", "false")


AXE = "{resultTypes: ['violations'], rules: {'heading-order': {enabled: false}}}"
"""The headings of an answer are the model's; levels may be skipped."""


@pytest.mark.needs("node")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_violations(tabs: Tabs, model_script: ModelScript, theme: Any) -> None:
    axe = (installed(Path(__file__).parent) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    tab = tabs(color_scheme=theme, bypass_csp=False, reduced_motion="reduce")
    tab.open()

    def errors() -> list[str]:
        tab.wait_rendered()
        tab.page.evaluate(axe)
        violations = tab.page.evaluate(f"() => axe.run(document, {AXE})")["violations"]
        return [
            f"{one['id']}: {node['html'][:160]} {[why['message'][:160] for why in node['any']]}"
            for one in violations
            for node in one["nodes"]
        ]

    assert errors() == [], "an empty page"
    for entry in ("instructions", "tools", "help"):
        tab.element("add").click()
        tab.element(f"add-{entry}").click()
        tab.page.get_by_role("dialog").get_by_role("button").first.wait_for()
        assert errors() == [], f"the dialog of {entry}"
        tab.page.keyboard.press("Escape")
    for name, data in (("notes.txt", b"Notes."), ("program", b"\0")):
        tab.element("file-input").set_input_files(FilePayload(name=name, mimeType="", buffer=data))
    expect(tab.element("attached-file")).to_have_count(2)
    assert errors() == [], "files, one of which cannot be sent"
    tab.element("remove-file").last.click()
    tab.ask()
    model_script.think("Hm.").call("weather", {"city": "Ur"}).end("tool_calls").think("So.").say("No")
    tab.element("answer-text").wait_for()
    tab.element("composer").fill("And then?")
    tab.element("queue").click()
    tab.element("follow-up").wait_for()
    assert errors() == [], "while it streams"
    tab.element("follow-up-discard").click()
    model_script.say("on.").end()
    tab.wait_finished()
    model_script.think("**Head**").call("weather", {"city": "Nowhere"}).end("tool_calls").answer(RICH, "So.")
    tab.ask("More?")
    expect(tab.element("show-reasoning")).to_have_count(2)
    tab.open_reasoning()
    tab.element("tool-segment").last.get_by_role("button").click()
    assert errors() == [], "finished and opened"
    tab.ask("More?")
    model_script.think("Hm.").fail("asleep")
    tab.wait_finished("failed")
    tab.element("conversation-item").first.get_by_role("button").click()
    assert errors() == [], "an error, and a menu"


# --- on a phone ----------------------------------------------------------------------------------------------------


def test_on_a_phone_nothing_is_wider_than_the_screen(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(**PHONE)
    tab.open()
    wide = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert tab.page.evaluate(wide) == 0
    tab.ask("word" * 60)
    model_script.think("thought" * 80 + "\n\n```\n" + "x" * 300 + "\n```").call("weather", {"city": "Ur" * 80}).end(
        "tool_calls"
    )
    cells = "|".join(f"column{n}" for n in range(30))
    model_script.think("So.").say(
        f"{RICH}\n\n|{cells}|\n|{'|'.join('-' * 30)}|\n|{cells}|\n\n{'long' * 100} $x^2 + {'y +' * 60} 1$"
    )
    expect(tab.element("answer-text")).to_contain_text("longlong")
    assert tab.page.evaluate(wide) == 0
    model_script.end()
    tab.wait_finished()
    tab.open_reasoning()
    tab.element("tool-segment").get_by_role("button").click()
    tab.wait_rendered()
    assert tab.page.evaluate(wide) == 0
    sideways = "one => one.scrollWidth - one.clientWidth"
    assert tab.element("scroller").evaluate(sideways) == 0, "tables and code scroll in themselves"
    small = [
        (one.evaluate("one => one.outerHTML.slice(0, 120)"), box)
        for one in tab.page.locator("button:visible").all()
        if (box := one.bounding_box()) and min(box["width"], box["height"]) < 24
    ]
    assert small == [], "fingers need 24 by 24"
    tab.element("menu").click()
    tab.element("new-chat").click()
    expect(tab.element("empty")).to_be_visible()
    expect(tab.element("new-chat")).to_have_count(0)


# --- in the dark -----------------------------------------------------------------------------------------------------

GROUND = "() => getComputedStyle(document.documentElement).backgroundColor"


def bright(colour: str) -> bool:
    numbers = [float(number) for number in re.findall(r"[\d.]+", colour)[:3]]
    scale = 255 if colour.startswith("rgb") else 1
    return sum(numbers) / 3 / scale > 0.5 if colour.startswith(("rgb", "color")) else numbers[0] > 0.5


def test_the_theme_follows_the_system_or_the_choice(tabs: Tabs) -> None:
    tab = tabs(color_scheme="dark")
    tab.open()
    assert not bright(tab.page.evaluate(GROUND))
    tab.page.emulate_media(color_scheme="light")
    assert bright(tab.page.evaluate(GROUND))
    toggle = tab.element("theme-toggle")
    seen = {}
    for _ in range(3):
        toggle.click()
        tab.wait_rendered()
        seen[toggle.get_attribute("data-theme-choice")] = bright(tab.page.evaluate(GROUND))
    assert seen == {"light": True, "dark": False, "system": True}
    while toggle.get_attribute("data-theme-choice") != "dark":
        toggle.click()
    tab.page.reload()
    assert not bright(tab.page.evaluate(GROUND)), "the theme is stored and applied before the first paint"


MOVING = """() => document.getAnimations().filter((one) => {
  const timing = one.effect.getComputedTiming()
  const names = one.effect.getKeyframes().flatMap((frame) => Object.keys(frame))
  const moves = ["transform", "rotate", "translate", "scale"].some((name) => names.includes(name))
  return one.playState === "running" && moves && (timing.iterations === Infinity || timing.duration > 10)
}).map((one) => one.animationName ?? one.transitionProperty)"""


def test_reduced_motion_is_respected(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(reduced_motion="reduce")
    tab.open_and_ask()
    model_script.think("Hm.").call("weather", '{"city"')
    expect(tab.element("overlay-tool")).to_have_count(1)
    assert tab.page.evaluate(MOVING) == []


def test_motion_is_on_by_default(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Hm.")
    tab.element("part-spinner").wait_for()
    assert tab.page.evaluate("() => document.getAnimations().length") > 0


# --- in any script ---------------------------------------------------------------------------------------------------


def test_text_has_the_direction_of_its_script(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask("متى المدّ؟")
    model_script.think("المدّ عند الظهر.")
    direction = "one => getComputedStyle(one).direction"
    expect(tab.element("overlay-part").locator("p")).to_have_text("المدّ عند الظهر.")
    assert tab.element("overlay-part").locator("p").evaluate(direction) == "rtl"
    model_script.say("المدّ في **الثانية عشرة**.\n\nAnd in English.\n\n```py\nx = 1\n```").end()
    tab.wait_finished()
    assert tab.element("user-event").locator("[dir]").first.evaluate(direction) == "rtl"
    paragraphs = tab.element("answer-text").locator("p")
    assert [one.evaluate(direction) for one in paragraphs.all()] == ["rtl", "ltr"]
    assert tab.element("answer-text").locator("pre").evaluate(direction) == "ltr"
    tab.open_reasoning()
    assert tab.element("reasoning-part").locator("p").evaluate(direction) == "rtl"


def test_words_without_spaces_stay_on_the_page(tab: Tab, model_script: ModelScript) -> None:
    text = "潮の満ち引きは月の引力によって起こります。" * 40 + "👩‍👩‍👧‍👦" * 20
    model_script.answer(text, text)
    tab.open_and_ask("なぜ潮は満ちるの？")
    tab.wait_finished()
    expect(tab.element("answer-text")).to_have_text(text)
    assert tab.element("scroller").evaluate("one => one.scrollWidth - one.clientWidth") == 0


def test_what_an_input_method_writes_is_not_sent_by_its_enter(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    composer = tab.element("composer")
    composer.fill("しお")
    composer.dispatch_event("keydown", {"key": "Enter", "isComposing": True, "keyCode": 229})
    tab.wait_rendered()
    assert composer.input_value() == "しお"
    assert model_script.calls == []


# --- at length -----------------------------------------------------------------------------------------------------


def test_a_megabyte_of_thought(tab: Tab, model_script: ModelScript) -> None:
    """It arrives completely, opens completely, and its end is one key away."""
    line = "The sea rises twice a day because the moon pulls at it, and the earth turns beneath it. "
    whole = "\n\n".join(f"{n}. {line * 3}" for n in range(4000))
    assert len(whole) > 1_000_000
    tab.open_and_ask()
    for start in range(0, len(whole), 16_384):
        model_script.think(whole[start : start + 16_384])
    model_script.say("Noon.").end()
    tab.wait_finished()
    panel = tab.open_reasoning()
    assert panel.evaluate("one => one.textContent.length") > len(whole) * 0.97
    tab.element("composer").blur()
    tab.element("scroller").evaluate("one => { one.scrollTop = one.scrollHeight }")
    tab.wait_rendered()
    assert tab.element("scroller").evaluate(LEFT) < 10_000
    tab.element("show-reasoning").click()
    expect(tab.element("reasoning-part")).to_have_count(0)


def test_a_long_table_is_one_table(tab: Tab, model_script: ModelScript) -> None:
    """One head, aligned columns and no gap, although rows below the visible area are not rendered yet."""
    columns, rows = 30, 400
    head = "|" + "|".join(f" c{n} " for n in range(columns)) + "|\n" + "|" + "---|" * columns + "\n"
    body = "".join("|" + "|".join(f" {row}.{n} " for n in range(columns)) + "|\n" for row in range(rows))
    model_script.answer(f"Here:\n\n{head}{body}\nThe end.")
    tab.open_and_ask()
    answer = tab.wait_finished()
    expect(answer).to_contain_text("The end.")
    assert answer.locator("table").count() == answer.locator("thead").count() == 1
    table = answer.locator(".table")
    assert 0 < answer.locator("td:not(.table__source)").count() < columns * rows
    table.evaluate("one => { one.scrollTop = one.scrollHeight }")
    last = table.get_by_role("cell", name=f"{rows - 1}.0", exact=True)
    last.wait_for()
    first = table.get_by_role("cell", name="0.0", exact=True)
    assert last.bounding_box()["x"] == first.bounding_box()["x"]  # type: ignore[index]
    gaps = table.evaluate("""one => [...one.querySelectorAll("tbody")].slice(1).map((body) =>
        body.getBoundingClientRect().top - body.previousElementSibling.getBoundingClientRect().bottom)""")
    assert gaps, "it is drawn in several pieces"
    assert max(map(abs, gaps)) < 1


def test_a_very_long_answer_has_its_buttons_when_all_of_it_is_there(tab: Tab, model_script: ModelScript) -> None:
    """Until then something says that more follows, and the foot keeps its place."""
    text = "\n\n".join(f"Paragraph {n} of a long answer, with **some** emphasis in it." for n in range(3000))
    tab.page.add_init_script("""new MutationObserver(() => {
      const foot = document.querySelector("[data-testid=more-follows]")?.parentElement
      if (!foot) return
      const copy = foot.querySelector("[data-testid=copy]")
      if (copy) (window.whileMore ??= []).push(copy.checkVisibility({ visibilityProperty: true }))
    }).observe(document, { childList: true, subtree: true })""")
    model_script.answer(text)
    tab.open_and_ask()
    answer = tab.wait_finished()
    tab.conversation  # noqa: B018 - waits for the address
    tab.page.reload()
    expect(tab.element("copy")).to_be_visible()
    expect(answer).to_contain_text("Paragraph 2999 ")
    expect(tab.element("more-follows")).to_have_count(0)
    seen = tab.page.evaluate("window.whileMore")
    assert seen
    assert not any(seen)
