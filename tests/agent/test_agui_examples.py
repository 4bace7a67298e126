"""The AG-UI examples of the repository work."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from pellucid.asgi.agui import AGUIApp
from tests.agent.agent_kit import MakeAgent, calls
from tests.agent.agui_app_kit import USER, running, serving
from tests.agui.agui_client import Converse
from tests.scripted import say

EXAMPLES = Path(__file__).parents[2] / "examples"


def weather(city: str) -> str:
    return f"rain in {city}"


@pytest.mark.parametrize("view", ["raw", "sealed"])
@pytest.mark.parametrize("transport", ["snapshot", "events"])
def test_a_client_written_from_the_proposal_returns_reasoning(
    make_agent: MakeAgent,
    view: str,
    transport: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = runpy.run_path(str(EXAMPLES / "agui_proposal_subscriber.py"))
    thoughts = calls(("weather", {"city": "Lyon"}))
    agent, get_calls = make_agent(thoughts, say("So.", "Coat."), thoughts, say("Hm.", "Yes."), tools=[weather])
    subscriber = example["Subscriber"]()
    query = {"snapshot": "", "events": "&snapshot=false"}[transport]
    request: Any = example["run"].__globals__["Request"]
    monkeypatch.setitem(example["run"].__globals__, "Request", lambda url, *rest: request(url + query, *rest))
    with serving(agent, view=view) as app:
        for question in ("Coat?", "Sure?"):
            subscriber.ask(question)
            example["run"](f"{app.url}/", subscriber, "t")
    reasoning = [message for message in subscriber.messages if message["role"] == "reasoning"]
    assert len(reasoning) >= 4
    assert all(message["encryptedContent"] for message in reasoning)
    shown = capsys.readouterr().out
    assert ("I must look." in shown) == (view == "raw")
    assert "Yes. " in shown
    assert [message["role"] for message in get_calls()[3].body["messages"]][:4] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    # Within a loop of functions this upstream gets its reasoning back, unsealed or as text.
    assert "I must look." in str(get_calls()[3].body["messages"])


def test_the_client_understands_the_proposals_examples(capsys: pytest.CaptureFixture[str]) -> None:
    subscriber = runpy.run_path(str(EXAMPLES / "agui_proposal_subscriber.py"))["Subscriber"]()
    for event in (
        {"type": "REASONING_START", "messageId": "reasoning-001", "encryptedContent": "encrypted-blob-xyz"},
        {"type": "REASONING_MESSAGE_START", "messageId": "msg-123", "role": "assistant"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "msg-123", "delta": "Let me think…"},
        {"type": "REASONING_MESSAGE_END", "messageId": "msg-123"},
        {"type": "REASONING_END", "messageId": "reasoning-001"},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "msg-456", "delta": "Analyzing "},
        {"type": "REASONING_MESSAGE_CHUNK", "delta": "the requirements..."},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "msg-456", "delta": ""},
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "msg-789", "delta": "More."},
        {"type": "SOMETHING_NEW"},
    ):
        subscriber.feed(event)
    assert subscriber.messages == [
        {
            "id": "reasoning-001",
            "role": "reasoning",
            "content": ["Let me think…"],
            "encryptedContent": "encrypted-blob-xyz",
        },
        {"id": "msg-456", "role": "reasoning", "content": ["Analyzing the requirements..."]},
        {"id": "msg-789", "role": "reasoning", "content": ["More."]},
    ]
    assert capsys.readouterr().out.count("\n") == 3


def test_the_application_examples(converse: Converse, make_agent: MakeAgent) -> None:
    assert isinstance(runpy.run_path(str(EXAMPLES / "agui_agent.py"))["app"], AGUIApp)
    page = runpy.run_path(str(EXAMPLES / "agui_page" / "server.py"))
    mail = calls(("now", {}), ("send_mail", {"to": "ada@example.org", "text": "Hello"}))
    page["agent"]._model = make_agent(mail, say("Hm.", "Sent."))[0]._model
    settle = {"status": "resolved", "payload": {"approved": True}}
    with running(page["app"]) as app:
        assert b"built/page.js" in app.request("GET", "/").body
        app.url += "/agent/"
        first, second = app.talk(converse, {"messages": [USER]}, {"settle": settle})
    assert [one["message"] for one in first["interrupts"]] == ["Send this to ada@example.org? “Hello”"]
    assert "STEP_FINISHED" in first["events"]
    assert second["messages"][-1]["content"] == "Sent. "
