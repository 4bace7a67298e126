"""The page in a language for tests: its words are accented and longer, or right-to-left (`ui/src/testing/pseudo.ts`).

Nothing is cut, and no text of the page stands outside of `ui/src/words.ts`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import ViewportSize, expect

from pellucid.server import page
from pellucid.server.config import check_config
from tests.node_packages import installed
from tests.page.page_kit import ModelScript, PageServer, ScriptedModels, Tab, Tabs, shot
from tests.page.page_space_kit import PARTICIPANTS, SPACE, ScriptedParticipants, join_space, play_review
from tests.scripted import Upstream
from tests.scripted.gateway import serve
from tests.spaces_server.space_wire_kit import spaces_of

UI = Path(__file__).parents[2] / "ui"
SIZES: dict[str, ViewportSize] = {"phone": {"width": 390, "height": 844}, "desktop": {"width": 1440, "height": 900}}

DATA = re.compile(
    r"Pellucid|Anthropic|OpenAI(, Responses)?|vLLM|"
    r"thinker|other|reasoner|claude|locked|weather|\b(city|Ur|sky|clear|degrees)\b|pellucid \w+ \w+( \w+ --\w+ [A-Z]+)?"
)
"""Names, and what a person or a model wrote."""

FAULTS = """() => {
  const faults = [], words = []
  const seen = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true})
  const uncut = ".visually-hidden, code, pre, svg, option"
  const edges = "button, a, label, li, dialog, body"
  const cut = (text, box, one) => {
    const style = getComputedStyle(one), frame = one.getBoundingClientRect()
    const isWide = box.left < frame.left - 1.5 || box.right > frame.right + 1.5
    const isTall = box.bottom > frame.bottom + 1.5 && box.top < frame.bottom
    if (frame.width > 0 && isWide && (/hidden|clip/.test(style.overflowX) || one.matches(edges))) return true
    return frame.height > 0 && isTall && style.overflowY === "hidden" && style.webkitLineClamp === "none"
  }
  // A text that may be shortened shows an ellipsis, or scrolls.
  const mayBeShort = (style) => style.textOverflow === "ellipsis" || /auto|scroll/.test(style.overflowX)
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    const text = texts.currentNode, parent = text.parentElement
    if (text.data.trim() === "" || !seen(parent)) continue
    words.push(text.data)
    const range = document.createRange()
    range.selectNodeContents(text)
    const box = range.getBoundingClientRect()
    if (box.width === 0 || parent.closest(uncut)) continue
    for (let one = parent; one && !mayBeShort(getComputedStyle(one)); one = one.parentElement) {
      if (!cut(text, box, one)) continue
      faults.push(`"${text.data}" in ${one.tagName}.${one.className}`)
      break
    }
  }
  const names = ["aria-label", "title", "placeholder", "aria-valuetext"]
  for (const element of document.body.querySelectorAll(names.map((name) => `[${name}]`).join())) {
    if (!seen(element) || element.closest("svg")) continue
    for (const name of names) words.push(element.getAttribute(name) ?? "")
  }
  const width = document.scrollingElement.scrollWidth
  if (width > innerWidth) faults.push(`the page is ${width} px wide`)
  return {faults, words}
}"""


@pytest.fixture(scope="module")
def page_server(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageServer]:
    """A gateway with a space, whose page is built in the language for tests."""
    if not (UI / "node_modules").is_dir():
        pytest.skip("ui/node_modules is not there: make check-page installs it")
    folder = tmp_path_factory.mktemp("pseudo")
    command = [shutil.which("npx") or "npx", "--no-install", "vite", "build", "--mode", "pseudo", "--logLevel", "error"]
    subprocess.run([*command, "--outDir", str(folder / "web"), "--emptyOutDir"], cwd=UI, check=True, timeout=120)
    models = ScriptedModels(upstream)
    spaces = spaces_of(folder, {SPACE: {"participants": PARTICIPANTS}})
    store = folder / "store.sqlite"
    config = {**models.config(upstream), "storage": {"url": f"sqlite:///{store}"}, "spaces": spaces}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "files", lambda _: folder)
        page.built_files.cache_clear()
        try:
            with serve(check_config(config, {"A_KEY": "k"})) as gateway:
                yield PageServer(models, gateway, str(store))
        finally:
            page.built_files.cache_clear()


def check_screen(tab: Tab, where: str, allowed: re.Pattern[str] = DATA) -> None:
    tab.wait_rendered()
    result = tab.page.evaluate(FAULTS)
    assert not result["faults"], (where, result["faults"])
    plain = sorted({word for word in result["words"] if re.search(r"[A-Za-z]{2}", allowed.sub("", word))})
    assert not plain, (where, "not in words.ts", plain)


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_nothing_is_cut_and_everything_is_translated(tabs: Tabs, model_script: ModelScript, direction: str) -> None:
    tab = tabs(viewport=SIZES["phone"])
    tab.page.add_init_script(f"globalThis.pseudoDirection = '{direction}'")

    def check_both(where: str) -> None:
        for name, size in SIZES.items():
            tab.page.set_viewport_size(size)
            check_screen(tab, f"{where}, {name}, {direction}")

    tab.open()
    assert tab.page.evaluate("document.documentElement.dir") == direction
    check_both("a new chat")
    title = tab.page.locator(".empty__title")
    title.evaluate("one => Object.assign(one.style, {inlineSize: '60px', whiteSpace: 'nowrap', overflow: 'hidden'})")
    assert tab.page.evaluate(FAULTS)["faults"], "a text that is cut is found"
    title.evaluate("one => one.removeAttribute('style')")
    for picker in ("model-picker", "view-badge"):
        tab.element(picker).click()
        tab.page.get_by_role("menu").wait_for()
        check_both(picker)
        tab.page.keyboard.press("Escape")

    model_script.think("1 + 1").call("weather", {"city": "Ur"}).end("tool_calls")
    model_script.think("1 + 1 = 2").say("= 1 + 1")
    tab.ask("1 + 1?")
    tab.element("answer-text").wait_for()
    check_both("an answer in progress")
    model_script.end(usage={"prompt_tokens": 9, "completion_tokens": 1200})
    tab.wait_finished()
    tab.open_reasoning()
    tab.element("tool-segment").get_by_role("button").click()
    check_both("an answer with its reasoning")
    tab.element("edit").click()
    check_both("a question being edited")
    tab.page.keyboard.press("Escape")

    model_script.say("3")
    tab.ask("2 + 1?")
    tab.element("stop").click()
    tab.wait_finished("cancelled")
    check_both("an answer that was stopped")

    tab.page.set_viewport_size(SIZES["desktop"])
    row = tab.element("conversation-item").first
    row.hover()
    row.locator(".chats__more").click()
    check_screen(tab, "the menu of a chat")
    tab.page.get_by_role("menuitem").last.click()
    tab.element("confirm-delete").wait_for()
    check_both("the dialog to delete a chat")


AXE = "{resultTypes: ['violations']}"


@pytest.mark.needs("node")
@pytest.mark.parametrize("direction", ["ltr", "rtl"])
def test_dialogs_are_translated_fit_and_are_accessible(tabs: Tabs, model_script: ModelScript, direction: str) -> None:
    axe = (installed(Path(__file__).parent) / "node_modules" / "axe-core" / "axe.min.js").read_text()
    theme = "dark" if direction == "rtl" else "light"
    tab = tabs(viewport=SIZES["desktop"], color_scheme=theme, bypass_csp=False, reduced_motion="reduce")
    tab.page.add_init_script(f"globalThis.pseudoDirection = '{direction}'")
    tab.open()
    data = [one["title"] for one in tab.api("/api/providers")["data"]]
    data += [text for one in tab.api("/api/tools")["data"] for text in (one["name"], one.get("description", ""))]
    longest_first = sorted(filter(None, data), key=len, reverse=True)
    names = re.compile("|".join([*map(re.escape, longest_first), DATA.pattern]))

    def check(where: str, *sizes: str) -> None:
        dialog = tab.page.get_by_role("dialog").last
        dialog.wait_for()
        for size in sizes or ("phone", "desktop"):
            tab.page.set_viewport_size(SIZES[size])
            shot(tab, f"{where}-{size}-{direction}")
            check_screen(tab, f"{where}, {size}, {direction}", names)
            box = dialog.bounding_box()
            assert box is not None
            assert box["x"] >= 0, where
            assert box["x"] + box["width"] <= SIZES[size]["width"], where
            tab.page.evaluate(axe)
            violations = tab.page.evaluate(f"() => axe.run(document, {AXE})")["violations"]
            assert [(one["id"], [node["html"][:160] for node in one["nodes"]]) for one in violations] == [], where

    def close() -> None:
        tab.page.keyboard.press("Escape")
        expect(tab.page.get_by_role("dialog")).to_have_count(0)

    for entry in ("instructions", "tools", "help"):
        tab.element("add").click()
        tab.element(f"add-{entry}").click()
        check(entry)
        close()
    tab.element("model-picker").click()
    tab.element("connect-menu").click()
    tab.element("provider").first.wait_for()
    check("connect-choice")
    for profile in ("openai", "ollama"):
        tab.page.locator(f"[data-profile={profile}]").click()
        tab.element("connect-test").wait_for()
        tab.page.locator("summary").click()
        check(f"connect-{profile}")
        tab.page.locator(".dialog__actions .button").first.click()
    close()

    model_script.answer("= 2")
    tab.ask("1 + 1?")
    tab.wait_finished()
    tab.element("feedback-down").click()
    tab.element("feedback-comment").click()
    check("comment")
    close()
    for size in ("desktop", "phone"):
        tab.page.set_viewport_size(SIZES[size])
        if size == "phone":
            tab.element("menu").click()
        tab.element("conversation-item").get_by_role("button").click()
        tab.page.get_by_role("menuitem").nth(1).click()
        tab.element("share-make").click()
        tab.element("share-item").first.wait_for()
        check("share", size)
        close()


@pytest.mark.parametrize("direction", ["ltr", "rtl"])
@pytest.mark.usefixtures("review")
def test_a_space_is_translated(tabs: Tabs, direction: str) -> None:
    tab = tabs(viewport=SIZES["phone"])
    tab.page.add_init_script(f"globalThis.pseudoDirection = '{direction}'")
    tab.page.goto(f"{tab.url}/spaces/{SPACE}")
    tab.element("join-token").wait_for()
    check_screen(tab, "the form to join", re.compile(rf"{DATA.pattern}|{SPACE}"))
    tab.page.goto(f"{tab.url}/spaces")
    tab.element("space-row").wait_for()
    check_screen(tab, "the list of spaces", re.compile(rf"{DATA.pattern}|{SPACE}"))
    tab.element("new-space").click()
    check_screen(tab, "the form for a new space", re.compile(rf"{DATA.pattern}|{SPACE}"))
    join_space(tab)

    def check_cut(where: str) -> None:
        for name, size in SIZES.items():
            tab.page.set_viewport_size(size)
            tab.wait_rendered()
            # Most texts of a space are its participants': only what is cut can be checked.
            result = tab.page.evaluate(FAULTS)
            assert not result["faults"], (where, name, direction, result["faults"])

    check_cut("a space")
    tab.element("invite").click()
    check_cut("the form to invite")


@pytest.fixture(scope="module")
def review(page_server: PageServer) -> None:
    participants = ScriptedParticipants(page_server.gateway)
    play_review(participants)
    participants.close()
