"""Record the screenshots of the page in docs/images.

    .venv/bin/python bench/page_images.py

They show the real page with a real gateway, whose model is scripted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from playwright.sync_api import Browser, expect  # noqa: E402

from page import page_gateway  # noqa: E402
from tests.page.page_kit import ModelScript, ScriptedModels, Tab, browser  # noqa: E402
from tests.scripted import Upstream  # noqa: E402
from tests.scripted.gateway import Served  # noqa: E402

IMAGES = ROOT / "docs" / "images"
MAX_BYTES = 150_000

QUESTION = "We want to row out from Ur tomorrow. When is high tide, and how high will it be?"
FIRST = """**What is asked**

Two things: the time of high tide, and its height. I have the moon's age (11.6 days), so the next spring tide is near. \
The weather matters too, since wind from the south piles the water up. Let me look."""
SECOND = """**Working it out**

The sky is clear and there is no wind to speak of, so the moon alone decides.

- High water follows the moon's transit by about `1 h 50 min` here.
- Transit tomorrow is at 10:22, so high water is at about 12:12.
- The range at 11.6 days is 94 % of a spring tide: 0.94 · 3.3 m ≈ 3.1 m.

That is 12 minutes past noon. A boat needs 0.8 m over the bar, so they can leave from 9:40 on."""
ANSWER = """High tide is at **12:12**, about **3.1 m**. The sky will be clear.

| | time | height |
|---|---|---:|
| over the bar from | 9:40 | 0.8 m |
| **high tide** | **12:12** | **3.1 m** |
| back before | 14:45 | 0.8 m |

The height is that of a spring tide, made smaller by the moon's age:

$$h = 3.3\\,\\mathrm{m} \\cdot \\cos\\!\\left(\\frac{\\pi}{2} \\cdot \\frac{14.8 - 11.6}{14.8}\\right)$$

```py
def height(age: float, spring: float = 3.3) -> float:
    return spring * cos(pi / 2 * (14.8 - age) / 14.8)
```
"""
USAGE = {"prompt_tokens": 61, "completion_tokens": 402, "completion_tokens_details": {"reasoning_tokens": 188}}
EARLIER = ("Explain to a child why the sky is blue", "A regular expression for dates", "Γιατί ο ουρανός είναι μπλε;")


def scene(
    chrome: Browser, models: ScriptedModels, gateway: Served, **context_options: object
) -> tuple[Tab, ModelScript]:
    models.model_script = ModelScript()
    context_options = {
        "viewport": {"width": 1100, "height": 760},
        "color_scheme": "light",
        "reduced_motion": "reduce",
        **context_options,
    }
    tab = Tab(chrome.new_context(**context_options), gateway)  # type: ignore[arg-type]
    tab.store_choices(effort="high")
    tab.open()
    return tab, models.model_script


def slowly(tab: Tab, send: Callable[[str], ModelScript], text: str) -> None:
    """As a model would: some hundred characters a second."""
    for start in range(0, len(text), 40):
        send(text[start : start + 40])
        tab.page.wait_for_timeout(180)


def ask_question(tab: Tab, script: ModelScript) -> None:
    tab.ask(QUESTION)
    slowly(tab, script.think, FIRST)
    script.call("weather", {"city": "Ur"}).end("tool_calls")
    expect(tab.element("overlay-tool")).to_have_attribute("data-status", "completed")


def finish_answer(tab: Tab, script: ModelScript) -> None:
    slowly(tab, script.think, SECOND)
    slowly(tab, script.say, ANSWER)
    script.end(usage=USAGE)
    tab.wait_finished()
    tab.element("answer-text").locator("math").wait_for()
    tab.element("answer-text").locator("pre span[class]").first.wait_for()


def opened_at_its_top(tab: Tab) -> None:
    tab.open_reasoning()
    tab.element("scroller").evaluate("one => { one.scrollTop = 0 }")


def picture(tab: Tab, name: str) -> None:
    tab.page.mouse.move(0, 0)
    tab.wait_rendered()
    path = IMAGES / f"{name}.png"
    tab.page.screenshot(path=path)
    size = path.stat().st_size
    print(f"{path.relative_to(ROOT)} {size / 1000:.0f} kB")
    assert size < MAX_BYTES, "a picture for the docs must be smaller"
    tab.gateway.request("DELETE", f"/api/conversations/{tab.conversation}")
    tab.context.close()


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with Upstream() as upstream, page_gateway(upstream) as (models, gateway), browser() as chrome:
        tab, script = scene(chrome, models, gateway)
        for question in EARLIER:
            script.answer("Yes.")
            tab.element("new-chat").click()
            tab.ask(question)
            tab.wait_finished()
        tab.context.close()

        tab, script = scene(chrome, models, gateway)
        ask_question(tab, script)
        slowly(tab, script.think, SECOND[:420])
        picture(tab, "page-thinking")

        tab, script = scene(chrome, models, gateway)
        ask_question(tab, script)
        slowly(tab, script.think, SECOND)
        slowly(tab, script.say, ANSWER.partition("The height")[0])
        expect(tab.element("answer-text")).to_contain_text("14:45")
        picture(tab, "page-writing")

        tab, script = scene(chrome, models, gateway)
        ask_question(tab, script)
        finish_answer(tab, script)
        opened_at_its_top(tab)
        picture(tab, "page-opened")

        tab, script = scene(chrome, models, gateway)
        ask_question(tab, script)
        finish_answer(tab, script)
        opened_at_its_top(tab)
        tab.element("find-thoughts").click()
        tab.element("find-field").fill("high")
        tab.page.keyboard.press("Enter")
        expect(tab.element("find-count")).to_contain_text(" of ")
        picture(tab, "page-find")

        tab, script = scene(chrome, models, gateway, color_scheme="dark")
        ask_question(tab, script)
        finish_answer(tab, script)
        picture(tab, "page-dark")

        phone = {"viewport": {"width": 390, "height": 780}, "device_scale_factor": 1.5, "is_mobile": True}
        tab, script = scene(chrome, models, gateway, has_touch=True, **phone)
        ask_question(tab, script)
        finish_answer(tab, script)
        opened_at_its_top(tab)
        picture(tab, "page-phone")


if __name__ == "__main__":
    main()
