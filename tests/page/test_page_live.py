"""Several windows of one user: live changes, conflicts and lost networks; shared chats, export and feedback."""

from __future__ import annotations

import base64

from playwright.sync_api import Browser, FilePayload, expect

from tests.page.page_kit import ARGUMENTS, ModelScript, Tab, Tabs, TCPProxy, chromium
from tests.scripted.gateway import Served

DOT = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
"""An image of one pixel."""


def test_a_second_window_sees_everything_as_it_happens(tab: Tab, tabs: Tabs, model_script: ModelScript) -> None:
    other = tabs()
    other.open()
    tab.open_and_ask("Slowly?")
    model_script.think("Begin. ")
    # A new chat appears in the list, and its answer can be watched from the middle.
    row = other.element("conversation-item")
    expect(row).to_contain_text("Slowly?")
    row.get_by_role("link").click()
    expect(other.element("overlay-part")).to_have_text("Begin.")
    model_script.say("First.").end()
    for each in (tab, other):
        each.wait_finished()
    # The next turn appears in the window that did not ask it, token by token.
    tab.ask("And then?")
    model_script.think("Hm. ")
    expect(other.element("user-event").last).to_contain_text("And then?")
    expect(other.element("overlay-part")).to_have_text("Hm.")
    model_script.say("Second").end()
    expect(other.element("answer-text").last).to_have_text("Second")
    other.wait_finished()
    assert other.element("assistant-event").count() == 2
    # A branch, a title, a deletion.
    model_script.answer("Third.")
    tab.element("ask-again").last.click()
    expect(other.element("answer-text").last).to_have_text("Third.")
    body, json = b'{"title": "Renamed"}', {"Content-Type": "application/json"}
    renamed = tab.gateway.request("PATCH", f"/api/conversations/{tab.conversation}", body, json)
    assert renamed.status == 200, renamed.body
    for each in (tab, other):
        expect(each.element("conversation-item")).to_contain_text("Renamed")
        expect(each.page.get_by_role("heading", level=1)).to_have_text("Renamed")
    tab.gateway.request("DELETE", f"/api/conversations/{tab.conversation}")
    for each in (tab, other):
        expect(each.element("error-state")).to_contain_text("This chat was deleted in another window.")
        expect(each.element("conversation-item")).to_have_count(0)


def test_loading_the_page_again_and_again_leaves_no_connections_behind(
    chrome: Browser, gateway: Served, model_script: ModelScript
) -> None:
    """A left page may stay in the back/forward cache, and a browser opens only six connections to a server."""
    cached = chrome.browser_type.launch(
        executable_path=chromium(), args=ARGUMENTS, ignore_default_args=["--disable-back-forward-cache"]
    )
    try:
        tab = Tab(cached.new_context(), gateway)
        tab.page.add_init_script("addEventListener('pageshow', (event) => { window.restored = event.persisted })")
        for count in range(8):
            with tab.page.expect_request("**/api/events"):
                tab.open(f"/?{count}")
        # The page that comes back hears of changes again.
        tab.page.go_back(wait_until="commit")
        tab.page.wait_for_function("() => window.restored === true")
        model_script.answer("Yes.")
        body, json = b'{"text": "From elsewhere?"}', {"Content-Type": "application/json"}
        assert gateway.request("POST", "/api/chat", body, json).status == 200
        expect(tab.element("conversation-item")).to_contain_text("From elsewhere?")
        assert not tab.unexpected_errors, tab.unexpected_errors
    finally:
        cached.close()


def test_a_conflict_has_two_ways_on_and_loses_no_question(tab: Tab, tabs: Tabs, model_script: ModelScript) -> None:
    tab.open()
    model_script.answer("First.")
    tab.ask("One?")
    tab.wait_finished()
    other = tabs()
    other.allow("409|ERR_FAILED")
    # This window hears nothing of the others.
    other.page.route("**/api/events", lambda route: route.abort())
    other.open(f"/c/{tab.conversation}")
    other.wait_finished()
    model_script.answer("Second.")
    tab.ask("Two?")
    expect(tab.element("answer-text").last).to_have_text("Second.")
    tab.wait_finished()

    other.ask("My own?")
    error = other.element("error-state")
    expect(error).to_contain_text("This chat went on in another window.")
    expect(error).not_to_contain_text("follows")
    other.element("retry-other").click()
    expect(other.element("error-state")).to_have_count(0)
    expect(other.element("answer-text").last).to_have_text("Second.")
    expect(other.element("composer")).to_have_value("My own?")

    # The same again, as a branch after what this window had seen.
    model_script.answer("Third.")
    tab.ask("Three?")
    expect(tab.element("answer-text").last).to_have_text("Third.")
    tab.wait_finished()
    other.element("send").click()
    expect(other.element("error-state")).to_contain_text("went on in another window")
    model_script.answer("Of a branch.")
    other.element("retry").click()
    for each in (other, tab):
        expect(each.element("answer-text")).to_have_text(["First.", "Second.", "Of a branch."])
        expect(each.element("user-event").last).to_contain_text("My own?")

    # The other window answers at this moment: the question is sent after it.
    tab.ask("Four?")
    model_script.think("Hm.")
    tab.element("overlay-part").wait_for()
    other.ask("Five?")
    expect(other.element("error-state")).to_contain_text("This chat goes on in another window.")
    other.element("retry").click()
    expect(other.element("follow-up")).to_contain_text("Five?")
    expect(other.element("overlay-part")).to_have_text("Hm.")
    model_script.say("Fourth.").end()
    model_script.answer("Fifth.")
    for each in (other, tab):
        expect(each.element("answer-text").last).to_have_text("Fifth.")
        expect(each.element("user-event").last).to_contain_text("Five?")
    expect(other.element("follow-up")).to_have_count(0)


def test_a_network_that_died_silently_is_noticed_when_it_is_back(
    tabs: Tabs, model_script: ModelScript, proxy: TCPProxy
) -> None:
    tab = tabs(proxy)
    tab.allow("ERR_")
    tab.open_and_ask("Slowly?")
    model_script.think("Begin. ")
    expect(tab.element("overlay-part")).to_have_text("Begin.")
    proxy.freeze()
    model_script.think("Meanwhile.")
    tab.page.evaluate("() => dispatchEvent(new Event('online'))")
    expect(tab.element("overlay-part")).to_have_text("Begin. Meanwhile.")
    model_script.say("Done.").end()
    tab.wait_finished()
    assert tab.element("assistant-event").count() == 1


def test_a_chat_is_shared_read_only_exported_and_rated(tab: Tab, tabs: Tabs, model_script: ModelScript) -> None:
    tab.open()
    model_script.answer("It is *42*.", "A thought.")
    tab.element("file-input").set_input_files(FilePayload(name="dot.gif", mimeType="image/gif", buffer=DOT))
    tab.ask("Why?")
    answer = tab.wait_finished()
    # Feedback: stored, seen again after a reload, with a comment, and taken back.
    answer.get_by_test_id("feedback-up").click()
    answer.get_by_test_id("feedback-comment").click()
    tab.element("comment-field").fill("Good.")
    with tab.page.expect_response(lambda response: response.request.method == "PUT"):
        tab.page.get_by_role("dialog").get_by_role("button", name="Save").click()
    tab.page.reload()
    expect(tab.element("feedback-up")).to_have_attribute("aria-pressed", "true")
    event = tab.api(f"/api/conversations/{tab.conversation}")["events"][1]
    assert event["feedback"] == {"rating": "up", "comment": "Good."}

    def item(name: str) -> None:
        tab.element("conversation-item").get_by_role("button").click()
        tab.page.get_by_role("menuitem", name=name).click()

    # Export.
    tab.allow("download")
    with tab.page.expect_download() as download:
        item("Export as Markdown")
    assert download.value.suggested_filename == "Why.md"
    # A link, opened in another profile, which cannot change anything.
    item("Share")
    dialog = tab.element("share-dialog")
    dialog.get_by_label("The model’s thoughts").select_option("raw")
    expect(dialog).to_contain_text("files that were attached")
    expect(tab.element("share-loopback")).to_contain_text("this computer alone")
    tab.element("share-make").click()
    link = tab.element("share-link").input_value()
    other = tabs()
    other.page.goto(link)
    expect(other.element("answer-text")).to_have_text("It is 42.")
    expect(other.element("shared-note")).to_contain_text("shared this chat with you")
    picture = other.element("question-files").get_by_role("img", name="dot.gif")
    other.page.wait_for_function("one => one.complete && one.naturalWidth === 1", arg=picture.element_handle())
    for testid in ("composer", "edit", "ask-again", "feedback", "conversation-item"):
        expect(other.element(testid)).to_have_count(0)
    other.open_reasoning()
    expect(other.element("reasoning-panel")).to_contain_text("A thought.")
    tab.element("share-item").get_by_role("button").click()
    expect(tab.element("share-item")).to_have_count(0)
    other.allow("404")
    other.page.reload()
    expect(other.element("error-state")).to_contain_text("There is nothing to read here.")
