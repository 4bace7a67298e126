"""Spaces from the browser: create one, invite by link, join with it, and take a chat into one."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.page.page_kit import ModelScript, Tab, Tabs
from tests.spaces_server.space_wire_kit import Client, joined
from tests.waiting import wait_until

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


def reasons(client: Client, id: str, *thoughts: str) -> None:
    client.say(kind="reasoning/start", id=id, payload={"message": f"About {id}"})
    for thought in thoughts:
        client.say(kind="reasoning/thought", context=id, payload={"message": thought})
    client.say(kind="reasoning/conclusion", context=id, payload={"message": "So it is"})


def invite(tab: Tab, who: str, *rights: str) -> str:
    """Make a link with these rights besides reading and talking, and return it."""
    tab.element("invite").click()
    tab.element("invite-name").fill(who)
    for right in rights:
        tab.element(f"right-{right}").check()
    tab.element("make-link").click()
    link = tab.element("invite-link").input_value()
    tab.page.get_by_role("button", name="Close", exact=True).click()
    return link


def token_in(tab: Tab, space: str) -> str:
    token: str = tab.page.evaluate(f"() => localStorage.getItem('pellucid.space.{space}')")
    return token


def test_a_space_is_created_and_joined_by_link(tabs: Tabs) -> None:
    lena = tabs()
    lena.page.goto(lena.url)
    lena.element("to-spaces").click()
    lena.element("new-space").click()
    lena.element("space-name").fill("harbour")
    lena.element("space-topic").fill("When is high tide?")
    lena.element("space-you").fill("lena")
    lena.element("create-space").click()
    lena.element("message-field").wait_for()
    assert lena.page.url.endswith("/spaces/harbour")
    expect(lena.element("lane")).to_have_count(0)
    expect(lena.page.get_by_role("button", name="How a model takes part")).to_have_count(1)

    link = invite(lena, "mara", "propose")
    address, _, fragment = link.partition("#")
    assert address == f"{lena.url}/spaces/harbour"
    assert fragment.startswith("join=")
    urls: list[str] = []
    mara = tabs(**PHONE)
    mara.page.on("request", lambda request: urls.append(request.url))
    mara.page.goto(link)
    expect(mara.element("invited-by")).to_have_text("lena invites you to take part as mara.")
    expect(mara.element("invitation")).to_contain_text("read along, write messages, and propose actions")
    mara.element("use-link").click()
    mara.element("message-field").fill("Hello from the phone")
    mara.element("send").click()
    expect(lena.element("message").last).to_contain_text("Hello from the phone")
    assert mara.page.url == address, "the link has left the address"
    secret = fragment.removeprefix("join=")
    assert not any(secret in url for url in urls), "the link is in no request's address"
    assert mara.page.evaluate("() => JSON.stringify(history.state)") == "null"
    expect(mara.element("invite")).to_have_count(0)

    # The link worked once; the token stays in the browser that used it.
    mara.page.reload()
    mara.element("message-field").wait_for()
    other = tabs()
    other.allow("403")
    other.page.goto(link)
    expect(other.page.get_by_role("alert")).to_contain_text("has been used")
    expect(other.element("use-link")).to_have_count(0)

    # Lanes: by name, people's last; what only asks for tools is folded.
    with (
        joined(lena.gateway, "harbour", "lena", with_token=token_in(lena, "harbour")) as person,
        joined(lena.gateway, "harbour", "zeno", with_token=agent(lena, "zeno")) as zeno,
        joined(lena.gateway, "harbour", "ada", with_token=agent(lena, "ada")) as ada,
    ):
        person.say(kind="mcp/request", to=["zeno"], payload={"method": "tools/list", "jsonrpc": "2.0", "id": 1})
        person.say(kind="mcp/request", to=["zeno"], payload={"method": "prompts/list", "jsonrpc": "2.0", "id": 2})
        reasons(zeno, "tides", "The moon pulls.")
        reasons(ada, "wind", "It is calm.")
    lanes = lena.element("lane")
    wait_until(lambda: lanes.count() == 3)
    assert [lane.get_attribute("data-pane") for lane in lanes.all()] == ["ada", "zeno", "lena"]
    folded = lanes.nth(2).get_by_test_id("discovery")
    expect(folded).to_have_text(re.compile("2 times"))
    expect(lanes.nth(2).get_by_test_id("request")).to_have_count(0)
    folded.click()
    expect(lanes.nth(2).get_by_test_id("request")).to_have_count(2)

    # Search names kinds in words, and one Escape closes it.
    lena.element("open-search").click()
    lena.element("space-search").fill("moon pulls")
    expect(lena.element("search-hit").first).to_contain_text("Thought")
    expect(lena.element("search-hit").first).not_to_contain_text("reasoning/")
    lena.element("space-search").press("Escape")
    expect(lena.element("search-dialog")).to_have_count(0)

    # Leaving keeps the token of a link; the list forgets it in two steps.
    mara.element("leave").click()
    row = mara.element("space-row").filter(has_text="harbour")
    expect(row).to_contain_text("You left it")
    expect(mara.element("forget-note")).to_contain_text("new link")
    row.get_by_role("link").click()
    mara.element("message-field").wait_for()
    mara.element("home").click()
    expect(row).to_contain_text("You are in it")
    row.get_by_role("button", name=re.compile("^Forget")).click()
    row.get_by_role("button", name="Forget", exact=True).click()
    assert mara.page.evaluate("() => localStorage.length") == 0


def agent(tab: Tab, name: str) -> str:
    """Return the token of a new participant that the owner of the space adds."""
    made = tab.page.request.post(f"{tab.url}/api/spaces/harbour/participants", data={"participant": name})
    token: str = made.json()["token"]
    return token


@pytest.mark.parametrize("view", ["raw", "sealed"])
def test_a_chat_is_taken_into_a_space_as_it_is_seen(tab: Tab, model_script: ModelScript, view: str) -> None:
    tab.store_choices(view=view)
    model_script.think("The moon pulls.").say("At noon.").end()
    tab.open_and_ask("When is high tide?")
    tab.wait_finished()
    tab.element("take-to-space").click()
    expect(tab.element("space-name")).to_have_value("when-is-high-tide")
    tab.element("space-name").fill(f"tides-{view}")
    tab.element("space-you").fill("lena")
    tab.element("create-space").click()
    tab.element("message-field").wait_for()
    messages = tab.element("message")
    expect(messages.first).to_contain_text("When is high tide?")
    expect(messages.last).to_contain_text("At noon.")
    context = tab.element("lane").get_by_test_id("context")
    expect(context).to_have_attribute("data-status", "concluded")
    if view == "raw":
        expect(tab.element("lane")).to_contain_text("The moon pulls.")
    assert ("moon" in tab.page.content()) is (view == "raw")
