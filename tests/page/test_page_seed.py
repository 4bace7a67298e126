"""The specification of the page, sentence by sentence: what shows while an answer streams, and what shows afterwards.

`RULES` says which sentence is held by which tests here; a test sees to it that the table tells the truth.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

import pytest
from playwright.sync_api import Locator, expect

from tests.page.page_kit import LOCKED, REASONER, SECONDS, ModelScript, PageServer, Tab, Tabs, TCPProxy
from tests.providers_openai_responses import responses_kit as openai

RULES = {
    # UX behaviour, streaming
    "a temporary overlay that streams each non-text segment in real time": "test_the_overlay_streams_parts"
    " test_a_thought_after_text_is_visible",
    "reasoning parts (chunked by part/summary_index)": "test_several_parts_stream_independently_and_in_order",
    "tool calls and statuses (built-in and user tools)": "test_a_tool_from_its_call_to_its_result"
    " test_built_in_tools_are_shown_like_any_tool",
    "do not render the “Show Reasoning” collapsible": "test_no_toggle_while_it_streams",
    "text appears below the overlay once text begins": "test_text_streams_beneath_the_overlay",
    # post-stream
    "hide the streaming overlay": "test_the_overlay_is_replaced_by_a_closed_toggle",
    "“Show Reasoning” default collapsed, revealing the full parts when opened": "test_opened_it_shows_all_parts",
    # fresh page render
    "render only the persisted event view": "test_a_fresh_page_shows_what_was_persisted",
    # interaction details
    "users cannot toggle a panel; they only see the live overlay": "test_the_overlay_has_no_controls",
    "the collapse/expand state is per-event, local UI state": "test_each_answer_is_opened_by_itself",
    # spacing
    "overlay renders above assistant text to avoid layout jumps": "test_text_streams_beneath_the_overlay",
    "no outer step count row; “Show Reasoning” sits closest to content": "test_the_toggle_is_closest_to_the_content",
    # components
    "per-part spinners until completed": "test_a_spinner_for_each_part_until_it_is_complete",
    "active tool calls, progress, and results as they stream": "test_a_tool_from_its_call_to_its_result",
    "only when an assistant message is the streaming placeholder": "test_only_the_answer_under_way_has_an_overlay",
    "stable ordering and optional metadata (effort level, token counts)": "test_the_metadata_of_a_thought",
    "non-text segments rendered inline in order above text content": "test_sequence_number_orders_all_steps",
    # event model
    "`message_final` commits the event and hides overlays": "test_the_overlay_is_replaced_by_a_closed_toggle",
    "built-ins: web_search_call_*, code_interpreter_call_*": "test_built_in_tools_are_shown_like_any_tool",
    # store policy
    "no mid-stream store mutations; only one commit with `message_final`": "test_nothing_is_written_in_mid_stream",
    # back end
    "a single block of reasoning is part 0": "test_the_overlay_streams_parts",
    "deduplication on reconnect": "test_a_dropped_connection_loses_and_repeats_nothing",
    "`message_final` is always emitted, even with no reasoning": "test_no_reasoning_no_toggle",
    # edge cases
    "no reasoning present: do not render “Show Reasoning”": "test_no_reasoning_no_toggle",
    "multiple reasoning parts: independently and in order": "test_several_parts_stream_independently_and_in_order",
    "`sequence_number` dictates ordering in both overlay and final": "test_sequence_number_orders_all_steps",
    "cancellation: hide overlay and show error state": "test_a_stopped_answer_keeps_its_content_and_has_a_notice"
    " test_stopped_before_it_thought_there_is_no_toggle",
    "error: hide overlay and show error state": "test_an_error_is_shown_beneath_the_content_so_far"
    " test_an_error_without_reasoning_has_no_toggle",
    "refresh during stream (with the reconnect of issue 6)": "test_a_reload_in_mid_stream_resumes_the_answer",
    "refresh after the stream": "test_a_fresh_page_shows_what_was_persisted",
    # acceptance criteria
    "final view matches overlay content semantically (no missing steps)": "test_persisted_equals_streamed",
    # what was left open, as docs/chat.md decides it
    "silent until the first part arrives, then “Thinking…”": "test_silent_until_the_first_part_then_thinking",
    "sealed: seen to think, without a word; hidden: not even that": "test_sealed_reasoning_is_shown_as_activity"
    " test_hidden_reasoning_is_not_shown",
}  # fmt: skip


def test_the_table_names_tests_that_are_here() -> None:
    named = {name for tests in RULES.values() for name in tests.split()}
    here = {name for name in globals() if name.startswith("test_")} - {"test_the_table_names_tests_that_are_here"}
    assert named == here


# --- a model that tells its thoughts in several summaries ------------------------------------------------------------


def opens(place: int, item: int = 0) -> bytes:
    at: dict[str, Any] = {"output_index": item, "summary_index": place, "item_id": f"rs_{item}"}
    return openai.sse(openai.wire_event("reasoning_summary_part.added", part=openai.summary("")[0], **at))


def adds(place: int, text: str, item: int = 0) -> bytes:
    at: dict[str, Any] = {"output_index": item, "summary_index": place, "item_id": f"rs_{item}"}
    return openai.sse(openai.wire_event("reasoning_summary_text.delta", delta=text, **at))


def closes(place: int, text: str, item: int = 0) -> bytes:
    at: dict[str, Any] = {"output_index": item, "summary_index": place, "item_id": f"rs_{item}"}
    return openai.sse(
        openai.wire_event("reasoning_summary_text.done", text=text, **at),
        openai.wire_event("reasoning_summary_part.done", part=openai.summary(text)[0], **at),
    )


BEGINS = openai.sse(openai.created(), openai.added(0, "reasoning", id="rs_0", summary=[]))


def ends(*summaries: str, answer: str = "High tide at noon.") -> bytes:
    return openai.sse(
        openai.done(0, "reasoning", id="rs_0", summary=openai.summary(*summaries)),
        openai.answer(1, answer),
        openai.response_end(
            usage={"input_tokens": 5, "output_tokens": 900, "output_tokens_details": {"reasoning_tokens": 812}}
        ),
    )


@pytest.fixture
def reasoner(tab: Tab) -> Tab:
    """A tab with the model that has summaries."""
    tab.store_choices(model=REASONER)
    return tab


def numbered_texts(parts: Locator) -> list[tuple[str, str]]:
    """The number and the text of each part, in order."""
    pairs: list[tuple[str, str]] = parts.evaluate_all(
        "all => all.map((one) => [one.dataset.summaryIndex, one.innerText.trim()])"
    )
    return [(number, " ".join(text.split())) for number, text in pairs]


def text_of(tab: Tab, testid: str) -> list[str]:
    return [" ".join(text.split()) for text in tab.element(testid).all_inner_texts()]


# --- while it streams ------------------------------------------------------------------------------------------------


def test_the_overlay_streams_parts(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("The moon ")
    expect(tab.element("overlay-part")).to_have_text(re.compile("The moon"))
    assert tab.element("overlay-part").get_attribute("data-summary-index") == "0"
    model_script.think("pulls.")
    expect(tab.element("overlay-part")).to_have_text(re.compile("The moon pulls."))
    assert tab.element("overlay-part").count() == 1
    assert tab.element("reasoning-overlay").is_visible()


def test_several_parts_stream_independently_and_in_order(reasoner: Tab, model_script: ModelScript) -> None:
    reasoner.open_and_ask()
    model_script.raw(BEGINS + opens(0) + adds(0, "First the moon"))
    parts = reasoner.element("overlay-part")
    expect(parts).to_have_count(1)
    model_script.raw(adds(0, ", then") + closes(0, "First the moon, then") + opens(1) + adds(1, "the sun"))
    expect(parts).to_have_count(2)
    expect(parts.nth(1)).to_have_text(re.compile("the sun"))
    assert numbered_texts(parts) == [("0", "First the moon, then"), ("1", "the sun")]
    model_script.raw(adds(1, ".") + closes(1, "the sun.") + opens(2) + adds(2, "Both"))
    expect(parts).to_have_count(3)
    assert [number for number, _ in numbered_texts(parts)] == ["0", "1", "2"]
    model_script.raw(closes(2, "Both") + ends("First the moon, then", "the sun.", "Both"))
    reasoner.wait_finished()
    reasoner.open_reasoning()
    assert numbered_texts(reasoner.element("reasoning-part")) == [
        ("0", "First the moon, then"),
        ("1", "the sun."),
        ("2", "Both"),
    ]


def test_a_spinner_for_each_part_until_it_is_complete(reasoner: Tab, model_script: ModelScript) -> None:
    reasoner.open_and_ask()
    model_script.raw(BEGINS + opens(0) + adds(0, "One"))
    parts = reasoner.element("overlay-part")
    spinners = reasoner.element("part-spinner")
    expect(parts.nth(0).get_by_test_id("part-spinner")).to_be_visible()
    expect(parts.nth(0)).to_have_attribute("data-complete", "false")
    model_script.raw(closes(0, "One") + opens(1) + adds(1, "Two"))
    expect(parts.nth(0)).to_have_attribute("data-complete", "true")
    expect(parts.nth(1).get_by_test_id("part-spinner")).to_be_visible()
    expect(spinners).to_have_count(1)
    at = {"content_index": 0, "item_id": "msg"}
    over = openai.done(0, "reasoning", id="rs_0", summary=openai.summary("One", "Two"))
    model_script.raw(closes(1, "Two") + openai.sse(over, openai.wire_event("output_text.delta", 1, delta="Noon", **at)))
    expect(reasoner.element("answer-text")).to_have_text("Noon")
    expect(spinners).to_have_count(0)
    assert reasoner.element("show-reasoning").count() == 0


def test_no_toggle_while_it_streams(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    for step, seen in ((model_script.think, "overlay-part"), (model_script.say, "answer-text")):
        step("Hm.")
        tab.element(seen).wait_for()
        for testid in ("show-reasoning", "reasoning-panel", "reasoning-part", "tool-segment"):
            assert tab.element(testid).count() == 0, testid


def test_the_overlay_has_no_controls(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Let me look.").call("weather", {"city": "Ur"}).end("tool_calls").think(
        "So it is. [A link](https://e.org)"
    )
    expect(tab.element("overlay-part")).to_have_count(2)
    overlay = tab.element("overlay")
    controls = "button, a[href], input, select, textarea, summary, details, [role=button], [onclick], [aria-expanded]"
    assert overlay.locator(controls).count() == 0
    for part in tab.element("overlay-part").all():
        part.click()
    assert tab.element("overlay-part").count() == 2
    assert tab.element("show-reasoning").count() == 0


def test_text_streams_beneath_the_overlay(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Half of it. " * 40)
    tab.element("overlay-part").wait_for()
    model_script.say("The **answer** ")
    text = tab.element("answer-text")
    expect(text.locator("strong")).to_have_text("answer")
    model_script.say("comes.")
    expect(text).to_have_text("The answer comes.")
    overlay = tab.element("overlay").bounding_box()
    below = text.bounding_box()
    assert overlay
    assert below
    assert overlay["y"] + overlay["height"] <= below["y"] + 1
    assert tab.element("overlay").is_visible()


def test_a_thought_after_text_is_visible(tab: Tab, model_script: ModelScript) -> None:
    """Models that use tools think, write, and think again."""
    tab.open_and_ask()
    model_script.think("First.").say("Let me look. ").call("weather", {"city": "Ur"}).end("tool_calls")
    expect(tab.element("answer-text")).to_have_text("Let me look.")
    model_script.think("It is clear there, I see.")
    expect(tab.element("overlay-part")).to_have_count(2)
    expect(tab.element("overlay").get_by_text("It is clear there, I see.").first).to_be_in_viewport()
    model_script.think(" So they can go.")
    expect(tab.element("overlay").get_by_text("So they can go.").first).to_be_in_viewport()
    model_script.say("Clear skies.").end()
    tab.wait_finished()
    expect(tab.element("answer-text")).to_contain_text("Let me look.")
    expect(tab.element("answer-text")).to_contain_text("Clear skies.")
    tab.open_reasoning()
    assert text_of(tab, "reasoning-part") == ["First.", "It is clear there, I see. So they can go."]


def test_silent_until_the_first_part_then_thinking(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    tab.element("assistant-event").wait_for()
    assert tab.element("overlay").count() == 0
    assert tab.page.get_by_text("Thinking…").count() == 0
    model_script.think("Hm.")
    head = tab.element("reasoning-overlay")
    expect(head).to_contain_text("Thinking…")
    expect(head).to_contain_text(re.compile(r"Thinking…\s*1 s"))


def test_only_the_answer_under_way_has_an_overlay(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Four.", "Two and two.")
    tab.open_and_ask("What is two and two?")
    tab.wait_finished()
    tab.ask("And three?")
    model_script.think("Three more.")
    tab.element("overlay-part").wait_for()
    answers = tab.element("assistant-event")
    expect(answers).to_have_count(2)
    assert [one.get_by_test_id("overlay").count() for one in answers.all()] == [0, 1]
    assert [one.get_by_test_id("show-reasoning").count() for one in answers.all()] == [1, 0]


# --- tools -------------------------------------------------------------------------------------------------------


def test_a_tool_from_its_call_to_its_result(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.call("weather", '{"city"')
    tool = tab.element("overlay-tool")
    expect(tool).to_have_attribute("data-status", "arguments")
    assert tool.get_attribute("data-call-id") == "call_1"
    assert "weather" in tool.inner_text()
    model_script.frames(_more_arguments(': "Uruk"}')).end("tool_calls")
    expect(tool).to_have_attribute("data-status", "completed")
    assert "Uruk" in tool.inner_text()
    assert "clear" in tool.inner_text()
    model_script.call("weather", {"city": "Nowhere"}, id="call_2").end("tool_calls")
    expect(tool.nth(1)).to_have_attribute("data-status", "failed")
    model_script.answer("It is clear.")
    tab.wait_finished()
    segments = tab.element("tool-segment")
    expect(segments).to_have_count(2)
    assert [one.get_attribute("data-status") for one in segments.all()] == ["completed", "failed"]
    assert tab.element("tools-overlay").count() == 0
    segments.nth(0).get_by_role("button").click()
    expect(segments.nth(0)).to_contain_text('"degrees": 21')
    assert tab.element("show-reasoning").count() == 0, "nothing was reasoned"


def _more_arguments(text: str) -> dict[str, Any]:
    delta = {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}


CODE = "print(2 ** 10)"


def test_built_in_tools_are_shown_like_any_tool(reasoner: Tab, model_script: ModelScript) -> None:
    reasoner.open_and_ask()
    model_script.raw(BEGINS + opens(0) + adds(0, "Search.") + closes(0, "Search."))
    model_script.raw(
        openai.sse(
            openai.done(0, "reasoning", id="rs_0", summary=openai.summary("Search.")),
            openai.added(1, "web_search_call", id="ws_1"),
            openai.wire_event("web_search_call.searching", 1, item_id="ws_1"),
        )
    )
    tools = reasoner.element("overlay-tool")
    expect(tools).to_have_attribute("data-status", "searching")
    action = {"type": "search", "query": "tides", "sources": [{"type": "url", "url": "https://e.org"}]}
    model_script.raw(
        openai.sse(
            openai.done(1, "web_search_call", id="ws_1", action=action),
            openai.added(2, "code_interpreter_call", id="ci_1", code="", container_id="c"),
            openai.wire_event("code_interpreter_call_code.delta", 2, delta=CODE, item_id="ci_1"),
        )
    )
    expect(tools).to_have_count(2)
    expect(tools.nth(0)).to_have_attribute("data-status", "completed")
    expect(tools.nth(0)).to_contain_text(re.compile(r"Searched the web for\s*tides"))
    outputs = [{"type": "logs", "logs": "1024\n"}]
    model_script.raw(
        openai.sse(
            openai.done(2, "code_interpreter_call", id="ci_1", code=CODE, container_id="c", outputs=outputs),
            openai.answer(3, "A thousand and some."),
            openai.response_end(),
        )
    )
    reasoner.wait_finished()
    segments = reasoner.element("tool-segment")
    assert [one.get_attribute("data-call-id") for one in segments.all()] == ["ws_1", "ci_1"]
    segments.nth(1).get_by_role("button").click()
    expect(segments.nth(1)).to_contain_text(CODE)
    expect(segments.nth(1)).to_contain_text("1024")
    segments.nth(0).get_by_role("button").click()
    expect(segments.nth(0)).to_contain_text("https://e.org")


def test_sequence_number_orders_all_steps(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("First.").call("weather", {"city": "Ur"}).end("tool_calls")
    expect(tab.element("overlay-tool")).to_have_attribute("data-status", "completed")
    model_script.think("Second.").call("weather", {"city": "Uruk"}, id="call_2").end("tool_calls")
    model_script.think("Third.").say("Clear.")
    tab.element("answer-text").wait_for()
    steps = tab.page.locator("[data-testid=overlay-part], [data-testid=overlay-tool]")
    order = "all => all.map((one) => one.dataset.callId ?? one.innerText.trim())"
    wanted = ["First.", "call_1", "Second.", "call_2", "Third."]
    assert steps.evaluate_all(order) == wanted
    model_script.end()
    tab.wait_finished()
    tab.open_reasoning()
    stay = tab.page.locator("[data-testid=reasoning-part], [data-testid=tool-segment]")
    assert stay.evaluate_all(order) == wanted
    numbers = stay.evaluate_all("all => all.map((one) => Number(one.dataset.sequenceNumber))")
    assert numbers == sorted(set(numbers))
    text = tab.element("answer-text").bounding_box()
    last = stay.last.bounding_box()
    assert text
    assert last
    assert last["y"] + last["height"] <= text["y"]


# --- afterwards ------------------------------------------------------------------------------------------------------


def test_the_overlay_is_replaced_by_a_closed_toggle(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.", "The moon.")
    tab.open_and_ask()
    tab.wait_finished()
    for testid in ("overlay", "reasoning-overlay", "tools-overlay", "overlay-part", "part-spinner"):
        assert tab.element(testid).count() == 0, testid
    toggle = tab.element("show-reasoning")
    expect(toggle).to_have_text("Show Reasoning")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    assert tab.element("reasoning-part").count() == 0
    assert tab.page.get_by_text("The moon.").count() == 0


def test_opened_it_shows_all_parts(reasoner: Tab, model_script: ModelScript) -> None:
    texts = [f"**Part {n}**\n\nThought {n}." for n in range(4)]
    model_script.raw(openai.sse(openai.created(), openai.thought(0, *texts, id="rs_0")) + ends(*texts))
    reasoner.open_and_ask()
    reasoner.wait_finished()
    reasoner.open_reasoning()
    assert numbered_texts(reasoner.element("reasoning-part")) == [(str(n), f"Part {n} Thought {n}.") for n in range(4)]
    toggle = reasoner.element("show-reasoning")
    expect(toggle).to_have_text("Hide Reasoning")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    toggle.click()
    expect(toggle).to_have_attribute("aria-expanded", "false")
    assert reasoner.element("reasoning-part").count() == 0


def test_each_answer_is_opened_by_itself(tab: Tab, model_script: ModelScript) -> None:
    for n in range(2):
        model_script.answer(f"Answer {n}.", f"Thought {n}.")
    tab.open_and_ask("One?")
    tab.wait_finished()
    tab.open_reasoning()
    tab.ask("Two?")
    expect(tab.element("show-reasoning")).to_have_count(2)
    states = [one.get_attribute("aria-expanded") for one in tab.element("show-reasoning").all()]
    assert states == ["true", "false"], "the first stays open through the second, which begins closed"
    assert text_of(tab, "reasoning-part") == ["Thought 0."]
    tab.open_reasoning()
    tab.element("show-reasoning").first.click()
    assert text_of(tab, "reasoning-part") == ["Thought 1."]
    tab.page.reload()
    expect(tab.element("show-reasoning")).to_have_count(2)
    assert tab.element("reasoning-part").count() == 0, "the state is the page's own"


def test_the_toggle_is_closest_to_the_content(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.", "The moon.")
    tab.open_and_ask()
    answer = tab.wait_finished()
    toggle = tab.element("show-reasoning").bounding_box()
    text = tab.element("answer-text").bounding_box()
    assert toggle
    assert text
    assert 0 <= text["y"] - toggle["y"] - toggle["height"] <= 24
    words = answer.inner_text()
    assert not re.search(r"\d+\s+(steps?|parts?)\b", words), words


def test_the_metadata_of_a_thought(reasoner: Tab, model_script: ModelScript) -> None:
    reasoner.store_choices(model=REASONER, effort="high")
    model_script.raw(openai.sse(openai.created(), openai.thought(0, "Hm.", id="rs_0")) + ends("Hm."))
    reasoner.open_and_ask()
    reasoner.wait_finished()
    expect(reasoner.element("reasoning-meta")).to_contain_text("812 thinking tokens")
    expect(reasoner.element("reasoning-meta")).to_contain_text("high effort")
    reasoner.open_reasoning()
    expect(reasoner.element("timeline")).to_be_visible()
    assert model_script.bodies[0]["reasoning"]["effort"] == "high"


def test_a_fresh_page_shows_what_was_persisted(tab: Tab, tabs: Tabs, model_script: ModelScript) -> None:
    model_script.think("The moon.").call("weather", {"city": "Ur"}).end("tool_calls").think("Then.").say("Noon.").end()
    tab.open_and_ask()
    tab.wait_finished()
    before = tab.wait_finished().inner_text()
    path = f"/c/{tab.conversation}"
    fresh = tabs()
    fresh.open(path)
    answer = fresh.wait_finished()
    assert answer.inner_text() == before
    for testid in ("overlay", "reasoning-overlay", "tools-overlay"):
        assert fresh.element(testid).count() == 0
    expect(fresh.element("show-reasoning")).to_have_attribute("aria-expanded", "false")
    fresh.open_reasoning()
    assert text_of(fresh, "reasoning-part") == ["The moon.", "Then."]


def test_persisted_equals_streamed(reasoner: Tab, model_script: ModelScript) -> None:
    thoughts = [
        "**First**\n\nThe *moon* and `code`.\n\n- one\n- two",
        "Then the sun.\n\n```\nx = 1\n```\n",
        "ﷺ 日本語 🌊",
    ]
    reasoner.open_and_ask()
    model_script.raw(openai.sse(openai.created(), openai.thought(0, *thoughts, id="rs_0")))
    model_script.raw(openai.sse(openai.added(1, "message", id="m", role="assistant", content=[])))
    model_script.raw(
        openai.sse(
            openai.wire_event("output_text.delta", 1, content_index=0, item_id="m", delta="## It is\n\n1. a\n2. b")
        )
    )
    expect(reasoner.element("overlay-part")).to_have_count(3)
    expect(reasoner.element("answer-text").locator("li")).to_have_count(2)
    inside = "all => all.map((one) => one.querySelector('.long-text').innerHTML)"
    streamed = reasoner.element("overlay-part").evaluate_all(inside)
    text = reasoner.element("answer-text").evaluate("one => one.innerText")
    done = openai.message(openai.output_text("## It is\n\n1. a\n2. b"), id="m")
    model_script.raw(openai.sse(openai.wire_event("output_item.done", 1, item=done), openai.response_end()))
    reasoner.wait_finished()
    reasoner.open_reasoning()
    assert reasoner.element("reasoning-part").evaluate_all(inside) == streamed
    assert reasoner.element("answer-text").evaluate("one => one.innerText") == text


def test_no_reasoning_no_toggle(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.")
    tab.open_and_ask()
    tab.wait_finished()
    expect(tab.element("answer-text")).to_have_text("Noon.")
    assert tab.element("show-reasoning").count() == 0
    tab.page.reload()
    tab.wait_finished()
    assert tab.element("show-reasoning").count() == 0


def test_sealed_reasoning_is_shown_as_activity(tab: Tab, model_script: ModelScript) -> None:
    tab.store_choices(model=LOCKED)
    tab.open_and_ask()
    expect(tab.element("view-badge").first).to_have_text("Time only")
    model_script.think("Nobody may read this.")
    expect(tab.element("reasoning-overlay")).to_contain_text("Thinking…")
    assert tab.element("overlay-part").count() == 0
    model_script.say("Noon.").end()
    tab.wait_finished()
    panel = tab.open_reasoning()
    expect(panel).to_contain_text("You cannot see its thoughts")
    assert "Nobody may read" not in tab.page.content()


def test_hidden_reasoning_is_not_shown(tab: Tab, model_script: ModelScript) -> None:
    tab.store_choices(view="hidden")
    tab.open_and_ask()
    model_script.think("Nobody may read this.").say("Noon.")
    tab.element("answer-text").wait_for()
    assert tab.element("overlay").count() == 0
    model_script.end()
    tab.wait_finished()
    assert tab.element("show-reasoning").count() == 0
    assert "Nobody may read" not in tab.page.content()


# --- the store ---------------------------------------------------------------------------------------------------


def test_nothing_is_written_in_mid_stream(tab: Tab, model_script: ModelScript, page_server: PageServer) -> None:
    tab.open_and_ask()
    model_script.think("Hm.")
    tab.element("overlay-part").wait_for()
    chat = tab.conversation
    with sqlite3.connect(page_server.store) as store:
        # It changes with every transaction that others commit.

        def version() -> int:
            number: int = store.execute("PRAGMA data_version").fetchone()[0]
            return number

        before = version()
        for n in range(50):
            model_script.think(f"More {n}. ")
        model_script.call("weather", {"city": "Ur"}).end("tool_calls").think("So.").say("It is clear.")
        expect(tab.element("answer-text")).to_have_text("It is clear.")
        assert version() == before
        [_, answer] = tab.api(f"/api/conversations/{chat}")["events"]
        assert (answer["status"], answer["segments"]) == ("in_progress", [])
        assert version() == before
        assert tab.element("assistant-event").get_attribute("data-status") == "in_progress"
        model_script.end()
        tab.wait_finished()
        assert version() != before
    store.close()
    [_, answer] = tab.api(f"/api/conversations/{chat}")["events"]
    kinds = [segment["type"] for segment in answer["segments"]]
    assert kinds == ["reasoning", "tool_call", "reasoning", "text"]


# --- what goes wrong -----------------------------------------------------------------------------------------------


def test_a_stopped_answer_keeps_its_content_and_has_a_notice(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Half a thought").say("Half an answer")
    tab.element("answer-text").wait_for()
    tab.element("stop").click()
    tab.wait_finished("cancelled")
    assert tab.element("overlay").count() == 0
    expect(tab.element("error-state")).to_contain_text("stopped")
    expect(tab.element("answer-text")).to_have_text("Half an answer")
    tab.open_reasoning()
    assert text_of(tab, "reasoning-part")[0].startswith("Half a thought")
    assert model_script.calls[0].connection.closed.wait(SECONDS)


def test_stopped_before_it_thought_there_is_no_toggle(
    tab: Tab, model_script: ModelScript, page_server: PageServer
) -> None:
    tab.open_and_ask()
    tab.page.wait_for_url("**/c/*")
    tab.element("stop").click()
    tab.wait_finished("cancelled")
    assert tab.element("error-state").is_visible()
    assert tab.element("show-reasoning").count() == 0


def test_an_error_is_shown_beneath_the_content_so_far(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Half a thought").fail("The model fell asleep.")
    tab.wait_finished("failed")
    assert tab.element("overlay").count() == 0
    assert tab.element("error-state").is_visible()
    assert tab.element("error-state").get_attribute("role") == "alert"
    expect(tab.element("retry")).to_be_visible()
    tab.open_reasoning()
    assert text_of(tab, "reasoning-part")[0].startswith("Half a thought")
    tab.page.reload()
    tab.wait_finished("failed")
    assert tab.element("error-state").is_visible()


def test_an_error_without_reasoning_has_no_toggle(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.break_off()
    tab.wait_finished("failed")
    assert tab.element("error-state").is_visible()
    assert tab.element("show-reasoning").count() == 0


def test_a_reload_in_mid_stream_resumes_the_answer(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.think("Before. ").call("weather", {"city": "Ur"}).end("tool_calls").think("Between. ")
    expect(tab.element("overlay-part")).to_have_count(2)
    tab.conversation  # noqa: B018 (waits for the address)
    tab.page.reload()
    expect(tab.element("overlay-part")).to_have_count(2)
    assert tab.element("show-reasoning").count() == 0
    model_script.think("After.").say("Noon.")
    expect(tab.element("answer-text")).to_have_text("Noon.")
    assert numbered_texts(tab.element("overlay-part")) == [("0", "Before."), ("0", "Between. After.")]
    assert tab.element("overlay-tool").count() == 1
    model_script.end()
    tab.wait_finished()
    tab.open_reasoning()
    assert text_of(tab, "reasoning-part") == ["Before.", "Between. After."]
    assert tab.element("user-event").count() == 1
    assert tab.element("assistant-event").count() == 1
    assert len(model_script.calls) == 2, "no question was sent again"


def test_a_dropped_connection_loses_and_repeats_nothing(tabs: Tabs, model_script: ModelScript, proxy: TCPProxy) -> None:
    tab = tabs(proxy)
    tab.allow("Failed to load resource")
    tab.open_and_ask()
    words = [f"w{n} " for n in range(60)]
    for word in words[:20]:
        model_script.think(word)
    expect(tab.element("overlay-part")).to_contain_text("w19")
    proxy.cut()
    for word in words[20:40]:
        model_script.think(word)
    expect(tab.element("assistant-event")).to_contain_text("Reconnecting")
    proxy.mend()
    expect(tab.element("overlay-part")).to_contain_text("w39")
    for word in words[40:]:
        model_script.think(word)
    model_script.say("Noon.")
    expect(tab.element("answer-text")).to_have_text("Noon.")
    assert numbered_texts(tab.element("overlay-part")) == [("0", " ".join(word.strip() for word in words))]
    proxy.cut()
    model_script.say(" It is.").end()
    proxy.mend()
    tab.wait_finished()
    expect(tab.element("answer-text")).to_have_text("Noon. It is.")
    assert len(model_script.calls) == 1
