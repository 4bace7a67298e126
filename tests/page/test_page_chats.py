"""Chats: list, search, rename, delete, versions of questions, and the pickers."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.page.page_kit import CLAUDE, LOCKED, OTHER, REASONER, SECONDS, THINKER, House, ModelScript, Tab, Tabs


def titles(tab: Tab) -> list[str]:
    return [one.inner_text().split("\n")[0] for one in tab.there("conversation-item").locator("a").all()]


def menu(tab: Tab, title: str, entry: str) -> None:
    tab.there("conversation-item").filter(has_text=title).get_by_role("button").click()
    tab.page.get_by_role("menuitem", name=entry).click()


def ask_new(tab: Tab, model_script: ModelScript, question: str, answer: str = "Noon.") -> str:
    """Ask in a new chat and return its id."""
    model_script.answer(answer, "Hm.")
    tab.there("new-chat").click()
    tab.ask(question)
    expect(tab.there("answer-text")).to_have_text(answer)
    tab.finished()
    return tab.conversation


# --- the list ----------------------------------------------------------------------------------------------------


def test_chats_are_listed_opened_renamed_and_deleted(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    first = ask_new(tab, model_script, "About the moon", "It pulls.")
    second = ask_new(tab, model_script, "About the sun", "It shines.")
    expect(tab.there("conversation-item")).to_have_count(2)
    assert titles(tab) == ["About the sun", "About the moon"], "the newest first"

    tab.there("conversation-item").filter(has_text="moon").get_by_role("link").click()
    expect(tab.there("answer-text")).to_have_text("It pulls.")
    assert tab.conversation == first
    assert tab.page.title().startswith("About the moon")
    tab.page.go_back()
    expect(tab.there("answer-text")).to_have_text("It shines.")
    assert tab.conversation == second

    menu(tab, "About the sun", "Rename")
    field = tab.page.get_by_label("Title")
    expect(field).to_be_focused()
    field.fill("Helios")
    with tab.page.expect_response(lambda answer: answer.request.method == "PATCH"):
        field.press("Enter")
    expect(tab.there("conversation-item").first).to_contain_text("Helios")
    assert tab.api(f"/api/conversations/{second}")["conversation"]["title"] == "Helios"

    menu(tab, "Helios", "Delete")
    tab.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(tab.there("conversation-item")).to_have_count(2)
    menu(tab, "Helios", "Delete")
    tab.there("confirm-delete").click()
    expect(tab.there("conversation-item")).to_have_count(1)
    assert tab.gateway.request("GET", f"/api/conversations/{second}").status == 404
    tab.page.wait_for_url(tab.url + "/")
    expect(tab.there("composer")).to_be_focused()


def test_search_finds_questions_and_answers_but_no_thoughts(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    model_script.answer("Das Watt fällt trocken.", "A secret thought.")
    tab.ask("Wann ist Ebbe?")
    tab.finished()
    ask_new(tab, model_script, "东京的天气怎么样？", "晴天")
    for query, wanted in (("watt", "Wann ist Ebbe?"), ("东京", "东京的天气怎么样？"), ("EBBE", "Wann ist Ebbe?")):
        tab.there("search").fill(query)
        expect(tab.there("conversation-item")).to_have_count(1)
        expect(tab.there("conversation-item")).to_contain_text(wanted)
    tab.there("search").fill("secret")
    expect(tab.there("conversation-item")).to_have_count(0)
    expect(tab.page.get_by_text("No results.")).to_be_visible()
    tab.there("search").fill("")
    expect(tab.there("conversation-item")).to_have_count(2)


def test_without_a_model_the_page_explains_what_to_do(tab: Tab) -> None:
    tab.page.route("**/api/models", lambda route: route.fulfill(json={"data": [], "views": ["raw"]}))
    tab.page.goto(tab.url + "/")
    expect(tab.there("empty")).to_contain_text("No model is available yet.")
    expect(tab.there("empty").get_by_role("button")).to_have_count(0)
    tab.there("composer").fill("Why?")
    expect(tab.there("send")).to_be_disabled()


def test_a_missing_chat_shows_an_error(tab: Tab) -> None:
    tab.allow("404")
    tab.open("/c/chat_none")
    expect(tab.there("error-state")).to_contain_text("There is no such chat.")
    # A retry would not help.
    expect(tab.there("retry")).to_have_text("New chat")
    tab.there("retry").click()
    expect(tab.there("empty")).to_be_visible()


def test_leaving_an_answer_in_progress_and_returning(tab: Tab, model_script: ModelScript) -> None:
    tab.asks("Slowly?")
    model_script.think("Begin. ")
    tab.there("overlay-part").wait_for()
    tab.conversation  # noqa: B018 (waits for the address)
    tab.there("new-chat").click()
    expect(tab.there("empty")).to_be_visible()
    model_script.think("Meanwhile. ")
    tab.there("conversation-item").filter(has_text="Slowly").get_by_role("link").click()
    expect(tab.there("overlay-part")).to_have_text("Begin. Meanwhile.")
    model_script.say("Done.").end()
    tab.finished()
    assert tab.there("assistant-event").count() == 1


def test_two_tabs_watch_the_same_answer(tab: Tab, tabs: Tabs, model_script: ModelScript) -> None:
    tab.asks("Slowly?")
    model_script.think("Begin. ")
    tab.there("overlay-part").wait_for()
    other = tabs()
    other.allow("409")
    other.open(f"/c/{tab.conversation}")
    expect(other.there("overlay-part")).to_have_text("Begin.")
    model_script.think("Go on.")
    for each in (tab, other):
        expect(each.there("overlay-part")).to_have_text("Begin. Go on.")
    model_script.say("Done.").end()
    for each in (tab, other):
        each.finished()
        expect(each.there("answer-text")).to_have_text("Done.")
        assert each.there("assistant-event").count() == 1
    tab.ask("Again?")
    model_script.think("Hm.")
    tab.there("overlay-part").wait_for()
    other.ask("I too?")
    expect(other.there("error-state")).to_be_visible()
    expect(other.there("user-event").last).to_contain_text("I too?")


def test_changes_of_another_tab_are_loaded_before_the_next_question(
    tab: Tab, tabs: Tabs, model_script: ModelScript
) -> None:
    """A question is not added to a branch that the user does not see."""
    model_script.answer("One.")
    tab.asks("First?")
    tab.finished()
    other = tabs()
    other.allow("409")
    other.open(f"/c/{tab.conversation}")
    expect(other.there("answer-text")).to_have_text("One.")
    tab.there("edit").click()
    tab.there("edit-field").fill("First!")
    model_script.answer("Another.")
    tab.there("edit-field").press("Enter")
    expect(tab.there("answer-text")).to_have_text("Another.")
    tab.finished()
    other.ask("And on?")
    expect(other.there("error-state")).to_be_visible()
    expect(other.there("answer-text").first).to_have_text("Another.")
    expect(other.there("user-event").last).to_contain_text("And on?")
    model_script.answer("On.")
    other.there("retry").click()
    expect(other.there("answer-text").last).to_have_text("On.")
    other.finished()
    assert [one["content"] for one in model_script.bodies[-1]["messages"]] == ["First!", "Another.", "And on?"]


def test_a_page_that_fails_shows_an_error(tab: Tab) -> None:
    tab.allow("error|Error")
    tab.page.route("**/api/models", lambda route: route.fulfill(status=200, json={}))
    tab.page.goto(tab.url)
    expect(tab.there("error-state")).to_contain_text("Nothing is lost")
    tab.page.unroute("**/api/models")
    tab.there("retry").click()
    expect(tab.there("composer")).to_be_visible()


# --- versions ------------------------------------------------------------------------------------------------------


def test_an_edited_question_has_versions(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("It is noon.", "First thought.")
    tab.asks("When?")
    tab.finished()
    tab.there("edit").click()
    field = tab.there("edit-field")
    expect(field).to_be_focused()
    field.fill("Where?")
    model_script.answer("Over there.", "Second thought.")
    field.press("Enter")
    expect(tab.there("answer-text")).to_have_text("Over there.")
    tab.finished()
    expect(tab.there("user-event")).to_contain_text("Where?")
    assert [one["content"] for one in model_script.bodies[1]["messages"]] == ["Where?"], "nothing of the other version"
    expect(tab.there("user-event")).to_contain_text("2/2")
    tab.there("version-prev").click()
    expect(tab.there("answer-text")).to_have_text("It is noon.")
    expect(tab.there("user-event")).to_contain_text("1/2")
    expect(tab.there("version-prev")).to_be_disabled()
    tab.opened()
    expect(tab.there("reasoning-part")).to_have_text("First thought.")
    model_script.answer("Still noon.")
    tab.ask("And now?")
    expect(tab.there("answer-text")).to_have_count(2)
    texts = [one["content"] for one in model_script.bodies[2]["messages"]]
    assert texts == ["When?", "It is noon.", "And now?"], "it goes on from the version that is shown"
    tab.page.reload()
    expect(tab.there("answer-text")).to_have_count(2)
    tab.there("version-next").click()
    expect(tab.there("answer-text")).to_have_text(["Over there."])


def test_asking_again_adds_a_version(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("It is noon.")
    tab.asks("When?")
    tab.finished()
    model_script.answer("Noon it is.")
    tab.there("ask-again").click()
    expect(tab.there("answer-text")).to_have_text("Noon it is.")
    tab.finished()
    assert [one["content"] for one in model_script.bodies[1]["messages"]] == ["When?"]
    expect(tab.there("user-event")).to_contain_text("2/2")


def test_a_retry_after_a_failure_replaces_the_answer(tab: Tab, model_script: ModelScript) -> None:
    tab.asks("When?")
    model_script.think("Half").fail("asleep")
    tab.finished("failed")
    model_script.answer("Noon.", "Whole.")
    tab.there("retry").click()
    tab.finished()
    expect(tab.there("answer-text")).to_have_text("Noon.")
    assert tab.there("error-state").count() == 0
    assert tab.there("user-event").count() == 1
    assert [one["content"] for one in model_script.bodies[1]["messages"]] == ["When?"]
    expect(tab.there("user-event")).to_contain_text("2/2")


def test_a_cancelled_edit_changes_nothing(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.")
    tab.asks("When?")
    tab.finished()
    tab.there("edit").click()
    tab.there("edit-field").fill("Else")
    tab.there("edit-field").press("Escape")
    expect(tab.there("user-event")).to_contain_text("When?")
    expect(tab.there("edit")).to_be_focused()
    assert len(model_script.calls) == 1


# --- stopping ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop_closes_the_upstream(tab: Tab, model_script: ModelScript, how: str) -> None:
    tab.asks()
    model_script.think("On and on")
    tab.there("overlay-part").wait_for()
    if how == "button":
        tab.there("stop").click()
    else:
        tab.page.keyboard.press("Escape")
    assert model_script.calls[0].connection.closed.wait(SECONDS), "its model would go on and on"
    tab.finished("cancelled")
    expect(tab.there("composer")).to_be_enabled()
    expect(tab.there("send")).to_be_visible()


# --- what is picked ------------------------------------------------------------------------------------------------


def pick(tab: Tab, picker: str, choice: str) -> None:
    tab.there(picker).first.click()
    tab.page.get_by_role("menuitemradio", name=choice).first.click()


def test_the_chosen_model_and_effort_are_used(tab: Tab, model_script: ModelScript, house: House) -> None:
    tab.open()
    expect(tab.there("model-picker")).to_contain_text(THINKER)
    tab.there("model-picker").click()
    offered = tab.page.get_by_role("menuitemradio").all_inner_texts()
    assert {THINKER, OTHER, REASONER, CLAUDE, LOCKED} <= {text.split("\n")[0] for text in offered}
    tab.page.keyboard.press("Escape")
    pick(tab, "model-picker", REASONER)
    pick(tab, "effort-picker", "High")
    tab.ask()
    model_script.frames({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}})
    model_script.frames({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}})
    expect(tab.there("composer")).to_be_enabled()
    tab.page.locator("[data-testid=assistant-event]:not([data-status=in_progress])").wait_for()
    assert model_script.bodies[0]["model"] == house.stage.names[REASONER]
    assert model_script.bodies[0]["reasoning"]["effort"] == "high"
    tab.page.reload()
    expect(tab.there("model-picker")).to_contain_text(REASONER)
    expect(tab.there("effort-picker")).to_contain_text("High")


def test_the_effective_view_is_shown_and_can_be_restricted(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    badge = tab.there("view-badge")
    expect(badge).to_have_text("Raw thoughts")
    pick(tab, "view-badge", "Sealed")
    expect(badge).to_have_text("Sealed")
    model_script.answer("Noon.", "Not for everybody.")
    tab.ask()
    tab.finished()
    assert "Not for everybody" not in tab.page.content()
    expect(tab.finished().locator(".view-badge")).to_have_text("Sealed")


def test_a_view_that_the_model_forbids_cannot_be_chosen(tab: Tab) -> None:
    tab.chooses(model=LOCKED, view="raw")
    tab.open()
    expect(tab.there("view-badge")).to_have_text("Sealed")


# --- the rest ------------------------------------------------------------------------------------------------------


def test_a_rejected_question_is_not_lost(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    tab.page.route("**/api/chat", lambda route: route.fulfill(status=503, json={"error": {"message": "Not now."}}))
    tab.allow("503")
    tab.ask("A question that must not be lost")
    expect(tab.there("error-state")).to_contain_text("Not now.")
    expect(tab.there("user-event")).to_contain_text("A question that must not be lost")
    tab.page.unroute("**/api/chat")
    model_script.answer("Noon.")
    tab.there("retry").click()
    tab.finished()
    assert tab.there("user-event").count() == 1


def test_the_answer_is_copied_as_it_was_written(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(permissions=["clipboard-read", "clipboard-write"])
    model_script.answer("It is **noon**.\n\n```py\nx = 1\n```")
    tab.asks()
    tab.finished().get_by_test_id("copy").get_by_role("button").click()
    read = "() => navigator.clipboard.readText()"
    tab.page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    assert tab.page.evaluate(read) == "It is **noon**.\n\n```py\nx = 1\n```"


def test_markdown_is_rendered_while_it_streams(tab: Tab, model_script: ModelScript) -> None:
    tab.asks()
    model_script.say("## Head\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\ndef f(): ret")
    text = tab.there("answer-text")
    expect(text.locator("td")).to_have_text(["1", "2"])
    expect(text.locator("pre")).to_contain_text("def f(): ret")
    model_script.say("urn 1\n```\n\n$$\\frac{1}{2}$$\n\nThe inline $x^2$.").end()
    tab.finished()
    expect(text.locator("math").first).to_be_attached()
    expect(text.locator("pre")).to_contain_text("def f(): return 1")
    expect(text.locator("pre span[class]").first).to_be_attached()


def test_history_goes_back_with_its_reasoning(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.", "The moon.")
    tab.asks("When?")
    tab.finished()
    model_script.answer("Yes.")
    tab.ask("Sure?")
    expect(tab.there("answer-text")).to_have_count(2)
    [question, answer, again] = model_script.bodies[1]["messages"]
    assert (question["content"], again["content"]) == ("When?", "Sure?")
    assert answer["content"] == "Noon."
    assert "The moon." in (answer.get("reasoning_content"), answer.get("reasoning"))
