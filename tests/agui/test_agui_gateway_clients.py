"""The official clients from 1.0.0 to 0.0.39 against the running gateway: the messages that they build."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any
from urllib.parse import quote

import pytest

from pellucid.protocols import agui
from pellucid.protocols.agui import DialectName
from tests.agui import agui_client, agui_node
from tests.agui.agui_client import VERSIONS, Converse, Version
from tests.agui.agui_gateway_kit import ON, USER, WEATHER, Agent, path_of, run, without_ids
from tests.scripted import Upstream, abandoned_then, say
from tests.scripted.gateway import Served, serve
from tests.server.state_kit import breaks, brief, calls, config_of, hangs
from tests.waiting import LIMIT_SECONDS

IN_PYTHON = "python "
"""Before the version of a client that is played in Python, and not by its package."""
CLIENTS = [
    *(f"{IN_PYTHON}{version}" for version in VERSIONS),
    *(pytest.param(version, marks=pytest.mark.needs("node")) for version in VERSIONS),
]
each = pytest.mark.parametrize("client", CLIENTS)


def version_of(client: str) -> Version:
    return next(version for version in VERSIONS if client.removeprefix(IN_PYTHON) == version)


def knows_reasoning(client: str) -> bool:
    """Return whether the client has reasoning messages."""
    return version_of(client) != "0.0.39"


HALT = "agent:weather"
AGENT = Agent(
    HALT,
    [
        agui.StepStartedEvent(step_name="plan").as_side_event(),
        agui.StateSnapshotEvent(snapshot={"n": 1}).as_side_event(),
        agui.ActivitySnapshotEvent(message_id="act", activity_type="plan", content={"done": 0}).as_side_event(),
        lambda emitter: emitter.thinking("k", "I must ask."),
        agui.StepFinishedEvent(step_name="plan").as_side_event(),
        lambda emitter: emitter.tool_call("f", "{}", name="weather", call_id="call_w"),
        agui.Interrupt(id="call_w", reason="tool_call", message="May I?", tool_call_id="call_w").as_side_event(),
    ],
    [lambda emitter: emitter.text("t", "So be it.")],
)


def turn(**more: Any) -> dict[str, Any]:
    return {"messages": [USER], **more}


class Scene:
    """The actions of one client: `turns` with a scripted model; `query` is sent with each."""

    def __init__(self, *turns: dict[str, Any], model: str = "", script: Any = None, **query: Any) -> None:
        self.turns = turns
        self.model = model
        self.script = script
        self.query = query


TOOLS = {"tools": [WEATHER]}
FOLLOW = {"messages": [ON], **TOOLS, "answers": {"weather": "rain"}}
SCENES: dict[str, Scene] = {
    "plain": Scene(turn(), {"messages": [ON]}, script=say("Let me think.", "It is 42.")),
    "off": Scene(turn(), {"messages": [ON]}, script=say(), reasoning="off"),
    "chunks": Scene(turn(), {"messages": [ON]}, script=say("Let me think.", "It is 42."), chunks="true"),
    "snapshot": Scene(turn(), {"messages": [ON]}, script=say("Let me think.", "It is 42."), snapshot="true"),
    "sealed": Scene(turn(), {"messages": [ON]}, script=say("Let me think.", "It is 42."), view="sealed"),
    "hidden": Scene(turn(), {"messages": [ON]}, script=say("Let me think.", "It is 42."), view="hidden"),
    "front end": Scene(turn(**TOOLS), FOLLOW, script="front end"),
    "server": Scene(turn(), {"messages": [ON]}, script="server"),
    "interrupt": Scene(
        turn(**TOOLS), {**TOOLS, "settle": {"status": "resolved", "payload": {"rain": True}}}, model=HALT
    ),
    "declined": Scene(turn(**TOOLS), {**TOOLS, "settle": {"status": "cancelled"}}, model=HALT),
    "error": Scene(turn(), script=breaks),
    "refused": Scene(turn(), script=say(), view="loud"),
    "abort": Scene(turn(abort="REASONING_MESSAGE_CONTENT"), {"messages": [ON]}, script="abort"),
    "stored": Scene(turn(abort="REASONING_MESSAGE_CONTENT", runId="left"), script=hangs, store="true"),
}


async def front_end(call: Any) -> None:
    results = sum(message["role"] == "tool" for message in call.body["messages"])
    await (calls(reasoning="It rains.", text="Take a coat.") if results else calls("weather"))(call)


async def server_side(call: Any) -> None:
    results = sum(message["role"] == "tool" for message in call.body["messages"])
    if results < 2:
        await calls("look_up", reasoning=f"Look {results}.")(call)
    else:
        await calls(reasoning="Enough.", text="Moss.")(call)


@pytest.fixture(scope="module")
def gateway(upstream: Upstream) -> Iterator[Served]:
    with serve(config_of(upstream, tools={"functions": ["tests.server.state_kit:look_up"]}), more=[AGENT]) as running:
        yield running


Turns = tuple[str, list[dict[str, Any]]]
"""The model, and what came of each turn."""


class Played:
    """The model and the results of each turn, by scene and client. The packages play all scenes in one process."""

    def __init__(self, gateway: Served, upstream: Upstream) -> None:
        self._gateway = gateway
        self._upstream = upstream
        self._turns: dict[tuple[str, str], Turns] = {}

    def __getitem__(self, key: tuple[str, str]) -> Turns:
        if key not in self._turns:
            if key[1].startswith(IN_PYTHON):
                self._turns |= self._play(agui_client.converse, [key])
            else:
                self._turns |= self._play(agui_node.converse, [*product(SCENES, VERSIONS)])
        return self._turns[key]

    def close(self) -> None:
        """Cancel the runs that go on without their clients."""
        for scene, client in self._turns:
            if scene == "stored":
                self._gateway.request("POST", cancel_path(client))

    def _play(self, converse: Converse, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Turns]:
        named = {"front end": front_end, "server": server_side}
        models: list[str] = []
        conversations = []
        for name, client in keys:
            scene, version = SCENES[name], version_of(client)
            aborted = scene.script == "abort"
            scripts = abandoned_then(hangs, say("Hm.", "Two.")) if aborted else [named.get(scene.script, scene.script)]
            models.append(scene.model or f"vllm:{self._upstream.plays(*scripts)}")
            # Newer clients say what they speak, or are taken for what is in use; the oldest have to be named.
            headers = {"AG-UI-Dialect": VERSIONS[version]} if version == "0.0.39" else {}
            turns = list(scene.turns)
            if version == "0.0.39" and "abort" in turns[0]:
                turns[0] = {**turns[0], "abort": "THINKING_TEXT_MESSAGE_CONTENT"}
            url = self._gateway.url + path_of(models[-1], **scene.query)
            thread = f"{name} {client}"
            conversations.append(
                {"client": version, "url": url, "headers": headers, "threadId": thread, "turns": turns}
            )
        outcomes = converse(conversations)
        return {key: (model, turns) for key, model, turns in zip(keys, models, outcomes, strict=True)}


@pytest.fixture(scope="module")
def played(gateway: Served, upstream: Upstream) -> Iterator[Played]:
    played = Played(gateway, upstream)
    yield played
    played.close()


def cancel_path(client: str) -> str:
    """Return the path that cancels the run which this client left in the scene `stored`."""
    return f"/ag-ui/cancel?threadId=stored%20{quote(client)}&runId=left"


def last(played: Played, scene: str, client: str) -> list[dict[str, Any]]:
    """Return the final messages, after checking that every turn succeeded."""
    turns = played[scene, client][1]
    for one in turns:
        assert (one["error"], one["failed"], one["warnings"]) == (None, None, []), one
    messages: list[dict[str, Any]] = turns[-1]["messages"]
    ids = [message["id"] for message in messages]
    assert len(set(ids)) == len(ids)
    return messages


def thought(client: str, *texts: str) -> list[tuple[str, str]]:
    return [("reasoning", text) for text in texts if knows_reasoning(client)]


@each
@pytest.mark.parametrize("scene", ["plain", "chunks", "snapshot"])
def test_two_turns(played: Played, client: str, scene: str) -> None:
    messages = last(played, scene, client)
    both = [*thought(client, "Let me think. "), ("assistant", "It is 42. ")]
    assert without_ids(messages) == [("user", "Why?"), *both, ("user", "And?"), *both]
    for message in messages:
        if message["role"] == "reasoning":
            assert message["encryptedValue"]
            # Older ones know no metadata.
            assert message.get("metadata") == ({"pellucid": {"form": "raw"}} if version_of(client) == "1.0.0" else None)


@each
@pytest.mark.parametrize("scene", ["off", "hidden"])
def test_the_hidden_view_changes_nothing_but_reasoning(played: Played, client: str, scene: str) -> None:
    messages = last(played, scene, client)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
    for one in played[scene, client][1]:
        assert not [kind for kind in one["events"] if kind.startswith(("REASONING_", "THINKING_"))]


@each
def test_sealed_reasoning_is_an_empty_message_with_a_value(played: Played, upstream: Upstream, client: str) -> None:
    if not knows_reasoning(client):
        return
    messages = last(played, "sealed", client)
    assert without_ids(messages)[1] == ("reasoning", "")
    assert messages[1]["encryptedValue"]
    assert "think" not in json.dumps(played["sealed", client])
    body = upstream.calls(played["sealed", client][0].partition(":")[2])[1].body
    assert brief(body["messages"])[1] == ("assistant", ("Let me think. ", "It is 42. "))


@each
def test_front_end_tools(played: Played, upstream: Upstream, client: str) -> None:
    messages = last(played, "front end", client)
    assert without_ids(messages) == [
        ("user", "Why?"),
        *thought(client, "I need help."),
        ("assistant", "", "weather"),
        ("tool", "rain"),
        ("user", "And?"),
        *thought(client, "It rains."),
        ("assistant", "Take a coat."),
    ]
    [first] = [message for message in messages if message.get("toolCalls")]
    assert json.loads(first["toolCalls"][0]["function"]["arguments"]) == {"word": "moss"}
    body = upstream.calls(played["front end", client][0].partition(":")[2])[1].body
    reasoning = "I need help." if knows_reasoning(client) else None
    assert brief(body["messages"])[1] == ("assistant", (reasoning, None, "weather"))
    assert "weather" in [tool["function"]["name"] for tool in body["tools"]]


@each
def test_server_side_tools_with_thoughts_before_each_call(played: Played, upstream: Upstream, client: str) -> None:
    messages = last(played, "server", client)
    assert without_ids(messages)[: -3 if knows_reasoning(client) else -2] == [
        ("user", "Why?"),
        *thought(client, "Look 0."),
        ("assistant", "", "look_up"),
        ("tool", "moss is a word"),
        *thought(client, "Look 1."),
        ("assistant", "", "look_up"),
        ("tool", "moss is a word"),
        *thought(client, "Enough."),
        ("assistant", "Moss."),
    ]
    if knows_reasoning(client):
        *_, fourth = upstream.calls(played["server", client][0].partition(":")[2])
        thoughts = [entry[1][0] for entry in brief(fourth.body["messages"]) if entry[0] == "assistant"]
        assert thoughts == ["Look 0.", "Look 1.", "Enough."]


@each
def test_interrupts_are_answered_by_the_next_run(played: Played, client: str) -> None:
    messages = last(played, "interrupt", client)
    first = played["interrupt", client][1][0]
    assert first["events"][:2] == ["RUN_STARTED", "STEP_STARTED"]
    assert ("activity", {"done": 0}) in without_ids(messages) or not knows_reasoning(client)
    if version_of(client) not in ("1.0.0", "0.0.58"):
        return  # older clients have no interrupts: their runs end well, and that is all
    assert [one["id"] for one in first["interrupts"]] == ["call_w"]
    assert without_ids(messages)[-1] == ("assistant", "So be it.")
    assert without_ids(last(played, "declined", client))[-1] == ("assistant", "So be it.")
    results = [
        (part.outcome, part.content)
        for call in AGENT.model_calls
        for message in call.messages
        for part in message.parts
        if part.part_kind == "tool-return"
    ]
    assert ("success", {"rain": True}) in results
    assert ("denied", "The user cancelled this.") in results


@each
def test_an_error_during_the_stream_is_reported_and_the_text_stays(played: Played, client: str) -> None:
    [only] = played["error", client][1]
    assert only["error"] is None
    assert "out of memory" in only["failed"]
    assert only["events"][-1] == "RUN_ERROR"
    assert without_ids(only["messages"]) == [("user", "Why?"), *thought(client, "Hm."), ("assistant", "It is")]


@each
def test_a_refused_request_is_an_http_error(played: Played, client: str) -> None:
    [only] = played["refused", client][1]
    assert not only["accepted"]
    assert "400" in only["error"]
    assert "RUN_STARTED" not in only["events"]


@each
def test_abort_closes_the_upstream_and_the_conversation_continues(played: Played, client: str) -> None:
    """The second turn is answered when the upstream of the first one is closed."""
    aborted, following = played["abort", client][1]
    assert without_ids(aborted["messages"]) == [("user", "Why?"), *thought(client, "Hm.")]
    assert (following["error"], following["failed"]) == (None, None)
    assert without_ids(following["messages"])[-1] == ("assistant", "Two. ")


@each
def test_a_stored_run_continues_without_its_client_until_it_is_cancelled(
    gateway: Served, played: Played, upstream: Upstream, client: str
) -> None:
    [call] = upstream.calls(played["stored", client][0].partition(":")[2])
    gateway.idle()
    run(gateway, f"vllm:{upstream.plays(say())}")
    assert not call.connection.closed.is_set()
    reply = gateway.request("POST", cancel_path(client))
    assert reply.json == {"threadId": f"stored {client}", "runId": "left", "status": "cancelled"}
    assert call.connection.closed.wait(LIMIT_SECONDS)


@pytest.mark.parametrize("dialect", ["0.x", "1.0"])
@pytest.mark.parametrize("chunks", ["true", "false"])
@pytest.mark.needs("node")
def test_the_newest_client_accepts_older_dialects(
    gateway: Served, upstream: Upstream, dialect: DialectName, chunks: str
) -> None:
    model = f"vllm:{upstream.plays(say('Let me think.', 'It is 42.'))}"
    url = gateway.url + path_of(model, dialect=dialect, chunks=chunks)
    [[one]] = agui_node.converse([{"client": "1.0.0", "url": url, "threadId": "t", "turns": [turn()]}])
    assert (one["error"], one["failed"], one["warnings"]) == (None, None, [])
    assert without_ids(one["messages"]) == [
        ("user", "Why?"),
        ("reasoning", "Let me think. "),
        ("assistant", "It is 42. "),
    ]
