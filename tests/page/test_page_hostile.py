"""Texts of models, tools and strangers are shown as text and have no effect.

No script runs, no window opens, nothing is loaded from other hosts (each test's tab checks that), and invisible
characters are shown.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.page_kit import ModelScript, Tab

SCRIPTS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '<img src="https://example.org/pixel.gif">',
    '<svg onload="alert(1)"><script>alert(1)</script></svg>',
    "<iframe src='javascript:alert(1)'></iframe>",
    '<a href="javascript:alert(1)">press</a>',
    "<style>* { display: none }</style>",
    "<form action='https://example.org'><input name=q><button>Send</button></form>",
    "<meta http-equiv=refresh content='0;url=https://example.org'>",
    "<base href='https://example.org/'>",
    "<link rel=stylesheet href=https://example.org/x.css>",
    "<details open ontoggle=alert(1)>x</details>",
    "</div></main></body><h1>Gone</h1>",
    "<!-- ", "<![CDATA[", "]]>", "</script>",
]  # fmt: skip

MARKDOWN = [
    "[press](javascript:alert(1))",
    "[press](JaVaScRiPt:alert(1))",
    "[press](java\tscript:alert(1))",
    "[press](data:text/html,<script>alert(1)</script>)",
    "[press](vbscript:x)",
    "[press](file:///etc/passwd)",
    "![picture](https://example.org/pixel.gif)",
    "![picture](javascript:alert(1))",
    "[press]: javascript:alert(1)\n[press]",
    "<javascript:alert(1)>",
    "$\\href{javascript:alert(1)}{x}$ $\\url{https://example.org}$ $\\includegraphics{https://example.org/x.png}$",
    "$$\\def\\a{\\a\\a}\\a$$",
    "```html\n<script>alert(1)</script>\n```",
    "```mermaid\ngraph TD; A-->B; click A href 'javascript:alert(1)'\n```",
]

UNSEEN = "invoice\u202efdp.exe \x1b[31mred\x07\x00 a\u2066b\u2069 \U000e0041\U000e0042 \u0085"

EVERYTHING = "\n\n".join([*SCRIPTS, *MARKDOWN, UNSEEN])

ACTIVE = "script, iframe, object, embed, form, style, link, base, meta, img, video, audio, source, [onerror], [onload]"


def inert(tab: Tab, testid: str) -> None:
    """Check that the element has no active content, and that every link opens a web page in a new window."""
    for one in tab.element(testid).all():
        assert one.locator(ACTIVE).count() == 0
        for link in one.locator("a").all():
            href = link.get_attribute("href") or ""
            assert href.startswith(("https://", "http://", "mailto:")), href
            assert "noopener" in (link.get_attribute("rel") or "")
            assert link.get_attribute("target") == "_blank"


def test_in_thoughts_and_answers(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask(EVERYTHING)
    model_script.think(EVERYTHING)
    expect(tab.element("overlay-part")).to_contain_text("Gone")
    inert(tab, "overlay-part")
    # In pieces, so that each is rendered incomplete.
    for start in range(0, len(EVERYTHING), 97):
        model_script.say(EVERYTHING[start : start + 97])
    expect(tab.element("answer-text")).to_contain_text("invoice")
    inert(tab, "answer-text")
    model_script.end()
    tab.wait_finished()
    tab.open_reasoning()
    for testid in ("reasoning-part", "answer-text", "user-event"):
        inert(tab, testid)
        text = tab.element(testid).inner_text()
        for seen in ("alert(1)", "<script>", "<img src=x onerror=alert(1)>", "U+202E", "U+001B"):
            assert seen in text, (testid, seen)
    assert tab.element("composer").is_visible(), "no style of theirs"
    assert tab.page.url.startswith(tab.url)
    title = tab.page.title()
    assert "\u202e" not in title
    for item in tab.element("conversation-item").all():
        assert item.locator(ACTIVE).count() == 0


def test_in_arguments_and_results_of_tools(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.call("weather", {"city": EVERYTHING}).end("tool_calls")
    model_script.call("hostile", {}, id="<b>call</b>").end("tool_calls")
    expect(tab.element("overlay-tool")).to_have_count(2)
    inert(tab, "overlay-tool")
    # An unknown function: the answer ends there.
    model_script.call("<img src=x onerror=alert(1)>", '{"a": "<script>alert(1)</script>', id="c3").end("tool_calls")
    tab.page.locator("[data-testid=assistant-event]:not([data-status=in_progress])").wait_for()
    expect(tab.element("tool-segment")).to_have_count(3)
    for segment in tab.element("tool-segment").all():
        segment.get_by_role("button").click()
    inert(tab, "tool-segment")
    text = " ".join(tab.element("tool-segment").all_inner_texts())
    assert "<img src=x onerror=alert(1)>" in text
    assert "U+202E" in text


HUGE: list[Any] = [
    pytest.param(
        "|" + "a|" * 2000 + "\n|" + "-|" * 2000 + "\n" + ("|" + "x|" * 2000 + "\n") * 20, id="a table of 40,000"
    ),
    pytest.param("> " * 2000 + "deep", id="quotes in quotes"),
    pytest.param("\n".join("  " * n + "- deep" for n in range(300)), id="lists in lists"),
    pytest.param("- item\n" * 20_000, id="items"),
    pytest.param("| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 10_000, id="rows"),
    pytest.param("**a* " * 2_000, id="stars"),
    pytest.param("a\n\n" * 20_000, id="paragraphs"),
    pytest.param("**" * 20_000 + "a" + "_*" * 20_000, id="emphasis"),
    pytest.param("[" * 20_000 + "x" + "](" * 20_000, id="brackets"),
    pytest.param("`" * 9_999 + "x" + "$" * 9_999, id="signs"),
    pytest.param("a" * 300_000, id="one word"),
    pytest.param("```\n" + "x = 1\n" * 20_000, id="code without an end"),
    pytest.param("\n".join(f"[{n}]: https://example.org/{n}" for n in range(3000)) + "\n[1]", id="addresses"),
]


@pytest.mark.parametrize("text", HUGE)
def test_texts_made_to_be_slow_are_fast(tab: Tab, model_script: ModelScript, text: str) -> None:
    """Reasoning, answer and final event are rendered, and the page responds, within seconds."""
    model_script.think(text)
    for start in range(0, len(text), 20_000):
        model_script.say(text[start : start + 20_000])
    model_script.end()
    tab.open_and_ask()
    tab.wait_finished()
    tab.open_reasoning()
    tab.element("composer").fill("Still here")
    assert tab.element("composer").input_value() == "Still here"


def test_a_list_of_a_thousand_levels_streams(tab: Tab, model_script: ModelScript) -> None:
    text = "\n".join("  " * n + "- deep" for n in range(990))
    for start in range(0, len(text), 20_000):
        model_script.say(text[start : start + 20_000])
    model_script.end()
    tab.open_and_ask()
    tab.wait_finished()
    expect(tab.element("answer-text")).to_contain_text("- deep")


def test_a_text_that_arrives_in_one_piece_is_drawn_to_its_end(tab: Tab, model_script: ModelScript) -> None:
    """It grows by a bounded length in each frame, and the end of the answer does not cut it."""
    model_script.say("\n\n".join(f"Paragraph {n}." for n in range(4_000))).end()
    tab.open_and_ask()
    tab.wait_finished()
    answer = tab.element("answer-text")
    expect(answer).to_contain_text("Paragraph 3999.")
    expect(answer.get_by_text("Paragraph 3999.")).to_be_in_viewport()
    tab.page.reload()
    expect(answer).to_contain_text("Paragraph 3999.")
    expect(answer.get_by_text("Paragraph 3999.")).to_be_in_viewport()


def test_titles_and_snippets_are_text(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer(f"needle {EVERYTHING}")
    tab.open_and_ask("<img src=x onerror=alert(1)> \u202egpj.exe")
    tab.wait_finished()
    tab.element("search").fill("needle")
    expect(tab.element("conversation-item")).to_have_count(1)
    item = tab.element("conversation-item")
    assert item.locator(ACTIVE).count() == 0
    assert "<img src=x" in item.inner_text()
    assert "\u202e" not in item.inner_html()


def test_an_error_of_the_upstream_is_text(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Hm.").fail(EVERYTHING)
    tab.wait_finished("failed")
    assert tab.element("error-state").locator(ACTIVE).count() == 0


def test_a_canonical_event_of_any_shape_is_shown(tab: Tab, model_script: ModelScript) -> None:
    """Events of an older or newer server: kinds, types and fields that this page does not know."""
    model_script.answer("Noon.", "Hm.")
    tab.open_and_ask()
    tab.wait_finished()
    chat = tab.conversation
    stored = tab.api(f"/api/conversations/{chat}")
    answer = stored["events"][1]
    answer["segments"] += [
        {"id": "x1", "type": "hologram", "data": EVERYTHING},
        {"id": "x2", "type": "file", "media_type": "text/html", "url": "javascript:alert(1)"},
        {"id": "x3", "type": "file", "media_type": "text/html", "data": "PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg=="},
        {"id": "x4", "type": "refusal", "text": EVERYTHING},
    ]
    answer["timeline"] = [{"segment_id": "nobody", "started_at": 9e15, "ended_at": -1}]
    tab.page.route(f"**/api/conversations/{chat}", lambda route: route.fulfill(body=json.dumps(stored)))
    tab.page.reload()
    tab.wait_finished()
    tab.open_reasoning()
    inert(tab, "assistant-event")
    expect(tab.element("answer-text")).to_contain_text("Noon.")
