"""The space in the browser: joining, a lane for each agent, the history, and actions."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.page.page_kit import Tab, Tabs, TCPProxy
from tests.page.page_space_kit import (
    QUESTION,
    ScriptedParticipants,
    gateway_with_spaces,
    join_space,
    lane,
    model_script,
    participants,
    play_review,
    token,
)
from tests.scripted.gateway import Served

__all__ = ["model_script", "participants"]

SPACES = [f"room-{number}" for number in range(24)]
_next = itertools.count()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with gateway_with_spaces(tmp_path_factory.mktemp("spaces"), SPACES) as served:
        yield served


@pytest.fixture
def space() -> str:
    """The name of a new space."""
    return SPACES[next(_next)]


# --- coming in -----------------------------------------------------------------------------------------------------


def test_a_browser_gets_the_page_where_a_program_gets_json(gateway: Served, space: str) -> None:
    for path in ("/spaces", f"/spaces/{space}"):
        page = gateway.request("GET", path, headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.status == 200
        assert page.headers["content-type"].startswith("text/html")
        assert "accept" in page.headers["vary"]
        bearer = {"Authorization": f"Bearer {token(space, 'mara')}"}
        response = gateway.request("GET", path, headers=bearer)
        assert response.status == 200
        assert response.headers["content-type"] == "application/json"
        assert "accept" in response.headers["vary"]


def test_the_token_is_entered_once_and_is_in_no_url(tab: Tab, space: str) -> None:
    urls: list[str] = []
    tab.page.on("request", lambda request: urls.append(request.url))
    tab.page.on("websocket", lambda socket: urls.append(socket.url))
    page = join_space(tab, space=space)
    expect(tab.page.get_by_role("heading", level=1)).to_have_text(space)
    page.reload()
    tab.page.locator("[data-testid=room][data-phase=open]").wait_for()
    assert not any(token(space, "mara") in url for url in [*urls, page.url])
    assert any("/ws" in url for url in urls)
    assert page.evaluate("() => JSON.stringify(localStorage)").count("token") == 0
    tab.element("leave").click()
    tab.element("join-token").wait_for()
    page.reload()
    tab.element("join-token").wait_for()


def test_a_wrong_token_shows_an_error_and_is_not_stored(tab: Tab, space: str) -> None:
    tab.page.goto(f"{tab.url}/spaces/{space}")
    tab.element("join-token").fill(token("another", "mara"))
    tab.element("join-send").click()
    # The room shows the reason before the gateway closes the socket; the token is removed when the form is back.
    expect(tab.page.locator(".form-error")).to_be_visible()
    assert tab.page.evaluate("() => sessionStorage.length") == 0
    tab.element("join-token").fill(token(space, "mara"))
    tab.element("join-send").click()
    tab.element("message-field").wait_for()


def test_a_space_is_named_where_the_address_names_none(tab: Tab, space: str) -> None:
    tab.page.goto(f"{tab.url}/spaces")
    tab.element("join-space").fill(space)
    tab.element("join-token").fill(token(space, "mara"))
    tab.element("join-send").click()
    tab.element("message-field").wait_for()
    assert tab.page.url.endswith(f"/spaces/{space}")


def test_the_chat_does_not_load_what_only_a_space_needs(gateway: Served) -> None:
    shell = gateway.request("GET", "/", headers={"Accept": "text/html"}).body.decode()
    assert "Space-" not in shell
    [script] = re.findall(r'src="(/assets/index-[^"]+\.js)"', shell)
    assert "Space-" in gateway.request("GET", script).body.decode()


# --- display ---------------------------------------------------------------------------------------------------------


def test_a_lane_for_each_agent_and_a_tree_for_each_context(
    tab: Tab, participants: ScriptedParticipants, space: str
) -> None:
    play_review(participants)
    join_space(tab, space=space)
    expect(tab.element("lane")).to_have_count(4)
    expect(tab.element("context-line")).to_have_count(4)
    security = lane(tab, "security-agent")
    contexts = security.get_by_test_id("context")
    expect(contexts).to_have_count(2)
    assert [one.get_attribute("data-status") for one in contexts.all()] == ["concluded", "concluded"]
    expect(contexts.first.get_by_test_id("confidence")).to_contain_text("92 %")
    levels = [row.get_attribute("aria-level") for row in security.get_by_role("listitem").all()]
    assert levels[0] == "1"
    assert "3" in levels, "what is nested stands in what it is nested in"
    assert security.get_by_test_id("request").first.get_attribute("data-outcome") == "done"
    assert security.get_by_test_id("request").last.get_attribute("data-outcome") == "failed"
    expect(security.get_by_test_id("severity").last).to_have_text("critical")
    expect(security, "participants of a context are named").to_contain_text("perf-agent")
    docs = lane(tab, "docs-agent")
    expect(docs.get_by_test_id("context")).to_have_attribute("data-status", "open")
    expect(docs.get_by_test_id("request")).to_have_attribute("data-outcome", "waiting")
    request = security.get_by_test_id("request").first.get_by_role("button")
    request.click()
    expect(security.get_by_test_id("request").first).to_contain_text("auth/session.py")


def test_thoughts_are_shown_live(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    join_space(tab, space=space)
    ask = participants.send("ops", "chat", text="Why?")
    start = participants.send("perf-agent", "reasoning/start", about=ask, message="Let me see")
    status = lane(tab, "perf-agent").get_by_test_id("context")
    expect(status).to_have_attribute("data-status", "open")
    participants.send("perf-agent", "reasoning/thought", start, message="First this")
    expect(lane(tab, "perf-agent")).to_contain_text("First this")
    call = participants.call("perf-agent", "load_test", start)
    expect(tab.element("request")).to_have_attribute("data-outcome", "waiting")
    participants.respond(call, "42 ms", start)
    expect(tab.element("request")).to_have_attribute("data-outcome", "done")
    participants.send("perf-agent", "reasoning/conclusion", start, message="So it is.", confidence=0.5)
    expect(status).to_have_attribute("data-status", "concluded")
    participants.send("perf-agent", "chat", about=ask, text="Because.")
    expect(tab.element("message").last).to_contain_text("Because.")
    expect(tab.element("announcer")).to_have_text("perf-agent says: Because.")


def test_an_answer_leads_to_the_reasoning_that_it_came_out_of_and_back(
    tab: Tab, participants: ScriptedParticipants, space: str
) -> None:
    play_review(participants)
    join_space(tab, space=space)
    fold = lane(tab, "security-agent").get_by_test_id("toggle-context").first
    fold.click()
    expect(fold).to_have_attribute("aria-expanded", "false")
    answer = tab.element("message").filter(has_text="I strongly recommend")
    answer.get_by_test_id("to-reasoning").click()
    expect(fold).to_have_attribute("aria-expanded", "true")
    head = lane(tab, "security-agent").locator(".row--head").first
    expect(head).to_be_focused()
    expect(head).to_be_in_viewport()
    head.get_by_test_id("to-answer").click()
    expect(tab.element("conversation").locator(".row:focus")).to_contain_text("I strongly recommend")


def test_folded_and_filtered(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    play_review(participants)
    join_space(tab, space=space)
    steps = tab.element("step")
    tab.element("view-folded").click()
    expect(lane(tab, "security-agent").get_by_test_id("context")).to_have_count(1)
    expect(lane(tab, "security-agent")).not_to_contain_text("Even with a rollback plan")
    expect(lane(tab, "security-agent")).to_contain_text("do_not_deploy")
    expect(lane(tab, "docs-agent").get_by_test_id("request")).to_be_visible()
    tab.element("view-main").click()
    expect(tab.element("lane")).to_have_count(0)
    expect(tab.element("message").first).to_contain_text(QUESTION)
    tab.element("view-full").click()
    tab.element("open-filter").click()
    filters = tab.element("filters")
    filters.get_by_role("button", name="Thoughts").click()
    expect(lane(tab, "security-agent")).not_to_contain_text("Even with a rollback plan")
    expect(lane(tab, "security-agent").get_by_test_id("step").filter(has_text="Observation")).to_have_count(2)
    filters.get_by_role("button", name="Thoughts").click()
    filters.get_by_role("button", name="perf-agent").click()
    expect(lane(tab, "perf-agent")).to_have_count(0)
    filters.get_by_role("button", name="perf-agent").click()
    tab.element("filter-text").fill("ROLLBACK")
    expect(steps).to_have_count(2)
    expect(lane(tab, "coordinator").get_by_test_id("context")).to_have_count(0)


def test_search_finds_all_messages_and_scrolls_to_them(
    tab: Tab, participants: ScriptedParticipants, space: str
) -> None:
    play_review(participants)
    join_space(tab, space=space)
    tab.element("view-main").click()
    tab.element("open-search").click()
    tab.element("space-search").fill("expiry of the first")
    expect(tab.element("search-hit")).to_have_count(1)
    tab.element("search-hit").click()
    row = lane(tab, "security-agent").locator(".row:focus")
    expect(row).to_contain_text("Have you considered the cache?")
    expect(row).to_be_in_viewport()
    expect(tab.element("room")).to_have_attribute("data-live", "true")


# --- what was --------------------------------------------------------------------------------------------------------


def test_the_history_can_be_scrubbed(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    play_review(participants)
    join_space(tab, space=space)
    scrub, live = tab.element("scrub"), tab.element("live")
    head = int(scrub.get_attribute("max") or 0)
    place = tab.element("position")
    expect(place).to_have_text(f"{head} / {head}")
    started = next(
        one["seq"]
        for one in gateway_envelopes(tab, space)
        if one["kind"] == "reasoning/start" and one["from"] == "perf-agent"
    )
    scrub.fill(str(started))
    expect(tab.element("room")).to_have_attribute("data-live", "false")
    expect(tab.element("lane")).to_have_count(3)
    expect(lane(tab, "security-agent").get_by_test_id("context")).to_have_attribute("data-status", "open")
    expect(tab.element("message-form-past")).to_be_visible()
    expect(tab.element("cancel")).to_have_count(0)
    scrub.focus()
    tab.page.keyboard.press("ArrowLeft")
    expect(lane(tab, "perf-agent")).to_have_count(0)
    tab.page.keyboard.press("Home")
    expect(place).to_contain_text(f"1 / {head}")
    participants.send("ops", "chat", text="Meanwhile.")
    expect(place, "it goes on behind the page").to_contain_text(f"1 / {head + 2}")
    expect(tab.element("message").filter(has_text="Meanwhile.")).to_have_count(0)
    live.click()
    expect(tab.element("message").last).to_contain_text("Meanwhile.")
    expect(live).to_have_attribute("aria-pressed", "true")


def test_playback_ends_live(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    play_review(participants)
    join_space(tab, space=space)
    tab.element("speed").select_option("2")
    tab.element("scrub").fill("1")
    tab.element("play").click()
    expect(tab.element("scrubber")).to_have_attribute("data-mode", "playing")
    expect(tab.element("scrubber")).to_have_attribute("data-mode", "live")
    expect(tab.element("lane")).to_have_count(4)


def gateway_envelopes(tab: Tab, space: str) -> list[dict[str, object]]:
    bearer = {"Authorization": f"Bearer {token(space, 'mara')}"}
    page = tab.gateway.request("GET", f"/spaces/{space}/envelopes?limit=500", headers=bearer).json
    envelopes: list[dict[str, object]] = page["envelopes"]
    return envelopes


# --- actions ---------------------------------------------------------------------------------------------------------


def test_a_participant_writes_and_replies(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    other = participants.client("ops")
    join_space(tab, space=space)
    tab.element("message-field").fill("Is anybody here?")
    tab.page.keyboard.press("Enter")
    envelope = other.until("chat")
    assert (envelope["from"], envelope["payload"]["text"]) == ("mara", "Is anybody here?")
    expect(tab.element("message")).to_have_attribute("data-mine", "true")
    expect(tab.element("pending")).to_have_count(0)
    question = participants.send("ops", "chat", text="I am. What is it?")
    mine = tab.element("message").filter(has_text="I am.")
    mine.hover()
    mine.get_by_test_id("reply").click()
    expect(tab.element("message-field")).to_be_focused()
    tab.element("recipient").select_option("ops")
    tab.page.keyboard.press("Shift+Tab")
    tab.element("message-field").fill("Only this.")
    tab.element("send").click()
    envelope = other.until("chat", **{"from": "mara"})
    assert envelope["correlation_id"] == [question]
    assert envelope["to"] == ["ops"]


def test_a_rejected_message_shows_the_reason_and_is_not_lost(
    tab: Tab, participants: ScriptedParticipants, space: str
) -> None:
    join_space(tab, space=space)
    tab.element("message-field").fill("x" * 30_000)
    tab.element("send").click()
    refused = tab.element("pending")
    expect(refused).to_have_attribute("data-failed", "true")
    refused.get_by_role("button", name="Edit and resend").click()
    expect(refused).to_have_count(0)
    assert len(tab.element("message-field").input_value()) == 30_000


def test_a_participant_who_may_only_read_sees_a_notice(
    tab: Tab, participants: ScriptedParticipants, space: str
) -> None:
    play_review(participants)
    tab.page.goto(f"{tab.url}/spaces/{space}")
    tab.element("join-token").fill(token(space, "reader"))
    tab.element("join-send").click()
    expect(tab.page.get_by_text("You can read here")).to_be_visible()
    expect(tab.element("lane")).to_have_count(4)
    for test_id in ("message-field", "cancel", "approve"):
        expect(tab.element(test_id)).to_have_count(0)


def test_a_reasoning_is_cancelled(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    names = play_review(participants)
    join_space(tab, space=space)
    docs = lane(tab, "docs-agent")
    docs.get_by_test_id("cancel").click()
    expect(docs.get_by_test_id("context")).to_have_attribute("data-status", "cancelled")
    envelope = participants.client("docs-agent").until("reasoning/cancel")
    assert (envelope["from"], envelope["context"]) == ("mara", names["docs"])
    expect(docs.get_by_test_id("cancel")).to_have_count(0)


def test_a_proposal_is_approved_or_rejected(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    names = play_review(participants)
    join_space(tab, space=space)
    proposal = tab.element("conversation").get_by_test_id("proposal")
    proposal.get_by_test_id("approve").click()
    expect(proposal).to_have_attribute("data-status", "fulfilled")
    envelope = participants.client("security-agent").until("mcp/request", **{"from": "mara"})
    assert envelope["correlation_id"] == [names["proposal"]]
    assert envelope["payload"]["params"]["name"] == "create_issue"
    participants.send("docs-agent", "mcp/proposal", method="tools/call", params={"name": "deploy", "arguments": {}})
    second = tab.element("conversation").get_by_test_id("proposal").last
    second.get_by_test_id("reject").click()
    expect(second).to_have_attribute("data-status", "rejected")


# --- when something breaks -----------------------------------------------------------------------------------------


def test_a_reconnect_loses_and_repeats_nothing(
    tabs: Tabs, proxy: TCPProxy, gateway: Served, participants: ScriptedParticipants, space: str
) -> None:
    tab = tabs(proxy, gateway)
    tab.allow("ERR_|WebSocket|Failed to load")
    tab.page.goto(f"{proxy.url}/spaces/{space}")
    tab.element("join-token").fill(token(space, "mara"))
    tab.element("join-send").click()
    tab.page.locator("[data-testid=room][data-phase=open]").wait_for()
    participants.send("ops", "chat", text="one")
    expect(tab.element("message")).to_have_count(1)
    proxy.cut()
    expect(tab.element("banner")).to_contain_text("was lost")
    tab.element("message-field").fill("mine")
    tab.element("send").click()
    expect(tab.element("pending")).to_have_count(1)
    for number in range(20):
        participants.send("ops", "chat", text=f"while away {number}")
    proxy.mend()
    expect(tab.element("banner")).to_have_count(0)
    expect(tab.element("pending")).to_have_count(0)
    expect(tab.element("message")).to_have_count(22)
    texts = [one.inner_text() for one in tab.element("message").locator(".message__text").all()]
    assert texts == ["one", *(f"while away {number}" for number in range(20)), "mine"]


def test_a_removed_participant_sees_a_notice(tab: Tab, participants: ScriptedParticipants, space: str) -> None:
    join_space(tab, "ops", space)
    participants.send("coordinator", "space/kick", participant_id="ops", reason="enough")
    expect(tab.element("join")).to_be_visible()
    expect(tab.page.get_by_role("alert")).to_be_visible()


def test_json_of_the_room_is_valid(gateway: Served, space: str) -> None:
    """The page reads the same JSON as every client."""
    bearer = {"Authorization": f"Bearer {token(space, 'mara')}"}
    response = gateway.request("GET", f"/spaces/{space}/envelopes", headers=bearer)
    assert set(json.loads(response.body)) >= {"envelopes", "has_more", "first", "last"}
