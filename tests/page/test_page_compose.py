"""What a question gets before it is sent: files, instructions, tools; drafts, a question that waits, and keys."""

from __future__ import annotations

import base64
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import FilePayload, expect

from pellucid.server.access.policy import Policy
from tests.page.page_kit import OTHER, REASONER, THINKER, ModelScript, PageServer, Tab, Tabs, shot
from tests.scripted import Upstream, say
from tests.server.state_kit import make_keys, serving, url_of


def png(width: int = 40, height: int = 30) -> bytes:
    """A PNG image of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + b"\x2f\x7f\x86" * width
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")


def file(name: str, data: bytes, media_type: str) -> FilePayload:
    return {"name": name, "mimeType": media_type, "buffer": data}


TRANSFER = """([kind, files, target]) => {
  const transfer = new DataTransfer()
  for (const [name, type, data] of files) {
    transfer.items.add(new File([Uint8Array.from(atob(data), (one) => one.charCodeAt(0))], name, {type}))
  }
  const field = document.querySelector("[data-testid=composer]")
  const fields = {bubbles: true, cancelable: true}
  if (kind === "paste") field.dispatchEvent(new ClipboardEvent("paste", {...fields, clipboardData: transfer}))
  else for (const name of ["dragover", "drop"]) {
    const at = target ? document.querySelector(`[data-testid=${target}]`) : document.body
    at.dispatchEvent(new DragEvent(name, {...fields, dataTransfer: transfer}))
  }
}"""


def transfer(tab: Tab, kind: str, *files: tuple[str, str, bytes]) -> None:
    tab.page.evaluate(TRANSFER, [kind, [[name, type, base64.b64encode(data).decode()] for name, type, data in files]])


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_files_are_dropped_pasted_picked_sent_and_shown(tabs: Tabs, model_script: ModelScript, device: str) -> None:
    phone = {"viewport": {"width": 390, "height": 780}, "has_touch": True, "is_mobile": True}
    tab = tabs(**(phone if device == "phone" else {"color_scheme": "dark"}))
    page = tab.open()
    transfer(tab, "drop", ("cat.png", "image/png", png()))
    transfer(tab, "paste", ("photo.svg", "image/svg+xml", b"<svg onload='alert(1)'/>"))
    tab.element("file-input").set_input_files([file("notes \u202e.md", b"# Notes", "text/markdown")])
    files = tab.element("attached-file")
    expect(files).to_have_count(3)
    expect(files.nth(0)).to_contain_text("cat.png")
    expect(files.nth(1)).to_contain_text("Only PNG, JPEG, GIF and WebP images")
    tab.element("composer").fill("What is it?")
    expect(tab.element("send")).to_be_disabled()
    shot(tab, f"attached-{device}")
    if device == "phone":
        sizes = files.get_by_role("button").evaluate_all("all => all.map((one) => one.getBoundingClientRect().height)")
        assert min(sizes) >= 44
    page.get_by_role("button", name="Remove photo.svg").click()
    expect(tab.element("composer")).to_be_focused()
    tab.element("send").click()
    shown = tab.element("question-files")
    expect(shown.get_by_role("listitem")).to_have_count(2)
    expect(tab.element("attached")).to_have_count(0)
    model_script.answer("A cat.", "Fur, whiskers.")
    tab.wait_finished()
    image, text, question = model_script.bodies[0]["messages"][-1]["content"]
    assert base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,")) == png()
    assert text["text"].startswith('<file name="notes .md">') or text["text"].startswith('<file name="notes.md">')
    assert question["text"] == "What is it?"
    # The thumbnail comes from the gateway now, and after a reload.
    for _ in range(2):
        link = shown.get_by_role("link").first
        expect(link).to_have_attribute("href", "/api/attachments/" + link_id(tab))
        picture = shown.get_by_role("img", name="cat.png")
        page.wait_for_function("one => one.complete && one.naturalWidth === 40", arg=picture.element_handle())
        shot(tab, f"sent-{device}")
        page.goto(tab.url + f"/c/{tab.conversation}")
        shown.wait_for()
    # Asked again, the question keeps its files; edited, it keeps those that are not removed, and gets others.
    tab.element("ask-again").click()
    model_script.answer("A dog.")
    tab.wait_finished()
    expect(shown.get_by_role("listitem")).to_have_count(2)
    tab.element("edit").click()
    expect(files).to_have_count(2)
    tab.element("edit-files").set_input_files([file("photo.svg", b"<svg/>", "image/svg+xml")])
    expect(files.last).to_contain_text("Only PNG, JPEG, GIF and WebP images")
    expect(tab.element("edit-send")).to_be_disabled()
    shot(tab, f"edited-{device}")
    page.get_by_role("button", name="Remove photo.svg").click()
    expect(tab.element("edit-field")).to_be_focused()
    page.get_by_role("button", name="Remove notes").click()
    tab.page.evaluate(TRANSFER, ["drop", [["new.txt", "text/plain", base64.b64encode(b"New.").decode()]], "edit-field"])
    expect(files).to_have_count(2)
    expect(tab.element("attached")).to_have_count(1)  # the composer got none
    tab.element("edit-field").fill("And now?")
    tab.element("edit-send").click()
    model_script.answer("Both.")
    tab.wait_finished()
    expect(shown.get_by_role("listitem")).to_have_text(["", "new.txt"])
    assert [len(body["messages"][-1]["content"]) for body in model_script.bodies] == [3, 3, 3]
    assert model_script.bodies[2]["messages"][-1]["content"][0] == image
    assert "New." in model_script.bodies[2]["messages"][-1]["content"][1]["text"]


PICTURES = """async () => {
  const make = async (type, clear) => {
    const canvas = new OffscreenCanvas(3000, 1000), context = canvas.getContext("2d")
    context.fillStyle = "red"
    context.fillRect(clear ? 1000 : 0, 0, 1500, 1000)
    context.fillStyle = "blue"
    context.fillRect(clear ? 2500 : 1500, 0, 1500, 1000)
    const bytes = new Uint8Array(await (await canvas.convertToBlob({type})).arrayBuffer())
    return btoa(bytes.reduce((text, one) => text + String.fromCharCode(one), ""))
  }
  return [await make("image/png", false), await make("image/png", true), await make("image/jpeg", false)]
}"""
LOOK = """async (urls) => Promise.all(urls.map(async (url) => {
  const image = new Image()
  image.src = url
  await image.decode()
  const {naturalWidth: width, naturalHeight: height} = image
  const context = new OffscreenCanvas(width, height).getContext("2d")
  context.drawImage(image, 0, 0)
  const colour = (x, y) => {
    const [red, , blue, alpha] = context.getImageData(x, y, 1, 1).data
    return alpha < 9 ? "clear" : red > 200 ? "red" : blue > 200 ? "blue" : "other"
  }
  return [width, height, colour(5, 5), colour(width - 5, height - 5)]
}))"""
TURNED = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
"""EXIF: the image is to be turned by 90 degrees."""


def test_large_images_are_made_smaller_before_they_are_sent(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    opaque, clear, photo = map(base64.b64decode, tab.page.evaluate(PICTURES))
    turned = photo[:2] + TURNED + photo[2:]
    tab.element("file-input").set_input_files(
        [
            file("opaque.png", opaque, "image/png"),
            file("clear.png", clear, "image/png"),
            file("turned.jpg", turned, "image/jpeg"),
            file("small.png", png(), "image/png"),
        ]
    )
    files = tab.element("attached-file")
    for number, size in ((0, "2048 × 683"), (2, "683 × 2048")):
        expect(files.nth(number)).to_contain_text("made smaller")
        expect(files.nth(number).get_by_title(size)).to_have_count(1)
    expect(files.nth(3)).not_to_contain_text("made smaller")
    shot(tab, "smaller")
    model_script.answer("Colours.")
    tab.ask("What is it?")
    tab.wait_finished()
    infos = tab.api(f"/api/conversations/{tab.conversation}")["events"][0]["attachments"]
    assert [(one["name"], one["media_type"]) for one in infos] == [
        ("opaque.jpg", "image/jpeg"),
        ("clear.png", "image/png"),
        ("turned.jpg", "image/jpeg"),
        ("small.png", "image/png"),
    ]
    assert tab.page.evaluate(LOOK, [one["url"] for one in infos[:3]]) == [
        [2048, 683, "red", "blue"],
        [2048, 683, "clear", "blue"],
        [683, 2048, "red", "blue"],
    ]
    assert infos[3]["size"] == len(png())


def link_id(tab: Tab) -> str:
    chat = tab.api(f"/api/conversations/{tab.conversation}")
    identifier: str = chat["events"][-2]["attachments"][0]["id"]
    return identifier


def test_limits_and_models_are_explained_before_anything_is_sent(tabs: Tabs, upstream: Upstream) -> None:
    profiles = {"blind": {"extends": "vllm", "accepts": []}}
    providers = {
        "blind": {"profile": "blind", "base_url": upstream.url, "models": ["reader"]},
        "vllm": {"profile": "vllm", "base_url": upstream.url, "models": ["seer"]},
    }
    with serving(upstream, profiles=profiles, providers=providers, server={"default_model": "reader"}) as running:
        tab = tabs(to=running)
        page = tab.open()
        tab.element("add").click()
        expect(tab.element("add-files")).to_contain_text("reader reads text files, but no images or PDFs")
        shot(tab, "menu")
        page.keyboard.press("Escape")
        tab.element("composer").fill("?")
        tab.element("file-input").set_input_files([file("cat.png", png(), "image/png"), file("a.txt", b"x", "")])
        expect(tab.element("attached-file").first).to_contain_text("reader takes no images")
        expect(tab.element("send")).to_be_disabled()
        expect(tab.element("send")).to_have_attribute(
            "title", "reader takes no images. Choose another model, or remove it."
        )
        # The other model takes it, as far as is known.
        tab.element("model-picker").click()
        page.get_by_role("menuitemradio", name="seer").click()
        expect(tab.element("send")).to_be_enabled()
        tab.element("file-input").set_input_files([file(f"{n}.txt", b"x", "text/plain") for n in range(9)])
        expect(tab.element("attached")).to_contain_text("A question can have at most 10 files")
        expect(tab.element("send")).to_be_disabled()
        tab.element("remove-file").last.click()
        expect(tab.element("send")).to_be_enabled()
        tab.element("remove-file").last.click()
        tab.element("file-input").set_input_files([file("big.txt", b"x" * (10 * 1024 * 1024 + 1), "text/plain")])
        expect(tab.element("attached-file").last).to_contain_text("a file can have at most 10.5 MB")
        page.close()  # its feed would keep the gateway from its end


def test_a_follow_up_waits_for_the_answer(tab: Tab, model_script: ModelScript) -> None:
    tab.open_and_ask("First?")
    model_script.think("Hm.")
    tab.element("overlay").get_by_text("Hm.").wait_for()
    field, waiting = tab.element("composer"), tab.element("follow-up")
    field.fill("Second?")
    field.press("Enter")
    expect(waiting).to_contain_text("Will be sent when the answer is ready")
    expect(field).to_have_value("")
    shot(tab, "follow-up")
    # It can be edited, and gets what is added.
    tab.element("follow-up-edit").click()
    expect(field).to_have_value("Second?")
    expect(field).to_be_focused()
    field.press("Enter")
    field.fill("And third?")
    tab.element("queue").click()
    expect(waiting).to_contain_text("Second? And third?")
    assert len(model_script.bodies) == 1
    model_script.say("One.").end()
    tab.page.wait_for_function("() => document.querySelectorAll('[data-testid=user-event]').length === 2")
    expect(waiting).to_have_count(0)
    model_script.answer("Two.")
    tab.wait_finished().get_by_text("Two.").wait_for()
    assert [one["content"] for one in model_script.bodies[1]["messages"] if one["role"] == "user"] == [
        "First?",
        "Second?\n\nAnd third?",
    ]
    # After a stop or a failure the reader decides.
    tab.ask("Third?")
    model_script.think("Hm again.")
    tab.element("overlay").get_by_text("Hm again.").wait_for()
    field.fill("Fourth?")
    field.press("Enter")
    field.press("Escape")
    tab.wait_finished("cancelled")
    expect(waiting).to_contain_text("The answer did not finish. Send this anyway?")
    shot(tab, "follow-up-held")
    tab.element("follow-up-send").click()
    model_script.fail("out of memory")
    tab.wait_finished("failed")
    tab.ask("Fifth?")
    model_script.think("Once more.")
    tab.element("overlay").get_by_text("Once more.").wait_for()
    field.fill("Sixth?")
    field.press("Enter")
    # Leaving the chat makes it a draft.
    chat = tab.conversation
    tab.element("new-chat").click()
    expect(field).to_have_value("")
    model_script.say("Five.").end()
    tab.page.locator(f"a[href='/c/{chat}'], [data-testid=chat-{chat}]").or_(
        tab.element("conversation").first
    ).first.click()
    expect(field).to_have_value("Sixth?")
    expect(waiting).to_have_count(0)


def test_drafts_belong_to_a_chat_and_to_an_owner(tabs: Tabs, upstream: Upstream, tmp_path: Path) -> None:
    url = url_of(tmp_path / "store.sqlite")
    # The browser's event loop occupies this thread.
    with ThreadPoolExecutor(1) as pool:
        keys = pool.submit(make_keys, url, {"ann": Policy(), "bob": Policy()}).result()
    name = upstream.plays(say("", "Yes."))
    providers = {"vllm": {"profile": "vllm", "base_url": upstream.url, "models": [name]}}
    with serving(upstream, url, providers=providers) as running:
        tab = tabs(to=running)
        tab.allow("401")

        def sign_in(who: str) -> None:
            tab.page.get_by_label("API key").fill(keys[who])
            tab.page.get_by_role("button", name="Sign in", exact=True).click()
            tab.element("model-picker").wait_for()

        field = tab.element("composer")
        tab.page.goto(tab.url)
        sign_in("ann")
        tab.ask("Hello?")
        tab.wait_finished()
        chat = tab.conversation
        field.fill("Of this chat")
        tab.element("new-chat").click()
        field.fill("Of a new chat")
        tab.page.reload()
        expect(field).to_have_value("Of a new chat")
        tab.page.goto(f"{tab.url}/c/{chat}")
        expect(field).to_have_value("Of this chat")
        # The cookie ends without a sign-out: another owner sees nothing of it, and deletes it.
        tab.context.clear_cookies()
        tab.page.goto(tab.url)
        sign_in("bob")
        expect(field).to_have_value("")
        assert "Of " not in tab.page.evaluate("() => JSON.stringify(localStorage)")
        field.fill("Of Bob")
        tab.page.wait_for_function("() => JSON.stringify(localStorage).includes('Of Bob')")
        tab.element("sign-out").click()
        tab.page.get_by_label("API key").wait_for()
        assert "Of Bob" not in tab.page.evaluate("() => JSON.stringify(localStorage)")
        sign_in("bob")
        expect(field).to_have_value("")
        tab.page.close()  # its feed would keep the gateway from its end


def test_instructions_and_tools_are_chosen_in_dialogs(tab: Tab, model_script: ModelScript) -> None:
    page = tab.open()

    def write(text: str) -> None:
        tab.element("add").click()
        tab.element("add-instructions").click()
        tab.element("instructions-field").fill(text)
        shot(tab, "instructions")
        tab.element("instructions-save").click()
        expect(tab.element("instructions-field")).to_have_count(0)

    write("Answer in verse.")
    expect(tab.element("instructions")).to_be_visible()
    tab.element("add").click()
    tab.element("add-tools").click()
    weather = page.get_by_role("checkbox", name="weather")
    expect(weather).to_be_checked()
    weather.uncheck()
    shot(tab, "tools")
    tab.element("tools-done").click()
    tab.ask("First?")
    model_script.answer("Yes.")
    tab.wait_finished()
    write("Answer in prose.")
    page.reload()
    expect(tab.element("instructions")).to_be_visible()
    tab.ask("Second?")
    model_script.answer("No.")
    tab.wait_finished().get_by_text("No.").wait_for()
    write("")
    expect(tab.element("instructions")).to_have_count(0)
    tab.ask("Third?")
    model_script.answer("Perhaps.")
    tab.wait_finished().get_by_text("Perhaps.").wait_for()
    first, second, third = model_script.bodies
    assert [body["messages"][0]["content"] for body in (first, second, third)] == [
        "Answer in verse.",
        "Answer in prose.",
        "First?",
    ]
    # The choice of tools outlasts the reload.
    for body in (first, second, third):
        assert [tool["function"]["name"] for tool in body["tools"]] == ["hostile"]


def test_keys_and_their_list(tab: Tab, model_script: ModelScript) -> None:
    page, field = tab.open(), tab.element("composer")
    expect(field).to_be_focused()
    page.keyboard.type("n?r")
    expect(field).to_have_value("n?r")
    field.fill("Why?")
    field.press("Enter")
    model_script.answer("So.", "Because.")
    tab.wait_finished()
    field.press("Escape")
    expect(field).not_to_be_focused()
    page.keyboard.press("r")
    tab.element("reasoning-panel").wait_for()
    page.keyboard.press("?")
    sheet = tab.element("help-sheet")
    expect(sheet).to_contain_text("Show or hide the last reasoning")
    shot(tab, "keys")
    # In a dialog they do nothing; the browser's own keys are left to it.
    page.keyboard.press("n")
    expect(sheet).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    page.keyboard.press("m")
    expect(field).to_be_focused()
    field.press("Escape")
    page.keyboard.press("s")
    expect(tab.element("search")).to_be_focused()
    page.locator("h1").click()
    # Switched off, they do nothing.
    tab.element("add").click()
    tab.element("add-help").click()
    tab.element("single-keys").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("n")
    assert page.url.endswith(tab.conversation)
    tab.element("add").click()
    tab.element("add-help").click()
    tab.element("single-keys").check()
    page.keyboard.press("Escape")
    expect(sheet).to_have_count(0)
    field.fill("")
    field.press("Escape")
    page.keyboard.press("n")
    tab.element("empty").wait_for()


def test_what_is_typed_after_a_choice_is_the_question(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs()
    page, field = tab.open(), tab.element("composer")
    tab.element("model-picker").click()
    page.get_by_role("menuitemradio", name=REASONER).click()
    expect(field).to_be_focused()
    page.keyboard.type("now ")
    tab.element("effort-picker").click()
    page.get_by_role("menuitemradio", name="Low").click()
    expect(field).to_be_focused()
    page.keyboard.type("some ")
    tab.element("file-input").set_input_files([file("a.txt", b"one", "text/plain")])
    tab.element("attached-file").wait_for()
    page.keyboard.type("notes")
    expect(field).to_have_value("now some notes")
    assert page.url.rstrip("/") == tab.url
    tab.element("remove-file").click()
    # Escape leaves the menu as it was, and then its button has the focus: a question begins there, too.
    tab.element("model-picker").click()
    page.keyboard.press("Escape")
    expect(tab.element("model-picker")).to_be_focused()
    page.keyboard.type("here")
    expect(field).to_have_value("now some noteshere")
    tab.element("model-picker").click()
    page.get_by_role("menuitemradio", name=THINKER).click()
    field.press("Enter")
    model_script.answer("So.", "Because.")
    tab.wait_finished()
    tab.element("feedback-up").click()
    page.keyboard.type("no more")
    expect(field).to_have_value("no more")
    assert page.url.endswith(tab.conversation)


def test_a_choice_opens_no_keyboard_on_a_phone(tabs: Tabs, model_script: ModelScript) -> None:
    tab = tabs(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = tab.open()
    tab.element("model-picker").tap()
    page.get_by_role("menuitemradio", name=REASONER).tap()
    expect(tab.element("model-picker")).to_be_focused()
    tab.element("file-input").set_input_files([file("a.txt", b"one", "text/plain")])
    tab.element("attached-file").wait_for()
    expect(tab.element("composer")).not_to_be_focused()


def test_a_rejected_file_says_why_and_stays_for_a_retry(
    tab: Tab, model_script: ModelScript, page_server: PageServer
) -> None:
    tab.open()
    tab.element("file-input").set_input_files([file("cat.png", png(), "image/png")])
    tab.element("attached-file").get_by_role("img").or_(tab.element("attached-file").locator("img")).wait_for()
    tab.element("send").click()
    model_script.fail("image input is not supported")
    answer = tab.wait_finished("failed")
    expect(answer).to_contain_text("image input is not supported")
    tab.element("model-picker").click()
    tab.page.get_by_role("menuitemradio", name=OTHER).click()
    answer.get_by_role("button", name="Try again").click()
    model_script.answer("A cat.")
    tab.wait_finished()
    again = model_script.bodies[-1]
    assert again["model"] == page_server.models.names[OTHER]
    assert again["messages"][-1]["content"][0]["type"] == "image_url"


def test_after_a_reload_the_names_of_lost_files_stand_where_they_were(tab: Tab, model_script: ModelScript) -> None:
    tab.open()
    tab.element("composer").fill("What is it?")
    tab.element("file-input").set_input_files([file("notes.md", b"# Notes", "text/markdown")])
    expect(tab.element("attached-file")).to_have_count(1)
    expect(tab.element("lost-files")).to_have_count(0)
    tab.page.reload()
    expect(tab.element("composer")).to_have_value("What is it?")
    expect(tab.element("lost-files")).to_contain_text("notes.md")
    tab.element("file-input").set_input_files([file("notes.md", b"# Notes", "text/markdown")])
    expect(tab.element("attached-file")).to_have_count(1)
    expect(tab.element("lost-files")).to_have_count(0)
    model_script.answer("Notes.")
    tab.element("send").click()
    tab.wait_finished()
    tab.page.reload()
    tab.element("copy").wait_for()
    expect(tab.element("lost-files")).to_have_count(0)


def test_offline_the_page_says_so_and_offers_to_send_again(tab: Tab, model_script: ModelScript) -> None:
    tab.allow("ERR_INTERNET_DISCONNECTED")
    model_script.answer("Hello.")
    tab.open_and_ask("Hello?")
    tab.wait_finished()
    tab.context.set_offline(True)
    try:
        expect(tab.element("offline")).to_contain_text("offline")
        tab.ask("Why?")
        failure = tab.element("error-state")
        expect(failure).to_contain_text("could not be sent")
        expect(failure).to_contain_text("You were offline")
        assert len(model_script.calls) == 1
    finally:
        tab.context.set_offline(False)
    expect(tab.element("offline")).to_have_count(0)
    retry = failure.get_by_test_id("retry")
    expect(retry).to_be_focused()
    model_script.answer("Because.")
    retry.press("Enter")
    expect(tab.element("answer-text").last).to_have_text("Because.")


def test_back_online_a_question_that_is_being_written_keeps_the_focus(tab: Tab, model_script: ModelScript) -> None:
    """Also if the code that shows a chat could not be loaded before."""
    tab.allow("ERR_INTERNET_DISCONNECTED")
    tab.open()
    tab.context.set_offline(True)
    try:
        tab.ask("Why?")
        expect(tab.element("composer")).to_have_value("")
        tab.element("composer").fill("And then?")
    finally:
        tab.context.set_offline(False)
    expect(tab.element("error-state")).to_contain_text("could not be sent")
    expect(tab.element("composer")).to_be_focused()
    expect(tab.element("composer")).to_have_value("And then?")
    assert not model_script.calls
