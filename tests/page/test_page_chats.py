"""Chats: list, search, rename, delete, versions of questions, and the pickers."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from tests.page.page_kit import (
    CLAUDE,
    LOCKED,
    OTHER,
    REASONER,
    SECONDS,
    THINKER,
    ModelScript,
    PageServer,
    Tab,
    Tabs,
    shot,
)


def titles(tab: Tab) -> list[str]:
    return [one.inner_text().split("\n")[0] for one in tab.element("conversation-item").locator("a").all()]


def menu(tab: Tab, title: str, entry: str) -> None:
    tab.element("conversation-item").filter(has_text=title).get_by_role("button").click()
    tab.page.get_by_role("menuitem", name=entry).click()


def ask_new(tab: Tab, model_script: ModelScript, question: str, answer: str = "Noon.") -> str:
    """Ask in a new chat and return its id."""
    model_script.answer(answer, "Hm.")
    tab.element("new-chat").click()
    tab.ask(question)
    expect(tab.element("answer-text")).to_have_text(answer)
    tab.wait_finished()
    return tab.conversation


# --- the list ----------------------------------------------------------------------------------------------------


def test_chats_are_listed_opened_renamed_and_deleted(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    first = ask_new(tab, model_script, "About the moon", "It pulls.")
    second = ask_new(tab, model_script, "About the sun", "It shines.")
    expect(tab.element("conversation-item")).to_have_count(2)
    assert titles(tab) == ["About the sun", "About the moon"], "the newest first"

    tab.element("conversation-item").filter(has_text="moon").get_by_role("link").click()
    expect(tab.element("answer-text")).to_have_text("It pulls.")
    assert tab.conversation == first
    assert tab.page.title().startswith("About the moon")
    tab.page.go_back()
    expect(tab.element("answer-text")).to_have_text("It shines.")
    assert tab.conversation == second

    menu(tab, "About the sun", "Rename")
    field = tab.page.get_by_label("Title")
    expect(field).to_be_focused()
    field.fill("Helios")
    with tab.page.expect_response(lambda answer: answer.request.method == "PATCH"):
        field.press("Enter")
    expect(tab.element("conversation-item").first).to_contain_text("Helios")
    assert tab.api(f"/api/conversations/{second}")["conversation"]["title"] == "Helios"

    menu(tab, "Helios", "Delete")
    tab.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(tab.element("conversation-item")).to_have_count(2)
    menu(tab, "Helios", "Delete")
    tab.element("confirm-delete").click()
    expect(tab.element("conversation-item")).to_have_count(1)
    assert tab.gateway.request("GET", f"/api/conversations/{second}").status == 404
    tab.page.wait_for_url(tab.url + "/")
    expect(tab.element("composer")).to_be_focused()


def test_the_list_marks_a_chat_whose_answer_is_in_progress(tabs: Tabs, model_script: ModelScript) -> None:
    """Also in another window, and after leaving the chat."""
    one, other = tabs(), tabs()
    other.open()
    model_script.think("Hm.").say("Soon")
    one.open_and_ask("About the moon")
    expect(one.element("answer-text")).to_have_text("Soon")
    for tab in (one, other):
        mark = tab.element("conversation-item").filter(has_text="About the moon").get_by_test_id("answering")
        expect(mark).to_be_visible()
        expect(mark).to_have_accessible_name("An answer is being written")
    one.element("new-chat").click()
    expect(one.element("answering")).to_be_visible()
    other.page.reload()
    expect(other.element("answering")).to_be_visible()
    model_script.end()
    for tab in (one, other):
        expect(tab.element("conversation-item")).to_have_count(1)
        expect(tab.element("answering")).to_have_count(0)


def test_a_mark_ends_with_the_answer_that_is_read(tab: Tab, model_script: ModelScript) -> None:
    model_script.say("Soon")
    tab.open_and_ask()
    expect(tab.element("answering")).to_be_visible()
    model_script.end()
    tab.wait_finished()
    expect(tab.element("answering")).to_have_count(0)


def test_search_finds_questions_and_answers_but_no_thoughts(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    model_script.answer("Das Watt fällt trocken.", "A secret thought.")
    tab.ask("Wann ist Ebbe?")
    tab.wait_finished()
    ask_new(tab, model_script, "东京的天气怎么样？", "晴天")
    for query, wanted in (("watt", "Wann ist Ebbe?"), ("东京", "东京的天气怎么样？"), ("EBBE", "Wann ist Ebbe?")):
        tab.element("search").fill(query)
        expect(tab.element("conversation-item")).to_have_count(1)
        expect(tab.element("conversation-item")).to_contain_text(wanted)
    tab.element("search").fill("secret")
    expect(tab.element("conversation-item")).to_have_count(0)
    expect(tab.page.get_by_text("Thoughts are not searched here.")).to_be_visible()
    tab.element("search").fill("")
    expect(tab.element("conversation-item")).to_have_count(2)


def test_without_a_model_the_page_explains_what_to_do(tab: Tab) -> None:
    tab.page.route("**/api/models", lambda route: route.fulfill(json={"data": [], "views": ["raw"]}))
    tab.page.goto(tab.url + "/")
    expect(tab.element("empty")).to_contain_text("No model is available yet.")
    expect(tab.element("empty").get_by_role("button")).to_have_count(0)
    tab.element("composer").fill("Why?")
    expect(tab.element("send")).to_be_disabled()


def test_the_page_says_that_the_model_is_loading_until_it_has_loaded(tab: Tab, model_script: ModelScript) -> None:
    loading = {"embedded": True, "loading": True}

    def models(route: Route) -> None:
        answer = route.fetch().json()
        answer["data"] = [one | (loading if one["id"] == THINKER else {}) for one in answer["data"]]
        route.fulfill(json=answer)

    tab.page.route("**/api/models", models)
    tab.open()
    expect(tab.element("empty")).to_contain_text("It is loading now.")
    shot(tab, "loading")
    tab.ask()
    expect(tab.element("assistant-event")).to_contain_text("The model is loading…")
    expect(tab.element("waiting")).to_have_count(0)
    shot(tab, "loading-answer")
    loading["loading"] = False
    expect(tab.element("loading")).to_have_count(0)
    tab.element("waiting").wait_for()
    model_script.answer("Noon.")
    tab.wait_finished()
    tab.page.unroute("**/api/models")


def test_a_missing_chat_shows_an_error(tab: Tab) -> None:
    tab.allow("404")
    tab.open("/c/chat_none")
    expect(tab.element("error-state")).to_contain_text("There is no such chat.")
    # A retry would not help.
    expect(tab.element("retry")).to_have_text("New chat")
    tab.element("retry").click()
    expect(tab.element("empty")).to_be_visible()


def test_leaving_an_answer_in_progress_and_returning(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask("Slowly?")
    model_script.think("Begin. ")
    tab.element("overlay-part").wait_for()
    tab.conversation  # noqa: B018 (waits for the address)
    tab.element("new-chat").click()
    expect(tab.element("empty")).to_be_visible()
    model_script.think("Meanwhile. ")
    tab.element("conversation-item").filter(has_text="Slowly").get_by_role("link").click()
    expect(tab.element("overlay-part")).to_have_text("Begin. Meanwhile.")
    model_script.say("Done.").end()
    tab.wait_finished()
    assert tab.element("assistant-event").count() == 1


def test_two_tabs_watch_the_same_answer(tab: Tab, tabs: Tabs, model_script: ModelScript) -> None:
    tab.open_and_ask("Slowly?")
    model_script.think("Begin. ")
    tab.element("overlay-part").wait_for()
    other = tabs()
    other.open(f"/c/{tab.conversation}")
    expect(other.element("overlay-part")).to_have_text("Begin.")
    model_script.think("Go on.")
    for each in (tab, other):
        expect(each.element("overlay-part")).to_have_text("Begin. Go on.")
    model_script.say("Done.").end()
    for each in (tab, other):
        each.wait_finished()
        expect(each.element("answer-text")).to_have_text("Done.")
        assert each.element("assistant-event").count() == 1


def test_a_page_that_fails_shows_an_error(tab: Tab) -> None:
    tab.allow("error|Error")
    tab.page.route("**/api/models", lambda route: route.fulfill(status=200, json={}))
    tab.page.goto(tab.url)
    expect(tab.element("error-state")).to_contain_text("Nothing is lost")
    tab.page.unroute("**/api/models")
    tab.element("retry").click()
    expect(tab.element("composer")).to_be_visible()


# --- versions ------------------------------------------------------------------------------------------------------


def test_an_edited_question_has_versions(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("It is noon.", "First thought.")
    tab.open_and_ask("When?")
    tab.wait_finished()
    tab.element("edit").click()
    field = tab.element("edit-field")
    expect(field).to_be_focused()
    field.fill("Where?")
    model_script.answer("Over there.", "Second thought.")
    field.press("Enter")
    expect(tab.element("answer-text")).to_have_text("Over there.")
    tab.wait_finished()
    expect(tab.element("user-event")).to_contain_text("Where?")
    assert [one["content"] for one in model_script.bodies[1]["messages"]] == ["Where?"], "nothing of the other version"
    expect(tab.element("user-event")).to_contain_text("2/2")
    tab.element("version-prev").click()
    expect(tab.element("answer-text")).to_have_text("It is noon.")
    expect(tab.element("user-event")).to_contain_text("1/2")
    expect(tab.element("version-prev")).to_be_disabled()
    tab.open_reasoning()
    expect(tab.element("reasoning-part")).to_have_text("First thought.")
    model_script.answer("Still noon.")
    tab.ask("And now?")
    expect(tab.element("answer-text")).to_have_count(2)
    texts = [one["content"] for one in model_script.bodies[2]["messages"]]
    assert texts == ["When?", "It is noon.", "And now?"], "it goes on from the version that is shown"
    tab.page.reload()
    expect(tab.element("answer-text")).to_have_count(2)
    tab.element("version-next").click()
    expect(tab.element("answer-text")).to_have_text(["Over there."])


def test_asking_again_adds_a_version(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("It is noon.")
    tab.open_and_ask("When?")
    tab.wait_finished()
    model_script.answer("Noon it is.")
    tab.element("ask-again").click()
    expect(tab.element("answer-text")).to_have_text("Noon it is.")
    tab.wait_finished()
    assert [one["content"] for one in model_script.bodies[1]["messages"]] == ["When?"]
    expect(tab.element("user-event")).to_contain_text("2/2")


def test_a_retry_after_a_failure_replaces_the_answer(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask("When?")
    model_script.think("Half").fail("asleep")
    tab.wait_finished("failed")
    model_script.answer("Noon.", "Whole.")
    tab.element("retry").click()
    tab.wait_finished()
    expect(tab.element("answer-text")).to_have_text("Noon.")
    assert tab.element("error-state").count() == 0
    assert tab.element("user-event").count() == 1
    assert [one["content"] for one in model_script.bodies[1]["messages"]] == ["When?"]
    expect(tab.element("user-event")).to_contain_text("2/2")


def test_a_cancelled_edit_changes_nothing(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.")
    tab.open_and_ask("When?")
    tab.wait_finished()
    tab.element("edit").click()
    tab.element("edit-field").fill("Else")
    tab.element("edit-field").press("Escape")
    expect(tab.element("user-event")).to_contain_text("When?")
    expect(tab.element("edit")).to_be_focused()
    assert len(model_script.calls) == 1


# --- stopping ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop_closes_the_upstream(tab: Tab, model_script: ModelScript, how: str) -> None:
    tab.open_and_ask()
    model_script.think("On and on")
    tab.element("overlay-part").wait_for()
    if how == "button":
        tab.element("stop").click()
    else:
        tab.page.keyboard.press("Escape")
    assert model_script.calls[0].connection.closed.wait(SECONDS), "its model would go on and on"
    tab.wait_finished("cancelled")
    expect(tab.element("composer")).to_be_enabled()
    expect(tab.element("send")).to_be_visible()


# --- model, effort and view ------------------------------------------------------------------------------------------


def pick(tab: Tab, picker: str, choice: str) -> None:
    tab.element(picker).first.click()
    tab.page.get_by_role("menuitemradio", name=choice).first.click()


def test_the_chosen_model_and_effort_are_used(tab: Tab, model_script: ModelScript, page_server: PageServer) -> None:
    tab.open()
    expect(tab.element("model-picker")).to_contain_text(THINKER)
    tab.element("model-picker").click()
    offered = tab.page.get_by_role("menuitemradio").all_inner_texts()
    assert {THINKER, OTHER, REASONER, CLAUDE, LOCKED} <= {text.split("\n")[0] for text in offered}
    tab.page.keyboard.press("Escape")
    pick(tab, "model-picker", REASONER)
    pick(tab, "effort-picker", "High")
    tab.ask()
    model_script.frames({"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}})
    model_script.frames({"type": "response.completed", "response": {"id": "r", "status": "completed", "output": []}})
    expect(tab.element("composer")).to_be_enabled()
    tab.page.locator("[data-testid=assistant-event]:not([data-status=in_progress])").wait_for()
    assert model_script.bodies[0]["model"] == page_server.models.names[REASONER]
    assert model_script.bodies[0]["reasoning"]["effort"] == "high"
    tab.page.reload()
    expect(tab.element("model-picker")).to_contain_text(REASONER)
    expect(tab.element("effort-picker")).to_contain_text("High")


def test_a_chat_goes_on_with_the_model_of_its_last_answer(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    pick(tab, "model-picker", OTHER)
    tab.ask("Tides?")
    model_script.answer("The moon.")
    tab.wait_finished()
    tides = tab.conversation
    tab.element("new-chat").first.click()
    tab.element("empty").wait_for()
    pick(tab, "model-picker", THINKER)
    tab.ask("Stars?")
    model_script.answer("Far away.")
    tab.wait_finished()
    tab.open(f"/c/{tides}")
    expect(tab.element("model-picker")).to_contain_text(OTHER)
    expect(tab.element("ask-again")).to_have_text("Ask again")
    tab.ask("Ebb?")
    model_script.answer("Also the moon.")
    expect(tab.element("assistant-event").last).to_contain_text("Also the moon.")
    tab.wait_finished()
    # Another choice is for this chat, and for new ones.
    pick(tab, "model-picker", REASONER)
    expect(tab.element("ask-again").last).to_have_text(f"Ask {REASONER}")
    tab.element("new-chat").first.click()
    tab.element("empty").wait_for()
    expect(tab.element("model-picker")).to_contain_text(REASONER)
    tab.page.go_back()
    expect(tab.element("model-picker")).to_contain_text(OTHER)


def test_the_effective_view_is_shown_and_can_be_restricted(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    badge = tab.element("view-badge")
    expect(badge).to_have_text("Thoughts")
    pick(tab, "view-badge", "Time only")
    expect(badge).to_have_text("Time only")
    model_script.answer("Noon.", "Not for everybody.")
    tab.ask()
    tab.wait_finished()
    assert "Not for everybody" not in tab.page.content()
    expect(tab.wait_finished().locator(".view-badge")).to_have_text("Thoughts have no text here")


def test_a_view_that_the_model_forbids_cannot_be_chosen(tab: Tab) -> None:
    tab.store_choices(model=LOCKED, view="raw")
    tab.open()
    expect(tab.element("view-badge")).to_have_text("Time only")


# --- the rest ------------------------------------------------------------------------------------------------------


def test_a_rejected_question_is_not_lost(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    tab.page.route("**/api/chat", lambda route: route.fulfill(status=503, json={"error": {"message": "Not now."}}))
    tab.allow("503")
    tab.ask("A question that must not be lost")
    expect(tab.element("error-state")).to_contain_text("Not now.")
    expect(tab.element("user-event")).to_contain_text("A question that must not be lost")
    tab.page.unroute("**/api/chat")
    model_script.answer("Noon.")
    tab.element("retry").click()
    tab.wait_finished()
    assert tab.element("user-event").count() == 1


def test_the_answer_is_copied_as_it_was_written(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(permissions=["clipboard-read", "clipboard-write"])
    model_script.answer("It is **noon**.\n\n```py\nx = 1\n```")
    tab.open_and_ask()
    tab.wait_finished().get_by_test_id("copy").get_by_role("button").click()
    read = "() => navigator.clipboard.readText()"
    tab.page.wait_for_function("async () => (await navigator.clipboard.readText()) !== ''")
    assert tab.page.evaluate(read) == "It is **noon**.\n\n```py\nx = 1\n```"


def test_markdown_is_rendered_while_it_streams(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask()
    model_script.say("## Head\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\ndef f(): ret")
    text = tab.element("answer-text")
    expect(text.locator("td")).to_have_text(["1", "2"])
    expect(text.locator("pre")).to_contain_text("def f(): ret")
    model_script.say("urn 1\n```\n\n$$\\frac{1}{2}$$\n\nThe inline $x^2$.").end()
    tab.wait_finished()
    expect(text.locator("math").first).to_be_attached()
    expect(text.locator("pre")).to_contain_text("def f(): return 1")
    expect(text.locator("pre span[class]").first).to_be_attached()


def test_history_goes_back_with_its_reasoning(tab: Tab, model_script: ModelScript) -> None:
    model_script.answer("Noon.", "The moon.")
    tab.open_and_ask("When?")
    tab.wait_finished()
    model_script.answer("Yes.")
    tab.ask("Sure?")
    expect(tab.element("answer-text")).to_have_count(2)
    [question, answer, again] = model_script.bodies[1]["messages"]
    assert (question["content"], again["content"]) == ("When?", "Sure?")
    assert answer["content"] == "Noon."
    assert "The moon." in (answer.get("reasoning_content"), answer.get("reasoning"))
